package simtest

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/dgram"
	"github.com/uetkit/uetkit/transport/pds"
	"github.com/uetkit/uetkit/transport/ses"
	"github.com/uetkit/uetkit/transport/sim"
	"github.com/uetkit/uetkit/transport/wire"
)

// A checker that was never seen to fail is worth nothing: each plants a bug
// between the FEP and the harness and must be told so, in the words of the
// checker that is responsible.

// reseal puts a right trailer on a packet that a test has changed.
func reseal(h, to *Host, b []byte) {
	n := len(b) - 4
	binary.BigEndian.PutUint32(b[n:], crcOf(h.Addr(), to.Addr(), b[:n]))
}

// each runs f on the packets of a train that are of a class.
func each(w *World, from int, c class, f func(b []byte, r *reading)) func(*dgram.Datagram) {
	return func(d *dgram.Datagram) {
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

func TestPlantedBugsAreFound(t *testing.T) {
	twistSend := func(f func(e transport.Event) []transport.Event) func(transport.Event) []transport.Event {
		return func(e transport.Event) []transport.Event {
			if e.Kind == transport.OpTSend {
				return f(e)
			}
			return []transport.Event{e}
		}
	}
	twistRecv := func(f func(e *transport.Event)) func(transport.Event) []transport.Event {
		return func(e transport.Event) []transport.Event {
			if e.Kind == transport.OpTRecv && e.Cause == ses.OK {
				f(&e)
			}
			return []transport.Event{e}
		}
	}
	for _, c := range []struct {
		name, want string
		plant      func(w *World)
	}{
		{"no bug", "", func(w *World) {}},
		{"a completion is dropped", "nothing went on", func(w *World) {
			w.Hosts[0].twist = twistSend(func(e transport.Event) []transport.Event { return nil })
		}},
		{"a completion comes twice", "second event", func(w *World) {
			w.Hosts[0].twist = twistSend(func(e transport.Event) []transport.Event { return []transport.Event{e, e} })
		}},
		{"a receive's completion is dropped", "nothing went on", func(w *World) {
			w.Hosts[1].twist = func(e transport.Event) []transport.Event {
				if e.Kind == transport.OpTRecv && e.Cause == ses.OK {
					return nil
				}
				return []transport.Event{e}
			}
		}},
		{"success too early", "completes before all of it was given to the target", func(w *World) {
			h := w.Hosts[0]
			w.Net.At(sim.Start+1, func() {
				for _, o := range h.sends {
					if o.Len > 1000 {
						h.event(w.Now(), transport.Event{Kind: o.Kind, Context: o, Flags: uint64(o.ID) << 8})
					}
				}
			})
		}},
		{"success before the answer", "answered", func(w *World) {
			h := w.Hosts[0]
			w.Hosts[1].onEvent = func(o *Op) {
				if o.match != nil && o.match.Open() && !o.match.Silent {
					h.event(w.Now(), transport.Event{Kind: o.match.Kind, Context: o.match, Flags: uint64(o.match.ID) << 8})
				}
			}
		}},
		{"a wrong byte is delivered", "wrong bytes", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Context.(*Op).buf[e.Len/2] ^= 1 })
		}},
		{"a byte behind the message is written", "behind it was written", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Context.(*Op).buf[e.Len] = 0 })
		}},
		{"a byte before the buffer is written", "around the buffer", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Context.(*Op).whole[guardLen-1] = 0 })
		}},
		{"a byte is written after the completion", "after its end", func(w *World) {
			w.Hosts[1].onEvent = func(o *Op) {
				if o.match != nil {
					w.Net.After(time.Millisecond, func() { o.buf[0] = 1 })
				}
			}
		}},
		{"a wrong length is told", "receives", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Len-- })
		}},
		{"a wrong tag is told", "reports tag", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Tag ^= 1 << 50 })
		}},
		{"a wrong source is told", "as source", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Peer = w.Hosts[1].Peer(1) })
		}},
		{"a wrong buffer is told", "another buffer", func(w *World) {
			w.Hosts[1].twist = twistRecv(func(e *transport.Event) { e.Buf = e.Buf[1:] })
		}},
		{"a success is told as failure", "fails", func(w *World) {
			w.Hosts[0].twist = twistSend(func(e transport.Event) []transport.Event {
				e.Cause, e.Unknown = ses.TimedOut, true
				return []transport.Event{e}
			})
		}},
		{"a failure denies what was delivered", "fails for certain", func(w *World) {
			w.spec.MayFail = true
			w.Hosts[0].twist = twistSend(func(e transport.Event) []transport.Event {
				e.Cause = ses.TimedOut
				return []transport.Event{e}
			})
		}},
		{"an event follows the close", "event after Close", func(w *World) {
			h := w.Hosts[0]
			w.Net.At(sim.Start+10*time.Millisecond, func() {
				o := h.sends[0]
				h.Close()
				h.event(w.Now(), transport.Event{Kind: o.Kind, Context: o})
			})
		}},
		{"CACK covers what never arrived", "covers a PSN", func(w *World) {
			w.Link(0, 1).SetFaults(sim.Faults{Drop: []uint64{1}})
			w.Hosts[1].mangle = each(w, 1, classAck, func(b []byte, r *reading) { binary.BigEndian.PutUint32(b[4:], r.cack+1) })
		}},
		{"SACK names what never arrived", "SACK names", func(w *World) {
			w.Hosts[1].mangle = each(w, 1, classAck, func(b []byte, r *reading) { b[16] = 0x80 })
		}},
		{"an ACK goes back", "goes back", func(w *World) {
			seen := map[uint16]int{}
			w.Hosts[1].mangle = each(w, 1, classAck, func(b []byte, r *reading) {
				if seen[r.dpdcid]++; seen[r.dpdcid] == 3 {
					binary.BigEndian.PutUint32(b[4:], r.cack-6)
				}
			})
		}},
		{"CLEAR of what has no answer", "clears PSN", func(w *World) {
			w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) { binary.BigEndian.PutUint16(b[2:], 0) })
		}},
		{"a PSN is left out", "gap in its PSNs", func(w *World) {
			n := 0
			w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) {
				if r.syn {
					return
				}
				if n++; n == 3 {
					binary.BigEndian.PutUint32(b[4:], r.psn+1)
					binary.BigEndian.PutUint16(b[2:], uint16(r.clear-r.psn-1)) // CLEAR_PSN as it was
				}
			})
		}},
		{"a resend without RETX", "without RETX", func(w *World) {
			w.Link(0, 1).SetFaults(sim.Faults{Drop: []uint64{1}})
			w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) { b[1] &^= 0x10 })
		}},
		{"a payload byte is sent wrong", "wrong bytes for", func(w *World) {
			w.Hosts[0].mangle = each(w, 0, classData, func(b []byte, r *reading) {
				if r.n > 100 {
					b[len(b)-20] ^= 1
				}
			})
		}},
		{"a wrong trailer", "wrong CRC", func(w *World) {
			w.Hosts[0].mangle = func(d *dgram.Datagram) { d.Data[len(d.Data)-1] ^= 1 }
		}},
		{"a packet is refused as trimmed that is whole", "which nobody trimmed", func(w *World) {
			sent := false
			w.Hosts[1].mangle = each(w, 1, classAck, func(b []byte, r *reading) {
				if sent || r.probe {
					return
				}
				sent = true
				n := wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: wire.PSN(r.ackPSN), SPDCID: r.spdcid, DPDCID: r.dpdcid}
				pkt := append(n.Append(nil), 0, 0, 0, 0)
				reseal(w.Hosts[1], w.Hosts[0], pkt)
				w.Net.After(0, func() {
					w.Hosts[1].Node.Send(&dgram.Datagram{Data: pkt, Remote: w.Hosts[0].Addr(), TOS: dgram.ECT0})
				})
			})
		}},
		{"a wrong class", "with code point", func(w *World) {
			w.Hosts[0].mangle = func(d *dgram.Datagram) { d.TOS = transport.DefaultClasses.Control<<2 | dgram.ECT0 }
		}},
		{"ordered messages swap", "out of order", func(w *World) {
			// Two receives in post order get each other's message: the events are
			// exchanged together with the buffers.
			var held *transport.Event
			w.Hosts[1].twist = func(e transport.Event) []transport.Event {
				o := e.Context.(*Op)
				if e.Kind != transport.OpRecv || e.Cause != ses.OK || o.drainer {
					return []transport.Event{e}
				}
				if held == nil {
					held = &e
					return nil
				}
				a, b := *held, e
				p := a.Context.(*Op)
				exchange(o.buf, p.buf)
				a.Context, b.Context = b.Context, a.Context
				a.Flags, b.Flags = b.Flags, a.Flags
				a.Buf, b.Buf = b.Buf, a.Buf
				held = nil
				return []transport.Event{a, b}
			}
		}},
		{"traffic at rest", "at rest", func(w *World) {
			h := w.Hosts[0]
			for s := 36; s < 60; s++ {
				w.Net.At(sim.Start+time.Duration(s)*time.Second, func() {
					h.Node.Send(&dgram.Datagram{Data: lastAck(w), Remote: w.Hosts[1].Addr(), TOS: dgram.ECT0})
				})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := runPlanted(c.plant)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("without a bug: %v\n%s", err, err.Tail)
			case c.want != "" && err == nil:
				t.Errorf("was not found")
			case c.want != "" && !strings.Contains(err.What, c.want):
				t.Errorf("was found in other words: %v", err)
			}
		})
	}
}

