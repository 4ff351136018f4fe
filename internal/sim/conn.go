package sim

import (
	"errors"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// A Conn stands for the sockets of a driver: it implements driver.Mover and driver.Conn on a
// node. With Net.Now as its Clock a driver runs in virtual time, on the one goroutine that the
// Net belongs to. Wait lets the network run instead of sleeping.
type Conn struct {
	node   *Node
	turn   func(now time.Duration)
	icmp   []netip.AddrPort
	woken  bool
	closed bool
}

// ErrConnClosed is the error of a closed Conn.
var ErrConnClosed = errors.New("sim: connection is closed")

// NewConn attaches a Conn to a node that is down. turn, if not nil, is called when something
// has arrived or the node was kicked; a driver polls then.
func NewConn(nd *Node, turn func(now time.Duration)) *Conn {
	c := &Conn{node: nd, turn: turn}
	nd.Attach((*connHost)(c))
	return c
}

// connHost is the Conn as the node sees it.
type connHost Conn

func (h *connHost) Turn(now time.Duration) {
	if h.turn != nil {
		h.turn(now)
	}
}

func (h *connHost) Unreachable(_ time.Duration, remote netip.AddrPort) {
	h.icmp = append(h.icmp, remote)
}

// Recv fills d with a train that has arrived. It never blocks.
func (c *Conn) Recv(d *dgram.Datagram) (bool, error) {
	if c.closed {
		return false, ErrConnClosed
	}
	return c.node.Recv(d), nil
}

// Send sends one train, which it borrows. There is always room.
func (c *Conn) Send(d *dgram.Datagram) error {
	if c.closed {
		return ErrConnClosed
	}
	c.node.Send(d)
	return nil
}

// SendBatch sends trains, which it borrows. There is always room.
func (c *Conn) SendBatch(ds []*dgram.Datagram) (int, error) {
	for i, d := range ds {
		if err := c.Send(d); err != nil {
			return i, err
		}
	}
	return len(ds), nil
}

// Wait lets the network run until something has arrived at the node, the timeout is over
// (negative means none) or Wake was called. Without a timeout it also ends when nothing can
// happen any more.
func (c *Conn) Wait(timeout time.Duration) error {
	n := c.node.net
	until := n.now + timeout
	for !c.closed && !c.woken && c.node.Waiting() == 0 {
		if n.queue.Len() == 0 || timeout >= 0 && n.queue.Next() > until {
			if timeout >= 0 {
				n.now = max(n.now, until)
			}
			break
		}
		n.Step()
	}
	c.woken = false
	if c.closed {
		return ErrConnClosed
	}
	return nil
}

// Wake ends the current Wait or the next one.
func (c *Conn) Wake() { c.woken = true }

// Unreachable returns the next ICMP error, and removes it.
func (c *Conn) Unreachable() (remote netip.AddrPort, ok bool) {
	if len(c.icmp) == 0 {
		return remote, false
	}
	remote, c.icmp = c.icmp[0], c.icmp[1:]
	return remote, true
}

// Close takes the node down. Its port is closed from then on.
func (c *Conn) Close() error {
	c.closed = true
	c.node.Crash(true)
	return nil
}
