package cq

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

func TestOpenSize(t *testing.T) {
	// R-CQ-05: size is a minimum. R-CQ-06: 0 takes a default that is not 0.
	// R-CQ-07: what cannot be held is refused, never made smaller.
	for _, size := range []int{0, 1, 2, 63, 64, 65, 1000, DefaultSize, 65536} {
		q := open(t, Attr{Size: size})
		if got := q.Attr().Size; got < size || got == 0 {
			t.Errorf("size %d became %d", size, got)
		}
		put(q, numbered(0, size)...)
		if q.Overrun() {
			t.Errorf("a queue of %d overran with as many entries", size)
		}
	}
	for _, size := range []int{-1, MaxSize + 1} {
		_, err := New(Attr{Size: size}, nil)
		wantErr(t, err, fi.EINVAL)
	}
	open(t, Attr{Size: MaxSize})
}

func TestOpenAttributes(t *testing.T) {
	set, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: fi.WaitUnspec})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		attr Attr
		ok   bool
	}{
		{"R-CQ-08: affinity may be set", Attr{Flags: fi.Affinity}, true},
		{"R-CQ-08: other flags may not", Attr{Flags: fi.Affinity | fi.Peer}, false},
		{"R-CQ-133: kinds of completions are no flags", Attr{Flags: fi.RMA | fi.Write}, false},
		{"R-CQ-09: the vector is a hint", Attr{Flags: fi.Affinity, SignalingVector: 1 << 20}, true},
		{"R-CQ-09: and ignored without the flag", Attr{SignalingVector: -1}, true},
		{"R-CQ-10: unknown format", Attr{Format: fi.CQTagged + 1}, false},
		{"R-CQ-20: wait unspec", Attr{WaitObj: fi.WaitUnspec}, true},
		{"R-CQ-21: wait set", Attr{WaitObj: fi.WaitSet, WaitSet: set}, true},
		{"R-CQ-21: wait set without the set", Attr{WaitObj: fi.WaitSet}, false},
		{"R-CQ-21: a set that is not asked for is ignored", Attr{WaitSet: set}, true},
		{"R-CQ-23: mutex and condition", Attr{WaitObj: fi.WaitMutexCond}, true},
		{"R-CQ-24: yield", Attr{WaitObj: fi.WaitYield}, true},
		{"R-CQ-25: what other systems have", Attr{WaitObj: fi.WaitPollFD + 1}, false},
		{"R-CQ-26: pollfd", Attr{WaitObj: fi.WaitPollFD}, false},
		{"R-CQ-27: no condition", Attr{WaitObj: fi.WaitUnspec, WaitCond: fi.CondNone}, true},
		{"R-CQ-28: threshold", Attr{WaitObj: fi.WaitUnspec, WaitCond: fi.CondThreshold}, true},
		{"R-CQ-30: unknown condition", Attr{WaitObj: fi.WaitUnspec, WaitCond: 9}, false},
		{"R-CQ-30: ignored without a wait object", Attr{WaitCond: 9}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, err := New(c.attr, nil)
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, fi.EINVAL) {
				t.Error(err)
			}
			if c.ok != (q != nil) { // R-CQ-03, -131
				t.Error("a queue and an error, or neither")
			}
			if q != nil {
				if err := q.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := set.Close(); err != nil { // all members have left
		t.Error(err)
	}
}

func TestOpenDefaults(t *testing.T) {
	// R-CQ-04: the context is kept. R-CQ-11: the format chosen is told.
	// R-CQ-18: the wait object is none. R-CQ-134: the queue knows its attributes.
	q := open(t, Attr{})
	a := q.Attr()
	if q.Context() != "ctx" || a.Format != fi.CQContext || a.WaitObj != fi.WaitNone || a.Size != DefaultSize {
		t.Errorf("%v: %+v", q.Context(), a)
	}
}

func TestWaitObjectIsKnown(t *testing.T) {
	// R-CQ-43, -134: a queue says which wait object it has.
	for _, obj := range []fi.WaitObj{fi.WaitNone, fi.WaitUnspec, fi.WaitMutexCond, fi.WaitYield} {
		if got := open(t, Attr{WaitObj: obj}).Attr().WaitObj; got != obj {
			t.Errorf("%v, want %v", got, obj)
		}
	}
}

func TestCloseBound(t *testing.T) {
	// R-CQ-36: EBUSY while something is bound, and the queue stays usable; one
	// endpoint bound for both directions counts twice (R-CQ-34). R-CQ-37: then it
	// can be closed. R-CQ-35: what was not read is lost.
	q := open(t, Attr{})
	ep := new(idle)
	q.Bind(ep)
	q.Bind(ep)
	wantErr(t, q.Close(), fi.EBUSY)
	put(q, numbered(0, 2)...)
	wantRead(t, q, 1, 0)
	q.Unbind(ep)
	wantErr(t, q.Close(), fi.EBUSY)
	q.Unbind(ep)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosed(t *testing.T) {
	// Closed handles give EBADF, and nothing panics.
	q := open(t, Attr{WaitObj: fi.WaitFD, Size: 64})
	q.Reserve(1)
	putErr(q, Error{Err: fi.EIO})
	put(q, numbered(0, 1)...)
	if q.Closed() {
		t.Error("closed before Close")
	}
	if err := q.Close(); err != nil || !q.Closed() {
		t.Fatal(err)
	}
	wantErr(t, q.Close(), fi.EBADF)
	wantNothing(t, q, fi.EBADF)
	_, err := q.Read(nil)
	wantErr(t, err, fi.EBADF)
	_, err = q.ReadFrom(make([]Entry, 1), make([]fi.Addr, 1))
	wantErr(t, err, fi.EBADF)
	_, err = q.ReadErr(new(Error), 0)
	wantErr(t, err, fi.EBADF)
	_, err = q.SRead(make([]Entry, 1), 0, -1)
	wantErr(t, err, fi.EBADF)
	wantErr(t, q.Signal(), fi.EBADF)
	wantErr(t, q.TryWait(), fi.EBADF)
	_, err = q.FD()
	wantErr(t, err, fi.EBADF)
	wantErr(t, q.Bind(new(idle)), fi.EBADF)
	if q.Reserve(1) {
		t.Error("a closed queue has room")
	}
	// R-CQ-128: what was unread has given its place back, a promise is still one.
	if n := q.Reserved(); n != 1 {
		t.Errorf("%d places reserved, want 1", n)
	}
	q.Unreserve(1)
	if n := q.Reserved(); n != 0 {
		t.Errorf("%d places reserved, want none", n)
	}
	// R-CQ-37: a packet that comes late touches nothing.
	w := q.Begin()
	if w.Put(&Entry{}, 0, false) || w.PutErr(&Error{}, false) {
		t.Error("a closed queue takes entries")
	}
	w.End()
}

func TestCloseWhileBlocked(t *testing.T) {
	// R-CQ-38: a blocked reader stays blocked when close is refused, and gets
	// ECANCELED when it succeeds.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitUnspec, Spin: -1})
		ep := new(idle)
		q.Bind(ep)
		done := make(chan error, 1)
		go func() {
			_, err := q.SRead(make([]Entry, 1), 0, -1)
			done <- err
		}()
		synctest.Wait()
		wantErr(t, q.Close(), fi.EBUSY)
		synctest.Wait()
		if len(done) > 0 {
			t.Fatal("a refused close ends blocking reads")
		}
		q.Unbind(ep)
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-done, fi.ECANCELED)
	})
}

