package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/result"
	testrun "github.com/uetkit/uetkit/testbed/run"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
	"github.com/uetkit/uetkit/testbed/substrate/docker"
	"github.com/uetkit/uetkit/testbed/substrate/netns"
)

// labSubstrates are the substrates with labs, in the order in which auto prefers them.
func labSubstrates() []substrate.Substrate {
	return []substrate.Substrate{&docker.Substrate{}, netns.Substrate{}}
}

// chosen reports whether a scenario is one of --only.
func chosen(sc *scenario.Scenario, only []string) bool {
	return len(only) == 0 || slices.ContainsFunc(only, func(o string) bool {
		ok, _ := path.Match(o, sc.Name)
		return ok || slices.Contains(sc.Tags, o)
	})
}

// scenarios loads the named scenarios, or all, and returns those that --only selects.
func (cfg *config) scenarios(names []string) ([]*scenario.Scenario, error) {
	for _, o := range cfg.only {
		if _, err := path.Match(o, ""); err != nil {
			return nil, fmt.Errorf("--only %q is no pattern: %w", o, err)
		}
	}
	all := len(names) == 0
	if all {
		names = scenario.Names()
	}
	var out []*scenario.Scenario
	for _, n := range names {
		sc, err := scenario.Load(n)
		if err != nil {
			return nil, err
		}
		long := slices.Contains(sc.Tags, "long")
		if chosen(sc, cfg.only) && (!long || !all || len(cfg.only) > 0 && chosen(sc, cfg.only)) {
			out = append(out, sc)
		}
	}
	if len(out) == 0 {
		return nil, cfg.noneChosen()
	}
	return out, nil
}

// noneChosen is the error about an --only that selects nothing.
func (cfg *config) noneChosen() error {
	return fmt.Errorf("--only: no scenario has the name or tag %s: `testbed list` shows all with their tags", strings.Join(cfg.only, " or "))
}

func (cfg *config) say(format string, args ...any) {
	if !cfg.quiet {
		fmt.Fprintf(cfg.stderr, format+"\n", args...)
	}
}

// usable returns the requested substrates that can be used here. why has the reason for
// each of the others.
func (cfg *config) usable(ctx context.Context) (subs []substrate.Substrate, why map[string]error) {
	why = map[string]error{}
	for _, s := range labSubstrates() {
		if cfg.substrate != s.Name() && cfg.substrate != "auto" {
			continue
		}
		if err := s.Available(ctx); err != nil {
			why[s.Name()] = err
			continue
		}
		subs = append(subs, s)
	}
	return subs, why
}

