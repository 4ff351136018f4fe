package cms

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// A link is a model in virtual time. Each sender has a Window; all share one bottleneck (a
// queue with a rate and a length in bytes), behind it a delay. Each has a receiver that
// acknowledges, and a way back without a queue. The model has one seed, no clock and
// integer arithmetic, so its results are the same on every machine. It knows packets, gaps,
// probes and timers but no headers; internal/sim has the full protocol.
type link struct {
	// The path.
	rate   int64 // bytes per second
	buffer int64 // bytes in the queue beyond which packets are dropped
	delay  time.Duration
	jitter time.Duration // uniform, added behind the queue
	mark   int64         // bytes in the queue from which on CE is set, 0 for never
	loss   int           // lost packets of 1000
	cut    func(time.Duration) bool
	nic    int64 // bytes per second that each sender can send, 0 for no limit

	// The receivers.
	trigger              int64         // bytes per ACK; above 16 KiB nothing else causes an ACK
	batch                time.Duration // length of the turns that have one ACK each, 0 for an ACK at once
	late                 time.Duration // delay of every ACK
	stallEvery, stallMax time.Duration // how often and how long nothing is received

	// The senders.
	reorder int64 // later transmissions that must arrive before a gap counts as a loss

	rng    *rand.Rand
	now    time.Duration
	events eventHeap
	order  uint64
	busy   time.Duration // when the queue becomes empty
	flows  []*flow
	drops  int
	worst  time.Duration // longest wait in the queue
}

func newLink(seed uint64) *link {
	return &link{
		rng:     rand.New(rand.NewPCG(seed, 1)),
		rate:    1250e6, // 10 Gb/s
		buffer:  1 << 20,
		delay:   10 * time.Microsecond,
		trigger: 16 << 10,
		reorder: 5,
	}
}

// hosts adds the effects of a busy virtual machine: the receiver has turns of 20 µs and
// loses its processor for up to 300 µs about every 2 ms.
func (l *link) hosts() *link {
	l.batch, l.stallEvery, l.stallMax = 20*us, 2*ms, 300*us
	return l
}

