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

// A duo is the Table of an initiator and that of a target, with a wire between them that
// keeps every packet.
type duo struct {
	t    *testing.T
	i, r *side // the initiator, and the responder, which is the target
	all  []packet
	now  time.Duration
}

type side struct {
	*pdcTest
	addr netip.AddrPort
	who  uint64
	runs map[uint32]int // by Piece.Msg: how often a request was executed
}

// A packet is a packet that one side sent, with the life that sent it.
type packet struct {
	req   *wire.Req
	piece piece.Piece
	ack   *wire.Ack
	rsp   *wire.Rsp
	nack  *wire.Nack
	cp    *wire.CP
	who   uint64
	from  *side
}

const (
	initiatorWho = 0x0a
	targetWho    = 0x0b
	otherWho     = 0x0c
)

var (
	initiatorAddr = netip.MustParseAddrPort("198.18.0.1:4793")
	targetAddr    = peerAddr
)

func newDuo(t *testing.T, how Secure, change func(*Config)) *duo {
	d := &duo{t: t, now: time.Second}
	d.i = d.newSide(how, initiatorAddr, initiatorWho, change)
	d.r = d.newSide(how, targetAddr, targetWho, change)
	return d
}

func (d *duo) newSide(how Secure, addr netip.AddrPort, who uint64, change func(*Config)) *side {
	x := newTable(d.t, func(c *Config) {
		c.Secure, c.StartPSN = how, nil
		if change != nil {
			change(c)
		}
	})
	x.tab.rng = rand.New(rand.NewPCG(who, uint64(how)))
	x.now = d.now
	return &side{pdcTest: x, addr: addr, who: who, runs: map[uint32]int{}}
}

// open opens a PDC and sends n packets, for messages msg and following.
func (d *duo) open(mode wire.Mode, msg, n int) *PDC {
	p := d.i.tab.Open(d.now, 1, targetAddr, mode, d.i.ccc)
	d.i.p = p
	d.push(p, msg, n)
	return p
}

func (d *duo) push(p *PDC, msg, n int) (out []packet) {
	for k := range n {
		h := *p.pushed(d.now, piece.Piece{Msg: uint32(msg + k)}, 1000, 0)
		out = append(out, packet{req: &h, piece: piece.Piece{Msg: uint32(msg + k)}, who: d.i.who, from: d.i})
	}
	d.all = append(d.all, out...)
	return out
}

// sent returns everything that a side has to send.
func (d *duo) sent(s *side) []packet {
	var out []packet
	add := func(p packet) { p.who, p.from = s.who, s; out = append(out, p) }
	s.tab.Each(func(p *PDC) {
		for p.CanResend() {
			if a := p.Resend(d.now, 0); a.IsCP {
				add(packet{cp: &a.CP})
			} else {
				h := *a.Req
				add(packet{req: &h, piece: a.Piece})
			}
		}
		for p.CtlOwed() {
			if c, ok := p.NextCtl(d.now); ok {
				add(packet{cp: &c})
			}
		}
		for p.AckOwed() {
			a, rsp := p.nextAck(d.now)
			add(packet{ack: &a, rsp: rsp})
		}
	})
	for {
		l, ok := s.tab.NextLoose()
		if !ok {
			break
		}
		switch b := l.B[:l.N]; wire.Type(b[0] >> 3) {
		case wire.TypeNack:
			n, _, _ := wire.ParseNack(b)
			add(packet{nack: &n})
		case wire.TypeCP:
			c, _, _ := wire.ParseCP(b)
			add(packet{cp: &c})
		default:
			a, _, err := wire.ParseAck(b)
			if err != nil {
				d.t.Fatal(err)
			}
			add(packet{ack: &a})
		}
	}
	d.all = append(d.all, out...)
	return out
}

// deliver gives a packet to a side, which executes requests.
func (d *duo) deliver(s *side, k packet) {
	from := initiatorAddr
	if s.addr == initiatorAddr {
		from = targetAddr
	}
	in := &Arrival{Now: d.now, From: from, Who: k.who}
	switch {
	case k.ack != nil:
		s.tab.ReceiveAck(in, k.ack, k.rsp)
	case k.nack != nil:
		s.tab.ReceiveNack(in, k.nack)
	case k.cp != nil:
		s.tab.ReceiveCP(in, k.cp)
	default:
		p, v := s.tab.ReceiveReq(in, k.req)
		if p != nil && p.Peer == 0 {
			p.SetPeer(1, true)
		}
		m := Meta{PSN: k.req.PSN, Size: 1000, Len: 900, AR: true, Retx: k.req.Flags&wire.FlagRETX != 0}
		switch v {
		case Deliver:
			s.runs[k.piece.Msg]++
			p.Accept(d.now, &m, &wire.Rsp{RC: wire.RCOK}, false)
		case Keep:
			p.KeepEarly(d.now, &m, k.req.Next, []byte{byte(k.piece.Msg), byte(k.piece.Msg >> 8), byte(k.piece.Msg >> 16), byte(k.piece.Msg >> 24)})
		}
		for p != nil {
			m, _, b, ok := p.NextEarly()
			if !ok {
				break
			}
			s.runs[uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24]++
			p.Accept(d.now, &m, &wire.Rsp{RC: wire.RCOK}, false)
			p.EarlyDone()
		}
	}
}

// exchange delivers what both sides send until neither has anything.
func (d *duo) exchange(first ...packet) {
	d.t.Helper()
	for _, k := range first {
		d.deliver(d.r, k)
	}
	for range 100 {
		n := 0
		for _, k := range d.sent(d.i) {
			d.deliver(d.r, k)
			n++
		}
		for _, k := range d.sent(d.r) {
			d.deliver(d.i, k)
			n++
		}
		if n == 0 {
			return
		}
	}
	d.t.Fatal("they never stop talking")
}

func (d *duo) close(p *PDC) {
	d.t.Helper()
	d.i.tab.Close(d.now, p)
	d.i.tab.Drained(d.now, p)
	d.exchange()
	if p.State() != Closed {
		d.t.Fatalf("%v did not close", p)
	}
}

func (d *duo) advance(by time.Duration) {
	d.now += by
	d.i.tab.Advance(d.now)
	d.r.tab.Advance(d.now)
}

// wantOnce checks that messages from to to were executed once each, and no others.
func (d *duo) wantOnce(from, to int) {
	d.t.Helper()
	for m := from; m <= to; m++ {
		if n := d.r.runs[uint32(m)]; n != 1 {
			d.t.Errorf("message %d was executed %d times", m, n)
		}
	}
	if len(d.r.runs) != to-from+1 {
		d.t.Errorf("executed: %v", d.r.runs)
	}
}

// nack delivers a NACK to the initiator's PDC.
func (d *duo) nack(who uint64, code wire.NackCode, psn wire.PSN, payload uint32) {
	d.deliver(d.i, packet{nack: &wire.Nack{Type: wire.TypeNack, Code: code, PSN: psn, DPDCID: d.i.p.id, Payload: payload}, who: who})
}

// starts returns the Start_PSNs that the NACKs 0x17 among packets ask for.
func starts(k []packet) (out []wire.PSN) {
	for _, p := range k {
		if p.nack != nil && p.nack.Code == wire.NackNewStartPSN {
			out = append(out, wire.PSN(p.nack.Payload))
		}
	}
	return out
}

// syn is a request of an initiator that does not know the PDCID of the target.
func syn(psn wire.PSN, offset int, spdcid uint16) packet {
	return packet{
		req:   &wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN, PSN: psn, ClearOff: int16(-1 - offset), SPDCID: spdcid, PSNOffset: uint16(offset)},
		piece: piece.Piece{Msg: uint32(psn)}, who: initiatorWho,
	}
}

