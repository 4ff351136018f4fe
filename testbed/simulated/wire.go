package simulated

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/testbed/fabric"
)

// A wire connects the simulated hosts by a switch. It makes IP packets from their
// datagrams, as a packet socket would receive them, and datagrams from the packets that
// leave the switch.
type wire struct {
	net  *sim.Net
	sw   *fabric.Switch
	port map[netip.Addr]int // of the host
	buf  []byte
	sent []sent // what was sent, by ID modulo its length
	wake time.Duration
	busy bool
	// begun is called once, with the time of the first packet.
	begun func(time.Duration)
	// violation reports a packet of the switch that no host would accept.
	violation func(format string, args ...any)
	packets   uint64
}

// A sent describes a datagram while it may be in the switch.
type sent struct {
	id       uint64
	crc      uint32
	len      int32
	src, dst netip.AddrPort
	from     *sim.Node
	life     int32
	path     int32
	at       time.Duration
}

const (
	ipLen    = 20
	udpLen   = 8
	protoUDP = 17
	// remembered is how many datagrams are known. The IP identification, modulo 65,536,
	// identifies those that leave the switch; a replayed one is old.
	remembered = 1 << 18
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newWire(sw *fabric.Switch, port map[netip.Addr]int) *wire {
	return &wire{sw: sw, port: port, sent: make([]sent, remembered)}
}

// carry passes a datagram from a host to the switch.
func (w *wire) carry(p *sim.Packet) {
	now := w.net.Now()
	if w.begun != nil {
		f := w.begun
		w.begun = nil
		f(now)
	}
	w.packets++
	w.sent[p.ID%remembered] = sent{p.ID, crc32.Checksum(p.Data, castagnoli), int32(len(p.Data)), p.Src, p.Dst, p.From, int32(p.FromLife), int32(p.Path), p.Sent}
	w.buf = putIP(w.buf[:0], p)
	w.sw.Receive(now, w.port[p.Src.Addr()], w.buf)
	w.run(now)
}

// putIP appends the IP packet of a datagram. It has no UDP checksum, which IPv4 allows,
// because the transport has its own.
func putIP(b []byte, p *sim.Packet) []byte {
	be := binary.BigEndian
	n := ipLen + udpLen + len(p.Data)
	b = append(b, 0x45, p.TOS)
	b = be.AppendUint16(b, uint16(n))
	b = be.AppendUint16(b, uint16(p.ID))
	b = append(b, 0x40, 0, 64, protoUDP, 0, 0) // do not fragment
	src, dst := p.Src.Addr().As4(), p.Dst.Addr().As4()
	b = append(append(b, src[:]...), dst[:]...)
	be.PutUint16(b[10:], ^sum(b[:ipLen]))
	b = be.AppendUint16(b, p.Src.Port())
	b = be.AppendUint16(b, p.Dst.Port())
	b = be.AppendUint16(b, uint16(n-ipLen))
	b = append(b, 0, 0)
	return append(b, p.Data...)
}

// sum is the Internet checksum (RFC 1071) of an even number of bytes, not inverted.
func sum(b []byte) uint16 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	s = s&0xffff + s>>16
	return uint16(s + s>>16)
}

// run lets the switch do what is due, delivers the packets that leave it, and schedules its
// next run.
func (w *wire) run(now time.Duration) {
	if w.busy {
		return
	}
	w.busy = true
	for {
		_, ip, _, ok := w.sw.Transmit(now)
		if !ok {
			break
		}
		w.deliver(ip)
	}
	w.busy = false
	at, ok := w.sw.NextTimeout()
	if !ok || w.wake != 0 && w.wake <= at && w.wake > now {
		return
	}
	at = max(at, now+1)
	w.wake = at
	w.net.At(at, func() {
		if w.wake != at {
			return // another wake-up replaced this one
		}
		w.wake = 0
		w.sw.Advance(at)
		w.run(at)
	})
}

// deliver parses an IP packet, as the host's kernel would, and passes the datagram to the
// host.
func (w *wire) deliver(ip []byte) {
	be := binary.BigEndian
	if len(ip) < ipLen+udpLen || ip[0] != 0x45 || int(be.Uint16(ip[2:])) != len(ip) || sum(ip[:ipLen]) != 0xffff {
		w.violation("the switch sends a broken IP packet: % x", ip[:min(len(ip), ipLen+udpLen)])
		return
	}
	udp := ip[ipLen:]
	if int(be.Uint16(udp[4:])) != len(udp) {
		w.violation("the switch sends a UDP datagram of %d bytes that says %d", len(udp), be.Uint16(udp[4:]))
		return
	}
	src := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:])), be.Uint16(udp))
	dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:])), be.Uint16(udp[2:]))
	s := w.origin(be.Uint16(ip[4:]), udp[udpLen:], src, dst)
	if s == nil {
		w.violation("the switch sends a packet that it never got: from %v to %v, %d bytes", src, dst, len(ip))
		return
	}
	p := sim.Packet{ID: s.id, Src: src, Dst: dst, From: s.from, FromLife: int(s.life), Path: int(s.path), Data: udp[udpLen:], TOS: ip[1], Sent: s.at}
	switch {
	case int(s.len) != len(p.Data):
		p.Marks |= sim.Trimmed
	case crc32.Checksum(p.Data, castagnoli) != s.crc:
		p.Marks |= sim.Corrupted
	}
	if p.TOS&3 == 3 {
		p.Marks |= sim.Congested
	}
	w.net.Deliver(&p)
}

// origin returns the datagram that a packet came from: the newest with that identification
// and the same bytes, else the newest between those addresses.
func (w *wire) origin(ident uint16, data []byte, src, dst netip.AddrPort) *sent {
	crc := crc32.Checksum(data, castagnoli)
	var exact, newest *sent
	for i := uint64(ident); i < remembered; i += 1 << 16 {
		s := &w.sent[i]
		if s.id == 0 || s.src != src || s.dst != dst {
			continue
		}
		if newest == nil || s.id > newest.id {
			newest = s
		}
		if s.crc == crc && int(s.len) == len(data) && (exact == nil || s.id > exact.id) {
			exact = s
		}
	}
	if exact != nil {
		return exact
	}
	return newest
}

// heal replaces the switch by one without faults. Packets in the old one are lost.
func (w *wire) heal(cfg fabric.Config) error {
	clean := fabric.Config{Seed: cfg.Seed, Classes: cfg.Classes}
	for _, p := range cfg.Ports {
		clean.Ports = append(clean.Ports, fabric.Port{Name: p.Name, Addrs: p.Addrs, From: healed(p.From), To: healed(p.To)})
	}
	sw, err := fabric.New(clean)
	if err != nil {
		return fmt.Errorf("healed topology: %w", err)
	}
	w.sw, w.wake = sw, 0
	return nil
}

// healed returns a line without its faults.
func healed(l fabric.Line) fabric.Line {
	return fabric.Line{Rate: l.Rate, Delay: l.Delay, Queue: l.Queue, QueueHigh: l.QueueHigh}
}
