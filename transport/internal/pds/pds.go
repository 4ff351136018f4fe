// Package pds is the packet delivery sublayer of Ultra Ethernet Transport (UE 3.5): packet
// delivery contexts (PDCs), packet sequence numbers, selective acknowledgement, loss
// recovery, the life of a PDC from its first SYN to its quarantine.
//
// A Table holds the PDCs of one FEP. It does not interpret messages: each packet carries a
// piece of a message, which the Table keeps and returns when the packet must be sent again.
// A Table does no I/O and reads no clock. It serves one caller at a time. It reports what
// became of packets and PDCs as News, which the owner must consume after each call and
// before the next. It asks an Owner what it must know of the message layer.
package pds

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Why says why a packet or a PDC failed.
type Why uint8

// The reasons of failure.
const (
	WhyNone        Why = iota
	WhyTimeout         // PeerTimeout passed or the retries ran out
	WhyUnreachable     // SuspectTimeout passed with evidence (ICMP, NACK 0E)
	WhyNack            // the peer refused with a fatal NACK, see Reason.Nack
	WhyNoResource      // the peer was short of something for PeerTimeout, see Reason.Nack
	WhyNotReady        // the target answered but was not ready for RNRTimeout
	WhyTooBig          // full-size packets do not pass while small ones do
	WhyProtocol        // the peer broke the protocol (T9)
	WhyClosed          // closed by this side
	WhyNoKey           // there is no valid key to seal with (F33)
)

// A Reason is a Why with the NACK code behind it, if any.
type Reason struct {
	Why  Why
	Nack wire.NackCode
	// Born is when the life of the peer that does not know the PDC began at the latest, if that
	// life proved it (S-LIFE-02); else 0.
	Born time.Duration
}

// Config holds the constants of a Table. Every field must be set unless its zero value has a
// meaning.
type Config struct {
	Limits

	MPRange    int // PSN window offered, multiple of 128, power of two
	TxWindow   int // most packets outstanding per PDC, power of two
	EarlyBytes int // most bytes of early ROD packets
	Paths      int // local ports that the owner sends from
	Nominal    int // nominal bytes of a packet beyond headers and payload: trailer + 8 + 40

	// RNRTimeout ends a packet whose target answers but is not ready for that long. 0
	// disables it.
	RNRTimeout time.Duration

	// Born is when this side began to be at its address, in the time of the calls. What comes
	// for a PDC that it never had is answered with a proof of that (S-LIFE-01). 0 means not
	// known: no proofs.
	Born time.Duration

	// Credit says that requests have the header with a credit target, and that CREDIT and
	// CREDIT_REQ are passed to the owner. Without it they are refused (NACK 19).
	Credit bool

	// Secure is how this side establishes the PDCs that others open. A PDC that this side
	// opens follows the choice of its target. SecureNone also means that packets are not
	// authenticated.
	Secure Secure
}

