package report

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// HTML writes the page. title may be empty. by names the program that makes the page. The
// same records give the same page.
func HTML(w io.Writer, recs []*Rec, title, by string) error {
	doc := page.Doc{Title: title, Foot: "Made by " + by + " from " + units.Plural(len(recs), "record") + ". This page needs no network and keeps the records inside."}
	if len(recs) == 1 {
		one(&doc, recs[0])
	} else {
		several(&doc, recs)
	}
	return page.Write(w, doc)
}

// one fills the page of a single record.
func one(doc *page.Doc, r *Rec) {
	if doc.Title == "" {
		doc.Title = "uetperf " + r.Test()
	}
	doc.Lead = ends(r)
	b := r.Badge()
	doc.Badge = &b
	add(doc, "Summary", slices.Concat(r.early(), []page.Block{tiles(r)}, r.Verdicts(), r.Blocks("Results")))
	axes := AxesOf([]*Rec{r})
	add(doc, "Latency", CDF([]*Rec{r}, axes))
	add(doc, "By size", OverSize([]*Rec{r}))
	add(doc, "Streams", r.Streams())
	add(doc, "Over time", r.Timelines("", axes))
	add(doc, "Environment", []page.Block{r.Environment()})
	if c := r.Counters(""); len(c.Rows) > 0 {
		add(doc, "Counters of both ends", []page.Block{page.Details{Summary: "Packets, acknowledgements, retransmissions by cause", Open: len(c.Rows) <= 8, Body: []page.Block{c}}})
	}
	add(doc, "Repeat it", repeat(r))
	add(doc, "Record", raw(r))
}

// add adds a section if it has a body.
func add(doc *page.Doc, title string, body []page.Block) {
	if len(body) > 0 {
		doc.Sections = append(doc.Sections, page.Section{Title: title, Body: body})
	}
}

// several fills the page of more than one record.
func several(doc *page.Doc, recs []*Rec) {
	if doc.Title == "" {
		doc.Title = "uetperf: " + units.Plural(len(recs), "record")
	}
	t := page.Table{Heads: []page.Head{
		{Name: "verdict", Left: true}, {Name: "record", Left: true}, {Name: "test", Left: true}, {Name: "mode", Left: true, Help: "type of the endpoints, and how packets are delivered"}, {Name: "ends", Left: true}, {Name: "runs"},
		{Name: "p50", Unit: "µs", Help: "of the smallest size"}, {Name: "p99", Unit: "µs", Help: "of the smallest size"}, {Name: "goodput", Unit: "Gb/s", Help: "the highest"}, {Name: "rtx", Help: "packets sent again, both ends, all runs: lost + spurious"}, {Name: "lost", Unit: "pkts", Help: "of the packets sent again, those that the network had lost"}, {Name: "spur", Unit: "pkts", Help: "of the packets sent again, those that the other end had already"},
	}}
	good := page.Mark("ok", page.Good)
	for _, r := range recs {
		if !r.OK {
			good = page.Mark("not all ok", page.Bad)
		}
		h := r.Headline()
		t.Rows = append(t.Rows, []page.Cell{
			r.Badge(), page.T("%s", r.Name), page.T("%s", r.Test()), page.Maybe(r.mode()), page.T("%s", ends(r)), page.T("%d", len(r.Runs)),
			Number(h.p50, 1e3, 2), Number(h.p99, 1e3, 2), Number(h.Goodput, 1e9, 3), h.Rtx, page.Number(h.Resent, 1, 0), page.Number(h.Spurious, 1, 0),
		})
	}
	doc.Badge = &good
	add(doc, "Summary", []page.Block{t})
	axes := AxesOf(recs)
	add(doc, "Latency", CDF(recs, axes))
	add(doc, "By size", OverSize(recs))
	var lines []page.Block
	for _, r := range recs {
		lines = append(lines, r.Timelines(r.Name+": ", axes)...)
	}
	add(doc, "Over time", lines)
	for _, r := range recs {
		b := r.Badge()
		s := page.Section{Title: r.Name, Badge: &b, Body: []page.Block{page.Text(r.Test() + "; " + ends(r))}}
		s.Body = slices.Concat(s.Body, r.early(), r.Verdicts(), r.Blocks("Results"), r.Streams(), []page.Block{page.Details{Summary: "Environment", Body: []page.Block{r.Environment()}}})
		if c := r.Counters(""); len(c.Rows) > 0 {
			s.Body = append(s.Body, page.Details{Summary: "Counters of both ends", Body: []page.Block{c}})
		}
		s.Body = append(s.Body, page.Details{Summary: "Command and record", Body: append(repeat(r), raw(r)...)})
		doc.Sections = append(doc.Sections, s)
	}
}

