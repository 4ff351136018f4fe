package driver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport"
)

// rig is a driver between a fake FEP and a fake socket. now is its clock, which the test
// sets. With clock real the clock is the time of the synctest bubble.
type rig struct {
	*Driver
	t    *testing.T
	core *fakeCore
	conn *fakeConn
	own  *fakeOwner
	mu   sync.Mutex
	now  time.Duration
}

func newRig(t *testing.T) *rig {
	core := newCore(t)
	r := &rig{t: t, core: core, conn: newConn(), own: newOwner(core), now: 1}
	r.Driver = New(Config{Core: r.core, Mover: r.conn, Conn: r.conn, Owner: r.own, Clock: func() time.Duration {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// bubbleRig is a rig on the clock of a synctest bubble.
func bubbleRig(t *testing.T, auto bool) *rig {
	core := newCore(t)
	r := &rig{t: t, core: core, conn: newConn(), own: newOwner(core)}
	r.Driver = New(Config{Core: r.core, Mover: r.conn, Conn: r.conn, Owner: r.own, Auto: auto, Clock: bubbleClock()})
	return r
}

// bubbleClock is a Config.Clock that reads the time of a synctest bubble.
func bubbleClock() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) + 1 }
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	r.now += d
	r.mu.Unlock()
}

func (r *rig) send(s string) {
	r.t.Helper()
	if err := r.Post(&transport.Op{Kind: transport.OpSend, Buf: []byte(s), Context: s}, 1, false); err != nil {
		r.t.Fatalf("send %q: %v", s, err)
	}
}

func (r *rig) sendMore(s string) {
	r.t.Helper()
	if err := r.Post(&transport.Op{Kind: transport.OpSend, Buf: []byte(s), Context: s}, 1, true); err != nil {
		r.t.Fatalf("send %q: %v", s, err)
	}
}

func (r *rig) wantSent(want ...string) {
	r.t.Helper()
	if got := r.conn.sent(); !slices.Equal(got, want) {
		r.t.Errorf("sent %q, want %q", got, want)
	}
}

func (r *rig) wantLog(want ...string) {
	r.t.Helper()
	if got := r.core.takeLog(); !slices.Equal(got, want) {
		r.t.Errorf("the FEP saw\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestPostLoneSendLeavesAtOnce(t *testing.T) {
	// A post on an idle endpoint transmits at once.
	r := newRig(t)
	r.send("a")
	r.wantSent("a")
}

func TestAnswerLeavesAtOnce(t *testing.T) {
	// Decision 0025: a post that answers the peer does not wait for company, although earlier
	// messages are in flight. Two posts without a poll in between are a stream, whose packets
	// wait.
	for _, answer := range []bool{false, true} {
		r := newRig(t)
		for range 4 {
			r.core.answer = answer
			r.send("a")
			r.pass(time.Microsecond)
			r.Poll()
		}
		r.conn.sent()
		r.send("b")
		if got := len(r.conn.sent()); got != 0 != answer {
			t.Errorf("answer %v: %d trains left with the post", answer, got)
		}
		r.pass(time.Microsecond)
		r.send("c")
		r.wantSent()
		r.Poll()
	}
}

func TestPostInSuccessionGathersUntilPoll(t *testing.T) {
	r := newRig(t)
	r.send("a")
	for range 3 {
		r.pass(time.Microsecond)
		r.send("b")
	}
	r.wantSent("a")
	r.Poll()
	r.wantSent("bbb") // as one train
}

func TestPostAfterAPauseDoesNotWait(t *testing.T) {
	// This holds whether or not sends are in flight: the poster does not keep posting, and may
	// not poll soon.
	r := newRig(t)
	r.send("a")
	r.pass(gatherGap + 1)
	r.send("b")
	r.wantSent("a", "b")
}

func TestPostGathersNoLongerThanItsBounds(t *testing.T) {
	t.Run("messages", func(t *testing.T) {
		r := newRig(t)
		for range 1 + gatherMax {
			r.send("a")
		}
		r.wantSent("a", strings.Repeat("a", gatherMax))
	})
	t.Run("bytes", func(t *testing.T) {
		r := newRig(t)
		r.send("a")
		big := strings.Repeat("b", gatherBytes/2)
		r.send(big)
		r.wantSent("a")
		r.send(big)
		if got := len(r.conn.sent()); got != 1 {
			t.Errorf("%d trains left after %d bytes, want 1", got, gatherBytes)
		}
	})
	t.Run("time", func(t *testing.T) {
		r := newRig(t)
		r.send("a")
		r.conn.sent()
		n := 0
		for got := 0; got == 0 && n < 100; n++ {
			r.pass(gatherGap / 2)
			r.send("b")
			got = len(r.conn.sent())
		}
		if limit := int(gatherWait/(gatherGap/2)) + 2; n > limit {
			t.Errorf("%d posts were made before the first left, want at most %d", n, limit)
		}
	})
}

func TestPostMoreGathersUntilItEnds(t *testing.T) {
	// R-MSG-15: delayed work leaves with the first post without FI_MORE.
	r := newRig(t)
	r.sendMore("a")
	r.pass(time.Millisecond / 100)
	r.sendMore("b")
	r.wantSent()
	r.send("c")
	r.wantSent("abc")
}

func TestPostThatFailsSendsWhatWaits(t *testing.T) {
	// R-MSG-15: … or when a later post fails.
	for _, c := range []struct {
		name string
		to   uint64
		room int
		want error
	}{
		{"no room", 1, 0, transport.ErrFull},
		{"no such address", 666, 9, transport.ErrNoPeer},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.sendMore("a")
			r.core.set(func() { r.core.room = c.room })
			err := r.Post(&transport.Op{Kind: transport.OpSend, Buf: []byte("b")}, c.to, true)
			if !errors.Is(err, c.want) {
				t.Errorf("Post = %v, want %v", err, c.want)
			}
			r.wantSent("a")
		})
	}
}

func TestPollHoldsAcksForTheAnswer(t *testing.T) {
	// An empty poll ends the turn.
	r := newRig(t)
	r.conn.arrive("m1")
	if !r.Poll() {
		t.Error("Poll with a message waiting reports no work")
	}
	r.wantLog(`receive "m1"`)
	r.wantSent()
	if r.Poll() {
		t.Error("Poll with nothing reports work")
	}
	r.wantLog("flush")
	r.wantSent("ack")
}

func TestPollLeavesAnIdleFEPAlone(t *testing.T) {
	r := newRig(t)
	r.With(func() { r.core.set(func() { r.core.timeout = 9 }) })
	r.Poll()
	r.core.set(func() { r.core.ackDue = true }) // would show a flush
	r.Poll()
	r.wantLog()
	r.pass(9) // until a timer is due
	r.Poll()
	r.wantLog("advance", "flush")
	r.wantSent("ack")
	r.core.set(func() { r.core.ackDue = true })
	r.With(func() {}) // a call of the core ends the quiet
	r.Poll()
	r.wantLog("flush")
}

func TestPollStopsAtTheFirstCompletion(t *testing.T) {
	r := newRig(t)
	r.conn.arrive("a", "a", "m1", "m2")
	r.Poll()
	r.wantLog(`receive "a"`, `receive "a"`, `receive "m1"`)
	if got := r.own.count(); got != 1 {
		t.Errorf("%d events delivered, want 1", got)
	}
	r.Poll()
	r.wantLog(`receive "m2"`)
}

func TestPollReceivesBeforeItJudgesTimers(t *testing.T) {
	r := newRig(t)
	r.core.set(func() { r.core.timeout = 5 })
	r.pass(10)
	r.conn.arrive("a")
	r.Poll()
	r.wantLog(`receive "a"`, "advance")
}

func TestPollAfterAGapEmptiesTheSocketFirst(t *testing.T) {
	// docs/faults.md rule 6 (F17): after a gap of more than 100 ms all queued datagrams are
	// received before any timer is looked at, even if some complete operations.
	r := newRig(t)
	r.core.set(func() { r.core.timeout = 5 })
	r.pass(longGap + 1)
	var want []string
	for i := range 3 * recvBudget {
		s := fmt.Sprintf("m%d", i)
		r.conn.arrive(s)
		want = append(want, fmt.Sprintf("receive %q", s))
	}
	r.Poll()
	r.wantLog(append(want, "advance")...)
}

func TestPollAfterAGapSaysThatTrainsMayHaveWaited(t *testing.T) {
	// F17: trains that arrived while the thread was off its processor waited for it, not on
	// the path. Trains that come during the turn, or that end a sleep, did not wait.
	want := func(r *rig, want ...bool) {
		t.Helper()
		r.core.set(func() {
			if !slices.Equal(r.core.waited, want) {
				t.Errorf("may have waited: %v, want %v", r.core.waited, want)
			}
			r.core.waited = nil
		})
	}
	t.Run("polled", func(t *testing.T) {
		r := newRig(t)
		r.Poll()
		r.pass(longGap)
		r.conn.arrive("m1")
		r.Poll()
		want(r, false)
		r.pass(longGap + 1)
		r.conn.arrive("m2", "m3")
		r.Poll()
		want(r, true, true)
		r.pass(10)
		r.conn.arrive("m4")
		r.Poll()
		want(r, false)
		// The thread is off its processor between two looks of one turn.
		r.conn.arrive("a5", "a6")
		r.core.onRecv = func() { r.pass(longGap + 1); r.core.onRecv = nil }
		r.Poll()
		want(r, false, true)
	})
	t.Run("woken", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := bubbleRig(t, true)
			for range 3 {
				time.Sleep(time.Second)
				synctest.Wait()
				r.conn.arrive("m")
				synctest.Wait()
			}
			want(r, false, false, false)
			// A poll finds the train before the goroutine does.
			time.Sleep(time.Second)
			r.conn.mu.Lock()
			r.conn.in = append(r.conn.in, []byte("m"))
			r.conn.mu.Unlock()
			r.Poll()
			want(r, false)
			// The goroutine has stepped back from the poller.
			r.Poll()
			time.Sleep(stepBack)
			r.Poll()
			synctest.Wait()
			r.conn.arrive("m")
			time.Sleep(stepBack - 1)
			r.Poll()
			want(r, true)
			_ = r.Close()
		})
	})
}

