package perf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/fi"
)

// A ClientConfig describes a client.
type ClientConfig struct {
	Domain string // interface; "": the one that leads to the server
	// Timeout is how long the server may take to answer; 0: 10 s.
	Timeout time.Duration
	// Impair, if not nil, puts a relay with these faults between the test
	// endpoints.
	Impair *relay.Faults
	// port, if not 0, is that of the control endpoint, for tests.
	port uint16
}

// A Client is a session with a server.
type Client struct {
	cfg    ClientConfig
	server netip.AddrPort
	ctl    *ctl
	id     uint64
	host   record.Host
	tool   record.Tool
	setup  time.Duration
	runs   int
	// version is ProtocolVersion but in a test.
	version int

	in     chan *message
	lost   chan struct{} // closed when the server is lost; then why is set
	why    error
	once   sync.Once
	closed chan struct{}
	wg     sync.WaitGroup
}

// Dial opens a session with a server. It fails with ErrUnreachable when no
// answer comes in time.
func Dial(ctx context.Context, server netip.AddrPort, cfg ClientConfig) (*Client, error) {
	return dialVersion(ctx, server, cfg, ProtocolVersion)
}

func dialVersion(ctx context.Context, server netip.AddrPort, cfg ClientConfig, version int) (*Client, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	c := &Client{
		cfg: cfg, server: server, id: rand.Uint64(), in: make(chan *message, 8*MaxParallel), lost: make(chan struct{}), closed: make(chan struct{}), version: version,
	}
	begin := time.Now()
	info, err := infoTo(server, cfg.Domain, ctlHints(cfg.Timeout))
	if err != nil {
		return nil, err
	}
	info.SrcAddr.Port = cfg.port
	// Nothing comes before the hello below.
	c.ctl, err = openCtl(info, c.message, func(_ *ctl, _ netip.AddrPort, _ uint64, err error) { c.lose(err) })
	if err != nil {
		return nil, fmt.Errorf("control endpoint: %w", err)
	}
	h, t := ThisHost(), ThisTool()
	if err := c.send(&message{Type: mHello, Host: &h, Tool: &t}); err != nil {
		c.ctl.close()
		return nil, err
	}
	m, err := c.await(ctx, cfg.Timeout, mWelcome)
	if err != nil {
		c.ctl.close()
		return nil, err
	}
	c.setup = time.Since(begin)
	if m.Host != nil {
		c.host = *m.Host
	}
	if m.Tool != nil {
		c.tool = *m.Tool
	}
	c.wg.Add(1)
	go c.beat()
	return c, nil
}

// Host describes the server's host, Tool its program.
func (c *Client) Host() record.Host { return c.host }

// Tool describes the server's program.
func (c *Client) Tool() record.Tool { return c.tool }

// Setup is how long Dial took.
func (c *Client) Setup() time.Duration { return c.setup }

// Local is the client's address.
func (c *Client) Local() netip.AddrPort { return c.ctl.end.local }

// Close ends the session.
func (c *Client) Close() {
	close(c.closed)
	c.wg.Wait()
	select {
	case <-c.lost:
	default:
		_ = c.send(&message{Type: mBye})
		c.ctl.flush(500 * time.Millisecond)
	}
	c.ctl.close()
}

// beat tells the server that the client is alive, and notices that the server is
// not.
func (c *Client) beat() {
	defer c.wg.Done()
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-c.closed:
			return
		case <-c.lost:
			return
		case <-t.C:
			_ = c.send(&message{Type: mBeat})
		}
	}
}

func (c *Client) send(m *message) error {
	m.V, m.Session = c.version, c.id
	return c.ctl.send(c.server, m, false)
}

// lose notes that the server is lost.
func (c *Client) lose(err error) {
	c.once.Do(func() {
		c.why = err
		close(c.lost)
	})
}

// message takes a control message.
func (c *Client) message(_ *ctl, _ netip.AddrPort, m *message) {
	switch {
	case m.Session != c.id, m.Type == mBeat:
	case m.Type == mRefuse && m.V != ProtocolVersion:
		c.lose(fmt.Errorf("refused by %v: %s", c.server, m.Error))
	default:
		select {
		case c.in <- m:
		default:
			c.lose(errors.New("the server floods the control channel"))
		}
	}
}

