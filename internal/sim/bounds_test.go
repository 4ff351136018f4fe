package sim_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// T39: the quarantine has room for as many closed PDCs as its bound says. Then a new PDC is
// refused with NACK 04 until one leaves it, and opens then.
func TestT39QuarantineFull(t *testing.T) {
	const room = 3
	w := pair(t, 50, lan, config(func(c *transport.Config) { c.IdleClose = 5 * ms }), only(1, func(c *transport.Config) { c.MaxQuarantine = room }))
	a, b := w.Hosts[0], w.Hosts[1]
	full := w.Now()
	for range room {
		o := a.Post(tsend(1, 100))
		b.Post(trecv(100))
		w.RunOps(time.Second, o)
		w.Want("ok", o)
		w.RunUntil(time.Second, "the end of the PDC", func() bool { return b.FEP.PDCs() == 0 && a.FEP.PDCs() == 0 })
	}
	o := a.Post(tsend(1, 100))
	b.Post(trecv(100))
	w.Run(2 * time.Second)
	st := b.FEP.Stats()
	if !o.Open() || st.PDCAccepted != room || st.NacksTx[wire.NackNoPDCAvail] == 0 {
		t.Errorf("with a full quarantine: open %v, %d PDCs accepted, %d NACKs 04", o.Open(), st.PDCAccepted, st.NacksTx[wire.NackNoPDCAvail])
	}
	w.RunOps(full+b.Config.Quarantine+2*time.Second-w.Now(), o)
	w.Want("ok", o)
	settle(w)
}

// T12: the guaranteed responses for a peer that never clears are stored up to the window and no
// further. They are gone with the PDC after PeerTimeout.
func TestT12NeverClears(t *testing.T) {
	w := pair(t, 51, lan, forged, only(0, func(c *transport.Config) { c.MPRange, c.UnexpectedShare = 128, 1 }))
	a := w.Hosts[0]
	// Each answer to an unexpected message is guaranteed (S-RSP-02).
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, JobID: 1, RI: 15, Initiator: 16, ReqLen: 16}
	before := a.FEP.Stats()
	for i := range 1000 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(1000 + i), PSNOffset: uint16(i), SPDCID: 9, ClearOff: -int16(i + 1)}
		q.MsgID = uint16(i + 1)
		forge(w, append(q.Append(h.Append(nil)), make([]byte, 16)...))
		w.Run(10 * us)
	}
	w.Run(ms)
	st := a.FEP.Stats()
	if n := st.AcksTx - before.AcksTx; n != 128 {
		t.Errorf("%d messages were executed without a CLEAR, the window is 128", n)
	}
	w.RunUntil(42*time.Second, "the end of the PDC", func() bool { return a.FEP.PDCs() == 0 })
	settle(w)
}

// T14: unexpected bytes are charged as kept, per peer and in all. A flood from three peers uses
// a quarter each and not a byte more, and the fourth still gets through.
func TestT14UnexpectedFlood(t *testing.T) {
	const limit = 1 << 20
	spec := simtest.Spec{Seed: 52, Line: lan, Hosts: make([]simtest.HostSpec, 5)}
	spec.Hosts[0].Config.UnexpectedBytes = limit
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
	}
	w := simtest.NewWorld(t, spec)
	var flood [3][]*simtest.Op
	for i := range flood {
		flood[i] = post(w.Hosts[1+i], simtest.OpSpec{Kind: transport.OpSend, Peer: 0, Len: 16 << 10}, 40)
	}
	w.Run(500 * ms)
	for i, ops := range flood {
		held := 0
		for _, o := range ops {
			if o.OK() {
				held += o.Len
			}
		}
		if held < limit/8 || held > limit/4 {
			t.Errorf("%d bytes of peer %d are held, its share is %d", held, 1+i, limit/4)
		}
	}
	honest := post(w.Hosts[4], simtest.OpSpec{Kind: transport.OpSend, Peer: 0, Len: 16 << 10}, 8)
	w.RunOps(time.Second, honest...)
	w.Want("ok", honest...)
	settle(w)
}

