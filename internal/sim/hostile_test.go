package sim_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Each test has the number of the threat it is about. The forger knows what anybody on the path
// knows: addresses, PDCIDs, PSNs. Packets have a correct CRC unless stated otherwise.

func hostile(s *simtest.Spec) { s.Hostile = true }
func forged(s *simtest.Spec)  { s.Hostile, s.Forged, s.MayFail = true, true, true }

// openOp makes a world in which A has a long message to B in flight, and the ACKs are held back
// until light is called.
func openOp(t *testing.T, seed uint64, change ...func(*simtest.Spec)) (w *simtest.World, op *simtest.Op, pdc simtest.PDC, light func()) {
	t.Helper()
	w = pair(t, seed, lan, append(change, hostile, smallWindow)...)
	wantStream(t, w, 4)
	dark := lan
	dark.Loss = 1
	w.Line(1, 0).SetFaults(dark)
	op = w.Hosts[0].Post(tsend(1, 100_000))
	w.Hosts[1].Post(trecv(100_000))
	w.Run(ms)
	for _, p := range w.PDCs(0) {
		if p.Forward && p.Sent > 50 {
			pdc = p
		}
	}
	if pdc.ID == 0 || pdc.Remote == 0 {
		t.Fatalf("no PDC in %+v", w.PDCs(0))
	}
	return w, op, pdc, func() { w.SetFaults(lan) }
}

// forge sends a packet to A as if it came from B.
func forge(w *simtest.World, b []byte) { w.Forge(0, w.Hosts[1].Addr(), b, true) }

func ackCC(p simtest.PDC, cack uint32, name int, sackOff int16, sack uint64) []byte {
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, AckPSNOff: int16(name), CACK: wire.PSN(cack), SPDCID: p.Remote, DPDCID: p.ID,
		MPR: 16, SACKOff: sackOff, SACK: sack}
	r := wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCOK}
	return r.Append(a.Append(nil))
}

// T9: a packet with an ACK, SACK or CLEAR of what was never sent is dropped whole, and nothing
// of it counts.
func TestT9AckOfUnsentIsDropped(t *testing.T) {
	w, op, p, light := openOp(t, 100)
	next := p.Start + uint32(p.Sent) // the first PSN that was never used
	before := w.Hosts[0].FEP.Stats().Drops[transport.DropUnsent]
	bad := [][]byte{
		ackCC(p, next, 0, 1, 0),
		ackCC(p, next+1<<20, 0, 1, 0),
		ackCC(p, next-20, 20, 1, 0),
		ackCC(p, next-20, 1, 1, 1<<63),
		ackCC(p, next-1, 0, 1, 1),
	}
	for _, b := range bad {
		forge(w, b)
	}
	w.Run(ms)
	if n := w.Hosts[0].FEP.Stats().Drops[transport.DropUnsent] - before; n != uint64(len(bad)) {
		t.Errorf("%d of %d were dropped for naming the unsent", n, len(bad))
	}
	w.Want("open", op)
	light()
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	settle(w)
}

// T9: 16 such packets in a row close the PDC in error.
func TestT9SixteenInARowClose(t *testing.T) {
	w, op, p, light := openOp(t, 101, mayFail)
	for range 15 {
		forge(w, ackCC(p, p.Start+uint32(p.Sent)+5, 0, 1, 0))
	}
	w.Run(ms)
	if !op.Open() {
		t.Fatalf("%v ended after 15: %v", op, op.Cause())
	}
	forge(w, ackCC(p, p.Start+uint32(p.Sent)+5, 0, 1, 0))
	w.Run(ms)
	if op.Open() || op.OK() {
		t.Errorf("%v after 16: open %v, %v", op, op.Open(), op.Cause())
	}
	light()
	next := w.Hosts[0].Post(tsend(1, 100))
	w.RunOps(time.Second, next)
	w.Want("ok", next)
	settle(w)
}

