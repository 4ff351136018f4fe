package simtest

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// An OpSpec is an operation that a scripted application posts.
type OpSpec struct {
	Kind transport.OpKind
	// From is the endpoint of its host that posts it. To is the endpoint of Peer that a send is
	// for.
	From, To transport.EndpointID
	// Peer is the index of the other host, or Any for a receive from all.
	Peer int
	// Len is the length of the message, or of the receive's buffer.
	Len int
	// Class is a part of a send's tag, in addition to the message's number (tagOf). A tagged
	// receive accepts messages of its Class, or all with AnyClass.
	Class    uint8
	AnyClass bool
	// Exact, if not nil, is the only send whose tag a tagged receive accepts.
	Exact *Op

	HasData, Inject, Ordered, Silent, Absolute, Fence bool
	Level                                             transport.Level
	// Pieces is the number of parts in which Post gets the buffer, as Iov. 0 means whole, as
	// Buf.
	Pieces int
	// BySource makes a receive from one Peer name its initiator as well.
	BySource bool
	// Addr is where a read begins in the memory of its Peer, a multiple of 8.
	Addr int
	// Key is that of the memory that a read is of, 0: that of the host. With World.KeyOf it is what a
	// rendezvous send lends.
	Key uint64
	// Word, if not nil, is what an atomic operation does to the word at Addr; nil adds 1 to the counter.
	Word *WordOp
	// Tally adds through a receive of the peer.
	Tally bool
	// RUDI lets a read or a write go by RUDI.
	RUDI bool
	// Small has a read or a write name its memory by a key with OPTIMIZED, so that the small header reaches it.
	Small bool
	// Slate has a read or a write access the part of its host on the slate of the peer, and the peer fill a
	// half of it when it has received a message.
	Slate bool
	// WrongRI addresses an endpoint that does not exist.
	WrongRI bool
	// Note belongs to the application, which reads it from the Op.
	Note any
}

// Any is the peer of a receive from all.
const Any = -1

func (s *OpSpec) send() bool { return s.Kind == transport.OpSend || s.Kind == transport.OpTSend }

// read reports whether it accesses memory of the peer: it reads, writes, or does something atomic.
func (s *OpSpec) read() bool { return s.Kind == transport.OpRead || s.atomic() || s.writes() }
func (s *OpSpec) tagged() bool {
	return s.Kind == transport.OpTSend || s.Kind == transport.OpTRecv
}

// An Op is a posted operation, and what the packets tell about it.
type Op struct {
	OpSpec
	ID   uint32
	Host *Host
	Life int // the host's life

	PostedAt time.Duration
	Ended    bool
	EndedAt  time.Duration
	Event    transport.Event // valid if Ended
	Lost     bool            // its host crashed: no event will come

	postSeq  uint64
	endSeq   uint64
	whole    []byte
	buf      []byte
	tag      uint64
	ignore   uint64
	data     uint64
	init     uint32 // a receive's SrcInitiator
	cancel   bool   // Cancel found it
	by       *dir   // the PDC that its latest packet left on
	tx       bitset // pieces that left, by offset / 1024
	txBytes  int
	txPieces int
	answered bitset // pieces whose answer came
	ansBytes int
	lives    []*delivery
	match    *Op            // receive: the send it got
	head     [8]byte        // receive: the first bytes it got
	from     netip.AddrPort // receive: the source that its event names
	drainer  bool
	refused  bool // a target answered a packet of it with an error
	gaveUp   bool // a NOOP or MSG_ERROR replaced a packet
	voided   bool // a void packet took the place of one, which the target may have refused before
	waiting  bool // it is in its host's backlog
	released bool // send: ReleaseEndpoint ended it with packets under way
	answers  bool // send: its peer was heard since the send before
	// token is the restart token of a deferrable send, deferrals are its attempts that a target has
	// deferred, restarted is the one that it asked for.
	token     uint32
	deferrals []msgKey
	restarted msgKey
	lent      bool   // it was announced: its target reads it
	key       uint64 // of its memory then
	had       bool   // its target has said that all of it came
	fetched   uint64 // OpFetch: the old value
	seen      []byte // what a read of a slate brought
	cameIn    []int  // send, with Spec.Tells: the lives of its target that received it
	toldIn    int    // OpWrite: the life of the target that heard of it last, 0: none
}

// A delivery is which parts of a message arrived in one life of its target.
type delivery struct {
	life    int
	pieces  bitset // by offset / 1024
	bytes   int
	allAt   time.Duration // when the last of it arrived, 0: not yet
	allSeq  uint64
	receive *Op    // the receive that got it
	had     bool   // it may have had the PDC by which some of it came
	dirs    []*dir // the PDCs by which some of it came
	twin    bool   // the receive may have got another message that looks the same
	// deferred are the attempts that this life has deferred.
	deferred []msgKey
}

var kindNames = map[transport.OpKind]string{transport.OpSend: "send", transport.OpTSend: "tsend", transport.OpRecv: "recv", transport.OpTRecv: "trecv", transport.OpRead: "read", transport.OpWrite: "write", transport.OpAtomic: "atomic", transport.OpFetch: "fetch"}

