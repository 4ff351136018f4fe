package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/metrics"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
)

var (
	all  = flag.Bool("all", false, "play all scenarios, not those alone that take little")
	seed = flag.Uint64("seed", 1, "seed of the scenarios")
)

// little are scenarios of every kind that take little time.
var little = []string{
	"blackhole-2s", "burst-loss", "churn-1000", "dead-from-start", "drop-list", "first-packet-loss", "link-flap", "receiver-paused", "receiver-restarted",
	"sender-killed", "small-first", "tail-loss",
}

// names returns the scenarios that a test plays. Each runs in one goroutine, and the race
// detector makes it twenty times slower while it only adds the invariants.
func names() []string {
	switch {
	case *all:
		return slices.DeleteFunc(scenario.Names(), func(name string) bool {
			sc, err := scenario.Load(name)
			return err == nil && len(sc.Substrates) > 0 && !slices.Contains(sc.Substrates, "sim")
		})
	case raceEnabled:
		return little[:2]
	}
	return little
}

func load(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	sc, err := scenario.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

func play(t *testing.T, sc *scenario.Scenario, seed uint64) *result.Result {
	t.Helper()
	r, err := Play(context.Background(), sc, seed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// failed lists the assertions of a result that are false.
func failed(t *testing.T, sc *scenario.Scenario, r *result.Result) (bad []string) {
	t.Helper()
	if r.Verdict != "" {
		bad = append(bad, r.Reason)
	}
	var took time.Duration
	for _, h := range r.Hosts {
		took = max(took, h.Ended)
	}
	env := metrics.Of(r, took.Seconds())
	for _, a := range sc.Asserts {
		if len(a.On) > 0 && !slices.Contains(a.On, "sim") {
			continue
		}
		pass, value, err := env.Evaluate(a.Expr)
		if err != nil {
			t.Fatal(err)
		}
		if !pass {
			bad = append(bad, fmt.Sprintf("%s: %s", a.Expr, value))
		}
	}
	for _, n := range sc.Nodes(scenario.Base) {
		i := slices.IndexFunc(r.Hosts, func(h result.Host) bool { return h.Name == n.Name })
		if h := r.Hosts[i]; n.Role == "client" && !sc.MayFail(n) && (*h.Exit != 0 || !h.Record.OK) {
			bad = append(bad, fmt.Sprintf("%s: exit status %d: %s", h.Name, *h.Exit, h.Log))
		}
	}
	return bad
}

func TestScenarios(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := load(t, name)
			r := play(t, sc, *seed)
			t.Logf("%v of virtual time, %d packets; %v", r.Took, r.Switch.Received, r.Switch.Whys)
			for _, h := range r.Hosts {
				if h.Record == nil {
					continue
				}
				for i := range h.Record.Runs {
					run := &h.Record.Runs[i]
					t.Logf("%s: %d messages of %d bytes in %v, %d resent, dropped %v and %v %s", h.Name, run.Msgs, run.Size, time.Duration(run.DurationNS),
						run.Transport.Rtx()+run.PeerTransport.Rtx(), run.Transport.Drops, run.PeerTransport.Drops, run.Error)
				}
			}
			for _, bad := range failed(t, sc, r) {
				t.Error(bad)
			}
		})
	}
}

// Without its fault a scenario must fail. Otherwise it would pass on a network that is not
// bad.
func TestScenariosNeedTheirFault(t *testing.T) {
	for _, name := range names() {
		if name == "clean" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := load(t, name)
			sc.Events, sc.Actions = nil, nil
			switch {
			case strings.HasPrefix(name, "incast"): // the other senders are the fault
				sc.Hosts[1].Count = 1
			case name == "late-comers": // who is not told how long the path is takes a queue for it
				for i := range sc.Traffic {
					sc.Traffic[i].BaseRTT = 0
				}
			case name == "limited-beside-bulk": // a stream that takes a queue of 10 ms for the path
				sc.Traffic[1].BaseRTT = fabric.Duration(10 * time.Millisecond)
			}
			heal := func(l *fabric.Line) {
				if l != nil {
					l.Rules, l.Small, l.Down, l.Delay = nil, 0, false, min(l.Delay, fabric.Duration(20*time.Microsecond))
				}
			}
			heal(&sc.Fabric.From)
			heal(&sc.Fabric.To)
			for i := range sc.Hosts {
				heal(sc.Hosts[i].From)
				heal(sc.Hosts[i].To)
			}
			for i := range sc.Fabric.Spines {
				sc.Fabric.Spines[i].Rate = sc.Fabric.Spines[0].Rate
				heal(&sc.Fabric.Spines[i])
			}
			bad := failed(t, sc, play(t, sc, *seed))
			if len(bad) == 0 {
				t.Error("it passes without its fault")
			}
			t.Log(bad)
		})
	}
}

