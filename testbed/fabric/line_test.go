package fabric

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

const (
	us = time.Microsecond
	// byteUS is the rate of one byte per microsecond.
	byteUS = Rate(8e6)
)

// sized returns a packet of n bytes.
func sized(psn, n int, k pkt) []byte {
	k.psn = uint32(psn)
	k.payload = 0
	k.payload = n - len(k.bytes())
	return k.bytes()
}

func TestRateOverTime(t *testing.T) {
	// 3 packets of 100 bytes at 7 Gbit/s take 342.857… ns; fractions of a nanosecond are not
	// lost.
	r := newRig(t, toB(Line{Rate: 7e9}))
	for i := range 7000 {
		r.send(sized(i, 100, pkt{}))
	}
	r.run(time.Second)
	if got := r.out[len(r.out)-1].at; got != 800*us {
		t.Errorf("7000 packets took %v, want 800µs", got)
	}
}

func TestTailDrop(t *testing.T) {
	// One packet is on the wire, three wait, the others are lost.
	r := newRig(t, toB(Line{Rate: byteUS, Queue: 399}))
	for i := range 6 {
		r.send(sized(i, 100, pkt{}))
	}
	r.send(sized(6, 99, pkt{})) // fills the queue
	st := r.s.Stats(r.now)
	if b := st.Lines["b.to"]; b.Waiting != 399 || b.MaxWait != 399 || b.Whys["lost_queue"] != 2 {
		t.Errorf("%+v", b)
	}
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 1, 2, 3, 6}) {
		t.Errorf("%v left", got)
	}
}

func TestDefaultQueue(t *testing.T) {
	r := newRig(t, toB(Line{Rate: 1}))
	for i := range 2000 {
		r.send(sized(i, 1000, pkt{}))
	}
	if got := r.s.Stats(r.now).Lines["b.to"].Waiting; got != 1048000 {
		t.Errorf("%d bytes wait, want 1048000 of 1 MiB", got)
	}
}

func TestPriority(t *testing.T) {
	high := pkt{dscp: DefaultClasses.Control}
	r := newRig(t, toB(Line{Rate: byteUS, Queue: 300, QueueHigh: 200}))
	for i := range 4 {
		r.send(sized(i, 100, pkt{}))
	}
	for i := range 3 {
		r.send(sized(10+i, 100, high))
	}
	r.now += 250 * us // 0, 10, half of 11
	r.s.Advance(r.now)
	r.send(sized(13, 100, high))
	r.send(sized(4, 100, pkt{})) // the queue is full
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 10, 11, 13, 1, 2, 3}) {
		t.Errorf("left in the order %v", got)
	}
	if w := r.whys(); w[LostQueueHigh] != 1 || w[LostQueue] != 1 {
		t.Errorf("lost %v", w)
	}
}

// Where small packets go first they overtake larger ones of their class, and stay in order among themselves.
func TestSmallFirst(t *testing.T) {
	r := newRig(t, toB(Line{Rate: byteUS, Small: 150}))
	for i, n := range []int{200, 151, 150, 200, 100} {
		r.send(sized(i, n, pkt{}))
	}
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 2, 4, 1, 3}) {
		t.Errorf("left in the order %v", got)
	}
}

// Control and trimmed packets go first.
func TestClasses(t *testing.T) {
	own := Classes{Trimmable: 1, TrimmableRTX: 2, Trimmed: 3, TrimmedLastHop: 4, Control: 5}
	for _, c := range []Classes{DefaultClasses, own} {
		for dscp := range uint8(64) {
			r := newRig(t, toB(Line{Rate: byteUS}), func(cfg *Config) {
				if c == own {
					cfg.Classes = own
				}
			})
			for i := range 2 {
				r.send(sized(i, 100, pkt{}))
			}
			r.send(sized(2, 100, pkt{dscp: dscp}))
			r.run(time.Second)
			first := r.out[1].psn() == 2
			if want := dscp == c.Trimmed || dscp == c.TrimmedLastHop || dscp == c.Control; first != want {
				t.Errorf("DSCP %d goes first: %v, want %v", dscp, first, want)
			}
		}
	}
}

