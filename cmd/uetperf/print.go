package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	if x, ok := w.(*watched); ok {
		w = x.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// A printer writes results for people.
type printer struct {
	w     io.Writer
	cfg   *Config
	every time.Duration // time between interval lines; 0 means none
	last  int64
	at    time.Duration
	seen  perf.Watched // at the last line of --watch
	tty   bool         // w is a terminal
	live  bool         // the cursor stands in a line of --watch
}

func newPrinter(w io.Writer, cfg *Config) *printer {
	p := &printer{w: w, cfg: cfg, every: cfg.Interval, tty: isTerminal(w)}
	if p.every == 0 && p.tty && cfg.Spec.Time > time.Second {
		p.every = time.Second
	}
	if cfg.Quiet {
		p.every = 0
	}
	return p
}

// modeText describes endpoint type, mode, completion, progress and security.
func modeText(c *record.Config, loopback bool) string {
	sec := map[string]string{
		traffic.PSK: "security psk (sealed under the cluster key)", traffic.TLS: "security tls (certificates; sealed)",
	}[c.Sec]
	if sec == "" {
		sec = "security off, CRC " + onOff(c.CRC)
		if !loopback {
			sec = "unsecured: others can read and forge it (--sec psk|tls), CRC " + onOff(c.CRC)
		}
	}
	if c.Trimming {
		sec += ", trimming on"
	}
	if c.BaseRTTNS > 0 {
		sec += fmt.Sprintf(", base RTT %v", time.Duration(c.BaseRTTNS))
	}
	return fmt.Sprintf("%s/%s, %s complete, progress %s, %s", strings.ToUpper(c.EP), strings.ToUpper(c.Mode), c.Complete, c.Progress, sec)
}

func feature(name string, f record.Feature) string {
	if strings.HasPrefix(f.Why, "Config.") && strings.HasSuffix(f.Why, " off") {
		f.Why = "--gso off" // which turns off GRO, too
	}
	switch {
	case f.On && f.Why == "":
		return name + " on"
	case f.On:
		return name + " on (" + f.Why + ")"
	case f.Why == "":
		return name + " off"
	}
	return name + " off (" + f.Why + ")"
}

func buffer(name string, got, asked int) string {
	if got == 0 {
		return ""
	}
	s := fmt.Sprintf("%s buffer %s", name, units.Bytes(int64(got)))
	if got < asked {
		s += " of " + units.Bytes(int64(asked)) + " asked"
	}
	return s
}

// pathText describes a path.
func pathText(p *record.Path, mtu, paths int) string {
	ecn := "ECN off"
	if p.ECN {
		ecn = "ECN on"
	}
	parts := []string{
		fmt.Sprintf("%s, MTU %d, payload %d B", p.Interface, p.MTU, mtu), feature("GSO", p.GSO) + ", " + feature("GRO", p.GRO),
		buffer("receive", p.Rcvbuf, p.RcvbufAsked), buffer("send", p.Sndbuf, p.SndbufAsked), units.Plural(paths, "path"), ecn,
	}
	out := parts[:0]
	for _, s := range parts {
		if s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}

// header prints what is measured, between which hosts, over which path.
func (p *printer) header(r *record.Record, addr netip.AddrPort, c *perf.Client) {
	if p.cfg.Quiet {
		return
	}
	arrow := map[string]string{"forward": "→", "reverse": "←", "both": "↔"}[r.Config.Direction]
	fmt.Fprintf(p.w, "%s %s: %v (%s) %s %v (%s); %s\n", r.Config.Test, r.Config.Op, c.Local().Addr(), r.Host.Name, arrow, addr, r.Peer.Name, modeText(&r.Config, addr.Addr().IsLoopback()))
	fmt.Fprintf(p.w, "path: %s; seed %d\n", pathText(r.Path, r.Config.MTU, r.Config.Paths), r.Seed)
	if p.cfg.Impair != nil {
		fmt.Fprintf(p.w, "impaired by a relay in this process: %s\n", p.cfg.Impair)
	}
	switch r.Config.Test {
	case traffic.BW, traffic.Rate, traffic.Load, traffic.Incast:
		if w := r.Config.Window; w != p.cfg.Spec.Window {
			fmt.Fprintf(p.w, "window %d instead of %d: checked messages of this size need %s of buffers\n", w, p.cfg.Spec.Window, units.Bytes(int64(w)*p.cfg.Sizes[0]))
		}
	case traffic.Ping:
		fmt.Fprintf(p.w, "set-up: session with the server %s%s\n", µs(int64(c.Setup())), ofConnection(c.Connected()))
	}
	p.columns(r.Config.Test)
}

// columns prints the column headers of a test.
func (p *printer) columns(test string) {
	switch test {
	case traffic.Load, traffic.RR, traffic.Incast:
		p.moreColumns(test)
	case traffic.Lat:
		what := "one-way = rtt/2, µs"
		if p.cfg.Spec.OneSided() {
			what = record.ToCompletion + ", µs"
		}
		fmt.Fprintf(p.w, what+"\n%8s %8s %8s %8s %8s %8s %8s %9s %16s %6s %5s %5s %5s %6s\n",
			"size", "iters", "min", "p50", "p90", "p99", "p99.9", "max", "avg±sd", "rtx", "spur", "trim", "ecn", "cpu%")
	case traffic.BW, traffic.Rate:
		fmt.Fprintf(p.w, "%8s %10s %7s %14s %9s %12s %6s %5s %6s %5s %8s %8s\n",
			"size", "msgs", "secs", "goodput[Gb/s]", "MB/s", "msg[/s]", "rtx", "spur", "ooo", "ecn", "cpu-tx%", "cpu-rx%")
	}
}

// ready prints how long it took to open the endpoints.
func (p *printer) ready(s *traffic.Spec, setup, connected time.Duration) {
	if s.Test == traffic.Ping && !p.cfg.Quiet {
		fmt.Fprintf(p.w, "set-up: endpoints of the test at both ends %s%s\n", µs(int64(setup)), ofConnection(connected))
	}
}

// ofConnection tells how much of a set-up time the connection took; "" if none.
func ofConnection(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return ", of this the connection " + µs(int64(d))
}

// hooks makes a run report its progress to the printer.
func (p *printer) hooks(s *traffic.Spec, h *perf.Hooks) {
	p.last, p.at, p.seen = 0, 0, perf.Watched{}
	size := s.Size
	switch {
	case p.cfg.Watch:
		h.Every, h.Watch = p.every, func(w perf.Watched) { p.watch(s.Test, size, w) }
	case s.Test == traffic.Ping && !p.cfg.Quiet:
		h.Reply = func(n int64, rtt time.Duration) {
			note := ""
			if n == 0 {
				note = "   (first data: its packet opens the context)"
			}
			if rtt == 0 {
				fmt.Fprintf(p.w, "%d bytes: seq=%d no answer in time\n", size, n)
				return
			}
			fmt.Fprintf(p.w, "%d bytes: seq=%d rtt=%s%s\n", size, n, µs(int64(rtt)), note)
		}
	case s.Time > 0 && p.every > 0:
		h.Every = p.every
		h.Interval = func(n int64, at time.Duration) {
			secs := (at - p.at).Seconds()
			rate := float64(n-p.last) / secs
			bps := rate * float64(size) * 8
			switch {
			case s.Test == traffic.Load || s.Test == traffic.RR:
				fmt.Fprintf(p.w, "%8s %7.1f s %12.0f replies/s\n", units.Size(size), at.Seconds(), rate)
			case s.Test == traffic.Lat:
				fmt.Fprintf(p.w, "%8s %7.1f s %12.0f round trips/s\n", units.Size(size), at.Seconds(), rate)
			case s.Test == traffic.Incast:
				fmt.Fprintf(p.w, "%8s %7.1f s %12.0f blocks/s %9s Gb/s\n", units.Size(size), at.Seconds(), rate, gbpsText(bps))
			default:
				fmt.Fprintf(p.w, "%8s %10d %7.1f %14s %9s %12s\n", units.Size(size), n-p.last, at.Seconds(), gbpsText(bps), mbpsText(bps), rateText(rate))
			}
			p.last, p.at = n, at
		}
	case s.Time == 0 && s.Iters > 0 && p.tty && !p.cfg.Quiet:
		h.Every = time.Second
		h.Interval = func(n int64, at time.Duration) {
			p.live = true
			all := (s.Warmup + s.Iters) * int64(max(1, s.Parallel))
			fmt.Fprintf(p.w, "\r\x1b[K%s %s: %.0f s, %s of %s messages", s.Test, units.Size(size), at.Seconds(), units.Count(float64(min(n, all))), units.Count(float64(all)))
		}
	}
}

// µs formats nanoseconds.
func µs(ns int64) string {
	if ns >= 1e6 {
		return fmt.Sprintf("%.2f ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.1f µs", float64(ns)/1e3)
}

// percent returns ns as a percentage of the run's time.
func percent(ns int64, r *record.Run) string {
	if r.DurationNS <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*float64(ns)/float64(r.DurationNS))
}

// cpuText returns the processor time of both ends in percent.
func cpuText(r *record.Run) (mine, peer string) {
	if r.CPU == nil {
		return "-", "-"
	}
	mine = percent(r.CPU.UserNS+r.CPU.SysNS, r)
	if r.PeerTransport == nil || r.CPU.PeerUserNS+r.CPU.PeerSysNS == 0 {
		return mine, "-"
	}
	return mine, percent(r.CPU.PeerUserNS+r.CPU.PeerSysNS, r)
}

// run prints one line of results.
func (p *printer) run(s *traffic.Spec, res *perf.Result) {
	p.clear()
	r := &res.Run
	sum := both(r)
	mine, peer := cpuText(r)
	switch {
	case printed(s.Test):
		p.more(s, r)
	case s.Test != traffic.Ping && !measured(s.Test, r):
		fmt.Fprintf(p.w, "%8s nothing was measured\n", units.Size(r.Size))
	case s.Test == traffic.Lat:
		l := r.Latency
		f := func(ns int64) string { return inµs(float64(ns), 8) }
		fmt.Fprintf(p.w, "%8s %8d %8s %8s %8s %8s %8s %9s %16s %6d %5d %5d %5d %6s\n", units.Size(r.Size), r.Msgs, f(l.Min), f(l.P50), f(l.P90), f(l.P99), f(l.P999),
			inµs(float64(l.Max), 9), avgText(l), sum.Rtx(), sum.Spurious(), sum.Trimmed, sum.ECNCE, mine)
	case s.Test == traffic.Ping:
		p.ping(r)
	default:
		if s.Reverse {
			mine, peer = peer, mine
		}
		fmt.Fprintf(p.w, "%8s %10d %7.2f %14s %9s %12s %6d %5d %6d %5d %8s %8s\n", units.Size(r.Size), r.Msgs, float64(r.DurationNS)/1e9, gbpsText(*r.GoodputBPS),
			mbpsText(*r.GoodputBPS), rateText(*r.MsgsPerS), sum.Rtx(), sum.Spurious(), sum.OOO, sum.ECNCE, mine, peer)
		if s := withinText(r); s != "" && !p.cfg.Quiet {
			fmt.Fprintf(p.w, "%8s %s\n", "", s)
		}
	}
	if r.Sent != nil {
		what := "datagrams"
		if s.Pingpong() || s.Exchanges() {
			what = "round trips"
		}
		fmt.Fprintf(p.w, "%8s %d of %d %s lost (%.2f %%)\n", "", *r.Lost, *r.Sent, what, 100*float64(*r.Lost)/float64(max(1, *r.Sent)))
	}
	if p.cfg.Verbose {
		p.details(res)
	}
}

// withinText tells of a stream what its mean hides: the slowest interval, and how long single
// messages took; "" if neither is known.
func withinText(r *record.Run) string {
	var out []string
	if x := r.Slowest; x != nil {
		out = append(out, fmt.Sprintf("slowest of %d intervals (%.0f ms): %s Gb/s", x.Of, float64(x.DurationNS)/1e6, gbpsText(x.GoodputBPS)))
	}
	if l := r.Latency; l != nil && l.Completion {
		out = append(out, fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s, max %s", record.ToCompletion, µs(l.P50), µs(l.P99), µs(l.P999), µs(l.Max)))
	}
	return strings.Join(out, "; ")
}

func (p *printer) ping(r *record.Run) {
	if p.cfg.Quiet {
		fmt.Fprintf(p.w, "set-up %s, first data there and back %s\n", µs(r.SetupNS), µs(r.FirstNS))
	}
	if l := r.Latency; l != nil {
		fmt.Fprintf(p.w, "%s: min %s, avg %s, max %s, sd %s; %s\n", units.Plural(int(r.Msgs), "round trip"), µs(l.Min), µs(int64(l.Mean)), µs(l.Max), µs(int64(l.StdDev)), retransmitted(r))
	}
}

// retransmitted says how many packets of both ends were sent again, and how many of them for nothing.
func retransmitted(r *record.Run) string {
	s := both(r)
	return units.Plural(int(s.Rtx()), "retransmission") + splitText(s.Rtx(), s.Spurious(), count)
}

// resentText is a number of packets that were sent again, with its two parts.
func resentText(c *record.Counters) string {
	return count(c.Rtx()) + splitText(c.Rtx(), c.Spurious(), count)
}

// splitText says of packets that were sent again how many the network had lost, and how many the
// other end had already; "" if none was sent again.
func splitText(resent, spurious uint64, text func(uint64) string) string {
	if resent == 0 {
		return ""
	}
	spurious = min(spurious, resent)
	return fmt.Sprintf(" (%s lost, %s spurious)", text(resent-spurious), text(spurious))
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

func retransmissions(r *record.Run) uint64 {
	s := both(r)
	return s.Rtx()
}

// waits prints what operations waited for, if the run failed, or if it stalled and the
// output is verbose. It prints nothing for a user who interrupted a test that was making
// progress.
func (p *printer) waits(res *perf.Result, err error) {
	failed := err != nil && (res.Stalled > 0 || !errors.Is(err, context.Canceled))
	if !failed && !p.cfg.Verbose || res.Waiting == nil && !failed {
		return
	}
	if res.Stalled > 0 {
		fmt.Fprintf(p.w, "nothing went on for %v; operations waited:\n", res.Stalled)
	}
	for _, s := range res.Waiting {
		fmt.Fprintf(p.w, "  here:  %s\n", s)
	}
	for _, s := range res.PeerWaiting {
		fmt.Fprintf(p.w, "  there: %s\n", s)
	}
}

// trimText tells how many packets arrived trimmed.
func trimText(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" trimmed %d", n)
}

// details prints the counters of both ends.
func (p *printer) details(res *perf.Result) {
	p.counters("here ", &res.Run.Transport, res.Run.PeerTransport)
	p.counters("there", res.Run.PeerTransport, &res.Run.Transport)
	if p.cfg.Spec.SharePort {
		fmt.Fprintf(p.w, "  %s share a port: %s here, %s there\n", units.Plural(p.cfg.Spec.Parallel, "stream"), res.Path.Local, res.Path.Remote)
	}
	for _, st := range res.Run.Streams {
		if st.Rtx != nil {
			continue // the senders of an incast have their lines
		}
		fmt.Fprintf(p.w, "  stream %s: %d msgs, %.2f Gb/s\n", st.Direction, st.Msgs, st.GoodputBPS/1e9)
	}
	if p.cfg.Impair != nil {
		x := res.Relay
		fmt.Fprintf(p.w, "  relay: in %d, out %d, lost %d, reordered %d, duplicated %d, corrupted %d; kernel dropped %d\n", x.In, x.Out, x.Lost, x.Reordered, x.Duplicated, x.Corrupted, x.Dropped)
	}
}

// counters prints the counters of an end. What it sent again for nothing came twice at the other.
func (p *printer) counters(who string, c, other *record.Counters) {
	if c == nil {
		return
	}
	spurious := ""
	if other != nil {
		spurious = fmt.Sprintf("; spur %d", min(other.Dup, c.Rtx()))
	}
	fmt.Fprintf(p.w, "  %s: tx %d pkts %s, rx %d pkts %s; acks tx %d rx %d; rtx %d (rto %d sack %d nack %d probe %d%s); dup %d ooo %d ce %d%s\n", who, c.TxPkts,
		units.Bytes(int64(c.TxBytes)), c.RxPkts, units.Bytes(int64(c.RxBytes)), c.AcksTx, c.AcksRx, c.Rtx(), c.RtxRTO, c.RtxSACK, c.RtxNack, c.RtxProbe, spurious,
		c.Dup, c.OOO, c.ECNCE, trimText(c.Trimmed)+opsText(c)+rdvText(c)+creditText(c)+dropText(c.Drops))
}

// opsText says how many operations an end has completed, by delivery mode.
func opsText(c *record.Counters) string {
	var out strings.Builder
	for _, m := range []struct {
		name string
		n    uint64
	}{{traffic.RUD, c.OpsRUD}, {traffic.ROD, c.OpsROD}, {traffic.RUDI, c.OpsRUDI}, {traffic.UUD, c.OpsUUD}} {
		if m.n > 0 {
			fmt.Fprintf(&out, " %s %d", m.name, m.n)
		}
	}
	if out.Len() == 0 {
		return ""
	}
	return "; ops" + out.String()
}

// rdvText says how many messages an end has announced, and how many of the other end's it has read.
func rdvText(c *record.Counters) string {
	if c.RdvTx|c.RdvRx == 0 {
		return ""
	}
	return fmt.Sprintf("; rdv tx %d rx %d", c.RdvTx, c.RdvRx)
}

// creditText says how many grants of receiver credit an end has made, how many of the other end's it has used, and
// how long its packets waited for one.
func creditText(c *record.Counters) string {
	if c.CreditsGranted|c.CreditsUsed|c.CreditWaitNS == 0 {
		return ""
	}
	return fmt.Sprintf("; credit granted %d used %d waited %s", c.CreditsGranted, c.CreditsUsed, µs(int64(c.CreditWaitNS)))
}

func dropText(drops map[string]uint64) string {
	if len(drops) == 0 {
		return ""
	}
	var keys []string
	for k := range drops {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	b.WriteString("; dropped")
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s %d", k, drops[k])
	}
	return b.String()
}
