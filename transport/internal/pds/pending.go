package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A pendKey names a PENDING PDC by its initiator and the PDCID there.
type pendKey struct {
	fepKey
	who uint64
}

// A pending is a PDC in the state PENDING (UE 3.5.8): its initiator was asked for another
// Start_PSN and has not used it yet. It has no packets.
type pending struct {
	key    pendKey
	start  wire.PSN // the Start_PSN that was asked for
	until  time.Duration
	asked  wire.PSN      // Start_PSN of the latest packets
	told   uint8         // how many of them were answered, less one for each answerPause
	toldAt time.Duration // when told was counted down

	src          *pendSource
	prev, next   *pending // list of all, oldest first
	sprev, snext *pending // list of the source, oldest first
}

// A pendSource is a source address with PENDING PDCs, in the list of sources with equally
// many.
type pendSource struct {
	addr        netip.Addr
	n           int
	first, last *pending
	prev, next  *pendSource
}

// A sourceList is a list of sources with equally many PENDING PDCs, in the order in which
// they reached that number.
type sourceList struct{ first, last *pendSource }

// A pendTable holds the PENDING PDCs. Their number is bounded in all and for each source. At
// the bound the oldest one of the busiest source makes room (T1), so a source that sends
// many displaces its own. Every step takes constant time.
type pendTable struct {
	m           map[pendKey]*pending
	sources     map[netip.Addr]*pendSource
	first, last *pending
	busy        []sourceList // index is the number of PENDING PDCs of a source
	top         int          // the highest index in use
	free        *pending     // free list, by next
}

// freeAnswers is how many packets with one Start_PSN are answered at once, and answerPause
// after how long another one is. An initiator of ours sends fewer, even if this side reads
// nothing for 0.3 s and then all at once: unagreed, and one for each of its timeouts.
const (
	freeAnswers = 8
	answerPause = time.Millisecond
)

// answer reports whether a packet with that Start_PSN gets an answer now, and counts it if
// so.
func (e *pending) answer(now time.Duration, start wire.PSN) bool {
	if e.asked != start {
		e.asked, e.told = start, 0
	}
	if again := (now - e.toldAt) / answerPause; again > 0 {
		e.told -= uint8(min(again, time.Duration(e.told)))
		e.toldAt = now
	}
	if e.told == freeAnswers {
		return false
	}
	e.told++
	return true
}

func (q *pendTable) len() int { return len(q.m) }

// add makes a PENDING PDC. It removes another if a bound is reached.
func (q *pendTable) add(until time.Duration, key pendKey, start wire.PSN, max, maxPerSource int) *pending {
	if q.m == nil {
		q.m = make(map[pendKey]*pending)
		q.sources = make(map[netip.Addr]*pendSource)
	}
	s := q.sources[key.remote.Addr()]
	switch {
	case s != nil && s.n >= maxPerSource:
		q.remove(s.first)
	case len(q.m) >= max && q.top > 0:
		q.remove(q.busy[q.top].first.first)
	}
	if s == nil || s.n == 0 { // its only one may have been removed
		s = &pendSource{addr: key.remote.Addr()}
		q.sources[s.addr] = s
	}
	e := q.free
	if e != nil {
		q.free = e.next
	} else {
		e = new(pending)
	}
	*e = pending{key: key, start: start, asked: start, until: until, src: s, prev: q.last, sprev: s.last}
	q.m[key] = e
	if q.last != nil {
		q.last.next = e
	} else {
		q.first = e
	}
	q.last = e
	if s.last != nil {
		s.last.snext = e
	} else {
		s.first = e
	}
	s.last = e
	q.rank(s, s.n+1)
	return e
}

// remove frees a PENDING PDC.
func (q *pendTable) remove(e *pending) {
	delete(q.m, e.key)
	s := e.src
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.last = e.prev
	}
	if e.sprev != nil {
		e.sprev.snext = e.snext
	} else {
		s.first = e.snext
	}
	if e.snext != nil {
		e.snext.sprev = e.sprev
	} else {
		s.last = e.sprev
	}
	q.rank(s, s.n-1)
	if s.n == 0 {
		delete(q.sources, s.addr)
	}
	*e = pending{next: q.free}
	q.free = e
}

// rank moves a source to the list of sources with n PENDING PDCs.
func (q *pendTable) rank(s *pendSource, n int) {
	if l := s.n; l > 0 {
		b := &q.busy[l]
		if s.prev != nil {
			s.prev.next = s.next
		} else {
			b.first = s.next
		}
		if s.next != nil {
			s.next.prev = s.prev
		} else {
			b.last = s.prev
		}
		s.prev, s.next = nil, nil
	}
	s.n = n
	if n > 0 {
		for len(q.busy) <= n {
			q.busy = append(q.busy, sourceList{})
		}
		b := &q.busy[n]
		if s.prev = b.last; s.prev != nil {
			s.prev.next = s
		} else {
			b.first = s
		}
		b.last = s
		q.top = max(q.top, n)
	}
	// n changes by one, so this takes one step.
	for q.top > 0 && q.busy[q.top].first == nil {
		q.top--
	}
}

// expire removes PENDING PDCs whose initiator did not come back within New_PDC_Time.
func (q *pendTable) expire(now time.Duration, t *Table) {
	for q.first != nil && q.first.until <= now {
		q.remove(q.first)
		t.Stats.PendingReaped++
	}
}
