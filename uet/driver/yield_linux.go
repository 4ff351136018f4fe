package driver

import (
	"golang.org/x/sys/unix"
)

// schedYield gives the processor to another thread that wants it. It is a raw
// system call: the Go scheduler does not notice, which is what a spinning poll
// wants when its peer is another process on the same core.
func schedYield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
