package transport

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// TestSmallWindowAsksWithEachPacket proves that each packet asks for an ACK while the
// window is below the peer's ACK_Gen_Trigger (UE 3.6.13), because the peer sends none
// unasked. With one ACK for a whole window, each round trip would show the length of the
// window as delay, and the window would stay small for ever.
func TestSmallWindowAsksWithEachPacket(t *testing.T) {
	for _, c := range []struct {
		window int
		all    bool
	}{{8 << 10, true}, {1 << 20, false}} {
		p := newPipe(t, func(cfg *Config) { cfg.Window = c.window })
		p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 100<<10), Context: "r"})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 100<<10), Context: "s"})
		d := dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
		p.now += time.Millisecond
		n, asked := 0, 0
		for p.a.Transmit(p.now, &d) {
			for rest := d.Data; len(rest) > 0; {
				var b []byte
				b, rest = d.Next(rest)
				if n++; b[1]&byte(wire.FlagAR) != 0 {
					asked++
				}
			}
		}
		if n < 5 || c.all != (asked == n) {
			t.Errorf("window of %d bytes: %d of %d packets ask for an ACK", c.window, asked, n)
		}
	}
}
