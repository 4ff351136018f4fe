// Plant plants bugs, one at a time, and checks that the test that is cited for the broken
// rule fails. A test that was never seen to fail proves nothing.
//
//	go run ./internal/plant -for 6m           some plants, drawn by a printed seed;
//	                                          each directory has its share
//	go run ./internal/plant -seed 7 -for 6m   the same plants again
//	go run ./internal/plant -all              all plants
//	go run ./internal/plant -room cq          those of table/cq.toml
//	go run ./internal/plant -id cq-close-of-one this one
//	go run ./internal/plant -list             list the plants
//
// A bug is an entry of table/*.toml: a text in one file, another text that changes one
// condition, and a test. The test must pass without the bug. With the bug it must fail by
// an assertion: a panic, a hang or a failed build is not enough. An entry whose text no
// longer occurs is an error, which go test ./internal/plant finds, too.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// command runs the program with the given arguments.
func command(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("plant", flag.ContinueOnError)
	fs.SetOutput(out)
	seed := fs.Uint64("seed", 0, "draws the plants; 0: any")
	budget := fs.Duration("for", 6*time.Minute, "begin none after that `time`, and end; not with -all, -room or -id")
	limit := fs.Duration("limit", time.Minute, "for one run of a test")
	all := fs.Bool("all", false, "run all plants")
	room := fs.String("room", "", "run those of these `rooms`, a,b")
	id := fs.String("id", "", "run those of these `ids`, a,b")
	list := fs.Bool("list", false, "list the plants and run none")
	parallel := fs.Int("parallel", runtime.NumCPU(), "plants at once")
	if err := fs.Parse(args); err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	plants, err := load(filepath.Join(root, "internal/plant/table"))
	if err != nil {
		return err
	}
	switch some := *room != "" || *id != ""; {
	case some:
		if plants, err = selected(plants, *room, *id); err != nil {
			return err
		}
		fallthrough
	case *all:
		*budget = 0
	case *list:
	default:
		for *seed == 0 {
			*seed = rand.Uint64N(1 << 32)
		}
		plants = draw(plants, *seed)
		fmt.Fprintf(out, "seed %d, %v of %d plants\n", *seed, *budget, len(plants))
	}
	if *list {
		for _, p := range plants {
			fmt.Fprintf(out, "%-6s %-34s %s %s\n       %s\n", p.Room, p.ID, p.Package, p.Run, p.Why)
		}
		return nil
	}
	tmp, err := os.MkdirTemp("", "plants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if *budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *budget)
		defer cancel()
	}
	r := newRunner(root, tmp, *limit)
	counts := map[Verdict]int{}
	tryAll(ctx, r, plants, *parallel, func(res Result) {
		counts[res.Verdict]++
		report(out, res)
	})
	return summary(out, len(plants), counts)
}

// moduleRoot returns the root folder of the module in the current folder.
func moduleRoot(ctx context.Context) (string, error) {
	b, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	mod := strings.TrimSpace(string(b))
	if filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("no module here")
	}
	return filepath.Dir(mod), nil
}

// selected returns the plants of the named rooms and ids.
func selected(plants []Plant, rooms, ids string) ([]Plant, error) {
	var some []Plant
	for _, name := range strings.Split(rooms+","+ids, ",") {
		n := len(some)
		for _, p := range plants {
			if name == p.Room || name == p.ID {
				some = append(some, p)
			}
		}
		if name != "" && len(some) == n {
			return nil, fmt.Errorf("no plant %s", name)
		}
	}
	return some, nil
}

// draw orders the plants by the seed. The directories of the changed files take turns, so
// that each has its share of any first part, and the directory with the most plants does
// not use up the time of the others.
func draw(plants []Plant, seed uint64) []Plant {
	rnd := rand.New(rand.NewPCG(seed, seed))
	byDir := map[string][]Plant{}
	var dirs []string
	for _, p := range plants {
		dir := path.Dir(p.File)
		if byDir[dir] == nil {
			dirs = append(dirs, dir)
		}
		byDir[dir] = append(byDir[dir], p)
	}
	rnd.Shuffle(len(dirs), func(i, j int) { dirs[i], dirs[j] = dirs[j], dirs[i] })
	for _, dir := range dirs {
		some := byDir[dir]
		rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	}
	drawn := make([]Plant, 0, len(plants))
	for turn := 0; len(drawn) < len(plants); turn++ {
		for _, dir := range dirs {
			if turn < len(byDir[dir]) {
				drawn = append(drawn, byDir[dir][turn])
			}
		}
	}
	return drawn
}

// tryAll tries plants in order, several at once, until the context ends. It calls tell for
// each, one at a time.
func tryAll(ctx context.Context, r *runner, plants []Plant, parallel int, tell func(Result)) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	next := make(chan *Plant)
	for range parallel {
		wg.Go(func() {
			for p := range next {
				res := r.try(ctx, p)
				mu.Lock()
				tell(res)
				mu.Unlock()
			}
		})
	}
	for i := range plants {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- &plants[i]:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
}

// report prints the result of a plant.
func report(out io.Writer, res Result) {
	p := res.Plant
	fmt.Fprintf(out, "%-12s %5.1f s  %-34s %s %s\n", res.Verdict, res.Took.Seconds(), p.ID, p.Package, p.Run)
	if res.Verdict == Seen || res.Verdict == Cut {
		return
	}
	fmt.Fprintf(out, "    %s: %s\n", p.File, p.Why)
	lines := strings.Split(strings.TrimSpace(res.Output), "\n")
	const most = 40
	for _, l := range lines[:min(len(lines), most)] {
		fmt.Fprintf(out, "    | %s\n", l)
	}
	if len(lines) > most {
		fmt.Fprintf(out, "    | and %d lines more\n", len(lines)-most)
	}
}

// summary prints the counts. It returns an error unless every plant that was tried was
// seen, and at least one was.
func summary(out io.Writer, n int, counts map[Verdict]int) error {
	judged, bad := 0, 0
	for v, k := range counts {
		if v != Cut {
			judged += k
		}
		if v != Cut && v != Seen {
			bad += k
		}
	}
	fmt.Fprintf(out, "%d of %d plants judged, %d seen, %d not\n", judged, n, counts[Seen], bad)
	switch {
	case bad > 0:
		return fmt.Errorf("%d plants were not seen by the test that is cited for them", bad)
	case judged == 0:
		return fmt.Errorf("no plant was judged")
	}
	return nil
}
