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
//	                   ← fail error           a leg of the server's failed
//	end →                                     legs end
//	                   ← result per leg
//	beat →                                    every beatEvery
//	                   ← beat                 after beatLate without one
//	bye →
const (
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
	mBye     = "bye"
)

const (
	// beatEvery is how often a client says that it is alive. A server asks one it
	// has not heard of for beatLate, so that its host can say that nobody is
	// there, and forgets one it has not heard of for beatLost.
	beatEvery = 2 * time.Second
	beatLate  = beatEvery + 500*time.Millisecond
	beatLost  = 10 * time.Second
)

// A message is one message of the control exchange.
type message struct {
	V       int              `json:"v"`
	Type    string           `json:"type"`
	Session uint64           `json:"session"`
	Run     int              `json:"run,omitempty"`
	Error   string           `json:"error,omitempty"`
	Tool    *record.Tool     `json:"tool,omitempty"`
	Host    *record.Host     `json:"host,omitempty"`
	Spec    *Spec            `json:"spec,omitempty"`
	Addrs   []netip.AddrPort `json:"addrs,omitempty"`
	Leg     int              `json:"leg,omitempty"`
	N       int64            `json:"n,omitempty"`
	Results []LegResult      `json:"results,omitempty"`
}

const (
	ctlTag = 0x7565_7463_0000_0001
	// ctlMax is the longest control message in bytes: the results of MaxParallel
	// legs with room to spare.
	ctlMax = 128 << 10
	// ctlRecvs is how many may arrive before one is read; more wait at their
	// sender.
	ctlRecvs = 16
	// ctlSends bounds the messages under way.
	ctlSends = 512
)

// A ctl is a control endpoint.
type ctl struct {
	end     *end
	onMsg   func(c *ctl, from netip.AddrPort, m *message)
	onLost  func(c *ctl, to netip.AddrPort, session uint64, err error)
	closing atomic.Bool
	done    chan struct{}

	mu      sync.Mutex // guards what follows
	peers   map[netip.AddrPort]fi.Addr
	sending int
	idle    *sync.Cond // sending went down
}

type ctlRecv struct{ buf []byte }

type ctlSend struct {
	to netip.AddrPort
	// session tells a client from an earlier one with the same address.
	session uint64
	forget  bool
	// again is the message if it may be sent a second time: the first answer to
	// a client. Its port may have been another's a moment ago; then the packet
	// delivery context to it is of that life, and to this end the peer was
	// restarted (F12): what was sent has failed, the next message opens anew.
	again []byte
}

// openCtl opens a control endpoint. onMsg hears of each message and onLost of
// each one that could not be delivered, both from the ctl's goroutine.
func openCtl(info *uet.Info, onMsg func(*ctl, netip.AddrPort, *message), onLost func(*ctl, netip.AddrPort, uint64, error)) (*ctl, error) {
	e, err := openEnd(info, ctlRecvs+ctlSends)
	if err != nil {
		return nil, err
	}
	c := &ctl{end: e, onMsg: onMsg, onLost: onLost, done: make(chan struct{}), peers: map[netip.AddrPort]fi.Addr{}}
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
	h.Config.Transport.PeerTimeout = timeout
	h.Config.Transport.SuspectTimeout = min(timeout, time.Second)
	// Little is received at a time, and a server has one such socket per
	// interface address.
	h.Config.Socket.RecvBuf, h.Config.Socket.SendBuf = 1<<20, 1<<20
	return h
}

// send sends m. It fails only when the address cannot be used; that a message
// did not arrive onLost says.
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
	h, ok := c.peers[to]
	if !ok {
		if h, err = c.end.insert(to); err != nil {
			return err
		}
		c.peers[to] = h
	}
	if c.sending == ctlSends {
		return fi.EAGAIN
	}
	s := &ctlSend{to: to, session: m.Session, forget: forget}
	if m.Type == mWelcome || m.Type == mRefuse {
		s.again = b
	}
	if err := c.end.ep.TSend(b, h, ctlTag, s); err != nil {
		return err
	}
	c.sending++
	return nil
}

// resend sends the message of s for the second time, and reports whether it
// could.
func (c *ctl) resend(s *ctlSend) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.peers[s.to]
	b := s.again
	s.again = nil
	return ok && c.end.ep.TSend(b, h, ctlTag, s) == nil
}

// forget removes an address from the vector.
func (c *ctl) forget(a netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h, ok := c.peers[a]; ok {
		delete(c.peers, a)
		_ = c.end.av.Remove(h)
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
				if a, err := c.end.av.Lookup(src[i]); err == nil {
					c.received(a.AddrPort(), ctx, ents[i].Len)
				} else {
					c.repost(ctx)
				}
			case *ctlSend:
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
		c.onMsg(c, from, m)
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
	c.mu.Unlock()
	if s.forget {
		c.forget(s.to)
	}
	if err != nil && !errors.Is(err, fi.ECANCELED) {
		c.onLost(c, s.to, s.session, err)
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