func TestTurnHasAnEnd(t *testing.T) {
	// T30, T38: a turn ends after recvBudget received trains and sendBudget sent ones, so that
	// timers and the other direction get their turn however much arrives or waits.
	t.Run("received", func(t *testing.T) {
		r := newRig(t)
		r.Poll()
		r.core.set(func() { r.core.timeout = 5 })
		r.pass(10)
		var want []string
		for i := range 3 * recvBudget {
			s := fmt.Sprintf("a%d", i) // it completes nothing, which would end the turn
			r.conn.arrive(s)
			want = append(want, fmt.Sprintf("receive %q", s))
		}
		r.Poll()
		r.wantLog(append(want[:recvBudget:recvBudget], "advance")...)
		r.Poll()
		r.wantLog(want[recvBudget : 2*recvBudget]...)
	})
	t.Run("sent", func(t *testing.T) {
		r := newRig(t)
		r.conn.full = true
		big := strings.Repeat("b", dgram.MaxTrain)
		for range 4 * sendBudget {
			r.send(big) // in separate trains
		}
		r.conn.sent()
		r.conn.full = false
		for turn := range 3 {
			r.pass(time.Millisecond)
			r.conn.arrive("a")
			r.core.takeLog()
			r.Poll()
			if n := len(r.conn.sent()); n < sendBudget || n > sendBudget+batchLen {
				t.Errorf("turn %d sent %d trains, the budget is %d", turn, n, sendBudget)
			}
			if log := r.core.takeLog(); len(log) == 0 || log[0] != `receive "a"` {
				t.Errorf("turn %d began with %q", turn, log)
			}
		}
	})
}

