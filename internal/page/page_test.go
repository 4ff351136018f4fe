package page

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/internal/units"
	"golang.org/x/net/html"
)

func render1(t *testing.T, d Doc) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// balanced counts the elements of a page. It reports the first element that is not closed
// correctly.
func balanced(t *testing.T, s string) map[string]int {
	t.Helper()
	void := []string{"meta", "br", "link"}
	n := map[string]int{}
	var open []string
	z := html.NewTokenizer(strings.NewReader(s))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Fatalf("page ends with %v open, %v", open, z.Err())
			}
			return n
		case html.StartTagToken:
			tok := z.Token()
			n[tok.Data]++
			if !slices.Contains(void, tok.Data) {
				open = append(open, tok.Data)
			}
		case html.SelfClosingTagToken:
			n[z.Token().Data]++
		case html.EndTagToken:
			tok := z.Token()
			if len(open) == 0 || open[len(open)-1] != tok.Data {
				t.Fatalf("</%s> closes %v", tok.Data, open)
			}
			open = open[:len(open)-1]
		}
	}
}

// outside matches what a browser would fetch.
var outside = regexp.MustCompile(`(?i)(src|srcset|href|action|poster)\s*=\s*["']?(https?:|//|ftp:|file:)|url\(|@import|<script|<link|<iframe|<object|<embed`)

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}</style>`

// everything returns a page with each kind of block, with s as all texts.
func everything(s string) Doc {
	cdf, _ := CDF(s, "latency", false, []Distribution{{s, []float64{1000, 2000}, []int64{9, 1}}, {s, []float64{1500}, []int64{1}}})
	line, _ := Timeline(s, []Panel{{Title: s, Unit: Bits, Series: []Series{{Name: s, X: []float64{1, 2}, Y: []float64{1e9, math.NaN()}, Step: true}, {Name: s + "2", X: []float64{1}, Y: []float64{2}}}}}, []Moment{{At: 0.5, Until: 1, Label: s}}, 0)
	size, _ := OverSize(s, s, Time, true, []Series{{Name: s, X: []float64{0, 8, 64}, Y: []float64{1, 2, 3}}})
	bars, _ := Bars(s, s, Bits, []string{s, s}, []float64{1, 2})
	m := Mark(s, Bad)
	m.Help = s
	table := Table{Caption: s, Heads: []Head{{Name: s, Unit: s, Help: s}}, Rows: [][]Cell{{T("%s", s)}, {{Text: s, Code: true}}, {{Text: s, To: "x"}}, {None()}}, Note: s}
	return Doc{Title: s, Lead: s, Badge: &m, Foot: s, Sections: []Section{
		{Title: s, Badge: &m, Body: []Block{Text(s), Warn(s), Facts{{s, m}}, Tiles{{s, s, s, Good}}, Pre{s, s}, Details{Summary: s, Body: []Block{Text(s)}}}},
		{Title: s, Body: []Block{Download{s, "application/json", []byte(s)}, Links{{s, s}, {"javascript:alert(1)", s}, {"a b/c.log", s}}, table, Table{Heads: table.Heads}}},
		{Title: s, Body: []Block{Section{Title: s, Body: []Block{Section{Title: s}}}, cdf, line, size, bars}},
	}}
}

func TestPageIsWholeAndFetchesNothing(t *testing.T) {
	plain := render1(t, everything("plain"))
	counts := balanced(t, plain)
	if m := outside.FindString(plain); m != "" {
		t.Errorf("the page fetches: %q", m)
	}
	bad := render1(t, everything(hostile))
	if m := outside.FindString(bad); m != "" {
		t.Errorf("hostile texts fetch or run: %q", m)
	}
	for tag, n := range balanced(t, bad) {
		if counts[tag] != n {
			t.Errorf("hostile texts make %d <%s>, plain ones %d", n, tag, counts[tag])
		}
	}
	if strings.Contains(bad, "javascript:alert") && !strings.Contains(bad, `href="./javascript:alert`) {
		t.Error("a link runs a script")
	}
	if !strings.Contains(plain, "not measured") || !strings.Contains(plain, "nothing was measured") {
		t.Error("a cell or a table without a measurement does not say so")
	}
}

