package perf

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/uet"
)

// Keys secure the endpoints of a server. A nil key disables the service that needs it.
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
	// Listen is the address of the control endpoint. Without an IP address the server listens
	// on all addresses of the host, without a port on the well-known one. With AnyPort the
	// system chooses the port.
	Listen  netip.AddrPort
	AnyPort bool
	// DataPorts are the UDP ports that tests take at the server; zero means any.
	DataPorts portrange.Range
	// Keys are the keys of the secured services.
	Keys Keys
	// Domain, if not "", is the interface whose addresses the server listens on.
	Domain string
	// MaxClients is how many clients may be served at once; 0 means 64.
	MaxClients int
	// Mesh makes the server take part in tests between servers, which one client asks for.
	Mesh bool
	// Once ends Serve when the first client is gone. No other client is served beside it.
	Once bool
	// Tap, if not nil, sees the datagrams of all endpoints of the server.
	Tap func(*uet.Tapped)
	// Opened and Closed, if not nil, are called for each endpoint, from any goroutine. kind is
	// "control" or "test".
	Opened func(ep *uet.Endpoint, kind string)
	Closed func(ep *uet.Endpoint)
	// Listening, if not nil, is called for each passive endpoint. These stay open until Close.
	Listening func(*uet.PassiveEndpoint)
	// Log, if not nil, is called with news of clients and tests, Warn with what does not work;
	// both from any goroutine.
	Log, Warn func(format string, args ...any)
	// Pretend is set by tests.
	Pretend Pretend
}

const defaultMaxClients = 64

// A Server is the other end of clients' tests.
type Server struct {
	cfg     ServerConfig
	ports   ports
	clients clients
	held    resources
}

// ports are the open sockets of a server.
type ports struct {
	ctls      []*ctl // those of services without connections
	listeners []*listener
	echoes    []*probe.Echo
	addrs     []netip.AddrPort // of the first service, which is the address that users name
}

// clients are the clients that have a session.
type clients struct {
	mu       sync.Mutex // guards sessions and closed
	sessions map[sessionKey]*session
	closed   bool // no more sessions are accepted
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

// complete sets the defaults.
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

// Clients is the number of clients that are being served.
func (s *Server) Clients() int {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	return len(s.clients.sessions)
}

// Addrs returns the addresses that clients can use.
func (s *Server) Addrs() []netip.AddrPort { return s.ports.addrs }

// Services names the service at each distance from the first port of an address.
func (s *Server) Services() []string {
	out := make([]string, Ports)
	for i, svc := range services {
		if svc.sec == traffic.Off || s.cfg.Keys.of(svc) != nil {
			out[i] = svc.String()
		}
	}
	return out
}

// Serve serves until ctx is done or, with Once, until the first client is gone.
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

// second counts another second of silence for every client.
func (s *Server) second() {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	for _, ss := range s.clients.sessions {
		switch ss.quiet++; {
		case ss.quiet > ss.patience:
			ss.end(fmt.Sprintf("not heard of for %ds", ss.patience))
		case ss.quiet >= seconds(beatLate):
			_ = ss.send(&message{Type: mBeat}) // lost is called if nobody is there
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
