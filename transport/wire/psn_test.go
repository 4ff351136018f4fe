package wire

import "testing"

// UE 3.5.11.4: PSNs are compared modulo 2³².
func TestPSN(t *testing.T) {
	for _, c := range []struct {
		p      PSN
		n      int
		q      PSN // p.Add(n)
		before bool
	}{
		{0, 0, 0, false},
		{0, 1, 1, true},
		{0xffffffff, 1, 0, true},
		{0, -1, 0xffffffff, false},
		{5, 1<<31 - 1, 0x80000004, true},
		{0x90000000, 1<<31 - 1, 0x0fffffff, true},
		{0x80000000, -1 << 15, 0x7fff8000, false},
	} {
		if q := c.p.Add(c.n); q != c.q {
			t.Errorf("%#x.Add(%d) = %#x, want %#x", c.p, c.n, q, c.q)
		}
		if d := c.q.Sub(c.p); int(d) != c.n {
			t.Errorf("%#x.Sub(%#x) = %d, want %d", c.q, c.p, d, c.n)
		}
		if got := c.p.Before(c.q); got != c.before {
			t.Errorf("%#x.Before(%#x) = %t", c.p, c.q, got)
		}
		if got := c.q.After(c.p); got != c.before {
			t.Errorf("%#x.After(%#x) = %t", c.q, c.p, got)
		}
		if c.p != c.q && (c.q.Before(c.p) == c.before || c.p.After(c.q) == c.before) {
			t.Errorf("%#x and %#x are each before the other", c.p, c.q)
		}
	}
}

// InWindow covers the n PSNs from base on.
func TestPSNInWindow(t *testing.T) {
	for _, c := range []struct {
		p, base PSN
		n       int
		want    bool
	}{
		{10, 10, 1, true},
		{10, 10, 0, false},
		{9, 10, 128, false},
		{137, 10, 128, true},
		{138, 10, 128, false},
		{5, 0xfffffff0, 128, true},
		{0xffffffef, 0xfffffff0, 128, false},
		{112, 0xfffffff0, 128, false},
	} {
		if got := c.p.InWindow(c.base, c.n); got != c.want {
			t.Errorf("%#x.InWindow(%#x, %d) = %t", c.p, c.base, c.n, got)
		}
	}
}
