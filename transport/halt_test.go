package transport

import (
	"errors"
	"testing"
	"time"
)

func TestOrderedMessagesBehindOneThatFails(t *testing.T) {
	// With Config.Halt no ordered message is received in the place of one that failed: those behind it fail, too,
	// those that had not left for certain, and Post refuses others until Abandon. Without it what had not left goes.
	for _, halt := range []bool{false, true} {
		p := newPipe(t, func(c *Config) { c.Halt, c.MPRange, c.Messages.DeferrableMin = halt, 128, -1 })
		p.drop = func(from *FEP, b []byte) bool { return len(b) > 700 } // less than every path should carry
		send := func(n int, kind OpKind, ordered bool) error {
			return p.a.Post(p.now, &Op{Kind: kind, Peer: p.toB, RI: 15, Buf: make([]byte, n), Tag: 7, Context: "s", Ordered: ordered})
		}
		received := func() (n int) {
			p.exchange()
			for e := p.b.NextEvent(); e != nil; e = p.b.NextEvent() {
				n++
			}
			return n
		}
		for range 400 {
			p.post(p.b, Op{Kind: OpTRecv, Buf: make([]byte, 1024), Tag: 7, Context: "r"})
		}
		p.post(p.b, Op{Kind: OpRecv, Buf: make([]byte, 1024), Context: "r"})
		if err := send(10, OpTSend, true); err != nil {
			t.Fatal(err)
		}
		if n := received(); n != 1 {
			t.Fatalf("%d messages at first", n)
		}
		p.events(p.a)
		const behind = 300 // and the peer's window is 128
		for i := range 1 + behind {
			n := 10
			if i == 0 {
				n = 1024
			}
			if err := send(n, OpTSend, true); err != nil {
				t.Fatal(err)
			}
		}
		got, failed, certain := 0, 0, 0
		for range 3000 {
			p.now += 10 * time.Millisecond
			p.a.Advance(p.now)
			p.b.Advance(p.now)
			got += received()
			for e := p.a.NextEvent(); e != nil; e = p.a.NextEvent() {
				if e.Cause == TooBig {
					failed++
					if !e.Unknown {
						certain++
					}
				}
			}
		}
		if !halt {
			if got == 0 || failed == 1+behind {
				t.Errorf("without Halt %d messages arrive behind one that failed, and %d fail", got, failed)
			}
			continue
		}
		if got != 0 || failed != 1+behind || certain == 0 {
			t.Errorf("%d messages arrive behind one that failed; %d of %d fail, %d for certain", got, failed, 1+behind, certain)
		}
		if err := send(10, OpTSend, true); !errors.Is(err, ErrHalted) {
			t.Errorf("another message: %v", err)
		}
		if err := errors.Join(send(10, OpSend, true), send(10, OpTSend, false)); err != nil {
			t.Errorf("messages that cannot take its place: %v", err)
		}
		if n := received(); n != 2 {
			t.Errorf("%d of 2 messages that cannot take its place arrive", n)
		}
		p.a.Abandon(p.now, p.toB)
		if err := send(10, OpTSend, true); err != nil || received() != 1 {
			t.Errorf("after Abandon: %v", err)
		}
	}
}
