package fabric

import (
	"math"
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/transport/wire"
)

// A line is a Line with its state.
type line struct {
	name string
	last bool // leads to hosts
	base Line // as configured, and changed for good
	eff  Line // as it is now: base under layers. Its Rules are not looked at
	// layers are the temporary changes of events, oldest first.
	layers []layer

	rules []*rule        // by ord
	ords  int            // given to rules so far
	named map[string]int // rules that ever had the name: each gets a stream of its own

	low, high           fifo
	lowBytes, highBytes int64
	tx                  *packet // on the wire
	txEnd               time.Duration
	txFrac              int64 // of a nanosecond, in 1/rate, that the last packet took less than it should
	gen                 uint32
	pipe                fifo          // packets on their way in order, which is most: the agenda has the first
	pipeEnd             time.Duration // when the last of them arrives
	leave               time.Duration // the latest that anything reached the end, for InOrder
	bad                 badnet.Line   // its delay and ECN

	packets, bytes       uint64
	sentPackets, sentB   uint64
	maxWait              int64
	whys                 [NumWhys]uint64
	trimAfter, trimAfRTX int64
}

// A layer has the changes of one event to a line.
type layer struct {
	by   *change
	set  Line
	down bool
}

const (
	// DefaultQueue is the default of Line.Queue.
	DefaultQueue Bytes = 1 << 20
	// minTrimmed is the least number of bytes that trimming leaves of an IP packet.
	minTrimmed = 64
)

// refresh computes eff from base and layers.
func (l *line) refresh() {
	l.eff = l.base
	for i := range l.layers {
		merge(&l.eff, &l.layers[i].set, &l.layers[i].set)
		l.eff.Down = l.eff.Down || l.layers[i].down
	}
	l.bad.Delay, l.bad.Jitter = time.Duration(l.eff.Delay), time.Duration(l.eff.Jitter)
	if l.eff.Queue == 0 {
		l.eff.Queue = DefaultQueue
	}
	if l.eff.QueueHigh == 0 {
		l.eff.QueueHigh = l.eff.Queue
	}
	if t := l.eff.Trim; t != nil {
		l.trimAfter, l.trimAfRTX = int64(t.After), int64(t.AfterRTX)
		if t.AfterRTX == 0 {
			l.trimAfRTX = l.trimAfter + l.trimAfter/2
		}
	}
}

// merge copies to l the fields of from that are set in set.
func merge(l, set, from *Line) {
	over(&l.Rate, set.Rate, from.Rate)
	over(&l.Delay, set.Delay, from.Delay)
	over(&l.Jitter, set.Jitter, from.Jitter)
	over(&l.InOrder, set.InOrder, from.InOrder)
	over(&l.Queue, set.Queue, from.Queue)
	over(&l.QueueHigh, set.QueueHigh, from.QueueHigh)
	over(&l.Small, set.Small, from.Small)
	over(&l.ECN, set.ECN, from.ECN)
	over(&l.Trim, set.Trim, from.Trim)
	over(&l.MTU, set.MTU, from.MTU)
}

func over[T comparable](to *T, set, from T) {
	var unset T
	if set != unset {
		*to = from
	}
}

// enter handles a packet at the beginning of a line.
func (s *Switch) enter(l *line, p *packet) {
	l.packets++
	l.bytes += uint64(p.n)
	switch {
	case l.eff.Down:
		s.drop(l, nil, p, LostDown)
	case l.eff.MTU > 0 && p.n > l.eff.MTU:
		s.drop(l, nil, p, LostMTU)
	default:
		s.applyRules(l, p, 0)
	}
}

// queue queues a packet that the rules have let through, or trims or drops it.
func (s *Switch) queue(l *line, p *packet) {
	if l.eff.Rate == 0 {
		s.sent(l, p)
		return
	}
	if l.tx == nil {
		s.serve(l, p)
		return
	}
	dscp := tos(p.buf, p.v6) >> 2
	n := int64(p.n)
	if !s.classes.high(dscp) && n > int64(l.eff.Small) {
		full := l.lowBytes+n > int64(l.eff.Queue)
		if l.eff.Trim != nil {
			after := int64(math.MaxInt64)
			switch dscp {
			case s.classes.Trimmable:
				after = l.trimAfter
			case s.classes.TrimmableRTX:
				after = l.trimAfRTX
			}
			if after != math.MaxInt64 && (full || l.lowBytes > after) && s.trim(l, nil, p) {
				s.queueHigh(l, p)
				return
			}
		}
		if full {
			s.drop(l, nil, p, LostQueue)
			return
		}
		l.low.push(p)
		l.lowBytes += n
		l.maxWait = max(l.maxWait, l.lowBytes+l.highBytes)
		return
	}
	s.queueHigh(l, p)
}

func (s *Switch) queueHigh(l *line, p *packet) {
	if l.highBytes+int64(p.n) > int64(l.eff.QueueHigh) {
		s.drop(l, nil, p, LostQueueHigh)
		return
	}
	l.high.push(p)
	l.highBytes += int64(p.n)
	l.maxWait = max(l.maxWait, l.lowBytes+l.highBytes)
}

