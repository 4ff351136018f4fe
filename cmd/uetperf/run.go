package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/capture"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/mesh"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/ranks"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
)

// run runs an invocation and returns its exit code. Cancelling ctx interrupts it.
func run(ctx context.Context, cfg *Config, stdout, stderr io.Writer) int {
	if cfg.CPUProfile != "" {
		f, err := os.Create(cfg.CPUProfile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			return complain(&usage{err}, stderr)
		}
		defer func() {
			pprof.StopCPUProfile()
			_ = f.Close()
		}()
	}
	said := &watched{w: stdout}
	stdout = said
	var err error
	switch cfg.Command {
	case "serve":
		err = runServe(ctx, cfg, stdout, stderr)
	case "keys":
		err = runKeys(cfg, stdout)
	case "doctor":
		err = runDoctor(ctx, cfg, stdout)
	case "info":
		err = runInfo(cfg, stdout, stderr)
	case "report":
		err = runReport(ctx, cfg, stdout)
	case "compare":
		err = runCompare(ctx, cfg, stdout)
	case ranks.Coll, ranks.P2P:
		err = runBetween(ctx, cfg, stdout)
	case mesh.Mesh, mesh.Alltoall:
		err = runRack(ctx, cfg, stdout)
	default:
		err = runTests(ctx, cfg, stdout, stderr)
	}
	if err == nil {
		err = said.lost()
	}
	return complain(err, stderr)
}

// watched is a writer that remembers the first error, because those who print for people
// check none.
type watched struct {
	w   io.Writer
	mu  sync.Mutex // guards err; a server's log has several writers
	err error
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	if err != nil {
		w.mu.Lock()
		w.err = cmp.Or(w.err, err)
		w.mu.Unlock()
	}
	return n, err
}

// lost returns the first error, without the name of the file, which the user did not
// choose.
func (w *watched) lost() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return nil
	}
	return fmt.Errorf("standard output: %w", bare(w.err))
}

// bare removes operation and file name from an error of the file system.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// named adds the option and its file to an error.
func named(option, file string, err error) error {
	if err == nil {
		return nil
	}
	if file == "-" {
		file = "standard output"
	}
	return fmt.Errorf("%s %s: %w", option, file, bare(err))
}

// errSilent is a failure that was already reported; its value is the exit code.
type errSilent int

func (e errSilent) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// complain prints an error in one line and returns its exit code.
func complain(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if e := errSilent(0); errors.As(err, &e) {
		return int(e)
	}
	code := exitCode(err)
	text := oneLine(err)
	if code == exitInterrupted {
		text = "interrupted"
	}
	fmt.Fprintf(stderr, "uetperf: %s\n", text)
	return code
}

// oneLine is the text of an error as one line. The parts of errors.Join are separated by
// semicolons.
func oneLine(err error) string {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) && errors.Join(several.Unwrap()...).Error() == err.Error() {
		var parts []string
		for _, e := range several.Unwrap() {
			parts = append(parts, oneLine(e))
		}
		return strings.Join(parts, "; ")
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, perf.ErrUsage):
		return exitUsage
	case errors.Is(err, perf.ErrUnreachable):
		return exitUnreachable
	}
	return exitFailed
}

// An output is a file for machine-readable results.
type output struct {
	w     io.Writer
	close func() error
}

// openOutput opens a file. It is called before anything is measured, so that a bad name
// wastes no time.
func openOutput(option, name string, stdout io.Writer) (*output, error) {
	switch name {
	case "":
		return &output{io.Discard, func() error { return nil }}, nil
	case "-":
		return &output{stdout, func() error { return nil }}, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, &usage{named(option, name, err)}
	}
	return &output{f, f.Close}, nil
}

// A tap is the file of --pcap. A nil tap does nothing.
type tap struct {
	name string
	w    *capture.Writer
}

