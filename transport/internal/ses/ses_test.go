package ses

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

func testConfig() Config {
	return Config{EndpointConfig: EndpointConfig{Identity: Identity{JobID: 0x012345, PIDonFEP: 0x00a, RI: 0x00f, Initiator: 16}}, Seed: 42, UnexpectedMsgs: 65536, DeferrableMin: -1}
}

// self returns the name of s as a target.
func self(s *SES) Target {
	return Target{JobID: s.cfg.JobID, PIDonFEP: s.cfg.PIDonFEP, RI: s.cfg.RI, Relative: true}
}

// pattern returns n bytes that differ at every offset in reach.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// packets sends op by a and returns the encoded packets.
func packets(a *SES, op *Send, mtu int) [][]byte {
	h, err := a.sendOp(op)
	if err != nil {
		panic(err)
	}
	out := drain(a, h, mtu)
	for range out {
		a.Answered(h, nil)
	}
	a.Event()
	return out
}

func drain(a *SES, h Handle, mtu int) (out [][]byte) {
	for {
		n := a.PieceLen(h, mtu)
		p, ok := a.Next(h, mtu)
		if ok != (n >= 0) || ok && n != int(p.Len) {
			panic(fmt.Sprintf("PieceLen %d, Next %+v %v", n, p, ok))
		}
		if !ok {
			return out
		}
		out = append(out, a.Append(nil, p))
	}
}

var (
	srcA = Source{Peer: 1, PDC: 10}
	srcB = Source{Peer: 2, PDC: 20}
)

// A rig is one SES under test, with short names for what tests do and expect.
type rig struct {
	t *testing.T
	*SES
	mate *SES // makes packets
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	cfg := testConfig()
	for _, f := range change {
		f(&cfg)
	}
	return &rig{t, New(cfg), other(16)}
}

// other returns a SES of another endpoint with that initiator id, to make packets with.
func other(initiator uint32) *SES {
	cfg := testConfig()
	cfg.Initiator = initiator
	return New(cfg)
}

// tagged and untagged return the packets of one message to g.
func (g *rig) tagged(tag uint64, body []byte, mtu int) [][]byte {
	return packets(g.mate, &Send{Tagged: true, Tag: tag, Buf: body, Target: self(g.SES)}, mtu)
}

func (g *rig) untagged(body []byte, mtu int) [][]byte {
	return packets(g.mate, &Send{Buf: body, Target: self(g.SES)}, mtu)
}

func (g *rig) recv(op Recv) {
	g.t.Helper()
	if err := g.recvOp(&op); err != nil {
		g.t.Fatalf("Recv: %v", err)
	}
}

func (g *rig) send(op Send) Handle {
	g.t.Helper()
	h, err := g.sendOp(&op)
	if err != nil {
		g.t.Fatalf("Send: %v", err)
	}
	return h
}

// deliver executes one packet.
func (g *rig) deliver(src Source, pkt []byte) *Result {
	g.t.Helper()
	b := bytes.Clone(pkt)
	r := g.Request(&src, wire.NextReqStd, b)
	for i := range b {
		b[i] = 0xa5 // borrowed: nothing of it may be kept
	}
	return r
}

// want executes one packet and compares the answer.
func (g *rig) want(src Source, pkt []byte, want string) {
	g.t.Helper()
	if got := answer(g.deliver(src, pkt)); got != want {
		g.t.Fatalf("answer %q, want %q", got, want)
	}
}

// answer describes a Result: response, list, code, modified length, GD.
func answer(r *Result) string {
	switch {
	case r.Bad:
		return fmt.Sprintf("bad %d", r.Reason)
	case r.Nack != 0:
		return fmt.Sprintf("nack %02x", uint8(r.Nack))
	}
	s := map[wire.RspOpcode]string{wire.RspDefault: "default", wire.RspResponse: "response", wire.RspNone: "none"}[r.Rsp.Opcode]
	s += " " + r.Rsp.RC.String()
	if r.Rsp.List == wire.ListOverflow {
		s += " overflow"
	}
	s += fmt.Sprintf(" %d", r.Rsp.ModLen)
	if r.Gtd {
		s += " gtd"
	}
	return s
}

