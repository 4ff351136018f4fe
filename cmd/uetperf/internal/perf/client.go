package perf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A ClientConfig describes a client.
type ClientConfig struct {
	// EP and Sec are endpoint type and security of all that the client does, of its
	// control exchange too: "" is rdm and off. Keys are what Sec needs.
	EP, Sec string
	Keys    *uet.Security
	Domain  string // interface; "": the one that leads to the server
	// Timeout is how long the server may take to answer; 0: 10 s.
	Timeout time.Duration
	// Silence is how long it may be silent after that; 0: Silence.
	Silence time.Duration
	// Impair, if not nil, puts a relay with these faults between the test
	// endpoints.
	Impair *relay.Faults
	// Tap, if not nil, sees the datagrams of all endpoints of the client.
	Tap func(*uet.Tapped)
	// port, if not 0, is that of the control endpoint, for tests.
	port uint16
}

// A Client is a session with a server.
type Client struct {
	cfg    ClientConfig
	svc    service
	server netip.AddrPort // where the service is
	ctl    *ctl
	id     uint64
	host   record.Host
	tool   record.Tool
	setup  time.Duration
	// connected is how long the control connection took, of setup.
	connected time.Duration
	open      bool // Dial has succeeded
	runs      int
	facts     bool // the server tells them
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
	if cfg.Silence <= 0 {
		cfg.Silence = Silence
	}
	svc := serviceOf(&traffic.Spec{EP: cfg.EP, Sec: cfg.Sec})
	if svc == services[0] {
		return dialService(ctx, server, svc, cfg, version)
	}
	return dialOther(ctx, server, svc, cfg, version)
}

// dialOther dials a service that is not the first. When that takes long the server is
// asked at the first what it has: a service that is not there need not be waited for,
// and a failure can be told better.
func dialOther(ctx context.Context, server netip.AddrPort, svc service, cfg ClientConfig, version int) (*Client, error) {
	dctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	offers := sync.OnceValues(func() ([]string, error) {
		return ask(dctx, server, ClientConfig{Domain: cfg.Domain, Timeout: min(cfg.Timeout/2, askTime), Tap: cfg.Tap})
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
			_, _ = offers() // ends before we do
		}
		return c, err
	}
	o, e := offers()
	var nobody *nobodyError
	switch {
	case e == nil:
		err = svc.missed(server, o)
	case errors.As(e, &nobody): // of the port that was named, which says more than a port behind it
		err = &nobodyError{server, svc.serve()}
	}
	return nil, err
}

const (
	// askAfter is when a server is asked what it offers, askTime how long it may
	// take to say.
	askAfter = 500 * time.Millisecond
	askTime  = 2 * time.Second
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

// missed says why a service cannot be reached though the server is there and offers
// others.
func (v service) missed(server netip.AddrPort, offers []string) error {
	at := v.at(server)
	switch {
	case !slices.Contains(offers, v.String()) && v.sec != traffic.Off:
		return fmt.Errorf("the server at %v has no keys for --sec %s: start it with `uetperf serve --keys FOLDER`", server, v.sec)
	case !slices.Contains(offers, v.String()):
		return fmt.Errorf("the server at %v does not offer %v: use the same release at both ends", server, v)
	case v == service{traffic.RDM, traffic.PSK}:
		// Who has another key hears nothing and is not heard.
		return unreachablef("the server at %v does not answer at %v: has its --keys FOLDER the same cluster.key, and is there no firewall or NAT in between?", server, at)
	}
	return unreachablef("the server at %v does not answer at %v (UDP): is the port open in firewalls?", server, at)
}

// newClient opens the control endpoint of a client. Nothing comes before it says
// something.
func newClient(server netip.AddrPort, svc service, cfg ClientConfig, version int) (*Client, error) {
	server = svc.at(server)
	c := &Client{
		cfg: cfg, svc: svc, server: server, id: rand.Uint64(), in: make(chan *message, 8*traffic.MaxParallel), lost: make(chan struct{}), closed: make(chan struct{}), version: version,
	}
	hints := svc.hints(ctlHints(max(cfg.Timeout, cfg.Silence)), cfg.Keys, cfg.Timeout, cfg.Silence)
	hints.Config.Tap = cfg.Tap
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
		return nil, fmt.Errorf("control endpoint: %w", err)
	}
	return c, nil
}

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
		c.connected = time.Since(begin)
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
	c.setup, c.open = time.Since(begin), true
	if m.Host != nil {
		c.host = *m.Host
	}
	if m.Tool != nil {
		c.tool = *m.Tool
	}
	c.facts = slices.Contains(m.Can, mFacts)
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

