package udp

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A socket that asks for trains (UDP_GRO) pays for each datagram, for the kernel looks
// whether it is a train in memory that the sender's processor wrote last: 5 % of a half
// round trip of 64 bytes over loopback, 10 % over veth. One that does not ask gets trains
// cut into datagrams, at ten times the cost. So a socket asks while trains come
// (docs/decisions/0022).
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

// gro is what a socket knows of the trains it receives.
type gro struct {
	on bool // it asks for trains
	// left is how many datagrams that come alone are left until that is judged, row how
	// many like the newest, of size bytes, came before it since the last empty look.
	left, row, size int
	tries           int
}

// never is in left where there is nothing to judge.
const never = math.MaxInt

// alone counts a datagram of n bytes that came alone.
func (g *gro) alone(fd, n int) {
	g.left--
	if g.row++; n != g.size {
		g.size, g.row = n, 0
	}
	if g.left <= 0 || g.row >= groBurst && !g.on {
		g.judge(fd)
	}
}

// judge begins to ask for trains where that looks of use, or ends it where it was of
// none. What came while the socket asked may be a train, which cannot be told from a
// datagram when it does not ask any more: so there must be nothing, else it is tried
// again behind the next datagram.
func (g *gro) judge(fd int) {
	switch {
	case !g.on:
		g.ask(fd, true)
	case !g.ask(fd, false):
	case !waiting(fd):
		g.tries = 0
	case g.ask(fd, true):
		if g.tries++; g.tries < groTries {
			g.left = 0
		} else {
			g.tries = 0
		}
	}
}

// ask begins or ends the asking and reports whether that worked.
func (g *gro) ask(fd int, on bool) bool {
	v := int32(0)
	if g.on, g.left, g.row = on, groEvery, 0; on {
		v, g.left = 1, groTry
	}
	if _, _, e := syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_UDP, unix.UDP_GRO, uintptr(unsafe.Pointer(&v)), unsafe.Sizeof(v), 0); e != 0 {
		g.on, g.left = true, never
		return false
	}
	return true
}

// waiting reports whether the socket holds a datagram. What another processor is just
// putting there it may miss: a train torn by that is dropped as damaged and sent again.
func waiting(fd int) bool {
	n := int32(0)
	_, _, e := syscall.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCINQ, uintptr(unsafe.Pointer(&n)))
	return n > 0 || e != 0
}
