package transport

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A train is the train under construction: datagrams of equal length and class to one
// address by one path. A shorter datagram ends it.
type train struct {
	d    *dgram.Datagram
	n    int  // packets
	size int  // bytes, with all trailers
	off  int  // start of the newest packet
	open bool // the newest packet has no trailer yet, so that AR may still be set on it
	full bool // has no room for another packet
	side bool // goes to a path port with the CRC or ICV for the main port

	prefix wire.Prefix    // CRC prefix of its packets
	apart  bool           // see FEP.Apart
	outer  outer          // of the latest train that start made
	echo   netip.AddrPort // what src returned last for a path that is no index
}

// begin starts an empty train in d.
func (f *FEP) begin(d *dgram.Datagram) {
	d.Data = d.Data[:0]
	f.out.d, f.out.size, f.out.full, f.out.side = d, 0, false, false
	if f.notes != nil {
		f.notes.begin()
	}
}

// fits reports whether a packet of n bytes, trailer included, may join the train.
func (f *FEP) fits(remote *netip.AddrPort, path, n, class int) bool {
	return f.goesBy(remote, path, class) && f.out.room(n)
}

// goesBy reports whether the train is empty, or goes to remote by path in this class. Only packets of the same
// PDC join what goes aside (drain).
func (f *FEP) goesBy(remote *netip.AddrPort, path, class int) bool {
	t := &f.out
	return t.size == 0 || !t.side && t.d.Path == path && t.d.TOS == f.form.tos[class] && t.d.Remote == *remote
}

// room reports whether the train has room for a packet of n bytes, trailer included, of the
// train's address, path and class.
func (t *train) room(n int) bool {
	return t.size == 0 || !t.full && n <= t.d.Seg && t.size+n <= dgram.MaxTrain
}

// join begins a packet of n bytes. The caller appends n minus the trailer bytes to the
// slice that join returns, and passes it to sealed or joined.
func (f *FEP) join(remote *netip.AddrPort, path, n, class int) []byte {
	t := &f.out
	d := t.d
	if t.size == 0 {
		return f.start(remote, path, n, f.form.tos[class])
	}
	f.follow()
	t.n, t.size, t.off = t.n+1, t.size+n, t.size
	t.full = n < d.Seg || t.n == f.form.most || t.size+d.Seg > dgram.MaxTrain
	f.stats.TxPackets++
	if f.sec != nil {
		return f.secHeader(d.Data)
	}
	return d.Data
}

// start is join for the first packet of a train. The train gets the address, path and class
// of that packet.
func (f *FEP) start(remote *netip.AddrPort, path, n int, tos uint8) []byte {
	t := &f.out
	d := t.d
	if path >= dgram.EchoPath {
		if path >= sidePath {
			return f.startAside(remote, path, n, tos)
		}
		path = f.leaveBy(path)
	}
	d.Remote, d.Path, d.Seg, d.TOS = *remote, path, n, tos
	if !f.out.outer.of(remote, path) {
		f.out.outer.become(remote, path, f.src(path), remote)
	}
	t.prefix = f.out.outer.prefix
	t.n, t.size, t.off = 1, n, 0
	f.stats.TxPackets++
	if f.sec != nil {
		return f.secHeader(d.Data)
	}
	return d.Data
}

// leaveBy returns the path that an answer takes which is to repeat an entropy value: the main
// path if its port cannot be had.
func (f *FEP) leaveBy(path int) int {
	if ev, _ := dgram.EchoOf(path); f.cfg.Echo != nil && f.cfg.Echo(ev) {
		return path
	}
	f.stats.EVsUnbound++
	return 0
}

// src is the local address that a path leaves from. It is valid until the next call.
func (f *FEP) src(path int) *netip.AddrPort {
	if ev, ok := dgram.EchoOf(path); ok {
		f.out.echo = netip.AddrPortFrom(f.cfg.Local.Addr(), ev)
		return &f.out.echo
	}
	return &f.local[path]
}

