package uet

import (
	"errors"
	"log/slog"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// troubles limits the reports to the event queue and the log. A dead peer with thousands of
// operations, or a socket that refuses every packet, would flood them (T29, docs/faults.md
// rule 7).
type troubles struct {
	peers [16]peerTrouble // the last ones reported
	next  int
	// The current second began at from. told peers were reported in it, and silent peers
	// were not since the last log line.
	from   time.Time
	told   int
	silent int

	since, last, said time.Time // of an error of the socket

	// The current minute began at gsoFrom. That many changes of GSO were logged in it, and
	// that many were not since the last line.
	gsoFrom            time.Time
	gsoTold, gsoSilent int
}

// A peerTrouble is the last report about a peer.
type peerTrouble struct {
	id  transport.PeerID
	err fi.Errno
	at  time.Time
}

const (
	// troubleQuiet is the time in which one peer's failures are reported once.
	troubleQuiet = time.Second
	// troubleMax is how many lost peers are reported per second. The first of them is also
	// logged.
	troubleMax = 64
	// troubleLasts is how long a socket must refuse packets before it is reported to the EQ
	// (F23).
	troubleLasts = time.Second
	// gsoMax is how many changes of GSO are logged in gsoQuiet. Arbitrary.
	gsoMax   = 4
	gsoQuiet = time.Minute
)

// sourceLost reports a peer that was given up, and from which alone a receive waits for a
// message. Only this tells of it if no operation fails.
func (o *owner) sourceLost(id transport.PeerID, c transport.Cause) {
	e := cq.Error{}
	e.Err, e.Prov = errno(c, 0, 0)
	o.peerLost(id, &e)
}

// peerLost reports a peer that operations failed to reach, or that one waits for.
func (o *owner) peerLost(id transport.PeerID, e *cq.Error) {
	if o.connection != nil && e.Err != fi.EMSGSIZE && e.Err != fi.ENOBUFS {
		o.connection.lost(e.Err)
	}
	now := time.Now()
	t := &o.troubles
	for i := range t.peers {
		p := &t.peers[i]
		if p.id == id && p.err == e.Err && now.Sub(p.at) < troubleQuiet {
			return
		}
	}
	t.peers[t.next] = peerTrouble{id, e.Err, now}
	t.next = (t.next + 1) % len(t.peers)
	remote := o.fep.PeerAddr(id)
	if now.Sub(t.from) >= troubleQuiet {
		o.log.Warn("peer lost", slog.String("peer", remote.String()), slog.String("err", e.Err.Error()),
			slog.String("prov", ProvString(e.Prov)), slog.Int("more_before", t.silent))
		t.from, t.told, t.silent = now, 0, 0
	} else {
		t.silent++
	}
	if t.told++; t.told > troubleMax {
		return
	}
	if o.connection != nil && e.Err != fi.EMSGSIZE && e.Err != fi.ENOBUFS {
		return // R-CM-12: the connection ends, and that is the event
	}
	var raw []byte
	if remote.IsValid() {
		raw, _ = wire.SockAddr(remote).AppendBinary(nil)
	}
	o.report(eq.Error{Fid: (*Endpoint)(o), Err: e.Err, Prov: e.Prov, ErrData: raw})
}

// unfit reports an address whose packets are always dropped. Operations with it will end in
// FI_ETIMEDOUT, which does not say what to repair (F14, F31). The FEP calls it rarely, but
// anybody can cause it: without room in the event queue it only writes to the log.
func (o *owner) unfit(h transport.Hint) {
	e := eq.Error{Fid: (*Endpoint)(o), Err: dropErr(h.Reason), Prov: ProvDrop + uint32(h.Reason)}
	o.log.Warn("packets are dropped", slog.String("local", o.name.AddrPort().String()), slog.String("peer", h.Peer.String()),
		slog.String("why", ProvString(e.Prov)), slog.Uint64("packets", h.Count))
	e.ErrData, _ = wire.SockAddr(h.Peer).AppendBinary(nil)
	if o.eq != nil {
		e.Context = o.context
		o.eq.OfferErr(e)
	}
}

// pathMTU reports that the path to a peer carries less in a packet than the interface, or
// more than it did before (F7). Anybody on the path can cause it: without room in the event
// queue it only writes to the log. That a path carries full packets again is in the log alone.
func (o *owner) pathMTU(m transport.PathMTU) {
	peer, payload, full := slog.String("peer", m.Peer.String()), slog.Int("payload", m.Payload), slog.Int("interface", m.Full)
	if m.Payload == m.Full {
		o.log.Info("the path carries full packets again", peer, payload)
		return
	}
	o.log.Warn("the path carries less in a packet than the interface", peer, payload, full)
	if o.eq != nil {
		e := eq.Error{Fid: (*Endpoint)(o), Err: fi.EMSGSIZE, Prov: ProvPath + uint32(m.Payload>>10<<4|m.Full>>10), Context: o.context}
		e.ErrData, _ = wire.SockAddr(m.Peer).AppendBinary(nil)
		o.eq.OfferErr(e)
	}
}

// Trouble counts errors of the socket. Lost packets are sent again, as on a bad network;
// only trouble that lasts is reported (F23).
func (o *owner) Trouble(err error) {
	now := time.Now()
	t := &o.troubles
	if now.Sub(t.last) > troubleLasts {
		t.since = now
	}
	t.last = now
	if now.Sub(t.since) < troubleLasts || now.Sub(t.said) < 10*troubleLasts {
		return
	}
	t.said = now
	var sys syscall.Errno
	errors.As(err, &sys)
	o.log.Warn("socket refuses packets", slog.String("local", o.name.AddrPort().String()), slog.Any("error", err))
	o.report(eq.Error{Fid: (*Endpoint)(o), Err: fi.ENETDOWN, Prov: uint32(sys)})
}

// overrun reports that a completion queue lost an entry, and disables the endpoint
// (R-CQ-126, R-EQ-46). Pending operations are discarded, and peers get no answer any more
// (R-EP-15).
func (o *owner) overrun(q *cq.CQ) {
	if !o.state.CompareAndSwap(stateEnabled, stateDisabled) {
		return
	}
	o.log.Error("completion queue overrun: endpoint disabled", slog.String("local", o.name.AddrPort().String()))
	o.report(eq.Error{Fid: q, Err: fi.EOVERRUN})
	o.ending.Go(func() { // not while completions are being written
		if o.port != nil {
			o.port.end((*Endpoint)(o))
			return
		}
		o.drv.Do(func(now time.Duration) { o.fep.End(now) })
		if o.connection != nil {
			o.connection.lost(fi.EOVERRUN)
		}
	})
}

// report puts an asynchronous error into the endpoint's event queue, if it has
// one. R-EP-21: it carries the endpoint's context.
func (o *owner) report(e eq.Error) {
	if o.eq != nil {
		e.Context = o.context
		o.eq.PutErr(e)
	}
}

// rawSource returns the address of a message's source in the format of the domain, as
// av.AV.InsertRecords reads it (R-CQ-83).
func (o *owner) rawSource(ev *transport.Event) []byte {
	a := wire.SockAddr(o.fep.PeerAddr(ev.Peer))
	if ev.Initiator != a.Initiator {
		a.Initiator, a.Flags = ev.Initiator, a.Flags|wire.AddrInitiatorValid
	}
	raw, _ := o.av.AppendRecord(nil, a)
	return raw
}

// offload logs that trains to a destination no longer leave whole, or do so again. It
// writes few lines a minute, because forged ICMP messages can cause such changes again and
// again (T34).
func (o *owner) offload(gso udp.Feature) {
	t, now := &o.troubles, time.Now()
	if now.Sub(t.gsoFrom) >= gsoQuiet {
		t.gsoFrom, t.gsoTold = now, 0
	}
	if t.gsoTold == gsoMax {
		t.gsoSilent++
		return
	}
	local, more := slog.String("local", o.name.AddrPort().String()), slog.Int("more_before", t.gsoSilent)
	if t.gsoTold, t.gsoSilent = t.gsoTold+1, 0; gso.On && gso.Why == "" {
		o.log.Info("GSO is on again", local, more)
	} else {
		o.log.Warn("GSO is off", local, slog.Bool("for_all", !gso.On), slog.String("why", gso.Why), more)
	}
}
