package uet

import (
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestQueuesBelongToTheirParents(t *testing.T) {
	t.Parallel()
	// R-CQ-02: a completion queue is opened in an open domain, which it keeps open. R-EQ-02:
	// an event queue is opened in an open fabric.
	info := loopback(t, nil)
	f, err := OpenFabric(info, nil)
	ok(t, err)
	d, err := f.OpenDomain(info, nil)
	ok(t, err)
	q, err := d.OpenCQ(cq.Attr{}, "cq")
	ok(t, err)
	e, err := f.OpenEQ(eq.Attr{}, "eq")
	ok(t, err)
	if q.Context() != "cq" || e.Context() != "eq" {
		t.Error(q.Context(), e.Context())
	}
	want(t, d.Close(), fi.EBUSY)
	ok(t, q.Close())
	ok(t, d.Close())
	_, err = d.OpenCQ(cq.Attr{}, nil)
	want(t, err, fi.EBADF)
	_, err = d.OpenCntr(cntr.Attr{}, nil)
	want(t, err, fi.EBADF)
	want(t, f.Close(), fi.EBUSY)
	ok(t, e.Close())
	ok(t, f.Close())
	_, err = f.OpenEQ(eq.Attr{}, nil)
	want(t, err, fi.EBADF)
}

func TestQueuesOfADomainAreCounted(t *testing.T) {
	t.Parallel()
	// R-CQ-33, R-CQ-137: as many queues can be open as the domain says. R-CQ-03: a refused
	// open leaves nothing behind. Closing makes room.
	r := newRig(t, nil)
	if n := r.info.Domain.CQCnt; n < 100 || r.info.Domain.CntrCnt != n {
		t.Errorf("%d queues, %d counters", n, r.info.Domain.CntrCnt)
	}
	info := r.info
	info.Domain.CQCnt, info.Domain.CntrCnt = 2, 2
	d, err := r.fabric.OpenDomain(info, nil)
	ok(t, err)
	for name, open := range map[string]func() (interface{ Close() error }, error){
		"queues":   func() (interface{ Close() error }, error) { return d.OpenCQ(cq.Attr{}, nil) },
		"counters": func() (interface{ Close() error }, error) { return d.OpenCntr(cntr.Attr{}, nil) },
	} {
		a, err := open()
		ok(t, err)
		b, err := open()
		ok(t, err)
		_, err = open()
		want(t, err, fi.ENOSPC)
		ok(t, a.Close())
		c, err := open()
		if err != nil {
			t.Fatalf("%s: no room after a close: %v", name, err)
		}
		ok(t, b.Close())
		ok(t, c.Close())
	}
	ok(t, d.Close())
	infos, err := GetInfo("127.0.0.1", "", fi.Source, &Info{Domain: DomainAttr{CQCnt: 1 << 20}})
	if err == nil {
		t.Errorf("more queues than there can be: %d infos", len(infos))
	}
}

func TestEntryOfEachOperation(t *testing.T) {
	t.Parallel()
	// R-CQ-01: sends and receives, tagged and untagged, all in one queue (R-CQ-34). R-CQ-96:
	// the context of the operation. R-CQ-98, -106, -107, -110, -111, -117: all flags that
	// apply and no others. R-CQ-99: the number of bytes received. R-CQ-101, -102, -103, -104:
	// the other fields are set if they mean something and otherwise 0.
	r := newRig(t, nil)
	a := r.node(func(o *options) { o.oneCQ = true })
	self := a.know(a)
	data := []byte("four")
	for _, c := range []struct {
		name       string
		recv, send func(buf []byte, ctx any) error
		rx, tx     cq.Entry
	}{
		{
			"send",
			func(b []byte, ctx any) error { return a.Recv(b, fi.AddrUnspec, ctx) },
			func(_ []byte, ctx any) error { return a.Send(data, self, ctx) },
			cq.Entry{Flags: fi.Recv | fi.Msg, Len: 4}, cq.Entry{Flags: fi.Send | fi.Msg},
		},
		{
			"empty",
			func(_ []byte, ctx any) error { return a.Recv(nil, fi.AddrUnspec, ctx) },
			func(_ []byte, ctx any) error { return a.Send(nil, self, ctx) },
			cq.Entry{Flags: fi.Recv | fi.Msg}, cq.Entry{Flags: fi.Send | fi.Msg},
		},
		{
			"senddata",
			func(b []byte, ctx any) error { return a.Recv(b, fi.AddrUnspec, ctx) },
			func(_ []byte, ctx any) error { return a.SendData(data, 1<<63|5, self, ctx) },
			cq.Entry{Flags: fi.Recv | fi.Msg | fi.RemoteCQData, Len: 4, Data: 1<<63 | 5}, cq.Entry{Flags: fi.Send | fi.Msg},
		},
		{
			"tsend",
			func(b []byte, ctx any) error { return a.TRecv(b, fi.AddrUnspec, 0xff00, 0xff, ctx) },
			func(_ []byte, ctx any) error { return a.TSend(data, self, 0xff42, ctx) },
			cq.Entry{Flags: fi.Recv | fi.Tagged, Len: 4, Tag: 0xff42}, cq.Entry{Flags: fi.Send | fi.Tagged},
		},
		{
			"tsenddata",
			func(b []byte, ctx any) error { return a.TRecv(b, fi.AddrUnspec, 1, 0, ctx) },
			func(_ []byte, ctx any) error { return a.TSendData(data, 0, self, 1, ctx) },
			cq.Entry{Flags: fi.Recv | fi.Tagged | fi.RemoteCQData, Len: 4, Tag: 1}, cq.Entry{Flags: fi.Send | fi.Tagged},
		},
	} {
		// All contexts differ. Otherwise a context left over from an earlier operation, or taken
		// from another one, would not be noticed.
		c.rx.Context, c.tx.Context = "receive of "+c.name, "send of "+c.name
		buf := make([]byte, 8)
		ok(t, c.recv(buf, c.rx.Context))
		ok(t, c.send(data, c.tx.Context))
		got := map[any]cq.Entry{}
		for range 2 {
			e, _ := wait(t, a.tx)
			got[e.Context] = e
		}
		if r, s := got[c.rx.Context], got[c.tx.Context]; !reflect.DeepEqual(r, c.rx) || !reflect.DeepEqual(s, c.tx) {
			t.Errorf("%s:\n%+v, want\n%+v and\n%+v", c.name, got, c.rx, c.tx)
		}
	}
	ok(t, a.Recv(make([]byte, 8), fi.AddrUnspec, "c"))
	ok(t, a.Cancel("c"))
	if e := waitErr(t, a.tx); e.OverLen != 0 || e.Len != 0 || e.Context != "c" || e.Flags != fi.Recv|fi.Msg {
		t.Errorf("%+v", e)
	}
}

func TestOverLenIsOfTruncationAlone(t *testing.T) {
	t.Parallel()
	// R-CQ-105: olen is 0 unless bytes found no room. This also holds if a message that would
	// have been truncated ends in another way, whatever the layers below know about it.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	n := r.node()
	o := (*owner)(n.Endpoint)
	for c := transport.OK; c <= transport.NoMessage; c++ {
		ev := transport.Event{Kind: transport.OpTRecv, Cause: c, Context: c.String(), Len: 3, OverLen: 5}
		if !completionsOf(n.rx).Reserve(1) {
			t.Fatal("no room")
		}
		o.deliver(&ev)
		o.delivered()
		if c == transport.OK {
			wait(t, n.rx)
			continue
		}
		length, over := 0, 0
		if c == transport.Truncated {
			length, over = 3, 5
		}
		if e := waitErr(t, n.rx); e.Context != c.String() || e.Len != length || e.OverLen != over {
			t.Errorf("%v: %+v, want %d bytes and %d over", c, &e, length, over)
		}
	}
}

func TestErrorEntryOfEachWireCode(t *testing.T) {
	t.Parallel()
	// R-CQ-80: err is positive, and prov_errno is the SES return code or the PDS NACK code as
	// on the wire. R-CQ-95: the queue explains it by name. R-CQ-81: this also holds for an
	// operation whose success would have been silent. R-CQ-88: the entry has the flags of its
	// kind.
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	n := r.node(func(o *options) { o.txFlags = fi.SelectiveCompletion })
	o := (*owner)(n.Endpoint)
	fails := func(ev transport.Event, prov uint32, name string) {
		t.Helper()
		ev.Kind, ev.Context, ev.Flags = transport.OpTSend, name, opSilent
		if !completionsOf(n.tx).Reserve(1) {
			t.Fatal("no room")
		}
		o.deliver(&ev)
		o.delivered()
		var e cq.Error
		if k, err := n.tx.ReadErr(&e, 0); k != 1 {
			t.Fatal(err)
		}
		if e.Err <= 0 || e.Prov != prov || e.Context != name || e.Flags != fi.Send|fi.Tagged {
			t.Errorf("%s: %+v, want prov %#x", name, e, prov)
		}
		if got := n.tx.StrError(e.Prov); !strings.HasSuffix(got, name) {
			t.Errorf("%#x is %q, want %q", prov, got, name)
		}
	}
	for rc := wire.RCOK + 1; rc <= wire.RCDropped; rc++ {
		fails(transport.Event{Cause: transport.Rejected, RC: rc}, uint32(rc), rc.String())
	}
	for c := wire.NackCode(1); c <= 0x1f; c++ {
		fails(transport.Event{Cause: transport.Aborted, Nack: c}, 0x100+uint32(c), c.String())
	}
	fails(transport.Event{Cause: transport.TimedOut}, ProvGaveUp, "no acknowledgement from the peer")
	if n.tx.Reserved() != 0 {
		t.Errorf("%d places are reserved", n.tx.Reserved())
	}
}

func TestSourceIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	// R-CQ-58, -60: a sender is known if it was inserted, and the provider inserts nobody.
	// R-CQ-63: the entry has what was known when it was made. R-CQ-64: a plain read meets the
	// error, too.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Source | fi.SourceErr})
	a, b := r.node(), r.node()
	toB := a.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, nil))
	wait(t, a.tx, b)
	for start := time.Now(); !b.rx.Poll(); runtime.Gosched() {
		if time.Since(start) > patience {
			t.Fatal("nothing received")
		}
	}
	if n := b.vec.Len(); n != 0 {
		t.Errorf("%d addresses were inserted", n)
	}
	b.know(a) // too late for the entry
	_, err := b.rx.Read(make([]cq.Entry, 1))
	want(t, err, fi.EAVAIL)
	var e cq.Error
	if n, err := b.rx.ReadErr(&e, 0); n != 1 || e.Err != fi.EADDRNOTAVAIL {
		t.Error(n, err, &e)
	}
}