// T9: 16 in a row end a PDC that is being opened, too, after SuspectTimeout if nothing true comes.
func TestT9SixteenInARowWhileOpening(t *testing.T) {
	dark := lan
	dark.Loss = 1
	w := pair(t, 101, lan, mayFail, hostile)
	w.Line(1, 0).SetFaults(dark)
	op := w.Hosts[0].Post(tsend(1, 100))
	w.Hosts[1].Post(trecv(100))
	w.Run(ms)
	p := w.PDCs(0)[0]
	if w.Hosts[0].FEP.Stats().AcksRx != 0 {
		t.Fatal("it is open: the test does not test")
	}
	for range 15 {
		forge(w, ackCC(p, p.Start+uint32(p.Sent)+5, 0, 1, 0))
	}
	w.Run(100 * us)
	if !op.Open() {
		t.Fatalf("%v ended after 15: %v", op, op.Cause())
	}
	forge(w, ackCC(p, p.Start+uint32(p.Sent)+5, 0, 1, 0))
	w.Run(100 * us)
	if !op.Open() {
		t.Fatalf("%v ended at once: %v", op, op.Cause())
	}
	w.Run(4 * time.Second)
	if op.Open() || op.OK() || !op.Event.Unknown {
		t.Errorf("%v after 16: open %v, %v", op, op.Open(), op.Cause())
	}
	w.SetFaults(lan)
	next := w.Hosts[0].Post(tsend(1, 100))
	w.Hosts[1].Post(trecv(100))
	w.RunOps(time.Second, next)
	w.Want("ok", next)
	settle(w)
}

// T9: a CLEAR of what was never received is dropped.
func TestT9ClearOfUnsent(t *testing.T) {
	w := pair(t, 102, lan, hostile)
	a, b := w.Hosts[0], w.Hosts[1]
	ops := post(a, tsend(1, 100), 3) // unexpected at B: guaranteed responses are stored
	w.Run(ms)
	p := w.PDCs(0)[0]
	for _, off := range []uint32{100, 1 << 16, 1 << 31, ^uint32(0)} {
		w.Forge(1, a.Addr(), wire.CP{Ctl: wire.CtlClear, SPDCID: p.ID, DPDCID: p.Remote, Payload: p.Start + uint32(p.Sent) + off}.Append(nil), true)
	}
	w.Run(ms)
	post(b, trecv(100), 3)
	more := post(a, tsend(1, 20_000), 5)
	more = append(more, post(a, tsend(1, 100), 5)...)
	post(b, trecv(20_000), 10)
	w.RunOps(time.Second, append(ops, more...)...)
	w.Want("ok", append(ops, more...)...)
	settle(w)
}

// T6: one forged fatal NACK that is correct in all fields does nothing. With a wrong PDCID, or
// a PSN that is not in flight, a hundred do nothing.
func TestT6ForgedFatalNack(t *testing.T) {
	for _, code := range []wire.NackCode{wire.NackInvDPDCID, wire.NackPDCHdrMismatch, wire.NackClosing, wire.NackClosingInErr,
		wire.NackGtdRespUnavail, wire.NackInvalidSyn, wire.NackPDCModeMismatch, wire.NackUnexpEvent, wire.NackExpFatal} {
		t.Run(code.String(), func(t *testing.T) {
			w, op, p, light := openOp(t, 103)
			inFlight := wire.PSN(p.Start + uint32(p.Sent) - 1)
			n := wire.Nack{Type: wire.TypeNack, Code: code, PSN: inFlight, SPDCID: p.Remote, DPDCID: p.ID}
			forge(w, n.Append(nil))
			for range 100 {
				for _, bad := range []wire.Nack{
					{Type: wire.TypeNack, Code: code, PSN: inFlight, SPDCID: p.Remote + 1, DPDCID: p.ID},
					{Type: wire.TypeNack, Code: code, PSN: inFlight + 1000, SPDCID: p.Remote, DPDCID: p.ID},
					{Type: wire.TypeNack, Code: code, PSN: wire.PSN(p.Start - 1), SPDCID: p.Remote, DPDCID: p.ID},
				} {
					forge(w, bad.Append(nil))
				}
				w.Run(10 * ms)
			}
			if !op.Open() {
				t.Fatalf("%v was killed: %v", op, op.Cause())
			}
			light()
			w.RunOps(2*time.Second, op)
			w.Want("ok", op)
			settle(w)
		})
	}
}

