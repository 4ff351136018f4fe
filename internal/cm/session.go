package cm

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
)

// closeTime is how long an orderly close waits for the peer.
const closeTime = time.Second

// exporterLabel names our use of the TLS exporter (RFC 8446 §7.5).
const exporterLabel = "EXPORTER-uet-cm session key"

// A Session is a connection that both ends agreed on.
type Session struct {
	node    *Node
	conn    *quic.Conn
	stream  *quic.Stream
	params  Params
	private []byte
	dialer  bool
	source  netip.Addr        // the source that admission counts
	cert    *x509.Certificate // certificate of the peer; nil: anonymous

	goodWith atomic.Pointer[pskIdentity] // the keys that cert was last checked with

	in input // belongs to the goroutine that reads

	heard  uint64 // packets received when Node.probe last looked; belongs to it
	silent int    // how often Node.probe has looked since without a new packet

	mu      sync.Mutex // guards the fields below and the stream's deadlines
	h       Handler
	running bool   // the reader runs
	woken   bool   // wake was called: the reader must look at the fields below
	closing Reason // why this end closes; 0 means that it does not
	last    []byte // private data of Close
	probing bool   // send a probe
	why     Reason // why the session ended; 0 means that it has not
	gen     uint32 // generation of the key in use
	rekey   *rekey // the change of keys in progress, or nil
	done    chan struct{}
}

// A rekey is one change of keys in progress.
type rekey struct {
	gen  uint32
	sent bool
	done chan struct{}
}

func newSession(n *Node, conn *quic.Conn, stream *quic.Stream) *Session {
	s := &Session{node: n, conn: conn, stream: stream, done: make(chan struct{}), source: sourceOf(conn.RemoteAddr())}
	s.in.limit = n.cfg.Handshake
	return s
}

// setPeer stores what the peer says about itself.
func (s *Session) setPeer(m *message) {
	s.params, s.private = m.params, m.private
	switch a, remote := s.params.Addr, s.Remote().Addr(); {
	case a.Addr().IsUnspecified():
		s.params.Addr = netip.AddrPortFrom(remote, a.Port())
	case a.Addr().Is6() && a.Addr().IsLinkLocalUnicast():
		s.params.Addr = netip.AddrPortFrom(a.Addr().WithZone(remote.Zone()), a.Port()) // our zone: the peer's means nothing here
	}
	if certs := s.conn.ConnectionState().TLS.PeerCertificates; len(certs) > 0 && s.node.cfg.Security != SecOff {
		s.cert = certs[0]
	}
}

// Params returns those of the peer.
func (s *Session) Params() Params { return s.params }

// Private returns, at the dialer, the data of the accept.
func (s *Session) Private() []byte { return s.private }

// Remote is the address that the peer's control packets come from.
func (s *Session) Remote() netip.AddrPort { return addrPort(s.conn.RemoteAddr()) }

// Local is the address that ours come from.
func (s *Session) Local() netip.AddrPort { return addrPort(s.conn.LocalAddr()) }

// Member is the name in the peer's certificate, empty without SecTLS.
func (s *Session) Member() string {
	if s.cert == nil || s.node.cfg.Security != SecTLS {
		return ""
	}
	return nameOf(s.cert)
}

// Dialer reports whether this end dialed.
func (s *Session) Dialer() bool { return s.dialer }

func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := u.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// Key returns the secret of a generation. It is the same at both ends, and nobody else knows
// it. The session begins with generation 0; each Rekey adds one.
func (s *Session) Key(gen uint32) (key [32]byte, err error) {
	state := s.conn.ConnectionState().TLS
	b, err := state.ExportKeyingMaterial(exporterLabel, be32(gen), len(key))
	if err != nil {
		return key, fmt.Errorf("cm: key %d: %w: %w", gen, err, fi.ENOKEY)
	}
	copy(key[:], b)
	return key, nil
}

// Start lets events flow, also those that happened before. They come from one goroutine, in
// order. The last is Closed, whatever ended the session. A handler may call Close. It must not
// call Rekey, which waits for a later event. A second handler is ignored.
func (s *Session) Start(h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.h != nil || h == nil {
		return
	}
	s.h = h
	if s.why != 0 {
		go h.Closed(s.why, nil)
		return
	}
	if !s.running {
		// If the node is closing, it has closed the session, which is running then.
		s.running = s.node.start(s.run)
	}
}