// twin is a simple model of a line's queue. It returns when each packet leaves, -1 if it is
// dropped.
func twin(arrive []time.Duration, size []int64, high []bool, queue [2]int64, perByte time.Duration) []time.Duration {
	leave := make([]time.Duration, len(arrive))
	var wait [2][]int
	busy := time.Duration(0) // until then the wire is busy
	serve := func(now time.Duration) {
		for busy <= now {
			c := 1
			if len(wait[1]) == 0 {
				c = 0
			}
			if len(wait[c]) == 0 {
				return
			}
			i := wait[c][0]
			wait[c] = wait[c][1:]
			leave[i] = max(busy, arrive[i]) + time.Duration(size[i])*perByte
			busy = leave[i]
		}
	}
	for i, now := range arrive {
		serve(now)
		c := 0
		if high[i] {
			c = 1
		}
		var bytes int64
		for _, j := range wait[c] {
			bytes += size[j]
		}
		if busy > now && bytes+size[i] > queue[c] {
			leave[i] = -1
			continue
		}
		wait[c] = append(wait[c], i)
		serve(now)
	}
	serve(1 << 62)
	return leave
}

func TestQueueTwin(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		queue := [2]int64{rng.Int64N(5000) + 1, rng.Int64N(5000) + 1}
		r := newRig(t, toB(Line{Rate: byteUS, Queue: Bytes(queue[0]), QueueHigh: Bytes(queue[1])}))
		const n = 300
		var arrive []time.Duration
		var size []int64
		var high []bool
		for i := range n {
			if i > 0 && rng.IntN(3) > 0 {
				r.now += time.Duration(rng.IntN(1000)) * us
			}
			k := pkt{}
			if rng.IntN(3) == 0 {
				k.dscp = DefaultClasses.Control
			}
			ip := sized(i, 100+rng.IntN(1000), k)
			arrive, size, high = append(arrive, r.now), append(size, int64(len(ip))), append(high, k.dscp != 0)
			r.send(ip)
			r.collect()
		}
		r.run(time.Hour)
		got := slices.Repeat([]time.Duration{-1}, n)
		for _, o := range r.out {
			got[o.psn()] = o.at
		}
		if want := twin(arrive, size, high, queue, us); !slices.Equal(got, want) {
			t.Fatalf("seed %d, queues %v\nleft at %v\nwant    %v", seed, queue, got, want)
		}
	}
}

func TestJitter(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		r := newRig(t, toB(Line{Delay: Duration(ms), Jitter: Duration(10 * ms), InOrder: inOrder}))
		const n = 10000
		for i := range n {
			r.send(sized(i, 100, pkt{}))
			r.now += us
			r.collect()
		}
		r.run(time.Second)
		var buckets [10]int
		for _, o := range r.out {
			took := o.at - time.Duration(o.psn())*us
			if took < ms || !inOrder && took >= 11*ms {
				t.Fatalf("took %v", took)
			}
			if !inOrder {
				buckets[(took-ms)/ms]++
			}
		}
		if !inOrder {
			within(t, "jitter", buckets[:], n/10)
		}
		if got := slices.IsSorted(r.psns()); got != inOrder {
			t.Errorf("in_order %v: packets left in order: %v", inOrder, got)
		}
	}
}

// ecnRun puts a packet of 200 bytes on the wire and makes n others wait, runs times over.
// It returns how many left with CE, by the number of packets that waited behind them. Those
// that never waited come last.
// waited come last.
func ecnRun(t *testing.T, e ECN, n, runs int, k pkt) []int {
	t.Helper()
	marked := make([]int, n+1)
	r := newRig(t, toB(Line{Rate: byteUS, ECN: &e}))
	for range runs {
		r.out, r.log = r.out[:0], r.log[:0]
		for i := range n + 1 {
			r.send(sized(i, 200, k))
		}
		r.run(time.Second)
		for i, o := range r.out {
			if err := deliverable(o.ip); err != nil {
				t.Fatal(err)
			}
			got := tos(o.ip, k.v6)
			if got&3 == 3 {
				marked[n-i]++
			} else if got&3 != k.ecn {
				t.Fatalf("ECN %d became %d", k.ecn, got&3)
			}
			if got>>2 != k.dscp {
				t.Fatal("marking has changed the DSCP")
			}
		}
	}
	return marked
}

