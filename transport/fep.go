// Package transport is Ultra Ethernet Transport as one state machine, the FEP. It joins
// packet delivery, semantics, congestion management and security over the headers of
// package wire, and carries messages between FEPs over whatever network its caller has.
//
// A FEP does no I/O, starts no goroutine, takes no lock, and reads no clock and no global
// randomness: the same calls give the same results. It serves one caller at a time. The
// caller posts operations (Post), hands in what arrives (Receive), fetches what is to be
// sent (Transmit) and what ended (NextEvent), and calls Advance at NextTimeout. Time is a
// time.Duration since a moment that the caller chooses and that lies before its first call;
// 0 means never.
//
// Simulators and drivers of other networks may embed a FEP. The API follows the needs of
// the engine, without a promise of stability; applications use package uet.
package transport

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport/internal/cms"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// A FEP is the protocol state of one address: its PDCs, its peers and the endpoints that
// share them. PDS processes a request before its endpoint is looked up, because one PDC may
// carry messages for several endpoints (UE 3.5.8).
type FEP struct {
	// The fields that every packet uses come first: they share cache lines and have short
	// offsets (docs/decisions/0011).
	ses   *ses.SES
	pds   *pds.Table
	peers []peer // by PeerID; 0 is NoPeer
	lanes []lane // by pds.PDC.Slot
	now   time.Duration
	out   train
	sec   *tss.Domain // nil means in clear
	notes *notes      // nil unless Config.Notes
	// lendMin is the length from which on a message may go by rendezvous.
	lendMin uint
	// shortMost is the length of the longest message that goes by a peer's short PDC and is not announced.
	shortMost int
	todo      agenda
	form      format
	rx        intake
	talks     talks
	scarce    scarcity
	grants    int32 // 1: this FEP grants credit; a number, so that Flush asks once for this and for turns

	unusual bool // barred or cfg.Datagram
	watched bool // notes are taken, ended, or there is a suspect
	extra   bool // there is credit, idem has a table, or somebody lacks a PDC
	barred  bool // Leave or Close was called
	closed  bool
	ended   bool // End was called
	stats   FEPCounters
	book    book
	purged  uint64 // steps of purge
	hint    hint
	// returning has the PDCs that others opened and that return read data, by peer.
	returning map[PeerID][]*pds.PDC
	pulls     map[PeerID]*pds.PDC // by which what is left of rendezvous sends of a peer is read
	other     bool                // grams or idem may have something to send
	grams     fifo[ses.Handle]    // datagrams to send
	idem      idempotents
	credit    *crediting       // nil without RCCC
	local     []netip.AddrPort // by path
	rng       *rand.Rand
	cfg       Config
}

// New makes a FEP with one endpoint, number 0. rng is the only source of randomness. New
// copies cfg.
func New(cfg Config, rng *rand.Rand) (*FEP, error) {
	drawn := cfg.Random == nil // fill would draw from a seed that is not there yet
	cfg.fill()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &FEP{cfg: cfg, rng: rng, sec: cfg.TSS, peers: make([]peer, 1, 2), unusual: cfg.Datagram}
	f.book.byAddr = make(map[netip.AddrPort]PeerID)
	for _, port := range cfg.Paths {
		f.local = append(f.local, netip.AddrPortFrom(cfg.Local.Addr(), port))
	}
	f.form.init(&cfg)
	f.rx.outer.become(&f.local[0], -1, &f.local[0], &f.local[0]) // any valid value, of no path
	f.rx.in.From, f.rx.seen = f.local[0], &f.rx.in.From
	if f.form.standard {
		f.rx.seen = &f.rx.outer.remote
	}
	if cfg.Notes {
		f.notes, f.watched = &notes{}, true
	}
	cfg.Messages.RNRTimeout, cfg.Messages.Halt, cfg.Messages.FirstAsk, cfg.Seed = cfg.RNRTimeout, cfg.Halt, cfg.PayloadMTU, rng.Uint64()
	if cfg.FirstID == 0 {
		cfg.FirstID = uint16(cfg.Seed>>24) | 1
	}
	if drawn {
		cfg.Random = rng.Uint64
	}
	if cfg.Datagram {
		cfg.RendezvousMin = 0 // nothing can be read
	}
	if f.lendMin = math.MaxUint; cfg.RendezvousMin > 0 {
		f.lendMin = uint(cfg.RendezvousMin)
	}
	f.shortMost = min(cfg.ShortMessage, int(min(f.lendMin, math.MaxInt))-1)
	f.ses = ses.New(cfg.Messages)
	f.pds = pds.New(pds.Config{
		Limits: cfg.Packets, MPRange: cfg.offered(), TxWindow: cfg.MPRange, EarlyBytes: 4 << 20, Paths: len(cfg.Paths),
		Nominal: f.form.overhead + f.form.wrap, RNRTimeout: cfg.RNRTimeout, Born: cfg.Born, Secure: cfg.secure(), Credit: cfg.Congestion != NSCC,
	}, rng, (*owner)(f))
	if cfg.Congestion != NSCC {
		f.startCredit()
	}
	return f, nil
}

