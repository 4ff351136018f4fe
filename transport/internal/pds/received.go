package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/window"
	"github.com/uetkit/uetkit/transport/wire"
)

// rxDir is the receiving direction of a PDC (UE 3.5.12).
type rxDir struct {
	win      window.Bitmap // received PSNs from base = CACK+1 on
	clear    wire.PSN      // the highest CLEAR_PSN received
	max      wire.PSN      // the highest PSN received
	rodNext  wire.PSN      // ROD: the next PSN for the message layer
	refused  bool          // missing PSNs up to refuseTo were refused by NACK 09
	refuseTo wire.PSN
	stand    stand
	early    earlyList // ROD: early packets
	back     bool      // ROD: what has a PSN up to backTo is refused with backRsp (TakeBack)
	backTo   wire.PSN
	backRsp  wire.Rsp
	stored   []answer // guaranteed responses not yet cleared, by PSN
	head     int      // index of the first one in stored
	due      int      // stored responses to send, for the first time or again
	once     []answer // responses not guaranteed that a CACK which is held back cannot report; each is sent once
	onceHead int      // index of the first one in once

	ackBytes  int      // bytes since the last ACK, see AckTrigger
	rcvdBytes uint64   // nominal bytes received in all, duplicates not counted
	ackDue    bool     // an ACK is due
	ackWhy    Cause    // why, by the first packet that made it due
	waitPSN   wire.PSN // if waits: the highest executed PSN beyond CACK that got no ACK of its own
	waits     bool
	trig      trigger
	sackCur   wire.PSN      // where the next bitmap begins if one cannot show all
	clearAsk  time.Duration // when to send a CLEAR_REQ, 0 if not yet known
	asked     bool          // a CLEAR_REQ was sent
	clearWait time.Duration // time between two CLEAR_REQs
	proofAt   time.Duration // when to ask for a proof of the source (askProof), 0: none is wanted

	probes [maxBurst]probe // PROBEs to answer
	nprobe uint8

	remote netip.AddrPort // source of the latest packet, where ACKs go
	path   uint32         // the path they leave by
}

// An answer is the response to a packet, with what its ACK reports of the packet.
type answer struct {
	psn   wire.PSN
	rsp   wire.Rsp
	due   bool // guaranteed: to be sent, for the first time or again
	late  bool // the packet is a duplicate, or the response was sent before: no RTT sample
	retx  bool // the packet has RETX
	ce    bool // the packet has a congestion mark
	small bool // its request has no message id
	n     uint8
	data  [MaxInline]byte // of a guaranteed response: n bytes that go with it
}

// MaxInline is how many bytes of read data an ACK carries at most.
const MaxInline = 16

// A trigger is the packet that the next ACK will name.
type trigger struct {
	answer
	has bool          // there is one
	at  time.Duration // when it arrived
}

// A probe is a PROBE that waits for its answer.
type probe struct {
	id   uint16
	late bool     // it may have waited here: no RTT sample
	base wire.PSN // the first PSN that it asks for
}

// An earlyPkt is an early ROD packet.
type earlyPkt struct {
	psn  wire.PSN
	b    []byte // its own copy of SES header and payload
	next wire.NextHdr
	ar   bool
	ce   bool
	size int // nominal bytes
}

// An earlyList holds the early packets of a PDC in the order of PSN.
type earlyList struct {
	q    []earlyPkt
	head int // index of the first one in q
}

// n is the number of packets.
func (h *earlyList) n() int { return len(h.q) - h.head }

// list returns the packets, the lowest PSN first.
func (h *earlyList) list() []earlyPkt { return h.q[h.head:] }

