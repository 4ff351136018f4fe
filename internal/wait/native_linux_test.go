package wait

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

// readable reports whether a descriptor is readable.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func TestDescriptorIsLevel(t *testing.T) {
	// R-CQ-22: the descriptor is ready while something is there, whoever read the rest.
	p := newPile(t, Attr{Kind: fi.WaitFD})
	p.put(1)
	fd, err := p.FD()
	if err != nil {
		t.Fatal(err)
	}
	wantReady := func(want bool) {
		t.Helper()
		if readable(t, fd) != want {
			t.Fatalf("readable %v, want %v", !want, want)
		}
	}
	wantReady(true) // something was there before the descriptor was asked for
	p.put(2)
	p.take(1)
	p.Look()
	wantReady(true) // something is left
	p.take(2)
	p.Look()        // a read that found nothing
	wantReady(true) // another goroutine may sleep on it that has not run yet
	if err := p.TryWait(); err != nil {
		t.Fatal(err)
	}
	wantReady(false)
	p.put(1)
	wantReady(true)
	p.take(1)
	if err := p.TryWait(); err != nil {
		t.Fatal(err)
	}
	wantReady(false)
	// TryWait consumes a signal, reads do not.
	p.Signal()
	p.Look()
	wantReady(true)
	if err := p.TryWait(); !errors.Is(err, fi.EAGAIN) {
		t.Error(err)
	}
	if err := p.TryWait(); err != nil {
		t.Error(err)
	}
	wantReady(false)
	p.end()
	if _, err := p.FD(); !errors.Is(err, fi.EBADF) {
		t.Error(err)
	}
}

func TestDescriptorCostsNothingUnlessAskedFor(t *testing.T) {
	p := newPile(t, Attr{Kind: fi.WaitFD})
	p.put(1)
	if readable(t, p.native.fd.number()) {
		t.Error("written to although nobody waits on it")
	}
	p.end()
}

func TestCloseWakesWhoPollsTheDescriptor(t *testing.T) {
	// R-CQ-38: Close wakes polls of the descriptor and of its duplicates in other event loops,
	// which close(2) alone does not.
	p := newPile(t, Attr{Kind: fi.WaitFD})
	fd, err := p.FD()
	if err != nil {
		t.Fatal(err)
	}
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	if err := p.TryWait(); err != nil || readable(t, dup) {
		t.Fatal("not asleep:", err)
	}
	p.end()
	if !readable(t, dup) {
		t.Error("who sleeps learns nothing of the end")
	}
}
