package cq

import (
	"flag"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/invariant"
)

func TestFormats(t *testing.T) {
	// R-CQ-12 to -16: each format has the fields of the one before and more.
	// R-CQ-17, -136: what a format does not have is dropped at the entry.
	all := Entry{Context: "c", Flags: fi.Recv | fi.Tagged, Len: 1, Buf: []byte{2}, Data: 3, Tag: 4}
	for _, c := range []struct {
		format fi.CQFormat
		want   Entry
	}{
		{fi.CQUnspec, Entry{Context: "c"}},
		{fi.CQContext, Entry{Context: "c"}},
		{fi.CQMsg, Entry{Context: "c", Flags: all.Flags, Len: 1}},
		{fi.CQData, Entry{Context: "c", Flags: all.Flags, Len: 1, Buf: all.Buf, Data: 3}},
		{fi.CQTagged, all},
	} {
		// However they are read: one by one, a few at once, or so many that they are
		// copied in runs, one of which ends where the ring does.
		for _, n := range []int{1, few, few + 1, firstSize} {
			q := open(t, Attr{Format: c.format})
			put(q, numbered(0, firstSize/2)...)
			if _, err := q.Read(make([]Entry, firstSize/2)); err != nil {
				t.Fatal(err)
			}
			for range n {
				put(q, all)
			}
			e := make([]Entry, n)
			if k, err := q.Read(e); k != n || err != nil {
				t.Fatalf("%v: %d of %d, %v", c.format, k, n, err)
			}
			for i := range e {
				if !reflect.DeepEqual(e[i], c.want) {
					t.Errorf("%v, %d of %d: %+v", c.format, i+1, n, e[i])
					break
				}
			}
		}
	}
}

func TestReserve(t *testing.T) {
	// R-CQ-127: no more operations than places. R-CQ-128: one place for each,
	// errors included; L-30: an entry that waits to be read has one too.
	q := open(t, Attr{Size: 64})
	for range 64 {
		if !q.Reserve(1) {
			t.Fatal("no room in an empty queue")
		}
	}
	if q.Reserve(1) {
		t.Fatal("room for more than it holds")
	}
	w := q.Begin()
	for i := range 32 {
		w.Put(&Entry{Context: i}, 0, true)
	}
	w.PutErr(&Error{Err: fi.EIO}, true)
	w.End()
	if q.Reserve(1) || q.Reserved() != 31 {
		t.Fatalf("room although nothing was read; %d reserved", q.Reserved())
	}
	wantRead(t, q, 10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	if q.Reserve(11) || !q.Reserve(10) {
		t.Error("reading ten entries makes room for ten")
	}
	q.Unreserve(41)
	if q.Reserved() != 0 || q.Overrun() {
		t.Error(q.Reserved())
	}
	e := make([]Entry, 64)
	q.Read(e)
	wantReadErr(t, q, fi.EIO)
	if !q.Reserve(64) {
		t.Error("an error that was read keeps its place")
	}
}

func TestReserveMisuse(t *testing.T) {
	for name, misuse := range map[string]func(*CQ){
		"given back twice":      func(q *CQ) { q.Unreserve(1) },
		"put without a promise": func(q *CQ) { w := q.Begin(); w.Put(&Entry{}, 0, true); w.End() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("our own bug goes unseen")
				}
			}()
			misuse(open(t, Attr{}))
		})
	}
}

func TestOverrun(t *testing.T) {
	q := open(t, Attr{Size: 64, Format: fi.CQTagged})
	put(q, numbered(0, 63)...)
	putErr(q, Error{Err: fi.EIO})
	if q.Overrun() {
		t.Fatal("overrun although everything fits")
	}
	// R-CQ-122, -129: one more is lost, and the queue is in overrun.
	w := q.Begin()
	if w.Put(&Entry{Context: "lost"}, 0, false) {
		t.Error("the entry that does not fit was taken")
	}
	w.End()
	if !q.Overrun() || q.Reserve(1) {
		t.Fatal("no overrun")
	}
	// R-CQ-123: what was there before is read, in order.
	if n, err := q.ReadErr(new(Error), 0); n != 0 || err != fi.EAGAIN {
		t.Errorf("told of the overrun before what was there: %d, %v", n, err)
	}
	e := make([]Entry, 100)
	if n, err := q.Read(e); n != 63 || err != nil || e[62].Context != 62 {
		t.Fatal(n, err)
	}
	wantNothing(t, q, fi.EAVAIL)
	wantReadErr(t, q, fi.EIO)
	// R-CQ-124: then EOVERRUN, on every attempt.
	for range 3 {
		wantNothing(t, q, fi.EAVAIL)
		_, err := q.Read(nil)
		wantErr(t, err, fi.EAVAIL)
		if e := wantReadErr(t, q, fi.EOVERRUN); e.Context != nil || e.Source != fi.AddrNotAvail {
			t.Error(e)
		}
	}
	// R-CQ-125: nothing is ever reported again.
	w = q.Begin()
	if w.Put(&Entry{}, 0, false) || w.PutErr(&Error{}, false) {
		t.Error("an entry was taken after the overrun")
	}
	w.End()
	wantNothing(t, q, fi.EAVAIL)
}

