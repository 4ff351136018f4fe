package transport

import (
	"bytes"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// testKey is a key that depends on b.
func testKey(b byte) (k tss.Key) {
	for i := range k {
		k[i] = b + byte(i)
	}
	return k
}

// secured makes a Domain with one key for every FEP that a test opens. Each FEP is the next
// source of the domain.
func secured(t testing.TB, change func(*tss.Config)) func(*Config) {
	next := uint32(0)
	return func(c *Config) {
		next++
		tc := tss.Config{SDI: 7, Mode: tss.Cluster, UseSSI: true, SSI: next, Local: c.Local.Addr()}
		if change != nil {
			change(&tc)
		}
		d, err := tss.New(tc)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Install(0, testKey(1)); err != nil {
			t.Fatal(err)
		}
		if err := d.Use(0, 0, uint16(next), 1000); err != nil {
			t.Fatal(err)
		}
		c.TSS = d
	}
}

// Messages of all sizes arrive in sealed packets. Each packet is a security header, cipher
// text and ICV, and has no bytes of the message in clear.
func TestSecuredMessages(t *testing.T) {
	for _, oneRTT := range []bool{false, true} {
		sec := secured(t, nil)
		p := newPipe(t, func(c *Config) { sec(c); c.OneRTT = oneRTT })
		seen := 0
		p.drop = func(_ *FEP, b []byte) bool {
			seen++
			if wire.Type(b[0]>>3) != wire.TypeTSS || bytes.Contains(b, []byte("attack at dawn")) {
				t.Errorf("a packet in clear: %x", b)
			}
			return false
		}
		for _, n := range []int{0, 14, 1000, 100_000} {
			msg := bytes.Repeat([]byte("attack at dawn"), n/14+1)[:n]
			buf := make([]byte, n)
			p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: buf, Context: "recv"})
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: msg, Context: "send"})
			p.exchange()
			if got := p.events(p.a); len(got) != 1 || got[0] != "send ok" {
				t.Fatalf("1-RTT %v, %d bytes: sender's events %q", oneRTT, n, got)
			}
			if got := p.events(p.b); len(got) != 1 || !bytes.Equal(buf, msg) {
				t.Fatalf("1-RTT %v, %d bytes: receiver's events %q", oneRTT, n, got)
			}
		}
		p.checkIdle()
		if seen == 0 {
			t.Fatal("nothing was sent")
		}
		for _, f := range []*FEP{p.a, p.b} {
			for r, n := range f.Stats().Drops {
				// With 1-RTT each of the first packets is answered by the same NACK.
				if n != 0 && !(oneRTT && DropReason(r) == DropStale) {
					t.Errorf("1-RTT %v: %d drops: %v", oneRTT, n, DropReason(r))
				}
			}
		}
	}
}

// T8: no packet in clear has an effect on a secured FEP, and no sealed one on a FEP in
// clear. F31: both ends get a hint why.
func TestT8ClearAndSecuredDoNotMix(t *testing.T) {
	sec := secured(t, nil)
	first := true
	var hints []Hint
	p := newPipe(t, func(c *Config) {
		if first {
			sec(c)
			c.Hint = func(h Hint) { hints = append(hints, h) }
		}
		first = false
	})
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 10), Context: "recv"})
	p.post(p.a, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 10), Context: "recv"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: []byte("x"), Context: "send"})
	p.post(p.b, Op{Kind: OpTSend, Peer: p.toA, RI: 15, Tag: 1, Buf: []byte("x"), Context: "send"})
	p.exchange()
	if n := p.a.Stats().Drops[DropClear]; n == 0 {
		t.Error("a packet in clear was not dropped as such")
	}
	if n := p.b.Stats().Drops[DropSecured]; n == 0 {
		t.Error("a secured packet was not dropped as such")
	}
	bare := newPipe(t, func(c *Config) { c.NoCRC = true }).b
	bare.Receive(p.now, &dgram.Datagram{Data: append([]byte{byte(wire.TypeTSS) << 3}, make([]byte, 99)...), Remote: p.a.cfg.Local})
	if n := bare.Stats().Drops[DropSecured]; n != 1 {
		t.Errorf("without a CRC %d secured packets were dropped as such, want 1", n)
	}
	if n := p.a.PDCs() + p.b.PDCs(); n != 2 {
		t.Errorf("%d PDCs, want the two that the senders opened", n)
	}
	if a, b := p.a.Stats(), p.b.Stats(); a.TxPackets != 1 || b.TxPackets != 1 {
		t.Errorf("%d and %d packets sent: something was answered", a.TxPackets, b.TxPackets)
	}
	for range 2 * hintDrops {
		p.a.Receive(p.now, &dgram.Datagram{Data: make([]byte, 100), Remote: p.b.cfg.Local})
	}
	if len(hints) != 1 || hints[0].Peer != p.b.cfg.Local || hints[0].Reason != DropClear {
		t.Errorf("hints %+v", hints)
	}
}

