// Package simulated runs scenarios in virtual time. The hosts are FEPs on internal/sim, the
// switch between them is testbed/fabric, and everything runs in one goroutine. One seed
// gives one run.
//
// A run is checked twice: by the assertions of the scenario, as on real hosts, and by
// the checkers of internal/sim/simtest, which know every datagram and compare every
// completion, byte and acknowledgement with it.
package simulated

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/transport"
)

const (
	// defaultLimit is how long a scenario without Limit may take.
	defaultLimit = time.Minute
	// maxPackets ends a packet storm.
	maxPackets = 50_000_000
	// rekeyStep is the time between the steps of a change of keys.
	rekeyStep = 2 * time.Second
	// slice is how much virtual time passes between checks of the context.
	slice = 10 * time.Millisecond
	// settleTime bounds the time that outstanding operations may need after the network's
	// faults have ended.
	settleTime = 10 * time.Second
)

// plant, if not nil, changes a lab before it begins. Tests use it to see a broken promise
// reported.
var plant func(*lab)

// A lab is one run.
type lab struct {
	sc       *scenario.Scenario
	seed     uint64
	hosts    []host
	cfg      fabric.Config
	wire     *wire
	w        *simtest.World
	sessions []*session
	zero     time.Duration // of the timeline, 0 means not yet
	limit    time.Duration
	res      *result.Result
	log      io.Writer
}

// A host is one host of the scenario. It has the endpoints of its sessions.
type host struct {
	name, group string
	role        string
	addr        netip.Addr
	ends        []*simtest.Host
	killed      bool
	exit        int
}

// Play runs a scenario to its end and returns its result. The caller evaluates the
// assertions: the Verdict is empty, or Fail with the Reason if a checker found a broken
// rule. progress, if not nil, gets a line now and then. An error says that the scenario
// cannot be run, or that ctx ended it.
func Play(ctx context.Context, sc *scenario.Scenario, seed uint64, progress io.Writer) (*result.Result, error) {
	began := time.Now()
	if progress == nil {
		progress = io.Discard
	}
	l := &lab{sc: sc, seed: seed, limit: time.Duration(sc.Limit), log: progress}
	if l.limit <= 0 {
		l.limit = defaultLimit
	}
	if err := l.build(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", sc.Name, err)
	}
	l.res = &result.Result{
		Schema: "uetkit-testbed/1", Scenario: sc.Name, Question: sc.Question, Expect: sc.Expect, Substrate: "sim", Seed: seed, Started: began,
		Topology: l.cfg, Machine: machine(), Asserts: []result.Assert{}, Metrics: map[string]float64{},
		Health: result.Health{OK: true, Stall: -1},
	}
	if err := l.play(ctx); err != nil {
		return nil, err
	}
	return l.res, nil
}

func machine() record.Host {
	name, _ := os.Hostname()
	return record.Host{Name: name, OS: runtime.GOOS, CPUs: runtime.NumCPU()}
}

// build makes the topology, the switch and the hosts.
func (l *lab) build() error {
	l.cfg = l.sc.Topology(l.seed, scenario.Base)
	for _, n := range l.sc.Nodes(scenario.Base) {
		l.hosts = append(l.hosts, host{name: n.Name, group: n.Group, role: n.Role, addr: n.Addr})
	}
	sw, err := fabric.New(l.cfg)
	if err != nil {
		return err
	}
	port := map[netip.Addr]int{}
	for i, h := range l.hosts {
		port[h.addr] = i
	}
	l.wire = newWire(sw, port)
	spec := simtest.Spec{
		Seed: l.seed, Wire: l.wire.carry, Patience: l.patience(), ICMP: true, Light: true, Long: true, MayFail: true, MaxPackets: maxPackets,
		Hostile: l.hostile(),
	}
	switch l.sc.Security {
	case "", "off":
	case "psk":
		// The keys of a cluster outlive a process.
		spec.Secure = transport.SecureOneRTT
	default:
		return fmt.Errorf("security %q is not simulated: off or psk", l.sc.Security)
	}
	for i := range l.sc.Traffic {
		ss, err := l.sessionsOf(&l.sc.Traffic[i])
		if err != nil {
			return err
		}
		l.sessions = append(l.sessions, ss...)
	}
	if len(l.sessions) == 0 {
		return fmt.Errorf("no traffic")
	}
	for _, s := range l.sessions {
		s.addHosts(&spec)
	}
	for i := range l.sc.Actions {
		if err := l.checkAction(&l.sc.Actions[i]); err != nil {
			return err
		}
	}
	l.w = simtest.NewWorld(nil, spec)
	l.wire.net = l.w.Net
	l.wire.violation = l.w.Failf
	l.wire.begun = l.begin
	for _, s := range l.sessions {
		s.takeHosts()
	}
	return nil
}