// await waits for a control message of a type.
func (c *Client) await(ctx context.Context, timeout time.Duration, kind string) (*message, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		select {
		case m := <-c.in:
			switch m.Type {
			case kind:
				return m, nil
			case mRefuse:
				return nil, fmt.Errorf("refused by %v: %s", c.server, m.Error)
			case mFail:
				return nil, errors.New(m.Error)
			}
		case <-c.lost:
			return nil, c.lostError()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
			return nil, unreachablef("no answer from %v within %v: is `uetperf serve` running there, and UDP port %d open in firewalls?", c.server, timeout, c.server.Port())
		}
	}
}

// lostError says that the server is lost.
func (c *Client) lostError() error {
	var oe *OpError
	if errors.As(c.why, &oe) {
		switch oe.Entry.Err {
		case fi.EHOSTUNREACH:
			return unreachablef("nothing listens at %v (UDP), or the host is gone: start `uetperf serve` there, or name its port", c.server)
		case fi.ETIMEDOUT:
			return unreachablef("no answer from %v within %v: is `uetperf serve` running there, and UDP port %d open in firewalls?", c.server, c.cfg.Timeout, c.server.Port())
		case fi.ECONNABORTED:
			return unreachablef("the server at %v has been restarted: %v", c.server, oe)
		}
	}
	return c.why
}

// Hooks are called while a run runs.
type Hooks struct {
	// Interval is called every Every with the messages so far and the time since
	// the start.
	Every    time.Duration
	Interval func(msgs int64, since time.Duration)
	// Reply is called for each round trip of a ping, from the leg's goroutine.
	Reply func(n int64, rtt time.Duration)
	// Ready is called when both ends are open, which took setup.
	Ready func(path record.Path, mtu int, setup time.Duration)
}

// A Result is what one run measured.
type Result struct {
	Run record.Run
	// Path is the client's way to the server, MTU the payload bytes per packet.
	Path record.Path
	MTU  int
	// Relay is what the relays did.
	Relay relay.Stats
}

// grace is how long an interrupted run may take to end in order.
const grace = 2 * time.Second

// A clientRun is a run under way.
type clientRun struct {
	c      *Client
	spec   *Spec
	id     int
	legs   []*leg
	relays []*relay.Relay
	wg     sync.WaitGroup
	events chan legEvent
	err    error
}

