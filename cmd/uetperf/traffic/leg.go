package traffic

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/pattern"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
)

// Signals are what a leg learns from outside. Another goroutine may set them, and must then
// wake the owner of the leg.
type Signals struct {
	Gate     atomic.Bool  // the other leg is ready: messages may be posted
	Stop     atomic.Bool  // post no more messages
	Over     atomic.Bool  // the other side is complete
	Aborted  atomic.Bool  // end at once
	PeerSent atomic.Int64 // how many messages the other leg has sent; -1 means not known yet
}

// A Leg is one end of one stream. Both ends live as follows:
//
//  1. Start posts receives. A side that sends begins when the Gate is opened.
//  2. A side that has posted its last message tells the other how many there were (Sent).
//     A leg is complete when its own sends have completed and all messages of the other
//     side have arrived.
//  3. The server's leg reports that (Complete) and goes on, because the client may still
//     need an answer. The client's leg ends when it is complete and the server's is, too
//     (Over). Then the server's leg is told to end (Over).
type Leg struct {
	Signals
	Conn Conn

	// Every turn reads these.
	started bool
	linger  bool // the test is complete; only the other side is waited for
	rests   bool // nothing can happen before the wait is over
	told    bool
	test    Test      // made in the first turn
	stream  *stream   // test, if it is one whose messages are neither lost nor checked
	ping    *pingpong // test, if it is a pingpong of that kind
	echoes  *answerer // test, if it sends back messages as Echoes are
	plain   bool      // what is posted are messages whose contents nobody checks
	again   []*Slot   // receives that found no room
	posts   int64     // receives posted
	check   *record.Check
	begun   time.Duration
	opened  time.Duration // when the leg found its gate open

	// Live is the number of messages so far, for interval lines.
	Live atomic.Int64
	// Reply is called for every round trip of a ping; rtt is 0 if no answer came in time.
	Reply func(n int64, rtt time.Duration)

	Spec   *Spec
	Index  int // of the stream
	Server bool
	tx, rx []Slot
	words  []Slot     // streams of datagrams: to send words from, or to receive them in
	hist   *histogram // measured times: half of each round trip, but all of a ping's, an access, or a sampled operation of bw
	ledger *pattern.Ledger
	ex     exchanged // of load and rr
	Res    LegResult
	// Senders is how many messages each sender of an incast has sent, for the receiver; -1
	// means not known yet.
	Senders []atomic.Int64
	// Sent is called with the number of messages sent, Complete when the leg is complete.
	Sent     func(n int64)
	Complete func()
	// Group is shared by the legs of one end.
	Group *Group
}

// A Group is what the legs of one end of a test share.
type Group struct {
	both musters
	race *race // only for the senders of an incast
}

// NewGroup makes the group of one end. wake must wake all its legs.
func NewGroup(s *Spec, server bool, wake func()) *Group {
	g := &Group{both: newMusters(s)}
	if s.Test == Incast && !server {
		g.race = newRace(s.Parallel, wake)
	}
	return g
}

// Round is the open round of an incast; 0 during its streams.
func (g *Group) Round() int64 { return g.race.round.Load() }

// Results returns what the leg measured, one result for each leg of the other end that it
// serves. Only the receiver of an incast serves several: the first result has its
// measurements, and each has the number of messages from one sender.
func (l *Leg) Results() []LegResult {
	k, ok := l.test.(*sink)
	if !ok {
		return []LegResult{l.Res}
	}
	out := make([]LegResult, len(k.got))
	out[0] = l.Res
	for i := range out {
		out[i].Received = k.got[i]
	}
	return out
}

// ErrAborted ends a leg from outside.
var ErrAborted = errors.New("aborted")