func TestECNThreshold(t *testing.T) {
	// More than 1000 bytes wait behind a packet if more than 5 packets do.
	want := []int{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 0}
	for name, k := range map[string]pkt{"ECT(0)": {ecn: 2}, "ECT(1)": {ecn: 1}, "v6": {ecn: 2, v6: true}, "other DSCP": {ecn: 2, dscp: 10}} {
		if got := ecnRun(t, ECN{Min: 1000, Max: 1000}, 10, 1, k); !slices.Equal(got, want) {
			t.Errorf("%s: marked by packets waiting: %v, want %v", name, got, want)
		}
	}
	for name, k := range map[string]pkt{"not ECT": {}, "high class": {ecn: 2, dscp: DefaultClasses.Control}} {
		if got := ecnRun(t, ECN{}, 10, 1, k); slices.Max(got) > 0 {
			t.Errorf("%s was marked", name)
		}
	}
	r := newRig(t, toB(Line{Rate: byteUS, ECN: &ECN{}}))
	for i := range 3 {
		r.send(sized(i, 100, pkt{ecn: 3}))
	}
	r.run(time.Second)
	if r.whys()[Marked] != 0 {
		t.Error("a packet that had CE was marked again")
	}
}

func TestECNRamp(t *testing.T) {
	const runs = 4000
	got := ecnRun(t, ECN{Min: 400, Max: 2000, Prob: 0.4}, 13, runs, pkt{ecn: 2})
	for w, n := range got {
		p := 0.4 * float64(w-2) / 8
		switch {
		case w <= 2 || w == 13:
			p = 0
		case w > 10:
			p = 1
		}
		if p == 0 || p == 1 {
			if float64(n) != p*runs {
				t.Errorf("%d bytes wait: %d of %d marked, want share %v", w*200, n, runs, p)
			}
			continue
		}
		within(t, "ramp", []int{n}, p*runs)
	}
}

func TestTrimByQueue(t *testing.T) {
	trimmable := pkt{dscp: DefaultClasses.Trimmable, ecn: 2}
	rtx := pkt{dscp: DefaultClasses.TrimmableRTX}
	r := newRig(t, toB(Line{Rate: byteUS, Queue: 5000, Trim: &Trim{After: 2000}}))
	for i := range 4 { // one on the wire, 3000 wait
		r.send(sized(i, 1000, pkt{}))
	}
	r.send(sized(4, 1000, trimmable))
	r.send(sized(5, 1000, rtx)) // 3000 is not more than 1.5 × 2000
	r.send(sized(6, 1000, rtx)) // but 4000 is
	r.send(sized(7, 1000, pkt{}))
	r.send(sized(8, 1000, pkt{}))                                    // full
	r.send(sized(9, 1000, pkt{dscp: DefaultClasses.TrimmedLastHop})) // high
	r.run(time.Second)
	if got, want := r.psns(), []uint32{0, 4, 6, 9, 1, 2, 3, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("left in the order %v, want %v", got, want)
	}
	if w := r.whys(); w[Trimmed] != 2 || w[LostQueue] != 1 {
		t.Errorf("%v", w)
	}
	if o := r.out[1].ip; len(o) != 84 || tos(o, false) != DefaultClasses.TrimmedLastHop<<2|2 {
		t.Errorf("trimmed to %d bytes, TOS %#x", len(o), tos(o, false))
	}
}

// A full queue that trims also trims the trimmable packets that find it full. It drops
// packets that are not trimmable or have no payload.
func TestTrimInsteadOfDrop(t *testing.T) {
	r := newRig(t, toB(Line{Rate: byteUS, Queue: 1000, QueueHigh: 84, Trim: &Trim{After: 5000}}))
	trimmable := pkt{dscp: DefaultClasses.Trimmable}
	for i := range 4 {
		r.send(sized(i, 1000, trimmable))
	}
	r.send(sized(4, 88, trimmable)) // only headers
	r.run(time.Second)
	if got, want := r.psns(), []uint32{0, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("left in the order %v, want %v", got, want)
	}
	if w := r.whys(); w[Trimmed] != 2 || w[LostQueueHigh] != 1 || w[LostQueue] != 1 {
		t.Errorf("%v", w)
	}
}

