package mp_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// pattern fills n bytes that depend on seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*31 + byte(i>>8) + seed
	}
	return b
}

func TestSendRecv(t *testing.T) {
	for _, n := range []int{0, 1, 8, 4096, 64 << 10, 1 << 20} {
		mptest.Run(t, 2, func(c *mp.Comm) {
			ctx := limit(t)
			want := pattern(n, 7)
			if c.Rank() == 0 {
				ok(t, c.Send(ctx, want, 1, 5))
				return
			}
			got := make([]byte, n+3)
			st, err := c.Recv(ctx, got, 0, 5)
			ok(t, err)
			if st != (mp.Status{Source: 0, Tag: 5, Len: n}) || !bytes.Equal(got[:n], want) {
				t.Errorf("%d bytes: status %+v, or other bytes", n, st)
			}
		})
	}
}

// Messages of one source and tag are received in the order of sending, whatever their length.
func TestOrder(t *testing.T) {
	lens := []int{8, 100_000, 0, 20_000, 1, 300_000, 64}
	mptest.Run(t, 3, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() != 0 {
			for i := range 50 {
				b := pattern(lens[i%len(lens)]+1, byte(c.Rank()))
				b[0] = byte(i)
				ok(t, c.Send(ctx, b, 0, 3))
			}
			return
		}
		var next [3]byte
		buf := make([]byte, 400_000)
		for range 100 {
			st, err := c.Recv(ctx, buf, mp.AnySource, mp.AnyTag)
			ok(t, err)
			if buf[0] != next[st.Source] || st.Len != lens[int(buf[0])%len(lens)]+1 {
				t.Errorf("of rank %d: message %d of %d bytes, want number %d", st.Source, buf[0], st.Len, next[st.Source])
			}
			next[st.Source]++
		}
	})
}

func TestSelf(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		for _, n := range []int{0, 10, 1 << 20} {
			out, in := pattern(n, 1), make([]byte, n)
			q, err := c.Irecv(in, c.Rank(), 9)
			ok(t, err)
			ok(t, c.Send(ctx, out, c.Rank(), 9))
			st, err := q.Wait(ctx)
			ok(t, err)
			if st.Len != n || st.Source != c.Rank() || !bytes.Equal(in, out) {
				t.Errorf("to self: %+v", st)
			}
		}
	})
}

func TestTruncated(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			ok(t, c.Send(ctx, pattern(100, 0), 1, 1))
			return
		}
		got := make([]byte, 40)
		st, err := c.Recv(ctx, got, 0, 1)
		var cut *mp.ErrTruncated
		if !errors.As(err, &cut) || *cut != (mp.ErrTruncated{Len: 100, Room: 40}) {
			t.Errorf("error %v", err)
		}
		if st != (mp.Status{Source: 0, Tag: 1, Len: 100}) || !bytes.Equal(got, pattern(100, 0)[:40]) {
			t.Errorf("status %+v, or other bytes", st)
		}
	})
}

// Ssend ends after its receive was posted, Send before.
func TestSsend(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			q, err := c.Issend(pattern(10, 0), 1, 1)
			ok(t, err)
			ok(t, c.Send(ctx, nil, 1, 2)) // behind it
			_, err = c.Recv(ctx, nil, 1, 3)
			ok(t, err)
			if _, done, err := q.Test(); done {
				t.Errorf("done before its receive: %v", err)
				return
			}
			ok(t, c.Send(ctx, nil, 1, 4))
			_, err = q.Wait(ctx)
			ok(t, err)
			return
		}
		_, err := c.Recv(ctx, nil, 0, 2)
		ok(t, err)
		ok(t, c.Send(ctx, nil, 0, 3))
		_, err = c.Recv(ctx, nil, 0, 4)
		ok(t, err)
		_, err = c.Recv(ctx, make([]byte, 10), 0, 1)
		ok(t, err)
	})
}

