package transport

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// heed acts on the news of the last call of PDS: it tells SES what became of packets, and
// queues for Transmit the PDCs that have something to send.
func (f *FEP) heed() {
	if f.pds.HasNews() {
		f.heedAll()
	}
}

func (f *FEP) heedAll() {
	for n := f.pds.NextNews(); n != nil; n = f.pds.NextNews() {
		switch p := n.PDC; n.Kind {
		case pds.NewsAnswered:
			if n.Piece.Kind&(piece.Void|piece.Noop) != 0 || len(f.todo.stopped) != 0 {
				f.voidAnswered(p, n.Piece, n.Rsp)
			} else {
				f.answered(p, handle(n.Piece), n.Rsp)
			}
		case pds.NewsPassed:
			for _, msg := range n.Msgs {
				f.ses.Answered(ses.Handle(msg), nil)
			}
		case pds.NewsAwake:
			f.wake(p)
		case pds.NewsOwesAck:
			f.oweAck(p)
		case pds.NewsFailed:
			if n.Unrun {
				f.unrun(p, handle(n.Piece))
				continue
			}
			f.ses.Failed(handle(n.Piece), cause(n.Why), n.Why.Nack)
		case pds.NewsUnkept:
			if h := ses.Handle(n.Msg); n.Why.Why == pds.WhyNone {
				f.ses.Kept(h)
			} else {
				f.ses.Break(h, cause(n.Why), n.Why.Nack)
			}
		case pds.NewsGone:
			f.gone(p, n.Why)
		case pds.NewsPath:
			f.learnPath(p, n.Path, n.PathNews)
		case pds.NewsSilent:
			if pr := &f.peers[p.Peer]; pr.talk.unasked != 0 && pr.lagging() == p {
				pr.askAll()
			}
		case pds.NewsRefused:
			f.refused(p)
			f.ses.Refused(p.Peer)
		case pds.NewsProven:
			if p.Peer != 0 { // else newSource notes it
				f.peers[p.Peer].proven = true
			}
			if f.ses.Proven(p.Peer); f.ses.Serving(p.Slot) {
				f.queueReturn(p)
			}
		case pds.NewsTooLong:
			f.shrink(PeerID(p.Peer))
		case pds.NewsBlocks:
			f.unblock(p, handle(n.Piece))
		case pds.NewsCredit:
			f.credited(p, n.Msg)
		case pds.NewsCreditAsked:
			f.creditAsked(p, n.Msg)
		case pds.NewsCreditRefused:
			f.noCredit(p)
		case pds.NewsCarried:
			f.carried(PeerID(p.Peer), n.Probe)
		case pds.NewsLacking:
			f.lacks(false)
		case pds.NewsGuessed:
			// Many packets name PDCs that they cannot belong to.
			if f.cfg.Hint != nil {
				f.cfg.Hint(Hint{Peer: f.pds.Guesser(), Reason: DropSource, Count: pds.GuessLimit + 1})
			}
		}
	}
	if f.ses.Halted {
		f.ses.Halt()
	}
}

// answered tells SES that a piece of a message was answered on a PDC.
func (f *FEP) answered(p *pds.PDC, h ses.Handle, rsp *wire.Rsp) {
	if rsp != nil && rsp.Opcode != wire.RspDefault {
		if rsp.Opcode == wire.RspNone || rsp.List == wire.ListOverflow && rsp.ModLen == 0 {
			f.promised(p, h, rsp)
			return
		}
		if rsp == &f.rx.rsp && rsp.Opcode == wire.RspWithData && p.Initiator() {
			f.ses.ReadData(p.Slot, &f.rx.read, f.rx.data)
		}
	}
	f.ses.Answered(h, rsp)
}

// unrun takes back a piece of a message that no target executed. When the last one is back the
// message begins anew on another PDC. If it has not left its lane, gone moves it.
func (f *FEP) unrun(p *pds.PDC, h ses.Handle) {
	if !f.ses.Unrun(h) {
		return
	}
	ln := &f.lanes[p.Slot]
	for i := range min(max(1, int(ln.begun)), ln.q.len()) {
		if ln.q.at(i) == h {
			return
		}
	}
	f.todo.moveLater = append(f.todo.moveLater, h)
}

// promised is answered for a response that says that the RESPONSE comes later, or that the target has
// deferred the message.
//
//go:noinline
func (f *FEP) promised(p *pds.PDC, h ses.Handle, rsp *wire.Rsp) {
	f.ses.Answered(h, rsp)
	f.ses.Promised(h, p.Slot)
	if f.ses.Deferred(h) {
		f.lanes[p.Slot].asked = true // PDS asks the target for signs of life, and so gives some
	}
}