// T28: only requests and control packets cause answers, and packets from our own address are
// dropped.
func TestT28NoLoops(t *testing.T) {
	w := pair(t, 104, lan, hostile)
	wantStream(t, w, 2)
	w.Run(time.Second)
	sent := w.Packets()
	a := w.Hosts[0]
	for i := range uint16(200) {
		forge(w, wire.Nack{Type: wire.TypeNack, Code: wire.NackCode(1 + i%0x20), PSN: wire.PSN(i), SPDCID: i, DPDCID: i * 7}.Append(nil))
		forge(w, ackCC(simtest.PDC{ID: i * 5, Remote: i}, uint32(i), 0, 1, 0))
	}
	w.Run(time.Second)
	if n := w.Packets() - sent - 400; n != 0 {
		t.Errorf("%d packets answer NACKs and ACKs", n)
	}
	drops := a.FEP.Stats().Drops
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: 77, SPDCID: 9, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
	w.Forge(0, a.Addr(), q.Append(h.Append(nil)), true)
	w.Run(time.Second)
	if n := a.FEP.Stats().Drops[transport.DropSelf] - drops[transport.DropSelf]; n != 1 {
		t.Errorf("own address as source: %d drops", n)
	}
	settle(w)

	// Whatever the type, and before anything else came.
	w = pair(t, 104, lan, hostile)
	a = w.Hosts[0]
	for _, b := range [][]byte{
		ackCC(simtest.PDC{ID: 1, Remote: 2}, 1, 0, 1, 0),
		wire.Nack{Type: wire.TypeNack, Code: wire.NackInvDPDCID, PSN: 1, SPDCID: 1, DPDCID: 2}.Append(nil),
		wire.CP{Ctl: wire.CtlProbe, SPDCID: 1, DPDCID: 2}.Append(nil),
		wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR | wire.FlagSYN, SPDCID: 1}.Append(nil),
		q.Append(h.Append(nil)),
		{31 << 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		{1},
	} {
		before := a.FEP.Stats()
		w.Forge(0, a.Addr(), b, true)
		w.Run(ms)
		st := a.FEP.Stats()
		if n := st.Drops[transport.DropSelf] - before.Drops[transport.DropSelf]; n != 1 || w.PacketsFrom(0) != 0 {
			t.Errorf("% x from the own address: %d drops for it, %d packets sent", b[:1], n, w.PacketsFrom(0))
		}
	}
	settle(w)
}

// T27: one datagram from a forged source causes at most 3 × its bytes and 3 resends to an
// address that never acknowledged.
func TestT27Reflection(t *testing.T) {
	w := pair(t, 105, lan, forged)
	victim := netip.MustParseAddrPort("10.9.9.9:4793")
	bytes, packets, in := 0, 0, 0
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what == sim.Sent && p.Dst == victim {
			bytes += len(p.Data)
			packets++
		}
	})
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: 1000, SPDCID: 9, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
	b := q.Append(h.Append(nil))
	in = len(b) + 4
	w.Forge(0, victim, b, true)
	w.Run(2 * time.Minute)
	t.Logf("%d bytes in, %d bytes in %d datagrams out", in, bytes, packets)
	if bytes > 3*in || packets > 4 {
		t.Errorf("%d bytes drew %d bytes in %d datagrams", in, bytes, packets)
	}
	settle(w)
}

