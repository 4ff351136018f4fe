//go:build unix

package doctor

import "golang.org/x/sys/unix"

// openFiles is the number of files that the process may have open.
func openFiles() (soft uint64, known bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