// early tells that the test ended early, if it did.
func (r *Rec) early() []page.Block {
	if r.Error == "" {
		return nil
	}
	return []page.Block{page.Warn("The test ended early: " + r.Error + ". What is here was measured before.")}
}

// repeat shows how to repeat the test.
func repeat(r *Rec) []page.Block {
	c, ok := r.Command()
	if !ok {
		return []page.Block{page.Text("The record does not have its command.")}
	}
	out := []page.Block{c}
	switch t := r.Config.Test; {
	case t == "" || r.World != nil:
	case r.isMesh() && r.Config.Sec == "psk":
		out = append(out, page.Text("On each of the hosts: uetperf serve --keys FOLDER"))
	case r.isMesh():
		out = append(out, page.Text("On each of the hosts: uetperf serve --mesh"))
	default:
		out = append(out, page.Text("On the other host: uetperf serve"))
	}
	return out
}

// raw adds the bytes of the record to the page.
func raw(r *Rec) []page.Block {
	name := path.Base(filepath.ToSlash(r.Name))
	if !strings.HasSuffix(name, ".json") {
		name = "record.json"
	}
	out := []page.Block{page.Download{Name: name, Type: "application/json", Data: r.Raw}}
	if len(r.Raw) <= 64<<10 { // nobody reads more than that
		out = append(out, page.Details{Summary: "The record as text", Body: []page.Block{page.Pre{Name: "record", Text: string(bytes.ToValidUTF8(r.Raw, []byte("\ufffd")))}}})
	}
	return out
}

// mode is the type of the endpoints and how packets are delivered. A soak draws the mode.
func (r *Rec) mode() string {
	c := &r.Config
	if c.Test == "soak" {
		return strings.ToUpper(c.EP)
	}
	return join("/", strings.ToUpper(c.EP), strings.ToUpper(c.Mode))
}

// ends tells who measured with whom, and when.
func ends(r *Rec) string {
	s := r.Host.Name
	if s == "" {
		s = "a host without a name"
	}
	if w := r.World; w != nil && len(w.Hosts) > 0 {
		var hosts []string
		for _, h := range w.Hosts[:min(len(w.Hosts), 8)] {
			hosts = append(hosts, h.Name)
		}
		if n := len(w.Hosts) - len(hosts); n > 0 {
			hosts = append(hosts, fmt.Sprintf("%d more", n))
		}
		s = units.Plural(w.Ranks, "rank") + " on " + strings.Join(hosts, ", ")
	}
	if r.Peer != nil && r.Peer.Name != "" {
		arrow := map[string]string{"forward": "→", "reverse": "←"}[r.Config.Direction]
		if arrow == "" {
			arrow = "↔"
		}
		s += " " + arrow + " " + r.Peer.Name
	}
	if !r.Started.IsZero() {
		s += ", " + r.Started.Format("2006-01-02 15:04 MST")
	}
	return s
}

// A Headline has the most important numbers of a record: of a repeated test those of the
// median round. nil means not measured.
type Headline struct {
	Msgs        int64
	Goodput     *assert.Spread // highest
	Worst       *float64       // highest p99 of all runs
	Lost, Wrong *int64         // of all runs together
	Rtx         page.Cell
	// Resent and Spurious are the parts of Rtx: packets that the network lost, and packets that
	// the other end had already.
	Resent, Spurious *float64

	size                  int64 // smallest size with a latency
	p50, p99, rate        *assert.Spread
	goodputSize, rateSize int64
	rtxNote               string
	ok                    int64
	missing               int64 // lost, of those that must not be
}

