package perf

import (
	"context"
	"errors"
	"net/netip"
	"time"
)

// A session is the server's state of one client. One goroutine runs it.
type session struct {
	srv  *Server
	ctl  *ctl
	addr netip.AddrPort
	id   uint64
	// quiet is how many seconds nothing was heard while this process ran, patience the most
	// that it may be. clients.mu guards both.
	quiet    int
	patience int
	parts    parts // clients.mu guards it, too
	in       chan *message
	calls    chan *incoming // clients.mu guards sending

	ctx    context.Context
	cancel context.CancelCauseFunc

	cur   *serverRun
	joins joins
}

// end makes the session end soon.
func (ss *session) end(why string) { ss.cancel(errors.New(why)) }

// run is the goroutine of the session.
func (ss *session) run(k sessionKey) {
	defer ss.srv.clients.wg.Done()
	defer ss.leave(k)
	if ss.ctl.remote.IsValid() {
		if err := ss.ctl.end.accept(ss.ctx); err != nil {
			ss.srv.cfg.Log("%v gone: %v", ss.addr, err)
			return
		}
	}
	for ss.step() {
	}
}

// step handles one event. It reports whether the session goes on.
func (ss *session) step() bool {
	var events chan legEvent
	var tick <-chan time.Time
	if r := ss.cur; r != nil {
		if events = r.events; r.samples.tick != nil {
			tick = r.samples.tick.C
		}
	}
	select {
	case <-ss.ctx.Done():
		why := context.Cause(ss.ctx)
		ss.srv.cfg.Log("%v gone: %v", ss.addr, why)
		_ = ss.send(&message{Type: mFail, Error: sessionEnded + why.Error()})
		return false
	case ev := <-events:
		ss.legSaid(ev)
	case <-tick:
		ss.cur.sample()
	case in := <-ss.calls:
		answer := ss.answer
		if in.call.Again {
			answer = ss.answerAgain
		}
		if err := answer(in); err != nil {
			ss.srv.cfg.Log("%v: no connection for a test: %v", ss.addr, err)
			in.reject("%s", oneLine(err))
		}
	case m := <-ss.in:
		if m.Type == mBye {
			ss.srv.cfg.Log("%v says goodbye", ss.addr)
			return false
		}
		ss.handle(m)
	}
	return true
}

// leave ends the run and closes what the session has.
func (ss *session) leave(k sessionKey) {
	s := ss.srv
	ss.cancel(nil)
	ss.stopRun(true)
	ss.joins.wg.Wait()
	s.clients.mu.Lock()
	if s.clients.sessions[k] == ss {
		delete(s.clients.sessions, k)
		ss.ctl.forget(ss.addr)
	}
	s.clients.mu.Unlock()
	for more := true; more; { // no more arrive
		select {
		case in := <-ss.calls:
			in.reject("the session has ended")
		default:
			more = false
		}
	}
	if ss.ctl.remote.IsValid() {
		ss.ctl.flush(500 * time.Millisecond)
		ss.ctl.close()
		s.cfg.Closed(ss.ctl.end.ep)
	}
	s.clients.once.Do(func() { close(s.clients.first) })
}

func (ss *session) send(m *message) error {
	m.V, m.Session = ProtocolVersion, ss.id
	err := ss.ctl.send(ss.addr, m, false)
	if err != nil {
		ss.end(err.Error())
	}
	return err
}

func (ss *session) legSaid(ev legEvent) {
	for _, m := range gather(ev, ss.cur.events, ss.cur.id, len(ss.cur.legs), ss.legFailed) {
		_ = ss.send(m)
	}
}

func (ss *session) legFailed(ev legEvent) {
	ss.srv.cfg.Log("%v: %v", ss.addr, ev.err)
	_ = ss.send(&message{Type: ev.kind, Run: ss.cur.id, Leg: ev.leg, N: ev.n, Error: oneLine(ev.err)})
}

// handle does what a message asks for.
func (ss *session) handle(m *message) {
	switch m.Type {
	case mHello:
		ss.welcome(m)
	case mFacts:
		if !ss.srv.cfg.Pretend.Older {
			_ = ss.send(&message{Type: mFacts, Facts: ss.facts()})
		}
	case mResources:
		r := ss.srv.held.get()
		_ = ss.send(&message{Type: mResources, Resources: &r})
	case mClock:
		_ = ss.send(&message{Type: mClock, N: time.Now().UnixNano()})
	case mJoin:
		ss.join(m)
	case mBegin:
		ss.joins.open()
	case mPrepare:
		ss.stopRun(true)
		addrs, err := ss.prepare(m)
		if err != nil {
			ss.srv.cfg.Log("%v refused: %v", ss.addr, err)
			_ = ss.send(&message{Type: mRefuse, Run: m.Run, Error: oneLine(err)})
			return
		}
		_ = ss.send(&message{Type: mReady, Run: m.Run, Addrs: addrs})
	default:
		if ss.cur != nil && m.Run == ss.cur.id {
			ss.handleRun(ss.cur, m)
		}
	}
}

// welcome answers a hello.
func (ss *session) welcome(m *message) {
	if no := ss.mayJoin(); m.Mesh && no != "" {
		_ = ss.send(&message{Type: mRefuse, Error: no})
		return
	}
	h, t := ThisHost(), ThisTool()
	if m.Host != nil && m.Tool != nil {
		ss.srv.cfg.Log("%v is %s, uetperf %s", ss.addr, m.Host.Name, m.Tool.Version)
	}
	var can []string
	if !ss.srv.cfg.Pretend.Older {
		can = []string{mFacts, canJob, canShare}
	}
	_ = ss.send(&message{Type: mWelcome, Host: &h, Tool: &t, Can: can, Mesh: ss.mayJoin() == ""})
}

// handleRun does what a message asks of the current run.
func (ss *session) handleRun(r *serverRun, m *message) {
	switch m.Type {
	case mGo:
		r.begin()
	case mSent:
		m.each(r.sent)
	case mStop:
		for _, l := range r.open() {
			l.Stop.Store(true)
			l.wake()
		}
	case mEnd:
		results := ss.stopRun(m.Error != "")
		out := &message{Type: mResult, Run: m.Run, Results: results}
		if s := r.samples.series; s != nil {
			out.Series = pack(s.samples)
		}
		_ = ss.send(out)
	}
}
