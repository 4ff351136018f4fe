package perf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// Keys secure the endpoints of a server; nil: no such service.
type Keys struct{ PSK, TLS *uet.Security }

func (k *Keys) of(svc service) *uet.Security {
	switch svc.sec {
	case traffic.PSK:
		return k.PSK
	case traffic.TLS:
		return k.TLS
	}
	return nil
}

// ServerConfig describes a server.
type ServerConfig struct {
	// Listen is the address of the control endpoint. Without an IP address the
	// server listens on all addresses of the host, without a port on the
	// well-known one; AnyPort takes an ephemeral one.
	Listen  netip.AddrPort
	AnyPort bool
	// Keys are what the secured services need; without them there are none.
	Keys Keys
	// Domain, if not "", is the interface whose addresses are listened on.
	Domain string
	// MaxClients is how many clients are served at once; 0: 64.
	MaxClients int
	// Once ends Serve when the first client is gone; there is no second beside
	// it.
	Once bool
	// Tap, if not nil, sees the datagrams of all endpoints of the server.
	Tap func(*uet.Tapped)
	// Opened and Closed, if not nil, hear of each endpoint, which is of the kind
	// "control" or "test"; from any goroutine.
	Opened func(ep *uet.Endpoint, kind string)
	Closed func(ep *uet.Endpoint)
	// Listening, if not nil, hears of each passive endpoint that stays open until
	// Close.
	Listening func(*uet.PassiveEndpoint)
	// Log, if not nil, hears of clients and tests, Warn of what does not work;
	// both from any goroutine.
	Log, Warn func(format string, args ...any)
	// Pretend is for tests.
	Pretend Pretend
}

const defaultMaxClients = 64

// A Server runs the other end of clients' tests.
type Server struct {
	cfg       ServerConfig
	ctls      []*ctl // not of connections
	listeners []*listener
	echoes    []*probe.Echo
	addrs     []netip.AddrPort // of the first service, where users find the server

	mu       sync.Mutex // guards sessions
	sessions map[sessionKey]*session
	closed   bool // no sessions any more
	wg       sync.WaitGroup
	held     resources
	first    chan struct{} // closed when the first session has ended
	once     sync.Once
}

type sessionKey struct {
	ctl  *ctl
	addr netip.AddrPort
}

// NewServer opens the control endpoints.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.MaxClients == 0 {
		cfg.MaxClients = defaultMaxClients
	}
	if cfg.Once {
		cfg.MaxClients = 1
	}
	if cfg.Log == nil {
		cfg.Log = func(string, ...any) {}
	}
	if cfg.Opened == nil {
		cfg.Opened = func(*uet.Endpoint, string) {}
	}
	if cfg.Closed == nil {
		cfg.Closed = func(*uet.Endpoint) {}
	}
	if cfg.Warn == nil {
		cfg.Warn = func(string, ...any) {}
	}
	s := &Server{cfg: cfg, sessions: map[sessionKey]*session{}, first: make(chan struct{})}
	port := cfg.Listen.Port()
	if port == 0 && !cfg.AnyPort {
		port = wire.Port
	}
	if int(port)+Ports-1 > 1<<16-1 {
		return nil, usagef("port %d leaves no room for the %d ports of a server: take at most %d", port, Ports, 1<<16-Ports)
	}
	hints := s.hints(services[0])
	node := ""
	if ip := cfg.Listen.Addr(); ip.IsValid() && !ip.IsUnspecified() {
		node = ip.String()
	}
	infos, err := uet.GetInfo(node, fmt.Sprint(port), fi.Source, hints)
	if err != nil {
		return nil, explain(err, node, cfg.Domain)
	}
	if cfg.Listen.Addr() == netip.IPv4Unspecified() { // which says IPv4; :: is both, as elsewhere
		infos = slices.DeleteFunc(infos, func(in *uet.Info) bool { return !in.SrcAddr.IP.Is4() })
		if len(infos) == 0 {
			return nil, usagef("no interface has an IPv4 address")
		}
	}
	var failed error
	var refused []error
	for _, info := range infos {
		if err := s.open(netip.AddrPortFrom(info.SrcAddr.IP, info.SrcAddr.Port)); err != nil {
			failed = err
			refused = append(refused, failed)
		}
	}
	if len(s.addrs) == 0 {
		if errors.Is(failed, fi.EADDRINUSE) {
			return nil, fmt.Errorf("%w: does a server run already? another port: --listen %s", failed, otherPort(node, port))
		}
		return nil, failed
	}
	for _, err := range refused {
		cfg.Warn("%v", err)
	}
	return s, nil
}

