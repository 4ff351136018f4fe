package cms

import "time"

// This file is the destination of RCCC: it shares among the sources what this side can
// receive. credit.go is the source.

// Constants of grants.
const (
	// grantMTUs is how many packets one grant is for, at most (the default of the
	// specification according to the simulator of its authors).
	grantMTUs = 4
	// rateMille is the share of the line that is granted, in thousandths: the rest is for what
	// nobody asks about, ACKs above all. The simulator of the authors has the same.
	rateMille = 990
	// slack is how late a turn may come for its grants to be made up for. Arbitrary.
	slack = 200 * time.Microsecond
	// A grant lives for lifeRTTs round trips of an idle path, but for leastLife, and for lifeOpen
	// times as long as what is open takes to arrive at the rate of the last life, up to mostLife.
	// What does not arrive until then is lost or was not sent. firstLife is the first one where no
	// rate is known. Arbitrary.
	lifeRTTs  = 16
	lifeOpen  = 4
	leastLife = time.Millisecond
	firstLife = 10 * time.Millisecond
	mostLife  = 100 * time.Millisecond
	// One in costUp of a packet's cost is taken over if it is above the average, one in costDown below. Arbitrary.
	costUp, costDown = 8, 64
	// longest is no less than the longest packet: a smaller grant could not pay for one of a source
	// with another payload MTU.
	longest = 33 * quantum
	// farOff is how far a target may be beyond what was granted, in Most: more than any source
	// asks for.
	farOff = 16
	// cccsPerSource and maxSources bound what is kept. A source has one CCC for all RUD PDCs
	// and one per ROD PDC. The 4,096 are arbitrary.
	cccsPerSource = 4
	maxSources    = 4096
)

// GrantConfig describes the destination side of RCCC.
type GrantConfig struct {
	MTU     int           // nominal bytes of a full packet
	Most    int           // bytes that one source may have granted and not sent
	Rate    int64         // of the line, in bytes a second; 0: not known, Room alone limits
	Room    int           // bytes that the receive path holds; 0: no limit
	Cost    func(int) int // what a packet of so many nominal bytes takes of Room; nil: as many
	BaseRTT time.Duration // round trip of an idle path
}

// A grantee is a CCC of a source.
type grantee struct {
	src     *grantSource
	target  uint32 // the highest credit target, modulo creditMod
	granted uint32
	at      uint32 // the owner's number of the PDC by which it asked last
	id      uint8
	used    bool
	listed  bool // it may get a grant: counted in grantSource.listed
	idle    bool // a life of grants passed unused: one packet a life is enough
	doubt   bool // the source may be forged: the same

	open    int64 // bytes granted, and neither arrived nor expired
	young   int64 // of all that was granted: in this life
	lost    int64 // bytes that were said to be lost in this life, and may still come
	refused int64 // bytes that arrived and were refused, and will come again
	arrived bool  // something arrived in this life
	heard   time.Duration
}

// scant reports whether a CCC gets a packet per life of grants only.
func (e *grantee) scant() bool { return e.idle || e.doubt }

// A grantSource is a source with its CCCs. It is in the ring if one of them may get a grant, and they take
// the turns of the source in turn: a source gets no more for having many.
type grantSource struct {
	peer    uint32
	i       int // index in Grants.sources
	ccc     [cccsPerSource]grantee
	turn    int   // index of the CCC that got the last grant
	listed  int   // CCCs that may get one
	open    int64 // sum of grantee.open
	counted bool  // in Grants.active

	prev, next *grantSource // ring of those with a demand
}

// Grants shares out credit. All of it together never exceeds Room, and its rate is the
// line's. Sources with a demand get grants of equal size by turns.
type Grants struct {
	cfg     GrantConfig
	room    int64
	largest int64         // the most bytes of one grant, in whole quanta
	open    int64         // sum of grantSource.open
	active  int64         // sources that are in the ring or have something open
	got     int64         // bytes that arrived in this life
	next    time.Duration // when the next grant may be made
	born    time.Duration // when this life of grants began
	lifeEnd time.Duration // when it ends, 0 if nothing is open
	life    time.Duration
	cost    float64       // of the packets that came lately: what they take of Room, by byte
	costed  float64       // how many packets are in cost, up to costDown
	least   time.Duration // of life
	ring    *grantSource  // whose turn it is
	byPeer  map[uint32]*grantSource
	sources []*grantSource
	free    []*grantSource

	Stats GrantStats
}

