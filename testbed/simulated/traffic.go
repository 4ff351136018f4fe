package simulated

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// A plan is a Traffic with the defaults of uetperf filled in.
type plan struct {
	traffic.Spec // of all runs but for the size; what is drawn of a soak is not in it
	soak         bool
	sizes        []int64
	mtu          int // payload bytes
}

// Bounds of a plan. A scenario should not need more.
const (
	maxWindow   = 4096
	maxParallel = 64
	maxPaths    = 64
	maxRate     = 1e6
	// leastSize is the least message that has room for its number, by which the checkers
	// identify it.
	leastSize = 8
	maxSize   = 64 << 20
	// maxBuffers bounds the bytes of a session's outstanding messages and receives.
	maxBuffers = 1 << 30
)

// planOf fills in the defaults of uetperf and refuses what cannot be simulated. There is no
// warm-up: virtual processors have no caches.
func planOf(t *scenario.Traffic, mtu int) (*plan, error) {
	usual, known := traffic.UsualOf(t.Test)
	p := &plan{soak: t.Test == traffic.Soak, mtu: cmp.Or(t.MTU, payloadMTU(mtu)), Spec: traffic.Spec{
		Test: t.Test, Op: cmp.Or(t.Op, traffic.TSend), Mode: cmp.Or(t.Mode, "rud"), Complete: cmp.Or(t.Complete, "transmit"), CC: cmp.Or(t.CC, "nscc"),
		Iters: t.Iters, Time: time.Duration(t.Time), Window: max(1, cmp.Or(t.Window, usual.Window)), Parallel: max(t.Parallel, 1), Paths: max(t.Paths, 1),
		Reverse: t.Reverse, Bidir: t.Bidir, Check: !t.NoCheck, Churn: t.Churn, Progress: "auto", CRC: true, GSO: "auto",
	}}
	s := &p.Spec
	if s.Iters == 0 && s.Time == 0 {
		s.Iters, s.Time = usual.Iters, usual.Time
	}
	var err error
	switch {
	case !known || s.Test == traffic.Incast:
		return nil, fmt.Errorf("test %q is not ping, lat, bw, rate, load, rr or soak", s.Test)
	case s.Test == traffic.Ping:
		s.Interval = time.Second
	case s.Test == traffic.Load:
		s.Arrivals = traffic.Constant
		if s.Rate, err = parseRate(t.Rate); err != nil {
			return nil, err
		}
	}
	size := cmp.Or(t.Size, usual.Size)
	if p.soak && t.Size == "" {
		size = "8,1K,5000,16K,64K"
	}
	if p.sizes, err = parseSizes(size); err != nil {
		return nil, err
	}
	largest := int64(0)
	for _, n := range p.sizes {
		largest = max(largest, n)
	}
	_, known = levels[s.Complete]
	switch {
	case !known:
		return nil, fmt.Errorf("complete %q is not inject, transmit, delivery or match", s.Complete)
	case s.CC != "nscc":
		return nil, fmt.Errorf("cc %q is not nscc", s.CC)
	case s.Window > maxWindow:
		return nil, fmt.Errorf("window %d is not 1 to %d", s.Window, maxWindow)
	case p.mtu != 1024 && p.mtu != 2048 && p.mtu != 4096 && p.mtu != 8192:
		return nil, fmt.Errorf("mtu %d is not 1024, 2048, 4096 or 8192", p.mtu)
	case int64(3*s.Window*s.Parallel)*largest > maxBuffers:
		return nil, fmt.Errorf("%d streams with a window of %d messages of %d bytes need more than %d bytes of buffers", s.Parallel, s.Window, largest, maxBuffers)
	}
	run := p.of(largest)
	if p.soak { // which draws its tests
		run.Test = traffic.BW
	}
	return p, run.Validate()
}

// of returns the run of a size.
func (p *plan) of(size int64) traffic.Spec {
	s := p.Spec
	s.Size = size
	if s.Exchanges() { // a reply is as long as its request
		s.Reply = size
	}
	return s
}

// payloadMTU returns the payload per packet that fits an interface, as uet chooses it.
func payloadMTU(mtu int) int {
	if mtu == 0 {
		mtu = 1500
	}
	const headers = 20 + 8 + 16 + 12 + 44 + 16 // IP, UDP, security, PDS, SES, trailer
	n := 8192
	for n > 1024 && n+headers > mtu {
		n /= 2
	}
	return n
}

// parseSizes reads sizes and sweeps of them that can be simulated.
func parseSizes(s string) ([]int64, error) {
	v, err := units.ParseSizes(s)
	for _, n := range v {
		if n < leastSize || n > maxSize {
			return nil, fmt.Errorf("size %q is not %d to %s", units.Size(n), leastSize, units.Size(maxSize))
		}
	}
	return v, err
}

