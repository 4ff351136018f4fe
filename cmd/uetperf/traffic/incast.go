package traffic

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// An incast has many senders, each with its own endpoint at the client, and one receiver,
// an endpoint at the server. It has two halves:
//
//  1. Streams: each sender keeps a window of blocks under way. This shows how fairly the
//     senders share, and when they have found their shares.
//  2. Rounds: all senders send one block at once, and the next round begins when all blocks
//     have arrived. A round takes as long as its slowest block, as for a job that waits for
//     all its ranks.

// A race is the state that the senders of an incast share.
type race struct {
	n     int
	round atomic.Int64 // the open round; 0 means none yet
	left  atomic.Int64 // legs that have not finished the round
	stop  atomic.Bool  // a leg was told to stop
	over  atomic.Bool  // no round follows; set before round changes for the last time
	wake  func()       // wakes all legs

	// Only the last leg to finish a round accesses the fields below; left orders the accesses.

	end   time.Duration // end of the rounds
	begin time.Duration // begin of the open round
	hist  *histogram
}

func newRace(n int, wake func()) *race {
	r := &race{n: n, wake: wake, hist: newHistogram()}
	r.left.Store(int64(n))
	return r
}

// arrive says that a leg has finished a round at the time now. The last leg opens the next
// round. The rounds together take d.
func (r *race) arrive(now, d time.Duration, stop bool) {
	if stop {
		r.stop.Store(true)
	}
	if r.left.Add(-1) > 0 {
		return
	}
	if r.round.Load() > 0 {
		r.hist.record(now-r.begin, 1)
	} else {
		r.end = now + d
	}
	// Only the last leg may end the rounds. A leg that ended in the middle of a round would
	// leave the others waiting for it.
	if r.stop.Load() || now >= r.end {
		r.over.Store(true)
	}
	r.begin = now
	r.left.Store(int64(r.n))
	r.round.Add(1)
	r.wake()
}

// next reports whether the round after the given one is open, and whether that means the
// end.
func (r *race) next(round int64) (open, over bool) {
	open = r.round.Load() > round // read first, because over is written before round
	return open, open && r.over.Load()
}

// rounds returns the distribution of the times of rounds, nil if there was none. All legs
// must have ended.
func (r *race) rounds() (*record.Latency, int64) {
	if r.hist.count() == 0 {
		return nil, 0
	}
	l := r.hist.latency()
	l.RTT = true
	return l, r.hist.count()
}

// half is the duration of each half of an incast.
func (s *Spec) half() time.Duration { return s.Time / 2 }

// The number of a message of an incast has the index of its sender in the upper bits.
const (
	senderShift = 32
	senderSeq   = 1<<senderShift - 1
	maxSenders  = 0xff
)

// A sender is one of the client's ends of an incast.
type sender struct {
	*Leg
	*race
	posted, done int64
	last         time.Duration
	m            meter
	ready        []*Slot
	at           int64 // last round in which it sent
	streaming    bool
	arrived      bool
}

func newSender(l *Leg) *sender {
	return &sender{Leg: l, race: l.Group.race, m: l.meter(&l.Res.Tx), ready: l.free(), streaming: true}
}

// number returns the number of a message.
func (l *Leg) number(seq int64) int64 { return int64(l.Index)<<senderShift | seq&senderSeq }

// post posts a block. It returns false if there is no room.
func (t *sender) post() (bool, error) {
	b := t.ready[len(t.ready)-1]
	n := t.number(t.posted)
	t.fill(b.Buf, uint64(n))
	ok, err := t.Conn.Send(b.Buf, n, b)
	if err != nil {
		return false, PostError(err)
	}
	if ok {
		t.ready = t.ready[:len(t.ready)-1]
		t.posted++
	}
	return ok, nil
}

// Post keeps the window full during the streams. Then it sends a block in each round.
func (t *sender) Post() (time.Duration, error) {
	s, now := t.Spec, t.since()
	if !t.m.on && (t.done >= s.Warmup || now >= s.half()) {
		t.m.start(now, t.done)
	}
	if t.streaming && (t.Stop.Load() || t.m.on && now-t.m.from >= s.half()) {
		t.streaming = false
	}
	if t.streaming {
		for len(t.ready) > 0 {
			if ok, err := t.post(); err != nil {
				return 0, err
			} else if !ok {
				break
			}
		}
		if len(t.ready) > 0 {
			return 0, nil
		}
		return Idle, nil
	}
	if t.posted != t.done {
		return Idle, nil
	}
	if !t.arrived { // the streams are drained, or this leg has finished the round
		t.arrived = true
		if t.at == 0 {
			t.m.end(t.last, t.done)
		}
		t.arrive(t.Conn.Now(), s.half(), t.Stop.Load())
	}
	open, over := t.next(t.at)
	if !open || over {
		return Idle, nil
	}
	ok, err := t.post()
	if ok {
		t.at++
		t.arrived = false
		return Idle, nil
	}
	return 0, err
}

