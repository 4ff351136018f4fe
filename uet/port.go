package uet

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// This file lets several endpoints share an address, its sockets and its FEP (Config.SharePort,
// docs/decisions/0063).

// A port is what endpoints of a domain share that have one address: its sockets, its FEP and its
// driver. An endpoint that shares nothing has no port.
type port struct {
	domain *Domain
	conn   *udp.Conn
	fep    *transport.FEP
	drv    *driver.Driver
	paced  *paced
	seal   *seal
	asked  []setting // of who opened it
	mtu    int       // in force

	open    int            // endpoints that have not begun to close; guarded by portTable.mu
	leaving sync.WaitGroup // endpoints that close, but for the last one

	// The fields below belong to the holder of the driver's lock.

	endpoints []*Endpoint // by transport.EndpointID; nil: closed
	refs      *peerRefs
	known     peerCache // with KnownPeersOnly
	// reached counts the endpoints with memory that peers may access, by JobID and PIDonFEP.
	reached map[jobPID]int
}

type jobPID struct {
	job uint32
	pid uint16
}

// A portTable has the ports of a domain.
type portTable struct {
	mu sync.Mutex
	at map[netip.AddrPort]*port
}

// A setting is something that endpoints of a port have in common, with the name that it has where it is set.
type setting struct {
	name string
	v    any
}

// A function is the value of a setting that is one. Functions cannot be compared: the port has that of the endpoint
// which opened it, and another endpoint must bring none.
type function bool // it is there

// ownSettings are the fields of Config and Tuning that each endpoint of a port has for itself.
var ownSettings = map[string]bool{"JobID": true, "RUDI": true, "Logger": true, "CM": true, "SharePort": true, "Tuning.Linger": true}

// settings returns what the endpoints of a port have in common.
func (ep *Endpoint) settings(dscp uint8) []setting {
	cfg := &ep.info.Config
	var known *av.AV
	if cfg.KnownPeersOnly {
		known = ep.av
	}
	kind := ep.info.Ep.Type
	if kind == fi.EpUnspec {
		kind = fi.EpRDM
	}
	all := []setting{
		{"Ep.Type", kind}, {"Domain.DataProgress", ep.info.Domain.DataProgress}, {"the traffic class", dscp},
		{"fi.OptSendBufSize", ep.opts.buf(fi.OptSendBufSize, cfg.Socket.SendBuf)},
		{"fi.OptRecvBufSize", ep.opts.buf(fi.OptRecvBufSize, cfg.Socket.RecvBuf)},
		{"the address vector, with Config.KnownPeersOnly", known}, {"Config.network", cfg.network},
	}
	return fieldSettings(all, "", reflect.ValueOf(cfg).Elem())
}

// fieldSettings appends the exported fields of a struct, those of structs in it one by one.
func fieldSettings(all []setting, prefix string, v reflect.Value) []setting {
	for i := range v.NumField() {
		f, name := v.Field(i), prefix+v.Type().Field(i).Name
		switch {
		case !v.Type().Field(i).IsExported() || ownSettings[name]:
		case f.Kind() == reflect.Struct:
			all = fieldSettings(all, name+".", f)
		case f.Kind() == reflect.Func:
			all = append(all, setting{"Config." + name, function(!f.IsNil())})
		default:
			all = append(all, setting{"Config." + name, f.Interface()})
		}
	}
	return all
}

// fits returns an error that names the first setting in which ep differs from who opened the port.
func (p *port) fits(ep *Endpoint, dscp uint8) error {
	for i, s := range ep.settings(dscp) {
		if there, is := s.v.(function); is {
			if there {
				return fmt.Errorf("uet: enable: %s is for the endpoint which opened port %v alone, about what all of the port send and receive: leave it nil: %w",
					s.name, p.conn.LocalAddr(), fi.EINVAL)
			}
			continue
		}
		if s.v == p.asked[i].v || s.name == "Config.PayloadMTU" && s.v == p.mtu {
			continue
		}
		return fmt.Errorf("uet: enable: %s is not that of the endpoint which opened port %v: endpoints that share a port have it in common: %w",
			s.name, p.conn.LocalAddr(), fi.EINVAL)
	}
	return nil
}

