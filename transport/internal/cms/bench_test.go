package cms

import (
	"testing"
	"time"
)

// BenchmarkOnSend measures the window's cost of a packet sent, in a bulk flow.
func BenchmarkOnSend(b *testing.B) {
	w := New(Config{})
	for b.Loop() {
		if w.CanSend(defaultMTU) {
			w.OnSend(0, defaultMTU)
		} else {
			w.inflight = 0
		}
	}
}

// BenchmarkOnAck measures the window's cost of an ACK for 16 packets, in a bulk flow.
func BenchmarkOnAck(b *testing.B) {
	for _, c := range []struct {
		name string
		rtt  time.Duration
		cwnd int64
	}{
		{"ceiling", 60 * time.Microsecond, 1 << 20},
		{"proportional", 250 * time.Microsecond, 256 << 10},
		{"fast", 60 * time.Microsecond, 256 << 10},
		{"over", 450 * time.Microsecond, 256 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := New(Config{})
			now := time.Duration(0)
			for b.Loop() {
				w.cwnd = c.cwnd
				w.inflight = c.cwnd
				w.OnAck(now, 16*defaultMTU, c.rtt, false, 0, false)
				now += 4 * time.Microsecond
			}
		})
	}
}
