package wire

import (
	"encoding/binary"
	"fmt"
)

// Entropy header, 4 bytes, for native IP only (UE 3.5.10.1). Over UDP the source port is
// the entropy value.
const EntropyLen = 4 // bytes: entropy u16, reserved u16

var errEntropyLen = &Invalid{"entropy header", "length"}

// Entropy is the entropy header.
type Entropy struct{ EV uint16 }

// ParseEntropy decodes the header at the front of b and reports the bytes read.
func ParseEntropy(b []byte) (Entropy, int, error) {
	if len(b) < EntropyLen {
		return Entropy{}, 0, errEntropyLen
	}
	return Entropy{binary.BigEndian.Uint16(b)}, EntropyLen, nil
}

// Append appends the header to b.
func (e Entropy) Append(b []byte) []byte { return append(b, byte(e.EV>>8), byte(e.EV), 0, 0) }

func (e Entropy) String() string { return fmt.Sprintf("entropy=%#x", e.EV) }
