package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

func trimming(c *Config) { c.Trimming = true }

// through carries one train, packet by packet, through a switch that may trim some. cut
// returns the length to which a packet is trimmed and its new code point; 0 means the
// packet stays whole. through returns the code point of the train, the PDS types of its
// packets and what became of them, or "" if there was no train.
func (p *pipe) through(from, to *FEP, cut func(b []byte) (keep int, dscp uint8)) string {
	p.t.Helper()
	if !from.Transmit(p.now, &p.d) {
		return ""
	}
	s := fmt.Sprint(p.d.DSCP())
	for rest := p.d.Data; len(rest) > 0; {
		var b []byte
		b, rest = p.d.Next(rest)
		s += " " + wire.Type(b[0]>>3).String()
		if c, _, err := wire.ParseCP(b); err == nil {
			s += "-" + c.Ctl.String()
		}
		d := &dgram.Datagram{Data: slices.Clone(b), Remote: from.cfg.Local, TOS: p.d.TOS}
		if cut != nil {
			if keep, dscp := cut(b); keep > 0 {
				d.Data, d.TOS = d.Data[:keep], dscp<<2|d.ECN()
				s += " cut"
			}
		}
		to.Receive(p.now, d)
	}
	return s
}

// quiet carries everything both ways, as through does, until nothing is left.
func (p *pipe) quiet(cut func(b []byte) (int, uint8)) (out []string) {
	p.t.Helper()
	for {
		n := len(out)
		for _, f := range [][2]*FEP{{p.a, p.b}, {p.b, p.a}} {
			f[0].Flush(p.now)
			for s := p.through(f[0], f[1], cut); s != ""; s = p.through(f[0], f[1], cut) {
				out = append(out, s)
			}
		}
		if len(out) == n {
			return out
		}
		p.now += 50 * time.Microsecond
	}
}

func (p *pipe) wantTrains(got []string, want ...string) {
	p.t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		p.t.Errorf("trains:\n%s\nwant:\n%s", g, w)
	}
}

// message posts a message of n bytes from a to b, and its receive.
func (p *pipe) message(n int) (src, dst []byte) {
	src, dst = pattern(n, 5), make([]byte, n)
	p.post(p.b, Op{Kind: OpTRecv, Buf: dst, Tag: 1, Context: "r"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 1, Context: "s"})
	return src, dst
}

func (p *pipe) wantMessage(src, dst []byte) {
	p.t.Helper()
	p.want(p.b, fmt.Sprintf("r ok len=%d", len(src)))
	p.want(p.a, "s ok")
	if !bytes.Equal(src, dst) {
		p.t.Error("bytes differ")
	}
}

// cutFirst trims requests that are sent for the first time to keep bytes, n of them at
// most.
func cutFirst(keep int, dscp uint8, n int) func([]byte) (int, uint8) {
	return func(b []byte) (int, uint8) {
		h, _, err := wire.ParseReq(b)
		if err != nil || h.Flags&wire.FlagRETX != 0 || n == 0 {
			return 0, 0
		}
		n--
		return keep, dscp
	}
}

func TestTrimmingClasses(t *testing.T) {
	// UE packet trimming: new data, resent data and everything else have different classes,
	// and no train has two classes.
	p := newPipe(t, trimming)
	src, dst := p.message(100)
	p.wantTrains(p.quiet(nil),
		"10 RUD_REQ",
		"46 ACK_CC",
		"46 CTRL-CLEAR_CMD") // the greeting
	p.wantMessage(src, dst)
	src, dst = p.message(5 << 10)
	p.wantTrains(p.quiet(cutFirst(36, 26, 1)),
		"10 RUD_REQ cut RUD_REQ RUD_REQ RUD_REQ RUD_REQ",
		"46 NACK",
		"46 ACK_CC",
		"12 RUD_REQ",
		"46 ACK_CC")
	p.wantMessage(src, dst)
	p.checkIdle()
	// A resend and new data may leave at the same time.
	src, dst = p.message(3 << 10)
	p.through(p.a, p.b, cutFirst(36, 26, 1))
	p.through(p.b, p.a, nil)
	p.message(1 << 10)
	p.wantTrains([]string{p.through(p.a, p.b, nil), p.through(p.a, p.b, nil)}, "12 RUD_REQ", "10 RUD_REQ")
	p.quiet(nil)
	p.events(p.a)
	p.events(p.b)
	if !bytes.Equal(src, dst) {
		t.Error("bytes differ")
	}
	if st := p.a.Stats(); st.RtxNack != 2 || st.RtxSACK+st.RtxRTO+st.RtxProbe+st.RtxSpurious != 0 {
		t.Errorf("resends: %+v", st)
	}
	if st := p.b.Stats(); st.RxTrimmed != 2 || st.NacksTx[wire.NackTrimmed] != 2 || st.Drops != [NumDropReasons]uint64{} {
		t.Errorf("%d trimmed, %d NACKs, drops %v", st.RxTrimmed, st.NacksTx[wire.NackTrimmed], st.Drops)
	}
}

