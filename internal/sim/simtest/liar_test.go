package simtest

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// A liar is an Endpoint between a host and its FEP. Each of its functions that is not nil gives
// the host something other than the FEP does.
type liar struct {
	Endpoint
	host   *Host
	queued []transport.Event

	leaves func(*dgram.Datagram)                     // changes a train
	told   func(transport.Event) []transport.Event   // replaces an event by these
	peer   func() error                              // in place of Peer
	post   func(*transport.Op) (done bool, as error) // in place of Post if done
	cancel func(*Op) bool                            // in place of Cancel
	send   func(*dgram.Datagram) bool                // in place of Transmit
	stats  func(*transport.Stats)                    // changes the counters

	pending, busy, idle  func(bool) bool // change what the FEP says
	holds, strange, pdcs func(int) int   // Queued, Unexpected, PDCs
	timeout              func(time.Duration) time.Duration
}

// lie puts a liar in front of the FEP of a host, or returns the one that is there.
func lie(h *Host) *liar {
	l, ok := h.FEP.(*liar)
	if !ok {
		l = &liar{Endpoint: h.FEP, host: h}
		h.FEP = l
	}
	return l
}

// tell gives the host an event made by the test.
func (l *liar) tell(e transport.Event) {
	l.queued = append(l.queued, e)
	l.host.drive(l.host.w.Now())
}

func (l *liar) NextEvent() *transport.Event {
	for len(l.queued) == 0 {
		e := l.Endpoint.NextEvent()
		if e == nil || l.told == nil {
			return e
		}
		l.queued = append(l.queued, l.told(*e)...)
	}
	e := l.queued[0]
	l.queued = l.queued[1:]
	return &e
}

func (l *liar) Transmit(now time.Duration, d *dgram.Datagram) bool {
	if l.send != nil {
		return l.send(d)
	}
	if !l.Endpoint.Transmit(now, d) {
		return false
	}
	if l.leaves != nil {
		l.leaves(d)
	}
	return true
}

func (l *liar) Post(now time.Duration, op *transport.Op) error {
	if l.post != nil {
		if done, err := l.post(op); done {
			return err
		}
	}
	return l.Endpoint.Post(now, op)
}

func (l *liar) Cancel(now time.Duration, id transport.EndpointID, context any) bool {
	if l.cancel != nil {
		return l.cancel(context.(*Op))
	}
	return l.Endpoint.Cancel(now, id, context)
}

func (l *liar) Peer(addr netip.AddrPort, known bool) (transport.PeerID, error) {
	if l.peer != nil {
		return transport.NoPeer, l.peer()
	}
	return l.Endpoint.Peer(addr, known)
}

func (l *liar) Stats() transport.Stats {
	s := l.Endpoint.Stats()
	if l.stats != nil {
		l.stats(&s)
	}
	return s
}

func (l *liar) Pending() bool   { return bend(l.pending, l.Endpoint.Pending()) }
func (l *liar) Busy() bool      { return bend(l.busy, l.Endpoint.Busy()) }
func (l *liar) Idle() bool      { return bend(l.idle, l.Endpoint.Idle()) }
func (l *liar) Queued() int     { return bend(l.holds, l.Endpoint.Queued()) }
func (l *liar) Unexpected() int { return bend(l.strange, l.Endpoint.Unexpected()) }
func (l *liar) PDCs() int       { return bend(l.pdcs, l.Endpoint.PDCs()) }
func (l *liar) NextTimeout() time.Duration {
	return bend(l.timeout, l.Endpoint.NextTimeout())
}

func bend[T any](f func(T) T, v T) T {
	if f != nil {
		return f(v)
	}
	return v
}

// always returns a lie that does not depend on the truth.
func always[T any](v T) func(T) T { return func(T) T { return v } }

// success and failure are the events that a FEP owes for an operation.
func success(o *Op) transport.Event {
	return transport.Event{Kind: o.Kind, Context: o, Flags: uint64(o.ID) << 8, Buf: o.buf}
}