// Open adds an endpoint and returns the number that its operations name. Errors: ErrName,
// ErrInUse, ErrEndpoints, ErrClosed.
func (f *FEP) Open(cfg EndpointConfig) (EndpointID, error) {
	if f.todo.void != 0 {
		f.purgeAll()
	}
	id, err := f.ses.Open(cfg)
	return id, mapErr(err)
}

// LeaveEndpoint is Leave for one endpoint, and the first half of CloseEndpoint. The FEP and the other endpoints go on.
func (f *FEP) LeaveEndpoint(now time.Duration, id EndpointID) {
	f.now = now
	f.ses.LeaveEndpoint(id)
	f.queueReturns()
	if f.todo.acked != f.stats.RxData { // else a thousand endpoints that close look at all PDCs a thousand times
		f.AckAll(now)
	}
}

// CloseEndpoint closes one endpoint; the FEP and the other endpoints go on. Each operation
// of the endpoint ends with a Cancelled event, a send with outstanding packets as soon as
// they are answered. The FEP refuses messages that come for the endpoint from now on.
func (f *FEP) CloseEndpoint(now time.Duration, id EndpointID) {
	f.now = now
	ended := f.ses.CloseEndpoint(id)
	f.queueReturns() // operations that it kept are refused
	// The lanes have what others queued, too. So they are purged when half of that has ended, and before their order
	// counts or a place of the endpoint is used again.
	if f.todo.void += ended; ended > 0 && 2*f.todo.void >= f.todo.queued && 4*f.todo.void >= len(f.lanes) {
		f.purgeAll()
	}
}

// ReleaseEndpoint makes the events of all operations that have not ended of an endpoint that was closed.
// The FEP reads and writes no buffer of the endpoint any more; it copies the bytes of packets that have left and
// that it may have to send again.
func (f *FEP) ReleaseEndpoint(id EndpointID) { f.ses.ReleaseEndpoint(id) }

// Config returns the configuration in force, with defaults filled in.
func (f *FEP) Config() Config { return f.cfg }

// Post accepts an operation, or returns an error of this package. It sends nothing:
// Transmit does.
func (f *FEP) Post(now time.Duration, op *Op) error {
	if f.unusual {
		return f.postUnusual(now, op)
	}
	f.now = now
	switch {
	case op.Kind >= OpRecv:
		if int(op.Peer) >= len(f.peers) {
			return ErrNoPeer
		}
		if op.Kind > OpTRecv {
			panic("BUG: transport: unknown operation kind")
		}
		if err := f.ses.Recv(now, op); err != nil {
			return mapErr(err)
		}
		if f.ses.OwesReturns() {
			f.queueReturns()
		}
		return nil
	case op.Kind < OpSend:
		if op.Kind&1 == 0 {
			panic("BUG: transport: unknown operation kind")
		}
		if op.Idempotent && op.Peer != NoPeer && int(op.Peer) < len(f.peers) {
			if taken, err := f.postIdempotent(now, op); taken {
				return err
			}
		}
	}
	switch {
	case f.ended:
		return ErrClosed
	case op.Peer == NoPeer || int(op.Peer) >= len(f.peers):
		return ErrNoPeer
	}
	if f.sec != nil && !f.sec.Ready() {
		return ErrNoKey
	}
	p, n := &f.peers[op.Peer], op.Bytes()
	if f.ses.SomeUnfenced() {
		f.unfence(now) // these were posted before op
	}
	var ln *lane
	if short := p.short; short != nil && short.Usable() && n <= f.shortMost && !op.Ordered {
		ln = &f.lanes[short.Slot] // the same lane that f.lane would return
	} else if ln = f.lane(now, op.Peer, p, f.laneLen(op, n), op.Ordered); ln == nil {
		return ErrFull // no PDC can be opened now
	}
	sends := f.ses.Sends()
	h, err := f.ses.Send(now, op, n)
	if err != nil {
		return mapErr(err)
	}
	if p.talk.unasked != 0 && ln.pdc != p.lagging() {
		p.turnAway()
		f.heed()
	}
	answer := p.speak(sends)
	f.talks.answer = answer && p.talk.marks&talkGoesOn != 0
	p.talk.answer = answer && op.Level < LevelDelivery && !op.Visible // otherwise somebody waits for the completion
	if op.Fence || op.Kind < OpSend && reads(op.Kind) || uint(n) >= f.lendMin || f.ses.SomeFences() {
		var held bool
		if n, held = f.postedRare(op, h, p, ln, n); held {
			return nil
		}
	}
	ln.q.push(h)
	ln.bytes += n
	f.todo.queued++
	if !ln.data || !p.ready {
		f.wakeData(ln, p)
	}
	return nil
}