func (s *OpSpec) String() string {
	t := fmt.Sprintf("%s %d bytes", kindNames[s.Kind], s.Len)
	switch {
	case s.Peer == Any:
		t += " from any"
	case s.read():
		t += fmt.Sprintf(" at %d of %s", s.Addr, hostName(s.Peer))
	case s.send():
		t += " to " + hostName(s.Peer)
	default:
		t += " from " + hostName(s.Peer)
	}
	if s.Word != nil {
		t += fmt.Sprintf(" %v %d if %d", s.Word.Op, s.Word.Operand, s.Word.Compare)
	}
	if s.From != 0 || s.To != 0 {
		t += fmt.Sprintf(" by endpoint %d", s.From)
		if s.send() {
			t += fmt.Sprintf(" for endpoint %d", s.To)
		}
	}
	for _, f := range []struct {
		on bool
		n  string
	}{{s.HasData, "data"}, {s.Inject, "inject"}, {s.Ordered, "ordered"}, {s.Silent, "silent"}, {s.Fence, "fence"}, {s.Pieces > 0, "iov"}, {s.WrongRI, "wrong-RI"}, {s.RUDI, "rudi"}, {s.Small, "small"}, {s.Slate, "slate"},
		{s.tagged() && s.AnyClass, "any-tag"}, {s.BySource, "by-source"}} {
		if f.on {
			t += " " + f.n
		}
	}
	return t + [...]string{"", " at-inject", " at-transmit", " at-delivery", " at-match", " at-commit"}[s.Level]
}

func (o *Op) String() string {
	s := fmt.Sprintf("%s#%d %v", o.Host.Name(), o.ID, &o.OpSpec)
	if o.tagged() {
		s += fmt.Sprintf(" tag %#x", o.tag)
		if o.ignore != 0 {
			s += fmt.Sprintf("/%#x", o.ignore)
		}
	}
	return s
}

// State is how the operation stands: "open", "lost" with its host, or the cause of its end
// ("ok", "timed out", …), followed by ", unknown" if nobody can tell whether the target has the
// message.
func (o *Op) State() string {
	switch {
	case o.Lost:
		return "lost"
	case !o.Ended:
		return "open"
	case o.Event.Unknown:
		return o.Event.Cause.String() + ", unknown"
	}
	return o.Event.Cause.String()
}

// OK reports whether the operation has ended in success.
func (o *Op) OK() bool { return o.Ended && o.Event.Cause == transport.OK }

// Cause is how the operation ended.
func (o *Op) Cause() transport.Cause { return o.Event.Cause }

// Got is the send whose message a receive got, nil if none.
func (o *Op) Got() *Op { return o.match }

// Failed reports whether it ended, and neither in success nor truncated.
func (o *Op) Failed() bool {
	return o.Ended && o.Event.Cause != transport.OK && o.Event.Cause != transport.Truncated
}

// Delivered reports whether a receive in any life of the target got the message.
func (o *Op) Delivered() bool {
	for _, d := range o.lives {
		if d.receive != nil {
			return true
		}
	}
	return false
}

// Tag is the tag of a tagged send.
func (o *Op) Tag() uint64 { return o.tag }

// Check returns an error for the first byte of b that is not that of the message.
func (o *Op) Check(b []byte) error { return checkPattern(b, o.ID, 0) }

// Open reports whether an event must still come. Of a silent send that succeeds it stays true
// until its host ends.
func (o *Op) Open() bool { return !o.Ended && !o.Lost }

// early reports whether the success event may come before the target has the message.
func (o *Op) early() bool { return o.Level == transport.LevelInject }

func (o *Op) delivery(life int) *delivery {
	for _, d := range o.lives {
		if d.life == life {
			return d
		}
	}
	d := &delivery{life: life}
	o.lives = append(o.lives, d)
	return d
}

// tagOf returns the tag of the message with a number. Its class is in the highest and in the
// lowest byte, its number across the middle, and other bits between, so that each half of the
// tag matters.
func tagOf(id uint32, class uint8) uint64 {
	const between = 0x00ff_0000_0000_ff00
	return uint64(class)<<56 | uint64(id)<<16 | uint64(class) | scatter(id)&between
}

// tagID returns the number of the message with a tag.
func tagID(tag uint64) uint32 { return uint32(tag >> 16) }

// classBits returns the bits of a tag that a receive of a class compares: the highest byte for
// odd classes, the lowest for even ones.
func classBits(class uint8) uint64 {
	if class&1 != 0 {
		return 0xff << 56
	}
	return 0xff
}

// scatter spreads a number over 64 bits.
func scatter(id uint32) uint64 { return (uint64(id) + 1) * 0x9e3779b97f4a7c15 }

// name is that of the endpoint that posted the operation.
func (o *Op) name() transport.Identity { return o.Host.endpoint(o.From) }

// aim is the name of the endpoint that a send is for.
func (o *Op) aim() transport.Identity {
	to := o.Host.w.Hosts[o.Peer].endpoint(o.To)
	if o.Tally {
		to = o.Host.w.Hosts[o.Peer].tallyName()
	}
	if o.WrongRI {
		to.RI ^= 0x7ff
	}
	return to
}

// accepts reports whether a receive may get a message (S-MAT-01 … 03, R-TAG-02).
func (o *Op) accepts(s *Op) bool {
	if o.tagged() != s.tagged() || o.tagged() && (o.tag^s.tag)&^o.ignore != 0 {
		return false
	}
	if o.Peer != Any && o.Peer != s.Host.Index {
		return false
	}
	return o.From == s.To && (o.init == 0 || o.init == s.name().Initiator)
}
