package sim

import (
	"math/rand/v2"
	"time"
)

// A Link carries datagrams one way and does to them what its Faults say.
type Link struct {
	Name string

	net    *Net
	index  uint64
	f      Faults
	rngs   [numDraws]*rand.Rand
	count  uint64        // datagrams that entered
	bad    bool          // Burst is in its bad state
	badAt  time.Duration // since then
	busy   time.Duration // the rate is used up until then
	last   time.Duration // InOrder: arrival of the latest
	ahead  time.Duration // Trim: what goes in front uses the rate until then
	late   []*Packet     // Reorder
	back   []*Packet     // Reverse
	holds  uint32        // generation of the Reverse in progress
	Passed uint64        // datagrams that left, copies too
	divert func(*Packet)
}

// Each kind of fault draws from its own stream, so that a run with one kind
// switched off stays as near as possible to the run with it (shrinking).
type draw int

const (
	drawJitter draw = iota
	drawSpike
	drawCE
	drawLoss
	drawBurst
	drawReorder
	drawReverse
	drawDuplicate
	drawCorrupt
	drawTruncate
	drawPad
	drawPath
	drawTrim
	numDraws
)

// defaultHold is the default of Faults.ReorderHold. It is longer than a round trip of
// most tests.
const defaultHold = 20 * time.Millisecond

// NewLink makes a link that is on no route yet.
func (n *Net) NewLink(name string, f Faults) *Link {
	f.check()
	l := &Link{Name: name, net: n, index: uint64(len(n.links)), f: f}
	n.links = append(n.links, l)
	return l
}

// Faults returns what the link does now.
func (l *Link) Faults() Faults { return l.f }

// SetFaults changes what the link does from now on. What it holds for
// reordering goes on at once.
func (l *Link) SetFaults(f Faults) {
	f.check()
	l.f = f
	l.bad = false
	l.releaseBack()
	late := l.late
	l.late = nil
	for _, p := range late {
		l.queue(p, 0)
	}
}

// Divert hands every datagram that enters the link to f, and the link does nothing
// to it: another model of a network takes its place. f borrows the Packet and calls
// Net.Deliver for what arrives.
func (l *Link) Divert(f func(*Packet)) { l.divert = f }

// Entered is how many datagrams have entered the link: the number of the next
// one in Faults.Drop.
func (l *Link) Entered() uint64 { return l.count }

// defaultKeep is Trim.Keep's default: 64 less the headers of IPv4 and UDP.
const defaultKeep = 64 - 20 - 8

func (l *Link) rng(d draw) *rand.Rand {
	if l.rngs[d] == nil {
		l.rngs[d] = rand.New(rand.NewPCG(l.net.seed^0x6c696e6b, l.index<<8|uint64(d)))
	}
	return l.rngs[d]
}

// hits draws for one kind of fault.
func (l *Link) hits(d draw, p float64) bool {
	return p > 0 && (p >= 1 || l.rng(d).Float64() < p)
}

// enter takes in a packet: it may lose it, then repeat it, then damage it.
func (l *Link) enter(p *Packet) {
	f := &l.f
	num := l.count
	l.count++
	if l.divert != nil {
		l.divert(p)
		l.net.put(p)
		return
	}
	for _, d := range f.Drop {
		if d == num {
			l.net.drop(p, WhyExact)
			return
		}
	}
	for _, w := range f.Blackouts {
		if l.net.now >= w.From && l.net.now < w.To {
			l.net.drop(p, WhyBlackout)
			return
		}
	}
	if f.MTU > 0 && p.Len() > f.MTU {
		l.net.drop(p, WhyMTU)
		return
	}
	var extra time.Duration
	copies := 0
	if f.Filter != nil {
		v := f.Filter(l.net.now, p)
		if v.Drop {
			l.net.drop(p, WhyFilter)
			return
		}
		extra += v.Delay
		copies += v.Copies
	}
	if p.Path < len(f.Paths) {
		pf := f.Paths[p.Path]
		if l.hits(drawPath, pf.Loss) {
			l.net.drop(p, WhyPath)
			return
		}
		extra += pf.Delay
		if p.TOS&3 != 0 && l.hits(drawPath, pf.CE) {
			p.TOS |= 3
			p.Marks |= Congested
		}
	}
	if l.hits(drawLoss, f.Loss) {
		l.net.drop(p, WhyLoss)
		return
	}
	if l.burst() {
		l.net.drop(p, WhyBurst)
		return
	}
	if l.hits(drawDuplicate, f.Duplicate) {
		copies += 1 + l.rng(drawDuplicate).IntN(max(f.DuplicateMax, 1))
	}
	for range copies {
		c := l.net.clone(p, 0)
		c.Marks |= Copied
		var late time.Duration
		if f.DuplicateLate > 0 {
			late = time.Duration(l.rng(drawDuplicate).Int64N(int64(f.DuplicateLate)))
		}
		l.queue(l.damage(c), extra+late)
	}
	l.reorder(l.damage(p), extra)
}

