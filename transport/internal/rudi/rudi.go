// Package rudi keeps the requests of RUDI at their initiator (UE 3.5.7.3): packets without a PDC, each
// of which has an answer of its own, and is sent again until that comes. The target may execute one
// several times and keeps nothing.
//
// A Table is a state machine: the caller writes the packets and hands in the answers and the time.
package rudi

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
)

// Config has the times and bounds of a Table.
type Config struct {
	// RTOInit is the first retransmission timeout and the shortest, RTOMax the longest.
	RTOInit, RTOMax time.Duration
	// PeerTimeout is how long a peer may be silent that owes an answer.
	PeerTimeout time.Duration
	// Window is the most packets that one peer may owe an answer for (default 64). UE has no
	// congestion control for RUDI: a window that halves when answers are late paces it.
	Window int
	// FirstID is the id of the first packet. Those that follow count up.
	FirstID uint32
}

// A Table has the requests to all peers that wait for an answer.
type Table struct {
	cfg    Config
	lastID uint32
	peers  map[uint32]*peer
	busy   []*peer // those with packets
	failed []piece.Piece
	next   time.Duration // when the first packet is late; 0 if none is outstanding

	// Resent counts the packets that were sent again, Foreign the answers to none.
	Resent, Foreign uint64
}

// A peer is one target.
type peer struct {
	id     uint32
	out    []packet // oldest first
	window int
	grown  int // answers since the window grew last
	// srtt is the smoothed round trip, rttvar its deviation; 0 before the first measure.
	srtt, rttvar time.Duration
	heard        time.Duration // when it last answered, or had nothing to answer
	answered     time.Duration // when it last answered; 0 if never
	cutAt        time.Duration // when the window was halved
}

// A packet is a request that has no answer.
type packet struct {
	id      uint32
	piece   piece.Piece
	first   time.Duration // when it was sent first
	late    time.Duration // when it is taken for lost
	backoff time.Duration // from one sending to the next
	tries   int           // sendings
	lost    bool          // it is to be sent again
}

// firstWindow is the window of a new peer, in packets, leastWindow the smallest.
const (
	firstWindow = 16
	leastWindow = 2
)

// New makes an empty Table.
func New(cfg Config) *Table {
	if cfg.Window <= 0 {
		cfg.Window = 64
	}
	return &Table{cfg: cfg, lastID: cfg.FirstID - 1, peers: map[uint32]*peer{}}
}

// Outstanding is how many packets wait for an answer of a peer.
func (t *Table) Outstanding(id uint32) int {
	if p := t.peers[id]; p != nil {
		return len(p.out)
	}
	return 0
}

// Room reports whether another packet may be sent to a peer now.
func (t *Table) Room(id uint32) bool {
	p := t.peers[id]
	return p == nil || len(p.out) < p.window
}

// Push notes that a packet with a piece is sent to a peer, and returns its id.
func (t *Table) Push(now time.Duration, id uint32, pc piece.Piece) uint32 {
	p := t.peers[id]
	if p == nil {
		p = &peer{id: id, window: min(firstWindow, t.cfg.Window)}
		t.peers[id] = p
	}
	if len(p.out) == 0 {
		t.busy = append(t.busy, p)
		p.heard = now
	}
	t.lastID++
	rto := t.rto(p)
	p.out = append(p.out, packet{id: t.lastID, piece: pc, first: now, late: now + rto, backoff: rto, tries: 1})
	t.due(now + rto)
	return t.lastID
}

// rto is the retransmission timeout of a peer.
func (t *Table) rto(p *peer) time.Duration {
	if p.srtt == 0 {
		return t.cfg.RTOInit
	}
	return min(max(p.srtt+4*p.rttvar, t.cfg.RTOInit), t.cfg.RTOMax)
}

// due makes sure that Advance is asked for by at.
func (t *Table) due(at time.Duration) {
	if t.next == 0 || at < t.next {
		t.next = at
	}
}

// Answered takes a packet that a peer has answered, and returns its piece. It returns false if the
// peer owes no answer to a packet with this id: it was answered before, or the answer is forged.
func (t *Table) Answered(now time.Duration, id, pkt uint32) (piece.Piece, bool) {
	p, i := t.find(id, pkt)
	if i < 0 {
		t.Foreign++
		return piece.Piece{}, false
	}
	k := p.out[i]
	p.heard, p.answered = now, now
	if k.tries == 1 { // else nobody knows which sending was answered
		p.measure(now - k.first)
	}
	if p.grown++; p.grown >= p.window/2 {
		p.grown, p.window = 0, min(p.window+1, t.cfg.Window)
	}
	t.remove(p, i)
	return k.piece, true
}

// measure takes a round trip into account (RFC 6298).
func (p *peer) measure(rtt time.Duration) {
	if p.srtt == 0 {
		p.srtt, p.rttvar = max(rtt, 1), rtt/2
		return
	}
	p.rttvar += (max(p.srtt-rtt, rtt-p.srtt) - p.rttvar) / 4
	p.srtt = max(p.srtt+(rtt-p.srtt)/8, 1)
}

// Refused takes a NACK for a packet: it is sent again soon, once. A peer that refuses all the time is
// one that does not answer.
func (t *Table) Refused(now time.Duration, id, pkt uint32) {
	p, i := t.find(id, pkt)
	if i < 0 || p.out[i].tries > 1 || p.out[i].lost {
		t.Foreign++
		return
	}
	p.out[i].lost = true
	t.cut(now, p)
}