// Connected is how long the connection for control took, of Setup; 0 without one.
func (c *Client) Connected() time.Duration { return c.connected }

// connect connects an endpoint to the server, within the timeout.
func (c *Client) connect(ctx context.Context, e *end, to call) error {
	cctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	lost := make(chan struct{})
	defer func() { <-lost }()
	defer cancel()
	go func() {
		defer close(lost)
		select {
		case <-c.lost:
			cancel()
		case <-cctx.Done():
		}
	}()
	to.V = c.version
	begin := time.Now()
	err := e.connect(cctx, c.server, to)
	var no *ConnectError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &no):
		return c.refused(no, time.Since(begin))
	case isClosed(c.lost):
		return c.lostError()
	case errors.Is(err, context.DeadlineExceeded):
		return c.silent(c.cfg.Timeout)
	}
	return err
}

// refused says why there is no connection.
func (c *Client) refused(e *ConnectError, after time.Duration) error {
	switch {
	case e.Err == fi.ECONNREFUSED && e.Text != "":
		return fmt.Errorf("refused by %v: %s", c.server, e.Text)
	case e.Err == fi.ETIMEDOUT && after < c.cfg.Timeout: // the server said so
		return c.silent(after.Round(time.Millisecond))
	case e.Err == fi.ETIMEDOUT:
		return c.silent(c.cfg.Timeout)
	case Unreachable(e.Err):
		return c.nobody()
	}
	if e.Err == fi.EKEYREJECTED {
		text := e.Text[strings.LastIndex(e.Text, "cm: ")+len("cm: "):]
		text, _, _ = strings.Cut(text, " (possibly because")
		text = cryptoError.ReplaceAllString(text, "")
		return fmt.Errorf("no connection to %v: %s; are the --keys of both ends from one `uetperf keys`, not expired, and is nobody removed?", c.server, text)
	}
	return fmt.Errorf("no connection to %v: %s", c.server, e.Text)
}

// cryptoError is a number before what it means.
var cryptoError = regexp.MustCompile(`CRYPTO_ERROR 0x[0-9a-f]+ \((local|remote)\): `)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

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
// not. It counts seconds in which it ran: while this process is stopped, the
// server has no chance to answer.
func (c *Client) beat() {
	defer c.wg.Done()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	arrived, quiet := c.ctl.arrived.Load(), 0
	most := seconds(max(c.cfg.Silence, silenceLeast))
	for n := 1; ; n++ {
		select {
		case <-c.closed:
			return
		case <-c.lost:
			return
		case <-t.C:
		}
		if n%int(beatEvery/time.Second) == 0 {
			_ = c.send(&message{Type: mBeat})
		}
		quiet++
		if now := c.ctl.arrived.Load(); now != arrived {
			arrived, quiet = now, 0
		}
		if quiet >= most {
			c.lose(c.silent(time.Duration(most) * time.Second))
			return
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
	case m.Session != c.id, m.Type == mBeat, isClosed(c.lost): // what follows an end is no answer
	case m.Type == mRefuse && m.V != ProtocolVersion:
		c.lose(fmt.Errorf("refused by %v: %s", c.server, m.Error))
	case m.Type == mFail && m.Run == 0: // not of a leg: no result follows, nor anything else
		c.lose(unreachablef("%v ended the session: %s", c.server, strings.TrimPrefix(m.Error, sessionEnded)))
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
			return nil, c.silent(timeout)
		}
	}
}

