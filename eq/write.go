package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// Put inserts an event. When the queue is full it is lost, and readers find it
// in overrun after the events before it (R-EQ-62 to -66): false.
func (q *EQ) Put(e Entry) bool { return q.put(item{e: e}) }

// PutErr inserts an error; its ErrData is taken.
func (q *EQ) PutErr(e Error) bool { return q.put(item{err: &e}) }

// Offer is Put of an event that may be refused: it takes no room that bound
// objects count on, and a queue that has none else is left as it is. false: the
// producer must undo what the event would have told.
func (q *EQ) Offer(e Entry) bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() || q.overrun || q.n >= q.attr.Size {
		return false
	}
	q.push(item{e: e})
	return true
}

func (q *EQ) put(it item) bool {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() {
		return false
	}
	if q.overrun || q.n >= q.room() {
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
	case q.n < q.room():
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

// room is how many events fit now.
func (q *EQ) room() int { return q.attr.Size + q.bound + q.w.Bound() }

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
	if it.err != nil {
		q.errs++
	}
	q.publish()
}

func (q *EQ) pop() {
	if q.ring[q.head].err != nil {
		q.errs--
	}
	q.ring[q.head] = item{}
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
