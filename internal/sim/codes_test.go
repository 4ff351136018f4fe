package sim_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Here a target answers each return code that it can produce, and the initiator must hear it whatever is lost: an error is a
// guaranteed response. What no program of this implementation sends, the path makes of what is sent.

// A refusal is an operation that its target answers with an error.
type refusal struct {
	name string
	want wire.RC
	// cause is how the operation ends, Rejected if it is not set.
	cause transport.Cause
	ways  string // by which the operation goes: some of "rud rod rudi"
	op    transport.Op
	spec  func(*simtest.Spec)
	// rewrite is what the path makes of the header of each of its requests.
	rewrite func(h []byte)
	// ready makes the target ready for it, before each is posted, and after does what comes when all have been.
	ready, after func(r *refusing)
	// unknown says that it had an effect, or may have had.
	unknown bool
	// took is how receives of the target end, one of each operation; OK means that there is none.
	took transport.Cause
}

// The regions of the target. Each has memSize bytes between others, and its own blank bytes but for keyGood.
const (
	keyAll = 200 + iota
	keyRead
	keyWrite
	keyJob   // of another job
	keyGone  // removed
	keyOther // of another endpoint
	keyParts // of two parts
	keyDisk  // on a disk that fails
	keyGood
	keys
)

const memSize = 4096

// A codeMark is the context of what the test posts, a codeRegion that of a region.
type (
	codeMark   int
	codeTook   int
	codeRegion int
)

// refusing is a run of a refusal.
type refusing struct {
	*testing.T
	w    *simtest.World
	c    *refusal
	mem  [keys - keyAll][]byte
	ends map[codeMark][]transport.Event
	took map[codeTook][]transport.Event
}

// A teller keeps the events of such a run from the host, and fails what is to be made durable.
type teller struct {
	simtest.Endpoint
	r    *refusing
	host *simtest.Host
}

func (e *teller) NextEvent() *transport.Event {
	for {
		ev := e.Endpoint.NextEvent()
		if ev == nil {
			return nil
		}
		switch c := ev.Context.(type) {
		case codeMark:
			e.r.ends[c] = append(e.r.ends[c], *ev)
		case codeTook:
			e.r.took[c] = append(e.r.took[c], *ev)
		case codeRegion:
			if id := ev.Data; ev.Kind == transport.OpCommit {
				e.r.w.Net.After(ms, func() {
					e.Endpoint.Committed(id, wire.RCUncor)
					e.host.Node.Kick(0)
				})
			}
		default:
			return ev
		}
	}
}

// register makes the regions of the target.
func (r *refusing) register(f *transport.FEP) {
	rw := transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic
	for i := range r.mem {
		whole := bytes.Repeat([]byte{0x5a}, 3*memSize) // the allocator aligns it
		r.mem[i] = whole
		cfg := transport.RegionConfig{Buf: whole[memSize : 2*memSize], Access: rw, Endpoint: transport.AllEndpoints, Context: codeRegion(i)}
		switch keyAll + i {
		case keyRead:
			cfg.Access = transport.RemoteRead
		case keyWrite:
			cfg.Access = transport.RemoteWrite
		case keyJob:
			cfg.JobID = 99
		case keyOther:
			cfg.Endpoint = 1
		case keyParts:
			cfg.Iov = [][]byte{whole[memSize:][:20], whole[memSize+20:][:memSize-20]}
		case keyDisk:
			cfg.Persistent = true
		}
		for _, key := range []uint64{uint64(keyAll + i), uint64(keyAll+i) | wire.MKeyIdempotent} {
			cfg.Key = key
			g, err := f.Register(cfg)
			if err != nil {
				r.Fatal(err)
			}
			if keyAll+i == keyGone {
				f.Deregister(g)
			}
		}
	}
}

// post posts an operation of host 0.
func (r *refusing) post(op transport.Op, way string, mark codeMark) {
	op.Peer, op.Context, op.Ordered = r.w.Hosts[0].Peer(1), mark, way == "rod"
	op.RI = cmp.Or(op.RI, 15)
	if way == "rudi" {
		op.Idempotent, op.Key = true, op.Key|wire.MKeyIdempotent
	}
	if op.AMO != nil {
		a := *op.AMO
		op.AMO = &a
		if op.Kind == transport.OpFetch {
			a.Result = make([]byte, len(op.Buf))
			op.AMO = &a
		}
	}
	if op.Kind == transport.OpRead {
		op.Buf = make([]byte, len(op.Buf))
	}
	if err := r.w.Hosts[0].PostAside(&op); err != nil {
		r.Fatal(err)
	}
}

