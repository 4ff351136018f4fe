package simulated

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// A leg is one end of one stream of uetperf's test on a simulated endpoint. It is the
// traffic.Conn of its traffic.Leg. It runs when an operation has ended, when it is woken,
// and when the wait of its last turn is over.
type leg struct {
	*traffic.Leg
	s     *session
	h, to *simtest.Host
	life  int // of h
	base  record.Counters
	done  []traffic.Completion
	taken []traffic.Completion // completions of the previous turn, reused
	recvs []*simtest.Op        // posted
	at    time.Duration        // of the next turn; 0 means none
	ended bool
	told  bool // End was called
}

// A note identifies the slot of an operation.
type note struct {
	*leg
	slot *traffic.Slot
	sent bool
	seq  int64
}

const (
	// spin is how long a turn takes if the leg has something to post and no room for it.
	spin = 100 * time.Microsecond
	// injectMax is the longest message that is injected.
	injectMax = 4096
)

func (s *session) newLeg(i int, server bool, g *traffic.Group, h, to *simtest.Host) *leg {
	l := &leg{Leg: traffic.NewLeg(&s.spec, i, server, g), s: s, h: h, to: to, life: h.Life(), base: countersOf(h)}
	l.Conn = l
	return l
}

// wake makes sure that there is a turn after d.
func (l *leg) wake(d time.Duration) {
	at := l.Now() + d
	if l.at != 0 && l.at <= at {
		return
	}
	l.at = at
	l.s.l.w.Net.At(at, func() {
		if l.at == at {
			l.at = 0
			l.turn()
		}
	})
}

// turn runs one turn of the leg and schedules the next.
func (l *leg) turn() {
	switch {
	case l.ended || l.s.done || !l.h.Up() || l.h.Life() != l.life:
		return
	case l.h.Node.IsPaused(): // the application is paused, too
		l.wake(spin)
		return
	}
	done := l.done
	l.done, l.taken = l.taken[:0], done
	if err := l.Take(done); err != nil {
		l.s.fail(l.failed(err))
		return
	}
	wait, over, err := l.Turn(len(done))
	switch {
	case err != nil:
		l.s.fail(l.failed(err))
	case over:
		l.ended = true
		l.s.over()
	case wait <= 0:
		l.wake(spin)
	default:
		l.wake(wait)
	}
}

// failed adds to an error at which end it was.
func (l *leg) failed(err error) error {
	if l.Server {
		return fmt.Errorf("the server ended the test: %w", err)
	}
	return err
}

// event handles the end of an operation.
func event(o *simtest.Op) {
	n, ok := o.Note.(*note)
	if !ok {
		return
	}
	l := n.leg
	if !n.sent {
		if i := slices.Index(l.recvs, o); i >= 0 {
			l.recvs = slices.Delete(l.recvs, i, i+1)
		}
	}
	if l.ended || l.s.done {
		return
	}
	if !o.OK() {
		if err := l.Failed(opError(n.sent, o)); err != nil {
			l.s.fail(l.failed(err))
		}
		return
	}
	c := traffic.Completion{Slot: n.slot, Sent: n.sent, Seq: -1}
	if !n.sent {
		c.Len = o.Event.Len
		if m, ok := o.Got().Note.(*note); ok {
			c.Seq = m.seq
		}
	}
	l.done = append(l.done, c)
	l.wake(0)
}

// opError describes why an operation failed.
func opError(sent bool, o *simtest.Op) error {
	text := fmt.Sprintf("%s failed: %v", map[bool]string{true: "send", false: "receive"}[sent], o.Cause())
	if o.Event.Nack != 0 {
		text += fmt.Sprintf(" (NACK %v)", o.Event.Nack)
	}
	if o.Event.RC != 0 {
		text += fmt.Sprintf(" (return code %v)", o.Event.RC)
	}
	if o.Event.Unknown {
		text += ", outcome unknown"
	}
	return errors.New(text)
}

// end ends the leg. Unless the endpoint is to be closed, it cancels the receives that got
// no message, and it keeps the counters.
func (l *leg) end(failed bool) {
	if l.told {
		return
	}
	l.told, l.ended = true, true
	var err error
	if failed {
		err = traffic.ErrAborted
	}
	l.End(err)
	if l.h.Up() && l.h.Life() == l.life {
		for _, o := range slices.Clone(l.recvs) {
			if !failed {
				l.h.Cancel(o)
			}
		}
		l.Res.Echoed = l.h.FEP.Stats().AcksCE
	}
	l.Res.Counters = minus(countersOf(l.h), l.base)
}

// The methods below implement traffic.Conn. The World makes and checks the contents of
// messages.

func (l *leg) Now() time.Duration                { return l.s.l.w.Now() }
func (l *leg) Usage() (user, sys time.Duration)  { return 0, 0 }
func (l *leg) Fill([]byte, uint64)               {}
func (l *leg) Verify([]byte, uint64) (wrong int) { return 0 }
func (l *leg) Open() (own bool, err error)       { return false, nil }
func (l *leg) Close() error                      { l.h.Quiesce(); return nil }
func (l *leg) Closed() bool                      { return l.h.FEP.PDCs() == 0 }

var levels = map[string]transport.Level{"inject": transport.LevelInject, "transmit": transport.LevelTransmit, "delivery": transport.LevelDelivery, "match": transport.LevelMatch}

func (l *leg) Send(b []byte, seq int64, s *traffic.Slot) (bool, error) {
	op := simtest.OpSpec{
		Kind: transport.OpTSend, Peer: l.to.Index, Len: len(b), Level: levels[l.Spec.Complete], Ordered: l.Spec.Mode == "rod",
		Note: &note{l, s, true, seq},
	}
	switch l.Spec.Op {
	case traffic.Send:
		op.Kind = transport.OpSend
	case traffic.Inject:
		op.Inject, op.Silent = len(b) <= injectMax, true
	}
	return l.h.Post(op) != nil, nil
}

func (l *leg) SendAll(slots []*traffic.Slot, seq int64) (int, error) {
	for i, s := range slots {
		if ok, err := l.Send(s.Buf, seq+int64(i), s); !ok {
			return i, err
		}
	}
	return len(slots), nil
}

// Access is a method of traffic.Conn. Hosts of the simulator have no memory for tests.
func (l *leg) Access(*traffic.Slot) (bool, error) { return false, errors.ErrUnsupported }

func (l *leg) Recv(s *traffic.Slot) (bool, error) {
	op := simtest.OpSpec{Kind: transport.OpTRecv, Peer: simtest.Any, Len: len(s.Buf), AnyClass: true, Note: &note{leg: l, slot: s}}
	if !l.Spec.Tagged() {
		op.Kind = transport.OpRecv
	}
	o := l.h.Post(op)
	if o != nil {
		l.recvs = append(l.recvs, o)
	}
	return o != nil, nil
}
