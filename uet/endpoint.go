package uet

import (
	"cmp"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// States of an endpoint.
const (
	stateNew      int32 = iota
	stateEnabled        // Enable succeeded
	stateDisabled       // a critical error disabled it (R-EP-15)
	stateClosed
)

// An Endpoint sends and receives messages (fi_endpoint(3)). It is reliable and
// connectionless (FI_EP_RDM) or connected (FI_EP_MSG), or has datagrams that may be lost, come in
// any order, and find no receive (FI_EP_DGRAM). It has UDP sockets of its own, unless Config.SharePort says
// otherwise.
type Endpoint struct {
	posts   // the posting calls, with the endpoint's own default flags
	domain  *Domain
	info    Info
	log     *slog.Logger
	lines   *lines // of log
	context any

	state atomic.Int32

	mu  sync.Mutex // guards binding, enabling and closing
	av  *av.AV
	eq  reporter
	txq binding
	rxq binding
	// cntrs does not change after Enable.
	cntrs counters
	// aliases is how many aliases are open; while there are any, the endpoint cannot be
	// closed.
	aliases int

	// connection is the connection of an FI_EP_MSG endpoint, nil otherwise.
	connection *connection

	opts epOptions
	// pushed says that the last send came with fi.More: if the next post fails, the
	// sends that wait for it leave (R-MSG-15).
	pushed atomic.Bool

	// Set by Enable, constant afterwards.

	port       *port // nil: the endpoint shares nothing
	id         transport.EndpointID
	seal       *seal // nil means that packets are in clear
	conn       *udp.Conn
	fep        *transport.FEP // belongs to the driver
	drv        *driver.Driver
	paced      *paced // of drv, nil on sockets
	name       wire.Addr
	managed    bool // FI_RM_ENABLED: each operation has its place in the CQ
	ordered    bool // sends go by ROD
	orderedRMA bool // writes and reads do
	source     bool
	sourceErr  bool
	exact      bool                          // FI_EXACT_DIRECTED_RECV
	simple     bool                          // no counters, unknown sources are no errors, and each operation has its place
	visible    bool                          // R-ORD-08, R-ORD-10: a later fence shows what is there
	short      [transport.OpTRecv + 1]uint64 // by shortWays
	txCaps     fi.Caps
	rxCaps     fi.Caps
	rmaCaps    fi.Caps // what peers may do

	// ending counts the goroutines that end the operations of a disabled endpoint. They are
	// started with the driver's lock held.
	ending sync.WaitGroup

	// The fields below belong to the holder of the driver's lock.

	peers          peerCache
	out            sink
	txBack, rxBack int // places that silent successes give back
	troubles       troubles
}

// A binding is the completion queue of one direction.
type binding struct {
	cq        *cq.CQ      // nil means none is bound
	q         completions // of cq
	places    *door.Places
	selective bool
}

// OpenEndpoint opens an endpoint. It is disabled: bind completion queues and an address
// vector, then call Enable. An endpoint of type FI_EP_MSG needs an event queue instead of
// the address vector, and then Connect, or Accept if info came with a request.
//
// fi.EINVAL: info is nil or asks for what GetInfo refuses, or its request was accepted or
// rejected. fi.EBUSY: another endpoint is open for the request. fi.EOPBADSTATE: the passive
// endpoint in info listens, or another endpoint has its address.
func (d *Domain) OpenEndpoint(info *Info, ctx any) (*Endpoint, error) {
	if info == nil || info.Ep.Type != fi.EpUnspec && info.Ep.Type != fi.EpRDM && info.Ep.Type != fi.EpMsg && info.Ep.Type != fi.EpDgram || !info.SrcAddr.IP.IsValid() {
		return nil, fmt.Errorf("uet: open endpoint: no RDM, MSG or DGRAM endpoint with a source address is described: %w", fi.EINVAL)
	}
	if info.Config.SharePort && info.Ep.Type == fi.EpMsg {
		return nil, fmt.Errorf("uet: open endpoint: Config.SharePort is not for MSG endpoints: %w", fi.EINVAL)
	}
	if info.Handle != nil && info.Ep.Type != fi.EpMsg {
		return nil, fmt.Errorf("uet: open endpoint: a handle is for MSG endpoints: %w", fi.EINVAL)
	}
	if err := info.check(); err != nil {
		return nil, fmt.Errorf("uet: open endpoint: %w", err)
	}
	if err := d.adopt(); err != nil {
		return nil, err
	}
	ep := &Endpoint{domain: d, info: *info, context: ctx}
	ep.log, ep.lines = newScribe(info.Config.Logger)
	if info.Ep.Type == fi.EpMsg {
		var err error
		if ep.connection, err = newConnection(ep, info.Handle); err != nil {
			d.release()
			return nil, fmt.Errorf("uet: open endpoint: %w", err)
		}
	}
	ep.info.clone()
	ep.info.SrcAddr, ep.info.DestAddr = byName(info.SrcAddr), byName(info.DestAddr)
	ep.opts.init(&ep.info)
	ep.posts.ep = ep
	ep.rxFlags.Store(uint64(info.Rx.OpFlags))
	return ep, nil
}

// Context returns the context given to OpenEndpoint.
func (ep *Endpoint) Context() any { return ep.context }

// Info returns the Info that the endpoint was opened with. After Enable, SrcAddr has the
// port that was chosen.
func (ep *Endpoint) Info() *Info {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	in := ep.info
	in.clone()
	return &in
}

// unenabled returns why nothing can be bound or set any more; nil before Enable.
func (ep *Endpoint) unenabled() error {
	switch ep.state.Load() {
	case stateEnabled, stateDisabled:
		return errEnabled // R-EP-05
	case stateClosed:
		return errClosed
	}
	if ep.domain == nil {
		return errZero
	}
	return nil
}

// BindCQ binds a completion queue for the directions in flags: fi.Transmit,
// fi.Recv or both. With fi.SelectiveCompletion, successful operations write an
// entry only if they are flagged fi.Completion; failures always do (R-EP-03,
// R-EP-07).
//
// fi.EBADFLAGS: other flags, or no direction. fi.EINVAL: no queue, or the
// direction has one already (R-EP-04). fi.EDOMAIN: the queue is of another
// domain. fi.EOPBADSTATE: the endpoint is enabled (R-EP-05). fi.EBADF: endpoint
// or queue is closed.
func (ep *Endpoint) BindCQ(q *cq.CQ, flags fi.Flags) error {
	const directions = fi.Transmit | fi.Recv
	if q == nil {
		return errNoObject
	}
	if flags&^(directions|fi.SelectiveCompletion) != 0 || flags&directions == 0 {
		return errCQFlags
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.unenabled(); err != nil {
		return err
	}
	if flags&fi.Transmit != 0 && ep.txq.cq != nil || flags&fi.Recv != 0 && ep.rxq.cq != nil {
		return errBoundTwice
	}
	if err := foreign(&ep.domain.parent, q); err != nil {
		return err
	}
	b := binding{cq: q, q: completionsOf(q), selective: flags&fi.SelectiveCompletion != 0}
	b.places = b.q.Places()
	if flags&fi.Transmit != 0 {
		if err := b.q.Bind((*dormant)(ep)); err != nil {
			return err
		}
		ep.txq = b
	}
	if flags&fi.Recv != 0 {
		if err := b.q.Bind((*dormant)(ep)); err != nil {
			return err
		}
		ep.rxq = b
	}
	return nil
}

// foreign returns why a queue cannot be bound: it was not opened in p, or is closed.
func foreign(p *parent, q queue) error {
	switch {
	case q.Closed():
		return errQueueGone
	case !p.owns(q):
		return errForeign
	}
	return nil
}

// dormant stands for the driver in the queues and counters until the endpoint is
// enabled. It does nothing.
type dormant Endpoint

var (
	_ door.Progress = (*dormant)(nil)
	_ door.Progress = (*driver.Driver)(nil)
)

func (*dormant) Poll() bool   { return false }
func (*dormant) Yield()       {}
func (*dormant) Shared() bool { return false }
func (*dormant) Arm()         {}
func (*dormant) Disarm()      {}

// rebind makes the queues and counters drive to instead of from when they are read; nil
// stands for no driver.
func (ep *Endpoint) rebind(from, to door.Progress) {
	var all []door.Driven
	for _, b := range []*binding{&ep.txq, &ep.rxq} {
		if b.cq != nil {
			all = append(all, b.q)
		}
	}
	for _, t := range ep.cntrs.all {
		all = append(all, t.counting)
	}
	for _, d := range all {
		if to != nil {
			_ = d.Bind(to) // it is not closed: from is bound
		}
		d.Unbind(from)
	}
}

// BindAV binds an address vector. An FI_EP_MSG endpoint needs none and ignores it.
// fi.EINVAL: v is nil, or the endpoint has one already. fi.EDOMAIN: v is of another domain.
// fi.EBADF: v is closed.
func (ep *Endpoint) BindAV(v *av.AV) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.unenabled(); err != nil {
		return err
	}
	if v == nil {
		return errNoObject
	}
	if ep.av != nil {
		return errBoundTwice
	}
	if err := foreign(&ep.domain.parent, v); err != nil {
		return err
	}
	if err := referencesOf(v).Bind(); err != nil {
		return err
	}
	ep.av = v
	return nil
}

// BindEQ binds an event queue for asynchronous errors (R-EQ-45): a lost peer, a socket in
// trouble, an overrun completion queue. The connection events of an FI_EP_MSG endpoint go
// there too, and have reserved places. One error has a reserved place; further errors use
// common places of the queue. So a queue that nobody reads overruns in the end, which is
// final for all objects bound to it (R-EQ-62, R-EQ-66).
//
// fi.EINVAL: q is nil, or the endpoint has one already. fi.EDOMAIN: q is of another fabric.
// fi.EBADF: q is closed.
func (ep *Endpoint) BindEQ(q *eq.EQ) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.unenabled(); err != nil {
		return err
	}
	if q == nil {
		return errNoObject
	}
	if ep.eq != nil {
		return errBoundTwice
	}
	if err := foreign(&ep.domain.fabric.parent, q); err != nil {
		return err
	}
	var err error
	if ep.eq, err = reporterOf(q, 1); err == nil && ep.connection != nil {
		ep.connection.eq, err = reporterOf(q, 2) // R-EQ-68: of the beginning and of the end
	}
	return err
}

