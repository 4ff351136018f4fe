package eq

import (
	"bytes"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestRoomForBoundObjects(t *testing.T) {
	// R-EQ-68: an object that is bound has places for events of its own, then those
	// of all; nobody else has its places, however much they report or write.
	q := open(t, Attr{Size: 1, Flags: fi.Write})
	b, other := bind(t, q, 1), bind(t, q, 2)
	for round := range 3 {
		for i := range 2 {
			if !b.Put(Entry{}) {
				t.Fatalf("round %d: event %d is lost", round, i)
			}
		}
		wantErr(t, q.Write(Entry{}), fi.EAGAIN)
		if !other.Put(Entry{}) || !other.PutErr(Error{}) || other.Offer(Entry{}) {
			t.Fatalf("round %d: the places of the other", round)
		}
		for range 3 {
			q.Read(0)
		}
		q.ReadErr(0)
	}
	for i, want := range []bool{true, true, false} {
		if b.Put(Entry{}) != want {
			t.Errorf("event %d of an object with one place in a queue of one", i)
		}
	}
}

func TestUnreadEventsOfTheGoneTakeNoRoom(t *testing.T) {
	// R-EQ-68: what objects reported that are gone stays, and takes neither the
	// places of those who came after them nor those of all.
	q := open(t, Attr{Size: 1})
	for range 3 {
		b := bind(t, q, 2)
		if !b.Put(Entry{}) || !b.PutErr(Error{}) {
			t.Fatal("lost")
		}
		b.Unbind()
		b.Unbind()
	}
	late := bind(t, q, 1)
	late.Unbind()
	if !late.Put(Entry{}) || late.Offer(Entry{}) {
		t.Error("an object that is gone has the places of all")
	}
	for i := range 3 {
		_, err := q.Read(0)
		_, failed := q.ReadErr(0)
		if err != nil || failed != nil {
			t.Errorf("object %d: %v, %v", i, err, failed)
		}
	}
	if _, err := q.Read(0); err != nil {
		t.Error(err)
	}
	_, err := q.Read(0)
	wantErr(t, err, fi.EAGAIN)
	if q.kept != 0 {
		t.Errorf("%d places are kept for events that were read", q.kept)
	}
}

func TestKeptEventsAreBounded(t *testing.T) {
	// Events of objects that are gone, which nobody reads, end in an
	// overrun (R-EQ-62); what was there before is read (R-EQ-64).
	q := open(t, Attr{Size: 1, Flags: fi.Write})
	add := func() (*binding, bool) {
		b := bind(t, q, 1)
		defer b.Unbind()
		return b, b.Put(Entry{})
	}
	for range MaxKept {
		if _, ok := add(); !ok {
			t.Fatal("overrun")
		}
	}
	b := bind(t, q, 1)
	wantErr(t, q.Write(Entry{}), fi.EAGAIN)
	if b.Offer(Entry{}) {
		t.Error("full, and takes one more")
	}
	q.Read(0)
	if !b.Put(Entry{}) || !b.Offer(Entry{}) {
		t.Error("reading made no room")
	}
	add()
	if _, ok := add(); ok {
		t.Error("one too many")
	}
	for i := range MaxKept + 2 {
		if _, err := q.Read(0); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	_, err := q.Read(0)
	wantErr(t, err, fi.EAVAIL)
}

func TestOfferLeavesRoom(t *testing.T) {
	// R-EQ-68, F37: events that may be refused take no place of a bound object, and
	// a queue that is full of them has not overrun.
	q := open(t, Attr{Size: 2})
	b := bind(t, q, 1)
	for i, want := range []bool{true, true, false, false} {
		if got := b.Offer(Entry{Data: uint64(i)}); got != want {
			t.Errorf("offer %d: %v", i, got)
		}
	}
	if !b.Put(Entry{Data: 9}) {
		t.Error("no room for the event of the bound object")
	}
	for _, want := range []uint64{0, 1, 9} {
		if e, err := q.Read(0); err != nil || e.Data != want {
			t.Errorf("%+v, %v, want %d", e, err, want)
		}
	}
	if _, err := q.Read(0); err != fi.EAGAIN {
		t.Error(err)
	}
	for range 4 {
		q.Put(Entry{})
	}
	if b.Offer(Entry{}) {
		t.Error("a queue in overrun takes an event")
	}
}

func TestRoom(t *testing.T) {
	// R-EQ-68: who asks before it does what it would report loses nothing, and does
	// not fill a queue that nobody reads for ever.
	q := open(t, Attr{Size: 1})
	b, many, other := bind(t, q, 1), bind(t, q, math.MaxInt), bind(t, q, 2)
	for i := range MaxKept {
		if err := many.Room(); err != nil {
			t.Fatal(i, err)
		}
		many.Put(Entry{})
	}
	wantErr(t, many.Room(), fi.EAGAIN)
	if err := b.Room(); err != nil {
		t.Error(err)
	}
	b.Put(Entry{})
	wantErr(t, b.Room(), fi.EAGAIN)
	q.Read(0)
	if err := many.Room(); err != nil {
		t.Error(err)
	}
	many.Put(Entry{})
	many.Put(Entry{}) // more than it was asked for
	many.Unbind()
	wantErr(t, other.Room(), fi.EAGAIN) // full of what the other left
	q.Put(Entry{})
	wantErr(t, other.Room(), fi.EOVERRUN)
}

func TestWriteWithoutResourceManagement(t *testing.T) {
	// R-EQ-67: refusing what does not fit is for resource management; without it
	// the queue overruns (R-EQ-62).
	q := open(t, Attr{Size: 1, Flags: fi.Write, ResourceMgmt: fi.RMDisabled})
	if err := q.Write(Entry{}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, q.Write(Entry{}), fi.EOVERRUN)
	q.Read(0)
	_, err := q.Read(0)
	wantErr(t, err, fi.EAVAIL)
	if e, err := q.ReadErr(0); err != nil || e.Err != fi.EOVERRUN || e.Lost != 1 {
		t.Error(e, err)
	}
}

func TestManyEvents(t *testing.T) {
	// R-EQ-30: in order, also when the ring wraps and grows.
	q := open(t, Attr{Size: 1000})
	put, read := uint64(0), uint64(0)
	for round := range 400 {
		for range round % 50 {
			if !q.Put(Entry{Data: put}) {
				t.Fatal("overrun")
			}
			put++
		}
		for range 25 {
			e, err := q.Read(0)
			if err == fi.EAGAIN {
				break
			}
			if err != nil || e.Data != read {
				t.Fatalf("event %d came as number %d, %v", e.Data, read, err)
			}
			read++
		}
	}
}

func TestPeekPassesTheWakeUpOn(t *testing.T) {
	// R-EQ-27, -48: a blocked reader that only looks must not leave another asleep
	// over the event.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitUnspec})
		var wg sync.WaitGroup
		for _, flags := range []fi.Flags{fi.Peek, fi.Peek, 0} {
			wg.Go(func() {
				if e, err := q.SRead(flags, -1); err != nil || e.Data != 4 {
					t.Error(e, err)
				}
			})
			synctest.Wait()
		}
		q.Put(Entry{Data: 4})
		wg.Wait()
	})
}