// take posts a receive of the target for a message, of the kind OpTRecv for one with a tag.
func (r *refusing) take(kind transport.OpKind, ep transport.EndpointID, tag uint64, n int) {
	op := transport.Op{Kind: kind, Endpoint: ep, Tag: tag, Buf: make([]byte, n, n+16)[:n:n], Context: codeTook(len(r.took))}
	r.took[op.Context.(codeTook)] = nil
	if err := r.w.Hosts[1].PostAside(&op); err != nil {
		r.Fatal(err)
	}
}

// refuseTag is the tag of tagged operations of which this test is, goodMark where the marks of those begin that must succeed.
const (
	refuseTag = 0x7e57
	goodMark  = codeMark(1000)
)

// run has the operation refused count times, between others that succeed (S-ERR-03).
func (c *refusal) run(t *testing.T, way string, loss float64, seed uint64) {
	const count = 12
	path := lan
	path.Loss = loss
	w := pair(t, seed, path, forged, func(s *simtest.Spec) {
		s.NoCRC = true // a path that rewrites a header has no CRC to mend
		tagged := transport.EndpointConfig{Identity: transport.Identity{JobID: 1, RI: 16}, Atomics: transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic}
		half := tagged
		half.RI, half.Atomics = 17, transport.RemoteWrite|transport.RemoteAtomic
		s.Hosts[1].More = []transport.EndpointConfig{tagged, half}
		if c.spec != nil {
			c.spec(s)
		}
	})
	r := &refusing{T: t, w: w, c: c, ends: map[codeMark][]transport.Event{}, took: map[codeTook][]transport.Event{}}
	r.register(w.Hosts[1].FEP.(*transport.FEP))
	for _, h := range w.Hosts {
		h.FEP = &teller{h.FEP, r, h}
	}
	if c.rewrite != nil {
		f := path
		f.Filter = func(_ time.Duration, p *sim.Packet) sim.Verdict {
			if h := requestOf(p.Data); h != nil && wire.Opcode(h[0]) != wire.OpMsgError && binary.BigEndian.Uint64(h[24:])&^wire.MKeyIdempotent != keyGood {
				c.rewrite(h)
			}
			return sim.Verdict{}
		}
		w.Line(0, 1).SetFaults(f)
	}
	// What goes by RUDI needs a PDC that shows who asks.
	r.post(transport.Op{Kind: transport.OpWrite, Key: keyGood, RemoteAddr: memSize - 8, Buf: []byte("succeeds")}, "rud", goodMark+count)
	w.RunUntil(time.Minute, "the end of the first", func() bool { return len(r.ends) == 1 })
	for i := range codeMark(count) {
		if c.ready != nil {
			c.ready(r)
		}
		r.post(c.op, way, i)
		good := transport.Op{Kind: transport.OpWrite, Key: keyGood, RemoteAddr: uint64(8 * i), Buf: []byte("succeeds")}
		if way == "rudi" && i%2 == 0 {
			good = transport.Op{Kind: transport.OpRead, Key: keyGood, RemoteAddr: memSize / 2, Buf: make([]byte, 8)}
		}
		r.post(good, way, goodMark+i)
		w.Run(time.Duration(i%3) * 50 * us)
	}
	if c.after != nil {
		c.after(r)
	}
	w.RunUntil(time.Minute, "the end of all", func() bool { return len(r.ends) == 2*count+1 })
	w.Run(time.Second)
	if n := w.Hosts[1].FEP.Stats().RUDIAnswers; way == "rudi" && n < count {
		t.Errorf("%d answers by RUDI: the test does not test", n)
	}
	cause, rc := cmp.Or(c.cause, transport.Rejected), c.want
	for i := range codeMark(count) {
		if e := r.ends[i]; len(e) != 1 || e[0].Cause != cause || e[0].RC != rc || e[0].Kind != c.op.Kind || e[0].Unknown != c.unknown {
			t.Errorf("operation %d ended %d times: %.300v", i, len(e), e)
		}
		if e := r.ends[goodMark+i]; len(e) != 1 || e[0].Cause != transport.OK {
			t.Errorf("good operation %d ended %d times: %.300v", i, len(e), e)
		}
	}
	for i, e := range r.took {
		if c.took != transport.OK && (len(e) != 1 || e[0].Cause != c.took) {
			t.Errorf("receive %d ended %d times: %v", i, len(e), e)
		}
	}
	for i, whole := range r.mem {
		blank := bytes.Count(whole, []byte{0x5a})
		outside := bytes.Count(whole[:memSize], []byte{0x5a}) + bytes.Count(whole[2*memSize:], []byte{0x5a})
		if outside != 2*memSize || blank != len(whole) && keyAll+i != keyGood && keyAll+i != keyDisk && !(keyAll+i == keyAll && c.unknown) {
			t.Errorf("of region %d %d bytes outside and %d of all are as they were", keyAll+i, outside, blank)
		}
	}
	settle(w)
}

