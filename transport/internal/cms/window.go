package cms

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/internal/invariant"
)

// Constants of NSCC (UE 3.6.13, Table 3-76). Those marked † are known only from the
// simulator of the specification's authors.
const (
	refBDP   = 150_000               // bytes: 100 Gb/s · 12 µs, for which the scaling factor a is 1
	refDelay = 12 * time.Microsecond // the target_qdelay for which the scaling factor b is 1

	propMTU      = 4   // alpha: MTUs per RTT, times a·b, without delay
	fairMTU      = 5   // fi †: MTUs per RTT, times a
	etaPercent   = 15  // eta †: hundredths of an MTU per RTT, times a
	fastPercent  = 25  // fi_scale †: hundredths of the window per RTT, times a
	gammaPercent = 80  // gamma †: hundredths of the excess delay that a decrease removes
	keepPercent  = 50  // max_md_jump †: hundredths of the window that a decrease leaves at least
	qaGate       = 3   // qa_gate †: quick adapt below 1/8 of MaxWnd
	qaDelay      = 4   // qa_threshold in target_qdelay (tail drop at 5 BDP)
	fixed        = 16  // fraction bits of fixed point factors
	percent      = 100 // the unit of the constants above
)

// What the queues of the path do, by Config.
const (
	marks = 1 << iota
	trims
)

// Constants that UE does not have. They are arbitrary unless a comment says otherwise.
const (
	// A delay up to 1/zeroPart of the base RTT counts as 0. The simulator's 1 µs is below
	// the noise of any kernel.
	zeroPart = 10
	// The path is taken for long, and not for congested, after longRounds round trips in a
	// row with a window of at most smallMTU packets, during which no sample of the last
	// minWindow was under target. A first sample of farRTT says so at once: few queues hold
	// that much.
	longRounds = 8
	smallMTU   = 4
	farRTT     = 50 * time.Millisecond
	// minWindow is half the time for which the least RTT is remembered. A minimum for life
	// would keep a forged sample or an old route for life. BBR uses 5 to 10 s.
	minWindow = 5 * time.Second
	// cutPercent is the least that a decrease removes, in hundredths of the window. Near
	// the target the decreases and increases of NSCC both vanish, so that windows would not
	// become equal.
	cutPercent = 12
	// A round that lost more than 1/lossPart of its bytes counts as congested whatever the
	// delay says. Random loss of 5 % stays below that.
	lossPart = 8
	// minA, maxA and maxB bound the scaling factors, in hundredths. The RTT of hosts would
	// make b 12, and the speed that corresponds to the largest window would make a 5. Both
	// overshoot when several senders share a slower line.
	minA, maxA, maxB = 25, 100, 100
	// undoRounds is the number of rounds, including the one of the timeout, in which a
	// timeout may turn out to be needless.
	undoRounds = 2
	// After cleanRounds rounds without congestion, fast increase may again exceed the
	// window at which congestion lost packets.
	cleanRounds = 64
	// A queue of at least fullPercent hundredths of the longest one counts as full. The
	// longest one shrinks by 2^-deepestShift each round that does not reach it.
	fullPercent, deepestShift = 88, 6
	// While others take the processor of this host, and for wideRounds after that, the window may be
	// wideFactor times as large: the peer then has something to do during a slice of another
	// thread, 0.7 to 4 ms.
	wideRounds = 12
	wideFactor = 8
	// A wide window fills the socket of the peer, which empties it while this side waits. So that
	// this does not count as a queue of the path, which would stand, the least delay is that of
	// some slices: a round lasts for wideRound at least.
	wideRound = 8 * time.Millisecond
)

