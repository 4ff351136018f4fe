package simtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A planted bug makes one checker of this package fail.
type planted struct {
	bug   string
	says  string // part of the text of one checker, as in its source
	with  string // what else the text must have; "" means anything
	spec  func(*Spec)
	plant func(*World)
	play  func(*World) // nil means usual
}

func inStandard(s *Spec) { s.Encapsulation = wire.Standard }

var be = binary.BigEndian

const ms = time.Millisecond

// plantedBugs has at least one row for each checker, and one for each of the conditions that a
// checker joins with "or".
var plantedBugs = []planted{
	// Checks of what leaves a host.
	{bug: "a host sends without end", says: "packet storm", spec: func(s *Spec) { s.MaxPackets = 20 }},
	{bug: "a packet is too short", says: "a packet of no use", plant: at(ms, func(w *World) { says(w, 0, make([]byte, 10)) })},
	{bug: "a packet is of an unknown type", says: "a packet of no use", plant: at(ms, func(w *World) { says(w, 0, make([]byte, 30)) })},
	{bug: "a wrong trailer", says: "a wrong CRC", plant: leaving(func(d *dgram.Datagram) { d.Data[len(d.Data)-1] ^= 1 })},
	{bug: "no ECN", says: "not ECN capable", plant: leaving(func(d *dgram.Datagram) { d.TOS &^= 3 })},
	{bug: "a wrong class", says: "with code point", plant: leaving(func(d *dgram.Datagram) { d.TOS = transport.DefaultClasses.Control<<2 | dgram.ECT0 })},
	{bug: "an empty train", says: "a train of %d bytes to", plant: leaving(func(d *dgram.Datagram) { d.Data = d.Data[:0] })},
	{bug: "a train to nowhere", says: "a train of %d bytes to", plant: leaving(func(d *dgram.Datagram) { d.Remote = netip.AddrPort{} })},
	{bug: "a train on a path that is not there", says: "a train of %d bytes to", plant: leaving(func(d *dgram.Datagram) { d.Path = 1 })},
	{bug: "an entropy value is repeated with Symmetric encapsulation", says: "a train of %d bytes to", plant: leaving(func(d *dgram.Datagram) { d.Path = dgram.Echo(50_000) })},
	{bug: "a packet to another port than 4793", says: "sends to port", spec: inStandard, plant: leaving(func(d *dgram.Datagram) { d.Remote = netip.AddrPortFrom(d.Remote.Addr(), 50_000) })},
	{bug: "an ACK by an entropy value that nobody sent", says: "answers by the entropy value", spec: inStandard, plant: func(w *World) {
		for _, h := range w.Hosts {
			lie(h).leaves = func(d *dgram.Datagram) {
				if t := d.Data[0] >> 3; t == uint8(wire.TypeAck) || t == uint8(wire.TypeAckCC) {
					d.Path = dgram.Echo(49_999)
				}
			}
		}
	}},
	{bug: "a train of too many datagrams", says: "a train of %d datagrams", plant: leaving(func(d *dgram.Datagram) { d.Seg = 1 })},
	{bug: "a train of too many bytes", says: "a train of %d datagrams", plant: leaving(func(d *dgram.Datagram) { d.Data, d.Seg = append(d.Data, make([]byte, dgram.MaxTrain)...), 0 })},
	{bug: "a train though nothing was pending", says: "with nothing pending", plant: func(w *World) { lie(w.Hosts[0]).pending = always(false) }},
	{bug: "trains without end", says: "does not come to an end", plant: func(w *World) {
		nobody := netip.MustParseAddrPort("10.9.9.9:1")
		b := control(ctlAckReq, 0, 1, 1, 1)
		be.PutUint32(b[len(b)-4:], crcOf(w.Hosts[0].Addr(), nobody, b[:len(b)-4]))
		l := lie(w.Hosts[0])
		l.pending = always(true)
		l.send = func(d *dgram.Datagram) bool {
			d.Reset()
			d.Data, d.Remote, d.TOS = append(d.Data, b...), nobody, dgram.ECT0
			return true
		}
	}},

	// Checks of PSNs.
	{bug: "PDCID 0", says: "uses PDCID 0", plant: requests(func(b []byte, r *reading) { be.PutUint16(b[8:], 0) })},
	{bug: "a PDCID that nobody opened", says: "a PDC that nobody opened", plant: requests(func(b []byte, r *reading) {
		if !r.syn {
			be.PutUint16(b[8:], r.spdcid^0x5555)
		}
	})},
	{bug: "a PDC is opened again right behind its last PSN", says: "only %d from the last", plant: func(w *World) {
		copies(w, 0, ms, isSYN, func(b []byte, r *reading) []byte { return setPSN(b, r, r.psn+1000) })
	}},
	{bug: "a PSN is left out", says: "gap in its PSNs", plant: func(w *World) {
		n := 0
		alters(w, 0, classData, func(b []byte, r *reading) {
			if n++; n > 3 && !r.syn {
				setPSN(b, r, r.psn+1)
			}
		})
	}},
	{bug: "a resend without RETX", says: "without RETX", plant: func(w *World) {
		w.Line(0, 1).SetFaults(sim.Faults{Drop: []uint64{1}})
		alters(w, 0, classData, func(b []byte, r *reading) { b[1] &^= flagRETX })
	}},
	{bug: "RETX on a new PSN", says: "RETX on a new PSN", plant: requests(func(b []byte, r *reading) { b[1] |= flagRETX })},
	{bug: "a PSN after the CLOSE", says: "a new PSN after its CLOSE", plant: func(w *World) {
		copies(w, 0, 0, func(r *reading) bool { return r.class == classCP && r.next == ctlClose }, func(b []byte, r *reading) []byte {
			return control(ctlNoop, 0, r.psn+1, r.spdcid, r.dpdcid)
		})
	}},
	{bug: "more PSNs than the peer offered", says: "exceeds the window", plant: at(10*ms, func(w *World) {
		d := forward(w)
		for range d.mpr + 1 {
			says(w, 0, control(ctlNoop, 0, d.start+uint32(len(d.sent)), d.id, d.acker))
		}
	})},
	{bug: "another control packet with the PSN of a message", says: "as another control packet", plant: at(10*ms, func(w *World) {
		d := forward(w)
		says(w, 0, control(ctlNeg, flagRETX, d.start, d.id, d.acker))
	})},
	{bug: "another part of a message with the PSN of its first", says: "as another packet", plant: func(w *World) {
		copies(w, 0, 0, func(r *reading) bool { return r.class == classData && !r.syn && r.off > 0 }, func(b []byte, r *reading) []byte {
			b[1] |= flagRETX
			return setPSN(b, r, forward(w).start)
		})
	}},
	{bug: "a message with the PSN of a control packet", says: "as another packet", plant: func(w *World) {
		copies(w, 0, 0, func(r *reading) bool { return r.class == classData && !r.syn && r.off > 0 }, func(b []byte, r *reading) []byte {
			d := forward(w)
			psn := d.start + uint32(len(d.sent))
			says(w, 0, control(ctlNoop, 0, psn, d.id, r.dpdcid))
			b[1] |= flagRETX
			return setPSN(b, r, psn)
		})
	}},
	{bug: "the target closes", says: "a PDC that it did not open", plant: at(10*ms, func(w *World) {
		d := forward(w)
		says(w, 1, control(ctlClose, 0, d.start, d.acker, d.id))
	})},
	{bug: "CLOSE before the answers", says: "CLOSE while PSNs are unanswered", plant: at(10*ms, func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 50})
		for _, d := range w.ledger.opened {
			if d.host == w.Hosts[0] && d.forward && d.below < uint32(len(d.sent)) {
				says(w, 0, control(ctlClose, 0, d.start+uint32(len(d.sent)), d.id, d.acker))
			}
		}
	})},
	{bug: "CLEAR of what has no answer", says: "clears PSN", plant: requests(func(b []byte, r *reading) { be.PutUint16(b[2:], 0) })},
	{bug: "a CLEAR packet of what was never sent", says: "clears PSN", plant: at(10*ms, func(w *World) {
		d := forward(w)
		b := control(ctlClear, 0, d.start, d.id, d.acker)
		be.PutUint32(b[12:], d.start+uint32(len(d.sent)))
		says(w, 0, b)
	})},

	// Checks of messages.
	{bug: "another kind of header", says: "without standard header", plant: requests(func(b []byte, r *reading) { be.PutUint16(b, be.Uint16(b)&^(15<<7)|2<<7) })},
	{bug: "bytes of no message", says: "bytes of no message", plant: contents(func(b []byte, r *reading) { b[44] ^= 1 })},
	{bug: "bytes of another place of the message", says: "bytes of no message", plant: contents(func(b []byte, r *reading) {
		id, _ := readPattern(r.payload)
		fillPattern(b[44:len(b)-4], id, 800)
	})},
	{bug: "bytes of a message of the peer", says: "bytes of %v to %s", plant: func(w *World) {
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTSend, Peer: 0, Len: 500})
		id := uint32(len(w.ops))
		contents(func(b []byte, r *reading) { fillPattern(b[44:len(b)-4], id, int(r.off)) })(w)
	}},
	{bug: "a message that does not begin", says: "the rest of a message that never began", plant: func(w *World) {
		headers(func(b []byte, r *reading) bool { b[1] &^= 1; return r.n == 3 })(w)
		tiny(w)
	}},
	{bug: "a message that nobody posted", says: "a message that nobody posted", plant: func(w *World) {
		headers(func(b []byte, r *reading) bool { b[43]++; return r.n == 3 })(w)
		tiny(w)
	}},
	{bug: "a message is sent again after its end", says: "a packet of %v, which has ended", plant: func(w *World) {
		copies(w, 0, 8*ms, isData, func(b []byte, r *reading) []byte { b[1] |= flagRETX; return b })
	}},
	{bug: "a message is sent again after its failure", says: "which failed for certain", spec: mayFail, plant: func(w *World) {
		w.Line(0, 1).SetFaults(sim.Faults{Drop: []uint64{0}})
		changes(w.Hosts[0], transport.OpTSend, func(e *transport.Event) { e.Cause = transport.TimedOut })
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Inject: true, Level: transport.LevelInject})
	}},
	{bug: "a payload byte is sent wrong", says: "sends wrong bytes for", plant: contents(func(b []byte, r *reading) { b[len(b)-10] ^= 1 })},
	{bug: "another opcode", says: "wrong opcode for", plant: contents(func(b []byte, r *reading) { b[0] ^= opSend ^ opTSend })},
	{bug: "the announcement of a message has another length", says: "wrong announcement of", spec: lending, plant: requests(func(b []byte, r *reading) {
		if r.lent {
			sesOf(b, r)[43] ^= 1
		}
	})},
	{bug: "an announcement does not say what its message asked for", says: "wrong announcement of", spec: lending, plant: requests(func(b []byte, r *reading) {
		if r.lent {
			sesOf(b, r)[1] ^= 0x20
		}
	})},
	{bug: "wrong bytes are lent", says: "lends wrong bytes for", spec: lending, plant: requests(func(b []byte, r *reading) {
		if r.next == nextRspData {
			b[len(b)-10] ^= 1
		}
	})},
	{bug: "bytes are lent when the message has ended", says: "lends bytes of %v, which has ended", spec: lending, plant: func(w *World) {
		done := false
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if r := read(p.Data, 4); r.lent && what == sim.Sent && !done {
				done = true
				w.Net.After(10*time.Microsecond, func() { lie(w.Hosts[0]).tell(end(w.Hosts[0].sends[0], transport.Aborted)) })
			}
		})
	}},
	{bug: "a short message is deferrable", says: "must not be deferrable", plant: contents(func(b []byte, r *reading) { b[0] += opDeferTSend - opTSend })},
	{bug: "another request length", says: "request_length", plant: contents(func(b []byte, r *reading) { b[43] ^= 1 })},
	{bug: "no SOM", says: "wrong SOM or EOM", plant: contents(func(b []byte, r *reading) { b[1] &^= 1 })},
	{bug: "EOM too early", says: "wrong SOM or EOM", plant: contents(func(b []byte, r *reading) { b[1] ^= 2 })},
	{bug: "less than a payload MTU", says: "not one payload MTU", plant: func(w *World) { cutTo(w, 1000) }},
	{bug: "a small power of two", says: "not one payload MTU", plant: func(w *World) { cutTo(w, 512) }},
	{bug: "more than a payload MTU", says: "not one payload MTU", plant: func(w *World) {
		copies(w, 0, 0, inTheMiddle, func(b []byte, r *reading) []byte {
			n := len(b) - 4 - r.n
			b = append(b[:n], make([]byte, 2*r.n+4)...)
			id, _ := readPattern(r.payload)
			fillPattern(b[n:len(b)-4], id, int(r.off))
			return setPSN(b, r, forward(w).start+uint32(len(forward(w).sent)))
		})
	}},
	{bug: "another tag", says: "tag %#x for", plant: contents(func(b []byte, r *reading) { b[24] ^= 1 })},
	{bug: "another initiator", says: "initiator %d for %v: %s", plant: contents(func(b []byte, r *reading) { b[20] ^= 1 })},
	{bug: "header data that nobody gave", says: "wrong header data", plant: contents(func(b []byte, r *reading) { b[1] |= 4 })},
	{bug: "other header data", says: "wrong header data", plant: func(w *World) {
		contents(func(b []byte, r *reading) { b[32] ^= 1 })(w)
	}, play: func(w *World) { w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, HasData: true}) }},
	{bug: "DC that nobody wants", says: "wrong DC", plant: contents(func(b []byte, r *reading) { b[1] ^= 0x20 })},
	{bug: "RUD for an ordered message", says: "wrong mode", plant: requests(func(b []byte, r *reading) {
		if r.rod {
			b[0] ^= 1 << 3
		}
	})},
	{bug: "a message goes again after a life had it", says: "again on another PDC", spec: func(s *Spec) { s.Hosts[0].Lazy = 1 }, plant: at(5*ms, func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
		o.by = &dir{peer: w.Hosts[1], holder: 1, sent: []sentPSN{{op: o, n: 64}}}
		o.by.at(1).got.set(0)
		o.delivery(1)
	})},
	{bug: "a fence is passed", says: "by the fence of", spec: func(s *Spec) { s.Hosts[0].Lazy = 1 }, plant: at(5*ms, func(w *World) {
		a := w.Hosts[0]
		a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
		a.fences = append(a.fences, a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64}))
	})},

	{bug: "an access passes a fence", says: "a fence is between them", spec: boarded, play: func(w *World) {
		a := w.Hosts[0]
		long := OpSpec{Kind: transport.OpWrite, Peer: 1, Len: 500_000, Level: transport.LevelDelivery}
		first, second := a.Post(OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 600_000, Len: 64}), a.Post(long)
		first.Fence, a.accessFences = true, true
		first.postSeq, second.postSeq = second.postSeq, first.postSeq
		w.Settle(5 * time.Second)
	}},

	// Checks of ACKs.
	{bug: "an ACK of what was never sent", says: "acknowledges what was never sent", plant: acks(func(b []byte, r *reading) { be.PutUint32(b[4:], r.cack+1<<16) })},
	{bug: "CACK covers what never arrived", says: "covers a PSN", plant: func(w *World) {
		w.Line(0, 1).SetFaults(sim.Faults{Drop: []uint64{1}})
		acks(func(b []byte, r *reading) { be.PutUint32(b[4:], r.cack+1) })(w)
	}},
	{bug: "an ACK goes back", says: "goes back", plant: func(w *World) {
		seen := map[uint16]int{}
		acks(func(b []byte, r *reading) {
			if seen[r.dpdcid]++; seen[r.dpdcid] == 3 {
				be.PutUint32(b[4:], r.cack-6)
			}
		})(w)
	}},
	{bug: "an ACK of a PSN that never arrived", says: "acknowledges PSN %d, which never arrived", plant: acks(func(b []byte, r *reading) { be.PutUint16(b[2:], 100) })},
	{bug: "SACK names what never arrived", says: "SACK names", plant: acks(func(b []byte, r *reading) {
		if r.hasSACK {
			b[16] = 0x80
		}
	})},
	{bug: "a packet is refused as trimmed that is whole", says: "which nobody trimmed", plant: func(w *World) {
		copies(w, 1, 0, func(r *reading) bool { return r.class == classAck && !r.probe }, func(b []byte, r *reading) []byte {
			n := wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: wire.PSN(r.ackPSN), SPDCID: r.spdcid, DPDCID: r.dpdcid}
			return append(n.Append(nil), 0, 0, 0, 0)
		})
	}},

	// Checks of messages that ask for no ACK.
	{bug: "a message that waits for delivery asks for no ACK", says: "asks for no ACK", with: "though delivery is waited for", spec: near,
		plant: func(w *World) {
			silent(isData)(w)
			at(1, func(w *World) { w.talks[0].step.Op.Level = transport.LevelDelivery })(w)
		}, play: talk600},
	{bug: "a message that answers nothing asks for no ACK", says: "asks for no ACK", with: "though it answers nothing", plant: func(w *World) {
		silent(func(r *reading) bool { return r.som && r.eom && !r.rod })(w)
		at(5*ms, func(w *World) {
			for range 2 {
				w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
			}
		})(w)
	}},
	{bug: "a message asks for no ACK though one is missing", says: "asks for no ACK", with: "though something is missing", spec: near,
		plant: at(ms, func(w *World) {
			w.Hosts[0].talks[1].lag.newAt = w.Now() + time.Hour // as if something sent later had its answer
		}), play: talk600},
	{bug: "too many messages ask for no ACK", says: "asks for no ACK", with: "though too many did", spec: near,
		plant: silent(after(250)), play: talk600},
	{bug: "nobody asks for the ACK", says: "leaves PSN", spec: near, plant: silent(after(2)), play: func(w *World) { talkFor(w, 6) }},

	// Checks of sealed packets.
	{bug: "a packet is in clear", says: "not sealed", spec: secure, plant: leaving(func(d *dgram.Datagram) { d.Data[0] = 0 })},
	{bug: "an IV is used twice", says: "with the IV of datagram", spec: secure, plant: func(w *World) {
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if b := append([]byte(nil), p.Data...); what == sim.Sent {
				w.Net.After(0, func() { w.Hosts[0].Node.Send(&dgram.Datagram{Data: b, Remote: w.Hosts[1].Addr(), TOS: dgram.ECT0}) })
			}
		})
	}},
	{bug: "a sealed packet is damaged before it leaves", says: "does not open", spec: secure, plant: leaving(func(d *dgram.Datagram) { d.Data[len(d.Data)-1] ^= 1 })},
	{bug: "an answer goes to another port than it was sealed for", says: "sealed for the main one", spec: secure, plant: func(w *World) {
		lie(w.Hosts[1]).leaves = func(d *dgram.Datagram) { d.Remote = netip.AddrPortFrom(d.Remote.Addr(), d.Remote.Port()+1) }
	}},

	// Checks of calls of the FEP.
	{bug: "a peer is refused", says: "Peer(%v): %v", plant: func(w *World) { lie(w.Hosts[0]).peer = func() error { return errors.New("planted") } }},
	{bug: "Advance leaves its timer", says: "twice leaves NextTimeout", plant: func(w *World) { lie(w.Hosts[0]).timeout = always(time.Duration(1)) }},
	{bug: "a post is refused for no reason", says: "Post(%v): %v", plant: func(w *World) { posts(w.Hosts[0], errors.New("planted")) }},
	{bug: "a post is refused as after Close", says: "Post(%v): %v", plant: func(w *World) { posts(w.Hosts[0], transport.ErrClosed) }},
	{bug: "a closed endpoint has no room", says: "Post(%v): %v", play: afterClose(transport.ErrFull)},
	{bug: "a closed endpoint takes a post", says: "Post after Close was accepted", play: afterClose(nil)},
	{bug: "Cancel finds what has ended", says: "Cancel found %v, which has ended", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
		w.Hosts[0].Cancel(o)
		lie(w.Hosts[0]).cancel = func(*Op) bool { return true }
		w.Hosts[0].Cancel(o)
	}},
	{bug: "Cancel finds what has left", says: "of which packets have left", play: func(w *World) {
		lie(w.Hosts[0]).cancel = func(*Op) bool { return true }
		w.Hosts[0].Cancel(w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500}))
	}},
	{bug: "Cancel makes no event", says: "no event follows the cancel", play: func(w *World) {
		lie(w.Hosts[0]).cancel = func(*Op) bool { return true }
		w.Hosts[0].Cancel(w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any}))
	}},
	{bug: "Close forgets an operation", says: "Close left", plant: func(w *World) {
		drops(w.Hosts[0], func(e *transport.Event) bool { return e.Cause == transport.Cancelled })
		at(10*ms, func(w *World) {
			w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
			w.Hosts[0].Close()
		})(w)
	}},
	{bug: "Leave forgets a receive", says: "Leave left", plant: func(w *World) {
		drops(w.Hosts[0], func(e *transport.Event) bool { return e.Cause == transport.Cancelled })
		at(10*ms, func(w *World) {
			w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
			w.Hosts[0].Leave()
		})(w)
	}},

	// Checks of events.
	{bug: "an event of nobody", says: "a foreign context", plant: tsends(func(e *transport.Event) { e.Context = "planted" })},
	{bug: "an event of another host", says: "of another endpoint", plant: tsends(func(e *transport.Event) { e.Context = e.Context.(*Op).Host.w.ops[0] })},
	{bug: "an event of another life", says: "of another endpoint", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		w.Hosts[0].Crash(false)
		w.Hosts[0].Restart()
		lie(w.Hosts[0]).tell(success(o))
	}},
	{bug: "an event of another endpoint", says: "event of endpoint", plant: tsends(func(e *transport.Event) { e.Endpoint++ })},
	{bug: "an event of another kind", says: "event of kind", plant: tsends(func(e *transport.Event) { e.Kind = transport.OpSend })},
	{bug: "an event with other flags", says: "event of kind", plant: tsends(func(e *transport.Event) { e.Flags++ })},
	{bug: "an event with another place", says: "another buffer", plant: trecvs(func(e *transport.Event) { e.Buf = e.Context.(*Op).Host.w.ops[1].buf })},
	{bug: "an event with a shorter buffer", says: "another buffer", plant: trecvs(func(e *transport.Event) { e.Buf = e.Buf[:len(e.Buf)-1] })},
	{bug: "an event follows the close", says: "event after Close", plant: at(10*ms, func(w *World) {
		w.Hosts[0].Close()
		lie(w.Hosts[0]).tell(success(w.Hosts[0].sends[0]))
	})},
	{bug: "the close of an endpoint leaves a receive", says: "CloseEndpoint left", plant: at(10*ms, func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
		lie(w.Hosts[0]).told = func(transport.Event) []transport.Event { return nil }
		w.Hosts[0].CloseEndpoint(0)
	})},
	{bug: "the release of an endpoint leaves a send", says: "ReleaseEndpoint left", plant: at(10*ms, func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 50_000})
		lie(w.Hosts[0]).told = func(transport.Event) []transport.Event { return nil }
		w.Hosts[0].ReleaseEndpoint(0)
	})},
	{bug: "giving up a peer leaves a receive", says: "Abandon left", plant: at(10*ms, func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: 1})
		lie(w.Hosts[0]).told = func(transport.Event) []transport.Event { return nil }
		w.Hosts[0].Abandon(1)
	})},
	{bug: "a completion comes twice", says: "second event", plant: func(w *World) {
		lie(w.Hosts[0]).told = func(e transport.Event) []transport.Event { return []transport.Event{e, e} }
	}},

	// Checks of the ends of sends.
	{bug: "a silent send speaks", says: "success event for a silent", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Silent: true})
		lie(w.Hosts[0]).tell(success(o))
	}},
	{bug: "success with nobody there", says: "whose target is not there", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, WrongRI: true})
		lie(w.Hosts[0]).tell(success(o))
	}},
	{bug: "success though a packet was given up", says: "of which a packet was given up", plant: func(w *World) {
		copies(w, 0, 0, func(r *reading) bool { return r.class == classData && !r.syn }, func(b []byte, r *reading) []byte {
			return control(ctlNoop, flagRETX, r.psn, r.spdcid, r.dpdcid)
		})
	}},
	{bug: "a cancelled send ends well", says: "success of a cancelled", plant: cancelled(func(e *transport.Event) { e.Cause = transport.OK })},
	{bug: "success of unknown outcome", says: "success with unknown outcome", plant: tsends(func(e *transport.Event) { e.Unknown = true })},
	{bug: "success too early", says: "before all of it was given to the target", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000})
		lie(w.Hosts[0]).tell(success(o))
	}},
	{bug: "success before the answer", says: "bytes answered", plant: func(w *World) {
		l := lie(w.Hosts[0])
		w.Hosts[1].onEvent = func(o *Op) {
			if o.match != nil && o.match.Open() && !o.match.Silent {
				l.tell(success(o.match))
			}
		}
	}},
	{bug: "a sender is truncated", says: "truncation at the sender", plant: tsends(func(e *transport.Event) { e.Cause = transport.Truncated })},
	{bug: "a send ends that nobody cancelled", says: "ends cancelled without a cancel", plant: tsends(func(e *transport.Event) { e.Cause = transport.Cancelled })},
	{bug: "a cancelled send leaves", says: "cancelled after packets left", spec: func(s *Spec) { s.Hosts[0].Lazy = 1 }, play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		l := lie(w.Hosts[0])
		l.cancel = func(*Op) bool { l.queued = append(l.queued, end(o, transport.Cancelled)); return true }
		w.Hosts[0].Cancel(o)
	}},
	{bug: "a cancelled send may have left", says: "cancelled after packets left", plant: cancelled(func(e *transport.Event) { e.Unknown = true })},
	{bug: "a success is told as failure", says: "%v fails: %v%s", plant: tsends(func(e *transport.Event) { e.Cause, e.Unknown = transport.TimedOut, true })},
	{bug: "a failure denies what was received", says: "but %s received it", spec: mayFail, plant: tsends(func(e *transport.Event) { e.Cause = transport.TimedOut })},
	{bug: "a failure is told before what it denies", says: "but %s received it", spec: mayFail, plant: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		lie(w.Hosts[0]).tell(end(o, transport.TimedOut))
	}},
	{bug: "a failure denies what was given", says: "but all of it was given to the target", spec: mayFail, plant: tsends(func(e *transport.Event) { e.Cause = transport.TimedOut }),
		play: func(w *World) {
			w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
			w.Run(ms)
		}},
	{bug: "a failure denies what is given later", says: "but all of it was given to the target", spec: mayFail, play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		mute(w)
		lie(w.Hosts[0]).tell(end(o, transport.TimedOut)) // while it is under way
		w.Run(ms)
		w.Audit()
	}},

	// Checks of the ends of receives.
	{bug: "a receive ends that nobody cancelled", says: "ends cancelled without a cancel", plant: trecvs(func(e *transport.Event) { e.Cause = transport.Cancelled })},
	{bug: "a cancelled receive was written to", says: "a receive that nothing matched was written", play: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any, Len: 100})
		o.buf[50] = 0
		w.Hosts[0].Cancel(o)
	}},
	{bug: "an error with a length", says: "ends in error with length", plant: trecvs(func(e *transport.Event) { e.Cause = transport.Aborted })},
	{bug: "a receive of unknown outcome", says: "a receive with unknown outcome", plant: trecvs(func(e *transport.Event) { e.Unknown = true })},
	{bug: "a byte before the buffer is written", says: "bytes around the buffer", plant: trecvs(func(e *transport.Event) { e.Context.(*Op).whole[guardLen-1] = 0 })},
	{bug: "a byte behind the buffer is written after the end", says: "bytes around the buffer", plant: later(func(o *Op) { o.whole[len(o.whole)-1] = 0 })},
	{bug: "a byte behind the buffer of a silent send is written", says: "bytes around the buffer", plant: at(10*ms, func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Silent: true})
		o.whole[len(o.whole)-1] = 0
	})},
	{bug: "a byte is written after the end", says: "was written after its end", plant: later(func(o *Op) { o.buf[0] = 1 })},
	{bug: "the tag of no message", says: "a message that nobody sent here", plant: trecvs(func(e *transport.Event) { e.Tag |= 1 << 40 })},
	{bug: "the tag of a receive", says: "a message that nobody sent here", plant: trecvs(func(e *transport.Event) { e.Tag = tagOf(1, 0) })},
	{bug: "the tag of a message to another host", says: "a message that nobody sent here", plant: func(w *World) {
		o := w.Hosts[1].Post(OpSpec{Kind: transport.OpTSend, Peer: 0, Len: 500})
		trecvs(func(e *transport.Event) { e.Tag = o.tag })(w)
	}},
	{bug: "few bytes of no message", says: "a message that nobody sent here", plant: func(w *World) {
		tiny(w)
		changes(w.Hosts[1], transport.OpRecv, func(e *transport.Event) {
			if e.Len == 3 {
				e.Context.(*Op).buf[0] ^= 1
			}
		})
	}},
	{bug: "a receive takes what it does not want", says: "which it does not accept", plant: func(w *World) {
		o := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		changes(w.Hosts[1], transport.OpRecv, func(e *transport.Event) { e.HasData, e.Data = true, uint64(o.ID) })
	}},
	{bug: "a message is received twice", says: "is received twice", plant: func(w *World) {
		var first *transport.Event
		trecvs(func(e *transport.Event) {
			if first == nil {
				f := *e
				first = &f
			}
			e.Tag = first.Tag
		})(w)
	}},
	{bug: "a receive ends before its message is there", says: "bytes of %v have arrived", plant: func(w *World) {
		trecvs(func(e *transport.Event) {
			e.Tag = w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000}).tag
		})(w)
	}},
	{bug: "a wrong length is told", says: "bytes and %d over from", plant: trecvs(func(e *transport.Event) { e.Len-- })},
	{bug: "bytes over that were not", says: "bytes and %d over from", plant: trecvs(func(e *transport.Event) { e.OverLen++ })},
	{bug: "a truncation that was none", says: "ends as %v with", plant: trecvs(func(e *transport.Event) { e.Cause = transport.Truncated })},
	{bug: "another source is told", says: "as source", plant: trecvs(func(e *transport.Event) { e.Peer = e.Context.(*Op).Host.Peer(1) })},
	{bug: "another initiator is told", says: "names initiator", plant: trecvs(func(e *transport.Event) { e.Initiator++ })},
	{bug: "another tag is told", says: "reports tag", plant: trecvs(func(e *transport.Event) { e.Tag ^= 1 << 50 })},
	{bug: "data is told that nobody gave", says: "reports data", plant: trecvs(func(e *transport.Event) { e.HasData = true })},
	{bug: "other data is told", says: "reports data", plant: trecvs(func(e *transport.Event) { e.Data ^= 1 << 40 }), play: func(w *World) {
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 600})
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, HasData: true})
		w.Run(ms)
	}},
	{bug: "a wrong byte is delivered", says: "with wrong bytes", plant: trecvs(func(e *transport.Event) { e.Context.(*Op).buf[e.Len/2] ^= 1 })},
	{bug: "a byte behind the message is written", says: "behind it was written", plant: trecvs(func(e *transport.Event) { e.Context.(*Op).buf[e.Len] = 0 })},

	// Checks at the end of a run.
	{bug: "an operation stands otherwise", says: "%v is %s, want %s", play: func(w *World) {
		w.Want("ok", w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any}))
	}},
	{bug: "a send does not end in time", says: "%v does not end within", plant: mute, play: func(w *World) {
		w.RunOps(ms, w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500}))
	}},
	{bug: "a send's completion is dropped", says: "nothing went on for", plant: mute},
	{bug: "a receive's completion is dropped", says: "nothing went on for", plant: func(w *World) {
		drops(w.Hosts[1], func(e *transport.Event) bool { return e.Kind == transport.OpTRecv && e.Cause == transport.OK })
	}},
	{bug: "a send is open for too long", says: "%v is still open %v after the faults have ended", plant: mute, play: func(w *World) { usual(w, 100*ms) }},
	{bug: "a send to a dead peer is open for too long", says: "time for a dead peer included", plant: mute, play: func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		w.Hosts[1].Crash(false)
		w.Settle(100 * ms)
	}},
	{bug: "sends without end", says: "the end of all sends", plant: func(w *World) { lie(w.Hosts[0]).busy = always(true) }},
	{bug: "a late copy does not come", says: "the arrival of the last late copy", spec: copiesLate(30 * time.Second)},
	{bug: "unexpected messages stay", says: "the receipt of what is unexpected", plant: func(w *World) { lie(w.Hosts[0]).strange = always(1) }},
	{bug: "a receive cannot be cancelled", says: "can neither be cancelled nor ends", plant: func(w *World) { lie(w.Hosts[1]).cancel = func(*Op) bool { return false } }},
	{bug: "no rest", says: "rest", plant: func(w *World) { lie(w.Hosts[0]).idle = always(false) }},
	{bug: "a PDC stays", says: "the end of all PDCs", plant: func(w *World) { lie(w.Hosts[0]).pdcs = always(1) }},
	{bug: "a timer stays", says: "the end of all timers", plant: func(w *World) {
		lie(w.Hosts[0]).timeout = func(t time.Duration) time.Duration { return max(t, w.Now()+time.Hour) }
	}},
	{bug: "a datagram stays", says: "the arrival of the last datagram", spec: copiesLate(1000 * time.Second), play: func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Silent: true})
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 500})
		w.Rest(0)
	}},
	{bug: "traffic at rest", says: "datagrams were sent at rest", plant: func(w *World) {
		var last []byte // an ACK of A, which may come again
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
			if r := read(p.Data, 4); what == sim.Sent && p.From == w.Hosts[0].Node && r.class == classAck {
				last = append(last[:0], p.Data...)
			}
		})
		for s := 36; s < 60; s++ {
			at(time.Duration(s)*time.Second, func(w *World) { says(w, 0, append([]byte(nil), last...)) })(w)
		}
	}},
	{bug: "a datagram comes out of nothing at rest", says: "datagrams under way at rest", plant: func(w *World) {
		l, done := lie(w.Hosts[1]), false
		l.timeout = func(t time.Duration) time.Duration {
			if w.settling && !done && t == 0 && l.PDCs() == 0 {
				done = true
				w.Net.After(5*time.Second, func() {
					w.Hosts[1].Node.Pause()
					w.Net.Deliver(&sim.Packet{Src: w.Hosts[0].Addr(), Dst: w.Hosts[1].Addr(), From: w.Hosts[0].Node, Data: []byte{1}})
				})
			}
			return t
		}
	}},
	{bug: "a buffer is lost", says: "buffers out of the pool at rest", plant: func(w *World) { w.Hosts[0].pool.Get() }},
	{bug: "a message is queued at rest", says: "not idle at rest", plant: func(w *World) { lie(w.Hosts[0]).holds = always(1) }},
	{bug: "a message is left at rest", says: "not idle at rest", plant: func(w *World) {
		l := lie(w.Hosts[0])
		l.idle = func(was bool) bool { return was && l.Endpoint.PDCs() > 0 }
	}},
	{bug: "a send is left at rest", says: "not idle at rest", plant: func(w *World) {
		l := lie(w.Hosts[0])
		l.busy = func(was bool) bool { return was || w.settling && l.Endpoint.PDCs() == 0 }
	}},
	{bug: "bytes stay in flight", says: "bytes in flight at rest", spec: func(s *Spec) {
		s.Hosts[0].Config.NewCCC = func(int) transport.CCC { return &leaky{} }
	}},
	{bug: "a receive never ends", says: "never ended", play: func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
		w.Audit()
	}},
	{bug: "a message is never received", says: "was never received", play: func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		w.Run(ms)
		w.Audit()
	}},
	{bug: "success at delivery before the receive's", says: "completes at delivery before", plant: func(w *World) {
		lie(w.Hosts[1]).told = func(e transport.Event) []transport.Event {
			w.Net.After(5*ms, func() { lie(w.Hosts[1]).tell(e) })
			return nil
		}
	}, play: func(w *World) {
		w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 500})
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Level: transport.LevelDelivery})
		w.Run(10 * ms)
		w.Audit()
	}},
	{bug: "success at match without a receive", says: "completes at match", plant: func(w *World) {
		lie(w.Hosts[0]).post = func(op *transport.Op) (bool, error) {
			op.Level = transport.LevelDelivery
			return false, nil
		}
	}, play: func(w *World) {
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500, Level: transport.LevelMatch})
		w.Run(10 * ms)
		w.Drain(1)
		w.Run(10 * ms)
		w.Audit()
	}},
	{bug: "a message passes a receive that matches", says: "was posted before and matches", play: func(w *World) {
		b := w.Hosts[1]
		first := b.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 500})
		second := b.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 500})
		l := lie(b)
		l.told = func(e transport.Event) []transport.Event {
			exchange(first.buf, second.buf)
			e.Context, e.Flags, e.Buf = second, uint64(second.ID)<<8, second.buf
			return []transport.Event{e}
		}
		w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		w.Run(ms)
		l.cancel = func(*Op) bool { l.queued = append(l.queued, end(first, transport.Cancelled)); return true }
		b.Cancel(first)
		w.Audit()
	}},
	{bug: "ordered messages swap", says: "out of order", plant: func(w *World) {
		// Two receives in post order get each other's message: the events and the buffers are
		// exchanged.
		var held *transport.Event
		lie(w.Hosts[1]).told = func(e transport.Event) []transport.Event {
			o := e.Context.(*Op)
			if e.Kind != transport.OpRecv || e.Cause != transport.OK || o.drainer {
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

	// Checks of counters.
	{bug: "a drop is counted that was none", says: "came damaged or trimmed", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropCRC]++ })},
	{bug: "a drop for its seal is counted that was none", says: "came damaged or trimmed", spec: secure,
		plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropAuth]++ })},
	{bug: "a damaged datagram is counted as trimmed", says: "datagrams came trimmed", plant: func(w *World) {
		w.Line(0, 1).SetFaults(sim.Faults{Delay: 50 * time.Microsecond, Corrupt: 1})
		at(2*ms, (*World).Heal)(w)
		counts(1, func(s *transport.Stats) { s.Drops[transport.DropCRC]--; s.RxTrimmed++ })(w)
	}},
	{bug: "a damaged datagram is counted as trimmed where some are", says: "datagrams came trimmed", spec: trimming, plant: func(w *World) {
		w.Line(0, 1).SetFaults(sim.Faults{Delay: 50 * time.Microsecond, Corrupt: 1})
		at(2*ms, (*World).Heal)(w)
		counts(1, func(s *transport.Stats) { s.Drops[transport.DropCRC]--; s.RxTrimmed++ })(w)
	}},
	{bug: "a trimmed datagram is counted as damaged", says: "datagrams came trimmed", spec: trimming, plant: func(w *World) {
		trim(w)
		counts(1, func(s *transport.Stats) { s.Drops[transport.DropCRC]++; s.RxTrimmed-- })(w)
	}},
	{bug: "a trimmed datagram is neither answered nor dropped", says: "were answered and %d dropped", spec: trimming, plant: func(w *World) {
		trim(w)
		counts(1, func(s *transport.Stats) { s.NacksTx[wire.NackTrimmed]-- })(w)
	}},
	{bug: "a drop for its type", says: "among honest peers", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropType]++ })},
	{bug: "a drop for its next header", says: "among honest peers", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropNextHdr]++ })},
	{bug: "a drop for its header", says: "among honest peers", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropHeader]++ })},
	{bug: "a drop for what it acknowledges", says: "among honest peers", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropUnsent]++ })},
	{bug: "a drop for who sent it", says: "among honest peers", plant: counts(0, func(s *transport.Stats) { s.Drops[transport.DropSelf]++ })},
	{bug: "a read is told to be short", says: "%v ends with %d bytes%s", spec: readable, play: reads(func(_ *World, e *transport.Event) { e.Len-- })},
	{bug: "a read brings other bytes", says: "%v brings wrong bytes: %v", spec: readable, play: reads(func(w *World, _ *transport.Event) { w.Hosts[0].reads[0].buf[99] ^= 1 })},
	{bug: "a read is told to fail", says: "%v brings nothing: %v%s", spec: readable, play: reads(func(_ *World, e *transport.Event) { e.Cause = transport.Aborted })},
	{bug: "a write is told to fail", says: "%v writes nothing: %v%s", spec: boarded, play: writes(0, func(_ *World, e *transport.Event) []transport.Event {
		e.Cause = transport.Aborted
		return []transport.Event{*e}
	})},
	{bug: "an atomic operation goes by RUDI", says: "what may not happen twice", spec: boarded, play: rudis(0, 4, func(b []byte) { b[8] = b[8]&^0x3f | opAtomic })},
	{bug: "a new request of RUDI says that it was sent before", says: "and says otherwise", spec: boarded, play: rudis(0, 4, func(b []byte) { b[1] |= flagRETX })},
	{bug: "an answer of RUDI to another request", says: "answers what nobody asked", spec: boarded, play: rudis(1, 5, func(b []byte) { b[7] ^= 0x80 })},
	{bug: "a small header has what only the standard one can say", says: "what it cannot say", spec: boarded, play: smalls(func(w *World) {
		alters(w, 0, classData, func(b []byte, r *reading) {
			if r.next == nextSmall {
				b[12] = b[12]&^0x3f | opAtomic
			}
		})
	})},
	{bug: "a request goes again with another header", says: "again with another header", spec: boarded, play: smalls(func(w *World) {
		copies(w, 0, ms, func(r *reading) bool { return r.class == classData && r.next == nextSmall }, func(b []byte, _ *reading) []byte {
			b[0] |= 1 // next_hdr 3
			b[1] |= flagRETX
			return b
		})
	})},
	{bug: "a cancelled write is told to succeed", says: "is there though it was cancelled", spec: boarded, play: writes(0, func(w *World, e *transport.Event) []transport.Event {
		w.Hosts[0].reads[0].cancel = true
		return []transport.Event{*e}
	})},
	{bug: "a write succeeds before its bytes are there", says: "succeeds, and is not there", spec: boarded, play: writes(0, func(w *World, e *transport.Event) []transport.Event {
		w.Hosts[1].board[300] = blank
		return []transport.Event{*e}
	})},
	{bug: "word of a write before its bytes are there", says: "word of %v, which is not there", spec: boarded, play: writes(1, func(w *World, e *transport.Event) []transport.Event {
		w.Hosts[1].board[300] = blank
		return []transport.Event{*e}
	})},
	{bug: "word of a write that nobody posted", says: "which nobody posted", spec: boarded, play: writes(1, func(_ *World, e *transport.Event) []transport.Event {
		e.Data++
		return []transport.Event{*e}
	})},
	{bug: "word of a part of a write", says: "which nobody posted", spec: boarded, play: writes(1, func(_ *World, e *transport.Event) []transport.Event {
		e.Len--
		return []transport.Event{*e}
	})},
	{bug: "word of a write comes twice", says: "second word of", spec: boarded, play: writes(1, func(_ *World, e *transport.Event) []transport.Event {
		return []transport.Event{*e, *e}
	})},
	{bug: "no word of a write", says: "no word of", spec: boarded, play: writes(1, func(*World, *transport.Event) []transport.Event { return nil })},
	{bug: "a write reaches a region that was removed", says: "of a region changed after it was removed", spec: boarded, play: func(w *World) {
		w.Hosts[1].Unregister()
		w.Hosts[1].board[7]++
		w.Settle(5 * time.Second)
	}},
	{bug: "an access to a region that is there fails for want of it", says: "%v writes nothing: %v%s", spec: boarded, play: writes(0, func(_ *World, e *transport.Event) []transport.Event {
		e.Cause, e.RC = transport.Rejected, wire.RCBadMKey
		return []transport.Event{*e}
	})},
	{bug: "a byte of a write changes later", says: "and should be", spec: boarded, play: writes(1, func(w *World, e *transport.Event) []transport.Event {
		w.Net.After(ms, func() { w.Hosts[1].board[300] ^= 1 })
		return []transport.Event{*e}
	})},
	{bug: "a byte beside a write is written", says: "was written by nobody", spec: boarded, play: writes(1, func(w *World, e *transport.Event) []transport.Event {
		w.Hosts[1].board[99] = 1
		return []transport.Event{*e}
	})},
	{bug: "a write succeeds before it is durable", says: "succeeds, and is not durable", spec: boarded, play: commits(func(w *World, e *transport.Event) {
		if e.Kind == transport.OpWrite {
			w.Hosts[1].disk[300] ^= 1
		}
	})},
	{bug: "word of a write before it is durable", says: "word of %v, which is not durable", spec: boarded, play: commits(func(w *World, e *transport.Event) {
		if e.Kind == transport.OpCommitted {
			w.Hosts[1].disk[300] ^= 1
		}
	})},
	{bug: "word that a write is there, where word that it is durable is due", says: "word of %v, which is durable: %v", spec: boarded, play: commits(func(_ *World, e *transport.Event) {
		if e.Kind == transport.OpCommitted {
			e.Kind = transport.OpRemoteWrite
		}
	})},
	{bug: "an ordered read brings what a later write has written", says: "which was posted behind it", spec: slated, play: slate(func(_ *World, e *transport.Event, later *Op) {
		if e.Kind == transport.OpRead {
			fillPattern(e.Buf, later.ID, 0)
		}
	})},
	{bug: "an ordered read brings what nobody has written", says: "is of no operation", spec: slated, play: slate(func(_ *World, e *transport.Event, _ *Op) {
		if e.Kind == transport.OpRead {
			e.Buf[300]++
		}
	})},
	{bug: "an ordered write is lost", says: "is older than", spec: slated, play: slate(func(w *World, _ *transport.Event, _ *Op) { clear(w.Hosts[1].slate[:16]) })},
	{bug: "an addition is told to fail", says: "%v adds nothing: %v%s", spec: counting, play: adds(func(w *World, e *transport.Event) { e.Cause = transport.Aborted })},
	{bug: "a cancelled addition is told to succeed", says: "succeeds though it was cancelled", spec: counting, play: adds(func(w *World, _ *transport.Event) { w.Hosts[0].reads[0].cancel = true })},
	{bug: "an old value is fetched twice", says: "fetched the same value", spec: counting, play: adds(func(_ *World, e *transport.Event) { clear(e.Context.(*Op).buf) })},
	{bug: "something else adds", says: "operations have succeeded and the effect of", spec: counting, play: adds(func(w *World, _ *transport.Event) { w.Hosts[1].counters[1] = 1 })},
	{bug: "an addition is lost", says: "operations have succeeded and the effect of", spec: counting, play: adds(func(w *World, _ *transport.Event) {
		if c := w.Hosts[1].counters[8:]; native.Uint64(c) == 2 {
			clear(c)
		}
	})},
	{bug: "an addition to a receive is lost", says: "operations have succeeded and the effect of", spec: tallying, play: adds(func(w *World, _ *transport.Event) {
		if c := w.Hosts[1].tallies[8:]; native.Uint64(c) == 2 {
			clear(c)
		}
	})},
	{bug: "a receive ends with another length", says: "a receive of tallies ended so", spec: tallying, plant: at(0, func(w *World) {
		lie(w.Hosts[1]).told = func(e transport.Event) []transport.Event { e.Len++; return []transport.Event{e} }
	}), play: adds(func(*World, *transport.Event) {})},
	{bug: "a cancelled read is told to succeed", says: "brings its bytes though it was cancelled", spec: readable, play: reads(func(w *World, _ *transport.Event) { w.Hosts[0].reads[0].cancel = true })},
	{bug: "a receive fails though its sender lives", says: "receives ended in error", plant: at(10*ms, func(w *World) {
		l := lie(w.Hosts[1])
		l.post = func(*transport.Op) (bool, error) { return true, nil }
		o := w.Hosts[1].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
		l.post = nil
		l.tell(end(o, transport.Aborted))
	})},
	{bug: "the liar changes what it may not", says: "of what nobody may change was changed", spec: lied, play: func(w *World) {
		w.Hosts[0].prey[3*preySize] ^= 1
		w.auditLies()
	}},
	{bug: "an operation with the liar does not end", says: "the liar keeps an operation open", spec: lied, play: func(w *World) {
		deal(w)
		w.auditLies()
	}},
	{bug: "the memory of an operation with the liar is written after its end", says: "what an operation with the liar may not touch", spec: lied, play: func(w *World) {
		l := deal(w)
		l.host.dealt(l, &transport.Event{})
		l.buf[3] ^= 1
		w.auditLies()
	}},
	{bug: "an operation with the liar ends twice", says: "for an operation with the liar", spec: lied, play: func(w *World) {
		l := deal(w)
		l.host.dealt(l, &transport.Event{})
		l.host.dealt(l, &transport.Event{})
	}},
	{bug: "the liar gets what is lent to another", says: "gives the liar bytes of", spec: tells, play: among(func(w *World, s, r *Op) {
		w.overheard(&record{reading: reading{class: classAck, payload: r.buf}, from: s.Host}, &sim.Packet{Dst: w.Hosts[2].Addr()})
	})},
	{bug: "beside a liar a message is of another length", says: "what it did not send", spec: tells, play: among(func(w *World, _, r *Op) {
		r.Event.Len--
		w.amongLiars(r)
	})},
	{bug: "beside a liar a byte is wrong", says: "has other bytes than", spec: tells, play: among(func(w *World, _, r *Op) {
		r.buf[5] ^= 1
		w.amongLiars(r)
	})},
	{bug: "beside a liar a message is received twice", says: "comes twice", spec: tells, play: among(func(w *World, _, r *Op) { w.amongLiars(r) })},
	{bug: "beside a liar a message is lost", says: "succeeds and never comes", spec: tells, play: among(func(w *World, s, _ *Op) {
		s.cameIn = nil
		w.auditLies()
	})},
}

