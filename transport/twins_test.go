package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/invariant"
	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// longReceive is Receive without its fast paths.
func (f *FEP) longReceive(now time.Duration, d *dgram.Datagram) {
	f.now = now
	if f.ended {
		return
	}
	f.rx.in.Now, f.rx.in.CE = now, d.ECN() == dgram.CE
	f.stats.RxTrains++
	f.stats.RxBytes += uint64(len(d.Data))
	if !f.source(d) {
		f.drop(DropSource)
		return
	}
	if len(d.Data) == 0 {
		f.stats.RxPackets++
		f.drop(DropShort)
		return
	}
	for rest := d.Data; len(rest) > 0; {
		var b []byte
		b, rest = d.Next(rest)
		f.stats.RxPackets++
		f.rx.meta.Size = len(b) + f.form.overhead
		switch {
		case f.sec != nil:
			if b = f.openPacket(d, b); b == nil {
				continue
			}
		case len(b) < wire.ReqLen+f.form.trailer:
			if !f.trimmed(d, b) {
				f.drop(DropShort)
			}
			continue
		case f.form.trailer != 0:
			n, to := len(b)-wire.CRCLen, f.local[d.Path]
			if !wire.VerifyCRC(b, wire.CRCPrefix(d.Remote.Addr(), to.Addr(), d.Remote.Port(), to.Port(), uint16(8+len(b)))) {
				f.damaged(d, b)
				continue
			}
			b = b[:n]
		}
		f.dispatch(d, b, nil)
	}
}

// longTransmit is Transmit without its fast paths.
func (f *FEP) longTransmit(now time.Duration, d *dgram.Datagram) bool {
	f.now = now
	if len(f.todo.moveLater) > 0 {
		f.move(now)
	}
	f.begin(d)
	if f.sec != nil && !f.canSeal(now) {
		return false
	}
	if f.form.trims {
		f.fillControl(now)
	}
	for len(d.Data) == 0 {
		if f.todo.ready.len() == 0 {
			if len(f.todo.moveLater) == 0 {
				break
			}
			f.move(now)
			if f.todo.ready.len() == 0 {
				break
			}
		}
		id := f.todo.ready.front()
		p := &f.peers[id]
		more := f.fillData(now, id, p)
		if p.acks && f.out.size > 0 {
			if f.out.apart && f.out.n == 1 && f.todo.queued == 0 && !more {
				f.todo.flush = true
			} else {
				f.ride(now, p)
			}
		}
		if !more {
			f.todo.ready.pop()
			p.ready = false
		} else if f.todo.ready.len() > 1 {
			f.todo.ready.push(f.todo.ready.pop())
		}
	}
	if len(d.Data) == 0 {
		f.fillControl(now)
		if len(d.Data) == 0 {
			return false
		}
	}
	f.follow()
	f.stats.TxTrains++
	f.stats.TxBytes += uint64(len(d.Data))
	return true
}

// longPost is Post that looks up the lane of each send.
func (f *FEP) longPost(now time.Duration, op *Op) error {
	if op.Kind.Recv() || f.closed || f.ended || op.Peer == NoPeer {
		return f.Post(now, op)
	}
	f.now = now
	if f.sec != nil && !f.sec.Ready() {
		return ErrNoKey
	}
	f.unfence(now)
	p, n := &f.peers[op.Peer], op.Bytes()
	ln := f.lane(now, op.Peer, p, n, op.Ordered)
	if ln == nil {
		return ErrFull
	}
	h, err := f.ses.Send(now, op, op.Bytes())
	if err != nil {
		return mapErr(err)
	}
	if (op.Fence || f.ses.Fenced(op.Endpoint, uint32(op.Peer))) && f.ses.Fence(h, op.Fence) {
		return nil
	}
	ln.q.push(h)
	ln.bytes += n
	f.todo.queued++
	f.wakeData(ln, p)
	return nil
}

// A twinPair is a FEP, and another one that lives the same life without the fast paths.
type twinPair struct {
	short, long *FEP
	x, y        dgram.Datagram
	peers       []PeerID
}

