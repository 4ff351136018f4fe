package badnet

import (
	"slices"
	"time"
)

// Held has the datagrams that are held back until others have passed, oldest first. The
// zero Held is empty.
type Held[P any] struct {
	list []held[P]
	due  []P
	last Ticket
}

// A Ticket identifies one datagram that was held back. It is never used again.
type Ticket uint32

type held[P any] struct {
	p      P
	ticket Ticket
	by     int // how many must still pass
	until  time.Duration
}

// Len is the number of datagrams that are held back.
func (h *Held[P]) Len() int { return len(h.list) }

// Hold holds p back until by others passed. At the time until, its owner must take it out.
func (h *Held[P]) Hold(p P, by int, until time.Duration) Ticket {
	h.last++
	h.list = append(h.list, held[P]{p, h.last, by, until})
	return h.last
}

// Passed says that a datagram passes. It removes and returns those that enough have passed.
// The slice is valid until the next call of Passed.
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

// Take removes the datagram with the ticket, if it is still held back.
func (h *Held[P]) Take(t Ticket) (P, bool) {
	return h.take(slices.IndexFunc(h.list, func(x held[P]) bool { return x.ticket == t }))
}

// Oldest removes the oldest datagram.
func (h *Held[P]) Oldest() (P, bool) { return h.take(min(len(h.list), 1) - 1) }

func (h *Held[P]) take(i int) (p P, ok bool) {
	if i < 0 {
		return p, false
	}
	p = h.list[i].p
	h.list = slices.Delete(h.list, i, i+1)
	return p, true
}

// Until is the time at which the oldest datagram must go.
func (h *Held[P]) Until() (at time.Duration, ok bool) {
	if len(h.list) == 0 {
		return 0, false
	}
	return h.list[0].until, true
}