// A Window is the congestion window of one CCC: NSCC's gate, increases, decreases and
// quick adapt. Its methods are the congestion control interface that package pds declares.
// Every byte that OnSend counts must leave by exactly one of OnAck, OnLoss, OnNack and
// OnGone. An ACK for a packet that was reported lost, and not sent again since, reports no
// bytes.
//
// The window increases with every ACK. It decreases once per round trip, by what the whole
// round showed. It differs from UE 3.6.13 in the following:
//
//   - The delay that may shrink the window is the least one of the last one to two round
//     trips, not an average (the specification leaves averaging to implementations). A
//     queue delays every packet, a thread that lost its processor only some.
//   - base_rtt does not follow samples below config_base_rtt. A sender that starts late
//     sees the queue of the others in its minimum; with a target above that it would
//     starve the others (a known problem of Vegas). base_rtt follows samples above
//     config_base_rtt only when there was no short round trip for seconds and the window
//     is tiny (pathLength), or at once from 50 ms on.
//   - target_qdelay is at least the mean deviation of the samples, which jitter causes. It
//     is larger for small windows: by 7/8 at one packet, falling with the root of the
//     window. Of senders that see the same queue, those with larger windows yield, so
//     windows become equal.
//   - On paths that do not mark, delay above target counts as a mark while this window,
//     and not the application, limits what is sent.
//   - A decrease removes at least an eighth.
//   - A round that lost packets decreases the window if the queue was as long as the
//     longest one of the rounds before, or if a large window lost more than an eighth.
//     Fast increase then ends below that window for the next rounds. A shorter queue did
//     not overflow, so other losses count as random: they shrink the window only by the
//     lost bytes.
//   - The scaling factors a and b are at most 1. With the RTTs of hosts instead of
//     switches they would overshoot.
//   - An ACK without a valid sample lets the window grow by one MTU per RTT.
//   - Packets that were in flight when the window was cut do not cut it again. A second
//     timeout without any ACK in between leaves one MTU.
//   - A timeout that turns out to be about late answers is undone (OnSpurious).
//   - A round without a sample cuts the window at most once.
//
// The model in link_test.go measures the effect of each of these; its tables are in
// testdata.
type Window struct {
	// Sending touches only the first cache line. ACKs without trouble, and the rounds that
	// they end, touch it and the next two (docs/decisions/0011).
	cwnd     int64
	inflight int64
	srtt     time.Duration // smoothed RTT, 0 before the first sample
	sinceAR  uint32        // bytes sent since OnSend last asked for AR

	mtu, ceil  int32  // Config.MTU, fixed by New; the largest window, Config.Window unless it is wide
	ackTrigger int32  // fixed by New
	due        uint32 // bytes that were in flight when the round began
	fastTop    int32  // fast increase ends at this window
	rtoInit    uint32 // µs; fixed by New

	clean   uint8 // rounds without congestion in a row
	long    uint8 // rounds in a row that look like a long path
	rtoRuns uint8 // timeouts since an ACK last reported bytes, at most 2
	trimmed uint8 // trigger_qa: rounds in which a trimmed packet still causes quick adapt
	queues  uint8 // marks, trims; fixed by New
	wide    uint8 // rounds for which ceil is still wideFactor times Config.Window, 0: it is not
	fast    bool  // fast increase is on
	after   bool  // this round follows a cut: its ACKs are of packets sent before the cut
	full    bool  // this round filled the window
	marked  bool  // this round saw CE
	blind   bool  // the round before had no sample
	undoFor uint8 // rounds for which undo stays valid

	// The current round. It lasts until the bytes that were in flight at its start have
	// left, and for at least one smoothed RTT.
	start time.Duration
	end   time.Duration
	left  uint32 // bytes that left flight in the round
	acked uint32 // of these: bytes that arrived
	lost  uint32 // of these: bytes lost

	rtoMax  uint32        // µs; fixed by New
	inc     int64         // increase that is not applied yet, in byte²
	cfgBase time.Duration // Config.BaseRTT; fixed by New
	top     int32         // cwnd when the round began
	aimCwnd int32         // the cwnd that target was computed from
	undo    int32         // cwnd before a recent timeout, 0 if there was none
	deepest int32         // delay of the longest standing queue of the last rounds, ns

	rttvar   time.Duration // mean deviation of RTTs
	base     time.Duration // base_rtt, at least cfgBase
	target   time.Duration // target_qdelay of this round
	aimPath  time.Duration // the result of path that target was computed from
	least    time.Duration // least RTT of this round and the one before
	leastCur time.Duration // least RTT of this round
	minRTT   time.Duration // least RTT of this minWindow and the one before
	minEnd   time.Duration // when this minWindow ends

	minCur  time.Duration // least RTT of this minWindow
	longRTT time.Duration // least RTT when the rounds that long counts began
	lastRTO time.Duration // when the last timeout counted
	fiCount int32         // bytes acknowledged in a row without delay

	scaleA    int32  // scaling a, fixed point; fixed by New
	prop      int32  // proportional increase without delay, bytes per RTT; fixed by New
	targetInv uint32 // 2³²/target, 0 if not yet computed
	saved     int32  // cwnd before destination flow control, 0 if that is not in force

	taken int32 // what trimmed packets took from the window since the last cut, and OnPassed did not give back

	_ [16]byte // so that the heap puts it at a cache line
}

