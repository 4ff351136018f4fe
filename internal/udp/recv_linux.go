package udp

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// several is a direct with more than one path.
type several struct{ *direct }

// Recv receives from the paths in turn.
func (d *several) Recv(g *dgram.Datagram) (bool, error) {
	// One look at all paths tells which are ready. Each of these is read once before the next
	// look. It costs one call for any number of paths.
	for looked := false; ; looked = true {
		for d.nready > 0 {
			d.nready--
			ev := &d.ready[d.nready]
			if ev.Events&unix.EPOLLERR != 0 {
				d.evidence.Or(1 << ev.Fd)
			}
			d.from = &d.socks[ev.Fd]
			if ok, err := d.direct.Recv(g); ok || err != nil {
				return ok, err
			}
		}
		if looked {
			return false, nil
		}
		d.st.RecvCalls++
		n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(d.pollFD), uintptr(unsafe.Pointer(&d.ready[0])), uintptr(len(d.ready)), 0, 0, 0)
		if e != 0 && e != unix.EINTR {
			return false, e
		}
		if e != 0 || n == 0 {
			d.st.RecvEmpty++
			return false, nil
		}
		d.nready = int(n)
	}
}

// Recv does not call package unix and stays shallow: a system call makes the processor forget
// the return addresses of the running functions, so each level above it costs 5 ns.
func (d *direct) Recv(g *dgram.Datagram) (bool, error) {
	s := d.from
	rx := &d.rx
	rx.iov.Base = unsafe.SliceData(g.Data)
	rx.iov.SetLen(cap(g.Data))
	for repeat := 1; ; repeat++ {
		d.st.RecvCalls++
		var n uintptr
		var e syscall.Errno
		cut := false
		if s.asks.any {
			rx.msg.Namelen = unix.SizeofSockaddrInet6
			rx.msg.SetControllen(len(rx.ctl))
			n, _, e = syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&rx.msg)), unix.MSG_DONTWAIT, 0, 0, 0)
			cut = rx.msg.Flags&unix.MSG_TRUNC != 0
		} else {
			// No control message is wanted, so the cheaper call is enough.
			rx.namelen = unix.SizeofSockaddrInet6
			n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(rx.iov.Base)), uintptr(cap(g.Data)), unix.MSG_DONTWAIT|unix.MSG_TRUNC,
				uintptr(unsafe.Pointer(&rx.name)), uintptr(unsafe.Pointer(&rx.namelen)))
			cut = e == 0 && n > uintptr(cap(g.Data))
			rx.msg.Controllen = 0
		}
		switch {
		case e == 0 && !cut:
			g.Data = g.Data[:n]
			g.Seg, g.Path = int(n), s.path
			d.st.RecvTrains++
			d.st.RecvSegments++
			d.st.RecvBytes += uint64(n)
			// Mostly there is nothing, or the traffic class alone, or a train's segment size
			// before it.
			if rx.msg.Controllen == 0 {
				g.TOS = 0
				s.asks.alone(s.fd, g.Seg, 0)
			} else if h := (*unix.Cmsghdr)(unsafe.Pointer(&rx.ctl)); int(rx.msg.Controllen) == oneTOS && h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS {
				g.TOS = rx.ctl[sizeofHdr]
				s.asks.alone(s.fd, g.Seg, g.TOS)
			} else if int(rx.msg.Controllen) == spaceSeg && int(h.Len) == lenSeg && h.Type == unix.UDP_GRO && h.Level == unix.IPPROTO_UDP {
				d.train(s, g, int(*(*int32)(unsafe.Pointer(&rx.ctl[sizeofHdr]))), 0)
			} else if k := (*unix.Cmsghdr)(unsafe.Pointer(&rx.ctl[spaceSeg])); int(rx.msg.Controllen) == spaceSeg+oneTOS && int(h.Len) == lenSeg && h.Type == unix.UDP_GRO && h.Level == unix.IPPROTO_UDP && k.Type == unix.IP_TOS && k.Level == unix.IPPROTO_IP {
				d.train(s, g, int(*(*int32)(unsafe.Pointer(&rx.ctl[sizeofHdr]))), rx.ctl[spaceSeg+sizeofHdr])
			} else {
				c := control(rx.ctl[:rx.msg.Controllen])
				g.Waited = c.waited()
				d.train(s, g, c.seg, c.tos)
			}
			if k := (*[8]byte)(unsafe.Pointer(&rx.name)); *k != rx.last {
				d.sender()
			}
			g.Remote = rx.from
			return true, nil
		case e == 0:
			d.st.RecvCut++
		case e == unix.EAGAIN:
			d.st.RecvEmpty++
			s.asks.row = 0
			return false, nil
		default:
			if err := d.odd(s.path, e); err != nil {
				return false, err
			}
		}
		if repeat == maxRepeat {
			return false, nil
		}
	}
}