// GrantStats count grants.
type GrantStats struct {
	Grants  uint64
	Expired uint64 // granted bytes that were given up: most of them never arrive
	Full    uint64 // sources that found no room here
}

// NewGrants returns the destination side of a FEP.
func NewGrants(cfg GrantConfig) *Grants {
	g := &Grants{cfg: cfg, room: int64(cfg.Room), cost: 1, byPeer: make(map[uint32]*grantSource)}
	if g.cfg.BaseRTT <= 0 {
		g.cfg.BaseRTT = defaultBaseRTT
	}
	g.largest = max((int64(grantMTUs*cfg.MTU)+quantum-1)&^(quantum-1), longest)
	g.least = max(lifeRTTs*g.cfg.BaseRTT, leastLife)
	if g.life = g.least; cfg.Rate == 0 {
		g.life = max(g.least, firstLife)
	}
	return g
}

// ahead is how far a cumulative credit is beyond another, in bytes.
func ahead(a, b uint32) int64 { return int64(int32((a-b)<<8)>>8) * quantum }

// Ask takes the credit target of a source: of a request or, if alone, of a CREDIT_REQ. at is
// the owner's number of the PDC. answer says that the owner should tell the source at once what it
// has: it asks again, or for nothing. ok is false if there is no room for the source. A source that is not proven
// may be forged.
func (g *Grants) Ask(now time.Duration, peer uint32, id uint8, target, at uint32, proven, alone bool) (answer, ok bool) {
	e := g.find(peer, id)
	if e == nil {
		if target == 0 {
			return alone, true // it wants nothing
		}
		if e = g.add(peer, id); e == nil {
			g.Stats.Full++
			return false, false
		}
	}
	fresh := e.heard == 0
	e.at, e.heard, e.doubt = at, now, !proven
	switch d, most := ahead(target, e.granted), int64(g.cfg.Most); {
	case d > farOff*most || d < -most || fresh && d > most:
		// One of both began anew. How much the source used is not known, but no more than most is
		// wanted.
		e.granted, e.target = (target-uint32(min(most, int64(target)*quantum)/quantum))%creditMod, target
		g.unlist(e)
	case ahead(target, e.target) > 0:
		e.target = target
	default:
		answer = alone
	}
	g.list(now, e)
	return answer, true
}

// list lets a CCC take turns if it may get a grant.
func (g *Grants) list(now time.Duration, e *grantee) {
	if e.listed || !g.mayGet(e) || e.scant() && e.young > 0 {
		return
	}
	e.listed = true
	s := e.src
	if s.listed++; s.listed > 1 {
		return
	}
	g.count(s)
	if g.ring == nil {
		g.ring, s.prev, s.next = s, s, s
		g.next = max(g.next, now) // what nobody wanted cannot be made up for
		return
	}
	s.prev, s.next = g.ring.prev, g.ring // behind all others
	s.prev.next, s.next.prev = s, s
}

// mayGet reports whether a CCC wants something, and its source has not more open than its part of the room.
func (g *Grants) mayGet(e *grantee) bool {
	if ahead(e.target, e.granted) <= 0 || e.open >= int64(g.cfg.Most) {
		return false
	}
	return g.room == 0 || e.src.open < max(g.holds()/max(g.active, 1), g.largest)
}

// count keeps the number of active sources, when one has changed.
func (g *Grants) count(s *grantSource) {
	switch on := s.listed > 0 || s.open > 0; {
	case on && !s.counted:
		g.active++
	case !on && s.counted:
		g.active--
	}
	s.counted = s.listed > 0 || s.open > 0
}

// unlist lets a CCC take no more turns.
func (g *Grants) unlist(e *grantee) {
	if !e.listed {
		return
	}
	e.listed = false
	s := e.src
	if s.listed--; s.listed > 0 {
		return
	}
	if s.next == s {
		g.ring = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
		if g.ring == s {
			g.ring = s.next
		}
	}
	s.prev, s.next = nil, nil
	g.count(s)
}

// opens adds n bytes to what a CCC has open.
func (g *Grants) opens(e *grantee, n int64) {
	e.open += n
	e.src.open += n
	g.open += n
}

