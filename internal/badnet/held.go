package badnet

import (
	"slices"
	"time"
)

// Held are the datagrams that others shall overtake, oldest first. The zero Held is
// empty.
type Held[P any] struct {
	list []held[P]
	due  []P
	last Ticket
}

// A Ticket is for one datagram that was held. No other gets it.
type Ticket uint32

type held[P any] struct {
	p      P
	ticket Ticket
	by     int // how many have yet to pass it
	until  time.Duration
}

// Len is how many are held.
func (h *Held[P]) Len() int { return len(h.list) }

// Hold keeps p until by others have passed. Its owner lets it go at the time until.
func (h *Held[P]) Hold(p P, by int, until time.Duration) Ticket {
	h.last++
	h.list = append(h.list, held[P]{p, h.last, by, until})
	return h.last
}

// Passed counts one that passes all that are held, and gives back those that enough
// have passed. The slice is valid until the next call of Passed.
func (h *Held[P]) Passed() []P {
	h.due = h.due[:0]
	for i := range h.list {
		if h.list[i].by--; h.list[i].by <= 0 {
			h.due = append(h.due, h.list[i].p)
		}
	}
	if len(h.due) > 0 {
		h.list = slices.DeleteFunc(h.list, func(x held[P]) bool { return x.by <= 0 })
	}
	return h.due
}

// Take gives back the one with that ticket, if it is still held.
func (h *Held[P]) Take(t Ticket) (P, bool) {
	return h.take(slices.IndexFunc(h.list, func(x held[P]) bool { return x.ticket == t }))
}

// Oldest gives back the oldest.
func (h *Held[P]) Oldest() (P, bool) { return h.take(min(len(h.list), 1) - 1) }

func (h *Held[P]) take(i int) (p P, ok bool) {
	if i < 0 {
		return p, false
	}
	p = h.list[i].p
	h.list = slices.Delete(h.list, i, i+1)
	return p, true
}

// Until is when the oldest is to go.
func (h *Held[P]) Until() (at time.Duration, ok bool) {
	if len(h.list) == 0 {
		return 0, false
	}
	return h.list[0].until, true
}