// find returns the port that an endpoint asks for, nil if it is to open one. The caller has the lock.
func (ps *portTable) find(ep *Endpoint) *port {
	src := ep.info.SrcAddr
	p := ps.at[netip.AddrPortFrom(src.IP, ep.info.Config.port(src.Port))]
	if p == nil || p.open == 0 {
		return nil // who is closing it has it until then
	}
	return p
}

// begun makes a port of what an endpoint opened, which is its first. The caller has the lock.
func (ps *portTable) begun(ep *Endpoint, asked []setting) *port {
	p := ep.port
	p.domain, p.conn, p.fep, p.seal = ep.domain, ep.conn, ep.fep, ep.seal
	p.asked, p.mtu, p.refs = asked, ep.info.Config.PayloadMTU, &peerRefs{}
	p.known = peerCache{av: ep.av, fep: p.fep, refs: p.refs}
	p.endpoints, p.reached = []*Endpoint{ep}, map[jobPID]int{}
	if ep.rmaCaps != 0 {
		p.reached[ep.jobPID()]++
	}
	return p
}

// opened notes that the first endpoint of a port is enabled.
func (ps *portTable) opened(p *port) {
	p.open = 1
	if ps.at == nil {
		ps.at = map[netip.AddrPort]*port{}
	}
	ps.at[p.conn.LocalAddr()] = p
}

// jobPID is what a small request header names of an endpoint.
func (ep *Endpoint) jobPID() jobPID { return jobPID{ep.localJob(), ep.name.PIDonFEP} }

// join opens one more endpoint of the FEP. Without a PIDonFEP that it asks for it gets the first that is free
// (R-ADDR-10).
func (p *port) join(ep *Endpoint) error {
	src := ep.info.SrcAddr
	id := able(identity(src, p.conn.LocalAddr()))
	if id.Encap = ep.info.Config.Encapsulation; id.Encap == Symmetric {
		id.Paths = wire.PathPortsOf(p.conn.Ports())
	}
	asked := src.PIDonFEP != 0 || src.Flags&wire.AddrPIDValid != 0
	var fail error
	p.drv.Do(func(time.Duration) {
		p.deliver() // what is left of an endpoint that had the number is its
		for pid := id.PIDonFEP; ; pid++ {
			if pid > maxID {
				fail = fmt.Errorf("no PIDonFEP is free: %w", fi.EADDRINUSE)
				return
			}
			if id.PIDonFEP = pid; pid != 0 {
				id.Flags |= wire.AddrPIDValid
			}
			if fail = p.take(ep, id); fail == nil || asked || fi.Of(fail) != fi.EADDRINUSE {
				return
			}
		}
	})
	if fail != nil {
		return fmt.Errorf("uet: enable: port %v: %w", p.conn.LocalAddr(), fail)
	}
	return nil
}

// take opens the endpoint as id.
func (p *port) take(ep *Endpoint, id wire.Addr) error {
	ep.name = id
	who := ep.jobPID()
	if ep.rmaCaps != 0 && p.reached[who] > 0 {
		return fmt.Errorf("another endpoint with memory for peers has JobID %d and PIDonFEP %d; a small request header tells no more of whom it is for: %w", who.job, who.pid, fi.EADDRINUSE)
	}
	n, err := p.fep.Open(ep.local(id))
	switch err {
	case nil:
	case transport.ErrInUse:
		return fmt.Errorf("another endpoint has JobID %d, PIDonFEP %d and resource index %d: ask for others, or for none: %w", who.job, who.pid, id.RI, fi.EADDRINUSE)
	case transport.ErrEndpoints:
		return fmt.Errorf("it has as many endpoints as it may have: %w", fi.ENOSPC)
	default:
		return fmt.Errorf("%w: %w", err, fi.EINVAL)
	}
	ep.id = n
	for int(n) >= len(p.endpoints) {
		p.endpoints = append(p.endpoints, nil)
	}
	if old := p.endpoints[n]; old != nil {
		p.forget(old) // its queue was overrun, and all of it has ended
	}
	p.endpoints[n] = ep
	if ep.rmaCaps != 0 {
		p.reached[who]++
	}
	return nil
}

