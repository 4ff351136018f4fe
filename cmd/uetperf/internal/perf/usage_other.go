//go:build !unix

package perf

import "time"

func usage() (user, sys time.Duration) { return 0, 0 }

func kernel() string { return "" }
