package simulated

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/sim/simtest"
)

// A plan is a Traffic with everything filled in, as uetperf would.
type plan struct {
	test     string
	op       string
	sizes    []int
	largest  int
	iters    int64
	time     time.Duration
	interval time.Duration // between pings, and between the requests of a load
	window   int
	parallel int
	mode     string
	level    transport.Level
	complete string
	reverse  bool
	bidir    bool
	check    bool
	churn    bool
	paths    int
	mtu      int // payload bytes
}

// Bounds of a plan: a scenario is no place for more.
const (
	maxWindow   = 4096
	maxParallel = 64
	maxPaths    = 64
	// leastSize lets a message bear its number, by which the checkers know it.
	leastSize = 8
	maxSize   = 64 << 20
	// maxBuffers bounds the bytes of the messages and receives of a session that
	// are outstanding.
	maxBuffers = 1 << 30
	pingEvery  = time.Second
)

// exchanges reports whether the test is of requests and replies.
func (p *plan) exchanges() bool {
	return p.test == "ping" || p.test == "lat" || p.test == "rr" || p.test == "load"
}

// planOf fills in the defaults of uetperf and refuses what is not simulated.
func planOf(t *scenario.Traffic, mtu int) (*plan, error) {
	p := &plan{
		test: t.Test, op: t.Op, iters: t.Iters, time: time.Duration(t.Time), window: t.Window, parallel: max(t.Parallel, 1), mode: t.Mode,
		complete: t.Complete, reverse: t.Reverse, bidir: t.Bidir, check: !t.NoCheck, churn: t.Churn, paths: max(t.Paths, 1), mtu: t.MTU,
	}
	size := t.Size
	def := func(s string, iters int64, d time.Duration, window int) {
		if size == "" {
			size = s
		}
		if p.iters == 0 && p.time == 0 {
			p.iters, p.time = iters, d
		}
		if p.window == 0 {
			p.window = window
		}
	}
	switch p.test {
	case "ping":
		p.interval = pingEvery
		def("64", 5, 0, 1)
	case "lat":
		def("8:64K:*2", 10000, 0, 1)
	case "rr":
		def("64", 0, 10*time.Second, 1)
	case "load":
		def("4K", 0, 10*time.Second, 1)
		rate, err := parseRate(t.Rate)
		if err != nil {
			return nil, err
		}
		p.interval = time.Duration(float64(time.Second) / rate)
	case "bw":
		def("1M", 0, 10*time.Second, 64)
	case "rate":
		def("8", 0, 5*time.Second, 512)
	case "soak":
		def("8,1K,5000,16K,64K", 0, time.Minute, 16)
	default:
		return nil, fmt.Errorf("test %q is not ping, lat, bw, rate, load, rr or soak", p.test)
	}
	if p.op == "" {
		p.op = "tsend"
	}
	if p.op != "send" && p.op != "tsend" && p.op != "inject" {
		return nil, fmt.Errorf("op %q is not send, tsend or inject", p.op)
	}
	if p.mode == "" {
		p.mode = "rud"
	}
	if p.mode != "rud" && p.mode != "rod" {
		return nil, fmt.Errorf("mode %q is not rud or rod", p.mode)
	}
	switch p.complete {
	case "":
		p.complete, p.level = "transmit", transport.LevelTransmit
	case "inject":
		p.level = transport.LevelInject
	case "transmit":
		p.level = transport.LevelTransmit
	case "delivery":
		p.level = transport.LevelDelivery
	default:
		return nil, fmt.Errorf("complete %q is not inject, transmit or delivery", p.complete)
	}
	var err error
	if p.sizes, err = parseSizes(size); err != nil {
		return nil, err
	}
	for _, n := range p.sizes {
		p.largest = max(p.largest, n)
	}
	if p.mtu == 0 {
		p.mtu = payloadMTU(mtu)
	}
	switch {
	case t.CC != "" && t.CC != "nscc":
		return nil, fmt.Errorf("cc %q is not nscc", t.CC)
	case p.time < 0 || p.iters < 0:
		return nil, errors.New("time or iters are negative")
	case p.window < 1 || p.window > maxWindow:
		return nil, fmt.Errorf("window %d is not 1 to %d", p.window, maxWindow)
	case p.parallel > maxParallel:
		return nil, fmt.Errorf("%d parallel streams are more than %d", p.parallel, maxParallel)
	case p.paths > maxPaths:
		return nil, fmt.Errorf("%d paths are more than %d", p.paths, maxPaths)
	case p.mtu != 1024 && p.mtu != 2048 && p.mtu != 4096 && p.mtu != 8192:
		return nil, fmt.Errorf("mtu %d is not 1024, 2048, 4096 or 8192", p.mtu)
	case p.reverse && p.bidir, p.exchanges() && (p.reverse || p.bidir):
		return nil, fmt.Errorf("%s with reverse %v and bidir %v", p.test, p.reverse, p.bidir)
	case p.parallel > 1 && (p.test == "ping" || p.test == "lat"):
		return nil, fmt.Errorf("%s has one stream, not %d", p.test, p.parallel)
	case p.churn && p.test != "rr":
		return nil, errors.New("churn is of rr")
	case 3*p.window*p.parallel*p.largest > maxBuffers:
		return nil, fmt.Errorf("%d streams with a window of %d messages of %d bytes need more than %d bytes of buffers", p.parallel, p.window, p.largest, maxBuffers)
	}
	return p, nil
}

