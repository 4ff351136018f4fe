package ses

// Level is a completion level (fi_cq(3)): the stage that must have been reached
// before the completion is reported.
type Level uint8

// The completion levels, weakest first.
const (
	LevelInject   Level = iota + 1 // the user's bytes are no longer needed
	LevelTransmit                  // every packet acknowledged, semantic result known
	LevelDelivery                  // the same with DC set: the target answered after visibility
)

// A PeerID names a peer address inside one FEP, who gives it out.
type PeerID uint32

// NoPeer is the PeerID of nobody: "any source" in a receive.
const NoPeer PeerID = 0

// An Op is one operation to post. Send and Recv borrow the Op itself and the slice
// Iov; the bytes of Buf and Iov belong to the SES until the operation's Event (with
// Inject: until Send returns). Of a receive, bytes beyond what the Event says was
// placed may have been written too.
type Op struct {
	Kind Kind
	// Endpoint is who posts it.
	Endpoint EndpointID
	// Peer is the destination of a send, or the only source a receive accepts.
	Peer PeerID
	// PIDonFEP and RI name the target endpoint of a send; JobID 0 takes the
	// endpoint's own. Absolute clears the REL bit.
	PIDonFEP uint16
	RI       uint16
	JobID    uint32
	Absolute bool
	// SrcInitiator, if not 0, is the only initiator a receive accepts.
	SrcInitiator uint32
	// Buf or Iov hold the message or take it; Iov counts if it is not empty. Both
	// nil is an empty message.
	Buf []byte
	Iov [][]byte
	// Tag and Ignore: a message matches if its tag equals Tag in all bits that
	// Ignore has not set (R-TAG-02, S-MAT-02). Data travels as header data if
	// HasData (FI_REMOTE_CQ_DATA).
	Tag, Ignore, Data uint64
	HasData           bool
	// Inject copies the bytes at once: the caller may reuse them when Post
	// returns.
	Inject bool
	// Ordered sends the message by ROD, in order with all other ordered
	// messages to the peer.
	Ordered bool
	// Fence waits until every earlier send to the peer has ended, and what is
	// posted to it later waits for this one (R-ORD-07).
	Fence bool
	// Visible sets DC whatever the level: the target answers after the message
	// is visible, so that a later fence shows that it is (R-ORD-08).
	Visible bool
	// Multi, of a receive, packs messages one after another into Buf, or into
	// the one element of Iov, at multiples of 8 bytes, until fewer than MinFree
	// bytes are left (R-MSG-12). Each makes an Event.
	Multi   bool
	MinFree int
	// Look, of a tagged receive, looks among the unexpected messages instead of
	// waiting for one (R-TAG-08). Such a receive is never posted: its Event is made
	// at once.
	Look Look
	// Silent: success makes no Event, failure does (R-MSG-05).
	Silent bool
	// Level of a send; 0 is LevelTransmit. A failure found after the Event of
	// LevelInject makes none (R-CMPL-02, R-CMPL-17). Silent wins over it.
	Level Level
	// Context and Flags come back in the Event.
	Context any
	Flags   uint64
}

// Bytes is the length of the message, or of what takes it.
func (o *Op) Bytes() int {
	if len(o.Iov) == 0 {
		return len(o.Buf)
	}
	return total(o.Iov)
}