// The fast paths of a FEP change nothing that can be seen. Two pairs of twins live the same
// random life over a network that loses, duplicates, reorders, damages and marks, one FEP
// of each pair without the fast paths. Both send the same bytes, report the same events and
// have the same timeouts.
func TestShortWaysOfAFEP(t *testing.T) {
	kinds := []string{"clear", "without CRC", "sealed", "paths", "trimming", "known", "narrow", "small", "notes", "IPv6"}
	rounds := 5
	if invariant.On {
		rounds = 1 // they take minutes under the race detector, and have one goroutine
	}
	for seed := range uint64(rounds * len(kinds)) {
		kind := kinds[seed%uint64(len(kinds))]
		t.Run(fmt.Sprintf("%s %d", kind, seed), func(t *testing.T) { liveAsTwins(t, seed, kind) })
		if t.Failed() {
			return
		}
	}
}

func liveAsTwins(t *testing.T, seed uint64, kind string) {
	rng := rand.New(rand.NewPCG(seed, 9))
	const hosts = 3
	now := time.Second
	addr := func(i int) netip.AddrPort {
		if kind == "IPv6" {
			return netip.MustParseAddrPort(fmt.Sprintf("[fd00::%d]:4793", i+1))
		}
		return netip.MustParseAddrPort(fmt.Sprintf("198.18.0.%d:4793", i+1))
	}
	paths := []uint16{4793}
	if kind == "paths" {
		paths = []uint16{4793, 4794, 4795}
	}
	var pairs [hosts]*twinPair
	sec := [2]func(*Config){secured(t, nil), secured(t, nil)}
	for i := range pairs {
		x := &twinPair{}
		for k, f := range []**FEP{&x.short, &x.long} {
			cfg := Config{
				Local: addr(i), Paths: paths, Lanes: 1 + int(seed%2), MPRange: 256, PayloadMTU: 1024 << (i % 2), Messages: Messages{UnexpectedMsgs: 40},
				Packets: Packets{PeerTimeout: 2 * time.Second, SuspectTimeout: 500 * time.Millisecond, IdleClose: 300 * time.Millisecond, RTOMax: 50 * time.Millisecond},
			}
			wrap := wire.PSN(0) - wire.PSN(seed%40)
			cfg.StartPSN = func() wire.PSN { wrap += 1 << 20; return wrap - 1<<20 }
			switch kind {
			case "without CRC":
				cfg.NoCRC = true
			case "sealed":
				cfg.StartPSN = nil
				sec[k](&cfg)
			case "trimming":
				cfg.Trimming = true
			case "known":
				cfg.KnownPeersOnly = true
			case "narrow":
				cfg.Window = 2400
			case "small":
				cfg.MaxSends, cfg.MaxRecvs, cfg.MaxPDCs = 5, 5, 3
			case "notes":
				cfg.Notes = k == 0
			}
			var err error
			if *f, err = New(cfg, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
				t.Fatal(err)
			}
		}
		for k := range hosts {
			id, _ := x.short.Peer(addr(k), true)
			if other, _ := x.long.Peer(addr(k), true); other != id {
				t.Fatal("peers")
			}
			x.peers = append(x.peers, id)
		}
		x.x.Data, x.y.Data = make([]byte, 0, dgram.SlabLen), make([]byte, 0, dgram.SlabLen)
		pairs[i] = x
	}
	type packet struct {
		to int
		d  dgram.Datagram
	}
	var flying []packet
	step, op := 0, 0
	deliver := func(to int, d *dgram.Datagram) {
		a, b := *d, *d
		a.Data, b.Data = bytes.Clone(d.Data), bytes.Clone(d.Data)
		pairs[to].short.Receive(now, &a)
		pairs[to].long.longReceive(now, &b)
	}
	check := func(i int) {
		x := pairs[i]
		f, g := x.short, x.long
		for e := f.NextEvent(); e != nil; e = f.NextEvent() {
			o := g.NextEvent()
			if o == nil || !reflect.DeepEqual(*e, *o) {
				t.Fatalf("step %d, op %d, host %d: event %+v, want %+v", step, op, i, e, o)
			}
		}
		if o := g.NextEvent(); o != nil {
			t.Fatalf("step %d, op %d, host %d: no event, want %+v", step, op, i, o)
		}
		if a, b := f.Dump(), g.Dump(); a != b {
			t.Fatalf("step %d, op %d, host %d:\n%s\nwant %s", step, op, i, a, b)
		}
		if a, b := f.Stats(), g.Stats(); a != b {
			t.Fatalf("step %d, op %d, host %d:\n%+v\nwant\n%+v", step, op, i, a, b)
		}
		if f.Owes() != g.Owes() || f.Queued() != g.Queued() || f.todo.ackAt != g.todo.ackAt || f.Idle() != g.Idle() {
			t.Fatalf("step %d, op %d, host %d: owes %v %v, queued %d %d, ACKs at %v %v", step, op, i, f.Owes(), g.Owes(), f.Queued(), g.Queued(), f.todo.ackAt, g.todo.ackAt)
		}
	}
	transmit := func(i, trains int) {
		x := pairs[i]
		for ; trains > 0; trains-- {
			sent := x.short.Transmit(now, &x.x)
			if x.long.longTransmit(now, &x.y) != sent {
				t.Fatalf("step %d, host %d: sends %v", step, i, sent)
			}
			if !sent {
				return
			}
			d, e := &x.x, &x.y
			if !bytes.Equal(d.Data, e.Data) || d.Seg != e.Seg || d.Remote != e.Remote || d.Path != e.Path || d.TOS != e.TOS {
				t.Fatalf("step %d, host %d: sends %+v, want %+v", step, i, d, e)
			}
			to := int(d.Remote.Addr().As16()[15]) - 1
			out := dgram.Datagram{Seg: d.Seg, TOS: d.TOS, Remote: netip.AddrPortFrom(addr(i).Addr(), paths[d.Path]), Path: int(d.Remote.Port()) - 4793}
			whole := rng.IntN(2) == 0
			for rest := d.Data; len(rest) > 0; {
				var b []byte
				if b, rest = d.Next(rest); whole {
					b, rest = d.Data, nil
				}
				o := out
				o.Data = bytes.Clone(b)
				flying = append(flying, packet{to, o})
			}
		}
	}
	pick := func() int { return rng.IntN(hosts) }
	loss := rng.IntN(4)
	for ; step < 800; step++ {
		now += time.Duration(rng.IntN(6)) * time.Microsecond
		i := pick()
		x := pairs[i]
		both := func(do func(f *FEP)) { do(x.short); do(x.long) }
		op = rng.IntN(32)
		switch op {
		case 0, 1, 2, 3, 4, 5:
			o := Op{Kind: OpTSend, Peer: x.peers[(i+1+rng.IntN(2))%hosts], RI: 15, Tag: uint64(rng.IntN(2)), Buf: pattern([]int{0, 8, 64, 64, 64, 64, 900, 900, 1024, 1025, 5000, 60_000}[rng.IntN(12)], byte(step)),
				Context: step, Ordered: rng.IntN(8) == 0, Fence: rng.IntN(20) == 0, Silent: rng.IntN(12) == 0, Level: Level(rng.IntN(4)), HasData: rng.IntN(4) == 0, Data: 5}
			if rng.IntN(3) == 0 {
				o.Kind = OpSend
			}
			p := o
			if a, b := x.short.Post(now, &o), x.long.longPost(now, &p); a != b {
				t.Fatalf("step %d: %v, want %v", step, a, b)
			}
		case 6, 7, 8, 9, 10:
			o := Op{Kind: OpTRecv, Tag: uint64(rng.IntN(2)), Buf: make([]byte, []int{64, 1000, 60_000}[rng.IntN(3)]), Context: step}
			switch rng.IntN(8) {
			case 0, 1, 2:
				o.Kind = OpRecv
			case 3:
				o.Ignore = 1
			case 4:
				o.Peer = x.peers[pick()]
			case 5:
				o.Multi, o.MinFree = true, 100
			}
			p := o
			p.Buf = make([]byte, len(o.Buf))
			if a, b := x.short.Post(now, &o), x.long.Post(now, &p); a != b {
				t.Fatalf("step %d: %v, want %v", step, a, b)
			}
		case 11, 12, 13, 14, 15:
			transmit(i, 1+rng.IntN(4))
		case 16, 17, 18, 19, 20, 21, 22, 23:
			for n := rng.IntN(16); n >= 0 && len(flying) > 0; n-- {
				k := 0
				if rng.IntN(12) == 0 {
					k = rng.IntN(len(flying))
				}
				p := flying[k]
				what := rng.IntN(60)
				if loss == 0 {
					what = 59
				}
				if what != 0 { // otherwise it is a duplicate
					flying = append(flying[:k], flying[k+1:]...)
				}
				d := p.d
				d.Data = bytes.Clone(d.Data)
				switch {
				case what <= loss && what > 0:
					continue
				case what == 4:
					d.Data[rng.IntN(len(d.Data))] ^= 1 << rng.IntN(8)
				case what == 5:
					d.TOS |= dgram.CE
				case what == 6:
					d.Data = d.Data[:rng.IntN(len(d.Data)+1)]
				case what == 7 && kind == "trimming":
					c := pairs[0].short.cfg.Classes
					d.Data, d.TOS = d.Data[:min(len(d.Data), 60)], c.Trimmed<<2|dgram.ECT0
				case what == 8:
					d.Remote = netip.AddrPortFrom(d.Remote.Addr(), d.Remote.Port()+uint16(rng.IntN(3))) // a NAT
				case what == 9:
					d.Remote = addr(pick())
				case what == 10 && kind != "sealed":
					forge(rng, &d, addr(p.to), pairs[p.to].short)
				}
				deliver(p.to, &d)
				check(p.to)
			}
		case 24, 25:
			both(func(f *FEP) { f.Flush(now) })
			transmit(i, 20)
		case 26, 27, 28:
			if rng.IntN(30) == 0 {
				now += time.Duration(rng.IntN(20)) * time.Millisecond
			}
			if at := x.short.NextTimeout(); at != 0 && rng.IntN(4) == 0 {
				now = max(now, at)
			}
			for i := range pairs {
				pairs[i].short.Advance(now)
				pairs[i].long.Advance(now)
				check(i)
			}
		case 29:
			ctx := rng.IntN(step + 1)
			if x.short.Cancel(now, 0, ctx) != x.long.Cancel(now, 0, ctx) {
				t.Fatalf("step %d: cancel", step)
			}
		case 30:
			apart := rng.IntN(2) == 0
			both(func(f *FEP) { f.Apart(apart) })
		case 31:
			switch rng.IntN(30) {
			case 0, 1:
				id := x.peers[pick()]
				both(func(f *FEP) { f.Quiesce(now, id) })
			case 2:
				at := addr(pick())
				both(func(f *FEP) { f.Unreachable(now, at) })
			case 3:
				if step > 600 {
					both(func(f *FEP) { f.Close(now) })
				}
			case 4:
				if step > 600 {
					both(func(f *FEP) { f.End(now) })
				}
			case 5:
				both(func(f *FEP) { f.pds.Each(func(p *pds.PDC) { p.RequestClose(now) }); f.heed() })
			}
		}
		check(i)
	}
}