func TestPollPutsOffWhatIsNotUrgentForAMoment(t *testing.T) {
	// The reader gets a completion at once. Timers and resends come with a turn soon after,
	// however much arrives.
	r := newRig(t)
	r.Poll()
	r.core.set(func() { r.core.timeout = 1 })
	r.core.takeLog()
	n := 0
	for advanced := false; !advanced && n < 100; n++ {
		r.conn.arrive("m")
		r.Poll()
		r.pass(fullEvery / 4)
		advanced = slices.Contains(r.core.takeLog(), "advance")
	}
	if n < 2 || n > 5 {
		t.Errorf("timers were judged in poll %d", n)
	}
	// Messages that wait to be sent make the turn full.
	r = newRig(t)
	r.Poll()
	r.send("a")
	r.send("b")
	r.conn.arrive("m")
	r.Poll()
	r.wantSent("a", "b")
}

func TestYieldTellsWhetherOthersWantTheProcessor(t *testing.T) {
	// Some Yields measure, so that a mistake does not last; fewer while others want the
	// processor. A single call that comes back at once does not prove that the processor is
	// free: the thread that got it may only have yielded, too.
	took, looks := aloneMax, 0
	now := time.Duration(1)
	conn := newConn()
	core := newCore(t)
	d := New(Config{Core: core, Mover: conn, Conn: conn, Owner: newOwner(core), Clock: func() time.Duration {
		now += took
		looks++
		return now
	}})
	defer d.Close()
	for i, c := range []struct {
		took   time.Duration
		yields int // Yields that measure
		shared bool
	}{
		{aloneMax - 1, 1, false}, {aloneMax, 1, true}, {aloneMax - 1, aloneAfter - 1, true}, {aloneMax, 1, true},
		{aloneMax - 1, aloneAfter - 1, true}, {aloneMax - 1, 1, false}, {aloneMax, 1, true},
	} {
		took, looks = c.took, 0
		n := 0
		for ; looks < 2*c.yields; n++ {
			d.Yield()
		}
		if d.Shared() != c.shared || n > sharedEvery*c.yields {
			t.Errorf("step %d: shared = %v after %d Yields, want %v", i, d.Shared(), n, c.shared)
		}
	}
	for _, c := range []struct {
		took  time.Duration
		every int
	}{{aloneMax, sharedEvery}, {aloneMax - 1, freeEvery}} {
		took = c.took
		for range 8 * sharedEvery {
			d.Yield() // until what is known is true
		}
		looks = 0
		for range 4 * sharedEvery {
			d.Yield()
		}
		if want := 2 * 4 * sharedEvery / c.every; looks != want {
			t.Errorf("shared = %v: %d readings of the clock, want %d", d.Shared(), looks, want)
		}
	}
}

func TestPollPassesOnUnreachable(t *testing.T) {
	r := newRig(t)
	r.conn.gone = append(r.conn.gone, peerAddr)
	r.Poll()
	r.wantLog("unreachable " + peerAddr.String())
}

func TestSendWithoutRoomKeepsTheOrder(t *testing.T) {
	// A send without room (EAGAIN) keeps the burst; nothing is lost or reordered.
	r := newRig(t)
	r.conn.full = true
	r.send("a")
	r.pass(time.Millisecond)
	r.send("b")
	r.Poll()
	r.wantSent()
	r.conn.full = false
	r.Poll()
	r.wantSent("a", "b")
	if s := r.Stats(); s.NoRoom < 2 {
		t.Errorf("NoRoom = %d, want at least 2", s.NoRoom)
	}
}

// hold makes another goroutine hold the lock, inside Receive, until release is called.
func (r *rig) hold() (release func()) {
	in, out := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	r.core.set(func() {
		r.core.onRecv = func() {
			close(in)
			<-out
			r.core.onRecv = nil
		}
	})
	r.conn.arrive("a")
	go func() {
		defer close(done)
		r.Poll()
	}()
	<-in
	return func() { close(out); <-done }
}

func TestPostLeavesWorkToTheHolder(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	r.send("s1") // returns although the lock is taken
	r.send("s2")
	if err := r.Post(&transport.Op{Kind: transport.OpRecv, Context: "r1"}, NoAddr, false); err != nil {
		t.Fatal(err)
	}
	r.core.takeLog()
	release()
	r.wantLog("recv r1", `send s1 "s1"`, `send s2 "s2"`) // receives come first
	r.Poll()
	if got := strings.Join(r.conn.sent(), ""); got != "s1s2ack" {
		t.Errorf("sent %q, want s1s2ack", got)
	}
}

