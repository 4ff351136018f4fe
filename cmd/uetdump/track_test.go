package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/uetkit/uetkit/transport/wire"
)

// A trail is a tracker that is fed packet by packet.
type trail struct {
	*tracker
	t   *testing.T
	f   *film
	dec *decoder
}

func newTrail(t *testing.T) *trail {
	return &trail{newTracker(), t, &film{t: t, at: began}, &decoder{allPorts: true}}
}

// sees feeds one packet and returns its note.
func (tr *trail) sees(p *peer, pkt []byte) (n note) {
	tr.t.Helper()
	tr.f.wait(time.Millisecond)
	b := tr.f.datagram(p.at, p.other.at, pkt)
	tr.dec.frame(&frame{n: 1, at: tr.f.at, link: layers.LinkTypeRaw, data: b, len: len(b)}, func(k *packet) { n = tr.packet(k) })
	return n
}

func (tr *trail) wantPDCs(want ...string) {
	tr.t.Helper()
	var got []string
	for _, p := range tr.pdcs {
		got = append(got, fmt.Sprintf("%v > %v, %s", p.ends[0], p.ends[1], p.endText()))
	}
	if !slices.Equal(got, want) {
		tr.t.Errorf("PDCs\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// UE 3.5.8: two ends on one host, under one PDCID each, are told apart by their ports.
func TestTrackSameHostSameID(t *testing.T) {
	tr := newTrail(t)
	a, b := tr.f.pair("127.0.0.1:1000", "127.0.0.1:2000", 7)
	b.id = 7
	tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1))
	if n := tr.sees(b, b.ack(0, 0, 1, 0)); n.from != 1 || !n.hasRel || n.rel != 0 {
		t.Errorf("%+v", n)
	}
	a.known = true
	if n := tr.sees(a, a.req(1, 2, 0, 8, 8, 0, 0)); n.from != 0 || n.rel != 1 {
		t.Errorf("%+v", n)
	}
	tr.wantPDCs("127.0.0.1:1000/7 > 127.0.0.1:2000/7, 1 unanswered")
	if n := tr.sees(b, b.ack(1, 1, 2, 0)); n.from != 1 || n.rel != 1 {
		t.Errorf("%+v", n)
	}
	tr.wantPDCs("127.0.0.1:1000/7 > 127.0.0.1:2000/7, open, at rest")
}

// S-PKT-02, S-PKT-03: with Standard encapsulation all goes to port 4793, and the source ports are
// entropy values: those of a first flight, and those that ACKs repeat. It is one PDC.
func TestTrackStandard(t *testing.T) {
	tr := newTrail(t)
	a, b := tr.f.pair("192.0.2.1:4793", "192.0.2.2:4793", 7)
	to, byEnd, byPort := b.at, &pdcName{addr: a.at, id: 7}, &pdcName{addr: netip.MustParseAddrPort("192.0.2.1:50001"), id: 7}
	from := func(p *peer, ev uint16, pkt []byte) note {
		own := p.at
		p.at = netip.AddrPortFrom(own.Addr(), ev)
		n := tr.sees(p, pkt)
		p.at = own
		return n
	}
	for i, ev := range []uint16{50001, 50002, 50003} {
		if n := from(a, ev, a.req(i, 1, 0, 8, 8, 0, -1)); n.pdc == nil || n.pdc.n != 1 || n.rel != int32(i) || !byEnd.is(n.pdc) {
			t.Fatalf("packet %d of the first flight: %+v", i, n)
		}
	}
	if n := from(b, 50002, b.ack(2, 2, 1, 0)); n.pdc == nil || n.pdc.n != 1 || n.from != 1 || n.cack != 2 {
		t.Errorf("ACK: %+v", n)
	}
	a.known = true
	if n := from(a, 50004, a.req(3, 2, 0, 8, 8, 0, 2)); n.pdc == nil || n.pdc.n != 1 || n.from != 0 || n.rel != 3 {
		t.Errorf("a later packet: %+v", n)
	}
	if p := tr.pdcs[0]; !byEnd.is(p) || byPort.is(p) || p.ends[1].addr != to {
		t.Errorf("its ends are %v", p.ends)
	}
	from(b, 50004, b.ack(3, 3, 2, 0))
	tr.wantPDCs("192.0.2.1:4793/7 > 192.0.2.2:4793/57, open, at rest")
}

// UE 3.5.8, NACK 0x17: all comes again from another Start_PSN, on the same PDC; a SYN
// with any other Start_PSN is another life.
func TestTrackRenumbered(t *testing.T) {
	tr := newTrail(t)
	a, b := tr.f.pair("192.0.2.1:1", "192.0.2.2:2", 7)
	tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1))
	nack := wire.Nack{Type: wire.TypeNack, Code: wire.NackNewStartPSN, PSN: a.start, DPDCID: a.id, Payload: 0x5000000}
	tr.sees(b, nack.Append(nil))
	a.start, b.start = 0x5000000, 0x5000000
	if n := tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1)); n.rel != 0 || n.times != 1 || n.pdc == nil || n.pdc.n != 1 {
		t.Errorf("%+v", n)
	}
	tr.sees(b, b.ack(0, 0, 1, 0))
	tr.wantPDCs("192.0.2.1:1/7 > 192.0.2.2:2/57, open, at rest")
	a.start, b.id = 0x7000000, 99
	if n := tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1)); n.pdc.n != 2 {
		t.Errorf("%+v", n)
	}
	tr.wantPDCs("192.0.2.1:1/7 > 192.0.2.2:2/57, open, at rest", "192.0.2.1:1/7 > 192.0.2.2:2/?, 1 unanswered")
}