// SetName changes the source address before Enable (fi_setname, R-CM-14). Port 0 asks for
// an ephemeral port.
func (ep *Endpoint) SetName(a wire.Addr) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.unenabled(); err != nil {
		return err
	}
	if !a.IP.IsValid() {
		return fi.EINVAL
	}
	ep.info.SrcAddr = byName(a)
	return nil
}

// byName returns a with its zone as sockets report it: an interface has a name and a
// number.
func byName(a wire.Addr) wire.Addr {
	a.IP = av.Named(a.IP)
	return a
}

// Name returns the endpoint's address, for peers to insert into their AVs (fi_getname).
// fi.EOPBADSTATE: before Enable there is none unless a port was asked for (R-CM-15).
func (ep *Endpoint) Name() (wire.Addr, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch ep.state.Load() {
	case stateClosed:
		return wire.Addr{}, errClosed
	case stateEnabled, stateDisabled:
		return ep.name, nil
	}
	if ep.domain == nil {
		return wire.Addr{}, errUnopened
	}
	if ep.info.SrcAddr.Port == 0 || ep.info.SrcAddr.IP.IsUnspecified() {
		return wire.Addr{}, errNotEnabled
	}
	return ep.info.SrcAddr, nil
}

// Enable opens the endpoint's socket and makes it ready for operations. Before it is
// connected, an FI_EP_MSG endpoint is ready for receives only.
//
// fi.ENOCQ, fi.ENOAV, fi.ENOEQ: no completion queue for a direction the endpoint has
// the capability for; no address vector, or for FI_EP_MSG no event queue (R-EP-02).
// fi.EADDRINUSE: the port is taken; with Standard encapsulation an address has room for one
// endpoint, and the error says what to do. fi.EADDRNOTAVAIL: the address is not of this host.
// fi.EOPBADSTATE: it is enabled.
func (ep *Endpoint) Enable() error {
	ep.mu.Lock()
	err := ep.enable()
	ep.mu.Unlock()
	if err == nil && ep.info.Domain.DataProgress != fi.ProgressManual {
		ep.gather()
	}
	return err
}

