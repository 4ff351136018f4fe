package ses

import "math/bits"

// An arena hands out memory for bytes that must be kept: unexpected payload and
// copies of injected messages. It is made of chunks of 32 KiB, each cut into
// pieces of one size (a power of two from 64 B to 16 KiB) or used whole, so that
// memory given back serves any size again. Chunks are allocated when first
// needed and kept.
type arena struct {
	chunks   []chunk
	free     []int32 // chunks without use
	partial  [numClasses]int32
	reserved int // whole chunks promised and not yet taken
	used     int // chunks in use
	limit    int // chunks, 0: none
}

const (
	chunkBits  = 15
	chunkLen   = 1 << chunkBits
	minPiece   = 6                       // log2 of the smallest piece
	maxPiece   = 14                      // log2 of the largest
	numClasses = maxPiece - minPiece + 1 // sizes of pieces
	pieceBits  = chunkBits - minPiece    // bits of a piece's number in its chunk
	noPiece    = ^uint32(0)
)

type chunk struct {
	mem        []byte
	next, prev int32  // list of chunks of one class with free pieces
	freeHead   uint16 // first free piece + 1; each free piece holds the next one
	fresh      uint16 // pieces never given out
	out        uint16 // pieces given out
	class      int8
}

func (a *arena) init(limit int) {
	a.limit = limit
	for i := range a.partial {
		a.partial[i] = none
	}
}

// classOf returns the class of a piece of n bytes, n ≤ 16 KiB.
func classOf(n int) int {
	return max(bits.Len(uint(max(n, 1)-1))-minPiece, 0)
}

// room reports whether n more chunks may be taken.
func (a *arena) room(n int) bool {
	return a.limit == 0 || a.used+a.reserved+n <= a.limit
}

// chunk takes a whole chunk. The caller made sure of room or had reserved it.
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

// fits reports whether a piece of that class can be had.
func (a *arena) fits(class int) bool { return a.partial[class] != none || a.room(1) }

// piece takes a piece of a class; the caller made sure that it fits. Its bytes
// hold anything.
func (a *arena) piece(class int) uint32 {
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
		m := k.mem[int(n)<<(class+minPiece):]
		k.freeHead = uint16(m[0]) | uint16(m[1])<<8
	} else {
		n = k.fresh
		k.fresh++
	}
	k.out++
	if int(k.out) == chunkLen>>(class+minPiece) {
		a.unlink(c)
	}
	return uint32(c)<<pieceBits | uint32(n)
}

// mem returns the bytes of a piece.
func (a *arena) mem(p uint32) []byte {
	k := &a.chunks[p>>pieceBits]
	size := 1 << (int(k.class) + minPiece)
	off := int(p&(1<<pieceBits-1)) * size
	return k.mem[off : off+size : off+size]
}

// put gives a piece back.
func (a *arena) put(p uint32) {
	c := int32(p >> pieceBits)
	k := &a.chunks[c]
	class := int(k.class)
	if int(k.out) == chunkLen>>(class+minPiece) {
		a.link(c)
	}
	k.out--
	if k.out == 0 {
		a.unlink(c)
		a.putChunk(c)
		return
	}
	n := uint16(p & (1<<pieceBits - 1))
	m := k.mem[int(n)<<(class+minPiece):]
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
