// Package cm is connection management over QUIC. It authenticates the two ends of a connection,
// exchanges their parameters and private data, gives both the same keys, notices when the peer
// is gone, and ends the session in order. It carries only control, on a UDP port of its own
// (docs/architecture.md#connections), and knows nothing of the endpoints.
//
// A Node is a socket. A Session is what Dial and Request.Accept agree on. All methods may be
// called from any goroutine. The events of a session come from a goroutine of its own.
//
// # Times
//
// These are the times with the defaults of Config. A peer that closes is noticed within a round
// trip (PeerClosed). A peer whose process was killed and has come back at its address is
// noticed within 25 s of its last packet, or when something is next sent to it (PeerReset);
// SecTLS and SecPSK can tell this. A peer that is gone or cannot be reached is noticed after 30
// s (PeerLost), later if a round trip takes seconds. A removed member is out within 2 s
// (Removed). A handshake that does not end is forgotten after 5 s without a packet, or after 10
// s in all. Close takes 1 s if the peer does not answer.
//
// # Cost
//
// An idle session takes about 54 KiB at each end, heap and stacks, most of it QUIC's, and three
// goroutines. Each KeepAlive one packet goes each way. A half-open connection takes as much,
// and one message of at most 16 KiB. With the default of MaxHandshakes that is 70 MiB, of which
// sources that have not answered a Retry can use a sixteenth.
//
// # What it does not do
//
// Without security anybody may connect, and anybody on the path can be in the middle. A cluster
// key must be random, because anybody who can send to the port can try guesses offline. A
// holder of the cluster key can pose as every member. Nothing here stops a flood from filling
// the line.
package cm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
)

// Version is the version of the protocol on the wire.
const Version = 1

// Config describes a Node. The zero value of a field is its default.
type Config struct {
	// Addr is the address of the UDP socket. Port 0 means a port of Ports, which is that of the
	// system if Ports is zero.
	Addr  netip.AddrPort
	Ports portrange.Range
	// Security is what the node and all its peers use.
	Security Security
	// TLS, for SecTLS, has the node's certificate and, in RootCAs and ClientCAs, the
	// authorities of the others; one of these stands for both. It is cloned. The node forces
	// TLS 1.3, one ALPN, verification by both sides, no 0-RTT and no session tickets. It does
	// not compare names with addresses: Member is for that.
	TLS *tls.Config
	// PSK, for SecPSK, returns the cluster keys that are valid now, best first. The node proves
	// that it has the first, and accepts proof of any. Each must have at least 16 random bytes,
	// because a peer that sees a certificate can try guesses.
	PSK func() [][]byte
	// Member returns an error to refuse a peer with a valid certificate. nil refuses none. It
	// is called for each handshake, from any goroutine, and repeatedly for each session while
	// it lasts.
	Member func(name string, cert *x509.Certificate) error

	// Backlog bounds the requests that wait for Accept or Reject; peers beyond it are refused.
	// Default 128.
	Backlog int
	// Handshake bounds the time until a connection is secure and its first message is there,
	// and the time of every message once it began. Default 10 s.
	Handshake time.Duration
	// Idle is how long a peer may be silent before it counts as lost. Default 30 s.
	Idle time.Duration
	// KeepAlive is how long a session is silent before one end asks whether the other is alive.
	// Default Idle/3.
	KeepAlive time.Duration
	// MaxHandshakes bounds the handshakes in flight; peers beyond it are refused. Default
	// 1,024.
	MaxHandshakes int
	// MaxSessions bounds the sessions; beyond it peers are refused and Dial fails. Default
	// 16,384.
	MaxSessions int
	// Rate is how many handshakes a second that do not end in a session a source may begin,
	// after Burst of them. Defaults 20 and 5.
	Rate  float64
	Burst int
	// KeyLog gets the secrets of all connections in the NSS key log format. With nil no secret
	// leaves the process.
	KeyLog io.Writer
}

