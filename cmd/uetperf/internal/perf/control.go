package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// ProtocolVersion is the version of the control exchange. Both ends must have the same.
const ProtocolVersion = 1

// The control exchange consists of tagged, ordered (ROD) messages in JSON between the
// client's control endpoint and the server's, which has the known port. Each session has
// its own test endpoints, whose addresses the messages carry:
//
//	client               server
//	hello  tool, host →
//	                   ← welcome tool, host   or refuse error
//	prepare spec, addresses of the legs →
//	                   ← ready addresses      or refuse error
//	go →                                      legs run
//	sent leg, n →      ← sent leg, n          no more messages than n
//	                   ← done leg             the server's leg is complete
//	stop →                                    post no more (interrupted)
//	                   ← fail error           a leg of the server's failed; without a run:
//	                                          the session has ended, nothing follows
//	end →                                     legs end
//	                   ← result per leg
//	facts →                                   uetperf doctor
//	                   ← facts
//	resources →        ← resources            between runs
//	beat →                                    every beatEvery
//	                   ← beat                 after beatLate without one
//	bye →
//
// Tests between servers have messages of their own: see mesh.go.
//
// A client that cannot reach a secured service asks the unsecured one which services exist,
// to give a better error: ask → ← offer services. Nothing depends on the answer.
const (
	mAsk     = "ask"
	mOffer   = "offer"
	mHello   = "hello"
	mWelcome = "welcome"
	mRefuse  = "refuse"
	mPrepare = "prepare"
	mReady   = "ready"
	mGo      = "go"
	mSent    = "sent"
	mDone    = "done"
	mStop    = "stop"
	mFail    = "fail"
	mEnd     = "end"
	mResult  = "result"
	mBeat    = "beat"
	mFacts   = "facts"
	// canJob, in message.Can, says that the server knows traffic.Spec.Job.
	canJob = "job"
	// canShare says that it knows traffic.Spec.SharePort.
	canShare = "share_port"
	// mResources asks for the resources of the server's process, and answers.
	mResources = "resources"
	mBye       = "bye"
	// mPart is a part of a message that is too long for one; parts arrive in order.
	mPart = "part"
)

// sessionEnded is the begin of the error by which a server ends a client's session.
const sessionEnded = "the session was ended: "

const (
	// beatEvery is how often a client sends a beat. A server that has not heard of a client
	// for beatLate sends it a beat, so that the client's host can report that nobody is there.
	// It forgets a client after beatLost without a message, or after the silence that the
	// client's test permits if that is longer.
	beatEvery = 2 * time.Second
	beatLate  = beatEvery + 500*time.Millisecond
	beatLost  = 10 * time.Second
	// Silence is how long a client waits for the acknowledgement of a beat before it gives the
	// server up. A server that is gone ends a test within 10 s even if the test itself owes
	// nothing. A stopped or disconnected server looks the same. silenceLeast allows for a late
	// beat.
	Silence      = 7 * time.Second
	silenceLeast = beatEvery + 2*time.Second
)

// seconds is d in whole seconds, rounded up, for counting with a clock that stands still
// while the process is stopped.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// A message is one message of the control exchange.
type message struct {
	V       int              `json:"v"`
	Type    string           `json:"type"`
	Session uint64           `json:"session"`
	Run     int              `json:"run,omitempty"`
	Error   string           `json:"error,omitempty"`
	Tool    *record.Tool     `json:"tool,omitempty"`
	Host    *record.Host     `json:"host,omitempty"`
	Spec    *traffic.Spec    `json:"spec,omitempty"`
	Addrs   []netip.AddrPort `json:"addrs,omitempty"`
	Leg     int              `json:"leg,omitempty"`
	N       int64            `json:"n,omitempty"`
	// Legs are the legs of sent or done, each with its N, in place of Leg and N: there are many.
	Legs [][2]int64 `json:"legs,omitempty"`
	// Part is a part of a message, after which N follow.
	Part    []byte              `json:"part,omitempty"`
	Results []traffic.LegResult `json:"results,omitempty"`
	Series  [][7]int64          `json:"series,omitempty"` // packed samples
	Offers  []string            `json:"offers,omitempty"`
	// Can, in a welcome, lists what the server knows beyond the version, such as facts. Facts
	// are the answer to that.
	Can   []string `json:"can,omitempty"`
	Facts *Facts   `json:"facts,omitempty"`

	Resources *Resources `json:"resources,omitempty"`

	// Mesh says in a hello that a server sends it, which runs a test between servers, and in a
	// welcome that the server takes part in such tests. Join and Met are about these tests.
	Mesh bool  `json:"mesh,omitempty"`
	Join *Join `json:"join,omitempty"`
	Met  *Met  `json:"met,omitempty"`
}

