package mp_test

import (
	"context"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// Programs end without a barrier on a network that loses one packet in twenty: the last message
// is received, and both end in order.
func TestEndWithoutBarrierAtLoss(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 25
	}
	for i := range n {
		size := []int{1, 100, 5000, 200_000}[i%4]
		begun := time.Now()
		mptest.RunWith(t, 2, mp.Config{}, func(c *mp.Comm) { lastMessage(limit(t), t, c, size, i) }, mptest.Loss(0.05, uint64(i)))
		if t.Failed() {
			t.Fatalf("round %d, after %v", i, time.Since(begun))
		}
	}
}

// lastMessage is a program of two ranks that ends with a message of a size.
func lastMessage(ctx context.Context, t *testing.T, c *mp.Comm, size, round int) {
	want := pattern(size, byte(round))
	if c.Rank() == 0 {
		ok(t, c.Send(ctx, want, 1, 1))
		return
	}
	b := make([]byte, size)
	st, err := c.Recv(ctx, b, 0, 1)
	if ok(t, err); st.Len != size || string(b) != string(want) {
		t.Errorf("round %d: %d bytes of %d, or others", round, st.Len, size)
	}
}

// Collectives and rings of messages have the right sums at 1 % and at 5 % loss.
func TestMixedTrafficAtLoss(t *testing.T) {
	for name, share := range map[string]float64{"1 %": 0.01, "5 %": 0.05} {
		t.Run(name, func(t *testing.T) { mixed(t, 16, mptest.Loss(share, 1)) })
	}
}

// A collective of each kind, begun together, at 5 % loss.
func TestNonblockingAtLoss(t *testing.T) {
	mptest.RunWith(t, 4, mp.Config{}, func(c *mp.Comm) {
		var open []begun
		for k := mp.KindBarrier; k <= mp.KindExscan; k++ {
			if begin := beginnings[k]; begin != nil {
				b, err := begin(c, 300, 1)
				if err != nil {
					t.Errorf("%v: %v", k, err)
					return
				}
				open = append(open, b)
			}
		}
		for _, b := range open {
			ok(t, end(limit(t), b.q))
			ok(t, b.wrong())
		}
	}, mptest.Loss(0.05, 7))
}

// A rank whose last ACKs were lost does not hold up who closes after it, where no ICMP tells that
// it is gone.
func TestCloseAfterWhoLeft(t *testing.T) {
	worlds := mptest.Worlds(t, 2, mp.Config{}, mptest.Loss(0, 1))
	ctx := limit(t)
	ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(ctx) }))
	ok(t, worlds[1].Vanish())
	ok(t, worlds[0].World().Send(ctx, []byte("nobody is there"), 1, 1))
	worlds[0].HearBye(1)
	short, cancel := context.WithTimeout(ctx, 10*time.Second) // PeerTimeout is 40 s
	defer cancel()
	ok(t, worlds[0].Close(short))
}

// The relays lose what they are to lose: without the provider's repeats nothing would arrive.
func TestLossLoses(t *testing.T) {
	worlds := mptest.Worlds(t, 2, fast, mptest.Loss(1, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	ok(t, worlds[0].World().Send(ctx, []byte("x"), 1, 1))
	if _, err := worlds[1].World().Recv(ctx, make([]byte, 1), 0, 1); err == nil {
		t.Error("it arrived")
	}
	for _, w := range worlds {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_ = w.Close(ctx) // what was sent is not acknowledged
		cancel()
	}
}
