package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// A Line carries datagrams in one direction and does to them what its Faults say.
type Line struct {
	Name string

	net    *Net
	index  uint64
	f      Faults
	bad    badnet.Line // decides the faults that badnet knows
	rngs   [numDraws]*rand.Rand
	count  uint64        // number of datagrams that entered
	busy   time.Duration // the rate is used until then
	last   time.Duration // InOrder: arrival of the latest datagram
	ahead  time.Duration // Trim: packets that overtake use the rate until then
	late   badnet.Held[*Packet]
	back   []*Packet // Reverse: what is held back
	holds  uint32    // number of the Reverse in progress
	Passed uint64    // number of datagrams that left, copies included
	divert func(*Packet)
	into   Switch // where it leads; nil means to the destination
}

// Each kind of fault draws from its own stream. So a run with one kind switched off is as
// similar as possible to the run with it, which shrinking needs.
const (
	drawSpike = badnet.NumDraws + iota
	drawReverse
	drawTruncate
	drawPad
	drawPath
	drawMark
	numDraws
)

// streams numbers the streams of random numbers. Other numbers would make other runs of the
// same seeds.
var streams = [numDraws]uint64{
	badnet.DrawJitter: 0, drawSpike: 1, badnet.DrawCE: 2, badnet.DrawLoss: 3, badnet.DrawBurst: 4, badnet.DrawReorder: 5, drawReverse: 6,
	badnet.DrawDuplicate: 7, badnet.DrawCorrupt: 8, drawTruncate: 9, drawPad: 10, drawPath: 11, badnet.DrawTrim: 12, drawMark: 13,
}

// NewLine makes a line that is on no route yet.
func (n *Net) NewLine(name string, f Faults) *Line {
	l := &Line{Name: name, net: n, index: uint64(len(n.lines))}
	l.set(f)
	n.lines = append(n.lines, l)
	return l
}

// Faults returns what the line does now.
func (l *Line) Faults() Faults { return l.f }

// SetFaults changes the faults. What the line holds back for reordering leaves at once.
func (l *Line) SetFaults(f Faults) {
	l.set(f)
	l.releaseBack()
	for p, ok := l.late.Oldest(); ok; p, ok = l.late.Oldest() {
		l.queue(p, 0)
	}
}

func (l *Line) set(f Faults) {
	l.f, l.bad = f, badnet.Line{Faults: f.check(), Rand: l.rng}
}

// Into makes the line lead into a switch. A line that never did leads to the node that has the
// destination's address.
func (l *Line) Into(s Switch) { l.into = s }

// Leads returns the switch that the line leads into, nil if there is none.
func (l *Line) Leads() Switch { return l.into }

// Waiting is how many bytes wait for the rate now, those included of which a part has left.
func (l *Line) Waiting() int {
	return int(int64(max(l.busy-l.net.now, 0)) * l.f.Rate / int64(time.Second))
}

// Divert makes f get every datagram that enters the line, instead of the line: another model of
// a network replaces it. f borrows the Packet and calls Net.Deliver for what arrives.
func (l *Line) Divert(f func(*Packet)) { l.divert = f }

// Entered is how many datagrams have entered the line. It is the number of the next one in
// Faults.Drop.
func (l *Line) Entered() uint64 { return l.count }

// defaultKeep is the default of Trim.Keep: 64 less the headers of IPv4 and UDP.
const defaultKeep = 64 - 20 - 8

func (l *Line) rng(d badnet.Draw) *rand.Rand {
	if l.rngs[d] == nil {
		l.rngs[d] = rand.New(rand.NewPCG(l.net.seed^0x6c696e6b, l.index<<8|streams[d]))
	}
	return l.rngs[d]
}

