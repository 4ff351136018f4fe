package transport

import (
	"errors"

	"github.com/uetkit/uetkit/transport/ses"
)

// OpKind is the kind of a posted operation.
type OpKind = ses.Kind

// The operations that exist so far.
const (
	OpSend  = ses.EvSend  // untagged message
	OpTSend = ses.EvTSend // tagged message
	OpRecv  = ses.EvRecv  // untagged receive
	OpTRecv = ses.EvTRecv // tagged receive
)

// Level is a completion level (fi_cq(3)): the stage that must have been reached
// before the completion is reported.
type Level uint8

// The completion levels, weakest first.
const (
	LevelInject   Level = iota + 1 // the user's bytes are no longer needed
	LevelTransmit                  // every packet acknowledged, semantic result known
	LevelDelivery                  // the same with DC set: the target answered after visibility
)

// Look is how a tagged receive looks at unexpected messages.
type Look = ses.Look

// The ways to look: those of package ses.
const (
	LookPeek         = ses.LookPeek
	LookPeekClaim    = ses.LookPeekClaim
	LookPeekDiscard  = ses.LookPeekDiscard
	LookClaim        = ses.LookClaim
	LookClaimDiscard = ses.LookClaimDiscard
)

// A PeerID names a peer address inside one FEP. It comes from FEP.Peer.
type PeerID uint32

// NoPeer is the PeerID of nobody: "any source" in a receive.
const NoPeer PeerID = 0

// An Op is one operation to post. Post borrows the Op itself; the bytes of Buf
// and Iov belong to the FEP until the operation's Event (with Inject: until
// Post returns).
type Op struct {
	Kind OpKind
	// Peer is the destination of a send, or the only source a receive accepts.
	Peer PeerID
	// PIDonFEP and RI name the target endpoint of a send; JobID 0 takes the
	// FEP's own. Absolute clears the REL bit.
	PIDonFEP uint16
	RI       uint16
	JobID    uint32
	Absolute bool
	// SrcInitiator, if not 0, is the only initiator a receive accepts.
	SrcInitiator uint32
	// Buf or Iov hold the message or take it. Both nil is an empty message.
	Buf []byte
	Iov [][]byte
	// Tag and Ignore: R-TAG-02. Data travels as header data if HasData.
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
	// the one element of Iov, until fewer than MinFree bytes are left (R-MSG-12).
	Multi   bool
	MinFree int
	// Look, of a tagged receive, looks at unexpected messages (R-TAG-08).
	Look Look
	// Silent: success makes no Event.
	Silent bool
	// Level of a send; 0 is LevelTransmit.
	Level Level
	// Context and Flags come back in the Event.
	Context any
	Flags   uint64
}

// Set makes o a copy of p, field by field: p was just filled in, and copying it
// in wide pieces would stall (see package wire).
func (o *Op) Set(p *Op) {
	o.Kind, o.Peer, o.PIDonFEP, o.RI, o.JobID, o.Absolute, o.SrcInitiator = p.Kind, p.Peer, p.PIDonFEP, p.RI, p.JobID, p.Absolute, p.SrcInitiator
	o.Buf, o.Iov = p.Buf, p.Iov
	o.Tag, o.Ignore, o.Data, o.HasData = p.Tag, p.Ignore, p.Data, p.HasData
	o.Inject, o.Ordered, o.Silent, o.Level = p.Inject, p.Ordered, p.Silent, p.Level
	o.Fence, o.Visible, o.Multi, o.MinFree, o.Look = p.Fence, p.Visible, p.Multi, p.MinFree, p.Look
	o.Context, o.Flags = p.Context, p.Flags
}

// Errors of Post. They say that the operation was not accepted and makes no
// Event.
var (
	ErrFull    = errors.New("transport: no room for another operation now")
	ErrTooLong = errors.New("transport: message longer than the protocol carries")
	ErrNoPeer  = errors.New("transport: unknown peer")
	ErrClosed  = errors.New("transport: endpoint is closed")
	ErrNoKey   = errors.New("transport: no valid key to seal with")
)
