package cms

import (
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/internal/invariant"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// A script drives one Window in full rounds: everything in flight is answered by ACKs of 16
// packets, and each ACK is followed by filling the window.
type script struct {
	t   *testing.T
	w   *Window
	now time.Duration
	mtu int
}

func newScript(t *testing.T, cfg Config) *script {
	t.Helper()
	cfg = cfg.withDefaults()
	return &script{t: t, w: New(cfg), now: time.Second, mtu: cfg.MTU}
}

// fill sends full packets while the window is open and returns their number.
func (s *script) fill() (n int) {
	for s.w.CanSend(s.mtu) {
		s.w.OnSend(s.now, s.mtu)
		n++
	}
	return n
}

type ack struct {
	rtt     func(i int) time.Duration // sample of the i-th ACK of the round
	ce      bool
	pend    uint8
	restore bool
}

// roundWith plays one round trip.
func (s *script) roundWith(a ack) {
	s.t.Helper()
	s.fill()
	left := s.w.InFlight() / s.mtu
	n := (left + 15) / 16
	for i := range n {
		rtt := a.rtt(i)
		s.now += max(rtt, us) / time.Duration(n)
		k := min(left, 16)
		left -= k
		s.w.OnAck(s.now, k*s.mtu, rtt, a.ce, a.pend, a.restore)
		s.fill()
	}
}

// rounds plays n round trips with one RTT.
func (s *script) rounds(n int, rtt time.Duration) {
	s.t.Helper()
	for range n {
		s.roundWith(ack{rtt: func(int) time.Duration { return rtt }})
	}
}

// shrinkTo shrinks the window to about n bytes by random losses, which have no other
// effect.
func (s *script) shrinkTo(n int) {
	s.t.Helper()
	s.fill()
	for s.w.Window() > n {
		s.w.OnLoss(s.now, min(s.mtu, s.w.Window()-n), false)
	}
	for s.w.InFlight() > 0 {
		k := min(s.w.InFlight(), 16*s.mtu)
		s.now += us
		s.w.OnAck(s.now, k, 0, true, 0, false) // CE: no increase meanwhile
	}
	s.w.begin(s.now, false)
	s.w.fast, s.w.fiCount, s.w.inc, s.w.fastTop = false, 0, 0, s.w.ceil
	s.w.cwnd, s.w.top = int64(n), int32(n)
}

// want checks that the window differs from n by at most slack bytes.
func (s *script) want(n, slack int) {
	s.t.Helper()
	if got := s.w.Window(); got < n-slack || got > n+slack {
		s.t.Fatalf("window %d, want %d ± %d", got, n, slack)
	}
}

func TestWindowStartsAtCeiling(t *testing.T) {
	// UE 3.6.13: cwnd starts at MaxWnd.
	s := newScript(t, Config{Window: 256 << 10})
	s.want(256<<10, 0)
	if n := s.fill(); n != 256<<10/s.mtu {
		t.Errorf("%d packets fit, want %d", n, 256<<10/s.mtu)
	}
}

func TestWindowGateTestsPacketSize(t *testing.T) {
	// UE 3.6.13: a packet may leave if the bytes in flight plus its size are within cwnd.
	w := New(Config{MTU: 1000, Window: 10_000})
	for range 9 {
		w.OnSend(0, 1000)
	}
	if !w.CanSend(1000) {
		t.Error("a packet that just fits may not leave")
	}
	w.OnSend(0, 500)
	if w.CanSend(501) || !w.CanSend(500) {
		t.Error("the gate does not test the packet's own size")
	}
}

func TestWindowOnePacketAlwaysGoes(t *testing.T) {
	// F35: at least one packet leaves per RTT, even one larger than the MTU that the window
	// was made for.
	w := New(Config{MTU: 1132, Window: 1132})
	if !w.CanSend(9000) {
		t.Fatal("nothing in flight and still blocked")
	}
	w.OnSend(0, 9000)
	if w.CanSend(1) {
		t.Error("a second packet beyond the window")
	}
	w.OnGone(9000)
	if w.InFlight() != 0 || !w.CanSend(9000) {
		t.Error("OnGone left something in flight")
	}
	for range 4 { // control packets of PDCs that are gone, which are never answered
		w.OnSend(0, 68)
	}
	if !w.CanSend(1132) {
		t.Error("a few control packets stop a packet")
	}
	w.OnSend(0, 1132)
	if w.CanSend(68) {
		t.Error("a second packet beyond the window")
	}
}

func TestWindowAsksForACKWhenClosed(t *testing.T) {
	// UE 3.6.13: AR when cwnd − inflight < MTU.
	s := newScript(t, Config{MTU: 1000, Window: 100_000})
	if !s.w.OnSend(s.now, 1000) { // UE 3.6.13: a sample before our own queue builds up
		t.Fatal("the first packet asks for no sample")
	}
	for range 98 {
		if s.w.OnSend(s.now, 1000) {
			t.Fatalf("AR with %d of 100000 in flight", s.w.InFlight())
		}
	}
	if !s.w.OnSend(s.now, 1000) {
		t.Fatal("no AR on the packet that closes the window")
	}
	// Small refills do not ask one by one. Half a trigger of them asks.
	asked, sent := 0, 0
	for range 100 {
		s.w.OnAck(s.now, 1000, 0, true, 0, false)
		if sent++; s.w.OnSend(s.now, 1000) {
			if sent*1000 < 8192 {
				t.Errorf("AR again after %d bytes", sent*1000)
			}
			asked, sent = asked+1, 0
		}
	}
	if asked != 11 {
		t.Errorf("%d ARs on 100 one-packet refills, want 11", asked)
	}
}

func TestWindowAsksForACKBelowTrigger(t *testing.T) {
	// UE 3.6.13: AR while cwnd < ACK_Gen_Trigger, because otherwise the peer never answers.
	w := New(Config{MTU: 1000, Window: 8000})
	for range 8 {
		if !w.OnSend(0, 1000) {
			t.Fatal("a window below the trigger sends without AR")
		}
	}
}

func TestWindowProportionalIncrease(t *testing.T) {
	// UE 3.6.13 with a = b = 1: 4 MTU per RTT without delay, falling to 0 at the target,
	// and eta of 0.15 MTU per adjust period.
	for _, c := range []struct {
		name string
		rtt  time.Duration
		mtus float64 // per round
	}{
		{"at 0.2 target", 180 * us, 4*0.8 + 0.15},
		{"at 0.5 target", 225 * us, 4*0.5 + 0.15},
		{"at 0.9 target", 285 * us, 4*0.1 + 0.15},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, Config{})
			s.rounds(4, c.rtt)
			s.shrinkTo(256 << 10)
			s.rounds(10, c.rtt)
			// The target of a window of 230 packets is 1/17 higher.
			s.want(256<<10+int(10*c.mtus*float64(s.mtu)), 10*s.mtu*4/10)
		})
	}
}

