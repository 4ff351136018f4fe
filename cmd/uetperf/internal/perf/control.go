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

// ProtocolVersion is that of the control exchange. Both ends must speak the
// same.
const ProtocolVersion = 1

// The control exchange is JSON in tagged messages between the client's control
// endpoint and the server's, the one whose port is known; they are ordered
// (ROD). Each session has its own test endpoints, whose addresses the messages
// carry:
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
// A client that cannot reach a secured service asks the unsecured one what there is,
// to say more than that: ask → ← offer services. Nothing rests on the answer.
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
	// mResources asks what the server's process holds, and answers.
	mResources = "resources"
	mBye       = "bye"
)

// sessionEnded begins what a server says to a client whose session it ends.
const sessionEnded = "the session was ended: "

const (
	// beatEvery is how often a client says that it is alive. A server asks one it
	// has not heard of for beatLate, so that its host can say that nobody is
	// there, and forgets one it has not heard of for beatLost, or for as long as its
	// test lets peers be silent.
	beatEvery = 2 * time.Second
	beatLate  = beatEvery + 500*time.Millisecond
	beatLost  = 10 * time.Second
	// Silence is how long a client waits for a sign of the server, the
	// acknowledgement of a beat, before it gives it up: a server that is gone
	// ends a test within 10 s, also where nothing is owed to the test itself. One
	// that is stopped or cut off looks the same. silenceLeast lets a beat be late.
	Silence      = 7 * time.Second
	silenceLeast = beatEvery + 2*time.Second
)

// seconds is how many whole seconds d is, at least: what is counted by a clock that
// stands while the process does.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// A message is one message of the control exchange.
type message struct {
	V       int                 `json:"v"`
	Type    string              `json:"type"`
	Session uint64              `json:"session"`
	Run     int                 `json:"run,omitempty"`
	Error   string              `json:"error,omitempty"`
	Tool    *record.Tool        `json:"tool,omitempty"`
	Host    *record.Host        `json:"host,omitempty"`
	Spec    *traffic.Spec       `json:"spec,omitempty"`
	Addrs   []netip.AddrPort    `json:"addrs,omitempty"`
	Leg     int                 `json:"leg,omitempty"`
	N       int64               `json:"n,omitempty"`
	Results []traffic.LegResult `json:"results,omitempty"`
	Series  [][7]int64          `json:"series,omitempty"` // packed samples
	Offers  []string            `json:"offers,omitempty"`
	// Can, of welcome, says that the server knows facts; Facts are those.
	Can   []string `json:"can,omitempty"`
	Facts *Facts   `json:"facts,omitempty"`

	Resources *Resources `json:"resources,omitempty"`
}

const (
	ctlTag = 0x7565_7463_0000_0001
	// ctlMax is the longest control message in bytes: the results of MaxParallel
	// legs and maxSamples samples with room to spare.
	ctlMax = 128 << 10
	// ctlRecvs is how many may arrive before one is read; more wait at their
	// sender.
	ctlRecvs = 16
	// ctlSends bounds the messages under way.
	ctlSends = 512
)

// A ctl is a control endpoint.
type ctl struct {
	end *end
	svc service
	sec *uet.Security
	// remote is the only peer if the endpoint is connected, else not valid.
	remote  netip.AddrPort
	down    sync.Once // onLost was told that it is no longer
	onMsg   func(c *ctl, from netip.AddrPort, m *message)
	onLost  func(c *ctl, to netip.AddrPort, what undelivered, err error)
	arrived atomic.Int64 // messages that the peer's endpoint has taken
	closing atomic.Bool
	done    chan struct{}

	mu      sync.Mutex // guards what follows
	peers   map[netip.AddrPort]*ctlPeer
	rest    []netip.AddrPort // those that nobody needed, the oldest first; some may be needed again
	sending int
	idle    *sync.Cond // sending went down
}

type ctlRecv struct{ buf []byte }

// A ctlPeer is a destination. It is needed while something is under way to it, or a
// session keeps it: a refusal to a client may end when the next one has its port.
// Then it rests in the vector and is not taken out at once: a message that has come
// from there and was not read yet could not be told from whom.
type ctlPeer struct {
	h       fi.Addr
	sending int
	keep    bool
	resting bool // in ctl.rest
}

// undelivered is what a message was: its session, which tells a client from an earlier
// one with the same address, and whether it was a beat, which says nothing. Both are
// zero if it is the connection that is lost.
type undelivered struct {
	session uint64
	beat    bool
}

// restMax is how many destinations that nobody needs stay.
const restMax = 1024

type ctlSend struct {
	to netip.AddrPort
	undelivered
	// again is the message if it may be sent a second time: the first answer to
	// a client. Its port may have been another's a moment ago; then the packet
	// delivery context to it is of that life, and to this end the peer was
	// restarted (F12): what was sent has failed, the next message opens anew.
	again []byte
}

// openCtl opens a control endpoint, for one peer if remote is valid. onMsg hears of
// each message and onLost of each one that could not be delivered, or of the end of
// the connection, both from the ctl's goroutine.
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

// ctlHints are the hints of a control endpoint. timeout is how long a peer may
// be silent.
func ctlHints(timeout time.Duration) *uet.Info {
	h := &uet.Info{Caps: fi.Msg | fi.Tagged | fi.Send | fi.Recv | fi.Source | fi.SourceErr}
	h.Tx.MsgOrder, h.Rx.MsgOrder = fi.OrderSAS, fi.OrderSAS
	h.Tx.Size, h.Rx.Size = ctlSends, ctlRecvs
	h.Domain.DataProgress = fi.ProgressAuto
	h.Config.Tuning.PeerTimeout = timeout
	h.Config.Tuning.SuspectTimeout = min(timeout, time.Second)
	// Little is received at a time, and a server has one such socket per
	// interface address.
	h.Config.Socket.RecvBuf, h.Config.Socket.SendBuf = 1<<20, 1<<20
	return h
}

// send sends m, the last message to the address if forget is true and nobody sends
// another. It fails only when the address cannot be used; that a message did not
// arrive onLost says.
func (c *ctl) send(to netip.AddrPort, m *message, forget bool) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > ctlMax {
		return fmt.Errorf("control message of %d bytes", len(b))
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

// resend sends the message of s for the second time, and reports whether it
// could.
func (c *ctl) resend(s *ctlSend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[s.to]
	b := s.again
	s.again = nil
	return p != nil && c.end.ep.TSend(b, p.h, ctlTag, s) == nil
}

// forget says that no session has the address any more.
func (c *ctl) forget(a netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[a]; p != nil {
		p.keep = false
		c.tidy(a, p)
	}
}

// tidy lets an address rest that nobody needs, and takes the one that has longest out
// of the vector when there are too many. The lock is held.
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

// failed handles an error entry: a send that failed, or a message whose source
// is not known yet.
func (c *ctl) failed(ce *cq.Error) {
	switch ctx := ce.Context.(type) {
	case *ctlSend:
		c.gone(ctx, &OpError{Entry: *ce, Text: c.end.cq.StrError(ce.Prov)})
	case *ctlRecv:
		if c.remote.IsValid() { // the connection is gone: nothing comes any more
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

func (c *ctl) repost(r *ctlRecv) {
	_ = c.end.ep.TRecv(r.buf, fi.AddrUnspec, ctlTag, 0, r)
}

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

// flush waits until what was sent has arrived or failed, at most d.
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

// close ends the goroutine and closes the endpoint. It must not be called from
// onMsg or onLost.
func (c *ctl) close() {
	c.closing.Store(true)
	_ = c.end.cq.Signal()
	<-c.done
	c.end.close()
}