// tells adds a liar that lies about messages, too.
func tells(s *Spec) {
	lied(s)
	s.Tells = true
}

// among has a message go from the first host to the second, though there is a liar, and spoils what is known of it.
func among(spoil func(w *World, s, r *Op)) func(*World) {
	return func(w *World) {
		r := w.Hosts[1].Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 64})
		s := w.Hosts[0].Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64})
		w.Run(20 * ms)
		if !r.OK() || !s.OK() {
			panic("the message did not come")
		}
		fillPattern(r.buf, s.ID, 0) // the checkers have overwritten it
		spoil(w, s, r)
	}
}

// lied adds a liar.
func lied(s *Spec) {
	s.Hosts = append(s.Hosts, HostSpec{})
	s.Liar, s.Hostile, s.Forged = true, true, true
}

// deal makes an operation of the first host with the liar.
func deal(w *World) *dealing {
	l := &dealing{host: w.Hosts[0], life: 1}
	l.whole, l.buf = newBuffer(8)
	w.dealings = append(w.dealings, l)
	return l
}

// TestEveryCheckerSpeaks plants bugs between the FEP and its host. The responsible checker, and
// no other, must fail with its own text. A checker that was never seen to fail is worth
// nothing, so there must be a bug for each.
func TestEveryCheckerSpeaks(t *testing.T) {
	rules := rulesInSource(t)
	if len(rules) < 100 {
		t.Fatalf("only %d checkers were found in the source", len(rules))
	}
	planned := map[string]bool{}
	for _, p := range slices.Concat(plantedBugs, gramBugs) {
		rule := p.rule(t, rules)
		planned[rule] = true
		t.Run(p.bug, func(t *testing.T) {
			switch v := p.run(); {
			case v == nil:
				t.Errorf("the checker that says %q was silent", rule)
			case v.Rule != rule || !strings.Contains(v.What, p.with):
				t.Errorf("not the checker spoke that says %q %q, but: %v", rule, p.with, v)
			}
		})
	}
	if v := (planted{}).run(); v != nil {
		t.Errorf("without a bug: %v\n%s", v, v.Tail)
	}
	for r, at := range rules {
		if !planned[r] {
			t.Errorf("%s: no planted bug for %q", at, r)
		}
	}
}

