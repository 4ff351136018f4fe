package fabric

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/transport/wire"
)

// A rule is a Rule with its state on one line. It has its own stream of random numbers,
// named after line and rule: another rule that comes or goes does not change it.
type rule struct {
	Rule
	line *line
	ord  int // its place: rules keep their order whatever comes and goes
	off  int // events that have cleared it for a while
	gone bool
	rng  *rand.Rand
	m    match

	n     uint64 // packets that matched
	bad   badnet.Line
	first firsts
	drop  []uint64 // Drop, sorted, what is still to come
	held  badnet.Held[*packet]
	tape  *tape
}

// A match is a Match prepared for comparison.
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

// applyRules applies the rules from place ord on to a packet, and queues the packet if they
// let it through.
func (s *Switch) applyRules(l *line, p *packet, ord int) {
	for _, r := range l.rules {
		if r.ord < ord || r.off > 0 || !r.m.matches(p) {
			continue
		}
		pass, copies := s.apply(l, r, p)
		if pass && copies == nil && r.held.Len() == 0 {
			continue
		}
		// Something comes behind p, which goes all its way first.
		if pass {
			s.applyRules(l, p, r.ord+1)
		}
		for copies != nil {
			c := copies
			copies, c.next = c.next, nil
			s.goOn(l, r, c, r.bad.CopyLate())
		}
		if pass {
			for _, q := range r.held.Passed() {
				s.applyRules(l, q, r.ord+1)
			}
		}
		return
	}
	s.queue(l, p)
}

// apply applies rule r to packet p. pass is false if p is dropped, held back or delayed.
// copies are to be sent after it.
func (s *Switch) apply(l *line, r *rule, p *packet) (pass bool, copies *packet) {
	n := r.n
	r.n++
	if r.tape != nil {
		s.record(r, p)
	}
	if why := r.exact(n, p); why != Passed {
		s.drop(l, r, p, why)
		return false, nil
	}
	dscp := tos(p.buf, p.v6)
	f := r.bad.Fate(s.now, badnet.Datagram{
		Bytes: max(p.end-p.udp-udpLen, 0), ECT: markable(dscp), Trimmable: s.classes.trimmable(dscp >> 2),
		NoCopy: p.depth >= maxDepth, NoHold: r.held.Len() >= maxReordered,
	})
	if f.Lost != badnet.Passed {
		s.drop(l, r, p, whys[f.Lost])
		return false, nil
	}
	if len(f.Flips) > 0 {
		badnet.Flip(p.buf[p.udp+udpLen:p.end], f.Flips)
		putUDPSum(p.buf, p.v6, p.udp, p.end)
		s.note(l, r, p, Corrupted)
	}
	if f.Marked {
		s.mark(l, r, p)
	}
	if f.Trimmed {
		s.trim(l, r, p)
	}
	for range f.Copies {
		c := s.clone(p)
		if c == nil {
			break // no room: what is not made is not lost
		}
		c.depth++
		c.next, copies = copies, c
		s.note(l, r, c, Duplicated)
	}
	switch {
	case f.By > 0:
		s.note(l, r, p, Reordered)
		until := s.now + r.bad.Hold()
		s.due(until, event{kind: evHold, rule: r, ticket: r.held.Hold(p, f.By, until)})
	case f.Delay > 0:
		s.note(l, r, p, Delayed)
		s.goOn(l, r, p, f.Delay)
	default:
		return true, copies
	}
	return false, copies
}

// whys maps the losses of the bad-network model to the decisions here.
var whys = [...]Why{badnet.ByChance: LostRandom, badnet.InBurst: LostBurst}

// exact returns why r loses p, the nth packet that matched, without any chance; or Passed.
func (r *rule) exact(n uint64, p *packet) Why {
	if r.Blackhole {
		return LostBlackhole
	}
	for len(r.drop) > 0 && r.drop[0] < n {
		r.drop = r.drop[1:]
	}
	if len(r.drop) > 0 && r.drop[0] == n || r.First > 0 && p.kind != kindOther && r.first.count(p) <= r.First {
		return LostExact
	}
	return Passed
}

// goOn passes p to the rules behind r, after a time.
func (s *Switch) goOn(l *line, r *rule, p *packet, after time.Duration) {
	if after == 0 {
		s.applyRules(l, p, r.ord+1)
		return
	}
	p.ord = r.ord + 1
	s.due(s.now+after, event{kind: evRule, line: l, pkt: p})
}

const (
	// maxDepth is how often a copy may be copied again. Without it several rules that
	// duplicate could make too many packets.
	maxDepth = 3
	// maxReordered is how many packets a rule holds back at a time for reordering. Beyond
	// it, packets pass in order.
	maxReordered = 1024
)

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

// A seen has the number of packets seen in a direction.
type seen struct {
	direction
	n     int
	start uint32 // Start_PSN of its SYN
	syn   bool
}

// maxFirsts is how many directions a rule distinguishes. Beyond it, the oldest is forgotten
// and counts as a new one when it comes again.
const maxFirsts = 1 << 16

// count returns the number of p in its direction, from 1. A SYN with another Start_PSN is
// another PDC, whatever its id.
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
