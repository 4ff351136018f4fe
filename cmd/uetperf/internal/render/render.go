// Package render makes one page of records of uetperf.
package render

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/recview"
	"github.com/uetkit/uetkit/internal/units"
)

// HTML writes the page. title may be empty; by says what made the page. The page
// is the same for the same records.
func HTML(w io.Writer, recs []*recview.Rec, title, by string) error {
	doc := page.Doc{Title: title, Foot: "Made by " + by + " from " + units.Plural(len(recs), "record") + ". This page needs no network and keeps the records inside."}
	if len(recs) == 1 {
		one(&doc, recs[0])
	} else {
		several(&doc, recs)
	}
	return page.Write(w, doc)
}

// one is the page of one record.
func one(doc *page.Doc, r *recview.Rec) {
	if doc.Title == "" {
		doc.Title = "uetperf " + r.Test()
	}
	doc.Lead = ends(r)
	b := r.Badge()
	doc.Badge = &b
	summary := page.Section{Title: "Summary"}
	if r.Error != "" {
		summary.Body = append(summary.Body, page.Warn("The test ended early: "+r.Error+". What is here was measured before."))
	}
	summary.Body = append(summary.Body, tiles(r))
	if t, ok := r.Verdicts(); ok {
		summary.Body = append(summary.Body, t)
	}
	summary.Body = append(summary.Body, r.Blocks("Results")...)
	doc.Sections = append(doc.Sections, summary)
	add(doc, "Latency", recview.CDF([]*recview.Rec{r}))
	add(doc, "By size", recview.OverSize([]*recview.Rec{r}))
	add(doc, "Streams", r.Streams())
	add(doc, "Over time", r.Timelines(""))
	doc.Sections = append(doc.Sections, page.Section{Title: "Environment", Body: []page.Block{r.Environment()}})
	if c := r.Counters(""); len(c.Rows) > 0 {
		doc.Sections = append(doc.Sections, page.Section{Title: "Counters of both ends", Body: []page.Block{page.Details{Summary: "Packets, acknowledgements, retransmissions by cause", Open: len(c.Rows) <= 8, Body: []page.Block{c}}}})
	}
	doc.Sections = append(doc.Sections, page.Section{Title: "Repeat it", Body: repeat(r)}, page.Section{Title: "Record", Body: raw(r)})
}

// add adds a section if there is something in it.
func add(doc *page.Doc, title string, body []page.Block) {
	if len(body) > 0 {
		doc.Sections = append(doc.Sections, page.Section{Title: title, Body: body})
	}
}

// several is the page of more than one.
func several(doc *page.Doc, recs []*recview.Rec) {
	if doc.Title == "" {
		doc.Title = "uetperf: " + units.Plural(len(recs), "record")
	}
	t := page.Table{Heads: []page.Head{
		{Name: "verdict", Left: true}, {Name: "record", Left: true}, {Name: "test", Left: true}, {Name: "ends", Left: true}, {Name: "runs"},
		{Name: "p50", Unit: "µs", Help: "of the smallest size"}, {Name: "p99", Unit: "µs", Help: "of the smallest size"}, {Name: "goodput", Unit: "Gb/s", Help: "the highest"}, {Name: "rtx", Help: "packets sent again, both ends, all runs"},
	}}
	good := page.Mark("ok", page.Good)
	for _, r := range recs {
		if !r.OK {
			good = page.Mark("not all ok", page.Bad)
		}
		h := headline(r)
		t.Rows = append(t.Rows, []page.Cell{
			r.Badge(), page.T("%s", r.Name), page.T("%s", r.Test()), page.T("%s", ends(r)), page.T("%d", len(r.Runs)),
			fixed(h.p50, 1e3, 2), fixed(h.p99, 1e3, 2), fixed(h.goodput, 1e9, 3), h.rtx,
		})
	}
	doc.Badge = &good
	doc.Sections = append(doc.Sections, page.Section{Title: "Summary", Body: []page.Block{t}})
	add(doc, "Latency", recview.CDF(recs))
	add(doc, "By size", recview.OverSize(recs))
	var lines []page.Block
	for _, r := range recs {
		lines = append(lines, r.Timelines(r.Name+": ")...)
	}
	add(doc, "Over time", lines)
	for _, r := range recs {
		b := r.Badge()
		s := page.Section{Title: r.Name, Badge: &b, Body: []page.Block{page.Text(r.Test() + "; " + ends(r))}}
		if r.Error != "" {
			s.Body = append(s.Body, page.Warn("The test ended early: "+r.Error+". What is here was measured before."))
		}
		if v, ok := r.Verdicts(); ok {
			s.Body = append(s.Body, v)
		}
		s.Body = append(s.Body, r.Blocks("Results")...)
		s.Body = append(s.Body, r.Streams()...)
		s.Body = append(s.Body, page.Details{Summary: "Environment", Body: []page.Block{r.Environment()}})
		if c := r.Counters(""); len(c.Rows) > 0 {
			s.Body = append(s.Body, page.Details{Summary: "Counters of both ends", Body: []page.Block{c}})
		}
		s.Body = append(s.Body, page.Details{Summary: "Command and record", Body: append(repeat(r), raw(r)...)})
		doc.Sections = append(doc.Sections, s)
	}
}