// requestOf is the standard SES header of a request, nil if a datagram has none.
func requestOf(b []byte) []byte {
	p, err := wire.ParsePrologue(b)
	if err != nil || p.Next != wire.NextReqStd {
		return nil
	}
	n := wire.ReqLen
	switch p.Type {
	case wire.TypeRUDReq, wire.TypeRODReq:
	case wire.TypeRUDIReq:
		n = wire.RUDILen
	default:
		return nil
	}
	if len(b) < n+wire.ReqStdLen {
		return nil
	}
	return b[n:]
}

// refusals are all of them, by what they do.
func refusals() (list []refusal) {
	add := func(c refusal) { list = append(list, c) }
	// final has the first answer be the last one; soon has a send that is refused for now end a little later.
	final := only(0, func(c *transport.Config) { c.RNRTimeout = -1 })
	soon := only(0, func(c *transport.Config) { c.RNRTimeout = 20 * ms })
	short := only(1, func(c *transport.Config) { c.MaxMessage = 2000 })
	byte1 := func(and, or byte) func(h []byte) { return func(h []byte) { h[1] = h[1]&and | or } }

	// names are the ways in which an operation names its target wrong.
	names := func(what, ways string, op transport.Op, spec func(*simtest.Spec)) {
		for _, n := range []struct {
			name string
			want wire.RC
			set  func(op *transport.Op)
		}{
			{"resource index", wire.RCBadIndex, func(op *transport.Op) { op.RI = 77 }},
			{"process", wire.RCBadPID, func(op *transport.Op) { op.PIDonFEP = 77 }},
			{"job", wire.RCBadJobID, func(op *transport.Op) { op.JobID = 77 }},
			{"job, by an absolute address", wire.RCPermViolation, func(op *transport.Op) { op.JobID, op.Absolute = 77, true }},
		} {
			o := op
			n.set(&o)
			add(refusal{name: what + " for another " + n.name, want: n.want, ways: ways, op: o, spec: spec})
		}
	}
	// bits are requests that no program sends.
	bits := func(what, ways string, op transport.Op, again bool) {
		add(refusal{name: what + " of another version", want: wire.RCUncor, ways: ways, op: op, rewrite: byte1(0xff, 0x40)})
		add(refusal{name: what + " of bad bytes", want: wire.RCInitiatorError, ways: ways, op: op, rewrite: byte1(0xff, byte(wire.SESIE))})
		add(refusal{name: what + " with an opcode of others", want: wire.RCUnsupportedOp, ways: ways, op: op, rewrite: func(h []byte) { h[0] = h[0]&0xc0 | 0x2f }})
		gen := func(h []byte) { h[4] = 7 }
		add(refusal{name: what + " of another generation", want: wire.RCBadGeneration, ways: ways, op: op, rewrite: gen, spec: final})
		if again {
			add(refusal{name: what + " of another generation, for a while", want: wire.RCBadGeneration, cause: transport.NotReady, op: op, rewrite: gen, spec: soon,
				ways: strings.Replace(ways, "rod", "", 1)}) // by ROD those behind it wait with it (S-GEN-04)
		}
	}

	for _, n := range []int{8, 3000} {
		for _, read := range []bool{false, true} {
			op, what, mine, other := transport.Op{Kind: transport.OpWrite}, fmt.Sprintf("write of %d bytes", n), uint64(keyWrite), uint64(keyRead)
			if read {
				op.Kind, what, mine, other = transport.OpRead, fmt.Sprintf("read of %d bytes", n), keyRead, keyWrite
			}
			op.Buf, op.Key = make([]byte, n), mine
			const all = "rud rod rudi"
			at := func(key, addr uint64) transport.Op {
				o := op
				o.Key, o.RemoteAddr = key, addr
				return o
			}
			for _, c := range []struct {
				name      string
				want      wire.RC
				key, addr uint64
			}{
				{"with a wrong key", wire.RCBadMKey, 999, 0}, {"of a removed region", wire.RCBadMKey, keyGone, 0}, {"of a region of another endpoint", wire.RCBadMKey, keyOther, 0},
				{"over the end", wire.RCBadAddr, mine, uint64(memSize - n + 1)}, {"behind the end", wire.RCBadAddr, mine, memSize + 1}, {"far behind", wire.RCBadAddr, mine, 1 << 63},
				{"over the last address", wire.RCBadAddr, mine, 1<<64 - 4}, {"before the first address", wire.RCBadAddr, mine, -uint64(n)},
				{"without the right", wire.RCPermViolation, other, 0}, {"of a region of another job", wire.RCPermViolation, keyJob, 0},
			} {
				add(refusal{name: what + " " + c.name, want: c.want, ways: all, op: at(c.key, c.addr)})
			}
			names(what, all, op, nil)
			bits(what, all, op, !read)
			if n > 2000 {
				add(refusal{name: what + " longer than the target takes", want: wire.RCUnsupportedSize, ways: all, op: op, spec: short})
			} else {
				size := func(h []byte) { binary.BigEndian.PutUint32(h[40:], 0x8000) }
				add(refusal{name: what + " of another length than it has", want: wire.RCOpViolation, ways: "rud rod", op: op, rewrite: size})
			}
			add(refusal{name: what + " by a key that does not allow it", want: wire.RCOpViolation, ways: "rudi", op: op, rewrite: func(h []byte) { h[24] &= 0x7f }})
		}
	}

	for _, kind := range []transport.OpKind{transport.OpAtomic, transport.OpFetch} {
		for _, compares := range []bool{false, true} {
			if compares && kind == transport.OpAtomic {
				continue
			}
			a := &transport.AMO{Op: wire.AtomicSum, Type: wire.Uint64}
			what := "atomic operation"
			if kind == transport.OpFetch {
				what = "fetching " + what
			}
			wrongOp := &transport.AMO{Op: wire.AtomicBOr, Type: wire.Double}
			if compares {
				a, what = &transport.AMO{Op: wire.AtomicCSwap, Type: wire.Uint64, Compare: make([]byte, 8)}, "comparing "+what
				wrongOp = &transport.AMO{Op: wire.AtomicMSwap, Type: wire.Double, Compare: make([]byte, 8)}
			}
			op := transport.Op{Kind: kind, Key: keyAll, Buf: []byte{1, 2, 3, 4, 5, 6, 7, 8}, AMO: a}
			const both = "rud rod"
			at := func(key, addr uint64, a *transport.AMO) transport.Op {
				o := op
				o.Key, o.RemoteAddr, o.AMO = key, addr, a
				return o
			}
			for _, c := range []struct {
				name      string
				want      wire.RC
				key, addr uint64
				amo       *transport.AMO
			}{
				{"with a wrong key", wire.RCBadMKey, 999, 0, a}, {"on a removed region", wire.RCBadMKey, keyGone, 0, a}, {"on a region of another endpoint", wire.RCBadMKey, keyOther, 0, a},
				{"over the end", wire.RCBadAddr, keyAll, memSize - 7, a}, {"over the last address", wire.RCBadAddr, keyAll, 1<<64 - 4, a}, {"on two parts", wire.RCBadAddr, keyParts, 16, a},
				{"without the right", wire.RCPermViolation, keyWrite, 0, a}, {"without any right", wire.RCPermViolation, keyRead, 0, a}, {"on a region of another job", wire.RCPermViolation, keyJob, 0, a},
				{"out of line", wire.RCAMOUnaligned, keyAll, 4, a}, {"that is none", wire.RCAMOUnsupportedOp, keyAll, 0, wrongOp},
			} {
				add(refusal{name: what + " " + c.name, want: c.want, ways: both, op: at(c.key, c.addr, c.amo)})
			}
			add(refusal{name: what + " on a type of platforms", want: wire.RCAMOUnsupportedDT, ways: both, op: op, rewrite: func(h []byte) { h[wire.ReqStdLen+1] = byte(wire.LongDouble) }})
			add(refusal{name: what + " on no whole elements", want: wire.RCAMOUnsupportedSize, ways: both, op: op, rewrite: func(h []byte) { h[43] = 7 }})
			add(refusal{name: what + " in parts", want: wire.RCOpViolation, ways: both, op: op, rewrite: byte1(^byte(wire.SESEOM), 0)})
			names(what, both, op, nil)
			bits(what, both, op, kind == transport.OpAtomic)

			t := *a
			t.Tagged = true
			top := transport.Op{Kind: kind, RI: 16, Tag: refuseTag, Buf: op.Buf, AMO: &t}
			what = "tagged " + what
			to := func(ri uint16, addr uint64) transport.Op {
				o := top
				o.RI, o.RemoteAddr = ri, addr
				return o
			}
			meets := func(n int) func(r *refusing) { return func(r *refusing) { r.take(transport.OpTRecv, 1, refuseTag, n) } }
			add(refusal{name: what + " on an endpoint that allows none", want: wire.RCUnsupportedOp, ways: both, op: to(15, 0)})
			add(refusal{name: what + " over the end", want: wire.RCBadAddr, ways: both, op: to(16, 0), ready: meets(7), took: transport.Truncated})
			add(refusal{name: what + " over the last address", want: wire.RCBadAddr, ways: both, op: to(16, 1<<64-4), ready: meets(64), took: transport.Truncated})
			add(refusal{name: what + " out of line", want: wire.RCAMOUnaligned, ways: both, op: to(16, 4), ready: meets(64), took: transport.PeerError})
			add(refusal{name: what + " on no whole elements", want: wire.RCAMOUnsupportedSize, ways: both, op: top, rewrite: func(h []byte) { h[43] = 7 }})
			names(what, both, top, nil)
			if kind == transport.OpFetch {
				add(refusal{name: what + " without the right", want: wire.RCPermViolation, ways: both, op: to(17, 0)})
				add(refusal{name: what + " that is discarded", want: wire.RCCancelled, ways: both, op: top, after: (*refusing).discard})
			}
		}
	}

	for _, kind := range []transport.OpKind{transport.OpTSend, transport.OpSend} {
		name, takes, tag := "message", transport.OpTRecv, uint64(refuseTag)
		if kind == transport.OpSend {
			name, takes, tag = "untagged message", transport.OpRecv, 0
		}
		for _, n := range []int{8, 3000, 20_000} {
			for _, lent := range []bool{false, true} {
				if lent && n < 20_000 {
					continue
				}
				op := transport.Op{Kind: kind, Tag: tag, Buf: make([]byte, n)}
				what, spec := fmt.Sprintf("%s of %d bytes", name, n), func(*simtest.Spec) {}
				if lent {
					what, spec = what+" that is lent", config(rendezvous)
				}
				const both = "rud rod"
				names(what, both, op, spec)
				refuses := func(s *simtest.Spec) { spec(s); s.Hosts[1].Config.RefuseTooLong = true }
				meets := func(r *refusing) { r.take(takes, 0, tag, n/2) }
				add(refusal{name: what + " for a shorter receive", want: wire.RCTooLong, ways: both, op: op, spec: refuses, ready: meets, took: transport.Truncated})
				if n > 2000 && !lent {
					add(refusal{name: what + ", longer than the target takes", want: wire.RCUnsupportedSize, ways: both, op: op, spec: short})
				}
				if n < 10_000 {
					bits(what, both, op, true)
				}
			}
		}
		stops := func(s *simtest.Spec) { s.Hosts[1].Config.IdleTimeout = 20 * ms }
		add(refusal{name: name + " that stops for a while", want: wire.RCDropped, ways: "rud", op: transport.Op{Kind: kind, Tag: tag, Buf: make([]byte, 3000)}, spec: stops,
			ready: func(r *refusing) { r.take(takes, 0, tag, 3000); r.stop(60 * ms) }, took: transport.TimedOut})
	}

	write := transport.Op{Kind: transport.OpWrite, Buf: make([]byte, 100), Level: transport.LevelCommit}
	disk, none := write, write
	disk.Key, none.Key = keyDisk, keyAll
	add(refusal{name: "write to a disk that fails", want: wire.RCUncor, ways: "rud rod", op: disk, unknown: true})
	add(refusal{name: "write to what cannot be made durable", want: wire.RCUnsupportedOp, ways: "rud rod", op: none, unknown: true})
	return list
}