// Headline computes the headline of the record.
func (r *Rec) Headline() Headline {
	h := Headline{Rtx: page.None()}
	latency := false
	for _, k := range r.kinds() {
		run := &r.Runs[k[0]]
		goodput, rate := r.spread(k, "goodput"), r.spread(k, "rate")
		if slices.ContainsFunc(k, func(i int) bool { return r.Runs[i].Latency != nil }) && (!latency || r.latencySize(k[0]) < h.size) {
			latency = true
			h.size, h.p50, h.p99 = r.latencySize(k[0]), r.spread(k, "p50"), r.spread(k, "p99")
		}
		if more(goodput, h.Goodput) {
			h.Goodput, h.goodputSize = goodput, run.Size
		}
		if more(rate, h.rate) {
			h.rate, h.rateSize = rate, run.Size
		}
	}
	var rtx, tx, lost, spurious float64
	counted, split := false, true
	for i := range r.Runs {
		run := &r.Runs[i]
		h.Msgs += run.Msgs
		if p99 := r.value(i, "p99"); p99 != nil && (h.Worst == nil || *p99 > *h.Worst) {
			h.Worst = p99
		}
		if run.Lost != nil {
			h.Lost = plus(h.Lost, *run.Lost)
			if run.Sent == nil { // only datagrams may be lost
				h.missing += *run.Lost
			}
		}
		if d := run.DataCheck; d != nil {
			h.ok, h.Wrong = h.ok+d.OK, plus(h.Wrong, d.Wrong)
		}
		if n := r.value(i, "rtx"); n != nil {
			counted = true
			rtx += *n
			if t := r.value(i, "tx"); t != nil {
				tx += *t
			}
			a, b := r.resent(i)
			if split = split && a != nil; split {
				lost, spurious = lost+*a, spurious+*b
			}
		}
	}
	if counted {
		h.Rtx = page.Number(&rtx, 1, 0)
		if split {
			h.Resent, h.Spurious = &lost, &spurious
			if rtx > 0 {
				h.rtxNote = page.Fixed(lost, 0) + " lost, " + page.Fixed(spurious, 0) + " spurious"
			}
		}
		if tx > 0 {
			share := fmt.Sprintf("%s %% of %s packets", page.Figures(100*rtx/tx), page.Count.Format(tx))
			if r.repeated() {
				share += " of all rounds"
			}
			h.rtxNote = join("; ", h.rtxNote, share)
		}
	}
	return h
}

// more reports whether v was measured and its median exceeds the one before, which may be
// missing.
func more(v, before *assert.Spread) bool {
	return v != nil && (before == nil || v.Median > before.Median)
}

func plus(sum *int64, n int64) *int64 {
	if sum != nil {
		n += *sum
	}
	return &n
}

// tiles returns the most important numbers as tiles.
func tiles(r *Rec) page.Tiles {
	h := r.Headline()
	var t page.Tiles
	at := func(size int64) string { return "at size " + units.Size(size) }
	if h.p50 != nil {
		t = append(t, tile("latency, p50", page.Time, h.p50, at(h.size)))
	}
	if h.p99 != nil {
		t = append(t, tile("latency, p99", page.Time, h.p99, at(h.size)))
	}
	if h.Goodput != nil {
		t = append(t, tile("goodput", page.Bits, h.Goodput, at(h.goodputSize)))
	}
	if h.rate != nil {
		t = append(t, tile("messages", page.Rate, h.rate, at(h.rateSize)))
	}
	t = append(t, page.Tile{Name: "sent again", Value: h.Rtx.Text, Note: h.rtxNote})
	if h.Lost != nil {
		t = append(t, page.Tile{Name: "messages lost", Value: page.Int(*h.Lost), Tone: page.BadIf(h.missing > 0, "").Tone})
	}
	data := page.Tile{Name: "data", Value: "not verified", Note: "run with -c"}
	if h.Wrong != nil {
		data = page.Tile{Name: "data verified", Value: page.Int(h.ok) + " ok", Note: page.Int(*h.Wrong) + " wrong", Tone: page.Good}
		if *h.Wrong > 0 {
			data.Tone = page.Bad
		}
	}
	t = append(t, data)
	if n := len(r.Record.Verdict); n > 0 {
		pass := 0
		for _, v := range r.Record.Verdict {
			if v.Pass {
				pass++
			}
		}
		tone := page.Good
		if pass < n {
			tone = page.Bad
		}
		t = append(t, page.Tile{Name: "assertions", Value: fmt.Sprintf("%d of %d hold", pass, n), Tone: tone})
	}
	return t
}