// otherPort is what to listen on instead of a port and those behind it.
func otherPort(node string, port uint16) string {
	next := max(int(port)+ProbePort+1, 1024)
	if next+ProbePort > 1<<16-1 {
		next = 0 // any
	}
	return net.JoinHostPort(node, strconv.Itoa(next))
}

// noListening says why there is no socket at an address: what the system said, once.
func noListening(at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, fi.EADDRINUSE):
		err = fi.EADDRINUSE
	case errors.Is(err, fi.EACCES) && at.Port() < 1024:
		return fmt.Errorf("cannot listen on %v: %w: ports below 1024 are of root: take another one by --listen", at, fi.EACCES)
	case errors.Is(err, fi.EACCES):
		err = fi.EACCES
	}
	return fmt.Errorf("cannot listen on %v: %w", at, err)
}

// hints ask for the control endpoints of a service.
func (s *Server) hints(svc service) *uet.Info {
	h := ctlHints(beatLost)
	h.Domain.Name = s.cfg.Domain
	h.Config.Tap = s.cfg.Tap
	return svc.hints(h, s.cfg.Keys.of(svc), acceptTime, traffic.MaxSilence)
}

// anyTries is how often a free port is looked for that has free ports behind it.
const anyTries = 100

// open opens all services at an address, or none.
func (s *Server) open(at netip.AddrPort) error {
	if at.Port() != 0 {
		return s.openAt(at)
	}
	for try := 1; ; try++ {
		err := s.openAt(at)
		if err == nil || try == anyTries || !errors.Is(err, fi.EADDRINUSE) {
			return err
		}
	}
}

func (s *Server) openAt(at netip.AddrPort) (err error) {
	ctls, listeners := len(s.ctls), len(s.listeners)
	defer func() {
		if err != nil {
			for _, c := range s.ctls[ctls:] {
				c.close()
				s.cfg.Closed(c.end.ep)
			}
			for _, l := range s.listeners[listeners:] {
				l.close()
			}
			s.ctls, s.listeners = s.ctls[:ctls], s.listeners[:listeners]
		}
	}()
	first := at
	for _, svc := range services {
		if svc.sec != traffic.Off && s.cfg.Keys.of(svc) == nil {
			continue
		}
		here := at
		if first.Port() != 0 {
			here = svc.at(first)
		}
		infos, err := uet.GetInfo(here.Addr().String(), fmt.Sprint(here.Port()), fi.Source|uet.NumericHost, s.hints(svc))
		if err != nil {
			return fmt.Errorf("cannot listen on %v for %v: %w", here, svc, err)
		}
		if svc.ep == traffic.MSG {
			l, err := listen(infos[0], svc, s.called)
			if err != nil {
				return noListening(here, err)
			}
			s.listeners = append(s.listeners, l)
			continue
		}
		c, err := openCtl(svc, infos[0], netip.AddrPort{}, s.message, s.lost)
		if err != nil {
			return noListening(here, err)
		}
		s.cfg.Opened(c.end.ep, "control")
		s.ctls = append(s.ctls, c)
		if svc == services[0] {
			if first = c.end.local; int(first.Port())+Ports-1 > 1<<16-1 {
				return fi.EADDRINUSE
			}
		}
	}
	s.addrs = append(s.addrs, first)
	s.openEcho(first)
	if s.cfg.Listening != nil {
		for _, l := range s.listeners[listeners:] {
			s.cfg.Listening(l.pep)
		}
	}
	return nil
}

