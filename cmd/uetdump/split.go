package main

import (
	"slices"

	"github.com/uetkit/uetkit/transport/wire"
)

// A trailer says what is behind the payload of a packet.
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
)

var trailerNames = [...]string{"none", "ok", "bad", "cut", "icv", "icv ok", "icv bad", "trimmed"}

func (t trailer) String() string { return trailerNames[t] }

// The code points that trimming switches give to what they have cut, if nobody chose
// others (transport.DefaultClasses): before the last hop, and on it.
const (
	dscpTrimmed        = 26
	dscpTrimmedLastHop = 28
)

// trimmed reports whether a request whose trailer does not verify is what a switch
// left of one: its code point says so.
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

// segments cuts a datagram into the packets of a GSO or GRO train: a sender's
// capture has it before it is split, a receiver's after it was put together again.
// It returns the length of each packet but the last; d.len: it is one packet.
//
// A capture does not say so. The signs are that the datagram is longer than the length
// in its first packet, and that the CRC of each part verifies: that of the whole never
// does then, because its length field is another. Without a CRC, or where it was not
// captured, the headers have to do.
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
		// The first packet of a longer message: as much as the sender's MTU.
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
		// Any other MTU: the next packet of the PDC tells where the first one ends.
		for seg := max(n, d.len/maxTrain); seg+wire.ReqLen <= len(b); seg++ {
			g, _, err := wire.ParseReq(b[seg:])
			if err == nil && g.PSN == h.PSN+1 && g.SPDCID == h.SPDCID && isTrain(d, seg) {
				return seg
			}
		}
	}
	return d.len
}

// isTrain reports whether a datagram is packets of seg bytes each.
func isTrain(d *datagram, seg int) bool {
	b, ok := d.body, false
	for at := 0; at < d.len; at += seg {
		n := min(seg, d.len-at)
		if at+n > len(b) {
			// The rest was not captured. If nothing was verified the headers must do.
			return ok || plausible(d, seg)
		}
		if !wire.VerifyCRC(b[at:at+n], d.prefix(n)) {
			return !ok && plausible(d, seg)
		}
		ok = true
	}
	return ok
}

// plausible is isTrain where no CRC can help: each captured packet begins with a
// header and has the length that this says.
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

// sealedSegments is segments of a secured datagram: security headers of one sender
// have all in common but the TSC, which rises by one.
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

// declared is how long a packet in clear is without a trailer, as far as its headers
// say. sure is false for the first packet of a longer message, where n is the
// headers alone and the MTU is the sender's choice; n is 0 if they do not parse.
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

// maxHeaders is as long as PDS and SES headers together are, extensions aside.
const maxHeaders = wire.ReqCCLen + wire.ReqStdLen

// mtus are the payload MTUs of UE (S-MTU-01).
var mtus = [...]int{8192, 4096, 2048, 1024}

// maxPayload is the greatest payload MTU (S-MTU-01).
const maxPayload = 8192

// carried is how many of n bytes a request of an opcode has with it.
func carried(op wire.Opcode, n int) int {
	if op == wire.OpRead {
		return 0
	}
	return n
}

// extension is the length of what follows a request header.
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

// clearTrailer finds out which trailer the clear packet b has. cut bytes of the packet
// were not captured.
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
