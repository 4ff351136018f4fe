package transport

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// strangers makes f intern and forget n addresses, and reports whether one of them got the
// number id.
func (p *pipe) strangers(f *FEP, n int, id PeerID) bool {
	p.t.Helper()
	for i := range uint32(n) {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], 10<<24|i)
		got, err := f.Peer(netip.AddrPortFrom(netip.AddrFrom4(ip), 4793), false)
		if err != nil {
			p.t.Fatal(err)
		}
		if got == id {
			return true
		}
		f.Forget(got)
	}
	return false
}

func TestFEPForgottenPeerStaysWhileOperationsNameIt(t *testing.T) {
	// R-MSG-10: a directed receive, or a send that waits, has the number of its peer. If
	// the application removes the address, the number does not come to mean another peer
	// before the operation ends.
	for _, kind := range []string{"receive", "fenced send"} {
		p := newPipe(t, nil)
		if kind == "receive" {
			p.post(p.a, Op{Kind: OpRecv, Peer: p.toB, Context: "op"})
		} else {
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Context: "first"})
			p.post(p.a, Op{Kind: OpSend, Peer: p.toB, RI: 15, Fence: true, Context: "op"})
		}
		p.a.Forget(p.toB)
		for range 3 {
			p.now += time.Second / 4
			p.a.Advance(p.now)
			if p.strangers(p.a, 5000, p.toB) {
				t.Fatalf("%s: the number is another's", kind)
			}
		}
		// The operation ends, then the PDC; the number is then free.
		if kind == "receive" {
			if !p.a.Cancel(p.now, 0, "op") {
				t.Fatal("not cancelled")
			}
		} else {
			p.until(func() bool { return p.a.ses.Sends() == 0 })
		}
		p.events(p.a)
		for end := p.now + 10*time.Minute; p.a.peers[p.toB].used; {
			if p.now > end {
				t.Fatalf("%s: the number is never free", kind)
			}
			p.now += time.Second
			p.a.Advance(p.now)
			p.b.Advance(p.now)
			p.exchange()
		}
	}
}
