package sim

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/internal/dgram"
)

// through sends count numbered datagrams, one every gap, and returns the pair at the end.
func through(t *testing.T, f Faults, count int, gap time.Duration) *toyPair {
	t.Helper()
	p := newToyPair(3, f, Faults{})
	for i := range count {
		p.At(Start+time.Duration(i)*gap, func() { p.send(i, 100) })
	}
	p.Run(p.Now() + time.Duration(count)*gap + 10*time.Second)
	if p.UnderWay() != 0 {
		t.Fatalf("%d datagrams still under way", p.UnderWay())
	}
	return p
}

func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*want {
		t.Errorf("%s is %.4g, want %.4g ± %.0f %%", name, got, want, 100*tolerance)
	}
}

func TestLinePerfect(t *testing.T) {
	p := through(t, Faults{}, 100, 0)
	for i, n := range p.b.numbers() {
		if n != i || p.b.got[i].at != Start {
			t.Fatalf("datagram %d is %d at %v", i, n, p.b.got[i].at)
		}
	}
	if len(p.b.got) != 100 {
		t.Errorf("%d arrived", len(p.b.got))
	}
}

func TestLineDelayAndJitter(t *testing.T) {
	for _, inOrder := range []bool{false, true} {
		p := through(t, Faults{Delay: 5 * ms, Jitter: 4 * ms, InOrder: inOrder}, 2000, ms)
		lo, hi := time.Hour, time.Duration(0)
		for i, n := range p.b.numbers() {
			d := p.b.got[i].at - Start - time.Duration(n)*ms
			lo, hi = min(lo, d), max(hi, d)
		}
		if lo < 5*ms || lo > 6*ms || hi < 8*ms || hi >= 9*ms {
			t.Errorf("delays between %v and %v", lo, hi)
		}
		if slices.IsSorted(p.b.numbers()) != inOrder {
			t.Errorf("InOrder %v: arrivals sorted: %v", inOrder, !inOrder)
		}
	}
}

func TestLineSpike(t *testing.T) {
	p := through(t, Faults{Spike: 0.1, SpikeDelay: time.Second}, 5000, 0)
	late := 0
	for _, a := range p.b.got {
		if a.at > Start {
			late++
		}
	}
	near(t, "late datagrams", float64(late), 500, 0.15)
}

func TestLineLoss(t *testing.T) {
	p := through(t, Faults{Loss: 0.3}, 10000, 0)
	near(t, "lost", float64(p.Lost(WhyLoss)), 3000, 0.05)
}

func TestLineBurstMax(t *testing.T) {
	p := through(t, Faults{Burst: Burst{Enter: 1, Leave: 0.001, Loss: 1, Max: 10 * ms}}, 100, ms)
	// 0 to 9 are lost, 10 ends the burst, 11 begins the next one.
	if got := p.b.numbers(); len(got) != 9 || got[0] != 10 || got[1] != 21 {
		t.Errorf("got %v", got)
	}
}

func TestLineExactDrop(t *testing.T) {
	p := through(t, Faults{Drop: []uint64{0, 2, 3}}, 6, 0)
	if got := p.b.numbers(); !slices.Equal(got, []int{1, 4, 5}) {
		t.Errorf("got %v", got)
	}
}

func TestLineBlackout(t *testing.T) {
	p := through(t, Faults{Blackouts: []Window{{Start + 2*ms, Start + 4*ms}}}, 6, ms)
	if got := p.b.numbers(); !slices.Equal(got, []int{0, 1, 4, 5}) {
		t.Errorf("got %v", got)
	}
}

func TestLineMTU(t *testing.T) {
	p := newToyPair(1, Faults{MTU: 128}, Faults{})
	p.send(0, 100)
	p.send(1, 101)
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{0}) {
		t.Errorf("got %v", got)
	}
}

