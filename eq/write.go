package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Put inserts an event of an object that is not bound. If the queue is full, the event
// is lost, Put returns false, and readers find the queue in overrun after the events
// before it (R-EQ-62 to -66).
func (q *EQ) Put(e Entry) bool { return q.put(item{e: e}) }

// PutErr is Put of an error. The queue keeps its ErrData.
func (q *EQ) PutErr(e Error) bool { return q.put(item{err: &e}) }

// Put inserts an event of the bound object. It succeeds while the object has a free
// place of its own, unless others have overrun the queue.
func (b *Binding) Put(e Entry) bool { return b.q.put(item{e: e, of: b}) }

// PutErr is Put of an error. The queue keeps its ErrData.
func (b *Binding) PutErr(e Error) bool { return b.q.put(item{err: &e, of: b}) }

// Offer inserts an event if the queue has a common place; it uses none of the object's
// own. It returns false, and the queue stays as it is, if there is none: the producer
// must then undo what the event would have told.
func (b *Binding) Offer(e Entry) bool { return b.q.offer(item{e: e}) }

// OfferErr is Offer of an error. The queue keeps its ErrData.
func (b *Binding) OfferErr(e Error) bool { return b.q.offer(item{err: &e}) }

// Room reports whether the events of one more call of the object would be kept. An
// object that was bound with as many places as its calls may need asks before each
// call. fi.EAGAIN: MaxKept events of the object, or of objects that are no longer
// bound, are unread. fi.EOVERRUN: the queue is in overrun.
func (b *Binding) Room() error {
	q := b.q
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	switch {
	case q.overrun:
		return fi.EOVERRUN
	case b.used >= min(b.places, MaxKept) || q.kept >= MaxKept:
		return fi.EAGAIN
	}
	return nil
}

func (q *EQ) offer(it item) bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() || q.overrun || !q.fits() {
		return false
	}
	q.push(it)
	return true
}

func (q *EQ) put(it item) bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() {
		return false
	}
	if b := it.of; b != nil && (b.used >= b.places || q.kept >= MaxKept) {
		it.of = nil
	}
	if q.overrun || it.of == nil && !q.fits() {
		q.overrun = true
		q.lost++
		q.publish()
		return false
	}
	q.push(it)
	return true
}

// Write inserts an event of the application (R-EQ-60). fi.EINVAL: the EQ was opened
// without fi.Write (R-EQ-06). fi.EOVERRUN: the queue is in overrun (R-EQ-63). A full
// queue gives fi.EAGAIN; without resource management it gives fi.EOVERRUN and is in
// overrun from then on (R-EQ-67).
func (q *EQ) Write(e Entry) error {
	if q.attr.Flags&fi.Write == 0 {
		return fmt.Errorf("eq: write: not opened for writing: %w", fi.EINVAL)
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	switch {
	case q.w.Closed():
		return fmt.Errorf("eq: write: %w", fi.EBADF)
	case q.overrun:
		return fmt.Errorf("eq: write: %w", fi.EOVERRUN)
	case q.fits():
		q.push(item{e: e})
		return nil
	case q.attr.ResourceMgmt == fi.RMEnabled:
		return fi.EAGAIN
	}
	q.overrun = true
	q.lost++
	q.publish()
	return fmt.Errorf("eq: write: %w", fi.EOVERRUN)
}

// fits reports whether a common place is free.
func (q *EQ) fits() bool { return q.common < q.attr.Size && q.kept < MaxKept }

func (q *EQ) push(it item) {
	if q.n == len(q.ring) {
		ring := make([]item, max(16, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = it
	q.n++
	if it.of != nil {
		it.of.used++
	} else {
		q.common++
	}
	if it.err != nil {
		q.errs++
	}
	q.publish()
}

func (q *EQ) pop() {
	it := &q.ring[q.head]
	if it.err != nil {
		q.errs--
	}
	if b := it.of; b == nil {
		q.common--
	} else if b.used--; b.gone {
		q.kept--
	}
	*it = item{}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}

// publish tells waiters what is there.
func (q *EQ) publish() {
	switch {
	case q.w.Closed():
	case q.overrun || q.errs > 0:
		q.w.Publish(wait.Always)
	default:
		q.w.Publish(int64(q.n))
	}
}
