package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// newGrams makes a pipe of FEPs with datagrams.
func newGrams(t *testing.T, change func(*Config)) *pipe {
	return newPipe(t, func(c *Config) {
		c.Datagram = true
		if change != nil {
			change(c)
		}
	})
}

func TestDatagramFillsReceive(t *testing.T) {
	// S-UUD-01, S-CPL-06: one packet with opcode DATAGRAM_SEND and message id 0 each, no answer. The
	// send ends when it leaves.
	for name, change := range map[string]func(*Config){"clear": nil, "sealed": secured(t, nil)} {
		t.Run(name, func(t *testing.T) {
			p := newGrams(t, change)
			packets := 0
			p.drop = func(from *FEP, b []byte) bool {
				packets++
				if from != p.a {
					t.Errorf("an answer: %x", b)
				}
				var r wire.ReqStd
				if name == "clear" {
					if _, err := r.Parse(b[wire.UUDLen:]); err != nil || wire.Type(b[0]>>3) != wire.TypeUUDReq || r.Opcode != wire.OpDatagramSend || r.MsgID != 0 {
						t.Errorf("packet %x: %v", b, err)
					}
				}
				return false
			}
			for i, n := range []int{0, 1, 1000, 1024} {
				msg, buf := pattern(n, byte(i)), make([]byte, n)
				p.post(p.b, Op{Kind: OpRecv, Buf: buf, Context: "recv"})
				op := Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: msg, Context: "send", HasData: true, Data: 7}
				if n > 500 {
					op.Buf, op.Iov = nil, [][]byte{msg[:n/2], msg[n/2:]}
				}
				p.post(p.a, op)
				p.exchange()
				p.want(p.a, "send ok")
				p.want(p.b, fmt.Sprintf("recv ok len=%d data=0x7", n))
				if !bytes.Equal(buf, msg) {
					t.Errorf("%d bytes: others arrived", n)
				}
			}
			if packets != 4 {
				t.Errorf("%d packets", packets)
			}
			if s := p.b.Stats(); p.a.PDCs()+p.b.PDCs() != 0 || s.MsgsRx != 4 {
				t.Errorf("%d messages, %d and %d PDCs", s.MsgsRx, p.a.PDCs(), p.b.PDCs())
			}
			p.checkIdle()
		})
	}
}

func TestDatagramWithoutReceiveIsGone(t *testing.T) {
	// R-MSG-16: the sender has success, and a receive posted later does not get it.
	p := newGrams(t, nil)
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("early"), Context: "1"})
	p.exchange()
	p.want(p.a, "1 ok")
	buf := make([]byte, 10)
	p.post(p.b, Op{Kind: OpRecv, Buf: buf, Context: "recv"})
	p.exchange()
	p.want(p.b)
	if n := p.b.Stats().Unwanted; n != 1 {
		t.Errorf("%d unwanted", n)
	}
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("in time"), Context: "2"})
	p.exchange()
	p.want(p.b, "recv ok len=7")
}

func TestDatagramSource(t *testing.T) {
	// A receive that names a source takes only its datagrams. That of a source that nobody named has
	// its address, and its number ends with it.
	p := newGrams(t, nil)
	stranger, err := New(Config{Local: netip.MustParseAddrPort("198.18.0.9:4793"), Datagram: true}, rand.New(rand.NewPCG(3, 3)))
	if err != nil {
		t.Fatal(err)
	}
	to, _ := stranger.Peer(p.b.cfg.Local, true)
	send := func() {
		if err := stranger.Post(p.now, &Op{Kind: OpSend, Peer: to, RI: 15, Buf: []byte("hi")}); err != nil {
			t.Fatal(err)
		}
		stranger.Transmit(p.now, &p.d)
		p.d.Remote = stranger.cfg.Local
		p.b.Receive(p.now, &p.d)
	}
	p.post(p.b, Op{Kind: OpRecv, Peer: p.toA, Buf: make([]byte, 9), Context: "of a"})
	send()
	p.want(p.b)
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 9), Context: "of any"})
	send()
	e := p.b.NextEvent()
	if e == nil || e.Context != "of any" || p.b.PeerAddr(e.Peer) != stranger.cfg.Local {
		t.Fatalf("event %+v", e)
	}
	if p.b.peers[e.Peer].used {
		t.Error("the stranger is a peer for ever")
	}
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("hello"), Context: "send"})
	p.exchange()
	p.want(p.b, "of a ok len=5")
}

func TestDatagramLimits(t *testing.T) {
	// S-SEG-09: a datagram is one packet.
	p := newGrams(t, nil)
	for _, c := range []struct {
		op   Op
		want error
	}{
		{Op{Kind: OpSend, Peer: p.toB, Buf: make([]byte, 1025)}, ErrTooLong},
		{Op{Kind: OpSend, Peer: 77, Buf: make([]byte, 1)}, ErrNoPeer},
		{Op{Kind: OpRecv, Peer: 77, Buf: make([]byte, 1)}, ErrNoPeer},
	} {
		if err := p.a.Post(p.now, &c.op); err != c.want {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 3), Context: "recv"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("longer"), Context: "send"})
	p.exchange()
	p.want(p.b, "recv truncated len=3 over=3")
	p.want(p.a, "send ok")
	// A cancelled one does not leave.
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("x"), Context: "no"})
	if !p.a.Cancel(p.now, 0, "no") || p.a.Transmit(p.now, &p.d) {
		t.Error("it was not cancelled")
	}
	p.want(p.a, "no cancelled")
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("x"), Context: "closed"})
	p.a.Close(p.now)
	p.want(p.a, "closed cancelled")
	if err := p.a.Post(p.now, &Op{Kind: OpSend, Peer: p.toB}); err != ErrClosed {
		t.Error(err)
	}
	p.checkIdle()
}

