package main

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/transport/wire"
)

// split is how a datagram with these packets is taken apart.
func split(f *film, kind ifaceKind, cut int, pkts ...[]byte) (lens []int) {
	src, dst := netip.MustParseAddrPort("192.0.2.1:40001"), netip.MustParseAddrPort("192.0.2.2:4793")
	b := f.datagram(src, dst, pkts...)
	fr := &frame{n: 1, at: began, link: layers.LinkTypeRaw, data: b[:len(b)-cut], len: len(b), kind: kind}
	(&decoder{ports: map[uint16]bool{wire.Port: true}}).frame(fr, func(p *packet) { lens = append(lens, p.len) })
	return lens
}

// Whatever a sender puts into one train, with a CRC each packet is found: messages of
// any length and MTU, ACKs and control packets, the last one shorter.
func TestSegmentsFindsTrains(t *testing.T) {
	f := &film{t: t}
	a, _ := f.pair("192.0.2.1:40001", "192.0.2.2:4793", 5)
	a.known = true
	rapid.Check(t, func(t *rapid.T) {
		mtu := rapid.SampledFrom([]int{1024, 2048, 4096, 8192, 700}).Draw(t, "mtu")
		n := rapid.IntRange(1, 7).Draw(t, "packets")
		last := rapid.IntRange(1, mtu).Draw(t, "last")
		whole := (n-1)*mtu + last
		var pkts [][]byte
		for i := range n {
			size := mtu
			if i == n-1 {
				size = last
			}
			pkts = append(pkts, a.req(i, 1, i*mtu, size, whole, 0, -1))
		}
		if len(pkts[n-1]) > len(a.ack(0, 0, 1, 0)) && last < mtu && rapid.Bool().Draw(t, "ack instead") {
			pkts[n-1] = a.ack(0, 0, 1, 0)
			if n == 2 {
				// Nothing would tell how much of a longer message the request has.
				pkts[0] = a.req(0, 1, 0, mtu, mtu, 0, -1)
			}
		}
		got := split(f, ifaceOther, 0, pkts...)
		if len(got) != n {
			t.Fatalf("%d packets, MTU %d, last %d: found %v", n, mtu, last, got)
		}
		for i, p := range pkts {
			if got[i] != len(p)+wire.CRCLen {
				t.Fatalf("packet %d has %d bytes, found %v", i, len(p), got)
			}
		}
	})
}