func (c *Config) check() error {
	switch {
	case !c.Addr.IsValid():
		return errors.New("no address")
	case c.Security > SecPSK:
		return fmt.Errorf("security %v", c.Security)
	case c.Security == SecTLS && c.TLS == nil:
		return errors.New("security tls needs TLS")
	case c.Security == SecPSK && c.PSK == nil:
		return errors.New("security psk needs PSK")
	case c.Backlog < 0 || c.MaxHandshakes < 0 || c.MaxSessions < 0 || c.Burst < 0 || !(c.Rate >= 0):
		return errors.New("negative bound")
	case c.Handshake < 0 || c.Idle < 0 || c.KeepAlive < 0:
		return errors.New("negative time")
	}
	return nil
}

func (c *Config) fill() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Backlog, 128)
	def(&c.MaxHandshakes, 1024)
	def(&c.MaxSessions, 16384)
	def(&c.Burst, 5)
	if c.Rate == 0 {
		c.Rate = 20
	}
	if c.Handshake == 0 {
		c.Handshake = 10 * time.Second
	}
	if c.Idle == 0 {
		c.Idle = 30 * time.Second
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = c.Idle / 3
	}
}

// A Node is one UDP socket for control. It dials, and listens if told to. All its methods may
// be called from any goroutine.
type Node struct {
	cfg     Config
	version uint16 // Version, except in tests
	id      *identity
	sock    *socket
	tr      *quic.Transport
	quic    *quic.Config
	addr    netip.AddrPort

	admission *admission

	ctx    context.Context // done when the node closes
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex // guards the fields below
	closed    bool
	onRequest func(*Request)
	listener  *quic.Listener
	sessions  map[*Session]struct{}
	asking    map[*quic.Conn]struct{} // connections that are not sessions yet
	pending   int                     // requests that wait for an answer
	stats     Stats
}

// Open opens the socket. The node answers nothing before Listen.
func Open(cfg Config) (*Node, error) { return openVersion(cfg, Version) }

// openVersion is Open for a node that speaks another version.
func openVersion(cfg Config, version uint16) (*Node, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("cm: %w: %w", err, fi.EINVAL)
	}
	cfg.fill()
	n := &Node{cfg: cfg, version: version, sessions: map[*Session]struct{}{}, asking: map[*quic.Conn]struct{}{}}
	var err error
	if n.id, err = newIdentity(n); err != nil {
		return nil, fmt.Errorf("cm: %w", err)
	}
	if n.sock, err = openSocket(cfg.Addr, cfg.Ports); err != nil {
		return nil, fmt.Errorf("cm: %w", sysError(err))
	}
	n.addr = addrPort(n.sock.LocalAddr())
	n.admission = newAdmission(cfg.MaxHandshakes, cfg.Rate, cfg.Burst)
	n.tr = &quic.Transport{
		Conn: n.sock, ConnectionIDLength: idLen, StatelessResetKey: n.id.resetKey(), MaxTokenAge: knownTime,
		VerifySourceAddress: n.verifySource, ConnContext: n.admit,
	}
	n.quic = n.quicConfig()
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.wg.Go(n.probe)
	if cfg.Security == SecPSK || cfg.Security == SecTLS && cfg.Member != nil {
		n.wg.Go(n.recheck)
	}
	return n, nil
}

// quicConfig returns the configuration of every connection of the node: one stream, which the
// dialer opens, and windows of one message.
func (n *Node) quicConfig() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           n.cfg.Handshake / 2, // QUIC allows twice this time for the whole handshake
		MaxIdleTimeout:                 n.cfg.Idle,
		KeepAlivePeriod:                n.cfg.KeepAlive,
		InitialStreamReceiveWindow:     maxMessage,
		MaxStreamReceiveWindow:         maxMessage,
		InitialConnectionReceiveWindow: maxMessage,
		MaxConnectionReceiveWindow:     maxMessage,
		MaxIncomingStreams:             1,
		MaxIncomingUniStreams:          -1,
		RequireStreamCreditRelease:     true,
		DisablePathMTUDiscovery:        true,
		TokenStore:                     quic.NewLRUTokenStore(256, 2),
	}
}

// Addr is the address of the socket.
func (n *Node) Addr() netip.AddrPort { return n.addr }

