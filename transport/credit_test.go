package transport

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// noCredits loses all CREDITs.
func noCredits(_ *FEP, b []byte) bool {
	c, _, err := wire.ParseCP(b)
	return err == nil && c.Ctl == wire.CtlCredit
}

// checkSums compares what the CCCs count with what waits on their PDCs. turns says that all PDCs had
// a turn since something changed.
func (p *pipe) checkSums(f *FEP, when string, turns bool) {
	p.t.Helper()
	cr := f.credit
	if cr.turn != nil {
		f.count(cr.turn)
	}
	sums := map[*cms.Credit]int{}
	for _, q := range cr.queued {
		if q.in != nil {
			sums[q.in] += q.n
		}
	}
	waits, targets := 0, map[uint32]bool{}
	f.pds.Each(func(pdc *pds.PDC) {
		if pdc.Peer == 0 || creditOf(pdc) == nil {
			return
		}
		if pdc.LacksCredit() {
			waits++
			targets[pdc.Peer] = true
		}
		if n := f.backlog(pdc, &f.peers[pdc.Peer]); turns && (int(pdc.Slot) >= len(cr.queued) && n != 0 || int(pdc.Slot) < len(cr.queued) && n != cr.queued[pdc.Slot].n) {
			p.t.Fatalf("%s: %d bytes wait on PDC %d", when, n, pdc.Slot)
		}
	})
	for c, n := range sums {
		if c.Queued() != n || n < 0 {
			p.t.Fatalf("%s: CCC %d counts %d bytes, its PDCs have %d", when, c.ID(), c.Queued(), n)
		}
	}
	if waits != len(cr.waiting) || len(targets) != cr.targets {
		p.t.Fatalf("%s: %d PDCs of %d targets wait, counted %d of %d", when, waits, len(targets), len(cr.waiting), cr.targets)
	}
}

// What waits for a CCC is the sum of what waits on its PDCs, whatever becomes of messages, packets and
// PDCs. At the end it is nothing.
func TestCreditSum(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := newPipe(t, func(c *Config) { c.Congestion = RCCC; c.Window = 64 << 10; c.Lanes = 3 })
		p.drop = func(*FEP, []byte) bool { return r.IntN(50) == 0 }
		readable(t, p.b, 5, make([]byte, 300_000))
		for i := range 200 {
			switch n := r.IntN(1 + r.IntN(300_000)); r.IntN(6) {
			case 0, 1:
				p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, n), Context: i})
				p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, n), Ordered: r.IntN(3) == 0, Context: i})
			case 2:
				p.post(p.a, Op{Kind: OpRead, Peer: p.toB, RI: 15, Buf: make([]byte, n), Key: 5, Ordered: r.IntN(3) == 0, Context: i})
			case 3:
				p.a.Cancel(p.now, 0, r.IntN(200))
			case 4:
				if q := p.a.peers[p.toB].long; len(q) > 0 && q[0] != nil && r.IntN(4) == 0 {
					p.a.pds.Close(p.now, q[0])
					p.a.wake(q[0])
				}
			}
			for range r.IntN(4) {
				p.now += time.Duration(r.IntN(3000)) * time.Microsecond
				for _, f := range []*FEP{p.a, p.b} {
					f.Advance(p.now)
				}
				p.exchange()
				p.checkSums(p.a, "sender", false)
				p.checkSums(p.b, "reader", false)
			}
			if i%10 == 0 {
				p.a.wakePeer(p.toB)
				p.b.wakePeer(p.toA)
				p.exchange()
				p.checkSums(p.a, "sender after turns", true)
			}
		}
		p.drop = nil
		for end := p.now + time.Minute; p.now < end && !(p.a.Idle() && p.b.Idle() && p.a.credit.targets == 0); p.now += 5 * time.Millisecond {
			for _, f := range []*FEP{p.a, p.b} {
				f.Advance(p.now)
				for f.NextEvent() != nil {
				}
			}
			p.exchange()
		}
		p.checkSums(p.a, "at the end", true)
		for _, q := range p.a.credit.queued {
			if q.n != 0 {
				t.Fatalf("seed %d: %d bytes are counted where nothing waits", seed, q.n)
			}
		}
		if p.a.credit.targets != 0 {
			t.Fatalf("seed %d: %d targets are waited for", seed, p.a.credit.targets)
		}
	}
}