func TestMapIsATable(t *testing.T) {
	t.Parallel()
	// R-CQ-59: with FI_AV_MAP, too, an address that was not inserted has no handle.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Source, Domain: DomainAttr{AVType: fi.AVMap}})
	v, err := r.domain.OpenAV(av.Attr{Type: fi.AVMap}, nil)
	ok(t, err)
	ok(t, v.Close())
	a, b := r.node(), r.node()
	toB := a.know(b)
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, toB, nil))
	if _, src := wait(t, b.rx, a); src != fi.AddrNotAvail {
		t.Errorf("source %v", src)
	}
	wait(t, a.tx, b)
}

func TestNoModeIsAskedFor(t *testing.T) {
	t.Parallel()
	// R-CQ-100: len includes no prefix, because FI_MSG_PREFIX is never asked for. R-CQ-121:
	// neither is FI_NOTIFY_FLAGS_ONLY, so all flags are set, whatever modes an application
	// offers. R-CQ-132: the domain, and not the queue, has the size of remote CQ data.
	for _, hints := range []*Info{nil, {Mode: ^fi.Mode(0)}, {Tx: TxAttr{}, Mode: 1}} {
		info := loopback(t, hints)
		if info.Mode != 0 || info.Domain.CQDataSize != 8 {
			t.Errorf("mode %v, %d bytes of data", info.Mode, info.Domain.CQDataSize)
		}
	}
	if _, there := reflect.TypeFor[cq.Attr]().FieldByName("DataSize"); there {
		t.Error("a queue has a data size of its own")
	}
}

