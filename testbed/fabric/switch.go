package fabric

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/internal/agenda"
	"github.com/uetkit/uetkit/internal/badnet"
)

// A Switch is the state of a switch. It belongs to one goroutine.
type Switch struct {
	classes Classes
	log     func(*Decision)
	seed    uint64
	ecmp    uint64

	ports  int
	lines  []*line // from and to of each port, then the spines
	byName map[string][]*line
	spines int
	routes routes

	now     time.Duration // of what is being done
	agenda  agenda.Agenda[event]
	pool    pool
	out     fifo
	lent    *packet // what Transmit gave last
	id      uint64
	dec     Decision
	pending []*timed // events of the Config, until the start
	timed   int      // events that will happen, or that will be undone
	started bool
	zero    time.Duration

	received, sentN uint64
	inside          int64 // packets on their way, copies too
}

// New makes a switch. Its error names the first contradiction in cfg.
func New(cfg Config) (*Switch, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("fabric: %w", err)
	}
	s := &Switch{
		classes: cfg.Classes.orDefault(), log: cfg.Log, seed: cfg.Seed, ecmp: mix(cfg.Seed ^ hashName("ecmp")),
		ports: len(cfg.Ports), spines: len(cfg.Spines), byName: map[string][]*line{},
	}
	for i := range cfg.Ports {
		p := &cfg.Ports[i]
		from, to := s.addLine(p.Name+".from", &p.From), s.addLine(p.Name+".to", &p.To)
		to.last = true
		s.byName[p.Name] = []*line{from, to}
	}
	for i := range cfg.Spines {
		s.addLine(spineName(i), &cfg.Spines[i])
	}
	s.byName["*"] = s.lines
	s.routes = newRoutes(cfg.Ports)
	for i := range cfg.Events {
		t, err := s.newTimed(&cfg.Events[i])
		if err != nil {
			return nil, fmt.Errorf("fabric: %s: %w", eventPlace(i), err)
		}
		s.pending = append(s.pending, t)
	}
	return s, nil
}

func (s *Switch) addLine(name string, cfg *Line) *line {
	l := &line{name: name, base: cfg.clone(), named: map[string]int{}}
	jitter, ramp := s.stream(name+"\x00jitter"), s.stream(name+"\x00ecn")
	l.bad.Rand = func(d badnet.Draw) *rand.Rand {
		if d == badnet.DrawCE {
			return ramp
		}
		return jitter
	}
	l.refresh()
	for i := range cfg.Rules {
		s.addRule(l, &cfg.Rules[i])
	}
	s.lines = append(s.lines, l)
	s.byName[name] = []*line{l}
	return l
}

// stream returns the stream of random numbers for one name, independent of all others.
func (s *Switch) stream(name string) *rand.Rand {
	h := hashName(name)
	return rand.New(rand.NewPCG(mix(s.seed^h), mix(h+0x9e3779b97f4a7c15)^s.seed))
}

// Start makes now the zero of the events' times, unless a UET packet has come already.
func (s *Switch) Start(now time.Duration) {
	s.Advance(now)
	s.start()
}

func (s *Switch) start() {
	if s.started {
		return
	}
	s.started, s.zero = true, s.now
	for _, t := range s.pending {
		t.zero = s.now
		s.due(s.now+time.Duration(t.At), event{kind: evTimed, do: t})
	}
	s.pending = nil
	s.advance() // those of time 0
}

// Receive handles an IP packet that has arrived at a port; it borrows ip. Padding behind
// the IP packet is ignored. A time before that of an earlier call counts as that one.
func (s *Switch) Receive(now time.Duration, port int, ip []byte) {
	if port < 0 || port >= s.ports {
		panic(fmt.Sprintf("BUG: fabric: port %d of %d", port, s.ports))
	}
	s.Advance(now)
	s.received++
	s.id++
	l := s.lines[2*port]
	if len(ip) > maxIP {
		ip = ip[:maxIP]
	}
	p := s.pool.get(len(ip))
	if p == nil {
		var full packet
		full.n, full.id = full.parse(ip, &s.classes), s.id
		s.note(l, nil, &full, LostFull)
		return
	}
	s.inside++
	p.id, p.in, p.stage, p.depth, p.next = s.id, int32(port), 0, 0, nil
	p.n = p.parse(ip, &s.classes)
	p.out = -1
	if p.n > 0 {
		p.out = s.routes.find(p.dst.Addr())
	}
	if p.out < 0 {
		s.drop(l, nil, p, NoRoute)
		return
	}
	copy(p.buf, ip[:p.n])
	p.spine = s.choose(p)
	if p.kind != kindOther {
		s.start()
	}
	s.enter(l, p)
}