func TestBytesThatStayInFlightAreFound(t *testing.T) {
	hosts := make([]HostSpec, 2)
	hosts[0].Config.NewCCC = func(int) pds.CCC { return &leaky{} }
	if err := runOn(hosts, func(*World) {}); err == nil || !strings.Contains(err.What, "bytes in flight at rest") {
		t.Errorf("found: %v", err)
	}
}

// leaky is an open window that forgets a byte of what left flight with each ACK.
type leaky struct{ flight int }

func (l *leaky) CanSend(int) bool                      { return true }
func (l *leaky) OnSend(_ time.Duration, n int) bool    { l.flight += n; return false }
func (l *leaky) OnLoss(_ time.Duration, n int, _ bool) { l.flight -= n }
func (l *leaky) OnSpurious()                           {}
func (l *leaky) OnNack(_ time.Duration, n int, _ bool) { l.flight -= n }
func (l *leaky) OnGone(n int)                          { l.flight -= n }
func (l *leaky) SRTT() time.Duration                   { return 0 }
func (l *leaky) RTO() time.Duration                    { return 5 * time.Millisecond }
func (l *leaky) Window() int                           { return 1 << 20 }
func (l *leaky) InFlight() int                         { return l.flight }
func (l *leaky) OnAck(_ time.Duration, newly int, _ time.Duration, _ bool, _ uint8, _ bool) {
	l.flight -= max(newly-1, 0)
}

