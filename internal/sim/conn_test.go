package sim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

func newConnPair(t *testing.T, turnB func(b *Conn)) (n *Net, a, b *Conn) {
	t.Helper()
	n = New(1)
	n.ICMP = true
	na := n.AddNode("a", NodeConfig{Addr: netip.MustParseAddr("10.0.0.1"), Ports: []uint16{1}})
	nb := n.AddNode("b", NodeConfig{Addr: netip.MustParseAddr("10.0.0.2"), Ports: []uint16{1}})
	n.Connect(na, nb, Faults{Delay: ms}, Faults{Delay: ms})
	a = NewConn(na, nil)
	b = NewConn(nb, func(time.Duration) {
		if turnB != nil {
			turnB(b)
		}
	})
	return n, a, b
}

func TestConnWaitRunsTheNetwork(t *testing.T) {
	d := &dgram.Datagram{Data: make([]byte, 0, 100)}
	n, a, b := newConnPair(t, func(b *Conn) {
		for {
			ok, err := b.Recv(d)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return
			}
			if _, err := b.SendBatch([]*dgram.Datagram{d}); err != nil { // an echo
				t.Fatal(err)
			}
		}
	})
	if k, err := a.SendBatch([]*dgram.Datagram{{Data: []byte("hello"), Remote: b.node.Addr()}}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	if ok, _ := a.Recv(d); ok {
		t.Error("an answer before any time has passed")
	}
	if err := a.Wait(-1); err != nil || n.Now() != Start+2*ms {
		t.Errorf("Wait: %v at %v", err, n.Now())
	}
	if ok, err := a.Recv(d); !ok || err != nil || string(d.Data) != "hello" {
		t.Errorf("received %v %v %q", ok, err, d.Data)
	}
	if err := a.Wait(5 * ms); err != nil || n.Now() != Start+7*ms {
		t.Errorf("Wait with nothing to come: %v at %v", err, n.Now())
	}
	a.Wake()
	if err := a.Wait(time.Hour); err != nil || n.Now() != Start+7*ms {
		t.Errorf("Wait after Wake: %v at %v", err, n.Now())
	}
}

func TestConnCloseAndUnreachable(t *testing.T) {
	n, a, b := newConnPair(t, nil)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(&dgram.Datagram{}); err != ErrConnClosed {
		t.Errorf("Recv of a closed Conn: %v", err)
	}
	a.SendBatch([]*dgram.Datagram{{Data: []byte("x"), Remote: b.node.Addr()}})
	n.Run(n.Now() + 10*ms)
	if r, ok := a.Unreachable(); !ok || r != b.node.Addr() {
		t.Errorf("Unreachable: %v %v", r, ok)
	}
	if _, ok := a.Unreachable(); ok {
		t.Error("evidence twice")
	}
}