// An owner is the FEP as PDS sees it (pds.Owner).
type owner FEP

func handle(p piece.Piece) ses.Handle { return ses.Handle(p.Msg) }

func (u *owner) GiveUp(_ *pds.PDC, p piece.Piece, nack wire.NackCode) (piece.Piece, int) {
	p, ok := u.ses.GiveUp(p, nack)
	if !ok {
		return piece.Piece{}, 0
	}
	return p, u.form.reqLen + u.form.overhead
}

func (u *owner) Noop(what piece.Piece) (piece.Piece, int) {
	return u.ses.Noop(handle(what)), u.form.reqLen + u.form.overhead
}

// gone removes a PDC that ended from its peer. Messages in its lane move to another PDC if
// no packet of them was sent; the one that has begun ends (docs/faults.md rule 3).
func (f *FEP) gone(p *pds.PDC, why pds.Reason) {
	if f.scarce.at != 0 {
		f.lookForPDCs(f.now)
	}
	if p.Peer == 0 || int(p.Slot) >= len(f.lanes) {
		return
	}
	f.ses.PDCGone(p.Slot, cause(why))
	id := PeerID(p.Peer)
	pr := &f.peers[id]
	ln := &f.lanes[p.Slot]
	pr.pdcs--
	if p.Initiator() {
		pr.opened--
	}
	if f.credit != nil {
		f.creditGone(p, pr.pdcs == 0)
	}
	pr.met = pr.met || p.Met()
	if pr.lagging() == p {
		pr.talk.unasked = 0
	}
	if pr.short == p {
		pr.short = nil
	}
	for i := range pr.long {
		if pr.long[i] == p {
			pr.long[i] = nil
		}
	}
	if pr.rod == p {
		pr.rod = nil
	}
	if f.pulls[id] == p {
		delete(f.pulls, id)
	}
	f.returnsGone(p)
	f.dropStopped(p, why)
	if pr.search != nil && pr.search.on {
		f.planSearches()
	}
	ln.pdc = nil
	ln.data = false
	q := ln.q
	ln.q = fifo[ses.Handle]{}
	begun := int(ln.begun)
	ln.begun = 0
	ln.bytes = 0
	if f.closed || f.ended {
		return
	}
	for i := 0; q.len() > 0; i++ {
		h := q.pop()
		f.todo.queued--
		switch {
		case i < begun && !f.ses.Unbegun(h):
			f.ses.Break(h, cause(why), why.Nack)
		case why.Why == pds.WhyTimeout || why.Why == pds.WhyUnreachable || why.Why == pds.WhyNoResource || why.Why == pds.WhyNoKey:
			// F9: the peer is gone: all operations to it fail.
			f.ses.Abandon(h, cause(why))
		default:
			f.todo.moveLater = append(f.todo.moveLater, h)
		}
	}
	if why.Why == pds.WhyTimeout || why.Why == pds.WhyUnreachable {
		f.failQueued(id, cause(why))
		f.peers[id].lostAt = f.now
		if f.cfg.Lost != nil && f.ses.Awaited(AllEndpoints, uint32(id)) {
			f.cfg.Lost(id, cause(why))
		}
	}
	if pr.data.len() > 0 {
		f.wakePeer(id) // the window has room again: packets of this PDC no longer count
	}
	f.maybeFree(id)
}

// failQueued fails the messages to a peer that is gone, on all its PDCs, if they have not
// begun (F9: all operations to the peer fail). Messages that have begun fail with their own
// PDC.
func (f *FEP) failQueued(id PeerID, c ses.Cause) {
	pr := &f.peers[id]
	fail := func(p *pds.PDC) {
		if p == nil {
			return
		}
		ln := &f.lanes[p.Slot]
		keep := int(ln.begun)
		for ln.q.len() > keep {
			h := ln.q.at(keep)
			ln.q.drop(keep)
			f.todo.queued--
			f.ses.Abandon(h, c)
		}
		f.recount(ln)
	}
	fail(pr.short)
	for _, p := range pr.long {
		fail(p)
	}
	fail(pr.rod)
	fail(f.pulls[id])
	keep := f.todo.moveLater[:0]
	for _, h := range f.todo.moveLater {
		if peer, _, _ := f.ses.Info(h); peer == uint32(id) {
			f.ses.Abandon(h, c)
		} else {
			keep = append(keep, h)
		}
	}
	f.todo.moveLater = keep
	f.failWaiting(id, c)
	f.failIdem(id, c)
	f.ses.PeerGone(uint32(id), c)
}

