package driver

import "syscall"

// schedYield gives the processor to another thread that wants it. It is a raw
// system call: the Go scheduler does not notice, which is what a spinning poll
// wants when its peer is another process on the same core. RawSyscall6 has the
// fewest frames below it: after a switch of threads each return is mispredicted.
func schedYield() { _, _, _ = syscall.RawSyscall6(syscall.SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0) }
