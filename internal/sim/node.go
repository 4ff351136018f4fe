package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// A Host is what runs on a Node: a driver with its endpoint, or a toy.
type Host interface {
	// Turn is called when datagrams have arrived, the timer has fired or Kick asked for it. The
	// host receives with Recv, sends with Send and sets the Timer again.
	Turn(now time.Duration)
	// Unreachable reports an ICMP error for a datagram to remote.
	Unreachable(now time.Duration, remote netip.AddrPort)
}

// NodeConfig describes a Node. The zero value is an instant host with no limits.
type NodeConfig struct {
	// Addr and Ports are its UDP addresses; a port's index is its path.
	Addr  netip.Addr
	Ports []uint16
	// RecvBuffer is how many bytes may wait for Recv; more are lost. 0 means no limit.
	RecvBuffer int
	// RecvCost is what a datagram of size bytes takes of RecvBuffer; nil means its size.
	RecvCost func(size int) int
	// Wake is how long after an arrival a turn may begin, TimerLate how long after the timer's
	// time. The actual delays are uniform from 0.
	Wake      time.Duration
	TimerLate time.Duration
	// GRO is the probability that a datagram joins the train before it, if it fits.
	GRO float64
}

// Slices are how a busy host lets a process run: for a while, and then not for a while, each
// drawn from its least to its most. The zero value lets it run always.
type Slices struct {
	Run, Away [2]time.Duration
}

// A Node is a host in the network: an address, a socket buffer, and a process that may pause,
// crash and restart.
type Node struct {
	Name string
	// Life is the number of hosts that were attached so far; that of the first is 1.
	Life int
	// Paused is how long the node has been paused in all.
	Paused time.Duration

	net    *Net
	uplink *Line // see Net.Uplink
	cfg    NodeConfig
	rng    *rand.Rand
	host   Host // nil if the node is down
	icmpOK bool // the node is down, but its machine is up and answers with ICMP
	inbox  []*Packet
	head   int
	bytes  int
	paused bool // by Pause
	away   bool // others have the processor
	late   bool // it was away since its last turn
	since  time.Duration
	slices Slices
	shares *rand.Rand // draws slices
	share  uint32     // of the slices that are under way

	timer  time.Duration // 0 means none
	turnAt time.Duration // the scheduled turn, 0 means none
	gen    uint32
	inTurn bool
	spins  int
	spinAt time.Duration
}

// AddNode adds a node that is down until Attach.
func (n *Net) AddNode(name string, cfg NodeConfig) *Node {
	nd := &Node{Name: name, net: n, cfg: cfg,
		rng: rand.New(rand.NewPCG(n.seed^0x6e6f6465, uint64(len(n.nodes))))}
	for i, p := range cfg.Ports {
		ap := netip.AddrPortFrom(cfg.Addr, p)
		if _, ok := n.ports[ap]; ok {
			panic("sim: two nodes at " + ap.String())
		}
		n.ports[ap] = port{nd, i}
	}
	if len(cfg.Ports) == 0 {
		panic("sim: node without port")
	}
	n.nodes = append(n.nodes, nd)
	return nd
}

// Nodes returns all nodes, in the order they were added.
func (n *Net) Nodes() []*Node { return n.nodes }

// Addr is the node's address and main port.
func (nd *Node) Addr() netip.AddrPort { return netip.AddrPortFrom(nd.cfg.Addr, nd.cfg.Ports[0]) }

// Ports are the node's UDP ports, main port first.
func (nd *Node) Ports() []uint16 { return nd.cfg.Ports }

// Up reports whether a host is attached.
func (nd *Node) Up() bool { return nd.host != nil }

// Attach starts a host on the node: a new life at the same addresses.
func (nd *Node) Attach(h Host) {
	if nd.host != nil {
		panic("sim: " + nd.Name + " is up")
	}
	nd.host = h
	nd.late = false
	nd.Life++
	nd.gen++
	nd.timer, nd.turnAt = 0, 0
	if nd.paused {
		nd.Resume()
	}
}

// Crash ends the host's life at once. What waits in the receive buffer is lost, and so are
// later datagrams. With icmp the machine stays up and tells senders that the port is closed.
func (nd *Node) Crash(icmp bool) {
	nd.host = nil
	nd.icmpOK = icmp
	nd.gen++
	nd.timer, nd.turnAt = 0, 0
	for _, p := range nd.inbox[nd.head:] {
		nd.net.drop(p, WhyCrash)
	}
	nd.inbox, nd.head, nd.bytes = nd.inbox[:0], 0, 0
}

// Pause stops the node as SIGSTOP would: there is no turn until Resume, while datagrams fill
// the receive buffer and timers expire.
func (nd *Node) Pause() {
	if !nd.paused {
		nd.stop()
		nd.paused = true
	}
}

