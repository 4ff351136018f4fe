package perf

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/uet"
)

// Dial opens a session with a server. It fails with ErrUnreachable if no answer comes in
// time.
func Dial(ctx context.Context, server netip.AddrPort, cfg ClientConfig) (*Client, error) {
	return dialVersion(ctx, server, cfg, ProtocolVersion)
}

func dialVersion(ctx context.Context, server netip.AddrPort, cfg ClientConfig, version int) (*Client, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Silence <= 0 {
		cfg.Silence = Silence
	}
	dial := dialOther
	svc := serviceOf(&traffic.Spec{EP: cfg.EP, Sec: cfg.Sec})
	if svc == services[0] {
		dial = dialService
	}
	c, err := dial(ctx, server, svc, cfg, version)
	if errors.Is(err, ErrUnreachable) && ctx.Err() == nil {
		if first := before(ctx, server, cfg); first.IsValid() {
			err = &WrongPortError{server, first}
		}
	}
	return c, err
}

// before returns the first port of a server to which the port that was named belongs, too. Its
// port for probes tells; the zero AddrPort means that none answers.
func before(ctx context.Context, named netip.AddrPort, cfg ClientConfig) netip.AddrPort {
	info, err := infoTo(named, cfg.Domain, &uet.Info{})
	if err != nil {
		return netip.AddrPort{}
	}
	for i := 1; i <= ProbePort && i < int(named.Port()); i++ {
		first := netip.AddrPortFrom(named.Addr(), named.Port()-uint16(i))
		if int(first.Port())+ProbePort > 1<<16-1 {
			continue
		}
		a, err := probe.Open(info.SrcAddr.IP, cfg.DataPorts, netip.AddrPortFrom(first.Addr(), first.Port()+uint16(ProbePort)))
		if err != nil {
			continue
		}
		got, _ := a.Ask(ctx, probe.Question{ECN: probe.NotECT}, 1, probeTime)
		a.Close()
		if got.Arrived {
			return first
		}
	}
	return netip.AddrPort{}
}

// dialOther dials a service other than the first. If that takes long it asks the first
// service what the server offers, in order not to wait for a service that does not exist,
// and to give a better error.
func dialOther(ctx context.Context, server netip.AddrPort, svc service, cfg ClientConfig, version int) (*Client, error) {
	dctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	offers := sync.OnceValues(func() ([]string, error) {
		return ask(dctx, server, ClientConfig{Domain: cfg.Domain, DataPorts: cfg.DataPorts, Timeout: min(cfg.Timeout/2, askTime), Tap: cfg.Tap})
	})
	late := time.AfterFunc(min(cfg.Timeout/4, askAfter), func() {
		if o, err := offers(); err == nil && !slices.Contains(o, svc.String()) {
			cancel(svc.missed(server, o))
		}
	})
	c, err := dialService(dctx, server, svc, cfg, version)
	switch {
	case err == nil, !errors.Is(err, ErrUnreachable) && !errors.Is(err, context.Canceled), ctx.Err() != nil:
		if !late.Stop() {
			cancel(nil)
			_, _ = offers() // wait for the goroutine
		}
		return c, err
	}
	o, e := offers()
	var nobody *nobodyError
	switch {
	case e == nil:
		err = svc.missed(server, o)
	case errors.As(e, &nobody): // the port that the user named tells more than a port behind it
		err = &nobodyError{server, svc.serve()}
	}
	return nil, err
}

const (
	// askAfter is when the server is asked what it offers, askTime how long it may take to
	// answer.
	askAfter = 500 * time.Millisecond
	askTime  = 2 * time.Second
	// probeTime is how long the answer to one probe may take, which is asked for in vain five
	// times if there is no server.
	probeTime = 100 * time.Millisecond
)

// ask asks a server which services it offers.
func ask(ctx context.Context, server netip.AddrPort, cfg ClientConfig) ([]string, error) {
	c, err := newClient(server, services[0], cfg, ProtocolVersion)
	if err != nil {
		return nil, err
	}
	defer c.ctl.close()
	if err := c.send(&message{Type: mAsk}); err != nil {
		return nil, err
	}
	m, err := c.await(ctx, cfg.Timeout, mOffer)
	if err != nil {
		return nil, err
	}
	return m.Offers, nil
}

