package uet

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// at returns the offset of b in buf.
func at(buf, b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
}

func TestMultiRecv(t *testing.T) {
	t.Parallel()
	// fabtests multi_recv: two halves of one buffer are posted. Completions point into them,
	// never to the same place twice, and the flag comes once per half. R-MSG-12, R-CQ-102,
	// R-CQ-118.
	for _, tagged := range []bool{false, true} {
		r := newRig(t, nil)
		a, b, toB, toA := r.pair()
		const size, n = 100, 20 // 9 messages of 104 bytes in a half of 1000 leave 64
		ok(t, b.SetOpt(fi.OptMinMultiRecv, size))
		buf := make([]byte, 2000)
		for k := range 2 {
			half := [][]byte{buf[k*1000 : k*1000+1000]}
			if tagged {
				ok(t, b.TRecvMsg(&TMsg{Iov: half, Addr: fi.AddrUnspec, Ignore: ^uint64(0), Context: k}, fi.MultiRecv))
			} else {
				ok(t, b.RecvMsg(&Msg{Iov: half, Addr: fi.AddrUnspec, Context: k}, fi.MultiRecv))
			}
		}
		for i := range n {
			if tagged {
				ok(t, a.TSendData(pattern(size, uint64(i)), uint64(i), toB, 5, i))
			} else {
				ok(t, a.SendData(pattern(size, uint64(i)), uint64(i), toB, i))
			}
		}
		seen := map[int]bool{}
		released := [2]int{}
		for range 18 {
			e, src := wait(t, b.rx, a)
			k := e.Context.(int)
			w := fi.Recv | fi.Msg | fi.RemoteCQData
			if tagged {
				w = fi.Recv | fi.Tagged | fi.RemoteCQData
			}
			if e.Flags&^fi.MultiRecv != w || e.Len != size || len(e.Buf) != size || src != toA || tagged && e.Tag != 5 {
				t.Fatalf("%+v from %v", e, src)
			}
			if !bytes.Equal(e.Buf, pattern(size, e.Data)) {
				t.Fatalf("message %d differs", e.Data)
			}
			place := at(buf, e.Buf)
			if place < k*1000 || place+size > k*1000+1000 || place%8 != 0 || seen[place] { // R-MSG-13
				t.Fatalf("message %d at %d", e.Data, place)
			}
			seen[place] = true
			if released[k] > 0 {
				t.Fatalf("buffer %d is used after its release", k)
			}
			if e.Flags&fi.MultiRecv != 0 {
				released[k]++
			}
		}
		if released != [2]int{1, 1} {
			t.Fatalf("releases %v", released)
		}
		for range 18 {
			wait(t, a.tx, b)
		}
		if b.rx.Reserved() != 0 {
			t.Errorf("%d places stay reserved", b.rx.Reserved())
		}
		// The two messages that found no buffer wait for the next one.
		if tagged {
			ok(t, b.TRecv(buf, fi.AddrUnspec, 5, 0, nil))
			ok(t, b.TRecv(buf, fi.AddrUnspec, 5, 0, nil))
		} else {
			ok(t, b.Recv(buf, fi.AddrUnspec, nil))
			ok(t, b.Recv(buf, fi.AddrUnspec, nil))
		}
		wait(t, b.rx, a)
		wait(t, b.rx, a)
	}
}

func TestMultiRecvLeastRoom(t *testing.T) {
	t.Parallel()
	// R-MSG-12: a buffer is released when less than FI_OPT_MIN_MULTI_RECV is left, not when
	// exactly that is left.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	const size = 104
	ok(t, b.SetOpt(fi.OptMinMultiRecv, size))
	for _, c := range []struct {
		room     int
		released []bool
	}{{2 * size, []bool{false, true}}, {2*size - 1, []bool{true}}} {
		ok(t, b.RecvMsg(&Msg{Iov: [][]byte{make([]byte, c.room)}, Addr: fi.AddrUnspec}, fi.MultiRecv))
		for i, want := range c.released {
			ok(t, a.Send(make([]byte, size), toB, nil))
			if e, _ := wait(t, b.rx, a); e.Len != size || e.Flags&fi.MultiRecv != 0 != want {
				t.Errorf("message %d in %d bytes: %+v", i, c.room, e)
			}
			wait(t, a.tx, b)
		}
	}
}