// New returns the window of a new CCC.
func New(cfg Config) *Window {
	cfg = cfg.withDefaults()
	w := &Window{
		mtu:        int32(cfg.MTU),
		ceil:       int32(cfg.Window),
		ackTrigger: int32(cfg.AckTrigger),
		cfgBase:    cfg.BaseRTT,
		rtoInit:    micros(cfg.RTOInit),
		rtoMax:     micros(cfg.RTOMax),
		base:       cfg.BaseRTT,
	}
	if cfg.Marks {
		w.queues |= marks
	}
	if cfg.Trims {
		w.queues |= trims
	}
	// Scaling factors, fixed point. MaxWnd is 1.5 BDP.
	a := int64(cfg.Window) * 2 / 3 << fixed / refBDP
	a = min(max(a, minA<<fixed/percent), maxA<<fixed/percent)
	b := min(int64(cfg.BaseRTT)<<fixed/int64(refDelay), maxB<<fixed/percent)
	w.scaleA = int32(a)
	w.prop = int32(propMTU * int64(cfg.MTU) * (a * b >> fixed) >> fixed)
	w.cwnd, w.top, w.fastTop = int64(w.ceil), w.ceil, w.ceil
	w.retarget()
	return w
}

// micros is a time in µs, as Window keeps times that do not change.
func micros(d time.Duration) uint32 { return uint32(min(d/time.Microsecond, math.MaxUint32)) }

// CanSend reports whether a packet of n nominal bytes may leave now: it fits into the
// window, or at most half a window is in flight. The latter matters where a window holds less than
// two packets: control packets of a PDC that is gone must not stop the others, which share it.
func (w *Window) CanSend(n int) bool {
	return w.inflight+int64(n) <= w.cwnd || w.inflight <= w.cwnd/2
}

// OnSend counts a packet of n nominal bytes that leaves now, for the first time or again.
// It reports whether the packet should ask for an immediate ACK because the window is
// (nearly) closed or too small for the peer's ACK_Gen_Trigger.
func (w *Window) OnSend(_ time.Duration, n int) (wantAR bool) {
	w.inflight += int64(n)
	w.sinceAR += uint32(n)
	// UE 3.6.13 asks for AR on every packet that leaves less than an MTU of room. While the
	// window is full, that is the last packet that each ACK admits, and bursts that once
	// became small would stay small for ever. If half of the peer's trigger lies between
	// two ARs, bursts merge again; the rest is acknowledged one round later. With a window
	// below the trigger every packet asks, because the peer would not send an ACK unasked.
	//
	// The first packet asks, too, to get a sample before our own queue builds up.
	if w.cwnd < int64(w.ackTrigger) || w.srtt == 0 && w.inflight == int64(n) || w.cwnd-w.inflight < int64(w.mtu) && int64(w.sinceAR) >= min(w.cwnd/8, int64(w.ackTrigger)/2) {
		w.sinceAR = 0
		return true
	}
	return false
}