func openTap(cfg *Config) (*tap, error) {
	if cfg.Pcap == "" {
		return nil, nil
	}
	w, err := capture.Create(cfg.Pcap, versionLine())
	if err != nil {
		return nil, &usage{named("--pcap", cfg.Pcap, err)}
	}
	return &tap{cfg.Pcap, w}, nil
}

// seen returns the function that endpoints call for each datagram, nil for a nil tap.
func (t *tap) seen() func(*uet.Tapped) {
	if t == nil {
		return nil
	}
	return t.w.Tap
}

// close ends the file and returns a line about its contents.
func (t *tap) close() (said string, err error) {
	if t == nil {
		return "", nil
	}
	n, lost, err := t.w.Close()
	said = fmt.Sprintf("pcap: %d packets in %s", n, t.name)
	switch {
	case err != nil:
		err = named("--pcap", t.name, err)
	case lost > 0:
		said += fmt.Sprintf("; it is full, %d more passed", lost)
	}
	return said, err
}

// usage marks an error as one of usage: exit code 2.
type usage struct{ error }

func (u *usage) Is(target error) bool { return target == perf.ErrUsage }
func (u *usage) Unwrap() error        { return u.error }

// outcome collects what an invocation measured and knows where to write it.
type outcome struct {
	cfg       *Config
	rec       record.Record
	json, csv *output
	pcap      *tap
	people    io.Writer // for text; discards it when standard output is for machines
	failed    bool      // a check of the self-check failed
}

// newOutcome opens the outputs and begins the record.
func newOutcome(cfg *Config, stdout io.Writer) (*outcome, error) {
	o := &outcome{cfg: cfg, people: stdout}
	var err error
	if o.json, err = openOutput("-J", cfg.JSON, stdout); err != nil {
		return nil, err
	}
	if o.csv, err = openOutput("--csv", cfg.CSV, stdout); err != nil {
		return nil, err
	}
	if o.pcap, err = openTap(cfg); err != nil {
		return nil, err
	}
	if cfg.JSON == "-" || cfg.CSV == "-" {
		o.people = io.Discard
	}
	s := &cfg.Spec
	o.rec = record.Record{
		Schema: record.Schema, Tool: perf.ThisTool(), Started: time.Now().Truncate(time.Millisecond), Command: cfg.Args, Seed: s.Seed, Host: perf.ThisHost(),
		Config: record.Config{
			Test: s.Test, Op: s.Op, EP: s.EP, Mode: s.Mode, Complete: s.Complete, CC: s.CC, Sec: s.Sec, CRC: s.CRC, Trimming: s.Trim, BaseRTTNS: int64(s.BaseRTT), MTU: s.MTU, Rendezvous: s.Rendezvous,
			Rate: s.Rate, Arrivals: s.Arrivals, Reply: s.Reply, Churn: s.Churn,
			Paths: max(1, s.Paths), Window: s.Window, Parallel: s.Parallel, SharePort: s.SharePort, Progress: s.Progress, Direction: s.Direction(),
		},
	}
	if s.Paths > 1 {
		o.rec.Config.PathChoice = s.PathChoice
	}
	if s.Encapsulation == traffic.Standard {
		o.rec.Config.Encapsulation = s.Encapsulation
	}
	if cfg.Impair != nil {
		o.rec.Config.Impair = cfg.Impair.String()
	}
	if cfg.Repeat > 1 {
		o.rec.Config.Repeat = cfg.Repeat
	}
	return o, nil
}

