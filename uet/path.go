package uet

import (
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/udp"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/driver"
)

// Stats are the counters of an endpoint. All values only grow.
type Stats struct {
	transport.Stats
	Socket udp.Stats
	Driver driver.Stats
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
	drv.With(func() { s.Stats, s.Socket = ep.fep.Stats(), ep.conn.Stats() })
	s.Driver = drv.Stats()
	return s
}

// Quiesce begins the orderly end of the packet delivery contexts (PDCs) that an
// endpoint has opened to a peer, and returns at once. Messages that were posted go to
// their end; messages that are posted later open new ones. PDCs also end by themselves
// after a while without traffic; Quiesce frees the peer's resources earlier.
//
// to is ignored by a connected endpoint. fi.EINVAL: to is none. fi.EOPBADSTATE: the
// endpoint is not enabled, or closed.
func (ep *Endpoint) Quiesce(to fi.Addr) error {
	if ep.ready() != nil {
		return fi.EOPBADSTATE
	}
	dest, err := ep.dest(to)
	if err != nil {
		return err
	}
	ep.drv.Do(func(now time.Duration) {
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

// A Load is what an endpoint has to do now. It goes up and down.
type Load struct {
	transport.Load
	// Unread are the entries in its completion queues that wait to be read, Room
	// the most there may be.
	Unread, Room int
}

// Load looks at all peers. It is zero before Enable and after Close.
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

// PathInfo is what the way to the network really is: what was asked for and
// what the system gave.
type PathInfo struct {
	Local wire.Addr
	// PayloadMTU is the message bytes per packet.
	PayloadMTU int
	// InjectSize is the longest message for the inject calls.
	InjectSize int
	// CRC: packets carry a CRC-32C trailer.
	CRC bool
	// Sealed: packets are encrypted and authenticated, which is instead of the CRC.
	Sealed bool
	// JobID of the endpoint.
	JobID uint32
	// Window is the most bytes in flight to one peer.
	Window int
	// Seed as in Config, 0: random.
	Seed uint64
	// Auto progress.
	Auto bool
	// Socket has interface, MTU, ports, offloads, ECN and buffers.
	Socket udp.Info
}

// PathInfo describes an enabled endpoint. fi.EOPBADSTATE before Enable.
func (ep *Endpoint) PathInfo() (PathInfo, error) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.drv == nil {
		return PathInfo{}, fi.EOPBADSTATE
	}
	c := ep.fep.Config()
	return PathInfo{
		Local: ep.name, PayloadMTU: c.PayloadMTU, InjectSize: ep.info.Tx.InjectSize, CRC: !c.NoCRC && ep.seal == nil, Sealed: ep.seal != nil, JobID: c.JobID, Window: c.Window,
		Seed: ep.info.Config.Seed, Auto: ep.info.Domain.DataProgress != fi.ProgressManual, Socket: ep.conn.Info(),
	}, nil
}
