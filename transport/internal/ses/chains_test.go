package ses

import "testing"

// TestChainsShrink shows that the sweep gives back the heads that a burst of places needed, and that those which are left are found.
func TestChainsShrink(t *testing.T) {
	g := newRig(t)
	var next links
	g.deferrals.init(1<<16, func(i int32) uint32 { return uint32(i) * 0x9e3779b1 >> 4 }, next.at)
	c := &g.deferrals
	const burst = 1 << 16
	for i := range int32(burst) {
		c.add(i)
	}
	heads := len(c.heads)
	left := int32(1000)
	for i := left; i < burst; i++ {
		c.remove(i)
	}
	g.epoch, g.sweepAt = 1, 1 // the first sweep was planned
	g.sweep(2)
	if n := len(c.heads); n >= heads || n < int(left)/chainLoad || n > 4*int(left) {
		t.Errorf("%d heads for %d places, %d for %d", heads, burst, n, left)
	}
	found := map[int32]bool{}
	for h := range c.heads {
		for i := c.first(uint32(h)); i != none; i = c.next(i) {
			found[i] = true
		}
	}
	for i := range left {
		if !found[i] {
			t.Fatalf("place %d is lost", i)
		}
		c.remove(i)
	}
	if c.shrink(); len(c.heads) != fewBuckets || c.n != 0 {
		t.Errorf("empty: %d heads, %d places", len(c.heads), c.n)
	}
}
