package uet

import (
	"net/netip"

	"github.com/uetkit/uetkit/transport/dgram"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/driver"
)

// A Tapped is one datagram that passed an endpoint's sockets.
type Tapped struct {
	// Sent says that the endpoint sent it; else it received it.
	Sent bool
	// Local is the endpoint's address with the port of the path that the
	// datagram took, Remote the peer's.
	Local, Remote netip.AddrPort
	// TOS is the traffic class octet it was sent with; of a received one only
	// the two ECN bits are known.
	TOS uint8
	// Data is the UDP payload: PDS header, SES header, message, and the CRC in
	// the last Trailer bytes (4, or 0 without one).
	Data    []byte
	Trailer int
}

// Packet is Data without the trailer.
func (t *Tapped) Packet() []byte { return t.Data[:max(0, len(t.Data)-t.Trailer)] }

// A tappedSocket shows Config.Tap what passes.
type tappedSocket struct {
	*socket
	tap   func(*Tapped)
	local netip.Addr
	ports []uint16
	// trailer as in Tapped.
	trailer int
	seen    Tapped
}

var _ driver.Conn = (*tappedSocket)(nil)

// driven is the socket as the driver gets it. Without a tap there is nothing in
// between.
func (ep *Endpoint) driven() driver.Conn {
	s := &socket{Conn: ep.conn, ep: ep}
	tap := ep.info.Config.Tap
	if tap == nil {
		return s
	}
	t := &tappedSocket{socket: s, tap: tap, local: s.LocalAddr().Addr(), ports: s.Ports()}
	if !ep.info.Config.NoCRC {
		t.trailer = wire.CRCLen
	}
	return t
}

func (s *tappedSocket) Recv(d *dgram.Datagram) (bool, error) {
	ok, err := s.socket.Recv(d)
	if ok {
		s.show(false, d)
	}
	return ok, err
}

// SendBatch shows what the socket has taken, after it has.
func (s *tappedSocket) SendBatch(ds []*dgram.Datagram) (int, error) {
	n, err := s.socket.SendBatch(ds)
	for _, d := range ds[:n] {
		s.show(true, d)
	}
	return n, err
}

func (s *tappedSocket) show(sent bool, d *dgram.Datagram) {
	for rest, more := d.Data, true; more; more = len(rest) > 0 {
		var b []byte
		b, rest = d.Next(rest)
		s.seen = Tapped{Sent: sent, Local: netip.AddrPortFrom(s.local, s.ports[d.Path]), Remote: d.Remote, TOS: d.TOS, Data: b, Trailer: s.trailer}
		s.tap(&s.seen)
	}
	s.seen.Data = nil
}
