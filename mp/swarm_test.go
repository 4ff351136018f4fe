package mp_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

var (
	programs     = flag.Int("programs", 0, "how many programs TestSwarm plays; 0: 300, with -short and -race fewer")
	firstProgram = flag.Uint64("program", 1, "the first seed of TestSwarm")
)

// A swarm of programs, each drawn from a seed: 2 to 16 ranks on a network that loses, repeats and
// reorders, and in every second program carries less in a packet than the ranks believe; rounds of messages by all calls that there are and of collectives by all algorithms, on the world
// and on parts of it, and an end without a barrier. Every byte is checked, and order: of messages
// of one source with one tag the receives that were posted first get the first.
func TestSwarm(t *testing.T) {
	n := *programs
	switch {
	case n > 0:
	case testing.Short():
		n = 20
	case raceEnabled:
		n = 40
	default:
		n = 300
	}
	for seed := *firstProgram; seed < *firstProgram+uint64(n); seed++ {
		synctest.Test(t, func(t *testing.T) { play(t, seed) })
		if t.Failed() {
			t.Fatalf("go test ./mp -run TestSwarm -program %d -programs 1", seed)
		}
	}
}

// play plays the program of a seed.
func play(t *testing.T, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 0))
	p := 2 + draw.IntN(15)
	net := mptest.Net{Seed: seed, Delay: []time.Duration{time.Microsecond, 20 * time.Microsecond, time.Millisecond}[draw.IntN(3)]}
	for _, share := range []*float64{&net.Loss, &net.Duplicate, &net.Reorder} {
		*share = []float64{0, 0.01, 0.05}[draw.IntN(3)]
	}
	if hole := rand.New(rand.NewPCG(seed, 1<<32)); hole.IntN(2) == 0 { // not drawn by draw, which old seeds have
		net.MTU = []int{1500, 2500, 5000}[hole.IntN(3)]
		net.Refused = hole.IntN(3) == 0
		net.HoleAfter = []time.Duration{0, 0, time.Millisecond, 30 * time.Millisecond}[hole.IntN(4)]
	}
	rounds := 1 + draw.IntN(6)
	var algorithm atomic.Uint32
	cfg := mp.Config{Choose: func(c mp.Call) mp.Algorithm {
		if a := mp.Algorithm(algorithm.Load()); a != 0 {
			return a
		}
		return mp.Choice(c)
	}}
	plan := make([]round, rounds)
	for i := range plan {
		plan[i] = newRound(draw, p, i)
	}
	mptest.RunWith(t, p, cfg, func(c *mp.Comm) {
		r := &player{Comm: c, draw: rand.New(rand.NewPCG(seed, 1+uint64(c.Rank())))}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		for i := range plan {
			if err := r.round(ctx, &plan[i]); err != nil {
				t.Errorf("rank %d of %d, round %d of %d: %v", c.Rank(), p, i, rounds, err)
				return
			}
		}
	}, mptest.Memory(net))
}

// A round is what all ranks do together.
type round struct {
	letters []letter
	anyTag  bool        // receives name no tag
	kind    *collective // nil: none
	count   int
	root    int
	split   int // that many parts; 0: the world
}

// A letter is a message. Those of one pair with one tag are received in the order of the list.
type letter struct {
	from, to, tag, size int
	fill                byte
	how                 int // of sending
}

// tags is how many tags a round has. Others of later rounds may be there already.
const tags = 3

func newRound(draw *rand.Rand, p, number int) (r round) {
	if draw.IntN(3) > 0 {
		r.anyTag = draw.IntN(4) == 0
		for range draw.IntN(6 * p) {
			l := letter{from: draw.IntN(p), to: draw.IntN(p), tag: tags*number + draw.IntN(tags), fill: byte(draw.IntN(256)), how: draw.IntN(4)}
			l.size = []int{0, 1, 8, 1000, 5000, 70_000, 300_000}[min(draw.IntN(8), draw.IntN(7))]
			if r.anyTag {
				l.tag = tags * number
			}
			r.letters = append(r.letters, l)
		}
	}
	if len(r.letters) == 0 || draw.IntN(2) == 0 {
		r.kind = &collectives[draw.IntN(len(collectives))]
		r.count = []int{0, 1, 7, 300, 2000}[draw.IntN(5)]
		r.root = draw.IntN(p)
		r.split = draw.IntN(4)
	}
	return r
}

// A player is a rank.
type player struct {
	*mp.Comm
	draw *rand.Rand
}