func TestWindowFastIncrease(t *testing.T) {
	// UE 3.6.13: after one window without delay the window grows by a quarter per RTT
	// (fi_scale 0.25·a). The first delay stops that.
	s := newScript(t, Config{})
	s.rounds(4, 40*us)
	s.shrinkTo(64 << 10)
	s.rounds(2, 40*us) // until fast increase begins
	before := s.w.Window()
	s.rounds(1, 40*us)
	if got := float64(s.w.Window()) / float64(before); got < 1.2 || got > 1.35 {
		t.Errorf("fast increase grows ×%.2f per round, want about 1.25", got)
	}
	if !s.w.fast {
		t.Fatal("not in fast increase")
	}
	s.w.OnAck(s.now, s.mtu, 200*us, false, 0, false)
	if s.w.fast {
		t.Error("fast increase goes on with a delay of 50 µs")
	}
}

func TestWindowRegrowsWithinMillisecondsOfVirtualTime(t *testing.T) {
	// docs/faults.md rule 5: the window grows from one MTU to a full MiB on an idle local
	// path.
	s := newScript(t, Config{})
	s.rounds(4, 40*us)
	s.shrinkTo(s.mtu)
	start := s.now
	for s.w.Window() < 1<<20 {
		s.rounds(1, 40*us)
		if s.now-start > 5*ms {
			t.Fatalf("window %d after 5 ms", s.w.Window())
		}
	}
}

func TestWindowCeilingHolds(t *testing.T) {
	// T10: optimistic ACKs never raise the window above its upper bound.
	s := newScript(t, Config{Window: 512 << 10})
	s.rounds(1, 40*us)
	s.w.OnLoss(s.now, 40*s.mtu, false)
	for range 10_000 {
		s.fill()
		s.now += us
		s.w.OnAck(s.now, min(s.w.InFlight(), 16*s.mtu), us, false, 0, true)
		if s.w.Window() > 512<<10 {
			t.Fatalf("window %d over the ceiling", s.w.Window())
		}
	}
	s.want(512<<10, 0)
}

func TestWindowImpossibleRTTIsNoSample(t *testing.T) {
	// T10: an RTT below the minimum is no sample.
	s := newScript(t, Config{})
	s.rounds(2, 50*us)
	srtt, base, least := s.w.SRTT(), s.w.MinRTT(), s.w.least
	for _, rtt := range []time.Duration{0, -1, -time.Hour} {
		s.fill()
		s.w.OnAck(s.now, s.mtu, rtt, false, 0, false)
	}
	if s.w.SRTT() != srtt || s.w.MinRTT() != base || s.w.least != least {
		t.Errorf("srtt %v min %v least %v, want %v %v %v", s.w.SRTT(), s.w.MinRTT(), s.w.least, srtt, base, least)
	}
}

func TestWindowWithoutSamplesDaresOneMTU(t *testing.T) {
	// Every packet was sent twice or more, so no ACK gives a sample.
	s := newScript(t, Config{})
	s.rounds(2, 50*us)
	s.shrinkTo(16 << 10)
	for range 10 {
		s.roundWith(ack{rtt: func(int) time.Duration { return 0 }})
	}
	s.want(16<<10+10*s.mtu, 3*s.mtu)
}

