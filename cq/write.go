package cq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
)

// A provider is the CQ with the methods that the provider calls; door.Completions
// describes them.
type provider CQ

// A batch is the locked CQ while a batch of entries is written.
type batch CQ

var (
	_ door.Completions[Entry, Error] = (*provider)(nil)
	_ door.Batch[Entry, Error]       = (*batch)(nil)
)

func init() { door.CQ = func(q any) any { return (*provider)(q.(*CQ)) } }

func (q *provider) Bind(p wait.Progress) error {
	if err := q.w.Bind(p); err != nil {
		return fmt.Errorf("cq: bind: %w", err)
	}
	return nil
}

func (q *provider) Unbind(p wait.Progress) { q.w.Unbind(p) }

func (q *provider) Gather() { q.w.Gather() }

func (q *provider) Reserve(n int) bool {
	for {
		used := q.places.Used.Load()
		if used+int64(n) > q.places.Size {
			return q.reserve(n)
		}
		if q.places.Used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

func (q *provider) Places() *door.Places { return &q.places }

// reserve is the slow path of Reserve: it frees the places of entries that were read and
// tries again.
func (q *provider) reserve(n int) bool { return (*CQ)(q).makeRoom() && q.Reserve(n) }

func (q *provider) Admit() bool {
	limit := q.places.Size
	if q.w.Have() == 0 {
		limit++
	}
	for {
		used := q.places.Used.Load()
		if used >= limit {
			if !(*CQ)(q).makeRoom() {
				return false
			}
			continue
		}
		if q.places.Used.CompareAndSwap(used, used+1) {
			return true
		}
	}
}

// makeRoom frees the places of the entries that were read since its last call, and reports
// whether there were any.
func (q *CQ) makeRoom() bool {
	q.w.Mu.Lock()
	ok := q.freePlaces()
	q.w.Mu.Unlock()
	return ok
}

// freePlaces is makeRoom with the lock held.
func (q *CQ) freePlaces() bool {
	n := q.freed
	if n == 0 {
		return false
	}
	q.freed = 0
	q.places.Used.Add(-n)
	return true
}

// Reserved returns the number of places promised to operations that have no entry yet.
func (q *CQ) Reserved() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	q.freePlaces()
	return int(q.places.Used.Load()&(full-1)) - q.ring.len()
}

// Unread returns the number of entries in the queue, errors included.
func (q *CQ) Unread() int {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.ring.len()
}

func (q *provider) Begin() door.Batch[Entry, Error] {
	q.w.Mu.Lock()
	return (*batch)(q)
}

func (w *batch) Add(src fi.Addr, reserved bool) *Entry {
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

// Complete writes one completion with a reserved place: Begin, batch.Complete and End in
// one call, at half the cost. It returns false and does nothing if the queue has errors,
// has overrun, is closed, or must grow; the caller then makes the three calls.
func (q *provider) Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool {
	q.w.Mu.Lock()
	r := &q.ring
	if r.tail >= r.limit {
		q.w.Mu.Unlock()
		return false
	}
	r.put(ctx, flags, n, tag, src)
	unread := int64(r.tail - r.head)
	if unread > q.places.Used.Load() {
		(*CQ)(q).bug()
	}
	if q.w.Unawaited() {
		q.w.Set(unread)
	} else {
		q.w.Publish(unread)
	}
	q.w.Mu.Unlock()
	return true
}

func (w *batch) Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool {
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

func (w *batch) PutErr(e *Error, reserved bool) bool {
	if !w.room(reserved) {
		return false
	}
	w.ring.putErr(e)
	return true
}

func (w *batch) OfferErr(e *Error) bool {
	(*CQ)(w).freePlaces()
	for !w.overrun && !w.w.Closed() {
		used := w.places.Used.Load()
		if used >= w.places.Size {
			break
		}
		if w.places.Used.CompareAndSwap(used, used+1) {
			w.ring.putErr(e)
			return true
		}
	}
	return false
}

// room reports whether one more entry fits, and counts its place.
func (w *batch) room(reserved bool) bool {
	if w.overrun || w.w.Closed() {
		if reserved {
			w.places.Used.Add(-1)
		}
		return false
	}
	if reserved {
		return true // counted by Reserve
	}
	(*CQ)(w).freePlaces()
	if w.places.Used.Add(1) > w.places.Size {
		// R-CQ-122, -125: the queue has overrun, for ever.
		w.overrun, w.ring.limit = true, 0
		w.places.Used.Add(full - 1)
		return false
	}
	return true
}

// End ends the batch and wakes the sleepers whose condition holds (R-CQ-27, -28). An error
// wakes all (R-CQ-31).
func (w *batch) End() {
	q := (*CQ)(w)
	n := int64(q.ring.tail - q.ring.head)
	if n > q.places.Used.Load() {
		q.bug()
	}
	switch {
	case n <= 0 || q.overrun || q.ring.first < len(q.ring.errs):
		q.publish()
	case q.w.Unawaited():
		q.w.Set(n) // the queue is not closed: a closed one has no entries
	default:
		q.w.Publish(n)
	}
	q.w.Mu.Unlock()
}

func (q *CQ) bug() {
	panic(fmt.Sprintf("BUG: cq: %d entries in %d reserved places", q.ring.len(), q.places.Used.Load()))
}

// publish tells waiters how many entries there are.
func (q *CQ) publish() {
	n := int64(q.ring.tail - q.ring.head)
	if q.overrun || q.ring.first < len(q.ring.errs) {
		n = wait.Always
	}
	if (n > 0 || q.w.Have() > 0) && !q.w.Closed() {
		q.w.Publish(n)
	}
}

// Overrun reports whether the queue has overrun: an entry found no place and was lost.
func (q *CQ) Overrun() bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	return q.overrun
}
