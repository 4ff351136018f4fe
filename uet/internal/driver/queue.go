package driver

import (
	"sync"

	"github.com/uetkit/uetkit/transport"
)

// queueLen is how many operations may wait for the holder of the lock, per direction. A
// further post fails with transport.ErrFull.
const queueLen = 256

// A request is a posted operation on its way to the FEP.
type request struct {
	op   transport.Op
	to   uint64 // destination for Owner.Resolve, or NoAddr
	more bool   // FI_MORE

	copied []byte   // the bytes of an injected message, reused
	iov    [][]byte // the copy of the caller's vector, reused
}

// A queue has the requests of callers that found the lock taken, in order. Any goroutine
// may put. Only the holder of the FEP's lock may peek and pop.
type queue struct {
	mu     sync.Mutex
	ring   []request // allocated by the first put
	head   int
	n      int
	closed bool
}

// put copies an operation into the queue. It also copies what the caller may reuse after
// its post: the vector, and the bytes of an injected message. It fails with
// transport.ErrFull or transport.ErrClosed.
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

// peek returns the oldest request, nil if there is none. The caller may use it until pop.
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
	r.op = transport.Op{} // drop the references to the user's memory
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

// cancel removes the oldest request with the context. It returns a copy of its operation,
// nil if there is none.
func (q *queue) cancel(context any) *transport.Op {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.n {
		if q.at(i).op.Context != context {
			continue
		}
		op := q.at(i).op
		for ; i+1 < q.n; i++ {
			// Swap, so that each request keeps its buffers.
			*q.at(i), *q.at(i + 1) = *q.at(i + 1), *q.at(i)
		}
		q.at(i).op = transport.Op{}
		q.n--
		return &op
	}
	return nil
}

// remove removes the requests for which is returns true, and returns their operations without
// their bytes. It calls is for every request, the oldest first, with the lock of the queue held.
func (q *queue) remove(is func(*request) bool) (gone []transport.Op) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keep := 0
	for i := range q.n {
		if r := q.at(i); is(r) {
			gone = append(gone, r.op)
			r.op = transport.Op{} // drop the references to the user's memory
			clear(r.iov)
			continue
		}
		*q.at(keep), *q.at(i) = *q.at(i), *q.at(keep) // each request keeps its buffers
		keep++
	}
	q.n = keep
	return gone
}

// each calls fn for every request, the oldest first, with the lock of the queue held.
func (q *queue) each(fn func(*request)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.n {
		fn(q.at(i))
	}
}

// at returns the i-th oldest request.
func (q *queue) at(i int) *request { return &q.ring[(q.head+i)%queueLen] }
