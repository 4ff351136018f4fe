package driver

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slice is how long a thread that shares its processor runs before the scheduler looks for
// another one. Arbitrary; 0.1 ms is the least that the system takes.
const slice = 100 * time.Microsecond

// shortenSlice gives the calling thread a short slice, if it is scheduled as usual and has the
// slice of the system, which is some milliseconds. Since Linux 6.12 a thread with a shorter slice
// than the one that runs goes first when it wakes, and comes back sooner when it had to leave;
// its share of the processor stays the same. Older systems ignore it. What the thread starts
// (other threads, programs) has the usual slice. The calls cost 0.3 µs.
func shortenSlice() {
	var a unix.SchedAttr
	_, _, e := unix.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&a)), unix.SizeofSchedAttr, 0, 0, 0)
	if e != 0 || a.Policy != unix.SCHED_NORMAL || a.Nice < 0 || a.Runtime != 0 && a.Runtime <= uint64(slice) {
		return
	}
	// The system gives the value of its own slice for a thread that has no other.
	a.Size, a.Runtime = unix.SizeofSchedAttr, uint64(slice)
	a.Flags |= unix.SCHED_FLAG_RESET_ON_FORK // at nice 0 and above this concerns the slice alone
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(&a)), 0)
}
