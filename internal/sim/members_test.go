package sim_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file tests what holders of a key of the cluster can do, and what becomes of keys while
// data flows.

func domain(f func(*tss.Config)) func(*simtest.Spec) {
	return func(s *simtest.Spec) { s.Domain = f }
}

// T26: a sibling that knows all numbers of a PDC and forges addresses does no more to it than
// without the key, unless it uses both name and address of the peer. In cluster mode every
// member could seal as any other, but a source keeps its address, and a PDC belongs to one life
// of one source.
func TestT26SiblingTouchesNoPDC(t *testing.T) {
	w := pair(t, 550, lan, secure(transport.SecureOneRTT), hostile, smallWindow)
	a, b := w.Hosts[0], w.Hosts[1]
	wantStream(t, w, 4)
	back := b.Post(tsend(0, 100)) // B has a PDC to A as well
	a.Post(trecv(100))
	w.RunOps(time.Second, back)
	dark := lan
	dark.Loss = 1
	w.Line(1, 0).SetFaults(dark)
	op := a.Post(tsend(1, 100_000))
	b.Post(trecv(100_000))
	w.Run(ms)
	var p, in simtest.PDC
	for _, q := range w.PDCs(0) {
		if q.Forward && q.Sent > 20 {
			p = q
		}
	}
	for _, q := range w.PDCs(1) {
		if q.Forward {
			in = q
		}
	}
	if p.Remote == 0 || in.Remote == 0 {
		t.Fatalf("no PDCs each way in %+v, %+v", w.PDCs(0), w.PDCs(1))
	}

	name := b.FEP.Config().TSS.Self()
	elsewhere := netip.MustParseAddrPort("10.0.0.77:4793")
	psn := wire.PSN(p.Start + uint32(p.Sent) - 1)
	next := in.Start + uint32(in.Sent)
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 999, JobID: 1, RI: 15, Initiator: 16, ReqLen: 16, Match: 1}
	data := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagAR, PSN: wire.PSN(next), SPDCID: in.ID, DPDCID: in.Remote, ClearOff: -1}
	packets := [][]byte{
		ackCC(p, uint32(psn), 0, 1, 0),
		wire.CP{Ctl: wire.CtlCloseReq, SPDCID: p.Remote, DPDCID: p.ID, PSN: psn}.Append(nil),
		wire.CP{Ctl: wire.CtlClear, SPDCID: in.ID, DPDCID: in.Remote, Payload: next - 1}.Append(nil),
		wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, SPDCID: in.ID, DPDCID: in.Remote, PSN: wire.PSN(next)}.Append(nil),
		request(in.ID, in.Start, in.Start, q, 16),
		append(q.Append(data.Append(nil)), make([]byte, 16)...),
	}
	for code := range 0x30 {
		switch c := wire.NackCode(code); c {
		case wire.NackInvDPDCID, wire.NackPDCHdrMismatch, wire.NackInvalidSyn:
			// Another life of the peer may say these (F12), and any member at the peer's
			// address can.
		default:
			packets = append(packets, wire.Nack{Type: wire.TypeNack, Code: c, PSN: psn, SPDCID: p.Remote, DPDCID: p.ID, Payload: 1 << 20}.Append(nil))
		}
	}
	pdcs := a.FEP.PDCs()
	for _, c := range []struct {
		name   string
		member *simtest.Member
		from   netip.AddrPort
		why    []transport.DropReason
	}{
		{"its own name, the peer's address", w.Member(0x51b1, 7), b.Addr(), []transport.DropReason{transport.DropBinding}},
		{"another life of the peer", w.Member(name.SSI(), name.Epoch()+1), b.Addr(), []transport.DropReason{transport.DropBinding}},
		{"the peer's name, its own address", w.Member(name.SSI(), name.Epoch()), elsewhere, []transport.DropReason{transport.DropBinding}},
		{"its own name and address", w.Member(0x51b1, 8), elsewhere, []transport.DropReason{transport.DropSource, transport.DropNoPDC}},
	} {
		drops := func() (n uint64) {
			st := a.FEP.Stats()
			for _, r := range c.why {
				n += st.Drops[r]
			}
			return n
		}
		mine := packets
		if c.from == elsewhere && len(c.why) == 2 {
			mine = append(mine[:4:4], packets[5:]...) // a SYN of the member opens a PDC of its own
		}
		before := drops()
		for range 2 { // a fatal packet counts when it comes twice, an RTO apart
			for _, b := range mine {
				c.member.Forge(0, c.from, b)
			}
			w.Run(500 * us)
		}
		if n := drops() - before; n != uint64(2*len(mine)) {
			t.Errorf("%s: %d of %d packets are dropped as such", c.name, n, 2*len(mine))
		}
		if n := a.FEP.PDCs(); n != pdcs || !op.Open() {
			t.Errorf("%s: %d PDCs of %d are left; %v open: %v", c.name, n, pdcs, op, op.Open())
		}
	}
	w.SetFaults(lan)
	w.RunOps(time.Second, op)
	w.Want("ok", op)
	again := b.Post(tsend(0, 100))
	a.Post(trecv(100))
	w.RunOps(time.Second, again)
	w.Want("ok", again)
	settle(w)
}

