// Package simtest runs FEPs on the simulated network, with a driver and a scripted application
// around each. Its checkers learn from the packets what is true, and check every completion,
// every acknowledgement and every byte against it.
//
// One World is one run and belongs to one goroutine. The same Spec, seed and calls give the
// same run, which Hash shows.
package simtest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// TB is the part of testing.TB that a World needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A Spec describes a World.
type Spec struct {
	Seed  uint64
	Hosts []HostSpec
	// Line is what every line does. SetFaults changes single ones.
	Line sim.Faults
	IPv6 bool
	ICMP bool
	// Encapsulation is that of all FEPs. A host's Config.Echo, if not nil, says which entropy
	// values it can repeat; without it, all.
	Encapsulation transport.Encapsulation
	// NoCRC makes all FEPs send without trailer. No line may damage packets then.
	NoCRC bool
	// Secure, if not transport.SecureNone, gives all FEPs one key, which outlives them, and is
	// the way in which they open PDCs. With transport.SecureZeroRTT no host may restart: a new
	// life would accept late packets of the old one.
	Secure transport.Secure
	// Domain, if not nil, changes the secure domain of each life of a host.
	Domain func(*tss.Config)
	// MayFail allows operations to end in error at any time, for tests of the errors
	// themselves. Otherwise a send may fail only if its target or its host died, closed, or
	// does not exist.
	MayFail bool
	// Hostile means that the test forges packets. That they are dropped or answered is no fault
	// then.
	Hostile bool
	// StartPSNFixed means that Config.StartPSN chooses the first PSN of a PDC, which may be
	// close to the last one of the same PDCID.
	StartPSNFixed bool
	// SameRandom gives every life of a host the same random numbers, and so the same PDCIDs.
	SameRandom bool
	// Slates gives every host memory that others read and write by ordered operations.
	Slates bool
	// Forged means that the test forges packets with a correct CRC. Messages may arrive that
	// nobody sent, so the ledger and all checks that need it are off.
	Forged bool
	// Liar has the last host lie about one-sided operations (Scenario.Lie).
	Liar bool
	// Tells has the liar lie about messages, too.
	Tells bool
	// Light omits the audit of matching order, whose cost is the square of the number of
	// operations.
	Light bool
	// Long is for runs of millions of packets. It reuses the buffer of an operation that has
	// ended, after a check that nobody wrote to it since. It keeps only the records of the
	// latest datagrams, at least recordsKept.
	Long bool
	// Wire, if not nil, gets every datagram in place of the lines (sim.Line.Divert) and returns
	// by sim.Net.Deliver what arrives. Patience is the longest time for which it keeps a
	// datagram.
	Wire     func(*sim.Packet)
	Patience time.Duration
	// MaxPackets ends a packet storm (default 2 million datagrams).
	MaxPackets int
	// Trace, if not nil, gets a line for everything that happens.
	Trace io.Writer
}

// A World is a network with endpoints on it and the truth about them.
type World struct {
	Net   *sim.Net
	Hosts []*Host

	tb       TB
	spec     Spec
	lines    [][]*sim.Line // [from][to]
	ledger   ledger
	ops      []*Op
	dealings []*dealing
	refusals int // of dealings
	did      Coverage
	stolen   theft
	byNode   map[*sim.Node]*Host
	byAddr   map[netip.AddrPort]*Host
	seq      uint64 // number of the latest post or end
	packets  int
	cut      int           // datagrams that arrived trimmed
	twins    bool          // a target of another life returns what its peer takes for the former one's
	progress time.Duration // when something last ended, arrived or was answered for the first time, or a waiting post found room
	sentBy   []int         // datagrams per host
	forger   *sim.Node
	gen      uint8        // generation of the newest key
	log      []traceEntry // ring
	logged   int
	spare    map[int][]spare // spare buffers by length
	talks    []*conversation
	settling bool // conversations begin nothing new
	lagged   int  // messages that asked for no ACK
	lagRow   int  // the most of them in a row
	void     int  // void packets sent
	small    int  // requests sent with the small header

	// Of the hosts with datagrams. gramLines are the first of their lines and the one behind the last.
	grams     []*gramHost
	gramNode  map[*sim.Node]*gramHost
	gramAt    map[netip.AddrPort]*gramHost
	gramSent  map[uint64]*gram // by Packet.ID
	gramLines [2]int
	gramRecvs int
	allGrams  []*gram
	allRecvs  []*gramRecv
	liedGram  *gram // that the liar is sending
	gramLies  int   // that were received, as they may be

	// Among honest hosts, though there is a liar: messages that came, announcements, and restarts that were asked for.
	cameAmong, lentAmong, putOff int
}

