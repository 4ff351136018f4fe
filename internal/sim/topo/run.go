package topo

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// A Spec describes a run.
type Spec struct {
	Seed   uint64
	Config transport.Config // of each host, without Local and Paths
	// Host, if not nil, changes the Config of a host before its FEP is made.
	Host   func(index int, cfg *transport.Config)
	Matrix Matrix
	Limit  time.Duration // the run ends then, even if flows have not (default 1 s)
	// NIC is how many bytes may wait in a host before its driver asks the FEP for more, as a full
	// socket buffer would have it; 0 means no limit.
	NIC int
	// TextAddresses means that hosts know each other by addresses that do not name path ports.
	TextAddresses bool
	// Sample is how often the queues are looked at; 0 means never.
	Sample time.Duration
}

// A FlowResult is what became of a flow.
type FlowResult struct {
	Flow
	// FCT is the time from the flow's start until its sender knew that all had arrived; 0 if that did
	// not come to pass. Arrived is the same for the last byte's arrival.
	FCT, Arrived time.Duration
	Bytes        int // that arrived, of a flow that did
	// Packets is how many requests were sent, those included that were Resent. Spurious are those that
	// the target had already. Flows with the same ends that are under way at once share these: they
	// count for the first of them.
	Packets, Resent, Spurious int
}

// A Result is what became of a run.
type Result struct {
	Flows []FlowResult // in the order of the Matrix
	// Unfinished is how many flows have no FCT. The figures below are of the others.
	Unfinished     int
	Mean, P99, Max time.Duration
	// Jain is Jain's index of the rates, size by FCT.
	Jain float64
	// Ideal is the time of the busiest host, or of the busiest links between a part of the network and
	// the rest if all are used alike: its bytes with all headers at the line rate, and the round trip
	// of a packet over the longest way. It supposes that all links are sound and all flows begin at once.
	Ideal                     time.Duration
	Packets, Resent, Spurious int
	Trimmed, Dropped, Marked  uint64 // datagrams
	Queues                    []Depth
	Took                      time.Duration // until the last flow ended or the limit was reached
	Events, Hash              uint64
}

// A Depth is the state of the queues of all switches at a time.
type Depth struct {
	At time.Duration // after the start of the run
	// Most is the number of bytes in the fullest queue, LastHop that in the fullest one to a host. Sum
	// is the number of bytes in all.
	Most, LastHop, Sum int
}

// A Host is a FEP and the driver around it.
type Host struct {
	Node *sim.Node
	FEP  *transport.FEP

	r     *Run
	index int
	nic   *sim.Line
	peers map[int]transport.PeerID
	open  map[int][]*FlowResult // flows under way to each host
	from  map[int][]*FlowResult // flows under way from each host
	room  time.Duration         // when the NIC has room again; 0 if it has
}

// A Run is a Topology with FEPs, and a Matrix that they play.
type Run struct {
	Topology *Topology
	Hosts    []*Host
	Result   Result

	spec  Spec
	pool  dgram.Pool
	left  int
	start time.Duration
}

// part says which end of a flow an operation is.
type part struct {
	flow *FlowResult
	recv bool
}

// NewRun puts a FEP on each host. Flows begin with Play.
func NewRun(t *Topology, s Spec) (*Run, error) {
	if s.Matrix.Nodes > len(t.Hosts) {
		return nil, fmt.Errorf("topo: a matrix of %d hosts on a network of %d", s.Matrix.Nodes, len(t.Hosts))
	}
	if s.Limit == 0 {
		s.Limit = time.Second
	}
	r := &Run{Topology: t, spec: s, start: t.Net.Now()}
	for i, n := range t.Hosts {
		cfg := s.Config
		cfg.Local, cfg.Paths, cfg.Born = n.Addr(), n.Ports(), t.Net.Now()
		if s.Host != nil {
			s.Host(i, &cfg)
		}
		f, err := transport.New(cfg, rand.New(rand.NewPCG(s.Seed^0x666570, uint64(i))))
		if err != nil {
			return nil, err
		}
		h := &Host{Node: n, FEP: f, r: r, index: i, nic: t.Up[i], peers: map[int]transport.PeerID{}, open: map[int][]*FlowResult{}, from: map[int][]*FlowResult{}}
		r.Hosts = append(r.Hosts, h)
		n.Attach(h)
	}
	t.Net.Tap(r.tap)
	return r, nil
}

// tap counts what the network does.
func (r *Run) tap(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
	switch {
	case what == sim.Lost:
		r.Result.Dropped++
	case what == sim.Taken && p.Marks&sim.Trimmed != 0:
		r.Result.Trimmed++
	case what == sim.Taken && p.Marks&sim.Congested != 0:
		r.Result.Marked++
	}
}

