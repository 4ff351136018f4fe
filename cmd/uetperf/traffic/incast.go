package traffic

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// An incast is many senders, each with an endpoint of its own at the client, and one
// receiver, an endpoint at the server. It has two halves:
//
//  1. Streams: each sender keeps a window of blocks under way. What the senders get
//     says how fair they share and when they had found their shares.
//  2. Rounds: all send one block at once, and the next round begins when all have
//     arrived. The time of a round is that of its slowest block: who waits for all,
//     as a job does for its ranks, waits that long.

// A race is what the senders of an incast share.
type race struct {
	n     int
	round atomic.Int64 // that is open; 0: none yet
	left  atomic.Int64 // legs that are not through with it
	stop  atomic.Bool  // a leg was told to
	over  atomic.Bool  // no round follows; true before round changes for the last time
	wake  func()       // all legs

	// Only the last leg of a round has what follows; left passes it on.

	end   time.Duration // of the rounds
	begin time.Duration // of the open round
	hist  *histogram
}

func newRace(n int, wake func()) *race {
	r := &race{n: n, wake: wake, hist: newHistogram()}
	r.left.Store(int64(n))
	return r
}

// arrive says that a leg is through with a round at a time. The last one opens the next. The
// rounds are to take d.
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
	// Only here: a leg that saw the end in the middle of a round would leave the others
	// waiting for it.
	if r.stop.Load() || now >= r.end {
		r.over.Store(true)
	}
	r.begin = now
	r.left.Store(int64(r.n))
	r.round.Add(1)
	r.wake()
}

// next reports whether the round after this one is open, and whether that is the end of
// them.
func (r *race) next(round int64) (open, over bool) {
	open = r.round.Load() > round // first: over is written before it
	return open, open && r.over.Load()
}

// rounds is the distribution of the time of a round, nil if there was none. All legs have ended.
func (r *race) rounds() (*record.Latency, int64) {
	if r.hist.count() == 0 {
		return nil, 0
	}
	l := r.hist.latency()
	l.RTT = true
	return l, r.hist.count()
}

// half is how long each half of an incast is.
func (s *Spec) half() time.Duration { return s.Time / 2 }

// The number of a message of an incast has its sender above the place of the message.
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
	at           int64 // round
	streaming    bool
	arrived      bool
}

func newSender(l *Leg) *sender {
	return &sender{Leg: l, race: l.Group.race, m: l.meter(&l.Res.Tx), ready: l.free(), streaming: true}
}

// number is that of a message.
func (l *Leg) number(seq int64) int64 { return int64(l.Index)<<senderShift | seq&senderSeq }

// post posts a block and reports whether there was room.
func (t *sender) post() (bool, error) {
	b := t.ready[len(t.ready)-1]
	n := t.number(t.posted)
	t.fill(b.Buf, uint64(n))
	ok, err := t.Conn.Send(b.Buf, n, b)
	if err != nil {
		return false, postError(err)
	}
	if ok {
		t.ready = t.ready[:len(t.ready)-1]
		t.posted++
	}
	return ok, nil
}

// Post keeps the window full while the streams go on, and sends a block a round after that.
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
	if !t.arrived { // the streams are drained, or the round is over for this leg
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
	got     []int64 // of each sender
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

// whole reports whether all has come.
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
	t.ledgers = nil // it may be called again
}

// Jain is the fairness index of shares: 1 if all are equal, 1/n if one has all.
func jain(x []float64) float64 {
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
	// spreadTicks is how often the senders of an incast are looked at while they
	// stream, but not more often than spreadLeast.
	spreadTicks = 50
	spreadLeast = 20 * time.Millisecond
)

// A Spread is what each sender had sent at times.
type Spread struct {
	at   []time.Duration
	sent [][]float64 // by time and sender, so far
}

// SpreadEvery is how often the senders are looked at.
func (s *Spec) SpreadEvery() time.Duration { return max(s.half()/spreadTicks, spreadLeast) }

// Add notes what each sender has sent at a time.
func (p *Spread) Add(at time.Duration, sent []float64) {
	p.at = append(p.at, at)
	p.sent = append(p.sent, sent)
}

// fairness is the index of the second half of the time, when the senders had time
// to find their shares; ok is false if there is no such thing.
func (p *Spread) fairness() (j float64, ok bool) {
	n := len(p.at)
	if n < 4 {
		return 0, false
	}
	x := make([]float64, len(p.sent[0]))
	for i := range x {
		x[i] = p.sent[n-1][i] - p.sent[(n-1)/2][i]
	}
	j = jain(x)
	return j, !math.IsNaN(j)
}

// converged is from when on each sender was within a part of its share, the mean of
// all, in each interval; ok is false if the last interval still was not.
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
