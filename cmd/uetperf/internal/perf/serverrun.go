package perf

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// A serverRun is the state of a run of a session.
type serverRun struct {
	id     int
	spec   *traffic.Spec
	legs   []*leg // nil until its connection was asked for
	opened bool   // the Gate of the legs is open
	crew   *crew  // that runs them, if they share a queue
	wg     sync.WaitGroup
	events chan legEvent
	group  *traffic.Group
	churn  churn
	// samples are taken after begin, if the Spec asks for them.
	samples struct {
		begun  time.Time
		series *series
		tick   *time.Ticker
	}
}

// open iterates over the open legs with their indexes.
func (r *serverRun) open() iter.Seq2[int, *leg] {
	return func(yield func(int, *leg) bool) {
		for i, l := range r.legs {
			if l != nil && !yield(i, l) {
				return
			}
		}
	}
}

// all iterates over the open legs.
func (r *serverRun) all() iter.Seq[*leg] {
	return func(yield func(*leg) bool) {
		for _, l := range r.open() {
			if !yield(l) {
				return
			}
		}
	}
}

// A legEvent is what a leg reports.
type legEvent struct {
	leg  int
	kind string // mSent, mDone or mFail
	n    int64
	err  error
}

// newEvents has room for everything that the legs can report, so that they never block.
func newEvents(legs int) chan legEvent { return make(chan legEvent, 4*legs) }

// prepare opens the legs of a run and makes them receive.
func (ss *session) prepare(m *message) ([]netip.AddrPort, error) {
	if err := ss.check(m); err != nil {
		return nil, err
	}
	spec := m.Spec
	ss.srv.clients.mu.Lock()
	ss.patience = seconds(max(beatLost, spec.PeerTimeout))
	ss.srv.clients.mu.Unlock()
	r := &serverRun{id: m.Run, spec: spec, legs: make([]*leg, spec.Parallel), events: newEvents(spec.Parallel), group: traffic.NewGroup(spec, true, nil)}
	if spec.Shares() {
		r.crew = newCrew(spec, &r.wg, r.ended)
	}
	addrs := m.Addrs
	if spec.EP != traffic.MSG { // otherwise the legs come with their connections
		var err error
		if addrs, err = ss.openLegs(r, addrs); err != nil {
			for _, l := range r.open() {
				ss.closeLeg(l)
			}
			return nil, err
		}
	}
	ss.cur = r
	for i := range r.open() {
		r.start(i)
	}
	ss.srv.cfg.Log("%v runs %s %s, %d bytes", ss.addr, spec.Test, spec.Op, spec.Size)
	return addrs, nil
}

// check returns an error if a run cannot be prepared.
func (ss *session) check(m *message) error {
	if m.Spec == nil {
		return errors.New("no test is described")
	}
	if err := m.Spec.Validate(); err != nil {
		return err
	}
	if ip := ss.ctl.end.local.Addr(); m.Spec.Encapsulation == traffic.Standard && ss.srv.has(netip.AddrPortFrom(ip, wire.Port)) {
		return fmt.Errorf("a test with standard encapsulation needs port %d of %v, where this server listens: start it with --listen %v",
			wire.Port, ip, netip.AddrPortFrom(ip, StandardPort))
	}
	if svc := serviceOf(m.Spec); svc != ss.ctl.svc {
		return fmt.Errorf("a test of %v endpoints over a control channel of %v is not run", svc, ss.ctl.svc)
	}
	if len(m.Addrs) != m.Spec.Parallel {
		return fmt.Errorf("%d addresses for %d streams", len(m.Addrs), m.Spec.Parallel)
	}
	return nil
}

// openLegs opens a leg for each address of the client, or one for all addresses of an
// incast. It returns the addresses of the legs. After an error some may be open.
func (ss *session) openLegs(r *serverRun, clients []netip.AddrPort) (addrs []netip.AddrPort, err error) {
	infos, err := uet.GetInfo(ss.ctl.end.local.Addr().String(), "", fi.Source|uet.NumericHost, ss.legHints(r.spec))
	if err != nil {
		return nil, fmt.Errorf("the server's interface cannot do that: %w", err)
	}
	for i, a := range clients {
		// A test sends data only to the host that asked for it.
		if ss.ctl.end.near(a).Addr() != ss.addr.Addr() {
			return nil, fmt.Errorf("test address %v is not of the client %v", a, ss.addr)
		}
		if sink := r.legs[0]; i > 0 && r.spec.Test == traffic.Incast { // one leg for all
			if _, err := sink.end.insert(a); err != nil {
				return nil, err
			}
			addrs = append(addrs, sink.addr())
			continue
		}
		info := *infos[0]
		info.SrcAddr.Port = 0
		l, err := ss.openLeg(r, i, &info)
		if err != nil {
			return nil, err
		}
		if err := l.connect(a); err != nil {
			return nil, err
		}
		if err := l.Start(); err != nil {
			return nil, err
		}
		addrs = append(addrs, l.addr())
	}
	return addrs, nil
}

// legHints returns the hints of the session's legs.
func (ss *session) legHints(spec *traffic.Spec) *uet.Info {
	h := hints(spec, ss.ctl.sec, acceptTime, traffic.MaxSilence)
	h.Config.Tap = ss.srv.cfg.Tap
	h.Config.Socket.Ports = uet.PortRange(ss.srv.cfg.DataPorts)
	return h
}

