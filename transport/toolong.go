package transport

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file sends less in a packet where the path carries less than the interface (F7), and
// searches for what it carries. PDS finds out that the longest packets do not arrive. Then

//   - new packets to the peer have the payload that every path should carry;
//   - PDS takes back the packets that are too long (pds.Table.Void). What the target has not
//     executed, which its answers say for sure, is cut anew and sent under new PSNs of the same
//     PDC, as parts of the same message;
//   - padded PROBEs ask for the sizes above, at once and from time to time.

// safeMTU is the payload in bytes that every path should carry.
const safeMTU = 1024

const (
	// A search asks searchTries times for each size, searchGap apart. If that is in vain it asks
	// again after searchFirst, doubling up to searchLast, so that full packets leave less than a
	// minute after the path carries them again.
	searchTries = 4
	searchGap   = 200 * time.Millisecond
	searchFirst = time.Second
	searchLast  = 20 * time.Second
	// searchCalm is how long a path must have carried full packets for a new search to begin
	// with searchFirst. Otherwise the path loses data and not PROBEs, and the search is slow.
	searchCalm = time.Minute
)

// PathMTU says what payload the path to a peer carries in one packet, in bytes. Full is what the
// interface and the peer would take. Payload is Full if the path carries that again.
type PathMTU struct {
	Peer          netip.AddrPort
	Payload, Full int
}

// A search looks for the payload that the path to a peer carries. There is one for each peer to
// which something was ever too long.
type search struct {
	most  uint16        // what to look for at most: the payload MTU without a search
	told  uint16        // what PathMTU was told last
	at    time.Duration // when to ask next
	wait  time.Duration // from this round to the next
	tries int           // in this round
	asked uint16        // the number of the PROBE for the least size of this try
	full  time.Duration // when it ended with most, 0: it did not
	on    bool          // listed in agenda.search
}

// PayloadMTU returns the payload of the packets to a peer, and what it would be if the path
// carried all that the interface and the peer take; 0 if there is no such peer.
func (f *FEP) PayloadMTU(id PeerID) (payload, full int) {
	if id == NoPeer || int(id) >= len(f.peers) {
		return 0, 0
	}
	p := &f.peers[id]
	payload = int(p.mtu)
	if full = payload; p.search != nil {
		full = int(p.search.most)
	}
	return payload, full
}

// TooLong says that the system refused to send a datagram of n bytes to remote, because it is
// longer than the interface takes. If data packets have that length it acts at once, like the
// discovery that the path loses such packets.
func (f *FEP) TooLong(now time.Duration, remote netip.AddrPort, n int) {
	f.now = now
	id, ok := f.peerAt(remote)
	if ok && !f.closed && !f.ended && n > f.form.reqLen+safeMTU && n <= f.form.reqLen+int(f.peers[id].mtu) {
		f.shrink(id)
		f.heed()
	}
}

// shrink makes the packets to a peer as short as every path should carry, and begins the search
// for more.
func (f *FEP) shrink(id PeerID) {
	p := &f.peers[id]
	if p.mtu > safeMTU {
		s := p.search
		if s == nil {
			s = &search{most: p.mtu, told: p.mtu}
			p.search = s
		}
		if s.full == 0 || f.now-s.full > searchCalm {
			s.wait = 0
		}
		p.mtu = safeMTU
		s.tries, s.at, s.full = 0, f.now, 0
		if !s.on {
			s.on = true
			f.todo.search = append(f.todo.search, id)
		}
		f.resumeSearch(f.now, s)
	}
	f.pds.Each(func(pdc *pds.PDC) {
		if pdc.Peer == uint32(id) {
			f.pds.Void(f.now, pdc)
			f.stop(pdc)
		}
	})
}

// stop waits for the answers to void packets on a ROD PDC.
func (f *FEP) stop(pdc *pds.PDC) {
	if pdc.Stopped() && f.todo.stopped[pdc] == nil {
		if f.todo.stopped == nil {
			f.todo.stopped = map[*pds.PDC]*stopped{}
		}
		f.todo.stopped[pdc] = &stopped{}
	}
}

