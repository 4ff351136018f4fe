package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/mesh"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
)

const rackLong = `
Each HOST runs "uetperf serve --mesh", or "uetperf serve --keys FOLDER" for --sec psk:
a server that was started otherwise neither sends to others nor is sent to. This process
measures nothing itself. Name the hosts by addresses that all of them reach, not by
localhost. Their clocks are compared: that says how far apart tests began.`

// rackTests are the tests between many hosts.
var rackTests = []testDef{
	{
		name: mesh.Mesh, short: "every pair of many hosts: latency and bandwidth as a matrix",
		long: `mesh measures every pair of hosts, in both directions: half a round trip of 8 bytes,
then bandwidth. At a time it measures as many pairs as share no host (--at-once 1 one pair
alone). Links far below the median are named; the report (-J, uetperf report) draws the
matrix as a heat map. A host that fails fails its pairs only.
` + rackLong + `

--assert and compare see the slowest pair.`,
		example: "  uetperf mesh 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4\n  uetperf mesh rack1-{01..16} -t 2s -J mesh.json --assert 'goodput>20Gb/s'",
		ops:     []string{traffic.TSend, traffic.Send}, Usual: traffic.Usual{Size: "64K", Time: 500 * time.Millisecond, Window: 64, Progress: "auto"},
	},
	{
		name: mesh.Alltoall, short: "bandwidth of every pair of many hosts at once",
		long: `alltoall lets every host send to every other one at the same time, and shows what each
pair carried, what each host sent and received, and how fair that was. A server has a
client for each of the others then: of more than 64 hosts it needs --max-clients.
` + rackLong + `

--assert and compare see the sum.`,
		example: "  uetperf alltoall 192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 -t 10s\n  uetperf alltoall rack1-{01..16} -s 1M -W 4 -J alltoall.json",
		ops:     []string{traffic.TSend, traffic.Send}, Usual: traffic.Usual{Size: "64K", Time: 5 * time.Second, Window: 16, Progress: "auto"},
	},
}

// rack makes the command of a test between many hosts.
func (l *line) rack(t testDef) *cobra.Command {
	return l.command(&cobra.Command{
		Use: t.name + " HOST[:PORT]...", Short: t.short, Long: t.long, Example: t.example,
		DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) < 2:
				return fmt.Errorf("%s needs two hosts or more, where `uetperf serve --mesh` runs", t.name)
			case len(args) > mesh.MaxHosts:
				return fmt.Errorf("%d hosts are more than %d", len(args), mesh.MaxHosts)
			}
			return namedTwice(args)
		},
	}, t.name, t, func(p *params, args []string) error {
		p.cfg.Hosts = args
		s := &p.cfg.Spec
		s.Test, s.Op, s.EP, s.Parallel, s.Warmup = t.name, t.ops[0], traffic.RDM, 1, int64(2*t.Window)
		return nil
	}, func(p *params) error {
		if len(p.cfg.Sizes) > 1 {
			return fmt.Errorf("%s has one size: a matrix for each would be hard to read", t.name)
		}
		s := bulkOf(&p.cfg)
		return s.Validate()
	})
}

// namedTwice refuses a host that is named twice.
func namedTwice(hosts []string) error {
	for i, h := range hosts {
		if slices.Contains(hosts[:i], h) {
			return fmt.Errorf("host %s is named twice", h)
		}
	}
	return nil
}

// splitHosts reads the senders of an incast.
func splitHosts(s string) ([]string, error) {
	hosts := strings.Split(s, ",")
	if slices.Contains(hosts, "") {
		return nil, fmt.Errorf("%q has an empty name: H1,H2,H3", s)
	}
	if len(hosts) >= mesh.MaxHosts {
		return nil, fmt.Errorf("%d hosts are more than %d", len(hosts), mesh.MaxHosts-1)
	}
	return hosts, namedTwice(hosts)
}

// bulkOf is the test of bandwidth that servers run with each other.
func bulkOf(cfg *Config) traffic.Spec {
	s := cfg.Spec
	s.Test, s.Size, s.Parallel, s.Within, s.Iters = traffic.BW, cfg.Sizes[0], 1, 0, 0
	s.Warmup = int64(2 * s.Window)
	return s
}

// runRack runs a test between many hosts.
func runRack(ctx context.Context, cfg *Config, stdout io.Writer) error {
	o, err := newOutcome(cfg, stdout)
	if err != nil {
		return err
	}
	return o.finish(o.rack(ctx))
}