const (
	ctlTag = 0x7565_7463_0000_0001
	// ctlMax is the length limit of a control message in bytes. It has room for the results of
	// FewParallel legs and maxSamples samples. A longer message goes in parts of ctlPart bytes, up to
	// ctlWhole in all.
	ctlMax   = 128 << 10
	ctlPart  = 64 << 10
	ctlWhole = 32 << 20
	// ctlQueue is how many messages a session reads late.
	ctlQueue = 4 * traffic.FewParallel
	// ctlRecvs is how many messages may arrive before one is read. More wait at their sender.
	ctlRecvs = 16
	// ctlSends bounds the messages that are under way.
	ctlSends = 512
)

// A ctl is a control endpoint. One goroutine reads its completions.
type ctl struct {
	end *end
	svc service
	sec *uet.Security
	// remote is the only peer of a connected endpoint; not valid otherwise.
	remote  netip.AddrPort
	down    sync.Once // makes onLost hear only once that the connection ended
	onMsg   func(c *ctl, from netip.AddrPort, m *message)
	onLost  func(c *ctl, to netip.AddrPort, what undelivered, err error)
	arrived atomic.Int64 // sent messages that the peer's endpoint acknowledged
	closing atomic.Bool
	done    chan struct{}

	mu      sync.Mutex // guards the fields below
	peers   map[netip.AddrPort]*ctlPeer
	rest    []netip.AddrPort // resting addresses, the oldest first; some may be in use again
	sending int
	idle    *sync.Cond // signalled when sending decreases
}

type ctlRecv struct{ buf []byte }

// A ctlPeer is a destination. It is in use while a message to it is under way or a session
// keeps it: a refusal to one client may complete after the next client got its port. When
// it is no longer in use it rests in the address vector for a while, because without the
// entry the source of a message that has arrived but was not read would be unknown.
type ctlPeer struct {
	h       fi.Addr
	sending int
	keep    bool
	resting bool // its address is in ctl.rest
}

// undelivered describes a message that could not be delivered: its session, which
// distinguishes a client from an earlier one with the same address, and whether it was a
// beat, which carries nothing. Both are zero if the connection was lost.
type undelivered struct {
	session uint64
	beat    bool
}

// restMax bounds the destinations that rest.
const restMax = 1024

// A ctlSend is a message on its way. It is the context of its send.
type ctlSend struct {
	to netip.AddrPort
	undelivered
	// again is the message if it may be sent a second time; nil otherwise. Only the first
	// answer to a client may. The client's port may have belonged to another process a moment
	// ago. The packet delivery context is then of that earlier life, so the peer seems to have
	// restarted (F12) and the first message fails. The second one opens a new context.
	again []byte
}

// openCtl opens a control endpoint, for one peer if remote is valid. onMsg is called for
// each message, onLost for each message that could not be delivered and for the end of the
// connection, both by the ctl's goroutine.
func openCtl(svc service, info *uet.Info, remote netip.AddrPort, onMsg func(*ctl, netip.AddrPort, *message), onLost func(*ctl, netip.AddrPort, undelivered, error)) (*ctl, error) {
	e, err := openEnd(info, ctlRecvs+ctlSends)
	if err != nil {
		return nil, err
	}
	c := &ctl{end: e, svc: svc, sec: info.Config.Security, remote: remote, onMsg: onMsg, onLost: onLost, done: make(chan struct{}), peers: map[netip.AddrPort]*ctlPeer{}}
	c.idle = sync.NewCond(&c.mu)
	for range ctlRecvs {
		r := &ctlRecv{make([]byte, ctlMax)}
		if err := e.ep.TRecv(r.buf, fi.AddrUnspec, ctlTag, 0, r); err != nil {
			e.close()
			return nil, err
		}
	}
	go c.loop()
	return c, nil
}

