package udp

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// readers is the source with a goroutine for each path. It works on every system, and costs
// each datagram a copy and a change of thread.
type readers struct {
	note chan struct{} // something was added, or wake or stop was called
	wg   sync.WaitGroup

	mu      sync.Mutex
	room    sync.Cond
	ring    [readerSlots]arrival // guarded by mu, except the one that next returned
	head, n int
	woken   bool
	stopped bool
	err     error // why a reader ended too early
}

// readerSlots bounds the datagrams that are received and not yet read. When the ring is full
// the readers stop and the sockets fill up. Arbitrary: a few batches.
const readerSlots = 4 * dgram.MaxSegments

func newReaders(p *portable) *readers {
	r := &readers{note: make(chan struct{}, 1)}
	r.room.L = &r.mu
	n := len(p.socks)
	if p.cfg.SendOnly {
		n = 1
	}
	for i := range n {
		r.wg.Add(1)
		go r.read(i, p.socks[i].conn)
	}
	return r
}

// read receives from one socket until it is closed.
func (r *readers) read(path int, c *net.UDPConn) {
	defer r.wg.Done()
	buf := make([]byte, dgram.SlabLen)
	oob := make([]byte, 128)
	for {
		n, on, _, from, err := c.ReadMsgUDPAddrPort(buf, oob)
		if err != nil && soft(errnoOf(err)) {
			continue
		}
		r.mu.Lock()
		if err != nil {
			if !r.stopped && r.err == nil {
				r.err = err
			}
			r.mu.Unlock()
			r.signal()
			return
		}
		for r.n == len(r.ring) && !r.stopped {
			r.room.Wait()
		}
		if r.stopped {
			r.mu.Unlock()
			return
		}
		a := &r.ring[(r.head+r.n)%len(r.ring)]
		a.path = path
		a.arrived(append(a.data[:0], buf[:n]...), from, oob[:on], false)
		r.n++
		r.mu.Unlock()
		r.signal()
	}
}

// soft reports whether e may be an error that an earlier packet left behind, which says nothing
// about the socket.
func soft(e syscall.Errno) bool {
	switch e {
	case syscall.EINTR, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH,
		syscall.ENETUNREACH, syscall.EMSGSIZE:
		return true
	}
	return false
}

func (r *readers) signal() {
	select {
	case r.note <- struct{}{}:
	default:
	}
}

func (r *readers) next(bool) (*arrival, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return nil, r.err
	}
	return &r.ring[r.head], nil
}

func (r *readers) take() {
	r.mu.Lock()
	r.head = (r.head + 1) % len(r.ring)
	r.n--
	full := r.n == len(r.ring)-1
	r.mu.Unlock()
	if full {
		r.room.Broadcast()
	}
}

func (r *readers) wait(deadline time.Time) error {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	for {
		r.mu.Lock()
		stopped, over := r.stopped, r.woken || r.n > 0 || r.err != nil
		if over {
			r.woken = false
		}
		r.mu.Unlock()
		switch {
		case stopped:
			return net.ErrClosed
		case over:
			return nil
		}
		select {
		case <-r.note:
		case <-late:
			return nil
		}
	}
}

func (r *readers) wake() {
	r.mu.Lock()
	r.woken = true
	r.mu.Unlock()
	r.signal()
}

func (r *readers) stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.room.Broadcast()
	r.signal()
}

// close waits for the readers; their sockets are closed.
func (r *readers) close() { r.wg.Wait() }
