package ses

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestTableKeepsPlaces(t *testing.T) {
	var tb table[[3]int]
	var ptr []*[3]int
	for i := range 1000 {
		k := tb.get()
		*tb.at(k) = [3]int{i}
		ptr = append(ptr, tb.at(k))
	}
	for i, p := range ptr {
		if p[0] != i || p != tb.at(int32(i)) {
			t.Fatal("a place moved")
		}
	}
	tb.put(7)
	tb.put(900)
	if a, b := tb.get(), tb.get(); a != 900 || b != 7 || tb.live() != 1000 || tb.used != 1000 {
		t.Fatal(a, b, tb.live(), tb.used)
	}
}

// An index finds what slices find, in their order, even while it grows.
func TestIndexAgainstSlices(t *testing.T) {
	for _, n := range []uint32{8, 1024} {
		rng := rand.New(rand.NewPCG(1, 2))
		var x index
		hashes := map[int32]uint32{}
		x.init(int(n), 1, func(i int32) uint32 { return hashes[i] })
		ref := make([][]int32, n)
		where := map[int32]uint32{}
		most := 0
		for range 20_000 {
			if i := rng.Int32N(1500); rng.IntN(2) == 0 {
				if _, ok := where[i]; ok {
					continue
				}
				h := rng.Uint32()
				hashes[i], where[i] = h, h&(n-1)
				x.add(i, h)
				ref[h&(n-1)] = append(ref[h&(n-1)], i)
			} else if h, ok := where[i]; ok {
				x.remove(i)
				delete(where, i)
				k := slices.Index(ref[h], i)
				ref[h] = slices.Delete(ref[h], k, k+1)
			}
			most = max(most, len(where))
			h := rng.Uint32N(n)
			var got []int32
			for i := x.first(h); i != none; i = x.next(i) {
				if where[i] == h { // a small one has others in the chain
					got = append(got, i)
				}
			}
			if !slices.Equal(got, ref[h]) {
				t.Fatalf("%d buckets: chain %v, want %v", len(x.buckets), got, ref[h])
			}
		}
		if most < fewBuckets || len(x.buckets) > int(n) || n > fewBuckets && len(x.buckets) < most/2 {
			t.Fatalf("%d buckets of %d for at most %d places", len(x.buckets), n, most)
		}
	}
}

// Chains find what a map has, even while they grow; the link of a place that was removed is free for others.
func TestChainsAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var c chains
	var l links
	hashes := map[int32]uint32{}
	c.init(128, func(i int32) uint32 { return hashes[i] }, l.at)
	for range 20_000 {
		i := rng.Int32N(1500)
		if _, ok := hashes[i]; ok {
			c.remove(i)
			if delete(hashes, i); *l.at(i) != noBlock {
				t.Fatal("a link is left")
			}
		} else {
			hashes[i] = rng.Uint32N(1000)
			c.add(i)
		}
		if len(c.heads) > 128 || c.n != len(hashes) {
			t.Fatalf("%d heads, %d places, want %d", len(c.heads), c.n, len(hashes))
		}
		h, found := rng.Uint32N(1000), 0
		for j := c.first(h); j != none; j = c.next(j) {
			if hashes[j] == h {
				found++
			} else if k := uint32(len(c.heads) - 1); hashes[j]&k != h&k {
				t.Fatalf("place %d is in the chain of another", j)
			}
		}
		for _, k := range hashes {
			if k == h {
				found--
			}
		}
		if found != 0 {
			t.Fatalf("%d more places of hash %d are found than there are", found, h)
		}
	}
	if len(c.heads) != 128 {
		t.Errorf("%d heads for %d places", len(c.heads), c.n)
	}
}

// Places that were put back are given out again before others, each once.
func TestTableGivesPlacesAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var tb table[int]
	out := map[int32]bool{}
	most := 0
	for range 50_000 {
		if rng.IntN(2) == 0 || len(out) == 0 {
			i := tb.get()
			if out[i] {
				t.Fatalf("place %d is given out twice", i)
			}
			out[i] = true
		} else {
			for i := range out {
				tb.put(i)
				delete(out, i)
				break
			}
		}
		most = max(most, len(out))
		if tb.live() != len(out) || int(tb.used) != most {
			t.Fatalf("%d places are out of %d, want %d of %d", tb.live(), tb.used, len(out), most)
		}
	}
}