// Listen makes the node accept requests. onRequest is called for each, in a goroutine of its
// own; at most Backlog requests wait.
func (n *Node) Listen(onRequest func(*Request)) error {
	if onRequest == nil {
		return fmt.Errorf("cm: nobody to listen: %w", fi.EINVAL)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	if n.listener != nil {
		return fmt.Errorf("cm: already listening: %w", fi.EOPBADSTATE)
	}
	l, err := n.tr.Listen(n.id.server(), n.quic)
	if err != nil {
		return fmt.Errorf("cm: listen: %w", err)
	}
	n.listener, n.onRequest = l, onRequest
	n.wg.Go(func() { n.accept(l) })
	return nil
}

func (n *Node) accept(l *quic.Listener) {
	for {
		conn, err := l.Accept(n.ctx)
		if err != nil {
			return
		}
		n.wg.Go(func() { n.serve(conn) })
	}
}

// Close ends all sessions in order, then closes the socket, and waits for everything it
// started. It takes a round trip, or closeTime if a peer does not answer.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.closed = true
	l := n.listener
	var open []*Session
	for s := range n.sessions {
		open = append(open, s)
	}
	var asking []*quic.Conn
	for c := range n.asking {
		asking = append(asking, c)
	}
	n.mu.Unlock()
	n.cancel()
	if l != nil {
		l.Close()
	}
	for _, s := range open {
		s.Close(nil)
	}
	for _, c := range asking {
		c.CloseWithError(codeClosed, "")
	}
	n.wg.Wait()
	err := n.tr.Close()
	return errors.Join(err, n.sock.Close())
}

// enter adds a session to those of the node. Session.run calls leave.
func (n *Node) enter(s *Session) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	if len(n.sessions) >= n.cfg.MaxSessions {
		n.stats.RefusedSessions++
		return fmt.Errorf("cm: %d sessions: %w", len(n.sessions), fi.ENOBUFS)
	}
	n.sessions[s] = struct{}{}
	n.stats.Opened++
	n.admission.session(s.source, true, time.Now())
	return nil
}

func (n *Node) leave(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.sessions[s]; ok {
		delete(n.sessions, s)
		n.admission.session(s.source, false, time.Now())
	}
}

// ask registers a connection that is not a session yet, so that Close finds it.
func (n *Node) ask(c *quic.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.asking[c] = struct{}{}
	return true
}

func (n *Node) asked(c *quic.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asking, c)
}

// start runs f in a goroutine that Close waits for. It returns false if the node is closed.
func (n *Node) start(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.wg.Go(f)
	return true
}

// idLen is the length of connection identifiers. A stateless reset is longer than 42 bytes and
// answers only packets longer than itself. With this length a probe is long enough; a
// keep-alive of QUIC is too short with any length.
const idLen = 16

// probe sends a probe in each session whose peer has not answered a keep-alive, one and a half
// to two times KeepAlive after the last packet. A process that has replaced the peer's answers
// it (F12).
func (n *Node) probe() {
	t := time.NewTicker(max(n.cfg.KeepAlive/2, time.Millisecond))
	defer t.Stop()
	var all []*Session
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		all = n.all(all[:0])
		for _, s := range all {
			heard := s.conn.ConnectionStats().PacketsReceived
			if heard != s.heard {
				s.heard, s.silent = heard, 0
				continue
			}
			if s.silent++; s.silent == 3 {
				s.probe()
			}
		}
		clear(all)
	}
}

// all appends all sessions to a slice.
func (n *Node) all(to []*Session) []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.sessions {
		to = append(to, s)
	}
	return to
}

// recheckTime is how often Member and PSK are asked about the sessions. A removed member must
// be out within 5 s (T36).
const recheckTime = 2 * time.Second

func (n *Node) recheck() {
	t := time.NewTicker(recheckTime)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
			n.Recheck()
		}
	}
}

// Recheck asks Member, or PSK, about every session now. A session whose peer is no longer a
// member ends at both ends with Removed. The node also does this every two seconds.
func (n *Node) Recheck() {
	for _, s := range n.all(nil) {
		if n.id.good(s) != nil {
			s.close(Removed, nil)
		}
	}
}
