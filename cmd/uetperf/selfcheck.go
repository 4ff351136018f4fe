package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/soak"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
)

// stepsLimit is when the current check is stopped and no other begins. The whole self-check
// shall take at most a minute, and a slow host needs the rest of that to close. It is a
// variable because the tests of this package share a loaded host.
var stepsLimit = 50 * time.Second

// voidTries is how often a check with a bad network is run until the network has done
// enough. With 100 packets, the fewest seen on a loaded host, a loss of 1 % loses none one
// time in three.
const voidTries = 5

// shortStep is the time of a check that only shows that something works.
const shortStep = 300 * time.Millisecond

// A step is one row of the self-check: a test whose data is verified. A new operation must
// add its rows to steps.
type step struct {
	name   string
	spec   traffic.Spec
	impair *relay.Faults
}

// steps returns all steps.
func steps(seed uint64) []step {
	base := traffic.Spec{
		Op: traffic.Send, EP: traffic.RDM, Sec: traffic.Off, Mode: "rud", Complete: "transmit", Parallel: 1, Check: true, Progress: "manual", CRC: true, CC: "nscc", GSO: "auto", Seed: seed,
		PeerTimeout: 8 * time.Second,
	}
	lat := func(op string, size int64) step {
		s := base
		s.Test, s.Op, s.Size, s.Time, s.Warmup = traffic.Lat, op, size, 400*time.Millisecond, 200
		return step{name: fmt.Sprintf("latency %s %s", op, units.Bytes(size)), spec: s}
	}
	stream := func(name, test, op string, size int64, window int, d time.Duration, change func(*traffic.Spec)) step {
		s := base
		s.Test, s.Op, s.Size, s.Window, s.Time, s.Warmup = test, op, size, window, d, int64(2*window)
		if test == traffic.BW {
			s.Progress = "auto"
		}
		if change != nil {
			change(&s)
		}
		return step{name: name, spec: s}
	}
	ping := base
	ping.Test, ping.Size, ping.Iters, ping.Interval, ping.Progress = traffic.Ping, 64, 10, 5*time.Millisecond, "auto"
	out := []step{{name: "ping", spec: ping}}
	for _, op := range []string{traffic.Send, traffic.TSend} {
		for _, size := range []int64{8, 4 << 10, 64 << 10} {
			out = append(out, lat(op, size))
		}
	}
	out = append(out,
		stream("bandwidth send 1 MiB", traffic.BW, traffic.Send, 1<<20, 64, 1500*time.Millisecond, nil),
		stream("bandwidth tsend 1 MiB, both ways", traffic.BW, traffic.TSend, 1<<20, 32, time.Second, func(s *traffic.Spec) { s.Bidir = true }),
		stream("bandwidth send 64 KiB, ordered (ROD)", traffic.BW, traffic.Send, 64<<10, 64, time.Second, func(s *traffic.Spec) { s.Mode = "rod" }),
		stream("message rate tsend 8 B", traffic.Rate, traffic.TSend, 8, 512, time.Second, nil),
		stream("message rate inject 8 B", traffic.Rate, traffic.Inject, 8, 512, time.Second, nil),
		lat(traffic.Write, 8), lat(traffic.Read, 4<<10), lat(traffic.FAdd, 8),
		stream("bandwidth write 1 MiB", traffic.BW, traffic.Write, 1<<20, 32, 500*time.Millisecond, nil),
		stream("bandwidth read 1 MiB", traffic.BW, traffic.Read, 1<<20, 32, 500*time.Millisecond, nil),
	)
	for _, l := range []step{lat(traffic.Swap, 8), lat(traffic.CAS, 8)} {
		l.spec.Time = shortStep
		out = append(out, l)
	}
	rudi := func(s *traffic.Spec) { s.Mode = traffic.RUDI }
	out = append(out,
		stream("message rate writedata 8 B", traffic.Rate, traffic.WriteData, 8, 64, shortStep, nil),
		stream("bandwidth write 64 KiB, without a context (RUDI)", traffic.BW, traffic.Write, 64<<10, 32, shortStep, rudi),
		stream("bandwidth read 64 KiB, without a context (RUDI)", traffic.BW, traffic.Read, 64<<10, 32, shortStep, rudi),
	)
	datagrams := ping
	datagrams.EP, datagrams.Mode, datagrams.Patience = traffic.Dgram, traffic.UUD, 3*time.Second // an answer of a busy host is no loss
	out = append(out, step{name: "ping by datagrams (UUD)", spec: datagrams})
	if perf.Durable() == nil {
		out = append(out, stream("commit complete, write 64 KiB", traffic.BW, traffic.Write, 64<<10, 16, shortStep, func(s *traffic.Spec) { s.Complete = "commit" }))
	}
	for _, level := range []string{"inject", "transmit", "delivery", "match"} {
		out = append(out, stream(level+" complete, send 32 KiB", traffic.BW, traffic.Send, 32<<10, 64, 400*time.Millisecond, func(s *traffic.Spec) { s.Complete = level }))
	}
	lossy := stream("bandwidth send 1 MiB, 1 % lost", traffic.BW, traffic.Send, 1<<20, 64, 2*time.Second, nil)
	lossy.impair = &relay.Faults{Loss: 0.01, Seed: seed}
	bad := lat(traffic.Send, 4<<10)
	bad.name = "latency send 4 KiB, 1 % lost"
	bad.spec.Progress, bad.spec.Time = "auto", time.Second
	bad.impair = lossy.impair
	for _, svc := range []struct{ ep, sec, name string }{
		{traffic.MSG, traffic.Off, "connection"}, {traffic.MSG, traffic.TLS, "connection, certificates"}, {traffic.MSG, traffic.PSK, "connection, cluster key"},
		{traffic.RDM, traffic.PSK, "cluster key"},
	} {
		l := lat(traffic.TSend, 64)
		l.name = "latency tsend 64 B, " + svc.name
		l.spec.Time = 300 * time.Millisecond
		b := stream("bandwidth tsend 1 MiB, "+svc.name, traffic.BW, traffic.TSend, 1<<20, 32, 600*time.Millisecond, nil)
		for _, st := range []step{l, b} {
			st.spec.EP, st.spec.Sec, st.spec.CRC = svc.ep, svc.sec, svc.sec == traffic.Off
			out = append(out, st)
		}
	}
	request := func(name, test string, change func(*traffic.Spec)) {
		s := base
		s.Test, s.Op, s.Size, s.Reply, s.Window, s.Time, s.Warmup = test, traffic.TSend, 1000, 1000, 64, 400*time.Millisecond, 20
		change(&s)
		out = append(out, step{name: name, spec: s})
	}
	request("load 5,000 requests/s of 1,000 B", traffic.Load, func(s *traffic.Spec) { s.Rate, s.Arrivals = 5000, traffic.Poisson })
	request("transactions 1,000 B", traffic.RR, func(s *traffic.Spec) { s.Window = 1 })
	request("transactions that open and close", traffic.RR, func(s *traffic.Spec) { s.Window, s.Churn = 1, true })
	request("transactions, a connection each", traffic.RR, func(s *traffic.Spec) { s.Window, s.Churn, s.EP, s.Progress = 1, true, traffic.MSG, "auto" })
	request("incast, 4 senders, 64 KiB", traffic.Incast, func(s *traffic.Spec) {
		s.Size, s.Reply, s.Parallel, s.Window, s.Within, s.Progress, s.Time = 64<<10, 0, 4, 2, 0.25, "auto", 800*time.Millisecond
	})
	mixed := base
	mixed.Test, mixed.Time, mixed.Progress = traffic.Soak, 2*time.Second, "auto"
	out = append(out, step{name: "everything mixed, leaks looked for", spec: mixed})
	worst := stream("send 64 KiB, 1 % lost, late, repeated, corrupt", traffic.BW, traffic.Send, 64<<10, 64, time.Second, nil)
	worst.impair = &relay.Faults{Loss: 0.01, Reorder: 0.01, Duplicate: 0.01, Corrupt: 0.01, Seed: seed}
	return append(out, lossy, bad, worst)
}

