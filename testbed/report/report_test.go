package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/page/pagetest"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

var update = flag.Bool("update", false, "write the golden files anew")

// full returns a result with every field and s as all texts.
func full(s string) *result.Result {
	one, g := 1, 9e8
	rec := &record.Record{
		Schema: record.Schema, Config: record.Config{Test: "bw", Op: s}, Command: []string{s}, Error: s,
		Runs: []record.Run{{
			Size: 1 << 20, Msgs: 7, DurationNS: 1e9, GoodputBPS: &g, Latency: &record.Latency{P99: 12000}, DataCheck: &record.Check{OK: 7}, Transport: record.Counters{TxPkts: 9, RtxSACK: 2},
			Series: []record.Sample{{AtNS: 5e8, Bytes: 5e7}, {AtNS: 1e9, Bytes: 5e7}},
		}},
	}
	return &result.Result{
		Schema: "uetkit-testbed/1", Scenario: s, Question: s, Expect: s, Substrate: "netns", Seed: 7, Command: []string{"testbed", "run", s}, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 12340 * time.Millisecond,
		Phases: []result.Phase{{Name: "up", Took: time.Second}}, Verdict: result.Fail, Reason: s,
		Asserts: []result.Assert{{Expr: s, Why: s, Pass: true, Value: s}, {Expr: "c.lost == 0", Value: "3 == 0"}},
		Hosts:   []result.Host{{Name: "c", Role: "client", Addr: s, Image: s, Exit: &one, Command: []string{s}, Record: rec, Files: []string{"c/0.json", s}, Log: s}, {Name: "s", Role: "server", Addr: "198.18.17.2"}},
		Topology: fabric.Config{
			Ports:  []fabric.Port{{Name: "c", From: fabric.Line{Rate: 1e9, Delay: 20000, Rules: []fabric.Rule{{Name: s, Loss: 0.01, Match: fabric.Match{Kind: "data"}}}}}, {Name: "s", To: fabric.Line{Rate: 1e8, Queue: 65536, ECN: &fabric.ECN{Min: 1024, Max: 4096}, Trim: &fabric.Trim{After: 8192}}}},
			Spines: []fabric.Line{{}, {Down: true}},
		},
		Switch: &fabric.Stats{Lines: map[string]fabric.LineStats{"c.from": {Packets: 100, SentPkts: 99, SentB: 12345678, MaxWait: 4096, Whys: map[string]uint64{"lost_random": 1, "passed": 99}}}, Whys: map[string]uint64{"lost_random": 1, "trimmed": 0, "marked": 4}},
		Series: []result.Sample{
			{At: 1e9, Bytes: map[string]int64{"c.from": 125e6}, Wait: map[string]int64{"s.to": 100}, Lost: map[string]int64{"c.from": 0}, Mark: map[string]int64{"s.to": 0}},
			{At: 2e9, Bytes: map[string]int64{"c.from": 125e6}, Wait: map[string]int64{"s.to": 9000}, Lost: map[string]int64{"c.from": 10}, Mark: map[string]int64{"s.to": 0}},
		},
		Timeline: []result.Mark{{At: 0, What: "start"}, {At: 15e8, What: s}},
		Health:   result.Health{OK: false, Why: []string{s}, SwitchPPS: 123456, SwitchDrops: 2, LateP99: 3e6, Stall: 0.25},
		Metrics:  map[string]float64{"all.goodput": 9e8, "all.rtx": 2, s: 5},
		Machine:  record.Host{Name: "box", OS: "linux", Kernel: "6.1", CPUs: 2},
	}
}

func write(t *testing.T, rs ...*result.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, rs); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var (
	styles  = regexp.MustCompile(`(?s)<style>.*?</style>`)
	figures = regexp.MustCompile(`(?s)(<svg viewBox="[^"]*" role="img"[^>]*>).*?</svg>`)
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = "testdata/" + name
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || got != string(want) {
		t.Errorf("%s is another (%v): see go test ./testbed/report -update; git diff", name, err)
	}
}

func results() []*result.Result {
	pass := &result.Result{Scenario: "clean", Substrate: "netns", Verdict: result.Pass, Took: time.Second, Health: result.Health{OK: true, Stall: -1}, Asserts: []result.Assert{{Expr: "c.lost == 0", Pass: true, Value: "0 == 0"}}}
	return []*result.Result{
		full("loss"), pass,
		{Scenario: "slow", Substrate: "docker", Verdict: result.Inconclusive, Reason: "the switch was late: p99 9 ms", Health: result.Health{Why: []string{"late"}}},
		{Scenario: "other", Substrate: "docker", Verdict: result.Unsupported, Reason: "no engine"},
		{Scenario: "odd", Substrate: "sim", Verdict: result.Error, Reason: "no metric c.x", Hosts: []result.Host{{Name: "c", Log: "last words\n"}}},
		{Scenario: "none", Substrate: "sim"},
	}
}

