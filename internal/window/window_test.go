package window

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// twin is the same window as a plain map.
type twin struct {
	base uint32
	size int
	set  map[uint32]bool
}

func (w *twin) in(n uint32) bool { return n-w.base < uint32(w.size) }

func (w *twin) Set(n uint32) bool {
	if !w.in(n) || w.set[n] {
		return false
	}
	w.set[n] = true
	return true
}

func (w *twin) Test(n uint32) bool {
	if w.in(n) {
		return w.set[n]
	}
	return int32(n-w.base) < 0
}

func (w *twin) AdvanceTo(limit uint32) int {
	n := 0
	for int32(limit-w.base) > 0 && w.set[w.base] {
		delete(w.set, w.base)
		w.base++
		n++
	}
	return n
}

func (w *twin) Advance() int { return w.AdvanceTo(w.base + uint32(w.size)) }

func (w *twin) Word(n uint32) (v uint64) {
	for i := range uint32(64) {
		if w.Test(n + i) {
			v |= 1 << i
		}
	}
	return v
}

func (w *twin) next(from uint32, want bool) (uint32, bool) {
	for i := range uint32(w.size) {
		if n := w.base + i; int32(n-from) >= 0 && w.set[n] == want {
			return n, true
		}
	}
	return 0, false
}

func (w *twin) Max() (uint32, bool) {
	for i := w.size - 1; i >= 0; i-- {
		if n := w.base + uint32(i); w.set[n] {
			return n, true
		}
	}
	return 0, false
}

// same compares everything that a caller can see, at the number n.
func same(t interface {
	Helper()
	Fatalf(string, ...any)
}, w *Bitmap, tw *twin, n uint32) {
	t.Helper()
	if w.Base() != tw.base || w.Size() != tw.size {
		t.Fatalf("base %d size %d, want %d %d", w.Base(), w.Size(), tw.base, tw.size)
	}
	if w.Count() != len(tw.set) {
		t.Fatalf("Count %d, want %d", w.Count(), len(tw.set))
	}
	type ans struct {
		n  uint32
		ok bool
	}
	pair := func(n uint32, ok bool) ans {
		if !ok {
			n = 0
		}
		return ans{n, ok}
	}
	if got, want := pair(w.Max()), pair(tw.Max()); got != want {
		t.Fatalf("Max %v, want %v", got, want)
	}
	if got, want := w.Test(n), tw.Test(n); got != want {
		t.Fatalf("Test(base%+d) %v, want %v", int32(n-tw.base), got, want)
	}
	if got, want := w.Word(n), tw.Word(n); got != want {
		t.Fatalf("Word(base%+d) %064b, want %064b", int32(n-tw.base), got, want)
	}
	if got, want := pair(w.Next0(n)), pair(tw.next(n, false)); got != want {
		t.Fatalf("Next0(base%+d) %v, want %v", int32(n-tw.base), got, want)
	}
	if got, want := pair(w.Next1(n)), pair(tw.next(n, true)); got != want {
		t.Fatalf("Next1(base%+d) %v, want %v", int32(n-tw.base), got, want)
	}
}

func TestBitmapMatchesDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 64 << rapid.IntRange(0, 3).Draw(t, "log2(size/64)")
		// Bases near the serial wrap, near word borders and anywhere.
		base := rapid.OneOf(
			rapid.Uint32(),
			rapid.Uint32Range(^uint32(0)-600, ^uint32(0)),
			rapid.Uint32Range(0, 130),
			rapid.Uint32Range(1<<31-300, 1<<31+300),
		).Draw(t, "base")
		var w Bitmap
		w.Init(base, size)
		tw := &twin{base: base, size: size, set: map[uint32]bool{}}
		near := rapid.IntRange(-130, size+130)
		at := func() uint32 { return tw.base + uint32(near.Draw(t, "offset")) }
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				n := at()
				if got, want := w.Set(n), tw.Set(n); got != want {
					t.Fatalf("Set(base%+d) %v, want %v", int32(n-tw.base), got, want)
				}
			},
			"run": func(t *rapid.T) {
				n := at()
				for i := range uint32(rapid.IntRange(1, 200).Draw(t, "length")) {
					if got, want := w.Set(n+i), tw.Set(n+i); got != want {
						t.Fatalf("Set(base%+d) %v, want %v", int32(n+i-tw.base), got, want)
					}
				}
			},
			"front": func(t *rapid.T) { // the front gap closes, so a long run appears
				for i := range uint32(rapid.IntRange(1, 70).Draw(t, "length")) {
					w.Set(tw.base + i)
					tw.Set(tw.base + i)
				}
			},
			"advance": func(t *rapid.T) {
				if got, want := w.Advance(), tw.Advance(); got != want {
					t.Fatalf("Advance %d, want %d", got, want)
				}
			},
			"take": func(t *rapid.T) {
				n := tw.base + uint32(rapid.IntRange(-1, 1).Draw(t, "offset"))
				want := n == tw.base && len(tw.set) == 0
				if want {
					tw.Set(n)
					tw.Advance()
				}
				if got := w.Take(n); got != want {
					t.Fatalf("Take(base%+d) %v, want %v", int32(n-tw.base), got, want)
				}
			},
			"advanceTo": func(t *rapid.T) {
				limit := at()
				if got, want := w.AdvanceTo(limit), tw.AdvanceTo(limit); got != want {
					t.Fatalf("AdvanceTo(%d) %d, want %d", limit, got, want)
				}
			},
			"": func(t *rapid.T) { same(t, &w, tw, at()) },
		})
	})
}

