package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
)

// A Request is a peer that waits for an answer. It must be answered even after Withdrawn: until
// then it counts towards Backlog.
type Request struct {
	s *Session
	h *handshake

	mu       sync.Mutex
	answered bool
}

// Params returns those of the peer.
func (r *Request) Params() Params { return r.s.params }

// Private returns the data of the dial.
func (r *Request) Private() []byte { return r.s.private }

// Remote is the address that the peer's control packets come from.
func (r *Request) Remote() netip.AddrPort { return r.s.Remote() }

// Member is the name in the peer's certificate, empty without SecTLS.
func (r *Request) Member() string { return r.s.Member() }

// Withdrawn is closed when the peer no longer waits, or is gone.
func (r *Request) Withdrawn() <-chan struct{} { return r.s.conn.Context().Done() }

// answer claims the right to answer. It fails if the request was answered before.
func (r *Request) answer() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		return fmt.Errorf("cm: request already answered: %w", fi.EOPBADSTATE)
	}
	r.answered = true
	n := r.s.node
	n.mu.Lock()
	n.pending--
	n.mu.Unlock()
	return nil
}

// Accept makes the request a session. private is cut at MaxPrivate. If it returns a
// *MismatchError, the peer gets it, too.
func (r *Request) Accept(mine Params, private []byte) (*Session, error) {
	s := r.s
	n := s.node
	mine.Version, mine.Security = n.version, n.cfg.Security
	if err := check(&mine); err != nil {
		return nil, fmt.Errorf("cm: accept: %w: %w", err, fi.EINVAL)
	}
	if err := r.answer(); err != nil {
		return nil, err
	}
	if m := mismatch(&mine, &s.params); m != nil {
		n.count(&n.stats.Mismatched)
		s.farewell(&message{kind: kindMismatch, differ: *m})
		return nil, m
	}
	if err := n.id.good(s); err != nil {
		s.dismiss(codeRemoved)
		return nil, &AuthError{alertBadCertificate, false, err}
	}
	if err := n.enter(s); err != nil {
		s.dismiss(codeBacklog)
		return nil, err
	}
	if err := s.send(&message{kind: kindAccept, params: mine, private: private[:min(len(private), MaxPrivate)]}); err != nil {
		n.leave(s)
		s.dismiss(codeClosed)
		return nil, fmt.Errorf("cm: accept: %w", dialError(err))
	}
	r.h.trust()
	n.asked(s.conn)
	s.private = nil
	return s, nil
}

// Reject refuses the request. private is cut at MaxPrivate.
func (r *Request) Reject(private []byte) error {
	if err := r.answer(); err != nil {
		return err
	}
	r.s.farewell(&message{kind: kindReject, private: private[:min(len(private), MaxPrivate)]})
	return nil
}

// farewell sends a last message and closes the connection when the peer has it.
func (s *Session) farewell(m *message) {
	ok := s.node.start(func() {
		defer s.dismiss(codeClosed)
		if s.send(m) != nil {
			return
		}
		s.stream.Close()
		s.stream.SetReadDeadline(time.Now().Add(closeTime))
		var b [1]byte
		for {
			if _, err := s.stream.Read(b[:]); err != nil {
				return
			}
		}
	})
	if !ok {
		s.dismiss(codeClosed)
	}
}

// dismiss closes a connection that did not become a session.
func (s *Session) dismiss(code quic.ApplicationErrorCode) {
	s.conn.CloseWithError(code, "")
	s.node.asked(s.conn)
}

// serve reads the first message of a connection and passes on the request.
func (n *Node) serve(conn *quic.Conn) {
	h := conn.Context().Value(handshakeKey{}).(*handshake)
	if !n.ask(conn) {
		conn.CloseWithError(codeClosed, "")
		return
	}
	s, m, err := n.first(conn)
	// From here on the backlog bounds the connection.
	h.stop()
	h.end(nil, time.Now())
	var critical *unknownCritical
	if errors.As(err, &critical) {
		n.count(&n.stats.Mismatched)
		s.farewell(&message{kind: kindMismatch, differ: MismatchError{"critical field", "unknown", fmt.Sprintf("%#04x", critical.typ)}})
		return
	}
	if err != nil {
		code := codeProtocol
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			code = codeLate
		}
		n.count(&n.stats.Wrong)
		conn.CloseWithError(code, "")
		n.asked(conn)
		return
	}
	if n.cfg.Security != SecOff {
		h.trust()
	}
	theirs := m.version
	if theirs == n.version {
		theirs, _ = alpnVersion(conn.ConnectionState().TLS.NegotiatedProtocol)
	}
	if theirs != n.version {
		n.count(&n.stats.Mismatched)
		s.farewell(&message{kind: kindMismatch, differ: *versionMismatch(n.version, theirs)})
		return
	}
	s.setPeer(&m)
	n.mu.Lock()
	full := n.closed || n.pending >= n.cfg.Backlog
	if full {
		n.stats.RefusedBacklog++
	} else {
		n.pending++
	}
	n.mu.Unlock()
	if full {
		s.dismiss(codeBacklog)
		return
	}
	n.onRequest(&Request{s: s, h: h})
}

// first reads the first message of a connection, within the time of a handshake.
func (n *Node) first(conn *quic.Conn) (*Session, message, error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.Handshake)
	defer cancel()
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, message{}, err
	}
	s := newSession(n, conn, stream)
	s.in.deadline, _ = ctx.Deadline()
	stream.SetReadDeadline(s.in.deadline)
	m, err := s.in.next(stream, n.version, func(t time.Time) { stream.SetReadDeadline(t) })
	if err == nil && m.version == n.version && m.kind != kindConnect {
		err = wrong("kind %d for a request", m.kind)
	}
	return s, m, err
}
