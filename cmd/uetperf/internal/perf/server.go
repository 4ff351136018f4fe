package perf

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
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
	cfg     ServerConfig
	ports   ports
	clients clients
	held    resources
}

// The ports of a server are its open sockets.
type ports struct {
	ctls      []*ctl // not of connections
	listeners []*listener
	echoes    []*probe.Echo
	addrs     []netip.AddrPort // of the first service, where users find the server
}

// The clients of a server are those with a session.
type clients struct {
	mu       sync.Mutex // guards sessions and closed
	sessions map[sessionKey]*session
	closed   bool // no sessions any more
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
	cfg.complete()
	s := &Server{cfg: cfg, clients: clients{sessions: map[sessionKey]*session{}, first: make(chan struct{})}}
	if err := s.listen(); err != nil {
		return nil, err
	}
	return s, nil
}

// complete puts defaults where nothing was said.
func (cfg *ServerConfig) complete() {
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
}

// Clients is how many clients are being served.
func (s *Server) Clients() int {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	return len(s.clients.sessions)
}

// Addrs are the addresses that clients can use.
func (s *Server) Addrs() []netip.AddrPort { return s.ports.addrs }

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
	once := s.clients.first
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
			s.second()
		}
	}
}

// second counts another second in which a client was not heard of.
func (s *Server) second() {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, ss := range s.clients.sessions {
		switch ss.quiet++; {
		case ss.quiet > ss.patience:
			ss.end(fmt.Sprintf("not heard of for %ds", ss.patience))
		case ss.quiet >= seconds(beatLate):
			_ = ss.send(&message{Type: mBeat}) // lost hears if nobody is there
		}
	}
}

// Close ends all tests and closes the endpoints.
func (s *Server) Close() {
	s.clients.mu.Lock()
	s.clients.closed = true
	for _, ss := range s.clients.sessions {
		ss.end("the server was stopped")
	}
	s.clients.mu.Unlock()
	s.clients.wg.Wait()
	for _, l := range s.ports.listeners {
		l.close()
	}
	for _, e := range s.ports.echoes {
		e.Close()
	}
	for _, c := range s.ports.ctls {
		c.flush(500 * time.Millisecond)
		c.close()
		s.cfg.Closed(c.end.ep)
	}
}
