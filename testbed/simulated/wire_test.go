package simulated

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/testbed/fabric"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestPutIP(t *testing.T) {
	p := &sim.Packet{ID: 0x7_1234, Src: addrPort("198.18.16.2:4793"), Dst: addrPort("198.18.17.2:5000"), TOS: 0x2a, Data: []byte("abc")}
	got := hex.EncodeToString(putIP(nil, p))
	const want = "45" + "2a" + "001f" + // version and length, DSCP 10 and ECT(0), 31 bytes
		"1234" + "4000" + "40" + "11" + // identification, do not fragment, TTL 64, UDP
		"7b47" + // checksum (RFC 1071): the words sum to 284b6, so 84b8, inverted
		"c6121002" + "c6121102" +
		"12b9" + "1388" + "000b" + "0000" + // ports, 11 bytes, no checksum
		"616263"
	if got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if s := sum(putIP(nil, p)[:ipLen]); s != 0xffff {
		t.Errorf("the header sums to %#x", s)
	}
}

// sink keeps what arrives.
type sink struct {
	node *sim.Node
	d    dgram.Datagram
}

func (s *sink) Turn(time.Duration) {
	for s.node.Recv(&s.d) {
	}
}

func (s *sink) Unreachable(time.Duration, netip.AddrPort) {}

// Packets keep their identity through the switch, even if it changed, repeated or trimmed
// them.
func TestWireKnowsPackets(t *testing.T) {
	trim := &fabric.Trim{}
	for _, c := range []struct {
		name  string
		rule  fabric.Rule
		trim  *fabric.Trim
		marks []sim.Marks
	}{
		{"clean", fabric.Rule{}, nil, []sim.Marks{0, 0}},
		{"lost", fabric.Rule{Drop: []uint64{0}}, nil, []sim.Marks{0}},
		{"damaged", fabric.Rule{Corrupt: 1}, nil, []sim.Marks{sim.Corrupted, sim.Corrupted}},
		{"twice", fabric.Rule{Duplicate: 1}, nil, []sim.Marks{0, 0, 0, 0}},
		{"marked", fabric.Rule{CE: 1}, nil, []sim.Marks{sim.Congested, sim.Congested}},
		{"cut", fabric.Rule{Trim: 1}, trim, []sim.Marks{sim.Trimmed, sim.Trimmed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := netip.MustParseAddr("198.18.16.2"), netip.MustParseAddr("198.18.17.2")
			cfg := fabric.Config{Ports: []fabric.Port{{Name: "a", Addrs: []netip.Prefix{netip.PrefixFrom(a, 24)}}, {Name: "b", Addrs: []netip.Prefix{netip.PrefixFrom(b, 24)}}}}
			if c.name != "clean" {
				cfg.Ports[1].To.Rules = []fabric.Rule{c.rule}
			}
			cfg.Ports[1].To.Trim = c.trim
			sw, err := fabric.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			w := newWire(sw, map[netip.Addr]int{a: 0, b: 1})
			n := sim.New(1)
			w.net, w.violation = n, t.Fatalf
			na := n.AddNode("a", sim.NodeConfig{Addr: a, Ports: []uint16{4793}})
			nb := n.AddNode("b", sim.NodeConfig{Addr: b, Ports: []uint16{4793}})
			l := n.NewLine("wire", sim.Faults{})
			l.Divert(w.carry)
			n.Route(na, nb, l)
			na.Attach(&sink{node: na})
			nb.Attach(&sink{node: nb})
			// A RUD request with a standard header, which is trimmable.
			data := append([]byte{0x11, 0x80}, bytes.Repeat([]byte{7}, 900)...)
			var sent []uint64
			var marks []sim.Marks
			for i := range 2 {
				n.At(sim.Start+time.Duration(i)*time.Millisecond, func() { na.Inject(na.Addr(), nb.Addr(), data, 10<<2|2) })
			}
			n.Tap(func(_ time.Duration, what sim.What, _ sim.Why, p *sim.Packet) {
				if what == sim.Sent {
					sent = append(sent, p.ID)
					return
				}
				marks = append(marks, p.Marks)
				if what != sim.Taken || p.From != na || p.Src != na.Addr() || !slices.Contains(sent, p.ID) {
					t.Errorf("%v of packet %d from %v: %d were sent", what, p.ID, p.Src, sent)
				}
				if damaged := !bytes.Equal(p.Data, data); damaged != (p.Marks&(sim.Corrupted|sim.Trimmed) != 0) {
					t.Errorf("packet %d with marks%v has %d bytes, damaged: %v", p.ID, p.Marks, len(p.Data), damaged)
				}
			})
			n.Run(sim.Start + time.Second)
			if fmt.Sprint(marks) != fmt.Sprint(c.marks) {
				t.Errorf("marks %v, want %v", marks, c.marks)
			}
		})
	}
}
