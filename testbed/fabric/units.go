package fabric

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// The three units are text in TOML and JSON. Bytes and Rate may also be a bare number
// there. A Duration may not, except 0, because its unit would be ambiguous.

// A Duration is written as in Go: "1.5ms".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number and a unit, such as \"1.5ms\"", b)
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON reads text or the number 0.
func (d *Duration) UnmarshalJSON(b []byte) error { return fromJSON(b, d.UnmarshalText) }

// Bytes is written "64KiB", "1.5kB", "9000".
type Bytes int64

func (n Bytes) String() string { return unitText(int64(n), byteUnits) }

// MarshalText returns String: the largest unit that gives a whole number.
func (n Bytes) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads a number of bytes, or of one of the units.
func (n *Bytes) UnmarshalText(b []byte) error {
	v, ok := unitValue(string(b), byteUnits)
	if !ok {
		return fmt.Errorf("%q is no size: write bytes, such as \"9000\", \"64KiB\" or \"1.5kB\"", b)
	}
	*n = Bytes(v)
	return nil
}

// UnmarshalJSON reads text or a number.
func (n *Bytes) UnmarshalJSON(b []byte) error { return fromJSON(b, n.UnmarshalText) }

// A Rate is in bits per second, written "1Gbit/s", "500Mbit/s", "10kbit/s".
type Rate int64

func (r Rate) String() string { return unitText(int64(r), rateUnits) }

// MarshalText returns String: the largest unit that gives a whole number.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a number of bits per second, or of one of the units.
func (r *Rate) UnmarshalText(b []byte) error {
	v, ok := unitValue(string(b), rateUnits)
	if !ok {
		return fmt.Errorf("%q is no rate: write bits per second, such as \"1Gbit/s\" or \"500Mbit/s\"", b)
	}
	*r = Rate(v)
	return nil
}

// UnmarshalJSON reads text or a number.
func (r *Rate) UnmarshalJSON(b []byte) error { return fromJSON(b, r.UnmarshalText) }

// fromJSON passes the text of a JSON string or number to text. It does not decode escapes:
// no unit needs one.
func fromJSON(b []byte, text func([]byte) error) error {
	if string(b) == "null" {
		return nil
	}
	if n := len(b); n >= 2 && b[0] == '"' && b[n-1] == '"' {
		b = b[1 : n-1]
	}
	return text(b)
}

// A unit is a suffix of a number.
type unit struct {
	name string
	size int64
	out  bool // written; the others are only read
}

// Largest first. Of names with the same ending the longer one comes first.
var (
	byteUnits = []unit{
		{"TiB", 1 << 40, true}, {"GiB", 1 << 30, true}, {"MiB", 1 << 20, true}, {"KiB", 1 << 10, true}, {"kiB", 1 << 10, false},
		{"TB", 1e12, true}, {"GB", 1e9, true}, {"MB", 1e6, true}, {"kB", 1e3, true}, {"KB", 1e3, false}, {"B", 1, false}, {"", 1, true},
	}
	rateUnits = []unit{
		{"Tbit/s", 1e12, true}, {"Gbit/s", 1e9, true}, {"Mbit/s", 1e6, true}, {"kbit/s", 1e3, true}, {"bit/s", 1, true}, {"", 1, false},
	}
)

// unitText writes v in the largest unit that gives a whole number.
func unitText(v int64, units []unit) string {
	for _, u := range units {
		if u.out && v%u.size == 0 && (v != 0 || u.size == 1) {
			return strconv.FormatInt(v/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10)
}

// unitValue is the inverse of unitText and accepts fractions. It rounds to a whole number
// of the base unit.
func unitValue(s string, units []unit) (int64, bool) {
	s = strings.TrimSpace(s)
	for _, u := range units {
		num, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		num = strings.TrimSpace(num)
		if v, err := strconv.ParseInt(num, 10, 64); err == nil {
			hi, lo := bits.Mul64(uint64(max(v, -v)), uint64(u.size))
			if hi != 0 || lo > math.MaxInt64 {
				return 0, false
			}
			return v * u.size, true
		}
		if num == "" || strings.Trim(num, "+-.0123456789eE") != "" {
			return 0, false
		}
		v, err := strconv.ParseFloat(num, 64)
		if v *= float64(u.size); err != nil || !(math.Abs(v) < math.MaxInt64) {
			return 0, false
		}
		return int64(math.Round(v)), true
	}
	return 0, false
}
