// Package invariant checks conditions that hold unless this module has a bug. The checks
// are compiled in under the race detector or the build tag invariant, and otherwise
// compiled away, so that a hot path can state its assumptions at no cost.
//
//	if invariant.On && w.inflight < 0 {
//		invariant.Check(false, "cms: inflight %d", w.inflight)
//	}
//
// The guard keeps a hot path free of allocations when checks are compiled in: the arguments
// of Check become interfaces before Check looks at the condition. Elsewhere a bare Check
// reads better.
//
// A failed check is a bug of this module and never the fault of a peer. Bytes from the
// network are refused with a typed error or counted, not checked here.
package invariant

import "fmt"

// Check panics with "BUG: " and the formatted message if On is true and cond is false.
func Check(cond bool, format string, args ...any) {
	if On && !cond {
		fail(format, args)
	}
}

//go:noinline
func fail(format string, args []any) {
	panic("BUG: " + fmt.Sprintf(format, args...))
}
