package perf

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/uet"
)

// open opens the legs, and a relay for each if there is an impairment. It returns the
// addresses that the server is to send to.
func (r *clientRun) open(hooks Hooks) ([]netip.AddrPort, error) {
	c, spec := r.c, r.spec
	h := hints(spec, c.cfg.Keys, c.cfg.Timeout, c.cfg.Silence)
	h.Config.Tap = c.cfg.Tap
	h.Config.Socket.Ports = uet.PortRange(c.cfg.DataPorts)
	info, err := infoTo(c.server, c.cfg.Domain, h)
	if err != nil {
		return nil, err
	}
	if err := fits(spec, info); err != nil {
		return nil, err
	}
	group := traffic.NewGroup(spec, false, func() {
		for _, l := range r.legs {
			l.wake()
		}
	})
	var addrs []netip.AddrPort
	if spec.Shares() {
		r.crew = newCrew(spec, &r.wg, r.ended)
	}
	for i := range spec.Parallel {
		in := *info
		var first *leg
		if spec.Together() && i > 0 {
			first = r.legs[0]
		}
		l, err := newLeg(spec, i, false, &in, group, r.crew, first)
		if err != nil {
			return nil, noPort("test endpoint", c.cfg.DataPorts, noFiles(spec, err))
		}
		r.legs = append(r.legs, l)
		l.Gate.Store(true)
		if spec.Churn && spec.EP == traffic.MSG {
			l.dial = func(ctx context.Context) (*end, error) { return r.dial(ctx, info, i) }
		}
		l.Reply = hooks.Reply
		l.Sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
		a, err := r.facing(i)
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// fits returns an error if the messages of a test are too long for an endpoint.
func fits(spec *traffic.Spec, info *uet.Info) error {
	switch {
	case spec.Op == traffic.Inject && spec.Size > int64(info.Tx.InjectSize):
		return usagef("%d bytes cannot be injected: at most %d", spec.Size, info.Tx.InjectSize)
	case spec.Lossy() && spec.Size > int64(info.Ep.MaxMsgSize):
		return usagef("%d bytes do not fit into one packet, as a datagram must: at most %d here", spec.Size, info.Ep.MaxMsgSize)
	}
	return nil
}

// facing returns the address that the server is to send to for leg i: the leg's own, or
// that of a relay in front of it.
func (r *clientRun) facing(i int) (netip.AddrPort, error) {
	local := r.legs[i].addr()
	switch {
	case r.c.cfg.Impair == nil:
		return local, nil
	case r.spec.SharePort && i > 0:
		return r.relays[0].FacingServer(), nil
	}
	f := *r.c.cfg.Impair
	f.Seed ^= uint64(i) << 32
	x, err := relay.Open(relay.Config{Local: local.Addr(), Ports: r.c.cfg.DataPorts, Faults: f, NoCRC: !r.spec.CRC})
	if err != nil {
		return local, err
	}
	r.relays = append(r.relays, x)
	return x.FacingServer(), nil
}

// dial opens another endpoint for a leg and connects it.
func (r *clientRun) dial(ctx context.Context, info *uet.Info, leg int) (*end, error) {
	in := *info
	e, err := openEnd(&in, 64)
	if err != nil {
		return nil, err
	}
	if err := r.c.connect(ctx, e, call{Session: r.c.id, Run: r.id, Leg: leg, Again: true}); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// connect tells each leg the address of its other end.
func (r *clientRun) connect(ctx context.Context, remote []netip.AddrPort) error {
	if r.c.svc.ep == traffic.MSG {
		return r.connectAll(ctx)
	}
	if len(remote) != len(r.legs) {
		return fmt.Errorf("the server opened %d endpoints for %d streams", len(remote), len(r.legs))
	}
	for i, l := range r.legs {
		a := l.end.near(remote[i])
		if r.relays != nil {
			x := r.relays[min(i, len(r.relays)-1)]
			x.Connect(l.addr(), a)
			a = x.FacingClient()
		}
		if err := l.connect(a); err != nil {
			return err
		}
	}
	return nil
}

// connectsAtOnce bounds the connections that are asked for at once: a server keeps as many.
const connectsAtOnce = traffic.FewParallel / 2

// connectAll connects all legs, some at once.
func (r *clientRun) connectAll(ctx context.Context) error {
	begin := time.Now()
	errs := make([]error, len(r.legs))
	took := make([]time.Duration, len(r.legs))
	var wg sync.WaitGroup
	at := make(chan struct{}, connectsAtOnce)
	for i, l := range r.legs {
		at <- struct{}{}
		wg.Go(func() {
			defer func() { <-at }()
			errs[i] = r.c.connect(ctx, l.end, call{Session: r.c.id, Run: r.id, Leg: i})
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return err
		}
		r.setup.connected = max(r.setup.connected, took[i])
		p, err := r.legs[i].end.ep.Peer()
		if err != nil { // it is lost already
			return fmt.Errorf("the connection ended at once: %w", err)
		}
		if err := r.legs[i].connect(p.AddrPort()); err != nil {
			return err
		}
	}
	return nil
}