// T3: when a forger off the path guesses PDCIDs and PSNs, nothing ends, nothing is delivered,
// and the stream goes on.
func TestT3GuessedNumbers(t *testing.T) {
	w, op, p, light := openOp(t, 53)
	for i := range 4000 {
		n := uint16(i*16 + 1)
		if n == p.ID {
			n++
		}
		forge(w, ackCC(simtest.PDC{ID: n, Remote: p.Remote ^ 0x5555}, p.Start, 0, 1, 0))
		forge(w, wire.Nack{Type: wire.TypeNack, Code: wire.NackExpFatal, PSN: wire.PSN(i * 1_000_003), SPDCID: n, DPDCID: p.ID}.Append(nil))
	}
	// A guess that is half right counts for nothing: it acknowledges nothing in flight.
	forge(w, ackCC(simtest.PDC{ID: p.ID, Remote: p.Remote ^ 0x5555}, p.Start+uint32(p.Sent)-1, 0, 1, 0))
	w.Run(100 * ms)
	w.Want("open", op)
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// T10: an optimistic ACK of what is in flight gives the sender no more window than
// Config.Window and the peer's MP_RANGE.
func TestT10OptimisticAck(t *testing.T) {
	w, op, p, _ := openOp(t, 54)
	w.Forged()
	a := w.Hosts[0]
	top := wire.PSN(p.Start + uint32(p.Sent) - 1)
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
		if what != sim.Sent || k.From != a.Node || len(k.Data) == 0 || k.Data[0]>>3 != byte(wire.TypeRUDReq) {
			return
		}
		if h, _, err := wire.ParseReq(k.Data); err == nil && h.SPDCID == p.ID && h.PSN.After(top) {
			top = h.PSN
		}
	})
	lies := 0
	for ; lies < 200 && op.Open(); lies++ {
		before := a.FEP.Stats().TxBytes
		forge(w, ackCC(p, uint32(top), 0, 1, 0))
		w.Run(20 * us)
		// The window is 32 KiB; the part of a packet beyond it may be in addition.
		if n := a.FEP.Stats().TxBytes - before; n > 40<<10 {
			t.Fatalf("one ACK drew %d bytes, the window is %d", n, 32<<10)
		}
	}
	t.Logf("%d lies", lies)
	// The liar loses its own message: for the sender it is answered.
	if op.Open() {
		t.Errorf("%v is open though all was acknowledged", op)
	}
}

// T11: with changing SACKs, changing MPR and an MPR in an old ACK the stream goes on and ends.
func TestT11SackAndMPRFlap(t *testing.T) {
	w, op, p, light := openOp(t, 55)
	for i := range 500 {
		b := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: wire.PSN(p.Start) - 1, SPDCID: p.Remote, DPDCID: p.ID, MPR: uint8(i * 37)}
		r := wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}
		forge(w, r.Append(b.Append(nil)))
		w.Run(10 * us)
	}
	w.Want("open", op)
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// T33: a storm of NACKs for one packet causes one resend per round trip, and the message
// succeeds.
func TestT33NackStorm(t *testing.T) {
	w, op, p, light := openOp(t, 56)
	a := w.Hosts[0]
	before := a.FEP.Stats().TxData
	const storm = 1000
	for range storm {
		forge(w, wire.Nack{Type: wire.TypeNack, Code: wire.NackPktNotRcvd, PSN: wire.PSN(p.Start + uint32(p.Sent) - 1), SPDCID: p.Remote, DPDCID: p.ID}.Append(nil))
		w.Run(us)
	}
	w.Run(ms)
	n := a.FEP.Stats().TxData - before
	t.Logf("%d NACKs in 1 ms drew %d packets", storm, n)
	// The round trip takes 100 µs or more.
	if n > 15 {
		t.Errorf("%d NACKs drew %d packets", storm, n)
	}
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// S-PDC-05: a SYN of another life of the same address, with the same PDCID and another
// Start_PSN, is refused with NACK 15 and never acknowledged, and its message is not delivered.
func TestF13SYNOfAnotherLifeIsNeverAcked(t *testing.T) {
	w := pair(t, 57, lan, hostile)
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 2)
	p := w.PDCs(0)[0]
	got := post(b, trecv(100), 1)[0]
	before := b.FEP.Stats()
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(p.Start + 3), PSNOffset: 2, SPDCID: p.ID, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 7, JobID: 1, RI: 15, Initiator: 16}
	w.Forge(1, a.Addr(), q.Append(h.Append(nil)), true)
	w.Run(ms)
	after := b.FEP.Stats()
	if after.NacksTx[wire.NackInvalidSyn] != before.NacksTx[wire.NackInvalidSyn]+1 || after.AcksTx != before.AcksTx || !got.Open() {
		t.Errorf("NACKs 15 %d, ACKs %d, received %v", after.NacksTx[wire.NackInvalidSyn]-before.NacksTx[wire.NackInvalidSyn],
			after.AcksTx-before.AcksTx, !got.Open())
	}
	settle(w)
}