// Limits are the times and bounds of PDCs that a deployment may change. Fill replaces 0 by
// the stated default.
type Limits struct {
	// AckTrigger (ACK_Gen_Trigger) is the number of received bytes after which a target
	// sends an ACK that no packet asked for (default 16 KiB). AckMinAdd
	// (ACK_Gen_Min_Pkt_Add) is the least number of bytes that a packet counts (default 1
	// KiB). AckDelay is how long an ACK that is due may wait for data to travel with
	// (default 20 µs).
	AckTrigger int
	AckMinAdd  int
	AckDelay   time.Duration

	// RTOInit is the first and shortest retransmission timeout (default 5 ms), RTOMax the
	// longest (default 500 ms).
	RTOInit, RTOMax time.Duration
	// PeerTimeout ends a PDC whose peer is silent (default 40 s). SuspectTimeout ends it
	// earlier if ICMP or a NACK 0E said that the peer is not there (default 3 s). A third of
	// it is enough if ICMP repeats where nobody was ever heard.
	PeerTimeout    time.Duration
	SuspectTimeout time.Duration
	NewPDCTime     time.Duration // how long a target waits for the source of a PENDING PDC to prove itself; default 1 s
	CloseReqTime   time.Duration // how long a target waits at least after it asked the initiator to close; default 1 s
	Quarantine     time.Duration // how long a PDCID stays unused after its PDC ended; default 4 s
	IdleClose      time.Duration // how long a PDC may be idle before its initiator closes it; default 30 s
	// SpecRetries ends a PDC after the five retransmissions of the specification (RTO count)
	// instead of after a time.
	SpecRetries bool

	// The bounds of the PDC tables. MaxPDCs bounds all PDCs (default 60,000),
	// MaxPDCsPerSource those that one source opened and MaxPDCsUnknown those that sources
	// unknown to the application opened (4,096 each). MaxPending bounds the PDCs whose
	// source is neither proven nor known (4,096), MaxPendingPerSource those of one source
	// (256). MaxQuarantine bounds the PDCIDs in quarantine (65,536).
	MaxPDCs             int
	MaxPDCsPerSource    int
	MaxPDCsUnknown      int
	MaxPending          int
	MaxPendingPerSource int
	MaxQuarantine       int

	// StartPSN chooses the first PSN of PDCs that this side opens, for tests of wrap-around.
	// nil means random. A Start_PSN that a target asked for takes precedence.
	StartPSN func() wire.PSN

	// MaxRange is the number of PSNs after which a PDC closes at the end of its message and
	// another replaces it (F34); default 2³⁰.
	MaxRange int32
}

// Fill replaces zero fields by their defaults.
func (l *Limits) Fill() {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&l.AckDelay, 20 * time.Microsecond}, {&l.RTOInit, 5 * time.Millisecond}, {&l.RTOMax, 500 * time.Millisecond},
		{&l.PeerTimeout, 40 * time.Second}, {&l.SuspectTimeout, 3 * time.Second}, {&l.NewPDCTime, time.Second}, {&l.CloseReqTime, time.Second},
		{&l.Quarantine, 4 * time.Second}, {&l.IdleClose, 30 * time.Second},
	} {
		*d.v = cmp.Or(*d.v, d.def)
	}
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&l.AckTrigger, 16 << 10}, {&l.AckMinAdd, 1 << 10}, {&l.MaxPDCs, 60000}, {&l.MaxPDCsPerSource, 4096}, {&l.MaxPDCsUnknown, 4096},
		{&l.MaxPending, 4096}, {&l.MaxPendingPerSource, 256}, {&l.MaxQuarantine, 65536},
	} {
		*d.v = cmp.Or(*d.v, d.def)
	}
	l.MaxRange = cmp.Or(l.MaxRange, maxRange)
}

// Secure is how a target establishes PDCs (UE 3.5.8, S-SYN-02, S-SYN-03).
type Secure uint8

// The ways to establish a PDC. The target alone chooses, so ends with different settings
// work together.
const (
	SecureNone    Secure = iota // no security: any Start_PSN opens a PDC
	SecureZeroRTT               // secured: a Start_PSN at or above the floor, which rises with every PDC that ends
	SecureOneRTT                // secured: only the Start_PSN that the target drew for this PDC
)

// State is the state of a PDC (UE 3.5.8).
type State uint8

// The states. An initiator goes Creating → Established → Quiesce → AckWait →
// CloseAckWait → Closed; a target Established → CloseRequested → Closed.
const (
	Closed State = iota
	Creating
	Established
	Quiesce
	AckWait
	CloseAckWait
	CloseRequested
)

var stateNames = [...]string{"closed", "creating", "established", "quiesce", "ack-wait", "close-ack-wait", "close-requested"}

func (s State) String() string { return stateNames[s] }

