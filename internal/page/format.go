package page

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Unit is the unit of a number and how people write it.
type Unit struct {
	steps []step
}

type step struct {
	per  float64 // in base units
	name string
}

// The units. The base units are bits per second, bytes and nanoseconds.
var (
	Bits  = Unit{[]step{{1, "b/s"}, {1e3, "kb/s"}, {1e6, "Mb/s"}, {1e9, "Gb/s"}, {1e12, "Tb/s"}}}
	Size  = Unit{[]step{{1, "B"}, {1 << 10, "KiB"}, {1 << 20, "MiB"}, {1 << 30, "GiB"}, {1 << 40, "TiB"}}}
	Time  = Unit{[]step{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}}}
	Count = Unit{[]step{{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}}}
	Rate  = Unit{[]step{{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}, {1e9, "G/s"}}}
)

// step returns the largest step that v reaches.
func (u Unit) step(v float64) step {
	out := u.steps[0]
	for _, s := range u.steps {
		if math.Abs(v) >= s.per*0.9995 {
			out = s
		}
	}
	return out
}

// Format formats v with three or four figures and the unit.
func (u Unit) Format(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return NotMeasured
	}
	s := u.step(v)
	return strings.TrimSpace(Figures(v/s.per) + " " + s.name)
}

// Bytes formats a number of bytes.
func Bytes(n float64) string { return Size.Format(n) }

// Duration formats a time.
func Duration(d time.Duration) string { return Time.Format(float64(d)) }

// Figures formats a number with three figures and without trailing zeros. It writes a whole
// number below 10,000 in full.
func Figures(v float64) string {
	if a := math.Abs(v); a >= 0.001 && a < 1000 { // round first, so that 0.9996 becomes 1, not 1.000
		p := math.Pow(10, 2-math.Floor(math.Log10(a)))
		v = math.Round(v*p) / p
	}
	a := math.Abs(v)
	if a < 10000 && v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	prec := 0
	switch {
	case a < 0.001:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case a < 0.1:
		prec = 4
	case a < 1:
		prec = 3
	case a < 10:
		prec = 2
	case a < 100:
		prec = 1
	}
	return strconv.FormatFloat(v, 'f', prec, 64)
}

// Fixed formats a number with prec digits after the point and thin spaces between
// thousands.
func Fixed(v float64, prec int) string {
	s := strconv.FormatFloat(v, 'f', prec, 64)
	whole, rest, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "−", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "\u202f" + whole[i:]
	}
	if rest != "" {
		return sign + whole + "." + rest
	}
	return sign + whole
}

// Int formats a whole number with thin spaces between thousands.
func Int[T int | int64 | uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	if n > 0 && int64(n) < 0 { // a uint64 that does not fit int64
		s = strconv.FormatUint(uint64(n), 10)
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return sign + s
}

// Shell quotes words as a command line for a shell.
func Shell(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		plain := w != ""
		for _, r := range w {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-", r) {
				plain = false
			}
		}
		if !plain {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}

type urlPath struct{ p string }

func (u *urlPath) String() string { return (&url.URL{Path: u.p}).EscapedPath() }