// gather lets the endpoint join the group of a queue that it is bound to, if that has many: then it needs no goroutine and
// no descriptor to wait by. Without it the first look at the queue would do that.
func (ep *Endpoint) gather() {
	b := &ep.rxq
	if b.cq == nil {
		b = &ep.txq
	}
	if b.cq != nil {
		b.q.Gather()
	}
}

// enable is Enable with mu held.
func (ep *Endpoint) enable() error {
	if err := ep.unenabled(); err != nil {
		return err
	}
	caps, err := ep.bound()
	if err != nil {
		return err
	}
	flags := ep.info.Tx.OpFlags
	if t := ep.tx.Load(); t != nil { // SetOpsFlags was here, maybe before BindCQ
		flags = t.flags
	}
	tx, err := ep.txDefaultsOf(flags)
	if err != nil {
		return err
	}
	ep.tx.Store(tx)
	ep.managed = ep.info.Domain.ResourceMgmt != fi.RMDisabled
	asked, inject := ep.info, ep.opts.maxInject
	ep.allow(caps)
	undo := func() { // not what open chose
		ep.drv, ep.paced, ep.port, ep.seal = nil, nil, nil, nil
		ep.info, ep.opts.maxInject, ep.name = asked, inject, wire.Addr{}
	}
	if ep.info.Config.SharePort {
		ps := &ep.domain.ports
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ep.port = ps.find(ep)
	}
	if ep.port != nil {
		err = ep.share(caps)
	} else {
		err = ep.start(caps)
	}
	if err != nil {
		undo()
		return err
	}
	if ep.info.Domain.DataProgress == fi.ProgressManual {
		ep.domain.manual.add(ep.drv)
	}
	ep.state.Store(stateEnabled)
	ep.rebind((*dormant)(ep), ep.progress())
	if ep.rmaCaps != 0 {
		ep.domain.regions.enter(ep)
	}
	ep.logPath()
	return nil
}

