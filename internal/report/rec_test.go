package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
)

func parse(t testing.TB, s string) *Rec {
	t.Helper()
	r, err := Parse("x.json", []byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cells returns the cells of a row by the names of their heads.
func cells(t *testing.T, tab page.Table, row int) map[string]page.Cell {
	t.Helper()
	out := map[string]page.Cell{}
	for i, h := range tab.Heads {
		if len(tab.Rows[row]) != len(tab.Heads) {
			t.Fatalf("row %d has %d cells below %d heads", row, len(tab.Rows[row]), len(tab.Heads))
		}
		out[h.Name+"|"+h.Unit] = tab.Rows[row][i]
	}
	return out
}

func TestAbsentIsNotMeasuredAndZeroIsZero(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw","op":"send"},"runs":[
		{"size":8,"msgs":0,"goodput_bps":0,"msgs_lost":0,"transport":{"rtx_rto":0,"ooo":0},"latency_ns":{"p50":0}},
		{"transport":{}}]}`)
	tab := r.Results("")
	zero, none := cells(t, tab, 0), cells(t, tab, 1)
	for key, want := range map[string]string{"size|B": "8", "msgs|": "0", "goodput|Gb/s": "0.000", "lost|msgs": "0", "rtx|": "0", "ooo|": "0", "p50|µs": "0.00"} {
		if c := zero[key]; c.Missing || c.Text != want {
			t.Errorf("measured %s is %+v, want %s", key, c, want)
		}
		if c := none[key]; !c.Missing {
			t.Errorf("%s that is not there is shown as %q", key, c.Text)
		}
	}
	for _, key := range []string{"trim|", "ecn|"} {
		if !zero[key].Missing || !none[key].Missing {
			t.Errorf("%s was measured by nobody, but is %+v", key, zero[key])
		}
	}
	if _, ok := zero["p99|µs"]; ok {
		t.Error("a column that nobody measured is there")
	}
	if _, ok := zero["data|"]; ok {
		t.Error("a data check that was not is there")
	}
	if !strings.Contains(tab.Note, "– was not measured") {
		t.Errorf("note %q", tab.Note)
	}
}

func TestEnvironmentOfNothingIsNotMeasured(t *testing.T) {
	for _, f := range parse(t, `{"schema":"uetperf/1","path":{}}`).Environment() {
		if !f.Value.Missing {
			t.Errorf("%s is %q", f.Name, f.Value.Text)
		}
	}
	for _, f := range parse(t, `{"schema":"uetperf/1","config":{"crc":false},"path":{"ecn":false,"gso":{"on":false,"why":"old kernel"},"rcvbuf":212992,"rcvbuf_asked":16777216}}`).Environment() {
		want := map[string]string{"security": "CRC off", "ECN": "off", "GSO": "off: old kernel", "receive buffer": "208 KiB of 16 MiB asked for"}[f.Name]
		if f.Value.Text != want && (want != "" || !f.Value.Missing) {
			t.Errorf("%s is %q, want %q", f.Name, f.Value.Text, want)
		}
	}
}

func hdr(t testing.TB, digits int, values ...int64) string {
	t.Helper()
	h := hdrhistogram.New(1, 1<<40, digits)
	for _, v := range values {
		_ = h.RecordValue(v)
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func withHDR(s string) *record.Record {
	return &record.Record{Schema: record.Schema, Config: record.Config{Test: "lat", Op: "send"}, Runs: []record.Run{{Size: 8, Latency: &record.Latency{P50: 5, HDR: s}}}}
}

func TestDistributionHasTheValues(t *testing.T) {
	r := From("x", withHDR(hdr(t, 3, 5000, 5000, 7000, 900000)))
	d, err := r.distribution(0)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(d.Counts) != "[2 1 1]" || len(d.Values) != 3 || math.Abs(d.Values[0]/5000-1) > 0.001 || math.Abs(d.Values[2]/900000-1) > 0.001 {
		t.Errorf("%+v", d)
	}
	if b := CDF([]*Rec{r}, AxesOf([]*Rec{r})); len(b) != 1 {
		t.Errorf("%d blocks", len(b))
	}
}

func TestHistogramsThatCannotBeReadAreSaid(t *testing.T) {
	good := hdr(t, 3, 5)
	for name, s := range map[string]string{
		"none": "", "no base64": "!!", "cut": good[:len(good)/2], "empty": hdr(t, 3), "too fine": hdr(t, 5, 5), "too large": strings.Repeat("A", maxHDR+4),
	} {
		out := CDF([]*Rec{From("x", withHDR(s))}, AxesOf([]*Rec{From("x", withHDR(s))}))
		if len(out) != 1 {
			t.Fatalf("%s: %d blocks", name, len(out))
		}
		if text, ok := out[0].(page.Text); !ok || !strings.Contains(string(text), "histogram") {
			t.Errorf("%s: %v", name, out[0])
		}
	}
}

func TestSeriesPanels(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw"},"runs":[{"size":8,"duration_ns":2000000000,"series":[
		{"t_ns":500000000,"bytes":125000000,"rtx":3,"ecn":0},
		{"t_ns":1500000000,"bytes":0,"cwnd_bytes":4096,"rtx":0,"ecn":0},
		{"t_ns":2000000000}]}]}`)
	ps := panels(r.Runs[0].Series, func(k int, key string) bool { return r.hasRun(0, "series", k, key) })
	if g := ps[0].Series[0]; g.Y[0] != 2e9 || g.Y[1] != 0 || !math.IsNaN(g.Y[2]) {
		t.Errorf("goodput %v: want 2 Gb/s, 0, not measured", g.Y)
	}
	if w := ps[1].Series[0]; !math.IsNaN(w.Y[0]) || w.Y[1] != 4096 {
		t.Errorf("window %v", w.Y)
	}
	if len(ps[2].Series) != 0 {
		t.Error("a round trip that nobody measured")
	}
	if x := ps[3].Series; len(x) != 1 || x[0].Name != "sent again" || x[0].Y[0] != 6 || x[0].Y[1] != 0 || !math.IsNaN(x[0].Y[2]) {
		t.Errorf("packets %+v: want 6 a second sent again, and nothing of marks, which were zero", x)
	}
	if len(r.Timelines("", AxesOf([]*Rec{r}))) != 1 {
		t.Error("no timeline")
	}
}

