package main

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/uetkit/uetkit/transport/wire"
)

// everything are the ways to look at a capture.
func everything() []*Config {
	ports := map[uint16]bool{wire.Port: true}
	return []*Config{
		{Ports: ports, Msg: -1, Verbose: true, Hex: true, Trailers: true, Explain: true, Summary: false},
		{AllPorts: true, Msg: -1, JSON: true, Explain: true, PDC: &pdcName{n: 1}},
		{AllPorts: true, Msg: 1, Summary: true, Explain: true, At: moment{set: true, rel: true, after: time.Millisecond}},
		{AllPorts: true, Msg: -1, Ops: true, Explain: true},
		{AllPorts: true, Msg: -1, Ops: true, JSON: true, Count: 3},
		{AllPorts: true, Msg: -1, Ops: true, Summary: true},
	}
}

// Whatever is in a file: it is read to its end or refused, and nothing panics.
func FuzzCapture(f *testing.F) {
	names, err := filepath.Glob("testdata/captures/*")
	if err != nil || len(names) == 0 {
		f.Fatal("no captures", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 5000 {
			f.Add(b)
		}
	}
	keys, err := parseKeys([]byte(sealedKeys))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, cfg := range everything() {
			_ = dump(cfg, keys, bytes.NewReader(b), io.Discard)
		}
	})
}

// The same of packets: several of them, between the same ends, each behind its length.
func FuzzPackets(f *testing.F) {
	seeds := &film{t: f, noCRC: true}
	a, b := seeds.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	var seed []byte
	for _, p := range [][]byte{
		a.req(0, 1, 0, 64, 128, 0, -1), a.req(1, 1, 64, 64, 128, wire.FlagRETX, -1), b.ack(0, 0, 1, wire.ReqClear, 1), b.nack(wire.NackNewStartPSN, 1),
		a.cp(wire.CtlClear, 0, 0x5000), b.cp(wire.CtlClearReq, 0, 0x5000), a.cp(wire.CtlClose, 2, 0), a.cp(wire.CtlProbe, 0, 1),
		wire.TSS{SP: true, SDI: 1, AN: 1}.Append(nil),
		a.access(3, 0, part{op: wire.OpRead, msg: 2, whole: 64, size: 32}), b.gives(0, 0, 2, 0, 16, 64, wire.RCOK), b.says(3, 3, wire.RspResponse, wire.RCBadMKey, 2), b.ackData(3, 3, 2, 8),
		a.access(4, 0, part{op: wire.OpAtomic, msg: 3, whole: 8, size: 8, ext: wire.Atomic{}.Append(nil)}),
		rudi(wire.TypeRUDIReq, wire.NextReqStd, 0, 9, part{op: wire.OpWrite, msg: 4, whole: 8, size: 8}.ses()), rudi(wire.TypeRUDIRsp, wire.NextRsp, 0, 9, response(4, wire.RCOK)),
	} {
		seed = append(append(seed, byte(len(p))), p...)
	}
	f.Add(seed, uint8(0))
	keys, err := parseKeys([]byte(sealedKeys))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		v := &film{t: t, noCRC: how&1 == 0, native: how&2 != 0}
		src, dst := netip.MustParseAddrPort("192.0.2.1:4793"), netip.MustParseAddrPort("192.0.2.2:4793")
		for _, cfg := range everything() {
			dec := &decoder{ports: cfg.Ports, allPorts: cfg.AllPorts, keys: keys}
			pr := newPrinter(cfg, io.Discard)
			at := began
			rest := b
			for n := 1; len(rest) > 0; n++ {
				k := min(int(rest[0]), len(rest)-1)
				pkt := rest[1 : 1+k]
				rest = rest[1+k:]
				at = at.Add(time.Microsecond)
				if n%3 == 0 {
					src, dst = dst, src
				}
				fr := &frame{n: n, at: at, link: layers.LinkTypeRaw, data: v.datagram(src, dst, pkt)}
				fr.len = len(fr.data) + int(how>>2)
				pr.begin(fr)
				dec.frame(fr, pr.packet)
			}
			if err := pr.end(dec); err != nil {
				t.Fatal(err)
			}
		}
	})
}