// OnAck processes an ACK. newly is the number of nominal bytes in flight that it reports as
// arrived. rtt is the round trip of the packet that it names, less the service time; zero
// or less without a valid sample. ce is the M flag; pend and restore are the fields
// rcv_cwnd_pend and rc. A peer that lies can make the window as large as its upper bound or
// as small as one MTU, but not more or less.
func (w *Window) OnAck(now time.Duration, newly int, rtt time.Duration, ce bool, pend uint8, restore bool) {
	n := int64(newly)
	if 2*w.inflight >= w.cwnd {
		w.full = true
	}
	w.leave(n)
	if n > 0 {
		w.acked += uint32(n)
		w.rtoRuns = 0
	}
	if ce {
		w.marked = true
	}
	if pend != 0 || restore {
		w.flowControl(n, int64(pend), restore)
	}
	if now >= w.end && w.left >= w.due {
		w.round(now)
	}
	switch {
	case rtt <= 0:
	case w.srtt == 0:
		w.first(now, rtt)
	default:
		w.sample(rtt)
	}
	if w.cwnd >= int64(w.ceil) || n == 0 {
		return
	}
	delay := max(rtt-w.base, 0)
	if w.wide > 0 && rtt > 0 {
		delay = max(min(rtt, w.least)-w.base, 0)
	}
	switch {
	case ce:
		// Congestion begins, or paths are unequal: the path choice reacts first.
	case pend != 0:
		// The receiver is short of room: no increase.
	case rtt <= 0:
		// There is no sample, because many packets were lost. The specification leaves the
		// window; here it grows by one MTU per round trip.
		w.inc += int64(w.mtu) * n
	case delay < w.target:
		w.increase(n, delay)
	case w.queues&marks != 0:
		w.inc += fairMTU * int64(w.mtu) * int64(w.scaleA) >> fixed * n // the queue drains: fair increase
	}
	if w.inc >= w.cwnd*int64(w.mtu) { // the increase is at least an MTU
		w.apply()
	}
}

// OnTaken widens the upper bound of the window for a while, because other threads take the
// processor of this host. The window follows the path as before, only slower.
func (w *Window) OnTaken() {
	if w.wide == 0 {
		if int64(w.ceil)*wideFactor > maxWindow {
			return
		}
		w.bound(int64(w.ceil) * wideFactor)
	}
	w.wide = wideRounds
}

// usual is Config.Window.
func (w *Window) usual() int64 {
	if w.wide > 0 {
		return int64(w.ceil) / wideFactor
	}
	return int64(w.ceil)
}

// bound changes the upper bound of the window.
func (w *Window) bound(n int64) {
	if w.fastTop == w.ceil {
		w.fastTop = int32(n)
	}
	w.ceil = int32(n)
	w.cwnd, w.fastTop, w.undo = min(w.cwnd, n), min(w.fastTop, w.ceil), min(w.undo, w.ceil)
}

// OnLoss processes n nominal bytes in flight that are taken for lost, by a timer if rto.
// The window shrinks by n (UE 3.6.13 OnInferredLoss): after a queue overflowed, the window
// is then exactly what got through. The end of the round decides whether it shrinks
// further.
func (w *Window) OnLoss(now time.Duration, n int, rto bool) {
	w.leave(int64(n))
	if rto && w.undo == 0 {
		w.undo, w.undoFor = int32(w.cwnd), undoRounds
	}
	if rto {
		w.timeout(now)
	}
	w.lose(int64(n))
}

// OnSpurious undoes a timeout, because an earlier transmission was answered after all, for
// example late by a busy host. The window becomes what it was before the timeout (RFC
// 4015).
func (w *Window) OnSpurious() {
	if int64(w.undo) > w.cwnd {
		w.cwnd, w.lost, w.after, w.taken = int64(w.undo), 0, false, 0
	}
	w.undo = 0
}

// OnNack processes the refusal of a packet of n nominal bytes. trimmed says that a switch
// trimmed it, at the last hop or before; without RCCC both count (UE 3.6.13 OnNACK): the
// window shrinks by n, and the end of the round runs quick adapt. Another refusal is no
// sign of congestion.
func (w *Window) OnNack(_ time.Duration, n int, trimmed bool) {
	w.leave(int64(n))
	if trimmed {
		w.trimmed = 2 // this round, which may be about to end, and the next
		was := w.cwnd
		w.lose(int64(n))
		w.taken += int32(was - w.cwnd)
	}
}

