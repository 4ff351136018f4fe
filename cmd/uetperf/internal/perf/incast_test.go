package perf

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
)

func incasting(senders int, size int64, d time.Duration) Spec {
	s := base(Incast, TSend, size)
	s.Iters, s.Time, s.Parallel, s.Window, s.Within, s.Warmup = 0, d, senders, 2, 0.5, 4
	return s
}

func TestIncast(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, sec := range []string{Off, PSK} {
		for _, mode := range []string{"rud", "rod"} {
			for _, progress := range []string{"auto", "manual"} {
				t.Run(strings.Join([]string{sec, mode, progress}, "/"), func(t *testing.T) {
					c := dial(t, addr, ClientConfig{EP: RDM, Sec: sec, Keys: mine[sec]})
					s := incasting(4, 20000, 400*time.Millisecond)
					s.Mode, s.Progress = mode, progress
					r := run(t, c, s).Run
					if len(r.Streams) != 4 || r.Incast == nil || r.Incast.Rounds < 2 || r.Incast.Round == nil || r.Incast.Round.P50 <= 0 {
						t.Fatalf("%+v, %+v", r, r.Incast)
					}
					sum := int64(0)
					for _, st := range r.Streams {
						if sum += st.Msgs; st.Rtx == nil || st.ECN == nil || st.Trimmed == nil || st.Msgs == 0 {
							t.Errorf("%+v", st)
						}
					}
					// What is measured are the streams; each round adds a block of each.
					least := sum + 4*r.Incast.Rounds
					if d := r.DataCheck; d.OK < least || d.Wrong != 0 || *r.Lost != 0 || sum != r.Msgs {
						t.Errorf("data check %+v, want at least %d; %d of streams; lost %d", d, least, sum, *r.Lost)
					}
					if j := r.Incast.Jain; j == nil || *j < 0.25 || *j > 1 {
						t.Errorf("jain %v", j)
					}
				})
			}
		}
	}
}

// One receiver has all senders, and tells their messages apart: bursts that are lost
// and repeated do not change that.
func TestIncastLossy(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{Impair: &relay.Faults{Loss: 0.02, Reorder: 0.02, Duplicate: 0.02, Corrupt: 0.01, Seed: 5}})
	r := run(t, c, incasting(6, 30000, 600*time.Millisecond)).Run
	rtx := uint64(0)
	for _, st := range r.Streams {
		rtx += *st.Rtx
	}
	if r.DataCheck.Wrong != 0 || *r.Lost != 0 || rtx == 0 || r.DataCheck.OK == 0 || r.Transport.Rtx() != rtx {
		t.Errorf("%+v, lost %d, %d sent again, of senders %d", r.DataCheck, *r.Lost, r.Transport.Rtx(), rtx)
	}
}

func TestIncastInterrupted(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, half := range []time.Duration{time.Hour, 50 * time.Millisecond} { // in the streams, in the rounds
		ctx, cancel := context.WithCancel(context.Background())
		s := incasting(3, 10000, 2*half)
		if half < time.Hour {
			s.Time = time.Hour
		}
		begin := time.Now()
		hooks := Hooks{Every: 20 * time.Millisecond, Interval: func(n int64, at time.Duration) {
			if n > 100 {
				cancel()
			}
		}}
		res, err := c.Run(ctx, s, hooks)
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
			continue
		}
		if r := res.Run; r.Msgs == 0 || r.DataCheck.Wrong != 0 || *r.Lost != 0 || r.PeerTransport == nil {
			t.Errorf("%+v", r)
		}
		if d := time.Since(begin); d > grace+time.Second {
			t.Errorf("it took %v", d)
		}
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{[]float64{5, 5, 5}, 1}, {[]float64{9, 0, 0}, 1. / 3}, {[]float64{1, 3}, 0.8}} {
		if got := jain(c.x); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
	if got := jain([]float64{0, 0}); !math.IsNaN(got) {
		t.Errorf("nobody got anything: %v", got)
	}
}

// Senders have converged from the first interval after which none left its share.
func TestSpread(t *testing.T) {
	mk := func(rates ...[2]float64) (p spread) {
		sum := [2]float64{}
		p.add(0, []float64{0, 0})
		for i, r := range rates {
			sum[0] += r[0]
			sum[1] += r[1]
			p.add(time.Duration(i+1)*time.Second, []float64{sum[0], sum[1]})
		}
		return p
	}
	for _, c := range []struct {
		name  string
		rates [][2]float64
		at    time.Duration
		ok    bool
		jain  float64
	}{
		{"equal", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {10, 10}}, 0, true, 1},
		{"late", [][2]float64{{19, 1}, {15, 5}, {11, 9}, {9, 11}, {10, 10}}, 2 * time.Second, true, 1},
		{"left again", [][2]float64{{10, 10}, {10, 10}, {19, 1}, {10, 10}}, 3 * time.Second, true, 0.832},
		{"never", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {19, 1}}, 0, false, 0.832},
		{"silence", [][2]float64{{10, 10}, {10, 10}, {10, 10}, {0, 0}}, 0, false, 1},
	} {
		p := mk(c.rates...)
		if at, ok := p.converged(0.25); at != c.at || ok != c.ok {
			t.Errorf("%s: converged %v at %v, want %v at %v", c.name, ok, at, c.ok, c.at)
		}
		if j, ok := p.fairness(); !ok || math.Abs(j-c.jain) > 0.01 {
			t.Errorf("%s: fairness %.3f, want %.3f", c.name, j, c.jain)
		}
	}
	if _, ok := (&spread{}).fairness(); ok {
		t.Error("nothing is fair")
	}
	if _, ok := (&spread{}).converged(0.25); ok {
		t.Error("nothing has converged")
	}
}

func TestRaceEndsForAll(t *testing.T) {
	// Whenever one of the legs is told to stop, all end behind the same round.
	const legs = 4
	for range 2000 {
		r := newRace(legs)
		r.wake = func() {}
		var rounds [legs]int64
		var all sync.WaitGroup
		for i := range legs {
			all.Go(func() {
				for round := int64(0); ; round++ {
					r.arrive(time.Hour, i == 0 && round == 3)
					for open, over := false, false; !open; runtime.Gosched() {
						if open, over = r.next(round); over {
							rounds[i] = round
							return
						}
					}
				}
			})
		}
		soon(t, func() { all.Wait() })
		for i, n := range rounds {
			if n != rounds[0] || n != 3 {
				t.Fatalf("leg %d ends behind round %d, leg 0 behind %d, want 3", i, n, rounds[0])
			}
		}
	}
}

// soon fails the test if f does not return.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a leg waits for the others")
	}
}
