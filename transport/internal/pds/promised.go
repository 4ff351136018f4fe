package pds

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file deals with promised responses (S-CPL-04): NO_RESPONSE answers a packet, and the
// RESPONSE of its message comes later, in an ACK that names the packet again. It may be lost.
// So this side keeps CLEAR_PSN below such a packet, as long as that costs the peer little, and
// asks by ACK_REQ what became of it (S-CLR-06, S-CLR-07).

const (
	// promiseWait bounds the time between two questions about promised responses. It begins
	// with the RTO and doubles. A question names promiseAsks packets at most. Arbitrary.
	promiseWait = 2 * time.Second
	promiseAsks = 16
	// promiseSpan bounds how many PSNs CLEAR_PSN stays behind: clear_psn_offset has 16 bits.
	promiseSpan = 1 << 14
	// promiseDenials is the number of questions whose answer says that no RESPONSE will come
	// after which that is believed. One answer may be of an earlier packet.
	promiseDenials = 2
)

// A promise is a packet that was answered NO_RESPONSE, the latest one of its message.
type promise struct {
	psn     wire.PSN
	msg     uint32 // Piece.Msg
	asked   bool   // a question is not answered
	denials uint8  // questions in a row whose answer says that no RESPONSE will come
}

// promises are those of a PDC.
type promises struct {
	list []promise // by PSN; the owner may not expect some of them any more
	let  int       // so many at the front do not keep CLEAR_PSN back
	at   time.Duration
	wait time.Duration // until the next question after at
	next wire.PSN      // the next question begins with this packet
	ask  [promiseAsks]wire.PSN
}

// Promised notes that NO_RESPONSE answered a packet of a message. The owner calls it after
// ReceivePlain, which does not know the response.
func (p *PDC) Promised(now time.Duration, psn wire.PSN, msg uint32) {
	tx, t := &p.tx, p.t
	l := t.late[p]
	if l == nil {
		if t.late == nil {
			t.late = map[*PDC]*promises{}
		}
		l = &promises{wait: p.rto(), next: p.start}
		l.at = now + l.wait
		t.late[p], tx.late = l, true
		t.arm(p, l.at)
	}
	// The packets of a message are answered at about the same time.
	for i := len(l.list) - 1; i >= max(0, len(l.list)-promiseAsks); i-- {
		if o := &l.list[i]; o.msg == msg {
			if psn.Before(o.psn) {
				return
			}
			l.drop(i)
			break
		}
	}
	i := len(l.list)
	for i > 0 && psn.Before(l.list[i-1].psn) {
		i--
	}
	if i < l.let {
		l.let++
	}
	l.list = slices.Insert(l.list, i, promise{psn: psn, msg: msg})
}

func (l *promises) drop(i int) {
	l.list = slices.Delete(l.list, i, i+1)
	if i < l.let {
		l.let--
	}
}

// find returns the index of a packet, -1 if nothing is expected for it.
func (l *promises) find(p *PDC, psn wire.PSN) int {
	i, ok := slices.BinarySearchFunc(l.list, psn, func(o promise, psn wire.PSN) int { return int(o.psn.Sub(psn)) })
	if !ok || !p.t.owner.Expects(l.list[i].msg) {
		return -1
	}
	return i
}

// PromisedTo returns the message for which a response to the packet with that PSN is expected, after NO_RESPONSE. ok
// is false if there is none.
func (p *PDC) PromisedTo(psn wire.PSN) (msg uint32, ok bool) {
	if !p.tx.late {
		return 0, false
	}
	l := p.t.late[p]
	i := l.find(p, psn)
	if i < 0 {
		return 0, false
	}
	return l.list[i].msg, true
}

// forgetPromises forgets the promises of a PDC.
func (p *PDC) forgetPromises() {
	if p.tx.late {
		p.tx.late, p.tx.lateOwed = false, 0
		delete(p.t.late, p)
	}
}

// letGo lets CLEAR_PSN pass the promised responses so far: the peer needs room.
func (p *PDC) letGo() {
	if p.tx.late {
		l := p.t.late[p]
		l.let = len(l.list)
	}
}

