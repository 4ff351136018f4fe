package transport

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestFEPLevels(t *testing.T) {
	// R-CMPL-01, R-CMPL-04, R-CMPL-05, R-CMPL-07: each level says what must have happened
	// before the sender's entry. The network first loses everything, then only what the
	// target answers, then nothing.
	for _, c := range []struct {
		name           string
		level          Level
		inject         bool
		posted         bool // the target has a receive
		atOnce, toward int  // entries while the network loses everything, while it loses answers
	}{
		{"inject, copied", LevelInject, true, true, 1, 1}, // R-CMPL-02
		{"inject", LevelInject, false, true, 0, 0},        // the bytes may be needed for a resend
		{"transmit", LevelTransmit, false, true, 0, 0},
		{"transmit, copied", LevelTransmit, true, true, 0, 0}, // R-CMPL-16
		{"delivery", LevelDelivery, false, true, 0, 0},
		{"delivery, no receive", LevelDelivery, false, false, 0, 0},
	} {
		for _, n := range []int{10, 5000} {
			t.Run(fmt.Sprintf("%s, %d bytes", c.name, n), func(t *testing.T) {
				p := newPipe(t, nil)
				through, answers := false, false
				p.drop = func(from *FEP, b []byte) bool { return from == p.a && !through || from == p.b && !answers }
				buf := make([]byte, n)
				if c.posted {
					p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: buf, Context: "r"})
				}
				msg := pattern(n, 3)
				p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: msg, Level: c.level, Inject: c.inject, Context: "s"})
				p.exchange()
				got := len(p.events(p.a))
				if got != c.atOnce {
					t.Fatalf("%d entries with nothing sent, want %d", got, c.atOnce)
				}
				through = true
				p.until(func() bool { msgs, _ := p.b.ses.Unexpected(); return p.b.ses.Recvs() == 0 && (c.posted || msgs == 1) })
				if got += len(p.events(p.a)); got != c.toward {
					t.Fatalf("%d entries with nothing answered, want %d", got, c.toward)
				}
				if c.posted {
					// R-TGT-01: the entry of the target means that the data is there.
					p.want(p.b, fmt.Sprintf("r ok len=%d", n))
					if !bytes.Equal(buf, pattern(n, 3)) {
						t.Fatal("the bytes are not there")
					}
				}
				answers = true
				p.until(func() bool { return p.a.ses.Sends() == 0 })
				if got += len(p.events(p.a)); got != 1 {
					t.Fatalf("%d entries", got)
				}
			})
		}
	}
}

// until lets time pass until done returns true.
func (p *pipe) until(done func() bool) {
	p.t.Helper()
	p.exchange()
	for end := p.now + 10*time.Second; !done(); {
		for _, f := range []*FEP{p.a, p.b} {
			if t := f.NextTimeout(); t != 0 {
				p.now = max(p.now, t)
			}
		}
		if p.now > end {
			p.t.Fatal("it does not happen")
		}
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
		p.now += time.Millisecond
	}
}

func TestFEPOrderMakesVisible(t *testing.T) {
	// R-TGT-03: with order, the target's entry of the second message shows the data of the
	// first, whatever their levels and lengths, although the second was posted right after
	// the first. R-ORD-02, R-ORD-05.
	p := newPipe(t, nil)
	first, second := make([]byte, 50_000), make([]byte, 8)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: first, Context: 1})
	p.post(p.b, Op{Kind: OpTRecv, Tag: 2, Buf: second, Context: 2})
	lost := 0
	p.drop = func(from *FEP, b []byte) bool {
		lost++
		return from == p.a && lost == 3 // a packet of the first message comes late
	}
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: pattern(50_000, 1), Level: LevelInject, Ordered: true})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 2, Buf: pattern(8, 2), Level: LevelInject, Ordered: true})
	p.until(func() bool { return p.b.ses.Recvs() == 0 })
	p.want(p.b, "1 ok len=50000", "2 ok len=8")
	if !bytes.Equal(first, pattern(50_000, 1)) || !bytes.Equal(second, pattern(8, 2)) {
		t.Error("the bytes are not there")
	}
}

func TestFEPDeliveryMakesVisible(t *testing.T) {
	// R-TGT-04: without order, after the DELIVERY_COMPLETE entry of the first message the
	// target's entry of a later one shows the data of the first. R-TGT-05: so it does if
	// the later one is posted at once, with a fence and DELIVERY_COMPLETE.
	for _, fence := range []bool{false, true} {
		p := newPipe(t, nil)
		first := make([]byte, 50_000)
		p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: first, Context: 1})
		p.post(p.b, Op{Kind: OpTRecv, Tag: 2, Context: 2})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: pattern(50_000, 1), Level: LevelDelivery, Visible: true})
		sent := 0
		p.drop = func(from *FEP, b []byte) bool {
			if from == p.a {
				sent++
			}
			return from == p.a && sent == 3 // a packet of the first message comes after the second message
		}
		if !fence {
			p.until(func() bool { return p.a.NextEvent() != nil })
			if !bytes.Equal(first, pattern(50_000, 1)) {
				t.Error("the entry of the first one is there, its bytes are not")
			}
		}
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 2, Level: LevelDelivery, Visible: true, Fence: fence})
		var ends []string
		p.until(func() bool {
			ends = append(ends, p.events(p.b)...)
			if slices.Contains(ends, "2 ok len=0") && !bytes.Equal(first, pattern(50_000, 1)) {
				t.Fatal("the entry of the second one is there, the first one's bytes are not")
			}
			return len(ends) == 2
		})
		if want := []string{"1 ok len=50000", "2 ok len=0"}; !slices.Equal(ends, want) {
			t.Errorf("fence %v: %q, want %q", fence, ends, want)
		}
	}
}

func TestFEPAddressesStayHome(t *testing.T) {
	// R-ADDR-02: no packet has the address record. Its IP address in network order would
	// show it.
	p := newPipe(t, func(c *Config) { c.Initiator = 0x11223344 })
	packets := 0
	p.drop = func(from *FEP, b []byte) bool {
		packets++
		ip := from.cfg.Local.Addr().As4()
		if bytes.Contains(b, ip[:]) {
			t.Errorf("a packet of %d bytes has the address", len(b))
		}
		return false
	}
	p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 3000)})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: make([]byte, 3000)})
	p.until(func() bool { return p.a.ses.Sends() == 0 })
	if packets < 4 {
		t.Errorf("%d packets", packets)
	}
}

func TestFEPVisibleSetsDC(t *testing.T) {
	// R-ORD-10: sends of an endpoint with fences ask the target to answer after the message
	// is visible, at every level. R-CMPL-11: other sends do so at DELIVERY.
	for _, c := range []struct {
		level   Level
		visible bool
		dc      bool
	}{{LevelInject, false, false}, {LevelTransmit, false, false}, {LevelDelivery, false, true}, {LevelInject, true, true}, {LevelTransmit, true, true}} {
		p := newPipe(t, nil)
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Level: c.level, Visible: c.visible})
		p.a.Transmit(p.now, &p.d)
		r, _, err := wire.ParseReqStd(p.d.Data[wire.ReqLen:])
		if err != nil || r.Flags&wire.SESDC != 0 != c.dc {
			t.Errorf("%+v: flags %v, %v", c, r.Flags, err)
		}
	}
}
