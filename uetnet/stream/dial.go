package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
	_ "github.com/uetkit/uetkit/uet/msg" // connections
	"github.com/uetkit/uetkit/uetnet"
	"github.com/uetkit/uetkit/uetnet/internal/host"
)

// Dial connects to the Listener at addr: a host name or an IP address, with a port. ctx bounds the
// setting up, and nothing afterwards.
//
// Errors are a *net.OpError, whose text says what to do. fi.ECONNREFUSED: nobody listens there, or the
// Listener has no room. fi.ETIMEDOUT: no answer. fi.EHOSTUNREACH, fi.ENETUNREACH: no way leads there.
// fi.EKEYREJECTED: one side does not trust the other. fi.EPROTO: the two sides do not fit, and the
// text says why. fi.ENODATA: no such host, or no interface leads there. Otherwise the error of ctx.
func Dial(ctx context.Context, addr string, opts ...uetnet.Option) (*Conn, error) {
	c, to, err := dial(ctx, addr, opts)
	if err != nil {
		e := &net.OpError{Op: "dial", Net: Network, Err: err}
		if to.IP.IsValid() {
			e.Addr = Addr{to}
		}
		return nil, e
	}
	return c, nil
}

func dial(ctx context.Context, addr string, opts []uetnet.Option) (*Conn, wire.Addr, error) {
	to, err := host.Resolve(ctx, addr)
	if err != nil {
		return nil, to, err
	}
	if !to.IP.IsValid() || to.Port == 0 {
		return nil, to, fmt.Errorf("address %q: it takes a host and a port: %w", addr, fi.EINVAL)
	}
	if to.IP.Is6() && to.IP.IsLinkLocalUnicast() && to.IP.Zone() == "" {
		return nil, to, fmt.Errorf("%v is an address of a link: say which interface leads there, such as %v%%eth0: %w", to.IP, to.IP, fi.EINVAL)
	}
	hints := streamHints(opts)
	hints.DestAddr = to
	h, err := host.Open(hints)
	if err != nil {
		return nil, to, err
	}
	c, err := newConn(h, h.Info)
	if err != nil {
		return nil, to, err
	}
	c.remote = Addr{to}
	if err = c.ep.Connect(to, nil); err == nil {
		err = c.connected(ctx)
	}
	if err != nil {
		c.abort()
		return nil, to, undialed(to, err)
	}
	return c, to, nil
}

// streamHints returns hints for the endpoints of streams.
func streamHints(opts []uetnet.Option) *uet.Info {
	hints := &uet.Info{
		Caps: fi.Msg | fi.Tagged | fi.TaggedMultiRecv,
		Ep:   uet.EpAttr{Type: fi.EpMsg},
		Tx:   uet.TxAttr{MsgOrder: fi.OrderSAS},
		Rx:   uet.RxAttr{MsgOrder: fi.OrderSAS},
	}
	for _, o := range opts {
		o(hints)
	}
	// Whole messages wait at a receiver in the order in which they were sent; a header would let
	// later ones pass. What waits there is for a reader that is behind: no more than it needs.
	hints.Config.Tuning.DeferrableMin = -1
	return hints
}

// abort closes a Conn that nobody has.
func (c *Conn) abort() {
	c.linger = -1
	_ = c.Close()
}

// noRoom is the data of a rejection by a Listener for which DefaultBacklog connections wait.
const noRoom = "uetnet/stream: no room"

// A noConn is the error of a connection that was not set up: the cause, and what mends it.
type noConn struct {
	err  error
	text string
}

func (e *noConn) Error() string { return e.text + ": " + e.err.Error() }
func (e *noConn) Unwrap() error { return e.err }

// Timeout reports whether no answer came in time. net.OpError asks for it.
func (e *noConn) Timeout() bool {
	return errors.Is(e.err, context.DeadlineExceeded) || errors.Is(e.err, fi.ETIMEDOUT)
}

// undialed adds to the error of a dial what it means and what to do.
func undialed(to wire.Addr, err error) error {
	var have *noConn
	at := to.AddrPort()
	look := fmt.Sprintf("start `uetperf serve` there and run `uetperf doctor %v` here, which says where packets are lost", at.Addr())
	switch {
	case errors.As(err, &have):
		return err
	case errors.Is(err, fi.ECONNREFUSED):
		return &noConn{err, fmt.Sprintf("%v refuses: nobody listens at UDP port %d there, or the Listener takes no more; start the Listener, and dial the address that its Addr returns", at.Addr(), at.Port())}
	case errors.Is(err, fi.EHOSTUNREACH), errors.Is(err, fi.ENETUNREACH), errors.Is(err, fi.EHOSTDOWN), errors.Is(err, fi.ENETDOWN):
		return &noConn{err, fmt.Sprintf("no way leads to %v: check the address, and the route (ip route get %v)", at.Addr(), at.Addr())}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, fi.ETIMEDOUT):
		return &noConn{err, fmt.Sprintf("%v does not answer at UDP port %d: the host is off, nobody listens, or a firewall drops the packets; %s", at.Addr(), at.Port(), look)}
	}
	return err
}

// connError returns the reason why a connection was not set up.
func connError(bad *eq.Error) error {
	if bad.Err == fi.ECONNREFUSED && string(bad.ErrData) == noRoom {
		return &noConn{bad.Err, fmt.Sprintf("the Listener is busy: %d connections wait there for Accept; dial again later", uet.DefaultBacklog)}
	}
	if len(bad.ErrData) > 0 && bad.Err != fi.ECONNREFUSED {
		return fmt.Errorf("%s: %w", bad.ErrData, bad.Err)
	}
	return bad.Err
}

