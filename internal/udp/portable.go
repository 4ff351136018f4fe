package udp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/uetkit/uetkit/internal/dgram"
)

// portable is the backend for every system. It uses sockets of package net and, where they
// exist, batches of golang.org/x/net. It has no GSO, no GRO and no evidence. It still returns
// trains, of datagrams that it found waiting together.
type portable struct {
	v6    bool
	socks []portSock
	src   source
	out   outWaiters
	info0 Info

	cfg   Config
	paths int // the sockets behind that many are Echo's (Config.SendOnly)
	pool  echoes

	msgs []ipv4.Message // messages to be sent
	to   netip.AddrPort // the address in addr
	addr *net.UDPAddr

	st Stats
}

// portSock is one path.
type portSock struct {
	conn *net.UDPConn
	pc   batcher
	raw  syscall.RawConn
	tos  int // traffic class of the socket; -1 if it could not be set
}

// batcher is an *ipv4.PacketConn or an *ipv6.PacketConn.
type batcher interface {
	ReadBatch(ms []ipv4.Message, flags int) (int, error)
	WriteBatch(ms []ipv4.Message, flags int) (int, error)
}

// A source returns what was received, datagram by datagram.
type source interface {
	// next returns the first datagram, or nil. It stays the first until take removes it. With
	// ask, next looks for more if it has none at hand.
	next(ask bool) (*arrival, error)
	take()
	// wait, wake and stop are those of a backend.
	wait(deadline time.Time) error
	wake()
	stop()
	close()
}

// An arrival is one received datagram.
type arrival struct {
	data []byte
	from netip.AddrPort
	path int
	tos  uint8
	cut  bool // it was longer than the buffer
}

// portableBatch is the most datagrams of one call. More than 32 have gained nothing.
const portableBatch = 32

func openPortable(cfg *Config) (_ backend, _ []uint16, err error) {
	p := &portable{v6: cfg.Addr.Addr().Is6()}
	open := func(a netip.AddrPort) (uint16, error) {
		c, err := net.ListenUDP(p.network(), net.UDPAddrFromAddrPort(a))
		if err != nil {
			return 0, mapErrno(err)
		}
		p.socks = append(p.socks, portSock{conn: c})
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), nil
	}
	undo := func() {
		for _, s := range p.socks {
			_ = s.conn.Close()
		}
		p.socks = p.socks[:0]
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	ports, err := openPaths(cfg, open, undo)
	if err != nil {
		return nil, nil, err
	}
	for i := range p.socks {
		if err := p.options(&p.socks[i], cfg); err != nil {
			return nil, nil, err
		}
	}
	p.cfg, p.paths, p.pool.clock = *cfg, len(p.socks), cfg.clock
	i := &p.info0
	i.GSO = Feature{Why: "not in the portable implementation"}
	i.GRO, i.Evidence = i.GSO, i.GSO
	i.Interface, i.MTU = interfaceOf(cfg.Addr.Addr())

	p.msgs = make([]ipv4.Message, portableBatch)
	for i := range p.msgs {
		p.msgs[i].Buffers = make([][]byte, 1)
	}
	if cfg.SendOnly {
		for _, s := range p.socks[1:] {
			_ = s.conn.SetReadBuffer(1) // as small as there is: nobody reads it
		}
		p.socks = append(p.socks, make([]portSock, MaxEchoes)...)
	}
	if inlineRecv && (cfg.Paths == 1 || cfg.SendOnly) && !cfg.readers {
		i.Method = "ReadBatch, WriteBatch"
		p.src, err = newInline(p)
	} else {
		i.Method = "a goroutine for each path, WriteBatch"
		p.src = newReaders(p)
	}
	if err != nil {
		return nil, nil, err
	}
	return p, ports, nil
}

