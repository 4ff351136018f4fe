package transport

import (
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/rudi"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file has writes and reads by RUDI, at both ends. They use no PDC. In clear they go to peers only
// to which a PDC is open, so that the target knows that their source is not forged (T27).

// idempotents is what a FEP has of RUDI. Its operations wait in queues of their peers.
type idempotents struct {
	table  *rudi.Table // nil before the first operation
	ready  fifo[PeerID]
	queues map[PeerID]*idemQueue
	// asides are the path ports that requests went to, of which the answers come.
	asides map[netip.AddrPort]PeerID
	// answers are what this side has to answer to others.
	answers fifo[idemAnswer]
}

// An idemQueue has the operations to one peer of which pieces are left.
type idemQueue struct {
	q      fifo[ses.Handle]
	listed bool   // in idempotents.ready
	port   uint16 // the path port of the peer where requests go; 0: they go to its main port
}

// An idemAnswer is the answer to one request.
type idemAnswer struct {
	to    netip.AddrPort
	path  int
	pktID uint32
	ce    bool // the request was marked
	ses.Answer
}

// maxIdemAnswers bounds the answers that wait to be sent. A request beyond it is dropped, and comes again.
const maxIdemAnswers = 4096

// postIdempotent takes an operation that may go by RUDI. It returns false if it cannot go so now: RUD
// takes it.
func (f *FEP) postIdempotent(now time.Duration, op *Op) (taken bool, err error) {
	p := &f.peers[op.Peer]
	if op.Ordered || op.HasData || op.Fence || op.Level >= LevelMatch || f.ended ||
		f.sec == nil && !p.reached() ||
		f.sec != nil && !f.sec.Ready() || f.ses.Fenced(op.Endpoint, uint32(op.Peer)) {
		return false, nil
	}
	h, err := f.ses.Send(now, op, op.Bytes())
	if err != nil {
		return true, mapErr(err)
	}
	f.ses.GoesByRUDI(h)
	if op.Optimized {
		f.ses.Optimize(h)
	}
	p.talk.heard = 0 // as after any other operation, the next message is no answer to what came before
	if f.idem.table == nil {
		f.idem.queues = map[PeerID]*idemQueue{}
		f.extra = true
		f.idem.table = rudi.New(rudi.Config{
			RTOInit: f.cfg.RTOInit, RTOMax: f.cfg.RTOMax, PeerTimeout: f.cfg.PeerTimeout, FirstID: f.rng.Uint32(),
		})
	}
	q := f.idem.queues[op.Peer]
	if q == nil {
		q = &idemQueue{port: p.via}
		f.idem.queues[op.Peer] = q
	}
	q.q.push(h)
	f.wakeIdem(op.Peer)
	return true, nil
}

// reached reports whether a PDC to the peer is open, which shows the target that its source is not forged.
func (p *peer) reached() bool {
	open := func(pdc *pds.PDC) bool { return pdc != nil && pdc.Usable() && pdc.RemoteID() != 0 }
	return open(p.short) || open(p.rod) || slices.ContainsFunc(p.long, open)
}

// wakeIdem lists a peer to which something may be sent.
func (f *FEP) wakeIdem(id PeerID) {
	if q := f.idem.queues[id]; q != nil && !q.listed {
		q.listed, f.other = true, true
		f.idem.ready.push(id)
	}
}

// fillIdempotent fills the train with requests to one peer: those that were lost first.
func (f *FEP) fillIdempotent() {
	for f.idem.ready.len() > 0 && f.out.size == 0 {
		id := f.idem.ready.front()
		q := f.idem.queues[id]
		if q != nil && f.fillIdemTo(id, &f.peers[id], q) {
			if f.idem.ready.len() > 1 {
				f.idem.ready.push(f.idem.ready.pop()) // round robin among peers
			}
			return
		}
		if f.idem.ready.pop(); q != nil { // else the peer was forgotten
			q.listed = false
		}
	}
}

// fillIdemTo adds requests to a peer. It returns true if the train has no room for what is left; else
// an answer or a timeout wakes the peer again.
func (f *FEP) fillIdemTo(id PeerID, p *peer, q *idemQueue) (more bool) {
	t := f.idem.table
	path := 0
	for pkt, pc, ok := t.Lost(uint32(id)); ok; pkt, pc, ok = t.Lost(uint32(id)) {
		next, n := f.idemForm(pc)
		if f.form.chooses {
			path = f.idemPath(id, p, q, t.Tries(uint32(id), pkt))
		}
		if !f.fits(&p.addr, path, n, classAgain) {
			return true
		}
		t.Resend(f.now, uint32(id), pkt)
		f.because(pds.CauseRTO)
		b := wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: next, Flags: wire.RUDIFlagRETX, PktID: pkt}.Append(f.join(&p.addr, path, n, classAgain))
		f.sealed(f.ses.Append(b, pc))
		f.stats.RUDIResent++
	}
	if f.form.chooses {
		path = f.idemPath(id, p, q, 0)
	}
	for q.q.len() > 0 {
		h := q.q.front()
		pc, ok := f.ses.Peek(h, int(p.mtu))
		switch {
		case !ok && f.ses.Paced(h):
			return false
		case !ok:
			q.q.pop()
			continue
		case pc.Error():
			f.ses.GiveUpIdempotent(h)
			continue
		case !t.Room(uint32(id)):
			return false
		}
		next, n := f.idemForm(pc)
		if !f.fits(&p.addr, path, n, classNew) {
			return true
		}
		pkt := t.Push(f.now, uint32(id), pc)
		f.because(pds.CauseNew)
		b := wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: next, PktID: pkt}.Append(f.join(&p.addr, path, n, classNew))
		f.sealed(f.ses.AppendPiece(b, pc))
		f.stats.RUDIRequests++
		if pc.Last() {
			q.q.pop()
		}
	}
	return false
}

