package perf

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// polling is the number of legs of the process that are polling. If they exceed the
// processors, each of them yields to other goroutines between empty polls.
var polling atomic.Int32

const (
	// yieldEvery is the number of empty polls after which the processor is offered to other
	// threads. At a third of a microsecond each they take about a round trip of two polling
	// ends.
	yieldEvery = 32
	// yieldShared is the least duration of an offer that another thread accepted. After such
	// an offer every empty poll makes one, because two ends that share a processor would
	// otherwise burn their time slices.
	yieldShared = 1500 * time.Nanosecond
	// pollsATurn is the number of empty polls between two turns of a leg that waits for
	// completions and signals only. A turn costs a quarter of a poll, and what arrives
	// meanwhile waits for it.
	pollsATurn = 16
)

// A poller reads the completions of a leg.
type poller struct {
	end   *end
	block bool // auto progress: reads block
	ents  []cq.Entry

	empty  int
	shared bool
}

// read reads completions into ents. It returns 0 if there are none. It waits for some, at
// most for d, only if progress is automatic or the leg rests. An operation that failed is
// returned as an error.
func (p *poller) read(d time.Duration, rests bool) (int, error) {
	var n int
	var err error
	wait := d > 0 && (p.block || rests)
	if wait {
		n, err = p.end.cq.SRead(p.ents, 1, min(d, traffic.Idle))
	} else {
		n, err = p.end.cq.Read(p.ents)
		for polls := 1; err == fi.EAGAIN && d >= traffic.Idle && polls < pollsATurn; polls++ {
			p.idle()
			n, err = p.end.cq.Read(p.ents)
		}
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
		runtime.Gosched() // lets the goroutine of the control channel run
	}
	if p.shared || p.empty%yieldEvery == 0 {
		t := time.Now()
		schedYield()
		p.shared = time.Since(t) > yieldShared
	}
}

// cpus0 is the result of cpus at program start.
var cpus0 = cpus()

// cpus is the number of processors that the process may use at once.
func cpus() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