func TestSendrecvInACircle(t *testing.T) {
	mptest.Run(t, 5, func(c *mp.Comm) {
		ctx := limit(t)
		right, left := (c.Rank()+1)%5, (c.Rank()+4)%5
		for _, n := range []int{1, 200_000} {
			in := make([]byte, n)
			st, err := c.Sendrecv(ctx, pattern(n, byte(c.Rank())), right, 1, in, left, 1)
			ok(t, err)
			if st.Source != left || !bytes.Equal(in, pattern(n, byte(left))) {
				t.Errorf("status %+v, or other bytes", st)
			}
		}
	})
}

func TestProbe(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			ok(t, c.Send(ctx, pattern(30, 1), 1, 6))
			ok(t, c.Send(ctx, pattern(31, 2), 1, 6))
			return
		}
		if _, found, err := c.Iprobe(0, 5); found || err != nil {
			t.Errorf("found a message of a tag that nobody sends: %v", err)
		}
		st, err := c.Probe(ctx, mp.AnySource, mp.AnyTag)
		ok(t, err)
		if st != (mp.Status{Source: 0, Tag: 6, Len: 30}) {
			t.Errorf("probe: %+v", st)
		}
		m, err := c.Mprobe(ctx, 0, 6)
		ok(t, err)
		if err != nil {
			return
		}
		// The matched one is out of the way of others.
		second := make([]byte, 40)
		st, err = c.Recv(ctx, second, 0, 6)
		ok(t, err)
		if st.Len != 31 || !bytes.Equal(second[:31], pattern(31, 2)) {
			t.Errorf("received the matched message: %+v", st)
		}
		first := make([]byte, m.Status().Len)
		_, err = m.Mrecv(ctx, first)
		ok(t, err)
		if !bytes.Equal(first, pattern(30, 1)) {
			t.Error("Mrecv got other bytes")
		}
		if _, err = m.Mrecv(ctx, first); !errors.Is(err, mp.ErrEnded) {
			t.Errorf("a second Mrecv: %v", err)
		}
	})
}

func TestCancelReceive(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 1 {
			ok(t, c.Send(ctx, pattern(5, 1), 0, 2))
			return
		}
		q, err := c.Irecv(make([]byte, 5), 1, 1)
		ok(t, err)
		ok(t, q.Cancel())
		if _, err := q.Wait(ctx); !errors.Is(err, mp.ErrCancelled) {
			t.Errorf("a cancelled receive: %v", err)
		}
		if _, err := q.Wait(ctx); !errors.Is(err, mp.ErrEnded) {
			t.Errorf("its second Wait: %v", err)
		}
		got := make([]byte, 5)
		_, err = c.Recv(ctx, got, 1, 2)
		ok(t, err)
	})
}

// A wait that its context ends gives the buffer back, and the communicator goes on.
func TestContextEndsAWait(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			buf := make([]byte, 64)
			if _, err := c.Recv(short, buf, 1, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("receive of what never comes: %v", err)
			}
			if err := c.Ssend(short, buf, 1, 2); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Ssend that nobody receives: %v", err)
			}
			ok(t, c.Send(ctx, nil, 1, 3))
			_, err := c.Recv(ctx, buf, 1, 1)
			ok(t, err)
			if !bytes.Equal(buf, pattern(64, 1)) {
				t.Error("other bytes")
			}
			return
		}
		_, err := c.Recv(ctx, nil, 0, 3)
		ok(t, err)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if st, err := c.Recv(short, make([]byte, 64), 0, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the Ssend that was taken back was received: %+v, %v", st, err)
		}
		ok(t, c.Send(ctx, pattern(64, 1), 0, 1))
	})
}

