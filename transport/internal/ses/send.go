package ses

import (
	"math"
	"math/bits"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A Handle names one outbound message until its Event, and after it while a piece of the
// message is neither Answered nor Failed. 0 names none.
type Handle uint32

// phase is how far the sending of a message is. It goes
//
//	phaseData → phaseSent                         all pieces handed out
//	phaseData → phaseError → phaseSent            refused with pieces left (S-CPL-03)
//	phaseSent → phaseWait → phaseReady → phaseData refused for now, sent again
//	phaseData → phaseWait → phaseReady → phaseData kept by Hold before it began
//	phaseSent → phaseResult                       NO_RESPONSE came, RESPONSE to come
//	phaseSent → phaseDeferred → phaseReady        deferred by the target, until its RTR
//	phaseAsk → phaseSent → phaseLent              of a rendezvous send: it is to be read
//	phaseData, phaseSent → phaseRecut → the same  pieces came back to be cut anew (F7)
type phase uint8

const (
	phaseFree phase = iota
	phaseData
	phaseError // a MSG_ERROR is to be sent instead of the rest
	phaseSent  // all pieces are handed out
	phaseWait
	phaseReady
	phaseResult
	phaseRecut // parts of pieces are to be sent before what follows
	phaseAsk   // of a read, an atomic operation, a rendezvous send and a write with the small header, in place of phaseData
	phaseDeferred
	phaseLent // the target has its announcement, and is to read it
)

// A send is one outbound message.
type send struct {
	// The first three cache lines have what a short message touches (TestHotLines).

	// hdr is the header of its packets, except what Append sets in it.
	hdr wire.ReqStd

	context any
	buf     []byte
	idle    *send     // next in endpoint.idleSend
	ep      *endpoint // its endpoint, also while the place is free
	posted  time.Duration

	flags                  uint64
	seq                    uint64
	peer                   uint32
	self                   int32  // its place in SES.sends
	next                   uint32 // offset of the first byte that no piece has
	open                   int32  // pieces handed out that are neither answered nor failed
	block                  uint32 // block of the arena copies, or noBlock
	serial                 uint16 // tells apart the handles of one place; never 0
	tries                  uint16
	wireFlags              wire.SESFlags // flags of every packet: DC, REL, HD
	kind                   Kind
	phase                  phase
	ordered, early, silent bool
	odd                    bool // silent, not simply in buf, or not simply answered
	match                  bool // of LevelMatch
	scattered              bool // its bytes are in iov
	outcome
	out    bool // counted in resource.out
	fresh  bool // listed in SES.fresh
	commit commitStage
	// wasOrdered means that a deferrable send was posted as an ordered one, checking that its target is
	// asked whether it still has it.
	wasOrdered, checking bool

	iov      [][]byte
	retryAt  time.Duration // phaseWait: when to send again, 0: not yet set
	notReady time.Duration // when the target became not ready
	seat                   // in SES.waiting, SES.ready or resource.held
	res      *resource     // in whose books it is: as out, probe, held or loose
	read     *reading      // nil unless it is a read, or fetches
	loose    int32         // its index in resource.loose
	operands uint32        // of an atomic operation: its request_length
	loan     *loan         // nil unless it goes by rendezvous
	promised uint32        // phaseResult, phaseDeferred: the PDC of the response that says so; phaseLent: that stands for it
	restart  uint32        // the target's restart token, from an RTR that was not heeded yet
	sibling  int32         // link of endpoint.ownSends
	withData bool          // of LevelCommit: header data goes with the question
	sweeps   uint8         // phaseDeferred, phaseLent: how many there were since its target was heard about it
	mayLend  bool          // it goes by rendezvous if its target turns out to read such sends
	small    bool          // it goes with the small header, if one packet carries it
	byRUDI   bool          // it goes without a PDC

	_ [23]byte // whole cache lines
}

// A commitStage is how far a send of LevelCommit is.
type commitStage uint8

const (
	commitNone  commitStage = iota // of another level
	commitWaits                    // until the target has executed it
	commitAsked                    // the target is asked to make it durable
)

// An outcome is what became of a message so far.
type outcome struct {
	copied     bool // buf is our copy
	told       bool // success was reported early
	noResponse bool // a piece was answered NO_RESPONSE
	response   bool // a RESPONSE came
	unexecuted bool // the target cannot have the whole message
	deferred   bool // the target has deferred the message
	cause      Cause
	rc         wire.RC
	nack       wire.NackCode
}

// lookup returns the message of h, nil if it ended.
func (s *SES) lookup(h Handle) (int32, *send) {
	i := int32(h & 0xffff)
	if i < s.sends.used {
		if m := s.sends.at(i); m.serial == uint16(h>>16) {
			return i, m
		}
	}
	return none, nil
}

func handleOf(i int32, m *send) Handle { return Handle(uint32(m.serial)<<16 | uint32(i)) }

// Send accepts a message of n bytes, which is what op.Bytes returns. Errors: ErrFull, ErrTooLong,
// ErrClosed.
func (s *SES) Send(now time.Duration, op *Op, n int) (Handle, error) {
	e := s.endpoint(op.Endpoint)
	if e == nil || e.sends >= e.mostSends || s.numSends >= maxSends || uint64(n) > uint64(s.cfg.MaxMessage) {
		return 0, s.noSend(e, n)
	}
	if op.Ordered && len(e.halts) != 0 && e.halted(op) {
		return 0, ErrHalted
	}
	m := e.idleSend
	if m == nil {
		m = s.freshSend(e)
	}
	s.numSends++
	e.sends++
	seq := s.seq + 1
	s.seq = seq
	e.idleSend, m.buf, m.context = m.idle, op.Buf, op.Context
	m.flags, m.seq, m.peer, m.posted = op.Flags, seq, uint32(op.Peer), now
	m.phase, m.block, m.kind, m.tries, m.next, m.open = phaseData, noBlock, op.Kind, 0, 0, 0
	m.ordered, m.early, m.silent, m.odd, m.scattered = op.Ordered, op.Level == LevelInject && !op.Silent, op.Silent, op.Silent, false
	m.outcome = outcome{}
	job, opcode, match, data, flags := op.JobID&0xffffff, wire.OpSend, uint64(0), uint64(0), wire.SESREL
	if op.JobID == 0 {
		job = e.JobID
	}
	if op.Kind == EvTSend {
		opcode, match = wire.OpTaggedSend, op.Tag
	} else if op.Kind < EvSend {
		opcode, match = s.access(m, op)
	}
	if op.Absolute {
		flags = 0
	}
	if op.Level >= LevelDelivery || op.Visible {
		flags |= wire.SESDC
	}
	if op.HasData {
		flags |= wire.SESHD
		data = op.Data
	}
	r := &m.hdr
	r.Opcode, r.Gen, r.PIDonFEP, r.RI, r.JobID = opcode, 0, op.PIDonFEP&0xfff, op.RI&0xfff, job
	r.Match, r.HeaderData, r.ReqLen = match, data, uint32(n)
	r.MsgID, m.wireFlags = s.newID(), flags
	if (op.Inject || len(op.Iov) != 0) && op.AMO == nil {
		s.retain(m, op)
	}
	if op.Level > LevelDelivery {
		s.postedStrong(m, op)
	} else if uint(n) >= s.longMin {
		s.postedLonger(m, op)
	}
	return handleOf(m.self, m), nil
}

// access makes a send that was just accepted an access to memory, and returns its opcode and key.
func (s *SES) access(m *send, op *Op) (wire.Opcode, uint64) {
	switch op.Kind {
	case EvRead:
		return s.ask(m, op)
	case EvWrite:
		return s.aim(m, op)
	}
	return s.arm(m, op)
}

// postedStrong prepares a send of LevelMatch or LevelCommit. Where the level has no meaning it is
// LevelDelivery.
func (s *SES) postedStrong(m *send, op *Op) {
	switch {
	case op.Level == LevelMatch && !op.Kind.RMA():
		m.match = true
		if !s.Lends(op) || !s.postedLent(m) {
			s.postedMatch(m)
		}
	case commits(op):
		m.commit, m.withData = commitWaits, op.HasData
		m.wireFlags &^= wire.SESHD
	case uint(m.hdr.ReqLen) >= s.longMin:
		s.postedLonger(m, op)
	}
}

// postedLonger prepares a send of longMin bytes or more.
func (s *SES) postedLonger(m *send, op *Op) {
	switch {
	case s.Lends(op) && s.postedLent(m):
	case uint(m.hdr.ReqLen) >= s.deferMin:
		s.postedLong(m)
	}
}

// noSend says why an endpoint takes no message of n bytes.
func (s *SES) noSend(e *endpoint, n int) error {
	switch {
	case e == nil || e.closed || s.ended:
		return ErrClosed
	case uint64(n) > uint64(s.cfg.MaxMessage):
		return ErrTooLong
	}
	return ErrFull
}

// freshSend makes a send of an endpoint at a place that was never used. The first one makes room for message ids.
func (s *SES) freshSend(e *endpoint) *send {
	if s.ids == nil {
		s.ids = new([1024]uint64)
	}
	i := s.sends.fresh()
	m := s.sends.at(i)
	m.self, m.idle, m.serial, m.ep, m.hdr.Initiator = i, nil, 1, e, e.Initiator
	if last := e.ownSends.add(i); last != none {
		s.sends.at(last).sibling = i + 1
	}
	return m
}

// total is the number of bytes in v, at most MaxInt: the same bytes may be in it several times.
func total(v [][]byte) (n int) {
	for _, b := range v {
		if n += len(b); n < 0 {
			return math.MaxInt
		}
	}
	return n
}

// retain keeps the bytes of a message that is not simply in op.Buf.
func (s *SES) retain(m *send, op *Op) {
	m.odd = true
	switch {
	case op.Inject:
		s.copyIn(m, op)
		if m.early {
			s.sendEvent(m)
			m.told = true
		}
	case len(op.Iov) == 1:
		m.buf = op.Iov[0]
	default:
		m.buf = nil
		m.iov, m.scattered = append(s.iov(), op.Iov...), true
	}
}

// copyIn makes the private copy of a message. Copies above 16 KiB are left to the garbage
// collector; shorter ones are recycled.
func (s *SES) copyIn(m *send, op *Op) {
	m.copied = true
	n := int(m.hdr.ReqLen)
	if n == 0 {
		m.buf = nil
		return
	}
	var b []byte
	if n <= 1<<maxBlock {
		m.block = s.copies.block(classOf(n))
		b = s.copies.mem(m.block)[:0:n]
	} else {
		b = make([]byte, 0, n)
	}
	if len(op.Iov) == 0 {
		b = append(b, op.Buf...)
	}
	for _, v := range op.Iov {
		b = append(b, v...)
	}
	m.buf = b
}

// iov returns an empty slice for a copy of the caller's Iov.
func (s *SES) iov() [][]byte {
	if n := len(s.iovs); n > 0 {
		v := s.iovs[n-1]
		s.iovs = s.iovs[:n-1]
		return v
	}
	return make([][]byte, 0, 8)
}

func (s *SES) putIov(v [][]byte) {
	clear(v)
	s.iovs = append(s.iovs, v[:0])
}

// freeBytes frees what retain kept.
func (s *SES) freeBytes(m *send) {
	if m.block != noBlock {
		s.copies.put(m.block)
	}
	if m.iov != nil {
		s.putIov(m.iov)
		m.iov = nil
	}
}

// newID returns the next message id that is not in use, from 1 to 65535 in turn (S-FLD-03). An
// id that is unique in the SES is unique on each PDC.
func (s *SES) newID() uint16 {
	for {
		s.lastID++
		if s.lastID == 0 {
			continue
		}
		w, at := &s.ids[s.lastID>>6], s.lastID&63
		if *w>>at&1 == 0 {
			*w |= 1 << at
			return s.lastID
		}
		// Skip the ids in use, to before the next free one of the word.
		if skip := bits.TrailingZeros64(^(*w >> at)); skip > 1 {
			s.lastID += uint16(skip - 1)
		}
	}
}

func (s *SES) freeID(id uint16) { s.ids[id>>6] &^= 1 << (id & 63) }

// Info returns the peer of a message, its length in bytes, and whether it is Ordered. All are
// zero if it ended. The length of a rendezvous send is that of its announcement.
func (s *SES) Info(h Handle) (peer uint32, length int, ordered bool) {
	if _, m := s.lookup(h); m != nil {
		n := int(m.hdr.ReqLen)
		if m.loan != nil {
			n = wire.RendezvousLen
		}
		return m.peer, n, m.ordered
	}
	return 0, 0, false
}

// Seq is the number of a message in the order of posting, 0 if it ended.
func (s *SES) Seq(h Handle) uint64 {
	if _, m := s.lookup(h); m != nil {
		return m.seq
	}
	return 0
}

// unbegun reports whether no piece was handed out in this attempt.
func (m *send) unbegun() bool {
	return (m.phase == phaseData || m.phase == phaseAsk) && m.next == 0 || m.phase == phaseWait || m.phase == phaseReady || m.phase == phaseDeferred ||
		m.phase == phaseLent && m.loan.handed == 0 ||
		m.checking && m.phase == phaseError && m.open == 0
}

// CancelSend ends the oldest send of an endpoint with that context of which no piece was handed
// out or that waits to be sent again, with a Cancelled event. ctx is compared with ==; nil and
// contexts that cannot be compared are never found (R-EP-11, R-EP-12).
func (s *SES) CancelSend(id EndpointID, ctx any) (Handle, bool) {
	e := s.endpoint(id)
	if e == nil {
		return 0, false
	}
	best := none
	var seq uint64
	for m := s.firstSend(e); m != nil; m = s.nextSend(m) {
		if m.unbegun() && !m.told && (best == none || m.seq < seq) && same(m.context, ctx) {
			best, seq = m.self, m.seq
		}
	}
	if best == none {
		return 0, false
	}
	m := s.sends.at(best)
	h := handleOf(best, m)
	s.unwait(m)
	s.tellCancelled(m)
	m.cause, m.rc, m.unexecuted = Cancelled, 0, true
	s.endSend(m)
	s.unfence(e)
	return h, true
}

// same compares two contexts.
func same(a, b any) (eq bool) {
	if b == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			eq = false // not comparable
		}
	}()
	return a == b
}
