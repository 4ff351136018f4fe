package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

var update = flag.Bool("update", false, "write the golden pages and the example anew")

func read(t *testing.T, files ...string) []*Rec {
	t.Helper()
	var out []*Rec
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(filepath.Base(f), raw)
		if err != nil {
			t.Fatalf("%s %v", f, err)
		}
		out = append(out, r)
	}
	return out
}

func html(t *testing.T, title string, recs ...*Rec) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, recs, title, "uetperf"); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The golden pages leave out the style, and the numbers in figures, whose last digit
// depends on the processor.
var (
	styles  = regexp.MustCompile(`(?s)<style>.*?</style>`)
	figures = regexp.MustCompile(`(?s)(<svg viewBox="[^"]*" role="img"[^>]*>).*?</svg>`)
	texts   = regexp.MustCompile(`>([^<]+)</text>`)
)

// bare keeps only the texts of figures.
func bare(s string) string {
	s = styles.ReplaceAllString(s, "<style/>")
	return figures.ReplaceAllStringFunc(s, func(f string) string {
		var words []string
		for _, m := range texts.FindAllStringSubmatch(f, -1) {
			words = append(words, m[1])
		}
		return figures.FindStringSubmatch(f)[1] + strings.Join(words, "|") + "</svg>"
	})
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			was := ""
			if i < len(w) {
				was = w[i]
			}
			t.Fatalf("%s is another page from line %d on; if that is right: go test ./internal/report -update\nnow: %.300s\nwas: %.300s", name, i+1, g[i], was)
		}
	}
	t.Fatalf("%s has more lines than the page", name)
}

func TestGolden(t *testing.T) {
	for _, name := range []string{"lat", "bw", "write", "empty", "failed"} {
		t.Run(name, func(t *testing.T) {
			golden(t, filepath.Join("testdata", name+".html"), bare(html(t, "", read(t, filepath.Join("testdata", name+".json"))...)))
		})
	}
	t.Run("several", func(t *testing.T) {
		golden(t, filepath.Join("testdata", "several.html"), bare(html(t, "a title", read(t, "testdata/lat.json", "testdata/bw.json", "testdata/failed.json")...)))
	})
}

// The example in docs is what this code makes of the records beside it.
func TestExampleIsOfThisCode(t *testing.T) {
	const dir = "../../docs/example/"
	page := html(t, "Loopback: latency by size, bandwidth at 1 % loss", read(t, dir+"bw.json", dir+"lat.json")...)
	if len(page) > 1<<20 {
		t.Errorf("the example has %d bytes", len(page))
	}
	if *update {
		golden(t, dir+"report.html", page)
	}
	if runtime.GOARCH != "amd64" { // other processors round the last digit of a curve differently
		want, err := os.ReadFile(dir + "report.html")
		if err != nil || bare(string(want)) != bare(page) {
			t.Errorf("docs/example/report.html is not what its records give: go test ./internal/report -update (%v)", err)
		}
		return
	}
	golden(t, dir+"report.html", page)
}

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)></style>`

func TestHostileTextsStayText(t *testing.T) {
	rec := func(s string) *Rec {
		r := &record.Record{
			Schema: record.Schema, Command: []string{s}, Host: record.Host{Name: s, OS: s, Kernel: s}, Peer: &record.Host{Name: s}, Error: s,
			Tool:   record.Tool{Version: s, Commit: s, Go: s},
			Config: record.Config{Test: s, Op: s, EP: s, Mode: s, Complete: s, CC: s, Sec: s, Progress: s, Direction: s, Impair: s, Arrivals: s, Rate: 1, Parallel: 1},
			Path:   &record.Path{Local: s, Remote: s, Interface: s, GSO: record.Feature{Why: s}},
			Runs: []record.Run{{
				Name: s, Op: s, Error: s, LastError: s, Errors: new(int64), Latency: &record.Latency{HDR: s}, Transport: record.Counters{Drops: map[string]uint64{s: 1}}, Series: []record.Sample{{AtNS: 1, Bytes: 1}},
				Soak: &record.Soak{Kinds: map[string]int64{s: 1}, Leaks: []record.Leak{{End: s, What: s}}, Rounds: []record.Round{{Command: s, Error: s}}}, Streams: []record.Stream{{Direction: s}, {Direction: s}},
			}},
			Verdict: []record.Verdict{{Assert: s}},
		}
		return From(s, r)
	}
	for name, n := range map[string]int{"one": 1, "several": 2} {
		t.Run(name, func(t *testing.T) {
			var plain, bad []*Rec
			for range n {
				plain, bad = append(plain, rec("x")), append(bad, rec(hostile))
			}
			tags := regexp.MustCompile(`<[a-z/!]+`)
			p, b := html(t, "x", plain...), html(t, hostile, bad...)
			if len(tags.FindAllString(p, -1)) != len(tags.FindAllString(b, -1)) || strings.Contains(b, "<script") || strings.Contains(b, "<img") {
				t.Error("a text of the record became an element")
			}
		})
	}
}

func TestPagesAreTheSameEachTime(t *testing.T) {
	recs := read(t, "testdata/lat.json", "testdata/bw.json")
	first := html(t, "", recs...)
	if again := html(t, "", recs...); again != first {
		t.Error("two pages of the same records differ")
	}
}

func TestTilesShowNoZeroThatNobodyMeasured(t *testing.T) {
	r, err := Parse("x", []byte(`{"schema":"uetperf/1","runs":[{"size":8,"latency_ns":{"p50":5000},"transport":{}},{"size":64,"latency_ns":{"p50":1,"p99":2},"transport":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tiles(r) {
		if strings.HasPrefix(x.Value, "0") || x.Name == "latency, p99" {
			t.Errorf("%+v", x)
		}
	}
	h := r.Headline()
	if h.p50 == nil || h.p50.Median != 5000 || h.size != 8 || !h.Rtx.Missing {
		t.Errorf("%+v", h)
	}
}