// payloadMTU is the payload per packet that fits an interface, as uet chooses it.
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

func parseSize(s string) (int, error) {
	num, mult := strings.TrimSuffix(strings.TrimSuffix(s, "B"), "i"), 1
	for i, suffix := range []string{"K", "M"} {
		if n, ok := strings.CutSuffix(strings.ToUpper(num), suffix); ok {
			num, mult = n, 1<<(10*(i+1))
		}
	}
	n, err := strconv.Atoi(num)
	if err != nil || n*mult < leastSize || n*mult > maxSize {
		return 0, fmt.Errorf("size %q is not a number of bytes from %d to 64M, such as 8, 4K, 1M", s, leastSize)
	}
	return n * mult, nil
}

// parseSizes reads a list of sizes and of sweeps a:b:*f and a:b:+n.
func parseSizes(s string) ([]int, error) {
	var v []int
	for _, part := range strings.Split(s, ",") {
		f := strings.Split(strings.TrimSpace(part), ":")
		from, err := parseSize(f[0])
		if err != nil {
			return nil, err
		}
		if len(f) == 1 {
			v = append(v, from)
			continue
		}
		to, err := parseSize(f[1])
		if err != nil {
			return nil, err
		}
		step := "*2"
		if len(f) > 2 {
			step = f[2]
		}
		by, err := strconv.Atoi(strings.TrimLeft(step, "*+"))
		if err != nil || len(f) > 3 || from > to || by < 1 || step[0] != '*' && step[0] != '+' || step[0] == '*' && by < 2 {
			return nil, fmt.Errorf("sizes %q are not FROM:TO:*FACTOR or FROM:TO:+STEP", part)
		}
		for n := from; n <= to && len(v) < 100; {
			v = append(v, n)
			if step[0] == '*' {
				n *= by
			} else {
				n += by
			}
		}
	}
	return v, nil
}