// event returns the next event, which must exist.
func (g *rig) event() Event {
	g.t.Helper()
	e := g.Event()
	if e == nil {
		g.t.Fatal("no event")
	}
	v := *e
	e.Context, e.Buf = nil, nil
	return v
}

// quiet fails the test if there is an event.
func (g *rig) quiet() {
	g.t.Helper()
	if e := g.Event(); e != nil {
		g.t.Fatalf("unwanted event %+v", *e)
	}
}

// wantEvent compares the next event: send or receive, cause, context, length.
func (g *rig) wantEvent(k Kind, c Cause, ctx any, n int) Event {
	g.t.Helper()
	e := g.event()
	if e.Kind.Recv() != k.Recv() || e.Cause != c || e.Context != ctx || e.Len != n {
		g.t.Fatalf("event kind %d %v context %v len %d, want kind %d %v %v %d", e.Kind, e.Cause, e.Context, e.Len, k, c, ctx, n)
	}
	return e
}

// rest fails the test if anything is left: state, charge, event or timer.
func (g *rig) rest() {
	g.t.Helper()
	g.quiet()
	if n, b := g.Unexpected(); n != 0 || b != 0 {
		g.t.Fatalf("%d unexpected messages, %d bytes left", n, b)
	}
	if !g.Idle() || g.in.live() != 0 || g.peers.live() != 0 || g.open != 0 || g.store.used != 0 || g.store.reserved != 0 {
		g.t.Fatalf("left: idle %v, states %d, peers %d, open %d, chunks %d+%d", g.Idle(), g.in.live(), g.peers.live(), g.open, g.store.used, g.store.reserved)
	}
	if g.partial != 0 {
		g.t.Fatalf("%d bytes of open messages left", g.partial)
	}
	if d := g.NextTimeout(); d != 0 {
		g.t.Fatalf("timer %v left", d)
	}
}

func wantBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		for i := range got {
			if i >= len(want) || got[i] != want[i] {
				t.Fatalf("bytes differ at %d of %d", i, len(want))
			}
		}
		t.Fatalf("%d bytes, want %d", len(got), len(want))
	}
}

func TestConfigDefaults(t *testing.T) {
	c := New(Config{}).Config()
	if c.MaxSends != 4096 || c.MaxRecvs != 8192 || c.UnexpectedBytes != 64<<20 || c.UnexpectedMsgs != 1<<20 ||
		c.UnexpectedShare != 0.25 || c.OpenPerPeer != 64 || c.MaxMessage != MaxMessage || c.IdleTimeout != 80*time.Second {
		t.Fatalf("%+v", c)
	}
	if c := New(Config{EndpointConfig: EndpointConfig{MaxSends: 1 << 20}}).Config(); c.MaxSends != 65000 {
		t.Fatalf("MaxSends %d: more than there are message ids", c.MaxSends)
	}
}

func TestCauseNames(t *testing.T) {
	seen := map[string]bool{}
	for c := range numCauses {
		if n := c.String(); n == "" || seen[n] {
			t.Errorf("cause %d is %q", c, n)
		} else {
			seen[n] = true
		}
	}
	if numCauses.String() != "unknown cause" {
		t.Error(numCauses.String())
	}
}