func TestLineSwap(t *testing.T) {
	p := newToyPair(1, Faults{Reorder: 1}, Faults{})
	p.send(0, 4)
	p.ab.bad.Reorder = 0
	p.send(1, 4)
	p.send(2, 4)
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{1, 0, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestLineReorderLateByN(t *testing.T) {
	p := newToyPair(1, Faults{Reorder: 1, ReorderBy: 3}, Faults{})
	p.send(0, 4)
	p.ab.bad.Reorder = 0
	for i := range 4 {
		p.send(i+1, 4)
	}
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{1, 2, 3, 0, 4}) {
		t.Errorf("got %v", got)
	}
	// No datagram comes after it, so ReorderHold ends.
	p.b.got = nil
	p.ab.bad.Reorder = 1
	p.send(9, 4)
	p.Run(p.Now() + badnet.DefaultHold - 1)
	if len(p.b.got) != 0 {
		t.Error("held datagram came early")
	}
	p.Run(p.Now() + 1)
	if got := p.b.numbers(); !slices.Equal(got, []int{9}) {
		t.Errorf("after the hold %v", got)
	}
}

func TestLineReversal(t *testing.T) {
	p := newToyPair(1, Faults{Reverse: 1, ReverseLen: 4}, Faults{})
	for i := range 6 {
		p.send(i, 4)
	}
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{3, 2, 1, 0}) {
		t.Errorf("got %v", got)
	}
	p.Run(p.Now() + badnet.DefaultHold)
	if got := p.b.numbers(); !slices.Equal(got, []int{3, 2, 1, 0, 5, 4}) {
		t.Errorf("after the hold %v", got)
	}
}

func TestLineSetFaultsLetsGo(t *testing.T) {
	p := newToyPair(1, Faults{Reverse: 1, ReverseLen: 10}, Faults{})
	p.send(0, 4)
	p.send(1, 4)
	p.ab.set(Faults{Reverse: 0, Reorder: 1, ReorderBy: 10})
	p.send(2, 4) // the reversal in progress holds back everything
	p.ab.SetFaults(Faults{})
	p.Run(p.Now())
	if got := p.b.numbers(); !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("got %v", got)
	}
	p.Run(p.Now() + time.Second)
	if len(p.b.got) != 3 || p.UnderWay() != 0 {
		t.Errorf("%d arrived, %d under way", len(p.b.got), p.UnderWay())
	}
}

func TestLineDuplicate(t *testing.T) {
	p := through(t, Faults{Duplicate: 0.5, DuplicateMax: 10, DuplicateLate: time.Second}, 4000, 0)
	near(t, "arrivals", float64(len(p.b.got)), 4000*(1+0.5*5.5), 0.05)
	count := map[int]int{}
	latest := time.Duration(0)
	for i, n := range p.b.numbers() {
		count[n]++
		latest = max(latest, p.b.got[i].at-Start)
	}
	most := 0
	for _, c := range count {
		most = max(most, c)
	}
	if len(count) != 4000 || most != 11 || latest < 900*ms || latest >= time.Second {
		t.Errorf("%d different, at most %d times, latest after %v", len(count), most, latest)
	}
}

func TestLineDamage(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     Faults
		check func(got, sent string, m Marks) bool
	}{
		{"corrupt", Faults{Corrupt: 0.3}, func(got, sent string, m Marks) bool {
			diff := 0
			for i := range sent {
				for b := got[i] ^ sent[i]; b != 0; b &= b - 1 {
					diff++
				}
			}
			return len(got) == len(sent) && diff <= 1 && (diff == 1) == (m == Corrupted)
		}},
		{"truncate", Faults{Truncate: 0.3}, func(got, sent string, m Marks) bool {
			return got == sent[:len(got)] && (len(got) < len(sent)) == (m == Truncated)
		}},
		{"pad", Faults{Pad: 0.3}, func(got, sent string, m Marks) bool {
			return got[:len(sent)] == sent && (len(got) > len(sent)) == (m == Padded) && len(got) <= len(sent)+64
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newToyPair(5, c.f, Faults{})
			sent := map[uint64]string{}
			marked, total := 0, 0
			p.Tap(func(_ time.Duration, what What, _ Why, pk *Packet) {
				switch what {
				case Sent:
					sent[pk.ID] = string(pk.Data)
				case Taken:
					total++
					if pk.Marks.Damaged() {
						marked++
					}
					if !c.check(string(pk.Data), sent[pk.ID], pk.Marks) {
						t.Errorf("%q came from %q, marked%v", pk.Data, sent[pk.ID], pk.Marks)
					}
				}
			})
			for i := range 2000 {
				p.send(i, 4+i%2048)
			}
			p.Run(p.Now())
			near(t, "damaged", float64(marked), 600, 0.15)
			if total != 2000 {
				t.Errorf("%d arrived", total)
			}
		})
	}
}

