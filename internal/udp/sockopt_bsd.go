//go:build darwin || freebsd

package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The comments are in sockopt_linux.go.

func askBuffer(fd uintptr, recv bool, n int) Buffer {
	opt := unix.SO_SNDBUF
	if recv {
		opt = unix.SO_RCVBUF
	}
	// Unlike Linux, these systems refuse what exceeds kern.ipc.maxsockbuf, so ask for less
	// until they accept.
	for try := n; try >= 4096; try /= 2 {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, opt, try) == nil {
			break
		}
	}
	got, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, opt)
	if err != nil {
		got = 0
	}
	return Buffer{Asked: n, Got: got, Short: got < n}
}

func recvTOS(fd uintptr, v6 bool) error {
	if v6 {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
}

func dontFragment(fd uintptr, v6, df bool) error {
	v := 0
	if df {
		v = 1
	}
	if v6 {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, v)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_DONTFRAG, v)
}

func hearUnsummed(_ uintptr, v6 bool) error { return unsummed4(v6) }

func parseTOS(b []byte) uint8 {
	hdr := unix.CmsgLen(0)
	for len(b) >= hdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		if int(h.Len) < hdr || int(h.Len) > len(b) {
			return 0
		}
		data := b[hdr:h.Len]
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVTOS && len(data) >= 1:
			return data[0]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			return uint8(*(*int32)(unsafe.Pointer(&data[0])))
		}
		n := unix.CmsgSpace(len(data))
		if n >= len(b) {
			return 0
		}
		b = b[n:]
	}
	return 0
}

func mapErrno(err error) error { return err }
