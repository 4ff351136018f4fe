package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/wire"
)

// The captures of testdata/captures are made here, so that what is in them can be
// read: go test ./cmd/uetdump -rewrite writes them, and what the scripts compare.
var rewrite = flag.Bool("rewrite", false, "write testdata/captures and the expected output in testdata/script anew")

// A film is a capture in the making.
type film struct {
	t   testing.TB
	out bytes.Buffer
	ng  *pcapgo.NgWriter
	old *pcapgo.Writer
	at  time.Time
	// cut is how many bytes of each frame are kept, 0: all.
	cut int
	// noCRC leaves out the trailer; seal, if not nil, seals instead.
	noCRC bool
	seal  *tss.Domain
	// comment, direction and interface of what is written next.
	comment string
	iface   int
	native  bool
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newFilm(t testing.TB, ng bool, ifaces ...pcapgo.NgInterface) *film {
	f := &film{t: t, at: began}
	var err error
	switch {
	case ng:
		f.ng, err = pcapgo.NewNgWriterInterface(&f.out, ifaces[0], pcapgo.NgWriterOptions{})
		for _, i := range ifaces[1:] {
			if err == nil {
				_, err = f.ng.AddInterface(i)
			}
		}
	default:
		f.old = pcapgo.NewWriterNanos(&f.out)
		err = f.old.WriteFileHeader(262144, layers.LinkTypeEthernet)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *film) bytes() []byte {
	if f.ng != nil {
		if err := f.ng.Flush(); err != nil {
			f.t.Fatal(err)
		}
	}
	return f.out.Bytes()
}

// wait lets time pass.
func (f *film) wait(d time.Duration) { f.at = f.at.Add(d) }

// frame writes one frame as it is.
func (f *film) frame(b []byte) {
	n := len(b)
	if f.cut > 0 {
		b = b[:min(n, f.cut)]
	}
	ci := gopacket.CaptureInfo{Timestamp: f.at, CaptureLength: len(b), Length: n, InterfaceIndex: f.iface}
	var err error
	if f.ng != nil {
		var opts pcapgo.NgPacketOptions
		if f.comment != "" {
			opts.Comments = []string{f.comment}
		}
		err = f.ng.WritePacketWithOptions(ci, b, opts)
	} else {
		err = f.old.WritePacket(ci, b)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.at = f.at.Add(10 * time.Microsecond)
}

// datagram is the IP packet with packets in it, of which each but the last has the
// same length: a train, if there is more than one.
func (f *film) datagram(src, dst netip.AddrPort, pkts ...[]byte) []byte {
	var body []byte
	for _, p := range pkts {
		body = append(body, f.trailer(src, dst, p)...)
	}
	if f.native {
		return ipPacket(src.Addr(), dst.Addr(), protoUET, append(wire.Entropy{EV: src.Port()}.Append(nil), body...))
	}
	udp := binary.BigEndian.AppendUint16(nil, src.Port())
	udp = binary.BigEndian.AppendUint16(udp, dst.Port())
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(body)))
	return ipPacket(src.Addr(), dst.Addr(), protoUDP, append(append(udp, 0, 0), body...))
}

// trailer is a packet with its trailer, sealed if it is to be.
func (f *film) trailer(src, dst netip.AddrPort, p []byte) []byte {
	d := datagram{src: src, dst: dst, ev: src.Port(), native: f.native}
	switch {
	case f.seal != nil:
		b, ok := f.seal.Begin(nil)
		if !ok {
			f.t.Fatal("nothing to seal with")
		}
		b = append(append(b, p...), make([]byte, wire.ICVLen)...)
		var ob [wire.OuterMax]byte
		f.seal.Seal(b, d.outer(&ob, len(b)))
		return b
	case f.noCRC:
		return p
	}
	return wire.AppendCRC(slices.Clone(p), 0, d.prefix(len(p)+wire.CRCLen))
}

func ipPacket(src, dst netip.Addr, proto uint8, body []byte) []byte {
	if src.Is4() {
		h := []byte{0x45, 0x02, 0, 0, 0, 0, 0x40, 0, 64, proto, 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(body)))
		h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
		return append(h, body...)
	}
	h := []byte{0x60, 0x20, 0, 0, 0, 0, proto, 64}
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	return append(h, body...)
}

// ether puts an Ethernet header with VLAN tags in front of an IP packet.
func ether(ip []byte, tags ...uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, 11, 2, 0, 0, 0, 0, 10}
	for _, t := range tags {
		b = append(binary.BigEndian.AppendUint16(b, t), 0, 7)
	}
	return append(binary.BigEndian.AppendUint16(b, etherOf(ip)), ip...)
}

func etherOf(ip []byte) uint16 {
	if ip[0]>>4 == 4 {
		return etherIPv4
	}
	return etherIPv6
}

// A peer is one end of a PDC in a film; other the other one.
type peer struct {
	f     *film
	at    netip.AddrPort
	id    uint16
	other *peer
	start wire.PSN
	known bool // the other's PDCID
	mode  wire.Type
}

