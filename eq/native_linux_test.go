package eq

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

func TestDescriptorInEpoll(t *testing.T) {
	// R-EQ-12, -19: the descriptor works in epoll, poll and select, beside those of
	// others. R-EQ-49: it shows a signal as well.
	q := open(t, Attr{WaitObj: fi.WaitFD, Flags: fi.Write})
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
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(set)
	for _, f := range []int{fd, int(r.Fd())} {
		if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, f, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(f)}); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(ms int) int {
		var ev [2]unix.EpollEvent
		for {
			n, err := unix.EpollWait(set, ev[:], ms)
			switch {
			case err == unix.EINTR:
			case err != nil || n > 1:
				t.Fatal(n, err)
			case n == 0:
				return -1
			default:
				return int(ev[0].Fd)
			}
		}
	}
	for _, insert := range []func(){
		func() { q.Put(Entry{}) },
		func() { q.Write(Entry{}) },
		func() { q.PutErr(Error{Err: fi.EIO}) },
	} {
		if err := q.TryWait(); err != nil {
			t.Fatal(err)
		}
		if got := ready(0); got != -1 {
			t.Fatalf("descriptor %d is ready", got)
		}
		go insert()
		if got := ready(10_000); got != fd {
			t.Fatalf("descriptor %d is ready, want %d", got, fd)
		}
		wantErr(t, q.TryWait(), fi.EAGAIN)
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(p, 0); n != 1 {
			t.Error("poll:", n, err)
		}
		var rd unix.FdSet
		rd.Set(fd)
		if n, err := unix.Select(fd+1, &rd, nil, nil, new(unix.Timeval)); n != 1 {
			t.Error("select:", n, err)
		}
		if _, err := q.Read(0); err != nil {
			q.ReadErr(0)
		}
	}
	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("x"))
	if got := ready(10_000); got != int(r.Fd()) {
		t.Error(got)
	}
	r.Read(make([]byte, 1))
	q.Signal()
	if got := ready(0); got != fd {
		t.Error(got)
	}
	q.Close()
}