func TestMultiRecvSeparateRelease(t *testing.T) {
	t.Parallel()
	// R-MSG-12: the release is always written. With selective completion, and after an error
	// as last message, it is an entry of its own with no other flag.
	r := newRig(t, &Info{Rx: RxAttr{OpFlags: fi.MultiRecv}})
	a, b, toB, _ := r.pair(func(o *options) { o.rxFlags = fi.SelectiveCompletion })
	buf := make([]byte, 256)
	release := func() {
		t.Helper()
		e, src := wait(t, b.rx, a)
		if e.Flags != fi.MultiRecv || e.Context != "m" || e.Len != 0 || e.Buf != nil || src != fi.AddrNotAvail {
			t.Errorf("%+v", e)
		}
		if b.rx.Reserved() != 0 {
			t.Errorf("%d places stay reserved", b.rx.Reserved())
		}
	}
	ok(t, b.Recv(buf, fi.AddrUnspec, "m")) // R-EP-09: by the default flags
	for range 2 {
		ok(t, a.Send(make([]byte, 128), toB, nil))
		wait(t, a.tx, b)
	}
	release()
	ok(t, b.Recv(buf, fi.AddrUnspec, "m"))
	ok(t, a.Send(make([]byte, 300), toB, nil))
	e := waitErr(t, b.rx, a)
	if e.Err != fi.ETRUNC || e.Len != 256 || e.OverLen != 44 || at(buf, e.Buf) != 0 || e.Flags != fi.Recv|fi.Msg {
		t.Errorf("%+v", e)
	}
	release()
	wait(t, a.tx, b)
	// The error of a cancelled buffer has the flag, too.
	ok(t, b.Recv(buf, fi.AddrUnspec, "m"))
	ok(t, b.Cancel("m"))
	if e := waitErr(t, b.rx, a); e.Err != fi.ECANCELED || e.Flags != fi.Recv|fi.Msg|fi.MultiRecv {
		t.Errorf("%+v", e)
	}
	// The converse of R-TAG-10: the default flag does not apply to calls that may not have it.
	r = newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.MultiRecv, Rx: RxAttr{OpFlags: fi.MultiRecv}})
	a, b, toB, _ = r.pair()
	ok(t, b.TRecv(nil, fi.AddrUnspec, 1, 0, "plain"))
	want(t, b.TRecvMsg(&TMsg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec}, fi.MultiRecv), fi.EINVAL)
	ok(t, a.TSend(nil, toB, 1, nil))
	if e, _ := wait(t, b.rx, a); e.Flags != fi.Recv|fi.Tagged || e.Buf != nil {
		t.Errorf("%+v", e)
	}
	wait(t, a.tx, b)
}

func TestMultiRecvHoldsBackWithoutRoom(t *testing.T) {
	t.Parallel()
	// R-CQ-127: many messages for one buffer and a small queue: nothing overruns, nothing is
	// lost, the order of one sender stays.
	r := newRig(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Rx: RxAttr{MsgOrder: fi.OrderSAS}})
	a, b, toB, _ := r.pair(func(o *options) { o.attr.Size = 64 })
	const n = 500
	buf := make([]byte, 8*n+1000)
	ok(t, b.RecvMsg(&Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec}, fi.MultiRecv))
	sent, got := 0, 0
	es := make([]cq.Entry, 4)
	for start := time.Now(); got < n; {
		for sent < n && a.SendData(nil, uint64(sent), toB, nil) == nil {
			sent++
		}
		_, _ = a.tx.Read(es)
		if len(es) > 0 && sent < n && sent-got < 300 {
			b.drv.Poll() // it arrives while nobody reads
			continue
		}
		k, err := b.rx.Read(es)
		if err != nil && !errors.Is(err, fi.EAGAIN) {
			t.Fatal(err)
		}
		for _, e := range es[:max(k, 0)] {
			if e.Data != uint64(got) {
				t.Fatalf("message %d comes as number %d", e.Data, got)
			}
			got++
		}
		if time.Since(start) > patience {
			t.Fatalf("%d of %d messages", got, n)
		}
		runtime.Gosched()
	}
	if b.rx.Overrun() {
		t.Error("the queue overran")
	}
}

