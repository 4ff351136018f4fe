// Package units reads and writes quantities of uetperf's command line: sizes and sweeps of
// sizes, durations, rates, shares.
package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MaxSizes bounds the sizes that a sweep or list may have.
const MaxSizes = 4096

// ParseSize reads a number of bytes with an optional suffix K, M or G, each 1024 times the
// previous one. Ki, KiB and lower case are allowed, too.
func ParseSize(s string) (int64, error) {
	num, mult := s, int64(1)
	t := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(s), "b"), "i")
	if n := len(t); n > 0 {
		switch t[n-1] {
		case 'k':
			mult = 1 << 10
		case 'm':
			mult = 1 << 20
		case 'g':
			mult = 1 << 30
		}
		num = t
		if mult > 1 {
			num = t[:n-1]
		} else if len(t) != len(s) && !strings.HasSuffix(strings.ToLower(s), "b") {
			num = s // as in "5i"
		}
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/mult {
		return n * mult, nil
	}
	if f, err := strconv.ParseFloat(num, 64); err == nil && mult > 1 && f >= 0 && f*float64(mult) < 1<<62 {
		if b := f * float64(mult); b == math.Trunc(b) {
			return int64(b), nil
		}
	}
	return 0, fmt.Errorf("size %q is not a number of bytes such as 8, 4K, 1M or 2G", s)
}

// ParseSizes reads a list such as 8,64,1K. An element is a size or a sweep a:b:*f or
// a:b:+n, which includes both ends.
func ParseSizes(s string) ([]int64, error) {
	var out []int64
	for _, part := range strings.Split(s, ",") {
		f := strings.Split(strings.TrimSpace(part), ":")
		switch len(f) {
		case 1:
			n, err := ParseSize(f[0])
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		case 2, 3:
			sweep, err := parseSweep(part, f)
			if err != nil {
				return nil, err
			}
			out = append(out, sweep...)
		default:
			return nil, fmt.Errorf("sweep %q is not FROM:TO:*FACTOR or FROM:TO:+STEP", part)
		}
		if len(out) > MaxSizes {
			return nil, fmt.Errorf("sizes %q: more than %d", s, MaxSizes)
		}
	}
	return out, nil
}

// parseSweep reads a sweep. f are its parts.
func parseSweep(part string, f []string) ([]int64, error) {
	from, err := ParseSize(f[0])
	if err != nil {
		return nil, err
	}
	to, err := ParseSize(f[1])
	if err != nil {
		return nil, err
	}
	step := "*2"
	if len(f) == 3 {
		step = f[2]
	}
	if from > to {
		return nil, fmt.Errorf("sweep %q goes down: %s is more than %s", part, f[0], f[1])
	}
	bad := fmt.Errorf("sweep %q needs a step that grows: *2, *4, +8, +1K", part)
	if step == "" {
		return nil, bad
	}
	var next func(int64) int64
	switch step[0] {
	case '*', 'x':
		m, err := strconv.ParseFloat(step[1:], 64)
		if err != nil || !(m > 1) || m > 1<<20 {
			return nil, bad
		}
		next = func(n int64) int64 { return max(n+1, int64(math.Round(float64(n)*m))) }
	case '+':
		n, err := ParseSize(step[1:])
		if err != nil || n == 0 {
			return nil, bad
		}
		next = func(x int64) int64 { return x + n }
	default:
		return nil, bad
	}
	var out []int64
	for n := from; n <= to && n >= 0; n = next(n) {
		if out = append(out, n); len(out) > MaxSizes {
			return nil, fmt.Errorf("sweep %q: more than %d sizes", part, MaxSizes)
		}
	}
	return out, nil
}

// Size formats a number of bytes so that ParseSize can read it: 64K for 65536.
func Size(n int64) string {
	for _, u := range []struct {
		suffix string
		n      int64
	}{{"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}} {
		if n >= u.n && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

// Bytes formats a number of bytes for people, rounded: 1.5 GiB.
func Bytes(n int64) string {
	f := float64(n)
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1024 || u == "GiB" {
			return trim(f) + " " + u
		}
		f /= 1024
	}
	return ""
}

func trim(f float64) string {
	switch {
	case f >= 100 || f == math.Trunc(f):
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}

// Count formats a number for people: 5.2 M.
func Count(f float64) string {
	for _, u := range []string{"", " k", " M", " G"} {
		if math.Abs(f) < 1000 || u == " G" {
			if u == "" && f == math.Trunc(f) {
				return strconv.FormatFloat(f, 'f', 0, 64)
			}
			return trim(f) + u
		}
		f /= 1000
	}
	return ""
}

// ParseDuration reads a time such as 10s, 500ms or 1h. A bare number is in seconds.
func ParseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < 1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("time %q is not like 10s, 500ms or 1h", s)
	}
	return d, nil
}

// ParseRate reads a number per second: 20k/s, 1.5M, 300.
func ParseRate(s string) (float64, error) {
	num, mul := strings.TrimSuffix(s, "/s"), 1.0
	if n := len(num); n > 0 {
		if m, ok := map[byte]float64{'k': 1e3, 'K': 1e3, 'M': 1e6, 'G': 1e9}[num[n-1]]; ok {
			num, mul = num[:n-1], m
		}
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || !(f > 0) || math.IsInf(f*mul, 0) {
		return 0, fmt.Errorf("rate %q is not a number a second such as 300, 20k/s or 1.5M/s", s)
	}
	return f * mul, nil
}

// ParseShare reads a part of 1, as 1% or 0.01.
func ParseShare(s string) (float64, error) {
	num, div := s, 1.0
	if p, ok := strings.CutSuffix(s, "%"); ok {
		num, div = p, 100
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || !(f >= 0 && f/div <= 1) {
		return 0, fmt.Errorf("share %q is not between 0 and 1, or 0%% and 100%%", s)
	}
	return f / div, nil
}

// Plural formats a number with a noun, to which it adds an s unless the number is 1.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
