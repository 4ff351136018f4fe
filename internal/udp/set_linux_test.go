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

// newSet makes a Set of n new Conns.
func newSet(t testing.TB, n int) (*Set, []*Conn) {
	t.Helper()
	s, err := NewSet()
	if err != nil {
		t.Fatal(err)
	}
	var conns []*Conn
	for i := range n {
		c := open(t, loopback4, Config{})
		if !s.Add(c, i) {
			t.Fatalf("cannot add conn %d", i)
		}
		conns = append(conns, c)
	}
	t.Cleanup(func() {
		for i, c := range conns {
			s.Remove(c, i)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, conns
}

// asked returns the events that w asks for, of the one descriptor in its set; 0 if there is none.
func asked(t *testing.T, w *waiter) (events int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", w.fd))
	if err != nil {
		t.Fatal(err)
	}
	_, line, found := strings.Cut(string(b), "tfd:")
	if !found {
		return 0
	}
	var fd int
	if _, err := fmt.Sscanf(line, "%d events: %x", &fd, &events); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return events
}

func TestSetStaysWatched(t *testing.T) {
	// epoll_ctl(2) goes through all sockets of an epoll set that joins another one. So that of a
	// Set joins once, and asks for nothing while nobody sleeps.
	s, conns := newSet(t, 3)
	from := open(t, loopback4, Config{})
	w := &s.in
	_ = s.Wait(past)
	if got := asked(t, w); got != 0 {
		t.Errorf("asks for %#x before the first sleep", got)
	}
	for i := range 6 {
		over := make(chan error, 1)
		go func() { over <- s.Wait(deadline()) }()
		for end := deadline(); asked(t, w)&unix.EPOLLIN == 0; runtime.Gosched() {
			if len(over) > 0 || time.Now().After(end) {
				t.Fatal("nobody sleeps on the set")
			}
		}
		if i%2 == 0 {
			s.Wake()
		} else {
			send(t, from, train(conns[i%3], i, 10, 0))
		}
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		if got := asked(t, w); got != unix.EPOLLERR|unix.EPOLLHUP {
			t.Errorf("sleep %d: asks for %#x after it", i, got)
		}
		if i%2 != 0 {
			ids := s.Ready(nil)
			if len(ids) != 1 || ids[0] != i%3 {
				t.Errorf("sleep %d: ready are %v, want %d", i, ids, i%3)
			}
			receive(t, conns[i%3], 1)
		}
	}
}

func TestSetWaitSeesWhatIsThere(t *testing.T) {
	// What came before the sleep ends it, and a member that joined after the set did is watched.
	s, conns := newSet(t, 2)
	_ = s.Wait(time.Now().Add(-time.Second))
	late := open(t, loopback4, Config{})
	if !s.Add(late, 2) {
		t.Fatal("cannot add")
	}
	defer s.Remove(late, 2)
	for i, c := range []*Conn{conns[1], late, conns[0]} {
		send(t, conns[0], train(c, i, 10, 0))
		for range 2 {
			if end := deadline(); s.Wait(end) != nil || time.Now().After(end) {
				t.Fatal("the datagram is not seen")
			}
		}
		receive(t, c, 1)
	}
}

// BenchmarkSetWait measures a wait of a Set that ends at once, because a member has something. It
// takes the same for any number of members.
func BenchmarkSetWait(b *testing.B) {
	for _, n := range []int{1, 100, 2000} {
		b.Run(fmt.Sprint("members=", n), func(b *testing.B) {
			s, conns := newSet(b, n)
			send(b, open(b, loopback4, Config{}), train(conns[0], 0, 10, 0))
			for b.Loop() {
				if err := s.Wait(time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
