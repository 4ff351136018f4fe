package cms

import (
	"math/rand/v2"
	"time"
)

// MaxPaths is the largest number of entropy values of one FEP.
const MaxPaths = 256

// Constants of path choice (UE 3.6.16, 3.6.17), the first two from there.
const (
	rerouteRTTs = 10 // single path: at most one change in so many RTTs
	avoidShare  = 2  // stop avoiding congested paths when 1/avoidShare are
	deadStrikes = 2  // losses in a row, a round trip apart, that make a path dead
	// deadMax is the longest time without a try on a dead path: all paths carry data
	// again within a second after a fault (docs/faults.md rule 5).
	deadMax = 500 * time.Millisecond
	// pathRTT stands in for an RTT not measured yet.
	pathRTT = defaultBaseRTT
)

// Paths chooses the path, an entropy value, of each burst to one peer. With one
// path it costs nothing. Spraying, it uses every path once in a random order,
// then every path once in another; a path that was reported congested or lost
// something rests for an RTT, unless half of them do. Losses in a row without a
// packet that arrived make a path dead: it rests twice as long each time and is
// tried again, with one burst.
//
// Single, it keeps one path, as packets in order want (ROD), and leaves it only
// when it is dead.
//
// Init makes it ready; the zero Paths has one path.
type Paths struct {
	rng    *rand.Rand
	state  []pathState
	order  []uint8 // the paths of this round, chosen up to next
	next   int
	single bool
	at     uint8         // the path, if single
	moved  time.Duration // when at changed last
	wary   time.Duration // until then some path is avoided
}

type pathState struct {
	until   time.Duration // avoided until then
	struck  time.Duration // the last loss that counted
	strikes uint8         // losses in a row
}

// Init makes p choose among n paths, 1 to MaxPaths, numbered from 0. It keeps
// rng, the only source of its choices; with one path nil will do. single keeps
// to one of them.
func (p *Paths) Init(n int, single bool, rng *rand.Rand) {
	*p = Paths{single: single}
	n = min(n, MaxPaths)
	if n <= 1 {
		return
	}
	p.rng = rng
	p.state = make([]pathState, n)
	p.order = make([]uint8, n)
	for i := range p.order {
		p.order[i] = uint8(i)
	}
	if single {
		p.at = uint8(rng.IntN(n)) // parallel PDCs then differ (UE 3.6.16)
	}
}

// Len is the number of paths.
func (p *Paths) Len() int { return max(len(p.state), 1) }

// Pick chooses the path of the next burst.
func (p *Paths) Pick(now time.Duration) int {
	n := len(p.state)
	if n == 0 || p.single {
		return int(p.at)
	}
	if now >= p.wary {
		return int(p.draw())
	}
	// Some path is avoided. Dead ones always are, congested ones only while
	// they are few.
	bad, dead := 0, 0
	for i := range p.state {
		if s := &p.state[i]; now < s.until {
			bad++
			if s.strikes >= deadStrikes {
				dead++
			}
		}
	}
	if dead == n {
		return p.soonest()
	}
	spare := bad*avoidShare >= n // too many are congested: avoid dead ones only
	for {
		// Each round of n draws has every path once, so this ends.
		i := p.draw()
		s := &p.state[i]
		if now >= s.until || spare && s.strikes < deadStrikes {
			return int(i)
		}
	}
}

// draw takes the next path of the random order, and begins a new one when it is
// used up.
func (p *Paths) draw() uint8 {
	i := p.next
	j := i + p.rng.IntN(len(p.order)-i)
	p.order[i], p.order[j] = p.order[j], p.order[i]
	if p.next++; p.next == len(p.order) {
		p.next = 0
	}
	return p.order[i]
}

// soonest is the path whose rest ends first.
func (p *Paths) soonest() int {
	best := 0
	for i := range p.state {
		if p.state[i].until < p.state[best].until {
			best = i
		}
	}
	return best
}

// OnGood tells that a packet of the path arrived without a mark.
func (p *Paths) OnGood(path int) {
	if path < len(p.state) {
		p.state[path].strikes = 0
	}
}

// OnMarked tells that a packet of the path arrived with CE, or was trimmed on
// the way. rtt is the smoothed round trip, 0 if unknown. A single path stays:
// congestion is the window's business there.
func (p *Paths) OnMarked(now time.Duration, path int, rtt time.Duration) {
	if path < len(p.state) {
		p.state[path].strikes = 0 // it arrived
		p.avoid(now, path, rtt)
	}
}

// OnLoss tells that a packet of the path is taken for lost. What one round trip
// loses counts once.
func (p *Paths) OnLoss(now time.Duration, path int, rtt time.Duration) {
	if path >= len(p.state) {
		return
	}
	rtt = orPathRTT(rtt)
	s := &p.state[path]
	if s.strikes > 0 && now-s.struck < rtt {
		return
	}
	s.struck = now
	if s.strikes < 30 {
		s.strikes++
	}
	rest := rtt
	if s.strikes >= deadStrikes {
		rest = min(rtt<<(s.strikes-deadStrikes+2), max(deadMax, rtt))
	}
	p.avoid(now, path, rest)
	if p.single && path == int(p.at) && s.strikes >= deadStrikes && (p.moved == 0 || now-p.moved >= rerouteRTTs*rtt) {
		p.move(now)
	}
}

// move leaves the single path for one that lost nothing, else for the one whose
// rest ends first.
func (p *Paths) move(now time.Duration) {
	to := -1
	for range p.order {
		if i := p.draw(); i != p.at && p.state[i].strikes == 0 && now >= p.state[i].until {
			to = int(i)
			break
		}
	}
	if to < 0 {
		to = p.soonest()
	}
	if to != int(p.at) {
		p.at, p.moved = uint8(to), now
	}
}

func (p *Paths) avoid(now time.Duration, path int, d time.Duration) {
	until := now + orPathRTT(d)
	p.state[path].until = max(p.state[path].until, until)
	p.wary = max(p.wary, until)
}

func orPathRTT(d time.Duration) time.Duration {
	if d <= 0 {
		return pathRTT
	}
	return d
}
