package badnet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func newLine(f Faults) *Line { return &Line{Faults: f, Rand: One(rand.New(rand.NewPCG(1, 2)))} }

// about checks that got out of n is what probability p gives, within five standard
// deviations, which one test in two million exceeds.
func about(t *testing.T, name string, got, n int, p float64) {
	t.Helper()
	if want, sd := p*float64(n), math.Sqrt(p*(1-p)*float64(n)); math.Abs(float64(got)-want) > 5*sd {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", name, got, n, want, 5*sd)
	}
}

// Each knob affects its share of the datagrams, and nothing else happens.
func TestShares(t *testing.T) {
	const n = 100_000
	data := Datagram{Bytes: 50, ECT: true, Trimmable: true}
	for name, c := range map[string]struct {
		f    Faults
		is   func(Fate) bool
		want float64
	}{
		"perfect":    {Faults{}, func(Fate) bool { return false }, 0},
		"loss":       {Faults{Loss: 0.01}, func(f Fate) bool { return f.Lost == ByChance }, 0.01},
		"all":        {Faults{Loss: 1}, func(f Fate) bool { return f.Lost == ByChance }, 1},
		"corrupt":    {Faults{Corrupt: 0.2}, func(f Fate) bool { return len(f.Flips) == 1 }, 0.2},
		"ce":         {Faults{CE: 0.3}, func(f Fate) bool { return f.Marked }, 0.3},
		"trim":       {Faults{Trim: 0.3}, func(f Fate) bool { return f.Trimmed }, 0.3},
		"duplicate":  {Faults{Duplicate: 0.1}, func(f Fate) bool { return f.Copies == 1 }, 0.1},
		"reorder":    {Faults{Reorder: 0.1, ReorderBy: Count{N: 7}}, func(f Fate) bool { return f.By == 7 }, 0.1},
		"delay":      {Faults{Delay: ms}, func(f Fate) bool { return f.Delay == ms }, 1},
		"late":       {Faults{Delay: ms, Late: 0.1}, func(f Fate) bool { return f.Delay == ms }, 0.1},
		"late, held": {Faults{Delay: ms, Late: 0.1, Reorder: 1}, func(f Fate) bool { return f.By == 1 && f.Delay == 0 }, 1},
		"burst":      {Faults{Burst: Burst{Enter: 0.25, Leave: 0.75}}, func(f Fate) bool { return f.Lost == InBurst }, 0.25},
	} {
		l, got := newLine(c.f), 0
		for range n {
			switch f := l.Fate(0, data); {
			case c.is(f):
				got++
			case f.Lost != Passed || f.Flips != nil || f.Marked || f.Trimmed || f.Copies+f.By > 0 || f.Delay > 0:
				t.Fatalf("%s: %+v", name, f)
			}
		}
		about(t, name, got, n, c.want)
	}
	l := newLine(Faults{Corrupt: 1, CE: 1, Trim: 1, Duplicate: 1, Reorder: 1, Delay: ms})
	if f := l.Fate(0, Datagram{NoCopy: true, NoHold: true}); f.Flips != nil || f.Marked || f.Trimmed || f.Copies+f.By > 0 || f.Delay != ms {
		t.Errorf("what could not be happened: %+v", f)
	}
}

// Bursts have the mean length 1/Leave, the gaps between them 1/Enter.
func TestBurst(t *testing.T) {
	const n = 200_000
	l := newLine(Faults{Burst: Burst{Enter: 0.01, Leave: 0.2}})
	lost, bursts, before := 0, 0, Passed
	for range n {
		why := l.Lost(0)
		if why != Passed {
			lost++
			if before == Passed {
				bursts++
			}
		}
		before = why
	}
	about(t, "bursts that end", bursts, lost, 0.2)
	about(t, "bursts that begin", bursts, n-lost, 0.01)
	l, lost = newLine(Faults{Loss: 0.1, Burst: Burst{Enter: 1, Leave: 1e-9, Loss: 0.3}}), 0
	for range n {
		if l.Lost(0) == InBurst {
			lost++
		}
	}
	about(t, "lost in the bad state", lost, n, 0.9*0.3)
}

func TestBurstMax(t *testing.T) {
	l := newLine(Faults{Burst: Burst{Enter: 1, Leave: 0.001, Max: 10 * ms}})
	for i := range 100 {
		// 0 to 9 are lost, 10 ends the burst, 11 begins the next one.
		if why := l.Lost(time.Duration(i) * ms); (why == Passed) != (i%11 == 10) {
			t.Fatalf("%d: %v", i, why)
		}
	}
}

