package uet

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/transport/dgram"
	"github.com/uetkit/uetkit/transport/udp"
	"github.com/uetkit/uetkit/uet/driver"
)

// A socket is a udp.Conn as the driver wants it, all but its Mover.
type socket struct {
	*udp.Conn
	ev udp.Evidence
}

var _ driver.Conn = (*socket)(nil)

// A choosySocket is the socket of an endpoint that takes packets of known peers
// only.
type choosySocket struct {
	driver.Mover
	peers *peerCache
}

// Recv makes the senders that are in the AV known to the FEP before it gets the packets.
func (s *choosySocket) Recv(d *dgram.Datagram) (bool, error) {
	ok, err := s.Mover.Recv(d)
	if ok {
		s.peers.syncKnown(time.Now())
	}
	return ok, err
}

// Wait takes a timeout.
func (s *socket) Wait(timeout time.Duration) error {
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	return s.Conn.Wait(deadline)
}

// Unreachable passes on the evidence that says so. The kernel has checked that
// the packet an ICMP message quotes has the ports of this socket; it stays
// evidence, not proof (T34).
func (s *socket) Unreachable() (netip.AddrPort, bool) {
	for s.NextError(&s.ev) {
		switch s.ev.Errno {
		case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH:
			return s.ev.Remote, true
		}
	}
	return netip.AddrPort{}, false
}
