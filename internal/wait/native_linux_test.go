package wait

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

// readable asks the system whether a descriptor is.
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
	// R-CQ-22: ready while something is there, whoever took the rest.
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
	wantReady(true) // what was there before it was asked for
	p.put(2)
	p.take(1)
	p.Look()
	wantReady(true) // something is left
	p.take(2)
	p.Look()        // a read that found nothing
	wantReady(true) // another may sleep on it who has not run yet
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
	// A signal is taken by TryWait, not by reads.
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
	// R-CQ-38: close(2) alone ends no poll of the descriptor, nor of a duplicate of
	// it that another event loop has.
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
