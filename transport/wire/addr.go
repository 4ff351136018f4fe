package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Addresses of endpoints are exchanged out of band and never in a header (R-ADDR-02). They
// have a binary form of 32 bytes, a string form, and the C layout of struct uet_addr of the
// UEC reference provider. Version 2 of the binary form appends port, payload MTU,
// encapsulation and path ports; it is our own (docs/architecture.md#addresses-and-ports).

// Port is the UDP port of Ultra Ethernet Transport (IANA).
const Port = 4793

// An Encapsulation is how packets lie in IP packets.
type Encapsulation uint8

// The encapsulations; the values are those of the address record.
const (
	// Symmetric is UDP from and to any port: a FEP is an IP address and a port, and answers go
	// to the port that a packet came from. Any number of FEPs share an address.
	Symmetric Encapsulation = iota
	// Standard is UDP to port 4793, from any port: that is the entropy value, which answers
	// repeat as their source port (UE 3.5.10.1). A FEP is an IP address.
	Standard
	// NativeIP is without UDP. No FEP of uetkit sends it.
	NativeIP
)

// String returns "symmetric", "standard" or "native IP".
func (e Encapsulation) String() string {
	switch e {
	case Symmetric:
		return "symmetric"
	case Standard:
		return "standard"
	case NativeIP:
		return "native IP"
	}
	return fmt.Sprintf("wire.Encapsulation(%d)", uint8(e))
}

// Defaults of fields that an address does not give (R-ADDR-05).
const (
	DefaultRI        = 15
	DefaultInitiator = 16
)

// AddrScheme is the prefix of the string form.
const AddrScheme = "fi_addr_uet://"

// Flags of an Addr: which of its fields are valid, and how it is used.
const (
	AddrCapsValid      = 1 << 0
	AddrIPValid        = 1 << 1
	AddrPIDValid       = 1 << 2
	AddrRIValid        = 1 << 3
	AddrInitiatorValid = 1 << 4
	AddrAbsolute       = 1 << 5 // absolute instead of relative addressing
	AddrIPv6           = 1 << 6
	AddrMTUMessage     = 1 << 7 // messages limited to one MTU
)

// Capability bits of an Addr.
const (
	CapAIBase    = 1 << 0
	CapAIFull    = 1 << 1
	CapHPC       = 1 << 2
	CapReorder   = 1 << 6
	CapOptimized = 1 << 7 // understands small and medium request headers
)

// Lengths of the binary forms in bytes.
const (
	AddrV1Len = 32
	AddrV2Len = 40
	AddrLen   = AddrV2Len // the longest
	AddrCLen  = 32        // struct uet_addr of the reference provider
)

// PathPorts are the UDP ports beside the main one at which a FEP with Symmetric encapsulation receives:
// First, First+1 and so on, N of them. Packets that open a PDC may go there (docs/decisions/0047). The
// zero value is none.
type PathPorts struct {
	First uint16
	N     uint8
}

// PathPortsOf returns the PathPorts of a FEP with these ports, the main one first: the second, and those
// that follow on it.
func PathPortsOf(ports []uint16) (p PathPorts) {
	if len(ports) < 2 {
		return p
	}
	p = PathPorts{ports[1], 1}
	for _, q := range ports[2:] {
		if p.N == maxPathPorts || int(q) != int(p.First)+int(p.N) {
			break
		}
		p.N++
	}
	return p
}

// maxPathPorts is the most path ports: a FEP has 255 ports at most.
const maxPathPorts = 254

// Valid returns p, the zero PathPorts if p has no port or goes beyond port 65535.
func (p PathPorts) Valid() PathPorts {
	if p.First == 0 || p.N == 0 || p.N > maxPathPorts || int(p.First)+int(p.N) > 1<<16 {
		return PathPorts{}
	}
	return p
}

// An Addr names an endpoint by FEP (IP address and UDP port), PIDonFEP, RI and initiator.
// It is comparable.
type Addr struct {
	Flags     uint8
	MTUCode   uint8         // payload MTU: 0 unknown, 1 to 4 for 1024, 2048, 4096 and 8192
	Encap     Encapsulation // Symmetric also means unknown: text and socket addresses do not say
	Caps      uint16
	Port      uint16 // 0 means the well-known port
	PIDonFEP  uint16 // 12 bit
	RI        uint16 // 12 bit; the first of NumRI
	NumRI     uint16
	Paths     PathPorts // text and socket addresses do not say
	Initiator uint32
	IP        netip.Addr
}

// SockAddr is the Addr of an IP address and a UDP port, with defaults for all other fields.
func SockAddr(ap netip.AddrPort) Addr {
	a := Addr{IP: ap.Addr().Unmap(), Port: ap.Port(), RI: DefaultRI, NumRI: 1, Initiator: DefaultInitiator}
	if a.IP.IsValid() {
		a.Flags = AddrIPValid
	}
	return a
}

