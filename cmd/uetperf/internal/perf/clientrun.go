package perf

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// Hooks are functions that a run calls.
type Hooks struct {
	// Interval is called every Every with the number of messages so far and the time since the
	// start.
	Every    time.Duration
	Interval func(msgs int64, since time.Duration)
	// Watch, if not nil, is called in place of Interval.
	Watch func(Watched)
	// Reply is called for each round trip of a ping, by the leg's goroutine; rtt is 0 if no
	// answer came in time.
	Reply func(n int64, rtt time.Duration)
	// Ready is called when both ends are open. setup is how long that took, connected the part
	// of it that connections took, 0 without connections.
	Ready func(path record.Path, mtu int, setup, connected time.Duration)
	// Begin, if not nil, is called then; the test begins when it returns, unless with an error.
	Begin func(context.Context) error
}

// A Watched is the state of a run: counts since the begin, of this end.
type Watched struct {
	At   time.Duration
	Msgs int64
	// Window (bytes) and RTT are those of the busiest packet delivery context of this end, 0 if
	// it sends nothing.
	Window int
	RTT    time.Duration
	// P50 and P99 are percentiles of the latencies since the last call, as the test measures them: at
	// most an eighth too large, 0 if there were none.
	P50, P99 time.Duration
	// Resent, Spurious, Marked and Dropped are packets sent again, those of them that the other end
	// had already as this end found out, those received with a congestion mark, and those thrown away.
	Resent, Spurious, Marked, Dropped uint64
}

// grace is how long an interrupted run may take to end in order.
const grace = 2 * time.Second

// A clientRun is the state of a run.
type clientRun struct {
	c      *Client
	spec   *traffic.Spec
	id     int
	legs   []*leg
	relays []*relay.Relay
	setup  setup
	crew   *crew          // that runs them, if they share a queue
	wg     sync.WaitGroup // of the goroutines of the legs
	events chan legEvent
	err    error // the first error, which ended the run
	seen   seen
}

// A setup describes the opening of both ends. took is the time of it, connected the part
// that the slowest connection took.
type setup struct {
	path            record.Path
	mtu             int
	took, connected time.Duration
}

// A seen has what was sampled during a run.
type seen struct {
	series *series
	spread traffic.Spread // only for incast
	stall  stall
}

// Run runs one test with the server. If it fails the result has what was measured before.
// context.Canceled means that it was interrupted.
func (c *Client) Run(ctx context.Context, spec traffic.Spec, hooks Hooks) (*Result, error) {
	if err := c.complete(&spec); err != nil {
		return nil, err
	}
	c.runs++
	r := &clientRun{c: c, spec: &spec, id: c.runs, events: newEvents(spec.Parallel), seen: seen{series: newSeries(spec.Sample)}}
	defer r.close()
	if err := r.prepare(ctx, hooks); err != nil {
		return nil, err
	}
	if hooks.Begin != nil {
		if err := hooks.Begin(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.send(&message{Type: mGo, Run: r.id}); err != nil {
		return nil, err
	}
	return r.result(ctx, r.reason(r.drive(ctx, hooks)))
}

// complete checks a Spec and adds what the session knows.
func (c *Client) complete(spec *traffic.Spec) error {
	if spec.Sec = c.svc.sec; spec.Control() != c.svc.ep {
		spec.EP = c.svc.ep
	}
	if err := spec.Validate(); err != nil {
		return usagef("%v", err)
	}
	if c.cfg.Impair != nil && c.svc != services[0] {
		return usagef("a relay changes addresses, which %v endpoints do not let pass", c.svc)
	}
	if spec.SharePort && !c.dialed.ports {
		return errors.New("the server is older than this program: its streams cannot share a port; leave --share-port out, or use the same release at both ends")
	}
	if spec.Sample == 0 {
		spec.Sample = spec.Sampling()
	}
	if c.dialed.jobs && spec.EP != traffic.MSG { // a connection knows its other end
		spec.Job = 2 + rand.Uint32N(1<<24-1-jobs(spec)) // not 1, which is the default
	}
	return nil
}

// prepare opens both ends of all legs and connects them.
func (r *clientRun) prepare(ctx context.Context, hooks Hooks) error {
	begin := time.Now()
	addrs, err := r.open(hooks)
	if err != nil {
		return err
	}
	if err := r.c.send(&message{Type: mPrepare, Run: r.id, Spec: r.spec, Addrs: addrs}); err != nil {
		return err
	}
	ready, err := r.c.await(ctx, r.patience(r.c.cfg.Timeout), mReady)
	if err != nil {
		return err
	}
	if err := r.connect(ctx, ready.Addrs); err != nil {
		return err
	}
	s := &r.setup
	s.path, s.mtu = r.legs[0].end.path(r.legs[0].remote)
	for _, l := range r.legs {
		if err := l.Start(); err != nil {
			return err
		}
	}
	s.took = time.Since(begin)
	if hooks.Ready != nil {
		hooks.Ready(s.path, s.mtu, s.took, s.connected)
	}
	return nil
}

// patience is how long the server may take for something that the Client allows it d for.
func (r *clientRun) patience(d time.Duration) time.Duration {
	return d + time.Duration(max(0, r.spec.Parallel-traffic.FewParallel))*patienceEach
}

// patienceEach is how much longer a server may take for each of many legs. Arbitrary: to open one
// takes a tenth on an idle host.
const patienceEach = 2 * time.Millisecond

// close closes everything that is open.
func (r *clientRun) close() {
	for _, l := range r.legs {
		l.abort()
	}
	r.wg.Wait()
	for _, l := range r.legs {
		l.end.close()
	}
	for _, x := range r.relays {
		x.Close()
	}
}
