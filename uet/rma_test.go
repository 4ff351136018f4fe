package uet

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// rma are hints for one-sided operations.
func rma(caps fi.Caps, mode fi.MRMode) *Info {
	return &Info{Caps: fi.Msg | fi.RMA | caps, AddrFormat: fi.FormatSockaddr, Domain: DomainAttr{MRMode: mode}}
}

// memory registers n bytes.
func (r *rig) memory(n int, access fi.Flags, key uint64) (*MR, []byte) {
	r.t.Helper()
	b := bytes.Repeat([]byte{0xee}, n)
	m, err := r.domain.RegMR(b, access, 0, key, 0, "mr")
	ok(r.t, err)
	r.t.Cleanup(func() { _ = m.Close() })
	return m, b
}

// ends reads one completion; an error is that of its entry.
func ends(t *testing.T, q *cq.CQ) (cq.Entry, error) {
	t.Helper()
	var e [1]cq.Entry
	_, err := q.SRead(e[:], 1, 10*time.Second)
	if err == fi.EAVAIL {
		var fault cq.Error
		if _, err = q.ReadErr(&fault, 0); err == nil {
			return cq.Entry{Context: fault.Context, Flags: fault.Flags}, fault.Err
		}
	}
	ok(t, err)
	return e[0], nil
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	// R-RMA-01, -02, -10, -14, R-MR-02, R-CMPL-09, R-CQ-108, -113, -114: bytes go to an offset of the region
	// with this key, and come from there, of any length, in parts or not.
	r := newRig(t, rma(0, 0))
	a, b, toB, _ := r.pair()
	_ = b
	m, mem := r.memory(300_000, fi.RemoteRead|fi.RemoteWrite, 42)
	if m.Key() != 42 || m.Base() != 0 || m.Desc() != nil || m.Context() != "mr" {
		t.Errorf("key %#x, base %#x", m.Key(), m.Base())
	}
	for _, n := range []int{0, 1, 16, 17, 1000, 250_000} {
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i*7 + n)
		}
		half := n / 2
		for i, post := range []func() error{
			func() error { return a.Write(src, toB, 100, 42, "w") },
			func() error { return a.Writev([][]byte{src[:half], src[half:]}, toB, 200, 42, "w") },
			func() error {
				return a.WriteMsg(&RMAMsg{Iov: [][]byte{src}, Addr: toB, RMAIov: []RMAIov{{300, uint64(n), 42}}, Context: "w"}, fi.DeliveryComplete)
			},
			func() error { return a.Read(dst, toB, 300, 42, "r") },
			func() error { clear(dst); return a.Readv([][]byte{dst[:half], dst[half:]}, toB, 300, 42, "r") },
			func() error {
				clear(dst)
				return a.ReadMsg(&RMAMsg{Iov: [][]byte{dst}, Addr: toB, RMAIov: []RMAIov{{300, uint64(n), 42}}, Context: "r"}, 0)
			},
		} {
			ok(t, post())
			e, err := ends(t, a.tx)
			ok(t, err)
			wantFlags, wantCtx := fi.RMA|fi.Write, "w"
			if i >= 3 {
				wantFlags, wantCtx = fi.RMA|fi.Read, "r"
			}
			if e.Context != wantCtx || e.Flags != wantFlags {
				t.Errorf("%d bytes, call %d: %+v", n, i, e)
			}
			if i >= 3 && !bytes.Equal(dst, src) {
				t.Errorf("%d bytes, call %d: other bytes were read", n, i)
			}
		}
	}
	ok(t, m.Close()) // after that the memory is ours alone
	if bytes.IndexByte(mem[:100], 0xee) != 0 || bytes.Count(mem[:100], []byte{0xee}) != 100 {
		t.Error("bytes before the first address were written")
	}
	want(t, m.Close(), fi.EBADF)
}

