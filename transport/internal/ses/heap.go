package ses

// A heap holds items by their keys, the least first. Each item is in one heap at most, and
// knows where, so that any of them can be removed in logarithmic time.
type heap[T keyed] []T

type keyed interface {
	comparable
	seated() *seat
}

// A seat is the key of an item and its place in its heap, counted from 1. 0 is in no heap.
type seat struct {
	key   uint64
	place int32
}

func (p *seat) seated() *seat { return p }

func (h *heap[T]) push(x T, key uint64) {
	*h = append(*h, x)
	x.seated().key = key
	h.up(len(*h)-1, x)
}

// pop removes the least item. There must be one.
func (h *heap[T]) pop() T {
	x := (*h)[0]
	h.remove(x)
	return x
}

// remove removes an item, if it is in the heap.
func (h *heap[T]) remove(x T) {
	i := int(x.seated().place) - 1
	if i < 0 {
		return
	}
	x.seated().place = 0
	last := len(*h) - 1
	y := (*h)[last]
	var none T
	(*h)[last] = none
	if *h = (*h)[:last]; i != last {
		h.up(i, y)
		h.down(int(y.seated().place)-1, y)
	}
}

func (h heap[T]) set(i int, x T) {
	h[i] = x
	x.seated().place = int32(i) + 1
}

// up puts x at index i or above it.
func (h heap[T]) up(i int, x T) {
	for i > 0 {
		j := (i - 1) / 2
		if h[j].seated().key <= x.seated().key {
			break
		}
		h.set(i, h[j])
		i = j
	}
	h.set(i, x)
}

// down puts x at index i or below it.
func (h heap[T]) down(i int, x T) {
	for {
		j := 2*i + 1
		if j >= len(h) {
			break
		}
		if j+1 < len(h) && h[j+1].seated().key < h[j].seated().key {
			j++
		}
		if x.seated().key <= h[j].seated().key {
			break
		}
		h.set(i, h[j])
		i = j
	}
	h.set(i, x)
}