func TestWindowRandomLossCostsWhatItWas(t *testing.T) {
	// UE 3.6.13 OnInferredLoss: cwnd −= n, inflight −= n, and no more. On a path without a
	// queue the loss is random (F1).
	s := newScript(t, Config{})
	s.rounds(4, 50*us)
	s.fill()
	for range 40 { // 4 % of the window
		s.w.OnLoss(s.now, s.mtu, false)
	}
	s.want(1<<20-40*s.mtu, 0)
	s.rounds(1, 50*us)
	if got := s.w.Window(); got < 1<<20-40*s.mtu {
		t.Errorf("the round's end cut the window to %d", got)
	}
}

func TestWindowLossWithQueueIsCongestion(t *testing.T) {
	s := newScript(t, Config{})
	s.rounds(1, 40*us)
	s.rounds(3, 140*us) // the queue delays by 100 µs
	s.fill()
	for range 10 {
		s.w.OnLoss(s.now, s.mtu, false)
	}
	top := s.w.Window() + 10*s.mtu
	s.rounds(2, 140*us)
	s.want(top*88/100, top/100)
	if s.w.fastTop > int32(top) {
		t.Error("fast increase may pass the window that overflowed the queue")
	}
}

func TestWindowLossOfLateSenderIsCongestion(t *testing.T) {
	// A sender that never saw the queue empty reacts to a loss as the others do.
	s := newScript(t, Config{})
	s.rounds(4, 190*us)
	s.rounds(2, 228*us)
	s.fill()
	top := s.w.Window()
	s.w.OnLoss(s.now, s.mtu, false)
	s.rounds(2, 228*us)
	s.want(top*88/100, top/50)
}

func TestWindowLossBelowWhatTheQueueHeldIsRandom(t *testing.T) {
	// Hosts that answer late look like a queue. A queue that overflows is full; a queue
	// that held a quarter more before without loss was not full.
	s := newScript(t, Config{})
	s.rounds(1, 40*us)
	s.rounds(3, 160*us)
	s.rounds(3, 130*us)
	s.fill()
	top := s.w.Window()
	for range 10 {
		s.w.OnLoss(s.now, s.mtu, false)
	}
	s.rounds(2, 130*us)
	if got := s.w.Window(); got < top-10*s.mtu {
		t.Errorf("window %d of %d after a loss of ten packets", got, top)
	}
	// The queue may have become shorter: its longest delay is forgotten with time.
	s.rounds(20, 130*us)
	s.fill()
	top = s.w.Window()
	s.w.OnLoss(s.now, s.mtu, false)
	s.rounds(2, 130*us)
	s.want(top*88/100, top/50)
}

func TestWindowHeavyLossOfSmallWindowIsRandom(t *testing.T) {
	// F1, 30 % loss: a window of twenty packets does not overflow a queue.
	s := newScript(t, Config{})
	s.rounds(4, 40*us)
	s.shrinkTo(20 * s.mtu)
	s.fill()
	for range 6 {
		s.w.OnLoss(s.now, s.mtu, false)
	}
	left := s.w.Window()
	s.rounds(1, 40*us)
	if s.w.fastTop != s.w.ceil || s.w.Window() < left {
		t.Errorf("window %d of %d, fast increase to %d", s.w.Window(), left, s.w.fastTop)
	}
}

func TestWindowHeavyLossIsCongestionWithoutDelay(t *testing.T) {
	// A queue of a few packets shows no delay, but the loss of a fifth of the round shows
	// congestion.
	s := newScript(t, Config{})
	s.rounds(4, 40*us)
	s.fill()
	n := s.w.InFlight() / s.mtu
	for range n / 5 {
		s.w.OnLoss(s.now, s.mtu, false)
	}
	left := s.w.Window()
	s.rounds(1, 40*us)
	if s.w.fastTop > int32(left+s.mtu) {
		t.Errorf("fast increase up to %d after a loss of 20 %%", s.w.fastTop)
	}
	// After a time without congestion, fast increase is free again.
	s.rounds(cleanRounds+2, 40*us)
	if s.w.fastTop != s.w.ceil {
		t.Error("fast increase stays limited for ever")
	}
}

func TestWindowFloorIsOneMTU(t *testing.T) {
	// T33, F35: many losses and refusals leave a window of one packet.
	s := newScript(t, Config{})
	s.rounds(4, 50*us)
	for range 5000 {
		s.fill()
		s.now += us
		s.w.OnNack(s.now, s.mtu, true)
		if s.w.InFlight() >= s.mtu {
			s.w.OnLoss(s.now, s.mtu, false)
		}
	}
	s.want(s.mtu, 0)
}

func TestWindowOverTargetShrinks(t *testing.T) {
	// UE 3.6.13, multiplicative decrease on a path that does not mark: while a queue stays
	// the window shrinks, to one MTU in the end.
	s := newScript(t, Config{})
	s.rounds(3, 50*us)
	last := s.w.Window()
	for rtt := 400 * us; rtt < 4*ms; rtt += 100 * us {
		s.rounds(1, rtt)
		if s.w.Window() > last+s.mtu {
			t.Fatalf("grew to %d at %v", s.w.Window(), rtt)
		}
		// Quick adapt may shrink it further, but only above 4 targets.
		if rtt < 750*us && s.w.Window() < last/2-s.mtu {
			t.Fatalf("from %d to %d in one round at %v", last, s.w.Window(), rtt)
		}
		last = s.w.Window()
	}
	if last > 16*s.mtu {
		t.Errorf("window still %d", last)
	}
}

