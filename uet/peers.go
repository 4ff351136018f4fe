package uet

import (
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A peerCache maps the handles of an address vector to peers of a FEP. It belongs to the
// holder of the driver's lock.
type peerCache struct {
	av   *av.AV
	fep  *transport.FEP
	tab  []*peerPage // by handle; nil where none was looked up
	refs *peerRefs

	known int       // addresses in the AV at the last sync
	sync  time.Time // of the last sync
}

// peerRefs counts the handles of each peer of a FEP, in all caches. The FEP may forget a peer that has no handle left.
type peerRefs struct {
	n []int32 // by transport.PeerID
}

// A peerPage has the entries of neighbouring handles. A table in one piece would have an entry for
// each handle below the highest, in each of thousands of endpoints that share a vector.
type peerPage [32]peerEntry

// A peerEntry is the peer of a handle, as it was when the handle had generation gen in the
// vector.
type peerEntry struct {
	gen       uint32 // 0 means nothing was found yet
	plain     uint32 // gen if the peer accepts messages of any length, else 0
	id        transport.PeerID
	initiator uint32
	pid, ri   uint16
	absolute  bool
	oneMTU    bool
	optimized bool // it takes small request headers (R-ADDR-11)
	err       error
}

// find returns the peer of a handle. It fails with transport.ErrNoPeer, or with
// fi.EOPNOTSUPP if the peer shares no feature with this endpoint (R-ADDR-11).
func (c *peerCache) find(h fi.Addr) (*peerEntry, error) {
	a, gen, ok := c.av.Get(h)
	if !ok {
		return nil, transport.ErrNoPeer // R-AV-19
	}
	if e := c.at(h); e != nil && e.gen == gen {
		return e, e.err
	}
	return c.fill(h, a, gen)
}

// at returns the entry of a handle, or nil.
func (c *peerCache) at(h fi.Addr) *peerEntry {
	if n := uint64(h) / uint64(len(peerPage{})); n < uint64(len(c.tab)) && c.tab[n] != nil {
		return &c.tab[n][uint64(h)%uint64(len(peerPage{}))]
	}
	return nil
}

// room returns the entry of a handle that the vector knows.
func (c *peerCache) room(h fi.Addr) *peerEntry {
	n := int(uint64(h) / uint64(len(peerPage{})))
	if n >= len(c.tab) {
		c.tab = append(c.tab, make([]*peerPage, n+1-len(c.tab))...)
	}
	if c.tab[n] == nil {
		c.tab[n] = new(peerPage)
	}
	return c.at(h)
}

// fill makes the entry of a handle that is new or whose address changed.
func (c *peerCache) fill(h fi.Addr, a wire.Addr, gen uint32) (*peerEntry, error) {
	e := c.room(h)
	old := *e
	*e = peerEntry{
		gen: gen, pid: a.PIDonFEP, ri: a.RI, initiator: a.Initiator,
		absolute: a.Flags&wire.AddrAbsolute != 0, oneMTU: a.Flags&wire.AddrMTUMessage != 0,
		optimized: a.Flags&wire.AddrCapsValid != 0 && a.Caps&wire.CapOptimized != 0,
	}
	if e.err = unfit(&a, c.fep.Config().Encapsulation); e.err == nil {
		e.id, e.err = c.fep.Peer(a.AddrPort(), true)
	}
	if e.err == nil {
		if a.Paths.N != 0 {
			c.fep.PeerPaths(e.id, a.Paths)
		}
		if !e.oneMTU {
			e.plain = gen
		}
		for int(e.id) >= len(c.refs.n) {
			c.refs.n = append(c.refs.n, 0)
		}
		c.refs.n[e.id]++
	}
	c.release(old.id)
	return e, e.err
}

// release notes that a handle no longer names a peer.
func (c *peerCache) release(id transport.PeerID) {
	if id == transport.NoPeer {
		return
	}
	if c.refs.n[id]--; c.refs.n[id] == 0 {
		c.fep.Forget(id)
	}
}

// close releases all handles. Nothing is looked up any more.
func (c *peerCache) close() {
	for _, page := range c.tab {
		if page == nil {
			continue
		}
		for i := range page {
			c.release(page[i].id)
		}
	}
	c.tab = nil
}

// profiles are the capability bits of the profiles, all of which an endpoint serves; ownCaps are those that its
// address has.
const (
	profiles = wire.CapAIBase | wire.CapAIFull | wire.CapHPC
	ownCaps  = profiles | wire.CapOptimized
)

// unfit returns the error of sending to an address that shares no feature with this
// endpoint, whose encapsulation is own; nil if one is shared. An address that is said to be of
// Symmetric encapsulation may be of any, as socket addresses do not say.
func unfit(a *wire.Addr, own Encapsulation) error {
	if a.Encap != Symmetric && a.Encap != own || own == Standard && a.AddrPort().Port() != wire.Port {
		return fi.EOPNOTSUPP // S-PKT-02
	}
	if a.Flags&wire.AddrCapsValid != 0 && a.Caps&profiles == 0 {
		return fi.EOPNOTSUPP // R-ADDR-11
	}
	return nil
}

// source returns the handle of a message's source and whether the vector knows it; without
// a handle it returns fi.AddrNotAvail (R-CQ-58, R-CQ-65).
func (c *peerCache) source(id transport.PeerID, initiator uint32) (fi.Addr, bool) {
	return c.av.Source(c.fep.PeerAddr(id), initiator)
}

// syncEvery bounds how often unknown sources make syncKnown read the whole
// vector.
const syncEvery = 100 * time.Millisecond

// syncKnown tells the FEP which addresses are in the vector. With KnownPeersOnly the FEP
// drops packets from all others, and peers that were never sent to have not been looked up
// yet.
func (c *peerCache) syncKnown(now time.Time) {
	n := c.av.Len()
	if n == c.known && now.Sub(c.sync) < syncEvery {
		return
	}
	c.known, c.sync = n, now
	for n, page := range c.tab {
		if page == nil {
			continue
		}
		for i := range page {
			if e := &page[i]; e.gen != 0 && c.av.Gen(fi.Addr(n*len(page)+i)) == 0 {
				id := e.id
				*e = peerEntry{}
				c.release(id)
			}
		}
	}
	for h := fi.Addr(0); n > 0; h++ {
		if _, _, ok := c.av.Get(h); ok {
			_, _ = c.find(h)
			n--
		} else if uint64(h) > 1<<24 { // the vector shrank meanwhile
			return
		}
	}
}

// A destination goes through the driver as a handle with the generation that it has at the
// call. So an operation that had to wait cannot go to another address that got the same
// handle meanwhile.
func destOf(h fi.Addr, gen uint32) uint64 { return uint64(gen)<<32 | uint64(h) }

// dest returns the destination that a handle names now. fi.EINVAL: none (R-AV-19).
func (ep *Endpoint) dest(h fi.Addr) (uint64, error) {
	if ep.connection != nil {
		return 0, nil // a connection has only one
	}
	gen := ep.av.Gen(h)
	if gen == 0 {
		return 0, errNoPeer
	}
	return destOf(h, gen), nil
}

// Known returns the error with which Resolve would fail, nil if it can succeed. Any goroutine
// may call it.
func (o *owner) Known(to uint64, kind transport.OpKind, n int) error {
	if o.connection != nil {
		return nil
	}
	a, gen, ok := o.av.Get(fi.Addr(to & 0xffffffff))
	if !ok || gen != uint32(to>>32) || a.IP.Unmap().Is4() != o.info.SrcAddr.IP.Unmap().Is4() {
		return transport.ErrNoPeer
	}
	if err := unfit(&a, o.info.Config.Encapsulation); err != nil {
		return err
	}
	return o.tooLong(kind, n, a.Flags&wire.AddrMTUMessage != 0)
}

// tooLong returns fi.EMSGSIZE for a message of n bytes to a peer that takes messages of one
// packet only, if n is more (R-ADDR-12).
func (o *owner) tooLong(kind transport.OpKind, n int, oneMTU bool) error {
	if oneMTU && !receives(kind) && !kind.RMA() && n > o.info.Config.PayloadMTU {
		return errTooLong
	}
	return nil
}

// Resolve names the peer in op: the destination of a send, the only source of
// a directed receive (R-MSG-10).
func (o *owner) Resolve(op *transport.Op, to uint64) error {
	if o.connection != nil {
		op.Peer, op.PIDonFEP, op.RI = o.connection.to.id, o.connection.to.pid, o.connection.to.ri
		op.Optimized = true // whoever speaks our connection management takes small headers
		return nil
	}
	h, gen := to&0xffffffff, uint32(to>>32)
	if o.av.Gen(fi.Addr(h)) != gen {
		return transport.ErrNoPeer // it means another address now, or none
	}
	e := o.peers.at(fi.Addr(h))
	if e == nil || e.gen != gen || e.err != nil {
		var err error
		if e, err = o.peers.find(fi.Addr(h)); err != nil {
			return err
		} else if e.gen != gen {
			return transport.ErrNoPeer
		}
	}
	op.Peer = e.id
	if receives(op.Kind) {
		op.SrcInitiator = e.initiator
		return nil
	}
	op.PIDonFEP, op.RI, op.Absolute, op.Optimized = e.pid, e.ri, e.absolute, e.optimized
	return o.tooLong(op.Kind, op.Bytes(), e.oneMTU)
}
