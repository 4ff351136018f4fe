package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/metrics"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// A machine is too slow for a verdict if packets leave the switch this late, or tasks wait
// for a processor this share of the time. Two hosts and a switch alone on two processors
// were seen at 0.1 to 0.7, four senders at 0.9. Such a run may pass, but its timing
// failures mean nothing.
const (
	lateMax  = 5 * time.Millisecond
	stallMax = 0.6
)

// conclude evaluates a run that has ended, well or in err.
func (p *player) conclude(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errUnsupported), errors.Is(err, substrate.ErrUnsupported):
		over(p.r, result.Unsupported, "%v", err)
		return
	case ctx.Err() != nil:
		over(p.r, result.Error, "interrupted")
		return
	case err != nil:
		over(p.r, result.Error, "%v", err)
		return
	}
	Evaluate(p.sc, p.r, p.took, p.slow)
}

// lastEnd returns the time in seconds from zero to the end of the last client. If hosts do
// not report it, it is that of the whole run.
func lastEnd(r *result.Result) float64 {
	var last time.Duration
	for _, h := range r.Hosts {
		if h.Role == "client" {
			last = max(last, h.Ended)
		}
	}
	if last == 0 {
		last = r.Took
	}
	return last.Seconds()
}

// Evaluate fills Metrics, Asserts and the verdict. took is the time from zero to the end of
// the last client. slow are the clients that did not end in time.
func Evaluate(sc *scenario.Scenario, r *result.Result, took float64, slow []string) {
	env := metrics.Of(r, took)
	r.Metrics = env.Flat()
	health(&r.Health)

	// All failures, and those of them that a slow machine may have caused.
	var failed, timing []string
	var limited, wrong bool // a client was ended by its limit; data was wrong
	fail := func(isTiming bool, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		failed = append(failed, what)
		if isTiming {
			timing = append(timing, what)
		}
	}
	nodes := sc.Nodes(scenario.Base)
	for _, h := range r.Hosts {
		i := slices.IndexFunc(nodes, func(n scenario.Node) bool { return n.Name == h.Name })
		if h.Exit != nil && *h.Exit == agent.ExitUnsupported {
			over(r, result.Unsupported, "%s: exit status 127", h.Name)
			return
		}
		if h.Role == "server" {
			if h.Exit != nil && *h.Exit != 0 && !killed(sc, h.Name) {
				fail(false, "server %s ended with exit status %d%s", h.Name, *h.Exit, said(h))
			}
			continue
		}
		mayFail := i >= 0 && sc.MayFail(nodes[i])
		switch {
		case mayFail:
		case slices.Contains(slow, h.Name), h.Exit != nil && *h.Exit == agent.ExitLimit:
			limited = true
			fail(true, "client %s did not end within %v", h.Name, time.Duration(sc.Limit))
		case h.Exit == nil:
			fail(false, "client %s did not end", h.Name)
		case *h.Exit != 0:
			fail(false, "client %s ended with exit status %d%s", h.Name, *h.Exit, said(h))
		case h.Record == nil:
			fail(false, "client %s left no record", h.Name)
		}
		// Wrong data fails, whatever else may fail.
		for _, m := range []string{"lost", "wrong"} {
			if n := r.Metrics[h.Name+"."+m]; n != 0 && (!mayFail || m == "wrong") {
				wrong = wrong || m == "wrong"
				fail(false, "client %s has %.0f messages %s", h.Name, n, m)
			}
		}
	}
	for _, a := range sc.Asserts {
		if len(a.On) > 0 && !slices.Contains(a.On, r.Substrate) {
			continue
		}
		pass, value, err := env.Evaluate(a.Expr)
		if err != nil {
			over(r, result.Error, "assert %v", err)
			return
		}
		r.Asserts = append(r.Asserts, result.Assert{Expr: a.Expr, Why: a.Why, Pass: pass, Value: value})
		if !pass {
			fail(a.Timing, "%s (%s)", a.Expr, value)
		}
	}
	switch {
	case len(failed) == 0:
		r.Verdict = result.Pass
	case !r.Health.OK && !wrong && (limited || len(timing) == len(failed)):
		// A client that was ended by the time limit still has messages outstanding, so
		// assertions fail that have nothing to do with time.
		over(r, result.Inconclusive, "the machine was too slow (%s) for %s", strings.Join(r.Health.Why, "; "), strings.Join(failed, "; "))
	case !wrong && !limited && len(timing) == len(failed) && crowded(r):
		// A few more resends or a little less speed may come from a program that waited for
		// its processor at that moment, even in a run that otherwise went well.
		over(r, result.Inconclusive, "%d programs share %s, which is too few to judge %s", len(r.Hosts)+1, units.Plural(r.Machine.CPUs, "processor"), strings.Join(failed, "; "))
	default:
		over(r, result.Fail, "%s", strings.Join(failed, "; "))
	}
}

// crowded reports whether there are fewer processors than real hosts and the switch
// together.
func crowded(r *result.Result) bool {
	return (r.Substrate == "docker" || r.Substrate == "netns") && r.Machine.CPUs > 0 && len(r.Hosts)+1 > r.Machine.CPUs
}

// said returns the last words of a host that failed, if any.
func said(h result.Host) string {
	if h.Record != nil && h.Record.Error != "" {
		return ": " + h.Record.Error
	}
	lines := strings.Split(strings.TrimSpace(h.Log), "\n")
	for _, l := range slices.Backward(lines) {
		if l != "" && !strings.HasPrefix(l, "agent:") {
			return ": " + l
		}
	}
	return ""
}

// killed reports whether the scenario kills a host.
func killed(sc *scenario.Scenario, host string) bool {
	return slices.ContainsFunc(sc.Actions, func(a scenario.Action) bool { return a.Host == host && a.Do == "kill" })
}

// health reports whether the machine was fast enough.
func health(h *result.Health) {
	if h.SwitchDrops > 0 {
		h.Why = append(h.Why, fmt.Sprintf("the switch itself lost %d packets", h.SwitchDrops))
	}
	if h.LateP99 > lateMax {
		h.Why = append(h.Why, fmt.Sprintf("packets left the switch up to %v late (p99)", h.LateP99.Round(100*time.Microsecond)))
	}
	if h.Stall > stallMax {
		h.Why = append(h.Why, fmt.Sprintf("%.0f %% of the time a task waited for a processor", 100*h.Stall))
	}
	h.OK = len(h.Why) == 0
}
