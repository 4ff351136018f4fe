package transport

import (
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A peer is one remote address. Its PDCs share one place in the order of sending, so that
// data and ACKs to the peer leave in one train.
//
// The fields that every message uses come first and fill one cache line: with many peers,
// each message finds its peer in cold memory.
type peer struct {
	data  fifo[uint32] // slots of lanes with data, including those that a window stops
	short *pds.PDC     // RUD, for messages up to ShortMessage
	mtu   uint16       // payload bytes per packet
	ready bool         // listed in agenda.ready
	acks  bool         // listed in agenda.acks
	talk  talk
	to    wire.Prefix // CRC prefix of packets that leave by the first path

	owing fifo[uint32] // slots of PDCs that owe ACKs or control packets
	ccc   pds.CCC      // shared by the RUD PDCs

	addr   netip.AddrPort
	lookAt time.Duration // if forgot: when to search the operations for its number again
	pdcs   int32
	opened int32 // those of pdcs that this side opened
	ports  wire.PathPorts
	via    uint16     // the port from which it answered after the last silence; 0: the main one
	by     uint8      // the path by which that answer came
	turn   uint8      // the path port whose turn it is when a PDC opens with many packets
	long   []*pds.PDC // RUD, for longer messages
	rod    *pds.PDC   // for ordered messages
	paths  *paths     // nil if there is one path, or none was chosen yet

	lostAt time.Duration // when it was last given up as silent or unreachable; 0: never

	restAt time.Duration // if listed in talks.resting: until when the application may answer

	pace  pace
	known bool // the application named the address
	named bool // the application has its number
	used  bool
	met   bool // a PDC that ended had heard it, or Met was called
	// forgot means that the application had its number and forgot it. Operations may still
	// have the number.
	forgot  bool
	lingers bool // listed in book.lingering
	proven  bool // it has shown that it receives what is sent to it

	noCredit bool // it refused RCCC

	search *search // of the size that the path carries; nil if nothing was ever too long
}

// A book finds peers by address and keeps the numbers for reuse.
type book struct {
	byAddr    map[netip.AddrPort]PeerID
	free      fifo[PeerID] // numbers that are free, oldest first
	lingering fifo[PeerID] // peers without a PDC whose number is still in use
}

// paths chooses the local ports that packets to one peer leave from: spray for RUD, single
// for ROD, which must stay in order.
type paths struct {
	spray, single cms.Paths
	spread        spread // of the packets that open PDCs over the ports of the peer
}

// A lane is a PDC and the messages that wait for it. One of them, the first, may have
// begun; after packets came back that the path does not carry, several. A lane fills one cache line.
type lane struct {
	pdc   *pds.PDC
	q     fifo[ses.Handle]
	bytes int   // posted and not sent, for the choice of a lane
	begun int32 // the first messages, of which pieces were sent: one, or more after FEP.recut
	data  bool  // listed in peer.data
	owing bool  // listed in peer.owing
	early bool  // listed in agenda.early
	asked bool  // a read was queued
}

// Peer returns the PeerID of an address, always the same one for the same address. known
// says that the application inserted the address into its address vector (KnownPeersOnly).
// The peer exists until Forget. ErrNoPeer: the address cannot be sent to; with Standard
// encapsulation, it has a port other than 4793.
func (f *FEP) Peer(addr netip.AddrPort, known bool) (PeerID, error) {
	id, err := f.intern(addr)
	if err == nil {
		p := &f.peers[id]
		p.named, p.lookAt = true, 0
		p.known = p.known || known
	}
	return id, err
}

// Met says that the application has heard the peer in another way, so that the peer may be
// restarting where nobody answers (Unreachable).
func (f *FEP) Met(id PeerID) { f.peers[id].met = true }

// intern is Peer for an address that only the network named. Such a peer ends with its last
// PDC.
func (f *FEP) intern(addr netip.AddrPort) (PeerID, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if f.form.standard && addr.Port() != wire.Port {
		return NoPeer, ErrNoPeer
	}
	if !addr.Addr().IsValid() || addr.Addr().IsUnspecified() || addr.Port() == 0 || addr.Addr().Is4() != f.cfg.Local.Addr().Is4() {
		return NoPeer, ErrNoPeer
	}
	if id, ok := f.book.byAddr[addr]; ok {
		return id, nil
	}
	var id PeerID
	// The number of a peer is reused only after many others, so that events that name it
	// are read before.
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

// PeerAddr returns the address of a peer, the zero AddrPort if there is no such peer.
func (f *FEP) PeerAddr(id PeerID) netip.AddrPort {
	if int(id) >= len(f.peers) {
		return netip.AddrPort{}
	}
	return f.peers[id].addr
}

// Forget says that the application no longer uses the number of the peer.
func (f *FEP) Forget(id PeerID) {
	if int(id) < len(f.peers) && id != NoPeer {
		p := &f.peers[id]
		p.forgot = p.forgot || p.named
		p.known, p.named = false, false
		f.maybeFree(id)
	}
}

// maybeFree frees the number of a peer that nothing needs any more.
func (f *FEP) maybeFree(id PeerID) {
	p := &f.peers[id]
	if !p.used || p.named || p.pdcs != 0 {
		return
	}
	if f.ses.Holds(uint32(id)) || p.forgot && f.usedByOps(id, p) {
		// A message of the peer waits for a receive, which may name the peer as its source;
		// or a waiting operation has the number, which must not come to mean another peer.
		if !p.lingers {
			p.lingers = true
			f.book.lingering.push(id)
		}
		return
	}
	p.used = false
	if f.credit != nil {
		f.creditForgotten(id, p.ccc)
	}
	p.ccc = nil
	if p.search != nil && p.search.on {
		f.todo.search = slices.DeleteFunc(f.todo.search, func(s PeerID) bool { return s == id })
	}
	f.ses.Forget(uint32(id))
	if f.idem.table != nil {
		f.idem.table.Forget(uint32(id))
		delete(f.idem.queues, id)
		f.forgetAsides(id, p)
	}
	delete(f.book.byAddr, p.addr)
	f.ses.Unhalt(uint32(id))
	f.book.free.push(id)
}

// lookEvery is the time between two searches of the operations for the number of a peer
// that the application forgot. A search reads every operation.
const lookEvery = 10 * time.Millisecond

// usedByOps reports whether an operation may still have the number of the peer.
func (f *FEP) usedByOps(id PeerID, p *peer) bool {
	if f.now < p.lookAt {
		return true
	}
	p.lookAt = f.now + lookEvery
	return f.ses.Names(uint32(id))
}

// sweepPeers tries again to free the first lingering peer.
func (f *FEP) sweepPeers() {
	id := f.book.lingering.pop()
	f.peers[id].lingers = false
	f.maybeFree(id)
}

// lane returns the lane for a message of n bytes to the peer, and opens a PDC for it if
// needed. Messages up to ShortMessage share one PDC and longer ones use others, so that a
// long message never blocks a short one. Ordered messages share one ROD PDC. lane returns
// nil if no PDC can be opened now.
func (f *FEP) lane(now time.Duration, id PeerID, p *peer, n int, ordered bool) *lane {
	if ordered {
		// A ROD PDC that closes keeps its messages until it is gone, and they move to the
		// next one then. If they moved at once they would overtake the messages that it
		// still carries.
		if p.rod == nil {
			// UE 3.6: each ROD PDC has its own CCC.
			ccc := f.newCCC(p)
			if p.rod = f.open(now, id, wire.ROD, ccc); p.rod == nil {
				if f.credit != nil {
					f.dropCredit(id, ccc)
				}
				return nil
			}
		}
		return &f.lanes[p.rod.Slot]
	}
	at := &p.short
	if n > f.cfg.ShortMessage {
		at = f.longLane(p)
	}
	if *at == nil || !(*at).Usable() {
		if p.ccc == nil {
			p.ccc = f.newCCC(p)
		}
		*at = f.open(now, id, wire.RUD, p.ccc)
	}
	if *at == nil && at != &p.short {
		// No PDC can be opened: share one that is in use.
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

// pullLane returns the lane for reading what is left of rendezvous sends of the peer. Nothing else goes
// there: the read would stand behind messages that the peer refuses until it has sent something, and this
// is what it sends.
func (f *FEP) pullLane(now time.Duration, id PeerID, p *peer, n int) *lane {
	pdc := f.pulls[id]
	if pdc == nil || !pdc.Usable() {
		if p.ccc == nil {
			p.ccc = f.newCCC(p)
		}
		if pdc = f.open(now, id, wire.RUD, p.ccc); pdc == nil {
			// A shared one does, but for the window of one on which messages are refused.
			if ln := f.lane(now, id, p, n, false); ln == nil || !ln.pdc.Refused() {
				return ln
			}
			return nil
		}
		if f.pulls == nil {
			f.pulls = make(map[PeerID]*pds.PDC)
		}
		f.pulls[id] = pdc
	}
	return &f.lanes[pdc.Slot]
}

// extraLanes is the number of lanes beyond Config.Lanes that a peer may have while its
// target refuses messages.
const extraLanes = 3

// longLane returns the place of the PDC for a long message: one that is not open yet, else
// the one with the fewest bytes to send. A PDC whose messages are refused gets no more
// messages (F18). If all are refused, longLane adds an extra lane.
func (f *FEP) longLane(p *peer) **pds.PDC {
	for len(p.long) < f.cfg.Lanes {
		p.long = append(p.long, nil)
	}
	least, free := 0, -1 // the best of all, and the best of those that are not refused
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

// open opens a PDC to a peer. It returns nil if none can be opened now.
func (f *FEP) open(now time.Duration, id PeerID, mode wire.Mode, ccc pds.CCC) *pds.PDC {
	var pdc *pds.PDC
	if len(f.scarce.waiting) == 0 || f.scarce.placing { // who waits is first
		pdc = f.pds.Open(now, uint32(id), f.peers[id].addr, mode, ccc)
	}
	if pdc == nil {
		f.lacks(true)
	} else {
		f.adopt(pdc)
		f.peers[id].pdcs++
		f.peers[id].opened++
		if s := f.peers[id].search; s != nil {
			f.resumeSearch(now, s)
		}
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

// wakeData queues a lane and its peer for sending.
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

// awaitWake makes every PDC of the peer report when it may send again: one of them waits
// for a window that they may share.
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

// wakePeer queues a peer for sending.
func (f *FEP) wakePeer(id PeerID) {
	if p := &f.peers[id]; !p.ready {
		p.ready = true
		f.todo.ready.push(id)
	}
}

// unqueue removes a cancelled message from its lane, or from those that wait for a PDC.
func (f *FEP) unqueue(h ses.Handle) {
	for i, w := range f.scarce.waiting {
		if w.h == h {
			f.scarce.waiting = append(f.scarce.waiting[:i], f.scarce.waiting[i+1:]...)
			return
		}
	}
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

// purgeAll purges all lanes.
func (f *FEP) purgeAll() {
	f.todo.void = 0
	for i := range f.lanes {
		f.purge(&f.lanes[i])
	}
}

// purge removes from a lane the messages that ended, so that the others are in the order of
// posting.
func (f *FEP) purge(ln *lane) {
	n, begun := ln.q.len(), int(ln.begun)
	f.purged += uint64(n) + 1
	for i := range n {
		if h := ln.q.pop(); f.ses.Seq(h) != 0 {
			ln.q.push(h)
		} else if i < begun {
			ln.begun--
		}
	}
	if gone := n - ln.q.len(); gone > 0 {
		f.todo.queued -= gone
		f.recount(ln)
	}
}

// leaveLane removes a message that goes from its beginning from the lane on which its attempt before went:
// what was to be sent of it once more (recut) is void, and the lane may not have had its turn since.
func (f *FEP) leaveLane(h ses.Handle) {
	id, _, _ := f.ses.Info(h)
	if id == uint32(NoPeer) {
		return
	}
	p := &f.peers[id]
	f.dropBegun(p.rod, h)
	f.dropBegun(p.short, h)
	for _, pdc := range p.long {
		f.dropBegun(pdc, h)
	}
}

func (f *FEP) dropBegun(pdc *pds.PDC, h ses.Handle) {
	if pdc == nil {
		return
	}
	ln := &f.lanes[pdc.Slot]
	for i := range min(int(ln.begun), ln.q.len()) {
		if ln.q.at(i) == h {
			ln.q.drop(i)
			ln.begun--
			f.todo.queued--
			f.recount(ln)
			return
		}
	}
}

// requeue queues a message that left another lane, or that starts again because its target
// refused it and may accept it now. Among the messages that have not begun it keeps the
// order of posting: ordered messages that were posted later must not overtake it. One that needs no order
// and was refused more than once goes behind the others, so that many such do not keep them from being tried.
func (f *FEP) requeue(now time.Duration, h ses.Handle) {
	if !f.requeueNow(now, h) {
		f.awaitPDC(h)
	}
}

// requeueNow is requeue if there is a PDC for the message, or can be. It returns false if not.
func (f *FEP) requeueNow(now time.Duration, h ses.Handle) bool {
	id, n, ordered := f.ses.Info(h)
	if id == uint32(NoPeer) {
		return true // it ended
	}
	if f.todo.void != 0 {
		f.purgeAll()
	}
	p := &f.peers[id]
	var ln *lane
	if f.ses.Pulls(h) {
		ln = f.pullLane(now, PeerID(id), p, n)
	} else {
		ln = f.lane(now, PeerID(id), p, n, ordered)
	}
	if ln == nil {
		return false
	}
	first, seq := int(ln.begun), f.ses.Seq(h)
	i := ln.q.len()
	if !f.ses.Late(h) {
		i = first + sort.Search(ln.q.len()-first, func(i int) bool { return f.ses.Seq(ln.q.at(first+i)) > seq })
	}
	ln.q.insert(i, h)
	if !f.asks(h, ln) {
		ln.bytes += n
	}
	f.todo.queued++
	f.wakeData(ln, p)
	return true
}
