package uetnet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uetnet/internal/host"
)

// Anyone is the source of a message that may come from anywhere.
const Anyone = fi.AddrUnspec

// maxLearned is how many senders that the program does not know get a handle of their own. It
// bounds what strangers can make a node remember.
const maxLearned = 1 << 16

// A Node sends and receives tagged messages: an endpoint of type FI_EP_RDM with a completion
// queue and an address vector.
type Node struct {
	host  *host.Host
	ep    *uet.Endpoint
	done  *cq.CQ
	peers *av.AV
	addr  string

	queue   queue
	learned int // with the lead of queue

	mu     sync.Mutex // guards closed
	closed bool
}

// Open opens a node at a local address: "" (the first interface), an IP address or a host name,
// with a port or without. Port 0, or none, stands for a free one.
//
// fi.ENODATA: no interface has the address, or none meets the options. fi.EADDRINUSE: the port is
// taken. Otherwise the errors of uet.Endpoint.Enable, and of ctx while a name is resolved.
func Open(ctx context.Context, addr string, opts ...Option) (*Node, error) {
	n, err := open(ctx, addr, opts)
	if err != nil {
		return nil, fmt.Errorf("uetnet: open %q: %w", addr, err)
	}
	return n, nil
}

func open(ctx context.Context, addr string, opts []Option) (*Node, error) {
	src, err := host.Resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	hints := &uet.Info{Caps: fi.Msg | fi.Tagged | fi.DirectedRecv | fi.Source | fi.SourceErr, SrcAddr: src}
	for _, o := range opts {
		o(hints)
	}
	n := &Node{}
	if n.host, err = host.Open(hints); err != nil {
		return nil, err
	}
	undo := host.Closers{n.host.Release}
	fail := func(err error) (*Node, error) {
		undo.Close()
		return nil, err
	}
	d, info := n.host.Domain, n.host.Info
	if n.done, err = d.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil); err != nil {
		return fail(err)
	}
	undo = append(undo, n.done.Close)
	if n.peers, err = d.OpenAV(av.Attr{}, nil); err != nil {
		return fail(err)
	}
	undo = append(undo, n.peers.Close)
	if n.ep, err = d.OpenEndpoint(info, nil); err != nil {
		return fail(err)
	}
	undo = append(undo, n.ep.Close)
	if err := errors.Join(n.ep.BindCQ(n.done, fi.Transmit|fi.Recv), n.ep.BindAV(n.peers), n.ep.Enable()); err != nil {
		return fail(err)
	}
	name, err := n.ep.Name()
	if err != nil {
		return fail(err)
	}
	n.addr = name.String()
	n.queue.init(n)
	return n, nil
}

// Addr returns the address of the node, as text for the Peer of other nodes.
func (n *Node) Addr() string { return n.addr }

// Endpoint returns the endpoint below. A program may post operations of its own, with any
// context that is not nil, and take their completions from Completions.
func (n *Node) Endpoint() *uet.Endpoint { return n.ep }

// Domain returns the domain of the endpoint, for memory regions and counters.
func (n *Node) Domain() *uet.Domain {
	if n.host == nil {
		return nil
	}
	return n.host.Domain
}

// Peers returns the address vector of the endpoint.
func (n *Node) Peers() *av.AV { return n.peers }

// Peer returns the handle of the node at an address: what its Addr returned, or a host name or IP
// address with a port. Without a port it stands for port 4793.
//
// fi.EINVAL: not an address. fi.ENODATA: no such host.
func (n *Node) Peer(ctx context.Context, addr string) (fi.Addr, error) {
	if n.host == nil {
		return fi.AddrNotAvail, fmt.Errorf("uetnet: peer: %w", errShut)
	}
	a, err := host.Resolve(ctx, addr)
	if err == nil && !a.IP.IsValid() {
		err = fmt.Errorf("address %q: it names no host: %w", addr, fi.EINVAL)
	}
	if err != nil {
		return fi.AddrNotAvail, fmt.Errorf("uetnet: peer: %w", err)
	}
	return n.peers.InsertString(a.String())
}

// A Message is one that was received.
type Message struct {
	// From is the sender. It can be sent to, also if the program did not know it before. It is
	// fi.AddrNotAvail for senders beyond the first 65,536 that the program did not know.
	From fi.Addr
	Tag  uint64
	// Body is the beginning of the buffer that was given to Recv.
	Body []byte
}

// Send sends a message and waits until the transport of the peer has it. It borrows b until it
// returns.
//
// If ctx ends first, Send returns its error, and the message may arrive or not. Other errors: a
// *cq.Error, whose OutcomeUnknown says whether the message may have arrived, with the errno of
// what happened (fi.ETIMEDOUT, fi.EHOSTUNREACH: the peer is gone); fi.EINVAL: to is not in the
// address vector; fi.EMSGSIZE; net.ErrClosed: the node was closed.
func (n *Node) Send(ctx context.Context, to fi.Addr, tag uint64, b []byte) error {
	if ctx.Done() != nil {
		b = append([]byte(nil), b...) // what is under way cannot be taken back, and the caller may go on
	}
	o := n.queue.get()
	if err := n.post(ctx, func() error { return n.ep.TSend(b, to, tag, o) }); err != nil {
		n.queue.put(o)
		return fmt.Errorf("uetnet: send: %w", err)
	}
	if err := n.queue.wait(ctx, o); err != nil { // o may still end
		_ = n.ep.Cancel(o)
		return fmt.Errorf("uetnet: send: %w", err)
	}
	err := o.err
	n.queue.put(o)
	if err != nil {
		return fmt.Errorf("uetnet: send: %w", n.gone(err, to))
	}
	return nil
}

