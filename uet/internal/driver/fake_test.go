package driver

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

func TestMain(m *testing.M) {
	if runtime.GOMAXPROCS(0) == 1 {
		runtime.GOMAXPROCS(2) // with one nobody naps
	}
	goleak.VerifyTestMain(m)
}

var ackBytes = []byte("ack")

var peerAddr = netip.MustParseAddrPort("192.0.2.1:4793")

// fakeCore is a FEP that sends each posted message as one packet with its bytes, makes an
// event of each received train that is a message, and logs the calls. Its lock only guards
// against the test's own look from outside. inside catches two callers at once, which would
// be a bug of the driver.
type fakeCore struct {
	t      *testing.T
	inside sync.Mutex

	mu       sync.Mutex
	log      []string
	quiet    bool // keep no log
	queue    [][]byte
	inflight int
	lingers  int // how often Lingers is true
	apart    bool
	answer   bool
	room     int         // sends and receives it accepts before ErrFull
	deny     func() bool // if not nil, reports whether it has no room now
	refuse   any         // the context of an operation that it refuses as ErrFull
	pending  any         // the context of an operation that Cancel finds
	events   []transport.Event
	ev       transport.Event
	timeout  time.Duration
	ackDue   bool
	paused   bool
	told     time.Duration // by Waited
	taken    bool
	waited   []bool // by train: whether it may have waited in the socket
	onRecv   func() // runs inside Receive

	onAbandon func() // runs inside Abandon
	closed    bool
}

func newCore(t *testing.T) *fakeCore { return &fakeCore{t: t, room: 1 << 20} }

func (f *fakeCore) enter() {
	if !f.inside.TryLock() {
		panic("BUG: two callers in the core")
	}
	f.mu.Lock()
}

func (f *fakeCore) leave() {
	f.mu.Unlock()
	f.inside.Unlock()
}

func (f *fakeCore) note(format string, args ...any) {
	if !f.quiet {
		f.log = append(f.log, fmt.Sprintf(format, args...))
	}
}

func (f *fakeCore) Post(_ time.Duration, op *transport.Op) error {
	f.enter()
	defer f.leave()
	if f.closed {
		return transport.ErrClosed
	}
	if f.room == 0 || f.refuse != nil && f.refuse == op.Context || f.deny != nil && f.deny() {
		return transport.ErrFull
	}
	f.room--
	if op.Kind.Recv() {
		if !f.quiet {
			f.note("recv %v", op.Context)
		}
		return nil
	}
	b := op.Buf
	if op.Inject {
		b = bytes.Clone(b)
	}
	for _, v := range op.Iov {
		b = append(b[:len(b):len(b)], v...)
	}
	if !f.quiet {
		f.note("send %v %q", op.Context, b)
	}
	f.queue = append(f.queue, b)
	f.inflight++
	return nil
}

func (f *fakeCore) Cancel(_ time.Duration, _ transport.EndpointID, context any) bool {
	f.enter()
	defer f.leave()
	if f.pending != context {
		return false
	}
	f.pending = nil
	f.events = append(f.events, transport.Event{Context: context})
	return true
}

func (f *fakeCore) Abandon(_ time.Duration, id transport.PeerID) {
	f.enter()
	defer f.leave()
	f.note("abandon %d", id)
	if f.onAbandon != nil {
		f.onAbandon()
	}
}

func (f *fakeCore) Receive(_ time.Duration, d *dgram.Datagram) {
	f.enter()
	if !f.quiet {
		f.note("receive %q", d.Data)
	}
	f.ackDue = true
	f.waited = append(f.waited, f.paused)
	if len(d.Data) > 0 && d.Data[0] == 'm' { // a message; others are ACKs and the like
		f.events = append(f.events, transport.Event{Kind: transport.OpRecv, Len: len(d.Data)})
	}
	hook := f.onRecv
	f.mu.Unlock()
	if hook != nil {
		hook()
	}
	f.mu.Lock()
	f.leave()
}

func (f *fakeCore) Paused(on bool) {
	f.enter()
	defer f.leave()
	f.paused = on
}

func (f *fakeCore) Waited(d time.Duration) {
	f.enter()
	defer f.leave()
	f.told = d
}

func (f *fakeCore) Taken(on bool) {
	f.enter()
	defer f.leave()
	f.taken = on
}

func (f *fakeCore) Advance(now time.Duration) {
	f.enter()
	defer f.leave()
	f.note("advance")
	f.timeout = 0
}

func (f *fakeCore) Pending() bool { f.enter(); defer f.leave(); return len(f.queue) > 0 }

