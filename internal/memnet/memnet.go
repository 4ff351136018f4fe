// Package memnet is a network of datagrams in memory, for endpoints of one process: the
// endpoints are as they are on sockets, drivers, queues and goroutines included, and only the
// sockets are not there. In a bubble of testing/synctest time is virtual: who waits for a
// datagram waits for as long as the network delays it and no test waits for anything.
//
// What happens to a datagram is drawn from the seed, for each direction between two ports by
// itself: the k-th datagram there has the same fate in every run. Which datagram is the k-th
// depends on the order in which goroutines run, which no seed decides.
//
// The network has no goroutine and no timer. A datagram lies in an agenda of its receiver until
// it is due, and who waits there sets a timer of its own. Any goroutine may call anything.
package memnet

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/agenda"
	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/udp"
)

// Config says what a Network does to datagrams.
type Config struct {
	// Seed draws the fates.
	Seed uint64
	// Delay is the time from end to end, to which Faults.Delay is added where it applies.
	Delay time.Duration
	// Faults are those of each direction between two ports. Corrupt, CE, Trim and Reorder are
	// not used: give Late and Delay.
	Faults badnet.Faults
	// MTU is the longest IP packet in bytes; 0 is 65536, that of the loopback interface, whose
	// addresses endpoints have here.
	MTU int
	// Hole, if not 0, is the longest IP packet in bytes that gets through from HoleAfter on, which counts from
	// New: longer ones are lost without a word.
	Hole      int
	HoleAfter time.Duration
}

// A Network connects all that is opened on it.
type Network struct {
	cfg   Config
	begun time.Time

	mu    sync.Mutex // guards what follows, and the lines
	ports map[netip.AddrPort]*line
	ways  map[way]*badnet.Line
	last  map[netip.Addr]uint16 // the port that was given last
	count Count
}

// A Count counts datagrams.
type Count struct {
	Sent, Lost, Copied, Late uint64
}

// A way is one direction between two ports.
type way struct{ from, to netip.AddrPort }

// A packet is a train on its way.
type packet struct {
	data []byte
	seg  int
	from netip.AddrPort
	path int
	tos  uint8
}

var packets = sync.Pool{New: func() any { return new(packet) }}

// New makes a network.
func New(cfg Config) *Network {
	if cfg.MTU == 0 {
		cfg.MTU = 65536
	}
	return &Network{
		cfg: cfg, begun: time.Now(),
		ports: map[netip.AddrPort]*line{}, ways: map[way]*badnet.Line{}, last: map[netip.Addr]uint16{},
	}
}

// Now implements udp.Network.
func (n *Network) Now() time.Duration { return time.Since(n.begun) + 1 }

// Count returns what has happened so far.
func (n *Network) Count() Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}

// Open implements udp.Network.
func (n *Network) Open(cfg *udp.Config) udp.Line {
	return &line{
		net: n, room: cfg.RecvBuf, onlyFirst: cfg.SendOnly,
		arrived: make(chan struct{}, 1), woken: make(chan struct{}, 1), roused: make(chan struct{}, 1), stopped: make(chan struct{}),
		sleeping: make(chan struct{}, 1),
	}
}

// way returns the line that decides about a direction.
func (n *Network) way(w way) *badnet.Line {
	l := n.ways[w]
	if l == nil {
		l = &badnet.Line{Faults: n.cfg.Faults, Rand: badnet.One(rand.New(rand.NewPCG(n.cfg.Seed, w.hash())))}
		n.ways[w] = l
	}
	return l
}

func (w way) hash() uint64 {
	h := fnv.New64a()
	for _, a := range []netip.AddrPort{w.from, w.to} {
		ip := a.Addr().As16()
		_, _ = h.Write(ip[:])
		_, _ = h.Write(binary.BigEndian.AppendUint16(nil, a.Port()))
	}
	return h.Sum64()
}

// A line is what one endpoint has on the network. It implements udp.Line.
type line struct {
	net       *Network
	addrs     []netip.AddrPort // by path
	room      int              // bytes that wait to be received
	onlyFirst bool             // path 0 alone receives

	due   agenda.Agenda[*packet] // on their way
	ready []*packet              // here; the first taken ones are nil
	taken int
	held  int // bytes in ready
	stats udp.Stats

	arrived, woken, roused chan struct{}
	stopped                chan struct{}
	// sleeping has who is in Wait or Nap. It is a channel and no mutex, because in a bubble time
	// goes on while somebody waits for it.
	sleeping chan struct{}
}