// options sets the options of one socket and fills the Features in p.info0. All sockets are
// alike, so the last one may overwrite the others.
func (p *portable) options(s *portSock, cfg *Config) error {
	if p.v6 {
		c := ipv6.NewPacketConn(s.conn)
		s.pc = c
		if cfg.TOS != 0 {
			if err := c.SetTrafficClass(int(cfg.TOS)); err != nil {
				return err
			}
		}
	} else {
		c := ipv4.NewPacketConn(s.conn)
		s.pc = c
		if cfg.TOS != 0 {
			if err := c.SetTOS(int(cfg.TOS)); err != nil {
				return err
			}
		}
	}
	s.tos = int(cfg.TOS)
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	s.raw = raw
	i := &p.info0
	var frag error
	err = raw.Control(func(fd uintptr) {
		i.RecvBuf = askBuffer(fd, true, cfg.RecvBuf)
		i.SendBuf = askBuffer(fd, false, cfg.SendBuf)
		i.ECN = feature(recvTOS(fd, p.v6))
		i.Unsummed = feature(hearUnsummed(fd, p.v6))
		if cfg.NoChecksum {
			_ = sendUnsummed(fd, p.v6) // a checksum does no harm
		}
		frag = dontFragment(fd, p.v6, !cfg.AllowFragments)
	})
	if err != nil {
		return err
	}
	i.DontFragment = feature(frag)
	if cfg.AllowFragments {
		i.DontFragment = Feature{Why: "Config.AllowFragments"}
	}
	return nil
}

// feature returns a Feature that is on, or off because of err.
func feature(err error) Feature {
	if err != nil {
		return Feature{Why: "not in this system: " + err.Error()}
	}
	return Feature{On: true}
}

func (p *portable) Recv(g *dgram.Datagram) (bool, error) {
	room := g.Data[:cap(g.Data)]
	var a *arrival
	for {
		var err error
		if a, err = p.src.next(true); a == nil {
			return false, err
		}
		if !a.cut && len(a.data) <= len(room) {
			break
		}
		p.st.RecvCut++
		p.src.take()
	}
	n := copy(room, a.data)
	g.Seg, g.Remote, g.Path, g.TOS = n, a.from, a.path, a.tos
	p.src.take()
	segs := 1
	// Add more of the same, as GRO would.
	for n > 0 && segs < dgram.MaxSegments && n%g.Seg == 0 {
		a, _ := p.src.next(false)
		if a == nil || a.cut || a.from != g.Remote || a.path != g.Path || a.tos != g.TOS ||
			len(a.data) == 0 || len(a.data) > g.Seg || n+len(a.data) > min(len(room), dgram.MaxTrain) {
			break
		}
		n += copy(room[n:], a.data)
		segs++
		p.src.take()
	}
	g.Data = room[:n]
	p.st.RecvTrains++
	p.st.RecvSegments += uint64(g.Segments())
	p.st.RecvBytes += uint64(n)
	return true, nil
}

func (p *portable) Send(g *dgram.Datagram) error {
	if len(g.Data) == 0 {
		return nil
	}
	path := g.Path
	if ev, ok := dgram.EchoOf(path); ok {
		i := p.pool.find(ev)
		if i < 0 || !p.pool.bound[i] {
			return p.st.lost(syscall.EADDRNOTAVAIL)
		}
		path = p.paths + i
	}
	s := &p.socks[path]
	if err := p.aim(g.Remote); err != nil {
		return p.st.lost(err.(syscall.Errno))
	}
	p.mark(s, g.TOS)
	if g.Segments() > 1 {
		p.st.Split++
	}
	// Split the train, as the Linux backend does (send_linux.go).
	var lost error
	off := 0
	rest := g.Data
	for len(rest) > 0 {
		n := 0
		for n < len(p.msgs) && len(rest) > 0 {
			p.msgs[n].Addr = p.addr
			p.msgs[n].Buffers[0], rest = g.Next(rest)
			n++
		}
		for i := 0; i < n; {
			p.st.SendCalls++
			k, err := writeBatch(s, p.msgs[i:n])
			for ; k > 0; k-- {
				b := len(p.msgs[i].Buffers[0])
				p.st.SendSegments++
				p.st.SendBytes += uint64(b)
				off += b
				i++
			}
			if err == nil {
				continue
			}
			switch e := errnoOf(err); e {
			case syscall.EINTR:
			case syscall.EAGAIN:
				p.st.SendAgain++
				g.Data = g.Data[:copy(g.Data, g.Data[off:])]
				return dgram.ErrNoRoom
			case syscall.ENOBUFS, syscall.EPERM:
				lost = p.st.lost(e)
				off += len(p.msgs[i].Buffers[0])
				i++
			case 0:
				return net.ErrClosed
			default:
				return p.st.lost(e)
			}
		}
	}
	p.st.SendTrains++
	return lost
}

