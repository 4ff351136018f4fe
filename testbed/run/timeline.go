package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// A step is an action on a process at a time of the timeline.
type step struct {
	at      time.Duration
	what    string
	host    string // "" if the step is not about the process of one host
	restart bool
	pause   bool
	resume  bool
	do      func(ctx context.Context) error
}

// rekeySteps is the number of steps in a change of the cluster key. rekeyGap is the time
// between them unless the scenario sets another.
const (
	rekeySteps = 3
	rekeyGap   = 2 * time.Second
)

// steps returns the actions of the scenario in the order of their times.
func (p *player) steps() []step {
	var out []step
	add := func(at fabric.Duration, host, what string, do func(context.Context) error) {
		out = append(out, step{at: time.Duration(at), what: what, host: host, do: do})
	}
	for _, a := range p.sc.Actions {
		act := func(do substrate.Action) func(context.Context) error {
			return func(ctx context.Context) error { return p.lab.Do(ctx, a.Host, do) }
		}
		switch a.Do {
		case "pause":
			add(a.At, a.Host, a.Host+" is paused", act(substrate.Pause))
			out[len(out)-1].pause = true
			add(a.At+a.For, a.Host, a.Host+" goes on", act(substrate.Resume))
			out[len(out)-1].resume = true
		case "kill":
			add(a.At, a.Host, a.Host+" is killed", act(substrate.Kill))
		case "restart":
			add(a.At+a.For, a.Host, a.Host+" is started again", act(substrate.Start))
			out[len(out)-1].restart = true
		case "rekey":
			gap := a.For
			if gap == 0 {
				gap = fabric.Duration(rekeyGap)
			}
			for i := range rekeySteps {
				add(a.At+fabric.Duration(i)*gap, "", fmt.Sprintf("step %d of %d to the next cluster key", i+1, rekeySteps), p.rotate)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b step) int { return int(a.at - b.at) })
	return out
}

// rotate carries out one step to the next key, in the folder that the hosts watch.
func (p *player) rotate(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, filepath.Join(p.o.Bin, "uetperf"), "keys", p.keysFolder(), "--rotate").CombinedOutput()
	if err != nil {
		return fmt.Errorf("uetperf keys --rotate: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return openKeys(p.keysFolder())
}

func (p *player) keysFolder() string { return filepath.Join(p.reg.Dir, "keys") }

// makeKeys makes the keys of a lab.
func makeKeys(bin, dir string) error {
	out, err := exec.Command(filepath.Join(bin, "uetperf"), "keys", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("uetperf keys: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return openKeys(dir)
}

// openKeys lets the root of a container without capabilities read the keys, which exist as
// long as the lab.
func openKeys(dir string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	err = os.Chmod(dir, 0o755)
	for _, f := range files {
		err = errors.Join(err, os.Chmod(f, 0o644))
	}
	return err
}

// run starts the clients, carries out the steps, and waits for the clients to end. Its
// error is one of the testbed; a failed client is part of the verdict.
func (p *player) run(ctx context.Context) error {
	p.stalls = stalled()
	for _, h := range p.spec.Hosts {
		if h.Role == "client" {
			if err := os.WriteFile(filepath.Join(h.Out, agent.Go), nil, 0o666); err != nil {
				return err
			}
		}
	}
	p.began = time.Now()
	limit := time.NewTimer(time.Duration(p.sc.Limit) + endLimit)
	defer limit.Stop()
	poll := time.NewTicker(pollFirst)
	defer poll.Stop()
	steps := p.steps()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	arm := func() {
		if len(steps) > 0 && !p.zero.IsZero() {
			due.Reset(time.Until(p.zero.Add(steps[0].at)))
		}
	}
	var lastSaid time.Time
	for p.busy(steps) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			p.mark(time.Now(), "the limit is over: %s", strings.Join(p.running(), ", "))
			p.slow = p.running()
			return nil
		case e := <-p.lab.Exits():
			if err := p.exited(ctx, e); err != nil {
				return err
			}
		case <-due.C:
			s := steps[0]
			steps = steps[1:]
			if err := p.step(ctx, s); err != nil {
				return err
			}
			if s.pause {
				steps = prolonged(steps, s.host, time.Since(p.zero)-s.at)
			}
			arm()
		case <-poll.C:
			st, err := p.sw.Stats(ctx)
			if err != nil {
				continue // Exits reports its end
			}
			if p.zero.IsZero() && st.Fabric.Started != nil {
				p.zero = time.Now().Add(-time.Duration(st.Fabric.Now - *st.Fabric.Started))
				p.mark(p.zero, "first packet")
				p.eventMarks()
				arm()
				poll.Reset(pollEvery)
			}
			if time.Since(lastSaid) >= time.Second {
				lastSaid = time.Now()
				p.say("%s", p.progress(st))
			}
		}
	}
	for _, s := range steps {
		p.mark(time.Now(), "not done, the clients had ended: at %v %s", s.at, s.what)
	}
	return nil
}

// step carries out one step, unless its process has ended already.
func (p *player) step(ctx context.Context, s step) error {
	if s.restart {
		// The report of its end may still come, and must not count for the next life.
		if err := p.awaitEnd(ctx, s.host); err != nil {
			return err
		}
		delete(p.ended, s.host)
	} else if _, ended := p.ended[s.host]; ended {
		p.mark(time.Now(), "%s: not done, it had ended", s.what)
		return nil
	}
	at := time.Now()
	if err := s.do(ctx); err != nil {
		return fmt.Errorf("at %v: %w", s.at, err)
	}
	if s.pause {
		at = time.Now() // from then on it stands still
	}
	p.mark(at, "%s", s.what)
	return nil
}

// prolonged delays the end of a host's pause by as much as its beginning was late. So the
// pause is as long as the scenario says, however long the engine took to begin it.
func prolonged(steps []step, host string, late time.Duration) []step {
	if i := slices.IndexFunc(steps, func(s step) bool { return s.resume && s.host == host }); i >= 0 {
		steps[i].at += late
		slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	}
	return steps
}

// awaitEnd waits until a process that was killed has ended.
func (p *player) awaitEnd(ctx context.Context, host string) error {
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	for {
		if _, ended := p.ended[host]; ended {
			return nil
		}
		select {
		case e := <-p.lab.Exits():
			if err := p.exited(ctx, e); err != nil {
				return err
			}
		case <-limit.C:
			return fmt.Errorf("%s was killed and does not end", host)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// exited notes the end of a process.
func (p *player) exited(ctx context.Context, e substrate.Exit) error {
	if e.Host == substrate.SwitchName {
		return fmt.Errorf("the switch ended with exit status %d: %s", e.Code, p.lastWords(ctx, e.Host))
	}
	p.ended[e.Host] = e
	p.mark(e.At, "%s ended with exit status %d", e.Host, e.Code)
	for i := range p.r.Hosts {
		if h := &p.r.Hosts[i]; h.Name == e.Host {
			code := e.Code
			h.Exit = &code
			if !p.zero.IsZero() {
				h.Ended = e.At.Sub(p.zero)
			}
		}
	}
	return nil
}

// running returns the clients that have not ended.
func (p *player) running() []string {
	var out []string
	for _, n := range p.nodes {
		if _, ended := p.ended[n.Name]; n.Role == "client" && !ended {
			out = append(out, n.Name)
		}
	}
	return out
}

// busy reports whether there is still something to wait for: a client that runs, or one
// that will be restarted.
func (p *player) busy(steps []step) bool {
	if len(p.running()) > 0 {
		return true
	}
	return slices.ContainsFunc(steps, func(s step) bool {
		return s.restart && slices.ContainsFunc(p.nodes, func(n scenario.Node) bool { return n.Name == s.host && n.Role == "client" })
	})
}

// mark records a moment and reports it.
func (p *player) mark(at time.Time, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	zero := p.zero
	if zero.IsZero() {
		zero = p.began
	}
	p.r.Timeline = append(p.r.Timeline, result.Mark{At: at.Sub(zero), What: what})
	p.say("%6.2f s  %s", at.Sub(zero).Seconds(), what)
}

// maxMarks bounds the marks of an event that repeats.
const maxMarks = 20

// eventMarks records the events that the switch carries out by itself.
func (p *player) eventMarks() {
	for _, e := range p.r.Topology.Events {
		times := 1
		if e.Every > 0 {
			times = e.Times
			if times == 0 {
				times = maxMarks
			}
		}
		for k := range min(times, maxMarks) {
			at := time.Duration(e.At) + time.Duration(k)*time.Duration(e.Every)
			if at > time.Duration(p.sc.Limit) {
				break
			}
			p.r.Timeline = append(p.r.Timeline, result.Mark{At: at, What: describe(e)})
		}
	}
}

// describe returns an event in words.
func describe(e fabric.Event) string {
	on := strings.Join(e.On, ", ")
	var what []string
	if e.Down {
		what = append(what, "down")
	}
	if e.Rule != nil {
		name := e.Rule.Name
		if name == "" {
			name = "a rule"
		}
		what = append(what, "rule "+name)
	}
	if e.Clear != "" {
		what = append(what, "without rule "+e.Clear)
	}
	if e.Set != nil {
		what = append(what, "changed")
	}
	s := on + ": " + strings.Join(what, ", ")
	if e.For > 0 {
		s += " for " + time.Duration(e.For).String()
	}
	return s
}

// progress returns a line about a run in progress.
func (p *player) progress(st *SwitchStats) string {
	var sent, lost uint64
	var waiting int64
	for name, l := range st.Fabric.Lines {
		if strings.HasSuffix(name, ".to") {
			sent += l.SentB
			waiting += l.Waiting
		}
	}
	for w := range fabric.NumWhys {
		if w.Lost() {
			lost += st.Fabric.Whys[w.String()]
		}
	}
	at := 0.0
	if !p.zero.IsZero() {
		at = time.Since(p.zero).Seconds()
	}
	s := fmt.Sprintf("%6.2f s  %.1f MB through the switch, %d packets, %d lost, %d KiB waiting", at, float64(sent)/1e6, st.Fabric.Sent, lost, waiting>>10)
	if h := st.Health; h.Drops > 0 {
		s += fmt.Sprintf(", %d lost by the switch itself", h.Drops)
	}
	return s
}
