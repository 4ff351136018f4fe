//go:build !unix

package perf

import "time"

// Usage returns zeros: this system does not tell.
func Usage() (user, sys time.Duration) { return 0, 0 }

func kernel() string { return "" }

func openFiles() (most uint64, known bool) { return 0, false }
