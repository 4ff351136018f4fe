package pds

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// A pdcTest is one Table with one PDC, driven by a script: what goes in, and what must come
// out in which order.
type pdcTest struct {
	t       *testing.T
	tab     *Table
	p       *PDC
	now     time.Duration
	told    []string // what the owner was told
	ccc     *fixedCCC
	open    map[uint32]bool // slots with incomplete inbound messages
	looks   int             // how often open was read
	asked   map[uint32]bool // by Slot: read data was asked for
	awaits  map[uint32]bool // slots with a promised RESPONSE
	expects map[uint32]bool // messages with a promised RESPONSE

	sender uint64 // Arrival.Who
	paused bool
	waited time.Duration
	taken  bool

	guesses int // how often guesses were reported
	instead int // nominal size of the replacement of a packet given up, 0 for none
}

const testStart wire.PSN = 0xffff_fff0 // so that every script crosses 2^32

var (
	peerAddr  = netip.MustParseAddrPort("198.18.0.2:4793")
	otherAddr = netip.MustParseAddrPort("198.18.0.3:4793")
)

// fixedCCC is a window of fixed size that counts what it is told.
type fixedCCC struct {
	window, inFlight int
	srtt             time.Duration
	lost, nacked     int
	trimmed          int // trimmed bytes of nacked
	spurious, taken  int
	acked            int
	passed           int
}

func (c *fixedCCC) CanSend(n int) bool { return c.inFlight+n <= c.window }
func (c *fixedCCC) OnSend(_ time.Duration, n int) bool {
	c.inFlight += n
	return false
}
func (c *fixedCCC) OnAck(_ time.Duration, n int, rtt time.Duration, _ bool, _ uint8, _ bool) {
	c.inFlight -= n
	c.acked += n
	if rtt > 0 {
		c.srtt = rtt
	}
}
func (c *fixedCCC) OnLoss(_ time.Duration, n int, _ bool) { c.inFlight -= n; c.lost += n }
func (c *fixedCCC) OnTaken()                              { c.taken++ }
func (c *fixedCCC) OnSpurious()                           { c.spurious++ }
func (c *fixedCCC) OnNack(_ time.Duration, n int, trimmed bool) {
	c.inFlight -= n
	c.nacked += n
	if trimmed {
		c.trimmed += n
	}
}
func (c *fixedCCC) OnPassed(n int, _ time.Duration) { c.passed += n }
func (c *fixedCCC) OnGone(n int)                    { c.inFlight -= n }
func (c *fixedCCC) SRTT() time.Duration             { return c.srtt }
func (c *fixedCCC) RTO() time.Duration              { return 5 * time.Millisecond }
func (c *fixedCCC) Window() int                     { return c.window }
func (c *fixedCCC) InFlight() int                   { return c.inFlight }

func testConfig() Config {
	return Config{
		MPRange: 256, TxWindow: 256, EarlyBytes: 4096, Nominal: 48,
		Limits: Limits{
			AckTrigger: 16 << 10, AckMinAdd: 1 << 10, AckDelay: 20 * time.Microsecond,
			RTOInit: 5 * time.Millisecond, RTOMax: 500 * time.Millisecond, PeerTimeout: 40 * time.Second,
			SuspectTimeout: 3 * time.Second, NewPDCTime: time.Second, CloseReqTime: time.Second, Quarantine: 4 * time.Second,
			IdleClose: 30 * time.Second, MaxPDCs: 100, MaxPDCsPerSource: 50, MaxPDCsUnknown: 50, MaxPending: 20,
			MaxPendingPerSource: 10, MaxQuarantine: 100,
			StartPSN: func() wire.PSN { return testStart },
		},
	}
}

func newTable(t *testing.T, change func(*Config)) *pdcTest {
	cfg := testConfig()
	if change != nil {
		change(&cfg)
	}
	x := &pdcTest{t: t, now: time.Second, ccc: &fixedCCC{window: 1 << 20}, open: map[uint32]bool{}, awaits: map[uint32]bool{}, expects: map[uint32]bool{}}
	x.tab = New(cfg, rand.New(rand.NewPCG(1, 2)), x)
	return x
}

// newInitiator opens a PDC; newTarget lets a first SYN packet make one.
func newInitiator(t *testing.T, mode wire.Mode) *pdcTest {
	x := newTable(t, nil)
	x.p = x.tab.Open(x.now, 1, peerAddr, mode, x.ccc)
	return x
}

func (x *pdcTest) say(f string, a ...any) { x.told = append(x.told, fmt.Sprintf(f, a...)) }

func (x *pdcTest) Noop(r piece.Piece) (piece.Piece, int) {
	return piece.Piece{Msg: r.Msg, Kind: piece.Noop}, 100
}

