package cq

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/fi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, attr Attr) *CQ {
	t.Helper()
	q, err := New(attr, "ctx")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// put inserts entries as one batch, without reservations.
func put(q *CQ, es ...Entry) {
	w := q.Begin()
	defer w.End()
	for i := range es {
		w.Put(&es[i], fi.AddrNotAvail, false)
	}
}

// putErr inserts an error by itself.
func putErr(q *CQ, e Error) {
	w := q.Begin()
	defer w.End()
	w.PutErr(&e, false)
}

// numbered are entries with contexts from up to to, exclusive.
func numbered(from, to int) []Entry {
	var es []Entry
	for i := from; i < to; i++ {
		es = append(es, Entry{Context: i})
	}
	return es
}

func wantErr(t testing.TB, err error, want fi.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// wantRead reads up to n entries at once and expects those with the contexts
// given.
func wantRead(t testing.TB, q *CQ, n int, contexts ...any) {
	t.Helper()
	e := make([]Entry, n)
	got, err := q.Read(e)
	if err != nil || got != len(contexts) {
		t.Fatalf("read %d entries, %v; want %v", got, err, contexts)
	}
	for i, want := range contexts {
		if e[i].Context != want {
			t.Errorf("entry %d is %v, want %v", i, e[i].Context, want)
		}
	}
}

// wantNothing reads and expects the error.
func wantNothing(t testing.TB, q *CQ, want fi.Errno) {
	t.Helper()
	n, err := q.Read(make([]Entry, 4))
	if n != 0 {
		t.Errorf("read %d entries, want none", n)
	}
	wantErr(t, err, want)
}

// wantReadErr takes the error at the head.
func wantReadErr(t testing.TB, q *CQ, want fi.Errno) Error {
	t.Helper()
	var e Error
	if n, err := q.ReadErr(&e, 0); n != 1 || err != nil || e.Err != want {
		t.Fatalf("error entry %v, %d, %v; want %v", e.Err, n, err, want)
	}
	return e
}

// idle is an endpoint on which nothing happens.
type idle struct{}

func (*idle) Poll() bool   { return false }
func (*idle) Yield()       {}
func (*idle) Arm()         {}
func (*idle) Disarm()      {}
func (*idle) Shared() bool { return false }
