package transport

import "time"

// End says that the peers are gone for good: nothing is sent or taken any more
// but a farewell. Every operation ends with a Cancelled event. What arrived whole
// may still be received; a receive that finds nothing ends at once, and sends fail
// with ErrClosed.
func (f *FEP) End(now time.Duration) {
	if f.closed || f.ended {
		return
	}
	f.now = now
	f.ended = true
	f.ses.End()
	f.pds.Abort(now)
	f.heed()
	f.todo.clear()
}
