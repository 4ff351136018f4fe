package ses

// Level is a completion level (fi_cq(3)): the stage that a send must reach before its
// completion is reported.
type Level uint8

// The completion levels, weakest first.
const (
	LevelInject   Level = iota + 1 // the user's bytes are no longer needed
	LevelTransmit                  // every packet acknowledged, semantic result known
	LevelDelivery                  // as LevelTransmit, with DC set: the target answered after the message was visible
	LevelMatch                     // of a message: as LevelDelivery, and a receive of the target has it, or it was discarded there
	LevelCommit                    // of a write and an atomic operation that returns nothing: as LevelDelivery, and durable there
)

// A PeerID is a FEP's number of a peer address.
type PeerID uint32

// NoPeer is the PeerID of no peer. In a receive it means any source.
const NoPeer PeerID = 0

// An Op is one operation to post. Send and Recv borrow the Op and the slice Iov. The bytes of
// Buf and Iov belong to the SES until the operation's Event, with Inject until Send returns. A
// receive may also write bytes beyond those that its Event reports as placed.
type Op struct {
	Kind Kind
	// Endpoint is the endpoint that posts it.
	Endpoint EndpointID
	// Peer is the destination of a send, or the only source a receive accepts.
	Peer PeerID
	// PIDonFEP and RI name the target endpoint of a send. JobID 0 means that of the endpoint.
	// Absolute clears the REL bit.
	PIDonFEP uint16
	RI       uint16
	JobID    uint32
	Absolute bool
	// SrcInitiator, if not 0, is the only initiator a receive accepts.
	SrcInitiator uint32
	// Buf or Iov holds the message, or is the memory to receive it. Buf is ignored if Iov is
	// not empty. Both nil is an empty message.
	Buf []byte
	Iov [][]byte
	// Tag is the tag of a message. A receive accepts messages whose tag equals Tag in all bits
	// that Ignore has not set (R-TAG-02, S-MAT-02). If HasData is set, Data travels as header
	// data (FI_REMOTE_CQ_DATA).
	Tag, Ignore, Data uint64
	HasData           bool
	// Key and RemoteAddr name the memory of the peer that a write or a read accesses: the key of
	// a region, and the address of the first byte in it.
	Key, RemoteAddr uint64
	// Optimized says that the peer takes small request headers (wire.CapOptimized). A write or a read goes
	// with one if it can (R-RMA-13).
	Optimized bool
	// AMO says what an atomic operation does; nil for others.
	AMO *AMO
	// Inject copies the bytes at once: the caller may reuse them when Send returns.
	Inject bool
	// Ordered sends the message by ROD, in order with all other ordered messages to the peer.
	Ordered bool
	// Idempotent lets a write or a read go by RUDI, if nothing else asks for a PDC: it may be
	// executed several times.
	Idempotent bool
	// Fence makes the send wait until every earlier send to the peer has ended. Sends posted to
	// the peer later wait for this one (R-ORD-07).
	Fence bool
	// Visible sets DC at any level: the target answers when the message is visible, so a later
	// fence shows that it is (R-ORD-08).
	Visible bool
	// Multi, of a receive, packs messages one after another into Buf, or into the one element
	// of Iov, at multiples of 8 bytes, until fewer than MinFree bytes are left (R-MSG-12). Each
	// message makes an Event.
	Multi   bool
	MinFree int
	// Look, of a tagged receive, looks at the unexpected messages instead of waiting for a
	// message (R-TAG-08). Such a receive is never posted: its Event is made at once.
	Look Look
	// Silent means that success makes no Event; failure does (R-MSG-05).
	Silent bool
	// Level is the completion level of a send; 0 is LevelTransmit. A failure after the Event of
	// LevelInject makes no other Event (R-CMPL-02, R-CMPL-17). Silent takes precedence over
	// Level.
	Level Level
	// Context and Flags are returned in the Event.
	Context any
	Flags   uint64
}

// Bytes is the length of the message, or of the memory to receive it; of an atomic operation, what
// its packet has behind the header.
func (o *Op) Bytes() int {
	switch {
	case o.AMO != nil:
		return o.AMO.length(len(o.Buf))
	case len(o.Iov) == 0:
		return len(o.Buf)
	}
	return total(o.Iov)
}
