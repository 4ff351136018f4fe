package mp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uetkit/uetkit/fi"
)

// Send sends buf to rank dst. It returns when buf is free: at once for short messages, which
// are copied, else when the peer's transport has the message. It does not say that a receive
// has met it.
func (c *Comm) Send(ctx context.Context, buf []byte, dst, tag int) error {
	r, err := c.send("Send", buf, dst, tag, eagerMax, 0)
	if r == nil || err != nil {
		return err
	}
	_, err = r.wait(ctx)
	return err
}

// Ssend is Send that returns when a receive has met the message (MPI_Ssend).
func (c *Comm) Ssend(ctx context.Context, buf []byte, dst, tag int) error {
	r, err := c.send("Ssend", buf, dst, tag, 0, fi.MatchComplete)
	if r == nil || err != nil {
		return err
	}
	_, err = r.wait(ctx)
	return err
}

// Isend begins a Send. buf is the provider's until the request is done.
func (c *Comm) Isend(buf []byte, dst, tag int) (Request, error) {
	return c.begun(c.send("Isend", buf, dst, tag, smallMax, 0))
}

// Issend begins an Ssend.
func (c *Comm) Issend(buf []byte, dst, tag int) (Request, error) {
	return c.begun(c.send("Issend", buf, dst, tag, 0, fi.MatchComplete))
}

// begun makes a handle of a send. A send that is done already gets a request all the same.
func (c *Comm) begun(r *request, err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	if r == nil {
		r = c.w.newRequest(0)
		r.kind, r.c, r.status = opSend, c, Status{}
		r.done.Store(true)
	}
	return r.handle(), nil
}

// Recv receives a message from rank src, or AnySource, with the tag, or AnyTag. The Status is
// valid also with an ErrTruncated.
func (c *Comm) Recv(ctx context.Context, buf []byte, src, tag int) (Status, error) {
	r, err := c.recv("Recv", buf, src, tag)
	if err != nil {
		return Status{}, err
	}
	return r.wait(ctx)
}

// Irecv begins a Recv. buf is the provider's until the request is done.
func (c *Comm) Irecv(buf []byte, src, tag int) (Request, error) {
	r, err := c.recv("Irecv", buf, src, tag)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

// Sendrecv sends and receives at once, so that ranks that do it to each other do not wait for
// each other in a circle.
func (c *Comm) Sendrecv(ctx context.Context, out []byte, dst, outTag int, in []byte, src, inTag int) (Status, error) {
	r, err := c.recv("Sendrecv", in, src, inTag)
	if err != nil {
		return Status{}, err
	}
	s, err := c.send("Sendrecv", out, dst, outTag, smallMax, 0)
	if err != nil {
		c.w.takeBack(r, err)
		return r.take()
	}
	st, err := r.wait(ctx)
	if s != nil {
		if _, e := s.wait(ctx); err == nil {
			err = e
		}
	}
	return st, err
}

// send begins a send. Messages of up to most bytes are copied, so that the send is done for the
// caller: then it returns nil.
func (c *Comm) send(call string, buf []byte, dst, tag, most int, flags fi.Flags) (*request, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if dst < 0 || dst >= c.size {
		return nil, c.badRank(call, dst)
	}
	if tag < 0 || tag > MaxTag {
		return nil, badTag(call, tag)
	}
	w := c.w
	eager := len(buf) <= min(most, w.most) && flags == 0 && w.copied.Load() < copiedMax
	n := 0
	if eager {
		n = len(buf)
	}
	r := w.newRequest(n)
	r.kind, r.c, r.peer, r.flags, r.status = opSend, c, c.global(dst), flags, Status{}
	r.msg.Tag = wireTag(c.id, c.rank, kindUser, tag)
	if eager {
		r.buf, r.detached = r.mem[:copy(r.mem, buf)], true
		w.copied.Add(int64(n))
	} else {
		r.buf = buf
	}
	start := w.start
	if len(buf) > w.most {
		start = w.sendCut
	}
	if err := start(r); err != nil {
		w.drop(r)
		return nil, err
	}
	if eager {
		return nil, nil
	}
	return r, nil
}

// drop frees a request that was not posted.
func (w *World) drop(r *request) {
	if r.detached {
		w.settled(r)
	}
	r.free()
}

// recv begins a receive.
func (c *Comm) recv(call string, buf []byte, src, tag int) (*request, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	if src != AnySource && (src < 0 || src >= c.size) {
		return nil, c.badRank(call, src)
	}
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		return nil, badTag(call, tag)
	}
	r := c.w.newRequest(0)
	r.kind, r.c, r.peer, r.buf, r.room = opRecv, c, AnySource, buf, len(buf)
	if src != AnySource {
		r.peer = c.global(src)
	}
	r.msg.Tag, r.msg.Ignore = match(c.id, src, kindUser, tag)
	if err := c.w.receive(r); err != nil {
		r.free()
		return nil, err
	}
	return r, nil
}

