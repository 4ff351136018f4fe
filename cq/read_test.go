package cq

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestReadInOrder(t *testing.T) {
	// R-CQ-45: 1 … count entries. R-CQ-46: EAGAIN when there is none, never 0.
	// R-CQ-50: in order of insertion. R-CQ-54: also before anything is bound.
	q := open(t, Attr{})
	wantNothing(t, q, fi.EAGAIN)
	put(q, numbered(0, 3)...)
	put(q, numbered(3, 5)...)
	wantRead(t, q, 2, 0, 1)
	wantRead(t, q, 10, 2, 3, 4)
	wantNothing(t, q, fi.EAGAIN)
}

func TestReadNeverBlocks(t *testing.T) {
	// R-CQ-44, -76: no read waits, whatever blocked readers, a wait object or an
	// endpoint with nothing to do there are: no time passes in the bubble.
	synctest.Test(t, func(t *testing.T) {
		for _, obj := range []fi.WaitObj{fi.WaitNone, fi.WaitUnspec, fi.WaitMutexCond, fi.WaitYield} {
			q := open(t, Attr{WaitObj: obj, Spin: -1})
			ep := new(idle)
			q.Bind(ep)
			if obj == fi.WaitUnspec {
				r := sread(q, 0)
				synctest.Wait()
				defer func() { q.Unbind(ep); q.Close(); <-r }()
			}
			start := time.Now()
			for range 100 {
				wantNothing(t, q, fi.EAGAIN)
				_, err := q.ReadFrom(make([]Entry, 2), make([]fi.Addr, 2))
				wantErr(t, err, fi.EAGAIN)
				_, err = q.Read(nil)
				wantErr(t, err, fi.EAGAIN)
				_, err = q.ReadErr(new(Error), 0)
				wantErr(t, err, fi.EAGAIN)
			}
			if d := time.Since(start); d != 0 {
				t.Errorf("%v: reads took %v", obj, d)
			}
		}
	})
}

func TestReturnValues(t *testing.T) {
	// R-CQ-130: what each call gives in each state of the queue.
	type state struct {
		name                   string
		make                   func(q *CQ)
		read, none, sread, err error // Read, Read of nothing, SRead without waiting, ReadErr
		n, errN                int
	}
	for _, s := range []state{
		{"empty", func(*CQ) {}, fi.EAGAIN, fi.EAGAIN, fi.EAGAIN, fi.EAGAIN, 0, 0},
		{"entries", func(q *CQ) { put(q, numbered(0, 3)...) }, nil, nil, nil, fi.EAGAIN, 2, 0},
		{"an error", func(q *CQ) { putErr(q, Error{Err: fi.EIO}) }, fi.EAVAIL, fi.EAVAIL, fi.EAVAIL, nil, 0, 1},
		{"an entry, then an error", func(q *CQ) { put(q, Entry{}); putErr(q, Error{Err: fi.EIO}) }, nil, nil, nil, fi.EAGAIN, 1, 0},
		{"overrun", func(q *CQ) { put(q, numbered(0, 65)...); q.Read(make([]Entry, 64)) }, fi.EAVAIL, fi.EAVAIL, fi.EAVAIL, nil, 0, 1},
		{"closed", func(q *CQ) { q.Close() }, fi.EBADF, fi.EBADF, fi.EBADF, fi.EBADF, 0, 0},
	} {
		for name, read := range map[string]func(*CQ) (int, error){
			"read":      func(q *CQ) (int, error) { return q.Read(make([]Entry, 2)) },
			"readfrom":  func(q *CQ) (int, error) { return q.ReadFrom(make([]Entry, 2), make([]fi.Addr, 2)) },
			"sread":     func(q *CQ) (int, error) { return q.SRead(make([]Entry, 2), 0, 0) },
			"sreadfrom": func(q *CQ) (int, error) { return q.SReadFrom(make([]Entry, 2), make([]fi.Addr, 2), 0, 0) },
			"nothing":   func(q *CQ) (int, error) { return q.Read(nil) },
			"readerr":   func(q *CQ) (int, error) { return q.ReadErr(new(Error), 0) },
		} {
			q := open(t, Attr{WaitObj: fi.WaitUnspec, Size: 64})
			s.make(q)
			n, err := read(q)
			wantN, want := s.n, s.read
			switch name {
			case "sread", "sreadfrom":
				want = s.sread
			case "nothing":
				wantN, want = 0, s.none
			case "readerr":
				wantN, want = s.errN, s.err
			}
			if n != wantN || !errors.Is(err, want) {
				t.Errorf("%s of %s: %d, %v; want %d, %v", name, s.name, n, err, wantN, want)
			}
			// Signal gives nothing or what is wrong, StrError always a text.
			if err := q.Signal(); (err == nil) != (s.name != "closed") {
				t.Errorf("signal of %s: %v", s.name, err)
			}
			if q.StrError(0) == "" {
				t.Error("no text")
			}
		}
	}
}

