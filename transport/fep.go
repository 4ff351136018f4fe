// Package transport joins the sublayers of Ultra Ethernet Transport into one
// state machine, the FEP: packet delivery (pds), semantics (ses), congestion
// management (cms) over the wire formats (wire).
//
// A FEP does no I/O, starts no goroutine, reads no clock and no global
// randomness: the same calls give the same results. One caller at a time; the
// driver holds the lock. Everywhere in the core now is monotonic time since an
// arbitrary epoch of the caller's; 0 means never, so the epoch lies before the
// first call.
package transport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/cms"
	"github.com/uetkit/uetkit/transport/pds"
	"github.com/uetkit/uetkit/transport/ses"
	"github.com/uetkit/uetkit/transport/tss"
	"github.com/uetkit/uetkit/transport/wire"
)

// A FEP is the protocol state of one fabric endpoint.
type FEP struct {
	// What every packet touches comes first, so that it lies together and is
	// addressed by short offsets (docs/decisions/0011).
	ses   *ses.SES
	pds   *pds.Table
	peers []peer // index is PeerID; 0 is nobody
	lanes []lane // index is pds.PDC.Slot
	now   time.Duration
	out   train
	sec   *tss.Domain // nil: in clear
	notes *notes      // nil without Config.Notes

	ready    fifo[PeerID]
	acks     fifo[PeerID] // peers with nothing but ACKs to send
	ackAt    time.Duration
	queued   int  // messages with pieces not yet taken
	flush    bool // what waits in acks may leave; something does
	apart    bool // see Apart
	closed   bool
	ended    bool              // End was called
	answer   bool              // see Answer
	crcOnly  bool              // no head, and the trailer is a CRC
	trims    bool              // Config.Trimming
	sprays   bool              // several Config.Paths
	tos      [numClasses]uint8 // by class
	head     int               // bytes in front of the PDS header
	wrap     int               // head + trailer
	overhead int               // nominal bytes per packet beyond the UDP payload
	reqLen   int               // a request without payload
	ackLen   int               // an ACK with its response
	shortMsg int               // Config.ShortMessage
	// moveLater are messages of a PDC that ended, nothing of which was sent.
	moveLater []ses.Handle
	earlyAt   time.Duration
	// keyless is since when there is nothing to seal with, 0: there is.
	keyless time.Duration
	restAt  time.Duration // when to ask the first of those that rest, 0: none does
	// What is being received; see wire.extend for why not on the stack.
	in     pds.Arrival
	metaRx pds.Meta
	rspRx  wire.Rsp
	rx, tx outer
	stats  Stats

	reqRx     wire.Req
	ackRx     wire.Ack
	trailer   int          // bytes behind the payload: CRC or ICV
	after     fifo[uint32] // in fillData: lanes that sent wait behind those that did not
	early     fifo[uint32] // lanes of ROD PDCs with packets whose turn comes at earlyAt
	turns     fifo[PeerID] // peers to whom it may be our turn to speak
	resting   fifo[PeerID] // those of them of whom it was found that nothing is said
	byAddr    map[netip.AddrPort]PeerID
	freePeer  fifo[PeerID] // unknown peers without a PDC, oldest first
	lingering fifo[PeerID] // the same, with messages that wait for a receive
	hint      hint
	local     []netip.AddrPort // by path
	rng       *rand.Rand
	cfg       Config
}

