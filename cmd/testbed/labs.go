package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/term"

	"github.com/uetkit/uetkit/testbed/lab"
	testrun "github.com/uetkit/uetkit/testbed/run"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
	"github.com/uetkit/uetkit/testbed/substrate/docker"
)

// up is the command up.
func (cfg *config) up(ctx context.Context, name string) error {
	images, err := cfg.checkImages()
	if err != nil {
		return err
	}
	if cfg.substrate == "sim" {
		return errors.New("up: the simulator has no lab to bring up; take docker or netns")
	}
	sc, err := scenario.Load(name)
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
	subs, why := cfg.usable(ctx)
	sub := pick(sc, subs, cfg.substrate)
	if sub == nil {
		for _, err := range why {
			fmt.Fprintf(cfg.stderr, "testbed: %s\n", oneLine(err))
		}
		return exit(exitUnsupported)
	}
	if cfg.seed == 0 {
		cfg.seed = uint64(rand.Uint32()) + 1
	}
	cfg.noBench = true
	p, err := cfg.prepare(ctx, reg, map[string]substrate.Substrate{sub.Name(): sub})
	if err != nil {
		return err
	}
	l, shell, err := testrun.Up(ctx, sc, testrun.Options{Substrate: sub, Registry: reg, Bin: p.bin, Seed: cfg.seed, Images: images, Say: cfg.say})
	if err != nil {
		return &failure{err}
	}
	fmt.Fprintf(cfg.stdout, "%s is up: %s on %s, seed %d\n", l.Name, sc.Name, sub.Name(), cfg.seed)
	program := "/uetperf"
	if sub.Name() == "netns" {
		program = filepath.Join(p.bin, "uetperf")
	}
	var server string
	for _, h := range l.Hosts {
		if h.Role == "server" && server == "" {
			server = h.Addr.String()
		}
		fmt.Fprintf(cfg.stdout, "  %-8s %-7s %s\n", h.Name, h.Role, h.Addr)
	}
	for _, h := range l.Hosts {
		if h.Role == "client" {
			fmt.Fprintf(cfg.stdout, "try:   %s %s ping %s\n", shell(h.Name), program, server)
			break
		}
	}
	socket := filepath.Join(l.Dir, substrate.SwitchName, substrate.Socket)
	fmt.Fprintf(cfg.stdout, "       curl --unix-socket %s http://switch/stats\n", socket)
	fmt.Fprintf(cfg.stdout, "       testbed watch\n       testbed down\n")
	return nil
}

// down is the command down.
func (cfg *config) down(ctx context.Context, images bool) error {
	reg, err := cfg.registry()
	if err != nil {
		return err
	}
	for _, l := range reg.List() {
		if reg.Running(l.Name) {
			fmt.Fprintf(cfg.stderr, "testbed: %s (%s) is left alone: process %d runs it\n", l.Name, l.Scenario, l.PID)
			continue
		}
		if err := reg.Forget(l.Name); err != nil {
			return &failure{err}
		}
		fmt.Fprintf(cfg.stdout, "%s (%s on %s) goes down\n", l.Name, l.Scenario, l.Substrate)
	}
	m := map[string]substrate.Substrate{}
	for _, s := range labSubstrates() {
		m[s.Name()] = s
	}
	if err := cfg.sweep(ctx, reg, m, reg.Owned); err != nil {
		return err
	}
	if images {
		if err := cfg.removeImages(ctx, reg); err != nil {
			return err
		}
	}
	if err := reg.Remove(); err != nil && !errors.Is(err, lab.ErrInUse) {
		return &failure{err}
	}
	return nil
}

// removeImages removes the images of the testbed, unless a lab uses them.
func (cfg *config) removeImages(ctx context.Context, reg *lab.Registry) error {
	if labs := reg.List(); len(labs) > 0 {
		return &failure{fmt.Errorf("--images: %s (%s) uses them: end it first", labs[0].Name, labs[0].Scenario)}
	}
	removed, err := docker.RemoveImages(ctx)
	for _, name := range removed {
		fmt.Fprintf(cfg.stdout, "image %s is removed\n", name)
	}
	if err != nil && !errors.Is(err, substrate.ErrUnsupported) { // no engine, no images: sweep has said it
		return &failure{err}
	}
	return nil
}