// A way is what the steps that share a client have in common.
type way struct {
	impair  *relay.Faults
	ep, sec string
}

// A helper is a server in its own process.
type helper struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr netip.AddrPort
}

// startServer starts this program as a server on loopback. The server ends when this
// process ends, in whatever way.
func startServer(folder string, stderr io.Writer) (*helper, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "serve", "--listen", "127.0.0.1:0", "--keys", folder, "--until-eof")
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	h := &helper{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if f := strings.Fields(line); err == nil && len(f) > 0 {
		h.addr, err = netip.ParseAddrPort(f[len(f)-1])
	}
	if err != nil {
		h.stop()
		return nil, fmt.Errorf("the server process did not start: %q: %w", strings.TrimSpace(line), err)
	}
	return h, nil
}

// stop ends the server and waits for it.
func (h *helper) stop() {
	_ = h.in.Close()
	t := time.AfterFunc(3*time.Second, func() { _ = h.cmd.Process.Kill() })
	_ = h.cmd.Wait()
	t.Stop()
}

// A row is the result of a step.
type row struct {
	step   *step
	run    record.Run
	relay  relay.Stats
	err    error
	faults []string // what is wrong with it
}

// cut tells why the step did not finish although nothing was wrong; "" if it did finish.
func (r *row) cut() string {
	switch {
	case errors.Is(r.err, context.Canceled):
		return "interrupted"
	case errors.Is(r.err, context.DeadlineExceeded):
		return "cut short"
	}
	return ""
}