// runScenarios is the command run.
func (cfg *config) runScenarios(ctx context.Context, names []string) error {
	images, err := cfg.checkImages()
	if err != nil {
		return err
	}
	list, err := cfg.scenarios(names)
	if err != nil {
		return err
	}
	reg, err := cfg.registry()
	if err != nil {
		return err
	}
	release, err := reg.Use()
	if err != nil {
		return &failure{err}
	}
	defer release()
	if err := os.MkdirAll(cfg.out, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if cfg.seed == 0 {
		cfg.seed = uint64(rand.Uint32()) + 1
	}
	subs, why := cfg.usable(ctx)
	if cfg.substrate != "sim" && len(subs) == 0 && cfg.substrate != "auto" {
		fmt.Fprintf(cfg.stderr, "testbed: %s\n", oneLine(why[cfg.substrate]))
		return exit(exitUnsupported)
	}
	for _, s := range []string{"docker", "netns"} {
		if why[s] != nil {
			cfg.say("%s: not used: %s", s, oneLine(why[s]))
		}
	}
	on, ready, err := cfg.prepareFor(ctx, reg, list, subs, cfg.prepare)
	if err != nil {
		return err
	}
	bin, pps, phases := ready.bin, ready.pps, ready.phases
	results := cfg.playAll(ctx, list, func(i int, say func(string, ...any)) *result.Result {
		sc := list[i]
		o := testrun.Options{Registry: reg, Bin: bin, Out: cfg.out, Seed: cfg.seed, Images: images, Keep: cfg.keep, LogAll: cfg.switchLog, SwitchPPS: pps, Say: say}
		sub := "sim"
		if on[i] != nil {
			o.Substrate, sub = on[i], on[i].Name()
		} else {
			o.Played = played(say)
		}
		o.Command = cfg.command(sc, sub)
		say("%s on %s, seed %d", sc.Name, sub, cfg.seed)
		r := testrun.Scenario(ctx, sc, o)
		if on[i] != nil {
			r.Phases = append(slices.Clone(phases), r.Phases...)
		}
		return r
	})
	if err := cfg.writeReports(cfg.out, results); err != nil {
		return err
	}
	verdicts(cfg.stdout, results, cfg.out)
	if ctx.Err() != nil {
		return exit(exitInterrupted)
	}
	return code(results)
}

// prepareFor chooses the substrate of each scenario, nil for the simulator, and prepares those that
// are needed. With auto, one that cannot be prepared is left out, and the next is taken.
func (cfg *config) prepareFor(
	ctx context.Context, reg *lab.Registry, list []*scenario.Scenario, subs []substrate.Substrate,
	prepare func(context.Context, *lab.Registry, map[string]substrate.Substrate) (prepared, error),
) (on []substrate.Substrate, p prepared, err error) {
	on = make([]substrate.Substrate, len(list))
	for {
		needed := map[string]substrate.Substrate{}
		for i, sc := range list {
			if on[i] = pick(sc, subs, cfg.substrate); on[i] != nil {
				needed[on[i].Name()] = on[i]
			}
		}
		if len(needed) == 0 {
			return on, prepared{}, nil
		}
		p, err = prepare(ctx, reg, needed)
		var bad *unprepared
		if err == nil || cfg.substrate != "auto" || ctx.Err() != nil || !errors.As(err, &bad) {
			return on, p, err
		}
		next := "the simulator"
		subs = slices.DeleteFunc(slices.Clone(subs), func(s substrate.Substrate) bool { return s.Name() == bad.on })
		if len(subs) > 0 {
			next = subs[0].Name()
		}
		cfg.say("%s: not used, but %s: %s", bad.on, next, oneLine(bad.error))
	}
}

// prepared is what labs are made with.
type prepared struct {
	bin    string  // folder of the programs
	pps    float64 // what the switch forwards
	phases []result.Phase
}

// An unprepared substrate is one that cannot be used after all.
type unprepared struct {
	on string
	error
}

func (u *unprepared) Unwrap() error { return u.error }

// pick returns the substrate of a scenario, nil for the simulator.
func pick(sc *scenario.Scenario, subs []substrate.Substrate, asked string) substrate.Substrate {
	if asked == "sim" {
		return nil
	}
	for _, s := range subs {
		if asked != "auto" || len(sc.Substrates) == 0 || slices.Contains(sc.Substrates, s.Name()) {
			return s
		}
	}
	return nil
}

// command returns the command line that repeats a run.
func (cfg *config) command(sc *scenario.Scenario, sub string) []string {
	name := sc.Name
	if sc.Path != "" {
		name = sc.Path
	}
	c := []string{"testbed", "run", name, "--substrate", sub, "--seed", strconv.FormatUint(cfg.seed, 10)}
	for _, i := range cfg.images {
		c = append(c, "--image", i)
	}
	return c
}

// prepare removes leftovers of earlier runs, builds the programs and images, and measures
// the switch.
func (cfg *config) prepare(ctx context.Context, reg *lab.Registry, subs map[string]substrate.Substrate) (p prepared, err error) {
	begun := time.Now()
	if err := cfg.sweep(ctx, reg, subs, reg.Owned); err != nil {
		return p, err
	}
	first := "netns" // the one that programs are missing for
	_, containers := subs["docker"]
	if containers {
		first = "docker"
	}
	if p.bin, err = cfg.binaries(ctx, reg, containers); err != nil {
		return p, &failure{&unprepared{first, err}}
	}
	for name, s := range subs {
		if err := s.Prepare(ctx, p.bin, sayer{cfg}); err != nil {
			return p, &failure{&unprepared{name, err}}
		}
	}
	p.phases = append(p.phases, result.Phase{Name: "build", Took: time.Since(begun)})
	if !cfg.noBench {
		begun = time.Now()
		if p.pps, err = bench(ctx, p.bin); err != nil {
			cfg.say("the switch was not measured: %s", oneLine(err))
		} else {
			cfg.say("the switch forwards %.0f packets/s per core here", p.pps)
		}
		p.phases = append(p.phases, result.Phase{Name: "bench", Took: time.Since(begun)})
	}
	return p, nil
}

// sayer writes lines as progress.
type sayer struct{ cfg *config }

func (s sayer) Write(b []byte) (int, error) {
	s.cfg.say("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// sweep removes the leftovers of labs without an owner.
func (cfg *config) sweep(ctx context.Context, reg *lab.Registry, subs map[string]substrate.Substrate, owned func(string) bool) error {
	for _, s := range subs {
		removed, err := s.Leftovers(ctx, reg.Prefix, owned)
		for _, r := range removed {
			cfg.say("removed what was left: %s", r)
		}
		if errors.Is(err, substrate.ErrUnsupported) {
			cfg.say("%s", oneLine(err))
			continue
		}
		if err != nil {
			return &failure{fmt.Errorf("remove what was left: %w", err)}
		}
	}
	reg.Sweep(owned)
	return nil
}

// bench measures how much the switch forwards per second and core on this machine at
// present.
func bench(ctx context.Context, bin string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "uetswitch"), "bench", "--quick", "-J").Output()
	if err != nil {
		var e *exec.ExitError
		if errors.As(err, &e) {
			return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(e.Stderr)))
		}
		return 0, err
	}
	var r struct {
		Speeds []struct {
			PPS float64 `json:"pps"`
		} `json:"speeds"`
	}
	if err := json.Unmarshal(out, &r); err != nil || len(r.Speeds) == 0 {
		return 0, fmt.Errorf("uetswitch bench printed no speeds: %v", err)
	}
	return r.Speeds[0].PPS, nil
}

// playAll plays scenarios, several at once if asked for. It begins no further one after ctx
// ends.
func (cfg *config) playAll(ctx context.Context, list []*scenario.Scenario, play func(i int, say func(string, ...any)) *result.Result) []*result.Result {
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		results = make([]*result.Result, len(list))
		slots   = make(chan struct{}, cfg.parallel)
	)
	for i, sc := range list {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			say := func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				if cfg.parallel > 1 {
					format = fmt.Sprintf("%-12s ", sc.Name) + format
				}
				cfg.say(format, args...)
			}
			r := play(i, say)
			reason := ""
			if r.Reason != "" {
				reason = ": " + r.Reason
			}
			say("%s %s in %.1f s%s", strings.ToUpper(string(r.Verdict)), sc.Name, r.Took.Seconds(), reason)
			mu.Lock()
			defer mu.Unlock()
			results[i] = r
		})
	}
	wg.Wait()
	return slices.DeleteFunc(results, func(r *result.Result) bool { return r == nil })
}

// code returns the exit status of the results.
func code(results []*result.Result) error {
	judged := false
	for _, r := range results {
		switch r.Verdict {
		case result.Fail, result.Error:
			return exit(exitFailed)
		case result.Pass, result.Inconclusive:
			judged = true
		}
	}
	if !judged {
		return exit(exitUnsupported)
	}
	return nil
}