// F24: a small receive buffer at the target acts like loss: everything succeeds.
func TestF24SmallReceiveBuffer(t *testing.T) {
	for _, s := range []simtest.OpSpec{tsend(1, 60_000), ordered(tsend(1, 60_000))} {
		w := pair(t, 58, sim.Faults{Delay: 50 * us, InOrder: true}, func(s *simtest.Spec) {
			s.Hosts[1].Node.RecvBuffer = 24 << 10
			s.Hosts[1].Node.Wake = 200 * us
		})
		stream(w, s, 20, 4)
		if w.Net.Lost(sim.WhyBuffer) == 0 {
			t.Error("the buffer lost nothing: the test does not test")
		}
		settle(w)
	}
}

// F31: everything that a peer with the other mode of integrity sends is dropped and counted,
// and leaves no state.
func TestF31CRCMismatch(t *testing.T) {
	w := pair(t, 59, lan, forged)
	b := w.Hosts[1]
	before := b.FEP.Stats().Drops
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 5, SPDCID: 3, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, ReqLen: 32}
	for range 200 {
		w.Forge(1, w.Hosts[0].Addr(), append(q.Append(h.Append(nil)), make([]byte, 32)...), false)
	}
	w.Run(ms)
	after := b.FEP.Stats()
	if n := after.Drops[transport.DropCRC] - before[transport.DropCRC]; n != 200 || after.PDCAccepted != 0 {
		t.Errorf("%d of 200 were dropped for their CRC, %d PDCs", n, after.PDCAccepted)
	}
	settle(w)
}

// F27: a send that is cancelled before anything left fails for certain, and one that left is
// not found. The other operations go on.
func TestF27CancelIsCertain(t *testing.T) {
	w := pair(t, 60, lan, smallWindow)
	a, b := w.Hosts[0], w.Hosts[1]
	first := a.Post(tsend(1, 300_000)) // fills the window
	behind := a.Post(tsend(1, 100_000))
	w.Run(100 * us)
	if a.Cancel(first) {
		t.Errorf("%v was cancelled in the middle", first)
	}
	if !a.Cancel(behind) {
		t.Fatalf("%v was not found", behind)
	}
	w.Run(ms)
	w.Want("cancelled", behind)
	post(b, trecv(300_000), 1)
	w.RunOps(time.Second, first)
	w.Want("ok", first)
	settle(w)
}

