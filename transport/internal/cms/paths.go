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

// A Choice is a way to choose among several paths. Mixed, Bitmap, REPS and Oblivious have the names that
// htsim, the simulator of the UE consortium, gives to its load balancing (docs/decisions/0059).
type Choice uint8

// The choices. A path is bad if a packet of it was marked, trimmed or lost.
const (
	// Mixed is Bitmap and List: first what is in the list, then what the bitmap allows.
	Mixed Choice = iota
	// Bitmap uses every path once in a random order, then every path once in another order, but
	// lets bad ones rest.
	Bitmap
	// List keeps the paths by which packets arrived, and uses those that do not rest in the order of
	// arrival. Else it uses every path by turns.
	List
	// REPS is recycled entropy packet spraying (arXiv 2407.21625). Each unmarked arrival lets its path
	// be used once more, if it is one of the last eight. Where there is none any path serves, but for
	// 10 ms after a loss only the last eight.
	REPS
	// Oblivious uses every path once in a random order, then in another one, whatever becomes of packets.
	Oblivious
	// Single keeps to one path, as packets in order need (ROD), and leaves it only when it is dead.
	Single
)

// Constants of the list and of REPS. Those of REPS are its authors'.
const (
	// listKeep is the part of all paths, 1/listKeep, that stays in the list: with fewer in use at once
	// some links get more than others. The last flow of the permutation of 128 hosts with slow links
	// in docs/congestion.md takes the shorter the less stays, and that of the oversubscribed one the
	// longer: 5 keeps both.
	listKeep = 5
	// explore is how many bursts there are for each that ignores the list, so that paths that were
	// bad are tried again.
	explore = 16
	// listLife is how long an arrival makes the list worth more than chance, and listAfter how long
	// a bad path does. Where none is bad all paths are used by turns.
	listLife  = time.Millisecond
	listAfter = 100 * time.Millisecond

	repsRing    = 8                     // paths that REPS remembers
	repsFreeze  = 10 * time.Millisecond // how long a loss freezes them
	repsExplore = 16                    // bursts by any path after that
)

// Paths chooses the path, an entropy value, of each burst to one peer. With one path the choice costs
// nothing.
//
// The bitmap: a path that was marked or lost a packet rests for an RTT, unless half of the paths rest.
// Losses in a row without an arrival make a path dead: it rests twice as long each time, and then gets
// one burst as a test.
//
// Init prepares a Paths. The zero Paths has one path.
type Paths struct {
	rng    *rand.Rand
	state  []pathState
	order  []uint8 // the paths in the order of this round; those below next were used
	next   int
	choice Choice
	at     uint8         // the current path of Single
	moved  time.Duration // when at last changed, 0 if never
	wary   time.Duration // until when some path is avoided

	// The list of Mixed and List is a ring of len(order), each path once at most. That of REPS has the
	// last repsRing arrivals; listed of them were not used since.
	list   []uint8
	first  int           // the oldest in the list; of REPS, where the next arrival goes
	listed int           // how many there are
	keep   int           // how many stay
	until  time.Duration // until when it is used
	heard  time.Duration // when a packet last arrived
	bursts uint8         // that did not ignore the list, since one did
	ring   reps
}

// A reps is what REPS remembers.
type reps struct {
	n      int           // arrivals in the list, repsRing at most
	turn   int           // of the n, the one that was used last without an arrival of its own
	frozen time.Duration // until when
	any    int           // bursts by any path that are still to come
}

// A pathState is what is known of one path.
type pathState struct {
	until   time.Duration // until when the path is avoided
	struck  time.Duration // when the last loss counted
	strikes uint8         // losses in a row
	listed  bool          // is in the list of Mixed or List
}

// Init makes p choose among n paths, 1 to MaxPaths, numbered from 0. It keeps rng, the only
// source of its choices; rng may be nil if n is 1.
func (p *Paths) Init(n int, how Choice, rng *rand.Rand) {
	*p = Paths{choice: how}
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
	switch how {
	case Single:
		p.at = uint8(rng.IntN(n)) // parallel PDCs then differ (UE 3.6.16)
	case Mixed, List:
		p.list, p.keep = make([]uint8, n), n/listKeep
	case REPS:
		p.list = make([]uint8, repsRing)
	}
}