// trimmed returns one packet that a rule on a line trimmed.
func trimmed(t *testing.T, ip []byte, last bool, cfg *Trim) []byte {
	t.Helper()
	rule := []Rule{{Trim: 1}}
	r := newRig(t, func(c *Config) {
		if last {
			c.Ports[1].To = Line{Rules: rule, Trim: cfg}
		} else {
			c.Ports[0].From = Line{Rules: rule, Trim: cfg}
		}
	})
	r.send(ip)
	r.run(0)
	if len(r.out) != 1 {
		t.Fatalf("%d packets left", len(r.out))
	}
	return r.out[0].ip
}

func TestTrimBytes(t *testing.T) {
	in := pkt{psn: 0xdeadbeef, payload: 1000, dscp: DefaultClasses.Trimmable, ecn: 3}.bytes()
	out := trimmed(t, in, true, nil)
	want := slices.Clone(in[:ipv4Len+udpLen+wire.ReqLen+wire.ReqStdLen])
	want[1] = DefaultClasses.TrimmedLastHop<<2 | 3
	binary.BigEndian.PutUint16(want[2:], 84)
	copy(want[10:12], []byte{0, 0})
	binary.BigEndian.PutUint16(want[10:], slowSum(want[:ipv4Len]))
	binary.BigEndian.PutUint16(want[ipv4Len+4:], 64)
	binary.BigEndian.PutUint16(want[ipv4Len+6:], udpSum(hostA[0], hostB[0], want[ipv4Len:]))
	if !bytes.Equal(out, want) {
		t.Errorf("got  %x\nwant %x", out, want)
	}
}

func TestTrimLengths(t *testing.T) {
	small := func(n int) []byte {
		return append(wire.ReqSmall{Opcode: wire.OpWrite, Flags: wire.SESSOM | wire.SESEOM}.Append(
			(&wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqSmall}).Append(nil)), make([]byte, n)...)
	}
	cc := append((&wire.ReqStd{Opcode: wire.OpSend}).Append((&wire.Req{Type: wire.TypeRODCCReq, Next: wire.NextReqStd}).Append(nil)), make([]byte, 500)...)
	sealed := append(wire.TSS{SP: true}.Append(nil), make([]byte, 500)...)
	no, yes := false, true
	for _, c := range []struct {
		name string
		k    pkt
		last bool
		trim *Trim
		len  int // 0 means not trimmed
		dscp uint8
	}{
		{"standard", pkt{payload: 500}, true, nil, 84, 28},
		{"before the last hop", pkt{payload: 500}, false, nil, 84, 26},
		{"set to last hop", pkt{payload: 500}, false, &Trim{LastHop: &yes}, 84, 28},
		{"set to no last hop", pkt{payload: 500}, true, &Trim{LastHop: &no}, 84, 26},
		{"v6", pkt{payload: 500, v6: true}, true, nil, 104, 28},
		{"no checksum", pkt{payload: 500, noSum: true}, true, nil, 84, 28},
		{"CC", pkt{raw: cc}, true, nil, 88, 28},
		{"small, 64 at least", pkt{raw: small(100)}, true, nil, 64, 28},
		{"sealed", pkt{raw: sealed}, true, nil, 104, 28},
		{"keep", pkt{payload: 500}, true, &Trim{Keep: 300}, 300, 28},
		{"keep too little", pkt{payload: 500, v6: true}, true, &Trim{Keep: 28}, 48, 28},
		{"no UET", pkt{raw: bytes.Repeat([]byte{0xff}, 500)}, true, nil, 64, 28},
		{"nothing to cut", pkt{payload: 0}, true, nil, 0, 10},
		{"one byte to cut", pkt{payload: 1}, true, nil, 84, 28},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.k.dscp = DefaultClasses.Trimmable
			in := c.k.bytes()
			out := trimmed(t, in, c.last, c.trim)
			if c.len == 0 {
				if !bytes.Equal(in, out) {
					t.Error("changed")
				}
				return
			}
			if len(out) != c.len || tos(out, c.k.v6) != c.dscp<<2 {
				t.Errorf("%d bytes and DSCP %d, want %d and %d", len(out), tos(out, c.k.v6)>>2, c.len, c.dscp)
			}
			if err := deliverable(out); err != nil {
				t.Error(err)
			}
		})
	}
	if in := (pkt{payload: 500, dscp: 1}).bytes(); !bytes.Equal(trimmed(t, in, true, nil), in) {
		t.Error("a packet of no trimmable class was trimmed")
	}
}