// Run runs one test. With an error the result has what was measured before it;
// context.Canceled: interrupted. The server is asked to run the same.
func (c *Client) Run(ctx context.Context, spec Spec, hooks Hooks) (*Result, error) {
	if err := spec.Validate(); err != nil {
		return nil, usagef("%v", err)
	}
	c.runs++
	r := &clientRun{c: c, spec: &spec, id: c.runs, events: newEvents(spec.Parallel)}
	defer r.close()
	begin := time.Now()
	addrs, err := r.open(hooks)
	if err != nil {
		return nil, err
	}
	if err := c.send(&message{Type: mPrepare, Run: r.id, Spec: &spec, Addrs: addrs}); err != nil {
		return nil, err
	}
	ready, err := c.await(ctx, c.cfg.Timeout, mReady)
	if err != nil {
		return nil, err
	}
	if err := r.connect(ready.Addrs); err != nil {
		return nil, err
	}
	res := &Result{}
	res.Path, res.MTU = r.legs[0].end.path(ready.Addrs[0])
	for _, l := range r.legs {
		if err := l.post(); err != nil {
			return nil, err
		}
	}
	setup := time.Since(begin)
	if hooks.Ready != nil {
		hooks.Ready(res.Path, res.MTU, setup)
	}
	if err := c.send(&message{Type: mGo, Run: r.id}); err != nil {
		return nil, err
	}
	err = r.drive(ctx, hooks)
	end := &message{Type: mEnd, Run: r.id}
	if err != nil {
		end.Error = oneLine(err)
	}
	var peer []LegResult
	wait := grace
	if err == nil {
		wait = c.cfg.Timeout
	}
	if e := c.send(end); e == nil {
		m, e := c.await(context.WithoutCancel(ctx), wait, mResult)
		switch {
		case e == nil && len(m.Results) == len(r.legs):
			peer = m.Results
		case err == nil && e == nil:
			err = errors.New("the server's result is incomplete")
		case err == nil:
			err = e
		}
	}
	res.Run = r.result(peer)
	res.Run.SetupNS = int64(setup)
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

// open opens the legs, and a relay for each if there is an impairment. It
// returns the addresses by which the server is to know the legs.
func (r *clientRun) open(hooks Hooks) ([]netip.AddrPort, error) {
	c, spec := r.c, r.spec
	info, err := infoTo(c.server, c.cfg.Domain, spec.hints())
	if err != nil {
		return nil, err
	}
	if spec.Op == Inject && spec.Size > int64(info.Tx.InjectSize) {
		return nil, usagef("%d bytes cannot be injected: at most %d", spec.Size, info.Tx.InjectSize)
	}
	var addrs []netip.AddrPort
	for i := range spec.Parallel {
		in := *info
		l, err := newLeg(spec, false, &in)
		if err != nil {
			return nil, fmt.Errorf("test endpoint: %w", err)
		}
		r.legs = append(r.legs, l)
		l.gate.Store(true)
		l.onReply = hooks.Reply
		l.sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
		l.complete = func() {}
		if c.cfg.Impair == nil {
			addrs = append(addrs, l.addr())
			continue
		}
		f := *c.cfg.Impair
		f.Seed ^= uint64(i) << 32
		x, err := relay.Open(relay.Config{Local: l.addr().Addr(), Faults: f, NoCRC: !spec.CRC})
		if err != nil {
			return nil, err
		}
		r.relays = append(r.relays, x)
		addrs = append(addrs, x.FacingServer())
	}
	return addrs, nil
}

// connect tells each leg where the other is.
func (r *clientRun) connect(remote []netip.AddrPort) error {
	if len(remote) != len(r.legs) {
		return fmt.Errorf("the server opened %d endpoints for %d streams", len(remote), len(r.legs))
	}
	for i, l := range r.legs {
		a := remote[i]
		if r.relays != nil {
			r.relays[i].Connect(l.addr(), a)
			a = r.relays[i].FacingClient()
		}
		if err := l.connect(a); err != nil {
			return err
		}
	}
	return nil
}

// drive runs the legs to their end.
func (r *clientRun) drive(ctx context.Context, hooks Hooks) error {
	done := make(chan struct{})
	for i, l := range r.legs {
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			if err := l.run(); err != nil && err != errAborted {
				r.events <- legEvent{leg: i, kind: mFail, err: err}
			}
		}()
	}
	go func() {
		r.wg.Wait()
		close(done)
	}()
	abort := func(err error) {
		if r.err == nil {
			r.err = err
		}
		for _, l := range r.legs {
			l.abort()
		}
	}
	var tick <-chan time.Time
	if hooks.Interval != nil && hooks.Every > 0 {
		t := time.NewTicker(hooks.Every)
		defer t.Stop()
		tick = t.C
	}
	begin := time.Now()
	interrupt, lost := ctx.Done(), r.c.lost
	var late <-chan time.Time
	for {
		select {
		case <-done:
			for { // what the legs said last
				select {
				case ev := <-r.events:
					if ev.err != nil && r.err == nil {
						r.err = ev.err
					}
				default:
					if r.err == nil {
						r.err = ctx.Err()
					}
					return r.err
				}
			}
		case ev := <-r.events:
			if ev.err != nil {
				abort(ev.err)
				continue
			}
			_ = r.c.send(&message{Type: ev.kind, Run: r.id, Leg: ev.leg, N: ev.n})
		case m := <-r.c.in:
			if m.Run != r.id && m.Run != 0 || m.Leg < 0 || m.Leg >= len(r.legs) {
				continue
			}
			l := r.legs[m.Leg]
			switch m.Type {
			case mSent:
				l.peerSent.Store(m.N)
				l.wake()
			case mDone:
				l.over.Store(true)
				l.wake()
			case mFail, mRefuse:
				abort(fmt.Errorf("at the server: %s", m.Error))
			}
		case <-lost:
			lost = nil
			abort(r.c.lostError())
		case <-interrupt:
			interrupt = nil
			for _, l := range r.legs {
				l.stop.Store(true)
				l.wake()
			}
			_ = r.c.send(&message{Type: mStop, Run: r.id})
			late = time.After(grace)
		case <-late:
			abort(ctx.Err())
		case <-tick:
			n := int64(0)
			for _, l := range r.legs {
				n += l.live.Load()
			}
			hooks.Interval(n, time.Since(begin))
		}
	}
}

// close closes what is open.
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
