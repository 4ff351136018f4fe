// Package ses is the semantic sublayer of Ultra Ethernet Transport (UE 3.4). It cuts messages
// into pieces, places what arrives, matches messages with receives, and answers every request
// packet with a response.
//
// A SES belongs to one FEP. Its endpoints are named by JobID, PIDonFEP and resource index. They
// share its peers, its message ids and the room for unexpected messages. A SES knows no PSN, no
// address and no clock. It sends Pieces and receives Requests; the caller numbers peers and
// PDCs; Advance tells it the time. It serves one caller at a time and calls nothing back: the
// owner reads Event after each call.
//
// To send: Send, then Peek and AppendPiece for each piece, then one Answered or Failed for each
// piece handed out. The Event follows the last of them (S-CPL-01..07). To receive: Recv, and
// Request for each new packet.
//
// The files. endpoint.go: whom a request is for. own.go: what one endpoint has. Sending: op.go, send.go, piece.go (cutting),
// answer.go (responses, and how a send ends), again.go (sending again), resource.go (order behind a
// refusal), fence.go, deferred.go, lend.go (rendezvous sends), small.go (small headers). Receiving: request.go (checks, messages of one packet),
// region.go (memory that peers may access), write.go, tagatomic.go (atomic operations on receives), forms.go (other headers), response.go,
// match.go, recv.go, multi.go, look.go, inbound.go (messages of several packets), dead.go (those
// that ended in error), unexpected.go, offer.go (messages kept as headers), pull.go (rendezvous sends),
// peers.go. Both:
// event.go, end.go, diagnose.go, table.go, heap.go, arena.go.
package ses

