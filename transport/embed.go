package transport

import (
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// Names for the types of internal packages that the API of a FEP shows.

// A Datagram is a train of UDP datagrams of equal length, as Transmit fills it and
// Receive takes it. MaxTrain is the most bytes, MaxSegments the most datagrams in one.
type Datagram = dgram.Datagram

// The bounds of a train.
const (
	MaxTrain    = dgram.MaxTrain
	MaxSegments = dgram.MaxSegments
)

// MaxMessage is the longest message, in bytes.
const MaxMessage = ses.MaxMessage

// A CCC is the congestion control context of a PDC, or of all RUD PDCs to one peer
// (UE 3.6). Config.NewCCC makes one.
type CCC = pds.CCC

// A SecureDomain seals and opens the packets of a FEP (UE 3.7). It belongs to one FEP.
// SecureConfig describes one, and SecureKey is what it gets by Install.
type (
	SecureDomain = tss.Domain
	SecureConfig = tss.Config
	SecureKey    = tss.Key
)

// SecureCluster is the Mode of a SecureConfig in which all members share a key.
const SecureCluster = tss.Cluster

// NewSecureDomain makes a SecureDomain without keys.
func NewSecureDomain(cfg SecureConfig) (*SecureDomain, error) { return tss.New(cfg) }

// Secure is how a FEP lets others open PDCs, and whether it is secured at all.
type Secure = pds.Secure

// The ways (UE 3.5.8).
const (
	SecureNone    = pds.SecureNone    // without security
	SecureZeroRTT = pds.SecureZeroRTT // a Start_PSN at or above the floor of the target
	SecureOneRTT  = pds.SecureOneRTT  // the Start_PSN that the target drew for this PDC
)

// A Cause says how an operation ended.
type Cause = ses.Cause

// The causes.
const (
	OK          = ses.OK
	Rejected    = ses.Rejected    // the target refused the message, see RC
	Truncated   = ses.Truncated   // the message was longer than the receive
	Cancelled   = ses.Cancelled   // cancelled on this side
	TimedOut    = ses.TimedOut    // the peer went silent, or the message stopped
	Unreachable = ses.Unreachable // the network says the peer is not there
	Aborted     = ses.Aborted     // the PDC was closed in error, see Nack
	PeerError   = ses.PeerError   // the sender gave the message up or broke the protocol, see RC
	NoResource  = ses.NoResource  // the peer, or this side, was short of something for too long
	NotReady    = ses.NotReady    // the target answered but was not ready for RNRTimeout, see RC
	TooBig      = ses.TooBig      // packets of this size do not pass
	NoKey       = ses.NoKey       // no valid key to seal with
	Closed      = ses.Closed      // the PDC was closed on this side
	NoMessage   = ses.NoMessage   // no unexpected message is what was looked for
)