// from is the index in list of the first packet with PSN psn or higher.
func (h *earlyList) from(psn wire.PSN) int {
	q := h.list()
	lo, hi := 0, len(q)
	for lo < hi {
		if m := (lo + hi) / 2; q[m].psn.Before(psn) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// pop removes the first packet.
func (h *earlyList) pop() {
	h.q[h.head] = earlyPkt{}
	if h.head++; h.head == len(h.q) {
		h.q, h.head = h.q[:0], 0
	}
}

// put inserts a packet in the order of PSN.
func (h *earlyList) put(k earlyPkt) {
	if h.head > 0 && len(h.q) == cap(h.q) {
		n := copy(h.q, h.q[h.head:])
		clear(h.q[n:])
		h.q, h.head = h.q[:n], 0
	}
	h.q = append(h.q, k)
	i := len(h.q) - 1
	for i > h.head && k.psn.Before(h.q[i-1].psn) {
		h.q[i] = h.q[i-1]
		i--
	}
	h.q[i] = k
}

// note sets the address and path that ACKs go to.
func (rx *rxDir) note(from netip.AddrPort, path uint32) {
	rx.remote, rx.path = from, path
}

// noteMax raises max to psn.
func (rx *rxDir) noteMax(psn wire.PSN) {
	if psn.After(rx.max) {
		rx.max = psn
	}
}

// getRx gives a PDC a receiving direction, a spare one if there is one.
func (t *Table) getRx(p *PDC) *rxDir {
	var rx *rxDir
	if n := len(t.rxFree); n > 0 {
		rx = t.rxFree[n-1]
		t.rxFree = t.rxFree[:n-1]
	} else {
		rx = new(rxDir)
	}
	win, st, hq, once := rx.win, rx.stored[:0], rx.early.q[:0], rx.once[:0]
	*rx = rxDir{win: win, stored: st, once: once}
	rx.early.q = hq
	rx.win.Init(uint32(p.start), t.cfg.MPRange)
	rx.clear, rx.max = p.start-1, p.start-1
	rx.rodNext, rx.sackCur, rx.stand.at = p.start, p.start, p.start-1
	rx.remote = p.remote
	p.rx = rx
	return rx
}

// putRx keeps a receiving direction as a spare one.
func (t *Table) putRx(rx *rxDir) {
	for rx.early.n() > 0 {
		t.earlyUsed -= len(rx.early.list()[0].b)
		rx.early.pop()
	}
	if cap(rx.stored) > 256 {
		rx.stored = nil
	}
	if cap(rx.once) > 256 {
		rx.once = nil
	}
	if cap(rx.early.q) > 256 {
		rx.early.q = nil
	}
	if len(t.rxFree) < 1024 {
		t.rxFree = append(t.rxFree, rx)
	}
}

// An Action says what the owner must do with a received request.
type Action uint8

// The actions.
const (
	Drop    Action = iota // nothing: it was answered, refused or dropped
	Deliver               // pass it to the message layer, then call Accept or Refuse
	Keep                  // early on a ROD PDC: pass it to KeepEarly
)

// ReceiveReq processes a RUD or ROD request. If the Action is Deliver the owner executes
// the packet and calls Accept or Refuse at once.
func (t *Table) ReceiveReq(in *Arrival, h *wire.Req) (*PDC, Action) {
	var p *PDC
	if h.Flags&wire.FlagSYN != 0 {
		if p = t.findSyn(in, h); p == nil {
			return nil, Drop
		}
	} else {
		p = t.Lookup(h.DPDCID)
		if p == nil {
			t.Stats.DropNoPDC++
			t.refuseUnknown(in, h)
			return nil, Drop
		}
		if in.From.Addr() != p.remote.Addr() {
			t.Stats.DropSource++
			t.guessed(in.Now, in.From)
			return nil, Drop
		}
		if p.who != in.Who && t.foreign(p, in.Who) {
			return nil, Drop
		}
		if p.remoteID == 0 && t.answeredBy(p, h) {
			p.becomeEstablished(h.SPDCID, in.Who)
		}
		if p.remoteID != h.SPDCID || p.remoteID == 0 {
			t.Stats.DropHeader++
			t.refuse(in, h, wire.NackPDCHdrMismatch)
			return nil, Drop
		}
		if !p.proven {
			p.markProven()
		}
	}
	if p.mode != h.Mode() {
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: wire.NackPDCModeMismatch, PSN: h.PSN, SPDCID: p.id, DPDCID: p.remoteID})
		return nil, Drop
	}
	if p.initiator && !t.returns(in, p, h) {
		return nil, Drop
	}
	rx := p.rx
	d := h.PSN.Sub(wire.PSN(rx.win.Base()))
	if n := uint32(rx.win.Size()); uint32(d)+n >= 2*n { // d is not within −n to n−1
		t.guessed(in.Now, in.From)
		code := wire.NackPSNOORWindow
		if h.Flags&wire.FlagSYN != 0 {
			code = wire.NackInvalidSyn
		}
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: code, PSN: h.PSN, SPDCID: p.id, DPDCID: p.remoteID})
		return nil, Drop
	}
	// T9: a sender clears only what this side acknowledged. The packet itself
	// counts as received for the check, its own PSN never as cleared.
	clear := h.PSN.Add(int(h.ClearOff))
	// T9: CLEAR_PSN must be below the PSN of the packet, and at most the highest PSN
	// received: a sender clears only what this side has acknowledged.
	if clear.After(rx.max) || h.ClearOff >= 0 {
		t.unsent(in.Now, p)
		return nil, Drop
	}
	if !p.initiator && !isRequest(h.Next) {
		t.misfit(in, p, h, !rx.win.Test(uint32(h.PSN)), wire.NackPDCHdrMismatch)
		return nil, Drop
	}
	p.strikes = 0
	p.heard(in.Now)
	rx.note(in.From, in.Path)
	if clear.After(rx.clear) {
		rx.clear = clear
		if len(rx.stored) != 0 {
			p.cleared(in.Now, clear)
			d = h.PSN.Sub(wire.PSN(rx.win.Base()))
		}
	}
	if d < 0 || rx.win.Count() != 0 && rx.win.Test(uint32(h.PSN)) {
		p.duplicate(in, h.PSN, h.Flags, in.CE)
		return p, Drop
	}
	if p.mode == wire.ROD && (h.PSN != rx.rodNext || rx.earlyReady()) {
		return p, Keep
	}
	return p, Deliver
}

// isRequest reports whether what follows the PDS header is a request. Packets of the forward
// direction carry nothing else (UE 3.5.10.2, S-NACK-05).
func isRequest(n wire.NextHdr) bool {
	return n >= wire.NextReqSmall && n <= wire.NextReqStd
}

// misfit drops a request that names its PDC rightly and cannot be meant for it. A fresh one
// is answered by a NACK, which ends the PDC at its source. A PSN that was received before is
// not: its source has nothing outstanding under it.
func (t *Table) misfit(in *Arrival, p *PDC, h *wire.Req, fresh bool, code wire.NackCode) {
	t.Stats.DropHeader++
	if fresh {
		t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: code, PSN: h.PSN, SPDCID: p.id, DPDCID: p.remoteID})
	}
}

// refuse answers a request that belongs to no PDC by a NACK that names none. T27: its source
// may be forged, so the NACK must not be longer than the request.
func (t *Table) refuse(in *Arrival, h *wire.Req, code wire.NackCode) {
	if in.Small {
		return
	}
	t.sendNack(in.Now, in.From, in.Path, wire.Nack{Type: wire.TypeNack, Code: code, PSN: h.PSN, DPDCID: h.SPDCID})
}