func TestReadStopsAtAnError(t *testing.T) {
	q := open(t, Attr{Format: fi.CQTagged})
	put(q, numbered(0, 2)...)
	putErr(q, Error{Err: fi.ECANCELED, Context: "a"})
	putErr(q, Error{Err: fi.ETRUNC, Context: "b"})
	put(q, numbered(2, 3)...)
	// R-CQ-78: the error is not at the head yet.
	n, err := q.ReadErr(new(Error), 0)
	if n != 0 {
		t.Error("an error was read out of turn")
	}
	wantErr(t, err, fi.EAGAIN)
	// R-CQ-48: good entries before it are read first.
	wantRead(t, q, 10, 0, 1)
	// R-CQ-47, -49: then EAVAIL, until readerr, and nothing is consumed.
	for range 3 {
		wantNothing(t, q, fi.EAVAIL)
	}
	// R-CQ-77: one at a time. R-CQ-50: errors keep their place.
	if e := wantReadErr(t, q, fi.ECANCELED); e.Context != "a" {
		t.Error(e)
	}
	wantNothing(t, q, fi.EAVAIL)
	wantReadErr(t, q, fi.ETRUNC)
	wantRead(t, q, 10, 2)
	// R-CQ-76, -78.
	n, err = q.ReadErr(new(Error), 0)
	if n != 0 {
		t.Error("an error was read from an empty queue")
	}
	wantErr(t, err, fi.EAGAIN)
}

func TestReadNothing(t *testing.T) {
	// R-CQ-51: count 0 drives progress, gives EAGAIN when nothing is queued, 0
	// when something is.
	q := open(t, Attr{})
	ep := &scripted{q: q}
	q.Bind(ep)
	_, err := q.Read(nil)
	wantErr(t, err, fi.EAGAIN)
	put(q, Entry{Context: 1})
	if n, err := q.Read([]Entry{}); n != 0 || err != nil {
		t.Error(n, err)
	}
	if ep.polls != 2 {
		t.Errorf("polled %d times, want 2", ep.polls)
	}
	wantRead(t, q, 1, 1)
	putErr(q, Error{Err: fi.EIO})
	_, err = q.Read(nil)
	wantErr(t, err, fi.EAVAIL)
}

// scripted is an endpoint that completes what it is told at its next poll.
type scripted struct {
	idle
	q     *CQ
	next  []Entry
	polls int
}

func (s *scripted) Poll() bool {
	s.polls++
	if s.next == nil {
		return false
	}
	put(s.q, s.next...)
	s.next = nil
	return true
}

func TestReadDrivesProgress(t *testing.T) {
	// R-CQ-52: a read of an empty queue makes progress and finds what that
	// completed. R-CQ-34: every endpoint of the queue, once each.
	q := open(t, Attr{})
	a, b := &scripted{q: q}, &scripted{q: q}
	q.Bind(a)
	q.Bind(b)
	q.Bind(b)
	a.next, b.next = numbered(0, 1), numbered(1, 2)
	wantRead(t, q, 10, 0, 1)
	if a.polls != 1 || b.polls != 1 {
		t.Errorf("polled %d and %d times", a.polls, b.polls)
	}
}

func TestReadNeverStarvesProgress(t *testing.T) {
	// R-CQ-52 says every read; a full queue is read without, but not for ever.
	q := open(t, Attr{})
	ep := &scripted{q: q}
	q.Bind(ep)
	put(q, numbered(0, 1000)...)
	for i := range 1000 {
		wantRead(t, q, 1, i)
	}
	if ep.polls < 1000/pollEvery || ep.polls > 1000/pollEvery+1 {
		t.Errorf("%d polls in 1000 reads of a full queue", ep.polls)
	}
}

