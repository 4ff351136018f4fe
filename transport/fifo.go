package transport

// A fifo is a queue in a ring that grows. The zero fifo is empty.
type fifo[T any] struct {
	ring []T
	head int
	n    int
}

func (q *fifo[T]) len() int { return q.n }

func (q *fifo[T]) push(v T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = v
	q.n++
}

// front is the oldest element; there must be one.
func (q *fifo[T]) front() T { return q.ring[q.head] }

// at is the i-th oldest element.
func (q *fifo[T]) at(i int) T { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *fifo[T]) pop() T {
	v := q.ring[q.head]
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return v
}

// insert makes v the i-th oldest element.
func (q *fifo[T]) insert(i int, v T) {
	q.push(v)
	for j := q.n - 1; j > i; j-- {
		q.ring[(q.head+j)&(len(q.ring)-1)] = q.at(j - 1)
	}
	q.ring[(q.head+i)&(len(q.ring)-1)] = v
}

// drop removes the i-th oldest element.
func (q *fifo[T]) drop(i int) {
	for ; i+1 < q.n; i++ {
		q.ring[(q.head+i)&(len(q.ring)-1)] = q.at(i + 1)
	}
	q.n--
}