// Resume ends Pause.
func (nd *Node) Resume() {
	if nd.paused {
		nd.paused = false
		nd.goOn()
	}
}

// stop begins a time without turns, if none is under way.
func (nd *Node) stop() {
	if !nd.IsPaused() {
		nd.since = nd.net.now
	}
}

// goOn ends a time without turns, if nothing else stops the node.
func (nd *Node) goOn() {
	if nd.IsPaused() {
		return
	}
	nd.Paused += nd.net.now - nd.since
	nd.late = true
	nd.gen++
	nd.turnAt = 0
	nd.Kick(0)
}

// IsPaused reports whether the node takes no turns: after Pause, or because others have its
// processor.
func (nd *Node) IsPaused() bool { return nd.paused || nd.away }

// Late reports, in a turn, whether the node took no turns for a while before it.
func (nd *Node) Late() bool { return nd.late }

// Share lets others use the node's processor, or no longer. What Pause does is apart from that.
func (nd *Node) Share(s Slices) {
	if nd.shares == nil {
		nd.shares = rand.New(rand.NewPCG(nd.net.seed^0x73686172, uint64(slices.Index(nd.net.nodes, nd))))
	}
	nd.slices = s
	nd.share++
	if nd.away {
		nd.away = false
		nd.goOn()
	}
	if s != (Slices{}) {
		nd.slice(nd.share)
	}
}

// slice lets the process run, and then the others, and so on.
func (nd *Node) slice(share uint32) {
	nd.net.After(nd.between(nd.slices.Run), func() {
		if share != nd.share {
			return
		}
		nd.stop()
		nd.away = true
		nd.net.After(nd.between(nd.slices.Away), func() {
			if share != nd.share {
				return
			}
			nd.away = false
			nd.goOn()
			nd.slice(share)
		})
	})
}

func (nd *Node) between(d [2]time.Duration) time.Duration {
	return d[0] + time.Duration(nd.shares.Int64N(int64(d[1]-d[0])+1))
}

// Send sends a train, which it borrows. Each of its datagrams takes its own way. It leaves from
// the port of its path; by dgram.Echo from any port, also one that receives nothing.
func (nd *Node) Send(d *dgram.Datagram) {
	if nd.host == nil {
		panic("BUG: sim: " + nd.Name + " sends though it is down")
	}
	ev, echo := dgram.EchoOf(d.Path)
	if !echo && (d.Path < 0 || d.Path >= len(nd.cfg.Ports)) {
		panic(fmt.Sprintf("BUG: sim: %s sends on path %d of %d", nd.Name, d.Path, len(nd.cfg.Ports)))
	}
	if len(d.Data) == 0 || len(d.Data) > dgram.MaxTrain || d.Segments() > dgram.MaxSegments {
		panic(fmt.Sprintf("BUG: sim: %s sends %d bytes in %d datagrams", nd.Name, len(d.Data), d.Segments()))
	}
	if !echo {
		ev = nd.cfg.Ports[d.Path]
	}
	src := netip.AddrPortFrom(nd.cfg.Addr, ev)
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		nd.net.inject(nd, src, d.Path, d.Remote, b, d.TOS)
	}
}

// Inject sends a datagram, which it borrows, from nd with any source address, as a forger
// would.
func (nd *Node) Inject(src, dst netip.AddrPort, b []byte, tos uint8) {
	nd.net.inject(nd, src, 0, dst, b, tos)
}

func (n *Net) inject(from *Node, src netip.AddrPort, path int, dst netip.AddrPort, b []byte, tos uint8) {
	p := n.get(len(b))
	p.Data = append(p.Data, b...)
	n.ids++
	p.ID, p.Src, p.Dst, p.From, p.FromLife, p.Path, p.TOS, p.Sent = n.ids, src, dst, from, from.Life, path, tos, n.now
	n.tap(Sent, WhyNone, p)
	to, ok := n.ports[dst]
	if !ok {
		n.drop(p, WhyNobody)
		return
	}
	if to.node != from {
		route, ok := n.routes[[2]*Node{from, to.node}]
		if !ok && from.uplink == nil {
			n.drop(p, WhyNobody)
			return
		}
		if p.route = route; !ok {
			p.path, p.on = to.path, from.uplink
			p.on.enter(p)
			return
		}
	}
	p.path = to.path
	if len(p.route) > 0 {
		n.hop(p)
		return
	}
	n.queue.Push(n.now, event{kind: evHop, pkt: p})
}