// lostError says that the server is lost: one that was never there, or one that
// was.
func (c *Client) lostError() error {
	var oe *OpError
	if errors.As(c.why, &oe) {
		switch oe.Entry.Err {
		case fi.EHOSTUNREACH:
			return c.nobody()
		case fi.ETIMEDOUT:
			return c.silent(c.cfg.Timeout)
		case fi.ECONNABORTED:
			return unreachablef("the server at %v has been restarted: %v", c.server, oe)
		case fi.ESHUTDOWN:
			return unreachablef("the server at %v closed the connection: it ended, or does not let this member in any more", c.server)
		case fi.EKEYREJECTED:
			return fmt.Errorf("the connection to %v was ended: one of its ends was removed, or its key is no longer good", c.server)
		}
	}
	return c.why
}

// nobody says that the server's port is closed.
func (c *Client) nobody() error {
	if c.open {
		return unreachablef("nothing listens at %v (UDP) any more, or the host is gone", c.server)
	}
	return &nobodyError{c.server, c.svc.serve()}
}

// A nobodyError says that no server was ever at an address: its port is closed.
type nobodyError struct {
	at    netip.AddrPort
	serve string
}

func (e *nobodyError) Error() string {
	return fmt.Sprintf("nothing listens at %v (UDP), or the host is gone: start `%s` there, or name its port", e.at, e.serve)
}

func (e *nobodyError) Is(target error) bool { return target == ErrUnreachable }

// silent says that the server does not answer.
func (c *Client) silent(timeout time.Duration) error {
	if c.open {
		return unreachablef("no answer from %v for %v", c.server, timeout)
	}
	return unreachablef("no answer from %v within %v: is `%s` running there, and UDP port %d open in firewalls?", c.server, timeout, c.svc.serve(), c.server.Port())
}

// serve is the command that should run at a server.
func (v service) serve() string {
	if v.sec != traffic.Off {
		return "uetperf serve --keys FOLDER"
	}
	return "uetperf serve"
}

// Hooks are called while a run runs.
type Hooks struct {
	// Interval is called every Every with the messages so far and the time since
	// the start.
	Every    time.Duration
	Interval func(msgs int64, since time.Duration)
	// Reply is called for each round trip of a ping, from the leg's goroutine.
	Reply func(n int64, rtt time.Duration)
	// Ready is called when both ends are open, which took setup; of this, connected
	// was the time that connections took, 0 without.
	Ready func(path record.Path, mtu int, setup, connected time.Duration)
}

// A Result is what one run measured.
type Result struct {
	Run record.Run
	// Path is the client's way to the server, MTU the payload bytes per packet.
	Path record.Path
	MTU  int
	// Relay is what the relays did.
	Relay relay.Stats
	// Stalled is for how long nothing went on, in whole seconds; Waiting and
	// PeerWaiting are what the operations of both ends waited for then: of the
	// server only if the run failed.
	Stalled              time.Duration
	Waiting, PeerWaiting []string
}

// grace is how long an interrupted run may take to end in order.
const grace = 2 * time.Second

// A clientRun is a run under way.
type clientRun struct {
	c      *Client
	spec   *traffic.Spec
	id     int
	legs   []*leg
	relays []*relay.Relay
	// connected is how long the slowest connection took.
	connected time.Duration
	wg        sync.WaitGroup
	events    chan legEvent
	err       error
	series    *series
	spread    traffic.Spread // of an incast
	stall     stall
}

