package cm

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// ReadBatch receives packets for QUIC. While a dial is under way the kernel reports ICMP errors
// of all destinations as errors of the socket (IP_RECVERR, ip(7)), one by one. QUIC would take
// them for the end of the socket, so ReadBatch reads what they say and goes on.
func (s *socket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	for {
		n, err := s.batch.ReadBatch(ms, flags)
		if err != nil && n <= 0 && pending(err) {
			s.readErrors()
			continue
		}
		if s.watched.Load() > 0 {
			for i := range ms[:max(n, 0)] {
				if ms[i].Addr != nil {
					s.heard(addrPort(ms[i].Addr))
				}
			}
		}
		return n, err
	}
}

// pending reports whether a call returned the error of an earlier packet instead of doing
// anything. These are what the kernel makes of ICMP and ICMPv6.
func pending(err error) bool {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return false
	}
	switch no {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT, unix.EOPNOTSUPP,
		unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		return true
	}
	return false
}

// retry reports whether a send that failed is worth another try, because the error may be that
// of an earlier packet.
func (s *socket) retry(err error) bool {
	if err == nil || s.watched.Load() == 0 || !pending(err) {
		return false
	}
	s.readErrors()
	return true
}

// evident switches the report of ICMP errors on or off. Off also forgets those that wait.
func (s *socket) evident(on bool) {
	v := 0
	if on {
		v = 1
	}
	if raw, err := s.UDPConn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // one of them fails; without evidence the dial times out
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, v)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, v)
		})
	}
}

// maxErrors bounds how many errors one call reads, in case they come faster.
const maxErrors = 1024

// readErrors reads the error queue.
func (s *socket) readErrors() {
	raw, err := s.UDPConn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		var quote [64]byte
		var oob [256]byte
		for range maxErrors {
			n, oobn, _, from, err := unix.Recvmsg(int(fd), quote[:], oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err != nil {
				return
			}
			if to, ok := sockAddr(from); ok && refused(oob[:oobn]) {
				s.closed(to, quote[:n])
			}
		}
	})
}

// refused reports whether the control messages of an error say that by ICMP the port is closed.
func refused(oob []byte) bool {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	for _, m := range all {
		v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if !v4 && !v6 || len(m.Data) < 5 { // struct sock_extended_err begins with errno and origin
			continue
		}
		origin := m.Data[4]
		return syscall.Errno(binary.NativeEndian.Uint32(m.Data)) == unix.ECONNREFUSED && (origin == unix.SO_EE_ORIGIN_ICMP || origin == unix.SO_EE_ORIGIN_ICMP6)
	}
	return false
}

func sockAddr(a unix.Sockaddr) (netip.AddrPort, bool) {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), true
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), true
	}
	return netip.AddrPort{}, false
}

// A batch reads packets.
type batch = *ipv4.PacketConn

func newBatch(c *net.UDPConn) batch { return ipv4.NewPacketConn(c) }
