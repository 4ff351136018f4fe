package av

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func open(t testing.TB, attr Attr) *AV {
	t.Helper()
	v, err := New(attr, "ctx")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func addr(i int) wire.Addr {
	return wire.SockAddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 4793))
}

func second[T any](_ T, err error) error { return err }

func TestInsertIndices(t *testing.T) {
	// R-AV-01: the first index is 0, the next follow, across calls.
	// R-AV-02: the lowest unused index is taken, also after a removal.
	v := open(t, Attr{})
	h := make([]fi.Addr, 3)
	if n, err := v.Insert([]wire.Addr{addr(0), addr(1), addr(2)}, h, 0, nil); n != 3 || err != nil || fmt.Sprint(h) != "[0 1 2]" {
		t.Fatal(n, err, h)
	}
	if err := v.Remove(1); err != nil {
		t.Fatal(err)
	}
	n, _ := v.Insert([]wire.Addr{addr(3), addr(4)}, h[:2], 0, nil)
	if n != 2 || h[0] != 1 || h[1] != 3 {
		t.Fatal(n, h)
	}
}

func TestInsertFailures(t *testing.T) {
	// R-AV-04: the count is that of the successes, failures get
	// FI_ADDR_NOTAVAIL. R-AV-05: sync_err tells each one's error. R-AV-06:
	// handles may be nil.
	v := open(t, Attr{})
	in := []wire.Addr{addr(1), {}, addr(2)}
	h := make([]fi.Addr, 3)
	if n, err := v.Insert(in, h, 0, nil); n != 2 || err != nil || h[1] != fi.AddrNotAvail {
		t.Error(n, err, h)
	}
	errs := []fi.Errno{9, 9, 9}
	if n, err := v.Insert(in, nil, fi.SyncErr, errs); n != 2 || err != nil || errs[0] != 0 || errs[1] != fi.EINVAL || errs[2] != 0 {
		t.Error(n, err, errs)
	}
	if _, err := v.Insert(in, nil, fi.SyncErr, nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if _, err := v.Insert(in, nil, fi.Inject, nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	// R-AV-21: authorization keys are not in the vector: all calls that take flags refuse theirs.
	for name, err := range map[string]error{
		"open":    second(New(Attr{Flags: fi.AuthKey}, nil)),
		"insert":  second(v.Insert(in, nil, fi.AuthKey, nil)),
		"records": second(v.InsertRecords(nil, nil, fi.AuthKey, nil)),
		"sym":     second(v.InsertSym("198.18.0.1", 1, "1", 1, nil, fi.AuthKey, nil)),
	} {
		if !errors.Is(err, fi.EINVAL) {
			t.Errorf("%s with an authorization key: %v", name, err)
		}
	}
	if v.Len() != 4 {
		t.Errorf("%d addresses", v.Len())
	}
	// R-ADDR-04: PIDonFEP and resource index have 12 bits. R-ADDR-05: without a port
	// the address has the well-known one.
	wide := []wire.Addr{addr(3), addr(4), addr(5), {IP: addr(6).IP}}
	wide[0].PIDonFEP, wide[0].RI = 0xfff, 0xfff
	wide[1].PIDonFEP, wide[2].RI = 0x1000, 0x1000
	errs, h = make([]fi.Errno, 4), make([]fi.Addr, 4)
	if n, err := v.Insert(wide, h, fi.SyncErr, errs); n != 2 || err != nil || errs[0] != 0 || errs[1] != fi.EINVAL || errs[2] != fi.EINVAL || errs[3] != 0 {
		t.Error(n, err, errs)
	}
	if a, err := v.Lookup(h[3]); err != nil || a.Port != wire.Port {
		t.Error(a, err)
	}
}

func TestInsertUnspecified(t *testing.T) {
	// R-ADDR-04: an address that names no host fails, in either of its forms, and so
	// does one that names many: UET is unicast.
	v := open(t, Attr{})
	for _, ip := range []string{"0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "ff02::1", "::ffff:239.1.2.3"} {
		errs := []fi.Errno{9}
		a := wire.Addr{IP: netip.MustParseAddr(ip), Port: 1}
		if n, err := v.Insert([]wire.Addr{a}, nil, fi.SyncErr, errs); n != 0 || err != nil || errs[0] != fi.EINVAL {
			t.Error(ip, n, err, errs)
		}
	}
}

func TestInsertOneIntoAFullVector(t *testing.T) {
	// R-AV-04: one address that fails is FI_ADDR_NOTAVAIL, and the error says why: no
	// place, or no address.
	v := open(t, Attr{})
	v.max = 1
	for _, c := range []struct {
		addr string
		want fi.Errno
	}{{"0.0.0.0", fi.EINVAL}, {"198.18.0.1", 0}, {"198.18.0.2", fi.ENOMEM}, {"0.0.0.0", fi.EINVAL}} {
		if c.want == 0 {
			if h, err := v.InsertString(c.addr); h != 0 || err != nil {
				t.Error(h, err)
			}
			continue
		}
		if h, err := v.InsertString(c.addr); h != fi.AddrNotAvail || !errors.Is(err, c.want) {
			t.Errorf("string %s: %v, %v, want %v", c.addr, h, err, c.want)
		}
		if h, err := v.InsertSvc(c.addr, "5000"); h != fi.AddrNotAvail || !errors.Is(err, c.want) {
			t.Errorf("service of %s: %v, %v, want %v", c.addr, h, err, c.want)
		}
	}
}

func TestLookupAndRemove(t *testing.T) {
	// R-AV-11, R-AV-13: handles that are not set are refused.
	v := open(t, Attr{})
	h, err := v.InsertString("fi_addr_uet://198.18.0.1:5000/3/7/99")
	if err != nil {
		t.Fatal(err)
	}
	a, err := v.Lookup(h)
	if err != nil || a.Port != 5000 || a.PIDonFEP != 3 || a.RI != 7 || a.Initiator != 99 {
		t.Error(a, err)
	}
	if s := v.StrAddr(a); s != "fi_addr_uet://198.18.0.1:5000/3/7/99" {
		t.Error(s)
	}
	_, gen, _ := v.Get(h)
	if err := v.Remove(h); err != nil {
		t.Error(err)
	}
	if err := v.Remove(h); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if err := v.Remove(fi.AddrUnspec); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if _, err := v.Lookup(h); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	// Several at once: those before one that is not set are removed.
	v.Insert([]wire.Addr{addr(1), addr(2), addr(3), addr(4)}, nil, 0, nil)
	if err := v.Remove(0, 2, 7, 3); !errors.Is(err, fi.EINVAL) || v.Len() != 2 {
		t.Error(err, v.Len())
	}
	if err := v.Remove(1, 3); err != nil || v.Len() != 0 {
		t.Error(err, v.Len())
	}
	// R-AV-12: remove and insert again works, and is seen to be something new.
	v.InsertString("198.18.0.2")
	if a, g, ok := v.Get(h); !ok || g == gen || a.Port != wire.Port {
		t.Error(a, g, ok)
	}
}

func TestFindIsTheLowest(t *testing.T) {
	// R-CQ-65: several entries of one source report the lowest; removing it
	// leaves the next.
	v := open(t, Attr{})
	for _, s := range []string{"198.18.0.1:1/1", "198.18.0.1:1/2", "198.18.0.2"} {
		if _, err := v.InsertString(wire.AddrScheme + s); err != nil {
			t.Fatal(err)
		}
	}
	fep := netip.MustParseAddrPort("198.18.0.1:1")
	for _, want := range []fi.Addr{0, 1, fi.AddrNotAvail} {
		if h := v.Find(fep, 16); h != want {
			t.Errorf("found %d, want %d", h, want)
		}
		if want != fi.AddrNotAvail {
			v.Remove(want)
		}
	}
	if h := v.Find(netip.MustParseAddrPort("198.18.0.2:4793"), 17); h != fi.AddrNotAvail {
		t.Error("another initiator was found")
	}
}

func TestUserID(t *testing.T) {
	// R-CQ-66: the user's identifier is reported instead of the handle. With the
	// flag of an insertion it is given in handles, which has the handle after.
	v := open(t, Attr{})
	v.Insert([]wire.Addr{addr(0)}, nil, 0, nil)
	ids := []fi.Addr{77, 78}
	if n, err := v.Insert([]wire.Addr{addr(1), {}}, ids, fi.AVUserID, nil); n != 1 || err != nil || ids[0] != 1 || ids[1] != fi.AddrNotAvail {
		t.Error(n, err, ids)
	}
	if h := v.Find(addr(1).AddrPort(), 16); h != 77 {
		t.Error(h)
	}
	if _, err := v.Insert([]wire.Addr{addr(1)}, nil, fi.AVUserID, nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if err := v.SetUserID(0, 5); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	// An AV opened with it has identifiers by SetUserID, none before.
	v = open(t, Attr{Flags: fi.AVUserID})
	v.Insert([]wire.Addr{addr(1)}, nil, 0, nil)
	if h := v.Find(addr(1).AddrPort(), 16); h != fi.AddrNotAvail {
		t.Error(h)
	}
	if err := v.SetUserID(0, 99); err != nil {
		t.Error(err)
	}
	if h := v.Find(addr(1).AddrPort(), 16); h != 99 {
		t.Error(h)
	}
	if err := v.SetUserID(1, 99); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if _, err := v.Insert([]wire.Addr{addr(1)}, ids, fi.AVUserID, nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
}

func TestSymmetric(t *testing.T) {
	// R-AV-16: node by node, services in order. A service is a port, as for
	// InsertSvc, or with a string form the PIDonFEP.
	v := open(t, Attr{Flags: fi.Symmetric})
	h := make([]fi.Addr, 4)
	if n, err := v.InsertSym("10.1.1.1", 2, "5000", 2, h, fi.More /* R-AV-07 */, nil); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []string{"10.1.1.1:5000", "10.1.1.1:5001", "10.1.1.2:5000", "10.1.1.2:5001"} {
		if a, _ := v.Lookup(h[i]); a.AddrPort().String() != want {
			t.Errorf("%d is %v, want %s", i, a, want)
		}
	}
	if n, err := v.InsertSym("fi_addr_uet://198.18.0.1:5000/10/3/9", 2, "", 3, nil, 0, nil); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	if a, _ := v.Lookup(8); a.String() != "fi_addr_uet://198.18.0.2:5000/11/3/9" {
		t.Error(a)
	}
	if n, err := v.InsertSym("localhost", 1, "5000", 2, nil, 0, nil); n != 2 || err != nil {
		t.Error(n, err)
	}
	if n, err := nextName("host09", 1); n != "host10" || err != nil {
		t.Error(n, err)
	}
	for _, c := range []struct {
		node  string
		nodes int
		svc   string
		svcs  int
	}{
		{"10.1.1.1", -1, "5000", 1}, {"10.1.1.1", 1, "5000", -1}, {"10.1.1.1", MaxLen + 1, "1", 1},
		{"10.1.1.1", 1 << 20, "1", 1 << 16}, {"10.1.1.1", 1 << 16, "1", 1 << 16}, // on 32 bits, 0
		{"10.1.1.1", 1, "65535", 2},
		{"255.255.255.255", 2, "1", 1}, {"fi_addr_uet://10.1.1.1/4095", 1, "", 2}, {"fi_addr_uet://10.1.1.1", 1, "7", 2},
		{"localhost", 2, "5000", 1}, {"10.1.1.1", 1, "no such service", 1},
	} {
		before := v.Len()
		if _, err := v.InsertSym(c.node, c.nodes, c.svc, c.svcs, nil, 0, nil); !errors.Is(err, fi.EINVAL) || v.Len() != before {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if n, err := v.InsertSym("10.1.1.1", 0, "5000", 7, nil, 0, nil); n != 0 || err != nil {
		t.Error(n, err)
	}
}

func TestService(t *testing.T) {
	// R-AV-15: node and service as in getinfo; a string address takes none.
	v := open(t, Attr{})
	h, err := v.InsertSvc("198.18.0.1", "5001")
	if a, _ := v.Lookup(h); err != nil || a.Port != 5001 {
		t.Error(a, err)
	}
	if _, err := v.InsertSvc("fi_addr_uet://198.18.0.1/0/15/16", "5001"); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
}

func TestNameOfBothFamilies(t *testing.T) {
	// R-AV-15: GetInfo gives an endpoint the IPv4 address of a name that has both;
	// whoever inserts that name means the same.
	four, six := netip.MustParseAddr("::ffff:198.18.0.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		ips  []netip.Addr
		want netip.Addr
	}{{[]netip.Addr{six, four}, four.Unmap()}, {[]netip.Addr{four, six}, four.Unmap()}, {[]netip.Addr{six}, six}} {
		if got := best(c.ips); got != c.want {
			t.Errorf("%v of %v", got, c.ips)
		}
	}
}

func TestOpenAndClose(t *testing.T) {
	// R-AV-03: map is treated as table and reported so. R-AV-17: EBUSY.
	// R-AV-18: shared is refused.
	v := open(t, Attr{Type: fi.AVMap})
	if v.Attr().Type != fi.AVTable || v.Context() != "ctx" {
		t.Error(v.Attr())
	}
	v.Bind()
	if err := v.Close(); !errors.Is(err, fi.EBUSY) {
		t.Error(err)
	}
	v.Unbind()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if err := v.Close(); !errors.Is(err, fi.EBADF) {
		t.Error(err)
	}
	if err := v.Bind(); !errors.Is(err, fi.EBADF) {
		t.Error(err)
	}
	if _, err := v.Insert(nil, nil, 0, nil); !errors.Is(err, fi.EBADF) {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"insert string": second(v.InsertString("198.18.0.1")),
		"insert svc":    second(v.InsertSvc("198.18.0.1", "")),
		"insert sym":    second(v.InsertSym("198.18.0.1", 1, "", 1, nil, 0, nil)),
		"insert none":   second(v.InsertSym("198.18.0.1", 0, "", 1, nil, 0, nil)),
		"lookup":        second(v.Lookup(0)),
		"lookup record": second(v.LookupRecord(0, nil)),
		"remove":        v.Remove(0),
		"remove none":   v.Remove(),
		"set user id":   v.SetUserID(0, 1),
		"bind events":   v.BindEvents(nil),
	} {
		if !errors.Is(err, fi.EBADF) {
			t.Errorf("%s of a closed vector: %v", name, err)
		}
	}
	for _, c := range []struct {
		attr Attr
		err  fi.Errno
	}{{Attr{Name: "x"}, fi.ENOSYS}, {Attr{Flags: fi.Read}, fi.ENOSYS}, {Attr{Type: 9}, fi.EINVAL}, {Attr{Flags: fi.Inject}, fi.EINVAL}, {Attr{Count: -1}, fi.EINVAL}} {
		if _, err := New(c.attr, nil); !errors.Is(err, c.err) {
			t.Errorf("%+v: %v", c.attr, err)
		}
	}
}

type events []string

func (e *events) AVError(_ *AV, ctx any, i int, err fi.Errno) {
	*e = append(*e, fmt.Sprintf("error %v %d", ctx, i))
}
func (e *events) Bind() (Binding, error) {
	if *e == nil {
		return nil, fi.EBADF
	}
	*e = append(*e, "bind")
	return e, nil
}
func (e *events) Room() error { return nil }
func (e *events) Unbind()     { *e = append(*e, "unbind") }
func (e *events) AVComplete(_ *AV, ctx any, n int) {
	*e = append(*e, fmt.Sprintf("complete %v %d", ctx, n))
}

func TestAsynchronousInsert(t *testing.T) {
	// R-AV-08, -09: without an EQ ENOEQ; an error per failed address, then one
	// completion, even if all failed.
	v := open(t, Attr{Flags: fi.Event})
	if _, err := v.Insert([]wire.Addr{addr(1)}, nil, 0, "c"); !errors.Is(err, fi.ENOEQ) {
		t.Error(err)
	}
	var e events
	if err := v.BindEvents(&e); !errors.Is(err, fi.EBADF) { // the queue is closed
		t.Error(err)
	}
	e = events{}
	if err := v.BindEvents(nil); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if err := v.BindEvents(&e); err != nil {
		t.Error(err)
	}
	if err := v.BindEvents(&e); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	h := []fi.Addr{9, 9, 9}
	if n, err := v.Insert([]wire.Addr{{}, addr(1), {}}, h, 0, "c"); n != 0 || err != nil || fmt.Sprint(h) != fmt.Sprint([]fi.Addr{fi.AddrNotAvail, 0, fi.AddrNotAvail}) {
		t.Error(n, err, h)
	}
	v.Insert([]wire.Addr{{}}, nil, 0, "d")
	if _, err := v.Insert([]wire.Addr{{}}, nil, fi.SyncErr, []fi.Errno{0}); !errors.Is(err, fi.EINVAL) {
		t.Error(err)
	}
	if h, err := v.InsertString("198.18.0.2"); h != 1 || err != nil {
		t.Error(h, err)
	}
	// None at all are told of as well.
	v.Insert(nil, nil, 0, "e")
	v.InsertSym("198.18.0.3", 0, "", 5, nil, 0, "f")
	v.Close()
	if got := fmt.Sprint(e); got != "[bind error c 0 error c 2 complete c 1 error d 0 complete d 0 complete <nil> 1 complete e 0 complete f 0 unbind]" {
		t.Error(got)
	}
	if err := v.BindEvents(&e); !errors.Is(err, fi.EBADF) {
		t.Error(err)
	}
}

func TestConcurrent(t *testing.T) {
	v := open(t, Attr{})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			h := []fi.Addr{0}
			for i := range 200 {
				v.Insert([]wire.Addr{addr(g*1000 + i)}, h, 0, nil)
				v.Get(h[0])
				v.Find(addr(g*1000+i).AddrPort(), 16)
				if i%2 == 0 {
					v.Remove(h[0])
				}
			}
		}()
	}
	wg.Wait()
	if v.Len() != 400 {
		t.Error(v.Len())
	}
}

func TestMemoryPerAddress(t *testing.T) {
	// Bar F7: an idle address costs at most 128 bytes, the index by source
	// included.
	const n = 100_000
	as := make([]wire.Addr, n)
	for i := range as {
		as[i] = wire.SockAddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 4793))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	v := open(t, Attr{})
	v.Insert(as, nil, 0, nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%.0f bytes per address", per)
	if per > 128 {
		t.Errorf("%.0f bytes per address", per)
	}
	runtime.KeepAlive(v)
	runtime.KeepAlive(as)
}

func BenchmarkGet(b *testing.B) {
	v := open(b, Attr{})
	v.Insert([]wire.Addr{addr(1)}, nil, 0, nil)
	for range b.N {
		v.Get(0)
	}
}
