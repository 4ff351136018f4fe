package tss

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/transport/wire"
)

// T23: of WindowLen packets behind the newest each is fresh once, in any order; older ones
// never are. A map is the twin.
func TestT23WindowMatchesDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		was := map[uint64]bool{}
		top := rapid.Uint64Range(0, wire.TSCMax-1<<20).Draw(t, "first")
		first := true
		step := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64Range(-WindowLen-2, WindowLen+2), rapid.Int64Range(-130, 130))
		for range 200 {
			tsc := uint64(max(int64(top)+step.Draw(t, "step"), 0))
			wantOld := !first && tsc+WindowLen <= top
			gotWas, gotOld := w.seen(tsc)
			if gotOld != wantOld || !wantOld && gotWas != was[tsc] {
				t.Fatalf("%d with top %d: seen %v, old %v; want %v, %v", tsc, top, gotWas, gotOld, was[tsc], wantOld)
			}
			was[tsc] = true
			if first || tsc > top {
				top = tsc
			}
			first = false
		}
	})
}

// T23: after a step of any size the window knows which of its TSCs came.
func TestT23WindowSlides(t *testing.T) {
	for _, first := range []uint64{0, 1, 63, 64, 100} {
		for _, step := range []uint64{1, 2, 62, 63, 64, 65, 66, 126, 127, 128, 129, WindowLen - 1, WindowLen, WindowLen + 1, 3 * WindowLen} {
			var w window
			for i := range uint64(WindowLen) {
				w.seen(first + i)
			}
			last := first + WindowLen - 1
			top := last + step
			if was, old := w.seen(top); was || old {
				t.Fatalf("first %d, step %d: the newest was there", first, step)
			}
			kept := w
			for tsc := first; tsc <= top; tsc++ {
				w = kept // seen marks what it is asked about
				was, old := w.seen(tsc)
				if wantOld := tsc+WindowLen <= top; old != wantOld || !old && was != (tsc <= last || tsc == top) {
					t.Fatalf("first %d, step %d, TSC %d: seen %v, old %v", first, step, tsc, was, old)
				}
			}
		}
	}
}

// T23, S-TSC-04: a datagram without PDC that is repeated is fresh once. Each source, each of
// its epochs and each AN has a window of its own.
func TestT23ReplayedDatagram(t *testing.T) {
	p := pairOf(t, cluster)
	fresh := func(d *Domain, pkt []byte, wantFresh bool) {
		t.Helper()
		want(t, p.b, 0, pkt, nil, d.cfg.Local, Good, "uud")
		if got := p.b.Fresh(); got != wantFresh {
			t.Fatalf("fresh: %v, want %v", got, wantFresh)
		}
	}
	first := sealPacket(t, p.a, "uud", nil)
	second := sealPacket(t, p.a, "uud", nil)
	fresh(p.a, second, true)
	fresh(p.a, first, true) // late is not replayed
	fresh(p.a, first, false)
	fresh(p.a, second, false)

	// Another source uses the same TSC.
	c := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 0xc, Local: addrC})
	install(t, c, 0, keyOf(1))
	use(t, c, 0, 0, 0, 100)
	fresh(c, sealPacket(t, c, "uud", nil), true)

	// After WindowLen more the first is too old to tell.
	for range WindowLen {
		p.a.next++
	}
	fresh(p.a, sealPacket(t, p.a, "uud", nil), true)
	fresh(p.a, first, false)
	fresh(p.a, second, false)
	if s := p.b.Stats(); s.Replayed != 4 || s.Late != 2 || s.Windows != 2 || s.Sources != 2 {
		t.Fatalf("%+v", s)
	}

	// The other AN uses the same TSC.
	install(t, p.a, 1, keyOf(2))
	install(t, p.b, 1, keyOf(2))
	use(t, p.a, 0, 1, 0, 100)
	third := sealPacket(t, p.a, "uud", nil)
	fresh(p.a, third, true)
	fresh(p.a, third, false)
	fresh(p.a, first, false) // the old key still opens, but gives no second chance
}

// T23: Fresh is about the packet that Open accepted last, once, and about no dropped packet.
func TestFreshIsAboutTheLastPacket(t *testing.T) {
	p := pairOf(t, cluster)
	if p.b.Fresh() {
		t.Fatal("before any packet")
	}
	pkt := sealPacket(t, p.a, "x", nil)
	want(t, p.b, 0, pkt, nil, addrA, Good, "x")
	bad := append([]byte(nil), pkt...)
	bad[len(bad)-1] ^= 1
	want(t, p.b, 0, bad, nil, addrA, DropAuth, "")
	if p.b.Fresh() {
		t.Fatal("of a packet refused")
	}
	want(t, p.b, 0, pkt, nil, addrA, Good, "x")
	if !p.b.Fresh() || p.b.Fresh() {
		t.Fatal("fresh once")
	}
	if s := p.b.Stats(); s.Windows != 1 || s.Replayed != 0 {
		t.Fatalf("asking twice is no replay: %+v", s)
	}
	want(t, p.b, 0, pkt, nil, addrA, Good, "x")
	p.b.Revoke(0)
	if p.b.Fresh() {
		t.Fatal("under a key that is gone")
	}
	if s := p.b.Stats(); s.Windows != 0 || s.Sources != 0 {
		t.Fatalf("%+v", s)
	}
}
