package fabric

// The sizes of the pool's buffers in bytes, for ACKs, packets, jumbo packets and slabs.
var poolSizes = [...]int{256, 2048, 16384, maxIP}

// maxInside is the most bytes of buffers in the switch, for packets in transit and on tapes
// together. A packet that arrives beyond it is lost as LostFull.
const maxInside = 256 << 20

// A pool is the memory of packets. It reuses buffers.
type pool struct {
	free  [len(poolSizes)][]*packet
	used  int // bytes
	taped int // bytes of them on tapes
}

// get returns a packet with room for n bytes, or nil if the pool has reached its limit. The
// content is arbitrary.
func (o *pool) get(n int) *packet {
	c := 0
	for poolSizes[c] < n {
		c++
	}
	size := poolSizes[c]
	if o.used+size > maxInside {
		return nil
	}
	o.used += size
	if k := len(o.free[c]); k > 0 {
		p := o.free[c][k-1]
		o.free[c] = o.free[c][:k-1]
		return p
	}
	return &packet{buf: make([]byte, size), class: uint8(c)}
}

// put returns p to the pool.
func (o *pool) put(p *packet) {
	o.used -= len(p.buf)
	o.free[p.class] = append(o.free[p.class], p)
}
