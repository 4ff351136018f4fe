package netswitch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

const (
	// rxBudget is how many packets are taken from a port before the others and what is due
	// get their turn.
	rxBudget = 16
	// A thread with real-time priority that never sleeps is stopped by the kernel for
	// 50 ms of each second (sched_rt_runtime_us), and keeps the kernel's own threads of its
	// processor from working. So the forwarding thread has it only while
	// it sleeps enough: in each restWindow a share of 1/restMin at least, or it goes
	// to the ordinary class with the priority ordinaryNice; it comes back with
	// 1/restBack.
	restWindow   = 200 * time.Millisecond
	restMin      = 8
	restBack     = 3
	ordinaryNice = -10
	// A wait below shortest is spent awake: to go to sleep takes about as long.
	shortest = 4 * time.Microsecond
	// overshootDecay is how fast the measured lateness of the timer is forgotten.
	overshootDecay = 32
	// sendTries is how often a frame is offered to a kernel that has no room.
	sendTries = 3
)

// A Switch forwards between packet sockets. Open makes it, Run forwards.
type Switch struct {
	opts   Options
	ports  []*port
	own    map[netip.Addr]bool
	linkMu sync.Mutex // guards links
	links  *linkStats
	http   net.Listener
	log    *decisionLog
	epoch  time.Time
	sw     *fabric.Switch // of the forwarding goroutine

	wakeMu sync.Mutex // guards wakeFD, which is -1 when closed
	wakeFD int
	calls  chan func(now time.Duration)
	stop   atomic.Bool
	ended  chan struct{} // closed when forwarding has

	// Of the forwarding goroutine.
	polls     []unix.PollFd
	spin      time.Duration
	overshoot time.Duration // of the timer, about
	priority  bool          // real-time priority is allowed
	realtime  bool          // and taken
	began     time.Duration // when it began to forward: before that nothing was late
	window    time.Duration // beginning of the restWindow
	rested    time.Duration // asleep in it
	leave     *lateness
	wait      *lateness
	count     struct {
		ringFull, sendFailed, unresolved, oversize, malformed, checksums, linkErrors, demoted uint64
	}

	warnings []string // of Open
	unstop   func()   // lets the kernel forward again; nil: it was not asked
	closing  sync.Once
	rates    rates
}

// Open takes the interfaces of the calling thread's network namespace and the HTTP
// address. Errors are one line, with what is missing. A Switch that was opened is
// closed by Run, or by Close without it. The Log of opts is the Switch's even
// if Open fails.
func Open(opts Options) (*Switch, error) {
	s := &Switch{
		opts: opts, epoch: time.Now(), wakeFD: -1, calls: make(chan func(time.Duration), 16),
		ended: make(chan struct{}), leave: newLateness(), wait: newLateness(),
	}
	if s.spin = max(opts.Spin, 0); opts.Spin == 0 {
		s.spin = DefaultSpin
	}
	if runtime.NumCPU() == 1 {
		s.spin = 0 // what is waited for could not happen
	}
	s.overshoot = s.spin / 2
	if opts.Log != nil {
		m := opts.LogMax
		if m == 0 {
			m = DefaultLogMax
		}
		s.log = newDecisionLog(opts.Log, opts.LogAll, m)
	}
	if err := s.open(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// open is the part of Open that may fail.
func (s *Switch) open() (err error) {
	opts := &s.opts
	cfg := opts.Config.Fabric
	cfg.Log = nil
	if s.log != nil {
		cfg.Log = s.log.add
	}
	if s.sw, err = fabric.New(cfg); err != nil {
		return err
	}
	var links []*link
	if links, s.own, err = findLinks(); err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	chosen, err := chooseLinks(&opts.Config, links)
	if err != nil {
		return err
	}
	if s.unstop, err = stopForwarding(); err != nil {
		return err
	}
	if s.links, err = newLinkStats(); err != nil {
		return err
	}
	for i, l := range chosen {
		if err := OffloadsOff(l.name); err != nil {
			s.warnings = append(s.warnings, err.Error())
		}
		p, err := openPort(cfg.Ports[i].Name, cfg.Ports[i].Addrs, l)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
		if p.base, err = s.links.read(p.index); err != nil {
			return fmt.Errorf("port %q: counters of %s: %w", p.name, p.dev, err)
		}
	}
	if s.wakeFD, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	for _, p := range s.ports {
		s.polls = append(s.polls, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
	}
	s.polls = append(s.polls, unix.PollFd{Fd: int32(s.wakeFD), Events: unix.POLLIN})
	if opts.HTTP != "" {
		if s.http, err = net.Listen("tcp", opts.HTTP); err != nil {
			return fmt.Errorf("--http %s: %w", opts.HTTP, err)
		}
	}
	return nil
}

// Close gives everything back that Open took, and writes the rest of the log. It
// must not be called while Run runs. It returns what went wrong with the log.
func (s *Switch) Close() (err error) {
	s.closing.Do(func() {
		if s.http != nil {
			_ = s.http.Close()
		}
		for _, p := range s.ports {
			p.close()
		}
		if s.unstop != nil {
			s.unstop()
		}
		s.linkMu.Lock()
		if s.links != nil {
			s.links.close()
		}
		s.linkMu.Unlock()
		s.wakeMu.Lock()
		if s.wakeFD >= 0 {
			_ = unix.Close(s.wakeFD)
			s.wakeFD = -1
		}
		s.wakeMu.Unlock()
		if s.log != nil {
			if e := s.log.close(); e != nil {
				err = fmt.Errorf("log: %w", e)
			}
		}
	})
	return err
}

// Addr is where HTTP is answered, nil if it is not.
func (s *Switch) Addr() net.Addr {
	if s.http == nil {
		return nil
	}
	return s.http.Addr()
}

// Interfaces are those that were chosen, by port.
func (s *Switch) Interfaces() map[string]string {
	m := map[string]string{}
	for _, p := range s.ports {
		m[p.name] = p.dev
	}
	return m
}

// Run forwards until ctx is done, and closes the Switch. It is called once.
func (s *Switch) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.stop.Store(true)
		s.wake()
	})
	var others sync.WaitGroup
	if s.http != nil {
		srv := newServer(s)
		others.Go(func() { _ = srv.Serve(s.http) })
		defer others.Wait()
		defer srv.Close()
	}
	sampled := make(chan struct{})
	others.Go(func() {
		defer close(sampled)
		s.rates.run(s, s.ended)
	})
	forwarded := make(chan struct{})
	go func() {
		defer close(forwarded)
		s.forward()
	}()
	<-forwarded
	stop()
	<-sampled
	return s.Close()
}

