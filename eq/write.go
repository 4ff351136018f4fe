package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Put inserts an event of an object that is not bound. When the queue is full it
// is lost, and readers find it in overrun after the events before it (R-EQ-62 to
// -66): false.
func (q *EQ) Put(e Entry) bool { return q.put(item{e: e}) }

// PutErr inserts an error; its ErrData is taken.
func (q *EQ) PutErr(e Error) bool { return q.put(item{err: &e}) }

// Put is Put of the EQ for an event of the object, which finds room while the
// object has a place of its own left, unless others have overrun the queue.
func (b *Binding) Put(e Entry) bool { return b.q.put(item{e: e, of: b}) }

// PutErr is Put of an error; its ErrData is taken.
func (b *Binding) PutErr(e Error) bool { return b.q.put(item{err: &e, of: b}) }

// Offer is Put of an event that may be refused: it takes no place of the object's
// own, and a queue that has no other is left as it is. false: the producer must
// undo what the event would have told.
func (b *Binding) Offer(e Entry) bool { return b.q.offer(item{e: e}) }

// OfferErr is Offer of an error; its ErrData is taken.
func (b *Binding) OfferErr(e Error) bool { return b.q.offer(item{err: &e}) }

// Room is for an object with as many places as its calls may need, and asked before
// one: whether its events would be lost, or too many of them are unread.
// fi.EAGAIN: MaxKept of the object, or of those that are gone. fi.EOVERRUN: the
// queue is in overrun.
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

// Write inserts an event of the application's (R-EQ-60). fi.EINVAL unless the EQ
// was opened with fi.Write (R-EQ-06), fi.EOVERRUN in overrun (R-EQ-63). When it
// does not fit: fi.EAGAIN, or without resource management fi.EOVERRUN and the
// queue is in overrun from then on (R-EQ-67).
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

// fits reports whether a place of Size is free.
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
