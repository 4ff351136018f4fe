package ranks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/mp"
)

// measure runs a test over local ranks and returns what rank 0 is told.
func measure(t *testing.T, n int, s Spec) []*record.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	var runs []*record.Run
	a := new(Algorithms)
	err := Local(ctx, n, mp.Config{Choose: a.Choose}, func(ctx context.Context, w *mp.World) error {
		s := s
		if w.Rank() > 0 {
			s.Seed += uint64(w.Rank()) // as processes draw it
		}
		return Run(ctx, w, &s, a, Watch{}, func(r *record.Run) {
			mu.Lock()
			defer mu.Unlock()
			if w.Rank() != 0 {
				t.Errorf("rank %d was told", w.Rank())
			}
			runs = append(runs, r)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// Each collective over each number of ranks, type and reduction verifies.
func TestCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for i, op := range Ops(Coll) {
			s := Spec{Test: Coll, Op: op, Sizes: []int64{8, 5000}, Iters: 3, Warmup: 1, Type: Types[(i+n)%len(Types)], Check: op != Barrier && n%2 == 0, Root: n / 2, Seed: 7}
			if s.Reduces() {
				s.Reduction = Reductions[n%len(Reductions)]
			}
			if !s.Rooted() {
				s.Root = 0
			}
			t.Run(fmt.Sprintf("%s of %s over %d", op, s.Type, n), func(t *testing.T) {
				runs := measure(t, n, s)
				if op == Barrier {
					if len(runs) != 1 || runs[0].GoodputBPS != nil || runs[0].DataCheck != nil || runs[0].Coll.BusBPS != nil {
						t.Fatalf("%+v", runs)
					}
					return
				}
				if len(runs) != 2 {
					t.Fatalf("%d runs", len(runs))
				}
				for _, r := range runs {
					gets := int64(n)
					if op == Reduce || op == Gather {
						gets = 1
					}
					rounds := int64(2)
					if s.Check {
						rounds += 3
					}
					if c := r.DataCheck; c.OK != gets*rounds || c.Wrong != 0 || r.Coll.Wrong != 0 {
						t.Errorf("size %d: %+v, %d elements wrong, want %d ok", r.Size, c, r.Coll.Wrong, gets*rounds)
					}
					if r.Coll.TimeNS < r.Coll.LeastNS || r.Coll.TimeNS <= 0 || r.Latency.P50 <= 0 {
						t.Errorf("size %d: %+v", r.Size, r.Coll)
					}
				}
			})
		}
	}
}

// Every reduction of every type is what it says.
func TestReductions(t *testing.T) {
	for _, typ := range Types {
		for _, red := range Reductions {
			for _, op := range []string{Allreduce, ReduceScatter, Scan} {
				r := measure(t, 3, Spec{Test: Coll, Op: op, Sizes: []int64{3000}, Iters: 1, Type: typ, Reduction: red, Seed: 9})[0]
				if r.DataCheck.OK != 6 || r.DataCheck.Wrong != 0 {
					t.Errorf("%s of %s by %s: %+v", op, typ, red, r.DataCheck)
				}
			}
		}
	}
}

// Wrong bytes are seen, counted and told: an operation that does less than it should leaves what
// was there before.
func TestWrongIsWrong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := Spec{Test: Coll, Op: Allreduce, Sizes: []int64{4000}, Iters: 1, Type: "float32", Reduction: "sum", Seed: 3}
	var got share
	err := Local(ctx, 2, mp.Config{}, func(ctx context.Context, w *mp.World) error {
		b := &bench{Spec: &s, w: w, c: w.World(), algorithms: new(Algorithms), round: 1}
		o := b.collective(Shape{4000, 1000})
		run := o.run
		o.run = func(ctx context.Context) error { // every other time nothing happens
			if b.round%2 == 0 {
				return nil
			}
			return run(ctx)
		}
		err := b.verified(ctx, o, 4, false)
		if w.Rank() == 1 {
			got = b.mine
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Check.OK != 2 || got.Check.Wrong != 2 || got.Wrong != 2000 || got.Check.WrongBytes != 8000 {
		t.Errorf("%+v, %d elements", got.Check, got.Wrong)
	}
}

// A value that is in the wrong place is wrong, also between blocks, ranks and rounds.
func TestPatternTellsPlacesApart(t *testing.T) {
	for _, op := range Ops(Coll)[:9] {
		s := &Spec{Op: op, Type: "uint64"}
		p := pattern[uint64]{spec: s, count: 64, ranks: 4, me: 1}
		q := p
		q.me = 2
		n := int(elements(op, 64, 4, 1, 0, false))
		if op == Reduce || op == Gather {
			n = 64
		}
		same, shifted, others := 0, 0, 0
		for i := range n {
			if p.want(1, i) == p.want(2, i) {
				same++
			}
			if p.want(1, i) == p.want(1, (i+1)%n) {
				shifted++
			}
			if p.want(1, i) == q.want(1, i) {
				others++
			}
		}
		if most := n / 4; same > most || shifted > most {
			t.Errorf("%s: %d of %d are as in another round, %d as their neighbour", op, same, n, shifted)
		}
		if own := slices.Contains([]string{ReduceScatter, Scatter, Alltoall, Scan}, op); own && others > n/2 {
			t.Errorf("%s: %d of %d are as at another rank", op, others, n)
		}
	}
}

// Messages between pairs verify, and are counted as the OSU benchmarks count them.
func TestPairs(t *testing.T) {
	for _, n := range []int{2, 4} {
		for _, op := range Ops(P2P) {
			for _, check := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s of %d, check %v", op, n, check), func(t *testing.T) {
					const iters, window = 5, 8
					runs := measure(t, n, Spec{Test: P2P, Op: op, Sizes: []int64{0, 8, 100000}, Iters: iters, Warmup: 1, Window: window, Check: check, Seed: 5})
					if len(runs) != 3 {
						t.Fatalf("%d runs", len(runs))
					}
					rounds, pairs := int64(2), int64(n/2)
					if check {
						rounds += iters
					}
					per, msgs := int64(window), int64(iters*window)*pairs
					switch op {
					case Latency:
						per, msgs = 2, iters*pairs // there and back
					case BiBW:
						per, msgs = 2*window, 2*msgs
					}
					for _, r := range runs {
						if r.DataCheck.OK != rounds*per*pairs || r.DataCheck.Wrong != 0 {
							t.Errorf("size %d: %+v, want %d ok", r.Size, r.DataCheck, rounds*per*pairs)
						}
						if r.Msgs != msgs {
							t.Errorf("size %d: %d messages, want %d", r.Size, r.Msgs, msgs)
						}
						if op == Latency {
							if l := r.Latency; l == nil || l.RTT || 2*l.Min > r.DurationNS || r.GoodputBPS != nil {
								t.Errorf("size %d: %+v", r.Size, r.Latency)
							}
							continue
						}
						if want := float64(msgs*r.Size*8) / (float64(r.DurationNS) / 1e9); *r.GoodputBPS != want {
							t.Errorf("size %d: %v bit/s, want %v", r.Size, *r.GoodputBPS, want)
						}
					}
				})
			}
		}
	}
}

// Wrong messages of a pair are counted one by one.
func TestWrongMessages(t *testing.T) {
	b := &bench{Spec: &Spec{Test: P2P, Op: BW, Window: 4}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := Local(ctx, 2, mp.Config{}, func(_ context.Context, w *mp.World) error {
		if w.Rank() == 1 {
			return nil
		}
		b.c = w.World()
		in := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
		out := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
		me := b.messages(out, in, 0)
		me.fill(1)
		for m := range in { // as they come from itself
			copy(in[m], out[m])
		}
		in[0], in[1] = in[1], in[0]
		in[2][9]++
		c, elements := me.verify(1)
		if c.OK != 0 || c.Wrong != 3 || elements < 19 || elements > 21 {
			t.Errorf("%+v, %d bytes", c, elements)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestShapes(t *testing.T) {
	for _, c := range []struct {
		op, typ string
		ranks   int
		sizes   []int64
		want    []Shape
	}{
		{Allreduce, "float32", 4, []int64{1, 8, 10, 4096}, []Shape{{4, 1}, {8, 2}, {4096, 1024}}},
		{Allgather, "float32", 4, []int64{8, 16, 33}, []Shape{{16, 1}, {32, 2}}},
		{Alltoall, "int8", 3, []int64{8}, []Shape{{6, 2}}},
		{Bcast, "float64", 3, []int64{20}, []Shape{{16, 2}}},
		{Barrier, "", 3, []int64{8, 16}, []Shape{{0, 0}}},
	} {
		s := Spec{Test: Coll, Op: c.op, Type: c.typ, Sizes: c.sizes}
		if got := s.Shapes(c.ranks); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: %v, want %v", c.op, c.sizes, got, c.want)
		}
	}
	s := Spec{Test: P2P, Op: BW, Sizes: []int64{0, 3}}
	if got := s.Shapes(2); !slices.Equal(got, []Shape{{0, 0}, {3, 3}}) {
		t.Error(got)
	}
}

// The bandwidth of the bus is that of nccl-tests.
func TestBusBandwidth(t *testing.T) {
	for op, want := range map[string]float64{Allreduce: 1.5, Allgather: 0.75, ReduceScatter: 0.75, Alltoall: 0.75, Gather: 0.75, Scatter: 0.75, Bcast: 1, Reduce: 1} {
		if got := (&Spec{Op: op}).bus(4); got != want {
			t.Errorf("%s: %v, want %v", op, got, want)
		}
	}
	r := measure(t, 2, Spec{Test: Coll, Op: Allgather, Sizes: []int64{1000}, Iters: 4, Type: "int8", Seed: 1})[0]
	if want := 1000 * 8 * 1e9 / r.Coll.TimeNS; *r.GoodputBPS/want < 0.999 || *r.GoodputBPS/want > 1.001 || *r.Coll.BusBPS != *r.GoodputBPS/2 {
		t.Errorf("algbw %v, want %v; busbw %v", *r.GoodputBPS, want, *r.Coll.BusBPS)
	}
	if r.Coll.Algorithm != "bruck" || r.Transport.TxPkts == 0 {
		t.Errorf("%+v %+v", r.Coll, r.Transport)
	}
}

func TestRefusals(t *testing.T) {
	for want, s := range map[string]Spec{
		"-n 0 is not at least 1":                      {Op: Allreduce},
		"-w -1 is negative":                           {Op: Allreduce, Iters: 1, Warmup: -1},
		"-W 0 is not 1 to 16384":                      {Op: BW, Iters: 1},
		"--root -1 is negative":                       {Op: Bcast, Iters: 1, Root: -1},
		"allgather has no root: leave --root out":     {Op: Allgather, Iters: 1, Root: 1},
		"bcast computes nothing: leave --redop out":   {Op: Bcast, Iters: 1, Reduction: "sum"},
		"a barrier moves no data":                     {Op: Barrier, Iters: 1, Check: true},
		"size 2G is more than 1 GiB, the most that a": {Op: Bcast, Iters: 1, Sizes: []int64{2 << 30}},
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (&Spec{Test: P2P, Op: BW}).For(3); err == nil || !strings.Contains(err.Error(), "there are 3: start an even number") {
		t.Error(err)
	}
	if err := (&Spec{Test: Coll, Op: Reduce, Root: 3}).For(3); err == nil || !strings.Contains(err.Error(), "--root 3 is no rank, there are 3: take 0 to 2") {
		t.Error(err)
	}
}

// If one rank cannot begin, the others do not wait for it.
func TestLocalFailsTogether(t *testing.T) {
	err := Local(t.Context(), 3, mp.Config{Timeout: -1}, func(context.Context, *mp.World) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "negative") {
		t.Error(err)
	}
}

// Rank 0, and no other, tells how far it is with each size, whether operations are verified one by one or
// not; between two sizes it begins anew.
func TestWatch(t *testing.T) {
	for _, s := range []Spec{
		{Test: Coll, Op: Bcast, Sizes: []int64{8, 100}, Type: "uint8", Iters: 5, Warmup: 2}, {Test: Coll, Op: Bcast, Sizes: []int64{8, 100}, Type: "uint8", Iters: 5, Warmup: 2, Check: true},
		{Test: P2P, Op: Latency, Sizes: []int64{8, 100}, Iters: 5, Warmup: 2},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a := new(Algorithms)
		var mu sync.Mutex
		var got []string
		err := Local(ctx, 2, mp.Config{Choose: a.Choose}, func(ctx context.Context, w *mp.World) error {
			last := time.Duration(0)
			return Run(ctx, w, &s, a, Watch{Tell: func(st State) {
				mu.Lock()
				defer mu.Unlock()
				if st.Done == 1 {
					last = 0
				}
				if w.Rank() != 0 || st.At <= last || st.P50 <= 0 || st.P99 < st.P50 {
					t.Errorf("rank %d tells %+v after %v", w.Rank(), st, last)
				}
				last = st.At
				got = append(got, fmt.Sprintf("%d: %d/%d", st.Size, st.Done, st.Of))
			}}, func(*record.Run) {})
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"8: 1/5", "8: 2/5", "8: 3/5", "8: 4/5", "8: 5/5", "100: 1/5", "100: 2/5", "100: 3/5", "100: 4/5", "100: 5/5"}
		if !slices.Equal(got, want) {
			t.Errorf("%s, check %v: %v", s.Op, s.Check, got)
		}
	}
}
