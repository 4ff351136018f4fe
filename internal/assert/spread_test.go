package assert

import "testing"

func TestSpread(t *testing.T) {
	if s := SpreadOf(nil); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	msgs, ok := Lookup("msgs")
	if !ok {
		t.Fatal("no metric msgs")
	}
	for _, c := range []struct {
		v    []float64
		want Spread
		text string
	}{
		{[]float64{5}, Spread{5, 5, 5, 1}, "5"},
		{[]float64{9, 1, 2}, Spread{2, 1, 9, 3}, "2 [1 … 9]"},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}, "3 [1 … 9]"},
	} {
		if s := SpreadOf(c.v); *s != c.want || s.Text(msgs) != c.text {
			t.Errorf("%v: %+v, %q, want %+v, %q", c.v, *s, s.Text(msgs), c.want, c.text)
		}
	}
}