// finish checks data and assertions, writes the machine-readable files, and returns the
// error of the invocation, given err, the error of measuring.
func (o *outcome) finish(err error) error {
	r := &o.rec
	wrong := int64(0)
	checked, ok := false, int64(0)
	for i := range r.Runs {
		if c := r.Runs[i].DataCheck; c != nil {
			checked = true
			ok += c.OK
			wrong += c.Wrong
		}
	}
	if checked && o.cfg.Command != "" {
		fmt.Fprintf(o.people, "data checked: %d ok, %d wrong\n", ok, wrong)
	}
	failed := o.failed || wrong > 0
	var why []string
	if o.failed {
		why = append(why, "a check failed: the record says which")
	}
	if wrong > 0 {
		why = append(why, units.Plural(int(wrong), "message")+" with wrong data")
	}
	for _, a := range o.cfg.Asserts {
		v, found := a.Check(r.Runs)
		r.Verdict = append(r.Verdict, v)
		word := "ok"
		if !v.Pass {
			word, failed = "FAILED", true
			why = append(why, fmt.Sprintf("assert %s: FAILED, %s at size %s", v.Assert, found, units.Size(v.Size)))
		}
		if len(r.Runs) > 0 {
			fmt.Fprintf(o.people, "assert %s: %s, %s at size %s\n", v.Assert, word, found, units.Size(v.Size))
		}
	}
	if err == nil {
		err = unmeasured(o.cfg.Spec.Test, r.Runs)
	}
	if err != nil {
		r.Error = strings.Join(strings.Fields(err.Error()), " ")
		if errors.Is(err, context.Canceled) {
			r.Error = "interrupted"
		}
	}
	said, pcapErr := o.pcap.close()
	if said != "" && !o.cfg.Quiet {
		fmt.Fprintln(o.people, said)
	}
	r.OK = err == nil && !failed
	if o.cfg.JSON != "" {
		err = errors.Join(err, named("-J", o.cfg.JSON, cmp.Or(r.Write(o.json.w), o.json.close())))
	}
	if o.cfg.CSV != "" {
		err = errors.Join(err, named("--csv", o.cfg.CSV, cmp.Or(writeCSV(o.csv.w, r), o.csv.close())))
	}
	if err == nil && pcapErr != nil {
		err = pcapErr
	}
	switch {
	case err == nil && failed && o.people == io.Discard: // nothing was printed about it
		return errors.New(strings.Join(why, "; "))
	case err == nil && failed:
		return errSilent(exitFailed)
	}
	return err
}

// measured reports whether a run measured what its test is about.
func measured(test string, r *record.Run) bool {
	switch test {
	case traffic.Lat:
		return r.Msgs > 0 && r.Latency != nil
	case traffic.Load, traffic.RR:
		return r.Msgs > 0 && r.Latency != nil && r.MsgsPerS != nil
	case traffic.BW, traffic.Rate:
		return r.Msgs > 0 && r.GoodputBPS != nil
	case mesh.Mesh, mesh.Alltoall:
		return r.Mesh != nil && r.GoodputBPS != nil
	case traffic.Ping, traffic.Incast, ranks.P2P:
		return r.Msgs > 0
	case ranks.Coll:
		return r.Coll != nil
	}
	return true
}

// unmeasured returns the error of a test that ended normally but measured nothing. Such a
// test fails whatever is asserted.
func unmeasured(test string, runs []record.Run) error {
	var sizes []string
	why := "give it more time (-t), or fewer messages of warm-up (-w)"
	for i := range runs {
		if r := &runs[i]; !measured(test, r) {
			sizes = append(sizes, units.Size(r.Size))
			if r.LastError != "" {
				why = r.LastError
			}
		}
	}
	if sizes == nil {
		return nil
	}
	return fmt.Errorf("nothing was measured at size %s: %s", strings.Join(sizes, ", "), why)
}

// runTests runs a test or the self-check.
func runTests(ctx context.Context, cfg *Config, stdout, stderr io.Writer) error {
	if cfg.Command == "" {
		return selfCheck(ctx, cfg, stdout, stderr)
	}
	if cfg.Hosts != nil { // of an incast
		return runRack(ctx, cfg, stdout)
	}
	o, err := newOutcome(cfg, stdout)
	if err != nil {
		return err
	}
	if cfg.Keys != "" {
		for _, s := range keys.Loose(cfg.Keys) {
			fmt.Fprintf(stderr, "uetperf: %s\n", s)
		}
	}
	return o.finish(o.measure(ctx))
}