// S-RMA-69, T27: reads and fetching operations from a forged source, of a few bytes up to all of a region, in one packet
// and in several, draw no byte of it, at most 3 × their bytes, answers and six questions, and end by themselves.
func TestT27ReadReflection(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		name    string
		op      wire.Opcode
		n       uint32
		packets int
	}{{"inline", wire.OpRead, 8, 1}, {"a packet", wire.OpRead, 1024, 1}, {"all", wire.OpRead, size, 1}, {"all, in parts", wire.OpRead, size, 64}, {"an old value", wire.OpFetchAtomic, 8, 1}} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 106, lan, forged, memory(size), func(s *simtest.Spec) { s.Hosts[0].Counters = true })
			victim := netip.MustParseAddrPort("10.9.9.9:4793")
			out, packets, in := 0, 0, 0
			w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				if what == sim.Sent && p.Dst == victim {
					out += len(p.Data)
					packets++
					if pro, err := wire.ParsePrologue(p.Data); err != nil || pro.Type == wire.TypeRUDReq || pro.Type != wire.TypeCP && pro.Next == wire.NextRspData {
						t.Errorf("read data goes to the victim: %s", wire.Dump(p.Data))
					}
				}
			})
			for i := range c.packets {
				h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(1000 + i), PSNOffset: uint16(i), SPDCID: 9, ClearOff: -1}
				q := wire.ReqStd{Opcode: c.op, Flags: wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, Match: simtest.MemoryKey, ReqLen: c.n}
				part := c.n / uint32(c.packets)
				if i == 0 {
					q.Flags |= wire.SESSOM
					if c.packets > 1 {
						q.HeaderData = uint64(part) << 32
					}
				} else {
					q.MsgOff, q.PayloadLen = uint32(i)*part, uint16(min(part, 8192))
				}
				if i == c.packets-1 {
					q.Flags |= wire.SESEOM
				}
				if c.op == wire.OpFetchAtomic {
					q.Match = simtest.CountersKey
				}
				b := q.Append(h.Append(nil))
				if c.op == wire.OpFetchAtomic {
					b = append(wire.Atomic{Op: wire.AtomicSum, Type: wire.Uint64}.Append(b), 0, 0, 0, 0, 0, 0, 0, 1)
				}
				in += len(b) + wire.CRCLen
				w.Forge(0, victim, b, true)
			}
			w.Run(2 * time.Minute)
			t.Logf("%d bytes in, %d bytes in %d datagrams out", in, out, packets)
			if out > 3*in || packets > 8*c.packets { // S-CLR-08: six questions, and an answer to each request
				t.Errorf("%d bytes drew %d bytes in %d datagrams", in, out, packets)
			}
			if n := w.Hosts[0].FEP.PDCs(); n != 0 {
				t.Errorf("%d PDCs are left", n)
			}
			settle(w)
		})
	}
}

// T1: a flood of SYNs from forged sources, 10,000/s for a minute, costs at most 32 MiB of
// memory and leaves 99.9 % of the honest opens and 80 % of the goodput. A, the target, has
// named B, which opens a PDC for each message. C, which A has not named, has a PDC from before
// the flood and streams. D, a stranger as well, comes during the flood.
func TestT1SYNFlood(t *testing.T) {
	seconds := 60
	if raceEnabled || testing.Short() {
		seconds = 6 // tables are full after one second; -race finds nothing in one goroutine
	}
	const rate = 10_000
	spec := simtest.Spec{Seed: 106, Line: lan, Hosts: make([]simtest.HostSpec, 4), Hostile: true, Forged: true, MayFail: true, Light: true, Long: true, MaxPackets: 10_000_000}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
		spec.Hosts[i].Node.GRO = 0.9
	}
	spec.Hosts[1].Config.IdleClose = 5 * ms // it opens again and again
	spec.Hosts[3].Config.IdleClose = 5 * ms
	w := simtest.NewWorld(t, spec)
	target, known, streamer, late := w.Hosts[0], w.Hosts[1], w.Hosts[2], w.Hosts[3]
	target.Peer(1)
	// The forged packets share the last hop with the honest ones.
	hop := w.Net.NewLine("last hop", lan)
	for i := range 3 {
		w.Net.Route(w.Hosts[1+i].Node, target.Node, w.Line(1+i, 0), hop)
	}
	const size, count = 64 << 10, 64
	slice := func() float64 {
		from := w.Now()
		post(target, trecv(size), count)
		ops := post(streamer, tsend(0, size), count)
		w.RunOps(time.Minute, ops...)
		w.Want("ok", ops...)
		return size * count / (w.Now() - from).Seconds()
	}
	slice() // opens the PDC
	clean := slice()

	heap := func() int64 {
		w.ForgetPackets()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	q := wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16, ReqLen: 16}
	start := w.Now()
	left := rate * seconds
	var flood func()
	flood = func() {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(rng.Uint32()), SPDCID: uint16(1 + rng.IntN(0xffff)), ClearOff: -1}
		src := netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32())}), uint16(1+rng.IntN(0xffff)))
		w.Forge(0, src, append(q.Append(h.Append(nil)), make([]byte, 16)...), true)
		if left--; left > 0 {
			w.Net.After(time.Second/rate, flood)
		}
	}
	before := heap()
	flood()
	for _, n := range w.Net.Nodes() {
		if n.Name == "forger" {
			w.Net.Route(n, target.Node, hop)
		}
	}
	// Half of the honest messages come before their receive, which needs room, too.
	var opens, strange []*simtest.Op
	open := func(h *simtest.Host, early bool) *simtest.Op {
		if early {
			w.Net.After(10*ms, func() { target.Post(trecv(5000)) })
		} else {
			target.Post(trecv(5000))
		}
		return h.Post(tsend(0, 5000))
	}
	var next func()
	next = func() {
		i := len(opens)
		opens = append(opens, open(known, i%2 == 1))
		if i%5 == 0 {
			strange = append(strange, open(late, i%10 == 5))
		}
		if i+1 < 10*seconds {
			w.Net.After(100*ms, next)
		}
	}
	next()
	var grown int64
	least := clean
	for i := range seconds {
		w.Run(start + time.Duration(i+1)*time.Second - w.Now() - 100*ms)
		if i%5 == 4 {
			least = min(least, slice())
			grown = max(grown, heap()-before)
		}
	}
	w.RunOps(time.Minute, append(strange, opens...)...)
	ok := 0
	for _, o := range opens {
		if o.OK() && o.EndedAt-o.PostedAt < 100*ms {
			ok++
		}
	}
	w.Want("ok", strange...) // they wait for their turn
	st := target.FEP.Stats()
	t.Logf("heap grew by %d KiB; %d of %d opens; goodput %.2f of what it was; %d PDCs accepted, %d now; %d drops",
		grown>>10, ok, len(opens), least/clean, st.PDCAccepted, target.FEP.PDCs(), st.Drops[transport.DropLimit])
	if grown > 32<<20 {
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
	if 1000*ok < 999*len(opens) {
		t.Errorf("%d of %d honest opens", ok, len(opens))
	}
	if least < 0.8*clean {
		t.Errorf("goodput %.0f B/s, without a flood %.0f", least, clean)
	}
	w.Run(time.Minute) // the forged PDCs end; Settle would look at them all the time
	settle(w)
}

