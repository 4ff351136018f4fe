// Package cms is the congestion management sublayer (UE 3.6): when a packet
// may leave (Window, one per congestion control context) and by which path
// (Paths). What leaves is the business of transport/internal/pds.
//
// A Window is NSCC, the sender side algorithm of UE 3.6.13, with the changes
// that a pure software stack needs, over switches that trim or do not; the comment
// of Window lists them. RCCC, receiver credit, is not here yet.
//
// All sizes are nominal bytes: UDP length + 40 (UE 3.6.12). All times are
// monotonic, since an epoch of the caller. Nothing here reads a clock, starts a
// goroutine, takes a lock or allocates after New and Init; a value belongs to
// one caller at a time. Nothing assumes that ACKs arrive in order: every input
// is a sum, a minimum or an average.
package cms

import "time"

// Config describes one congestion control context. Zero fields take defaults.
type Config struct {
	// MTU is the nominal size of a full packet in bytes; default 1132: 1024 of
	// payload, 60 of UET headers and CRC, 8 of UDP, 40.
	MTU int
	// Window is MaxWnd: the congestion window to start with and its ceiling in
	// bytes, at least one MTU; default 1 MiB. A receiver that sleeps needs
	// about that much on a fast local path. The specification's 1.5 · BDP needs
	// a link speed that a socket cannot tell.
	Window int
	// BaseRTT is config_base_rtt; default 150 µs. It is also target_qdelay, the
	// queueing delay that is no congestion yet (UE 3.6.13: 1.0 · config_base_rtt
	// without trimming), so that a window may be worth 300 µs of the path. 150 µs
	// is two wake-ups of a sleeping thread (45–80 µs each, measured on a virtual
	// machine): a window worth less time runs dry while the peers wake, and a
	// delay below it says nothing about queues. A path that turns out to be
	// longer counts with its own RTT.
	BaseRTT time.Duration
	// RTOInit is the least retransmission timeout and the one before the first
	// sample, default 5 ms; RTOMax the greatest, default 500 ms.
	RTOInit time.Duration
	RTOMax  time.Duration
	// AckTrigger is the peer's ACK_Gen_Trigger in bytes (UE 3.5.12.2), default
	// 16 KiB: as many it may receive without a word.
	AckTrigger int
	// Marks says that every queue of the path marks ECN, as UE fabrics do: delay
	// without marks is then a queue that drains. False: delay alone is taken
	// for congestion as well.
	Marks bool
	// Trims says that every queue of the path trims (UE 3.6.13): packets are cut
	// before a queue is long. The target delay is 0.75 · config_base_rtt then, and
	// quick adapt goes by what was trimmed and never by delay.
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

// Bounds of Config: what the arithmetic of Window holds.
const (
	maxMTU     = 1 << 16
	maxWindow  = 1 << 30
	minBaseRTT = time.Microsecond
)

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
