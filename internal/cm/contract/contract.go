// Package contract is what connection management and endpoints agree on: what the two ends of a
// connection tell each other, what a session can do, and how it ends. Endpoints import this
// package and not the implementation (internal/cm), which brings QUIC and TLS into a program:
// 3 MB that only programs with connections need. A program gets it by importing uet/msg.
package contract

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/transport/wire"
)

// Open opens a Node. internal/cm sets it: it is nil in a program without package uet/msg.
var Open func(Config) (Node, error)

// Secure makes a *uet.Security of certificates. Package uet sets it.
var Secure func(*Certificates) (any, error)

// A Config describes a Node. The zero value of a field is its default.
type Config struct {
	// Addr is the address of the UDP socket. Port 0 means a port of Ports, which is that of the
	// system if Ports is zero.
	Addr  netip.AddrPort
	Ports portrange.Range
	// Security is what the node and all its peers use.
	Security Security
	// Certificates are for SecTLS.
	Certificates *Certificates
	// PSK, for SecPSK, returns the cluster keys that are valid now, best first.
	PSK func() [][]byte
	// Member returns an error to refuse a peer with a valid certificate. It is called for each
	// handshake, from any goroutine, and repeatedly for each session while it lasts.
	Member func(name string) error

	// Backlog bounds the requests that wait for an answer, MaxHandshakes the handshakes in
	// flight, MaxSessions the sessions.
	Backlog, MaxHandshakes, MaxSessions int
	// Handshake bounds the time until a connection is secure, Idle that in which a peer may be
	// silent. KeepAlive is how long a session is silent before the peer is asked.
	Handshake, Idle, KeepAlive time.Duration
	// Rate is how many handshakes a second that fail a source may begin, after Burst of them.
	Rate  float64
	Burst int
}

// Certificates are the certificate of a member and the authorities of the others.
type Certificates struct {
	// TLS is a *tls.Config, a type that this package does not import.
	TLS any
	// CertFile, KeyFile and RevokedFile are the files that they came from, empty for none.
	// RevokedFile lists removed members and need not exist.
	CertFile, KeyFile, RevokedFile string
	// Load reads CertFile and KeyFile, and returns the function that begins to use them.
	Load func() (use func(), err error)
	// Forget drops the secrets that Load read.
	Forget func()
}

// A Node is one UDP socket for control. All methods may be called from any goroutine.
type Node interface {
	// Dial asks a peer for a session and returns when the peer has accepted.
	Dial(ctx context.Context, to netip.AddrPort, mine Params, private []byte) (Session, error)
	// Listen makes the node accept requests. onRequest is called for each, in a goroutine of its
	// own.
	Listen(onRequest func(Request)) error
	// Addr is the address of the socket.
	Addr() netip.AddrPort
	// Recheck asks about the membership of every peer now.
	Recheck()
	Stats() Stats
	// Close ends all sessions in order and waits for everything that the node started.
	Close() error
}

// A Request is a peer that waits for an answer. It must be answered, even after Withdrawn.
type Request interface {
	// Params are those of the peer, Private the data of its Dial, Remote where its control
	// packets come from, Member its name, empty without SecTLS.
	Params() Params
	Private() []byte
	Remote() netip.AddrPort
	Member() string
	// Withdrawn is closed when the peer no longer waits, or is gone.
	Withdrawn() <-chan struct{}
	Accept(mine Params, private []byte) (Session, error)
	Reject(private []byte) error
}

// A Session is a connection that both ends agreed on.
type Session interface {
	// Params are those of the peer. Private is, at the dialer, the data of the accept.
	Params() Params
	Private() []byte
	// Start lets events flow, also those that happened before, from one goroutine.
	Start(Handler)
	// Key returns the secret of a generation, which both ends and nobody else have. Generation
	// 0 is there from the beginning, and each Rekey makes one more.
	Key(gen uint32) ([32]byte, error)
	// Rekey returns when this end seals with the next key. If ctx ends first, the change
	// continues.
	Rekey(ctx context.Context) error
	// Close ends the session in order, without waiting.
	Close(private []byte) error
}

// A Handler gets the events of a session, one after the other.
type Handler interface {
	// InstallKey says to accept packets that the peer seals with this generation.
	InstallKey(gen uint32)
	// SwitchKey says that the peer accepts this generation: seal with it.
	SwitchKey(gen uint32)
	// Closed is the last event. private is what the peer gave to Close.
	Closed(why Reason, private []byte)
}

// MaxPrivate bounds the private data of a message, in bytes (R-CM-09).
const MaxPrivate = 256

// MaxPorts bounds the ports of a data socket in a message.
const MaxPorts = 256

// Security is what the two ends must prove to each other for a connection.
type Security uint8