// closeCP is the CLOSE of the PDC that the target made for spdcid.
func (d *duo) closeCP(psn wire.PSN, spdcid uint16) packet {
	d.t.Helper()
	p := d.r.tab.opened(initiatorAddr, spdcid)
	if p == nil {
		d.t.Fatalf("no PDC of %d", spdcid)
	}
	return packet{cp: &wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: psn, SPDCID: spdcid, DPDCID: p.id}, who: initiatorWho}
}

// text is what a side sends, in the notation of the captures.
func text(k []packet) string {
	var out []string
	for _, p := range k {
		switch {
		case p.nack != nil:
			out = append(out, fmt.Sprintf("NACK %#x nack_psn=%#x spdcid=%d dpdcid=%d payload=%#x", uint8(p.nack.Code), uint32(p.nack.PSN), p.nack.SPDCID, p.nack.DPDCID, p.nack.Payload))
		case p.ack != nil && p.ack.Type == wire.TypeAck:
			s := fmt.Sprintf("ACK %v ack_off=%d cack=%#x", p.ack.Next, p.ack.AckPSNOff, uint32(p.ack.CACK))
			if p.ack.Flags&wire.AckFlagEPSN != 0 {
				s += fmt.Sprintf(" expected_psn=%#x", uint32(p.ack.EPSN))
			}
			out = append(out, s)
		case p.ack != nil:
			out = append(out, fmt.Sprintf("ACK_CC cack=%#x", uint32(p.ack.CACK)))
		case p.cp != nil:
			out = append(out, fmt.Sprintf("CP %v psn=%#x", p.cp.Ctl, uint32(p.cp.PSN)))
		case p.req != nil:
			s := "REQ"
			if p.req.Flags&wire.FlagSYN != 0 {
				s += " SYN"
			}
			if p.req.Flags&wire.FlagRETX != 0 {
				s += " RETX"
			}
			out = append(out, fmt.Sprintf("%s clear_off=%d psn=%#x psn_offset=%d", s, p.req.ClearOff, uint32(p.req.PSN), p.req.PSNOffset))
		}
	}
	return strings.Join(out, "; ")
}

func (d *duo) wantSent(s *side, want ...string) {
	d.t.Helper()
	if got := text(d.sent(s)); got != strings.Join(want, "; ") {
		d.t.Errorf("sent %q, want %q", got, want)
	}
}

func TestZeroRTTStaleCapture(t *testing.T) {
	// refprov-tss-cluster-0rtt-stale.pcap: a second process of the initiator opens below
	// the floor of the target.
	d := newDuo(t, SecureZeroRTT, func(c *Config) { c.StartPSN = func() wire.PSN { return 0x30000000 } })
	d.deliver(d.r, syn(0x40000000, 0, 1))
	d.wantSent(d.r, "ACK_CC cack=0x40000000")
	d.deliver(d.r, d.closeCP(0x40000001, 1))
	d.wantSent(d.r, "ACK NONE ack_off=1 cack=0x40000000 expected_psn=0x40000001")
	d.deliver(d.r, syn(0x30000000, 0, 1))
	d.wantSent(d.r, "NACK 0x17 nack_psn=0x30000000 spdcid=0 dpdcid=1 payload=0x40000001")
	d.deliver(d.r, syn(0x40000001, 0, 1))
	d.wantSent(d.r, "ACK_CC cack=0x40000001")
	d.deliver(d.r, d.closeCP(0x40000002, 1))
	d.wantSent(d.r, "ACK NONE ack_off=1 cack=0x40000001 expected_psn=0x40000002")

	// The same capture, with a PDC that this code opens as the initiator.
	d.open(wire.RUD, 0, 1)
	d.nack(targetWho, wire.NackNewStartPSN, 0x30000000, 0x40000001)
	d.wantSent(d.i, "REQ SYN clear_off=-1 psn=0x40000001 psn_offset=0")
}

func TestZeroRTTReopenCapture(t *testing.T) {
	// refprov-tss-cluster-0rtt-reopen.pcap: each closing ACK says where the next life
	// starts, so that no round trip is needed.
	d := newDuo(t, SecureZeroRTT, func(c *Config) { c.StartPSN = func() wire.PSN { return 0x71da1a49 } })
	for i, start := range []wire.PSN{0x71da1a49, 0x71da1a4a, 0x71da1a4b} {
		p := d.open(wire.RUD, i, 1)
		if p.StartPSN() != start {
			t.Fatalf("life %d starts at %#x", i, uint32(p.StartPSN()))
		}
		d.exchange(d.all[len(d.all)-1])
		d.i.tab.Close(d.now, p)
		d.i.tab.Drained(d.now, p)
		for _, k := range d.sent(d.i) {
			d.deliver(d.r, k)
		}
		k := d.sent(d.r)
		if got, want := text(k), fmt.Sprintf("ACK NONE ack_off=1 cack=%#x expected_psn=%#x", uint32(start), uint32(start+1)); got != want {
			t.Errorf("life %d closes with %q, want %q", i, got, want)
		}
		d.deliver(d.i, k[0])
	}
	if n := d.r.tab.Stats.NacksTx[wire.NackNewStartPSN]; n != 0 {
		t.Errorf("%d NACKs", n)
	}
	d.wantOnce(0, 2)
}

func TestOneRTTCapture(t *testing.T) {
	// refprov-tss-cluster-1rtt.pcap: three packets, three NACKs, the three packets again.
	// The closing ACK announces nothing.
	d := newDuo(t, SecureOneRTT, func(c *Config) { c.StartPSN = func() wire.PSN { return 0x3806b784 } })
	for i := range 3 {
		d.deliver(d.r, syn(0x3806b784+wire.PSN(i), i, 1))
	}
	k := d.sent(d.r)
	mint := starts(k)
	if len(mint) != 3 || mint[0] != mint[1] || mint[0] != mint[2] || mint[0] < 1<<16 || mint[0] >= 1<<31 || k[2].nack.SPDCID != 0 || k[2].nack.DPDCID != 1 || k[2].nack.PSN != 0x3806b786 {
		t.Fatalf("answers %q", text(k))
	}
	for i := range 3 {
		d.deliver(d.r, syn(mint[0].Add(i), i, 1))
	}
	if k = d.sent(d.r); len(k) != 1 || k[0].ack.CACK != mint[0]+2 {
		t.Errorf("answers %q", text(k))
	}
	d.deliver(d.r, d.closeCP(mint[0]+3, 1))
	d.wantSent(d.r, fmt.Sprintf("ACK NONE ack_off=1 cack=%#x", uint32(mint[0]+2)))

	// The same capture, with this code as the initiator and the numbers of the capture.
	d.open(wire.RUD, 0, 3)
	for i := range 3 {
		d.nack(targetWho, wire.NackNewStartPSN, 0x3806b784+wire.PSN(i), 0xcbcc5a1)
	}
	d.wantSent(d.i, "REQ SYN clear_off=-1 psn=0xcbcc5a1 psn_offset=0", "REQ SYN clear_off=-2 psn=0xcbcc5a2 psn_offset=1", "REQ SYN clear_off=-3 psn=0xcbcc5a3 psn_offset=2")
	if d.i.tab.Stats.Renumbered != 1 || d.i.ccc.inFlight != 3000 {
		t.Errorf("renumbered %d times, %d bytes in flight", d.i.tab.Stats.Renumbered, d.i.ccc.inFlight)
	}
}

