package record

// Slowest is the interval of a run in which the least went.
type Slowest struct {
	GoodputBPS float64 `json:"goodput_bps"`
	AtNS       int64   `json:"t_ns"` // its end, as of the samples of the series
	DurationNS int64   `json:"duration_ns"`
	Of         int     `json:"of"` // how many intervals there were
}

// Intervals with few messages say how those fell into them and not how fast they were: SlowestOf
// joins samples until an interval has leastMsgs on average.
const leastMsgs = 16

// SlowestOf returns the slowest interval of a run whose measured part took a time, after a warm-up of
// warm messages. Only intervals count that were measured as a whole. It returns nil if there are
// fewer than two.
func SlowestOf(series []Sample, warm, took int64) *Slowest {
	first, msgs := 0, int64(0)
	for first < len(series) {
		msgs += series[first].Msgs
		if first++; msgs >= warm {
			break
		}
	}
	if first == len(series) {
		return nil
	}
	// Measuring began in the last of the samples left out, at its begin at the earliest.
	end := took
	if first > 1 {
		end += series[first-2].AtNS
	}
	last := first
	for msgs = 0; last < len(series) && series[last].AtNS <= end; last++ {
		msgs += series[last].Msgs
	}
	whole := series[first:last]
	msgs = max(msgs, 1)
	join := max(1, int((leastMsgs*int64(len(whole))+msgs-1)/msgs))
	var out *Slowest
	from := series[first-1].AtNS
	for i := 0; i+join <= len(whole); i += join {
		bytes := int64(0)
		for _, s := range whole[i : i+join] {
			bytes += s.Bytes
		}
		x := Slowest{AtNS: whole[i+join-1].AtNS, Of: len(whole) / join}
		if x.DurationNS = x.AtNS - from; x.DurationNS <= 0 {
			return nil // the record of another program
		}
		x.GoodputBPS = float64(bytes) * 8e9 / float64(x.DurationNS)
		if from = x.AtNS; out == nil || x.GoodputBPS < out.GoodputBPS {
			out = &x
		}
	}
	if out == nil || out.Of < 2 {
		return nil
	}
	return out
}