// OnPassed tells that packets of n nominal bytes that a switch had trimmed, not the last one of the path, arrived when they were
// sent again by another path. rtt is the round trip of the ACK that says so, which is not marked. If that is short the trimmed packets
// met the queue of a path that is slower than the others, not one of all: the window gets back what they took from it.
func (w *Window) OnPassed(n int, rtt time.Duration) {
	if rtt-w.base >= w.target {
		return
	}
	back := min(int64(n), int64(w.taken))
	w.taken -= int32(back)
	w.cwnd = min(w.cwnd+back, int64(w.ceil))
	w.lost -= uint32(min(back, int64(w.lost)))
}

// OnGone takes n nominal bytes out of flight. It is no sign of congestion.
func (w *Window) OnGone(n int) { w.leave(int64(n)) }

// SRTT is the smoothed round trip time, 0 before the first sample.
func (w *Window) SRTT() time.Duration { return w.srtt }

// MinRTT is the least round trip time of the last seconds, 0 before the first sample.
func (w *Window) MinRTT() time.Duration { return w.minRTT }

// RTO is the retransmission timeout without back-off: RTOInit before the first sample, then
// srtt + 4·rttvar (RFC 6298). After the first sample it is at least srtt + RTOInit, and at
// least twice srtt, because the last packets of a burst may be acknowledged a round trip
// late. It is at most RTOMax.
func (w *Window) RTO() time.Duration {
	return min(w.srtt+max(4*w.rttvar, time.Duration(w.rtoInit)*time.Microsecond, w.srtt), time.Duration(w.rtoMax)*time.Microsecond)
}

// Window is the congestion window in nominal bytes: at least one MTU, at most
// Config.Window.
func (w *Window) Window() int { return int(w.cwnd) }

// InFlight is the number of nominal bytes that OnSend counted and that have not left
// flight.
func (w *Window) InFlight() int { return int(w.inflight) }

// leave takes n bytes out of flight.
func (w *Window) leave(n int64) {
	w.inflight -= n
	w.left += uint32(n)
	if invariant.On && (n < 0 || w.inflight < 0) {
		invariant.Check(false, "cms: %d bytes left flight, %d more than were sent", n, -w.inflight)
	}
	// A wrong count corrects itself when nothing is in flight.
	w.inflight = max(w.inflight, 0)
}

// sample adds a round trip time.
func (w *Window) sample(rtt time.Duration) {
	dev := rtt - w.srtt
	w.srtt += dev >> 3
	if dev < 0 {
		dev = -dev
	}
	w.rttvar += (dev - w.rttvar) >> 2
	w.leastCur = min(w.leastCur, rtt)
	if rtt < w.least {
		w.least = rtt
		w.minCur = min(w.minCur, rtt)
		w.minRTT = min(w.minRTT, rtt)
		if rtt < w.base {
			w.base = max(rtt, w.cfgBase)
		}
	}
}

// first adds the first round trip time.
func (w *Window) first(now, rtt time.Duration) {
	w.srtt, w.rttvar = rtt, rtt/2
	w.minRTT, w.minCur, w.minEnd = rtt, rtt, now+minWindow
	w.least, w.leastCur = rtt, rtt
	if rtt >= farRTT { // the timeouts before it were needless
		w.base, w.cwnd = rtt, int64(w.ceil)
	}
	w.retarget()
	w.begin(now, false)
}

// noRTT means no sample.
const noRTT = time.Duration(math.MaxInt64)

// begin starts a round. after says that it follows a cut.
func (w *Window) begin(now time.Duration, after bool) {
	w.start, w.end = now, now+w.srtt
	if w.wide > 0 {
		w.end = now + max(w.srtt, wideRound)
	}
	w.top, w.due = int32(w.cwnd), uint32(w.inflight)
	w.left, w.acked, w.lost = 0, 0, 0
	w.after, w.full, w.marked = after, false, false
}