// startTo is start for a train of new data to the peer p, whose address is remote. On the
// first path it uses the CRC prefix that the peer keeps.
func (f *FEP) startTo(p *peer, remote *netip.AddrPort, path, n int) []byte {
	if path != 0 || !f.form.crcOnly {
		return f.start(remote, path, n, f.form.tos[classNew])
	}
	t := &f.out
	d := t.d
	d.Remote, d.Path, d.Seg, d.TOS = *remote, 0, n, f.form.tos[classNew]
	t.prefix, t.n, t.size, t.off = p.to, 1, n, 0
	f.stats.TxPackets++
	return d.Data
}

// joined ends a packet on which AR may still be set.
func (f *FEP) joined(b []byte) {
	if f.notes != nil {
		f.noteSent()
	}
	f.out.d.Data, f.out.open = b, true
}

// noteSent notes why the packet that was just written is sent.
//
//go:noinline
func (f *FEP) noteSent() { f.notes.sent(f.pds.Cause) }

// follow seals the newest packet if that is still to do, so that another packet may follow.
func (f *FEP) follow() {
	if f.out.open {
		f.seal()
	}
}

// askAck sets AR on the newest packet, which must be a request.
func (f *FEP) askAck() {
	if f.out.open {
		f.out.d.Data[f.out.off+f.form.head+1] |= byte(wire.FlagAR)
	}
}

// sealed ends a packet and seals it.
func (f *FEP) sealed(b []byte) {
	f.joined(b)
	f.seal()
}

// seal appends the trailer to the newest packet.
func (f *FEP) seal() {
	t := &f.out
	d := t.d
	t.open = false
	if !f.form.crcOnly {
		f.wrapUp(d)
		return
	}
	p := d.Data[t.off:]
	c := wire.CRC(f.out.prefix.CRC(len(p)+wire.CRCLen), p)
	d.Data = append(d.Data, byte(c>>24), byte(c>>16), byte(c>>8), byte(c)) // inlined, unlike AppendUint32
}

// wrapUp is seal for a FEP that uses no CRC.
func (f *FEP) wrapUp(d *dgram.Datagram) {
	if f.sec == nil {
		return
	}
	off := f.out.off
	if f.notes != nil {
		f.notes.sealing(d.Data[off+f.form.head:])
	}
	var room [wire.ICVLen]byte
	d.Data = append(d.Data, room[:f.form.trailer]...)
	p := d.Data[off:]
	f.sec.Seal(p, f.out.outer.aad(len(p)))
}

// Transmit fills d with the next train that may be sent now. It returns false if there is
// none. ACKs that are not yet due ride with data to the same peer; without data they wait
// for AckDelay, Flush, or an ACK that carries data. After Apart(true) they do not ride with a data packet that is
// alone, but leave in the next train.
func (f *FEP) Transmit(now time.Duration, d *dgram.Datagram) bool {
	if f.todo.ready.len()|len(f.todo.moveLater) == 0 && !f.todo.flush && !f.loose() {
		return false // usual after a train that was the only one
	}
	f.now = now
	if len(f.todo.moveLater) > 0 {
		f.move(now)
	}
	f.begin(d)
	if f.sec != nil && !f.canSeal(now) {
		return false
	}
	if f.form.trims {
		f.fillControl(now) // control packets do not ride with data, which has another class
	}
	for len(d.Data) == 0 {
		if f.todo.ready.len() == 0 {
			if len(f.todo.moveLater) == 0 {
				break
			}
			f.move(now)
			if f.todo.ready.len() == 0 {
				break
			}
		}
		id := f.todo.ready.front()
		p := &f.peers[id]
		more := !f.fillAlone(now, id, p) && f.fillData(now, id, p)
		if p.acks && f.out.size > 0 {
			if f.out.apart && f.out.n == 1 && f.todo.queued == 0 && !more {
				f.todo.flush = true // the ACKs leave in the next train
			} else {
				f.ride(now, p)
			}
		}
		if !more {
			// This peer may send nothing more now. A wake queues it again.
			f.todo.ready.pop()
			p.ready = false
		} else if f.todo.ready.len() > 1 {
			f.todo.ready.push(f.todo.ready.pop()) // round robin among peers
		}
	}
	if len(d.Data) == 0 && !f.fillAckAlone(now) {
		f.fillControl(now)
		if len(d.Data) == 0 {
			return false
		}
	}
	f.follow()
	f.stats.TxTrains++
	f.stats.TxBytes += uint64(len(d.Data))
	return true
}