func TestReadNeedsItsBuffer(t *testing.T) {
	t.Parallel()
	// R-RMA-10, R-CMPL-09: FI_INJECT and FI_INJECT_COMPLETE as defaults do not make a read end
	// before its bytes are there.
	hints := rma(0, 0)
	hints.Tx.OpFlags = fi.Inject | fi.InjectComplete
	r := newRig(t, hints)
	a, _, toB, _ := r.pair()
	_, mem := r.memory(100_000, fi.RemoteRead, 1)
	dst := make([]byte, len(mem))
	ok(t, a.Read(dst, toB, 0, 1, nil))
	_, err := ends(t, a.tx)
	ok(t, err)
	if !bytes.Equal(dst, mem) {
		t.Error("the bytes are not there")
	}
}

func TestWriteData(t *testing.T) {
	t.Parallel()
	// R-RMA-03, -04, R-TGT-01, R-EP-06, R-CQ-97, -99, -116: a write with data makes a completion at the
	// target, of its length and without a context. It takes no receive. One without makes none.
	r := newRig(t, rma(0, 0))
	a, b, toB, _ := r.pair()
	_, mem := r.memory(5000, fi.RemoteWrite, 1)
	ok(t, b.Recv(make([]byte, 10), fi.AddrUnspec, "receive"))
	for i, n := range []int{0, 8, 4000} {
		src := bytes.Repeat([]byte{byte(i + 1)}, n)
		ok(t, a.InjectWrite([]byte{9}, toB, 4999, 1))
		ok(t, a.WriteData(src, uint64(100+i), toB, 10, 1, "w"))
		e, err := ends(t, b.rx)
		ok(t, err)
		if e.Context != nil || e.Flags != fi.RMA|fi.RemoteWrite|fi.RemoteCQData || e.Data != uint64(100+i) || e.Len != n {
			t.Errorf("%d bytes: %+v", n, e)
		}
		if !bytes.Equal(mem[10:10+n], src) { // the completion orders this after the write
			t.Errorf("%d bytes: they are not there", n)
		}
		_, err = ends(t, a.tx)
		ok(t, err)
	}
	if n := 8; n <= r.info.Tx.InjectSize { // R-RMA-07
		ok(t, a.InjectWriteData(make([]byte, n), 7, toB, 0, 1))
		if e, err := ends(t, b.rx); err != nil || e.Data != 7 {
			t.Errorf("%+v %v", e, err)
		}
	}
	want(t, a.InjectWrite(make([]byte, a.Info().Tx.InjectSize+1), toB, 0, 1), fi.EMSGSIZE)
	ok(t, b.Cancel("receive"))
}

func TestRefusedAccess(t *testing.T) {
	t.Parallel()
	// R-RMA-09, R-MR-01, -12, R-ERR-20, -25, -26: each reason has its error at the initiator; the target
	// hears of nothing.
	r := newRig(t, rma(0, 0))
	a, b, toB, _ := r.pair()
	r.memory(100, fi.RemoteRead, 1)
	w, mem := r.memory(100, fi.RemoteWrite, 2)
	buf := make([]byte, 10)
	for _, c := range []struct {
		name string
		post error
		want fi.Errno
	}{
		{"unknown key", a.Write(buf, toB, 0, 3, 1), fi.EKEYREJECTED},
		{"no right to write", a.Write(buf, toB, 0, 1, 2), fi.EACCES},
		{"no right to read", a.Read(buf, toB, 0, 2, 3), fi.EACCES},
		{"beyond the end", a.WriteData(buf, 5, toB, 91, 2, 4), fi.EFAULT},
		{"beyond the last address", a.Write(buf, toB, ^uint64(0)-3, 2, 5), fi.EFAULT},
		{"read beyond the end", a.Read(buf, toB, 91, 1, 6), fi.EFAULT},
	} {
		ok(t, c.post)
	}
	got := map[any]error{}
	for range 6 {
		e, err := ends(t, a.tx)
		got[e.Context] = err
	}
	for ctx, w := range map[any]fi.Errno{1: fi.EKEYREJECTED, 2: fi.EACCES, 3: fi.EACCES, 4: fi.EFAULT, 5: fi.EFAULT, 6: fi.EFAULT} {
		want(t, got[ctx], w)
	}
	ok(t, w.Close())
	ok(t, a.Write(buf, toB, 0, 2, 7))
	_, err := ends(t, a.tx)
	want(t, err, fi.EKEYREJECTED)
	if bytes.Count(mem, []byte{0xee}) != 100 {
		t.Error("the region was written")
	}
	var e [1]cq.Entry
	if n, err := b.rx.Read(e[:]); n > 0 || err != fi.EAGAIN {
		t.Errorf("the target heard of it: %+v %v", e, err)
	}
	// R-RMA-06, R-RMA-02: what the calls themselves refuse.
	for _, m := range []*RMAMsg{nil, {Iov: [][]byte{buf}, Addr: toB}, {Iov: [][]byte{buf}, Addr: toB, RMAIov: []RMAIov{{0, 9, 1}}},
		{Iov: [][]byte{buf}, Addr: toB, RMAIov: []RMAIov{{0, 5, 1}, {5, 5, 1}}}} {
		want(t, a.WriteMsg(m, 0), fi.EINVAL)
	}
	ok1 := &RMAMsg{Iov: [][]byte{buf}, Addr: toB, RMAIov: []RMAIov{{0, 10, 1}}}
	want(t, a.ReadMsg(ok1, fi.Inject), fi.EBADFLAGS)
	want(t, a.WriteMsg(ok1, fi.CommitComplete), fi.EOPNOTSUPP) // R-RMA-08, R-CMPL-13
	messages := newRig(t, nil)
	c, _, toD, _ := messages.pair()
	want(t, c.Write(buf, toD, 0, 1, nil), fi.EOPNOTSUPP)
	want(t, c.Read(buf, toD, 0, 1, nil), fi.EOPNOTSUPP)
}

