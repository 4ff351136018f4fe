package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uetnet/internal/host"
)

// How a stream lies in messages
//
// Each piece of a stream is one tagged message, in order (ROD). The upper byte of the tag is the
// kind of the piece, the others count the pieces, so that a piece that is missing or comes too
// early is seen. A piece has at most maxPiece bytes. The receiver packs pieces into buffers that
// take several messages (FI_MULTI_RECV); what comes while all are full waits in the transport,
// which holds the sender back. The sender copies what is written into a ring, as a kernel does.
const (
	kindData uint64 = iota
	kindEnd         // the sender writes no more; no bytes

	kindShift = 56
	countMask = 1<<kindShift - 1

	maxPiece  = 16 << 10
	ringSize  = 16 * maxPiece // bytes that are written and not acknowledged
	maxPieces = 512           // pieces that are
	bufSize   = 8 * maxPiece  // of one receive buffer
	bufCount  = 2
	entries   = 16 // completions read at once
)

// defaultLinger is how long Close waits for the peer unless Tuning.Linger says otherwise.
const defaultLinger = time.Second

// A Conn is one end of a stream of bytes over a connected endpoint. It is a net.Conn. Reads and
// writes may be concurrent.
//
// Write returns when the bytes are copied, so its error may be that of an earlier Write. A peer
// that does not read holds writers up when its buffers are full. When the peer is gone, the errno of
// the error says how: fi.ESHUTDOWN, fi.EHOSTUNREACH, fi.ETIMEDOUT, … (see uet).
type Conn struct {
	host          *host.Host
	ep            *uet.Endpoint
	rx, tx        *cq.CQ
	events        *eq.EQ
	local, remote net.Addr
	linger        time.Duration

	shut      atomic.Bool // Close was called
	closing   sync.Once
	closed    chan struct{} // closed when the first Close is through
	closedErr error

	rd, wd deadline

	rmu sync.Mutex // guards reader
	reader
	wmu sync.Mutex // guards writer
	writer
}

// reader is the receiving side.
type reader struct {
	bufs   [bufCount][]byte
	batch  [entries]cq.Entry
	next   int // in batch
	have   int
	rest   []byte // of the piece that is being read
	spent  *[]byte
	count  uint64 // of the next piece
	ended  bool   // the peer writes no more
	rerr   error  // final
	silent int    // receives that failed since the last piece
}

// writer is the sending side.
type writer struct {
	ring       []byte
	head, tail uint64 // of the bytes in use, which lie at these numbers modulo len(ring)
	pieces     [maxPieces]piece
	first, out int // pieces in use
	sent       uint64
	finished   bool // CloseWrite
	werr       error
}

// A piece is a message under way, and the context of its completion.
type piece struct {
	room uint64 // bytes of the ring, those before it at the end of the ring included
	done bool
}