// idemPath chooses the path of a request that was sent tries times. With Symmetric encapsulation it leaves from
// the main port, by which the target knows its source, and goes where the target answered. What was lost twice goes
// to the main port and to any path port by turns. As the packets that open a PDC do it has the CRC or ICV for the
// main port, so that nobody else at a path port executes it.
func (f *FEP) idemPath(id PeerID, p *peer, q *idemQueue, tries int) int {
	if f.form.standard {
		return f.pathOf(p)
	}
	port := q.port
	switch {
	case p.ports.N == 0 || f.form.trailer == 0:
		return 0
	case tries%2 != 0:
		port = 0
	case tries > 0:
		port = p.ports.First + uint16(f.rng.IntN(int(p.ports.N)))
	}
	if port == 0 {
		return 0
	}
	if f.idem.asides == nil {
		f.idem.asides = map[netip.AddrPort]PeerID{}
	}
	f.idem.asides[netip.AddrPortFrom(p.addr.Addr(), port)] = id
	return portPath(sidePath, port)
}

// forgetAsides forgets the path ports of a peer.
func (f *FEP) forgetAsides(id PeerID, p *peer) {
	for k := 0; k < int(p.ports.N) && len(f.idem.asides) != 0; k++ {
		at := netip.AddrPortFrom(p.addr.Addr(), p.ports.First+uint16(k))
		if f.idem.asides[at] == id {
			delete(f.idem.asides, at)
		}
	}
}

// idemPeer returns the peer that an answer comes from. Its requests go to the port where it comes from.
func (f *FEP) idemPeer() PeerID {
	from := f.rx.in.From
	id, port := f.book.byAddr[from], uint16(0)
	if id == NoPeer {
		id, port = f.idem.asides[from], from.Port()
	}
	if q := f.idem.queues[id]; q != nil && id != NoPeer {
		q.port = port
	}
	return id
}

// idemForm returns which header a request has, and its length.
func (f *FEP) idemForm(pc piece.Piece) (next wire.NextHdr, n int) {
	next, n = wire.NextReqStd, wire.ReqStdLen
	if pc.Kind&piece.Small != 0 {
		next, n = wire.NextReqSmall, wire.ReqSmallLen
	}
	return next, n + wire.RUDILen + int(pc.Len) + f.form.wrap
}

// fillIdemAnswers adds answers to the train.
func (f *FEP) fillIdemAnswers() {
	for f.idem.answers.len() > 0 {
		a := f.idem.answers.at(0)
		n := wire.RUDILen + a.Len() + f.form.wrap
		if !f.fits(&a.to, a.path, n, classNew) {
			return
		}
		h := wire.RUDIHdr{Type: wire.TypeRUDIRsp, Next: a.Next(), PktID: a.pktID}
		if a.ce {
			h.Flags |= wire.RUDIFlagM
		}
		f.because(pds.CauseAnswer)
		f.sealed(a.Append(h.Append(f.join(&a.to, a.path, n, classNew))))
		f.idem.answers.pop()
		f.stats.RUDIAnswers++
	}
}

// idempotent executes a packet of RUDI.
func (f *FEP) idempotent(b []byte) {
	h, n, err := wire.ParseRUDI(b)
	switch {
	case err != nil:
		f.dropInvalid(err)
	case f.cfg.Datagram:
		f.drop(DropType)
	case h.Type == wire.TypeRUDIRsp:
		f.idemAnswered(&h, b[n:])
	default:
		f.idemRequest(&h, b[n:])
	}
}

