package uet

import (
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// A Tapped is one datagram that passed an endpoint's sockets.
type Tapped struct {
	// Sent says that the endpoint sent the datagram; otherwise it received it.
	Sent bool
	// Local is the endpoint's address with the port of the path that the
	// datagram took, Remote the peer's.
	Local, Remote netip.AddrPort
	// TOS is the traffic class octet with which the datagram was sent or arrived; a switch
	// may change it on the way.
	TOS uint8
	// Why is the cause of a sent datagram: "new", "RTO", "SACK: …", "NACK TRIMMED",
	// "because of AR or SYN", …; or what became of a received one: "duplicate", "out of
	// order", "trimmed", "dropped: …", or empty if it was accepted. The words are for
	// people and may change.
	Why string
	// Data is the UDP payload: PDS header, SES header, message, and in the last
	// Trailer bytes the CRC (4, or 0 without one).
	//
	// A secured endpoint's datagram is shown as it was before sealing, or after it was
	// opened: a tap is to show why something is slow, and sealed bytes do not tell. (A file
	// of them has the messages in clear.) TSS is its security header, Data the plain text.
	// There is no trailer, because the ICV covers the sealed bytes. A received datagram
	// that did not open, or came in clear, is shown as it came: TSS is nil, and Trailer is
	// that of the packet that it seems to be.
	Data    []byte
	Trailer int
	TSS     *wire.TSS
	// Wire is the UDP payload as it is on the wire. It differs from Data only if TSS is not
	// nil.
	Wire []byte
}

// Packet is Data without the trailer.
func (t *Tapped) Packet() []byte { return t.Data[:max(0, len(t.Data)-t.Trailer)] }

// A tap shows Config.Tap the datagrams that pass between the driver and the socket:
// received ones after the FEP has handled them, sent ones after the socket has accepted
// them.
type tap struct {
	fn    func(*Tapped)
	local netip.Addr
	ports []uint16
	// trailer is as in Tapped, for a datagram of an endpoint in clear.
	trailer int
	sealed  bool
	// sending are the notes of the trains that the driver keeps until they are sent.
	sending map[*dgram.Datagram][]transport.Note
	seen    Tapped
	tss     wire.TSS
}

type tappedCore struct {
	*transport.FEP
	tap *tap
}

type tappedSocket struct {
	driver.Mover
	tap *tap
}

var (
	_ driver.Core  = (*tappedCore)(nil)
	_ driver.Mover = (*tappedSocket)(nil)
)

// driven returns the FEP and the socket that the driver gets. Without a tap they are not
// wrapped in one.
func (ep *Endpoint) driven() (driver.Core, driver.Mover) {
	var s driver.Mover = ep.conn.Mover()
	if ep.info.Config.KnownPeersOnly && ep.connection == nil {
		known := &ep.peers
		if ep.port != nil {
			known = &ep.port.known
		}
		s = &choosySocket{s, known}
	}
	fn := ep.info.Config.Tap
	if fn == nil {
		return ep.fep, s
	}
	t := &tap{
		fn: fn, local: ep.conn.LocalAddr().Addr(), ports: ep.conn.Ports(), sealed: ep.seal != nil,
		sending: map[*dgram.Datagram][]transport.Note{},
	}
	if !ep.info.Config.NoCRC && !t.sealed {
		t.trailer = wire.CRCLen
	}
	return &tappedCore{ep.fep, t}, &tappedSocket{s, t}
}

func (c *tappedCore) Receive(now time.Duration, d *dgram.Datagram) {
	c.FEP.Receive(now, d)
	c.tap.show(false, d, c.FEP.Notes())
}

// Transmit keeps the notes of each train, because the next train overwrites them and the
// driver sends several at once.
func (c *tappedCore) Transmit(now time.Duration, d *dgram.Datagram) bool {
	ok := c.FEP.Transmit(now, d)
	if ok {
		kept := c.tap.sending[d][:0]
		for _, n := range c.FEP.Notes() {
			n.Plain = slices.Clone(n.Plain)
			kept = append(kept, n)
		}
		c.tap.sending[d] = kept
	}
	return ok
}

// Send sends, then shows what the socket has accepted.
func (s *tappedSocket) Send(d *dgram.Datagram) error {
	err := s.Mover.Send(d)
	if err == nil {
		s.tap.show(true, d, s.tap.sending[d])
	}
	return err
}

// SendBatch sends, then shows what the socket has accepted.
func (s *tappedSocket) SendBatch(ds []*dgram.Datagram) (int, error) {
	n, err := s.Mover.SendBatch(ds)
	for _, d := range ds[:n] {
		s.tap.show(true, d, s.tap.sending[d])
	}
	return n, err
}

// at returns the local address of a path.
func (t *tap) at(path int) netip.AddrPort {
	ev, echo := dgram.EchoOf(path)
	if !echo {
		ev = t.ports[path]
	}
	return netip.AddrPortFrom(t.local, ev)
}

// show calls fn for each datagram of a train. notes, if any, has one Note per datagram.
func (t *tap) show(sent bool, d *dgram.Datagram, notes []transport.Note) {
	for rest, more := d.Data, true; more; more = len(rest) > 0 {
		var b []byte
		b, rest = d.Next(rest)
		var n transport.Note
		if len(notes) > 0 {
			n, notes = notes[0], notes[1:]
		}
		t.seen = Tapped{
			Sent: sent, Local: t.at(d.Path), Remote: d.Remote, TOS: d.TOS, Why: n.Why, Data: b, Trailer: t.trailer, Wire: b,
		}
		if t.sealed {
			t.unseal(b, &n)
		}
		t.fn(&t.seen)
	}
	t.seen.Data, t.seen.Wire = nil, nil
}

// unseal shows the contents of a secured datagram.
func (t *tap) unseal(b []byte, n *transport.Note) {
	if n.Whole != nil {
		b = n.Whole
		t.seen.Data, t.seen.Wire = b, b
	}
	h, _, err := wire.ParseTSS(b)
	switch {
	case err != nil || wire.Type(b[0]>>3) != wire.TypeTSS:
		t.seen.Trailer = min(len(b), wire.CRCLen)
	case n.Plain == nil:
		t.seen.Trailer = wire.ICVLen
	default:
		t.tss = h
		t.seen.TSS, t.seen.Data, t.seen.Trailer = &t.tss, n.Plain, 0
	}
}
