package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
)

// A talk is what the FEP knows of its conversation with a peer: two ends that send short
// messages in turn, each after it heard the other. A message of a conversation need not ask
// for an ACK: every few messages one asks, and its ACK completes those before it. An
// application that waits for a completion instead of going on shows that the conversation
// rests, and the FEP asks at once (docs/decisions/0025).
type talk struct {
	heard   uint8 // data packets that came since the last post; saturates
	answer  bool  // the latest message belongs to the conversation and may lag
	turn    turn
	ahead   uint8 // messages posted minus data packets received; saturates at both ends
	unasked uint8 // latest messages of one PDC in a row that asked for no ACK, see lagging
	lag     uint8 // upper bound of unasked
	marks   talkMarks
}

// talkMarks are what a talk knows beside its counts.
type talkMarks uint8

const (
	talkGoesOn  talkMarks = 1 << iota // lag has grown since the last message that was no answer
	talkCounts                        // pace.rounds is not 0; so a message to one of many peers need not touch it
	talkOrdered                       // unasked is about the PDC for ordered messages, not that for short ones
)

// talks lists the conversations to look at.
type talks struct {
	turns   fifo[PeerID]  // peers that may wait for an answer of the application
	resting fifo[PeerID]  // peers that the application did not answer in its turn, in the order of restAt
	restAt  time.Duration // when to ask the first peer of resting; 0 if there is none
	answer  bool          // see FEP.Answer
}

// A turn says which list of talks a peer is in.
type turn uint8

const (
	turnNone  turn = iota
	turnOurs       // listed in turns
	turnRests      // listed in resting: the application's turn passed, and it posted nothing
	turnSpoke      // listed in resting, but the application posted since
)

// A pace says how fast the lag of a talk grows.
type pace struct {
	rounds uint32 // messages of the conversation since lag or slow changed
	slow   uint8  // lag grows after lagRounds<<slow messages
}

const (
	// lagMost is the upper bound of lag. One ACK then completes eight messages at most,
	// half as many as make a target send an ACK that nobody asked for (UE 3.5.12.2:
	// ACK_Gen_Trigger / ACK_Gen_Min_Pkt_Add).
	lagMost = 7
	// lagRounds is the number of messages after which lag grows by one. It doubles each
	// time that the FEP had to ask, slowMost times at most. Both are arbitrary. An
	// application that waits for each completion waits a round trip longer for 18 of its
	// first million messages.
	lagRounds = 32
	slowMost  = 12
	// restTime is how long an application that heard the peer and whose turn passed may
	// still take to answer: the turn may have passed before it read what it heard.
	// Arbitrary.
	restTime = 5 * time.Microsecond
)

// speak notes a message to the peer; sends is the number of sends that have not ended. It
// reports whether the message is an answer in a conversation: one data packet came since
// the last message, and the peer has answered the messages before.
func (p *peer) speak(sends int) bool {
	t := &p.talk
	if int(t.ahead) > sends {
		t.ahead = uint8(sends) // the peer received some and did not answer them
	}
	answer := t.heard == 1 && t.ahead <= 1
	if t.heard = 0; t.turn == turnRests {
		t.turn = turnSpoke
	}
	if !answer {
		// This message asks for an ACK itself if it is sent, but a fence may hold it back,
		// and it may be cancelled. So unasked stays.
		t.lag = 0
		if t.marks&talkCounts != 0 {
			p.pace.rounds = 0
		}
		if t.marks != 0 {
			t.marks &= talkOrdered
		}
	}
	if t.ahead < 255 {
		t.ahead++
	}
	return answer
}

// askAll makes every message ask for an ACK again, for a while. The conversation goes on:
// messages that are not acknowledged yet do not make it a stream.
func (p *peer) askAll() {
	p.talk.unasked, p.talk.lag = 0, 0
	p.talk.marks &^= talkCounts
	p.pace.rounds = 0
}

// ask asks for an ACK of the messages that asked for none, if there are any: somebody waits
// for them.
func (p *peer) ask() {
	if pdc := p.lagging(); p.talk.unasked != 0 && pdc != nil && pdc.Ask() {
		p.pace.slow = min(p.pace.slow+1, slowMost)
		p.askAll()
	}
	p.talk.unasked = 0
}

// turnAway asks for an ACK of the messages that asked for none, because the next message
// uses another PDC, whose ACKs do not cover them.
func (p *peer) turnAway() {
	if pdc := p.lagging(); pdc != nil {
		pdc.Ask()
	}
	p.askAll()
}

// lagging returns the PDC whose messages asked for no ACK, nil if it is gone.
func (p *peer) lagging() *pds.PDC {
	if p.talk.marks&talkOrdered != 0 {
		return p.rod
	}
	return p.short
}

// goOn counts a message of the conversation. Every so many messages it lets lag grow, or
// makes it grow faster.
func (p *peer) goOn() {
	t, c := &p.talk, &p.pace
	if t.lag == lagMost && c.slow == 0 {
		return
	}
	t.marks |= talkCounts
	if c.rounds++; c.rounds < lagRounds<<c.slow {
		return
	}
	if c.rounds = 0; t.lag < lagMost {
		t.lag++
		t.marks |= talkGoesOn
	} else {
		c.slow--
	}
}

// hear notes a data packet from a peer.
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

// passTurns finds the peers that spoke and that the application, whose turn is over, has
// not answered.
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

// askResting asks for the ACKs of conversations in which the application has posted nothing
// since its turn passed.
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
			t.turn = turnOurs // the peer has answered already
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

// lags reports whether the newest packet, which no other follows, may do without AR. alone
// says that the packet is a whole message and the only one to send.
func (f *FEP) lags(now time.Duration, p *peer, pdc *pds.PDC, alone bool) bool {
	t := &p.talk
	if pdc != p.lagging() {
		if pdc != p.short && pdc != p.rod || t.unasked != 0 {
			return false
		}
		t.marks ^= talkOrdered
	}
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

// Answer reports whether the latest send that Post accepted answers the peer in a
// conversation that goes on. The application then posts nothing more before the peer has
// it.
func (f *FEP) Answer() bool { return f.talks.answer }
