package netswitch

import (
	"context"
	"fmt"
	"time"
)

// A BenchConfig configures Bench.
type BenchConfig struct {
	// Sizes are the lengths of the IP packets in bytes, 28 to 9000. None means 1400 and 100.
	Sizes []int
	// Trial is how long packets are sent at each rate. 0 means a second.
	Trial time.Duration
	// Steps is how many rates are tried by bisection. 0 means 8.
	Steps int
}

// Quick is a BenchConfig that takes less than two seconds.
var Quick = BenchConfig{Sizes: []int{1400}, Trial: 120 * time.Millisecond, Steps: 5}

func (c *BenchConfig) check() error {
	if c.Sizes == nil {
		c.Sizes = []int{1400, 100}
	}
	if c.Trial == 0 {
		c.Trial = time.Second
	}
	if c.Steps == 0 {
		c.Steps = 8
	}
	for _, n := range c.Sizes {
		if n < 28 || n > 9000 {
			return fmt.Errorf("size %d: give the length of an IP packet, 28 to 9000", n)
		}
	}
	if c.Trial < 10*time.Millisecond || c.Trial > time.Minute {
		return fmt.Errorf("trial %v: give 10ms to 1m", c.Trial)
	}
	if c.Steps < 1 || c.Steps > 30 {
		return fmt.Errorf("steps %d: give 1 to 30", c.Steps)
	}
	return nil
}

// A Speed is the rate at which one core forwards from one port to another.
type Speed struct {
	Size int `json:"size"` // of the IP packets in bytes
	// PPS is the highest rate, in packets per second, that was forwarded without a loss:
	// all packets arrived, none later than drained after the last was sent. 0 means
	// that no rate passed.
	PPS float64 `json:"pps"`
	// Overload is how many packets per second arrive when more are sent than can be
	// forwarded. Offered is how many were sent.
	Overload float64 `json:"overload_pps"`
	Offered  float64 `json:"offered_pps"`
	// CPU is the processor time of the switch for one packet.
	CPU time.Duration `json:"cpu_ns"`
}

// A BenchResult is what Bench measured.
type BenchResult struct {
	Speeds []Speed `json:"speeds"`
	// SwitchCPU is the processor that the switch was pinned to, LoadCPU that of the
	// generator. If they are equal there is only one, and PPS is computed from the
	// processor time of a packet.
	SwitchCPU int `json:"switch_cpu"`
	LoadCPU   int `json:"load_cpu"`
}

// drained is how long after the last packet was sent all must have arrived. A queue that
// had grown during the trial takes longer.
const drained = 10 * time.Millisecond

// Calibrate measures within two seconds how many packets of 1400 bytes the switch forwards
// per second and core on this machine without a loss. It needs the privilege to make
// network namespaces, which it removes.
func Calibrate(ctx context.Context) (pps float64, err error) {
	r, err := Bench(ctx, Quick)
	if err != nil {
		return 0, err
	}
	return r.Speeds[0].PPS, nil
}