func TestBlockedReadEnds(t *testing.T) {
	// R-EQ-49, -50: by its timeout, a signal, or close.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitUnspec})
		start := time.Now()
		_, err := q.SRead(0, time.Minute)
		wantErr(t, err, fi.EAGAIN)
		if time.Since(start) != time.Minute {
			t.Error(time.Since(start))
		}
		for _, c := range []struct {
			end  func() error
			want fi.Errno
		}{{q.Signal, fi.EAGAIN}, {q.Close, fi.ECANCELED}} {
			done := make(chan error)
			go func() {
				_, err := q.SRead(0, -1)
				done <- err
			}()
			synctest.Wait()
			if err := c.end(); err != nil {
				t.Error(err)
			}
			wantErr(t, <-done, c.want)
		}
	})
}

func TestChanInSelect(t *testing.T) {
	// R-EQ-13, -19.
	q := open(t, Attr{WaitObj: fi.WaitMutexCond})
	c, err := q.Chan()
	if err != nil {
		t.Fatal(err)
	}
	if err := q.TryWait(); err != nil {
		t.Fatal(err)
	}
	go q.Put(Entry{Data: 1})
	<-c
	if e, err := q.Read(0); err != nil || e.Data != 1 {
		t.Error(e, err)
	}
	// R-EQ-10, -21: a queue without one does not give it.
	_, err = open(t, Attr{WaitObj: fi.WaitUnspec}).FD()
	wantErr(t, err, fi.EINVAL)
}