// pair makes the two ends of a PDC.
func (f *film) pair(a, b string, id uint16) (*peer, *peer) {
	start := wire.PSN(0x1000) * wire.PSN(id)
	p := &peer{f: f, at: netip.MustParseAddrPort(a), id: id, start: start, mode: wire.TypeRUDReq}
	q := &peer{f: f, at: netip.MustParseAddrPort(b), id: id + 50, start: start, known: true, mode: wire.TypeRUDReq}
	p.other, q.other = q, p
	return p, q
}

// send writes one datagram.
func (p *peer) send(pkts ...[]byte) { p.f.frame(ether(p.f.datagram(p.at, p.other.at, pkts...))) }

// req is the packet with the n-th PSN of a message: som and eom say which part.
func (p *peer) req(n int, msg uint16, off, size, whole int, flags wire.Flags, clear int) []byte {
	h := wire.Req{Type: p.mode, Next: wire.NextReqStd, Flags: flags, PSN: p.start.Add(n), SPDCID: p.id, ClearOff: int16(clear - n)}
	if p.known {
		h.DPDCID = p.other.id
	} else {
		h.Flags |= wire.FlagSYN
		h.PSNOffset = uint16(n)
	}
	m := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESREL, MsgID: msg, JobID: 1, RI: 15, Initiator: 16, Match: 7, ReqLen: uint32(whole)}
	if off == 0 {
		m.Flags |= wire.SESSOM
	} else {
		m.MsgOff, m.PayloadLen = uint32(off), uint16(size)
	}
	if off+size == whole {
		m.Flags |= wire.SESEOM
	}
	b := m.Append(h.Append(nil))
	for i := range size {
		b = append(b, byte(i))
	}
	return b
}

// ack names the n-th PSN; sack are further ones that arrived.
func (p *peer) ack(n, cack int, msg uint16, req wire.AckReq, sack ...int) []byte {
	cp := p.start.Add(cack)
	a := wire.Ack{
		Type: wire.TypeAckCC, Next: wire.NextRsp, Req: req, AckPSNOff: int16(n - cack), SPDCID: p.id, DPDCID: p.other.id, CACK: cp, MPR: 1, SACKOff: 1,
	}
	for _, s := range sack {
		a.SACK |= 1 << uint(s-cack-1)
	}
	r := wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCNull, MsgID: msg}
	if req == wire.ReqClear {
		r.Opcode, r.RC = wire.RspResponse, wire.RCNoMatch
	}
	return r.Append(a.Append(nil))
}

func (p *peer) cp(c wire.CtlType, n int, payload uint32) []byte {
	h := wire.CP{Ctl: c, PSN: p.start.Add(n), SPDCID: p.id, DPDCID: p.other.id, Payload: payload}
	if c == wire.CtlClose {
		h.Flags = wire.FlagAR
	}
	return h.Append(nil)
}

func (p *peer) nack(code wire.NackCode, n int) []byte {
	return wire.Nack{Type: wire.TypeNack, Code: code, PSN: p.start.Add(n), SPDCID: p.id, DPDCID: p.other.id}.Append(nil)
}

// films are all captures by name.
var films = map[string]func(testing.TB) []byte{
	"messages.pcap":  messagesFilm,
	"links.pcapng":   linksFilm,
	"trains.pcap":    trainsFilm,
	"stalls.pcap":    stallsFilm,
	"sealed.pcap":    sealedFilm,
	"tap.pcapng":     tapFilm,
	"ops.pcap":       opsFilm,
	"lent.pcap":      lentFilm,
	"late.pcap":      lateFilm,
	"broken.pcap":    func(t testing.TB) []byte { b := messagesFilm(t); return b[:len(b)-30] },
	"broken.pcapng":  func(t testing.TB) []byte { b := tapFilm(t); return b[:len(b)-30] },
	"noise.pcap":     noiseFilm,
	"truncated.pcap": truncatedFilm,
}

// messagesFilm: a message of three packets, the second lost once; a second message
// whose result is kept until it is cleared; the end.
func messagesFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	a.send(a.req(0, 1, 0, 64, 160, 0, -1))
	a.send(a.req(1, 1, 64, 64, 160, 0, -1))
	a.send(a.req(2, 1, 128, 32, 160, wire.FlagAR, -1))
	f.wait(100 * time.Microsecond)
	b.send(b.ack(0, 0, 1, 0, 2))
	a.known = true
	f.wait(5 * time.Millisecond)
	a.send(a.req(1, 1, 64, 64, 160, wire.FlagRETX|wire.FlagAR, 0))
	f.wait(100 * time.Microsecond)
	b.send(b.ack(1, 2, 1, 0))
	f.wait(time.Millisecond)
	a.send(a.req(3, 2, 0, 16, 16, wire.FlagAR, 2))
	f.wait(100 * time.Microsecond)
	b.send(b.ack(3, 2, 2, wire.ReqClear))
	a.send(a.cp(wire.CtlClear, 0, uint32(a.start.Add(3))))
	f.wait(time.Second)
	a.send(a.cp(wire.CtlClose, 4, 0))
	f.wait(100 * time.Microsecond)
	c := wire.Ack{Type: wire.TypeAck, CACK: b.start.Add(3), AckPSNOff: 1, SPDCID: b.id, DPDCID: a.id}
	b.send(c.Append(nil))
	return f.bytes()
}

