package transport

import (
	"fmt"
	"strings"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// Dump describes in words what the FEP holds and waits for, with a line for each PDC. It
// serves people and failing simulations.
func (f *FEP) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d sends, %d queued, %d messages in progress, %d unexpected, next timeout %v, ready %d, acks %d\n",
		f.ses.Sends(), f.todo.queued, f.ses.InProgress(), f.Unexpected(), f.NextTimeout(), f.todo.ready.len(), f.todo.acks.len())
	f.pds.Each(func(p *pds.PDC) {
		fmt.Fprintf(&b, "  %v", p)
		if p.Peer != 0 && int(p.Slot) < len(f.lanes) && f.lanes[p.Slot].pdc == p {
			ln := &f.lanes[p.Slot]
			fmt.Fprintf(&b, ", lane: %d messages, begun %v, listed %v", ln.q.len(), ln.begun, ln.data)
		}
		b.WriteByte('\n')
	})
	return b.String()
}