// A capture that begins in the middle: PSNs count from the first one that was seen,
// an older one from before it is no news, and what an ACK passed is not owed.
func TestTrackLateCapture(t *testing.T) {
	tr := newTrail(t)
	a, b := tr.f.pair("192.0.2.1:1", "192.0.2.2:2", 7)
	a.known = true
	if n := tr.sees(a, a.req(100, 1, 0, 8, 8, 0, 90)); n.rel != 0 {
		t.Errorf("%+v", n)
	}
	if n := tr.sees(a, a.req(98, 1, 0, 8, 8, wire.FlagRETX, 90)); !n.unseen {
		t.Errorf("%+v", n)
	}
	tr.sees(b, b.ack(100, 100, 1, 0))
	tr.wantPDCs("192.0.2.1:1/7 > 192.0.2.2:2/57, open, at rest")

	// Its first packet is an ACK: the other end opened it, most likely.
	c, d := tr.f.pair("192.0.2.3:1", "192.0.2.4:2", 8)
	c.known = true
	tr.sees(d, d.ack(5, 5, 1, 0))
	tr.sees(c, c.req(6, 1, 0, 8, 8, 0, 5))
	tr.wantPDCs("192.0.2.1:1/7 > 192.0.2.2:2/57, open, at rest", "192.0.2.3:1/8 > 192.0.2.4:2/58, 1 unanswered")
}

// What no honest sender sends takes no more room than what one does: PSNs far apart,
// more of them than are kept.
func TestTrackFarNumbers(t *testing.T) {
	tr := newTrail(t)
	a, b := tr.f.pair("192.0.2.1:1", "192.0.2.2:2", 7)
	a.known = true
	for i := range 20 {
		tr.sees(a, a.req(i*1e8, 1, 0, 8, 8, 0, i*1e8-1))
	}
	d := &tr.pdcs[0].dir[0]
	if d.open != 20 {
		t.Fatalf("%d open", d.open)
	}
	tr.sees(b, (&wire.Ack{Type: wire.TypeAck, SPDCID: b.id, DPDCID: a.id, CACK: a.start.Add(19e8)}).Append(nil))
	if d.open != 0 || len(d.sent) != 0 {
		t.Errorf("%d open of %d", d.open, len(d.sent))
	}
	for i := range maxSent + 100 {
		tr.sees(a, a.req(20e8+i, 1, 0, 8, 8, 0, -1))
	}
	if len(d.sent) > maxSent || d.open != len(d.sent) {
		t.Errorf("%d kept, %d open", len(d.sent), d.open)
	}
}

// A packet whose CRC does not verify counts for nothing: the other end drops it.
func TestTrackIgnoresDamaged(t *testing.T) {
	tr := newTrail(t)
	a, _ := tr.f.pair("192.0.2.1:1", "192.0.2.2:2", 7)
	b := tr.f.datagram(a.at, a.other.at, a.req(0, 1, 0, 8, 8, 0, -1))
	b[len(b)-1] ^= 1
	tr.dec.frame(&frame{n: 1, at: began, link: layers.LinkTypeRaw, data: b, len: len(b)}, func(k *packet) { tr.packet(k) })
	tr.wantPDCs()
}

// UE 3.5.11: a resend says so by RETX; what is there twice without it is a copy.
func TestTrackCopies(t *testing.T) {
	tr := newTrail(t)
	a, _ := tr.f.pair("192.0.2.1:1", "192.0.2.2:2", 7)
	tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1))
	if n := tr.sees(a, a.req(0, 1, 0, 8, 8, 0, -1)); !n.copied || n.times != 1 {
		t.Errorf("%+v", n)
	}
	if n := tr.sees(a, a.req(0, 1, 0, 8, 8, wire.FlagRETX, -1)); n.copied || n.times != 2 || n.after != 2*time.Millisecond {
		t.Errorf("%+v", n)
	}
	tr.sees(a, a.cp(wire.CtlClose, 1, 0))
	tr.sees(a, a.cp(wire.CtlClose, 1, 0))
	if d := &tr.pdcs[0].dir[0]; d.packets != 2 || d.resends != 1 || d.bytes != 8 {
		t.Errorf("%d packets, %d resends, %d bytes", d.packets, d.resends, d.bytes)
	}
}
