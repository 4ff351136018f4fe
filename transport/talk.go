package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// A talk is what is known of a conversation with a peer: two ends that send short
// messages in turn, each when it has heard the other. A message then need not ask for
// an ACK: one in several does, and completes those before it. Whoever waits for a
// completion instead of going on shows by it that the conversation rests, and asks at
// once (docs/decisions/0025).
type talk struct {
	heard   uint8 // packets of data that came since the last post; saturates
	answer  bool  // the message posted last is one of a conversation, and may lag
	turn    turn
	ahead   uint8 // messages posted, less packets of data that came since; saturates both ways
	unasked uint8 // messages in a row that asked for no ACK, since one of the short PDC did
	lag     uint8 // how many there may be
	goesOn  bool  // there might be some since the last message that answered nothing
}

// talks lists the conversations that are to be looked at.
type talks struct {
	turns   fifo[PeerID]  // peers to whom it may be our turn to speak
	resting fifo[PeerID]  // those of them of whom it was found that nothing is said
	restAt  time.Duration // when to ask the first of those that rest; 0: none does
	answer  bool          // see FEP.Answer
}

// A turn says in which list of the FEP a peer is.
type turn uint8

const (
	turnNone  turn = iota
	turnOurs       // in turns
	turnRests      // in resting: a turn of the application passed, and it posted nothing
	turnSpoke      // in resting, but it did since
)

// A pace is how fast the lag of a talk grows.
type pace struct {
	rounds uint32 // messages of the conversation since it changed
	slow   uint8  // how slowly it does
}

const (
	// lagMost bounds what one ACK completes to eight messages, half of what makes a
	// target send one unasked (UE 3.5.12.2: ACK_Gen_Trigger by ACK_Gen_Min_Pkt_Add).
	lagMost = 7
	// lagRounds is how many messages a conversation has before one more may ask for
	// nothing, and slowMost how often that doubles at most, each time when somebody
	// had to ask. Arbitrary: who waits for each completion waits a round trip longer
	// for 18 of the first million.
	lagRounds = 32
	slowMost  = 12
	// restTime is how long an application that has heard the peer and looked again may
	// take to answer. Its look may have come before it read what it heard. Arbitrary.
	restTime = 5 * time.Microsecond
)

// speak notes a message to the peer, with so many sends outstanding at this end, and
// reports whether it is part of a conversation: since the last one the peer was heard
// once, and it has answered those before.
func (p *peer) speak(sends int) bool {
	t := &p.talk
	if int(t.ahead) > sends {
		t.ahead = uint8(sends) // some were taken and never answered
	}
	answer := t.heard == 1 && t.ahead <= 1
	if t.heard = 0; t.turn == turnRests {
		t.turn = turnSpoke
	}
	if !answer {
		// It asks for itself, if it leaves: a fence may keep it back, and it may be
		// cancelled. So those before it that asked for nothing are not forgotten.
		t.goesOn = false
		t.lag, p.pace.rounds = 0, 0
	}
	if t.ahead < 255 {
		t.ahead++
	}
	return answer
}

// askAll has every message ask again, for a while. The conversation goes on: what has
// not been acknowledged yet makes no stream of it.
func (p *peer) askAll() {
	p.talk.unasked, p.talk.lag, p.pace.rounds = 0, 0, 0
}

// ask asks about what asked for nothing, if anything did: somebody waits for it.
func (p *peer) ask() {
	if p.talk.unasked != 0 && p.short != nil && p.short.Ask() {
		p.pace.slow = min(p.pace.slow+1, slowMost)
		p.askAll()
	}
	p.talk.unasked = 0
}

// turnAway asks about what asked for nothing when the next message goes another way, so
// that its ACK will not tell.
func (p *peer) turnAway() {
	if p.short != nil {
		p.short.Ask()
	}
	p.askAll()
}

// goOn is the progress of a conversation by a message.
func (p *peer) goOn() {
	t, c := &p.talk, &p.pace
	if t.lag == lagMost && c.slow == 0 {
		return
	}
	if c.rounds++; c.rounds < lagRounds<<c.slow {
		return
	}
	if c.rounds = 0; t.lag < lagMost {
		t.lag++
		t.goesOn = true
	} else {
		c.slow--
	}
}

// hear notes data from a peer.
func (f *FEP) hear(id PeerID) {
	t := &f.peers[id].talk
	if t.heard < 255 {
		t.heard++
	}
	if t.ahead != 0 {
		t.ahead--
	}
	if t.unasked != 0 && t.turn == turnNone {
		t.turn = turnOurs
		f.talks.turns.push(id)
	}
}

// passTurns looks where the peer has spoken and the application, whose turn is over,
// has not answered.
func (f *FEP) passTurns() {
	for f.talks.turns.len() > 0 {
		id := f.talks.turns.pop()
		p := &f.peers[id]
		t := &p.talk
		if t.heard == 0 || t.unasked == 0 {
			t.turn = turnNone
			continue
		}
		t.turn, p.restAt = turnRests, f.now+restTime
		f.talks.resting.push(id)
		if f.talks.restAt == 0 {
			f.talks.restAt = p.restAt
		}
	}
}

// askResting asks about what asked for nothing where the application has posted
// nothing since.
func (f *FEP) askResting() {
	f.talks.restAt = 0
	for f.talks.resting.len() > 0 {
		id := f.talks.resting.front()
		p := &f.peers[id]
		if p.restAt > f.now {
			f.talks.restAt = p.restAt
			return
		}
		f.talks.resting.pop()
		t := &p.talk
		if t.turn == turnSpoke && t.heard != 0 {
			t.turn = turnOurs // it was answered already
			f.talks.turns.push(id)
			continue
		}
		rests := t.turn == turnRests
		if t.turn = turnNone; rests {
			p.ask()
			f.heed()
		}
	}
}

// lags reports whether the packet just pushed, behind which nothing more comes, asks
// for no ACK. alone says that it is a message and leaves alone.
func (f *FEP) lags(now time.Duration, p *peer, pdc *pds.PDC, alone bool) bool {
	if pdc != p.short {
		return false
	}
	t := &p.talk
	if !alone || !t.answer || t.heard != 0 {
		t.unasked = 0
		return false
	}
	p.goOn()
	if t.unasked >= t.lag || !pdc.MayLag(now) {
		t.unasked = 0
		return false
	}
	t.unasked++
	return true
}

// Answer reports whether the send that Post took last answers what the peer sent, in a
// conversation that goes on: nothing more is posted before the peer has it.
func (f *FEP) Answer() bool { return f.talks.answer }