// Clients is how many clients are being served.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Addrs are the addresses that clients can use.
func (s *Server) Addrs() []netip.AddrPort { return s.addrs }

// Services says what there is behind each address, by the distance of its port.
func (s *Server) Services() []string {
	out := make([]string, Ports)
	for i, svc := range services {
		if svc.sec == traffic.Off || s.cfg.Keys.of(svc) != nil {
			out[i] = svc.String()
		}
	}
	return out
}

// Serve serves until ctx is done, or the first client is gone with Once.
func (s *Server) Serve(ctx context.Context) {
	once := s.first
	if !s.cfg.Once {
		once = nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-once:
			return
		case <-tick.C:
			s.mu.Lock()
			for _, ss := range s.sessions {
				switch ss.quiet++; {
				case ss.quiet > ss.patience:
					ss.end(fmt.Sprintf("not heard of for %ds", ss.patience))
				case ss.quiet >= seconds(beatLate):
					_ = ss.send(&message{Type: mBeat}) // lost hears if nobody is there
				}
			}
			s.mu.Unlock()
		}
	}
}

// Close ends all tests and closes the endpoints.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, ss := range s.sessions {
		ss.end("the server was stopped")
	}
	s.mu.Unlock()
	s.wg.Wait()
	for _, l := range s.listeners {
		l.close()
	}
	for _, e := range s.echoes {
		e.Close()
	}
	for _, c := range s.ctls {
		c.flush(500 * time.Millisecond)
		c.close()
		s.cfg.Closed(c.end.ep)
	}
}

// message handles what came to a control endpoint.
func (s *Server) message(c *ctl, from netip.AddrPort, m *message) {
	refuse := func(format string, args ...any) {
		_ = c.send(from, &message{V: ProtocolVersion, Type: mRefuse, Session: m.Session, Error: fmt.Sprintf(format, args...)}, true)
	}
	if m.V != s.protocol() {
		refuse("version mismatch: the server (uetperf %s) speaks protocol %d, the client %d: use the same release at both ends", Version, s.protocol(), m.V)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := sessionKey{c, from}
	ss := s.sessions[k]
	if c.remote.IsValid() && (ss == nil || m.Session != ss.id) {
		return // a connection has one session
	}
	if ss != nil && m.Session != ss.id && m.Type == mHello {
		ss.end("replaced by a new client with its address")
		ss = nil
	}
	switch {
	case ss != nil && m.Session == ss.id:
		ss.quiet = 0
		if m.Type == mBeat {
			return
		}
		select {
		case ss.in <- m:
		default:
			ss.end("it floods the control channel")
		}
	case m.Type == mAsk:
		_ = c.send(from, &message{V: ProtocolVersion, Type: mOffer, Session: m.Session, Offers: s.Services()}, true)
	case m.Type != mHello:
		if m.Type != mBye && m.Type != mEnd {
			refuse("the server does not know this client (any more): was it restarted?")
		}
	case s.full() != "":
		s.cfg.Log("%v refused: %d clients are being served", from, len(s.sessions))
		refuse("%s", s.full())
	default:
		ss = s.newSession(k, m.Session)
		ss.in <- m
		go ss.run(k)
	}
}

// full says why there is no room for another client, "" if there is. The lock is held.
func (s *Server) full() string {
	switch n := len(s.sessions); {
	case n < s.cfg.MaxClients:
		return ""
	case s.cfg.Once:
		return "the server serves one client (--once), and has it"
	default:
		return fmt.Sprintf("the server is busy with %s, its --max-clients: try later", units.Plural(n, "client"))
	}
}

// newSession makes a session, which run has to follow. The lock is held.
func (s *Server) newSession(k sessionKey, id uint64) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	ss := &session{
		srv: s, ctl: k.ctl, addr: k.addr, id: id, patience: seconds(beatLost), in: make(chan *message, 4*traffic.MaxParallel), calls: make(chan *incoming, traffic.MaxParallel),
		ctx: ctx, cancel: cancel,
	}
	s.sessions[k] = ss
	s.wg.Add(1)
	return ss
}

