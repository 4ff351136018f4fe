//go:build !linux

package perf

// resident and descriptors are known on Linux only.
func resident() int64    { return -1 }
func descriptors() int64 { return -1 }
