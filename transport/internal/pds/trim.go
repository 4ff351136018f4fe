package pds

import (
	"github.com/uetkit/uetkit/transport/wire"
)

// ReceiveTrimmed processes a request that a switch trimmed to its header, which is not
// authenticated. It opens no PDC and changes no PDC (S-TRIM-03). If the PDC waits for the
// PSN, it sends a NACK with code by the path of the packet and reports true. small says that
// the NACK would be longer than the packet.
func (t *Table) ReceiveTrimmed(in *Arrival, h *wire.Req, code wire.NackCode, small bool) bool {
	var p *PDC
	if h.Flags&wire.FlagSYN != 0 {
		// A SYN packet does not name our PDCID, but two numbers that its source chose.
		p = t.lives[lifeKey{in.From.Addr(), h.SPDCID, h.PSN.Add(-int(h.PSNOffset))}]
		if p == nil {
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
	if p.rx == nil || p.mode != h.Mode() || small && !p.proven && !p.initiator {
		return false
	}
	win := &p.rx.win
	d := h.PSN.Sub(wire.PSN(win.Base()))
	if n := int32(win.Size()); d >= n || d < -n {
		t.guessed(in.Now, in.From)
		return false
	}
	if d < 0 || win.Test(uint32(h.PSN)) || p.rx.isEarly(h.PSN) {
		return false // the whole packet arrived before, or arrived since
	}
	n := wire.Nack{Type: wire.TypeNack, Code: code, PSN: h.PSN, SPDCID: p.id, DPDCID: p.remoteID}
	if in.CE {
		n.Flags |= wire.NackFlagM
	}
	t.sendNack(in.Now, in.From, in.Path, n)
	return true
}