// rule returns the text of the one checker that is meant.
func (p planted) rule(t *testing.T, rules map[string]token.Position) string {
	if _, ok := rules[p.says]; ok {
		return p.says
	}
	var of []string
	for r := range rules {
		if strings.Contains(r, p.says) {
			of = append(of, r)
		}
	}
	if len(of) != 1 {
		t.Fatalf("%q is in the text of %d checkers: %q", p.says, len(of), of)
	}
	return of[0]
}

// run plants the bug and returns what the checkers report.
func (p planted) run() *Violation {
	return caught(func() {
		spec := Spec{Seed: 1, Hosts: make([]HostSpec, 2), Line: sim.Faults{Delay: 50 * time.Microsecond}}
		if p.spec != nil {
			p.spec(&spec)
		}
		w := NewWorld(nil, spec)
		w.Net.After(time.Hour, func() { panic("the run has no end") })
		if p.plant != nil {
			p.plant(w)
		}
		if p.play != nil {
			p.play(w)
		} else {
			usual(w, 5*time.Second)
		}
	})
}

// caught returns the violation that ends f. A panic is one, too: after what a checker does not
// stop, the code may be unable to go on.
func caught(f func()) (v *Violation) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *Violation:
			v = p
		default:
			v = &Violation{What: fmt.Sprint("panic: ", p), Rule: "panic"}
		}
	}()
	f()
	return nil
}