// An incoming is a request for the connection of a leg.
type incoming struct {
	*listener
	info *uet.Info
	call call
}

func (in *incoming) reject(format string, args ...any) { in.listener.reject(in.info, format, args...) }

// called handles a request for a connection: a new client's, or for a leg.
func (s *Server) called(l *listener, info *uet.Info, c call) {
	in := &incoming{l, info, c}
	if c.V != ProtocolVersion {
		in.reject("version mismatch: the server (uetperf %s) speaks protocol %d, the client %d: use the same release at both ends", Version, ProtocolVersion, c.V)
		return
	}
	from := info.Handle.(*uet.ConnReq).Remote().AddrPort()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Run == 0 {
		s.meet(in, from)
		return
	}
	for _, ss := range s.sessions {
		// Each leg's connection was as authenticated as that of the session.
		if ss.id == c.Session && ss.ctl.svc == l.svc && ss.addr.Addr() == from.Addr() {
			select {
			case ss.calls <- in:
			default:
				in.reject("too many connections are asked for")
			}
			return
		}
	}
	in.reject("the server does not know this client (any more): was it restarted?")
}

// meet opens the control endpoint of a new client. The lock is held.
func (s *Server) meet(in *incoming, from netip.AddrPort) {
	why := s.full()
	if s.closed {
		why = "the server ends"
	}
	if why != "" {
		s.cfg.Log("%v refused: %s", from, why)
		in.reject("%s", why)
		return
	}
	hints := s.hints(in.svc)
	hints.Config.Tuning.PeerTimeout = min(max(beatLost, in.call.Silence), traffic.MaxSilence)
	info, err := in.open(hints)
	var c *ctl
	if err == nil {
		c, err = openCtl(in.svc, info, from, s.message, s.lost)
	}
	if err != nil {
		s.cfg.Warn("no control endpoint for %v: %v", from, err)
		in.reject("the server cannot open an endpoint: %s", oneLine(err))
		return
	}
	s.cfg.Opened(c.end.ep, "control")
	k := sessionKey{c, from}
	go s.newSession(k, in.call.Session).run(k)
}

// open describes the endpoint for the request.
func (in *incoming) open(hints *uet.Info) (*uet.Info, error) {
	infos, err := uet.GetInfo(in.local.Addr().String(), "", fi.Source|uet.NumericHost, hints)
	if err != nil {
		return nil, fmt.Errorf("the server's interface cannot do that: %w", err)
	}
	info := infos[0]
	info.SrcAddr.Port = 0
	info.Handle, info.DestAddr = in.info.Handle, in.info.DestAddr
	return info, nil
}

// lost handles a control message that could not be delivered.
func (s *Server) lost(c *ctl, to netip.AddrPort, what undelivered, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss := s.sessions[sessionKey{c, to}]
	switch {
	case ss == nil || ss.id != what.session && !c.remote.IsValid():
	case what.beat && errors.Is(err, fi.ETIMEDOUT) && ss.quiet <= ss.patience: // the next one may arrive
	default:
		ss.end(err.Error())
	}
}

// A session is one client.
type session struct {
	srv  *Server
	ctl  *ctl
	addr netip.AddrPort
	id   uint64
	// quiet is for how many seconds nothing was heard while this process ran, patience
	// how many it may be; both guarded by Server.mu.
	quiet    int
	patience int
	in       chan *message
	calls    chan *incoming // guarded by Server.mu on the sending side

	ctx    context.Context
	cancel context.CancelCauseFunc

	cur *serverRun
}

// end ends the session soon.
func (ss *session) end(why string) { ss.cancel(errors.New(why)) }