func TestTrimmingDataDoesNotHoldUpAcks(t *testing.T) {
	// With data both ways, an ACK has the control class, so it cannot ride with data, and
	// is sent before it.
	p := newPipe(t, trimming)
	p.message(100)
	p.quiet(nil)
	p.events(p.a)
	p.events(p.b)
	p.message(100)
	p.through(p.a, p.b, nil)
	p.post(p.b, Op{Kind: OpTSend, Peer: p.toA, RI: 15, Buf: make([]byte, 3<<10), Tag: 1})
	p.b.Flush(p.now)
	p.wantTrains([]string{p.through(p.b, p.a, nil), p.through(p.b, p.a, nil)}, "46 ACK_CC", "10 RUD_REQ RUD_REQ RUD_REQ")
}

func TestTrimmingProbeGoesWithData(t *testing.T) {
	// A PROBE must not overtake data in a queue, because its answer would make the data
	// look lost.
	p := newPipe(t, trimming)
	p.message(100)
	p.through(p.a, p.b, nil)
	p.now += 50 * time.Microsecond // the round trip
	p.quiet(nil)
	p.message(3 << 10)
	p.a.Transmit(p.now, &p.d) // lost
	for range 100 {
		p.now += 50 * time.Microsecond
		p.a.Advance(p.now)
		p.a.Flush(p.now)
		if s := p.through(p.a, p.b, nil); s != "" {
			p.wantTrains([]string{s}, "10 CTRL-PROBE")
			return
		}
	}
	t.Error("no PROBE")
}

func TestTrimmingOffIsAsBefore(t *testing.T) {
	// Without Trimming there is one class, and a trimmed packet counts as damaged.
	p := newPipe(t, func(c *Config) { c.DSCP = 7 })
	src, dst := p.message(5 << 10)
	p.wantTrains(p.quiet(cutFirst(36, 26, 1))[:1], "7 RUD_REQ cut RUD_REQ RUD_REQ RUD_REQ RUD_REQ")
	if st := p.b.Stats(); st.RxTrimmed != 0 || st.Drops[DropCRC] != 1 {
		t.Errorf("%d trimmed, %d of bad CRC", st.RxTrimmed, st.Drops[DropCRC])
	}
	for range 200 { // a timer finds the loss of the tail
		p.now += 100 * time.Microsecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.quiet(nil)
	}
	p.wantMessage(src, dst)
}

func TestTrimmingWholePacketIsOrdinary(t *testing.T) {
	// A network may use the code points for something else: a packet that verifies is
	// accepted.
	p := newPipe(t, trimming)
	src, dst := p.message(5 << 10)
	all := func(b []byte) (int, uint8) { return len(b), 26 }
	p.quiet(all)
	p.wantMessage(src, dst)
	for _, f := range []*FEP{p.a, p.b} {
		if st := f.Stats(); st.RxTrimmed != 0 || st.Drops != [NumDropReasons]uint64{} {
			t.Errorf("%d trimmed, drops %v", st.RxTrimmed, st.Drops)
		}
	}
}

func TestTrimmingDamagedIsNotTrimmed(t *testing.T) {
	p := newPipe(t, trimming)
	p.message(100)
	p.a.Transmit(p.now, &p.d)
	p.d.Data[20] ^= 1
	p.d.Remote = p.a.cfg.Local
	p.b.Receive(p.now, &p.d)
	if st := p.b.Stats(); st.RxTrimmed != 0 || st.Drops[DropCRC] != 1 {
		t.Errorf("%d trimmed, %d of bad CRC", st.RxTrimmed, st.Drops[DropCRC])
	}
}

