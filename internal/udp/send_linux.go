package udp

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// Send has a fast path for the same destination as the previous train and a train of the
// socket's own segment size: sendto needs no control message, which saves 0.2 µs of 5.
func (d *direct) Send(g *dgram.Datagram) error {
	s := &d.socks[g.Path]
	if len(g.Data) == 0 || !d.aimed(g.Remote) || g.TOS != d.tos || d.inject != nil {
		return d.send(s, g)
	}
	segs := 1
	if g.Seg > 0 && g.Seg < len(g.Data) {
		if segs = g.Segments(); g.Seg != s.seg || !d.whole(segs) {
			return d.send(s, g)
		}
		s.run, s.long = 0, 0
	} else if s.seg != 0 {
		if s.seg < len(g.Data) {
			return d.send(s, g)
		}
		if s.last < len(g.Data) {
			s.run = 0
		}
	}
	d.st.SendCalls++
	_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&g.Data[0])), uintptr(len(g.Data)), unix.MSG_DONTWAIT,
		uintptr(unsafe.Pointer(&d.tx.name)), uintptr(d.tx.len))
	if e != 0 {
		return d.sendmsg(s, g, segs, segOfSocket, e)
	}
	d.sent(1, segs, len(g.Data))
	return nil
}

// send sends any train.
func (d *direct) send(s *sock, g *dgram.Datagram) error {
	if len(g.Data) == 0 {
		return nil
	}
	if !d.aimed(g.Remote) {
		if e := d.aim(g.Remote); e != 0 {
			return d.st.lost(e)
		}
	}
	segs := g.Segments()
	if segs > 1 && !d.whole(segs) {
		if segs > d.most && d.gso && !d.tx.solo {
			return d.parts(g)
		}
		d.singly()
		return d.split(s, g)
	}
	seg := segOfSocket
	if segs > 1 || s.seg != 0 && len(g.Data) > s.seg {
		seg = s.segment(segs, g, true)
	}
	if seg != segOfSocket || g.TOS != d.tos {
		return d.sendmsg(s, g, segs, seg, 0)
	}
	_, e := d.outcome(1)
	if e == 0 {
		d.st.SendCalls++
		_, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&g.Data[0])), uintptr(len(g.Data)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&d.tx.name)), uintptr(d.tx.len))
	}
	if e != 0 {
		return d.sendmsg(s, g, segs, seg, e)
	}
	d.sent(1, segs, len(g.Data))
	return nil
}

// sendmsg sends a train that may need control messages, or whose sendto failed with e.
func (d *direct) sendmsg(s *sock, g *dgram.Datagram, segs, seg int, e syscall.Errno) error {
	tx := &d.tx
	tx.msg.Namelen = tx.len
	tx.iov.Base = &g.Data[0]
	tx.iov.SetLen(len(g.Data))
	d.compose(&tx.msg, tx.ctl[:], seg, g.TOS)
	for repeat := 0; ; repeat++ {
		if e == 0 {
			_, e = d.outcome(1)
		}
		if e == 0 {
			d.st.SendCalls++
			_, _, e = syscall.RawSyscall6(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&tx.msg)), unix.MSG_DONTWAIT, 0, 0, 0)
		}
		if e == 0 {
			d.sent(1, segs, len(g.Data))
			d.st.Pending += uint64(repeat)
			return nil
		}
		if !d.again(g.Path, e, repeat) {
			return d.failed(s, g, e)
		}
		e = 0
	}
}

// Values of compose's segment size that are not a size.
const (
	segOfSocket = -1 // write none: the socket's own size is right
	segNone     = 0  // write none for a single datagram, though the socket has a size
)

// stickAfter is how many trains of one segment size make it the socket's own, if there is nothing
// between them that this would make dearer: a train of the own size, or a datagram alone that is
// longer than the new one. As many datagrams alone that are longer than the own size end it, if no
// train of that size is between them. A wrong guess costs two more system calls of 0.2 µs.
const stickAfter = 32