// round ends a round and changes the window by what the round showed.
func (w *Window) round(now time.Duration) {
	queue := w.least - w.base // the least delay of any packet of the round
	standing := w.least - w.minRTT
	cut := false
	if !w.after {
		// An ordinary round has nothing to decide.
		if (w.trimmed > 0 || w.lost > 0 || queue >= w.target) && w.decrease(now, queue, standing) {
			cut = true
		} else if w.clean++; w.clean >= cleanRounds {
			w.clean, w.fastTop = 0, w.ceil
		}
	}
	if standing > 0 || w.deepest != 0 {
		w.deepest = int32(min(max(int64(standing), int64(w.deepest)-int64(w.deepest)>>deepestShift), 1<<31-1))
	}
	if w.cwnd > smallMTU*int64(w.mtu) || w.marked || w.minRTT < w.base+max(w.cfgBase, w.base/4) {
		w.long = 0
	} else {
		w.pathLength()
	}
	// eta is per adjust period of config_base_rtt. A round may be shorter.
	if w.cwnd == int64(w.ceil) {
		w.inc = 0
	} else {
		w.inc += etaPercent * int64(w.mtu) * int64(w.scaleA) >> fixed / percent * w.cwnd * int64(min(now-w.start, w.cfgBase)) / int64(w.cfgBase)
		w.apply()
	}
	switch {
	case w.leastCur != noRTT:
		w.least, w.leastCur, w.blind = w.leastCur, noRTT, false
	case !w.blind:
		w.blind = true // use the delay of the round before
	default:
		// The last sample is two rounds old: it no longer changes the window.
		w.least = min(w.base, w.minRTT)
	}
	if now >= w.minEnd && !w.blind {
		w.minRTT, w.minCur = w.minCur, w.least
		w.minEnd = now + minWindow
	}
	if w.wide > 0 {
		if w.wide == 1 {
			w.bound(w.usual())
		}
		w.wide--
	}
	if w.trimmed > 0 {
		w.trimmed--
	}
	if w.undo != 0 {
		if w.undoFor--; w.undoFor == 0 {
			w.undo = 0
		}
	}
	if w.cwnd != int64(w.aimCwnd) || w.path() != w.aimPath {
		w.retarget()
	}
	w.begin(now, cut)
}

// decrease shrinks the window if the round saw congestion, and reports whether it did.
// queue is the least delay of the round; standing is the part of it that exceeds minRTT and
// so is not the path.
func (w *Window) decrease(now, queue, standing time.Duration) bool {
	over := queue >= w.target
	switch {
	case (w.trimmed > 0 || queue > qaDelay*w.target && w.full && w.queues&trims == 0) && w.quickAdapt(now):
	case over && (w.marked || w.full && w.queues&marks == 0):
		keep := percent - gammaPercent*int64(queue-w.target)/int64(queue)
		w.cut(int64(w.top) * min(max(keep, keepPercent), percent-cutPercent) / percent)
	case w.lost > 0 && ((standing > w.base/2 || queue > 0 && standing > w.base/8) && int64(standing)*percent >= int64(w.deepest)*fullPercent || w.cwnd > 64*int64(w.mtu) && int64(w.lost)*lossPart > int64(w.acked)+int64(w.lost)):
		w.cut(int64(w.top) * (percent - cutPercent) / percent)
		w.fastTop = int32(w.cwnd)
	default:
		return false
	}
	return true
}

// cut shrinks the window to n bytes, unless the losses of the round already shrank it
// further, and ends fast increase.
func (w *Window) cut(n int64) {
	w.cwnd = max(min(n, w.cwnd), int64(w.mtu))
	w.inc, w.taken = 0, 0
	w.fast, w.fiCount, w.clean = false, 0, 0
}