// F8, F1, F4: everything that must be survived happens at once on both modes: a third is lost,
// half comes twice, some is damaged, and there is a blackout of 10 s in the middle. Nothing
// wrong is delivered and all ends soon after.
func TestF8EverythingAtOnce(t *testing.T) {
	for seed := range uint64(3) {
		f := lan
		f.Loss, f.Duplicate, f.DuplicateMax, f.DuplicateLate = 0.3, 0.5, 3, 10*ms
		f.Corrupt, f.Reorder, f.ReorderBy = 0.05, 0.2, 16
		f.Blackouts = []sim.Window{{From: sim.Start + 20*ms, To: sim.Start + 10*time.Second}}
		w := pair(t, 70+seed, f)
		a, b := w.Hosts[0], w.Hosts[1]
		ops := append(post(a, tsend(1, 30_000), 10), post(a, ordered(tsend(1, 5000)), 10)...)
		ops = append(ops, post(b, tsend(0, 800), 10)...)
		post(b, trecv(30_000), 20)
		post(a, trecv(800), 10)
		w.Run(10 * time.Second)
		w.Heal()
		w.RunOps(2*time.Second, ops...)
		w.Want("ok", ops...)
		settle(w)
	}
}

// T9: a CACK of exactly one packet more than was sent, in an ACK of a packet that was sent,
// does not count. Only 16 of these in a row close the PDC; one good packet in between resets
// the count.
func TestT9OneTooHigh(t *testing.T) {
	w, op, p, light := openOp(t, 61)
	a := w.Hosts[0]
	next := p.Start + uint32(p.Sent)
	before := a.FEP.Stats().Drops[transport.DropUnsent]
	for range 4 {
		for range 10 {
			forge(w, ackCC(p, next, -1, 1, 0))
		}
		forge(w, ackCC(p, p.Start, 0, 1, 0)) // known long before, and true
	}
	w.Run(ms)
	if n := a.FEP.Stats().Drops[transport.DropUnsent] - before; n != 40 {
		t.Errorf("%d of 40 were dropped for naming the unsent", n)
	}
	w.Want("open", op)
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// T39: one address has at most MaxPDCsPerSource PDCs, known or not. The next SYN is refused
// with NACK 04, and others are not affected.
func TestT39PDCsPerSource(t *testing.T) {
	w := pair(t, 62, lan, forged, config(func(c *transport.Config) { c.MaxPDCsPerSource = 5 }))
	b := w.Hosts[1]
	b.Peer(0) // known, so the bounds for strangers do not apply
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
	for i := range 20 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 1000, SPDCID: uint16(1 + i), ClearOff: -1}
		w.Forge(1, w.Hosts[0].Addr(), q.Append(h.Append(nil)), true)
	}
	w.Run(ms)
	if st := b.FEP.Stats(); st.PDCAccepted != 5 || st.NacksTx[wire.NackNoPDCAvail] != 15 {
		t.Errorf("%d PDCs of one source were accepted and %d refused, want 5 and 15", st.PDCAccepted, st.NacksTx[wire.NackNoPDCAvail])
	}
	settle(w)
}

// T1: strangers share MaxPDCsUnknown PDCs. A newer one replaces the oldest that proved nothing,
// and there are never more.
func TestT1StrangersAreBounded(t *testing.T) {
	w := pair(t, 63, lan, forged, config(func(c *transport.Config) { c.MaxPDCsUnknown = 3 }))
	b := w.Hosts[1]
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
	for i := range 40 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: 1000, SPDCID: 7, ClearOff: -1}
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, 0, 0, byte(i)}), 4793)
		w.Forge(1, src, q.Append(h.Append(nil)), true)
		w.Run(100 * us)
		if n := b.FEP.PDCs(); n > 3 {
			t.Fatalf("strangers have %d PDCs, 3 are allowed", n)
		}
	}
	if b.FEP.Stats().PDCAccepted < 3 {
		t.Error("no stranger was let in: the test does not test")
	}
	settle(w)
}