// A serverRun is one run of a session.
type serverRun struct {
	id     int
	spec   *traffic.Spec
	legs   []*leg // nil: not open yet, its connection was not asked for
	opened bool   // the gate of the legs
	wg     sync.WaitGroup
	events chan legEvent
	begun  time.Time
	series *series
	tick   *time.Ticker // of series, nil until go
	churn  churn
	group  *traffic.Group
}

// A churn is the connections that come and go beside those of the legs.
type churn struct {
	mu    sync.Mutex // guards what follows
	live  map[*leg]struct{}
	asked int // being opened, or live
	done  map[int]*traffic.LegResult
	ended bool
}

// open are the legs that there are.
func (r *serverRun) open() iter.Seq2[int, *leg] {
	return func(yield func(int, *leg) bool) {
		for i, l := range r.legs {
			if l != nil && !yield(i, l) {
				return
			}
		}
	}
}

// A legEvent is something a leg tells.
type legEvent struct {
	leg  int
	kind string // mSent, mDone, mFail
	n    int64
	err  error
}

// newEvents has room for all that the legs can tell, so that they never wait.
func newEvents(legs int) chan legEvent { return make(chan legEvent, 4*legs) }

// run is the session's goroutine.
func (ss *session) run(k sessionKey) {
	s := ss.srv
	defer s.wg.Done()
	defer func() {
		ss.stopRun(true)
		s.mu.Lock()
		if s.sessions[k] == ss {
			delete(s.sessions, k)
			ss.ctl.forget(ss.addr)
		}
		s.mu.Unlock()
		for more := true; more; { // none comes any more
			select {
			case in := <-ss.calls:
				in.reject("the session has ended")
			default:
				more = false
			}
		}
		if ss.ctl.remote.IsValid() {
			ss.ctl.flush(500 * time.Millisecond)
			ss.ctl.close()
			s.cfg.Closed(ss.ctl.end.ep)
		}
		s.once.Do(func() { close(s.first) })
	}()
	if ss.ctl.remote.IsValid() {
		if err := ss.ctl.end.accept(ss.ctx); err != nil {
			s.cfg.Log("%v gone: %v", ss.addr, err)
			return
		}
	}
	for {
		var events chan legEvent
		var tick <-chan time.Time
		if r := ss.cur; r != nil {
			if events = r.events; r.tick != nil {
				tick = r.tick.C
			}
		}
		select {
		case <-ss.ctx.Done():
			s.cfg.Log("%v gone: %v", ss.addr, context.Cause(ss.ctx))
			_ = ss.send(&message{Type: mFail, Error: sessionEnded + context.Cause(ss.ctx).Error()})
			return
		case ev := <-events:
			ss.legSaid(ev)
		case <-tick:
			ss.cur.sample()
		case in := <-ss.calls:
			answer := ss.answer
			if in.call.Again {
				answer = ss.answerAgain
			}
			if err := answer(in); err != nil {
				s.cfg.Log("%v: no connection for a test: %v", ss.addr, err)
				in.reject("%s", oneLine(err))
			}
		case m := <-ss.in:
			if m.Type == mBye {
				s.cfg.Log("%v says goodbye", ss.addr)
				return
			}
			ss.handle(m)
		}
	}
}

// begin lets the legs send, once the client has begun.
func (r *serverRun) begin() {
	if r.opened {
		return
	}
	if r.opened = true; r.spec.Sample > 0 {
		r.begun, r.series, r.tick = time.Now(), newSeries(r.spec.Sample), time.NewTicker(r.spec.Sample)
	}
	for _, l := range r.open() {
		l.Gate.Store(true)
		l.wake()
	}
}

func (ss *session) send(m *message) error {
	m.V, m.Session = ProtocolVersion, ss.id
	err := ss.ctl.send(ss.addr, m, false)
	if err != nil {
		ss.end(err.Error())
	}
	return err
}

func (ss *session) legSaid(ev legEvent) {
	m := &message{Type: ev.kind, Run: ss.cur.id, Leg: ev.leg, N: ev.n}
	if ev.err != nil {
		m.Error = oneLine(ev.err)
		ss.srv.cfg.Log("%v: %v", ss.addr, ev.err)
	}
	_ = ss.send(m)
}

