// Command interop plays uetkit against another implementation of UET, the Python program in peer, and
// holds every byte of every message against what was sent.
//
//	go run ./testbed/interop [-seed N] [-n NUMBER] [-only TEXT] [-list] [-dump FOLDER]
//
// Each line is one combination or case, the last the summary. Exit status: 0 if all passed, 1 if one
// failed or could not be played, 2 for wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 0, "what is random; 0 takes a new one")
	n := flag.Int("n", 480, "how many of the combinations; there are 480")
	only := flag.String("only", "", "only combinations and cases whose name contains this")
	list := flag.Bool("list", false, "only list them")
	workers := flag.Int("workers", 2, "pairs of processes at once")
	flag.StringVar(&dumps, "dump", "", "a `folder` for the packets of each play, for peer/show.py")
	flag.Parse()
	if flag.NArg() > 0 || *workers < 1 || *workers > maxWorkers {
		flag.Usage()
		os.Exit(2)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	plays := plan(*seed, *n, *only)
	if *list {
		for _, p := range plays {
			fmt.Println(p.name)
		}
		return
	}
	if err := tools(); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	if code, ok, err := isolate(); ok || code != 0 {
		os.Exit(code)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	if err := playAll(plays, *seed, *workers, func(line string) { fmt.Println(line) }); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
}

// dumps is the folder for packets, or "".
var dumps string

// A play is a combination or a case of its own.
type play struct {
	name string
	note string // what the seed chose
	run  func(p *peer, worker int, id string) error
	// wrong says, of a case that uetkit is known to fail, what is wrong.
	wrong string
}

// plan is what is to be played.
func plan(seed uint64, n int, only string) []play {
	var plays []play
	for _, c := range slices.Concat(cases, memoryCases) {
		plays = append(plays, play{name: c.name, run: c.run, wrong: c.wrong})
	}
	for _, m := range memories(seed) {
		plays = append(plays, play{name: m.String(), note: m.choices(), run: m.run})
	}
	for _, c := range rendezvous(seed) {
		plays = append(plays, play{name: c.String(), note: c.choices(), run: c.run})
	}
	all := combos(seed)
	if only == "" {
		all = pick(all, n, seed)
	}
	for _, c := range all {
		plays = append(plays, play{name: c.String(), note: c.choices(), run: c.run})
	}
	if only == "" {
		return plays
	}
	var some []play
	for _, p := range plays {
		if strings.Contains(p.name, only) {
			some = append(some, p)
		}
	}
	return some
}

// errUnsupported says that one side does not have what a play needs.
var errUnsupported = errors.New("unsupported")

// playAll plays all, some at once, and reports a line each, and in the end the summary.
func playAll(plays []play, seed uint64, workers int, line func(string)) error {
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(dir); err != nil {
		return err
	}
	var mu sync.Mutex
	next, passed, failed, unsupported, known := 0, 0, 0, 0, 0
	begun := time.Now()
	var group sync.WaitGroup
	var broken []error
	for w := range workers {
		group.Go(func() {
			var p *peer
			defer func() {
				if p != nil {
					_ = p.stop()
				}
			}()
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(plays) {
					return
				}
				if p == nil {
					var err error
					if p, err = startPeer(dir); err != nil {
						mu.Lock()
						broken = append(broken, err)
						mu.Unlock()
						return
					}
				}
				start := time.Now()
				err := plays[i].run(p, w, fmt.Sprint("e", i))
				took := time.Since(start)
				mu.Lock()
				word := "ok"
				switch {
				case errors.Is(err, errUnsupported):
					unsupported++
					word = "n/a"
				case err != nil && plays[i].wrong != "":
					known++
					word, err = "known", fmt.Errorf("%s: %w", plays[i].wrong, err)
				case err != nil:
					failed++
					word = "FAIL"
				default:
					passed++
				}
				text := fmt.Sprintf("%-5s %5.2f s  %s", word, took.Seconds(), plays[i].name)
				if plays[i].note != "" {
					text += " (" + plays[i].note + ")"
				}
				if err != nil {
					text += "\n     " + strings.ReplaceAll(err.Error(), "\n", "\n     ")
				}
				line(text)
				mu.Unlock()
				if err != nil && !errors.Is(err, errUnsupported) { // what it left behind concerns nobody else
					_ = p.stop()
					p = nil
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(broken...); err != nil {
		return err
	}
	summary := fmt.Sprintf("%d passed, %d failed", passed, failed)
	if known > 0 {
		summary += fmt.Sprintf(", %d with a known fault", known)
	}
	if unsupported > 0 {
		summary += fmt.Sprintf(", %d unsupported", unsupported)
	}
	line(fmt.Sprintf("%s; seed %d, %.0f s", summary, seed, time.Since(begun).Seconds()))
	if failed > 0 {
		return fmt.Errorf("%d failed", failed)
	}
	return nil
}