// keptClear is CLEAR_PSN where responses are promised: below the first of them, or psn if the
// peer may need room. The peer may, if guaranteed responses behind the promised one fill half
// of its window.
func (p *PDC) keptClear(psn wire.PSN) wire.PSN {
	tx, l := &p.tx, p.t.late[p]
	for l.let < len(l.list) && !p.t.owner.Expects(l.list[l.let].msg) {
		l.drop(l.let)
	}
	if l.let == len(l.list) || l.list[l.let].psn.After(psn) {
		return psn
	}
	if 2*psn.Sub(tx.cack) >= tx.window || psn.Sub(l.list[l.let].psn) >= promiseSpan {
		l.let = len(l.list)
		return psn
	}
	return l.list[l.let].psn - 1
}

// promiseAt is when the peer is asked next about promised responses.
func (p *PDC) promiseAt() time.Duration {
	if !p.tx.late || p.state == CloseAckWait {
		return never
	}
	return p.t.late[p].at
}

// askPromised begins a question about promised responses that did not come.
func (p *PDC) askPromised(now time.Duration) time.Duration {
	tx, l := &p.tx, p.t.late[p]
	keep, let := l.list[:0], 0
	for i, o := range l.list {
		if p.t.owner.Expects(o.msg) {
			if keep = append(keep, o); i < l.let {
				let++
			}
		}
	}
	if l.list, l.let = keep, let; len(keep) == 0 {
		p.forgetPromises()
		return never
	}
	from, _ := slices.BinarySearchFunc(l.list, l.next, func(o promise, psn wire.PSN) int { return int(o.psn.Sub(psn)) })
	n := min(promiseAsks, len(l.list))
	for i := range n {
		o := &l.list[(from+i)%len(l.list)]
		o.asked = true
		l.ask[n-1-i], l.next = o.psn, o.psn+1
	}
	tx.lateOwed = uint8(n)
	p.oweAck()
	l.at = now + l.wait
	l.wait = min(2*l.wait, promiseWait)
	return l.at
}

// nextPromised removes the first packet of the question. ok is false if there is none that is
// still expected.
func (p *PDC) nextPromised() (psn wire.PSN, ok bool) {
	tx := &p.tx
	for tx.lateOwed > 0 {
		tx.lateOwed--
		l := p.t.late[p]
		if psn = l.ask[tx.lateOwed]; l.find(p, psn) >= 0 {
			return psn, true
		}
	}
	return 0, false
}

// promiseAcked processes an ACK with a response that names a finished packet.
func (p *PDC) promiseAcked(now time.Duration, psn wire.PSN, rsp *wire.Rsp) {
	l := p.t.late[p]
	i := l.find(p, psn)
	if i < 0 {
		return
	}
	o := &l.list[i]
	switch rsp.Opcode {
	case wire.RspResponse:
		if i > 0 {
			// Those before it may have been lost: ask soon, the oldest first.
			l.wait, l.next = p.rto(), l.list[0].psn
			if at := now + l.wait; at < l.at {
				l.at = at
				p.t.arm(p, at)
			}
		}
	case wire.RspDefault:
		p.denied(i, Reason{})
	default:
		o.asked, o.denials = false, 0
	}
}

// promiseNacked processes a NACK that names a finished packet. It returns false if that does
// not answer a question.
func (p *PDC) promiseNacked(now time.Duration, n *wire.Nack) bool {
	l := p.t.late[p]
	i := l.find(p, n.PSN)
	if i < 0 {
		return false
	}
	switch n.Code {
	case wire.NackRcvdSESProcg:
		l.list[i].asked, l.list[i].denials = false, 0
	case wire.NackPktNotRcvd, wire.NackGtdRespUnavail:
		p.denied(i, Reason{Why: WhyNack, Nack: n.Code})
	case wire.NackInvDPDCID:
		// The peer does not know the PDC any more (F12).
		if p.confirmFatal(now, n.Code) {
			p.t.fail(now, p, Reason{Why: WhyNack, Nack: n.Code})
		}
		return true
	default:
		return false
	}
	p.heard(now)
	return true
}

// denied notes that the answer to a question says that the RESPONSE will not come. The default
// response says that there is none but success.
func (p *PDC) denied(i int, why Reason) {
	l := p.t.late[p]
	o := &l.list[i]
	if !o.asked {
		return
	}
	o.asked = false
	if o.denials++; o.denials < promiseDenials {
		return
	}
	p.t.news.put(News{Kind: NewsUnkept, PDC: p, Msg: o.msg, Why: why})
	l.drop(i)
}
