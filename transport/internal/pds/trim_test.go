package pds

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// trimmed delivers what a switch left of request i and reports whether it was answered.
func (x *pdcTest) trimmed(from netip.AddrPort, small bool, i int, opts ...func(*wire.Req)) bool {
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, PSN: x.psn(i), ClearOff: int16(-1 - i), SPDCID: 9, DPDCID: x.p.id}
	for _, o := range opts {
		o(&h)
	}
	return x.tab.ReceiveTrimmed(x.in(from), &h, wire.NackTrimmedLastHop, small)
}

func synOf(offset int) func(*wire.Req) {
	return func(h *wire.Req) { h.Flags, h.DPDCID, h.PSNOffset = wire.FlagSYN, 0, uint16(offset) }
}

func TestTrimmedIsRefused(t *testing.T) {
	// S-TRIM-02: NACK 01 or 02 names the PSN and both PDCIDs, echoes CE, and goes back by
	// the way that the packet came. The packet has no other effect.
	x := newTarget(t)
	x.recv(1)
	x.recv(3)
	x.acks()
	state := func() string { return fmt.Sprintf("%+v %+v", *x.p, *x.p.rx) }
	was := state()
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagAR, PSN: x.psn(2), ClearOff: -1, SPDCID: 9, DPDCID: x.p.id}
	x.now += time.Millisecond
	from := netip.AddrPortFrom(peerAddr.Addr(), 55555) // by another path of the peer
	for _, code := range []wire.NackCode{wire.NackTrimmed, wire.NackTrimmedLastHop} {
		for _, ce := range []bool{false, true} {
			in := x.in(from)
			in.Path, in.CE = 7, ce
			if !x.tab.ReceiveTrimmed(in, &h, code, false) {
				t.Fatal("no answer")
			}
			l, _ := x.tab.NextLoose()
			n, _, err := wire.ParseNack(l.B[:l.N])
			want := wire.Nack{Type: wire.TypeNack, Code: code, PSN: x.psn(2), SPDCID: x.p.id, DPDCID: 9}
			if ce {
				want.Flags = wire.NackFlagM
			}
			if err != nil || n != want || l.Remote != from || l.Path != 7 {
				t.Errorf("%v to %v by path %d (%v), want %v to %v by 7", n, l.Remote, l.Path, err, want, from)
			}
		}
	}
	if is := state(); is != was {
		t.Errorf("the PDC changed:\n%s\n%s", was, is)
	}
	x.recv(2)
	x.wantTold("deliver 1", "deliver 3", "deliver 2")
}

func TestTrimmedWithoutAnswer(t *testing.T) {
	x := newTarget(t)
	x.recv(1)
	x.recv(3)
	x.acks()
	strange := netip.MustParseAddrPort("198.18.9.9:4793")
	for name, c := range map[string]struct {
		from netip.AddrPort
		i    int
		opt  func(*wire.Req)
	}{
		"below the window":      {peerAddr, 1, nil},
		"received":              {peerAddr, 3, nil},
		"beyond the window":     {peerAddr, 2 + 256, nil},
		"another source":        {strange, 2, nil},
		"another SPDCID":        {peerAddr, 2, func(h *wire.Req) { h.SPDCID = 8 }},
		"no such DPDCID":        {peerAddr, 2, func(h *wire.Req) { h.DPDCID ^= 1 }},
		"another mode":          {peerAddr, 2, rod},
		"a SYN from elsewhere":  {strange, 2, synOf(2)},
		"a SYN of another life": {peerAddr, 2, synOf(1)},
		"a SYN of a new PDC":    {peerAddr, 2, func(h *wire.Req) { synOf(2)(h); h.SPDCID = 8 }},
	} {
		if c.opt == nil {
			c.opt = func(*wire.Req) {}
		}
		if x.trimmed(c.from, false, c.i, c.opt) {
			t.Errorf("%s: answered", name)
		}
	}
	x.wantLoose()
	if x.tab.Len() != 1 {
		t.Errorf("%d PDCs", x.tab.Len())
	}
	if !x.trimmed(peerAddr, false, 2) || !x.trimmed(peerAddr, false, 2, synOf(2)) || !x.trimmed(peerAddr, true, 2) {
		t.Error("no answer to what is missing")
	}
	x.wantLoose("NACK TRIMMED_LASTHOP", "NACK TRIMMED_LASTHOP", "NACK TRIMMED_LASTHOP")
}

func TestTrimmedEarlyOrdered(t *testing.T) {
	// ROD: an early packet has arrived, so its trimmed copy gets no NACK.
	x := newTarget(t, rod)
	x.recv(2, rod)
	if x.trimmed(peerAddr, false, 2, rod) || x.trimmed(peerAddr, false, 0, rod) {
		t.Error("a packet that is held, or was executed, is refused")
	}
	if !x.trimmed(peerAddr, false, 1, rod) || !x.trimmed(peerAddr, false, 3, rod) {
		t.Error("no answer to what is missing")
	}
}

