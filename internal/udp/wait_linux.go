package udp

import (
	"math/bits"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A waiter sleeps until a file descriptor has an event.
//
// The descriptor is not in the netpoller but in an epoll set of its own, which is in the
// netpoller, and it is in that set only during a wait. So arriving packets do not disturb the
// threads of a program that polls. With the socket in the netpoller and any other goroutine
// waiting for the network, each packet costs a context switch, and an echo takes two to three
// times as long. And each packet of a socket that is in any set, even one that asks nothing of
// it, calls that set twice, when it arrives and when it is freed: 0.3 µs of half a round trip,
// which is more than it costs to join the set for each sleep. Any number of sockets (an epoll
// set of them) takes one call to arm.
//
// The epoll set of a Set stays, because the kernel goes through all its sockets when it joins.
// Between two waits it asks for no events.
type waiter struct {
	sleeper
	events uint32
	file   *os.File // the epoll set
	fd     int
	item   int    // the descriptor to wait for; it belongs to the goroutine that waits
	stays  bool   // the item stays in the set between waits
	joined bool   // it is in the set
	armed  bool   // and asks for events
	got    uint32 // the events that came

	naps napper
}

// watch says what to wait for: events of item.
func (w *waiter) watch(events uint32, item int) {
	w.events, w.item, w.fd, w.naps.bell = events, item, -1, -1
}

// wait is that of a sleeper. The epoll set is made when somebody waits first: each of thousands of
// sockets that others watch takes one descriptor.
func (w *waiter) wait(deadline time.Time) error {
	if w.file == nil && w.open() != nil {
		time.Sleep(noRoomWait) // the caller looks at the socket and waits again
		if w.stop.Load() {
			return net.ErrClosed
		}
		return nil
	}
	return w.sleeper.wait(deadline)
}

// open makes the set, which is empty. It fails if the system has no descriptor left.
func (w *waiter) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	// os.NewFile gives only a nonblocking file to the netpoller.
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "udp wait")
	if err := w.init(f, false, w.find, w.disarm); err != nil {
		_ = f.Close()
		return err
	}
	w.fd, w.file = fd, f
	return nil
}

// A napper is what a nap of a waiter needs. It is woken by flags of its own: the wake of a
// goroutine that is about to wait must not end a nap instead.
type napper struct {
	asleep, roused atomic.Bool
	bell           int // an eventfd that ends a sleep; -1 before the first nap
	polls          [2]unix.PollFd
	limit          unix.Timespec
}

// ready makes naps possible. It reports false if the system has no descriptor left.
func (n *napper) ready() bool {
	if n.bell < 0 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return false
		}
		n.bell = fd
	}
	return true
}

// nap sleeps on the caller's thread until the item is readable, until the timeout, or until
// rouse. A rouse that comes before the sleep ends it at once. The napper must be ready.
func (w *waiter) nap(timeout time.Duration) error {
	n := &w.naps
	n.asleep.Store(true)
	if !n.roused.Swap(false) && !w.stop.Load() {
		n.polls = [2]unix.PollFd{{Fd: int32(w.item), Events: int16(w.events)}, {Fd: int32(n.bell), Events: unix.POLLIN}}
		n.limit = unix.NsecToTimespec(int64(max(timeout, 0)))
		hits, err := unix.Ppoll(n.polls[:], &n.limit, nil)
		for err == unix.EINTR { // a signal of the runtime; the system left the rest of the time in limit
			hits, err = unix.Ppoll(n.polls[:], &n.limit, nil)
		}
		if err == nil && hits > 0 {
			w.got = uint32(uint16(n.polls[0].Revents))
			if n.polls[1].Revents != 0 {
				var b [8]byte
				_, _ = unix.Read(n.bell, b[:])
			}
		}
	}
	n.asleep.Store(false)
	n.roused.Store(false)
	if w.stop.Load() {
		return net.ErrClosed
	}
	return nil
}

// rouse ends the nap that is under way, or the next one.
func (w *waiter) rouse() {
	// The flag is set first: a nap that does not see it is seen to be asleep.
	if w.naps.roused.Store(true); w.naps.asleep.Load() {
		one := [8]byte{7: 1} // not 0 in either byte order
		_, _ = unix.Write(w.naps.bell, one[:])
	}
}

