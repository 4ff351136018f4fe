package poll_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantErr(t testing.TB, err error, want fi.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func newWaitSet(t testing.TB, obj fi.WaitObj) *poll.WaitSet {
	t.Helper()
	s, err := poll.NewWaitSet(poll.WaitAttr{WaitObj: obj})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newCQ(t testing.TB, attr cq.Attr, ctx any) *cq.CQ {
	t.Helper()
	q, err := cq.New(attr, ctx)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newEQ(t testing.TB, attr eq.Attr, ctx any) *eq.EQ {
	t.Helper()
	q, err := eq.New(attr, ctx)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// completions is the provider's side of a completion queue.
func completions(q *cq.CQ) door.Completions[cq.Entry, cq.Error] {
	return door.CQ(q).(door.Completions[cq.Entry, cq.Error])
}

// put inserts one entry.
func put(q *cq.CQ) {
	w := completions(q).Begin()
	defer w.End()
	w.Add(fi.AddrNotAvail, false)
}

// report reports to an event queue as an object that is bound to it for a moment.
func report(q *eq.EQ, put func(door.Reporter[eq.Entry, eq.Error]) bool) {
	b, err := door.EQ(q).(door.Events[eq.Entry, eq.Error]).Bind(0)
	if err != nil || !put(b) {
		panic("an event queue took no event")
	}
	b.Unbind()
}

func putEvent(q *eq.EQ) {
	report(q, func(b door.Reporter[eq.Entry, eq.Error]) bool { return b.Put(eq.Entry{}) })
}

func putEventErr(q *eq.EQ) {
	report(q, func(b door.Reporter[eq.Entry, eq.Error]) bool { return b.PutErr(eq.Error{Err: fi.EIO}) })
}

// take reads one entry.
func take(t testing.TB, q *cq.CQ) {
	t.Helper()
	if n, err := q.Read(make([]cq.Entry, 1)); n != 1 {
		t.Fatal(n, err)
	}
}

// endpoint is a Progress that completes something at each poll it is told to.
type endpoint struct {
	q     *cq.CQ
	polls int
	armed int
	todo  int
}

func (e *endpoint) Poll() bool {
	e.polls++
	if e.todo == 0 {
		return false
	}
	e.todo--
	put(e.q)
	return true
}
func (e *endpoint) Yield()     {}
func (e *endpoint) Arm()       { e.armed++ }
func (e *endpoint) Disarm()    { e.armed-- }
func (*endpoint) Shared() bool { return false }
