// Package run plays scenarios in labs. It brings a lab up, runs the timeline, waits for the
// clients, collects their files, takes the lab down, and decides the verdict.
package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/agent"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/report"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// Options configure the run of a scenario.
type Options struct {
	Substrate substrate.Substrate
	Registry  *lab.Registry
	Bin       string            // folder of the programs
	Out       string            // folder for results, "" for none
	Seed      uint64            // at least 1
	Images    map[string]string // by role
	Keep      bool              // leave the lab up
	LogAll    bool              // the switch logs passed packets too
	SwitchPPS float64           // measured before; 0 means not measured
	Command   []string          // that repeats the run
	// Say is called for each event, with a line of text.
	Say func(format string, args ...any)
	// Played makes the result of a run without a lab, in the simulator. Then Substrate,
	// Registry and Bin are not used.
	Played func(ctx context.Context, sc *scenario.Scenario, seed uint64) (*result.Result, error)
}

// Limits for steps that should take no time.
const (
	readyLimit = 20 * time.Second // from up to ready
	foreign    = 3 * time.Second  // for an image that does not say that it is ready
	endLimit   = 10 * time.Second // of a client beyond its limit
	stopLimit  = 30 * time.Second // of a process that was told to end
	downLimit  = 90 * time.Second
	logTail    = 20       // lines of each log in a result
	switchLog  = 64 << 20 // bytes of decisions
	pollEvery  = 50 * time.Millisecond
	pollFirst  = 2 * time.Millisecond // until the first packet is seen
)

// Scenario plays a scenario and returns its result, with any error in it. It leaves
// result.json and all files in a folder below Options.Out.
func Scenario(ctx context.Context, sc *scenario.Scenario, o Options) *result.Result {
	r := &result.Result{
		Schema: "uetkit-testbed/1", Scenario: sc.Name, Question: sc.Question, Expect: sc.Expect, Seed: o.Seed,
		Command: o.Command, Started: time.Now(), Asserts: []result.Assert{}, Hosts: []result.Host{}, Timeline: []result.Mark{},
		Phases: []result.Phase{}, Metrics: map[string]float64{}, Machine: machine(), Health: result.Health{OK: true, Stall: -1, SwitchPPS: o.SwitchPPS},
	}
	if o.Played != nil {
		return simulated(ctx, sc, o, r)
	}
	r.Substrate = o.Substrate.Name()
	if len(sc.Substrates) > 0 && !slices.Contains(sc.Substrates, r.Substrate) {
		return over(r, result.Unsupported, "the scenario is for %s only", strings.Join(sc.Substrates, " and "))
	}
	p := &player{sc: sc, o: o, r: r}
	err := p.play(ctx)
	r.Took = time.Since(r.Started)
	p.conclude(ctx, err)
	if o.Out != "" {
		if err := Save(filepath.Join(o.Out, report.Folder(r)), r); err != nil {
			return over(r, result.Error, "%v", err)
		}
	}
	return r
}

// simulated plays a scenario in the simulator.
func simulated(ctx context.Context, sc *scenario.Scenario, o Options, r *result.Result) *result.Result {
	r.Substrate = "sim"
	if len(sc.Substrates) > 0 && !slices.Contains(sc.Substrates, "sim") {
		return over(r, result.Unsupported, "the scenario is for %s only", strings.Join(sc.Substrates, " and "))
	}
	got, err := o.Played(ctx, sc, o.Seed)
	if got != nil {
		r.Hosts, r.Switch, r.Series, r.Timeline, r.Health, r.Took = got.Hosts, got.Switch, got.Series, got.Timeline, got.Health, got.Took
	}
	r.Topology = sc.Topology(o.Seed, scenario.Base)
	r.Phases = append(r.Phases, result.Phase{Name: "run", Took: time.Since(r.Started)})
	p := &player{sc: sc, o: o, r: r, took: lastEnd(r)}
	p.conclude(ctx, err)
	if got != nil && got.Verdict == result.Fail && r.Verdict != result.Error {
		over(r, result.Fail, "%s", got.Reason) // a checker of the simulator; what else failed follows from it
	}
	if o.Out != "" {
		if err := Save(filepath.Join(o.Out, report.Folder(r)), r); err != nil {
			return over(r, result.Error, "%v", err)
		}
	}
	return r
}

// over sets the verdict of a result and its reason.
func over(r *result.Result, v result.Verdict, format string, args ...any) *result.Result {
	r.Verdict, r.Reason = v, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	return r
}

