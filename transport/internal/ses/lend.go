package ses

import (
	"math"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file is the sending side of rendezvous sends (UE 3.4, S-RDV). Such a send goes as one packet without
// bytes, which lends the memory of the send to its target, under a key that nobody can guess. When a
// receive has the message the target reads it, straight to there. The send ends when the target has every
// byte. With the send the loan ends, however it ends: no byte is read any more, and the key is refused.
//
// A peer is asked first whether it reads such sends, by a NO_OP with a key, to which everybody else says
// OK. Behind an announcement that is refused by opcode an ordered message would be lost.
//
// The loan lives as long as the PDC by which the message was announced, or by which its target was asked later
// whether the message is still there. It is asked when a PDC is gone that stood for it, when a read of
// it breaks off, and every IdleTimeout and a quarter.

// A loan is the memory of a rendezvous send that has not ended, or that is still being read though it has.
type loan struct {
	Region
	m      *send  // nil: it has ended
	handed uint64 // bytes that went out to the target
	swept  uint64 // what handed was in the last sweep
	got    uint32 // bytes that the target has, by reads that have ended
	edges  uint32 // a sum over the ranges read, another than that of the whole if one came twice and another never
	serves int32  // reads of it that have not ended
	told   bool   // the target has the header
	kept   bool   // as an unexpected message
	asking bool   // the target is being asked whether it still has it
	asks   uint8  // questions that broke off
}

// lending holds the loans.
type lending struct {
	lendMin   uint // the shortest message that goes by rendezvous, in bytes
	longMin   uint // the shortest message that is more than an ordinary one
	loans     map[uint64]*loan
	idleLoans []*loan
	readers   map[uint32]support // by peer: whether it reads rendezvous sends
}

// maxLoans bounds the sends that wait for a read. The other places are for what is read in turn.
const maxLoans = maxSends / 2

func (d *lending) init(least int, deferMin uint) {
	d.lendMin = math.MaxUint
	d.readers = map[uint32]support{}
	if least > 0 {
		d.lendMin = uint(least)
	}
	d.longMin = min(deferMin, d.lendMin)
}

// Lends reports whether a send goes by rendezvous if its target knows how.
func (s *SES) Lends(op *Op) bool {
	e := s.endpoint(op.Endpoint)
	return (op.Kind == EvSend || op.Kind == EvTSend) && uint(op.Bytes()) >= s.lendMin && !op.Inject && op.Level != LevelInject && s.cfg.RNRTimeout >= 0 &&
		e != nil && (op.JobID == 0 || op.JobID&0xffffff == e.JobID) && s.readers[uint32(op.Peer)] != supportNo && len(s.loans) < maxLoans
}

// Announces reports whether a message that is posted now goes by rendezvous at once, as its peer is known to
// read such sends.
func (s *SES) Announces(op *Op) bool {
	return s.readers[uint32(op.Peer)] == supportYes && s.Lends(op)
}

// Lent reports whether h goes by rendezvous.
func (s *SES) Lent(h Handle) bool {
	_, m := s.lookup(h)
	return m != nil && m.loan != nil
}

// postedLent handles a send that Lends told, which is just posted. It reports whether the send goes by
// rendezvous, or waits at a fence until it is known whether it does.
func (s *SES) postedLent(m *send) bool {
	known := s.readers[m.peer]
	switch {
	case known == supportYes:
		s.announce(m)
		return true
	case m.match: // it waits for another question
		if known == supportUnknown && s.numSends < maxSends {
			s.askReader(m)
		}
		m.mayLend = true
		return false
	case known == supportAsked && s.questioned(m, true):
	case known == supportNo, s.numSends >= maxSends+mostQuestions:
		return false
	default:
		n := s.askReader(m)
		m.seq, n.seq = n.seq, m.seq
		s.addFence(m.ep, fence{peer: m.peer, seq: n.seq, left: 1, question: true, reader: true})
	}
	m.mayLend, m.odd = true, true
	return true
}

// askReader asks the target of a send whether it reads rendezvous sends. It returns the question.
func (s *SES) askReader(m *send) *send {
	s.readers[m.peer] = supportAsked
	n := s.question(m, s.NewKey())
	n.flags = asksReader
	return n
}

// The flags of a question.
const (
	asksReader = 1 << iota // whether the peer reads rendezvous sends
	saysHad                // its answer: all of the message came
)

// question asks the target of a send whether it has a message that was announced with a key.
func (s *SES) question(m *send, key uint64) *send {
	n := s.notice(m.ep, m.peer)
	n.hdr = wire.ReqStd{Opcode: wire.OpNoOp, MsgID: n.hdr.MsgID, JobID: m.hdr.JobID, PIDonFEP: m.hdr.PIDonFEP, RI: m.hdr.RI, Match: key, Initiator: m.hdr.Initiator}
	n.wireFlags = m.wireFlags & wire.SESREL
	return n
}

// readerAnswered notes how the question of askReader ended.
func (s *SES) readerAnswered(n *send) {
	switch {
	case n.cause == Rejected && n.rc == wire.RCUndeliverable:
		s.readers[n.peer] = supportYes
	case n.cause == OK, n.cause == Rejected && n.rc == wire.RCUnsupportedOp:
		s.readers[n.peer] = supportNo
		return
	default:
		delete(s.readers, n.peer)
		return
	}
	s.eachFence(func(f *fence) {
		if !f.question || f.peer != n.peer {
			return
		}
		for _, h := range f.behind {
			if _, m := s.lookup(h); m != nil && m.mayLend && m.cause == OK && m.phase == phaseData && m.next == 0 && len(s.loans) < maxLoans {
				s.announce(m)
			}
		}
	})
}

// announce makes a send of which nothing was sent one that goes by rendezvous.
func (s *SES) announce(m *send) {
	if m.mayDefer() {
		s.undefer(m)
	}
	var l *loan
	if n := len(s.idleLoans); n > 0 {
		l, s.idleLoans = s.idleLoans[n-1], s.idleLoans[:n-1]
	} else {
		l = new(loan)
	}
	parts, starts := append(l.parts[:0], m.iov...), l.starts[:0]
	if m.iov == nil {
		parts = append(parts, m.buf)
	}
	size := uint64(0)
	for _, p := range parts {
		starts = append(starts, size)
		size += uint64(len(p))
	}
	s.regions.serial++
	*l = loan{m: m}
	l.parts, l.starts, l.size, l.serial, l.loan = parts, starts, size, s.regions.serial, l
	l.Key, l.Access, l.JobID = s.NewKey(), RemoteRead, m.hdr.JobID
	if s.loans == nil {
		s.loans = map[uint64]*loan{}
	}
	s.loans[l.Key] = l
	m.loan, m.odd, m.mayLend, m.phase = l, true, false, phaseAsk
	if m.hdr.Opcode == wire.OpSend {
		m.hdr.Opcode = wire.OpRendezvousSend
	} else {
		m.hdr.Opcode = wire.OpRendezvousTSend
	}
	s.Stats.Lent++
}

// peekLoan is Peek of a rendezvous send.
func (s *SES) peekLoan(h Handle, m *send) (piece.Piece, bool) {
	if s.numResources != 0 && m.ordered && !m.out && s.gated(m) {
		return piece.Piece{}, false
	}
	return piece.Piece{Msg: uint32(h), Len: wire.RendezvousLen, Kind: piece.Loan | piece.Last}, true
}

// encodeLoan appends the packet of a rendezvous send.
func (s *SES) encodeLoan(b []byte, m *send, p piece.Piece, first bool) []byte {
	if first {
		m.took(p)
		if s.numResources != 0 && !m.out {
			s.start(m)
		}
	}
	m.hdr.Flags = m.wireFlags | single
	x := wire.Rendezvous{ReadPIDonFEP: m.ep.PIDonFEP, ReadRI: m.ep.RI, ReadMatch: m.loan.Key}
	return x.Append(m.hdr.Append(b))
}

// standsFor notes the PDC by which m is queued, if it is a rendezvous send or asks for one, and reports
// whether it is. That PDC shows that the target lives.
func (s *SES) standsFor(m *send, pdc uint32) bool {
	l := m.loan
	if l == nil && m.kind == evNotice && m.hdr.Opcode == wire.OpNoOp {
		l = s.loans[m.hdr.Match]
	}
	if l == nil {
		return false
	}
	l.m.promised = pdc
	return true
}

// awaitRead makes a rendezvous send, which its target has, wait until all of it was read.
func (s *SES) awaitRead(m *send) {
	l := m.loan
	l.told = true
	if l.read() {
		s.endSend(m)
		return
	}
	m.phase, m.sweeps = phaseLent, 0
	s.waitResult++
	if m.tries == 0 {
		m.notReady, m.tries = s.now, 1
	}
	if s.cfg.RNRTimeout > 0 && !m.match && l.kept && l.handed == 0 {
		m.retryAt = m.notReady + s.cfg.RNRTimeout
		s.patient.push(m, uint64(m.retryAt))
		s.rearm()
	}
}

// read reports whether the target has every byte.
func (l *loan) read() bool { return uint64(l.got) == l.size }

// mayBeRead reports whether the target may have every byte.
func (l *loan) mayBeRead() bool { return l.handed >= l.size }

// borrowed finds the loan that a read names, which its source may read, and checks that the whole read is in
// it. Whoever asks in vain learns nothing.
func (s *SES) borrowed(src *Source, r *wire.ReqStd) (*Region, wire.RC) {
	l := s.loans[r.Match]
	switch {
	case l == nil || l.m.peer != src.Peer || l.JobID != r.JobID:
		return nil, wire.RCBadMKey
	case !l.holds(r.BufOff, uint64(r.ReqLen)):
		return nil, wire.RCBadAddr
	}
	return &l.Region, wire.RCNull
}

// lentOut notes that n bytes of a loan went out.
func (s *SES) lentOut(l *loan, n uint32) {
	l.handed += uint64(n)
	if m := l.m; m != nil && m.phase == phaseLent && m.place > 0 {
		s.patient.remove(m) // the target is ready
		s.rearm()
	}
}

// returnedLoan notes that a read of a loan has ended. whole means that the target has what it asked for: length
// bytes from off on.
func (s *SES) returnedLoan(l *loan, off uint64, length uint32, whole bool) {
	l.serves--
	m := l.m
	switch {
	case m == nil:
		s.reuseLoan(l)
	case whole:
		l.got += length
		l.edges += s.span(uint32(off), length)
		switch {
		case uint64(l.got) > l.size || l.read() && l.edges != s.span(0, l.got): // some bytes were read twice, and others not
			s.endLent(m, PeerError, wire.RCOpViolation)
		case l.read() && m.phase == phaseLent:
			s.unwait(m)
			s.endSend(m)
		}
	case m.phase == phaseLent:
		s.askLent(m)
	}
}

// reuseLoan keeps a loan that has ended for another send, unless it is still being read.
func (s *SES) reuseLoan(l *loan) {
	if l.serves == 0 && len(s.idleLoans) < 1024 {
		clear(l.parts[:cap(l.parts)])
		s.idleLoans = append(s.idleLoans, l)
	}
}

// callIn ends the loan of a send: no byte of it is read any more.
func (s *SES) callIn(l *loan) {
	if l.serial != 0 {
		delete(s.loans, l.Key)
		l.serial = 0
	}
}

// endLoan takes the loan of a send back.
func (s *SES) endLoan(m *send) {
	l := m.loan
	s.callIn(l)
	l.m, m.loan = nil, nil
	s.reuseLoan(l)
}

// endLent ends a rendezvous send in error.
func (s *SES) endLent(m *send, c Cause, rc wire.RC) {
	s.callIn(m.loan)
	if m.cause == OK {
		m.cause, m.rc = c, rc
	}
	if m.phase == phaseLent {
		s.unwait(m)
		s.endSend(m)
	}
}

// unlend makes a send, whose target does not know rendezvous sends, an ordinary one.
func (s *SES) unlend(m *send) {
	s.endLoan(m)
	m.hdr.Opcode = ordinary(m.hdr.Opcode)
	if m.match && s.supports[m.peer] == supportYes {
		s.permit(m)
	}
}

// askLent asks the target of a rendezvous send whether it still has it.
func (s *SES) askLent(m *send) {
	l := m.loan
	if l.asking || s.numSends >= maxSends+mostQuestions || s.closed || s.ended {
		return // sweepLent asks
	}
	l.asking = true
	s.question(m, l.Key)
}

// lentAnswered notes how the question of askLent ended.
func (s *SES) lentAnswered(n *send) {
	l := s.loans[n.hdr.Match]
	if l == nil {
		return
	}
	l.asking = false
	m := l.m
	switch {
	case m.phase != phaseLent || m.ep.closed:
	case n.cause == OK && n.flags&saysHad != 0 && l.mayBeRead(): // and the ACK of the last of it is lost
		s.unwait(m)
		s.endSend(m)
	case n.cause == OK:
		l.asks, m.sweeps = 0, 0
	case l.serves != 0 && n.cause == Rejected: // the answer may be older than what the read brings
	case n.cause == Rejected:
		s.endLent(m, Rejected, n.rc)
	case (n.cause == Aborted || n.cause == Closed) && l.asks < maxTransient:
		l.asks++
		s.askLent(m)
	default:
		s.endLent(m, n.cause, 0)
	}
}

// lentGone acts on the end of the PDC that stood for a rendezvous send.
func (s *SES) lentGone(m *send, c Cause) {
	if c == Closed || c == Aborted { // the target's read has a PDC of its own, which may live
		m.promised = noPDC
		s.askLent(m)
		return
	}
	s.stop(m, c, 0)
}

// sweepLent has the targets asked for what they have not read for long, because they may have lost it.
func (s *SES) sweepLent() {
	if len(s.loans) == 0 {
		return
	}
	for i := range s.sends.used {
		m := s.sends.at(i)
		if m.phase != phaseLent {
			continue
		}
		if l := m.loan; l.handed != l.swept {
			l.swept, m.sweeps = l.handed, 0
		} else if m.sweeps++; m.sweeps > sweepsMost {
			m.sweeps = 0
			s.askLent(m)
		}
	}
}

// lentTo returns the rendezvous send to a peer whose memory has that key, nil if there is none.
func (s *SES) lentTo(peer uint32, key uint64) *send {
	if l := s.loans[key]; l != nil && l.m.peer == peer {
		return l.m
	}
	return nil
}

// recall tells the target of a rendezvous send that nothing is to be read any more.
func (s *SES) recall(m *send) {
	if s.numSends >= maxSends+mostQuestions || s.closed || s.ended {
		return // its read will be refused
	}
	n := s.notice(m.ep, m.peer)
	n.hdr = wire.ReqStd{Opcode: wire.OpMsgError, MsgID: n.hdr.MsgID, JobID: m.hdr.JobID, PIDonFEP: m.hdr.PIDonFEP, RI: m.hdr.RI, BufOff: m.loan.Key, Initiator: m.hdr.Initiator}
	n.wireFlags = m.wireFlags&wire.SESREL | wire.SESIE
}

// notRead ends a rendezvous send that no receive has got for RNRTimeout.
func (s *SES) notRead(m *send) {
	s.recall(m)
	s.endLent(m, NotReady, 0)
}
