package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// txDir is the sending direction of a PDC. Its fields are ordered by cache lines, as those
// of a PDC.
type txDir struct {
	ring     []txPkt  // packets from una on; it is one, unless more are outstanding
	una      wire.PSN // the oldest PSN that is not finished
	nxt      wire.PSN // the next PSN to send
	cack     wire.PSN // highest CACK received
	window   int32    // PSNs that the peer accepts beyond cack
	flight   int32    // packets in flight
	lost     int32    // lost packets
	lostHint wire.PSN // no lost packet is below it
	late     bool     // Table.late has promised responses
	lateOwed uint8    // ACK_REQs owed about them
	heardBy  uint8    // the path that the latest answer came by
	limited  bool     // room has a limit
	seq      uint32   // transmissions so far
	mprAt    wire.PSN // CACK of the ACK that set window

	one      [1]txPkt      // the ring while at most one packet is outstanding
	progress time.Duration // last ACK that reported something new, or last send with nothing in flight

	owedSince time.Duration // when outstanding became non-zero
	lastSend  time.Duration
	minRTT    time.Duration // the least RTT measured
	rtt       time.Duration // smoothed RTT, with the peer's ACK delay and pauses; 0 before the first
	topSeq    uint32        // highest transmission number known to have arrived
	sureSeq   uint32        // the same, of packets that were sent once and PROBEs: certain
	pastSeq   uint32        // sureSeq before the newest ACK
	ackOrder  uint32        // rcvd_bytes of the newest ACK, which tells the order of ACKs; 0 before the first
	echoes    bool          // the peer echoes RETX
	backoff   uint8         // RTO doublings
	rtos      uint8         // RTOs since the last progress, saturating
	probes    uint8         // tail probes since the last progress
	probeOwed bool          // a PROBE is owed
	askOwed   bool          // an ACK_REQ for una is owed
	clearOwed bool          // a CLEAR is owed: the peer waits for it
	greet     bool          // no packet has named the target's PDCID yet, and one is owed
	wantAR    bool          // the congestion context wants an ACK of the newest packet
	rough     bool          // holeAt, waitFor, rnrSince, shortSince or tookBack may not be 0
	burst     uint8         // PROBEs sent in the current burst; the last has probeID
	patience  uint8         // how often the path reordered more than assumed, bounded
	reorder   uint32        // a missing packet that this many later transmissions overtook is lost

	holeAt     time.Duration // since when a hole waits for the reordering time, 0 if none does
	waitFor    time.Duration // current back-off of refused packets
	rnrSince   time.Duration // since when the target is not ready (NACK 09), 0 if it is
	shortSince time.Duration // since when the target is short of something else, or refuses a control packet; 0 if not
	waiting    int32         // waiting packets
	arrived    int32         // arrived packets
	shortCode  wire.NackCode // the NACK behind shortSince
	ringHint   uint8         // length of the first ring after one
	probeID    uint16        // of the latest PROBE
	probeSeq   uint32        // transmission number of the current burst

	waitUntil  time.Duration // when waiting packets are sent again
	probeHeard time.Duration // when a PROBE was last answered
	probeAt    time.Duration // when the current burst began
	probeFrom  wire.PSN      // first PSN that the next PROBE asks for, or una if that is later
	shutAt     wire.PSN      // CACK since shutSince
	shutSince  time.Duration // since when the PDC is shut with CACK at shutAt
	rnrAt      time.Duration // when the last NACK 09 came
	room       room
	freedAt    uint32 // when waiting packets were last queued to be sent again, or the last RTO passed, in µs

	longSince time.Duration // toolong.go: when the packet with PSN long was sent, 0 if there is none
	long      wire.PSN
	first     wire.PSN // if hasFirst: the NO_OP of knock, or the NOOP of Herald
	pick      wire.PSN // the lost packet that NextLost found
	voids     int32    // void packets that are not finished
	safeHeard uint32   // when a PROBE as long as every path should carry was last answered, in µs; 0: never
	longLost  uint8    // how often that packet was lost while shorter ones arrived, saturating
	longWeak  uint8    // how often else, while PROBEs without padding were answered, saturating
	hasFirst  bool
	tookBack  bool // Void took packets of this ROD PDC back since it was idle
}