// serve begins the transmission of a packet that has left the queue, or needed none.
func (s *Switch) serve(l *line, p *packet) {
	if e := l.eff.ECN; e != nil {
		s.ecn(l, e, p)
	}
	num := int64(p.n)*8*int64(time.Second) + l.txFrac
	took := num / int64(l.eff.Rate)
	l.txFrac = num % int64(l.eff.Rate)
	l.tx, l.txEnd = p, s.now+time.Duration(took)
	s.due(l.txEnd, event{kind: evTx, line: l, gen: l.gen})
}

// ecn marks p according to how many bytes wait behind it. Only the low class is marked.
func (s *Switch) ecn(l *line, e *ECN, p *packet) {
	t := tos(p.buf, p.v6)
	w := l.lowBytes
	if w <= int64(e.Min) || !markable(t) || s.classes.high(t>>2) {
		return
	}
	if w <= int64(e.Max) {
		top := e.Prob
		if top == 0 {
			top = 1
		}
		if !l.bad.Hits(badnet.DrawCE, top*float64(w-int64(e.Min))/float64(e.Max-e.Min)) {
			return
		}
	}
	s.mark(l, nil, p)
}

// txDone ends the transmission of a packet and begins the next one.
func (s *Switch) txDone(l *line) {
	p := l.tx
	l.tx = nil
	if l.eff.Down {
		s.drop(l, nil, p, LostDown)
	} else {
		s.sent(l, p)
	}
	s.pull(l)
}

// pull takes the next packet from the queues: the high class first.
func (s *Switch) pull(l *line) {
	for l.tx == nil && (l.high.n > 0 || l.low.n > 0) {
		var p *packet
		if l.high.n > 0 {
			p = l.high.pop()
			l.highBytes -= int64(p.n)
		} else {
			p = l.low.pop()
			l.lowBytes -= int64(p.n)
		}
		switch {
		case l.eff.Down:
			s.drop(l, nil, p, LostDown)
		case l.eff.Rate == 0:
			s.sent(l, p)
		default:
			s.serve(l, p)
		}
	}
}

// retime handles a change of the rate from old: the rest of the packet being transmitted is
// sent at the new rate.
func (s *Switch) retime(l *line, old Rate) {
	if l.eff.Rate == old {
		return
	}
	l.txFrac = 0
	if l.tx == nil {
		return
	}
	l.gen++
	switch {
	case l.eff.Rate == 0:
		s.txDone(l)
		return
	case l.txEnd > s.now:
		hi, lo := bits.Mul64(uint64(l.txEnd-s.now), uint64(old))
		left := uint64(math.MaxInt64 / 4)
		if hi < uint64(l.eff.Rate) {
			q, _ := bits.Div64(hi, lo, uint64(l.eff.Rate))
			left = min(left, q)
		}
		l.txEnd = s.now + time.Duration(left)
	}
	s.due(l.txEnd, event{kind: evTx, line: l, gen: l.gen})
}

// sent handles a transmitted packet: it leaves the line after the delay.
func (s *Switch) sent(l *line, p *packet) {
	l.sentPackets++
	l.sentB += uint64(p.n)
	at := s.now + l.bad.Delayed()
	if l.eff.InOrder {
		at = max(at, l.leave)
	}
	l.leave = max(l.leave, at)
	switch {
	case at == s.now && (l.pipe.n == 0 || at < l.pipeEnd):
		s.hop(p)
	case at < l.pipeEnd && l.pipe.n > 0: // it overtakes
		s.due(at, event{kind: evHop, pkt: p})
	default:
		p.at, l.pipeEnd = at, at
		l.pipe.push(p)
		if l.pipe.n == 1 {
			s.due(at, event{kind: evPipe, line: l})
		}
	}
}

// piped handles the end of the delay of the first packet in the pipe.
func (s *Switch) piped(l *line) {
	p := l.pipe.pop()
	if l.pipe.n > 0 {
		s.due(l.pipe.ring[l.pipe.head].at, event{kind: evPipe, line: l})
	}
	s.hop(p)
}

// mark sets CE.
func (s *Switch) mark(l *line, r *rule, p *packet) {
	setTOS(p.buf, p.v6, tos(p.buf, p.v6)|ecnCE)
	s.note(l, r, p, Marked)
}

// trim cuts the payload off p and puts it into the high class. It returns false if there is
// nothing to cut.
func (s *Switch) trim(l *line, r *rule, p *packet) bool {
	if p.udp == 0 {
		return false
	}
	body := p.udp + udpLen
	t := l.eff.Trim
	keep := 0
	if t != nil {
		keep = t.Keep
	}
	if keep == 0 {
		keep = max(minTrimmed, body+headers(p.buf[body:min(p.end, p.n)]))
	}
	keep = max(keep, body)
	if keep+wire.CRCLen >= p.n {
		return false
	}
	s.note(l, r, p, Trimmed) // with the length it had
	last := l.last
	if t != nil && t.LastHop != nil {
		last = *t.LastHop
	}
	dscp := s.classes.Trimmed
	if last {
		dscp = s.classes.TrimmedLastHop
	}
	p.n, p.end = keep, keep
	ip := p.ip()
	putTrimmed(ip, p.v6, p.udp)
	setTOS(ip, p.v6, dscp<<2|tos(ip, p.v6)&ecnMask)
	return true
}