func TestTrimmingEveryLength(t *testing.T) {
	// A switch may keep any part of a packet; from the PDS header on that is enough. No
	// trimmed packet is accepted, answered twice or believed.
	p := newPipe(t, trimming)
	p.message(100)
	p.quiet(nil)
	p.events(p.a)
	p.events(p.b)
	for keep := 1; keep < 12+44+1024; keep++ {
		src, dst := p.message(2 << 10)
		was := p.b.Stats()
		got := p.quiet(cutFirst(keep, 28, 1))
		st := p.b.Stats()
		n, m := st.NacksTx[wire.NackTrimmedLastHop]-was.NacksTx[wire.NackTrimmedLastHop], st.Drops[DropTrimmed]-was.Drops[DropTrimmed]
		if st.RxTrimmed != was.RxTrimmed+1 || n+m != 1 || (n == 1) != (keep >= wire.ReqLen) {
			t.Fatalf("%d bytes: %d trimmed, %d NACKs, %d dropped: %v", keep, st.RxTrimmed-was.RxTrimmed, n, m, got)
		}
		for i := 0; p.a.Busy() && i < 200; i++ {
			p.now += 100 * time.Microsecond
			p.a.Advance(p.now)
			p.b.Advance(p.now)
			p.quiet(nil)
		}
		p.wantMessage(src, dst)
	}
}

func TestTrimmingNotes(t *testing.T) {
	// Notes say that a packet was trimmed.
	p := newPipe(t, func(c *Config) { c.Trimming, c.Notes = true, true })
	p.message(100)
	p.quiet(nil)
	cut := func(keep int) []Note {
		p.message(100)
		p.a.Transmit(p.now, &p.d)
		p.b.Receive(p.now, &dgram.Datagram{Data: p.d.Data[:keep], Remote: p.a.cfg.Local, TOS: 26 << 2})
		return p.b.Notes()
	}
	if n := cut(36); len(n) != 1 || n[0].Why != "trimmed" {
		t.Errorf("notes %+v", n)
	}
	if n := cut(11); len(n) != 1 || n[0].Why != "dropped: trimmed" {
		t.Errorf("notes %+v", n)
	}
}

func TestTrimmingAllocatesNothing(t *testing.T) {
	p := newPipe(t, trimming)
	p.message(100)
	p.quiet(nil)
	p.events(p.a)
	p.events(p.b)
	src, dst := make([]byte, 8<<10), make([]byte, 8<<10)
	recv, send := Op{Kind: OpTRecv, Buf: dst, Tag: 1}, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Buf: src, Tag: 1}
	rest := dgram.Datagram{Data: make([]byte, 0, 64)}
	n := 0
	// The first packet of each train is cut.
	round := func() {
		p.b.Post(p.now, &recv)
		p.a.Post(p.now, &send)
		for i := 0; p.a.Busy(); i++ {
			for p.a.Transmit(p.now, &p.d) {
				rest.Remote, p.d.Remote = p.a.cfg.Local, p.a.cfg.Local
				if p.d.DSCP() == DefaultClasses.Trimmable && p.d.Segments() > 1 {
					rest.Data, rest.TOS = append(rest.Data[:0], p.d.Data[:36]...), DefaultClasses.Trimmed<<2
					p.b.Receive(p.now, &rest)
					p.d.Data = p.d.Data[:copy(p.d.Data, p.d.Data[p.d.Seg:])]
					n++
				}
				p.b.Receive(p.now, &p.d)
			}
			p.now += 20 * time.Microsecond
			p.b.Flush(p.now)
			for p.b.Transmit(p.now, &p.d) {
				p.d.Remote = p.b.cfg.Local
				p.a.Receive(p.now, &p.d)
			}
			p.now += 20 * time.Microsecond
			p.a.Advance(p.now)
			p.b.Advance(p.now)
			p.a.Flush(p.now)
			if i > 1000 {
				t.Fatal("no end")
			}
		}
		for p.a.NextEvent() != nil || p.b.NextEvent() != nil {
		}
	}
	for range 100 {
		round()
	}
	if k := testing.AllocsPerRun(200, round); k != 0 || n < 300 {
		t.Errorf("%v allocations a message, %d packets trimmed", k, n)
	}
}

func TestClassesCheck(t *testing.T) {
	mk := func(f func(*Config)) error {
		c := Config{Local: netip.MustParseAddrPort("198.18.0.1:4793")}
		f(&c)
		_, err := New(c, rand.New(rand.NewPCG(1, 1)))
		return err
	}
	for want, f := range map[string]func(*Config){
		"":              func(c *Config) { c.Trimming = true },
		"above 63":      func(c *Config) { c.Classes = DefaultClasses; c.Classes.Control = 64 },
		"must differ":   func(c *Config) { c.Classes = DefaultClasses; c.Classes.TrimmedLastHop = 26 },
		"other class":   func(c *Config) { c.Classes = DefaultClasses; c.Classes.TrimmableRTX = 28 },
		"needs the CRC": func(c *Config) { c.Trimming, c.NoCRC = true, true },
	} {
		err := mk(f)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := mk(func(c *Config) { c.Classes = Classes{0, 1, 2, 3, 4}; c.Trimming = true }); err != nil {
		t.Error(err)
	}
}