// findFaults notes what is wrong with the row.
func (r *row) findFaults() {
	bad := func(format string, args ...any) { r.faults = append(r.faults, fmt.Sprintf(format, args...)) }
	if r.cut() != "" {
		return
	}
	if r.err != nil {
		bad("%s", strings.Join(strings.Fields(r.err.Error()), " "))
		return
	}
	c := r.run.DataCheck
	if x := r.run.Soak; x != nil && x.Failed > 0 { // the first is what a line has room for
		bad("%d of %d tests failed, the last one: %s", x.Failed, x.Episodes, r.run.LastError)
	}
	switch {
	case r.run.Msgs == 0:
		bad("nothing was measured")
	case c == nil || c.OK == 0:
		bad("nothing was verified")
	case c.Wrong > 0:
		bad("%d messages wrong (%d bytes, %d repeated or out of order)", c.Wrong, c.WrongBytes, c.Dup)
	}
	switch x := r.run.Soak; {
	case r.run.Errors != nil && *r.run.Errors > 0:
		bad("%d transactions failed, the last one: %s", *r.run.Errors, r.run.LastError)
	case x != nil && x.Leaking > 0:
		bad("%d of memory, goroutines and descriptors only grow", x.Leaking)
	}
	switch {
	case r.run.Lost == nil:
		bad("the server did not tell what it received")
	case *r.run.Lost > 0:
		bad("%d messages lost", *r.run.Lost)
	}
	if why := r.void(); why != "" {
		bad("%s", why)
	}
}

// void tells why a check with a bad network proves nothing: the relay did too little, which
// happens on a slow or busy host. It returns "" if the check counts.
func (r *row) void() string {
	f := r.step.impair
	if f == nil {
		return ""
	}
	x := r.relay
	for _, k := range []struct {
		name string
		p    float64
		n    uint64
	}{{"lost", f.Loss, x.Lost}, {"reordered", f.Reorder, x.Reordered}, {"repeated", f.Duplicate, x.Duplicated}, {"corrupted", f.Corrupt, x.Corrupted}} {
		if k.p > 0 && k.n == 0 {
			return "the relay has " + k.name + " nothing: the check is void"
		}
	}
	if retransmissions(&r.run) == 0 {
		return "nothing was sent again although packets were lost"
	}
	return ""
}

// result describes what the step measured.
func (r *row) result() string {
	m := &r.run
	s := ""
	switch {
	case m.Soak != nil:
		s = fmt.Sprintf("%d tests, %s messages", m.Soak.Episodes, strings.TrimSpace(units.Count(float64(m.Msgs))))
	case m.Churn != nil && m.Latency != nil:
		s = fmt.Sprintf("%s/s; open %s, close %s", strings.TrimSpace(units.Count(*m.MsgsPerS)), µs(m.Churn.Open.P50), µs(m.Churn.Close.P50))
	case m.Errors != nil && m.Latency != nil:
		s = fmt.Sprintf("%s/s; p50 %s, p99 %s, both ways", strings.TrimSpace(units.Count(*m.MsgsPerS)), µs(m.Latency.P50), µs(m.Latency.P99))
	case m.Load != nil && m.Latency != nil:
		s = fmt.Sprintf("p50 %s, p99 %s, both ways", µs(m.Latency.P50), µs(m.Latency.P99))
		if m.Load.Overloaded {
			s += "; overloaded"
		}
	case m.Incast != nil && m.Incast.Round != nil:
		s = fmt.Sprintf("%.2f Gb/s, all blocks in %s", *m.GoodputBPS/1e9, µs(m.Incast.Round.P50))
	case r.step.spec.Test == traffic.Ping && m.Latency != nil:
		s = fmt.Sprintf("set-up %s, first rtt %s, then %s", µs(m.SetupNS), µs(m.FirstNS), µs(m.Latency.P50))
	case m.Latency != nil && m.Latency.RTT && r.step.spec.Test != traffic.BW:
		s = fmt.Sprintf("p50 %s, p99 %s, to the completion", µs(m.Latency.P50), µs(m.Latency.P99))
	case m.Latency != nil && r.step.spec.Test != traffic.BW:
		s = fmt.Sprintf("p50 %s, p99 %s, one way", µs(m.Latency.P50), µs(m.Latency.P99))
	case r.step.spec.Test == traffic.Rate && m.MsgsPerS != nil:
		s = units.Count(*m.MsgsPerS) + " msg/s"
	case m.GoodputBPS != nil:
		s = fmt.Sprintf("%.2f Gb/s, %.0f MB/s", *m.GoodputBPS/1e9, *m.GoodputBPS/8e6)
	}
	if x := r.relay; r.step.impair != nil && x.In > 0 {
		s += fmt.Sprintf("; %d packets lost", x.Lost)
	}
	return s
}

