package cms

import (
	"math/rand/v2"
	"time"
)

// MaxPaths is the largest number of entropy values of one FEP.
const MaxPaths = 256

// Constants of path choice. The first two are from UE 3.6.16 and 3.6.17.
const (
	rerouteRTTs = 10 // single path: at most one change in this many RTTs
	avoidShare  = 2  // congested paths are not avoided if they are 1/avoidShare of all or more
	deadStrikes = 2  // losses in a row, a round trip apart, that make a path dead
	// deadMax is the longest time between two tries of a dead path: within a second after a
	// fault all paths carry data again (docs/faults.md rule 5).
	deadMax = 500 * time.Millisecond
	// pathRTT replaces an RTT that is not measured yet.
	pathRTT = defaultBaseRTT
)

// Paths chooses the path, an entropy value, of each burst to one peer. With one path the
// choice costs nothing. When it sprays it uses every path once in a random order, then
// every path once in another order. A path that was marked or lost a packet rests for an
// RTT, unless half of the paths rest. Losses in a row without an arrival make a path dead:
// it rests twice as long each time, and then gets one burst as a test.
//
// A single Paths keeps to one path, as packets in order need (ROD), and leaves it only when
// it is dead.
//
// Init prepares a Paths. The zero Paths has one path.
type Paths struct {
	rng    *rand.Rand
	state  []pathState
	order  []uint8 // the paths in the order of this round; those below next were used
	next   int
	single bool
	at     uint8         // the current path, if single
	moved  time.Duration // when at last changed, 0 if never
	wary   time.Duration // until when some path is avoided
}

// A pathState is what is known of one path.
type pathState struct {
	until   time.Duration // until when the path is avoided
	struck  time.Duration // when the last loss counted
	strikes uint8         // losses in a row
}

// Init makes p choose among n paths, 1 to MaxPaths, numbered from 0. It keeps rng, the only
// source of its choices; rng may be nil if n is 1. single makes it keep to one path.
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
	// Some path is avoided. Dead paths always are, congested ones only while they are few.
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
	spare := bad*avoidShare >= n // too many are congested: avoid only dead paths
	for {
		// This ends, because each round of n draws has every path once.
		i := p.draw()
		s := &p.state[i]
		if now >= s.until || spare && s.strikes < deadStrikes {
			return int(i)
		}
	}
}

// draw returns the next path of the random order. It begins a new order when all paths are
// used.
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

// OnGood tells that a packet by the path arrived unmarked.
func (p *Paths) OnGood(path int) {
	if path < len(p.state) {
		p.state[path].strikes = 0
	}
}

// OnMarked tells that a packet by the path arrived with CE, or was trimmed. rtt is the
// smoothed round trip, 0 if unknown. A single Paths stays on its path: there the window
// reacts to congestion.
func (p *Paths) OnMarked(now time.Duration, path int, rtt time.Duration) {
	if path < len(p.state) {
		p.state[path].strikes = 0 // it arrived
		p.avoid(now, path, rtt)
	}
}

// OnLoss tells that a packet by the path is taken for lost. All losses within one round
// trip count once.
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

// move changes the single path to one without losses, or if there is none to the path whose
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

// avoid lets a path rest for d.
func (p *Paths) avoid(now time.Duration, path int, d time.Duration) {
	until := now + orPathRTT(d)
	p.state[path].until = max(p.state[path].until, until)
	p.wary = max(p.wary, until)
}

// orPathRTT is d, or pathRTT if d is not known.
func orPathRTT(d time.Duration) time.Duration {
	if d <= 0 {
		return pathRTT
	}
	return d
}
