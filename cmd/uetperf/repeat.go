package main

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/units"
)

// medianOf are the metrics of which a repeated test says the median.
var medianOf = []string{"p50", "p99", "p999", "goodput", "slowest", "busbw", "rate", "loss", "rtx", "spurious", "late", "jain"}

// medians prints, of a test that was repeated, the median of each size and the range.
func (p *printer) medians(r *record.Record) {
	if r.Config.Repeat < 2 {
		return
	}
	sizes, bySize := []int64{}, map[int64][]*record.Run{}
	for i := range r.Runs {
		x := &r.Runs[i]
		if bySize[x.Size] == nil {
			sizes = append(sizes, x.Size)
		}
		bySize[x.Size] = append(bySize[x.Size], x)
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Format.Header = text.FormatDefault
	head := table.Row{"size"}
	rows := make([]table.Row, len(sizes))
	for i, n := range sizes {
		rows[i] = table.Row{units.Size(n)}
	}
	columns := []table.ColumnConfig{{Number: 1, Align: text.AlignRight}}
	for _, name := range medianOf {
		m, ok := assert.Lookup(name)
		if !ok {
			continue
		}
		cells, shown := make([]string, len(sizes)), false
		for i, n := range sizes {
			var v []float64
			for _, x := range bySize[n] {
				if y, ok := m.Value(x); ok {
					v = append(v, y)
				}
			}
			if s := assert.SpreadOf(v); s != nil {
				cells[i] = s.Text(m)
				shown = shown || s.Max != 0 || m.HigherIsBetter()
			}
		}
		if !shown {
			continue
		}
		head = append(head, m.Name)
		columns = append(columns, table.ColumnConfig{Number: len(head), Align: text.AlignRight})
		for i := range rows {
			rows[i] = append(rows[i], cells[i])
		}
	}
	t.AppendHeader(head)
	t.AppendRows(rows)
	t.SetColumnConfigs(columns)
	fmt.Fprintf(p.w, "medians of %d [least … most]:\n%s\n", r.Config.Repeat, t.Render())
}