// Save writes result.json.
func Save(dir string, r *result.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("result of %s: %w", r.Scenario, err)
	}
	return os.WriteFile(filepath.Join(dir, "result.json"), append(data, '\n'), 0o644)
}

// A player is one run in progress.
type player struct {
	sc *scenario.Scenario
	o  Options
	r  *result.Result

	nodes  []scenario.Node
	reg    *lab.Lab
	lab    substrate.Lab
	sw     *SwitchClient
	spec   *substrate.Spec
	began  time.Time // when the clients were started
	zero   time.Time // zero of the timeline; the zero Time before it begins
	ended  map[string]substrate.Exit
	took   float64 // seconds from zero to the last client's end
	slow   []string
	stalls time.Duration
}

// play brings the lab up, runs the scenario and takes the lab down. Its error is one of the
// testbed, not of the scenario.
func (p *player) play(ctx context.Context) (err error) {
	p.ended = map[string]substrate.Exit{}
	if p.reg, err = p.o.Registry.Claim(); err != nil {
		return err
	}
	released := false
	defer func() {
		if !released {
			err = errors.Join(err, p.reg.Release())
		}
	}()
	begun := time.Now()
	phase := func(name string) {
		p.r.Phases = append(p.r.Phases, result.Phase{Name: name, Took: time.Since(begun)})
		begun = time.Now()
	}
	if err := p.plan(); err != nil {
		return err
	}
	p.lab, err = p.o.Substrate.Up(ctx, p.spec)
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	p.sw = NewSwitchClient(filepath.Join(p.spec.Out, substrate.Socket))
	defer p.sw.Close()
	down := func() error {
		defer phase("down")
		if p.o.Keep {
			p.reg.Kept = true
			return nil
		}
		// Take the lab down after an interrupt, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
		defer cancel()
		if err := p.lab.Down(ctx); err != nil {
			return fmt.Errorf("down: %w", err)
		}
		return nil
	}
	defer func() { err = errors.Join(err, down()) }()
	err = p.ready(ctx)
	phase("up")
	if err == nil {
		err = p.run(ctx)
		phase("run")
	}
	// Collect the files whatever happened, because the logs may tell why.
	err = errors.Join(err, p.collect(context.WithoutCancel(ctx)))
	phase("collect")
	return err
}

// Up brings up the lab of a scenario, with its servers running and its clients idle, and
// leaves it up.
func Up(ctx context.Context, sc *scenario.Scenario, o Options) (_ *lab.Lab, shell func(host string) string, err error) {
	p := &player{sc: sc, o: o, r: &result.Result{Scenario: sc.Name}, ended: map[string]substrate.Exit{}}
	if p.reg, err = o.Registry.Claim(); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, p.reg.Release()) }()
	if err := p.plan(); err != nil {
		return nil, nil, err
	}
	if p.lab, err = o.Substrate.Up(ctx, p.spec); err != nil {
		return nil, nil, fmt.Errorf("up: %w", err)
	}
	p.sw = NewSwitchClient(filepath.Join(p.spec.Out, substrate.Socket))
	defer p.sw.Close()
	if err := p.ready(ctx); err != nil {
		return nil, nil, errors.Join(err, p.lab.Down(context.WithoutCancel(ctx)))
	}
	p.reg.Kept = true
	return p.reg, p.lab.Shell, nil
}

// plan makes the folders and files of the lab.
func (p *player) plan() error {
	p.nodes = p.sc.Nodes(p.reg.Base)
	p.reg.Substrate, p.reg.Scenario, p.reg.Seed = p.o.Substrate.Name(), p.sc.Name, p.o.Seed
	p.reg.SetHosts(p.nodes)
	spec, err := plan(p.sc, p.reg, p.o.Bin, p.o.Seed, p.o.Images, p.o.LogAll)
	if err != nil {
		return err
	}
	p.spec = spec
	p.r.Topology = p.sc.Topology(p.o.Seed, p.reg.Base)
	for _, n := range p.nodes {
		p.r.Hosts = append(p.r.Hosts, result.Host{Name: n.Name, Role: n.Role, Addr: n.Addr.String(), Image: p.o.Images[n.Role]})
	}
	return p.reg.Save()
}

