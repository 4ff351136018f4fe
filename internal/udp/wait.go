package udp

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// A sleeper parks one goroutine at a time in the runtime's netpoller.
type sleeper struct {
	poll func() bool // reports whether the awaited event has happened
	rest func()      // called after each sleep, if not nil

	sleep func(func(uintptr) bool) error
	look  func(uintptr) bool // set once: a method value allocates
	hit   bool

	woken, stop atomic.Bool
	deadline    atomic.Pointer[func(time.Time) error] // nil before init, which a waiter calls when somebody waits
}

// A file is something that the netpoller can wait for: *os.File, *net.UDPConn.
type file interface {
	syscall.Conn
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	Close() error
}

// init makes the sleeper wait for f to become readable or writable. It fails if the netpoller
// has not accepted f.
func (s *sleeper) init(f file, write bool, poll func() bool, rest func()) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	deadline := f.SetReadDeadline
	s.sleep = raw.Read
	if write {
		s.sleep, deadline = raw.Write, f.SetWriteDeadline
	}
	s.poll, s.rest, s.look = poll, rest, s.over
	if err := deadline(time.Time{}); err != nil {
		return err
	}
	s.deadline.Store(&deadline)
	return nil
}

// wait sleeps until poll returns true, the deadline, or wake.
func (s *sleeper) wait(deadline time.Time) error {
	s.hit = false
	for {
		if s.stop.Load() {
			return net.ErrClosed
		}
		if s.woken.Swap(false) {
			return nil
		}
		if err := (*s.deadline.Load())(deadline); err != nil {
			return net.ErrClosed
		}
		// sleep calls look, parks if it returns false, and calls it again when the file has an
		// event: nothing is missed in between.
		err := s.sleep(s.look)
		if s.rest != nil {
			s.rest()
		}
		if s.hit {
			return nil
		}
		// The error may come from a wake for an earlier wait: only the clock tells.
		if err != nil && !s.woken.Load() && !s.stop.Load() && !deadline.IsZero() && !time.Now().Before(deadline) {
			return nil
		}
	}
}

func (s *sleeper) over(uintptr) bool {
	if s.woken.Load() || s.stop.Load() {
		return true
	}
	s.hit = s.poll()
	return s.hit
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// wake ends the current wait or the next one.
func (s *sleeper) wake() {
	// The flag is set first: a waiter that sets its own deadline after this one looks at the
	// flag before it parks.
	s.woken.Store(true)
	s.interrupt()
}

// interrupt ends a sleep. If there was none yet, the first one looks at the flags after it is
// ready.
func (s *sleeper) interrupt() {
	if d := s.deadline.Load(); d != nil {
		_ = (*d)(past)
	}
}

// shut ends all waits.
func (s *sleeper) shut() {
	s.stop.Store(true)
	s.interrupt()
}