type event struct {
	at    time.Duration
	order uint64
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (l *link) at(t time.Duration, do func()) {
	l.order++
	heap.Push(&l.events, event{max(t, l.now), l.order, do})
}

func (l *link) run(until time.Duration) {
	for len(l.events) > 0 && l.events[0].at <= until {
		e := heap.Pop(&l.events).(event)
		l.now = e.at
		e.do()
	}
	l.now = until
}

// A flow is one sender with endless data, and its receiver.
type flow struct {
	l    *link
	w    *Window
	size int64 // nominal bytes of a packet

	next    int64 // the first PSN not sent yet
	first   int64 // PSN of sent[0]
	sent    []sent
	resend  []int64
	ord     int64 // transmissions so far
	bestOrd int64 // highest transmission known to have arrived
	nicFree time.Duration
	backoff int
	rtoAt   time.Duration // 0 for no timer
	probeAt time.Duration
	armed   bool // an event will look at the timers

	got     map[int64]bool // PSNs received beyond gotBase
	gotBase int64
	fresh   []arrival // arrivals that no ACK has reported
	owed    int64     // bytes since the last ACK
	turnAt  time.Duration
	stallTo time.Duration
	nextOff time.Duration
	ackAt   time.Duration

	arrived int64 // distinct bytes at the receiver
	sends   int64
	retx    int64
	rtos    int
}

type sent struct {
	at    time.Duration
	ord   int64
	state pktState
	times uint8
}

type pktState uint8

const (
	inFlight pktState = iota
	isLost            // lost: to be sent again
	acked
)

// An arrival is one transmission. PSN −1 is a probe.
type arrival struct {
	psn    int64
	ord    int64
	times  uint8
	ce, ar bool
	at     time.Duration // when it was received
}

func (l *link) add(cfg Config) *flow {
	cfg = cfg.withDefaults()
	f := &flow{l: l, w: New(cfg), size: int64(cfg.MTU), got: map[int64]bool{}}
	l.flows = append(l.flows, f)
	return f
}

func (f *flow) start(at time.Duration) { f.l.at(at, f.pump) }

// pump sends while the window is open, lost packets first.
func (f *flow) pump() {
	for {
		for len(f.resend) > 0 && (f.resend[0] < f.first || f.sent[f.resend[0]-f.first].state != isLost) {
			f.resend = f.resend[1:] // an earlier copy arrived after all
		}
		if !f.w.CanSend(int(f.size)) {
			return
		}
		psn := f.next
		if len(f.resend) > 0 {
			psn = f.resend[0]
			f.resend = f.resend[1:]
			f.retx++
		} else {
			f.sent = append(f.sent, sent{})
			f.next++
		}
		f.ord++
		f.sends++
		s := &f.sent[psn-f.first]
		s.at, s.ord, s.state, s.times = f.l.now, f.ord, inFlight, min(s.times+1, 3)
		ar := f.w.OnSend(f.l.now, int(f.size))
		f.leave(arrival{psn: psn, ord: f.ord, times: s.times, ar: ar})
		f.arm()
	}
}

// leave sends a packet through the sender's own interface.
func (f *flow) leave(a arrival) {
	if f.l.nic == 0 {
		f.l.queue(f, a)
		return
	}
	f.nicFree = max(f.nicFree, f.l.now) + time.Duration(f.size*int64(time.Second)/f.l.nic)
	f.l.at(f.nicFree, func() { f.l.queue(f, a) })
}

// arm sets the timers from now: a probe after three silent round trips, a timeout after the
// RTO.
func (f *flow) arm() {
	f.rtoAt, f.probeAt = 0, 0
	for i := range f.sent {
		if f.sent[i].state == inFlight {
			f.rtoAt = f.sent[i].at + f.w.RTO()<<f.backoff
			break
		}
	}
	if f.rtoAt == 0 {
		return
	}
	if srtt := f.w.SRTT(); srtt > 0 {
		f.probeAt = f.l.now + 3*max(srtt, 150*us)
	}
	f.watch()
}

func (f *flow) watch() {
	at := f.rtoAt
	if f.probeAt != 0 {
		at = min(at, f.probeAt)
	}
	if f.armed || at == 0 {
		return
	}
	f.armed = true
	f.l.at(at, func() {
		f.armed = false
		if f.probeAt != 0 && f.l.now >= f.probeAt {
			f.probeAt = 0
			f.ord++
			f.l.queue(f, arrival{psn: -1, ord: f.ord, ar: true})
		}
		if f.rtoAt != 0 && f.l.now >= f.rtoAt {
			f.expire()
		}
		f.watch()
	})
}

func (f *flow) expire() {
	f.rtos++
	limit := f.l.now - f.w.RTO()
	f.backoff = min(f.backoff+1, 6)
	for i := range f.sent {
		if s := &f.sent[i]; s.state == inFlight && s.at <= limit {
			f.lost(f.first+int64(i), true)
		}
	}
	f.pump()
	f.arm()
}

func (f *flow) lost(psn int64, rto bool) {
	f.sent[psn-f.first].state = isLost
	f.w.OnLoss(f.l.now, int(f.size), rto)
	f.resend = append(f.resend, psn)
}

// queue puts a packet into the bottleneck.
func (l *link) queue(f *flow, a arrival) {
	size := f.size
	if a.psn < 0 {
		size = 100
	}
	wait := max(l.busy-l.now, 0)
	waiting := int64(wait) * l.rate / int64(time.Second)
	if waiting+size > l.buffer {
		l.drops++
		return
	}
	l.worst = max(l.worst, wait)
	a.ce = l.mark > 0 && waiting >= l.mark
	l.busy = max(l.busy, l.now) + time.Duration(size*int64(time.Second)/l.rate)
	if l.rng.IntN(1000) < l.loss || l.cut != nil && l.cut(l.now) {
		return
	}
	at := l.busy + l.delay
	if l.jitter > 0 {
		at += time.Duration(l.rng.Int64N(int64(l.jitter)))
	}
	l.at(at, func() { f.arrive(a) })
}

// arrive brings a packet to the receiving host.
func (f *flow) arrive(a arrival) {
	if l := f.l; l.stallEvery > 0 {
		if l.now >= f.nextOff {
			f.stallTo = l.now + time.Duration(l.rng.Int64N(int64(l.stallMax)))
			f.nextOff = f.stallTo + time.Duration(l.rng.Int64N(2*int64(l.stallEvery)))
		}
		if l.now < f.stallTo {
			l.at(f.stallTo, func() { f.take(a) })
			return
		}
	}
	f.take(a)
}

// take reads a packet from the socket.
func (f *flow) take(a arrival) {
	a.at = f.l.now
	if a.psn >= f.gotBase && !f.got[a.psn] {
		f.got[a.psn] = true
		f.arrived += f.size
		for f.got[f.gotBase] {
			delete(f.got, f.gotBase)
			f.gotBase++
		}
	}
	f.fresh = append(f.fresh, a)
	f.owed += f.size
	early := a.ar || a.ce || a.times > 1 || len(f.got) > 0
	if f.owed < f.l.trigger && (!early || f.l.trigger > 16<<10) {
		return
	}
	if f.l.batch == 0 {
		f.ack()
	} else if f.turnAt <= f.l.now { // one ACK at the end of the turn
		f.turnAt = f.l.now + f.l.batch
		f.l.at(f.turnAt, f.ack)
	}
}

// ack sends one ACK that reports all fresh arrivals and names the last.
func (f *flow) ack() {
	if len(f.fresh) == 0 || f.l.cut != nil && f.l.cut(f.l.now) {
		return // a later ACK reports it
	}
	report := f.fresh
	f.fresh, f.owed = nil, 0
	service := f.l.now - report[len(report)-1].at
	// Up to 5 µs of noise keep the flows out of step. ACKs stay in order.
	f.ackAt = max(f.ackAt, f.l.now+f.l.delay+f.l.late+time.Duration(f.l.rng.IntN(5000)))
	f.l.at(f.ackAt, func() { f.onAck(report, service) })
}

func (f *flow) onAck(report []arrival, service time.Duration) {
	newly, ce, probed := 0, false, int64(-1)
	var rtt time.Duration
	for i, a := range report {
		ce = ce || a.ce
		f.bestOrd = max(f.bestOrd, a.ord)
		if a.psn < 0 {
			probed = a.ord
		}
		if a.psn < f.first {
			continue
		}
		s := &f.sent[a.psn-f.first]
		// UE 3.5.20.3: the packet was sent once, or twice and the second copy is named.
		if i == len(report)-1 && s.times <= 2 && a.times == s.times && s.state != acked {
			rtt = f.l.now - s.at - service
		}
		if s.state == inFlight {
			newly += int(f.size)
		}
		s.state = acked
	}
	f.w.OnAck(f.l.now, newly, rtt, ce, 0, false)
	if newly > 0 {
		f.backoff = 0
	}
	for len(f.sent) > 0 && f.sent[0].state == acked {
		f.sent = f.sent[1:]
		f.first++
	}
	limit := max(f.bestOrd-f.l.reorder, probed)
	for i := range f.sent {
		s := &f.sent[i]
		if s.times == 1 && s.ord > limit {
			break // first transmissions are in order
		}
		if s.state == inFlight && s.ord <= limit {
			f.lost(f.first+int64(i), false)
		}
	}
	f.pump()
	f.arm()
}

// A result is the traffic of a link between two moments.
type result struct {
	goodput float64   // distinct bytes, as a share of the rate
	share   []float64 // the same for each flow
	jain    float64
	again   float64 // retransmissions per transmission
	rtos    int
	drops   int
	worst   time.Duration // longest wait in the queue
}

// measure runs the link for warm, then for d, and returns the result of the latter.
func (l *link) measure(warm, d time.Duration) result {
	l.run(l.now + warm)
	before := make([]flow, len(l.flows))
	for i, f := range l.flows {
		before[i] = *f
	}
	drops := l.drops
	l.worst = 0
	l.run(l.now + d)
	r := result{drops: l.drops - drops, worst: l.worst}
	var sq float64
	var sends, again int64
	for i, f := range l.flows {
		x := float64(f.arrived-before[i].arrived) / (float64(l.rate) * d.Seconds())
		r.share = append(r.share, x)
		r.goodput += x
		sq += x * x
		sends += f.sends - before[i].sends
		again += f.retx - before[i].retx
		r.rtos += f.rtos - before[i].rtos
	}
	if sq > 0 {
		r.jain = r.goodput * r.goodput / (float64(len(l.flows)) * sq)
	}
	if sends > 0 {
		r.again = float64(again) / float64(sends)
	}
	return r
}
