package sim_test

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport/wire"
)

// A narrow is the FEP of a host that tracks fewer PSNs than MPR can say. It refuses requests
// beyond them by NACK 0B, and passes the rest to the FEP behind it.
type narrow struct {
	simtest.Endpoint
	w     *simtest.World
	host  *simtest.Host
	peer  int // index of the host whose requests it refuses
	width int // PSNs that it tracks
	acked bool
	dirs  map[uint16]*narrowDir // by the PDCID of the initiator

	requests, refused int
}

// A narrowDir is the window of a PDC. Its base is the first PSN that did not arrive, or with
// narrow.acked the first one that no ACK has reported.
type narrowDir struct {
	base wire.PSN
	got  map[wire.PSN]bool
}

func beNarrow(w *simtest.World, host, peer, width int, acked bool) *narrow {
	h := w.Hosts[host]
	n := &narrow{Endpoint: h.FEP, w: w, host: h, peer: peer, width: width, acked: acked, dirs: map[uint16]*narrowDir{}}
	h.FEP = n
	return n
}

func (n *narrow) Receive(now time.Duration, d *dgram.Datagram) {
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		if h, _, err := wire.ParseReq(b); err == nil && !n.accepts(&h) {
			continue
		}
		one := *d
		one.Data, one.Seg = b, 0
		n.Endpoint.Receive(now, &one)
	}
}

func (n *narrow) accepts(h *wire.Req) bool {
	n.requests++
	p := n.dirs[h.SPDCID]
	if p == nil {
		if h.Flags&wire.FlagSYN == 0 {
			return true
		}
		p = &narrowDir{base: h.PSN.Add(-int(h.PSNOffset)), got: map[wire.PSN]bool{}}
		n.dirs[h.SPDCID] = p
	}
	if int(h.PSN.Sub(p.base)) >= n.width {
		n.refused++
		n.w.Forge(n.peer, n.host.Addr(), wire.Nack{Type: wire.TypeNack, Code: wire.NackPSNOORWindow, PSN: h.PSN, DPDCID: h.SPDCID}.Append(nil), true)
		return false
	}
	for p.got[h.PSN] = true; !n.acked && p.got[p.base]; p.base++ {
		delete(p.got, p.base)
	}
	return true
}

func (n *narrow) Transmit(now time.Duration, d *dgram.Datagram) bool {
	if !n.Endpoint.Transmit(now, d) {
		return false
	}
	for rest := d.Data; n.acked && len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		if a, _, err := wire.ParseAck(b); err == nil {
			if p := n.dirs[a.DPDCID]; p != nil && !a.CACK.Before(p.base) {
				p.base = a.CACK + 1
			}
		}
	}
	return true
}

// S-WIN-07: opposite a target that tracks 8 PSNs, which MPR cannot say, a sender learns the
// window from the refusals. The first flight is refused; after that it sends few packets in
// vain, and does not stall. The target keeps the PSNs from the last one that it acknowledged
// on, or on a path with loss those from the first one that is missing.
func TestNarrowTarget(t *testing.T) {
	const size, packets = 800_000, 782
	for _, c := range []struct {
		name  string
		op    simtest.OpSpec
		loss  float64
		acked bool
	}{
		{"RUD", tsend(1, size), 0, true},
		{"ROD", ordered(tsend(1, size)), 0, true},
		{"RUD with loss", tsend(1, size), 0.02, false},
		{"ROD with loss", ordered(tsend(1, size)), 0.02, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(raced(10, 1)) {
				line := lan
				line.Loss = c.loss
				w := pair(t, 970+seed, line, hostile)
				n := beNarrow(w, 1, 0, 8, c.acked)
				for i := range 4 {
					requests, refused := n.requests, n.refused
					op := w.Hosts[0].Post(c.op)
					w.Hosts[1].Post(trecv(size))
					from := w.Now()
					w.RunOps(time.Second, op)
					w.Want("ok", op)
					took := w.Now() - from
					requests, refused = n.requests-requests, n.refused-refused
					// Each packet of the first flight may be refused once. Later the sender tries from
					// time to time whether the window is larger. The line takes 6.4 ms.
					most := packets * 3 / 10
					if i == 0 {
						most = packets * 11 / 10
					}
					if refused > most || requests-refused > packets*11/10 || took > 40*ms {
						t.Errorf("seed %d, message %d: %d packets, %d requests, %d of them refused, in %v", seed, i, packets, requests, refused, took)
					}
				}
				settle(w)
			}
		})
	}
}

// S-WIN-07: when the window of the target is wide again, the sender comes to use it.
func TestNarrowTargetWidens(t *testing.T) {
	const size = 800_000
	w := pair(t, 980, lan, hostile)
	n := beNarrow(w, 1, 0, 8, true)
	run := func() time.Duration {
		op := w.Hosts[0].Post(tsend(1, size))
		w.Hosts[1].Post(trecv(size))
		from := w.Now()
		w.RunOps(time.Second, op)
		w.Want("ok", op)
		return w.Now() - from
	}
	for range 20 {
		run()
	}
	n.width = 1 << 20
	var took time.Duration
	for range 20 {
		took = run()
	}
	if took > 8*ms {
		t.Errorf("a message takes %v, 6.4 ms on the line", took)
	}
	if n.refused > 4000 {
		t.Errorf("%d refused", n.refused)
	}
	settle(w)
}