func (p *portable) echo(ev uint16) bool { return p.pool.echo(ev, p.bindEcho) }

// bindEcho opens the socket of a place, and closes the one that had it.
func (p *portable) bindEcho(i int, ev uint16) bool {
	s := &p.socks[p.paths+i]
	if s.conn != nil {
		_ = s.conn.Close()
		*s = portSock{}
	}
	c, err := net.ListenUDP(p.network(), net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.cfg.Addr.Addr(), ev)))
	if err != nil {
		return false
	}
	n, was := portSock{conn: c}, p.info0
	if err := p.options(&n, &p.cfg); err != nil {
		_ = c.Close()
		return false
	}
	p.info0 = was // of the paths
	_ = c.SetReadBuffer(1)
	*s = n
	p.st.EchoBound++
	return true
}

func (p *portable) network() string {
	if p.v6 {
		return "udp6"
	}
	return "udp4"
}

// aim sets the destination of the next train.
func (p *portable) aim(to netip.AddrPort) error {
	if to == p.to && p.addr != nil {
		return nil
	}
	ip := to.Addr().Unmap()
	if !ip.IsValid() || ip.Is6() != p.v6 {
		return syscall.EAFNOSUPPORT
	}
	p.to, p.addr = to, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, to.Port()))
	return nil
}

// mark gives the socket the traffic class of the next train.
func (p *portable) mark(s *portSock, tos uint8) {
	if s.tos == int(tos) || s.tos < 0 {
		return
	}
	var err error
	switch c := s.pc.(type) {
	case *ipv4.PacketConn:
		err = c.SetTOS(int(tos))
	case *ipv6.PacketConn:
		err = c.SetTrafficClass(int(tos))
	}
	s.tos = int(tos)
	if err != nil {
		s.tos = -1 // some systems do not allow it; only the mark is lost
	}
}

func (p *portable) SendBatch(gs []*dgram.Datagram) (int, error) {
	for i, g := range gs {
		if err := p.Send(g); err != nil {
			return i, err
		}
	}
	return len(gs), nil
}

func (p *portable) evident() bool                 { return false }
func (p *portable) nextError(*Evidence) bool      { return false }
func (p *portable) wait(deadline time.Time) error { return p.src.wait(deadline) }
func (p *portable) naps() bool                    { return false }
func (p *portable) stamps(bool) bool              { return false }
func (p *portable) nap(time.Duration) error       { return errors.ErrUnsupported }
func (p *portable) rouse()                        {}
func (p *portable) count()                        {}
func (p *portable) stats() Stats                  { return p.st }

func (p *portable) waitWritable(path int, deadline time.Time) error {
	return p.out.wait(&p.socks[path], path, deadline)
}

func (p *portable) wake() {
	p.src.wake()
	p.out.wake()
}

func (p *portable) stop() {
	p.src.stop()
	p.out.stop()
}

func (p *portable) info(i *Info) {
	local, ports := i.Local, i.Ports
	*i = p.info0
	i.Local, i.Ports = local, ports
}

func (p *portable) routeMTU(netip.Addr) (int, error) {
	if p.info0.MTU == 0 {
		return 0, errors.ErrUnsupported
	}
	return p.info0.MTU, nil
}

func (p *portable) close() error {
	var first error
	for _, s := range p.socks {
		if s.conn == nil {
			continue // a place of Echo that is free
		}
		if err := s.conn.Close(); err != nil && first == nil {
			first = err
		}
	}
	p.src.close()
	p.out.close()
	return first
}

// errnoOf returns the errno in an error of package net, 0 if there is none, which means that
// the socket was closed.
func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(mapErrno(err), &e) {
		return e
	}
	return 0
}

// arrived fills a from a message.
func (a *arrival) arrived(data []byte, from netip.AddrPort, oob []byte, cut bool) {
	ip := from.Addr().Unmap()
	a.data, a.from, a.tos, a.cut = data, netip.AddrPortFrom(ip, from.Port()), parseTOS(oob), cut
}
