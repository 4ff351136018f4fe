package uet

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Handle in an Info is the origin of an endpoint to be opened: a *ConnReq or a
// *PassiveEndpoint.
type Handle interface{ source() }

// A PassiveEndpoint listens for connections (fi_passive_ep(3)). It transfers no data
// (R-CM-18). Its address, which Connect needs, is that of connection management: an IP
// address and a UDP port of its own.
//
// Each request comes as fi.ConnReq by the event queue. Bytes has the data that the other
// side gave Connect, Info an *Info. Open an endpoint with that Info and call Accept, or
// call Reject with its Handle.
type PassiveEndpoint struct {
	fabric  *Fabric
	info    Info
	log     *slog.Logger
	lines   *lines // of log
	context any

	mu      sync.Mutex // guards what follows; never held in a call of cm
	eq      reporter
	state   int32 // stateNew, stateEnabled once it listens, stateTaken, stateClosed
	backlog int
	node    *cmNode
	name    wire.Addr
	open    map[*ConnReq]struct{} // neither accepted nor rejected nor withdrawn

	noRoom   uint64    // requests that the event queue had no room for
	saidFull time.Time // in the log
}

// stateTaken: an endpoint took over the address of the passive one.
const stateTaken int32 = 100

func (*PassiveEndpoint) source() {}

// DefaultBacklog is how many requests may wait for Accept or Reject unless SetBacklog sets
// another number.
const DefaultBacklog = 128

// OpenPassive opens a passive endpoint at the source address of info. Port 0 stands for an
// ephemeral port; an unspecified IP address, which SetName may set, stands for all
// addresses of this host. fi.EINVAL: info is nil, of another endpoint type than FI_EP_MSG,
// or asks for something that GetInfo refuses.
func (f *Fabric) OpenPassive(info *Info, ctx any) (*PassiveEndpoint, error) {
	if info == nil || info.Ep.Type != fi.EpMsg || !info.SrcAddr.IP.IsValid() {
		return nil, fmt.Errorf("uet: open passive endpoint: no MSG endpoint with a source address is described: %w", fi.EINVAL)
	}
	if err := info.check(); err != nil {
		return nil, fmt.Errorf("uet: open passive endpoint: %w", err)
	}
	if err := f.adopt(); err != nil {
		return nil, err
	}
	p := &PassiveEndpoint{
		fabric: f, info: *info, context: ctx,
		backlog: DefaultBacklog, open: map[*ConnReq]struct{}{},
	}
	p.info.clone()
	p.info.SrcAddr = byName(info.SrcAddr)
	p.log, p.lines = newScribe(info.Config.Logger)
	return p, nil
}

// Context returns the context given to OpenPassive.
func (p *PassiveEndpoint) Context() any { return p.context }

// Info returns the Info that the passive endpoint was opened with. An endpoint opened with
// it as Handle takes over the address (R-CM-18): its Connect uses that address, and the
// passive endpoint cannot be used any more.
func (p *PassiveEndpoint) Info() *Info {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.info
	in.clone()
	if p.name.IP.IsValid() {
		in.SrcAddr = p.name
	}
	return &in
}

// fresh returns why nothing can be bound or set any more; nil before Listen.
func (p *PassiveEndpoint) fresh() error {
	switch {
	case p.fabric == nil, p.state == stateClosed:
		return fi.EBADF
	case p.state == stateNew:
		return nil
	}
	return fi.EOPBADSTATE
}

// BindEQ binds the event queue for requests. fi.EINVAL: q is nil, or one is bound already.
// fi.EDOMAIN: q is of another fabric. fi.EOPBADSTATE: the passive endpoint listens.
// fi.EBADF: it, or q, is closed.
func (p *PassiveEndpoint) BindEQ(q *eq.EQ) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fresh(); err != nil {
		return err
	}
	if q == nil || p.eq != nil {
		return fi.EINVAL
	}
	if err := foreign(&p.fabric.parent, q); err != nil {
		return err
	}
	var err error
	p.eq, err = reporterOf(q, 0) // what it has no room for is refused
	return err
}

// SetName changes the address before Listen (fi_setname, R-CM-14). Port 0 asks for an
// ephemeral port. fi.EINVAL: not a valid address.
func (p *PassiveEndpoint) SetName(a wire.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fresh(); err != nil {
		return err
	}
	if !a.IP.IsValid() {
		return fi.EINVAL
	}
	p.info.SrcAddr = byName(a)
	return nil
}

