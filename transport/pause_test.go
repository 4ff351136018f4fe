package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

func TestPausesOfHostsAreNoCongestion(t *testing.T) {
	// F17, UE 3.6.13: two busy hosts each read the network only every 5 to 40 ms, over a
	// path without delay. Packets that wait on a host show no queue on the path: the window
	// stays open, and 64 KiB messages go on by windows and not by packets.
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered %v", ordered), func(t *testing.T) {
			const (
				size   = 64 << 10
				window = 16 // messages
			)
			p := newPipe(t, nil)
			var toA, toB []*dgram.Datagram
			look := func(f *FEP, from *FEP, in, out *[]*dgram.Datagram) {
				f.Paused(true)
				for _, d := range *in {
					d.Remote = from.cfg.Local
					f.Receive(p.now, d)
				}
				*in = nil
				f.Advance(p.now)
				f.Flush(p.now)
				for {
					d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
					if !f.Transmit(p.now, d) {
						return
					}
					*out = append(*out, d)
				}
			}
			buf := make([]byte, size)
			sent, done, got := 0, 0, 0
			for i := range 100 {
				pause := time.Duration(5+7*i%36) * time.Millisecond
				for ; sent < done+window; sent++ {
					p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, size)})
					p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: buf, Ordered: ordered})
				}
				look(p.a, p.b, &toA, &toB)
				done += len(p.events(p.a)) // of messages sent two looks before
				p.now += pause / 2
				look(p.b, p.a, &toB, &toA)
				got += len(p.events(p.b))
				p.now += pause / 2
			}
			if s := p.a.Stats(); got < 700 {
				t.Errorf("%d messages in 100 looks, the window is %d of %d bytes, sent again %d", got, p.a.peers[p.toB].window(), p.a.cfg.Window, s.RtxRTO+s.RtxProbe)
			}
		})
	}
}

// window is the window of the peer's CCC.
func (p *peer) window() int {
	if p.rod != nil {
		return p.rod.CCC().Window()
	}
	return p.ccc.Window()
}