// firstPort is the first port that is given where none is asked for.
const firstPort = 20_000

// Bind implements udp.Line.
func (l *line) Bind(at netip.AddrPort) (uint16, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		n.last[at.Addr()]++
		for n.ports[netip.AddrPortFrom(at.Addr(), firstPort-1+n.last[at.Addr()])] != nil {
			n.last[at.Addr()]++
		}
		at = netip.AddrPortFrom(at.Addr(), firstPort-1+n.last[at.Addr()])
	}
	if n.ports[at] != nil {
		return 0, syscall.EADDRINUSE
	}
	n.ports[at] = l
	l.addrs = append(l.addrs, at)
	return at.Port(), nil
}

// Unbind implements udp.Line.
func (l *line) Unbind() {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	for _, a := range l.addrs {
		delete(l.net.ports, a)
	}
	l.addrs = nil
}

// Send implements udp.Mover.
func (l *line) Send(d *dgram.Datagram) error {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	return l.send(d)
}

// SendBatch implements udp.Mover.
func (l *line) SendBatch(ds []*dgram.Datagram) (int, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, d := range ds {
		if err := l.send(d); err != nil {
			return i, err
		}
	}
	return len(ds), nil
}

const ipUDP = 28 // bytes of the headers of IPv4 and UDP

// send sends one train. Its datagrams that stay together arrive as one train.
func (l *line) send(d *dgram.Datagram) error {
	n := l.net
	if len(l.addrs) == 0 {
		return syscall.EBADF
	}
	l.stats.SendCalls++
	longest := len(d.Data)
	if d.Seg > 0 {
		longest = min(longest, d.Seg)
	}
	if longest+ipUDP > n.cfg.MTU {
		l.stats.SendTooBig++
		return syscall.EMSGSIZE
	}
	from := l.addrs[d.Path]
	to, way, now := n.ports[d.Remote], n.way(way{from, d.Remote}), n.Now()
	l.stats.SendTrains++
	l.stats.SendBytes += uint64(len(d.Data))
	var p *packet
	var at time.Duration
	for rest := d.Data; len(rest) > 0; {
		var one []byte
		one, rest = d.Next(rest)
		l.stats.SendSegments++
		n.count.Sent++
		fate := way.Fate(now, badnet.Datagram{})
		if n.cfg.Hole != 0 && now >= n.cfg.HoleAfter && len(one)+ipUDP > n.cfg.Hole {
			fate.Lost = badnet.ByChance
		}
		if fate.Lost != badnet.Passed {
			n.count.Lost++
		}
		if fate.Lost != badnet.Passed || to == nil {
			to.push(at, p)
			p = nil
			continue
		}
		if fate.Delay > 0 {
			n.count.Late++
		}
		due := now + n.cfg.Delay + fate.Delay
		if p != nil && at != due {
			to.push(at, p)
			p = nil
		}
		if p == nil {
			p, at = n.packet(from, d), due
			p.path = to.path(d.Remote)
		}
		p.data = append(p.data, one...)
		for range fate.Copies {
			n.count.Copied++
			c := n.packet(from, d)
			c.path = to.path(d.Remote)
			c.data = append(c.data, one...)
			to.push(now+n.cfg.Delay+way.CopyLate(), c)
		}
	}
	to.push(at, p)
	return nil
}

func (n *Network) packet(from netip.AddrPort, d *dgram.Datagram) *packet {
	p := packets.Get().(*packet)
	p.data, p.seg, p.from, p.tos = p.data[:0], d.Seg, from, d.TOS
	return p
}

// path returns the index of a port.
func (l *line) path(a netip.AddrPort) int {
	for i, x := range l.addrs {
		if x == a {
			return i
		}
	}
	return 0
}