func (p *player) round(ctx context.Context, r *round) error {
	if err := p.letters(ctx, r); err != nil {
		return err
	}
	if r.anyTag { // its receives would take messages of the next round
		if err := p.Barrier(ctx); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	if r.kind == nil {
		return nil
	}
	c := p.Comm
	if r.split > 1 {
		part, err := c.Split(ctx, c.Rank()%r.split, c.Rank())
		if err != nil {
			return fmt.Errorf("split: %w", err)
		}
		defer part.Free()
		c = part
	}
	if err := r.kind.do(ctx, c, r.count, r.root%c.Size()); err != nil {
		return fmt.Errorf("%v of %d: %w", r.kind.kind, r.count, err)
	}
	return nil
}

// A waiting receive.
type await struct {
	q    mp.Request
	buf  []byte
	from int // or AnySource
	tag  int
}

// letters sends and receives the messages of a round in an order of this rank's own.
func (p *player) letters(ctx context.Context, r *round) error {
	me := p.Rank()
	var in, out []letter
	for _, l := range r.letters {
		if l.to == me {
			in = append(in, l)
		}
		if l.from == me {
			out = append(out, l)
		}
	}
	// Receives from any source take a tag as a whole: one from a source would compete with them.
	var wild [tags]bool
	for i := range wild {
		wild[i] = p.draw.IntN(3) == 0
	}
	var sends []mp.Request
	post := func() error {
		for _, l := range out {
			q, err := p.send(ctx, l)
			if err != nil {
				return fmt.Errorf("send to %d: %w", l.to, err)
			}
			sends = append(sends, q)
		}
		return nil
	}
	early := p.draw.IntN(2) == 0
	if early {
		if err := post(); err != nil {
			return err
		}
	}
	if p.draw.IntN(4) == 0 { // what is there is unexpected
		time.Sleep(time.Duration(p.draw.IntN(1000)) * time.Microsecond)
	}
	waits := make([]await, len(in))
	for i, l := range in {
		w := &waits[i]
		w.buf, w.from, w.tag = make([]byte, 300_001), l.from, l.tag
		from, tag := l.from, l.tag
		if wild[l.tag%tags] {
			w.from, from = mp.AnySource, mp.AnySource
		}
		if r.anyTag {
			tag = mp.AnyTag
		}
		var err error
		if w.q, err = p.Irecv(w.buf, from, tag); err != nil {
			return fmt.Errorf("receive: %w", err)
		}
	}
	// A receive that nothing can match is taken back.
	vain, err := p.Irecv(nil, mp.AnySource, 7777)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if !early {
		if err := post(); err != nil {
			return err
		}
	}
	if err := p.collect(ctx, in, waits); err != nil {
		return err
	}
	for i, q := range sends {
		if _, err := q.Wait(ctx); err != nil && !errors.Is(err, mp.ErrEnded) {
			return fmt.Errorf("send %d: %w", i, err)
		}
	}
	if err := vain.Cancel(); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if _, err := vain.Wait(ctx); err != mp.ErrCancelled {
		return fmt.Errorf("a cancelled receive: %w", err)
	}
	return nil
}

// send begins one message. A call that waits would wait for ranks that wait for this one, unless
// the message is short enough to be copied.
func (p *player) send(ctx context.Context, l letter) (mp.Request, error) {
	b := pattern(l.size, l.fill)
	switch {
	case l.how == 0 && l.size <= 5000:
		return mp.Request{}, p.Send(ctx, b, l.to, l.tag)
	case l.how == 1:
		return p.Issend(b, l.to, l.tag)
	}
	return p.Isend(b, l.to, l.tag)
}

// collect waits for the receives in an order of its own and checks what they got.
func (p *player) collect(ctx context.Context, in []letter, waits []await) error {
	stats := make([]mp.Status, len(waits))
	switch p.draw.IntN(3) {
	case 0:
		qs := make([]mp.Request, len(waits))
		for i := range waits {
			qs[i] = waits[i].q
		}
		if err := mp.Waitall(ctx, qs, stats); err != nil {
			return fmt.Errorf("waitall: %w", err)
		}
	case 1:
		qs := make([]mp.Request, len(waits))
		for i := range waits {
			qs[i] = waits[i].q
		}
		for range qs {
			i, st, err := mp.Waitany(ctx, qs)
			if err != nil {
				return fmt.Errorf("waitany: %w", err)
			}
			stats[i] = st
		}
	default:
		for _, i := range p.draw.Perm(len(waits)) {
			st, err := waits[i].q.Wait(ctx)
			if err != nil {
				return fmt.Errorf("wait: %w", err)
			}
			stats[i] = st
		}
	}
	// Of each source and tag, the receives in the order of posting have the messages in theirs.
	taken := make([]bool, len(in))
	for i, st := range stats {
		w := &waits[i]
		if w.from != mp.AnySource && st.Source != w.from || st.Tag != w.tag {
			return fmt.Errorf("receive %d of rank %d, tag %d got %+v", i, w.from, w.tag, st)
		}
		found := false
		for k, l := range in {
			if taken[k] || l.from != st.Source || l.tag != st.Tag {
				continue
			}
			taken[k], found = true, true
			if want := pattern(l.size, l.fill); st.Len != l.size || !bytes.Equal(w.buf[:st.Len], want) {
				return fmt.Errorf("receive %d of rank %d, tag %d got %d bytes, want message %d of %d bytes", i, w.from, w.tag, st.Len, k, l.size)
			}
			break
		}
		if !found {
			return fmt.Errorf("receive %d got %+v, of which there is none left", i, st)
		}
	}
	return nil
}