// fillAckAlone is a fast path of fillControl for one ACK that is the only packet due. It
// returns false, having done nothing, if fillControl is needed. Without it a ping-pong
// takes 1 % more instructions (docs/perf.md, Fast paths).
func (f *FEP) fillAckAlone(now time.Duration) bool {
	if !f.todo.flush || f.todo.acks.len() != 1 || f.loose() {
		return false
	}
	p := &f.peers[f.todo.acks.front()]
	if p.owing.len() != 1 {
		return false
	}
	ln := &f.lanes[p.owing.front()]
	pdc := ln.pdc
	if pdc == nil || !ln.owing || pdc.CtlOwed() || !pdc.OneAck() {
		return false
	}
	remote, path := pdc.AckTo()
	f.joined(pdc.NextAck(now, f.start(remote, int(path), f.form.ackLen, f.form.tos[classCtl])))
	f.seal()
	f.stats.AcksTx++
	p.owing.clear()
	f.todo.acks.clear()
	ln.owing, p.acks, f.todo.flush, f.todo.ackAt = false, false, false, 0
	return true
}

// fillControl fills an empty train with answers that belong to no PDC, or with the ACKs and
// control packets that are due.
func (f *FEP) fillControl(now time.Duration) {
	if f.pds.Loose() {
		f.fillLoose()
	}
	if f.other && f.out.size == 0 {
		f.fillOther()
	}
	for len(f.out.d.Data) == 0 && f.todo.flush {
		p := &f.peers[f.todo.acks.front()]
		if !f.fillOwing(now, p) {
			f.todo.acks.pop()
			p.acks = false
			if f.todo.flush = f.todo.acks.len() > 0; !f.todo.flush { // now, so that Transmit is not called again in vain
				f.todo.ackAt = 0
			}
		}
	}
}

// ride adds the ACKs for a peer to a train with data for it.
func (f *FEP) ride(now time.Duration, p *peer) {
	if !f.fillOwing(now, p) && f.todo.acks.len() == 1 && !f.todo.flush {
		f.todo.acks.clear() // so that the next Flush need not look at them
		p.acks = false
		f.todo.ackAt = 0 // no ACK waits
	}
}

// fillAlone is a fast path of fillData for the usual case: one packet carries the whole
// message and is all that is to be sent to the peer. It returns false if fillData is needed,
// whether it sent the packet or not.
func (f *FEP) fillAlone(now time.Duration, id PeerID, p *peer) bool {
	if p.data.len() != 1 || f.credit != nil {
		return false
	}
	ln := &f.lanes[p.data.front()]
	pdc := ln.pdc
	if ln.q.len() != 1 || PeerID(pdc.Peer) != id || !pdc.Usable() || pdc.Lost() || pdc.Stopped() {
		return false
	}
	h := ln.q.front()
	msg, bytes := f.ses.Whole(h, int(p.mtu))
	n := bytes + f.form.reqLen
	if bytes < 0 || !pdc.CanPush(n+f.form.overhead) {
		return false
	}
	path := 0
	if f.form.chooses {
		if f.heralds(p, pdc) {
			return false
		}
		path = f.pathFor(now, p, pdc)
	}
	pdc.Push(now, piece.Piece{Msg: uint32(h), Len: uint32(bytes), Kind: piece.Last}, n+f.form.overhead, uint8(path))
	b := msg.Append(pdc.Header(f.startTo(p, pdc.Remote(), path, n)), bytes)
	if !p.talk.answer && pdc == p.lagging() {
		p.talk.unasked = 0 // what lags does with nearly every message, without the call
		b[f.form.head+1] |= byte(wire.FlagAR)
	} else if !f.lags(now, p, pdc, true) {
		b[f.form.head+1] |= byte(wire.FlagAR) // no packet follows that could ask
	}
	f.joined(b)
	f.seal()
	f.stats.TxData++
	ln.q.clear()
	ln.begun, ln.bytes = 0, 0
	f.todo.queued--
	if !pdc.Usable() {
		return false // this was the last packet of the PDC
	}
	p.data.clear()
	ln.data = false
	return true
}

