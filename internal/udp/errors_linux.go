package udp

import (
	"math/bits"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// errorQueue reads the error queues of sockets (IP_RECVERR, ip(7)). It has its own buffers, so
// that the goroutine that waits may have one too.
type errorQueue struct {
	msg  unix.Msghdr
	iov  unix.Iovec
	ctl  [ctlLen]byte
	name unix.RawSockaddrInet6
	data [quoteLen]byte
}

// quoteLen is how many bytes of a quoted packet are kept: more than any header.
const quoteLen = 512

func newErrorQueue() *errorQueue {
	q := new(errorQueue)
	q.iov.Base = &q.data[0]
	q.iov.SetLen(len(q.data))
	q.msg.Name = (*byte)(unsafe.Pointer(&q.name))
	q.msg.Iov = &q.iov
	q.msg.SetIovlen(1)
	q.msg.Control = &q.ctl[0]
	return q
}

// read removes the next entry from the queue of fd. It returns the quoted bytes, or an errno,
// EAGAIN if the queue is empty.
func (q *errorQueue) read(fd int) ([]byte, syscall.Errno) {
	q.msg.Namelen = unix.SizeofSockaddrInet6
	q.msg.SetControllen(len(q.ctl))
	n, _, e := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&q.msg)), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if e != 0 {
		return nil, e
	}
	return q.data[:n], 0
}

// lastBit is the bit of evidence that path 63 and all beyond it share: those of Echo.
const lastBit = 63

// evidenceOf is the bit of a path in evidence.
func evidenceOf(path int) uint64 { return 1 << min(path, lastBit) }

// quote reads an entry of the error queues of bit p of evidence. It returns its path, -1 if there
// is no entry.
func (d *direct) quote(p int, q *errorQueue) (path int, b []byte) {
	end := p + 1
	if p == lastBit {
		end = len(d.socks)
	}
	d.echoing.Lock() // so that no descriptor changes
	defer d.echoing.Unlock()
	for ; p < end; p++ {
		if b, errno := q.read(d.socks[p].fd); errno == 0 {
			return p, b
		}
	}
	return -1, nil
}

func (d *direct) evident() bool { return d.evidence.Load() != 0 }

func (d *direct) nextError(e *Evidence) bool {
	for {
		paths := d.evidence.Load()
		if paths == 0 {
			return false
		}
		p := bits.TrailingZeros64(paths)
		if d.errq == nil {
			d.errq = newErrorQueue()
		}
		// Cleared before the look, so that what comes later sets the bit again.
		d.evidence.And(^(uint64(1) << p))
		p, b := d.quote(p, d.errq)
		if p < 0 {
			continue
		}
		d.evidence.Or(evidenceOf(p))
		*e = Evidence{Path: p, Payload: b}
		if p >= d.paths {
			e.Path = dgram.Echo(d.socks[p].port)
		}
		if d.errq.msg.Namelen != 0 {
			e.Remote = d.decode(&d.errq.name)
		}
		if d.extended(d.errq.ctl[:d.errq.msg.Controllen], e) {
			d.st.Evidence++
			return true
		}
	}
}

// extended decodes the struct sock_extended_err among the control messages in b.
func (d *direct) extended(b []byte, e *Evidence) bool {
	const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	for len(b) >= sizeofHdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		if int(h.Len) < sizeofHdr || int(h.Len) > len(b) {
			return false
		}
		data := b[sizeofHdr:h.Len]
		v4 := h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR
		v6 := h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR
		if (v4 || v6) && len(data) >= size {
			x := (*unix.SockExtendedErr)(unsafe.Pointer(&data[0]))
			switch x.Origin {
			case unix.SO_EE_ORIGIN_LOCAL:
				e.Origin = OriginLocal
			case unix.SO_EE_ORIGIN_ICMP:
				e.Origin = OriginICMP
			case unix.SO_EE_ORIGIN_ICMP6:
				e.Origin = OriginICMP6
			default:
				return false // time stamps and the like
			}
			e.Errno = syscall.Errno(x.Errno)
			e.Type, e.Code = x.Type, x.Code
			if e.Errno == unix.EMSGSIZE {
				e.MTU = int(x.Info)
			}
			e.Offender = d.offender(data[size:])
			return true
		}
		n := unix.CmsgSpace(len(data))
		if n >= len(b) {
			return false
		}
		b = b[n:]
	}
	return false
}

// offender decodes the address that follows a struct sock_extended_err.
func (d *direct) offender(b []byte) netip.Addr {
	var name unix.RawSockaddrInet6
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&name)), unix.SizeofSockaddrInet6)
	copy(raw, b)
	switch {
	case name.Family == unix.AF_INET && len(b) >= unix.SizeofSockaddrInet4,
		name.Family == unix.AF_INET6 && len(b) >= unix.SizeofSockaddrInet6:
		return d.decode(&name).Addr()
	}
	return netip.Addr{}
}

// discard empties the error queues of a bit of evidence that nobody reads. It belongs to the
// goroutine that waits.
func (d *direct) discard(bit int) {
	if d.bin == nil {
		d.bin = newErrorQueue()
	}
	d.evidence.And(^(uint64(1) << bit))
	for range maxErrors {
		if p, _ := d.quote(bit, d.bin); p < 0 {
			return
		}
		d.thrown.Add(1)
	}
}