// Rekey changes to the next key: both ends install it, then both switch. It returns when this
// end has switched. Concurrent calls, also of both ends, make one generation. If ctx ends first
// the change continues.
func (s *Session) Rekey(ctx context.Context) error {
	s.mu.Lock()
	if s.closing != 0 || s.why != 0 {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.h == nil {
		s.mu.Unlock()
		return fmt.Errorf("cm: session not started: %w", fi.EOPBADSTATE)
	}
	if s.rekey == nil {
		s.rekey = &rekey{gen: s.gen + 1, done: make(chan struct{})}
		s.wake()
	}
	r := s.rekey
	s.mu.Unlock()
	select {
	case <-r.done:
		return nil
	case <-s.done:
		return ErrClosed
	case <-ctx.Done():
		return dialError(ctx.Err())
	}
}

// Close ends the session in order. It does not wait: the handler's Closed comes when the peer
// has answered, or after closeTime. private is cut at MaxPrivate.
func (s *Session) Close(private []byte) error { return s.close(LocalClosed, private) }

func (s *Session) close(why Reason, private []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing != 0 || s.why != 0 {
		return ErrClosed
	}
	s.closing = why
	s.last = append([]byte(nil), private[:min(len(private), MaxPrivate)]...)
	if s.running {
		s.wake()
		return nil
	}
	s.running = true
	s.node.wg.Go(s.run)
	return nil
}

// probe makes the reader send a probe, if there is a reader.
func (s *Session) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running && s.closing == 0 && s.why == 0 {
		s.probing = true
		s.wake()
	}
}

// wake makes the reader return from Read. The caller holds mu.
func (s *Session) wake() {
	s.woken = true
	s.stream.SetReadDeadline(time.Unix(1, 0))
}

// errWoken is the error of a Read that wake ended.
var errWoken = errors.New("woken")

// run reads until the session is over. Its goroutine is that of the handler.
func (s *Session) run() {
	why, private := s.read()
	s.mu.Lock()
	if s.closing != 0 {
		why, private = s.closing, nil
	}
	s.mu.Unlock()
	code := codeClosed
	switch why {
	case ProtocolError:
		code = codeProtocol
	case Removed:
		code = codeRemoved
	}
	s.conn.CloseWithError(code, "")
	s.node.leave(s)
	s.mu.Lock()
	s.why = why
	h := s.h
	s.mu.Unlock()
	close(s.done)
	if h != nil {
		h.Closed(why, private)
	}
}

// read processes messages until the session is over, and returns the reason, and the peer's
// private data.
func (s *Session) read() (Reason, []byte) {
	for {
		s.mu.Lock()
		s.woken = false
		closing, last, r, h, probe := s.closing, s.last, s.rekey, s.h, s.probing
		s.probing = false
		if closing != 0 {
			s.in.deadline, s.in.limit = time.Now().Add(closeTime), 0
		}
		s.stream.SetReadDeadline(s.in.deadline)
		begin := r != nil && !r.sent && closing == 0
		if begin {
			r.sent = true
		}
		s.mu.Unlock()
		switch {
		case closing == LocalClosed:
			if s.send(&message{kind: kindClose, private: last}) == nil {
				s.stream.Close()
				s.drain()
			}
			return closing, nil
		case closing != 0:
			return closing, nil
		case begin:
			h.InstallKey(r.gen)
			if err := s.send(&message{kind: kindRekey, gen: r.gen}); err != nil {
				return reasonOf(err), nil
			}
		}
		if probe {
			if err := s.send(&message{kind: kindProbe}); err != nil {
				return reasonOf(err), nil
			}
		}
		for {
			m, err := s.in.next(s.stream, s.node.version, s.deadline)
			if err == errWoken {
				break
			}
			if err != nil {
				return reasonOf(err), nil
			}
			switch {
			case m.version != s.node.version:
				return ProtocolError, nil
			case m.kind == kindProbe:
			case m.kind == kindClose:
				return PeerClosed, m.private
			case m.kind == kindRekey || m.kind == kindRekeyed:
				if err := s.rekeyed(h, &m); err != nil {
					return reasonOf(err), nil
				}
			default:
				return ProtocolError, nil
			}
		}
	}
}

