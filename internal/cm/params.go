package cm

import (
	"fmt"

	"github.com/uetkit/uetkit/transport/wire"
)

// modesKnown is the bits of Params.Modes that have a meaning.
const modesKnown = 1<<wire.RUD | 1<<wire.ROD | 1<<wire.RUDI | 1<<wire.UUD

// check returns an error for the first field that no message can carry.
func check(p *Params) error {
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
func mismatch(p, theirs *Params) *MismatchError {
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