func TestFiguresSayWhatTheyShow(t *testing.T) {
	page := render1(t, everything("plain"))
	svgs := regexp.MustCompile(`<svg viewBox[^>]*>`).FindAllString(page, -1)
	if len(svgs) != 4 {
		t.Fatalf("%d figures, want 4", len(svgs))
	}
	for _, s := range svgs {
		if !regexp.MustCompile(`role="img" aria-label="[^"]{20,}"`).MatchString(s) {
			t.Errorf("a figure without words: %s", s)
		}
	}
	if m := regexp.MustCompile(`#FE01[0-9A-F]{2}|font-family:Liberation Sans;`).FindString(page); m != "" {
		t.Errorf("a stand-in or a font is left in a figure: %s", m)
	}
}

// What is wider than a phone scrolls in a box of its own: each table and each figure. Text that
// only readers of the page's words get is placed within that box, or it would widen the page. A
// figure does not shrink until its text cannot be read.
func TestWideThingsScrollInTheirBoxes(t *testing.T) {
	s := render1(t, everything("plain"))
	if n, m := strings.Count(s, "<table"), len(regexp.MustCompile(`<div class="scroll"[^>]*><table`).FindAllString(s, -1)); n == 0 || n != m {
		t.Errorf("%d of %d tables are in a box", m, n)
	}
	if n, m := strings.Count(s, "<svg viewBox"), len(regexp.MustCompile(`<div class="plot"[^>]*><svg viewBox`).FindAllString(s, -1)); n == 0 || n != m {
		t.Errorf("%d of %d figures are in a box", m, n)
	}
	if !strings.Contains(style, ".scroll,.plot{position:relative;overflow-x:auto}") {
		t.Error("the boxes do not scroll, or are not what .sr is placed in")
	}
	m := regexp.MustCompile(`\.plot>svg\{[^}]*min-width:(\d+)px`).FindStringSubmatch(style)
	if m == nil {
		t.Fatal("figures shrink without end")
	}
	if n, _ := strconv.Atoi(m[1]); n*fontSize < 9*width {
		t.Errorf("text of a figure that is %d wide has less than 9 pixels", n)
	}
}

func TestLinksStayBesideThePage(t *testing.T) {
	for in, want := range map[string]string{
		"a/b.log": "./a/b.log", "a b?#.txt": "./a%20b%3F%23.txt", "../secret": "", "/etc/passwd": "", "a/../../b": "", `..\..\b`: "", "": "", "javascript:x": "./javascript:x",
	} {
		if got := string(Link{Path: in}.Href()); got != want {
			t.Errorf("%q leads to %q, want %q", in, got, want)
		}
	}
}

func TestSectionsOfOneNameHaveOwnAddresses(t *testing.T) {
	s := render1(t, Doc{Sections: []Section{{Title: "a b"}, {Title: "a b"}, {Title: "a b", ID: "own"}, {Title: "☃"}}})
	for _, id := range []string{`id="s-a-b"`, `id="s-a-b-2"`, `id="own"`, `id="s-"`} {
		if strings.Count(s, id) != 1 {
			t.Errorf("%s is there %d times", id, strings.Count(s, id))
		}
	}
}

func TestDistributionPoints(t *testing.T) {
	// 1,000 values: 900 of 1 µs, 90 of 2 µs, 10 of 3 µs.
	d := Distribution{Values: []float64{1000, 2000, 3000}, Counts: []int64{900, 90, 10}}
	got := d.points()
	want := [][2]float64{{1000, 0}, {1000, 1}, {2000, 1}, {2000, 2}, {3000, 2}, {3000, toNines(1 - 0.5/1000)}}
	if len(got) != len(want) {
		t.Fatalf("%v", got)
	}
	for i := range want {
		if math.Abs(got[i].X-want[i][0]) > 1e-9 || math.Abs(got[i].Y-want[i][1]) > 1e-9 {
			t.Errorf("point %d is %v, want %v", i, got[i], want[i])
		}
	}
	// One value reaches 50 %: a higher quantile would need more values.
	if one := (&Distribution{Values: []float64{5}, Counts: []int64{1}}).points(); len(one) != 2 || math.Abs(one[1].Y-toNines(0.5)) > 1e-9 {
		t.Errorf("one value: %v", one)
	}
}