// now is the switch's clock.
func (s *Switch) now() time.Duration { return time.Since(s.epoch) }

// do runs f in the forwarding goroutine and waits for it.
func (s *Switch) do(f func(now time.Duration)) error {
	done := make(chan struct{})
	select {
	case s.calls <- func(now time.Duration) { f(now); close(done) }:
	case <-s.ended:
		return errEnded
	}
	s.wake()
	select {
	case <-done:
		return nil
	case <-s.ended:
		return errEnded
	}
}

// wake ends the forwarding goroutine's sleep.
func (s *Switch) wake() {
	s.wakeMu.Lock()
	defer s.wakeMu.Unlock()
	if s.wakeFD >= 0 {
		_, _ = unix.Write(s.wakeFD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// forward is the forwarding goroutine. Its thread is its own: a sleep in a system
// call would hold up whatever else Go put on it.
func (s *Switch) forward() {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	defer close(s.ended)
	// Timers of a thread may come 50 µs late by default.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if !s.opts.NoPriority {
		// Else a busy host takes the processor from the network for milliseconds.
		// Without CAP_SYS_NICE it must do as it is.
		if s.priority = s.becomeRealtime(); !s.priority {
			// In a container its control group may have no share of real time.
			s.becomeOrdinary()
		}
	}
	s.began = s.now()
	s.window = s.began
	if s.opts.pin > 0 {
		_ = pinThread(s.opts.pin - 1)
	}
	for !s.stop.Load() {
		busy := false
		wall := time.Now()
		now := wall.Sub(s.epoch)
		for i, p := range s.ports {
			if s.receive(i, p, now, wall) {
				busy = true
			}
		}
		s.sw.Advance(now)
		for {
			i, ip, at, ok := s.sw.Transmit(now)
			if !ok {
				break
			}
			busy = true
			s.transmit(s.ports[i], ip, at, now)
		}
		for _, p := range s.ports {
			if p.pending > 0 {
				s.flush(p)
			}
		}
		if len(s.calls) > 0 {
			(<-s.calls)(s.now())
			busy = true
		}
		if now-s.window >= restWindow {
			s.judgeRest(now)
		}
		if !busy {
			s.sleep(now)
		}
	}
}

// receive takes a packet that has arrived at a port. It reports whether there was one.
func (s *Switch) receive(i int, p *port, now time.Duration, wall time.Time) bool {
	var r arrival
	if !p.next(&r) {
		return false
	}
	// The first has waited longest; the others of the batch count as it does.
	wait := min(r.waited(wall), now-s.began)
	n := int64(0)
	for {
		s.frame(i, p, &r, now)
		p.release(&r)
		if n++; n == rxBudget || !p.next(&r) {
			break
		}
	}
	s.wait.add(wait, n)
	return true
}

// frame does what one received frame asks for.
func (s *Switch) frame(i int, p *port, r *arrival, now time.Duration) {
	if r.kind == unix.PACKET_OUTGOING {
		return
	}
	switch r.typ {
	case typeARP:
		if m, a, ok := parseARP(r.net); ok {
			s.learn(p, now, a, m)
		}
		return
	case typeIPv4, typeIPv6:
	default:
		return
	}
	if r.kind != unix.PACKET_HOST {
		return // multicast and broadcast end here
	}
	if r.cut {
		s.count.oversize++
		return
	}
	ip, src, dst, ok := parseIP(r.net)
	if !ok {
		s.count.malformed++
		return
	}
	if len(ip) > p.mtu {
		s.count.oversize++
		return
	}
	if s.own[dst] {
		if m, a, ok := parseAdvertisement(ip); ok {
			s.learn(p, now, a, m)
		}
		return
	}
	if m := mac(r.eth[6:12]); m.unicast() {
		s.learn(p, now, src, m)
	}
	if r.csum {
		completeChecksum(ip)
		s.count.checksums++
	}
	s.sw.Receive(now, i, ip)
}

// learn stores the MAC of an address behind a port, and sends the packets that waited
// for it.
func (s *Switch) learn(p *port, now time.Duration, a netip.Addr, m mac) {
	if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || s.own[a] {
		return
	}
	for _, ip := range p.neigh.learn(now, a, m) {
		s.stage(p, m, ip, -1)
	}
}

// transmit sends a packet of the fabric, or keeps it until the destination's address
// is known.
func (s *Switch) transmit(p *port, ip []byte, at, now time.Duration) {
	dst := ipDst(ip)
	m, known, ask := p.neigh.find(now, dst)
	if ask {
		s.ask(p, dst)
	}
	if !known {
		if !p.neigh.hold(dst, ip) {
			s.count.unresolved++
		}
		return
	}
	s.stage(p, m, ip, at)
}

// ask sends a question for the address of a.
func (s *Switch) ask(p *port, a netip.Addr) {
	if p.pending == txBatch {
		s.flush(p)
	}
	switch {
	case a.Is4() && p.own4.IsValid():
		p.push(appendARPRequest(p.slot(), p.mac, p.own4, a), -1)
	case a.Is6() && p.own6.IsValid():
		p.push(appendSolicitation(p.slot(), p.mac, p.own6, a), -1)
	}
}

// stage puts a packet into the port's batch.
func (s *Switch) stage(p *port, m mac, ip []byte, at time.Duration) {
	if len(ip) > p.mtu {
		s.count.oversize++
		return
	}
	if p.pending == txBatch {
		s.flush(p)
	}
	typ := uint16(typeIPv4)
	if ip[0]>>4 == 6 {
		typ = typeIPv6
	}
	p.push(append(appendEthernet(p.slot(), m, p.mac, typ), ip...), at)
}

// flush sends the port's batch.
func (s *Switch) flush(p *port) {
	tries := 0
	for i := 0; i < p.pending; {
		n, err := p.send(i)
		i += n
		if err == nil {
			tries = 0
			continue
		}
		if tries++; tries < sendTries && (err == unix.EAGAIN || err == unix.ENOBUFS) {
			// The backlog of the other end's processor is full; let it work.
			runtime.Gosched()
			continue
		}
		s.count.sendFailed++
		tries = 0
		i++
	}
	now := s.now()
	for _, at := range p.txAt[:p.pending] {
		if at >= 0 {
			s.leave.add(now-at, 1)
		}
	}
	p.pending = 0
}

// sleep waits until something arrives or is due. It stays awake if something is due
// within the overshoot of the timer.
func (s *Switch) sleep(now time.Duration) {
	due, ok := s.sw.NextTimeout()
	margin := time.Duration(0)
	if ok {
		margin = min(s.overshoot, s.spin)
	}
	if s.log != nil {
		if at, want := s.log.tick(now); want && (!ok || at < due) {
			due, ok, margin = at, true, 0
		}
	}
	for _, p := range s.ports {
		lost, at, want := p.neigh.tick(now, func(a netip.Addr) { s.ask(p, a) })
		s.count.unresolved += uint64(lost)
		if want && (!ok || at < due) {
			due, ok, margin = at, true, 0
		}
		if p.pending > 0 {
			s.flush(p)
		}
	}
	var timeout *unix.Timespec
	var d time.Duration
	if ok {
		if d = due - now - margin; d <= 0 {
			if d = due - now; d < shortest || s.mayStayAwake(now) {
				return
			}
		}
		t := unix.NsecToTimespec(int64(d))
		timeout = &t
	}
	n, err := unix.Ppoll(s.polls, timeout, nil)
	slept := s.now() - now
	s.rested += slept
	if err != nil {
		return // EINTR: the loop looks for itself
	}
	if n == 0 {
		// Follow the worst of late, slowly forget.
		s.overshoot = min(max(slept-d, s.overshoot-s.overshoot/overshootDecay), s.spin)
		return
	}
	for i := range s.polls {
		switch e := s.polls[i].Revents; {
		case e == 0:
		case i == len(s.ports):
			var b [8]byte
			_, _ = unix.Read(s.wakeFD, b[:])
		case e&unix.POLLERR != 0:
			// The interface went down or away. Reading the error clears it; else no
			// sleep would ever last again.
			_, _ = unix.GetsockoptInt(s.ports[i].fd, unix.SOL_SOCKET, unix.SO_ERROR)
			s.count.linkErrors++
		}
	}
}

// mayStayAwake reports whether the thread may wait for a packet awake.
func (s *Switch) mayStayAwake(now time.Duration) bool {
	return !s.realtime || s.rested*(restMin-1) >= now-s.window
}

// judgeRest chooses the scheduling class by what was slept in the window that ends.
func (s *Switch) judgeRest(now time.Duration) {
	d := now - s.window
	switch {
	case !s.priority:
	case s.realtime && s.rested*restMin < d:
		s.becomeOrdinary()
		s.count.demoted++
	case !s.realtime && s.rested*restBack > d:
		s.becomeRealtime()
	}
	s.window, s.rested = now, 0
}

func (s *Switch) becomeRealtime() bool {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	s.realtime = unix.SchedSetAttr(0, &a, 0) == nil
	return s.realtime
}

func (s *Switch) becomeOrdinary() {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: ordinaryNice}
	_ = unix.SchedSetAttr(0, &a, 0)
	s.realtime = false
}

// Stats copies what was counted. It waits for Run.
func (s *Switch) Stats() (st Stats, err error) {
	err = s.do(func(now time.Duration) {
		st.Fabric = s.sw.Stats(now)
		h := &st.Health
		for _, p := range s.ports {
			s.count.ringFull += p.ringDrops()
		}
		h.Leave, h.Wait = s.leave.summary(), s.wait.summary()
		h.LateP99 = max(h.Leave.P99, h.Wait.P99)
		h.RingFull, h.SendFailed = s.count.ringFull, s.count.sendFailed
		h.Unresolved, h.Oversize, h.Malformed, h.Checksums = s.count.unresolved, s.count.oversize, s.count.malformed, s.count.checksums
		h.LinkErrors = s.count.linkErrors
		h.Realtime, h.Demoted = s.priority, s.count.demoted
	})
	if err != nil {
		return Stats{}, err
	}
	h := &st.Health
	h.Warnings = append(h.Warnings, s.warnings...)
	s.linkMu.Lock()
	for _, p := range s.ports {
		d, err := s.links.read(p.index)
		if err != nil {
			h.Warnings = append(h.Warnings, fmt.Sprintf("interface %s of port %s is gone: %v", p.dev, p.name, err))
			continue
		}
		h.LinkDrops += d - p.base
	}
	s.linkMu.Unlock()
	full := st.Fabric.Whys[fabric.LostFull.String()]
	h.Drops = h.RingFull + h.SendFailed + h.LinkDrops + full
	if s.log != nil {
		h.LogLines, h.LogDropped = s.log.written.Load(), s.log.dropped.Load()
		if e := s.log.failed.Load(); e != nil {
			h.Warnings = append(h.Warnings, fmt.Sprintf("log: %v", *e))
		}
	}
	h.PPS, h.MaxPPS = s.rates.pps()
	h.warn(full)
	return st, nil
}

// fabricStats are the fabric's part of Stats alone.
func (s *Switch) fabricStats() (st *fabric.Stats, err error) {
	err = s.do(func(now time.Duration) { st = s.sw.Stats(now) })
	return st, err
}

// Start makes now the zero of the events, if it has not come yet. It waits for Run.
func (s *Switch) Start() error {
	return s.do(func(now time.Duration) { s.sw.Start(now) })
}

// Apply does an event now. It returns the fabric's refusal, and waits for Run.
func (s *Switch) Apply(e fabric.Event) error {
	var refused error
	if err := s.do(func(now time.Duration) { refused = s.sw.Apply(now, e) }); err != nil {
		return err
	}
	return refused
}

// Config is what the switch runs with, with the interfaces that were chosen.
func (s *Switch) Config() Config {
	return Config{Fabric: s.opts.Config.Fabric, Interfaces: s.Interfaces()}
}

// Series are the samples so far.
func (s *Switch) Series() []result.Sample { return s.rates.series() }
