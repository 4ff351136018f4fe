package pds

import (
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// synKey is how a target finds the PDC of a SYN packet: the address it came
// from and the initiator's PDCID (UE §3.5.8). The port belongs to it because
// several FEPs share an IP address; SYN packets leave from the main port.
type synKey struct {
	remote netip.AddrPort
	spdcid uint16
}

// quarantine remembers closed PDCs, so that late packets of an old life are
// neither executed again nor taken for a new one (faults.md §2), and closed
// PDCIDs, so that they are not used again too soon.
type quarantine struct {
	max   int
	lives map[synKey]life
	ids   map[uint16]time.Duration
	queue []quarRef // in order of expiry
	head  int
}

type life struct {
	start, max wire.PSN
	until      time.Duration
}

type quarRef struct {
	key    synKey
	id     uint16
	target bool
	until  time.Duration
}

func (q *quarantine) init(max int) {
	q.max = max
	q.lives = make(map[synKey]life)
	q.ids = make(map[uint16]time.Duration)
}

func (q *quarantine) add(now, keep time.Duration, p *PDC) {
	q.expire(now)
	r := quarRef{id: p.id, target: !p.initiator && p.rx != nil && p.rx.max != p.start-1, until: now + keep}
	q.ids[p.id] = r.until
	if r.target {
		// Of a life that executed nothing nothing has to be guarded: its packets
		// may come again and open a new one.
		r.key = synKey{p.remote, p.remoteID}
		q.lives[r.key] = life{start: p.start, max: p.rx.max, until: r.until}
	}
	q.queue = append(q.queue, r)
}

// full reports that no further life can be remembered; new PDCs are refused
// then (NACK 04) because their end could not be guarded.
func (q *quarantine) full(now time.Duration) bool {
	q.expire(now)
	return len(q.queue)-q.head >= q.max
}

func (q *quarantine) expire(now time.Duration) {
	for q.head < len(q.queue) && q.queue[q.head].until <= now {
		r := &q.queue[q.head]
		if q.ids[r.id] == r.until {
			delete(q.ids, r.id)
		}
		if r.target && q.lives[r.key].until == r.until {
			delete(q.lives, r.key)
		}
		q.head++
	}
	if q.head > 1024 && q.head*2 > len(q.queue) {
		n := copy(q.queue, q.queue[q.head:])
		q.queue, q.head = q.queue[:n], 0
	}
}

func (q *quarantine) holdsID(now time.Duration, id uint16) bool {
	until, ok := q.ids[id]
	return ok && until > now
}

// find returns the closed life of a SYN key, if one is remembered.
func (q *quarantine) find(now time.Duration, k synKey) (life, bool) {
	if len(q.lives) == 0 {
		return life{}, false
	}
	l, ok := q.lives[k]
	return l, ok && l.until > now
}
