package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/compare"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/report"
	"github.com/uetkit/uetkit/internal/units"
)

// readConfig is what report and compare do with existing records.
type readConfig struct {
	Files     []string // of report
	Output    string
	Title     string
	Base, New []string // of compare
	FailOn    []*assert.Change
}

func (l *line) report() *cobra.Command {
	return l.command(&cobra.Command{
		Use: "report RUN.json... -o report.html", Short: "one offline HTML page of records",
		Long: `report makes one HTML file of records that -J wrote: tables, the distribution of
latency (log x, nines y), goodput with window, round trip and retransmissions over
time, environment, the command that repeats the test, and the records themselves.
Several records are drawn over each other. The page loads nothing from anywhere.

The file that has the name already is replaced when all of the new one is written.`,
		Example:               "  uetperf lat HOST -s 8:64K:*2 -J lat.json\n  uetperf report lat.json -o report.html\n  uetperf bw HOST -J - | uetperf report - -o report.html",
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("report needs records: files that uetperf -J wrote, or - for standard input")
			}
			return nil
		},
	}, "report", testDef{}, func(p *params, args []string) error {
		p.cfg.Read.Files = args
		if err := onceStdin(args); err != nil {
			return err
		}
		return notRead("-o", p.cfg.Read.Output, args)
	}, nil)
}

func (l *line) compare() *cobra.Command {
	return l.command(&cobra.Command{
		Use: "compare BASE.json NEW.json", Short: "what changed between two records; exit 1 on regression",
		Long: `compare holds the runs of a new record against those of a base with the same test,
operation and size. Where there are several runs of a kind, in a record or in
several of a side, it compares medians, shows the range, and says when the ranges
overlap, so that the difference may be noise.

Exit status 1 if a --fail-on was exceeded, or if a new record ended early or had
wrong data and no base did.`,
		Example:               "  uetperf compare base.json new.json --fail-on 'p99>+10%' --fail-on 'goodput<-5%'\n  uetperf compare --base a1.json --base a2.json --base a3.json --new b1.json --new b2.json --new b3.json",
		DisableFlagsInUseLine: true,
	}, "compare", testDef{}, func(p *params, args []string) error {
		r := &p.cfg.Read
		switch {
		case len(args) == 2:
			r.Base, r.New = append([]string{args[0]}, r.Base...), append([]string{args[1]}, r.New...)
		case len(args) == 1 && len(r.Base) > 0 && len(r.New) == 0:
			r.New = args
		case len(args) > 2:
			return fmt.Errorf("unexpected %q after the two records: name more by --base FILE and --new FILE", args[2])
		case len(args) == 1 || len(r.Base) == 0 || len(r.New) == 0:
			return errors.New("compare needs two records: BASE.json NEW.json, or --base FILE and --new FILE")
		}
		files := append(append([]string{}, r.Base...), r.New...)
		if err := onceStdin(files); err != nil {
			return err
		}
		return notRead("-J", p.cfg.JSON, files)
	}, nil)
}

// notRead refuses an output file that is also an input.
func notRead(flag, out string, files []string) error {
	o, err := os.Stat(out)
	if out == "-" || err != nil {
		return nil
	}
	for _, f := range files {
		if in, err := os.Stat(f); f != "-" && err == nil && in.Mode().IsRegular() && os.SameFile(in, o) {
			return fmt.Errorf("%s %s is one of the records: it would be gone; name another file", flag, out)
		}
	}
	return nil
}

// onceStdin refuses to read standard input twice.
func onceStdin(files []string) error {
	n := 0
	for _, f := range files {
		if f == "-" {
			n++
		}
	}
	if n > 1 {
		return errors.New("- is standard input, which holds one record: give the others as files")
	}
	return nil
}

// readRecords reads records. "-" means standard input. Errors name the file.
func readRecords(cfg *Config, files []string) ([]*report.Rec, error) {
	base := map[string]int{}
	for _, f := range files {
		base[filepath.Base(f)]++
	}
	var out []*report.Rec
	for _, f := range files {
		name, in := f, cfg.Stdin
		if base[filepath.Base(f)] == 1 {
			name = filepath.Base(f)
		}
		if f == "-" {
			name, f = "standard input", "standard input"
		} else {
			file, err := os.Open(f)
			if err != nil {
				var pe *fs.PathError
				if errors.As(err, &pe) {
					err = fmt.Errorf("%s: %w", f, pe.Err)
				}
				return nil, &usage{err}
			}
			defer file.Close()
			in = file
		}
		raw, err := io.ReadAll(io.LimitReader(in, record.MaxSize+1))
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return nil, &usage{fmt.Errorf("%s: %w", f, err)}
		}
		rec, err := report.Parse(name, raw)
		if err != nil {
			return nil, &usage{fmt.Errorf("%s %w", f, err)}
		}
		out = append(out, rec)
	}
	return out, nil
}

// writeFile writes the file of an option. A file that cannot be opened is an error of
// usage; one that cannot be written is not.
func writeFile(option, name string, write func(io.Writer) error) error {
	opened := false
	err := page.WriteFile(name, func(w io.Writer) error {
		opened = true
		return write(w)
	})
	if err == nil || opened {
		return named(option, name, err)
	}
	return &usage{fmt.Errorf("%s: %w", option, err)}
}

func runReport(_ context.Context, cfg *Config, stdout io.Writer) error {
	recs, err := readRecords(cfg, cfg.Read.Files)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return report.HTML(w, recs, cfg.Read.Title, versionLine()) }
	if cfg.Read.Output == "-" {
		return named("-o", "-", write(stdout))
	}
	if err := writeFile("-o", cfg.Read.Output, write); err != nil {
		return err
	}
	if !cfg.Quiet {
		fmt.Fprintf(stdout, "report: %s in %s\n", units.Plural(len(recs), "record"), cfg.Read.Output)
	}
	return nil
}

func runCompare(_ context.Context, cfg *Config, stdout io.Writer) error {
	base, err := readRecords(cfg, cfg.Read.Base)
	if err != nil {
		return err
	}
	now, err := readRecords(cfg, cfg.Read.New)
	if err != nil {
		return err
	}
	r, err := compare.Records(base, now, cfg.Read.FailOn, cfg.Verbose)
	if err != nil {
		return &usage{err}
	}
	writeJSON := func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	switch cfg.JSON {
	case "-":
		err = named("-J", "-", writeJSON(stdout))
	default:
		err = writeFile("-J", cfg.JSON, writeJSON)
		fallthrough
	case "":
		r.Print(stdout)
	}
	if err != nil {
		return err
	}
	if !r.OK {
		return errSilent(exitFailed)
	}
	return nil
}