// When a PDC has its turn, the sum has what the turns of others before it left, not what they began with.
func TestCreditSumAfterTurns(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Congestion, c.Lanes = RCCC, 4 })
	const n = 400_000
	for range 4 {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, n)})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, n)})
	}
	turns := 0
	for end := p.now + time.Second; !p.a.Idle() && p.now < end; p.now += 50 * time.Microsecond {
		for p.move(p.a, p.b) || p.move(p.b, p.a) {
			for _, pdc := range p.a.peers[p.toB].long {
				if q := p.a.credit.queued; int(pdc.Slot) < len(q) && q[pdc.Slot].in != nil && pdc != p.a.credit.turn {
					if turns++; q[pdc.Slot].n != p.a.backlog(pdc, &p.a.peers[p.toB]) {
						t.Fatalf("PDC %d: %d bytes are counted, %d wait", pdc.Slot, q[pdc.Slot].n, p.a.backlog(pdc, &p.a.peers[p.toB]))
					}
				}
			}
		}
		for _, f := range []*FEP{p.a, p.b} {
			f.Flush(p.now)
			f.Advance(p.now)
		}
	}
	if turns < 100 {
		t.Fatalf("%d turns: the test does not test", turns)
	}
}

// waiting is a pipe of which a has n long messages on n PDCs, and no credit.
func waiting(t *testing.T, n int) *pipe {
	p := newPipe(t, func(c *Config) { c.Congestion, c.Lanes, c.Window = RCCC, n, 256<<10 })
	p.drop = noCredits
	buf := make([]byte, 100_000)
	for range n {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: buf})
	}
	for range 10 {
		p.exchange()
		p.now += 20 * time.Microsecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
	}
	return p
}

// What a turn of a PDC costs does not depend on how many PDCs the peer has.
func TestCreditManyPDCs(t *testing.T) {
	cost := func(n int) float64 {
		p := newPipe(t, func(c *Config) { c.Congestion, c.MaxPDCs = RCCC, 4096 })
		f := p.a
		ccc := f.newCCC(&f.peers[p.toB])
		f.peers[p.toB].ccc = ccc
		var all []*pds.PDC
		for range n {
			all = append(all, f.open(p.now, p.toB, wire.RUD, ccc))
		}
		f.returning = map[PeerID][]*pds.PDC{p.toB: all} // as if the peer had opened them, and read by them
		least := math.Inf(1)
		for range 20 {
			start := time.Now()
			for _, pdc := range all {
				f.wants(p.now, pdc)
			}
			least = min(least, float64(time.Since(start))/float64(n))
		}
		return least
	}
	few, many := cost(64), cost(2048)
	if many > 10*few {
		t.Errorf("a turn takes %.0f ns with 64 PDCs and %.0f ns with 2048", few, many)
	}
	t.Logf("%.0f ns with 64 PDCs, %.0f ns with 2048", few, many)
}

// A source divides what it asks for by the targets that it waits for, not by its PDCs.
func TestCreditTargetsCount(t *testing.T) {
	p := waiting(t, 8)
	f := p.a
	if len(f.credit.waiting) != 8 || f.credit.targets != 1 {
		t.Fatalf("%d PDCs wait for %d targets: the test does not test", len(f.credit.waiting), f.credit.targets)
	}
	asked := func() int {
		c := creditOf(f.peers[p.toB].long[0])
		f.wants(p.now, f.peers[p.toB].long[0])
		_, target := c.Target()
		return int(target) * 256
	}
	if n := asked(); n < 256<<10 || n > 257<<10 {
		t.Errorf("eight PDCs to one target: it asks for %d bytes, want the window", n)
	}
	other, _ := f.Peer(netip.MustParseAddrPort("198.18.0.3:4793"), true)
	f.setWaiting(f.open(p.now, other, wire.RUD, f.newCCC(&f.peers[other])), true)
	if n := asked(); n < 128<<10 || n > 129<<10 {
		t.Errorf("with another target it asks for %d bytes, want half the window", n)
	}
}

// No two CCCs to a peer have the same ccc_id, however many there were to others, and an id that was free
// is used again last. Where all are in use, PDCs share the CCC of the RUD PDCs.
func TestCreditIDs(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Congestion = RCCC })
	f := p.a
	idOf := func(c pds.CCC) uint8 { return c.(*cms.Credit).ID() }
	to := func(id PeerID) pds.CCC { return f.newCCC(&f.peers[id]) }
	other, _ := f.Peer(netip.MustParseAddrPort("198.18.0.3:4793"), true)

	f.peers[p.toB].ccc = to(p.toB)
	first := idOf(f.peers[p.toB].ccc)
	for range 255 {
		f.dropCredit(other, to(other))
	}
	if c := to(p.toB); idOf(c) == first {
		t.Error("after 255 CCCs to another peer two to this one have the same id")
	} else {
		f.dropCredit(p.toB, c)
	}
	last := -1000
	for i := range 1000 { // one after the other
		c := to(p.toB)
		if idOf(c) == first {
			t.Fatalf("CCC %d has the id of one that there is", i)
		}
		if int(idOf(c)) == last {
			t.Fatalf("CCC %d has the id of the one before it", i)
		}
		last = int(idOf(c))
		f.dropCredit(p.toB, c)
	}
	for _, shared := range []bool{true, false} { // at the same time
		id := p.toB
		if !shared {
			id = other
		}
		seen := map[uint8]pds.CCC{}
		if shared {
			seen[first] = f.peers[id].ccc
		}
		var all []pds.CCC
		for range 300 {
			c := to(id)
			if had := seen[idOf(c)]; had != nil && had != c {
				t.Fatalf("two of %d CCCs have the id %d", len(all), idOf(c))
			} else if had == c && c != f.peers[id].ccc {
				t.Fatalf("the CCC of a ROD PDC is shared")
			}
			seen[idOf(c)] = c
			all = append(all, c)
		}
		if len(seen) != 256 {
			t.Errorf("%d ids are in use, want all", len(seen))
		}
		f.dropCredit(id, all[7])
		if c := to(id); idOf(c) != idOf(all[7]) {
			t.Errorf("id %d was free, and a CCC has %d", idOf(all[7]), idOf(c))
		}
	}
	f.creditForgotten(other, f.peers[other].ccc)
	f.peers[other].ccc = nil
	if to(other); f.credit.ids[other].n != 1 {
		t.Errorf("%d ids of a peer that was forgotten are in use", f.credit.ids[other].n)
	}
}

