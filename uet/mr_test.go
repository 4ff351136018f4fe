package uet

import (
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

func TestMRRawKey(t *testing.T) {
	// R-MR-14: a raw key is mapped to the key, without fi.MRRaw. Short buffers are told the length.
	r := newRig(t, rma(0, fi.MRVirtAddr))
	m, _ := r.memory(100, fi.RemoteRead, 0x1234)
	base, n, err := m.RawAttr(make([]byte, 3), 0)
	if want(t, err, fi.ETOOSMALL); n != 8 || base != 0 {
		t.Errorf("length %d, base %#x", n, base)
	}
	raw := make([]byte, 20)
	base, n, err = m.RawAttr(raw, 0)
	if ok(t, err); base != m.Base() || n != 8 {
		t.Errorf("length %d, base %#x", n, base)
	}
	key, err := r.domain.MapRaw(base, raw[:n], 0)
	if ok(t, err); key != m.Key() {
		t.Errorf("key %#x, want %#x", key, m.Key())
	}
	ok(t, r.domain.UnmapKey(key))
	_, err = r.domain.MapRaw(base, raw[:7], 0)
	want(t, err, fi.EINVAL)
	_, err = r.domain.MapRaw(base, raw[:8], fi.More)
	want(t, err, fi.EBADFLAGS)
	_, _, err = m.RawAttr(raw, fi.More)
	want(t, err, fi.EBADFLAGS)
	off, err := r.domain.RegMR(make([]byte, 8), fi.RemoteRead, 0, 5, fi.RMAEvent, nil)
	ok(t, err)
	_, _, err = off.RawAttr(raw, 0)
	want(t, err, fi.EOPBADSTATE)
	ok(t, off.Close())
}

func TestMRPart(t *testing.T) {
	// R-MR-17: a part has a key and rights of its own, lies in its region, and is closed first.
	r := newRig(t, rma(0, 0))
	a, _, toB, _ := r.pair()
	mem := make([]byte, 1000)
	whole, err := r.domain.RegMRv([][]byte{mem[:500], mem[500:]}, fi.RemoteRead, 0, 1, 0, nil)
	ok(t, err)
	for name, iov := range map[string][][]byte{
		"other memory": {make([]byte, 10)}, "over two parts": {mem[490:510]}, "one of two elsewhere": {mem[:10], make([]byte, 1)},
	} {
		if _, err := r.domain.RegMRAttr(&MRAttr{Iov: iov, Access: fi.RemoteWrite, RequestedKey: 2, Of: whole}, 0); fi.Of(err) != fi.EINVAL {
			t.Errorf("%s: %v", name, err)
		}
	}
	part, err := r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{mem[600:700]}, Access: fi.RemoteWrite, RequestedKey: 2, Of: whole}, 0)
	ok(t, err)
	ok(t, a.Write(make([]byte, 100), toB, 0, 2, nil))
	_, err = ends(t, a.tx)
	ok(t, err)
	ok(t, a.Write(make([]byte, 1), toB, 0, 1, nil))
	_, err = ends(t, a.tx)
	want(t, err, fi.EACCES)
	want(t, whole.Close(), fi.EBUSY)
	ok(t, part.Close())
	ok(t, whole.Close())
	if _, err := r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{mem[:1]}, Access: fi.RemoteWrite, RequestedKey: 3, Of: whole}, 0); fi.Of(err) != fi.EINVAL {
		t.Errorf("of a closed region: %v", err)
	}
}

func TestMRSingleUse(t *testing.T) {
	// R-MR-18: the key is good for one operation, through the one endpoint that the region is bound to.
	plain := newRig(t, rma(0, 0))
	_, err := plain.domain.RegMR(make([]byte, 8), fi.RemoteWrite, 0, 1, fi.MRSingleUse, nil)
	want(t, err, fi.EBADFLAGS)
	r := newRig(t, rma(0, fi.MREndpoint))
	a, b, toB, _ := r.pair()
	for _, n := range []int{8, 50_000} {
		m, err := r.domain.RegMR(make([]byte, 50_000), fi.RemoteWrite|fi.RemoteRead, 0, 1, fi.MRSingleUse, nil)
		ok(t, err)
		ok(t, m.Bind(b.Endpoint, 0))
		ok(t, m.Enable())
		ok(t, a.Write(make([]byte, n), toB, 0, 1, nil))
		_, err = ends(t, a.tx)
		ok(t, err)
		ok(t, a.Read(make([]byte, n), toB, 0, 1, nil))
		_, err = ends(t, a.tx)
		want(t, err, fi.EKEYREJECTED)
		ok(t, m.Close())
	}
	m, err := r.domain.RegMR(make([]byte, 8), fi.RemoteWrite, 0, 1, fi.MRSingleUse, nil)
	ok(t, err)
	ok(t, m.Bind(a.Endpoint, 0))
	ok(t, m.Bind(b.Endpoint, 0))
	want(t, m.Enable(), fi.EOPBADSTATE)
	ok(t, m.Close())
}

func TestMRCountsReads(t *testing.T) {
	// R-CQ-115, R-MR-10, R-CNTR-07: each read of a peer counts once at its target, when the peer has all
	// bytes, and makes no entry (R-RMA-03). What returns old values is a read and a write.
	r := newRig(t, rma(fi.RMAEvent|fi.Atomic, 0))
	all, per := r.counter(cntr.Attr{}), r.counter(cntr.Attr{})
	a := r.node()
	b := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(all, fi.RemoteRead)) } })
	toB := a.know(b)
	m, err := r.domain.RegMR(make([]byte, 100_000), fi.RemoteRead|fi.RemoteWrite, 0, 1, fi.RMAEvent, nil)
	ok(t, err)
	t.Cleanup(func() { ok(t, m.Close()) })
	want(t, m.BindCntr(per, 0), fi.EBADFLAGS)
	want(t, m.BindCntr(per, fi.Send), fi.EBADFLAGS)
	ok(t, m.BindCntr(per, fi.RemoteRead|fi.RemoteWrite))
	ok(t, m.Enable())
	r.memory(10, fi.RemoteRead, 2)
	ok(t, a.Read(nil, toB, 0, 1, nil))
	ok(t, a.Read(make([]byte, 8), toB, 0, 1, nil))
	ok(t, a.Read(make([]byte, 90_000), toB, 0, 1, nil))
	ok(t, a.Read(make([]byte, 8), toB, 0, 2, nil))
	ok(t, a.Write(make([]byte, 8), toB, 0, 1, nil))
	ok(t, a.FetchAtomic(make([]byte, 8), make([]byte, 8), toB, 0, 1, fi.Uint64, fi.Sum, nil))
	for range 6 {
		_, err := ends(t, a.tx)
		ok(t, err)
	}
	ok(t, a.Read(make([]byte, 8), toB, 8, 2, nil)) // out of bounds
	if _, err := ends(t, a.tx); err != fi.EFAULT {
		t.Errorf("out of bounds: %v", err)
	}
	ok(t, all.Wait(5, 10*time.Second))
	ok(t, per.Wait(6, 10*time.Second))
	if got := fmt.Sprint(all.Read(), per.Read()); got != "5 6" {
		t.Errorf("counted %s", got)
	}
	if _, err := b.rx.Read(make([]cq.Entry, 1)); err != fi.EAGAIN {
		t.Errorf("an entry: %v", err)
	}
}
