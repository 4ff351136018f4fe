package mp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

var (
	seed = flag.Uint64("seed", 0, "seed of the matching model; 0: by the clock")
	full = flag.Bool("full", false, "all ranks send 64 messages of 1 MiB to all, instead of 16")
)

// The model of matching: lists of posted receives and of unexpected messages in the order of
// arrival, searched from the front.
type model struct {
	posted     []*posted
	unexpected []sent
}

type sent struct {
	src, tag, n int
	serial      uint32
}

type posted struct {
	src, tag int
	buf      []byte
	q        mp.Request
	got      *sent
	taken    bool // cancelled
}

func (p *posted) accepts(m sent) bool {
	return (p.src == mp.AnySource || p.src == m.src) && (p.tag == mp.AnyTag || p.tag == m.tag)
}

func (m *model) arrive(s sent) {
	for i, p := range m.posted {
		if p.accepts(s) {
			p.got = &s
			m.posted = append(m.posted[:i:i], m.posted[i+1:]...)
			return
		}
	}
	m.unexpected = append(m.unexpected, s)
}

// find returns the index of the first unexpected message that p accepts, or -1.
func (m *model) find(p *posted) int {
	for i, s := range m.unexpected {
		if p.accepts(s) {
			return i
		}
	}
	return -1
}

func (m *model) take(i int) sent {
	s := m.unexpected[i]
	m.unexpected = append(m.unexpected[:i:i], m.unexpected[i+1:]...)
	return s
}

// message is the bytes of a message: its serial number, and a pattern.
func (s sent) message() []byte {
	b := pattern(s.n, byte(s.serial))
	binary.LittleEndian.PutUint32(b, s.serial)
	return b
}

func (s sent) check(b []byte, st mp.Status) error {
	if st != (mp.Status{Source: s.src, Tag: s.tag, Len: s.n}) || !bytes.Equal(b[:s.n], s.message()) {
		return fmt.Errorf("got %+v with serial %d, want %+v", st, binary.LittleEndian.Uint32(b), s)
	}
	return nil
}

// TestMatchingModel does random things at rank 0, while three others send one message at a time
// when told to, and holds each result against the model.
func TestMatchingModel(t *testing.T) {
	rounds := 600
	if testing.Short() {
		rounds = 100
	}
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	rng := rand.New(rand.NewPCG(s, 1))
	defer func() {
		if t.Failed() {
			t.Logf("repeat with -seed %d", s)
		}
	}()
	const senders, tags = 3, 3
	worlds := mptest.Worlds(t, senders+1, mp.Config{})
	defer closeAll(t, worlds)
	c, ctx := worlds[0].World(), limit(t)
	lens := []int{4, 5, 200, 5000, 40_000, 90_000}
	m := &model{}
	serial := uint32(0)
	var open []*posted
	fail := func(step int, what string, err error) {
		t.Fatalf("step %d: %s: %v", step, what, err)
	}
	pick := func() (int, int) {
		src, tag := rng.IntN(senders+1), rng.IntN(tags+1)
		if src == 0 {
			src = mp.AnySource
		}
		if tag == tags {
			tag = mp.AnyTag
		}
		return src, tag
	}
	receive := func(step int, p *posted) {
		var err error
		p.buf = make([]byte, 90_000)
		if p.q, err = c.Irecv(p.buf, p.src, p.tag); err != nil {
			fail(step, "Irecv", err)
		}
		if i := m.find(p); i >= 0 {
			got := m.take(i)
			p.got = &got
		} else {
			m.posted = append(m.posted, p)
		}
		open = append(open, p)
	}
	for step := range rounds {
		switch x := rng.IntN(10); {
		case x < 4: // a message arrives
			serial++
			msg := sent{src: 1 + rng.IntN(senders), tag: rng.IntN(tags), n: lens[rng.IntN(len(lens))], serial: serial}
			from := worlds[msg.src].World()
			if err := from.Send(ctx, msg.message(), 0, msg.tag); err != nil {
				fail(step, "Send", err)
			}
			if err := worlds[msg.src].Flush(ctx); err != nil { // it has arrived
				fail(step, "Flush", err)
			}
			m.arrive(msg)
		case x < 7: // a receive
			p := &posted{}
			p.src, p.tag = pick()
			receive(step, p)
		case x < 8: // a look
			p := &posted{}
			p.src, p.tag = pick()
			i := m.find(p)
			st, found, err := c.Iprobe(p.src, p.tag)
			if err != nil || found != (i >= 0) {
				fail(step, "Iprobe", fmt.Errorf("found %v, model %d: %v", found, i, err))
			}
			if s := m.unexpected; found && st != (mp.Status{Source: s[i].src, Tag: s[i].tag, Len: s[i].n}) {
				fail(step, "Iprobe", fmt.Errorf("%+v, model %+v", st, s[i]))
			}
			if !found || rng.IntN(2) == 0 {
				continue
			}
			msg, _, err := c.Improbe(p.src, p.tag)
			if err != nil || msg == nil {
				fail(step, "Improbe", fmt.Errorf("%v, %v", msg, err))
			}
			want, b := m.take(i), make([]byte, 90_000)
			st, err = msg.Mrecv(ctx, b)
			if err == nil {
				err = want.check(b, st)
			}
			if err != nil {
				fail(step, "Mrecv", err)
			}
		case x < 9 && len(m.posted) > 0: // a cancel
			i := rng.IntN(len(m.posted))
			p := m.posted[i]
			m.posted = append(m.posted[:i:i], m.posted[i+1:]...)
			p.taken = true
			if err := p.q.Cancel(); err != nil {
				fail(step, "Cancel", err)
			}
			if _, err := p.q.Wait(ctx); !errors.Is(err, mp.ErrCancelled) {
				fail(step, "Wait of a cancelled receive", err)
			}
		}
		for i := 0; i < len(open); i++ { // what has met is done, and nothing else
			p := open[i]
			if p.got == nil && !p.taken {
				if _, done, err := p.q.Test(); done {
					fail(step, "Test", fmt.Errorf("a receive that nothing met is done: %v", err))
				}
				continue
			}
			open = append(open[:i], open[i+1:]...)
			i--
			if p.taken {
				continue
			}
			st, err := p.q.Wait(ctx)
			if err == nil {
				err = p.got.check(p.buf, st)
			}
			if err != nil {
				fail(step, "Wait", err)
			}
		}
	}
}