func TestDistributionThinsWhatIsNoLongerSeen(t *testing.T) {
	var d Distribution
	for i := range 100000 {
		d.Values, d.Counts = append(d.Values, 1e6*(1+float64(i)/1e6)), append(d.Counts, 1)
	}
	got := d.points()
	last := got[len(got)-1]
	if len(got) > 4000 || last.X != d.Values[99999] || math.Abs(last.Y-toNines(1-0.5/100000)) > 1e-9 {
		t.Errorf("%d points, the last %v", len(got), last)
	}
}

func TestChartsOfNothing(t *testing.T) {
	nan := math.NaN()
	if _, ok := CDF("t", "x", false, nil); ok {
		t.Error("a CDF of nothing")
	}
	if _, ok := CDF("t", "x", false, []Distribution{{Values: []float64{1, math.Inf(1)}, Counts: []int64{0, -4}}}); ok {
		t.Error("a CDF of no values")
	}
	if _, ok := Timeline("t", []Panel{{Unit: Bits, Series: []Series{{X: []float64{1}, Y: []float64{nan}}}}}, nil, 0); ok {
		t.Error("a timeline of what was not measured")
	}
	if _, ok := OverSize("t", "y", Time, true, []Series{{X: []float64{8}, Y: []float64{0}}}); ok {
		t.Error("zero on a logarithmic axis")
	}
	if _, ok := Bars("t", "y", Bits, []string{"a"}, []float64{nan}); ok {
		t.Error("bars of what was not measured")
	}
}