func TestMultiRecvWhenEveryPlaceIsPromised(t *testing.T) {
	t.Parallel()
	// R-CQ-127: waiting receives have all places of the queue. Messages for the buffer come
	// one by one as they are read, and do not delay those for the receives.
	r := newRig(t, nil)
	a, b, toB, _ := r.pair(func(o *options) { o.attr.Size = 64 })
	buf := make([]byte, 1000)
	ok(t, b.RecvMsg(&Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Context: "m"}, fi.MultiRecv))
	posted := 0
	for b.TRecv(nil, fi.AddrUnspec, uint64(posted), 0, posted) == nil {
		posted++
	}
	if posted != b.rx.Attr().Size-1 {
		t.Fatalf("%d receives for a queue of %d", posted, b.rx.Attr().Size)
	}
	for range 5 {
		ok(t, a.Send(nil, toB, nil))
	}
	for range 5 {
		if e, _ := wait(t, b.rx, a); e.Context != "m" {
			t.Errorf("%+v", e)
		}
	}
	ok(t, a.Send(nil, toB, nil))
	ok(t, a.Send(nil, toB, nil))
	ok(t, a.TSend(nil, toB, 7, nil))
	for range 8 {
		wait(t, a.tx)
	}
	got := map[any]int{}
	for range 3 {
		e, _ := wait(t, b.rx, a)
		got[e.Context]++
	}
	if got["m"] != 2 || got[7] != 1 {
		t.Errorf("%v", got)
	}
	if b.rx.Overrun() {
		t.Error("the queue overran")
	}
}

func TestMultiRecvFromAStranger(t *testing.T) {
	t.Parallel()
	// R-CQ-62 in a multi-receive buffer: the entry is an error with the address, and the
	// release is an entry of its own.
	r := newRig(t, &Info{Caps: fi.Msg | fi.MultiRecv | fi.Source | fi.SourceErr})
	a, b := r.node(), r.node()
	toB := a.know(b)
	buf := make([]byte, 64)
	ok(t, b.RecvMsg(&Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Context: "m"}, fi.MultiRecv))
	ok(t, a.Send([]byte("hello"), toB, nil))
	e := waitErr(t, b.rx, a)
	if e.Err != fi.EADDRNOTAVAIL || e.Len != 5 || string(e.Buf) != "hello" {
		t.Errorf("%+v", e)
	}
	h := make([]fi.Addr, 1)
	if n, err := b.vec.InsertRecords([][]byte{e.ErrData}, h, 0, nil); n != 1 || err != nil { // R-CQ-83
		t.Fatal(n, err)
	}
	if c, _ := wait(t, b.rx, a); c.Flags != fi.MultiRecv || c.Context != "m" {
		t.Errorf("%+v", c)
	}
	wait(t, a.tx, b)
	ok(t, b.RecvMsg(&Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Context: "m"}, fi.MultiRecv))
	ok(t, a.Send([]byte("again"), toB, nil))
	if c, src := wait(t, b.rx, a); c.Flags != fi.Recv|fi.Msg|fi.MultiRecv || src != h[0] || string(c.Buf) != "again" {
		t.Errorf("%+v from %v", c, src)
	}
}