func TestSecureStartPSN(t *testing.T) {
	// S-SYN-06: the first Start_PSN is random, at least 2¹⁶ and below 2³¹.
	d := newDuo(t, SecureZeroRTT, func(c *Config) { c.MaxPDCs = 2000 })
	var low, high int
	for range 1000 {
		switch s := d.i.tab.Open(d.now, 1, targetAddr, wire.RUD, d.i.ccc).StartPSN(); {
		case s < 1<<16 || s >= 1<<31:
			t.Fatalf("Start_PSN %#x", uint32(s))
		case s < 1<<30:
			low++
		default:
			high++
		}
	}
	for range 300_000 {
		if s := d.i.tab.drawStart(); s < 1<<16 || s >= 1<<31 {
			t.Fatalf("Start_PSN %#x", uint32(s))
		}
	}
	if low < 400 || high < 400 {
		t.Errorf("%d in the lower half, %d in the upper", low, high)
	}
}

func TestSecureStartPSNStaysAboveTheLast(t *testing.T) {
	// S-PSN-03: the next Start_PSN of a PDCID is 2¹⁶ beyond the last PSN that it was used
	// with, whatever the target expects. A target that still has the last PDC takes lower
	// PSNs for late ones.
	for _, expect := range []int{0, 1, -5, 1 << 15, 1<<16 + 7, 1<<16 + 8, 1 << 20} {
		d := newDuo(t, SecureZeroRTT, nil)
		p := d.open(wire.RUD, 0, 7)
		id, end := p.id, p.tx.nxt
		d.i.tab.fail(d.now, p, Reason{Why: WhyTimeout})
		d.i.tab.expected.learn(targetAddr, p.start.Add(expect))
		want := p.start.Add(expect)
		if want.Before(end.Add(startGap + 1)) {
			want = end.Add(startGap + 1)
		}
		if got := d.i.tab.secureStart(id, targetAddr); got != want {
			t.Errorf("expected %d from the last start: starts %d from it", expect, got.Sub(p.start))
		}
		// Another PDCID is not concerned.
		if got := d.i.tab.secureStart(id+1, targetAddr); got != p.start.Add(expect) {
			t.Errorf("PDCID %d starts %d from the one expected", id+1, got.Sub(p.start.Add(expect)))
		}
	}
}

func TestExpectedPSNOnlyNewer(t *testing.T) {
	// S-SYN-05: the initiator adopts an Expected_PSN that is newer than its own, and keeps
	// those of 4096 targets.
	var e expectedTable
	e.learn(targetAddr, 100)
	for _, c := range []struct{ told, want wire.PSN }{{99, 100}, {100, 100}, {101, 101}, {wire.PSN(101).Add(-1 << 30), 101}, {1<<31 + 50, 1<<31 + 50}, {200, 1<<31 + 50}, {1<<32 - 1, 1<<32 - 1}, {3, 3}} {
		if e.learn(targetAddr, c.told); e.psn[targetAddr] != c.want {
			t.Errorf("told %#x: %#x, want %#x", uint32(c.told), uint32(e.psn[targetAddr]), uint32(c.want))
		}
	}
	for i := range 10_000 {
		e.learn(netip.AddrPortFrom(otherAddr.Addr(), uint16(i)), 7)
		if len(e.psn) > maxExpected || len(e.order) != len(e.psn) {
			t.Fatalf("%d targets, %d in order", len(e.psn), len(e.order))
		}
	}
	if _, ok := e.psn[netip.AddrPortFrom(otherAddr.Addr(), 9999)]; !ok || len(e.psn) != maxExpected {
		t.Error("the newest is forgotten")
	}
	if _, ok := e.psn[targetAddr]; ok {
		t.Error("the oldest is not forgotten")
	}
}

func TestClosingACKElsewhereTeachesNothing(t *testing.T) {
	// S-SYN-05: Expected_PSN counts only in the ACK of a CLOSE on a secured PDC.
	for _, how := range []Secure{SecureNone, SecureZeroRTT} {
		d := newDuo(t, how, nil)
		if how == SecureNone {
			d.i.who, d.r.who = 0, 0
		}
		p := d.open(wire.RUD, 0, 2)
		d.exchange(d.all...)
		k := packet{ack: &wire.Ack{Type: wire.TypeAck, Flags: wire.AckFlagEPSN, CACK: p.start + 1, EPSN: 77, SPDCID: p.remoteID, DPDCID: p.id}, who: d.r.who}
		d.deliver(d.i, k)
		if how == SecureNone {
			d.i.tab.Close(d.now, p)
			d.i.tab.Drained(d.now, p)
			d.sent(d.i)
			k.ack.CACK = p.start + 2
			d.deliver(d.i, k)
			if p.State() != Closed {
				t.Fatalf("%v", p)
			}
		}
		if len(d.i.tab.expected.psn) != 0 {
			t.Errorf("%v: learnt %v", how, d.i.tab.expected.psn)
		}
	}
}

func TestT21ReplayOfAClosedPDCOpensNothing(t *testing.T) {
	// T21: a replay of every packet of a closed PDC opens nothing: at once, when its
	// quarantine is over, and later.
	for how, name := range map[Secure]string{SecureZeroRTT: "0-RTT", SecureOneRTT: "1-RTT"} {
		for _, mode := range []wire.Mode{wire.RUD, wire.ROD} {
			t.Run(fmt.Sprint(name, mode), func(t *testing.T) {
				d := newDuo(t, how, nil)
				p := d.open(mode, 0, 5)
				d.exchange(d.all...)
				d.exchange(d.push(p, 5, 5)...)
				d.close(p)
				if d.r.tab.Len() != 0 || d.i.ccc.inFlight != 0 {
					t.Fatalf("%d PDCs, %d in flight", d.r.tab.Len(), d.i.ccc.inFlight)
				}
				record := d.all
				for range 4 {
					for _, k := range record {
						d.deliver(d.r, k)
						d.deliver(d.i, k)
						d.sent(d.r)
						d.sent(d.i)
					}
					if d.r.tab.Len() != 0 {
						t.Fatal("a PDC is open")
					}
					d.advance(1900 * time.Millisecond)
				}
				d.wantOnce(0, 9)
				d.advance(10 * time.Second)
				if n := d.r.tab.pend.len(); n != 0 || d.r.tab.NextTimeout() != 0 {
					t.Errorf("%d pending, next timeout %v", n, d.r.tab.NextTimeout())
				}
			})
		}
	}
}

func TestT21ReplayAcrossRestartOpensNothing(t *testing.T) {
	// T21, 1-RTT: a replay opens nothing although the key outlives the target, which forgot
	// everything.
	d := newDuo(t, SecureOneRTT, nil)
	for i := range 3 {
		p := d.open(wire.RUD, 10*i, 5)
		d.exchange(d.all[len(d.all)-5:]...)
		d.close(p)
	}
	record := d.all
	d.r = d.newSide(SecureOneRTT, targetAddr, otherWho, nil)
	for range 5 {
		for _, k := range record {
			d.deliver(d.r, k)
		}
		d.sent(d.r)
		d.advance(700 * time.Millisecond)
	}
	if len(d.r.runs) != 0 || d.r.tab.Len() != 0 || d.r.tab.Stats.PDCAccepted != 0 {
		t.Errorf("executed %v, %d PDCs", d.r.runs, d.r.tab.Len())
	}
	if n := d.r.tab.Stats.NacksTx[wire.NackNewStartPSN]; n == 0 {
		t.Error("no SYN was answered: the replay tried nothing")
	}
}

