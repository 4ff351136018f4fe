package ses

// A table holds structs in pages that never move, and recycles their places. So a steady state
// allocates nothing, and a table that grows copies nothing.
type table[T any] struct {
	first *[pageLen]T // pages[0], mostly the only one
	pages []*[pageLen]T
	free  []int32
	used  int32 // places that were ever given out
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
	if n := len(t.free) - 1; n >= 0 {
		i := t.free[n]
		t.free = t.free[:n]
		return i
	}
	return t.fresh()
}

// fresh gives out a place that was never used.
func (t *table[T]) fresh() int32 {
	i := t.used
	t.used++
	if int(i>>pageBits) == len(t.pages) {
		t.pages = append(t.pages, new([pageLen]T))
		t.first = t.pages[0]
	}
	return i
}

// live is the number of places given out.
func (t *table[T]) live() int { return int(t.used) - len(t.free) }

// put takes back a place.
func (t *table[T]) put(i int32) { t.free = append(t.free, i) }

// An index is a hash table of places of a table. Places with equal hashes are in order of
// insertion. It grows up to a fixed number of buckets.
type index struct {
	buckets []bucket // length a power of two
	links   []*[linkPage]link
	n       int // number of places
	most    int // most buckets
}

// A bucket is a list of places. It contains place numbers plus 1, so fresh memory is empty
// buckets and a large table costs only what is touched.
type bucket struct{ head, tail int32 }

type link struct {
	next, prev int32
	hash       uint32
}

const (
	linkBits = 9
	linkPage = 1 << linkBits

	// fewBuckets is the number of buckets of a new index, or less.
	fewBuckets = 8
)

// init makes an index of at most n buckets, a power of two.
func (x *index) init(n int) {
	x.buckets, x.most, x.n = make([]bucket, min(n, fewBuckets)), n, 0
}

func (x *index) bucket(h uint32) *bucket { return &x.buckets[h&uint32(len(x.buckets)-1)] }

// grow doubles the buckets. The places of each go to two buckets and keep their order.
func (x *index) grow() {
	old := x.buckets
	x.buckets = make([]bucket, 2*len(old))
	for _, b := range old {
		for i := b.head - 1; i != none; {
			next := x.link(i).next
			x.append(i, x.link(i).hash)
			i = next
		}
	}
}

func (x *index) link(i int32) *link { return &x.links[i>>linkBits][i&(linkPage-1)] }

func (x *index) first(h uint32) int32 { return x.buckets[h&uint32(len(x.buckets)-1)].head - 1 }
func (x *index) next(i int32) int32   { return x.link(i).next }

// add puts place i at the end of the chain of h.
func (x *index) add(i int32, h uint32) {
	for int(i>>linkBits) >= len(x.links) {
		x.links = append(x.links, new([linkPage]link))
	}
	if x.n++; x.n > len(x.buckets) && len(x.buckets) < x.most {
		x.grow()
	}
	x.append(i, h)
}

func (x *index) append(i int32, h uint32) {
	b := x.bucket(h)
	*x.link(i) = link{next: none, prev: b.tail - 1, hash: h}
	if b.tail == 0 {
		b.head = i + 1
	} else {
		x.link(b.tail - 1).next = i
	}
	b.tail = i + 1
}

// sort moves place i, the last of its chain, before the first place of the chain of which after
// is true.
func (x *index) sort(i int32, after func(j int32) bool) {
	l := x.link(i)
	j := x.bucket(l.hash).head - 1
	for j != i && !after(j) {
		j = x.link(j).next
	}
	if j == i {
		return
	}
	h := l.hash
	x.remove(i)
	x.n++
	b, at := x.bucket(h), x.link(j)
	*l = link{next: j, prev: at.prev, hash: h}
	if at.prev == none {
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
	b := x.bucket(l.hash)
	if l.prev == none {
		b.head = l.next + 1
	} else {
		x.link(l.prev).next = l.next
	}
	if l.next == none {
		b.tail = l.prev + 1
	} else {
		x.link(l.next).prev = l.prev
	}
}