// New makes a FEP. rng is the only source of randomness; cfg is copied.
func New(cfg Config, rng *rand.Rand) (*FEP, error) {
	cfg.fill()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &FEP{cfg: cfg, rng: rng, byAddr: make(map[netip.AddrPort]PeerID), peers: make([]peer, 1, 8)}
	for _, port := range cfg.Paths {
		f.local = append(f.local, netip.AddrPortFrom(cfg.Local.Addr(), port))
	}
	secure := pds.SecureNone
	switch {
	case cfg.TSS != nil:
		f.sec, f.head, f.trailer = cfg.TSS, cfg.TSS.HeaderLen(), wire.ICVLen
		secure = pds.SecureZeroRTT
		if cfg.OneRTT {
			secure = pds.SecureOneRTT
		}
	case !cfg.NoCRC:
		f.trailer = wire.CRCLen
	}
	f.wrap, f.crcOnly = f.head+f.trailer, f.sec == nil && !cfg.NoCRC
	f.setClasses()
	f.rx.become(&f.local[0], 0, &f.local[0], &f.local[0]) // any that is valid
	f.in.From = f.local[0]
	if cfg.Notes {
		f.notes = &notes{}
	}
	f.shortMsg, f.trims, f.sprays = cfg.ShortMessage, cfg.Trimming, len(cfg.Paths) > 1
	f.ackLen = wire.AckCCLen + wire.RspLen + f.wrap
	f.reqLen = wire.ReqLen + wire.ReqStdLen + f.wrap
	f.overhead = 8 + 40 // UDP header, and what UE 3.6.12 adds to the transport size
	f.ses = ses.New(ses.Config{
		JobID: cfg.JobID, PIDonFEP: cfg.PIDonFEP, RI: cfg.RI, Initiator: cfg.Initiator,
		MaxSends: cfg.MaxSends, MaxRecvs: cfg.MaxRecvs,
		UnexpectedBytes: cfg.UnexpectedBytes, UnexpectedMsgs: cfg.UnexpectedMsgs, UnexpectedShare: cfg.UnexpectedShare,
		OpenPerPeer: cfg.OpenPerPeer, Admit: cfg.Admit, RNRTimeout: cfg.RNRTimeout, Seed: rng.Uint64(),
	})
	f.pds = pds.New(pds.Config{
		MPRange: cfg.offered(), TxWindow: cfg.MPRange, HoldBytes: 4 << 20, Paths: len(cfg.Paths), Nominal: f.overhead + f.wrap, Secure: secure,
		AckTrigger: cfg.AckTrigger, AckMinAdd: cfg.AckMinAdd, AckDelay: cfg.AckDelay,
		RTOInit: cfg.RTOInit, RTOMax: cfg.RTOMax, PeerTimeout: cfg.PeerTimeout, SuspectTimeout: cfg.SuspectTimeout,
		NewPDCTime: cfg.NewPDCTime, CloseReqTime: cfg.CloseReqTime, Quarantine: cfg.Quarantine, IdleClose: cfg.IdleClose,
		RNRTimeout: cfg.RNRTimeout, SpecRetries: cfg.SpecRetries,
		MaxPDCs: cfg.MaxPDCs, MaxPDCsPerSource: cfg.MaxPDCsPerSource, MaxPDCsUnknown: cfg.MaxPDCsUnknown,
		MaxPending: cfg.MaxPending, MaxPendingPerSource: cfg.MaxPendingPerSource, MaxQuarantine: cfg.MaxQuarantine,
		StartPSN: cfg.StartPSN,
	}, rng, (*owner)(f))
	return f, nil
}

// Config returns the configuration in force, defaults filled in.
func (f *FEP) Config() Config { return f.cfg }

// Post accepts an operation or refuses it with one of the errors of this
// package. Nothing is sent before Transmit.
func (f *FEP) Post(now time.Duration, op *Op) error {
	if f.closed {
		return ErrClosed
	}
	f.now = now
	switch op.Kind {
	case OpSend, OpTSend:
	case OpRecv, OpTRecv:
		if int(op.Peer) >= len(f.peers) {
			return ErrNoPeer
		}
		if err := f.ses.Recv(now, op); err != nil {
			return mapErr(err)
		}
		return nil
	default:
		panic("BUG: transport: unknown operation kind")
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
		f.unfence(now) // it was posted before
	}
	var ln *lane
	if short := p.short; short != nil && short.Usable() && n <= f.shortMsg && !op.Ordered {
		ln = &f.lanes[short.Slot] // as lane would find
	} else if ln = f.lane(now, op.Peer, p, n, op.Ordered); ln == nil {
		return ErrFull // no PDC can be opened now
	}
	sends := f.ses.Sends()
	h, err := f.ses.Send(now, op)
	if err != nil {
		return mapErr(err)
	}
	if p.talk.unasked != 0 && ln.pdc != p.short {
		p.turnAway()
		f.heed()
	}
	answer := p.speak(sends)
	f.answer = answer && p.talk.lag != 0
	p.talk.answer = answer && op.Level < LevelDelivery && !op.Visible // else it is waited for
	if (op.Fence || f.ses.Fenced(uint32(op.Peer))) && f.ses.Fence(h, op.Fence) {
		p.talk.answer = false // nor may what has not left yet do without an ACK
		p.ask()
		f.heed()
		return nil
	}
	ln.q.push(h)
	ln.bytes += n
	f.queued++
	if !ln.data || !p.ready {
		f.wakeData(ln, p)
	}
	return nil
}