// ReceiveNext is a fast path of ReceiveReq for nearly every request: a plain one with the
// PSN that its PDC expects next, while nothing is out of order or guaranteed there. It
// returns the PDC if the action is Deliver. It returns nil, having done nothing, if
// ReceiveReq must decide.
func (t *Table) ReceiveNext(in *Arrival, h *wire.PlainReq) *PDC {
	p := t.Lookup(h.DPDCID())
	if p == nil || !p.proven || p.Peer == 0 || p.mode != wire.RUD || h.SPDCID() != p.remoteID || p.who != in.Who || in.From.Addr() != p.remote.Addr() {
		return nil
	}
	rx := p.rx
	psn, off := h.PSN(), h.ClearOff()
	if uint32(psn) != rx.win.Base() || rx.win.Count() != 0 || off >= 0 {
		return nil // Count also counts PSNs whose guaranteed responses are not cleared
	}
	p.strikes = 0
	p.heard(in.Now)
	if rx.remote.Port() != in.From.Port() || rx.path != in.Path { // the address was compared above
		rx.note(in.From, in.Path)
	}
	if clear := psn.Add(int(off)); clear.After(rx.clear) {
		rx.clear = clear
	}
	return p
}

// Meta is what Accept must know of a delivered packet.
type Meta struct {
	PSN   wire.PSN
	Size  int  // nominal bytes
	Len   int  // payload bytes
	Next  bool // ReceiveNext returned the PDC
	AR    bool // it has AR or SYN: an ACK is due at the end of the turn
	Retx  bool // it has RETX
	CE    bool // it has a congestion mark
	Early bool // NextEarly returned it
	Late  bool // it may have waited here, not on the path: no RTT sample

	Waited time.Duration // how long it is known to have waited here
}

// Accept records a delivered packet with its response. gtd keeps the response until the
// initiator clears it. Accept returns true if an ACK becomes due now. This is by far the
// most frequent news, so it is a result; other ways to owe an ACK are News.
func (p *PDC) Accept(now time.Duration, m *Meta, rsp *wire.Rsp, gtd bool) (owes bool) {
	rx, t := p.rx, p.t
	if m.Next && !gtd && rx.win.Take(uint32(m.PSN)) {
		// A fast path of the rest. ReceiveNext has found that nothing is early or late and
		// that there is no hole.
		rx.max = m.PSN
		rx.rcvdBytes += uint64(m.Size)
		if p.state == CloseRequested {
			p.resume(now)
		}
		t.arm(p, now+t.cfg.PeerTimeout)
		tr, n := &rx.trig, rx.ackBytes+max(m.Len, t.cfg.AckMinAdd)
		if m.CE {
			t.Stats.RxCE++
			tr.ce = true
		} else if tr.ce {
			tr.ce = rx.ackDue
		}
		tr.psn, tr.at, tr.has, tr.retx, tr.late = m.PSN, now-m.Waited, true, false, m.Late
		tr.rsp.Set(rsp)
		if rx.waits {
			p.caughtUp(now)
		}
		if rx.ackBytes = n; m.AR || m.CE || n >= t.cfg.AckTrigger {
			rx.ackBytes = 0
			if !rx.ackDue {
				rx.ackDue, rx.ackWhy = true, m.whyAck()
				return true
			}
		}
		return false
	}
	if m.PSN == rx.max+1 {
		rx.max = m.PSN
	} else {
		t.Stats.RxOOO++
		rx.noteMax(m.PSN)
	}
	if p.mode == wire.ROD {
		rx.rodPast(m.PSN)
	}
	if !m.Early {
		rx.rcvdBytes += uint64(m.Size)
	}
	if p.state == CloseRequested {
		p.resume(now)
	}
	t.arm(p, now+t.cfg.PeerTimeout) // the message may stop here (F9)
	if m.CE {
		t.Stats.RxCE++
	}
	rx.ackBytes += max(m.Len, t.cfg.AckMinAdd)
	tr := &rx.trig
	tr.ce = m.CE || tr.ce && rx.ackDue
	if gtd || len(rx.stored) != 0 || !rx.win.Take(uint32(m.PSN)) {
		if p.acceptBehind(now, m, rsp, gtd) {
			return false
		}
	}
	tr.psn, tr.at, tr.has, tr.retx = m.PSN, now-m.Waited, true, m.Retx
	tr.late = m.Late
	tr.rsp.Set(rsp)
	if rx.waits {
		p.caughtUp(now)
	}
	// UE 3.5.12, when to send an ACK: for AR or SYN, CE, a resend, or after enough bytes.
	// The next such ACK covers the other packets.
	if m.AR || m.Retx || m.CE || rx.ackBytes >= t.cfg.AckTrigger {
		rx.ackBytes = 0
		if !rx.ackDue {
			rx.ackDue, rx.ackWhy = true, m.whyAck()
			return true
		}
	}
	return false
}

// rodPast sets rodNext behind psn, and behind the control packets that arrived before their
// turn and have the PSNs that follow.
func (rx *rxDir) rodPast(psn wire.PSN) {
	for psn++; rx.win.Test(uint32(psn)); psn++ {
	}
	rx.rodNext = psn
}

// AddData adds read data, MaxInline bytes at most, to the guaranteed response with which Accept
// just recorded a packet. small means that the request has no message id.
func (p *PDC) AddData(psn wire.PSN, data []byte, small bool) {
	if s := p.rx.find(psn); s != nil {
		s.small, s.n = small, uint8(copy(s.data[:], data))
	}
}

