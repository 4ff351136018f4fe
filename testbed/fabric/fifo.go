package fabric

// A fifo is a ring of packets. It grows up to its owner's bound and never shrinks.
type fifo struct {
	ring    []*packet
	head, n int
}

func (f *fifo) push(p *packet) {
	if f.n == len(f.ring) {
		ring := make([]*packet, max(16, 2*len(f.ring)))
		for i := range f.n {
			ring[i] = f.ring[(f.head+i)&(len(f.ring)-1)]
		}
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = p
	f.n++
}

func (f *fifo) pop() *packet {
	p := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) & (len(f.ring) - 1)
	f.n--
	return p
}