// T25: a flood of forged packets causes no hint about another address, nor about a peer in
// whose name some of them are while it is heard. One that sends nothing else is named.
func TestHintNamesWhoItIs(t *testing.T) {
	sec := secured(t, nil)
	var hints []Hint
	p := newPipe(t, func(c *Config) { sec(c); c.Hint = func(h Hint) { hints = append(hints, h) } })
	bad := func(from netip.AddrPort) { p.a.Receive(p.now, &dgram.Datagram{Data: make([]byte, 100), Remote: from}) }
	each := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), 4793)
	}
	for i := range 5000 {
		p.now += time.Millisecond
		bad(each(i))
		if i%20 == 0 {
			bad(p.b.cfg.Local)
		}
		if i%100 == 0 {
			hear(p)
		}
	}
	if len(hints) != 0 {
		t.Errorf("hints %+v of a flood", hints)
	}
	other := each(77)
	for range 40 {
		p.now += suspectPause / 20
		bad(other)
	}
	if len(hints) != 1 || hints[0].Peer != other {
		t.Errorf("hints %+v, want one of %v", hints, other)
	}
	// Many are told of whether good ones come with them or not, but not if as many are of others.
	p.now += hintQuiet
	for i := range 3 * hintDrops {
		p.now += hintSpan / hintDrops / 4
		if bad(p.b.cfg.Local); i < 2*hintDrops {
			bad(each(i))
		}
		if hear(p); len(hints) != 1 && i < 3*hintDrops-1 {
			t.Fatalf("hints %+v after %d packets", hints, i+1)
		}
	}
	if len(hints) != 2 || hints[1].Peer != p.b.cfg.Local {
		t.Errorf("hints %+v, want another one of %v", hints, p.b.cfg.Local)
	}
}

// hear lets a get a message of b.
func hear(p *pipe) {
	p.post(p.a, Op{Kind: OpTRecv, Tag: 9, Buf: make([]byte, 1), Context: "recv"})
	p.post(p.b, Op{Kind: OpTSend, Peer: p.toA, RI: 15, Tag: 9, Buf: []byte("x"), Context: "send"})
	p.exchange()
	p.events(p.a)
	p.events(p.b)
}