func (tx *txDir) init(start wire.PSN) {
	tx.ring = tx.one[:]
	tx.una, tx.nxt = start, start
	tx.cack = start - 1
	tx.lostHint = start
	tx.mprAt = start - 2 // before any CACK
	tx.window = defaultWindow
	tx.reorder = minReorder
}

const (
	// defaultWindow is the number of PSNs that a peer accepts until an ACK_CC says otherwise,
	// and the unit of MPR (S-WIN-02).
	defaultWindow = 128
	// minReorder is the number of later transmissions that must have arrived before a
	// missing packet is lost: three, as in TCP. It grows up to maxReorder as the path shows
	// reordering (acked.go).
	minReorder = 3
	maxReorder = 1024
	// maxPatience bounds the reordering time to (1 + 15)/4 round trips.
	maxPatience = 15
	// unequalMost bounds what the reordering time allows for queues of several paths that differ:
	// more than those of a fabric hold. Arbitrary.
	unequalMost = 100 * time.Microsecond
	// maxRange is the default of Config.MaxRange. A message that has begun then sends at
	// most 2²² packets more. So no PDC comes near 2³¹ PSNs, which it must not reach for
	// comparisons with Start_PSN to hold (UE 3.5.8, Limit_PSN_Range).
	maxRange = 1 << 30
	// unagreed is the most packets of an opening that leave before its Start_PSN is known: a
	// second one, so that the loss of one does not cost a timeout.
	unagreed = 2
	// minRing is the length of the smallest transmit ring except tx.one, in packets.
	// maxRingHint bounds the length with which a PDC begins again after it needed a ring
	// before. maxRingKept packets of 56 bytes, 1.8 MiB, are kept in free rings, so that a
	// change of peers allocates nothing.
	minRing     = 4
	maxRingHint = 64
	maxRingKept = 32 << 10
	// tailProbes is the number of probes after silence before the RTO. Probe number
	// dataProbe sends data.
	tailProbes = 6
	dataProbe  = 4
	// soonPart limits Soon to 1/soonPart of the window, soonRTT to shorter round trips.
	// Arbitrary.
	soonPart = 4
	soonRTT  = time.Millisecond
	// maxBurst is the most PROBEs of a burst, and the most PROBEs that a receiver keeps.
	maxBurst = 8
	// hardRTOs is the number of RTOs of packets that every path should carry, while PROBEs
	// are answered, after which the path counts as not carrying them (F7). With 30 % loss
	// each way, sixteen in a row happen by chance once in 50,000.
	hardRTOs = 16
)

// Open makes a PDC to a peer, with this side as its initiator (UE 3.5.8). Nothing is sent
// before the first Push. It returns nil if there are as many PDCs as there may be (MaxPDCs, reserved) or no PDCID is free.
func (t *Table) Open(now time.Duration, peer uint32, remote netip.AddrPort, mode wire.Mode, ccc CCC) *PDC {
	if !t.mayOpen() {
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
	p.expectReorder()
	t.add(now, p)
	t.own++
	t.arm(p, now+t.cfg.IdleClose) // it may never be used
	t.Stats.PDCOpened++
	return p
}

// expectReorder makes a new PDC patient where packets take several paths, which reorder: a hole is a loss only
// if it stays.
func (p *PDC) expectReorder() {
	if p.t.cfg.Paths > 1 && p.mode == wire.RUD {
		p.tx.reorder = maxReorder
	}
}

// Usable reports whether new messages may start on the PDC.
func (p *PDC) Usable() bool { return p.state == Creating || p.state == Established }

// CanPush reports whether a new packet of n nominal bytes may leave now, which the PSN
// window of the peer, the own window, the SYN range and the CCC must permit.
func (p *PDC) CanPush(n int) bool {
	tx := &p.tx
	if tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow) || tx.nxt.Sub(tx.cack) > tx.window {
		return false
	}
	// In state Established the PDCID of the target is known, so mayPush would return true.
	return (p.state == Established || p.mayPush()) && p.ccc.CanSend(n)
}

