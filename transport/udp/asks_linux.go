package udp

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/transport/dgram"
)

// A socket that asks for trains (UDP_GRO) pays for each datagram, for the kernel looks
// whether it is a train in memory that the sender's processor wrote last: 5 % of a half
// round trip of 64 bytes over loopback, 10 % over veth. One that does not ask gets trains
// cut into datagrams, at ten times the cost. So a socket asks while trains come
// (package comment).
const (
	// groTry datagrams in a row that came alone end the asking, if in groTries tries
	// nothing more is there.
	groTry   = 256
	groTries = 16
	// groBurst datagrams of one size in a row without an empty look between them may
	// have been a train: it begins again. So it does after groEvery datagrams, because
	// short trains make no such row.
	groBurst = 16
	groEvery = 8192
)

// One that asks for traffic classes pays for each datagram, too, and one that asks for
// nothing is read by a shorter call: together 5 % of the same. What says so little that
// congestion is not of its making is asked about in samples (package comment).
const (
	// classTry datagrams or trains in a row that are not longer than classShort bytes
	// and show no congestion end the asking.
	classTry   = 256
	classShort = 512
	// Of those that follow classSkip are not asked about, then classSample are.
	classSkip   = 240
	classSample = 16
	// One that shows congestion has so many behind it asked about.
	classMarked = 8192
)

// asks is what a socket asks to be told with each datagram, and what it knows of those
// that it receives.
type asks struct {
	trains, class bool
	any           bool // either
	v6            bool
	// Of what is fixed nothing is judged.
	trainsFixed, classFixed bool
	// left is how many datagrams that come alone are left until asking for trains is
	// judged, classLeft how many pieces until asking for classes is; row how many like
	// the newest, of size bytes, came before it since the last empty look.
	left, classLeft int
	row, size       int
	tries           int
}

// never is in left where there is nothing to judge.
const never = math.MaxInt

// alone counts a datagram of n bytes and a class that came alone.
func (a *asks) alone(fd, n int, class uint8) {
	a.left--
	if a.row++; n != a.size {
		a.size, a.row = n, 0
	}
	if a.left <= 0 || a.row >= groBurst && !a.trains {
		a.judge(fd)
	}
	a.classLeft--
	if n > classShort || a.classLeft <= 0 || class&3 == dgram.CE {
		a.judgeClass(fd, n, class)
	}
}

// together counts a train of n bytes.
func (a *asks) together(fd, n int, class uint8) {
	a.left = groTry
	a.classLeft--
	if n > classShort || a.classLeft <= 0 || class&3 == dgram.CE {
		a.judgeClass(fd, n, class)
	}
}

// judge begins to ask for trains where that looks of use, or ends it where it was of
// none. What came while the socket asked may be a train, which cannot be told from a
// datagram when it does not ask any more: so there must be nothing, else it is tried
// again behind the next datagram.
func (a *asks) judge(fd int) {
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

// judgeClass does the same for classes.
func (a *asks) judgeClass(fd, n int, class uint8) {
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

// askTrains begins or ends the asking for trains and reports whether that worked.
func (a *asks) askTrains(fd int, on bool) bool {
	if a.trains, a.left, a.row = on, groEvery, 0; on {
		a.left = groTry
	}
	ok := set(fd, unix.IPPROTO_UDP, unix.UDP_GRO, on)
	if !ok {
		a.trains, a.trainsFixed = true, true // what the socket does say is read
	}
	if a.any = a.trains || a.class; a.trains && !a.class {
		a.classLeft = classTry
		a.askClass(fd, true)
	}
	return ok
}

// askClass begins or ends the asking for classes.
func (a *asks) askClass(fd int, on bool) {
	level, opt := unix.IPPROTO_IP, unix.IP_RECVTOS
	if a.v6 {
		level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	if a.class = on; !set(fd, level, opt, on) {
		a.class, a.classFixed = true, true
	}
	a.any = a.trains || a.class
}

// set sets an option that is on or off and reports whether that worked. It does not
// go through package unix, which would allocate.
func set(fd, level, opt int, on bool) bool {
	v := int32(0)
	if on {
		v = 1
	}
	_, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt), uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0)
	return e == 0
}

// waiting reports whether the socket holds a datagram, be it one without a byte, which
// SIOCINQ takes for nothing. What another processor is just putting there it may miss: a
// train torn by that is dropped as damaged and sent again.
func waiting(fd int) bool {
	p, now := unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}, unix.Timespec{}
	n, _, e := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n > 0 || e != 0
}