// rack runs the test and prints it.
func (o *outcome) rack(ctx context.Context) error {
	cfg := o.cfg
	sec, err := loadKeys(cfg)
	if err != nil {
		return err
	}
	if sec != nil {
		defer func() { _ = sec.Close() }()
	}
	names := cfg.Hosts
	if cfg.Target != "" {
		names = append([]string{cfg.Target}, cfg.Hosts...)
	}
	var hosts []mesh.Host
	for _, name := range names {
		rctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
		a, err := perf.Resolve(rctx, name, perf.Port, cfg.Domain)
		cancel()
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(hosts, func(h mesh.Host) bool { return h.Addr == a }); i >= 0 {
			return &usage{fmt.Errorf("%s and %s are the same server, %v", hosts[i].Name, name, a)}
		}
		hosts = append(hosts, mesh.Host{Name: name, Addr: a})
	}
	if name := itself(hosts); name != "" {
		return &usage{fmt.Errorf("%s is this host to itself, and each of the others to itself: name addresses that all hosts reach", name)}
	}
	p := newPrinter(o.people, cfg)
	for i := range max(1, cfg.Repeat) {
		if err := o.rackOnce(ctx, p, hosts, sec, i == 0); err != nil {
			return err
		}
	}
	p.medians(&o.rec)
	return nil
}

// rackOnce runs the test one time and prints it, with who takes part if that is to be said.
func (o *outcome) rackOnce(ctx context.Context, p *printer, hosts []mesh.Host, sec *uet.Security, who bool) error {
	cfg := o.cfg
	w := &rackWatch{p: p, hosts: hosts}
	mc := &mesh.Config{
		Test: cfg.Spec.Test, Hosts: hosts, Bulk: bulkOf(cfg), AtOnce: cfg.AtOnce,
		Dial: func(ctx context.Context, a netip.AddrPort) (*perf.Client, error) {
			return perf.Dial(ctx, a, perf.ClientConfig{EP: cfg.Spec.EP, Sec: cfg.Spec.Sec, Keys: sec, Domain: cfg.Domain, DataPorts: cfg.DataPorts, Timeout: cfg.Timeout, Silence: cfg.Silence})
		},
		Ready: func(m *record.Mesh) {
			if who {
				p.rackHeader(cfg, m)
			}
		},
		Progress: p.rackProgress,
	}
	if cfg.Watch {
		mc.Going, mc.Progress = w.going, nil
	}
	run, err := mesh.Run(ctx, mc)
	w.end()
	p.clear()
	if errors.Is(err, context.Canceled) {
		run.Error = "interrupted"
	}
	o.rec.Runs = append(o.rec.Runs, *run)
	p.rack(cfg, run.Mesh)
	o.failed = o.failed || run.Mesh.Failed()
	return err
}

// itself returns a host with a loopback address beside hosts that have others; "" if there is none. All
// may have one, as several servers on one host.
func itself(hosts []mesh.Host) string {
	here := func(h mesh.Host) bool { return h.Addr.Addr().IsLoopback() }
	i := slices.IndexFunc(hosts, here)
	if i < 0 || !slices.ContainsFunc(hosts, func(h mesh.Host) bool { return !here(h) }) {
		return ""
	}
	return hosts[i].Name
}

// rackHeader prints who takes part.
func (p *printer) rackHeader(cfg *Config, m *record.Mesh) {
	if p.cfg.Quiet {
		return
	}
	s := bulkOf(cfg)
	what := fmt.Sprintf("bandwidth of %s, window %d, %v a test", units.Size(s.Size), s.Window, s.Time)
	if cfg.Spec.Test == mesh.Mesh {
		what = fmt.Sprintf("half round trips of %d B, then %s", record.MeshLatencySize, what)
	}
	fmt.Fprintf(p.w, "%s: %s; %s/%s, security %s; %s\n", cfg.Spec.Test, units.Plural(len(m.Hosts), "host"), strings.ToUpper(s.EP), strings.ToUpper(s.Mode), s.Sec, what)
	for i := range m.Hosts {
		h := &m.Hosts[i]
		if h.Error != "" {
			fmt.Fprintf(p.w, "  %s: takes no part: %s\n", h.Name, h.Error)
			continue
		}
		fmt.Fprintf(p.w, "  %s: %s, clock %s ± %s\n", h.Name, h.Host.Name, signed(time.Duration(h.AheadNS)), time.Duration(h.WithinNS).Round(time.Microsecond))
	}
}

// signed formats how far a clock is ahead.
func signed(d time.Duration) string {
	d = d.Round(time.Microsecond)
	if d < 0 {
		return fmt.Sprintf("%v behind", -d)
	}
	return fmt.Sprintf("%v ahead", d)
}

// rackProgress prints how many pairs are done, on a terminal.
func (p *printer) rackProgress(done, of int) {
	if p.tty && !p.cfg.Quiet {
		p.live = true
		fmt.Fprintf(p.w, "\r\x1b[K%d of %d pairs", done, of)
	}
}

