package ses

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/transport/wire"
)

func TestMultiRecvPacks(t *testing.T) {
	// S-MAT-09, R-MSG-12: messages are packed one after another, each with its place, and the last one
	// releases the buffer. R-MSG-13: they begin at multiples of 8 bytes.
	g := newRig(t)
	buf := make([]byte, 100)
	g.recv(Recv{Buf: buf, Multi: true, MinFree: 30, Context: "multi"})
	off := 0
	for _, n := range []int{13, 0, 24, 31} {
		body := pattern(n)
		g.want(srcA, g.untagged(body, 1024)[0], "default OK "+itoa(n))
		e := g.wantEvent(EvRecv, OK, "multi", n)
		if !e.Multi || e.Released != (n == 31) || cap(e.Buf) != n || n > 0 && &e.Buf[0] != &buf[off] {
			t.Fatalf("message of %d bytes: %+v", n, e)
		}
		wantBytes(t, e.Buf, body)
		off += (n + 7) &^ 7
	}
	g.want(srcA, g.untagged(nil, 1024)[0], "response OK overflow 0 gtd") // it is not posted any more
	g.recv(Recv{})
	g.wantEvent(EvRecv, OK, nil, 0)
	if g.Recvs() != 0 {
		t.Fatal("a receive is left")
	}
	g.rest()
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

func TestMultiRecvTruncates(t *testing.T) {
	// R-MSG-13: a message longer than the room left is truncated. With nothing left the buffer
	// is released, whatever its minimum.
	for _, parts := range []int{1, 4} {
		g := newRig(t)
		buf := make([]byte, 64)
		g.recv(Recv{Buf: buf, Multi: true, Context: 1})
		for _, p := range g.untagged(pattern(40), 1024) {
			g.deliver(srcA, p)
		}
		g.wantEvent(EvRecv, OK, 1, 40)
		body := pattern(40 * parts)
		for _, p := range g.untagged(body, 40) {
			g.deliver(srcA, p)
		}
		e := g.wantEvent(EvRecv, Truncated, 1, 24)
		if int(e.OverLen) != len(body)-24 || !e.Released {
			t.Fatalf("%+v", e)
		}
		wantBytes(t, buf[40:], body[:24])
		g.rest()
	}
}

func TestMultiRecvReleasesWithTheLast(t *testing.T) {
	// R-MSG-12: messages in progress keep the buffer. The one that ends last releases it, even
	// if it ends in error.
	g := newRig(t)
	buf := make([]byte, 3000)
	g.recv(Recv{Buf: buf, Multi: true, MinFree: 1000, Context: 1})
	a, b := g.untagged(pattern(1500), 1024), g.untagged(pattern(700), 512)
	g.deliver(srcA, a[1])
	g.deliver(srcB, b[1])
	g.deliver(srcB, b[0])
	if e := g.wantEvent(EvRecv, OK, 1, 700); e.Released {
		t.Fatal("released with a message in progress")
	}
	wantBytes(t, buf[1504:2204], pattern(700))
	if g.CancelRecv(0, 1) {
		t.Fatal("what is not posted any more was cancelled")
	}
	g.PDCGone(srcA.PDC, TimedOut)
	if e := g.wantEvent(EvRecv, TimedOut, 1, 0); !e.Released || !e.Multi {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestMultiRecvCancel(t *testing.T) {
	// R-EP-10, R-EP-12: after a cancel no message begins in the buffer, and those in progress
	// end first.
	g := newRig(t)
	buf := make([]byte, 3000)
	g.recv(Recv{Buf: buf, Multi: true, Context: 1})
	if !g.CancelRecv(0, 1) {
		t.Fatal("not found")
	}
	if e := g.wantEvent(EvRecv, Cancelled, 1, 0); !e.Released || e.Multi {
		t.Fatalf("%+v", e)
	}
	g.recv(Recv{Buf: buf, Multi: true, Context: 2})
	a := g.untagged(pattern(1500), 1024)
	g.deliver(srcA, a[0])
	if !g.CancelRecv(0, 2) || g.CancelRecv(0, 2) {
		t.Fatal("cancelled never or twice")
	}
	g.quiet()
	g.deliver(srcA, a[1])
	if e := g.wantEvent(EvRecv, OK, 2, 1500); e.Released {
		t.Fatalf("%+v", e)
	}
	if e := g.wantEvent(EvRecv, Cancelled, 2, 0); !e.Released {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestMultiRecvAtClose(t *testing.T) {
	// F27: there is one event for each message and one for the buffer.
	g := newRig(t)
	g.recv(Recv{Buf: make([]byte, 3000), Multi: true, Context: 1})
	g.deliver(srcA, g.untagged(pattern(1500), 1024)[0])
	g.CancelAll()
	if e := g.wantEvent(EvRecv, Cancelled, 1, 0); !e.Multi || e.Released {
		t.Fatalf("%+v", e)
	}
	if e := g.wantEvent(EvRecv, Cancelled, 1, 0); e.Multi || !e.Released {
		t.Fatalf("%+v", e)
	}
	g.rest()
}

func TestMultiRecvOfSeveral(t *testing.T) {
	// R-MSG-08: the buffer posted first is filled first, and a plain receive between two gets
	// its turn. The same holds for unexpected messages.
	for _, unexpected := range []bool{false, true} {
		g := newRig(t)
		post := func() {
			g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 64), Multi: true, MinFree: 32, Context: "a"})
			g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 64), Context: "b"})
			g.recv(Recv{Tagged: true, Ignore: ^uint64(0), Buf: make([]byte, 64), Multi: true, MinFree: 32, Context: "c"})
		}
		if !unexpected {
			post()
		}
		for k := range 6 {
			g.deliver(srcA, g.tagged(uint64(k), pattern(20), 1024)[0])
		}
		if unexpected {
			post()
		}
		for k, w := range []struct {
			ctx      any
			released bool
		}{{"a", false}, {"a", true}, {"b", false}, {"c", false}, {"c", true}} {
			if e := g.wantEvent(EvRecv, OK, w.ctx, 20); e.Released != w.released || e.Tag != uint64(k) {
				t.Fatalf("message %d: %+v", k, e)
			}
		}
		if n, _ := g.Unexpected(); n != 1 {
			t.Fatalf("%d messages are left, want 1", n)
		}
	}
}

