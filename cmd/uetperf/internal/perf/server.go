package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/units"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// ServerConfig describes a server.
type ServerConfig struct {
	// Listen is the address of the control endpoint. Without an IP address the
	// server listens on all addresses of the host, without a port on the
	// well-known one; AnyPort takes an ephemeral one.
	Listen  netip.AddrPort
	AnyPort bool
	// Domain, if not "", is the interface whose addresses are listened on.
	Domain string
	// MaxClients is how many clients are served at once; 0: 64.
	MaxClients int
	// Once ends Serve when the first client is gone; there is no second beside
	// it.
	Once bool
	// Log, if not nil, hears of clients and tests, Warn of what does not work;
	// both from any goroutine.
	Log, Warn func(format string, args ...any)
}

const defaultMaxClients = 64

// A Server runs the other end of clients' tests.
type Server struct {
	cfg  ServerConfig
	ctls []*ctl

	mu       sync.Mutex // guards sessions
	sessions map[sessionKey]*session
	wg       sync.WaitGroup
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
	if cfg.Warn == nil {
		cfg.Warn = func(string, ...any) {}
	}
	s := &Server{cfg: cfg, sessions: map[sessionKey]*session{}, first: make(chan struct{})}
	port := cfg.Listen.Port()
	if port == 0 && !cfg.AnyPort {
		port = wire.Port
	}
	hints := ctlHints(beatLost)
	hints.Domain.Name = cfg.Domain
	node := ""
	if ip := cfg.Listen.Addr(); ip.IsValid() && !ip.IsUnspecified() {
		node = ip.String()
	}
	infos, err := uet.GetInfo(node, fmt.Sprint(port), fi.Source, hints)
	if err != nil {
		return nil, explain(err, node, cfg.Domain)
	}
	var failed error
	var refused []error
	for _, info := range infos {
		c, err := openCtl(info, s.message, s.lost)
		if err != nil {
			failed = fmt.Errorf("cannot listen on %v: %w", info.SrcAddr.AddrPort(), err)
			refused = append(refused, failed)
			continue
		}
		s.ctls = append(s.ctls, c)
	}
	if len(s.ctls) == 0 {
		if errors.Is(failed, fi.EADDRINUSE) {
			a := infos[0].SrcAddr.AddrPort()
			return nil, fmt.Errorf("cannot listen on %v: %w: does a server run already? another port: --listen %v", a, fi.EADDRINUSE, netip.AddrPortFrom(a.Addr(), max(port+1, 1024)))
		}
		return nil, failed
	}
	for _, err := range refused {
		cfg.Warn("%v", err)
	}
	return s, nil
}