// Play plays the Matrix and returns what became of it.
func (r *Run) Play() (*Result, error) {
	m, net := &r.spec.Matrix, r.Topology.Net
	r.Result.Flows = make([]FlowResult, len(m.Flows))
	r.left = len(m.Flows)
	most := 0
	for _, f := range m.Flows {
		most = max(most, f.Size)
	}
	// What the messages say does not matter: all sends share one buffer, and so do all receives.
	from, to := make([]byte, most), make([]byte, most)
	var err error
	for i := range m.Flows {
		f := &r.Result.Flows[i]
		f.Flow = m.Flows[i]
		err = cmp.Or(err, r.Hosts[f.Dst].post(transport.OpTRecv, f, to, i))
	}
	for i := range r.Result.Flows {
		f := &r.Result.Flows[i]
		net.At(r.start+f.Start, func() { err = cmp.Or(err, r.Hosts[f.Src].post(transport.OpTSend, f, from, i)) })
	}
	if r.spec.Sample > 0 {
		net.After(0, r.sample)
	}
	net.RunUntil(r.start+r.spec.Limit, func() bool { return r.left == 0 || err != nil })
	r.finish()
	return &r.Result, err
}

// post posts one end of a flow.
func (h *Host) post(kind transport.OpKind, f *FlowResult, buf []byte, tag int) error {
	peer, now := f.Dst, h.r.Topology.Net.Now()
	if kind == transport.OpTRecv {
		peer = f.Src
		h.from[peer] = append(h.from[peer], f)
	} else {
		h.open[peer] = append(h.open[peer], f)
	}
	id, ok := h.peers[peer]
	if !ok {
		var err error
		if id, err = h.FEP.Peer(h.r.Hosts[peer].Node.Addr(), true); err != nil {
			return err
		}
		if !h.r.spec.TextAddresses {
			h.FEP.PeerPaths(id, wire.PathPortsOf(h.r.Hosts[peer].FEP.Config().Paths))
		}
		h.peers[peer] = id
	}
	err := h.FEP.Post(now, &transport.Op{
		Kind: kind, Peer: id, RI: h.FEP.Config().RI, Buf: buf[:f.Size:f.Size], Tag: uint64(tag), Context: part{f, kind == transport.OpTRecv},
	})
	if err != nil {
		return fmt.Errorf("topo: host %d: flow %d: %w", h.index, f.ID, err)
	}
	h.drive(now)
	h.timer()
	return nil
}

// Turn implements sim.Host. It is a turn of the driver (docs/architecture.md#a-turn-and-what-waits).
func (h *Host) Turn(now time.Duration) {
	d := h.r.pool.Get()
	for i := 0; i < 64 && h.Node.Recv(d); i++ {
		h.receive(now, d)
	}
	h.r.pool.Put(d)
	if t := h.FEP.NextTimeout(); t != 0 && t <= now {
		h.FEP.Advance(now)
	}
	h.drive(now)
	h.FEP.Flush(now)
	h.drive(now)
	h.timer()
}

// Unreachable implements sim.Host.
func (h *Host) Unreachable(now time.Duration, remote netip.AddrPort) { h.FEP.Unreachable(now, remote) }

// receive gives the FEP a train, and counts the requests that it had already.
func (h *Host) receive(now time.Duration, d *dgram.Datagram) {
	flows := h.from[hostOf(d.Remote)]
	if len(flows) == 0 {
		h.FEP.Receive(now, d)
		return
	}
	was := h.FEP.Stats().RxDup
	h.FEP.Receive(now, d)
	flows[0].Spurious += int(h.FEP.Stats().RxDup - was)
}

// count counts the requests of a train.
func (h *Host) count(d *dgram.Datagram) {
	flows := h.open[hostOf(d.Remote)]
	if len(flows) == 0 {
		return
	}
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		if q, _, err := wire.ParseReq(b); err == nil {
			flows[0].Packets++
			if q.Flags&wire.FlagRETX != 0 {
				flows[0].Resent++
			}
		}
	}
}

// drive transmits packets and reads events until there is neither, or no room in the NIC.
func (h *Host) drive(now time.Duration) {
	d := h.r.pool.Get()
	for again := true; again; {
		again = false
		if h.hasRoom(now) && h.FEP.Transmit(now, d) {
			h.count(d)
			h.Node.Send(d)
			again = true
		}
		for e := h.FEP.NextEvent(); e != nil; e = h.FEP.NextEvent() {
			h.event(now, e)
			again = true
		}
	}
	h.r.pool.Put(d)
}

// hasRoom reports whether the NIC takes another train now.
func (h *Host) hasRoom(now time.Duration) bool {
	h.room = 0
	if h.r.spec.NIC == 0 {
		return true
	}
	over := h.nic.Waiting() - h.r.spec.NIC
	if over < 0 {
		return true
	}
	h.room = now + 1 + time.Duration(int64(over)*int64(time.Second)/h.nic.Faults().Rate)
	return false
}

func (h *Host) timer() {
	t := h.FEP.NextTimeout()
	if h.room != 0 && h.FEP.Pending() && (t == 0 || h.room < t) {
		t = h.room
	}
	h.Node.Timer(t)
}

