package perf

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/fi"
)

// An incast is many senders, each with an endpoint of its own at the client, and one
// receiver, an endpoint at the server. It has two halves:
//
//  1. Streams: each sender keeps a window of blocks under way. What the senders get
//     says how fair they share and when they had found their shares.
//  2. Rounds: all send one block at once, and the next round begins when all have
//     arrived. The time of a round is that of its slowest block: who waits for all,
//     as a job does for its ranks, waits that long.

// A race is what the legs of an incast share.
type race struct {
	n     int
	round atomic.Int64 // that is open; 0: none yet
	left  atomic.Int64 // legs that are not through with it
	stop  atomic.Bool  // a leg was told to
	over  atomic.Bool  // no round follows; true before round changes for the last time
	wake  func()       // all legs

	mu    sync.Mutex // guards what follows; held by the last leg of a round
	end   time.Time  // of the rounds
	begin time.Time  // of the open round
	hist  *histogram
}

func newRace(n int) *race {
	r := &race{n: n, hist: newHistogram()}
	r.left.Store(int64(n))
	return r
}

// arrive says that a leg is through with a round. The last one opens the next.
func (r *race) arrive(d time.Duration, stop bool) {
	if stop {
		r.stop.Store(true)
	}
	if r.left.Add(-1) > 0 {
		return
	}
	r.mu.Lock()
	now := time.Now()
	if r.round.Load() > 0 {
		r.hist.record(now.Sub(r.begin), 1)
	} else {
		r.end = now.Add(d)
	}
	// Only here: a leg that saw the end in the middle of a round would leave the others
	// waiting for it.
	if r.stop.Load() || !now.Before(r.end) {
		r.over.Store(true)
	}
	r.begin = now
	r.mu.Unlock()
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

// rounds is the distribution of the time of a round, nil if there was none.
func (r *race) rounds() (*record.Latency, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hist.count() == 0 {
		return nil, 0
	}
	l := r.hist.latency()
	l.RTT = true
	return l, r.hist.count()
}

// half is how long each half of an incast is.
func (s *Spec) half() time.Duration { return s.Time / 2 }

// incast is a sender.
func (l *leg) incast() error {
	s := l.spec
	var (
		posted, done int64
		last         time.Duration
		m            = l.meter(&l.res.Tx)
		free         = make([]*slot, 0, len(l.tx))
		round        int64
		streaming    = true
		arrived      bool
	)
	for i := range l.tx {
		free = append(free, &l.tx[i])
	}
	finish := func() {
		m.end(last, done)
		l.res.Sent = posted
	}
	post := func() (bool, error) {
		b := free[len(free)-1]
		if l.check != nil {
			l.pat.Fill(b.buf, l.number(l.index, posted))
		}
		err := l.send(b.buf, posted, b)
		if err == fi.EAGAIN {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("post: %w", err)
		}
		free = free[:len(free)-1]
		posted++
		return true, nil
	}
	for {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		now := l.since()
		if !m.on && (done >= s.Warmup || now >= s.half()) {
			m.start(now, done)
		}
		if streaming && (l.stop.Load() || m.on && now-m.from >= s.half()) {
			streaming = false
		}
		var err error
		open, over := l.race.next(round)
		switch {
		case streaming:
			for ok := true; ok && err == nil && len(free) > 0; {
				ok, err = post()
			}
		case posted != done:
		case !arrived: // the streams are drained, or the round is over for this leg
			arrived = true
			if round == 0 {
				m.end(last, done)
			}
			l.race.arrive(s.half(), l.stop.Load())
			continue
		case over:
			finish()
			l.tell()
			return l.linger()
		case open:
			var ok bool
			if ok, err = post(); ok {
				round++
				arrived = false
			}
		}
		if err != nil {
			finish()
			return err
		}
		n, err := l.p.read(len(free) == 0 || !streaming)
		if err != nil {
			finish()
			return err
		}
		for i := range n {
			done++
			free = append(free, l.p.ents[i].Context.(*slot))
		}
		if n > 0 {
			last = l.since()
		}
		l.live.Store(done)
	}
}

// number makes the contents of message seq of a sender.
func (l *leg) number(sender int, seq int64) uint64 { return uint64(sender)<<senderShift | uint64(seq) }

// A sink is the receiver of an incast.
type sink struct {
	got     []int64
	sent    []atomic.Int64 // what each sender says it sent, -1: not yet
	ledgers []*pattern.Ledger
}

func newSink(s *Spec) *sink {
	k := &sink{got: make([]int64, s.Parallel), sent: make([]atomic.Int64, s.Parallel)}
	for i := range k.sent {
		k.sent[i].Store(-1)
		if s.Check {
			k.ledgers = append(k.ledgers, pattern.NewLedger(4*s.Window+1024))
		}
	}
	return k
}

// whole reports whether all has come.
func (k *sink) whole() bool {
	for i := range k.got {
		if n := k.sent[i].Load(); n < 0 || k.got[i] < n {
			return false
		}
	}
	return true
}

// collect is the receiver's loop.
func (l *leg) collect() error {
	k := l.sink
	var got int64
	m := l.meter(&l.res.Rx)
	said := false
	finish := func() {
		m.end(l.since(), got)
		l.res.Received = got
		if l.check != nil && said {
			for i, g := range k.ledgers {
				l.check.Wrong += int64(g.Gaps(uint64(k.sent[i].Load())))
			}
		}
	}
	for !l.over.Load() {
		if l.aborted.Load() {
			finish()
			return errAborted
		}
		n, err := l.p.read(true)
		for i := 0; i < n && err == nil; i++ {
			e := &l.p.ents[i]
			b := e.Context.(*slot)
			sender := int(e.Tag & tagSender >> senderShift)
			got++
			switch {
			case sender >= len(k.got):
				if l.check != nil {
					l.check.Wrong++
				}
			default:
				k.got[sender]++
				if l.check != nil {
					l.verifyFrom(sender, e.Len, int64(e.Tag&senderSeq), b)
				}
			}
			err = l.recv(b)
		}
		if err == nil {
			err = l.recvAgain()
		}
		if err != nil {
			finish()
			return err
		}
		if n > 0 && !m.on {
			m.start(l.since(), got)
		}
		l.live.Store(got)
		if !said && k.whole() {
			said = true
			l.complete()
		}
	}
	finish()
	return nil
}

// verifyFrom checks a message of a sender.
func (l *leg) verifyFrom(sender, n int, seq int64, s *slot) {
	wrong := 0
	if want := int(l.spec.Size); n != want {
		wrong = max(n, want) - min(n, want)
	}
	wrong += l.pat.Verify(s.buf[:min(n, len(s.buf))], l.number(sender, seq))
	l.check.WrongBytes += int64(wrong)
	switch dup := !l.sink.ledgers[sender].Take(uint64(seq)); {
	case dup:
		l.check.Dup++
		l.check.Wrong++
	case wrong > 0:
		l.check.Wrong++
	default:
		l.check.OK++
	}
}

// results are those of the legs of the client: what the receiver found is told with
// the first, how much came of each sender with each.
func (k *sink) results(all LegResult) []LegResult {
	out := make([]LegResult, len(k.got))
	out[0] = all
	for i := range out {
		out[i].Received = k.got[i]
	}
	return out
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

// A spread is what each sender had sent at times.
type spread struct {
	at   []time.Duration
	sent [][]float64 // by time and sender, so far
}

func (s *Spec) spreadEvery() time.Duration { return max(s.half()/spreadTicks, spreadLeast) }

func (p *spread) add(at time.Duration, sent []float64) {
	p.at = append(p.at, at)
	p.sent = append(p.sent, sent)
}

// fairness is the index of the second half of the time, when the senders had time
// to find their shares; ok is false if there is no such thing.
func (p *spread) fairness() (j float64, ok bool) {
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
func (p *spread) converged(within float64) (at time.Duration, ok bool) {
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