// A part is a packet of a one-sided operation: what its header says.
type part struct {
	op       wire.Opcode
	msg      uint16
	key, off uint64
	at, size int // of the message
	whole    int
	flags    wire.SESFlags
	data     uint64 // header data
	ext      []byte // of an atomic operation
	empty    bool   // carries nothing
}

// ses is its SES header with what follows.
func (x part) ses() []byte {
	m := wire.ReqStd{Opcode: x.op, Flags: x.flags, MsgID: x.msg, JobID: 1, RI: 15, Initiator: 16, BufOff: x.off, Match: x.key, ReqLen: uint32(x.whole), HeaderData: x.data}
	if x.at == 0 {
		m.Flags |= wire.SESSOM
	} else {
		m.MsgOff, m.PayloadLen = uint32(x.at), uint16(x.size)
	}
	if x.data != 0 {
		m.Flags |= wire.SESHD
	}
	if x.at+x.size == x.whole || x.empty && x.op != wire.OpRead {
		m.Flags |= wire.SESEOM
	}
	b := append(m.Append(nil), x.ext...)
	if x.op != wire.OpRead && !x.empty {
		b = append(b, make([]byte, x.size)...)
	}
	return b
}

// access is the packet with the n-th PSN.
func (p *peer) access(n int, flags wire.Flags, x part) []byte {
	h := wire.Req{Type: p.mode, Next: wire.NextReqStd, Flags: flags, PSN: p.start.Add(n), SPDCID: p.id, DPDCID: p.other.id, ClearOff: -1}
	if !p.known {
		h.Flags |= wire.FlagSYN
		h.PSNOffset, h.DPDCID = uint16(n), 0
	}
	return append(h.Append(nil), x.ses()...)
}

// gives is a packet of the return direction.
func (p *peer) gives(n int, flags wire.Flags, msg uint16, at, size, whole int, rc wire.RC) []byte {
	h := wire.Req{Type: p.mode, Next: wire.NextRspData, Flags: flags, PSN: p.start.Add(n), SPDCID: p.id, DPDCID: p.other.id, ClearOff: -1}
	r := wire.RspData{Opcode: wire.RspWithData, RC: rc, MsgID: msg, ReadMsgID: msg, JobID: 1, PayloadLen: uint16(size), ModLen: uint32(whole), MsgOff: uint32(at)}
	return append(r.Append(h.Append(nil)), make([]byte, size)...)
}

// says is an ACK of the n-th PSN with a response.
func (p *peer) says(n, cack int, op wire.RspOpcode, rc wire.RC, msg uint16) []byte {
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, AckPSNOff: int16(n - cack), SPDCID: p.id, DPDCID: p.other.id, CACK: p.start.Add(cack), MPR: 1, SACKOff: 1}
	r := wire.Rsp{Opcode: op, RC: rc, MsgID: msg}
	return r.Append(a.Append(nil))
}

// ackData is an ACK of the n-th PSN with what it returns.
func (p *peer) ackData(n, cack int, msg uint16, size int) []byte {
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRspData, AckPSNOff: int16(n - cack), SPDCID: p.id, DPDCID: p.other.id, CACK: p.start.Add(cack), MPR: 1, SACKOff: 1}
	r := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: msg, ReadMsgID: msg, PayloadLen: uint16(size), ModLen: uint32(size)}
	return append(r.Append(a.Append(nil)), make([]byte, size)...)
}

// rudi is a packet by RUDI, of a request or of its answer.
func rudi(t wire.Type, next wire.NextHdr, flags wire.Flags, id uint32, ses []byte) []byte {
	return append(wire.RUDIHdr{Type: t, Next: next, Flags: flags, PktID: id}.Append(nil), ses...)
}

func response(msg uint16, rc wire.RC) []byte {
	r := wire.Rsp{Opcode: wire.RspResponse, RC: rc, MsgID: msg}
	return r.Append(nil)
}

func responseData(msg uint16, at, size, whole int) []byte {
	r := wire.RspData{Opcode: wire.RspWithData, RC: wire.RCOK, MsgID: msg, ReadMsgID: msg, PayloadLen: uint16(size), ModLen: uint32(whole), MsgOff: uint32(at)}
	return append(r.Append(nil), make([]byte, size)...)
}

