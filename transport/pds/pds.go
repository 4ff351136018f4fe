// Package pds is the packet delivery sublayer of Ultra Ethernet Transport (UE
// 3.5): packet delivery contexts (PDCs), packet sequence numbers, selective
// acknowledgement, loss recovery, the life of a PDC from its first SYN to its
// quarantine.
//
// A Table holds the PDCs of one FEP. It knows no message: what a packet carries
// is an opaque Ref, and a packet that must be sent again is asked for again by
// its Ref. It does no I/O and reads no clock; one caller at a time. What
// became of packets and PDCs comes out as News, which the owner takes after each call
// and before the next; what the Table has to know of the message layer it asks an Owner.
package pds

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A Ref names what a packet carries. PDS keeps it and hands it back. Up to four
// fields the compiler keeps in registers.
type Ref struct {
	Msg  uint32
	Off  uint32
	Len  uint32
	Kind uint8
}

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
}

// Config holds the constants of a Table. All must be set but where zero has a
// meaning.
type Config struct {
	MPRange   int // PSN window offered, multiple of 128, power of two
	TxWindow  int // packets this side keeps outstanding per PDC, power of two
	HoldBytes int // bytes of ROD packets that wait for an earlier one
	Paths     int // local ports that the owner sends from
	Nominal   int // bytes added to headers and payload for accounting: trailer + 8 + 40

	AckTrigger int
	AckMinAdd  int
	AckDelay   time.Duration

	RTOInit        time.Duration
	RTOMax         time.Duration
	PeerTimeout    time.Duration
	SuspectTimeout time.Duration
	NewPDCTime     time.Duration
	CloseReqTime   time.Duration
	Quarantine     time.Duration
	IdleClose      time.Duration
	RNRTimeout     time.Duration
	SpecRetries    bool

	// Secure is how this side establishes the PDCs that others open, and whether
	// it is secured at all. What it opens itself is as its target wants.
	Secure Secure

	MaxPDCs             int
	MaxPDCsPerSource    int
	MaxPDCsUnknown      int
	MaxPending          int
	MaxPendingPerSource int
	MaxQuarantine       int

	// StartPSN, if not nil, chooses the first PSN of PDCs this side opens (for
	// tests of wrap-around); nil: random. What a target asks for goes before.
	StartPSN func() wire.PSN

	// MaxRange is how many PSNs a PDC uses before it closes at the end of the
	// message and another takes its place; 0: 2³⁰ (F34).
	MaxRange int32
}

// Secure is how a target establishes PDCs (UE 3.5.8, S-SYN-02, S-SYN-03).
type Secure uint8

// The ways. The target alone chooses: peers with different ones get on.
const (
	SecureNone    Secure = iota // without security: any Start_PSN
	SecureZeroRTT               // a Start_PSN at or above the floor, which rises with every PDC that ends
	SecureOneRTT                // the Start_PSN that the target drew for this very PDC
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

// A PDC is a packet delivery context. Its exported methods are for the owner of
// the Table.
//
// With many peers the PDC of each packet lies in cold memory, and what a packet
// costs is the cache lines it touches. So what every packet touches comes first,
// in whole lines of 64 bytes; what loss, closing and control packets need lies
// behind it (docs/decisions/0011).
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
	known        bool  // the peer's address is one the application named
	proven       bool  // target: the initiator is no spoofed source: it used our PDCID, or is authenticated
	pending      bool  // target: counts as pending, being neither proven nor known
	strikes      uint8 // T9: consecutive packets that acknowledge what was never sent
	// Awaited is the owner's: something waits for a Wake of this PDC.
	Awaited bool
	start   wire.PSN
	remote  netip.AddrPort // where to send; for a target where the SYN came from

	ccc       CCC
	lastHeard time.Duration // last valid packet from the peer
	idleAt    time.Duration // since when nothing is outstanding
	evidence  time.Duration // first ICMP evidence since lastHeard, 0: none
	who       uint64        // the life of the peer that the PDC is bound to, see Arrival.Who
	heapAt    time.Duration // when the timer heap looks at the PDC

	path         uint8 // target: the path the SYN came by
	renumberings uint8 // NACKs 0x17 that were followed
	// doubted: a fatal NACK came at fatalAt, and counts if a second one confirms
	// it (T6).
	doubted bool
	fatal   wire.NackCode
	// From is the owner's: what the CRC of packets from remote begins with.
	From wire.Prefix

	tx txDir
	rx *rxDir

	fatalAt     time.Duration
	rebirths    uint8
	clearStarts uint8 // NACKs 0x17 that were followed and that nobody authenticated
	opened      time.Duration
	closeBy     time.Duration // CloseRequested, CloseAckWait: give up then

	_ [56]byte // whole cache lines: 512 bytes, which the heap puts at a multiple of them
}

