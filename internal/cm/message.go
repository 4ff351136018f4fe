package cm

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/uetkit/uetkit/transport/wire"
)

// A connection's stream carries messages of
//
//	length uint32, of what follows
//	kind uint8, reserved uint8, version uint16
//	any number of: type uint16, length uint16, value
//
// all big endian. A type that the receiver does not know is skipped, unless it has the critical
// bit: then the message is refused. These eight bytes, that form, and kindMismatch with its
// fields are the same in every version, so that two versions can tell each other that they
// differ.
const (
	msgLength  = 0 // uint32
	msgKind    = 4 // uint8
	msgVersion = 6 // uint16
	msgLen     = 8

	// maxMessage bounds a message with its header, in bytes. Messages in use are far shorter;
	// T2 allows 64 KiB.
	maxMessage = 16 << 10
)

type kind uint8

const (
	kindConnect  kind = iota + 1 // dialer: params, private
	kindAccept                   // acceptor: params, private
	kindReject                   // acceptor: private
	kindMismatch                 // either: field, mine, theirs
	kindRekey                    // either: generation; the sender can receive with it
	kindRekeyed                  // the answer: so can its sender
	kindClose                    // either: private
	kindProbe                    // either: nothing; see Node.probe
)

const tlvCritical = 0x8000

const (
	tlvPrivate    = 1
	tlvAddr       = 2 // 4 or 16 bytes of IP, port uint16
	tlvPorts      = 3 // uint16 each
	tlvJobID      = 4 // uint32
	tlvPIDonFEP   = 5 // uint16
	tlvRI         = 6 // uint16
	tlvInitiator  = 7 // uint32
	tlvPayloadMTU = 8 // uint16
	tlvModes      = 9 // uint8
	tlvProfile    = 10
	tlvFlags      = 11 // uint8, flag…
	tlvSecurity   = 12 // uint8
	tlvGen        = 13 // uint32
	tlvField      = 14 // text
	tlvMine       = 15 // text
	tlvTheirs     = 16 // text
	tlvEnd        = 17
)

const (
	flagNoCRC = 1 << iota
	flagStandard
)

// maxText bounds the texts of a mismatch, in bytes.
const maxText = 256

const paramsNeed = 1<<tlvAddr | 1<<tlvJobID | 1<<tlvPIDonFEP | 1<<tlvRI | 1<<tlvInitiator | 1<<tlvPayloadMTU |
	1<<tlvModes | 1<<tlvProfile | 1<<tlvSecurity

// kinds has the types that each kind must have, and those that it may have.
var kinds = [...]struct{ need, may uint32 }{
	kindConnect:  {paramsNeed, paramsNeed | 1<<tlvPorts | 1<<tlvFlags | 1<<tlvPrivate},
	kindAccept:   {paramsNeed, paramsNeed | 1<<tlvPorts | 1<<tlvFlags | 1<<tlvPrivate},
	kindReject:   {0, 1 << tlvPrivate},
	kindMismatch: {1<<tlvField | 1<<tlvMine | 1<<tlvTheirs, 1<<tlvField | 1<<tlvMine | 1<<tlvTheirs},
	kindRekey:    {1 << tlvGen, 1 << tlvGen},
	kindRekeyed:  {1 << tlvGen, 1 << tlvGen},
	kindClose:    {0, 1 << tlvPrivate},
	kindProbe:    {0, 0},
}

// A message is a decoded message. Which fields are valid depends on the kind.
type message struct {
	kind    kind
	version uint16
	params  Params
	private []byte
	gen     uint32
	differ  MismatchError // as its sender sees it
}

// A wrongMessage is a message that breaks the protocol.
type wrongMessage struct{ what string }

func (e *wrongMessage) Error() string { return "cm: wrong message: " + e.what }

func wrong(format string, args ...any) error { return &wrongMessage{fmt.Sprintf(format, args...)} }

// An unknownCritical is a message with a field that its receiver must know and
// does not.
type unknownCritical struct{ typ uint16 }