// fillData adds data packets for the peer to the train. It reports whether the peer may
// have more to send.
func (f *FEP) fillData(now time.Duration, id PeerID, p *peer) bool {
	more, blocked := false, false
	for i := p.data.len(); i > 0; i-- {
		slot := p.data.pop()
		ln := &f.lanes[slot]
		if ln.pdc == nil || !ln.data || PeerID(ln.pdc.Peer) != id {
			continue
		}
		sent := f.stats.TxData
		pdc := ln.pdc
		if f.credit != nil {
			f.wants(now, pdc)
			pdc.Announce(now)
		}
		switch f.drain(now, p, ln) {
		case laneDry:
			ln.data = false
			if f.credit != nil {
				f.wants(now, pdc)
			}
		case laneMore:
			more = true
			p.data.push(slot)
		case laneBlocked:
			blocked = true
			if f.credit != nil {
				f.lacksCredit(now, pdc)
			}
			// The RUD lanes of a peer share a window. When it opens again, the lanes that
			// could not send this time come first.
			if f.stats.TxData != sent {
				f.todo.after.push(slot)
			} else {
				p.data.push(slot)
			}
		}
		if f.out.full {
			more = more || i > 1
			break
		}
	}
	for f.todo.after.len() > 0 {
		p.data.push(f.todo.after.pop())
	}
	if blocked {
		p.awaitWake()
		for _, pdc := range f.returning[id] {
			pdc.Awaited = true
		}
		if pdc := f.pulls[id]; pdc != nil {
			pdc.Awaited = true
		}
	}
	return more
}

// A laneState says why drain stopped.
type laneState uint8

const (
	laneDry     laneState = iota // nothing left to send: a wake queues the lane again
	laneMore                     // the train has no room, or is of another class, path or address
	laneBlocked                  // a window is closed: a wake queues the peer again
)