// enter receives a packet. It may lose it, then repeat it, then damage it.
func (l *Line) enter(p *Packet) {
	f := &l.f
	num := l.count
	l.count++
	if l.divert != nil {
		l.divert(p)
		l.net.put(p)
		return
	}
	if slices.Contains(f.Drop, num) {
		l.net.drop(p, WhyExact)
		return
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
	for _, h := range f.Holes {
		if l.net.now >= h.From && l.net.now < h.To && p.Len() > h.MTU {
			l.net.drop(p, WhyMTU)
			return
		}
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
		if l.bad.Hits(drawPath, pf.Loss) {
			l.net.drop(p, WhyPath)
			return
		}
		extra += pf.Delay
		if p.TOS&3 != 0 && l.bad.Hits(drawPath, pf.CE) {
			p.TOS |= 3
			p.Marks |= Congested
		}
	}
	switch l.bad.Lost(l.net.now) {
	case badnet.ByChance:
		l.net.drop(p, WhyLoss)
		return
	case badnet.InBurst:
		l.net.drop(p, WhyBurst)
		return
	}
	for range copies + l.bad.Copied() {
		c := l.net.clone(p, 0)
		c.Marks |= Copied
		l.queue(l.damage(c), extra+l.bad.CopyLate())
	}
	l.reorder(l.damage(p), extra)
}

// damage changes the bytes of a packet. No UDP checksum protects them: the protocol must find
// out by itself.
func (l *Line) damage(p *Packet) *Packet {
	f := &l.f
	if flips := l.bad.Flips(len(p.Data)); len(flips) > 0 {
		badnet.Flip(p.Data, flips)
		p.Marks |= Corrupted
	}
	if len(p.Data) > 0 && l.bad.Hits(drawTruncate, f.Truncate) {
		p.Data = p.Data[:l.rng(drawTruncate).IntN(len(p.Data))]
		p.Marks |= Truncated
	}
	if l.bad.Hits(drawPad, f.Pad) {
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

// reorder holds the packet back, or lets it pass those that are held back.
func (l *Line) reorder(p *Packet, extra time.Duration) {
	f := &l.f
	if len(l.back) > 0 || l.bad.Hits(drawReverse, f.Reverse) {
		if len(l.back) == 0 {
			l.holds++
			gen := l.holds
			l.net.After(l.bad.Hold(), func() {
				if gen == l.holds {
					l.releaseBack()
				}
			})
		}
		l.back = append(l.back, p)
		if len(l.back) >= max(f.ReverseLen, 2) {
			l.releaseBack()
		}
		return
	}
	if l.bad.Hits(badnet.DrawReorder, l.bad.Reorder) {
		until := l.net.now + l.bad.Hold()
		ticket := l.late.Hold(p, l.bad.By(), until)
		l.net.At(until, func() {
			if q, ok := l.late.Take(ticket); ok {
				l.queue(q, 0)
			}
		})
		return
	}
	l.queue(p, extra)
	l.passed()
}

// passed counts one packet that passes those that are late.
func (l *Line) passed() {
	for _, q := range l.late.Passed() {
		l.queue(q, 0)
	}
}

func (l *Line) releaseBack() {
	back := l.back
	l.back = nil
	l.holds++
	for i := len(back) - 1; i >= 0; i-- {
		l.queue(back[i], 0)
		l.passed()
	}
}

// queue sends a packet through the line: rate, queue, marks, then delay.
func (l *Line) queue(p *Packet, extra time.Duration) {
	f := &l.f
	now := l.net.now
	at := now
	l.busy = max(l.busy, now)
	waiting := int64(l.busy-now) * f.Rate / int64(time.Second)
	front := f.Trim.on() && (l.trim(p, int(waiting)) || p.TOS>>2 == f.Trim.Control || p.TOS>>2 == f.Trim.As)
	switch {
	case f.Rate <= 0:
	case front:
		// It overtakes the packets that wait, and later ones wait for it. Those that wait keep
		// their time, so the line exceeds its rate for a moment.
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
		if f.Mark > 0 && waiting > int64(f.Mark) && p.TOS&3 != 0 && l.marks(waiting) {
			p.TOS |= 3
			p.Marks |= Congested
		}
		l.busy += time.Duration(int64(p.Len()) * int64(time.Second) / f.Rate)
		at = l.busy
	}
	if p.TOS&3 != 0 && l.bad.Hits(badnet.DrawCE, f.CE) {
		p.TOS |= 3
		p.Marks |= Congested
	}
	at += extra + l.bad.Delayed()
	spike := l.bad.Hits(drawSpike, f.Spike)
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

// marks decides whether a datagram is marked that finds more than Faults.Mark bytes waiting.
func (l *Line) marks(waiting int64) bool {
	f := &l.f
	return waiting >= int64(f.MarkAll) || l.bad.Hits(drawMark, float64(waiting-int64(f.Mark))/float64(f.MarkAll-f.Mark))
}

// trim decides whether a packet is cut, and cuts it. It reports whether it did.
func (l *Line) trim(p *Packet, waiting int) bool {
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
		return false // the cut could restore the original
	}
	if len(p.Data) <= keep || !(t.After > 0 && waiting > after || l.bad.Hits(badnet.DrawTrim, share)) {
		return false
	}
	p.Data = p.Data[:keep]
	p.TOS = t.As<<2 | p.TOS&3
	p.Marks |= Trimmed
	return true
}