func TestOverrunSparesReservations(t *testing.T) {
	// R-CQ-127: a place that is promised is not given to an entry without one:
	// the latter overruns the queue.
	q := open(t, Attr{Size: 64})
	q.Reserve(1)
	put(q, numbered(0, 63)...)
	if q.Overrun() {
		t.Fatal("overrun with 63 entries")
	}
	put(q, Entry{})
	if !q.Overrun() {
		t.Error("a promised place was given away")
	}
	// A promise that can no longer be kept is neither a panic nor a leak.
	w := q.Begin()
	if w.Put(&Entry{}, 0, true) {
		t.Error("an entry was taken after the overrun")
	}
	w.End()
	if q.Reserved() != 0 {
		t.Error(q.Reserved())
	}
}

func TestOfferErrTakesWhatIsFree(t *testing.T) {
	// R-EP-14: an error that may be dropped takes neither a promised place nor the
	// queue from others.
	q := open(t, Attr{Size: 64})
	q.Reserve(1)
	put(q, numbered(0, 62)...)
	offer := func(want bool) {
		t.Helper()
		w := q.Begin()
		defer w.End()
		if w.OfferErr(&Error{Err: fi.ECANCELED}) != want {
			t.Error("not", want)
		}
	}
	offer(true)
	offer(false)
	if q.Overrun() || q.Reserved() != 1 {
		t.Fatal(q.Overrun(), q.Reserved())
	}
	if n, err := q.Read(make([]Entry, 100)); n != 62 || err != nil {
		t.Fatal(n, err)
	}
	offer(true)
	wantReadErr(t, q, fi.ECANCELED)
	wantReadErr(t, q, fi.ECANCELED)
	put(q, numbered(0, 64)...)
	offer(false) // overrun
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	offer(false)
}

func TestSharedByManagedAndUnmanaged(t *testing.T) {
	// A failing Reserve must never be the reason of an overrun.
	q := open(t, Attr{Size: 64})
	put(q, numbered(0, 63)...)
	if q.Reserve(2) {
		t.Fatal("two places where one is left")
	}
	put(q, Entry{})
	if q.Overrun() {
		t.Error("overrun by a reservation that failed")
	}
}

// soak is how many entries TestSoak passes through a queue.
var soak = flag.Int("soak", 0, "entries of the soak test (default 10,000,000; a twentieth with -race)")

func TestSoak(t *testing.T) {
	// R-CQ-50: in order through a small queue, with wrap-around and growth, and an
	// error now and then.
	total := *soak
	if total == 0 {
		if total = 10_000_000; invariant.On {
			total /= 20
		}
	}
	q := open(t, Attr{Size: 2048, Format: fi.CQTagged})
	e, src := make([]Entry, 50), make([]fi.Addr, 50)
	var failed Error
	written, read := 0, 0
	for read < total {
		for batch := 1 + written%37; batch > 0 && q.Reserve(1); batch-- {
			w := q.Begin()
			if written%1009 == 0 {
				w.PutErr(&Error{Tag: uint64(written), Err: fi.EIO}, true)
			} else {
				w.Put(&Entry{Tag: uint64(written)}, fi.Addr(written), true)
			}
			w.End()
			written++
		}
		k := 1 + read%len(e)
		got, err := q.ReadFrom(e[:k], src)
		for i := range got {
			if e[i].Tag != uint64(read) || src[i] != fi.Addr(read) || read%1009 == 0 {
				t.Fatalf("entry %d from %d came as number %d", e[i].Tag, src[i], read)
			}
			read++
		}
		if err == fi.EAVAIL {
			if n, err := q.ReadErr(&failed, 0); n != 1 || failed.Tag != uint64(read) {
				t.Fatalf("error %d came as number %d, %v", failed.Tag, read, err)
			}
			read++
		}
	}
	if n := q.Reserved(); n != 0 || q.Overrun() {
		t.Errorf("%d places are reserved", n)
	}
}