// A rackWatch says with --watch what servers measure with each other. They tell nothing before a test is
// over.
type rackWatch struct {
	p     *printer
	hosts []mesh.Host
	stop  func() // nil until something goes on

	mu    sync.Mutex // guards what follows
	state mesh.State
}

// going notes what begins. The first time the lines begin.
func (w *rackWatch) going(st mesh.State) {
	w.mu.Lock()
	w.state = st
	w.mu.Unlock()
	if w.stop != nil {
		return
	}
	begin, t := time.Now(), time.NewTicker(w.p.every)
	quit, done := make(chan struct{}), make(chan struct{})
	w.stop = func() {
		close(quit)
		<-done
		t.Stop()
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-t.C:
				w.say(time.Since(begin))
			case <-quit:
				return
			}
		}
	}()
}

// end ends the lines.
func (w *rackWatch) end() {
	if w.stop != nil {
		w.stop()
	}
}

// say prints a line, on a terminal in the place of the last one.
func (w *rackWatch) say(at time.Duration) {
	w.mu.Lock()
	st := w.state
	w.mu.Unlock()
	of := map[string]string{traffic.Lat: "latency", traffic.BW: "bandwidth"}[st.Test]
	text := fmt.Sprintf("%s: %d of %d pairs done; %s of %d", w.p.cfg.Spec.Test, st.Done, st.Of, of, len(st.Pairs))
	if w.p.tty {
		w.p.live = true
		fmt.Fprintf(w.p.w, "\r\x1b[K%.0fs %s", at.Seconds(), text)
		return
	}
	var names []string
	for _, x := range st.Pairs[:min(len(st.Pairs), 3)] {
		names = append(names, w.hosts[x[0]].Name+" → "+w.hosts[x[1]].Name)
	}
	fmt.Fprintf(w.p.w, "%7.1f s  %s: %s%s\n", at.Seconds(), text, strings.Join(names, ", "), more(len(st.Pairs)-len(names)))
}