// mayPush is the part of CanPush that concerns the state of the PDC.
func (p *PDC) mayPush() bool {
	tx := &p.tx
	switch p.state {
	case Creating, Established, Quiesce, CloseRequested: // a target that asked for the close returns the rest of the data
	default:
		return false
	}
	if tx.nxt.Sub(tx.una) >= unagreed && p.unasked() {
		return false
	}
	// UE 3.5.8: psn_offset has 12 bits. After a restamp, lost packets are sent before new
	// ones. Otherwise a small new packet would overtake larger ones that wait for the
	// window, and the target would see the messages in another order.
	// Where there are several paths one PSN of the window is left for the NOOP of Herald.
	return p.remoteID != 0 || tx.nxt.Sub(p.start) <= 4000 && (p.t.cfg.Paths <= 1 || tx.nxt.Sub(tx.cack) < tx.window) && (tx.lost == 0 || p.renumberings == 0 && p.rebirths == 0)
}

// unasked reports whether the PDC is a 1-RTT opening whose target has not told its Start_PSN.
// No packet can open it: each is answered by the NACK 0x17 with the Start_PSN under which all
// are sent again. So unagreed of them leave, and one at each timeout. More would cost the
// target work, would be dropped for their rate, and what they carry would be there no sooner.
func (p *PDC) unasked() bool {
	if p.remoteID != 0 || p.t.cfg.Secure != SecureOneRTT || p.startsInClear > 0 {
		return false
	}
	_, asked := p.t.askers[p]
	return !asked
}

// Soon reports whether n nominal bytes must wait for the congestion window, but only
// briefly: they are a small part of the window, and ACKs come often because the round trip
// is short. On a longer path waiting saves little, because a window takes long anyway, and
// a half train that waits costs a round trip.
func (p *PDC) Soon(n int) bool {
	return p.tx.flight > 0 && p.ccc != nil && !p.ccc.CanSend(n) && p.ccc.Window() >= soonPart*n && max(p.ccc.SRTT(), p.tx.rtt) < soonRTT
}

// Nearly reports whether the window is about to close, so that the packet just pushed
// should ask for an ACK.
func (p *PDC) Nearly() bool {
	tx := &p.tx
	return tx.wantAR || tx.nxt.Sub(tx.cack) > tx.window || tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow)
}

// MayLag reports whether the packet just pushed may be sent without AR, because a later ACK
// will cover it. It returns false if there was trouble, if a packet has no answer although a
// later one has, if the window is about to close, or if the peer is far or has reported
// nothing for a while.
func (p *PDC) MayLag(now time.Duration) bool {
	tx := &p.tx
	return p.state == Established && !tx.rough && tx.flight == tx.nxt.Sub(tx.una) && tx.rtt != 0 && tx.minRTT < lagTime &&
		now-tx.progress < lagTime && !p.Nearly()
}

// lagTime bounds the round trip to the peer, and the time without progress, up to which
// packets may lag. It is no more than the least silence that counts as a loss.
const lagTime = silenceLeast

// Ask asks the peer by a PROBE which outstanding packets have arrived. It returns false if
// nothing is in flight or the peer cannot be asked now.
func (p *PDC) Ask() bool {
	tx := &p.tx
	if tx.flight == 0 || p.state != Established {
		return false
	}
	tx.probeOwed, tx.burst, tx.probeFrom = true, 0, tx.una
	p.oweAck()
	return true
}

// Header appends the PDS header of the packet of the latest Push.
func (p *PDC) Header(b []byte) []byte {
	tx := &p.tx
	psn := tx.nxt - 1
	if p.remoteID == 0 || tx.late || p.t.cfg.Credit {
		return p.header(psn, tx.at(psn)).Append(b)
	}
	tx.greet, tx.clearOwed = false, false
	return wire.AppendPlainReq(b, p.reqType(), int16((tx.una - 1).Sub(psn)), psn, p.id, p.remoteID)
}

// SmallHeader is Header for a piece of the kind Small. It also returns the PSN.
func (p *PDC) SmallHeader(b []byte) ([]byte, wire.PSN) {
	psn := p.tx.nxt - 1
	return p.header(psn, p.tx.at(psn)).Append(b), psn
}

// reqType is the PDS type of requests on this PDC.
func (p *PDC) reqType() wire.Type {
	if p.mode == wire.ROD {
		return wire.TypeRODReq
	}
	return wire.TypeRUDReq
}

