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
// The descriptor is not in the netpoller but in an epoll set of its own, which is in the
// netpoller, and it is in that set only during a wait. So arriving packets do not disturb the
// threads of a program that polls. With the socket in the netpoller and any other goroutine
// waiting for the network, each packet costs a context switch, and an echo takes two to three
// times as long. And each packet of a socket that is in any set, even one that asks nothing of
// it, calls that set twice, when it arrives and when it is freed: 0.3 µs of half a round trip,
// which is more than it costs to join the set for each sleep. Any number of sockets (an epoll
// set of them) takes one call to arm.
type waiter struct {
	sleeper
	events uint32
	file   *os.File // the epoll set
	fd     int
	item   int // the descriptor to wait for; it belongs to the goroutine that waits
	armed  bool
	got    uint32 // the events that came
}

// open makes an empty set, to wait for events of item.
func (w *waiter) open(events uint32, item int) error {
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
	w.events, w.item, w.fd, w.file = events, item, fd, f
	return nil
}

// find arms the item if it is not armed, and reports whether there is an event.
func (w *waiter) find() bool {
	if !w.armed {
		ev := unix.EpollEvent{Events: w.events}
		if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, w.item, &ev); err != nil {
			return w.noRoom(err)
		}
		w.armed = true
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

// disarm removes the item from the set.
func (w *waiter) disarm() {
	if !w.armed {
		return
	}
	w.armed = false
	if err := unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, w.item, nil); err != nil {
		panic("BUG: udp: epoll_ctl: " + err.Error())
	}
}

func (w *waiter) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

func (d *direct) wait(deadline time.Time) error {
	// An error queue with evidence ends every wait. A caller that did not read it between two
	// waits does not want it.
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
		if err := w.open(unix.EPOLLOUT, d.socks[0].fd); err != nil {
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
