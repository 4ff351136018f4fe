package transport

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestFEPWrites(t *testing.T) {
	// R-RMA-01, -02: writes of any length arrive where their address says, by RUD and ROD, with
	// and without loss.
	for _, n := range []int{0, 1, 1024, 1025, 65536, 1 << 20} {
		for _, ordered := range []bool{false, true} {
			for _, lossy := range []bool{false, true} {
				t.Run(fmt.Sprint(n, ordered, lossy), func(t *testing.T) {
					p := newPipe(t, nil)
					mem, src := make([]byte, n+200), pattern(n, 1)
					if _, err := p.b.Register(RegionConfig{Key: 3, Buf: mem, Access: RemoteWrite, Endpoint: AllEndpoints, Context: "m"}); err != nil {
						t.Fatal(err)
					}
					if k := 0; lossy {
						p.drop = func(*FEP, []byte) bool { k++; return k%7 == 3 }
					}
					p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: 3, RemoteAddr: 100, Buf: src, Ordered: ordered, Data: 5, HasData: true, Context: "w"})
					var got []string
					for end := p.now + 10*time.Second; p.now < end && len(got) < 2; p.now += 100 * time.Microsecond {
						p.a.Advance(p.now)
						p.b.Advance(p.now)
						p.exchange()
						for e := p.b.NextEvent(); e != nil; e = p.b.NextEvent() {
							got = append(got, fmt.Sprint(e.Kind, e.Context, e.Cause, e.Len, e.Data, e.HasData))
						}
						got = append(got, p.events(p.a)...)
					}
					if want := []string{fmt.Sprint(OpRemoteWrite, "m", OK, n, 5, true), "w ok"}; fmt.Sprint(got) != fmt.Sprint(want) {
						t.Fatalf("events %q, want %q", got, want)
					}
					if !bytes.Equal(mem[100:100+n], src) || bytes.Count(mem[:100], []byte{0})+bytes.Count(mem[100+n:], []byte{0}) != 200 {
						t.Error("other bytes")
					}
				})
			}
		}
	}
}

func TestFEPRefusedWrites(t *testing.T) {
	// R-RMA-09: each reason reaches the initiator, guaranteed; the target hears of nothing.
	p := newPipe(t, nil)
	if _, err := p.b.Register(RegionConfig{Key: 1, Buf: make([]byte, 100), Access: RemoteRead, Endpoint: AllEndpoints}); err != nil {
		t.Fatal(err)
	}
	reg, err := p.b.Register(RegionConfig{Key: 2, Buf: make([]byte, 100), Access: RemoteWrite, Endpoint: AllEndpoints})
	if err != nil {
		t.Fatal(err)
	}
	write := func(key, addr uint64, n int, want wire.RC) {
		t.Helper()
		p.post(p.a, Op{Kind: OpWrite, Peer: p.toB, RI: 15, Key: key, RemoteAddr: addr, Buf: make([]byte, n), Data: 1, HasData: true})
		p.exchange()
		if e := p.a.NextEvent(); e == nil || e.Kind != OpWrite || e.RC != want || (e.Cause == Rejected) != (want != 0) {
			t.Errorf("key %d: %+v, want %v", key, e, want)
		}
		if e := p.b.NextEvent(); (e != nil) != (want == 0) {
			t.Errorf("key %d: the target has the event %+v", key, e)
		}
	}
	write(7, 0, 10, wire.RCBadMKey)
	write(1, 0, 10, wire.RCPermViolation)
	write(2, 91, 10, wire.RCBadAddr)
	write(2, 0, 5000, wire.RCBadAddr)
	write(2, 90, 10, 0)
	p.b.Deregister(reg)
	write(2, 90, 10, wire.RCBadMKey)
	p.checkIdle()
}
