package pattern

import (
	"math/rand/v2"
	"testing"
)

func TestPatternVerifiesWhatItFilled(t *testing.T) {
	p := New(42)
	for _, n := range []int{0, 1, 7, 8, chunk - 1, chunk, chunk + 1, 1 << 20} {
		b := make([]byte, n)
		p.Fill(b, 17)
		if wrong := p.Verify(b, 17); wrong != 0 {
			t.Errorf("%d bytes: %d wrong right after Fill", n, wrong)
		}
		if n >= 8 && p.Verify(b, 18) == 0 {
			t.Errorf("%d bytes of message 17 pass as message 18", n)
		}
		if n >= 8 && New(43).Verify(b, 17) == 0 {
			t.Errorf("%d bytes of seed 42 pass as seed 43", n)
		}
		if n > 0 {
			b[n-1] ^= 1
			if wrong := p.Verify(b, 17); wrong != 1 {
				t.Errorf("%d bytes: one flipped, %d found", n, wrong)
			}
		}
	}
}

// Verify finds packets at the wrong offset, as a broken transport would put them.
func TestPatternFindsSwappedPackets(t *testing.T) {
	p := New(1)
	for _, pkt := range []int{1024, 4096, 8192} {
		b, c := make([]byte, 1<<20), make([]byte, pkt)
		p.Fill(b, 5)
		x, y := b[3*pkt:4*pkt], b[7*pkt:8*pkt]
		copy(c, x)
		copy(x, y)
		copy(y, c)
		if wrong := p.Verify(b, 5); wrong < pkt {
			t.Errorf("packets of %d swapped: %d bytes found wrong", pkt, wrong)
		}
	}
}

func TestPatternAllocatesNothing(t *testing.T) {
	p := New(1)
	l := NewLedger(64)
	b := make([]byte, 64<<10)
	seq := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		p.Fill(b, seq)
		if p.Verify(b, seq) != 0 || !l.Take(seq) {
			t.Error("wrong")
		}
		seq++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLedger(t *testing.T) {
	l := NewLedger(128)
	for _, c := range []struct {
		seq  uint64
		want bool
	}{
		{0, true}, {0, false}, {2, true}, {2, false}, {1, true}, {1, false}, {3, true}, {4 + 128, false}, {130, true}, {4 + 127, true},
	} {
		if got := l.Take(c.seq); got != c.want {
			t.Errorf("Take(%d) = %v, want %v", c.seq, got, c.want)
		}
	}
	if got := l.Gaps(132); got != 126 {
		t.Errorf("Gaps(132) = %d, want 126", got)
	}
	if got := l.Gaps(4); got != 0 {
		t.Errorf("Gaps(4) = %d, want 0", got)
	}
}

func TestLedgerAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l, seen := NewLedger(64), map[uint64]bool{}
	next := uint64(0)
	for range 100_000 {
		s := next + uint64(rng.IntN(80))
		if rng.IntN(4) == 0 && next > 5 {
			s = next - uint64(rng.IntN(5))
		}
		want := !seen[s] && s < next+64
		if got := l.Take(s); got != want {
			t.Fatalf("Take(%d) with next %d = %v, want %v", s, next, got, want)
		}
		if want {
			seen[s] = true
		}
		for seen[next] {
			next++
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	p := New(1)
	buf := make([]byte, 1<<20)
	p.Fill(buf, 1)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if p.Verify(buf, 1) != 0 {
			b.Fatal("wrong")
		}
	}
}

// A Ledger lives with gaps of any length, and knows for each number of the newest 64 whether it came.
func TestLedgerPass(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	l, seen, top := NewLedger(64), map[uint64]bool{}, uint64(0)
	for range 200_000 {
		s := top + uint64(rng.IntN(4))
		switch rng.IntN(100) {
		case 0:
			s = top + uint64(rng.IntN(1000))
		case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
			s = top - min(top, uint64(rng.IntN(100)))
		}
		want := Fresh
		if seen[s] {
			want = Again
		}
		got := l.Pass(s)
		if old := s+64 < top; got != want && !(old && got == Late) {
			t.Fatalf("seed %d: Pass(%d) with top %d = %v, want %v", seed, s, top, got, want)
		}
		if got == Fresh {
			seen[s], top = true, max(top, s+1)
		}
	}
}
