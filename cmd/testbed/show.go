package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/uetkit/uetkit/testbed/report"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// list is the command list: one scenario a line.
func (cfg *config) list() error {
	any := false
	for _, name := range scenario.Names() {
		sc, err := scenario.Load(name)
		if err != nil {
			return err
		}
		if !chosen(sc, cfg.only) {
			continue
		}
		any = true
		on := "docker netns sim"
		if len(sc.Substrates) > 0 {
			on = strings.Join(sc.Substrates, " ")
		}
		tags := strings.Join(sc.Tags, ",")
		if tags == "" {
			tags = "-"
		}
		fmt.Fprintf(cfg.stdout, "%-22s %-10s %-17s %s\n", name, tags, on, sc.Question)
	}
	if !any {
		return cfg.noneChosen()
	}
	return nil
}

// verdicts prints the verdicts of all results.
func verdicts(w io.Writer, results []*result.Result, out string) {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.SetColumnConfigs([]table.ColumnConfig{{Name: "why", WidthMax: 70, WidthMaxEnforcer: text.WrapSoft}})
	t.AppendHeader(table.Row{"scenario", "on", "verdict", "asserts", "seconds", "goodput", "lost by the network", "why"})
	count := map[result.Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		held := 0
		for _, a := range r.Asserts {
			if a.Pass {
				held++
			}
		}
		goodput := ""
		if g := r.Metrics["all.goodput"]; g > 0 {
			goodput = fmt.Sprintf("%.3f Gbit/s", g/1e9)
		}
		var lost float64
		for name, n := range r.Metrics {
			if strings.HasPrefix(name, "net.lost_") {
				lost += n
			}
		}
		t.AppendRow(table.Row{r.Scenario, r.Substrate, r.Verdict, fmt.Sprintf("%d/%d", held, len(r.Asserts)), fmt.Sprintf("%.1f", r.Took.Seconds()), goodput, fmt.Sprintf("%.0f", lost), r.Reason})
	}
	fmt.Fprintln(w, t.Render())
	var parts []string
	for _, v := range []result.Verdict{result.Pass, result.Fail, result.Error, result.Inconclusive, result.Unsupported} {
		if count[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[v], v))
		}
	}
	fmt.Fprintf(w, "%s; %s\n", strings.Join(parts, ", "), filepath.Join(out, "report.html"))
	for _, r := range results {
		if r.Verdict == result.Fail || r.Verdict == result.Error || r.Verdict == result.Inconclusive {
			fmt.Fprintf(w, "repeat: %s\n", strings.Join(r.Command, " "))
		}
	}
}

// report is the command report.
func (cfg *config) report(dir string) error {
	results, err := load(dir)
	if err != nil {
		return err
	}
	if err := cfg.writeReports(dir, results); err != nil {
		return err
	}
	verdicts(cfg.stdout, results, dir)
	return nil
}

// load reads all results below a folder, the oldest first.
func load(dir string) ([]*result.Result, error) {
	var results []*result.Result
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "result.json" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r result.Result
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("%s is no result of the testbed: %w", path, err)
		}
		if r.Schema != "uetkit-testbed/1" {
			return fmt.Errorf("%s has the schema %q, not uetkit-testbed/1", path, r.Schema)
		}
		results = append(results, &r)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no folder %s: `testbed run --out %s` makes it", dir, dir)
	}
	if err != nil {
		return nil, err
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("there is no result.json in %s: `testbed run --out %s` makes some", dir, dir)
	}
	slices.SortFunc(results, func(a, b *result.Result) int { return int(a.Started.Sub(b.Started) / time.Microsecond) })
	return results, nil
}

// writeReports makes report.html and junit.xml.
func (cfg *config) writeReports(dir string, results []*result.Result) error {
	for _, f := range []struct {
		name string
		make func(io.Writer, []*result.Result) error
	}{{"report.html", report.HTML}, {"junit.xml", report.JUnit}} {
		var b strings.Builder
		if err := f.make(&b, results); err != nil {
			return &failure{fmt.Errorf("%s: %w", f.name, err)}
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), []byte(b.String()), 0o644); err != nil {
			return &failure{err}
		}
	}
	return nil
}
