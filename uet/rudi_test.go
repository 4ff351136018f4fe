package uet

import (
	"bytes"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestRUDI(t *testing.T) {
	// R-RMA-12, R-RMA-05, R-AMO-15: plain writes and reads of a region whose key says so go by RUDI, once
	// a PDC is open; those with data, and atomic operations, do not.
	t.Parallel()
	h := rma(fi.Atomic, 0)
	h.Config.RUDI = true
	r := newRig(t, h)
	a, _, toB, _ := r.pair()
	const key = IdempotentKey | 5
	r.memory(400_000, fi.RemoteRead|fi.RemoteWrite, key)
	r.memory(1000, fi.RemoteRead|fi.RemoteWrite, 6)
	one := func(what string, requests uint64, post func() error) {
		t.Helper()
		was := a.Stats().RUDIRequests
		ok(t, post())
		if _, err := ends(t, a.tx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := a.Stats().RUDIRequests - was; n != requests {
			t.Errorf("%s: %d packets by RUDI, want %d", what, n, requests)
		}
	}
	src, back := make([]byte, 300_000), make([]byte, 300_000)
	for i := range src {
		src[i] = byte(i * 7)
	}
	packets := uint64((len(src) + r.info.Config.PayloadMTU - 1) / r.info.Config.PayloadMTU)
	one("the first write", 0, func() error { return a.Write(src[:1], toB, 0, key, 1) })
	one("a write", packets, func() error { return a.Write(src, toB, 9, key, 1) })
	one("a read", packets, func() error { return a.Read(back, toB, 9, key, 1) })
	one("a write with data", 0, func() error { return a.WriteData(src[:10], 1, toB, 399_900, key, 1) })
	one("a write elsewhere", 0, func() error { return a.Write(src[:10], toB, 0, 6, 1) })
	one("an atomic operation", 0, func() error { return a.Atomic(make([]byte, 8), toB, 0, key, fi.Uint64, fi.Sum, 1) })
	if !bytes.Equal(back, src) {
		t.Error("other bytes")
	}
	if s := a.Stats(); s.Ops(wire.RUDI) != 2 || s.Ops(wire.RUD) != 4 || s.Ops(wire.ROD)+s.Ops(wire.UUD) != 0 {
		t.Errorf("operations by RUDI %d, by RUD %d", s.Ops(wire.RUDI), s.Ops(wire.RUD))
	}
	ok(t, a.Read(back[:2], toB, 399_999, key, "out"))
	if _, err := ends(t, a.tx); err != fi.EFAULT {
		t.Errorf("out of bounds: %v", err)
	}
}

func TestRUDIIsAskedFor(t *testing.T) {
	// R-RMA-12: without Config.RUDI nothing goes by it.
	t.Parallel()
	r := newRig(t, rma(0, 0))
	a, _, toB, _ := r.pair()
	r.memory(100, fi.RemoteRead|fi.RemoteWrite, IdempotentKey|5)
	for range 3 {
		ok(t, a.Write(make([]byte, 10), toB, 0, IdempotentKey|5, 1))
		if _, err := ends(t, a.tx); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.Stats().RUDIRequests; n != 0 {
		t.Errorf("%d packets by RUDI", n)
	}
}

func TestProviderKeyIsIdempotentIfAsked(t *testing.T) {
	// R-MR-04: of a requested key that bit alone counts.
	r := newRig(t, rma(0, fi.MRProvKey))
	for _, asked := range []uint64{0, IdempotentKey, IdempotentKey | 77} {
		m, err := r.domain.RegMR(make([]byte, 8), fi.RemoteRead, 0, asked, 0, nil)
		ok(t, err)
		if m.Key()&IdempotentKey != asked&IdempotentKey || m.Key()&wire.MKeyProvider == 0 || m.Key()&wire.MKeyRKey == 77 {
			t.Errorf("asked for %#x, got %#x", asked, m.Key())
		}
		ok(t, m.Close())
	}
}