// event takes the end of an operation. A flow that failed stays without FCT.
func (h *Host) event(now time.Duration, e *transport.Event) {
	p, ok := e.Context.(part)
	if !ok {
		return
	}
	f, since := p.flow, now-h.r.start-p.flow.Start
	switch {
	case p.recv && e.Cause == transport.OK:
		f.Arrived, f.Bytes = since, e.Len
		drop(h.from, f.Src, f)
	case p.recv:
		drop(h.from, f.Src, f)
	default:
		if e.Cause == transport.OK {
			f.FCT = since
		}
		h.r.left--
		drop(h.open, f.Dst, f)
	}
}

func drop(m map[int][]*FlowResult, k int, f *FlowResult) {
	if i := slices.Index(m[k], f); i >= 0 {
		m[k] = slices.Delete(m[k], i, i+1)
	}
}

// hostOf is the index of the host that has an address.
func hostOf(a netip.AddrPort) int {
	b := a.Addr().As4()
	return int(binary.BigEndian.Uint32(b[:])) - base
}

// sample looks at the queues of the switches.
func (r *Run) sample() {
	t := r.Topology
	d := Depth{At: t.Net.Now() - r.start}
	for _, tier := range t.Tiers {
		for _, s := range tier {
			for _, lines := range [...][]*sim.Line{s.Up, s.Down} {
				for _, l := range lines {
					w := l.Waiting()
					d.Sum += w
					if d.Most = max(d.Most, w); l.Leads() == nil {
						d.LastHop = max(d.LastHop, w)
					}
				}
			}
		}
	}
	r.Result.Queues = append(r.Result.Queues, d)
	if r.left > 0 {
		t.Net.After(r.spec.Sample, r.sample)
	}
}

// overhead is what a full data packet has beside its payload: the headers of IPv4, UDP, PDS and SES, and
// the CRC.
const overhead = 20 + 8 + wire.ReqLen + wire.ReqStdLen + wire.CRCLen

// ackLen is the length of an ACK, for the round trip of Ideal.
const ackLen = 20 + 8 + wire.AckCCLen + wire.CRCLen

// finish computes the figures.
func (r *Run) finish() {
	res, t := &r.Result, r.Topology
	var fct []time.Duration
	var sum, squares float64
	hops := 0
	for i := range res.Flows {
		f := &res.Flows[i]
		res.Packets, res.Resent, res.Spurious = res.Packets+f.Packets, res.Resent+f.Resent, res.Spurious+f.Spurious
		hops = max(hops, t.Hops(f.Src, f.Dst))
		if f.FCT == 0 {
			res.Unfinished++
			continue
		}
		fct = append(fct, f.FCT)
		res.Mean += f.FCT
		rate := float64(f.Size) / f.FCT.Seconds()
		sum, squares = sum+rate, squares+rate*rate
	}
	if n := len(fct); n > 0 {
		slices.Sort(fct)
		res.Mean, res.P99, res.Max = res.Mean/time.Duration(n), fct[(n*99+99)/100-1], fct[n-1]
		res.Jain = sum * sum / (float64(n) * squares)
	}
	if l := &t.link; l.Rate > 0 {
		trip := time.Duration(int64(hops) * int64(r.payload()+overhead+ackLen) * int64(time.Second) / l.Rate)
		res.Ideal = r.least() + trip + 2*time.Duration(hops)*l.Delay
	}
	res.Took, res.Events, res.Hash = t.Net.Now()-r.start, t.Net.Steps(), t.Net.Hash()
}

func (r *Run) payload() int { return r.Hosts[0].FEP.Config().PayloadMTU }

// least is the least time for all bytes to pass the links that they must pass.
func (r *Run) least() (d time.Duration) {
	// A part is the hosts below a switch and those beside it, or a host.
	type part struct{ first, end int }
	var parts []part
	links := map[part]int{}
	add := func(p part, n int) {
		if _, ok := links[p]; !ok {
			parts = append(parts, p)
		}
		links[p] += n
	}
	for h := range r.Hosts {
		add(part{h, h + 1}, 1)
	}
	for _, tier := range r.Topology.Tiers {
		for _, s := range tier {
			add(part{s.first, s.first + len(s.Down)*s.each}, len(s.Up))
		}
	}
	for _, p := range parts {
		n := links[p]
		if n == 0 {
			continue // all hosts
		}
		in := func(h int) bool { return h >= p.first && h < p.end }
		var out, back int64
		for _, f := range r.spec.Matrix.Flows {
			bytes := int64(f.Size + (f.Size+r.payload()-1)/r.payload()*overhead)
			switch from, to := in(f.Src), in(f.Dst); {
			case from && !to:
				out += bytes
			case to && !from:
				back += bytes
			}
		}
		d = max(d, time.Duration(max(out, back)*int64(time.Second)/(r.Topology.link.Rate*int64(n))))
	}
	return d
}