// clearPSN is the CLEAR_PSN of a packet that leaves now: this side is finished with every
// response up to it. UE 3.5.11: it is one below the lowest PSN that is not finished.
func (p *PDC) clearPSN() wire.PSN {
	if p.tx.late {
		return p.keptClear(p.tx.una - 1)
	}
	return p.tx.una - 1
}

// header returns the PDS header of a PSN that is sent now.
func (p *PDC) header(psn wire.PSN, k *txPkt) *wire.Req {
	h := &p.t.hdr
	h.Type, h.Next, h.Flags, h.PSN, h.SPDCID = p.reqType(), wire.NextReqStd, 0, psn, p.id
	if p.t.cfg.Credit {
		p.putTarget(h)
	}
	p.tx.clearOwed = false
	h.ClearOff = int16(p.clearPSN().Sub(psn))
	small := k.piece.Kind&piece.Small != 0
	switch {
	case !p.initiator && k.piece.Returns():
		h.Next = wire.NextRspData
		if small {
			h.Next = wire.NextRspDataSmall
		}
	case small && !k.piece.Void():
		h.Next = wire.NextReqSmall
	}
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

// An Again is a packet to send again: a request with its Piece, or a control packet that
// consumes a PSN.
type Again struct {
	Req *wire.Req // valid until the next call of Push or Resend for any PDC
	// Piece is that of the packet. The Len of a void one says how many PSNs behind it the target must
	// not execute either (Table.Void).
	Piece piece.Piece
	CP    wire.CP
	IsCP  bool
}

// NextLost reports the nominal size of the next packet of Resend. ok is false if there is
// none, the peer's window does not permit it, or an opening has a packet under way that asks for its Start_PSN.
func (p *PDC) NextLost() (n int, isCP, ok bool) {
	tx := &p.tx
	if tx.lost == 0 || tx.flight > 0 && p.unasked() {
		return 0, false, false
	}
	if tx.hasFirst && !tx.first.Before(tx.una) && tx.at(tx.first).state == pktLost && tx.first.Sub(tx.cack) <= tx.window {
		tx.pick = tx.first
		return int(tx.at(tx.first).size), tx.at(tx.first).ctl != 0, true
	}
	for psn := tx.lostHint; psn != tx.nxt; psn++ {
		if k := tx.at(psn); k.state == pktLost {
			tx.lostHint, tx.pick = psn, psn
			// UE 3.5.12: MP_RANGE holds for resends, too.
			if psn.Sub(tx.cack) > tx.window {
				return 0, false, false
			}
			return int(k.size), k.ctl != 0, true
		}
	}
	panic("BUG: pds: a lost packet is counted but not found")
}

// Lost reports whether there are lost packets, which are to be sent again.
func (p *PDC) Lost() bool { return p.tx.lost > 0 }

// ToResend is the number of lost packets.
func (p *PDC) ToResend() int { return int(p.tx.lost) }

// NextLostPiece is the Piece of the next packet of Resend.
func (p *PDC) NextLostPiece() piece.Piece { return p.tx.at(p.tx.pick).piece }

// LostFresh reports whether the next packet of Resend is sent for the first time under its
// PSN, and so without RETX. That is so after a NACK that made the PDC begin anew.
func (p *PDC) LostFresh() bool {
	k := p.tx.at(p.tx.pick)
	return k.fresh && k.tries == 0 // a void packet says RETX, also one in place of a packet that never left
}

// CanResend reports whether a lost packet may leave now. If nothing is in flight but the NO_OP of
// knock, the congestion window does not count: at least one packet leaves per round trip. Credit
// counts once the target is known, as there are many sources then, but not for control packets. A target that has
// not the PDC grants nothing: then a packet leaves without, for which it says so.
func (p *PDC) CanResend() bool { return p.tx.lost != 0 && p.canResend() }

// canResend is CanResend for a PDC with lost packets.
func (p *PDC) canResend() bool {
	n, isCP, ok := p.NextLost()
	if !ok {
		return false
	}
	if p.remoteID != 0 && p.credited() {
		return isCP || p.ccc.CanSend(n)
	}
	return p.ccc == nil || p.tx.flight == 0 || p.ccc.CanSend(n) || p.tx.flight == 1 && p.knocks()
}

// ctlHeader is the control packet of a PSN that is sent now.
func (p *PDC) ctlHeader(psn wire.PSN, k *txPkt) wire.CP {
	c := wire.CP{Ctl: wire.CtlType(k.ctl - 1), Flags: wire.FlagAR, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID}
	if k.tries > 0 {
		c.Flags |= wire.FlagRETX
	}
	if p.remoteID == 0 {
		c.Flags |= wire.FlagSYN
		if c.PSNOffset = uint16(psn.Sub(p.start)); p.mode == wire.ROD {
			c.Flags |= wire.FlagISROD
		}
	}
	p.t.Stats.CPTx[c.Ctl]++
	return c
}

// ctlNominal is the nominal size of a control packet.
func (t *Table) ctlNominal() int { return 16 + t.cfg.Nominal }

// pushCtl queues a control packet that consumes a PSN. It is made a lost packet, so that
// Resend alone encodes it.
func (p *PDC) pushCtl(now time.Duration, c wire.CtlType) {
	psn := p.tx.nxt
	p.Push(now, piece.Piece{}, p.t.ctlNominal(), 0)
	k := p.tx.at(psn)
	k.ctl = 1 + uint8(c)
	p.unsend(now, psn, k, CauseClose)
	p.wake()
}

// CtlOwed reports whether NextCtl has something.
func (p *PDC) CtlOwed() bool {
	return p.tx.clearOwed || p.tx.probeOwed || p.tx.askOwed || p.tx.greet || p.tx.lateOwed > 0
}

// ProbeNext reports whether the next control packet is a PROBE. A PROBE belongs into the
// class of data: it must meet the same queues, and data that its answer does not show must
// not arrive behind it.
func (p *PDC) ProbeNext() bool {
	tx := &p.tx
	if p.remoteID == 0 || tx.clearOwed || tx.greet && tx.una == tx.nxt || tx.askOwed && p.canAsk() {
		return false
	}
	return tx.probeOwed || tx.greet
}

// canAsk reports whether an ACK_REQ has a PSN to ask about: one that is not finished, or a
// finished one that CACK has not passed.
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
	case tx.rtos >= 2, tx.rtos == 1 && tx.probes == 0:
		return CauseProbeRTO
	case tx.probes == 0:
		return CauseProbeAsk
	}
	return CauseProbeTail
}

