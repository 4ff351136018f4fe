package ses

import "math/bits"

// An arena allocates memory for unexpected payload and for copies of injected messages. It
// consists of chunks of 32 KiB. Each is used whole or cut into blocks of one size, a power of
// two from 64 B to 16 KiB; a free chunk can be cut anew. Chunks are allocated when first needed
// and never freed.
type arena struct {
	chunks   []chunk
	free     []int32 // unused chunks
	partial  [numClasses]int32
	reserved int // whole chunks promised and not yet in use
	used     int // chunks in use
	limit    int // most chunks; 0 is no limit
}

const (
	chunkBits  = 15
	chunkLen   = 1 << chunkBits
	minBlock   = 6                       // log2 of the smallest block
	maxBlock   = 14                      // log2 of the largest
	numClasses = maxBlock - minBlock + 1 // sizes of blocks
	blockBits  = chunkBits - minBlock    // bits of a block's number in its chunk
	noBlock    = ^uint32(0)
)

type chunk struct {
	mem        []byte
	next, prev int32  // list of chunks of one class with free blocks
	freeHead   uint16 // first free block + 1; each free block has the number of the next
	fresh      uint16 // number of the first block never used
	out        uint16 // blocks in use
	class      int8
}

func (a *arena) init(limit int) {
	a.limit = limit
	for i := range a.partial {
		a.partial[i] = none
	}
}

// classOf returns the class of a block of n bytes, n ≤ 16 KiB.
func classOf(n int) int {
	return max(bits.Len(uint(max(n, 1)-1))-minBlock, 0)
}

// room reports whether n more chunks may be used.
func (a *arena) room(n int) bool {
	return a.limit == 0 || a.used+a.reserved+n <= a.limit
}

// chunk allocates a whole chunk. The caller has checked room or reserved the chunk.
func (a *arena) chunk() int32 {
	a.used++
	if n := len(a.free); n > 0 {
		c := a.free[n-1]
		a.free = a.free[:n-1]
		return c
	}
	a.chunks = append(a.chunks, chunk{mem: make([]byte, chunkLen)})
	return int32(len(a.chunks) - 1)
}

func (a *arena) putChunk(c int32) {
	a.used--
	a.free = append(a.free, c)
}

// fits reports whether a block of that class can be allocated.
func (a *arena) fits(class int) bool { return a.partial[class] != none || a.room(1) }

// block allocates a block of a class, which must fit. Its bytes are undefined.
func (a *arena) block(class int) uint32 {
	c := a.partial[class]
	if c == none {
		c = a.chunk()
		k := &a.chunks[c]
		k.class, k.freeHead, k.fresh, k.out = int8(class), 0, 0, 0
		a.link(c)
	}
	k := &a.chunks[c]
	var n uint16
	if k.freeHead != 0 {
		n = k.freeHead - 1
		m := k.mem[int(n)<<(class+minBlock):]
		k.freeHead = uint16(m[0]) | uint16(m[1])<<8
	} else {
		n = k.fresh
		k.fresh++
	}
	k.out++
	if int(k.out) == chunkLen>>(class+minBlock) {
		a.unlink(c)
	}
	return uint32(c)<<blockBits | uint32(n)
}

// mem returns the bytes of a block.
func (a *arena) mem(p uint32) []byte {
	k := &a.chunks[p>>blockBits]
	size := 1 << (int(k.class) + minBlock)
	off := int(p&(1<<blockBits-1)) * size
	return k.mem[off : off+size : off+size]
}

// put frees a block.
func (a *arena) put(p uint32) {
	c := int32(p >> blockBits)
	k := &a.chunks[c]
	class := int(k.class)
	if int(k.out) == chunkLen>>(class+minBlock) {
		a.link(c)
	}
	k.out--
	if k.out == 0 {
		a.unlink(c)
		a.putChunk(c)
		return
	}
	n := uint16(p & (1<<blockBits - 1))
	m := k.mem[int(n)<<(class+minBlock):]
	m[0], m[1] = byte(k.freeHead), byte(k.freeHead>>8)
	k.freeHead = n + 1
}

func (a *arena) link(c int32) {
	k := &a.chunks[c]
	k.prev, k.next = none, a.partial[k.class]
	if k.next != none {
		a.chunks[k.next].prev = c
	}
	a.partial[k.class] = c
}

func (a *arena) unlink(c int32) {
	k := &a.chunks[c]
	if k.prev == none {
		a.partial[k.class] = k.next
	} else {
		a.chunks[k.prev].next = k.next
	}
	if k.next != none {
		a.chunks[k.next].prev = k.prev
	}
}
