package fabric

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestParseKinds(t *testing.T) {
	ses := (&wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESSOM, ReqLen: 4}).Append
	last := (&wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESEOM, ReqLen: 4}).Append
	req := func(r wire.Req) []byte { return r.Append(nil) }
	ack := func(a wire.Ack) []byte { return a.Append(nil) }
	rsp := func(off uint32) []byte {
		return wire.RspData{List: wire.ListExpected, Opcode: wire.RspWithData, PayloadLen: 8, ModLen: 16, MsgOff: off}.Append(
			req(wire.Req{Type: wire.TypeRODReq, Next: wire.NextRspData, PSN: 9}))
	}
	for _, c := range []struct {
		name  string
		raw   []byte
		sport uint16
		want  hdr
	}{
		{"rud", ses(req(wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: 5, SPDCID: 3, Flags: wire.FlagRETX})), 0,
			hdr{kind: kindData, psn: 5, pdc: 3, flag: wire.FlagRETX}},
		{"syn", last(req(wire.Req{Type: wire.TypeRUDCCReq, Next: wire.NextReqStd, PSN: 5, SPDCID: 3, Flags: wire.FlagSYN, PSNOffset: 2})), 0,
			hdr{kind: kindData, psn: 5, pdc: 3, flag: wire.FlagSYN, start: 3, eom: true}},
		{"medium", wire.ReqMedium{Opcode: wire.OpSend, Flags: wire.SESSOM | wire.SESEOM}.Append(req(wire.Req{Type: wire.TypeRODReq, Next: wire.NextReqMedium, PSN: 1})), 0,
			hdr{kind: kindData, psn: 1, eom: true}},
		{"read data", rsp(0), 0, hdr{kind: kindData, psn: 9}},
		{"end of read data", rsp(8), 0, hdr{kind: kindData, psn: 9, eom: true}},
		{"rudi", ses(wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextReqStd, Flags: wire.RUDIFlagRETX, PktID: 77}.Append(nil)), 0,
			hdr{kind: kindData, psn: 77, flag: wire.FlagRETX}},
		{"uud", last(wire.UUDHdr{Next: wire.NextReqStd}.Append(nil)), 0, hdr{kind: kindData, eom: true}},
		{"ack", ack(wire.Ack{Type: wire.TypeAck, CACK: 10, AckPSNOff: 2, SPDCID: 4, Flags: wire.AckFlagRETX}), 50000, hdr{kind: kindAck, psn: 12, pdc: 4}},
		{"ack of a probe", ack(wire.Ack{Type: wire.TypeAck, CACK: 10, Flags: wire.AckFlagP}), 0, hdr{kind: kindAck}},
		{"ack_cc with a CRC", ack(wire.Ack{Type: wire.TypeAckCC, CACK: 10, AckPSNOff: -1, SPDCID: 4}), 50000, hdr{kind: kindAck, psn: 9, pdc: 4}},
		{"rudi response", (&wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}).Append(wire.RUDIHdr{Type: wire.TypeRUDIRsp, Next: wire.NextRsp, PktID: 77}.Append(nil)), 0,
			hdr{kind: kindAck, psn: 77}},
		{"nack", wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: 8, SPDCID: 2}.Append(nil), 0, hdr{kind: kindNack, psn: 8, pdc: 2}},
		{"control", wire.CP{Ctl: wire.CtlProbe, PSN: 6, SPDCID: 2, Flags: wire.FlagAR}.Append(nil), 0, hdr{kind: kindControl, psn: 6, pdc: 2, flag: wire.FlagAR}},
		{"sealed", append(wire.TSS{SDI: 1}.Append(nil), make([]byte, 60)...), 0, hdr{kind: kindSealed}},
		{"sealed, cut", wire.TSS{SDI: 1}.Append(nil), 0, hdr{}},
		{"no type", make([]byte, 40), 0, hdr{}},
		{"wrong SES", req(wire.Req{Type: wire.TypeRUDReq, Next: wire.NextRsp}), 0, hdr{}},
		{"cut", []byte{2 << 3, 0x80, 0}, 0, hdr{}},
		{"empty", []byte{}, 0, hdr{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h hdr
			ip := pkt{raw: c.raw, sport: c.sport, dport: c.sport}.bytes()
			if n := h.parse(ip, &DefaultClasses); n != len(ip) {
				t.Fatalf("%d bytes, want %d", n, len(ip))
			}
			h.src, h.dst, h.udp, h.end = netip.AddrPort{}, netip.AddrPort{}, 0, 0
			if h != c.want {
				t.Errorf("got  %+v\nwant %+v", h, c.want)
			}
		})
	}
}

// A QUIC packet with a short header may look like an ACK. Without a right CRC it counts as
// one only if the port or the code point says so.
func TestParseQUICLookalike(t *testing.T) {
	a := wire.Ack{Type: wire.TypeAckCC, CACK: 10, SPDCID: 4}
	body := append(a.Append(nil), make([]byte, 20)...)
	for _, c := range []struct {
		name  string
		port  uint16
		dscp  uint8
		want  kind
		right bool
	}{
		{"other port", 40000, 0, kindOther, false},
		{"our port", wire.Port, 0, kindAck, false},
		{"our class", 40000, DefaultClasses.Control, kindAck, false},
	} {
		ip := udpPacket(netip.AddrPortFrom(hostA[0], 40001), netip.AddrPortFrom(hostB[0], c.port), c.dscp<<2, body, false)
		var h hdr
		h.parse(ip, &DefaultClasses)
		if h.kind != c.want {
			t.Errorf("%s: kind %s, want %s", c.name, kindNames[h.kind], kindNames[c.want])
		}
		if c.want == kindOther && (h.psn != 0 || h.pdc != 0) {
			t.Errorf("%s: psn %d and pdc %d of what is no UET packet", c.name, h.psn, h.pdc)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := pkt{payload: 10}.bytes()
	good6 := pkt{payload: 10, v6: true}.bytes()
	change := func(ip []byte, i int, v byte) []byte {
		ip = append([]byte(nil), ip...)
		ip[i] = v
		return ip
	}
	for name, ip := range map[string][]byte{
		"empty":            {},
		"short":            good[:19],
		"version":          change(good, 0, 0x55),
		"header length":    change(good, 0, 0x44),
		"shorter than its": good[:len(good)-1],
		"total length":     change(good, 3, 10),
		"v6 short":         good6[:39],
		"v6 cut":           good6[:len(good6)-1],
	} {
		var h hdr
		if n := h.parse(ip, &DefaultClasses); n != 0 {
			t.Errorf("%s: taken for a packet of %d bytes", name, n)
		}
		r := newRig(t)
		r.send(ip)
		r.run(0)
		if r.whys()[NoRoute] != 1 {
			t.Errorf("%s: %v", name, r.log)
		}
	}
	// This is not UDP, but must be forwarded.
	frag := change(good, 6, 0x20)
	badLen := append([]byte(nil), good...)
	binary.BigEndian.PutUint16(badLen[ipv4Len+4:], 2000)
	for name, ip := range map[string][]byte{"fragment": frag, "UDP length": badLen, "TCP": change(good, 9, 6)} {
		r := newRig(t)
		r.send(ip)
		r.run(0)
		if len(r.out) != 1 || r.log[0].Kind != "other" || r.log[0].Src.Port() != 0 {
			t.Errorf("%s: %+v", name, r.log)
		}
	}
}