// idemRequest executes a request and queues its answer. In clear, read data goes only to those who are
// known or have shown that they receive what is sent to them: it is longer than its request (T27).
func (f *FEP) idemRequest(h *wire.RUDIHdr, b []byte) {
	switch {
	case h.Next != wire.NextReqStd && h.Next != wire.NextReqMedium && h.Next != wire.NextReqSmall:
		f.drop(DropNextHdr)
		return
	case !f.mayTalk():
		return
	case f.idem.answers.len() >= maxIdemAnswers:
		f.drop(DropLimit)
		return
	}
	f.stats.RxData++
	p := &f.peers[f.book.byAddr[f.rx.in.From]]
	proven := f.sec != nil || p.known || p.proven || p.short != nil && p.short.RemoteID() != 0
	a, ok := f.ses.Idempotent(h.Next, b, h.PktID, f.cfg.PayloadMTU, proven)
	if !ok {
		f.drop(DropHeader)
		return
	}
	f.other = true
	f.idem.answers.push(idemAnswer{to: f.rx.in.From, path: int(f.rx.in.Path), pktID: h.PktID, ce: f.rx.in.CE, Answer: a})
}

// idemAnswered takes the answer to a request of this side.
func (f *FEP) idemAnswered(h *wire.RUDIHdr, b []byte) {
	rsp, data := &f.rx.rsp, (*wire.RspData)(nil)
	switch h.Next {
	case wire.NextRsp:
		if _, err := rsp.Parse(b); err != nil {
			f.dropInvalid(err)
			return
		}
	case wire.NextRspData:
		d, n, err := wire.ParseRspData(b)
		if err != nil {
			f.dropInvalid(err)
			return
		}
		f.rx.read, b = d, b[n:]
		data = &f.rx.read
		*rsp = wire.Rsp{List: d.List, Opcode: wire.RspWithData, RC: d.RC, MsgID: d.ReadMsgID, JobID: d.JobID, ModLen: d.ModLen}
	case wire.NextRspDataSmall:
		d, n, err := wire.ParseRspDataSmall(b)
		switch {
		case err != nil:
			f.dropInvalid(err)
			return
		case d.ReqPSN != wire.PSN(h.PktID):
			f.drop(DropHeader)
			return
		}
		f.rx.read, b = wire.RspData{List: d.List, Opcode: d.Opcode, RC: d.RC, JobID: d.JobID, PayloadLen: d.PayloadLen}, b[n:]
		data = &f.rx.read
		*rsp = wire.Rsp{List: d.List, Opcode: wire.RspWithData, RC: d.RC, JobID: d.JobID}
	default:
		f.drop(DropNextHdr)
		return
	}
	id := f.idemPeer()
	if f.idem.table == nil || id == NoPeer {
		f.drop(DropStale)
		return
	}
	pc, ok := f.idem.table.Answered(f.now, uint32(id), h.PktID)
	if !ok {
		f.drop(DropStale) // T5 among others: answered before, or forged
		return
	}
	f.ses.IdempotentAnswer(pc, rsp, data, b)
	f.wakeIdem(id)
}

// idemRefused takes a NACK for a request of this side.
func (f *FEP) idemRefused(n *wire.Nack) {
	id := f.idemPeer()
	if f.idem.table == nil || id == NoPeer {
		f.drop(DropStale)
		return
	}
	f.idem.table.Refused(f.now, uint32(id), uint32(n.PSN))
	f.wakeIdem(id)
}

// advanceIdem lets requests that are late go again, and ends operations of silent peers.
func (f *FEP) advanceIdem(now time.Duration) {
	t := f.idem.table
	if t.NextTimeout() == 0 || now < t.NextTimeout() {
		return
	}
	t.Advance(now)
	t.AnyLost(func(id uint32) { f.wakeIdem(PeerID(id)) })
	f.endIdem(ses.TimedOut)
}

// failIdem ends the operations by RUDI to a peer, or to all if it is NoPeer.
func (f *FEP) failIdem(id PeerID, c ses.Cause) {
	t := f.idem.table
	switch {
	case t == nil:
		return
	case id == NoPeer:
		t.FailAll()
	default:
		t.Fail(uint32(id))
	}
	f.endIdem(c)
}

// endIdem tells SES of the pieces that were given up, and ends what waits for the same peers.
func (f *FEP) endIdem(c ses.Cause) {
	for pc, ok := f.idem.table.NextFailed(); ok; pc, ok = f.idem.table.NextFailed() {
		peer, _, _ := f.ses.Info(handle(pc))
		f.ses.Failed(handle(pc), c, 0)
		if q := f.idem.queues[PeerID(peer)]; peer != uint32(NoPeer) && q != nil {
			for q.q.len() > 0 {
				f.ses.Break(q.q.pop(), c, 0)
			}
		}
	}
}
