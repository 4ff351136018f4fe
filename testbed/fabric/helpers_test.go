package fabric

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

const ms = time.Millisecond

// A rig is a switch with two hosts, a at port 0 (198.18.16.2) and b at port 1
// (198.18.17.2), its log, and what has left it.
type rig struct {
	t   testing.TB
	s   *Switch
	now time.Duration
	log []Decision
	out []left
}

type left struct {
	port int
	at   time.Duration
	ip   []byte
}

// psn returns the PSN of the UET request in the packet.
func (o left) psn() uint32 {
	n := ipv4Len
	if o.ip[0]>>4 == 6 {
		n = ipv6Len
	}
	return binary.BigEndian.Uint32(o.ip[n+udpLen+4:])
}

func twoPorts(mod ...func(*Config)) Config {
	c := Config{Seed: 1, Ports: []Port{
		{Name: "a", Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.16.0/24"), netip.MustParsePrefix("2001:db8:16::/64")}},
		{Name: "b", Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.17.0/24"), netip.MustParsePrefix("2001:db8:17::/64")}},
	}}
	for _, m := range mod {
		m(&c)
	}
	return c
}

// toB returns a Config with l as the last line to b.
func toB(l Line) func(*Config) { return func(c *Config) { c.Ports[1].To = l } }

// ruleA returns a Config with one rule on the line from a.
func ruleA(r ...Rule) func(*Config) { return func(c *Config) { c.Ports[0].From.Rules = r } }

func newRig(t testing.TB, mod ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t}
	c := twoPorts(mod...)
	c.Log = func(d *Decision) { r.log = append(r.log, *d) }
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	return r
}

// send gives the switch a packet at port 0 now.
func (r *rig) send(ip []byte) { r.s.Receive(r.now, 0, ip) }

// collect collects what has left by now.
func (r *rig) collect() {
	for {
		port, ip, at, ok := r.s.Transmit(r.now)
		if !ok {
			return
		}
		r.out = append(r.out, left{port, at, append([]byte(nil), ip...)})
	}
}

// run advances the time from one timeout to the next.
func (r *rig) run(d time.Duration) {
	end := r.now + d
	for {
		r.collect()
		at, ok := r.s.NextTimeout()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
	}
	r.now = end
	r.collect()
	r.conserve()
}

// conserve checks that each packet ends exactly once.
func (r *rig) conserve() {
	r.t.Helper()
	if err := conserved(r.s.Stats(r.now)); err != nil {
		r.t.Fatal(err)
	}
}

func conserved(st *Stats) error {
	in := st.Received + st.Whys["duplicated"] + st.Whys["replayed"]
	out := st.Sent + st.Inside
	for w := range NumWhys {
		if w.Lost() {
			out += st.Whys[w.String()]
		}
	}
	if in != out {
		return fmt.Errorf("%d packets came in and were made, %d went out, were lost or are inside: %+v", in, out, st)
	}
	return nil
}

// psns returns the PSNs of the packets that left, in order.
func (r *rig) psns() []uint32 {
	var out []uint32
	for _, o := range r.out {
		out = append(out, o.psn())
	}
	return out
}

// whys counts the decisions in the log.
func (r *rig) whys() map[Why]int {
	m := map[Why]int{}
	for _, d := range r.log {
		m[d.Why]++
	}
	return m
}

// A pkt describes a UET packet from a to b.
type pkt struct {
	psn          uint32
	dscp, ecn    uint8
	payload      int
	sport, dport uint16 // 0 means wire.Port
	flags        wire.Flags
	off          uint16 // PSN offset, with SYN
	pdc          uint16
	noEOM        bool
	v6           bool
	noSum        bool // no UDP checksum
	raw          []byte
}

var (
	hostA = [2]netip.Addr{netip.MustParseAddr("198.18.16.2"), netip.MustParseAddr("2001:db8:16::2")}
	hostB = [2]netip.Addr{netip.MustParseAddr("198.18.17.2"), netip.MustParseAddr("2001:db8:17::2")}
)

// bytes makes the IP packet: a RUD request with a standard header, or raw, and the CRC
// trailer.
func (k pkt) bytes() []byte {
	b := k.raw
	if b == nil {
		req := wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: k.flags, PSN: wire.PSN(k.psn), SPDCID: k.pdc, PSNOffset: k.off}
		b = req.Append(nil)
		ses := wire.ReqStd{Opcode: wire.OpSend, Flags: wire.SESSOM | wire.SESEOM, ReqLen: uint32(k.payload)}
		if k.noEOM {
			ses.Flags = wire.SESSOM
		}
		b = ses.Append(b)
		for i := range k.payload {
			b = append(b, byte(i))
		}
	}
	src, dst, sport, dport := hostA[0], hostB[0], k.sport, k.dport
	if k.v6 {
		src, dst = hostA[1], hostB[1]
	}
	if sport == 0 {
		sport = wire.Port
	}
	if dport == 0 {
		dport = wire.Port
	}
	b = wire.AppendCRC(append([]byte(nil), b...), 0, wire.CRCPrefix(src, dst, sport, dport, uint16(udpLen+len(b)+wire.CRCLen)))
	return udpPacket(netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport), k.dscp<<2|k.ecn, b, k.noSum)
}

