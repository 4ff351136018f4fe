package uet

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

func TestWaitFD(t *testing.T) {
	t.Parallel()
	// R-CQ-22: between TryWait and the descriptor becoming readable, the endpoint makes
	// progress without the application.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		r := newRig(t, &Info{Domain: DomainAttr{DataProgress: p}})
		a, b, toB, _ := r.pair(func(o *options) { o.attr.WaitObj = fi.WaitFD })
		fd, err := b.rx.FD()
		ok(t, err)
		for i := range 3 {
			ok(t, b.Recv(nil, fi.AddrUnspec, nil))
			ok(t, b.rx.TryWait())
			ok(t, a.Send(nil, toB, nil))
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(patience/time.Millisecond))
			for err == unix.EINTR {
				n, err = unix.Poll(fds, int(patience/time.Millisecond))
			}
			if n != 1 || err != nil {
				t.Fatalf("%v, message %d: poll gives %d, %v", p, i, n, err)
			}
			want(t, b.rx.TryWait(), fi.EAGAIN)
			wait(t, b.rx, a)
			wait(t, a.tx, b)
		}
	}
}

func TestWaitFDFromBeforeEnable(t *testing.T) {
	t.Parallel()
	// A reader that waits before Enable has armed a disabled endpoint. Enable wakes it, and
	// from its next TryWait on the driver makes progress.
	for _, asked := range []bool{true, false} { // whether the descriptor was asked for by then
		r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
		a := r.node()
		b := r.node(func(o *options) {
			o.attr.WaitObj = fi.WaitFD
			o.bind = func(ep *Endpoint) {
				if asked {
					_, err := ep.rxq.cq.FD()
					ok(t, err)
				}
				ok(t, ep.rxq.cq.TryWait())
			}
		})
		fd, err := b.rx.FD()
		ok(t, err)
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, a.know(b), nil))
		for err == nil {
			n, e := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience/time.Millisecond))
			if n != 1 && e != unix.EINTR {
				t.Fatalf("asked %v: poll gives %d, %v", asked, n, e)
			}
			err = b.rx.TryWait()
		}
		want(t, err, fi.EAGAIN)
		wait(t, b.rx, a)
	}
}