// NextCtl returns the next owed control packet that consumes no PSN: CLEAR, PROBE or
// ACK_REQ.
func (p *PDC) NextCtl(now time.Duration) (wire.CP, bool) {
	tx := &p.tx
	if p.remoteID == 0 {
		// The PDCID of the peer, to which they would go, is unknown.
		tx.clearOwed, tx.probeOwed, tx.askOwed, tx.greet = false, false, false, false
		return wire.CP{}, false
	}
	c := wire.CP{SPDCID: p.id, DPDCID: p.remoteID}
	switch {
	case tx.clearOwed || tx.greet && tx.una == tx.nxt:
		// A CLEAR greets as well as a PROBE, and causes no answer.
		if p.t.Cause = CauseClear; !tx.clearOwed {
			p.t.Cause = CauseGreet
		}
		tx.clearOwed, tx.greet = false, false
		c.Ctl, c.Payload = wire.CtlClear, uint32(p.clearPSN())
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
		tx.probeID = (tx.probeID + 1) &^ sizedProbe
		tx.burst++
		tx.greet = false
		// One PROBE asks for 64 PSNs.
		tx.probeFrom = p.unknown(from.Add(64), tx.probeSeq)
		tx.probeOwed = tx.probeFrom != tx.nxt && tx.burst < maxBurst
		c.Ctl, c.ProbeOpaque, c.Payload = wire.CtlProbe, tx.probeID, uint32(from)
	default:
		tx.askOwed = false
		psn, ok := p.nextPromised()
		if !ok {
			return wire.CP{}, false
		}
		p.t.Cause = CausePromised
		c.Ctl, c.Flags, c.PSN = wire.CtlAckReq, wire.FlagAR, psn
	}
	p.t.Stats.CPTx[c.Ctl]++
	return c, true
}
