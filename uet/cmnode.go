package uet

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/transport/wire"
)

// CMConfig holds the times and bounds of connection management, for FI_EP_MSG
// endpoints. 0 takes the default, which the comment names.
type CMConfig struct {
	// Handshake is how long Connect waits for the host to answer. Default 10 s.
	Handshake time.Duration
	// Idle is how long a peer may be silent before the connection ends. Default 30 s.
	// KeepAlive is the interval at which a silent peer is asked. Default a third of Idle.
	Idle, KeepAlive time.Duration
	// MaxHandshakes is the most handshakes that a passive endpoint has in progress. Default
	// 1,024. MaxSessions is the most connections of a passive endpoint, or of all endpoints
	// of a domain. Default 16,384. Rate is how many failed handshakes one source may cause
	// per second, Burst how many at once. Default 20 and 5.
	MaxHandshakes, MaxSessions int
	Rate                       float64
	Burst                      int
}

// cm returns the configuration of a node at addr.
func (c *Config) cm(addr netip.AddrPort) contract.Config {
	m := &c.CM
	cfg := contract.Config{
		Addr: addr, Ports: portrange.Range(c.Socket.Ports), Handshake: m.Handshake, Idle: m.Idle, KeepAlive: m.KeepAlive,
		MaxHandshakes: m.MaxHandshakes, MaxSessions: m.MaxSessions, Rate: m.Rate, Burst: m.Burst,
	}
	return cfg
}

// A cmNode is a node of connection management that several objects share. The last of them
// to leave closes it.
type cmNode struct {
	contract.Node
	sec *Security

	mu   sync.Mutex
	open bool // Node is there
	refs int
}

// openNode opens a node at addr with the settings of c and that backlog. The caller is its
// first user.
func openNode(addr netip.AddrPort, c *Config, backlog int) (*cmNode, error) {
	n := &cmNode{sec: c.Security, refs: 1}
	cfg := c.cm(addr)
	cfg.Backlog = backlog
	err := n.sec.configure(n, &cfg)
	if err != nil {
		return nil, err
	}
	node, err := contract.Open(cfg)
	if err != nil {
		n.sec.leaveNode(n)
		return nil, withErrno(err, openErrno(err))
	}
	n.mu.Lock()
	n.Node, n.open = node, true
	n.mu.Unlock()
	return n, nil
}

// recheck ends the connections of peers that are no longer members.
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

// A dialKey tells which endpoints of a domain share a node: those with an equal key.
type dialKey struct {
	ip    netip.Addr
	sec   *Security
	cm    CMConfig
	ports PortRange
}

// dialers are the nodes by which the endpoints of a domain connect.
type dialers struct {
	mu    sync.Mutex
	nodes map[dialKey]*cmNode // each in use by the domain as well
}

// node returns the node for endpoints at ip and counts one more user of it.
func (d *dialers) node(ip netip.Addr, c *Config) (*cmNode, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := dialKey{ip, c.Security, c.CM, c.Socket.Ports}
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

// dialNode returns the node by which the endpoint connects: one of the domain's, or the one
// at the address that the endpoint took over (R-CM-18).
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

// newConnection makes the connection of an endpoint opened with info.
func newConnection(ep *Endpoint, h Handle) (*connection, error) {
	l := &connection{ep: ep}
	switch h := h.(type) {
	case nil:
	case *ConnReq:
		if h == nil {
			return nil, fi.EINVAL
		}
		l.req = h
		return l, h.claim()
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
	// Untrusted are handshakes rejected for their certificate. Mismatched are requests of
	// ends that do not fit together. Wrong is what was no valid request.
	Untrusted, Mismatched, Wrong uint64
	// NoRoom are requests rejected because nobody reads the event queue.
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

// ConnStats are the counters of the passive endpoint and of the connections that it
// accepted. They are zero before Listen and stay after Close.
func (p *PassiveEndpoint) ConnStats() ConnStats {
	p.mu.Lock()
	node, s := p.node, ConnStats{NoRoom: p.noRoom}
	p.mu.Unlock()
	s.add(node)
	return s
}

// ConnStats are the counters of the connections that endpoints of the domain requested.
func (d *Domain) ConnStats() ConnStats {
	var s ConnStats
	d.dialers.mu.Lock()
	defer d.dialers.mu.Unlock()
	for _, n := range d.dialers.nodes {
		s.add(n)
	}
	return s
}
