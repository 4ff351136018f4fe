package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Bounds of the memory for a capture. Packets beyond them are printed, but belong to no
// PDC. If the ACKs of a PDC were not captured, its oldest packets are forgotten.
const (
	maxPDCs  = 1 << 16
	maxSent  = 1 << 15 // packets of one direction that nothing answered
	maxAlike = 8       // PDCs of one PDCID at one address that are told apart
)

// An end is one side of a PDC.
type end struct {
	addr netip.AddrPort
	id   uint16 // PDCID, 0 while no packet told it
}

func (e end) String() string {
	if e.id == 0 {
		return address(e.addr) + "/?"
	}
	return fmt.Sprintf("%s/%d", address(e.addr), e.id)
}

// A pdc is a packet delivery context as the capture shows it.
type pdc struct {
	n     int    // from 1, in the order of appearance
	ends  [2]end // initiator, target
	mode  wire.Mode
	syn   bool // its opening was captured: Start_PSN is known, and who opened it
	began time.Time
	last  time.Time
	// dir has what each end sent, and what the other answered.
	dir [2]direction
	// ended says how it ended; "" if it did not.
	ended string
	// newStart is the first PSN that a NACK asked for instead.
	newStart    wire.PSN
	hasNewStart bool
}

// A direction has the packets with a PSN that one end sent, and the answers of the other.
type direction struct {
	started bool
	base    wire.PSN // first PSN, or the first seen
	una     wire.PSN // all before were answered, or forgotten
	nxt     wire.PSN
	// sent are the packets that no CACK has passed. open is how many of them are not
	// answered.
	sent    map[wire.PSN]*sent
	open    int
	closing wire.PSN // PSN of the CLOSE
	hasEnd  bool

	packets, resends, acks, nacks, ctls uint64
	bytes                               uint64 // of messages, without resends

	heard   uint64 // packets of this end, of all types
	first   time.Time
	lastAck time.Time // that something of this direction was acknowledged
	hasCACK bool
	cack    wire.PSN
	window  int // MP_RANGE, 0: no limit
	synced  bool

	clear     wire.PSN // highest CLEAR_PSN
	hasClear  bool
	wantClear wire.PSN // the oldest PSN whose CLEAR the other end waits for
	wantAt    time.Time
	wants     int // how often it asked, 0: it does not wait

	refusal  wire.NackCode // of the last NACK
	refused  wire.PSN
	refusals int // of that code, without progress in between
	refuseAt time.Time

	rtts         int
	rttMin, rtt  time.Duration // least, smoothed
	probes       int           // since the last ACK
	lastProgress time.Time
}

// A sent is a packet with a PSN.
type sent struct {
	first, last time.Time
	times       int // seen
	msg         uint16
	hasMsg      bool
	syn         bool
	retx        bool // one of them said that it is a resend
	arrived     bool // a SACK said so
	answered    bool
	op          *operation // that it is a packet of, if operations are followed
}

// A note says what a packet is in its PDC.
type note struct {
	pdc  *pdc
	from int // 0: the initiator sent it
	// rel is its PSN relative to the first one of its direction. For ACK and NACK it is
	// that of the packet they name.
	rel    int32
	hasRel bool
	cack   int32 // for an ACK, from the first PSN on
	times  int   // how often the PSN was sent, this time included
	copied bool  // it is there a second time, and not as a resend
	unseen bool  // it says that it is a resend; the first was not captured
	after  time.Duration
	msgs   []uint16
	// sent is the packet itself if it has a PSN. For ACK and NACK it is the one they name, if that
	// is not forgotten.
	sent *sent
}

// An endKey finds a PDC by one PDCID, a pairKey by both.
type endKey struct {
	ip netip.Addr
	id uint16
}

type pairKey struct {
	src endKey
	dst endKey
}

// A tracker finds the PDC of each packet.
type tracker struct {
	pdcs  []*pdc
	pairs map[pairKey]*pdc
	ends  map[endKey][]*pdc // newest last
	lost  uint64            // packets of PDCs beyond maxPDCs
}

func newTracker() *tracker {
	return &tracker{pairs: map[pairKey]*pdc{}, ends: map[endKey][]*pdc{}}
}

