package fabric

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A tape is the bytes of a fuzz input, followed by zeros.
type bytesIn []byte

func (b *bytesIn) byte() byte {
	if len(*b) == 0 {
		return 0
	}
	v := (*b)[0]
	*b = (*b)[1:]
	return v
}

func (b *bytesIn) n(n int) int                   { return (int(b.byte())<<8 | int(b.byte())) % n }
func (b *bytesIn) maybe() bool                   { return b.byte()&1 != 0 }
func (b *bytesIn) share() float64                { return float64(b.byte()%11) / 10 }
func (b *bytesIn) time(d time.Duration) Duration { return Duration(int64(d) * int64(b.byte()) / 255) }
func pick[T any](b *bytesIn, of ...T) T          { return of[int(b.byte())%len(of)] }
func (b *bytesIn) some(n int, f func(i int)) {
	for i := range b.n(n + 1) {
		f(i)
	}
}
func (b *bytesIn) rules(replay *bool) (rs []Rule) {
	b.some(4, func(int) { rs = append(rs, b.rule(replay)) })
	return
}

func (b *bytesIn) rule(replay *bool) Rule {
	r := Rule{Name: pick(b, "", "x", "y")}
	r.Match = Match{
		Kind: pick(b, "", "", "data", "!data", "ack", "sealed", "other"), Flag: pick(b, "", "", "", "syn", "!retx"),
		SrcPort: pick(b, uint16(0), 0, 0, 4793), MinLen: pick(b, 0, 0, 100), EOM: b.byte() == 255,
	}
	switch b.byte() % 12 {
	case 0:
		r.Loss = b.share()
	case 1:
		r.Burst = &Burst{Enter: b.share() + 0.001, Leave: b.share() + 0.001, Loss: b.share()}
	case 2:
		r.Drop = []uint64{uint64(b.byte()), uint64(b.byte())}
	case 3:
		r.First = b.n(3)
	case 4:
		r.Blackhole = true
	case 5:
		r.Delay, r.Late = b.time(time.Second), b.share()
	case 6:
		r.Reorder, r.ReorderBy, r.ReorderHold = b.share(), b.n(5), b.time(100*ms)
	case 7:
		r.Duplicate, r.Copies, r.DuplicateLate = b.share(), b.n(4), b.time(ms)
	case 8:
		r.Corrupt, r.CorruptBits = b.share(), b.n(65)
	case 9:
		r.CE = b.share()
	case 10:
		r.Trim = b.share()
	case 11:
		*replay = true
		r.Replay = &Replay{Rate: float64(b.n(100)), Keep: b.n(20), After: b.time(time.Second)}
	}
	if r.check() != nil && b.byte() != 255 {
		return Rule{Name: r.Name, Loss: 0.1} // most switches should be valid
	}
	return r
}

func (b *bytesIn) line(replay *bool) Line {
	l := Line{
		Rate: pick(b, Rate(0), 0, 1e5, 1e7, 1e9), Delay: b.time(10 * ms), Jitter: b.time(10 * ms), InOrder: b.maybe(),
		Queue: pick(b, Bytes(0), 1000, 10000), QueueHigh: pick(b, Bytes(0), 500), Small: pick(b, Bytes(0), 0, 200), MTU: pick(b, 0, 0, 0, 1000), Down: b.byte() == 255,
	}
	if b.maybe() {
		l.ECN = &ECN{Min: pick(b, Bytes(0), 500), Max: pick(b, Bytes(500), 5000), Prob: b.share()}
	}
	if b.maybe() {
		l.Trim = &Trim{After: pick(b, Bytes(0), 500, 5000), Keep: pick(b, 0, 28, 200)}
	}
	l.Rules = b.rules(replay)
	return l
}

func (b *bytesIn) event(replay *bool) Event {
	e := Event{At: b.time(time.Second), On: []string{pick(b, "a", "b.to", "a.from", "*", "b")}}
	if b.maybe() {
		e.For = b.time(50*ms) + 1
		if b.maybe() {
			e.Every, e.Times = e.For+Duration(20*ms), b.n(4)
		}
	}
	switch b.byte() % 4 {
	case 0:
		e.Down = e.For > 0
		fallthrough
	case 1:
		l := b.line(replay)
		l.Rules, l.Down = nil, l.Down && e.For > 0
		e.Set = &l
	case 2:
		r := b.rule(replay)
		e.Rule = &r
	case 3:
		e.Clear = "x"
	}
	return e
}

func (b *bytesIn) config(replay *bool) Config {
	c := twoPorts()
	c.Seed = uint64(b.byte())
	for i := range c.Ports {
		c.Ports[i].From, c.Ports[i].To = b.line(replay), b.line(replay)
	}
	b.some(3, func(int) { c.Spines = append(c.Spines, b.line(replay)) })
	b.some(3, func(int) { c.Events = append(c.Events, b.event(replay)) })
	return c
}