func TestLongSeriesKeepTheirSums(t *testing.T) {
	ss := make([]record.Sample, 3600)
	for i := range ss {
		ss[i] = record.Sample{AtNS: int64(i+1) * 1e9, Bytes: 125}
	}
	ss[1000].Bytes += 1000
	ps := panels(ss, func(int, string) bool { return true })
	g := ps[0].Series[0]
	sum, before := 0.0, 0.0
	for i := range g.X {
		sum += g.Y[i] * (g.X[i] - before)
		before = g.X[i]
	}
	if len(g.X) > maxSteps || before != 3600 || math.Abs(sum-8*(3600*125+1000)) > 1 {
		t.Errorf("%d steps to %v s, %v bits", len(g.X), before, sum)
	}
}

// A collective has the table of nccl-tests, and says what its times are.
func TestCollective(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","command":["uetperf","coll","allreduce"],"host":{"name":"a"},"world":{"ranks":4,"launcher":"PMI-1","hosts":[{"name":"a","ranks":3},{"name":"b","ranks":1}],"sealed":true},
		"config":{"test":"coll","op":"allreduce","ranks":4,"type":"float32","reduction":"sum"},"runs":[{"size":4096,"msgs":100,"goodput_bps":8e9,"latency_ns":{"p50":4000,"rtt":true},"transport":{"rtx_rto":0},
		"coll":{"count":1024,"time_ns":4096,"least_ns":4000,"mean_ns":4050,"bus_bps":12e9,"wrong":3,"algorithm":"ring"}},
		{"size":0,"coll":{"time_ns":5}}]}`)
	var tab page.Table
	for _, b := range r.Special() {
		tab = b.(page.Table)
	}
	got := cells(t, tab, 0)
	for key, want := range map[string]string{
		"count|": page.Int(1024), "time|µs": "4.10", "fastest|µs": "4.00", "mean|µs": "4.05", "algbw|GB/s": "1.000", "busbw|GB/s": "1.500", "wrong|": "3", "algorithm|": "ring",
	} {
		if c := got[key]; c.Text != want {
			t.Errorf("%s is %+v, want %s", key, c, want)
		}
	}
	if c := got["wrong|"]; c.Tone != page.Bad {
		t.Errorf("wrong is %+v", c)
	}
	if c := cells(t, tab, 1)["busbw|GB/s"]; !c.Missing {
		t.Errorf("a bandwidth that was not measured is %+v", c)
	}
	if n := r.Results("").Note; !strings.HasPrefix(n, "Latency is that of each call at each rank. ") {
		t.Errorf("note %q", n)
	}
	if who := cells(t, r.Counters(""), 0)["end|"].Text; who != "all ranks" {
		t.Errorf("counters of %q", who)
	}
	facts := map[string]string{}
	for _, f := range r.Environment() {
		facts[f.Name] = f.Value.Text
	}
	if facts["ranks"] != "4, a: 3, b: 1" || facts["started by"] != "PMI-1" || facts["elements"] != "float32, sum" || facts["server"] != "" {
		t.Errorf("%v", facts)
	}
	if s := ends(r); s != "4 ranks on a, b" {
		t.Errorf("ends %q", s)
	}
	if b := repeat(r); len(b) != 1 {
		t.Errorf("a server is asked for: %v", b)
	}
}

// Datagrams may be lost, which is no fault: of how many is said. Modes tell records apart.
func TestLostDatagrams(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw","op":"send","ep":"dgram","mode":"uud"},"runs":[{"size":8,"msgs_sent":1000,"msgs_lost":7,"transport":{}}]}`)
	got := cells(t, r.Results(""), 0)
	if c := got["lost|msgs"]; c.Text != "7" || c.Tone == page.Bad {
		t.Errorf("lost is %+v", c)
	}
	if c := got["sent|"]; c.Text != page.Int(1000) {
		t.Errorf("sent is %+v", c)
	}
	if m := r.mode(); m != "DGRAM/UUD" {
		t.Errorf("mode %q", m)
	}
	if m := parse(t, `{"schema":"uetperf/1","config":{"test":"soak","ep":"rdm","mode":"rud"}}`).mode(); m != "RDM" {
		t.Errorf("mode of a soak %q, which draws it", m)
	}
	if c := cells(t, parse(t, `{"schema":"uetperf/1","config":{"test":"bw"},"runs":[{"msgs_lost":7,"transport":{}}]}`).Results(""), 0)["lost|msgs"]; c.Tone != page.Bad {
		t.Errorf("lost messages are %+v", c)
	}
}

