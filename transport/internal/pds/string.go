package pds

import "fmt"

// String describes the PDC and what it waits for.
func (p *PDC) String() string {
	tx := &p.tx
	s := fmt.Sprintf("pdc %d>%d %v %v", p.id, p.remoteID, p.mode, p.state)
	if p.initiator || tx.una != tx.nxt {
		s += fmt.Sprintf(", sends: %d outstanding from %#x (%d in flight, %d lost, %d waiting until %v, %d arrived), cack %#x, window %d, rto %v",
			tx.nxt.Sub(tx.una), uint32(tx.una), tx.flight, tx.lost, tx.waiting, tx.waitUntil, tx.arrived, uint32(tx.cack), tx.window, p.rto())
		if p.ccc != nil {
			s += fmt.Sprintf(", cwnd %d of which %d in flight, srtt %v, rtt %v, %d probes, reorder %d for %v", p.ccc.Window(), p.ccc.InFlight(), p.ccc.SRTT(), tx.rtt, tx.probes, tx.reorder, p.reorderTime())
		}
	}
	if rx := p.rx; rx != nil {
		s += fmt.Sprintf(", receives: base %#x, max %#x, %d stored, %d early", rx.win.Base(), uint32(rx.max), len(rx.stored)-rx.head, rx.early.n())
	}
	if p.heapAt != never {
		s += fmt.Sprintf(", timer at %v", p.heapAt)
	}
	return s
}
