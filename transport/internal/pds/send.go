package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// txDir is one direction's sending side, by cache lines like a PDC.
type txDir struct {
	ring     []txPkt // from una on; one, unless more is outstanding
	una      wire.PSN
	nxt      wire.PSN
	cack     wire.PSN // highest CACK received
	window   int32    // PSNs the peer takes beyond cack
	flight   int32
	lost     int32
	lostHint wire.PSN // no lost packet is below it
	cleared  wire.PSN // the highest CLEAR_PSN sent
	seq      uint32   // transmissions so far
	mprAt    wire.PSN

	one      [1]txPkt      // the ring of a PDC that has one packet outstanding at most
	progress time.Duration // last send with nothing in flight or last ACK that told something new

	owedSince time.Duration // when outstanding became non-zero
	lastSend  time.Duration
	minRTT    time.Duration // least RTT of all
	rtt       time.Duration // smoothed, of what newly arrived, with the peer's ACK delay and pauses
	topSeq    uint32        // highest transmission number known to have arrived
	sureSeq   uint32        // the same without those of which an earlier transmission may have arrived
	pastSeq   uint32        // sureSeq before the newest ACK
	ackOrder  uint32        // rcvd_bytes of the newest ACK: the order in which the peer made them; 0: none yet
	echoes    bool          // the peer echoes RETX
	backoff   uint8         // RTO doublings
	rtos      uint8         // RTOs since the last progress, saturating
	probes    uint8         // tail-loss probes since the last progress
	probeOwed bool
	askOwed   bool   // ACK_REQ for una
	clearOwed bool   // the peer waits for a CLEAR
	greet     bool   // the first packet that names the target's PDCID is due
	wantAR    bool   // the congestion context wants an ACK of the newest packet
	rough     bool   // one of the four times that follow may not be 0
	burst     uint8  // PROBEs of the burst that is under way, probeID the last of them
	patience  uint8  // how many times the path was found to reorder more than assumed
	reorder   uint32 // transmissions that may overtake a packet before it is taken for lost

	holeAt     time.Duration // since when a hole waits for the reordering time
	waitFor    time.Duration // current back-off of refused packets
	rnrSince   time.Duration // since when the target is not ready (NACK 09)
	shortSince time.Duration // since when the target is short of something else, or refuses a control packet
	waiting    int32
	arrived    int32
	shortCode  wire.NackCode
	ringHint   uint8 // length of the ring to begin with
	probeID    uint16
	probeSeq   uint32

	waitUntil  time.Duration
	probeHeard time.Duration
	probeAt    time.Duration
	probeFrom  wire.PSN // what the next PROBE asks for; una if that is later
	shutAt     wire.PSN // CACK since shutSince
	shutSince  time.Duration
	rnrAt      time.Duration // the last NACK 09
}

func (tx *txDir) init(start wire.PSN) {
	tx.ring = tx.one[:]
	tx.una, tx.nxt = start, start
	tx.cack, tx.cleared = start-1, start-1
	tx.lostHint = start
	tx.mprAt = start - 2 // before any CACK
	tx.window = 128      // until an ACK_CC says otherwise (S-WIN-02)
	tx.reorder = minReorder
}

const (
	// minReorder is how many later transmissions must have arrived before an
	// earlier one is taken for lost: TCP's three. It grows with what the path
	// shows (see ack.go) up to maxReorder.
	minReorder = 3
	maxReorder = 1024
	// maxPatience bounds the reordering time: (1 + 15)/4 round trips.
	maxPatience = 15
	// maxRange is how many PSNs a PDC uses before another takes its place, if
	// Config.MaxRange does not say so. A message that has begun then has at most
	// 2²² packets more, so no PDC comes near 2³¹, which it must not reach: every
	// comparison with Start_PSN holds (UE 3.5.8, Limit_PSN_Range).
	maxRange = 1 << 30
	// minRing is the length of the smallest transmit ring but tx.one, in packets;
	// maxRingHint bounds the one that a PDC begins with because it needed it
	// before; maxRingKept packets of 56 bytes, 1.8 MiB, are kept for the next
	// PDC that sends, so that a change of peers allocates nothing.
	minRing     = 4
	maxRingHint = 64
	maxRingKept = 32 << 10
	// tailProbes is how often a silent tail is probed before the RTO, dataProbe
	// which of them sends data.
	tailProbes = 6
	dataProbe  = 4
	// soonPart is the part of the window that may wait for room for all of it,
	// soonRTT the round trip from which nothing does. Arbitrary.
	soonPart = 4
	soonRTT  = time.Millisecond
	// maxBurst is how many PROBEs go at once; the peer keeps as many.
	maxBurst = 8
	// bigRTOs is how many RTOs full-size packets may see while probes are
	// answered before the path is taken not to carry them (F7): with 30 % loss
	// each way sixteen in a row happen by chance once in 50,000.
	bigRTOs = 16
)