// A spare is a recycled buffer and the operation that had it last.
type spare struct {
	whole []byte
	was   *Op
}

// sparesLeft is how many buffers of a length stay unused before the oldest is reused, so that a
// late write goes to a buffer that is not in use.
const sparesLeft = 16

// recordsKept is how many records of datagrams a Long run keeps at least: more than there are
// datagrams under way at any time.
const recordsKept = 1 << 16

// NewWorld builds the network and starts all hosts. A violated check fails tb; if tb is nil it
// panics with a *Violation.
func NewWorld(tb TB, spec Spec) *World {
	if spec.MaxPackets == 0 {
		spec.MaxPackets = 2_000_000
	}
	w := &World{Net: sim.New(spec.Seed), tb: tb, spec: spec,
		byNode: map[*sim.Node]*Host{}, byAddr: map[netip.AddrPort]*Host{}, sentBy: make([]int, len(spec.Hosts))}
	w.ledger = ledger{w: w, dirs: map[dirKey][]*dir{}, msgs: map[msgKey]*Op{}, loans: map[loanKey]*Op{}, reads: map[msgKey]lentRead{}, rudis: map[rudiKey]int{}, asked: map[rudiKey]int{}, told: map[rudiKey]int{}}
	w.Net.ICMP = spec.ICMP
	if spec.Secure != transport.SecureNone {
		w.ledger.eye = newEye(spec.IPv6)
	}
	for i, hs := range spec.Hosts {
		nc := hs.Node
		if !nc.Addr.IsValid() {
			nc.Addr = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i + 1)})
			if spec.IPv6 {
				nc.Addr = netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i + 1)})
			}
		}
		for len(nc.Ports) < max(hs.Paths, 1) {
			port := uint16(wire.Port + len(nc.Ports) + 100*i)
			if spec.Encapsulation == wire.Standard {
				if port = wire.Port; len(nc.Ports) > 0 {
					port = uint16(50_000 + len(nc.Ports) + 100*i)
				}
			}
			nc.Ports = append(nc.Ports, port)
		}
		if hs.Budget == 0 {
			hs.Budget = 64
		}
		if hs.LazyDelay == 0 {
			hs.LazyDelay = 20 * time.Microsecond
		}
		if hs.FlushDelay == 0 {
			hs.FlushDelay = 20 * time.Microsecond
		}
		h := &Host{Index: i, w: w, spec: hs, rng: rand.New(rand.NewPCG(spec.Seed^0x686f7374, uint64(i))),
			abandoned: make([]bool, len(spec.Hosts)), abandoning: Any}
		h.Node = w.Net.AddNode(hostName(i), nc)
		w.Hosts = append(w.Hosts, h)
		w.byNode[h.Node] = h
		for _, p := range nc.Ports {
			w.byAddr[netip.AddrPortFrom(nc.Addr, p)] = h
		}
	}
	var wire *sim.Line
	if spec.Wire != nil {
		wire = w.Net.NewLine("wire", sim.Faults{})
		wire.Divert(spec.Wire)
	}
	for i, a := range w.Hosts {
		w.lines = append(w.lines, make([]*sim.Line, len(w.Hosts)))
		for j, b := range w.Hosts {
			switch {
			case i == j:
			case wire != nil:
				w.lines[i][j] = wire
				w.Net.Route(a.Node, b.Node, wire)
			default:
				w.lines[i][j] = w.Net.NewLine(a.Name()+">"+b.Name(), spec.Line)
				w.Net.Route(a.Node, b.Node, w.lines[i][j])
			}
		}
	}
	w.Net.Tap(w.ledger.tap)
	for _, h := range w.Hosts {
		h.start()
		if h.spec.Busy != (sim.Slices{}) {
			h.Node.Share(h.spec.Busy)
		}
	}
	return w
}