// The largest window slides around the ring many times and over 2³² once. A counter takes
// the place of the twin.
func TestBitmapSlidesAcrossSerialWrap(t *testing.T) {
	for _, size := range []int{MinSize, 2048, MaxSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			var w Bitmap
			base := uint32(0) - uint32(2*size)
			w.Init(base, size)
			rng := rand.New(rand.NewPCG(1, uint64(size)))
			next := base // everything before it was set
			for w.Base()-base < uint32(5*size) {
				// Blocks of up to half a window, each set in random order.
				n := 1 + rng.IntN(size/2)
				for _, i := range rng.Perm(n) {
					if !w.Set(next + uint32(i)) {
						t.Fatalf("Set(%d) false, base %d", next+uint32(i), w.Base())
					}
				}
				if w.Count() != n {
					t.Fatalf("Count %d, want %d", w.Count(), n)
				}
				if w.Set(next) {
					t.Fatal("the second Set of a number is true")
				}
				if got := w.Advance(); got != n {
					t.Fatalf("Advance %d, want %d", got, n)
				}
				next += uint32(n)
				if w.Count() != 0 || w.Base() != next {
					t.Fatalf("after Advance: count %d base %d, want 0 %d", w.Count(), w.Base(), next)
				}
			}
		})
	}
}

func TestBitmapRefusesOutsideWindow(t *testing.T) {
	var w Bitmap
	w.Init(1000, 128)
	for _, n := range []uint32{999, 0, 1128, 1000 + 1<<31, 1<<32 - 5} {
		if w.Set(n) {
			t.Errorf("Set(%d) is true outside [1000,1128)", n)
		}
	}
	if w.Count() != 0 {
		t.Errorf("Count %d after refused Sets", w.Count())
	}
	if !w.Set(1127) || !w.Set(1000) {
		t.Error("Set refuses the borders of the window")
	}
	// The last bit does not share its place with the first of the next round.
	if w.Advance() != 1 || !w.Set(1128) || w.Test(1001) {
		t.Error("the place of 1000 does not serve 1128")
	}
}

func TestBitmapZeroTakesNothing(t *testing.T) {
	var w Bitmap
	if w.Set(0) || w.Take(0) || w.Advance() != 0 || w.AdvanceTo(9) != 0 || w.Word(0) != 0 || w.Size() != 0 {
		t.Error("the zero Bitmap took something")
	}
	if _, ok := w.Next0(0); ok {
		t.Error("the zero Bitmap has room")
	}
	if _, ok := w.Next1(0); ok {
		t.Error("the zero Bitmap has a bit")
	}
}

func TestBitmapInitRefusesOddSizes(t *testing.T) {
	for _, size := range []int{-64, 0, 1, 32, 63, 65, 384, MaxSize + 1, 2 * MaxSize} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Init took size %d", size)
				}
			}()
			var w Bitmap
			w.Init(0, size)
		}()
	}
}

func TestBitmapInitReusesMemory(t *testing.T) {
	var w Bitmap
	w.Init(0, 2048)
	for i := range uint32(2048) {
		w.Set(i)
	}
	if got := testing.AllocsPerRun(10, func() { w.Init(7, 1024) }); got != 0 {
		t.Errorf("Init of a smaller size allocates %v times", got)
	}
	if w.Count() != 0 || w.Word(7) != 0 || w.Base() != 7 {
		t.Error("Init left bits of the earlier life")
	}
}

func TestBitmapAllocatesNothing(t *testing.T) {
	var w Bitmap
	w.Init(0, 2048)
	n := uint32(0)
	if got := testing.AllocsPerRun(1000, func() {
		w.Set(n + 3)
		w.Set(n)
		w.Advance()
		w.Word(n)
		w.Next0(n)
		w.Next1(n)
		n++
	}); got != 0 {
		t.Errorf("%v allocations per packet", got)
	}
}

func BenchmarkInOrder(b *testing.B) {
	var w Bitmap
	w.Init(0, 2048)
	n := uint32(0)
	for b.Loop() {
		w.Set(n)
		w.Advance()
		n++
	}
}

// Groups of 64 arrive back to front: 63 Sets that advance nothing, then a run.
func BenchmarkReversed64(b *testing.B) {
	var w Bitmap
	w.Init(0, 2048)
	n := uint32(0)
	for b.Loop() {
		w.Set(n ^ 63)
		w.Advance()
		n++
	}
}

func BenchmarkWord(b *testing.B) {
	var w Bitmap
	w.Init(0, 2048)
	for i := range uint32(1024) {
		w.Set(2*i + 1)
	}
	n, sum := uint32(0), uint64(0)
	for b.Loop() {
		sum += w.Word(n & 2047)
		n += 7
	}
	_ = sum
}

// The longest scan: the first hole after a window's length of marked numbers.
func BenchmarkNext0Far(b *testing.B) {
	var w Bitmap
	w.Init(0, 2048)
	for i := range uint32(2047) {
		w.Set(i)
	}
	for b.Loop() {
		w.Next0(0)
	}
}