// segment returns the segment size that compose has to write for a train that leaves whole.
// atOnce means that the train leaves at once, so the socket's size may change.
func (s *sock) segment(segs int, g *dgram.Datagram, atOnce bool) int {
	if segs < 2 {
		if s.last < len(g.Data) && s.seg != 0 {
			s.run = 0
		}
		if s.seg == 0 || len(g.Data) <= s.seg {
			return segOfSocket
		}
		if s.long++; atOnce && s.long >= stickAfter && s.stick(0) {
			return segOfSocket
		}
		return segNone
	}
	if g.Seg == s.seg {
		s.run, s.long = 0, 0
		return segOfSocket
	}
	if s.rest > 0 {
		s.rest--
		return g.Seg
	}
	if g.Seg != s.last {
		s.last, s.run = g.Seg, 0
	}
	if s.run++; atOnce && s.run >= stickAfter && s.stick(g.Seg) {
		return segOfSocket
	}
	return g.Seg
}

// stick sets the socket's own segment size, 0 for none. It reports whether that worked.
func (s *sock) stick(seg int) bool {
	s.last, s.run, s.long = 0, 0, 0
	if unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, seg) != nil {
		s.rest = retryTrains
		return false
	}
	s.seg = seg
	return true
}

// outcome lets a test decide what happens to the n messages of a call: how many the kernel
// gets, or that the call fails.
func (d *direct) outcome(n int) (int, syscall.Errno) {
	if d.inject == nil {
		return n, 0
	}
	return d.inject(n)
}

// aimed reports whether to is the destination of the next train.
func (d *direct) aimed(to netip.AddrPort) bool { return to == d.tx.to && d.tx.len != 0 }

// aim sets the destination of the next train.
func (d *direct) aim(to netip.AddrPort) syscall.Errno {
	tx := &d.tx
	n, e := d.encode(&tx.name, to)
	if e != 0 {
		tx.len = 0
		return e
	}
	tx.to, tx.len = to, n
	tx.solo = d.isOff(to.Addr())
	return 0
}

// whole reports whether a train to the current destination leaves in one call.
func (d *direct) whole(segs int) bool {
	return d.gso && !d.tx.solo && segs <= d.most
}

// fewSegments is UDP_MAX_SEGMENTS of Linux before 6.9.
const fewSegments = 64

// parts sends a train that is too long for the kernel as several trains. If there is no room for
// all, it removes those that left from g.
func (d *direct) parts(g *dgram.Datagram) error {
	lost := error(nil)
	for off := 0; off < len(g.Data); {
		part := *g
		next := min(off+d.most*g.Seg, len(g.Data))
		part.Data = g.Data[off:next]
		err := d.Send(&part)
		if err == dgram.ErrNoRoom {
			n := copy(g.Data, part.Data)
			g.Data = g.Data[:n+copy(g.Data[n:], g.Data[next:])]
			return err
		}
		if err != nil {
			lost = err
		}
		off = next
	}
	return lost
}

func (d *direct) sent(trains, segs, bytes int) {
	d.st.SendTrains += uint64(trains)
	d.st.SendSegments += uint64(segs)
	d.st.SendBytes += uint64(bytes)
}

// again reports whether a send that failed with e is to be repeated, for the repeat-th time. It
// was interrupted, or e may be the error of an earlier packet, even one to another destination,
// which the call has removed from the socket. An error of this packet comes again.
func (d *direct) again(path int, e syscall.Errno, repeat int) bool {
	if repeat >= maxRepeat {
		return false
	}
	switch e {
	case unix.EINTR:
		return true
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES, unix.EMSGSIZE:
		d.evidence.Or(evidenceOf(path))
		return repeat == 0
	}
	return false
}

// failed handles a train to the current destination for which sendmsg failed with e.
func (d *direct) failed(s *sock, g *dgram.Datagram, e syscall.Errno) error {
	switch e {
	case unix.EAGAIN:
		d.st.SendAgain++
		return dgram.ErrNoRoom
	case unix.EIO, unix.EINVAL, unix.EMSGSIZE:
		if e == unix.EINVAL && d.most > fewSegments && g.Segments() > fewSegments {
			d.most = fewSegments
			return d.parts(g)
		}
		if s.seg != 0 {
			// The size may be too much for another destination only.
			s.rest = retryTrains
			if s.stick(0) {
				return d.Send(g)
			}
		}
		// EIO means that the device cannot compute checksums, EINVAL and EMSGSIZE that a segment
		// exceeds the MTU. Only that also fails without GSO.
		if g.Segments() > 1 {
			before := d.st.SendSegments
			err := d.split(s, g)
			if d.st.SendSegments > before && (err == nil || err == dgram.ErrNoRoom) {
				d.switchOff(g.Remote.Addr(), e)
			}
			return err
		}
	}
	if g.Remote.Addr().Zone() != "" {
		// The interface may have come back with another index.
		d.tx.len = 0
		d.scope.last.Store(nil)
	}
	return d.st.lost(e)
}

