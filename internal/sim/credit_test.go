package sim_test

import (
	"math/bits"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// credited gives all hosts a kind of congestion control.
func credited(by transport.Congestion) func(*simtest.Spec) {
	return config(func(c *transport.Config) { c.Congestion = by })
}

// controls lets f decide about control packets of a type, and lets others pass.
func controls(ctl wire.CtlType, f func(n int) bool) func(time.Duration, *sim.Packet) sim.Verdict {
	n := 0
	return func(_ time.Duration, p *sim.Packet) sim.Verdict {
		c, _, err := wire.ParseCP(p.Data)
		if err != nil || c.Ctl != ctl {
			return sim.Verdict{}
		}
		n++
		return sim.Verdict{Drop: f(n)}
	}
}

// RCCC alone and with NSCC moves long and short messages, ordered and not, and reads. Nothing is
// sent without credit, but at the beginning and after idle times.
func TestCreditMovesEverything(t *testing.T) {
	for _, by := range []transport.Congestion{transport.RCCC, transport.NSCCAndRCCC} {
		t.Run(by.String(), func(t *testing.T) {
			w := pair(t, 1401, lan, credited(by))
			stream(w, tsend(1, 300_000), 20, 4)
			stream(w, ordered(tsend(1, 100_000)), 10, 2)
			stream(w, tsend(1, 100), 50, 1)
			a, b := w.Hosts[0].FEP.Stats(), w.Hosts[1].FEP.Stats()
			if a.CreditsUsed < 100 || b.CreditsGranted < 100 || a.CreditPersists != 0 || a.CreditsExcess != 0 || a.CreditsRefused != 0 || b.CreditsExpired != 0 {
				t.Errorf("source %+v, destination %+v", a.CreditCounters, b.CreditCounters)
			}
			if a.CreditWaited <= 0 || a.CreditWaited > w.Now() {
				t.Errorf("packets waited for %v of %v", a.CreditWaited, w.Now())
			}
			if a.RtxRTO+a.RtxSACK+a.RtxProbe != 0 {
				t.Error("packets were sent again on a clean path")
			}
			settle(w)
		})
	}
}

// A peer that does not know RCCC refuses CREDIT_REQ with NACK 19. From then on NSCC alone decides, on all
// PDCs to it, and nobody is asked again.
func TestCreditRefused(t *testing.T) {
	w := pair(t, 1402, lan, only(0, func(c *transport.Config) { c.Congestion = transport.RCCC }))
	stream(w, tsend(1, 300_000), 10, 2)
	stream(w, ordered(tsend(1, 100_000)), 5, 2)
	a, b := w.Hosts[0].FEP.Stats(), w.Hosts[1].FEP.Stats()
	if a.CreditsRefused != 1 || b.NacksTx[wire.NackUnexpEvent] == 0 || b.NacksTx[wire.NackUnexpEvent] > 3 || a.CreditPersists != 0 {
		t.Errorf("%d peers refused, %d NACKs, %d packets without credit", a.CreditsRefused, b.NacksTx[wire.NackUnexpEvent], a.CreditPersists)
	}
	if a.CPTx[wire.CtlCreditReq] > 3 {
		t.Errorf("%d CREDIT_REQs after the refusal", a.CPTx[wire.CtlCreditReq])
	}
	// The other way: what knows no RCCC never asks, and gets no CREDIT.
	w.Hosts[0].Post(trecv(1 << 20))
	o := w.Hosts[1].Post(tsend(0, 1<<20))
	w.RunOps(time.Second, o)
	if n := w.Hosts[0].FEP.Stats().CPTx[wire.CtlCredit]; n != 0 {
		t.Errorf("%d CREDITs to a peer that did not ask", n)
	}
	settle(w)
}

// CREDITs and CREDIT_REQs that are lost are made up for: by the next one, as both are cumulative, and
// where none comes by asking again.
func TestCreditLost(t *testing.T) {
	for _, c := range []struct {
		name string
		ctl  wire.CtlType
		from int
		drop func(n int) bool
		most time.Duration
	}{
		{"the first CREDITs", wire.CtlCredit, 1, func(n int) bool { return n <= 3 }, 60 * ms},
		{"every second CREDIT", wire.CtlCredit, 1, func(n int) bool { return n%2 == 0 }, 100 * ms},
		{"the first CREDIT_REQs", wire.CtlCreditReq, 0, func(n int) bool { return n <= 2 }, 60 * ms},
		{"all CREDITs but one in ten", wire.CtlCredit, 1, func(n int) bool { return n%10 != 0 }, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 1403, lan, credited(transport.RCCC))
			f := w.Line(c.from, 1-c.from).Faults()
			f.Filter = controls(c.ctl, c.drop)
			w.Line(c.from, 1-c.from).SetFaults(f)
			w.Hosts[1].Post(trecv(1 << 20))
			start := w.Now()
			o := w.Hosts[0].Post(tsend(1, 1<<20))
			w.RunOps(10*time.Second, o)
			w.Want("ok", o)
			if took := w.Now() - start; took > c.most {
				t.Errorf("it took %v, %v is allowed", took, c.most)
			}
			settle(w)
		})
	}
}

