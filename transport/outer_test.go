package transport

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// Each train is verified with the addresses and path by which it came, whatever those of
// the train before it.
func TestOuterIsOfEachTrain(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = []uint16{4793, 4794} })
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
	if !p.a.Transmit(p.now, &p.d) {
		t.Fatal("nothing leaves")
	}
	good := p.a.cfg.Local
	for _, c := range []struct {
		from netip.AddrPort
		path int
		want string
	}{
		{netip.AddrPort{}, 0, "source"}, // the first train of all
		{good, 0, "taken"},
		{netip.AddrPort{}, 0, "source"},
		{netip.MustParseAddrPort("[2001:db8::1]:4793"), 0, "source"},
		{good, 0, "taken"},
		{good, 1, "taken"}, // it opens a PDC by a path port
		{good, 7, "taken"},
		{good, -1, "taken"},
		{netip.AddrPortFrom(good.Addr(), 4794), 0, "crc"},
		{netip.MustParseAddrPort("198.18.0.3:4793"), 0, "crc"},
		{good, 0, "taken"},
	} {
		was := p.b.Stats()
		p.b.Receive(p.now, &dgram.Datagram{Data: append([]byte(nil), p.d.Data...), Seg: len(p.d.Data), Remote: c.from, Path: c.path})
		is, got := p.b.Stats(), ""
		for r := range is.Drops {
			if is.Drops[r] != was.Drops[r] {
				got += DropReason(r).String()
			}
		}
		if is.RxData != was.RxData {
			got += "taken"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", fmt.Sprint(c.from, " by ", c.path), got, c.want)
		}
	}
}

// The CRC of a packet covers the addresses by which it came, whichever PDC it names: the
// prefix that a PDC keeps serves only for packets from the PDC's peer.
func TestOuterIsNotOfThePDCNamed(t *testing.T) {
	s := newStar(t, 2)
	s.know()
	buf := make([]byte, 8)
	for range 2 { // the second ACK finds the PDC open
		s.message(0, buf)
		s.message(1, buf)
		s.exchange()
		s.rest()
	}
	// Leaf 0 sends an ACK that names a PDC of leaf 1, with a CRC of its own and with one of
	// leaf 1.
	s.message(0, buf)
	s.message(1, buf)
	s.drain(s.hub)
	var acks [2][]byte
	for i, f := range s.leaf {
		f.Flush(s.now)
		if !f.Transmit(s.now, &s.d) {
			t.Fatal("no ACK")
		}
		acks[i] = append([]byte(nil), s.d.Data...)
	}
	from := s.leaf[0].cfg.Local
	take := func(b []byte) string {
		was, got := s.hub.Stats(), ""
		s.hub.Receive(s.now, &dgram.Datagram{Data: append([]byte(nil), b...), Seg: len(b), Remote: from})
		is := s.hub.Stats()
		for r := range is.Drops {
			if is.Drops[r] != was.Drops[r] {
				got += DropReason(r).String()
			}
		}
		if is.AcksRx != was.AcksRx {
			got += "taken"
		}
		return got
	}
	if got := take(acks[1]); got != "crc" {
		t.Errorf("with the CRC of the other address: %q", got)
	}
	n := len(acks[1])
	wire.PutCRC(acks[1], wire.CRCPrefix(from.Addr(), s.hub.cfg.Local.Addr(), from.Port(), s.hub.cfg.Local.Port(), uint16(8+n)))
	if got := take(acks[1]); got != "sourcetaken" {
		t.Errorf("with its own: %q", got)
	}
	if got := take(acks[0]); got != "taken" {
		t.Errorf("the true one: %q", got)
	}

	// The train before it left the outer of another way.
	hub := s.hub.cfg.Local
	b := (&wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, SPDCID: 77, DPDCID: 88, ClearOff: -1}).Append(nil)
	b = (&wire.ReqStd{}).Append(b)
	b = wire.AppendCRC(b, 0, wire.CRCPrefix(from.Addr(), hub.Addr(), from.Port(), hub.Port(), uint16(8+len(b)+wire.CRCLen)))
	if got := take(b); got != "no_pdc" {
		t.Errorf("a request to no PDC: %q", got)
	}
	s.message(1, buf)
	s.exchange()
	if got := take(b); got != "no_pdc" {
		t.Errorf("a request to no PDC, behind an ACK of another: %q", got)
	}
}

// The prefix that a PDC keeps does not serve for packets that came to another port of the
// FEP.
func TestOuterIsOfThePort(t *testing.T) {
	p := newPipe(t, func(c *Config) { c.Paths = []uint16{4793, 4794} })
	for range 2 {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
		p.move(p.a, p.b)
		p.b.Flush(p.now)
		if !p.b.Transmit(p.now, &p.d) {
			t.Fatal("no ACK")
		}
		for _, c := range []struct {
			path int
			crc  uint64
		}{{1, 1}, {0, 0}} {
			f, was := p.a, p.a.Stats()
			f.rx.outer.path = -1 // as if another train had arrived in between
			f.Receive(p.now, &dgram.Datagram{Data: append([]byte(nil), p.d.Data...), Seg: len(p.d.Data), Remote: p.b.cfg.Local, Path: c.path})
			if is := f.Stats(); is.Drops[DropCRC]-was.Drops[DropCRC] != c.crc || is.AcksRx-was.AcksRx != 1-c.crc {
				t.Errorf("by path %d: %d dropped for their CRC, want %d", c.path, is.Drops[DropCRC]-was.Drops[DropCRC], c.crc)
			}
		}
	}
}

// With Standard encapsulation one peer sends from several ports. The CRC state of a train from one
// does not serve for those from another.
func TestStandardSourceIsSeen(t *testing.T) {
	p := newPipe(t, func(c *Config) {
		c.Encapsulation, c.Paths = wire.Standard, []uint16{4793, 50001, 50002}
	})
	ports := map[uint16]int{}
	for i := range 60 {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 8)})
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: make([]byte, 8)})
		for p.a.Transmit(p.now, &p.d) {
			port := p.a.cfg.Paths[p.d.Path]
			ports[port]++
			p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data, Seg: p.d.Seg, Remote: netip.AddrPortFrom(p.a.cfg.Local.Addr(), port)})
		}
		if n := p.b.Stats().Drops[DropCRC]; n != 0 {
			t.Fatalf("message %d: %d packets dropped for their CRC, ports %v", i, n, ports)
		}
		p.exchange()
	}
	if ports[4793] == 0 || len(ports) != 3 {
		t.Errorf("ports %v: the test does not test", ports)
	}
}