// acceptBehind is the part of Accept for a PDC on which something is out of order or
// guaranteed. It reports whether an ACK of its own will name the packet.
func (p *PDC) acceptBehind(now time.Duration, m *Meta, rsp *wire.Rsp, gtd bool) bool {
	rx, t := p.rx, p.t
	if !rx.win.Set(uint32(m.PSN)) {
		panic("BUG: pds: Accept of a PSN that was received")
	}
	if gtd {
		rx.store(m, rsp, m.Late)
		p.oweAck()
		t.arm(p, now+4*t.cfg.RTOInit)
	}
	p.advance()
	behind := !m.PSN.Before(wire.PSN(rx.win.Base()))
	switch {
	case gtd:
		rx.trig.has = false
		p.caughtUp(now)
		return true
	case behind && len(rx.stored) != 0:
		// CACK is held back below this packet. Unless an ACK names the packet, its sender
		// can neither complete it nor clear the response that holds back CACK.
		rx.once = append(rx.once, answer{psn: m.PSN, rsp: *rsp, retx: m.Retx, ce: m.CE, late: m.Late})
		rx.trig.has = false
		p.oweAck()
		return true
	case behind && (!rx.waits || m.PSN.After(rx.waitPSN)):
		rx.waitPSN, rx.waits = m.PSN, true
	}
	return false
}

// whyAck is why an ACK for a delivered packet is due now.
func (m *Meta) whyAck() Cause {
	switch {
	case m.Retx:
		return CauseAckRetx
	case m.AR:
		return CauseAckAsked
	case m.CE:
		return CauseAckCE
	}
	return CauseAckBytes
}

// Refuse answers a delivered packet with a NACK. The packet counts as not received.
func (p *PDC) Refuse(now time.Duration, psn wire.PSN, code wire.NackCode) {
	rx := p.rx
	if code == wire.NackNoSESMsgAvail && (!rx.refused || psn.After(rx.refuseTo)) {
		rx.refused, rx.refuseTo = true, psn
	}
	p.t.sendNack(now, rx.remote, rx.path, wire.Nack{Type: wire.TypeNack, Code: code, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID})
}

// A stand is what a target sees of a window that does not move because messages are refused.
type stand struct {
	at    wire.PSN      // the first missing PSN, at the latest refusal
	since time.Duration // since when it is that one
	until time.Duration // until when what finds no room is turned away
}

const (
	// standPart is the part of the window that refused packets may fill while they stand.
	standPart = 4
	// standTime is how long they may stand there, and turnTime how long what finds no room is turned away
	// then. In between a refused packet is tried after 1 to 500 ms, so that a receiver that goes
	// on is not far behind. Both are arbitrary.
	standTime = 100 * time.Millisecond
	turnTime  = time.Second
)

// TurnsAway reports whether a packet for which the message layer has no room, and that it can answer (ses.SES.TurnAway),
// is to be answered instead of refused. A refused packet stays in the window of its initiator. When many
// stand there for long, others that have a receive could not come behind them. On a ROD PDC none may pass
// the refused one in any case.
func (p *PDC) TurnsAway(now time.Duration, psn wire.PSN) bool {
	if p.mode == wire.ROD {
		return false
	}
	rx := p.rx
	st, low := &rx.stand, wire.PSN(rx.win.Base())
	if q, ok := rx.win.Next0(uint32(rx.clear + 1)); ok {
		low = wire.PSN(q)
	}
	if low != st.at {
		st.at, st.since = low, now
	}
	if now < st.until {
		return true
	}
	if int(psn.Sub(low))+p.Behind(psn) < p.t.cfg.MPRange/standPart || now-st.since < standTime {
		return false
	}
	st.until = now + turnTime
	return true
}

// Later reports whether the message layer should begin no new message with this packet,
// because an earlier packet was refused for lack of room there (NACK 09). If later messages
// got the room or receives that become free, the refused packets would fill the initiator's
// window and keep it from sending the rest of the later messages: all would wait for ever.
// A message of which all packets were sent is an exception, see Behind.
func (p *PDC) Later(psn wire.PSN) bool { return p.rx.refused && p.later(psn) }

// Behind is the number of packets behind this one that were certainly sent: up to the
// highest PSN that arrived or was refused.
func (p *PDC) Behind(psn wire.PSN) int {
	last := p.rx.max
	if p.rx.refuseTo.After(last) {
		last = p.rx.refuseTo
	}
	return max(int(last.Sub(psn)), 0)
}

// First reports whether a packet that arrives is the first one that is missing, of those whose order is free.
func (p *PDC) First(psn wire.PSN) bool {
	if p.mode == wire.ROD {
		return false
	}
	low, ok := p.rx.win.Next0(uint32(p.rx.clear + 1))
	return ok && psn == wire.PSN(low)
}

// later is Later for a PDC on which packets were refused. It forgets the refusals once all
// those packets have arrived.
func (p *PDC) later(psn wire.PSN) bool {
	rx := p.rx
	if p.mode == wire.ROD {
		return false
	}
	// A cleared PSN will not come: an earlier life of this side answered it.
	low, ok := rx.win.Next0(uint32(rx.clear + 1))
	if !ok || wire.PSN(low).After(rx.refuseTo) {
		rx.refused = false // all refused packets have arrived
		return false
	}
	return psn != wire.PSN(low)
}