// wake queues a PDC for sending. It is called for every ACK and usually has nothing to do,
// which it sees from the PDC alone, without touching lane and peer.
func (f *FEP) wake(p *pds.PDC) {
	if !p.Awaited && !p.Lost() && p.Usable() {
		return
	}
	p.Awaited = false
	if int(p.Slot) < len(f.lanes) && f.lanes[p.Slot].pdc == p {
		f.wakeData(&f.lanes[p.Slot], &f.peers[p.Peer])
	}
}

// learnPath tells the path choice of a peer what became of packets on a path.
func (f *FEP) learnPath(p *pds.PDC, path uint8, news pds.PathNews) {
	pr := &f.peers[p.Peer]
	if pr.paths == nil {
		if path != noPath || news != pds.PathLost || !f.form.sprays {
			return
		}
		f.choosePaths(pr)
	}
	if path == noPath {
		pr.paths.spread.learn(f.now, news)
		return
	}
	c := &pr.paths.spray
	if p.Mode() == wire.ROD {
		c = &pr.paths.single
	}
	var rtt time.Duration
	if pr.ccc != nil {
		rtt = pr.ccc.SRTT()
	}
	switch news {
	case pds.PathGood:
		c.OnGood(f.now, int(path))
		if path == 0 && pr.by != 0 && f.rx.in.Path == 0 {
			pr.by = 0 // the main path carried a packet and its answer: the next PDC opens there
		}
	case pds.PathMarked:
		c.OnMarked(f.now, int(path), rtt)
	case pds.PathLost:
		c.OnLoss(f.now, int(path), rtt)
	}
}

// oweAck adds a PDC to its peer's list of ACKs and control packets. They are sent with data
// to the peer, or at ackAt.
func (f *FEP) oweAck(p *pds.PDC) {
	if p.Peer == 0 {
		f.newSource(p)
	}
	ln := &f.lanes[p.Slot]
	if ln.owing {
		return // its peer is in acks, too
	}
	ln.owing = true
	id := PeerID(p.Peer)
	pr := &f.peers[id]
	pr.owing.push(p.Slot)
	if !pr.acks {
		pr.acks = true
		f.todo.acks.push(id)
		if f.todo.ackAt == 0 {
			f.todo.ackAt = f.now + f.cfg.AckDelay
		}
	}
}

// refused moves the long messages behind a refused one to other PDCs: their receives may be
// posted first.
func (f *FEP) refused(p *pds.PDC) {
	pr, ln := &f.peers[p.Peer], &f.lanes[p.Slot]
	if p != pr.short && p != pr.rod && p != f.pulls[PeerID(p.Peer)] && ln.q.len() > 0 {
		f.moveUnsent(ln)
		f.wakePeer(PeerID(p.Peer))
	}
}

func (u *owner) Known(addr netip.AddrPort) bool {
	id, ok := u.book.byAddr[addr]
	return ok && u.peers[id].known
}

func (u *owner) Pending(p *pds.PDC) bool {
	return int(p.Slot) < len(u.lanes) && u.lanes[p.Slot].pdc == p && u.lanes[p.Slot].q.len() > 0
}

func (u *owner) Awaits(p *pds.PDC) bool { return u.ses.Awaits(p.Slot) || u.ses.Reading(p.Slot) }

func (u *owner) Asked(p *pds.PDC) bool {
	return int(p.Slot) < len(u.lanes) && u.lanes[p.Slot].pdc == p && u.lanes[p.Slot].asked
}

func (u *owner) Expects(msg uint32) bool { return u.ses.Expects(ses.Handle(msg)) }

func (u *owner) InboundOpen(p *pds.PDC) bool {
	return u.ses.Incomplete(p.Slot) || u.ses.Serving(p.Slot)
}

// cause translates the reason of PDS into a Cause.
func cause(why pds.Reason) ses.Cause {
	switch why.Why {
	case pds.WhyTimeout:
		return ses.TimedOut
	case pds.WhyUnreachable:
		return ses.Unreachable
	case pds.WhyNack:
		return ses.Aborted
	case pds.WhyNoResource:
		return ses.NoResource
	case pds.WhyNotReady:
		return ses.NotReady
	case pds.WhyTooBig:
		return ses.TooBig
	case pds.WhyNoKey:
		return ses.NoKey
	case pds.WhyProtocol:
		return ses.Aborted
	}
	return ses.Closed
}