func TestT7NackOfStartIsRefused(t *testing.T) {
	// T7, S-SYN-04: NACK 0x17 counts before the first ACK, for a packet that is
	// outstanding, if it asks for another Start_PSN. It counts in clear, too, if the owner
	// passes it on.
	open := func(how Secure) *duo {
		d := newDuo(t, how, func(c *Config) { c.StartPSN = func() wire.PSN { return 1000000 } })
		if how == SecureNone {
			d.i.who, d.r.who = 0, 0
		}
		d.open(wire.RUD, 0, 2)
		return d
	}
	for _, c := range []struct {
		name    string
		how     Secure
		acked   bool
		psn     wire.PSN
		payload uint32
		who     uint64
		moves   bool
	}{
		{"creating", SecureZeroRTT, false, 1000001, 5000000, targetWho, true},
		{"creating, any life", SecureOneRTT, false, 1000000, 5000000, otherWho, true},
		{"creating, in clear", SecureOneRTT, false, 1000000, 5000000, 0, true},
		{"down", SecureZeroRTT, false, 1000000, 5, targetWho, true},
		{"the same", SecureZeroRTT, false, 1000000, 1000000, targetWho, false},
		{"not outstanding", SecureZeroRTT, false, 1000002, 5000000, targetWho, false},
		{"established", SecureZeroRTT, true, 1000001, 5000000, targetWho, false},
		{"established, other life", SecureZeroRTT, true, 1000001, 5000000, otherWho, false},
		{"established, in clear", SecureZeroRTT, true, 1000001, 5000000, 0, false},
		{"no security", SecureNone, false, 1000000, 5000000, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(c.how)
			if c.acked {
				d.deliver(d.i, packet{ack: &wire.Ack{Type: wire.TypeAck, CACK: 1000000, SPDCID: 77, DPDCID: d.i.p.id}, who: targetWho})
			}
			heard := d.i.p.lastHeard
			d.now += time.Millisecond
			d.nack(c.who, wire.NackNewStartPSN, c.psn, c.payload)
			want := wire.PSN(1000000)
			if c.moves {
				want = wire.PSN(c.payload)
			}
			if got := d.i.p.StartPSN(); got != want || (d.i.p.lastHeard != heard) != c.moves || d.i.p.CanResend() != c.moves {
				t.Errorf("starts at %d, want %d; heard at %v, before %v", got, want, d.i.p.lastHeard, heard)
			}
		})
	}
}

func TestT7RenumberingsAreBounded(t *testing.T) {
	// T7: at most 8 renumberings; the ninth NACK ends the PDC and says why.
	d := newDuo(t, SecureOneRTT, nil)
	p := d.open(wire.RUD, 0, 1)
	for i := range 8 {
		d.nack(targetWho, wire.NackNewStartPSN, p.start, uint32(p.start)+1<<16)
		if k := d.sent(d.i); len(k) != 1 || k[0].req.PSN != p.start {
			t.Fatalf("renumbering %d: %q", i, text(k))
		}
	}
	d.i.wantTold()
	d.nack(targetWho, wire.NackNewStartPSN, p.start, 1<<16)
	d.i.wantTold("failed 0 3 NEW_START_PSN", "gone 3")
	if d.i.ccc.inFlight != 0 || d.i.tab.Len() != 0 {
		t.Errorf("%d in flight, %d PDCs", d.i.ccc.inFlight, d.i.tab.Len())
	}
}

func TestT7ClearRenumberingsAreBounded(t *testing.T) {
	// T7: at most 8 in clear count and the others are dropped. Those of the target are
	// still followed.
	d := newDuo(t, SecureOneRTT, nil)
	p := d.open(wire.RUD, 0, 1)
	for range 20 {
		d.nack(0, wire.NackNewStartPSN, p.start, uint32(p.start)+1<<16)
	}
	if n := d.i.tab.Stats.Renumbered; n != 8 || d.i.tab.Stats.DropBinding != 12 {
		t.Errorf("%d followed, %d dropped", n, d.i.tab.Stats.DropBinding)
	}
	for i := range 8 {
		d.nack(targetWho, wire.NackNewStartPSN, p.start, 1<<20+uint32(i))
		if p.start != 1<<20+wire.PSN(i) {
			t.Fatalf("renumbering %d was not followed", i)
		}
	}
	d.i.wantTold()
}

func TestRenumberingTakesEveryPacketAlong(t *testing.T) {
	// S-SYN-04: every unacknowledged packet is sent again, with SYN, whatever was known of
	// it. The counters stay right across the wrap of the ring.
	for _, to := range []wire.PSN{1<<30 + 1, 1<<30 - 3, 70001, 0xffff_fffe, 0} {
		d := newDuo(t, SecureZeroRTT, func(c *Config) { c.StartPSN = func() wire.PSN { return 1 << 30 } })
		p := d.open(wire.RUD, 0, 7)
		at := func(i int) wire.PSN { return wire.PSN(1 << 30).Add(i) }
		d.advance(6 * time.Millisecond) // RTO: all are lost
		for range 4 {
			if p.CanResend() {
				p.Resend(d.now, 0) // some are in flight again
			}
		}
		d.nack(targetWho, wire.NackNoResource, at(1), 0)
		p.checkCounts(t, 3)
		if p.tx.waiting != 1 || p.tx.lost != 3 {
			t.Fatalf("%v", p)
		}
		d.nack(targetWho, wire.NackNewStartPSN, at(3), uint32(to))
		p.checkCounts(t, 0)
		if d.i.ccc.inFlight != 0 {
			t.Errorf("%d bytes in flight", d.i.ccc.inFlight)
		}
		k := d.sent(d.i)
		if len(k) != 7 {
			t.Fatalf("%d packets go again", len(k))
		}
		for i, q := range k {
			if h := q.req; q.piece.Msg != uint32(i) || h.PSN != to.Add(i) || int(h.PSNOffset) != i || h.Flags != wire.FlagSYN || int(h.ClearOff) != -1-i {
				t.Errorf("packet %d: %v carries %d", i, h, q.piece.Msg)
			}
		}
		p.checkCounts(t, 7)
		if d.i.ccc.inFlight != 7000 || d.i.ccc.nacked != 1000 {
			t.Errorf("%d bytes in flight, %d refused", d.i.ccc.inFlight, d.i.ccc.nacked)
		}
		d.deliver(d.i, packet{ack: &wire.Ack{Type: wire.TypeAck, CACK: to + 6, SPDCID: 77, DPDCID: p.id}, who: targetWho})
		d.sent(d.i)
		d.i.checkAtRest()
	}
}

func TestNothingOvertakesWhatIsRenumbered(t *testing.T) {
	// UE 3.5.8, S-PDC-09: packets of later messages stay behind those of earlier ones under
	// the new PSNs, too, however small they are.
	for code, how := range map[wire.NackCode]Secure{wire.NackNewStartPSN: SecureOneRTT, wire.NackInvalidSyn: SecureZeroRTT} {
		d := newDuo(t, how, nil)
		p := d.open(wire.RUD, 0, 3)
		d.nack(targetWho, code, p.start, 1<<20)
		d.i.ccc.window = 1500
		for i := range 3 {
			if p.CanPush(10) {
				t.Fatalf("%v: a new packet may go before packet %d", code, i)
			}
			if !p.CanResend() {
				t.Fatalf("%v: packet %d may not go", code, i)
			}
			p.Resend(d.now, 0)
			d.i.ccc.window += 1000
		}
		if !p.CanPush(10) {
			t.Errorf("%v: nothing new may go any more", code)
		}
	}
}

// checkCounts compares the counters of a sending side with its packets.
func (p *PDC) checkCounts(t *testing.T, flight int32) {
	t.Helper()
	tx := &p.tx
	var n [pktFinished + 1]int32
	for psn := tx.una; psn != tx.nxt; psn++ {
		n[tx.at(psn).state]++
	}
	if n[pktFlight] != tx.flight || n[pktLost] != tx.lost || n[pktWaiting] != tx.waiting || n[pktArrived] != tx.arrived || tx.flight != flight {
		t.Errorf("%v: packets %v, want %d in flight", p, n, flight)
	}
}

