package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// FlushMode is when a host calls Flush, which sends the ACKs that wait.
type FlushMode uint8

// The modes.
const (
	FlushTurn  FlushMode = iota // at the end of every turn
	FlushLater                  // up to FlushDelay after a turn
	FlushNever                  // not at all: the FEP's timer sends them
)

// A HostSpec describes a host: an endpoint and the driver around it.
type HostSpec struct {
	Config transport.Config // without Local and Paths, which the host sets
	Node   sim.NodeConfig   // without Addr and Ports the host sets them
	// Counters gives the host memory to which others may add, Board memory on which they may write, of
	// BoardSize bytes (default 1 MiB).
	Counters, Board bool
	BoardSize       int
	// Tallies gives it an endpoint with as many receives at a time whose one buffer is counters. Others add to
	// them by operations on the receives.
	Tallies int
	// More are endpoints 1, 2, … of the FEP; that of Config is endpoint 0.
	More  []transport.EndpointConfig
	Paths int // default 1

	// Budget is how many trains a turn receives (default 64).
	Budget     int
	Flush      FlushMode
	FlushDelay time.Duration
	// Lazy is the probability that the packets of a post wait for more posts, LazyDelay how
	// long at most (default 20 µs).
	Lazy      float64
	LazyDelay time.Duration
	// Eager calls Advance in every turn, not only when a timer is due.
	Eager bool
	// Backlog retries posts for which there was no room. Without it they are dropped.
	Backlog bool
	// Busy is how others take the processor of the host away until the network heals. Notices
	// says that the driver sees in a turn that it was away for a while before it.
	Busy    sim.Slices
	Notices bool
	// Memory is how many bytes of memory the host lets others read.
	Memory int
}

// A Host is a FEP, the driver around it and the application on top.
type Host struct {
	Index int
	Node  *sim.Node
	FEP   Endpoint // nil if the host is down
	// TimesRead is how many reads of its memory the host was told of, in all lives.
	TimesRead int
	// Tallied is how many receives of HostSpec.Tallies have ended by an operation.
	Tallied int
	Config  transport.Config
	Closed  bool

	w            *World
	spec         HostSpec
	rng          *rand.Rand
	pool         dgram.Pool
	peers        []transport.PeerID
	last         time.Duration // latest turn
	late         bool          // it told the FEP so
	flushAt      time.Duration
	busy         bool // inside drive
	closing      bool // inside Close
	sends        []*Op
	recvs        []*Op
	reads        []*Op
	memory       []byte   // see expose
	counters     []byte   // see count
	tallies      []byte   // see tally
	board        []byte   // see pin
	prey         []byte   // see feed
	slate        []byte   // see hang
	marked       []uint64 // see mark
	disk         []byte   // what of the board is durable
	regions      []*transport.Region
	removed      bool      // Unregister was called, in any life
	kept         [3][]byte // what board, counters and prey were then, in this life
	backlog      []*Op
	damaged      int // datagrams of this life that came damaged and not trimmed
	trimmed      int // datagrams that came trimmed
	wild         int // datagrams that came trimmed and damaged, perhaps in the header
	dom          *tss.Domain
	gen          uint8 // generation of the key it seals with
	has          uint8 // generation of the newest key it opens with
	epoch        uint16
	refused      int             // the last life to which a target said that its PDC is that of another life
	born         []time.Duration // start of each life
	died         []time.Duration // end of each life
	tookBack     bool            // see takesBack
	withdrew     bool            // a receive was kept for a deferred message that did not come
	deferred     bool            // it has deferred a message
	errRecv      int             // receives that ended in error in this life
	talks        []talk          // state of the exchange with each host in this life
	fences       []*Op           // sends with a fence that no later send has passed
	accessFences bool            // one-sided operations with a fence were posted

	// evs are the source ports by which packets of each host came, in all lives.
	evs map[*Host]map[uint16]bool

	shut map[transport.EndpointID]bool // endpoints that CloseEndpoint closed in this life

	abandoned  []bool // by host: this one abandoned it, in any life
	abandoning int    // host that Abandon runs for, or Any

	onEvent   func(*Op)
	drainLeft func() // ends Drain
}