// parseRate reads requests per second: 500, 20k/s.
func parseRate(s string) (float64, error) {
	f, err := units.ParseRate(s)
	if err == nil && f > maxRate {
		return 0, fmt.Errorf("rate %q is more than %g/s", s, float64(maxRate))
	}
	return f, err
}

// A session is one running client: the Traffic of one client host, with the two ends of
// each stream, as in uetperf and its server.
type session struct {
	l              *lab
	t              *scenario.Traffic
	p              *plan
	client, server int // indices of hosts
	first          int // of its endpoints in the World
	pairs          int // of endpoints
	clients        []*simtest.Host
	servers        []*simtest.Host
	rng            *rand.Rand

	spec  traffic.Spec // of the run that goes on
	mine  []*leg
	peers []*leg
	runs  []record.Run
	begun time.Duration // 0 means not yet
	done  bool
	dead  bool // killed: nothing of it is left
	err   error
	then  *session      // begins when this one has ended
	ended time.Duration // on the timeline
}

// sessionsOf makes the sessions of a Traffic.
func (l *lab) sessionsOf(t *scenario.Traffic) ([]*session, error) {
	from, to := l.named(t.From), l.named(t.To)
	switch {
	case len(from) == 0:
		return nil, fmt.Errorf("traffic from %q: there is no such host", t.From)
	case len(to) != 1:
		return nil, fmt.Errorf("traffic to %q: not one host", t.To)
	}
	p, err := planOf(t, l.sc.Fabric.MTU)
	if err != nil {
		return nil, fmt.Errorf("traffic from %s to %s: %w", t.From, t.To, err)
	}
	var v []*session
	for _, i := range from {
		if l.hosts[i].role != "client" || l.hosts[to[0]].role != "server" {
			return nil, fmt.Errorf("traffic from %s to %s is not from a client to a server", l.hosts[i].name, l.hosts[to[0]].name)
		}
		n := uint64(len(l.sessions) + len(v))
		s := &session{l: l, t: t, p: p, client: i, server: to[0], pairs: p.Parallel, rng: rand.New(rand.NewPCG(l.seed, 0x7365<<32|n))}
		if p.soak {
			s.pairs = traffic.MixParallel
		}
		v = append(v, s)
	}
	return v, nil
}

// The model of a host: a process wakes within some microseconds, a timer is a little later,
// and the socket buffer has the usual size.
const (
	hostWake   = 20 * time.Microsecond
	hostLate   = 100 * time.Microsecond
	hostBuffer = 4 << 20
)

// addHosts adds the endpoints to the World's specification.
func (s *session) addHosts(spec *simtest.Spec) {
	s.first = len(spec.Hosts)
	for range s.pairs {
		for _, i := range []int{s.client, s.server} {
			hs := simtest.HostSpec{Paths: s.p.Paths}
			hs.Node.Addr = s.l.hosts[i].addr
			hs.Node.Wake, hs.Node.TimerLate, hs.Node.RecvBuffer, hs.Node.GRO = hostWake, hostLate, hostBuffer, 1
			c := &hs.Config
			c.PayloadMTU = s.p.mtu
			c.RecvWindow = hostBuffer / 2
			c.Initiator = 16 + uint32(len(spec.Hosts)) // each process has its own
			s.trimming(c)
			spec.Hosts = append(spec.Hosts, hs)
		}
	}
}

// takeHosts finds the endpoints in the World.
func (s *session) takeHosts() {
	for i := range s.pairs {
		c, v := s.l.w.Hosts[s.first+2*i], s.l.w.Hosts[s.first+2*i+1]
		s.clients, s.servers = append(s.clients, c), append(s.servers, v)
		s.l.hosts[s.client].ends = append(s.l.hosts[s.client].ends, c)
		s.l.hosts[s.server].ends = append(s.l.hosts[s.server].ends, v)
	}
}

// start begins the session.
func (s *session) start() {
	l := s.l
	if l.hosts[s.client].killed {
		s.killed()
		return
	}
	s.begun = l.w.Now()
	if l.zero != 0 {
		l.mark("%s: begins", l.hosts[s.client].name)
	}
	for _, h := range append(s.clients, s.servers...) {
		h.OnEvent(event)
	}
	s.next()
}

// draw returns the next run, false if there is none.
func (s *session) draw() (spec traffic.Spec, ok bool) {
	if !s.p.soak {
		if n := len(s.runs); n < len(s.p.sizes) {
			spec, ok = s.p.of(s.p.sizes[n]), true
		}
		spec.Seed = s.rng.Uint64()
		return spec, ok
	}
	left := s.p.Time - (s.l.w.Now() - s.begun)
	m := traffic.Mix{Base: s.p.Spec, Sizes: s.p.sizes, Op: s.t.Op, Mode: s.t.Mode, Complete: s.t.Complete, Impaired: true}
	spec, _ = m.Draw(s.rng, left)
	return spec, left > 0
}

