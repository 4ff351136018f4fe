package udp

import (
	"net/netip"
	"runtime"
	"testing"

	"github.com/uetkit/uetkit/internal/dgram"
)

// What was done before a send comes before what is done after the receive, also for the race
// detector, which fails this test otherwise.
func TestSendComesBeforeReceive(t *testing.T) {
	for _, b := range backends {
		for name, send := range map[string]func(Mover, *dgram.Datagram) error{
			"Send":      Mover.Send,
			"SendBatch": func(m Mover, g *dgram.Datagram) error { _, err := m.SendBatch([]*dgram.Datagram{g}); return err },
		} {
			t.Run(b.name+"/"+name, func(t *testing.T) {
				from, to := open(t, loopback4, b.cfg), open(t, loopback4, b.cfg)
				memory, got := 0, make(chan int)
				go func() {
					g := dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
					for ok := false; !ok; {
						ok, _ = to.Mover().Recv(&g)
						runtime.Gosched()
					}
					memory++
					got <- 1
				}()
				memory++
				remote := netip.AddrPortFrom(loopback4, to.Ports()[0])
				if err := send(from.Mover(), &dgram.Datagram{Data: []byte{1}, Remote: remote}); err != nil {
					t.Error(err)
				}
				if <-got; memory != 2 {
					t.Errorf("memory is %d", memory)
				}
			})
		}
	}
}