func TestLinePaths(t *testing.T) {
	p := newToyPair(1, Faults{Delay: ms, Paths: []PathFaults{{}, {Delay: 5 * ms}, {Loss: 1}}}, Faults{})
	for path := range 3 {
		p.a.node.Send(&dgram.Datagram{Data: []byte{0, 0, 0, byte(path)}, Remote: p.b.node.Addr(), Path: path})
	}
	p.Run(p.Now() + time.Second)
	if got := p.b.numbers(); !slices.Equal(got, []int{0, 1}) || p.b.got[1].at != Start+6*ms || p.Lost(WhyPath) != 1 {
		t.Errorf("got %v", p.b.got)
	}
}

func TestLineECNOnlyMarksECT(t *testing.T) {
	p := newToyPair(1, Faults{CE: 1}, Faults{})
	for _, tos := range []uint8{dgram.NotECT, dgram.ECT0, dgram.ECT1, 0xb8 | dgram.ECT0} {
		p.a.node.Send(&dgram.Datagram{Data: []byte("abcd"), Remote: p.b.node.Addr(), TOS: tos})
	}
	p.Run(p.Now())
	var got []uint8
	for _, a := range p.b.got {
		got = append(got, a.tos)
	}
	if !slices.Equal(got, []uint8{dgram.NotECT, dgram.CE, dgram.CE, 0xb8 | dgram.CE}) {
		t.Errorf("got %v", got)
	}
}

func TestLineTrim(t *testing.T) {
	// With 1,000 bytes a second and packets of 128, a packet that finds more than 200 bytes
	// waiting is cut to 20 and overtakes, as control packets do. The rest waits, and what
	// exceeds the queue is lost.
	f := Faults{Rate: 1000, Queue: 600, Trim: Trim{Trimmable: 1, TrimmableRTX: 2, As: 3, Control: 4, After: 200, AfterRTX: 350, Keep: 20}}
	p := newToyPair(1, f, Faults{})
	send := func(num, n int, dscp uint8) {
		b := make([]byte, n)
		binary.BigEndian.PutUint32(b, uint32(num))
		p.a.node.Send(&dgram.Datagram{Data: b, Remote: p.b.node.Addr(), TOS: dscp<<2 | dgram.ECT0})
	}
	for i := range 3 {
		send(i, 100, 1) // 0, 1: 256 bytes wait; 2 is cut
	}
	send(3, 100, 2) // waits: resent packets are cut above 350
	send(4, 100, 2) // is cut
	send(5, 20, 1)  // too short to be cut: waits
	send(6, 100, 0) // of another class: no room
	send(7, 10, 4)  // control
	p.Run(p.Now() + time.Minute)
	if got := p.b.numbers(); !slices.Equal(got, []int{2, 4, 0, 7, 1, 3, 5}) {
		t.Errorf("arrived %v", got)
	}
	for _, a := range p.b.got[:min(2, len(p.b.got))] {
		if len(a.data) != 20 || a.tos != 3<<2|dgram.ECT0 {
			t.Errorf("cut to %d bytes, TOS %#x", len(a.data), a.tos)
		}
	}
	// The rate is kept: 3 · 128, 2 · 48 and 48 bytes up to the end of the last.
	if last := p.b.got[len(p.b.got)-1]; last.at-Start != 528*ms || p.Lost(WhyQueue) != 1 {
		t.Errorf("the last came after %v, %d were lost", last.at-Start, p.Lost(WhyQueue))
	}
	// A header for which there is no room is lost, too.
	f.Queue = 100
	p = newToyPair(1, f, Faults{})
	p.ab.SetFaults(Faults{Rate: 1000, Queue: 100, Trim: Trim{Trimmable: 1, TrimmableRTX: 2, As: 3, Control: 4, Share: 1, Keep: 20}})
	for i := range 3 {
		send(i, 100, 1)
	}
	p.Run(p.Now() + time.Minute)
	if len(p.b.got) != 2 || p.Lost(WhyQueue) != 1 {
		t.Errorf("%d arrived", len(p.b.got))
	}
}