// arrive puts a packet into the receive buffer.
func (nd *Node) arrive(p *Packet) {
	if nd.host == nil {
		if nd.icmpOK && nd.net.ICMP && p.From.host != nil && p.FromLife == p.From.Life {
			// The ICMP message takes as long as the datagram did.
			c := nd.net.clone(p, 0)
			c.Data = c.Data[:0]
			nd.net.queue.Push(nd.net.now+nd.net.now-p.Sent, event{kind: evICMP, node: p.From, gen: uint32(p.FromLife), pkt: c})
		}
		nd.net.drop(p, WhyDown)
		return
	}
	if nd.cfg.RecvBuffer > 0 && nd.bytes+nd.cost(p) > nd.cfg.RecvBuffer {
		nd.net.drop(p, WhyBuffer)
		return
	}
	nd.inbox = append(nd.inbox, p)
	nd.bytes += nd.cost(p)
	nd.Kick(nd.upTo(nd.cfg.Wake))
}

// cost is what a packet takes of the receive buffer.
func (nd *Node) cost(p *Packet) int {
	if nd.cfg.RecvCost != nil {
		return nd.cfg.RecvCost(len(p.Data))
	}
	return len(p.Data)
}

func (nd *Node) icmp(life uint32, p *Packet) {
	dst := p.Dst
	nd.net.put(p)
	if nd.host != nil && nd.Life == int(life) && !nd.IsPaused() {
		nd.host.Unreachable(nd.net.now, dst)
	}
}

func (nd *Node) upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(nd.rng.Int64N(int64(d)))
}

// Waiting is how many datagrams are in the receive buffer.
func (nd *Node) Waiting() int { return len(nd.inbox) - nd.head }

// Recv fills d with the next train. It returns false if nothing has arrived. Consecutive
// datagrams with the same source, port, traffic class and length may come as one train.
func (nd *Node) Recv(d *dgram.Datagram) bool {
	d.Reset()
	if nd.head == len(nd.inbox) {
		return false
	}
	for n := 0; nd.head < len(nd.inbox) && n < dgram.MaxSegments; n++ {
		p := nd.inbox[nd.head]
		if n == 0 {
			d.Remote, d.Path, d.TOS, d.Seg = p.Src, p.path, p.TOS, len(p.Data)
		} else if p.Src != d.Remote || p.path != d.Path || p.TOS != d.TOS ||
			len(p.Data) > d.Seg || len(p.Data) == 0 || len(d.Data)%d.Seg != 0 ||
			len(d.Data)+len(p.Data) > dgram.MaxTrain || nd.rng.Float64() >= nd.cfg.GRO {
			break
		}
		nd.inbox[nd.head] = nil
		nd.head++
		nd.bytes -= nd.cost(p)
		d.Data = append(d.Data, p.Data...)
		nd.net.tap(Taken, WhyNone, p)
		empty := len(p.Data) == 0
		nd.net.put(p)
		if empty {
			break
		}
	}
	if nd.head == len(nd.inbox) {
		nd.inbox, nd.head = nd.inbox[:0], 0
	}
	return true
}

// Timer sets the node's one timer; 0 means none. It fires up to TimerLate late.
func (nd *Node) Timer(at time.Duration) {
	nd.timer = at
	nd.schedule()
}

// Kick asks for a turn after d.
func (nd *Node) Kick(d time.Duration) {
	at := nd.net.now + d
	if nd.turnAt == 0 || at < nd.turnAt {
		nd.push(at)
	}
}

// schedule ensures that a turn comes for the timer.
func (nd *Node) schedule() {
	if nd.timer == 0 || nd.host == nil || nd.inTurn {
		return
	}
	at := max(nd.timer, nd.net.now) + nd.upTo(nd.cfg.TimerLate)
	if nd.turnAt == 0 || at < nd.turnAt {
		nd.push(at)
	}
}

func (nd *Node) push(at time.Duration) {
	nd.gen++
	nd.turnAt = at
	nd.net.queue.Push(at, event{kind: evTurn, node: nd, gen: nd.gen})
}

// spinLimit is how many turns a node may take at the same time before it counts as a livelock.
const spinLimit = 20_000

func (nd *Node) turn(gen uint32) {
	if gen != nd.gen || nd.host == nil {
		return
	}
	nd.turnAt = 0
	if nd.IsPaused() {
		return
	}
	if nd.spinAt != nd.net.now {
		nd.spinAt, nd.spins = nd.net.now, 0
	}
	if nd.spins++; nd.spins > spinLimit {
		panic(fmt.Sprintf("BUG: %s takes turn after turn at %v (timer %v)", nd.Name, nd.net.now, nd.timer))
	}
	if nd.timer != 0 && nd.timer <= nd.net.now {
		nd.timer = 0
	}
	life := nd.Life
	nd.inTurn = true
	nd.host.Turn(nd.net.now)
	nd.inTurn, nd.late = false, false
	if nd.Life == life && nd.host != nil {
		if nd.Waiting() > 0 {
			nd.Kick(0)
		}
		nd.schedule()
	}
}
