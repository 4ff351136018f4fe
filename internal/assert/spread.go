package assert

import "slices"

// A Spread summarizes what the runs of one kind measured.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

// SpreadOf summarizes values, nil if there are none. It sorts them.
func SpreadOf(v []float64) *Spread {
	if len(v) == 0 {
		return nil
	}
	slices.Sort(v)
	mid := v[len(v)/2]
	if len(v)%2 == 0 {
		mid = (mid + v[len(v)/2-1]) / 2
	}
	return &Spread{mid, v[0], v[len(v)-1], len(v)}
}

// Text is the median and, of several runs, the range, as a metric formats them.
func (s *Spread) Text(m Metric) string {
	if s.Runs == 1 {
		return m.Format(s.Median)
	}
	return m.Format(s.Median) + " [" + m.Format(s.Min) + " … " + m.Format(s.Max) + "]"
}
