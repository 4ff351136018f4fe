package uet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// Tuning holds the settings of the protocol. 0, or false, takes the default, which is right
// for hosts in one building; each field says when it is not. The two ends may differ in all
// of them but Trimming and TrimClasses.
type Tuning struct {
	// BaseRTT is the round trip of one packet over the longest path, hosts included, while
	// nothing else uses it (config_base_rtt, UE 3.6.13). Default 150 µs: two hosts that
	// have to wake up, on one switch. A delay of more than twice BaseRTT counts as
	// congestion. Raise it where the idle path takes 200 µs or more, or where goodput stays
	// low without loss or marks. Too high a value allows longer queues.
	BaseRTT time.Duration
	// Congestion says by what packets may leave: NSCC, the default, RCCC, or both, of which the
	// stricter one then decides. With RCCC the target grants credit, also to peers that this end
	// sends nothing to, and never more than its socket holds. Set it at all ends where many send
	// to one; a peer without it is sent to by NSCC. It costs a packet per PDC and, at the start and
	// after idle times, a round trip for all but the first three packets.
	Congestion Congestion
	// LineRate is how many bytes a second can arrive here, for RCCC. Default 0: not known, and the
	// socket alone limits what is granted. Set it where switches on the path hold less than the
	// socket does.
	LineRate int64
	// PathChoice says how packets that need no order choose among Config.Paths. Default PathsMixed. It is
	// for comparisons: where links are slow or dead PathsMixed and PathsList are better than the others,
	// and elsewhere all but PathsREPS do about the same.
	PathChoice PathChoice
	// Window is the congestion window to each peer at the start, and its maximum, in bytes.
	// Default 1 MiB. Raise it where rate times round trip is more: 10 Gb/s times 1 ms is
	// 1.25 MB. Lower it where many senders overrun one receiver at the start.
	Window int
	// Trimming says that switches on the path trim packets that find no room instead of
	// dropping them. Default false. Set it at both ends, and only where switches trim:
	// packets then have the code points of TrimClasses. It has no effect on sealed packets,
	// and excludes NoCRC.
	Trimming bool
	// TrimClasses are the code points for Trimming. Default 10, 12, 26, 28 and 46 (AF11,
	// AF12, AF31, AF32, EF). Set them to those that the switches are configured for.
	TrimClasses TrimClasses

	// PeerTimeout is how long a peer may be silent before operations to it fail with
	// fi.ETIMEDOUT. Default 40 s, which outlives a switch that restarts. Lower it where a
	// failure should be known sooner than an outage ends.
	PeerTimeout time.Duration
	// SuspectTimeout is the PeerTimeout of a peer that the network reported unreachable
	// (fi.EHOSTUNREACH). Default 3 s. A third of it counts where nobody was ever heard and
	// the report repeats: a closed port. Raise it where peers restart at the same address, or
	// start later than others send to them.
	SuspectTimeout time.Duration
	// RNRTimeout ends a send whose target answers, but has neither a receive nor room for
	// it. Default 0: never. Set it where a receiver that forgot to post should cause an
	// error.
	RNRTimeout time.Duration
	// RTOMin is the least time until an unanswered packet is sent again, RTOMax the most:
	// the time doubles with each retransmission. Default 5 ms and 500 ms. Raise RTOMin
	// where hosts pause for longer, as on busy virtual machines, and much is sent twice.
	RTOMin, RTOMax time.Duration
	// IdleClose is how long a PDC without traffic stays open. Default 30 s. Lower it where
	// there are very many peers: an idle PDC takes about 3 KiB of memory at both ends
	// together. Raise it where the next message must not wait for a PDC to open, which
	// takes a round trip under a cluster key.
	IdleClose time.Duration

	// Linger is how long Close waits at most for messages and ACKs that are on their way.
	// Default 1 s; a negative value means not at all. Raise it where a peer may stand still for
	// longer; do without it where nobody needs the last messages of a program.
	Linger time.Duration
	// UnexpectedBytes and UnexpectedMsgs limit the unexpected messages that are kept.
	// UnexpectedShare is the part of both that one peer may use. Default 64 MiB, 1,048,576
	// messages, for each of which there are at most 128 bytes more, and 1/4. Beyond that, peers wait.
	// An empty message takes none of the bytes.
	// Raise them where senders run far ahead of receivers; lower them where memory is short.
	// PartialBytes limits what messages hold of it whose packets are not all there, those of all peers
	// together. Default half of UnexpectedBytes. Lower it where peers that break off, or mean harm, should
	// leave more to the others.
	UnexpectedBytes int64
	PartialBytes    int64
	UnexpectedMsgs  int
	UnexpectedShare float64
	// DeferrableMin is the length in bytes from which on a message leaves its header at a receiver
	// that has no room for it, and is sent again when a receive has matched (UE 3.4, deferrable
	// sends). Default 16 KiB; a negative value means that none does. Shorter messages are refused,
	// and tried again.
	DeferrableMin int
	// RendezvousMin is the length in bytes from which on a message is announced, and read by its
	// receiver when a receive has matched (UE 3.4, rendezvous sends), if the receiver knows how.
	// Default 0: none is. The bytes are sent once, when the receiver has a buffer for them; each
	// message takes a round trip more, and is one of the endpoint's sends until it was received. Set it
	// where receivers are often behind with long messages. Datagrams (FI_EP_DGRAM) ignore it.
	RendezvousMin int
	// MaxPDCs limits the PDCs of the endpoint, MaxPDCsPerPeer those that one peer may open.
	// Default 60,000 and 4,096. Lower them where memory is short: idle PDCs close when one is lacking, and
	// each message to another peer may cost a round trip or two more. With RendezvousMin MaxPDCs is at least 4.
	// Three and more endpoints that also send each other more than there is room for need 6 for each of the others.
	MaxPDCs, MaxPDCsPerPeer int

	// KeepSlice leaves the scheduler's slice of the caller's threads as it is. By default a thread
	// that was kept from its processor by another gets the shortest slice that Linux has, 0.1 ms:
	// it waits for less long then, at the same share of the processor (since Linux 6.12). Set it
	// where a thread computes as well, beside others, and should not be interrupted so often.
	KeepSlice bool
	// Crowd says that the threads which share a processor all poll and yield as the reader of this
	// endpoint does: ranks that outnumber the processors. A yield may then take long though none of
	// them keeps the processor. By default a reader sleeps instead of polling for 0.3 s after one
	// yield that took 0.5 ms or more, with Crowd after eight in a row.
	Crowd bool

	// Halt: when an ordered message (FI_ORDER_SAS) fails, the messages to its peer of its kind, tagged or not, that
	// were posted later fail as well, and further posts return fi.ESHUTDOWN, until Abandon: no later one is received
	// in the place of one that failed. By default each message ends by itself, as libfabric has it.
	Halt bool

	// AcceptClearStart accepts NACK 0x17 in clear while a secured PDC is being opened, at
	// most eight times. Default false. Set it for peers that send it so, as the reference
	// provider does. An attacker on the path can then delay or prevent the opening.
	AcceptClearStart bool
}

