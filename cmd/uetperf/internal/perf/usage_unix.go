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

// openFiles is the number of files that the process may have open. The runtime has raised it as far as
// the system lets it.
func openFiles() (most uint64, known bool) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil
}

// kernel returns the release of the operating system's kernel, "" if it is not known.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
