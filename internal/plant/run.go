package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A Verdict is the result of a plant. Only Seen is good.
type Verdict string

const (
	Seen     Verdict = "seen"         // the cited test failed by its own assertion
	Survived Verdict = "SURVIVED"     // the cited test passed
	Panicked Verdict = "PANICKED"     // the test panicked, so it did not say what is wrong
	Hung     Verdict = "HUNG"         // it did not end in time
	Died     Verdict = "DIED"         // the test program ended without a failed test
	Broken   Verdict = "BROKEN"       // the entry is wrong, or does not build
	Red      Verdict = "RED"          // the cited test fails, or does not run, without the bug
	Cut      Verdict = "not finished" // the budget ended first
)

// A Result is the verdict on a plant. Unless it is Seen it has the output.
type Result struct {
	Plant   *Plant
	Verdict Verdict
	Output  string
	Took    time.Duration
}

// A runner builds and runs the cited tests, with and without the bug. `go build -overlay`
// lays the bug over the source, so nothing is copied, and the build cache serves the
// packages that the bug does not touch.
type runner struct {
	root  string
	tmp   string
	limit time.Duration // for one run of a test

	mu    sync.Mutex
	built map[string]*clean // test binaries, by package and use of the race detector
	green map[string]*clean // results without a bug, by cited test
}

// A clean is the result of a step that is done once, without any bug.
type clean struct {
	once sync.Once
	bin  string
	err  error
}

// once returns the result with that name. The first call computes it.
func (r *runner) once(m map[string]*clean, name string, do func(*clean)) *clean {
	r.mu.Lock()
	c := m[name]
	if c == nil {
		c = new(clean)
		m[name] = c
	}
	r.mu.Unlock()
	c.once.Do(func() { do(c) })
	return c
}

func newRunner(root, tmp string, limit time.Duration) *runner {
	return &runner{root: root, tmp: tmp, limit: limit, built: map[string]*clean{}, green: map[string]*clean{}}
}

// try plants one bug and runs the cited test.
func (r *runner) try(ctx context.Context, p *Plant) Result {
	start := time.Now()
	v, out := r.verdict(ctx, p)
	if v != Seen && ctx.Err() != nil {
		v = Cut
	}
	return Result{Plant: p, Verdict: v, Output: out, Took: time.Since(start)}
}

// verdict runs the cited test without the bug, then with it. It also returns the output.
func (r *runner) verdict(ctx context.Context, p *Plant) (Verdict, string) {
	src, err := p.planted(r.root)
	if err != nil {
		return Broken, err.Error()
	}
	if err := r.passes(ctx, p); err != nil {
		return Red, err.Error()
	}
	dir, err := os.MkdirTemp(r.tmp, "plant")
	if err != nil {
		return Broken, err.Error()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := writeOverlay(dir, filepath.Join(r.root, filepath.FromSlash(p.File)), src)
	if err != nil {
		return Broken, err.Error()
	}
	bin := filepath.Join(dir, "planted.test")
	if err := r.build(ctx, bin, p, "-overlay", overlay); err != nil {
		return Broken, err.Error()
	}
	out, hung, err := r.run(ctx, bin, p)
	return read(out, hung, err, p.Panics), out
}

// writeOverlay writes the file with the bug and the description of the overlay to dir.
func writeOverlay(dir, file string, src []byte) (string, error) {
	planted := filepath.Join(dir, "planted_"+filepath.Base(file))
	if err := os.WriteFile(planted, src, 0o644); err != nil {
		return "", err
	}
	desc, err := json.Marshal(map[string]map[string]string{"Replace": {file: planted}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, desc, 0o644)
}

// passes returns an error unless the cited test passes without the bug. A package is built
// once for all plants that cite it, and a test runs once.
func (r *runner) passes(ctx context.Context, p *Plant) error {
	pkg := fmt.Sprintf("%s race=%v", p.Package, p.Race)
	name := fmt.Sprintf("%s %s %q", pkg, p.Run, p.Args)
	c := r.once(r.green, name, func(c *clean) {
		b := r.once(r.built, pkg, func(b *clean) {
			f, err := os.CreateTemp(r.tmp, "clean*.test")
			if err != nil {
				b.err = err
				return
			}
			b.bin = f.Name()
			_ = f.Close()
			b.err = r.build(ctx, b.bin, p)
		})
		if b.err != nil {
			c.err = b.err
			return
		}
		out, hung, err := r.run(ctx, b.bin, p, "-test.v")
		switch {
		case hung:
			c.err = fmt.Errorf("without the bug: no end in %v\n%s", r.limit, out)
		case err != nil:
			c.err = fmt.Errorf("without the bug: %w\n%s", err, out)
		case !passed.MatchString(out):
			c.err = fmt.Errorf("without the bug: no test passed\n%s", out)
		case skipped.MatchString(out):
			c.err = fmt.Errorf("without the bug: a test was skipped\n%s", out)
		}
	})
	return c.err
}

// build builds the tests of the plant's package.
func (r *runner) build(ctx context.Context, bin string, p *Plant, flags ...string) error {
	args := append([]string{"test", "-c", "-o", bin}, flags...)
	if p.Race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, p.Package)...)
	cmd.Dir = r.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(cmd.Args[1:], " "), err, out)
	}
	return nil
}

// run runs the cited test in the folder where go test would run it.
func (r *runner) run(ctx context.Context, bin string, p *Plant, flags ...string) (out string, hung bool, err error) {
	// The test's own limit ends first, because it prints the stacks of all goroutines.
	ctx, cancel := context.WithTimeout(ctx, r.limit+5*time.Second)
	defer cancel()
	args := append([]string{"-test.run=" + p.Run, "-test.count=1", "-test.timeout=" + r.limit.String()}, flags...)
	cmd := exec.CommandContext(ctx, bin, append(args, p.Args...)...)
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(p.Package))
	cmd.WaitDelay = time.Second
	b, err := cmd.CombinedOutput()
	return string(b), errors.Is(ctx.Err(), context.DeadlineExceeded) || timedOut.Match(b), err
}

var (
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out`)
	panicked = regexp.MustCompile(`(?m)^(panic: |fatal error: )|\[rapid\] panic after`)
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: `)
	passed   = regexp.MustCompile(`(?m)^\s*--- PASS: `)
	skipped  = regexp.MustCompile(`(?m)^\s*--- SKIP: `)
)

// read decides the verdict from the output of a test with a bug.
func read(out string, hung bool, err error, panics bool) Verdict {
	switch {
	case hung:
		return Hung
	case err == nil:
		return Survived
	case panicked.MatchString(out) && !panics:
		return Panicked
	case panicked.MatchString(out), failed.MatchString(out):
		return Seen
	}
	return Died
}