func (t *sender) Take(c *Completion) error {
	t.done++
	t.ready = append(t.ready, c.Slot)
	return nil
}

func (t *sender) Look(n int) (bool, error) {
	if n > 0 {
		t.last = t.since()
	}
	t.Live.Store(t.done)
	if _, over := t.next(t.at); over && !t.streaming && t.arrived && t.posted == t.done {
		return t.finished()
	}
	return false, nil
}

func (t *sender) Finish() {
	t.m.end(t.last, t.done)
	t.Res.Sent = t.posted
}

// A sink is the receiver of an incast.
type sink struct {
	*Leg
	got     []int64 // messages by sender
	all     int64
	ledgers []*pattern.Ledger
	m       meter
	said    bool
}

func newSink(l *Leg) *sink {
	t := &sink{Leg: l, got: make([]int64, l.Spec.Parallel), m: l.meter(&l.Res.Rx)}
	for range t.got {
		if l.check != nil {
			t.ledgers = append(t.ledgers, pattern.NewLedger(4*l.Spec.Window+1024))
		}
	}
	return t
}

func (t *sink) Post() (time.Duration, error) { return Idle, nil }

func (t *sink) Take(c *Completion) error {
	from := int(c.Seq >> senderShift & maxSenders)
	t.all++
	switch {
	case from < len(t.got):
		t.got[from]++
		if t.check != nil {
			t.countChecked(!t.ledgers[from].Take(uint64(c.Seq&senderSeq)), t.wrong(c, t.Spec.Size, uint64(c.Seq)))
		}
	case t.check != nil:
		t.check.Wrong++
	}
	return t.recv(c.Slot)
}

func (t *sink) Look(n int) (bool, error) {
	if n > 0 && !t.m.on {
		t.m.start(t.since(), t.all)
	}
	t.Live.Store(t.all)
	if !t.said && t.whole() {
		t.said = true
		t.Complete()
	}
	return t.Over.Load(), nil
}

// whole reports whether all messages have arrived.
func (t *sink) whole() bool {
	for i := range t.got {
		if n := t.Senders[i].Load(); n < 0 || t.got[i] < n {
			return false
		}
	}
	return true
}

func (t *sink) Finish() {
	t.m.end(t.since(), t.all)
	t.Res.Received = t.all
	if !t.said {
		return
	}
	for i, g := range t.ledgers {
		t.check.Wrong += int64(g.Gaps(uint64(t.Senders[i].Load())))
	}
	t.ledgers = nil // Finish may be called again
}

// Jain returns the fairness index of shares: 1 if all are equal, 1/n if one has everything, NaN if all are 0.
func Jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(x)) * squares)
}

const (
	// During the streams of an incast there are spreadTicks samples of what the senders sent,
	// but at least spreadLeast apart.
	spreadTicks = 50
	spreadLeast = 20 * time.Millisecond
)

// A Spread has samples of what each sender had sent.
type Spread struct {
	at   []time.Duration
	sent [][]float64 // bytes so far, by time and sender
}

// SpreadEvery is the interval of the samples.
func (s *Spec) SpreadEvery() time.Duration { return max(s.half()/spreadTicks, spreadLeast) }

// Add adds a sample.
func (p *Spread) Add(at time.Duration, sent []float64) {
	p.at = append(p.at, at)
	p.sent = append(p.sent, sent)
}

// fairness returns the index of the second half of the time, because the senders need time
// to find their shares. ok is false if there are too few samples.
func (p *Spread) fairness() (j float64, ok bool) {
	n := len(p.at)
	if n < 4 {
		return 0, false
	}
	x := make([]float64, len(p.sent[0]))
	for i := range x {
		x[i] = p.sent[n-1][i] - p.sent[(n-1)/2][i]
	}
	j = Jain(x)
	return j, !math.IsNaN(j)
}

// converged returns the time since which, in each interval, each sender was within the
// given part of its share, the mean of all. ok is false if a sender was outside in the last
// interval.
func (p *Spread) converged(within float64) (at time.Duration, ok bool) {
	for k := len(p.at) - 1; k > 0; k-- {
		sum := 0.0
		for i := range p.sent[k] {
			sum += p.sent[k][i] - p.sent[k-1][i]
		}
		share := sum / float64(len(p.sent[k]))
		for i := range p.sent[k] {
			if d := p.sent[k][i] - p.sent[k-1][i]; share == 0 || math.Abs(d-share) > within*share {
				return at, ok
			}
		}
		at, ok = p.at[k-1], true
	}
	return at, ok
}