// hostName is A to Z, then A1 and so on.
func hostName(i int) string {
	s := string(rune('A' + i%26))
	if i >= 26 {
		s += fmt.Sprint(i / 26)
	}
	return s
}

// Line returns the line from one host to another.
func (w *World) Line(from, to int) *sim.Line { return w.lines[from][to] }

// SetFaults changes the lines between all hosts, in both directions.
func (w *World) SetFaults(f sim.Faults) {
	for i := range w.lines {
		for j, l := range w.lines[i] {
			if i != j {
				l.SetFaults(f)
			}
		}
	}
}

// Heal ends all faults, and hosts are busy no longer. Delay, rate and MTU stay.
func (w *World) Heal() {
	w.note("the network heals")
	for _, l := range w.Net.Lines() {
		l.SetFaults(l.Faults().Healed())
	}
	for _, h := range w.Hosts {
		h.Node.Share(sim.Slices{})
	}
}

// Progress is when last an operation ended, or something new arrived or was answered.
func (w *World) Progress() time.Duration { return w.progress }

// Packets is how many datagrams were sent, forged ones included.
func (w *World) Packets() int { return w.packets }

// PacketsFrom is how many datagrams a host's endpoint sent.
func (w *World) PacketsFrom(i int) int { return w.sentBy[i] }

// ForgetPackets drops the records of past datagrams, for tests that measure memory. No datagram
// may be under way.
func (w *World) ForgetPackets() {
	l := &w.ledger
	l.first += uint64(len(l.records))
	l.records = nil
}

// Now is the virtual time.
func (w *World) Now() time.Duration { return w.Net.Now() }

// Run lets d pass.
func (w *World) Run(d time.Duration) { w.Net.Run(w.Net.Now() + d) }

// RunUntil lets time pass until cond is true, and fails if that takes longer than d.
func (w *World) RunUntil(d time.Duration, what string, cond func() bool) {
	if w.tb != nil {
		w.tb.Helper()
	}
	from := w.Net.Now()
	if !w.Net.RunUntil(from+d, cond) {
		var left string
		for _, h := range w.Hosts {
			if h.FEP != nil {
				left += "\n" + h.Name() + ": " + h.FEP.Dump()
			}
		}
		w.fail(what, fmt.Sprintf("%s does not happen within %v%s", what, d, left))
	}
}

// RunOps runs until all these operations have ended.
func (w *World) RunOps(d time.Duration, ops ...*Op) {
	if w.tb != nil {
		w.tb.Helper()
	}
	i, from := 0, w.Net.Now()
	if !w.Net.RunUntil(from+d, func() bool {
		for i < len(ops) && !ops[i].Open() {
			i++
		}
		return i == len(ops)
	}) {
		w.Failf("%v does not end within %v", ops[i], d)
	}
}

// Want fails unless all these operations are in state, which is a result of Op.State or several
// of them joined by " or ".
func (w *World) Want(state string, ops ...*Op) {
	if w.tb != nil {
		w.tb.Helper()
	}
	for _, o := range ops {
		if s := o.State(); !slices.Contains(strings.Split(state, " or "), s) {
			w.Failf("%v is %s, want %s", o, s, state)
		}
	}
}

// Forge sends a datagram to a host as if it came from src, over a line of its own without
// faults. With addCRC it gets a correct trailer.
func (w *World) Forge(to int, src netip.AddrPort, b []byte, addCRC bool) {
	dst := w.Hosts[to].Addr()
	if addCRC {
		c := crcOf(src, dst, b)
		b = append(b[:len(b):len(b)], byte(c>>24), byte(c>>16), byte(c>>8), byte(c))
	}
	w.ForgeTOS(to, src, b, dgram.ECT0)
}

// ForgeTOS is Forge with a traffic class, and without a trailer.
func (w *World) ForgeTOS(to int, src netip.AddrPort, b []byte, tos uint8) {
	w.forgerNode().Inject(src, w.Hosts[to].Addr(), b, tos)
}