func (e *unknownCritical) Error() string {
	return fmt.Sprintf("cm: wrong message: unknown critical field %#04x", e.typ)
}

// append appends the message to b. A value out of range is our bug, because parameters are
// checked before they get here.
func (m *message) append(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.kind), 0)
	b = binary.BigEndian.AppendUint16(b, m.version)
	has := kinds[m.kind].may
	if has&(1<<tlvAddr) != 0 {
		b = appendParams(b, &m.params)
	}
	if has&(1<<tlvPrivate) != 0 && len(m.private) > 0 {
		if len(m.private) > MaxPrivate {
			panic(fmt.Sprintf("BUG: cm: %d bytes of private data", len(m.private)))
		}
		b = appendTLV(b, tlvPrivate, m.private...)
	}
	if has&(1<<tlvGen) != 0 {
		b = appendTLV(b, tlvGen, be32(m.gen)...)
	}
	if has&(1<<tlvField) != 0 {
		b = appendTLV(b, tlvField, []byte(cut(m.differ.Field))...)
		b = appendTLV(b, tlvMine, []byte(cut(m.differ.Mine))...)
		b = appendTLV(b, tlvTheirs, []byte(cut(m.differ.Theirs))...)
	}
	binary.BigEndian.PutUint32(b[start+msgLength:], uint32(len(b)-start-msgKind))
	return b
}

func cut(s string) string { return s[:min(len(s), maxText)] }

func appendParams(b []byte, p *Params) []byte {
	if err := check(p); err != nil {
		panic("BUG: cm: parameters out of range: " + err.Error())
	}
	b = appendTLV(b, tlvAddr, append(p.Addr.Addr().Unmap().AsSlice(), be16(p.Addr.Port())...)...)
	if len(p.Ports) > 0 {
		v := make([]byte, 0, 2*MaxPorts)
		for _, port := range p.Ports {
			v = binary.BigEndian.AppendUint16(v, port)
		}
		b = appendTLV(b, tlvPorts, v...)
	}
	b = appendTLV(b, tlvJobID, be32(p.JobID)...)
	b = appendTLV(b, tlvPIDonFEP, be16(p.PIDonFEP)...)
	b = appendTLV(b, tlvRI, be16(p.RI)...)
	b = appendTLV(b, tlvInitiator, be32(p.Initiator)...)
	b = appendTLV(b, tlvPayloadMTU, be16(uint16(p.PayloadMTU))...)
	b = appendTLV(b, tlvModes, p.Modes)
	b = appendTLV(b, tlvProfile, be32(p.Profile)...)
	b = appendTLV(b, tlvSecurity, byte(p.Security))
	flags := byte(0)
	if p.NoCRC {
		flags |= flagNoCRC
	}
	if p.Encapsulation == wire.Standard {
		flags |= flagStandard
	}
	if flags != 0 {
		b = appendTLV(b, tlvFlags, flags)
	}
	return b
}