// opsFilm: one-sided operations of each kind, well and ill.
func opsFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	rtt := func() { f.wait(80 * time.Microsecond) }
	// A write of three packets with data, the second lost once.
	w := part{op: wire.OpWrite, msg: 1, key: 0x77, off: 0x1000, whole: 160, size: 64}
	first, second, third := w, w, w
	first.data, second.at, third.at, third.size = 0xbeef, 64, 128, 32
	a.send(a.access(0, 0, first))
	a.known = true
	a.send(a.access(1, 0, second))
	a.send(a.access(2, wire.FlagAR, third))
	rtt()
	b.send(b.says(0, 0, wire.RspDefault, wire.RCNull, 1))
	f.wait(5 * time.Millisecond)
	a.send(a.access(1, wire.FlagRETX|wire.FlagAR, second))
	rtt()
	b.send(b.says(1, 2, wire.RspDefault, wire.RCNull, 1))
	// A read of two packets, 96 bytes each, that comes back in three, one of them twice.
	r := part{op: wire.OpRead, msg: 2, key: 0x78, off: 0x40, whole: 192, size: 96}
	rest := r
	rest.at = 96
	a.send(a.access(3, 0, r))
	a.send(a.access(4, wire.FlagAR, rest))
	rtt()
	b.send(b.says(4, 4, wire.RspDefault, wire.RCOK, 2))
	b.send(b.gives(0, 0, 2, 0, 96, 192, wire.RCOK))
	b.send(b.gives(1, 0, 2, 96, 48, 192, wire.RCOK))
	f.wait(time.Millisecond)
	b.send(b.gives(1, wire.FlagRETX, 2, 96, 48, 192, wire.RCOK))
	b.send(b.gives(2, wire.FlagAR, 2, 144, 48, 192, wire.RCOK))
	a.send(a.says(2, 2, wire.RspDefault, wire.RCNull, 2))
	// A read of 8 bytes in the ACK.
	a.send(a.access(5, wire.FlagAR, part{op: wire.OpRead, msg: 3, key: 0x78, off: 8, whole: 8, size: 8}))
	rtt()
	b.send(b.ackData(5, 5, 3, 8))
	// A fetching atomic operation, one that returns nothing, a comparison.
	add := wire.Atomic{Op: wire.AtomicSum, Type: wire.Uint64}.Append(nil)
	a.send(a.access(6, wire.FlagAR, part{op: wire.OpFetchAtomic, msg: 4, key: 0x79, off: 16, whole: 8, size: 8, ext: add}))
	rtt()
	b.send(b.says(6, 6, wire.RspDefault, wire.RCOK, 4))
	b.send(b.gives(3, 0, 4, 0, 8, 8, wire.RCOK))
	a.send(a.access(7, wire.FlagAR, part{op: wire.OpAtomic, msg: 5, key: 0x79, off: 16, whole: 8, size: 8, ext: add}))
	rtt()
	b.send(b.says(7, 7, wire.RspDefault, wire.RCNull, 5))
	cas := wire.CSwap{Atomic: wire.Atomic{Op: wire.AtomicCSwap, Type: wire.Int64}}.Append(nil)
	a.send(a.access(8, wire.FlagAR, part{op: wire.OpFetchAtomic, msg: 6, key: 0x79, off: 24, whole: 32, size: 32, ext: cas, empty: true}))
	rtt()
	b.send(b.says(8, 8, wire.RspDefault, wire.RCOK, 6))
	b.send(b.gives(4, 0, 6, 0, 8, 8, wire.RCOK))
	// A write that is made durable.
	a.send(a.access(9, wire.FlagAR, part{op: wire.OpWrite, msg: 7, key: 0x7a, off: 0, whole: 32, size: 32, flags: wire.SESDC}))
	rtt()
	b.send(b.says(9, 9, wire.RspResponse, wire.RCOK, 7))
	a.send(a.access(10, wire.FlagAR, part{op: wire.OpWrite, msg: 8, key: 0x7a, off: 0, whole: 32, flags: wire.SESDC, empty: true}))
	rtt()
	b.send(b.says(10, 10, wire.RspResponse, wire.RCOK, 8))
	f.wait(3 * time.Millisecond)
	b.send(b.gives(5, wire.FlagAR, 8, 0, 0, 32, wire.RCOK))
	// A read with a wrong key, and a write out of bounds of which the second packet is on its way.
	a.send(a.access(11, wire.FlagAR, part{op: wire.OpRead, msg: 9, key: 0x1, off: 0, whole: 64, size: 64}))
	rtt()
	b.send(b.says(11, 11, wire.RspResponse, wire.RCBadMKey, 9))
	far := part{op: wire.OpWrite, msg: 10, key: 0x77, off: 0xffff0, whole: 192, size: 64}
	a.send(a.access(12, 0, far))
	rtt()
	b.send(b.says(12, 12, wire.RspResponse, wire.RCBadAddr, 10))
	far.at = 64
	a.send(a.access(13, wire.FlagAR, far))
	rtt()
	b.send(b.says(13, 13, wire.RspResponse, wire.RCBadAddr, 10))
	// By the key of the optimized header, without a message.
	h := wire.Req{Type: a.mode, Next: wire.NextReqSmall, Flags: wire.FlagAR, PSN: a.start.Add(14), SPDCID: a.id, DPDCID: b.id, ClearOff: -1}
	s := wire.ReqSmall{Opcode: wire.OpWrite, Flags: wire.SESSOM | wire.SESEOM, ReqLen: 16, RI: 9, JobID: 1, BufOff: 0x20}
	a.send(append(s.Append(h.Append(nil)), make([]byte, 16)...))
	rtt()
	b.send(b.says(14, 14, wire.RspDefault, wire.RCNull, 0))
	// The target has no room for a read at first.
	busy := part{op: wire.OpRead, msg: 11, key: 0x78, off: 0, whole: 8, size: 8}
	a.send(a.access(15, wire.FlagAR, busy))
	rtt()
	b.send(b.nack(wire.NackNoSESMsgAvail, 15))
	f.wait(time.Millisecond)
	a.send(a.access(15, wire.FlagRETX|wire.FlagAR, busy))
	rtt()
	b.send(b.ackData(15, 15, 11, 8))
	// By RUDI: a write of two packets, the first sent again; a read; a refusal.
	const safe = 1 << 63
	rw := part{op: wire.OpWrite, msg: 0x21, key: safe | 5, off: 0, whole: 96, size: 64}
	rw2 := rw
	rw2.at, rw2.size = 64, 32
	a.send(rudi(wire.TypeRUDIReq, wire.NextReqStd, 0, 100, rw.ses()))
	a.send(rudi(wire.TypeRUDIReq, wire.NextReqStd, 0, 101, rw2.ses()))
	rtt()
	b.send(rudi(wire.TypeRUDIRsp, wire.NextRsp, 0, 101, response(0x21, wire.RCOK)))
	f.wait(2 * time.Millisecond)
	a.send(rudi(wire.TypeRUDIReq, wire.NextReqStd, wire.RUDIFlagRETX, 100, rw.ses()))
	rtt()
	b.send(rudi(wire.TypeRUDIRsp, wire.NextRsp, 0, 100, response(0x21, wire.RCOK)))
	a.send(rudi(wire.TypeRUDIReq, wire.NextReqStd, 0, 102, part{op: wire.OpRead, msg: 0x22, key: safe | 5, off: 64, whole: 40, size: 40}.ses()))
	rtt()
	b.send(rudi(wire.TypeRUDIRsp, wire.NextRspData, 0, 102, responseData(0x22, 0, 40, 40)))
	a.send(rudi(wire.TypeRUDIReq, wire.NextReqStd, 0, 103, part{op: wire.OpWrite, msg: 0x23, key: 5, off: 0, whole: 8, size: 8}.ses()))
	rtt()
	b.send(rudi(wire.TypeRUDIRsp, wire.NextRsp, 0, 103, response(0x23, wire.RCOpViolation)))
	// A datagram, a message, a write that nobody answers, a read of which half comes back.
	u := part{op: wire.OpDatagramSend, key: 7, whole: 24, size: 24}
	a.send(append(wire.UUDHdr{Next: wire.NextReqStd}.Append(nil), u.ses()...))
	a.send(a.access(16, wire.FlagAR, part{op: wire.OpTaggedSend, msg: 12, key: 7, whole: 16, size: 16, flags: wire.SESREL}))
	rtt()
	b.send(b.says(16, 16, wire.RspDefault, wire.RCNull, 12))
	half := part{op: wire.OpRead, msg: 13, key: 0x78, off: 0, whole: 128, size: 64}
	a.send(a.access(17, 0, half))
	half.at = 64
	a.send(a.access(18, wire.FlagAR, half))
	rtt()
	b.send(b.says(18, 18, wire.RspDefault, wire.RCOK, 13))
	b.send(b.gives(6, 0, 13, 0, 64, 128, wire.RCOK))
	a.send(a.access(19, wire.FlagAR, part{op: wire.OpWrite, msg: 14, key: 0x77, off: 0, whole: 8, size: 8}))
	f.wait(5 * time.Millisecond)
	a.send(a.access(19, wire.FlagRETX|wire.FlagAR, part{op: wire.OpWrite, msg: 14, key: 0x77, off: 0, whole: 8, size: 8}))
	return f.bytes()
}

