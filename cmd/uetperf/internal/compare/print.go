package compare

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/units"
)

// Print writes the comparison as text.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "base: %s\nnew:  %s\n", clean(strings.Join(r.Base, ", ")), clean(strings.Join(r.New, ", ")))
	for _, d := range r.Differs {
		fmt.Fprintf(w, "not the same: %s: %s, now %s\n", d.What, clean(word(d.Base)), clean(word(d.New)))
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"run", "size", "metric", "base", "new", "change", ""})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight}, {Number: 4, Align: text.AlignRight}, {Number: 5, Align: text.AlignRight}, {Number: 6, Align: text.AlignRight}})
	single := true
	for i := range r.Rows {
		x := &r.Rows[i]
		k := x.Key
		size := units.Size(k.Size)
		k.Size = 0
		name := strings.TrimSpace(strings.Replace(k.String(), "0 B", "", 1))
		t.AppendRow(table.Row{clean(strings.Join(strings.Fields(name), " ")), size, x.Metric, x.side(x.Base), x.side(x.New), x.ChangeText(), x.note()})
		single = single && x.WithinSpread == nil
	}
	fmt.Fprintln(w, t.Render())
	if single {
		fmt.Fprintln(w, "One run of each kind at each side: what is noise is not known. Measure with --repeat N, or give several records a side: --base FILE --new FILE, repeated.")
	}
	for _, u := range r.Unmatched {
		fmt.Fprintf(w, "only in %s: %s\n", u.Side, clean(u.Key.String()))
	}
	for _, b := range r.Broken {
		fmt.Fprintf(w, "FAILED new record %s\n", clean(b))
	}
	for _, j := range r.FailOn {
		if n := len(j.NotMeasured); n > 0 {
			fmt.Fprintf(w, "fail-on %s: warning: says nothing of %s, where the base did not measure it\n", j.Expr, clean(few(j.NotMeasured)))
		}
		if j.Pass {
			fmt.Fprintf(w, "fail-on %s: ok\n", j.Expr)
			continue
		}
		for _, why := range j.Why {
			fmt.Fprintf(w, "fail-on %s: FAILED, %s\n", j.Expr, clean(why))
		}
	}
}

// side formats the median and, if there are several runs, the range.
func (r *Row) side(s *assert.Spread) string {
	if s == nil {
		return "not measured"
	}
	return s.Text(r.metric)
}

func (r *Row) note() string {
	switch {
	case r.Better == nil:
		return ""
	case r.WithinSpread != nil && *r.WithinSpread:
		return "within the spread"
	case *r.Better:
		return "better"
	}
	return "worse"
}

func word(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// clean replaces characters that could control a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
