// Package portrange binds UDP ports of a range that a firewall lets through.
package portrange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
)

// A Range is the UDP ports First to Last. The zero Range is whatever port the system gives.
type Range struct{ First, Last uint16 }

// IsZero reports whether the system is to choose.
func (r Range) IsZero() bool { return r == Range{} }

// Len is how many ports there are in the range, 0 for the zero Range.
func (r Range) Len() int {
	if r.IsZero() {
		return 0
	}
	return int(r.Last) - int(r.First) + 1
}

// String is "20000-20063", "" for the zero Range.
func (r Range) String() string {
	if r.IsZero() {
		return ""
	}
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Check returns an error for a range without ports, or with port 0.
func (r Range) Check() error {
	if r.IsZero() || r.First > 0 && r.First <= r.Last {
		return nil
	}
	return fmt.Errorf("ports %d-%d are no range of 1 to 65535", r.First, r.Last)
}

// Parse is the inverse of String. It also takes a single port.
func Parse(s string) (Range, error) {
	a, b, both := strings.Cut(s, "-")
	if !both {
		b = a
	}
	first, err := strconv.ParseUint(strings.TrimSpace(a), 10, 16)
	last, err2 := strconv.ParseUint(strings.TrimSpace(b), 10, 16)
	r := Range{uint16(first), uint16(last)}
	if err != nil || err2 != nil || r.IsZero() || r.Check() != nil {
		return Range{}, fmt.Errorf("%q is no range of UDP ports such as 20000-20063", s)
	}
	return r, nil
}

// wsaeAddrInUse is what Windows says in place of EADDRINUSE. No other system has that number.
const wsaeAddrInUse = syscall.Errno(10048)

// taken reports whether an error says that a port is in use.
func taken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaeAddrInUse)
}

// Bind calls bind with ports of the range in turn until one is free, and returns what bind
// returned. It begins anywhere in the range, so that a port that was just closed is seldom taken
// again at once. less leaves that many ports at the end of the range out. With the zero Range it
// calls bind once with port 0. If no port is free the error is an EADDRINUSE that names the range.
func Bind[T any](r Range, less int, bind func(port uint16) (T, error)) (T, error) {
	if r.IsZero() {
		return bind(0)
	}
	var none T
	n := r.Len() - less
	if n <= 0 {
		return none, fmt.Errorf("%d ports in a row do not fit into %v: %w", less+1, r, syscall.EADDRINUSE)
	}
	from := rand.IntN(n)
	for i := range n {
		t, err := bind(r.First + uint16((from+i)%n))
		if err == nil || !taken(err) {
			return t, err
		}
	}
	return none, fmt.Errorf("none of the UDP ports %v is free: %w", r, syscall.EADDRINUSE)
}
