package cm

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/uetkit/uetkit/fi"
)

// A dialed is an address to which a dial is under way. ICMP that says that nobody listens
// there ends the dials at once, as a TCP connect ends. Anybody can forge ICMP (T34), so it
// counts only if it quotes a packet that this socket sent there, of which nobody but the path
// knows the connection identifier, and if nothing was heard from there since the first dial.
type dialed struct {
	dials map[*failure]struct{}
	heard bool
	ids   [][]byte // beginnings of the first packets sent there, newest last; at most maxIDs
}

// maxIDs is the number of dials to one address of which the first packets are remembered. ICMP
// about any of them ends all.
const maxIDs = 16

// initialID returns the version and the connection identifier of the destination in a long
// header (RFC 9000 §17.2), nil if b has none that could not be guessed.
func initialID(b []byte) []byte {
	const at, least, most = 6, 8, 20 // RFC 9000 §7.2: a client draws 8 bytes or more
	if len(b) < at || b[0]&0x80 == 0 {
		return nil
	}
	n := int(b[at-1])
	if n < least || n > most || len(b) < at+n {
		return nil
	}
	return b[1 : at+n]
}

// sent notes a packet to an address to which a dial may be under way.
func (s *socket) sent(b []byte, to netip.AddrPort) {
	id := initialID(b)
	if id == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dialing[plain(to)]
	if d == nil || d.heard || slices.ContainsFunc(d.ids, func(x []byte) bool { return bytes.Equal(x, id) }) {
		return
	}
	if len(d.ids) == maxIDs {
		d.ids = slices.Delete(d.ids, 0, 1)
	}
	d.ids = append(d.ids, bytes.Clone(id))
}

// heard notes a packet from an address to which a dial may be under way: somebody is there.
func (s *socket) heard(from netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.dialing[plain(from)]; d != nil {
		d.heard = true
	}
}

// closed handles ICMP that says that nobody listens at an address. quote is the beginning of
// the packet that it quotes.
func (s *socket) closed(to netip.AddrPort, quote []byte) {
	id := initialID(quote)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dialing[plain(to)]
	if d == nil || d.heard || id == nil || !slices.ContainsFunc(d.ids, func(x []byte) bool { return bytes.Equal(x, id) }) {
		return
	}
	for f := range d.dials {
		f.tell(fi.ECONNREFUSED)
	}
}

// plain returns an address as a key of dialing. Error queues name no zone.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
