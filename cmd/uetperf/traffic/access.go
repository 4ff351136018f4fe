package traffic

import (
	"bytes"
	"encoding/binary"
	"time"
)

// This file has what tests do that access memory of the server: write, writedata, read, fadd, swap, cas. The client's leg
// is that of other tests. The server's lends its memory and waits.

// post posts message n, or an access.
func (l *Leg) post(s *Slot, n int64) (bool, error) {
	if l.plain {
		return l.Conn.Send(s.Buf, n, s)
	}
	l.prepare(s, n)
	return l.call(s, n)
}

// call posts what prepare has made.
func (l *Leg) call(s *Slot, n int64) (bool, error) {
	if l.Spec.OneSided() {
		return l.Conn.Access(s)
	}
	return l.Conn.Send(s.Buf, n, s)
}

// prepare makes message n, or what an access needs.
func (l *Leg) prepare(s *Slot, n int64) {
	switch l.Spec.Op {
	case Write, WriteData:
		l.fill(s.Buf, uint64(s.Place))
		s.Data = uint64(n)
	case Swap, CAS:
		setNumbers(s.Old, s.num)
		setNumbers(s.New, s.num+1)
	case Read, FAdd:
	default:
		l.fill(s.Buf, uint64(n))
	}
}

// accessed counts what is wrong with what a read has brought, if that is checked, or with the old values that
// swap and cas return: a place has one operation at a time, so they are those that the one before has written.
// The server counts those that are right.
func (l *Leg) accessed(c *Completion) {
	switch {
	case l.Spec.Op == Swap || l.Spec.Op == CAS:
		if l.check != nil && !bytes.Equal(c.Buf, c.Old) {
			l.check.WrongBytes += int64(len(c.Buf))
			l.countChecked(false, len(c.Buf))
		}
		c.num++
	case l.check != nil && l.Spec.Op == Read:
		wrong := l.Conn.Verify(c.Buf, uint64(c.Place))
		l.check.WrongBytes += int64(wrong)
		l.countChecked(false, wrong)
	}
}

// operands gives the slots memory for what swap and cas write and shall find.
func (l *Leg) operands() {
	for i := range l.tx {
		s := &l.tx[i]
		s.New, s.Old = make([]byte, l.Spec.Size), make([]byte, l.Spec.Size)
	}
}

// setNumbers writes n to all numbers of b.
func setNumbers(b []byte, n int64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], uint64(n))
	}
}

// Lend fills the memory that the client will access: for reads with what is to come, for writes with
// what differs from that in every bit.
func (l *Leg) Lend(memory []byte) {
	if l.check == nil || l.Spec.Atomic() {
		return
	}
	for i, n := 0, int(l.Spec.Size); i < l.Spec.Places() && n > 0; i++ {
		b := memory[i*n:][:n]
		l.Conn.Fill(b, uint64(i))
		if l.Spec.Op != Read {
			invert(b)
		}
	}
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// Returned checks the memory that was lent, when nobody accesses it any more. A place that was written
// has the contents of that place. The sum of all additions is their number, and so is that of what swap and cas
// have written, which is for each place how many there were.
func (l *Leg) Returned(memory []byte) {
	n, sent := int(l.Spec.Size), l.PeerSent.Load()
	if l.check == nil || l.Spec.Op == Read || n == 0 || sent < 0 {
		return
	}
	sum := uint64(0)
	for i := range l.Spec.Places() {
		b := memory[i*n:][:n]
		if l.Spec.Atomic() {
			sum += binary.NativeEndian.Uint64(b)
			continue
		}
		wrong := l.Conn.Verify(b, uint64(i))
		if wrong == n && l.untouched(b, uint64(i)) {
			continue
		}
		l.check.WrongBytes += int64(wrong)
		if l.Spec.Op != WriteData || wrong > 0 { // of these the completions are counted
			l.countChecked(false, wrong)
		}
	}
	if l.Spec.Atomic() {
		l.check.OK += min(sent, int64(sum))
		l.check.Wrong += max(sent-int64(sum), int64(sum)-sent)
	}
}

// untouched reports whether a place is as Lend left it. It inverts b.
func (l *Leg) untouched(b []byte, place uint64) bool {
	invert(b)
	return l.Conn.Verify(b, place) == 0
}

// A passive is the server's leg of a test that accesses its memory.
type passive struct {
	*Leg
	got  int64 // writes with data
	said bool
}

func (t *passive) Post() (time.Duration, error) { return Idle, nil }

// Take takes the completion of a write with data.
func (t *passive) Take(c *Completion) error {
	t.got++
	if t.check != nil {
		t.countChecked(c.Seq < 0 || !t.ledger.Take(uint64(c.Seq)), 0)
	}
	return nil
}

func (t *passive) Look(int) (bool, error) {
	t.Live.Store(t.got)
	if sent := t.PeerSent.Load(); !t.said && sent >= 0 && (t.Spec.Op != WriteData || t.got >= sent) {
		t.said = true
		t.Finish()
		t.Complete()
	}
	return t.Over.Load(), nil
}

func (t *passive) Finish() {
	if t.Res.Received = max(t.PeerSent.Load(), 0); t.Spec.Op == WriteData {
		t.Res.Received = t.got
	}
}
