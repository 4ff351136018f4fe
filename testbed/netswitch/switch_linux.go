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
	// rxBudget is how many packets are received from a port before the other ports and due
	// events are handled.
	rxBudget = 16
	// The kernel stops a real-time thread that never sleeps for 50 ms of each second
	// (sched_rt_runtime_us), and such a thread keeps the kernel's own threads of its
	// processor from running. So the forwarding thread has real-time priority only while it
	// sleeps enough: at least the share 1/restMin of each restWindow. Otherwise it changes
	// to the ordinary class with the priority ordinaryNice. It returns when it sleeps
	// 1/restBack.
	restWindow   = 200 * time.Millisecond
	restMin      = 8
	restBack     = 3
	ordinaryNice = -10
	// A wait below shortest is spent spinning: to fall asleep takes about as long.
	shortest = 4 * time.Microsecond
	// overshootDecay is how fast the measured lateness of the timer is forgotten.
	overshootDecay = 32
	// sendTries is how often a frame is offered to a kernel that has no room.
	sendTries = 3
)

// A Switch forwards between packet sockets. Open makes it, Run forwards.
type Switch struct {
	opts       Options
	ports      []*port
	own        map[netip.Addr]bool
	countersMu sync.Mutex // guards counters
	counters   *interfaceStats
	http       net.Listener
	log        *decisionLog
	epoch      time.Time
	sw         *fabric.Switch // of the forwarding goroutine

	wakeMu sync.Mutex // guards wakeFD, which is -1 when closed
	wakeFD int
	calls  chan func(now time.Duration)
	stop   atomic.Bool
	ended  chan struct{} // closed when forwarding has

	// The fields below belong to the forwarding goroutine.
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
		ringFull, sendFailed, unresolved, oversize, malformed, checksums, interfaceErrors, demoted uint64
	}

	warnings []string // of Open
	unstop   func()   // lets the kernel forward again; nil means that it was not asked
	closing  sync.Once
	rates    rates
}

// Open opens the interfaces of the calling thread's network namespace and the HTTP address.
// Its errors are one line that says what is missing. Run closes an opened Switch; without
// Run, Close does. The Log of opts belongs to the Switch even if Open fails.
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
	var ifaces []*netInterface
	if ifaces, s.own, err = findInterfaces(); err != nil {
		return fmt.Errorf("interfaces: %w", err)
	}
	chosen, err := chooseInterfaces(&opts.Config, ifaces)
	if err != nil {
		return err
	}
	if s.unstop, err = stopForwarding(); err != nil {
		return err
	}
	if s.counters, err = newInterfaceStats(); err != nil {
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
		if p.base, err = s.counters.read(p.index); err != nil {
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

// Close releases everything that Open acquired, and writes the rest of the log. It must not
// be called while Run runs. It returns the error of the log, if any.
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
		s.countersMu.Lock()
		if s.counters != nil {
			s.counters.close()
		}
		s.countersMu.Unlock()
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

// Addr returns the HTTP address, nil if there is none.
func (s *Switch) Addr() net.Addr {
	if s.http == nil {
		return nil
	}
	return s.http.Addr()
}

// Interfaces returns the chosen interfaces, by port.
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

// now returns the time of the switch's clock.
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

// forward is the forwarding goroutine. It has a thread of its own, because its sleep in a
// system call would delay other goroutines on the thread.
func (s *Switch) forward() {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	defer close(s.ended)
	// Timers of a thread may come 50 µs late by default.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if !s.opts.NoPriority {
		// Otherwise a busy host keeps the switch from the processor for milliseconds.
		// Without CAP_SYS_NICE the switch has no other way.
		if s.priority = s.becomeRealtime(); !s.priority {
			// In a container the control group may have no real-time share.
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
			s.chooseClass(now)
		}
		if !busy {
			s.sleep(now)
		}
	}
}

// receive handles the packets that have arrived at a port. It reports whether there were
// any.
func (s *Switch) receive(i int, p *port, now time.Duration, wall time.Time) bool {
	var r arrival
	if !p.next(&r) {
		return false
	}
	// The first has waited longest; the others of the batch count as if they had, too.
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

// frame handles one received frame.
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

// transmit sends a packet of the fabric, or keeps it until the address of its destination
// is known.
func (s *Switch) transmit(p *port, ip []byte, at, now time.Duration) {
	dst := ipDst(ip)
	m, known, ask := p.neigh.find(now, dst)
	if ask {
		s.ask(p, dst)
	}
	if !known {
		if !p.neigh.keep(dst, ip) {
			s.count.unresolved++
		}
		return
	}
	s.stage(p, m, ip, at)
}

// ask sends a request for the Ethernet address of a.
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
			// The backlog of the receiving processor is full; let it work.
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

// sleep waits until a packet arrives or something is due. It spins if something is due
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
		// Follow the greatest lateness, and forget it slowly.
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
			// The interface went down or disappeared. Reading the error clears it;
			// otherwise no later sleep would last.
			_, _ = unix.GetsockoptInt(s.ports[i].fd, unix.SOL_SOCKET, unix.SO_ERROR)
			s.count.interfaceErrors++
		}
	}
}

// mayStayAwake reports whether the thread may spin while it waits for a packet.
func (s *Switch) mayStayAwake(now time.Duration) bool {
	return !s.realtime || s.rested*(restMin-1) >= now-s.window
}

// chooseClass chooses the scheduling class by the time slept in the last window.
func (s *Switch) chooseClass(now time.Duration) {
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

// Stats returns the counters. It waits for Run.
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
		h.LinkErrors = s.count.interfaceErrors
		h.Realtime, h.Demoted = s.priority, s.count.demoted
	})
	if err != nil {
		return Stats{}, err
	}
	h := &st.Health
	h.Warnings = append(h.Warnings, s.warnings...)
	s.countersMu.Lock()
	for _, p := range s.ports {
		d, err := s.counters.read(p.index)
		if err != nil {
			h.Warnings = append(h.Warnings, fmt.Sprintf("interface %s of port %s is gone: %v", p.dev, p.name, err))
			continue
		}
		h.LinkDrops += d - p.base
	}
	s.countersMu.Unlock()
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

// fabricStats returns the fabric's part of Stats alone.
func (s *Switch) fabricStats() (st *fabric.Stats, err error) {
	err = s.do(func(now time.Duration) { st = s.sw.Stats(now) })
	return st, err
}

// Start makes now the zero of the events' times, unless there is one already. It waits for
// Run.
func (s *Switch) Start() error {
	return s.do(func(now time.Duration) { s.sw.Start(now) })
}

// Apply carries out an event now, or returns the fabric's error. It waits for Run.
func (s *Switch) Apply(e fabric.Event) error {
	var refused error
	if err := s.do(func(now time.Duration) { refused = s.sw.Apply(now, e) }); err != nil {
		return err
	}
	return refused
}

// Config returns the configuration with the chosen interfaces.
func (s *Switch) Config() Config {
	return Config{Fabric: s.opts.Config.Fabric, Interfaces: s.Interfaces()}
}

// Series returns the samples so far.
func (s *Switch) Series() []result.Sample { return s.rates.series() }
