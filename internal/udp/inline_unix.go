//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package udp

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// inlineRecv reports whether newInline works on this system.
const inlineRecv = true

// inline is the source that receives on the caller's goroutine, from the only path.
type inline struct {
	pc   batcher
	msgs []ipv4.Message
	at   int // next in msgs
	n    int // number of msgs that were filled
	cur  arrival
	left atomic.Int32 // n-at, for the goroutine that waits

	// file is a descriptor for waiting only: on the same one package net would not let Recv
	// pass a Wait.
	file *os.File
	in   sleeper
}

func newInline(p *portable) (*inline, error) {
	s := &p.socks[0]
	r := &inline{pc: s.pc, msgs: make([]ipv4.Message, portableBatch)}
	for i := range r.msgs {
		r.msgs[i].Buffers = [][]byte{make([]byte, dgram.SlabLen)}
		r.msgs[i].OOB = make([]byte, 128)
	}
	f, err := s.conn.File()
	if err != nil {
		return nil, err
	}
	poll := func() bool { return r.left.Load() > 0 || has(f, unix.POLLIN) }
	if err := r.in.init(f, false, poll, nil); err != nil {
		_ = f.Close()
		return nil, err
	}
	r.file = f
	return r, nil
}

func (r *inline) next(ask bool) (*arrival, error) {
	for repeat := 0; r.at == r.n; repeat++ {
		if !ask || repeat == maxRepeat {
			return nil, nil
		}
		n, err := r.pc.ReadBatch(r.msgs, unix.MSG_DONTWAIT)
		if err != nil {
			e := errnoOf(err)
			switch {
			case e == unix.EAGAIN:
				return nil, nil
			case soft(e):
				continue
			}
			return nil, err
		}
		r.at, r.n = 0, n
		r.load()
	}
	return &r.cur, nil
}

// load fills cur from message at, if there is one.
func (r *inline) load() {
	r.left.Store(int32(r.n - r.at))
	if r.at == r.n {
		return
	}
	m := &r.msgs[r.at]
	from, _ := m.Addr.(*net.UDPAddr)
	r.cur.arrived(m.Buffers[0][:m.N], from.AddrPort(), m.OOB[:m.NN], m.Flags&unix.MSG_TRUNC != 0)
}

func (r *inline) take() {
	r.at++
	r.load()
}

func (r *inline) wait(deadline time.Time) error { return r.in.wait(deadline) }
func (r *inline) wake()                         { r.in.wake() }
func (r *inline) stop()                         { r.in.shut() }
func (r *inline) close()                        { _ = r.file.Close() }

// has reports whether f has one of the events, or an error.
func has(c *os.File, events int16) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	n := 1
	_ = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err = unix.Poll(p, 0)
	})
	return n > 0 || err != nil && err != unix.EINTR
}

// writeBatch sends some of ms, without waiting.
func writeBatch(s *portSock, ms []ipv4.Message) (int, error) {
	return s.pc.WriteBatch(ms, unix.MSG_DONTWAIT)
}

// outWaiters waits for room in the send buffers.
type outWaiters struct {
	mu      sync.Mutex
	of      map[int]*outWaiter // by path; made when first needed
	stopped bool
}

type outWaiter struct {
	sleeper
	file *os.File
}

func (o *outWaiters) wait(s *portSock, path int, deadline time.Time) error {
	w, err := o.get(s, path)
	if err != nil {
		return err
	}
	return w.sleeper.wait(deadline)
}

func (o *outWaiters) get(s *portSock, path int) (*outWaiter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return nil, net.ErrClosed
	}
	if w := o.of[path]; w != nil {
		return w, nil
	}
	f, err := s.conn.File()
	if err != nil {
		return nil, err
	}
	w := &outWaiter{file: f}
	if err := w.init(f, true, func() bool { return has(f, unix.POLLOUT) }, nil); err != nil {
		_ = f.Close()
		return nil, err
	}
	if o.of == nil {
		o.of = make(map[int]*outWaiter)
	}
	o.of[path] = w
	return w, nil
}

func (o *outWaiters) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.of {
		w.sleeper.wake()
	}
}

func (o *outWaiters) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for _, w := range o.of {
		w.shut()
	}
}

func (o *outWaiters) close() {
	for _, w := range o.of {
		_ = w.file.Close()
	}
}