// lentFilm: messages that are announced. One is read by the target in a read with a PDC of its own, one has an eager part, one is
// refused by opcode, one is never read. Before them the target is asked whether it reads such messages.
func lentFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	c, d := f.pair("192.0.2.2:4793", "192.0.2.1:4793", 6) // by which B reads
	rtt := func() { f.wait(80 * time.Microsecond) }
	key := func(k uint64, eager int) []byte {
		return wire.Rendezvous{EagerLen: uint32(eager), ReadPIDonFEP: 1, ReadRI: 15, ReadOff: 0x10, ReadMatch: k}.Append(nil)
	}
	read := func(n int, msg uint16, k uint64, off, size int) {
		c.send(c.access(n, wire.FlagAR, part{op: wire.OpRead, msg: msg, key: k, off: uint64(off), whole: size, size: size}))
		c.known = true
		rtt()
		d.send(d.says(n, n, wire.RspDefault, wire.RCOK, msg))
		d.send(d.gives(n, wire.FlagAR, msg, 0, size, size, wire.RCOK))
		c.send(c.says(n, n, wire.RspDefault, wire.RCNull, msg))
	}
	a.send(a.access(0, wire.FlagAR, part{op: wire.OpNoOp, msg: 1, key: 0x99, flags: wire.SESREL, empty: true}))
	a.known = true
	rtt()
	b.send(b.says(0, 0, wire.RspResponse, wire.RCUndeliverable, 1))
	a.send(a.access(1, wire.FlagAR, part{op: wire.OpRendezvousTSend, msg: 2, key: 7, whole: 96, flags: wire.SESREL, data: 0xbeef, ext: key(0xabc1, 0), empty: true}))
	rtt()
	b.send(b.says(1, 1, wire.RspResponse, wire.RCOK, 2))
	f.wait(time.Millisecond)
	read(0, 0x71, 0xabc1, 0x10, 96)
	eager := part{op: wire.OpRendezvousSend, msg: 3, key: 7, whole: 96, size: 32, flags: wire.SESREL, ext: key(0xabc2, 32)}
	a.send(a.access(2, wire.FlagAR, eager))
	rtt()
	b.send(b.says(2, 2, wire.RspDefault, wire.RCNull, 3))
	read(1, 0x72, 0xabc2, 0x30, 64)
	a.send(a.access(3, wire.FlagAR, part{op: wire.OpRendezvousSend, msg: 4, key: 7, whole: 96, flags: wire.SESREL, ext: key(0xabc3, 0), empty: true}))
	rtt()
	b.send(b.says(3, 3, wire.RspResponse, wire.RCUnsupportedOp, 4))
	a.send(a.access(4, wire.FlagAR, part{op: wire.OpRendezvousTSend, msg: 5, key: 7, whole: 96, flags: wire.SESREL, ext: key(0xabc4, 0), empty: true}))
	rtt()
	b.send(b.says(4, 4, wire.RspResponse, wire.RCOK, 5))
	return f.bytes()
}