// sender decodes the address of the sender. It caches an IPv4 address, which is all in the
// first 8 bytes.
func (d *direct) sender() {
	rx := &d.rx
	if rx.from = d.decode(&rx.name); rx.name.Family == unix.AF_INET {
		rx.last = *(*[8]byte)(unsafe.Pointer(&rx.name))
	} else {
		rx.last = [8]byte{} // no family: it equals no address
	}
}

// train stores what the control messages say about the train in g.
func (d *direct) train(s *sock, g *dgram.Datagram, seg int, tos uint8) {
	g.TOS = tos
	if seg > 0 && seg < g.Seg {
		g.Seg = seg
		d.st.RecvSegments += uint64(g.Segments() - 1)
		s.asks.together(s.fd, len(g.Data), tos)
	} else {
		s.asks.alone(s.fd, g.Seg, tos)
	}
}

// odd handles an error of recvmsg other than EAGAIN. If it returns nil, the caller tries again.
func (d *direct) odd(path int, e syscall.Errno) error {
	switch e {
	case unix.EINTR:
	case unix.EBADF, unix.ENOTSOCK, unix.EFAULT, unix.EINVAL:
		return e
	default:
		// An earlier packet left it behind; reading it has removed it.
		d.st.Pending++
		d.evidence.Or(evidenceOf(path))
	}
	return nil
}

// ctlLen is enough for all control messages there may be at once: segment size, traffic class
// and, on the error queue, the error with an address (80 bytes).
const ctlLen = 256

// controls are the control messages of a received train.
type controls struct {
	seg int // UDP_GRO
	tos uint8
	// at is SCM_TIMESTAMPNS, the time of day of the arrival in ns; 0 if it was not asked for.
	at int64
}

// waited is how long the train was in the socket. The clock of the day may be set meanwhile.
func (c *controls) waited() time.Duration {
	if c.at == 0 {
		return 0
	}
	if w := time.Duration(time.Now().UnixNano() - c.at); w > 0 && w < longestWait {
		return w
	}
	return 0
}

// longestWait is the longest wait in a socket that is believed. A longer one is a clock that was
// set. Arbitrary.
const longestWait = time.Second

// sizeofHdr is where the data of a control message begins.
const sizeofHdr = int(unsafe.Sizeof(unix.Cmsghdr{}))

// oneTOS is the length of a single control message of one byte.
const oneTOS = (sizeofHdr + 1 + sizeofWord - 1) &^ (sizeofWord - 1)

// lenSeg is the length of a control message with a segment size, spaceSeg that with the gap
// after it.
const (
	lenSeg   = sizeofHdr + 4
	spaceSeg = (sizeofHdr + 4 + sizeofWord - 1) &^ (sizeofWord - 1)
)

const sizeofWord = int(unsafe.Sizeof(uintptr(0)))

// control decodes what the kernel has written. On Linux a control message is aligned like a
// word.
func control(b []byte) (c controls) {
	for len(b) >= sizeofHdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		end := int(h.Len)
		if end < sizeofHdr || end > len(b) {
			return c
		}
		data := b[sizeofHdr:end]
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS && len(data) >= 1:
			c.tos = data[0] // mostly the only one
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4:
			c.seg = int(*(*int32)(unsafe.Pointer(&data[0])))
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 2:
			c.seg = int(*(*uint16)(unsafe.Pointer(&data[0])))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			c.at = (*unix.Timespec)(unsafe.Pointer(&data[0])).Nano()
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			c.tos = uint8(*(*int32)(unsafe.Pointer(&data[0])))
		}
		n := unix.CmsgSpace(len(data))
		if n >= len(b) {
			return c
		}
		b = b[n:]
	}
	return c
}
