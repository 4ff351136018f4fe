package netswitch

import (
	"fmt"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// Stats is the answer to GET /stats.
type Stats struct {
	Fabric *fabric.Stats `json:"fabric"`
	Health Health        `json:"health"`
}

// Health reports whether the switch could carry out what its fabric decided. Counts are
// since the start.
type Health struct {
	// Drops are packets that the switch itself lost: the sum of RingFull, SendFailed,
	// LinkDrops, and the fabric's lost_full. LateP99 is the greater of Leave.P99 and
	// Wait.P99.
	Drops   uint64        `json:"drops"`
	LateP99 time.Duration `json:"late_p99_ns"`
	// PPS is packets sent per second in the last whole second, MaxPPS the most
	// in one.
	PPS    float64 `json:"pps"`
	MaxPPS float64 `json:"max_pps"`

	// Leave is how much later than due packets left, until the kernel had delivered their
	// batch. Wait is how long they waited before the switch read them.
	Leave Late `json:"leave"`
	Wait  Late `json:"wait"`

	// RingFull are packets that found no room in the receive ring, SendFailed those that
	// found none on the way out. LinkDrops are packets that the kernel lost between the
	// host's interface and the socket.
	RingFull   uint64 `json:"ring_full"`
	SendFailed uint64 `json:"send_failed"`
	LinkDrops  uint64 `json:"link_drops"`

	// These are not losses of the switch, but need attention. Unresolved are packets to a
	// host that does not answer ARP. Oversize are packets longer than the interface's MTU:
	// trains that the sender's host should have split; they are dropped. Malformed are
	// frames without an IP packet. Checksums were computed here because the sender left
	// them to its hardware.
	Unresolved uint64 `json:"unresolved"`
	Oversize   uint64 `json:"oversize"`
	Malformed  uint64 `json:"malformed"`
	Checksums  uint64 `json:"checksums"`
	// LinkErrors is how often an interface went down or disappeared.
	LinkErrors uint64 `json:"link_errors"`
	// Realtime says that the forwarding thread may use real-time priority. Demoted is how
	// often it gave the priority up for a while because it had no time to sleep.
	Realtime bool   `json:"realtime"`
	Demoted  uint64 `json:"demoted"`
	// LogLines are the lines written to the log, LogDropped the lines that found no room in
	// it.
	LogLines   uint64 `json:"log_lines"`
	LogDropped uint64 `json:"log_dropped"`

	// Warnings are sentences for people about counts that should be 0.
	Warnings []string `json:"warnings,omitempty"`
}

// lateTooMuch is the lateness that makes a verdict worthless.
const lateTooMuch = 5 * time.Millisecond

// warn adds the warnings that follow from the counts; full is the fabric's lost_full.
func (h *Health) warn(full uint64) {
	add := func(n uint64, format string) {
		if n > 0 {
			h.Warnings = append(h.Warnings, fmt.Sprintf(format, n))
		}
	}
	add(h.RingFull, "the switch itself lost %d packets that it did not read in time: the machine is too slow for the rate")
	add(h.SendFailed, "the kernel refused %d packets that the switch sent: the backlog of the other end is full (net.core.netdev_max_backlog)")
	add(h.LinkDrops, "the kernel lost %d packets before the switch saw them: a processor's backlog is full (net.core.netdev_max_backlog)")
	add(full, "the switch held all the packets that it may and lost %d: a queue or delay is too large for the rate")
	if h.LateP99 > lateTooMuch {
		w := fmt.Sprintf("1 %% of the packets were more than %v late: the machine is too slow, or too busy", h.LateP99.Round(100*time.Microsecond))
		if !h.Realtime {
			w += ", and the switch has no real-time priority (CAP_SYS_NICE, docker run --cap-add SYS_NICE)"
		}
		h.Warnings = append(h.Warnings, w)
	}
	add(h.Oversize, "%d packets were longer than the interface's MTU and are lost: switch segmentation offload off at the hosts (ethtool -K DEV tx off gso off tso off)")
	add(h.Malformed, "%d frames held no whole IP packet")
	add(h.Unresolved, "%d packets were for hosts that do not answer ARP")
	add(h.LinkErrors, "an interface went down or away %d times")
	add(h.LogDropped, "the log lacks %d decisions")
}