// A Congestion is a kind of congestion control (UE 3.6).
type Congestion = transport.Congestion

// The kinds of congestion control.
const (
	NSCC        = transport.NSCC        // the source decides, by what ACKs show of the network
	RCCC        = transport.RCCC        // the target grants credit
	NSCCAndRCCC = transport.NSCCAndRCCC // both must permit
)

// A PathChoice is a way to choose among several paths (UE 3.6.16).
type PathChoice = transport.PathChoice

// The choices of path.
const (
	PathsMixed     = transport.PathsMixed     // by which packets arrived lately, and else as PathsBitmap
	PathsBitmap    = transport.PathsBitmap    // all by turns, but for those that were marked or lost a packet
	PathsList      = transport.PathsList      // by which packets arrived lately, and else all by turns
	PathsREPS      = transport.PathsREPS      // each of the last eight unmarked arrivals once; while packets are lost only those
	PathsOblivious = transport.PathsOblivious // all by turns
)

// TrimClasses are the DSCP values, 0 to 63, that hosts and trimming switches agree on.
type TrimClasses struct {
	// Trimmable is the code point of new data, TrimmableRTX that of retransmitted data,
	// which switches trim later.
	Trimmable, TrimmableRTX uint8
	// Trimmed is the code point that a switch gives to a trimmed packet. TrimmedLastHop is
	// the same at the last hop before the target, where too many senders are the cause and
	// not the path.
	Trimmed, TrimmedLastHop uint8
	// Control is the code point of ACKs, NACKs and control packets.
	Control uint8
}