// rulesInSource returns the texts of all checkers and where they are: the formats of Failf, and
// what RunUntil waits for.
func rulesInSource(t *testing.T) map[string]token.Position {
	t.Helper()
	rules := map[string]token.Position{}
	files := token.NewFileSet()
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			arg := -1
			switch {
			case name.Sel.Name == "Failf":
				arg = 0
			case name.Sel.Name == "RunUntil" && len(call.Args) == 3:
				arg = 1
			default:
				return true
			}
			at := files.Position(call.Pos())
			lit, ok := call.Args[arg].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: the text is not written out", at)
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := rules[text]; ok {
				t.Errorf("%s says %q as %s does: nobody can tell which spoke", at, text, other)
			}
			rules[text] = at
			return true
		})
	}
	return rules
}

// usual is some traffic, and its end.
func usual(w *World, bound time.Duration) {
	a, b := w.Hosts[0], w.Hosts[1]
	for range 4 {
		b.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
		b.Post(OpSpec{Kind: transport.OpRecv, Peer: Any, Len: 6000})
		a.Post(OpSpec{Kind: transport.OpTRecv, Peer: Any, AnyClass: true, Len: 6000})
	}
	for i := range 4 {
		a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 5000})
		a.Post(OpSpec{Kind: transport.OpSend, Peer: 1, Len: 50 + i, Ordered: true})
		b.Post(OpSpec{Kind: transport.OpTSend, Peer: 0, Len: 500})
		w.Run(ms)
	}
	w.Run(20 * ms)
	w.Settle(bound)
}

