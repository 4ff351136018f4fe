package udp

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// A socket with UDP_GRO pays for each single datagram. A socket without it gets trains cut into
// datagrams, at ten times the cost. So a socket has UDP_GRO while trains come (package
// comment).
const (
	// After groTry single datagrams in a row UDP_GRO is switched off, if the socket is empty
	// then. This is tried groTries times.
	groTry   = 256
	groTries = 16
	// It is switched on again after groBurst datagrams of one size in a row with no empty look
	// between them, which may have been a train, and after groEvery datagrams, because short
	// trains make no such row.
	groBurst = 16
	groEvery = 8192
)

// A socket also pays for the traffic class of each datagram. One that asks for neither is read
// by a cheaper call. Short datagrams cause no congestion, so their class is sampled (package
// comment).
const (
	// Sampling begins after classTry datagrams or trains in a row that have at most classShort
	// bytes and no mark.
	classTry   = 256
	classShort = 512
	// It alternates: classSkip datagrams or trains without their class, classSample with it.
	classSkip   = 240
	classSample = 16
	// After a mark, the next classMarked come with their class.
	classMarked = 8192
)

// asks holds which control messages a socket asks for with each datagram, and the state that
// decides it.
type asks struct {
	trains, class bool
	stamp         bool // when it arrived
	any           bool // trains, class or stamp
	v6            bool
	// The fixed ones never change.
	trainsFixed, classFixed bool
	// left is the number of single datagrams until trains are decided again, and classLeft that
	// of datagrams and trains until the class is. row is how many datagrams of the latest size
	// came in a row since the last empty look.
	left, classLeft int
	row, size       int
	tries           int
}

// never is the value of left if there is nothing to decide.
const never = math.MaxInt

// alone counts a datagram of n bytes and a class that came alone.
func (a *asks) alone(fd, n int, class uint8) {
	a.left--
	if a.row++; n != a.size {
		a.size, a.row = n, 0
	}
	if a.left <= 0 || a.row >= groBurst && !a.trains {
		a.decideTrains(fd)
	}
	a.classLeft--
	if n > classShort || a.classLeft <= 0 || class&3 == dgram.CE {
		a.decideClass(fd, n, class)
	}
}

// together counts a train of n bytes.
func (a *asks) together(fd, n int, class uint8) {
	a.left = groTry
	a.classLeft--
	if n > classShort || a.classLeft <= 0 || class&3 == dgram.CE {
		a.decideClass(fd, n, class)
	}
}

// decideTrains switches UDP_GRO on or off. A train that arrived while it was on and is read
// while it is off would look like one long datagram. So it stays off only if the socket is
// empty after the change; if not, that is tried again after the next datagram.
func (a *asks) decideTrains(fd int) {
	switch {
	case a.trainsFixed:
		a.left, a.row = never, 0
	case !a.trains:
		a.askTrains(fd, true)
	case !a.askTrains(fd, false):
	case !waiting(fd):
		a.tries = 0
	case a.askTrains(fd, true):
		if a.tries++; a.tries < groTries {
			a.left = 0
		} else {
			a.tries = 0
		}
	}
}

// decideClass switches the traffic class on or off.
func (a *asks) decideClass(fd, n int, class uint8) {
	switch {
	case a.classFixed:
		a.classLeft = never
	case class&3 == dgram.CE:
		a.classLeft = classMarked
	case n > classShort:
		a.classLeft = max(a.classLeft, classTry)
		if !a.class {
			a.askClass(fd, true)
		}
	case !a.class:
		a.classLeft = classSample
		a.askClass(fd, true)
	default:
		a.classLeft = classSkip
		a.askClass(fd, false)
	}
}

// askTrains switches UDP_GRO and reports whether that worked.
func (a *asks) askTrains(fd int, on bool) bool {
	if a.trains, a.left, a.row = on, groEvery, 0; on {
		a.left = groTry
	}
	ok := set(fd, unix.IPPROTO_UDP, unix.UDP_GRO, on)
	if !ok {
		a.trains, a.trainsFixed = true, true // it cannot be switched off: keep it
	}
	if a.noteAny(); a.trains && !a.class {
		a.classLeft = classTry
		a.askClass(fd, true)
	}
	return ok
}

// askClass switches the traffic class.
func (a *asks) askClass(fd int, on bool) {
	level, opt := unix.IPPROTO_IP, unix.IP_RECVTOS
	if a.v6 {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	if a.class = on; !set(fd, level, opt, on) {
		a.class, a.classFixed = true, true
	}
	a.noteAny()
}

// askStamp switches the time of arrival and reports whether that worked.
func (a *asks) askStamp(fd int, on bool) bool {
	ok := set(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, on)
	a.stamp = on && ok
	a.noteAny()
	return ok
}

// noteAny notes whether anything is asked for.
func (a *asks) noteAny() { a.any = a.trains || a.class || a.stamp }

// set sets an option that is on or off, and reports whether that worked. It does not call
// package unix, which would allocate.
func set(fd, level, opt int, on bool) bool {
	v := int32(0)
	if on {
		v = 1
	}
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return e == 0
}

// waiting reports whether the socket has a datagram, even an empty one, which SIOCINQ does not
// count. It may miss one that another processor is just adding. A train torn in this way is
// dropped as damaged and sent again.
func waiting(fd int) bool {
	p, now := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}, unix.Timespec{}
	n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n > 0 || e != 0
}