func TestFlips(t *testing.T) {
	const n = 20_000
	for _, c := range []struct {
		bits           Count
		bytes          int
		least, most    int // bits that differ
		mean, variance float64
	}{
		{Count{}, 100, 1, 1, 1, 0},
		{Count{N: 64}, 100, 64, 64, 64, 0},
		{Count{N: 64}, 1, 8, 8, 8, 0},
		{Count{UpTo: true}, 1, 1, 1, 1, 0},
		{Count{N: 20, UpTo: true}, 1 << 20, 1, 20, 10.5, 33.25}, // hardly a bit is drawn twice
		{Count{N: 2, UpTo: true}, 1, 0, 2, 1.375, 0.36},         // of two, the second undoes the first one time in 8
	} {
		l, sum, where := newLine(Faults{Corrupt: 1, CorruptBits: c.bits}), 0, 0
		for range n {
			flips := l.Flips(c.bytes)
			b := slices.Sorted(slices.Values(flips))
			if len(slices.Compact(b)) != len(flips) || len(flips) < c.least || len(flips) > c.most {
				t.Fatalf("%+v of %d bytes: %v", c.bits, c.bytes, flips)
			}
			sum += len(flips)
			for _, bit := range flips {
				if bit >= 4*c.bytes {
					where++
				}
			}
		}
		if mean := float64(sum) / n; math.Abs(mean-c.mean) > 5*math.Sqrt(c.variance/n) {
			t.Errorf("%+v: %v bits on average, want %v", c.bits, mean, c.mean)
		}
		about(t, fmt.Sprintf("%+v: of the second half", c.bits), where, sum, 0.5)
	}
	b := []byte{0, 0xff}
	if Flip(b, []int{0, 7, 15}); b[0] != 0x81 || b[1] != 0x7f {
		t.Errorf("flipped to %x", b)
	}
}

// Counts that are UpTo, and times, are uniform.
func TestUniform(t *testing.T) {
	const n, of = 100_000, 10
	l := newLine(Faults{
		Duplicate: 1, Copies: Count{of, true}, DuplicateLate: of * ms, ReorderBy: Count{of, true}, Delay: ms, Jitter: of * ms,
	})
	for name, draw := range map[string]func() int{
		"copies": func() int { return l.Copied() - 1 }, "by": func() int { return l.By() - 1 },
		"copy late": func() int { return int(l.CopyLate() / ms) }, "jitter": func() int { return int((l.Delayed() - ms) / ms) },
	} {
		var got [of]int
		for range n {
			got[draw()]++
		}
		for i := range got {
			about(t, fmt.Sprint(name, i), got[i], n, 1./of)
		}
	}
}

// A kind of decision with its own stream decides the same whatever the others do. No kind
// draws if there is no choice.
func TestStreams(t *testing.T) {
	lost := func(f Faults) (out []int) {
		var streams [NumDraws]*rand.Rand
		for i := range streams {
			streams[i] = rand.New(rand.NewPCG(3, uint64(i)))
		}
		f.Loss = 0.3
		l := Line{Faults: f, Rand: func(d Draw) *rand.Rand { return streams[d] }}
		for i := range 1000 {
			if l.Fate(0, Datagram{Bytes: 9, ECT: true}).Lost == ByChance {
				out = append(out, i)
			}
		}
		return out
	}
	all := Faults{Burst: Burst{Enter: 0.1, Leave: 0.2}, Corrupt: 0.3, CE: 0.1, Duplicate: 0.3, Reorder: 0.3, Jitter: ms, Delay: ms, Late: 0.5}
	if !slices.Equal(lost(Faults{}), lost(all)) {
		t.Error("other faults change which datagrams Loss takes")
	}
	var drawn counter
	l := Line{Faults: Faults{CE: 1, Duplicate: 1, Reorder: 1, Burst: Burst{Leave: 1}}, Rand: One(rand.New(&drawn))}
	if f := l.Fate(0, Datagram{Bytes: 1, ECT: true, Trimmable: true}); !f.Marked || f.Copies != 1 || f.By != 1 || drawn != 0 {
		t.Errorf("%+v, %d numbers drawn", f, drawn)
	}
}

// A counter counts the draws.
type counter int

func (c *counter) Uint64() uint64 { *c++; return 0 }

func TestCheck(t *testing.T) {
	for want, f := range map[string]Faults{
		"<nil>":                         {Loss: 1, Burst: Burst{Enter: 1, Leave: 1}},
		"loss: 2 is no share":           {Loss: 2},
		"corrupt: NaN is no share":      {Corrupt: math.NaN()},
		"burst: loss: -1 is no share":   {Burst: Burst{Enter: 1, Leave: 1, Loss: -1}},
		"burst: leave: 0: it never end": {Burst: Burst{Enter: 1}},
		"a time is negative":            {Jitter: -1},
	} {
		if err := fmt.Sprint(f.Check()); !strings.HasPrefix(err, want) {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
}

func TestHeld(t *testing.T) {
	var h Held[string]
	a, _, c := h.Hold("a", 2, 5*ms), h.Hold("b", 1, 6*ms), h.Hold("c", 2, 7*ms)
	if got := h.Passed(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v after one has passed", got)
	}
	if at, ok := h.Until(); at != 5*ms || !ok {
		t.Errorf("the oldest goes at %v, %v", at, ok)
	}
	d := h.Hold("d", 1, 8*ms)
	if p, ok := h.Take(c); p != "c" || !ok {
		t.Errorf("took %q, %v", p, ok)
	}
	if got := h.Passed(); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("%v after two have passed", got)
	}
	for _, gone := range []Ticket{a, c, d} {
		if p, ok := h.Take(gone); ok {
			t.Errorf("%q was held twice", p)
		}
	}
	h.Hold("e", 1, 0)
	h.Hold("f", 1, 0)
	for _, want := range []string{"e", "f", ""} {
		if p, ok := h.Oldest(); p != want || ok != (want != "") {
			t.Errorf("the oldest is %q, want %q", p, want)
		}
	}
	if _, ok := h.Until(); ok || h.Len() != 0 {
		t.Errorf("%d are held", h.Len())
	}
}