// push puts a packet on its way to l. It does nothing without a packet.
func (l *line) push(at time.Duration, p *packet) {
	if p == nil {
		return
	}
	if l.onlyFirst && p.path > 0 {
		packets.Put(p)
		return
	}
	first := l.due.Len() == 0 || at < l.due.Next()
	l.due.Push(at, p)
	if first {
		signal(l.arrived)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// restLen is how many packets a line at rest has room for.
const restLen = 64

// settle moves what has arrived by now to ready, as far as there is room.
func (l *line) settle(now time.Duration) {
	for l.due.Len() > 0 && l.due.Next() <= now {
		_, p := l.due.Pop()
		if l.held+len(p.data) > l.room {
			d := dgram.Datagram{Data: p.data, Seg: p.seg}
			l.stats.KernelDrops += uint64(d.Segments())
			packets.Put(p)
			continue
		}
		l.held += len(p.data)
		l.ready = append(l.ready, p)
		if len(l.ready) > restLen && l.due.Len() == 0 {
			l.due = agenda.Agenda[*packet]{}
		}
	}
}

// Recv implements udp.Mover.
func (l *line) Recv(d *dgram.Datagram) (bool, error) {
	n := l.net
	n.mu.Lock()
	defer n.mu.Unlock()
	l.stats.RecvCalls++
	l.settle(n.Now())
	if l.taken == len(l.ready) {
		l.stats.RecvEmpty++
		return false, nil
	}
	p := l.ready[l.taken]
	l.ready[l.taken] = nil
	if l.taken++; l.taken == len(l.ready) {
		l.ready, l.taken = l.ready[:0], 0
		if cap(l.ready) > restLen {
			l.ready = nil // tests measure what ranks keep
		}
	}
	l.held -= len(p.data)
	d.Data = append(d.Data[:0], p.data...)
	d.Seg, d.Remote, d.Path, d.TOS = p.seg, p.from, p.path, p.tos
	l.stats.RecvTrains++
	l.stats.RecvSegments += uint64(d.Segments())
	l.stats.RecvBytes += uint64(len(d.Data))
	packets.Put(p)
	return true, nil
}

// Wait implements udp.Line.
func (l *line) Wait(deadline time.Time) error {
	timeout := time.Duration(-1)
	if !deadline.IsZero() {
		timeout = max(0, time.Until(deadline))
	}
	return l.sleep(timeout, l.woken)
}

// Nap implements udp.Line.
func (l *line) Nap(timeout time.Duration) error { return l.sleep(timeout, l.roused) }

// sleep returns when a packet is here, when the timeout is over (negative: none), or when end
// says so.
func (l *line) sleep(timeout time.Duration, end <-chan struct{}) error {
	n := l.net
	until := n.Now() + timeout
	l.sleeping <- struct{}{}
	defer func() { <-l.sleeping }()
	for {
		n.mu.Lock()
		now := n.Now()
		l.settle(now)
		here, next := l.taken < len(l.ready), time.Duration(-1)
		if l.due.Len() > 0 {
			next = l.due.Next()
		}
		n.mu.Unlock()
		if here || timeout >= 0 && now >= until {
			return nil
		}
		if timeout >= 0 && (next < 0 || until < next) {
			next = until
		}
		var after <-chan time.Time
		if next >= 0 {
			t := time.NewTimer(next - now)
			defer t.Stop()
			after = t.C
		}
		select {
		case <-l.arrived: // the next packet comes sooner
		case <-after:
		case <-end:
			return nil
		case <-l.stopped:
			return nil
		}
	}
}

// Wake implements udp.Line.
func (l *line) Wake() { signal(l.woken) }

// Rouse implements udp.Line.
func (l *line) Rouse() { signal(l.roused) }

// Info implements udp.Line.
func (l *line) Info(i *udp.Info) {
	why := udp.Feature{Why: "in memory"}
	i.Method, i.Interface, i.MTU = "memory", "memory", l.net.cfg.MTU
	i.GSO, i.GRO, i.ECN, i.DontFragment, i.Unsummed = udp.Feature{On: true}, udp.Feature{On: true}, udp.Feature{On: true}, udp.Feature{On: true}, udp.Feature{On: true}
	i.Evidence = why
	// A system counts the memory of a packet twice, so it reports twice what was asked for.
	i.RecvBuf = udp.Buffer{Asked: l.room, Got: 2 * l.room}
	i.SendBuf = i.RecvBuf
}

// Stats implements udp.Line.
func (l *line) Stats() udp.Stats {
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	return l.stats
}

// Stop implements udp.Line.
func (l *line) Stop() { close(l.stopped) }

// Close implements udp.Line.
func (l *line) Close() error {
	l.Unbind()
	return nil
}