import (
	"errors"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// Errors of Send and Recv. The operation was not accepted and makes no Event.
var (
	ErrFull    = errors.New("ses: no room for another operation now")
	ErrTooLong = errors.New("ses: message longer than the limit")
	ErrClosed  = errors.New("ses: endpoint is closed")
)

// MaxMessage is the longest message the protocol carries, in bytes (S-FLD-04). Where int has 32
// bits it is MaxInt-1, because Op.Bytes stops at MaxInt.
const MaxMessage = min(0xFFFFFFFE, math.MaxInt-1)

// Config describes one SES. Zero fields have the stated defaults.
type Config struct {
	// EndpointConfig is that of endpoint 0, which New opens.
	EndpointConfig

	// UnexpectedBytes bounds the memory for unexpected messages (default 64 MiB),
	// UnexpectedMsgs their number (default 1,048,576), UnexpectedShare the part of both that one
	// peer may use (default 1/4). The first packet of a message beyond a bound is refused with
	// NACK 09, and the peer sends it again later, or it is deferred (DeferrableMin). All sources
	// that may be forged keep no more than 16,384 messages together. A message counts as its length
	// rounded up: to a power of two of at least 64 bytes, above 16 KiB to a multiple of 32 KiB; an empty one
	// as 0. Its state takes at most 128 bytes more, which do not count; 96 more if the PDC by which it was
	// deferred or announced is gone.
	UnexpectedBytes int64
	UnexpectedMsgs  int
	UnexpectedShare float64
	// PartialBytes bounds what of UnexpectedBytes messages hold of which packets are missing, those of all
	// peers together (default a half): peers that send no end of their messages leave the rest to others (T38).
	// The first packet of a message beyond it is refused with NACK 09, or the message is deferred. One
	// such message may always be there.
	PartialBytes int64
	// OpenPerPeer bounds the open inbound messages of a peer, and its dead ones (default 64). The first packet
	// that is missing may begin one more (Source.First).
	// Beyond it, the first packet of another message of several packets is refused with NACK
	// 09.
	OpenPerPeer int

	// ReadWindow is how many bytes a read may have asked for that did not come yet (default 1 MiB).
	// It paces long reads.
	ReadWindow int
	// FirstAsk is how many bytes the first request of a read of several packets asks for if it
	// does not say so: the MTU that both sides have (default 1024).
	FirstAsk int

	// MaxMessage is the longest message in bytes. A longer one is neither sent (ErrTooLong) nor
	// received (UNSUPPORTED_SIZE). 0 means the limit of the protocol.
	MaxMessage uint32
	// RefuseTooLong answers TOO_LONG to a message that does not fit the receive it matches,
	// instead of placing its beginning (S-MAT-08). Either way the receive ends as Truncated. An
	// unexpected message was answered when it came, so it is placed as far as it fits.
	RefuseTooLong bool

	// MaxRegions bounds the memory regions of each endpoint, and those of all endpoints together (default 65,536).
	MaxRegions int
	// Random draws the memory keys of NewKey. It must be one that nobody can guess where peers
	// are not trusted. nil draws from Seed.
	Random func() uint64

	// DeferrableMin is the length in bytes from which on a send may be deferred by its target:
	// instead of keeping its bytes the target keeps its header, and asks for all of it when a
	// receive has matched it. 0 means 16 KiB, a negative value that no send may.
	DeferrableMin int

	// RendezvousMin is the length in bytes from which on a send goes by rendezvous, if its target reads
	// such sends: the target is told where the message is, and reads it when a receive has
	// matched. 0, or a negative value, means that none does.
	RendezvousMin int

	// Halt ends all ordered messages of a peer behind one that failed (Halt). ErrHalted refuses later ones.
	Halt bool
	// RNRTimeout bounds how long a message is sent again to a target that answers but is not ready
	// (NO_MATCH, DISABLED_GEN), or has deferred it. 0 means no limit; a negative value makes the
	// first such answer final.
	RNRTimeout time.Duration
	// IdleTimeout ends an inbound message whose PDC lives but of which nothing arrived for so
	// long (T15). It may act up to a quarter
	// late. The default is 80 s, twice the time after which a silent peer is given up; a
	// negative value means never.
	IdleTimeout time.Duration

	// FirstID is the id of the first message sent; 0 means 1. Ids of a FEP should not begin where
	// those of its former life did.
	FirstID uint16
	// Seed makes the hash tables unpredictable for peers. Any value is valid.
	Seed uint64
}

// Fill replaces zero fields by their defaults.
func (c *Config) Fill() {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	c.EndpointConfig.fill()
	def(&c.UnexpectedMsgs, 1<<20)
	if c.DeferrableMin == 0 {
		c.DeferrableMin = 16 << 10
	}
	def(&c.OpenPerPeer, 64)
	def(&c.MaxRegions, 65536)
	def(&c.ReadWindow, 1<<20)
	def(&c.FirstAsk, 1024)
	if c.Random == nil {
		c.Random = rand.New(rand.NewPCG(c.Seed, 0x6d6b6579)).Uint64
	}
	if c.UnexpectedBytes <= 0 {
		c.UnexpectedBytes = 64 << 20
	}
	if c.PartialBytes <= 0 {
		c.PartialBytes = c.UnexpectedBytes / 2
	}
	if !(c.UnexpectedShare > 0 && c.UnexpectedShare <= 1) {
		c.UnexpectedShare = 0.25
	}
	if c.MaxMessage == 0 || c.MaxMessage > MaxMessage {
		c.MaxMessage = MaxMessage
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 80 * time.Second
	}
}

// none is the index of nothing in every table.
const none int32 = -1

// SES is the message layer of one FEP.
type SES struct {
	cfg    Config
	closed bool
	ended  bool          // End was called
	now    time.Duration // time of the last Advance
	seq    uint64        // number of the latest operation posted

	// The request being executed: its header, the endpoint it names, its source and its Result.
	// They are fields because on the stack every packet would build and copy them. Between
	// packets, to is the endpoint that the last request named; mostly the next one names it
	// too.
	req    wire.ReqStd
	to     *endpoint
	src    Source
	res    Result
	inline [maxInline]byte // bytes that go with res
	small  bool            // the request has no message id
	turned uint32          // payload bytes of the request, if there was no room for it

	endpoints []*endpoint  // by EndpointID
	gone      []EndpointID // of them, closed, the first closed first: their numbers are used again
	lowOpen   int          // below it no endpoint is open
	names     names
	walked    uint64 // steps through what single endpoints have (own.go), and through the fences
	maxRecvs  int    // sum of MaxRecvs of all endpoints

	outgoing
	deferring
	lending
	posted
	incoming
	offering
	pulling
	serving
	regions

	relieveAt time.Duration // when to call relieve, 0: nothing waits
	relieved  time.Duration // when it was called last
	idle      int           // calls of it in a row that took nothing back
	holdings  []holding     // used by relieve
	unready   []uint32      // scratch of waits: peers with an ordered message that is not complete

	// tops are the numbers of the youngest receives that ordered messages got, by peer; topSeq
	// is the greatest of them.
	tops   []uint64
	topSeq uint64

	epoch   uint32 // number of sweeps so far
	sweepAt time.Duration

	events ring

	// Stats only grow; the owner reads them.
	Stats Stats
	// Halted says that the owner must call Halt before it sends more.
	Halted bool
	// Crowded says that PDCs are closed because there are few. What has stood for a message then, and was closed in order, says
	// nothing of its target: it is asked at the next sweep whether it has the message.
	Crowded bool
}

// outgoing holds the sends of all endpoints.
type outgoing struct {
	sends        table[send]
	numSends     int           // sends that have not ended
	ids          *[1024]uint64 // bitmap of the message ids in use; nil before the first send
	lastID       uint16
	copies       arena
	iovs         [][][]byte      // recycled slices of user slices
	waiting      heap[*send]     // unordered sends that wait, by retryAt
	patient      heap[*send]     // those that their target has deferred, or is to read, by the end of RNRTimeout
	troubled     heap[*resource] // resources that get a probe, by the time of it
	ready        heap[*send]     // sends to be sent again, in post order
	fresh        []int32         // sends that wait since the last Advance
	numFresh     int             // how many of them still wait
	stirred      []*resource     // resources that Advance is to look at
	late         lateSend        // of which the neighbours are to be tried
	searchAt     time.Duration   // when they may be searched in waiting
	nextRetry    time.Duration   // the earliest time in waiting and troubled, 0: none
	numFences    int             // of all endpoints
	unfenced     []Handle
	waitResult   int                             // sends that wait for a response after NO_RESPONSE
	resources    map[uint32]map[genKey]*resource // those that refused something, by peer
	numResources int
	watched      []*resource         // all of them, and some that were forgotten
	reads        map[uint16]*reading // by message id: those that are queued on a PDC
	readsByPSN   map[psnKey]*reading // those whose request has no message id
	lastRead     *reading            // of reads: that of the latest data, nil if it may have ended
	asking       map[uint32]*asking  // by PDC
	idleAsking   []*asking
	held         []uint32 // PDCs on which a read waits for others
	lastRegion   lastRegion
	idleReads    []*reading              // recycled
	recuts       map[int32][]piece.Piece // by send.self: parts to be sent again, in the order in which they came back
}

// posted holds the receives of all endpoints. Messages find them through the spaces of the
// endpoints.
type posted struct {
	recvs   table[recv]
	starved bool          // a space is starved
	feedAt  time.Duration // when to call feed, 0: as soon as possible
}

// incoming holds the messages that peers sent, for all endpoints. They are found by peer and
// PDC. They are bounded for each peer and for all peers together.
type incoming struct {
	in         table[inmsg]
	intakes    table[intake]
	last       int32    // inbound message of the last packet, or none
	byPDC      index    // open and dead inbound messages
	byEndpoint index    // intakes, by the endpoint of their message
	open       int      // open inbound messages
	dead       int      // dead inbound messages
	kept       int      // unexpected messages, complete or open
	bytes      int64    // memory of unexpected messages
	partial    int64    // what of it is of open ones
	writing    int      // open writes
	unproven   struct { // what of kept, bytes and writing is of sources that may be forged
		kept    int32
		bytes   int64
		writing int
	}
	store  arena
	tabs   []chunkTab
	tabs0  []int32 // unused elements of tabs
	peers  table[peerUse]
	byPeer index
}

// Stats counts what a SES did.
type Stats struct {
	MsgsTx, BytesTx uint64 // sends that succeeded: messages, writes, reads and atomic operations
	modes                  // by which of them which went
	SendErrors      uint64
	Resends         uint64 // messages sent again after NO_MATCH and the like
	Lent            uint64 // sends that went by rendezvous
	Small           uint64 // writes and reads that went with the small header
	Pulled          uint64 // rendezvous sends of peers of which all was read
	LateErrors      uint64 // sends that failed after their success was reported (R-CMPL-17)
	MsgsRx, BytesRx uint64 // messages received, truncated ones too; bytes placed
	RecvErrors      uint64
	Truncated       uint64
	Unexpected      uint64     // messages that no receive matched when they came
	Deferred        uint64     // of these, those of which only the header was kept, and that come again
	Announced       uint64     // of these, rendezvous sends, of which only the header was kept
	Refused         uint64     // packets refused with NACK 09
	RefusedPartial  uint64     // messages beyond PartialBytes that were refused so, or deferred
	Answers         [64]uint64 // responses given, by return code
	MsgErrorsTx     uint64     // MSG_ERRORs sent
	MsgErrorsRx     uint64
	Bad             uint64 // requests that cannot be answered
	Unwanted        uint64 // datagrams of UUD that no receive waited for
	Expired         uint64 // inbound messages ended by IdleTimeout
	TakenBack       uint64 // receives taken back from messages that did not go on
	Withdrawn       uint64 // of these, those that were kept for a deferred message, which did not come
	RspForeign      uint64 // responses with another message id (S-RSP-06)
	RspUnknown      uint64 // responses with a reserved or vendor opcode or list
	Stale           uint64 // calls of Answered or Failed for messages that had ended
}

// modes count those sends that succeeded and did not go by RUD.
type modes struct{ byROD, byRUDI, byUUD uint64 }

// Ops is the number of sends that succeeded and went by a delivery mode. One that went by several PDCs, or
// first by RUDI and then by RUD, counts once, by the mode by which all of it went in the end.
func (s Stats) Ops(m wire.Mode) uint64 {
	switch m {
	case wire.RUD:
		return s.MsgsTx - s.byROD - s.byRUDI - s.byUUD
	case wire.ROD:
		return s.byROD
	case wire.RUDI:
		return s.byRUDI
	case wire.UUD:
		return s.byUUD
	}
	return 0
}

// A Source says where a request came from.
type Source struct {
	Peer uint32
	PDC  uint32
	// Later means that a packet sent before this one was refused and is still to come. The
	// room, or the receive, may be meant for that one. So this packet begins no message of
	// several packets, unless the whole message is known to be sent: Behind packets were sent
	// after this one.
	Later  bool
	Behind int
	// First means that every packet sent before this one has arrived, and some that were sent later. Later
	// messages may have taken the places, and wait for it: the PSNs of what is refused fill their
	// initiator's window. So it may have one place more.
	First bool
	// Unproven means that the source may be forged: no operation has named it, and nothing
	// shows that it receives what is sent to it. All such sources together may use as much as
	// one peer.
	Unproven bool
	// PSN is that of the request, and Most how many bytes of read data a packet to the peer takes. Both are
	// used if the request has no message id: its answer is one packet that names the PSN (S-RMA-71).
	PSN  wire.PSN
	Most uint32
	// Ordered means that the PDC is a ROD one.
	Ordered bool
	// Now is when the request came.
	Now time.Duration
}

// New makes a SES. cfg is copied.
func New(cfg Config) *SES {
	cfg.Fill()
	s := &SES{cfg: cfg, incoming: incoming{last: none}}
	s.lastID = max(cfg.FirstID, 1) - 1
	s.byPDC.init(1024, 1, func(i int32) uint32 { return s.hash(uint64(s.in.at(i).pdc), 1) })
	s.byEndpoint.init(maxEndpoints, 1, func(k int32) uint32 { return uint32(s.in.at(s.intakes.at(k).in).ep) })
	s.deferrals.init(mostNamed, s.deferralHash, func(i int32) *uint32 { return &s.in.at(i).room })
	s.named.init(mostNamed, s.nameHash, s.nameLinks.at)
	s.byPeer.init(512, 1, func(u int32) uint32 { return s.hash(uint64(s.peers.at(u).peer), 2) })
	s.store.init(int((cfg.UnexpectedBytes+chunkLen-1)/chunkLen) + numClasses)
	s.copies.init(0)
	s.captures.init(maxCaptured/chunkLen + numClasses)
	s.deferring.init(cfg.DeferrableMin, uint16(s.hash(uint64(cfg.FirstID), 4)))
	s.lending.init(cfg.RendezvousMin, s.deferMin)
	first, _ := s.Open(cfg.EndpointConfig) // cannot fail: there is no other endpoint
	s.to = s.endpoints[first]
	return s
}

// Sends is the number of sends that have not ended. It includes those whose success was
// reported early.
func (s *SES) Sends() int { return s.numSends }

// Recvs is the number of receives that have not ended.
func (s *SES) Recvs() (n int) {
	for _, e := range s.endpoints {
		n += e.recvs
	}
	return n
}

// Unexpected returns the number of unexpected messages, and the memory charged for them in
// bytes.
func (s *SES) Unexpected() (msgs int, bytes int64) { return s.kept, s.bytes }

// InProgress is the number of inbound messages of which some packets are missing.
func (s *SES) InProgress() int { return s.open }

// Idle reports whether there is no send, no open or unexpected message and no Event to read.
// Receives may be posted.
func (s *SES) Idle() bool {
	return s.numSends == 0 && s.numServes == 0 && s.open == 0 && s.kept == 0 && s.deferrals.n == 0 && s.events.n == 0
}

// Config returns the configuration, with defaults filled in.
func (s *SES) Config() Config { return s.cfg }

// Advance does what is due at or before now: messages to be sent again become ready for Resend,
// and messages that stopped in the middle end. It reports whether Resend, Unfenced or Owing may
// return something.
func (s *SES) Advance(now time.Duration) (some bool) {
	s.now = now
	if len(s.fresh)|len(s.stirred)|len(s.unasked) != 0 || s.nextRetry|s.relieveAt != 0 || s.starved {
		s.advanceWaiting(now)
	}
	if now >= s.sweepAt {
		s.sweep(now)
	}
	return len(s.ready)|len(s.unfenced)|len(s.owing) != 0
}

// sweep ends what stopped in the middle, unless the first sweep is yet to be planned.
func (s *SES) sweep(now time.Duration) {
	if s.cfg.IdleTimeout < 0 {
		return
	}
	step := s.cfg.IdleTimeout / 4
	if s.sweepAt == 0 {
		s.sweepAt = now + step
	}
	if now >= s.sweepAt {
		s.sweepAt = now + step
		s.epoch++
		s.sweepInbound()
		s.deferrals.shrink()
		s.named.shrink()
		s.sweepReads()
		s.sweepDeferred()
		s.sweepLent()
		s.ageHad()
		s.sweepServes()
	}
}

// advanceWaiting is Advance for messages that wait to be sent again, and for those that wait for
// a receive.
func (s *SES) advanceWaiting(now time.Duration) {
	if len(s.fresh)|len(s.stirred) != 0 || s.nextRetry != 0 && now >= s.nextRetry {
		s.retry(now)
	}
	if len(s.unasked) != 0 {
		s.askAgain()
	}
	if s.starved && now >= s.feedAt {
		s.feed(now)
	}
	if s.relieveAt != 0 && now >= s.relieveAt {
		s.relieve(now)
	}
}

// Waits reports whether NextTimeout may return a time.
func (s *SES) Waits() bool {
	return s.open|len(s.reads)|s.numServes|len(s.tokens)|len(s.loans)|len(s.unfenced)|len(s.fresh)|len(s.stirred)|len(s.ready)|s.deferrals.n != 0 || s.starved || s.nextRetry != 0
}

// NextTimeout is when Advance must be called at the latest, 0: never. A time in the past asks
// for a call as soon as possible.
func (s *SES) NextTimeout() time.Duration {
	t := s.nextRetry
	if len(s.fresh)|len(s.stirred)|len(s.unfenced)|len(s.ready) != 0 || len(s.unasked) != 0 && s.numSends < mostAsks {
		t = max(s.now, 1)
	}
	if s.starved {
		if u := max(s.feedAt, 1); t == 0 || u < t {
			t = u
		}
	}
	if u := s.relieveAt; u != 0 && s.contended() && (t == 0 || u < t) {
		t = u
	}
	if s.open|len(s.reads)|s.numServes|s.deferrals.n|len(s.tokens)|len(s.loans) != 0 && s.cfg.IdleTimeout > 0 {
		if u := max(s.sweepAt, 1); t == 0 || u < t {
			t = u
		}
	}
	return t
}

// expired reports whether something last used in sweep e has been idle for IdleTimeout.
func (s *SES) expired(e uint32) bool { return s.epoch-e > 4 }

// hash mixes a and b with the seed.
func (s *SES) hash(a, b uint64) uint32 {
	hi, lo := bits.Mul64(a^s.cfg.Seed^0x9e3779b97f4a7c15, b^bits.RotateLeft64(s.cfg.Seed, 32)^0xd1b54a32d192ed03)
	hi, lo = bits.Mul64(hi^lo^0x2545f4914f6cdd1d, 0xff51afd7ed558ccd)
	return uint32(hi ^ lo)
}
