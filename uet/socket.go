package uet

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// A socket is a udp.Conn with the methods that the driver needs, except its Mover.
type socket struct {
	*udp.Conn
	ev udp.Evidence
}

var (
	_ driver.Joiner = (*socket)(nil)
	_ driver.Set    = (*socketSet)(nil)
)

// A choosySocket is the socket of an endpoint that accepts packets of known peers only.
type choosySocket struct {
	driver.Mover
	peers *peerCache
}

// Recv first makes the senders that are in the AV known to the FEP, then returns the
// packets.
func (s *choosySocket) Recv(d *dgram.Datagram) (bool, error) {
	ok, err := s.Mover.Recv(d)
	if ok {
		s.peers.syncKnown(time.Now())
	}
	return ok, err
}

// Wait waits until something arrives or the timeout ends.
func (s *socket) Wait(timeout time.Duration) error {
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	return s.Conn.Wait(deadline)
}

// Unreachable passes on evidence that a peer is unreachable. The kernel has checked that
// the packet quoted by an ICMP message has the ports of this socket. That is evidence, not
// proof (T34).
func (s *socket) Unreachable() (netip.AddrPort, bool) {
	for s.NextError(&s.ev) {
		switch s.ev.Errno {
		case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			return s.ev.Remote, true
		}
	}
	return netip.AddrPort{}, false
}

// NewSet makes a set of sockets of endpoints.
func (s *socket) NewSet() (driver.Set, error) {
	set, err := udp.NewSet()
	if err != nil {
		return nil, err
	}
	return &socketSet{Set: set}, nil
}

// A socketSet is a udp.Set with the methods that the driver needs.
type socketSet struct{ *udp.Set }

func (s *socketSet) Add(c driver.Conn, id int) bool { return s.Set.Add(c.(*socket).Conn, id) }

func (s *socketSet) Remove(c driver.Conn, id int) { s.Set.Remove(c.(*socket).Conn, id) }

// Wait waits until a socket has something or the timeout ends.
func (s *socketSet) Wait(timeout time.Duration) error {
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	return s.Set.Wait(deadline)
}
