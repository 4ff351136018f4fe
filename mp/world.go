package mp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A World is this process among its peers: one endpoint, and what all communicators share.
type World struct {
	cfg        Config
	rank, size int
	job        string
	launcher   string
	sealed     bool
	oneHost    bool          // all ranks are on this host
	id         uint32        // the JobID that the program has named, 0 if none
	spin       time.Duration // of waits: 0 is the provider's choice, negative none
	ex         Exchange
	fabric     *uet.Fabric
	domain     *uet.Domain
	ep         *uet.Endpoint
	cq         *cq.CQ
	av         *av.AV
	mr         *uet.MR
	begun      time.Time
	most       int                  // bytes of a message that the provider takes
	instead    func(*request) error // of the provider, for tests without one
	world      *Comm

	drv      driver
	sleepers atomic.Int32 // waiters in parked
	backlog  atomic.Int32 // requests in queues
	copied   atomic.Int64 // bytes of sends that were copied and are not acknowledged
	closed   atomic.Bool
	deaths   atomic.Int32 // ranks found dead

	mu      sync.Mutex // guards what follows
	parked  *waiter
	spare   *waiter
	recvs   *request // receives that the provider has, and those that wait for room
	peers   []peer
	late    queue // receives that the provider had no room for
	leavers []leaver
	comms   map[uint32]*Comm
	ids     contexts
	cuts    uint32         // messages that were cut
	over    []*request     // they end when the lock is let go, with their cause
	aside   sync.WaitGroup // nonblocking collectives; none begins once closed is set
}

// A peer is another rank, or this one.
type peer struct {
	addr   fi.Addr
	known  atomic.Bool // addr is valid
	heard  atomic.Bool // a message of it was received
	host   string
	queued atomic.Int32 // sends in queue
	queue  queue
	failed atomic.Pointer[ErrPeerFailed]
	died   atomic.Bool // it failed, and did not leave
	// sent and got count the messages to and from it, without control messages. A rank that leaves says its
	// own.
	sent, got         atomic.Uint64
	theySent, theyGot uint64 // valid if failed, and not died
	// pinged is when it was last asked for a sign of life; pinging that the answer is due.
	pinged  time.Duration
	pinging bool
}

// A queue holds requests in the order of posting.
type queue struct{ first, last *request }

func (q *queue) add(r *request) {
	if r.qnext = nil; q.first == nil {
		q.first = r
	} else {
		q.last.qnext = r
	}
	q.last, r.queued = r, true
}

func (q *queue) pop() {
	r := q.first
	q.first, r.qnext, r.queued = r.qnext, nil, false
}

func (q *queue) remove(r *request) bool {
	var before *request
	for x := q.first; x != nil; before, x = x, x.qnext {
		if x != r {
			continue
		}
		if before == nil {
			q.first = r.qnext
		} else {
			before.qnext = r.qnext
		}
		if q.last == r {
			q.last = before
		}
		r.qnext, r.queued = nil, false
		return true
	}
	return false
}

// Bounds of an endpoint. More sends and receives wait in mp. Beyond aheadMax, collectives do not
// copy: a root that is further ahead of the others fills caches and memory for nothing.
const (
	maxSends    = 2048
	maxRecvs    = 8192
	copiedMax   = 16 << 20 // bytes of copied sends that are not acknowledged
	aheadMax    = 256 << 10
	pingKey     = 0x6d70 // of the region that pings read
	controlLen  = 512
	controlRecv = 16
)

