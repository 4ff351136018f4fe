// Package ranks measures between the ranks of package mp: collectives, with what nccl-tests
// computes, and messages between pairs of ranks, with what the OSU benchmarks compute.
//
// All ranks call the same function with the same Spec. Rank 0 gets the results of all.
package ranks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/mp"
)

// The tests.
const (
	Coll = "coll" // collectives
	P2P  = "p2p"  // messages between pairs of ranks
)

// The collectives.
const (
	Allreduce     = "allreduce"
	Allgather     = "allgather"
	ReduceScatter = "reducescatter"
	Alltoall      = "alltoall"
	Bcast         = "bcast"
	Reduce        = "reduce"
	Gather        = "gather"
	Scatter       = "scatter"
	Scan          = "scan"
	Barrier       = "barrier"
)

// The tests of pairs.
const (
	Latency = "latency" // round trips
	BW      = "bw"      // a window of messages, then an answer
	BiBW    = "bibw"    // the same in both directions at once
	MBWMR   = "mbw_mr"  // BW, with the rate of messages
)

// Ops are the operations of a test, the usual one first.
func Ops(test string) []string {
	if test == P2P {
		return []string{Latency, BW, BiBW, MBWMR}
	}
	return []string{Allreduce, Allgather, ReduceScatter, Alltoall, Bcast, Reduce, Gather, Scatter, Scan, Barrier}
}

// Types are the types of elements, Reductions what reductions compute.
var (
	Types      = []string{"float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"}
	Reductions = []string{"sum", "prod", "min", "max"}
)

// MaxSize is the largest size in bytes that is measured: each rank has up to three buffers of it.
const MaxSize = 1 << 30

// A Spec describes a test. All ranks have the same.
type Spec struct {
	Test, Op  string
	Sizes     []int64 // bytes; Barrier has none
	Iters     int     // measured operations, or windows of messages
	Warmup    int
	Repeat    int    // how often all sizes are measured, one after the other; 0 is once
	Window    int    // messages under way, of BW, BiBW and MBWMR
	Type      string // of the elements
	Reduction string
	Root      int
	// Check verifies each operation, and begins each behind a barrier. Without it one before and
	// one after the measured ones are verified.
	Check bool
	Seed  uint64 // of rank 0 counts
}

// Reduces reports whether the operation computes.
func (s *Spec) Reduces() bool {
	return slices.Contains([]string{Allreduce, ReduceScatter, Reduce, Scan}, s.Op)
}

// Rooted reports whether the operation has a root.
func (s *Spec) Rooted() bool { return slices.Contains([]string{Bcast, Reduce, Gather, Scatter}, s.Op) }

// Windowed reports whether messages are sent in windows.
func (s *Spec) Windowed() bool { return s.Op == BW || s.Op == BiBW || s.Op == MBWMR }

// Checked reports whether there is data to verify.
func (s *Spec) Checked() bool { return s.Op != Barrier }

// For returns an error if so many ranks cannot run the test.
func (s *Spec) For(ranks int) error {
	switch {
	case s.Test == P2P && ranks%2 != 0:
		return fmt.Errorf("%s is between pairs of ranks, and there %s: start an even number", s.Op, there(ranks))
	case s.Rooted() && s.Root >= ranks:
		return fmt.Errorf("--root %d is no rank, there %s: take 0 to %d", s.Root, there(ranks), ranks-1)
	}
	return nil
}

func there(ranks int) string {
	if ranks == 1 {
		return "is 1"
	}
	return fmt.Sprintf("are %d", ranks)
}

// width is the bytes of an element.
func (s *Spec) width() int64 {
	switch s.Type {
	case "int8", "uint8":
		return 1
	case "float32", "int32", "uint32":
		return 4
	}
	return 8
}

// blocks reports whether the size is that of a buffer with a block for each rank, as nccl-tests
// have it.
func (s *Spec) blocks() bool {
	return slices.Contains([]string{Allgather, ReduceScatter, Alltoall, Gather, Scatter}, s.Op)
}

// A Shape is what becomes of a size: elements do not cross ranks.
type Shape struct {
	Size  int64 // bytes of the larger buffer
	Count int64 // elements of a block
}