// patience is the longest that the switch keeps a packet that it does not lose.
func (l *lab) patience() time.Duration {
	line := func(f *fabric.Line) time.Duration {
		d := time.Duration(f.Delay + f.Jitter)
		if f.Rate > 0 {
			q := max(f.Queue, f.QueueHigh)
			if q == 0 {
				q = 1 << 20
			}
			d += time.Duration(float64(q) * 8 / float64(f.Rate) * 1e9)
		}
		for i := range f.Rules {
			d += time.Duration(f.Rules[i].Delay + f.Rules[i].ReorderHold + f.Rules[i].DuplicateLate)
		}
		return d
	}
	var from, spine, to time.Duration
	for i := range l.cfg.Ports {
		from, to = max(from, line(&l.cfg.Ports[i].From)), max(to, line(&l.cfg.Ports[i].To))
	}
	for i := range l.cfg.Spines {
		spine = max(spine, line(&l.cfg.Spines[i]))
	}
	return from + spine + to
}

// hostile reports whether something in the network sends packets of its own.
func (l *lab) hostile() bool {
	replays := func(f *fabric.Line) bool {
		for i := range f.Rules {
			if f.Rules[i].Replay != nil {
				return true
			}
		}
		return false
	}
	for i := range l.cfg.Ports {
		if replays(&l.cfg.Ports[i].From) || replays(&l.cfg.Ports[i].To) {
			return true
		}
	}
	for i := range l.cfg.Spines {
		if replays(&l.cfg.Spines[i]) {
			return true
		}
	}
	for i := range l.cfg.Events {
		if r := l.cfg.Events[i].Rule; r != nil && r.Replay != nil {
			return true
		}
	}
	return false
}

// named returns the indices of the hosts that a name stands for: "c" is c, c1, c2, ….
func (l *lab) named(name string) []int {
	var v []int
	for i := range l.hosts {
		if h := &l.hosts[i]; h.name == name || h.group == name {
			v = append(v, i)
		}
	}
	return v
}

// begin sets timeline zero: the first packet has reached the switch.
func (l *lab) begin(now time.Duration) {
	l.zero = now
	l.mark("start")
	for i := range l.sc.Actions {
		a := &l.sc.Actions[i]
		l.w.Net.At(now+time.Duration(a.At), func() { l.act(a) })
	}
	for i := range l.cfg.Events {
		e := &l.cfg.Events[i]
		l.w.Net.At(now+time.Duration(e.At), func() { l.mark("network: %s", eventName(e)) })
	}
	l.sample()
}

// eventName describes an event for the timeline.
func eventName(e *fabric.Event) string {
	s := ""
	switch {
	case e.Down:
		s = "down"
	case e.Rule != nil:
		s = "rule " + e.Rule.Name
	case e.Clear != "":
		s = "clear " + e.Clear
	default:
		s = "change"
	}
	s = fmt.Sprintf("%s on %v", s, e.On)
	if e.For > 0 {
		s += fmt.Sprintf(" for %v", time.Duration(e.For))
	}
	return s
}

// since is the time since timeline zero.
func (l *lab) since() time.Duration { return l.w.Now() - l.zero }

func (l *lab) mark(format string, args ...any) {
	l.res.Timeline = append(l.res.Timeline, result.Mark{At: l.since(), What: fmt.Sprintf(format, args...)})
}

// checkAction returns an error for an action that cannot be simulated.
func (l *lab) checkAction(a *scenario.Action) error {
	if a.Do == "rekey" {
		if l.sc.Security != "psk" {
			return fmt.Errorf("action rekey needs security = \"psk\"")
		}
		if a.Host == "" {
			return nil
		}
	}
	if len(l.named(a.Host)) == 0 {
		return fmt.Errorf("action %s: there is no host %q", a.Do, a.Host)
	}
	switch a.Do {
	case "pause", "kill", "restart", "rekey":
		return nil
	}
	return fmt.Errorf("action %q is not pause, kill, restart or rekey", a.Do)
}

// act carries out an action on the processes of a host.
func (l *lab) act(a *scenario.Action) {
	if a.Do == "restart" && a.For > 0 {
		later := *a
		later.For = 0
		l.w.Net.After(time.Duration(a.For), func() { l.act(&later) })
		return
	}
	if a.Do == "rekey" {
		l.rekey(time.Duration(a.For))
		return
	}
	for _, i := range l.named(a.Host) {
		h := &l.hosts[i]
		switch a.Do {
		case "pause":
			l.mark("%s: paused for %v", h.name, time.Duration(a.For))
			for _, e := range h.ends {
				e.Node.Pause()
			}
			if a.For > 0 {
				l.w.Net.After(time.Duration(a.For), func() {
					l.mark("%s: goes on", h.name)
					for _, e := range h.ends {
						e.Node.Resume()
					}
				})
			}
		case "kill":
			l.mark("%s: killed", h.name)
			h.killed, h.exit = true, 137
			for _, s := range l.sessions {
				if s.client == i {
					s.killed()
				}
			}
			for _, e := range h.ends {
				if e.FEP != nil {
					e.Crash(false)
				}
			}
		case "restart":
			l.mark("%s: restarted", h.name)
			h.killed, h.exit = false, 0
			for _, e := range h.ends {
				if !e.Up() {
					e.Restart()
				}
			}
		}
	}
}

