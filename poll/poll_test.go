package poll_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/poll"
)

func newSet(t testing.TB, sources ...poll.Source) *poll.Set {
	t.Helper()
	s, err := poll.NewSet(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range sources {
		if err := s.Add(src, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// wantPoll polls for up to n contexts.
func wantPoll(t testing.TB, s *poll.Set, n int, want ...string) {
	t.Helper()
	c := make([]any, n)
	got, err := s.Poll(c)
	if err != nil || fmt.Sprint(c[:got]) != fmt.Sprint(want) {
		t.Errorf("poll: %v, %v; want %v", c[:got], err, want)
	}
}

func TestPollFindsWhatIsThere(t *testing.T) {
	// fi_poll: contexts of queues that are not empty.
	a, b, e := newCQ(t, cq.Attr{}, "a"), newCQ(t, cq.Attr{}, "b"), newEQ(t, eq.Attr{}, "e")
	s := newSet(t, a, b, e, a)
	wantPoll(t, s, 4)
	put(b)
	wantPoll(t, s, 4, "b")
	wantPoll(t, s, 4, "b") // until it is read
	putEvent(e)
	wantPoll(t, s, 4, "b", "e")
	take(t, b)
	wantPoll(t, s, 4, "e")
	// An error is something to read.
	w := completions(a).Begin()
	w.PutErr(&cq.Error{Err: fi.EIO}, false)
	w.End()
	wantPoll(t, s, 4, "a", "e")
	if err := s.Del(a, 0); err != nil {
		t.Error(err)
	}
	wantPoll(t, s, 4, "e")
}

func TestPollDrives(t *testing.T) {
	// fi_poll: it makes progress on every member, also on those whose context has
	// no place.
	a, b := newCQ(t, cq.Attr{}, "a"), newCQ(t, cq.Attr{}, "b")
	epA, epB := &endpoint{q: a, todo: 1}, &endpoint{q: b, todo: 1}
	completions(a).Bind(epA)
	completions(b).Bind(epB)
	s := newSet(t, a, b)
	wantPoll(t, s, 1, "a")
	if epB.polls != 1 {
		t.Errorf("the second was polled %d times", epB.polls)
	}
	// Who had no place comes first the next time.
	wantPoll(t, s, 1, "b")
	wantPoll(t, s, 1, "a")
	wantPoll(t, s, 0)
}

func TestPollMisuse(t *testing.T) {
	_, err := poll.NewSet(fi.More)
	wantErr(t, err, fi.EINVAL)
	a := newCQ(t, cq.Attr{}, "a")
	s := newSet(t)
	wantErr(t, s.Add(nil, 0), fi.EINVAL)
	wantErr(t, s.Add(a, fi.More), fi.EINVAL)
	wantErr(t, s.Del(a, 0), fi.EINVAL)
	wantErr(t, s.Del(nil, 0), fi.EINVAL)
	// A pointer that is nil is as bad as none.
	for _, none := range []poll.Source{(*cq.CQ)(nil), (*eq.EQ)(nil), (*cntr.Counter)(nil)} {
		if err := s.Add(none, 0); !errors.Is(err, fi.EINVAL) {
			t.Fatalf("%T that is nil: %v", none, err)
		}
	}
	wantErr(t, poll.TryWait(nil), fi.EINVAL)
	wantErr(t, poll.TryWait((*cq.CQ)(nil)), fi.EINVAL)
	wantErr(t, poll.TryWait((*poll.WaitSet)(nil)), fi.EINVAL)
	// fi_poll(3): no close while something is in it, also something closed.
	if err := s.Add(a, 0); err != nil {
		t.Error(err)
	}
	if err := s.Add(a, 0); err != nil { // twice is once
		t.Error(err)
	}
	wantErr(t, s.Del(a, fi.More), fi.EINVAL)
	wantErr(t, s.Close(), fi.EBUSY)
	a.Close()
	wantErr(t, s.Close(), fi.EBUSY)
	wantPoll(t, s, 0)
	if err := s.Del(a, 0); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, s.Close(), fi.EBADF)
	wantErr(t, s.Add(a, 0), fi.EBADF)
	wantErr(t, s.Del(a, 0), fi.EBADF)
	_, err = s.Poll(make([]any, 1))
	wantErr(t, err, fi.EBADF)
}

func TestTryWaitOfSeveral(t *testing.T) {
	// fi_trywait: success only if nothing is there on any of them.
	a, b := newCQ(t, cq.Attr{WaitObj: fi.WaitMutexCond}, nil), newEQ(t, eq.Attr{WaitObj: fi.WaitMutexCond}, nil)
	if err := poll.TryWait(a, b); err != nil {
		t.Error(err)
	}
	putEvent(b)
	wantErr(t, poll.TryWait(a, b), fi.EAGAIN)
	wantErr(t, poll.TryWait(a, newCQ(t, cq.Attr{}, nil)), fi.EINVAL)
}

// A racer is a value that changes again while a poll of it is under way, which another
// poll tells of meanwhile.
type racer struct {
	n     uint64
	again func()
}

func (r *racer) Progress()    {}
func (r *racer) Poll() bool   { return false }
func (r *racer) Context() any { return "r" }
func (r *racer) Changes() uint64 {
	n := r.n
	if again := r.again; again != nil {
		r.again = nil
		r.n++
		again()
	}
	return n
}

func TestPollTellsOnceWhateverOthersDo(t *testing.T) {
	// Two polls at once, of which the one that began later ends first: what it told of
	// is not told again.
	r := &racer{n: 1}
	s := newSet(t, r)
	r.again = func() { wantPoll(t, s, 1, "r") }
	wantPoll(t, s, 1)
	wantPoll(t, s, 1)
	r.n++
	wantPoll(t, s, 1, "r")
}