// newConn opens an endpoint with its queues for info, on a use of h that it takes over.
func newConn(h *host.Host, info *uet.Info) (c *Conn, err error) {
	c = &Conn{host: h, closed: make(chan struct{}), linger: info.Config.Tuning.Linger}
	if c.linger == 0 {
		c.linger = defaultLinger
	}
	undo := host.Closers{h.Release}
	defer func() {
		if err != nil {
			undo.Close()
		}
	}()
	wait := fi.WaitUnspec
	if c.events, err = h.Fabric.OpenEQ(eq.Attr{WaitObj: wait}, nil); err != nil {
		return nil, err
	}
	undo = append(undo, c.events.Close)
	if c.rx, err = h.Domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: wait, Size: 1024}, nil); err != nil {
		return nil, err
	}
	undo = append(undo, c.rx.Close)
	if c.tx, err = h.Domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: wait, Size: 2 * maxPieces}, nil); err != nil {
		return nil, err
	}
	undo = append(undo, c.tx.Close)
	if c.ep, err = h.Domain.OpenEndpoint(info, nil); err != nil {
		return nil, err
	}
	undo = append(undo, c.ep.Close)
	err = errors.Join(c.ep.BindCQ(c.rx, fi.Recv), c.ep.BindCQ(c.tx, fi.Transmit), c.ep.BindEQ(c.events), c.ep.Enable(), c.ep.SetOpt(fi.OptMinMultiRecv, maxPiece))
	if err != nil {
		return nil, err
	}
	name, err := c.ep.Name()
	if err != nil {
		return nil, err
	}
	c.local = Addr{name}
	c.rd.init()
	c.wd.init()
	c.ring = make([]byte, ringSize)
	for i := range c.bufs {
		c.bufs[i] = make([]byte, bufSize)
		if err = c.post(&c.bufs[i]); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// connected waits for the end of Connect or Accept.
func (c *Conn) connected(ctx context.Context) error {
	e, err := c.events.SReadContext(ctx, 0)
	if errors.Is(err, fi.EAVAIL) {
		bad, err := c.events.ReadErr(0)
		if err != nil {
			return err
		}
		return connError(&bad)
	}
	if err == nil && e.Event != fi.Connected { // the peer left at once: reads say so
		return nil
	}
	return err
}

// Endpoint returns the endpoint below, for Diagnose, Stats and PathInfo. What is posted to it is
// not part of the stream.
func (c *Conn) Endpoint() *uet.Endpoint { return c.ep }

// LocalAddr returns the address of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address that was dialed, or that of the peer's end if it was accepted.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// opErr wraps an error as package net does.
func (c *Conn) opErr(op string, err error) error {
	return &net.OpError{Op: op, Net: Network, Source: c.local, Addr: c.remote, Err: err}
}

// Read reads what has come, at least a byte, and waits for it. io.EOF: the peer closed or called
// CloseWrite. net.ErrClosed: this end is closed. os.ErrDeadlineExceeded: the deadline has passed.
// Otherwise the errno of what ended the connection; what the peer wrote before can be read first.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.read(b)
	if err != nil && err != io.EOF {
		err = c.opErr("read", err)
	}
	return n, err
}

func (c *Conn) read(b []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if err := c.stopped(&c.rd); err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	n := 0
	for n < len(b) {
		if len(c.rest) == 0 {
			c.reuse()
			more, err := c.take(n == 0)
			if err != nil && n == 0 {
				return 0, err
			}
			if !more {
				break
			}
			continue
		}
		k := copy(b[n:], c.rest)
		c.rest = c.rest[k:]
		n += k
	}
	return n, nil
}

// open reports whether there is a connection that nobody closed.
func (c *Conn) open() bool { return c.ep != nil && !c.shut.Load() }