// Len is the number of paths.
func (p *Paths) Len() int { return max(len(p.state), 1) }

// Pick chooses the path of the next burst.
func (p *Paths) Pick(now time.Duration) int {
	n := len(p.state)
	if n == 0 {
		return 0
	}
	switch p.choice {
	case Single:
		return int(p.at)
	case REPS:
		return p.recycle(now)
	case Mixed, List:
		if i, ok := p.known(now); ok {
			return i
		}
	}
	if now >= p.wary || p.choice != Mixed && p.choice != Bitmap {
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

// known takes from the list the path that a packet arrived by first, and that does not rest.
func (p *Paths) known(now time.Duration) (int, bool) {
	if p.listed <= p.keep || now >= p.until {
		return 0, false
	}
	if p.bursts++; p.bursts >= explore || now-p.heard > listLife {
		p.bursts = 0
		return 0, false
	}
	for p.listed > p.keep {
		i := p.list[p.first]
		if p.first++; p.first == len(p.list) {
			p.first = 0
		}
		p.listed--
		s := &p.state[i]
		if s.listed = false; now >= s.until {
			return int(i), true
		}
	}
	return 0, false
}

// recycle is the choice of REPS.
func (p *Paths) recycle(now time.Duration) int {
	r := &p.ring
	if r.frozen != 0 && now >= r.frozen {
		*r, p.listed = reps{any: repsExplore}, 0
	}
	switch {
	case r.any > 0:
		r.any--
	case p.listed > 0:
		p.listed--
		return int(p.list[(p.first+2*repsRing-p.listed-1)%repsRing])
	case r.frozen != 0 && r.n > 0:
		r.turn = (r.turn + 1) % r.n
		return int(p.list[(p.first+repsRing-r.n+r.turn)%repsRing])
	}
	return int(p.draw())
}

// OnGood tells that a packet by the path arrived. OnMarked follows if it was marked.
func (p *Paths) OnGood(now time.Duration, path int) {
	if path >= len(p.state) {
		return
	}
	s := &p.state[path]
	s.strikes = 0
	switch p.choice {
	case Mixed, List:
		p.heard = now
		if !s.listed {
			s.listed = true
			i := p.first + p.listed
			if i >= len(p.list) {
				i -= len(p.list)
			}
			p.list[i] = uint8(path)
			p.listed++
		}
	case REPS:
		p.list[p.first] = uint8(path)
		p.first = (p.first + 1) % repsRing
		p.listed, p.ring.n = min(p.listed+1, repsRing), min(p.ring.n+1, repsRing)
	}
}

// OnMarked tells that a packet by the path arrived with CE, or was trimmed. rtt is the
// smoothed round trip, 0 if unknown. Single stays on its path: there the window
// reacts to congestion.
func (p *Paths) OnMarked(now time.Duration, path int, rtt time.Duration) {
	if path < len(p.state) {
		p.state[path].strikes = 0 // it arrived
		p.avoid(now, path, rtt)
		if p.choice == REPS && p.listed > 0 && int(p.list[(p.first+repsRing-1)%repsRing]) == path {
			p.first = (p.first + repsRing - 1) % repsRing // OnGood put it there
			p.listed--
			p.ring.n--
		}
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
	if r := &p.ring; p.choice == REPS && r.frozen == 0 && r.any == 0 {
		r.frozen = now + repsFreeze
	}
	if s.strikes < 30 {
		s.strikes++
	}
	rest := rtt
	if s.strikes >= deadStrikes {
		rest = min(rtt<<(s.strikes-deadStrikes+2), max(deadMax, rtt))
	}
	p.avoid(now, path, rest)
	if p.choice == Single && path == int(p.at) && s.strikes >= deadStrikes && (p.moved == 0 || now-p.moved >= rerouteRTTs*rtt) {
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
	p.until = now + listAfter
}

// orPathRTT is d, or pathRTT if d is not known.
func orPathRTT(d time.Duration) time.Duration {
	if d <= 0 {
		return pathRTT
	}
	return d
}