// pathLength counts rounds in a row with a tiny window and a steady delay above target
// without marks. Such a delay comes from the path, or from a queue of others that this
// window cannot shorten. After longRounds of them it becomes base_rtt.
func (w *Window) pathLength() {
	if off := w.least - w.longRTT; w.long == 0 || off > w.longRTT/8 || off < -w.longRTT/8 {
		w.long, w.longRTT = 0, w.least
	}
	if w.long++; w.long == longRounds {
		w.base, w.long = w.longRTT, 0
		w.fastTop = w.ceil // the limit was set because of the path, not of congestion
	}
}

// path is the part of the target delay that depends on the path: its base RTT and jitter.
func (w *Window) path() time.Duration {
	least := w.cfgBase
	if w.queues&trims != 0 {
		least -= least / 4
	}
	return max(least, w.base/4, w.rttvar)
}

// retarget computes the target delay. Its root and quotients are expensive, so it runs once
// per round at most, and only if path or window changed.
func (w *Window) retarget() {
	path := w.path()
	w.aimPath, w.aimCwnd = path, int32(w.cwnd)
	w.target = path + path*7/time.Duration(math.Sqrt(float64(64*w.cwnd/int64(w.mtu))))
	w.targetInv = 0
}

// increase is fast increase on a path without delay, and proportional increase (UE 3.6.13).
// delay is less than target.
func (w *Window) increase(n int64, delay time.Duration) {
	if delay <= w.base/zeroPart && w.cwnd < int64(w.fastTop) {
		w.fiCount = int32(min(int64(w.fiCount)+n, maxWindow+1))
		if w.fast || int64(w.fiCount) > w.cwnd {
			w.fast = true
			w.cwnd = min(w.cwnd+n*int64(w.scaleA)*fastPercent/percent>>fixed, int64(w.ceil))
		}
	} else {
		w.fiCount, w.fast = 0, false
	}
	if w.targetInv == 0 {
		w.targetInv = uint32(1 << 32 / int64(w.target))
	}
	share := int64(w.target-delay) * int64(w.targetInv) >> (32 - fixed)
	w.inc += (int64(w.prop) * share >> fixed) * n
}

// apply adds the collected increase to the window.
func (w *Window) apply() {
	w.cwnd = min(w.cwnd+w.inc/w.cwnd, int64(w.ceil))
	w.inc = 0
}

// quickAdapt sets the window to the bytes that would arrive in one period of base_rtt +
// target_qdelay at the rate of the round, if that is little (UE 3.6.13). It reports whether
// it did.
func (w *Window) quickAdapt(now time.Duration) bool {
	period, passed := w.base+w.target, now-w.start
	got := int64(w.acked)
	if passed > period {
		got = int64(float64(got) * float64(period) / float64(passed))
	}
	if got >= w.usual()>>qaGate || got >= w.cwnd {
		return false
	}
	w.cut(got)
	return true
}

// lose shrinks the window by n lost bytes, which have left flight.
func (w *Window) lose(n int64) {
	w.lost += uint32(n)
	if !w.after {
		w.cwnd = max(w.cwnd-n, int64(w.mtu))
	}
}

// timeout counts a retransmission timeout. The packets of one window time out one by one,
// so timeouts within half an RTO are the same event.
func (w *Window) timeout(now time.Duration) {
	if w.rtoRuns != 0 && now-w.lastRTO < w.RTO()/2 {
		return
	}
	w.lastRTO = now
	if w.rtoRuns < 2 {
		w.rtoRuns++
	}
	if w.rtoRuns == 2 {
		w.cut(int64(w.mtu))
		w.begin(now, true)
	}
}

// flowControl obeys the receiver: it shrinks the window by pend/128 of the acknowledged
// bytes, and restores it when the receiver says so.
func (w *Window) flowControl(n, pend int64, restore bool) {
	switch {
	case pend > 0:
		if w.saved == 0 {
			w.saved = int32(w.cwnd)
		}
		w.cwnd = max(min(w.cwnd, w.inflight)-min(pend, 127)*n>>7, int64(w.mtu))
	case restore && w.saved > 0:
		w.cwnd, w.saved, w.taken = int64(min(w.saved, w.ceil)), 0, 0
	}
}
