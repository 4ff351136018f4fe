package uet

import (
	"bytes"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// D12: what one end's tap shows as sent the other's shows as received, each
// datagram once, with its ports and its bytes; and the counters say the same.
func TestTapShowsBothEnds(t *testing.T) {
	type flow struct {
		sent     bool
		from, to netip.AddrPort
	}
	var mu sync.Mutex
	seen := map[flow][][]byte{}
	hints := &Info{}
	hints.Config.Paths = 3
	hints.Config.Tap = func(p *Tapped) {
		mu.Lock()
		defer mu.Unlock()
		f := flow{p.Sent, p.Local, p.Remote}
		if !p.Sent {
			f.from, f.to = p.Remote, p.Local
		}
		seen[f] = append(seen[f], slices.Clone(p.Data)) // Data is lent
		if wire.Type(p.Data[0]>>3) == wire.TypeRUDReq && p.TOS&3 == 0 {
			t.Errorf("a request without ECT: TOS %#x", p.TOS)
		}
		if p.Trailer != wire.CRCLen || len(p.Packet()) != len(p.Data)-wire.CRCLen {
			t.Errorf("%d bytes of %d are the packet, trailer %d", len(p.Packet()), len(p.Data), p.Trailer)
		}
	}
	r := newRig(t, hints)
	a, b, toB, _ := r.pair()
	msg := bytes.Repeat([]byte("0123456789abcdef"), 20000)
	buf := make([]byte, len(msg))
	for i := range 4 {
		ok(t, b.TRecv(buf, fi.AddrUnspec, uint64(i), 0, nil))
		ok(t, a.TSend(msg, toB, uint64(i), nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
	}
	// What is on its way has to arrive before the two are compared.
	for start := time.Now(); ; {
		_, _ = a.tx.Read(nil)
		_, _ = b.rx.Read(nil)
		sa, sb := a.Stats(), b.Stats()
		if sa.TxPackets == sb.RxPackets && sa.RxPackets == sb.TxPackets {
			break
		}
		if time.Since(start) > patience {
			t.Fatalf("sent and received differ: %+v, %+v", sa, sb)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	sent, ports := uint64(0), map[uint16]bool{}
	for f, ds := range seen {
		if !f.sent {
			continue
		}
		sent += uint64(len(ds))
		ports[f.from.Port()] = true
		f.sent = false
		if got := seen[f]; !slices.EqualFunc(ds, got, bytes.Equal) {
			t.Errorf("%v → %v: %d datagrams sent, %d received, or others", f.from, f.to, len(ds), len(got))
		}
	}
	if n := a.Stats().TxPackets + b.Stats().TxPackets; sent != n || sent < 4*uint64(len(msg))/8192 {
		t.Errorf("the tap saw %d datagrams sent, the endpoints counted %d", sent, n)
	}
	if len(ports) < 3 {
		t.Errorf("datagrams from the ports %v only", ports)
	}
}

// Without a tap nothing is in between.
func TestTapNone(t *testing.T) {
	r := newRig(t, nil)
	if c := r.node().driven(); c.(*socket) == nil {
		t.Errorf("the driver has a %T", c)
	}
}