func (x *pdcTest) GiveUp(p *PDC, r piece.Piece, code wire.NackCode) (piece.Piece, int) {
	if x.instead != 0 && r.Kind == 0 {
		return piece.Piece{Msg: r.Msg, Kind: 1}, x.instead
	}
	x.say("failed %d %d %v", r.Msg, WhyNotReady, code)
	return piece.Piece{}, 0
}
func (x *pdcTest) Expects(msg uint32) bool   { return x.expects[msg] }
func (x *pdcTest) Asked(p *PDC) bool         { return x.asked[p.Slot] }
func (x *pdcTest) Awaits(p *PDC) bool        { return x.awaits[p.Slot] }
func (x *pdcTest) InboundOpen(p *PDC) bool   { x.looks++; return x.open[p.Slot] }
func (x *pdcTest) Known(netip.AddrPort) bool { return false }
func (x *pdcTest) Pending(p *PDC) bool       { return false }

// heed consumes the news and writes down what became of packets, paths and PDCs.
func (x *pdcTest) heed() {
	for n := x.tab.NextNews(); n != nil; n = x.tab.NextNews() {
		switch n.Kind {
		case NewsAnswered:
			x.answered(n.Piece.Msg, n.Rsp)
		case NewsPassed:
			for _, msg := range n.Msgs {
				x.answered(msg, nil)
			}
		case NewsFailed:
			if n.Unrun {
				x.say("taken back %d", n.Piece.Msg)
				continue
			}
			x.say("failed %d %d %v", n.Piece.Msg, n.Why.Why, n.Why.Nack)
		case NewsGone:
			x.say("gone %d", n.Why.Why)
		case NewsPath:
			x.say("path %d %s", n.Path, [...]string{"good", "marked", "lost"}[n.PathNews])
		case NewsGuessed:
			x.guesses++
		}
	}
}

func (x *pdcTest) answered(msg uint32, rsp *wire.Rsp) {
	if rsp == nil {
		x.say("answered %d default", msg)
	} else {
		x.say("answered %d %v", msg, rsp.RC)
	}
}

// news is what the owner was told since forget.
func (x *pdcTest) news() []string { x.heed(); return x.told }
func (x *pdcTest) forget()        { x.heed(); x.told = nil }
func (x *pdcTest) guessed() int   { x.heed(); return x.guesses }

func (x *pdcTest) psn(i int) wire.PSN      { return testStart.Add(i) }
func (x *pdcTest) advance(d time.Duration) { x.now += d; x.tab.Advance(x.now) }

// wantTold checks and forgets what the owner was told.
func (x *pdcTest) wantTold(want ...string) {
	x.t.Helper()
	if got, w := strings.Join(x.news(), "; "), strings.Join(want, "; "); got != w {
		x.t.Fatalf("told %q, want %q", got, w)
	}
	x.told = nil
}

// in is the Arrival of a packet from an address.
func (x *pdcTest) in(from netip.AddrPort) *Arrival {
	return &Arrival{Now: x.now, From: from, Who: x.sender, Paused: x.paused, Waited: x.waited, Taken: x.taken}
}

// push sends n packets of 1,000 nominal bytes; packet i carries Piece.Msg i.
func (x *pdcTest) push(n int) {
	x.t.Helper()
	for range n {
		if !x.p.CanPush(1000) {
			x.t.Fatalf("CanPush says no at %d outstanding", x.p.Outstanding())
		}
		i := x.p.tx.nxt.Sub(testStart)
		h := x.p.pushed(x.now, piece.Piece{Msg: uint32(i)}, 1000, 0)
		if h.PSN != x.psn(int(i)) {
			x.t.Fatalf("pushed %#x, want %#x", h.PSN, x.psn(int(i)))
		}
	}
}

// wantResend resends every packet that may be sent again, and checks which they are.
func (x *pdcTest) wantResend(want ...int) {
	x.t.Helper()
	var got []int
	for x.p.CanResend() {
		a := x.p.Resend(x.now, 0)
		if a.IsCP {
			got = append(got, int(a.CP.PSN.Sub(testStart)))
			continue
		}
		if a.Req.Flags&wire.FlagRETX == 0 || a.Req.Flags&wire.FlagAR == 0 {
			x.t.Errorf("retransmission of %d without RETX and AR: %v", a.Req.PSN.Sub(testStart), a.Req)
		}
		got = append(got, int(a.Req.PSN.Sub(testStart)))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("sent again %v, want %v", got, want)
	}
}

type ackOpt func(*wire.Ack)

func sack(base int, bits ...int) ackOpt {
	return func(a *wire.Ack) {
		b := testStart.Add(base)
		a.SACKOff = int16(b.Sub(a.CACK))
		for _, i := range bits {
			a.SACK |= 1 << uint(i-base)
		}
	}
}
func mpr(n uint8) ackOpt       { return func(a *wire.Ack) { a.MPR = n } }
func req(r wire.AckReq) ackOpt { return func(a *wire.Ack) { a.Req = r } }
func flag(f wire.Flags) ackOpt { return func(a *wire.Ack) { a.Flags |= f } }