// Addrs are the addresses that clients can use.
func (s *Server) Addrs() []netip.AddrPort {
	var out []netip.AddrPort
	for _, c := range s.ctls {
		out = append(out, c.end.local)
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
		case now := <-tick.C:
			s.mu.Lock()
			for _, ss := range s.sessions {
				switch quiet := now.Sub(ss.heard); {
				case quiet > beatLost:
					ss.end("not heard of for " + beatLost.String())
				case quiet > beatLate:
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
	for _, ss := range s.sessions {
		ss.end("server ends")
	}
	s.mu.Unlock()
	s.wg.Wait()
	for _, c := range s.ctls {
		c.flush(500 * time.Millisecond)
		c.close()
	}
}

// message handles what came to a control endpoint.
func (s *Server) message(c *ctl, from netip.AddrPort, m *message) {
	refuse := func(format string, args ...any) {
		_ = c.send(from, &message{V: ProtocolVersion, Type: mRefuse, Session: m.Session, Error: fmt.Sprintf(format, args...)}, true)
	}
	if m.V != ProtocolVersion {
		refuse("version mismatch: the server (uetperf %s) speaks protocol %d, the client %d: use the same release at both ends", Version, ProtocolVersion, m.V)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := sessionKey{c, from}
	ss := s.sessions[k]
	if ss != nil && m.Session != ss.id && m.Type == mHello {
		ss.end("replaced by a new client with its address")
		ss = nil
	}
	switch {
	case ss != nil && m.Session == ss.id:
		ss.heard = time.Now()
		if m.Type == mBeat {
			return
		}
		select {
		case ss.in <- m:
		default:
			ss.end("it floods the control channel")
		}
	case m.Type != mHello:
		if m.Type != mBye && m.Type != mEnd {
			refuse("the server does not know this client (any more): was it restarted?")
		}
	case len(s.sessions) >= s.cfg.MaxClients:
		s.cfg.Log("%v refused: %d clients are being served", from, len(s.sessions))
		if s.cfg.Once {
			refuse("the server serves one client (--once), and has it")
			return
		}
		refuse("the server is busy with %s, its --max-clients: try later", units.Plural(len(s.sessions), "client"))
	default:
		ctx, cancel := context.WithCancelCause(context.Background())
		ss = &session{srv: s, ctl: c, addr: from, id: m.Session, heard: time.Now(), in: make(chan *message, 4*MaxParallel), ctx: ctx, cancel: cancel}
		s.sessions[k] = ss
		s.wg.Add(1)
		ss.in <- m
		go ss.run(k)
	}
}

// lost handles a control message that could not be delivered.
func (s *Server) lost(c *ctl, to netip.AddrPort, session uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ss := s.sessions[sessionKey{c, to}]; ss != nil && ss.id == session {
		ss.end(err.Error())
	}
}

// A session is one client.
type session struct {
	srv   *Server
	ctl   *ctl
	addr  netip.AddrPort
	id    uint64
	heard time.Time // guarded by Server.mu
	in    chan *message

	ctx    context.Context
	cancel context.CancelCauseFunc

	cur *serverRun
}

// end ends the session soon.
func (ss *session) end(why string) { ss.cancel(errors.New(why)) }

// A serverRun is one run of a session.
type serverRun struct {
	id     int
	legs   []*leg
	wg     sync.WaitGroup
	events chan legEvent
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
		s.once.Do(func() { close(s.first) })
	}()
	for {
		var events chan legEvent
		if ss.cur != nil {
			events = ss.cur.events
		}
		select {
		case <-ss.ctx.Done():
			s.cfg.Log("%v gone: %v", ss.addr, context.Cause(ss.ctx))
			_ = ss.send(&message{Type: mFail, Error: "the server ended the session: " + context.Cause(ss.ctx).Error()})
			return
		case ev := <-events:
			ss.legSaid(ev)
		case m := <-ss.in:
			if m.Type == mBye {
				s.cfg.Log("%v says goodbye", ss.addr)
				return
			}
			ss.handle(m)
		}
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
		_ = ss.send(&message{Type: mWelcome, Host: &h, Tool: &t})
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
		for _, l := range r.legs {
			l.gate.Store(true)
			l.wake()
		}
	case mSent:
		if m.Leg >= 0 && m.Leg < len(r.legs) {
			r.legs[m.Leg].peerSent.Store(m.N)
			r.legs[m.Leg].wake()
		}
	case mStop:
		for _, l := range r.legs {
			l.stop.Store(true)
			l.wake()
		}
	case mEnd:
		results := ss.stopRun(m.Error != "")
		_ = ss.send(&message{Type: mResult, Run: m.Run, Results: results})
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
	if len(m.Addrs) != spec.Parallel {
		return nil, fmt.Errorf("%d addresses for %d streams", len(m.Addrs), spec.Parallel)
	}
	infos, err := uet.GetInfo(ss.ctl.end.local.Addr().String(), "", fi.Source|uet.NumericHost, spec.hints())
	if err != nil {
		return nil, fmt.Errorf("the server's interface cannot do that: %w", err)
	}
	r := &serverRun{id: m.Run, events: newEvents(spec.Parallel)}
	var addrs []netip.AddrPort
	for i, a := range m.Addrs {
		// Nobody is sent data who does not ask for it.
		if a.Addr() != ss.addr.Addr() {
			err = fmt.Errorf("test address %v is not of the client %v", a, ss.addr)
			break
		}
		info := *infos[0]
		info.SrcAddr.Port = 0
		var l *leg
		if l, err = newLeg(spec, true, &info); err != nil {
			break
		}
		r.legs = append(r.legs, l)
		l.sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
		l.complete = func() { r.events <- legEvent{leg: i, kind: mDone} }
		if err = l.connect(a); err != nil {
			break
		}
		if err = l.post(); err != nil {
			break
		}
		addrs = append(addrs, l.addr())
	}
	if err != nil {
		for _, l := range r.legs {
			l.end.close()
		}
		return nil, err
	}
	ss.cur = r
	for i, l := range r.legs {
		r.wg.Add(1)
		go func() {
			defer r.wg.Done()
			if err := l.run(); err != nil && err != errAborted {
				r.events <- legEvent{leg: i, kind: mFail, err: err}
			}
		}()
	}
	ss.srv.cfg.Log("%v runs %s %s, %d bytes", ss.addr, spec.Test, spec.Op, spec.Size)
	return addrs, nil
}

// stopRun ends the current run, if there is one, and returns what its legs did.
func (ss *session) stopRun(abort bool) []LegResult {
	r := ss.cur
	if r == nil {
		return nil
	}
	ss.cur = nil
	for _, l := range r.legs {
		l.over.Store(true)
		l.wake()
		if abort {
			l.abort()
		}
	}
	// A leg that is not complete although the client says so is stuck: what it
	// has is what there is.
	t := time.AfterFunc(time.Second, func() {
		for _, l := range r.legs {
			l.abort()
		}
	})
	r.wg.Wait()
	t.Stop()
	out := make([]LegResult, len(r.legs))
	for i, l := range r.legs {
		out[i] = l.res
		l.end.close()
	}
	return out
}
