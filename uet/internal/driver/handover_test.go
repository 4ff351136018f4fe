package driver

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// The model has a few callers, each with one piece of work, and the lock, the flag and the
// queue as plain variables. The test visits every interleaving of their atomic steps. In
// each end state the queue must be empty. The order of the steps is a parameter, to show
// that the model can tell a right order from a wrong one.

type modelOrder struct {
	tryFirst   bool // a caller tries the lock before it sets the flag
	lookFirst  bool // a holder looks at the flag before it releases the lock
	drainFirst bool // a holder empties the queue before it clears the flag
}

type modelState struct {
	locked bool
	flag   bool
	queued int8
	pc     [3]int8 // the next step of each caller
}

// The steps of a caller. The steps of a holder follow a successful try.
const (
	stPut = int8(iota)
	stSet
	stTry
	stClear // or drain, if drainFirst
	stDrain // or clear
	stUnlock
	stLook
	stRetry
	stUnlockQuit // lookFirst only: the flag was clear, so release and leave
	stDone
)

func (o modelOrder) step(s modelState, i int) modelState {
	pc := &s.pc[i]
	drain := func() { s.queued = 0; *pc++ }
	clearFlag := func() { s.flag = false; *pc++ }
	switch *pc {
	case stPut:
		s.queued++
		*pc = stSet
		if o.tryFirst {
			*pc = stTry
		}
	case stSet:
		s.flag = true
		*pc = stTry
		if o.tryFirst {
			*pc = stDone // the try has failed already
		}
	case stTry:
		switch {
		case !s.locked:
			s.locked = true
			*pc = stClear
		case o.tryFirst:
			*pc = stSet
		default:
			*pc = stDone
		}
	case stClear:
		if o.drainFirst {
			drain()
		} else {
			clearFlag()
		}
	case stDrain:
		if o.drainFirst {
			clearFlag()
		} else {
			drain()
		}
		*pc = stUnlock
		if o.lookFirst {
			*pc = stLook
		}
	case stUnlock:
		s.locked = false
		*pc = stLook
	case stLook:
		switch {
		case o.lookFirst && s.flag:
			*pc = stClear // it still holds the lock
		case o.lookFirst:
			*pc = stUnlockQuit
		case s.flag:
			*pc = stRetry
		default:
			*pc = stDone
		}
	case stRetry:
		if s.locked {
			*pc = stDone
		} else {
			s.locked = true
			*pc = stClear
		}
	case stUnlockQuit:
		s.locked = false
		*pc = stDone
	}
	return s
}

// explore visits every reachable state. It returns their number, and an end state with work
// left in the queue, if there is one.
func (o modelOrder) explore() (states int, lost *modelState) {
	seen := map[modelState]bool{}
	todo := []modelState{{}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		end := true
		for i := range s.pc {
			if s.pc[i] != stDone {
				end = false
				todo = append(todo, o.step(s, i))
			}
		}
		if end && (s.queued != 0 || s.locked) && lost == nil {
			lost = &s
		}
	}
	return len(seen), lost
}

func TestHandoverModel(t *testing.T) {
	// docs/architecture.md#who-drives-a-fep: every other order loses work.
	for _, o := range []modelOrder{
		{},
		{tryFirst: true},
		{lookFirst: true},
		{drainFirst: true},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			n, lost := o.explore()
			if right := o == (modelOrder{}); right && lost != nil {
				t.Errorf("work is lost: %+v", *lost)
			} else if !right && lost == nil {
				t.Errorf("the model finds nothing wrong in %d states, so it proves nothing", n)
			}
		})
	}
}

// handoverSource is the source of the handover.
//
//go:embed handover.go
var handoverSource string

// callsOf returns the methods that each function of a source calls, in order.
func callsOf(t *testing.T, src string) map[string][]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]string{}
	for _, d := range f.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if c, is := n.(*ast.CallExpr); is {
				if s, is := c.Fun.(*ast.SelectorExpr); is {
					calls[fn.Name.Name] = append(calls[fn.Name.Name], s.Sel.Name)
				}
			}
			return true
		})
	}
	return calls
}

func TestHandoverIsTheModel(t *testing.T) {
	// The model proves the code if the code's steps have an order that loses nothing. The
	// stress test below would find another order only now and then.
	calls := callsOf(t, handoverSource)
	before := func(fn, a, b string) bool {
		t.Helper()
		i, j := slices.Index(calls[fn], a), slices.Index(calls[fn], b)
		if i < 0 || j < 0 {
			t.Fatalf("%s calls %q, want %s and %s", fn, calls[fn], a, b)
		}
		return i < j
	}
	o := modelOrder{tryFirst: before("offer", "TryLock", "Store"), lookFirst: before("release", "left", "free")}
	if before("release", "try", "left") {
		t.Error("release tries the lock before it looks whether there is work")
	}
	if n, lost := o.explore(); lost != nil {
		t.Errorf("the steps of the code have the order %+v; of the %d states that it leads to, this one has lost work: %+v", o, n, *lost)
	}
}

// workQueue is the queue of a handover's owner.
type workQueue struct {
	mu sync.Mutex
	n  int
}

func (q *workQueue) put() { q.mu.Lock(); q.n++; q.mu.Unlock() }

func (q *workQueue) drain() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.n
	q.n = 0
	return n
}

func TestHandoverLosesNothing(t *testing.T) {
	const callers, each = 8, 50_000
	var (
		h    handover
		q    workQueue
		done int // guarded by h: -race checks that the lock works
		rest atomic.Int64
		wg   sync.WaitGroup
	)
	hold := func() {
		for {
			if h.take() {
				done += q.drain()
			}
			if !h.release() {
				return
			}
		}
	}
	for range callers {
		wg.Go(func() {
			for i := range each {
				q.put()
				if h.offer() {
					hold()
				}
				// A poller without work of its own.
				if i%7 == 0 && h.try() {
					hold()
				}
				// A caller that waits for the lock.
				if i%501 == 0 {
					h.lock()
					hold()
				}
				if i%97 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	rest.Store(int64(q.drain()))
	if rest.Load() != 0 || done != callers*each {
		t.Errorf("%d of %d pieces of work done, %d left in the queue", done, callers*each, rest.Load())
	}
	if h.take() {
		t.Error("the flag is up at rest")
	}
}

// In the stress test above, a later hand-over repairs a failed one. Here two callers meet
// once a round, and after each round no work may be left.
func TestHandoverLosesNothingInAnyRound(t *testing.T) {
	const rounds = 200_000
	var (
		h        handover
		q        workQueue
		done     int
		at       [2]atomic.Int64 // rounds each caller has finished
		wg       sync.WaitGroup
		lost     atomic.Int64
		together = func(me int, n int64) {
			at[me].Store(n)
			for i := 0; at[1-me].Load() < n; i++ {
				if i > 100 {
					runtime.Gosched()
				}
			}
		}
	)
	for me := range at {
		wg.Go(func() {
			for n := range int64(rounds) {
				together(me, 2*n+1)
				q.put()
				if h.offer() {
					for {
						if h.take() {
							done += q.drain()
						}
						if !h.release() {
							break
						}
					}
				}
				together(me, 2*n+2)
				if me == 0 && q.drain() != 0 {
					lost.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if lost.Load() != 0 || done != 2*rounds {
		t.Errorf("work was left in %d of %d rounds; %d pieces done", lost.Load(), rounds, done)
	}
}

func BenchmarkHandover(b *testing.B) {
	var h handover
	for b.Loop() {
		if h.try() {
			h.take()
			h.release()
		}
	}
}