// repeat says how to make such a record again.
func repeat(r *recview.Rec) []page.Block {
	c, ok := r.Command()
	if !ok {
		return []page.Block{page.Text("The record does not have its command.")}
	}
	out := []page.Block{c}
	if t := r.Config.Test; t != "" {
		out = append(out, page.Text("On the other host: uetperf serve"))
	}
	return out
}

// raw keeps the record as it was written.
func raw(r *recview.Rec) []page.Block {
	name := path.Base(filepath.ToSlash(r.Name))
	if !strings.HasSuffix(name, ".json") {
		name = "record.json"
	}
	out := []page.Block{page.Download{Name: name, Type: "application/json", Data: r.Raw}}
	if len(r.Raw) <= 64<<10 { // more is of no use to the eye
		out = append(out, page.Details{Summary: "The record as text", Body: []page.Block{page.Pre{Name: "record", Text: string(bytes.ToValidUTF8(r.Raw, []byte("\ufffd")))}}})
	}
	return out
}

// ends says who measured with whom, and when.
func ends(r *recview.Rec) string {
	s := r.Host.Name
	if s == "" {
		s = "a host without a name"
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

// A head is what stands above all of a record. What is nil was not measured.
type head struct {
	size                  int64 // the smallest one with a latency
	p50, p99              *float64
	goodput, rate         *float64
	goodputSize, rateSize int64
	rtx                   page.Cell
	rtxNote               string
	checked               bool
	ok, wrong             int64
	lost                  *int64
}

func headline(r *recview.Rec) head {
	h := head{rtx: page.None()}
	var rtx, tx uint64
	counted, latency := false, false
	for i := range r.Runs {
		run := &r.Runs[i]
		if l := run.Latency; l != nil && (!latency || run.Size < h.size) {
			latency = true
			h.size, h.p50, h.p99 = run.Size, nil, nil
			if p := float64(l.P50); r.Measured(i, "p50") {
				h.p50 = &p
			}
			if p := float64(l.P99); r.Measured(i, "p99") {
				h.p99 = &p
			}
		}
		if run.GoodputBPS != nil && (h.goodput == nil || *run.GoodputBPS > *h.goodput) {
			h.goodput, h.goodputSize = run.GoodputBPS, run.Size
		}
		if run.MsgsPerS != nil && (h.rate == nil || *run.MsgsPerS > *h.rate) {
			h.rate, h.rateSize = run.MsgsPerS, run.Size
		}
		if run.Lost != nil {
			n := *run.Lost
			if h.lost != nil {
				n += *h.lost
			}
			h.lost = &n
		}
		if d := run.DataCheck; d != nil {
			h.checked, h.ok, h.wrong = true, h.ok+d.OK, h.wrong+d.Wrong
		}
		if r.Measured(i, "rtx") {
			counted = true
			for _, c := range []*record.Counters{&run.Transport, run.PeerTransport} {
				if c != nil {
					rtx, tx = rtx+c.Rtx(), tx+c.TxPkts
				}
			}
		}
	}
	if counted {
		h.rtx = page.T("%s", page.Int(rtx))
		if tx > 0 {
			h.rtxNote = fmt.Sprintf("%s %% of %s packets", page.Figures(100*float64(rtx)/float64(tx)), page.Count.Format(float64(tx)))
		}
	}
	return h
}

func fixed(v *float64, per float64, prec int) page.Cell {
	if v == nil {
		return page.None()
	}
	return page.T("%s", page.Fixed(*v/per, prec))
}

// tiles are the numbers one came for.
func tiles(r *recview.Rec) page.Tiles {
	h := headline(r)
	var t page.Tiles
	at := func(size int64) string { return "at size " + units.Size(size) }
	if h.p50 != nil {
		t = append(t, page.Tile{Name: "latency, p50", Value: page.Time.Format(*h.p50), Note: at(h.size)})
	}
	if h.p99 != nil {
		t = append(t, page.Tile{Name: "latency, p99", Value: page.Time.Format(*h.p99), Note: at(h.size)})
	}
	if h.goodput != nil {
		t = append(t, page.Tile{Name: "goodput", Value: page.Bits.Format(*h.goodput), Note: at(h.goodputSize)})
	}
	if h.rate != nil {
		t = append(t, page.Tile{Name: "messages", Value: page.Rate.Format(*h.rate), Note: at(h.rateSize)})
	}
	t = append(t, page.Tile{Name: "sent again", Value: h.rtx.Text, Note: h.rtxNote})
	if h.lost != nil {
		tone := page.Plain
		if *h.lost > 0 {
			tone = page.Bad
		}
		t = append(t, page.Tile{Name: "messages lost", Value: page.Int(*h.lost), Tone: tone})
	}
	data := page.Tile{Name: "data", Value: "not verified", Note: "run with -c"}
	if h.checked {
		data = page.Tile{Name: "data verified", Value: page.Int(h.ok) + " ok", Note: page.Int(h.wrong) + " wrong", Tone: page.Good}
		if h.wrong > 0 {
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
