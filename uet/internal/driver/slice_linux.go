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
	// The system gives the value of its own slice for a thread that has no other.
	if a, ok := schedAttr(); ok && a.Nice >= 0 && (a.Runtime == 0 || a.Runtime > uint64(slice)) {
		a.Runtime = uint64(slice)
		a.set()
	}
}

// usualSlice undoes shortenSlice. A thread that yields puts itself behind the others by its
// slice: one with a short slice must yield again and again until a thread with the usual one,
// which yields too, comes before it. Two ends on one processor took twice as long for a round
// trip while one of them had a short slice.
func usualSlice() {
	if a, ok := schedAttr(); ok && a.Runtime == uint64(slice) {
		a.Runtime = 0
		a.set()
	}
}

type attr unix.SchedAttr

// schedAttr returns the attributes of the calling thread, if it is scheduled as usual.
func schedAttr() (a attr, ok bool) {
	_, _, e := unix.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, uintptr(unsafe.Pointer(&a)), unix.SizeofSchedAttr, 0, 0, 0)
	return a, e == 0 && a.Policy == unix.SCHED_NORMAL
}

func (a *attr) set() {
	a.Size = unix.SizeofSchedAttr
	a.Flags |= unix.SCHED_FLAG_RESET_ON_FORK // at nice 0 and above this concerns the slice alone
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, uintptr(unsafe.Pointer(a)), 0)
}