// drain moves packets of one PDC into the train.
func (f *FEP) drain(now time.Duration, p *peer, ln *lane) laneState {
	pdc := ln.pdc
	if len(f.out.d.Data) == 0 && ln.bytes >= dgram.MaxTrain && pdc.Soon(dgram.MaxTrain) {
		// This is a stream that fills the window. It waits for room for a whole train,
		// which costs the fewest system calls. Otherwise a loss, or an ACK of half a train,
		// would leave single packets, which are acknowledged one by one and so stay single.
		return laneBlocked
	}
	path, herald := 0, false
	if f.form.chooses {
		if herald = f.heralds(p, pdc); herald {
			pdc.Herald(now)
		}
		path = f.pathFor(now, p, pdc)
	}
	last := -1     // offset of this PDC's newest request in the train
	whole := false // that request is a whole message
	state := laneDry
	if pdc.Lost() {
		var ok bool
		if last, ok = f.drainLost(now, p, pdc, path, herald); !ok {
			return laneMore
		}
	}
	if herald && pdc.Silences() == 0 {
		return laneBlocked // data waits for the answer: the main path was silent
	}
	closing := !pdc.Usable()
	if closing && pdc.Mode() == wire.RUD {
		f.moveUnsent(ln)
	}
	same := f.goesBy(pdc.Remote(), path, classNew) // the loop does not change it
	stopped := pdc.Stopped()
	for ln.q.len() > 0 && (!closing || ln.begun > 0) && !stopped {
		h := ln.q.front()
		pc, ok := f.ses.Peek(h, int(p.mtu))
		if !ok {
			if f.ses.Paced(h) {
				pdc.Awaited = true // an answer may end another read; cameBack queues the lane, too
				break
			}
			f.pass(ln, h)
			continue
		}
		n := int(pc.Len) + f.form.reqLen
		if pc.Kind&piece.Small != 0 {
			n -= wire.ReqStdLen - wire.ReqSmallLen
		}
		if !same || !f.out.room(n) {
			state = laneMore
			break
		}
		if !pdc.CanPush(n + f.form.overhead) {
			break
		}
		pdc.Push(now, pc, n+f.form.overhead, uint8(path))
		b := f.join(pdc.Remote(), path, n, classNew)
		if pc.Kind&piece.Small == 0 {
			b = pdc.Header(b)
		} else {
			b = f.smallHeader(pdc, pc, b)
		}
		f.joined(f.ses.AppendPiece(b, pc))
		if pdc.Nearly() {
			f.askAck()
		}
		f.stats.TxData++
		last, whole = f.out.off, pc.Last() && pc.Off == 0
		ln.bytes -= int(pc.Len)
		if !pc.Last() {
			ln.begun = max(ln.begun, 1)
			continue
		}
		f.next(ln)
		if pc.Kind&(piece.Error|piece.End) != 0 {
			f.recount(ln)
		}
	}
	blocked := false
	if state == laneDry && !pdc.Initiator() {
		last, state = f.drainReturns(now, p, pdc, path, last)
		if blocked = state == laneBlocked; blocked {
			state = laneDry // but for what follows
		}
	}
	if state == laneDry {
		if blocked || pdc.Lost() || ln.q.len() > 0 && (!closing || ln.begun > 0) {
			state = laneBlocked
		}
		// Nothing more follows: the newest packet asks for an ACK
		// (docs/architecture.md#a-turn-and-what-waits).
		if last >= 0 && last == f.out.off && !f.lags(now, p, pdc, whole && f.out.n == 1) {
			f.askAck()
		}
		if pdc.State() == pds.Quiesce && ln.begun == 0 && !pdc.Voids() && f.todo.stopped[pdc] == nil && !f.ses.Reading(pdc.Slot) {
			f.pds.Drained(now, pdc)
			f.heed()
			if ln.pdc != nil && pdc.CanResend() {
				return laneMore
			}
		}
	}
	return state
}

// smallHeader is pdc.Header for a piece with the small header. The answer to a read names its PSN.
func (f *FEP) smallHeader(pdc *pds.PDC, pc piece.Piece, b []byte) []byte {
	b, psn := pdc.SmallHeader(b)
	if pc.Kind&piece.Ask != 0 {
		f.ses.AskedAs(handle(pc), psn)
	}
	return b
}

// drainLost moves lost packets into the train. It returns the offset of the last request
// among them, -1 if there is none. It returns false if a lost packet found no room. herald is what heralds said.
func (f *FEP) drainLost(now time.Duration, p *peer, pdc *pds.PDC, path int, herald bool) (last int, ok bool) {
	remote := pdc.Remote()
	last = -1
	for pdc.CanResend() {
		n, isCP, _ := pdc.NextLost()
		n -= f.form.overhead
		class, by := classAgain, path
		switch {
		case isCP:
			if class = classCtl; herald {
				by = f.heraldPath(p, pdc)
			}
		case herald && pdc.Silences() == 0:
			return last, true // drain says that it waits
		case pdc.LostFresh():
			class = classNew
		}
		if !f.fits(remote, by, n, class) {
			return last, false
		}
		a := pdc.Resend(now, uint8(by))
		b := f.join(remote, by, n, class)
		if isCP {
			if herald {
				f.herald(p, pdc, &a.CP, by)
			}
			f.sealed(a.CP.Append(b))
			continue
		}
		b = a.Req.Append(b)
		if a.Piece.Kind&(piece.Small|piece.Ask|piece.Void) == piece.Small|piece.Ask {
			f.ses.AskedAs(handle(a.Piece), a.Req.PSN)
		}
		b = f.ses.Append(b, a.Piece)
		f.joined(b)
		f.stats.TxData++
		last = f.out.off
	}
	return last, true
}

