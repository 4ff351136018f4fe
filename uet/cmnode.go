package uet

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/cm"
	"github.com/uetkit/uetkit/transport/wire"
)

// CMConfig are the times and bounds of connection management, for FI_EP_MSG
// endpoints. A zero field takes the default.
type CMConfig struct {
	// Handshake is how long Connect waits for an answer of the host (10 s).
	Handshake time.Duration
	// Idle is after how long a peer that does not answer is lost (30 s);
	// KeepAlive how often it is asked (a third of that).
	Idle, KeepAlive time.Duration
	// MaxHandshakes bounds the handshakes in flight of a passive endpoint (1,024),
	// MaxSessions the connections of one, or of the endpoints of a domain (16,384).
	// Rate, in handshakes a second, and Burst bound those of a source that come to
	// nothing (20, 5).
	MaxHandshakes, MaxSessions int
	Rate                       float64
	Burst                      int
}

// cm is the configuration of a node at addr.
func (c *Config) cm(addr netip.AddrPort) cm.Config {
	m := &c.CM
	cfg := cm.Config{
		Addr: addr, Handshake: m.Handshake, Idle: m.Idle, KeepAlive: m.KeepAlive,
		MaxHandshakes: m.MaxHandshakes, MaxSessions: m.MaxSessions, Rate: m.Rate, Burst: m.Burst,
	}
	return cfg
}

// A cmNode is a node of connection management that several objects use. It is
// closed with the last of them.
type cmNode struct {
	*cm.Node
	sec *Security

	mu   sync.Mutex
	open bool // Node is there
	refs int
}

// openNode opens a node in use by one, at addr with the settings of c and that
// backlog.
func openNode(addr netip.AddrPort, c *Config, backlog int) (*cmNode, error) {
	n := &cmNode{sec: c.Security, refs: 1}
	cfg := c.cm(addr)
	cfg.Backlog = backlog
	err := n.sec.configure(n, &cfg)
	if err != nil {
		return nil, err
	}
	node, err := cm.Open(cfg)
	if err != nil {
		n.sec.leaveNode(n)
		return nil, fmt.Errorf("%w: %w", err, openErrno(err))
	}
	n.mu.Lock()
	n.Node, n.open = node, true
	n.mu.Unlock()
	return n, nil
}

// recheck checks again which peers are still members.
func (n *cmNode) recheck() {
	n.mu.Lock()
	open := n.open
	n.mu.Unlock()
	if open {
		n.Recheck()
	}
}

func (n *cmNode) get() {
	n.mu.Lock()
	n.refs++
	n.mu.Unlock()
}

func (n *cmNode) put() {
	n.mu.Lock()
	n.refs--
	last := n.refs == 0
	n.mu.Unlock()
	if last {
		_ = n.Close()
		n.sec.leaveNode(n)
	}
}

// dialKey says which endpoints of a domain connect through one node.
type dialKey struct {
	ip  netip.Addr
	sec *Security
	cm  CMConfig
}

// dialers are the nodes by which the endpoints of a domain connect.
type dialers struct {
	mu    sync.Mutex
	nodes map[dialKey]*cmNode // each in use by the domain as well
}

// node returns the node for endpoints at ip, in use by one more.
func (d *dialers) node(ip netip.Addr, c *Config) (*cmNode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := dialKey{ip, c.Security, c.CM}
	n := d.nodes[key]
	if n == nil {
		var err error
		if n, err = openNode(netip.AddrPortFrom(ip, 0), c, 0); err != nil {
			return nil, fmt.Errorf("uet: connect: %w", err)
		}
		if d.nodes == nil {
			d.nodes = map[dialKey]*cmNode{}
		}
		d.nodes[key] = n
	}
	n.get()
	return n, nil
}

func (d *dialers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.nodes {
		n.put()
	}
	d.nodes = nil
}

// dialNode is the node by which the endpoint connects: one of the domain's,
// or one at the address that the endpoint took over (R-CM-18).
func (l *connection) dialNode() (*cmNode, error) {
	ep := l.ep
	if l.pep == nil {
		return ep.domain.dialers.node(ep.name.IP, &ep.info.Config)
	}
	l.pep.mu.Lock()
	at := l.pep.info.SrcAddr
	l.pep.mu.Unlock()
	n, err := openNode(netip.AddrPortFrom(at.IP, at.Port), &ep.info.Config, 0)
	if err != nil {
		return nil, fmt.Errorf("uet: connect from %v: %w", at, err)
	}
	l.pep.mu.Lock()
	l.pep.name = wire.SockAddr(n.Addr())
	l.pep.mu.Unlock()
	return n, nil
}

// newLink makes the connection of an endpoint opened with info.
func newLink(ep *Endpoint, h Handle) (*connection, error) {
	l := &connection{ep: ep}
	switch h := h.(type) {
	case nil:
	case *ConnReq:
		if h == nil {
			return nil, fi.EINVAL
		}
		l.req = h
		return l, h.hold()
	case *PassiveEndpoint:
		if h == nil {
			return nil, fi.EINVAL
		}
		l.pep = h
		return l, h.take()
	}
	return l, nil
}

// ConnStats counts what connection management did, or says what there is now.
type ConnStats struct {
	Open    int // connections now
	Waiting int // requests that wait for Accept or Reject now

	Opened  uint64 // connections
	Begun   uint64 // handshakes of others
	Refused uint64 // handshakes and requests of others: too many, or too fast
	// Untrusted are handshakes refused for their certificate, Mismatched requests of
	// ends that do not fit, Wrong what was no request.
	Untrusted, Mismatched, Wrong uint64
	// NoRoom are requests refused because nobody reads the event queue.
	NoRoom uint64
}

func (s *ConnStats) add(n *cmNode) {
	if n == nil {
		return
	}
	c := n.Stats()
	a := &c.Admission
	s.Open += c.Sessions
	s.Waiting += c.Pending
	s.Opened += c.Opened
	s.Begun += a.Admitted
	s.Refused += c.RefusedBacklog + c.RefusedSessions + a.BusyTotal + a.BusyOne + a.BusyRate
	s.Untrusted += a.Untrusted
	s.Mismatched += c.Mismatched
	s.Wrong += c.Wrong
}

// ConnStats are the counters of the passive endpoint and of the connections that were
// accepted by it. They are zero before Listen and stay after Close.
func (p *PassiveEndpoint) ConnStats() ConnStats {
	p.mu.Lock()
	node, s := p.node, ConnStats{NoRoom: p.noRoom}
	p.mu.Unlock()
	s.add(node)
	return s
}

// ConnStats are the counters of the connections that endpoints of the domain asked
// for.
func (d *Domain) ConnStats() ConnStats {
	var s ConnStats
	d.dialers.mu.Lock()
	defer d.dialers.mu.Unlock()
	for _, n := range d.dialers.nodes {
		s.add(n)
	}
	return s
}