func TestT8BoundToOneLife(t *testing.T) {
	// T8: no packet of another life of the peer, and no unauthenticated one, has an effect
	// on a secured PDC; it does not even count as hearing the peer.
	for _, who := range []uint64{otherWho, 0} {
		d := newDuo(t, SecureZeroRTT, nil)
		p := d.open(wire.RUD, 0, 2)
		if who == 0 {
			// The same holds before the PDC is bound to a life.
			d.deliver(d.i, packet{ack: &wire.Ack{Type: wire.TypeAck, CACK: p.start, SPDCID: 77, DPDCID: p.id}, who: 0})
			d.nack(0, wire.NackInvalidSyn, p.start, 0)
			d.nack(0, wire.NackNoPDCAvail, p.start, 0)
			if p.RemoteID() != 0 || d.i.tab.Stats.DropBinding != 3 || p.tx.waiting != 0 {
				t.Errorf("bound to %d by nobody; %d dropped", p.RemoteID(), d.i.tab.Stats.DropBinding)
			}
			d.deliver(d.r, packet{req: syn(1<<30, 0, 4).req, who: 0})
			if d.r.tab.Len() != 0 || len(d.sent(d.r)) != 0 {
				t.Error("nobody opened a PDC, or was answered")
			}
		}
		d.exchange(d.all...)
		q := d.r.tab.opened(initiatorAddr, p.id)
		if p.Who() != targetWho || q.Who() != initiatorWho {
			t.Fatalf("bound to %#x and %#x", p.Who(), q.Who())
		}
		d.push(p, 2, 2)
		d.now += time.Second
		d.i.tab.Stats.DropBinding, d.r.tab.Stats.DropBinding = 0, 0
		before := [2]string{p.String(), q.String()}
		sent := 0
		for _, k := range []packet{
			{ack: &wire.Ack{Type: wire.TypeAck, CACK: p.start + 3, SPDCID: p.remoteID, DPDCID: p.id}},
			{ack: &wire.Ack{Type: wire.TypeAck, CACK: p.start + 100, SPDCID: p.remoteID, DPDCID: p.id}},
			{nack: &wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed, PSN: p.start + 3, SPDCID: p.remoteID, DPDCID: p.id}},
			{nack: &wire.Nack{Type: wire.TypeNack, Code: wire.NackNewStartPSN, PSN: p.start + 3, DPDCID: p.id, Payload: 5}},
			{nack: &wire.Nack{Type: wire.TypeNack, Code: wire.NackClosingInErr, PSN: p.start + 3, SPDCID: p.remoteID, DPDCID: p.id}},
			{nack: &wire.Nack{Type: wire.TypeNack, Code: wire.NackUnexpEvent, PSN: p.start + 3, SPDCID: p.remoteID, DPDCID: p.id}},
			{cp: &wire.CP{Ctl: wire.CtlCloseReq, PSN: p.start, SPDCID: p.remoteID, DPDCID: p.id}},
			{cp: &wire.CP{Ctl: wire.CtlClearReq, SPDCID: p.remoteID, DPDCID: p.id}},
		} {
			k.who = who
			d.deliver(d.i, k)
			sent++
		}
		if n := d.i.tab.Stats.DropBinding; n != uint64(sent) || p.lastHeard == d.now || p.strikes != 0 {
			t.Errorf("initiator: %d of %d dropped, heard at %v", n, sent, p.lastHeard)
		}
		sent = 0
		next := *p.header(p.start+2, p.tx.at(p.start+2))
		for _, k := range []packet{
			{req: &next},
			{req: syn(p.start, 0, p.id).req},
			{req: syn(p.start+2, 2, p.id).req},
			{cp: &wire.CP{Ctl: wire.CtlClose, PSN: p.start + 2, SPDCID: p.id, DPDCID: q.id}},
			{cp: &wire.CP{Ctl: wire.CtlProbe, SPDCID: p.id, DPDCID: q.id}},
			{cp: &wire.CP{Ctl: wire.CtlAckReq, PSN: p.start, SPDCID: p.id, DPDCID: q.id}},
			{cp: &wire.CP{Ctl: wire.CtlClear, Payload: uint32(p.start), SPDCID: p.id, DPDCID: q.id}},
		} {
			k.who = who
			d.deliver(d.r, k)
			sent++
		}
		if n := d.r.tab.Stats.DropBinding; n != uint64(sent) || q.lastHeard == d.now {
			t.Errorf("target: %d of %d dropped, heard at %v", n, sent, q.lastHeard)
		}
		if after := [2]string{p.String(), q.String()}; after != before {
			t.Errorf("changed:\n%q\n%q", before, after)
		}
		if k := d.sent(d.r); len(k) != 0 {
			t.Errorf("answered %q", text(k))
		}
	}
}

func TestF12NewLifeOfThePeerEndsThePDC(t *testing.T) {
	// F12: a target that was restarted does not know the PDC. With security its first NACK
	// that says so ends the PDC; nothing else from the new life counts.
	for _, code := range []wire.NackCode{wire.NackInvDPDCID, wire.NackPDCHdrMismatch, wire.NackInvalidSyn} {
		d := newDuo(t, SecureOneRTT, nil)
		p := d.open(wire.RUD, 0, 1)
		d.exchange(d.all...)
		d.push(p, 1, 2)
		d.i.forget()
		d.nack(0, code, p.start+1, 0)
		d.i.wantTold()
		d.nack(otherWho, code, p.start+7, 0) // names no outstanding PSN
		d.i.wantTold()
		d.nack(otherWho, code, p.start+1, 0)
		d.i.wantTold(fmt.Sprintf("failed 1 3 %v", code), fmt.Sprintf("failed 2 3 %v", code), "gone 3")
	}
}

func TestF12SecuredTargetRestarts(t *testing.T) {
	// F12, both sides: packets sent before fail with an unknown fate, messages posted
	// afterwards arrive.
	d := newDuo(t, SecureOneRTT, nil)
	p := d.open(wire.RUD, 0, 2)
	d.exchange(d.all...)
	d.r = d.newSide(SecureOneRTT, targetAddr, otherWho, nil)
	d.i.forget()
	d.exchange(d.push(p, 2, 1)...)
	d.i.wantTold("failed 2 3 INV_DPDCID", "gone 3")
	d.open(wire.RUD, 3, 2)
	d.exchange(d.all[len(d.all)-2:]...)
	d.wantOnce(3, 4)
	if d.i.p.Who() != otherWho {
		t.Errorf("bound to %#x", d.i.p.Who())
	}
}

func TestF13SecuredInitiatorRestarts(t *testing.T) {
	// F13: our new life uses a PDCID that the old one still has open. It is refused and
	// uses another PDCID. The old PDC does not change, and a late copy of a refused packet
	// opens nothing when the old PDC is gone.
	for _, how := range []Secure{SecureZeroRTT, SecureOneRTT} {
		d := newDuo(t, how, nil)
		p := d.open(wire.RUD, 0, 1)
		d.exchange(d.all...)
		id := p.id
		old := d.r.tab.Lookup(p.remoteID)
		d.i = d.newSide(how, initiatorAddr, otherWho, func(c *Config) { c.StartPSN = func() wire.PSN { return p.start + 1<<20 } })
		q := d.i.tab.Open(d.now, 1, targetAddr, wire.RUD, d.i.ccc)
		d.i.tab.setID(q.id, nil)
		q.id = id
		d.i.tab.setID(id, q)
		first := d.push(q, 1, 1)
		d.exchange(first...)
		if q.id == id || q.State() != Established || old.State() != Established || old.Who() != initiatorWho {
			t.Fatalf("%v; the old one is %v", q, old)
		}
		d.wantOnce(0, 1)
		if how == SecureZeroRTT && d.i.tab.Stats.Renumbered != 0 {
			t.Error("its next Start_PSN is not above the one that was refused")
		}
		d.r.tab.fail(d.now, old, Reason{Why: WhyTimeout})
		for range 3 {
			d.deliver(d.r, first[0])
			d.sent(d.r)
			d.advance(5 * time.Second)
		}
		d.wantOnce(0, 1)
	}
}