// unblock takes back a packet of h, for which the target has no receive or no room, if parts of an
// earlier message that were taken back go behind it on a ROD PDC: the target may post the receive,
// or have the room, only when it has that message.
func (f *FEP) unblock(p *pds.PDC, h ses.Handle) {
	seq, blocks := f.ses.Seq(h), false
	p.EachSent(func(k pds.Sent) {
		blocks = blocks || k.Piece.Kind&piece.Recut != 0 && f.ses.Seq(handle(k.Piece)) < seq
	})
	if st := f.todo.stopped[p]; st != nil {
		for _, pc := range st.pieces {
			blocks = blocks || f.ses.Seq(handle(pc)) < seq
		}
	}
	ln := &f.lanes[p.Slot]
	for i := range min(int(ln.begun), ln.q.len()) {
		blocks = blocks || f.ses.Seq(ln.q.at(i)) < seq
	}
	if blocks {
		f.pds.VoidBlocked(f.now, p)
		f.stop(p)
	}
}

// resumeSearch sees to it that a search goes on, as the peer has a PDC.
func (f *FEP) resumeSearch(now time.Duration, s *search) {
	if s.on {
		f.todo.searchAt = sooner(f.todo.searchAt, max(s.at, now+1))
	}
}

// planSearches computes when to ask next. No timer runs for a peer to which there is no PDC.
func (f *FEP) planSearches() {
	f.todo.searchAt = 0
	for _, id := range f.todo.search {
		if p := &f.peers[id]; p.short != nil || p.rod != nil || slices.ContainsFunc(p.long, func(c *pds.PDC) bool { return c != nil }) || len(f.returning[id]) > 0 {
			f.todo.searchAt = sooner(f.todo.searchAt, p.search.at)
		}
	}
}

// askSizes goes on with the searches that are due.
func (f *FEP) askSizes(now time.Duration) {
	keep := f.todo.search[:0]
	for _, id := range f.todo.search {
		p := &f.peers[id]
		s := p.search
		switch {
		case p.mtu >= s.most:
			s.on, s.full = false, now
			f.tellMTU(p)
			continue
		case s.at <= now:
			f.askSize(now, id, p)
		}
		keep = append(keep, id)
	}
	f.todo.search = keep
	f.planSearches()
}

// askSize is the next step of one search.
func (f *FEP) askSize(now time.Duration, id PeerID, p *peer) {
	s := p.search
	if s.tries == searchTries {
		s.wait = min(max(2*s.wait, searchFirst), searchLast)
		s.tries, s.at = 0, now+s.wait
		f.tellMTU(p)
		return
	}
	s.at = now + searchGap
	pdc := f.prober(id, p)
	if pdc == nil {
		return // none is open yet
	}
	s.tries++
	s.asked = uint16(f.rng.Uint32()) &^ 3
	for size, i := 2*safeMTU, uint16(0); size <= int(s.most); size, i = 2*size, i+1 {
		if size > int(p.mtu) {
			f.pds.ProbeSize(pdc, s.asked|i, f.form.reqLen-f.form.wrap+size-wire.CPLen)
		}
	}
}

// prober returns a PDC that PROBEs to the peer can use, nil if there is none.
func (f *FEP) prober(id PeerID, p *peer) *pds.PDC {
	usable := func(c *pds.PDC) bool { return c != nil && c.State() == pds.Established }
	if usable(p.short) {
		return p.short
	}
	if i := slices.IndexFunc(p.long, usable); i >= 0 {
		return p.long[i]
	}
	if usable(p.rod) {
		return p.rod
	}
	if i := slices.IndexFunc(f.returning[id], usable); i >= 0 {
		return f.returning[id][i]
	}
	return nil
}

// carried notes that a padded PROBE arrived.
func (f *FEP) carried(id PeerID, number uint16) {
	p := &f.peers[id]
	s := p.search
	if s == nil || !s.on || (number^s.asked)&0x7ffc != 0 {
		return
	}
	if size := uint16(2*safeMTU) << (number & 3); size > p.mtu && size <= s.most {
		if p.mtu = size; size == s.most {
			s.at = f.now
			f.resumeSearch(f.now, s) // it ends
		}
	}
}

// tellMTU reports the size that a search found, if it is another than the last.
func (f *FEP) tellMTU(p *peer) {
	s := p.search
	if s.told == p.mtu {
		return
	}
	if s.told = p.mtu; f.cfg.PathMTU != nil {
		f.cfg.PathMTU(PathMTU{Peer: p.addr, Payload: int(p.mtu), Full: int(s.most)})
	}
}

// A stopped is a ROD PDC whose packets were taken back. The answers to the void packets come one by
// one, and what the target has not executed is sent again when all are there, in order.
type stopped struct {
	pieces []piece.Piece // what the target has not executed
	latest uint64        // the highest ses.Seq of a message of which it executed a piece since
}

