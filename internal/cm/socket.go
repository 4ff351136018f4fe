package cm

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/uetkit/uetkit/fi"
)

// sockBuffer is what we ask of the kernel for each direction, in bytes: room for
// the first packets of a thousand peers that come at once. Less is as loss.
const sockBuffer = 2 << 20

// A socket is the UDP socket below QUIC. A failing send is a lost packet to it
// (F23): the connections live on and find out by their own timers. Only a dial
// is told, for it has nothing to lose yet.
//
// It sizes its buffers itself: quic-go asks for much more than control needs,
// and prints to the standard error when it does not get it.
type socket struct {
	*net.UDPConn

	retries atomic.Int32 // to be sent

	mu      sync.Mutex // guards what follows
	sized   int        // of the two buffers
	dialing map[netip.AddrPort]map[*failure]struct{}
	lost    uint64 // sends that failed
}

// A failure receives the first error of a send to its address.
type failure struct {
	tell func(fi.Errno)
}

func openSocket(addr netip.AddrPort) (*socket, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &socket{UDPConn: c, dialing: map[netip.AddrPort]map[*failure]struct{}{}}, nil
}

// SyscallConn gives the descriptor to callers that read or write. Until both buffers
// are set, quic-go asks for it only to look at their sizes, and is refused.
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
	_ = set(sockBuffer) // what the system gives is enough to work
	s.mu.Lock()
	s.sized++
	s.mu.Unlock()
	return nil
}

// WriteMsgUDP sends a packet.
func (s *socket) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (int, int, error) {
	s.isRetry(b)
	n, oobn, err := s.UDPConn.WriteMsgUDP(b, oob, to)
	if s.failed(err, to) {
		return len(b), len(oob), nil
	}
	return n, oobn, err
}

// WriteTo is WriteMsgUDP where the system has no more.
func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.isRetry(b)
	n, err := s.UDPConn.WriteTo(b, to)
	if s.failed(err, to) {
		return len(b), nil
	}
	return n, err
}

// isRetry counts a Retry out: RFC 9000 §17.2.5.
func (s *socket) isRetry(b []byte) {
	if len(b) > 0 && b[0]&0xf0 == 0xf0 {
		s.retries.Add(-1)
	}
}

// failed reports whether err is the loss of a packet. What quic-go knows how to
// avoid (EMSGSIZE, EIO of segmentation) is left to it, and so is our own close.
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
		for f := range s.dialing[addrPort(to)] {
			f.tell(fi.Errno(no))
		}
	}
	return true
}

// watch sends failing sends to an address to f until the returned function is called.
func (s *socket) watch(to netip.AddrPort, f *failure) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if s.dialing[to] == nil {
		s.dialing[to] = map[*failure]struct{}{}
	}
	s.dialing[to][f] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.dialing[to], f)
		if len(s.dialing[to]) == 0 {
			delete(s.dialing, to)
		}
	}
}
