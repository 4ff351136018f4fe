package uet

import (
	"net/netip"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/transport/dgram"
	"github.com/uetkit/uetkit/transport/udp"
	"github.com/uetkit/uetkit/uet/driver"
)

// A socket is a udp.Conn as the driver wants it.
type socket struct {
	*udp.Conn
	ep *Endpoint
	ev udp.Evidence
}

var _ driver.Conn = (*socket)(nil)

// Recv tells the FEP who is known before it judges a packet.
func (s *socket) Recv(d *dgram.Datagram) (bool, error) {
	ok, err := s.Conn.Recv(d)
	if ok && s.ep.info.Config.KnownPeersOnly && s.ep.link == nil {
		s.ep.peers.syncKnown(time.Now())
	}
	return ok, err
}

// SendBatch says "no room" by a short count, without an error.
func (s *socket) SendBatch(ds []*dgram.Datagram) (int, error) {
	n, err := s.Conn.SendBatch(ds)
	if err == udp.ErrAgain {
		err = nil
	}
	return n, err
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