// newClient opens the control endpoint of a client. It sends nothing.
func newClient(server netip.AddrPort, svc service, cfg ClientConfig, version int) (*Client, error) {
	server = svc.at(server)
	c := &Client{
		cfg: cfg, svc: svc, server: server, id: rand.Uint64(), in: make(chan *message, 2*ctlQueue), lost: loss{is: make(chan struct{})}, closed: make(chan struct{}), version: version,
	}
	hints := svc.hints(ctlHints(max(cfg.Timeout, cfg.Silence)), cfg.Keys, cfg.Timeout, cfg.Silence)
	hints.Config.Tap = cfg.Tap
	hints.Config.Socket.Ports = uet.PortRange(cfg.DataPorts)
	info, err := infoTo(server, cfg.Domain, hints)
	if err != nil {
		return nil, err
	}
	info.SrcAddr.Port = cfg.port
	var only netip.AddrPort
	if svc.ep == traffic.MSG {
		only = server
	}
	c.ctl, err = openCtl(svc, info, only, c.message, func(_ *ctl, _ netip.AddrPort, _ undelivered, err error) { c.lose(err) })
	if err != nil {
		return nil, noPort("control endpoint", cfg.DataPorts, err)
	}
	return c, nil
}

// dialService opens a session with one service of a server.
func dialService(ctx context.Context, server netip.AddrPort, svc service, cfg ClientConfig, version int) (*Client, error) {
	begin := time.Now()
	c, err := newClient(server, svc, cfg, version)
	if err != nil {
		return nil, err
	}
	if svc.ep == traffic.MSG {
		if err := c.connect(ctx, c.ctl.end, call{Session: c.id, Silence: cfg.Silence}); err != nil {
			c.ctl.close()
			return nil, err
		}
		c.dialed.connected = time.Since(begin)
	}
	if err := c.greet(ctx); err != nil {
		c.ctl.close()
		return nil, err
	}
	c.dialed.took, c.dialed.open = time.Since(begin), true
	c.wg.Add(1)
	go c.beat()
	return c, nil
}

// greet sends hello and waits for the welcome.
func (c *Client) greet(ctx context.Context) error {
	h, t := ThisHost(), ThisTool()
	if err := c.send(&message{Type: mHello, Host: &h, Tool: &t, Mesh: c.cfg.mesh}); err != nil {
		return err
	}
	m, err := c.await(ctx, c.cfg.Timeout, mWelcome)
	if err != nil {
		return err
	}
	if m.Host != nil {
		c.dialed.host = *m.Host
	}
	if m.Tool != nil {
		c.dialed.tool = *m.Tool
	}
	c.dialed.mesh = m.Mesh
	c.dialed.facts, c.dialed.jobs, c.dialed.ports = slices.Contains(m.Can, mFacts), slices.Contains(m.Can, canJob), slices.Contains(m.Can, canShare)
	return nil
}

// connect connects an endpoint to the server within the timeout.
func (c *Client) connect(ctx context.Context, e *end, to call) error {
	to.V = c.version
	begin := time.Now()
	err := c.tryConnect(ctx, e, to)
	var no *ConnectError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &no):
		return c.refused(no, time.Since(begin))
	case isClosed(c.lost.is):
		return c.lostError()
	case errors.Is(err, context.DeadlineExceeded):
		return c.silent(c.cfg.Timeout)
	}
	return err
}

// tryConnect connects an endpoint, and gives up if the server is lost meanwhile.
func (c *Client) tryConnect(ctx context.Context, e *end, to call) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	lost := make(chan struct{})
	defer func() { <-lost }()
	defer cancel()
	go func() {
		defer close(lost)
		select {
		case <-c.lost.is:
			cancel()
		case <-ctx.Done():
		}
	}()
	return e.connect(ctx, c.server, to)
}