// A PDC is a packet delivery context. Its exported methods are for the owner of the Table.
//
// The fields are ordered by how often packets use them. With many peers each packet finds
// its PDC in cold memory, so a packet costs the cache lines that it touches. Fields that
// every packet uses come first, in whole lines of 64 bytes. Fields for loss, closing and
// control packets follow (docs/decisions/0011).
type PDC struct {
	t *Table

	// Slot is the PDC's number in the Table: dense, reused after Gone.
	Slot uint32
	// Peer is the owner's number of the peer.
	Peer uint32

	id, remoteID uint16
	mode         wire.Mode
	state        State
	initiator    bool
	known        bool  // the application named the peer's address
	proven       bool  // target: the source is not spoofed: it used our PDCID, or is authenticated
	pending      bool  // target: counted as pending: neither proven nor known
	strikes      uint8 // T9: consecutive packets that acknowledge what was never sent
	// Awaited belongs to the owner: it waits for NewsAwake of this PDC.
	Awaited bool
	start   wire.PSN
	remote  netip.AddrPort // destination of packets; for a target the source of the SYN

	ccc       CCC
	lastHeard time.Duration // last valid packet from the peer
	idleAt    time.Duration // when the last outstanding packet finished
	evidence  time.Duration // first ICMP message since lastHeard, 0: none, or refuted
	who       uint64        // the authenticated life of the peer that the PDC belongs to (Arrival.Who)
	heapAt    time.Duration // when the timer heap looks at the PDC next

	renumberings uint8 // NACKs 0x17 that were followed
	asks         uint8 // initiator: NOOPs since read data came last (askAwaited); target: see proofAsks
	// doubted means that a fatal NACK came at fatalAt. It takes effect if a second one
	// confirms it (T6). Of a PDC that opens, fatalAt is when what was sent before that NACK is
	// answered (refusedOpening).
	doubted bool
	fatal   wire.NackCode
	// From belongs to the owner: the CRC prefix of packets from remote.
	From wire.Prefix

	tx txDir
	rx *rxDir

	fatalAt       time.Duration
	rebirths      uint8
	startsInClear uint8    // NACKs 0x17 in clear that the PDC followed
	nobody        bool     // with evidence: it came twice, and nothing was ever heard from the peer
	checked       bool     // doubted: one of the packets that NACK 0E refused was sent again
	leftMax       wire.PSN // target: the highest PSN received when Leave asked for the close; 0 if it did not
	opened        time.Duration
	closeBy       time.Duration // CloseRequested, CloseAckWait: when closing is given up

}

// ID is the PDCID of this side, RemoteID that of the peer (0 while unknown).
func (p *PDC) ID() uint16         { return p.id }
func (p *PDC) RemoteID() uint16   { return p.remoteID }
func (p *PDC) Mode() wire.Mode    { return p.mode }
func (p *PDC) State() State       { return p.state }
func (p *PDC) Initiator() bool    { return p.initiator }
func (p *PDC) StartPSN() wire.PSN { return p.start }

// Remote is the destination address of the PDC's packets. The caller must not change it.
func (p *PDC) Remote() *netip.AddrPort { return &p.remote }

// Outstanding is the number of PSNs that are sent and not finished.
func (p *PDC) Outstanding() int { return int(p.tx.nxt.Sub(p.tx.una)) }

// Flying is the number of packets in flight.
func (p *PDC) Flying() int { return int(p.tx.flight) }

// CCC is the congestion control context the PDC was opened with.
func (p *PDC) CCC() CCC { return p.ccc }

