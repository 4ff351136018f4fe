package simulated

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/metrics"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// judge plays a scenario and holds its assertions against what came out.
func judge(t *testing.T, sc *scenario.Scenario, seed uint64) *result.Result {
	t.Helper()
	began := time.Now()
	r, err := Play(context.Background(), sc, seed, testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v of virtual time in %v, %d packets", r.Took, time.Since(began).Round(time.Millisecond), r.Switch.Received)
	if r.Verdict != "" {
		t.Errorf("%s: %s", r.Verdict, r.Reason)
	}
	for _, h := range r.Hosts {
		if h.Record == nil {
			continue
		}
		for i := range h.Record.Runs {
			run := &h.Record.Runs[i]
			t.Logf("%s: size %d: %d messages, %.1f Mbit/s, rtx %d, drops %v %v %s", h.Name, run.Size, run.Msgs, float64(run.Bytes)*8e3/float64(run.DurationNS),
				run.Transport.Rtx()+run.PeerTransport.Rtx(), run.Transport.Drops, run.PeerTransport.Drops, run.Error)
			if l := run.Latency; l != nil {
				t.Logf("   p50 %v p99 %v max %v", time.Duration(l.P50), time.Duration(l.P99), time.Duration(l.Max))
			}
		}
	}
	t.Log(r.Switch.Whys)
	env := metrics.Of(r, r.Metrics["took"])
	for _, a := range sc.Asserts {
		if len(a.On) > 0 && !slices.Contains(a.On, "sim") {
			continue
		}
		pass, value, err := env.Judge(a.Expr)
		if err != nil {
			t.Error(err)
		} else if !pass {
			t.Errorf("%s (%s): %s", a.Expr, a.Why, value)
		} else {
			t.Logf("holds: %s: %s", a.Expr, value)
		}
	}
	for _, h := range r.Hosts {
		if n := nodeOf(sc, h.Name); n.Role == "client" && !sc.MayFail(n) && (*h.Exit != 0 || !h.Record.OK) {
			t.Errorf("%s: exit %d: %s", h.Name, *h.Exit, h.Log)
		}
	}
	return r
}

func nodeOf(sc *scenario.Scenario, name string) scenario.Node {
	for _, n := range sc.Nodes(scenario.Base) {
		if n.Name == name {
			return n
		}
	}
	return scenario.Node{}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

func TestPlayScenarios(t *testing.T) {
	for _, name := range scenario.Names() {
		t.Run(name, func(t *testing.T) {
			sc, err := scenario.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			judge(t, sc, 1)
		})
	}
}