// ack delivers an ACK_CC that covers the packets up to cack (-1 for none) and names packet
// named, with RC OK.
func (x *pdcTest) ack(cack, named int, opts ...ackOpt) {
	x.t.Helper()
	a := wire.Ack{Type: wire.TypeAckCC, Next: wire.NextRsp, CACK: x.psn(cack), AckPSNOff: int16(named - cack), SPDCID: 77, DPDCID: x.p.id, MPR: 2, SACKOff: 1}
	for _, o := range opts {
		o(&a)
	}
	if rsp := (&wire.Rsp{RC: wire.RCOK}); !x.plain(peerAddr, &a, rsp) {
		x.tab.ReceiveAck(x.in(peerAddr), &a, rsp)
	}
}

// plain delivers an ACK as a plain one. It reports whether it is one that its PDC accepts.
func (x *pdcTest) plain(from netip.AddrPort, a *wire.Ack, rsp *wire.Rsp) bool {
	msg, ok := x.receivePlain(from, a, rsp)
	if ok {
		x.heed()
		x.answered(msg, rsp)
	}
	return ok
}

func (x *pdcTest) receivePlain(from netip.AddrPort, a *wire.Ack, rsp *wire.Rsp) (msg uint32, ok bool) {
	h := wire.Plain(rsp.Append(a.Append(nil)))
	if h == nil {
		return 0, false
	}
	return x.tab.ReceivePlain(x.in(from), x.tab.Lookup(h.DPDCID()), h)
}

// refuseOpening has the target refuse packet i of a PDC that opens, and again what was sent after that.
func (x *pdcTest) refuseOpening(i int) {
	x.nack(wire.NackInvalidSyn, i, 0)
	x.advance(7 * time.Millisecond)
	for x.p.CanResend() {
		x.p.Resend(x.now, 0)
	}
	x.nack(wire.NackInvalidSyn, i, 0)
}

func (x *pdcTest) nack(code wire.NackCode, i int, payload uint32) {
	x.tab.ReceiveNack(x.in(peerAddr), &wire.Nack{Type: wire.TypeNack, Code: code, PSN: x.psn(i), DPDCID: x.p.id, Payload: payload})
}

// loose removes all loose packets and returns them as strings.
func (x *pdcTest) loose() []string {
	var out []string
	for {
		l, ok := x.tab.NextLoose()
		if !ok {
			return out
		}
		b := l.B[:l.N]
		switch wire.Type(b[0] >> 3) {
		case wire.TypeNack:
			n, _, _ := wire.ParseNack(b)
			out = append(out, "NACK "+n.Code.String())
		case wire.TypeCP:
			c, _, _ := wire.ParseCP(b)
			out = append(out, "CP "+c.Ctl.String())
		case wire.TypeAck:
			a, _, _ := wire.ParseAck(b)
			out = append(out, fmt.Sprintf("ACK cack=%d psn=%d", a.CACK.Sub(testStart), a.AckPSN().Sub(testStart)))
		}
	}
}

func (x *pdcTest) wantLoose(want ...string) {
	x.t.Helper()
	if got := x.loose(); fmt.Sprint(got) != fmt.Sprint(want) {
		x.t.Fatalf("loose packets %q, want %q", got, want)
	}
}

func (x *pdcTest) checkAtRest() {
	x.p.NextCtl(x.now) // the CLEAR that greets
	x.t.Helper()
	if !x.p.AtRest() {
		x.t.Errorf("not at rest: %+v", x.p.tx)
	}
	if x.ccc.inFlight != 0 {
		x.t.Errorf("%d bytes in flight at rest", x.ccc.inFlight)
	}
}

// nextAck returns the next ACK, parsed.
func (p *PDC) nextAck(now time.Duration) (a wire.Ack, rsp *wire.Rsp) {
	n := p.AckLen()
	b := p.NextAck(now, nil)
	a, k, err := wire.ParseAck(b)
	if err != nil || len(b) != n {
		panic(fmt.Sprintf("an ACK of %d bytes, %d said before: %v", len(b), n, err))
	}
	if a.Next == wire.NextRsp {
		rsp = new(wire.Rsp)
		if _, err = rsp.Parse(b[k:]); err != nil {
			panic(err)
		}
	}
	return a, rsp
}

// pushed is Push and Header. It returns the header, parsed.
func (p *PDC) pushed(now time.Duration, what piece.Piece, n int, path uint8) *wire.Req {
	p.Push(now, what, n, path)
	h, _, err := wire.ParseReq(p.Header(nil))
	if err != nil {
		panic(err)
	}
	return &h
}

// opened is the PDC that an initiator at an address opened with a PDCID, or nil.
func (t *Table) opened(from netip.AddrPort, spdcid uint16) *PDC {
	for _, p := range t.slots {
		if p != nil && !p.initiator && p.state != Closed && p.remote == from && p.remoteID == spdcid {
			return p
		}
	}
	return nil
}

// asked is the PENDING PDC of an initiator at an address with a PDCID, or nil.
func (t *Table) asked(from netip.AddrPort, spdcid uint16) *pending {
	for e := t.pend.first; e != nil; e = e.next {
		if e.key.remote.Addr() == from.Addr() && e.key.spdcid == spdcid {
			return e
		}
	}
	return nil
}