// packet handles the next packet. If it belongs to no PDC, the note has the zero pdc.
func (t *tracker) packet(k *packet) note {
	m := k.msg
	if m == nil || m.typ == 0 || m.req == nil && m.ack == nil && m.nack == nil && m.cp == nil {
		return note{}
	}
	if k.tail == trailerBad || k.tail == trailerICVBad {
		return note{} // the other end drops it
	}
	if m.nack != nil && m.nack.Flags&wire.NackFlagNT != 0 {
		return note{}
	}
	p, from := t.find(k)
	if p == nil {
		return note{}
	}
	p.last = k.at
	if k.dst.Port() == wire.Port {
		// With Standard encapsulation the port that an end sends from is an entropy value, and
		// that which it is sent to is its own.
		p.ends[1-from].addr = k.dst
	}
	if k.tail == trailerTrimmed {
		return note{pdc: p, from: from} // the other end reads which PSN is missing
	}
	p.dir[from].heard++
	n := note{pdc: p, from: from}
	switch {
	case m.req != nil:
		p.request(k, &n)
	case m.ack != nil:
		p.ack(k, &n)
	case m.nack != nil:
		p.nack(k, &n)
	case m.cp != nil:
		p.control(k, &n)
	}
	return n
}

// find returns the PDC of a packet and which end sent it. It returns nil if there is none
// and the packet does not show a new one.
func (t *tracker) find(k *packet) (*pdc, int) {
	m := k.msg
	s, d := m.ids()
	src, dst := endKey{k.src.Addr(), s}, endKey{k.dst.Addr(), d}
	if m.req != nil && m.req.Flags&wire.FlagSYN != 0 {
		return t.syn(k, src), 0
	}
	if s != 0 && d != 0 {
		if p := t.pairs[pairKey{src, dst}]; p != nil {
			return p, p.side(src, k.src, k.dst)
		}
	}
	// An answer to an end whose peer's PDCID is not known yet, or that names none.
	if d != 0 {
		if p := t.among(dst, k.dst, k.src.Addr(), s == 0); p != nil {
			side := p.side(dst, k.dst, k.src)
			if s != 0 {
				p.ends[1-side].id = s
				t.bind(p)
			}
			return p, 1 - side
		}
	}
	if s != 0 && d != 0 {
		if p := t.among(src, k.src, k.dst.Addr(), false); p != nil {
			side := p.side(src, k.src, k.dst)
			p.ends[1-side].id = d
			t.bind(p)
			return p, side
		}
	}
	if m.nack != nil || s == 0 || d == 0 {
		return nil, 0
	}
	// The capture began later than the PDC. Requests mostly come from its initiator.
	from := 0
	if m.ack != nil || m.cp != nil && m.cp.Ctl == wire.CtlCloseReq {
		from = 1
	}
	p := t.add(k)
	if p == nil {
		return nil, 0
	}
	p.ends[from], p.ends[1-from] = end{k.src, s}, end{k.dst, d}
	t.bind(p)
	t.index(p, 0)
	t.index(p, 1)
	return p, from
}

// side returns which end of the PDC e is. e used the port at to talk to the port peer. Both
// ends may be on one host and have the same PDCID.
func (p *pdc) side(e endKey, at, peer netip.AddrPort) int {
	var is [2]bool
	for i := range is {
		is[i] = p.ends[i].id == e.id && p.ends[i].addr.Addr() == e.ip
	}
	switch {
	case is[0] != is[1]:
		if is[1] {
			return 1
		}
	case at != p.ends[0].addr && (at == p.ends[1].addr || peer == p.ends[0].addr):
		return 1
	}
	return 0
}

// among returns the newest PDC that has e as one end, and at the other end an address but
// no PDCID yet (with any: also with one). A PDC at the same port is preferred.
func (t *tracker) among(e endKey, at netip.AddrPort, peer netip.Addr, any bool) (found *pdc) {
	for _, p := range slices.Backward(t.ends[e]) {
		s := p.side(e, at, netip.AddrPort{})
		if p.ends[s].id != e.id || p.ends[1-s].addr.Addr() != peer || p.ends[1-s].id != 0 && !any {
			continue
		}
		if p.ends[s].addr == at {
			return p
		}
		if found == nil {
			found = p
		}
	}
	return found
}