// T3, T8: a request that names the right PDCIDs and the next PSN but comes from another address
// is dropped and counted, and delivers nothing.
func TestT3RequestFromElsewhere(t *testing.T) {
	w := pair(t, 64, lan, forged)
	p, last := firstPDC(w)
	w.Hosts[0].Post(tsend(1, 100))
	w.Hosts[1].Post(trecv(100))
	w.Run(ms)
	b := w.Hosts[1]
	got := b.Post(trecv(100))
	before := b.FEP.Stats().Drops[transport.DropSource]
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: *last + 1, SPDCID: p.ID, DPDCID: p.Remote, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 9, JobID: 1, RI: 15, Initiator: 16}
	w.Forge(1, netip.MustParseAddrPort("10.9.9.9:4793"), q.Append(h.Append(nil)), true)
	w.Run(ms)
	if n := b.FEP.Stats().Drops[transport.DropSource] - before; n != 1 || !got.Open() {
		t.Errorf("%d dropped for their source, received %v", n, !got.Open())
	}
	// The same request from the right address is accepted: only the source was wrong.
	w.Forge(1, w.Hosts[0].Addr(), q.Append(h.Append(nil)), true)
	w.Run(ms)
	if got.Open() {
		t.Error("the request was not taken from the right address either: the test does not test")
	}
	settle(w)
}

// firstPDC follows the packets of A and B. It returns the PDC they open, filled in when B
// answers, and the last PSN that A used.
func firstPDC(w *simtest.World) (*simtest.PDC, *wire.PSN) {
	p, last := &simtest.PDC{}, new(wire.PSN)
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
		if what != sim.Sent || len(k.Data) == 0 {
			return
		}
		switch typ := k.Data[0] >> 3; {
		case k.From == w.Hosts[0].Node && typ == byte(wire.TypeRUDReq):
			if h, _, err := wire.ParseReq(k.Data); err == nil && (p.ID == 0 || p.ID == h.SPDCID) {
				p.ID, *last = h.SPDCID, h.PSN
			}
		case k.From == w.Hosts[1].Node && typ >= byte(wire.TypeAck) && typ <= byte(wire.TypeAckCCX):
			if a, _, err := wire.ParseAck(k.Data); err == nil && a.DPDCID == p.ID {
				p.Remote = a.SPDCID
			}
		}
	})
	return p, last
}

// T9: a request whose CLEAR names one packet more than was acknowledged is dropped whole.
func TestT9ClearOneTooHigh(t *testing.T) {
	w := pair(t, 65, lan, hostile)
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 2)
	p := w.PDCs(0)[0]
	got := b.Post(trecv(100))
	before := b.FEP.Stats().Drops[transport.DropUnsent]
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: wire.PSN(p.Start + uint32(p.Sent) + 1), SPDCID: p.ID, DPDCID: p.Remote, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 9, JobID: 1, RI: 15, Initiator: 16}
	w.Forge(1, a.Addr(), q.Append(h.Append(nil)), true)
	w.Run(ms)
	if n := b.FEP.Stats().Drops[transport.DropUnsent] - before; n != 1 || !got.Open() {
		t.Errorf("%d dropped for a CLEAR of the unsent, received %v", n, !got.Open())
	}
	o := a.Post(tsend(1, 100))
	w.RunOps(time.Second, o, got)
	w.Want("ok", o, got)
	settle(w)
}

// F13: if a target says that every PDCID is of another life, the operation ends after 8
// renumberings, and not never.
func TestF13RenumberingsAreBounded(t *testing.T) {
	w := pair(t, 66, sim.Faults{Loss: 1}, forged)
	a := w.Hosts[0]
	lives := map[uint16]bool{}
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
		if h, _, err := wire.ParseReq(k.Data); what == sim.Sent && k.From == a.Node && err == nil && h.Flags&wire.FlagSYN != 0 {
			lives[h.SPDCID] = true
			n := wire.Nack{Type: wire.TypeNack, Code: wire.NackInvalidSyn, PSN: h.PSN, DPDCID: h.SPDCID}
			w.Net.After(us, func() { forge(w, n.Append(nil)) })
		}
	})
	o := a.Post(tsend(1, 100))
	w.RunOps(time.Second, o)
	if o.Cause() != transport.Aborted || o.Event.Nack != wire.NackInvalidSyn || len(lives) != 1+8 {
		t.Errorf("%v: %v, NACK %v after %d PDCIDs, want aborted, %v after 9", o, o.Cause(), o.Event.Nack, len(lives), wire.NackInvalidSyn)
	}
	w.SetFaults(lan)
	settle(w)
}