// rekey changes the key of all hosts in steps: first all can open packets sealed with the
// new key, then all seal with it, and the old key still opens packets for a while.
func (l *lab) rekey(step time.Duration) {
	if step <= 0 {
		step = rekeyStep
	}
	l.mark("rekey: all know the new key")
	l.w.NextKey()
	l.w.Net.After(step, func() {
		l.mark("rekey: all use the new key")
		for i, h := range l.w.Hosts { // one after another
			l.w.Net.After(time.Duration(i)*time.Millisecond, h.UseKey)
		}
	})
}

// sample samples the switch and schedules the next sample.
func (l *lab) sample() {
	st := l.wire.sw.Stats(l.w.Now())
	s := result.Sample{At: l.since(), Bytes: map[string]int64{}, Wait: map[string]int64{}, Lost: map[string]int64{}, Trim: map[string]int64{}, Mark: map[string]int64{}}
	for name, line := range st.Lines {
		s.Bytes[name], s.Wait[name] = int64(line.SentB), line.Waiting
		if n := lost(line.Whys); n > 0 {
			s.Lost[name] = n
		}
		if n := line.Whys["trimmed"]; n > 0 {
			s.Trim[name] = int64(n)
		}
		if n := line.Whys["marked"]; n > 0 {
			s.Mark[name] = int64(n)
		}
	}
	l.res.Series = append(l.res.Series, s)
	// A scenario has some hundreds of samples.
	every := min(max(l.since()/250, 20*time.Millisecond), 500*time.Millisecond)
	l.w.Net.After(every.Round(10*time.Millisecond), func() {
		if !l.over() {
			l.sample()
		}
	})
}

// lost sums the losses of a line over all reasons.
func lost(whys map[string]uint64) (n int64) {
	for _, why := range []string{"no_route", "lost_random", "lost_burst", "lost_exact", "lost_blackhole", "lost_down", "lost_mtu", "lost_queue", "lost_queue_high"} {
		n += int64(whys[why])
	}
	return n
}

func (l *lab) over() bool {
	for _, s := range l.sessions {
		if !s.done {
			return false
		}
	}
	return true
}

// play runs until every client has ended, and then until nothing is outstanding.
func (l *lab) play(ctx context.Context) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *simtest.Violation:
			l.broken(p.Error(), p.Tail)
		default:
			l.broken(fmt.Sprintf("panic: %v", p), string(debug.Stack()))
		}
	}()
	if plant != nil {
		plant(l)
	}
	// Sessions of a host without a time follow each other.
	last := map[int]*session{}
	for _, s := range l.sessions {
		switch before := last[s.client]; {
		case s.t.At > 0:
			l.w.Net.At(sim.Start+time.Duration(s.t.At), s.start)
			continue
		case before == nil:
			l.w.Net.At(sim.Start, s.start)
		default:
			before.then = s
		}
		last[s.client] = s
	}
	said := time.Now()
	end := sim.Start + l.limit
	for !l.over() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if l.w.Now() >= end {
			for _, s := range l.sessions {
				s.fail(fmt.Errorf("not done within the limit of %v", l.limit))
			}
			break
		}
		l.w.Run(slice)
		if time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(l.log, "%s: %.1f s of virtual time, %d packets\n", l.sc.Name, l.since().Seconds(), l.wire.packets)
		}
	}
	ran := l.since()
	l.res.Metrics["took"] = ran.Seconds()
	l.res.Phases = []result.Phase{{Name: "run", Took: ran}}
	l.res.Took = ran
	l.res.Switch = l.wire.sw.Stats(l.w.Now())
	l.report()
	// Promises beyond the clients: nothing is outstanding, no unexpected event was written,
	// no datagram moves any more.
	for i := range l.hosts {
		for _, e := range l.hosts[i].ends {
			e.OnEvent(nil)
			e.Node.Resume()
		}
	}
	if err := l.wire.heal(l.cfg); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	l.w.Settle(settleTime)
	return nil
}

// broken notes that a promise was broken.
func (l *lab) broken(what, tail string) {
	l.res.Verdict, l.res.Reason = result.Fail, what
	l.mark("broken: %s", what)
	if l.res.Switch == nil {
		l.res.Switch = l.wire.sw.Stats(l.w.Now())
		l.res.Took = l.since()
		l.report()
	}
	for i := range l.res.Hosts {
		l.res.Hosts[i].Log += tail
		break
	}
}

// report assembles the result of the hosts.
func (l *lab) report() {
	l.res.Hosts = nil
	for i := range l.hosts {
		h := &l.hosts[i]
		r := result.Host{Name: h.name, Role: h.role, Addr: h.addr.String()}
		exit := h.exit
		for _, s := range l.sessions {
			if s.client != i {
				continue
			}
			r.Ended = max(r.Ended, s.ended)
			if s.dead {
				continue
			}
			r.Record = s.addTo(r.Record)
			if s.err != nil {
				exit = max(exit, 1)
				r.Log += s.err.Error() + "\n"
			}
		}
		r.Exit = &exit
		l.res.Hosts = append(l.res.Hosts, r)
	}
}