func (f *fakeCore) Transmit(_ time.Duration, d *dgram.Datagram) bool {
	f.enter()
	defer f.leave()
	d.Reset()
	d.Remote = peerAddr
	switch {
	case len(f.queue) > 0:
		d.Seg = len(f.queue[0])
		for len(f.queue) > 0 && d.Segments() < dgram.MaxSegments && len(d.Data)+len(f.queue[0]) <= dgram.MaxTrain {
			d.Data = append(d.Data, f.queue[0]...)
			f.queue = f.queue[:copy(f.queue, f.queue[1:])]
		}
	default:
		return false
	}
	return true
}

func (f *fakeCore) Flush(time.Duration) {
	f.enter()
	defer f.leave()
	if f.ackDue {
		f.ackDue = false
		f.note("flush")
		f.queue = append(f.queue, ackBytes)
	}
}

func (f *fakeCore) AckAll(now time.Duration) {
	f.note("ack all")
	f.Flush(now)
}

func (f *fakeCore) Events() int { f.enter(); defer f.leave(); return len(f.events) }

func (f *fakeCore) NextEvent() *transport.Event {
	f.enter()
	defer f.leave()
	if len(f.events) == 0 {
		return nil
	}
	f.ev = f.events[0]
	f.events = f.events[:copy(f.events, f.events[1:])]
	return &f.ev
}

func (f *fakeCore) NextTimeout() time.Duration { f.enter(); defer f.leave(); return f.timeout }
func (f *fakeCore) Sends() int                 { f.enter(); defer f.leave(); return f.inflight }
func (f *fakeCore) Answer() bool               { f.enter(); defer f.leave(); return f.answer }
func (f *fakeCore) Apart(on bool)              { f.enter(); defer f.leave(); f.apart = on }
func (f *fakeCore) Owes() bool                 { f.enter(); defer f.leave(); return f.ackDue }
func (f *fakeCore) Queued() int                { f.enter(); defer f.leave(); return len(f.queue) }

func (f *fakeCore) TooLong(_ time.Duration, remote netip.AddrPort, n int) {
	f.enter()
	defer f.leave()
	f.note("too long %v %d", remote, n)
}

func (f *fakeCore) Unreachable(_ time.Duration, remote netip.AddrPort) {
	f.enter()
	defer f.leave()
	f.note("unreachable %v", remote)
}

// Diagnose returns the queued operations, which wait for nothing.
func (f *fakeCore) DiagnoseEndpoint(time.Duration, transport.EndpointID) []transport.Waiting {
	f.enter()
	defer f.leave()
	return make([]transport.Waiting, len(f.queue))
}

func (f *fakeCore) DiagnoseRefused(_ time.Duration, op *transport.Op) transport.Waiting {
	f.enter()
	defer f.leave()
	return transport.Waiting{Context: op.Context, Cause: transport.WaitRoom}
}

func (f *fakeCore) Leave(time.Duration) {
	f.enter()
	defer f.leave()
	f.note("leave")
}

// Lingers takes one of lingers.
func (f *fakeCore) Lingers(_, patience time.Duration) bool {
	f.enter()
	defer f.leave()
	if f.lingers == 0 {
		return false
	}
	f.lingers--
	return true
}

func (f *fakeCore) Flushed() bool { f.enter(); defer f.leave(); return f.inflight == 0 }

func (f *fakeCore) Close(time.Duration) {
	f.enter()
	defer f.leave()
	f.closed = true
	f.note("close")
	f.queue = append(f.queue, []byte("bye"))
}

func (f *fakeCore) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fakeCore) takeLog() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.log
	f.log = nil
	return l
}

// fakeConn is a socket whose network is the test.
type fakeConn struct {
	refuse  func(d *dgram.Datagram) error // the error of sending a train; nil for none
	mu      sync.Mutex
	in      [][]byte
	out     [][]byte
	quiet   bool // discard what is sent
	full    bool // no room to send
	sendOK  int  // with full: how many trains still fit
	gone    []netip.AddrPort
	waits   int
	naps    atomic.Int32
	forgone int           // calls of Forgo
	stamps  bool          // Stamps was called
	held    time.Duration // how long trains wait, with stamps

	stampless bool // Stamps does not work

	broken error // error of Recv and Wait
	closed bool

	ready chan struct{} // something arrived
	wake  chan struct{} // ends a Wait
	rouse chan struct{} // ends a Nap

	sleeping chan struct{} // holds one who is in Wait or Nap; a channel, because a bubble's time passes while one waits for it
}

func newConn() *fakeConn {
	return &fakeConn{ready: make(chan struct{}, 1), wake: make(chan struct{}, 1), rouse: make(chan struct{}, 1), sleeping: make(chan struct{}, 1)}
}

