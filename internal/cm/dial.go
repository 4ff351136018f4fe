package cm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
)

// Dial asks a peer for a session and returns when the peer has accepted. private is cut at
// MaxPrivate. The connection must be secure within Config.Handshake; in this time a peer that
// is too busy is asked again. Where the host says by ICMP that nobody listens, Dial fails at once
// with fi.ECONNREFUSED (on Linux; elsewhere it times out). ctx bounds the time in which the peer
// decides about the request.
func (n *Node) Dial(ctx context.Context, to netip.AddrPort, mine Params, private []byte) (*Session, error) {
	mine.Version, mine.Security = n.version, n.cfg.Security
	if err := check(&mine); err != nil {
		return nil, fmt.Errorf("cm: dial %v: %w: %w", to, err, fi.EINVAL)
	}
	if !to.IsValid() || to.Port() == 0 {
		return nil, fmt.Errorf("cm: dial %v: no address: %w", to, fi.EINVAL)
	}
	if n.ctx.Err() != nil {
		return nil, ErrClosed
	}
	private = private[:min(len(private), MaxPrivate)]
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(n.ctx, func() { fail(ErrClosed) })()
	defer n.sock.watch(to, &failure{func(no fi.Errno) {
		if no == fi.ECONNREFUSED {
			fail(errNobody)
			return
		}
		fail(&errnoError{no, "cm: " + no.Error()})
	}})()

	end := time.Now().Add(n.cfg.Handshake)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second/2) {
		s, err := n.dial(ctx, to, &mine, private)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if !busy(err) || time.Now().Add(wait).After(end) {
			return nil, fmt.Errorf("cm: dial %v: %w", to, dialError(err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (n *Node) dial(ctx context.Context, to netip.AddrPort, mine *Params, private []byte) (*Session, error) {
	secure, cancel := context.WithTimeout(ctx, n.cfg.Handshake)
	defer cancel()
	// QUIC gives up a host that is silent for half the time of a handshake. A dial allows all
	// of it.
	patient := *n.quic
	patient.HandshakeIdleTimeout = n.cfg.Handshake
	conn, err := n.tr.Dial(secure, net.UDPAddrFromAddrPort(to), n.id.client, &patient)
	if err != nil {
		return nil, err
	}
	s, err := n.request(ctx, conn, mine, private)
	if err == nil {
		if err = n.enter(s); err == nil {
			return s, nil
		}
	}
	code := codeClosed
	var bad *wrongMessage
	var critical *unknownCritical
	switch {
	case ctx.Err() != nil:
		code = codeWithdrawn
	case errors.As(err, &bad), errors.As(err, &critical):
		code = codeProtocol
	}
	conn.CloseWithError(code, "")
	return nil, err
}

// request sends the request and waits for the answer.
func (n *Node) request(ctx context.Context, conn *quic.Conn, mine *Params, private []byte) (*Session, error) {
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.CloseWithError(codeWithdrawn, "") })
	defer stop()
	if err := send(stream, &message{kind: kindConnect, params: *mine, private: private}, n); err != nil {
		return nil, err
	}
	s := newSession(n, conn, stream)
	s.dialer = true
	m, err := s.in.next(stream, n.version, func(t time.Time) { stream.SetReadDeadline(t) })
	if err != nil {
		return nil, err
	}
	switch {
	case m.kind == kindMismatch:
		return nil, &MismatchError{m.differ.Field, m.differ.Theirs, m.differ.Mine}
	case m.version != n.version:
		return nil, versionMismatch(n.version, m.version)
	case m.kind == kindReject:
		return nil, &RejectedError{Private: m.private}
	case m.kind != kindAccept:
		return nil, wrong("kind %d for an answer", m.kind)
	}
	if m := mismatch(mine, &m.params); m != nil {
		return nil, m
	}
	if !stop() {
		return nil, ctx.Err()
	}
	s.setPeer(&m)
	return s, nil
}

func versionMismatch(mine, theirs uint16) *MismatchError {
	return &MismatchError{"version", fmt.Sprint(mine), fmt.Sprint(theirs)}
}
