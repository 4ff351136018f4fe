package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/mesh"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/ranks"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

func ptr[T any](v T) *T { return &v }

// sample is a result with a value in every column.
func sample() *perf.Result {
	return &perf.Result{Run: record.Run{
		Size: 64 << 10, Msgs: 123456, Bytes: 123456 << 16, DurationNS: 2e9, GoodputBPS: ptr(32.36e9), MsgsPerS: ptr(61728.0),
		Latency:       &record.Latency{Min: 5432, P50: 6543, P90: 7654, P99: 18765, P999: 29876, Max: 1234567, Mean: 6789.1, StdDev: 345.6},
		Transport:     record.Counters{RtxRTO: 1, RtxSACK: 2, RtxNack: 3, RtxProbe: 4, Dup: 3, OOO: 5, ECNCE: 6, Trimmed: 7},
		PeerTransport: &record.Counters{RtxRTO: 10, Dup: 4, OOO: 20, ECNCE: 30, Trimmed: 40},
		CPU:           &record.CPU{UserNS: 1e9, SysNS: 5e8, PeerUserNS: 2e8, PeerSysNS: 3e8},
		DataCheck:     &record.Check{OK: 123456},
	}}
}

// The values stand under the heads of their columns, and the heads have the units.
func TestPrintColumns(t *testing.T) {
	for _, c := range []struct {
		test    string
		reverse bool
		columns string
		row     string
	}{
		{
			traffic.Lat, false,
			"    size    iters      min      p50      p90      p99    p99.9       max           avg±sd    rtx  spur  trim   ecn   cpu%",
			"     64K   123456     5.43     6.54     7.65    18.77    29.88   1234.57        6.79±0.35     20     7    47    36     75",
		},
		{
			traffic.BW, false,
			"    size       msgs    secs  goodput[Gb/s]      MB/s      msg[/s]    rtx  spur    ooo   ecn  cpu-tx%  cpu-rx%",
			"     64K     123456    2.00          32.36      4045        61728     20     7     25    36       75       25",
		},
		{
			traffic.Rate, true, // the server sends, so cpu-tx% is its
			"    size       msgs    secs  goodput[Gb/s]      MB/s      msg[/s]    rtx  spur    ooo   ecn  cpu-tx%  cpu-rx%",
			"     64K     123456    2.00          32.36      4045        61728     20     7     25    36       25       75",
		},
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{})
		p.columns(c.test)
		p.run(&traffic.Spec{Test: c.test, Reverse: c.reverse}, sample())
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if n := len(lines); n < 2 || lines[n-2] != c.columns || lines[n-1] != c.row {
			t.Errorf("%s:\n%s\nwant\n%s\n%s", c.test, &out, c.columns, c.row)
		}
		if a, b := utf8.RuneCountInString(c.columns), utf8.RuneCountInString(c.row); a != b {
			t.Errorf("%s: %d characters under %d", c.test, b, a)
		}
	}
}

// Below the line of bw stands what its mean hides, unless the output is for machines.
func TestPrintWithin(t *testing.T) {
	for quiet, want := range map[bool]string{
		false: "         slowest of 97 intervals (101 ms): 0.0300 Gb/s; from the call to the completion: p50 6.5 µs, p99 18.8 µs, p99.9 29.9 µs, max 1.23 ms\n", true: "",
	} {
		var out bytes.Buffer
		res := sample()
		res.Run.Slowest = &record.Slowest{GoodputBPS: 3e7, DurationNS: 101e6, Of: 97}
		res.Run.Latency.Completion = true
		s := traffic.Spec{Test: traffic.BW}
		newPrinter(&out, &Config{Spec: s, Quiet: quiet}).run(&s, res)
		if _, got, _ := strings.Cut(out.String(), "\n"); got != want {
			t.Errorf("quiet %v: %q, want %q", quiet, got, want)
		}
	}
}

// Packets that were sent again have two parts wherever they are shown, if there are any.
func TestPrintResent(t *testing.T) {
	r := &sample().Run
	if got, want := retransmitted(r), "20 retransmissions (13 lost, 7 spurious)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	sum := both(r)
	if got, want := resentText(&sum), "20 (13 lost, 7 spurious)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := resentText(&record.Counters{Dup: 3}), "0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var out bytes.Buffer
	newPrinter(&out, &Config{}).details(&perf.Result{Run: *r})
	for _, want := range []string{"rtx 10 (rto 1 sack 2 nack 3 probe 4; spur 4)", "rtx 10 (rto 10 sack 0 nack 0 probe 0; spur 3)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q has no %q", &out, want)
		}
	}
}

