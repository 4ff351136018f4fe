package pds

import (
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A room is what the refusals of a peer say of its PSN window. MPR tells a window in steps of
// 128 PSNs, so a peer that tracks fewer cannot say so: it refuses what lies beyond by NACK 0B
// (S-WIN-07). The zero room is no limit but MPR.
type room struct {
	limit int32    // PSNs beyond CACK that may be outstanding; 0: as many as MPR says
	step  int32    // by how much the limit grows next
	wait  int32    // PSNs that must finish without a refusal before it grows
	since wire.PSN // CACK when the limit last changed
	used  bool     // since then the limit kept a packet back
}

const (
	// roomWait is the least wait, in PSNs, and in windows what that is at least: the refusal of
	// a packet comes after at most one more window. Each refusal doubles the wait, up to
	// maxRoomWait. So opposite a window that stays small one packet of a thousand is refused.
	// Arbitrary.
	roomWait    = 32
	roomWindows = 2
	maxRoomWait = 1024
)

// beyond learns from the refusal of a PSN that the peer's window ends before it. The packet
// is sent again when the window, so made smaller, has moved far enough.
func (p *PDC) beyond(now time.Duration, psn wire.PSN, k *txPkt) {
	tx, r := &p.tx, &p.tx.room
	p.short(now, k, wire.NackPSNOORWindow)
	if p.clearAgain(); tx.clearOwed {
		p.oweAck() // the CLEAR_PSN of the refused packet was refused with it
	}
	n := psn.Sub(tx.cack) - 1 // PSNs from CACK+1 on that lie before psn
	if n < 1 {
		// The peer has it that its window does not begin behind its CACK. Nothing else can be
		// sent, and no news is to come.
		p.backOff(now, k, wire.NackPSNOORWindow)
		return
	}
	if r.limit == 0 || n < r.limit {
		switch {
		case r.limit == 0:
			r.wait = roomWait
		case r.step > 1: // it has grown since the last refusal
			r.wait = min(2*r.wait, maxRoomWait)
		}
		r.limit, r.step, r.since, r.used = n, 1, tx.cack, false
		tx.window, tx.limited = min(tx.window, n), true
	}
	if p.mode == wire.ROD {
		p.takenBack(now, k)
	}
	p.nackLost(now, psn, k, wire.NackPSNOORWindow)
}

// wider returns the window after an ACK with a newer CACK. The limit grows when it was used
// and enough packets finished without a refusal: by one PSN, then by twice as many each time,
// until the peer refuses again or the limit reaches offered, the window that MPR says.
func (tx *txDir) wider(cack wire.PSN, offered int32) int32 {
	r := &tx.room
	if tx.nxt.Sub(tx.mprAt) > tx.window {
		r.used = true
	}
	if r.used && cack.Sub(r.since) >= max(r.wait, roomWindows*r.limit) {
		r.limit += r.step
		r.step *= 2
		r.wait = max(r.wait/2, roomWait)
		r.since, r.used = cack, false
	}
	if r.limit >= offered {
		*r, tx.limited = room{}, false
		return offered
	}
	return r.limit
}