// lateFilm begins in the middle of a write and of a read; a message id is used again whose end is
// missing; and all is sent again with other PSNs.
func lateFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	a.known = true
	w := part{op: wire.OpWrite, msg: 1, key: 0x77, off: 0x1000, whole: 160, at: 128, size: 32}
	a.send(a.access(2, wire.FlagAR, w))
	f.wait(50 * time.Microsecond)
	b.send(b.says(2, 2, wire.RspDefault, wire.RCNull, 1))
	b.send(b.gives(0, 0, 9, 0, 8, 8, wire.RCOK)) // of a read that was not captured
	again := part{op: wire.OpWrite, msg: 2, key: 0x77, whole: 8, size: 8}
	a.send(a.access(3, 0, again))
	f.wait(time.Second)
	a.send(a.access(4, wire.FlagAR, again))
	f.wait(50 * time.Microsecond)
	b.send(b.says(4, 4, wire.RspDefault, wire.RCNull, 2))

	c, d := f.pair("192.0.2.1:4793", "192.0.2.3:4793", 6)
	x := part{op: wire.OpWrite, msg: 3, key: 0x77, whole: 96, size: 64}
	y := x
	y.at, y.size = 64, 32
	c.send(c.access(0, 0, x))
	c.send(c.access(1, wire.FlagAR, y))
	n := wire.Nack{Type: wire.TypeNack, Code: wire.NackNewStartPSN, PSN: c.start, DPDCID: c.id, Payload: uint32(c.start + 0x100)}
	d.send(n.Append(nil))
	c.start, d.start = c.start+0x100, d.start+0x100
	c.send(c.access(0, 0, x))
	c.send(c.access(1, wire.FlagAR, y))
	f.wait(50 * time.Microsecond)
	d.send(d.says(1, 1, wire.RspDefault, wire.RCNull, 3))
	return f.bytes()
}

// linksFilm: the same packet in everything that a link may put around it.
func linksFilm(t testing.TB) []byte {
	link := func(l layers.LinkType) pcapgo.NgInterface { return pcapgo.NgInterface{LinkType: l} }
	f := newFilm(t, true, link(layers.LinkTypeEthernet), link(layers.LinkTypeRaw), link(layers.LinkTypeNull), link(layers.LinkTypeLinuxSLL),
		link(layers.LinkTypeLinuxSLL2), link(layers.LinkTypeLoop), link(layers.LinkTypeIPv4), link(layers.LinkTypePPP))
	a, _ := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	six, _ := f.pair("[2001:db8::1]:4793", "[2001:db8::2]:4793", 6)
	ip := func(p *peer) []byte { return f.datagram(p.at, p.other.at, p.req(0, 1, 0, 8, 8, wire.FlagAR, -1)) }
	on := func(iface int, what string, b []byte) {
		f.iface, f.comment = iface, what
		f.frame(b)
	}
	on(0, "Ethernet", ether(ip(a)))
	on(0, "Ethernet, IPv6", ether(ip(six)))
	on(0, "VLAN", ether(ip(a), etherVLAN))
	on(0, "two VLAN tags", ether(ip(a), etherQinQ, etherVLAN))
	on(0, "padded", append(ether(ip(a)), make([]byte, 20)...))
	on(1, "raw", ip(a))
	on(1, "raw, IPv6", ip(six))
	on(2, "null", append([]byte{2, 0, 0, 0}, ip(a)...))
	on(5, "loop", append([]byte{0, 0, 0, 30}, ip(six)...))
	on(3, "Linux cooked", append([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 10, 0, 0, 8, 0}, ip(a)...))
	on(4, "Linux cooked 2", append([]byte{0x86, 0xdd, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 10, 0, 0}, ip(six)...))
	on(6, "IPv4", ip(a))
	on(7, "PPP, which is not known", ip(a))
	hop := ip(six)
	hop = append(append(slices.Clone(hop[:40]), 17, 0, 1, 4, 0, 0, 0, 0), hop[40:]...)
	hop[5], hop[6] = hop[5]+8, protoHop
	on(1, "hop by hop", hop)
	f.native = true
	on(1, "native IP", ip(a))
	on(1, "native IP, IPv6", ip(six))
	f.native, f.noCRC = false, true
	on(1, "without CRC", ip(a))
	f.noCRC = false
	b := ip(a)
	b[len(b)-1] ^= 1
	on(1, "damaged", b)
	b = ip(a)
	b[1] |= 3
	on(1, "marked CE", b)
	b = ip(a)
	b[2], b[3] = 0, 0
	on(1, "offloaded, without a length", b)
	b = ip(a)
	b[6] |= 0x20
	on(1, "first fragment", b)
	b[6], b[7] = 0, 9
	on(1, "later fragment", b)
	f.cut = 60
	on(1, "cut", ip(a))
	return f.bytes()
}