// The same holds for load, rr and incast.
func TestPrintMoreColumns(t *testing.T) {
	l := func(ns int64) *record.Latency {
		return &record.Latency{Min: ns, P50: ns, P90: 2 * ns, P99: 3 * ns, P999: 4 * ns, Max: 5 * ns, Mean: float64(ns), StdDev: float64(ns) / 10}
	}
	for _, c := range []struct {
		spec traffic.Spec
		run  func(*record.Run)
		want string
	}{
		{
			traffic.Spec{Test: traffic.Load, Arrivals: "poisson", Reply: 2048}, func(r *record.Run) {
				r.Load = &record.Load{Offered: 200000, OfferedPer: 100000, Late: 3000, Unsent: 2000, Overloaded: true}
			},
			"round trips from the intended time of a request to its reply (2 KiB, poisson arrivals), µs; late: begun more than 100µs after that time\n" +
				"    size  offered[/s] achieved[/s]   late%      p50      p90      p99       max           avg±sd    rtx  spur   ecn   cpu%\n" +
				"     64K       100000        61728    1.50     6.54     7.65    18.77   1234.57        6.79±0.35     20     7    36     75\n" +
				"overloaded: the host or the path carries at most 61.7 k of the 100 k requests a second; 2 k were never sent; the latencies say how long the test was\n",
		},
		{
			traffic.Spec{Test: traffic.RR, Reply: 100}, func(r *record.Run) {
				r.Errors, r.LastError = ptr(int64(3)), "no reply came"
				r.Churn = &record.Churn{Open: l(100_000), Close: l(200_000)}
			},
			"round trips from a request to its reply, µs\n" +
				"    size    reply      trans    trans[/s]      p50      p90      p99    p99.9       max           avg±sd  errors    rtx  spur   cpu%\n" +
				"     64K      100     123456        61728     6.54     7.65    18.77    29.88   1234.57        6.79±0.35       3     20     7     75\n" +
				"    open                                    100.00   200.00   300.00   400.00    500.00     100.00±10.00\n" +
				"   close                                    200.00   400.00   600.00   800.00   1000.00     200.00±20.00\n" +
				"the last error: no reply came\n",
		},
		{
			traffic.Spec{Test: traffic.Incast}, func(r *record.Run) {
				r.Incast = &record.Incast{Jain: ptr(0.98765), ConvergenceNS: ptr(int64(1.5e9)), Rounds: 321, Round: l(2e6)}
				r.Streams = []record.Stream{{Msgs: 5, GoodputBPS: 2e9, Rtx: ptr(uint64(4)), Spurious: ptr(uint64(1)), ECN: ptr(uint64(2)), Trimmed: ptr(uint64(3))}}
				r.Transport.Drops = map[string]uint64{"kernel": 4}
			},
			"    size senders  goodput[Gb/s]    jain converged[s]   rounds      p50[ms]      p99[ms]      max[ms]    rtx  spur    ecn  drops\n" +
				"     64K       1          32.36  0.9877         1.50      321        2.000        6.000       10.000     20     7     36      4\n" +
				"  sender  1:        5 blocks    2.000 Gb/s; rtx 4, spur 1, ecn 2, trim 3\n",
		},
		{
			traffic.Spec{Test: traffic.Incast}, func(r *record.Run) { r.Incast, r.Streams = &record.Incast{}, nil },
			"    size senders  goodput[Gb/s]    jain converged[s]   rounds      p50[ms]      p99[ms]      max[ms]    rtx  spur    ecn  drops\n" +
				"     64K       0          32.36       -            -        0            -            -            -     20     7     36      0\n",
		},
		{
			traffic.Spec{Test: traffic.RR}, func(r *record.Run) {
				r.Msgs, r.Latency, r.Errors, r.LastError = 0, nil, ptr(int64(5)), "no reply came"
			},
			"round trips from a request to its reply, µs\n" +
				"    size    reply      trans    trans[/s]      p50      p90      p99    p99.9       max           avg±sd  errors    rtx  spur   cpu%\n" +
				"     64K nothing was measured\nthe last error: no reply came\n",
		},
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{Spec: c.spec})
		p.columns(c.spec.Test)
		res := sample()
		c.run(&res.Run)
		p.run(&c.spec, res)
		if out.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.spec.Test, &out, c.want)
		}
	}
}

