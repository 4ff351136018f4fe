package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/testbed/stranger/commands"
)

func main() {
	list := flag.Bool("list", false, "only list the commands of the pages, and what is not run and why")
	only := flag.String("only", "", "only commands that contain this; the others before them may be missed")
	limit := flag.Duration("limit", 10*time.Second, "when a command of a page is interrupted")
	flag.Parse()
	if flag.NArg() > 0 || *limit <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bad, err := run(ctx, *list, *only, *limit)
	if err != nil {
		fmt.Fprintln(os.Stderr, "stranger:", err)
	}
	if err != nil || bad > 0 {
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, list bool, only string, limit time.Duration) (bad int, err error) {
	var lines []line
	for _, page := range first {
		data, err := os.ReadFile(page)
		if err != nil {
			return 0, fmt.Errorf("run it in the top folder of the repository: %w", err)
		}
		lines = append(lines, extract(page, string(data))...)
	}
	all, err := commands.Read(".")
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if !slices.Contains(first, c.Page) {
			lines = append(lines, line{c})
		}
	}
	if list {
		for _, l := range lines {
			what := "run"
			if why := l.skip(); why != "" {
				what = "not run, " + why
			}
			fmt.Printf("%s:%d: %s: %s\n", l.Page, l.Line, l.Text, what)
		}
		return 0, nil
	}
	s, err := settle(ctx, limit)
	if err != nil {
		return 0, err
	}
	defer s.leave()
	if err := s.firewall(ctx); err != nil {
		return 0, err
	}
	if err := s.families(ctx); err != nil {
		return 0, err
	}
	ran, skipped := 0, 0
	before := map[string]bool{}
	for _, l := range lines {
		if !strings.Contains(l.Text, only) || before[l.filled()] {
			continue
		}
		before[l.filled()] = !strings.Contains(l.Text, "./mine") // which somebody changed meanwhile
		why := l.skip()
		if name, _, _ := strings.Cut(l.Text, " "); why == "" && name == "tshark" {
			if _, err := exec.LookPath(name); err != nil {
				why = "it is not installed"
			}
		}
		if why != "" {
			skipped++
			fmt.Printf("not run     %s:%d: %s (%s)\n", l.Page, l.Line, l.Text, why)
			continue
		}
		if ctx.Err() != nil {
			return bad, ctx.Err()
		}
		ran++
		if !s.play(ctx, l) {
			bad++
		}
	}
	fmt.Printf("%d commands ran as written, %d did not, %d were not run\n", ran-bad, bad, skipped)
	return bad, nil
}