func TestWindowShrinksOncePerTwoRounds(t *testing.T) {
	// Packets that were in flight when the window was cut do not cut it again.
	s := newScript(t, Config{})
	s.rounds(2, 50*us)
	s.rounds(1, 500*us)
	cuts := 0
	for range 8 {
		before := s.w.Window()
		s.rounds(1, 500*us)
		if s.w.Window() < before*9/10 {
			cuts++
		}
	}
	if cuts < 3 || cuts > 4 {
		t.Errorf("%d cuts in 8 rounds over target, want 4", cuts)
	}
}

func TestWindowCutIsAnEighthAtLeast(t *testing.T) {
	// Near the target NSCC's decrease vanishes, and shares would never become equal.
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	for range 20 {
		before := s.w.Window()
		if s.rounds(1, 320*us); s.w.Window() < before {
			s.want(before*88/100, before/50)
			return
		}
	}
	t.Error("no cut")
}

func TestWindowAfterCutOldLossesAreNoNews(t *testing.T) {
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	for !s.w.after {
		s.rounds(1, 500*us)
	}
	before := s.w.Window()
	for range 100 { // of those sent before the cut
		s.w.OnLoss(s.now, s.mtu, false)
	}
	s.want(before, 0)
}

func TestWindowSmallWindowsGetMoreDelay(t *testing.T) {
	// Of two windows that see the same queue the larger one yields, so shares become equal.
	big, small := newScript(t, Config{}), newScript(t, Config{})
	small.shrinkTo(8 * small.mtu)
	for range 6 {
		big.rounds(1, 330*us)
		small.rounds(1, 330*us)
	}
	if big.w.Window() > 900<<10 {
		t.Errorf("the large window is still %d", big.w.Window())
	}
	if small.w.Window() < 8*small.mtu {
		t.Errorf("the small window is down to %d", small.w.Window())
	}
}

func TestWindowNoiseDoesNotShrink(t *testing.T) {
	// A thread that loses its processor delays some packets by hundreds of microseconds,
	// but never all packets of a round trip.
	s := newScript(t, Config{})
	s.rounds(4, 60*us)
	for i := range 200 {
		s.roundWith(ack{rtt: func(k int) time.Duration {
			if (k+i)%4 != 0 {
				return 700 * us
			}
			return 80 * us
		}})
	}
	s.want(1<<20, 0)
}

func TestWindowStallDoesNotShrink(t *testing.T) {
	// A receiver pauses for 20 ms now and then (garbage collection, a paused VM): there is
	// one round of large samples, then the samples are as before.
	s := newScript(t, Config{})
	s.rounds(4, 60*us)
	for range 20 {
		s.rounds(1, 20*ms)
		s.rounds(30, 60*us)
		if s.w.Window() < 1<<19 {
			t.Fatalf("window %d after a stall", s.w.Window())
		}
	}
}

func TestWindowApplicationLimitedIsNotCongested(t *testing.T) {
	// Sleeping peers answer late. A window that is hardly used is not the cause.
	s := newScript(t, Config{})
	for range 100 {
		s.w.OnSend(s.now, s.mtu)
		s.now += 600 * us
		s.w.OnAck(s.now, s.mtu, 600*us, false, 0, false)
	}
	s.want(1<<20, 0)
}

func TestWindowMarksBelowTargetHold(t *testing.T) {
	// UE 3.6.13: with M and a delay below target, load balancing acts, and only eta is
	// added (F35, T33: all CE).
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	s.shrinkTo(128 << 10)
	for range 20 {
		s.roundWith(ack{rtt: func(int) time.Duration { return 60 * us }, ce: true})
	}
	s.want(128<<10+20*15*s.mtu/100*60/150, s.mtu/2)
}

func TestWindowMarksOverTargetShrinkToFloor(t *testing.T) {
	// UE 3.6.13: M and delay over target: decrease, to one MTU if it lasts
	// (F35: at least one packet per RTT).
	s := newScript(t, Config{Marks: true})
	for range 60 { // never a short RTT, but marks: the path is not taken for long
		s.roundWith(ack{rtt: func(int) time.Duration { return 900 * us }, ce: true})
	}
	if got := s.w.Window(); got > 2*s.mtu {
		t.Errorf("window %d under lasting marks", got)
	}
	if !s.w.CanSend(s.mtu) && s.w.InFlight() == 0 {
		t.Error("blocked with nothing in flight")
	}
}

func TestWindowMarkingPathTrustsMarks(t *testing.T) {
	// UE 3.6.13: without M and with a delay above target the queue drains: fair increase of
	// 5 MTU per RTT.
	s := newScript(t, Config{Marks: true})
	s.rounds(2, 60*us)
	s.shrinkTo(256 << 10)
	s.rounds(1, 400*us)
	before := s.w.Window()
	s.rounds(10, 400*us)
	s.want(before+10*(5*s.mtu+15*s.mtu/100), 10*s.mtu)
}

