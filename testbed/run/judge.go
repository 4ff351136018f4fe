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

// When a machine is too slow to judge by: packets leave the switch this late, or tasks
// wait for a processor this share of the time. Two hosts and a switch on two processors
// that do nothing else were seen at 0.1 to 0.7, four senders at 0.9: such a run may pass, but
// what it takes too long for says nothing.
const (
	lateMax  = 5 * time.Millisecond
	stallMax = 0.6
)

// conclude judges a run that has ended, well or in err.
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
	Judge(p.sc, p.r, p.took, p.slow)
}

// lastEnd is the time from zero to the last client's end in seconds; where hosts do not say,
// that of the whole run.
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

// Judge fills Metrics, Asserts and the verdict. took is the time from zero to the last
// client's end, slow are clients that did not end in time.
func Judge(sc *scenario.Scenario, r *result.Result, took float64, slow []string) {
	env := metrics.Of(r, took)
	r.Metrics = env.Flat()
	health(&r.Health)

	// Everything that failed, and the part of it that a slow machine may have caused.
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
		// Wrong data is wrong, whatever may fail.
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
		pass, value, err := env.Judge(a.Expr)
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
		// A client that the time limit ended has messages on the way, so asserts fail that
		// have nothing to do with time.
		over(r, result.Inconclusive, "the machine was too slow (%s) for %s", strings.Join(r.Health.Why, "; "), strings.Join(failed, "; "))
	case !wrong && !limited && len(timing) == len(failed) && crowded(r):
		// A resend too many or a little less speed may be a program that waited for
		// its processor just then, however well the rest of the run went.
		over(r, result.Inconclusive, "%d programs share %s, which is too few to judge %s", len(r.Hosts)+1, units.Plural(r.Machine.CPUs, "processor"), strings.Join(failed, "; "))
	default:
		over(r, result.Fail, "%s", strings.Join(failed, "; "))
	}
}

// crowded reports whether real hosts and the switch have no processor each.
func crowded(r *result.Result) bool {
	return (r.Substrate == "docker" || r.Substrate == "netns") && r.Machine.CPUs > 0 && len(r.Hosts)+1 > r.Machine.CPUs
}

// said is what a host that failed had to say, if anything.
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

// health says whether the machine was up to it.
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