// burst steps the Gilbert-Elliott process and reports loss.
func (l *Link) burst() bool {
	b := &l.f.Burst
	if b.Enter == 0 && !l.bad {
		return false
	}
	if l.bad {
		l.bad = !l.hits(drawBurst, b.Leave) && (b.Max == 0 || l.net.now-l.badAt < b.Max)
	} else if l.hits(drawBurst, b.Enter) {
		l.bad, l.badAt = true, l.net.now
	}
	return l.bad && l.hits(drawBurst, b.Loss)
}

// damage changes the bytes of a packet. No UDP checksum protects them: the protocol
// has to find out by itself.
func (l *Link) damage(p *Packet) *Packet {
	f := &l.f
	if len(p.Data) > 0 && l.hits(drawCorrupt, f.Corrupt) {
		r := l.rng(drawCorrupt)
		before := l.net.clone(p, 0)
		for range 1 + r.IntN(max(f.CorruptBits, 1)) {
			bit := r.IntN(8 * len(p.Data))
			p.Data[bit/8] ^= 1 << (bit % 8)
		}
		if string(before.Data) != string(p.Data) {
			p.Marks |= Corrupted
		}
		l.net.put(before)
	}
	if len(p.Data) > 0 && l.hits(drawTruncate, f.Truncate) {
		p.Data = p.Data[:l.rng(drawTruncate).IntN(len(p.Data))]
		p.Marks |= Truncated
	}
	if l.hits(drawPad, f.Pad) {
		r := l.rng(drawPad)
		n := 1 + r.IntN(64)
		if len(p.Data)+n > cap(p.Data) {
			q := l.net.clone(p, n)
			l.net.put(p)
			p = q
		}
		for range n {
			p.Data = append(p.Data, byte(r.Uint32()>>(8*r.IntN(2))))
		}
		p.Marks |= Padded
	}
	return p
}

// reorder holds the packet back, or lets it pass those that are held.
func (l *Link) reorder(p *Packet, extra time.Duration) {
	f := &l.f
	hold := f.ReorderHold
	if hold == 0 {
		hold = defaultHold
	}
	if len(l.back) > 0 || l.hits(drawReverse, f.Reverse) {
		if len(l.back) == 0 {
			l.holds++
			l.net.queue.Push(l.net.now+hold, event{kind: evRelease, link: l, gen: l.holds})
		}
		l.back = append(l.back, p)
		if len(l.back) >= max(f.ReverseLen, 2) {
			l.releaseBack()
		}
		return
	}
	if l.hits(drawReorder, f.Reorder) {
		p.left = max(f.ReorderBy, 1)
		id := p.ID
		l.late = append(l.late, p)
		l.net.After(hold, func() { l.releaseLate(id) })
		return
	}
	l.queue(p, extra)
	l.passed()
}