func TestReadOfLoneEntriesNeverStarvesProgress(t *testing.T) {
	// R-CQ-52, on the short way of one entry at a time.
	q := open(t, Attr{})
	ep := &scripted{q: q}
	q.Bind(ep)
	for i := range 1000 {
		put(q, Entry{Context: i})
		wantRead(t, q, 1, i)
	}
	if ep.polls < 1000/pollEvery || ep.polls > 1000/pollEvery+1 {
		t.Errorf("%d polls in 1000 reads of a queue with one entry", ep.polls)
	}
}

func TestReadAfterUnbind(t *testing.T) {
	// R-CQ-37: an endpoint that is gone is driven no more.
	q := open(t, Attr{})
	ep := &scripted{q: q}
	q.Bind(ep)
	q.Unbind(ep)
	wantNothing(t, q, fi.EAGAIN)
	if ep.polls > 0 {
		t.Error("an unbound endpoint was polled")
	}
}

func TestReadFromSources(t *testing.T) {
	// R-CQ-55, -56: one source address per entry, in order.
	q := open(t, Attr{})
	w := q.Begin()
	for i, src := range []fi.Addr{7, fi.AddrNotAvail, 0} {
		w.Put(&Entry{Context: i}, src, false)
	}
	w.End()
	e, src := make([]Entry, 2), make([]fi.Addr, 2)
	if n, err := q.ReadFrom(e, src); n != 2 || err != nil || src[0] != 7 || src[1] != fi.AddrNotAvail {
		t.Error(n, err, src)
	}
	if n, err := q.ReadFrom(e, src); n != 1 || err != nil || src[0] != 0 {
		t.Error(n, err, src)
	}
	// However many are read at once, and wherever they lie.
	for from := range 5 {
		put(q, numbered(0, from)...)
		q.Read(make([]Entry, from+1))
		w = q.Begin()
		for i := range 20 {
			w.Put(&Entry{Context: i}, fi.Addr(100+i), false)
		}
		w.End()
		for _, n := range []int{2, 8, 10} {
			e, src := make([]Entry, n), make([]fi.Addr, n)
			if k, err := q.ReadFrom(e, src); k != n || err != nil {
				t.Fatal(k, err)
			}
			for i := range e {
				if want := fi.Addr(100 + e[i].Context.(int)); src[i] != want {
					t.Errorf("entry %v of %d: source %v, want %v", e[i].Context, n, src[i], want)
				}
			}
		}
	}
	// Fewer places for sources than for entries is an error that takes nothing.
	put(q, Entry{Context: 9})
	_, err := q.ReadFrom(e, src[:1])
	wantErr(t, err, fi.EINVAL)
	wantRead(t, q, 1, 9)
}

func TestReadErrFields(t *testing.T) {
	// R-CQ-79, -80, -88: all fields arrive. R-CQ-87: the source handle is one of
	// them.
	q := open(t, Attr{})
	in := Error{
		Context: "op", Flags: fi.Recv | fi.Tagged, Len: 10, Buf: []byte{1}, Data: 2, Tag: 3, OverLen: 4,
		Err: fi.ETRUNC, Prov: 5, OutcomeUnknown: true, Source: 6,
	}
	putErr(q, in)
	got := wantReadErr(t, q, fi.ETRUNC)
	if got.Context != in.Context || got.Flags != in.Flags || got.Len != 10 || &got.Buf[0] != &in.Buf[0] || got.Data != 2 || got.Tag != 3 ||
		got.OverLen != 4 || got.Prov != 5 || !got.OutcomeUnknown || got.Source != 6 || got.ErrData != nil {
		t.Errorf("got %+v", got)
	}
	// R-CQ-82: a silent operation leaves what it does not know zero.
	putErr(q, Error{Err: fi.EIO})
	if got := wantReadErr(t, q, fi.EIO); got.Context != nil || got.Flags != 0 || got.Buf != nil || got.Prov != 0 {
		t.Errorf("an earlier error shines through: %+v", got)
	}
	// R-CQ-91: flags are reserved; and an error needs a place to go.
	putErr(q, in)
	_, err := q.ReadErr(new(Error), fi.Peek)
	wantErr(t, err, fi.EINVAL)
	_, err = q.ReadErr(nil, 0)
	wantErr(t, err, fi.EINVAL)
	wantReadErr(t, q, fi.ETRUNC)
}