// T15: messages that begin and never end are bounded per peer and freed after PeerTimeout. The first packet
// that is missing has one place more (ses.Source.First).
func TestT15SOMWithoutEOM(t *testing.T) {
	w := pair(t, 107, lan, forged)
	a := w.Hosts[0]
	post(a, trecv(100_000), 10)
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESREL, JobID: 1, RI: 15, Initiator: 16, ReqLen: 100_000}
	for i := range 1000 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(1000 + i), PSNOffset: uint16(i), SPDCID: 9, ClearOff: -1}
		q.MsgID = uint16(i + 1)
		forge(w, append(q.Append(h.Append(nil)), make([]byte, 1024)...))
		w.Run(10 * us)
	}
	w.Run(ms)
	st := a.FEP.Stats()
	if st.AcksTx > 65 || st.NacksTx[wire.NackNoSESMsgAvail] == 0 {
		t.Errorf("%d of 1000 messages were accepted, 64 may be open and the first that is missing", st.AcksTx)
	}
	w.Run(42 * time.Second)
	if !a.FEP.Idle() {
		t.Error("not idle after PeerTimeout")
	}
	settle(w)
}

// captured returns one of each kind of datagram that A and B exchange.
func captured(t testing.TB) [][]byte {
	spec := func(s *simtest.Spec) { s.Hosts[0].Config.IdleClose, s.Hosts[1].Config.IdleClose = 50*ms, 50*ms }
	f := lan
	f.Loss, f.Reorder, f.ReorderBy = 0.1, 0.1, 3
	w := pair(t, 108, f, spec, config(func(c *transport.Config) { c.UnexpectedMsgs, c.UnexpectedShare = 2, 1 }))
	var all [][]byte
	seen := map[string]bool{}
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
		if what != sim.Sent || len(p.Data) < 16 {
			return
		}
		key := fmt.Sprint(p.Data[0], p.Data[1]&0x7f, p.Data[0]>>3 == 10 && p.Data[2] != 0, len(p.Data) > 100)
		if !seen[key] {
			seen[key] = true
			all = append(all, append([]byte(nil), p.Data[:len(p.Data)-4]...))
		}
	})
	a, b := w.Hosts[0], w.Hosts[1]
	ops := append(post(a, tsend(1, 3000), 8), post(b, ordered(simtest.OpSpec{Kind: transport.OpSend, Peer: 0, Len: 100, HasData: true}), 8)...)
	w.Run(20 * ms)
	post(b, trecv(3000), 8)
	w.Drain(2)
	w.RunOps(5*time.Second, ops...)
	w.Run(time.Second)
	if len(all) < 10 {
		t.Fatalf("only %d kinds of datagrams", len(all))
	}
	return all
}

