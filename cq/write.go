package cq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// The provider's side.

// Reserve reserves n places for operations that are about to be posted. It returns
// false without room: the post must fail with fi.EAGAIN (R-CQ-127, -128).
func (q *CQ) Reserve(n int) bool {
	for {
		used := q.used.Load()
		if used+int64(n) > int64(q.attr.Size) {
			return q.reserve(n)
		}
		if q.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

// Take reserves one place in one attempt. After false, Reserve(1) may still succeed.
func (q *CQ) Take() bool {
	used := q.used.Load()
	return used < int64(q.attr.Size) && q.used.CompareAndSwap(used, used+1)
}

// reserve is the slow path of Reserve: it gives back the places of entries that were
// read, and tries again.
func (q *CQ) reserve(n int) bool { return q.makeRoom() && q.Reserve(n) }

// Admit reserves a place for a completion that no posted operation reserved one for:
// that of a message into a multi-receive buffer. On an empty queue it may reserve one
// place more than the size, because all places may be reserved by operations that can
// complete only after this one, and no reader could make room.
func (q *CQ) Admit() bool {
	limit := int64(q.attr.Size)
	if q.w.Have() == 0 {
		limit++
	}
	for {
		used := q.used.Load()
		if used >= limit {
			if !q.makeRoom() {
				return false
			}
			continue
		}
		if q.used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// makeRoom gives back the places of the entries that were read since its last call, and
// reports whether there were any.
func (q *CQ) makeRoom() bool {
	q.w.Mu.Lock()
	ok := q.settle()
	q.w.Mu.Unlock()
	return ok
}

// settle is makeRoom with the lock held.
func (q *CQ) settle() bool {
	n := q.freed
	if n == 0 {
		return false
	}
	q.freed = 0
	q.used.Add(-n)
	return true
}

// Unreserve gives n reserved places back.
func (q *CQ) Unreserve(n int) {
	if q.used.Add(-int64(n)) < 0 {
		panic("BUG: cq: more places given back than reserved")
	}
}

// Reserved is the number of places that are reserved and hold no entry.
func (q *CQ) Reserved() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	q.settle()
	return int(q.used.Load()&(full-1)) - q.ring.len()
}

// Unread is how many entries wait to be read.
func (q *CQ) Unread() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.ring.len()
}

// A Writer inserts a batch of entries under one lock: Begin, Puts, End.
type Writer CQ

// Writer is what Begin returned, until its End.
func (q *CQ) Writer() *Writer { return (*Writer)(q) }

// Begin locks the CQ for a batch. The Writer is valid until its End.
func (q *CQ) Begin() *Writer {
	q.w.Mu.Lock()
	return (*Writer)(q)
}

// Add inserts an empty completion and returns it, for the caller to fill in before End.
// reserved says that Reserve or Admit reserved a place for it. Add returns nil when the
// queue overran: the entry is lost (R-CQ-122).
func (w *Writer) Add(src fi.Addr, reserved bool) *Entry {
	r := &w.ring
	if !reserved || r.tail >= r.limit {
		if !w.room(reserved) {
			return nil
		}
		r.reserve()
	}
	i := int(r.tail) & (len(r.entries) - 1)
	r.tail++
	r.sources[i] = src
	return &r.entries[i]
}

// Complete writes one completion with a reserved place: Begin, Writer.Complete and End
// in a single call, at half the price. It returns false, having done nothing, if the
// general path is needed: the queue holds errors, has overrun, is closed, or its ring
// must grow.
func (q *CQ) Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool {
	q.w.Mu.Lock()
	r := &q.ring
	if r.tail >= r.limit {
		q.w.Mu.Unlock()
		return false
	}
	r.put(ctx, flags, n, tag, src)
	held := int64(r.tail - r.head)
	if held > q.used.Load() {
		q.bug()
	}
	if q.w.Unawaited() {
		q.w.Set(held)
	} else {
		q.w.Publish(held)
	}
	q.w.Mu.Unlock()
	return true
}

// Complete is Add of a completion with a reserved place, filled in.
func (w *Writer) Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool {
	if w.ring.tail < w.ring.limit {
		w.ring.put(ctx, flags, n, tag, src)
		return true
	}
	e := w.Add(src, true)
	if e != nil {
		e.Context, e.Flags, e.Len, e.Tag = ctx, flags, n, tag
	}
	return e != nil
}

// Put is Add of a copy of e.
func (w *Writer) Put(e *Entry, src fi.Addr, reserved bool) bool {
	to := w.Add(src, reserved)
	if to == nil {
		return false
	}
	*to = *e
	return true
}

// PutErr inserts a copy of an error. The queue keeps its ErrData.
func (w *Writer) PutErr(e *Error, reserved bool) bool {
	if !w.room(reserved) {
		return false
	}
	w.ring.putErr(e)
	return true
}

// OfferErr inserts an error that has no reserved place if there is room. Without room
// it drops the error and the queue stays as it is.
func (w *Writer) OfferErr(e *Error) bool {
	(*CQ)(w).settle()
	for !w.overrun && !w.w.Closed() {
		used := w.used.Load()
		if used >= int64(w.attr.Size) {
			break
		}
		if w.used.CompareAndSwap(used, used+1) {
			w.ring.putErr(e)
			return true
		}
	}
	return false
}

// room reports whether one more entry fits, and counts it.
func (w *Writer) room(reserved bool) bool {
	if w.overrun || w.w.Closed() {
		if reserved {
			w.used.Add(-1)
		}
		return false
	}
	if reserved {
		return true // counted by Reserve
	}
	(*CQ)(w).settle()
	if w.used.Add(1) > int64(w.attr.Size) {
		// R-CQ-122, -125: overrun, for ever.
		w.overrun, w.ring.limit = true, 0
		w.used.Add(full - 1)
		return false
	}
	return true
}

// End ends the batch and wakes sleepers whose condition holds (R-CQ-27, -28,
// -31: an error wakes at once).
func (w *Writer) End() {
	q := (*CQ)(w)
	n := int64(q.ring.tail - q.ring.head)
	if n > q.used.Load() {
		q.bug()
	}
	switch {
	case n <= 0 || q.overrun || q.ring.first < len(q.ring.errs):
		q.publish()
	case q.w.Unawaited():
		q.w.Set(n) // it is not closed, or nothing would be there
	default:
		q.w.Publish(n)
	}
	q.w.Mu.Unlock()
}

func (q *CQ) bug() {
	panic(fmt.Sprintf("BUG: cq: %d entries in %d reserved places", q.ring.len(), q.used.Load()))
}

// publish tells waiters what is there.
func (q *CQ) publish() {
	n := int64(q.ring.tail - q.ring.head)
	if q.overrun || q.ring.first < len(q.ring.errs) {
		n = wait.Always
	}
	if (n > 0 || q.w.Have() > 0) && !q.w.Closed() {
		q.w.Publish(n)
	}
}

// Overrun reports whether the queue is in the overrun state.
func (q *CQ) Overrun() bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.overrun
}