func (c *fakeConn) Recv(d *dgram.Datagram) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.in) == 0 || c.broken != nil {
		return false, c.broken
	}
	d.Data = append(d.Data[:0], c.in[0]...)
	d.Remote = peerAddr
	if c.stamps {
		d.Waited = c.held
	}
	c.in = c.in[:copy(c.in, c.in[1:])]
	return true, nil
}

func (c *fakeConn) Send(d *dgram.Datagram) error {
	if n, err := c.SendBatch([]*dgram.Datagram{d}); n == 1 || err != nil {
		return err
	}
	return dgram.ErrNoRoom
}

func (c *fakeConn) SendBatch(ds []*dgram.Datagram) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range ds {
		if c.full && c.sendOK == 0 {
			return i, nil
		}
		c.sendOK--
		if c.refuse != nil {
			if err := c.refuse(d); err != nil {
				return i, err
			}
		}
		if !c.quiet {
			c.out = append(c.out, append([]byte(nil), d.Data...))
		}
	}
	return len(ds), nil
}

func (c *fakeConn) Wait(timeout time.Duration) error { return c.sleep(timeout, c.wake) }

func (c *fakeConn) sleep(timeout time.Duration, end <-chan struct{}) error {
	c.sleeping <- struct{}{}
	defer func() { <-c.sleeping }()
	c.mu.Lock()
	c.waits++
	n, err := len(c.in), c.broken
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if n > 0 {
		return nil
	}
	var after <-chan time.Time
	if timeout >= 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		after = t.C
	}
	select {
	case <-c.ready:
	case <-end:
	case <-after:
	}
	return nil
}

func (c *fakeConn) Naps() bool { return true }

func (c *fakeConn) Forgo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgone++
}

func (c *fakeConn) Stamps(on bool) bool {
	c.stamps = on && !c.stampless
	return c.stamps
}

func (c *fakeConn) Nap(timeout time.Duration) error {
	c.naps.Add(1)
	return c.sleep(timeout, c.rouse)
}

func (c *fakeConn) Rouse() {
	select {
	case c.rouse <- struct{}{}:
	default:
	}
}

func (c *fakeConn) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *fakeConn) Unreachable() (netip.AddrPort, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.gone) == 0 {
		return netip.AddrPort{}, false
	}
	a := c.gone[0]
	c.gone = c.gone[1:]
	return a, true
}

func (c *fakeConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

// fail breaks the socket for good.
func (c *fakeConn) fail(err error) {
	c.mu.Lock()
	c.broken = err
	c.mu.Unlock()
	c.Wake()
}

func (c *fakeConn) arrive(b ...string) {
	c.mu.Lock()
	for _, s := range b {
		c.in = append(c.in, []byte(s))
	}
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// sent returns and forgets what was sent so far, one string a train.
func (c *fakeConn) sent() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s []string
	for _, b := range c.out {
		s = append(s, string(b))
	}
	c.out = nil
	return s
}

func (c *fakeConn) waited() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits
}

// fakeOwner collects what is delivered.
type fakeOwner struct {
	core    *fakeCore
	mu      sync.Mutex
	events  int
	batches int
	refused []string
	unknown uint64
	trouble []error
	arrived chan struct{}
}

func newOwner(c *fakeCore) *fakeOwner {
	return &fakeOwner{core: c, arrived: make(chan struct{}, 1024), unknown: 666}
}

func (o *fakeOwner) Known(to uint64, _ transport.OpKind, _ int) error {
	if to == o.unknown {
		return transport.ErrNoPeer
	}
	return nil
}

func (o *fakeOwner) Resolve(op *transport.Op, to uint64) error {
	op.Peer = transport.PeerID(to)
	return o.Known(to, op.Kind, 0)
}

func (o *fakeOwner) Deliver(n int) {
	for range n {
		o.core.NextEvent()
	}
	o.mu.Lock()
	o.events += n
	o.mu.Unlock()
	o.delivered()
}

func (o *fakeOwner) Refused(op *transport.Op, err error) {
	o.mu.Lock()
	o.refused = append(o.refused, fmt.Sprintf("%v: %v", op.Context, err))
	o.mu.Unlock()
	o.delivered()
}

func (o *fakeOwner) delivered() {
	o.mu.Lock()
	o.batches++
	o.mu.Unlock()
	select {
	case o.arrived <- struct{}{}:
	default:
	}
}

func (o *fakeOwner) Trouble(err error) {
	o.mu.Lock()
	o.trouble = append(o.trouble, err)
	o.mu.Unlock()
}

func (o *fakeOwner) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.events
}

func (o *fakeOwner) takeRefused() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.refused
	o.refused = nil
	return r
}

// endAtOnce makes each post complete at once.
func (f *fakeCore) endAtOnce() {
	f.set(func() {
		f.deny = func() bool {
			f.events = append(f.events, transport.Event{})
			return false
		}
	})
}