func TestMultiRecvTooLongIsRefused(t *testing.T) {
	// S-MAT-08 with RefuseTooLong: the message ends in error and the buffer stays.
	for _, mtu := range []int{1024, 30} {
		g := newRig(t, func(c *Config) { c.RefuseTooLong = true })
		g.recv(Recv{Buf: make([]byte, 64), Multi: true, Context: 1})
		for _, p := range g.untagged(pattern(100), mtu) {
			g.want(srcA, p, "response TOO_LONG 0 gtd")
		}
		if e := g.wantEvent(EvRecv, Truncated, 1, 0); e.RC != wire.RCTooLong || e.Released || int(e.OverLen) != 100 {
			t.Fatalf("%+v", e)
		}
		g.deliver(srcA, g.untagged(pattern(60), 1024)[0])
		if e := g.wantEvent(EvRecv, OK, 1, 60); !e.Released {
			t.Fatalf("%+v", e)
		}
		g.rest()
	}
}

func TestMultiRecvWaitsForRoom(t *testing.T) {
	// R-CQ-127: while there is no room for another event, messages are kept as unexpected ones.
	// When there is, they are received in their order; none overtakes another.
	for _, unexpected := range []bool{false, true} {
		room := 1
		admit := func() bool {
			if room == 0 {
				return false
			}
			room--
			return true
		}
		g := newRig(t, func(c *Config) { c.Admit = admit })
		post := func() { g.recv(Recv{Buf: make([]byte, 80), Multi: true, MinFree: 20, Context: "m"}) }
		if !unexpected {
			post()
		}
		for k := range 4 {
			g.deliver(srcA, g.untagged(pattern(17+k), 1024)[0])
		}
		if unexpected {
			post()
		}
		g.recv(Recv{Buf: make([]byte, 80), Context: "plain"}) // not past the messages that wait for the other
		g.wantEvent(EvRecv, OK, "m", 17)
		g.quiet()
		if g.NextTimeout() == 0 {
			t.Fatal("no timer")
		}
		g.Advance(5)
		g.quiet()
		if d := g.NextTimeout(); d != 5+feedEvery {
			t.Fatalf("tried again at %v", d)
		}
		room = 1
		g.Advance(5 + feedEvery)
		g.wantEvent(EvRecv, OK, "m", 18)
		g.quiet()
		room = 5
		g.Advance(5 + 2*feedEvery)
		if e := g.wantEvent(EvRecv, OK, "m", 19); !e.Released {
			t.Fatalf("%+v", e)
		}
		g.wantEvent(EvRecv, OK, "plain", 20)
		if room != 4 {
			t.Fatalf("room %d", room)
		}
		g.rest()
	}
}