// AddrPort is the IP address and UDP port of the FEP.
func (a Addr) AddrPort() netip.AddrPort {
	p := a.Port
	if p == 0 {
		p = Port
	}
	return netip.AddrPortFrom(a.IP, p)
}

// Errors of parsing addresses.
var (
	ErrAddrShort   = errors.New("wire: address record too short")
	ErrAddrMagic   = errors.New("wire: not an address record")
	ErrAddrVersion = errors.New("wire: unknown version of address record")
	ErrAddrNoIP    = errors.New("wire: address record without an IP address")
	ErrAddrField   = errors.New("wire: address field out of range")
)

const addrMagic = 0x55

// AppendBinary appends the binary form: version 1 if the port is the well-known one and no
// other field of version 2 is set, otherwise version 2.
func (a Addr) AppendBinary(b []byte) ([]byte, error) {
	if err := a.check(); err != nil {
		return b, err
	}
	v := byte(1)
	if a.Port != 0 && a.Port != Port || a.MTUCode != 0 || a.Encap != 0 || a.Paths.Valid().N != 0 {
		v = 2
	}
	f := (a.Flags | AddrIPValid) &^ AddrIPv6
	if a.IP.Is6() {
		f |= AddrIPv6
	}
	if a.PIDonFEP != 0 {
		f |= AddrPIDValid
	}
	if a.RI != DefaultRI || a.NumRI > 1 {
		f |= AddrRIValid
	}
	if a.Initiator != DefaultInitiator {
		f |= AddrInitiatorValid
	}
	if a.Caps != 0 {
		f |= AddrCapsValid
	}
	b = append(b, addrMagic, v, f, 0)
	b = binary.BigEndian.AppendUint16(b, a.Caps)
	b = binary.BigEndian.AppendUint16(b, a.PIDonFEP)
	b = binary.BigEndian.AppendUint16(b, a.RI)
	b = binary.BigEndian.AppendUint16(b, max(a.NumRI, 1))
	b = binary.BigEndian.AppendUint32(b, a.Initiator)
	var ip [16]byte
	if a.IP.Is4() {
		v4 := a.IP.As4()
		copy(ip[:], v4[:])
	} else {
		ip = a.IP.As16()
	}
	b = append(b, ip[:]...)
	if v == 2 {
		b = binary.BigEndian.AppendUint16(b, a.AddrPort().Port())
		b = append(b, a.MTUCode, byte(a.Encap))
		p := a.Paths.Valid()
		b = append(binary.BigEndian.AppendUint16(b, p.First), p.N, 0)
	}
	return b, nil
}

func (a Addr) check() error {
	switch {
	case !a.IP.IsValid():
		return ErrAddrNoIP
	case a.PIDonFEP > 0xfff || a.RI > 0xfff:
		return ErrAddrField
	}
	return nil
}

// ParseAddrBinary decodes the binary form at the front of b and reports the bytes read.
// Fields whose valid bit is 0 get their defaults (R-ADDR-05).
func ParseAddrBinary(b []byte) (Addr, int, error) {
	if len(b) < AddrV1Len {
		return Addr{}, 0, ErrAddrShort
	}
	if b[0] != addrMagic {
		return Addr{}, 0, ErrAddrMagic
	}
	n := AddrV1Len
	switch b[1] {
	case 1:
	case 2:
		if n = AddrV2Len; len(b) < n {
			return Addr{}, 0, ErrAddrShort
		}
	default:
		return Addr{}, 0, ErrAddrVersion
	}
	a := Addr{Flags: b[2], Caps: binary.BigEndian.Uint16(b[4:]), PIDonFEP: binary.BigEndian.Uint16(b[6:]), RI: binary.BigEndian.Uint16(b[8:]),
		NumRI: binary.BigEndian.Uint16(b[10:]), Initiator: binary.BigEndian.Uint32(b[12:]), Port: Port}
	if a.Flags&AddrIPv6 != 0 {
		a.setIPv6([16]byte(b[16:32]))
	} else {
		a.IP = netip.AddrFrom4([4]byte(b[16:20]))
	}
	if n == AddrV2Len {
		a.Port, a.MTUCode, a.Encap = binary.BigEndian.Uint16(b[32:]), b[34], Encapsulation(b[35])
		a.Paths = PathPorts{binary.BigEndian.Uint16(b[36:]), b[38]}.Valid()
		if a.Port == 0 {
			a.Port = Port
		}
	}
	if err := a.defaults(); err != nil {
		return Addr{}, 0, err
	}
	return a, n, nil
}

// setIPv6 sets the IP address. An IPv4-mapped address becomes the IPv4 address, so that an
// endpoint has one Addr only.
func (a *Addr) setIPv6(ip [16]byte) {
	if a.IP = netip.AddrFrom16(ip).Unmap(); a.IP.Is4() {
		a.Flags &^= AddrIPv6
	}
}

