package uet

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/fi"
)

var native = binary.NativeEndian

// words returns n bytes that are aligned, as words too.
func words(n int) ([]byte, []uint64) {
	w := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), n), w
}

// share registers n aligned bytes that peers may do everything with.
func (r *rig) share(n int, key uint64) ([]byte, []uint64) {
	r.t.Helper()
	b, w := words(n)
	m, err := r.domain.RegMR(b, fi.RemoteRead|fi.RemoteWrite, 0, key, 0, "mr")
	ok(r.t, err)
	r.t.Cleanup(func() { _ = m.Close() })
	return b, w
}

func u64(v ...uint64) (b []byte) {
	for _, x := range v {
		b = native.AppendUint64(b, x)
	}
	return b
}

func TestAtomics(t *testing.T) {
	t.Parallel()
	// R-AMO-01, -02, -04, -08, -10, -13, R-CQ-109: each call does what its name says, by libfabric's
	// numbers, and completes with the flags of its kind.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Atomic, AddrFormat: fi.FormatSockaddr})
	a, _, toB, _ := r.pair()
	_, w := r.share(4096, 42)
	const at = 16
	res := make([]byte, 8)
	for _, c := range []struct {
		op         fi.AtomicOp
		was, i     uint64
		cmp        uint64
		now        uint64
		base, comp bool
	}{
		{fi.Sum, 40, 2, 0, 42, true, false}, {fi.Diff, 40, 2, 0, 38, true, false}, {fi.Prod, 40, 2, 0, 80, true, false},
		{fi.Min, 40, 2, 0, 2, true, false}, {fi.Max, 40, 2, 0, 40, true, false}, {fi.BOr, 12, 10, 0, 14, true, false},
		{fi.BAnd, 12, 10, 0, 8, true, false}, {fi.BXOr, 12, 10, 0, 6, true, false}, {fi.LOr, 0, 7, 0, 1, true, false},
		{fi.LAnd, 3, 7, 0, 1, true, false}, {fi.LXOr, 3, 7, 0, 0, true, false}, {fi.AtomicWrite, 1, 9, 0, 9, true, false},
		{fi.AtomicRead, 77, 0, 0, 77, false, false}, {fi.CSwap, 5, 6, 5, 6, false, true}, {fi.CSwap, 5, 6, 4, 5, false, true},
		{fi.CSwapNE, 5, 6, 4, 6, false, true}, {fi.CSwapLE, 5, 6, 5, 6, false, true}, {fi.CSwapLT, 5, 6, 5, 5, false, true},
		{fi.CSwapGE, 5, 6, 5, 6, false, true}, {fi.CSwapGT, 5, 6, 6, 6, false, true}, {fi.MSwap, 0b1100, 0b1010, 0b0110, 0b1010, false, true},
	} {
		for _, fetch := range []bool{false, true} {
			if fetch && c.comp || !fetch && !c.base && !c.comp {
				continue
			}
			atomic.StoreUint64(&w[at/8], c.was)
			clear(res)
			flags := fi.Read | fi.Atomic
			switch {
			case c.comp:
				ok(t, a.CompareAtomic(u64(c.i), u64(c.cmp), res, toB, at, 42, fi.Uint64, c.op, c.op))
			case fetch && c.op == fi.AtomicRead:
				ok(t, a.FetchAtomic(nil, res, toB, at, 42, fi.Uint64, c.op, c.op))
			case fetch:
				ok(t, a.FetchAtomic(u64(c.i), res, toB, at, 42, fi.Uint64, c.op, c.op))
			default:
				flags = fi.Write | fi.Atomic
				ok(t, a.Atomic(u64(c.i), toB, at, 42, fi.Uint64, c.op, c.op))
			}
			e, err := ends(t, a.tx)
			ok(t, err)
			if e.Context != c.op || e.Flags != flags {
				t.Errorf("%v: %+v", c.op, e)
			}
			if got := atomic.LoadUint64(&w[at/8]); got != c.now {
				t.Errorf("%v of %d with %d: %d, want %d", c.op, c.was, c.i, got, c.now)
			}
			if flags&fi.Read != 0 && native.Uint64(res) != c.was {
				t.Errorf("%v fetched %d, was %d", c.op, native.Uint64(res), c.was)
			}
		}
	}
	// Arrays, injected: no completion, and the buffer is the caller's at once.
	buf := u64(1, 2, 3)
	ok(t, a.InjectAtomic(buf, toB, 800, 42, fi.Uint64, fi.Sum))
	clear(buf)
	res = make([]byte, 24)
	ok(t, a.FetchAtomicMsg(&AtomicMsg{Buf: u64(10, 10, 10), Result: res, Addr: toB, RMAAddr: 800, Key: 42, Type: fi.Uint64, Op: fi.Sum, Context: "after"}, fi.Inject))
	if e, err := ends(t, a.tx); err != nil || e.Context != "after" {
		t.Fatal(e, err)
	}
	for start := time.Now(); atomic.LoadUint64(&w[102]) != 13; {
		if time.Since(start) > patience {
			t.Fatalf("%v", w[100:103])
		}
	}
	if atomic.LoadUint64(&w[100]) != 11 || atomic.LoadUint64(&w[101]) != 12 {
		t.Error(w[100:103])
	}
	drain(t, a)
}