// forgerNode is who sends what is forged.
func (w *World) forgerNode() *sim.Node {
	if w.forger == nil {
		w.forger = w.Net.AddNode("forger", sim.NodeConfig{Addr: netip.AddrFrom4([4]byte{10, 255, 255, 255}), Ports: []uint16{1}})
		reach := func(to *sim.Node) {
			w.Net.Route(w.forger, to, w.Net.NewLine("forger>"+to.Name, sim.Faults{Delay: 10 * time.Microsecond}))
		}
		for _, h := range w.Hosts {
			reach(h.Node)
		}
		for _, h := range w.grams {
			reach(h.node)
		}
	}
	return w.forger
}

// Forged sets Spec.Forged, Spec.Hostile and Spec.MayFail.
func (w *World) Forged() {
	w.spec.Hostile, w.spec.Forged, w.spec.MayFail = true, true, true
}

func (w *World) op(id uint32) *Op {
	if id == 0 || int(id) > len(w.ops) {
		return nil
	}
	return w.ops[id-1]
}

// newOp makes an operation and its buffer.
func (w *World) newOp(h *Host, s OpSpec) *Op {
	o := &Op{OpSpec: s, Host: h, Life: h.Life(), ID: uint32(len(w.ops) + 1)}
	w.ops = append(w.ops, o)
	o.whole, o.buf = w.buffer(s.Len)
	if s.writes() {
		fillPattern(o.buf, o.ID, 0)
		o.data = uint64(o.ID)
		return o
	}
	if s.send() {
		fillPattern(o.buf, o.ID, 0)
		if w.looksLikeAnother(o) {
			o.HasData = true // two messages that cannot be told apart prove nothing
		}
		if o.HasData {
			o.data = uint64(o.ID)*0x9e3779b97f4a7c15&^0xffffffff | uint64(o.ID)
		}
		if s.tagged() {
			o.tag = tagOf(o.ID, s.Class)
		}
		return o
	}
	if s.tagged() {
		switch {
		case s.Exact != nil:
			o.tag = s.Exact.tag
		case s.AnyClass:
			o.tag, o.ignore = scatter(o.ID), ^uint64(0)
		default:
			count := classBits(s.Class)
			o.tag, o.ignore = scatter(o.ID)&^count|tagOf(0, s.Class)&count, ^count
		}
	}
	if s.BySource && s.Peer != Any {
		o.init = w.Hosts[s.Peer].endpoint(0).Initiator
	}
	return o
}

// buffer makes a buffer, or reuses one that an operation has given back.
func (w *World) buffer(n int) (whole, buf []byte) {
	l := w.spare[n]
	if len(l) < sparesLeft {
		return newBuffer(n)
	}
	s := l[0]
	w.spare[n] = l[1:]
	buf = s.whole[guardLen : guardLen+n : guardLen+n]
	w.unwritten(s.was, s.whole, buf)
	set(buf, soil)
	return s.whole, buf
}

// giveBack makes the buffer of an operation that has ended a spare one, in a Long run.
func (w *World) giveBack(o *Op) {
	if !w.spec.Long || o.whole == nil || o.drainer {
		return
	}
	if w.spare == nil {
		w.spare = map[int][]spare{}
	}
	w.spare[len(o.buf)] = append(w.spare[len(o.buf)], spare{o.whole, o})
	o.whole, o.buf, o.Event.Buf = nil, nil, nil
}

// unwritten checks that nothing was written to the buffer of an operation that
// has ended.
func (w *World) unwritten(o *Op, whole, buf []byte) {
	if i := untouched(buf, spent); i >= 0 {
		w.Failf("%s: byte %d of the buffer of %v was written after its end", o.Host.Name(), i, o)
	}
	w.guarded(o, whole)
}

// guarded checks that nothing was written around the buffer of an operation.
func (w *World) guarded(o *Op, whole []byte) {
	if !guardsIntact(whole) {
		w.Failf("%s: bytes around the buffer of %v were written", o.Host.Name(), o)
	}
}

// looksLikeAnother reports whether nothing distinguishes a message from another one that may
// still be under way: no tag, no data, few bytes, the same length.
func (w *World) looksLikeAnother(o *Op) bool {
	if o.Kind != transport.OpSend || o.HasData || o.Len >= 8 {
		return false
	}
	for _, p := range w.ops {
		if p != o && p.Kind == o.Kind && !p.HasData && p.Host == o.Host && p.Peer == o.Peer && p.To == o.To && p.Len == o.Len &&
			(p.Open() || !p.Delivered() && (!p.Failed() || p.Event.Unknown)) {
			return true
		}
	}
	return false
}