// A leak is reported as one, and so is a soak that was too short to tell.
func TestPrintSoak(t *testing.T) {
	var out bytes.Buffer
	r := record.Run{
		Transport: record.Counters{Drops: map[string]uint64{"no_pdc": 5}}, PeerTransport: &record.Counters{Drops: map[string]uint64{"no_pdc": 2, "rate": 3}},
		DurationNS: 36e11, Msgs: 5_000_000, Bytes: 3 << 30, LastError: "bw tsend: 1 messages were lost",
		Soak: &record.Soak{Episodes: 1800, Failed: 1, Leaks: []record.Leak{
			{End: "client", What: "heap", Mean: 10 << 20, Growth: 5 << 20, Slope: 5 << 20, Bound: 4 << 20, Samples: 400, Leaks: true},
			{End: "server", What: "rss", Mean: 100 << 20, Growth: -1 << 20, Slope: -1 << 20, Bound: 32 << 20, Samples: 400},
			{End: "server", What: "fds", Mean: 14, Samples: 3, Bound: 4},
		}},
	}
	newPrinter(&out, &Config{}).run(&traffic.Spec{Test: traffic.Soak}, &perf.Result{Run: r})
	want := "1800 tests in 1h0m0s, 1 failed: 5 M messages, 3 GiB; resent 0, ecn 0, dropped 10\n" +
		"  client dropped no_pdc            5 harmless: late packets of contexts that were closed meanwhile, as at the end of each test\n" +
		"  server dropped rate              3 look: answers to packets of contexts that are not here, beyond 10 000 a second: somebody else sends to this port\n" +
		"  server dropped no_pdc            2 harmless: late packets of contexts that were closed meanwhile, as at the end of each test\n" +
		"the last that failed: bw tsend: 1 messages were lost\n" +
		"  client heap       mean     10 MiB, grew      5 MiB (5 MiB an hour), may grow      4 MiB: LEAKS\n" +
		"  server rss        mean    100 MiB, grew     -1 MiB (-1 MiB an hour), may grow     32 MiB: steady\n" +
		"  server fds        mean       14.0: not judged by 3 samples, of 8 at least\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}

// Interval lines stand under the same columns, and each counts from the previous one.
func TestPrintInterval(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out, &Config{Interval: time.Second})
	var h perf.Hooks
	p.hooks(&traffic.Spec{Test: traffic.BW, Size: 1 << 20, Time: 10 * time.Second}, &h)
	h.Interval(1000, time.Second)
	h.Interval(1500, 1500*time.Millisecond)
	want := "" +
		"      1M       1000     1.0           8.39      1049         1000\n" +
		"      1M        500     1.5           8.39      1049         1000\n"
	p.hooks(&traffic.Spec{Test: traffic.BW, Size: 1, Time: 10 * time.Second}, &h)
	h.Interval(300000, time.Second)
	want += "       1     300000     1.0         0.0024      0.30       300000\n"
	if h.Every != time.Second || out.String() != want {
		t.Errorf("every %v:\n%s\nwant\n%s", h.Every, &out, want)
	}
}

// A line of --watch counts from the previous one; on a terminal it takes its place and goes
// before a result.
func TestPrintWatch(t *testing.T) {
	for tty, want := range map[bool]string{
		false: "    1.0 s  bw 1M: 1000 msg/s, 8.39 Gb/s; round trip 120µs, window 1 MiB; a second: resent 30 (30 lost, 0 spurious), marked 0, dropped 0\n" +
			"    3.0 s  bw 1M: 500 msg/s, 4.19 Gb/s; round trip -, window -; a second: resent 5.0 (3.0 lost, 2.0 spurious), marked 20, dropped 0.5\n" +
			"    4.0 s  bw 1M: 1000 msg/s, 8.39 Gb/s; latency p50 123µs, p99 7ms, window -; a second: resent 0, marked 0, dropped 0\n",
		true: "\r\x1b[K1.0s bw 1M: 1000/s 8.39 Gb/s rtt 120µs win 1 MiB rtx 30 ecn 0 drop 0" +
			"\r\x1b[K3.0s bw 1M: 500/s 4.19 Gb/s rtt - win - rtx 5.0 spur 2.0 ecn 20 drop 0.5" +
			"\r\x1b[K4.0s bw 1M: 1000/s 8.39 Gb/s p50 123µs p99 7ms win - rtx 0 ecn 0 drop 0\r\x1b[K",
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{Interval: time.Second, Watch: true})
		p.tty = tty
		var h perf.Hooks
		p.hooks(&traffic.Spec{Test: traffic.BW, Size: 1 << 20, Time: 10 * time.Second}, &h)
		h.Watch(perf.Watched{At: time.Second, Msgs: 1000, Window: 1 << 20, RTT: 120 * time.Microsecond, Resent: 30})
		h.Watch(perf.Watched{At: 3 * time.Second, Msgs: 2000, Resent: 40, Spurious: 4, Marked: 40, Dropped: 1})
		h.Watch(perf.Watched{At: 4 * time.Second, Msgs: 3000, P50: 123456, P99: 7 * time.Millisecond, Resent: 40, Spurious: 4, Marked: 40, Dropped: 1})
		p.clear()
		p.clear()
		if out.String() != want {
			t.Errorf("terminal %v:\n%q\nwant\n%q", tty, &out, want)
		}
	}
}

