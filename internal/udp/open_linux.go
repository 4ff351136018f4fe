package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// direct is the Linux backend. It makes its system calls on the caller's thread.
type direct struct {
	socks []sock
	paths int // the sockets behind that many are Echo's
	v6    bool
	scope scopes
	info0 Info // as of Open, except what mu guards

	// evidence has a bit for each path whose error queue may have an entry; see evidenceOf.
	evidence atomic.Uint64

	from *sock // the socket that Recv reads: the only one, or that which several chose
	// pollFD is the epoll set of the sockets if there are several. ready holds the events of
	// the last look at it, nready of them unused; they are used from the end.
	pollFD int
	ready  []unix.EpollEvent
	nready int

	rx struct {
		msg  unix.Msghdr
		iov  unix.Iovec
		ctl  [ctlLen]byte
		name unix.RawSockaddrInet6
		// namelen is for recvfrom.
		namelen uint32
		last    [8]byte        // the first bytes of name when sender decoded it
		from    netip.AddrPort // what sender decoded
	}
	tx struct {
		msg  unix.Msghdr
		iov  unix.Iovec
		ctl  [sendCtl]byte
		name unix.RawSockaddrInet6
		to   netip.AddrPort // the address in name
		len  uint32         // length of name, 0: it is not valid
		solo bool           // the destination gets no trains
	}
	mm   *batch      // for sendmmsg; made when first needed
	errq *errorQueue // made when first needed

	tos uint8
	// most is the most datagrams that the kernel takes in one train.
	most int
	// gso means that trains are sent whole, except to the destinations in off. If it is false
	// and rest is not 0, it is tried again after rest trains.
	gso  bool
	off  []noGSO
	rest int

	st     Stats
	thrown atomic.Uint64 // evidence that discard dropped
	drops  atomic.Uint64 // Stats.KernelDrops; atomic because close counts beside a reader

	in    waiter      // waits until a path is readable
	stale uint64      // value of evidence when the last wait began
	bin   *errorQueue // as errq, for discard

	// inject, if not nil, gets the number of messages of each call. It returns how many of them
	// the kernel gets, or the error to use instead of the kernel's. It is for tests.
	inject func(n int) (int, syscall.Errno)

	gsoChanged func(Feature) // or nil

	echoing sync.Mutex // guards the descriptors of Echo's paths, which the waiting goroutine may read

	mu      sync.Mutex
	gsoNow  Feature // mu guards these three
	out     *waiter // waits until a path is writable; made when first needed
	stopped bool
}

// sock is one path.
type sock struct {
	fd    int
	path  int // its index
	port  uint16
	drops uint32 // the last result of droppedBy

	// seg is the socket's own segment size (UDP_SEGMENT), 0 means none. Trains of that size and
	// datagrams up to it need no control message.
	seg  int
	last int // segment size of the latest train with another one
	run  int // number of such trains, see stickAfter
	long int // number of datagrams alone that were longer than seg, see stickAfter
	rest int // number of trains until the socket may have a size again, because the last one failed

	unsummed bool // it sends UDP checksums of zero
	alone    int  // datagrams that left alone in a row, with checksums

	asks asks
}

// noGSO is a destination to which a train could not be sent.
type noGSO struct {
	to   netip.Addr
	why  syscall.Errno
	rest int // number of trains to it until one is tried whole again
}

// retryTrains is how many trains leave as single datagrams before one is sent whole again, and
// how many carry their segment size before the socket may have one of its own again. The sends
// may have failed because of an old or forged ICMP message (T34), or a path that is gone. The
// attempt costs one to three calls of about 1,024. Arbitrary.
const retryTrains = 1024

// maxNoGSO bounds the destinations without GSO. One more turns GSO off for all for a while.
// Arbitrary: it bounds the memory and the search, and so many failures are not due to a
// destination.
const maxNoGSO = 64

