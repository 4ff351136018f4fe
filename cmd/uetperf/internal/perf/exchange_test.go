package perf

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/uet"
)

// exchanging is a Spec of load or rr that a test changes.
func exchanging(test, op string, size, reply int64) Spec {
	s := base(test, op, size)
	s.Reply, s.Warmup = reply, 5
	if test == Load {
		s.Rate, s.Arrivals, s.Iters, s.Time = 5000, Constant, 0, 300*time.Millisecond
	}
	return s
}

func TestExchanges(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, v := range services {
		c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec]})
		for _, test := range []string{Load, RR} {
			for _, op := range []string{Send, TSend} {
				for _, mode := range []string{"rud", "rod"} {
					for _, progress := range []string{"auto", "manual"} {
						s := exchanging(test, op, 600, 9000)
						s.Mode, s.Progress, s.Parallel, s.Window = mode, progress, 2, 8
						t.Run(strings.Join([]string{v.String(), test, op, mode, progress}, "/"), func(t *testing.T) {
							r := run(t, c, s).Run
							want := r.Msgs + s.Warmup*int64(s.Parallel)
							if test == RR && r.Msgs != s.Iters*int64(s.Parallel) {
								t.Errorf("%d transactions, want %d", r.Msgs, s.Iters*int64(s.Parallel))
							}
							if test == Load && (r.Load.Offered != r.Msgs+r.Load.Unsent || r.Load.Offered < 1450 || r.Load.Offered > 1550) {
								t.Errorf("%+v, %d answered; want all of 1500", r.Load, r.Msgs)
							}
							// A request and a reply each.
							if d := r.DataCheck; d.Wrong != 0 || d.OK != 2*want || *r.Lost != 0 {
								t.Errorf("data check %+v, want %d ok; lost %d", d, 2*want, *r.Lost)
							}
							if r.Latency == nil || !r.Latency.RTT || r.Latency.P50 <= 0 {
								t.Errorf("latency %+v", r.Latency)
							}
						})
					}
				}
			}
		}
	}
}

// Intended times follow the rate and the seed, and nothing else.
func TestArrivals(t *testing.T) {
	for kind, spread := range map[string]float64{Constant: 0, Uniform: 1 / math.Sqrt(3), Poisson: 1} { // standard deviation of a gap, in gaps
		s := Spec{Rate: 4000, Parallel: 4, Arrivals: kind, Seed: 3}
		a, again, other := newArrivals(&s, 1), newArrivals(&s, 1), newArrivals(&s, 2)
		const n, gap = 100000, 1e6
		var last, squares float64
		same := 0
		for range n {
			d := a.at - last - gap
			last = a.at
			squares += d * d
			if a.next() != again.next() {
				t.Fatalf("%s: the same seed makes %v and %v", kind, a.next(), again.next())
			}
			if a.next() == other.next() {
				same++
			}
			a.step()
			again.step()
			other.step()
		}
		if rate := n / last * 1e9; math.Abs(rate-1000) > 10 {
			t.Errorf("%s: %.1f/s, want 1000", kind, rate)
		}
		if sd := math.Sqrt(squares/n) / gap; math.Abs(sd-spread) > 0.02 {
			t.Errorf("%s: gaps spread by %.3f of their mean, want %.3f", kind, sd, spread)
		}
		if same > n/100 {
			t.Errorf("%s: two streams have %d of %d times in common", kind, same, n)
		}
	}
	a := arrivals{gap: 1e6, at: 5e6}
	for end, want := range map[time.Duration]int64{4 * time.Millisecond: 0, 5*time.Millisecond + 1: 1, 10 * time.Millisecond: 5, 10*time.Millisecond + 1: 6} {
		if got := a.until(end); got != want {
			t.Errorf("%d until %v, want %d", got, end, want)
		}
	}
}

// The streams together have as many requests as the rate says, not each one more.
func TestArrivalsOfAllStreams(t *testing.T) {
	for _, c := range []struct {
		kind     string
		rate     float64
		parallel int
		time     time.Duration
		warmup   int
		want     float64
	}{
		{Constant, 10, 4, time.Second, 0, 10},
		{Constant, 10, 4, time.Second, 3, 10},
		{Constant, 1000, 64, 100 * time.Millisecond, 1, 100},
		{Constant, 3, 7, time.Second, 2, 3},
		{Constant, 3e4, 7, 10 * time.Second, 1000, 3e5},
		{Constant, 1000, 3, 10500 * time.Microsecond, 0, 11},
		{Poisson, 1000, 64, time.Second, 3, 1000},
		{Uniform, 1000, 64, time.Second, 3, 1000},
	} {
		s := Spec{Rate: c.rate, Parallel: c.parallel, Arrivals: c.kind, Seed: 3}
		n, later := 0.0, int64(0)
		for i := range c.parallel {
			a := newArrivals(&s, i)
			for range c.warmup {
				a.step()
			}
			end := a.since() + c.time
			for later += a.until(end); !a.over(end); n++ {
				a.step()
			}
		}
		allowed := 0.0
		if c.kind != Constant {
			allowed = 4 * math.Sqrt(c.want)
		} else if float64(later) != n {
			t.Errorf("%+v: %d until the end, want %v", c, later, n)
		}
		if math.Abs(n-c.want) > allowed {
			t.Errorf("%+v: %v requests", c, n)
		}
	}
	client := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := exchanging(Load, TSend, 8, 8)
	s.Rate, s.Time, s.Warmup, s.Parallel = 200, 100*time.Millisecond, 1, 16
	if l := run(t, client, s).Run.Load; l.Offered != 20 || l.OfferedPer != 200 {
		t.Errorf("%+v, want 20 in 100 ms", l)
	}
}

