package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/doctor"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/internal/units"
)

func (l *line) doctor() *cobra.Command {
	return l.command(&cobra.Command{
		Use: "doctor [HOST[:PORT]]", Short: "why is it slow or unreachable",
		Long: `doctor looks at this host: interfaces, socket buffers, offloads, limits, processors,
clock. With a HOST where uetperf serve runs it also looks at the way there and at
the other end: firewalls, address translation, the size of packets that pass, ECN,
releases and keys that do not fit, an end that has no time, a test of one second, and
writes, reads and atomics on memory of the server.

Each check is ok, warn (it costs speed) or bad (it does not work, or costs most of
the speed), with the cause and what to do.

Exit status: 0 nothing is bad, 1 something is, 3 the server could not be reached.`,
		Example: "  uetperf doctor\n  uetperf doctor HOST\n  uetperf doctor HOST -e msg --sec tls --keys FOLDER",
		Args:    atMost(1),
	}, "doctor", testDef{}, func(p *params, args []string) error {
		if len(args) == 1 {
			p.cfg.Target = args[0]
		}
		return nil
	}, nil)
}

// runDoctor prints the doctor's checks as they are made.
func runDoctor(ctx context.Context, cfg *Config, stdout io.Writer) error {
	out, err := openOutput("-J", cfg.JSON, stdout)
	if err != nil {
		return err
	}
	dc := doctor.Config{Domain: cfg.Domain, DataPorts: cfg.DataPorts, EP: cfg.Spec.EP, Sec: cfg.Spec.Sec, GSO: cfg.Spec.GSO, Timeout: cfg.Timeout}
	if cfg.Target != "" {
		rctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
		dc.Target, err = perf.Resolve(rctx, cfg.Target, perf.Port, cfg.Domain)
		cancel()
		if err != nil {
			return err
		}
		if dc.Keys, err = loadKeys(cfg); err != nil {
			return err
		}
		if dc.Keys != nil {
			defer func() { _ = dc.Keys.Close() }()
		}
	}
	if cfg.JSON != "-" {
		dc.Say = func(c *doctor.Check) {
			if cfg.Quiet && c.Verdict == doctor.OK {
				return
			}
			fmt.Fprintf(stdout, "%-5s %-16s %s\n", c.Verdict, c.Name, c.Cause)
			if c.Mend != "" {
				fmt.Fprintf(stdout, "%-5s %-16s → %s\n", "", "", c.Mend)
			}
		}
	}
	rep, err := doctor.Run(ctx, dc)
	if err != nil {
		return err
	}
	if cfg.JSON != "-" {
		fmt.Fprintln(stdout, verdictOf(rep))
	}
	if cfg.JSON != "" {
		enc := json.NewEncoder(out.w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := named("-J", cfg.JSON, cmp.Or(enc.Encode(rep), out.close())); err != nil {
			return err
		}
	}
	if code := rep.Exit(); code != exitOK {
		return errSilent(code)
	}
	return nil
}

// verdictOf summarizes a report in one line.
func verdictOf(r *doctor.Report) string {
	n := map[doctor.Verdict]int{}
	for _, c := range r.Checks {
		n[c.Verdict]++
	}
	switch {
	case r.Exit() == exitUnreachable:
		return fmt.Sprintf("UNREACHABLE: %s", r.Target)
	case n[doctor.Bad] > 0:
		return fmt.Sprintf("BAD: %s of %d, and %s", units.Plural(n[doctor.Bad], "check"), len(r.Checks), units.Plural(n[doctor.Warn], "warning"))
	case n[doctor.Warn] > 0:
		return fmt.Sprintf("HEALTHY, with %s", units.Plural(n[doctor.Warn], "warning"))
	}
	return fmt.Sprintf("HEALTHY: %s", units.Plural(len(r.Checks), "check"))
}