func TestWindowQuickAdapt(t *testing.T) {
	// UE 3.6.13: if the delay is above 4 targets and little arrived, the window becomes the
	// bytes that a period of base_rtt + target_qdelay delivers at that rate.
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	s.rounds(4, 20*ms) // 1 MiB in 20 ms: 16 KiB in 300 µs
	if got := s.w.Window(); got > 40<<10 || got < 4<<10 {
		t.Errorf("window %d, want about 16 KiB", got)
	}
}

func TestWindowTrimmedTriggersQuickAdapt(t *testing.T) {
	// UE 3.6.13 OnNACK: a trimmed packet counts as lost and causes quick adapt.
	s := newScript(t, Config{})
	s.rounds(3, 60*us)
	s.fill()
	n := s.w.InFlight() / s.mtu
	for range n - 20 {
		s.w.OnNack(s.now, s.mtu, true)
	}
	s.now += 300 * us
	s.w.OnAck(s.now, 20*s.mtu, 60*us, false, 0, false)
	s.want(22*s.mtu, 3*s.mtu) // and the increase by this ACK
}

func TestWindowTrimmedNeedsNoDelay(t *testing.T) {
	// UE 3.6.13: trigger_qa. The delay of trimmed packets is not measured.
	s := newScript(t, Config{})
	s.rounds(3, 60*us)
	s.fill()
	s.w.OnNack(s.now, s.mtu, true)
	for s.w.InFlight() > 0 { // the rest takes 20 ms
		s.now += 344 * us
		s.w.OnAck(s.now, min(16*s.mtu, s.w.InFlight()), 60*us, false, 0, false)
	}
	if got := s.w.Window(); got > 40<<10 {
		t.Errorf("window %d, want about 16 KiB", got)
	}
}

func TestWindowTrimsTarget(t *testing.T) {
	// UE 3.6.13: target_qdelay is 0.75 · config_base_rtt where queues trim, so a delay
	// between the two targets shrinks the window only there.
	without, with := newScript(t, Config{}), newScript(t, Config{Trims: true})
	between := without.w.base + (without.w.target+with.w.target)/2
	if d := 4 * with.w.target; d < 3*without.w.target-8 || d > 3*without.w.target {
		t.Errorf("targets %v and %v", without.w.target, with.w.target)
	}
	for _, s := range []*script{without, with} {
		s.rounds(2, 60*us)
		s.rounds(4, between)
	}
	without.want(1<<20, 0)
	if got := with.w.Window(); got >= 1<<20 {
		t.Errorf("window %d over the target", got)
	}
}

func TestWindowTrimsQuickAdaptNeedsATrim(t *testing.T) {
	// UE 3.6.13: the delay threshold of quick adapt is infinite where queues trim. A delay
	// of 20 ms does not come from queues that trim; ordinary decreases handle it.
	s := newScript(t, Config{Trims: true})
	s.rounds(2, 60*us)
	s.rounds(4, 20*ms)
	if got := s.w.Window(); got < 1<<20/4 {
		t.Errorf("window %d without a trimmed packet", got)
	}
	s.w.OnNack(s.now, 0, true)
	s.rounds(2, 20*ms)
	if got := s.w.Window(); got > 40<<10 {
		t.Errorf("window %d after a trimmed packet, want about 16 KiB", got)
	}
}

func TestWindowOtherNackIsNoCongestion(t *testing.T) {
	// UE 3.6.13: NACKs for other reasons leave the window as it is.
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	s.fill()
	in := s.w.InFlight()
	s.w.OnNack(s.now, s.mtu, false)
	s.want(1<<20, 0)
	if s.w.InFlight() != in-s.mtu {
		t.Errorf("in flight %d, want %d", s.w.InFlight(), in-s.mtu)
	}
}

func TestWindowTimeouts(t *testing.T) {
	s := newScript(t, Config{})
	s.rounds(4, 60*us)
	s.fill()
	// The first timeout, of 50 tail packets, shrinks the window by their bytes.
	s.now += 6 * ms
	for range 50 {
		s.w.OnLoss(s.now, s.mtu, true)
		s.now += us
	}
	s.want(1<<20-50*s.mtu, 0)
	// They are sent again and an ACK comes: nothing else changes.
	for range 50 {
		s.w.OnSend(s.now, s.mtu)
	}
	s.w.OnAck(s.now, s.mtu, 0, false, 0, false)
	s.now += 6 * ms
	s.w.OnLoss(s.now, s.mtu, true)
	if got := s.w.Window(); got < 1<<19 {
		t.Fatalf("window %d after single timeouts with an ACK between", got)
	}
	// No ACK comes before the next timeout: the window is one MTU.
	s.now += 12 * ms
	s.w.OnLoss(s.now, s.mtu, true)
	s.want(s.mtu, 0)
	// Other packets in flight change nothing, and growth resumes.
	for s.w.InFlight() >= s.mtu {
		s.w.OnLoss(s.now, s.mtu, true)
	}
	s.want(s.mtu, 0)
	s.rounds(20, 60*us)
	if got := s.w.Window(); got < 16*s.mtu {
		t.Errorf("window %d, 20 rounds after the heal", got)
	}
}

