package uet

import (
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Stats are the counters of an endpoint: of the protocol, of its sockets, and of the
// goroutines that drove it. All values only grow.
type Stats struct {
	transport.Stats
	Socket SocketStats
	Driver DriverStats
}

// Stats returns a copy of the counters; after Close, the last ones. Before
// Enable they are zero.
func (ep *Endpoint) Stats() Stats {
	ep.mu.Lock()
	drv := ep.drv
	ep.mu.Unlock()
	if drv == nil {
		return Stats{}
	}
	var s Stats
	drv.With(func() { s.Stats, s.Socket = ep.fep.Stats(), SocketStats(ep.conn.Stats()) })
	s.Driver = DriverStats(drv.Stats())
	return s
}

// Quiesce begins the orderly end of the packet delivery contexts (PDCs) that an endpoint
// has opened to a peer, and returns at once. Messages posted before are transferred to
// their end; messages posted later open new PDCs. PDCs also end by themselves after a while
// without traffic; Quiesce frees the peer's resources earlier.
//
// A connected endpoint ignores to. fi.EINVAL: to is not valid. fi.EOPBADSTATE: the endpoint
// is not enabled, or closed.
func (ep *Endpoint) Quiesce(to fi.Addr) error {
	switch {
	case ep.domain == nil:
		return errUnopened
	case ep.ready() != nil:
		return errNotEnabled
	}
	dest, err := ep.dest(to)
	if err != nil {
		return err
	}
	ep.drv.Do(func(now time.Duration) {
		if !ep.isEnabled() {
			err = errNotEnabled
			return
		}
		var op transport.Op
		if err = (*owner)(ep).Resolve(&op, dest); err == nil {
			ep.fep.Quiesce(now, op.Peer)
		}
	})
	if err == transport.ErrNoPeer {
		err = fi.EINVAL
	}
	return err
}

// A Load says how much an endpoint has outstanding at the moment.
type Load struct {
	transport.Load
	// Unread is how many entries of its completion queues wait to be read, Room how many
	// entries they can have.
	Unread, Room int
}

// Load returns how much an endpoint has outstanding with all its peers. Its cost grows with
// the number of peers. It is zero before Enable and after Close.
func (ep *Endpoint) Load() Load {
	ep.mu.Lock()
	drv, txq, rxq := ep.drv, ep.txq.cq, ep.rxq.cq
	ep.mu.Unlock()
	if drv == nil || ep.state.Load() == stateClosed {
		return Load{}
	}
	var l Load
	drv.With(func() { l.Load = ep.fep.Load() })
	if rxq == txq {
		rxq = nil
	}
	for _, q := range []*cq.CQ{txq, rxq} {
		if q != nil {
			l.Unread += q.Unread()
			l.Room += q.Attr().Size
		}
	}
	return l
}

// PathInfo describes how an endpoint reaches the network: the settings in force, and what
// the system granted.
type PathInfo struct {
	Local wire.Addr // as Name returns it
	// PayloadMTU is the message bytes per packet.
	PayloadMTU int
	// InjectSize is the longest message for the inject calls.
	InjectSize int
	// CRC says that packets carry a checksum (CRC-32C).
	CRC bool
	// Sealed says that packets are encrypted and authenticated, and carry no CRC.
	Sealed bool
	// JobID is the job of the endpoint.
	JobID uint32
	// Window is the most bytes in flight to one peer.
	Window int
	// Auto says that a goroutine makes progress while the application makes no calls
	// (fi.ProgressAuto).
	Auto bool
	// Socket has interface, MTU, ports, offloads, ECN and buffers.
	Socket SocketInfo
}

// PathInfo describes an enabled endpoint. fi.EOPBADSTATE before Enable.
func (ep *Endpoint) PathInfo() (PathInfo, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	switch {
	case ep.domain == nil:
		return PathInfo{}, errUnopened
	case ep.drv == nil:
		return PathInfo{}, errNotEnabled
	}
	c := ep.fep.Config()
	return PathInfo{
		Local: ep.name, PayloadMTU: c.PayloadMTU, InjectSize: ep.info.Tx.InjectSize, CRC: !c.NoCRC && ep.seal == nil, Sealed: ep.seal != nil, JobID: ep.localJob(), Window: c.Window,
		Auto: ep.info.Domain.DataProgress != fi.ProgressManual, Socket: socketInfo(ep.conn.Info()),
	}, nil
}