func TestEventsOfTheProvider(t *testing.T) {
	t.Parallel()
	// R-EQ-01: the queue reports events of earlier requests. R-EQ-33: a completed insertion
	// has object, context of the call, and number inserted. R-EQ-55: a failed one has object,
	// context and index. R-EQ-44: the event of a call without a context has none.
	r := newRig(t, nil)
	good, err := r.node().Name()
	ok(t, err)
	q, err := r.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{Flags: fi.Event}, nil)
	ok(t, err)
	ok(t, v.BindEvents(AVEvents(q)))
	var bad wire.Addr

	for _, ctx := range []any{"insert", nil} {
		_, err = v.Insert(addrs(good, bad), nil, 0, ctx)
		ok(t, err)
		_, err = q.SRead(0, patience)
		want(t, err, fi.EAVAIL)
		if e, err := q.ReadErr(0); err != nil || e.Fid != v || e.Context != ctx || e.Data != 1 || e.Err != fi.EINVAL {
			t.Errorf("%+v, %v", e, err)
		}
		if e, err := q.SRead(0, patience); err != nil || e.Event != fi.AVComplete || e.Fid != v || e.Context != ctx || e.Data != 1 {
			t.Errorf("%+v, %v", e, err)
		}
	}
	ok(t, v.Close())
	ok(t, q.Close())
}

