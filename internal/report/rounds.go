package report

import (
	"fmt"
	"math"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/assert"
	"github.com/uetkit/uetkit/internal/page"
)

// A kind is the runs of a record that measured the same: a single run, or the rounds of a
// repeated test.
type kind []int

// repeated reports whether the record has rounds of the same.
func (r *Rec) repeated() bool { return r.Config.Repeat > 1 }

// kinds returns all runs by kind, in the order of the first round.
func (r *Rec) kinds() (all []kind) {
	type key struct {
		name, op string
		size     int64
	}
	at := map[key]int{}
	for i := range r.Runs {
		x := &r.Runs[i]
		k := key{x.Name, x.Op, x.Size}
		n, ok := at[k]
		if !ok || !r.repeated() {
			n = len(all)
			at[k] = n
			all = append(all, nil)
		}
		all[n] = append(all[n], i)
	}
	return all
}

// spread summarizes a value over the runs that have it; nil if none has.
func (k kind) spread(of func(i int) *float64) *assert.Spread {
	var v []float64
	for _, i := range k {
		if x := of(i); x != nil && !math.IsNaN(*x) && !math.IsInf(*x, 0) {
			v = append(v, *x)
		}
	}
	return assert.SpreadOf(v)
}

// spread summarizes a metric of the runs of a kind.
func (r *Rec) spread(k kind, metric string) *assert.Spread {
	return k.spread(func(i int) *float64 { return r.value(i, metric) })
}

// Number is the cell of a spread: the median and, of several rounds, the range.
func Number(s *assert.Spread, per float64, prec int) page.Cell {
	if s == nil {
		return page.None()
	}
	c := num(s.Median/per, prec)
	if lo, hi := page.Fixed(s.Min/per, prec), page.Fixed(s.Max/per, prec); s.Runs > 1 && lo != hi {
		c.Range = lo + " … " + hi
	}
	return c
}

// tile is the tile of a spread, with a note.
func tile(name string, u page.Unit, s *assert.Spread, note string) page.Tile {
	t := page.Tile{Name: name, Value: u.Format(s.Median), Note: note}
	if s.Runs > 1 {
		t.Note = fmt.Sprintf("median of %d, %s … %s, %s", s.Runs, u.Format(s.Min), u.Format(s.Max), note)
	}
	return t
}

// checks adds up what was verified in the runs of a kind; nil if nothing was.
func (r *Rec) checks(k kind) *record.Check {
	var sum *record.Check
	for _, i := range k {
		if d := r.Runs[i].DataCheck; d != nil {
			if sum == nil {
				sum = &record.Check{}
			}
			sum.Add(d)
		}
	}
	return sum
}

// errors returns the errors that ended runs of a kind, each once.
func (r *Rec) errors(k kind) string {
	var all []string
	said := map[string]bool{}
	for _, i := range k {
		if e := r.Runs[i].Error; !said[e] {
			said[e] = true
			all = append(all, e)
		}
	}
	return join("; ", all...)
}

// rounds shows the results of each round of a repeated test, folded.
func (r *Rec) rounds() []page.Block {
	if len(r.kinds()) == len(r.Runs) {
		return nil
	}
	single := make([]kind, len(r.Runs))
	for i := range single {
		single[i] = kind{i}
	}
	return []page.Block{page.Details{Summary: fmt.Sprintf("Each of the %d rounds", r.Config.Repeat), Body: []page.Block{r.results("", single)}}}
}
