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

// Messages that are longer than the provider takes arrive whole, also when short ones of the
// same tag are around them, when they are received out of order, and when they are truncated.
func TestCutMessages(t *testing.T) {
	worlds := mptest.Worlds(t, 2, mp.Config{})
	for _, w := range worlds {
		w.CutAt(1000)
	}
	lens := []int{999, 1000, 1001, 2000, 70_001, 3, 5000}
	ok(t, all(worlds, func(c *mp.Comm) error {
		ctx := limit(t)
		if c.Rank() == 0 {
			for i, n := range lens {
				if err := c.Send(ctx, pattern(n, byte(i)), 1, 1); err != nil {
					return err
				}
			}
			if err := c.Ssend(ctx, pattern(3000, 9), 1, 2); err != nil {
				return err
			}
			return c.Send(ctx, pattern(3000, 9), 1, 4)
		}
		b := make([]byte, 80_000)
		st, err := c.Probe(ctx, 0, 2) // all before it has come
		if err != nil || st.Len != 3000 {
			t.Errorf("probe: %+v, %v", st, err)
		}
		if st, err = c.Recv(ctx, b, 0, 2); err != nil || st.Len != 3000 || !bytes.Equal(b[:3000], pattern(3000, 9)) {
			t.Errorf("the last: %+v, %v", st, err)
		}
		for i, n := range lens {
			st, err := c.Recv(ctx, b, mp.AnySource, 1)
			if err != nil || st != (mp.Status{Source: 0, Tag: 1, Len: n}) || !bytes.Equal(b[:n], pattern(n, byte(i))) {
				t.Errorf("message %d: %+v, %v", i, st, err)
			}
		}
		st, err = c.Recv(ctx, b[:1500], 0, 4)
		var cut *mp.ErrTruncated
		if !errors.As(err, &cut) || cut.Len != 3000 || cut.Room != 1500 || st.Len != 3000 || !bytes.Equal(b[:1500], pattern(3000, 9)[:1500]) {
			t.Errorf("truncated: %+v, %v", st, err)
		}
		return nil
	}))
	// To a rank that does not receive: the wait ends, and what follows is received.
	ok(t, all(worlds, func(c *mp.Comm) error {
		ctx := limit(t)
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if err := c.Ssend(short, pattern(5000, 1), 1, 5); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Ssend: %v", err)
			}
			return errors.Join(c.Send(ctx, pattern(5000, 2), 1, 5), c.Send(ctx, nil, 1, 6))
		}
		b := make([]byte, 5000)
		if _, err := c.Recv(ctx, nil, 0, 6); err != nil {
			return err
		}
		_, err := c.Recv(ctx, b, 0, 5)
		if !bytes.Equal(b, pattern(5000, 2)) {
			t.Error("other bytes")
		}
		return err
	}))
	// Collectives.
	for _, k := range collectives {
		for root := range 2 {
			if err := all(worlds, func(c *mp.Comm) error { return k.do(limit(t), c, 700, root) }); err != nil {
				t.Errorf("%v: %v", k.kind, err)
			}
		}
	}
	closeAll(t, worlds)
}