func TestWindowRTO(t *testing.T) {
	w := New(Config{RTOInit: 5 * ms, RTOMax: 500 * ms})
	if w.RTO() != 5*ms || w.SRTT() != 0 {
		t.Fatalf("before a sample: RTO %v SRTT %v", w.RTO(), w.SRTT())
	}
	now := time.Duration(0)
	feed := func(rtt time.Duration, n int) {
		for range n {
			now += rtt
			w.OnSend(now, 1000)
			w.OnAck(now, 1000, rtt, false, 0, false)
		}
	}
	feed(50*us, 50)
	if got := w.RTO(); got < 5*ms || got > 5100*us {
		t.Errorf("RTO %v at 50 µs, want RTOInit over the RTT", got)
	}
	feed(100*ms, 100)
	if got := w.RTO(); got < 190*ms || got > 210*ms {
		t.Errorf("RTO %v at a steady 100 ms, want 200 ms", got)
	}
	feed(20*ms, 3) // the deviation counts four times (RFC 6298)
	if want := w.srtt + 4*w.rttvar; w.RTO() != min(want, 500*ms) {
		t.Errorf("RTO %v, want %v", w.RTO(), want)
	}
	feed(5*time.Second, 20)
	if got := w.RTO(); got != 500*ms {
		t.Errorf("RTO %v over RTOMax", got)
	}
}

func TestWindowLearnsLongPath(t *testing.T) {
	// A path of 10 ms is not a queue of ours. After a while the window learns that (F36:
	// windows per RTT).
	s := newScript(t, Config{})
	s.rounds(150, 10*ms)
	s.want(1<<20, 0)
	if s.w.base != 10*ms {
		t.Errorf("base RTT %v, want 10 ms", s.w.base)
	}
	// A shorter sample corrects it at once, down to config_base_rtt.
	s.rounds(2, 4*ms)
	if s.w.base != 4*ms {
		t.Errorf("base RTT %v, want 4 ms", s.w.base)
	}
	s.rounds(2, 30*us)
	if s.w.base != defaultBaseRTT {
		t.Errorf("base RTT %v, want config_base_rtt", s.w.base)
	}
}

func TestWindowPathThatWasShortIsNotLong(t *testing.T) {
	// A lasting queue of others must not become our base RTT, or many senders would raise
	// each other's.
	s := newScript(t, Config{})
	s.rounds(2, 60*us)
	s.shrinkTo(2 * s.mtu)
	for range 100 {
		s.rounds(1, 700*us)
		if s.w.base != defaultBaseRTT {
			t.Fatalf("base RTT %v", s.w.base)
		}
	}
}

func TestWindowFarPathNeedsNoLearning(t *testing.T) {
	// F36: ACKs are 200 ms late from the start, after five needless timeouts.
	s := newScript(t, Config{})
	s.fill()
	for _, at := range []time.Duration{5 * ms, 15 * ms, 35 * ms, 75 * ms, 155 * ms} {
		s.w.OnLoss(s.now+at, s.mtu, true)
	}
	s.want(s.mtu, 0)
	s.now += 200 * ms
	s.w.OnAck(s.now, s.mtu, 200*ms, false, 0, false)
	s.want(1<<20, 0)
	s.rounds(20, 200*ms)
	s.want(1<<20, 0)
}

func TestWindowForgetsLeastRTT(t *testing.T) {
	s := newScript(t, Config{})
	s.w.OnSend(s.now, s.mtu)
	s.w.OnAck(s.now, s.mtu, 10*us, false, 0, false)
	for range 11 * 20 {
		s.now += 50 * ms
		s.w.OnSend(s.now, s.mtu)
		s.w.OnAck(s.now, s.mtu, 90*us, false, 0, false)
	}
	if got := s.w.MinRTT(); got != 90*us {
		t.Errorf("least RTT %v after 11 s, want 90 µs", got)
	}
}

func TestWindowFlowControl(t *testing.T) {
	// UE 3.6.13: rcv_cwnd_pend 64 removes 2048 bytes for 4096 bytes acknowledged; rc
	// restores the window.
	w := New(Config{MTU: 4096, Window: 1 << 20})
	for range 64 {
		w.OnSend(0, 4096)
	}
	in := w.InFlight()
	w.OnAck(ms, 4096, 50*us, false, 64, false)
	if got, want := w.Window(), in-4096-2048; got < want || got > want+700 { // eta of the round
		t.Fatalf("window %d, want %d", got, want)
	}
	w.OnAck(ms, 4096, 50*us, false, 127, false)
	if got, want := w.Window(), in-2*4096-4096*127/128; got > want+32 || got < want-2048 {
		t.Errorf("window %d, want about %d", got, want)
	}
	for range 50 {
		w.OnAck(ms, 4096, 50*us, false, 127, false)
	}
	if got := w.Window(); got > 12*4096 {
		t.Errorf("window %d under full pressure", got)
	}
	w.OnAck(2*ms, 4096, 50*us, false, 0, true)
	if got := w.Window(); got != 1<<20 {
		t.Errorf("window %d after rc, want the old one", got)
	}
	w.OnAck(2*ms, 4096, 50*us, false, 0, true) // once only
	if w.saved != 0 {
		t.Error("the saved window outlives its use")
	}
}