// Arrived tells that a packet of n nominal bytes of a CCC arrived.
func (g *Grants) Arrived(now time.Duration, peer uint32, id uint8, n int) {
	if g.cfg.Cost != nil && n > 0 {
		g.costs(float64(g.cfg.Cost(n)) / float64(n))
	}
	e := g.find(peer, id)
	if e == nil {
		return
	}
	e.arrived, e.idle, e.heard = true, false, now
	g.got += int64(n)
	used := min(e.open, int64(n))
	g.opens(e, -used)
	late := min(e.lost, int64(n)-used) // what was lost may have been unsolicited: what was granted then comes all the same
	e.lost -= late
	if extra := int64(n) - used - late; extra > 0 && g.cfg.Rate > 0 {
		// Nobody granted it, but the line was busy with it, and may have more of it in a queue.
		g.next = max(g.next, min(max(g.next, now)+g.time(extra), now+g.least))
	}
	g.freed(now, e.src)
}

// freed lists the CCCs of a source of which less is open.
func (g *Grants) freed(now time.Duration, s *grantSource) {
	g.count(s)
	for i := range s.ccc { // what one had open may have been the source's part of the room
		if o := &s.ccc[i]; o.used {
			g.list(now, o)
		}
	}
}

// Lost tells that a packet of n nominal bytes of a CCC will not arrive, because it was sent again. Else its credit would
// stay open for as long as others come.
func (g *Grants) Lost(now time.Duration, peer uint32, id uint8, n int) {
	e := g.find(peer, id)
	if e == nil {
		return
	}
	back := min(e.refused, int64(n)) // not lost: it was here
	e.refused -= back
	gone := min(e.open, int64(n)-back)
	g.opens(e, -gone)
	e.lost += gone
	g.Stats.Expired += uint64(gone)
	g.freed(now, e.src)
}

// Refused tells that a packet of n nominal bytes, of the CCC that the PDC at asked for last, arrived and was refused.
// It will come again, and its first credit was used.
func (g *Grants) Refused(peer, at uint32, n int) {
	s := g.byPeer[peer]
	if s == nil {
		return
	}
	for i := range s.ccc {
		if e := &s.ccc[i]; e.used && e.at == at {
			e.refused += int64(n)
			return
		}
	}
}

// Next returns the next grant that may be made now: who gets it, by which PDC, and the
// cumulative credit.
func (g *Grants) Next(now time.Duration) (peer, at uint32, id uint8, credit uint32, ok bool) {
	s := g.ring
	if s == nil || g.cfg.Rate > 0 && now < g.next || g.lacksRoom() {
		return 0, 0, 0, 0, false
	}
	e := s.whose()
	most := g.largest
	if e.scant() {
		most = longest
	}
	n := (min(ahead(e.target, e.granted), most) + quantum - 1) &^ (quantum - 1)
	e.granted = (e.granted + uint32(n/quantum)) % creditMod
	e.young += n
	g.opens(e, n)
	if g.lifeEnd == 0 {
		g.begin(now)
	}
	if g.cfg.Rate > 0 {
		g.next = max(g.next, now-slack) + g.time(n)
	}
	g.ring = s.next
	if e.scant() {
		g.unlist(e)
	}
	for i := range s.ccc {
		if o := &s.ccc[i]; o.listed && !g.mayGet(o) {
			g.unlist(o)
		}
	}
	g.Stats.Grants++
	return s.peer, e.at, e.id, e.granted, true
}

// whose is the CCC of a source in the ring whose turn it is.
func (s *grantSource) whose() *grantee {
	for {
		if s.turn = (s.turn + 1) % len(s.ccc); s.ccc[s.turn].listed {
			return &s.ccc[s.turn]
		}
	}
}

// time is how long n bytes take at the rate of grants.
func (g *Grants) time(n int64) time.Duration {
	return time.Duration(float64(n) * 1e9 * 1000 / rateMille / float64(g.cfg.Rate))
}

// costs takes the cost of a packet into the average, which rises faster than it falls, and begins with the first ones.
func (g *Grants) costs(c float64) {
	g.costed = min(g.costed+1, costDown)
	if c > g.cost || g.costed < costUp {
		g.cost += (c - g.cost) / min(g.costed, costUp)
	} else {
		g.cost += (c - g.cost) / costDown
	}
}

// holds is how many bytes the receive path holds, in packets like those that came lately.
func (g *Grants) holds() int64 {
	if g.cost <= 1 {
		return g.room
	}
	return int64(float64(g.room) / g.cost)
}

