package record

import "testing"

func TestSlowestOf(t *testing.T) {
	// of makes a series of intervals of 100 ns in which so many messages of 10 bytes went.
	of := func(msgs ...int64) (out []Sample) {
		for i, n := range msgs {
			out = append(out, Sample{AtNS: int64(i+1) * 100, Msgs: n, Bytes: 10 * n})
		}
		return out
	}
	for name, c := range map[string]struct {
		series     []Sample
		warm, took int64
		want       Slowest // GoodputBPS in messages
	}{
		"the first and the last are parts":   {of(1, 50, 40, 60, 2), 0, 450, Slowest{GoodputBPS: 40, AtNS: 300, DurationNS: 100, Of: 3}},
		"the warm-up took three":             {of(50, 10, 50, 70, 60, 2), 70, 350, Slowest{GoodputBPS: 60, AtNS: 500, DurationNS: 100, Of: 2}},
		"it ended long before the last":      {of(1, 50, 40, 0, 0, 0), 0, 350, Slowest{GoodputBPS: 40, AtNS: 300, DurationNS: 100, Of: 2}},
		"a pause":                            {of(50, 50, 0, 50, 50, 50), 0, 550, Slowest{GoodputBPS: 0, AtNS: 300, DurationNS: 100, Of: 4}},
		"few messages fall into an interval": {of(4, 4, 0, 12, 4, 0, 4, 12, 8, 1), 0, 950, Slowest{GoodputBPS: 8, AtNS: 700, DurationNS: 300, Of: 2}},
		"one interval":                       {of(50, 40, 30), 0, 250, Slowest{}},
		"nothing":                            {nil, 0, 1000, Slowest{}},
		"the warm-up took all":               {of(1, 1, 1), 9, 1000, Slowest{}},
		"nothing went":                       {of(1, 0, 0, 0), 0, 450, Slowest{}},
		"of another program, in no order":    {[]Sample{{AtNS: 9, Msgs: 99}, {AtNS: 5, Msgs: 99}, {AtNS: 5, Msgs: 99}}, 0, 1000, Slowest{}},
	} {
		got := SlowestOf(c.series, c.warm, c.took)
		if got == nil {
			got = &Slowest{}
		}
		c.want.GoodputBPS *= 80e9 / float64(max(1, c.want.DurationNS))
		if *got != c.want {
			t.Errorf("%s: %+v, want %+v", name, *got, c.want)
		}
	}
}