// has reports whether an endpoint has not given up its number.
func (p *port) has(ep *Endpoint) bool { return p.endpoints[ep.id] == ep }

// last counts an endpoint that begins to close, and reports whether it is the last one.
func (p *port) last() bool {
	p.domain.ports.mu.Lock()
	defer p.domain.ports.mu.Unlock()
	if p.open--; p.open > 0 {
		p.leaving.Add(1)
		return false
	}
	return true
}

// empty closes the last endpoint for what comes, and waits until the others have left, which takes at most as long as they
// linger: they need the driver.
func (p *port) empty(ep *Endpoint) {
	p.drv.Do(func(now time.Duration) {
		if p.has(ep) {
			p.fep.LeaveEndpoint(now, ep.id)
		}
	})
	p.leaving.Wait()
}

// closed forgets a port whose sockets are closed.
func (p *port) closed() {
	p.domain.ports.mu.Lock()
	defer p.domain.ports.mu.Unlock()
	if at := p.domain.ports.at; at[p.conn.LocalAddr()] == p { // else another has it since the sockets were closed
		delete(at, p.conn.LocalAddr())
	}
}

// partGrace is how long an endpoint that closes leaves packets under way to be answered, before it has
// copies made of them. Arbitrary.
const partGrace = 20 * time.Millisecond

// leave closes one endpoint of several. It waits as Close says.
func (p *port) leave(ep *Endpoint) {
	defer p.leaving.Done()
	p.drv.Do(func(now time.Duration) {
		if p.has(ep) {
			p.fep.LeaveEndpoint(now, ep.id)
		}
	})
	most := cmp.Or(ep.info.Config.Tuning.Linger, defaultLinger)
	p.await(most, func(now time.Duration) bool { return p.has(ep) && p.fep.EndpointLingers(now, most, ep.id) })
	p.drv.Do(func(now time.Duration) {
		if p.has(ep) {
			p.fep.CloseEndpoint(now, ep.id)
		}
	})
	p.await(min(most, partGrace), func(time.Duration) bool {
		sends, _ := p.fep.PostedBy(ep.id)
		return p.has(ep) && sends > 0
	})
	p.drv.Do(func(time.Duration) { p.release(ep) })
	p.drv.With(func() { p.forget(ep) })
}

// release ends what has not ended of an endpoint that the FEP has closed.
func (p *port) release(ep *Endpoint) {
	if p.has(ep) {
		p.fep.ReleaseEndpoint(ep.id)
		p.deliver()
	}
}

// forget gives up the number of an endpoint.
func (p *port) forget(ep *Endpoint) {
	if !p.has(ep) {
		return
	}
	p.endpoints[ep.id] = nil
	if ep.rmaCaps != 0 {
		p.reached[ep.jobPID()]--
	}
	ep.peers.close()
}

// end closes an endpoint whose queue was overrun.
func (p *port) end(ep *Endpoint) {
	p.drv.Do(func(now time.Duration) {
		if p.has(ep) {
			p.fep.CloseEndpoint(now, ep.id)
			p.release(ep)
		}
	})
}

// await drives the port, at most for most, while there is something to wait for.
func (p *port) await(most time.Duration, more func(now time.Duration) bool) {
	const least, longest = 20 * time.Microsecond, time.Millisecond
	end := time.Now().Add(most)
	for wait := least; time.Now().Before(end); wait = min(2*wait, longest) {
		p.domain.manual.poll()
		p.drv.Poll()
		waits := false
		p.drv.At(func(now time.Duration) { waits = more(now) })
		if !waits {
			return
		}
		time.Sleep(wait)
	}
}

// posts that the driver could not take at once wait for its lock: its queues have no place for each endpoint.
func (ep *Endpoint) post(op *transport.Op, to uint64, more bool) error {
	if ep.port == nil {
		return ep.drv.Post(op, to, more)
	}
	op.Endpoint = ep.id
	return ep.drv.PostOf(ep.isEnabled, op, to, more)
}

func (ep *Endpoint) isEnabled() bool { return ep.state.Load() == stateEnabled }