func TestPeek(t *testing.T) {
	t.Parallel()
	// fabtests rdm_tagged_peek; R-TAG-08, R-TAG-09, R-ERR-39. R-CQ-119, -120: without buffered receives
	// no entry has fi.More or fi.Claim, that of a claim neither.
	r := newRig(t, &Info{Tx: TxAttr{MsgOrder: fi.OrderSAS}, Rx: RxAttr{MsgOrder: fi.OrderSAS}})
	a, b, toB, toA := r.pair()
	const base = 0x900d
	look := func(tag uint64, flags fi.Flags, ctx any) {
		t.Helper()
		ok(t, b.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: tag, Context: ctx}, flags))
	}
	miss := func(ctx any) {
		t.Helper()
		if e := waitErr(t, b.rx); e.Err != fi.ENOMSG || e.Context != ctx || e.Flags != fi.Recv|fi.Tagged {
			t.Fatalf("%+v", e)
		}
	}
	hit := func(tag uint64, ctx any) {
		t.Helper()
		e, src := wait(t, b.rx)
		if e.Len != 100+int(tag-base) || e.Tag != tag || e.Context != ctx || e.Flags != fi.Recv|fi.Tagged|fi.RemoteCQData ||
			e.Data != tag || src != toA || e.Buf != nil {
			t.Fatalf("%+v from %v, want tag %#x", e, src, tag)
		}
	}
	look(base, fi.Peek, "early")
	miss("early")
	for i := range uint64(6) {
		flags := fi.RemoteCQData
		if i < 5 {
			flags |= fi.More
		}
		ok(t, a.TSendMsg(&TMsg{Iov: [][]byte{pattern(100+int(i), i)}, Addr: toB, Tag: base + i, Data: base + i}, flags))
	}
	for range 6 {
		if e, _ := wait(t, a.tx, b); e.Flags != fi.Send|fi.Tagged {
			t.Errorf("%+v", e)
		}
	}
	recv := func(tag uint64, flags fi.Flags, ctx any) {
		t.Helper()
		buf := make([]byte, 200)
		ok(t, b.TRecvMsg(&TMsg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Tag: tag, Context: ctx}, flags))
		hit(tag, ctx)
		if !bytes.Equal(buf[:100+tag-base], pattern(100+int(tag-base), tag-base)) {
			t.Fatal("the bytes differ")
		}
	}
	look(base+1, fi.Peek, "p")
	hit(base+1, "p")
	look(base+1, fi.Peek, "p") // it is still there
	hit(base+1, "p")
	look(base+77, fi.Peek, "none")
	miss("none")
	look(base+2, fi.Peek|fi.Claim, "c")
	hit(base+2, "c")
	look(base+2, fi.Peek, "c") // others do not find it
	miss("c")
	recv(base+2, fi.Claim, "c")
	look(base+3, fi.Peek|fi.Claim, "d")
	hit(base+3, "d")
	look(base+3, fi.Claim|fi.Discard, "d")
	hit(base+3, "d")
	look(base+4, fi.Peek|fi.Discard, "e")
	hit(base+4, "e")
	look(base+4, fi.Peek, "e")
	miss("e")
	recv(base+5, 0, "late") // out of order
	recv(base, 0, "first")
	recv(base+1, 0, "second")
	if n := b.rx.Reserved(); n != 0 {
		t.Errorf("%d places stay reserved", n)
	}
	// A look always has its completion.
	s := r.node(func(o *options) { o.rxFlags = fi.SelectiveCompletion })
	toS := a.know(s)
	ok(t, a.TSend(nil, toS, 1, nil))
	wait(t, a.tx, s)
	ok(t, s.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 1, Context: "look"}, fi.Peek))
	if e, _ := wait(t, s.rx, a); e.Context != "look" {
		t.Errorf("%+v", e)
	}
}

func TestLooksAreNotCounted(t *testing.T) {
	t.Parallel()
	// R-CNTR-03: a counter of receives counts messages that were received. It does not count
	// what a peek saw, missed or dropped. It counts a claimed message when it comes, and each
	// message of a multi-receive buffer.
	r := newRig(t, nil)
	got := r.counter(cntr.Attr{})
	a := r.node()
	b := r.node(func(o *options) { o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(got, fi.Recv)) } })
	toB := a.know(b)
	for range 2 {
		ok(t, a.TSend(nil, toB, 1, nil))
		wait(t, a.tx, b)
	}
	for _, f := range []fi.Flags{fi.Peek, fi.Peek | fi.Discard, fi.Peek | fi.Claim, fi.Claim} {
		ok(t, b.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 1, Context: 1}, f))
		wait(t, b.rx, a)
	}
	ok(t, b.TRecvMsg(&TMsg{Addr: fi.AddrUnspec, Tag: 1}, fi.Peek))
	waitErr(t, b.rx, a)
	ok(t, b.RecvMsg(&Msg{Iov: [][]byte{make([]byte, 300)}, Addr: fi.AddrUnspec}, fi.MultiRecv))
	for range 2 {
		ok(t, a.Send(make([]byte, 10), toB, nil))
		wait(t, b.rx, a)
	}
	if v, e := got.Read(), got.ReadErr(); v != 3 || e != 0 {
		t.Errorf("%d receives, %d errors", v, e)
	}
}