// ID is the PDC's own PDCID; RemoteID the peer's, 0 while unknown.
func (p *PDC) ID() uint16         { return p.id }
func (p *PDC) RemoteID() uint16   { return p.remoteID }
func (p *PDC) Mode() wire.Mode    { return p.mode }
func (p *PDC) State() State       { return p.state }
func (p *PDC) Initiator() bool    { return p.initiator }
func (p *PDC) StartPSN() wire.PSN { return p.start }

// Remote is the address packets of this PDC go to. It is read only.
func (p *PDC) Remote() *netip.AddrPort { return &p.remote }

// Outstanding is the number of PSNs that are sent and not finished.
func (p *PDC) Outstanding() int { return int(p.tx.nxt.Sub(p.tx.una)) }

// CCC is the congestion control context the PDC was opened with.
func (p *PDC) CCC() CCC { return p.ccc }

// A Table holds the PDCs of one FEP.
type Table struct {
	hdr wire.Req // see Again

	rtoLeast  time.Duration // no rto of any PDC is less
	tailLeast time.Duration // no tailTime of any PDC is less
	mpr       uint8         // the PSN window offered, in the units of the header

	cfg     Config
	rng     *rand.Rand
	owner   Owner
	news    newsList
	guesser netip.AddrPort // where the last guess came from

	ids   idTable
	last  *[1 << (16 - lastBits)]*lastPage // nil: no PDC yet that this side opened and that ended
	slots []*PDC
	free  []uint32
	live  int

	bySyn     map[synKey]*PDC
	lastSyn   *PDC // the PDC the last SYN packet found
	sources   map[netip.Addr]*sourceCount
	unknown   int // target PDCs of addresses the application never named
	pending   int // target PDCs that are neither proven nor known
	pendQueue []pendRef

	quar    quarantine
	heap    []timer
	heapPos []int32 // where in heap the timer of a Slot is, if it has one

	floor    uint64 // 0-RTT: lowest Start_PSN that opens a PDC; 2³²: none any more
	pend     pendTable
	expected expectedTable // what targets told of their floors

	loose     []Loose // ring of answers that no PDC carries
	looseHead int
	looseLen  int
	nackAt    time.Duration // rate limit of NACKs to unknown PDCs
	nackLeft  int
	guessAt   time.Duration // begin of the second in which guesses came
	guesses   int

	rings    [16][][]txPkt // free transmit rings by log2 of their length
	ringKept int           // packets in rings
	rxFree   []*rxDir
	holdUsed int

	// Cause is why what Push, Resend, NextCtl or NextAck of a PDC gave last is sent.
	Cause Cause

	Stats Stats
}

// Stats counts what the Table did; the owner copies them.
type Stats struct {
	RtxRTO, RtxSACK, RtxNack, RtxProbe, RtxSpurious uint64
	RxDup, RxOOO, RxCE                              uint64
	AcksCE                                          uint64 // ACKs that say their packet came with a congestion mark
	NacksTx, NacksRx                                [256]uint64
	CPTx, CPRx                                      [16]uint64
	Opened, Accepted, Closed, Errors, Quarantined   uint64
	DropNoPDC, DropSource, DropUnsent, DropStale    uint64
	DropLimit, DropRate, DropHeader, DropType       uint64
	DropBinding                                     uint64 // packets of another life of the peer than the PDC's
	Guessed                                         uint64 // packets that name a PDC and cannot belong to it (T3)
	Pending, PendingReaped, Renumbered              uint64 // PENDING PDCs made, and given up; NACKs 0x17 followed
}

