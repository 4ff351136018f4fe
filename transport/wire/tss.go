package wire

import (
	"encoding/binary"
	"fmt"
)

// Security header, 12 bytes, 16 with SSI: UE 3.7. The packet behind it, from the PDS header
// on, is encrypted, and an ICV takes the place of the CRC.
const (
	tssSSI    = 4  // uint32, with SP; epoch:16 tsc:48 are the last 8 bytes of the header
	TSSLen    = 12 // bytes
	TSSSSILen = 16 // bytes, with SP
	ICVLen    = 16 // bytes of the trailer, which is never truncated
)

// The first word: type:5 sp:1 rsvd:1 an:1 sdi:24.
const (
	tssSP  = 1 << 26
	tssAN  = 1 << 24
	tssSDI = 1<<24 - 1
)

// TSCMax is the highest TSC. The counter never wraps.
const TSCMax = 1<<48 - 1

var (
	errTSSLen  = &Invalid{"security header", "length"}
	errTSSType = &Invalid{"security header", "type"}
)

// A TSS is the security header.
type TSS struct {
	SP    bool   // SSI is present
	AN    uint8  // association number, 1 bit: which of the domain's two keys
	Epoch uint16 // of the domain; part of the IV
	SDI   uint32 // secure domain identifier, 24 bit
	SSI   uint32 // secure source identifier, with SP
	TSC   uint64 // the sender's packet counter in the domain, 48 bit
}

// ParseTSS decodes the security header at the front of b and reports the bytes
// read.
func ParseTSS(b []byte) (TSS, int, error) {
	if len(b) < TSSLen {
		return TSS{}, 0, errTSSLen
	}
	w := binary.BigEndian.Uint32(b)
	if Type(w>>27) != TypeTSS {
		return TSS{}, 0, errTSSType
	}
	t := TSS{SP: w&tssSP != 0, SDI: w & tssSDI}
	if w&tssAN != 0 {
		t.AN = 1
	}
	n := TSSLen
	if t.SP {
		if n = TSSSSILen; len(b) < n {
			return TSS{}, 0, errTSSLen
		}
		t.SSI = binary.BigEndian.Uint32(b[tssSSI:])
	}
	c := binary.BigEndian.Uint64(b[n-8:])
	t.Epoch, t.TSC = uint16(c>>48), c&TSCMax
	return t, n, nil
}

// Len is the length of the encoded header in bytes.
func (t TSS) Len() int {
	if t.SP {
		return TSSSSILen
	}
	return TSSLen
}

// Append appends the header to b. It panics if a field is out of range.
func (t TSS) Append(b []byte) []byte {
	if t.AN > 1 || t.SDI > tssSDI || t.TSC > TSCMax {
		panic("BUG: wire: security header field out of range")
	}
	w := uint32(TypeTSS)<<27 | uint32(t.AN)*tssAN | t.SDI
	if t.SP {
		b = binary.BigEndian.AppendUint32(b, w|tssSP)
		b = binary.BigEndian.AppendUint32(b, t.SSI)
	} else {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return binary.BigEndian.AppendUint64(b, uint64(t.Epoch)<<48|t.TSC)
}

func (t TSS) String() string {
	s := fmt.Sprintf("TSS an=%d sdi=%d", t.AN, t.SDI)
	if t.SP {
		s += fmt.Sprintf(" ssi=%#x", t.SSI)
	}
	return s + fmt.Sprintf(" epoch=%d tsc=%#x", t.Epoch, t.TSC)
}