// One packet stays one, however it is damaged; the tap of an endpoint shows no trains.
func TestSegmentsKeepsOne(t *testing.T) {
	f := &film{t: t}
	a, _ := f.pair("192.0.2.1:40001", "192.0.2.2:4793", 5)
	two := [][]byte{a.req(0, 1, 0, 50, 50, 0, -1), a.req(1, 2, 0, 50, 50, 0, -1)}
	for name, c := range map[string]struct {
		kind ifaceKind
		cut  int
		pkts [][]byte
		want int
	}{
		"one":              {ifaceOther, 0, two[:1], 1},
		"one, cut":         {ifaceOther, 60, two[:1], 1},
		"two":              {ifaceOther, 0, two, 2},
		"two, cut":         {ifaceOther, 150, two, 2},
		"of a tap":         {ifaceTap, 0, two, 1},
		"one CRC for two":  {ifaceOther, 0, [][]byte{slices.Concat(two[0], a.req(1, 2, 0, 46, 46, 0, -1))}, 1},
		"nothing":          {ifaceOther, 0, [][]byte{{}}, 1},
		"too long by four": {ifaceOther, 0, [][]byte{append(a.req(0, 1, 0, 50, 50, 0, -1), 1, 2, 3, 4)}, 1},
	} {
		if got := split(f, c.kind, c.cut, c.pkts...); len(got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
}

// What is behind a packet is found with and without a CRC, and told from a bad one.
func TestTrailer(t *testing.T) {
	a, _ := (&film{t: t}).pair("192.0.2.1:40001", "192.0.2.2:4793", 5)
	trailerOf := func(f *film, cut int, bad bool, pkt []byte) (got trailer) {
		b := f.datagram(a.at, a.other.at, pkt)
		if bad {
			b[len(b)-1] ^= 1
		}
		fr := &frame{n: 1, at: began, link: layers.LinkTypeRaw, data: b[:len(b)-cut], len: len(b)}
		(&decoder{ports: map[uint16]bool{wire.Port: true}}).frame(fr, func(p *packet) { got = p.tail })
		return got
	}
	with, without := &film{t: t}, &film{t: t, noCRC: true}
	for name, pkt := range map[string][]byte{
		"a whole message":     a.req(0, 1, 0, 50, 50, 0, -1),
		"the first of many":   a.req(0, 1, 0, 1024, 5000, 0, -1),
		"one in the middle":   a.req(1, 1, 1024, 1024, 5000, 0, -1),
		"an ACK":              a.ack(0, 0, 1, 0),
		"a NACK":              a.nack(wire.NackTrimmed, 1),
		"a control packet":    a.cp(wire.CtlProbe, 0, 1),
		"an ACK of a CLOSE":   (&wire.Ack{Type: wire.TypeAck, SPDCID: 1, DPDCID: 2}).Append(nil),
		"read data in an ACK": wire.RspData{Opcode: wire.RspWithData, PayloadLen: 3}.Append((&wire.Ack{Type: wire.TypeAck, Next: wire.NextRspData}).Append(nil)),
	} {
		if name == "read data in an ACK" {
			pkt = append(pkt, 1, 2, 3)
		}
		for _, c := range []struct {
			f    *film
			cut  int
			bad  bool
			want trailer
		}{{with, 0, false, trailerOK}, {with, 0, true, trailerBad}, {with, 3, false, trailerCut}, {without, 0, false, trailerNone}} {
			if got := trailerOf(c.f, c.cut, c.bad, pkt); got != c.want {
				t.Errorf("%s, without CRC %v, %d cut, damaged %v: %v, want %v", name, c.f.noCRC, c.cut, c.bad, got, c.want)
			}
		}
	}
}

// What a switch left of a packet has no trailer, and its code point says so; the
// packets of a flow show it where it belongs.
func TestTrimmedPacket(t *testing.T) {
	show := func(tos uint8, keep int) string {
		f := newFilm(t, false)
		a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 3)
		a.send(a.req(0, 1, 0, 1024, 3000, 0, -1))
		b.send(b.ack(0, 0, 1, 0))
		a.known = true
		ip := f.datagram(a.at, b.at, a.req(1, 1, 1024, 1024, 3000, 0, 0))[:20+8+keep]
		ip[1] = tos
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[24:], uint16(8+keep))
		f.frame(ether(ip))
		b.send(b.nack(wire.NackTrimmed, 1))
		var out bytes.Buffer
		if err := dump(&Config{Ports: map[uint16]bool{wire.Port: true}, Msg: -1}, nil, bytes.NewReader(f.bytes()), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, keep := range []int{12, 36, 56, 90} {
		for tos, want := range map[uint8]string{26 << 2: " trimmed\n", 28<<2 | 3: " trimmed-last-hop CE\n", 10 << 2: " crc=bad\n"} {
			if out := show(tos, keep); strings.Count(out, want) != 1 || !strings.Contains(out, "psn=0x") {
				t.Errorf("TOS %#x, %d bytes: no %q in\n%s", tos, keep, want, out)
			}
		}
	}
}

// A packet that opens a PDC by another port of its target has the CRC or ICV for the main port, and is not damaged.
// It is told by the port where one arrived before. No other packet has it.
func TestPacketsThatGoAside(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		f := &film{t: t}
		c := &decoder{}
		if sealed {
			f.seal = sealedBy(t, 1)
			c.keys, _ = parseKeys([]byte(sealedKeys))
		}
		a, b := f.pair("192.0.2.1:40001", "192.0.2.2:40002", 5)
		read := func(crcFor, to string, pkt []byte) string {
			t.Helper()
			b.at = netip.MustParseAddrPort(crcFor)
			ip := f.datagram(a.at, b.at, pkt)
			binary.BigEndian.PutUint16(ip[22:], netip.MustParseAddrPort(to).Port())
			tail := "not UET"
			c.frame(&frame{n: 1, at: began, link: layers.LinkTypeRaw, data: ip, len: len(ip)}, func(p *packet) { tail = p.tail.String() })
			return tail
		}
		syn := a.req(0, 1, 0, 100, 100, 0, -1)
		a.known = true
		other := a.req(1, 1, 0, 100, 100, 0, -1)
		rudi := append(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextReqStd, PktID: 7}.Append(nil), make([]byte, wire.ReqStdLen)...)
		ok, aside, not := "ok", "ok aside", "not UET"
		if sealed {
			ok, aside = "icv ok", "icv ok aside"
		}
		const main, path = "192.0.2.2:40002", "192.0.2.2:50001"
		for i, s := range []struct {
			crcFor, to string
			pkt        []byte
			want       string
		}{
			{main, path, syn, not}, // nothing tells the main port
			{main, main, syn, ok},
			{main, path, syn, aside},
			{main, "192.0.2.2:50002", rudi, aside},
			{main, "192.0.2.2:50003", other, not},
			{"192.0.2.2:40009", "192.0.2.2:50004", syn, not},
			{"192.0.2.2:50005", "192.0.2.2:50005", syn, ok},
		} {
			if got := read(s.crcFor, s.to, s.pkt); got != s.want {
				t.Errorf("sealed %v, packet %d: %s, want %s", sealed, i, got, s.want)
			}
		}
		if s := (&printer{cfg: &Config{}}).notes(&packet{tail: trailerAside}); s != " aside" {
			t.Errorf("%q", s)
		}
		for i := range 100 { // the ports that are remembered are few
			p := a.at
			d := &datagram{src: p, dst: netip.AddrPortFrom(b.at.Addr(), uint16(1000+i))}
			c.opened(d, syn)
		}
		if n := len(c.mains[b.at.Addr()]); n != maxMains {
			t.Errorf("%d ports are remembered", n)
		}
	}
}
