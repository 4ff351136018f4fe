//go:build !race && !invariant

package invariant

// On reports whether checks are compiled in: under the race detector or with
// the build tag invariant.
const On = false
