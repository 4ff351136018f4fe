package driver

import (
	"errors"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

const (
	// sendBudget is how many trains one turn sends before it looks at the socket again: about
	// a window on a fast path.
	sendBudget = 16
	// batchLen is the most small trains in one SendBatch. A train of batchWhole bytes or more
	// ends the batch, so that it is sent while it is in the cache.
	batchLen   = 16
	batchWhole = 8 << 10
	// retryWait is how long a train waits after the socket had no room for it.
	retryWait = 50 * time.Microsecond
)

// An outbox has the trains on their way to the socket.
type outbox struct {
	surplus bool                      // the last transmit stopped at its budget
	dead    bool                      // the Conn failed
	unsent  []*dgram.Datagram         // the last ones of slabs, for which the socket had no room
	retryAt time.Duration             // when unsent is to be tried again
	slabs   [batchLen]*dgram.Datagram // the first ones are in use; nil at rest
}

// slab returns the slab for the i-th train of a batch.
func (o *outbox) slab(i int) *dgram.Datagram {
	if o.slabs[i] == nil {
		o.slabs[i] = slabs.get()
	}
	return o.slabs[i]
}

// rest gives the slabs back unless they hold unsent trains.
func (o *outbox) rest() {
	if len(o.unsent) > 0 {
		return
	}
	for i, s := range o.slabs {
		if s == nil {
			break
		}
		slabs.put(s)
		o.slabs[i] = nil
	}
}

// unsent reports whether transmit may have something to do.
func (d *Driver) unsent() bool {
	return d.company.waits || d.out.surplus || len(d.out.unsent) > 0 || d.core.Pending()
}

// transmit sends the trains that the FEP produces, up to a budget.
func (d *Driver) transmit() {
	o, now := &d.out, d.clock.now
	d.company.waits, o.surplus = false, false
	if len(o.unsent) > 0 {
		if !d.sendAll(o.unsent) {
			return
		}
		o.unsent = nil
	}
	for sent := 0; d.core.Transmit(now, o.slab(0)); {
		n := 1
		if d.core.Queued() > 0 {
			n = d.batch()
		}
		if n > 1 || o.dead {
			if !d.sendAll(o.slabs[:n]) {
				return
			}
		} else if err := d.mover.Send(o.slabs[0]); err != nil && !d.unsendable(o.slabs[:1], err) {
			return
		}
		if sent += n; sent >= sendBudget {
			o.surplus = d.core.Pending()
			return
		}
	}
	if now-d.turns.heard > restAfter {
		d.rest()
	}
}

// batch adds trains to the first one for one SendBatch. It returns their number.
func (d *Driver) batch() int {
	n := 1
	for n < batchLen && len(d.out.slabs[n-1].Data) < batchWhole && d.core.Queued() > 0 && d.core.Transmit(d.clock.now, d.out.slab(n)) {
		n++
	}
	return n
}

// sendAll sends trains and reports whether all are gone. Trains that find no room stay in
// unsent, in order, and nothing overtakes them.
func (d *Driver) sendAll(ts []*dgram.Datagram) bool {
	if d.out.dead {
		return true
	}
	n, err := d.mover.SendBatch(ts)
	return n == len(ts) || d.unsendable(ts[n:], err)
}

// unsendable handles err, which the first train of ts met, and then does as sendAll.
func (d *Driver) unsendable(ts []*dgram.Datagram, err error) bool {
	if err == nil || err == dgram.ErrNoRoom {
		d.stats.NoRoom++
		d.out.unsent, d.out.retryAt = ts, d.clock.now+retryWait
		return false
	}
	// The train counts as lost in the network. The protocol sends its packets again.
	d.stats.SendError++
	if errors.Is(err, syscall.EMSGSIZE) {
		d.core.TooLong(d.clock.now, ts[0].Remote, min(len(ts[0].Data), ts[0].Seg))
	}
	d.owner.Trouble(err)
	return len(ts) == 1 || d.sendAll(ts[1:])
}
