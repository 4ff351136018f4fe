package uet

import (
	"bytes"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// smalls has a write and read n bytes of b's memory, and returns how many requests with small headers that took.
func smalls(t *testing.T, a *node, to fi.Addr, n int, key uint64, mem []byte) uint64 {
	t.Helper()
	src, dst := make([]byte, n), make([]byte, n)
	for i := range src {
		src[i] = byte(i*7 + n + int(to))
	}
	was := a.Stats().Small
	for _, post := range []func() error{
		func() error { return a.Write(src, to, 100, key, "w") },
		func() error { return a.Read(dst, to, 100, key, "r") },
	} {
		ok(t, post())
		if _, err := ends(t, a.tx); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(src, dst) || !bytes.Equal(src, mem[100:100+n]) {
		t.Errorf("%d bytes: others came", n)
	}
	return a.Stats().Small - was
}

func TestOptimizedKey(t *testing.T) {
	// R-RMA-13, R-ADDR-11: one packet to a region with such a key goes with the small header, if the address of the
	// peer says that it takes it.
	t.Parallel()
	r := newRig(t, rma(0, 0))
	a, b, toText, _ := r.pair()
	const key = OptimizedKey | 0xfff
	_, mem := r.memory(100_000, fi.RemoteRead|fi.RemoteWrite, key)
	_, plain := r.memory(1000, fi.RemoteRead|fi.RemoteWrite, 0xfff)
	name, err := b.Name()
	ok(t, err)
	if name.Caps != wire.CapAIBase|wire.CapAIFull|wire.CapHPC|wire.CapOptimized || name.Flags&wire.AddrCapsValid == 0 {
		t.Errorf("the address has capabilities %#x", name.Caps)
	}
	unable := name
	unable.Caps &^= wire.CapOptimized
	to := make([]fi.Addr, 2)
	if n, err := a.vec.Insert([]wire.Addr{name, unable}, to, 0, nil); n != 2 {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to   fi.Addr
		n    int
		want uint64
	}{{to[0], 0, 2}, {to[0], 16, 2}, {to[0], 1000, 2}, {to[0], 50_000, 0}, {to[1], 100, 0}, {toText, 100, 0}} {
		if got := smalls(t, a, c.to, c.n, key, mem); got != c.want {
			t.Errorf("%d bytes to %d: %d small headers, want %d", c.n, c.to, got, c.want)
		}
	}
	if got := smalls(t, a, to[0], 100, 0xfff, plain); got != 0 {
		t.Errorf("another key: %d small headers", got)
	}
	for _, c := range []struct {
		key, addr uint64
		want      error
	}{{OptimizedKey | 5, 0, fi.EKEYREJECTED}, {key, 99_999, fi.EFAULT}} { // as with the standard header
		ok(t, a.Write(make([]byte, 10), to[0], c.addr, c.key, "w"))
		if _, err := ends(t, a.tx); err != c.want {
			t.Errorf("key %#x: %v, want %v", c.key, err, c.want)
		}
	}
}

func TestOptimizedKeyConnected(t *testing.T) {
	// R-RMA-13: whoever connects takes small headers.
	t.Parallel()
	r := newMsgRig(t, func(h *Info) { h.Caps = fi.Msg | fi.RMA })
	a, _ := r.listener().pair()
	_, mem := r.memory(2000, fi.RemoteRead|fi.RemoteWrite, OptimizedKey|7)
	if got := smalls(t, a, 0, 1000, OptimizedKey|7, mem); got != 2 {
		t.Errorf("%d small headers, want 2", got)
	}
}