func TestChartsOfOneAndOfExtremes(t *testing.T) {
	for name, draw := range map[string]func() (Figure, bool){
		"one value":    func() (Figure, bool) { return CDF("t", "x", true, []Distribution{{"a", []float64{5}, []int64{1}}}) },
		"zero latency": func() (Figure, bool) { return CDF("t", "x", true, []Distribution{{"a", []float64{0}, []int64{7}}}) },
		"wide": func() (Figure, bool) {
			return CDF("t", "x", true, []Distribution{{"a", []float64{1, 9e18}, []int64{1 << 60, 1}}})
		},
		"one sample": func() (Figure, bool) {
			return Timeline("t", []Panel{{Unit: Bits, Series: []Series{{Name: "a", X: []float64{1}, Y: []float64{5}, Step: true}}}}, nil, 0)
		},
		"at zero": func() (Figure, bool) {
			return Timeline("t", []Panel{{Unit: Bits, Series: []Series{{Name: "a", X: []float64{0}, Y: []float64{0}}}}}, nil, 0)
		},
		"before zero": func() (Figure, bool) {
			return Timeline("t", []Panel{{Unit: Count, Series: []Series{{Name: "a", X: []float64{-5, 3}, Y: []float64{-2, 1}}}}}, []Moment{{At: math.NaN()}, {At: 1, Until: 99}}, 0)
		},
		"one size": func() (Figure, bool) {
			return OverSize("t", "y", Bits, false, []Series{{Name: "a", X: []float64{64}, Y: []float64{0}}})
		},
		"huge sizes": func() (Figure, bool) {
			return OverSize("t", "y", Time, true, []Series{{Name: "a", X: []float64{-1, 1 << 62, 9e18}, Y: []float64{1, 2, 1e300}}})
		},
		"a hundred": func() (Figure, bool) { return Bars("t", "y", Bits, make([]string, 100), make([]float64, 100)) },
		"twenty curves": func() (Figure, bool) {
			return CDF("t", "x", true, slices.Repeat([]Distribution{{"a", []float64{5}, []int64{1}}}, 20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, ok := draw()
			if !ok || !strings.Contains(string(f.SVG), "<path") && !strings.Contains(string(f.SVG), "<circle") {
				t.Errorf("nothing is drawn: %v %.200s", ok, f.SVG)
			}
			if m := regexp.MustCompile(`NaN|Inf`).FindString(string(f.SVG)); m != "" {
				t.Errorf("%s in the drawing", m)
			}
		})
	}
}

func TestTicks(t *testing.T) {
	text := func(a axis) (out []string) {
		for _, k := range a.ticks {
			if k.Label != "" {
				out = append(out, k.Label)
			}
		}
		return out
	}
	lin, unit := linear(0, 3.7e9, true, 4, Bits)
	if got := strings.Join(text(lin), " "); got != "0 1 2 3 4" || unit != "Gb/s" {
		t.Errorf("to 3.7 Gb/s: %s %s", got, unit)
	}
	lin, _ = linear(0, 2, true, 5, Bits)
	if got := strings.Join(text(lin), " "); got != "0 1 2" {
		t.Errorf("to 2 b/s: %s", got)
	}
	lin, unit = linear(0, 1.7e6, true, 4, Time)
	if got := strings.Join(text(lin), " "); got != "0.0 0.5 1.0 1.5 2.0" || unit != "ms" {
		t.Errorf("to 1.7 ms: %s %s", got, unit)
	}
	if got := strings.Join(text(logarithmic(5200, 230000, Time)), ", "); got != "5 µs, 10 µs, 20 µs, 50 µs, 100 µs, 200 µs, 500 µs" {
		t.Errorf("logarithmic: %s", got)
	}
	if got := strings.Join(text(nines(4.2)), ", "); got != "0 %, 50 %, 90 %, 99 %, 99.9 %, 99.99 %" {
		t.Errorf("nines: %s", got)
	}
	sz, at := sizes([]float64{8, 65536})
	if got := strings.Join(text(sz), " "); got != "8 16 32 64 128 256 512 1K 2K 4K 8K 16K 32K 64K" || at(64) != 6 {
		t.Errorf("sizes: %s", got)
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Time.Format(5234), "5.23 µs"}, {Time.Format(999.9), "1 µs"}, {Time.Format(0), "0 ns"}, {Time.Format(1.5e9), "1.50 s"},
		{Bits.Format(9.66e9), "9.66 Gb/s"}, {Bytes(65536), "64 KiB"}, {Count.Format(271000), "271 k"}, {Rate.Format(12), "12 /s"},
		{Time.Format(math.NaN()), NotMeasured},
		{Fixed(1234567.891, 2), "1\u202f234\u202f567.89"}, {Fixed(-1234.5, 1), "−1\u202f234.5"}, {Fixed(12, 0), "12"},
		{Int(int64(-1000)), "−1\u202f000"}, {Int(uint64(math.MaxUint64)), "18\u202f446\u202f744\u202f073\u202f709\u202f551\u202f615"},
		{Figures(0.00012), "0.00012"}, {Figures(0.25), "0.250"}, {Figures(1137), "1137"},
		{Shell([]string{"uetperf", "a b", "it's", "", "p99<1ms", "[::1]:5"}), `uetperf 'a b' 'it'\''s' '' 'p99<1ms' '[::1]:5'`},
		{units.Size(65536), "64K"}, {units.Size(0), "0"}, {units.Size(1000), "1000"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestWriteFileKeepsTheOldUntilTheNewIsWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "r.html")
	if err := os.WriteFile(name, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err := WriteFile(name, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return boom })
	if !errors.Is(err, boom) {
		t.Errorf("error %v", err)
	}
	check := func(want string) {
		t.Helper()
		b, _ := os.ReadFile(name)
		if string(b) != want {
			t.Errorf("the file has %q, want %q", b, want)
		}
		if l, _ := os.ReadDir(dir); len(l) != 1 {
			t.Errorf("left behind: %v", l)
		}
	}
	check("old")
	if err := WriteFile(name, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }); err != nil {
		t.Fatal(err)
	}
	check("new")
	for _, bad := range []string{dir, filepath.Join(dir, "no", "such")} {
		if err := WriteFile(bad, func(io.Writer) error { return nil }); err == nil || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	check("new")
}