// A Listener accepts streams. It is a net.Listener.
type Listener struct {
	host    *host.Host
	passive *uet.PassiveEndpoint
	events  *eq.EQ
	addr    Addr

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
	ready  chan *Conn
	slots  chan struct{} // for connections that are being set up or wait for Accept
	once   sync.Once
}

// Listen listens at a local address: an IP address or a host name with a port, ":port" for all
// addresses of this host, without a port or with port 0 for a free one. ctx bounds the resolution
// of a name.
//
// Errors are a *net.OpError: fi.EADDRINUSE, fi.EADDRNOTAVAIL, fi.ENODATA as Open has them.
func Listen(ctx context.Context, addr string, opts ...uetnet.Option) (*Listener, error) {
	l, err := listen(ctx, addr, opts)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: Network, Err: fmt.Errorf("%q: %w", addr, err)}
	}
	return l, nil
}

func listen(ctx context.Context, addr string, opts []uetnet.Option) (*Listener, error) {
	at, err := host.Resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	hints := streamHints(opts)
	if at.IP.IsValid() && !at.IP.IsUnspecified() {
		hints.SrcAddr = at
	}
	h, err := host.Open(hints)
	if err != nil {
		return nil, err
	}
	undo := host.Closers{h.Release}
	l := &Listener{host: h, ready: make(chan *Conn, uet.DefaultBacklog), slots: make(chan struct{}, uet.DefaultBacklog)}
	err = func() error {
		if l.events, err = h.Fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil); err != nil {
			return err
		}
		undo = append(undo, l.events.Close)
		if l.passive, err = h.Fabric.OpenPassive(h.Info, nil); err != nil {
			return err
		}
		undo = append(undo, l.passive.Close)
		if !at.IP.IsValid() {
			at.IP = anyOf(h.Info.SrcAddr)
		}
		if err := errors.Join(l.passive.BindEQ(l.events), l.passive.SetName(at)); err != nil {
			return err
		}
		return l.passive.Listen()
	}()
	if err != nil {
		undo.Close()
		return nil, err
	}
	name, err := l.passive.Name()
	if err != nil {
		undo.Close()
		return nil, err
	}
	l.addr = Addr{name}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.work.Add(1)
	go l.serve()
	return l, nil
}

// serve reads requests until the Listener is closed.
func (l *Listener) serve() {
	defer l.work.Done()
	for {
		e, err := l.events.SReadContext(l.ctx, 0)
		switch {
		case errors.Is(err, fi.EAVAIL):
			_, _ = l.events.ReadErr(0)
			continue
		case errors.Is(err, fi.EAGAIN):
			continue
		case err != nil:
			return
		}
		info, is := e.Info.(*uet.Info)
		if !is {
			continue
		}
		select {
		case l.slots <- struct{}{}:
			l.work.Add(1)
			go l.welcome(info)
		default:
			_ = l.passive.Reject(info.Handle, []byte(noRoom))
		}
	}
}

// welcome sets up one connection. Others are set up meanwhile, so that a peer that is slow or
// gone holds up nobody.
func (l *Listener) welcome(info *uet.Info) {
	defer l.work.Done()
	l.host.Use()
	c, err := newConn(l.host, info)
	if err != nil {
		_ = l.passive.Reject(info.Handle, nil)
		<-l.slots
		return
	}
	c.remote = Addr{info.DestAddr}
	if err = c.ep.Accept(nil); err == nil {
		err = c.connected(l.ctx)
	}
	if err != nil {
		c.abort()
		<-l.slots
		return
	}
	l.ready <- c // it has room for all slots
}

// Accept waits for the next connection and returns it, a *Conn. net.ErrClosed: the Listener was
// closed.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptContext(context.Background())
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptContext is Accept that returns a *Conn, and the error of ctx if that ends first.
func (l *Listener) AcceptContext(ctx context.Context) (*Conn, error) {
	if l.host == nil { // nobody opened it
		return nil, &net.OpError{Op: "accept", Net: Network, Err: net.ErrClosed}
	}
	var err error
	select {
	case <-l.ctx.Done(): // first: no connection after Close
		err = net.ErrClosed
	default:
		select {
		case c := <-l.ready:
			<-l.slots
			return c, nil
		case <-l.ctx.Done():
			err = net.ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return nil, &net.OpError{Op: "accept", Net: Network, Addr: l.addr, Err: err}
}

// Addr returns the address that Dial needs.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close stops listening and closes the connections that wait for Accept. Those that were accepted
// go on, and keep the port until the last of them is closed.
func (l *Listener) Close() error {
	err := net.ErrClosed
	if l.host == nil {
		return err
	}
	l.once.Do(func() {
		l.cancel()
		err = l.passive.Close()
		l.work.Wait()
		for len(l.ready) > 0 {
			(<-l.ready).abort()
		}
		err = errors.Join(err, l.events.Close(), l.host.Release())
	})
	if err != nil {
		return &net.OpError{Op: "close", Net: Network, Addr: l.addr, Err: err}
	}
	return nil
}

var _ net.Listener = (*Listener)(nil)

// anyOf returns the address that stands for all addresses of the family of a.
func anyOf(a wire.Addr) netip.Addr {
	if a.IP.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