// reads reports whether an operation gets bytes from the memory of the peer.
func reads(k OpKind) bool { return k == OpRead || k == OpFetch }

// laneLen is the length by which the lane of a message of n bytes is chosen. A rendezvous send goes where
// short messages go.
func (f *FEP) laneLen(op *Op, n int) int {
	if uint(n) >= f.lendMin && f.ses.Announces(op) {
		return wire.RendezvousLen
	}
	return n
}

// postedRare is Post's part for a send that may be a read, go by rendezvous or wait at a fence. It returns how many bytes
// the send gives its lane, and whether a fence holds it.
//
//go:noinline
func (f *FEP) postedRare(op *Op, h ses.Handle, p *peer, ln *lane, n int) (bytes int, held bool) {
	if reads(op.Kind) || f.ses.Lent(h) {
		f.talks.answer, p.talk.answer = false, false // the peer reads first
	}
	if (op.Fence || f.ses.Fenced(op.Endpoint, uint32(op.Peer))) && f.ses.Fence(h, op.Fence) {
		p.talk.answer = false // the packets before the fence need an ACK, too
		p.ask()
		f.heed()
		return n, true
	}
	if f.asks(h, ln) {
		return 0, false
	}
	if uint(n) >= f.lendMin {
		_, n, _ = f.ses.Info(h)
	}
	return n, false
}

func mapErr(err error) error {
	switch err {
	case nil:
		return nil
	case ses.ErrFull:
		return ErrFull
	case ses.ErrTooLong:
		return ErrTooLong
	case ses.ErrClosed:
		return ErrClosed
	case ses.ErrHalted:
		return ErrHalted
	case ses.ErrName:
		return ErrName
	case ses.ErrInUse:
		return ErrInUse
	case ses.ErrEndpoints:
		return ErrEndpoints
	case ses.ErrKey:
		return ErrKey
	case ses.ErrKeyInUse:
		return ErrKeyInUse
	case ses.ErrMemory:
		return ErrMemory
	case ses.ErrRegions:
		return ErrRegions
	}
	return fmt.Errorf("transport: %w", err)
}

// Cancel ends one pending operation of an endpoint that has this context: a receive without
// a message, or a send of which no packet was sent. It reports whether it found one. The
// Event of the operation follows.
func (f *FEP) Cancel(now time.Duration, id EndpointID, context any) bool {
	f.now = now
	if f.ses.CancelRecv(id, context) {
		return true
	}
	h, ok := f.ses.CancelSend(id, context)
	if ok {
		f.unqueue(h)
	}
	return ok
}

// Advance does everything that is due at or before now.
func (f *FEP) Advance(now time.Duration) {
	f.now = now
	if f.todo.ackAt != 0 && now >= f.todo.ackAt {
		f.dueAcks()
	}
	if f.talks.restAt|f.todo.keyless != 0 {
		if f.talks.restAt != 0 && now >= f.talks.restAt {
			f.askResting()
		}
		if f.todo.keyless != 0 && now-f.todo.keyless >= f.cfg.SuspectTimeout {
			f.failKeyless(now)
		}
	}
	f.pds.Advance(now)
	f.heed()
	if f.extra {
		f.advanceExtra(now)
	}
	if f.todo.earlyAt|f.todo.searchAt != 0 {
		if f.todo.earlyAt != 0 && now >= f.todo.earlyAt {
			f.releaseMore(now)
		}
		if f.todo.searchAt != 0 && now >= f.todo.searchAt {
			f.askSizes(now)
		}
	}
	if f.ses.Advance(now) {
		for h, ok := f.ses.Resend(); ok; h, ok = f.ses.Resend() {
			f.leaveLane(h)
			f.requeue(now, h)
		}
		f.unfence(now)
		f.queueReturns()
	}
	if f.ses.OwesReturns() {
		f.queueReturns() // a message that waited for room for its Event
	}
	if f.ses.Halted {
		f.ses.Halt()
	}
	if len(f.todo.moveLater) > 0 {
		f.move(now)
	}
	if f.book.lingering.len() > 0 {
		f.sweepPeers()
	}
}