func readable(s *Spec) { s.Hosts[1].Memory = 1 << 16 }

// reads plays a read whose event is changed.
func reads(change func(*World, *transport.Event)) func(*World) {
	return func(w *World) {
		lie(w.Hosts[0]).told = func(e transport.Event) []transport.Event {
			change(w, &e)
			return []transport.Event{e}
		}
		w.Hosts[0].Post(OpSpec{Kind: transport.OpRead, Peer: 1, Addr: 800, Len: 5000})
		w.Settle(5 * time.Second)
	}
}

func boarded(s *Spec) { s.Hosts[1].Board = true }

// writes plays a write with remote CQ data, at whose ends one host has its events changed.
func writes(host int, change func(*World, *transport.Event) []transport.Event) func(*World) {
	return func(w *World) {
		lie(w.Hosts[host]).told = func(e transport.Event) []transport.Event {
			if e.Kind != transport.OpWrite && e.Kind != transport.OpRemoteWrite {
				return []transport.Event{e}
			}
			return change(w, &e)
		}
		w.Hosts[0].Post(OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 100, Len: 5000, HasData: true, Level: transport.LevelDelivery})
		w.Settle(5 * time.Second)
	}
}

// smalls plays a write with the small header, after something was arranged.
func smalls(arrange func(*World)) func(*World) {
	return func(w *World) {
		arrange(w)
		w.Hosts[0].Post(OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 100, Len: 500, Small: true})
		w.Settle(5 * time.Second)
	}
}

