package driver

import (
	"sync"

	"github.com/uetkit/uetkit/transport"
)

// queueLen is how many operations may wait for the holder of the lock, per
// direction. A post beyond is refused with transport.ErrFull.
const queueLen = 256

// A request is one posted operation on its way to the FEP.
type request struct {
	op   transport.Op
	to   uint64 // what Owner.Resolve makes a peer of; NoAddr: nothing to resolve
	more bool   // FI_MORE

	copied []byte   // the bytes of an injected message, reused
	iov    [][]byte // a copy of the caller's vector, reused
}

// A queue holds the requests of callers that found the lock taken, in order.
// Any goroutine may put; only the holder of the FEP's lock peeks and pops.
type queue struct {
	mu     sync.Mutex
	ring   []request // allocated by the first put
	head   int
	n      int
	closed bool
}

// put copies the request into the queue. What the caller may reuse when its
// post returns is copied too: the vector, and the bytes of an injected message.
// It fails with transport.ErrFull or transport.ErrClosed.
func (q *queue) put(op *transport.Op, to uint64, more bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return transport.ErrClosed
	case q.n == queueLen:
		return transport.ErrFull
	case q.ring == nil:
		q.ring = make([]request, queueLen)
	}
	r := &q.ring[(q.head+q.n)%queueLen]
	r.op, r.to, r.more = *op, to, more
	switch {
	case op.Inject:
		r.copied = append(r.copied[:0], op.Buf...)
		for _, b := range op.Iov {
			r.copied = append(r.copied, b...)
		}
		r.op.Buf, r.op.Iov = r.copied, nil
	case op.Iov != nil:
		r.iov = append(r.iov[:0], op.Iov...)
		r.op.Iov = r.iov
	}
	q.n++
	return nil
}

// peek returns the oldest request, or nil. It belongs to the caller until pop.
func (q *queue) peek() *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 {
		return nil
	}
	return &q.ring[q.head]
}

// pop removes what peek returned.
func (q *queue) pop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.ring[q.head]
	r.op = transport.Op{} // no references to the user's memory stay behind
	clear(r.iov)
	q.head = (q.head + 1) % queueLen
	q.n--
}

// close makes every later put fail.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// cancel removes the oldest request with that context and returns a copy of its
// operation, or nil.
func (q *queue) cancel(context any) *transport.Op {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.n {
		if q.at(i).op.Context != context {
			continue
		}
		op := q.at(i).op
		for ; i+1 < q.n; i++ {
			// The buffers stay with their operation.
			*q.at(i), *q.at(i + 1) = *q.at(i + 1), *q.at(i)
		}
		q.at(i).op = transport.Op{}
		q.n--
		return &op
	}
	return nil
}

// each calls fn for every request, the oldest first. The lock of the queue is held.
func (q *queue) each(fn func(*request)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.n {
		fn(q.at(i))
	}
}

// at is the i-th oldest request.
func (q *queue) at(i int) *request { return &q.ring[(q.head+i)%queueLen] }