// find arms the item if it is not armed, and reports whether there is an event.
func (w *waiter) find() bool {
	if !w.armed {
		op := unix.EPOLL_CTL_ADD
		if w.joined {
			op = unix.EPOLL_CTL_MOD
		}
		if err := unix.EpollCtl(w.fd, op, w.item, &unix.EpollEvent{Events: w.events}); err != nil {
			return w.noRoom(err)
		}
		w.joined, w.armed = true, true
	}
	var ev [1]unix.EpollEvent
	n, err := unix.EpollWait(w.fd, ev[:], 0)
	if err != nil || n == 0 {
		return false
	}
	w.got = ev[0].Events
	return true
}

// noRoom handles an item that could not join the set, because the system or the user has no
// room for another watch now. The wait then ends soon without an event; the caller looks at the
// socket and waits again.
func (w *waiter) noRoom(err error) bool {
	if err != unix.ENOMEM && err != unix.ENOSPC {
		// The item is open as long as the waiter is, and joins the set only here.
		panic("BUG: udp: epoll_ctl: " + err.Error())
	}
	time.Sleep(noRoomWait)
	return true
}

// noRoomWait is how long such a wait lasts, so that it does not use up the processor.
// Arbitrary.
const noRoomWait = time.Millisecond

// disarm ends the interest in the item.
func (w *waiter) disarm() {
	if !w.armed {
		return
	}
	op := unix.EPOLL_CTL_DEL
	if w.stays {
		op = unix.EPOLL_CTL_MOD
	}
	if err := unix.EpollCtl(w.fd, op, w.item, new(unix.EpollEvent)); err != nil {
		panic("BUG: udp: epoll_ctl: " + err.Error())
	}
	w.joined, w.armed = w.stays, false
}

// forgo closes the set, which the next wait makes again. Nobody may be in wait.
func (w *waiter) forgo() {
	if w.file == nil {
		return
	}
	w.deadline.Store(nil)
	_ = w.file.Close()
	w.file, w.fd, w.joined = nil, -1, false
}

func (w *waiter) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
	if w.naps.bell > 0 {
		_ = unix.Close(w.naps.bell)
	}
}

func (d *direct) wait(deadline time.Time) error {
	d.toSleep()
	err := d.in.wait(deadline)
	d.awake()
	return err
}

func (d *direct) forgo() { d.in.forgo() }

func (d *direct) naps() bool { return d.in.naps.ready() }

func (d *direct) nap(timeout time.Duration) error {
	d.toSleep()
	err := d.in.nap(timeout)
	d.awake()
	return err
}

// toSleep prepares a wait.
func (d *direct) toSleep() {
	// An error queue with evidence ends every wait. A caller that did not read it between two
	// waits does not want it.
	e := d.evidence.Load()
	for left := e & d.stale; left != 0; left &= left - 1 {
		d.discard(bits.TrailingZeros64(left))
	}
	d.stale = e
	d.in.got = 0
}

// awake notes what a wait saw.
func (d *direct) awake() {
	if d.in.got&unix.EPOLLERR != 0 && len(d.socks) == 1 {
		d.evidence.Store(1)
	}
}

func (d *direct) waitWritable(path int, deadline time.Time) error {
	w, err := d.writable()
	if err != nil {
		return err
	}
	w.item = d.socks[path].fd
	return w.wait(deadline)
}

// writable returns the waiter for room in the send buffers.
func (d *direct) writable() (*waiter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil, net.ErrClosed
	}
	if d.out == nil {
		w := new(waiter)
		w.watch(unix.EPOLLOUT, d.socks[0].fd)
		d.out = w
	}
	return d.out, nil
}

func (d *direct) wake() {
	d.in.wake()
	d.mu.Lock()
	w := d.out
	d.mu.Unlock()
	if w != nil {
		w.wake()
	}
}

func (d *direct) rouse() { d.in.rouse() }

func (d *direct) stop() {
	d.in.shut()
	d.in.rouse()
	d.mu.Lock()
	d.stopped = true
	w := d.out
	d.mu.Unlock()
	if w != nil {
		w.shut()
	}
}
