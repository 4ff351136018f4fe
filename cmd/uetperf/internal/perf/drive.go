package perf

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
)

// drive runs the legs until they end.
func (r *clientRun) drive(ctx context.Context, hooks Hooks) error {
	var recent traffic.Recent
	if hooks.Watch != nil {
		for _, l := range r.legs {
			l.Watch(&recent)
		}
	}
	done := r.start()
	begin := time.Now()
	var t tickers
	defer t.stop()
	interval, stalls := t.every(hooks.Every, hooks.Interval != nil || hooks.Watch != nil), t.every(stallEvery, true)
	samples, looks := t.every(r.spec.Sample, true), t.every(r.spec.SpreadEvery(), r.spec.Test == traffic.Incast)
	if samples != nil {
		defer func() { r.sample(begin, r.seen.series.end) }()
	}
	if looks != nil {
		r.look(0)
	}
	interrupt, lost := ctx.Done(), r.c.lost.is
	var late <-chan time.Time
	for {
		select {
		case <-done:
			return r.over(ctx)
		case ev := <-r.events:
			for _, m := range gather(ev, r.events, r.id, len(r.legs), func(ev legEvent) { r.abort(ev.err) }) {
				_ = r.c.send(m)
			}
		case m := <-r.c.in:
			r.told(m)
		case <-lost:
			lost = nil
			r.abort(r.c.lostError())
		case <-interrupt:
			interrupt = nil
			for _, l := range r.legs {
				l.Stop.Store(true)
				l.wake()
			}
			_ = r.c.send(&message{Type: mStop, Run: r.id})
			late = time.After(grace)
		case <-late:
			r.abort(ctx.Err())
		case <-samples:
			r.sample(begin, r.seen.series.add)
		case <-looks:
			if at := time.Since(begin); r.legs[0].Group.Round() == 0 && at < r.spec.Time/2 {
				r.look(at)
			}
		case <-stalls:
			r.seen.stall.look()
		case <-interval:
			if hooks.Watch != nil {
				n, window, rtt := r.total()
				p50, p99 := recent.Take()
				hooks.Watch(Watched{time.Since(begin), n.msgs, window, rtt, p50, p99, n.rtx, n.spurious, n.ecn, n.drops})
				continue
			}
			hooks.Interval(r.live(), time.Since(begin))
		}
	}
}

// start runs each leg in a goroutine. It closes the channel when all have ended.
func (r *clientRun) start() <-chan struct{} {
	r.seen.stall.legs = r.legs
	for i, l := range r.legs {
		if r.crew != nil {
			r.crew.join(l)
			continue
		}
		r.wg.Go(func() { r.ended(i, l.run()) })
	}
	done := make(chan struct{})
	go func() {
		r.wg.Wait()
		close(done)
	}()
	return done
}

// ended tells of the error with which a leg has ended.
func (r *clientRun) ended(leg int, err error) {
	if err != nil && err != traffic.ErrAborted {
		r.events <- legEvent{leg: leg, kind: mFail, err: err}
	}
}

// over reads the last events of the legs and returns the error of the run.
func (r *clientRun) over(ctx context.Context) error {
	for {
		select {
		case ev := <-r.events:
			if ev.err != nil && r.err == nil {
				r.err = ev.err
			}
		default:
			if r.err == nil {
				r.err = ctx.Err()
			}
			return r.err
		}
	}
}

// abort ends the legs because of err. The first error of a run is kept.
func (r *clientRun) abort(err error) {
	if r.err == nil {
		r.err = err
	}
	for _, l := range r.legs {
		l.abort()
	}
}

// told handles a message of the server about a leg.
func (r *clientRun) told(m *message) {
	if m.Run != r.id && m.Run != 0 {
		return
	}
	if m.Type == mFail || m.Type == mRefuse {
		if errors.Is(r.err, fi.ESHUTDOWN) { // the server says what ended its connection
			r.err = nil
		}
		r.abort(atServer(m))
		return
	}
	m.each(func(leg int, n int64) {
		if leg < 0 || leg >= len(r.legs) {
			return
		}
		l := r.legs[leg]
		switch m.Type {
		case mSent:
			l.PeerSent.Store(n)
			l.wake()
		case mDone:
			l.Over.Store(true)
			l.wake()
		}
	})
}

// sample passes a sample to a method of the series.
func (r *clientRun) sample(begin time.Time, to func(time.Duration, total, int, time.Duration)) {
	t, cwnd, rtt := r.total()
	to(time.Since(begin), t, cwnd, rtt)
}

// tickers are the tickers of a run.
type tickers []*time.Ticker

// every returns a channel that ticks, or nil if it is not wanted or d is 0.
func (t *tickers) every(d time.Duration, wanted bool) <-chan time.Time {
	if !wanted || d <= 0 {
		return nil
	}
	*t = append(*t, time.NewTicker(d))
	return (*t)[len(*t)-1].C
}

func (t *tickers) stop() {
	for _, x := range *t {
		x.Stop()
	}
}

// look samples what each sender of an incast has sent.
func (r *clientRun) look(at time.Duration) {
	sent := make([]float64, len(r.legs))
	for i, l := range r.legs {
		sent[i] = float64(l.end.ep.Stats().TxBytes)
	}
	r.seen.spread.Add(at, sent)
}

// total returns the counts so far, and window and round-trip time of the leg with most in
// flight.
func (r *clientRun) total() (t total, cwnd int, rtt time.Duration) {
	t, cwnd, rtt = sample(slices.Values(r.legs))
	t.msgs = r.live()
	t.bytes = t.msgs * r.spec.Size
	return t, cwnd, rtt
}

// live is the number of messages so far.
func (r *clientRun) live() (n int64) {
	for _, l := range r.legs {
		n += l.Live.Load()
	}
	return n
}

// sample adds up the counters of legs. cwnd and rtt are those of the leg with most in
// flight.
func sample(legs iter.Seq[*leg]) (t total, cwnd int, rtt time.Duration) {
	most := -1
	for l := range legs {
		if !l.counts() {
			continue
		}
		c := l.counters()
		t.count(&c)
		t.spurious += l.end.spurious()
		if g := l.end.ep.Load(); g.Window > 0 && g.InFlight > most {
			most, cwnd, rtt = g.InFlight, g.Window, g.RTT
		}
	}
	return t, cwnd, rtt
}
