//go:build unix

package perf

import (
	"time"

	"golang.org/x/sys/unix"
)

// usage is the processor time of the process so far.
func usage() (user, sys time.Duration) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0, 0
	}
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}

// Self describes this host.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