func TestPostWhileHeldCopiesWhatTheCallerMayReuse(t *testing.T) {
	// R-MSG-05: when the call returns, the caller may reuse the buffer of an injected message,
	// and the vector of any message.
	r := newRig(t)
	release := r.hold()
	buf := []byte("inject")
	iov := [][]byte{[]byte("x"), []byte("y")}
	for _, op := range []transport.Op{
		{Kind: transport.OpSend, Buf: buf, Inject: true},
		{Kind: transport.OpSend, Iov: [][]byte{buf, buf}, Inject: true},
		{Kind: transport.OpSend, Iov: iov},
	} {
		if err := r.Post(&op, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	copy(buf, "soiled")
	iov[0], iov[1] = nil, nil
	r.core.takeLog()
	release()
	r.wantLog(`send <nil> "inject"`, `send <nil> "injectinject"`, `send <nil> "xy"`)
}

func TestPostWhileHeldIsRefusedWhenItCannotSucceed(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	defer release()
	if err := r.Post(&transport.Op{Kind: transport.OpSend}, 666, false); !errors.Is(err, transport.ErrNoPeer) {
		t.Errorf("Post to an unknown address = %v", err)
	}
	for i := range queueLen {
		if err := r.Post(&transport.Op{Kind: transport.OpSend, Buf: []byte("a")}, 1, false); err != nil {
			t.Fatalf("post %d: %v", i, err)
		}
	}
	if err := r.Post(&transport.Op{Kind: transport.OpSend}, 1, false); !errors.Is(err, transport.ErrFull) {
		t.Errorf("Post into a full queue = %v", err)
	}
	if err := r.Post(&transport.Op{Kind: transport.OpRecv}, NoAddr, false); err != nil {
		t.Errorf("a receive is refused because of sends: %v", err)
	}
}

func TestAcceptedRequestWaitsForRoomInTheFEP(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	r.core.set(func() { r.core.room = 1 })
	r.send("s1")
	r.send("s2")
	r.core.takeLog()
	release()
	r.wantLog(`send s1 "s1"`)
	// Nothing may overtake s2, even if there were room.
	r.core.set(func() { r.core.room, r.core.refuse = 1, "s2" })
	if err := r.Post(&transport.Op{Kind: transport.OpSend}, 1, false); !errors.Is(err, transport.ErrFull) {
		t.Errorf("Post past a waiting request = %v, want ErrFull", err)
	}
	r.core.set(func() { r.core.refuse = nil })
	r.Poll()
	r.wantLog(`send s2 "s2"`, "flush")
	if got := r.own.takeRefused(); got != nil {
		t.Errorf("refused: %v", got)
	}
}

// Diagnose also reports operations that wait for room in the FEP.
func TestDiagnoseNamesWaitingRequests(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	r.core.set(func() { r.core.room = 0 })
	r.send("s1")
	r.send("s2")
	release()
	list := r.Diagnose(transport.AllEndpoints)
	if len(list) != 2 || list[0].Context != "s1" || list[1].Context != "s2" || list[1].Cause != transport.WaitRoom {
		t.Errorf("%+v", list)
	}
	r.core.takeLog()
	r.core.set(func() { r.core.room = 9 })
	r.Poll()
	r.wantLog(`send s1 "s1"`, `send s2 "s2"`, "flush")
	if list := r.Diagnose(transport.AllEndpoints); len(list) != 0 {
		t.Errorf("sent, and still: %+v", list)
	}
}

func TestCancelFindsAWaitingRequest(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	r.core.set(func() { r.core.room = 0 })
	for _, s := range []string{"s1", "s2", "s3"} {
		r.send(s)
	}
	release()
	if !r.Cancel("s2") || r.Cancel("s2") {
		t.Error("Cancel does not find s2 exactly once")
	}
	if got, want := r.own.takeRefused(), []string{"s2: driver: cancelled"}; !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
	r.core.takeLog()
	r.core.set(func() { r.core.room = 9 })
	r.Poll()
	r.wantLog(`send s1 "s1"`, `send s3 "s3"`, "flush")
}

func TestCancelDeliversTheEnd(t *testing.T) {
	// R-EP-11: a cancel ends the operation in bounded time.
	r := newRig(t)
	r.core.pending = "r1"
	if !r.Cancel("r1") || r.Cancel("r1") {
		t.Error("Cancel does not find r1 exactly once")
	}
	if r.own.count() != 1 {
		t.Errorf("%d events, want 1", r.own.count())
	}
}

func TestAbandonEndsWaitingRequestsOfThePeer(t *testing.T) {
	// What waits for room in the FEP ends with the rest of what concerns the peer, and only
	// that: requests to others, and those that name nobody, keep their order and go on with the
	// room that there is now.
	r := newRig(t)
	release := r.hold()
	r.core.set(func() { r.core.room = 1 })
	post := func(kind transport.OpKind, name string, to uint64) {
		t.Helper()
		if err := r.Post(&transport.Op{Kind: kind, Context: name, Iov: [][]byte{[]byte(name)}}, to, false); err != nil {
			t.Fatal(err)
		}
	}
	for i, to := range []uint64{7, 5, 7, 5, 7, 7} {
		post(transport.OpSend, fmt.Sprint("s", i, "-", to), to)
		post(transport.OpRecv, fmt.Sprint("r", i, "-", to), to)
	}
	post(transport.OpRecv, "anyone's", NoAddr)
	release()
	r.core.takeLog()
	if err := r.Abandon(666); err != transport.ErrNoPeer {
		t.Errorf("of an unknown peer: %v", err)
	}
	if got := r.own.takeRefused(); got != nil {
		t.Errorf("then ended: %q", got)
	}
	r.core.set(func() { r.core.onAbandon = func() { r.core.room = 99 } }) // of sends whose success was told
	if err := r.Abandon(7); err != nil {
		t.Fatal(err)
	}
	// r0 found room.
	want := []string{"s0-7", "s2-7", "s4-7", "s5-7", "r2-7", "r4-7", "r5-7"}
	for i := range want {
		want[i] += ": " + ErrCancelled.Error()
	}
	if got := r.own.takeRefused(); !slices.Equal(got, want) {
		t.Errorf("ended %q, want %q", got, want)
	}
	r.wantLog("abandon 7", "recv r1-5", "recv r3-5", "recv anyone's", `send s1-5 "s1-5"`, `send s3-5 "s3-5"`)
	r.core.set(func() { r.core.onAbandon = func() { r.core.events = append(r.core.events, transport.Event{}) } })
	if err := r.Abandon(5); err != nil || r.own.count() != 1 {
		t.Errorf("%d events delivered when Abandon returns %v", r.own.count(), err)
	}
	if r.Close() != nil || r.Abandon(5) != transport.ErrClosed {
		t.Error("after Close it is not ErrClosed")
	}
}

func TestCloseEndsEverything(t *testing.T) {
	r := newRig(t)
	release := r.hold()
	r.core.set(func() { r.core.room = 0 })
	r.send("s1")
	release()
	r.core.takeLog()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.wantLog("ack all", "flush", "close") // what arrived is acknowledged before the farewell
	if got, want := r.own.takeRefused(), []string{"s1: " + transport.ErrClosed.Error()}; !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
	if got := strings.Join(r.conn.sent(), " "); got != "ack bye" {
		t.Errorf("sent %q", got)
	}
	if err := r.Close(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("second Close = %v", err)
	}
	if err := r.Post(&transport.Op{Kind: transport.OpSend}, 1, false); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Post after Close = %v", err)
	}
	r.With(func() { // another caller holds the lock
		if err := r.Post(&transport.Op{Kind: transport.OpSend}, 1, false); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Post after Close, lock taken = %v", err)
		}
	})
	if r.Poll() {
		t.Error("Poll after Close works")
	}
	r.Arm()
	r.Disarm()
	if !r.conn.closed {
		t.Error("the Conn is open")
	}
}

func TestAutoTimersRunWhenTheApplicationDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait() // the goroutine sleeps without a deadline
		r.core.set(func() { r.core.timeout = r.clock.time() + 5*time.Millisecond })
		r.send("a") // the deadline moved earlier, so the goroutine must be woken
		time.Sleep(5*time.Millisecond + stepBack)
		synctest.Wait()
		r.wantLog(`send a "a"`, "advance")
		_ = r.Close()
	})
}

func TestAutoTimersRunWithoutASocket(t *testing.T) {
	// docs/faults.md rule 1: the socket is broken for good and nobody polls. Operations posted
	// before and after that end by their timers.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		due := func() { r.core.set(func() { r.core.timeout = r.clock.time() + 5*time.Millisecond }) }
		due()
		r.send("a")
		r.conn.fail(errors.New("gone"))
		time.Sleep(5*time.Millisecond + 2*stepBack)
		synctest.Wait()
		r.wantLog(`send a "a"`, "advance")
		due()
		r.send("b")
		time.Sleep(5*time.Millisecond + 2*stepBack)
		synctest.Wait()
		r.wantLog(`send b "b"`, "advance")
		w := r.Stats().Wakes
		time.Sleep(time.Hour)
		if got := r.Stats().Wakes - w; got != 0 {
			t.Errorf("%d wake-ups in an idle hour", got)
		}
		_ = r.Close()
	})
}

func TestBrokenSocketIsToldEachTime(t *testing.T) {
	// F23: only lasting trouble is reported, so the owner hears of the error as long as it
	// lasts.
	r := newRig(t)
	broken := errors.New("gone")
	r.conn.fail(broken)
	for want := 1; want <= 3; want++ {
		r.Poll()
		if got := r.own.trouble; len(got) != want || got[0] != broken {
			t.Fatalf("after %d turns the owner has heard of %v", want, got)
		}
	}
}

func TestF7DatagramTooLongForTheInterface(t *testing.T) {
	// F7: the FEP learns of a datagram that the system refuses for its length at once. Other
	// errors tell nothing of a length. The trains behind it leave.
	for _, err := range []error{syscall.EMSGSIZE, syscall.EPERM} {
		r := newRig(t)
		r.conn.refuse = func(d *dgram.Datagram) error {
			if string(d.Data) == "long" {
				return err
			}
			return nil
		}
		r.send("long")
		r.send("b")
		r.Poll()
		r.wantSent("b")
		told := false
		for _, l := range r.core.log {
			told = told || strings.HasPrefix(l, "too long "+peerAddr.String()+" 4")
		}
		if told != (err == syscall.EMSGSIZE) {
			t.Errorf("after %v the FEP heard %q", err, r.core.log)
		}
	}
}

func TestAutoGatheredPacketsLeaveWithoutAPoll(t *testing.T) {
	// The wait is bounded, so that a message never waits for ever.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		r.send("a")
		r.send("b")
		r.wantSent("a")
		time.Sleep(2*stepBack + gatherWait)
		synctest.Wait()
		r.wantSent("b")
		_ = r.Close()
	})
}

func TestAutoReceivesWhenTheApplicationDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		r.conn.arrive("m1")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		r.wantLog(`receive "m1"`, "flush") // the ACK leaves, too, because nobody polls
		if r.own.count() != 1 {
			t.Error("no event")
		}
		_ = r.Close()
	})
}

func TestAutoStepsBackFromAPoller(t *testing.T) {
	// An application that only polls never wakes the progress goroutine.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		r.With(func() { r.core.set(func() { r.core.timeout = r.clock.time() + time.Millisecond }) })
		r.Poll()
		time.Sleep(2 * stepBack)
		base, wakes := r.conn.waited(), r.Stats().Wakes
		const turns = 1000
		for range turns {
			r.conn.arrive("a")
			r.Poll()
			time.Sleep(10 * time.Microsecond)
		}
		synctest.Wait()
		if got := r.conn.waited() - base; got > 1 {
			t.Errorf("it waited for the socket %d times while the application polled", got)
		}
		if got, most := r.Stats().Wakes-wakes, uint64(turns*10*time.Microsecond/stepBack)+2; got > most {
			t.Errorf("it woke up %d times, want at most %d", got, most)
		}
		// The goroutine comes back when the application stops polling.
		time.Sleep(3 * stepBack)
		synctest.Wait()
		r.core.takeLog()
		r.conn.arrive("m1")
		time.Sleep(time.Microsecond)
		synctest.Wait()
		if r.own.count() != 1 {
			t.Error("a message is not received after the application stopped polling")
		}
		_ = r.Close()
	})
}

func TestAutoIdleSleeps(t *testing.T) {
	// F2: an idle endpoint uses no processor time.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		r.send("a")
		r.Poll()
		time.Sleep(time.Second)
		w := r.Stats().Wakes
		time.Sleep(time.Hour)
		if got := r.Stats().Wakes - w; got != 0 {
			t.Errorf("%d wake-ups in an idle hour", got)
		}
		_ = r.Close()
	})
}

func TestManualHasNoGoroutineUntilArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, false)
		r.conn.arrive("m1")
		time.Sleep(time.Second)
		if r.own.count() != 0 || r.Stats().Wakes != 0 {
			t.Fatal("something runs by itself")
		}
		r.Arm()
		<-r.own.arrived
		r.Disarm()
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantLog(`receive "m1"`, "flush")
		// No reader waits any more, so the goroutine does nothing.
		r.conn.arrive("m2")
		time.Sleep(time.Second)
		synctest.Wait()
		r.wantLog()
		// Once more, with a goroutine that exists and sleeps.
		r.Arm()
		<-r.own.arrived
		r.Disarm()
		_ = r.Close()
	})
}

func TestArmWhileSteppedBackWatchesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		r.Poll()
		time.Sleep(stepBack / 2)
		r.Poll()
		synctest.Wait()
		r.Arm()
		synctest.Wait()
		start := time.Now()
		r.conn.arrive("m1")
		<-r.own.arrived
		if d := time.Since(start); d != 0 {
			t.Errorf("a sleeping reader was served %v late", d)
		}
		r.Disarm()
		_ = r.Close()
	})
}

func TestArmedGathersOnlyForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		r.Arm()
		synctest.Wait()
		r.send("a")
		r.send("b")
		time.Sleep(2*gatherWait + time.Microsecond)
		synctest.Wait()
		r.wantSent("a", "b")
		r.Disarm()
		_ = r.Close()
	})
}

func TestNoRoomIsRetriedByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		r.conn.mu.Lock()
		r.conn.full = true
		r.conn.mu.Unlock()
		r.send("a")
		time.Sleep(10 * stepBack)
		r.conn.mu.Lock()
		r.conn.full = false
		r.conn.mu.Unlock()
		time.Sleep(2 * retryWait)
		synctest.Wait()
		r.wantSent("a")
		_ = r.Close()
	})
}

func TestDriverConcurrentUse(t *testing.T) {
	// T37: Close, post, poll and wait race. Every accepted request ends or was handed to the
	// FEP, even if 1 % of them find no room there. -race checks the rest.
	for i := range 4 {
		auto, short := i%2 == 1, i >= 2
		t.Run(fmt.Sprintf("auto=%v short=%v", auto, short), func(t *testing.T) {
			core := newCore(t)
			r := &rig{t: t, core: core, conn: newConn(), own: newOwner(core)}
			denied := 0
			if rng := rand.New(rand.NewPCG(37, uint64(i))); short {
				r.core.deny = func() bool {
					no := rng.IntN(100) == 0
					if no {
						denied++
					}
					return no
				}
			}
			r.core.quiet, r.conn.quiet = true, true
			r.Driver = New(Config{Core: r.core, Mover: r.conn, Conn: r.conn, Owner: r.own, Auto: auto})
			var wg sync.WaitGroup
			var mu sync.Mutex
			accepted := 0
			for g := range 4 {
				wg.Go(func() {
					for i := 0; ; i++ {
						kind := transport.OpSend
						if i%3 == 0 {
							kind = transport.OpRecv
						}
						err := r.Post(&transport.Op{Kind: kind, Buf: []byte("x"), Inject: i%2 == 0}, 1, i%5 == 0)
						switch {
						case errors.Is(err, transport.ErrClosed):
							return
						case err == nil:
							mu.Lock()
							accepted++
							mu.Unlock()
						}
						if g == 0 {
							r.conn.arrive("m")
						}
						if i%4 == g {
							r.Poll()
						}
						if i%100 == 0 {
							r.Arm()
							r.Yield()
							r.Disarm()
						}
						if i == 2000 && g == 1 {
							go func() { _ = r.Close() }()
						}
					}
				})
			}
			wg.Wait()
			_ = r.Close()
			// Close in the other goroutine may still wait for the last turn.
			for closed := false; !closed; {
				r.conn.mu.Lock()
				closed = r.conn.closed
				r.conn.mu.Unlock()
			}
			if short && denied < 10 {
				t.Errorf("%d requests found no room: the test does not test", denied)
			}
			posted := 1<<20 - r.core.room
			if got := posted + len(r.own.takeRefused()); got != accepted {
				t.Errorf("%d requests accepted, %d ended", accepted, got)
			}
		})
	}
}

func TestDriverNoAllocs(t *testing.T) {
	r := newRig(t)
	r.core.quiet, r.conn.quiet = true, true
	buf := []byte("m")
	op := transport.Op{Kind: transport.OpSend, Buf: buf}
	msg := []byte("m")
	run := func() {
		for i := range 20 {
			if err := r.Post(&op, 1, i%2 == 0); err != nil {
				t.Fatal(err)
			}
		}
		r.conn.in = append(r.conn.in, msg)
		for r.Poll() {
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSharedIsNoReasonToKeepWhatCanLeave(t *testing.T) {
	// Packets that wait for company leave when the poster polls or yields, an ACK at the end
	// of the turn. A reader polls before it yields if there is any of these.
	r := newRig(t)
	r.cpu.shared.Store(true)
	want := func(when string, want bool) {
		t.Helper()
		if r.Shared() != want {
			t.Errorf("%s: yield before a poll: %v", when, !want)
		}
	}
	want("at rest", true)
	r.send("a")
	want("sent", true)
	r.send("b")
	want("gathered", false)
	r.Poll()
	r.wantSent("a", "b")
	want("polled", true)
	r.conn.arrive("m1")
	r.Poll()
	want("an ACK waits", false)
	r.Poll()
	want("it has left", true)
	release := r.hold()
	want("another drives", true)
	release()
}

func TestArmLooksAtTheDeadline(t *testing.T) {
	// The goroutine sleeps on the socket since an earlier wait, without a deadline. An
	// operation posted since then has one.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, false)
		r.Arm()
		synctest.Wait() // the goroutine sleeps on the socket
		r.Disarm()      // the wait timed out
		r.core.set(func() { r.core.timeout = r.clock.time() + 5*time.Millisecond })
		r.send("a")
		r.Poll()
		r.Arm()
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantLog(`send a "a"`, "advance")
		r.Disarm()
		_ = r.Close()
	})
}

func TestWhoTakesWorkTellsOfItsDeadline(t *testing.T) {
	// Work was left for a holder that releases the lock. Before it looks at the flag, another
	// caller takes the work, whose own call has nothing more to do. The posted work has
	// deadlines and may complete at once.
	for name, call := range map[string]func(*rig){
		"cancel":   func(r *rig) { r.Cancel("x") },
		"diagnose": func(r *rig) { r.Diagnose(transport.AllEndpoints) },
		"post": func(r *rig) {
			if err := r.Post(&transport.Op{Kind: transport.OpSend}, r.own.unknown, false); err == nil {
				t.Error("a post to nobody is accepted")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := bubbleRig(t, true)
				synctest.Wait() // the goroutine sleeps without a deadline
				r.core.set(func() { r.core.timeout = r.clock.time() + 5*time.Millisecond })
				r.core.endAtOnce()
				r.h.lock()
				r.send("a")
				r.h.free() // another caller comes before this holder looks at the flag
				call(r)
				if r.own.count() != 1 {
					t.Errorf("%d ends delivered, want 1", r.own.count())
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				r.wantLog(`send a "a"`, "advance")
				_ = r.Close()
			})
		})
	}
}