// moveUnsent moves the messages that have not begun from a PDC that closes (F28) or is
// refused (F18) to moveLater. They use another PDC.
func (f *FEP) moveUnsent(ln *lane) {
	keep := int(ln.begun)
	for ln.q.len() > keep {
		h := ln.q.at(keep)
		ln.q.drop(keep)
		f.todo.queued--
		f.todo.moveLater = append(f.todo.moveLater, h)
	}
	f.recount(ln)
}

// next removes the lane's first message, all pieces of which were sent.
func (f *FEP) next(ln *lane) {
	ln.q.pop()
	if ln.begun > 0 {
		ln.begun--
	}
	f.todo.queued--
	if ln.q.len() == 0 {
		ln.bytes = 0
	}
}

// pass removes the lane's first message, which sends nothing: it ended, or it waits in SES for
// ordered messages that were refused.
func (f *FEP) pass(ln *lane, h ses.Handle) {
	if f.ses.Seq(h) == 0 {
		f.purge(ln) // others may have ended with it: each by itself would count the lane anew
		return
	}
	n, held := f.ses.Hold(h)
	ln.bytes -= n
	f.next(ln)
	if !held {
		f.recount(ln)
	}
}

// recount computes anew how many bytes a lane has to send, after messages left it unsent.
func (f *FEP) recount(ln *lane) {
	ln.bytes = 0
	for i := range ln.q.len() {
		ln.bytes += f.ses.Left(ln.q.at(i))
	}
}

// pathFor chooses the path of the next train to a peer if there may be several. A ROD PDC keeps to one path while that path works (UE 3.6.16).
func (f *FEP) pathFor(now time.Duration, p *peer, pdc *pds.PDC) int {
	if pdc.RemoteID() == 0 && !f.form.standard {
		return f.openingPath(p, pdc)
	}
	if !f.form.sprays {
		return f.openPath(p, pdc)
	}
	if p.paths == nil {
		f.choosePaths(p)
	}
	if pdc.Mode() == wire.ROD {
		return p.paths.single.Pick(now)
	}
	if pdc.Silences() == 1 {
		return f.heardBy(now, p, pdc) // data and its answer passed there
	}
	if len(f.out.d.Data) > 0 && f.out.d.Remote == *pdc.Remote() {
		return f.out.d.Path
	}
	return p.paths.spray.Pick(now)
}

// ctlPath chooses the path of a control packet: on a ROD PDC that of its data. On a RUD PDC it is the one by
// which the peer was heard last, and when it does not answer there any other.
func (f *FEP) ctlPath(now time.Duration, pdc *pds.PDC) int {
	p := &f.peers[pdc.Peer]
	switch {
	case !f.form.sprays && pdc.RemoteID() == 0:
		return f.openingPath(p, pdc)
	case !f.form.sprays:
		return f.openPath(p, pdc)
	case p.paths == nil:
		return f.heardBy(now, p, pdc)
	case pdc.Mode() == wire.ROD:
		return p.paths.single.Pick(now)
	case !pdc.Unanswered():
		return f.heardBy(now, p, pdc)
	case len(f.out.d.Data) > 0 && f.out.d.Remote == *pdc.Remote():
		return f.out.d.Path
	}
	return p.paths.spray.Pick(now)
}