func TestMultiRecvNoAllocs(t *testing.T) {
	r := newRig(t, &Info{Domain: DomainAttr{DataProgress: fi.ProgressManual}})
	a, b, toB, _ := r.pair()
	buf, es := make([]byte, 8*64), make([]cq.Entry, 16)
	m := &Msg{Iov: [][]byte{buf}, Addr: fi.AddrUnspec, Context: m0}
	round := func() {
		if err := b.RecvMsg(m, fi.MultiRecv); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			if err := a.Inject(buf[:64], toB); err != nil {
				t.Fatal(err)
			}
		}
		for released := false; !released; {
			n, _ := b.rx.Read(es)
			for _, e := range es[:max(n, 0)] {
				released = released || e.Flags&fi.MultiRecv != 0
			}
			_, _ = a.tx.Read(es)
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 { // F9
		t.Errorf("%v allocations for a buffer of 8 messages", n)
	}
}

// m0 is a context that needs no memory.
var m0 any = new(int)

func TestUnexpectedFromAPeerNotYetKnown(t *testing.T) {
	t.Parallel()
	// fabtests unexpected_msg: a message of a peer that is not in the AV matches a receive
	// from any source, and a directed one once the peer is inserted.
	r := newRig(t, nil)
	a, b := r.node(), r.node()
	toB := a.know(b)
	for k := range 2 {
		ok(t, a.TSendData(pattern(3000, uint64(k)), uint64(k), toB, 9, nil))
		wait(t, a.tx, b)
	}
	buf := make([]byte, 3000)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 9, 0, nil))
	if e, src := wait(t, b.rx, a); src != fi.AddrNotAvail || e.Data != 0 || !bytes.Equal(buf, pattern(3000, 0)) {
		t.Errorf("%+v from %v", e, src)
	}
	toA := b.know(a)
	ok(t, b.TRecv(buf, toA, 9, 0, nil))
	if e, src := wait(t, b.rx, a); src != toA || e.Data != 1 || !bytes.Equal(buf, pattern(3000, 1)) {
		t.Errorf("%+v from %v", e, src)
	}
}

func TestRefusedBeforeAMultiRecvThatFindsNoRoom(t *testing.T) {
	t.Parallel()
	// Two receives wait for the driver's lock. The first is refused because its source is
	// gone. The second is a multi-receive buffer, for which messages have arrived, but the
	// queue to which the refusal was written has no room for them.
	r := newRig(t, &Info{Caps: fi.Msg | fi.Tagged | fi.DirectedRecv | fi.MultiRecv})
	small := func(o *options) { o.attr.Size = 64 }
	a, b, toB, toA := r.pair(small)
	const msgs = 4
	for range msgs {
		ok(t, a.Send([]byte("x"), toB, nil))
	}
	for n := 0; n < msgs; b.drv.With(func() { n = b.fep.Unexpected() }) {
		a.tx.Read(nil)
		b.rx.Read(nil)
	}
	for range 62 {
		ok(t, b.TRecv(nil, fi.AddrUnspec, 7, 0, nil))
	}
	ok(t, b.SetOpt(fi.OptMinMultiRecv, 1))
	b.drv.With(func() {
		ok(t, b.Recv(nil, toA, "refused"))
		ok(t, b.RecvMsg(&Msg{Iov: [][]byte{make([]byte, 100)}, Addr: fi.AddrUnspec}, fi.MultiRecv))
		ok(t, b.vec.Remove(toA))
	})
	if e := waitErr(t, b.rx, a); e.Context != "refused" {
		t.Errorf("%+v", e)
	}
	var e [1]cq.Entry
	for n := 0; n < msgs; {
		k, _ := b.rx.Read(e[:])
		a.tx.Read(nil)
		n += k
	}
}