// Name returns the address for Connect (fi_getname). fi.EOPBADSTATE: before Listen there is
// none unless a port was asked for (R-CM-15).
func (p *PassiveEndpoint) Name() (wire.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state == stateClosed:
		return wire.Addr{}, fi.EBADF
	case p.name.IP.IsValid():
		return p.name, nil
	case p.info.SrcAddr.Port == 0 || p.info.SrcAddr.IP.IsUnspecified():
		return wire.Addr{}, fi.EOPBADSTATE
	}
	return p.info.SrcAddr, nil
}

// SetBacklog sets how many requests may wait for Accept or Reject (fi_control, FI_BACKLOG).
// Further requests are rejected (R-CM-02). fi.EINVAL: less than 1. fi.EOPBADSTATE: the
// passive endpoint listens.
func (p *PassiveEndpoint) SetBacklog(n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fresh(); err != nil {
		return err
	}
	if n < 1 {
		return fi.EINVAL
	}
	p.backlog = n
	return nil
}

// Listen begins to accept requests (fi_listen).
//
// fi.ENOEQ: no event queue is bound (R-CM-01). fi.EADDRINUSE: the port is taken.
// fi.EADDRNOTAVAIL: the address is not of this host. fi.EOPBADSTATE: it listens
// already. fi.EINVAL: the port is the one that Standard encapsulation has for data.
func (p *PassiveEndpoint) Listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fresh(); err != nil {
		return err
	}
	if p.eq == nil {
		return fi.ENOEQ
	}
	if p.info.Config.Encapsulation == Standard && p.info.SrcAddr.Port == wire.Port {
		return fmt.Errorf("uet: listen: port %d is that of data with standard encapsulation; listen at another: %w", wire.Port, fi.EINVAL)
	}
	node, err := openNode(netip.AddrPortFrom(p.info.SrcAddr.IP, p.info.SrcAddr.Port), &p.info.Config, p.backlog)
	if err != nil {
		return fmt.Errorf("uet: listen: %w", err)
	}
	p.node, p.name = node, identity(p.info.SrcAddr, node.Addr())
	p.state = stateEnabled
	if err := node.Listen(p.requested); err != nil { // requests wait for mu
		p.state, p.node, p.name = stateNew, nil, wire.Addr{}
		node.put()
		return fmt.Errorf("uet: listen: %w", withErrno(err, openErrno(err)))
	}
	return nil
}

// requested handles one request and returns when the request is answered. It runs on a
// goroutine of connection management that it may block. A withdrawn request is answered
// here, so that it does not count towards the backlog until the application reads its
// event.
func (p *PassiveEndpoint) requested(r contract.Request) {
	q := p.offer(r)
	if q == nil {
		_ = r.Reject(nil)
		return
	}
	select {
	case <-q.answered:
	case <-r.Withdrawn():
		_ = r.Reject(nil)
		p.mu.Lock()
		delete(p.open, q)
		p.mu.Unlock()
	}
}

// offer puts a request into the event queue. It returns nil if the endpoint does not
// listen, or if there is no room: strangers must not fill a queue that nobody reads.
func (p *PassiveEndpoint) offer(r contract.Request) *ConnReq {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != stateEnabled {
		return nil
	}
	q := &ConnReq{pep: p, req: r, answered: make(chan struct{})}
	if !p.eq.Offer(eq.Entry{Event: fi.ConnReq, Fid: p, Info: p.infoOf(q), Bytes: r.Private()}) {
		if now := time.Now(); now.Sub(p.saidFull) >= troubleQuiet {
			p.saidFull = now
			p.log.Warn("connection requests refused: nobody reads the event queue", slog.String("local", p.name.AddrPort().String()))
		}
		p.noRoom++
		return nil
	}
	p.open[q] = struct{}{}
	return q
}

// infoOf returns the Info of the endpoint that a request asks for (R-EQ-35).
func (p *PassiveEndpoint) infoOf(q *ConnReq) *Info {
	in := p.info
	in.clone()
	in.SrcAddr.Port = 0
	if in.SrcAddr.IP.IsUnspecified() { // the data socket needs one address: that towards the peer
		if ip, err := route(q.req.Remote().Addr()); err == nil {
			in.SrcAddr.IP = ip
		}
	}
	in.DestAddr = peerName(q.req.Params())
	in.Handle = q
	return &in
}