// A test between ranks says how far it is: on a terminal always, elsewhere with --watch.
func TestPrintRanksWatch(t *testing.T) {
	for _, c := range []struct {
		tty, watch, quiet bool
		want              string
	}{
		{false, false, false, ""}, {true, false, true, ""},
		{true, false, false, "\r\x1b[K2s coll bcast 1M: 10 of 100\r\x1b[K4s coll bcast 1M: 50 of 100\r\x1b[K1s coll bcast 2M: 3 of 100\r\x1b[K"},
		{false, true, false, "    2.0 s  coll bcast 1M: 10 of 100, 5.0/s, p50 123µs p99 7ms\n    4.0 s  coll bcast 1M: 50 of 100, 20.0/s\n    1.0 s  coll bcast 2M: 3 of 100, 3.0/s\n"},
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{Watch: c.watch, Quiet: c.quiet, Between: ranks.Spec{Test: ranks.Coll, Op: ranks.Bcast}})
		p.tty = c.tty
		if w := p.ranksWatch(); w.Tell != nil {
			w.Tell(ranks.State{Size: 1 << 20, Done: 10, Of: 100, At: 2 * time.Second, P50: 123456, P99: 7 * time.Millisecond})
			w.Tell(ranks.State{Size: 1 << 20, Done: 50, Of: 100, At: 4 * time.Second})
			w.Tell(ranks.State{Size: 2 << 20, Done: 3, Of: 100, At: time.Second})
		}
		p.clear()
		if out.String() != c.want {
			t.Errorf("%+v: %q", c, &out)
		}
	}
}

// A test between servers says with --watch which pairs measure what.
func TestPrintRackWatch(t *testing.T) {
	for tty, want := range map[bool]string{
		true: "\r\x1b[K2s mesh: 4 of 12 pairs done; bandwidth of 4\r\x1b[K", false: "    2.0 s  mesh: 4 of 12 pairs done; bandwidth of 4: a → b, b → a, a → c and 1 more\n",
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{Watch: true, Spec: traffic.Spec{Test: mesh.Mesh}})
		p.tty = tty
		w := &rackWatch{p: p, hosts: []mesh.Host{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
		w.state = mesh.State{Done: 4, Of: 12, Test: traffic.BW, Pairs: [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}}}
		w.say(2 * time.Second)
		w.end()
		p.clear()
		if out.String() != want {
			t.Errorf("terminal %v: %q", tty, &out)
		}
	}
}

// A test of so many messages tells on a terminal how far it is.
func TestPrintProgress(t *testing.T) {
	for tty, want := range map[bool]string{false: "", true: "\r\x1b[Kbw 1M: 2 s, 300 of 2.20 k messages\r\x1b[K"} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{})
		p.tty = tty
		var h perf.Hooks
		p.hooks(&traffic.Spec{Test: traffic.BW, Size: 1 << 20, Warmup: 100, Iters: 1000, Parallel: 2}, &h)
		if h.Interval != nil {
			h.Interval(300, 2*time.Second)
		}
		p.clear()
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", tty, &out, want)
		}
	}
}

