package transport

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A peer is one remote address. PDCs to and from it share its place in the
// order of sending, so that data and ACKs to it leave in one train.
//
// What every message touches comes first, to lie in one cache line: with many
// peers each of them finds all of it cold.
type peer struct {
	data  fifo[uint32] // slots of lanes with data, also of those a window stops
	short *pds.PDC     // RUD, for messages up to ShortMessage
	mtu   uint16       // payload bytes per packet
	ready bool         // in FEP.ready
	acks  bool         // in FEP.acks
	talk  talk
	to    wire.Prefix // of what leaves by the first path

	owing fifo[uint32] // slots of PDCs with ACKs or control packets
	ccc   pds.CCC      // shared by the RUD PDCs

	addr   netip.AddrPort
	lookAt time.Duration // forgot: when to look again whether operations have it
	pdcs   int
	long   []*pds.PDC // RUD, for the other messages
	rod    *pds.PDC
	paths  *paths // nil with one path

	restAt time.Duration // in FEP.resting: until when the application may answer

	pace  pace
	known bool // the application inserted it
	named bool // the application has its number
	used  bool
	// forgot: the application had its number, and operations may have it still.
	forgot  bool
	lingers bool // in FEP.lingering

	_ [24]byte // whole cache lines
}

// A book finds peers by address, and keeps the numbers that may be given out again.
type book struct {
	byAddr    map[netip.AddrPort]PeerID
	free      fifo[PeerID] // unknown peers without a PDC, oldest first
	lingering fifo[PeerID] // the same, with messages that wait for a receive
}

// paths chooses the local ports by which packets to one peer leave: spray for
// RUD, single for what must stay in order.
type paths struct{ spray, single cms.Paths }

// A lane is the queue in front of a PDC (one active message per PDC).
// It is one cache line.
type lane struct {
	pdc     *pds.PDC
	q       fifo[ses.Handle]
	bytes   int  // posted and not taken, for the choice of a lane
	started bool // pieces of the first message were taken
	data    bool // in peer.data
	owing   bool // in peer.owing
	early   bool // in FEP.early
}

// Peer interns an address and returns its PeerID, the same for the same
// address. known marks it as one the application inserted into its address
// vector (KnownPeersOnly). The peer stays until Forget.
func (f *FEP) Peer(addr netip.AddrPort, known bool) (PeerID, error) {
	id, err := f.intern(addr)
	if err == nil {
		p := &f.peers[id]
		p.named, p.lookAt = true, 0
		p.known = p.known || known
	}
	return id, err
}

// intern is Peer for addresses that only the network named: such a peer's place
// is free again when its last PDC is gone.
func (f *FEP) intern(addr netip.AddrPort) (PeerID, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() || addr.Port() == 0 || addr.Addr().Is4() != f.cfg.Local.Addr().Is4() {
		return NoPeer, ErrNoPeer
	}
	if id, ok := f.book.byAddr[addr]; ok {
		return id, nil
	}
	var id PeerID
	// An unknown peer's number is used again only after many others, so that
	// an event that names it is read before.
	if f.book.free.len() > 4096 {
		id = f.book.free.pop()
	} else {
		id = PeerID(len(f.peers))
		f.peers = append(f.peers, peer{})
	}
	p := &f.peers[id]
	data, owing, long := p.data, p.owing, p.long[:0]
	*p = peer{addr: addr, used: true, mtu: uint16(f.cfg.PayloadMTU), to: wire.PrefixOf(&f.local[0], &addr), data: data, owing: owing, long: long}
	f.book.byAddr[addr] = id
	return id, nil
}

// PeerAddr is the inverse of Peer.
func (f *FEP) PeerAddr(id PeerID) netip.AddrPort {
	if int(id) >= len(f.peers) {
		return netip.AddrPort{}
	}
	return f.peers[id].addr
}

// Forget says that the application no longer names the peer.
func (f *FEP) Forget(id PeerID) {
	if int(id) < len(f.peers) && id != NoPeer {
		p := &f.peers[id]
		p.forgot = p.forgot || p.named
		p.known, p.named = false, false
		f.maybeFree(id)
	}
}

func (f *FEP) maybeFree(id PeerID) {
	p := &f.peers[id]
	if !p.used || p.named || p.pdcs != 0 {
		return
	}
	if f.ses.Holds(uint32(id)) || p.forgot && f.usedByOps(id, p) {
		// A message of it waits for a receive, which may name it as its source; or
		// an operation that waits has its number, which must not come to mean
		// another peer.
		if !p.lingers {
			p.lingers = true
			f.book.lingering.push(id)
		}
		return
	}
	p.used = false
	p.ccc = nil
	f.ses.Forget(uint32(id))
	delete(f.book.byAddr, p.addr)
	f.book.free.push(id)
}

// lookEvery is how often operations are searched for the number of a peer that
// the application forgot. The search reads every operation.
const lookEvery = 10 * time.Millisecond

// usedByOps reports whether an operation may have the number of the peer.
func (f *FEP) usedByOps(id PeerID, p *peer) bool {
	if f.now < p.lookAt {
		return true
	}
	p.lookAt = f.now + lookEvery
	return f.ses.Names(uint32(id))
}

// sweepPeers looks whether the first of the peers that could not be freed can be now.
func (f *FEP) sweepPeers() {
	id := f.book.lingering.pop()
	f.peers[id].lingers = false
	f.maybeFree(id)
}