// F31: a peer of which nothing but drops arrives is named, however few it sends.
func TestHintOfOneThatSendsLittle(t *testing.T) {
	const ms = time.Millisecond
	timeouts := []time.Duration{0, 5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms, 315 * ms, 635 * ms, 1135 * ms}
	every := func(n int, d time.Duration) (at []time.Duration) {
		for i := range n {
			at = append(at, time.Duration(i)*d)
		}
		return at
	}
	for name, c := range map[string]struct {
		at    []time.Duration // of packets that are dropped
		hears int             // a valid one arrives before that packet; 0: none does
		open  bool            // there is a PDC
		cut   bool            // a switch trims another packet before the last one
		wants int
	}{
		"a packet at its timeouts":     {at: timeouts[:8], wants: 1},
		"until now":                    {at: timeouts[:7]},
		"trimmed in between":           {at: timeouts[:8], cut: true, wants: 1},
		"more of them say nothing new": {at: every(50, 100*ms), wants: 1},
		"at once":                      {at: every(50, 0)},
		"for a short time":             {at: every(20, suspectTime/20)},
		"now and then":                 {at: every(50, suspectPause+1)},
		"heard in between":             {at: timeouts[:8], hears: 7},
		"heard before":                 {at: timeouts[:9], hears: 1, open: true},
		"heard before, many":           {at: every(hintDrops+1, 20*ms), hears: 1, open: true, wants: 1},
		"heard before, nearly as many": {at: every(hintDrops, 20*ms), hears: 1, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			sec := secured(t, nil)
			var hints []Hint
			p := newPipe(t, func(cfg *Config) {
				sec(cfg)
				cfg.Trimming, cfg.Hint = c.cut, func(h Hint) { hints = append(hints, h) }
			})
			begin := p.now
			for i, at := range c.at {
				p.now = begin + at
				if c.cut && i == len(c.at)-1 {
					b := make([]byte, 100)
					b[0] = byte(wire.TypeTSS) << 3
					p.a.Receive(p.now, &dgram.Datagram{Data: b, Remote: p.b.cfg.Local, TOS: p.a.cfg.Classes.Trimmed << 2})
					if n := p.a.Stats().Drops[DropTrimmed]; n != 1 {
						t.Fatalf("%d trimmed packets: the test does not test", n)
					}
				}
				if c.hears != 0 && c.hears == i {
					hear(p)
				}
				p.a.Receive(p.now, &dgram.Datagram{Data: make([]byte, 100), Remote: p.b.cfg.Local})
			}
			if len(hints) != c.wants || c.wants > 0 && (hints[0].Peer != p.b.cfg.Local || hints[0].Reason != DropClear) {
				t.Errorf("hints %+v, want %d", hints, c.wants)
			}
			if c.open != (p.a.PDCs() > 0) && c.hears == 1 {
				t.Errorf("%d PDCs", p.a.PDCs())
			}
			if p.a.watched != (p.a.hint.suspect.Count > 0) {
				t.Error("watched without a suspect, or a suspect that nobody watches")
			}
		})
	}
}

// F31: of several peers that do not fit one is named, and another one after a while.
func TestHintOfOneOfSeveral(t *testing.T) {
	sec := secured(t, nil)
	var hints []Hint
	p := newPipe(t, func(c *Config) { sec(c); c.Hint = func(h Hint) { hints = append(hints, h) } })
	from := [2]netip.AddrPort{netip.MustParseAddrPort("198.18.0.8:1"), netip.MustParseAddrPort("198.18.0.9:1")}
	begin := p.now
	for i := range 40 {
		p.now += hintSpan / 40
		p.a.Receive(p.now, &dgram.Datagram{Data: make([]byte, 100), Remote: from[i%2]})
	}
	if len(hints) != 1 || hints[0].Peer != from[0] {
		t.Fatalf("hints %+v of two that do not fit", hints)
	}
	for p.now < begin+hintQuiet+2*hintSpan {
		p.now += hintSpan / 40
		p.a.Receive(p.now, &dgram.Datagram{Data: make([]byte, 100), Remote: from[1]})
	}
	if len(hints) != 2 || hints[1].Peer != from[1] {
		t.Errorf("hints %+v, want a second one", hints)
	}
}