// Open makes a PDC to a peer as its initiator (UE 3.5.8). Nothing is
// sent before the first Push. known marks an address the application named.
// It returns nil when no PDC or PDCID is free.
func (t *Table) Open(now time.Duration, peer uint32, remote netip.AddrPort, mode wire.Mode, ccc CCC) *PDC {
	if t.live >= t.cfg.MaxPDCs {
		return nil
	}
	id := t.newID(now)
	if id == 0 {
		return nil
	}
	p := &PDC{t: t, Peer: peer, id: id, mode: mode, initiator: true, known: true, state: Creating, remote: remote, ccc: ccc}
	if t.secured() {
		p.who, p.start = nobody, t.secureStart(id, remote)
	} else {
		p.start = t.newStart(id)
	}
	p.tx.init(p.start)
	t.add(now, p)
	t.arm(p, now+t.cfg.IdleClose) // it may never be used
	t.Stats.PDCOpened++
	return p
}

// Usable reports whether new messages may start on the PDC.
func (p *PDC) Usable() bool { return p.state == Creating || p.state == Established }

// CanPush reports whether a new packet of n nominal bytes may leave now: the
// PSN window of the peer, the own window, the SYN range and the CCC permit it.
func (p *PDC) CanPush(n int) bool {
	tx := &p.tx
	if tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow) || tx.nxt.Sub(tx.cack) > tx.window {
		return false
	}
	// Established: the target has named its PDCID.
	return (p.state == Established || p.mayPush()) && p.ccc.CanSend(n)
}

// mayPush is what CanPush asks of a PDC that is not established.
func (p *PDC) mayPush() bool {
	tx := &p.tx
	switch p.state {
	case Creating, Established, Quiesce:
	default:
		return false
	}
	// UE 3.5.8: psn_offset has 12 bits. And after a restamp what went before goes
	// before again, or a small packet would get past larger ones that wait for the
	// window, and the target would see the messages in another order.
	return p.remoteID != 0 || tx.nxt.Sub(p.start) <= 4000 && (tx.lost == 0 || p.renumberings == 0 && p.rebirths == 0)
}

// Soon reports that n nominal bytes may not leave now, but soon will: they are a small
// part of what is in flight, and ACKs come often. On a long path a window is too little
// a second for anything to be saved, and half a train left at home is a round trip lost.
func (p *PDC) Soon(n int) bool {
	return p.tx.flight > 0 && p.ccc != nil && !p.ccc.CanSend(n) && p.ccc.Window() >= soonPart*n && max(p.ccc.SRTT(), p.tx.rtt) < soonRTT
}

// Nearly reports that the window is about to close: the packet just pushed
// should ask for an ACK.
func (p *PDC) Nearly() bool {
	tx := &p.tx
	return tx.wantAR || tx.nxt.Sub(tx.cack) > tx.window || tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow)
}

// MayLag reports whether the packet just pushed may do without an ACK of its own: the
// next one tells of it as well. Not so where there is trouble, the window is about to
// close, the peer is far or has told nothing for a while.
func (p *PDC) MayLag(now time.Duration) bool {
	tx := &p.tx
	return p.state == Established && !tx.rough && tx.lost == 0 && tx.waiting == 0 && tx.arrived == 0 && tx.rtt != 0 && tx.minRTT < lagTime &&
		now-tx.progress < lagTime && !p.Nearly()
}

// lagTime is how far the peer may be, and how long nothing may be heard of the oldest
// packet, before each packet asks again: less than the silence that is taken for a loss.
const lagTime = silenceLeast

