package cq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// The provider's side.

// Reserve promises n places to operations that are about to be posted. false:
// there is no room, the post must fail with fi.EAGAIN (R-CQ-127, -128).
func (q *CQ) Reserve(n int) bool {
	for {
		used := q.used.Load()
		if used+int64(n) > int64(q.attr.Size) {
			return false
		}
		if q.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

// Admit promises a place to a completion that no operation has one for: that of
// a message for a buffer that takes many. While there is nothing to read it goes
// one beyond the size: the places may all be promised to operations that end
// only after this one, and nobody could make room. It takes no lock.
func (q *CQ) Admit() bool {
	limit := int64(q.attr.Size)
	if q.w.Have() == 0 {
		limit++
	}
	for {
		used := q.used.Load()
		if used >= limit {
			return false
		}
		if q.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// Unreserve gives n promised places back.
func (q *CQ) Unreserve(n int) {
	if q.used.Add(-int64(n)) < 0 {
		panic("BUG: cq: more places given back than reserved")
	}
}

// Reserved is the number of places promised and not used.
func (q *CQ) Reserved() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return int(q.used.Load()&(full-1)) - q.ring.len()
}

// Unread is how many entries wait to be read.
func (q *CQ) Unread() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.ring.len()
}

// A Writer inserts a batch of entries under one lock: Begin, Puts, End.
type Writer struct{ q *CQ }

// Begin locks the CQ for a batch. The Writer is valid until its End.
func (q *CQ) Begin() *Writer {
	q.w.Mu.Lock()
	return &q.writer
}

// Put inserts a completion; e is borrowed. reserved says that a place was
// promised. It reports false when the queue overran: the entry is lost
// (R-CQ-122).
func (w *Writer) Put(e *Entry, src fi.Addr, reserved bool) bool {
	q := w.q
	if !w.room(reserved) {
		return false
	}
	r := &q.ring
	if int(r.tail-r.head) == len(r.entries) {
		r.grow()
	}
	i := int(r.tail) & (len(r.entries) - 1)
	r.tail++
	r.sources[i] = src
	r.entries[i].fill(e, q.attr.Format)
	return true
}

// fill takes from e what the format has into a place that is clear. Each format
// is a prefix of the next (R-CQ-16).
func (to *Entry) fill(e *Entry, f fi.CQFormat) {
	if f == fi.CQTagged {
		*to = *e
		return
	}
	to.Context = e.Context
	if f >= fi.CQMsg {
		to.Flags, to.Len = e.Flags, e.Len
	}
	if f >= fi.CQData {
		to.Buf, to.Data = e.Buf, e.Data
	}
}

// PutErr inserts an error; e is copied, its ErrData is taken.
func (w *Writer) PutErr(e *Error, reserved bool) bool {
	if !w.room(reserved) {
		return false
	}
	w.q.ring.putErr(e)
	return true
}

// room finds out whether one more fits and counts it.
func (w *Writer) room(reserved bool) bool {
	q := w.q
	if q.overrun || q.w.Closed() {
		if reserved {
			q.used.Add(-1)
		}
		return false
	}
	if reserved {
		return true // counted by Reserve
	}
	if q.used.Add(1) > int64(q.attr.Size) {
		// R-CQ-122, -125: overrun, for ever.
		q.overrun = true
		q.used.Add(full - 1)
		return false
	}
	return true
}

// End ends the batch and wakes sleepers whose condition holds (R-CQ-27, -28,
// -31: an error wakes at once).
func (w *Writer) End() {
	q := w.q
	if n := q.ring.len(); int64(n) > q.used.Load() {
		panic(fmt.Sprintf("BUG: cq: %d entries in %d reserved places", n, q.used.Load()))
	}
	q.publish()
	q.w.Mu.Unlock()
}

// publish tells waiters what is there.
func (q *CQ) publish() {
	n := int64(q.ring.tail - q.ring.head)
	switch {
	case q.w.Closed():
	case q.overrun || q.ring.first < len(q.ring.errs):
		q.w.Publish(wait.Always)
	case n > 0 || q.w.Have() > 0:
		q.w.Publish(n)
	}
}

// Overrun reports whether the queue is in the overrun state.
func (q *CQ) Overrun() bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.overrun
}