// T24, F33: a FEP whose key has no frame left refuses posts, and what was posted fails with
// "no valid key" in bounded time. After a new key it works again.
func TestF33NoValidKey(t *testing.T) {
	sec := secured(t, func(c *tss.Config) { c.MaxFrames = 200 })
	p := newPipe(t, sec)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 1<<20), Context: "recv"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 1<<20), Context: "long"})
	p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 2, Buf: make([]byte, 10), Context: "short"})
	p.exchange()
	if n := p.a.Stats().TxPackets; n > 200 {
		t.Fatalf("%d packets sealed with 200 frames", n)
	}
	begin := p.now
	for turn := 0; p.a.Busy(); turn++ {
		at := p.a.NextTimeout()
		if at == 0 || at-begin > 10*time.Second || turn == 10_000 {
			t.Fatalf("no end in sight: %v", p.a.Dump())
		}
		p.now = max(at, p.now)
		p.a.Advance(p.now)
		p.exchange()
	}
	for e := p.a.NextEvent(); e != nil; e = p.a.NextEvent() {
		if e.Context == "long" && e.Cause != ses.NoKey {
			t.Errorf("%v: %v", e.Context, e.Cause)
		}
	}
	op := Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 3, Buf: []byte("x"), Context: "late"}
	for p.a.sec.Ready() { // uses up the last frames, too few for a train
		if b, ok := p.a.sec.Begin(nil); !ok || len(b) == 0 {
			break
		}
	}
	if err := p.a.Post(p.now, &op); !errors.Is(err, ErrNoKey) {
		t.Fatalf("post without a key: %v", err)
	}
	for i, f := range []*FEP{p.a, p.b} {
		if err := f.sec.Install(1, testKey(9)); err != nil {
			t.Fatal(err)
		}
		if err := f.sec.Use(p.now, 1, uint16(i+1), 0); err != nil {
			t.Fatal(err)
		}
	}
	p.post(p.a, op)
	p.post(p.b, Op{Kind: OpTRecv, Tag: 3, Buf: make([]byte, 10), Context: "recv"})
	for range 1000 {
		if !p.a.Busy() {
			break
		}
		p.exchange()
		p.now = max(p.now, p.a.NextTimeout())
		p.a.Advance(p.now)
		p.b.Advance(p.now)
	}
	p.want(p.a, "late ok")
}

// T40: the hot paths allocate nothing when packets are sealed, either.
func TestSecuredAllocs(t *testing.T) {
	sec := secured(t, nil)
	p := newPipe(t, sec)
	buf, msg := make([]byte, 1000), make([]byte, 1000)
	var recv, send any = "recv", "send"
	round := func() {
		p.now += 10 * time.Microsecond
		p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: buf, Context: recv})
		p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: msg, Context: send})
		p.exchange()
		for p.a.NextEvent() != nil || p.b.NextEvent() != nil {
		}
	}
	for range 5000 {
		round()
	}
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// nackStart is a NACK 0x17 in clear for the PDC that f opens, with a correct trailer.
func nackStart(f *FEP, from netip.AddrPort, code wire.NackCode, start uint32) []byte {
	n := wire.Nack{Type: wire.TypeNack, Code: code, Payload: start}
	f.pds.Each(func(p *pds.PDC) { n.PSN, n.DPDCID = p.StartPSN(), p.ID() })
	b := append(n.Append(nil), make([]byte, wire.CRCLen)...)
	wire.PutCRC(b, wire.CRCPrefix(from.Addr(), f.cfg.Local.Addr(), from.Port(), f.cfg.Local.Port(), uint16(8+len(b))))
	return b
}