func TestPollDeliversWhatAPostEnded(t *testing.T) {
	// An injected send needs no answer.
	r := newRig(t)
	r.core.endAtOnce()
	r.send("a")
	if !r.Poll() || r.own.count() != 1 {
		t.Errorf("%d ends delivered, want 1", r.own.count())
	}
}

func TestArmDeliversWhatAPostEnded(t *testing.T) {
	// The post came after the last poll of the reader that goes to sleep, and while no reader
	// slept.
	synctest.Test(t, func(t *testing.T) {
		r := bubbleRig(t, true)
		synctest.Wait()
		r.core.endAtOnce()
		r.send("a")
		r.Arm()
		synctest.Wait()
		if r.own.count() != 1 {
			t.Errorf("%d ends delivered, want 1", r.own.count())
		}
		r.Disarm()
		_ = r.Close()
	})
}

func TestWhatLastMakesRoomPostsWhatWaitsForIt(t *testing.T) {
	// A queued request found no room in the FEP. The event that makes room may be the last one
	// for long. The request must then be posted and its end delivered at once, because its
	// reader and the progress goroutine sleep.
	event := func(r *rig) { r.core.events = append(r.core.events, transport.Event{}) }
	for name, c := range map[string]struct {
		room func(*rig)
		ends int
	}{
		"turn":  {func(r *rig) { r.conn.arrive("m"); r.Poll() }, 2},
		"timer": {func(r *rig) { r.core.set(func() { r.core.timeout = r.clock.time() }); r.Poll() }, 1},
		"cancel": {func(r *rig) {
			r.core.set(func() { r.core.pending = "x" })
			r.Cancel("x")
		}, 2},
		"do": {func(r *rig) { r.Do(func(time.Duration) { r.core.set(func() { event(r) }) }) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.core.set(func() {
				r.core.deny = func() bool {
					if r.own.count() == 0 && !slices.Contains(r.core.log, "advance") {
						return true
					}
					event(r) // it completes at once
					return false
				}
			})
			r.h.lock()
			if err := r.Post(&transport.Op{Kind: transport.OpRecv, Context: "late"}, NoAddr, false); err != nil {
				t.Fatal(err)
			}
			r.h.free()
			r.Poll()
			if r.own.count() != 0 {
				t.Fatal("it ended without room")
			}
			c.room(r)
			if got := r.own.count(); got != c.ends {
				t.Errorf("%d ends delivered, want %d", got, c.ends)
			}
		})
	}
}

func TestLeaveDrivesTheFEPWhileItLingers(t *testing.T) {
	// Between Leave and Close nothing is posted and nobody else takes a turn. Leave lasts as
	// long as the FEP has something to wait for.
	synctest.Test(t, func(t *testing.T) {
		for _, auto := range []bool{false, true} {
			r := bubbleRig(t, auto)
			synctest.Wait()
			r.core.set(func() { r.core.lingers = 3 })
			calls := 0
			start := time.Now()
			r.Leave(time.Hour, time.Hour, func() {
				calls++
				if err := r.Post(&transport.Op{Kind: transport.OpSend}, 1, false); err != transport.ErrClosed {
					t.Errorf("post: %v", err)
				}
				r.conn.arrive("m1")
				if r.Poll() {
					t.Error("somebody else takes a turn")
				}
			})
			if d := time.Since(start); calls != 3 || r.own.count() != 3 || d > 3*leaveLook {
				t.Errorf("called %d times, %d events, %v", calls, r.own.count(), d)
			}
			r.Leave(time.Hour, time.Hour, func() { t.Error("a second Leave waits") })
			r.core.takeLog()
			_ = r.Close()
			r.wantLog("ack all", "close")
		}
	})
}

func TestLeaveHasAnEnd(t *testing.T) {
	// Leave ends after its time, with the socket, or with a Close meanwhile, which waits for it:
	// the Conn has no other call when it is closed.
	for name, c := range map[string]struct {
		end   func(*rig)
		after time.Duration
	}{
		"time":   {func(*rig) {}, 100 * time.Millisecond},
		"socket": {func(r *rig) { r.conn.fail(errors.New("gone")) }, leaveLook},
		"close":  {func(r *rig) { _ = r.Close() }, leaveLook},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := bubbleRig(t, true)
				synctest.Wait()
				r.core.set(func() { r.core.lingers = 1 << 30 })
				done := make(chan time.Duration)
				start := time.Now()
				go func() {
					r.Leave(100*time.Millisecond, 100*time.Millisecond, nil)
					done <- time.Since(start)
				}()
				synctest.Wait()
				c.end(r)
				if d := <-done; d > c.after {
					t.Errorf("Leave took %v", d)
				}
				_ = r.Close()
			})
		})
	}
}