// rudis plays a write by RUDI, of which the packets of a type that a host sends are changed.
func rudis(host int, typ uint8, change func(b []byte)) func(*World) {
	return func(w *World) {
		alters(w, host, classRUDI, func(b []byte, r *reading) {
			if r.typ == typ {
				change(b)
			}
		})
		for i := range 2 { // the first opens the PDC
			w.Hosts[0].Post(OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 1000 * i, Len: 500, RUDI: true})
			w.Run(10 * ms)
		}
		w.Settle(5 * time.Second)
	}
}

// commits plays a durable write with remote CQ data, of which the events are changed.
func commits(change func(*World, *transport.Event)) func(*World) {
	return func(w *World) {
		for _, h := range w.Hosts[:2] {
			lie(h).told = func(e transport.Event) []transport.Event {
				change(w, &e)
				return []transport.Event{e}
			}
		}
		w.Hosts[0].Post(OpSpec{Kind: transport.OpWrite, Peer: 1, Addr: 100, Len: 5000, HasData: true, Level: transport.LevelCommit})
		w.Settle(5 * time.Second)
	}
}

func slated(s *Spec) { s.Slates = true }

// slate plays an ordered read behind a write and before another one, at whose ends something changes.
func slate(change func(w *World, e *transport.Event, later *Op)) func(*World) {
	return func(w *World) {
		s := OpSpec{Kind: transport.OpWrite, Peer: 1, Len: 4096, Ordered: true, Slate: true}
		w.Hosts[0].Post(s)
		s.Kind = transport.OpRead
		w.Hosts[0].Post(s)
		s.Kind = transport.OpWrite
		later := w.Hosts[0].Post(s)
		lie(w.Hosts[0]).told = func(e transport.Event) []transport.Event {
			change(w, &e, later)
			return []transport.Event{e}
		}
		w.Settle(5 * time.Second)
	}
}