// more says how many are not named; "" if all are.
func more(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// rack prints the results.
func (p *printer) rack(cfg *Config, m *record.Mesh) {
	if len(m.Pairs) == 0 {
		return
	}
	if cfg.Spec.Test == mesh.Mesh {
		p.matrix(m, "half round trip, p50 [µs]", func(x *record.MeshPair) string {
			switch {
			case x.Latency == nil:
				return "-"
			case x.Far:
				return inµs(float64(x.Latency.P50), 4) + "!"
			}
			return inµs(float64(x.Latency.P50), 4)
		})
	}
	p.matrix(m, "bandwidth [Gb/s]", func(x *record.MeshPair) string {
		switch {
		case x.GoodputBPS == nil:
			return "-"
		case x.Slow:
			return gbpsText(*x.GoodputBPS) + "!"
		}
		return gbpsText(*x.GoodputBPS)
	})
	if cfg.Spec.Test != mesh.Mesh {
		p.flows(m)
	}
	if m.ApartNS > 0 && !p.cfg.Quiet {
		fmt.Fprintf(p.w, "what was to begin at once began within %v\n", time.Duration(m.ApartNS).Round(time.Microsecond))
	}
	p.stand(m)
	if i, bad, of := m.Worst(); bad > 0 {
		fmt.Fprintf(p.w, "%d of the %s of %s are slow or failed: look there first\n", bad, units.Plural(of, "pair"), m.Hosts[i].Name)
	}
}

// mostNamed is how many slow links are named. The record has all.
const mostNamed = 10

// stand names the pairs that stand out: all that failed, and the slowest.
func (p *printer) stand(m *record.Mesh) {
	var slow, far []*record.MeshPair
	for _, h := range m.Hosts {
		if p.cfg.Quiet && h.Error != "" { // no header says so
			fmt.Fprintf(p.w, "FAILED %s: %s\n", h.Name, h.Error)
		}
	}
	for i := range m.Pairs {
		x := &m.Pairs[i]
		from, to := m.Hosts[x.From].Name, m.Hosts[x.To].Name
		switch {
		case m.Hosts[x.From].Error != "" || m.Hosts[x.To].Error != "": // the host is named above
		case x.Error != "":
			fmt.Fprintf(p.w, "FAILED %s → %s: %s\n", from, to, x.Error)
		case x.Wrong > 0:
			fmt.Fprintf(p.w, "WRONG %s → %s: %s with wrong data\n", from, to, units.Plural(int(x.Wrong), "message"))
		}
		if x.Slow {
			slow = append(slow, x)
		}
		if x.Far {
			far = append(far, x)
		}
	}
	slices.SortFunc(slow, func(a, b *record.MeshPair) int { return cmp.Compare(*a.GoodputBPS, *b.GoodputBPS) })
	slices.SortFunc(far, func(a, b *record.MeshPair) int { return cmp.Compare(b.Latency.P50, a.Latency.P50) })
	for i, x := range slow[:min(mostNamed, len(slow))] {
		fmt.Fprintf(p.w, "slow: %s → %s: %s Gb/s (median of all pairs %s), %s%s\n", m.Hosts[x.From].Name, m.Hosts[x.To].Name, gbpsText(*x.GoodputBPS), gbpsText(m.MedianBPS), units.Plural(int(x.Rtx), "retransmission"), andMore(i, len(slow)))
	}
	for i, x := range far[:min(mostNamed, len(far))] {
		fmt.Fprintf(p.w, "far: %s → %s: %s (median of all pairs %s)%s\n", m.Hosts[x.From].Name, m.Hosts[x.To].Name, µs(x.Latency.P50), µs(int64(m.MedianNS)), andMore(i, len(far)))
	}
}

// andMore says behind the last one of a list how many are not in it.
func andMore(i, n int) string {
	if i == mostNamed-1 && n > mostNamed {
		return fmt.Sprintf("; and %d more", n-mostNamed)
	}
	return ""
}

// flows prints what hosts sent and received in all, and how fair that was.
func (p *printer) flows(m *record.Mesh) {
	var sent, received = make([]float64, len(m.Hosts)), make([]float64, len(m.Hosts))
	all := 0.0
	for i := range m.Pairs {
		if x := &m.Pairs[i]; x.GoodputBPS != nil {
			sent[x.From] += *x.GoodputBPS
			received[x.To] += *x.GoodputBPS
			all += *x.GoodputBPS
		}
	}
	for i, h := range m.Hosts {
		var parts []string
		if sent[i] > 0 {
			parts = append(parts, fmt.Sprintf("sent %s Gb/s", gbpsText(sent[i])))
		}
		if received[i] > 0 {
			parts = append(parts, fmt.Sprintf("received %s Gb/s", gbpsText(received[i])))
		}
		if parts != nil {
			fmt.Fprintf(p.w, "%s: %s\n", h.Name, strings.Join(parts, ", "))
		}
	}
	fair := ""
	if m.Jain != nil {
		fair = fmt.Sprintf("; fairness of pairs (Jain) %.3f", *m.Jain)
	}
	fmt.Fprintf(p.w, "in all %s Gb/s%s\n", gbpsText(all), fair)
}

// matrix prints a value of all pairs, from the host of the row to that of the column.
func (p *printer) matrix(m *record.Mesh, what string, cell func(*record.MeshPair) string) {
	to := map[int]bool{}
	at := map[[2]int]*record.MeshPair{}
	for i := range m.Pairs {
		x := &m.Pairs[i]
		at[[2]int{x.From, x.To}] = x
		to[x.To] = true
	}
	first, wide := len("from \\ to"), 8
	for i := range m.Hosts {
		first = max(first, len(m.Hosts[i].Name))
		wide = max(wide, len(m.Hosts[i].Name))
	}
	wide = min(wide, 24)
	fmt.Fprintf(p.w, "%s\n%-*s", what, first, "from \\ to")
	for i := range m.Hosts {
		if to[i] {
			fmt.Fprintf(p.w, "  %*s", wide, m.Hosts[i].Name)
		}
	}
	fmt.Fprintln(p.w)
	for i := range m.Hosts {
		line := fmt.Sprintf("%-*s", first, m.Hosts[i].Name)
		some := false
		for k := range m.Hosts {
			if !to[k] {
				continue
			}
			text := ""
			if x := at[[2]int{i, k}]; x != nil {
				some = true
				if text = cell(x); x.Error != "" {
					text = "failed"
				}
			}
			line += fmt.Sprintf("  %*s", wide, text)
		}
		if some {
			fmt.Fprintln(p.w, strings.TrimRight(line, " "))
		}
	}
}

// checkFrom refuses what an incast of one process has and one from several hosts has not.
func (p *params) checkFrom() error {
	c := &p.cfg
	switch {
	case c.Hosts == nil:
		return nil
	case slices.Contains(c.Hosts, c.Target):
		return fmt.Errorf("--from %s is also the receiver", c.Target)
	case len(c.Sizes) > 1:
		return errors.New("with --from an incast has one size")
	case c.Impair != nil || c.Watch:
		return errors.New("with --from the hosts send, not this process: leave --impair and --watch out")
	}
	for _, name := range []string{"parallel", "share-port", "within", "sample", "warmup", "paths", "pcap", "csv", "trim", "encapsulation"} {
		if p.given(name) {
			return fmt.Errorf("--%s is not for an incast --from several hosts, of which each has one stream: leave it out", name)
		}
	}
	return nil
}
