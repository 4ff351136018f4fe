package simtest

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
)

// twoLives is a world whose second host is in its second life, and a message of 2000 bytes to it.
func twoLives(secure transport.Secure) (*World, *Op) {
	w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), Secure: secure})
	w.Hosts[1].Node.Life++
	o := w.newOp(w.Hosts[0], OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 2000, Level: transport.LevelMatch})
	o.Life = 1
	return w, o
}

// pdcOf opens a PDC and sends the message by it, as two packets.
func pdcOf(w *World, o *Op, id uint16, holder int) *dir {
	d := w.ledger.open(dirKey{0, id}, w.Hosts[0], w.Hosts[1], uint32(id)<<20, false, false)
	d.sent = []sentPSN{{op: o, msg: id, n: 1024}, {op: o, msg: id, off: 1024, n: 976}}
	d.forward, d.holder = true, holder
	return d
}

// A send fails for certain if its target deferred it and died. A copy that was under way may come to the
// next life, which in clear cannot know better (T22). A life that deferred it itself must not have it.
func TestDeferredByAFormerLife(t *testing.T) {
	for _, c := range []struct {
		by     int
		secure transport.Secure
		blamed bool
	}{{1, transport.SecureNone, false}, {2, transport.SecureNone, true}, {1, transport.SecureZeroRTT, true}} {
		w, o := twoLives(c.secure)
		o.Ended, o.Event.Cause = true, transport.Aborted
		o.putOff(msgKey{id: 7}, c.by)
		d := o.delivery(2)
		d.had, d.receive = true, o
		if v := caught(func() { w.certain(o) }); v != nil != c.blamed {
			t.Errorf("deferred by life %d, secure %v, received by life 2: %v", c.by, c.secure, v)
		}
	}
}

// The ACK of a life counts for what that life said, even if it comes when the next life has deferred a
// copy of the message.
func TestAnswerIsOfItsLife(t *testing.T) {
	for life, want := range map[int]int{1: 2000, 2: 0} {
		w, o := twoLives(transport.SecureNone)
		d := pdcOf(w, o, 7, 1)
		o.putOff(msgKey{d, 7}, 2)
		r := record{from: w.Hosts[1], life: life, dir: d, reading: reading{class: classAck, cack: d.start + 1, ackPSN: d.start + 1}}
		if w.ledger.taken(0, &r, w.Hosts[0], nil); o.ansBytes != want {
			t.Errorf("the ACK of life %d answers %d bytes", life, o.ansBytes)
		}
	}
}

// A message goes again on another PDC only if no life that had the former one got all of it there. What
// came to it on PDCs that it did not have, or what it deferred, does not count.
func TestMovedThoughItCame(t *testing.T) {
	for name, c := range map[string]struct {
		holder, parts int // of the PDC, in life 2
		elsewhere     bool
		deferred      bool
		blamed        bool
	}{
		"all of it":                            {holder: 2, parts: 2, blamed: true},
		"all of it, and nobody answered":       {parts: 2, blamed: true},
		"to a life without the PDC":            {holder: 1, parts: 2},
		"a part":                               {holder: 2, parts: 1},
		"a part, and all of it on another PDC": {holder: 2, parts: 1, elsewhere: true},
		"deferred":                             {holder: 2, parts: 2, deferred: true},
	} {
		w, o := twoLives(transport.SecureNone)
		came := func(d *dir, n int) {
			for i := range n {
				d.at(2).got.set(uint32(i))
				o.arrived(1, 1, 2, &record{dir: d, reading: reading{msgID: d.id, off: d.sent[i].off, n: int(d.sent[i].n)}})
			}
		}
		if c.elsewhere {
			came(pdcOf(w, o, 7, 1), 2)
		}
		d := pdcOf(w, o, 8, c.holder)
		came(d, c.parts)
		if o.by = d; c.deferred {
			o.delivery(2).deferred = []msgKey{{d, 8}}
		}
		r := record{from: w.Hosts[0], dir: pdcOf(w, o, 9, 0)}
		if v := caught(func() { w.ledger.moved(&r, o) }); v != nil != c.blamed {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// Who returns data on a PDC has it, though no ACK was seen.
func TestReturnDataTellsWhoHasThePDC(t *testing.T) {
	w, o := twoLives(transport.SecureNone)
	d := pdcOf(w, o, 7, 0)
	r := record{from: w.Hosts[1], reading: reading{class: classData, next: nextRspData, psn: d.start, spdcid: 5, dpdcid: 7}}
	if w.ledger.dirOf(&r, w.Hosts[0]); d.holder != 2 {
		t.Errorf("life %d has it", d.holder)
	}
}

// What a ROD target keeps because a packet before it is late is executed in several turns. Settle gives
// all of it to receives before it takes them back.
func TestSettleReceivesWhatWasEarly(t *testing.T) {
	spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2), Line: sim.Faults{Delay: 50 * time.Microsecond}}
	spec.Hosts[1].Flush, spec.Hosts[1].FlushDelay = FlushLater, time.Millisecond // no ACK is under way meanwhile
	w := NewWorld(t, spec)
	a := w.Hosts[0]
	w.Line(0, 1).SetFaults(sim.Faults{Delay: time.Second})
	for i := range 90 {
		a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 1, Ordered: true})
		w.Run(time.Microsecond)
		if i == 0 {
			w.Line(0, 1).SetFaults(sim.Faults{Delay: 50 * time.Microsecond})
		}
	}
	a.Crash(false)
	w.Settle(time.Second)
	n := 0
	for _, o := range w.ops {
		if o.send() && o.Delivered() {
			n++
		}
	}
	if n <= 64 {
		t.Errorf("%d messages are received: the test does not test", n)
	}
}