func counting(s *Spec) { s.Hosts[1].Counters = true }
func tallying(s *Spec) { s.Hosts[1].Tallies = 1 }

// adds plays two additions, whose events are changed.
func adds(change func(*World, *transport.Event)) func(*World) {
	return func(w *World) {
		lie(w.Hosts[0]).told = func(e transport.Event) []transport.Event {
			change(w, &e)
			return []transport.Event{e}
		}
		for range 2 {
			w.Hosts[0].Post(OpSpec{Kind: transport.OpFetch, Peer: 1, Addr: 8, Len: 8, Tally: w.Hosts[1].spec.Tallies > 0})
			w.Run(ms)
		}
		w.Settle(5 * time.Second)
	}
}

// talkFor makes the hosts talk with each other for that many rounds.
func talkFor(w *World, rounds int) {
	s := Step{Op: OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 64}, Talk: Talk{Rounds: rounds, Ready: 2}}
	w.begin(&s, nil)
	w.Run(20 * ms)
	if n := w.talks[0].next; n != rounds {
		w.Failf("%d of %d rounds", n, rounds)
	}
	w.Settle(time.Second)
}

func talk600(w *World) { talkFor(w, 600) }

func lending(s *Spec) { s.MayFail, s.Hosts[0].Config.RendezvousMin = true, 1000 }

