package uet

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
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

func TestMRCountIsBounded(t *testing.T) {
	// R-INFO-25: peers reach each region of the domain through each endpoint of a port, up to the last one; one more is refused.
	r := newRig(t, rma(0, 0))
	r.info.Domain.MRCnt = maxRegions
	all := r.sharers(4)
	peer := r.alone()
	mem := make([]byte, 8)
	mrs := make([]*MR, maxRegions)
	for i := range mrs {
		m, err := r.domain.RegMR(mem, fi.RemoteWrite, 0, uint64(i+1), 0, nil)
		if err != nil {
			t.Fatalf("region %d: %v", i, err)
		}
		mrs[i] = m
	}
	_, err := r.domain.RegMR(mem, fi.RemoteWrite, 0, maxRegions+1, 0, nil)
	want(t, err, fi.ENOSPC)
	for i, n := range append(all, r.joiner(all[0])) { // the last one finds the regions when it is enabled
		to := peer.know(n)
		for _, m := range []*MR{mrs[0], mrs[maxRegions-1]} {
			ok(t, peer.Write([]byte{1}, to, 0, m.Key(), nil))
			if _, err := ends(t, peer.tx); err != nil {
				t.Errorf("endpoint %d, key %d: %v", i, m.Key(), err)
			}
		}
	}
	ok(t, mrs[5].Close())
	_, err = r.domain.RegMR(mem, fi.RemoteWrite, 0, 5, 0, nil)
	want(t, err, fi.ENOKEY)
	mrs[5], err = r.domain.RegMR(mem, fi.RemoteWrite, 0, maxRegions+1, 0, nil)
	ok(t, err)
	for _, m := range mrs {
		ok(t, m.Close())
	}
}

func TestMRKeysAreDrawn(t *testing.T) {
	// R-MR-04: nobody can guess a key of the provider: it says nothing of others, and each bit of its RKEY is drawn.
	r := newRig(t, rma(0, fi.MRProvKey))
	const n = 2000
	var ones [64]int
	steps := map[uint64]bool{}
	var last uint64
	for range n {
		m, err := r.domain.RegMR(make([]byte, 8), fi.RemoteRead, 0, 0, 0, nil)
		ok(t, err)
		defer func() { ok(t, m.Close()) }()
		for b := range ones {
			ones[b] += int(m.Key() >> b & 1)
		}
		steps[m.Key()-last] = true
		last = m.Key()
	}
	for b := range ones {
		if wire.MKeyRKey>>b&1 != 0 && (ones[b] < n*42/100 || ones[b] > n*58/100) { // seven times the deviation that chance gives
			t.Errorf("bit %d is 1 in %d of %d keys", b, ones[b], n)
		}
	}
	if len(steps) != n {
		t.Errorf("%d different steps from key to key, want %d", len(steps), n)
	}
}

func TestMRClosesInUse(t *testing.T) {
	// R-MR-12: when Close returns, the memory is the application's alone, whatever peers do at that moment.
	h := rma(fi.Atomic, 0)
	h.Domain.DataProgress = fi.ProgressAuto
	r := newRig(t, h)
	b := r.node()
	peers := []*node{r.node(), r.node()}
	for round := range 10 {
		m, mem := r.memory(100_000, fi.RemoteRead|fi.RemoteWrite, uint64(round+1))
		var all sync.WaitGroup
		began := make(chan bool, len(peers))
		for _, p := range peers {
			to := p.know(b)
			all.Go(func() {
				buf, one, old := make([]byte, 60_000), make([]byte, 8), make([]byte, 8)
				for i := 0; ; i++ {
					for _, err := range []error{
						p.Write(buf, to, 8, m.key, nil), p.Read(buf, to, 30_000, m.key, nil),
						p.FetchAtomicMsg(&AtomicMsg{Buf: one, Result: old, Addr: to, Key: m.key, Type: fi.Uint64, Op: fi.Sum}, 0),
					} {
						if err != nil {
							t.Error(err)
							return
						}
					}
					gone := 0
					for range 3 {
						switch _, err := ends(t, p.tx); fi.Of(err) {
						case 0:
						case fi.EKEYREJECTED:
							gone++
						default:
							t.Errorf("%v, want FI_EKEYREJECTED or nothing", err)
							gone = 3
						}
					}
					if i == 3 {
						began <- true
					}
					if gone == 3 {
						return
					}
				}
			})
		}
		for range peers {
			<-began
		}
		ok(t, m.Close())
		for i := range mem { // under the race detector an access of the provider is seen here
			mem[i] = byte(i)
		}
		all.Wait()
		for i := range mem {
			if mem[i] != byte(i) {
				t.Fatalf("round %d: byte %d was written after Close", round, i)
			}
		}
	}
}

func TestMRVector(t *testing.T) {
	// R-MR-11, R-MR-03: a region of several parts, some empty, is one run of bytes, whatever borders a write or a read crosses.
	for _, mode := range []fi.MRMode{0, fi.MRVirtAddr} {
		r := newRig(t, rma(0, mode))
		a, _, toB, _ := r.pair()
		const guard, size = 16, 7 + 4096 + 13
		ground := bytes.Repeat([]byte{0xee}, size+4*guard)
		var iov [][]byte
		for _, part := range []struct{ at, n int }{{guard, 7}, {guard + 7, 0}, {7 + 2*guard, 4096}, {7 + 4096 + 3*guard, 13}} {
			iov = append(iov, ground[part.at:part.at+part.n:part.at+part.n])
		}
		m, err := r.domain.RegMRv(iov, fi.RemoteRead|fi.RemoteWrite, 0, 1, 0, nil)
		ok(t, err)
		model := bytes.Repeat([]byte{0xee}, size)
		for i, c := range []struct{ off, n int }{{0, size}, {0, 7}, {6, 2}, {7, 4096}, {5, 4103}, {4102, 2}, {4103, 13}, {4000, size - 4000}, {size - 1, 1}} {
			src := make([]byte, c.n)
			for k := range src {
				src[k] = byte(k*5 + i)
			}
			ok(t, a.Write(src, toB, m.Base()+uint64(c.off), m.Key(), nil))
			_, err := ends(t, a.tx)
			ok(t, err)
			copy(model[c.off:], src)
			if got := bytes.Join(iov, nil); !bytes.Equal(got, model) {
				t.Fatalf("mode %v: other bytes after a write of %d at %d", mode, c.n, c.off)
			}
			got := make([]byte, c.n)
			ok(t, a.Read(got, toB, m.Base()+uint64(c.off), m.Key(), nil))
			_, err = ends(t, a.tx)
			ok(t, err)
			if !bytes.Equal(got, src) {
				t.Fatalf("mode %v: other bytes were read, %d at %d", mode, c.n, c.off)
			}
		}
		ok(t, a.Write([]byte{1, 2}, toB, m.Base()+size-1, m.Key(), nil))
		_, err = ends(t, a.tx)
		want(t, err, fi.EFAULT)
		for _, b := range iov {
			clear(b)
		}
		ok(t, m.Close())
		if n := bytes.Count(ground, []byte{0xee}); n != 4*guard {
			t.Errorf("mode %v: %d of %d bytes around the parts are as they were", mode, n, 4*guard)
		}
	}
}
