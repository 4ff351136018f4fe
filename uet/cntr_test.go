package uet

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// counter opens a counter, which is closed before its domain.
func (r *rig) counter(attr cntr.Attr) *cntr.Counter {
	r.t.Helper()
	if attr.WaitObj == fi.WaitNone {
		attr.WaitObj = fi.WaitUnspec
	}
	c, err := r.domain.OpenCntr(attr, nil)
	ok(r.t, err)
	r.t.Cleanup(func() { ok(r.t, c.Close()) })
	return c
}

// reaches waits until a counter has a value.
func reaches(t testing.TB, c *cntr.Counter, value uint64) {
	t.Helper()
	if err := c.Wait(value, patience); err != nil {
		t.Fatalf("at %d: %v", c.Read(), err)
	}
	if got := c.Read(); got != value {
		t.Errorf("counted %d, want %d", got, value)
	}
}

func TestCountersCountWhatTheyAreBoundFor(t *testing.T) {
	t.Parallel()
	// R-CNTR-03: one counter for sends, one for receives. R-CNTR-02: completions
	// or bytes. R-CNTR-01, -11: injected operations and those whose success is
	// silent count as well. R-CNTR-05: a wait for a counter makes progress.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		r := newRig(t, &Info{Domain: DomainAttr{DataProgress: p}})
		sent, got := r.counter(cntr.Attr{}), r.counter(cntr.Attr{Events: fi.CntrBytes})
		a := r.node(func(o *options) {
			o.txFlags = fi.SelectiveCompletion
			o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(sent, fi.Send)) }
		})
		b := r.node(func(o *options) {
			o.rxFlags = fi.SelectiveCompletion
			o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(got, fi.Recv)) }
		})
		toB := a.know(b)
		for i, send := range []func() error{
			func() error { return a.Send(make([]byte, 5), toB, nil) },
			func() error { return a.Inject(make([]byte, 5), toB) },
			func() error {
				return a.SendMsg(&Msg{Iov: [][]byte{make([]byte, 5)}, Addr: toB, Context: "seen"}, fi.Completion|fi.DeliveryComplete)
			},
		} {
			ok(t, b.Recv(make([]byte, 100), fi.AddrUnspec, nil))
			ok(t, send())
			done := make(chan error, 1)
			go func() { done <- sent.Wait(uint64(i+1), patience) }() // both ends need a driver
			reaches(t, got, uint64(5*(i+1)))
			ok(t, <-done)
		}
		ok(t, b.TRecv(make([]byte, 10), fi.AddrUnspec, 1, 0, nil))
		ok(t, a.TSend(make([]byte, 7), toB, 1, nil))
		done := make(chan error, 1)
		go func() { done <- sent.Wait(4, patience) }()
		reaches(t, got, 22)
		ok(t, <-done)
		// The operation that asked for an entry has it by now, because counters come last. The
		// silent ones have none.
		var e [4]cq.Entry
		if n, err := a.tx.Read(e[:]); n != 1 || err != nil || e[0].Context != "seen" {
			t.Errorf("%d entries, %v, %v", n, err, e[0].Context)
		}
		if n, err := b.rx.Read(e[:]); n != 0 {
			t.Errorf("%d entries, %v", n, err)
		}
		if sent.ReadErr() != 0 || got.ReadErr() != 0 {
			t.Error("errors were counted")
		}
	}
}

func TestCountersCountAtTheLevel(t *testing.T) {
	t.Parallel()
	// R-CNTR-01: an operation counts when its level is reached and not before; a message that
	// no receive accepts is not delivered. R-CNTR-04: a failure counts as an error and has its
	// entry in the queue.
	r := newRig(t, nil)
	both := r.counter(cntr.Attr{})
	a := r.node(func(o *options) {
		o.bind = func(ep *Endpoint) { ok(t, ep.BindCntr(both, fi.Send|fi.Recv)) }
	})
	ok(t, a.Recv(nil, fi.AddrUnspec, "waits"))
	ok(t, a.TRecv(nil, fi.AddrUnspec, 1, 0, "cancelled"))
	ok(t, a.Cancel("cancelled"))
	want(t, both.Wait(1, patience), fi.EAVAIL)
	if v, n := both.Read(), both.ReadErr(); v != 0 || n != 1 {
		t.Errorf("%d and %d errors, want 0 and 1", v, n)
	}
	if e := waitErr(t, a.rx); e.Err != fi.ECANCELED || e.Context != "cancelled" {
		t.Error(&e)
	}
	want(t, both.Wait(1, 20*time.Millisecond), fi.ETIMEDOUT)
	// A truncated message fails at the receiver only.
	toSelf := a.know(a)
	ok(t, a.TRecv(make([]byte, 1), fi.AddrUnspec, 1, 0, "cut"))
	ok(t, a.TSend(make([]byte, 2), toSelf, 1, nil))
	if e := waitErr(t, a.rx); e.Err != fi.ETRUNC || e.Context != "cut" {
		t.Error(&e)
	}
	wait(t, a.tx)
	for start := time.Now(); both.Read() == 0 && time.Since(start) < patience; { // counters come after the entries
	}
	if v, n := both.Read(), both.ReadErr(); v != 1 || n != 2 {
		t.Errorf("%d and %d errors, want 1 and 2", v, n)
	}
	// A message to itself counts twice if one counter counts both kinds.
	ok(t, a.Send(nil, toSelf, nil))
	reaches(t, both, 3)
	// Operations that are outstanding at the end fail.
	ok(t, a.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Endpoint.Close())
	if n := both.ReadErr(); n != 3 {
		t.Errorf("%d errors, want 3", n)
	}
}

func TestBindCntr(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := r.counter(cntr.Attr{})
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	want(t, ep.BindCntr(nil, fi.Send), fi.EINVAL)
	for _, flags := range []fi.Flags{0, fi.Msg, fi.Send | fi.SelectiveCompletion} {
		want(t, ep.BindCntr(c, flags), fi.EBADFLAGS)
	}
	// R-CNTR-03: remote kinds need the capability.
	want(t, ep.BindCntr(c, fi.RemoteWrite), fi.EOPNOTSUPP)
	want(t, ep.BindCntr(c, fi.Send|fi.RemoteRead), fi.EOPNOTSUPP)
	// R-EP-04: one counter per kind; a binding that fails binds nothing.
	ok(t, ep.BindCntr(c, fi.Send|fi.Write))
	other := r.counter(cntr.Attr{})
	want(t, ep.BindCntr(other, fi.Recv|fi.Write), fi.EINVAL)
	ok(t, ep.BindCntr(other, fi.Recv|fi.Read))
	// R-CNTR-10: bound counters cannot be closed.
	want(t, c.Close(), fi.EBUSY)
	// A domain cannot be closed before its counters.
	want(t, r.domain.Close(), fi.EBUSY)
	ok(t, ep.Close())
	want(t, ep.BindCntr(c, fi.Recv), fi.EBADF)

	closed, err := r.domain.OpenCntr(cntr.Attr{}, nil)
	ok(t, err)
	ok(t, closed.Close())
	ep, err = r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	want(t, ep.BindCntr(closed, fi.Send), fi.EBADF)
	ok(t, ep.Close())
	n := r.node()
	want(t, n.BindCntr(c, fi.Send), fi.EOPBADSTATE) // R-EP-05
	_, err = r.domain.OpenCntr(cntr.Attr{Flags: fi.More}, nil)
	want(t, err, fi.EINVAL)
}