// Reject rejects a request (fi_reject) and sends data to the other side, cut to CMDataSize
// bytes. Connect fails there with fi.ECONNREFUSED (R-CM-07). fi.EINVAL: h is no request of
// this passive endpoint, or it was accepted or rejected before.
func (p *PassiveEndpoint) Reject(h Handle, data []byte) error {
	q, is := h.(*ConnReq)
	if !is || q == nil || q.pep != p || !q.decide() {
		return fi.EINVAL
	}
	_ = q.req.Reject(cut(data)) // it fails if the other side has left: nothing to do
	return nil
}

// Close stops listening. Requests that no endpoint was opened for are rejected. Accepted
// connections go on, and the port stays in use until the last of them is closed. fi.EBADF:
// it is closed already.
func (p *PassiveEndpoint) Close() error {
	if p.fabric == nil { // it was never opened
		return fi.EBADF
	}
	p.mu.Lock()
	if p.state == stateClosed {
		p.mu.Unlock()
		return fi.EBADF
	}
	p.state = stateClosed
	var refuse []*ConnReq
	for q := range p.open {
		if !q.claimed {
			q.markAnswered()
			refuse = append(refuse, q)
		}
	}
	node, evq := p.node, p.eq
	p.mu.Unlock()
	for _, q := range refuse {
		_ = q.req.Reject(nil)
	}
	if node != nil {
		node.put()
	}
	if evq != nil {
		evq.Unbind()
	}
	p.fabric.release()
	p.lines.flush()
	return nil
}

// take transfers the address to an endpoint.
func (p *PassiveEndpoint) take() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fresh(); err != nil {
		return err
	}
	p.state = stateTaken
	return nil
}

// A ConnReq is a request for a connection (the handle of fi_info). The Info of its event
// has it as Handle.
type ConnReq struct {
	pep *PassiveEndpoint
	req contract.Request

	// With pep.mu:
	claimed  bool          // by an endpoint that is open for it
	decided  bool          // accepted or rejected
	answered chan struct{} // closed when decided
}

func (*ConnReq) source() {}

// Remote is the address of the other side's connection management.
func (q *ConnReq) Remote() wire.Addr {
	if q.req == nil {
		return wire.Addr{}
	}
	return wire.SockAddr(q.req.Remote())
}

// Member is the authenticated name of the other side, empty without security.
func (q *ConnReq) Member() string {
	if q.req == nil {
		return ""
	}
	return q.req.Member()
}

// claim reserves the request, and the socket it came by, for an endpoint.
func (q *ConnReq) claim() error {
	p := q.pep
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case q.decided:
		return fi.EINVAL
	case q.claimed:
		return fi.EBUSY
	}
	q.claimed = true
	p.node.get()
	return nil
}

// decide reports whether the request still waits for an answer. If so, the caller answers
// it.
func (q *ConnReq) decide() bool {
	p := q.pep
	p.mu.Lock()
	defer p.mu.Unlock()
	if q.decided {
		return false
	}
	q.markAnswered()
	return true
}

// markAnswered marks the request as answered. The caller holds pep.mu.
func (q *ConnReq) markAnswered() {
	q.decided = true
	close(q.answered)
	delete(q.pep.open, q)
}

// accept accepts the request and returns its session.
func (q *ConnReq) accept(mine contract.Params, data []byte) (contract.Session, error) {
	s, err := q.req.Accept(mine, data)
	if err != nil {
		select {
		case <-q.req.Withdrawn():
			return nil, fmt.Errorf("uet: accept: the other side has left: %w", fi.ECONNABORTED)
		default:
		}
	}
	return s, err
}

// release undoes claim. An undecided request can be used again, unless the passive endpoint
// is closed.
func (q *ConnReq) release() {
	p := q.pep
	p.mu.Lock()
	q.claimed = false
	refuse := p.state == stateClosed && !q.decided
	if refuse {
		q.markAnswered()
	}
	node := p.node
	p.mu.Unlock()
	if refuse {
		_ = q.req.Reject(nil)
	}
	node.put()
}