// Ask asks the peer by a PROBE what it has of what is outstanding. It reports false
// if nothing is, or the peer cannot be asked now.
func (p *PDC) Ask() bool {
	tx := &p.tx
	if tx.flight == 0 || p.state != Established {
		return false
	}
	tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
	p.oweAck()
	return true
}

// Header appends the PDS header of the packet that Push gave last.
func (p *PDC) Header(b []byte) []byte {
	psn := p.tx.nxt - 1
	if p.remoteID == 0 {
		return p.header(psn, p.tx.at(psn)).Append(b)
	}
	p.tx.greet = false
	return wire.AppendPlainReq(b, p.reqType(), p.clearOff(psn), psn, p.id, p.remoteID)
}

func (p *PDC) reqType() wire.Type {
	if p.mode == wire.ROD {
		return wire.TypeRODReq
	}
	return wire.TypeRUDReq
}

// clearOff is CLEAR_PSN as the header of a request that leaves now has it. UE 3.5.11:
// the left edge of what is not acknowledged, minus one.
func (p *PDC) clearOff(psn wire.PSN) int16 {
	tx := &p.tx
	tx.cleared, tx.clearOwed = tx.una-1, false
	return int16(tx.cleared.Sub(psn))
}

// header builds the PDS header of a PSN as it must look now.
func (p *PDC) header(psn wire.PSN, k *txPkt) *wire.Req {
	h := &p.t.hdr
	h.Type, h.Next, h.Flags, h.PSN, h.SPDCID = p.reqType(), wire.NextReqStd, 0, psn, p.id
	h.ClearOff = p.clearOff(psn)
	if p.remoteID == 0 {
		h.Flags |= wire.FlagSYN
		h.PSNOffset, h.DPDCID = uint16(psn.Sub(p.start)), 0
	} else {
		h.PSNOffset, h.DPDCID = 0, p.remoteID
		p.tx.greet = false
	}
	if k.tries > 0 {
		h.Flags |= wire.FlagRETX | wire.FlagAR
	}
	return h
}

// An Again is a packet to be sent again: a request with its Piece, or a control
// packet that consumes a PSN.
type Again struct {
	Req   *wire.Req // valid until the next call of Push or Resend for any PDC
	Piece piece.Piece
	CP    wire.CP
	IsCP  bool
}

// NextLost reports the nominal size of the packet that Resend would give.
func (p *PDC) NextLost() (n int, isCP, ok bool) {
	tx := &p.tx
	if tx.lost == 0 {
		return 0, false, false
	}
	for psn := tx.lostHint; psn != tx.nxt; psn++ {
		if k := tx.at(psn); k.state == pktLost {
			tx.lostHint = psn
			// UE 3.5.12: MP_RANGE holds for retransmissions too.
			if psn.Sub(tx.cack) > tx.window {
				return 0, false, false
			}
			return int(k.size), k.ctl != 0, true
		}
	}
	panic("BUG: pds: a lost packet is counted but not found")
}

// Lost reports whether packets wait to be sent again.
func (p *PDC) Lost() bool { return p.tx.lost > 0 }

// NextLostPiece is the Piece of the packet that Resend would give.
func (p *PDC) NextLostPiece() piece.Piece { return p.tx.at(p.tx.lostHint).piece }

// LostFresh reports whether that packet goes for the first time under its PSN, and so
// without RETX: after a NACK that made the PDC begin anew.
func (p *PDC) LostFresh() bool { return p.tx.at(p.tx.lostHint).fresh }

// CanResend reports whether a lost packet may leave now. The first lost packet
// of a PDC with nothing in flight always may: at least one packet per RTT.
func (p *PDC) CanResend() bool { return p.tx.lost != 0 && p.canResend() }

func (p *PDC) canResend() bool {
	n, _, ok := p.NextLost()
	if !ok {
		return false
	}
	return p.ccc == nil || p.tx.flight == 0 || p.ccc.CanSend(n)
}

func (p *PDC) ctlHeader(psn wire.PSN, k *txPkt) wire.CP {
	c := wire.CP{Ctl: wire.CtlType(k.ctl - 1), Flags: wire.FlagAR, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID}
	if k.tries > 0 {
		c.Flags |= wire.FlagRETX
	}
	p.t.Stats.CPTx[c.Ctl]++
	return c
}

