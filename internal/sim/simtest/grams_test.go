package simtest

import (
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// A badGrams is a FEP with datagrams that lies to its host. What is not nil changes what the FEP says.
type badGrams struct {
	gramFEP
	told   func(*transport.Event)
	twice  bool
	again  *transport.Event
	leaves func(*dgram.Datagram)
	cancel func(bool) bool
	stats  func(*transport.Stats)
	load   func(*transport.Load)
}

func (f *badGrams) NextEvent() *transport.Event {
	if e := f.again; e != nil {
		f.again = nil
		return e
	}
	e := f.gramFEP.NextEvent()
	if e != nil && f.told != nil {
		c := *e
		e = &c
		f.told(e)
	}
	if e != nil && f.twice {
		c := *e
		f.again = &c
	}
	return e
}

func (f *badGrams) Transmit(now time.Duration, d *dgram.Datagram) bool {
	ok := f.gramFEP.Transmit(now, d)
	if ok && f.leaves != nil {
		f.leaves(d)
	}
	return ok
}

func (f *badGrams) Cancel(now time.Duration, id transport.EndpointID, context any) bool {
	return bend(f.cancel, f.gramFEP.Cancel(now, id, context))
}

func (f *badGrams) Stats() transport.Stats {
	s := f.gramFEP.Stats()
	if f.stats != nil {
		f.stats(&s)
	}
	return s
}

func (f *badGrams) Load() transport.Load {
	l := f.gramFEP.Load()
	if f.load != nil {
		f.load(&l)
	}
	return l
}

// grams plays datagrams from one host to another, of which a bug changes the FEPs.
func grams(bug func(from, to *badGrams)) func(*World) {
	return func(w *World) {
		line := sim.Faults{Delay: 50 * time.Microsecond}
		w.addGrams(2, [][]sim.Faults{{line, line}, {line, line}})
		var bad [2]*badGrams
		for i, h := range w.grams {
			bad[i] = &badGrams{gramFEP: h.fep}
			h.fep = bad[i]
		}
		bug(bad[0], bad[1])
		for k := range 3 { // one more receive than datagrams
			w.grams[1].post(OpSpec{Kind: transport.OpRecv, Peer: Any, Len: 100})
			if k < 2 {
				w.grams[0].post(OpSpec{Kind: transport.OpSend, Peer: 1, Len: 50})
			}
			w.Run(ms)
		}
		w.Rest(0)
		w.Audit()
	}
}

// received has a function change the events of receives of datagrams.
func received(f func(*transport.Event, *gramRecv)) func(*World) {
	return grams(func(_, to *badGrams) {
		to.told = func(e *transport.Event) {
			if e.Cause == transport.OK {
				f(e, e.Context.(*gramRecv))
			}
		}
	})
}

func sent(f func(*transport.Event)) func(*World) {
	return grams(func(from, _ *badGrams) { from.told = f })
}

func left(f func(*dgram.Datagram)) func(*World) {
	return grams(func(from, _ *badGrams) { from.leaves = f })
}

// gramBugs are those of plantedBugs that are of datagrams.
var gramBugs = []planted{
	{bug: "a datagram leaves twice", says: "no datagram as it was posted", with: "left before", play: left(func(d *dgram.Datagram) { d.Seg, d.Data = len(d.Data), append(d.Data, d.Data...) })},
	{bug: "a datagram of another type", says: "no datagram as it was posted", with: "nobody posted it", play: left(func(d *dgram.Datagram) { d.Data[0] ^= 1 << 3 })},
	{bug: "a datagram to another RI", says: "no datagram as it was posted", with: "another endpoint", play: left(func(d *dgram.Datagram) { d.Data[4+11]++ })},
	{bug: "a datagram with another opcode", says: "no datagram as it was posted", with: "another header", play: left(func(d *dgram.Datagram) { d.Data[4] ^= 2 })},
	{bug: "a datagram with other bytes", says: "no datagram as it was posted", with: "other bytes", play: left(func(d *dgram.Datagram) { d.Data[4+44+20]++ })},
	{bug: "a datagram with a wrong CRC", says: "no datagram as it was posted", with: "CRC", play: left(func(d *dgram.Datagram) { d.Data[len(d.Data)-1]++ })},
	{bug: "a datagram that cannot be marked", says: "no datagram as it was posted", with: "marked", play: left(func(d *dgram.Datagram) { d.TOS &^= 3 })},
	{bug: "a datagram ends twice", says: "the send of %v ends wrongly", with: "second", play: grams(func(from, _ *badGrams) { from.twice = true })},
	{bug: "a datagram of another ends", says: "the send of %v ends wrongly", with: "not its own", play: sent(func(e *transport.Event) { e.Flags++ })},
	{bug: "a datagram that left is cancelled", says: "the send of %v ends wrongly", with: "it has left, or nobody", play: sent(func(e *transport.Event) { e.Cause = transport.Cancelled })},
	{bug: "a datagram fails", says: "the send of %v ends wrongly", with: "nothing can fail", play: sent(func(e *transport.Event) { e.Cause = transport.TimedOut })},
	{bug: "a datagram is received twice by one receive", says: "%s: %v ends wrongly", with: "second", play: grams(func(_, to *badGrams) { to.twice = true })},
	{bug: "a receive of datagrams ends at another endpoint", says: "%s: %v ends wrongly", with: "not its own", play: received(func(e *transport.Event, _ *gramRecv) { e.Endpoint++ })},
	{bug: "a receive with a datagram is cancelled", says: "%s: %v ends wrongly", with: "should have a datagram", play: received(func(e *transport.Event, _ *gramRecv) { e.Cause = transport.Cancelled })},
	{bug: "a receive of datagrams fails", says: "%s: %v ends wrongly", with: "nothing can fail", play: received(func(e *transport.Event, _ *gramRecv) { e.Cause = transport.TimedOut })},
	{bug: "a datagram that nobody sent", says: "gets the wrong thing", with: "nobody sent it here", play: received(func(_ *transport.Event, r *gramRecv) { set(r.buf[:8], 0) })},
	{bug: "a datagram instead of another", says: "gets the wrong thing", with: "it should have", play: received(func(_ *transport.Event, r *gramRecv) { fillPattern(r.buf[:50], 1, 0) })},
	{bug: "a datagram of another length", says: "gets the wrong thing", with: "length", play: received(func(e *transport.Event, _ *gramRecv) { e.Len-- })},
	{bug: "a datagram with a word", says: "gets the wrong thing", with: "word", play: received(func(e *transport.Event, r *gramRecv) { e.HasData, e.Data = true, uint64(r.want.id) })},
	{bug: "a datagram of another source", says: "gets the wrong thing", with: "source", play: received(func(e *transport.Event, _ *gramRecv) { e.Initiator++ })},
	{bug: "a datagram with wrong bytes", says: "gets the wrong thing", with: "bytes are wrong", play: received(func(_ *transport.Event, r *gramRecv) { r.buf[49]++ })},
	{bug: "bytes behind a datagram", says: "gets the wrong thing", with: "behind", play: received(func(_ *transport.Event, r *gramRecv) { r.buf[50]++ })},
	{bug: "bytes beside a datagram", says: "beside the buffer of a datagram", play: received(func(_ *transport.Event, r *gramRecv) { r.whole[0]++ })},
	{bug: "a copy of a datagram too many", says: "gets the wrong thing", with: "more often than it came", play: received(func(_ *transport.Event, r *gramRecv) { r.want.came[0]-- })},
	{bug: "Cancel does not find a receive of datagrams", says: "Cancel says", play: grams(func(_, to *badGrams) { to.cancel = always(false) })},
	{bug: "the end of a datagram is kept", says: "the end of %v never came", play: grams(func(from, _ *badGrams) { from.gramFEP = muteGrams{from.gramFEP} })},
	{bug: "a datagram keeps its place", says: "something is left of datagrams", play: grams(func(from, _ *badGrams) { from.load = func(l *transport.Load) { l.Sends++ } })},
	{bug: "a datagram is not counted", says: "found no receive", play: grams(func(_, to *badGrams) { to.stats = func(s *transport.Stats) { s.Bad++ } })},
	{bug: "a datagram is counted as something else", says: "found no receive", play: func(w *World) {
		grams(func(_, to *badGrams) {
			to.stats = func(s *transport.Stats) { w.grams[1].received--; s.Unwanted++ }
		})(w)
	}},
	{bug: "a buffer of a datagram is written late", says: "a datagram was written late", play: func(w *World) {
		w.Net.After(5*ms, func() { w.allRecvs[0].buf[0]++ })
		grams(func(_, _ *badGrams) {})(w)
	}},
}

// A muteGrams tells of no end.
type muteGrams struct{ gramFEP }

func (muteGrams) NextEvent() *transport.Event { return nil }
