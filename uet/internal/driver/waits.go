package driver

import "time"

const (
	// Another thread takes the processor for whole slices, of 0.7 to 4 ms, if the application lost
	// lostTaken more in gaps and waits than 1/2^lostShift of the time: with one such thread it
	// loses half. The application, its runtime and the host lose some milliseconds now and then,
	// and of a longer gap lostOnce counts.
	// Once the windows are large it may lose little, so 1/2^keptShift is enough to go on. At most
	// lostMost counts, so that it is known in 3 s that the other thread has gone. All are
	// arbitrary.
	lostTaken = 50 * time.Millisecond
	lostMost  = 80 * time.Millisecond
	lostOnce  = 5 * time.Millisecond
	// A reader that naps because of a long yield has the Conn tell only if lostAsk was lost. A
	// thread gets a short slice if lostSure was: that takes more than one gap.
	lostAsk              = 5 * time.Millisecond
	lostSure             = 2 * lostOnce
	lostShift, keptShift = 3, 5
	// takenTry is for how long the Conn tells how long trains wait after there was a reason to ask.
	takenTry = 50 * time.Millisecond
)

// waits is what is known of trains that wait in the socket because another thread has the
// processor. The Conn tells how long they do only while there is a reason to ask, because it
// costs more for each train. A round trip that includes such a wait says nothing about the path,
// and a window that is used up in less leaves the peer idle (FEP.Taken).
type waits struct {
	told  bool          // the Conn tells
	none  bool          // it cannot
	taken bool          // the core was told that the processor is taken
	until time.Duration // until when the Conn tells
	lost  time.Duration // time that was lost, less a part of the time
	at    time.Duration // when lost was computed
}

// lose counts time that the application lost, and concludes.
func (d *Driver) lose(now, took time.Duration) {
	w := &d.waits
	w.lost = min(w.left(now)+min(took, lostOnce), lostMost)
	w.at = now
	if taken := w.lost >= lostTaken || w.taken && w.lost > 0; taken != w.taken {
		w.taken = taken
		d.core.Taken(taken)
	}
	if w.taken {
		d.ask(now)
	}
}

// left is what lost is now.
func (w *waits) left(now time.Duration) time.Duration {
	shift := lostShift
	if w.taken {
		shift = keptShift
	}
	return max(w.lost-(now-w.at)>>shift, 0)
}

// ask has the Conn tell how long trains wait, for a while.
func (d *Driver) ask(now time.Duration) {
	w := &d.waits
	w.until = now + takenTry
	if w.told || w.none {
		return
	}
	if w.told = d.conn.Stamps(true); !w.told {
		w.none = true
	} else if d.told.paused {
		d.pause(false) // the core is told the time instead
	}
}

// waited tells the core how long the train in the slab waited. woken says that it ended a Nap.
func (d *Driver) waited(now time.Duration, woken bool) {
	w, took := &d.waits, d.turns.slab.Waited
	if woken && took > longGap {
		d.lose(now, took)
	} else if w.taken {
		d.lose(now, 0)
	}
	if now > w.until {
		w.told, took = false, 0
		d.conn.Stamps(false)
	}
	d.core.Waited(took)
}