// duplicate answers a packet that was received before (UE 3.5.12), with its stored response
// or the default response.
func (p *PDC) duplicate(in *Arrival, psn wire.PSN, f wire.Flags, ce bool) {
	rx := p.rx
	p.t.Stats.RxDup++
	if s := rx.find(psn); s != nil {
		if !s.due {
			s.due, s.late = true, true
			rx.due++
		}
		s.retx = f&wire.FlagRETX != 0
		p.oweAck()
		return
	}
	if p.mode == wire.ROD && !psn.Before(rx.rodNext) {
		// Early, and not executed yet: there is no response. The SACK shows the packet.
		rx.ackDue, rx.ackWhy = true, CauseAckDup
		rx.trig.has = false
		p.oweAck()
		return
	}
	if tr := &rx.trig; rx.ackDue && tr.has && !tr.retx && psn.Before(wire.PSN(rx.win.Base())) {
		// CACK covers this one. The ACK names the packet that came for the first time, by
		// which its sender learns that this one was late, not lost.
		return
	}
	rx.trig = trigger{answer{psn: psn, retx: f&wire.FlagRETX != 0, ce: ce, late: f&wire.FlagRETX == 0 || in.Paused}, true, in.Now - in.Waited}
	if !rx.ackDue {
		rx.ackDue, rx.ackWhy = true, CauseAckDup
		p.oweAck()
	}
}

// answerAckReq answers an ACK_REQ, which asks what became of a PSN.
func (t *Table) answerAckReq(in *Arrival, p *PDC, psn wire.PSN) {
	rx := p.rx
	d := psn.Sub(wire.PSN(rx.win.Base()))
	switch {
	case d >= int32(rx.win.Size()) || d < -int32(rx.win.Size()):
		t.Stats.DropStale++
	case d >= 0 && !rx.win.Test(uint32(psn)):
		code := wire.NackPktNotRcvd
		if rx.isEarly(psn) {
			code = wire.NackRcvdSESProcg
		}
		t.sendNack(in.Now, rx.remote, rx.path, wire.Nack{Type: wire.TypeNack, Code: code, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID})
	case p.mode == wire.ROD && !psn.Before(rx.rodNext):
		t.sendNack(in.Now, rx.remote, rx.path, wire.Nack{Type: wire.TypeNack, Code: wire.NackRcvdSESProcg, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID})
	default:
		p.duplicate(in, psn, 0, false)
	}
}

// store keeps a guaranteed response in the order of PSN, to be sent now and until its PSN
// is cleared (UE 3.5.20.1).
func (rx *rxDir) store(m *Meta, rsp *wire.Rsp, late bool) {
	psn := m.PSN
	s := answer{psn: psn, rsp: *rsp, due: true, retx: m.Retx, ce: m.CE, late: late}
	rx.due++
	i := len(rx.stored)
	rx.stored = append(rx.stored, s)
	for i > rx.head && psn.Before(rx.stored[i-1].psn) {
		rx.stored[i] = rx.stored[i-1]
		i--
	}
	rx.stored[i] = s
}