func TestRegMRRefuses(t *testing.T) {
	t.Parallel()
	// R-MR-05, -06, -11, -16, -19.
	r := newRig(t, rma(0, 0))
	r.memory(10, fi.RemoteRead, 1)
	buf := make([]byte, 10)
	for _, c := range []struct {
		name  string
		attr  *MRAttr
		flags fi.Flags
		want  fi.Errno
	}{
		{"nothing", nil, 0, fi.EINVAL},
		{"no memory", &MRAttr{Access: fi.RemoteRead}, 0, fi.EINVAL},
		{"offset", &MRAttr{Iov: [][]byte{buf}, Offset: 1}, 0, fi.EINVAL},
		{"rights", &MRAttr{Iov: [][]byte{buf}, Access: fi.Fence}, 0, fi.EINVAL},
		{"authorization key", &MRAttr{Iov: [][]byte{buf}, AuthKey: []byte{1, 2}}, 0, fi.EINVAL},
		{"parts", &MRAttr{Iov: make([][]byte, IovLimit+1)}, 0, fi.EINVAL},
		{"flags", &MRAttr{Iov: [][]byte{buf}}, fi.Fence, fi.EBADFLAGS},
		{"key in use", &MRAttr{Iov: [][]byte{buf}, RequestedKey: 1}, 0, fi.ENOKEY},
		{"reserved bits", &MRAttr{Iov: [][]byte{buf}, RequestedKey: 1 << 60}, 0, fi.EKEYREJECTED},
		{"vendor bits", &MRAttr{Iov: [][]byte{buf}, RequestedKey: 1 << 48}, 0, fi.EKEYREJECTED},
		{"long RKEY", &MRAttr{Iov: [][]byte{buf}, RequestedKey: wire.MKeyOptimized | 4096}, 0, fi.EKEYREJECTED},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.domain.RegMRAttr(c.attr, c.flags)
			want(t, err, c.want)
		})
	}
	m, err := r.domain.RegMRv([][]byte{buf[:5], buf[5:]}, fi.RemoteRead, 0, 2, 0, nil)
	ok(t, err)
	ok(t, m.Refresh([][]byte{buf[1:3]}, 0))
	want(t, m.Refresh([][]byte{make([]byte, 1)}, 0), fi.EINVAL)
	want(t, m.Refresh(nil, fi.Fence), fi.EBADFLAGS)
	want(t, r.domain.Close(), fi.EBUSY)
	ok(t, m.Close())
	want(t, m.Refresh(nil, 0), fi.EBADF)
}