func TestWaitanyAndWaitall(t *testing.T) {
	mptest.Run(t, 4, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() > 0 {
			ok(t, c.Send(ctx, pattern(c.Rank(), 0), 0, c.Rank()))
			ok(t, c.Send(ctx, pattern(c.Rank()+10, 0), 0, c.Rank()))
			return
		}
		qs := make([]mp.Request, 3)
		for i := range qs {
			var err error
			qs[i], err = c.Irecv(make([]byte, 20), i+1, i+1)
			ok(t, err)
		}
		seen := map[int]bool{}
		for range qs {
			i, st, err := mp.Waitany(ctx, qs)
			ok(t, err)
			if i < 0 || seen[i] || st.Source != i+1 || st.Len != i+1 {
				t.Errorf("Waitany: %d, %+v", i, st)
			}
			seen[i] = true
		}
		if i, _, err := mp.Waitany(ctx, qs); i != -1 || !errors.Is(err, mp.ErrEnded) {
			t.Errorf("Waitany of none: %d, %v", i, err)
		}
		for i := range qs {
			var err error
			qs[i], err = c.Irecv(make([]byte, 20), i+1, i+1)
			ok(t, err)
		}
		st := make([]mp.Status, 3)
		ok(t, mp.Waitall(ctx, qs, st))
		for i := range st {
			if st[i].Len != i+11 {
				t.Errorf("Waitall: %+v", st[i])
			}
		}
	})
}

func TestBadArguments(t *testing.T) {
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		_, anyTag := c.Irecv(nil, 0, -2)
		_, rank := c.Irecv(nil, 2, 0)
		_, probe := c.Probe(ctx, -5, 0)
		for i, err := range []error{
			c.Send(ctx, nil, 2, 0), c.Send(ctx, nil, -1, 0), c.Send(ctx, nil, 0, -1), c.Send(ctx, nil, 0, mp.MaxTag+1), anyTag, rank, probe,
		} {
			if !errors.As(err, new(*mp.ErrArg)) {
				t.Errorf("case %d: %v", i, err)
			}
		}
	})
}

func TestAfterClose(t *testing.T) {
	worlds := mptest.Worlds(t, 2, mp.Config{})
	ctx := limit(t)
	q, err := worlds[0].World().Irecv(make([]byte, 1), 1, 1)
	ok(t, err)
	ok(t, worlds[0].Close(ctx))
	c := worlds[0].World()
	_, recv := q.Wait(ctx)
	_, probe := c.Probe(ctx, 1, 1)
	for i, err := range []error{recv, probe, c.Send(ctx, nil, 1, 1), c.Barrier(ctx), worlds[0].Close(ctx)} {
		if !errors.Is(err, mp.ErrClosed) {
			t.Errorf("case %d: %v", i, err)
		}
	}
	ok(t, worlds[1].Close(ctx))
}

// Many goroutines share one communicator: who waits drives for all.
func TestManyGoroutines(t *testing.T) {
	const pairs, rounds = 16, 50
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		done := make(chan error, pairs)
		for g := range pairs {
			go func() {
				buf := make([]byte, 64)
				for i := range rounds {
					if c.Rank() == 0 {
						if err := c.Send(ctx, pattern(64, byte(i)), 1, g); err != nil {
							done <- err
							return
						}
					}
					if _, err := c.Recv(ctx, buf, 1-c.Rank(), g); err != nil {
						done <- err
						return
					}
					if !bytes.Equal(buf, pattern(64, byte(i))) {
						done <- errors.New("other bytes")
						return
					}
					if c.Rank() == 1 {
						if err := c.Send(ctx, buf, 0, g); err != nil {
							done <- err
							return
						}
					}
				}
				done <- nil
			}()
		}
		for range pairs {
			ok(t, <-done)
		}
	})
}

func TestBarrier(t *testing.T) {
	for n := 1; n <= 9; n++ {
		mptest.Run(t, n, func(c *mp.Comm) {
			ctx := limit(t)
			for range 20 {
				ok(t, c.Barrier(ctx))
			}
		})
	}
}

// A context that is cancelled wakes the wait at once, not when the driver looks next.
func TestContextWakesAtOnce(t *testing.T) {
	mptest.Run(t, 1, func(c *mp.Comm) {
		late := 0
		for range 5 {
			ctx, cancel := context.WithCancel(context.Background())
			q, err := c.Irecv(nil, 0, 1)
			ok(t, err)
			time.AfterFunc(20*time.Millisecond, cancel)
			begun := time.Now()
			if _, err := q.Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("wait: %v", err)
			}
			if time.Since(begun) > 150*time.Millisecond {
				late++
			}
		}
		if late > 3 { // of five, on a machine that is busy with others
			t.Errorf("%d waits of five were late", late)
		}
	})
}