// Shapes returns the shapes of the sizes over so many ranks. A size is cut to whole elements, in
// operations with blocks for each rank; to one of them at least.
func (s *Spec) Shapes(ranks int) []Shape {
	if s.Op == Barrier {
		return []Shape{{}}
	}
	var out []Shape
	for _, n := range s.Sizes {
		if s.Test == P2P {
			out = append(out, Shape{n, n})
			continue
		}
		per := s.width()
		if s.blocks() {
			per *= int64(ranks)
		}
		count := max(1, n/per)
		if x := (Shape{count * per, count}); !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

// bus is by what the bandwidth of an algorithm is multiplied to get that of the busiest link:
// the numbers of nccl-tests.
func (s *Spec) bus(ranks int) float64 {
	n := float64(ranks)
	switch s.Op {
	case Allreduce:
		return 2 * (n - 1) / n
	case Allgather, ReduceScatter, Alltoall, Gather, Scatter:
		return (n - 1) / n
	}
	return 1
}

// Where describes the world: which ranks are on which host.
func Where(ctx context.Context, w *mp.World) (*record.World, error) {
	c := w.World()
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	names, err := gather(ctx, c, name)
	if err != nil || c.Rank() != 0 {
		return nil, err
	}
	x := &record.World{Launcher: w.Launcher(), Ranks: c.Size(), Sealed: w.Sealed()}
	at := map[string]int{}
	for _, n := range names {
		i, ok := at[n]
		if !ok {
			i = len(x.Hosts)
			at[n] = i
			x.Hosts = append(x.Hosts, record.RanksOn{Name: n})
		}
		x.Hosts[i].Ranks++
	}
	return x, nil
}

// gather brings a value of each rank to rank 0, in the order of the ranks. Others get nil.
func gather[T any](ctx context.Context, c *mp.Comm, mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	lens := make([]int64, c.Size())
	if err := mp.Gather(ctx, c, []int64{int64(len(b))}, lens, 0); err != nil {
		return nil, err
	}
	var all [][]byte
	if c.Rank() == 0 {
		all = make([][]byte, c.Size())
		for i, n := range lens {
			all[i] = make([]byte, n)
		}
	}
	if err := mp.Gatherv(ctx, c, b, all, 0); err != nil || c.Rank() != 0 {
		return nil, err
	}
	out := make([]T, len(all))
	for i := range all {
		if err := json.Unmarshal(all[i], &out[i]); err != nil {
			return nil, fmt.Errorf("what rank %d measured: %w", i, err)
		}
	}
	return out, nil
}

// A share is what one rank measured of a size.
type share struct {
	TookNS    int64           `json:"took"`     // of its measured operations
	Times     *record.Latency `json:"times"`    // of each
	Measured  bool            `json:"measured"` // its times count
	Check     record.Check    `json:"check"`
	Wrong     int64           `json:"wrong"` // elements
	Counters  record.Counters `json:"counters"`
	Process   string          `json:"process"`
	UserNS    int64           `json:"user"`
	SysNS     int64           `json:"sys"`
	Algorithm string          `json:"algorithm,omitempty"`
}

// A State is how far rank 0 is with a size.
type State struct {
	Size     int64
	Done, Of int // operations; those before the clock starts are not among them
	// At is how long the measured ones have taken so far.
	At time.Duration
	// P50 and P99 are percentiles of their times since the last State, of latency of half of them: at
	// most an eighth too large, 0 if there were none.
	P50, P99 time.Duration
}

// Watch makes rank 0 tell how far it is, at most every Every, between two operations.
type Watch struct {
	Every time.Duration
	Tell  func(State)
}

// A bench is one rank during a test.
type bench struct {
	*Spec
	w     *mp.World
	c     *mp.Comm
	hist  *traffic.Histogram
	mine  share
	round uint64 // of contents
	// algorithms knows what mp chose.
	algorithms *Algorithms
	// took adds up the times of operations that are verified one by one.
	took     time.Duration
	watch    Watch
	measures int64     // that is measured
	begun    time.Time // its measuring
	told     time.Time // the last State
	done     int       // measured operations
	seen     traffic.Recent
}

// An op is what is measured, at one rank.
type op struct {
	// run does it once. checked does it where the contents count, if that is another way.
	run, checked func(ctx context.Context) error
	// fill gives buffers the contents of a round. verify says what is right and wrong in them
	// then, and how many elements are wrong.
	fill   func(round uint64)
	verify func(round uint64) (c record.Check, elements int64)
	// untimed is an op whose time at this rank is not what is measured.
	untimed bool
}

// Run runs the test. Each size is told at rank 0, when all ranks have measured it. a is what the
// world was made with. watch tells at rank 0 how far it is; the zero Watch does not.
func Run(ctx context.Context, w *mp.World, s *Spec, a *Algorithms, watch Watch, told func(*record.Run)) error {
	b := &bench{Spec: s, w: w, c: w.World(), algorithms: a, hist: traffic.NewHistogram(), watch: watch}
	if b.c.Rank() != 0 {
		b.watch = Watch{}
	}
	if b.watch.Tell != nil {
		b.hist.Watch(&b.seen)
	}
	if err := s.For(b.c.Size()); err != nil {
		return err
	}
	seed := []uint64{s.Seed}
	if err := mp.Bcast(ctx, b.c, seed, 0); err != nil {
		return err
	}
	b.round = seed[0]
	for range max(1, s.Repeat) {
		for _, x := range s.Shapes(b.c.Size()) {
			run, err := b.size(ctx, x)
			if err != nil {
				return err
			}
			if run != nil {
				told(run)
			}
		}
	}
	return nil
}

// size measures one size. It returns the result at rank 0.
func (b *bench) size(ctx context.Context, x Shape) (*record.Run, error) {
	b.mine = share{}
	b.hist.Reset()
	b.took = 0
	var o *op
	if b.Test == P2P {
		o = b.pairs(x)
	} else {
		o = b.collective(x)
	}
	before := perf.CountersOf(b.w.Stats())
	if err := b.verified(ctx, o, 1, false); err != nil {
		return nil, err
	}
	for range b.Warmup {
		if err := o.run(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.c.Barrier(ctx); err != nil {
		return nil, err
	}
	b.begin(x.Size)
	user, sys := perf.Usage()
	if b.Check && b.Checked() {
		if err := b.verified(ctx, o, b.Iters, true); err != nil {
			return nil, err
		}
	} else if err := b.timed(ctx, o); err != nil {
		return nil, err
	}
	u, s := perf.Usage()
	m := &b.mine
	m.Algorithm = b.algorithms.of(kinds[b.Op])
	m.TookNS, m.Times, m.Measured = int64(b.took), b.hist.Latency(), !o.untimed
	m.UserNS, m.SysNS = int64(u-user), int64(s-sys)
	if err := b.verified(ctx, o, 1, false); err != nil {
		return nil, err
	}
	m.Counters = perf.CountersOf(b.w.Stats())
	m.Counters.Sub(&before)
	m.Process = process
	all, err := gather(ctx, b.c, *m)
	if err != nil || all == nil {
		return nil, err
	}
	return b.sum(x, all)
}

// process tells this process from those of other ranks.
var process = func() string {
	name, _ := os.Hostname()
	return fmt.Sprintf("%s %d", name, os.Getpid())
}()

// timed measures operations, one right behind the other.
func (b *bench) timed(ctx context.Context, o *op) error {
	begin := time.Now()
	last := begin
	for range b.Iters {
		if err := o.run(ctx); err != nil {
			return err
		}
		now := time.Now()
		b.time(now.Sub(last))
		last = now
		b.tell(now)
	}
	b.took = last.Sub(begin)
	return nil
}

// begin begins to measure a size.
func (b *bench) begin(size int64) {
	now := time.Now()
	b.measures, b.begun, b.told, b.done = size, now, now, 0
}

// tell says how far it is, if it is time. The time of saying it counts: it is short and seldom.
func (b *bench) tell(now time.Time) {
	if b.watch.Tell == nil || now.Sub(b.told) < b.watch.Every {
		return
	}
	b.told = now
	p50, p99 := b.seen.Take()
	b.watch.Tell(State{Size: b.measures, Done: b.done, Of: b.Iters, At: now.Sub(b.begun), P50: p50, P99: p99})
}

// time notes what an operation took.
func (b *bench) time(d time.Duration) {
	b.done++
	if b.Op == Latency {
		d /= 2
	}
	b.hist.Record(d)
}

// verified does operations with contents of their own and verifies them. All ranks begin each at
// about the same time.
func (b *bench) verified(ctx context.Context, o *op, n int, measure bool) error {
	if !b.Checked() {
		return nil
	}
	run := o.run
	if o.checked != nil {
		run = o.checked
	}
	for range n {
		b.round++
		o.fill(b.round)
		if err := b.c.Barrier(ctx); err != nil {
			return err
		}
		begin := time.Now()
		if err := run(ctx); err != nil {
			return err
		}
		if d := time.Since(begin); measure {
			b.time(d)
			b.took += d
			b.tell(begin.Add(d))
		}
		check, elements := o.verify(b.round)
		b.mine.Check.Add(&check)
		b.mine.Wrong += elements
	}
	return nil
}

// sum makes the result of what all ranks measured.
func (b *bench) sum(x Shape, all []share) (*record.Run, error) {
	run := &record.Run{Size: x.Size, Iters: int64(b.Iters), Transport: record.Counters{Drops: map[string]uint64{}}}
	if b.Checked() {
		run.DataCheck = &record.Check{}
	}
	var least, most, sum, wrong int64
	n := 0
	user, sys := map[string]int64{}, map[string]int64{}
	h := traffic.NewHistogram()
	for i := range all {
		s := &all[i]
		run.Transport.Add(&s.Counters)
		wrong += s.Wrong
		if run.DataCheck != nil {
			run.DataCheck.Add(&s.Check)
		}
		user[s.Process], sys[s.Process] = max(user[s.Process], s.UserNS), max(sys[s.Process], s.SysNS)
		if !s.Measured {
			continue
		}
		if n == 0 || s.TookNS < least {
			least = s.TookNS
		}
		n++
		sum += s.TookNS
		most = max(most, s.TookNS)
		if s.Times != nil {
			if err := h.Add(s.Times); err != nil {
				return nil, fmt.Errorf("the times of rank %d: %w", i, err)
			}
		}
	}
	run.CPU = &record.CPU{}
	for p := range user {
		run.CPU.UserNS += user[p]
		run.CPU.SysNS += sys[p]
	}
	run.DurationNS = most
	if b.Test == P2P {
		b.paired(run, all, h)
		return run, nil
	}
	if run.Latency = h.Latency(); run.Latency != nil {
		run.Latency.RTT = true
	}
	per := float64(b.Iters)
	run.Msgs = int64(b.Iters)
	run.Coll = &record.Coll{
		Count: x.Count, TimeNS: float64(most) / per, LeastNS: float64(least) / per, MeanNS: float64(sum) / per / float64(max(1, n)), Wrong: wrong, Algorithm: all[0].Algorithm,
	}
	if most > 0 {
		rate := per / (float64(most) / 1e9)
		run.MsgsPerS = &rate
		if b.Op != Barrier {
			bps := rate * float64(x.Size) * 8
			bus := bps * b.bus(b.c.Size())
			run.GoodputBPS, run.Coll.BusBPS = &bps, &bus
			run.Bytes = x.Size * int64(b.Iters)
		}
	}
	return run, nil
}

// Validate returns an error for the first setting that cannot be run.
func (s *Spec) Validate() error {
	reduces := slices.DeleteFunc(Ops(Coll), func(op string) bool { return !(&Spec{Op: op}).Reduces() })
	rooted := slices.DeleteFunc(Ops(Coll), func(op string) bool { return !(&Spec{Op: op}).Rooted() })
	switch {
	case s.Iters < 1 || s.Iters > math.MaxInt32:
		return fmt.Errorf("-n %d is not at least 1", s.Iters)
	case s.Warmup < 0:
		return fmt.Errorf("-w %d is negative", s.Warmup)
	case s.Windowed() && (s.Window < 1 || s.Window > traffic.MaxWindow):
		return fmt.Errorf("-W %d is not 1 to %d", s.Window, traffic.MaxWindow)
	case s.Root < 0:
		return fmt.Errorf("--root %d is negative", s.Root)
	case s.Root > 0 && !s.Rooted():
		return fmt.Errorf("%s has no root: leave --root out, or take %s", s.Op, strings.Join(rooted, ", "))
	case s.Reduction != "" && !s.Reduces():
		return fmt.Errorf("%s computes nothing: leave --redop out, or take %s", s.Op, strings.Join(reduces, ", "))
	case s.Op == Barrier && s.Check:
		return errors.New("a barrier moves no data that could be verified: leave -c out")
	}
	for _, n := range s.Sizes {
		if n > MaxSize {
			return fmt.Errorf("size %s is more than %s, the most that a rank has buffers for", units.Size(n), units.Bytes(MaxSize))
		}
	}
	return nil
}
