package uet

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Waiting is an operation that has not ended, and why. Programs read its fields, people
// its String and Why. Fields that do not belong to its Cause are zero. Durations count back
// from the call of Diagnose, or forward where the field says so.
type Waiting struct {
	Context any
	// Flags are fi.Send or fi.Recv, and fi.Msg or fi.Tagged, as in a cq.Entry.
	Flags fi.Flags
	// Mode is the delivery mode of the operation's packets, or of those of a receive's message
	// (UE 3.5.7): wire.RUD, wire.ROD, wire.RUDI or wire.UUD. It is 0 for a receive without a
	// message.
	Mode wire.Mode
	// Remote is the target of a send, or the source of a receive's message. For a receive
	// without a message it is the source that the receive asks for, if any.
	Remote netip.AddrPort
	Tag    uint64
	// Age is how long ago it was posted.
	Age time.Duration
	// Done is the number of bytes acknowledged or received. Total is the length of the
	// message, or of the buffer of a receive without one.
	Done, Total uint64
	Cause       WaitFor
	// For is how long the cause has lasted, as far as is known.
	For time.Duration
	// Heard is how long ago the peer was last heard; negative means never.
	Heard time.Duration
	// Timeouts counts the retransmission timeouts since the last progress. Next is the time
	// until something is sent again, GiveUp the time until the peer is given up; 0 means not
	// known.
	Timeouts     int
	Next, GiveUp time.Duration
	// ICMP says that an ICMP message reported the peer unreachable.
	ICMP bool
	// Nack and RC are what the target answered.
	Nack wire.NackCode
	RC   wire.RC
	// Window and InFlight are bytes with WaitCongestion and WaitCredit, else packets.
	Window, InFlight int
	// Behind is the context of the message that goes first, BehindLeft its bytes that are
	// not sent yet, BehindFor what that message waits for.
	Behind     any
	BehindLeft uint64
	BehindFor  WaitFor
	// Unmatched is how many messages of the same kind (tagged or not) no receive has
	// matched, OtherKind how many of the other kind. Tags are the tags of the oldest.
	Unmatched, OtherKind int
	Tags                 []uint64
	// Early is how many packets came before one that is missing.
	Early int
	// Full is how many PDC identifiers may not be used yet, or the limit of operations.
	Full int

	core transport.Waiting
}

// String is the operation and its cause in a sentence.
func (w *Waiting) String() string { return w.core.String() }

// Why is the cause in a sentence.
func (w *Waiting) Why() string { return w.core.Why() }

func waiting(w *transport.Waiting) Waiting {
	return Waiting{
		Context: w.Context, Flags: kindFlags[w.Kind], Mode: w.Mode, Remote: w.Remote, Tag: w.Tag, Age: w.Age, Done: w.Done, Total: w.Total,
		Cause: w.Cause, For: w.For, Heard: w.Heard, Timeouts: w.Timeouts, Next: w.Next, GiveUp: w.GiveUp, ICMP: w.ICMP, Nack: w.Nack, RC: w.RC,
		Window: w.Window, InFlight: w.InFlight, Behind: w.Behind, BehindLeft: w.BehindLeft, BehindFor: w.BehindFor,
		Unmatched: w.Unmatched, OtherKind: w.OtherKind, Tags: w.Tags, Early: w.Early, Full: w.Full, core: *w,
	}
}

// A WaitFor is what an operation waits for.
type WaitFor = transport.WaitFor

// What operations wait for: sends up to WaitAnswer, receives from WaitMessage on.
const (
	WaitNothing    = transport.WaitNothing    // nothing: packets leave or are under way, and none is late
	WaitAck        = transport.WaitAck        // an ACK: packets or their ACKs are lost, or the peer is gone
	WaitOpen       = transport.WaitOpen       // the first answer of the target on a new PDC
	WaitClose      = transport.WaitClose      // the PDC closes; the message goes by the next one
	WaitPDC        = transport.WaitPDC        // a PDC: there are too many, or no id is free
	WaitRoom       = transport.WaitRoom       // room: as many operations are posted as there may be
	WaitNotReady   = transport.WaitNotReady   // the target has no receive for it, and no room to keep it
	WaitShort      = transport.WaitShort      // the target is short of something else
	WaitCongestion = transport.WaitCongestion // the congestion window is full
	WaitCredit     = transport.WaitCredit     // credit of the target (RCCC)
	WaitPeerWindow = transport.WaitPeerWindow // the peer accepts no further packet (MP_RANGE)
	WaitOwnWindow  = transport.WaitOwnWindow  // a missing packet: this side sends no further ahead of it
	WaitKey        = transport.WaitKey        // a key to seal with
	WaitBehind     = transport.WaitBehind     // another message, which goes first
	WaitFence      = transport.WaitFence      // the sends before a fence
	WaitOrder      = transport.WaitOrder      // an earlier packet; this one arrived
	WaitAnswer     = transport.WaitAnswer     // its response; it arrived
	WaitMessage    = transport.WaitMessage    // a message
	WaitMatch      = transport.WaitMatch      // a message that matches; others came
	WaitRest       = transport.WaitRest       // the rest of its message
	WaitEarlier    = transport.WaitEarlier    // an earlier packet; later ones came
	WaitCQ         = transport.WaitCQ         // room in the completion queue
	WaitConnection = transport.WaitConnection // a connection
	WaitLost       = transport.WaitLost       // a message of a source that was given up; it may come back
)

// Diagnose returns the operations that have not ended and what each waits for, oldest
// first. It answers "why does this take so long?". It takes the lock of the endpoint, reads
// all operations and packets in flight, and changes nothing. It is too slow for every turn:
// it is for people, and for programs in trouble. It returns nil if nothing is outstanding,
// or if the endpoint is not enabled or closed.
//
// Like any call of the endpoint, it delivers completions that are due.
func (ep *Endpoint) Diagnose() []Waiting {
	ep.mu.Lock()
	drv := ep.drv
	ep.mu.Unlock()
	if drv == nil {
		return nil
	}
	connecting := ep.connection != nil && ep.connection.state.Load() < connUp
	var out []Waiting
	id := transport.AllEndpoints
	if ep.port != nil {
		id = ep.id
	}
	for _, w := range drv.Diagnose(id) {
		if connecting && w.Cause == WaitMessage {
			w.Cause = WaitConnection
		}
		out = append(out, waiting(&w))
	}
	return out
}
