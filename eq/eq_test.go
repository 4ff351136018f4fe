package eq

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

func open(t *testing.T, attr Attr) *EQ {
	t.Helper()
	q, err := New(attr, "ctx")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func bind(t testing.TB, q *EQ, places int) *binding {
	t.Helper()
	b, err := q.Bind(places)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantErr(t *testing.T, err error, want fi.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestReadInOrder(t *testing.T) {
	// R-EQ-23, -28, -30: one event a call, in order of insertion; EAGAIN when
	// there is none. R-EQ-29, -52: an error keeps its place.
	q := open(t, Attr{})
	_, err := q.Read(0)
	wantErr(t, err, fi.EAGAIN)
	q.Put(Entry{Event: fi.Connected, Context: 1})
	q.PutErr(Error{Err: fi.ECONNREFUSED, Prov: 7})
	q.Put(Entry{Event: fi.Shutdown, Context: 2})
	_, err = q.ReadErr(0)
	wantErr(t, err, fi.EAGAIN)
	if e, err := q.Read(0); err != nil || e.Event != fi.Connected {
		t.Error(e, err)
	}
	for range 2 {
		_, err = q.Read(fi.Peek)
		wantErr(t, err, fi.EAVAIL)
	}
	// R-EQ-59: peek leaves the error in place.
	q.ReadErr(fi.Peek)
	if e, err := q.ReadErr(0); err != nil || e.Err != fi.ECONNREFUSED || e.Prov != 7 || !errors.Is(&e, fi.ECONNREFUSED) {
		t.Error(e, err)
	}
	if e, err := q.Read(0); err != nil || e.Event != fi.Shutdown {
		t.Error(e, err)
	}
}

func TestPeekLeavesTheEvent(t *testing.T) {
	// R-EQ-27.
	q := open(t, Attr{})
	q.Put(Entry{Data: 5})
	for _, f := range []fi.Flags{fi.Peek, fi.Peek, 0} {
		if e, err := q.Read(f); err != nil || e.Data != 5 {
			t.Error(e, err)
		}
	}
	_, err := q.Read(0)
	wantErr(t, err, fi.EAGAIN)
	for bit := range 64 { // R-EQ-31
		if f := fi.Flags(1) << bit; f != fi.Peek {
			_, err = q.Read(f)
			wantErr(t, err, fi.EINVAL)
			_, err = q.ReadErr(f)
			wantErr(t, err, fi.EINVAL)
		}
	}
}

func TestWrite(t *testing.T) {
	// R-EQ-05, -06, -60, -67.
	for _, flags := range []fi.Flags{0, fi.Affinity} {
		q := open(t, Attr{Flags: flags})
		wantErr(t, q.Write(Entry{}), fi.EINVAL)
		_, err := q.Read(0)
		wantErr(t, err, fi.EAGAIN)
	}
	q := open(t, Attr{Flags: fi.Write, Size: 2})
	for i := range 2 {
		if err := q.Write(Entry{Data: uint64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, q.Write(Entry{}), fi.EAGAIN)
	if e, _ := q.Read(0); e.Data != 0 {
		t.Error(e)
	}
}

func TestOverrun(t *testing.T) {
	// R-EQ-62 to -66: valid events are still read, then every read reports the
	// overrun; it is final.
	q := open(t, Attr{Flags: fi.Write, Size: 2})
	for range 4 {
		q.Put(Entry{})
	}
	wantErr(t, q.Write(Entry{}), fi.EOVERRUN)
	q.Read(0)
	q.Read(0)
	for range 2 {
		_, err := q.Read(0)
		wantErr(t, err, fi.EAVAIL)
		if e, err := q.ReadErr(0); err != nil || e.Err != fi.EOVERRUN || e.Lost != 2 {
			t.Error(e, err)
		}
	}
	if q.Put(Entry{}) || bind(t, q, 1).Offer(Entry{}) {
		t.Error("an event was taken after the overrun")
	}
}

func TestOpenAttributes(t *testing.T) {
	// R-EQ-03, -04, -15. R-EQ-11: a wait set must be named and open.
	set, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec})
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, Attr{WaitObj: fi.WaitSet, WaitSet: set}).Close(); err != nil {
		t.Error(err)
	}
	set.Close()
	for _, a := range []Attr{
		{Size: -1},
		{Size: MaxSize + 1},
		{Flags: fi.Read},
		{Flags: fi.Write | fi.Peer},
		{ResourceMgmt: fi.RMEnabled + 1},
		{WaitObj: fi.WaitSet},
		{WaitObj: fi.WaitSet, WaitSet: set},
		{WaitObj: fi.WaitPollFD},
		{WaitObj: 99},
	} {
		_, err := New(a, nil)
		wantErr(t, err, fi.EINVAL)
	}
	// R-EQ-11: a set that is not asked for is ignored. R-EQ-07: affinity is a
	// hint, and the vector is ignored without it.
	open(t, Attr{WaitSet: set})
	open(t, Attr{SignalingVector: -1})
	// R-EQ-08: the wait object is none. R-EQ-22: the context is kept.
	q := open(t, Attr{Flags: fi.Affinity, SignalingVector: 3})
	if a := q.Attr(); a.Size != DefaultSize || a.WaitObj != fi.WaitNone || q.Context() != "ctx" {
		t.Error(a, q.Context())
	}
	// R-EQ-03: at least as many as asked for.
	for _, size := range []int{1, 2, 3, 100, MaxSize} {
		q := open(t, Attr{Size: size})
		for range size {
			if !q.Put(Entry{}) {
				t.Errorf("a queue of %d overran", size)
			}
		}
	}
}

func TestBlockingRead(t *testing.T) {
	q := open(t, Attr{})
	_, err := q.SRead(0, -1)
	wantErr(t, err, fi.EINVAL) // R-EQ-09, -51
	wantErr(t, q.Signal(), fi.EINVAL)

	q = open(t, Attr{WaitObj: fi.WaitUnspec})
	_, err = q.SRead(0, 0)
	wantErr(t, err, fi.EAGAIN)
	_, err = q.SRead(0, time.Millisecond)
	wantErr(t, err, fi.EAGAIN) // R-EQ-50
	// R-EQ-48: an event ends it.
	got := make(chan Entry)
	go func() {
		e, _ := q.SRead(0, -1)
		got <- e
	}()
	q.Put(Entry{Data: 9})
	if e := <-got; e.Data != 9 {
		t.Error(e)
	}
	// R-EQ-49: Signal ends it, also when it comes first.
	q.Signal()
	_, err = q.SRead(0, -1)
	wantErr(t, err, fi.EAGAIN)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = q.SReadContext(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// An error ends it.
	q.PutErr(Error{Err: fi.EIO})
	_, err = q.SRead(0, -1)
	wantErr(t, err, fi.EAVAIL)
}

func TestClose(t *testing.T) {
	// R-EQ-17, -18.
	q := open(t, Attr{WaitObj: fi.WaitUnspec})
	b, other := bind(t, q, 0), bind(t, q, 2)
	b.Unbind()
	b.Unbind() // undoes nothing else
	wantErr(t, q.Close(), fi.EBUSY)
	q.Put(Entry{Data: 1}) // it stays usable
	if e, err := q.Read(fi.Peek); err != nil || e.Data != 1 {
		t.Error(e, err)
	}
	other.Unbind()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, q.Close(), fi.EBADF)
	_, err := q.Bind(1)
	wantErr(t, err, fi.EBADF)
	wantErr(t, q.BindProgress(new(idle)), fi.EBADF)
	_, err = q.Read(0)
	wantErr(t, err, fi.EBADF)
	_, err = q.ReadErr(0)
	wantErr(t, err, fi.EBADF)
	_, err = q.SRead(0, -1)
	wantErr(t, err, fi.EBADF)
	for _, f := range []func() error{q.Signal, q.TryWait, func() error { _, err := q.FD(); return err }} {
		if err := f(); err == nil {
			t.Error("a closed queue works")
		}
	}
	if q.Put(Entry{}) || q.PutErr(Error{}) || other.Put(Entry{}) || other.Offer(Entry{}) || !q.Closed() {
		t.Error("a closed queue took an event")
	}
}

func TestStrError(t *testing.T) {
	// R-EQ-61: never empty.
	q := open(t, Attr{StrError: func(p uint32) string {
		if p == 1 {
			return "one"
		}
		return ""
	}})
	if q.StrError(1) != "one" || q.StrError(2) != "provider error 0x2" {
		t.Error(q.StrError(1), q.StrError(2))
	}
}