// Name is the node's name.
func (h *Host) Name() string { return h.Node.Name }

// Addr is the endpoint's address.
func (h *Host) Addr() netip.AddrPort { return h.Node.Addr() }

// Life is the number of the node's life.
func (h *Host) Life() int { return h.Node.Life }

// Diagnose asks the endpoint why operations have not ended. Their contexts are *Op.
func (h *Host) Diagnose() []transport.Waiting { return h.FEP.Diagnose(h.w.Net.Now()) }

// Up reports whether the endpoint exists and is open.
func (h *Host) Up() bool { return h.FEP != nil && !h.Closed }

// start begins a new life: it makes a FEP and attaches it to the node.
func (h *Host) start() {
	cfg := h.spec.Config
	cfg.Local = h.Node.Addr()
	cfg.Paths = h.Node.Ports()
	cfg.NoCRC = h.w.spec.NoCRC
	if cfg.Encapsulation = h.w.spec.Encapsulation; cfg.Echo == nil {
		cfg.Echo = func(uint16) bool { return true }
	}
	cfg.Born = h.w.Net.Now()
	life := uint64(h.Life())
	if h.w.spec.SameRandom {
		life = 0
	}
	if h.w.spec.Secure != transport.SecureNone {
		h.dom = h.domain()
		cfg.TSS = h.dom
		cfg.OneRTT = h.w.spec.Secure == transport.SecureOneRTT
	}
	h.late = false
	if cfg.RendezvousMin > 0 {
		// Nobody guesses a key, also where the rest of a life is drawn as in the one before.
		cfg.Random = rand.New(rand.NewPCG(h.w.spec.Seed^0x6b657973, uint64(h.Index)<<32|uint64(h.Life()))).Uint64
	}
	f, err := transport.New(cfg, rand.New(rand.NewPCG(h.w.spec.Seed^0x666570, uint64(h.Index)<<32|life)))
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	for i, e := range h.spec.More {
		if id, err := f.Open(e); err != nil || int(id) != i+1 {
			panic(fmt.Sprintf("simtest: Open gives endpoint %d: %v", id, err))
		}
	}
	h.asKept()
	h.regions, h.kept = nil, [3][]byte{}
	h.expose(f)
	h.count(f)
	h.tally(f)
	h.pin(f)
	h.feed(f)
	h.hang(f)
	f.Apart(h.Index&1 != 0) // so that both settings meet in every run
	h.FEP, h.Config = f, f.Config()
	h.Closed, h.shut = false, nil
	h.last, h.flushAt = h.w.Net.Now(), 0
	h.damaged, h.trimmed, h.wild = 0, 0, 0
	h.errRecv = 0
	h.onEvent, h.drainLeft = nil, nil
	h.peers = make([]transport.PeerID, len(h.w.Hosts))
	h.talks, h.fences = make([]talk, len(h.w.spec.Hosts)), nil
	if cfg.KnownPeersOnly {
		for i := range h.w.Hosts {
			h.Peer(i)
		}
	}
	h.Node.Attach(h)
	h.born = append(h.born, h.w.Net.Now())
	h.died = append(h.died, 0)
	h.w.note("%s is up, life %d", h.Name(), h.Life())
}

// endpoint is the name of one of the host's endpoints.
func (h *Host) endpoint(id transport.EndpointID) transport.Identity {
	if id == 0 {
		return h.Config.Identity
	}
	return h.spec.More[id-1].Identity
}

