package ses

import "github.com/uetkit/uetkit/transport/wire"

// Kind is the kind of operation that ended.
type Kind uint8

// The kinds. Those of tagged messages are even; those of the target's side come last.
const (
	evNotice       Kind = 0  // what SES sends by itself, which makes no event
	EvWrite        Kind = 1  // write to a region of the peer
	EvRead         Kind = 3  // read from a region of the peer
	EvAtomic       Kind = 5  // atomic operation on a region of the peer
	EvFetch        Kind = 7  // atomic operation that returns the old values
	EvSend         Kind = 9  // untagged message
	EvTSend        Kind = 10 // tagged message
	EvRecv         Kind = 11 // untagged receive
	EvTRecv        Kind = 12 // tagged receive
	EvRemoteWrite  Kind = 13 // a peer wrote to a region of this side: nobody posted it
	EvRemoteAtomic Kind = 15 // a peer executed an atomic operation on a region of this side
	// EvCommit asks the owner of a region to make Len bytes from the offset Tag on durable, and then to
	// call Committed with Data. Nothing has ended.
	EvCommit Kind = 17
	// EvCommitted: what a peer wrote, with header data, is durable. EvRemoteWrite has counted it.
	EvCommitted Kind = 19
	// EvRemoteRead: a peer has all bytes of a read of a region of this side, or the old values of a
	// fetching operation (RegionConfig.CountsReads). Of a read of a few bytes, which go in the ACK of the
	// request, it says that they have left.
	EvRemoteRead Kind = 21
)

// Recv reports whether k is a receive or what a peer did without one, Tagged whether k is
// tagged, and RMA whether k accesses a region of the peer.
func (k Kind) Recv() bool   { return k >= EvRecv }
func (k Kind) Tagged() bool { return k&1 == 0 }
func (k Kind) RMA() bool    { return k < EvSend }

// kind returns the tagged or untagged variant of k.
func kind(k Kind, tagged bool) Kind {
	if tagged {
		k++
	}
	return k
}

// Cause says how an operation ended.
type Cause uint8

// The causes.
const (
	OK          Cause = iota
	Rejected          // the target refused the message, see RC
	Truncated         // the message was longer than the receive
	Cancelled         // cancelled on this side
	TimedOut          // the peer went silent, or the message stopped
	Unreachable       // the network says the peer is not there
	Aborted           // the PDC was closed in error, see Nack
	PeerError         // the sender gave the message up or broke the protocol, see RC
	NoResource        // the peer, or this side, was short of something for too long
	NotReady          // the target answered but was not ready for RNRTimeout, see RC
	TooBig            // packets of this size do not get through
	NoKey             // no valid key to seal with
	Closed            // the PDC was closed on this side
	NoMessage         // no unexpected message is what was looked for
	Untold            // of LevelMatch, LevelCommit: the target does not tell when that is reached
	numCauses
)

var causeNames = [numCauses]string{"ok", "refused", "truncated", "cancelled", "timed out", "unreachable", "aborted", "peer error",
	"no resource", "not ready", "too big", "no valid key", "closed", "no message", "received, and no word to come of a match or of durability"}

func (c Cause) String() string {
	if c < numCauses {
		return causeNames[c]
	}
	return "unknown cause"
}

// An Event is the end of one operation. Every accepted operation makes exactly
// one, except a Silent send that succeeds.
type Event struct {
	Kind Kind
	// HasData reports whether Data is valid.
	HasData bool
	// Cause is OK for success. RC and Nack are the wire codes behind a failure,
	// 0 if none.
	Cause Cause
	RC    wire.RC
	Nack  wire.NackCode
	// Unknown reports, for a failed send, that the target may have the whole message.
	Unknown bool
	// Multi reports that this is one message in a multi-receive buffer, Released that the
	// buffer belongs to the caller again.
	Multi, Released bool
	Context         any
	Flags           uint64
	// Buf is the Buf of the operation; with Multi, the part of it that has the message; nil
	// for a receive that looked. Of a receive, Len is the number of bytes placed and OverLen
	// that of the bytes that did not fit; of a send, Len is the length of the message.
	Buf     []byte
	Len     int
	OverLen uint32
	// Endpoint posted the operation.
	Endpoint EndpointID
	// Tag, Data, Peer and Initiator describe the message; Peer and Initiator of
	// a receive that nothing matched are 0.
	Tag, Data uint64
	Peer      PeerID
	Initiator uint32
}

// init makes e the event of an operation that succeeded, about a message of n bytes. It sets
// every field, because events are recycled. It does not assign a literal, which would be built
// on the stack and copied.
func (e *Event) init(ep EndpointID, k Kind, context any, flags uint64, buf []byte, n int, tag uint64, peer PeerID, initiator uint32) {
	e.Context, e.Buf, e.Endpoint = context, buf, ep
	e.Kind, e.HasData, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = k, false, OK, 0, 0, false, false, false
	e.Flags, e.Len, e.OverLen, e.Tag, e.Data, e.Peer, e.Initiator = flags, n, 0, tag, 0, peer, initiator
}

// data sets the header data of the message, if it has any.
func (e *Event) data(has bool, v uint64) {
	if has {
		e.HasData, e.Data = true, v
	}
}

// A ring is a queue of events in a circle of places. It grows as needed and never shrinks. A queue
// that was read to its end begins again at the home place, so that a large circle is not walked through
// memory.
type ring struct {
	last, next *place // that of the newest event, and of the one to read next
	n, size    int    // events in the queue, places of the circle
	home       *place // the place behind which an empty queue begins
}

// A place has an event and the place behind it. Pointers cost less than an index into an array.
type place struct {
	Event
	behind *place
}

// add appends an Event with undefined fields, for the caller to init, and returns it. It is
// never the one that Event returned last.
func (r *ring) add() *Event {
	if r.n++; r.n >= r.size {
		r.grow()
	}
	r.last = r.last.behind
	return &r.last.Event
}

// grow doubles the circle: the new places are behind the last event.
//
//go:noinline
func (r *ring) grow() {
	more := make([]place, max(16, r.size))
	r.size += len(more)
	for i := range more[1:] {
		more[i].behind = &more[i+1]
	}
	first, last := &more[0], &more[len(more)-1]
	if r.last == nil {
		r.next, r.last, r.home, last.behind = first, last, last, first
		return
	}
	last.behind, r.last.behind = r.last.behind, first
}

// rewind lets the next event be at the first place again, if the queue is empty. No event may be in use.
func (r *ring) rewind() {
	if r.n == 0 && r.home != nil {
		r.last, r.next = r.home, r.home.behind
	}
}

// EventsRead says that all events were read, by who counts them and does not ask Event for one more.
func (s *SES) EventsRead() { s.events.rewind() }

// Events returns the number of events in the queue.
func (s *SES) Events() int { return s.events.n }

// Event returns the next event, or nil. It is valid until the next call. The caller clears
// Context and Buf when it has read them, so that they keep nothing of the user's alive.
func (s *SES) Event() *Event {
	r := &s.events
	if r.n == 0 {
		r.rewind()
		return nil
	}
	p := r.next
	r.next = p.behind
	r.n--
	return &p.Event
}