// openLeg opens leg i of a run.
func (ss *session) openLeg(r *serverRun, i int, info *uet.Info) (*leg, error) {
	var first *leg
	if r.spec.Together() {
		for first = range r.all() {
			break
		}
	}
	l, err := newLeg(r.spec, i, true, info, r.group, r.crew, first)
	if err != nil {
		return nil, noFiles(r.spec, err)
	}
	if l.counts() {
		ss.srv.cfg.Opened(l.end.ep, "test")
	}
	r.legs[i] = l
	l.Sent = func(n int64) { r.events <- legEvent{leg: i, kind: mSent, n: n} }
	l.Complete = func() { r.events <- legEvent{leg: i, kind: mDone} }
	if l.Senders != nil {
		l.Complete = func() {
			for k := range r.legs {
				r.events <- legEvent{leg: k, kind: mDone}
			}
		}
	}
	return l, nil
}

// answer opens the leg that a connection was requested for, and accepts the connection.
func (ss *session) answer(in *incoming) error {
	r, i := ss.cur, in.call.Leg
	if r == nil || r.id != in.call.Run || i < 0 || i >= len(r.legs) || r.legs[i] != nil || r.opened {
		return errors.New("no such stream waits for a connection")
	}
	info, err := in.open(ss.legHints(r.spec))
	if err != nil {
		return err
	}
	l, err := ss.openLeg(r, i, info)
	if err == nil {
		err = l.connect(netip.AddrPort{})
	}
	if err == nil {
		err = l.Start()
	}
	if err == nil {
		err = l.end.accept(ss.ctx)
	}
	if err != nil {
		if l != nil {
			r.legs[i] = nil
			ss.closeLeg(l)
		}
		return err
	}
	r.start(i)
	return nil
}

// start runs leg i in a goroutine.
func (r *serverRun) start(i int) {
	l := r.legs[i]
	if r.crew != nil {
		r.crew.join(l)
		return
	}
	r.wg.Go(func() { r.ended(i, l.run()) })
}

// ended tells of the error with which a leg has ended.
func (r *serverRun) ended(leg int, err error) {
	if err != nil && err != traffic.ErrAborted {
		r.events <- legEvent{leg: leg, kind: mFail, err: err}
	}
}

// begin lets the legs send. It is called when the client has begun.
func (r *serverRun) begin() {
	if r.opened {
		return
	}
	if r.opened = true; r.spec.Sample > 0 {
		s := &r.samples
		s.begun, s.series, s.tick = time.Now(), newSeries(r.spec.Sample), time.NewTicker(r.spec.Sample)
	}
	for _, l := range r.open() {
		l.Gate.Store(true)
		l.wake()
	}
}

// sample takes a sample for the series.
func (r *serverRun) sample() {
	t, cwnd, rtt := sample(r.all())
	r.samples.series.add(time.Since(r.samples.begun), t, cwnd, rtt)
}

// sent notes how many messages the client's end of a leg has sent.
func (r *serverRun) sent(leg int, n int64) {
	if leg < 0 || leg >= len(r.legs) {
		return
	}
	incast := r.spec.Test == traffic.Incast
	l := r.legs[leg]
	if incast {
		l = r.legs[0]
	}
	if l == nil {
		return
	}
	if incast {
		l.Senders[leg].Store(n)
	} else {
		l.PeerSent.Store(n)
	}
	l.wake()
}

// stopRun ends the current run, if there is one, and returns what its legs did.
func (ss *session) stopRun(abort bool) []traffic.LegResult {
	r := ss.cur
	if r == nil {
		return nil
	}
	ss.cur = nil
	if t := r.samples.tick; t != nil {
		t.Stop()
	}
	waiting := r.stop(abort)
	if s := r.samples.series; s != nil {
		t, cwnd, rtt := sample(r.all())
		s.end(time.Since(r.samples.begun), t, cwnd, rtt)
	}
	out := make([]traffic.LegResult, len(r.legs))
	var mine []*traffic.Leg
	for i, l := range r.open() {
		mine = append(mine, l.Leg)
		copy(out[i:], l.Results())
		if d := r.churn.done[i]; d != nil {
			out[i].Add(d)
		}
		out[i].Waiting = waiting[i]
		ss.closeLeg(l)
	}
	if l := traffic.Times(mine); l != nil && len(l.HDR) <= longestHDR {
		out[0].Latency = l
	}
	return out
}

// longestHDR bounds the histogram of a server, in bytes. It has its place in a control message
// beside results and samples.
const longestHDR = ctlMax / 4

// stop ends the legs and waits for them. With abort it returns for each leg what its
// operations waited for.
func (r *serverRun) stop(abort bool) [][]string {
	r.churn.end(abort)
	waiting := make([][]string, len(r.legs))
	for i, l := range r.open() {
		if abort {
			waiting[i] = waitsOf([]*leg{l})
		}
	}
	if r.crew != nil {
		r.crew.close()
	}
	for _, l := range r.open() {
		l.Over.Store(true)
		l.wake()
		if abort {
			l.abort()
		}
	}
	// A leg that is still not complete after the client said so is stuck. It ends with what it
	// has.
	t := time.AfterFunc(time.Second, func() {
		for _, l := range r.open() {
			l.abort()
		}
		r.churn.end(true)
	})
	defer t.Stop()
	r.wg.Wait()
	return waiting
}

func (ss *session) closeLeg(l *leg) {
	l.cancel()
	l.end.close()
	if l.counts() {
		ss.srv.cfg.Closed(l.end.ep)
	}
}
