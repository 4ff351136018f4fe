package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// Diagnosis: what a PDC waits for. Nothing here changes state, and no state is kept for it
// elsewhere.

// A TxView is a snapshot of the sending side of a PDC. Times are those of the caller's
// clock, 0: never.
type TxView struct {
	State State
	// Answered means that the target announced its PDCID.
	Answered bool
	Heard    time.Duration // when the latest valid packet of the peer came; 0: none yet
	RTOs     int           // RTOs since the last progress
	Probes   int           // tail probes since the last progress
	// NextSend is when the packets in flight are taken for lost, or when refused ones are
	// sent again. GiveUp is when the PDC ends if the peer stays silent.
	NextSend, GiveUp time.Duration
	// NotReady is when the target began to have no room for new messages (NACK 09), Short
	// when it began to be short of the resource that ShortCode names.
	NotReady, Short time.Duration
	ShortCode       wire.NackCode
	Evidence        time.Duration // first ICMP message since Heard
	// Doubt is a fatal NACK that came once and counts if it is repeated (T6), 0: none.
	Doubt wire.NackCode
	// Hole means that a packet is missing although a later one arrived.
	Hole bool
	// PeerWindow means that the MP_RANGE of the peer is used up, OwnWindow that this side
	// sends no further ahead, SynRange that no more may be sent before the target has
	// answered, or has told the Start_PSN that it takes. Range is how many PSNs the peer takes beyond CACK, Ahead how many are sent
	// beyond CACK.
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
	v.Heard = p.Heard()
	if p.doubted {
		v.Doubt = p.fatal
	}
	v.PeerWindow = tx.nxt.Sub(tx.cack) > tx.window
	v.OwnWindow = tx.nxt.Sub(tx.una) >= int32(p.t.cfg.TxWindow)
	v.SynRange = p.remoteID == 0 && (tx.nxt.Sub(p.start) > 4000 || tx.nxt.Sub(tx.una) >= unagreed && p.unasked())
	v.Hole = p.hole()
	if tx.una == tx.nxt && !p.shut() {
		return v
	}
	v.GiveUp = p.giveUpAt()
	v.NextSend = tx.progress + p.rto()
	if tx.flight == 0 && tx.waiting > 0 {
		v.NextSend = tx.waitUntil
	}
	return v
}

// Heard is when the latest valid packet of the peer came on the PDC, 0 if none came yet.
func (p *PDC) Heard() time.Duration {
	if p.lastHeard > p.opened || p.remoteID != 0 {
		return p.lastHeard
	}
	return 0
}

// hole reports whether a missing packet precedes one that arrived.
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
		case pktFlight, pktLost, pktWaiting:
			missing = true
		}
	}
	return false
}

// A SentState is what is known of a packet that was sent and is not finished.
type SentState uint8

// The states of a sent packet.
const (
	InFlight SentState = iota + 1 // sent, and nothing known
	Lost                          // taken for lost; sent again as soon as a window allows
	Refused                       // refused by a NACK; sent again later
	Arrived                       // arrived, but its response did not come
)

// A Sent is a packet with a piece of the owner that is not finished.
type Sent struct {
	Piece piece.Piece
	State SentState
	Nack  wire.NackCode // the refusal that caused its latest or next resend, 0: none
	First time.Duration // when it was first sent
	Tries int           // resends so far
}

// EachSent calls fn for each such packet, in the order of PSNs.
func (p *PDC) EachSent(fn func(Sent)) {
	tx := &p.tx
	for psn := tx.una; psn != tx.nxt; psn++ {
		k := tx.at(psn)
		if k.state == pktFinished || k.ctl != 0 {
			continue
		}
		s := Sent{Piece: k.piece, Nack: k.cause.Nack(), First: k.first, Tries: int(k.tries)}
		switch k.state {
		case pktFlight:
			s.State = InFlight
		case pktLost:
			s.State = Lost
		case pktWaiting:
			s.State = Refused
		case pktArrived:
			s.State = Arrived
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

// Early returns the number of early ROD packets, and when the peer was last heard.
func (p *PDC) Early() (n int, heard time.Duration) {
	if p.rx == nil {
		return 0, p.lastHeard
	}
	return p.rx.early.n(), p.lastHeard
}

// At is the PDC with that Slot, or nil.
func (t *Table) At(slot uint32) *PDC {
	if int(slot) >= len(t.slots) {
		return nil
	}
	return t.slots[slot]
}

// Full reports whether no PDC can be opened: there are as many as there may be, or every PDCID is in use or
// in quarantine. quarantined is the number of PDCIDs in quarantine.
func (t *Table) Full(now time.Duration) (full bool, quarantined int) {
	free := false
	for id := 1; id < 1<<16; id++ {
		switch {
		case t.quar.hasID(now, uint16(id)):
			quarantined++
		case t.ids.find(uint16(id)) == nil:
			free = true
		}
	}
	return !t.mayOpen() || !free, quarantined
}
