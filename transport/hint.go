package transport

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// A Hint says why packets of one peer are dropped (F14, F31).
type Hint struct {
	Peer   netip.AddrPort
	Reason DropReason
	Count  uint64 // dropped packets that caused the hint
}

// A hint notices addresses to be told of. There are two kinds: one that sends so much which
// is dropped that somebody should look (T41), and one that sends little, but nothing else: a
// peer that does not fit sends a few packets and repeats them at its timeouts.
type hint struct {
	told time.Duration

	// The address with most drops, by majority vote: each drop of another one lowers its count.
	loudest Hint
	since   time.Duration

	suspect suspect
}

// A suspect is an address of which nothing but drops arrived since the first of them.
type suspect struct {
	Hint  // Count is 0 if there is none
	since time.Duration
	last  time.Duration // the latest drop
	need  uint64        // drops that cause a hint
	// looking is true while Receive reads a train of the suspect.
	looking bool
}

const (
	// hintDrops packets of one peer that are dropped within hintSpan cause a hint.
	hintDrops = 100
	hintSpan  = time.Second
	// hintQuiet is the least time between two hints, so that a peer that keeps sending
	// causes few log lines.
	hintQuiet = 10 * time.Second
	// A suspect causes a hint after suspectDrops packets in suspectTime or more: a message of
	// one packet, sent at once and at seven timeouts, is so many in 0.6 s. A train that was
	// damaged as a whole, or a peer that gets its key a moment later, is shorter. A suspect with
	// a PDC has shown that it fits, and anybody can send in the name of a peer that is idle: it
	// takes hintDrops packets.
	suspectDrops = 8
	suspectTime  = 200 * time.Millisecond
	// suspectPause without a drop ends a suspicion. It is longer than RTOMax, so one peer that
	// keeps trying remains the suspect.
	suspectPause = time.Second
)

// dropFrom counts a dropped packet that may mean that the two ends do not fit: they differ
// in CRC, key or encapsulation, or there is a NAT between them.
func (f *FEP) dropFrom(r DropReason) {
	f.drop(r)
	if f.cfg.Hint == nil {
		return
	}
	f.suspects(r)
	now, h := f.now, &f.hint
	if h.loudest.Peer != f.rx.in.From || h.loudest.Reason != r || now-h.since > hintSpan {
		if h.loudest.Count > 0 && now-h.since <= hintSpan {
			// The packet is of another address. Each such packet lowers the count, so that
			// the address with the most drops stays.
			h.loudest.Count--
			return
		}
		h.loudest, h.since = Hint{Peer: f.rx.in.From, Reason: r}, now
	}
	if h.loudest.Count++; h.loudest.Count == hintDrops {
		f.tell(h.loudest)
	}
}

// tell gives a hint, unless there was one a short while ago.
func (f *FEP) tell(h Hint) {
	if f.muted() {
		return
	}
	f.hint.told = f.now
	f.trust()
	f.cfg.Hint(h)
}

// muted reports whether there was a hint a short while ago.
func (f *FEP) muted() bool { return f.hint.told != 0 && f.now-f.hint.told < hintQuiet }

// suspects counts a dropped packet of the suspect. If there is none, its source becomes the
// suspect, so of many addresses each is as likely to be chosen as it has drops.
func (f *FEP) suspects(r DropReason) {
	now, s := f.now, &f.hint.suspect
	if s.Count == 0 || now-s.last > suspectPause {
		if f.muted() {
			return
		}
		s.Hint, s.since, s.need = Hint{Peer: f.rx.in.From, Reason: r}, now, suspectDrops
		f.watched = true
	} else if s.Peer != f.rx.in.From || s.Reason != r {
		return
	}
	s.last = now
	if s.Count++; s.Count < s.need || now-s.since < suspectTime {
		return
	}
	if s.need < hintDrops && f.pds.Knows(s.Peer) {
		s.need = hintDrops
		return
	}
	f.tell(s.Hint)
}

// trust ends a suspicion.
func (f *FEP) trust() {
	f.hint.suspect.Count = 0
	f.watched = f.notes != nil || f.ended
}

// suspected reports whether a train is to be read by receiveSuspect.
func (f *FEP) suspected(d *dgram.Datagram) bool {
	s := &f.hint.suspect
	if s.Count == 0 || s.looking || d.Remote.Addr() != s.Peer.Addr() {
		return false
	}
	if f.now-s.last > suspectPause {
		f.trust()
		return false
	}
	return true
}

// receiveSuspect is Receive for a train of the suspect's address. A packet of it that is not
// dropped ends the suspicion: the peer fits, and others are damaged or forged.
func (f *FEP) receiveSuspect(now time.Duration, d *dgram.Datagram) {
	s, st := &f.hint.suspect, &f.stats
	before := st.read()
	s.looking = true
	f.Receive(now, d)
	s.looking = false
	if s.Count != 0 && f.rx.in.From == s.Peer && st.read() > before {
		f.trust()
	}
}

// read is how many packets were neither dropped nor trimmed, less the trains that were dropped as a whole.
func (s *FEPCounters) read() int64 {
	n := s.RxPackets - s.RxTrimmed + s.Drops[DropTrimmed] // those count as trimmed, too
	for _, d := range s.Drops {
		n -= d
	}
	return int64(n)
}