// A Table holds the PDCs of one FEP.
type Table struct {
	hdr wire.Req // the header that Again.Req points to

	rtoLeast  time.Duration // lower bound of rto() of every PDC
	safe      int           // nominal size of the longest packet that every path should carry
	tailLeast time.Duration // lower bound of tailTime() of every PDC
	mpr       uint8         // the PSN window offered, in the units of the header

	cfg     Config
	rng     *rand.Rand
	owner   Owner
	news    newsList
	guesser netip.AddrPort // source of the guess that exceeded GuessLimit

	ids   idTable
	last  *[1 << (16 - lastBits)]*lastPage // by PDCID; nil until a PDC that this side opened has ended
	slots []*PDC
	free  []uint32
	live  int
	own   int // those of live that this side opened

	hand    int // the slot at which CloseIdle looks next
	leavers []leaver

	lives     map[lifeKey]*PDC // of targets
	latest    map[fepKey]*PDC  // the same, whatever their Start_PSN
	lastSyn   *PDC             // the PDC that the latest SYN packet found
	passed    int              // bytes of packets that were trimmed and passed by another path, of the ACK that is being processed
	sources   map[netip.Addr]*sourceCount
	unknown   int       // target PDCs of addresses the application never named
	pending   int       // target PDCs that are neither proven nor known
	pendQueue []pendRef // oldest first, from pendHead on
	pendHead  int

	quar    quarantine
	heap    []timer
	heapPos []int32 // by Slot: index of its timer in heap, if it has one

	leftAt time.Duration // when Leave was called

	late map[*PDC]*promises // promised responses, of PDCs with txDir.late

	floor    uint64 // 0-RTT: lowest Start_PSN that opens a PDC; 2³²: used up
	pend     pendTable
	expected expectedTable // Expected_PSNs that targets announced
	// askers has the life of the peer that asked for the Start_PSN of a PDC that opens (NACK 0x17).
	askers map[*PDC]uint64

	had     *[1 << 16 / 64]uint64 // PDCIDs that this side ever had; nil before the first
	shunned shunned

	loose     []Loose // ring of answers that belong to no PDC
	looseHead int
	looseLen  int
	nackAt    time.Duration // rate limit of NACKs that name no PDC
	nackLeft  int
	// the same of NACKs that tell strangers that there is no room
	strangerAt   time.Duration
	strangerLeft int
	guessAt      time.Duration // start of the second in which guesses are counted
	guesses      int

	credits []credit // by Slot; nil without Config.Credit

	rings     [16][][]txPkt // free transmit rings by log2 of their length
	ringKept  int           // packets in rings
	rxFree    []*rxDir
	earlyUsed int

	// Cause is why the packet of the latest Push, Resend, NextCtl or NextAck is sent.
	Cause Cause

	Stats Stats
}

// Counters count what the Table did. All values only grow.
type Counters struct {
	RtxRTO, RtxSACK, RtxNack uint64      // retransmissions by cause
	RtxProbe                 uint64      // tail-loss resends
	RtxSpurious              uint64      // retransmissions found unnecessary afterwards
	RxDup, RxOOO, RxCE       uint64      // duplicates, out of order arrivals, congestion marks
	AcksCE                   uint64      // ACKs that report a congestion mark
	NacksTx, NacksRx         [256]uint64 // by code
	CPTx, CPRx               [16]uint64  // by control type
	PDCOpened, PDCAccepted   uint64      // opened by this side, and by others
	PDCClosed, PDCErrors     uint64      // PDCs that ended, and those of them that ended in error
	Quarantined              uint64      // PDCIDs
	Guessed                  uint64      // packets that name a PDC but cannot belong to it (T3)
	Pending, PendingReaped   uint64      // PENDING PDCs made, and expired
	Renumbered               uint64      // NACKs 0x17 followed
	TooLong                  uint64      // packets taken back because the path does not carry them (F7)
}

// Stats are the Counters, and the packets that the Table dropped, by reason.
type Stats struct {
	Counters
	DropNoPDC, DropSource, DropUnsent, DropStale uint64
	DropLimit, DropRate, DropHeader, DropType    uint64
	DropBinding                                  uint64 // sent by another life of the peer than the PDC belongs to
}

// A Loose is a packet that belongs to no PDC's queue: a NACK, the ACK of a control packet, or
// a PROBE that is padded. B[:N] is its PDS header. Only Pad bytes and the trailer follow.
type Loose struct {
	Remote netip.AddrPort
	Path   uint32
	N      uint8
	Pad    uint16
	B      [16]byte
}