// handle does what a message asks for.
func (ss *session) handle(m *message) {
	switch m.Type {
	case mHello:
		h, t := ThisHost(), ThisTool()
		if m.Host != nil && m.Tool != nil {
			ss.srv.cfg.Log("%v is %s, uetperf %s", ss.addr, m.Host.Name, m.Tool.Version)
		}
		var can []string
		if !ss.srv.cfg.Pretend.Older {
			can = []string{mFacts}
		}
		_ = ss.send(&message{Type: mWelcome, Host: &h, Tool: &t, Can: can})
		return
	case mFacts:
		if !ss.srv.cfg.Pretend.Older {
			_ = ss.send(&message{Type: mFacts, Facts: ss.facts()})
		}
		return
	case mResources:
		r := ss.srv.held.get()
		_ = ss.send(&message{Type: mResources, Resources: &r})
		return
	case mPrepare:
		ss.stopRun(true)
		addrs, err := ss.prepare(m)
		if err != nil {
			ss.srv.cfg.Log("%v refused: %v", ss.addr, err)
			_ = ss.send(&message{Type: mRefuse, Run: m.Run, Error: oneLine(err)})
			return
		}
		_ = ss.send(&message{Type: mReady, Run: m.Run, Addrs: addrs})
		return
	}
	r := ss.cur
	if r == nil || m.Run != r.id {
		return
	}
	switch m.Type {
	case mGo:
		r.begin()
	case mSent:
		if m.Leg >= 0 && m.Leg < len(r.legs) && r.spec.Test == traffic.Incast {
			r.legs[0].Senders[m.Leg].Store(m.N)
			r.legs[0].wake()
		} else if m.Leg >= 0 && m.Leg < len(r.legs) && r.legs[m.Leg] != nil {
			r.legs[m.Leg].PeerSent.Store(m.N)
			r.legs[m.Leg].wake()
		}
	case mStop:
		for _, l := range r.open() {
			l.Stop.Store(true)
			l.wake()
		}
	case mEnd:
		results := ss.stopRun(m.Error != "")
		out := &message{Type: mResult, Run: m.Run, Results: results}
		if r.series != nil {
			out.Series = pack(r.series.samples)
		}
		_ = ss.send(out)
	}
}

// prepare opens the legs of a run and lets them receive.
func (ss *session) prepare(m *message) ([]netip.AddrPort, error) {
	if m.Spec == nil {
		return nil, errors.New("no test is described")
	}
	spec := m.Spec
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if serviceOf(spec) != ss.ctl.svc {
		return nil, fmt.Errorf("a test of %v endpoints over a control channel of %v is not run", serviceOf(spec), ss.ctl.svc)
	}
	if len(m.Addrs) != spec.Parallel {
		return nil, fmt.Errorf("%d addresses for %d streams", len(m.Addrs), spec.Parallel)
	}
	ss.srv.mu.Lock()
	ss.patience = seconds(max(beatLost, spec.PeerTimeout))
	ss.srv.mu.Unlock()
	r := &serverRun{id: m.Run, spec: spec, legs: make([]*leg, spec.Parallel), events: newEvents(spec.Parallel), group: traffic.NewGroup(spec, true, nil)}
	if spec.EP == traffic.MSG { // legs come with their connections
		ss.cur = r
		ss.srv.cfg.Log("%v runs %s %s, %d bytes", ss.addr, spec.Test, spec.Op, spec.Size)
		return m.Addrs, nil
	}
	hints := ss.legHints(spec)
	infos, err := uet.GetInfo(ss.ctl.end.local.Addr().String(), "", fi.Source|uet.NumericHost, hints)
	if err != nil {
		return nil, fmt.Errorf("the server's interface cannot do that: %w", err)
	}
	var addrs []netip.AddrPort
	for i, a := range m.Addrs {
		// Nobody is sent data who does not ask for it.
		if ss.ctl.end.near(a).Addr() != ss.addr.Addr() {
			err = fmt.Errorf("test address %v is not of the client %v", a, ss.addr)
			break
		}
		if sink := r.legs[0]; i > 0 && spec.Test == traffic.Incast { // one for all
			if _, err = sink.end.insert(a); err != nil {
				break
			}
			addrs = append(addrs, sink.addr())
			continue
		}
		info := *infos[0]
		info.SrcAddr.Port = 0
		var l *leg
		if l, err = ss.openLeg(r, i, &info); err != nil {
			break
		}
		if err = l.connect(a); err != nil {
			break
		}
		if err = l.Start(); err != nil {
			break
		}
		addrs = append(addrs, l.addr())
	}
	if err != nil {
		for _, l := range r.open() {
			ss.closeLeg(l)
		}
		return nil, err
	}
	ss.cur = r
	for i := range r.open() {
		r.start(i)
	}
	ss.srv.cfg.Log("%v runs %s %s, %d bytes", ss.addr, spec.Test, spec.Op, spec.Size)
	return addrs, nil
}