// What is lost and sent again leaves the room of what is granted and did not arrive. Else a stream that loses packets
// fills it, and waits for grants to expire.
func TestCreditLoss(t *testing.T) {
	for _, rate := range []int64{0, 1_250_000_000} {
		line := lan
		line.Rate, line.Loss = 1_250_000_000, 0.05
		w := pair(t, 1415, line, credited(transport.RCCC), config(func(c *transport.Config) { c.RecvWindow, c.LineRate = 128<<10, rate }))
		const size = 500_000
		n := raced(40, 10)
		post(w.Hosts[1], trecv(size), n)
		var ops []*simtest.Op
		for range n {
			ops = append(ops, w.Hosts[0].Post(tsend(1, size)))
		}
		start := w.Now()
		w.RunOps(time.Minute, ops...)
		w.Want("ok", ops...)
		if took := w.Now() - start; took > 60*ms {
			t.Errorf("LineRate %d: 20 MB took %v, the line %d ms", rate, took, size*n/1_250_000)
		}
		settle(w)
	}
}

// A destination that answers nothing about credit any more stops nobody: a packet leaves now and then.
// One that is dead is noticed.
func TestCreditSilence(t *testing.T) {
	w := pair(t, 1404, lan, credited(transport.RCCC))
	f := w.Line(1, 0).Faults()
	f.Filter = controls(wire.CtlCredit, func(int) bool { return true })
	w.Line(1, 0).SetFaults(f)
	w.Hosts[1].Post(trecv(8192))
	o := w.Hosts[0].Post(tsend(1, 8192))
	w.RunOps(10*time.Second, o)
	w.Want("ok", o)
	if n := w.Hosts[0].FEP.Stats().CreditPersists; n == 0 {
		t.Error("no packet left without credit: the test does not test")
	}
	settle(w)

	w = pair(t, 1405, lan, credited(transport.RCCC), mayFail, smallWindow)
	w.Hosts[1].Post(trecv(1 << 20))
	o = w.Hosts[0].Post(tsend(1, 1<<20))
	w.Run(ms)
	w.Hosts[1].Crash(false)
	w.RunOps(90*time.Second, o)
	if o.Cause() != transport.TimedOut {
		t.Errorf("to a dead peer: %v", o.Cause())
	}
}

// A send is WaitCredit when nothing may leave for want of credit.
func TestDiagnoseCredit(t *testing.T) {
	w := pair(t, 1406, lan, credited(transport.RCCC))
	f := w.Line(1, 0).Faults()
	f.Filter = controls(wire.CtlCredit, func(int) bool { return true })
	w.Line(1, 0).SetFaults(f)
	w.Hosts[1].Post(trecv(100_000))
	o := w.Hosts[0].Post(tsend(1, 100_000))
	w.Run(5 * ms)
	d := wantWait(t, o, transport.WaitCredit)
	ask(t, "the text", d.Why(), "the window is closed by no credit for 4.89ms: the target has granted none that is left, 0 bytes are in flight")
	f.Filter = nil
	w.Line(1, 0).SetFaults(f)
	settle(w)
}

// A fan is n senders with RCCC to host 0, whose buffer is small and which reads it seldom.
func fan(t *testing.T, seed uint64, n int, by transport.Congestion, buffer int, wake time.Duration, change ...func(*transport.Config)) *simtest.World {
	t.Helper()
	return fanOf(t, seed, n, func(spec *simtest.Spec) {
		for i := range spec.Hosts {
			spec.Hosts[i].Config.Congestion = by
		}
		spec.Hosts[0].Node.RecvBuffer, spec.Hosts[0].Node.Wake = buffer, wake
		spec.Hosts[0].Config.RecvWindow = buffer * 3 / 4
		for _, c := range change {
			c(&spec.Hosts[0].Config)
		}
	})
}

