package fabric

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A packet is one IP packet inside the switch, in memory of the pool.
type packet struct {
	buf   []byte // all of its memory
	n     int    // bytes of the IP packet, at the front of buf
	class uint8  // of the pool
	hdr

	id      uint64
	at      time.Duration // when its line's delay is over, then when it left the switch
	in, out int32         // ports
	spine   int32         // -1 means none
	stage   uint8         // of its way: from, spine, to
	depth   uint8         // copies that lie between it and the packet that came in
	ord     int           // of the next rule to apply to it, while it is delayed
	next    *packet       // of a chain of copies
}

func (p *packet) ip() []byte { return p.buf[:p.n] }

// hdr has the header fields of a packet as it came in. They do not change with the packet,
// so that the log shows the packet that arrived.
type hdr struct {
	v6       bool
	udp, end int // where the UDP header begins and its payload ends; 0 means no UDP
	src, dst netip.AddrPort
	kind     kind
	flag     wire.Flags // of requests and control packets
	eom      bool
	pdc      uint16
	psn      uint32
	start    uint32 // Start_PSN, with a SYN
}

// A kind is one of the values of Match.Kind.
type kind uint8

const (
	kindOther kind = iota
	kindData
	kindAck
	kindNack
	kindControl
	kindSealed
)

var kindNames = [...]string{"other", "data", "ack", "nack", "control", "sealed"}

const (
	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8
	protUDP = 17

	// maxIP is the longest packet that a port accepts.
	maxIP = 1<<16 - 1 + ipv6Len
)

// parse reads the IP header in ip and as many of the following headers as it can. It
// returns the length of the IP packet, which is less than len(ip) if the frame is padded,
// or 0 if ip is not an IP packet. It keeps no reference to ip.
func (h *hdr) parse(ip []byte, c *Classes) int {
	*h = hdr{}
	if len(ip) < ipv4Len {
		return 0
	}
	var n, l4 int
	var proto uint8
	switch ip[0] >> 4 {
	case 4:
		l4, n = int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if l4 < ipv4Len || n < l4 || n > len(ip) {
			return 0
		}
		h.src = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), 0)
		h.dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:])), 0)
		proto = ip[9]
		if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
			proto = 0 // a fragment: its ports are elsewhere, or not the whole payload here
		}
	case 6:
		if len(ip) < ipv6Len {
			return 0
		}
		h.v6 = true
		l4, n = ipv6Len, ipv6Len+int(binary.BigEndian.Uint16(ip[4:]))
		if n > len(ip) {
			return 0
		}
		h.src = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[8:])), 0)
		h.dst = netip.AddrPortFrom(netip.AddrFrom16([16]byte(ip[24:])), 0)
		proto = ip[6] // behind extension headers: not looked for
	default:
		return 0
	}
	if proto != protUDP || n < l4+udpLen {
		return n
	}
	end := l4 + int(binary.BigEndian.Uint16(ip[l4+4:]))
	if end < l4+udpLen || end > n {
		return n
	}
	h.udp, h.end = l4, end
	h.src = netip.AddrPortFrom(h.src.Addr(), binary.BigEndian.Uint16(ip[l4:]))
	h.dst = netip.AddrPortFrom(h.dst.Addr(), binary.BigEndian.Uint16(ip[l4+2:]))
	if k := h.parseUET(ip[l4+udpLen : end]); k != kindOther && h.believes(ip, c) {
		h.kind = k
	} else {
		h.flag, h.eom, h.pdc, h.psn, h.start = 0, false, 0, 0, 0
	}
	return n
}

// believes reports whether a UDP payload that parses as UET counts as UET. QUIC packets of
// connection management share the network; the first byte of a short header looks like a
// type of 8 to 15. Such types need further evidence: the well-known port, a code point of
// Classes, or a right CRC.
func (h *hdr) believes(ip []byte, c *Classes) bool {
	b := ip[h.udp+udpLen : h.end]
	if t := b[0] >> 3; t < 8 || h.src.Port() == wire.Port || h.dst.Port() == wire.Port {
		return true
	}
	if d := tos(ip, h.v6) >> 2; d != 0 && (c.high(d) || d == c.Trimmable || d == c.TrimmableRTX) {
		return true
	}
	return wire.VerifyCRC(b, wire.CRCPrefix(h.src.Addr(), h.dst.Addr(), h.src.Port(), h.dst.Port(), uint16(h.end-h.udp)))
}