// watchEvery is the interval between the looks of watch.
const watchEvery = 500 * time.Millisecond

// watch is the command watch.
func (cfg *config) watch(ctx context.Context, once bool) error {
	reg, err := cfg.registry()
	if err != nil {
		return err
	}
	screen := false
	if f, ok := cfg.stdout.(*os.File); ok {
		screen = term.IsTerminal(int(f.Fd()))
	}
	before := map[string]seenLab{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		var b strings.Builder
		labs := reg.List()
		if len(labs) == 0 {
			fmt.Fprintln(&b, "no lab is up; `testbed up SCENARIO` brings one up")
		}
		for _, l := range labs {
			before[l.Name] = show(ctx, &b, l, before[l.Name])
		}
		if screen && !once {
			fmt.Fprint(cfg.stdout, "\x1b[H\x1b[2J")
		}
		_, _ = io.WriteString(cfg.stdout, b.String())
		if once {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // its normal end
		case <-tick.C:
		}
	}
}

// A seenLab is the state of a lab when watch last looked.
type seenLab struct {
	at    time.Duration
	lines map[string]uint64 // bytes sent
}

// show prints what a lab does.
func show(ctx context.Context, w io.Writer, l lab.Lab, before seenLab) seenLab {
	fmt.Fprintf(w, "%s: %s on %s, seed %d, up for %v\n", l.Name, l.Scenario, l.Substrate, l.Seed, time.Since(l.Started).Round(time.Second))
	var hosts []string
	for _, h := range l.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s (%s) %s", h.Name, h.Role, h.Addr))
	}
	fmt.Fprintf(w, "hosts: %s\n", strings.Join(hosts, ", "))
	c := testrun.NewSwitchClient(filepath.Join(l.Dir, substrate.SwitchName, substrate.Socket))
	defer c.Close()
	st, err := c.Stats(ctx)
	if err != nil {
		fmt.Fprintf(w, "the switch does not answer: %s\n\n", oneLine(err))
		return seenLab{}
	}
	state := "no packet yet"
	if st.Fabric.Started != nil {
		state = fmt.Sprintf("%.1f s on the timeline", time.Duration(st.Fabric.Now-*st.Fabric.Started).Seconds())
	}
	fmt.Fprintf(w, "switch: %s, %d packets in, %d out, %.0f packets/s, late %v (p99), lost by itself %d\n",
		state, st.Fabric.Received, st.Fabric.Sent, st.Health.PPS, st.Health.LateP99.Round(time.Microsecond), st.Health.Drops)
	now := seenLab{time.Duration(st.Fabric.Now), map[string]uint64{}}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"line", "packets", "Mbit/s now", "waiting KiB", "most KiB", "decisions"})
	for _, name := range slices.Sorted(maps.Keys(st.Fabric.Lines)) {
		line := st.Fabric.Lines[name]
		now.lines[name] = line.SentB
		rate := 0.0
		if dt := (now.at - before.at).Seconds(); before.lines != nil && dt > 0 {
			rate = float64(line.SentB-before.lines[name]) * 8 / dt / 1e6
		}
		var whys []string
		for _, why := range slices.Sorted(maps.Keys(line.Whys)) {
			if n := line.Whys[why]; n > 0 && why != "passed" {
				whys = append(whys, fmt.Sprintf("%s %d", why, n))
			}
		}
		t.AppendRow(table.Row{name, line.Packets, fmt.Sprintf("%.1f", rate), line.Waiting >> 10, line.MaxWait >> 10, strings.Join(whys, ", ")})
	}
	fmt.Fprintf(w, "%s\n", t.Render())
	for _, warning := range st.Health.Warnings {
		fmt.Fprintln(w, warning)
	}
	fmt.Fprintln(w)
	return now
}
