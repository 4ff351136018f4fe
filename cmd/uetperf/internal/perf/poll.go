package perf

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// polling is how many legs of the process poll now: when they are as many as
// processors, each gives its goroutine's place away between empty polls.
var polling atomic.Int32

const (
	// yieldEvery is how many empty polls pass before the processor is offered
	// to other threads: with a third of a microsecond each, about the round trip
	// of two ends that poll.
	yieldEvery = 32
	// yieldShared is how long an offer takes at least when another thread took
	// it. Then every empty poll offers: two ends that share a processor would
	// otherwise each burn their time slice.
	yieldShared = 1500 * time.Nanosecond
)

// A poller reads the completions of a leg.
type poller struct {
	end   *end
	block bool // auto progress: blocking reads
	ents  []cq.Entry

	empty  int
	shared bool
}

// read takes completions: 0 when there are none now. It waits for some, at most for d, only
// if progress is automatic or the leg rests. An operation that failed comes as an error.
func (p *poller) read(d time.Duration, rests bool) (int, error) {
	var n int
	var err error
	wait := d > 0 && (p.block || rests)
	if wait {
		n, err = p.end.cq.SRead(p.ents, 1, min(d, traffic.Idle))
	} else {
		n, err = p.end.cq.Read(p.ents)
	}
	switch err {
	case nil:
		p.empty = 0
		return n, nil
	case fi.EAGAIN:
		if !wait {
			p.idle()
		}
		return 0, nil
	case fi.EAVAIL:
		return 0, p.end.readErr()
	}
	return 0, err
}

// idle passes the time between two empty polls.
func (p *poller) idle() {
	p.empty++
	switch {
	case int(polling.Load()) > cpus0:
		runtime.Gosched()
	case p.empty&1023 == 0:
		runtime.Gosched() // the goroutine of the control channel, if it waits
	}
	if p.shared || p.empty%yieldEvery == 0 {
		t := time.Now()
		schedYield()
		p.shared = time.Since(t) > yieldShared
	}
}

// cpus0 is cpus at the start.
var cpus0 = cpus()

// cpus is how many processors the process may use at once.
func cpus() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