func TestFlushedSendsWhatWaits(t *testing.T) {
	r := newRig(t)
	r.send("a")
	r.send("b") // waits for company
	r.core.set(func() { r.core.ackDue = true })
	if r.Flushed(nil) {
		t.Error("flushed with sends in flight")
	}
	r.wantSent("a", "back") // one train
	r.core.set(func() { r.core.inflight = 0 })
	if !r.Flushed(nil) {
		t.Error("not flushed")
	}
	r.h.lock()
	r.send("c") // left to the holder, who does not look
	r.h.free()
	if r.Flushed(nil) {
		t.Error("flushed with a post that was left")
	}
	_ = r.Close()
	if r.Flushed(nil) {
		t.Error("flushed after Close")
	}
}

func TestDrainWaitsForTheHolder(t *testing.T) {
	// A Poll that finds the lock taken does nothing. Drain handles everything there is, within
	// its bound.
	r := newRig(t)
	release := r.hold()
	r.conn.arrive("m1", "m2", "m3")
	done := make(chan struct{})
	go func() { defer close(done); r.Drain(9) }()
	if r.Poll() {
		t.Error("Poll works while another does")
	}
	release()
	<-done
	if got := r.own.count(); got != 3 {
		t.Errorf("%d events delivered, want 3", got)
	}
	r.conn.arrive("m1", "m2", "m3")
	if r.Drain(2); r.own.count() != 5 {
		t.Errorf("%d events delivered, want 5", r.own.count())
	}
	_ = r.Close()
	r.Drain(1)
}

func TestSubmitIsPost(t *testing.T) {
	// SubmitSend and SubmitRecv do the same as Post, given the same calls.
	for seed := range uint64(20) {
		post, submit := newRig(t), newRig(t)
		rng := rand.New(rand.NewPCG(seed, 1))
		for i := range 200 {
			op := transport.Op{Kind: transport.OpSend, Buf: []byte{'s', byte(i)}, Context: i}
			if rng.IntN(3) == 0 {
				op.Kind = transport.OpRecv
			}
			more, gap, poll, full := rng.IntN(5) == 0, time.Duration(rng.IntN(30))*time.Microsecond, rng.IntN(4) == 0, rng.IntN(10) == 0
			var errs [2]error
			for j, r := range []*rig{post, submit} {
				r.pass(gap)
				if poll {
					r.Poll()
				}
				if r.core.set(func() { r.core.room = 1 << 20 }); full {
					r.core.set(func() { r.core.room = 0 })
				}
				if j == 0 {
					errs[0] = r.Post(&op, 1, more)
					continue
				}
				if !r.TryLock() {
					t.Fatal("the lock is taken")
				}
				to := r.Op()
				if *to = op; rng.IntN(10) == 0 {
					r.Return() // nothing has happened
					_, to = r.TryLock(), r.Op()
					if to.Kind != 0 || to.Buf != nil || to.Context != nil {
						t.Fatalf("%+v is not clear", to)
					}
					*to = op
				}
				if to.Peer = 1; op.Kind.Recv() {
					errs[1] = r.SubmitRecv()
				} else {
					errs[1] = r.SubmitSend(more)
				}
			}
			if errs[0] != errs[1] {
				t.Fatalf("seed %d, post %d: %v and %v", seed, i, errs[0], errs[1])
			}
		}
		if a, b := post.core.takeLog(), submit.core.takeLog(); !slices.Equal(a, b) {
			t.Fatalf("seed %d: the FEPs saw\n%v\n%v", seed, a, b)
		}
		if a, b := post.conn.sent(), submit.conn.sent(); !slices.Equal(a, b) {
			t.Fatalf("seed %d: sent\n%v\n%v", seed, a, b)
		}
		if a, b := post.Stats(), submit.Stats(); a != b {
			t.Fatalf("seed %d: %+v and %+v", seed, a, b)
		}
	}
}

func TestNoOpWhereSomethingIsBefore(t *testing.T) {
	r := newRig(t)
	r.core.set(func() { r.core.refuse = "waits" })
	if !r.TryLock() {
		t.Fatal("the lock is taken")
	}
	if err := r.Post(&transport.Op{Kind: transport.OpSend, Context: "waits"}, 1, false); err != nil || r.Op() != nil {
		t.Errorf("with work left: %v", err)
	}
	r.Return()
	if !r.TryLock() || r.Op() != nil {
		t.Error("with a request that waits for room")
	}
	r.Return()
	r.core.set(func() { r.core.refuse = nil })
	r.core.set(func() { r.core.timeout = 1 })
	r.Poll()
	if !r.TryLock() || r.Op() == nil {
		t.Error("with nothing before it")
	}
	r.Return()
	if err := r.Close(); err != nil || !r.TryLock() || r.Op() != nil {
		t.Errorf("closed: %v", err)
	}
	r.Return()
}

// A Driver has slabs while it works, and none while it rests or after Close.
func TestSlabsComeBack(t *testing.T) {
	before := slabs.pool.Out()
	r := newRig(t)
	r.conn.arrive("m")
	r.Poll()
	r.send("a")
	if n := slabs.pool.Out() - before; n != 2 {
		t.Errorf("%d slabs for a train each way", n)
	}
	r.pass(restAfter + time.Millisecond)
	r.Poll()
	if n := slabs.pool.Out() - before; n != 0 {
		t.Errorf("at rest it has %d slabs", n)
	}
	r.conn.full = true
	r.send("b")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if n := slabs.pool.Out() - before; n != 0 {
		t.Errorf("closed, it has %d slabs", n)
	}
}