// ctlNominal is the nominal size of a control packet.
func (t *Table) ctlNominal() int { return 16 + t.cfg.Nominal }

// pushCtl sends a control packet that consumes a PSN. It goes out through the
// lost list so that one place encodes it.
func (p *PDC) pushCtl(now time.Duration, c wire.CtlType) {
	psn := p.tx.nxt
	p.Push(now, piece.Piece{}, p.t.ctlNominal(), p.path)
	k := p.tx.at(psn)
	k.ctl = 1 + uint8(c)
	p.unsend(now, psn, k, CauseClose)
	p.wake()
}

// CtlOwed reports whether NextCtl has something.
func (p *PDC) CtlOwed() bool {
	return p.tx.clearOwed || p.tx.probeOwed || p.tx.askOwed || p.tx.greet
}

// ProbeNext reports whether the next control packet is a PROBE: it is to see what
// data sees, and what its answer does not show must not be under way behind it, so
// it belongs into the class of data.
func (p *PDC) ProbeNext() bool {
	tx := &p.tx
	if p.remoteID == 0 || tx.clearOwed || tx.greet && tx.una == tx.nxt || tx.askOwed && p.canAsk() {
		return false
	}
	return tx.probeOwed || tx.greet
}

// canAsk reports whether there is a packet that an ACK_REQ can be about: one that is not
// finished, or that is and CACK has not passed.
func (p *PDC) canAsk() bool { return p.tx.una != p.tx.nxt || p.shut() }

// whyProbe is why the next PROBE is sent.
func (p *PDC) whyProbe() Cause {
	tx := &p.tx
	switch {
	case !tx.probeOwed:
		return CauseGreet
	case tx.burst > 0 || tx.probeFrom != tx.una:
		return CauseProbeMore
	case p.shut():
		return CauseProbeShut
	case tx.rtos >= 2:
		return CauseProbeRTO
	case tx.probes == 0:
		return CauseProbeAsk
	}
	return CauseProbeTail
}

// NextCtl takes the next control packet that consumes no PSN: CLEAR, PROBE or
// ACK_REQ.
func (p *PDC) NextCtl(now time.Duration) (wire.CP, bool) {
	tx := &p.tx
	if p.remoteID == 0 {
		// The peer's PDCID is unknown: none of them can be addressed.
		tx.clearOwed, tx.probeOwed, tx.askOwed, tx.greet = false, false, false, false
		return wire.CP{}, false
	}
	c := wire.CP{SPDCID: p.id, DPDCID: p.remoteID}
	switch {
	case tx.clearOwed || tx.greet && tx.una == tx.nxt:
		// A CLEAR greets as well and asks for no answer.
		if p.t.Cause = CauseClear; !tx.clearOwed {
			p.t.Cause = CauseGreet
		}
		tx.clearOwed, tx.greet = false, false
		tx.cleared = tx.una - 1
		c.Ctl, c.Payload = wire.CtlClear, uint32(tx.una-1)
	case tx.askOwed && p.canAsk():
		tx.askOwed = false
		p.t.Cause = CauseArrived
		if c.Ctl, c.Flags, c.PSN = wire.CtlAckReq, wire.FlagAR, tx.una; tx.una == tx.nxt {
			c.PSN, p.t.Cause = tx.cack+1, CauseProbeShut
		}
	case tx.probeOwed || tx.greet && tx.una != tx.nxt:
		p.t.Cause = p.whyProbe()
		if tx.burst == 0 || !tx.probeOwed {
			tx.burst = 0
			tx.seq++
			tx.probeSeq, tx.probeAt = tx.seq, now
		}
		from := tx.una
		if tx.probeFrom.After(from) && tx.probeFrom.Before(tx.nxt) {
			from = tx.probeFrom
		}
		tx.probeID++
		tx.burst++
		tx.greet = false
		// One PROBE asks for 64 PSNs.
		tx.probeFrom = p.unknown(from.Add(64), tx.probeSeq)
		tx.probeOwed = tx.probeFrom != tx.nxt && tx.burst < maxBurst
		c.Ctl, c.ProbeOpaque, c.Payload = wire.CtlProbe, tx.probeID, uint32(from)
	default:
		tx.askOwed = false
		return wire.CP{}, false
	}
	p.t.Stats.CPTx[c.Ctl]++
	return c, true
}