// udpPacket makes an IP packet of a UDP payload with its own arithmetic, so that the tests
// can check the switch's.
func udpPacket(src, dst netip.AddrPort, tos uint8, body []byte, noSum bool) []byte {
	u := make([]byte, udpLen, udpLen+len(body))
	binary.BigEndian.PutUint16(u, src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(udpLen+len(body)))
	u = append(u, body...)
	if !noSum {
		binary.BigEndian.PutUint16(u[6:], udpSum(src.Addr(), dst.Addr(), u))
	}
	var h []byte
	if src.Addr().Is4() {
		h = []byte{0x45, tos, 0, 0, 0x12, 0x34, 0x40, 0, 64, protUDP, 0, 0}
		binary.BigEndian.PutUint16(h[2:], uint16(ipv4Len+len(u)))
		h = append(append(h, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
		binary.BigEndian.PutUint16(h[10:], slowSum(h))
	} else {
		h = []byte{0x60 | tos>>4, tos << 4, 0xab, 0xcd, 0, 0, protUDP, 64}
		binary.BigEndian.PutUint16(h[4:], uint16(len(u)))
		h = append(append(h, src.Addr().AsSlice()...), dst.Addr().AsSlice()...)
	}
	return append(h, u...)
}

// slowSum is the Internet checksum, computed word by word.
func slowSum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		if s += w; s > 0xffff {
			s -= 0xffff
		}
	}
	return ^uint16(s)
}

func udpSum(src, dst netip.Addr, u []byte) uint16 {
	ph := append(append([]byte{}, src.AsSlice()...), dst.AsSlice()...)
	ph = append(ph, 0, protUDP, byte(len(u)>>8), byte(len(u)))
	ph = append(ph, u[:6]...)
	ph = append(ph, 0, 0)
	ph = append(ph, u[8:]...)
	if c := slowSum(ph); c != 0 {
		return c
	}
	return 0xffff
}

// deliverable returns why a kernel would not give the packet to a socket; nil if it would.
func deliverable(ip []byte) error {
	var src, dst netip.Addr
	l4 := ipv4Len
	if ip[0]>>4 == 4 {
		if got := int(binary.BigEndian.Uint16(ip[2:])); got != len(ip) {
			return fmt.Errorf("total length %d of %d", got, len(ip))
		}
		if c := slowSum(ip[:ipv4Len]); c != 0 {
			return fmt.Errorf("header checksum is off by %#x", c)
		}
		src, dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	} else {
		l4 = ipv6Len
		if got := int(binary.BigEndian.Uint16(ip[4:])); got != len(ip)-ipv6Len {
			return fmt.Errorf("payload length %d of %d", got, len(ip)-ipv6Len)
		}
		src, dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	}
	u := ip[l4:]
	if got := int(binary.BigEndian.Uint16(u[4:])); got != len(u) {
		return fmt.Errorf("UDP length %d of %d", got, len(u))
	}
	if got := binary.BigEndian.Uint16(u[6:]); got != udpSum(src, dst, u) && (got != 0 || l4 == ipv6Len) {
		return fmt.Errorf("UDP checksum %#x, want %#x", got, udpSum(src, dst, u))
	}
	return nil
}