// parseRate reads requests per second: 500, 20k/s.
func parseRate(s string) (float64, error) {
	num, mult := strings.TrimSuffix(s, "/s"), 1.0
	if n, ok := strings.CutSuffix(strings.ToLower(num), "k"); ok {
		num, mult = n, 1000
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || !(f*mult > 0 && f*mult <= 1e6) {
		return 0, fmt.Errorf("rate %q is not a number of requests per second, such as 20k/s", s)
	}
	return f * mult, nil
}

// A session is one client at work: a Traffic of one client host, and the two ends
// that it has for each stream, as uetperf and its server have.
type session struct {
	l              *lab
	t              *scenario.Traffic
	p              *plan
	client, server int // indices of hosts
	first          int // of its endpoints in the World
	streams        []*stream
	rng            *rand.Rand

	size  int // of the run that goes on
	runs  []record.Run
	run   runState
	begun bool
	done  bool
	dead  bool // killed: nothing of it is left
	err   error
	gen   int           // of the timers of a run
	then  *session      // begins when this one has ended
	ended time.Duration // on the timeline
}

// runState is what one run counts.
type runState struct {
	begin  time.Duration
	last   time.Duration // end of the latest message
	hist   *hdr.Histogram
	first  time.Duration // first round trip
	base   record.Counters
	peer   record.Counters
	check  record.Check
	closed bool // nothing new is posted
	flows  []*flow
	took   time.Duration // measured
	msgs   int64
	bytes  int64
	got    int64
}

// A stream is a pair of endpoints.
type stream struct {
	s    *session
	c, v *end // client's and server's
}

// An end is one of the endpoints: what could not be posted waits for room.
type end struct {
	h     *simtest.Host
	queue []simtest.OpSpec
	armed bool
	recvs int // posted and not ended
	seq   int64
}

// A flow is one direction of a stream of messages, or the requests of a stream.
type flow struct {
	st          *stream
	from, to    *end
	name        string
	total       int64 // messages to post, -1: until the time is over
	posted      int64
	done, got   int64
	outstanding int
	bytes       int64 // of what has ended
	measured    record.Stream
	next        time.Duration // load: time of the next
}

// A message is what is on the way.
type message struct {
	f     *flow
	size  int
	at    time.Duration // when it was meant to leave
	seq   int64
	rod   bool
	of    *message // a reply's request
	acked bool     // a request's send has completed
	back  bool     // its reply is here
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
		v = append(v, &session{l: l, t: t, p: p, client: i, server: to[0], rng: rand.New(rand.NewPCG(l.seed, 0x7365<<32|n))})
	}
	return v, nil
}

// What a host is like: a process wakes within some microseconds, a timer is late
// by a little more, and the socket buffer is what systems give.
const (
	hostWake   = 20 * time.Microsecond
	hostLate   = 100 * time.Microsecond
	hostBuffer = 4 << 20
)