// advanceExtra is what Advance does for receiver credit, idempotent operations and who lacks a PDC.
func (f *FEP) advanceExtra(now time.Duration) {
	if f.credit != nil {
		f.advanceCredit(now)
	}
	if f.idem.table != nil {
		f.advanceIdem(now)
	}
	if f.scarce.at != 0 && now >= f.scarce.at {
		f.advanceScarce(now)
	}
}

// unfence queues the messages that no fence holds back any more.
func (f *FEP) unfence(now time.Duration) {
	for h, ok := f.ses.Unfenced(); ok; h, ok = f.ses.Unfenced() {
		f.requeue(now, h)
	}
}

// move queues again the messages whose PDC ended before their first packet.
func (f *FEP) move(now time.Duration) {
	for len(f.todo.moveLater) > 0 {
		h := f.todo.moveLater[0]
		f.todo.moveLater = append(f.todo.moveLater[:0], f.todo.moveLater[1:]...)
		f.requeue(now, h)
	}
}

// Pending reports whether Transmit may have something to send. If it returns false,
// Transmit has nothing until another method is called.
func (f *FEP) Pending() bool {
	return f.todo.ready.len() > 0 || f.todo.flush || len(f.todo.moveLater) > 0 || f.todo.keyless != 0 || f.loose()
}

// loose reports whether packets of no PDC may be to send.
func (f *FEP) loose() bool { return f.pds.Loose() || f.other }

// Flush makes every waiting ACK due. The caller calls it at the end of its turn.
func (f *FEP) Flush(now time.Duration) {
	f.now = now
	if f.talks.turns.n|f.grants != 0 {
		f.passTurns()
		if f.credit != nil {
			f.grant(now)
		}
	}
	f.dueAcks()
}

// AckAll is Flush before the FEP stops: it also acknowledges packets that asked for no ACK.
func (f *FEP) AckAll(now time.Duration) {
	f.todo.acked = f.stats.RxData
	f.pds.Each((*pds.PDC).OweAck)
	f.heed()
	f.Flush(now)
}

// dueAcks lets Transmit send the waiting ACKs.
func (f *FEP) dueAcks() {
	f.todo.ackAt = 0
	f.todo.flush = f.todo.acks.len() > 0
}

// Owes reports whether ACKs wait.
func (f *FEP) Owes() bool { return f.todo.acks.len() > 0 }

// NextTimeout is the latest time to call Advance, 0 if there is no timer.
func (f *FEP) NextTimeout() time.Duration {
	t := sooner(f.pds.NextTimeout(), f.todo.ackAt)
	if f.todo.earlyAt|f.talks.restAt|f.todo.searchAt|f.todo.keyless != 0 || f.extra || f.ses.Waits() {
		t = sooner(t, f.nextRare())
	}
	return t
}

// nextRare is the soonest of the timers that seldom run.
func (f *FEP) nextRare() time.Duration {
	t := sooner(f.todo.earlyAt, sooner(f.talks.restAt, f.todo.searchAt))
	if f.idem.table != nil {
		t = sooner(t, f.idem.table.NextTimeout())
	}
	if f.credit != nil {
		t = sooner(t, f.credit.timeout())
	}
	t = sooner(t, f.scarce.at)
	if f.ses.Waits() {
		t = sooner(t, f.ses.NextTimeout())
	}
	if f.todo.keyless != 0 {
		t = sooner(t, f.todo.keyless+f.cfg.SuspectTimeout)
	}
	return t
}

// sooner is the earlier of two times, where 0 means never: subtracting one turns 0 into the
// highest number.
func sooner(t, u time.Duration) time.Duration {
	return time.Duration(min(uint64(t)-1, uint64(u)-1) + 1)
}

// Busy reports whether there are sends that have not ended.
func (f *FEP) Busy() bool { return f.ses.Sends() > 0 }

// Posted is the number of sends and of receives that have not ended.
func (f *FEP) Posted() (sends, recvs int) { return f.ses.Sends(), f.ses.Recvs() }

// PostedBy is the number of sends and of receives of one endpoint that have not ended.
func (f *FEP) PostedBy(id EndpointID) (sends, recvs int) { return f.ses.PostedBy(id) }

// Awaits reports whether a receive of an endpoint waits for a message of the peer alone.
func (f *FEP) Awaits(id EndpointID, peer PeerID) bool { return f.ses.Awaited(id, uint32(peer)) }

// Unexpected is the number of messages that no receive has matched yet.
func (f *FEP) Unexpected() int {
	n, _ := f.ses.Unexpected()
	return n
}

