package transport

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/uetkit/uetkit/transport/dgram"
)

// Each train is judged by its own way, whatever way the one before it came.
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
		{netip.AddrPort{}, 0, "source"}, // the first of all
		{good, 0, "taken"},
		{netip.AddrPort{}, 0, "source"},
		{netip.MustParseAddrPort("[2001:db8::1]:4793"), 0, "source"},
		{good, 0, "taken"},
		{good, 1, "crc"}, // of other ports
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
