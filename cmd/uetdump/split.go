package main

import (
	"slices"

	"github.com/uetkit/uetkit/transport/wire"
)

// A trailer is what follows the payload of a packet.
type trailer uint8

const (
	trailerNone  trailer = iota // nothing: the ends do without, or a tap before it was sealed
	trailerOK                   // a CRC that verifies
	trailerBad                  // a CRC that does not
	trailerCut                  // not captured
	trailerICV                  // an ICV, and no key to verify it with
	trailerICVOK                // it verifies
	trailerICVBad
	trailerTrimmed // a switch cut it off, with the payload
	trailerAside   // a CRC that verifies for the main port of the destination, as of a packet that goes aside
	trailerICVAside
)

var trailerNames = [...]string{"none", "ok", "bad", "cut", "icv", "icv ok", "icv bad", "trimmed", "ok aside", "icv ok aside"}

func (t trailer) String() string { return trailerNames[t] }

// The default code points of trimmed packets (transport.DefaultClasses): before the last
// hop, and on it.
const (
	dscpTrimmed        = 26
	dscpTrimmedLastHop = 28
)

// trimmed reports whether a request whose trailer does not verify was trimmed by a switch.
// Its code point tells.
func (p *packet) trimmed() bool {
	if dscp := p.tos >> 2; dscp != dscpTrimmed && dscp != dscpTrimmedLastHop {
		return false
	}
	switch wire.Type(p.raw[0] >> 3) {
	case wire.TypeRUDReq, wire.TypeRODReq, wire.TypeRUDCCReq, wire.TypeRODCCReq:
		return true
	}
	return false
}

// maxTrain bounds the packets of one datagram: the kernel splits into at most 128.
const maxTrain = 128

// segments splits a datagram into the packets of a GSO or GRO train: a sender's capture has
// it before it is split, a receiver's after it was joined. It returns the length of each
// packet but the last; d.len means one packet.
//
// A capture does not mark trains. The signs of one are that the datagram is longer than the
// length in its first packet, and that the CRC of each part verifies. The CRC of the whole
// then never does, because its length field differs. Without a CRC, or where it was not
// captured, the headers decide.
func segments(d *datagram, kind ifaceKind) int {
	b := d.body
	if d.len == 0 || len(b) < wire.PrologueLen || kind != ifaceOther || d.native || d.more {
		return d.len
	}
	whole := len(b) == d.len
	if wire.Type(b[0]>>3) == wire.TypeTSS {
		return sealedSegments(d)
	}
	if whole && wire.VerifyCRC(b, d.prefix(d.len)) {
		return d.len
	}
	n, sure := declared(b)
	var try []int
	if n > 0 && sure {
		try = []int{n + wire.CRCLen, n}
	} else if n > 0 {
		// The first packet of a longer message is as long as the sender's MTU.
		for _, mtu := range mtus {
			try = append(try, n+mtu+wire.CRCLen, n+mtu)
		}
	}
	for _, seg := range try {
		if seg < d.len && (d.len+seg-1)/seg <= maxTrain && isTrain(d, seg) {
			return seg
		}
	}
	if h, _, err := wire.ParseReq(b); err == nil && n > 0 && !sure {
		// Any other MTU: the next packet of the PDC shows where the first one ends.
		for seg := max(n, d.len/maxTrain); seg+wire.ReqLen <= len(b); seg++ {
			g, _, err := wire.ParseReq(b[seg:])
			if err == nil && g.PSN == h.PSN+1 && g.SPDCID == h.SPDCID && isTrain(d, seg) {
				return seg
			}
		}
	}
	return d.len
}

// isTrain reports whether a datagram consists of packets of seg bytes each.
func isTrain(d *datagram, seg int) bool {
	b, ok := d.body, false
	for at := 0; at < d.len; at += seg {
		n := min(seg, d.len-at)
		if at+n > len(b) {
			// The rest was not captured. If no CRC verified, the headers must decide.
			return ok || plausible(d, seg)
		}
		if !wire.VerifyCRC(b[at:at+n], d.prefix(n)) {
			return !ok && plausible(d, seg)
		}
		ok = true
	}
	return ok
}