// open makes the endpoint, on a port or, if that is 0, any.
func (w *World) open(port uint16) (err error) {
	hints := &uet.Info{
		Caps: fi.Msg | fi.Tagged | fi.RMA | fi.Send | fi.Recv | fi.Read | fi.RemoteRead,
		Tx:   uet.TxAttr{MsgOrder: fi.OrderSAS, Size: maxSends},
		Rx:   uet.RxAttr{MsgOrder: fi.OrderSAS, Size: maxRecvs},
	}
	hints.Config = w.cfg.Endpoint
	hints.Config.Tuning.Halt = true // messages do not overtake one that failed
	if w.spin == patience {
		hints.Config.Tuning.Crowd = true
	}
	infos, err := uet.GetInfo(w.cfg.Address, "", fi.Source, hints)
	if err != nil {
		return &ErrTransport{"address " + w.cfg.Address, err}
	}
	info := infos[0]
	if port != 0 {
		info.SrcAddr.Port = port
	}
	fail := func(what string, err error) error { return &ErrTransport{what, err} }
	if w.fabric, err = uet.OpenFabric(info, nil); err != nil {
		return fail("fabric", err)
	}
	if w.domain, err = w.fabric.OpenDomain(info, nil); err != nil {
		return fail("domain", err)
	}
	if w.ep, err = w.domain.OpenEndpoint(info, nil); err != nil {
		return fail("endpoint", err)
	}
	if w.cq, err = w.domain.OpenCQ(cq.Attr{Size: maxSends + maxRecvs + 2*controlRecv, Format: fi.CQTagged, WaitObj: fi.WaitUnspec, Spin: w.spin}, nil); err != nil {
		return fail("completion queue", err)
	}
	if w.av, err = w.domain.OpenAV(av.Attr{}, nil); err != nil {
		return fail("address vector", err)
	}
	if err = errors.Join(w.ep.BindCQ(w.cq, fi.Transmit|fi.Recv), w.ep.BindAV(w.av), w.ep.Enable()); err != nil {
		return fail("endpoint", err)
	}
	if w.mr, err = w.domain.RegMR(make([]byte, 1), fi.RemoteRead, 0, pingKey, 0, nil); err != nil {
		return fail("memory region", err)
	}
	for range controlRecv {
		if err = w.listen(w.newRequest(controlLen)); err != nil {
			return fail("control", err)
		}
	}
	return nil
}

// shut closes what is open, in the order that the provider wants.
func (w *World) shut() error {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if w.ep != nil {
		note(w.ep.Close())
	}
	if w.mr != nil {
		note(w.mr.Close())
	}
	if w.cq != nil {
		w.sweep()
		note(w.cq.Close())
	}
	if w.av != nil {
		note(w.av.Close())
	}
	if w.domain != nil {
		note(w.domain.Close())
	}
	if w.fabric != nil {
		note(w.fabric.Close())
	}
	return errors.Join(errs...)
}

// Rank is this process's rank in the world, and Size the number of ranks.
func (w *World) Rank() int { return w.rank }

// Size is the number of ranks.
func (w *World) Size() int { return w.size }

// World is the communicator of all ranks (MPI_COMM_WORLD).
func (w *World) World() *Comm { return w.world }

// Launcher says what started this process: "PMI-1", "PMIx", "Open MPI", "Slurm", "Kubernetes",
// "torchrun", "explicit", "none"; empty with an Exchange.
func (w *World) Launcher() string { return w.launcher }

// Sealed reports whether messages are encrypted and authenticated with a key that Init made.
func (w *World) Sealed() bool { return w.sealed }

// now is the time since Init.
func (w *World) now() time.Duration { return time.Since(w.begun) }

// Close ends the world: it waits until everything sent is acknowledged, or its peer is found
// dead, and tells the launcher that this process ends in order. Receives and other waits that
// are left end with ErrClosed. Close with other ranks still at work is legal; what they send
// to this rank then fails.
func (w *World) Close(ctx context.Context) error {
	w.mu.Lock() // nonblocking collectives begin under it
	was := w.closed.Swap(true)
	w.mu.Unlock()
	if was {
		return ErrClosed
	}
	var errs []error
	w.tellBroken()
	if err := w.flush(ctx); err != nil {
		errs = append(errs, err)
	}
	w.cancelAll(ErrClosed)
	w.bye()
	last, cancel := context.WithTimeout(ctx, byeLimit)
	_ = w.ep.Flush(last) // it is a courtesy
	cancel()
	if err := w.ex.Finalize(ctx); err != nil {
		errs = append(errs, err)
	}
	if err := w.shut(); err != nil {
		errs = append(errs, &ErrTransport{"close", err})
	}
	w.aside.Wait()
	return errors.Join(errs...)
}

// Flush waits until everything that this process sent is acknowledged, or its peer is found
// dead.
func (w *World) Flush(ctx context.Context) error {
	if w.closed.Load() {
		return ErrClosed
	}
	return w.flush(ctx)
}

// byeLimit is how long Close waits for ranks to hear that this one leaves.
const byeLimit = 500 * time.Millisecond