// NewLeg makes a leg. Before it starts, its owner must set Conn and the functions that it
// calls.
func NewLeg(s *Spec, index int, server bool, g *Group) *Leg {
	l := &Leg{Spec: s, Index: index, Server: server, Group: g, Sent: func(int64) {}, Complete: func() {}}
	l.PeerSent.Store(-1)
	tx, txBufs, rx, rxBufs := s.slots()
	if s.Test == Incast && server {
		rx *= s.Parallel
		if s.Check {
			rxBufs = rx
		}
		l.Senders = make([]atomic.Int64, s.Parallel)
		for i := range l.Senders {
			l.Senders[i].Store(-1)
		}
	}
	l.plain = !s.OneSided() && !s.Check
	if s.Check {
		l.check = &record.Check{}
		// A sender is at most a window ahead of the slowest message. The span is longer, also
		// by what a batch of completions may add.
		l.ledger = pattern.NewLedger(4*s.Window + 1024)
	}
	if s.Lossy() {
		l.ledger = pattern.NewLedger(lossySpan)
	}
	if !server && (s.Pingpong() || s.Exchanges()) || s.Times() && s.Sends(server) {
		l.hist = newHistogram()
	}
	back := s.Size // length of the messages that come back
	if s.Exchanges() {
		back = s.Reply
	}
	if s.Sends(server) {
		l.tx = slots(tx, txBufs, s.Size)
	}
	if !server && (s.Op == Swap || s.Op == CAS) {
		l.operands()
	}
	switch {
	case s.OneSided():
	case s.Sends(!server):
		l.rx = slots(rx, rxBufs, s.Size)
	case s.Pingpong() || s.Exchanges():
		l.rx = slots(rx, rxBufs, back)
	}
	if s.Lossy() && !s.Pingpong() && !s.Exchanges() {
		l.words = slots(words, 1, 0)
	}
	for _, v := range [][]Slot{l.tx, l.rx, l.words} {
		for i := range v {
			v[i].Leg = index
		}
	}
	l.again = make([]*Slot, 0, len(l.rx)+len(l.words))
	if s.Exchanges() && server && !s.OneSided() {
		for i, r := range slots(rx, rxBufs, back) {
			l.rx[i].Reply = r.Buf
		}
	}
	return l
}

// newTest makes the test of a leg.
func newTest(l *Leg) Test {
	switch s := l.Spec; {
	case s.OneSided() && l.Server:
		return &passive{Leg: l}
	case s.Test == Incast && l.Server:
		return newSink(l)
	case s.Test == Incast:
		return newSender(l)
	case (s.Pingpong() || s.Exchanges()) && l.Server:
		return newAnswerer(l)
	case s.Pingpong():
		return newPingpong(l)
	case s.Churn:
		return newChurn(l)
	case s.Exchanges():
		return newExchange(l)
	default:
		return newStream(l)
	}
}

// slots makes n slots that share bufs buffers of size bytes.
func slots(n, bufs int, size int64) []Slot {
	v := make([]Slot, n)
	slab := make([]byte, max(1, bufs*int(size))) // never nil, so that even empty messages have an address
	for i := range v {
		b := i % bufs * int(size)
		v[i].Buf = slab[b : b+int(size) : b+int(size)]
		v[i].Place = i
	}
	return v
}

// Start posts the receives.
func (l *Leg) Start() error {
	for i := range l.rx {
		if err := l.recv(&l.rx[i]); err != nil {
			return err
		}
	}
	for i := range l.words {
		if l.words[i].word = len(l.rx) > 0; l.words[i].word {
			continue
		}
		if err := l.recv(&l.words[i]); err != nil {
			return err
		}
	}
	return nil
}

// Take takes completions. Before the first turn, and in a leg that lingers, there is nothing
// to take. After an error the leg has ended.
func (l *Leg) Take(cs []Completion) error {
	if !l.started || l.linger {
		return nil
	}
	switch {
	case l.stream != nil:
		return l.stream.takeSimply(cs)
	case l.ping != nil:
		for i := range cs {
			l.ping.Took(cs[i].Slot, cs[i].Sent)
		}
		return nil
	}
	for i := range cs {
		if err := l.test.Take(&cs[i]); err != nil {
			return err
		}
	}
	return nil
}

// Turn looks whether the test is over, after n completions were taken, and posts what can be
// posted. It returns how long to wait for the next turn, and whether the leg has ended. After
// an error the leg has ended, too.
func (l *Leg) Turn(n int) (wait time.Duration, over bool, err error) {
	if over, err = l.look(n); err == nil && !over {
		if l.linger {
			return Idle, l.Over.Load(), nil
		}
		if wait, err = l.test.Post(); err == nil {
			return wait, false, nil
		}
	}
	l.finish()
	return 0, over, err
}

// look is Turn without posting. It makes the test in the first turn.
func (l *Leg) look(n int) (over bool, err error) {
	switch {
	case l.Aborted.Load():
		return false, ErrAborted
	case l.linger:
		return false, nil
	case !l.started:
		l.started = true
		l.begun = l.Conn.Now()
		l.test = newTest(l)
		return false, nil
	case len(l.again) > 0:
		if err := l.recvAgain(); err != nil {
			return false, err
		}
	}
	return l.test.Look(n)
}