// selfCheck checks this host with two processes. It runs every kind of test and verifies
// all data.
func selfCheck(ctx context.Context, cfg *Config, stdout, stderr io.Writer) error {
	cfg.Spec = traffic.Spec{
		Test: "selfcheck", Op: traffic.Send, EP: traffic.RDM, Sec: traffic.Off, Mode: "rud", Complete: "transmit", CC: "nscc", CRC: true, Parallel: 1, Progress: "manual", Bidir: true,
		Seed: cfg.Spec.Seed,
	}
	o, err := newOutcome(cfg, stdout)
	if err != nil {
		return err
	}
	begin := time.Now()
	progress := stderr
	if cfg.Quiet {
		progress = io.Discard
	}
	rows, err := o.runSteps(ctx, progress)
	o.printRows(rows)
	if err = o.finish(err); !errors.Is(err, context.Canceled) {
		o.verdict(rows, err, time.Since(begin))
	}
	return err
}

// temporary makes a folder for keys in the first of dirs where that can be done. A container of
// nothing but this program has no /tmp.
func temporary(dirs ...string) (folder string, err error) {
	for _, dir := range dirs {
		var e error
		if folder, e = os.MkdirTemp(dir, "uetperf-keys-"); e == nil {
			return folder, nil
		}
		err = errors.Join(err, e)
	}
	return "", err
}

// runSteps runs all steps. After a failed step it goes on as long as the server lives.
func (o *outcome) runSteps(ctx context.Context, progress io.Writer) ([]row, error) {
	limited, cancel := context.WithTimeout(ctx, stepsLimit)
	defer cancel()
	folder, err := temporary(os.TempDir(), "/dev/shm", ".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if _, err := keys.Make(folder, nil, time.Now()); err != nil {
		return nil, err
	}
	srv, err := startServer(folder, progress)
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	var rows []row
	all := steps(o.cfg.Spec.Seed)
	clients := map[way]*perf.Client{}
	var secs []*uet.Security
	defer func() {
		for _, c := range clients {
			c.Close()
		}
		for _, s := range secs {
			_ = s.Close()
		}
	}()
	if err := perf.Durable(); err != nil {
		fmt.Fprintf(progress, "durable writes are not checked: %v\n", err)
	}
	tty := isTerminal(progress)
	widest := 0
	for i := range all {
		widest = max(widest, len(all[i].name))
	}
	for i := range all {
		st := &all[i]
		if tty && i > 0 {
			fmt.Fprintf(progress, "[%2d/%d] %s …\r", i+1, len(all), st.name)
		}
		w := way{st.impair, st.spec.EP, st.spec.Sec}
		c := clients[w]
		if c == nil {
			sec, err := loadKeys(&Config{Spec: st.spec, Keys: folder})
			if err != nil {
				return rows, err
			}
			if sec != nil {
				secs = append(secs, sec)
			}
			cc := perf.ClientConfig{EP: w.ep, Sec: w.sec, Keys: sec, Timeout: o.cfg.Timeout, Impair: w.impair}
			if c, err = perf.Dial(limited, srv.addr, cc); err != nil {
				return rows, fmt.Errorf("%s: %w", st.name, err)
			}
			clients[w] = c
			host, tool := c.Host(), c.Tool()
			o.rec.Peer, o.rec.PeerTool = &host, &tool
		}
		r := row{step: st}
		var res *perf.Result
		for range voidTries {
			if st.spec.Test == traffic.Soak {
				var run record.Run
				run, err = soak.Run(limited, soak.Config{Mix: traffic.Mix{Base: st.spec, Sizes: []int64{0, 8, 1000, 4 << 10, 64 << 10}}, Dial: func(ctx context.Context) (*perf.Client, error) {
					return perf.Dial(ctx, srv.addr, perf.ClientConfig{Timeout: o.cfg.Timeout})
				}})
				run.Op, run.Size = st.spec.Op, st.spec.Size
				r.run, r.err, res = run, err, nil
				break
			}
			res, err = c.Run(limited, st.spec, perf.Hooks{Ready: func(path record.Path, mtu int, _, _ time.Duration) {
				if o.rec.Path != nil {
					return
				}
				o.rec.Path, o.rec.Config.MTU = &path, mtu
				if !o.cfg.Quiet {
					fmt.Fprintf(o.people, "self-check: this process ↔ another at %v over UDP; %s\npath: %s; seed %d\n", srv.addr, modeText(&o.rec.Config, true), pathText(&path, mtu, 1), o.rec.Seed)
				}
			}})
			r.err = err
			if res != nil {
				r.run, r.relay = res.Run, res.Relay
			} else {
				r.run = record.Run{Op: st.spec.Op, Size: st.spec.Size}
			}
			if err != nil || r.void() == "" {
				break
			}
		}
		r.run.Name = st.name
		r.findFaults()
		if len(r.faults) > 0 && r.run.Error == "" {
			r.run.Error = strings.Join(r.faults, "; ")
		}
		o.rec.Runs = append(o.rec.Runs, r.run)
		rows = append(rows, r)
		fmt.Fprintf(progress, "[%2d/%d] %-*s  %s\n", i+1, len(all), widest, st.name, r.summary())
		if o.cfg.Verbose && res != nil {
			newPrinter(progress, &Config{Impair: st.impair}).details(res)
		}
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
		if limited.Err() != nil {
			return rows, fmt.Errorf("the checks took longer than %v: this host is too slow or too busy", stepsLimit)
		}
		if perf.Unreachable(err) || errors.Is(err, perf.ErrUnreachable) {
			return rows, fmt.Errorf("the server process was lost: %w", err)
		}
	}
	return rows, nil
}