// stopped returns why nothing may be read or written now.
func (c *Conn) stopped(d *deadline) error {
	switch {
	case !c.open():
		return net.ErrClosed
	case d.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// take takes the next completion. more says that there was one; without wait it may be none.
func (c *Conn) take(wait bool) (more bool, err error) {
	if c.ended {
		return false, io.EOF
	}
	if c.rerr != nil {
		return false, c.rerr
	}
	for c.next == c.have {
		c.next, c.have = 0, 0
		if wait {
			c.have, err = c.rx.SReadContext(c.rd.ctx(), c.batch[:])
		} else {
			c.have, err = c.rx.Read(c.batch[:])
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded): // whatever the deadline is now
			if c.shut.Load() {
				err = net.ErrClosed
			}
			return false, err
		case errors.Is(err, fi.EAGAIN):
			if !wait {
				return false, nil
			}
		case errors.Is(err, fi.EAVAIL):
			if err := c.failed(); err != nil {
				return false, err
			}
		default:
			return false, c.over(err)
		}
	}
	e := c.batch[c.next]
	c.batch[c.next] = cq.Entry{}
	c.next++
	if e.Flags&fi.MultiRecv != 0 {
		c.spent, _ = e.Context.(*[]byte) // when this piece is read
	}
	if e.Flags&fi.Recv == 0 {
		return true, nil // nothing but the buffer
	}
	if e.Tag&countMask != c.count {
		return false, c.over(fi.EPROTO)
	}
	c.count = (c.count + 1) & countMask
	c.silent = 0
	switch e.Tag >> kindShift {
	case kindData:
		c.rest = e.Buf
	case kindEnd:
		c.ended = true
	default:
		return false, c.over(fi.EPROTO)
	}
	return true, nil
}

// failed takes the error of a receive. The connection has ended, but messages that came before may
// still lie in the transport, for receives that are posted now.
func (c *Conn) failed() error {
	var e cq.Error
	if _, err := c.rx.ReadErr(&e, 0); err != nil {
		return c.over(err)
	}
	buf, _ := e.Context.(*[]byte)
	if c.silent++; buf == nil || c.silent > bufCount {
		return c.over(e.Err)
	}
	return c.over(c.post(buf))
}

// over sets the final error of reads. Nothing becomes of nil.
func (c *Conn) over(err error) error {
	if err != nil {
		c.rerr = err
	}
	return err
}

// reuse posts a buffer again that is used up and read.
func (c *Conn) reuse() {
	if c.spent != nil {
		_ = c.over(c.post(c.spent))
		c.spent = nil
	}
}

// post posts a receive buffer.
func (c *Conn) post(buf *[]byte) error {
	return c.ep.TRecvMsg(&uet.TMsg{Iov: [][]byte{*buf}, Addr: fi.AddrUnspec, Ignore: ^uint64(0), Context: buf}, fi.MultiRecv|fi.Completion)
}

// Write writes b. It returns when all of it is copied, and waits while the peer is behind.
// net.ErrClosed: this end is closed. fi.ESHUTDOWN: CloseWrite was called, or the peer is gone.
// os.ErrDeadlineExceeded: the deadline has passed; the bytes that Write counted are under way.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if err != nil {
		err = c.opErr("write", err)
	}
	return n, err
}

func (c *Conn) write(b []byte) (n int, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.stopped(&c.wd); err != nil {
		return 0, err
	}
	if c.finished {
		return 0, fi.ESHUTDOWN
	}
	for n < len(b) {
		k := min(len(b)-n, maxPiece)
		if err := c.send(c.wd.ctx, kindData, b[n:n+k]); err != nil {
			if c.shut.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
				err = net.ErrClosed
			}
			return n, err
		}
		n += k
	}
	return n, nil
}

// send posts a copy of b when there is room.
func (c *Conn) send(ctx func() context.Context, kind uint64, b []byte) error {
	for c.werr == nil {
		if at, room, ok := c.room(len(b)); ok {
			err := c.piece(kind, c.ring[at:at+copy(c.ring[at:], b)], room)
			if !errors.Is(err, fi.EAGAIN) {
				return err
			}
			soon, stop := context.WithTimeout(ctx(), time.Millisecond) // there may be nothing to wait for
			_ = c.reap(soon)
			stop()
			if err := ctx().Err(); err != nil {
				return err
			}
			continue
		}
		if err := c.reap(ctx()); err != nil {
			return err
		}
	}
	return c.werr
}

// room returns where k bytes in one part of the ring are free, and how many bytes of it they take.
func (c *Conn) room(k int) (at int, room uint64, ok bool) {
	size := uint64(len(c.ring))
	at, room = int(c.tail%size), uint64(k)
	if at+k > len(c.ring) {
		at, room = 0, room+size-uint64(at)
	}
	return at, room, c.out < maxPieces && c.tail+room-c.head <= size
}

// piece posts bytes of the ring.
func (c *Conn) piece(kind uint64, b []byte, room uint64) error {
	p := &c.pieces[(c.first+c.out)%maxPieces]
	*p = piece{room: room}
	err := c.ep.TSend(b, 0, kind<<kindShift|c.sent, p)
	switch {
	case errors.Is(err, fi.EAGAIN):
		return err
	case err != nil:
		return c.broken(err)
	}
	c.sent = (c.sent + 1) & countMask
	c.out++
	c.tail += room
	return nil
}