// exchange swaps the contents of two buffers.
func exchange(a, b []byte) {
	t := append([]byte(nil), b...)
	copy(b, a)
	copy(a, t)
}

// lastAck is an ACK that the ledger will not object to: the last one that A
// sent, again.
func lastAck(w *World) []byte { return append([]byte(nil), w.Hosts[0].keep...) }

// runPlanted runs a small system with a planted bug and returns what the
// checkers say.
func runPlanted(plant func(*World)) *Violation { return runOn(make([]HostSpec, 2), plant) }

func runOn(hosts []HostSpec, plant func(*World)) (v *Violation) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if v, ok = p.(*Violation); !ok {
				panic(p)
			}
		}
	}()
	w := NewWorld(nil, Spec{Seed: 1, Hosts: hosts, Link: sim.Faults{Delay: 50 * time.Microsecond}})
	a, b := w.Hosts[0], w.Hosts[1]
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if r := read(p.Data, 4); what == sim.Sent && p.From == a.Node && r.class == classAck {
			a.keep = append(a.keep[:0], p.Data...)
		}
	})
	plant(w)
	for range 4 {
		b.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
		b.Post(OpSpec{Kind: transport.OpRecv, Peer: Any, Len: 6000})
		a.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
	}
	for i := range 4 {
		a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000})
		a.Post(OpSpec{Kind: transport.OpSend, Peer: 1, Len: 50 + i, Ordered: true})
		b.Post(OpSpec{Kind: transport.OpTSend, Peer: 0, Len: 500})
		w.Run(time.Millisecond)
	}
	w.Run(20 * time.Millisecond)
	w.Settle(5 * time.Second)
	return nil
}