// legHints are the hints of a leg of the session.
func (ss *session) legHints(spec *traffic.Spec) *uet.Info {
	h := hints(spec, ss.ctl.sec, acceptTime, traffic.MaxSilence)
	h.Config.Tap = ss.srv.cfg.Tap
	return h
}

// openLeg opens leg i of a run.
func (ss *session) openLeg(r *serverRun, i int, info *uet.Info) (*leg, error) {
	l, err := newLeg(r.spec, i, true, info, r.group)
	if err != nil {
		return nil, err
	}
	ss.srv.cfg.Opened(l.end.ep, "test")
	r.legs[i] = l
	l.Sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
	l.Complete = func() { r.events <- legEvent{leg: i, kind: mDone} }
	if l.Senders != nil {
		l.Complete = func() {
			for k := range r.legs {
				r.events <- legEvent{leg: k, kind: mDone}
			}
		}
	}
	return l, nil
}

// sample takes a sample.
func (r *serverRun) sample() {
	t, cwnd, rtt := sample(r.all())
	r.series.add(time.Since(r.begun), t, cwnd, rtt)
}

// all are the legs that there are.
func (r *serverRun) all() iter.Seq[*leg] {
	return func(yield func(*leg) bool) {
		for _, l := range r.open() {
			if !yield(l) {
				return
			}
		}
	}
}

// start runs leg i.
func (r *serverRun) start(i int) {
	l := r.legs[i]
	r.wg.Go(func() {
		if err := l.run(); err != nil && err != traffic.ErrAborted {
			r.events <- legEvent{leg: i, kind: mFail, err: err}
		}
	})
}

// answer opens the leg that a connection is asked for, and accepts it.
func (ss *session) answer(in *incoming) error {
	r, i := ss.cur, in.call.Leg
	if r == nil || r.id != in.call.Run || i < 0 || i >= len(r.legs) || r.legs[i] != nil || r.opened {
		return errors.New("no such stream waits for a connection")
	}
	info, err := in.open(ss.legHints(r.spec))
	if err != nil {
		return err
	}
	l, err := ss.openLeg(r, i, info)
	if err == nil {
		err = l.connect(netip.AddrPort{})
	}
	if err == nil {
		err = l.Start()
	}
	if err == nil {
		err = l.end.accept(ss.ctx)
	}
	if err != nil {
		if l != nil {
			r.legs[i] = nil
			ss.closeLeg(l)
		}
		return err
	}
	r.start(i)
	return nil
}

// churnMore is how many connections of transactions there may be at once beyond
// one for each stream: that of the last one may still be closing.
const churnMore = 8