// switchOff makes trains to one destination leave as single datagrams, or all trains if there
// are too many such destinations, until singly has counted enough of them.
func (d *direct) switchOff(to netip.Addr, why syscall.Errno) {
	d.st.Fallbacks++
	if d.tx.to.Addr() == to {
		d.tx.solo = true
	}
	if len(d.off) == maxNoGSO {
		d.gso, d.rest = false, maxNoGSO*retryTrains
		d.tell(Feature{Why: fmt.Sprintf("failed for %d destinations, last %v: %v", maxNoGSO+1, to, why)})
		return
	}
	d.off = append(d.off, noGSO{to, why, retryTrains})
	d.offNow()
}

// offNow tells for how many destinations GSO is off.
func (d *direct) offNow() {
	f := Feature{On: true}
	if n := len(d.off); n > 0 {
		f.Why = fmt.Sprintf("off for %d destinations, last %v: %v", n, d.off[n-1].to, d.off[n-1].why)
	}
	d.tell(f)
}

// tell reports the new state of GSO.
func (d *direct) tell(gso Feature) {
	d.mu.Lock()
	d.gsoNow = gso
	d.mu.Unlock()
	if d.gsoChanged != nil {
		d.gsoChanged(gso)
	}
}

// singly counts a train to the current destination that leaves as single datagrams. After
// retryTrains of them the next one is sent whole. If GSO is off for all, it is tried again
// after retryTrains for each of the destinations that turned it off.
func (d *direct) singly() {
	i := -1
	switch {
	case d.gso:
		i = slices.IndexFunc(d.off, func(o noGSO) bool { return o.to == d.tx.to.Addr() })
		if i < 0 {
			return
		}
		if d.off[i].rest--; d.off[i].rest > 0 {
			return
		}
	case d.rest == 0:
		return // the system has no GSO
	default:
		if d.rest--; d.rest > 0 {
			return
		}
	}
	d.tx.solo = false
	if d.gso {
		d.off = slices.Delete(d.off, i, i+1)
	} else {
		d.gso, d.off = true, d.off[:0]
	}
	d.offNow()
}

func (d *direct) isOff(to netip.Addr) bool {
	for i := range d.off {
		if d.off[i].to == to {
			return true
		}
	}
	return false
}

// maxBatch is the most messages in one sendmmsg: those of a train sent as single datagrams.
const maxBatch = dgram.MaxSegments

// batch is the argument of sendmmsg.
type batch struct {
	hdr  [maxBatch]mmsghdr
	iov  [maxBatch]unix.Iovec
	ctl  [maxBatch][sendCtl]byte
	name [maxBatch]unix.RawSockaddrInet6
}

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	msg unix.Msghdr
	len uint32
}

// put writes message i of the batch: data to the current destination.
func (d *direct) put(i int, data []byte, seg int, tos uint8) {
	b := d.mm
	if b == nil {
		b = new(batch)
		d.mm = b
	}
	b.iov[i].Base = &data[0]
	b.iov[i].SetLen(len(data))
	b.name[i] = d.tx.name
	m := &b.hdr[i].msg
	m.Name, m.Namelen = (*byte)(unsafe.Pointer(&b.name[i])), d.tx.len
	m.Iov = &b.iov[i]
	m.SetIovlen(1)
	d.compose(m, b.ctl[i][:], seg, tos)
}

// sendmmsg sends messages [from, to) of the batch and returns how many left.
func (d *direct) sendmmsg(s *sock, from, to int) (int, syscall.Errno) {
	d.st.SendCalls++
	n, _, e := syscall.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&d.mm.hdr[from])), uintptr(to-from), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// split sends a train to the current destination as single datagrams. If there is no room for
