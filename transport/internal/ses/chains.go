package ses

// Chains are a hash table of places of a table, in no order. A place needs half of what it needs in an index: to
// remove one, its chain is walked. So the hashes of no more than a few may be equal.
type chains struct {
	heads []uint32 // places plus 1; length a power of two
	n     int      // number of places
	most  int      // most heads
	hash  func(i int32) uint32
	// link returns where the place is that follows one in its chain. noBlock is none, and what it has when it is in no chain.
	link func(i int32) *uint32
}

// chainLoad is how many places a chain has, on average, when the heads double.
const chainLoad = 4

// init makes chains with at most n heads, a power of two.
func (c *chains) init(n int, hash func(i int32) uint32, link func(i int32) *uint32) {
	c.heads, c.most, c.n, c.hash, c.link = make([]uint32, min(n, fewBuckets)), n, 0, hash, link
}

func (c *chains) head(h uint32) *uint32   { return &c.heads[h&uint32(len(c.heads)-1)] }
func (c *chains) first(h uint32) int32    { return int32(*c.head(h)) - 1 }
func (c *chains) next(i int32) int32      { return int32(*c.link(i)) }
func (c *chains) push(h *uint32, i int32) { *c.link(i), *h = *h-1, uint32(i)+1 }

// add puts place i into the chain of its hash.
func (c *chains) add(i int32) {
	if c.n++; c.n > chainLoad*len(c.heads) && len(c.heads) < c.most {
		c.rehash(2 * len(c.heads))
	}
	c.push(c.head(c.hash(i)), i)
}

// shrink halves the heads as long as they are more than four for each place. It may not be called while chains are walked, so remove
// does not do it: the sweep does. What it costs was paid for by the places that made the heads so many.
func (c *chains) shrink() {
	n := len(c.heads)
	for n > fewBuckets && 4*c.n < n {
		n /= 2
	}
	if n < len(c.heads) {
		c.rehash(n)
	}
}

// rehash makes n heads.
func (c *chains) rehash(n int) {
	old := c.heads
	c.heads = make([]uint32, n)
	for _, h := range old {
		for i := int32(h) - 1; i != none; {
			next := c.next(i)
			c.push(c.head(c.hash(i)), i)
			i = next
		}
	}
}

// remove removes place i, whose hash must be that with which it was added.
func (c *chains) remove(i int32) {
	c.n--
	h, l := c.head(c.hash(i)), c.link(i)
	if *h == uint32(i)+1 {
		*h = *l + 1
	} else {
		p := c.link(int32(*h) - 1)
		for *p != uint32(i) {
			p = c.link(int32(*p))
		}
		*p = *l
	}
	*l = noBlock
}

// Links are the links of chains whose places have no room for one.
type links []*[linkPage]uint32

func (l *links) at(i int32) *uint32 {
	for int(i>>linkBits) >= len(*l) {
		*l = append(*l, new([linkPage]uint32))
	}
	return &(*l)[i>>linkBits][i&(linkPage-1)]
}
