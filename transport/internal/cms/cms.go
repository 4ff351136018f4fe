// Package cms is the congestion management sublayer (UE 3.6). It decides when a packet may
// leave (Window, one per congestion control context) and by which path (Paths). Package pds
// decides what is sent.
//
// A Window is NSCC, the sender side algorithm of UE 3.6.13, with the changes that a
// software stack needs, with and without switches that trim; the comment of Window lists
// them. A Credit is RCCC, receiver credit, at the source, and Grants is RCCC at the destination.
//
// All sizes are nominal bytes: UDP length + 40 (UE 3.6.12). All times are monotonic, since
// a moment that the caller chooses. Nothing here reads a clock, starts a goroutine, takes a
// lock, or allocates after New and Init. A value serves one caller at a time. Nothing
// assumes that ACKs arrive in order: every input enters a sum, a minimum or an average.
package cms

import "time"

// Config describes one congestion control context. Zero fields get their defaults.
type Config struct {
	// MTU is the nominal size of a full packet in bytes (default 1132: payload 1024, UET
	// headers and CRC 60, UDP 8, and 40).
	MTU int
	// Window is MaxWnd, the initial congestion window and its upper bound, in bytes: at
	// least one MTU (default 1 MiB). A receiver that sleeps needs about that much on a fast
	// local path. The specification's 1.5 · BDP needs a line speed, which a socket cannot
	// tell.
	Window int
	// BaseRTT is config_base_rtt (default 150 µs). It is also target_qdelay, the queueing
	// delay up to which there is no congestion (UE 3.6.13: 1.0 · config_base_rtt without
	// trimming), so a window may be worth 300 µs of the path. 150 µs is two wake-ups of a
	// sleeping thread (45–80 µs each, measured on a virtual machine): a window worth less
	// time runs dry while the peers wake, and a shorter delay does not show a queue. A path
	// that turns out to be longer counts with its own RTT.
	BaseRTT time.Duration
	// RTOInit is the least retransmission timeout, and the one before the first sample
	// (default 5 ms). RTOMax is the longest (default 500 ms).
	RTOInit time.Duration
	RTOMax  time.Duration
	// AckTrigger is the peer's ACK_Gen_Trigger (UE 3.5.12.2): the bytes that it may receive
	// without sending an ACK (default 16 KiB).
	AckTrigger int
	// Marks says that every queue of the path marks with ECN, as in UE fabrics: delay
	// without marks is then a queue that drains. Without Marks, delay alone counts as
	// congestion, too.
	Marks bool
	// Trims says that every queue of the path trims (UE 3.6.13), so packets are trimmed
	// before a queue is long. The target delay is then 0.75 · config_base_rtt, and quick
	// adapt reacts to trimmed packets only, never to delay.
	Trims bool
}

// Defaults of Config.
const (
	defaultMTU        = 1132
	defaultWindow     = 1 << 20
	defaultBaseRTT    = 150 * time.Microsecond
	defaultRTOInit    = 5 * time.Millisecond
	defaultRTOMax     = 500 * time.Millisecond
	defaultAckTrigger = 16 << 10
)

// Bounds of Config, within which the arithmetic of Window does not overflow.
const (
	maxMTU     = 1 << 16
	maxWindow  = 1 << 30
	minBaseRTT = time.Microsecond
)

// withDefaults returns c with defaults filled in and values forced into their bounds.
func (c Config) withDefaults() Config {
	if c.MTU <= 0 {
		c.MTU = defaultMTU
	}
	if c.Window <= 0 {
		c.Window = defaultWindow
	}
	c.MTU = min(c.MTU, maxMTU)
	c.Window = min(max(c.Window, c.MTU), maxWindow)
	if c.BaseRTT <= 0 {
		c.BaseRTT = defaultBaseRTT
	}
	c.BaseRTT = max(c.BaseRTT, minBaseRTT)
	if c.RTOInit <= 0 {
		c.RTOInit = defaultRTOInit
	}
	if c.RTOMax <= 0 {
		c.RTOMax = defaultRTOMax
	}
	c.RTOMax = max(c.RTOMax, c.RTOInit)
	if c.AckTrigger <= 0 {
		c.AckTrigger = defaultAckTrigger
	}
	return c
}