// all, it removes those that left from the train. A datagram that a firewall or a full device
// queue drops is lost alone; another error loses the rest, too.
func (d *direct) split(s *sock, g *dgram.Datagram) error {
	var lost error
	off, repeat := 0, 0
	rest := g.Data
	for len(rest) > 0 {
		n := 0
		for n < maxBatch && len(rest) > 0 {
			var head []byte
			head, rest = g.Next(rest)
			seg := segOfSocket
			if s.seg != 0 && len(head) > s.seg {
				seg = segNone
			}
			d.put(n, head, seg, g.TOS)
			n++
		}
		for i := 0; i < n; {
			k, e := d.outcome(n - i)
			if e == 0 {
				k, e = d.sendmmsg(s, i, i+k)
			}
			if e == 0 {
				bytes := 0
				for ; k > 0; k-- {
					bytes += int(d.mm.iov[i].Len)
					d.sent(0, 1, int(d.mm.iov[i].Len))
					i++
				}
				off += bytes
				d.st.Pending += uint64(repeat)
				repeat = 0
				continue
			}
			if d.again(g.Path, e, repeat) {
				repeat++
				continue
			}
			repeat = 0
			switch e {
			case unix.EAGAIN:
				d.st.SendAgain++
				g.Data = g.Data[:copy(g.Data, g.Data[off:])]
				return dgram.ErrNoRoom
			case unix.ENOBUFS, unix.EPERM:
				lost = d.st.lost(e)
				off += int(d.mm.iov[i].Len)
				i++
			default:
				return d.st.lost(e)
			}
		}
	}
	d.st.Split++
	d.sent(1, 0, 0)
	return lost
}

func (d *direct) SendBatch(gs []*dgram.Datagram) (int, error) {
	done := 0
	for done < len(gs) {
		n := 1
		if len(gs)-done > 1 {
			n = d.fill(gs[done:])
		}
		if n < 2 {
			if err := d.Send(gs[done]); err != nil {
				return done, err
			}
			done++
			continue
		}
		k, err := d.flush(gs[done : done+n])
		done += k
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// fill puts trains into the batch, up to the first one that needs another socket or another
// way.
func (d *direct) fill(gs []*dgram.Datagram) (n int) {
	for n < len(gs) && n < maxBatch {
		g := gs[n]
		if len(g.Data) == 0 || g.Path != gs[0].Path || !d.aimed(g.Remote) && d.aim(g.Remote) != 0 {
			return n
		}
		segs := g.Segments()
		if segs > 1 && !d.whole(segs) {
			return n
		}
		d.put(n, g.Data, d.socks[g.Path].segment(segs, g, false), g.TOS)
		n++
	}
	return n
}

// flush sends the batch, which holds gs.
func (d *direct) flush(gs []*dgram.Datagram) (int, error) {
	s := &d.socks[gs[0].Path]
	for i, repeat := 0, 0; ; {
		k, e := d.outcome(len(gs) - i)
		if e == 0 {
			k, e = d.sendmmsg(s, i, i+k)
		}
		switch {
		case e == 0:
			d.st.Pending += uint64(repeat)
			repeat = 0
			for ; k > 0; k-- {
				d.sent(1, gs[i].Segments(), len(gs[i].Data))
				i++
			}
		case d.again(gs[i].Path, e, repeat):
			repeat++
		default:
			repeat = 0
			// aim worked for it before, so it works again. failed may split the train and
			// overwrite the batch, so the caller starts over after it.
			d.aim(gs[i].Remote)
			if err := d.failed(s, gs[i], e); err != nil {
				return i, err
			}
			return i + 1, nil
		}
		if i == len(gs) {
			return i, nil
		}
	}
}

// sendCtl is enough for the control messages of compose.
const sendCtl = 64

// compose writes the control messages of a train: its segment size, unless segOfSocket, and its
// traffic class, if it is not that of the socket.
func (d *direct) compose(m *unix.Msghdr, b []byte, seg int, tos uint8) {
	n := 0
	if seg >= 0 {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		h.SetLen(unix.CmsgLen(2))
		*(*uint16)(unsafe.Pointer(&b[sizeofHdr])) = uint16(seg)
		n = unix.CmsgSpace(2)
	}
	if tos != d.tos {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[n]))
		h.Level, h.Type = unix.IPPROTO_IP, unix.IP_TOS
		if d.v6 {
			h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_TCLASS
		}
		h.SetLen(unix.CmsgLen(4))
		*(*int32)(unsafe.Pointer(&b[n+sizeofHdr])) = int32(tos)
		n += unix.CmsgSpace(4)
	}
	m.Control = nil
	if n > 0 {
		m.Control = &b[0]
	}
	m.SetControllen(n)
}
