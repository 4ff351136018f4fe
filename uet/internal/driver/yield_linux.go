package driver

import "syscall"

// schedYield offers the processor to another thread. It is a raw system call that the Go
// scheduler does not notice, which suits a spinning poll whose peer is another process on
// the same core. RawSyscall6 has the fewest frames below it: after a switch of threads each
// return is mispredicted.
func schedYield() { _, _, _ = syscall.RawSyscall6(syscall.SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0) }
