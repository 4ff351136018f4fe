package udp

import (
	"math/bits"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A waiter sleeps until a file descriptor has an event.
//
// The descriptor is not in the netpoller itself. It is in an epoll set of its
// own, which is, and in that set it is armed only while somebody waits. So
// arriving packets do not disturb the threads of a program that polls: with the
// socket in the netpoller and any other goroutine waiting for the network, each
// packet costs a context switch and an echo takes two to three times as long.
// And any number of sockets (an epoll set of them) takes one call to arm.
type waiter struct {
	sleeper
	events uint32
	file   *os.File // the epoll set
	fd     int
	item   int // what is waited for; owned by the goroutine that waits
	armed  bool
	got    uint32 // events found
}

// open makes the set with all items in it, the first of which is waited for.
func (w *waiter) open(events uint32, items ...int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	for _, item := range items {
		ev := unix.EpollEvent{Events: unix.EPOLLONESHOT}
		if err == nil {
			err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, item, &ev)
		}
	}
	if err == nil {
		// What os.NewFile needs to see to give it to the netpoller.
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("epoll_ctl", err)
	}
	f := os.NewFile(uintptr(fd), "udp wait")
	if err := w.init(f, false, w.find, w.disarm); err != nil {
		_ = f.Close()
		return err
	}
	w.events, w.item, w.fd, w.file = events, items[0], fd, f
	return nil
}

// find arms the item if it is not, and reports whether there is an event.
func (w *waiter) find() bool {
	if !w.armed {
		w.arm(w.events)
		w.armed = true
	}
	var ev [1]unix.EpollEvent
	n, err := unix.EpollWait(w.fd, ev[:], 0)
	if err != nil || n == 0 {
		return false
	}
	w.armed = false // one shot
	w.got = ev[0].Events
	return true
}

func (w *waiter) disarm() {
	if w.armed {
		w.arm(0)
		w.armed = false
	}
}

func (w *waiter) arm(events uint32) {
	ev := unix.EpollEvent{Events: events | unix.EPOLLONESHOT}
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_MOD, w.item, &ev); err != nil {
		// The item was added in open and is open as long as we are.
		panic("BUG: udp: epoll_ctl: " + err.Error())
	}
}

func (w *waiter) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

func (d *direct) wait(deadline time.Time) error {
	// A queue with evidence ends every wait. Who does not take it out between
	// one wait and the next does not want it.
	e := d.evidence.Load()
	for left := e & d.stale; left != 0; left &= left - 1 {
		d.discard(bits.TrailingZeros64(left))
	}
	d.stale = e
	d.in.got = 0
	err := d.in.wait(deadline)
	if d.in.got&unix.EPOLLERR != 0 && len(d.socks) == 1 {
		d.evidence.Store(1)
	}
	return err
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
		fds := make([]int, len(d.socks))
		for p := range d.socks { // by index: the rest of a sock belongs to the sender
			fds[p] = d.socks[p].fd
		}
		if err := w.open(unix.EPOLLOUT, fds...); err != nil {
			return nil, err
		}
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

func (d *direct) stop() {
	d.in.shut()
	d.mu.Lock()
	d.stopped = true
	w := d.out
	d.mu.Unlock()
	if w != nil {
		w.shut()
	}
}