// Sends is the number of sends that have not ended.
func (f *FEP) Sends() int { return f.ses.Sends() }

// Paused(true) says that nobody read the network for a while, so that the packets that
// Receive gets from now on may have waited on this host. The FEP then draws no conclusion
// about the delay of the path from them: it measures no round trip by their ACKs, and its
// own ACKs let the peer measure none (UE 3.6.13: the delay of the target is not the delay
// of the path).
func (f *FEP) Paused(on bool) { f.rx.in.Paused = on }

// Waited says how long the train that Receive gets next, and those after it, were on this host
// before. The FEP takes that off the round trips that it measures, and tells the peer to.
func (f *FEP) Waited(d time.Duration) { f.rx.in.Waited = d }

// Taken(true) says that another thread takes the processor of this side for milliseconds again
// and again. Windows may then be so large that a peer has something to do meanwhile.
func (f *FEP) Taken(on bool) { f.rx.in.Taken = on }

// Apart(true) sends a data packet that is alone first, and the ACKs for the same peer in
// the next train. The data then does not wait for the ACKs, neither here nor where it
// arrives, at the price of one more system call. With Apart(false), the initial setting,
// they share a train, which costs least processor time.
func (f *FEP) Apart(on bool) { f.out.apart = on }

// Queued is the number of messages of which Transmit has not sent all packets.
func (f *FEP) Queued() int { return f.todo.queued }

// Unreachable gives evidence (ICMP) that remote does not answer. The evidence starts
// SuspectTimeout, a third of it if it repeats and nothing was ever heard from remote; it never
// ends a PDC at once (F11).
func (f *FEP) Unreachable(now time.Duration, remote netip.AddrPort) {
	f.now = now
	id, ok := f.peerAt(remote)
	if !ok || f.peers[id].opened == 0 {
		return // T34: no peer has this address, or nothing is sent to it but answers
	}
	met := f.peers[id].met
	f.pds.Each(func(p *pds.PDC) { met = met || p.Peer == uint32(id) && p.Met() })
	f.pds.Each(func(p *pds.PDC) {
		if p.Peer == uint32(id) {
			f.pds.Suspect(now, p, !met)
		}
	})
}

// Close ends every operation with a Cancelled event and leaves farewell packets for
// Transmit. A later Post fails with ErrClosed.
func (f *FEP) Close(now time.Duration) {
	if f.closed {
		return
	}
	f.now = now
	f.unusual, f.barred, f.closed = true, true, true
	f.ses.CancelAll()
	f.pds.Abort(now)
	f.failIdem(NoPeer, ses.Closed)
	f.heed()
	f.todo.clear()
	f.scarce = scarcity{}
}

// Idle reports whether there is no message, no packet in flight and no waiting ACK. There
// may be open PDCs.
func (f *FEP) Idle() bool {
	idle := f.ses.Idle() && f.todo.queued == 0 && f.ses.Sends() == 0 && f.todo.acks.len() == 0 && f.todo.ready.len() == 0 && !f.pds.Loose()
	if idle {
		f.pds.Each(func(p *pds.PDC) {
			if !p.AtRest() {
				idle = false
			}
		})
	}
	return idle
}

// PDCs is the number of packet delivery contexts that exist.
func (f *FEP) PDCs() int { return f.pds.Len() }

// Events is the number of Events that NextEvent has not returned yet.
func (f *FEP) Events() int { return f.ses.Events() }

// NextEvent returns the next Event, or nil. The Event is valid until the next call of
// NextEvent. The caller clears Context and Buf, which belong to the user, when it has read
// them.
func (f *FEP) NextEvent() *Event { return f.ses.Event() }

// EventsRead says that the caller has read all Events that there were, and uses none any more. The next ones are
// then where the first of these were, in memory that is warm. NextEvent does the same when it returns nil.
func (f *FEP) EventsRead() { f.ses.EventsRead() }

// newCCC makes the congestion control context of one peer, or of a ROD PDC to it.
func (f *FEP) newCCC(p *peer) pds.CCC {
	if f.cfg.NewCCC != nil {
		return f.cfg.NewCCC(f.cfg.Window)
	}
	cfg := cms.Config{
		MTU: f.packetMost(), Window: f.cfg.Window, BaseRTT: f.cfg.BaseRTT, RTOInit: f.cfg.RTOInit, RTOMax: f.cfg.RTOMax,
		AckTrigger: f.cfg.AckTrigger, Trims: f.cfg.Trimming && f.sec == nil,
	}
	if f.credit != nil {
		return f.newCredit(p, cfg)
	}
	return cms.New(cfg)
}
