package cm

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
)

// sockBuffer is the buffer we ask for in each direction, in bytes: room for the first packets
// of a thousand peers that come at once. A smaller one acts like loss.
const sockBuffer = 2 << 20

// A socket is the UDP socket below QUIC. It treats a send that fails as a lost packet (F23):
// the connections live on and find out by their timers. Only a dial is told, because it has
// nothing to lose yet.
//
// It sets the size of its buffers itself. quic-go asks for much more than control needs, and
// prints to standard error if it does not get it.
type socket struct {
	*net.UDPConn

	retries atomic.Int32 // Retries to be sent
	batch   batch
	watched atomic.Int32 // addresses in dialing

	mu      sync.Mutex // guards the fields below
	sized   int        // number of buffers whose size was set
	dialing map[netip.AddrPort]*dialed
	lost    uint64 // sends that failed
}

// A failure receives the error of a send to its address, or that nobody listens there.
type failure struct {
	tell func(fi.Errno)
}

// openSocket binds a socket. Port 0 is one of the range.
func openSocket(addr netip.AddrPort, ports portrange.Range) (*socket, error) {
	bind := func(port uint16) (*net.UDPConn, error) {
		return net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr.Addr(), port)))
	}
	var c *net.UDPConn
	var err error
	if addr.Port() != 0 {
		c, err = bind(addr.Port())
	} else {
		c, err = portrange.Bind(ports, 0, bind)
	}
	if err != nil {
		return nil, err
	}
	return &socket{UDPConn: c, batch: newBatch(c), dialing: map[netip.AddrPort]*dialed{}}, nil
}

// SyscallConn returns the descriptor to callers that read or write. Until both buffers are set
// it fails, because then quic-go wants it only to look at their sizes.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sized < 2 {
		return nil, errors.ErrUnsupported
	}
	return s.UDPConn.SyscallConn()
}

// SetReadBuffer ignores its argument and asks for sockBuffer.
func (s *socket) SetReadBuffer(int) error { return s.size(s.UDPConn.SetReadBuffer) }

// SetWriteBuffer is as SetReadBuffer.
func (s *socket) SetWriteBuffer(int) error { return s.size(s.UDPConn.SetWriteBuffer) }

func (s *socket) size(set func(int) error) error {
	_ = set(sockBuffer) // any size the system gives is enough to work
	s.mu.Lock()
	s.sized++
	s.mu.Unlock()
	return nil
}

// WriteMsgUDP sends a packet.
func (s *socket) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (int, int, error) {
	s.isRetry(b)
	if s.watched.Load() > 0 {
		s.sent(b, to.AddrPort())
	}
	n, oobn, err := s.UDPConn.WriteMsgUDP(b, oob, to)
	if s.retry(err) {
		n, oobn, err = s.UDPConn.WriteMsgUDP(b, oob, to)
	}
	if s.failed(err, to) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo is WriteMsgUDP for systems that have no more.
func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.isRetry(b)
	n, err := s.UDPConn.WriteTo(b, to)
	if s.failed(err, to) {
		return len(b), nil
	}
	return n, err
}

// isRetry counts b if it is a Retry (RFC 9000 §17.2.5): one less waits to be sent.
func (s *socket) isRetry(b []byte) {
	if len(b) > 0 && b[0]&0xf0 == 0xf0 {
		s.retries.Add(-1)
	}
}

// failed reports whether err means that a packet is lost. It leaves to quic-go what quic-go can
// avoid (EMSGSIZE, EIO of segmentation), and our own close.
func (s *socket) failed(err error, to net.Addr) bool {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return false
	}
	var no syscall.Errno
	if errors.As(err, &no) && (fi.Errno(no) == fi.EMSGSIZE || fi.Errno(no) == fi.EIO) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
	switch fi.Errno(no) {
	case fi.ENETUNREACH, fi.EHOSTUNREACH, fi.ENETDOWN, fi.EADDRNOTAVAIL, fi.EINVAL, fi.EACCES, fi.EHOSTDOWN:
		if d := s.dialing[plain(addrPort(to))]; d != nil {
			for f := range d.dials {
				f.tell(fi.Errno(no))
			}
		}
	}
	return true
}

// watch tells f of failing sends to an address, and of ICMP that says that nobody listens
// there, until the returned function is called.
func (s *socket) watch(to netip.AddrPort, f *failure) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to = plain(to)
	d := s.dialing[to]
	if d == nil {
		d = &dialed{dials: map[*failure]struct{}{}}
		s.dialing[to] = d
		if s.watched.Add(1) == 1 {
			s.evident(true)
		}
	}
	d.dials[f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(d.dials, f)
		if len(d.dials) == 0 {
			delete(s.dialing, to)
			if s.watched.Add(-1) == 0 {
				s.evident(false)
			}
		}
	}
}
