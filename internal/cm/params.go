package cm

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/uetkit/uetkit/transport/wire"
)

// MaxPrivate bounds the private data of a message, in bytes (R-CM-09).
const MaxPrivate = 256

// MaxPorts bounds the ports of a data socket in a message.
const MaxPorts = 256

// Security is what the two ends must prove to each other for a connection.
type Security uint8

const (
	// SecOff means that neither side is authenticated. The connection is encrypted to whoever
	// answered.
	SecOff Security = iota
	// SecTLS means that both sides show a certificate of the authority.
	SecTLS
	// SecPSK means that both sides prove that they have the cluster key.
	SecPSK
)

func (s Security) String() string {
	switch s {
	case SecOff:
		return "off"
	case SecTLS:
		return "tls"
	case SecPSK:
		return "psk"
	}
	return "security(" + strconv.Itoa(int(s)) + ")"
}

// Params are what one end tells the other about itself.
type Params struct {
	// Version is the version of the protocol of this package, which sets it.
	Version uint16
	// Addr is the data socket. An unspecified IP stands for the source of the connection's
	// packets; the receiving end replaces it.
	Addr netip.AddrPort
	// Ports are those of all paths, the main one first, at most MaxPorts. Empty means that of
	// Addr alone.
	Ports []uint16

	JobID     uint32 // 24 bit
	PIDonFEP  uint16 // 12 bit
	RI        uint16 // 12 bit
	Initiator uint32

	// PayloadMTU is in bytes: 1024, 2048, 4096 or 8192.
	PayloadMTU int
	// Modes are the modes that this end accepts, bit 1<<wire.Mode. The two ends need one in
	// common.
	Modes uint8
	// Profile must be the same at both ends.
	Profile uint32

	NoCRC bool
	// Encapsulation is that of data packets: Symmetric or Standard, the same at both ends.
	Encapsulation wire.Encapsulation

	// Security is that of the connection; this package sets it.
	Security Security
}

// modesKnown is the bits of Params.Modes that have a meaning.
const modesKnown = 1<<wire.RUD | 1<<wire.ROD | 1<<wire.RUDI | 1<<wire.UUD

// check returns an error for the first field that no message can carry.
func (p *Params) check() error {
	switch {
	case !p.Addr.IsValid() || p.Addr.Port() == 0:
		return fmt.Errorf("address %v", p.Addr)
	case p.Addr.Addr().Zone() != "":
		return fmt.Errorf("address %v has a zone", p.Addr)
	case len(p.Ports) > MaxPorts:
		return fmt.Errorf("%d ports, more than %d", len(p.Ports), MaxPorts)
	case p.JobID > 0xffffff:
		return fmt.Errorf("JobID %#x is longer than 24 bits", p.JobID)
	case p.PIDonFEP > 0xfff:
		return fmt.Errorf("PIDonFEP %#x is longer than 12 bits", p.PIDonFEP)
	case p.RI > 0xfff:
		return fmt.Errorf("RI %#x is longer than 12 bits", p.RI)
	case p.PayloadMTU != 1024 && p.PayloadMTU != 2048 && p.PayloadMTU != 4096 && p.PayloadMTU != 8192:
		return fmt.Errorf("payload MTU %d", p.PayloadMTU)
	case p.Modes&modesKnown == 0 || p.Modes&^modesKnown != 0:
		return fmt.Errorf("modes %#x", p.Modes)
	case p.Security > SecPSK:
		return fmt.Errorf("security %v", p.Security)
	}
	for i, port := range p.Ports {
		if port == 0 {
			return fmt.Errorf("port %d of %d is 0", i, len(p.Ports))
		}
	}
	if len(p.Ports) > 0 && p.Ports[0] != p.Addr.Port() {
		return fmt.Errorf("main port %d, not %d as the address has it", p.Ports[0], p.Addr.Port())
	}
	return nil
}

// mismatch compares what both ends must have in common. It returns nil if they agree.
func (p *Params) mismatch(theirs *Params) *MismatchError {
	switch {
	case p.Security != theirs.Security:
		return &MismatchError{"security", p.Security.String(), theirs.Security.String()}
	case p.Profile != theirs.Profile:
		return &MismatchError{"profile", fmt.Sprintf("%#x", p.Profile), fmt.Sprintf("%#x", theirs.Profile)}
	case p.Modes&theirs.Modes == 0:
		return &MismatchError{"modes", modeNames(p.Modes), modeNames(theirs.Modes)}
	case p.JobID != theirs.JobID:
		return &MismatchError{"JobID", fmt.Sprintf("%#x", p.JobID), fmt.Sprintf("%#x", theirs.JobID)}
	case p.Security == SecOff && p.NoCRC != theirs.NoCRC: // sealed packets have no CRC
		return &MismatchError{"CRC", onOff(!p.NoCRC), onOff(!theirs.NoCRC)}
	case p.Encapsulation != theirs.Encapsulation:
		return &MismatchError{"encapsulation", p.Encapsulation.String(), theirs.Encapsulation.String()}
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func modeNames(modes uint8) string {
	s := ""
	for m := wire.RUD; m <= wire.UUD; m++ {
		if modes&(1<<m) != 0 {
			if s != "" {
				s += " "
			}
			s += m.String()
		}
	}
	return s
}