func (b *bytesIn) packet(i int) []byte {
	k := pkt{psn: uint32(i), payload: b.n(1400), dscp: pick(b, uint8(0), 10, 12, 46), ecn: b.byte() & 3, sport: pick(b, uint16(4793), 5000, 5001), pdc: uint16(b.byte() & 3), v6: b.maybe(), noSum: b.byte() == 255}
	switch b.byte() % 8 {
	case 0: // anything at all
		n := b.n(200)
		n = min(n, len(*b))
		ip := slices.Clone((*b)[:n])
		*b = (*b)[n:]
		return ip
	case 1: // almost valid
		ip := k.bytes()
		b.some(8, func(int) { ip[b.n(min(len(ip), 100))] = b.byte() })
		return ip[:len(ip)-b.n(len(ip))*int(b.byte()&1)]
	case 2:
		k.raw = (&wire.Ack{Type: wire.TypeAck, SPDCID: 1}).Append(nil)
	case 3:
		k.raw = append(wire.TSS{}.Append(nil), make([]byte, 200)...)
	case 4:
		k.flags = wire.FlagSYN
	}
	return k.bytes()
}

// play drives a switch by b, checks the rules that always hold, and returns a digest of
// what happened.
func play(b bytesIn) (string, error) {
	var replay bool
	cfg := b.config(&replay)
	var log []byte
	note := func(v ...uint64) {
		for _, v := range v {
			log = binary.AppendUvarint(log, v)
		}
	}
	cfg.Log = func(d *Decision) {
		note(uint64(d.At), d.ID, uint64(d.Why), uint64(d.Len), uint64(d.PSN))
		log = append(append(log, d.Line...), d.Rule...)
	}
	s, err := New(cfg)
	if err != nil {
		return err.Error(), nil
	}
	var now, last time.Duration
	out := 0
	drain := func() error {
		for {
			port, ip, at, ok := s.Transmit(now)
			switch {
			case !ok:
				if next, ok := s.NextTimeout(); ok && next <= now {
					return fmt.Errorf("at %v nothing leaves, but something is due at %v", now, next)
				}
				return nil
			case at < last || at > now:
				return fmt.Errorf("left at %v, after %v, now %v", at, last, now)
			case port != 0 && port != 1 || len(ip) < ipv4Len:
				return fmt.Errorf("port %d, %d bytes", port, len(ip))
			}
			var h hdr
			if n := h.parse(ip, &s.classes); n != len(ip) {
				return fmt.Errorf("what left has %d bytes and says %d: %x", len(ip), n, ip)
			}
			last = at
			out++
			note(uint64(port), uint64(at), uint64(len(ip)), uint64(tos(ip, h.v6)))
		}
	}
	for i := 0; i < 200 && len(b) > 0; i++ {
		switch op := b.byte(); {
		case op < 160:
			s.Receive(now, int(op&1), b.packet(i))
		case op < 220:
			now += time.Duration(b.time(50 * ms))
			if err := drain(); err != nil {
				return "", err
			}
		case op < 230:
			now += time.Duration(b.time(time.Second))
			s.Advance(now)
		case op < 250:
			if err := s.Apply(now, b.event(&replay)); err != nil {
				log = append(log, err.Error()...)
			}
		default:
			s.Start(now)
		}
		if i%16 == 0 {
			if err := conserved(s.Stats(now)); err != nil {
				return "", err
			}
		}
	}
	now += time.Minute
	if err := drain(); err != nil {
		return "", err
	}
	st := s.Stats(now)
	if err := conserved(st); err != nil {
		return "", err
	}
	if st.Sent != uint64(out) {
		return "", fmt.Errorf("%d sent, %d left", st.Sent, out)
	}
	if !replay && (st.Inside != 0 || s.pool.used != 0) {
		return "", fmt.Errorf("%d packets and %d bytes are left inside", st.Inside, s.pool.used)
	}
	var waiting int64
	for _, l := range s.lines {
		waiting += l.lowBytes + l.highBytes
		for _, f := range []fifo{l.low, l.high} {
			n := f.n
			for k := range n {
				waiting -= int64(f.ring[(f.head+k)&(len(f.ring)-1)].n)
			}
		}
	}
	if waiting != 0 {
		return "", fmt.Errorf("queues have lost count by %d bytes", waiting)
	}
	return string(log), nil
}

func checkPlay(t *testing.T, b []byte) {
	one, err := play(slices.Clone(b))
	if err != nil {
		t.Fatal(err)
	}
	two, _ := play(slices.Clone(b))
	if one != two {
		t.Fatalf("two runs of one seed differ: %q and %q", one, two)
	}
}

func FuzzSwitch(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(noise(seed, 600))
	}
	f.Fuzz(checkPlay)
}

func noise(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 0, n)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b
}

// The rules hold for many random switches.
func TestAnything(t *testing.T) {
	for seed := range uint64(60) {
		b := noise(seed, 4000)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkPlay(t, b) })
	}
}