// fanOf is n senders with RCCC to host 0, as change has it.
func fanOf(t *testing.T, seed uint64, n int, change func(*simtest.Spec)) *simtest.World {
	t.Helper()
	spec := simtest.Spec{Seed: seed, Line: sim.Faults{Delay: 20 * us, Rate: 1_250_000_000, InOrder: true}, Hosts: make([]simtest.HostSpec, n+1), Light: true}
	for i := range spec.Hosts {
		spec.Hosts[i].Backlog = true
		spec.Hosts[i].Config.Congestion = transport.RCCC
	}
	change(&spec)
	return simtest.NewWorld(t, spec)
}

// A reader that is slow pushes back without loss: what is granted never exceeds what its socket
// holds. With NSCC the same senders overrun it.
func TestCreditSlowReader(t *testing.T) {
	const n, size = 8, 500_000
	lost := map[transport.Congestion]int{}
	for _, by := range []transport.Congestion{transport.NSCC, transport.RCCC, transport.NSCCAndRCCC} {
		w := fan(t, 1407, n, by, 128<<10, ms)
		post(w.Hosts[0], trecv(size), n)
		var ops []*simtest.Op
		for i := range n {
			ops = append(ops, w.Hosts[1+i].Post(tsend(0, size)))
		}
		w.RunOps(time.Minute, ops...)
		w.Want("ok", ops...)
		lost[by] = int(w.Net.Lost(sim.WhyBuffer))
		if by == transport.NSCC && lost[by] == 0 {
			t.Error("NSCC lost nothing: the test does not test")
		}
		if by != transport.NSCC && lost[by] != 0 {
			t.Errorf("%v: %d datagrams found no room in the socket", by, lost[by])
		}
		settle(w)
	}
	t.Log("datagrams lost at the socket:", lost)
}

// Sources of messages shorter than a packet ask for what they use. Else what they leave unused holds the room until it
// expires.
func TestCreditShortMessages(t *testing.T) {
	const n, each, size = 8, 1000, 500
	w := fan(t, 1413, n, transport.RCCC, 128<<10, ms)
	post(w.Hosts[0], trecv(size), n*each)
	var ops []*simtest.Op
	for i := range n {
		for range each {
			ops = append(ops, w.Hosts[1+i].Post(tsend(0, size)))
		}
	}
	start := w.Now()
	w.RunOps(time.Minute, ops...)
	w.Want("ok", ops...)
	if took := w.Now() - start; took > 6*ms {
		t.Errorf("4 MB took %v of a line of 10 Gb/s", took)
	}
	if s := w.Hosts[0].FEP.Stats(); s.CreditsExpired != 0 {
		t.Errorf("%d bytes were granted in vain", s.CreditsExpired)
	}
	settle(w)
}

// Short datagrams take more of a socket than their bytes. No more is granted than it holds of them.
func TestCreditShortInSocket(t *testing.T) {
	// As Linux does: 256 bytes, and a power of two with 446 for headers.
	charge := func(size int) int { return 256 + 1<<bits.Len(uint(size+446-1)) }
	const n, each, size, buffer, full = 8, 500, 100, 400_000, 1084
	lost := map[bool]uint64{}
	for _, told := range []bool{false, true} {
		w := fanOf(t, 1414, n, func(s *simtest.Spec) {
			h := &s.Hosts[0]
			h.Node.RecvBuffer, h.Node.RecvCost, h.Node.Wake = buffer, charge, 2*ms
			h.Config.RecvWindow = buffer * 3 / 4 / charge(full) * full
			if told {
				h.Config.RecvCost = func(size int) int { return charge(size) * full / charge(full) }
			}
		})
		post(w.Hosts[0], trecv(size), n*each)
		var ops []*simtest.Op
		for i := range n {
			for range each {
				ops = append(ops, w.Hosts[1+i].Post(tsend(0, size)))
			}
		}
		w.RunOps(time.Minute, ops...)
		w.Want("ok", ops...)
		lost[told] = w.Net.Lost(sim.WhyBuffer)
		settle(w)
	}
	if lost[false] == 0 {
		t.Error("nothing is lost where nobody says what datagrams take: the test does not test")
	}
	if lost[true] != 0 {
		t.Errorf("%d datagrams found no room in the socket", lost[true])
	}
	t.Log("datagrams lost at the socket, by what the FEP knows:", lost)
}

