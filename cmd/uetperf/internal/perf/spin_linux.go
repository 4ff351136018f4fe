package perf

import "golang.org/x/sys/unix"

// schedYield offers the processor to another thread without telling the Go scheduler. It
// takes a third of a microsecond if no thread wants it.
func schedYield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