// Peer is the PeerID of another host in this life.
func (h *Host) Peer(i int) transport.PeerID {
	if h.peers[i] == transport.NoPeer {
		id, err := h.FEP.Peer(h.w.Hosts[i].Addr(), true)
		if err != nil {
			h.w.Failf("%s: Peer(%v): %v", h.Name(), h.w.Hosts[i].Addr(), err)
		}
		h.FEP.PeerPaths(id, wire.PathPortsOf(h.w.Hosts[i].Node.Ports()))
		h.peers[i] = id
	}
	return h.peers[i]
}

// OnEvent calls f after each event of the host; nil ends that. f may post.
func (h *Host) OnEvent(f func(*Op)) { h.onEvent = f }

// Turn is one turn of the driver (docs/architecture.md#a-turn-and-what-waits).
func (h *Host) Turn(now time.Duration) {
	// docs/faults.md rule 6: after a pause the host receives all that waits before it looks at
	// timers.
	late := h.spec.Notices && h.Node.Late()
	all := late || now-h.last > 100*time.Millisecond
	h.last = now
	if late != h.late {
		h.late = late
		h.FEP.Paused(late)
	}
	d := h.pool.Get()
	for i := 0; (all || i < h.spec.Budget) && h.Node.Recv(d); i++ {
		h.FEP.Receive(now, d)
	}
	h.pool.Put(d)
	if t := h.FEP.NextTimeout(); h.spec.Eager || t != 0 && t <= now {
		h.FEP.Advance(now)
		if t := h.FEP.NextTimeout(); t != 0 && t <= now {
			h.FEP.Advance(now)
			if u := h.FEP.NextTimeout(); u != 0 && u <= t {
				h.w.Failf("%s: Advance(%v) twice leaves NextTimeout at %v", h.Name(), now, u)
			}
		}
	}
	h.drive(now)
	if h.FEP == nil {
		return
	}
	switch h.spec.Flush {
	case FlushTurn:
		h.FEP.Flush(now)
		h.drive(now)
		h.waits(now)
	case FlushLater:
		if h.flushAt == 0 {
			h.flushAt = now + 1 + time.Duration(h.rng.Int64N(int64(h.spec.FlushDelay)+1))
		} else if now >= h.flushAt {
			h.flushAt = 0
			h.FEP.Flush(now)
			h.drive(now)
			h.waits(now)
		}
	}
	h.timer()
}

// Unreachable passes ICMP evidence on to the FEP.
func (h *Host) Unreachable(now time.Duration, remote netip.AddrPort) {
	h.w.note("%s hears that %v is unreachable", h.Name(), remote)
	h.FEP.Unreachable(now, remote)
	h.drive(now)
	h.timer()
}

// all returns the operations of this life.
func (h *Host) all() []*Op { return slices.Concat(h.sends, h.recvs, h.reads) }

// drive transmits packets and reads events until there is neither.
func (h *Host) drive(now time.Duration) {
	if h.busy {
		return // the handler of an event posts: the loop below continues with it
	}
	h.busy = true
	defer func() { h.busy = false }()
	d := h.pool.Get()
	for again, rounds := true, 0; again && h.FEP != nil; rounds++ {
		if rounds > 100_000 {
			h.w.Failf("%s: Transmit does not come to an end", h.Name())
		}
		again = false
		pending := h.FEP.Pending()
		if h.FEP.Transmit(now, d) {
			if !pending {
				h.w.Failf("%s: a train of a FEP with nothing pending", h.Name())
			}
			h.checkTrain(d)
			h.Node.Send(d)
			again = true
		}
		for h.FEP != nil {
			e := h.FEP.NextEvent()
			if e == nil {
				break
			}
			again = true
			h.event(now, *e)
		}
	}
	h.pool.Put(d)
	h.w.ledger.lags()
}