// next begins the next run, or ends the session if there is none.
func (s *session) next() {
	spec, ok := s.draw()
	if !ok {
		s.l.mark("%s: done", s.l.hosts[s.client].name)
		s.end()
		return
	}
	s.spec, s.mine, s.peers = spec, nil, nil
	run := &s.spec
	mine := traffic.NewGroup(run, false, func() {
		for _, g := range s.mine {
			g.wake(0)
		}
	})
	theirs := traffic.NewGroup(run, true, nil)
	for i := range run.Parallel {
		c := s.newLeg(i, false, mine, s.clients[i], s.servers[i])
		c.Gate.Store(true)
		s.mine = append(s.mine, c)
		if run.Test == traffic.Incast && i > 0 { // one receiver for all
			c.to = s.servers[0]
			continue
		}
		s.peers = append(s.peers, s.newLeg(i, true, theirs, s.servers[i], s.clients[i]))
	}
	for i, c := range s.mine {
		v := s.peers[min(i, len(s.peers)-1)]
		c.Sent = func(n int64) {
			if v.Senders != nil {
				v.Senders[i].Store(n)
			} else {
				v.PeerSent.Store(n)
			}
			v.wake(0)
		}
	}
	for i, v := range s.peers {
		v.Gate.Store(true)
		v.Sent = func(n int64) {
			s.mine[i].PeerSent.Store(n)
			s.mine[i].wake(0)
		}
		v.Complete = func() {
			for k, c := range s.mine {
				if k == i || v.Senders != nil {
					c.Over.Store(true)
					c.wake(0)
				}
			}
		}
	}
	for _, g := range append(s.peers, s.mine...) {
		if err := g.Start(); err != nil {
			s.fail(err)
			return
		}
		g.wake(0)
	}
}

// over is called when a leg has ended. When all of the client's have ended, it tells the
// server's to end; when those have ended, the run is over.
func (s *session) over() {
	all := func(legs []*leg) bool {
		for _, g := range legs {
			if !g.ended {
				return false
			}
		}
		return true
	}
	switch {
	case !all(s.mine):
	case !all(s.peers):
		for _, v := range s.peers {
			v.Over.Store(true)
			v.wake(0)
		}
	default:
		s.endRun("")
		s.next()
	}
}

// end ends the session and lets the next of the host begin.
func (s *session) end() {
	s.done, s.ended = true, s.l.since()
	if s.then != nil {
		s.l.w.Net.After(0, s.then.start)
	}
}

// endRun records the run.
func (s *session) endRun(why string) {
	var mine, others []*traffic.Leg
	var theirs []traffic.LegResult
	for _, g := range s.mine {
		g.end(why != "")
		mine = append(mine, g.Leg)
	}
	for _, g := range s.peers {
		g.end(why != "")
		theirs = append(theirs, g.Results()...)
		others = append(others, g.Leg)
	}
	if len(theirs) > 0 {
		theirs[0].Latency = traffic.Times(others)
	}
	run := traffic.Result(&s.spec, mine, theirs, &traffic.Spread{})
	run.Error = why
	if p := s.p; p.soak { // one run, as that of uetperf
		if len(s.runs) == 0 {
			s.runs = append(s.runs, record.Sum())
		}
		all := &s.runs[0]
		all.Add(&run)
		all.Op, all.Error = p.Op, why
		all.Took(s.l.w.Now() - s.begun)
		return
	}
	s.runs = append(s.runs, run)
}

// fail ends the session in error and keeps what was measured.
func (s *session) fail(err error) {
	if s.done {
		return
	}
	if s.begun != 0 {
		s.endRun(err.Error())
	}
	s.err = err
	s.end()
	s.l.mark("%s: %v", s.l.hosts[s.client].name, err)
	s.l.w.Net.After(0, func() { // the process ends, and the server's part of the test
		for _, h := range append(s.clients, s.servers...) {
			if h.Up() && !h.Node.IsPaused() {
				h.Close()
			}
		}
	})
}

// killed ends the session with its process: nothing of it remains.
func (s *session) killed() {
	if s.done {
		return
	}
	s.dead = true
	s.end()
	// The server notices that the client is gone and ends its part.
	s.l.w.Net.After(time.Second, func() {
		for _, h := range s.servers {
			if h.Up() && !h.Node.IsPaused() {
				h.Close()
			}
		}
	})
}