// cancel is Cancel of a context that may be compared.
func (ep *Endpoint) cancel(ctx any) (ok bool) {
	if ep.port == nil {
		return ep.drv.Cancel(ctx)
	}
	ep.drv.Do(func(now time.Duration) { ok = ep.isEnabled() && ep.fep.Cancel(now, ep.id, ctx) })
	return ok
}

// abandon is Abandon of a destination.
func (ep *Endpoint) abandon(to uint64) error {
	if ep.port == nil {
		return ep.drv.Abandon(to)
	}
	err := transport.ErrClosed
	ep.drv.Do(func(now time.Duration) {
		if !ep.isEnabled() {
			return
		}
		op := transport.Op{Kind: transport.OpRecv}
		if err = (*owner)(ep).Resolve(&op, to); err == nil {
			ep.fep.Abandon(now, op.Peer)
		}
	})
	return err
}

// flushed reports whether all that was posted is delivered or has failed.
func (ep *Endpoint) flushed() bool {
	if ep.port == nil {
		return ep.drv.Flushed(nil)
	}
	return ep.drv.Flushed(func() bool { return ep.fep.EndpointFlushed(ep.id) })
}

// posted is how many operations have not ended, and how many there may be.
func (ep *Endpoint) posted() (sends, recvs, mostSends, mostRecvs int) {
	c := ep.fep.Config()
	mostSends, mostRecvs = c.MaxSends, c.MaxRecvs
	if ep.port != nil {
		mostSends, mostRecvs = orDefault(ep.info.Tx.Size, defaultTxSize), orDefault(ep.info.Rx.Size, defaultRxSize)
	}
	ep.drv.With(func() { sends, recvs = ep.fep.PostedBy(ep.id) })
	return sends, recvs, mostSends, mostRecvs
}

var _ driver.Owner = (*port)(nil)

// each calls f for the endpoints that are open.
func (p *port) each(f func(o *owner)) {
	for _, ep := range p.endpoints {
		if ep != nil {
			f((*owner)(ep))
		}
	}
}

// Known is asked about operations that wait in queues, of which a port has none.
func (p *port) Known(uint64, transport.OpKind, int) error { return nil }

// Resolve asks the endpoint that posts the operation.
func (p *port) Resolve(op *transport.Op, to uint64) error {
	return (*owner)(p.endpoints[op.Endpoint]).Resolve(op, to)
}

// Refused tells the endpoint that posted the operation.
func (p *port) Refused(op *transport.Op, err error) {
	(*owner)(p.endpoints[op.Endpoint]).Refused(op, err)
}

// Trouble tells all endpoints.
func (p *port) Trouble(err error) { p.each(func(o *owner) { o.Trouble(err) }) }

// Deliver writes the completions of n operations, each to the queue of its endpoint. Of two endpoints only one has a
// queue locked, which may be the same.
func (p *port) Deliver(n int) {
	var at *owner
	for ; n > 0; n-- {
		ev := p.fep.NextEvent()
		o := (*owner)(p.endpoints[ev.Endpoint])
		if o != at && at != nil {
			at.delivered()
		}
		if at = o; o != nil {
			o.deliver(ev)
		}
		ev.Context, ev.Buf = nil, nil
	}
	p.fep.EventsRead()
	if at != nil {
		at.delivered()
	}
}

// deliver writes the completions that are due.
func (p *port) deliver() {
	if n := p.fep.Events(); n > 0 {
		p.Deliver(n)
	}
}

// unfit, sourceLost, pathMTU and offload pass on what the FEP and the sockets tell.
func (p *port) unfit(h transport.Hint)      { p.each(func(o *owner) { o.unfit(h) }) }
func (p *port) pathMTU(m transport.PathMTU) { p.each(func(o *owner) { o.pathMTU(m) }) }

func (p *port) sourceLost(id transport.PeerID, c transport.Cause) {
	p.each(func(o *owner) {
		if p.fep.Awaits(o.id, id) {
			o.sourceLost(id, c)
		}
	})
}

func (p *port) offload(gso udp.Feature) {
	for _, ep := range p.endpoints {
		if ep != nil {
			(*owner)(ep).offload(gso)
			return
		}
	}
}