// A Loose is a packet that leaves outside any PDC's queue: a NACK, or the ACK
// of a control packet. B[:N] is the PDS header; nothing follows but the trailer.
type Loose struct {
	Remote netip.AddrPort
	Path   uint8
	N      uint8
	B      [16]byte
}

const maxLoose = 1024

// New makes an empty Table.
func New(cfg Config, rng *rand.Rand, owner Owner) *Table {
	if cfg.MaxRange == 0 {
		cfg.MaxRange = maxRange
	}
	t := &Table{cfg: cfg, rng: rng, owner: owner, rtoLeast: cfg.RTOInit - cfg.RTOInit/10,
		mpr:     uint8(min(max(cfg.MPRange/128, 1), 255)),
		bySyn:   make(map[synKey]*PDC),
		sources: make(map[netip.Addr]*sourceCount),
	}
	t.tailLeast = min(silenceLeast, t.rtoLeast)
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

// Slots is one more than the highest Slot in use so far.
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
	p.heapAt = never
	p.opened, p.lastHeard, p.idleAt = now, now, now
	t.live++
	t.setID(p.id, p)
}

// remove frees the PDC's place. Its packets are settled already.
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
	if p.rx != nil {
		t.putRx(p.rx)
		p.rx = nil
	}
	t.slots[p.Slot] = nil
	t.live--
	t.Stats.Closed++
	if why.Why != WhyNone && why.Why != WhyClosed {
		t.Stats.Errors++
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

// fail ends the PDC in error: every packet that is not finished fails.
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
			t.sendNack(now, p.remote, p.path, wire.Nack{Type: wire.TypeNack, Code: wire.NackClosingInErr, PSN: psn, SPDCID: p.id, DPDCID: p.remoteID})
		}
	}
	t.settleAll(p, why)
	t.remove(now, p, why)
}

// Abort ends every PDC at once without waiting for the peers: each gets one
// farewell. The owner is closing.
func (t *Table) Abort(now time.Duration) {
	for i := range t.slots {
		p := t.slots[i]
		if p == nil {
			continue
		}
		if p.initiator && p.Outstanding() == 0 && p.remoteID != 0 && p.tx.nxt.Sub(p.tx.cack) <= p.tx.window {
			// UE 3.5.8: an initiator with nothing outstanding closes in order.
			t.sendCP(p, wire.CP{Ctl: wire.CtlClose, Flags: wire.FlagAR, PSN: p.tx.nxt, SPDCID: p.id, DPDCID: p.remoteID})
			t.remove(now, p, Reason{Why: WhyClosed})
			continue
		}
		t.fail(now, p, Reason{Why: WhyClosed})
	}
}

// NextLoose takes the next loose packet, or reports false.
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

// PeekLoose is NextLoose without taking it.
func (t *Table) PeekLoose() *Loose {
	if t.looseLen == 0 {
		return nil
	}
	return &t.loose[t.looseHead]
}

func (t *Table) pushLoose(remote netip.AddrPort, path uint8, b []byte) {
	if t.loose == nil {
		t.loose = make([]Loose, maxLoose)
	}
	if t.looseLen == maxLoose {
		t.Stats.DropRate++ // the answer is dropped; the peer asks again
		return
	}
	l := &t.loose[(t.looseHead+t.looseLen)%maxLoose]
	t.looseLen++
	l.Remote, l.Path, l.N = remote, path, uint8(len(b))
	copy(l.B[:], b)
}

func (t *Table) sendNack(now time.Duration, remote netip.AddrPort, path uint8, n wire.Nack) {
	// T27, T28: answers to what names no PDC are limited to 10,000 a second, in
	// lots per 10 ms; arbitrary, far above what honest peers cause.
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

// mayNack reports whether a NACK that names no PDC may leave now, and counts it
// if not.
func (t *Table) mayNack(now time.Duration) bool {
	if now-t.nackAt >= 10*time.Millisecond {
		t.nackAt, t.nackLeft = now, 100
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
	t.pushLoose(p.remote, p.path, c.Append(a[:0]))
}