// A ROD PDC gives its ccc_id back, when it is gone and when there was none to be had.
func TestCreditIDsComeBack(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Congestion = RCCC; c.MaxPDCs = 4 })
	used := func() int { return p.a.credit.ids[p.toB].n }
	for i := range 11 {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 10)})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 10), Ordered: true})
		p.exchange()
		pdc := p.a.peers[p.toB].rod
		p.a.pds.Close(p.now, pdc)
		p.a.wake(pdc)
		for range 20 {
			p.now += 10 * time.Millisecond
			p.a.Advance(p.now)
			p.b.Advance(p.now)
			p.exchange()
		}
		if n := used(); n > 4 {
			t.Fatalf("after %d PDCs %d ids are in use", i+1, n)
		}
	}
	for range 4 {
		p.a.open(p.now, p.toB, wire.RUD, p.a.peers[p.toB].ccc)
	}
	was := used()
	for range 300 {
		if p.a.lane(p.now, p.toB, &p.a.peers[p.toB], 10, true) != nil {
			t.Fatal("a PDC was opened: the test does not test")
		}
	}
	if n := used(); n != was {
		t.Errorf("%d ids are in use by PDCs that could not be opened", n-was)
	}
}

// What waits for credit of a peer that is given up waits no more.
func TestCreditWaitEndsWithThePeer(t *testing.T) {
	p := waiting(t, 3)
	if p.a.Stats().CreditWaited == 0 {
		t.Fatal("nothing waits: the test does not test")
	}
	p.drop = func(*FEP, []byte) bool { return true }
	for end := p.now + 2*p.a.cfg.Packets.PeerTimeout; p.now < end; p.now += 20 * time.Millisecond {
		p.a.Advance(p.now)
		p.exchange()
	}
	if n := p.a.PDCs(); n != 0 {
		t.Fatalf("%d PDCs", n)
	}
	was := p.a.Stats().CreditWaited
	p.now += time.Minute
	p.a.Advance(p.now)
	if is := p.a.Stats().CreditWaited; is != was {
		t.Errorf("waited for %v when the peer was given up, a minute later for %v", was, is)
	}
}

// Where nobody answers for credit all PDCs of a peer ask in turn, also after a packet left without: the targets of
// some may be gone, and any other of them answers for all.
func TestCreditAllAsk(t *testing.T) {
	const n = 5 // no multiple of silentAsks, so that a packet leaves by each
	p := waiting(t, n)
	asked, sent := map[uint16]int{}, map[uint16]int{}
	var last []uint16
	p.drop = func(from *FEP, b []byte) bool {
		var h wire.Req
		if _, err := h.Parse(b); err == nil && from == p.a {
			sent[h.SPDCID]++
		}
		c, _, err := wire.ParseCP(b)
		if err != nil || from != p.a || c.Ctl != wire.CtlCreditReq {
			return from == p.b // nothing is heard of the target
		}
		asked[c.SPDCID]++
		last = append(last, c.SPDCID)
		return true
	}
	persists := p.a.Stats().CreditPersists
	for end := p.now + 12*time.Second; p.now < end; p.now += 5 * time.Millisecond {
		p.a.Advance(p.now)
		p.exchange()
	}
	t.Logf("%d packets left without credit; asked: %v", p.a.Stats().CreditPersists-persists, last)
	if len(sent) != n {
		t.Errorf("%d PDCs of %d sent without credit", len(sent), n)
	}
	if len(asked) != n {
		t.Fatalf("%d PDCs of %d asked", len(asked), n)
	}
	for i := range last[1:] {
		if last[i] == last[i+1] {
			t.Errorf("question %d is by the PDC of the one before it", i+1)
		}
	}
}
