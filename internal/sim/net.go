// Package sim is a network in virtual time for tests of the protocol core: a clock, an event
// queue, nodes with UDP ports, and lines with every fault a network has. One seed gives one
// run, bit for bit: the package reads no clock, starts no goroutine and takes randomness only
// from the seed.
//
// internal/badnet decides what becomes of a datagram, one fault at a time; the faults that only
// a Line has come between. A Line computes when a datagram leaves as soon as it enters, so rate
// and queue are the Line's own.
//
// The package knows datagrams, not the protocol in them. Everything on one Net belongs to one
// goroutine; different Nets are independent.
package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/agenda"
)

// Start is the time on the clock of a new Net. It is not zero, so that code which uses zero for
// "never" does not pass a test by luck.
const Start = time.Second

// A Packet is one UDP datagram in the network. Taps and Filters borrow it.
type Packet struct {
	// ID numbers the datagrams in the order in which nodes sent them. A copy has the number of
	// its original.
	ID       uint64
	Src, Dst netip.AddrPort
	From     *Node
	FromLife int
	Path     int // index of the sender's port, or dgram.Echo of it
	Data     []byte
	TOS      uint8
	Marks    Marks
	Sent     time.Duration

	route []*Line
	hop   int
	on    *Line // the line that carries it, of those that lead into switches
	path  int   // index of the receiver's port
	class int
	free  bool
}

// Len is the length of the IP packet in bytes.
func (p *Packet) Len() int {
	if p.Dst.Addr().Is4() {
		return len(p.Data) + 20 + 8
	}
	return len(p.Data) + 40 + 8
}

// Marks are what the network did to a datagram.
type Marks uint8

// The marks. A Corrupted, Truncated or Padded datagram differs from what was sent.
const (
	Copied Marks = 1 << iota
	Corrupted
	Truncated
	Padded
	Congested
	Trimmed // its payload was cut off and its class says so: no damage
)

// Damaged reports whether the bytes are not those that were sent.
func (m Marks) Damaged() bool { return m&(Corrupted|Truncated|Padded) != 0 }

func (m Marks) String() string {
	s := ""
	for i, n := range []string{"copy", "corrupt", "cut", "padded", "CE", "trimmed"} {
		if m>>i&1 != 0 {
			s += " " + n
		}
	}
	return s
}

// What is what a tap reports.
type What uint8

// The moments in the life of a datagram. For each Sent follows one Taken or Lost, and one for
// each Copied, unless the datagram is still in the network when the run ends.
const (
	Sent  What = iota // a node sent it
	Lost              // the network lost it, see Why
	Taken             // Recv gave it to a node
)

func (w What) String() string { return [...]string{"send", "lost", "recv"}[w] }

// Why is why a datagram was lost.
type Why uint8

// The reasons of loss.
const (
	WhyNone     Why = iota
	WhyLoss         // Faults.Loss
	WhyBurst        // Faults.Burst
	WhyExact        // Faults.Drop
	WhyBlackout     // Faults.Blackouts
	WhyFilter       // Faults.Filter
	WhyPath         // Faults.Paths
	WhyMTU          // Faults.MTU
	WhyQueue        // Faults.Queue
	WhyDown         // the node is down
	WhyNobody       // no such address, or no way to it
	WhyBuffer       // the node's receive buffer is full
	WhyCrash        // it was in the receive buffer when the node crashed
	numWhy
)

func (w Why) String() string {
	return [...]string{"", "random", "burst", "exact", "blackout", "filter", "path", "mtu", "queue", "down", "nobody", "buffer", "crash"}[w]
}

// A Tap sees every datagram at both ends. It borrows p.
type Tap func(now time.Duration, what What, why Why, p *Packet)

// A Net is a network and its clock.
type Net struct {
	// ICMP tells a sender of datagrams to a port that is closed on a host that is up
	// (Node.Crash with icmp).
	ICMP bool

	seed   uint64
	now    time.Duration
	queue  agenda.Agenda[event]
	nodes  []*Node
	lines  []*Line
	ports  map[netip.AddrPort]port
	routes map[[2]*Node][]*Line
	taps   []Tap
	ids    uint64
	hash   uint64
	steps  uint64
	lost   [numWhy]uint64
	free   [len(bufClasses)][]*Packet
	out    int
}

type port struct {
	node *Node
	path int
}

// New makes an empty network. The seed decides everything that is random in it.
func New(seed uint64) *Net {
	return &Net{
		seed:   seed,
		now:    Start,
		ports:  map[netip.AddrPort]port{},
		routes: map[[2]*Node][]*Line{},
		hash:   seed,
	}
}

// Now is the virtual time.
func (n *Net) Now() time.Duration { return n.now }

// Tap adds a tap.
func (n *Net) Tap(t Tap) { n.taps = append(n.taps, t) }

// Lost is how many datagrams were lost for a reason.
func (n *Net) Lost(w Why) uint64 { return n.lost[w] }

// UnderWay is how many datagrams are in lines and receive buffers.
func (n *Net) UnderWay() int { return n.out }

// Hash is a digest of everything that happened so far. Two runs of one seed have the same.
func (n *Net) Hash() uint64 { return n.hash }

// Note adds a value of the caller's to the Hash.
func (n *Net) Note(x uint64) {
	n.hash = bits.RotateLeft64(n.hash^x, 27) * 0x9e3779b97f4a7c15
}

// At calls fn at a time, or now if that has passed.
func (n *Net) At(at time.Duration, fn func()) {
	n.queue.Push(max(at, n.now), event{kind: evFunc, fn: fn})
}

// After calls fn after d.
func (n *Net) After(d time.Duration, fn func()) { n.At(n.now+d, fn) }