// trainsFilm: packets that the kernel splits or joins, between ports that are not
// known to be UET.
func trainsFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	a, b := f.pair("192.0.2.1:40001", "192.0.2.2:40002", 5)
	a.send(a.req(0, 1, 0, 1024, 2500, 0, -1), a.req(1, 1, 1024, 1024, 2500, 0, -1), a.req(2, 1, 2048, 452, 2500, wire.FlagAR, -1))
	b.send(b.ack(2, 2, 1, 0))
	a.known = true
	// Short messages, and an ACK at the end.
	a.send(a.req(3, 2, 0, 30, 30, 0, 2), a.req(4, 3, 0, 30, 30, 0, 2), a.ack(0, 0, 9, 0))
	// An MTU that is none of UE's.
	a.send(a.req(5, 4, 0, 700, 1500, 0, 2), a.req(6, 4, 700, 700, 1500, 0, 2), a.req(7, 4, 1400, 100, 1500, 0, 2))
	// Without CRC the headers must do: the flow is known.
	f.noCRC = true
	a.send(a.req(8, 5, 0, 1024, 2048, 0, 2), a.req(9, 5, 1024, 1024, 2048, 0, 2))
	f.noCRC = false
	f.cut = 300
	a.send(a.req(10, 6, 0, 100, 100, 0, 2), a.req(11, 7, 0, 100, 100, 0, 2), a.req(12, 8, 0, 100, 100, 0, 2))
	f.cut = 0
	f.seal = sealedBy(t, 1)
	c, _ := f.pair("192.0.2.3:4793", "192.0.2.4:4793", 9)
	c.send(c.req(0, 1, 0, 1024, 2048, 0, -1), c.req(1, 1, 1024, 1024, 2048, wire.FlagAR, -1))
	return f.bytes()
}

// stallsFilm: PDCs that wait for something when the capture ends.
func stallsFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	// 1: nobody answers.
	a, _ := f.pair("192.0.2.1:4793", "192.0.2.9:4793", 1)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR, -1))
	f.wait(5 * time.Millisecond)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR|wire.FlagRETX, -1))
	// 2: a hole, lost again and again.
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 2)
	for i := range 4 {
		a.send(a.req(i, 1, 64*i, 64, 256, 0, -1))
	}
	b.send(b.ack(0, 0, 1, 0, 2, 3))
	a.known = true
	for range 3 {
		f.wait(5 * time.Millisecond)
		a.send(a.req(1, 1, 64, 64, 256, wire.FlagRETX|wire.FlagAR, 0))
	}
	// 3: a CLEAR that never comes.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.3:4793", 3)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR, -1))
	b.send(b.ack(0, -1, 1, wire.ReqClear))
	f.wait(20 * time.Millisecond)
	b.send(b.cp(wire.CtlClearReq, 0, uint32(b.start)))
	b.send(b.ack(0, -1, 1, wire.ReqClear))
	// 4: the target has no room.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.4:4793", 4)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR, -1))
	b.send(b.nack(wire.NackNoSESMsgAvail, 0))
	a.known = true
	for range 2 {
		f.wait(2 * time.Millisecond)
		a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR|wire.FlagRETX, -1))
		b.send(b.nack(wire.NackNoSESMsgAvail, 0))
	}
	// 5: the window is closed and the ACKs stay away.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.5:4793", 5)
	a.send(a.req(0, 1, 0, 16, 4000, wire.FlagAR, -1))
	b.send(b.ack(0, 0, 1, 0))
	a.known = true
	for i := range 128 {
		a.send(a.req(1+i, 1, 16*(1+i), 16, 4000, 0, 0))
	}
	f.wait(time.Millisecond)
	a.send(a.cp(wire.CtlProbe, 0, uint32(a.start.Add(1))))
	// 6: only one direction was captured.
	a, _ = f.pair("192.0.2.1:4793", "192.0.2.6:4793", 6)
	a.known = true
	a.send(a.req(7, 1, 0, 16, 16, wire.FlagAR, 6))
	// 7: it arrived, and nobody says what became of it.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.7:4793", 7)
	a.send(a.req(0, 1, 0, 16, 16, 0, -1))
	a.send(a.req(1, 2, 0, 16, 16, wire.FlagAR, -1))
	b.send(b.ack(1, -1, 2, 0, 0))
	// 8: all well.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.8:4793", 8)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR, -1))
	b.send(b.ack(0, 0, 1, 0))
	// 9: the target ended it.
	a, b = f.pair("192.0.2.1:4793", "192.0.2.10:4793", 9)
	a.send(a.req(0, 1, 0, 16, 16, wire.FlagAR, -1))
	b.send(b.nack(wire.NackClosingInErr, 0))
	return f.bytes()
}