// ctlHints returns the hints of a control endpoint. timeout is how long a peer may be
// silent.
func ctlHints(timeout time.Duration) *uet.Info {
	h := &uet.Info{Caps: fi.Msg | fi.Tagged | fi.Send | fi.Recv | fi.Source | fi.SourceErr}
	h.Tx.MsgOrder, h.Rx.MsgOrder = fi.OrderSAS, fi.OrderSAS
	h.Tx.Size, h.Rx.Size = ctlSends, ctlRecvs
	h.Domain.DataProgress = fi.ProgressAuto
	h.Config.Tuning.PeerTimeout = timeout
	h.Config.Tuning.SuspectTimeout = min(timeout, time.Second)
	// Small buffers suffice: little arrives at a time, and a server has one such socket per
	// address.
	h.Config.Socket.RecvBuf, h.Config.Socket.SendBuf = 1<<20, 1<<20
	return h
}

// send sends m. forget says that no other message to the address will follow. It fails only
// if the address cannot be used; onLost reports messages that do not arrive.
func (c *ctl) send(to netip.AddrPort, m *message, forget bool) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	switch {
	case len(b) > ctlWhole:
		return fmt.Errorf("control message of %d bytes", len(b))
	case len(b) > ctlMax:
		for left := (len(b) - 1) / ctlPart; left >= 0; left-- {
			n := min(ctlPart, len(b))
			if err := c.send(to, &message{V: m.V, Type: mPart, Session: m.Session, Part: b[:n], N: int64(left)}, forget); err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sending == ctlSends {
		return fi.EAGAIN
	}
	p := c.peers[to]
	if p == nil {
		h, err := c.end.insert(to)
		if err != nil {
			return err
		}
		p = &ctlPeer{h: h}
		c.peers[to] = p
	}
	if !forget {
		p.keep = true
	}
	s := &ctlSend{to: to, undelivered: undelivered{m.Session, m.Type == mBeat}}
	if m.Type == mWelcome || m.Type == mRefuse {
		s.again = b
	}
	if err := c.end.ep.TSend(b, p.h, ctlTag, s); err != nil {
		c.tidy(to, p)
		return err
	}
	p.sending++
	p.resting = false
	c.sending++
	return nil
}

// resend sends the message of s a second time and reports whether it could.
func (c *ctl) resend(s *ctlSend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[s.to]
	b := s.again
	s.again = nil
	return p != nil && c.end.ep.TSend(b, p.h, ctlTag, s) == nil
}

// forget notes that no session uses the address any more.
func (c *ctl) forget(a netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[a]; p != nil {
		p.keep = false
		c.tidy(a, p)
	}
}

// tidy lets an address rest if it is not in use. If too many rest, it removes the one that
// rested longest from the vector. The caller holds mu.
func (c *ctl) tidy(a netip.AddrPort, p *ctlPeer) {
	if p.keep || p.sending > 0 || p.resting || c.end.av == nil {
		return
	}
	p.resting = true
	c.rest = append(c.rest, a)
	if len(c.rest) <= restMax {
		return
	}
	old := c.rest[0]
	c.rest = c.rest[1:]
	if p := c.peers[old]; p != nil && p.resting {
		delete(c.peers, old)
		_ = c.end.av.Remove(p.h)
	}
}

// loop reads completions until close.
func (c *ctl) loop() {
	defer close(c.done)
	ents, src := make([]cq.Entry, 16), make([]fi.Addr, 16)
	for !c.closing.Load() {
		n, err := c.end.cq.SReadFrom(ents, src, 1, -1)
		switch {
		case err == fi.EAVAIL:
			var ce cq.Error
			if _, err := c.end.cq.ReadErr(&ce, 0); err == nil {
				c.failed(&ce)
			}
		case err != nil && err != fi.EAGAIN:
			return
		}
		for i := range n {
			switch ctx := ents[i].Context.(type) {
			case *ctlRecv:
				if c.remote.IsValid() {
					c.received(c.remote, ctx, ents[i].Len)
				} else if a, err := c.end.av.Lookup(src[i]); err == nil {
					c.received(a.AddrPort(), ctx, ents[i].Len)
				} else {
					c.repost(ctx)
				}
			case *ctlSend:
				c.arrived.Add(1)
				c.gone(ctx, nil)
			}
		}
	}
}

// failed handles an error entry: a send that failed, or a message from a source that is not
// in the vector.
func (c *ctl) failed(ce *cq.Error) {
	switch ctx := ce.Context.(type) {
	case *ctlSend:
		c.gone(ctx, &OpError{Entry: *ce, Text: c.end.cq.StrError(ce.Prov)})
	case *ctlRecv:
		if c.remote.IsValid() { // the connection is gone: nothing will arrive
			if ce.Err != fi.ECANCELED {
				c.down.Do(func() { c.onLost(c, c.remote, undelivered{}, &OpError{Entry: *ce, Text: c.end.cq.StrError(ce.Prov)}) })
			}
			return
		}
		if ce.Err == fi.EADDRNOTAVAIL {
			if a, _, err := wire.ParseAddrBinary(ce.ErrData); err == nil {
				c.received(a.AddrPort(), ctx, ce.Len)
				return
			}
		}
		if ce.Err != fi.ECANCELED {
			c.repost(ctx)
		}
	}
}

func (c *ctl) received(from netip.AddrPort, r *ctlRecv, n int) {
	m := new(message)
	err := json.Unmarshal(r.buf[:n], m)
	c.repost(r)
	if err == nil {
		c.onMsg(c, c.end.near(from), m)
	}
}

// parts puts the parts of a message together.
type parts struct{ whole []byte }

// add returns the message that m completes or is, nil if more follow or it is none.
func (p *parts) add(m *message) *message {
	if m.Type != mPart {
		return m
	}
	if len(p.whole)+len(m.Part) > ctlWhole {
		p.whole = nil
		return nil
	}
	if p.whole = append(p.whole, m.Part...); m.N > 0 {
		return nil
	}
	whole := new(message)
	err := json.Unmarshal(p.whole, whole)
	p.whole = nil
	if err != nil || whole.Type == mPart || whole.Session != m.Session {
		return nil
	}
	return whole
}

// gatherFor is how long the end of one of many legs waits for others, to be told together.
const gatherFor = 2 * time.Millisecond

// listMax is the most legs in one message.
const listMax = 2000

// gather returns the messages that tell of an event of a run with so many legs, and of others that
// are there already if there are many legs. Events with errors are passed to failed.
func gather(ev legEvent, events <-chan legEvent, run, legs int, failed func(legEvent)) (ms []*message) {
	if ev.err != nil {
		failed(ev)
		return nil
	}
	if legs <= traffic.FewParallel {
		return []*message{{Type: ev.kind, Run: run, Leg: ev.leg, N: ev.n}}
	}
	time.Sleep(gatherFor)
	last := map[string]*message{}
	for more := true; more; {
		if ev.err != nil {
			failed(ev)
		} else {
			m := last[ev.kind]
			if m == nil || len(m.Legs) == listMax {
				m = &message{Type: ev.kind, Run: run}
				last[ev.kind] = m
				ms = append(ms, m)
			}
			m.Legs = append(m.Legs, [2]int64{int64(ev.leg), ev.n})
		}
		select {
		case ev = <-events:
		default:
			more = false
		}
	}
	return ms
}

// each calls f for the legs that m tells of.
func (m *message) each(f func(leg int, n int64)) {
	if m.Legs == nil {
		f(m.Leg, m.N)
	}
	for _, l := range m.Legs {
		f(int(l[0]), l[1])
	}
}

func (c *ctl) repost(r *ctlRecv) {
	_ = c.end.ep.TRecv(r.buf, fi.AddrUnspec, ctlTag, 0, r)
}

// gone handles the end of a send, with err if it failed.
func (c *ctl) gone(s *ctlSend, err error) {
	if s.again != nil && errors.Is(err, fi.ECONNABORTED) && c.resend(s) {
		return
	}
	c.mu.Lock()
	c.sending--
	c.idle.Broadcast()
	if p := c.peers[s.to]; p != nil {
		p.sending--
		c.tidy(s.to, p)
	}
	c.mu.Unlock()
	if err != nil && !errors.Is(err, fi.ECANCELED) {
		c.onLost(c, s.to, s.undelivered, err)
	}
}

// flush waits, at most for d, until every sent message has arrived or failed.
func (c *ctl) flush(d time.Duration) {
	late := false
	t := time.AfterFunc(d, func() {
		c.mu.Lock()
		late = true
		c.idle.Broadcast()
		c.mu.Unlock()
	})
	defer t.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sending > 0 && !late {
		c.idle.Wait()
	}
}

// close ends the goroutine and closes the endpoint. onMsg and onLost must not call it.
func (c *ctl) close() {
	c.closing.Store(true)
	_ = c.end.cq.Signal()
	<-c.done
	c.end.close()
}