const (
	// SecOff means that neither side is authenticated. The connection is encrypted to whoever
	// answered.
	SecOff Security = iota
	// SecTLS means that both sides show a certificate of the authority.
	SecTLS
	// SecPSK means that both sides prove that they have the cluster key.
	SecPSK
)

func (s Security) String() string {
	switch s {
	case SecOff:
		return "off"
	case SecTLS:
		return "tls"
	case SecPSK:
		return "psk"
	}
	return "security(" + strconv.Itoa(int(s)) + ")"
}

// Params are what one end tells the other about itself.
type Params struct {
	// Version is the version of the protocol of this package, which sets it.
	Version uint16
	// Addr is the data socket. An unspecified IP stands for the source of the connection's
	// packets; the receiving end replaces it.
	Addr netip.AddrPort
	// Ports are those of all paths, the main one first, at most MaxPorts. Empty means that of
	// Addr alone.
	Ports []uint16

	JobID     uint32 // 24 bit
	PIDonFEP  uint16 // 12 bit
	RI        uint16 // 12 bit
	Initiator uint32

	// PayloadMTU is in bytes: 1024, 2048, 4096 or 8192.
	PayloadMTU int
	// Modes are the modes that this end accepts, bit 1<<wire.Mode. The two ends need one in
	// common.
	Modes uint8
	// Profile must be the same at both ends.
	Profile uint32

	NoCRC bool
	// Encapsulation is that of data packets: Symmetric or Standard, the same at both ends.
	Encapsulation wire.Encapsulation

	// Security is that of the connection; this package sets it.
	Security Security
}

// Stats counts what a node did since Open, and tells what there is now.
type Stats struct {
	Sessions int // sessions now
	Pending  int // requests that wait for an answer now

	Opened          uint64 // sessions that began
	RefusedBacklog  uint64 // requests refused beyond Backlog
	RefusedSessions uint64 // sessions refused beyond MaxSessions
	Wrong           uint64 // first messages that were wrong or came late
	Mismatched      uint64 // requests of peers that differ too much
	LostSends       uint64 // packets that could not be sent

	Admission AdmissionStats
}

// AdmissionStats counts the handshakes of the listening side.
type AdmissionStats struct {
	Flight    int    // handshakes in flight now
	Sources   int    // sources remembered now
	Admitted  uint64 // handshakes that began
	Retries   uint64 // first packets answered by a Retry
	BusyTotal uint64 // refused: too many in flight
	BusyOne   uint64 // refused: too many of the source in flight
	BusyRate  uint64 // refused: the source has no ticket
	Untrusted uint64 // ended because the certificate was refused
}

// Reason is why a session ended.
type Reason uint8

const (
	// LocalClosed means that this end called Close.
	LocalClosed Reason = iota + 1
	// PeerClosed means that the peer closed it in order, perhaps with private data.
	PeerClosed
	// PeerLost means that nothing was heard for the idle time (F9).
	PeerLost
	// PeerReset means that the peer's process answers but does not know the session: it was
	// restarted (F12).
	PeerReset
	// ProtocolError means that one end broke the protocol.
	ProtocolError
	// Removed means that one end is no longer a member (T36).
	Removed
	// Failed means that our own socket failed or the node is gone.
	Failed
)

func (r Reason) String() string {
	switch r {
	case LocalClosed:
		return "closed"
	case PeerClosed:
		return "closed by the peer"
	case PeerLost:
		return "peer lost"
	case PeerReset:
		return "peer restarted"
	case ProtocolError:
		return "protocol error"
	case Removed:
		return "member removed"
	case Failed:
		return "connection failed"
	}
	return "reason " + strconv.Itoa(int(r))
}

// Errno is the error of operations that the end of the session interrupts.
func (r Reason) Errno() fi.Errno {
	switch r {
	case LocalClosed:
		return fi.ECANCELED
	case PeerClosed:
		return fi.ESHUTDOWN
	case PeerLost:
		return fi.ETIMEDOUT
	case PeerReset:
		return fi.ECONNABORTED
	case ProtocolError:
		return fi.EPROTO
	case Removed:
		return fi.EKEYREJECTED
	}
	return fi.EIO
}

// ErrClosed means that the node or session is closed.
var ErrClosed error = closed{}

type closed struct{}

func (closed) Error() string   { return "cm: closed" }
func (closed) Errno() fi.Errno { return fi.ESHUTDOWN }
func (closed) Unwrap() error   { return fi.ESHUTDOWN }

// A RejectedError is the answer of Request.Reject.
type RejectedError struct {
	Private []byte // as given to Reject
}

func (e *RejectedError) Error() string   { return "cm: request rejected" }
func (e *RejectedError) Errno() fi.Errno { return fi.ECONNREFUSED }
func (e *RejectedError) Unwrap() error   { return e.Errno() }
