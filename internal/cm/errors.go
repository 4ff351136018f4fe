package cm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
)

// The codes with which a connection is closed.
const (
	codeClosed    quic.ApplicationErrorCode = iota // in order
	codeBacklog                                    // the request would exceed the backlog
	codeWithdrawn                                  // the dialer gave up
	codeProtocol                                   // the peer broke the protocol
	codeRemoved                                    // the peer is no longer a member
	codeLate                                       // a message did not come in time
)

// An errnoError is an error of this package that consists of an Errno and a text.
type errnoError struct {
	errno fi.Errno
	text  string
}

func (e *errnoError) Error() string   { return e.text }
func (e *errnoError) Errno() fi.Errno { return e.errno }
func (e *errnoError) Unwrap() error   { return e.errno }

// Errors of Dial and of a session's calls. Each wraps its Errno.
var (
	// ErrTimeout means that no answer came in time.
	ErrTimeout error = &errnoError{fi.ETIMEDOUT, "cm: no answer in time"}
	// ErrRefused means that nobody listens there, or more requests wait than the backlog, or
	// the peer was too busy for as long as we tried.
	ErrRefused error = &errnoError{fi.ECONNREFUSED, "cm: refused: the peer takes no more requests"}
	// errNobody is ErrRefused where ICMP says that nobody listens.
	errNobody error = &errnoError{fi.ECONNREFUSED, "cm: refused: nobody listens there"}
	// ErrReset means that the peer closed the connection or was restarted before it answered.
	ErrReset error = &errnoError{fi.ECONNABORTED, "cm: connection lost before the answer"}
	// ErrProtocol means that the peer broke the protocol, or says that we did.
	ErrProtocol error = &errnoError{fi.EPROTO, "cm: protocol error"}
)

// A MismatchError says in what the two ends differ (F30).
type MismatchError struct {
	Field, Mine, Theirs string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("cm: %s differs: %s here, %s there", e.Field, e.Mine, e.Theirs)
}
func (e *MismatchError) Errno() fi.Errno { return fi.EPROTO }
func (e *MismatchError) Unwrap() error   { return e.Errno() }

// An AuthError says that one end refused a certificate.
type AuthError struct {
	// Alert is the TLS alert.
	Alert tls.AlertError
	// Peer means that the peer refused our certificate; the alert is all that it says.
	// Otherwise Err is why we refused its certificate.
	Peer bool
	Err  error
}

func (e *AuthError) Error() string {
	if e.Peer {
		return "cm: the peer refused our certificate: " + e.Alert.Error()
	}
	return fmt.Sprintf("cm: certificate of the peer refused: %v", e.Err)
}
func (e *AuthError) Errno() fi.Errno { return fi.EKEYREJECTED }
func (e *AuthError) Unwrap() []error { return []error{e.Errno(), e.Err} }

// sysError makes the error of a system call comparable with an fi.Errno.
func sysError(err error) error {
	var sys syscall.Errno
	if errors.As(err, &sys) {
		return fmt.Errorf("%w: %w", err, fi.Errno(sys))
	}
	return err
}

// busy reports whether err says that the peer had no room for a handshake. Such a request has
// reached nobody and may be made again.
func busy(err error) bool {
	var te *quic.TransportError
	return errors.As(err, &te) && te.Remote && te.ErrorCode == quic.ConnectionRefused
}

// dialError turns the error of a connection into one of this package.
func dialError(err error) error {
	var (
		mine     interface{ Errno() fi.Errno }
		te       *quic.TransportError
		ae       *quic.ApplicationError
		version  *quic.VersionNegotiationError
		idle     *quic.IdleTimeoutError
		slow     *quic.HandshakeTimeoutError
		reset    *quic.StatelessResetError
		wrong    *wrongMessage
		critical *unknownCritical
	)
	switch {
	case errors.As(err, &mine):
		return err
	case errors.As(err, &version):
		return &MismatchError{"version of QUIC", fmt.Sprint(version.Ours), fmt.Sprint(version.Theirs)}
	case errors.As(err, &te) && te.ErrorCode.IsCryptoError():
		return &AuthError{tls.AlertError(te.ErrorCode - 0x100), te.Remote, err}
	case errors.As(err, &te) && te.Remote && te.ErrorCode == quic.ConnectionRefused:
		return ErrRefused
	case errors.As(err, &te):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	case errors.As(err, &ae):
		switch ae.ErrorCode {
		case codeBacklog:
			return ErrRefused
		case codeProtocol:
			return fmt.Errorf("%w: the peer says so", ErrProtocol)
		case codeRemoved:
			return &AuthError{alertBadCertificate, ae.Remote, err}
		case codeLate:
			return ErrTimeout
		}
		return ErrReset
	case errors.As(err, &idle), errors.As(err, &slow), errors.Is(err, context.DeadlineExceeded):
		return ErrTimeout
	case errors.As(err, &reset):
		return ErrReset
	case errors.Is(err, quic.ErrTransportClosed):
		return ErrClosed
	case errors.As(err, &wrong), errors.As(err, &critical):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	case errors.Is(err, context.Canceled):
		return &errnoError{fi.ECANCELED, "cm: dial cancelled"}
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}