// Times of operations on memory are not those of round trips, and get a figure of their own.
func TestOneSidedTimes(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"lat","op":"send"},"runs":[{"size":8,"latency_ns":{"p50":1}},{"size":8,"op":"write","latency_ns":{"p50":1,"rtt":true}},{"size":8,"op":"send","latency_ns":{"p50":1,"rtt":true}},{"size":8,"op":"send","latency_ns":{"p50":1,"rtt":true,"completion":true}}]}`)
	for i, want := range []way{oneWay, accesses, roundTrips, accesses} {
		if got := r.way(i); got != want {
			t.Errorf("run %d is measured as %q", i, got.label())
		}
	}
	if n := r.Results("").Note; !strings.HasPrefix(n, "Latency is one way, half of a round trip. Latency is that of round trips. Latency is that of single operations, from the call to the completion") {
		t.Errorf("note %q", n)
	}
	for i := range r.Runs {
		r.Runs[i].Latency.HDR = hdr(t, 3, 5000)
	}
	var titles []string
	for _, b := range CDF([]*Rec{r}, AxesOf([]*Rec{r})) {
		titles = append(titles, fmt.Sprintf("%T", b))
	}
	if len(titles) != 3 {
		t.Errorf("%d figures, want one for each way", len(titles))
	}
}

// The counts of receiver credit are shown where an end has some, the others of that end as 0; and no column of them where
// no end has.
func TestCredits(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw","cc":"rccc"},"runs":[{"transport":{"tx_pkts":9,"credits_used":30,"credit_wait_ns":2500000},"peer_transport":{"credits_granted":31}}]}`)
	for i, want := range []map[string]string{{"granted|": "0", "used|": "30", "waited|ms": "2.50"}, {"granted|": "31", "used|": "0", "waited|ms": "0.00"}} {
		got := cells(t, r.Counters(""), i)
		for k, v := range want {
			if got[k].Text != v {
				t.Errorf("end %d: %s is %q, want %q", i, k, got[k].Text, v)
			}
		}
	}
	r = parse(t, `{"schema":"uetperf/1","config":{"test":"bw"},"runs":[{"transport":{"tx_pkts":9}}]}`)
	for _, h := range r.Counters("").Heads {
		if h.Name == "granted" || h.Name == "waited" {
			t.Errorf("there is a column %q without credit", h.Name)
		}
	}
}

