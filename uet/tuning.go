package uet

import (
	"cmp"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// Tuning holds the knobs of the protocol. 0, or false, takes the default, which is right
// for hosts in one building; each field says when it is not. The two ends of a test may
// differ in all of it but Trimming and TrimClasses.
type Tuning struct {
	// BaseRTT is the round trip of one packet over the longest path while nothing else
	// is on it, hosts included (config_base_rtt, UE 3.6.13). Default 150 µs: two hosts
	// that have to wake up, on one switch. A delay of more than twice as much is taken
	// for congestion. Raise it where the idle path takes 200 µs or more, or goodput stays
	// low without loss or marks. Too high a value allows longer queues.
	BaseRTT time.Duration
	// Window is the congestion window to each peer to start with, and its ceiling, in
	// bytes. Default 1 MiB. Raise it where rate times round trip is more: 10 Gb/s times
	// 1 ms is 1.25 MB. Lower it where many senders overrun one receiver at the start.
	Window int
	// Trimming says that switches on the path cut the payload off packets that find no
	// room instead of dropping them. Default false. Set it at both ends, and only where
	// switches do: packets then have the code points of TrimClasses. It has no effect on
	// sealed packets, and excludes NoCRC.
	Trimming bool
	// TrimClasses are the code points that go with Trimming. Default 10, 12, 26, 28 and 46
	// (AF11, AF12, AF31, AF32, EF). Set them to what the switches are configured for.
	TrimClasses TrimClasses

	// PeerTimeout is how long a peer may be silent before operations to it fail with
	// fi.ETIMEDOUT. Default 40 s, which outlives a switch that restarts. Lower it where a
	// failure should be known sooner than an outage ends.
	PeerTimeout time.Duration
	// SuspectTimeout is PeerTimeout for a peer of which the network said that it cannot be
	// reached (fi.EHOSTUNREACH). Default 3 s. Raise it where peers restart at the same
	// address.
	SuspectTimeout time.Duration
	// RNRTimeout ends a send whose target answers, but has neither a receive nor room for
	// it. Default 0: never. Set it where a receiver that forgot to post should be an error.
	RNRTimeout time.Duration
	// RTOMin is the least time until a packet that nobody answered is sent again, RTOMax
	// the most: it doubles each time. Default 5 ms and 500 ms. Raise RTOMin where hosts
	// stand still for longer, as on busy virtual machines, and much is sent twice.
	RTOMin, RTOMax time.Duration
	// IdleClose is how long a PDC without traffic stays open. Default 30 s. Lower it where
	// there are very many peers: an idle PDC takes about 3 KiB at both ends together. Raise
	// it where the next message must not wait for a PDC to open: that takes a round trip
	// under a cluster key.
	IdleClose time.Duration

	// UnexpectedBytes and UnexpectedMsgs bound what is kept of messages that no receive
	// was posted for, UnexpectedShare is the part of both that one peer may take.
	// Default 64 MiB, 65,536 messages, and 1/4. Beyond, peers wait. Raise them where
	// senders run far ahead of receivers; lower them where memory is short.
	UnexpectedBytes int64
	UnexpectedMsgs  int
	UnexpectedShare float64
	// MaxPDCs bounds the PDCs of the endpoint, MaxPDCsPerPeer those that one peer may
	// open. Default 60,000 and 4,096. Lower them where memory is short.
	MaxPDCs, MaxPDCsPerPeer int

	// NoSymmetric addresses every packet to the peer's port 4793, not to the port that it
	// used. Default false. Set it for peers of another make that ask for it.
	NoSymmetric bool
	// AcceptClearStart takes NACK 0x17 in clear while a secured PDC is being opened, at
	// most eight times. Default false. Set it for peers that send it so, as the reference
	// provider does: somebody on the path can delay or prevent an opening then.
	AcceptClearStart bool
}

// TrimClasses are the DSCP values, 0 to 63, that hosts and trimming switches agree on.
type TrimClasses struct {
	// Trimmable is that of new data, TrimmableRTX of data that is sent again, which
	// switches trim later.
	Trimmable, TrimmableRTX uint8
	// Trimmed is what a switch gives to a packet that it has cut, TrimmedLastHop the
	// same in front of the target, where too many senders are to blame and no path.
	Trimmed, TrimmedLastHop uint8
	// Control is that of ACKs, NACKs and control packets.
	Control uint8
}

// Defaults that a check needs.
const (
	defaultRTOMin = 5 * time.Millisecond
	defaultRTOMax = 500 * time.Millisecond
)

// check names the first value that no endpoint can have.
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
		{"Window", int64(t.Window)}, {"UnexpectedBytes", t.UnexpectedBytes}, {"UnexpectedMsgs", int64(t.UnexpectedMsgs)},
		{"MaxPDCs", int64(t.MaxPDCs)}, {"MaxPDCsPerPeer", int64(t.MaxPDCsPerPeer)},
	} {
		if n.v < 0 {
			return fmt.Errorf("uet: Tuning.%s %d is negative", n.name, n.v)
		}
	}
	if least, most := cmp.Or(t.RTOMin, defaultRTOMin), cmp.Or(t.RTOMax, defaultRTOMax); least > most {
		return fmt.Errorf("uet: Tuning.RTOMin %v is above RTOMax %v", least, most)
	}
	if s := t.UnexpectedShare; !(s >= 0 && s <= 1) {
		return fmt.Errorf("uet: Tuning.UnexpectedShare %v is not 0 to 1", s)
	}
	return nil
}

// fep is the configuration of a FEP that is tuned so.
func (t *Tuning) fep() transport.Config {
	return transport.Config{
		BaseRTT: t.BaseRTT, Window: t.Window, Trimming: t.Trimming, Classes: transport.Classes(t.TrimClasses),
		PeerTimeout: t.PeerTimeout, SuspectTimeout: t.SuspectTimeout, RNRTimeout: t.RNRTimeout,
		RTOInit: t.RTOMin, RTOMax: t.RTOMax, IdleClose: t.IdleClose,
		UnexpectedBytes: t.UnexpectedBytes, UnexpectedMsgs: t.UnexpectedMsgs, UnexpectedShare: t.UnexpectedShare,
		MaxPDCs: t.MaxPDCs, MaxPDCsPerSource: t.MaxPDCsPerPeer,
		NoSymmetric: t.NoSymmetric, AcceptClearStart: t.AcceptClearStart,
	}
}
