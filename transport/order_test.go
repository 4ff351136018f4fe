package transport

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// A refuser is a FEP whose resources are executed by the test instead of package ses, which
// refuses by NACK only. PDS is the real one, so messages reach the resources as the wire
// allows.
type refuser struct {
	*FEP
	at  map[uint16]*refusing // by resource index
	got map[uint64]*parts    // incomplete messages, by PDC and message id
}

// A refusing is a resource that can be disabled and enabled. One that has no receive refuses
// with NO_MATCH and is disabled, as UE has it for ROD.
type refusing struct {
	gen      uint8
	disabled bool
	always   func(r *wire.ReqStd) (wire.RC, uint8) // nil: as described
	receives int
	arrived  []uint32 // what messages begin with, in the order they were executed
	attempts int      // first packets that came
}

// parts is what came of a message.
type parts struct{ bytes, number uint32 }

func (x *refuser) receive(now time.Duration, d *dgram.Datagram) {
	f := x.FEP
	f.now = now
	f.rx.in.Now = now
	if !f.source(d) {
		panic("no source")
	}
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		f.rx.meta.Size = len(b) + f.form.overhead
		b = b[:len(b)-wire.CRCLen]
		switch wire.Type(b[0] >> 3) {
		case wire.TypeRUDReq, wire.TypeRODReq:
			x.request(b)
		case wire.TypeCP:
			c, _, err := wire.ParseCP(b)
			if err != nil {
				panic(err)
			}
			f.pds.ReceiveCP(&f.rx.in, &c)
			f.heed()
			if p := f.pds.Lookup(c.DPDCID); p != nil {
				x.release(p)
			}
		default:
			f.dispatch(d, b, nil)
		}
	}
}

func (x *refuser) request(b []byte) {
	f, h := x.FEP, new(wire.Req)
	n, err := h.Parse(b)
	if err != nil {
		panic(err)
	}
	p, v := f.pds.ReceiveReq(&f.rx.in, h)
	f.heed()
	if p == nil || p.Peer == 0 && !f.newSource(p) || v == pds.Drop {
		return
	}
	m := &f.rx.meta
	m.PSN, m.Len, m.Next = h.PSN, len(b)-n, false
	m.AR, m.Retx = h.Flags&(wire.FlagAR|wire.FlagSYN) != 0, h.Flags&wire.FlagRETX != 0
	if v == pds.Keep {
		p.KeepEarly(f.now, m, h.Next, b[n:])
		f.heed()
		return
	}
	x.execute(p, m, b[n:])
	x.release(p)
}

func (x *refuser) release(p *pds.PDC) {
	if p.Mode() != wire.ROD {
		return
	}
	for {
		m, _, body, ok := p.NextEarly()
		if !ok {
			break
		}
		x.execute(p, &m, body)
		p.EarlyDone()
	}
	if p.AckOwed() {
		x.oweAck(p)
	}
}

func (x *refuser) execute(p *pds.PDC, m *pds.Meta, b []byte) {
	var r wire.ReqStd
	n, err := r.Parse(b)
	if err != nil {
		panic(err)
	}
	rc, gen := x.at[r.RI].run(x, uint64(p.Slot)<<16|uint64(r.MsgID), &r, b[n:])
	rsp := wire.Rsp{Opcode: wire.RspDefault, RC: rc, MsgID: r.MsgID, JobID: r.JobID, ModLen: r.ReqLen}
	if rc != wire.RCOK {
		rsp.Opcode, rsp.Gen, rsp.ModLen = wire.RspResponse, gen, 0
	}
	if p.Accept(x.now, m, &rsp, rc != wire.RCOK) {
		x.oweAck(p)
	}
	x.heed()
}

