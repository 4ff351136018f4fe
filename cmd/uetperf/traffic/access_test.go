package traffic

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
)

// A lender is the Conn of a leg that only fills and verifies.
type lender struct {
	Conn
	p *pattern.Pattern
}

func (l lender) Fill(b []byte, n uint64)             { l.p.Fill(b, n) }
func (l lender) Verify(b []byte, n uint64) (bad int) { return l.p.Verify(b, n) }

// What a server finds in the memory that it lent is counted: what is wrong, and what is missing.
func TestReturned(t *testing.T) {
	spec := func(op string) *Spec {
		return &Spec{Test: BW, Op: op, Size: 64, Window: 4, Parallel: 1, Check: true, Iters: 10}
	}
	p := pattern.New(1)
	leg := func(op string, sent int64) *Leg {
		s := spec(op)
		l := NewLeg(s, 0, true, NewGroup(s, true, nil))
		l.Conn = lender{nil, p}
		l.PeerSent.Store(sent)
		return l
	}
	l, mem := leg(Write, 10), make([]byte, 4*64)
	l.Lend(mem)
	for i := range 3 { // the last place was never written
		p.Fill(mem[i*64:][:64], uint64(i))
	}
	l.Returned(mem)
	if l.check.OK != 3 || l.check.Wrong != 0 {
		t.Errorf("%+v, want 3 ok", l.check)
	}
	l = leg(Write, 10)
	l.Lend(mem)
	for i := range 3 {
		p.Fill(mem[i*64:][:64], uint64(i))
	}
	mem[70] ^= 1
	l.Returned(mem)
	if l.check.OK != 2 || l.check.Wrong != 1 || l.check.WrongBytes != 1 {
		t.Errorf("%+v, want 1 wrong byte", l.check)
	}
	// A place of one byte is told apart whatever is written there, also 0.
	written := 0
	for place := range uint64(2048) {
		b := []byte{0}
		if p.Fill(b, place); b[0] != 0 {
			continue
		}
		s := spec(Write)
		s.Size, s.Window = 1, int(place)+1
		l := NewLeg(s, 0, true, NewGroup(s, true, nil))
		l.Conn = lender{nil, p}
		l.PeerSent.Store(10)
		mem := make([]byte, s.Places())
		l.Lend(mem)
		mem[place] = 0
		if l.Returned(mem); l.check.OK != 1 || l.check.Wrong != 0 {
			t.Errorf("place %d: %+v, want 1 ok", place, l.check)
		}
		written++
	}
	if written == 0 {
		t.Error("no place is written with 0")
	}
	for _, c := range []struct{ first, ok, wrong int64 }{{4, 10, 0}, {3, 9, 1}, {6, 10, 2}} {
		l, mem = leg(FAdd, 10), make([]byte, 4*64)
		for i, n := range []int64{c.first, 1, 2, 3} {
			binary.NativeEndian.PutUint64(mem[i*64:], uint64(n))
		}
		l.Returned(mem)
		if l.check.OK != c.ok || l.check.Wrong != c.wrong {
			t.Errorf("the first sum is %d: %+v, want %d ok and %d wrong", c.first, l.check, c.ok, c.wrong)
		}
	}
	l = leg(Read, 10)
	l.Lend(mem)
	for i := range 4 {
		if p.Verify(mem[i*64:][:64], uint64(i)) != 0 || bytes.Equal(mem[i*64:][:64], make([]byte, 64)) {
			t.Errorf("place %d is not filled", i)
		}
	}
}

// swap and cas return what the operation before them at the same place has written. What is not that is wrong.
func TestOldValues(t *testing.T) {
	for _, op := range []string{Swap, CAS} {
		s := &Spec{Test: BW, Op: op, Size: 8, Window: 2, Parallel: 1, Check: true, Iters: 10}
		l := NewLeg(s, 0, false, NewGroup(s, false, nil))
		c := &swapper{memory: make([]byte, 16)}
		l.Conn = c
		one := func(place int) {
			t.Helper()
			slot := &l.tx[place]
			c.full = true
			for range 2 { // the first finds no room
				if ok, err := l.post(slot, 0); err != nil || ok == c.full {
					t.Fatal(ok, err)
				}
				c.full = false
			}
			l.accessed(&Completion{Slot: slot, Sent: true})
		}
		for _, place := range []int{0, 1, 0, 0} {
			one(place)
		}
		if l.check.Wrong != 0 || c.memory[0] != 3 || c.memory[8] != 1 {
			t.Errorf("%s: %+v, memory %v", op, l.check, c.memory)
		}
		c.memory[8] = 7 // as if an operation was executed at another place
		if one(1); l.check.Wrong != 1 || l.check.WrongBytes != 8 {
			t.Errorf("%s: %+v, want 1 wrong", op, l.check)
		}
	}
}

// A swapper is the Conn of a client whose accesses end at once.
type swapper struct {
	Conn
	memory []byte
	full   bool
}

func (c *swapper) Access(s *Slot) (bool, error) {
	if c.full {
		return false, nil
	}
	b := c.memory[8*s.Place:][:8]
	copy(s.Buf, b)
	copy(b, s.New)
	return true, nil
}