// The operations of each delivery mode are shown where an end had some, and no column of a mode that nothing went by.
func TestOperationsByMode(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw","mode":"rudi"},"runs":[{"transport":{"tx_pkts":9,"ops_rud":1,"ops_rudi":127},"peer_transport":{"tx_pkts":9}}]}`)
	got := cells(t, r.Counters(""), 0)
	if got["rud|"].Text != "1" || got["rudi|"].Text != "127" {
		t.Errorf("%+v", got)
	}
	for _, h := range r.Counters("").Heads {
		if h.Name == "rod" || h.Name == "uud" {
			t.Errorf("there is a column %q, and nothing went by it", h.Name)
		}
	}
}

// The page shows what the record tells of each test of a soak, failures first.
func TestSoakRounds(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"soak"},"runs":[{"transport":{},"soak":{"episodes":5,"failed":1,"kinds":{},"leaks":[],"leaking":0,"rounds":[
		{"n":4,"t_ns":1500000000,"duration_ns":250000000,"command":"uetperf lat HOST --seed 4"},
		{"n":5,"t_ns":2000000000,"duration_ns":10000000,"command":"uetperf bw HOST --seed 5","error":"3 messages were lost"}]}}]}`)
	var failed page.Table
	var all page.Details
	for _, b := range r.Special() {
		switch b := b.(type) {
		case page.Table:
			failed = b
		case page.Details:
			all = b
		}
	}
	if len(all.Body) != 1 || all.Summary != "2 tests of 5, each with the command that repeats it" || len(failed.Rows) != 1 {
		t.Fatalf("%+v\n%+v", failed, all)
	}
	tab := all.Body[0].(page.Table)
	for i, want := range []map[string]string{
		{"verdict|": "ok", "test|": "4", "began|s": "1.5", "took|s": "0.25", "command|": "uetperf lat HOST --seed 4"},
		{"verdict|": "failed", "test|": "5", "began|s": "2.0", "took|s": "0.01", "command|": "uetperf bw HOST --seed 5", "why it failed|": "3 messages were lost"},
	} {
		got := []map[string]page.Cell{cells(t, tab, i)}
		if want["verdict|"] == "failed" {
			got = append(got, cells(t, failed, 0))
		}
		for _, got := range got {
			for key, c := range got {
				if c.Text != want[key] && !(c.Missing && want[key] == "") {
					t.Errorf("%s of test %d is %+v, want %q", key, i, c, want[key])
				}
			}
		}
	}
}

func TestMeasuredNames(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","runs":[{"transport":{"rtx_sack":0},"latency_ns":{"p50":1}}]}`)
	for name, want := range map[string]bool{"rtx": true, "p50": true, "p99": false, "ooo": false, "goodput": true} {
		if r.Measured(0, name) != want {
			t.Errorf("%s measured: %v", name, !want)
		}
	}
}

// all returns everything that a record shows.
func all(r *Rec) []page.Block {
	var out []page.Block
	out = append(out, r.Blocks("x")...)
	out = append(out, CDF([]*Rec{r}, AxesOf([]*Rec{r}))...)
	out = append(out, CDF([]*Rec{r, r}, AxesOf([]*Rec{r, r}))...)
	out = append(out, OverSize([]*Rec{r})...)
	out = append(out, r.Streams()...)
	out = append(out, r.Timelines("", AxesOf([]*Rec{r}))...)
	out = append(out, r.Environment(), r.Counters("x"))
	out = append(out, r.Verdicts()...)
	c, _ := r.Command()
	b := r.Badge()
	return append(out, c, page.Text(r.Test()), page.Facts{{Name: "badge", Value: b}})
}

