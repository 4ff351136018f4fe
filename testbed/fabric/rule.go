package fabric

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A rule is one Rule at work on one line. Its random numbers are a stream of its
// own, named after line and rule: another rule that comes or goes changes nothing.
type rule struct {
	Rule
	line *line
	ord  int // its place: rules keep their order whatever comes and goes
	off  int // events that have cleared it for a while
	gone bool
	rng  *rand.Rand
	m    match

	n     uint64 // packets that matched
	bad   bool   // state of Burst
	first firsts
	drop  []uint64 // Drop, sorted, what is still to come
	held  []*packet
	tape  *tape
}

// A match is a Match made ready.
type match struct {
	Match
	any          bool
	kinds        uint8 // bit per kind
	flag         wire.Flags
	without      bool
	hasSrc, hasD bool
}

var flagNames = map[string]wire.Flags{"syn": wire.FlagSYN, "retx": wire.FlagRETX, "ar": wire.FlagAR}

func newMatch(m Match) match {
	c := match{Match: m, kinds: 0xff}
	if m.Kind != "" {
		name, not := strings.CutPrefix(m.Kind, "!")
		c.kinds = 1 << slices.Index(kindNames[:], name)
		if not {
			c.kinds = ^c.kinds
		}
	}
	if m.Flag != "" {
		name, not := strings.CutPrefix(m.Flag, "!")
		c.flag, c.without = flagNames[name], not
	}
	c.hasSrc, c.hasD = m.Src.IsValid(), m.Dst.IsValid()
	c.any = m == Match{}
	return c
}

func (m *match) matches(p *packet) bool {
	if m.any {
		return true
	}
	return m.kinds>>p.kind&1 != 0 &&
		(m.flag == 0 || (p.flag&m.flag == 0) == m.without) &&
		(m.SrcPort == 0 || m.SrcPort == p.src.Port()) &&
		(m.DstPort == 0 || m.DstPort == p.dst.Port()) &&
		(!m.hasSrc || m.Src.Contains(p.src.Addr())) &&
		(!m.hasD || m.Dst.Contains(p.dst.Addr())) &&
		(!m.EOM || p.eom) &&
		p.n >= m.MinLen
}

// chance is true with probability p. It draws nothing where there is no choice.
func chance(rng *rand.Rand, p float64) bool {
	return p >= 1 || p > 0 && rng.Float64() < p
}

// judge shows a packet to the rules from place ord on. A packet that they let through
// goes to the queue.
func (s *Switch) judge(l *line, p *packet, ord int) {
	for _, r := range l.rules {
		if r.ord < ord || r.off > 0 || !r.m.matches(p) {
			continue
		}
		pass, copies := s.apply(l, r, p)
		if pass && copies == nil && len(r.held) == 0 {
			continue
		}
		// Something comes behind p, which goes all its way first.
		if pass {
			s.judge(l, p, r.ord+1)
		}
		for copies != nil {
			c := copies
			copies, c.next = c.next, nil
			s.goOn(l, r, c, uniform(r.rng, r.DuplicateLate))
		}
		if pass {
			s.overtaken(r)
		}
		return
	}
	s.queue(l, p)
}

// apply applies rule r to packet p. pass is false if p is dropped, held or delayed.
// copies are to be sent behind it.
func (s *Switch) apply(l *line, r *rule, p *packet) (pass bool, copies *packet) {
	n := r.n
	r.n++
	if r.tape != nil {
		s.record(r, p)
	}
	if why := r.loses(n, p); why != Passed {
		s.drop(l, r, p, why)
		return false, nil
	}
	if r.Corrupt > 0 && p.end > p.udp+udpLen && chance(r.rng, r.Corrupt) {
		s.corrupt(l, r, p)
	}
	if r.CE > 0 && markable(tos(p.buf, p.v6)) && chance(r.rng, r.CE) {
		s.mark(l, r, p)
	}
	if r.Trim > 0 && s.classes.trimmable(tos(p.buf, p.v6)>>2) && chance(r.rng, r.Trim) {
		s.trim(l, r, p)
	}
	if r.Duplicate > 0 && p.depth < maxDepth && chance(r.rng, r.Duplicate) {
		for range max(r.Copies, 1) {
			c := s.clone(p)
			if c == nil {
				break // no room: what is not made is not lost
			}
			c.depth++
			c.next, copies = copies, c
			s.note(l, r, c, Duplicated)
		}
	}
	if r.Reorder > 0 && len(r.held) < maxHeld && chance(r.rng, r.Reorder) {
		s.hold(l, r, p)
		return false, copies
	}
	if r.Delay > 0 && (r.Late == 0 || chance(r.rng, r.Late)) {
		s.note(l, r, p, Delayed)
		s.goOn(l, r, p, time.Duration(r.Delay))
		return false, copies
	}
	return true, copies
}