func (t *Table) find(id, pkt uint32) (*peer, int) {
	p := t.peers[id]
	if p == nil {
		return nil, -1
	}
	for i := range p.out {
		if p.out[i].id == pkt {
			return p, i
		}
	}
	return p, -1
}

// remove forgets a packet.
func (t *Table) remove(p *peer, i int) {
	p.out = append(p.out[:i], p.out[i+1:]...)
	if len(p.out) == 0 {
		for k, q := range t.busy {
			if q == p {
				t.busy = append(t.busy[:k], t.busy[k+1:]...)
				break
			}
		}
	}
}

// cut halves the window of a peer, once in a round trip.
func (t *Table) cut(now time.Duration, p *peer) {
	if p.cutAt == 0 || now-p.cutAt >= max(p.srtt, time.Millisecond) {
		p.window, p.grown, p.cutAt = max(p.window/2, leastWindow), 0, now
	}
}

// Advance takes packets that are late for lost, and gives up those of peers that have been silent too
// long.
func (t *Table) Advance(now time.Duration) {
	if t.next == 0 || now < t.next {
		return
	}
	t.next = 0
	for i := len(t.busy) - 1; i >= 0; i-- { // backwards: a peer may leave the list
		p := t.busy[i]
		if now-p.heard >= t.cfg.PeerTimeout {
			t.Fail(p.id)
			continue
		}
		for k := range p.out {
			q := &p.out[k]
			if !q.lost && now >= q.late {
				q.lost = true
				t.cut(now, p)
			}
			if !q.lost {
				t.due(q.late)
			}
		}
		t.due(p.heard + t.cfg.PeerTimeout)
	}
}

// NextTimeout is when to call Advance, 0 if never.
func (t *Table) NextTimeout() time.Duration { return t.next }

// Lost returns the oldest packet to a peer that is to be sent again.
func (t *Table) Lost(id uint32) (pkt uint32, pc piece.Piece, ok bool) {
	if p := t.peers[id]; p != nil {
		for i := range p.out {
			if p.out[i].lost {
				return p.out[i].id, p.out[i].piece, true
			}
		}
	}
	return 0, piece.Piece{}, false
}

// Tries is how often a packet that has no answer was sent.
func (t *Table) Tries(id, pkt uint32) int {
	p, i := t.find(id, pkt)
	if i < 0 {
		return 0
	}
	return p.out[i].tries
}

// Resend notes that a packet is sent again.
func (t *Table) Resend(now time.Duration, id, pkt uint32) {
	p, i := t.find(id, pkt)
	k := &p.out[i]
	k.backoff = min(2*k.backoff, t.cfg.RTOMax)
	k.lost, k.late = false, now+k.backoff
	k.tries++
	t.Resent++
	t.due(k.late)
}

// AnyLost calls f for each peer with packets that are to be sent again.
func (t *Table) AnyLost(f func(id uint32)) {
	for _, p := range t.busy {
		if _, _, ok := t.Lost(p.id); ok {
			f(p.id)
		}
	}
}

// Fail gives up all packets to a peer.
func (t *Table) Fail(id uint32) {
	p := t.peers[id]
	for p != nil && len(p.out) > 0 {
		t.failed = append(t.failed, p.out[0].piece)
		t.remove(p, 0)
	}
}

// FailAll gives up all packets.
func (t *Table) FailAll() {
	for len(t.busy) > 0 {
		t.Fail(t.busy[len(t.busy)-1].id)
	}
}

// NextFailed returns a piece that was given up, once. Whether the target executed it is not known.
func (t *Table) NextFailed() (piece.Piece, bool) {
	if len(t.failed) == 0 {
		return piece.Piece{}, false
	}
	pc := t.failed[0]
	if t.failed = t.failed[1:]; len(t.failed) == 0 {
		t.failed = nil
	}
	return pc, true
}

// Forget forgets what was measured of a peer that owes nothing.
func (t *Table) Forget(id uint32) {
	if p := t.peers[id]; p != nil && len(p.out) == 0 {
		delete(t.peers, id)
	}
}

// A Sent is a packet that has no answer.
type Sent struct {
	Peer  uint32
	Piece piece.Piece
	First time.Duration // when it was sent first
	Late  time.Duration // when it is taken for lost
	Tries int           // sendings
	Lost  bool          // it is to be sent again
}

// EachSent calls fn for each packet that has no answer. fn must not change the Table.
func (t *Table) EachSent(fn func(k Sent)) {
	for _, p := range t.busy {
		for i := range p.out {
			k := &p.out[i]
			fn(Sent{Peer: p.id, Piece: k.piece, First: k.first, Late: k.late, Tries: k.tries, Lost: k.lost})
		}
	}
}

// A State describes the requests to a peer.
type State struct {
	Outstanding, Window int           // packets
	Answered            time.Duration // when the peer last answered; 0 if never
	GiveUp              time.Duration // when it is given up, if it owes an answer; else 0
}

// State describes the requests to a peer. It is zero if there were none.
func (t *Table) State(id uint32) State {
	p := t.peers[id]
	if p == nil {
		return State{}
	}
	s := State{Outstanding: len(p.out), Window: p.window, Answered: p.answered}
	if len(p.out) > 0 {
		s.GiveUp = p.heard + t.cfg.PeerTimeout
	}
	return s
}
