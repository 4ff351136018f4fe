package driver

import "github.com/uetkit/uetkit/transport"

// A backlog has the operations of callers that found the lock taken.
type backlog struct {
	stuck  bool     // the oldest request of a queue waits for room in the FEP
	queues [2]queue // sends, receives
}

// receives reports whether operations of kind k are receives. Unlike k.Recv it is inlined here.
func receives(k transport.OpKind) bool { return k >= transport.OpRecv }

// of returns the queue for operations of a kind.
func (b *backlog) of(k transport.OpKind) *queue {
	if receives(k) {
		return &b.queues[1]
	}
	return &b.queues[0]
}

// leave puts an operation into its queue because the lock is taken. If the lock is free by
// then, it posts what is in the queues.
func (d *Driver) leave(op *transport.Op, to uint64, more bool) error {
	if to != NoAddr {
		if err := d.owner.Known(to, op.Kind, op.Bytes()); err != nil {
			return err
		}
	}
	if err := d.work.of(op.Kind).put(op, to, more); err != nil {
		return err
	}
	if d.h.offer() {
		d.served()
		d.unlock()
	}
	return nil
}

// intake posts the requests in the queues. A request that finds no room in the FEP stays,
// and so do those behind it, until a completion makes room: its poster was told that it was
// accepted. Receives are posted first, because the sends may be waiting for receives of the
// peer.
func (d *Driver) intake() {
	d.work.stuck = false
	for i := len(d.work.queues) - 1; i >= 0; i-- {
		q := &d.work.queues[i]
		for r := q.peek(); r != nil; r = q.peek() {
			err := d.postQueued(r)
			if err == transport.ErrFull {
				d.work.stuck = true
				break
			}
			d.stats.Queued++
			if err != nil {
				d.owner.Refused(&r.op, err)
			}
			q.pop()
		}
	}
}

// postQueued posts a request from a queue.
func (d *Driver) postQueued(r *request) error {
	if d.closed {
		return transport.ErrClosed
	}
	d.op = r.op
	err := d.feed(r.to, r.more)
	d.op = transport.Op{}
	return err
}

// abandonQueued cancels the requests to and from a peer that have not reached the FEP.
func (d *Driver) abandonQueued(id transport.PeerID) {
	for i := range d.work.queues {
		gone := d.work.queues[i].remove(func(r *request) bool {
			if r.to == NoAddr {
				return false
			}
			d.op = r.op
			err := d.owner.Resolve(&d.op, r.to) // an error will be reported when it is posted
			return err == nil && d.op.Peer == id
		})
		d.op = transport.Op{}
		for k := range gone {
			d.owner.Refused(&gone[k], ErrCancelled)
		}
	}
}

// cancelQueued cancels a request that waits for room in the FEP.
func (d *Driver) cancelQueued(context any) bool {
	for i := range d.work.queues {
		if op := d.work.queues[i].cancel(context); op != nil {
			d.owner.Refused(op, ErrCancelled)
			return true
		}
	}
	return false
}