// loses is why r loses p, the nth that matched, or Passed.
func (r *rule) loses(n uint64, p *packet) Why {
	if r.Blackhole {
		return LostBlackhole
	}
	for len(r.drop) > 0 && r.drop[0] < n {
		r.drop = r.drop[1:]
	}
	if len(r.drop) > 0 && r.drop[0] == n || r.First > 0 && p.kind != kindOther && r.first.count(p) <= r.First {
		return LostExact
	}
	if b := r.Burst; b != nil {
		if r.bad {
			r.bad = !chance(r.rng, b.Leave)
		} else {
			r.bad = chance(r.rng, b.Enter)
		}
		if r.bad && (b.Loss == 0 || chance(r.rng, b.Loss)) {
			return LostBurst
		}
	}
	if chance(r.rng, r.Loss) {
		return LostRandom
	}
	return Passed
}

// goOn lets p go on behind r, after a time.
func (s *Switch) goOn(l *line, r *rule, p *packet, after time.Duration) {
	if after == 0 {
		s.judge(l, p, r.ord+1)
		return
	}
	p.ord = r.ord + 1
	s.due(s.now+after, event{kind: evRule, line: l, pkt: p})
}

const (
	defaultHold = 20 * time.Millisecond
	// maxDepth is how often a copy is copied again: several rules that duplicate would
	// otherwise make more packets than there is time for.
	maxDepth = 3
	// maxHeld is how many packets a rule holds for reordering at a time. Beyond, it
	// lets them pass in order.
	maxHeld = 1024
)

// hold keeps p until others have passed, or until its time is over.
func (s *Switch) hold(l *line, r *rule, p *packet) {
	s.note(l, r, p, Reordered)
	p.left = max(r.ReorderBy, 1)
	p.gen++
	r.held = append(r.held, p)
	d := time.Duration(r.ReorderHold)
	if d == 0 {
		d = defaultHold
	}
	s.due(s.now+d, event{kind: evHold, rule: r, pkt: p, gen: p.gen})
}

// overtaken is that a packet has passed those that r holds.
func (s *Switch) overtaken(r *rule) {
	due := 0
	for _, p := range r.held {
		p.left--
		if p.left <= 0 {
			due++
		}
	}
	for i := 0; due > 0 && i < len(r.held); {
		if r.held[i].left > 0 {
			i++
			continue
		}
		due--
		s.release(r, i)
	}
}

// release lets go the ith packet that r holds.
func (s *Switch) release(r *rule, i int) {
	p := r.held[i]
	r.held = slices.Delete(r.held, i, i+1)
	p.gen++
	s.judge(r.line, p, r.ord+1)
}

// heldTooLong is the end of the time that p may be held.
func (s *Switch) heldTooLong(r *rule, p *packet) {
	if i := slices.Index(r.held, p); i >= 0 {
		s.release(r, i)
	}
}

// corrupt flips bits of the UDP payload, each another one, and makes the UDP
// checksum right.
func (s *Switch) corrupt(l *line, r *rule, p *packet) {
	from := p.udp + udpLen
	total := (p.end - from) * 8
	var done [maxCorruptBits]int
	n := min(max(r.CorruptBits, 1), total)
	for i := 0; i < n; {
		bit := r.rng.IntN(total)
		if slices.Contains(done[:i], bit) {
			continue
		}
		done[i] = bit
		i++
		p.buf[from+bit/8] ^= 1 << (bit % 8)
	}
	putUDPSum(p.buf, p.v6, p.udp, p.end)
	s.note(l, r, p, Corrupted)
}

// uniform is a time in [0, d).
func uniform(rng *rand.Rand, d Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rng.Int64N(int64(d)))
}

// firsts counts the packets of each direction of each PDC.
type firsts struct {
	index map[direction]int32
	seen  []seen // a ring: the oldest makes room
	next  int
}

type direction struct {
	src netip.AddrPort
	pdc uint16
}

type seen struct {
	direction
	n     int
	start uint32 // Start_PSN of its SYN
	syn   bool
}

// maxFirsts is how many directions a rule tells apart. Of more, the oldest is
// forgotten: it is taken for a new one when it comes again.
const maxFirsts = 1 << 16

// count is the number of p in its direction, from 1. A SYN with another Start_PSN
// is another PDC, whatever its id.
func (f *firsts) count(p *packet) int {
	d := direction{p.src, p.pdc}
	i, ok := f.index[d]
	if !ok {
		if f.index == nil {
			f.index = map[direction]int32{}
		}
		if len(f.seen) < maxFirsts {
			i = int32(len(f.seen))
			f.seen = append(f.seen, seen{})
		} else {
			i = int32(f.next)
			f.next = (f.next + 1) % maxFirsts
			delete(f.index, f.seen[i].direction)
		}
		f.seen[i] = seen{direction: d}
		f.index[d] = i
	}
	e := &f.seen[i]
	if p.flag&wire.FlagSYN != 0 {
		if e.syn && e.start != p.start {
			e.n = 0
		}
		e.syn, e.start = true, p.start
	}
	e.n++
	return e.n
}
