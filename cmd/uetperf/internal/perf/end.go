package perf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// An end is an enabled endpoint with the objects that it needs.
type end struct {
	*objects
	ep     *uet.Endpoint
	cq     *cq.CQ
	eq     *eq.EQ  // nil for RDM
	region *uet.MR // memory that the peer accesses; nil if it does not
	local  netip.AddrPort
}

// objects are those that several ends may share. The last one closes them.
type objects struct {
	users  atomic.Int32
	fabric *uet.Fabric
	domain *uet.Domain
	av     *av.AV // nil for MSG
	queues []*cq.CQ
}

// openEnd opens an endpoint as info says, with one completion queue of at least size
// entries for sends and receives.
func openEnd(info *uet.Info, size int) (*end, error) {
	return openEndBeside(nil, false, info, size)
}

// openEndBeside is openEnd for an endpoint that shares the objects of another end, if that is not nil, and its
// completion queue if sameQueue says so.
func openEndBeside(first *end, sameQueue bool, info *uet.Info, size int) (*end, error) {
	e := &end{objects: new(objects)}
	if first != nil {
		e.objects = first.objects
	}
	e.users.Add(1)
	err := error(nil)
	if first == nil {
		err = e.objects.open(info)
	}
	if err == nil && first != nil && sameQueue {
		e.cq = first.cq
	} else if err == nil {
		e.cq, err = e.objects.openQueue(size)
	}
	if err == nil {
		err = e.open(info)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// open opens the objects. After an error some are open.
func (o *objects) open(info *uet.Info) (err error) {
	if o.fabric, err = uet.OpenFabric(info, nil); err != nil {
		return err
	}
	if o.domain, err = o.fabric.OpenDomain(info, nil); err != nil {
		return err
	}
	if info.Ep.Type != fi.EpMsg {
		o.av, err = o.domain.OpenAV(av.Attr{}, nil)
	}
	return err
}

// openQueue opens a completion queue of at least size entries.
func (o *objects) openQueue(size int) (*cq.CQ, error) {
	q, err := o.domain.OpenCQ(cq.Attr{Size: size, Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	if err == nil {
		o.queues = append(o.queues, q)
	}
	return q, err
}

// open opens the endpoint. After an error some of it is open.
func (e *end) open(info *uet.Info) (err error) {
	if e.ep, err = e.domain.OpenEndpoint(info, nil); err != nil {
		return err
	}
	if err = e.ep.BindCQ(e.cq, fi.Transmit|fi.Recv); err != nil {
		return err
	}
	if info.Ep.Type == fi.EpMsg {
		if e.eq, err = e.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil); err != nil {
			return err
		}
		err = e.ep.BindEQ(e.eq)
	} else {
		err = e.ep.BindAV(e.av)
	}
	if err != nil {
		return err
	}
	if err = e.ep.Enable(); err != nil {
		return err
	}
	name, err := e.ep.Name()
	if err != nil {
		return err
	}
	e.local = name.AddrPort()
	return nil
}

// near returns addr as this host writes it. A zone names an interface of the host that uses
// it, so a link-local address of the other end gets the zone of this end.
func (e *end) near(addr netip.AddrPort) netip.AddrPort {
	ip := addr.Addr()
	if !ip.Is6() || !ip.IsLinkLocalUnicast() {
		return addr
	}
	return netip.AddrPortFrom(ip.WithZone(e.local.Addr().Zone()), addr.Port())
}

// insert makes addr a destination. On a connection messages need none.
func (e *end) insert(addr netip.AddrPort) (fi.Addr, error) { return e.insertName(addr, 0) }

// insertName is insert for one of the endpoints at an address, by its PIDonFEP.
func (e *end) insertName(addr netip.AddrPort, pid uint16) (fi.Addr, error) {
	if e.av == nil {
		return fi.AddrUnspec, nil
	}
	addr = e.near(addr)
	to := wire.SockAddr(addr)
	if pid != 0 {
		to.PIDonFEP, to.Flags = pid, to.Flags|wire.AddrPIDValid
	}
	var h [1]fi.Addr
	n, err := e.av.Insert([]wire.Addr{to}, h[:], 0, nil)
	if err == nil && n != 1 {
		err = fi.EINVAL
	}
	if err != nil {
		return 0, fmt.Errorf("address %v: %w", addr, err)
	}
	return h[0], nil
}

// withdraw ends the access to the memory of the end.
func (e *end) withdraw() {
	if e.region != nil {
		_ = e.region.Close()
		e.region = nil
	}
}

// close closes everything that is open. It cancels outstanding operations.
func (e *end) close() {
	e.withdraw()
	if e.ep != nil {
		_ = e.ep.Close()
	}
	if e.eq != nil {
		_ = e.eq.Close()
	}
	if e.users.Add(-1) > 0 {
		return
	}
	for _, q := range e.queues {
		_ = q.Close()
	}
	if e.av != nil {
		_ = e.av.Close()
	}
	if e.domain != nil {
		_ = e.domain.Close()
	}
	if e.fabric != nil {
		_ = e.fabric.Close()
	}
}

// An OpError is an operation that completed in error.
type OpError struct {
	Entry cq.Error
	Text  string // explanation by the provider
}

func (e *OpError) Error() string {
	what := "operation"
	switch {
	case e.Entry.Flags&fi.Send != 0:
		what = "send"
	case e.Entry.Flags&fi.Recv != 0:
		what = "receive"
	}
	s := fmt.Sprintf("%s failed: %v", what, e.Entry.Err)
	if e.Entry.Prov != 0 {
		s += " (" + e.Text + ")"
	}
	switch e.Entry.Err {
	case fi.EKEYREJECTED:
		s += ": one end of the connection was removed, or its key is no longer good"
	case fi.ESHUTDOWN:
		s += ": the other end closed the connection"
	}
	return s
}

// Unwrap returns the errno.
func (e *OpError) Unwrap() error { return e.Entry.Err }

// readErr reads the error entry at the head of the queue.
func (e *end) readErr() error {
	var ce cq.Error
	if _, err := e.cq.ReadErr(&ce, 0); err != nil {
		return fmt.Errorf("completion queue: %w", err)
	}
	return &OpError{Entry: ce, Text: e.cq.StrError(ce.Prov)}
}

// Unreachable reports whether err means that the peer does not exist or does not answer.
func Unreachable(err error) bool {
	for _, e := range []fi.Errno{fi.ETIMEDOUT, fi.EHOSTUNREACH, fi.ENETUNREACH, fi.ECONNABORTED, fi.ECONNREFUSED, fi.EHOSTDOWN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// counters returns the counters of the endpoint.
func (e *end) counters() record.Counters { return CountersOf(e.ep.Stats()) }

// CountersOf returns the counters of an endpoint as a record has them.
func CountersOf(s uet.Stats) record.Counters {
	c := record.Counters{
		TxPkts: s.TxPackets, RxPkts: s.RxPackets, TxBytes: s.TxBytes, RxBytes: s.RxBytes,
		RtxRTO: s.RtxRTO + s.RUDIResent, RtxSACK: s.RtxSACK, RtxNack: s.RtxNack, RtxProbe: s.RtxProbe,
		Dup: s.RxDup, OOO: s.RxOOO, Trimmed: s.RxTrimmed, ECNCE: s.RxCE, AcksTx: s.AcksTx, AcksRx: s.AcksRx, RdvTx: s.Lent, RdvRx: s.Pulled,
		OpsRUD: s.Ops(wire.RUD), OpsROD: s.Ops(wire.ROD), OpsRUDI: s.Ops(wire.RUDI), OpsUUD: s.Ops(wire.UUD),
		CreditsGranted: s.CreditsGranted, CreditsUsed: s.CreditsUsed, CreditWaitNS: uint64(s.CreditWaited),
		Drops: map[string]uint64{},
	}
	for i, n := range s.Drops {
		if n > 0 {
			c.Drops[transport.DropReason(i).String()] = n
		}
	}
	if s.Socket.KernelDrops > 0 {
		c.Drops["kernel"] = s.Socket.KernelDrops
	}
	return c
}

// refusedTrimmed counts the NACKs for packets of this end that a switch trimmed, before the
// last hop or on it.
func (e *end) refusedTrimmed() uint64 {
	const trimmed, lastHop = 0x01, 0x02
	s := e.ep.Stats()
	return s.NacksRx[trimmed] + s.NacksRx[lastHop]
}

// spurious counts the packets that this end sent again although the other had them, as it found out.
func (e *end) spurious() uint64 { return e.ep.Stats().RtxSpurious }

// path describes the endpoint's path to remote.
func (e *end) path(remote netip.AddrPort) (record.Path, int) {
	p, err := e.ep.PathInfo()
	if err != nil {
		return record.Path{}, 0
	}
	out := PathOf(&p)
	out.Local, out.Remote = e.local.String(), remote.String()
	return out, p.PayloadMTU
}

// PathOf converts what the system gave to the form of records.
func PathOf(p *uet.PathInfo) record.Path {
	s := &p.Socket
	return record.Path{
		Local: p.Local.AddrPort().String(), Interface: s.Interface, Driver: driver(s.Interface), MTU: s.MTU,
		GSO: record.Feature{On: s.GSO.On, Why: s.GSO.Why}, GRO: record.Feature{On: s.GRO.On, Why: s.GRO.Why},
		Rcvbuf: s.RecvBuf.Got, Sndbuf: s.SendBuf.Got, RcvbufAsked: s.RecvBuf.Asked, SndbufAsked: s.SendBuf.Asked,
		ECN: s.ECN.On,
	}
}

// oneLine is the text of an error in one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
