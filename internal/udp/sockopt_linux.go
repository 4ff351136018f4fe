package udp

import "golang.org/x/sys/unix"

// This file asks the system for socket options. The functions have twins for other systems;
// sockopt_other.go is for systems of which nothing is known.

// askBuffer asks for a receive or send buffer of n bytes.
func askBuffer(fd uintptr, recv bool, n int) Buffer {
	if recv {
		return setBuffer(int(fd), unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, n)
	}
	return setBuffer(int(fd), unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, n)
}

// setBuffer asks for a buffer of n bytes, beyond the system's limit if we may. The kernel
// doubles the value, for its overhead, and reports that.
func setBuffer(fd, opt, force, n int) Buffer {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, n)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
	if err != nil {
		got = 0
	}
	return Buffer{Asked: n, Got: got, Short: got < 2*n}
}

// recvTOS asks for the traffic class of what arrives.
func recvTOS(fd uintptr, v6 bool) error {
	if v6 {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
}

// dontFragment switches fragmentation of sent packets off (df) or on.
func dontFragment(fd uintptr, v6, df bool) error {
	level, opt, v := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT
	if v6 {
		level, opt, v = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT
	}
	if df {
		// Not IP_PMTUDISC_DO, which believes ICMP messages, and anybody can forge those. The
		// value is the same for IPv6.
		v = unix.IP_PMTUDISC_PROBE
	}
	return unix.SetsockoptInt(int(fd), level, opt, v)
}

// hearUnsummed asks for datagrams without a UDP checksum, which UE sends. The kernel drops them
// over IPv6 unless it is asked; over IPv4 they always arrive.
func hearUnsummed(fd uintptr, v6 bool) error {
	if !v6 {
		return nil
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
}

// sumsOption is the socket option that leaves UDP checksums out.
func sumsOption(v6 bool) (level, opt int) {
	if v6 {
		return unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_TX
	}
	return unix.SOL_SOCKET, unix.SO_NO_CHECK
}

// sendUnsummed makes a socket send UDP checksums of zero.
func sendUnsummed(fd uintptr, v6 bool) error {
	level, opt := sumsOption(v6)
	return unix.SetsockoptInt(int(fd), level, opt, 1)
}

// parseTOS returns the traffic class among received control messages, 0 if it is not there.
func parseTOS(oob []byte) uint8 { return control(oob).tos }

// mapErrno replaces a system's error number by that of package syscall.
func mapErrno(err error) error { return err }
