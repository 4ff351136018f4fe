package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A lifeKey names one life of a PDC: the source address, the initiator's PDCID and the
// Start_PSN. A SYN packet tells them all, so it names the PDC that it opens (UE 3.5.8). The
// source port is not part of it: it is entropy, and an initiator may change it from packet to
// packet while it opens a PDC.
type lifeKey struct {
	addr   netip.Addr
	spdcid uint16
	start  wire.PSN
}

// A fepKey names an initiator's PDCID whatever its life. Several FEPs share an IP address. In
// clear packets the source port tells them apart, and two lives are known as such only if
// their SYN packets came from one port. Sealed packets name their sender, so there a fepKey
// has no port.
type fepKey struct {
	remote netip.AddrPort
	spdcid uint16
}

// fepKey returns the fepKey of SYN packets from an address.
func (t *Table) fepKey(from netip.AddrPort, spdcid uint16) fepKey {
	if t.secured() {
		from = netip.AddrPortFrom(from.Addr(), 0)
	}
	return fepKey{from, spdcid}
}

// A quarantine remembers two things for a while: the lives of PDCs that ended, so that late
// packets of them are neither executed again nor taken for new ones (S-PDC-06); and closed
// PDCIDs, so that they are not reused too soon. A life ends when its PDC is closed, or when
// its SYN is refused with NACK 15: its initiator then sends the same messages in another
// life.
type quarantine struct {
	max     int
	lives   map[lifeKey]life
	ids     map[uint16]time.Duration
	queue   []quarRef // nearly in order of expiry
	head    int
	refused int // lives that were refused
}

// A life is an ended life of a PDC and when it is forgotten. refused says that NACK 15
// ended it.
type life struct {
	until   time.Duration
	who     uint64
	refused bool
}

// A quarRef is one queue entry: a PDCID unless id is 0, a life if isLife, or both.
type quarRef struct {
	key    lifeKey
	id     uint16
	isLife bool
	until  time.Duration
}

// refusedShare limits refused lives to 1/refusedShare of the quarantine: forged ones must
// not keep others from closing.
const refusedShare = 4

func (q *quarantine) init(max int) {
	q.max = max
	q.lives = make(map[lifeKey]life)
	q.ids = make(map[uint16]time.Duration)
}

func (q *quarantine) add(now, keep time.Duration, p *PDC) {
	r := quarRef{id: p.id, isLife: !p.initiator && p.rx != nil && p.rx.max != p.start-1, until: now + keep}
	q.ids[p.id] = r.until
	if r.isLife {
		// A life that executed nothing needs no guard: its packets may come again and open a
		// new one.
		r.key = p.life()
		q.lives[r.key] = life{until: r.until, who: p.who}
	}
	q.push(now, r)
}

// addID quarantines a PDCID that a PDC gave up.
func (q *quarantine) addID(now, keep time.Duration, id uint16) {
	q.ids[id] = now + keep
	q.push(now, quarRef{id: id, until: now + keep})
}

// refuse remembers a refused life until keep after its latest packet. It reports false if
// there is no room.
func (q *quarantine) refuse(now, keep time.Duration, k lifeKey) bool {
	if l, ok := q.lives[k]; ok {
		l.until = max(l.until, now+keep)
		q.lives[k] = l
		return true
	}
	if q.refused >= q.max/refusedShare || q.full(now) {
		return false
	}
	q.refused++
	q.lives[k] = life{until: now + keep, refused: true}
	q.push(now, quarRef{key: k, isLife: true, until: now + keep})
	return true
}

func (q *quarantine) push(now time.Duration, r quarRef) {
	q.expire(now)
	q.queue = append(q.queue, r)
}

// full reports whether no further life can be remembered. New PDCs are then refused (NACK
// 04) because their end could not be guarded.
func (q *quarantine) full(now time.Duration) bool {
	q.expire(now)
	return len(q.queue)-q.head >= q.max
}

func (q *quarantine) expire(now time.Duration) {
	for q.head < len(q.queue) && q.queue[q.head].until <= now {
		r := q.queue[q.head]
		q.head++
		if r.id != 0 && q.ids[r.id] == r.until {
			delete(q.ids, r.id)
		}
		if !r.isLife {
			continue
		}
		switch l := q.lives[r.key]; {
		case l.until > now:
			// It was refused again since.
			q.queue = append(q.queue, quarRef{key: r.key, isLife: true, until: l.until})
		default:
			if l.refused {
				q.refused--
			}
			delete(q.lives, r.key)
		}
	}
	if q.head > 1024 && q.head*2 > len(q.queue) {
		n := copy(q.queue, q.queue[q.head:])
		q.queue, q.head = q.queue[:n], 0
	}
}

func (q *quarantine) hasID(now time.Duration, id uint16) bool {
	until, ok := q.ids[id]
	return ok && until > now
}

// find returns the ended life with a key, if it is remembered.
func (q *quarantine) find(now time.Duration, k lifeKey) (life, bool) {
	if len(q.lives) == 0 {
		return life{}, false
	}
	l, ok := q.lives[k]
	return l, ok && l.until > now
}