func TestAsynchronousErrors(t *testing.T) {
	t.Parallel()
	// R-EQ-45: trouble of a resource is an error event: a completion queue that overran, a
	// peer that cannot be reached. R-EQ-47: the event names the resource and the cause;
	// R-EP-21: it has the context of the endpoint. R-CQ-126.
	r := newRig(t, &Info{Domain: DomainAttr{ResourceMgmt: fi.RMDisabled}})
	a, b, toB, _ := r.pair(func(o *options) { o.attr.Size = 64 })
	for range b.rx.Attr().Size + 2 {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Inject(nil, toB))
	}
	for start := time.Now(); !b.rx.Overrun(); runtime.Gosched() {
		_, _ = b.rx.Read(nil)
		_, _ = a.tx.Read(nil)
		if time.Since(start) > patience {
			t.Fatal("no overrun")
		}
	}
	_, err := b.evts.SRead(0, patience)
	want(t, err, fi.EAVAIL)
	if e, err := b.evts.ReadErr(0); err != nil || e.Fid != b.rx || e.Err != fi.EOVERRUN || e.Context != "ep" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestOneQueueForAll(t *testing.T) {
	t.Parallel()
	// R-CQ-34: several endpoints and both directions use one queue. R-CQ-53: several
	// goroutines read it, and each entry goes to one of them. R-CQ-67: they sleep in between.
	const endpoints, each = 4, 200
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		r := newRig(t, &Info{Domain: DomainAttr{DataProgress: p}})
		q, err := r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
		ok(t, err)
		vec, err := r.domain.OpenAV(av.Attr{}, nil)
		ok(t, err)
		var eps []*Endpoint
		for range endpoints {
			ep, err := r.domain.OpenEndpoint(r.info, nil)
			ok(t, err)
			ok(t, ep.BindCQ(q, fi.Transmit|fi.Recv))
			ok(t, ep.BindAV(vec))
			ok(t, ep.Enable())
			name, err := ep.Name()
			ok(t, err)
			_, err = vec.InsertString(name.String())
			ok(t, err)
			eps = append(eps, ep)
		}
		type op struct {
			ep, n int
			send  bool
		}
		var mu sync.Mutex
		seen := map[op]int{}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				e := make([]cq.Entry, 8)
				for {
					n, err := q.SRead(e, 0, patience)
					mu.Lock()
					for _, e := range e[:n] {
						seen[e.Context.(op)]++
					}
					all := len(seen) == 2*endpoints*each
					mu.Unlock()
					if all || n == 0 && err != fi.EAGAIN {
						q.Signal() // wakes the other readers
						return
					}
					if n == 0 && err == fi.EAGAIN {
						mu.Lock()
						all := len(seen) == 2*endpoints*each
						mu.Unlock()
						if !all {
							t.Errorf("a reader starved")
						}
						q.Signal()
						return
					}
				}
			})
		}
		for n := range each {
			for i, ep := range eps {
				ok(t, ep.TRecv(nil, fi.AddrUnspec, uint64(n), 0, op{i, n, false}))
			}
			for i, ep := range eps {
				ok(t, ep.TSend(nil, fi.Addr((i+1)%endpoints), uint64(n), op{i, n, true}))
			}
		}
		wg.Wait()
		for o, times := range seen {
			if times != 1 {
				t.Errorf("%+v was read %d times", o, times)
			}
		}
		if len(seen) != 2*endpoints*each {
			t.Errorf("%d entries, want %d", len(seen), 2*endpoints*each)
		}
		for _, ep := range eps {
			ok(t, ep.Close())
		}
		ok(t, q.Close())
		ok(t, vec.Close())
	}
}