func TestTrimmedSmallAndUnproven(t *testing.T) {
	// T27: a source that is not proven gets no NACK that is longer than the packet that it
	// answers.
	x := newTable(t, nil)
	x.recv(0)
	if x.trimmed(peerAddr, true, 1, synOf(1)) {
		t.Error("a NACK that is longer went to who may not be there")
	}
	if !x.trimmed(peerAddr, false, 1, synOf(1)) {
		t.Error("no answer to a longer one")
	}
	x.p.markProven()
	if !x.trimmed(peerAddr, true, 1, synOf(1)) {
		t.Error("no answer to who proved to be there")
	}
}

func TestTrimmedAtInitiator(t *testing.T) {
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.ack(0, 0)
	if x.trimmed(peerAddr, false, 1, func(h *wire.Req) { h.SPDCID = 77 }) {
		t.Error("an initiator refuses a packet")
	}
}

func TestNackTrimmedBlamesThePath(t *testing.T) {
	// UE 3.6.16: TRIMMED is reported as congestion of the path, TRIMMED_LASTHOP is not,
	// unless it has CE.
	for _, c := range []struct {
		code wire.NackCode
		ce   bool
		want []string
	}{
		{wire.NackTrimmed, false, []string{"path 0 good", "path 0 marked"}},
		{wire.NackTrimmedLastHop, false, []string{"path 0 good"}},
		{wire.NackTrimmedLastHop, true, []string{"path 0 good", "path 0 marked"}},
		{wire.NackTrimmedAck, false, nil},
	} {
		x := newTable(t, func(c *Config) { c.Paths = 8 })
		x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
		x.push(3)
		x.ack(0, 0)
		x.forget()
		n := wire.Nack{Type: wire.TypeNack, Code: c.code, PSN: x.psn(1), SPDCID: 77, DPDCID: x.p.id}
		if c.ce {
			n.Flags |= wire.NackFlagM
		}
		x.tab.ReceiveNack(x.in(peerAddr), &n)
		x.tab.ReceiveNack(x.in(peerAddr), &n) // no news
		x.wantTold(c.want...)
		x.wantResend(1)
		// UE 3.6.13: code 03 is about the way back.
		if n := x.ccc.trimmed; (n == 1000) == (c.code == wire.NackTrimmedAck) || n != 0 && n != 1000 {
			t.Errorf("%v: the window heard of %d trimmed bytes", c.code, n)
		}
	}
}

func TestNackTrimmedAgainAndAgain(t *testing.T) {
	// F35, every packet is trimmed: at first each is resent for its NACK, then one per
	// round trip, and the others by the RTO.
	x := newInitiator(t, wire.RUD)
	x.push(4)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	round := func(want ...int) {
		for i := 1; i <= 3; i++ {
			x.nack(wire.NackTrimmed, i, 0)
		}
		x.wantResend(want...)
		x.now += 100 * time.Microsecond
	}
	for range trimPatience {
		round(1, 2, 3)
	}
	for range 5 {
		round(1)
	}
	x.p.tx.rtt = 250 * time.Microsecond // smoothed: the queue causes the delay
	for range 3 {
		round()
		round()
		round(1)
	}
	x.now += 20 * time.Millisecond
	x.tab.Advance(x.now)
	if !x.p.CanResend() {
		t.Error("the RTO does not send the others again")
	}
}

func TestNackTrimmedIsOneResend(t *testing.T) {
	// T33: one resend per PSN and round trip, whatever else reports its loss.
	x := newInitiator(t, wire.RUD)
	x.push(6)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.nack(wire.NackTrimmed, 1, 0)
	x.nack(wire.NackTrimmed, 1, 0)
	x.wantResend(1)
	x.now += 50 * time.Microsecond
	x.nack(wire.NackTrimmedLastHop, 1, 0)     // about the first transmission
	x.ack(0, 5, sack(2, 2, 3, 4, 5), flag(0)) // later packets arrived
	x.now += 20 * time.Microsecond
	x.tab.Advance(x.now)
	x.wantResend()
	x.now += 40 * time.Microsecond
	x.nack(wire.NackTrimmed, 1, 0) // about the second transmission
	x.wantResend(1)
	x.nack(wire.NackTrimmed, 3, 0) // packet 3 has arrived
	x.wantResend()
	if x.tab.Stats.RtxNack != 2 {
		t.Errorf("%d resends for NACKs", x.tab.Stats.RtxNack)
	}

	// After the RTO has resent it, the NACK of the first transmission is late.
	x = newInitiator(t, wire.RUD)
	x.push(2)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	x.advance(20 * time.Millisecond)
	for x.p.CanResend() {
		x.p.Resend(x.now, 0)
	}
	x.now += 10 * time.Microsecond
	x.nack(wire.NackTrimmed, 1, 0)
	x.wantResend()
}