func TestWindowBoundsHoldForAnyInput(t *testing.T) {
	// T10, T11, T33: whatever a peer reports, in whatever order, the window stays between
	// one MTU and its upper bound, and the counts of bytes agree.
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{
			MTU:     rapid.SampledFrom([]int{1132, 4204, 8300}).Draw(t, "mtu"),
			Window:  rapid.SampledFrom([]int{1, 16 << 10, 1 << 20, 1 << 30}).Draw(t, "window"),
			BaseRTT: rapid.SampledFrom([]time.Duration{0, 1, 150 * us, time.Second}).Draw(t, "base"),
			Marks:   rapid.Bool().Draw(t, "marks"),
		}
		w := New(cfg)
		cfg = cfg.withDefaults()
		now, inflight := time.Duration(0), 0
		part := func() int { return rapid.IntRange(0, inflight).Draw(t, "n") }
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 64).Draw(t, "packets") {
					n := rapid.IntRange(60, cfg.MTU).Draw(t, "size")
					if w.CanSend(n) {
						w.OnSend(now, n)
						inflight += n
					}
				}
			},
			"ack": func(t *rapid.T) {
				n := part()
				rtt := rapid.SampledFrom([]time.Duration{-time.Hour, 0, 1, 10 * us, 100 * us, ms, time.Second, time.Hour}).Draw(t, "rtt")
				pend := uint8(0)
				if rapid.IntRange(0, 9).Draw(t, "pressed") == 0 {
					pend = rapid.Uint8().Draw(t, "pend")
				}
				w.OnAck(now, n, rtt, rapid.Bool().Draw(t, "ce"), pend, rapid.Bool().Draw(t, "rc"))
				inflight -= n
			},
			"loss": func(t *rapid.T) {
				n := part()
				w.OnLoss(now, n, rapid.Bool().Draw(t, "rto"))
				inflight -= n
			},
			"nack": func(t *rapid.T) {
				n := part()
				w.OnNack(now, n, rapid.Bool().Draw(t, "trimmed"))
				inflight -= n
			},
			"gone": func(t *rapid.T) {
				n := part()
				w.OnGone(n)
				inflight -= n
			},
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "d"))
			},
			"": func(t *rapid.T) {
				if got := w.Window(); got < cfg.MTU || got > cfg.Window {
					t.Fatalf("window %d outside [%d,%d]", got, cfg.MTU, cfg.Window)
				}
				if w.InFlight() != inflight {
					t.Fatalf("in flight %d, want %d", w.InFlight(), inflight)
				}
				if inflight == 0 && !w.CanSend(cfg.MTU) {
					t.Fatal("blocked at rest")
				}
				if rto := w.RTO(); rto < cfg.RTOInit || rto > cfg.RTOMax {
					t.Fatalf("RTO %v outside [%v,%v]", rto, cfg.RTOInit, cfg.RTOMax)
				}
			},
		})
	})
}

func TestWindowTellsOfWrongCounts(t *testing.T) {
	w := New(Config{})
	w.OnSend(0, 1000)
	defer func() {
		if r := recover(); (r != nil) != invariant.On {
			t.Errorf("recovered %v with invariants on = %v", r, invariant.On)
		}
		if w.InFlight() > 0 {
			t.Errorf("in flight %d", w.InFlight())
		}
	}()
	w.OnAck(0, 1001, 0, false, 0, false)
	if w.InFlight() != 0 {
		t.Errorf("in flight %d, want it healed to 0", w.InFlight())
	}
}

