package udp

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watched returns the number of descriptors in the set of w.
func watched(t *testing.T, w *waiter) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.fd))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "tfd:")
}

func TestWatchedOnlyWhileAsleep(t *testing.T) {
	// A socket is in no epoll set while its owner polls, because each of its packets would pay
	// for that.
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	w := &directOf(a).in
	_ = a.Wait(past)
	for i := range 3 {
		if n := watched(t, w); n != 0 {
			t.Fatalf("sleep %d: %d descriptors in the set of one who is awake", i, n)
		}
		over := make(chan error, 1)
		go func() { over <- a.Wait(deadline()) }()
		for end := deadline(); watched(t, w) != 1; runtime.Gosched() {
			if len(over) > 0 || time.Now().After(end) {
				t.Fatal("nobody sleeps on the socket")
			}
		}
		if i == 1 {
			a.Wake()
		} else {
			send(t, b, train(a, i, 10, 0))
		}
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		if i != 1 {
			receive(t, a, 1)
		}
	}
	if n := watched(t, w); n != 0 {
		t.Fatalf("%d descriptors in the set at last", n)
	}
}

// descriptors counts those of the process.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestOneDescriptor(t *testing.T) {
	// Each of thousands of sockets that nobody waits for takes one descriptor, and so does one
	// with a Wake.
	before := descriptors(t)
	for range 10 {
		open(t, loopback4, Config{}).Wake()
	}
	if got := descriptors(t) - before; got != 10 {
		t.Errorf("10 sockets take %d descriptors", got)
	}
}

func TestForgo(t *testing.T) {
	// Who waits no more gives back what it waited by, unless somebody does; the next wait makes it again, and Wake ends
	// that one, too.
	c := open(t, loopback4, Config{})
	begin := descriptors(t)
	for range 3 {
		_ = c.Wait(time.Now().Add(time.Millisecond))
		if got := descriptors(t) - begin; got != 1 {
			t.Errorf("a wait takes %d descriptors", got)
		}
		c.Forgo()
		c.Forgo()
		if got := descriptors(t) - begin; got != 0 {
			t.Errorf("%d descriptors are kept", got)
		}
		c.Wake()
		soon(t, "Wait", func() { _ = c.Wait(time.Time{}) })
		begun := make(chan struct{})
		over := make(chan struct{})
		go func() {
			close(begun)
			_ = c.Wait(time.Time{})
			close(over)
		}()
		<-begun
		for range 100 {
			c.Forgo() // before the wait, or during it
		}
		c.Wake()
		soon(t, "Wait", func() { <-over })
		c.Forgo()
	}
}

func TestNoDescriptorToWait(t *testing.T) {
	// A wait without a descriptor for it ends soon, so that the caller looks at the socket again.
	// When there is one again it waits.
	c := open(t, loopback4, Config{})
	free, err := unix.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(free)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
	}
	limit(uint64(free))
	soon(t, "Wait", func() { err = c.Wait(time.Time{}) })
	limit(old.Cur)
	if err != nil {
		t.Errorf("Wait without a descriptor: %v", err)
	}
	end := time.Now().Add(5 * time.Millisecond)
	if err := c.Wait(end); err != nil || time.Now().Before(end) {
		t.Errorf("Wait with one: %v, early %v", err, time.Now().Before(end))
	}
}

func TestNoRoomToWatch(t *testing.T) {
	// When epoll_ctl(2) fails with ENOSPC or ENOMEM, which come and go, the wait ends and the
	// socket lives.
	var w waiter
	if !w.noRoom(unix.ENOSPC) || !w.noRoom(unix.ENOMEM) {
		t.Error("one who cannot sleep sleeps")
	}
	defer func() {
		if recover() == nil {
			t.Error("a set without its item is our bug")
		}
	}()
	w.noRoom(unix.EBADF)
}
