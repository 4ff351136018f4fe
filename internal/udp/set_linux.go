package udp

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Set says which of many Conns have something to receive, or evidence, with one system call. Add
// and Remove may be called at any time before Close. Calls of Ready must not overlap each other or
// Close.
type Set struct {
	fd int
	in waiter // waits for the set
	// sleeping is held by the goroutine that is in Wait or Nap.
	sleeping sync.Mutex
	events   [setLook]unix.EpollEvent

	mu    sync.Mutex
	conns map[int]*direct // by id
}

// setLook is the most Conns that one look finds. The kernel goes round, so the next look finds
// others. More of them would leave the ACKs of the first ones waiting. Arbitrary.
const setLook = 16

// NewSet makes an empty Set. It fails where the system has no such thing or no descriptor left.
func NewSet() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	s := &Set{fd: fd, in: waiter{stays: true}, conns: make(map[int]*direct)}
	s.in.watch(unix.EPOLLIN, fd)
	return s, nil
}

// A joiner is a backend that a Set can watch.
type joiner interface{ itself() *direct }

func (d *direct) itself() *direct { return d }

// watched is the descriptor that tells of all from which the backend reads. It never changes.
func (d *direct) watched() int {
	if d.ready != nil {
		return d.pollFD
	}
	return d.socks[0].fd
}

// Add adds c, which Ready calls id from now on. It reports false if that is not possible: c is
// Portable or closed, or the system has no room for another watch.
func (s *Set) Add(c *Conn, id int) bool {
	w, ok := c.io.(joiner)
	if !ok || !c.gate.enter() {
		return false
	}
	defer c.gate.leave()
	d := w.itself()
	s.mu.Lock()
	s.conns[id] = d
	s.mu.Unlock()
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id)}
	if unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, d.watched(), &ev) != nil {
		s.mu.Lock()
		delete(s.conns, id)
		s.mu.Unlock()
		return false
	}
	return true
}

// Remove removes c, which was added as id.
func (s *Set) Remove(c *Conn, id int) {
	s.mu.Lock()
	delete(s.conns, id)
	s.mu.Unlock()
	if w, ok := c.io.(joiner); ok && c.gate.enter() {
		_ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, w.itself().watched(), nil)
		c.gate.leave()
	}
}

// Ready appends the ids of Conns that have something to ids, without blocking. It finds at most
// so many at once, and the others at the next calls. An id may have been removed meanwhile.
func (s *Set) Ready(ids []int) []int {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(s.fd), uintptr(unsafe.Pointer(&s.events[0])), setLook, 0, 0, 0)
	if e != 0 {
		return ids // a signal; any other error would be ours
	}
	for i := range s.events[:n] {
		ev := &s.events[i]
		if ev.Events&unix.EPOLLERR != 0 {
			s.evident(int(ev.Fd))
		}
		ids = append(ids, int(ev.Fd))
	}
	return ids
}

// evident notes that a Conn has evidence. Of one with several paths its own look finds that.
func (s *Set) evident(id int) {
	s.mu.Lock()
	d := s.conns[id]
	s.mu.Unlock()
	if d != nil && d.ready == nil {
		d.evidence.Or(evidenceOf(0))
	}
}

// Wait blocks until Ready finds something, the deadline passes (zero means none), or Wake was
// called since the last Wait returned. It fails with net.ErrClosed once Close was called.
func (s *Set) Wait(deadline time.Time) error {
	s.sleeping.Lock()
	defer s.sleeping.Unlock()
	return s.in.wait(deadline)
}

// Wake ends the current Wait, or else the next one.
func (s *Set) Wake() { s.in.wake() }

// Nap is Wait on the thread of the caller, as Conn.Nap is. Rouse ends it, Wake does not. It
// reports false, at once, if it is not possible.
func (s *Set) Nap(timeout time.Duration) bool {
	s.sleeping.Lock()
	defer s.sleeping.Unlock()
	return !s.in.stop.Load() && s.in.naps.ready() && s.in.nap(timeout) == nil
}

// Rouse ends the current Nap, or else the next one.
func (s *Set) Rouse() { s.in.rouse() }

// Close ends Wait and Nap and releases the Set. Wake and Rouse must not be called any more.
func (s *Set) Close() error {
	if s.in.stop.Load() {
		return net.ErrClosed
	}
	s.in.shut()
	s.in.rouse()
	s.sleeping.Lock()
	defer s.sleeping.Unlock()
	s.in.close()
	return os.NewSyscallError("close", unix.Close(s.fd))
}