// Failed is called when an operation has failed. It returns the error if that ends the leg.
func (l *Leg) Failed(err error) error {
	if t, ok := l.test.(*churn); ok && !l.linger { // other transactions may still succeed
		return t.fail(err)
	}
	return err
}

// recvAgain posts the receives that found no room.
func (l *Leg) recvAgain() error {
	for k := len(l.again); k > 0; k-- {
		s := l.again[0]
		l.again = append(l.again[:0], l.again[1:]...)
		if err := l.recv(s); err != nil {
			return err
		}
	}
	return nil
}

// Rests reports that the leg has nothing to do before the wait of its turn is over, so that
// even a polling owner may sleep.
func (l *Leg) Rests() bool { return l.rests }

// End is called once when the leg has ended, with or without an error.
func (l *Leg) End(err error) {
	if err != nil {
		l.finish()
	}
	l.tell()
	if l.check == nil {
		return
	}
	if n := l.PeerSent.Load(); err == nil && n >= 0 && !l.Spec.Pingpong() && !l.Spec.Churn && (!l.Spec.OneSided() || l.Server && l.Spec.Op == WriteData) && !l.Spec.Lossy() && l.Senders == nil {
		l.check.Wrong += int64(l.ledger.Gaps(uint64(n)))
	}
	l.Res.Check = l.check
}

func (l *Leg) finish() {
	if l.test != nil { // otherwise it was aborted before its first turn
		l.test.Finish()
	}
}

// finished ends a client's test. The leg lingers until the other side is complete.
func (l *Leg) finished() (bool, error) {
	l.test.Finish()
	l.tell()
	l.linger = true
	return false, nil
}

// since is the time since the leg began.
func (l *Leg) since() time.Duration { return l.Conn.Now() - l.begun }

// open reports whether messages may be posted.
func (l *Leg) open() bool {
	if l.opened == 0 && l.Gate.Load() {
		l.opened = max(1, l.since())
	}
	return l.opened != 0
}

// tell reports how many messages were sent, once.
func (l *Leg) tell() {
	if !l.told && len(l.tx) > 0 {
		l.told = true
		l.Sent(l.Res.Sent)
	}
}

// recv posts a receive, or keeps it for later if there is no room now.
func (l *Leg) recv(s *Slot) error {
	s.seq = l.posts
	ok, err := l.Conn.Recv(s)
	if ok {
		l.posts++
		return nil
	}
	return l.unposted(s, err)
}

// unposted keeps a receive that found no room for later.
func (l *Leg) unposted(s *Slot, err error) error {
	if err != nil {
		return PostError(err)
	}
	l.again = append(l.again, s)
	return nil
}

// fill writes the contents of message n, if they are checked.
func (l *Leg) fill(b []byte, n uint64) {
	if l.check != nil {
		l.Conn.Fill(b, n)
	}
}

// free returns all slots to send from.
func (l *Leg) free() []*Slot {
	v := make([]*Slot, 0, len(l.tx))
	for i := range l.tx {
		v = append(v, &l.tx[i])
	}
	return v
}

// wrong counts the bytes of a message that are wrong, missing or too many.
func (l *Leg) wrong(c *Completion, size int64, n uint64) int {
	wrong := 0
	if n := int64(c.Len); n != size {
		wrong = int(max(n, size) - min(n, size))
	}
	wrong += l.Conn.Verify(c.Buf[:min(c.Len, len(c.Buf))], n)
	l.check.WrongBytes += int64(wrong)
	return wrong
}

// countChecked counts a checked message.
func (l *Leg) countChecked(dup bool, wrong int) {
	switch {
	case dup:
		l.check.Dup++
		l.check.Wrong++
	case wrong > 0:
		l.check.Wrong++
	default:
		l.check.OK++
	}
}

// verify checks a message, if messages are checked.
func (l *Leg) verify(c *Completion) {
	if l.check != nil {
		l.compare(c)
	}
}

// compare counts what is wrong with a message: its bytes, its order, its number.
func (l *Leg) compare(c *Completion) {
	wrong := l.wrong(c, l.Spec.Size, uint64(c.Seq))
	// Messages of an ordered endpoint use the receives in the order posted.
	dup := c.Seq < 0
	if !dup && !l.Spec.Churn && !l.Spec.Lossy() { // failed transactions leave gaps; fresh has noted a datagram
		dup = !l.ledger.Take(uint64(c.Seq)) || l.Spec.Mode == "rod" && c.Seq != c.seq
	}
	l.countChecked(dup, wrong)
}

// PostError is the error of a message or a receive that could not be posted.
func PostError(err error) error { return fmt.Errorf("post: %w", err) }
