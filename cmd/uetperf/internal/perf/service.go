package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
	_ "github.com/uetkit/uetkit/uet/msg" // connections
)

// A service is a kind of endpoint that a server offers. Each has its own UDP port, because
// an endpoint is either in clear or secured, and connection management speaks QUIC. The
// first service has the port that users name, the others follow in this order.
type service struct{ ep, sec string }

var services = []service{{traffic.RDM, traffic.Off}, {traffic.MSG, traffic.Off}, {traffic.RDM, traffic.PSK}, {traffic.MSG, traffic.PSK}, {traffic.MSG, traffic.TLS}}

// Services returns the names of all services in the order of their ports.
func Services() []string {
	var out []string
	for _, v := range services {
		out = append(out, v.String())
	}
	return out
}

// Port is the first port of a server if nobody says another. StandardPort is that of a server
// for tests with standard encapsulation: such a test owns port 4793 of both ends.
const (
	Port         = wire.Port
	StandardPort = wire.Port + 1
)

// Ports is the number of consecutive UDP ports that a server uses.
var Ports = len(services)

// at returns the address of the service at the server whose address users name.
func (v service) at(server netip.AddrPort) netip.AddrPort {
	for i, o := range services {
		if o == v {
			return netip.AddrPortFrom(server.Addr(), server.Port()+uint16(i))
		}
	}
	return netip.AddrPort{}
}

// serviceOf is the service that a test needs.
func serviceOf(s *traffic.Spec) service { return service{s.Control(), s.Security()} }

func (v service) String() string {
	s := "-e " + v.ep
	if v.sec != traffic.Off {
		s += " --sec " + v.sec
	}
	return s
}

// hints changes h to ask for endpoints of the service.
func (v service) hints(h *uet.Info, sec *uet.Security, handshake, idle time.Duration) *uet.Info {
	h.Config.Security = sec
	if v.ep == traffic.MSG {
		h.Ep.Type = fi.EpMsg
		h.Config.CM = uet.CMConfig{Handshake: handshake, Idle: max(idle, connIdle), KeepAlive: connIdle / 3}
	}
	return h
}

const (
	// connIdle is how long a connection may be silent, at least; it is longer if peers may be
	// silent longer. Control messages and data find out earlier that the other end is gone.
	connIdle = 10 * time.Second
	// acceptTime is how long a connection may take to open after it was accepted.
	acceptTime = 5 * time.Second
)

// A call is the data of a request for a connection. It names the session, and the leg of a
// run; run 0 means the control channel.
type call struct {
	V       int    `json:"v"`
	Session uint64 `json:"session"`
	Run     int    `json:"run,omitempty"`
	Leg     int    `json:"leg,omitempty"`
	// Again asks for a connection for one transaction, beside that of the leg.
	Again bool `json:"again,omitempty"`
	// Silence is how long a peer may be silent, in the request for the control connection.
	Silence time.Duration `json:"silence,omitempty"`
}

// A ConnectError tells why a connection failed.
type ConnectError struct {
	Err  fi.Errno
	Text string // reason given by the server, or what is wrong; may be empty
}

func (e *ConnectError) Error() string {
	if e.Text == "" {
		return "connect: " + e.Err.Error()
	}
	return "connect: " + e.Text
}

// Unwrap returns the errno.
func (e *ConnectError) Unwrap() error { return e.Err }

// connect connects an MSG endpoint and waits for the answer.
func (e *end) connect(ctx context.Context, to netip.AddrPort, c call) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := e.ep.Connect(wire.SockAddr(to), b); err != nil {
		return fmt.Errorf("connect to %v: %w", to, err)
	}
	return e.connected(ctx)
}

// accept accepts the connection that an MSG endpoint was opened for.
func (e *end) accept(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTime)
	defer cancel()
	if err := e.ep.Accept(nil); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	return e.connected(ctx)
}

// connected waits for the outcome of Connect or Accept.
func (e *end) connected(ctx context.Context) error {
	for {
		ev, err := e.eq.SReadContext(ctx, 0)
		switch {
		case errors.Is(err, fi.EAVAIL):
			bad, err := e.eq.ReadErr(0)
			if err != nil {
				return err
			}
			return &ConnectError{bad.Err, string(bad.ErrData)}
		case err != nil:
			return err
		case ev.Event == fi.Connected:
			return nil
		case ev.Event == fi.Shutdown:
			return &ConnectError{fi.ESHUTDOWN, ""}
		}
	}
}

// A listener receives the requests for connections of a service. It runs a goroutine.
type listener struct {
	svc    service
	sec    *uet.Security
	fabric *uet.Fabric
	eq     *eq.EQ
	pep    *uet.PassiveEndpoint
	local  netip.AddrPort
	cancel context.CancelFunc
	done   chan struct{}
}

// listen opens a listener. Its goroutine calls on for each request, which on must accept or
// reject.
func listen(info *uet.Info, svc service, on func(*listener, *uet.Info, call)) (*listener, error) {
	l := &listener{svc: svc, sec: info.Config.Security, done: make(chan struct{})}
	if err := l.open(info); err != nil {
		l.shut()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() {
		defer close(l.done)
		l.loop(ctx, on)
	}()
	return l, nil
}

// open opens the objects of the listener. After an error some are open.
func (l *listener) open(info *uet.Info) (err error) {
	if l.fabric, err = uet.OpenFabric(info, nil); err != nil {
		return err
	}
	if l.eq, err = l.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil); err != nil {
		return err
	}
	if l.pep, err = l.fabric.OpenPassive(info, nil); err != nil {
		return err
	}
	if err = l.pep.BindEQ(l.eq); err != nil {
		return err
	}
	if err = l.pep.Listen(); err != nil {
		return err
	}
	name, err := l.pep.Name()
	l.local = name.AddrPort()
	return err
}

// loop handles requests until ctx is done.
func (l *listener) loop(ctx context.Context, on func(*listener, *uet.Info, call)) {
	for {
		ev, err := l.eq.SReadContext(ctx, 0)
		switch {
		case errors.Is(err, fi.EAVAIL):
			_, _ = l.eq.ReadErr(0)
			continue
		case err != nil:
			return
		}
		info, ok := ev.Info.(*uet.Info)
		if ev.Event != fi.ConnReq || !ok {
			continue
		}
		var c call
		if err := json.Unmarshal(ev.Bytes, &c); err != nil {
			l.reject(info, "this is uetperf: the request is of another program")
			continue
		}
		on(l, info, c)
	}
}

// reject rejects a request with a reason.
func (l *listener) reject(info *uet.Info, format string, args ...any) {
	_ = l.pep.Reject(info.Handle, []byte(fmt.Sprintf(format, args...)))
}

// close ends listening. Accepted connections stay open.
func (l *listener) close() {
	l.cancel()
	<-l.done
	l.shut()
}

func (l *listener) shut() {
	if l.pep != nil {
		_ = l.pep.Close()
	}
	if l.eq != nil {
		_ = l.eq.Close()
	}
	if l.fabric != nil {
		_ = l.fabric.Close()
	}
}
