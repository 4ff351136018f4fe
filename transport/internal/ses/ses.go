// Package ses is the semantic sublayer of Ultra Ethernet Transport (UE 3.4):
// messages, their cutting into packets and their placement, matching of
// receives, and the response that every request packet gets.
//
// A SES belongs to one FEP. Below it are endpoints, named by JobID, PIDonFEP and resource
// index, which share its peers, its message ids and the room for unexpected messages. It
// knows no PSN, no address and no clock: packets are Pieces when they leave and Requests when
// they arrive, peers and PDCs are numbers of the caller's, and time comes in by Advance. One
// caller at a time. The owner drains Event after its calls; nothing is called back.
//
// Initiator side: Send, then Peek and AppendPiece for each piece, then one Answered
// or Failed for each piece handed out; the Event follows the last of them
// (S-CPL-01..07). Target side: Recv, and Request for each new packet.
//
// Where what is: endpoint.go (who a request is for); send.go, piece.go (cutting), answer.go (responses, and how a send ends),
// again.go (sending again), fence.go; request.go (checks, messages of one packet), forms.go
// (other headers), response.go, match.go, recv.go, multi.go, look.go; inbound.go (messages of
// several packets), dead.go (those that ended in error), unexpected.go, peers.go; end.go.
package ses

import (
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// Errors of Send and Recv. The operation was not accepted and makes no Event.
var (
	ErrFull    = errors.New("ses: no room for another operation now")
	ErrTooLong = errors.New("ses: message longer than the limit")
	ErrClosed  = errors.New("ses: endpoint is closed")
)

// MaxMessage is the longest message the protocol carries, in bytes (S-FLD-04).
// Where int has 32 bits it is what int tells from too long.
const MaxMessage = min(0xFFFFFFFE, math.MaxInt-1)

// Config describes one SES. Zero fields take the stated defaults.
type Config struct {
	// EndpointConfig is that of the endpoint that New makes.
	EndpointConfig

	// UnexpectedBytes bounds the memory for payload that no receive matched
	// (default 64 MiB), UnexpectedMsgs the number of such messages (default
	// 65,536), UnexpectedShare the part of both that one peer may take (default
	// 1/4). A message beyond is refused with NACK 09 before anything of it is
	// kept, and comes again later. Each message takes its length rounded up to a
	// power of two from 64 bytes on, above 16 KiB to a multiple of 32 KiB, and
	// at most 200 bytes besides.
	UnexpectedBytes int64
	UnexpectedMsgs  int
	UnexpectedShare float64
	// OpenPerPeer bounds the inbound messages in progress per peer (default 64).
	// Beyond, the first packet of a new one is refused with NACK 09.
	OpenPerPeer int

	// MaxMessage is the longest message sent (ErrTooLong) and received
	// (UNSUPPORTED_SIZE), in bytes; 0: the protocol's limit.
	MaxMessage uint32
	// RefuseTooLong answers TOO_LONG to a message that does not fit the receive
	// it matches, instead of placing its beginning (S-MAT-08). Either way
	// the receive ends as Truncated. A message that came unexpected was answered
	// already and is placed as far as it fits.
	RefuseTooLong bool

	// RNRTimeout bounds how long a message is sent again and again to a target
	// that answers but is not ready (NO_MATCH, DISABLED_GEN); 0: no limit,
	// negative: the first such answer is final.
	RNRTimeout time.Duration
	// IdleTimeout ends an inbound message of which nothing arrived for so long
	// although its PDC lives (T15), and a send whose promised response does not
	// come; default 80 s, twice the time after which a silent peer is given up;
	// negative: never. It is kept to within a quarter.
	IdleTimeout time.Duration

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
	def(&c.UnexpectedMsgs, 65536)
	def(&c.OpenPerPeer, 64)
	if c.UnexpectedBytes <= 0 {
		c.UnexpectedBytes = 64 << 20
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
	now    time.Duration // of the last Advance
	seq    uint64        // post order of receives and sends

	// The header being executed, whom it names, where it came from, and its Result. They live
	// here because every packet uses them: on the stack they would be built and copied.
	// Between packets to is whom the last one named, which the next one mostly does, too.
	req wire.ReqStd
	to  *endpoint
	src Source
	res Result

	endpoints []*endpoint // by EndpointID
	names     names
	maxRecvs  int // of all endpoints

	outgoing
	posted
	incoming

	epoch   uint32 // counts sweeps
	sweepAt time.Duration

	events ring

	// Stats only grow; the owner reads them.
	Stats Stats
}

// outgoing is the sends of all endpoints.
type outgoing struct {
	sends      table[send]
	numSends   int          // places of it in use
	ids        [1024]uint64 // message ids in use
	lastID     uint16
	copies     arena
	iovs       [][][]byte // recycled slices of user slices
	waiting    []int32    // sends refused for now; Advance brings them back
	ready      []int32    // sends to be sent again, in post order
	unstamped  bool       // some of waiting have no time yet
	nextRetry  time.Duration
	fences     []fence
	unfenced   []Handle
	waitResult int                         // sends that wait for a response after NO_RESPONSE
	gens       map[uint32]map[genKey]uint8 // by peer
	numGens    int                         // in all of them
}

// posted is the receives of all endpoints. What they match is in the spaces of each.
type posted struct {
	recvs   table[recv]
	starved bool          // a space is
	feedAt  time.Duration // when to try, 0: as soon as possible
}

// incoming is the messages that peers sent: it is kept by peer and PDC, and bounded for
// each peer and in all, whatever endpoint they are for.
type incoming struct {
	in       table[inmsg]
	last     int32    // inbound message of the last packet
	byPDC    index    // open and dead inbound messages
	open     int      // inbound messages in progress
	dead     int      // those that ended in error and are remembered
	kept     int      // unexpected messages, complete or not
	bytes    int64    // charged for them
	unproven struct { // those of sources that may be forged
		kept  int32
		bytes int64
	}
	store  arena
	tabs   []chunkTab
	tabs0  []int32 // free elements of tabs
	peers  table[peerUse]
	byPeer index
}

// Stats counts what a SES did.
type Stats struct {
	MsgsTx, BytesTx uint64 // sends that succeeded
	SendErrors      uint64
	Resends         uint64 // messages sent again after NO_MATCH and the like
	LateErrors      uint64 // failures after success was reported (R-CMPL-17)
	MsgsRx, BytesRx uint64 // messages delivered, truncated ones too; bytes placed
	RecvErrors      uint64
	Truncated       uint64
	Unexpected      uint64     // messages that met no receive
	Refused         uint64     // packets refused with NACK 09
	Answers         [64]uint64 // responses given, by return code
	MsgErrorsTx     uint64     // MSG_ERROR pieces handed out
	MsgErrorsRx     uint64
	Bad             uint64 // requests too short to answer
	Expired         uint64 // inbound messages ended by IdleTimeout
	RspForeign      uint64 // responses with another message id (S-RSP-06)
	RspUnknown      uint64 // responses with a reserved or vendor opcode or list
	Stale           uint64 // calls for messages that had ended
}

// A Source says where a request came from: the caller's numbers of the peer
// address, not 0, and of the PDC.
type Source struct {
	Peer uint32
	PDC  uint32
	// Later: a packet that was sent before this one was refused and is still to come. This
	// packet begins no message of several packets then: the room, or the receive, may be
	// meant for the other. The exception is a message all of which is known to be sent:
	// Behind packets were sent after this one.
	Later  bool
	Behind int
	// Unproven: the source may be forged. No operation has named it, and nothing shows that
	// it receives what is sent to it. All such sources together have the share of one peer.
	Unproven bool
	// Now is when it came, for RecvView alone.
	Now time.Duration
}

// New makes a SES. cfg is copied.
func New(cfg Config) *SES {
	cfg.Fill()
	s := &SES{cfg: cfg, incoming: incoming{last: none}}
	s.byPDC.init(1024)
	s.byPeer.init(512)
	s.store.init(int((cfg.UnexpectedBytes+chunkLen-1)/chunkLen) + numClasses)
	s.copies.init(0)
	first, _ := s.Open(cfg.EndpointConfig) // nothing is in its way
	s.to = s.endpoints[first]
	return s
}

// Sends is the number of sends not yet finished, including those whose early
// completion was reported.
func (s *SES) Sends() int { return s.numSends }

// Recvs is the number of receives not yet finished.
func (s *SES) Recvs() (n int) {
	for _, e := range s.endpoints {
		n += e.recvs
	}
	return n
}

// Unexpected is the number of messages that no receive matched yet and the
// bytes charged for them.
func (s *SES) Unexpected() (msgs int, bytes int64) { return s.kept, s.bytes }

// InProgress is the number of messages of which parts arrived and parts did not.
func (s *SES) InProgress() int { return s.open }

// Idle reports that no message is in progress in either direction, no
// unexpected one is held and no Event waits. Receives may be posted.
func (s *SES) Idle() bool {
	return s.numSends == 0 && s.open == 0 && s.kept == 0 && s.events.n == 0
}

// Config returns the configuration in force, defaults filled in.
func (s *SES) Config() Config { return s.cfg }

// Advance does what is due at or before now: messages to be sent again become
// ready for Resend, what stopped in the middle ends.
func (s *SES) Advance(now time.Duration) {
	s.now = now
	if s.unstamped || s.nextRetry != 0 && now >= s.nextRetry {
		s.retry(now)
	}
	if s.starved && now >= s.feedAt {
		s.feed(now)
	}
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
		s.sweepSends()
	}
}

// Waits reports whether there is a timer.
func (s *SES) Waits() bool {
	return s.open|s.waitResult|len(s.unfenced) != 0 || s.starved || s.unstamped || s.nextRetry != 0
}

// NextTimeout is the time Advance must be called at the latest, 0: no timer. A
// time in the past asks for a call as soon as possible.
func (s *SES) NextTimeout() time.Duration {
	t := s.nextRetry
	if s.unstamped || len(s.unfenced) > 0 {
		t = max(s.now, 1)
	}
	if s.starved {
		if u := max(s.feedAt, 1); t == 0 || u < t {
			t = u
		}
	}
	if (s.open > 0 || s.waitResult > 0) && s.cfg.IdleTimeout > 0 {
		if u := max(s.sweepAt, 1); t == 0 || u < t {
			t = u
		}
	}
	return t
}

// expired reports whether something last touched in sweep epoch e has been idle
// for IdleTimeout.
func (s *SES) expired(e uint32) bool { return s.epoch-e > 4 }

// hash mixes a and b with the seed.
func (s *SES) hash(a, b uint64) uint32 {
	hi, lo := bits.Mul64(a^s.cfg.Seed^0x9e3779b97f4a7c15, b^bits.RotateLeft64(s.cfg.Seed, 32)^0xd1b54a32d192ed03)
	hi, lo = bits.Mul64(hi^lo^0x2545f4914f6cdd1d, 0xff51afd7ed558ccd)
	return uint32(hi ^ lo)
}