// lane returns the queue a message of n bytes to the peer goes to, opening a
// PDC if need be: messages up to ShortMessage share one PDC, longer ones use
// others, so that a long message never blocks a short one; ordered messages
// share one ROD PDC. nil: no PDC can be had now.
func (f *FEP) lane(now time.Duration, id PeerID, p *peer, n int, ordered bool) *lane {
	if ordered {
		// One that closes keeps the messages until it is gone; they move to the
		// next one then, or they would overtake those it still carries.
		if p.rod == nil {
			// UE 3.6: a ROD PDC has a CCC of its own.
			p.rod = f.open(now, id, wire.ROD, f.newCCC())
		}
		if p.rod == nil {
			return nil
		}
		return &f.lanes[p.rod.Slot]
	}
	at := &p.short
	if n > f.cfg.ShortMessage {
		at = f.longLane(p)
	}
	if *at == nil || !(*at).Usable() {
		if p.ccc == nil {
			p.ccc = f.newCCC()
		}
		*at = f.open(now, id, wire.RUD, p.ccc)
	}
	if *at == nil && at != &p.short {
		// A spare one would have been better.
		for i, pdc := range p.long {
			if pdc != nil && pdc.Usable() {
				at = &p.long[i]
				break
			}
		}
	}
	if *at == nil {
		return nil
	}
	return &f.lanes[(*at).Slot]
}

// extraLanes is how many more than Config.Lanes there may be while messages are refused.
const extraLanes = 3

// longLane is the place of the PDC that a long message goes to: one that is not
// open yet, else the one with least to send. One whose messages the target has no room
// for keeps what it has (F18); then a spare one is taken.
func (f *FEP) longLane(p *peer) **pds.PDC {
	for len(p.long) < f.cfg.Lanes {
		p.long = append(p.long, nil)
	}
	least, free := 0, -1 // of all, of those that are not refused
	for i, b := range p.long {
		if a := p.long[least]; a != nil && b != nil && f.lanes[b.Slot].bytes < f.lanes[a.Slot].bytes {
			least = i
		}
		switch {
		case b != nil && b.Refused() || i >= f.cfg.Lanes && free >= 0:
		case free < 0:
			free = i
		case p.long[free] != nil && (b == nil || f.lanes[b.Slot].bytes < f.lanes[p.long[free].Slot].bytes):
			free = i
		}
	}
	switch {
	case free >= 0:
		return &p.long[free]
	case len(p.long) < f.cfg.Lanes+extraLanes:
		p.long = append(p.long, nil)
		return &p.long[len(p.long)-1]
	}
	return &p.long[least]
}

func (f *FEP) open(now time.Duration, id PeerID, mode wire.Mode, ccc pds.CCC) *pds.PDC {
	pdc := f.pds.Open(now, uint32(id), f.peers[id].addr, mode, ccc)
	if pdc != nil {
		f.adopt(pdc)
		f.peers[id].pdcs++
	}
	return pdc
}

// adopt gives a PDC its lane.
func (f *FEP) adopt(pdc *pds.PDC) *lane {
	pdc.From = wire.PrefixOf(pdc.Remote(), &f.local[0])
	for int(pdc.Slot) >= len(f.lanes) {
		f.lanes = append(f.lanes, lane{})
	}
	ln := &f.lanes[pdc.Slot]
	q := ln.q
	*ln = lane{pdc: pdc, q: q}
	return ln
}

// wakeData puts a lane into its peer's order of sending.
func (f *FEP) wakeData(ln *lane, p *peer) {
	if !ln.data {
		ln.data = true
		p.data.push(ln.pdc.Slot)
	}
	if !p.ready {
		p.ready = true
		f.todo.ready.push(PeerID(ln.pdc.Peer))
	}
}

// awaitWake makes every PDC of a peer wake it: one of them waits for a window
// that they may share.
func (p *peer) awaitWake() {
	for _, pdc := range p.long {
		if pdc != nil {
			pdc.Awaited = true
		}
	}
	if p.short != nil {
		p.short.Awaited = true
	}
	if p.rod != nil {
		p.rod.Awaited = true
	}
}

// wakePeer puts a peer into the order of sending.
func (f *FEP) wakePeer(id PeerID) {
	if p := &f.peers[id]; !p.ready {
		p.ready = true
		f.todo.ready.push(id)
	}
}

// unqueue takes a cancelled message out of its lane.
func (f *FEP) unqueue(h ses.Handle) {
	for i, m := range f.todo.moveLater {
		if m == h {
			f.todo.moveLater = append(f.todo.moveLater[:i], f.todo.moveLater[i+1:]...)
			return
		}
	}
	for i := range f.lanes {
		ln := &f.lanes[i]
		for j := range ln.q.len() {
			if ln.q.at(j) == h {
				ln.q.drop(j)
				f.todo.queued--
				f.recount(ln)
				return
			}
		}
	}
}

// requeue puts a message into a lane that left another one, or that goes again
// from its start because its target refused it and may take it now. It keeps its
// place in the order of posting among those that have not begun: ordered messages
// posted meanwhile must not overtake it.
func (f *FEP) requeue(now time.Duration, h ses.Handle) {
	id, n, ordered := f.ses.Info(h)
	if id == uint32(NoPeer) {
		return // it ended
	}
	p := &f.peers[id]
	ln := f.lane(now, PeerID(id), p, n, ordered)
	if ln == nil {
		f.ses.Abandon(h, ses.NoResource)
		return
	}
	i, first := ln.q.len(), 0
	if ln.started {
		first = 1
	}
	for seq := f.ses.Seq(h); i > first && f.ses.Seq(ln.q.at(i-1)) > seq; {
		i--
	}
	ln.q.insert(i, h)
	ln.bytes += n
	f.todo.queued++
	f.wakeData(ln, p)
}
