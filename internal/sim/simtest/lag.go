package simtest

import "time"

// This file checks messages that ask for no ACK (docs/decisions/0025): which ones may, and that
// a host with such messages asks for their ACKs in the end.

// lagMost is how many messages in a row may ask for no ACK.
const lagMost = 7

// lagRest is the longest time for which a host leaves such messages open when its application
// has heard the peer and posts nothing: twice what the FEP allows.
const lagRest = 10 * time.Microsecond

// A talk is the state of a host's exchange with one other host.
type talk struct {
	heard  bool   // data came since the last post
	posted uint64 // number of the last post
	had    uint64 // when the newest message came that the application knows of
	lag    *dir   // where the last message that asked for no ACK was sent
}

// asks records that a packet leaves. A packet that asks for an ACK also asks for those before
// it.
func (l *ledger) asks(r *record, d *dir) {
	d.newest = nil
	if r.ar || r.syn || r.class == classCP {
		d.lagged = 0
	}
}

// lags counts the messages that asked for no ACK and were followed by no packet, and checks
// that they may.
func (l *ledger) lags() {
	for _, d := range l.withNewest {
		r, s := &d.newestR, d.newest
		if s == nil {
			continue
		}
		d.newest = nil
		w, h, o := l.w, d.host, s.op
		if h.FEP == nil || h.FEP.Queued() > 0 || !r.som || !r.eom {
			continue // a window is closed, so an ACK is on its way
		}
		if d.lag = uint32(len(d.sent)) - 1; d.below >= d.lag {
			d.lagged = 0 // none of them is on its way any more
		}
		d.lagged++
		w.lagged++
		w.lagRow = max(w.lagRow, d.lagged)
		h.talks[d.peer.Index].lag = d
		why := ""
		switch {
		case r.dc:
			why = "delivery is waited for"
		case !o.answers:
			why = "it answers nothing"
		case d.ragged:
			why = "something is missing"
		case d.lagged > lagMost:
			why = "too many did"
		default:
			continue
		}
		w.Failf("%s asks for no ACK of %v, though %s: %s", h.Name(), o, why, r)
	}
	l.withNewest = l.withNewest[:0]
}

// lagRefused notes a NACK of the last message that asked for no ACK. That message is sent again, and
// asks then; whoever waits for its ACK before asks in vain. Those before it are to be asked for as
// before.
func (l *ledger) lagRefused(r *record, to *Host) {
	if d := to.talks[r.from.Index].lag; d != nil && d.lagged > 0 && d.id == r.dpdcid && r.psn == d.start+d.lag {
		d.lag--
		d.lagged--
	}
}

// waits checks, at the end of a turn, that the host will soon ask for the ACKs that no message
// asked for, if the application has heard the peer and posted nothing since.
func (h *Host) waits(now time.Duration) {
	if !h.Up() {
		return
	}
	for i := range h.talks {
		t := &h.talks[i]
		d := t.lag
		if d == nil || d.lagged == 0 || t.had < t.posted || d.closed || d.answered.has(d.lag) || h.w.Hosts[i].everDied() {
			continue
		}
		if at := h.FEP.NextTimeout(); at == 0 || at > now+lagRest {
			h.w.Failf("%s leaves PSN %d on %v open, which asked for no ACK: the next timeout is in %v", h.Name(), d.start+d.lag, d, at-now)
		}
	}
}
