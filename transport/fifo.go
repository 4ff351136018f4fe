package transport

// A fifo is a queue. The oldest element is a field of the fifo, the others are in a ring
// that grows, so a queue of at most one element needs no other memory. The zero fifo is
// empty.
type fifo[T any] struct {
	ring  []T // the elements behind first
	head  int32
	n     int32 // elements, first included
	first T
}

func (q *fifo[T]) len() int { return int(q.n) }

func (q *fifo[T]) push(v T) {
	if q.n == 0 {
		q.first, q.n = v, 1
		return
	}
	q.pushRing(v)
}

func (q *fifo[T]) pushRing(v T) {
	if int(q.n) > len(q.ring) {
		ring := make([]T, max(8, 2*len(q.ring)))
		for i := range q.ring {
			ring[i] = *q.slot(i)
		}
		q.ring, q.head = ring, 0
	}
	*q.slot(int(q.n) - 1) = v
	q.n++
}

// slot returns the place in the ring of element i+1, counted from the oldest, which is 0.
func (q *fifo[T]) slot(i int) *T { return &q.ring[(int(q.head)+i)&(len(q.ring)-1)] }

// front returns the oldest element. The fifo must not be empty.
func (q *fifo[T]) front() T { return q.first }

// at returns the i-th oldest element.
func (q *fifo[T]) at(i int) T {
	if i == 0 {
		return q.first
	}
	return *q.slot(i - 1)
}

func (q *fifo[T]) set(i int, v T) {
	if i == 0 {
		q.first = v
		return
	}
	*q.slot(i - 1) = v
}

func (q *fifo[T]) pop() T {
	v := q.first
	if q.n--; q.n > 0 {
		q.first = q.ring[q.head]
		q.head = (q.head + 1) & int32(len(q.ring)-1)
	}
	return v
}

// clear removes all elements.
func (q *fifo[T]) clear() { q.n = 0 }

// insert makes v the i-th oldest element.
func (q *fifo[T]) insert(i int, v T) {
	q.push(v)
	for j := q.len() - 1; j > i; j-- {
		q.set(j, q.at(j-1))
	}
	q.set(i, v)
}

// drop removes the i-th oldest element.
func (q *fifo[T]) drop(i int) {
	for ; i+1 < q.len(); i++ {
		q.set(i, q.at(i+1))
	}
	q.n--
}