func mapErr(err error) error {
	switch err {
	case nil:
		return nil
	case ses.ErrFull:
		return ErrFull
	case ses.ErrTooLong:
		return ErrTooLong
	}
	return fmt.Errorf("transport: %w", err)
}

// Cancel ends one operation with that context that is still pending: a receive
// that nothing matched, or a send of which nothing left. It reports whether it
// found one; the Event follows.
func (f *FEP) Cancel(now time.Duration, context any) bool {
	f.now = now
	if f.ses.CancelRecv(context) {
		return true
	}
	h, ok := f.ses.CancelSend(context)
	if ok {
		f.unqueue(h)
	}
	return ok
}

// Advance does what is due at or before now.
func (f *FEP) Advance(now time.Duration) {
	f.now = now
	if f.ackAt != 0 && now >= f.ackAt {
		f.dueAcks()
	}
	if f.restAt != 0 && now >= f.restAt {
		f.askResting()
	}
	if f.keyless != 0 && now-f.keyless >= f.cfg.SuspectTimeout {
		f.failKeyless(now)
	}
	f.pds.Advance(now)
	f.heed()
	if f.earlyAt != 0 && now >= f.earlyAt {
		f.releaseMore(now)
	}
	f.ses.Advance(now)
	for {
		h, ok := f.ses.Resend()
		if !ok {
			break
		}
		f.requeue(now, h)
	}
	if f.ses.SomeUnfenced() {
		f.unfence(now)
	}
	if len(f.moveLater) > 0 {
		f.move(now)
	}
	if f.lingering.len() > 0 {
		f.sweepPeers()
	}
}

// unfence queues what a fence kept back and keeps no more.
func (f *FEP) unfence(now time.Duration) {
	for h, ok := f.ses.Unfenced(); ok; h, ok = f.ses.Unfenced() {
		f.requeue(now, h)
	}
}

// move finds a new PDC for messages whose PDC ended before they began.
func (f *FEP) move(now time.Duration) {
	for len(f.moveLater) > 0 {
		h := f.moveLater[0]
		f.moveLater = append(f.moveLater[:0], f.moveLater[1:]...)
		f.requeue(now, h)
	}
}

// Pending reports whether Transmit may have something. If not, it has nothing until
// another method was called.
func (f *FEP) Pending() bool {
	return f.ready.len() > 0 || f.flush || len(f.moveLater) > 0 || f.keyless != 0 || f.pds.Loose()
}

// Flush makes every waiting ACK due: the caller's turn is over.
func (f *FEP) Flush(now time.Duration) {
	f.now = now
	if f.turns.len() > 0 {
		f.passTurns()
	}
	f.dueAcks()
}

// AckAll is Flush for the last time: the peers are told of all that came, also of what
// nobody asked about yet, and nobody will.
func (f *FEP) AckAll(now time.Duration) {
	f.pds.Each((*pds.PDC).OweAck)
	f.heed()
	f.Flush(now)
}

// dueAcks has the ACKs that wait leave.
func (f *FEP) dueAcks() {
	f.ackAt = 0
	f.flush = f.acks.len() > 0
}

// Owes reports whether ACKs wait.
func (f *FEP) Owes() bool { return f.acks.len() > 0 }

// NextTimeout is the time Advance must be called at the latest, 0: no timer.
func (f *FEP) NextTimeout() time.Duration {
	t := sooner(sooner(f.pds.NextTimeout(), f.ackAt), sooner(f.ses.NextTimeout(), sooner(f.earlyAt, f.restAt)))
	if f.keyless != 0 {
		t = sooner(t, f.keyless+f.cfg.SuspectTimeout)
	}
	return t
}

// sooner is the earlier of two times of which 0 is none: one before it is the latest
// there is.
func sooner(t, u time.Duration) time.Duration {
	return time.Duration(min(uint64(t)-1, uint64(u)-1) + 1)
}

// Busy reports whether sends are outstanding.
func (f *FEP) Busy() bool { return f.ses.Sends() > 0 }

// Posted is how many sends and receives have not ended.
func (f *FEP) Posted() (sends, recvs int) { return f.ses.Sends(), f.ses.Recvs() }

// Unexpected is how many messages no receive has matched yet.
func (f *FEP) Unexpected() int {
	n, _ := f.ses.Unexpected()
	return n
}

// Sends is how many sends have not ended.
func (f *FEP) Sends() int { return f.ses.Sends() }

