package sim

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
)

// sink is a host that records what arrives.
type sink struct {
	node *Node
	d    dgram.Datagram
	got  []arrival
	icmp []netip.AddrPort
	turn func(now time.Duration)
}

type arrival struct {
	at   time.Duration
	data string
	src  netip.AddrPort
	path int
	tos  uint8
	segs int // datagrams in the train
}

func (s *sink) Turn(now time.Duration) {
	for s.node.Recv(&s.d) {
		segs := s.d.Segments()
		rest := s.d.Data
		for first := true; first || len(rest) > 0; first = false {
			var b []byte
			b, rest = s.d.Next(rest)
			s.got = append(s.got, arrival{now, string(b), s.d.Remote, s.d.Path, s.d.TOS, segs})
		}
	}
	if s.turn != nil {
		s.turn(now)
	}
}

func (s *sink) Unreachable(now time.Duration, r netip.AddrPort) { s.icmp = append(s.icmp, r) }

// numbers returns the uint32 at the front of each datagram that arrived.
func (s *sink) numbers() []int {
	var n []int
	for _, a := range s.got {
		n = append(n, int(binary.BigEndian.Uint32([]byte(a.data))))
	}
	return n
}

// toyPair is two sinks and a line each way.
type toyPair struct {
	*Net
	a, b   *sink
	ab, ba *Line
}

func newToyPair(seed uint64, ab, ba Faults, cfg ...func(*NodeConfig)) *toyPair {
	p := &toyPair{Net: New(seed), a: &sink{}, b: &sink{}}
	ca := NodeConfig{Addr: netip.MustParseAddr("10.0.0.1"), Ports: []uint16{4793, 5001, 5002}}
	cb := NodeConfig{Addr: netip.MustParseAddr("10.0.0.2"), Ports: []uint16{4793, 5001, 5002}}
	for _, c := range cfg {
		c(&ca)
		c(&cb)
	}
	p.a.node, p.b.node = p.AddNode("a", ca), p.AddNode("b", cb)
	p.a.node.Attach(p.a)
	p.b.node.Attach(p.b)
	p.ab, p.ba = p.Connect(p.a.node, p.b.node, ab, ba)
	return p
}

// send sends one numbered datagram of n bytes from a to b.
func (p *toyPair) send(num, n int) {
	b := make([]byte, n)
	binary.BigEndian.PutUint32(b, uint32(num))
	p.a.node.Send(&dgram.Datagram{Data: b, Remote: p.b.node.Addr()})
}

// A toy is the simplest reliable protocol: stop and wait, one number, one checksum. If it
// delivers a list of words over a Net in order and once, and a broken toy does not, the Net can
// be trusted with better protocols.
//
// Data: type 'D', life, number, CRC, word. Answer: type 'A', life, number, CRC.
type toy struct {
	net  *Net
	node *Node
	peer netip.AddrPort
	d    dgram.Datagram

	words   []string // to send
	next    uint32
	sentAt  time.Duration
	resends int

	expect uint32
	got    []string
	bad    int

	noCRC, noDup bool // planted bugs: believe damaged bytes, accept repeats as new
}

const toyRTO = 30 * time.Millisecond

func (t *toy) Turn(now time.Duration) {
	for t.node.Recv(&t.d) {
		for rest := t.d.Data; len(rest) > 0; {
			var b []byte
			b, rest = t.d.Next(rest)
			t.receive(now, b)
		}
	}
	if int(t.next) < len(t.words) && now >= t.sentAt+toyRTO {
		if t.sentAt != 0 {
			t.resends++
		}
		t.send(now)
	}
	if int(t.next) < len(t.words) {
		t.node.Timer(t.sentAt + toyRTO)
	} else {
		t.node.Timer(0)
	}
}

func (t *toy) Unreachable(time.Duration, netip.AddrPort) {}

func (t *toy) frame(kind byte, num uint32, body string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, num)
	b = append(b, body...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func (t *toy) send(now time.Duration) {
	t.sentAt = now
	t.node.Send(&dgram.Datagram{Data: t.frame('D', t.next, t.words[t.next]), Remote: t.peer, TOS: dgram.ECT0})
}

func (t *toy) receive(now time.Duration, b []byte) {
	if len(b) < 9 || !t.noCRC && crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		t.bad++
		return
	}
	num := binary.BigEndian.Uint32(b[1:])
	switch b[0] {
	case 'D':
		if num == t.expect || t.noDup {
			t.got = append(t.got, string(b[5:len(b)-4]))
			t.expect = num + 1
		}
		if num < t.expect {
			t.node.Send(&dgram.Datagram{Data: t.frame('A', num, ""), Remote: t.peer, TOS: dgram.ECT0})
		}
	case 'A':
		if num == t.next && int(num) < len(t.words) {
			t.next++
			if int(t.next) < len(t.words) {
				t.send(now)
			}
		}
	}
}

// quiet receives and ignores everything.
type quiet struct {
	node *Node
	d    dgram.Datagram
	n    int
}

func (q *quiet) Turn(time.Duration) {
	for q.node.Recv(&q.d) {
		q.n++
	}
}

func (q *quiet) Unreachable(time.Duration, netip.AddrPort) {}
