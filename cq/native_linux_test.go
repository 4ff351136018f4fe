package cq

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

// An epoll waits for descriptors as an application does.
type epoll struct {
	t  *testing.T
	fd int
}

func newEpoll(t *testing.T, fds ...int) epoll {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	for _, f := range fds {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, f, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(f)}); err != nil {
			t.Fatal(err)
		}
	}
	return epoll{t, fd}
}

// wait returns a descriptor that is ready, -1 if none is within ms.
func (e epoll) wait(ms int) int {
	e.t.Helper()
	var ev [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(e.fd, ev[:], ms)
		switch {
		case err == unix.EINTR:
		case err != nil:
			e.t.Fatal(err)
		case n == 0:
			return -1
		default:
			return int(ev[0].Fd)
		}
	}
}

func TestDescriptorInEpoll(t *testing.T) {
	// R-CQ-22, -39: the descriptor of a queue waits beside those of others.
	q := open(t, Attr{WaitObj: fi.WaitFD})
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	ep := newEpoll(t, fd, int(r.Fd()))

	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	go put(q, numbered(0, 2)...)
	if got := ep.wait(-1); got != fd {
		t.Fatalf("descriptor %d is ready, want %d", got, fd)
	}
	wantErr(t, q.TryWait(), fi.EAGAIN)
	// Level: ready until all is read.
	wantRead(t, q, 1, 0)
	if ep.wait(0) != fd {
		t.Error("not ready although an entry is left")
	}
	wantRead(t, q, 1, 1)
	wantNothing(t, q, fi.EAGAIN)
	if ep.wait(0) != fd {
		t.Error("another thread that sleeps would not be woken")
	}
	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	if got := ep.wait(0); got != -1 {
		t.Errorf("descriptor %d is ready", got)
	}
	// The other descriptor of the set.
	w.Write([]byte("x"))
	if got := ep.wait(-1); got != int(r.Fd()) {
		t.Error(got)
	}
	r.Read(make([]byte, 1))
	// R-CQ-31: an error signals as well; so does Signal.
	putErr(q, Error{Err: fi.EIO})
	if ep.wait(0) != fd {
		t.Error("not ready although an error is there")
	}
	wantReadErr(t, q, fi.EIO)
	wantNothing(t, q, fi.EAGAIN)
	q.TryWait()
	q.Signal()
	if ep.wait(0) != fd {
		t.Error("not ready although it was signalled")
	}
	wantErr(t, q.TryWait(), fi.EAGAIN)
	q.Close()
}

func TestDescriptorNeverMissesProgress(t *testing.T) {
	// The pattern of fi_poll(3): try, wait, read until there is nothing.
	q := open(t, Attr{WaitObj: fi.WaitFD})
	ep := &automatic{q: q}
	q.Bind(ep)
	fd, _ := q.FD()
	set := newEpoll(t, fd)
	e := make([]Entry, 1)
	for read := 0; read < 2000; {
		if q.TryWait() == nil && set.wait(10_000) != fd {
			t.Fatalf("nothing after %d entries", read)
		}
		for {
			n, err := q.Read(e)
			if err != nil {
				wantErr(t, err, fi.EAGAIN)
				break
			}
			read += n
		}
	}
	q.Unbind(ep)
	q.Close()
	if n := ep.armed.Load(); n != 0 {
		t.Errorf("armed %d times after the last read", n)
	}
}

func TestDescriptorOfTwoThreads(t *testing.T) {
	// R-CQ-22: two threads wait by epoll on one queue, each with a set of its own;
	// the endpoint completes something only when one of them sleeps. Everything is
	// read once, and neither sleeps for ever while the other reads the queue
	// empty.
	const all = 4000
	q := open(t, Attr{WaitObj: fi.WaitFD})
	ep := &automatic{q: q}
	q.Bind(ep)
	fd, err := q.FD()
	if err != nil {
		t.Fatal(err)
	}
	var read [2]int
	var total atomic.Int64
	var wg sync.WaitGroup
	for i := range read {
		set := newEpoll(t, fd)
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			e := make([]Entry, 1)
			for total.Load() < all {
				if q.TryWait() == nil && set.wait(10_000) != fd {
					t.Errorf("thread %d: nothing after %d entries", i, total.Load())
					return
				}
				for {
					n, err := q.Read(e)
					if err != nil {
						break
					}
					read[i] += n
					total.Add(int64(n))
				}
			}
			q.Signal() // the other
		})
	}
	wg.Wait()
	if read[0]+read[1] < all {
		t.Errorf("%v entries of %d", read, all)
	}
	q.Unbind(ep)
	ep.wait()
	q.Close()
	if n := ep.armed.Load(); n != 0 {
		t.Errorf("armed %d times after the last read", n)
	}
}

func TestDescriptorBesideBlockingReads(t *testing.T) {
	// R-CQ-22: a queue with a descriptor can be read blocking as well.
	q := open(t, Attr{WaitObj: fi.WaitFD, Spin: -1})
	r := sread(q, 0)
	put(q, Entry{Context: 1})
	if got := <-r; got.n != 1 {
		t.Error(got)
	}
}