// Programs that MPI calls correct do not stand still: messages are received in the reverse
// order of sending.
func TestReverseOrder(t *testing.T) {
	for _, k := range []struct{ n, size int }{{24, 1 << 20}, {8, 17 << 20}, {20_000, 8}} {
		if testing.Short() {
			k.size = min(k.size, 2<<20)
			k.n = min(k.n, 5000)
		}
		mptest.Run(t, 2, func(c *mp.Comm) {
			ctx := limit(t)
			if c.Rank() == 0 {
				qs := make([]mp.Request, k.n)
				b := pattern(k.size, 3)
				for i := range qs {
					var err error
					qs[i], err = c.Isend(b, 1, i)
					ok(t, err)
				}
				ok(t, mp.Waitall(ctx, qs, nil))
				return
			}
			b := make([]byte, k.size)
			for i := k.n - 1; i >= 0; i-- {
				st, err := c.Recv(ctx, b, 0, i)
				if err != nil || st.Len != k.size {
					t.Errorf("%d × %d: message %d: %+v, %v", k.n, k.size, i, st, err)
					return
				}
			}
			if !bytes.Equal(b, pattern(k.size, 3)) {
				t.Errorf("%d × %d: other bytes", k.n, k.size)
			}
		})
	}
}

// All ranks send to all and receive in random order.
func TestAllToAllInRandomOrder(t *testing.T) {
	n, size := 16, 1<<20
	if *full {
		n = 64
	}
	const p = 4
	mptest.Run(t, p, func(c *mp.Comm) {
		ctx := limit(t)
		out := pattern(size, byte(c.Rank()))
		var qs []mp.Request
		type from struct{ src, tag int }
		var order []from
		for tag := range n {
			for r := range p {
				q, err := c.Isend(out, r, tag)
				ok(t, err)
				qs, order = append(qs, q), append(order, from{r, tag})
			}
		}
		rng := rand.New(rand.NewPCG(uint64(c.Rank()), 5))
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		in := make([]byte, size)
		for _, f := range order {
			if _, err := c.Recv(ctx, in, f.src, f.tag); err != nil {
				t.Errorf("rank %d: %+v: %v", c.Rank(), f, err)
				return
			}
			if in[0] != pattern(1, byte(f.src))[0] || in[size-1] != pattern(size, byte(f.src))[size-1] {
				t.Errorf("rank %d: other bytes of %+v", c.Rank(), f)
			}
		}
		ok(t, mp.Waitall(ctx, qs, nil))
	})
}

// More receives than the provider holds wait in mp, in order.
func TestMoreReceivesThanTheProviderHolds(t *testing.T) {
	const n = 10_000
	mptest.Run(t, 2, func(c *mp.Comm) {
		ctx := limit(t)
		if c.Rank() == 0 {
			for i := range n {
				ok(t, c.Send(ctx, binary.LittleEndian.AppendUint32(nil, uint32(i)), 1, 1))
			}
			return
		}
		qs, bufs := make([]mp.Request, n), make([]byte, 4*n)
		for i := range qs {
			var err error
			qs[i], err = c.Irecv(bufs[4*i:4*i+4], 0, 1)
			ok(t, err)
		}
		ok(t, qs[n-1].Cancel()) // one of those that wait here, or its message was faster
		_, err := qs[n-1].Wait(ctx)
		if err != nil && !errors.Is(err, mp.ErrCancelled) {
			t.Error(err)
		}
		ok(t, mp.Waitall(ctx, qs[:n-1], nil))
		for i := range n - 1 {
			if got := binary.LittleEndian.Uint32(bufs[4*i:]); got != uint32(i) {
				t.Errorf("receive %d got message %d", i, got)
				return
			}
		}
	})
}

// A send does not overtake those that wait in mp, also when the provider has room again.
func TestSendsWaitInOrder(t *testing.T) {
	const n = mp.MaxSends + 10
	worlds := mptest.Worlds(t, 2, mp.Config{})
	ctx := limit(t)
	from, to := worlds[0].World(), worlds[1].World()
	var qs []mp.Request
	send := func(i int) {
		q, err := from.Issend(binary.LittleEndian.AppendUint32(nil, uint32(i)), 1, 1)
		ok(t, err)
		qs = append(qs, q)
	}
	recv := func(i int) {
		b := make([]byte, 4)
		_, err := to.Recv(ctx, b, 0, 1)
		if ok(t, err); binary.LittleEndian.Uint32(b) != uint32(i) {
			t.Fatalf("receive %d got message %d", i, binary.LittleEndian.Uint32(b))
		}
	}
	for i := range n {
		send(i)
	}
	for i := range 500 {
		recv(i)
	}
	for worlds[0].Room() <= 0 { // by itself: rank 0 is in no call
		if ctx.Err() != nil {
			t.Fatal("the provider has no room")
		}
		runtime.Gosched()
	}
	send(n)
	done := make(chan error, 1)
	go func() { done <- mp.Waitall(ctx, qs, nil) }()
	for i := 500; i <= n; i++ {
		recv(i)
	}
	ok(t, <-done)
	closeAll(t, worlds)
}
