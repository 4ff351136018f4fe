package wire

import "testing"

func TestMKeyValid(t *testing.T) {
	// R-MR-05
	for _, c := range []struct {
		name string
		key  uint64
		ok   bool
	}{
		{"zero", 0, true},
		{"longest RKEY", 1<<48 - 1, true},
		{"vendor field", 0xff << 48, true},
		{"lowest reserved bit", 1 << 56, false},
		{"highest reserved bit", 1 << 61, false},
		{"optimized", 1<<62 | 4095, true},
		{"optimized, RKEY of 13 bits", 1<<62 | 4096, false},
		{"optimized, highest bit of the RKEY", 1<<62 | 1<<47, false},
		{"idempotent", 1<<63 | 1<<47, true},
		{"idempotent and optimized", 3<<62 | 1, true},
	} {
		if MKeyValid(c.key) != c.ok {
			t.Errorf("%s: MKeyValid(%#x) = %v", c.name, c.key, !c.ok)
		}
	}
}
