package pds

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// BenchmarkInTurn measures the cost of a packet and its ACK for the state and timers of a
// PDC, in ns: one every 2 µs, to as many peers in turn.
func BenchmarkInTurn(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			c := testConfig()
			c.MaxPDCs = n
			tab := New(c, rand.New(rand.NewPCG(1, 2)), &pdcTest{})
			ccc := &fixedCCC{window: 1 << 30}
			now := time.Second
			var ps []*PDC
			for i := range n {
				var a [4]byte
				binary.BigEndian.PutUint32(a[:], 10<<24+uint32(i))
				ps = append(ps, tab.Open(now, 1, netip.AddrPortFrom(netip.AddrFrom4(a), 1), wire.RUD, ccc))
			}
			var rsp wire.Rsp
			var hdr [wire.ReqLen]byte
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := ps[i%n]
				now += time.Microsecond
				p.Push(now, piece.Piece{}, 100, 0)
				p.Header(hdr[:0])
				a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: p.tx.nxt - 1, SPDCID: 1, DPDCID: p.ID(), MPR: 2, SACKOff: 1}
				now += time.Microsecond
				tab.ReceiveAck(&Arrival{Now: now, From: *p.Remote()}, &a, &rsp)
				tab.Advance(now)
				for tab.NextNews() != nil {
				}
			}
		})
	}
}
