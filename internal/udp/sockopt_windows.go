package udp

import (
	"errors"
	"syscall"
)

// The comments are in sockopt_linux.go.

func askBuffer(fd uintptr, recv bool, n int) Buffer {
	opt := syscall.SO_SNDBUF
	if recv {
		opt = syscall.SO_RCVBUF
	}
	if syscall.SetsockoptInt(syscall.Handle(fd), syscall.SOL_SOCKET, opt, n) != nil {
		return Buffer{Asked: n, Short: true}
	}
	return Buffer{Asked: n, Got: n} // Windows gives what it accepts
}

func recvTOS(uintptr, bool) error { return syscall.EWINDOWS }

func hearUnsummed(_ uintptr, v6 bool) error { return unsummed4(v6) }

func dontFragment(fd uintptr, v6, df bool) error {
	const (
		ipDontFragment = 14 // IP_DONTFRAGMENT of ws2ipdef.h
		ipv6DontFrag   = 14 // IPV6_DONTFRAG
	)
	v := 0
	if df {
		v = 1
	}
	if v6 {
		return syscall.SetsockoptInt(syscall.Handle(fd), syscall.IPPROTO_IPV6, ipv6DontFrag, v)
	}
	return syscall.SetsockoptInt(syscall.Handle(fd), syscall.IPPROTO_IP, ipDontFragment, v)
}

func parseTOS([]byte) uint8 { return 0 }

// wsa maps Winsock errors to those that callers know from syscall.
var wsa = map[syscall.Errno]syscall.Errno{
	10004: syscall.EINTR,
	10013: syscall.EACCES,
	10035: syscall.EAGAIN,
	10040: syscall.EMSGSIZE,
	10047: syscall.EAFNOSUPPORT,
	10048: syscall.EADDRINUSE,
	10049: syscall.EADDRNOTAVAIL,
	10050: syscall.ENETDOWN,
	10051: syscall.ENETUNREACH,
	10052: syscall.ECONNRESET, // WSAENETRESET: a time to live ran out
	10054: syscall.ECONNRESET,
	10055: syscall.ENOBUFS,
	10065: syscall.EHOSTUNREACH,
}

func mapErrno(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		if m, ok := wsa[e]; ok {
			return m
		}
	}
	return err
}