// dropTimes returns a result as JSON without values of the machine's clock.
func dropTimes(t *testing.T, r *result.Result) string {
	t.Helper()
	r.Started = time.Time{}
	for i := range r.Hosts {
		if rec := r.Hosts[i].Record; rec != nil {
			rec.Started = time.Time{}
		}
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSameSeedSameResult(t *testing.T) {
	if raceEnabled {
		t.Skip("plays whole scenarios twice, on one goroutine")
	}
	for _, name := range []string{"burst-loss", "sender-killed"} {
		a, b := dropTimes(t, play(t, load(t, name), 3)), dropTimes(t, play(t, load(t, name), 3))
		if a != b {
			la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
			for i := range la {
				if i >= len(lb) || la[i] != lb[i] {
					t.Errorf("%s: line %d is %q, then %q", name, i, la[i], lb[i])
					break
				}
			}
		}
		if c := dropTimes(t, play(t, load(t, name), 4)); c == a {
			t.Errorf("%s: another seed, the same result", name)
		}
	}
}

// small returns a scenario for a test to change.
func small(t *testing.T) *scenario.Scenario {
	sc := load(t, "drop-list")
	sc.Traffic = []scenario.Traffic{{From: "c", To: "s", Test: "lat", Size: "64", Iters: 50}}
	return sc
}

func TestPlayRefuses(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*scenario.Scenario)
	}{
		{"security", func(sc *scenario.Scenario) { sc.Security = "tls" }},
		{"no traffic", func(sc *scenario.Scenario) { sc.Traffic = nil }},
		{"no such host", func(sc *scenario.Scenario) { sc.Traffic[0].From = "nobody" }},
		{"not from a client", func(sc *scenario.Scenario) { sc.Traffic[0].From = "s" }},
		{"not one host", func(sc *scenario.Scenario) { sc.Traffic[0].To = "nobody" }},
		{`size "4"`, func(sc *scenario.Scenario) { sc.Traffic[0].Size = "4" }},
		{`rate ""`, func(sc *scenario.Scenario) { sc.Traffic[0].Test = "load" }},
		{`test "write"`, func(sc *scenario.Scenario) { sc.Traffic[0].Test = "write" }},
		{"mode uud and endpoint type rdm", func(sc *scenario.Scenario) { sc.Traffic[0].Mode = "uud" }},
		{"mode uud and endpoint type rdm", func(sc *scenario.Scenario) {
			sc.Traffic[0] = scenario.Traffic{From: "c", To: "s", Test: "soak", Mode: "uud", Time: fabric.Duration(time.Second)}
		}},
		{`complete "commit"`, func(sc *scenario.Scenario) { sc.Traffic[0].Complete = "commit" }},
		{`cc "none"`, func(sc *scenario.Scenario) { sc.Traffic[0].CC = "none" }},
		{"window 100000", func(sc *scenario.Scenario) { sc.Traffic[0].Test, sc.Traffic[0].Window = "bw", 100000 }},
		{"bytes of buffers", func(sc *scenario.Scenario) {
			sc.Traffic[0].Test, sc.Traffic[0].Window, sc.Traffic[0].Size = "bw", 4096, "1M"
		}},
		{"rekey needs", func(sc *scenario.Scenario) { sc.Actions = []scenario.Action{{Do: "rekey"}} }},
		{`no host "x"`, func(sc *scenario.Scenario) { sc.Actions = []scenario.Action{{Do: "kill", Host: "x"}} }},
		{`action "burn"`, func(sc *scenario.Scenario) { sc.Actions = []scenario.Action{{Do: "burn", Host: "s"}} }},
		{"fabric", func(sc *scenario.Scenario) { sc.Events = []fabric.Event{{On: []string{"nowhere"}, Down: true}} }},
	} {
		sc := small(t)
		c.change(sc)
		r, err := Play(context.Background(), sc, 1, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v, %v", c.want, r, err)
		}
	}
}

// A broken rule fails the run, which says which rule and keeps what was measured before.
func TestPlayTellsBrokenPromises(t *testing.T) {
	defer func() { plant = nil }()
	for what, p := range map[string]func(l *lab){
		"at 1ms: planted":        func(l *lab) { l.w.Net.At(sim.Start+time.Millisecond, func() { l.w.Failf("planted") }) },
		"panic: runtime error":   func(l *lab) { l.w.Net.At(sim.Start+time.Millisecond, func() { l.sessions[5] = nil }) },
		"broken IP packet":       func(l *lab) { l.w.Net.At(sim.Start+time.Millisecond, func() { l.wire.deliver(make([]byte, 60)) }) },
		"a packet that it never": func(l *lab) { l.w.Net.At(sim.Start+time.Millisecond, func() { l.wire.deliver(stranger()) }) },
	} {
		plant = p
		r := play(t, small(t), 1)
		if r.Verdict != result.Fail || !strings.Contains(r.Reason, what) {
			t.Errorf("%s: %s: %s", what, r.Verdict, r.Reason)
		}
		if len(r.Hosts) != 2 || r.Switch == nil {
			t.Errorf("%s: hosts %v", what, r.Hosts)
		}
	}
}

func stranger() []byte {
	b := putIP(nil, &sim.Packet{Src: addrPort("198.18.16.2:1"), Dst: addrPort("198.18.17.2:2"), Data: make([]byte, 30)})
	return b
}

// A soak plays tests of all kinds, and its record has one run that adds them up.
func TestPlaySoak(t *testing.T) {
	sc := small(t)
	sc.Traffic = []scenario.Traffic{{From: "c", To: "s", Test: "soak", Op: "send", Time: fabric.Duration(2 * time.Second)}}
	r := play(t, sc, *seed)
	rec := r.Hosts[1].Record
	if !rec.OK || len(rec.Runs) != 1 {
		t.Fatalf("%+v, %s", rec, r.Hosts[1].Log)
	}
	run := rec.Runs[0]
	if run.Op != "send" || run.Msgs < 1000 || run.DataCheck.OK < run.Msgs || run.DataCheck.Wrong != 0 || *run.Lost != 0 || run.DurationNS < 2e9 {
		t.Errorf("%+v, %+v", run, run.DataCheck)
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := Play(ctx, small(t), 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestPlayLimit(t *testing.T) {
	sc := small(t)
	sc.Traffic[0].Iters = 1 << 40
	sc.Limit = fabric.Duration(50 * time.Millisecond)
	r := play(t, sc, 1)
	if h := r.Hosts[1]; *h.Exit == 0 || h.Record.OK || !strings.Contains(h.Record.Error, "limit of 50ms") || h.Record.Runs[0].Msgs == 0 {
		t.Errorf("exit %d, record %+v", *h.Exit, h.Record)
	}
}