func TestDoubleRunDiffers(t *testing.T) {
	// The hash must see a change of one completion and of one bit on the wire.
	run := func(plant func(*World)) uint64 {
		w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2), Link: sim.Faults{Delay: 50 * time.Microsecond}, Forged: true, Hostile: true, MayFail: true})
		plant(w)
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000})
		w.Run(time.Second)
		return w.Hash()
	}
	clean := run(func(*World) {})
	if again := run(func(*World) {}); again != clean {
		t.Error("two runs differ")
	}
	if h := run(func(w *World) {
		w.Hosts[0].mangle = func(d *dgram.Datagram) { d.Data[len(d.Data)-1] ^= 1 }
	}); h == clean {
		t.Error("a bit on the wire makes no difference")
	}
	if h := run(func(w *World) {
		w.Hosts[1].twist = func(e transport.Event) []transport.Event { e.Len++; return []transport.Event{e} }
	}); h == clean {
		t.Error("a completion makes no difference")
	}
}

func TestShrinkKeepsTheFailure(t *testing.T) {
	// A scenario that fails from a step of its own shrinks to that step.
	v := Variant{Seed: 3}
	sc := v.Scenario()
	bad := sc.Steps[len(sc.Steps)/2].N
	run := func(v Variant) error {
		for _, s := range v.Scenario().Steps {
			if s.N == bad {
				return &Violation{What: "planted"}
			}
		}
		return nil
	}
	small := shrink(v, run, func() bool { return false })
	if len(small.Keep) != 1 || small.Keep[0] != bad {
		t.Errorf("shrunk to steps %v, want %d", small.Keep, bad)
	}
	if len(small.Without) < len(kinds)-4 {
		t.Errorf("left out only %v", small.Without)
	}
}

// Messages too short to bear their number are told apart by who still needs one:
// that a receive may have got either must not hide that one is missing.
func TestReceivesOfTwinsGoToWhoNeedsThem(t *testing.T) {
	w := NewWorld(nil, Spec{Seed: 1, Hosts: make([]HostSpec, 2)})
	send := func(cause ses.Cause, unknown bool) *Op {
		o := w.newOp(w.Hosts[0], OpSpec{Kind: transport.OpSend, Peer: 1, Len: 3, Level: transport.LevelDelivery})
		o.HasData, o.Life = false, 1
		o.postSeq, o.Ended, o.EndedAt = 1, true, 2
		o.Event.Cause, o.Event.Unknown = cause, unknown
		o.delivery(1).allAt = 1
		return o
	}
	recv := func() *Op {
		o := w.newOp(w.Hosts[1], OpSpec{Kind: transport.OpRecv, Peer: Any})
		o.Life, o.Event.OverLen, o.from = 1, 3, w.Hosts[0].Addr()
		if o.match = w.place(o, map[*Op]bool{}); o.match == nil {
			t.Fatal("a receive found no message")
		}
		return o
	}
	lost := send(ses.Aborted, true) // a restarted target answered it 0E
	first, second := send(ses.OK, false), send(ses.OK, false)
	recv()
	r := recv()
	if !lost.Delivered() || !first.Delivered() || second.Delivered() {
		t.Fatal("receives are not given in post order: the test does not test")
	}
	if w.missing(second) || w.missing(first) || lost.Delivered() {
		t.Error("a message is missing although as many receives ended as have to")
	}
	d := r.match.delivery(1)
	r.match, d.receive = nil, nil
	if !w.missing(first) && !w.missing(second) {
		t.Error("one of two messages was not received, and nothing is missing")
	}
}
