package transport

import (
	"errors"

	"github.com/uetkit/uetkit/transport/internal/ses"
)

// OpKind is the kind of an operation.
type OpKind = ses.Kind

// The kinds of operations.
const (
	OpWrite = ses.EvWrite // write to a region of the peer
	OpRead  = ses.EvRead  // read from a region of the peer
	OpSend  = ses.EvSend  // untagged message
	OpTSend = ses.EvTSend // tagged message
	OpRecv  = ses.EvRecv  // untagged receive
	OpTRecv = ses.EvTRecv // tagged receive

	// OpRemoteWrite is the kind of an Event that nobody posted: a peer wrote to a region.
	OpRemoteWrite = ses.EvRemoteWrite
)

// Level is a completion level (fi_cq(3)).
type Level = ses.Level

// The completion levels, weakest first.
const (
	LevelInject   = ses.LevelInject
	LevelTransmit = ses.LevelTransmit
	LevelDelivery = ses.LevelDelivery
)

// Look is how a tagged receive looks at unexpected messages. Package ses describes the
// ways.
type Look = ses.Look

// The ways to look: those of package ses.
const (
	LookPeek         = ses.LookPeek
	LookPeekClaim    = ses.LookPeekClaim
	LookPeekDiscard  = ses.LookPeekDiscard
	LookClaim        = ses.LookClaim
	LookClaimDiscard = ses.LookClaimDiscard
)

// An EndpointID names an endpoint of a FEP. The endpoint that New opens has 0.
type EndpointID = ses.EndpointID

// A PeerID names the address of a peer within one FEP. FEP.Peer returns it.
type PeerID = ses.PeerID

// NoPeer is the PeerID of no peer. In a receive it means any source.
const NoPeer = ses.NoPeer

// An Op is one operation to post.
type Op = ses.Op

// The errors of Post and Open. The operation was not accepted and causes no Event.
var (
	ErrFull    = errors.New("transport: no room for another operation now")
	ErrTooLong = errors.New("transport: message longer than the protocol carries")
	ErrNoPeer  = errors.New("transport: unknown peer")
	ErrClosed  = errors.New("transport: endpoint is closed")
	// ErrEndpoints says that the FEP has the most endpoints that it may have.
	ErrEndpoints = errors.New("transport: too many endpoints")
	ErrInUse     = errors.New("transport: another endpoint of the address has this JobID, PIDonFEP and resource index")
	// ErrName says that a JobID has more than 24 bits, or a PIDonFEP or resource index more than 12.
	ErrName  = errors.New("transport: JobID, PIDonFEP or resource index out of range")
	ErrNoKey = errors.New("transport: no valid key to seal with")

	// The errors of Register.
	ErrKey      = errors.New("transport: memory key with a reserved bit, or OPTIMIZED with an RKEY above 4095")
	ErrKeyInUse = errors.New("transport: another region has this memory key")
	ErrMemory   = errors.New("transport: region is empty, ends beyond the last address, or counts what may come twice")
	ErrRegions  = errors.New("transport: too many regions")
)
