package transport

import (
	"errors"

	"github.com/uetkit/uetkit/transport/internal/ses"
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

// Level is a completion level (fi_cq(3)).
type Level = ses.Level

// The completion levels, weakest first.
const (
	LevelInject   = ses.LevelInject
	LevelTransmit = ses.LevelTransmit
	LevelDelivery = ses.LevelDelivery
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

// An EndpointID names an endpoint of a FEP. That of New is 0.
type EndpointID = ses.EndpointID

// A PeerID names a peer address inside one FEP. It comes from FEP.Peer.
type PeerID = ses.PeerID

// NoPeer is the PeerID of nobody: "any source" in a receive.
const NoPeer = ses.NoPeer

// An Op is one operation to post.
type Op = ses.Op

// Errors of Post and Open. They say that the operation was not accepted and makes no
// Event.
var (
	ErrFull    = errors.New("transport: no room for another operation now")
	ErrTooLong = errors.New("transport: message longer than the protocol carries")
	ErrNoPeer  = errors.New("transport: unknown peer")
	ErrClosed  = errors.New("transport: endpoint is closed")
	// ErrEndpoints says that the FEP has as many endpoints as there may be.
	ErrEndpoints = errors.New("transport: too many endpoints")
	ErrInUse     = errors.New("transport: another endpoint of the address has this JobID, PIDonFEP and resource index")
	// ErrName says that a JobID has more than 24 bits, or a PIDonFEP or resource index more than 12.
	ErrName  = errors.New("transport: JobID, PIDonFEP or resource index out of range")
	ErrNoKey = errors.New("transport: no valid key to seal with")
)