func TestLineFilter(t *testing.T) {
	f := Faults{Filter: func(_ time.Duration, p *Packet) Verdict {
		switch p.Data[3] {
		case 1:
			return Verdict{Drop: true}
		case 2:
			return Verdict{Delay: 5 * ms}
		case 3:
			return Verdict{Copies: 2}
		}
		return Verdict{}
	}}
	p := through(t, f, 5, 0)
	if got := p.b.numbers(); !slices.Equal(got, []int{0, 3, 3, 3, 4, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestLineHealed(t *testing.T) {
	f := Faults{Delay: ms, Jitter: ms, Loss: 0.5, Rate: 1000, Queue: 10, Mark: 5, MTU: 1500, Duplicate: 1, Corrupt: 1}
	h := f.Healed()
	if h.Loss != 0 || h.Duplicate != 0 || h.Corrupt != 0 || h.Delay != ms || h.Rate != 1000 || h.MTU != 1500 {
		t.Errorf("%+v", h)
	}
}

func TestNetNoAllocs(t *testing.T) {
	// A run of a thousand seeds must not depend on the garbage collector.
	p := newToyPair(1, Faults{Delay: ms, Jitter: ms, Loss: 0.1, Duplicate: 0.1}, Faults{})
	d := &dgram.Datagram{Data: make([]byte, 10*1000), Seg: 1000, Remote: p.b.node.Addr()}
	p.b.turn = func(time.Duration) { p.b.got = p.b.got[:0] }
	p.a.node.Crash(false)
	p.b.node.Crash(false)
	q := &quiet{node: p.b.node}
	p.b.node.Attach(q)
	p.a.node.Attach(&quiet{node: p.a.node})
	run := func() {
		p.a.node.Send(d)
		p.Run(p.Now() + 10*ms)
	}
	for range 100 {
		run()
	}
	if n := testing.AllocsPerRun(200, run); n > 0.5 {
		t.Errorf("%v allocations per train of ten", n)
	}
	if q.n == 0 {
		t.Error("nothing arrived")
	}
}

// A diverted line does nothing itself: what the model delivers arrives unchanged, at the
// model's time.
func TestLineDivert(t *testing.T) {
	p := newToyPair(1, Faults{Loss: 1}, Faults{})
	p.ab.Divert(func(q *Packet) {
		c := *q
		c.Data = append([]byte(nil), q.Data...)
		if c.Data[3] == 1 {
			return // number 1 never comes
		}
		c.TOS |= dgram.CE
		c.Marks |= Congested
		p.At(p.Now()+7*ms, func() { p.Deliver(&c) })
	})
	var sentAt, taken []uint64
	p.Tap(func(_ time.Duration, what What, _ Why, q *Packet) {
		switch what {
		case Sent:
			sentAt = append(sentAt, q.ID)
		case Taken:
			taken = append(taken, q.ID)
			if q.Marks != Congested || q.From != p.a.node {
				t.Errorf("datagram %d: marks%v, from %v", q.ID, q.Marks, q.From)
			}
		}
	})
	for i := range 3 {
		p.send(i, 50+i)
	}
	p.Run(Start + time.Second)
	if got := p.b.numbers(); !slices.Equal(got, []int{0, 2}) || p.b.got[0].at != Start+7*ms || p.b.got[0].tos&3 != dgram.CE {
		t.Errorf("got %v, %+v", got, p.b.got)
	}
	if len(taken) != 2 || taken[0] != sentAt[0] || taken[1] != sentAt[2] {
		t.Errorf("sent %v, taken %v", sentAt, taken)
	}
	if n := p.UnderWay(); n != 0 {
		t.Errorf("%d datagrams under way", n)
	}
	c := Packet{Src: p.a.node.Addr(), Dst: netip.MustParseAddrPort("10.9.9.9:1"), From: p.a.node}
	if p.Deliver(&c); p.Lost(WhyNobody) != 1 {
		t.Error("a datagram to nobody is not counted")
	}
}

// Between Mark and MarkAll the share of marked datagrams grows evenly.
func TestLineMarksMoreAndMore(t *testing.T) {
	// Datagrams come at twice the rate: each finds 64 bytes more, to 128,000 at the end.
	p := newToyPair(3, Faults{Rate: 1_280_000, Mark: 32_000, MarkAll: 96_000}, Faults{})
	for i := range 2000 {
		p.At(Start+time.Duration(i)*50*time.Microsecond, func() {
			b := binary.BigEndian.AppendUint32(make([]byte, 0, 100), uint32(i))
			p.a.node.Send(&dgram.Datagram{Data: b[:100], Remote: p.b.node.Addr(), TOS: dgram.ECT0})
		})
	}
	p.Run(p.Now() + time.Second)
	var marked [8]int
	for i, n := range p.b.numbers() {
		if p.b.got[i].tos&3 == 3 {
			marked[n/250]++
		}
	}
	t.Log(marked)
	for i, want := range [8]float64{0, 0, 31, 94, 156, 219, 250, 250} {
		if math.Abs(float64(marked[i])-want) > 30 || i < 2 && marked[i] > 0 || i > 5 && marked[i] < 250 {
			t.Errorf("of part %d %d are marked, want about %.0f", i, marked[i], want)
		}
	}
}
