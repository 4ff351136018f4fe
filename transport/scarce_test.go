package transport

import (
	"fmt"
	"testing"
	"time"
)

// A peer that lacks a PDC has one idle PDC of others close, however many packets of it are refused meanwhile.
func TestOneThatLacksClosesOne(t *testing.T) {
	const others = 13 // as many PDCs as others may open
	for _, size := range []int{100, 60_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newStar(t, others+1, func(c *Config) { c.MaxPDCs, c.RendezvousMin = 16, -1 })
			s.know()
			pause := func(d time.Duration) {
				s.now += d
				s.rest()
				s.exchange()
			}
			send := func(i, n int) {
				id, _ := s.leaf[i].Peer(s.hub.cfg.Local, true)
				if err := s.hub.Post(s.now, &Op{Kind: OpRecv, Peer: NoPeer, Buf: make([]byte, n)}); err != nil {
					t.Fatal(err)
				}
				if err := s.leaf[i].Post(s.now, &Op{Kind: OpSend, Peer: id, RI: 15, Buf: make([]byte, n)}); err != nil {
					t.Fatal(err)
				}
				s.exchange()
			}
			for i := range others {
				send(i, 100)
				pause(time.Millisecond)
			}
			pause(100 * time.Millisecond)
			send(others, size)
			for range 2000 {
				pause(200 * time.Microsecond)
			}
			if _, left := s.hub.Posted(); left != 0 {
				t.Errorf("%d messages have not come", left)
			}
			if n := s.hub.pds.Stats.PDCClosed; n != 1 {
				t.Errorf("%d PDCs closed", n)
			}
		})
	}
}