// heardBy is the path by which the peer was heard last. If that is the main path, and the peer answered from a path
// port of its own, the main path is silent: packets of an open PDC go to the main port, and take another.
func (f *FEP) heardBy(now time.Duration, p *peer, pdc *pds.PDC) int {
	path := pdc.HeardBy()
	if path != 0 || p.via == 0 {
		return path
	}
	if p.paths == nil {
		f.choosePaths(p)
	}
	if path = p.paths.spray.Pick(now); path == 0 {
		path = p.paths.spray.Pick(now)
	}
	return path
}

// choosePaths gives a peer its choice of paths.
func (f *FEP) choosePaths(p *peer) {
	p.paths = new(paths)
	p.paths.spray.Init(len(f.cfg.Paths), cms.Choice(f.cfg.PathChoice), f.rng)
	p.paths.single.Init(len(f.cfg.Paths), cms.Single, f.rng)
}

// fillOwing adds ACKs and control packets of a peer's PDCs to the train. It reports whether
// some are left that did not fit.
func (f *FEP) fillOwing(now time.Duration, p *peer) bool {
	for i := p.owing.len(); i > 0; i-- {
		ln := &f.lanes[p.owing.front()]
		if pdc := ln.pdc; pdc != nil && ln.owing {
			if pdc.CtlOwed() && !f.drainCtl(now, pdc) {
				return true
			}
			for pdc.AckOwed() {
				remote, path := pdc.AckTo()
				n := pdc.AckLen() + f.form.wrap
				if !f.fits(remote, int(path), n, classCtl) {
					return true
				}
				f.joined(pdc.NextAck(now, f.join(remote, int(path), n, classCtl)))
				f.seal()
				f.stats.AcksTx++
			}
		}
		p.owing.pop()
		ln.owing = false
	}
	return false
}

// drainCtl adds the control packets that one PDC owes. It returns false if the train has no
// room for all.
func (f *FEP) drainCtl(now time.Duration, pdc *pds.PDC) bool {
	for pdc.CtlOwed() {
		n, class := wire.CPLen+f.form.wrap, classCtl
		if f.form.trims && pdc.ProbeNext() {
			class = classNew
		}
		path := 0
		if f.form.chooses {
			path = f.ctlPath(now, pdc)
		}
		if f.out.full || !f.fits(pdc.Remote(), path, n, class) {
			return false
		}
		c, ok := pdc.NextCtl(now)
		if !ok {
			break
		}
		f.sealed(c.Append(f.join(pdc.Remote(), path, n, class)))
	}
	return true
}

// loosePath chooses the path of an answer that belongs to no PDC's queue: that of what it answers. But a padded
// PROBE, and of a FEP with one port any control packet, takes a path of its PDC.
func (f *FEP) loosePath(l *pds.Loose) int {
	if wire.Type(l.B[0]>>3) == wire.TypeCP && (l.Pad > 0 || !f.form.sprays) {
		c, _, _ := wire.ParseCP(l.B[:l.N])
		if pdc := f.pds.Lookup(c.SPDCID); pdc != nil && pdc.Peer != 0 {
			return f.ctlPath(f.now, pdc)
		}
	}
	return int(l.Path)
}

// padding is what follows the header of a padded PROBE.
var padding [9 << 10]byte

// fillLoose adds answers, such as NACKs, that belong to no PDC's queue.
func (f *FEP) fillLoose() {
	for {
		l := f.pds.PeekLoose()
		if l == nil {
			return
		}
		n, class, path := int(l.N)+int(l.Pad)+f.form.wrap, classCtl, int(l.Path)
		if l.Pad > 0 {
			class = classNew // a PROBE
		}
		if f.form.chooses {
			path = f.loosePath(l)
		}
		if !f.fits(&l.Remote, path, n, class) {
			return
		}
		if f.notes != nil {
			f.pds.Cause = looseCause(l)
		}
		b := append(f.join(&l.Remote, path, n, class), l.B[:l.N]...)
		f.sealed(append(b, padding[:l.Pad]...))
		f.pds.NextLoose()
	}
}
