// Package relay is a bad network between two endpoints: a UDP relay with real sockets that
// loses, duplicates, reorders and corrupts datagrams as a seed says.
//
// The CRC-32C trailer of a packet covers its addresses and ports. The relay therefore
// verifies the trailer of each packet for the addresses it came with, and rewrites it for
// those it leaves with. Corruption is applied afterwards, so a corrupted packet carries a
// wrong trailer. A packet that arrives with a wrong trailer leaves with a wrong one.
package relay

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/transport/wire"
)

// Faults are the faults of each direction. The shares are between 0 and 1.
type Faults struct {
	Loss float64
	// Burst is the mean number of datagrams lost in a row. It is larger if Loss requires it.
	// Up to 1, each datagram is lost independently.
	Burst     float64
	Reorder   float64 // held back until up to MaxHold others passed
	Duplicate float64 // sent twice, the second time later
	Corrupt   float64 // one bit flipped
	Seed      uint64
}

const (
	// MaxHold is the most datagrams that may overtake one that is held back.
	MaxHold = 32
	// holdTime is the longest time that a datagram is held back.
	holdTime = 2 * time.Millisecond
	// maxHeld bounds the datagrams held back per direction. Beyond it they pass at once.
	maxHeld = 1024
	// writeWait is how long the relay waits for a full send buffer.
	writeWait = 100 * time.Millisecond
)

// model converts f to package badnet.
func (f *Faults) model() badnet.Faults {
	m := badnet.Faults{
		Loss: f.Loss, Corrupt: f.Corrupt, Duplicate: f.Duplicate,
		Reorder: f.Reorder, ReorderBy: badnet.Count{N: MaxHold, UpTo: true},
	}
	if f.Burst > 1 && f.Loss > 0 && f.Loss < 1 {
		leave := min(1/f.Burst, (1-f.Loss)/f.Loss)
		m.Loss, m.Burst = 0, badnet.Burst{Enter: leave * f.Loss / (1 - f.Loss), Leave: leave}
	}
	return m
}