// T3, T6: requests whose next header does not fit, from a forger who has all numbers of a PDC
// right but one, cause no fatal NACK of that PDC. With all numbers right one of them causes one
// NACK 0F, and that does not end the PDC of an honest source either.
func TestT6WrongNextHeader(t *testing.T) {
	w := pair(t, 67, lan, hostile, smallWindow)
	p, last := firstPDC(w)
	wantStream(t, w, 2)
	a, b := w.Hosts[0], w.Hosts[1]
	op := a.Post(tsend(1, 200_000))
	b.Post(trecv(200_000))
	w.Run(100 * us)
	w.Want("open", op)
	toB := func(next wire.NextHdr, spdcid uint16, psn wire.PSN) {
		h := wire.Req{Type: wire.TypeRUDReq, Next: next, PSN: psn, SPDCID: spdcid, DPDCID: p.Remote, ClearOff: -200}
		w.Forge(1, a.Addr(), append(h.Append(nil), make([]byte, 48)...), true)
	}
	named := func() (n int) {
		for _, k := range []*simtest.Host{a, b} {
			n += int(k.FEP.Stats().NacksRx[wire.NackPDCHdrMismatch])
		}
		return n
	}
	for i := range 100 {
		for _, next := range []wire.NextHdr{wire.NextNone, wire.NextRsp, wire.NextRspData, wire.NextRspDataSmall, 15} {
			toB(next, p.ID, *last-100)               // received long ago
			toB(next, p.ID, *last+wire.PSN(5000+i))  // beyond the window
			toB(next, p.ID, *last+wire.PSN(1<<31-i)) // far off
		}
		w.Run(5 * us)
	}
	if n := named(); n != 0 {
		t.Errorf("%d NACKs 0F for guessed PSNs", n)
	}
	toB(wire.NextRsp, p.ID, *last+1)
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	if n := named(); n != 1 {
		t.Errorf("%d NACKs 0F for a PSN that is new", n)
	}
	wantStream(t, w, 2)
	if a.FEP.Stats().PDCErrors+b.FEP.Stats().PDCErrors != 0 {
		t.Error("a PDC ended in error")
	}
	settle(w)
}

// T27: a stranger whose request has a next header that fits no request gets one NACK, which is
// no longer than the request. The PDC is not opened.
func TestT27WrongNextHeader(t *testing.T) {
	w := pair(t, 68, lan, forged)
	victim := netip.MustParseAddrPort("10.9.9.9:4793")
	out, answers := 0, 0
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
		if what == sim.Sent && k.Dst == victim {
			out += len(k.Data)
			answers++
		}
	})
	b := w.Hosts[1]
	for _, flags := range []wire.Flags{wire.FlagSYN | wire.FlagAR, wire.FlagAR} {
		for next := range wire.NextHdr(16) {
			if next >= wire.NextReqSmall && next <= wire.NextReqStd {
				continue
			}
			for _, body := range []int{0, 3, 4, 100} {
				out, answers = 0, 0
				h := wire.Req{Type: wire.TypeRUDReq, Next: next, Flags: flags, PSN: 1000, SPDCID: 9, ClearOff: -1}
				in := append(h.Append(nil), make([]byte, body)...)
				w.Forge(1, victim, in, true)
				w.Run(2 * time.Second)
				if answers > 1 || out > len(in)+wire.CRCLen {
					t.Errorf("%v, %d bytes: answered by %d bytes in %d packets", &h, len(in)+wire.CRCLen, out, answers)
				}
				if answers == 0 && body == 100 {
					t.Errorf("%v: no answer", &h)
				}
			}
		}
	}
	if n := b.FEP.PDCs(); n != 0 {
		t.Errorf("%d PDCs", n)
	}
	settle(w)
}
