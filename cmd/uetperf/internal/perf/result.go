package perf

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// A Result is what one run measured.
type Result struct {
	Run record.Run
	// Path is the client's path to the server, MTU the payload bytes per packet.
	Path record.Path
	MTU  int
	// Relay adds up the counters of the relays.
	Relay relay.Stats
	// Stalled is for how long nothing progressed, in whole seconds. Waiting and PeerWaiting
	// tell what the operations of the client and of the server waited for at that time;
	// PeerWaiting is set only if the run failed.
	Stalled              time.Duration
	Waiting, PeerWaiting []string
}

// ends returns the legs as package traffic sees them.
func (r *clientRun) ends() []*traffic.Leg {
	var v []*traffic.Leg
	for _, l := range r.legs {
		v = append(v, l.Leg)
	}
	return v
}

// result asks the server for its part and makes the result of a run that ended in err.
func (r *clientRun) result(ctx context.Context, err error) (*Result, error) {
	peer, theirs, err := r.finish(ctx, err)
	res := &Result{
		Run: traffic.Result(r.spec, r.ends(), peer, &r.seen.spread), Path: r.setup.path, MTU: r.setup.mtu,
		Waiting: r.seen.stall.said, Stalled: r.seen.stall.long,
	}
	if mine := r.seen.series.samples; len(mine) > 1 { // one sample makes no series
		res.Run.Series = merge(mine, theirs, !r.spec.Sends(false))
		if r.spec.Test == traffic.BW {
			res.Run.Slowest = record.SlowestOf(res.Run.Series, r.spec.Warmup*int64(r.spec.Parallel), res.Run.DurationNS)
		}
	}
	for _, p := range peer {
		for _, s := range p.Waiting {
			if !slices.Contains(res.PeerWaiting, s) {
				res.PeerWaiting = append(res.PeerWaiting, s)
			}
		}
	}
	res.Run.SetupNS, res.Run.ConnectNS = int64(r.setup.took), int64(r.setup.connected)
	for _, x := range r.relays {
		res.Relay.Add(x.Stats())
	}
	switch {
	case errors.Is(err, context.Canceled):
		res.Run.Error = "interrupted"
	case errors.Is(err, context.DeadlineExceeded):
		res.Run.Error = "cut short"
	case err != nil:
		res.Run.Error = oneLine(err)
	}
	return res, err
}

// finish ends the run at the server, which returns what its legs did. It returns err, or
// the error of ending the run if err is nil.
func (r *clientRun) finish(ctx context.Context, err error) ([]traffic.LegResult, []record.Sample, error) {
	end := &message{Type: mEnd, Run: r.id}
	wait := grace
	switch {
	case err == nil:
		wait = r.patience(r.c.cfg.Timeout)
	case Unreachable(err):
		wait = grace / 4 // hardly worth the wait: usually the server does not answer either
	}
	if err != nil {
		end.Error = oneLine(err)
	}
	if e := r.c.send(end); e != nil {
		return nil, nil, err
	}
	m, e := r.c.await(context.WithoutCancel(ctx), wait, mResult)
	switch {
	case e == nil && len(m.Results) == len(r.legs):
		return m.Results, unpack(m.Series), err
	case err == nil && e == nil:
		err = errors.New("the server's result is incomplete")
	case err == nil:
		err = e
	}
	return nil, nil, err
}