// An index grows with the places in it, not with those that were in it.
func TestIndexStaysSmall(t *testing.T) {
	var x index
	x.init(1024, 1, func(int32) uint32 { return 0 })
	for i := range uint32(10_000) {
		x.add(int32(i%fewBuckets), i*2654435761)
		x.remove(int32(i % fewBuckets))
	}
	if len(x.buckets) != fewBuckets {
		t.Errorf("%d buckets for one place at a time", len(x.buckets))
	}
}

func TestArenaPiecesAreApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var a arena
	a.init(0)
	type got struct {
		p    uint32
		b    []byte
		mark byte
	}
	var out []got
	for step := range 30_000 {
		if rng.IntN(2) == 0 || len(out) == 0 {
			n := 1 + rng.IntN(1<<(minBlock+rng.IntN(maxBlock-minBlock+1)))
			c := classOf(n)
			p := a.block(c)
			b := a.mem(p)
			if len(b) < n || len(b) > max(2*n, 64) {
				t.Fatalf("%d bytes for %d", len(b), n)
			}
			m := byte(step)
			for i := range b {
				b[i] = m
			}
			out = append(out, got{p, b, m})
		} else {
			k := rng.IntN(len(out))
			o := out[k]
			for _, v := range o.b {
				if v != o.mark {
					t.Fatal("pieces overlap")
				}
			}
			a.put(o.p)
			out[k] = out[len(out)-1]
			out = out[:len(out)-1]
		}
	}
	for _, o := range out {
		a.put(o.p)
	}
	if a.used != 0 || len(a.free) != len(a.chunks) {
		t.Fatalf("%d chunks in use", a.used)
	}
	for _, c := range a.partial {
		if c != none {
			t.Fatal("an unused chunk is listed")
		}
	}
}

func TestArenaReusesHoles(t *testing.T) {
	for class := range numClasses {
		var a arena
		a.init(0)
		per := chunkLen >> (class + minBlock)
		var ps []uint32
		for range 5 * per {
			ps = append(ps, a.block(class))
		}
		if a.used != 5 || a.partial[class] != none {
			t.Fatalf("class %d: %d chunks for 5 full ones", class, a.used)
		}
		for round := range 3 {
			for i := round; i < len(ps); i += per {
				a.put(ps[i])
			}
			for i := round; i < len(ps); i += per {
				ps[i] = a.block(class)
			}
			if a.used != 5 {
				t.Fatalf("class %d: %d chunks", class, a.used)
			}
		}
		for i := range ps {
			a.put(ps[(i*7)%len(ps)])
			if len(ps)%7 == 0 {
				t.Fatal("bad stride")
			}
		}
		if a.used != 0 || a.partial[class] != none {
			t.Fatalf("class %d: %d chunks left", class, a.used)
		}
	}
}

func TestArenaLimit(t *testing.T) {
	var a arena
	a.init(3)
	small := a.block(0)
	a.chunk()
	a.reserved = 1
	if a.room(1) || !a.fits(0) || a.fits(1) {
		t.Fatal("limit")
	}
	a.put(small)
	if !a.room(1) || !a.fits(1) {
		t.Fatal("room came back")
	}
}

func TestClassOf(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 64: 0, 65: 1, 128: 1, 129: 2, 16384: 8} {
		if got := classOf(n); got != want {
			t.Errorf("classOf(%d) = %d, want %d", n, got, want)
		}
	}
	for n, want := range map[int64]int64{0: 0, 1: 64, 65: 128, 16384: 16384, 16385: 32768, 32768: 32768, 32769: 65536, 0xFFFFFFFE: 1 << 32} {
		if got := chargeOf(n); got != want {
			t.Errorf("chargeOf(%d) = %d, want %d", n, got, want)
		}
	}
}
