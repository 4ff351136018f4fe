package cntr

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/fi"
)

func TestDescriptor(t *testing.T) {
	// R-CNTR-06: a counter with a descriptor is waited for by it, or by Wait. From a
	// TryWait that says nil, any change of either value makes it readable; the
	// endpoint bound makes progress meanwhile.
	c := open(t, Attr{WaitObj: fi.WaitFD})
	fd, err := c.FD()
	if err != nil {
		t.Fatal(err)
	}
	readable := func(ms int) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, ms)
		for err == unix.EINTR {
			n, err = unix.Poll(p, ms)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	for i, change := range []func(){
		func() { c.Count(1, 1) }, func() { c.AddErr(1) }, func() { c.Set(5) }, func() { c.SetErr(0) },
	} {
		if err := c.TryWait(); err != nil || readable(0) {
			t.Fatalf("change %d: ready before it: %v", i, err)
		}
		go change()
		if !readable(10_000) {
			t.Fatalf("change %d: not ready", i)
		}
		wantErr(t, c.TryWait(), fi.EAGAIN)
	}
	ep := &endpoint{c: c}
	ep.arm = func() { c.Count(1, 1) }
	c.Bind(ep)
	for range 50 {
		if err := c.TryWait(); err == nil && !readable(10_000) {
			t.Fatal("no progress while it is waited for")
		}
		c.Read()
	}
	c.Set(1000)
	if err := c.Wait(1000, -1); err != nil {
		t.Error(err)
	}
	c.Unbind(ep)
	ep.wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if n := ep.armed.Load(); n != 0 {
		t.Errorf("armed %d times after the close", n)
	}
}