// answerAgain opens an endpoint for the connection of one transaction, serves it and
// closes it.
func (ss *session) answerAgain(in *incoming) error {
	r, i := ss.cur, in.call.Leg
	if r == nil || r.id != in.call.Run || i < 0 || i >= len(r.legs) || !r.spec.Churn || r.legs[i] == nil && !r.opened {
		return errors.New("no such stream makes more connections")
	}
	// The client asks when it has begun; its word of that may still be under way, for
	// it comes by another connection.
	r.begin()
	c := &r.churn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked >= 2*len(r.legs)+churnMore {
		return fmt.Errorf("%d connections of this test are open: close some", c.asked)
	}
	c.asked++
	r.wg.Go(func() {
		res, err := ss.once(r, in, i)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.asked--
		if err != nil {
			ss.srv.cfg.Log("%v: no connection for a transaction: %v", ss.addr, err)
			in.reject("%s", oneLine(err))
			return
		}
		if c.done == nil {
			c.done = map[int]*traffic.LegResult{}
		}
		if c.done[i] == nil {
			c.done[i] = &traffic.LegResult{Counters: record.Counters{Drops: map[string]uint64{}}}
		}
		c.done[i].Add(res)
	})
	return nil
}

// once serves a connection from its request to its end.
func (ss *session) once(r *serverRun, in *incoming, i int) (*traffic.LegResult, error) {
	info, err := in.open(ss.legHints(r.spec))
	if err != nil {
		return nil, err
	}
	l, err := newLeg(r.spec, i, true, info, r.group)
	if err != nil {
		return nil, err
	}
	ss.srv.cfg.Opened(l.end.ep, "test")
	defer ss.closeLeg(l)
	c := &r.churn
	c.mu.Lock()
	if c.live == nil {
		c.live = map[*leg]struct{}{}
	}
	c.live[l] = struct{}{}
	if c.ended {
		l.abort()
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.live, l)
		c.mu.Unlock()
	}()
	if err = l.connect(netip.AddrPort{}); err == nil {
		err = l.Start()
	}
	if err == nil {
		err = l.end.accept(l.ctx)
	}
	if err != nil {
		return nil, err
	}
	// It ends when the client closes it.
	if err := l.run(); err != nil && err != traffic.ErrAborted && !errors.Is(err, fi.ESHUTDOWN) && !errors.Is(err, fi.ECANCELED) {
		ss.srv.cfg.Log("%v: a transaction: %v", ss.addr, err)
	}
	return &l.Res, nil
}

// end makes all of them end soon.
func (c *churn) end(abort bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for l := range c.live {
		l.Over.Store(true)
		l.wake()
		if abort {
			l.abort()
		}
	}
}

// stopRun ends the current run, if there is one, and returns what its legs did.
func (ss *session) stopRun(abort bool) []traffic.LegResult {
	r := ss.cur
	if r == nil {
		return nil
	}
	ss.cur = nil
	if r.tick != nil {
		r.tick.Stop()
	}
	r.churn.end(abort)
	waiting := make([][]string, len(r.legs))
	for i, l := range r.legs {
		if abort && l != nil {
			waiting[i] = waitsOf([]*leg{l})
		}
	}
	for _, l := range r.open() {
		l.Over.Store(true)
		l.wake()
		if abort {
			l.abort()
		}
	}
	// A leg that is not complete although the client says so is stuck: what it
	// has is what there is.
	t := time.AfterFunc(time.Second, func() {
		for _, l := range r.open() {
			l.abort()
		}
		r.churn.end(true)
	})
	r.wg.Wait()
	t.Stop()
	if r.series != nil {
		t, cwnd, rtt := sample(r.all())
		r.series.end(time.Since(r.begun), t, cwnd, rtt)
	}
	out := make([]traffic.LegResult, len(r.legs))
	for i, l := range r.open() {
		copy(out[i:], l.Results())
		if d := r.churn.done[i]; d != nil {
			out[i].Add(d)
		}
		out[i].Waiting = waiting[i]
		ss.closeLeg(l)
	}
	return out
}

func (ss *session) closeLeg(l *leg) {
	l.cancel()
	l.end.close()
	ss.srv.cfg.Closed(l.end.ep)
}