// An overloaded test ends in bounded time and says so; what never began is in the
// latencies, which a closed loop would not show.
func TestLoadOverloaded(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, arrivals := range []string{Constant, Poisson} {
		s := exchanging(Load, TSend, 1000, 8)
		s.Rate, s.Arrivals, s.Window, s.Warmup, s.Time = 1e8, arrivals, 32, 0, 400*time.Millisecond
		begin := time.Now()
		r := run(t, c, s).Run
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		l := r.Load
		if !l.Overloaded || l.Unsent == 0 || l.Late < l.Unsent || math.Abs(l.OfferedPer-1e8) > 1e6 || *r.MsgsPerS > 1e7 {
			t.Errorf("%s: %+v, %.0f/s", arrivals, l, *r.MsgsPerS)
		}
		// Half of the requests were meant to begin before the middle.
		if p50 := time.Duration(r.Latency.P50); p50 < s.Time/3 {
			t.Errorf("%s: p50 %v: what waited is left out", arrivals, p50)
		}
		if r.DataCheck.Wrong != 0 || *r.Lost != 0 {
			t.Errorf("%s: %+v, lost %d", arrivals, r.DataCheck, *r.Lost)
		}
	}
}

// Requests that wait for those before them have waited: 20 are meant to begin at
// almost the same time and go one at a time. Each round trip by itself would make
// latencies whose sum is the time that all took; from their intended times it is ten
// times that.
func TestLoadCountsFromIntendedTimes(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := exchanging(Load, TSend, 8, 8)
	s.Rate, s.Time, s.Window, s.Warmup = 1e6, 20*time.Microsecond, 1, 0
	for range 20 {
		r := run(t, c, s).Run
		if r.Load.Unsent > 0 {
			continue // a busy host: they were given up, which is another matter
		}
		if sum, took := r.Latency.Mean*float64(r.Msgs), float64(r.DurationNS); r.Msgs < 20 || sum < 4*took {
			t.Errorf("%d requests took %v, and their latencies are %v in all", r.Msgs, time.Duration(took), time.Duration(sum))
		}
		return
	}
	t.Skip("this host never answered 20 requests within 100 ms")
}

func TestChurn(t *testing.T) {
	theirs, mine := testKeys(t)
	for _, v := range services {
		t.Run(v.String(), func(t *testing.T) {
			addr := serve(t, ServerConfig{Keys: theirs})
			c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec]})
			for _, progress := range []string{"auto", "manual"} {
				s := exchanging(RR, TSend, 100, 50)
				s.Churn, s.Window, s.Parallel, s.Iters, s.Warmup, s.Progress = true, 1, 2, 30, 2, progress
				r := run(t, c, s).Run
				if r.Msgs != 60 || *r.Errors != 0 || *r.Lost != 0 {
					t.Errorf("%s: %d transactions, %d errors, lost %d: %s", progress, r.Msgs, *r.Errors, *r.Lost, r.LastError)
				}
				if d := r.DataCheck; d.OK != 2*64 || d.Wrong != 0 {
					t.Errorf("%s: data check %+v", progress, d)
				}
				if x := r.Churn; x == nil || x.Open.P50 <= 0 || x.Close.P50 <= 0 || r.Latency.P50 <= 0 {
					t.Errorf("%s: churn %+v", progress, x)
				}
			}
		})
	}
}

// Each transaction with churn has its own packet delivery contexts, those without
// have one pair.
func TestChurnOpensAndCloses(t *testing.T) {
	var mu sync.Mutex
	var pdcs uint64
	addr := serve(t, ServerConfig{Closed: func(ep *uet.Endpoint) {
		mu.Lock()
		defer mu.Unlock()
		pdcs += ep.Stats().PDCOpened + ep.Stats().PDCAccepted
	}})
	c := dial(t, addr, ClientConfig{})
	for _, churn := range []bool{false, true} {
		s := exchanging(RR, TSend, 100, 50)
		s.Churn, s.Window, s.Iters, s.Warmup = churn, 1, 30, 0
		run(t, c, s)
		mu.Lock()
		// Both ends open one; the server sees its own and those it accepts.
		if want := map[bool]uint64{false: 2, true: 60}[churn]; pdcs != want {
			t.Errorf("churn %v: %d contexts, want %d", churn, pdcs, want)
		}
		pdcs = 0
		mu.Unlock()
	}
}

func TestExchangesInterrupted(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, v := range services[:2] {
		c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec]})
		for name, change := range map[string]func(*Spec){
			"load": func(s *Spec) { *s = exchanging(Load, TSend, 100, 8) }, "overload": func(s *Spec) { *s = exchanging(Load, TSend, 100, 8); s.Rate = 1e8 },
			"rr": func(*Spec) {}, "churn": func(s *Spec) { s.Churn, s.Window = true, 1 },
		} {
			s := exchanging(RR, TSend, 100, 8)
			change(&s)
			s.Iters, s.Time, s.Warmup = 0, time.Hour, 0
			ctx, cancel := context.WithCancel(context.Background())
			hooks := Hooks{Every: 20 * time.Millisecond, Interval: func(n int64, _ time.Duration) {
				if n > 0 {
					cancel()
				}
			}}
			begin := time.Now()
			res, err := c.Run(ctx, s, hooks)
			cancel()
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v %s: %v", v, name, err)
				continue
			}
			if r := res.Run; r.Msgs == 0 || r.DataCheck.Wrong != 0 || r.DataCheck.OK == 0 || r.PeerTransport == nil || *r.Lost != 0 {
				t.Errorf("%v %s: %+v, %+v", v, name, r, r.DataCheck)
			}
			if d := time.Since(begin); d > grace {
				t.Errorf("%v %s: ended after %v", v, name, d)
			}
		}
		run(t, c, exchanging(RR, Send, 8, 8))
	}
}