// addHosts adds the endpoints to the World's specification.
func (s *session) addHosts(spec *simtest.Spec) {
	s.first = len(spec.Hosts)
	for range s.p.parallel {
		for _, i := range []int{s.client, s.server} {
			hs := simtest.HostSpec{Paths: s.p.paths}
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

// takeHosts finds them in the World.
func (s *session) takeHosts() {
	for i := range s.p.parallel {
		c, v := s.l.w.Hosts[s.first+2*i], s.l.w.Hosts[s.first+2*i+1]
		s.streams = append(s.streams, &stream{s: s, c: &end{h: c}, v: &end{h: v}})
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
	s.begun = true
	if l.zero != 0 {
		l.mark("%s: begins", l.hosts[s.client].name)
	}
	for _, st := range s.streams {
		st.c.h.OnEvent(func(o *simtest.Op) { s.event(st, st.c, o) })
		st.v.h.OnEvent(func(o *simtest.Op) { s.event(st, st.v, o) })
	}
	s.next()
}

// next begins the run of the next size.
func (s *session) next() {
	now := s.l.w.Now()
	s.gen++
	gen := s.gen
	s.run = runState{begin: now, last: now, base: s.counters(false), peer: s.counters(true)}
	r := &s.run
	if s.p.exchanges() {
		r.hist = hdr.New(1, int64(2*time.Minute), 3)
	}
	s.size = s.p.sizes[len(s.runs)]
	if s.p.test == "soak" {
		s.size = s.p.largest
	}
	total := int64(-1)
	if s.p.iters > 0 {
		total = s.p.iters
	}
	for _, st := range s.streams {
		add := func(from, to *end, name string) {
			r.flows = append(r.flows, &flow{st: st, from: from, to: to, name: name, total: total, next: now})
		}
		if s.p.exchanges() || !s.p.reverse {
			add(st.c, st.v, "forward")
		}
		if s.p.reverse || s.p.bidir {
			add(st.v, st.c, "reverse")
		}
	}
	if s.p.time > 0 {
		s.l.w.Net.After(s.p.time, func() {
			if s.gen == gen && !s.done {
				s.close()
			}
		})
	}
	for _, f := range r.flows {
		f.from.seq, f.to.seq = 0, 0
		n := 2 * s.p.window
		if s.p.exchanges() {
			n = max(n, 64)
			s.receive(f.st, f.from, n)
		}
		s.receive(f.st, f.to, n)
	}
	for _, f := range r.flows {
		if s.p.test == "load" {
			s.tick(f, gen)
		} else {
			s.fill(f)
		}
	}
}

// close ends the posting of a run that is bound by time: what is measured is
// measured now.
func (s *session) close() {
	r := &s.run
	if r.closed {
		return
	}
	r.closed = true
	s.measure()
	for _, f := range r.flows {
		f.total = f.posted
	}
	s.maybe()
}

// measure notes what has been done so far.
func (s *session) measure() {
	r := &s.run
	end := r.last
	if s.p.time > 0 && r.closed {
		end = r.begin + s.p.time
	}
	r.took = end - r.begin
	r.msgs, r.bytes = 0, 0
	for _, f := range r.flows {
		n, b := f.done, f.bytes
		r.msgs += n
		r.bytes += b
		f.measured = record.Stream{Direction: f.name, Msgs: n, Bytes: b, DurationNS: int64(r.took)}
		if r.took > 0 {
			f.measured.GoodputBPS = float64(8*b) / r.took.Seconds()
		}
	}
}

// receive makes sure that n receives are posted at an end.
func (s *session) receive(st *stream, e *end, n int) {
	for e.recvs < n {
		e.recvs++
		s.post(e, simtest.OpSpec{Kind: s.recvKind(), Peer: simtest.Any, Len: s.p.largest, AnyClass: true, Note: st})
		if s.p.test == "soak" { // of both kinds
			s.post(e, simtest.OpSpec{Kind: transport.OpRecv, Peer: simtest.Any, Len: s.p.largest, Note: st})
		}
	}
}

func (s *session) recvKind() transport.OpKind {
	if s.p.op == "send" {
		return transport.OpRecv
	}
	return transport.OpTRecv
}

// post posts an operation, when there is room.
func (s *session) post(e *end, spec simtest.OpSpec) {
	if !e.h.Up() || s.done {
		return
	}
	if len(e.queue) == 0 && e.h.Post(spec) != nil {
		return
	}
	e.queue = append(e.queue, spec)
	s.again(e)
}

// again tries to post what waits, soon.
func (s *session) again(e *end) {
	if e.armed {
		return
	}
	e.armed = true
	life := e.h.Life()
	s.l.w.Net.After(100*time.Microsecond, func() {
		e.armed = false
		if !e.h.Up() || e.h.Life() != life || s.done {
			e.queue = nil
			return
		}
		for len(e.queue) > 0 && e.h.Post(e.queue[0]) != nil {
			e.queue = e.queue[1:]
		}
		if len(e.queue) > 0 {
			s.again(e)
		}
	})
}

// fill keeps a flow's window full.
func (s *session) fill(f *flow) {
	for !s.done && !s.run.closed && f.outstanding < s.p.window && f.posted != f.total {
		s.send(f, s.l.w.Now())
	}
}

// send posts the next message of a flow.
func (s *session) send(f *flow, at time.Duration) {
	m := &message{f: f, size: s.size, at: at, seq: f.posted, rod: s.p.mode == "rod"}
	f.posted++
	f.outstanding++
	op := simtest.OpSpec{Kind: transport.OpTSend, Peer: f.to.h.Index, Len: m.size, Level: s.p.level, Ordered: m.rod, Note: m}
	switch s.p.op {
	case "send":
		op.Kind = transport.OpSend
	case "inject":
		op.Inject = m.size <= injectMax
	}
	if s.p.test == "soak" {
		s.mix(&op, m)
	}
	s.post(f.from, op)
}

const injectMax = 4096

// mix makes of a message of a soak one of all kinds.
func (s *session) mix(op *simtest.OpSpec, m *message) {
	m.size = s.p.sizes[s.rng.IntN(len(s.p.sizes))]
	op.Len = m.size
	if s.rng.IntN(2) == 0 {
		op.Kind = transport.OpSend
	}
	m.rod = s.rng.IntN(4) == 0
	op.Ordered = m.rod
	op.Inject = m.size <= injectMax && s.rng.IntN(4) == 0
	op.HasData = s.rng.IntN(4) == 0
	op.Level = []transport.Level{transport.LevelInject, transport.LevelTransmit, transport.LevelDelivery}[s.rng.IntN(3)]
}

// tick posts the requests of a load at their times, whatever became of those
// before.
func (s *session) tick(f *flow, gen int) {
	now := s.l.w.Now()
	for f.next <= now && !s.run.closed && f.posted != f.total {
		s.send(f, f.next)
		f.next += s.p.interval * time.Duration(s.p.parallel)
	}
	if s.run.closed || f.posted == f.total {
		return
	}
	s.l.w.Net.At(f.next, func() {
		if s.gen == gen && !s.done {
			s.tick(f, gen)
		}
	})
}

// event takes the end of an operation at one of the ends.
func (s *session) event(st *stream, e *end, o *simtest.Op) {
	if s.done {
		return
	}
	switch m := o.Note.(type) {
	case *message:
		if !o.OK() {
			s.fail(s.opError("send", e, o))
			return
		}
		s.sent(m)
	case *stream:
		e.recvs--
		if !o.OK() {
			s.fail(s.opError("receive", e, o))
			return
		}
		got, _ := o.Got().Note.(*message)
		if s.p.test == "soak" { // the kind that was used is posted again
			e.recvs++
			s.post(e, simtest.OpSpec{Kind: o.Kind, Peer: simtest.Any, Len: s.p.largest, AnyClass: true, Note: st})
		}
		s.received(e, got)
		if s.p.test != "soak" && !s.done {
			s.receive(st, e, e.recvs+1)
		}
	}
}

// opError says how an operation failed.
func (s *session) opError(what string, e *end, o *simtest.Op) error {
	text := fmt.Sprintf("%s failed: %v", what, o.Cause())
	if o.Event.Nack != 0 {
		text += fmt.Sprintf(" (NACK %v)", o.Event.Nack)
	}
	if o.Event.RC != 0 {
		text += fmt.Sprintf(" (return code %v)", o.Event.RC)
	}
	if o.Event.Unknown {
		text += ", outcome unknown"
	}
	if e == s.streamOf(e).v {
		text = "the server ended the test: " + text
	}
	return errors.New(text)
}

func (s *session) streamOf(e *end) *stream {
	for _, st := range s.streams {
		if st.c == e || st.v == e {
			return st
		}
	}
	return nil
}

// sent is called when a send has completed.
func (s *session) sent(m *message) {
	f := m.f
	if s.p.exchanges() {
		if m.of == nil {
			m.acked = true
			s.exchanged(m)
		}
		return
	}
	f.done++
	f.bytes += int64(m.size)
	f.outstanding--
	s.run.last = s.l.w.Now()
	s.fill(f)
	s.maybe()
}

// received is called when a message has arrived at an end: its bytes were checked.
func (s *session) received(e *end, m *message) {
	if m == nil {
		return
	}
	f := m.f
	s.run.got++
	wrong := false
	if m.rod && s.p.test != "soak" { // ordered messages come in the order they were sent in
		wrong = m.seq != e.seq
		e.seq++
	}
	if wrong {
		s.run.check.Wrong++
		s.run.check.Dup++
	} else {
		s.run.check.OK++
	}
	switch {
	case !s.p.exchanges():
		f.got++
		s.maybe()
	case e == f.to: // a request
		f.got++
		s.post(e, simtest.OpSpec{Kind: s.sendKind(), Peer: f.from.h.Index, Len: m.size, Level: s.p.level, Ordered: m.rod,
			Note: &message{f: f, size: m.size, at: m.at, seq: m.seq, rod: m.rod, of: m}})
	default:
		m.of.back = true
		s.exchanged(m.of)
	}
}

func (s *session) sendKind() transport.OpKind {
	if s.p.op == "send" {
		return transport.OpSend
	}
	return transport.OpTSend
}

// exchanged is called when a request's send has completed, and when its reply has
// come: with both, the round trip is over.
func (s *session) exchanged(m *message) {
	if !m.acked || !m.back {
		return
	}
	f, r, now := m.f, &s.run, s.l.w.Now()
	rtt := now - m.at
	if r.first == 0 {
		r.first = rtt
	}
	v := rtt
	if s.p.test == "lat" {
		v /= 2
	}
	_ = r.hist.RecordValue(int64(min(v, 2*time.Minute)))
	f.done++
	f.bytes += int64(m.size)
	f.outstanding--
	r.last = now
	switch {
	case s.p.test == "ping" && f.posted != f.total:
		gen := s.gen
		s.l.w.Net.After(s.p.interval, func() {
			if s.gen == gen && !s.done {
				s.fill(f)
				s.maybe()
			}
		})
	case s.p.test == "load":
	case s.p.churn:
		s.endPDCs(f)
	default:
		s.fill(f)
	}
	s.maybe()
}

// endPDCs ends the packet delivery contexts of a stream in both directions, and
// goes on when they are gone.
func (s *session) endPDCs(f *flow) {
	for _, e := range []*end{f.from, f.to} {
		e.h.Quiesce()
	}
	gen := s.gen
	var wait func()
	wait = func() {
		switch {
		case s.gen != gen || s.done || !f.from.h.Up() || !f.to.h.Up():
		case f.from.h.FEP.PDCs() > 0:
			s.l.w.Net.After(50*time.Microsecond, wait)
		default:
			s.fill(f)
			s.maybe()
		}
	}
	s.l.w.Net.After(50*time.Microsecond, wait)
}

// maybe ends the run if all of it is done.
func (s *session) maybe() {
	r := &s.run
	for _, f := range r.flows {
		if f.total < 0 || f.posted != f.total || f.done != f.posted || f.got != f.posted {
			return
		}
	}
	if s.done {
		return
	}
	if !r.closed {
		r.closed = true
		s.measure()
	}
	s.endRun("")
	if s.p.test != "soak" && len(s.runs) < len(s.p.sizes) {
		s.gen++
		gen := s.gen
		s.l.w.Net.After(0, func() { // not from within an event
			if s.gen == gen && !s.done {
				s.next()
			}
		})
		r.flows = nil
		return
	}
	s.l.mark("%s: done", s.l.hosts[s.client].name)
	s.end()
}

// end ends the session and lets the next of the host begin.
func (s *session) end() {
	s.done, s.ended = true, s.l.since()
	s.gen++
	if s.then != nil {
		s.l.w.Net.After(0, s.then.start)
	}
}

// endRun writes the run down.
func (s *session) endRun(why string) {
	r := &s.run
	if !r.closed {
		r.closed = true
		s.measure()
		if why != "" {
			r.took = s.l.w.Now() - r.begin // up to the failure
		}
	}
	run := record.Run{
		Op: s.p.op, Size: int64(s.size), Iters: s.p.iters, Msgs: r.msgs, Bytes: r.bytes, DurationNS: int64(r.took), FirstNS: int64(r.first),
		MeasuredAt: "sender", Error: why,
	}
	if run.Iters == 0 && len(r.flows) > 0 {
		run.Iters = r.msgs / int64(len(r.flows))
	}
	var lost int64
	for _, f := range r.flows {
		lost += f.posted - f.got
		if s.p.exchanges() {
			lost += f.got - f.done // replies
		} else {
			run.Streams = append(run.Streams, f.measured)
		}
	}
	run.Lost = &lost
	if len(run.Streams) < 2 {
		run.Streams = nil
	}
	if r.hist != nil && r.hist.TotalCount() > 0 {
		run.Latency = latency(r.hist)
		run.Latency.RTT = s.p.test != "lat"
	}
	if !(s.p.test == "ping" || s.p.test == "lat") && r.took > 0 {
		bps, rate := float64(8*r.bytes)/r.took.Seconds(), float64(r.msgs)/r.took.Seconds()
		run.GoodputBPS, run.MsgsPerS = &bps, &rate
	}
	run.Transport = minus(s.counters(false), r.base)
	peer := minus(s.counters(true), r.peer)
	run.PeerTransport = &peer
	if s.p.check {
		c := r.check
		run.DataCheck = &c
	}
	s.runs = append(s.runs, run)
}

// fail ends the session in error: what was measured stays.
func (s *session) fail(err error) {
	if s.done {
		return
	}
	if s.begun {
		s.endRun(err.Error())
	}
	s.err = err
	s.end()
	s.l.mark("%s: %v", s.l.hosts[s.client].name, err)
	s.l.w.Net.After(0, func() { // the process ends, and the server's part of the test
		for _, st := range s.streams {
			for _, e := range []*end{st.c, st.v} {
				if e.h.Up() && !e.h.Node.IsPaused() {
					e.h.Close()
				}
			}
		}
	})
}

// killed ends the session with its process: nothing of it is left.
func (s *session) killed() {
	if s.done {
		return
	}
	s.dead = true
	s.end()
	// The server notices that the client is gone and ends its part.
	s.l.w.Net.After(time.Second, func() {
		for _, st := range s.streams {
			if h := st.v.h; h.Up() && !h.Node.IsPaused() {
				h.Close()
			}
		}
	})
}