// forge turns a packet into an ACK or a request that is close to what its target expects.
func forge(rng *rand.Rand, d *dgram.Datagram, to netip.AddrPort, f *FEP) {
	b := d.Data
	if d.Seg > 0 {
		b = b[:min(len(b), d.Seg)]
	}
	if len(b) < wire.ReqLen+f.form.trailer {
		return
	}
	b = b[:len(b)-f.form.trailer]
	switch rng.IntN(5) {
	case 0:
		b[7] += byte(rng.IntN(5)) - 2 // PSN, CACK
	case 1:
		b[3] += byte(rng.IntN(5)) - 2 // CLEAR_PSN, ACK_PSN
	case 2:
		b[1] ^= 1 << rng.IntN(7) // flags
	case 3:
		if len(b) > 40 {
			b[12+rng.IntN(28)] ^= 1 << rng.IntN(8)
		}
	case 4:
		b[8+rng.IntN(4)] ^= 1 << rng.IntN(8) // PDCIDs
	}
	if f.form.trailer != 0 {
		c := wire.CRC(wire.CRCPrefix(d.Remote.Addr(), to.Addr(), d.Remote.Port(), uint16(4793+d.Path), uint16(8+len(b)+wire.CRCLen)), b)
		b = binary.BigEndian.AppendUint32(b, c)
	}
	d.Data, d.Seg = b, 0
}