func openNative(cfg *Config) (_ backend, _ []uint16, err error) {
	d := &direct{
		v6:     cfg.Addr.Addr().Is6(),
		tos:    cfg.TOS,
		pollFD: -1,
		most:   dgram.MaxSegments,
	}
	defer func() {
		if err != nil {
			_ = d.close()
		}
	}()
	open := func(a netip.AddrPort) (uint16, error) {
		s, err := d.bind(a)
		if err != nil {
			return 0, err
		}
		s.path = len(d.socks)
		d.socks = append(d.socks, s)
		return s.port, nil
	}
	undo := func() {
		for _, s := range d.socks {
			_ = unix.Close(s.fd)
		}
		d.socks = d.socks[:0]
	}
	ports, err := openPaths(cfg, open, undo)
	if err != nil {
		return nil, nil, err
	}
	i := &d.info0
	i.Method = "recvmsg, sendmsg"
	i.RecvBuf.Asked, i.SendBuf.Asked = cfg.RecvBuf, cfg.SendBuf
	i.Interface, i.MTU = interfaceOf(cfg.Addr.Addr())
	for _, s := range d.socks {
		if err := d.options(s.fd, cfg); err != nil {
			return nil, nil, err
		}
	}
	d.gso, d.gsoNow, d.gsoChanged = i.GSO.On, i.GSO, cfg.GSOChanged
	d.paths = len(d.socks)
	inTurn := d.paths > 1 && !cfg.SendOnly // all are read, in turn
	for p := range d.socks {
		a := &d.socks[p].asks
		a.trains, a.left, a.class, a.classLeft, a.any, a.v6 = i.GRO.On, groTry, true, classTry, true, d.v6
		// One of several sockets is read only when it has something, so a row of datagrams
		// tells nothing.
		a.trainsFixed = !i.GRO.On || cfg.GRO != Auto || inTurn
		a.classFixed = cfg.EveryClass || !i.ECN.On || inTurn
	}

	d.from = &d.socks[0]
	// The descriptor that Recv and the waiters look at: the socket, or the epoll set of all.
	item := d.socks[0].fd
	if inTurn {
		d.ready = make([]unix.EpollEvent, len(d.socks))
		if d.pollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
			return nil, nil, os.NewSyscallError("epoll_create1", err)
		}
		for p, s := range d.socks {
			ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p)}
			if err := unix.EpollCtl(d.pollFD, unix.EPOLL_CTL_ADD, s.fd, &ev); err != nil {
				return nil, nil, os.NewSyscallError("epoll_ctl", err)
			}
		}
		item = d.pollFD
	}
	d.in.watch(unix.EPOLLIN, item)

	d.rx.msg.Iov, d.rx.msg.Name = &d.rx.iov, (*byte)(unsafe.Pointer(&d.rx.name))
	d.rx.msg.SetIovlen(1)
	d.rx.msg.Control = &d.rx.ctl[0]
	d.tx.msg.Iov, d.tx.msg.Name = &d.tx.iov, (*byte)(unsafe.Pointer(&d.tx.name))
	d.tx.msg.SetIovlen(1)

	switch {
	case cfg.SendOnly:
		t, err := newSendOnly(d, cfg)
		return t, ports, err
	case inTurn:
		return &several{d}, ports, nil
	}
	return d, ports, nil
}

// bind makes a socket and gives it an address.
func (d *direct) bind(a netip.AddrPort) (sock, error) {
	family := unix.AF_INET
	if d.v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return sock{}, os.NewSyscallError("socket", err)
	}
	fail := func(call string, err error) (sock, error) {
		_ = unix.Close(fd)
		return sock{}, os.NewSyscallError(call, err)
	}
	if d.v6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fail("setsockopt IPV6_V6ONLY", err)
		}
	}
	var name unix.RawSockaddrInet6
	n, e := d.encode(&name, a)
	if e != 0 {
		return fail("bind", e)
	}
	if _, _, e := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(n)); e != 0 {
		return fail("bind", e)
	}
	l := uint32(unsafe.Sizeof(name))
	if _, _, e := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&l))); e != 0 {
		return fail("getsockname", e)
	}
	return sock{fd: fd, port: ntohs(name.Port)}, nil
}