// The key of the sealed films, and the file that has it.
const sealedKeys = "uetkit-cluster-key 1\n# of a test\nkey 3 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"

// sealedBy is the domain of one sender of the cluster.
func sealedBy(t testing.TB, ssi uint32) *tss.Domain {
	d, err := tss.New(tss.Config{SDI: 1, Mode: tss.Cluster, UseSSI: true, SSI: ssi, Local: netip.MustParseAddr("192.0.2.1")})
	if err != nil {
		t.Fatal(err)
	}
	var k tss.Key
	for i := range k {
		k[i] = byte(i)
	}
	if err := d.Install(1, k); err != nil {
		t.Fatal(err)
	}
	if err := d.Use(1, 1, 0x77, 0x1000); err != nil {
		t.Fatal(err)
	}
	return d
}

// sealedFilm: a message over sealed packets, one of them damaged.
func sealedFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	da, db := sealedBy(t, 0xa), sealedBy(t, 0xb)
	a, b := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	f.seal = da
	a.send(a.req(0, 1, 0, 64, 128, 0, -1))
	a.send(a.req(1, 1, 64, 64, 128, wire.FlagAR, -1))
	f.seal = db
	b.send(b.ack(1, 1, 1, 0))
	bad := ether(f.datagram(b.at, a.at, b.ack(1, 1, 1, 0)))
	bad[len(bad)-20] ^= 1
	f.frame(bad)
	return f.bytes()
}

// tapFilm: what the tap of an endpoint writes, in clear and before sealing.
func tapFilm(t testing.TB) []byte {
	f := newFilm(t, true, pcapgo.NgInterface{Name: nameTap, LinkType: layers.LinkTypeRaw}, pcapgo.NgInterface{Name: namePlain, LinkType: layers.LinkTypeRaw})
	a, b := f.pair("192.0.2.1:40001", "192.0.2.2:40002", 5)
	say := func(p *peer, comment string, pkt []byte) {
		f.comment = comment + ": " + wire.Dump(pkt)
		f.frame(f.datagram(p.at, p.other.at, pkt))
	}
	f.cut = 256
	say(a, "sent data that opens a PDC (new)", a.req(0, 1, 0, 1024, 1024, wire.FlagAR, -1))
	f.wait(5 * time.Millisecond)
	say(a, "sent data that opens a PDC, again (RTO)", a.req(0, 1, 0, 1024, 1024, wire.FlagAR|wire.FlagRETX, -1))
	say(b, "received ACK", b.ack(0, 0, 1, 0))
	f.iface, f.noCRC = 1, true
	a, _ = f.pair("192.0.2.1:40003", "192.0.2.2:40004", 6)
	say(a, "sent data that opens a PDC (new), sealed as an=1 sdi=1 ssi=0xabcd epoch=5 tsc=0x1234", a.req(0, 1, 0, 64, 64, wire.FlagAR, -1))
	say(a, "sent data that opens a PDC (new), sealed as an=1 sdi=1 ssi=0xabcd epoch=5 tsc=0x1235", a.req(2, 3, 0, 700, 1400, 0, -1))
	f.comment = "a comment\x1b[31m of somebody"
	f.frame(f.datagram(a.at, a.other.at, a.req(1, 2, 0, 4, 4, 0, -1)))
	return f.bytes()
}

// noiseFilm: nothing of UET.
func noiseFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	src, dst := netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:40002")
	f.noCRC = true
	f.frame(ether(f.datagram(src, dst, []byte("no packet of ours at all, but long enough"))))
	f.frame(ether(ipPacket(src.Addr(), dst.Addr(), 6, make([]byte, 40))))
	f.frame([]byte{1, 2, 3})
	return f.bytes()
}

// truncatedFilm: packets to the UET port that are too short, or are nothing.
func truncatedFilm(t testing.TB) []byte {
	f := newFilm(t, false)
	src, dst := netip.MustParseAddrPort("192.0.2.1:4793"), netip.MustParseAddrPort("192.0.2.2:4793")
	f.noCRC = true
	for _, b := range [][]byte{{}, {0x11}, {0x11, 0x80}, {0xff, 0xff, 0xff, 0xff}, {8, 0, 0, 1}, bytes.Repeat([]byte{0x11}, 30)} {
		f.frame(ether(f.datagram(src, dst, b)))
	}
	a, _ := f.pair("192.0.2.1:4793", "192.0.2.2:4793", 5)
	for n := 43; n < 70; n += 9 {
		f.cut = n
		a.send(a.req(0, 1, 0, 64, 64, 0, -1))
	}
	return f.bytes()
}

// The captures are what this file says.
func TestCaptures(t *testing.T) {
	for name, make := range films {
		path := filepath.Join("testdata", "captures", name)
		want := make(t)
		if *rewrite {
			if err := os.WriteFile(path, want, 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from what is made here; run with -rewrite and look at the difference (%v)", path, err)
		}
	}
}

// The writer of --pcap and the reader agree about the names of interfaces.
func TestInterfaceNames(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "uetperf", "internal", "capture", "capture.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"IfaceName": nameTap, "IfacePlain": namePlain} {
		if !regexp.MustCompile(name + ` += "` + value + `"\n`).Match(b) {
			t.Errorf("%s is not %q there", name, value)
		}
	}
}
