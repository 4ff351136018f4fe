package sim_test

import (
	"testing"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// A stream that fills its window leaves in whole trains even where packets are lost. A resend
// takes new data along, and neither it nor an ACK of half a train leaves single packets behind.
// Goodput is what the wire carries less what was lost, and only what was lost is sent again.
func TestLossLeavesTrainsWhole(t *testing.T) {
	const mtu, size, count = 8192, 1 << 20, 100
	whole := float64(dgram.MaxTrain / (mtu + 12 + 44 + 4))
	for _, c := range []struct {
		loss, goodput, train float64
	}{{0, 0.97, 0.97}, {0.01, 0.95, 0.94}, {0.05, 0.88, 0.85}} {
		if raceEnabled && c.loss != 0.01 {
			continue // it has one goroutine
		}
		line := sim.Faults{Delay: 50 * us, Rate: 2_500_000_000, Queue: 4 << 20, InOrder: true, Loss: c.loss}
		w := pair(t, 81, line, config(func(c *transport.Config) { c.PayloadMTU = mtu }))
		took := stream(w, tsend(1, size), count, 64)
		st := w.Hosts[0].FEP.Stats()
		goodput := size * count / took.Seconds() / float64(line.Rate)
		train := float64(st.TxPackets) / float64(st.TxTrains) / whole
		again := float64(st.RtxSACK+st.RtxRTO+st.RtxProbe) / float64(st.TxData)
		t.Logf("%2.0f %% lost: goodput %.3f, trains %.3f full, %.4f again, %d ACKs for %d packets", 100*c.loss, goodput, train, again, st.AcksRx, st.TxData)
		if goodput < c.goodput || train < c.train || again > 1.1*c.loss {
			t.Errorf("%2.0f %% lost: goodput %.3f, want %.2f; trains %.3f full, want %.2f; %.4f sent again", 100*c.loss, goodput, c.goodput, train, c.train, again)
		}
		settle(w)
	}
}