// measure runs the test for every size.
func (o *outcome) measure(ctx context.Context) error {
	cfg := o.cfg
	sec, err := loadKeys(cfg)
	if err != nil {
		return err
	}
	if sec != nil {
		defer func() { _ = sec.Close() }()
	}
	rctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	port := uint16(perf.Port)
	if cfg.Spec.Encapsulation == traffic.Standard {
		port = perf.StandardPort
	}
	addrs, err := perf.ResolveAll(rctx, cfg.Target, port, cfg.Domain)
	cancel()
	if err != nil {
		return err
	}
	addr := addrs[0]
	dial := func(ctx context.Context) (*perf.Client, error) {
		c, at, err := perf.DialAny(ctx, addrs, perf.ClientConfig{EP: cfg.Spec.EP, Sec: cfg.Spec.Sec, Keys: sec, Domain: cfg.Domain, DataPorts: cfg.DataPorts, Timeout: cfg.Timeout, Silence: cfg.Silence, Impair: cfg.Impair, Tap: o.pcap.seen()})
		if o.rec.Peer == nil && errors.Is(err, perf.ErrUnreachable) {
			err = perf.Bracketed(cfg.Target, err)
		}
		if err == nil {
			addr, addrs = at, []netip.AddrPort{at}
		}
		return c, err
	}
	if cfg.Command == traffic.Soak {
		return o.soak(ctx, func() netip.AddrPort { return addr }, dial)
	}
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	host, tool := c.Host(), c.Tool()
	o.rec.Peer, o.rec.PeerTool = &host, &tool
	p := newPrinter(o.people, cfg)
	for i := range len(cfg.Sizes) * max(1, cfg.Repeat) {
		s := cfg.Spec
		s.Size = cfg.Sizes[i%len(cfg.Sizes)]
		hooks := perf.Hooks{Ready: func(path record.Path, mtu int, setup, connected time.Duration) {
			if i == 0 {
				o.rec.Path, o.rec.Config.MTU = &path, mtu
				o.rec.Config.Window = s.EffectiveWindow()
				p.header(&o.rec, addr, c)
			}
			p.ready(&s, setup, connected)
		}}
		p.hooks(&s, &hooks)
		res, err := c.Run(ctx, s, hooks)
		p.clear()
		if res != nil {
			if res.Run.Op == cfg.Spec.Op {
				res.Run.Op = ""
			}
			o.rec.Runs = append(o.rec.Runs, res.Run)
			p.run(&s, res)
			p.waits(res, err)
		}
		if err != nil {
			return lost(cfg, err)
		}
	}
	p.medians(&o.rec)
	return nil
}

// lost rewrites err if it means that the server was lost after it had been reached: then
// the test failed. With --impair, perhaps only packets were lost.
func lost(cfg *Config, err error) error {
	switch gone := errors.Is(err, perf.ErrUnreachable); {
	case !gone && perf.Unreachable(err) && cfg.Impair != nil:
		return fmt.Errorf("--impair %v lets too little through for a test, or the server was lost: %s", cfg.Impair, err.Error())
	case gone || perf.Unreachable(err):
		return fmt.Errorf("the server was lost: %s; look there what ended `uetperf serve`, and start it again", err.Error())
	}
	return err
}

