package mp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

var soak = flag.Duration("soak", 2*time.Second, "how long TestMixedTraffic runs")

// Sixteen ranks on few cores do collectives, rings of messages and requests at the same time,
// each in goroutines of its own, and all sums are right.
func TestMixedTraffic(t *testing.T) { mixed(t, 16) }

// mixed does that with an even number of ranks.
func mixed(t *testing.T, p int, opts ...mptest.Option) {
	end := time.Now().Add(*soak)
	mptest.RunWith(t, p, mp.Config{}, func(c *mp.Comm) {
		ctx, cancel := context.WithTimeout(context.Background(), *soak+50*time.Second)
		defer cancel()
		coll, err := c.Dup(ctx)
		ok(t, err)
		half, err := coll.Split(ctx, c.Rank()%2, c.Rank())
		ok(t, err)
		if t.Failed() {
			return
		}
		jobs := []func() error{
			func() error { return sums(ctx, coll, end) },
			func() error { return sums(ctx, half, end) },
			func() error { return rings(ctx, c, end) },
			func() error { return pairs(ctx, c, end) },
		}
		errs := make(chan error, len(jobs))
		for _, f := range jobs {
			go func() { errs <- f() }()
		}
		for range jobs {
			if err := <-errs; err != nil {
				t.Errorf("rank %d: %v", c.Rank(), err)
				cancel()
			}
		}
	}, opts...)
}

// more agrees whether to go on: all ranks do as many rounds.
func more(ctx context.Context, c *mp.Comm, end time.Time) (bool, error) {
	x := []int64{time.Until(end).Milliseconds()}
	err := mp.Bcast(ctx, c, x, 0)
	return x[0] > 0, err
}

func sums(ctx context.Context, c *mp.Comm, end time.Time) error {
	for i := 0; ; i++ {
		if on, err := more(ctx, c, end); !on || err != nil {
			return err
		}
		n := []int{1, 50, 5000, 40_000}[i%4]
		v := vec(c.Rank(), n)
		if err := mp.Allreduce(ctx, c, v, v, mp.Sum); err != nil {
			return err
		}
		if err := same("allreduce", v, sumOf(c.Size(), n)); err != nil {
			return err
		}
		in := concat(c.Size(), func(r int) []int64 { return block(c.Rank(), r, n/50) })
		out := make([]int64, len(in))
		if err := mp.Alltoall(ctx, c, in, out); err != nil {
			return err
		}
		if err := same("alltoall", out, concat(c.Size(), func(r int) []int64 { return block(r, c.Rank(), n/50) })); err != nil {
			return err
		}
	}
}

// rings passes a counter round, of changing length.
func rings(ctx context.Context, c *mp.Comm, end time.Time) error {
	const tag = 1000
	buf := make([]byte, 100_000)
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	for lap := uint64(0); ; lap++ {
		if c.Rank() == 0 {
			last := uint64(0)
			if time.Now().After(end) {
				last = 1
			}
			binary.LittleEndian.PutUint64(buf, lap<<1|last)
			if err := c.Send(ctx, buf[:8+lap*997%90_000], right, tag); err != nil {
				return err
			}
		}
		st, err := c.Recv(ctx, buf, left, tag)
		if err != nil {
			return err
		}
		got := binary.LittleEndian.Uint64(buf)
		if got>>1 != lap {
			return fmt.Errorf("lap %d has the number %d", lap, got>>1)
		}
		if c.Rank() != 0 {
			if err := c.Send(ctx, buf[:st.Len], right, tag); err != nil {
				return err
			}
		}
		if got&1 == 1 {
			return nil
		}
	}
}

// pairs exchanges requests with the opposite rank, some of which are received by any source.
func pairs(ctx context.Context, c *mp.Comm, end time.Time) error {
	const tag, n = 2000, 8
	rng := rand.New(rand.NewPCG(uint64(c.Rank()), 2))
	other := (c.Rank() + c.Size()/2) % c.Size()
	for round := byte(0); ; round++ {
		var qs []mp.Request
		last := time.Now().After(end)
		var bufs [n][]byte
		for i := range n {
			bufs[i] = make([]byte, 20_000)
			src := other
			if rng.IntN(2) == 0 {
				src = mp.AnySource
			}
			q, err := c.Irecv(bufs[i], src, tag+i)
			if err != nil {
				return err
			}
			qs = append(qs, q)
		}
		for i := range n {
			b := pattern(1+rng.IntN(20_000), round%200)
			if last {
				b = b[:1]
				b[0] = 255
			}
			q, err := c.Isend(b, other, tag+i)
			if err != nil {
				return err
			}
			qs = append(qs, q)
		}
		for left := len(qs); left > 0; left-- {
			if _, _, err := mp.Waitany(ctx, qs); err != nil {
				return err
			}
		}
		// Both stop when one says so: the other has sent as many rounds or one less.
		if theirs := bufs[0][0] == 255 && len(bufs[0]) > 0; theirs || last {
			if theirs && last {
				return nil
			}
			return finish(ctx, c, other, tag, theirs)
		}
	}
}

// finish lets the rank that did not know yet say that it stops, too.
func finish(ctx context.Context, c *mp.Comm, other, tag int, theirs bool) error {
	if theirs { // they wait for one more round of this rank
		for i := range 8 {
			if err := c.Send(ctx, []byte{255}, other, tag+i); err != nil {
				return err
			}
		}
		return nil
	}
	var first error
	for i := range 8 {
		if _, err := c.Recv(ctx, make([]byte, 20_000), other, tag+i); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return errors.Join(errors.New("the last round"), first)
	}
	return nil
}