func TestGoldenPage(t *testing.T) {
	s := write(t, results()...)
	golden(t, "report.html", figures.ReplaceAllString(styles.ReplaceAllString(s, "<style/>"), "$1</svg>"))
}

func TestPageFitsItsWindow(t *testing.T) {
	pagetest.Fits(t, map[string]string{"runs": write(t, results()...)})
}

// The tables say of the packets that were sent again which were lost and which spurious.
func TestSentAgainIsLostAndSpurious(t *testing.T) {
	r := full("x")
	r.Hosts[0].Record.Runs[0].PeerTransport = &record.Counters{Dup: 1}
	for name, tab := range map[string]page.Table{"verdicts": verdicts([]*result.Result{r}), "hosts": hosts(r)} {
		var got []string
		for i, h := range tab.Heads {
			if h.Name == "sent again" || h.Unit == "sent again" {
				got = append(got, tab.Rows[0][i].Text)
			}
		}
		if strings.Join(got, " ") != "2 1 1" {
			t.Errorf("%s: %q, want 2 sent again, 1 lost, 1 spurious", name, got)
		}
	}
}

func TestGoldenJUnit(t *testing.T) {
	var b bytes.Buffer
	if err := JUnit(&b, results()); err != nil {
		t.Fatal(err)
	}
	golden(t, "junit.xml", b.String())
	// These are the parts that a CI system reads.
	var got struct {
		Tests, Failures, Errors, Skipped int
		XMLName                          xml.Name `xml:"testsuites"`
		T                                int      `xml:"tests,attr"`
		F                                int      `xml:"failures,attr"`
		E                                int      `xml:"errors,attr"`
		S                                int      `xml:"skipped,attr"`
		Suites                           []struct {
			Name  string `xml:"name,attr"`
			T     int    `xml:"tests,attr"`
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct {
					Message string `xml:"message,attr"`
				} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.T != 6 || got.F != 1 || got.E != 2 || got.S != 2 || len(got.Suites) != 3 || got.Suites[0].T != 2 || got.Suites[0].Cases[0].Failure == nil ||
		got.Suites[1].Cases[0].Skipped == nil || !strings.HasPrefix(got.Suites[1].Cases[0].Skipped.Message, "inconclusive: the switch was late") || got.Suites[2].Cases[1].Error == nil {
		t.Errorf("%+v", got)
	}
}

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>]]>`

func TestHostileTextsStayText(t *testing.T) {
	tags := regexp.MustCompile(`<[a-z/!]+`)
	plain, bad := write(t, full("x"), full("x")), write(t, full(hostile), full(hostile))
	p, b := tags.FindAllString(plain, -1), tags.FindAllString(bad, -1)
	if len(p) != len(b) || strings.Contains(bad, "<script") || strings.Contains(bad, "<img") {
		t.Errorf("%d tags of hostile texts, %d of plain ones", len(b), len(p))
	}
	if m := regexp.MustCompile(`(?i)(src|href)="?(https?:|//|\.\./|/)`).FindString(bad); m != "" {
		t.Errorf("the page leads elsewhere: %s", m)
	}
	var x bytes.Buffer
	if err := JUnit(&x, []*result.Result{full(hostile), full("\x00\x1b]]>")}); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(&x)
	for {
		if _, err := d.Token(); err != nil {
			if err.Error() != "EOF" {
				t.Error(err)
			}
			break
		}
	}
}

func TestAbsentIsNotMeasured(t *testing.T) {
	r := &result.Result{Scenario: "a", Substrate: "sim", Verdict: result.Pass, Hosts: []result.Host{{Name: "c"}}, Health: result.Health{OK: true, Stall: -1}, Topology: fabric.Config{Ports: []fabric.Port{{Name: "c"}}}}
	row := verdicts([]*result.Result{r}).Rows[0]
	for _, i := range []int{3, 4, 5, 6, 7, 8} {
		if !row[i].Missing {
			t.Errorf("column %d of the verdicts is %q", i, row[i].Text)
		}
	}
	for i, c := range hosts(r).Rows[0][2:11] {
		if !c.Missing {
			t.Errorf("column %d of the hosts is %q", i+2, c.Text)
		}
	}
	for _, c := range lines(r).Rows[0][7:] {
		if !c.Missing {
			t.Errorf("a line that nobody counted shows %q", c.Text)
		}
	}
	for _, f := range health(r).(page.Facts) {
		if (f.Name == "switch forwards" || f.Name == "tasks waited" || f.Name == "late (p99)") && !f.Value.Missing {
			t.Errorf("%s is %q", f.Name, f.Value.Text)
		}
	}
}

func TestEmptyAndOdd(t *testing.T) {
	if s := write(t); !strings.Contains(s, "nothing ran") {
		t.Error("a page of no result does not say so")
	}
	var b bytes.Buffer
	if err := JUnit(&b, nil); err != nil || !strings.Contains(b.String(), `tests="0"`) {
		t.Errorf("%v %s", err, b.String())
	}
	write(t, &result.Result{Series: []result.Sample{{}, {At: -1}, {At: -1, Bytes: map[string]int64{"x": -5, "y": 1}}}, Topology: fabric.Config{Spines: make([]fabric.Line, 40)}})
}