// discard throws operations away that wait for receives, until all have been.
func (r *refusing) discard() {
	var look func()
	look = func() {
		if len(r.ends) == 25 {
			return
		}
		op := transport.Op{Kind: transport.OpTRecv, Endpoint: 1, Tag: refuseTag, Look: transport.LookPeekDiscard, Context: codeRegion(0)}
		if err := r.w.Hosts[1].PostAside(&op); err != nil {
			r.Fatal(err)
		}
		r.w.Net.After(ms, look)
	}
	look()
}

// stop has nothing but first packets reach the target for a while.
func (r *refusing) stop(d time.Duration) {
	f := r.w.Line(0, 1).Faults()
	if f.Filter != nil {
		return
	}
	until := r.w.Now() + d
	f.Filter = func(now time.Duration, p *sim.Packet) sim.Verdict {
		h := requestOf(p.Data)
		return sim.Verdict{Drop: now < until && h != nil && h[1]&byte(wire.SESSOM) == 0}
	}
	r.w.Line(0, 1).SetFaults(f)
}

// notAnswered are the return codes that no target of this implementation answers, or that end no operation.
var notAnswered = map[wire.RC]string{
	wire.RCNull:              "says nothing (S-CPL-02)",
	wire.RCOK:                "is success",
	wire.RCDisabled:          "resources are never disabled",
	wire.RCDisabledGen:       "resources are never disabled: a message for which there is no room is refused by a NACK, or deferred",
	wire.RCNoMatch:           "a message without a receive is kept, deferred, refused by a NACK or turned away and sent again (TestMatchBehindAWindowWithoutRoom); the receive of a slow one may be taken back, which has it sent again (TestTakenBackWithoutRoom)",
	wire.RCATInvalid:         "there is no address translation",
	wire.RCATPerm:            "there is no address translation",
	wire.RCATATSError:        "there is no address translation",
	wire.RCATNoTrans:         "there is no address translation",
	wire.RCATOutOfRange:      "there is no address translation",
	wire.RCHostPoisoned:      "memory that fails ends the process",
	wire.RCHostUnsuccessCmpl: "there is no bus between",
	wire.RCAMOFPNaN:          "NaN is a value like others",
	wire.RCAMOFPUnderflow:    "underflow gives 0 or a subnormal",
	wire.RCAMOFPOverflow:     "overflow gives infinity",
	wire.RCAMOFPInexact:      "results are rounded",
	wire.RCUndeliverable:     "answers questions about deferred and lent messages only, of which the message is sent again or ends by what became of it",
	wire.RCUncorTrnsnt:       "is in void packets only, which replace others",
}

// S-RSP-02, S-RMA-15, S-ERR-01, S-ERR-03: whatever a target refuses, each operation ends once, with the code that the target
// answered, by each way that it can go; also if a fifth of all packets is lost in both directions. What is
// refused changes no memory, and those beside it succeed.
func TestEveryCodeReachesTheInitiator(t *testing.T) {
	seen := map[wire.RC]bool{}
	for i, c := range refusals() {
		seen[c.want] = true
		for _, way := range strings.Fields(c.ways) {
			for _, loss := range []float64{0.2, 0}[:raced(2, 1)] {
				t.Run(fmt.Sprintf("%s, %s, %v", c.name, way, loss), func(t *testing.T) { c.run(t, way, loss, uint64(1000+i)) })
			}
		}
	}
	for rc := wire.RCNull; rc <= wire.RCDropped; rc++ {
		if (notAnswered[rc] != "") == seen[rc] {
			t.Errorf("%v is tested: %v, and is said not to be answered: %q", rc, seen[rc], notAnswered[rc])
		}
	}
}