// flush waits until all sends have ended, those that wait in mp too.
func (w *World) flush(ctx context.Context) error {
	for w.backlog.Load() > 0 && w.sendsQueued() {
		if !w.drv.driving.CompareAndSwap(false, true) {
			if err := w.pause(ctx); err != nil {
				return err
			}
			continue
		}
		_ = w.turn(firstLook)
		w.release()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for {
		slice, cancel := context.WithTimeout(ctx, leftEvery)
		err := w.ep.Flush(slice)
		cancel()
		w.poke()
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.closed.Load() {
			w.abandonLeft()
		}
	}
}

// leftEvery is how often Close looks for ranks that have left.
const leftEvery = 200 * time.Millisecond

// abandonLeft gives up what is under way to ranks that have closed their worlds: they have it,
// and the ACK was lost, or will never have it. The provider would find out that they are
// gone, on networks without ICMP after PeerTimeout.
func (w *World) abandonLeft() {
	for rank := range w.peers {
		p := &w.peers[rank]
		if p.failed.Load() != nil && !p.died.Load() && p.known.Load() {
			_ = w.ep.Abandon(p.addr) // fi.EBADF: the endpoint is closed
		}
	}
}

// pause lets a driver that is another goroutine go on for a moment.
func (w *World) pause(ctx context.Context) error {
	t := time.NewTimer(firstLook)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *World) sendsQueued() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.peers {
		if w.peers[i].queue.first != nil {
			return true
		}
	}
	return false
}

// sweep deals with the completions that Close has made.
func (w *World) sweep() {
	for !w.drv.driving.CompareAndSwap(false, true) {
		_ = w.cq.Signal()
		_ = w.pause(context.Background())
	}
	for w.turn(0) == nil {
	}
	w.release()
}

// unlock lets the lock go and ends the requests in over: an end takes the lock itself.
func (w *World) unlock() {
	over := w.over
	w.over = nil
	w.mu.Unlock()
	for _, r := range over {
		r.finish(r.cause)
	}
	if len(over) > 0 {
		w.kick()
	}
}

// end lists a request that the provider does not have.
func (w *World) end(r *request, cause error) {
	w.unlist(r)
	r.cause, r.ending = cause, true
	w.over = append(w.over, r)
}