// checkTrain checks that a socket could send a train.
func (h *Host) checkTrain(d *dgram.Datagram) {
	_, echo := dgram.EchoOf(d.Path)
	echo = echo && h.Config.Encapsulation == wire.Standard
	if len(d.Data) == 0 || d.Path >= len(h.Config.Paths) && !echo || !d.Remote.IsValid() {
		h.w.Failf("%s: Transmit gave a train of %d bytes to %v on path %d", h.Name(), len(d.Data), d.Remote, d.Path)
	}
	if n := d.Segments(); n > dgram.MaxSegments || len(d.Data) > dgram.MaxTrain {
		h.w.Failf("%s: Transmit gave a train of %d datagrams, %d bytes", h.Name(), n, len(d.Data))
	}
}

func (h *Host) timer() {
	if h.FEP == nil {
		return
	}
	t := h.FEP.NextTimeout()
	if h.flushAt != 0 && (t == 0 || h.flushAt < t) {
		t = h.flushAt
	}
	h.Node.Timer(t)
}

// Post posts an operation now. If the FEP has no room, a host with a Backlog tries again later,
// and one without returns nil. If the endpoint is closed, Post returns nil.
func (h *Host) Post(s OpSpec) *Op {
	if h.shut[s.From] {
		return nil
	}
	o := h.w.newOp(h, s)
	if h.Node.IsPaused() || len(h.backlog) > 0 || !h.post(o) {
		if !h.spec.Backlog {
			return nil
		}
		o.waiting = true
		h.backlog = append(h.backlog, o)
		if len(h.backlog) == 1 {
			h.retry()
		}
	}
	return o
}

// retry posts the backlog, in order, when there is room again.
func (h *Host) retry() {
	life := h.Life()
	h.w.Net.After(50*time.Microsecond+time.Duration(h.rng.Int64N(int64(time.Millisecond))), func() {
		if h.Life() != life || !h.Up() {
			return
		}
		for len(h.backlog) > 0 && !h.Node.IsPaused() {
			if !h.post(h.backlog[0]) {
				break
			}
			h.backlog[0].waiting = false
			h.backlog = h.backlog[1:]
		}
		if len(h.backlog) > 0 {
			h.retry()
		}
	})
}

func (h *Host) dropBacklog() {
	for _, o := range h.backlog {
		o.waiting = false
	}
	h.backlog = nil
}

// post hands an operation to the FEP and reports whether it was accepted.
func (h *Host) post(o *Op) bool {
	w, now := h.w, h.w.Net.Now()
	if h.FEP == nil {
		panic("simtest: post on a host that is down")
	}
	op := transport.Op{
		Kind: o.Kind, Endpoint: o.From, Tag: o.tag, Ignore: o.ignore, Data: o.data, HasData: o.HasData, Inject: o.Inject, Ordered: o.Ordered,
		Silent: o.Silent, Fence: o.Fence, Level: o.Level, SrcInitiator: o.init, Context: o, Flags: uint64(o.ID) << 8, Absolute: o.Absolute,
	}
	if o.Kind == transport.OpRead {
		op.Key, op.RemoteAddr = MemoryKey, uint64(o.Addr)
		if o.Key != 0 {
			op.Key = o.Key
		}
	}
	op.Idempotent, op.Optimized = o.RUDI, o.Small
	if o.Peer != Any {
		op.Peer = h.Peer(o.Peer)
		to := o.aim()
		op.PIDonFEP, op.RI = to.PIDonFEP, to.RI
	}
	if o.Pieces > 0 {
		op.Iov = split(o.buf, o.Pieces, h.rng)
	} else {
		op.Buf = o.buf
	}
	switch {
	case o.atomic():
		o.operate(&op)
	case o.writes():
		op.Key, op.RemoteAddr = boardKey, uint64(o.Addr)
	}
	if o.Slate && !o.send() {
		op.Key = slateKey
	}
	if o.RUDI {
		op.Key |= wire.MKeyIdempotent
	}
	if o.Small {
		op.Key |= wire.MKeyOptimized
	}
	// The caller may reuse the list of slices once Post returns.
	err := h.FEP.Post(now, &op)
	for i := range op.Iov {
		op.Iov[i] = nil
	}
	switch {
	case err == nil && h.Closed:
		w.Failf("%s: Post after Close was accepted: %v", h.Name(), o)
	case err == nil:
	case errors.Is(err, transport.ErrFull) && !h.Closed, errors.Is(err, transport.ErrClosed) && h.Closed:
		if !o.waiting {
			w.note("%s refuses %v: %v", h.Name(), o, err)
		}
		h.timer() // it may close PDCs
		return false
	default:
		w.Failf("%s: Post(%v): %v", h.Name(), o, err)
	}
	if o.waiting {
		w.progress = now // others ended, perhaps silently, and made room
	}
	w.seq++
	o.PostedAt, o.postSeq, o.Life = now, w.seq, h.Life()
	if o.send() || o.read() {
		t := &h.talks[o.Peer]
		o.answers, t.heard, t.posted = t.heard, false, w.seq
	}
	w.accepted(o)
	if h.spec.Lazy > 0 && h.rng.Float64() < h.spec.Lazy {
		h.Node.Kick(time.Duration(h.rng.Int64N(int64(h.spec.LazyDelay) + 1)))
		return true
	}
	h.drive(now)
	h.timer()
	return true
}