// start opens the endpoint's sockets, and its port if others may share them. The caller has the lock of the ports then.
func (ep *Endpoint) start(caps fi.Caps) error {
	var asked []setting
	if ep.info.Config.SharePort {
		dscp, err := ep.dscp()
		if err != nil {
			return err
		}
		ep.port, asked = new(port), ep.settings(dscp)
	}
	if err := ep.open(); err != nil {
		return err
	}
	var who driver.Owner = (*owner)(ep)
	if ep.port != nil {
		who = ep.domain.ports.begun(ep, asked)
	}
	ep.fix(caps)
	core, mover := ep.driven()
	dc := driver.Config{
		Core: core, Mover: mover, Conn: &socket{Conn: ep.conn}, Owner: who,
		Auto: ep.info.Domain.DataProgress != fi.ProgressManual, KeepSlice: ep.info.Config.Tuning.KeepSlice,
		Crowd: ep.info.Config.Tuning.Crowd,
	}
	network := ep.info.Config.network
	if network != nil {
		dc.Clock, dc.KeepSlice = network.Now, true
	}
	ep.drv = driver.New(dc)
	if network != nil {
		ep.paced = &paced{Driver: ep.drv}
	}
	if err := ep.secure(); err != nil {
		_ = ep.drv.Close()
		return err
	}
	if p := ep.port; p != nil {
		p.drv, p.paced = ep.drv, ep.paced
		ep.domain.ports.opened(p)
	}
	return nil
}

// share joins the endpoint's port, which others have opened. The caller has the lock of the ports.
func (ep *Endpoint) share(caps fi.Caps) error {
	dscp, err := ep.dscp()
	if err != nil {
		return err
	}
	p := ep.port
	if err := p.fits(ep, dscp); err != nil {
		return err
	}
	ep.conn, ep.fep, ep.drv, ep.paced, ep.seal = p.conn, p.fep, p.drv, p.paced, p.seal
	ep.settle(p.mtu)
	ep.fix(caps)
	if err := p.join(ep); err != nil {
		return err
	}
	ep.info.SrcAddr = ep.name
	if err := ep.secure(); err != nil {
		p.drv.Do(func(now time.Duration) { p.fep.CloseEndpoint(now, ep.id) })
		p.drv.With(func() { p.forget(ep) })
		return err
	}
	p.open++
	return nil
}