// Advance does everything that is due at or before now.
func (s *Switch) Advance(now time.Duration) {
	s.recycle()
	for s.agenda.Len() > 0 && s.agenda.Next() <= now {
		s.step()
	}
	s.now = max(s.now, now)
}

func (s *Switch) advance() {
	for s.agenda.Len() > 0 && s.agenda.Next() <= s.now {
		s.step()
	}
}

// step handles the earliest event on the agenda, at its time.
func (s *Switch) step() {
	at, e := s.agenda.Pop()
	s.now = max(s.now, at)
	switch e.kind {
	case evTx:
		if e.gen == e.line.gen {
			s.txDone(e.line)
		}
	case evHop:
		s.hop(e.pkt)
	case evPipe:
		s.piped(e.line)
	case evRule:
		s.applyRules(e.line, e.pkt, e.pkt.ord)
	case evHold:
		if p, ok := e.rule.held.Take(e.ticket); ok {
			s.applyRules(e.rule.line, p, e.rule.ord+1)
		}
	case evReplay:
		s.replay(e.rule)
	case evTimed:
		s.happen(e.do)
	case evUndo:
		s.undo(e.undo)
	}
}

// hop passes p from the end of one line to the beginning of the next.
func (s *Switch) hop(p *packet) {
	p.stage++
	switch {
	case p.stage == 1 && p.spine >= 0:
		s.enter(s.lines[2*s.ports+int(p.spine)], p)
		return
	case p.stage <= 2:
		p.stage = 2
		s.enter(s.lines[2*p.out+1], p)
		return
	}
	p.at = s.now
	s.inside--
	s.sentN++
	s.note(s.lines[2*p.out+1], nil, p, Passed)
	s.out.push(p)
}

// Transmit returns the next packet that is due at or before now and the port it leaves by,
// in the order of their times. ip is valid until the next call of any method. at is the
// time at which it was due.
func (s *Switch) Transmit(now time.Duration) (port int, ip []byte, at time.Duration, ok bool) {
	s.recycle()
	for s.out.n == 0 && s.agenda.Len() > 0 && s.agenda.Next() <= now {
		s.step()
	}
	if s.out.n == 0 {
		s.now = max(s.now, now)
		return 0, nil, 0, false
	}
	p := s.out.pop()
	s.lent = p
	return int(p.out), p.ip(), p.at, true
}

func (s *Switch) recycle() {
	if s.lent != nil {
		s.pool.put(s.lent)
		s.lent = nil
	}
}

// NextTimeout returns when something is due next; ok is false if nothing is.
func (s *Switch) NextTimeout() (at time.Duration, ok bool) {
	s.recycle()
	if s.out.n > 0 {
		return s.out.ring[s.out.head].at, true
	}
	if s.agenda.Len() > 0 {
		return s.agenda.Next(), true
	}
	return 0, false
}

// clone returns a copy of p at the same place, nil if there is no room.
func (s *Switch) clone(p *packet) *packet {
	c := s.pool.get(p.n)
	if c == nil {
		return nil
	}
	s.inside++
	copy(c.buf, p.ip())
	buf, class := c.buf, c.class
	*c = *p
	c.buf, c.class, c.next = buf, class, nil
	return c
}

// drop drops p.
func (s *Switch) drop(l *line, r *rule, p *packet, why Why) {
	s.note(l, r, p, why)
	s.inside--
	s.pool.put(p)
}

// note counts a decision and logs it.
func (s *Switch) note(l *line, r *rule, p *packet, why Why) {
	l.whys[why]++
	if s.log == nil {
		return
	}
	s.dec = Decision{
		At: s.now, ID: p.id, Why: why, Line: l.name, Src: p.src, Dst: p.dst, Len: p.n,
		Kind: kindNames[p.kind], PSN: p.psn, PDC: p.pdc,
	}
	if r != nil {
		s.dec.Rule = r.Name
	}
	s.log(&s.dec)
}
