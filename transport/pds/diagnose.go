package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Looking at what a PDC waits for. Nothing here changes anything, and nothing
// elsewhere is kept for it.

// A TxView is what the sending side of a PDC has and waits for. Times are those of
// the caller's clock, 0: never.
type TxView struct {
	State State
	// Answered: the target told its PDCID.
	Answered bool
	Heard    time.Duration // the last valid packet of the peer; 0: none yet
	RTOs     int           // since the last progress, as Probes
	Probes   int
	// NextSend is when what is in flight is taken for lost, or goes again after a
	// refusal. GiveUp is when the PDC is given up if nothing is heard.
	NextSend, GiveUp time.Duration
	// NotReady is since when the target has no room for new messages (NACK 09),
	// Short since when it is short of what ShortCode says.
	NotReady, Short time.Duration
	ShortCode       wire.NackCode
	Evidence        time.Duration // first ICMP message since Heard
	// Hole: a packet is missing while a later one arrived.
	Hole bool
	// PeerWindow and OwnWindow: no further PSN may be sent, because MP_RANGE of the
	// peer is used up, or because this side sends no further ahead. Range is how
	// many PSNs the peer takes, Ahead how many are sent and not acknowledged by
	// CACK. SynRange: no more may be sent before the target has answered.
	PeerWindow, OwnWindow, SynRange bool
	Range, Ahead                    int
}

// View looks at the sending side.
func (p *PDC) View() TxView {
	tx := &p.tx
	v := TxView{
		State: p.state, Answered: p.remoteID != 0, RTOs: int(tx.rtos), Probes: int(tx.probes), NotReady: tx.rnrSince, Short: tx.shortSince,
		ShortCode: tx.shortCode, Evidence: p.evidence, Range: int(tx.window), Ahead: int(tx.nxt.Sub(tx.cack)) - 1,
	}
	if p.lastHeard > p.opened || v.Answered {
		v.Heard = p.lastHeard
	}
	v.PeerWindow = tx.nxt.Sub(tx.cack) > tx.window
	v.OwnWindow = tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow)
	v.SynRange = p.remoteID == 0 && tx.nxt.Sub(p.start) > 4000
	v.Hole = p.hole()
	if tx.una == tx.nxt && !p.shut() {
		return v
	}
	v.GiveUp = p.giveUpAt()
	v.NextSend = tx.progress + p.rto()
	if tx.flight == 0 && tx.held > 0 {
		v.NextSend = tx.heldUntil
	}
	return v
}

// hole reports whether a packet that is missing precedes one that arrived.
func (p *PDC) hole() bool {
	tx := &p.tx
	if tx.arrived == 0 {
		return false
	}
	missing := false
	for psn := tx.una; psn != tx.nxt; psn++ {
		switch tx.at(psn).state {
		case pktArrived:
			if missing {
				return true
			}
		case pktFlight, pktLost, pktHeld:
			missing = true
		}
	}
	return false
}

// A Fate is what is known of a packet that was sent and not answered.
type Fate uint8

// The fates.
const (
	InFlight Fate = iota + 1 // nothing
	Lost                     // it is to be sent again as soon as a window allows
	Refused                  // by a NACK; it is to be sent again later
	Arrived                  // but its answer did not come
)

// A Sent is a packet of the owner's that is not answered.
type Sent struct {
	Ref   Ref
	Fate  Fate
	Nack  wire.NackCode // the refusal for which it goes again, or went last
	First time.Duration // when it was first sent
	Tries int           // how often again
}

// EachSent calls fn for each of them, in the order of PSNs.
func (p *PDC) EachSent(fn func(Sent)) {
	tx := &p.tx
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.state == pktDone || k.ctl != 0 {
			continue
		}
		s := Sent{Ref: k.ref, Nack: k.cause.Nack(), First: k.first, Tries: int(k.tries)}
		switch k.state {
		case pktFlight:
			s.Fate = InFlight
		case pktLost:
			s.Fate = Lost
		case pktHeld:
			s.Fate = Refused
		case pktArrived:
			s.Fate = Arrived
		}
		fn(s)
	}
}

// Nack is the code of the NACK that refused a packet, 0 for another cause.
func (c Cause) Nack() wire.NackCode {
	switch {
	case c >= causeNack|0x7d:
		return wire.NackCode(c)
	case c >= causeNack:
		return wire.NackCode(c &^ causeNack)
	}
	return 0
}

// Early is how many ROD packets came before an earlier one that is missing, and
// since when the peer was not heard.
func (p *PDC) Early() (n int, heard time.Duration) {
	if p.rx == nil {
		return 0, p.lastHeard
	}
	return p.rx.held.n(), p.lastHeard
}

// At is the PDC with that Slot, or nil.
func (t *Table) At(slot uint32) *PDC {
	if int(slot) >= len(t.slots) {
		return nil
	}
	return t.slots[slot]
}

// Full says why no PDC can be opened: as many exist as may, or all PDCIDs are in use
// or in quarantine. quarantined is how many are in quarantine.
func (t *Table) Full(now time.Duration) (full bool, quarantined int) {
	free := false
	for id := 1; id < 1<<16; id++ {
		switch {
		case t.quar.holdsID(now, uint16(id)):
			quarantined++
		case t.ids.find(uint16(id)) == nil:
			free = true
		}
	}
	return t.live >= t.cfg.MaxPDCs || !free, quarantined
}