// Interval lines of incast have no columns, because the columns of incast show other
// things.
func TestPrintIntervalsOfIncast(t *testing.T) {
	var out bytes.Buffer
	p := newPrinter(&out, &Config{Interval: time.Second})
	var h perf.Hooks
	p.hooks(&traffic.Spec{Test: traffic.Incast, Size: 1 << 20, Time: 10 * time.Second}, &h)
	h.Interval(1000, time.Second)
	if want := "      1M     1.0 s         1000 blocks/s      8.39 Gb/s\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

// What was not measured is not printed as 0.
func TestPrintNothing(t *testing.T) {
	for _, test := range []string{traffic.Lat, traffic.BW} {
		var out bytes.Buffer
		newPrinter(&out, &Config{}).run(&traffic.Spec{Test: test}, &perf.Result{Run: record.Run{Size: 8}})
		if want := "       8 nothing was measured\n"; out.String() != want {
			t.Errorf("%s: %q", test, &out)
		}
	}
	res := sample()
	res.Run.PeerTransport = nil // as when the server was lost
	var out bytes.Buffer
	newPrinter(&out, &Config{}).run(&traffic.Spec{Test: traffic.BW}, res)
	if !strings.HasSuffix(out.String(), "       75        -\n") {
		t.Errorf("%q", &out)
	}
}

// The header says how a test is secured, and warns if it is not secured and leaves the
// host.
func TestPrintSecurity(t *testing.T) {
	for _, c := range []struct {
		sec      string
		crc      bool
		loopback bool
		want     string
	}{
		{"off", true, true, "security off, CRC on"},
		{"off", false, false, "unsecured: others can read and forge it (--sec psk|tls), CRC off"},
		{"psk", false, false, "security psk (sealed under the cluster key)"},
		{"tls", false, true, "security tls (certificates; sealed)"},
	} {
		got := modeText(&record.Config{EP: "msg", Mode: "rud", Complete: "transmit", Progress: "auto", Sec: c.sec, CRC: c.crc}, c.loopback)
		if want := "MSG/RUD, transmit complete, progress auto, " + c.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Large values stand under their columns with fewer decimals. Small values do not become
// zero.
func TestPrintExtremes(t *testing.T) {
	r := sample()
	r.Run.Latency = &record.Latency{Min: 5432, P50: 99999990, P90: 536608770, P99: 5803868100, P999: 10e9, Max: 587649280000, Mean: 341208620, StdDev: 141444910}
	r.Run.GoodputBPS, r.Run.MsgsPerS = ptr(2.4e6), ptr(8.27)
	r.Run.Load = &record.Load{Offered: 1}
	r.Run.Errors = ptr(int64(0))
	r.Run.Churn = &record.Churn{Open: r.Run.Latency, Close: r.Run.Latency}
	for test, want := range map[string]string{
		traffic.Lat:  "     64K   123456     5.43 99999.99 536608.8  5803868 10000000 587649280  341208.6±141445     20     7    47    36     75",
		traffic.BW:   "     64K     123456    2.00         0.0024      0.30          8.3     20     7     25    36       75       25",
		traffic.Load: "     64K            0            8    0.00 99999.99 536608.8  5803868 587649280  341208.6±141445     20     7    36     75",
		traffic.RR:   "     64K        0     123456            8 99999.99 536608.8  5803868 10000000 587649280  341208.6±141445       0     20     7     75",
	} {
		var out bytes.Buffer
		p := newPrinter(&out, &Config{})
		p.columns(test)
		columns := strings.Split(out.String(), "\n")
		out.Reset()
		p.run(&traffic.Spec{Test: test}, r)
		row, rest, _ := strings.Cut(out.String(), "\n")
		if row != want {
			t.Errorf("%s:\n%s\nwant\n%s", test, row, want)
		}
		if a, b := utf8.RuneCountInString(columns[len(columns)-2]), utf8.RuneCountInString(row); a != b {
			t.Errorf("%s: %d columns, %d in the row", test, a, b)
		}
		if test == traffic.RR && !strings.HasPrefix(rest, "    open                                  99999.99 536608.8  5803868 10000000 587649280  341208.6±141445\n") {
			t.Errorf("%s", rest)
		}
	}
}

func TestPortsText(t *testing.T) {
	a, b := netip.MustParseAddrPort("127.0.0.1:5000"), netip.MustParseAddrPort("[::1]:6000")
	clear, all := []string{"-e rdm", "-e msg", "", "", ""}, []string{"-e rdm", "-e msg", "-e rdm --sec psk"}
	for _, c := range []struct {
		addrs    []netip.AddrPort
		services []string
		want     string
	}{
		{[]netip.AddrPort{a}, clear, "UDP ports: 5000 -e rdm, 5001 -e msg; secured tests need --keys FOLDER (uetperf keys)"},
		{[]netip.AddrPort{a, a}, all, "UDP ports: 5000 -e rdm, 5001 -e msg, 5002 -e rdm --sec psk"},
		{[]netip.AddrPort{a, b}, all, "UDP ports: the named one -e rdm, +1 -e msg, +2 -e rdm --sec psk"},
	} {
		if got := portsText(c.addrs, c.services); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