// parseUET reads the PDS header, and from the SES header whether the message ends.
func (h *hdr) parseUET(b []byte) kind {
	p, err := wire.ParsePrologue(b)
	if err != nil {
		return kindOther
	}
	if p.Type == wire.TypeTSS {
		if _, n, err := wire.ParseTSS(b); err != nil || len(b) < n+wire.ICVLen {
			return kindOther
		}
		return kindSealed
	}
	if !p.Type.Carries(p.Next) {
		return kindOther
	}
	switch p.Type {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		var r wire.Req
		n, err := r.Parse(b)
		if err != nil {
			return kindOther
		}
		h.flag, h.pdc, h.psn = r.Flags, r.SPDCID, uint32(r.PSN)
		if r.Flags&wire.FlagSYN != 0 {
			h.start = uint32(r.PSN.Add(-int(r.PSNOffset)))
		}
		h.eom = endsMessage(r.Next, b[n:])
		return kindData
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		r, n, err := wire.ParseRUDI(b)
		if err != nil {
			return kindOther
		}
		h.psn = r.PktID
		if p.Type == wire.TypeRUDIRsp {
			return kindAck
		}
		h.flag, h.eom = r.Flags&wire.FlagRETX, endsMessage(r.Next, b[n:])
		return kindData
	case wire.TypeUUDReq:
		u, n, err := wire.ParseUUD(b)
		if err != nil {
			return kindOther
		}
		h.eom = endsMessage(u.Next, b[n:])
		return kindData
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		var a wire.Ack
		if _, err := a.Parse(b); err != nil {
			return kindOther
		}
		h.pdc = a.SPDCID
		if a.Flags&wire.AckFlagP == 0 {
			h.psn = uint32(a.AckPSN())
		}
		return kindAck
	case wire.TypeNack, wire.TypeNackCCX:
		k, _, err := wire.ParseNack(b)
		if err != nil {
			return kindOther
		}
		h.pdc, h.psn = k.SPDCID, uint32(k.PSN)
		return kindNack
	case wire.TypeCP:
		c, _, err := wire.ParseCP(b)
		if err != nil {
			return kindOther
		}
		h.flag, h.pdc, h.psn = c.Flags, c.SPDCID, uint32(c.PSN)
		if c.Flags&wire.FlagSYN != 0 {
			h.start = uint32(c.PSN.Add(-int(c.PSNOffset)))
		}
		return kindControl
	}
	return kindOther
}

// endsMessage reports whether a packet with the SES header n at the front of b is the last
// of its message, or of its read response.
func endsMessage(n wire.NextHdr, b []byte) bool {
	switch n {
	case wire.NextReqSmall, wire.NextReqMedium, wire.NextRspDataSmall:
		return true // never less than a whole message
	case wire.NextReqStd:
		return len(b) >= wire.ReqStdLen && wire.SESFlags(b[1])&wire.SESEOM != 0
	case wire.NextRspData:
		r, _, err := wire.ParseRspData(b)
		return err == nil && uint64(r.MsgOff)+uint64(r.PayloadLen) >= uint64(r.ModLen)
	}
	return false
}

// sesLen returns the length of the SES header n, 0 if there is none.
func sesLen(n wire.NextHdr) int {
	switch n {
	case wire.NextReqSmall:
		return wire.ReqSmallLen
	case wire.NextReqMedium:
		return wire.ReqMediumLen
	case wire.NextReqStd:
		return wire.ReqStdLen
	case wire.NextRsp:
		return wire.RspLen
	case wire.NextRspData:
		return wire.RspDataLen
	case wire.NextRspDataSmall:
		return wire.RspDataSmallLen
	}
	return 0
}

// headers returns the length of the PDS and SES headers at the front of b.
func headers(b []byte) int {
	p, err := wire.ParsePrologue(b)
	if err != nil {
		return 0
	}
	n := sesLen(p.Next)
	switch p.Type {
	case wire.TypeTSS:
		// The rest is encrypted. Keep enough for the longest headers, so that a target that
		// reads the packet without a proof finds as much as in one in clear.
		t, _, err := wire.ParseTSS(b)
		if err != nil {
			return 0
		}
		return t.Len() + wire.ReqCCLen + wire.ReqStdLen
	case wire.TypeRUDReq, wire.TypeRODReq:
		return wire.ReqLen + n
	case wire.TypeRUDCCReq, wire.TypeRODCCReq:
		return wire.ReqCCLen + n
	case wire.TypeRUDIReq, wire.TypeRUDIRsp:
		return wire.RUDILen + n
	case wire.TypeUUDReq:
		return wire.UUDLen + n
	case wire.TypeAck, wire.TypeAckCC, wire.TypeAckCCX:
		var a wire.Ack
		if _, err := a.Parse(b); err != nil {
			return 0
		}
		return a.Len() + n
	}
	return 0
}