// accepted records a post that the FEP accepted.
func (w *World) accepted(o *Op) {
	h := o.Host
	if !o.drainer {
		w.note("%s posts %v", h.Name(), o)
	}
	if o.send() {
		h.sends = append(h.sends, o)
		if o.Fence {
			h.fences = append(h.fences, o)
		}
		if o.Inject {
			set(o.buf, spent) // the bytes may be reused at once
		}
	} else if o.read() {
		h.reads = append(h.reads, o)
		h.accessFences = h.accessFences || o.Fence
		if o.Inject {
			set(o.buf, spent)
		}
	} else {
		h.recvs = append(h.recvs, o)
	}
}

// A Violation is a broken rule.
type Violation struct {
	What string
	Rule string // which checker found it: its format without the values
	At   time.Duration
	Tail string // the last lines of the trace, and the state of each FEP
}

func (v *Violation) Error() string { return fmt.Sprintf("at %v: %s", v.At-sim.Start, v.What) }

// Failf reports a broken rule and ends the run.
func (w *World) Failf(format string, args ...any) {
	if w.tb != nil {
		w.tb.Helper()
	}
	w.fail(format, fmt.Sprintf(format, args...))
}

func (w *World) fail(rule, what string) {
	v := &Violation{What: what, Rule: rule, At: w.Net.Now(), Tail: w.Tail(40)}
	for _, h := range w.Hosts {
		if h.FEP != nil {
			v.Tail += h.Name() + " has " + h.FEP.Dump()
		}
	}
	if w.tb == nil {
		panic(v)
	}
	w.tb.Helper()
	w.tb.Fatalf("%v\n%s", v, v.Tail)
}

// A traceEntry is one line of the trace. It is formatted only if somebody reads it.
type traceEntry struct {
	at    time.Duration
	text  string // a note; empty for a packet
	what  sim.What
	why   sim.Why
	marks sim.Marks
	rec   uint64
	from  *sim.Node
	dst   netip.AddrPort
}

const logLen = 512

func (w *World) trace(e traceEntry) {
	if len(w.log) < logLen {
		w.log = append(w.log, e)
	} else {
		w.log[w.logged%logLen] = e
	}
	w.logged++
	if w.spec.Trace != nil {
		fmt.Fprintln(w.spec.Trace, w.traceLine(&e))
	}
}

func (w *World) note(format string, args ...any) {
	if w.spec.Trace == nil && w.tb == nil {
		return // a run of the swarm: failing seeds are run again with a Trace
	}
	w.trace(traceEntry{at: w.Net.Now(), text: fmt.Sprintf(format, args...)})
}

func (w *World) traceLine(e *traceEntry) string {
	at := fmt.Sprintf("%13.6fms ", float64(e.at-sim.Start)/1e6)
	if e.text != "" {
		return at + e.text
	}
	var r *record
	if r = w.ledger.record(e.rec); r == nil {
		return at + "?"
	}
	to := e.dst.String()
	if h := w.byAddr[e.dst]; h != nil {
		to = h.Name()
	} else if h := w.gramAt[e.dst]; h != nil {
		to = h.node.Name
	}
	from := "forger"
	if r.from != nil {
		from = r.from.Name()
	} else if g := w.gramSent[e.rec]; g != nil && g.host != nil {
		from = g.host.node.Name
	}
	s := fmt.Sprintf("%s%-4v #%d %s>%s %s", at, e.what, e.rec, from, to, r.line())
	if e.what == sim.Lost {
		s += fmt.Sprintf(" (%v)", e.why)
	}
	if e.marks != 0 {
		s += " [" + e.marks.String()[1:] + "]"
	}
	return s
}

func (r *record) line() string {
	s := r.reading.String()
	if r.op != nil {
		s += fmt.Sprintf(" = #%d", r.op.ID)
	}
	return s
}

// Tail returns the last n lines of the trace.
func (w *World) Tail(n int) string {
	s := ""
	for i := max(0, w.logged-n, w.logged-logLen); i < w.logged; i++ {
		s += w.traceLine(&w.log[i%logLen]) + "\n"
	}
	return s
}

// Hash is a digest of the run.
func (w *World) Hash() uint64 { return w.Net.Hash() }