// syn returns the PDC that a SYN opens, or belongs to.
func (t *tracker) syn(k *packet, src endKey) *pdc {
	h := k.msg.req
	start := h.PSN.Add(-int(h.PSNOffset))
	for _, p := range slices.Backward(t.ends[src]) {
		// The source port is entropy (S-PDC-04).
		if p.ends[0].id != h.SPDCID || p.ends[0].addr.Addr() != k.src.Addr() || p.ends[1].addr.Addr() != k.dst.Addr() {
			continue
		}
		switch d := &p.dir[0]; {
		case d.base == start && p.syn:
			return p
		case p.hasNewStart && p.newStart == start && p.ended == "":
			// UE 3.5.8: everything is sent again with other numbers.
			p.hasNewStart = false
			p.begin(start)
			return p
		}
		break // another life under the same PDCID
	}
	p := t.add(k)
	if p == nil {
		return nil
	}
	p.syn = true
	p.ends = [2]end{{k.src, h.SPDCID}, {k.dst, 0}}
	p.mode = h.Mode()
	p.begin(start)
	t.index(p, 0)
	return p
}

// begin sets the first PSN of both directions.
func (p *pdc) begin(start wire.PSN) {
	for i := range p.dir {
		d := &p.dir[i]
		d.base, d.una, d.nxt = start, start, start
		d.started, d.synced = true, true
		for _, s := range d.sent {
			if o := s.op; o != nil && !o.over && o.packets > 0 {
				o.again()
			}
		}
		clear(d.sent)
		d.open = 0
	}
}

func (t *tracker) add(k *packet) *pdc {
	if len(t.pdcs) == maxPDCs {
		t.lost++
		return nil
	}
	p := &pdc{n: len(t.pdcs) + 1, began: k.at}
	for i := range p.dir {
		p.dir[i].sent = map[wire.PSN]*sent{}
		p.dir[i].window = 128 // until an ACK_CC says otherwise (S-WIN-02)
	}
	t.pdcs = append(t.pdcs, p)
	return p
}

// index makes a PDC findable by its end i.
func (t *tracker) index(p *pdc, i int) {
	e := endKey{p.ends[i].addr.Addr(), p.ends[i].id}
	if e.id == 0 {
		return
	}
	l := t.ends[e]
	if len(l) == maxAlike {
		l = slices.Delete(l, 0, 1)
	}
	t.ends[e] = append(l, p)
}

// bind makes a PDC findable by both PDCIDs, once both are known.
func (t *tracker) bind(p *pdc) {
	a, b := endKey{p.ends[0].addr.Addr(), p.ends[0].id}, endKey{p.ends[1].addr.Addr(), p.ends[1].id}
	t.pairs[pairKey{a, b}], t.pairs[pairKey{b, a}] = p, p
	if p.syn {
		t.index(p, 1)
	}
}

// request handles a packet with a PSN.
func (p *pdc) request(k *packet, n *note) {
	h := k.msg.req
	if p.mode == 0 {
		p.mode = h.Mode()
	}
	d := &p.dir[n.from]
	d.cleared(h.PSN.Add(int(h.ClearOff)))
	s := d.put(h.PSN, k.at, h.Flags&wire.FlagRETX != 0, n)
	n.sent = s
	s.syn = h.Flags&wire.FlagSYN != 0
	if s.times == 1 && !n.copied {
		d.bytes += uint64(k.data())
		if h.Flags&wire.FlagRETX != 0 {
			d.resends++
			n.unseen = true
		}
	}
	s.retx = s.retx || h.Flags&wire.FlagRETX != 0
	if id, ok := k.msg.msgID(); ok {
		s.msg, s.hasMsg = id, true
		n.msgs = append(n.msgs, id)
	}
}

// put notes that a PSN is sent; retx says that its flag marks it as sent before. A copy
// without the flag was made by the network, or by the capture, which may see a packet in
// two places.
func (d *direction) put(psn wire.PSN, at time.Time, retx bool, n *note) *sent {
	if !d.started {
		d.started = true
		d.base, d.una, d.nxt = psn, psn, psn
	}
	if psn.Before(d.base) && !d.synced {
		d.base = psn // the capture began in the middle, with a later one
	}
	if d.first.IsZero() {
		d.first = at
	}
	d.packets++
	n.rel, n.hasRel = psn.Sub(d.base), true
	s := d.sent[psn]
	if s == nil {
		s = &sent{first: at}
		if psn.Before(d.una) && (d.hasCACK || d.synced) {
			s.times, s.last = 1, at // answered long ago, and here again
		} else {
			if psn.Before(d.una) {
				d.una = psn
			}
			d.sent[psn] = s
			d.open++
			d.forget()
		}
	}
	if s.times > 0 && !retx {
		d.packets--
		n.times, n.after, n.copied = s.times, at.Sub(s.last), true
		return s
	}
	if s.times > 0 {
		d.resends++
		n.after = at.Sub(s.last)
	}
	s.times++
	s.last = at
	n.times = s.times
	if !psn.Before(d.nxt) {
		d.nxt = psn + 1
	}
	return s
}