// voidAnswered acts on the answer to a void packet, or to another packet while ROD PDCs are
// stopped.
func (f *FEP) voidAnswered(p *pds.PDC, pc piece.Piece, rsp *wire.Rsp) {
	h := handle(pc)
	if pc.Returns() {
		if pc.Void() && f.ses.RecutReturn(pc, rsp) {
			f.queueReturn(p)
		} else {
			f.answered(p, h, rsp)
		}
		return
	}
	st := f.todo.stopped[p]
	back := (pc.Void() || st != nil && mayReturn(pc)) && f.ses.Voided(h, rsp)
	if pc.Kind == piece.Noop {
		rsp = nil // it says nothing of the message
	}
	pc.Kind &^= piece.Void
	switch {
	case !back:
		if st != nil && pc.Kind != piece.Noop {
			st.latest = max(st.latest, f.ses.Seq(h))
		}
		f.answered(p, h, rsp)
	case st != nil:
		st.pieces = append(st.pieces, pc)
	default:
		f.recut(p, pc)
	}
	if st != nil && !p.Voids() {
		if f.undecided(p, st) {
			p.Hold(true)
			return
		}
		p.Hold(false)
		delete(f.todo.stopped, p)
		f.resume(p, st)
		f.wake(p)
	}
}

// undecided reports whether packets are outstanding that were sent behind one whose piece came back. The target may have
// them early. One that knows void packets answers them like those. Another executes them: what came back of a message
// of which it executed a piece keeps its place in the order, and what came back of others comes too late (resume).
func (f *FEP) undecided(p *pds.PDC, st *stopped) (yes bool) {
	if len(st.pieces) > 0 {
		p.EachSent(func(k pds.Sent) { yes = yes || mayReturn(k.Piece) })
	}
	return yes
}

// mayReturn reports whether the target may refuse a piece, not void itself, because of a void packet before it.
func mayReturn(pc piece.Piece) bool {
	return pc.Kind&(piece.Void|piece.Noop|piece.Error|piece.End|piece.Return) == 0
}

// recut sends a piece that the target has not executed again, in shorter packets.
func (f *FEP) recut(p *pds.PDC, pc piece.Piece) {
	h := handle(pc)
	if !f.ses.Recut(h, pc) || f.closed || f.ended {
		return
	}
	ln := &f.lanes[p.Slot]
	ln.bytes += int(pc.Len)
	f.wakeData(ln, &f.peers[p.Peer])
	for i := range int(ln.begun) {
		if ln.q.at(i) == h {
			return
		}
	}
	i := int(ln.begun)
	for seq := f.ses.Seq(h); p.Mode() == wire.ROD && i > 0 && f.ses.Seq(ln.q.at(i-1)) > seq; {
		i--
	}
	ln.q.insert(i, h)
	ln.begun++
	f.todo.queued++
}

// resume sends what came back on a ROD PDC again. A message of which the target executed
// nothing, while it executed a piece of one behind it, would come too late for its order: it
// fails, and the target certainly has nothing of it.
func (f *FEP) resume(p *pds.PDC, st *stopped) {
	p.EachSent(func(k pds.Sent) { // what is left of the packets that it had early
		if k.Piece.Kind != piece.Noop {
			st.latest = max(st.latest, f.ses.Seq(handle(k.Piece)))
		}
	})
	// The answers came in any order.
	slices.SortFunc(st.pieces, func(a, b piece.Piece) int {
		return cmp.Or(cmp.Compare(f.ses.Seq(handle(a)), f.ses.Seq(handle(b))), cmp.Compare(a.Off, b.Off))
	})
	for len(st.pieces) > 0 {
		h := handle(st.pieces[0])
		n, own := uint32(0), 0
		for own < len(st.pieces) && handle(st.pieces[own]) == h {
			n += st.pieces[own].Len
			own++
		}
		late := f.ses.Seq(h) < st.latest && f.ses.Untouched(h, n)
		for _, pc := range st.pieces[:own] {
			if late {
				f.ses.Recut(h, pc)
			} else {
				f.recut(p, pc)
			}
		}
		if late {
			f.ses.Break(h, cause(pds.Reason{Why: pds.WhyTooBig}), 0)
		}
		st.pieces = st.pieces[own:]
	}
}

// dropStopped ends the messages whose pieces came back on a PDC that is gone.
func (f *FEP) dropStopped(p *pds.PDC, why pds.Reason) {
	if st := f.todo.stopped[p]; st != nil {
		delete(f.todo.stopped, p)
		for _, pc := range st.pieces {
			f.ses.Recut(handle(pc), pc)
			f.ses.Break(handle(pc), cause(why), why.Nack)
		}
	}
}