// Step makes the next event happen. It returns false if there is none.
func (n *Net) Step() bool {
	if n.queue.Len() == 0 {
		return false
	}
	at, e := n.queue.Pop()
	n.now = at
	n.steps++
	switch e.kind {
	case evFunc:
		e.fn()
	case evHop:
		n.hop(e.pkt)
	case evTurn:
		e.node.turn(e.gen)
	case evICMP:
		e.node.icmp(e.gen, e.pkt)
	}
	return true
}

// Steps is how many events have happened.
func (n *Net) Steps() uint64 { return n.steps }

// Run makes everything happen that is due at or before until, and sets the clock to until.
func (n *Net) Run(until time.Duration) {
	for n.queue.Len() > 0 && n.queue.Next() <= until {
		n.Step()
	}
	n.now = max(n.now, until)
}

// RunUntil runs until cond is true, which it checks after each event. It reports whether cond
// became true by that time.
func (n *Net) RunUntil(until time.Duration, cond func() bool) bool {
	for !cond() {
		if n.queue.Len() == 0 || n.queue.Next() > until {
			n.now = max(n.now, until)
			return cond()
		}
		n.Step()
	}
	return true
}

// Connect joins two nodes by a line in each direction with these faults.
func (n *Net) Connect(a, b *Node, ab, ba Faults) (*Line, *Line) {
	l, m := n.NewLine(a.Name+">"+b.Name, ab), n.NewLine(b.Name+">"+a.Name, ba)
	n.Route(a, b, l)
	n.Route(b, a, m)
	return l, m
}

// Route makes datagrams from a to b pass these lines, in order. A line may be part of many
// routes, which then share its rate and queue.
func (n *Net) Route(a, b *Node, lines ...*Line) {
	n.routes[[2]*Node{a, b}] = lines
}

// A Switch decides where datagrams go that come out of a line.
type Switch interface {
	// Forward returns the line by which a datagram goes on, nil if there is none. It borrows p.
	Forward(p *Packet) *Line
}

// Uplink makes datagrams from a leave by l if no Route leads to their node: l leads into a switch,
// and the switches decide hop by hop.
func (n *Net) Uplink(a *Node, l *Line) { a.uplink = l }

// Lines returns all lines, in the order they were made.
func (n *Net) Lines() []*Line { return n.lines }

// hop moves a packet on, into its next line or into its node.
func (n *Net) hop(p *Packet) {
	if p.hop < len(p.route) {
		l := p.route[p.hop]
		p.hop++
		l.enter(p)
		return
	}
	if p.on != nil && p.on.into != nil {
		if p.on = p.on.into.Forward(p); p.on == nil {
			n.drop(p, WhyNobody)
			return
		}
		p.on.enter(p)
		return
	}
	n.ports[p.Dst].node.arrive(p)
}

// Deliver puts a datagram into its destination's receive buffer now: one that a diverted line
// (Line.Divert) has carried. It borrows p, which has the sender, the time of sending, the ID,
// and Marks for what became of the datagram.
func (n *Net) Deliver(p *Packet) {
	q := n.get(len(p.Data))
	q.Data = append(q.Data, p.Data...)
	q.ID, q.Src, q.Dst, q.From, q.FromLife, q.Path = p.ID, p.Src, p.Dst, p.From, p.FromLife, p.Path
	q.TOS, q.Marks, q.Sent = p.TOS, p.Marks, p.Sent
	to, ok := n.ports[q.Dst]
	if !ok {
		n.drop(q, WhyNobody)
		return
	}
	q.path = to.path
	to.node.arrive(q)
}

// drop ends a packet's life.
func (n *Net) drop(p *Packet, why Why) {
	n.lost[why]++
	n.tap(Lost, why, p)
	n.put(p)
}

func (n *Net) tap(what What, why Why, p *Packet) {
	n.Note(uint64(n.now))
	n.Note(p.ID<<16 | uint64(p.Marks)<<8 | uint64(what)<<4 | uint64(why))
	if what == Sent {
		a := p.Dst.Addr().As16()
		n.Note(binary.BigEndian.Uint64(a[8:]) ^ uint64(p.Dst.Port())<<48 ^ uint64(p.Src.Port())<<32)
		n.Note(uint64(crc32.Checksum(p.Data, castagnoli))<<32 | uint64(len(p.Data))<<8 | uint64(p.TOS))
	}
	for _, t := range n.taps {
		t(n.now, what, why, p)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bufClasses are the sizes of packet buffers.
var bufClasses = [...]int{256, 2048, 5120, 10240, 1 << 16}

// get makes a packet with room for size bytes.
func (n *Net) get(size int) *Packet {
	c := 0
	for bufClasses[c] < size {
		c++
	}
	n.out++
	if k := len(n.free[c]); k > 0 {
		p := n.free[c][k-1]
		n.free[c] = n.free[c][:k-1]
		p.free = false
		return p
	}
	return &Packet{Data: make([]byte, 0, bufClasses[c]), class: c}
}

func (n *Net) put(p *Packet) {
	if p.free {
		panic(fmt.Sprintf("BUG: sim: packet %d ended twice", p.ID))
	}
	n.out--
	b, c := p.Data[:0], p.class
	*p = Packet{Data: b, class: c, free: true}
	n.free[c] = append(n.free[c], p)
}

// clone copies a packet, with room for extra more bytes.
func (n *Net) clone(p *Packet, extra int) *Packet {
	c := n.get(len(p.Data) + extra)
	b, class := c.Data, c.class
	*c = *p
	c.class = class
	c.Data = append(b, p.Data...)
	return c
}
