package traffic

import (
	"errors"
	"fmt"
	"time"
)

const (
	// churnErrors failed transactions in a row end the test.
	churnErrors = 5
	// closeWait is how long a close may take, closeLook how often a test that does not poll
	// checks whether the close has ended.
	closeWait = time.Second
	closeLook = 50 * time.Microsecond
	// usualPatience is how long a transaction may take unless the Spec says how long peers may
	// be silent.
	usualPatience = 8 * time.Second
)

var (
	errNoReply  = errors.New("no reply came")
	errNotEnded = fmt.Errorf("the packet delivery contexts did not end within %v", closeWait)
)

// A churn is the client's end of rr that opens and closes what carries each transaction.
// With rdm these are the packet delivery contexts of both ends, which the first data
// packets open. With msg it is an endpoint with its connection.
type churn struct {
	*Leg
	n, good, row int64 // transactions, successful ones, failures in a row
	measured     int64
	last         time.Duration
	m            meter
	stage        churnStage
	own          bool          // the transaction has its own connection
	apart        bool          // at least one transaction had
	begin, asked time.Duration // begin of the transaction and of its request
	from         time.Duration // begin of its close
	sent, back   bool
	// opened is the time until the carrier of the transaction was open. answered is the time
	// from then to the reply; with rdm from the begin, because the data opens the carrier.
	// closed is the time until everything was closed.
	opened, answered, closed time.Duration
}

// A churnStage is the progress of a transaction.
type churnStage uint8

const (
	churnIdle    churnStage = iota
	churnFilled             // the request waits for room
	churnAsked              // the request is under way
	churnClosing            // the reply has arrived
	churnDone
)

func newChurn(l *Leg) *churn {
	l.ex.opened, l.ex.closed = newHistogram(), newHistogram()
	return &churn{Leg: l, m: l.meter(&l.Res.Tx)}
}

func (t *churn) Post() (time.Duration, error) {
	if t.stage == churnIdle {
		if !t.next() {
			t.stage = churnDone
			t.Finish()
			return 0, nil
		}
		if err := t.open(); err != nil {
			return 0, t.fail(err)
		}
		t.stage = churnFilled
	}
	switch now := t.since(); t.stage {
	case churnFilled:
		ok, err := t.Conn.Send(t.tx[0].Buf, t.n, &t.tx[0])
		switch {
		case err != nil:
			return 0, t.fail(PostError(err))
		case ok:
			t.stage = churnAsked
			return Idle, nil
		case now >= t.asked+t.patience():
			return 0, t.fail(PostError(errNoReply))
		}
		return 0, nil
	case churnAsked:
		if now > t.asked+t.patience() {
			return 0, t.fail(errNoReply)
		}
		return Idle, nil
	case churnClosing:
		return closeLook, nil // the end of a context completes nothing
	}
	return 0, nil
}

// next reports whether another transaction follows.
func (t *churn) next() bool {
	s, begin := t.Spec, t.since()
	if t.Stop.Load() {
		return false
	}
	if !t.m.on && (t.n >= s.Warmup || s.Iters == 0 && begin >= s.Time) {
		t.m.start(begin, 0)
	}
	return !t.m.on || (s.Iters == 0 || t.n < s.Warmup+s.Iters) && (s.Iters > 0 || begin-t.m.from < s.Time)
}

// open opens the carrier of the next transaction and fills in its request.
func (t *churn) open() (err error) {
	t.sent, t.back, t.opened, t.answered, t.closed = false, false, 0, 0, 0
	t.begin = t.since()
	if t.own, err = t.Conn.Open(); err != nil {
		return err
	}
	if t.own {
		t.apart = true
		if _, err := t.Conn.Recv(&t.rx[0]); err != nil {
			_ = t.Conn.Close()
			return err
		}
		t.opened = t.since() - t.begin
	}
	t.asked = t.since()
	t.fill(t.tx[0].Buf, uint64(t.n))
	return nil
}

func (t *churn) Take(c *Completion) error {
	if c.Sent {
		t.sent = true
		if !t.own {
			t.opened = t.since() - t.begin
		}
		return nil
	}
	// A reply to a failed transaction may come late.
	if t.stage == churnAsked && (c.Seq == t.n || t.own) {
		t.back = true
		t.answered = t.since() - t.asked
		t.verifyReply(c, c.Seq == t.n)
	}
	if t.own {
		return nil
	}
	return t.recv(c.Slot)
}

func (t *churn) Look(int) (bool, error) {
	if t.stage == churnAsked && t.sent && t.back {
		t.stage, t.from = churnClosing, t.since()
		if err := t.Conn.Close(); err != nil {
			return false, t.fail(err)
		}
	}
	switch t.stage {
	case churnClosing:
		t.closed = t.since() - t.from
		switch {
		case t.Conn.Closed():
			t.succeed()
		case t.closed > closeWait:
			return false, t.fail(errNotEnded)
		}
	case churnDone:
		if t.told = true; t.apart {
			t.Leg.Sent(0) // nothing was sent on the connection that stays
		} else {
			t.Leg.Sent(t.good)
		}
		return t.finished()
	}
	return false, nil
}

// succeed ends a successful transaction.
func (t *churn) succeed() {
	t.stage = churnIdle
	t.n++
	t.last = t.since()
	t.row = 0
	t.good++
	t.Live.Store(t.good)
	if t.m.on {
		t.measured++
		t.hist.record(t.answered, 1)
		t.ex.opened.record(t.opened, 1)
		t.ex.closed.record(t.closed, 1)
	}
}

// fail ends a failed transaction. Too many in a row end the test.
func (t *churn) fail(err error) error {
	if t.own && t.stage != churnClosing {
		_ = t.Conn.Close()
	}
	t.stage = churnIdle
	t.n++
	t.last = t.since()
	if t.ex.lastErr = err; t.m.on {
		t.ex.errors++
	}
	if t.row++; t.row == churnErrors {
		return err
	}
	return nil
}

// patience is how long a transaction may take.
func (t *churn) patience() time.Duration {
	if d := t.Spec.PeerTimeout; d > 0 {
		return d
	}
	return usualPatience
}

func (t *churn) Finish() {
	t.m.end(t.last, t.measured)
	t.Res.Tx.Msgs = t.measured
	t.Res.Sent, t.Res.Received = t.good, t.good
}