// T41: ten times as many packets that do not verify as the domain allows close nothing. Traffic
// goes on during them and after, they are counted, the domain asks for another key, and the
// owner is told now and then who it is.
func TestT41FailuresCloseNothing(t *testing.T) {
	var hints []transport.Hint
	w := pair(t, 560, lan, secure(transport.SecureOneRTT), hostile, domain(func(c *tss.Config) { c.MaxAuthFailures = 1000 }),
		only(1, func(c *transport.Config) { c.Hint = func(h transport.Hint) { hints = append(hints, h) } }))
	a, b := w.Hosts[0], w.Hosts[1]
	stream(w, tsend(1, 20_000), 10, 2)
	h := wire.TSS{SP: true, SDI: simtest.SDI, SSI: a.FEP.Config().TSS.Self().SSI(), Epoch: a.FEP.Config().TSS.Self().Epoch()}
	n := 0
	var flood func()
	flood = func() {
		for range 100 {
			h.TSC = uint64(n)
			n++
			w.Forge(1, a.Addr(), append(h.Append(nil), make([]byte, 80)...), false)
		}
		if n < 10_000 {
			w.Net.After(ms, flood)
		}
	}
	flood()
	stream(w, tsend(1, 20_000), 50, 2)
	w.RunUntil(time.Second, "the flood ends", func() bool { return n >= 10_000 })
	w.Run(ms)
	stream(w, tsend(1, 20_000), 10, 2)
	if got := b.FEP.Stats().Drops[transport.DropAuth]; got != uint64(n) {
		t.Errorf("%d of %d are counted", got, n)
	}
	if !b.FEP.Config().TSS.Worn() || a.FEP.Config().TSS.Worn() {
		t.Error("the wrong domain wants another key, or none")
	}
	if len(hints) != 1 || hints[0].Peer != a.Addr() || hints[0].Reason != transport.DropAuth {
		t.Errorf("hints %+v", hints)
	}
	settle(w)
}

// both keeps count messages of n bytes under way in each direction until stop, between hosts
// that are drained, and returns all.
func both(w *simtest.World, stop time.Duration, n, count int) *[]*simtest.Op {
	ops := new([]*simtest.Op)
	for i, h := range w.Hosts[:2] {
		next := func() { *ops = append(*ops, h.Post(tsend(1-i, n))) }
		h.OnEvent(func(o *simtest.Op) {
			if o.Kind == transport.OpTSend && w.Now() < stop {
				next()
			}
		})
		for range count {
			next()
		}
	}
	w.Drain(count)
	return ops
}