func TestDatagramMultiReceive(t *testing.T) {
	p := newGrams(t, nil)
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 32), Multi: true, MinFree: 9, Context: "m"})
	for i := range 4 {
		p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("12345678"), Context: i, Silent: true})
	}
	p.exchange()
	p.want(p.a)
	p.want(p.b, "m ok len=8", "m ok len=8", "m ok len=8")
	if n := p.b.Stats().Unwanted; n != 1 {
		t.Errorf("%d unwanted", n)
	}
}

func TestDatagramsAndPDCsDoNotMix(t *testing.T) {
	// A FEP with datagrams opens no PDC for others, and one without drops datagrams.
	p := newGrams(t, nil)
	p.b.cfg.Datagram = false
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 3), Context: "recv"})
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("x"), Context: "send"})
	p.exchange()
	p.want(p.b)
	q := newGrams(t, nil)
	q.a.cfg.Datagram, q.a.unusual = false, false
	q.post(q.b, Op{Kind: OpRecv, Buf: make([]byte, 3), Context: "recv"})
	q.post(q.a, Op{Kind: OpSend, Peer: q.toB, RI: 15, Buf: []byte("x"), Context: "send"})
	q.exchange()
	q.want(q.b)
	if p.b.Stats().Drops[DropType] == 0 || q.b.Stats().Drops[DropType] == 0 || q.b.PDCs() != 0 {
		t.Errorf("drops %d and %d, %d PDCs", p.b.Stats().Drops[DropType], q.b.Stats().Drops[DropType], q.b.PDCs())
	}
}

func TestDatagramBadInput(t *testing.T) {
	// What is cut, contradicts itself or is for nobody is counted, and takes no receive.
	p := newGrams(t, func(c *Config) { c.NoCRC = true })
	p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 100), Context: "recv"})
	good := wire.ReqStd{Opcode: wire.OpDatagramSend, Flags: wire.SESSOM | wire.SESEOM | wire.SESREL, JobID: 1, RI: 15, ReqLen: 4}
	for name, change := range map[string]func(*wire.ReqStd) []byte{
		"longer than the packet": func(r *wire.ReqStd) []byte { r.ReqLen = 5; return nil },
		"first of several":       func(r *wire.ReqStd) []byte { r.Flags &^= wire.SESEOM; return nil },
		"not the first":          func(r *wire.ReqStd) []byte { r.Flags &^= wire.SESSOM; return nil },
		"initiator error":        func(r *wire.ReqStd) []byte { r.Flags |= wire.SESIE; return nil },
		"tagged":                 func(r *wire.ReqStd) []byte { r.Opcode = wire.OpTaggedSend; return nil },
		"a write":                func(r *wire.ReqStd) []byte { r.Opcode = wire.OpWrite; return nil },
		"another job":            func(r *wire.ReqStd) []byte { r.JobID = 2; return nil },
		"another generation":     func(r *wire.ReqStd) []byte { r.Gen = 1; return nil },
		"cut":                    func(r *wire.ReqStd) []byte { return []byte{} },
	} {
		r := good
		b := wire.UUDHdr{Next: wire.NextReqStd}.Append(nil)
		if cut := change(&r); cut != nil {
			b = append(b, make([]byte, 20)...)
		} else {
			b = append(r.Append(b), "data"...)
		}
		was := p.b.Stats().Bad
		p.b.Receive(p.now, &dgram.Datagram{Data: b, Remote: p.a.cfg.Local})
		if p.b.Stats().Bad != was+1 || p.b.Events() != 0 {
			t.Errorf("%s: %d bad, %d events", name, p.b.Stats().Bad-was, p.b.Events())
		}
	}
	b := append(good.Append(wire.UUDHdr{Next: wire.NextReqStd}.Append(nil)), "data"...)
	p.b.Receive(p.now, &dgram.Datagram{Data: b, Remote: p.a.cfg.Local})
	p.want(p.b, "recv ok len=4")
}

func TestDatagramReplay(t *testing.T) {
	// T23: a sealed datagram that comes again is dropped.
	p := newGrams(t, secured(t, nil))
	for range 2 {
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 9), Context: "recv"})
	}
	p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Buf: []byte("once"), Context: "send"})
	p.a.Transmit(p.now, &p.d)
	p.d.Remote = p.a.cfg.Local
	again := append([]byte(nil), p.d.Data...)
	p.b.Receive(p.now, &p.d)
	p.want(p.b, "recv ok len=4")
	p.b.Receive(p.now+time.Millisecond, &dgram.Datagram{Data: again, Remote: p.a.cfg.Local})
	p.want(p.b)
	if p.b.Stats().Drops[DropReplay] != 1 {
		t.Errorf("drops %v", p.b.Stats().Drops)
	}
}
