package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// This file is what a FEP does when it has as many PDCs as it may have and somebody lacks one
// (docs/decisions/0068).

// A scarcity is who lacks a PDC.
type scarcity struct {
	at      time.Duration // when to close idle PDCs next; 0: nobody lacks one
	looked  time.Duration // when that was done last
	own     time.Duration // until when this side lacks one, unless it says so again
	others  time.Duration // until when others do
	refused bool          // one of them was refused since looked
	waiting []waiter      // messages without a PDC, in the order in which they get one
	placing bool          // waiting is being looked through
}

// A waiter is a message that waits for a PDC since a time.
type waiter struct {
	h     ses.Handle
	since time.Duration
}

// scarceGap is the least time between two looks at the PDCs that somebody's lack causes, and scarceSend what
// each send that has not ended adds, for a look may go through all of them some times. Both are arbitrary.
const (
	scarceGap  = 100 * time.Microsecond
	scarceSend = 100 * time.Nanosecond
)

// lacks notes that this side, or another, lacks a PDC. Whoever waits says so again within RTOMax.
func (f *FEP) lacks(own bool) {
	s := &f.scarce
	if own {
		s.own = f.now + f.cfg.RTOMax
	} else {
		s.others, s.refused = f.now+2*f.cfg.RTOMax, true
	}
	f.lookForPDCs(s.looked + scarceGap + time.Duration(f.ses.Sends())*scarceSend)
}

// lookForPDCs has Advance look at the PDCs at a time, or now if that is over.
func (f *FEP) lookForPDCs(at time.Duration) {
	s := &f.scarce
	if at = max(at, f.now); s.at == 0 || at < s.at {
		s.at = at
	}
	f.extra, f.ses.Crowded = true, true
}

// awaitPDC has a message wait until a PDC can be opened for it, for PeerTimeout at most.
func (f *FEP) awaitPDC(h ses.Handle) {
	f.scarce.waiting = append(f.scarce.waiting, waiter{h, f.now})
	f.lacks(true)
}

// advanceScarce gives the PDCs that have become free to the messages that wait, and closes idle ones for who still
// lacks one.
func (f *FEP) advanceScarce(now time.Duration) {
	s := &f.scarce
	s.looked, s.at = now, 0
	f.place(now)
	if n := len(s.waiting); n > 0 || now < s.own {
		f.pds.CloseIdle(now, true, max(1, n), f.keeps)
		f.heed()
	}
	if s.refused { // one at a time: who is refused says so with each packet
		s.refused = false
		f.pds.CloseIdle(now, false, 1, f.keeps)
		f.heed()
	}
	if len(s.waiting) > 0 || now < max(s.own, s.others) {
		f.lookForPDCs(now + f.cfg.RTOInit)
		return
	}
	s.at = 0
	f.extra, f.ses.Crowded = f.credit != nil || f.idem.table != nil, false
}

// keeps reports whether a PDC of this side is to stay though nothing is outstanding.
func (f *FEP) keeps(p *pds.PDC) bool { return f.ses.Keeps(p.Slot) }

// place queues the messages for which there is a PDC now. It ends those that have waited for too long. After placeMost
// that found none it looks at no more.
func (f *FEP) place(now time.Duration) {
	s := &f.scarce
	list := s.waiting
	s.waiting, s.placing = nil, true
	failed := 0
	for i, w := range list {
		if failed == placeMost {
			s.waiting = append(s.waiting, list[i:]...)
			break
		}
		switch peer, _, _ := f.ses.Info(w.h); {
		case peer == uint32(NoPeer): // it ended
		case f.requeueNow(now, w.h):
		case now-w.since >= f.cfg.PeerTimeout:
			f.ses.Abandon(w.h, ses.NoResource)
		default:
			failed++
			s.waiting = append(s.waiting, w)
		}
	}
	s.placing = false
}

// placeMost is arbitrary.
const placeMost = 32

// failWaiting ends the messages to a peer that wait for a PDC; NoPeer means all peers.
func (f *FEP) failWaiting(id PeerID, c ses.Cause) {
	keep := f.scarce.waiting[:0]
	for _, w := range f.scarce.waiting {
		if peer, _, _ := f.ses.Info(w.h); id == NoPeer || peer == uint32(id) {
			f.ses.Abandon(w.h, c)
		} else {
			keep = append(keep, w)
		}
	}
	f.scarce.waiting = keep
}