const maxLoose = 1024

// New makes an empty Table.
func New(cfg Config, rng *rand.Rand, owner Owner) *Table {
	cfg.MaxRange = cmp.Or(cfg.MaxRange, maxRange)
	// The clock may begin at 0, and what arrives at once is answered, too.
	t := &Table{cfg: cfg, rng: rng, owner: owner, nackLeft: nackLots, strangerLeft: strangerNacks, rtoLeast: cfg.RTOInit - cfg.RTOInit/10,
		mpr:     uint8(min(max(cfg.MPRange/128, 1), 255)),
		lives:   make(map[lifeKey]*PDC),
		latest:  make(map[fepKey]*PDC),
		sources: make(map[netip.Addr]*sourceCount),
	}
	t.tailLeast = min(silenceLeast, t.rtoLeast)
	t.safe = safePayload + t.bare()
	t.quar.init(cfg.MaxQuarantine)
	return t
}

// Len is the number of PDCs that exist.
func (t *Table) Len() int { return t.live }

// Each calls fn for every PDC.
func (t *Table) Each(fn func(*PDC)) {
	for _, p := range t.slots {
		if p != nil {
			fn(p)
		}
	}
}

// Slots is the highest Slot used so far, plus one.
func (t *Table) Slots() int { return len(t.slots) }

func (t *Table) add(now time.Duration, p *PDC) {
	if n := len(t.free); n > 0 {
		p.Slot = t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[p.Slot] = p
	} else {
		p.Slot = uint32(len(t.slots))
		t.slots = append(t.slots, p)
		t.heapPos = append(t.heapPos, 0)
	}
	if t.cfg.Credit {
		t.addCredit(p)
	}
	p.heapAt = never
	p.opened, p.lastHeard, p.idleAt = now, now, now
	t.live++
	t.setID(p.id, p)
}

// remove frees the PDC's Slot and PDCID. Its packets must be finished or failed.
func (t *Table) remove(now time.Duration, p *PDC, why Reason) {
	if p.state == Closed {
		return
	}
	t.quar.add(now, t.cfg.Quarantine, p)
	t.Stats.Quarantined++
	p.state = Closed
	t.retireID(p)
	if !p.initiator {
		t.raiseFloor(p.start)
		t.uncount(p)
	}
	if t.lastSyn == p {
		t.lastSyn = nil
	}
	t.heapRemove(p)
	t.putRing(p)
	p.forgetPromises()
	delete(t.askers, p)
	if p.rx != nil {
		t.putRx(p.rx)
		p.rx = nil
	}
	t.slots[p.Slot] = nil
	if t.live--; p.initiator {
		t.own--
	}
	t.Stats.PDCClosed++
	if why.Why != WhyNone && why.Why != WhyClosed {
		t.Stats.PDCErrors++
	}
	t.news.put(News{Kind: NewsGone, PDC: p, Why: why})
}

// FailAll ends every PDC in error.
func (t *Table) FailAll(now time.Duration, why Why) {
	for _, p := range t.slots {
		if p != nil {
			t.fail(now, p, Reason{Why: why})
		}
	}
}

// fail ends the PDC in error and fails every packet that is not finished.
func (t *Table) fail(now time.Duration, p *PDC, why Reason) {
	if p.state == Closed {
		return
	}
	// UE 3.5.8: tell the peer, unless it said so itself or does not answer.
	if why.Why == WhyProtocol || why.Why == WhyTooBig || why.Why == WhyNotReady || why.Why == WhyClosed {
		if p.remoteID != 0 {
			psn := p.tx.una
			if !p.initiator && p.rx != nil {
				psn = p.rx.max
			}
			t.sendNack(now, p.remote, 0, wire.Nack{Type: wire.TypeNack, Code: wire.NackClosingInErr, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID})
		}
	}
	t.failPackets(p, why)
	t.remove(now, p, why)
}

