package perf

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/uet"
)

// exchanging returns a Spec of load or rr for a test to change.
func exchanging(test, op string, size, reply int64) traffic.Spec {
	s := base(test, op, size)
	s.Reply, s.Warmup = reply, 5
	if test == traffic.Load {
		s.Rate, s.Arrivals, s.Iters, s.Time = 5000, traffic.Constant, 0, 300*time.Millisecond
	}
	return s
}

func TestExchanges(t *testing.T) {
	theirs, mine := testKeys(t)
	addr := serve(t, ServerConfig{Keys: theirs})
	for _, v := range services {
		c := dial(t, addr, ClientConfig{EP: v.ep, Sec: v.sec, Keys: mine[v.sec]})
		for _, test := range []string{traffic.Load, traffic.RR} {
			for _, op := range []string{traffic.Send, traffic.TSend} {
				for _, mode := range []string{"rud", "rod"} {
					for _, progress := range []string{"auto", "manual"} {
						s := exchanging(test, op, 600, 9000)
						s.Mode, s.Progress, s.Parallel, s.Window = mode, progress, 2, 8
						t.Run(strings.Join([]string{v.String(), test, op, mode, progress}, "/"), func(t *testing.T) {
							r := run(t, c, s).Run
							want := r.Msgs + s.Warmup*int64(s.Parallel)
							if test == traffic.RR && r.Msgs != s.Iters*int64(s.Parallel) {
								t.Errorf("%d transactions, want %d", r.Msgs, s.Iters*int64(s.Parallel))
							}
							if test == traffic.Load && (r.Load.Offered != r.Msgs+r.Load.Unsent || r.Load.Offered < 1450 || r.Load.Offered > 1550) {
								t.Errorf("%+v, %d answered; want all of 1500", r.Load, r.Msgs)
							}
							// Each transaction is a request and a reply.
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

// A load offers what its rate says, whatever the number of streams.
func TestLoadOffersItsRate(t *testing.T) {
	client := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := exchanging(traffic.Load, traffic.TSend, 8, 8)
	s.Rate, s.Time, s.Warmup, s.Parallel = 200, 100*time.Millisecond, 1, 16
	if l := run(t, client, s).Run.Load; l.Offered != 20 || l.OfferedPer != 200 {
		t.Errorf("%+v, want 20 in 100 ms", l)
	}
}

// An overloaded test ends in bounded time and says that it is overloaded. Requests that
// never began are in the latencies, which a closed loop would not show.
func TestLoadOverloaded(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	for _, arrivals := range []string{traffic.Constant, traffic.Poisson} {
		s := exchanging(traffic.Load, traffic.TSend, 1000, 8)
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

// Latencies include the wait for earlier requests. 20 requests are meant to begin at almost
// the same time and go one at a time. The sum of the bare round trips would be the time
// that all took. Counted from the intended times the sum is ten times that.
func TestLoadCountsFromIntendedTimes(t *testing.T) {
	c := dial(t, serve(t, ServerConfig{}), ClientConfig{})
	s := exchanging(traffic.Load, traffic.TSend, 8, 8)
	s.Rate, s.Time, s.Window, s.Warmup = 1e6, 20*time.Microsecond, 1, 0
	for range 20 {
		r := run(t, c, s).Run
		if r.Load.Unsent > 0 {
			continue // on a busy host some were given up, which another test covers
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
				s := exchanging(traffic.RR, traffic.TSend, 100, 50)
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

// With churn each transaction has its own packet delivery contexts; without churn all share
// one pair.
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
		s := exchanging(traffic.RR, traffic.TSend, 100, 50)
		s.Churn, s.Window, s.Iters, s.Warmup = churn, 1, 30, 0
		run(t, c, s)
		mu.Lock()
		// Both ends open one, and the server counts those it opened and those it accepted.
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
		for name, change := range map[string]func(*traffic.Spec){
			"load": func(s *traffic.Spec) { *s = exchanging(traffic.Load, traffic.TSend, 100, 8) }, "overload": func(s *traffic.Spec) { *s = exchanging(traffic.Load, traffic.TSend, 100, 8); s.Rate = 1e8 },
			"rr": func(*traffic.Spec) {}, "churn": func(s *traffic.Spec) { s.Churn, s.Window = true, 1 },
		} {
			s := exchanging(traffic.RR, traffic.TSend, 100, 8)
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
		run(t, c, exchanging(traffic.RR, traffic.Send, 8, 8))
	}
}