// passed counts one packet past those that are late.
func (l *Link) passed() {
	if len(l.late) == 0 {
		return
	}
	keep := l.late[:0]
	var go_ []*Packet
	for _, q := range l.late {
		if q.left--; q.left <= 0 {
			go_ = append(go_, q)
		} else {
			keep = append(keep, q)
		}
	}
	l.late = keep
	for _, q := range go_ {
		l.queue(q, 0)
	}
}

// releaseLate ends the wait of one packet whose hold is over.
func (l *Link) releaseLate(id uint64) {
	for i, q := range l.late {
		if q.ID == id {
			l.late = append(l.late[:i], l.late[i+1:]...)
			l.queue(q, 0)
			return
		}
	}
}

func (l *Link) release(gen uint32) {
	if gen == l.holds {
		l.releaseBack()
	}
}

func (l *Link) releaseBack() {
	back := l.back
	l.back = nil
	l.holds++
	for i := len(back) - 1; i >= 0; i-- {
		l.queue(back[i], 0)
		l.passed()
	}
}

// queue sends a packet over the wire: rate, queue, marks, then delay.
func (l *Link) queue(p *Packet, extra time.Duration) {
	f := &l.f
	now := l.net.now
	at := now
	l.busy = max(l.busy, now)
	waiting := int64(l.busy-now) * f.Rate / int64(time.Second)
	front := f.Trim.on() && (l.trim(p, int(waiting)) || p.TOS>>2 == f.Trim.Control || p.TOS>>2 == f.Trim.As)
	switch {
	case f.Rate <= 0:
	case front:
		// It overtakes the packets that wait, and later ones wait for it. Those that
		// wait keep their time, so the link exceeds its rate for a moment.
		l.ahead = max(l.ahead, now)
		if f.Queue > 0 && int64(l.ahead-now)*f.Rate/int64(time.Second)+int64(p.Len()) > int64(f.Queue) {
			l.net.drop(p, WhyQueue)
			return
		}
		takes := time.Duration(int64(p.Len()) * int64(time.Second) / f.Rate)
		l.ahead += takes
		l.busy += takes
		at = l.ahead
	default:
		if f.Queue > 0 && waiting+int64(p.Len()) > int64(f.Queue) {
			l.net.drop(p, WhyQueue)
			return
		}
		if f.Mark > 0 && waiting > int64(f.Mark) && p.TOS&3 != 0 {
			p.TOS |= 3
			p.Marks |= Congested
		}
		l.busy += time.Duration(int64(p.Len()) * int64(time.Second) / f.Rate)
		at = l.busy
	}
	if p.TOS&3 != 0 && l.hits(drawCE, f.CE) {
		p.TOS |= 3
		p.Marks |= Congested
	}
	at += f.Delay + extra
	if f.Jitter > 0 {
		at += time.Duration(l.rng(drawJitter).Int64N(int64(f.Jitter)))
	}
	spike := l.hits(drawSpike, f.Spike)
	if spike {
		at += time.Duration(l.rng(drawSpike).Int64N(int64(f.SpikeDelay) + 1))
	}
	if f.InOrder && extra == 0 && !spike && !front {
		at = max(at, l.last)
		l.last = at
	}
	l.Passed++
	l.net.queue.Push(at, event{kind: evHop, pkt: p})
}

// trim cuts a packet if it is to be, and reports whether it did.
func (l *Link) trim(p *Packet, waiting int) bool {
	t := &l.f.Trim
	after, share := t.After, t.Share
	switch p.TOS >> 2 {
	case t.Trimmable:
	case t.TrimmableRTX:
		if after, share = t.AfterRTX, t.ShareRTX; after == 0 {
			after = t.After + t.After/2
		}
	default:
		return false
	}
	keep := t.Keep
	if keep == 0 {
		keep = defaultKeep
	}
	if p.Marks&Padded != 0 {
		return false // a cut could make it what it was
	}
	if len(p.Data) <= keep || !(t.After > 0 && waiting > after || l.hits(drawTrim, share)) {
		return false
	}
	p.Data = p.Data[:keep]
	p.TOS = t.As<<2 | p.TOS&3
	p.Marks |= Trimmed
	return true
}