func (c *Comm) badRank(call string, rank int) error {
	return &ErrArg{call, "rank", rank, fmt.Sprintf("the communicator has %d", c.size)}
}

func badTag(call string, tag int) error {
	return &ErrArg{call, "tag", tag, fmt.Sprintf("not 0 to %d", MaxTag)}
}

// Iprobe reports whether a message that a Recv with these arguments would get has arrived.
func (c *Comm) Iprobe(src, tag int) (Status, bool, error) {
	r, st, err := c.look("Iprobe", src, tag, fi.Peek)
	if err != nil || r == nil {
		return Status{}, false, err
	}
	r.free()
	return st, true, nil
}

// Probe waits for a message that a Recv with these arguments would get.
func (c *Comm) Probe(ctx context.Context, src, tag int) (Status, error) {
	r, st, err := c.lookFor(ctx, "Probe", src, tag, fi.Peek)
	if err != nil {
		return Status{}, err
	}
	r.free()
	return st, nil
}

// A Message is one that a probe has taken out: no other receive or probe finds it.
type Message struct {
	r  *request // nil after Mrecv
	st Status
}

// Status says what the message is.
func (m *Message) Status() Status { return m.st }

// Mprobe is Probe that takes the message out, for Mrecv.
func (c *Comm) Mprobe(ctx context.Context, src, tag int) (*Message, error) {
	r, st, err := c.lookFor(ctx, "Mprobe", src, tag, fi.Peek|fi.Claim)
	if err != nil {
		return nil, err
	}
	return &Message{r, st}, nil
}

// Improbe is Mprobe that does not wait.
func (c *Comm) Improbe(src, tag int) (*Message, bool, error) {
	r, st, err := c.look("Improbe", src, tag, fi.Peek|fi.Claim)
	if err != nil || r == nil {
		return nil, false, err
	}
	return &Message{r, st}, true, nil
}

// Mrecv receives a message that Mprobe took out.
func (m *Message) Mrecv(ctx context.Context, buf []byte) (Status, error) {
	r := m.r
	if r == nil {
		return Status{}, ErrEnded
	}
	m.r = nil
	w := r.w
	r.done.Store(false)
	r.kind, r.buf, r.room, r.flags = opRecv, buf, len(buf), fi.Claim
	r.peer = r.c.global(m.st.Source)
	if err := w.receive(r); err != nil {
		r.free()
		return Status{}, err
	}
	return r.wait(ctx)
}

// look asks the provider for an unexpected message. It returns nil if there is none.
func (c *Comm) look(call string, src, tag int, flags fi.Flags) (*request, Status, error) {
	if err := c.usable(); err != nil {
		return nil, Status{}, err
	}
	if src != AnySource && (src < 0 || src >= c.size) {
		return nil, Status{}, c.badRank(call, src)
	}
	if tag != AnyTag && (tag < 0 || tag > MaxTag) {
		return nil, Status{}, badTag(call, tag)
	}
	w := c.w
	r := w.newRequest(0)
	r.kind, r.c, r.flags, r.peer = opPeek, c, flags, AnySource
	r.msg.Tag, r.msg.Ignore = match(c.id, src, kindUser, tag)
	for {
		err := w.post(r)
		if err == nil {
			break
		}
		if !errors.Is(err, fi.EAGAIN) {
			r.free()
			return nil, Status{}, w.refused(call, err)
		}
		w.poke()
	}
	// The provider answers a look at once: its completion is in the queue.
	if err := w.wait(context.Background(), until{one: r}); err != nil {
		return nil, Status{}, err
	}
	if r.err != nil {
		err := r.err
		r.free()
		if err == errNone {
			err = nil
		}
		return nil, Status{}, err
	}
	return r, r.status, nil
}

// lookFor looks until there is a message. No completion tells of one that arrives, so it looks
// again and again, ever more seldom up to a millisecond.
func (c *Comm) lookFor(ctx context.Context, call string, src, tag int, flags fi.Flags) (*request, Status, error) {
	var t *time.Timer
	pause := 20 * time.Microsecond
	deaths := c.w.deaths.Load()
	for i := 0; ; i++ {
		r, st, err := c.look(call, src, tag, flags)
		if r != nil || err != nil {
			return r, st, err
		}
		err = c.gone(src)
		if src == AnySource && c.w.deaths.Load() != deaths {
			err = c.member() // as a receive from any source
		}
		if err != nil {
			return nil, Status{}, err
		}
		if err := ctx.Err(); err != nil {
			return nil, Status{}, err
		}
		if i < 100 {
			continue
		}
		if t == nil {
			t = time.NewTimer(pause)
			defer t.Stop()
		} else {
			t.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return nil, Status{}, ctx.Err()
		case <-t.C:
		}
		pause = min(2*pause, time.Millisecond)
		c.w.awaits(c, src)
	}
}