// settle takes over the payload of a packet.
func (ep *Endpoint) settle(mtu int) {
	if ep.info.Ep.Type == fi.EpDgram {
		ep.opts.maxLen[0] = min(ep.opts.maxLen[0], uint64(mtu))
		ep.info.Ep.MaxMsgSize = ep.opts.maxLen[0]
	}
	inject := mtu
	if n := ep.info.Tx.InjectSize; n > 0 && n < inject {
		inject = n
	}
	ep.opts.limit(inject)
	ep.info.Tx.InjectSize = inject
	ep.info.Config.PayloadMTU = mtu
}

// bound returns the capabilities of the endpoint. It fails if an object that they need is
// not bound (R-EP-02).
func (ep *Endpoint) bound() (fi.Caps, error) {
	caps := ep.info.Caps
	if caps == 0 {
		caps = grantCaps(0, kindOf(ep.info.Ep.Type), &reasons{})
	}
	if caps&(fi.Send|fi.Recv) == 0 && caps&(fi.RMA|fi.Atomic) == 0 {
		caps |= fi.Send | fi.Recv
	}
	switch {
	case caps&(fi.Send|fi.Write|fi.Read) != 0 && ep.txq.cq == nil, caps&(fi.Recv|fi.RemoteWrite) != 0 && ep.rxq.cq == nil:
		return 0, errNoCQ
	case ep.connection != nil && ep.eq == nil:
		return 0, errNoEQ
	case ep.connection == nil && ep.av == nil:
		return 0, errNoAV
	}
	if ep.connection != nil {
		// All messages come from one peer, of which there is no address.
		caps &^= fi.DirectedRecv | fi.TaggedDirectedRecv | fi.ExactDirectedRecv | fi.Source | fi.SourceErr
	}
	return caps, nil
}

// allow sets what the capabilities allow. Posting needs the capability and the modifier of its direction.
func (ep *Endpoint) allow(caps fi.Caps) {
	ep.txCaps, ep.rxCaps, ep.rmaCaps = 0, 0, 0
	if caps&fi.Send != 0 {
		ep.txCaps = caps & (fi.Msg | fi.Tagged)
	}
	ep.txCaps |= caps & (fi.RMA | fi.Atomic | fi.Read | fi.Write | fi.Fence | fi.RMAPmem)
	if caps&(fi.RMA|fi.Atomic) != 0 {
		ep.rmaCaps = caps & (fi.RMA | fi.Atomic | fi.RemoteRead | fi.RemoteWrite | fi.RMAPmem)
	}
	if caps&fi.Recv != 0 {
		ep.rxCaps = caps & (fi.Msg | fi.Tagged | fi.DirectedRecv | fi.TaggedDirectedRecv | fi.MultiRecv | fi.TaggedMultiRecv)
	}
}

// fix sets the fields that follow from the capabilities. They do not change afterwards.
func (ep *Endpoint) fix(caps fi.Caps) {
	ep.ordered = ep.info.Tx.MsgOrder&sendOrder != 0
	ep.orderedRMA = ep.info.Tx.MsgOrder&(rmaOrder|atomicOrder) != 0
	ep.source = caps&(fi.Source|fi.SourceErr) != 0
	ep.sourceErr = caps&fi.SourceErr != 0
	ep.exact = caps&fi.ExactDirectedRecv != 0
	ep.visible = ep.txCaps&fi.Fence != 0
	ep.short = ep.shortWays()
	ep.simple = ep.managed && !ep.sourceErr && len(ep.cntrs.all) == 0
	ep.peers = peerCache{av: ep.av, fep: ep.fep, refs: &peerRefs{}}
	if ep.port != nil {
		ep.peers.refs = ep.port.refs
	}
}