// defaults sets the fields that are not valid to their defaults (R-ADDR-05) and checks the
// ranges of all.
func (a *Addr) defaults() error {
	if a.Flags&AddrIPValid == 0 {
		return ErrAddrNoIP
	}
	if a.Flags&AddrCapsValid == 0 {
		a.Caps = 0
	}
	if a.Flags&AddrPIDValid == 0 {
		a.PIDonFEP = 0
	}
	if a.Flags&AddrRIValid == 0 {
		a.RI, a.NumRI = DefaultRI, 1
	}
	if a.Flags&AddrInitiatorValid == 0 {
		a.Initiator = DefaultInitiator
	}
	return a.check()
}

// AppendC appends the C layout of the reference provider in host byte order (R-ADDR-03). It
// has no port, which means the well-known one.
func (a Addr) AppendC(b []byte) ([]byte, error) {
	if err := a.check(); err != nil {
		return b, err
	}
	var c [AddrCLen]byte
	c[1] = a.Flags | AddrIPValid | AddrPIDValid | AddrRIValid | AddrInitiatorValid
	c[2] = uint8(a.Caps)
	if a.IP.Is4() {
		v4 := a.IP.As4()
		binary.NativeEndian.PutUint32(c[4:], binary.BigEndian.Uint32(v4[:]))
	} else {
		c[1] |= AddrIPv6
		v6 := a.IP.As16()
		copy(c[4:], v6[:])
	}
	binary.NativeEndian.PutUint16(c[20:], a.PIDonFEP)
	binary.NativeEndian.PutUint16(c[22:], a.RI)
	binary.NativeEndian.PutUint16(c[24:], max(a.NumRI, 1))
	binary.NativeEndian.PutUint32(c[28:], a.Initiator)
	return append(b, c[:]...), nil
}

// ParseAddrC decodes the layout that AppendC writes.
func ParseAddrC(b []byte) (Addr, error) {
	if len(b) < AddrCLen {
		return Addr{}, ErrAddrShort
	}
	if b[0]&0xf0 != 0 {
		return Addr{}, ErrAddrVersion
	}
	a := Addr{Flags: b[1], Caps: uint16(b[2]), Port: Port, PIDonFEP: binary.NativeEndian.Uint16(b[20:]), RI: binary.NativeEndian.Uint16(b[22:]),
		NumRI: binary.NativeEndian.Uint16(b[24:]), Initiator: binary.NativeEndian.Uint32(b[28:])}
	if a.Flags&AddrIPv6 != 0 {
		a.setIPv6([16]byte(b[4:20]))
	} else {
		var v4 [4]byte
		binary.BigEndian.PutUint32(v4[:], binary.NativeEndian.Uint32(b[4:]))
		a.IP = netip.AddrFrom4(v4)
	}
	if err := a.defaults(); err != nil {
		return Addr{}, err
	}
	return a, nil
}

// String is the form of fi_av_straddr: fi_addr_uet://ip:port/pid/ri/initiator (R-ADDR-06).
func (a Addr) String() string {
	if !a.IP.IsValid() {
		return AddrScheme + "invalid"
	}
	return fmt.Sprintf("%s%v/%d/%d/%d", AddrScheme, a.AddrPort(), a.PIDonFEP, a.RI, a.Initiator)
}

// ParseAddr is the inverse of String. The port may be missing, and any number of the fields
// behind the host, from the right.
func ParseAddr(s string) (Addr, error) {
	rest, ok := strings.CutPrefix(s, AddrScheme)
	if !ok {
		return Addr{}, fmt.Errorf("wire: address %q does not begin with %s", s, AddrScheme)
	}
	parts := strings.Split(rest, "/")
	if len(parts) > 4 {
		return Addr{}, fmt.Errorf("wire: address %q has more than host, pid, ri and initiator", s)
	}
	a := Addr{Flags: AddrIPValid, RI: DefaultRI, NumRI: 1, Initiator: DefaultInitiator, Port: Port}
	if ap, err := netip.ParseAddrPort(parts[0]); err == nil {
		a.IP, a.Port = ap.Addr().Unmap(), ap.Port()
	} else if ip, err := netip.ParseAddr(strings.Trim(parts[0], "[]")); err == nil {
		a.IP = ip.Unmap()
	} else {
		return Addr{}, fmt.Errorf("wire: address %q: %w", s, err)
	}
	for i, p := range parts[1:] {
		bits := 12
		if i == 2 {
			bits = 32
		}
		v, err := strconv.ParseUint(p, 10, bits)
		if err != nil {
			return Addr{}, fmt.Errorf("wire: address %q: %w", s, err)
		}
		switch i {
		case 0:
			a.PIDonFEP = uint16(v)
			a.Flags |= AddrPIDValid
		case 1:
			a.RI = uint16(v)
			a.Flags |= AddrRIValid
		case 2:
			a.Initiator = uint32(v)
			a.Flags |= AddrInitiatorValid
		}
	}
	return a, nil
}