func TestAtomicTypes(t *testing.T) {
	t.Parallel()
	// R-AMO-03, R-AMO-05, R-AMO-06: WRITE and READ of each type bring its bytes there and back, in the order of this
	// machine. LONG_DOUBLE and LONG_DOUBLE_COMPLEX are refused, since each platform has another format. The queries say how many, and one more is refused.
	r := newRig(t, &Info{Caps: fi.Atomic, AddrFormat: fi.FormatSockaddr})
	a, _, toB, _ := r.pair()
	r.share(4096, 42)
	for typ := fi.Int8; typ <= fi.BFloat16; typ++ {
		n, err := a.AtomicValid(typ, fi.AtomicWrite)
		if typ == fi.LongDouble || typ == fi.LongDoubleComplex {
			want(t, err, fi.EOPNOTSUPP)
			continue
		}
		ok(t, err)
		if n != MaxAtomicSize/typ.Size() {
			t.Errorf("%v: %d elements", typ, n)
		}
		src := make([]byte, n*typ.Size())
		for i := range src {
			src[i] = byte(3*i + int(typ))
		}
		ok(t, a.Atomic(src, toB, 1024, 42, typ, fi.AtomicWrite, nil))
		_, err = ends(t, a.tx)
		ok(t, err)
		dst := make([]byte, len(src))
		ok(t, a.FetchAtomic(nil, dst, toB, 1024, 42, typ, fi.AtomicRead, nil))
		_, err = ends(t, a.tx)
		ok(t, err)
		if !bytes.Equal(dst, src) {
			t.Errorf("%v: other bytes came back", typ)
		}
		more := make([]byte, len(src)+typ.Size())
		want(t, a.Atomic(more, toB, 0, 42, typ, fi.AtomicWrite, nil), fi.EMSGSIZE)
	}
	for _, c := range []struct {
		flags fi.Flags
		t     fi.Datatype
		op    fi.AtomicOp
		count int
		err   fi.Errno
	}{
		{0, fi.Double, fi.Sum, 64, 0}, {0, fi.Double, fi.BOr, 0, fi.EOPNOTSUPP}, {0, fi.Int32, fi.AtomicRead, 0, fi.EOPNOTSUPP},
		{0, fi.Int32, fi.CSwap, 0, fi.EOPNOTSUPP}, {fi.FetchAtomic, fi.Int32, fi.AtomicRead, 128, 0}, {fi.FetchAtomic, fi.FloatComplex, fi.Min, 0, fi.EOPNOTSUPP},
		{fi.CompareAtomic, fi.Int128, fi.CSwap, 1, 0}, {fi.CompareAtomic, fi.Float, fi.MSwap, 0, fi.EOPNOTSUPP}, {fi.CompareAtomic, fi.Int8, fi.Sum, 0, fi.EOPNOTSUPP},
		{fi.CompareAtomic | fi.FetchAtomic, fi.Int8, fi.Sum, 0, fi.EINVAL}, {fi.Inject, fi.Int8, fi.Sum, 0, fi.EBADFLAGS},
		{0, 200, fi.Sum, 0, fi.EOPNOTSUPP}, {0, fi.Int8, 200, 0, fi.EOPNOTSUPP},
	} {
		attr, err := r.domain.QueryAtomic(c.t, c.op, c.flags)
		if c.err == 0 {
			ok(t, err)
		} else {
			want(t, err, c.err)
		}
		if c.err == 0 && (attr.Count != c.count || attr.Size != c.t.Size()) {
			t.Errorf("%v %v: %+v", c.op, c.t, attr)
		}
	}
	if n, err := a.FetchAtomicValid(fi.Int8, fi.AtomicRead); n != 512 || err != nil {
		t.Error(n, err)
	}
	if n, err := a.CompareAtomicValid(fi.Int8, fi.CSwapGT); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestAtomicRefusals(t *testing.T) {
	t.Parallel()
	// R-AMO-06, R-AMO-11, R-ERR-14, -17, -20, -25, -26: what is wrong is refused by the call, or ends in the error of the peer's
	// answer and changes nothing.
	r := newRig(t, &Info{Caps: fi.Atomic | fi.RMA, AddrFormat: fi.FormatSockaddr})
	a, _, toB, _ := r.pair()
	mem, _ := r.share(64, 42)
	readOnly, err := r.domain.RegMR(mem, fi.RemoteRead, 0, 43, 0, nil)
	ok(t, err)
	defer readOnly.Close()
	one, res := u64(1), make([]byte, 8)
	for _, c := range []struct {
		got error
		err fi.Errno
	}{
		{a.Atomic(nil, toB, 0, 42, fi.Uint64, fi.Sum, nil), fi.EINVAL},
		{a.Atomic(one[:7], toB, 0, 42, fi.Uint64, fi.Sum, nil), fi.EINVAL},
		{a.Atomic(one, toB, 0, 42, fi.LongDouble, fi.Sum, nil), fi.EOPNOTSUPP},
		{a.Atomic(one, toB, 0, 42, fi.Uint64, fi.CSwap, nil), fi.EOPNOTSUPP},
		{a.FetchAtomic(one, res[:4], toB, 0, 42, fi.Uint64, fi.Sum, nil), fi.EINVAL},
		{a.CompareAtomic(one, res[:4], res, toB, 0, 42, fi.Uint64, fi.CSwap, nil), fi.EINVAL},
		{a.CompareAtomic(u64(1, 2), u64(1, 2), u64(0, 0), toB, 0, 42, fi.Uint64, fi.CSwap, nil), fi.EMSGSIZE},
		{a.Atomic(one, fi.AddrUnspec, 0, 42, fi.Uint64, fi.Sum, nil), fi.EINVAL},
		{a.AtomicMsg(nil, 0), fi.EINVAL},
		{a.AtomicMsg(&AtomicMsg{Buf: one, Addr: toB, Type: fi.Uint64, Op: fi.Sum}, fi.Tagged), fi.EOPNOTSUPP}, // the endpoint has no tagged messages
		{a.AtomicMsg(&AtomicMsg{Buf: one, Addr: toB, Type: fi.Uint64, Op: fi.Sum}, fi.MatchComplete), fi.EOPNOTSUPP},
		{a.AtomicMsg(&AtomicMsg{Buf: one, Addr: toB, Type: fi.Uint64, Op: fi.Sum}, fi.Peek), fi.EBADFLAGS},
	} {
		want(t, c.got, c.err)
	}
	for _, c := range []struct {
		addr, key uint64
		err       fi.Errno
	}{{64, 42, fi.EFAULT}, {60, 42, fi.EFAULT}, {4, 42, fi.EINVAL}, {0, 44, fi.EKEYREJECTED}, {0, 43, fi.EACCES}} {
		ok(t, a.FetchAtomic(one, res, toB, c.addr, c.key, fi.Uint64, fi.Sum, nil))
		_, err := ends(t, a.tx)
		want(t, err, c.err)
	}
	if !bytes.Equal(mem, make([]byte, 64)) {
		t.Error("memory has changed")
	}
	drain(t, a)
	// An endpoint without the capability neither posts nor is a target.
	r = newRig(t, &Info{Caps: fi.RMA, AddrFormat: fi.FormatSockaddr})
	a, _, toB, _ = r.pair()
	want(t, a.Atomic(one, toB, 0, 42, fi.Uint64, fi.Sum, nil), fi.EOPNOTSUPP)
}

func TestAtomicsBesideTheProcess(t *testing.T) {
	t.Parallel()
	// R-AMO-07, R-AMO-14: two peers and the process itself add to one word, and nothing is lost. Each value
	// that is fetched is fetched once.
	r := newRig(t, &Info{Caps: fi.Atomic | fi.RMAEvent, AddrFormat: fi.FormatSockaddr})
	a, c := r.node(), r.node()
	b := r.node()
	_, w := r.share(64, 42)
	const each = 2000
	stop, own := make(chan struct{}), uint64(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				atomic.AddUint64(&w[0], 1)
				own++
			}
		}
	}()
	seen := map[uint64]bool{}
	results := [2][8]byte{}
	to := [2]fi.Addr{a.know(b), c.know(b)}
	for range each {
		for i, n := range []*node{a, c} {
			ok(t, n.FetchAtomic(u64(1), results[i][:], to[i], 0, 42, fi.Uint64, fi.Sum, nil))
		}
		for i, n := range []*node{a, c} {
			_, err := ends(t, n.tx)
			ok(t, err)
			if v := native.Uint64(results[i][:]); seen[v] {
				t.Fatalf("%d was fetched twice", v)
			} else {
				seen[v] = true
			}
		}
	}
	close(stop)
	<-done
	if got := atomic.LoadUint64(&w[0]); got != own+2*each {
		t.Errorf("%d, and %d + %d were added", got, own, 2*each)
	}
}