// Run runs one test. With an error the result has what was measured before it;
// context.Canceled: interrupted. The server is asked to run the same.
func (c *Client) Run(ctx context.Context, spec traffic.Spec, hooks Hooks) (*Result, error) {
	spec.EP, spec.Sec = c.svc.ep, c.svc.sec
	if err := spec.Validate(); err != nil {
		return nil, usagef("%v", err)
	}
	if c.cfg.Impair != nil && c.svc != services[0] {
		return nil, usagef("a relay changes addresses, which %v endpoints do not let pass", c.svc)
	}
	if spec.Sample == 0 {
		spec.Sample = spec.Sampling()
	}
	c.runs++
	r := &clientRun{c: c, spec: &spec, id: c.runs, events: newEvents(spec.Parallel), series: newSeries(spec.Sample)}
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
	if err := r.connect(ctx, ready.Addrs); err != nil {
		return nil, err
	}
	res := &Result{}
	res.Path, res.MTU = r.legs[0].end.path(r.legs[0].remote)
	for _, l := range r.legs {
		if err := l.Start(); err != nil {
			return nil, err
		}
	}
	setup := time.Since(begin)
	if hooks.Ready != nil {
		hooks.Ready(res.Path, res.MTU, setup, r.connected)
	}
	if err := c.send(&message{Type: mGo, Run: r.id}); err != nil {
		return nil, err
	}
	err = c.reason(r.drive(ctx, hooks))
	end := &message{Type: mEnd, Run: r.id}
	if err != nil {
		end.Error = oneLine(err)
	}
	var peer []traffic.LegResult
	var theirs []record.Sample
	wait := grace
	switch {
	case err == nil:
		wait = c.cfg.Timeout
	case Unreachable(err):
		wait = grace / 4 // unless only the way of the test is broken, nobody answers
	}
	if e := c.send(end); e == nil {
		m, e := c.await(context.WithoutCancel(ctx), wait, mResult)
		switch {
		case e == nil && len(m.Results) == len(r.legs):
			peer, theirs = m.Results, unpack(m.Series)
		case err == nil && e == nil:
			err = errors.New("the server's result is incomplete")
		case err == nil:
			err = e
		}
	}
	res.Run = traffic.Result(&spec, r.ends(), peer, &r.spread)
	if mine := r.series.samples; len(mine) > 1 { // one sample is no series
		res.Run.Series = merge(mine, theirs, !spec.Sends(false))
	}
	res.Waiting, res.Stalled = r.stall.said, r.stall.long
	for _, p := range peer {
		for _, s := range p.Waiting {
			if !slices.Contains(res.PeerWaiting, s) {
				res.PeerWaiting = append(res.PeerWaiting, s)
			}
		}
	}
	res.Run.SetupNS, res.Run.ConnectNS = int64(setup), int64(r.connected)
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

// lastWord is how long after a connection of a test that of control may end.
const lastWord = 500 * time.Millisecond

// reason is err, or what is behind it: when all connections of the client end, the
// one for control knows why.
func (c *Client) reason(err error) error {
	if err == nil || c.svc.ep != traffic.MSG || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	t := time.NewTimer(lastWord)
	defer t.Stop()
	select {
	case <-c.lost:
		return c.lostError()
	case <-t.C:
		return err
	}
}

// open opens the legs, and a relay for each if there is an impairment. It
// returns the addresses by which the server is to know the legs.
func (r *clientRun) open(hooks Hooks) ([]netip.AddrPort, error) {
	c, spec := r.c, r.spec
	h := hints(spec, c.cfg.Keys, c.cfg.Timeout, c.cfg.Silence)
	h.Config.Tap = c.cfg.Tap
	info, err := infoTo(c.server, c.cfg.Domain, h)
	if err != nil {
		return nil, err
	}
	if spec.Op == traffic.Inject && spec.Size > int64(info.Tx.InjectSize) {
		return nil, usagef("%d bytes cannot be injected: at most %d", spec.Size, info.Tx.InjectSize)
	}
	group := traffic.NewGroup(spec, false, func() {
		for _, l := range r.legs {
			l.wake()
		}
	})
	var addrs []netip.AddrPort
	for i := range spec.Parallel {
		in := *info
		l, err := newLeg(spec, i, false, &in, group)
		if err != nil {
			return nil, fmt.Errorf("test endpoint: %w", err)
		}
		r.legs = append(r.legs, l)
		l.Gate.Store(true)
		if spec.Churn && spec.EP == traffic.MSG {
			l.dial = func(ctx context.Context) (*end, error) { return r.dial(ctx, info, i) }
		}
		l.Reply = hooks.Reply
		l.Sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
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

// ends are the legs as their tests see them.
func (r *clientRun) ends() []*traffic.Leg {
	var v []*traffic.Leg
	for _, l := range r.legs {
		v = append(v, l.Leg)
	}
	return v
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

// total is what there is so far, and what congestion control says of the leg with
// most in flight.
func (r *clientRun) total() (t total, cwnd int, rtt time.Duration) {
	t, cwnd, rtt = sample(slices.Values(r.legs))
	for _, l := range r.legs {
		t.msgs += l.Live.Load()
	}
	t.bytes = t.msgs * r.spec.Size
	return t, cwnd, rtt
}

// sample is what the endpoints of legs have counted.
func sample(legs iter.Seq[*leg]) (t total, cwnd int, rtt time.Duration) {
	most := -1
	for l := range legs {
		c := l.counters()
		t.count(&c)
		if g := l.end.ep.Load(); g.Window > 0 && g.InFlight > most {
			most, cwnd, rtt = g.InFlight, g.Window, g.RTT
		}
	}
	return t, cwnd, rtt
}

// look notes what each sender of an incast has sent.
func (r *clientRun) look(at time.Duration) {
	sent := make([]float64, len(r.legs))
	for i, l := range r.legs {
		sent[i] = float64(l.end.ep.Stats().TxBytes)
	}
	r.spread.Add(at, sent)
}

// connect tells each leg where the other is.
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
			r.relays[i].Connect(l.addr(), a)
			a = r.relays[i].FacingClient()
		}
		if err := l.connect(a); err != nil {
			return err
		}
	}
	return nil
}

// connectAll connects the legs, all at once.
func (r *clientRun) connectAll(ctx context.Context) error {
	begin := time.Now()
	errs := make([]error, len(r.legs))
	took := make([]time.Duration, len(r.legs))
	var wg sync.WaitGroup
	for i, l := range r.legs {
		wg.Go(func() {
			errs[i] = r.c.connect(ctx, l.end, call{Session: r.c.id, Run: r.id, Leg: i})
			took[i] = time.Since(begin)
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return err
		}
		r.connected = max(r.connected, took[i])
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

// drive runs the legs to their end.
func (r *clientRun) drive(ctx context.Context, hooks Hooks) error {
	done := make(chan struct{})
	for i, l := range r.legs {
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			if err := l.run(); err != nil && err != traffic.ErrAborted {
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
	r.stall.legs = r.legs
	stalled := time.NewTicker(stallEvery)
	defer stalled.Stop()
	begin := time.Now()
	var taste, look <-chan time.Time
	if r.spec.Sample > 0 {
		t := time.NewTicker(r.spec.Sample)
		defer t.Stop()
		taste = t.C
		defer func() {
			t, cwnd, rtt := r.total()
			r.series.end(time.Since(begin), t, cwnd, rtt)
		}()
	}
	if r.spec.Test == traffic.Incast {
		t := time.NewTicker(r.spec.SpreadEvery())
		defer t.Stop()
		look = t.C
		r.look(0)
	}
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
				l.PeerSent.Store(m.N)
				l.wake()
			case mDone:
				l.Over.Store(true)
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
				l.Stop.Store(true)
				l.wake()
			}
			_ = r.c.send(&message{Type: mStop, Run: r.id})
			late = time.After(grace)
		case <-late:
			abort(ctx.Err())
		case <-taste:
			t, cwnd, rtt := r.total()
			r.series.add(time.Since(begin), t, cwnd, rtt)
		case <-look:
			if at := time.Since(begin); r.legs[0].Group.Round() == 0 && at < r.spec.Time/2 {
				r.look(at)
			}
		case <-stalled.C:
			r.stall.look()
		case <-tick:
			n := int64(0)
			for _, l := range r.legs {
				n += l.Live.Load()
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