// forget drops the oldest packets of a PDC whose ACKs were not captured.
func (d *direction) forget() {
	for left := 2 * maxSent; len(d.sent) > maxSent && d.una.Before(d.nxt) && left > 0; left-- {
		d.drop(d.una)
		d.una++
	}
	if len(d.sent) > maxSent { // numbers far apart: no honest sender
		clear(d.sent)
		d.open = 0
	}
}

// passed handles a CACK: all PSNs up to it are answered. It passes each packet on, oldest
// first; in any order if the numbers are farther apart than an honest sender's.
func (d *direction) passed(cack wire.PSN, each func(*sent)) {
	if cack.Sub(d.una) > 2*maxSent {
		for psn, s := range d.sent {
			if !psn.After(cack) {
				each(s)
				d.drop(psn)
			}
		}
		if cack.Before(d.nxt) {
			d.una = cack + 1
		} else {
			d.una = d.nxt
		}
		return
	}
	for ; d.una.Before(d.nxt) && !d.una.After(cack); d.una++ {
		if s := d.sent[d.una]; s != nil {
			each(s)
			d.drop(d.una)
		}
	}
}

// drop forgets a packet.
func (d *direction) drop(psn wire.PSN) {
	if s := d.sent[psn]; s != nil {
		d.answer(s)
		delete(d.sent, psn)
	}
}

// answer notes that a packet is answered, and reports whether it was not before.
func (d *direction) answer(s *sent) bool {
	if s.answered {
		return false
	}
	s.answered = true
	d.open--
	if o := s.op; o != nil && !o.over {
		o.open--
		o.list.touched = append(o.list.touched, o)
	}
	return true
}

// msgOf returns the message of a packet that was sent.
func (d *direction) msgOf(psn wire.PSN) (uint16, bool) {
	if s := d.sent[psn]; s != nil {
		return s.msg, s.hasMsg
	}
	return 0, false
}

// cleared handles a CLEAR_PSN.
func (d *direction) cleared(psn wire.PSN) {
	if d.hasClear && !psn.After(d.clear) {
		return
	}
	d.hasClear, d.clear = true, psn
	if d.wants > 0 && !d.wantClear.After(psn) {
		d.wants = 0
	}
}

// ack handles an ACK. It concerns packets of the other end.
func (p *pdc) ack(k *packet, n *note) {
	a := k.msg.ack
	d := &p.dir[1-n.from]
	d.acks++
	d.probes = 0
	if !d.started {
		d.started = true
		d.base = a.CACK + 1
		d.una, d.nxt = d.base, d.base
	}
	n.cack = a.CACK.Sub(d.base)
	if id, ok := k.msg.msgID(); ok && k.msg.rsp != nil {
		n.msgs = append(n.msgs, id)
	}
	progress := false
	if a.Flags&wire.AckFlagP == 0 {
		psn := a.AckPSN()
		n.rel, n.hasRel = psn.Sub(d.base), true
		if id, ok := d.msgOf(psn); ok && !slices.Contains(n.msgs, id) {
			n.msgs = append(n.msgs, id)
		}
		n.sent = d.sent[psn]
		if s := d.sent[psn]; s != nil && d.answer(s) {
			if s.times == 1 && !s.retx && a.Flags&wire.AckFlagRETX == 0 {
				d.measured(k.at.Sub(s.first))
			}
			progress = true
		}
		if a.Req == wire.ReqClear && (!d.hasClear || psn.After(d.clear)) {
			if d.wants == 0 || psn.Before(d.wantClear) {
				d.wantClear, d.wantAt, d.wants = psn, k.at, 0
			}
			if d.wantClear == psn {
				d.wants++
			}
		}
		if d.hasEnd && psn == d.closing {
			p.ended = "closed"
		}
	}
	// A CACK far ahead of all packets seen means that little of the PDC was captured.
	if ahead := a.CACK.Sub(d.nxt); ahead >= 0 && ahead < 1<<20 && len(d.sent) == 0 {
		d.una, d.nxt = a.CACK+1, a.CACK+1
	}
	d.passed(a.CACK, func(s *sent) {
		progress = true
		if s.hasMsg && !s.answered && !slices.Contains(n.msgs, s.msg) && len(n.msgs) < maxMsgs {
			n.msgs = append(n.msgs, s.msg)
		}
	})
	if !d.hasCACK || a.CACK.After(d.cack) {
		d.hasCACK, d.cack = true, a.CACK
		progress = true
		if a.Type != wire.TypeAck {
			d.window = 128 * int(a.MPR)
		}
		if d.wants > 0 && !d.wantClear.After(a.CACK) {
			d.wants = 0 // it was cleared: the CLEAR was not captured
		}
	}
	if a.Type != wire.TypeAck {
		base := a.CACK.Add(int(a.SACKOff))
		for i := range 64 {
			if a.SACK>>uint(i)&1 == 0 {
				continue
			}
			if s := d.sent[base.Add(i)]; s != nil && !s.arrived {
				s.arrived = true
				progress = progress || !s.answered
			}
		}
	}
	d.lastAck = k.at
	if progress {
		d.lastProgress = k.at
		d.refusals = 0
	}
}