// plan makes the folders and files of a lab, and its Spec.
func plan(sc *scenario.Scenario, l *lab.Lab, bin string, seed uint64, images map[string]string, logAll bool) (*substrate.Spec, error) {
	nodes := sc.Nodes(l.Base)
	spec := &substrate.Spec{Name: l.Name, Dir: l.Dir, Bin: bin, MTU: sc.Fabric.MTU, Out: filepath.Join(l.Dir, substrate.SwitchName), Since: time.Now()}
	if spec.MTU == 0 {
		spec.MTU = 1500
	}
	if err := folder(spec.Out); err != nil {
		return nil, err
	}
	cfg, err := json.MarshalIndent(struct {
		Fabric fabric.Config `json:"fabric"`
	}{sc.Topology(seed, l.Base)}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(spec.Out, "config.json"), cfg, 0o644); err != nil {
		return nil, err
	}
	const out = substrate.OutArg
	spec.Switch = []string{"--config", out + "/config.json", "--log", out + "/decisions.jsonl", "--log-max", fmt.Sprint(switchLog)}
	if logAll {
		spec.Switch = append(spec.Switch, "--log-all", "--log-max", fmt.Sprint(16*switchLog))
	}
	keys := ""
	if sc.Security != "" && sc.Security != "off" {
		keys = filepath.Join(l.Dir, "keys")
		if err := makeKeys(bin, keys); err != nil {
			return nil, err
		}
	}
	peers := map[string]netip.Addr{}
	for _, n := range nodes {
		peers[n.Name] = n.Addr
	}
	for i, n := range nodes {
		h := substrate.Host{
			Name: n.Name, Role: n.Role, Image: images[n.Role], Net: n.Net, Addr: n.Addr, Gateway: n.Gateway,
			Out: filepath.Join(l.Dir, "host-"+n.Name), Keys: keys,
		}
		if err := folder(h.Out); err != nil {
			return nil, err
		}
		env := agent.Env{
			Role: n.Role, Case: sc.Name, Peers: peers, Gateway: n.Gateway, Route: scenario.Range, Traffic: sc.Of(n),
			// Each host has its own range of seeds, and each entry of its traffic one seed of it.
			Seed: seed + uint64(i)*1000, Limit: time.Duration(sc.Limit), Wait: true, Security: sc.Security, Capture: sc.Capture && n.Role == "client",
			TCP: n.Role == "server" && sc.HasTCP(n.Name),
		}
		h.Env = env.Vars()
		spec.Hosts = append(spec.Hosts, h)
	}
	return spec, nil
}

// folder makes a folder that the root of a container without capabilities can write to,
// even if another user owns it.
func folder(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return os.Chmod(dir, 0o777)
}

func (p *player) say(format string, args ...any) {
	if p.o.Say != nil {
		p.o.Say(format, args...)
	}
}

// foreign reports whether a host runs an image that is not the project's.
func (p *player) foreign(host string) bool {
	i := slices.IndexFunc(p.spec.Hosts, func(h substrate.Host) bool { return h.Name == host })
	return i >= 0 && p.spec.Hosts[i].Image != ""
}

// ready waits until the switch forwards and all hosts say that they are ready.
func (p *player) ready(ctx context.Context) error {
	if err := p.await(ctx, readyLimit, "the switch does not answer", func(ctx context.Context) bool { return p.sw.Healthy(ctx) == nil }); err != nil {
		return err
	}
	for _, h := range p.spec.Hosts {
		limit := readyLimit
		if h.Image != "" {
			limit = foreign
		}
		err := p.await(ctx, limit, "host "+h.Name+" is not ready", func(context.Context) bool {
			_, err := os.Stat(filepath.Join(h.Out, agent.Ready))
			return err == nil
		})
		if err != nil && (h.Image == "" || ctx.Err() != nil) {
			return err
		}
	}
	return nil
}

// errUnsupported ends a run because a host reported that it is not supported.
var errUnsupported = errors.New("not supported")

// await waits for a condition. It fails if a process ends whose end makes the condition
// impossible.
func (p *player) await(ctx context.Context, limit time.Duration, what string, is func(context.Context) bool) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if is(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-p.lab.Exits():
			p.ended[e.Host] = e
			if e.Code == agent.ExitUnsupported {
				return fmt.Errorf("%s: exit status 127: %w", e.Host, errUnsupported)
			}
			if p.foreign(e.Host) {
				continue // it may be done already
			}
			return fmt.Errorf("%s ended with exit status %d: %s", e.Host, e.Code, p.lastWords(ctx, e.Host))
		case <-deadline.C:
			return fmt.Errorf("%s within %v", what, limit)
		case <-tick.C:
		}
	}
}

// lastWords returns the last line of a host's log.
func (p *player) lastWords(ctx context.Context, host string) string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = p.lab.Log(ctx, host, &b)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return lines[len(lines)-1]
}