// T30: malformed datagrams, with a correct CRC and without, cause no panic and at most one
// answer each, are counted, and the PDCs go on. They have every prefix, every type and
// next_hdr, reserved bits, no byte, and the greatest length.
func TestT30Malformed(t *testing.T) {
	all := captured(t)
	w := pair(t, 109, lan, forged)
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 2)
	w.Run(50 * ms)
	injected := 0
	answers := w.PacketsFrom(0)
	shoot := func(p []byte, crc bool) {
		injected++
		w.Forge(0, b.Addr(), p, crc)
		w.Run(50 * us)
	}
	rng := rand.New(rand.NewPCG(2, 2))
	shoot(nil, false)
	shoot(nil, true)
	for _, p := range all {
		for n := range min(len(p), 120) {
			shoot(p[:n], true)
		}
		shoot(p, false)
		for range 50 {
			q := append([]byte(nil), p...)
			q[rng.IntN(min(len(q), 60))] ^= 1 << rng.IntN(8)
			shoot(q, true)
		}
	}
	for typ := range 32 {
		for next := range 16 {
			q := make([]byte, 100)
			binary.BigEndian.PutUint16(q, uint16(typ<<11|next<<7|rng.IntN(128)))
			for i := 2; i < len(q); i++ {
				q[i] = byte(rng.Uint32())
			}
			shoot(q, true)
			shoot(make([]byte, 65507), false)
		}
	}
	shoot(make([]byte, 65503), true)
	var drops uint64
	for _, n := range a.FEP.Stats().Drops {
		drops += n
	}
	answers = w.PacketsFrom(0) - answers
	t.Logf("%d datagrams, %d drops, %d answers", injected, drops, answers)
	if answers > 4*injected { // T27: an answer and three repeats
		t.Errorf("%d datagrams drew %d", injected, answers)
	}
	if drops < uint64(injected)/2 {
		t.Errorf("%d of %d datagrams were counted as drops", drops, injected)
	}
	next := post(a, tsend(1, 20_000), 3)
	w.Drain(4)
	w.RunOps(5*time.Second, next...)
	w.Want("ok", next[2])
	settle(w)
}

// T31: counts and lengths near 2³¹, 2³² and 2⁶⁴ are checked before use. A datagram allocates at
// most 64 KiB and causes one answer.
func TestT31Lengths(t *testing.T) {
	w := pair(t, 110, lan, forged)
	a := w.Hosts[0]
	post(a, trecv(1000), 20)
	wantPoison := post(a, simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: 1000}, 20)
	edge := []uint64{0, 1, 1023, 1024, 1<<14 - 1, 1 << 14, 1<<16 - 1, 1 << 16, 1<<31 - 1024, 1<<31 - 1, 1 << 31, 1<<32 - 1024, 1<<32 - 2, 1<<32 - 1}
	rng := rand.New(rand.NewPCG(3, 3))
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	began := time.Now()
	n := 0
	psn := uint32(5000)
	for range 5000 {
		h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: wire.PSN(psn), PSNOffset: uint16(psn-5000) & 0xfff, SPDCID: 11,
			ClearOff: []int16{-1, 0, 1, -32768, 32767}[rng.IntN(5)]}
		psn++
		pick := func() uint64 { return edge[rng.IntN(len(edge))] }
		q := wire.ReqStd{Opcode: wire.Opcode(rng.IntN(18)), Flags: wire.SESFlags(rng.IntN(64)), MsgID: uint16(rng.IntN(5)), JobID: 1, RI: 15, Initiator: 16,
			ReqLen: uint32(pick()), BufOff: pick()<<32 | pick(), Match: pick()}
		if q.Flags&wire.SESSOM == 0 {
			q.MsgOff, q.PayloadLen = uint32(pick()), uint16(pick()&0x3fff)
		}
		forge(w, append(q.Append(h.Append(nil)), make([]byte, rng.IntN(1500))...))
		w.Run(100 * us)
		n++
		if psn-5000 == 4000 {
			psn = 5000
		}
	}
	runtime.ReadMemStats(&m1)
	per := (m1.TotalAlloc - m0.TotalAlloc) / uint64(n)
	t.Logf("%d bytes allocated and %v spent per datagram, harness included", per, time.Since(began)/time.Duration(n))
	if k := w.PacketsFrom(0); k > 4*n {
		t.Errorf("%d datagrams drew %d", n, k)
	}
	if per > 64<<10 {
		t.Errorf("%d bytes allocated per datagram", per)
	}
	for _, o := range wantPoison {
		if o.Ended && o.Event.Cause == transport.OK && o.Event.Len > 1000 {
			t.Errorf("%v: len %d", o, o.Event.Len)
		}
	}
	settle(w)
}