// broken sets the final error of writes.
func (c *Conn) broken(err error) error {
	if c.werr == nil {
		c.werr = err
	}
	return c.werr
}

// reap waits for the end of pieces.
func (c *Conn) reap(ctx context.Context) error {
	var done [entries]cq.Entry
	k, err := c.tx.SReadContext(ctx, done[:])
	for _, e := range done[:k] {
		e.Context.(*piece).done = true
	}
	switch {
	case err == nil, errors.Is(err, fi.EAGAIN):
	case errors.Is(err, fi.EAVAIL):
		var e cq.Error
		if _, err := c.tx.ReadErr(&e, 0); err != nil {
			return c.broken(err)
		}
		if p, ok := e.Context.(*piece); ok {
			p.done = true
		}
		_ = c.broken(e.Err)
	default:
		return err
	}
	for c.out > 0 && c.pieces[c.first].done {
		c.head += c.pieces[c.first].room
		c.first = (c.first + 1) % maxPieces
		c.out--
	}
	return c.werr
}

// CloseWrite says that this end writes no more: the peer reads io.EOF after what was written.
// This end can still read.
func (c *Conn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	err := c.stopped(&c.wd)
	if err == nil {
		err = c.finish(c.wd.ctx)
	}
	if err != nil {
		return c.opErr("close", err)
	}
	return nil
}

// finish sends the end of the stream.
func (c *Conn) finish(ctx func() context.Context) error {
	if c.finished {
		return nil
	}
	err := c.send(ctx, kindEnd, nil)
	c.finished = err == nil
	return err
}

// Close ends the stream. What was written is delivered first: Close waits for the peer's transport,
// Tuning.Linger (a second) at most, and drops the rest then. Reads and writes that wait fail with
// net.ErrClosed.
func (c *Conn) Close() error {
	if c.ep == nil { // nobody opened it
		return c.opErr("close", net.ErrClosed)
	}
	first := false
	c.closing.Do(func() {
		first = true
		c.shut.Store(true)
		c.rd.end()
		c.wd.end()
		c.closedErr = c.close()
		close(c.closed)
	})
	if !first {
		<-c.closed
		return c.opErr("close", net.ErrClosed)
	}
	if c.closedErr != nil {
		return c.opErr("close", c.closedErr)
	}
	return nil
}

func (c *Conn) close() error {
	c.wmu.Lock()
	if c.linger > 0 {
		limit, stop := context.WithTimeout(context.Background(), c.linger)
		wait := func() context.Context { return limit }
		if err := c.finish(wait); err == nil {
			for c.out > 0 && c.reap(limit) == nil {
				continue
			}
		}
		stop()
	}
	c.wmu.Unlock()
	_ = c.ep.Shutdown() // it fails if the peer has left
	c.rmu.Lock()        // no read is under way
	defer c.rmu.Unlock()
	c.rerr = net.ErrClosed
	return errors.Join(c.ep.Close(), c.rx.Close(), c.tx.Close(), c.events.Close(), c.host.Release())
}

// SetDeadline sets the deadlines of reads and writes, those that wait now included. The zero time
// stands for none.
func (c *Conn) SetDeadline(t time.Time) error {
	if !c.open() {
		return c.opErr("set", net.ErrClosed)
	}
	c.rd.set(t)
	c.wd.set(t)
	return nil
}

// SetReadDeadline sets the deadline of reads.
func (c *Conn) SetReadDeadline(t time.Time) error {
	if !c.open() {
		return c.opErr("set", net.ErrClosed)
	}
	c.rd.set(t)
	return nil
}

// SetWriteDeadline sets the deadline of writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	if !c.open() {
		return c.opErr("set", net.ErrClosed)
	}
	c.wd.set(t)
	return nil
}

var _ net.Conn = (*Conn)(nil)