// split cuts a buffer into n parts, some of them empty.
func split(b []byte, n int, rng *rand.Rand) [][]byte {
	var v [][]byte
	for n > 1 {
		k := rng.IntN(len(b) + 1)
		v = append(v, b[:k:k])
		b = b[k:]
		n--
	}
	return append(v, b)
}

// PostAside posts an operation that the checkers know nothing of. Whoever calls it keeps its events from the host.
func (h *Host) PostAside(op *transport.Op) error {
	now := h.w.Net.Now()
	err := h.FEP.Post(now, op)
	h.drive(now)
	h.timer()
	return err
}

// Cancel cancels an operation and reports whether the FEP found it.
func (h *Host) Cancel(o *Op) bool {
	if h.FEP == nil || o.Lost || o.Life != h.Life() {
		return false
	}
	now := h.w.Net.Now()
	found := h.FEP.Cancel(now, o.From, o)
	if o.Ended {
		if found {
			h.w.Failf("%s: Cancel found %v, which has ended", h.Name(), o)
		}
		return false
	}
	if !o.drainer {
		h.w.note("%s cancels %v: %v", h.Name(), o, found)
	}
	if found {
		if o.send() && o.txPieces > 0 && len(o.deferrals) == 0 && !o.refused {
			h.w.Failf("%s: Cancel found %v, of which packets have left", h.Name(), o)
		}
		o.cancel = true
	}
	h.drive(now)
	h.timer()
	if found && !o.Ended {
		h.w.Failf("%s: no event follows the cancel of %v", h.Name(), o)
	}
	return found
}

// Quiesce begins the orderly end of all PDCs that the host has opened.
func (h *Host) Quiesce() {
	now := h.w.Net.Now()
	for i, id := range h.peers {
		if id != transport.NoPeer && i != h.Index {
			h.FEP.Quiesce(now, id)
		}
	}
	h.drive(now)
	h.timer()
}

// Abandon ends all operations to and from another host at once. Nothing of them may be open
// afterwards.
func (h *Host) Abandon(i int) {
	now := h.w.Net.Now()
	h.w.note("%s abandons %s", h.Name(), h.w.Hosts[i].Name())
	posted := h.w.seq
	h.FEP.Abandon(now, h.Peer(i))
	h.abandoned[i] = true
	h.talks[i].lag = nil // its PDC ended
	was := h.busy
	h.busy = true // no packet between Abandon and the last event
	h.abandoning = i
	for e := h.FEP.NextEvent(); e != nil; e = h.FEP.NextEvent() {
		h.event(now, *e)
	}
	h.busy, h.abandoning = was, Any
	for _, o := range h.all() {
		if o.Open() && !o.waiting && o.Peer == i && !(o.Silent && o.send()) && o.postSeq <= posted {
			h.w.Failf("%s: Abandon left %v without an event", h.Name(), o)
		}
	}
	h.drive(now)
	h.timer()
}