// FuzzDatagrams sends whole datagrams into an established FEP, as they are and with a correct
// trailer. Nothing may panic or answer more than it was asked, and everything must still end.
func FuzzDatagrams(f *testing.F) {
	for _, p := range captured(f) {
		f.Add(p, true)
		f.Add(p, false)
	}
	f.Fuzz(func(t *testing.T, p []byte, crc bool) {
		if len(p) > 65503 {
			return
		}
		w := pair(t, 111, sim.Faults{Delay: 10 * us}, hostile)
		a, b := w.Hosts[0], w.Hosts[1]
		opened := append(post(a, tsend(1, 1000), 1), post(b, tsend(0, 1000), 1)...)
		post(a, trecv(4000), 2)
		post(b, trecv(4000), 2)
		w.Run(ms)
		w.Want("ok", opened...)
		// PDCIDs and PSNs of the capture are not those of this run, so the right ones are put
		// in.
		variants := [][]byte{p}
		for _, d := range []struct {
			from int
			back bool
		}{{1, false}, {0, true}} {
			pdcs := w.PDCs(d.from)
			if len(pdcs) == 0 || len(p) < 12 {
				continue
			}
			q := append([]byte(nil), p...)
			id, remote := pdcs[0].ID, pdcs[0].Remote
			if d.back {
				id, remote = remote, id
			}
			binary.BigEndian.PutUint32(q[4:], pdcs[0].Start+binary.BigEndian.Uint32(q[4:])%8)
			binary.BigEndian.PutUint16(q[8:], id)
			binary.BigEndian.PutUint16(q[10:], remote)
			variants = append(variants, q)
		}
		// Without a correct trailer it is noise, and all checks stay on.
		if crc {
			w.Forged()
		}
		open := a.Post(tsend(1, 3000))
		for _, v := range variants {
			before := w.PacketsFrom(0)
			w.Forge(0, b.Addr(), v, crc)
			w.Run(20 * us)
			if n := w.PacketsFrom(0) - before; n > 8 { // those of the message under way included
				t.Errorf("one datagram drew %d", n)
			}
		}
		w.RunOps(90*time.Second, open)
		if !crc && !open.OK() {
			t.Errorf("noise ended %v: %v", open, open.Cause())
		}
		w.Settle(90 * time.Second)
	})
}

// S-CTL-07: NEGOTIATION is taken and acknowledged, also with SYN, as the first packet of a PDC.
// CACK passes it, and the requests behind it are executed.
func TestNegotiationOpensAPDC(t *testing.T) {
	for _, rod := range []bool{false, true} {
		w := pair(t, 110, lan, forged)
		b := w.Hosts[1]
		peer := netip.MustParseAddrPort("10.9.9.9:4793")
		var cacks []wire.PSN
		w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
			if what != sim.Sent || k.Dst != peer {
				return
			}
			if a, _, err := wire.ParseAck(k.Data); err == nil {
				cacks = append(cacks, a.CACK)
			}
		})
		req, flags := wire.TypeRUDReq, wire.FlagSYN|wire.FlagAR
		if rod {
			req, flags = wire.TypeRODReq, flags|wire.FlagISROD
		}
		q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
		h := wire.Req{Type: req, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: 1001, PSNOffset: 1, SPDCID: 9, ClearOff: -2}
		got := b.Post(trecv(100))
		if rod {
			w.Forge(1, peer, q.Append(h.Append(nil)), true) // before its turn
			w.Run(ms)
		}
		// UE 1.0.3: the header ends before the payload field, and a TLV of 8 bytes follows.
		n := wire.CP{Ctl: wire.CtlNegotiation, Flags: flags, PSN: 1000, SPDCID: 9, Payload: 0x01020000}
		w.Forge(1, peer, append(n.Append(nil), 0, 0, 0, 1), true)
		w.Run(ms)
		if !rod {
			w.Forge(1, peer, q.Append(h.Append(nil)), true)
		}
		w.Run(ms)
		if st := b.FEP.Stats(); b.FEP.PDCs() != 1 || got.Open() || st.NacksTx[wire.NackUnexpEvent] != 0 {
			t.Errorf("ROD %v: %d PDCs, received %v, %d NACKs 19", rod, b.FEP.PDCs(), !got.Open(), st.NacksTx[wire.NackUnexpEvent])
		}
		if len(cacks) == 0 || cacks[len(cacks)-1] != 1001 {
			t.Errorf("ROD %v: CACKs %v, want the last to be 1001", rod, cacks)
		}
		settle(w)
	}
}