// F33: while data flows both ways over a bad network, one side changes the key it seals with,
// then the other. No message is lost and no packet refused. What was sealed with the old key
// opens for 4 s more, and not after.
func TestF33RotationUnderTraffic(t *testing.T) {
	for name, how := range bothWays {
		t.Run(name, func(t *testing.T) {
			bad := sim.Faults{Delay: 50 * us, Jitter: 100 * us, Loss: 0.05, Reorder: 0.05, ReorderBy: 8, Duplicate: 0.05, DuplicateMax: 2, DuplicateLate: 10 * ms}
			w := pair(t, 570, bad, secure(how), hostile)
			a, b := w.Hosts[0], w.Hosts[1]
			rec := record(w)
			ops := both(w, w.Now()+700*ms, 20_000, 1)
			w.Run(50 * ms)
			a.NewKey()
			w.Run(50 * ms)
			b.NewKey()
			w.Run(50 * ms)
			a.UseKey()
			used, sealed := w.Now(), len(rec.pkts)
			w.Run(250 * ms)
			b.UseKey()
			w.Run(400 * ms)
			w.RunOps(5*time.Second, *ops...)
			w.Want("ok", *ops...)
			count := map[*simtest.Host][2]int{}
			var last sim.Packet // a packet of B's under the old key
			for i, p := range rec.pkts {
				h, _, err := wire.ParseTSS(p.Data)
				if err != nil {
					t.Fatal(err)
				}
				from := a
				if p.From == b.Node {
					from = b
					if h.AN == 0 {
						last = p
					}
				} else if now := i >= sealed; now != (h.AN == 1) {
					t.Fatalf("datagram %d of A's is sealed with key %d", i, h.AN)
				}
				n := count[from]
				n[h.AN]++
				count[from] = n
			}
			for h, n := range count {
				if n[0] < 100 || n[1] < 100 {
					t.Errorf("%s sealed %v packets with the two keys: the test does not test", h.Name(), n)
				}
			}
			drops := func() (key, other uint64) {
				st := a.FEP.Stats()
				return st.Drops[transport.DropKey], st.Drops[transport.DropAuth] + st.Drops[transport.DropBinding] + b.FEP.Stats().Drops[transport.DropKey]
			}
			if key, other := drops(); key+other != 0 {
				t.Errorf("%d packets found no key, %d did not verify", key, other)
			}
			for _, c := range []struct {
				at   time.Duration
				want uint64
			}{{3900 * ms, 0}, {4100 * ms, 1}} {
				w.Run(used + c.at - w.Now())
				in := a.FEP.Config().TSS.Stats().In
				w.Forge(0, b.Addr(), last.Data, false)
				w.Run(ms)
				if key, other := drops(); key != c.want || other != 0 || a.FEP.Config().TSS.Stats().In-in != 1-c.want {
					t.Errorf("%v after the change: %d packets found no key, %d did not verify, %d were opened", c.at, key, other, a.FEP.Config().TSS.Stats().In-in)
				}
			}
			w.Heal()
			settle(w)
		})
	}
}

// F34: a key is good for a limited number of packets, here 4000. If it is changed in time,
// nothing is noticed.
func TestF34KeyIsChangedBeforeItsEnd(t *testing.T) {
	w := pair(t, 580, sim.Faults{Delay: 50 * us, Loss: 0.02}, secure(transport.SecureZeroRTT), domain(func(c *tss.Config) { c.MaxFrames = 4000 }))
	a, b := w.Hosts[0], w.Hosts[1]
	least := uint64(4000)
	var tend func()
	tend = func() {
		left := a.FEP.Config().TSS.Left()
		if least = min(least, left); left < 2000 {
			b.NewKey()
			a.NewKey()
			a.UseKey()
			b.UseKey() // A opens what the old key sealed for 4 s only
			return
		}
		w.Net.After(ms, tend)
	}
	tend()
	stream(w, tsend(1, 20_000), 250, 4) // 20 packets each
	if n := w.PacketsFrom(0); n < 4500 || n > 7500 {
		t.Fatalf("%d packets: the test does not test", n)
	}
	if st := a.FEP.Config().TSS.Stats(); st.Exhausted != 0 || least >= 2000 {
		t.Errorf("%d packets found no TSC, at least %d were left", st.Exhausted, least)
	}
	settle(w)
}

