package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

// A waiter is one goroutine that waits by the set, and what it is to know.
type waiter struct {
	*poll.Watch
	told  int        // changes of counters before its last Wait ended
	ended chan error // of the Wait under way; nil: none
	due   bool       // there was something for it all the time since that Wait began
}

// waitSetModel lets a wait set and a twin do the same: numbers of entries, a
// number of changes, and signals that nobody has had.
func waitSetModel(t *rapid.T, bubble func(func())) {
	type step struct {
		op   string
		i    int
		rush bool // the next step comes before anybody has run
	}
	script := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			op:   rapid.SampledFrom([]string{"put", "take", "add", "fail", "read", "poll", "signal", "wait", "wait", "wait", "timeout"}).Draw(t, "op"),
			i:    rapid.IntRange(0, 2).Draw(t, "i"),
			rush: rapid.Bool().Draw(t, "rush"),
		}
	}), 10, 60).Draw(t, "script")
	rush := rapid.Bool().Draw(t, "rush")
	failure := ""
	bubble(func() {
		s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec, Spin: -1})
		if err != nil {
			failure = err.Error()
			return
		}
		var queues [2]*cq.CQ
		var entries [2]int
		var counters [2]*cntr.Counter
		for i := range queues {
			queues[i], _ = cq.New(cq.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
			counters[i], _ = cntr.New(cntr.Attr{WaitObj: fi.WaitSet, WaitSet: s}, nil)
		}
		var waiters [3]waiter
		for i := range waiters {
			waiters[i].Watch = s.Watch()
		}
		changes, signalled := 0, false
		due := func(w *waiter) bool { return w.told != changes || entries[0]+entries[1] > 0 }
		for _, x := range script {
			q, c, w := x.i%2, counters[x.i%2], &waiters[x.i]
			switch x.op {
			case "put":
				put(queues[q])
				entries[q]++
			case "take":
				if n, _ := queues[q].Read(make([]cq.Entry, 1)); n > 0 {
					entries[q]--
				}
			case "add":
				c.Add(1)
				changes++
			case "fail":
				c.AddErr(1)
				changes++
			case "read":
				c.Read()
				c.ReadErr()
			case "poll":
				c.Poll()
			case "signal":
				s.Signal()
				signalled = true
			case "wait", "timeout":
				if w.ended != nil {
					break
				}
				w.ended, w.due = make(chan error, 1), true
				timeout := time.Duration(-1)
				if x.op == "timeout" {
					timeout = 0
				}
				go func() { w.ended <- w.Wait(timeout) }()
			}
			for i := range waiters {
				waiters[i].due = waiters[i].due && due(&waiters[i])
			}
			if rush && x.rush {
				continue
			}
			synctest.Wait()
			for i := range waiters {
				w := &waiters[i]
				due := due(w)
				select {
				case err := <-w.ended:
					switch {
					case err != nil && w.due:
						failure = "a wait timed out over what is there"
					case err == nil && !due && !signalled && !rush:
						failure = "a wait ended for nothing"
					}
					w.ended = nil
					if err == nil && !due {
						signalled = false // it had it
					}
					if err == nil {
						w.told = changes
					}
				default:
					if w.ended != nil && due {
						failure = "one sleeps over what is there"
					}
				}
			}
			if failure != "" {
				break
			}
		}
		for i := range queues {
			queues[i].Close()
			counters[i].Close()
		}
		s.Close()
		for _, w := range waiters {
			if w.ended != nil {
				<-w.ended
			}
		}
	})
	if failure != "" {
		t.Fatal(failure)
	}
}

func TestWaitSetModel(t *testing.T) {
	// R-CQ-32, R-EQ-16, R-CQ-94, R-CNTR-06 in any order of calls.
	rapid.Check(t, func(rt *rapid.T) {
		waitSetModel(rt, func(f func()) { synctest.Test(t, func(*testing.T) { f() }) })
	})
}