func TestMatchAloneWaitsToo(t *testing.T) {
	// The only receive of a space does not get a message that came after those that wait for
	// room for their Event.
	room := false
	g := newRig(t, func(c *Config) { c.Admit = func() bool { return room } })
	g.recv(Recv{Buf: make([]byte, 80), Multi: true, Context: "m"})
	g.deliver(srcA, g.untagged(pattern(17), 1024)[0])
	if !g.CancelRecv(0, "m") {
		t.Fatal("nothing to cancel")
	}
	g.wantEvent(EvRecv, Cancelled, "m", 0)
	g.recv(Recv{Buf: make([]byte, 80), Context: 1})
	g.want(srcA, g.untagged(pattern(18), 1024)[0], "response OK overflow 18 gtd")
	g.quiet()
	room = true
	g.Advance(1)
	g.wantEvent(EvRecv, OK, 1, 17)
	g.recv(Recv{Buf: make([]byte, 80), Context: 2})
	g.wantEvent(EvRecv, OK, 2, 18)
	g.rest()
}

func TestEndWithoutRoomForEvents(t *testing.T) {
	// R-CM-12: a message that arrived whole can be received after the end, even if a
	// multi-receive buffer had no room for its Event, before or after.
	g := newRig(t, func(c *Config) { c.Admit = func() bool { return false } })
	multi := func() {
		g.recv(Recv{Buf: make([]byte, 80), Multi: true, Context: "m"})
	}
	multi()
	for n := range 2 {
		g.deliver(srcA, g.untagged(pattern(n), 1024)[0])
	}
	g.quiet()
	g.End()
	g.wantEvent(EvRecv, Cancelled, "m", 0)
	for n := range 2 {
		g.recv(Recv{Buf: make([]byte, 80), Context: n})
		g.wantEvent(EvRecv, OK, n, n)
		multi()
		g.wantEvent(EvRecv, Cancelled, "m", 0)
	}
	g.rest()
}

func TestMultiRecvModel(t *testing.T) {
	// Packets arrive in any order for multi-receive buffers, and are placed where a bump
	// pointer says (R-MSG-12, R-MSG-13).
	rapid.Check(t, func(t *rapid.T) {
		g := &rig{SES: New(testConfig()), mate: other(16)}
		type buffer struct {
			mem  []byte
			off  int
			min  int
			refs int
			done bool
		}
		type message struct {
			body   []byte
			flying [][]byte
			buf    *buffer
			base   int
		}
		var bufs []*buffer
		var msgs []*message
		next := uint32(0)
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) {
				if len(bufs) > 8 {
					t.Skip()
				}
				b := &buffer{mem: bytes.Repeat([]byte{0xa5}, rapid.IntRange(1, 4000).Draw(t, "size")), min: rapid.IntRange(0, 500).Draw(t, "min")}
				bufs = append(bufs, b)
				if err := g.recvOp(&Recv{Buf: b.mem, Multi: true, MinFree: b.min, Context: b}); err != nil {
					t.Fatal(err)
				}
			},
			"message": func(t *rapid.T) {
				m := &message{body: pattern(rapid.IntRange(0, 1500).Draw(t, "len"))}
				for _, b := range bufs {
					if b.done {
						continue
					}
					m.buf, m.base = b, b.off
					b.refs++
					b.off = min(b.off+(len(m.body)+7)/8*8, len(b.mem))
					b.done = len(b.mem)-b.off < max(b.min, 1)
					break
				}
				if m.buf == nil {
					t.Skip()
				}
				next++
				m.flying = packets(g.mate, &Send{Buf: m.body, Target: self(g.SES), Data: uint64(next), HasData: true}, 400)
				msgs = append(msgs, m)
				// The first packet to arrive takes the place.
				k := rapid.IntRange(0, len(m.flying)-1).Draw(t, "first")
				m.flying[0], m.flying[k] = m.flying[k], m.flying[0]
				g.Request(&Source{Peer: 1, PDC: next}, wire.NextReqStd, m.flying[0])
				m.flying[0] = nil
			},
			"packet": func(t *rapid.T) {
				if len(msgs) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(msgs)-1).Draw(t, "message")
				m := msgs[i]
				for k, p := range m.flying {
					if p != nil {
						g.Request(&Source{Peer: 1, PDC: uint32(i + 1)}, wire.NextReqStd, p)
						m.flying[k] = nil
						break
					}
				}
			},
			"": func(t *rapid.T) {
				for e := g.Event(); e != nil; e = g.Event() {
					m := msgs[e.Data-1]
					b := e.Context.(*buffer)
					room := len(b.mem) - m.base
					n := min(len(m.body), room)
					b.refs--
					if b != m.buf || e.Len != n || int(e.OverLen) != len(m.body)-n || !bytes.Equal(e.Buf, m.body[:n]) || n > 0 && &e.Buf[0] != &b.mem[m.base] {
						t.Fatalf("message %d: %+v", e.Data, *e)
					}
					if e.Released != (b.done && b.refs == 0) {
						t.Fatalf("released %v with %d messages in progress, done %v", e.Released, b.refs, b.done)
					}
				}
			},
		})
	})
}
