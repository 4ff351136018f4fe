package pds

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestF34PSNRangeReopens(t *testing.T) {
	// F34, UE 3.5.8 (Limit_PSN_Range): a PDC that has used its range accepts no new
	// message, ends the one that has begun, and closes. Another PDC replaces it.
	for _, how := range []Secure{SecureNone, SecureZeroRTT, SecureOneRTT} {
		d := newDuo(t, how, func(c *Config) { c.MaxRange = 8 })
		if how == SecureNone {
			d.i.who, d.r.who = 0, 0
		}
		var last *PDC
		for life := range 4 {
			msg := 11 * life
			p := d.open(wire.RUD, msg, 7)
			if last != nil && how == SecureZeroRTT && p.start != last.start+1 {
				t.Errorf("life %d starts at %#x after %#x", life, uint32(p.start), uint32(last.start))
			}
			if !p.Usable() {
				t.Fatal("closed before its range is used up")
			}
			d.push(p, msg+7, 1)
			if p.Usable() || p.State() != Quiesce {
				t.Fatalf("%v takes new messages", p)
			}
			d.push(p, msg+8, 3) // the rest of the message
			d.exchange(d.all[len(d.all)-11:]...)
			d.i.tab.Drained(d.now, p)
			d.exchange()
			if p.State() != Closed || d.r.tab.Len() != 0 {
				t.Fatalf("%v; %d PDCs at the target", p, d.r.tab.Len())
			}
			last = p
		}
		d.wantOnce(0, 43)
	}
	if New(testConfig(), nil, nil).cfg.MaxRange+1<<22 > 1<<31-1 {
		t.Error("the range that is the default leaves no room for the end of a message")
	}
}

func TestF34RangeAcrossTheWrap(t *testing.T) {
	// F34: the range is counted from Start_PSN, whatever that is.
	for _, start := range []wire.PSN{0, 1<<31 - 4, 1<<32 - 4} {
		d := newDuo(t, SecureNone, func(c *Config) { c.MaxRange, c.StartPSN = 8, func() wire.PSN { return start } })
		d.i.who, d.r.who = 0, 0
		p := d.open(wire.ROD, 0, 7)
		if p.State() != Creating {
			t.Errorf("%v after 7 packets", p)
		}
		d.push(p, 7, 1)
		d.exchange(d.all...)
		d.close(p)
		d.wantOnce(0, 7)
	}
}

func TestF34PDCIDWrap(t *testing.T) {
	// F34, T39: every PDCID is used once and 0 never. When all are in use or in quarantine,
	// both sides refuse to open PDCs. After its quarantine a PDCID is used again, far from
	// its earlier PSNs.
	x := newTable(t, func(c *Config) { c.MaxPDCs, c.MaxQuarantine = 1<<17, 1<<17 })
	var seen [1 << 16]bool
	all := make([]*PDC, 0, 1<<16)
	for range 1<<16 - 1 {
		p := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
		if p == nil || p.id == 0 || seen[p.id] {
			t.Fatalf("PDC %d: %v", len(all), p)
		}
		seen[p.id] = true
		all = append(all, p)
	}
	refused := func() {
		t.Helper()
		if p := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc); p != nil {
			t.Fatalf("opened %v", p)
		}
		x.recv(0)
		x.wantLoose("NACK NO_PDC_AVAIL")
	}
	refused()
	p := all[4711]
	x.p = p
	x.push(3)
	x.tab.fail(x.now, p, Reason{Why: WhyTimeout})
	refused() // its PDCID is in quarantine
	x.now += 4 * time.Second
	q := x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	if q == nil || q.id != p.id {
		t.Fatalf("opened %v, want PDCID %d", q, p.id)
	}
	if d := q.start.Sub(p.start); d > -startGap && d < startGap+3 {
		t.Errorf("starts %d from the PDC before", d)
	}
	refused()
}