func TestAtomicsAreCounted(t *testing.T) {
	t.Parallel()
	// R-AMO-09, R-CNTR-03: counters of writes count atomics, those of reads the fetching ones, at the target
	// both; remote CQ data makes an entry there.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Atomic | fi.RMAEvent, AddrFormat: fi.FormatSockaddr})
	counters := [3]*cntr.Counter{}
	for i := range counters {
		c, err := r.domain.OpenCntr(cntr.Attr{WaitObj: fi.WaitUnspec}, nil)
		ok(t, err)
		counters[i] = c
		t.Cleanup(func() { _ = c.Close() })
	}
	a := r.node(func(o *options) {
		o.bind = func(ep *Endpoint) {
			ok(t, ep.BindCntr(counters[0], fi.Write))
			ok(t, ep.BindCntr(counters[1], fi.Read))
		}
	})
	b := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(counters[2], fi.RemoteWrite)) } })
	toB := a.know(b)
	_, w := r.share(64, 42)
	for range 3 {
		ok(t, a.Atomic(u64(1), toB, 0, 42, fi.Uint64, fi.Sum, nil))
		_, err := ends(t, a.tx)
		ok(t, err)
	}
	res := make([]byte, 8)
	ok(t, a.FetchAtomicMsg(&AtomicMsg{Buf: u64(1), Result: res, Addr: toB, Key: 42, Type: fi.Uint64, Op: fi.Sum, Data: 9}, fi.RemoteCQData))
	_, err := ends(t, a.tx)
	ok(t, err)
	e, err := ends(t, b.rx)
	ok(t, err)
	if e.Flags != fi.RemoteWrite|fi.Atomic|fi.RemoteCQData || e.Data != 9 {
		t.Errorf("%+v", e)
	}
	for i, n := range []uint64{3, 1, 4} {
		ok(t, counters[i].Wait(n, 10*time.Second))
		if counters[i].Read() != n {
			t.Errorf("counter %d: %d, want %d", i, counters[i].Read(), n)
		}
	}
	if atomic.LoadUint64(&w[0]) != 4 {
		t.Error(w[0])
	}
}