// writeCSV writes one line per run. Columns that were not measured are empty.
func writeCSV(w io.Writer, r *record.Record) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{
		"test", "op", "size", "iters", "msgs", "bytes", "duration_ns", "min_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns", "mean_ns", "stddev_ns",
		"goodput_bps", "msgs_per_s", "msgs_lost", "tx_pkts", "rtx", "ooo", "ecn_ce", "data_ok", "data_wrong",
		"offered_per_s", "msgs_late", "msgs_unsent", "errors", "open_p50_ns", "open_p99_ns", "close_p50_ns", "close_p99_ns", "jain", "convergence_ns", "rounds", "round_p50_ns", "round_p99_ns", "round_max_ns",
		"tests", "tests_failed", "leaking", "count", "op_ns", "op_least_ns", "op_mean_ns", "bus_bps", "spurious", "trip", "slowest_bps",
	})
	i := func(n int64) string { return strconv.FormatInt(n, 10) }
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	for k := range r.Runs {
		run := &r.Runs[k]
		op := run.Op
		if op == "" {
			op = r.Config.Op
		}
		row := []string{r.Config.Test, op, i(run.Size), i(run.Iters), i(run.Msgs), i(run.Bytes), i(run.DurationNS)}
		if l := run.Latency; l != nil {
			row = append(row, i(l.Min), i(l.P50), i(l.P90), i(l.P99), i(l.P999), i(l.Max), f(l.Mean), f(l.StdDev))
		} else {
			row = append(row, "", "", "", "", "", "", "", "")
		}
		for _, v := range []*float64{run.GoodputBPS, run.MsgsPerS} {
			if v != nil {
				row = append(row, f(*v))
			} else {
				row = append(row, "")
			}
		}
		lost := ""
		if run.Lost != nil {
			lost = i(*run.Lost)
		}
		sum := both(run)
		row = append(row, lost, i(int64(run.Transport.TxPkts)), i(int64(sum.Rtx())), i(int64(sum.OOO)), i(int64(sum.ECNCE)))
		if d := run.DataCheck; d != nil {
			row = append(row, i(d.OK), i(d.Wrong))
		} else {
			row = append(row, "", "")
		}
		slowest := ""
		if x := run.Slowest; x != nil {
			slowest = f(x.GoodputBPS)
		}
		_ = c.Write(append(append(row, moreCSV(run)...), i(int64(sum.Spurious())), r.Trip(run), slowest))
	}
	c.Flush()
	return c.Error()
}

// moreCSV returns the columns of load, rr, incast, soak and coll.
func moreCSV(run *record.Run) []string {
	out := make([]string, 22)
	i := func(k int, n int64) { out[k] = strconv.FormatInt(n, 10) }
	if l := run.Load; l != nil {
		out[0] = strconv.FormatFloat(l.OfferedPer, 'f', 1, 64)
		i(1, l.Late)
		i(2, l.Unsent)
	}
	if run.Errors != nil {
		i(3, *run.Errors)
	}
	if c := run.Churn; c != nil {
		i(4, c.Open.P50)
		i(5, c.Open.P99)
		i(6, c.Close.P50)
		i(7, c.Close.P99)
	}
	if x := run.Incast; x != nil {
		if x.Jain != nil {
			out[8] = strconv.FormatFloat(*x.Jain, 'f', 4, 64)
		}
		if x.ConvergenceNS != nil {
			i(9, *x.ConvergenceNS)
		}
		if i(10, x.Rounds); x.Round != nil {
			i(11, x.Round.P50)
			i(12, x.Round.P99)
			i(13, x.Round.Max)
		}
	}
	if x := run.Soak; x != nil {
		i(14, x.Episodes)
		i(15, x.Failed)
		i(16, x.Leaking)
	}
	if x := run.Coll; x != nil {
		f := func(k int, v float64) { out[k] = strconv.FormatFloat(v, 'f', 1, 64) }
		i(17, x.Count)
		f(18, x.TimeNS)
		f(19, x.LeastNS)
		if f(20, x.MeanNS); x.BusBPS != nil {
			f(21, *x.BusBPS)
		}
	}
	return out
}

// both returns the sum of the counters of both ends.
func both(r *record.Run) record.Counters {
	var sum record.Counters
	sum.Add(&r.Transport)
	if r.PeerTransport != nil {
		sum.Add(r.PeerTransport)
	}
	return sum
}