func appendTLV(b []byte, typ uint16, value ...byte) []byte {
	b = binary.BigEndian.AppendUint16(b, typ)
	b = binary.BigEndian.AppendUint16(b, uint16(len(value)))
	return append(b, value...)
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// messageLen returns the length of the message at the front of b, header included, or 0 if b is
// too short to tell.
func messageLen(b []byte) (int, error) {
	if len(b) < msgKind {
		return 0, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n < msgLen-msgKind || n > maxMessage-msgKind {
		return 0, wrong("length %d", n)
	}
	return int(n) + msgKind, nil
}

// parse decodes b, which must be exactly one message. It keeps nothing of b. Of a message of
// another version it decodes only a mismatch; for other kinds it sets kind and version only,
// because the rest is not known.
func parse(b []byte, version uint16) (message, error) {
	if len(b) < msgLen || int(binary.BigEndian.Uint32(b)) != len(b)-msgKind {
		return message{}, wrong("%d bytes", len(b))
	}
	m := message{kind: kind(b[msgKind]), version: binary.BigEndian.Uint16(b[msgVersion:])}
	if m.version != version && m.kind != kindMismatch {
		return m, nil
	}
	if m.kind == 0 || int(m.kind) >= len(kinds) {
		return message{}, wrong("kind %d", m.kind)
	}
	var seen uint32
	for b = b[msgLen:]; len(b) > 0; {
		if len(b) < 4 {
			return message{}, wrong("%d bytes left over", len(b))
		}
		typ, n := binary.BigEndian.Uint16(b), int(binary.BigEndian.Uint16(b[2:]))
		if n > len(b)-4 {
			return message{}, wrong("field %d of %d bytes in %d", typ, n, len(b)-4)
		}
		v := b[4 : 4+n]
		b = b[4+n:]
		if typ&^tlvCritical >= tlvEnd || kinds[m.kind].may&(1<<(typ&^tlvCritical)) == 0 {
			if typ&tlvCritical != 0 {
				return message{}, &unknownCritical{typ}
			}
			continue
		}
		typ &^= tlvCritical
		if seen&(1<<typ) != 0 {
			return message{}, wrong("field %d twice", typ)
		}
		seen |= 1 << typ
		if !m.set(typ, v) {
			return message{}, wrong("field %d of %d bytes", typ, n)
		}
	}
	if missing := kinds[m.kind].need &^ seen; missing != 0 {
		return message{}, wrong("fields %#x missing", missing)
	}
	if seen&(1<<tlvAddr) != 0 {
		m.params.Version = m.version
		if err := check(&m.params); err != nil {
			return message{}, wrong("%v", err)
		}
	}
	return m, nil
}

// set sets the field of a type. It returns false if v has a length that the type cannot have.
func (m *message) set(typ uint16, v []byte) bool {
	u8 := func(p *uint8) bool {
		if len(v) != 1 {
			return false
		}
		*p = v[0]
		return true
	}
	u16 := func(p *uint16) bool {
		if len(v) != 2 {
			return false
		}
		*p = binary.BigEndian.Uint16(v)
		return true
	}
	u32 := func(p *uint32) bool {
		if len(v) != 4 {
			return false
		}
		*p = binary.BigEndian.Uint32(v)
		return true
	}
	text := func(p *string) bool {
		*p = string(v)
		return len(v) <= maxText
	}
	switch p := &m.params; typ {
	case tlvPrivate:
		m.private = append([]byte(nil), v...)
		return len(v) <= MaxPrivate
	case tlvAddr:
		if len(v) != 6 && len(v) != 18 {
			return false
		}
		ip, _ := netip.AddrFromSlice(v[:len(v)-2])
		p.Addr = netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(v[len(v)-2:]))
		return true
	case tlvPorts:
		if len(v)%2 != 0 || len(v) > 2*MaxPorts {
			return false
		}
		p.Ports = make([]uint16, len(v)/2)
		for i := range p.Ports {
			p.Ports[i] = binary.BigEndian.Uint16(v[2*i:])
		}
		return true
	case tlvJobID:
		return u32(&p.JobID)
	case tlvPIDonFEP:
		return u16(&p.PIDonFEP)
	case tlvRI:
		return u16(&p.RI)
	case tlvInitiator:
		return u32(&p.Initiator)
	case tlvPayloadMTU:
		var n uint16
		ok := u16(&n)
		p.PayloadMTU = int(n)
		return ok
	case tlvModes:
		return u8(&p.Modes)
	case tlvProfile:
		return u32(&p.Profile)
	case tlvFlags:
		var f uint8
		ok := u8(&f)
		if p.NoCRC = f&flagNoCRC != 0; f&flagStandard != 0 {
			p.Encapsulation = wire.Standard
		}
		return ok
	case tlvSecurity:
		return u8((*uint8)(&p.Security))
	case tlvGen:
		return u32(&m.gen)
	case tlvField:
		return text(&m.differ.Field)
	case tlvMine:
		return text(&m.differ.Mine)
	case tlvTheirs:
		return text(&m.differ.Theirs)
	}
	return false
}
