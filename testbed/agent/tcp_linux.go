package agent

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// cubic makes a socket use the congestion control of most machines, whatever this one uses.
func cubic(_, _ string, c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
	}); e != nil {
		return e
	}
	return err
}