func TestOverall(t *testing.T) {
	for _, c := range []struct {
		vs   []result.Verdict
		want string
	}{
		{[]result.Verdict{result.Pass, result.Unsupported}, "pass"}, {[]result.Verdict{result.Pass, result.Inconclusive}, "inconclusive"},
		{[]result.Verdict{result.Pass, result.Error}, "fail"}, {[]result.Verdict{result.Fail, result.Inconclusive}, "fail"}, {[]result.Verdict{result.Unsupported}, "nothing ran"}, {[]result.Verdict{"odd"}, "fail"},
	} {
		var rs []*result.Result
		for _, v := range c.vs {
			rs = append(rs, &result.Result{Verdict: v})
		}
		if b, _ := overall(rs); b.Text != c.want {
			t.Errorf("%v: %s, want %s", c.vs, b.Text, c.want)
		}
	}
}

func TestRatesOfTheSwitch(t *testing.T) {
	ps := panels(full("x").Series)
	if s := ps[0].Series; len(s) != 1 || s[0].Name != "c.from" || s[0].Y[0] != 1e9 || s[0].Y[1] != 0 {
		t.Errorf("passed on: %+v, want 1 Gb/s, then nothing", s)
	}
	if s := ps[2].Series; len(s) != 1 || s[0].Y[0] != 0 || s[0].Y[1] != 10 {
		t.Errorf("lost: %+v", s)
	}
	if len(ps[4].Series) != 0 {
		t.Error("marks that were none are drawn")
	}
	// Of many lines those with the highest values are shown. Joining many samples keeps the
	// sums.
	var ss []result.Sample
	for i := 1; i <= 3000; i++ {
		s := result.Sample{At: time.Duration(i) * time.Millisecond, Bytes: map[string]int64{}}
		for k := range 20 {
			s.Bytes[fmt.Sprintf("h%02d.to", k)] = int64(i * k)
		}
		ss = append(ss, s)
	}
	ps = panels(ss)
	if len(ps[0].Series) != maxLines || ps[0].Series[0].Name != "h12.to" {
		t.Errorf("%d lines from %s on", len(ps[0].Series), ps[0].Series[0].Name)
	}
	s := ps[0].Series[maxLines-1]
	sum, at := 0.0, 0.0
	for i := range s.X {
		sum += s.Y[i] / 8 * (s.X[i] - at)
		at = s.X[i]
	}
	if len(s.X) > maxSteps || sum < 3000*19-1 || sum > 3000*19+1 {
		t.Errorf("%d samples, %v bytes", len(s.X), sum)
	}
}

func TestLinksAreBelowTheFolder(t *testing.T) {
	r := &result.Result{Scenario: "clean", Substrate: "sim"}
	want := []string{"./clean-sim/c/0.json", "./clean-sim/x", "", ""}
	for i, l := range links(r, []string{"c/0.json", "./x", "../other/secret", "/etc/passwd"}) {
		if string(l.Href()) != want[i] {
			t.Errorf("%s leads to %q, want %q", l.Name, l.Href(), want[i])
		}
	}
}

// Any number that a result can hold can be shown.
func TestExtremeNumbers(t *testing.T) {
	raw, err := json.Marshal(full("x"))
	if err != nil {
		t.Fatal(err)
	}
	extremes := []string{"0", "1", "9223372036854775807", "1000000000", "-1", "-9223372036854775808"}
	number := regexp.MustCompile(`":-?[0-9][0-9.e+]*`)
	rng := rand.New(rand.NewPCG(1, 2))
	read := 0
	for n := range 60 {
		s := number.ReplaceAllStringFunc(string(raw), func(old string) string {
			switch {
			case n < len(extremes):
				return `":` + extremes[n]
			case rng.IntN(4) == 0:
				return `":` + extremes[rng.IntN(len(extremes)-2*(n%2))]
			}
			return old
		})
		r := new(result.Result)
		if json.Unmarshal([]byte(s), r) != nil {
			continue // negative where the result has no negative numbers
		}
		read++
		if m := regexp.MustCompile(`NaN|[+-]Inf`).FindString(write(t, r)); m != "" {
			t.Errorf("variant %d: the page has %s", n, m)
		}
	}
	if read < 3 {
		t.Errorf("only %d variants could be read", read)
	}
}

func FuzzHTML(f *testing.F) {
	b, err := json.Marshal(full("x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := new(result.Result)
		if json.Unmarshal(b, r) != nil {
			return
		}
		var out bytes.Buffer
		if err := HTML(&out, []*result.Result{r}); err != nil {
			t.Fatal(err)
		}
		if err := JUnit(&out, []*result.Result{r}); err != nil {
			t.Fatal(err)
		}
	})
}