// A target that refuses a Start_PSN has executed nothing of what came under it, also if its next life refuses
// the PDC, too, and the send ends for certain.
func TestRefusedStartGaveNothing(t *testing.T) {
	for _, parts := range []int{1, 2} {
		w, o := twoLives(transport.SecureOneRTT)
		o.Ended, o.Event.Cause = true, transport.Cancelled
		came := func(d *dir, n int) {
			for i := range n {
				d.at(1).got.set(uint32(i))
				o.arrived(1, 1, 1, &record{dir: d, reading: reading{msgID: d.id, off: d.sent[i].off, n: int(d.sent[i].n)}})
			}
			o.by = d
		}
		old := pdcOf(w, o, 7, 0)
		came(old, 2)
		anew := pdcOf(w, o, 8, 0)
		old.replaced, anew.renumbered, anew.was = true, true, old
		came(anew, parts)
		if v := caught(func() { w.certain(o) }); v != nil != (parts == 2) {
			t.Errorf("%d parts came under the last Start_PSN: %v", parts, v)
		}
	}
}

// A send that fails for certain may have come in parts, each on another PDC: none of them gave all of it. What came
// to a life that did not have the PDC counts for nothing.
func TestPartsOnSeveralPDCs(t *testing.T) {
	for name, c := range map[string]struct {
		holder, first, second int // of the former PDC, and packets that came on each, in life 2
		blamed                bool
	}{
		"the first on one, the second on the other": {holder: 2, first: 1, second: 2},
		"all of it on one that it does not have":    {holder: 1, first: 3, second: 1},
		"all of it on the former one":               {holder: 2, first: 3, second: 1, blamed: true},
		"all of it on the latter one":               {holder: 1, first: 1, second: 3, blamed: true},
		"all of it, and nobody answered":            {first: 3, second: 1, blamed: true},
	} {
		w, o := twoLives(transport.SecureNone)
		o.Ended, o.Event.Cause = true, transport.Cancelled
		came := func(d *dir, parts int) {
			for i := range 2 {
				if parts>>i&1 != 0 {
					d.at(2).got.set(uint32(i))
					o.arrived(1, 1, 2, &record{dir: d, reading: reading{msgID: d.id, off: d.sent[i].off, n: int(d.sent[i].n)}})
				}
			}
			o.by = d
		}
		came(pdcOf(w, o, 7, c.holder), c.first)
		came(pdcOf(w, o, 8, 2), c.second)
		if v := caught(func() { w.certain(o) }); v != nil != c.blamed {
			t.Errorf("%s: %v", name, v)
		}
	}
}

// A life of the target that has the PDCID by which a former one answered may return a part of a read that the
// former one took over, in clear. The rest never comes.
func TestReturnDataOfATwin(t *testing.T) {
	for _, c := range []struct {
		acker  uint16
		secure transport.Secure
		twins  bool
	}{{5, transport.SecureNone, true}, {6, transport.SecureNone, false}, {5, transport.SecureZeroRTT, false}} {
		w, o := twoLives(c.secure)
		d := pdcOf(w, o, 7, 1)
		d.acker = c.acker
		r := record{from: w.Hosts[1], reading: reading{class: classData, next: nextRspData, psn: d.start, spdcid: 5, dpdcid: 7}}
		if w.ledger.dirOf(&r, w.Hosts[0]); w.twins != c.twins {
			t.Errorf("answered by PDC %d, returned by 5, secure %v: twins %v", c.acker, c.secure, w.twins)
		}
	}
}