// drain waits until the peer has closed the connection, too, or for closeTime.
func (s *Session) drain() {
	for {
		m, err := s.in.next(s.stream, s.node.version, s.deadline)
		if err == nil && m.kind != kindClose {
			continue
		}
		if err != errWoken {
			return
		}
		s.mu.Lock()
		s.woken = false
		s.stream.SetReadDeadline(s.in.deadline)
		s.mu.Unlock()
	}
}

// deadline sets the deadline of the next Read, unless wake was called.
func (s *Session) deadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.woken {
		s.stream.SetReadDeadline(t)
	}
}

// rekeyed processes a message about keys.
//
//	a  InstallKey, rekey →          → rekey  b: InstallKey, rekeyed →, SwitchKey
//	a  SwitchKey        ← rekeyed
//
// If both ends began, the rekey of each is the answer to the other's.
func (s *Session) rekeyed(h Handler, m *message) error {
	s.mu.Lock()
	r, next := s.rekey, s.gen+1
	sent := r != nil && r.sent
	ok := m.gen == next && next != 0 && (sent || m.kind == kindRekey)
	if ok {
		// Later calls of Rekey ask for the generation after this one.
		s.gen, s.rekey = m.gen, nil
	}
	s.mu.Unlock()
	if !ok {
		return wrong("generation %d after %d", m.gen, next-1)
	}
	if !sent {
		h.InstallKey(m.gen)
		if err := s.send(&message{kind: kindRekeyed, gen: m.gen}); err != nil {
			return err
		}
	}
	h.SwitchKey(m.gen)
	if r != nil {
		close(r.done)
	}
	return nil
}

// send writes a message. After the set-up only the reader's goroutine calls it.
func (s *Session) send(m *message) error { return send(s.stream, m, s.node) }

func send(stream *quic.Stream, m *message, n *Node) error {
	m.version = n.version
	stream.SetWriteDeadline(time.Now().Add(n.cfg.Handshake))
	_, err := stream.Write(m.append(nil))
	stream.SetWriteDeadline(time.Time{})
	return err
}

// reasonOf turns the error of a stream into a Reason.
func reasonOf(err error) Reason {
	var (
		idle     *quic.IdleTimeoutError
		reset    *quic.StatelessResetError
		ae       *quic.ApplicationError
		te       *quic.TransportError
		wrong    *wrongMessage
		critical *unknownCritical
	)
	switch {
	case errors.As(err, &idle):
		return PeerLost
	case errors.As(err, &reset):
		return PeerReset
	case errors.As(err, &ae):
		switch ae.ErrorCode {
		case codeClosed, codeWithdrawn:
			return PeerClosed
		case codeRemoved:
			return Removed
		}
		return ProtocolError
	case errors.As(err, &te), errors.As(err, &wrong), errors.As(err, &critical), errors.Is(err, os.ErrDeadlineExceeded):
		return ProtocolError
	}
	return Failed
}

// An input collects the bytes of messages.
type input struct {
	b        []byte
	deadline time.Time // deadline of the message that has begun, zero if none has
	limit    time.Duration
}

// next reads a message. Once a message has begun, the rest must come within the limit. next
// calls set when that changes the deadline of reads. If a deadline that somebody else set
// passes, it returns errWoken.
func (in *input) next(stream *quic.Stream, version uint16, set func(time.Time)) (message, error) {
	for {
		n, err := messageLen(in.b)
		if err != nil {
			return message{}, err
		}
		if n > 0 && len(in.b) >= n {
			m, err := parse(in.b[:n], version)
			in.b = append([]byte(nil), in.b[n:]...)
			if len(in.b) == 0 {
				in.b = nil
			}
			if !in.deadline.IsZero() && in.limit > 0 {
				in.deadline = time.Time{}
				set(in.deadline)
			}
			return m, err
		}
		if len(in.b) > 0 && in.deadline.IsZero() {
			in.deadline = time.Now().Add(in.limit)
			set(in.deadline)
		}
		var buf [512]byte
		got, err := stream.Read(buf[:])
		in.b = append(in.b, buf[:got]...)
		if err != nil && got == 0 {
			if errors.Is(err, os.ErrDeadlineExceeded) && (in.deadline.IsZero() || time.Now().Before(in.deadline)) {
				return message{}, errWoken
			}
			return message{}, err
		}
	}
}