// reach returns the address of a rank, which is read from its card when first needed.
func (w *World) reach(rank int) (fi.Addr, error) {
	p := &w.peers[rank]
	if p.known.Load() {
		return p.addr, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.Timeout)
	defer cancel()
	raw, err := w.ex.Card(ctx, rank)
	if err != nil {
		return 0, fmt.Errorf("mp: the card of rank %d: %w", rank, err)
	}
	k, err := parseCard(raw)
	if err == nil {
		err = k.fits(w)
	}
	if err != nil {
		return 0, fmt.Errorf("mp: the card of rank %d: %w", rank, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.known.Load() {
		return p.addr, nil
	}
	if p.addr, err = w.av.InsertString(k.addr); err != nil {
		return 0, &ErrTransport{fmt.Sprintf("the address of rank %d, %s", rank, k.addr), err}
	}
	p.host = k.host
	p.known.Store(true)
	return p.addr, nil
}

// start posts a send, or queues it behind those that wait for room. The order of calls is the
// order of posts to a peer.
func (w *World) start(r *request) error {
	p := &w.peers[r.peer]
	if f := p.failed.Load(); f != nil {
		return f
	}
	if w.closed.Load() {
		return ErrClosed
	}
	to, err := w.reach(int(r.peer))
	if err != nil {
		return err
	}
	r.msg.Addr = to
	if p.queued.Load() == 0 {
		if err := w.post(r); err == nil { // r may be in another life by now
			return nil
		} else if !errors.Is(err, fi.EAGAIN) {
			return w.notSent(int(r.peer), err)
		}
	}
	w.mu.Lock()
	p.queue.add(r)
	p.queued.Add(1)
	w.backlog.Add(1)
	w.mu.Unlock()
	return nil
}

// receive posts a receive, or queues it behind those that wait for room.
func (w *World) receive(r *request) error {
	if w.closed.Load() {
		return ErrClosed
	}
	r.since = w.now()
	w.mu.Lock()
	defer w.unlock()
	if w.late.first == nil {
		w.list(r)
		err := w.post(r)
		if err == nil {
			w.vain(r)
			return nil
		}
		if !errors.Is(err, fi.EAGAIN) {
			w.unlist(r)
			return w.refused("receive", err)
		}
	} else {
		w.list(r)
	}
	w.late.add(r)
	w.backlog.Add(1)
	w.vain(r)
	return nil
}

// vain takes a receive from a dead rank back, unless a message of it was waiting.
func (w *World) vain(r *request) {
	if r.peer >= 0 {
		if f := w.peers[r.peer].failed.Load(); f != nil {
			w.cancelLocked(r, f)
		}
	}
}

// notSent is refused of a send. A rank to which a message failed gets no later one.
func (w *World) notSent(rank int, err error) error {
	if !errors.Is(err, fi.ESHUTDOWN) {
		return w.refused("send", err)
	}
	for range 100 { // why is among the completions
		if f := w.peers[rank].failed.Load(); f != nil {
			return f
		}
		if !w.poke() {
			_ = w.pause(context.Background())
		}
	}
	return w.lost(rank, fi.ESHUTDOWN, "a message before it failed")
}

func (w *World) refused(call string, err error) error {
	if errors.Is(err, fi.EBADF) {
		return ErrClosed
	}
	return &ErrTransport{call, err}
}

func (w *World) list(r *request) {
	r.prev, r.next, r.listed = nil, w.recvs, true
	if w.recvs != nil {
		w.recvs.prev = r
	}
	w.recvs = r
}

func (w *World) unlist(r *request) {
	if !r.listed {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		w.recvs = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.listed = nil, nil, false
}

// post gives a request to the provider.
func (w *World) post(r *request) error {
	if r.kind == opSend {
		return w.postSend(r)
	}
	switch {
	case w.instead != nil:
		return w.instead(r)
	case r.kind == opRecv && r.flags == 0:
		return w.ep.TRecv(r.buf, fi.AddrUnspec, r.msg.Tag, r.msg.Ignore, r)
	}
	r.long()
	r.msg.Addr = fi.AddrUnspec
	return w.ep.TRecvMsg(&r.msg, r.flags)
}

// long makes the message of a request for a call with flags.
func (r *request) long() {
	r.msg.Context, r.iov[0] = r, r.buf
	r.msg.Iov = r.iov[:]
}

// postSend is post of a send. r may be in another life when it returns.
func (w *World) postSend(r *request) (err error) {
	p := &w.peers[r.peer]
	switch {
	case w.instead != nil:
		err = w.instead(r)
	case r.flags == 0:
		err = w.ep.TSend(r.buf, r.msg.Addr, r.msg.Tag, r)
	case r.flags == fi.RemoteCQData:
		err = w.ep.TSendData(r.buf, r.msg.Data, r.msg.Addr, r.msg.Tag, r)
	default:
		r.long()
		err = w.ep.TSendMsg(&r.msg, r.flags)
	}
	if err == nil {
		p.sent.Add(1)
	}
	return err
}

// postBacklog posts what waited for room.
func (w *World) postBacklog() {
	w.mu.Lock()
	defer w.unlock()
	for r := w.late.first; r != nil; r = w.late.first {
		err := w.post(r)
		if errors.Is(err, fi.EAGAIN) {
			break
		}
		w.late.pop()
		w.backlog.Add(-1)
		if err != nil {
			w.end(r, w.refused("receive", err))
		}
	}
	for i := range w.peers {
		p := &w.peers[i]
		for r := p.queue.first; r != nil; r = p.queue.first {
			err := w.post(r)
			if errors.Is(err, fi.EAGAIN) {
				return
			}
			if errors.Is(err, fi.ESHUTDOWN) && p.failed.Load() == nil {
				break // its failure is among the completions, and ends the queue
			}
			p.queue.pop()
			p.queued.Add(-1)
			w.backlog.Add(-1)
			switch f := p.failed.Load(); {
			case err == nil:
			case f != nil:
				w.end(r, f)
			default:
				w.end(r, w.refused("send", err))
			}
		}
	}
}

// cancel asks for the end of a request with the error cause, if the provider has not begun
// with it.
func (w *World) cancel(r *request, cause error) {
	w.mu.Lock()
	defer w.unlock()
	w.cancelLocked(r, cause)
}

// cancelLocked is cancel with the lock held. Its caller calls unlock.
func (w *World) cancelLocked(r *request, cause error) {
	if r.done.Load() || r.ending {
		return
	}
	if r.cause == nil {
		r.cause = cause
	}
	if r.kind == opColl {
		r.stop(cause)
		return
	}
	if !r.queued {
		if k := r.first(); k != nil { // the others follow if it can be cancelled
			w.cancelLocked(k, cause)
			return
		}
		_ = w.ep.Cancel(r) // fi.ENOENT: it goes on
		return
	}
	if r.kind == opRecv {
		w.late.remove(r)
	} else {
		p := &w.peers[r.peer]
		p.queue.remove(r)
		p.queued.Add(-1)
	}
	w.backlog.Add(-1)
	w.end(r, r.cause)
}

// takeBack ends a request whose wait has ended. It returns when the provider is done with the
// buffer: at once, or when the message that is under way has passed. The provider bounds that:
// a peer that lives takes the message, or has a header of it, and then it can be cancelled; one
// that does not is given up.
func (w *World) takeBack(r *request, cause error) {
	for !r.done.Load() {
		w.cancel(r, cause)
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
		err := w.wait(ctx, until{one: r})
		stop()
		if errors.Is(err, ErrClosed) { // the provider has let go of all
			if !r.done.Load() {
				r.err = ErrClosed
			}
			return
		}
	}
}

// cancelAll ends all receives.
func (w *World) cancelAll(cause error) {
	w.mu.Lock()
	for r := w.recvs; r != nil; {
		next := r.next
		w.cancelLocked(r, cause)
		r = next
	}
	w.unlock()
	w.poke()
}

// completed deals with the completion of a request.
func (r *request) completed(e *cq.Entry) {
	switch r.kind {
	case opControl:
		r.w.control(r, e.Len)
		return
	case opPing:
		r.w.pinged(r, nil)
		return
	case opRecv, opPeek:
		if r.got(e.Tag, e.Len); r.status.Source >= r.c.size {
			r.finish(&ErrTransport{"receive", fmt.Errorf("a message of rank %d of %d", r.status.Source, r.c.size)})
			return
		}
		p := &r.w.peers[r.c.global(r.status.Source)]
		if !p.heard.Load() {
			p.heard.Store(true)
		}
		if r.kind == opRecv {
			p.got.Add(1)
		}
		if e.Flags&fi.RemoteCQData != 0 && r.marked(e.Data) {
			return
		}
	}
	r.finish(nil)
}

// got fills the status of a receive.
func (r *request) got(tag uint64, n int) {
	r.status = Status{Source: wireRank(tag), Tag: wireUser(tag), Len: n}
}

// marked deals with the remote CQ data of a message: the mark of a collective, or of the first
// part of a message that is cut. It reports whether other parts follow.
func (r *request) marked(data uint64) bool {
	if r.ordered {
		r.mark = data
		return false
	}
	if r.kind == opPeek {
		r.status.Len = int(data & cutLenMask)
		return false
	}
	r.w.recvCut(r, data)
	return true
}

// failed deals with the error of a request.
func (r *request) failed(e *cq.Error) {
	w := r.w
	switch {
	case r.kind == opPing:
		w.pinged(r, e)
		return
	case r.kind == opControl:
		r.free() // the endpoint closes
		return
	case e.Err == fi.ETRUNC && r.kind == opRecv:
		if r.got(e.Tag, e.Len+e.OverLen); r.status.Source < r.c.size {
			r.w.peers[r.c.global(r.status.Source)].got.Add(1)
		}
		if e.Flags&fi.RemoteCQData != 0 && r.status.Source < r.c.size && r.marked(e.Data) {
			return
		}
		r.finish(&ErrTruncated{Len: e.Len + e.OverLen, Room: e.Len})
		return
	case e.Err == fi.ENOMSG && r.kind == opPeek:
		r.finish(errNone)
		return
	case r.kind == opSend && w.peers[r.peer].tookAll():
		r.finish(nil) // it has arrived, and its ACK was lost
		return
	case e.Err == fi.ECANCELED && r.cause != nil:
		r.finish(r.cause)
		return
	case e.Err == fi.ECANCELED && w.closed.Load():
		r.finish(ErrClosed)
		return
	case r.peer >= 0 && w.ofPeer(e.Err), r.kind == opSend && !w.closed.Load():
		// Its peer must not wait for a send that failed, nor get a later one in its place (Tuning.Halt).
		r.finish(w.lost(int(r.peer), e.Err, w.cq.StrError(e.Prov)))
		return
	}
	r.finish(&ErrTransport{"transfer", fmt.Errorf("%w (%s)", e.Err, w.cq.StrError(e.Prov))})
}

// errNone says that a look found no message.
var errNone = errors.New("mp: no message")

// settled deals with a copied send that has ended.
func (w *World) settled(r *request) {
	if n := len(r.buf); r.kind == opSend {
		w.copied.Add(-int64(n))
	}
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return h
}