func TestWindowAllocatesNothing(t *testing.T) {
	w := New(Config{})
	now := time.Duration(0)
	if got := testing.AllocsPerRun(1000, func() {
		now += 10 * us
		w.CanSend(1132)
		w.OnSend(now, 1132)
		w.OnSend(now, 1132)
		w.OnSend(now, 1132)
		w.OnLoss(now, 1132, false)
		w.OnNack(now, 1132, true)
		w.OnAck(now, 1132, 60*us, true, 3, false)
		w.RTO()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestWindowCacheLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	// docs/decisions/0011: sending touches one cache line, ACKs without trouble touch three.
	if got := unsafe.Sizeof(Window{}); got != 256 {
		t.Errorf("a Window takes %d bytes, want 256", got)
	}
	if got := unsafe.Offsetof(Window{}.start); got != 64 {
		t.Errorf("the second line of a Window begins at byte %d", got)
	}
	if got := unsafe.Offsetof(Window{}.minCur); got != 192 {
		t.Errorf("the last line of a Window begins at byte %d", got)
	}
}

func TestOldNewsShrinkNoMore(t *testing.T) {
	// A round without a sample uses the delay of the round before, as under heavy loss.
	// When no samples come any more, that delay no longer shows a queue, and the window
	// grows by an MTU per round trip.
	s := newScript(t, Config{})
	s.rounds(3, 100*us)
	s.rounds(2, 800*us)
	blind := func() {
		s.now += 20 * ms // both hosts are busy
		for left := s.w.InFlight(); left > 0; left = s.w.InFlight() {
			s.w.OnAck(s.now, min(left, 16*s.mtu), 0, false, 0, false)
		}
		s.fill()
	}
	s.fill()
	for range 3 { // the samples of the round under way count, and those of one before
		blind()
	}
	before := s.w.Window()
	for range 10 {
		blind()
	}
	if got := s.w.Window(); got < min(before+9*s.mtu, int(s.w.ceil)) {
		t.Errorf("window %d, and %d after ten rounds without a sample", before, got)
	}
}

func TestSpuriousTimeoutIsTakenBack(t *testing.T) {
	// F17: the peer was busy for two timeouts, which leave one MTU. If it turns out soon
	// that nothing was lost, the window becomes what it was. It does not if that turns out
	// later, or for a loss that a gap showed.
	timeouts := func() *script {
		s := newScript(t, Config{})
		s.rounds(3, 100*us)
		s.fill()
		n := s.w.InFlight()
		s.now += 5 * ms
		for range n / s.mtu {
			s.w.OnLoss(s.now, s.mtu, true)
		}
		s.w.OnSend(s.now, s.mtu)
		s.now += 10 * ms
		s.w.OnLoss(s.now, s.mtu, true)
		s.want(s.mtu, 0)
		s.w.OnSend(s.now, s.mtu)
		s.now += ms
		return s
	}
	s := timeouts()
	s.w.OnSpurious()
	s.w.OnAck(s.now, s.mtu, 0, false, 0, false)
	s.want(int(s.w.ceil), 0)

	s = timeouts()
	s.rounds(undoRounds, 100*us)
	before := s.w.Window()
	s.w.OnSpurious()
	s.want(before, 0)

	s = newScript(t, Config{})
	s.rounds(3, 100*us)
	s.fill()
	s.w.OnLoss(s.now, 10*s.mtu, false)
	before = s.w.Window()
	s.w.OnSpurious()
	s.want(before, 0)
}

func TestTakenWidensTheWindow(t *testing.T) {
	// F17: a thread that never sleeps shares the processor of this side. The socket of the peer
	// fills up, and is empty after each slice.
	cfg := Config{Window: 256 << 10}
	taken := func(s *script, n int, least time.Duration) {
		for range n {
			s.w.OnTaken()
			s.roundWith(ack{rtt: func(i int) time.Duration {
				if i == 0 {
					return least
				}
				return 3 * ms
			}})
		}
	}
	s := newScript(t, cfg)
	s.rounds(3, 100*us)
	taken(s, 60, 100*us)
	s.want(wideFactor*cfg.Window, 0)

	// Afterwards it is as before.
	s.rounds(wideRounds*int(wideRound/(100*us)+10), 100*us)
	s.want(cfg.Window, 0)

	// A queue of the path stands: it yields.
	s = newScript(t, cfg)
	s.rounds(3, 100*us)
	taken(s, 60, 3*ms)
	if got := s.w.Window(); got > cfg.Window/4 {
		t.Errorf("window %d in spite of a queue", got)
	}
}

// What trimmed packets took from the window comes back when they pass by another path without a queue, but no more
// than that, and nothing from before a cut.
func TestWindowPassed(t *testing.T) {
	s := newScript(t, Config{Trims: true})
	s.rounds(3, 60*us)
	full := s.w.Window()
	trim := func() {
		s.fill()
		for range 20 {
			s.w.OnNack(s.now, s.mtu, true)
		}
		s.want(full-20*s.mtu, 0)
	}
	trim()
	s.w.OnPassed(20*s.mtu, s.w.base+s.w.target) // the other paths have a queue, too
	s.want(full-20*s.mtu, 0)
	s.w.OnPassed(15*s.mtu, 60*us)
	if s.want(full-5*s.mtu, 0); s.w.lost != uint32(5*s.mtu) {
		t.Errorf("%d bytes count as lost, want %d", s.w.lost, 5*s.mtu)
	}
	s.w.OnPassed(20*s.mtu, 60*us)
	s.want(full, 0)
	trim()
	s.w.cut(int64(full / 2))
	s.w.OnPassed(20*s.mtu, 60*us)
	s.want(full/2, 0)
}

func TestPassedAfterATimeoutWasUndone(t *testing.T) {
	s := newScript(t, Config{Trims: true, Window: 1 << 20})
	s.rounds(3, 60*us)
	s.w.cut(int64(s.w.Window() / 2))
	before := s.w.Window()
	s.fill()
	s.w.OnLoss(s.now, s.mtu, true)
	for range 20 {
		s.w.OnNack(s.now, s.mtu, true)
	}
	s.w.OnSpurious() // gives all of it back
	s.w.OnPassed(20*s.mtu, 60*us)
	if got := s.w.Window(); got != before {
		t.Errorf("the window is %d, and was %d before what trims took had come back twice", got, before)
	}
}