func TestCancelAllEndsEverything(t *testing.T) {
	// F27: every operation ends with a cancelled event, and requests of peers are refused.
	g := newRig(t)
	g.send(Send{Buf: pattern(10), Context: "unsent"})
	h := g.send(Send{Buf: pattern(3000), Context: "half", Target: self(g.SES)})
	g.Next(h, 1024)
	g.send(Send{Buf: pattern(10), Context: "early", Copy: true, Early: true})
	g.wantEvent(EvSend, OK, "early", 10)
	refused := g.send(Send{Buf: pattern(10), Context: "waiting"})
	g.Next(refused, 1024)
	g.Answered(refused, &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCNoMatch})
	g.recv(Recv{Tagged: true, Tag: 1, Buf: make([]byte, 10), Context: "posted"})
	g.recv(Recv{Tagged: true, Tag: 2, Buf: make([]byte, 5000), Context: "bound"})
	g.want(srcA, g.tagged(2, pattern(5000), 1024)[0], "default OK 5000")
	g.want(srcB, g.tagged(3, pattern(5000), 1024)[0], "response OK overflow 5000 gtd")
	g.want(srcB, g.tagged(4, pattern(50), 1024)[0], "response OK overflow 50 gtd")
	g.CancelAll()
	got := map[any]Event{}
	for e := g.Event(); e != nil; e = g.Event() {
		if e.Cause != Cancelled || e.Len != 0 && e.Kind.Recv() {
			t.Fatalf("%+v", *e)
		}
		if _, ok := got[e.Context]; ok {
			t.Fatalf("%v ended twice", e.Context)
		}
		got[e.Context] = *e
	}
	for _, c := range []string{"unsent", "half", "waiting", "posted", "bound"} {
		if _, ok := got[c]; !ok {
			t.Errorf("%s did not end", c)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d events, want 5", len(got))
	}
	g.rest()
	if g.Sends() != 0 || g.Recvs() != 0 {
		t.Errorf("%d sends, %d receives left", g.Sends(), g.Recvs())
	}
	g.Answered(h, nil) // late calls for what was cancelled
	g.Failed(h, Closed, 0)
	g.Break(h, Closed, 0)
	g.Abandon(h, Closed)
	g.CancelAll()
	if n := g.PieceLen(h, 1024); n != -1 {
		t.Errorf("PieceLen %d after the end", n)
	}
	g.rest()
	if _, err := g.sendOp(&Send{}); err != ErrClosed {
		t.Errorf("Send: %v", err)
	}
	if err := g.recvOp(&Recv{}); err != ErrClosed {
		t.Errorf("Recv: %v", err)
	}
	g.want(srcA, g.tagged(2, pattern(5000), 1024)[1], "response BAD_INDEX 0 gtd")
	g.want(srcA, g.tagged(2, pattern(50), 1024)[0], "response BAD_INDEX 0 gtd")
	g.rest()
}

func TestNothingIsKeptAfterTheEvent(t *testing.T) {
	// Contexts and buffers of ended operations are garbage.
	g := newRig(t)
	var refs []func() bool
	alive := func(p *[3000]byte) []byte {
		w := weak.Make(p)
		refs = append(refs, func() bool { return w.Value() != nil })
		return p[:]
	}
	func() {
		buf := func() []byte { return alive(new([3000]byte)) }
		iov := func() [][]byte { return [][]byte{buf(), buf(), buf()} }
		for _, op := range []Send{{Buf: buf()}, {Iov: iov()}, {Iov: iov(), Copy: true}, {Iov: iov()[:1]}} {
			op.Context = new([3000]byte)
			alive(op.Context.(*[3000]byte))
			h := g.send(op)
			for range drain(g.SES, h, 1024) {
				g.Answered(h, nil)
			}
			g.event()
		}
		for _, op := range []Recv{{Buf: buf()}, {Iov: iov()}, {Iov: iov()[:1]}} {
			op.Context = new([3000]byte)
			alive(op.Context.(*[3000]byte))
			g.recv(op)
			g.deliver(srcA, g.untagged(pattern(100), 1024)[0])
			g.event()
		}
	}()
	runtime.GC()
	for i, r := range refs {
		if r() {
			t.Errorf("object %d of %d is still referred to", i, len(refs))
		}
	}
	runtime.KeepAlive(g)
}

