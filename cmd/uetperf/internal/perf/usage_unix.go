//go:build unix

package perf

import (
	"time"

	"golang.org/x/sys/unix"
)

// Usage returns the processor time that the process has used so far.
func Usage() (user, sys time.Duration) {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0, 0
	}
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}

// kernel returns the release of the operating system's kernel, "" if it is not known.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