// find returns the stored response of a PSN, or nil.
func (rx *rxDir) find(psn wire.PSN) *answer {
	lo, hi := rx.head, len(rx.stored)
	for lo < hi {
		m := (lo + hi) / 2
		if rx.stored[m].psn.Before(psn) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(rx.stored) && rx.stored[lo].psn == psn {
		return &rx.stored[lo]
	}
	return nil
}

// clearTo forgets the stored responses up to and including PSN clear.
func (rx *rxDir) clearTo(clear wire.PSN) {
	if clear.After(rx.clear) {
		rx.clear = clear
	}
	for rx.head < len(rx.stored) && !rx.stored[rx.head].psn.After(rx.clear) {
		if rx.stored[rx.head].due {
			rx.due--
		}
		rx.head++
	}
	switch {
	case rx.head == len(rx.stored):
		rx.stored, rx.head = rx.stored[:0], 0
		rx.clearAsk, rx.clearWait = 0, 0
	case rx.head > 64 && rx.head*2 > len(rx.stored):
		n := copy(rx.stored, rx.stored[rx.head:])
		rx.stored, rx.head = rx.stored[:n], 0
	}
}

// advance moves base over received PSNs, up to the first one whose guaranteed response
// holds back CACK (UE 3.5.12).
func (p *PDC) advance() {
	rx := p.rx
	if len(rx.stored) == 0 {
		rx.win.Advance()
		return
	}
	rx.win.AdvanceTo(uint32(rx.stored[rx.head].psn))
}

// cleared processes a CLEAR_PSN. If CACK moves over other PSNs than those that were
// cleared, an ACK must report that.
func (p *PDC) cleared(now time.Duration, clear wire.PSN) {
	rx := p.rx
	base, head, n := rx.win.Base(), rx.head, len(rx.stored)
	rx.clearTo(clear)
	gone := n - head
	if len(rx.stored) != 0 {
		gone = n - head - (len(rx.stored) - rx.head)
	}
	p.advance()
	if gone > 0 && len(rx.stored) != 0 {
		// The initiator clears. Ask for the rest after the shortest wait.
		rx.clearWait = 4 * p.t.cfg.RTOInit
		rx.clearAsk = now + rx.clearWait
		p.t.arm(p, rx.clearAsk)
	}
	if int(rx.win.Base()-base) > gone && !rx.ackDue {
		rx.ackDue, rx.ackWhy = true, CauseAckHole
		p.oweAck()
	}
}

// caughtUp makes an ACK due when CACK passes packets that came behind a hole or a
// guaranteed response: nothing else reports that they are complete (UE 3.5.12, rule 7).
func (p *PDC) caughtUp(now time.Duration) {
	rx := p.rx
	if !rx.waits || !rx.waitPSN.Before(wire.PSN(rx.win.Base())) {
		return
	}
	rx.waits = false
	if !rx.ackDue {
		rx.ackDue, rx.ackWhy = true, CauseAckHole
		p.oweAck()
	}
}

// KeepEarly keeps a copy of an early ROD packet until the packets before it have come. If
// there is no room it refuses the packet with NACK ROD_OOO (UE 3.5.12.7), and returns false.
func (p *PDC) KeepEarly(now time.Duration, m *Meta, next wire.NextHdr, b []byte) bool {
	t, rx := p.t, p.rx
	if rx.isEarly(m.PSN) {
		t.Stats.RxDup++
		if m.Retx {
			p.ackEarly() // its sender may not know that this side is there
		}
		return true
	}
	if t.earlyUsed+len(b) > t.cfg.EarlyBytes {
		t.sendNack(now, rx.remote, rx.path, wire.Nack{Type: wire.TypeNack, Code: wire.NackRODOOO, PSN: m.PSN, SPDCID: p.id, DPDCID: p.remoteID, Payload: uint32(rx.rodNext)})
		return false
	}
	t.earlyUsed += len(b)
	t.Stats.RxOOO++
	k := earlyPkt{psn: m.PSN, b: append([]byte(nil), b...), next: next, ar: m.AR, ce: m.CE, size: m.Size}
	rx.early.put(k)
	rx.rcvdBytes += uint64(m.Size)
	t.arm(p, now+t.cfg.PeerTimeout)
	rx.noteMax(m.PSN)
	p.ackEarly()
	return true
}

// ackEarly makes an ACK due that tells the sender of the gap before an early packet at once.
func (p *PDC) ackEarly() {
	if rx := p.rx; !rx.ackDue {
		rx.ackDue, rx.ackWhy = true, CauseAckEarly
		rx.trig.has = false
		p.oweAck()
	}
}

// isEarly reports whether an early packet with that PSN is kept.
func (rx *rxDir) isEarly(psn wire.PSN) bool {
	i := rx.early.from(psn)
	return i < rx.early.n() && rx.early.list()[i].psn == psn
}

// IsEarly reports whether a copy of the packet is kept.
func (p *PDC) IsEarly(psn wire.PSN) bool {
	return p.mode == wire.ROD && p.rx != nil && p.rx.isEarly(psn)
}

// EarlyReady reports whether NextEarly has something.
func (p *PDC) EarlyReady() bool { return p.rx != nil && p.rx.earlyReady() }

// earlyReady reports whether the first early packet is next for the message layer.
func (rx *rxDir) earlyReady() bool {
	return rx.early.n() > 0 && rx.early.list()[0].psn == rx.rodNext
}

// NextEarly returns the early packet that is next for the message layer: its Meta, next
// header and bytes. They are valid until EarlyDone or EarlyRefused.
func (p *PDC) NextEarly() (m Meta, next wire.NextHdr, b []byte, ok bool) {
	rx := p.rx
	if rx == nil || !rx.earlyReady() {
		return Meta{}, 0, nil, false
	}
	k := &rx.early.list()[0]
	return Meta{PSN: k.psn, Size: k.size, Len: len(k.b), AR: true, CE: k.ce, Early: true, Late: true}, k.next, k.b, true
}

// EarlyDone removes the packet that NextEarly returned. Accept must have been called for
// it, unless the packet was malformed.
func (p *PDC) EarlyDone() {
	rx := p.rx
	p.t.earlyUsed -= len(rx.early.list()[0].b)
	rx.early.pop()
}

// EarlyRefused removes the packet that NextEarly returned, because the message layer
// refused it with code. Its sender must send it again.
func (p *PDC) EarlyRefused(now time.Duration, code wire.NackCode) {
	rx := p.rx
	psn := rx.early.list()[0].psn
	p.EarlyDone()
	p.Refuse(now, psn, code)
}

// TakeBack is called when a void packet of a ROD PDC was executed, with its response: the packets behind
// it up to PSN to, which may be here early or yet come, get the same answer, because what the void
// packet stands for will be sent once more and goes before them.
func (p *PDC) TakeBack(to wire.PSN, rsp *wire.Rsp) {
	if rx := p.rx; !p.initiator && int(to.Sub(wire.PSN(rx.win.Base()))) < rx.win.Size() {
		rx.back, rx.backTo, rx.backRsp = true, to, *rsp
	}
}

// TakenBack returns the response to a packet that TakeBack is about, nil to others.
func (p *PDC) TakenBack(psn wire.PSN) *wire.Rsp {
	if p.rx.back {
		return p.behindVoid(psn)
	}
	return nil
}

func (p *PDC) behindVoid(psn wire.PSN) *wire.Rsp {
	if psn.After(p.rx.backTo) {
		p.rx.back = false
		return nil
	}
	return &p.rx.backRsp
}

// findSyn finds or makes the PDC of a SYN packet (UE 3.5.8, S-PDC-05).
func (t *Table) findSyn(in *Arrival, h *wire.Req) *PDC {
	start := h.PSN.Add(-int(h.PSNOffset))
	p := t.lastSyn
	key := lifeKey{in.From.Addr(), h.SPDCID, start}
	if p == nil || p.life() != key {
		p = t.lives[key]
	}
	refuse := func(code wire.NackCode) *PDC {
		if in.Small {
			t.Stats.DropHeader++ // SYN and no room for any SES header
		}
		t.refuse(in, h, code)
		return nil
	}
	if p != nil {
		if p.who != in.Who && t.foreign(p, in.Who) {
			return nil
		}
		t.lastSyn = p
		return p
	}
	if h.SPDCID == 0 {
		t.Stats.DropHeader++
		return nil
	}
	secured := t.secured()
	if secured && in.Who == 0 {
		t.Stats.DropBinding++ // T8
		return nil
	}
	l, ok := t.quar.find(in.Now, key)
	if !ok && !secured && t.crowded(in.Now) && !t.knows(in) {
		// In a flood nearly every SYN packet ends here. Whatever else is wrong with it can be
		// said when there is room: nothing of this life was executed.
		return t.noRoom(in, h)
	}
	fep := t.fepKey(in.source(), h.SPDCID)
	other := t.latest[fep] // with another Start_PSN
	switch {
	case ok && !l.refused && l.who == in.Who:
		return refuse(wire.NackInvDPDCID) // a late packet of a life that ended
	case secured && other != nil:
		t.otherStart(in, h, start, other)
		return nil
	case !secured && (ok || other != nil):
		// This is another life with the same PDCID. Refused, its initiator will send the same
		// messages under another PDCID. So packets of this life must open no PDC later, when
		// the PDC or quarantine in their way is gone.
		if !t.quar.refuse(in.Now, t.cfg.Quarantine, key) {
			t.Stats.DropLimit++
			return refuse(wire.NackNoPDCAvail)
		}
		return refuse(wire.NackInvalidSyn)
	}
	if !isRequest(h.Next) {
		return refuse(wire.NackPDCHdrMismatch)
	}
	src := t.sources[in.From.Addr()]
	if src == nil {
		src = &sourceCount{}
	}
	switch {
	case !t.mayAccept() || src.pdcs >= t.cfg.MaxPDCsPerSource || t.quar.full(in.Now):
		t.Stats.DropLimit++
		if src.pdcs < t.cfg.MaxPDCsPerSource && !t.quar.full(in.Now) && (secured || t.knows(in)) {
			t.news.put(News{Kind: NewsLacking})
		}
		return refuse(wire.NackNoPDCAvail)
	case !t.knows(in) && !t.roomForStranger(in.Now, src):
		return t.noRoom(in, h)
	}
	if secured && !t.startAgreed(in, h, start) {
		return nil
	}
	id := t.newID(in.Now)
	if id == 0 {
		t.Stats.DropLimit++
		return refuse(wire.NackNoPDCAvail)
	}
	p = &PDC{t: t, id: id, remoteID: h.SPDCID, mode: h.Mode(), state: Established, start: start, remote: in.source(), who: in.Who}
	p.tx.init(start) // UE 3.5.8: the return direction starts at the same PSN
	p.expectReorder()
	t.add(in.Now, p)
	rx := t.getRx(p)
	rx.note(in.From, in.Path)
	t.lives[key], t.latest[fep] = p, p
	t.lastSyn = p
	t.sources[in.From.Addr()] = src
	src.pdcs++
	t.unknown++
	if secured {
		p.proven = true
	} else {
		src.pending++
		t.pending++
		p.pending = true
		t.pendQueue = append(t.pendQueue, pendRef{p, in.Now})
	}
	t.Stats.PDCAccepted++
	t.arm(p, in.Now+t.cfg.NewPDCTime)
	return p
}

// roomForStranger reports whether a source that the application never named may open a PDC.
// It makes room if it can.
func (t *Table) roomForStranger(now time.Duration, src *sourceCount) bool {
	if t.secured() {
		return t.unknown < t.cfg.MaxPDCsUnknown // nothing is pending: all are authenticated
	}
	return t.pending < t.cfg.MaxPending && src.pending < t.cfg.MaxPendingPerSource && t.unknown < t.cfg.MaxPDCsUnknown || t.evictPending(now)
}

// crowded reports whether the bounds of all strangers together leave no room and none can be
// made. It is roomForStranger without the bound of one source, for packets in clear.
func (t *Table) crowded(now time.Duration) bool {
	return (t.unknown >= t.cfg.MaxPDCsUnknown || t.pending >= t.cfg.MaxPending) && t.ripe(now) == nil
}

// noRoom drops the SYN packet of a stranger for which there is no room. Strangers are told so
// strangerNacks times in 100 ms at most: each NACK costs as much as receiving several packets, and
// who is not told tries again as late as who is told.
func (t *Table) noRoom(in *Arrival, h *wire.Req) *PDC {
	t.Stats.DropLimit++
	if in.Now-t.strangerAt >= 100*time.Millisecond {
		t.strangerAt, t.strangerLeft = in.Now, strangerNacks
	}
	if t.strangerLeft == 0 {
		t.Stats.DropRate++
		return nil
	}
	t.strangerLeft--
	t.refuse(in, h, wire.NackNoPDCAvail)
	return nil
}

// strangerNacks is arbitrary: strangers that the usual bounds refuse are few without a flood.
const strangerNacks = 100

// A sourceCount counts the PDCs of one source address.
type sourceCount struct {
	pdcs    int
	pending int
}

// A pendRef is a PENDING PDC, and when it was made or was last found in the middle of a message.
type pendRef struct {
	p  *PDC
	at time.Duration
}

// SetPeer tells the Table which peer the PDC of a target belongs to, and whether the
// application named that peer.
func (p *PDC) SetPeer(peer uint32, known bool) {
	p.Peer = peer
	if known && !p.known && !p.initiator {
		p.known = true
		p.t.unknown--
		p.notPending()
	}
}

// markProven notes that the source used our PDCID, so that it receives what we send.
func (p *PDC) markProven() {
	if p.proven || p.initiator {
		return
	}
	p.proven = true
	p.notPending()
	p.tell(NewsProven)
}

// Unproven reports whether the source may be forged: the application did not name it, and
// nothing shows that it receives what is sent to it.
func (p *PDC) Unproven() bool { return !p.proven && !p.known && !p.initiator }

// notPending removes a PDC from those that the PENDING bounds count.
func (p *PDC) notPending() {
	if !p.pending {
		return
	}
	p.pending = false
	p.t.pending--
	if s := p.t.sources[p.remote.Addr()]; s != nil {
		s.pending--
	}
	p.t.packPending()
}

// packPending removes from pendQueue the PDCs that are no longer pending, once they are
// many.
func (t *Table) packPending() {
	if n := len(t.pendQueue) - t.pendHead; n <= 64 || n <= 2*t.pending {
		return
	}
	q := t.pendQueue[:0]
	for _, r := range t.pendQueue[t.pendHead:] {
		if r.p.pending {
			q = append(q, r)
		}
	}
	clear(t.pendQueue[len(q):])
	t.pendQueue, t.pendHead = q, 0
}

// life names the life of a target's PDC.
func (p *PDC) life() lifeKey { return lifeKey{p.remote.Addr(), p.remoteID, p.start} }

// uncount removes the PDC of a target from the counts of its source.
func (t *Table) uncount(p *PDC) {
	delete(t.lives, p.life())
	delete(t.latest, t.fepKey(p.remote, p.remoteID))
	if !p.known {
		t.unknown--
	}
	s := t.sources[p.remote.Addr()]
	if s == nil {
		return
	}
	if p.pending {
		p.pending = false
		s.pending--
		t.pending--
		t.packPending()
	}
	s.pdcs--
	if s.pdcs == 0 {
		delete(t.sources, p.remote.Addr())
	}
}

// evictPending ends the oldest PDC whose source never proved itself and that holds no
// incomplete message (T1). An honest initiator proves itself by a PROBE one round trip
// after its SYN (becomeEstablished). So PDCs younger than NewPDCTime stay, and in a flood
// new sources that the application did not name wait that long.
func (t *Table) evictPending(now time.Duration) bool {
	p := t.ripe(now)
	if p != nil {
		t.remove(now, p, Reason{Why: WhyClosed})
	}
	return p != nil
}

// ripe returns the PDC that evictPending ends, nil if there is none. It is called for each SYN
// packet of a flood, so it never looks at a PDC twice within NewPDCTime: it removes those that are
// no longer pending from the queue, and puts those with an incomplete message at its end.
func (t *Table) ripe(now time.Duration) *PDC {
	for t.pendHead < len(t.pendQueue) {
		r := t.pendQueue[t.pendHead]
		if r.p.pending {
			if now-r.at < t.cfg.NewPDCTime {
				return nil
			}
			if !t.owner.InboundOpen(r.p) {
				return r.p
			}
			t.pendQueue = append(t.pendQueue, pendRef{r.p, now})
		}
		t.pendQueue[t.pendHead] = pendRef{}
		if t.pendHead++; t.pendHead >= 64 && 2*t.pendHead >= len(t.pendQueue) {
			n := copy(t.pendQueue, t.pendQueue[t.pendHead:])
			clear(t.pendQueue[n:])
			t.pendQueue, t.pendHead = t.pendQueue[:n], 0
		}
	}
	return nil
}

// unusedAt is when a PDC ends of which no packet was ever accepted (UE 3.5.8, PENDING). The
// PDC of an initiator is never PENDING, although control packets may give it an rx.
func (p *PDC) unusedAt() time.Duration {
	rx := p.rx
	if rx == nil || p.initiator || rx.max != p.start-1 || rx.early.n() != 0 {
		return never
	}
	return p.lastHeard + p.t.cfg.NewPDCTime
}

func (p *PDC) endUnused(now time.Duration) time.Duration {
	p.t.remove(now, p, Reason{Why: WhyClosed})
	return never
}

// messageAt is when a PDC ends whose initiator stopped in the middle of a message (F9,
// F25).
func (p *PDC) messageAt() time.Duration {
	if p.rx == nil || !p.t.owner.InboundOpen(p) && p.rx.early.n() == 0 {
		return never
	}
	return p.lastHeard + p.t.cfg.PeerTimeout
}

func (p *PDC) endSilent(now time.Duration) time.Duration {
	p.t.fail(now, p, Reason{Why: WhyTimeout})
	return never
}

// clearAt is when to run askClear: at every look at a PDC that stores a guaranteed
// response.
func (p *PDC) clearAt() time.Duration {
	if p.rx == nil || len(p.rx.stored) == 0 {
		return never
	}
	return 0
}

// askClear asks the initiator for a CLEAR from time to time, because one may be lost (T12),
// and sends the stored responses again. It ends the PDC when the peer is gone.
func (p *PDC) askClear(now time.Duration) time.Duration {
	t, rx := p.t, p.rx
	switch {
	case now-p.lastHeard >= t.cfg.PeerTimeout:
		return p.endSilent(now)
	case rx.clearAsk == 0:
		rx.clearWait = 4 * t.cfg.RTOInit
		rx.clearAsk = now + rx.clearWait
	case now >= rx.clearAsk && !p.proven && rx.asked:
		// T27: a source that never used our PDCID may be forged. It is asked once, and the
		// PDC ends when the peer counts as gone.
		rx.clearAsk = p.lastHeard + t.cfg.PeerTimeout
	case now >= rx.clearAsk:
		rx.asked = true
		rx.clearWait = min(2*rx.clearWait, t.cfg.RTOMax)
		rx.clearAsk = now + rx.clearWait
		t.sendCP(p, wire.CP{Ctl: wire.CtlClearReq, SPDCID: p.id, DPDCID: p.remoteID, Payload: uint32(rx.max)})
		// The response itself may be what was lost.
		for i := rx.head; i < len(rx.stored) && i < rx.head+16; i++ {
			if !rx.stored[i].due {
				rx.stored[i].due, rx.stored[i].late = true, true
				rx.due++
			}
		}
		p.oweAck()
	}
	return rx.clearAsk
}

// knows reports whether the source of a SYN is a peer of the application. In clear that is said by the port that
// the packet came from: any process of the host can name another one.
func (t *Table) knows(in *Arrival) bool {
	if t.secured() {
		return t.owner.Known(in.source())
	}
	return t.owner.Known(in.From)
}