// parted reports whether one of two hosts abandoned the other.
func parted(a, b *Host) bool { return a.abandoned[b.Index] || b.abandoned[a.Index] }

// Leave is the first half of Close: every receive ends now, sends go on, and what comes for
// the host's endpoints is refused.
func (h *Host) Leave() {
	now := h.w.Net.Now()
	h.w.note("%s leaves", h.Name())
	if h.shut == nil {
		h.shut = map[transport.EndpointID]bool{}
	}
	for i := range len(h.spec.More) + 1 {
		h.shut[transport.EndpointID(i)] = true
	}
	h.dropBacklog()
	h.closing = true
	h.FEP.Leave(now)
	h.drive(now)
	h.closing = false
	h.timer()
	for _, o := range h.recvs {
		if o.Open() {
			h.w.Failf("%s: Leave left %v without an event", h.Name(), o)
		}
	}
}

// Lingers reports whether there is something to wait for after Leave.
func (h *Host) Lingers(patience time.Duration) bool {
	return h.FEP.Lingers(h.w.Net.Now(), patience)
}

// Close closes the FEP. Every operation ends now (F27), then the last packets leave. No event
// may follow.
func (h *Host) Close() {
	now := h.w.Net.Now()
	h.w.note("%s closes", h.Name())
	h.FEP.Close(now)
	h.busy = true // no packet between Close and the last event
	h.closing = true
	for {
		e := h.FEP.NextEvent()
		if e == nil {
			break
		}
		h.event(now, *e)
	}
	h.busy, h.closing = false, false
	h.Closed = true
	h.died[h.Life()-1] = now
	for _, o := range h.all() {
		if o.Open() && !(o.Silent && o.send()) {
			h.w.Failf("%s: Close left %v without an event", h.Name(), o)
		}
		o.Lost = o.Open()
	}
	h.dropBacklog()
	h.drive(now)
	h.timer()
}

// CloseEndpoint closes one endpoint of the FEP for the rest of the host's life.
func (h *Host) CloseEndpoint(id transport.EndpointID) {
	now := h.w.Net.Now()
	h.w.note("%s closes endpoint %d", h.Name(), id)
	if h.shut == nil {
		h.shut = map[transport.EndpointID]bool{}
	}
	h.shut[id] = true
	h.backlog = slices.DeleteFunc(h.backlog, func(o *Op) bool {
		o.waiting = o.waiting && o.From != id
		return !o.waiting
	})
	h.FEP.CloseEndpoint(now, id)
	h.drive(now)
	h.timer()
	for _, o := range h.recvs {
		if o.From == id && o.Open() {
			h.w.Failf("%s: CloseEndpoint left %v without an event", h.Name(), o)
		}
	}
}

// ReleaseEndpoint closes one endpoint, and has what has not ended of it end at once. Its buffers are then used for
// something else.
func (h *Host) ReleaseEndpoint(id transport.EndpointID) {
	now := h.w.Net.Now()
	h.FEP.LeaveEndpoint(now, id)
	h.CloseEndpoint(id)
	h.w.note("%s releases endpoint %d", h.Name(), id)
	for _, o := range h.sends {
		o.released = o.released || o.From == id && o.Open()
	}
	h.FEP.ReleaseEndpoint(id)
	h.drive(now)
	h.timer()
	for _, o := range h.all() {
		if o.From == id && o.Open() && !(o.Silent && o.send()) {
			h.w.Failf("%s: ReleaseEndpoint left %v without an event", h.Name(), o)
		}
	}
}