func TestInsertionsDoNotOverrun(t *testing.T) {
	t.Parallel()
	// R-AV-08, R-EQ-68: every failure of an insertion is reported, however small the queue is.
	// An insertion that could not be reported is refused at once.
	r := newRig(t, nil)
	q, err := r.fabric.OpenEQ(eq.Attr{Size: 1}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{Flags: fi.Event}, nil)
	ok(t, err)
	ok(t, v.BindEvents(AVEvents(q)))
	const failing = 20
	in := make([]wire.Addr, failing)
	read := func(ctx string) {
		t.Helper()
		for i := range failing {
			if e, err := q.ReadErr(0); err != nil || e.Err != fi.EINVAL || e.Data != uint64(i) || e.Context != ctx {
				t.Fatalf("failure %d: %+v, %v", i, e, err)
			}
		}
		if e, err := q.Read(0); err != nil || e.Event != fi.AVComplete || e.Data != 0 || e.Context != ctx {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	for _, ctx := range []string{"one", "two", "three"} {
		_, err := v.Insert(in, nil, 0, ctx)
		ok(t, err)
	}
	for _, ctx := range []string{"one", "two", "three"} {
		read(ctx)
	}
	// If nobody reads, insertions are refused in the end, and the queue does not overrun.
	good, err := wire.ParseAddr("fi_addr_uet://198.18.0.1")
	ok(t, err)
	calls := 0
	for err = nil; err == nil && calls < eq.MaxKept; calls++ {
		_, err = v.Insert(in, nil, 0, "many")
	}
	want(t, err, fi.EAGAIN)
	h := []fi.Addr{77}
	_, err = v.Insert(addrs(good), h, fi.AVUserID, nil)
	want(t, err, fi.EAGAIN)
	if v.Len() != 0 || h[0] != 77 {
		t.Errorf("refused, and inserted %d, %d", v.Len(), h)
	}
	for range calls - 1 {
		read("many")
	}
	_, err = q.Read(0)
	want(t, err, fi.EAGAIN)
	_, err = v.Insert(addrs(good), h, fi.AVUserID, nil)
	ok(t, err)
	// A queue that others have overrun reports nothing any more.
	other, err := reporterOf(q, 0)
	ok(t, err)
	other.Put(eq.Entry{})
	other.Put(eq.Entry{})
	other.Unbind()
	_, err = v.Insert(addrs(good), nil, 0, nil)
	want(t, err, fi.EOVERRUN)
	if v.Len() != 1 {
		t.Error("inserted")
	}
	ok(t, v.Close())
	ok(t, q.Close())
}