// logPath logs once what the system granted. Disabled offloads and short buffers are the
// first answers to "why is it slow".
func (ep *Endpoint) logPath() {
	in := ep.conn.Info()
	fields := []any{
		slog.String("local", ep.name.AddrPort().String()), slog.String("interface", in.Interface), slog.Int("payload_mtu", ep.info.Config.PayloadMTU),
		slog.Bool("gso", in.GSO.On), slog.Bool("gro", in.GRO.On), slog.Int("rcvbuf", in.RecvBuf.Got), slog.Int("sndbuf", in.SendBuf.Got),
	}
	for _, f := range []struct {
		name string
		udp.Feature
	}{{"gso_off", in.GSO}, {"gro_off", in.GRO}, {"ecn_off", in.ECN}} {
		if !f.On {
			fields = append(fields, slog.String(f.name, f.Why))
		}
	}
	ep.log.Info("endpoint enabled", fields...)
	if in.RecvBuf.Short {
		ep.log.Warn("receive buffer is smaller than asked for; raise net.core.rmem_max",
			slog.Int("asked", in.RecvBuf.Asked), slog.Int("got", in.RecvBuf.Got))
	}
}

// sendOrder are the ordering bits that order sends, rmaOrder those that order writes and reads
// (R-ORD-01). Both go by one ROD PDC to a peer, so they are ordered with each other, too
// (R-ORD-02).
const (
	sendOrder = fi.OrderSAS | mixedOrder
	rmaOrder  = fi.OrderRAR | fi.OrderRAW | fi.OrderWAR | fi.OrderWAW | fi.OrderRMARAR | fi.OrderRMARAW | fi.OrderRMAWAR | fi.OrderRMAWAW | mixedOrder
	// mixedOrder are those of sends and accesses among each other.
	mixedOrder = fi.OrderSAR | fi.OrderSAW | fi.OrderRAS | fi.OrderWAS
	// atomicOrder are those of atomic operations among each other: on a ROD PDC they are executed in order.
	atomicOrder = fi.OrderAtomicRAR | fi.OrderAtomicRAW | fi.OrderAtomicWAR | fi.OrderAtomicWAW
)

// open opens the socket and makes the FEP.
func (ep *Endpoint) open() error {
	cfg := &ep.info.Config
	dscp, err := ep.dscp()
	if err != nil {
		return err
	}
	if ep.info.SrcAddr.Port = cfg.port(ep.info.SrcAddr.Port); cfg.Encapsulation == Standard && ep.info.SrcAddr.Port != wire.Port {
		return fmt.Errorf("uet: enable: standard encapsulation has port %d, and the address has %d: %w", wire.Port, ep.info.SrcAddr.Port, fi.EINVAL)
	}
	conn, err := udp.Open(ep.sockets(dscp))
	if err != nil {
		return ep.unopened(err)
	}
	id := able(identity(ep.info.SrcAddr, conn.LocalAddr()))
	if id.Encap = cfg.Encapsulation; id.Encap == Symmetric {
		id.Paths = wire.PathPortsOf(conn.Ports())
	}
	tc := ep.engine(conn, id, dscp)
	if cfg.Security != nil {
		if ep.seal, err = ep.newSeal(tss.Config{Local: tc.Local.Addr()}); err != nil {
			_ = conn.Close()
			return err
		}
		tc.TSS, tc.OneRTT = ep.seal.dom, ep.connection == nil
	}
	fep, err := transport.New(tc, rng())
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("uet: enable: %w: %w", err, fi.EINVAL)
	}
	ep.conn, ep.fep = conn, fep
	ep.settle(tc.PayloadMTU)
	ep.name = id
	ep.info.SrcAddr = id
	return nil
}

// unopened is the error of Enable for sockets that could not be opened.
func (ep *Endpoint) unopened(err error) error {
	e := openErrno(err)
	if e == fi.EADDRINUSE && ep.info.Config.Encapsulation == Standard {
		ip := ep.info.SrcAddr.IP
		return fmt.Errorf("uet: enable: %w: standard encapsulation needs port %d of %v for itself, and it is taken: give each endpoint an address of its own (ip addr add), "+
			"end what has the port (ss -ulpn 'sport = :%d' names it), or use symmetric encapsulation at both ends", withErrno(err, e), wire.Port, ip, wire.Port)
	}
	return fmt.Errorf("uet: enable: %w", withErrno(err, e))
}

// withErrno returns err that is e as well. Its text has the words of e once.
func withErrno(err error, e fi.Errno) error {
	if strings.HasSuffix(err.Error(), e.Error()) {
		return &alsoErrno{err, e}
	}
	return fmt.Errorf("%w: %w", err, e)
}

// An alsoErrno is an error whose text says already which errno it is.
type alsoErrno struct {
	error
	errno fi.Errno
}