// run executes one packet.
func (q *refusing) run(x *refuser, id uint64, r *wire.ReqStd, data []byte) (wire.RC, uint8) {
	begins := x.got[id] == nil
	if r.Opcode == wire.OpMsgError {
		if !begins {
			delete(x.got, id)
			q.receives++
		}
		return wire.RCOK, 0
	}
	if r.Flags&wire.SESSOM != 0 {
		q.attempts++
	}
	refuse := func(rc wire.RC) (wire.RC, uint8) {
		if !begins { // the receive is back
			delete(x.got, id)
			q.receives++
		}
		return rc, q.gen
	}
	switch {
	case q.always != nil:
		if rc, gen := q.always(r); rc != wire.RCOK {
			return rc, gen
		}
	case q.disabled:
		return refuse(wire.RCDisabledGen)
	case r.Gen != q.gen:
		return refuse(wire.RCBadGeneration)
	}
	if begins {
		if q.receives == 0 {
			q.disabled = true
			return wire.RCNoMatch, 0
		}
		q.receives--
		x.got[id] = new(parts)
	}
	m := x.got[id]
	if m.bytes += uint32(len(data)); r.Flags&wire.SESSOM != 0 {
		m.number = binary.BigEndian.Uint32(data)
	}
	if m.bytes == r.ReqLen {
		q.arrived = append(q.arrived, m.number)
		delete(x.got, id)
	}
	return wire.RCOK, 0
}

// enable enables a resource with its next generation, n after the one it has.
func (q *refusing) enable(n uint8) {
	if q.disabled {
		q.disabled = false
		if q.gen += n; q.gen == 0 {
			q.gen = 1
		}
	}
}

// A refusedRun is a FEP, a refuser and a network that loses and reorders.
type refusedRun struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Duration
	a     *FEP
	b     *refuser
	to    PeerID
	loss  float64
	fly   []flight
	ended map[uint32][]string // by message
	posts uint32
}

type flight struct {
	at   time.Duration
	to   *FEP
	data []byte
}

