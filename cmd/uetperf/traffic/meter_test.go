package traffic

import (
	"math"
	"testing"
	"time"
)

// idle is the usage of a process that uses no processor time.
func idle() (user, sys time.Duration) { return 0, 0 }

// The processor time of the search for a peer that is gone does not count for the messages
// before.
func TestMeterLeavesWaitingOut(t *testing.T) {
	for name, c := range map[string]struct {
		present time.Duration
		used    time.Duration
	}{"at once": {time.Second, time.Second}, "after a drain": {1250 * time.Millisecond, 800 * time.Millisecond}, "two seconds later": {3 * time.Second, 0}} {
		var got Measure
		m := meter{m: &got, clock: func() time.Duration { return c.present }, usage: idle}
		m.start(0, 10)
		m.user -= time.Second
		m.end(time.Second, 110)
		if got.Msgs != 100 || got.Duration != time.Second || math.Abs(float64(got.User+got.Sys-c.used)) > 1e8 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// If messages complete in one batch with the last of the warm-up, those after the warm-up
// count, with the time that they took.
func TestMeterStartsWithinABatch(t *testing.T) {
	type at = time.Duration
	for name, c := range map[string]struct {
		iters       int64
		before, now at
		had, done   int64
		from        at
		base        int64
		late        at
	}{
		"all at once":        {10, 100, 200, 0, 20, 150, 10, 50},
		"at its end":         {10, 100, 200, 4, 10, 200, 10, 0},
		"the whole batch":    {10, 100, 200, 9, 12, 133, 10, 67},
		"a first batch":      {10, 0, 200, 0, 20, 100, 10, 100},
		"without a warm-up":  {10, 100, 200, 0, 10, 100, 0, 100},
		"a test that has -t": {0, 100, 200, 0, 20, 200, 20, 0},
	} {
		m := meter{m: new(Measure), clock: func() time.Duration { return c.now }, usage: idle}
		s := Spec{Iters: c.iters, Warmup: 10}
		if name == "without a warm-up" {
			s.Warmup = 0
		}
		m.startWithin(&s, c.before, c.now, c.had, c.done)
		if !m.on || m.from != c.from || m.base != c.base || m.late != c.late {
			t.Errorf("%s: from %d, base %d, late %d", name, m.from, m.base, m.late)
		}
	}
	// The usage before the clock was read is not known.
	got := Measure{}
	m := meter{m: &got, clock: func() time.Duration { return 200 }, usage: idle}
	m.startWithin(&Spec{Iters: 10, Warmup: 10}, 100, 200, 0, 20)
	m.user -= time.Second
	if m.end(200, 20); got.Msgs != 10 || got.Duration != 50 || got.User != 0 {
		t.Errorf("%+v", got)
	}
}

// Streams that measure one after another do not add up to more than the path carries.
func TestStreamsOneAfterTheOther(t *testing.T) {
	ms := time.Millisecond
	stream := func(begin, took time.Duration) LegResult {
		m := Measure{Msgs: 100, Begin: begin, Duration: took, User: took / 2}
		return LegResult{Tx: m, Rx: m}
	}
	timed := func(s *Spec) { s.Iters, s.Time = 0, 10*ms }
	for name, c := range map[string]struct {
		spec  func(*Spec)
		here  []LegResult
		there []LegResult
		want  time.Duration
	}{
		"all at once":        {func(*Spec) {}, []LegResult{stream(5*ms, 10*ms), stream(5*ms, 10*ms)}, make([]LegResult, 2), 10 * ms},
		"one after another":  {func(*Spec) {}, []LegResult{stream(5*ms, 10*ms), stream(15*ms, 10*ms)}, make([]LegResult, 2), 20 * ms},
		"with a gap":         {func(*Spec) {}, []LegResult{stream(45*ms, 10*ms), stream(5*ms, 10*ms)}, make([]LegResult, 2), 50 * ms},
		"at the server":      {func(s *Spec) { s.Reverse = true }, make([]LegResult, 2), []LegResult{stream(5*ms, 10*ms), stream(15*ms, 10*ms)}, 20 * ms},
		"an older server":    {func(s *Spec) { s.Reverse = true }, make([]LegResult, 2), []LegResult{stream(0, 10*ms), stream(0, 12*ms)}, 12 * ms},
		"of both, no clock":  {func(s *Spec) { s.Bidir = true }, []LegResult{stream(5*ms, 10*ms), stream(7*ms, 10*ms)}, []LegResult{stream(time.Hour, 10*ms), stream(time.Hour, 11*ms)}, 12 * ms},
		"transactions":       {func(s *Spec) { s.Test, s.Window = RR, 1 }, []LegResult{stream(5*ms, 10*ms), stream(15*ms, 10*ms)}, make([]LegResult, 2), 20 * ms},
		"intended times":     {func(s *Spec) { s.Test, s.Rate = Load, 10 }, []LegResult{stream(5*ms, 10*ms), stream(15*ms, 10*ms)}, make([]LegResult, 2), 10 * ms},
		"one measured never": {func(*Spec) {}, []LegResult{stream(5*ms, 10*ms), {}}, make([]LegResult, 2), 10 * ms},
		// Messages of other streams at its ends do not count.
		"for a time, together": {timed, []LegResult{stream(5*ms, 10*ms), stream(7*ms, 10*ms)}, make([]LegResult, 2), 10 * ms},
		"for a time, apart":    {timed, []LegResult{stream(5*ms, 10*ms), stream(15*ms, 10*ms)}, make([]LegResult, 2), 20 * ms},
		"for a time, a batch":  {timed, []LegResult{stream(5*ms, 35*ms), stream(30*ms, 10*ms)}, make([]LegResult, 2), 15_555_556},
		"for a time, reverse":  {func(s *Spec) { timed(s); s.Reverse = true }, make([]LegResult, 2), []LegResult{stream(5*ms, 10*ms), stream(6*ms, 15*ms)}, 12 * ms},
	} {
		s := base(BW, Send, 1000)
		s.Parallel = 2
		c.spec(&s)
		var legs []*Leg
		for i := range c.here {
			legs = append(legs, &Leg{Spec: &s, Res: c.here[i], hist: newHistogram()})
		}
		if got := Result(&s, legs, c.there, nil); got.DurationNS != int64(c.want) {
			t.Errorf("%s: %v, want %v", name, time.Duration(got.DurationNS), c.want)
		} else if x := got.CPU; x != nil && x.UserNS != got.DurationNS/2 {
			t.Errorf("%s: %v of %v used, want half", name, time.Duration(x.UserNS), c.want)
		}
	}
}

// Streams begin to measure when all are warm, and send until all have measured.
func TestStreamsMeasureTogether(t *testing.T) {
	s := base(BW, Send, 1000)
	s.Iters, s.Time, s.Parallel = 0, time.Second, 2
	both := newMusters(&s)
	a, b := place{muster: both.tx}, place{muster: both.tx}
	for _, step := range []struct {
		says func() bool
		want bool
	}{{a.begins, false}, {a.begins, false}, {b.begins, true}, {a.begins, true}, {b.ends, false}, {b.ends, false}, {a.ends, true}, {b.ends, true}} {
		if got := step.says(); got != step.want {
			t.Errorf("%+v", both.tx)
		}
	}
	both = newMusters(&s)
	a, b = place{muster: both.tx}, place{muster: both.tx}
	for i, step := range []struct {
		p     *place
		since time.Duration
		want  bool
	}{{&a, 9, false}, {&a, 12, false}, {&b, 9, false}, {&a, 14, false}, {&b, 11, true}, {&a, 16, true}} {
		if got := step.p.over(step.since, 10); got != step.want {
			t.Errorf("step %d: over %v", i, got)
		}
	}
	if c := (&place{muster: both.rx}); c.over(19, 10) || !c.over(20, 10) {
		t.Error("a stream that has nothing completed is not waited for twice the time")
	}
	if other := (&place{muster: both.rx}); other.begins() {
		t.Error("one direction waits for the other")
	}
	// A single stream waits for no other, and neither do streams that count messages.
	for _, change := range []func(*Spec){func(s *Spec) { s.Parallel = 1 }, func(s *Spec) { s.Iters, s.Time = 10, 0 }} {
		s := s
		change(&s)
		if p := (&place{muster: newMusters(&s).tx}); !p.begins() || !p.ends() {
			t.Errorf("%+v waits", s)
		}
	}
}