func TestT6SecuredFatalNackCountsAtOnce(t *testing.T) {
	// T6: with TSS the first fatal NACK counts.
	d := newDuo(t, SecureZeroRTT, nil)
	p := d.open(wire.RUD, 0, 1)
	d.exchange(d.all...)
	d.push(p, 1, 1)
	d.i.forget()
	d.nack(targetWho, wire.NackClosing, p.start+1, 0)
	d.i.wantTold("failed 1 3 CLOSING", "gone 3")
}

func TestFloorRisesHoweverAPDCEnds(t *testing.T) {
	// T21: Expected_PSN is Start_PSN + 1 when the PDC of a target ends in any way, and
	// never falls.
	const start = 1 << 20
	for name, end := range map[string]func(d *duo, p *PDC){
		"orderly": func(d *duo, p *PDC) { d.deliver(d.r, d.closeCP(start+1, 9)) },
		"error":   func(d *duo, p *PDC) { d.r.tab.fail(d.now, p, Reason{Why: WhyProtocol}) },
		"close with a message open": func(d *duo, p *PDC) {
			d.r.open[p.Slot] = true
			d.deliver(d.r, d.closeCP(start+1, 9))
		},
		"peer gone": func(d *duo, p *PDC) {
			d.r.open[p.Slot] = true
			d.advance(41 * time.Second)
		},
		"idle":  func(d *duo, p *PDC) { d.advance(61 * time.Second); d.advance(10 * time.Second) },
		"abort": func(d *duo, p *PDC) { d.r.tab.Abort(d.now) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t, SecureZeroRTT, nil)
			d.deliver(d.r, syn(start, 0, 9))
			end(d, d.r.tab.opened(initiatorAddr, 9))
			if d.r.tab.Len() != 0 || d.r.tab.floor != start+1 {
				t.Fatalf("%d PDCs, floor %#x", d.r.tab.Len(), d.r.tab.floor)
			}
			d.sent(d.r)
			d.deliver(d.r, syn(start, 0, 10))
			if got := starts(d.sent(d.r)); len(got) != 1 || got[0] != start+1 {
				t.Errorf("asked for %v", got)
			}
		})
	}
	t.Run("reaped", func(t *testing.T) {
		// The floor rises although no packet was executed.
		d := newDuo(t, SecureZeroRTT, nil)
		p, _ := d.r.tab.ReceiveReq(&Arrival{Now: d.now, From: initiatorAddr, Who: initiatorWho}, syn(start, 0, 9).req)
		p.SetPeer(1, true)
		p.Refuse(d.now, start, wire.NackNoSESMsgAvail)
		d.advance(2 * time.Second)
		if d.r.tab.Len() != 0 || d.r.tab.floor != start+1 {
			t.Fatalf("%d PDCs, floor %#x", d.r.tab.Len(), d.r.tab.floor)
		}
	})
	t.Run("out of order", func(t *testing.T) {
		d := newDuo(t, SecureZeroRTT, nil)
		d.deliver(d.r, syn(start, 0, 9))
		d.deliver(d.r, syn(start+100, 0, 10))
		d.deliver(d.r, d.closeCP(start+101, 10))
		d.deliver(d.r, d.closeCP(start+1, 9))
		if d.r.tab.floor != start+101 {
			t.Errorf("floor %#x", d.r.tab.floor)
		}
	})
}

func TestFloorNeverComesRound(t *testing.T) {
	// T21: a floor that has gone half round the PSNs does not make lower PSNs look new. A
	// floor that has used up all PSNs asks for a Start_PSN each time.
	for _, c := range []struct {
		start wire.PSN
		floor uint64
		want  bool
	}{
		{0, 0, false}, {1<<31 - 1, 0, false}, {1 << 31, 0, true}, {1<<32 - 1, 0, true},
		{99, 100, true}, {100, 100, false},
		{5, 1<<31 + 10, true}, {1<<31 + 9, 1<<31 + 10, true}, {1<<31 + 10, 1<<31 + 10, false}, {1<<32 - 1, 1<<31 + 10, false},
		{0, 1<<32 - 1, true}, {1<<32 - 2, 1<<32 - 1, true}, {1<<32 - 1, 1<<32 - 1, false},
	} {
		if got := below(c.start, c.floor); got != c.want {
			t.Errorf("%#x is below %#x: %v", uint32(c.start), c.floor, got)
		}
	}
	d := newDuo(t, SecureZeroRTT, nil)
	d.r.tab.floor = 1<<32 - 1
	d.deliver(d.r, syn(1<<32-1, 0, 9))
	d.sent(d.r)
	d.deliver(d.r, d.closeCP(0, 9))
	d.wantSent(d.r, "ACK NONE ack_off=1 cack=0xffffffff")
	d.advance(5 * time.Second) // beyond quarantine
	for _, s := range []wire.PSN{1<<32 - 1, 0, 1 << 20} {
		d.deliver(d.r, syn(s, 0, 9))
		if d.r.tab.Len() != 0 {
			t.Fatalf("%#x opened a PDC", uint32(s))
		}
	}
	got := starts(d.sent(d.r))
	if len(got) != 3 || got[0] != got[2] {
		t.Fatalf("asked for %v", got)
	}
	d.deliver(d.r, syn(got[0], 0, 9))
	if d.r.tab.Len() != 1 {
		t.Error("no PDC can be opened any more")
	}
}

func TestOneRTTTakesOnlyWhatItDrew(t *testing.T) {
	// S-SYN-03: any other Start_PSN is refused again. PENDING is freed after New_PDC_Time,
	// and its Start_PSN is worth nothing then.
	d := newDuo(t, SecureOneRTT, nil)
	d.deliver(d.r, syn(5<<20, 0, 9))
	m := starts(d.sent(d.r))[0]
	if off := m.Sub(5 << 20); off > -(1<<16) && off < 1<<16 {
		t.Errorf("drew %#x, near what was offered", uint32(m))
	}
	for _, s := range []wire.PSN{m - 1, m + 1, m + 1<<20, 0, 1<<32 - 1} {
		d.deliver(d.r, syn(s, 0, 9))
		if got := starts(d.sent(d.r)); d.r.tab.Len() != 0 || len(got) != 1 || got[0] != m {
			t.Errorf("offered %#x: asked for %v", uint32(s), got)
		}
	}
	d.deliver(d.r, syn(m, 0, 10)) // it was drawn for another PDCID
	if got := starts(d.sent(d.r)); d.r.tab.Len() != 0 || len(got) != 1 || got[0] == m {
		t.Errorf("10: asked for %v", got)
	}
	if d.r.tab.NextTimeout() != d.now+time.Second {
		t.Errorf("next timeout %v", d.r.tab.NextTimeout())
	}
	d.advance(time.Second)
	if d.r.tab.pend.len() != 0 || d.r.tab.Stats.PendingReaped != 2 || d.r.tab.NextTimeout() != 0 {
		t.Errorf("%d pending", d.r.tab.pend.len())
	}
	d.deliver(d.r, syn(m, 0, 9))
	if got := starts(d.sent(d.r)); d.r.tab.Len() != 0 || len(got) != 1 || got[0] == m {
		t.Errorf("later: asked for %v", got)
	}
	if len(d.r.runs) != 0 {
		t.Errorf("executed %v", d.r.runs)
	}
}