// rich returns a record with every field.
func rich(t testing.TB) []byte {
	g := 1e9
	one := int64(1)
	rec := record.Record{
		Schema: record.Schema, Config: record.Config{Test: "lat", Type: "int8", Root: new(int)}, Peer: &record.Host{}, Path: &record.Path{},
		World: &record.World{Ranks: 2, Hosts: []record.RanksOn{{Name: "a", Ranks: 2}}},
		Runs: []record.Run{{
			Size: 8, GoodputBPS: &g, MsgsPerS: &g, Lost: &one, Latency: &record.Latency{P50: 5, HDR: hdr(t, 3, 5, 9)}, CPU: &record.CPU{}, DataCheck: &record.Check{},
			Streams: []record.Stream{{}, {}}, Series: []record.Sample{{AtNS: 5, CwndBytes: 5}, {AtNS: 5}, {AtNS: -5}}, Load: &record.Load{}, Churn: &record.Churn{Open: &record.Latency{}},
			Incast: &record.Incast{Jain: &g, ConvergenceNS: &one}, Soak: &record.Soak{Kinds: map[string]int64{"a": 1}, Leaks: []record.Leak{{}}, Rounds: []record.Round{{N: 1, AtNS: 1, DurationNS: 1, Command: "x", Error: "y"}, {}}}, Errors: &one,
			Coll: &record.Coll{Count: 1, TimeNS: 5, BusBPS: &g, Algorithm: "ring"},
		}, {Size: 1 << 62, Latency: &record.Latency{P50: -5}}},
		Verdict: []record.Verdict{{Assert: "p99<1ms", Value: &g}, {Assert: "converged<1s"}},
	}
	var b bytes.Buffer
	_ = rec.Write(&b)
	return b.Bytes()
}

// Any number that a record can hold can be shown.
func TestExtremeNumbers(t *testing.T) {
	extremes := []string{"0", "1", "9223372036854775807", "4611686018427387904", "1000000000", "-1", "-9223372036854775808"}
	number := regexp.MustCompile(`: -?[0-9][0-9.e+]*`)
	rng := rand.New(rand.NewPCG(1, 2))
	raw := rich(t)
	read := 0
	for n := range 60 {
		s := number.ReplaceAllStringFunc(string(raw), func(old string) string {
			switch {
			case n < len(extremes):
				return ": " + extremes[n]
			case rng.IntN(3) == 0:
				return ": " + extremes[rng.IntN(len(extremes)-2*(n%2))]
			}
			return old
		})
		r, err := Parse("x", []byte(s))
		if err != nil { // some do not fit the host's int
			r, err = Parse("x", number.ReplaceAllFunc([]byte(s), clip))
		}
		if err != nil {
			continue // negative where the record has no negative numbers
		}
		read++
		var out bytes.Buffer
		if err := page.Write(&out, page.Doc{Sections: []page.Section{{Body: all(r)}}}); err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`NaN|[+-]Inf`).Find(out.Bytes()); m != nil {
			t.Errorf("variant %d: the page has %s", n, m)
		}
	}
	if read < 20 {
		t.Errorf("only %d variants could be read", read)
	}
}

// clip limits a number of a record to an int of this host.
func clip(old []byte) []byte {
	n, err := strconv.ParseInt(string(old[len(": "):]), 10, 64)
	if err != nil {
		return old
	}
	return strconv.AppendInt([]byte(": "), min(max(n, math.MinInt), math.MaxInt), 10)
}

func FuzzShow(f *testing.F) {
	f.Add(rich(f))
	for _, name := range []string{"lat.json", "bw.json"} {
		if raw, err := os.ReadFile("../../docs/example/" + name); err == nil {
			f.Add(raw)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Parse("x.json", raw)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := page.Write(&out, page.Doc{Sections: []page.Section{{Body: all(r)}}}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFromIsParseOfWhatIsWritten(t *testing.T) {
	rec := withHDR(hdr(t, 3, 5))
	r := From("x", rec)
	var got record.Record
	if err := json.Unmarshal(r.Raw, &got); err != nil || !r.hasRun(0, "latency_ns", "hdr") || r.hasRun(0, "goodput_bps") {
		t.Errorf("%v: %s", err, r.Raw)
	}
}

// Of bw the slowest interval and the times of single messages stand beside the mean, which stays in both
// units.
func TestBandwidthWithin(t *testing.T) {
	r := parse(t, `{"schema":"uetperf/1","config":{"test":"bw","op":"send"},"runs":[{"size":8,"goodput_bps":8e9,"slowest":{"goodput_bps":2e9,"of":9},"latency_ns":{"p50":1500,"rtt":true,"completion":true},"transport":{}}]}`)
	c := cells(t, r.Results(""), 0)
	for name, want := range map[string]string{"goodput|Gb/s": "8.000", "slowest|Gb/s": "2.000", "|MB/s": "1\u202f000.0", "p50|µs": "1.50"} {
		if c[name].Text != want {
			t.Errorf("%s: %q, want %q", name, c[name].Text, want)
		}
	}
	if n := r.Results("").Note; !strings.HasPrefix(n, "Latency is that of single operations, from the call to the completion") {
		t.Errorf("note %q", n)
	}
}
