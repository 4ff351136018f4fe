package traffic

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
)

// This file has what tests of datagrams do, which may be lost, and which have a number each.

const (
	// answerTime is how long an answer to a datagram may take until it is lost, unless
	// Spec.Patience says otherwise. The other times grow with it.
	answerTime = 100 * time.Millisecond
	// lossyQuiet is how long nothing must come after the sender has told how many it sent, until
	// what is missing is lost.
	lossyQuiet = 2 * answerTime
	// lossyRecvs is how many receives a stream has posted, at least: what finds none is lost.
	lossyRecvs = 4096
	// wordTime is how long a sender of a stream waits for the receiver's word when its window is full.
	wordTime = answerTime / 5
	// wordParts is how many words the receiver sends in a window, words how many may be under way.
	wordParts, words = 4, 64
	// wordBit marks the number of a word.
	wordBit = 1 << 62
	// lossySpan is how many numbers a message may be behind the newest one to be told from one
	// that came twice.
	lossySpan = 1 << 16
)

// patience returns d, one of the times above, as long as Spec.Patience makes it.
func (s *Spec) patience(d time.Duration) time.Duration {
	return time.Duration(float64(d) * max(1, s.Patience.Seconds()/answerTime.Seconds()))
}

// fresh notes the number of a message and reports whether it is new. One that came before is an error
// of the data check.
func (l *Leg) fresh(c *Completion) bool {
	came := pattern.Again
	if c.Seq >= 0 {
		came = l.ledger.Pass(uint64(c.Seq))
	}
	if came == pattern.Again && l.check != nil {
		l.countChecked(true, 0)
	}
	return came == pattern.Fresh
}

// A silence finds out that nothing comes any more.
type silence struct {
	got  int64         // what had come at the last look
	from time.Duration // since when nothing came; 0 before the first look
}

// lasts reports whether nothing came for quiet before now. got is what has come so far.
func (s *silence) lasts(now, quiet time.Duration, got int64) bool {
	if s.from == 0 || got != s.got {
		s.from, s.got = max(now, 1), got
	}
	return now-s.from >= quiet
}

// A pace keeps a sender of datagrams at most a window ahead of its receiver, which says from time to
// time how far it is. Words may be lost, too.
type pace struct {
	// Of a sender: the messages below known have arrived or are lost; since is when it last learned of
	// some, or gave some up.
	known int64
	since time.Duration
	// Of a receiver: the highest number that came and what it has told, both plus one.
	top, told int64
}

// holds reports whether a sender must wait.
func (p *pace) holds(s *Spec, posted int64) bool {
	return s.Lossy() && posted-p.known >= int64(s.Window)
}

// look gives up a window of which no word came in time.
func (p *pace) look(s *Spec, now time.Duration, posted int64) {
	switch {
	case !p.holds(s, posted):
		p.since = now
	case now-p.since >= s.patience(wordTime):
		p.known, p.since = posted, now
	}
}

// left is how long a sender waits for a word.
func (p *pace) left(s *Spec, now time.Duration) time.Duration {
	return max(p.since+s.patience(wordTime)-now, 1)
}

// came notes a message.
func (p *pace) came(c *Completion) { p.top = max(p.top, c.Seq+1) }

// tell sends a word, if it is time for one. Without a slot or room there is another time.
func (p *pace) tell(l *Leg) error {
	if p.top-p.told < max(1, int64(l.Spec.Window)/wordParts) {
		return nil
	}
	for i := range l.words {
		s := &l.words[i]
		if s.busy {
			continue
		}
		ok, err := l.Conn.Send(s.Buf, wordBit|p.top, s)
		if err != nil {
			return PostError(err)
		}
		if s.busy = ok; ok {
			p.told = p.top
		}
		return nil
	}
	return nil
}

// take takes a word, or the end of one that was sent.
func (p *pace) take(l *Leg, c *Completion) error {
	if c.Sent {
		c.busy = false
		return nil
	}
	p.known = max(p.known, c.Seq&^wordBit)
	return l.recv(c.Slot)
}
