package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file carries receiver credit, RCCC (UE 3.6), between its two ends, which the owner has:
// the source in the CCC of the PDC, the destination in a scheduler of its own. Requests carry the
// credit target of their source, a CREDIT_REQ carries it when nothing may leave. A CREDIT brings
// the credit. Neither has a PSN: both counters are cumulative, so the next one makes up for one
// that is lost.

// Credits is what the CCC of a source has beyond a CCC if it uses credit.
type Credits interface {
	// On reports whether it does: its destination has not refused.
	On() bool
	// Target is the ccc_id and the credit_target of a request that leaves now.
	Target() (id uint8, target uint32)
}

// reqLen is the length of the PDS header of requests.
func (t *Table) reqLen() int {
	if t.cfg.Credit {
		return wire.ReqCCLen
	}
	return wire.ReqLen
}

// A credit is what a PDC has more with Config.Credit. It is apart, so that a PDC without it is no
// longer.
type credit struct {
	of    Credits // the CCC, nil if it uses no credit
	said  bool    // a CREDIT or CREDIT_REQ was sent
	lacks bool    // the owner's: packets wait for credit
}

// addCredit makes the credit of a PDC that is new or has a new CCC.
func (t *Table) addCredit(p *PDC) {
	for int(p.Slot) >= len(t.credits) {
		t.credits = append(t.credits, credit{})
	}
	c := &t.credits[p.Slot]
	*c = credit{}
	c.of, _ = p.ccc.(Credits)
}

// credited reports whether the CCC of a PDC uses credit.
func (p *PDC) credited() bool {
	if !p.t.cfg.Credit {
		return false
	}
	c := p.t.credits[p.Slot].of
	return c != nil && c.On()
}

// LacksCredit reports what SetLacksCredit set: that packets of the PDC wait for credit. It belongs to the
// owner.
func (p *PDC) LacksCredit() bool { return p.t.credits[p.Slot].lacks }

// SetLacksCredit sets what LacksCredit reports.
func (p *PDC) SetLacksCredit(on bool) { p.t.credits[p.Slot].lacks = on }

// putTarget gives a request its credit target. A request of a source without credit asks for
// none, and has the same header, so that its length does not depend on what the peer said.
func (p *PDC) putTarget(h *wire.Req) {
	if h.Type = wire.TypeRUDCCReq; p.mode == wire.ROD {
		h.Type = wire.TypeRODCCReq
	}
	if h.CCCID, h.CreditTarget = 0, 0; p.credited() {
		h.CCCID, h.CreditTarget = p.t.credits[p.Slot].of.Target()
	}
}

// Announce gives a PDC that this side is about to use for the first time a NOOP as its first
// packet. A source with credit sends little before it has some, and where many begin at once even that
// finds no room. A NOOP is small, and of the class of control packets: it opens the PDC all the
// same, and refusals and questions then have one.
func (p *PDC) Announce(now time.Duration) {
	if p.state == Creating && p.tx.nxt == p.start && p.credited() {
		p.pushCtl(now, wire.CtlNoop)
		p.tx.at(p.start).cause = CauseOpen
	}
}

// AskCredit sends a CREDIT_REQ. It returns false if the PDCID of the peer is not known yet.
func (p *PDC) AskCredit() bool {
	if p.remoteID == 0 || !p.credited() {
		return false
	}
	id, target := p.t.credits[p.Slot].of.Target()
	p.ctlOfCredit(wire.CP{Ctl: wire.CtlCreditReq, Payload: wire.CPCreditReq{CCCID: id, CreditTarget: target}.Encode()})
	return true
}

// GiveCredit sends a CREDIT.
func (p *PDC) GiveCredit(credit uint32) {
	if p.remoteID != 0 {
		p.ctlOfCredit(wire.CP{Ctl: wire.CtlCredit, Payload: wire.CPCredit{Credit: credit}.Encode()})
	}
}

// ctlOfCredit sends a control packet by the path that the peer was heard by, as ACKs leave.
func (p *PDC) ctlOfCredit(c wire.CP) {
	p.t.credits[p.Slot].said = true
	c.SPDCID, c.DPDCID = p.id, p.remoteID
	remote, path := p.remote, uint32(p.tx.heardBy)
	if p.rx != nil {
		remote, path = p.rx.remote, p.rx.path
	}
	p.t.Stats.CPTx[c.Ctl]++
	var a [32]byte
	p.t.pushLoose(remote, path, c.Append(a[:0]))
}

// RefuseCredit answers a CREDIT or CREDIT_REQ of a peer that is to do without (NACK 19).
func (p *PDC) RefuseCredit(now time.Duration) {
	p.t.sendNack(now, p.remote, uint32(p.tx.heardBy), wire.Nack{Type: wire.TypeNack, Code: wire.NackUnexpEvent, SPDCID: p.id, DPDCID: p.remoteID})
}

// creditCP processes a CREDIT or a CREDIT_REQ.
func (p *PDC) creditCP(now time.Duration, c *wire.CP) {
	p.strikes = 0
	p.heard(now)
	if c.Ctl == wire.CtlCredit {
		p.t.news.put(News{Kind: NewsCredit, PDC: p, Msg: wire.ParseCPCredit(c.Payload).Credit})
		return
	}
	if !p.proven {
		p.markProven()
	}
	p.t.news.put(News{Kind: NewsCreditAsked, PDC: p, Msg: c.Payload})
}

// creditRefused processes a NACK 19 that says that the peer does not know CREDIT or CREDIT_REQ,
// which have no PSN. It reports whether the NACK is one.
func (p *PDC) creditRefused(now time.Duration, n *wire.Nack) bool {
	if !p.t.cfg.Credit || !p.t.credits[p.Slot].said || n.PSN != 0 || !p.proves(n) {
		return false
	}
	p.heard(now)
	p.t.news.put(News{Kind: NewsCreditRefused, PDC: p})
	return true
}