func TestMTUAndDown(t *testing.T) {
	r := newRig(t, toB(Line{MTU: 200}))
	r.send(sized(0, 200, pkt{}))
	r.send(sized(1, 201, pkt{}))
	r.run(0)
	if got := r.psns(); !slices.Equal(got, []uint32{0}) || r.whys()[LostMTU] != 1 {
		t.Errorf("MTU: %v left, %v", got, r.whys())
	}
	r = newRig(t, toB(Line{Down: true}))
	r.send(sized(0, 100, pkt{}))
	r.run(0)
	if len(r.out) != 0 || r.whys()[LostDown] != 1 {
		t.Errorf("down: %v left, %v", r.out, r.whys())
	}
}

// A late caller changes neither what leaves nor when it should have left.
func TestLateCaller(t *testing.T) {
	play := func(step time.Duration) []left {
		r := newRig(t, spines(2), toB(Line{Rate: byteUS, Delay: Duration(ms), Jitter: Duration(ms)}))
		for i := range 20 {
			r.send(sized(i, 100, pkt{sport: uint16(1000 + i)}))
		}
		for range int(20 * ms / step) {
			r.now += step
			r.collect()
		}
		return r.out
	}
	a, b := play(ms/100), play(10*ms)
	if len(a) != 20 || len(b) != 20 {
		t.Fatalf("%d and %d packets", len(a), len(b))
	}
	for i := range a {
		if a[i].at != b[i].at || !bytes.Equal(a[i].ip, b[i].ip) {
			t.Fatalf("packet %d: %v and %v", i, a[i].at, b[i].at)
		}
	}
}

// A switch that nobody drains, or that delays without end, fills up to its bound and counts
// the losses. What it holds comes out again.
func TestFull(t *testing.T) {
	s, err := New(twoPorts(toB(Line{Delay: Duration(time.Second)})))
	if err != nil {
		t.Fatal(err)
	}
	ip := make([]byte, 0, maxIP)
	ip = append(ip, sized(0, 60000, pkt{})...)
	n := 0
	for ; s.Stats(0).Whys["lost_full"] == 0; n++ {
		if n > 10000 {
			t.Fatal("no bound")
		}
		s.Receive(0, 0, ip)
	}
	if want := maxInside/maxIP + 1; n != want {
		t.Errorf("full after %d packets, want %d", n, want)
	}
	out := 0
	for {
		if _, _, _, ok := s.Transmit(time.Second); !ok {
			break
		}
		out++
	}
	if out != n-1 {
		t.Errorf("%d of %d left", out, n-1)
	}
	if err := conserved(s.Stats(time.Second)); err != nil {
		t.Error(err)
	}
	s.Receive(time.Second, 0, ip)
	if s.Stats(3*time.Second).Sent != uint64(n) {
		t.Error("it stayed full")
	}
}

// A packet overtakes others if the delay became shorter before it set out, and does not if
// the delay became longer.
func TestDelayChange(t *testing.T) {
	r := newRig(t, toB(Line{Delay: Duration(10 * ms)}))
	for i, d := range []Duration{10, 1, 9, 20} {
		r.apply(Event{On: []string{"b.to"}, Set: &Line{Delay: d * Duration(ms)}})
		r.send(sized(i, 100, pkt{}))
		r.run(ms)
	}
	r.run(time.Second)
	var at []time.Duration
	for _, o := range r.out {
		at = append(at, o.at/ms)
	}
	if got := r.psns(); !slices.Equal(got, []uint32{1, 0, 2, 3}) || !slices.Equal(at, []time.Duration{2, 10, 11, 23}) {
		t.Errorf("%v left at %v ms", got, at)
	}
}