// S-ACK-12: the ACK of a control packet counts whatever its next_hdr says. That of a request
// does not, if what follows is unknown.
func TestUnknownNextHdrOnAnAck(t *testing.T) {
	const cpAck = wire.NextHdr(9)
	w, op, p, light := openOp(t, 111)
	drops := w.Hosts[0].FEP.Stats().Drops[transport.DropNextHdr]
	a := wire.Ack{Type: wire.TypeAckCC, Next: cpAck, CACK: wire.PSN(p.Start + uint32(p.Sent) - 1), SPDCID: p.Remote, DPDCID: p.ID, MPR: 16, SACKOff: 1}
	forge(w, a.Append(nil))
	w.Run(ms)
	if n := w.Hosts[0].FEP.Stats().Drops[transport.DropNextHdr] - drops; n != 1 || !op.Open() {
		t.Errorf("an ACK of a request: %d dropped, %v", n, op.State())
	}
	light()
	w.RunOps(time.Second, op)
	settle(w)

	w = pair(t, 112, lan, hostile, config(func(c *transport.Config) { c.IdleClose = 5 * ms }))
	closed := 0
	f := lan
	f.Filter = func(time.Duration, *sim.Packet) sim.Verdict { return sim.Verdict{Drop: closed > 0} } // the closing ACK, and NACK 0E
	w.Line(1, 0).SetFaults(f)
	w.Net.Tap(func(_ time.Duration, what sim.What, _ sim.Why, k *sim.Packet) {
		if c, _, err := wire.ParseCP(k.Data); err == nil && what == sim.Sent && c.Ctl == wire.CtlClose && closed == 0 {
			closed++
			forge(w, (&wire.Ack{Type: wire.TypeAck, Next: cpAck, CACK: c.PSN - 1, AckPSNOff: 1, SPDCID: c.DPDCID, DPDCID: c.SPDCID}).Append(nil))
		}
	})
	warm(t, w, tsend(1, 100))
	w.Run(7 * ms)
	if n := w.Hosts[0].FEP.PDCs(); closed != 1 || n != 0 {
		t.Errorf("%d PDCs after %d CLOSEs were acknowledged", n, closed)
	}
}

// S-WIN-07, T33: refusals that a forger makes up, with all numbers right, close the window to one
// packet. It opens again when they end, on a long path too, and nothing is lost.
func TestT33ForgedWindowRefusals(t *testing.T) {
	for _, c := range []struct {
		delay, most time.Duration
	}{{50 * us, 40 * ms}, {10 * ms, 2 * time.Second}} {
		line := lan
		line.Delay = c.delay
		w := pair(t, 113, line, hostile, smallWindow)
		p, last := firstPDC(w)
		warm(t, w, tsend(1, 20_000))
		const size = 400_000
		op := w.Hosts[0].Post(tsend(1, size))
		w.Hosts[1].Post(trecv(size))
		w.Run(5 * c.delay)
		w.Want("open", op)
		for range 20 {
			for back := range wire.PSN(20) {
				forge(w, wire.Nack{Type: wire.TypeNack, Code: wire.NackPSNOORWindow, PSN: *last - back, SPDCID: p.Remote, DPDCID: p.ID}.Append(nil))
			}
			w.Run(c.delay / 10)
		}
		from := w.Now()
		w.RunOps(20*time.Second, op)
		w.Want("ok", op)
		if took := w.Now() - from; took > c.most {
			t.Errorf("round trip %v: the rest of the message took %v", 2*c.delay, took)
		}
		settle(w)
	}
}