// Paused says whether nobody looked at the network for a while before what Receive
// gets from now on. It may have waited here all that time, and tells of no delay of the
// path then: neither by what an ACK measures, nor by what our ACKs let the peer measure
// (UE 3.6.13: the target's own delay is none of the path).
func (f *FEP) Paused(on bool) { f.in.Paused = on }

// Apart says whether an ACK leaves behind a data packet that is alone instead of
// with it. Together they cost one system call and the processor least; apart the
// data is not kept by the ACK, neither here nor where it arrives.
func (f *FEP) Apart(on bool) { f.apart = on }

// Queued is how many messages wait for Transmit to take their packets.
func (f *FEP) Queued() int { return f.queued }

// Unreachable gives evidence (ICMP) that remote does not answer. It starts
// SuspectTimeout and never kills at once (F11).
func (f *FEP) Unreachable(now time.Duration, remote netip.AddrPort) {
	f.now = now
	id, ok := f.byAddr[remote]
	if !ok {
		return // T34: not an address of ours
	}
	f.pds.Each(func(p *pds.PDC) {
		if p.Peer == uint32(id) {
			f.pds.Suspect(now, p)
		}
	})
}

// Close ends every operation with a Cancelled event and leaves farewell packets
// for Transmit. Later Posts fail with ErrClosed.
func (f *FEP) Close(now time.Duration) {
	if f.closed {
		return
	}
	f.now = now
	f.closed = true
	f.ses.CancelAll()
	f.pds.Abort(now)
	f.heed()
	f.moveLater = f.moveLater[:0]
	f.queued = 0
}

// Idle reports that nothing is left at rest: no message, no packet in flight
// and no waiting ACK. Open PDCs may be left.
func (f *FEP) Idle() bool {
	idle := f.ses.Idle() && f.queued == 0 && f.ses.Sends() == 0 && f.acks.len() == 0 && f.ready.len() == 0 && !f.pds.Loose()
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

// Events is how many Events wait for NextEvent.
func (f *FEP) Events() int { return f.ses.Events() }

// NextEvent returns the next Event, or nil. It is valid until the next call of
// NextEvent. The caller clears Context and Buf, which are the user's, when it has
// read them.
func (f *FEP) NextEvent() *Event { return f.ses.Event() }

// Stats returns a copy of the counters.
func (f *FEP) Stats() Stats {
	s, p := f.stats, &f.pds.Stats
	s.RtxRTO, s.RtxSACK, s.RtxNack, s.RtxProbe, s.RtxSpurious = p.RtxRTO, p.RtxSACK, p.RtxNack, p.RtxProbe, p.RtxSpurious
	s.RxDup, s.RxOOO, s.RxCE, s.AcksCE = p.RxDup, p.RxOOO, p.RxCE, p.AcksCE
	s.NacksTx, s.NacksRx, s.CPTx, s.CPRx = p.NacksTx, p.NacksRx, p.CPTx, p.CPRx
	s.PDCOpened, s.PDCAccepted, s.PDCClosed, s.PDCErrors, s.Quarantined = p.Opened, p.Accepted, p.Closed, p.Errors, p.Quarantined
	m := &f.ses.Stats
	s.MsgsTx, s.BytesTx, s.MsgsRx, s.BytesRx, s.Unexpected = m.Sent, m.SentBytes, m.Received, m.ReceivedBytes, m.Unexpected
	s.Drops[DropNoPDC] += p.DropNoPDC
	s.Drops[DropSource] += p.DropSource
	s.Drops[DropUnsent] += p.DropUnsent
	s.Drops[DropStale] += p.DropStale
	s.Drops[DropLimit] += p.DropLimit
	s.Drops[DropRate] += p.DropRate
	s.Drops[DropHeader] += p.DropHeader
	s.Drops[DropType] += p.DropType
	s.Drops[DropBinding] += p.DropBinding
	return s
}

// newCCC makes the congestion control context of one peer or ROD PDC.
func (f *FEP) newCCC() pds.CCC {
	if f.cfg.NewCCC != nil {
		return f.cfg.NewCCC(f.cfg.Window)
	}
	return cms.New(cms.Config{
		MTU: f.cfg.PayloadMTU + 12 + 44 + f.wrap + f.overhead, Window: f.cfg.Window, BaseRTT: f.cfg.BaseRTT, RTOInit: f.cfg.RTOInit, RTOMax: f.cfg.RTOMax,
		AckTrigger: f.cfg.AckTrigger, Trims: f.cfg.Trimming && f.sec == nil,
	})
}
