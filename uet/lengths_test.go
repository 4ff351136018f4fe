package uet

import (
	"bytes"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestRendezvousMin(t *testing.T) {
	// Tuning.RendezvousMin is the least length of a message that is announced; 0 means that none is.
	t.Parallel()
	for _, c := range []struct {
		least, n int
		lent     uint64
	}{{0, 100_000, 0}, {10_000, 9_999, 0}, {10_000, 10_000, 1}, {10_000, 100_000, 1}} {
		r := newRig(t, &Info{Config: Config{Tuning: Tuning{RendezvousMin: c.least}}})
		a, b, toB, _ := r.pair()
		buf := make([]byte, c.n)
		ok(t, a.TSend(pattern(c.n, 1), toB, 1, nil))
		ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
		if n := a.Stats().Lent; n != c.lent || !bytes.Equal(buf, pattern(c.n, 1)) {
			t.Errorf("RendezvousMin %d, %d bytes: %d were announced", c.least, c.n, n)
		}
	}
}

func TestDeferrableMin(t *testing.T) {
	// Tuning.DeferrableMin is the least length of a message that leaves its header where there is no room
	// for it. Shorter ones are refused and tried again, and so are all if it is negative. All arrive.
	t.Parallel()
	for _, c := range []struct {
		least, n int
		deferred bool
	}{{0, 16<<10 - 1, false}, {0, 16 << 10, true}, {6000, 5999, false}, {6000, 6000, true}, {-1, 16 << 10, false}} {
		r := newRig(t, &Info{Config: Config{Tuning: Tuning{DeferrableMin: c.least, UnexpectedBytes: 20_000, PartialBytes: 20_000, UnexpectedShare: 1}}})
		a, b, toB, _ := r.pair()
		const messages = 5
		for i := range uint64(messages) {
			ok(t, a.TSend(pattern(c.n, i), toB, i, nil))
		}
		full := func() bool {
			s := b.Stats()
			if c.deferred {
				return s.Deferred > 0
			}
			return s.Refused > 0
		}
		for end := time.Now().Add(patience); !full(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("DeferrableMin %d, %d bytes: none is deferred, or none refused", c.least, c.n)
			}
		}
		for i := range uint64(messages) {
			buf := make([]byte, c.n)
			ok(t, b.TRecv(buf, fi.AddrUnspec, i, 0, nil))
			wait(t, b.rx, a)
			if !bytes.Equal(buf, pattern(c.n, i)) {
				t.Errorf("message %d has other bytes", i)
			}
		}
		for range messages {
			wait(t, a.tx, b)
		}
		if n := b.Stats().Deferred; (n > 0) != c.deferred {
			t.Errorf("DeferrableMin %d, %d bytes: %d were deferred", c.least, c.n, n)
		}
	}
}