// T7: a NACK 0x17 in clear changes the Start_PSN of a PDC only if the switch for the
// reference provider is on, only with a good CRC, only while the PDC opens, and only eight
// times.
func TestT7ClearStart(t *testing.T) {
	for _, c := range []struct {
		name             string
		on, bad, opened  bool
		code             wire.NackCode
		sent             int
		followed         uint64
		clear, crc, bind uint64 // drops
	}{
		{name: "off", code: wire.NackNewStartPSN, sent: 1, clear: 1},
		{name: "on", on: true, code: wire.NackNewStartPSN, sent: 1, followed: 1},
		{name: "wrong CRC", on: true, bad: true, code: wire.NackNewStartPSN, sent: 1, crc: 1},
		{name: "another code", on: true, code: wire.NackClosingInErr, sent: 2, clear: 2},
		{name: "nine", on: true, code: wire.NackNewStartPSN, sent: 9, followed: 8, bind: 1},
		{name: "opened", on: true, opened: true, code: wire.NackNewStartPSN, sent: 1, bind: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sec := secured(t, nil)
			p := newPipe(t, func(cfg *Config) { sec(cfg); cfg.AcceptClearStart = c.on })
			dark := true
			p.drop = func(from *FEP, _ []byte) bool { return dark }
			p.post(p.b, Op{Kind: OpTRecv, Tag: 1, Buf: make([]byte, 5000), Context: "recv"})
			p.post(p.a, Op{Kind: OpTSend, Peer: p.toB, RI: 15, Tag: 1, Buf: make([]byte, 5000), Context: "send"})
			if c.opened {
				n := 0
				p.drop = func(from *FEP, _ []byte) bool {
					if from == p.b {
						n++
					}
					return dark && n > 1 // the first ACK arrives
				}
			}
			p.exchange()
			var was wire.PSN
			p.a.pds.Each(func(q *pds.PDC) {
				if was = q.StartPSN(); (q.RemoteID() != 0) != c.opened {
					t.Fatalf("%v: the test does not test", q)
				}
			})
			for i := range c.sent {
				b := nackStart(p.a, p.b.cfg.Local, c.code, uint32(was)+uint32(i+1)<<16)
				if c.bad {
					b[len(b)-1] ^= 1
				}
				p.a.Receive(p.now, &dgram.Datagram{Data: b, Remote: p.b.cfg.Local})
				p.turn()
			}
			var is wire.PSN
			p.a.pds.Each(func(q *pds.PDC) { is = q.StartPSN() })
			st := p.a.Stats()
			if got := uint64(is.Sub(was)) >> 16; got != c.followed || st.Drops[DropClear] != c.clear || st.Drops[DropCRC] != c.crc || st.Drops[DropBinding] != c.bind {
				t.Errorf("the start moved %d times, %d drops as clear, %d for their CRC, %d for who they are from",
					got, st.Drops[DropClear], st.Drops[DropCRC], st.Drops[DropBinding])
			}
			if st.TxPackets == 0 || p.a.PDCs() != 1 {
				t.Errorf("%d PDCs", p.a.PDCs())
			}
			dark = false
			for range 1000 {
				if !p.a.Busy() {
					break
				}
				p.now = max(p.now, p.a.NextTimeout())
				p.a.Advance(p.now)
				p.exchange()
			}
			p.want(p.a, "send ok")
		})
	}
}

// T1: a flood of requests to open PDCs, in clear or sealed with a wrong key, from ever new
// addresses and sources, is neither answered nor remembered.
func TestT1UnauthenticatedMakesNoState(t *testing.T) {
	sec := secured(t, nil)
	p := newPipe(t, func(c *Config) { sec(c); c.AcceptClearStart = true })
	h := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: 1 << 20, SPDCID: 9, ClearOff: -1}
	q := wire.ReqStd{Opcode: wire.OpTaggedSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, MsgID: 1, JobID: 1, RI: 15, Initiator: 16}
	plain := q.Append(h.Append(nil))
	b := make([]byte, 0, 200)
	flood := func(from, n int) {
		for i := from; i < from+n; i++ {
			remote := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), uint16(1+i%60000))
			b = b[:0]
			if i%2 == 0 {
				t := wire.TSS{SP: true, SDI: 7, SSI: uint32(i), TSC: uint64(i)}
				b = t.Append(b)
			}
			b = append(append(b, plain...), make([]byte, wire.ICVLen)...)
			if i%2 != 0 {
				b = b[:len(plain)+wire.CRCLen]
				wire.PutCRC(b, wire.CRCPrefix(remote.Addr(), p.a.cfg.Local.Addr(), remote.Port(), p.a.cfg.Local.Port(), uint16(8+len(b))))
			}
			p.a.Receive(p.now, &dgram.Datagram{Data: b, Remote: remote})
			p.now += time.Microsecond
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	flood(0, 1000)
	peers, before := len(p.a.peers), heap()
	const n = 20_000
	flood(1000, n)
	after := heap()
	if after > before+n {
		t.Errorf("%d bytes more after %d packets", after-before, n)
	}
	p.exchange()
	st := p.a.Stats()
	if got := st.Drops[DropClear] + st.Drops[DropAuth]; got != 1000+n {
		t.Errorf("%d of %d are counted: %v", got, 1000+n, st.Drops)
	}
	if p.a.PDCs() != 0 || len(p.a.peers) != peers || p.a.sec.Stats().Sources != 0 || p.a.NextTimeout() != 0 || st.TxPackets != 0 {
		t.Errorf("%d PDCs, %d peers, %d sources, timeout %v, %d answers", p.a.PDCs(), len(p.a.peers)-peers, p.a.sec.Stats().Sources, p.a.NextTimeout(), st.TxPackets)
	}
}