func TestNackTrimmedBeforeAnyAnswer(t *testing.T) {
	// An initiator that knows no round trip yet resends a trimmed SYN once, and then by the
	// RTO.
	x := newInitiator(t, wire.RUD)
	x.push(2)
	x.nack(wire.NackTrimmed, 1, 0)
	x.wantResend(1)
	for range 100 {
		x.now += 10 * time.Microsecond
		x.nack(wire.NackTrimmed, 1, 0)
	}
	x.wantResend()
}

func TestNackTrimmedPutsOffTheTimers(t *testing.T) {
	// The path works: while NACKs come, the RTO takes nothing for lost.
	x := newInitiator(t, wire.RUD)
	x.push(3)
	x.now += 100 * time.Microsecond
	x.ack(0, 0)
	for range 20 {
		x.advance(2 * time.Millisecond) // altogether far beyond the RTO
		x.nack(wire.NackTrimmed, 1, 0)
		x.wantResend(1)
	}
	if x.tab.Stats.RtxRTO != 0 {
		t.Errorf("%d resends by the RTO", x.tab.Stats.RtxRTO)
	}
	x.advance(20 * time.Millisecond)
	x.wantResend(1, 2)
	if x.tab.Stats.RtxRTO != 2 {
		t.Errorf("in silence %d resends by the RTO", x.tab.Stats.RtxRTO)
	}
}

func TestNackTrimmedThatIsOldPutsOffNothing(t *testing.T) {
	// F4, F35: packets that were trimmed are resent and lost. Copies of their NACKs, which the network brings
	// for long, show nothing about the resends: the timers run.
	x := newInitiator(t, wire.RUD)
	x.push(40)
	x.now += 3 * time.Millisecond
	x.ack(0, 0)
	for i := 1; i < 40; i++ {
		x.nack(wire.NackTrimmed, i, 0)
	}
	x.ccc.window = 39_000
	for x.p.CanResend() {
		x.p.Resend(x.now, 0)
	}
	x.ccc.window = 5000 // as after losses
	begin := x.now
	for i := 1; x.tab.Stats.RtxRTO == 0 && !x.p.CtlOwed(); i++ {
		if x.advance(4 * time.Millisecond); i == 39 {
			t.Fatalf("neither a PROBE nor an RTO in %v", x.now-begin)
		}
		x.nack(wire.NackTrimmed, i, 0)
	}
	if took := x.now - begin; took > 30*time.Millisecond {
		t.Errorf("a PROBE or an RTO after %v", took)
	}
}

// A packet that was trimmed before the last hop and arrived when it was sent once more by another path says that
// the path was slow, if its ACK has a round trip and no mark.
func TestTrimmedPassesByAnotherPath(t *testing.T) {
	for _, c := range []struct {
		name  string
		paths int
		code  wire.NackCode
		flags wire.Flags
		again bool
		want  int
	}{
		{"passed", 8, wire.NackTrimmed, wire.AckFlagRETX, false, 1000},
		{"one path", 1, wire.NackTrimmed, wire.AckFlagRETX, false, 0},
		{"last hop", 8, wire.NackTrimmedLastHop, wire.AckFlagRETX, false, 0},
		{"marked", 8, wire.NackTrimmed, wire.AckFlagRETX | wire.AckFlagM, false, 0},
		{"trimmed twice", 8, wire.NackTrimmed, wire.AckFlagRETX, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTable(t, func(cfg *Config) { cfg.Paths = c.paths })
			x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
			x.push(3)
			x.now += time.Millisecond
			x.ack(0, 0)
			x.nack(c.code, 1, 0)
			x.wantResend(1)
			x.now += time.Millisecond
			if c.again {
				x.nack(c.code, 1, 0)
				x.wantResend(1)
				x.now += time.Millisecond
			}
			x.ack(1, 1, flag(c.flags))
			x.ack(2, 2)
			if x.ccc.passed != c.want {
				t.Errorf("the window heard of %d bytes, want %d", x.ccc.passed, c.want)
			}
		})
	}
}

func TestTrimmedPassesOnce(t *testing.T) {
	// An ACK that says by SACK that the resend of a trimmed packet arrived, and one that covers it, tell of one arrival.
	x := newTable(t, func(cfg *Config) { cfg.Paths = 8 })
	x.p = x.tab.Open(x.now, 1, peerAddr, wire.RUD, x.ccc)
	x.push(5)
	x.now += time.Millisecond
	x.ack(0, 0)
	x.nack(wire.NackTrimmed, 2, 0)
	x.wantResend(2)
	x.now += time.Millisecond
	x.ack(0, 3, sack(1, 2, 3))
	once := x.ccc.passed
	x.now += time.Millisecond
	x.ack(3, 1)
	if once == 0 || x.ccc.passed != once {
		t.Errorf("%d bytes passed, then %d", once, x.ccc.passed)
	}
}