// summary is the outcome of the row in a few words.
func (r *row) summary() string {
	switch {
	case r.cut() != "":
		return r.cut()
	case len(r.faults) > 0:
		return "FAILED: " + r.faults[0]
	}
	return r.result()
}

// printRows prints the table and the faults below it.
func (o *outcome) printRows(rows []row) {
	if len(rows) == 0 {
		return
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"check", "measured", "verified", "resent", "spur", ""})
	for i := range rows {
		r := &rows[i]
		word := "ok"
		switch {
		case r.cut() != "":
			word = r.cut()
		case len(r.faults) > 0:
			word = "FAILED"
			o.failed = true
		}
		verified := "-"
		if c := r.run.DataCheck; c != nil {
			verified = fmt.Sprintf("%d ok", c.OK)
			if c.Wrong > 0 {
				verified += fmt.Sprintf(", %d WRONG", c.Wrong)
			}
		}
		sum := both(&r.run)
		t.AppendRow(table.Row{r.step.name, r.result(), verified, sum.Rtx(), sum.Spurious(), word})
	}
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, Align: text.AlignRight}, {Number: 4, Align: text.AlignRight}, {Number: 5, Align: text.AlignRight}})
	fmt.Fprintln(o.people, t.Render())
	for i := range rows {
		for _, f := range rows[i].faults {
			fmt.Fprintf(o.people, "FAILED %s: %s\n", rows[i].step.name, f)
		}
	}
}

// verdict prints the last line.
func (o *outcome) verdict(rows []row, err error, took time.Duration) {
	failed := 0
	var bytes, msgs int64
	for i := range rows {
		if len(rows[i].faults) > 0 {
			failed++
		}
		if c := rows[i].run.DataCheck; c != nil {
			bytes += c.OK * rows[i].run.Size
			msgs += c.OK
		}
	}
	switch {
	case err == nil:
		fmt.Fprintf(o.people, "PASSED: all %d checks in %.0f s; %s in %s messages went between two processes over UDP, every byte verified\n", len(rows), took.Seconds(), units.Bytes(bytes), units.Count(float64(msgs)))
	case failed == 0 && !errors.Is(err, errSilent(exitFailed)):
		fmt.Fprintf(o.people, "FAILED: the self-check ended early, in %s (%.0f s)\n", units.Plural(len(rows), "check"), took.Seconds())
	case failed == 0:
		fmt.Fprintf(o.people, "FAILED: all %d checks passed, an assertion did not (%.0f s, seed %d)\n", len(rows), took.Seconds(), o.rec.Seed)
	default:
		fmt.Fprintf(o.people, "FAILED: %d of %d checks failed (%.0f s; once more with --seed %d)\n", failed, len(rows), took.Seconds(), o.rec.Seed)
	}
}