// lacksRoom reports whether the receive path holds no more than what is granted already. One
// grant is always possible: the room may be in use by messages that nobody takes before others come.
func (g *Grants) lacksRoom() bool {
	return g.room > 0 && g.open > 0 && g.open+g.largest > g.holds()
}

// NextTimeout is when Advance or Next has something to do, 0: never.
func (g *Grants) NextTimeout() time.Duration {
	at := g.lifeEnd
	if g.ring != nil && !g.lacksRoom() && (at == 0 || g.next < at) {
		at = max(g.next, 1)
	}
	return at
}

// Advance ends a life of grants: what was granted before it began has arrived, or never will. The owner
// has read its socket before (docs/faults.md rule 6): after a pause what was granted may be there.
func (g *Grants) Advance(now time.Duration) {
	if g.lifeEnd == 0 || now < g.lifeEnd {
		return
	}
	if g.got > 0 {
		took := time.Duration(float64(lifeOpen*g.open) / float64(g.got) * float64(now-g.born))
		g.life = max(min(took, mostLife), g.least)
	}
	for _, s := range g.sources {
		for i := range s.ccc {
			e := &s.ccc[i]
			if !e.used {
				continue
			}
			if gone := e.open - e.young; gone > 0 {
				g.opens(e, -gone)
				g.Stats.Expired += uint64(gone)
				e.idle = e.idle || !e.arrived
			}
			e.young, e.lost, e.arrived = 0, 0, false
		}
		g.count(s)
		for i := range s.ccc {
			if e := &s.ccc[i]; e.used {
				g.list(now, e)
			}
		}
	}
	g.lifeEnd = 0
	if g.open > 0 {
		g.begin(now)
	}
}

// begin begins a life of grants.
func (g *Grants) begin(now time.Duration) {
	g.born, g.lifeEnd, g.got = now, now+g.life, 0
}

// Credit is the cumulative credit of a CCC.
func (g *Grants) Credit(peer uint32, id uint8) uint32 {
	if e := g.find(peer, id); e != nil {
		return e.granted
	}
	return 0
}

// Closed tells that a PDC of a peer ended: what was asked for by it is no longer wanted.
func (g *Grants) Closed(peer, at uint32) {
	s := g.byPeer[peer]
	if s == nil {
		return
	}
	for i := range s.ccc {
		if e := &s.ccc[i]; e.used && e.at == at {
			e.target = e.granted
			g.unlist(e)
		}
	}
}

// Forget forgets a peer. What it was granted is open to others.
func (g *Grants) Forget(peer uint32) {
	s := g.byPeer[peer]
	if s == nil {
		return
	}
	for i := range s.ccc {
		if e := &s.ccc[i]; e.used {
			g.unlist(e)
			g.opens(e, -e.open)
		}
	}
	g.count(s)
	delete(g.byPeer, peer)
	last := g.sources[len(g.sources)-1]
	g.sources[s.i], last.i = last, s.i
	g.sources = g.sources[:len(g.sources)-1]
	*s = grantSource{}
	g.free = append(g.free, s)
}

// find returns a CCC of a peer, or nil.
func (g *Grants) find(peer uint32, id uint8) *grantee {
	if s := g.byPeer[peer]; s != nil {
		for i := range s.ccc {
			if e := &s.ccc[i]; e.used && e.id == id {
				return e
			}
		}
	}
	return nil
}

// add makes a CCC. In a source that has as many as it may it replaces the one that was
// silent for longest.
func (g *Grants) add(peer uint32, id uint8) *grantee {
	s := g.byPeer[peer]
	if s == nil {
		if len(g.sources) >= maxSources {
			return nil
		}
		if n := len(g.free); n > 0 {
			s, g.free = g.free[n-1], g.free[:n-1]
		} else {
			s = new(grantSource)
		}
		s.peer, s.i = peer, len(g.sources)
		g.sources = append(g.sources, s)
		g.byPeer[peer] = s
	}
	old := &s.ccc[0]
	for i := range s.ccc {
		e := &s.ccc[i]
		if !e.used {
			old = e
			break
		}
		if e.heard < old.heard {
			old = e
		}
	}
	if old.used {
		g.unlist(old)
		g.opens(old, -old.open)
		g.count(s)
	}
	*old = grantee{src: s, id: id, used: true}
	return old
}