// options sets the options of one socket and fills the Features in d.info0. All sockets are
// alike, so the last one may overwrite the others.
func (d *direct) options(fd int, cfg *Config) error {
	level, tos, recvErr := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVERR
	if d.v6 {
		level, tos, recvErr = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVERR
	}
	i := &d.info0
	i.RecvBuf = askBuffer(uintptr(fd), true, cfg.RecvBuf)
	i.SendBuf = askBuffer(uintptr(fd), false, cfg.SendBuf)

	if cfg.TOS != 0 {
		if err := unix.SetsockoptInt(fd, level, tos, int(cfg.TOS)); err != nil {
			return os.NewSyscallError("setsockopt TOS", err)
		}
	}
	i.ECN = feature(recvTOS(uintptr(fd), d.v6))
	i.Evidence = feature(unix.SetsockoptInt(fd, level, recvErr, 1))
	i.DontFragment = feature(dontFragment(uintptr(fd), d.v6, !cfg.AllowFragments))
	if cfg.AllowFragments {
		i.DontFragment = Feature{Why: "Config.AllowFragments"}
	}
	i.Unsummed = feature(hearUnsummed(uintptr(fd), d.v6))
	i.GSO = Feature{Why: "Config.GSO off"}
	if cfg.GSO != Off {
		_, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		if i.GSO = feature(err); err != nil && cfg.GSO == On {
			return os.NewSyscallError("getsockopt UDP_SEGMENT", err)
		}
	}
	i.GRO = Feature{Why: "Config.GRO off"}
	if cfg.GRO != Off {
		err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		if i.GRO = feature(err); err != nil && cfg.GRO == On {
			return os.NewSyscallError("setsockopt UDP_GRO", err)
		}
	}
	return nil
}

func (d *direct) routeMTU(remote netip.Addr) (int, error) {
	var name unix.RawSockaddrInet6
	local, e := d.localAddr()
	if e != 0 {
		return 0, e
	}
	// A connected socket knows its route; nothing is sent.
	s, err := d.bind(netip.AddrPortFrom(local, 0))
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(s.fd) }()
	n, e := d.encode(&name, netip.AddrPortFrom(remote, 9))
	if e != 0 {
		return 0, e
	}
	if _, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(s.fd), uintptr(unsafe.Pointer(&name)), uintptr(n)); e != 0 {
		return 0, os.NewSyscallError("connect", e)
	}
	if d.v6 {
		v, err := unix.GetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
		return v, os.NewSyscallError("getsockopt IPV6_MTU", err)
	}
	v, err := unix.GetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_MTU)
	return v, os.NewSyscallError("getsockopt IP_MTU", err)
}

// localAddr asks the first socket for its IP address.
func (d *direct) localAddr() (netip.Addr, syscall.Errno) {
	var name unix.RawSockaddrInet6
	l := uint32(unsafe.Sizeof(name))
	if _, _, e := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(d.socks[0].fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&l))); e != 0 {
		return netip.Addr{}, e
	}
	return d.decode(&name).Addr(), 0
}

func (d *direct) info(i *Info) {
	local, ports := i.Local, i.Ports
	*i = d.info0
	i.Local, i.Ports = local, ports
	d.mu.Lock()
	i.GSO = d.gsoNow
	d.mu.Unlock()
	if i.GSO.On {
		i.Method += ", UDP_SEGMENT"
	}
	if i.GRO.On {
		i.Method += ", UDP_GRO"
	}
}

// count asks for the drops of each socket. They could come with datagrams (SO_RXQ_OVFL), but
// then those after the last datagram would be missed, and the kernel would read the time stamp
// of each.
func (d *direct) count() {
	for p := range d.socks {
		s := &d.socks[p]
		if n, ok := droppedBy(s.fd); ok {
			d.drops.Add(uint64(n - s.drops))
			s.drops = n
		}
	}
}

// droppedBy returns how many datagrams the kernel dropped for a socket, false if it does not
// tell (before Linux 4.12).
func droppedBy(fd int) (uint32, bool) {
	var info [9]uint32 // SK_MEMINFO_VARS
	n := uint32(unsafe.Sizeof(info))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&n)), 0)
	const drops = 8 // SK_MEMINFO_DROPS
	return info[drops], e == 0 && n == uint32(unsafe.Sizeof(info))
}