func TestEventHoldsNothingOfTheLastOne(t *testing.T) {
	// The places of events are reused as they are.
	run := func(old Event) (out []Event) {
		g := newRig(t)
		g.events.grow()
		for p := g.events.next; p != g.events.last; p = p.behind {
			p.Event = old
		}
		for _, op := range []Send{{Buf: pattern(10), Context: 1}, {Tagged: true, Buf: pattern(10), Copy: true}} {
			h := g.send(op)
			drain(g.SES, h, 1024)
			g.Answered(h, nil)
			out = append(out, g.event())
		}
		g.Abandon(g.send(Send{Context: 2}), Closed)
		out = append(out, g.event())
		g.recv(Recv{Buf: make([]byte, 20), Context: 3})
		g.deliver(srcA, g.untagged(pattern(10), 1024)[0])
		out = append(out, g.event())
		g.recv(Recv{Context: 4})
		g.CancelRecv(0, 4)
		out = append(out, g.event())
		if err := g.Recv(0, &Op{Kind: EvTRecv, Look: LookPeek, Context: 5}); err != nil {
			t.Fatal(err)
		}
		return append(out, g.event())
	}
	var old Event
	v := reflect.ValueOf(&old).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Interface:
			f.Set(reflect.ValueOf("old"))
		case reflect.Int:
			f.SetInt(99)
		default:
			f.SetUint(99)
		}
	}
	if got, want := run(old), run(Event{}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestEventQueueKeepsOrderThroughGrowth(t *testing.T) {
	g := newRig(t)
	n, out := 0, 0
	for range 50 {
		for range 7 {
			g.recv(Recv{Tagged: true, Tag: 1, Context: n})
			g.CancelRecv(0, n)
			n++
		}
		for range 5 {
			g.wantEvent(EvRecv, Cancelled, out, 0)
			out++
		}
	}
	for out < n {
		g.wantEvent(EvRecv, Cancelled, out, 0)
		out++
	}
	g.rest()
}

func TestEventIsValidUntilNextCall(t *testing.T) {
	g := newRig(t)
	// The ring is full when the first event is handed out.
	for i := range 16 {
		g.recv(Recv{Context: i})
		g.CancelRecv(0, i)
	}
	if e := g.Event(); e.Context != 0 {
		t.Fatalf("%+v", *e)
	}
	g.recv(Recv{Context: 16})
	g.CancelRecv(0, 16) // takes the place of the one handed out
	for i := 1; i <= 16; i++ {
		g.wantEvent(EvRecv, Cancelled, i, 0)
	}
	// The same with the queue empty, at each of its places.
	for i := range 40 {
		g.recv(Recv{Context: i})
		g.CancelRecv(0, i)
		e := g.Event()
		g.recv(Recv{Context: 100})
		g.CancelRecv(0, 100)
		if e.Context != i {
			t.Fatalf("event %d became %+v", i, *e)
		}
		g.wantEvent(EvRecv, Cancelled, 100, 0)
	}
	g.rest()
}

// A queue that was long uses few places when it is short again.
func TestEmptyQueueBeginsAgain(t *testing.T) {
	g := newRig(t)
	places := make(map[*Event]bool)
	for i := range 200 {
		n := 3
		if i == 0 {
			n = 1000
		}
		for range n {
			g.recv(Recv{Context: 7})
			g.CancelRecv(0, 7)
		}
		for range n {
			e := g.Event()
			if e.Context = nil; i > 1 {
				places[e] = true
			}
		}
		if i%2 == 0 {
			g.EventsRead()
		} else if e := g.Event(); e != nil {
			t.Fatalf("one more event: %+v", *e)
		}
	}
	if len(places) != 3 {
		t.Errorf("queues of 3 events are at %d places", len(places))
	}
	g.rest()
}

// discarded receives the bytes of Next, so that it allocates nothing.
var discarded = make([]byte, 0, 1<<15)

// Next hands out a piece without its bytes.
func (s *SES) Next(h Handle, mtu int) (piece.Piece, bool) {
	p, ok := s.Peek(h, mtu)
	if ok {
		s.AppendPiece(discarded, p)
	}
	return p, ok
}

// PieceLen is the payload length of the piece that Next would hand out, -1 if there is none.
func (s *SES) PieceLen(h Handle, mtu int) int {
	p, ok := s.Peek(h, mtu)
	if !ok {
		return -1
	}
	return int(p.Len)
}