// Abort ends every PDC at once and sends each peer one farewell. It does not wait for
// answers.
func (t *Table) Abort(now time.Duration) {
	for _, p := range t.slots {
		if p != nil {
			t.abort(now, p)
		}
	}
}

// AbortPeer is Abort for the PDCs to and from one peer.
func (t *Table) AbortPeer(now time.Duration, peer uint32) {
	for _, p := range t.slots {
		if p != nil && p.Peer == peer {
			t.abort(now, p)
		}
	}
}

func (t *Table) abort(now time.Duration, p *PDC) {
	if p.initiator && p.Outstanding() == 0 && p.remoteID != 0 && p.tx.nxt.Sub(p.tx.cack) <= p.tx.window {
		// UE 3.5.8: an initiator with nothing outstanding closes in order.
		t.sendCP(p, wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: p.tx.nxt, SPDCID: p.id, DPDCID: p.remoteID})
		t.remove(now, p, Reason{Why: WhyClosed})
		return
	}
	t.fail(now, p, Reason{Why: WhyClosed})
}

// NextLoose removes and returns the oldest loose packet. It reports false if there is none.
func (t *Table) NextLoose() (Loose, bool) {
	if t.looseLen == 0 {
		return Loose{}, false
	}
	l := t.loose[t.looseHead]
	t.looseHead = (t.looseHead + 1) % maxLoose
	t.looseLen--
	return l, true
}

// Loose reports whether NextLoose has something.
func (t *Table) Loose() bool { return t.looseLen != 0 }

// PeekLoose returns the oldest loose packet without removing it, nil if there is none.
func (t *Table) PeekLoose() *Loose {
	if t.looseLen == 0 {
		return nil
	}
	return &t.loose[t.looseHead]
}

// SendLoose sends a control packet once, apart from the queue of its PDC, if more than half of the room for such packets
// is free.
func (t *Table) SendLoose(remote netip.AddrPort, path uint32, c wire.CP) {
	if t.looseLen >= maxLoose/2 {
		return
	}
	t.Stats.CPTx[c.Ctl]++
	var a [32]byte
	t.pushLoose(remote, path, c.Append(a[:0]))
}

// pushLoose queues a packet. It returns nil if there is no room.
func (t *Table) pushLoose(remote netip.AddrPort, path uint32, b []byte) *Loose {
	if t.loose == nil {
		t.loose = make([]Loose, maxLoose)
	}
	if t.looseLen == maxLoose {
		t.Stats.DropRate++ // the answer is dropped; the peer asks again
		return nil
	}
	l := &t.loose[(t.looseHead+t.looseLen)%maxLoose]
	t.looseLen++
	l.Remote, l.Path, l.N, l.Pad = remote, path, uint8(len(b)), 0
	copy(l.B[:], b)
	return l
}

func (t *Table) sendNack(now time.Duration, remote netip.AddrPort, path uint32, n wire.Nack) {
	// T27, T28: NACKs that name no PDC are limited.
	if n.SPDCID == 0 {
		if !t.mayNack(now) {
			return
		}
		t.nackLeft--
	}
	t.Stats.NacksTx[n.Code]++
	var a [32]byte
	t.pushLoose(remote, path, n.Append(a[:0]))
}

// NACKs that name no PDC are limited to nackLots in each nackLot, 10,000 a second. Arbitrary,
// far above what honest peers cause.
const (
	nackLots = 100
	nackLot  = 10 * time.Millisecond
)

// mayNack reports whether a NACK that names no PDC may leave now. If not it counts the drop.
func (t *Table) mayNack(now time.Duration) bool {
	if now-t.nackAt >= nackLot {
		t.nackAt, t.nackLeft = now, nackLots
	}
	if t.nackLeft == 0 {
		t.Stats.DropRate++
		return false
	}
	return true
}

func (t *Table) sendCP(p *PDC, c wire.CP) {
	t.Stats.CPTx[c.Ctl]++
	var a [32]byte
	t.pushLoose(p.remote, 0, c.Append(a[:0]))
}