// ParseFaults reads a list such as loss=1%,burst=3,reorder=0.5%,dup=1%,corrupt=0.1%.
func ParseFaults(s string) (Faults, error) {
	var f Faults
	for _, part := range strings.Split(s, ",") {
		key, val, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return f, fmt.Errorf("%q is not NAME=VALUE with one of loss, burst, reorder, dup, corrupt", part)
		}
		p := map[string]*float64{"loss": &f.Loss, "reorder": &f.Reorder, "dup": &f.Duplicate, "duplicate": &f.Duplicate, "corrupt": &f.Corrupt}[key]
		var err error
		switch {
		case p != nil:
			if *p, err = units.ParseShare(val); (err != nil || *p == 1) && onlyDigits(val) && val != "0" {
				err = fmt.Errorf("%s=%s is %s00 %%: did you mean %s%%? All is 100%%", key, val, val, val)
			}
		case key == "burst":
			if _, err = fmt.Sscanf(val, "%g", &f.Burst); err == nil && !(f.Burst >= 1 && f.Burst <= 10000) {
				err = fmt.Errorf("burst %q is not a mean length of 1 to 10000 datagrams", val)
			}
		default:
			err = fmt.Errorf("%q is none of loss, burst, reorder, dup, corrupt", key)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// onlyDigits reports whether s is a whole number without a unit.
func onlyDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// String writes f as ParseFaults reads it.
func (f Faults) String() string {
	var out []string
	for _, p := range []struct {
		name string
		v    float64
	}{{"loss", f.Loss}, {"reorder", f.Reorder}, {"dup", f.Duplicate}, {"corrupt", f.Corrupt}} {
		if p.v > 0 {
			out = append(out, fmt.Sprintf("%s=%.4g%%", p.name, p.v*100))
		}
		if p.name == "loss" && f.Burst > 1 {
			out = append(out, fmt.Sprintf("burst=%.4g", f.Burst))
		}
	}
	if out == nil {
		return "loss=0%"
	}
	return strings.Join(out, ",")
}

// Stats counts datagrams of both directions. All values only grow.
type Stats struct {
	In         uint64 // arrived from one of the two ends
	Out        uint64 // sent on, repetitions included
	Lost       uint64
	Reordered  uint64
	Duplicated uint64
	Corrupted  uint64
	BadCRC     uint64 // arrived with a wrong trailer
	Strange    uint64 // from an unknown address, or before Connect
	Failed     uint64 // refused by the socket
	Dropped    uint64 // by the kernel, for lack of buffer
}

// Add adds the counters of another relay.
func (s *Stats) Add(o Stats) {
	s.In += o.In
	s.Out += o.Out
	s.Lost += o.Lost
	s.Reordered += o.Reordered
	s.Duplicated += o.Duplicated
	s.Corrupted += o.Corrupted
	s.BadCRC += o.BadCRC
	s.Strange += o.Strange
	s.Failed += o.Failed
	s.Dropped += o.Dropped
}

// Config describes a Relay.
type Config struct {
	// Local is the IP address of both sockets.
	Local  netip.Addr
	Ports  portrange.Range // of both sockets; zero means any
	Faults Faults
	// NoCRC says that packets carry no trailer.
	NoCRC bool
}

// A Relay stands between a client and a server. Each sees the relay in place of the other.
// It has two goroutines, one per direction.
type Relay struct {
	cfg  Config
	side [2]side // 0 faces the client, 1 faces the server
	wg   sync.WaitGroup
	end  atomic.Bool
}

// A side is one socket.
type side struct {
	mu     sync.Mutex // serializes receiving and sending on conn
	conn   *udp.Conn
	local  netip.AddrPort
	remote atomic.Pointer[netip.AddrPort]

	statMu sync.Mutex
	stats  Stats // of what arrived here
}

// Open opens a relay. It drops everything before Connect.
func Open(cfg Config) (*Relay, error) {
	r := &Relay{cfg: cfg}
	for i := range r.side {
		conn, err := udp.Open(udp.Config{Addr: netip.AddrPortFrom(cfg.Local, 0), Ports: cfg.Ports, EveryClass: true})
		if err != nil {
			if i == 1 {
				_ = r.side[0].conn.Close()
			}
			return nil, fmt.Errorf("relay: %w", err)
		}
		r.side[i].conn, r.side[i].local = conn, conn.LocalAddr()
	}
	r.wg.Add(2)
	go r.run(&r.side[0], &r.side[1], 1)
	go r.run(&r.side[1], &r.side[0], 2)
	return r, nil
}

// FacingClient is the address that the client must send to.
func (r *Relay) FacingClient() netip.AddrPort { return r.side[0].local }

// FacingServer is the address that the server sees as the client's and must send to.
func (r *Relay) FacingServer() netip.AddrPort { return r.side[1].local }

// unzoned removes the zone from a. What a host sends to itself arrives without one.
func unzoned(a netip.AddrPort) netip.AddrPort {
	if a.Addr().Is4() {
		return a
	}
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

// Connect sets the addresses of the two ends.
func (r *Relay) Connect(client, server netip.AddrPort) {
	r.side[0].remote.Store(&client)
	r.side[1].remote.Store(&server)
}

// Stats returns the counters.
func (r *Relay) Stats() Stats {
	var sum Stats
	for i := range r.side {
		s := &r.side[i]
		s.statMu.Lock()
		sum.Add(s.stats)
		s.statMu.Unlock()
		s.mu.Lock()
		sum.Dropped += s.conn.Stats().KernelDrops
		s.mu.Unlock()
	}
	return sum
}

// Close ends the relay and waits for its goroutines.
func (r *Relay) Close() {
	r.end.Store(true)
	for i := range r.side {
		_ = r.side[i].conn.Close()
	}
	r.wg.Wait()
}

// A direction is the state of one direction's goroutine.
type direction struct {
	r        *Relay
	in, out  *side
	bad      badnet.Line
	held     badnet.Held[[]byte]
	start    time.Time
	train    dgram.Datagram
	short    bool // the last datagram of train is shorter, so none can follow
	stats    Stats
	from, to netip.AddrPort
	pre      [2]prefix // of the trailer: for packets as they arrive, and as they leave
}

// A prefix caches the CRC over the addresses and a UDP header with one length.
type prefix struct {
	n   int
	crc uint32
}

func (p *prefix) of(src, dst netip.AddrPort, n int) uint32 {
	if p.n != n {
		p.n, p.crc = n, wire.CRCPrefix(src.Addr(), dst.Addr(), src.Port(), dst.Port(), uint16(8+n))
	}
	return p.crc
}

// run relays what arrives at in.
func (r *Relay) run(in, out *side, stream uint64) {
	defer r.wg.Done()
	d := &direction{r: r, in: in, out: out, start: time.Now()}
	d.bad = badnet.Line{Faults: r.cfg.Faults.model(), Rand: badnet.One(rand.New(rand.NewPCG(r.cfg.Faults.Seed, stream)))}
	d.train.Data = make([]byte, 0, dgram.SlabLen)
	rx := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	for !r.end.Load() {
		in.mu.Lock()
		ok, err := in.conn.Recv(rx)
		in.mu.Unlock()
		if err != nil {
			return
		}
		if ok {
			d.receive(rx)
		}
		d.release()
		d.flush()
		d.publish()
		if !ok {
			var deadline time.Time
			if until, ok := d.held.Until(); ok {
				deadline = d.start.Add(until)
			}
			if in.conn.Wait(deadline) != nil {
				return
			}
		}
	}
}

func (d *direction) publish() {
	d.in.statMu.Lock()
	d.in.stats.Add(d.stats)
	d.in.statMu.Unlock()
	d.stats = Stats{}
}

// receive relays a train.
func (d *direction) receive(rx *dgram.Datagram) {
	n := uint64(rx.Segments())
	from, to := d.in.remote.Load(), d.out.remote.Load()
	if from == nil || to == nil || unzoned(rx.Remote) != unzoned(*from) {
		d.stats.Strange += n
		return
	}
	d.stats.In += n
	if d.from != *from || d.to != *to {
		d.from, d.to, d.pre = *from, *to, [2]prefix{}
	}
	for b, rest := rx.Next(rx.Data); len(b) > 0; b, rest = rx.Next(rest) {
		d.packet(b)
	}
}

// packet decides what happens to a datagram.
func (d *direction) packet(b []byte) {
	if !d.r.cfg.NoCRC {
		if len(b) > wire.CRCLen && wire.VerifyCRC(b, d.pre[0].of(d.from, d.in.local, len(b))) {
			wire.PutCRC(b, d.pre[1].of(d.out.local, d.to, len(b)))
		} else {
			d.stats.BadCRC++
		}
	}
	due := d.held.Passed() // a lost datagram counts as one that passed
	f := d.bad.Fate(0, badnet.Datagram{Bytes: len(b)})
	if len(f.Flips) > 0 {
		d.stats.Corrupted++
		badnet.Flip(b, f.Flips)
	}
	d.stats.Duplicated += uint64(f.Copies)
	for range f.Copies {
		d.hold(b, d.bad.By())
	}
	switch {
	case f.Lost != badnet.Passed:
		d.stats.Lost++
	case f.By > 0 && d.hold(b, f.By):
		d.stats.Reordered++
	default:
		d.send(b)
	}
	for _, h := range due {
		d.send(h)
	}
}

// hold keeps a copy of b until by others have passed or holdTime is over. It returns false
// if there is no room.
func (d *direction) hold(b []byte, by int) bool {
	if d.held.Len() == maxHeld {
		return false
	}
	d.held.Hold(bytes.Clone(b), by, time.Since(d.start)+holdTime)
	return true
}

// release sends what was held back for holdTime.
func (d *direction) release() {
	if d.held.Len() == 0 {
		return
	}
	now := time.Since(d.start)
	for until, ok := d.held.Until(); ok && until <= now; until, ok = d.held.Until() {
		b, _ := d.held.Oldest()
		d.send(b)
	}
}

// send appends b to the outgoing train, which it flushes first if b does not fit.
func (d *direction) send(b []byte) {
	t := &d.train
	if len(t.Data) > 0 && (d.short || len(b) > t.Seg || len(t.Data)+len(b) > dgram.MaxTrain || t.Segments() == dgram.MaxSegments) {
		d.flush()
	}
	if len(t.Data) == 0 {
		t.Seg = len(b)
	}
	t.Data = append(t.Data, b...)
	d.short = len(b) < t.Seg
}

// flush sends the train.
func (d *direction) flush() {
	t := &d.train
	if len(t.Data) == 0 {
		return
	}
	n := uint64(t.Segments())
	t.Remote = d.to
	for {
		d.out.mu.Lock()
		err := d.out.conn.Send(t)
		d.out.mu.Unlock()
		if errors.Is(err, dgram.ErrNoRoom) && d.out.conn.WaitWritable(0, time.Now().Add(writeWait)) == nil && !d.r.end.Load() {
			continue
		}
		if err != nil {
			d.stats.Failed += n
		} else {
			d.stats.Out += n
		}
		break
	}
	t.Data, t.Seg, d.short = t.Data[:0], 0, false
}
