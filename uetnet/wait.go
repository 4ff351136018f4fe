package uetnet

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// Who waits reads
//
// One goroutine at a time has the lead: it reads the completion queue, and gives others what is
// theirs. It leaves when it has its own, and one of the others takes over. So a program with one
// goroutine has no hop between the queue and itself.

// batch is how many completions are read at once.
const batch = 16

// maxOthers is how many completions of the program's own may wait for Completions until Send and
// Recv fail.
const maxOthers = 1 << 16

// An op is an operation of Send or Recv, and the context by which its completion is found.
type op struct {
	done  chan struct{} // gets one token when the fields below are set
	entry cq.Entry
	from  fi.Addr
	err   error // a *cq.Error
}

// A queue hands out completions of a node.
type queue struct {
	n     *Node
	lead  chan struct{} // a token, for who reads
	ended chan struct{} // closed with the node

	// The leader's.
	entries [batch]cq.Entry
	from    [batch]fi.Addr

	mu     sync.Mutex
	free   []*op
	others []other
	more   chan struct{} // gets a token when others has something
}

// An other is a completion of an operation that the program posted by itself.
type other struct {
	c   Completion
	err error
}

func (q *queue) init(n *Node) {
	q.n = n
	q.lead, q.ended, q.more = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
}

// get returns an op for one operation. put takes it back when it has ended; one that has not is
// left to the garbage collector.
func (q *queue) get() *op {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := len(q.free); k > 0 {
		o := q.free[k-1]
		q.free = q.free[:k-1]
		return o
	}
	return &op{done: make(chan struct{}, 1)}
}

func (q *queue) put(o *op) {
	o.entry, o.from, o.err = cq.Entry{}, 0, nil
	q.mu.Lock()
	if len(q.free) < batch {
		q.free = append(q.free, o)
	}
	q.mu.Unlock()
}

// end ends all waits: every operation has ended, and the queue is read no more.
func (q *queue) end() { close(q.ended) }

// full reports whether too many completions wait for Completions.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.others) >= maxOthers
}

// wait returns nil when o has ended, or the error of ctx, or net.ErrClosed.
func (q *queue) wait(ctx context.Context, o *op) error {
	for {
		select {
		case <-o.done:
			return nil
		case <-q.ended:
			return q.left(o, net.ErrClosed)
		case <-ctx.Done():
			return q.left(o, ctx.Err())
		case q.lead <- struct{}{}:
		}
		err := q.read(ctx, func() bool { return len(o.done) > 0 })
		<-q.lead
		if err != nil {
			return q.left(o, err)
		}
	}
}

// left returns nil if o has ended all the same, else err.
func (q *queue) left(o *op, err error) error {
	select {
	case <-o.done:
		return nil
	default:
		return err
	}
}

// next returns the next completion that belongs to no op.
func (q *queue) next(ctx context.Context) (Completion, error) {
	for {
		q.mu.Lock()
		some := len(q.others) > 0
		if some {
			x := q.others[0]
			q.others[0] = other{}
			q.others = q.others[1:]
			if len(q.others) > 0 {
				q.tell() // the token stands for all of them
			}
			q.mu.Unlock()
			return x.c, x.err
		}
		q.mu.Unlock()
		select {
		case <-q.more:
			continue
		case <-q.ended:
			return Completion{}, net.ErrClosed
		case <-ctx.Done():
			return Completion{}, ctx.Err()
		case q.lead <- struct{}{}:
		}
		err := q.read(ctx, func() bool { return len(q.more) > 0 })
		<-q.lead
		if err != nil && len(q.more) == 0 {
			return Completion{}, err
		}
	}
}

// help reads completions for others for a while, to make room.
func (q *queue) help(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case q.lead <- struct{}{}:
		err := q.turn(func() (int, error) { return q.n.done.SReadFrom(q.entries[:], q.from[:], 1, most) })
		<-q.lead
		if err != nil {
			return err
		}
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	case <-q.ended:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read reads until met. The caller has the lead.
func (q *queue) read(ctx context.Context, met func() bool) error {
	for !met() {
		if err := q.turn(func() (int, error) { return q.n.done.SReadFromContext(ctx, q.entries[:], q.from[:]) }); err != nil {
			return err
		}
	}
	return nil
}

// turn hands out what one read returns.
func (q *queue) turn(read func() (int, error)) error {
	k, err := read()
	for i := range q.entries[:k] {
		q.give(q.entries[i], q.from[i], nil)
	}
	clear(q.entries[:k])
	switch {
	case err == nil, errors.Is(err, fi.EAGAIN):
		return nil
	case errors.Is(err, fi.EBADF), errors.Is(err, fi.ECANCELED):
		return net.ErrClosed
	case !errors.Is(err, fi.EAVAIL):
		return err
	}
	failed := &cq.Error{}
	if _, err := q.n.done.ReadErr(failed, 0); err != nil {
		return net.ErrClosed
	}
	switch {
	case failed.Err == fi.EOVERRUN && failed.Context == nil:
		return fi.EOVERRUN
	case failed.Err == fi.EADDRNOTAVAIL && failed.Flags&fi.Recv != 0:
		q.give(entryOf(failed), q.learn(failed.ErrData), nil) // a message of somebody new
	default:
		q.give(entryOf(failed), failed.Source, failed)
	}
	return nil
}

// learn gives the sender of a message a handle. The caller has the lead.
func (q *queue) learn(record []byte) fi.Addr {
	if q.n.learned >= maxLearned {
		return fi.AddrNotAvail
	}
	h := [1]fi.Addr{fi.AddrNotAvail}
	if k, err := q.n.peers.InsertRecords([][]byte{record}, h[:], 0, nil); err != nil || k == 0 {
		return fi.AddrNotAvail
	}
	q.n.learned++
	return h[0]
}

// give hands out one completion.
func (q *queue) give(e cq.Entry, from fi.Addr, err error) {
	if o, ok := e.Context.(*op); ok {
		o.entry, o.from, o.err = e, from, err
		o.done <- struct{}{}
		return
	}
	q.mu.Lock()
	q.others = append(q.others, other{Completion{Entry: e, From: from}, err})
	q.tell()
	q.mu.Unlock()
}

// tell says that others has something.
func (q *queue) tell() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}