func TestZeroRTTKeepsItsWord(t *testing.T) {
	// PENDING: the Start_PSN that was asked for is accepted once, even if the floor has
	// risen meanwhile.
	d := newDuo(t, SecureZeroRTT, nil)
	d.deliver(d.r, syn(1<<20, 0, 1))
	d.deliver(d.r, syn(2<<20, 0, 2))
	d.deliver(d.r, d.closeCP(1<<20+1, 1))
	d.sent(d.r)
	d.deliver(d.r, syn(70000, 0, 3))
	d.wantSent(d.r, "NACK 0x17 nack_psn=0x11170 spdcid=0 dpdcid=3 payload=0x100001")
	d.deliver(d.r, d.closeCP(2<<20+1, 2))
	d.sent(d.r)
	d.deliver(d.r, syn(1<<20+1, 0, 3))
	if d.r.tab.Len() != 1 || d.r.tab.pend.len() != 0 {
		t.Fatalf("%d PDCs", d.r.tab.Len())
	}
	d.deliver(d.r, d.closeCP(1<<20+2, 3))
	d.sent(d.r)
	d.advance(5 * time.Second)
	d.deliver(d.r, syn(1<<20+1, 0, 3))
	d.wantSent(d.r, "NACK 0x17 nack_psn=0x100001 spdcid=0 dpdcid=3 payload=0x200001")
}

func TestLatePacketsOfBeforeAreNotAnswered(t *testing.T) {
	// S-SYN-04: packets that were sent before their initiator followed a NACK 0x17 arrive
	// after it. In 0-RTT other packets may have their PSNs now, and an answer would be
	// taken for one to those.
	d := newDuo(t, SecureZeroRTT, nil)
	d.r.tab.floor = 1<<20 + 3
	d.deliver(d.r, syn(1<<20, 0, 9))
	if got := starts(d.sent(d.r)); len(got) != 1 || got[0] != 1<<20+3 {
		t.Fatalf("asked for %v", got)
	}
	d.deliver(d.r, syn(1<<20+3, 0, 9))
	d.sent(d.r)
	d.r.tab.floor += 5 // other initiators closed PDCs
	for i := range 6 {
		d.deliver(d.r, syn(1<<20+wire.PSN(i), i, 9))
	}
	d.wantSent(d.r)
	if n := d.r.tab.Stats.DropStale; n != 6 {
		t.Errorf("%d dropped", n)
	}
	// In 1-RTT old and new PSNs are far from each other, and an answer has no effect.
	d = newDuo(t, SecureOneRTT, nil)
	p := d.open(wire.RUD, 0, 3)
	for _, k := range d.all {
		d.deliver(d.r, k)
	}
	d.deliver(d.i, d.sent(d.r)[0])
	for _, k := range d.sent(d.i) {
		d.deliver(d.r, k)
	}
	for _, k := range d.all[1:3] {
		d.deliver(d.r, k)
	}
	start := p.start
	d.exchange()
	d.i.wantTold("answered 2 OK", "answered 0 default", "answered 1 default")
	if p.start != start || p.State() != Established || p.rebirths != 0 {
		t.Errorf("%v was disturbed", p)
	}
}

func TestClosedLifeIsUnknownNotSentAgain(t *testing.T) {
	// docs/faults.md rule 3: an initiator that saw no ACK of a PDC that the target executed
	// and gave up must not send the same messages again. Packets of the life in quarantine
	// get NACK 0E, others below the floor NACK 0x17.
	for _, how := range []Secure{SecureZeroRTT, SecureOneRTT} {
		d := newDuo(t, how, nil)
		p := d.open(wire.RUD, 0, 1)
		if how == SecureOneRTT {
			for _, k := range d.all {
				d.deliver(d.r, k)
			}
			d.deliver(d.i, d.sent(d.r)[0])
			for _, k := range d.sent(d.i) {
				d.deliver(d.r, k)
			}
		} else {
			d.deliver(d.r, d.all[0])
		}
		d.sent(d.r) // its ACK is lost
		d.r.tab.fail(d.now, d.r.tab.opened(initiatorAddr, p.id), Reason{Why: WhyTimeout})
		d.advance(10 * time.Millisecond)
		d.exchange()
		d.i.wantTold("failed 0 3 INV_DPDCID", "gone 3")
		d.wantOnce(0, 0)
	}
}

func TestT1PendingIsBounded(t *testing.T) {
	// T1: PENDING is bounded in all and per source. The oldest one of the busiest source
	// makes room, and a source that sends little keeps its place.
	d := newDuo(t, SecureOneRTT, func(c *Config) { c.MaxPending, c.MaxPendingPerSource = 20, 8 })
	tab := d.r.tab
	from := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(i)}), 4793)
	}
	send := func(src, spdcid int) {
		h := syn(1<<20, 0, uint16(spdcid)).req
		tab.ReceiveReq(&Arrival{Now: d.now, From: from(src), Who: initiatorWho}, h)
	}
	has := func(src, spdcid int) bool { return tab.asked(from(src), uint16(spdcid)) != nil }
	send(1, 1)
	for i := range 50 {
		send(2, 100+i)
	}
	if tab.pend.len() != 9 || !has(1, 1) || has(2, 141) || !has(2, 142) {
		t.Errorf("%d pending", tab.pend.len())
	}
	for i := range 50 {
		d.now += time.Millisecond
		send(3, 100+i)
	}
	for i := range 4 {
		send(4, 100+i)
	}
	if tab.pend.len() != 20 || !has(1, 1) || !has(4, 100) {
		t.Errorf("%d pending", tab.pend.len())
	}
	tab.checkPending(t)
	// There are 13 sources with one or more each: the busiest ones lose some.
	for i := range 13 {
		send(10+i, 1)
		tab.checkPending(t)
	}
	if tab.pend.len() != 20 || !has(1, 1) || !has(10, 1) || tab.pend.top > 2 {
		t.Errorf("%d pending, one source has %d", tab.pend.len(), tab.pend.top)
	}
	if tab.Len() != 0 {
		t.Errorf("%d PDCs", tab.Len())
	}
	d.advance(2 * time.Second)
	tab.checkPending(t)
	if tab.pend.len() != 0 || len(tab.pend.sources) != 0 || len(tab.sources) != 0 {
		t.Errorf("left: %d pending, %d and %d sources", tab.pend.len(), len(tab.pend.sources), len(tab.sources))
	}
}

// checkPending checks the lists of PENDING against each other and against the bounds.
func (t *Table) checkPending(tt testing.TB) {
	tt.Helper()
	q := &t.pend
	n := 0
	var last time.Duration
	for e := q.first; e != nil; e = e.next {
		if q.m[e.key] != e || e.until < last || e.next == nil && q.last != e {
			tt.Fatalf("entry %+v", e)
		}
		last = e.until
		n++
	}
	sum, top := 0, 0
	for i := range q.busy {
		for s := q.busy[i].first; s != nil; s = s.next {
			m := 0
			for e := s.first; e != nil; e = e.snext {
				if e.src != s || e.snext == nil && s.last != e {
					tt.Fatalf("entry %+v of %v", e, s.addr)
				}
				m++
			}
			if m != i || s.n != i || q.sources[s.addr] != s {
				tt.Fatalf("source %v has %d, counts %d, is among %d", s.addr, m, s.n, i)
			}
			sum, top = sum+m, i
		}
	}
	if n != len(q.m) || sum != n || top != q.top || n > t.cfg.MaxPending || top > t.cfg.MaxPendingPerSource {
		tt.Fatalf("%d entries, %d in the map, %d of sources; top %d and %d", n, len(q.m), sum, top, q.top)
	}
}