// Recv waits for a message with that tag from a peer, or from Anyone. b belongs to the node until
// Recv returns.
//
// If ctx ends first, Recv returns its error and has received nothing. A message that has begun to
// arrive by then is received to its end first, so none is lost. Other errors: a *cq.Error with
// fi.ETRUNC: the message was longer than b; fi.EINVAL: from is not in the address vector;
// net.ErrClosed: the node was closed.
func (n *Node) Recv(ctx context.Context, from fi.Addr, tag uint64, b []byte) (Message, error) {
	return n.RecvMatch(ctx, from, tag, 0, b)
}

// RecvMatch is Recv of a message whose tag equals tag in all bits that are 0 in ignore.
func (n *Node) RecvMatch(ctx context.Context, from fi.Addr, tag, ignore uint64, b []byte) (Message, error) {
	o := n.queue.get()
	if err := n.post(ctx, func() error { return n.ep.TRecv(b, from, tag, ignore, o) }); err != nil {
		n.queue.put(o)
		return Message{}, fmt.Errorf("uetnet: receive: %w", err)
	}
	err := n.queue.wait(ctx, o)
	if err != nil {
		_ = n.ep.Cancel(o) // ends it, or it is ending by itself
		if late := n.queue.wait(context.WithoutCancel(ctx), o); late == nil && !errors.Is(o.err, fi.ECANCELED) {
			err = nil // the message came after all
		}
	}
	if err != nil {
		return Message{}, fmt.Errorf("uetnet: receive: %w", err)
	}
	m := Message{From: o.from, Tag: o.entry.Tag, Body: b[:o.entry.Len]}
	err = o.err
	n.queue.put(o)
	if err != nil {
		return m, fmt.Errorf("uetnet: receive: %w", err)
	}
	return m, nil
}

var errShut = fmt.Errorf("the node is closed, or was never opened: Open does: %w", net.ErrClosed)

// gone adds to the error of a send what the errno does not say: who is gone, and what to do.
func (n *Node) gone(err error, to fi.Addr) error {
	at, e := n.peers.Lookup(to)
	switch {
	case e != nil:
		return err
	case errors.Is(err, fi.EHOSTUNREACH):
		return fmt.Errorf("nobody is at %v: start the program there, or correct the address: %w", at.AddrPort(), err)
	case errors.Is(err, fi.ETIMEDOUT):
		return fmt.Errorf("%v is silent: its process, its host or the way to it is gone: %w", at.AddrPort(), err)
	}
	return err
}

// post posts an operation, and waits while there is no room for it.
func (n *Node) post(ctx context.Context, post func() error) error {
	const least, most = 20 * time.Microsecond, time.Millisecond
	if n.host == nil { // nobody opened it
		return errShut
	}
	if n.queue.full() {
		return fi.EOVERRUN
	}
	for wait := least; ; wait = min(2*wait, most) {
		err := post()
		switch {
		case errors.Is(err, fi.EBADF):
			return errShut
		case !errors.Is(err, fi.EAGAIN):
			return err
		}
		if err := n.queue.help(ctx, wait); err != nil {
			return err
		}
	}
}

// A Completion is the end of an operation that the program posted by itself.
type Completion struct {
	cq.Entry
	// From is the source of a receive, as in Message.
	From fi.Addr
}

// Completions yields the ends of the operations that the program posted by Endpoint, in the order
// in which they come. The error of a pair is a *cq.Error if the operation failed. The last pair has
// another error: that of ctx, or net.ErrClosed.
//
// At most 65,536 completions wait while nobody ranges over them; then Send and Recv fail with
// fi.EOVERRUN.
func (n *Node) Completions(ctx context.Context) iter.Seq2[Completion, error] {
	return func(yield func(Completion, error) bool) {
		for n.host != nil {
			c, err := n.queue.next(ctx)
			var failed *cq.Error
			if !yield(c, err) || err != nil && !errors.As(err, &failed) {
				return
			}
		}
	}
}

// Completions yields the entries of a queue of the program's own, with the wait object
// fi.WaitUnspec, as they come. The error of a pair is a *cq.Error if the operation failed; its
// Context is in the entry, too. The last pair has another error: that of ctx, or of the queue.
func Completions(ctx context.Context, q *cq.CQ) iter.Seq2[cq.Entry, error] {
	return func(yield func(cq.Entry, error) bool) {
		var all [batch]cq.Entry
		for {
			k, err := q.SReadContext(ctx, all[:])
			for _, e := range all[:k] {
				if !yield(e, nil) {
					return
				}
			}
			switch {
			case err == nil, errors.Is(err, fi.EAGAIN): // Signal
				continue
			case !errors.Is(err, fi.EAVAIL):
				yield(cq.Entry{}, err)
				return
			}
			e := &cq.Error{}
			if _, err := q.ReadErr(e, 0); errors.Is(err, fi.EAGAIN) {
				continue // another reader has it
			} else if err != nil || e.Err == fi.EOVERRUN {
				yield(cq.Entry{}, errors.Join(err, e))
				return
			}
			if !yield(entryOf(e), e) {
				return
			}
		}
	}
}

// entryOf returns what an error entry has of a completion.
func entryOf(e *cq.Error) cq.Entry {
	return cq.Entry{Context: e.Context, Flags: e.Flags, Len: e.Len, Buf: e.Buf, Data: e.Data, Tag: e.Tag}
}

// Close closes the node. It waits, Tuning.Linger at most, as uet.Endpoint.Close does. Calls that
// wait fail with net.ErrClosed. net.ErrClosed: it is closed already. fi.EBUSY: something that the
// program opened in Domain is still open; the node is closed all the same.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.host == nil {
		return net.ErrClosed
	}
	n.closed = true
	err := n.ep.Close() // all operations have ended when it returns
	n.queue.end()
	return errors.Join(err, n.done.Close(), n.peers.Close(), n.host.Release())
}
