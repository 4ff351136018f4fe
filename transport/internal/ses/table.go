package ses

import "math/bits"

// A table holds structs in pages that never move, and recycles their places. So a steady state
// allocates nothing, and a table that grows copies nothing.
type table[T any] struct {
	first *[pageLen]T // pages[0], mostly the only one
	pages []*[pageLen]T
	holes []int32 // the pages that have free places
	used  int32   // places that were ever given out
	free  int32   // of them those that were put back
	// idle has a bit for each place of a page that was put back.
	idle [][pageLen / 64]uint64
}

const (
	pageBits = 7
	pageLen  = 1 << pageBits
)

func (t *table[T]) at(i int32) *T {
	if uint32(i) < pageLen {
		return &t.first[i]
	}
	return t.far(i)
}

func (t *table[T]) far(i int32) *T { return &t.pages[i>>pageBits][i&(pageLen-1)] }

// get gives out a place. It still contains what it contained when it was put back.
func (t *table[T]) get() int32 {
	if t.free == 0 {
		return t.fresh()
	}
	t.free--
	page := t.holes[len(t.holes)-1]
	idle := &t.idle[page]
	w := 0
	if idle[0] == 0 {
		w = 1
	}
	i := page<<pageBits | int32(w<<6|bits.TrailingZeros64(idle[w]))
	if idle[w] &= idle[w] - 1; idle[0]|idle[1] == 0 {
		t.holes = t.holes[:len(t.holes)-1]
	}
	return i
}

// fresh gives out a place that was never used.
func (t *table[T]) fresh() int32 {
	i := t.used
	t.used++
	if int(i>>pageBits) == len(t.pages) {
		t.pages = append(t.pages, new([pageLen]T))
		t.idle = append(t.idle, [pageLen / 64]uint64{})
		t.first = t.pages[0]
	}
	return i
}

// live is the number of places given out.
func (t *table[T]) live() int { return int(t.used - t.free) }

// put takes back a place.
func (t *table[T]) put(i int32) {
	t.free++
	page := i >> pageBits
	idle := &t.idle[page]
	if idle[0]|idle[1] == 0 {
		t.holes = append(t.holes, page)
	}
	idle[i>>6&1] |= 1 << (i & 63)
}

// An index is a hash table of places of a table. Places with equal hashes are in order of
// insertion. It grows up to a fixed number of buckets.
type index struct {
	buckets []bucket // length a power of two
	links   []*[linkPage]link
	n       int // number of places
	most    int // most buckets
	load    int // places of a bucket, on average, at which it grows
	hash    func(i int32) uint32
}

// A bucket is a list of places. It contains place numbers plus 1, so fresh memory is empty
// buckets and a large table costs only what is touched.
type bucket struct{ head, tail int32 }

// A link has the neighbours of a place. The first and the last of a bucket have ^ its number for the one that
// is missing, so a place need not keep its hash.
type link struct{ next, prev int32 }

const (
	linkBits = 9
	linkPage = 1 << linkBits

	// fewBuckets is the number of buckets of a new index, or less.
	fewBuckets = 8
)

// init makes an index of at most n buckets, a power of two. hash gives the hash of a place again when
// the index grows.
func (x *index) init(n, load int, hash func(i int32) uint32) {
	x.buckets, x.most, x.n, x.load, x.hash = make([]bucket, min(n, fewBuckets)), n, 0, load, hash
}

// grow doubles the buckets. The places of each go to two buckets and keep their order.
func (x *index) grow() {
	old := x.buckets
	x.buckets = make([]bucket, 2*len(old))
	for _, b := range old {
		for i := b.head - 1; i >= 0; {
			next := x.link(i).next
			x.append(i, x.hash(i))
			i = next
		}
	}
}

func (x *index) link(i int32) *link { return &x.links[i>>linkBits][i&(linkPage-1)] }

func (x *index) first(h uint32) int32 { return x.buckets[h&uint32(len(x.buckets)-1)].head - 1 }
func (x *index) next(i int32) int32   { return max(x.link(i).next, none) }

// add puts place i at the end of the chain of h.
func (x *index) add(i int32, h uint32) {
	for int(i>>linkBits) >= len(x.links) {
		x.links = append(x.links, new([linkPage]link))
	}
	if x.n++; x.n > x.load*len(x.buckets) && len(x.buckets) < x.most {
		x.grow()
	}
	x.append(i, h)
}

func (x *index) append(i int32, h uint32) {
	k := int32(h & uint32(len(x.buckets)-1))
	b := &x.buckets[k]
	l := x.link(i)
	l.next = ^k
	if b.tail == 0 {
		l.prev, b.head = ^k, i+1
	} else {
		l.prev = b.tail - 1
		x.link(l.prev).next = i
	}
	b.tail = i + 1
}

// sort moves place i, the last of its chain, before the first place of the chain of which after
// is true.
func (x *index) sort(i int32, after func(j int32) bool) {
	l := x.link(i)
	b := &x.buckets[^l.next]
	j := b.head - 1
	for j != i && !after(j) {
		j = x.link(j).next
	}
	if j == i {
		return
	}
	x.remove(i)
	x.n++
	at := x.link(j)
	l.next, l.prev = j, at.prev
	if at.prev < 0 {
		b.head = i + 1
	} else {
		x.link(at.prev).next = i
	}
	at.prev = i
}

// remove removes place i.
func (x *index) remove(i int32) {
	x.n--
	l := x.link(i)
	if l.prev < 0 {
		x.buckets[^l.prev].head = max(l.next, none) + 1
	} else {
		x.link(l.prev).next = l.next
	}
	if l.next < 0 {
		x.buckets[^l.next].tail = max(l.prev, none) + 1
	} else {
		x.link(l.next).prev = l.prev
	}
}
