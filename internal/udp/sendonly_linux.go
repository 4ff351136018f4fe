package udp

import (
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// A sendOnly is a direct of which path 0 alone receives (Config.SendOnly). The socket of place i
// of its echoes is that of path paths+i.
type sendOnly struct {
	*direct
	pool  echoes
	cfg   Config
	watch atomic.Bool // pollFD exists: there are sockets besides that of path 0
	seen  [16]unix.EpollEvent
}

// deaf is a filter that drops all datagrams.
var deaf = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// deafen makes a socket drop what arrives, so that nothing waits in it that nobody reads.
func deafen(fd int) error {
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(deaf)), Filter: &deaf[0]})
}

// newSendOnly makes the rest of a direct one of which path 0 alone receives.
func newSendOnly(d *direct, cfg *Config) (*sendOnly, error) {
	t := &sendOnly{direct: d, cfg: *cfg, pool: echoes{clock: cfg.clock}}
	for p := range d.socks[1:] {
		if err := deafen(d.socks[1+p].fd); err != nil {
			return nil, os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)
		}
	}
	for p := range d.socks {
		t.leaveOut(&d.socks[p])
	}
	for range MaxEchoes {
		d.socks = append(d.socks, sock{fd: -1, path: len(d.socks)})
	}
	d.from = &d.socks[0]
	if d.paths > 1 {
		return t, t.watchErrors()
	}
	return t, nil
}

// watchErrors makes the epoll set that wait waits for: path 0, and the errors of the others. As
// long as there are no others, path 0 is in no set, which is cheaper (waiter).
func (t *sendOnly) watchErrors() error {
	if t.pollFD >= 0 {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	t.pollFD = fd
	for p := range t.socks[:t.paths] {
		if err := t.listen(p); err != nil {
			return err
		}
	}
	t.watch.Store(true)
	return nil
}

// listen adds the socket of a path to the set; the system always adds EPOLLERR.
func (t *sendOnly) listen(path int) error {
	ev := unix.EpollEvent{Fd: int32(path)}
	if path == 0 {
		ev.Events = unix.EPOLLIN
	}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(t.pollFD, unix.EPOLL_CTL_ADD, t.socks[path].fd, &ev))
}

func (t *sendOnly) echo(ev uint16) bool { return t.pool.echo(ev, t.bindEcho) }

// bindEcho opens the socket of a place, and closes the one that had it.
func (t *sendOnly) bindEcho(i int, ev uint16) bool {
	s := &t.socks[t.paths+i]
	if s.fd >= 0 {
		t.echoing.Lock()
		_ = unix.Close(s.fd)
		s.fd = -1
		t.echoing.Unlock()
	}
	n, err := t.bind(netip.AddrPortFrom(t.cfg.Addr.Addr(), ev))
	if err != nil {
		return false
	}
	was := t.info0
	if t.options(n.fd, &t.cfg) != nil || deafen(n.fd) != nil || t.watchErrors() != nil {
		_ = unix.Close(n.fd)
		return false
	}
	t.info0 = was // of the paths
	n.path = t.paths + i
	t.leaveOut(&n)
	t.echoing.Lock()
	*s = n
	t.echoing.Unlock()
	t.st.EchoBound++
	return t.listen(n.path) == nil
}

// path returns the index of the socket of a train, -1 if Echo bound it and it is gone.
func (t *sendOnly) path(g *dgram.Datagram) int {
	ev, ok := dgram.EchoOf(g.Path)
	if !ok {
		return g.Path
	}
	if i := t.pool.find(ev); i >= 0 && t.pool.bound[i] {
		return t.paths + i
	}
	return -1
}

// zeroAfter is how many datagrams in a row must leave alone before a socket that sent a train
// leaves checksums out again. Each change is a system call. Arbitrary.
const zeroAfter = 32

// leaveOut makes a socket send UDP checksums of zero, if that is wanted.
func (t *sendOnly) leaveOut(s *sock) {
	s.alone = 0
	if t.cfg.NoChecksum {
		level, opt := sumsOption(t.v6)
		s.unsummed = set(s.fd, level, opt, true)
	}
}

// sums decides whether the next datagrams of a socket, which leave together, have UDP checksums:
// the kernel refuses a train without them (EINVAL).
func (t *sendOnly) sums(s *sock, segs int) {
	switch {
	case !t.cfg.NoChecksum:
	case segs > 1 && t.gso:
		if s.alone = 0; s.unsummed {
			level, opt := sumsOption(t.v6)
			s.unsummed = !set(s.fd, level, opt, false)
		}
	case !s.unsummed:
		// A size of its own would make each datagram a train.
		if s.alone++; s.alone >= zeroAfter && (s.seg == 0 || s.stick(0)) {
			t.leaveOut(s)
		}
	}
}

func (t *sendOnly) Send(g *dgram.Datagram) error {
	asked := g.Path
	if g.Path = t.path(g); g.Path < 0 {
		g.Path = asked
		return t.st.lost(unix.EADDRNOTAVAIL)
	}
	t.sums(&t.socks[g.Path], g.Segments())
	err := t.direct.Send(g)
	g.Path = asked
	return err
}

func (t *sendOnly) SendBatch(gs []*dgram.Datagram) (int, error) {
	var asked [maxBatch]int
	for done := 0; done < len(gs); {
		part := gs[done:min(len(gs), done+maxBatch)]
		n, segs := 0, 0
		for ; n < len(part); n++ {
			p := t.path(part[n])
			if p < 0 {
				break
			}
			asked[n], part[n].Path = part[n].Path, p
			segs = max(segs, part[n].Segments())
		}
		for _, g := range part[:n] {
			t.sums(&t.socks[g.Path], segs)
		}
		sent, err := t.direct.SendBatch(part[:n])
		for i, g := range part[:n] {
			g.Path = asked[i]
		}
		if done += sent; err != nil {
			return done, err
		}
		if n < len(part) {
			return done, t.st.lost(unix.EADDRNOTAVAIL)
		}
	}
	return len(gs), nil
}

func (t *sendOnly) wait(deadline time.Time) error {
	watch := t.choose()
	err := t.direct.wait(deadline)
	t.note(watch)
	return err
}

func (t *sendOnly) nap(timeout time.Duration) error {
	watch := t.choose()
	err := t.direct.nap(timeout)
	t.note(watch)
	return err
}

// choose sets the descriptor that a wait waits for: the epoll set, if watch is true.
func (t *sendOnly) choose() (watch bool) {
	t.in.item = t.socks[0].fd
	if watch = t.watch.Load(); watch {
		t.in.item = t.pollFD
	}
	return watch
}

// note marks the sockets that have an error after a wait.
func (t *sendOnly) note(watch bool) {
	if !watch {
		if t.in.got&unix.EPOLLERR != 0 {
			t.evidence.Or(evidenceOf(0))
		}
		return
	}
	n, err := unix.EpollWait(t.pollFD, t.seen[:], 0)
	if err != nil {
		return
	}
	for i := range t.seen[:n] {
		if t.seen[i].Events&unix.EPOLLERR != 0 {
			t.evidence.Or(evidenceOf(int(t.seen[i].Fd)))
		}
	}
}

// count leaves out the sockets that are deaf.
func (t *sendOnly) count() {
	s := &t.socks[0]
	if n, ok := droppedBy(s.fd); ok {
		t.drops.Add(uint64(n - s.drops))
		s.drops = n
	}
}

func (t *sendOnly) close() error {
	t.count()
	return t.closeAll()
}
