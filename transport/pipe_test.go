package transport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/internal/ses"
)

// A pipe joins two FEPs by a perfect network without delay, so that tests of how the
// sublayers work together read as scripts. Imperfect networks are the subject of the
// simulator (internal/sim).
type pipe struct {
	t    testing.TB
	now  time.Duration
	a, b *FEP
	toA  PeerID // b's number of a
	toB  PeerID // a's number of b
	d    dgram.Datagram
	drop func(from *FEP, b []byte) bool // true means the datagram is lost
}

func newPipe(t testing.TB, change func(*Config)) *pipe {
	p := &pipe{t: t, now: time.Second, d: dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}}
	mk := func(addr string, seed uint64) *FEP {
		cfg := Config{Local: netip.MustParseAddrPort(addr)}
		if change != nil {
			change(&cfg)
		}
		f, err := New(cfg, rand.New(rand.NewPCG(seed, 7)))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p.a, p.b = mk("198.18.0.1:4793", 1), mk("198.18.0.2:4793", 2)
	p.toB, _ = p.a.Peer(p.b.cfg.Local, true)
	p.toA, _ = p.b.Peer(p.a.cfg.Local, true)
	return p
}

// turn carries everything that may leave, both ways, until both ends have nothing more.
func (p *pipe) turn() {
	for p.move(p.a, p.b) || p.move(p.b, p.a) {
	}
}

// turns takes n turns, a millisecond apart.
func (p *pipe) turns(n int) {
	for range n {
		p.now += time.Millisecond
		p.a.Advance(p.now)
		p.b.Advance(p.now)
		p.exchange()
	}
}

// exchange ends the turn, so that waiting ACKs leave, too.
func (p *pipe) exchange() {
	p.turn()
	for {
		p.a.Flush(p.now)
		p.b.Flush(p.now)
		if !p.move(p.a, p.b) && !p.move(p.b, p.a) {
			return
		}
		p.turn()
	}
}

// move carries one train.
func (p *pipe) move(from, to *FEP) bool {
	if !from.Transmit(p.now, &p.d) {
		return false
	}
	if p.d.Remote != to.cfg.Local {
		p.t.Fatalf("a train goes to %v", p.d.Remote)
	}
	p.d.Remote = from.cfg.Local
	if p.drop != nil {
		for rest := p.d.Data; len(rest) > 0; {
			var b []byte
			b, rest = p.d.Next(rest)
			if p.drop(from, b) {
				continue
			}
			to.Receive(p.now, &dgram.Datagram{Data: b, Remote: p.d.Remote})
		}
		return true
	}
	to.Receive(p.now, &p.d)
	return true
}

// events returns the events of f as strings.
func (p *pipe) events(f *FEP) []string {
	var out []string
	for e := f.NextEvent(); e != nil; e = f.NextEvent() {
		s := fmt.Sprintf("%v %v", e.Context, e.Cause)
		switch e.Kind {
		case OpRecv, OpTRecv:
			s += fmt.Sprintf(" len=%d", e.Len)
			if e.OverLen > 0 {
				s += fmt.Sprintf(" over=%d", e.OverLen)
			}
			if e.HasData {
				s += fmt.Sprintf(" data=%#x", e.Data)
			}
		}
		out = append(out, s)
	}
	return out
}

func (p *pipe) want(f *FEP, want ...string) {
	p.t.Helper()
	if got := p.events(f); fmt.Sprint(got) != fmt.Sprint(want) {
		p.t.Fatalf("events %q, want %q", got, want)
	}
}

func (p *pipe) post(f *FEP, op Op) {
	p.t.Helper()
	if err := f.Post(p.now, &op); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipe) checkIdle() {
	p.t.Helper()
	if !p.a.Idle() || !p.b.Idle() {
		p.t.Errorf("not at rest: a %v, b %v", p.a.Idle(), p.b.Idle())
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) ^ seed
	}
	return b
}

var _ = ses.OK
