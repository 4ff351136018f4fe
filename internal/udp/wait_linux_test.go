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