// end is success with another cause.
func end(o *Op, c transport.Cause) transport.Event {
	e := success(o)
	e.Cause = c
	return e
}

// sends changes the events of a host's sends of a kind, receives those of its receives that end
// in success.
func changes(h *Host, kind transport.OpKind, f func(e *transport.Event)) {
	lie(h).told = func(e transport.Event) []transport.Event {
		if o := e.Context.(*Op); e.Kind == kind && !o.drainer && (o.send() || e.Cause == 0) {
			f(&e)
		}
		return []transport.Event{e}
	}
}

// drops keeps the events that f picks from the host.
func drops(h *Host, f func(e *transport.Event) bool) {
	lie(h).told = func(e transport.Event) []transport.Event {
		if f(&e) {
			return nil
		}
		return []transport.Event{e}
	}
}

// reseal writes a correct trailer on a packet that a test has changed.
func reseal(h, to *Host, b []byte) {
	n := len(b) - 4
	binary.BigEndian.PutUint32(b[n:], crcOf(h.Addr(), to.Addr(), b[:n]))
}

// alters changes the packets of a class that leave a host.
func alters(w *World, from int, c class, f func(b []byte, r *reading)) {
	lie(w.Hosts[from]).leaves = func(d *dgram.Datagram) {
		for rest := d.Data; len(rest) > 0; {
			var b []byte
			b, rest = d.Next(rest)
			if r := read(b, 4); r.class == c {
				f(b, &r)
				reseal(w.Hosts[from], w.Hosts[1-from], b)
			}
		}
	}
}

// says sends a packet from a host, without its FEP. The last four bytes are for the trailer.
func says(w *World, from int, b []byte) {
	h, to := w.Hosts[from], w.Hosts[1-from]
	reseal(h, to, b)
	h.Node.Send(&dgram.Datagram{Data: b, Remote: to.Addr(), TOS: dgram.ECT0})
}

// copies sends a copy of the first packet of a host that f picks, some time after it and
// changed.
func copies(w *World, from int, after time.Duration, pick func(*reading) bool, change func(b []byte, r *reading) []byte) {
	done := false
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		r := read(p.Data, 4)
		if done || what != sim.Sent || p.From != w.Hosts[from].Node || !pick(&r) {
			return
		}
		done = true
		b := append([]byte(nil), p.Data...)
		w.Net.After(after, func() { says(w, from, change(b, &r)) })
	})
}

// setPSN gives a request another PSN and keeps its CLEAR_PSN.
func setPSN(b []byte, r *reading, psn uint32) []byte {
	binary.BigEndian.PutUint32(b[4:], psn)
	binary.BigEndian.PutUint16(b[2:], uint16(r.clear-psn))
	return b
}

// sesOf returns the SES header of a request, and what follows it.
func sesOf(b []byte, r *reading) []byte {
	if r.typ >= 13 {
		return b[16:]
	}
	return b[12:]
}

const flagRETX = 0x10

// control returns a control packet, with room for the trailer.
func control(ctl uint8, flags uint8, psn uint32, from, to uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, 11<<11|uint16(ctl)<<7|uint16(flags))
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, psn)
	b = binary.BigEndian.AppendUint16(b, from)
	b = binary.BigEndian.AppendUint16(b, to)
	return append(b, make([]byte, 8)...)
}

// forward returns the first PDC that A opened, as the ledger knows it.
func forward(w *World) *dir {
	for _, d := range w.ledger.opened {
		if d.host == w.Hosts[0] && d.forward {
			return d
		}
	}
	return nil
}

// at does something to a world at a time after its start.
func at(d time.Duration, f func(w *World)) func(w *World) {
	return func(w *World) { w.Net.At(sim.Start+d, func() { f(w) }) }
}

// exchange swaps the contents of two buffers.
func exchange(a, b []byte) {
	t := append([]byte(nil), b...)
	copy(b, a)
	copy(a, t)
}
