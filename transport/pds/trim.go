package pds

import (
	"github.com/uetkit/uetkit/transport/wire"
)

// ReceiveTrimmed judges what a switch left of a request, of which nothing but the
// header is known and nobody vouches for that. It makes no PDC and changes nothing
// of one (S-TRIM-03): if the PSN is one that the PDC waits for, a NACK with that
// code leaves by the path the packet came by, and ReceiveTrimmed reports true.
// small says that the NACK would be longer than the packet.
func (t *Table) ReceiveTrimmed(in *Arrival, h *wire.Req, code wire.NackCode, small bool) bool {
	var p *PDC
	if h.Flags&wire.FlagSYN != 0 {
		// It does not name our PDCID, but the two numbers that its source chose.
		p = t.bySyn[synKey{in.From, h.SPDCID}]
		if p == nil || p.start != h.PSN.Add(-int(h.PSNOffset)) {
			return false
		}
	} else {
		p = t.Lookup(h.DPDCID)
		if p == nil {
			return false
		}
		if in.From.Addr() != p.remote.Addr() || p.remoteID != h.SPDCID {
			t.guessed(in.Now, in.From)
			return false
		}
	}
	if p.rx == nil || p.mode != h.Mode() || small && !p.proven {
		return false
	}
	win := &p.rx.win
	d := h.PSN.Sub(wire.PSN(win.Base()))
	if n := int32(win.Size()); d >= n || d < -n {
		t.guessed(in.Now, in.From)
		return false
	}
	if d < 0 || win.Test(uint32(h.PSN)) || p.rx.isHeld(h.PSN) {
		return false // it came before, or after
	}
	n := wire.Nack{Type: wire.TypeNack, Code: code, PSN: h.PSN, SPDCID: p.id, DPDCID: p.remoteID}
	if in.CE {
		n.Flags |= wire.NackFlagM
	}
	t.sendNack(in.Now, in.From, in.Path, n)
	return true
}
