//go:build race

package udp

import (
	"runtime"
	"unsafe"

	"github.com/uetkit/uetkit/internal/dgram"
)

// moverOf returns a Mover that tells the race detector what it cannot see: what a thread did
// before it sent to a port comes before what a thread of the same process does after it
// received there. Package syscall does the same for files. Otherwise a program that looks at its
// memory and then lets another of its endpoints write there counts as a race.
func moverOf(c *Conn) Mover { return orderedMover{c} }

type orderedMover struct{ c *Conn }

// orders has a mark for the detector for each port, or for some that share it. It is never read.
var orders [1 << 10]byte

func order(port uint16) unsafe.Pointer { return unsafe.Pointer(&orders[int(port)%len(orders)]) }

func (o orderedMover) Recv(g *dgram.Datagram) (bool, error) {
	ok, err := o.c.io.Recv(g)
	if ok {
		runtime.RaceAcquire(order(o.c.ports[g.Path]))
	}
	return ok, err
}

func (o orderedMover) Send(g *dgram.Datagram) error {
	runtime.RaceReleaseMerge(order(g.Remote.Port()))
	return o.c.io.Send(g)
}

func (o orderedMover) SendBatch(gs []*dgram.Datagram) (int, error) {
	for _, g := range gs {
		runtime.RaceReleaseMerge(order(g.Remote.Port()))
	}
	return o.c.io.SendBatch(gs)
}
