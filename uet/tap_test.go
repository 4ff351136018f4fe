package uet

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// Each datagram that one end's tap shows as sent, the other's shows as received, once, with
// the same ports and bytes. The counters agree.
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
		seen[f] = append(seen[f], slices.Clone(p.Data)) // Data is borrowed
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
	// All datagrams must have arrived, and none be sent meanwhile, before the two are compared.
	count := func() (sent uint64, there bool) {
		sa, sb := a.Stats(), b.Stats()
		return sa.TxPackets + sb.TxPackets, sa.TxPackets == sb.RxPackets && sa.RxPackets == sb.TxPackets
	}
	var shown map[flow][][]byte
	n, there := count()
	for start := time.Now(); ; n, there = count() {
		mu.Lock()
		shown = maps.Clone(seen)
		mu.Unlock()
		if again, _ := count(); there && again == n {
			break
		}
		if time.Since(start) > patience {
			t.Fatalf("sent and received differ: %+v, %+v", a.Stats(), b.Stats())
		}
		_, _ = a.tx.Read(nil)
		_, _ = b.rx.Read(nil)
	}
	sent, ports := uint64(0), map[uint16]bool{}
	for f, ds := range shown {
		if !f.sent {
			continue
		}
		sent += uint64(len(ds))
		ports[f.from.Port()] = true
		f.sent = false
		if got := shown[f]; !slices.EqualFunc(ds, got, bytes.Equal) {
			t.Errorf("%v → %v: %d datagrams sent, %d received, or others", f.from, f.to, len(ds), len(got))
		}
	}
	if sent != n || sent < 4*uint64(len(msg))/8192 {
		t.Errorf("the tap saw %d datagrams sent, the endpoints counted %d", sent, n)
	}
	if len(ports) < 3 {
		t.Errorf("datagrams from the ports %v only", ports)
	}
}

// Without a tap, nothing stands between driver and socket.
func TestTapNone(t *testing.T) {
	r := newRig(t, nil)
	nd := r.node()
	if core, mover := nd.driven(); core != driver.Core(nd.fep) || mover != nd.conn.Mover() {
		t.Errorf("the driver has a %T and a %T", core, mover)
	}
}

// The tap of a secured endpoint is before encryption. It shows the content of each packet,
// its security header, the same at both ends, and why the packet was sent.
func TestTapBeforeSealing(t *testing.T) {
	var mu sync.Mutex
	type shown struct {
		data []byte
		why  string
	}
	var seen [2]map[wire.TSS]shown // received, sent
	seen[0], seen[1] = map[wire.TSS]shown{}, map[wire.TSS]shown{}
	sec, err := NewClusterKey(NewKey(1))
	ok(t, err)
	hints := &Info{}
	hints.Config.Security = sec
	hints.Config.Tap = func(p *Tapped) {
		mu.Lock()
		defer mu.Unlock()
		if p.TSS == nil || p.Trailer != 0 || p.TSS.SSI == 0 {
			t.Errorf("a packet is shown as it is on the wire: %+v", p)
			return
		}
		if wire.Type(p.Wire[0]>>3) != wire.TypeTSS || len(p.Wire) != p.TSS.Len()+len(p.Data)+wire.ICVLen {
			t.Errorf("%d bytes on the wire of %d", len(p.Wire), len(p.Data))
		}
		i := 0
		if p.Sent {
			i = 1
		}
		if _, twice := seen[i][*p.TSS]; twice {
			t.Errorf("%v is there twice", p.TSS)
		}
		seen[i][*p.TSS] = shown{slices.Clone(p.Data), p.Why}
	}
	r := newRig(t, hints)
	a, b, toB, _ := r.pair()
	msg := bytes.Repeat([]byte("attack at dawn  "), 3000)
	ok(t, b.TRecv(make([]byte, len(msg)), fi.AddrUnspec, 1, 0, nil))
	ok(t, a.TSend(msg, toB, 1, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	mu.Lock()
	received := maps.Clone(seen[0])
	mu.Unlock()
	_, _ = a.Stats(), b.Stats() // each waits for a turn that has sent and not yet told the tap
	mu.Lock()
	defer mu.Unlock()
	data := 0
	for h, got := range received {
		sent, ok := seen[1][h]
		if !ok || !bytes.Equal(sent.data, got.data) {
			t.Errorf("received %v: %x, sent %x", h, got.data, sent.data)
		}
		if sent.why == "" {
			t.Errorf("%s was sent for no reason", wire.Dump(sent.data))
		}
		if bytes.Contains(got.data, []byte("attack at dawn")) {
			data++
		}
	}
	if data < len(msg)/8192 {
		t.Errorf("%d packets show the message", data)
	}
}

// F13: an endpoint that is opened anew at the same port draws other numbers: PSN, PDCID and message
// id. With the same ones its peer, which remembers the former life, would acknowledge what it
// never received.
func TestF13AnotherLifeDrawsAnew(t *testing.T) {
	var mu sync.Mutex
	var first []byte
	hints := &Info{}
	hints.Config.Tap = func(p *Tapped) {
		mu.Lock()
		defer mu.Unlock()
		if p.Sent && first == nil && p.Why == "new" && wire.Type(p.Data[0]>>3) == wire.TypeRUDReq { // an earlier life may send again
			first = slices.Clone(p.Data)
		}
	}
	r := newRig(t, hints)
	type numbers struct{ psn, pdc, msg uint32 }
	seen := map[numbers]bool{}
	psns, pdcs, msgs := map[uint32]bool{}, map[uint32]bool{}, map[uint32]bool{}
	const lives = 8
	for range lives {
		a, _, toB, _ := r.pair()
		mu.Lock()
		first = nil
		mu.Unlock()
		ok(t, a.TSend([]byte("x"), toB, 1, nil))
		for start := time.Now(); ; {
			_, _ = a.tx.Read(nil)
			mu.Lock()
			done := first != nil
			mu.Unlock()
			if done {
				break
			}
			if time.Since(start) > patience {
				t.Fatal("nothing is sent")
			}
		}
		var h wire.Req
		var q wire.ReqStd
		n, err := h.Parse(first)
		ok(t, err)
		_, err = q.Parse(first[n:])
		ok(t, err)
		seen[numbers{uint32(h.PSN), uint32(h.SPDCID), uint32(q.MsgID)}] = true
		psns[uint32(h.PSN)], pdcs[uint32(h.SPDCID)], msgs[uint32(q.MsgID)] = true, true, true
	}
	if len(seen) != lives || len(psns) != lives || len(pdcs) < lives-1 || len(msgs) < lives-1 {
		t.Errorf("%d lives: %d PSNs, %d PDCIDs, %d message ids", lives, len(psns), len(pdcs), len(msgs))
	}
}