// Crash ends the host's life without a farewell. With icmp its machine answers later datagrams
// with ICMP.
func (h *Host) Crash(icmp bool) {
	h.w.note("%s crashes", h.Name())
	if !h.Closed {
		h.died[h.Life()-1] = h.w.Net.Now()
	}
	for _, o := range h.all() {
		if o.Open() {
			o.Lost = true
		}
	}
	h.takesBack()
	h.withdraws()
	h.FEP, h.Closed = nil, false
	h.dropBacklog()
	h.sends, h.recvs, h.reads = nil, nil, nil
	h.Node.Crash(icmp)
}

// Restart gives a crashed or closed host a new life at the same address.
func (h *Host) Restart() {
	if h.FEP != nil {
		h.Crash(false)
	}
	h.start()
}

// event checks and records the end of an operation.
func (h *Host) event(now time.Duration, e transport.Event) {
	w := h.w
	if l, ok := e.Context.(*dealing); ok {
		h.dealt(l, &e)
		return
	}
	if e.Context == any(prey) {
		return
	}
	switch e.Kind {
	case transport.OpRemoteWrite, transport.OpCommitted:
		h.written(e)
		return
	case transport.OpCommit:
		h.persist(e)
		return
	case transport.OpRemoteRead:
		h.TimesRead++
		w.note("%s: %d bytes of it were read", h.Name(), e.Len)
		return
	}
	if e.Context == tallies {
		h.tallied(&e)
		return
	}
	o, ok := e.Context.(*Op)
	switch {
	case !ok:
		w.Failf("%s: event with a foreign context %v", h.Name(), e.Context)
	case h.Closed:
		w.Failf("%s: event after Close for %v", h.Name(), o)
	case o.Host != h || o.Life != h.Life():
		w.Failf("%s: event for an operation of another endpoint: %v", h.Name(), o)
	case o.Ended:
		w.Failf("%s: second event for %v", h.Name(), o)
	case e.Endpoint != o.From:
		w.Failf("%s: event of endpoint %d for %v", h.Name(), e.Endpoint, o)
	case e.Kind != o.Kind || e.Flags != uint64(o.ID)<<8:
		w.Failf("%s: event of kind %d with flags %#x for %v", h.Name(), e.Kind, e.Flags, o)
	case !o.send() && !o.atomic() && !o.writes() && o.Pieces == 0 && len(o.buf) > 0 && (len(e.Buf) != len(o.buf) || &e.Buf[0] != &o.buf[0]):
		w.Failf("%s: event with another buffer for %v", h.Name(), o)
	}
	w.seq++
	o.Ended, o.EndedAt, o.endSeq, o.Event = true, now, w.seq, e
	w.progress = now
	if !o.drainer || e.Cause != transport.Cancelled {
		w.note("%s: %v: %v len %d over %d%s", h.Name(), o, e.Cause, e.Len, e.OverLen, unknown(e))
	}
	w.Net.Note(uint64(o.ID)<<32 | uint64(e.Cause)<<24 | uint64(e.Len))
	if h.accessFences && o.read() && o.OK() && !o.early() {
		h.behindFences(o)
	}
	switch {
	case o.send():
		w.sendEnded(o)
	case o.atomic():
		w.atomicEnded(o)
	case o.writes():
		w.writeEnded(o)
	case o.read():
		w.readEnded(o)
	default:
		w.recvEnded(o)
	}
	if o.match != nil {
		t := &h.talks[o.match.Host.Index]
		t.had = max(t.had, o.match.delivery(h.Life()).allSeq)
		if o.match.Slate {
			h.mark(o.match)
		}
	}
	w.giveBack(o)
	if h.onEvent != nil {
		h.onEvent(o)
	}
	for _, c := range w.talks {
		c.ended(o)
	}
}

func unknown(e transport.Event) string {
	s := ""
	if e.Cause != transport.OK {
		s = fmt.Sprintf(" rc %v nack %v", e.RC, e.Nack)
	}
	if e.Unknown {
		s += " outcome unknown"
	}
	return s
}
