package ses

import "github.com/uetkit/uetkit/transport/wire"

// Kind is the kind of operation that ended.
type Kind uint8

// The kinds.
const (
	EvSend  Kind = iota + 1 // untagged message
	EvTSend                 // tagged message
	EvRecv                  // untagged receive
	EvTRecv                 // tagged receive
)

// Recv reports whether k is a receive, Tagged whether it has a tag.
func (k Kind) Recv() bool   { return k >= EvRecv }
func (k Kind) Tagged() bool { return k&1 == 0 }

// kind is the kind of an operation.
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
	Refused           // the target refused the message, see RC
	Truncated         // the message was longer than the receive
	Cancelled         // cancelled on this side
	TimedOut          // the peer went silent, or the message stopped
	Unreachable       // the network says the peer is not there
	Aborted           // the PDC was closed in error, see Nack
	PeerError         // the sender gave the message up or broke the protocol, see RC
	NoResource        // the peer, or this side, was short of something for too long
	NotReady          // the target answered but was not ready for RNRTimeout, see RC
	TooBig            // packets of this size do not pass
	NoKey             // no valid key to seal with
	Closed            // the PDC was closed on this side
	NoMessage         // no unexpected message is what was looked for
	numCauses
)

var causeNames = [numCauses]string{"ok", "refused", "truncated", "cancelled", "timed out", "unreachable", "aborted", "peer error",
	"no resource", "not ready", "too big", "no valid key", "closed", "no message"}

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
	// HasData says that Data is valid.
	HasData bool
	// Cause is OK for success. RC and Nack are the wire codes behind a failure,
	// 0 if none.
	Cause Cause
	RC    wire.RC
	Nack  wire.NackCode
	// Unknown, for a failed send: the target may have the whole message.
	Unknown bool
	// Multi says that this is one message in a multi-receive buffer, Released
	// that the buffer is the caller's again.
	Multi, Released bool
	Context         any
	Flags           uint64
	// Buf is the Buf of the operation, the place of the message in it if Multi,
	// nil for a receive that looked. Of a receive, Len is the bytes placed and
	// OverLen the bytes of the message that found no room; of a send, Len is the
	// bytes of the message.
	Buf          []byte
	Len, OverLen int
	// Tag, Data, Peer and Initiator describe the message; Peer and Initiator of
	// a receive that nothing matched are 0.
	Tag, Data uint64
	Peer      PeerID
	Initiator uint32
}

// init makes e the event of an operation that succeeded, about a message of n bytes. It sets
// all of e: places of events are used again as they are. A literal would be built on the
// stack and copied.
func (e *Event) init(k Kind, context any, flags uint64, buf []byte, n int, tag uint64, peer PeerID, initiator uint32) {
	e.Context, e.Buf = context, buf
	e.Kind, e.HasData, e.Cause, e.RC, e.Nack, e.Unknown, e.Multi, e.Released = k, false, OK, 0, 0, false, false, false
	e.Flags, e.Len, e.OverLen, e.Tag, e.Data, e.Peer, e.Initiator = flags, n, 0, tag, 0, peer, initiator
}

// data notes the header data of the message, if it has any.
func (e *Event) data(has bool, v uint64) {
	if has {
		e.HasData, e.Data = true, v
	}
}

// ring is a queue of events. It grows to the largest number ever waiting and
// keeps that.
type ring struct {
	buf     []Event // length a power of two, one more than are used
	head, n int
}

// add returns the place of an Event at the end of the queue, which holds what the
// last one left: init is to follow. It is never that of the Event that was handed out
// last.
func (r *ring) add() *Event {
	if r.n+1 >= len(r.buf) {
		r.grow()
	}
	e := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
	r.n++
	return e
}

func (r *ring) grow() {
	buf := make([]Event, max(16, 2*len(r.buf)))
	for i := range r.n {
		buf[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
	}
	r.buf, r.head = buf, 0
}

// Events is how many events wait.
func (s *SES) Events() int { return s.events.n }

// Event returns the next event, or nil. It is valid until the next call. What it
// refers to is the user's: the caller clears Context and Buf when it has read them.
func (s *SES) Event() *Event {
	r := &s.events
	if r.n == 0 {
		return nil
	}
	e := &r.buf[r.head]
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return e
}