// idle is an endpoint on which nothing happens.
type idle struct{ polls, yields, arms int }

func (e *idle) Poll() bool { e.polls++; time.Sleep(time.Microsecond); return false }
func (e *idle) Yield()     { e.yields++ }
func (e *idle) Arm()       { e.arms++ }
func (e *idle) Disarm()    { e.arms-- }
func (*idle) Shared() bool { return false }

func TestYield(t *testing.T) {
	// R-EQ-14: no object: a blocking read polls and yields, and never arms.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitYield})
		ep := new(idle)
		q.BindProgress(ep)
		wantErr(t, q.Close(), fi.EBUSY)
		_, err := q.SRead(0, time.Millisecond)
		wantErr(t, err, fi.EAGAIN)
		if ep.arms != 0 || ep.yields < 990 || ep.polls < ep.yields {
			t.Errorf("%+v", ep)
		}
		q.UnbindProgress(ep)
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// parked reports whether a goroutine, which closes done at its end, came to sleep on
// a lock before.
func parked(done <-chan struct{}) bool {
	for buf := make([]byte, 1<<16); ; runtime.Gosched() {
		select {
		case <-done:
			return false
		default:
		}
		if bytes.Contains(buf[:runtime.Stack(buf, true)], []byte("[sync.Mutex.Lock")) {
			return true
		}
	}
}

func TestCallsWaitForEachOther(t *testing.T) {
	// R-EQ-20: an application need not serialize anything, because each call that looks
	// at the queue or changes it waits while another one does. Under -race the tests
	// below find the same.
	for name, call := range map[string]func(q *EQ, b *binding){
		"read":         func(q *EQ, _ *binding) { q.Read(0) },
		"peek":         func(q *EQ, _ *binding) { q.Read(fi.Peek) },
		"readerr":      func(q *EQ, _ *binding) { q.ReadErr(0) },
		"sread":        func(q *EQ, _ *binding) { q.SRead(0, -1) },
		"write":        func(q *EQ, _ *binding) { q.Write(Entry{}) },
		"signal":       func(q *EQ, _ *binding) { q.Signal() },
		"wait object":  func(q *EQ, _ *binding) { q.Chan() },
		"trywait":      func(q *EQ, _ *binding) { q.TryWait() },
		"close":        func(q *EQ, _ *binding) { q.Close() },
		"put":          func(q *EQ, _ *binding) { q.Put(Entry{}) },
		"put an error": func(q *EQ, _ *binding) { q.PutErr(Error{}) },
		"bind":         func(q *EQ, _ *binding) { q.Bind(1) },
		"drive":        func(q *EQ, _ *binding) { q.BindProgress(new(idle)) },
		"put of one":   func(_ *EQ, b *binding) { b.Put(Entry{}) },
		"offer":        func(_ *EQ, b *binding) { b.Offer(Entry{}) },
		"room":         func(_ *EQ, b *binding) { b.Room() },
		"unbind":       func(_ *EQ, b *binding) { b.Unbind() },
	} {
		q := open(t, Attr{WaitObj: fi.WaitMutexCond, Flags: fi.Write})
		b := bind(t, q, 1)
		q.Put(Entry{})
		done := make(chan struct{})
		q.w.Mu.Lock() // another call is in the middle of its work
		go func() {
			defer close(done)
			call(q, b)
		}()
		if !parked(done) {
			t.Errorf("%s does not wait for another call", name)
		}
		q.w.Mu.Unlock()
		<-done
	}
}

func TestReadersInParallel(t *testing.T) {
	// R-EQ-20: nothing needs to be serialized: readers, writers, and the calls that
	// fi_control(3) stands for run at the same time. R-EQ-30: each event is read
	// once; R-EQ-53: errors among them.
	const writers, each = 4, 5000
	q := open(t, Attr{WaitObj: fi.WaitMutexCond, Flags: fi.Write, Size: writers * each})
	var mu sync.Mutex
	seen, all := map[uint64]int{}, 0
	// take reads one event and reports whether there may be another. Of a queue that
	// is out of its senses not more than twice what was put.
	take := func(read func() (Entry, error)) bool {
		e, err := read()
		n := e.Data
		if err == fi.EAVAIL {
			var failed Error
			if failed, err = q.ReadErr(0); err == fi.EAGAIN {
				return true // another reader was faster
			}
			n = failed.Data
		}
		if err != nil {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		seen[n]++
		all++
		return all < 2*writers*each
	}
	var reading, writing sync.WaitGroup
	for i := range 8 {
		reading.Go(func() {
			for take(func() (Entry, error) { return q.SRead(0, -1) }) {
				for i%2 == 0 && take(func() (Entry, error) { return q.Read(0) }) {
				}
				q.TryWait()
				q.Chan()
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				if n := uint64(w*each + i); i%10 == 0 {
					q.PutErr(Error{Data: n, Err: fi.EIO})
				} else if i%10 == 1 {
					q.Write(Entry{Data: n})
				} else {
					q.Put(Entry{Data: n})
				}
			}
		})
	}
	writing.Wait()
	for take(func() (Entry, error) { return q.Read(0) }) {
	}
	q.Close()
	reading.Wait()
	for n := range uint64(writers * each) {
		if seen[n] != 1 {
			t.Fatalf("event %d was read %d times; %d of %d were read, %d times in all", n, seen[n], len(seen), writers*each, all)
		}
	}
}

func TestBindingsInParallel(t *testing.T) {
	// R-EQ-20, -68: objects that come and go while others read and write: none loses
	// an event that it has a place for, each event is read once, and in the end all
	// places are free.
	const objects, rounds = 4, 1000
	q := open(t, Attr{Size: 1, WaitObj: fi.WaitUnspec, Flags: fi.Write})
	var sent, got atomic.Int64
	count := func(n *atomic.Int64, ok bool) {
		if ok {
			n.Add(1)
		}
	}
	take := func() error {
		_, err := q.SRead(0, -1)
		if err == fi.EAVAIL {
			if _, err = q.ReadErr(0); err == fi.EAGAIN {
				return nil // another reader was faster
			}
		}
		count(&got, err == nil)
		return err
	}
	var readers, all sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for take() == nil {
			}
		})
	}
	for range objects {
		all.Go(func() {
			for range rounds {
				b, err := q.Bind(2)
				if err != nil || !b.Put(Entry{}) || !b.PutErr(Error{Err: fi.EIO}) {
					t.Error("overrun", err)
				}
				sent.Add(2)
				count(&sent, b.Offer(Entry{}))
				count(&sent, q.Write(Entry{}) == nil)
				wantErr(t, q.Close(), fi.EBUSY)
				b.Unbind()
			}
		})
	}
	all.Wait()
	for q.Poll() {
		if _, err := q.Read(0); err == fi.EAVAIL {
			_, err = q.ReadErr(0)
			count(&got, err == nil)
		} else {
			count(&got, err == nil)
		}
	}
	if q.common != 0 || q.kept != 0 || q.errs != 0 {
		t.Errorf("%d, %d and %d places are taken", q.common, q.kept, q.errs)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
	if sent.Load() != got.Load() {
		t.Errorf("%d events read, want %d", got.Load(), sent.Load())
	}
}
