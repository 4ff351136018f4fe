package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/uet"
)

// message handles a control message that arrived at a control endpoint.
func (s *Server) message(c *ctl, from netip.AddrPort, m *message) {
	refuse := func(format string, args ...any) {
		_ = c.send(from, &message{V: ProtocolVersion, Type: mRefuse, Session: m.Session, Error: fmt.Sprintf(format, args...)}, true)
	}
	if m.V != s.protocol() {
		refuse("version mismatch: the server (uetperf %s) speaks protocol %d, the client %d: use the same release at both ends", Version, s.protocol(), m.V)
		return
	}
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	k := sessionKey{c, from}
	ss := s.clients.sessions[k]
	if c.remote.IsValid() && (ss == nil || m.Session != ss.id) {
		return // a connection has one session
	}
	if ss != nil && m.Session != ss.id && m.Type == mHello {
		ss.end("replaced by a new client with its address")
		ss = nil
	}
	switch {
	case ss != nil && m.Session == ss.id:
		ss.hear(m)
	case m.Type == mAsk:
		_ = c.send(from, &message{V: ProtocolVersion, Type: mOffer, Session: m.Session, Offers: s.Services()}, true)
	case m.Type == mBye || m.Type == mEnd: // the session has ended already
	case m.Type != mHello:
		refuse("the server does not know this client (any more): was it restarted?")
	case s.full() != "":
		s.cfg.Log("%v refused: %d clients are being served", from, len(s.clients.sessions))
		refuse("%s", s.full())
	default:
		ss = s.newSession(k, m.Session)
		ss.in <- m
		go ss.run(k)
	}
}

// hear gives a message to the session. The caller holds clients.mu.
func (ss *session) hear(m *message) {
	ss.quiet = 0
	if m.Type == mBeat {
		return
	}
	if m = ss.parts.add(m); m == nil {
		return
	}
	select {
	case ss.in <- m:
	default:
		ss.end("it floods the control channel")
	}
}

// full tells why there is no room for another client; "" if there is. The caller holds
// clients.mu.
func (s *Server) full() string {
	switch n := len(s.clients.sessions); {
	case n < s.cfg.MaxClients:
		return ""
	case s.cfg.Once:
		return "the server serves one client (--once), and has it"
	default:
		return fmt.Sprintf("the server is busy with %s, its --max-clients: try later", units.Plural(n, "client"))
	}
}

// newSession makes a session, which the caller must run. The caller holds clients.mu.
func (s *Server) newSession(k sessionKey, id uint64) *session {
	ctx, cancel := context.WithCancelCause(context.Background())
	ss := &session{
		srv: s, ctl: k.ctl, addr: k.addr, id: id, patience: seconds(beatLost), in: make(chan *message, ctlQueue), calls: make(chan *incoming, traffic.FewParallel),
		ctx: ctx, cancel: cancel,
	}
	s.clients.sessions[k] = ss
	s.clients.wg.Add(1)
	return ss
}

// An incoming is a request for a connection.
type incoming struct {
	*listener
	info *uet.Info
	call call
}

func (in *incoming) reject(format string, args ...any) { in.listener.reject(in.info, format, args...) }

// called handles a request for a connection, of a new client or for a leg.
func (s *Server) called(l *listener, info *uet.Info, c call) {
	in := &incoming{l, info, c}
	if c.V != ProtocolVersion {
		in.reject("version mismatch: the server (uetperf %s) speaks protocol %d, the client %d: use the same release at both ends", Version, ProtocolVersion, c.V)
		return
	}
	from := info.Handle.(*uet.ConnReq).Remote().AddrPort()
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if c.Run == 0 {
		s.meet(in, from)
		return
	}
	for _, ss := range s.clients.sessions {
		// The connection of the leg was authenticated in the same way as that of the session.
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

// meet opens the control endpoint of a new client. The caller holds clients.mu.
func (s *Server) meet(in *incoming, from netip.AddrPort) {
	why := s.full()
	if s.clients.closed {
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

// open returns the info to open the endpoint of the connection with.
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
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	ss := s.clients.sessions[sessionKey{c, to}]
	switch {
	case ss == nil || ss.id != what.session && !c.remote.IsValid():
	case what.beat && errors.Is(err, fi.ETIMEDOUT) && ss.quiet <= ss.patience: // the next beat may arrive
	default:
		ss.end(err.Error())
	}
}
