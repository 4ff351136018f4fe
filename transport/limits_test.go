package transport

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/wire"
)

// F22: four peers flood an endpoint that posts no receive with all that it keeps by
// default. The heap in use after a collection stays within the cap and a tenth, whether
// bytes or messages run out. A second flood, after everything was received, uses no more.
func TestF22HeapWithinTheCap(t *testing.T) {
	if invariant.On {
		t.Skip("the race detector has its own memory")
	}
	const limit = 64 << 20
	inuse := func() int64 { return int64(memStats().HeapInuse) }
	buf := make([]byte, 1<<20)
	for name, size := range map[string]func(*rand.Rand) int{
		"bytes":    func(rng *rand.Rand) int { return 1 << (8 + rng.IntN(13)) * (1 + rng.IntN(4)) / 4 },
		"messages": func(*rand.Rand) int { return 64 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStar(t, 4, func(c *Config) { c.DeferrableMin = -1 }) // headers have their own limit
			rng := rand.New(rand.NewPCG(1, 22))
			var to []PeerID
			for _, f := range s.leaf {
				if _, err := s.hub.Peer(f.cfg.Local, true); err != nil {
					t.Fatal(err)
				}
				id, _ := f.Peer(s.hub.cfg.Local, true)
				to = append(to, id)
			}
			before := inuse()
			for round := range 2 {
				refused := func() uint64 { return s.hub.Stats().NacksTx[wire.NackNoSESMsgAvail] }
				was := refused()
				for full := 0; full < 50; {
					for i, f := range s.leaf {
						_ = f.Post(s.now, &Op{Kind: OpSend, Peer: to[i], RI: 15, Buf: buf[:size(rng)]})
					}
					n := refused()
					s.exchange()
					s.rest()
					if refused() > n {
						full++ // no room for this one; smaller ones may still find some
					}
					s.now += time.Millisecond
				}
				l := s.hub.Load()
				grown := inuse() - before
				t.Logf("flood %d: %d messages of %d KiB are kept in %d KiB; refused %d times", round, l.Unexpected, l.UnexpectedBytes>>10, grown>>10, refused()-was)
				if l.UnexpectedBytes < limit*8/10 && l.Unexpected < 1<<20*8/10 {
					t.Errorf("the endpoint is not full: the test does not test")
				}
				// The state of a message does not count: 128 bytes at most.
				if most := limit*11/10 + 128*int64(l.Unexpected); int64(grown) > most {
					t.Errorf("the heap grew by %d KiB, the cap is %d", grown>>10, most>>10)
				}
				for s.hub.Unexpected() > 0 {
					if err := s.hub.Post(s.now, &Op{Kind: OpRecv, Buf: buf}); err != nil {
						t.Fatal(err)
					}
					for s.hub.NextEvent() != nil {
					}
				}
				for i := 0; i < 5000 && !(s.leaf[0].Idle() && s.leaf[1].Idle() && s.leaf[2].Idle() && s.leaf[3].Idle()); i++ {
					s.now += time.Millisecond
					s.rest()
					s.exchange()
					for s.hub.Unexpected() > 0 {
						_ = s.hub.Post(s.now, &Op{Kind: OpRecv, Buf: buf})
					}
				}
			}
			runtime.KeepAlive(s)
		})
	}
}

// F18: a message that has its receive arrives, of one packet or of several, behind messages
// with another tag that have no receive and for which there is no room.
func TestF18ReceivedBehindRefused(t *testing.T) {
	for _, n := range []int{64, 1500, 4000, 16 << 10} {
		p := newPipe(t, func(c *Config) { c.UnexpectedBytes, c.UnexpectedShare = 1<<20, 0.25 })
		for range 40 {
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 8000)})
		}
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 2, Buf: make([]byte, n)})
		posted := p.now + 5*time.Millisecond
		for arrived := false; !arrived; {
			if p.now += 100 * time.Microsecond; p.now == posted {
				p.post(p.b, Op{Kind: OpTRecv, Tag: 2, Buf: make([]byte, n), Context: "wanted"})
			} else if p.now > posted+time.Second {
				t.Fatalf("%d bytes never arrive; refused: %d", n, p.a.Stats().NacksRx[wire.NackNoSESMsgAvail])
			}
			for _, f := range []*FEP{p.a, p.b} {
				f.Advance(p.now)
			}
			p.exchange()
			for e := p.b.NextEvent(); e != nil; e = p.b.NextEvent() {
				arrived = arrived || e.Context == "wanted" && e.Cause == 0
			}
		}
		if p.a.Stats().NacksRx[wire.NackNoSESMsgAvail] == 0 {
			t.Error("nothing was refused")
		}
	}
}

// A FEP that announces messages needs PDCs by which they are read.
func TestRendezvousNeedsPDCs(t *testing.T) {
	for _, c := range []struct {
		pdcs, least int
		datagram    bool
		want        error
	}{
		{1, 0, false, nil}, {1, 1, false, ErrFewPDCs}, {LeastRendezvousPDCs - 1, 1, false, ErrFewPDCs}, {LeastRendezvousPDCs - 1, -1, false, nil},
		{LeastRendezvousPDCs - 1, 1, true, nil}, {LeastRendezvousPDCs, 1, false, nil}, {0, 1, false, nil},
	} {
		cfg := Config{Local: netip.MustParseAddrPort("198.18.0.1:4793"), Datagram: c.datagram}
		cfg.MaxPDCs, cfg.RendezvousMin = c.pdcs, c.least
		if _, err := New(cfg, rand.New(rand.NewPCG(1, 1))); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
