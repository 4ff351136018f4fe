package transport

import (
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// This file names the types of internal packages that the API of a FEP uses.

// A Datagram is a train of UDP datagrams of equal length, which Transmit fills and Receive
// processes. It holds MaxTrain bytes and MaxSegments datagrams at most.
type Datagram = dgram.Datagram

// The bounds of a train.
const (
	MaxTrain    = dgram.MaxTrain
	MaxSegments = dgram.MaxSegments
)

// MaxMessage is the longest message, in bytes.
const MaxMessage = ses.MaxMessage

// A CCC is the congestion control context of a ROD PDC, or of all RUD PDCs to one peer (UE
// 3.6). Config.NewCCC makes one.
type CCC = pds.CCC

// A SecureDomain seals and opens the packets of one FEP (UE 3.7), which owns it. A
// SecureConfig describes a SecureDomain, and Install gives it a SecureKey.
type (
	SecureDomain = tss.Domain
	SecureConfig = tss.Config
	SecureKey    = tss.Key
)

// SecureCluster is the Mode of a SecureConfig for members that all share one key.
const SecureCluster = tss.Cluster

// NewSecureDomain makes a SecureDomain without keys.
func NewSecureDomain(cfg SecureConfig) (*SecureDomain, error) { return tss.New(cfg) }

// Secure says whether a FEP is secured, and how others open PDCs to it (UE 3.5.8).
type Secure = pds.Secure

// The values of Secure.
const (
	SecureNone    = pds.SecureNone    // no security
	SecureZeroRTT = pds.SecureZeroRTT // a Start_PSN at or above the floor of the target
	SecureOneRTT  = pds.SecureOneRTT  // only the Start_PSN that the target drew for this PDC
)

// A Cause says how an operation ended.
type Cause = ses.Cause

// The causes.
const (
	OK          = ses.OK
	Rejected    = ses.Rejected    // the target refused the message (RC)
	Truncated   = ses.Truncated   // the message was longer than the receive
	Cancelled   = ses.Cancelled   // cancelled on this side
	TimedOut    = ses.TimedOut    // the peer went silent, or the message stopped
	Unreachable = ses.Unreachable // the network says that the peer is not there
	Aborted     = ses.Aborted     // the PDC ended in error (Nack)
	PeerError   = ses.PeerError   // the sender gave the message up or broke the protocol (RC)
	NoResource  = ses.NoResource  // the peer, or this side, was short of something for too long
	NotReady    = ses.NotReady    // the target answered but was not ready for RNRTimeout (RC)
	TooBig      = ses.TooBig      // packets of this size do not pass
	NoKey       = ses.NoKey       // no valid key to seal with
	Closed      = ses.Closed      // the PDC was closed on this side
	NoMessage   = ses.NoMessage   // a look found no unexpected message that matches
	Untold      = ses.Untold      // of LevelMatch: the target keeps the message and does not tell when it is matched
)