func (a *alsoErrno) Unwrap() []error { return []error{a.error, a.errno} }

// engine returns the configuration of the endpoint's FEP with name id, without its
// security.
func (ep *Endpoint) engine(conn *udp.Conn, id wire.Addr, dscp uint8) transport.Config {
	cfg := &ep.info.Config
	tc := cfg.Tuning.fep()
	tc.Local = conn.LocalAddr()
	tc.Paths = conn.Ports()
	tc.Encapsulation, tc.Echo = cfg.Encapsulation, conn.Echo
	tc.Born = 1 // the time of the driver begins later than the socket
	tc.Notes = cfg.Tap != nil
	tc.PayloadMTU, tc.NoCRC, tc.KnownPeersOnly = cfg.PayloadMTU, cfg.NoCRC, cfg.KnownPeersOnly
	if tc.PayloadMTU == 0 {
		tc.PayloadMTU = 1024
		if mtu := conn.Info().MTU; mtu != 0 {
			tc.PayloadMTU = payloadMTU(mtu, ep.info.SrcAddr.IP, cfg.Security != nil)
		}
	}
	tc.Datagram = ep.info.Ep.Type == fi.EpDgram
	if ep.connection != nil {
		tc.KnownPeersOnly = true // the one that it is connected to
	}
	tc.EndpointConfig = ep.local(id)
	tc.DSCP = dscp
	tc.Hint, tc.Lost, tc.PathMTU = (*owner)(ep).unfit, (*owner)(ep).sourceLost, (*owner)(ep).pathMTU
	if p := ep.port; p != nil {
		tc.Hint, tc.Lost, tc.PathMTU = p.unfit, p.sourceLost, p.pathMTU
	}
	full := tc.PayloadMTU + headerBytes
	tc.RecvWindow = conn.Info().RecvBuf.Usable(full)
	tc.RecvCost = func(size int) int { return udp.Cost(size, full) }
	return tc
}

// local is the configuration of the endpoint with name id in its FEP.
func (ep *Endpoint) local(id wire.Addr) (c transport.EndpointConfig) {
	c.JobID, c.PIDonFEP, c.RI, c.Initiator = ep.localJob(), id.PIDonFEP, id.RI, id.Initiator
	c.MaxSends, c.MaxRecvs = orDefault(ep.info.Tx.Size, defaultTxSize), orDefault(ep.info.Rx.Size, defaultRxSize)
	c.Atomics = ep.atomics()
	if ep.rxq.cq != nil && ep.managed {
		c.Admit = ep.rxq.q.Admit
	}
	return c
}

// atomics is what peers may do by tagged atomic operations with the buffers of receives.
func (ep *Endpoint) atomics() (a transport.Access) {
	if ep.rxCaps&fi.Tagged == 0 || ep.rmaCaps&fi.Atomic == 0 {
		return 0
	}
	a = transport.RemoteAtomic
	if ep.rmaCaps&fi.RemoteWrite != 0 {
		a |= transport.RemoteWrite
	}
	if ep.rmaCaps&fi.RemoteRead != 0 {
		a |= transport.RemoteRead
	}
	return a
}

// dscp returns the code point of the endpoint's traffic class, or else of the domain's
// (R-INFO-23).
func (ep *Endpoint) dscp() (uint8, error) {
	for _, c := range []fi.TClass{ep.info.Tx.TClass, ep.info.Domain.TClass, ep.domain.attr.TClass} {
		if c != fi.TCUnspec {
			d, ok := c.DSCP()
			if !ok {
				return 0, fmt.Errorf("uet: enable: traffic class %#x: %w", uint32(c), fi.EINVAL)
			}
			return d, nil
		}
	}
	return 0, nil
}

// able returns the address of an endpoint with what every endpoint can do.
func able(a wire.Addr) wire.Addr {
	a.Caps, a.Flags = ownCaps, a.Flags|wire.AddrCapsValid
	return a
}