// plausible is isTrain without a CRC: each captured packet must begin with a header and
// have the length that the header says.
func plausible(d *datagram, seg int) bool {
	b := d.body
	for at := 0; at < len(b); at += seg {
		n, sure := declared(b[at:])
		left := min(seg, d.len-at)
		switch {
		case n == 0 && (at+left <= len(b) || len(b)-at >= maxHeaders):
			return false
		case n == 0: // the capture ends in the middle of the headers
		case sure && n != left && n+wire.CRCLen != left:
			return false
		case !sure && n >= left:
			return false
		}
	}
	return len(b) > 0
}

// sealedSegments is segments for a secured datagram. The security headers of one sender are
// equal but for the TSC, which rises by one.
func sealedSegments(d *datagram) int {
	b := d.body
	t, h, err := wire.ParseTSS(b)
	if err != nil {
		return d.len
	}
	for seg := max(h+wire.AckLen+wire.ICVLen, d.len/maxTrain); seg+h <= len(b); seg++ {
		if b[seg] != b[0] {
			continue
		}
		u, _, err := wire.ParseTSS(b[seg:])
		if err == nil && u.TSC == t.TSC+1 && u.SP == t.SP && u.SDI == t.SDI && u.SSI == t.SSI && u.Epoch == t.Epoch {
			return seg
		}
	}
	return d.len
}

// declared returns the length of a packet in clear without its trailer, as its headers say.
// sure is false for the first packet of a longer message: n is then the length of the
// headers alone, because the sender chooses the MTU. n is 0 if the headers do not parse.
func declared(b []byte) (n int, sure bool) {
	m := parseMessage(b)
	if m.err != nil {
		return 0, false
	}
	n, sure = m.headers, true
	switch {
	case m.small != nil:
		n += carried(m.small.Opcode, int(m.small.ReqLen))
	case m.medium != nil:
		n += carried(m.medium.Opcode, int(m.medium.ReqLen))
	case m.std != nil && m.std.Flags&wire.SESSOM == 0:
		n += carried(m.std.Opcode, int(m.std.PayloadLen))
	case m.std != nil && m.std.Flags&wire.SESEOM != 0 && m.std.ReqLen <= maxPayload:
		n += carried(m.std.Opcode, int(m.std.ReqLen))
	case m.std != nil:
		sure = m.std.Opcode == wire.OpRead
	case m.rdata != nil:
		n += int(m.rdata.PayloadLen)
	case m.rsmall != nil:
		n += int(m.rsmall.PayloadLen)
	}
	return n, sure
}

// maxHeaders is the greatest length of PDS and SES headers together, without extensions.
const maxHeaders = wire.ReqCCLen + wire.ReqStdLen

// mtus are the payload MTUs of UE (S-MTU-01).
var mtus = [...]int{8192, 4096, 2048, 1024}

// maxPayload is the greatest payload MTU (S-MTU-01).
const maxPayload = 8192

// carried returns how many of n bytes a request of an opcode carries itself.
func carried(op wire.Opcode, n int) int {
	if op == wire.OpRead {
		return 0
	}
	return n
}

// extension returns the length of the extension that follows a request header.
func extension(op wire.Opcode, rdv bool, b []byte) int {
	switch {
	case rdv:
		return wire.RendezvousLen
	case !op.HasAtomic():
		return 0
	case len(b) > 0 && wire.AtomicOp(b[0]).Compares():
		return wire.CSwapLen
	}
	return wire.AtomicLen
}

// clearTrailer determines the trailer of the packet b in clear. cut more bytes of the
// packet were not captured.
func clearTrailer(d *datagram, b []byte, cut int, kind ifaceKind) trailer {
	if kind == ifacePlain || len(b)+cut < wire.CRCLen {
		return trailerNone
	}
	n, sure := declared(b)
	if cut == 0 && wire.VerifyCRC(b, d.prefix(len(b))) {
		return trailerOK
	}
	switch {
	case n > 0 && sure && n == len(b)+cut, n > 0 && !sure && slices.Contains(mtus[:], len(b)+cut-n):
		return trailerNone
	case cut > 0:
		return trailerCut
	}
	return trailerBad
}
