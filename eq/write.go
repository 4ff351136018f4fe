package eq

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/internal/wait"
)

// A provider is the EQ with the methods that the provider calls. door.Events describes
// them, door.Reporter those of a binding.
type provider EQ

var (
	_ door.Events[Entry, Error]   = (*provider)(nil)
	_ door.Reporter[Entry, Error] = (*binding)(nil)
)

func init() { door.EQ = func(q any) any { return (*provider)(q.(*EQ)) } }

func (q *provider) Bind(places int) (door.Reporter[Entry, Error], error) {
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	if q.w.Closed() {
		return nil, fmt.Errorf("eq: bind: %w", fi.EBADF)
	}
	q.bound++
	return &binding{q: (*EQ)(q), places: places}, nil
}

func (b *binding) Unbind() {
	b.q.w.Mu.Lock()
	defer b.q.w.Mu.Unlock()
	if b.gone {
		return
	}
	b.gone, b.places = true, 0
	b.q.kept += b.used
	b.q.bound--
}

func (b *binding) Put(e Entry) bool      { return b.q.put(item{e: e, of: b}) }
func (b *binding) PutErr(e Error) bool   { return b.q.put(item{err: &e, of: b}) }
func (b *binding) Offer(e Entry) bool    { return b.q.offer(item{e: e}) }
func (b *binding) OfferErr(e Error) bool { return b.q.offer(item{err: &e}) }

// Room fails with fi.EAGAIN when the object has used its places, or when MaxKept events of
// it, or of objects that are no longer bound, are unread.
func (b *binding) Room() error {
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

// Write inserts an event of the application (R-EQ-60). It fails with fi.EINVAL if the EQ was
// opened without fi.Write (R-EQ-06), with fi.EOVERRUN if the queue has overrun (R-EQ-63). If
// the queue is full, it fails with fi.EAGAIN; with fi.RMDisabled it fails with fi.EOVERRUN,
// and the queue has overrun from then on (R-EQ-67).
func (q *EQ) Write(e Entry) error {
	if q.attr.Flags&fi.Write == 0 {
		return fmt.Errorf("eq: write: the queue was not opened with fi.Write in Attr.Flags: %w", fi.EINVAL)
	}
	q.w.Mu.Lock()
	defer q.w.Mu.Unlock()
	switch {
	case q.w.Closed():
		return fmt.Errorf("eq: write: the queue is closed, or was never opened: %w", fi.EBADF)
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

// publish tells waiters how many events there are.
func (q *EQ) publish() {
	switch {
	case q.w.Closed():
	case q.overrun || q.errs > 0:
		q.w.Publish(wait.Always)
	default:
		q.w.Publish(int64(q.n))
	}
}