func TestMRModes(t *testing.T) {
	t.Parallel()
	// R-MR-03, -04, -07, -13, R-INFO-08: virtual addresses, keys of the provider, and regions that
	// are bound to endpoints.
	r := newRig(t, rma(0, fi.MRVirtAddr|fi.MRProvKey|fi.MREndpoint))
	a, b, toB, toA := r.pair()
	m, mem := r.memory(100, fi.RemoteWrite, 7)
	if m.Key() != KeyNotAvail {
		t.Errorf("key %#x before Enable", m.Key())
	}
	want(t, m.Enable(), fi.EOPBADSTATE)
	want(t, m.Bind(nil, 0), fi.EINVAL)
	want(t, m.Bind(b.Endpoint, fi.Fence), fi.EBADFLAGS)
	ok(t, m.Bind(b.Endpoint, 0))
	ok(t, m.Enable())
	want(t, m.Enable(), fi.EOPBADSTATE)
	want(t, m.Bind(a.Endpoint, 0), fi.EOPBADSTATE)
	if k := m.Key(); k&wire.MKeyProvider == 0 || k == 7 || m.Base() == 0 {
		t.Errorf("key %#x, base %#x", k, m.Base())
	}
	ok(t, a.WriteData([]byte("hello"), 1, toB, m.Base()+10, m.Key(), nil))
	_, err := ends(t, b.rx)
	ok(t, err)
	if string(mem[10:15]) != "hello" {
		t.Errorf("%q", mem[10:15])
	}
	_, err = ends(t, a.tx)
	ok(t, err)
	ok(t, b.Write([]byte("hello"), toA, m.Base(), m.Key(), nil)) // a has no such region
	_, err = ends(t, b.tx)
	want(t, err, fi.EKEYREJECTED)
}

func TestMRCounters(t *testing.T) {
	t.Parallel()
	// R-MR-08, -09, -10, R-CNTR-07, R-RMA-11: counters of a region and of an endpoint count each write of a
	// peer once, whether or not it has data.
	r := newRig(t, rma(fi.RMAEvent, 0))
	per, all := r.counter(cntr.Attr{}), r.counter(cntr.Attr{})
	a := r.node()
	b := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(all, fi.RemoteWrite)) } })
	toB := a.know(b)
	m, err := r.domain.RegMR(make([]byte, 10_000), fi.RemoteWrite, 0, 1, fi.RMAEvent, nil)
	ok(t, err)
	want(t, m.BindCntr(per, fi.Read), fi.EBADFLAGS)
	want(t, b.BindCntr(per, fi.RemoteRead), fi.EOPBADSTATE)
	ok(t, m.BindCntr(per, fi.RemoteWrite))
	want(t, m.BindCntr(per, fi.RemoteWrite), fi.EINVAL)
	ok(t, m.Enable())
	want(t, m.BindCntr(per, fi.RemoteWrite), fi.EOPBADSTATE)
	r.memory(10, fi.RemoteWrite, 2)
	ok(t, a.Write(make([]byte, 8), toB, 0, 1, nil))
	ok(t, a.Write(make([]byte, 9000), toB, 0, 1, nil))
	ok(t, a.WriteData(make([]byte, 8), 3, toB, 0, 1, nil))
	ok(t, a.Write(make([]byte, 8), toB, 0, 2, nil))
	for range 4 {
		_, err := ends(t, a.tx)
		ok(t, err)
	}
	ok(t, all.Wait(4, 10*time.Second))
	ok(t, per.Wait(3, 10*time.Second))
	if got := fmt.Sprint(per.Read(), all.Read()); got != "3 4" {
		t.Errorf("counted %s", got)
	}
	idle, err := r.domain.RegMR(make([]byte, 10), fi.RemoteWrite, 0, wire.MKeyIdempotent|3, fi.RMAEvent, nil)
	ok(t, err)
	want(t, idle.BindCntr(all, fi.RemoteWrite), fi.EINVAL)
	ok(t, idle.Close())
	ok(t, m.Close())
}