func TestReadErrData(t *testing.T) {
	q := open(t, Attr{})
	put := func(data string) { putErr(q, Error{Err: fi.EADDRNOTAVAIL, ErrData: []byte(data)}) }
	// R-CQ-84: a buffer is filled and cut, never overrun.
	buf := []byte("........")
	e := Error{ErrData: buf}
	put("long address")
	q.ReadErr(&e, 0)
	if string(e.ErrData) != "long add" || string(buf) != "long add" {
		t.Errorf("%q in %q", e.ErrData, buf)
	}
	e = Error{ErrData: buf[:3]}
	put("addr")
	q.ReadErr(&e, 0)
	if string(e.ErrData) != "add" || string(buf) != "addg add" {
		t.Errorf("%q in %q", e.ErrData, buf)
	}
	e = Error{ErrData: buf}
	put("ip")
	q.ReadErr(&e, 0)
	if string(e.ErrData) != "ip" {
		t.Errorf("%q", e.ErrData)
	}
	// R-CQ-85: without a buffer the memory is the queue's and stays valid; a
	// variable used again is not taken for a buffer. R-CQ-86: nothing needs to be
	// serialized for it: it becomes the reader's, and no later read changes it.
	var loop Error
	var all [][]byte
	for _, s := range []string{"first", "2", "third"} {
		put(s)
		q.ReadErr(&loop, 0)
		all = append(all, loop.ErrData)
	}
	if got := bytes.Join(all, []byte(" ")); string(got) != "first 2 third" {
		t.Errorf("%q", got)
	}
}

func TestReadKeepsNothingAlive(t *testing.T) {
	// What was read is the user's alone: the ring does not hold its buffers.
	q := open(t, Attr{Format: fi.CQTagged})
	freed := make(chan struct{})
	func() {
		buf := new([1 << 16]byte)
		runtime.AddCleanup(buf, func(c chan struct{}) { close(c) }, freed)
		put(q, Entry{Context: buf, Buf: buf[:]})
		wantRead(t, q, 1, buf)
	}()
	for {
		runtime.GC()
		select {
		case <-freed:
			runtime.KeepAlive(q)
			return
		default:
			runtime.Gosched()
		}
	}
}

func TestConcurrentReaders(t *testing.T) {
	// R-CQ-53: each entry goes to exactly one reader, also with errors between
	// them.
	const readers, writers, each = 64, 2, 20000
	q := open(t, Attr{WaitObj: fi.WaitUnspec, Size: 1024})
	seen := make([]byte, writers*each)
	var mu sync.Mutex
	left := len(seen)
	note := func(contexts ...any) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range contexts {
			seen[c.(int)]++
			if left--; left == 0 {
				q.Close()
			}
		}
	}
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			e := make([]Entry, 1+r%16)
			for {
				n, err := q.SRead(e, 0, -1)
				for i := range n {
					note(e[i].Context)
				}
				var failed Error
				switch {
				case err == fi.EAVAIL:
					if n, _ := q.ReadErr(&failed, 0); n == 1 {
						note(failed.Context)
					}
				case err != nil:
					return // closed
				}
			}
		})
	}
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				for !q.Reserve(1) {
					runtime.Gosched()
				}
				b := q.Begin()
				if i%100 == 0 {
					b.PutErr(&Error{Context: w*each + i, Err: fi.EIO}, true)
				} else {
					b.Put(&Entry{Context: w*each + i}, 0, true)
				}
				b.End()
			}
		})
	}
	wg.Wait()
	for i, n := range seen {
		if n != 1 {
			t.Fatalf("entry %d was read %d times", i, n)
		}
	}
}

// Neither entries nor error entries are allocated.
func TestReadAllocates(t *testing.T) {
	q := open(t, Attr{Format: fi.CQTagged})
	q.Bind(new(idle))
	e, src := make([]Entry, 16), make([]fi.Addr, 16)
	var failed Error
	ent := Entry{Context: q, Tag: 1}
	bad := Error{Err: fi.EIO}
	if n := testing.AllocsPerRun(1000, func() {
		q.Reserve(10)
		w := q.Begin()
		for range 9 {
			w.Put(&ent, 1, true)
		}
		w.PutErr(&bad, true)
		w.End()
		q.ReadFrom(e, src)
		q.Read(e)
		q.ReadErr(&failed, 0)
		q.Read(e)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