// identity returns the address of an endpoint that asked for src and got local.
func identity(src wire.Addr, local netip.AddrPort) wire.Addr {
	id := wire.SockAddr(local)
	if src.PIDonFEP != 0 {
		id.PIDonFEP, id.Flags = src.PIDonFEP, id.Flags|wire.AddrPIDValid
	}
	if src.RI != 0 && src.RI != wire.DefaultRI {
		id.RI, id.Flags = src.RI, id.Flags|wire.AddrRIValid
	}
	if src.Initiator != 0 && src.Initiator != wire.DefaultInitiator {
		id.Initiator, id.Flags = src.Initiator, id.Flags|wire.AddrInitiatorValid
	}
	return id
}

// job returns the JobID: from the endpoint's key, else from the domain's (R-ADDR-08), else
// from the configuration (R-ADDR-07). 0 stands for the default.
func (ep *Endpoint) job() uint32 {
	for _, key := range [][]byte{ep.info.Ep.AuthKey, ep.info.Domain.AuthKey, ep.domain.attr.AuthKey} {
		if j, err := jobOf(key); err == nil && j != 0 {
			return j
		}
	}
	return ep.info.Config.JobID
}

// localJob is the JobID, or the default (R-ADDR-07).
func (ep *Endpoint) localJob() uint32 { return cmp.Or(ep.job(), 1) }

// rng returns the endpoint's source of random numbers. It is of cryptographic quality,
// because packet numbers and context ids must not be guessable (T3), and no two lives of an
// endpoint may draw the same: a peer that remembers the former one would take new packets for
// resent ones and acknowledge what it never received (F13). So no setting makes it repeatable.
func rng() *rand.Rand {
	var key [32]byte
	_, _ = crand.Read(key[:]) // never fails
	return rand.New(rand.NewChaCha8(key))
}

// openErrno is the errno of a socket that cannot be opened.
func openErrno(err error) fi.Errno {
	var e syscall.Errno
	if errors.As(err, &e) {
		return fi.Errno(e)
	}
	return fi.EINVAL
}

// Close closes the endpoint. Nothing can be posted any more, receives end at once, and messages
// that still come are refused. Then Close waits, at most Tuning.Linger, until injected messages
// and others whose completion was reported early are delivered, and until peers have the ACKs of
// what was received. It does not wait for a peer that is gone, and returns at once if there is
// nothing to wait for. The last endpoint of a port (Config.SharePort) waits for others of it that are being closed, too,
// for as long as the longest Linger of all. Whatever has not ended by then ends with fi.ECANCELED before Close returns,
// and nothing ends after; the buffers are the caller's again. Without resource management,
// completions that the queue has no room for are dropped (R-EP-14). The peer of an FI_EP_MSG
// endpoint gets fi.Shutdown; no further event comes to this side. fi.EBADF: it is closed already.
// fi.EBUSY: aliases are open (R-EP-17).
func (ep *Endpoint) Close() error {
	if ep.domain == nil {
		return errZero
	}
	ep.mu.Lock()
	if ep.aliases > 0 {
		ep.mu.Unlock()
		return fi.EBUSY
	}
	was := ep.state.Swap(stateClosed)
	drv := ep.drv
	ep.mu.Unlock()
	if was == stateClosed {
		return errClosed
	}
	if ep.connection != nil {
		ep.connection.leave(connIdle, connPending, connUp, connDown, connFailed)
	}
	var err error
	if drv != nil {
		begun := time.Now()
		ep.domain.regions.exit(ep)
		if ep.port != nil && !ep.port.last() {
			ep.port.leave(ep)
		} else {
			if ep.port != nil {
				ep.port.empty(ep)
			}
			ep.linger(begun)
			if err = drv.Close(); ep.connection != nil && err == transport.ErrClosed {
				err = nil // Shutdown did
			}
			if ep.port != nil {
				ep.port.closed()
			}
		}
		ep.ending.Wait()
	}
	if ep.connection != nil {
		ep.connection.close()
	}
	if drv != nil {
		ep.rebind(ep.progress(), nil)
	} else {
		ep.rebind((*dormant)(ep), nil)
	}
	if ep.seal != nil {
		ep.info.Config.Security.leave(ep)
	}
	if ep.av != nil {
		referencesOf(ep.av).Unbind()
	}
	if ep.eq != nil {
		ep.eq.Unbind()
		if ep.connection != nil {
			ep.connection.eq.Unbind()
		}
	}
	ep.domain.release()
	ep.lines.flush()
	return err
}