// stamps asks each socket for the time of arrival, and reports whether all tell it.
func (d *direct) stamps(on bool) bool {
	for p := range d.socks {
		if s := &d.socks[p]; s.fd >= 0 && !s.asks.askStamp(s.fd, on) {
			return false
		}
	}
	return true
}

// echo has no port: only a sendOnly has.
func (d *direct) echo(uint16) bool { return false }

func (d *direct) stats() Stats {
	s := d.st
	s.KernelDrops, s.EvidenceLost = d.drops.Load(), d.thrown.Load()
	return s
}

func (d *direct) close() error {
	d.count()
	return d.closeAll()
}

func (d *direct) closeAll() error {
	d.in.close()
	if d.out != nil {
		d.out.close()
	}
	if d.pollFD >= 0 {
		_ = unix.Close(d.pollFD)
	}
	var err error
	for _, s := range d.socks {
		if s.fd < 0 {
			continue // a place of Echo that is free
		}
		if e := unix.Close(s.fd); e != nil && err == nil {
			err = os.NewSyscallError("close", e)
		}
	}
	return err
}

// encode writes a in the form of the kernel and returns its length. EAFNOSUPPORT means that a
// is of the other address family, ENODEV that its zone does not exist.
func (d *direct) encode(to *unix.RawSockaddrInet6, a netip.AddrPort) (uint32, syscall.Errno) {
	ip := a.Addr().Unmap()
	if !ip.IsValid() || ip.Is6() != d.v6 {
		return 0, unix.EAFNOSUPPORT
	}
	if !d.v6 {
		to4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(to))
		*to4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: htons(a.Port()), Addr: ip.As4()}
		return unix.SizeofSockaddrInet4, 0
	}
	*to = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: htons(a.Port()), Addr: ip.As16()}
	if z := ip.Zone(); z != "" {
		id, ok := d.scope.id(z)
		if !ok {
			return 0, unix.ENODEV
		}
		to.Scope_id = id
	}
	return unix.SizeofSockaddrInet6, 0
}

// decode is the inverse of encode.
func (d *direct) decode(from *unix.RawSockaddrInet6) netip.AddrPort {
	if from.Family == unix.AF_INET {
		return decode4((*unix.RawSockaddrInet4)(unsafe.Pointer(from)))
	}
	return d.decode6(from)
}

func decode4(from *unix.RawSockaddrInet4) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(from.Addr), ntohs(from.Port))
}

func (d *direct) decode6(from *unix.RawSockaddrInet6) netip.AddrPort {
	ip := netip.AddrFrom16(from.Addr)
	if from.Scope_id != 0 {
		ip = ip.WithZone(d.scope.zone(from.Scope_id))
	}
	return netip.AddrPortFrom(ip, ntohs(from.Port))
}

// scopes translates IPv6 zones. It keeps the last one, because to look one up is to ask the
// system for its interfaces. A Conn with a link-local address uses only one.
type scopes struct {
	last atomic.Pointer[scope]
}

type scope struct {
	name string
	id   uint32
}

func (s *scopes) id(zone string) (uint32, bool) {
	if l := s.last.Load(); l != nil && l.name == zone {
		return l.id, true
	}
	var id uint32
	if f, err := net.InterfaceByName(zone); err == nil {
		id = uint32(f.Index)
	} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		id = uint32(n)
	} else {
		return 0, false
	}
	s.last.Store(&scope{zone, id})
	return id, true
}

func (s *scopes) zone(id uint32) string {
	if l := s.last.Load(); l != nil && l.id == id {
		return l.name
	}
	name := strconv.FormatUint(uint64(id), 10)
	if f, err := net.InterfaceByIndex(int(id)); err == nil {
		name = f.Name
	}
	s.last.Store(&scope{name, id})
	return name
}

// Ports are in network byte order on every host.

func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

func ntohs(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}