// securedFuzz makes the world of FuzzSecuredDatagrams, with PDCs both ways. What it has sent so
// far is the same each time.
func securedFuzz(t testing.TB) (*simtest.World, *recorder) {
	w := pair(t, 590, sim.Faults{Delay: 10 * us, Drop: []uint64{4}}, secure(transport.SecureOneRTT), hostile)
	rec := record(w)
	a, b := w.Hosts[0], w.Hosts[1]
	opened := append(post(a, tsend(1, 1000), 1), post(b, ordered(tsend(0, 1000)), 3)...)
	w.Run(100 * us)
	post(a, trecv(4000), 4)
	post(b, trecv(4000), 2)
	w.RunOps(time.Second, opened...)
	w.Run(ms)
	return w, rec
}

// These values choose who seals a datagram of FuzzSecuredDatagrams.
const (
	nobodySeals = iota // sent as it is, whole sealed packets among them
	siblingSeals
	peerSeals // the peer itself, or somebody with its name and address
	siblingElsewhere
	numSealers
)

// FuzzSecuredDatagrams sends whole datagrams into an established secured FEP: recorded ones
// with changes, and anything sealed with the right key by a hostile member. Nothing may panic
// or cause a storm, everything must still end, and what does not open changes nothing.
func FuzzSecuredDatagrams(f *testing.F) {
	_, rec := securedFuzz(f)
	for _, p := range rec.pkts {
		f.Add(p.Data, uint8(nobodySeals))
	}
	for _, p := range captured(f) {
		for by := range uint8(numSealers) {
			f.Add(p, by)
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, by uint8) {
		if len(p) > 65000 {
			return
		}
		w, _ := securedFuzz(t)
		a, b := w.Hosts[0], w.Hosts[1]
		name := b.FEP.Config().TSS.Self()
		from := b.Addr()
		m := w.Member(0x51b1, 3)
		shoot := func(b []byte) { m.Forge(0, from, b) }
		switch by {
		case nobodySeals:
			shoot = func(b []byte) { w.Forge(0, from, b, false) }
		case siblingSeals:
		case peerSeals:
			m = w.Member(name.SSI(), name.Epoch())
		case siblingElsewhere:
			from = netip.MustParseAddrPort("10.0.0.77:4793")
		default:
			return
		}
		// Put PDCIDs and PSNs of this run where they belong.
		variants := [][]byte{p}
		for from := range 2 {
			pdcs := w.PDCs(from)
			if len(pdcs) == 0 || len(p) < 12 || by == nobodySeals {
				continue
			}
			q := append([]byte(nil), p...)
			id, remote := pdcs[0].ID, pdcs[0].Remote
			if from == 0 {
				id, remote = remote, id
			}
			binary.BigEndian.PutUint32(q[4:], pdcs[0].Start+binary.BigEndian.Uint32(q[4:])%8)
			binary.BigEndian.PutUint16(q[8:], id)
			binary.BigEndian.PutUint16(q[10:], remote)
			variants = append(variants, q)
		}
		if by != nobodySeals {
			w.Forged()
		}
		open := a.Post(tsend(1, 3000))
		for _, v := range variants {
			before := w.PacketsFrom(0)
			shoot(v)
			w.Run(20 * us)
			if n := w.PacketsFrom(0) - before; n > 8 { // those of the message under way included
				t.Errorf("one datagram drew %d", n)
			}
		}
		if n := a.FEP.Stats().Drops[transport.DropAuth]; n != 0 && by != nobodySeals {
			t.Fatalf("%d packets of a member do not open: the test does not test", n)
		}
		w.RunOps(90*time.Second, open)
		if by == nobodySeals && !open.OK() {
			t.Errorf("what nobody sealed ended %v: %v", open, open.Cause())
		}
		w.Settle(90 * time.Second)
	})
}