// maxMsgs bounds the messages that one ACK is taken to acknowledge.
const maxMsgs = 64

// measured adds a round trip.
func (d *direction) measured(rtt time.Duration) {
	if rtt < 0 {
		return // a capture of several interfaces need not be in order
	}
	if d.rtts++; d.rtts == 1 {
		d.rttMin, d.rtt = rtt, rtt
		return
	}
	d.rttMin = min(d.rttMin, rtt)
	d.rtt += (rtt - d.rtt) / 8
}

// nack handles a NACK.
func (p *pdc) nack(k *packet, n *note) {
	h := k.msg.nack
	d := &p.dir[1-n.from]
	d.nacks++
	if d.started {
		n.rel, n.hasRel = h.PSN.Sub(d.base), true
	}
	n.sent = d.sent[h.PSN]
	if id, ok := d.msgOf(h.PSN); ok {
		n.msgs = append(n.msgs, id)
	}
	if d.refusal != h.Code {
		d.refusals = 0
	}
	d.refusal, d.refused, d.refuseAt = h.Code, h.PSN, k.at
	d.refusals++
	if h.Code == wire.NackNewStartPSN {
		p.newStart, p.hasNewStart = wire.PSN(h.Payload), true
	}
	if h.Code.Class() == wire.NackFatal {
		switch {
		case h.Code == wire.NackInvDPDCID && d.hasEnd:
			p.ended = "closed"
		case p.ended == "":
			p.ended = "NACK " + h.Code.String()
		}
	}
}

// control handles a control packet.
func (p *pdc) control(k *packet, n *note) {
	c := k.msg.cp
	d := &p.dir[n.from]
	d.ctls++
	if psn, ok := k.msg.psn(); ok {
		s := d.put(psn, k.at, c.Flags&wire.FlagRETX != 0, n)
		s.retx = s.retx || c.Flags&wire.FlagRETX != 0
		if !n.copied {
			d.packets-- // a control packet, not one of a message
		}
		if c.Ctl == wire.CtlClose {
			d.closing, d.hasEnd = psn, true
		}
		return
	}
	about := func(d *direction, psn wire.PSN) {
		if id, ok := d.msgOf(psn); ok {
			n.msgs = append(n.msgs, id)
		}
	}
	switch c.Ctl {
	case wire.CtlClear:
		about(d, wire.PSN(c.Payload))
		d.cleared(wire.PSN(c.Payload))
		n.rel, n.hasRel = wire.PSN(c.Payload).Sub(d.base), d.started
	case wire.CtlProbe:
		d.probes++
		n.rel, n.hasRel = wire.PSN(c.Payload).Sub(d.base), d.started
	case wire.CtlAckReq:
		d.probes++
		n.rel, n.hasRel = c.PSN.Sub(d.base), d.started
		about(d, c.PSN)
	case wire.CtlClearReq:
		// The packet to be cleared is the other end's.
		o := &p.dir[1-n.from]
		about(o, wire.PSN(c.Payload))
		if psn := wire.PSN(c.Payload); o.started {
			n.rel, n.hasRel = psn.Sub(o.base), true
			if !o.hasClear || psn.After(o.clear) {
				if o.wants == 0 || psn.Before(o.wantClear) {
					o.wantClear, o.wantAt, o.wants = psn, k.at, 0
				}
				if o.wantClear == psn {
					o.wants++
				}
			}
		}
	}
}
