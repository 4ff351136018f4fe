package transport

import (
	"errors"

	"github.com/uetkit/uetkit/transport/internal/amo"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// OpKind is the kind of an operation.
type OpKind = ses.Kind

// The kinds of operations.
const (
	OpWrite  = ses.EvWrite  // write to a region of the peer
	OpRead   = ses.EvRead   // read from a region of the peer
	OpAtomic = ses.EvAtomic // atomic operation on a region of the peer
	OpFetch  = ses.EvFetch  // atomic operation that returns the old values
	OpSend   = ses.EvSend   // untagged message
	OpTSend  = ses.EvTSend  // tagged message
	OpRecv   = ses.EvRecv   // untagged receive
	OpTRecv  = ses.EvTRecv  // tagged receive

	// OpRemoteWrite is the kind of an Event that nobody posted: a peer wrote to a region.
	OpRemoteWrite = ses.EvRemoteWrite
	// OpRemoteAtomic is the kind of an Event that nobody posted: a peer changed a region by an atomic
	// operation.
	OpRemoteAtomic = ses.EvRemoteAtomic
	// OpCommit is the kind of an Event that ends nothing: Len bytes from the offset Tag of the region
	// with this Context on are to be made durable. Then FEP.Committed is to be called with Data.
	OpCommit = ses.EvCommit
	// OpCommitted is the kind of an Event that nobody posted: what a peer wrote to a region, with remote
	// CQ data, is durable. An OpRemoteWrite without data may have said that it is there.
	OpCommitted = ses.EvCommitted
	// OpRemoteRead is the kind of an Event that nobody posted: a peer has read from a region.
	OpRemoteRead = ses.EvRemoteRead
)

// Level is a completion level (fi_cq(3)).
type Level = ses.Level

// The completion levels, weakest first.
const (
	LevelInject   = ses.LevelInject
	LevelTransmit = ses.LevelTransmit
	LevelDelivery = ses.LevelDelivery
	LevelMatch    = ses.LevelMatch
	LevelCommit   = ses.LevelCommit
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

// An AMO says what an atomic operation does.
type AMO = ses.AMO

// MaxAtomic bounds the operands of an atomic operation, in bytes.
const MaxAtomic = ses.MaxAtomic

// LeastRendezvousPDCs is the least MaxPDCs of a FEP that announces messages: half of them are for what it opens, one to send
// by, and one to read by what the other has announced. Without the last two FEPs whose messages have no room wait for each
// other for ever.
const LeastRendezvousPDCs = 4

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
	ErrName = errors.New("transport: JobID, PIDonFEP or resource index out of range")
	// ErrHalted says that an ordered message to the peer failed before (Config.Halt).
	ErrHalted = errors.New("transport: an ordered message to the peer failed before")
	ErrNoKey  = errors.New("transport: no valid key to seal with")

	// ErrFewPDCs is New's: RendezvousMin is set, and MaxPDCs is below LeastRendezvousPDCs.
	ErrFewPDCs = errors.New("transport: MaxPDCs is too small for rendezvous sends")

	// The errors of Register.
	ErrKey      = errors.New("transport: memory key with a reserved bit, or OPTIMIZED with an RKEY above 4095")
	ErrKeyInUse = errors.New("transport: another region has this memory key")
	ErrMemory   = errors.New("transport: region is empty, ends beyond the last address, or counts what may come twice")
	ErrRegions  = errors.New("transport: too many regions")
)

// AMOFamily is what an atomic operation takes and returns.
type AMOFamily = amo.Family

// The families.
const (
	AMOBase    = amo.Base
	AMOFetch   = amo.Fetch
	AMOCompare = amo.Compare
)

// AMOValid reports whether there is an operation for a type in a family.
func AMOValid(f AMOFamily, op wire.AtomicOp, t wire.AtomicType) bool {
	return amo.Valid(f, op, t) == wire.RCNull
}
