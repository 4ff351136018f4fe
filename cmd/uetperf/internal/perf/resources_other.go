//go:build !linux

package perf

// resident and descriptors return -1, not known: they are implemented on Linux only.
func resident() int64    { return -1 }
func descriptors() int64 { return -1 }