// jain is Jain's index.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum, squares = sum+v, squares+v*v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// Sources with a demand get equal shares, whenever they began and however many bytes they have.
func TestCreditFair(t *testing.T) {
	oneGoroutine(t)
	const n, size = 8, 4 << 20
	w := fan(t, 1408, n, transport.RCCC, 1<<20, 0, func(c *transport.Config) { c.LineRate = 1_250_000_000 })
	post(w.Hosts[0], trecv(size), n)
	var ops []*simtest.Op
	for i := range n {
		w.Net.After(time.Duration(i)*300*us, func() { ops = append(ops, w.Hosts[1+i].Post(tsend(0, size))) })
	}
	w.Run(3 * ms) // all have begun
	sent := func(i int) float64 { return float64(w.Hosts[1+i].FEP.Stats().TxData) }
	was := make([]float64, n)
	for i := range was {
		was[i] = sent(i)
	}
	w.Run(10 * ms)
	var got []float64
	for i, v := range was {
		got = append(got, sent(i)-v)
	}
	if j := jain(got); !(j >= .99) {
		t.Errorf("Jain's index is %.3f: %v packets", j, got)
	}
	w.RunOps(time.Minute, ops...)
	settle(w)
}

// byzantine is a fan of three senders, of which the first lies in the packets that forge makes of
// what it sends and gets. It returns how long the honest ones take.
func byzantine(t *testing.T, lie func(w *simtest.World, p simtest.PDC)) (time.Duration, *simtest.World) {
	t.Helper()
	w := fan(t, 1409, 3, transport.RCCC, 256<<10, 0)
	const size = 12 << 20
	post(w.Hosts[0], trecv(size), 3)
	var ops []*simtest.Op
	first := w.Hosts[1].Post(tsend(0, 20_000))
	w.RunOps(time.Second, first)
	p := w.PDCs(1)[0]
	w.Forged()
	start := w.Now()
	for i := range 2 {
		ops = append(ops, w.Hosts[2+i].Post(tsend(0, size)))
	}
	if lie != nil {
		lie(w, p)
	}
	w.RunOps(time.Minute, ops...)
	w.Want("ok", ops...)
	return w.Now() - start, w
}

// A source that asks for all it can, again and again, and sends nothing has its part of the room until
// its first credit expires, and then a packet now and then.
func TestCreditLiars(t *testing.T) {
	oneGoroutine(t)
	alone, _ := byzantine(t, nil)
	took, w := byzantine(t, func(w *simtest.World, p simtest.PDC) {
		var ask func()
		target := uint32(0)
		ask = func() {
			target += 500
			c := wire.CP{Ctl: wire.CtlCreditReq, SPDCID: p.ID, DPDCID: p.Remote, Payload: wire.CPCreditReq{CCCID: 7, CreditTarget: target & 0xffffff}.Encode()}
			w.Forge(0, w.Hosts[1].Addr(), c.Append(nil), true)
			w.Net.After(100*us, ask)
		}
		ask()
	})
	if took > alone*3/2 { // as if the liar sent: each of three has a third of the room
		t.Errorf("the honest sources took %v beside a liar, %v without", took, alone)
	}
	if s := w.Hosts[0].FEP.Stats(); s.CreditsExpired == 0 {
		t.Error("nothing of the liar's credit expired")
	}
	t.Logf("%v alone, %v beside the liar", alone, took)
}

