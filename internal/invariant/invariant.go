// Package invariant holds the checks of what must be true unless this module
// has a bug. They are compiled in under the race detector or the build tag
// invariant, and compiled away otherwise, so that a hot path may state what it
// relies on at no cost.
//
//	if invariant.On && w.inflight < 0 {
//		invariant.Check(false, "cms: inflight %d", w.inflight)
//	}
//
// The guard keeps a hot path free of allocations with checks on as well: the
// arguments of Check become interfaces before it decides that there is nothing
// to do. Elsewhere a bare Check reads better.
//
// A broken check is our bug and never a peer's doing: bytes from the network
// are refused with a typed error or counted, not checked here.
package invariant

import "fmt"

// Check panics with "BUG: " and the formatted message if cond is false and On
// is true. Otherwise it does nothing.
func Check(cond bool, format string, args ...any) {
	if On && !cond {
		fail(format, args)
	}
}

//go:noinline
func fail(format string, args []any) {
	panic("BUG: " + fmt.Sprintf(format, args...))
}