func newRefusedRun(t *testing.T, seed uint64, rnr time.Duration) *refusedRun {
	r := &refusedRun{t: t, rng: rand.New(rand.NewPCG(seed, 11)), now: time.Second, ended: map[uint32][]string{}}
	mk := func(addr string) *FEP {
		f, err := New(Config{Local: netip.MustParseAddrPort(addr), RNRTimeout: rnr}, rand.New(rand.NewPCG(seed, 7)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	r.a, r.b = mk("198.18.0.1:4793"), &refuser{FEP: mk("198.18.0.2:4793"), at: map[uint16]*refusing{}, got: map[uint64]*parts{}}
	r.to, _ = r.a.Peer(r.b.cfg.Local, true)
	for _, ri := range []uint16{15, 16} {
		r.b.at[ri] = &refusing{receives: 1 << 30}
	}
	return r
}

// post posts a message that begins with its number, which is also its context.
func (r *refusedRun) post(ri uint16, size int, ordered bool) uint32 {
	n := r.posts
	r.posts++
	b := make([]byte, max(size, 4))
	binary.BigEndian.PutUint32(b, n)
	if err := r.a.Post(r.now, &Op{Kind: OpSend, Peer: r.to, RI: ri, Buf: b, Ordered: ordered, Context: n}); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// until runs both ends to that time.
func (r *refusedRun) until(end time.Duration) {
	d := dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	for {
		for _, f := range []*FEP{r.a, r.b.FEP} {
			f.Advance(r.now)
			f.Flush(r.now)
			for f.Transmit(r.now, &d) {
				to := r.a
				if f == r.a {
					to = r.b.FEP
				}
				for rest := d.Data; len(rest) > 0; {
					var b []byte
					if b, rest = d.Next(rest); r.rng.Float64() >= r.loss {
						r.fly = append(r.fly, flight{r.now + time.Duration(20+r.rng.IntN(80))*time.Microsecond, to, slices.Clone(b)})
					}
				}
			}
		}
		for e := r.a.NextEvent(); e != nil; e = r.a.NextEvent() {
			n := e.Context.(uint32)
			r.ended[n] = append(r.ended[n], fmt.Sprint(e.Cause))
		}
		next := end
		for _, f := range []*FEP{r.a, r.b.FEP} {
			if t := f.NextTimeout(); t != 0 {
				next = min(next, t)
			}
		}
		for _, p := range r.fly {
			next = min(next, p.at)
		}
		if next >= end {
			r.now = end
			return
		}
		r.now = max(r.now, next)
		slices.SortStableFunc(r.fly, func(x, y flight) int { return int(x.at - y.at) })
		for len(r.fly) > 0 && r.fly[0].at <= r.now {
			p := r.fly[0]
			r.fly = r.fly[1:]
			if p.to == r.a {
				r.a.Receive(r.now, &dgram.Datagram{Data: p.data, Remote: r.b.cfg.Local})
			} else {
				r.b.receive(r.now, &dgram.Datagram{Data: p.data, Remote: r.a.cfg.Local})
			}
		}
	}
}

// TestF18OrderBehindARefusingTarget draws timelines: a resource is disabled, enabled with
// another generation, and short of receives, while ordered and unordered messages of one
// and several packets come, packets are lost, and some sends are cancelled. What is ordered
// arrives in order, and each send ends once. S-GEN-01, S-GEN-02 and S-GEN-06 say what the resource does: a
// disabled one refuses all, the old generation is told the new one, and the receive of a message that it then refuses is
// there again.
func TestF18OrderBehindARefusingTarget(t *testing.T) {
	wrong := 0
	for seed := range uint64(120) {
		r := newRefusedRun(t, seed, 0)
		r.loss = []float64{0, 0.02, 0.15}[seed%3]
		q := r.b.at[15]
		ordered := map[uint32]bool{}
		cancelled := 0
		for r.posts < 250 {
			for range r.rng.IntN(20) {
				o := r.rng.IntN(5) != 0
				ordered[r.post(15, []int{8, 900, 2500, 6000}[r.rng.IntN(4)], o)] = o
			}
			r.post(16, 8, true)
			if r.rng.IntN(6) == 0 {
				if r.a.Cancel(r.now, 0, uint32(r.rng.IntN(int(r.posts)))) {
					cancelled++
				}
			}
			switch r.rng.IntN(4) {
			case 0:
				q.disabled = true
			case 1:
				q.enable(uint8(1 + r.rng.IntN(2)))
			case 2:
				q.receives = r.rng.IntN(6)
			case 3:
				q.receives = 1 << 30
				q.enable(1)
			}
			r.until(r.now + time.Duration(r.rng.IntN(3000))*time.Microsecond)
		}
		q.receives = 1 << 30
		q.enable(1)
		r.until(r.now + 10*time.Second)
		ok := 0
		for n := range r.posts {
			switch e := r.ended[n]; {
			case len(e) != 1:
				t.Errorf("seed %d: message %d ended %q", seed, n, e)
			case e[0] == "ok":
				ok++
			}
		}
		if arrived := len(q.arrived) + len(r.b.at[16].arrived); ok != int(r.posts)-cancelled || arrived != ok {
			t.Errorf("seed %d: %d messages, %d cancelled: %d succeeded, %d arrived", seed, r.posts, cancelled, ok, arrived)
		}
		inOrder := slices.DeleteFunc(slices.Clone(q.arrived), func(n uint32) bool { return !ordered[n] })
		if !slices.IsSorted(inOrder) || !slices.IsSorted(r.b.at[16].arrived) {
			wrong++
		}
		if !r.a.Idle() {
			t.Errorf("seed %d: not at rest", seed)
		}
	}
	if wrong != 0 {
		t.Errorf("out of order in %d of 120 timelines", wrong)
	}
}

// ends checks that each of these messages ended once, and how.
func (r *refusedRun) ends(from, to uint32, want string) {
	r.t.Helper()
	for n := from; n < to; n++ {
		if e := r.ended[n]; len(e) != 1 || e[0] != want {
			r.t.Fatalf("at %v: message %d of %d ended %q, want %q", r.now, n, to, e, want)
		}
	}
}

// TestF18OneAsksForAllOrdered shows that of the ordered messages to a disabled resource one
// alone is sent again, that those to another resource go on, and that all follow at once
// when it is taken.
func TestF18OneAsksForAllOrdered(t *testing.T) {
	r := newRefusedRun(t, 1, 0)
	q := r.b.at[15]
	q.disabled = true
	for range 100 {
		r.post(15, 2000, true)
	}
	r.until(r.now + 100*time.Millisecond)
	sent := q.attempts
	for range 3000 {
		r.post(15, 2000, true)
	}
	for range 100 {
		r.post(16, 8, true)
	}
	r.until(r.now + time.Second)
	if n := q.attempts - sent; n < 5 || n > 20 {
		t.Errorf("%d attempts in a second", n)
	}
	r.ends(3100, 3200, "ok")
	q.enable(1)
	r.until(r.now + 300*time.Millisecond) // a back-off, and the time that the messages take
	r.ends(0, 3200, "ok")
	if n := q.attempts - sent; n > 3100+30 {
		t.Errorf("%d attempts in all", n)
	}
	if !slices.IsSorted(q.arrived) {
		t.Error("out of order")
	}
}

// TestF18DisabledForEver and the next test have a target that never takes anything: each
// message ends by RNRTimeout, and the attempts are few.
func TestF18DisabledForEver(t *testing.T) {
	r := newRefusedRun(t, 2, 500*time.Millisecond)
	q := r.b.at[15]
	q.always = func(*wire.ReqStd) (wire.RC, uint8) { return wire.RCDisabledGen, 0 }
	began := r.now
	for range 300 {
		r.post(15, 5000, true)
	}
	r.until(began + 250*time.Millisecond)
	late := r.posts
	for range 300 {
		r.post(15, 5000, true)
	}
	r.until(began + 600*time.Millisecond)
	r.ends(0, late, "not ready")
	if len(r.ended) != int(late) {
		t.Errorf("%d ended after 600 ms", len(r.ended))
	}
	r.until(began + 850*time.Millisecond)
	r.ends(0, r.posts, "not ready")
	if q.attempts > 330 {
		t.Errorf("%d attempts for 600 messages", q.attempts)
	}
	r.until(r.now + time.Second)
	if !r.a.Idle() {
		t.Error("not at rest")
	}
}

func TestF18AnotherGenerationEachTime(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		r := newRefusedRun(t, 3, 500*time.Millisecond)
		q, gen := r.b.at[15], uint8(0)
		q.always = func(*wire.ReqStd) (wire.RC, uint8) { gen++; return wire.RCBadGeneration, gen }
		for range 300 {
			r.post(15, 3000, ordered)
			if !ordered {
				r.until(r.now + time.Millisecond) // each that comes new learns a generation, and tells the others
			}
		}
		r.until(r.now + time.Second)
		r.ends(0, 300, "not ready")
		if most := map[bool]int{true: 330, false: 300 * 25}[ordered]; q.attempts > most {
			t.Errorf("ordered %v: %d attempts for 300 messages", ordered, q.attempts)
		}
	}
}

// TestF18HeldMessagesEnd ends messages that wait behind a refused one in each way that there
// is: each ends once, and what is posted next goes.
func TestF18HeldMessagesEnd(t *testing.T) {
	for _, c := range []struct {
		name, want string
		act        func(r *refusedRun)
	}{
		{"cancel", "cancelled", func(r *refusedRun) {
			for n := range r.posts {
				if !r.a.Cancel(r.now, 0, n) {
					r.until(r.now + time.Millisecond) // it is the probe, and out
					r.a.Cancel(r.now, 0, n)
				}
				if n%7 == 0 {
					r.until(r.now + time.Millisecond)
				}
			}
		}},
		{"endpoint closed", "cancelled", func(r *refusedRun) { r.a.CloseEndpoint(r.now, 0) }},
		{"abandoned", "cancelled", func(r *refusedRun) { r.a.Abandon(r.now, r.to) }},
		{"closed", "cancelled", func(r *refusedRun) { r.a.Close(r.now) }},
		{"peer gone", "timed out", func(r *refusedRun) { r.loss = 1; r.until(r.now + 50*time.Second); r.loss = 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRefusedRun(t, 4, 0)
			q := r.b.at[15]
			q.disabled = true
			for range 40 {
				r.post(15, 3000, true)
				r.until(r.now + 100*time.Microsecond)
			}
			if len(r.ended) != 0 {
				t.Fatal(r.ended)
			}
			c.act(r)
			r.until(r.now + time.Second)
			r.ends(0, 40, c.want)
			q.enable(1)
			if c.name == "closed" || c.name == "endpoint closed" {
				return
			}
			for range 5 {
				r.post(15, 3000, true)
			}
			r.until(r.now + time.Second)
			r.ends(40, 45, "ok")
			if !slices.Equal(q.arrived, []uint32{40, 41, 42, 43, 44}) {
				t.Errorf("arrived %v", q.arrived)
			}
		})
	}
}

// TestClosedEndpointLeavesTheLanes shows that messages of a closed endpoint leave the lanes,
// where the others must be in the order of posting.
func TestClosedEndpointLeavesTheLanes(t *testing.T) {
	p := newPipe(t, nil)
	id, err := p.a.Open(EndpointConfig{Identity: Identity{RI: 16}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		p.post(p.a, Op{Kind: OpSend, Endpoint: EndpointID(i%2) * id, Peer: p.toB, RI: 15, Buf: make([]byte, 100), Ordered: true, Context: i})
	}
	p.a.CloseEndpoint(p.now, id)
	ln := &p.a.lanes[p.a.peers[p.toB].rod.Slot]
	if ln.q.len() != 3 || p.a.Queued() != 3 || ln.bytes != 300 {
		t.Errorf("%d messages, %d queued, %d bytes", ln.q.len(), p.a.Queued(), ln.bytes)
	}
	p.want(p.a, "1 cancelled", "3 cancelled", "5 cancelled")
}

// TestLanesArePurgedSeldom shows that four times as many endpoints that close, with messages in one lane, take four times as
// many steps.
func TestLanesArePurgedSeldom(t *testing.T) {
	steps := func(n int) uint64 {
		p := newPipe(t, nil)
		var ids []EndpointID
		for i := range n {
			id, err := p.a.Open(EndpointConfig{Identity: Identity{RI: uint16(16 + i)}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		for k := range 4 * n {
			p.post(p.a, Op{Kind: OpSend, Endpoint: ids[k%n], Peer: p.toB, RI: 15, Buf: make([]byte, 100), Ordered: true, Context: k})
		}
		for _, id := range ids {
			p.a.LeaveEndpoint(p.now, id)
			p.a.CloseEndpoint(p.now, id)
		}
		if n := p.a.Queued(); n != 0 {
			t.Errorf("%d messages left in lanes", n)
		}
		return p.a.purged
	}
	few, many := steps(32), steps(128)
	if t.Logf("%d and %d steps", few, many); few == 0 || many > 5*few {
		t.Errorf("%d steps for 32 endpoints, %d for 128", few, many)
	}
}

// TestHeldMessagesAreNotCounted shows that messages that wait behind a refused one do not
// count in their lane.
func TestHeldMessagesAreNotCounted(t *testing.T) {
	r := newRefusedRun(t, 5, 0)
	r.b.at[15].disabled = true
	r.post(15, 100, true)
	r.until(r.now + time.Millisecond)
	for range 10 {
		r.post(15, 50000, true)
	}
	for range 10 {
		r.post(16, 500000, true) // more than the window
	}
	var d dgram.Datagram
	d.Data = make([]byte, 0, dgram.SlabLen)
	for r.a.Transmit(r.now, &d) {
	}
	p := pipe{t: t, a: r.a}
	if p.checkLanes(r.a, "held") == 0 {
		t.Error("nothing is left in the lane")
	}
}