// A destination that grants more than was asked for, takes back what it granted, or says both in turn
// harms its own messages only, and not for ever.
func TestCreditGrantsLie(t *testing.T) {
	for _, c := range []struct {
		name  string
		grant func(n uint32) uint32
		count func(*transport.Stats) uint64
	}{
		{"too much", func(n uint32) uint32 { return 0x7ffff0 }, func(s *transport.Stats) uint64 { return s.CreditsExcess }},
		{"taken back", func(n uint32) uint32 { return 0xfff000 - n }, func(s *transport.Stats) uint64 { return s.CreditsOld }},
		{"anything", func(n uint32) uint32 { return n * 0x9e3779b9 & 0xffffff }, func(s *transport.Stats) uint64 { return s.CreditsExcess + s.CreditsOld }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pair(t, 1410, lan, credited(transport.RCCC), smallWindow)
			post(w.Hosts[1], trecv(1<<20), 2)
			o := w.Hosts[0].Post(tsend(1, 1<<20))
			w.Run(ms)
			p := w.PDCs(0)[0]
			w.Forged()
			most := 0
			n := uint32(0)
			var lie func()
			lie = func() {
				n++
				cp := wire.CP{Ctl: wire.CtlCredit, SPDCID: p.Remote, DPDCID: p.ID, Payload: wire.CPCredit{Credit: c.grant(n)}.Encode()}
				w.Forge(0, w.Hosts[1].Addr(), cp.Append(nil), true)
				most = max(most, w.Hosts[0].FEP.Load().InFlight)
				if o.Open() {
					w.Net.After(50*us, lie)
				}
			}
			lie()
			w.RunOps(time.Minute, o)
			w.Want("ok", o)
			s := w.Hosts[0].FEP.Stats()
			if c.count(&s) == 0 {
				t.Errorf("nothing was counted: %+v", s.CreditCounters)
			}
			if most > 32<<10+2000 {
				t.Errorf("%d bytes in flight with a window of %d", most, 32<<10)
			}
		})
	}
}

// Both ends may begin anew: a destination that lost its state, and a source that did, come
// together again.
func TestCreditRestart(t *testing.T) {
	for _, who := range []int{0, 1} {
		w := pair(t, 1411+uint64(who), lan, credited(transport.RCCC), mayFail)
		stream(w, tsend(1, 200_000), 10, 2)
		w.Hosts[who].Crash(false)
		w.Run(time.Second)
		w.Hosts[who].Restart()
		w.Run(50 * ms)
		for range 3 {
			w.Hosts[1].Post(trecv(400_000))
			o := w.Hosts[0].Post(tsend(1, 400_000))
			w.RunOps(time.Minute, o)
			if who == 0 {
				w.Want("ok", o)
			}
		}
		w.Hosts[1].Post(trecv(400_000))
		start := w.Now()
		o := w.Hosts[0].Post(tsend(1, 400_000))
		w.RunOps(time.Minute, o)
		w.Want("ok", o)
		if took := w.Now() - start; took > 20*ms {
			t.Errorf("host %d restarted; then a message took %v", who, took)
		}
		settle(w)
	}
}

// A target asks for credit for all that it is to return: on a long path a read is about as fast as a
// message of as many bytes.
func TestCreditOfReadData(t *testing.T) {
	const size = 1 << 20
	for _, by := range []transport.Congestion{transport.RCCC, transport.NSCCAndRCCC} {
		f := lan
		f.Delay = 10 * ms
		w := pair(t, 1413, f, credited(by), memory(size))
		post(w.Hosts[1], trecv(size), 2)
		took := func(s simtest.OpSpec) time.Duration {
			short := s
			short.Len = 5000
			w.RunOps(time.Second, w.Hosts[0].Post(short)) // opens the PDC
			w.Run(100 * ms)
			start := w.Now()
			o := w.Hosts[0].Post(s)
			w.RunOps(time.Minute, o)
			w.Want("ok", o)
			return w.Now() - start
		}
		sent, got := took(tsend(1, size)), took(read(1, 0, size))
		t.Logf("%v: a read took %v, a message %v", by, got, sent)
		if got > 2*sent {
			t.Errorf("%v: a read took %v, a message %v", by, got, sent)
		}
		settle(w)
	}
}

// A source that waits for credit of a peer that was restarted hears from it what became of the PDC, and goes on:
// the target of a PDC that it does not have grants nothing.
func TestCreditOfARestartedPeer(t *testing.T) {
	w := pair(t, 1414, lan, credited(transport.RCCC), mayFail, smallWindow)
	a, b := w.Hosts[0], w.Hosts[1]
	b.Post(trecv(1 << 20))
	was := a.Post(tsend(1, 1<<20))
	w.Run(ms)
	w.Want("open", was)
	b.Crash(false)
	w.Run(20 * ms)
	b.Restart()
	start := w.Now()
	b.Post(trecv(5000))
	b.Post(trecv(1 << 20))
	o := a.Post(tsend(1, 5000))
	w.RunOps(10*time.Second, o)
	w.Want("ok", o)
	if took := w.Now() - start; took > 100*ms {
		t.Errorf("a message to the new life took %v", took)
	}
	w.RunOps(10*time.Second, was)
	settle(w)
}