func TestAdmitGoesOneBeyond(t *testing.T) {
	// R-CQ-127: a completion that nobody reserved a place for gets one while
	// there is something free, or nothing to read; never more than one beyond.
	q, err := New(Attr{Size: 64}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !q.Reserve(63) || !q.Admit() || !q.Admit() || q.Admit() || q.Reserve(1) {
		t.Fatalf("%d places", q.Reserved())
	}
	w := q.Begin()
	for range 65 {
		if !w.Put(&Entry{}, 0, true) {
			t.Fatal("a promised place is not there")
		}
	}
	w.End()
	if q.Overrun() || q.Admit() {
		t.Fatal("beyond the size with something to read")
	}
	if n, err := q.Read(make([]Entry, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if !q.Admit() || q.Admit() || q.Reserve(1) {
		t.Fatal("one place was free")
	}
}

func TestCompleteSaysNo(t *testing.T) {
	// Then nothing has happened, and the promise still stands.
	q := open(t, Attr{Format: fi.CQTagged})
	completes := func(want bool) {
		t.Helper()
		if !q.Reserve(1) {
			t.Fatal("no room")
		}
		reserved, unread := q.Reserved(), q.Unread()
		if got := q.Complete("c", fi.Send, 1, 2, 3); got != want {
			t.Fatalf("complete: %v", got)
		}
		if want {
			reserved, unread = reserved-1, unread+1
		}
		if q.Reserved() != reserved || q.Unread() != unread {
			t.Errorf("%d reserved, %d unread; want %d, %d", q.Reserved(), q.Unread(), reserved, unread)
		}
	}
	e, src := make([]Entry, 2), make([]fi.Addr, 2)
	put(q, Entry{Context: "p"})
	completes(true)
	if n, err := q.ReadFrom(e, src); n != 2 || err != nil || src[1] != 3 || e[1].Context != "c" || e[1].Flags != fi.Send || e[1].Len != 1 || e[1].Tag != 2 {
		t.Errorf("%d, %v: %+v from %v", n, err, e, src)
	}
	putErr(q, Error{Err: fi.EIO}) // an error wakes whoever waits, also for more than this
	completes(false)
	var failed Error
	if n, err := q.ReadErr(&failed, 0); n != 1 {
		t.Fatal(err)
	}
	put(q, Entry{Context: "p"})
	completes(true)
	for !q.Overrun() {
		put(q, Entry{})
	}
	if q.Complete("c", fi.Send, 1, 2, 3) {
		t.Error("into a queue that has overrun")
	}
	if err := q.Close(); err != nil || q.Complete("c", fi.Send, 1, 2, 3) {
		t.Errorf("closed (%v), and it takes more", err)
	}
}

func TestCompleteFillsTheQueue(t *testing.T) {
	// As far as there are promises, also round the end of the ring and where it grows.
	q := open(t, Attr{Size: 1024})
	said := 0
	for range 5 {
		for i := range 1000 {
			if !q.Take() {
				t.Fatal("no room")
			}
			if q.Complete(i, 0, 0, 0, 0) {
				said++
				continue
			}
			w := q.Begin()
			w.Complete(i, 0, 0, 0, 0)
			w.End()
		}
		for i := range 1000 {
			wantRead(t, q, 1, i)
		}
		if !q.Reserve(1024) { // what was read makes room, for one who looks
			t.Fatal("no room")
		}
		q.Unreserve(1024)
	}
	if said < 4900 {
		t.Errorf("%d of 5000 were completed by one call", said)
	}
}

func TestCompleteWakes(t *testing.T) {
	// R-CQ-27, -28: as any insertion does, if it makes enough.
	synctest.Test(t, func(t *testing.T) {
		q := sleepy(t)
		put(q, Entry{})
		wantRead(t, q, 1, nil)
		r := sread(q, 0)
		synctest.Wait()
		if !q.Reserve(1) || !q.Complete("c", 0, 0, 0, 0) {
			t.Fatal("not completed")
		}
		if got := <-r; got.n != 1 || got.first != "c" {
			t.Error(got)
		}
	})
}

func TestCompleteShowsIt(t *testing.T) {
	// R-CQ-39: to those who wait on the channel, too.
	q := open(t, Attr{WaitObj: fi.WaitMutexCond})
	c, err := q.Chan()
	if err != nil {
		t.Fatal(err)
	}
	put(q, Entry{})
	wantRead(t, q, 1, nil)
	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	if !q.Reserve(1) || !q.Complete("c", 0, 0, 0, 0) || len(c) != 1 {
		t.Errorf("%d tokens", len(c))
	}
}