func TestCloseWhileUsed(t *testing.T) {
	// Misuse under the race detector: nothing panics, everybody ends. R-CQ-42: the
	// calls that fi_control(3) stands for need not be serialized with the others.
	for range 50 {
		q := open(t, Attr{WaitObj: fi.WaitMutexCond})
		var wg sync.WaitGroup
		for _, use := range []func() error{
			func() error { _, err := q.SRead(make([]Entry, 1), 0, -1); return err },
			func() error { _, err := q.Read(make([]Entry, 1)); return err },
			func() error { _, err := q.ReadErr(new(Error), 0); return err },
			func() error { put(q, Entry{}); return q.Signal() },
			func() error { q.Reserve(1); return q.TryWait() },
			func() error { q.Attr(); _, err := q.Chan(); return err },
		} {
			wg.Go(func() {
				for err := error(nil); !errors.Is(err, fi.EBADF) && !errors.Is(err, fi.ECANCELED); {
					err = use()
				}
			})
		}
		q.Close()
		wg.Wait()
	}
}

func TestStrError(t *testing.T) {
	// R-CQ-95: an unknown code gives a generic text, never none.
	q := open(t, Attr{StrError: func(p uint32) string {
		if p == 1 {
			return "one"
		}
		return ""
	}})
	if q.StrError(1) != "one" || q.StrError(2) != "provider error 0x2" || open(t, Attr{}).StrError(3) != "provider error 0x3" {
		t.Error(q.StrError(1), q.StrError(2))
	}
}

func TestErrorText(t *testing.T) {
	e := &Error{Flags: fi.Send | fi.Tagged, Err: fi.ETIMEDOUT, Prov: 0x1ff, OutcomeUnknown: true}
	if got, want := e.Error(), "cq: TAGGED|SEND: timed out (prov 0x1ff), outcome unknown"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(e, fi.ETIMEDOUT) {
		t.Error("the errno is not found")
	}
}