func near(s *Spec)     { s.Line.Delay = 2 * time.Microsecond }
func mayFail(s *Spec)  { s.MayFail = true }
func secure(s *Spec)   { s.Secure = transport.SecureZeroRTT }
func trimming(s *Spec) { s.Hosts[0].Config.Trimming, s.Hosts[1].Config.Trimming = true, true }

func copiesLate(by time.Duration) func(*Spec) {
	return func(s *Spec) { s.Line.Duplicate, s.Line.DuplicateLate = 1, by }
}

func isData(r *reading) bool      { return r.class == classData }
func isSYN(r *reading) bool       { return r.class == classData && r.syn }
func inTheMiddle(r *reading) bool { return r.class == classData && !r.syn && r.som && !r.eom }

// leaving changes the trains that A sends.
func leaving(f func(*dgram.Datagram)) func(*World) {
	return func(w *World) { lie(w.Hosts[0]).leaves = f }
}

// requests changes the requests of A, acks the ACKs of B.
func requests(f func(b []byte, r *reading)) func(*World) {
	return func(w *World) { alters(w, 0, classData, f) }
}

func acks(f func(b []byte, r *reading)) func(*World) {
	return func(w *World) { alters(w, 1, classAck, f) }
}

// headers changes the SES headers of those messages of A that f picks.
func headers(f func(b []byte, r *reading) bool) func(*World) {
	return requests(func(b []byte, r *reading) {
		if changed := append([]byte(nil), sesOf(b, r)...); f(changed, r) {
			copy(sesOf(b, r), changed)
		}
	})
}

// contents changes the beginnings of A's messages of one length, SES header first.
func contents(f func(b []byte, r *reading)) func(*World) {
	return headers(func(b []byte, r *reading) bool { f(b, r); return r.som && r.n >= 100 })
}

// cutTo sends the beginning of a message once more, with that many bytes.
func cutTo(w *World, n int) {
	copies(w, 0, 0, inTheMiddle, func(b []byte, r *reading) []byte {
		b = b[:len(b)-r.n+n]
		return setPSN(b, r, forward(w).start+uint32(len(forward(w).sent)))
	})
}

// tiny posts a message that is too short to carry its number.
func tiny(w *World) { w.Hosts[0].Post(OpSpec{Kind: transport.OpSend, Peer: 1, Len: 3}) }

// silent makes A ask for no ACK of some of its messages.
func silent(pick func(*reading) bool) func(*World) {
	return requests(func(b []byte, r *reading) {
		if pick(r) && !r.syn {
			b[1] &^= byte(wire.FlagAR)
		}
	})
}

// after picks all but the first n.
func after(n int) func(*reading) bool {
	return func(*reading) bool { n--; return n < 0 }
}

func tsends(f func(*transport.Event)) func(*World) {
	return func(w *World) { changes(w.Hosts[0], transport.OpTSend, f) }
}

func trecvs(f func(*transport.Event)) func(*World) {
	return func(w *World) { changes(w.Hosts[1], transport.OpTRecv, f) }
}

// later does something to a receive some time after its end.
func later(f func(*Op)) func(*World) {
	return func(w *World) {
		w.Hosts[1].onEvent = func(o *Op) {
			if o.match != nil {
				w.Net.After(ms, func() { f(o) })
			}
		}
	}
}

// mute keeps the events of its sends from A.
func mute(w *World) {
	drops(w.Hosts[0], func(e *transport.Event) bool { return e.Kind == transport.OpTSend })
}

func posts(h *Host, err error) {
	lie(h).post = func(*transport.Op) (bool, error) { return true, err }
}

// afterClose posts after Close, with a result that must not be.
func afterClose(err error) func(*World) {
	return func(w *World) {
		w.Hosts[0].Close()
		posts(w.Hosts[0], err)
		w.Hosts[0].Post(OpSpec{Kind: transport.OpRecv, Peer: Any})
	}
}

// cancelled cancels a send before it leaves and changes its event.
func cancelled(f func(*transport.Event)) func(*World) {
	return at(10*ms, func(w *World) {
		a := w.Hosts[0]
		a.spec.Lazy = 1
		o := a.Post(OpSpec{Kind: transport.OpTSend, Peer: 1, Len: 500})
		changes(a, transport.OpTSend, f)
		a.Cancel(o)
	})
}

// counts changes the counters of a host.
func counts(host int, f func(*transport.Stats)) func(*World) {
	return func(w *World) { lie(w.Hosts[host]).stats = f }
}

// trim cuts everything from A to B that may be cut, for a while.
func trim(w *World) {
	f := w.Line(0, 1).Faults()
	f.Trim = Trim(true)
	f.Trim.Share = 1
	w.Line(0, 1).SetFaults(f)
	at(2*ms, (*World).Heal)(w)
}

// leaky is an open window that forgets a byte of what left flight with each ACK.
type leaky struct{ flight int }

func (l *leaky) CanSend(int) bool                      { return true }
func (l *leaky) OnSend(_ time.Duration, n int) bool    { l.flight += n; return false }
func (l *leaky) OnLoss(_ time.Duration, n int, _ bool) { l.flight -= n }
func (l *leaky) OnTaken()                              {}
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