// Defaults that a check needs.
const (
	defaultRTOMin = 5 * time.Millisecond
	defaultRTOMax = 500 * time.Millisecond
)

// check returns an error for the first value that no endpoint can have.
func (t *Tuning) check() error {
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"BaseRTT", t.BaseRTT}, {"PeerTimeout", t.PeerTimeout}, {"SuspectTimeout", t.SuspectTimeout}, {"RNRTimeout", t.RNRTimeout},
		{"RTOMin", t.RTOMin}, {"RTOMax", t.RTOMax}, {"IdleClose", t.IdleClose},
	} {
		if d.v < 0 {
			return fmt.Errorf("uet: Tuning.%s %v is negative", d.name, d.v)
		}
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"Window", int64(t.Window)}, {"LineRate", t.LineRate}, {"UnexpectedBytes", t.UnexpectedBytes}, {"PartialBytes", t.PartialBytes}, {"UnexpectedMsgs", int64(t.UnexpectedMsgs)},
		{"RendezvousMin", int64(t.RendezvousMin)}, {"MaxPDCs", int64(t.MaxPDCs)}, {"MaxPDCsPerPeer", int64(t.MaxPDCsPerPeer)},
	} {
		if n.v < 0 {
			return fmt.Errorf("uet: Tuning.%s %d is negative", n.name, n.v)
		}
	}
	if t.RendezvousMin > 0 && t.MaxPDCs > 0 && t.MaxPDCs < transport.LeastRendezvousPDCs {
		return fmt.Errorf("uet: Tuning.MaxPDCs %d is below %d, which RendezvousMin needs", t.MaxPDCs, transport.LeastRendezvousPDCs)
	}
	if t.Congestion > NSCCAndRCCC {
		return fmt.Errorf("uet: Tuning.Congestion %v is none", t.Congestion)
	}
	if t.PathChoice > PathsOblivious {
		return fmt.Errorf("uet: Tuning.PathChoice %d is none", t.PathChoice)
	}
	if least, most := cmp.Or(t.RTOMin, defaultRTOMin), cmp.Or(t.RTOMax, defaultRTOMax); least > most {
		return fmt.Errorf("uet: Tuning.RTOMin %v is above RTOMax %v", least, most)
	}
	if s := t.UnexpectedShare; !(s >= 0 && s <= 1) {
		return fmt.Errorf("uet: Tuning.UnexpectedShare %v is not 0 to 1", s)
	}
	return nil
}

// fep returns the FEP's configuration.
func (t *Tuning) fep() transport.Config {
	c := transport.Config{
		BaseRTT: t.BaseRTT, Window: t.Window, Trimming: t.Trimming, Classes: transport.Classes(t.TrimClasses), RNRTimeout: t.RNRTimeout,
		AcceptClearStart: t.AcceptClearStart, Halt: t.Halt, Congestion: t.Congestion, LineRate: t.LineRate, PathChoice: t.PathChoice,
	}
	c.PeerTimeout, c.SuspectTimeout, c.IdleClose = t.PeerTimeout, t.SuspectTimeout, t.IdleClose
	c.RTOInit, c.RTOMax = t.RTOMin, t.RTOMax
	c.DeferrableMin, c.RendezvousMin = t.DeferrableMin, t.RendezvousMin
	c.UnexpectedBytes, c.UnexpectedMsgs, c.UnexpectedShare = t.UnexpectedBytes, t.UnexpectedMsgs, t.UnexpectedShare
	c.PartialBytes = t.PartialBytes
	c.MaxPDCs, c.MaxPDCsPerSource = t.MaxPDCs, t.MaxPDCsPerPeer
	return c
}