func TestT27NacksOfStartAreFew(t *testing.T) {
	// T27, T28: there are no more NACKs than packets, and none is larger than a request. A
	// burst to one PDC gets no more of them than it can use, so that others get theirs.
	d := newDuo(t, SecureOneRTT, nil)
	for i := range 90 {
		d.deliver(d.r, syn(1<<20+wire.PSN(i), i, 9))
	}
	d.deliver(d.r, syn(1<<20, 0, 10))
	if k := d.sent(d.r); len(k) != freeAnswers+1 || k[freeAnswers].nack.DPDCID != 10 {
		t.Errorf("answers %q", text(k))
	}
	d.now += time.Millisecond
	d.deliver(d.r, syn(1<<20, 0, 9))
	d.deliver(d.r, syn(1<<20, 0, 9))
	if k := d.sent(d.r); len(k) != 1 {
		t.Errorf("answers %q", text(k))
	}
	if n := d.r.tab.Stats.DropRate; n != 90-freeAnswers+1 {
		t.Errorf("%d not answered", n)
	}
	// Nothing is drawn when the limit of all NACKs is reached.
	for i := range 300 {
		d.deliver(d.r, syn(1<<20, 0, uint16(1000+i)))
	}
	if n := len(d.sent(d.r)); n > 100 || d.r.tab.Stats.Pending > uint64(n)+2 {
		t.Errorf("%d answers, %d pending", n, d.r.tab.Stats.Pending)
	}
}

func TestOpeningAsksWithFewPackets(t *testing.T) {
	// S-SYN-08: until the target has told its Start_PSN two packets leave, and one at each
	// timeout. Then as many leave as the window permits.
	d := newDuo(t, SecureOneRTT, nil)
	p := d.open(wire.RUD, 0, unagreed)
	if p.CanPush(10) {
		t.Error("a third packet may leave")
	}
	for i := range 3 {
		d.advance(time.Second)
		if k := d.sent(d.i); len(k) != 1 || k[0].req.PSNOffset != 0 || p.CanPush(10) {
			t.Errorf("timeout %d: %q, another packet may leave: %v", i, text(k), p.CanPush(10))
		}
	}
	d.nack(targetWho, wire.NackNewStartPSN, p.start, 1<<20)
	if k := d.sent(d.i); len(k) != unagreed || !p.CanPush(10) {
		t.Errorf("%q; a third packet may leave: %v", text(k), p.CanPush(10))
	}
	// What begins anew asks anew.
	d.push(p, unagreed, 5)
	d.nack(targetWho, wire.NackInvalidSyn, p.start, 0)
	d.advance(time.Second)
	if k := d.sent(d.i); len(k) != 1 || p.CanPush(10) {
		t.Errorf("under another PDCID: %q, another packet may leave: %v", text(k), p.CanPush(10))
	}
}

func TestStartIsToldFromTheFirstMoment(t *testing.T) {
	// S-SYN-08: what arrives when the clock of the target begins is answered.
	d := newDuo(t, SecureOneRTT, nil)
	d.now = 0
	d.deliver(d.r, syn(1<<20, 0, 9))
	if k := d.sent(d.r); len(k) != 1 || k[0].nack.Code != wire.NackNewStartPSN {
		t.Errorf("answers %q", text(k))
	}
}

func TestSecuredExactlyOnce(t *testing.T) {
	// F1, F3, F4, T20, T21: messages over many PDCs with loss, duplicates, reordering, and
	// an attacker who replays anything at any time are executed once each, or fail, and
	// then are executed at most once.
	for seed := range uint64(60) {
		how := SecureZeroRTT
		if seed%2 == 1 {
			how = SecureOneRTT
		}
		mode := wire.RUD
		if seed%4 >= 2 {
			mode = wire.ROD
		}
		rng := rand.New(rand.NewPCG(seed, 77))
		d := newDuo(t, how, func(c *Config) { c.IdleClose, c.Quarantine = 300*time.Second, 4*time.Second })
		type flying struct {
			k  packet
			to *side
		}
		var air []flying
		send := func(k []packet, to *side) {
			for _, p := range k {
				if rng.IntN(5) == 0 {
					continue
				}
				air = append(air, flying{p, to})
				if rng.IntN(10) == 0 {
					air = append(air, flying{p, to})
				}
			}
		}
		msg := 0
		for range 12 {
			p := d.i.tab.Open(d.now, 1, targetAddr, mode, d.i.ccc)
			d.i.p = p
			for step := range 400 {
				if n := rng.IntN(4); step < 20 && p.Usable() && p.CanPush(1000*n+1) {
					for range n {
						if p.CanPush(1000) {
							send(d.push(p, msg, 1), d.r)
							msg++
						}
					}
				}
				if step == 20 {
					d.i.tab.Close(d.now, p)
				}
				if p.State() == Quiesce {
					d.i.tab.Drained(d.now, p)
				}
				send(d.sent(d.i), d.r)
				send(d.sent(d.r), d.i)
				for range rng.IntN(6) {
					if len(air) == 0 {
						break
					}
					j := rng.IntN(min(len(air), 8))
					f := air[j]
					air = append(air[:j], air[j+1:]...)
					d.deliver(f.to, f.k)
				}
				if len(d.all) > 0 && rng.IntN(3) == 0 {
					k, to := d.all[rng.IntN(len(d.all))], d.r
					if k.from == d.r {
						to = d.i
					}
					d.deliver(to, k) // the attacker
				}
				d.advance(time.Duration(rng.IntN(3000)) * time.Microsecond)
				if p.State() == Closed {
					break
				}
			}
			if p.State() != Closed {
				d.i.tab.fail(d.now, p, Reason{Why: WhyTimeout})
			}
			air = air[:0]
			if rng.IntN(3) == 0 {
				d.advance(5 * time.Second)
			}
		}
		failed := map[string]bool{}
		for _, s := range d.i.news() {
			if f := strings.Fields(s); f[0] == "failed" {
				failed[f[1]] = true
			}
		}
		for m := range msg {
			n := d.r.runs[uint32(m)]
			if n > 1 || n == 0 && !failed[fmt.Sprint(m)] {
				t.Fatalf("seed %d: message %d was executed %d times, failed: %v", seed, m, n, failed[fmt.Sprint(m)])
			}
		}
		if len(failed) > msg/2 {
			t.Errorf("seed %d: %d of %d messages failed", seed, len(failed), msg)
		}
		d.r.tab.checkPending(t)
	}
}

// TestSealedSYNFromSeveralPorts proves that the source port is entropy for sealed SYN packets,
// too: all packets of a first flight are asked for the same Start_PSN, and with it they open
// one PDC.
func TestSealedSYNFromSeveralPorts(t *testing.T) {
	d := newDuo(t, SecureOneRTT, nil)
	tab := d.r.tab
	arrive := func(path uint16, start wire.PSN, offset int) *PDC {
		h := syn(start.Add(offset), offset, 9).req
		from := netip.AddrPortFrom(initiatorAddr.Addr(), initiatorAddr.Port()+path)
		p, what := tab.ReceiveReq(&Arrival{Now: d.now, From: from, Who: initiatorWho}, h)
		if what != Deliver {
			return nil
		}
		p.SetPeer(1, true)
		p.Accept(d.now, &Meta{PSN: h.PSN, Size: 100}, &wire.Rsp{}, false)
		return p
	}
	for path := range uint16(4) {
		if arrive(path, 1<<20, int(path)) != nil {
			t.Fatalf("path %d opened a PDC", path)
		}
	}
	if n := tab.pend.len(); n != 1 {
		t.Fatalf("%d PENDING PDCs", n)
	}
	given := tab.asked(initiatorAddr, 9).start
	first := arrive(3, given, 3)
	for path := range uint16(3) {
		if p := arrive(path, given, int(path)); p == nil || p != first {
			t.Errorf("path %d: %v, and the first is %v", path, p, first)
		}
	}
}
