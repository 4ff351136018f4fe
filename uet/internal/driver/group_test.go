package driver

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/transport"
)

// fakeSet watches fakeConns.
type fakeSet struct {
	mu    sync.Mutex
	conns map[int]*fakeConn
	looks int
	takes time.Duration // how long a look lasts

	news, wake, rouse, stop chan struct{}
	sleeping                chan struct{}
}

func newSet() *fakeSet {
	c := func() chan struct{} { return make(chan struct{}, 1) }
	return &fakeSet{conns: map[int]*fakeConn{}, news: c(), wake: c(), rouse: c(), stop: make(chan struct{}), sleeping: c()}
}

func note(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *fakeSet) Add(c Conn, id int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[id] = c.(*fakeConn)
	return true
}

func (s *fakeSet) Remove(_ Conn, id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, id)
}

func (s *fakeSet) Ready(ids []int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	time.Sleep(s.takes)
	return s.ready(ids)
}

func (s *fakeSet) ready(ids []int) []int {
	for id, c := range s.conns {
		c.mu.Lock()
		if len(c.in) > 0 || c.broken != nil {
			ids = append(ids, id)
		}
		c.mu.Unlock()
	}
	slices.Sort(ids)
	return ids
}

func (s *fakeSet) sleep(timeout time.Duration, end <-chan struct{}) {
	s.sleeping <- struct{}{}
	defer func() { <-s.sleeping }()
	for {
		s.mu.Lock()
		n := len(s.ready(nil))
		s.mu.Unlock()
		if n > 0 {
			return
		}
		var after <-chan time.Time
		if timeout >= 0 {
			after = time.After(timeout)
		}
		select {
		case <-s.news:
			continue
		case <-end:
		case <-after:
		case <-s.stop:
		}
		return
	}
}

func (s *fakeSet) Wait(timeout time.Duration) error {
	s.sleep(timeout, s.wake)
	return nil
}
func (s *fakeSet) Wake() { note(s.wake) }
func (s *fakeSet) Nap(timeout time.Duration) bool {
	s.sleep(timeout, s.rouse)
	return true
}
func (s *fakeSet) Rouse() { note(s.rouse) }
func (s *fakeSet) Close() error {
	close(s.stop)
	return nil
}

// A crew is n Drivers in a Group, on the clock of a bubble.
type crew struct {
	*Group
	set  *fakeSet
	rigs []*rig
}

func newCrew(t *testing.T, n int, auto bool) *crew {
	c := &crew{set: newSet()}
	for range n {
		c.rigs = append(c.rigs, bubbleRig(t, auto))
	}
	c.Group = newGroup(c.set, c.rigs[0].clock.read)
	for _, r := range c.rigs {
		if !c.Add(r.Driver) {
			t.Fatal("cannot join")
		}
	}
	return c
}

// realCrew is newCrew where time is real. A look at the set takes that long.
func realCrew(t *testing.T, n int, auto bool, takes time.Duration) *crew {
	c := &crew{set: newSet()}
	c.set.takes = takes
	for range n {
		core := newCore(t)
		r := &rig{t: t, core: core, conn: newConn(), own: newOwner(core)}
		r.core.quiet, r.conn.quiet = true, true
		r.Driver = New(Config{Core: r.core, Mover: r.conn, Conn: r.conn, Owner: r.own, Auto: auto})
		c.rigs = append(c.rigs, r)
	}
	c.Group = newGroup(c.set, nanotime)
	for _, r := range c.rigs {
		c.Add(r.Driver)
	}
	return c
}

func (c *crew) arrive(i int, s string) {
	c.rigs[i].conn.arrive(s)
	note(c.set.news)
}

func (c *crew) close() {
	for _, r := range c.rigs {
		_ = r.Close()
	}
	c.Close()
}

// turns is how often each member looked at its socket or its timers.
func (c *crew) turns() (n []uint64) {
	for _, r := range c.rigs {
		n = append(n, r.Stats().Turns)
	}
	return n
}

func TestGroupDrivesWhoHasSomething(t *testing.T) {
	// An empty look costs one look at the set for any number of members. A packet costs turns of
	// its receiver alone, and its ACK leaves with the look after.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 100, false)
		for c.Poll() {
		}
		c.Poll()
		before, looks := c.turns(), c.set.looks
		for range 1000 {
			if c.Poll() {
				t.Fatal("something happened")
			}
		}
		if got := c.turns(); !slices.Equal(got, before) {
			t.Errorf("turns of idle members: %v, before %v", got, before)
		}
		if got := c.set.looks - looks; got != 1000 {
			t.Errorf("%d looks at the set for 1,000 polls", got)
		}
		c.arrive(57, "m1")
		if !c.Poll() || c.rigs[57].own.count() != 1 {
			t.Error("a packet is not received")
		}
		c.rigs[57].wantSent()
		for range 10 {
			c.Poll()
		}
		c.rigs[57].wantSent("ack")
		before[57] += 3
		if got := c.turns(); !slices.Equal(got, before) {
			t.Errorf("turns after a packet: %v, want %v", got, before)
		}
		c.close()
	})
}

func TestGroupTakesWhatAPostLeft(t *testing.T) {
	// Packets that wait for company leave with the next look.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, false)
		c.Poll()
		c.rigs[1].send("a")
		c.rigs[1].sendMore("b")
		c.rigs[1].wantSent("a")
		c.Poll()
		c.rigs[1].wantSent("b")
		c.close()
	})
}

func TestGroupKeepsDeadlines(t *testing.T) {
	// The deadlines of members come in their order, whoever waits: a poll, a nap, or the goroutine.
	for _, how := range []string{"poll", "nap", "arm", "auto"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 20, how == "auto")
				c.Poll()
				synctest.Wait()
				time.Sleep(3 * stepBack)
				synctest.Wait()
				start := time.Now()
				at := func(i int) time.Duration { return time.Duration(10+(i*7)%20) * time.Millisecond }
				for i, r := range c.rigs {
					r.core.set(func() { r.core.timeout = r.clock.time() + at(i) })
					r.send("a")
				}
				late := map[string]time.Duration{"poll": time.Millisecond, "auto": stepBack}[how]
				over := make(chan bool, 1)
				switch how {
				case "arm":
					c.Arm()
				case "poll", "nap":
					go func() {
						for time.Since(start) < 50*time.Millisecond {
							if how == "poll" {
								time.Sleep(time.Millisecond)
							} else if !c.Nap(50 * time.Millisecond) {
								t.Error("no nap")
								break
							}
							c.Poll()
						}
						over <- true
					}()
				}
				for ms := range 50 {
					time.Sleep(time.Millisecond)
					synctest.Wait()
					for i, r := range c.rigs {
						r.core.set(func() {
							done := slices.Contains(r.core.log, "advance")
							if now := time.Duration(ms+1) * time.Millisecond; done != (now >= at(i)) && now < at(i) || !done && now >= at(i)+late {
								t.Errorf("member %d, due at %v: at %v: %v", i, at(i), now, r.core.log)
							}
						})
					}
				}
				switch how {
				case "arm":
					c.Disarm()
				case "poll", "nap":
					<-over
				}
				c.close()
			})
		})
	}
}

func TestGroupGoroutineServesAll(t *testing.T) {
	// With automatic progress one goroutine receives for all members while the application does
	// nothing, sleeps while nothing comes, and stays away while it polls. Those of the members
	// end, and go on when the group is closed.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 10, true)
		synctest.Wait()
		for i, r := range c.rigs {
			r.h.lock()
			if r.sleeper.started {
				t.Errorf("member %d has a goroutine", i)
			}
			r.h.free()
			r.conn.mu.Lock()
			if r.conn.forgone != 1 {
				t.Errorf("member %d keeps what its goroutine waited by", i)
			}
			r.conn.mu.Unlock()
		}
		c.Poll()
		time.Sleep(3 * stepBack)
		looks := c.set.looks
		time.Sleep(time.Hour)
		if got := c.set.looks; got != looks {
			t.Errorf("%d looks in an idle hour", got-looks)
		}
		c.arrive(0, "x") // it wakes, and finds that the application polled since it last did
		time.Sleep(3 * stepBack)
		c.rigs[0].wantSent("ack")
		start := time.Now()
		for i, r := range c.rigs {
			c.arrive(i, "m")
			<-r.own.arrived
			time.Sleep(time.Millisecond)
			r.wantSent("ack")
		}
		if d := time.Since(start); d != 10*time.Millisecond {
			t.Errorf("received after %v", d)
		}
		looks = c.set.looks
		for range 1000 {
			c.Poll()
			time.Sleep(10 * time.Microsecond)
		}
		if got := c.set.looks - looks; got > 1000+2 {
			t.Errorf("%d looks, 1000 of them the application's", got)
		}
		c.Close()
		for i, r := range c.rigs {
			r.conn.arrive("m2")
			time.Sleep(2 * stepBack)
			synctest.Wait()
			if r.own.count() != 2 {
				t.Errorf("member %d does not go on by itself", i)
			}
			_ = r.Close()
		}
	})
}

// A deadline may pass before the nap for it begins.
func TestGroupNapOfNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, false)
		for c.Poll() {
		}
		for _, limit := range []time.Duration{0, -time.Nanosecond} {
			if start := time.Now(); !c.Nap(limit) || time.Since(start) != 0 {
				t.Errorf("a nap of %v took %v", limit, time.Since(start))
			}
		}
	})
}

func TestGroupNapIsEnded(t *testing.T) {
	for _, auto := range []bool{false, true} {
		napIsEnded(t, auto)
	}
}

func napIsEnded(t *testing.T, auto bool) {
	// A reader that naps on the group is woken by a packet of any member, by Rouse, and by the
	// deadline of a post of another goroutine. Meanwhile the goroutine stays away.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 5, auto)
		synctest.Wait()
		nap := func() <-chan bool {
			over := make(chan bool, 1)
			go func() { over <- c.Nap(time.Minute) }()
			time.Sleep(20 * stepBack)
			synctest.Wait()
			return over
		}
		for c.Poll() {
		}
		over := nap()
		start, looks := time.Now(), c.set.looks
		c.arrive(3, "m")
		if !<-over || time.Since(start) != 0 || c.set.looks != looks {
			t.Errorf("a packet ended the nap after %v, and there were %d looks meanwhile", time.Since(start), c.set.looks-looks)
		}
		if !c.Poll() || c.rigs[3].own.count() != 1 {
			t.Error("the packet is not there")
		}
		for c.Poll() {
		}
		over = nap()
		if c.Nap(time.Minute) {
			t.Error("two readers nap")
		}
		c.Rouse()
		if !<-over {
			t.Error("the nap did not take place")
		}
		over = nap()
		r := c.rigs[2]
		r.core.set(func() { r.core.timeout = r.clock.time() + time.Millisecond })
		r.send("a")
		start = time.Now()
		if <-over; time.Since(start) > time.Millisecond {
			t.Errorf("a deadline ended the nap after %v", time.Since(start))
		}
		c.close()
		if c.Nap(time.Minute) {
			t.Error("a nap after Close")
		}
	})
}

func TestGroupArmDeliversWhatAPostEnded(t *testing.T) {
	// The post came after the last look of the reader that goes to sleep.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, false)
		c.Poll()
		c.rigs[1].core.endAtOnce()
		c.rigs[1].send("a")
		c.Arm()
		synctest.Wait()
		if n := c.rigs[1].own.count(); n != 1 {
			t.Errorf("%d ends delivered, want 1", n)
		}
		c.Disarm()
		c.close()
	})
}

func TestGroupPostDeliversItsEnd(t *testing.T) {
	// The reader sleeps when the post comes.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, false)
		c.Poll()
		c.Arm()
		synctest.Wait()
		c.rigs[1].core.endAtOnce()
		c.rigs[1].send("a")
		if n := c.rigs[1].own.count(); n != 1 {
			t.Errorf("%d ends delivered, want 1", n)
		}
		c.Disarm()
		c.close()
	})
}

func TestGroupIsNoPause(t *testing.T) {
	// A member had no turn for long because there was nothing in its socket. What comes then did
	// not wait there, unless nobody looked at the group.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 2, false)
		r := c.rigs[1]
		for range 100 {
			c.Poll()
			time.Sleep(100 * time.Microsecond)
		}
		c.arrive(1, "m1")
		c.Poll()
		c.Poll()
		time.Sleep(10 * time.Millisecond)
		c.arrive(1, "m2")
		c.Poll()
		r.core.set(func() {
			if want := []bool{false, true}; !slices.Equal(r.core.waited, want) {
				t.Errorf("may have waited: %v, want %v", r.core.waited, want)
			}
		})
		c.close()
	})
}

func TestGroupsShareADriver(t *testing.T) {
	// A Driver in two groups, as an endpoint with two queues that others share: what one group
	// found is not lost for the other, whichever is looked at.
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, false)
		other := newGroup(newSet(), c.rigs[0].clock.read)
		if !other.Add(c.rigs[1].Driver) || !other.Add(c.rigs[2].Driver) {
			t.Fatal("cannot join")
		}
		other.Poll()
		c.Poll()
		c.arrive(1, "m")
		c.Poll()
		c.rigs[1].wantSent()
		other.Poll()
		c.rigs[1].wantSent("ack")
		r := c.rigs[2]
		r.core.set(func() { r.core.timeout = r.clock.time() + time.Millisecond })
		r.send("a")
		c.Poll()
		r.core.takeLog()
		time.Sleep(time.Millisecond)
		other.Poll()
		r.wantLog("advance")
		// A reader that sleeps on one member alone is served by the goroutine of that one.
		r = c.rigs[1]
		r.Arm()
		synctest.Wait()
		r.conn.arrive("m2")
		synctest.Wait()
		if n := r.own.count(); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
		r.Disarm()
		other.Close()
		c.close()
	})
}

func TestGroupNapsBesideTheGoroutine(t *testing.T) {
	// A reader that naps while the goroutine has a turn leaves it no sleep on the set of which
	// nobody knows: the next nap would wait for its end, which is that of the silence.
	c := realCrew(t, 2, true, 300*time.Microsecond)
	over := make(chan bool)
	var rounds atomic.Int32
	go func() {
		defer close(over)
		for ; rounds.Load() < 100; rounds.Add(1) {
			time.Sleep(3 * stepBack) // the goroutine watches again
			c.arrive(0, "m")         // and has a turn
			for range 3 {
				c.Nap(time.Millisecond)
			}
		}
	}()
	for last, same := int32(-1), 0; ; {
		select {
		case <-over:
			c.close()
			return
		case <-time.After(2 * time.Second): // a process that gets no processor does not see them pass
		}
		if n := rounds.Load(); n != last {
			last, same = n, 0
		} else if same++; same == 4 {
			t.Fatalf("a nap of round %d does not end", n)
		}
	}
}

func TestGroupServesTheFirstWithAutomaticProgress(t *testing.T) {
	// The goroutine was there already, for a reader of members with manual progress, and sleeps until
	// it is needed.
	for _, napping := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(t, 2, false)
			c.Poll()
			c.Arm()
			synctest.Wait()
			c.Disarm()
			c.arrive(0, "m")
			synctest.Wait()
			over := make(chan bool, 1)
			if napping {
				c.Poll()
				go func() { over <- c.Nap(3 * stepBack) }()
				synctest.Wait()
			}
			r := bubbleRig(t, true)
			if !c.Add(r.Driver) {
				t.Fatal("cannot join")
			}
			c.rigs = append(c.rigs, r)
			time.Sleep(10 * stepBack)
			c.arrive(2, "m")
			time.Sleep(10 * stepBack)
			if n := r.own.count(); n != 1 {
				t.Errorf("napping %v: %d messages received, want 1", napping, n)
			}
			c.close()
		})
	}
}

func TestGroupConcurrentUse(t *testing.T) {
	// Polls, naps, sleeps, posts, joins, leaves and Close race.
	for _, auto := range []bool{false, true} {
		t.Run(fmt.Sprint("auto=", auto), func(t *testing.T) {
			c := realCrew(t, 8, auto, 0)
			var wg, posters sync.WaitGroup
			over := make(chan struct{})
			loop := func(f func(i int)) {
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-over:
							return
						default:
							f(i)
						}
					}
				})
			}
			loop(func(int) { c.Poll(); c.Yield() })
			loop(func(int) { c.Nap(100 * time.Microsecond); c.Poll() })
			loop(func(int) { c.Arm(); c.Shared(); time.Sleep(10 * time.Microsecond); c.Disarm() })
			loop(func(i int) {
				d := c.rigs[7].Driver
				if c.Remove(d); i%3 == 0 {
					d.Poll()
				}
				c.Add(d)
			})
			const each = 300
			for i, r := range c.rigs {
				posters.Go(func() {
					for range each {
						_ = r.Post(&transport.Op{Kind: transport.OpSend, Buf: []byte("x")}, 1, false)
						c.arrive(i, "m")
					}
				})
			}
			posters.Wait()
			for start := time.Now(); ; time.Sleep(time.Millisecond) {
				n := 0
				for _, r := range c.rigs {
					n += r.own.count()
				}
				if n == each*len(c.rigs) {
					break
				}
				if time.Since(start) > 20*time.Second {
					t.Fatalf("%d of %d messages", n, each*len(c.rigs))
				}
			}
			_ = c.rigs[0].Close()
			close(over)
			wg.Wait()
			c.Close()
			for _, r := range c.rigs {
				_ = r.Close()
			}
		})
	}
}

func TestGroupHasALeadWhileItHasMembers(t *testing.T) {
	// Whoever leaves, in whatever order, one that is still in knows of the processor for all.
	for _, step := range []int{1, 7, 19} {
		synctest.Test(t, func(t *testing.T) {
			const n = 20
			c := newCrew(t, n, false)
			in := map[*Driver]bool{}
			for _, r := range c.rigs {
				in[r.Driver] = true
			}
			for i := range n {
				if d := c.lead.Load(); !in[d] {
					t.Fatalf("%d of %d are left, and the lead is none of them", len(in), n)
				}
				d := c.rigs[(i*step)%n].Driver
				c.Remove(d)
				delete(in, d)
				if len(c.all) != len(in) {
					t.Fatalf("%d members, want %d", len(c.all), len(in))
				}
			}
			if c.lead.Load() != nil {
				t.Error("a group without members has a lead")
			}
			c.close()
		})
	}
}

// BenchmarkGroupLeave has the members of a group leave in the order in which they came, which makes each the lead. An
// operation is all of them.
func BenchmarkGroupLeave(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			var all []*Driver
			for range n {
				d, _ := nopDriver(b)
				all = append(all, d)
			}
			for b.Loop() {
				b.StopTimer()
				g := newGroup(noSet{}, all[0].clock.read)
				for _, d := range all {
					g.Add(d)
				}
				b.StartTimer()
				for _, d := range all {
					g.Remove(d)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/leave")
		})
	}
}

// noSet is a Set that costs nothing.
type noSet struct{}

func (noSet) Add(Conn, int) bool       { return true }
func (noSet) Remove(Conn, int)         {}
func (noSet) Ready(ids []int) []int    { return ids }
func (noSet) Wait(time.Duration) error { return nil }
func (noSet) Wake()                    {}
func (noSet) Nap(time.Duration) bool   { return false }
func (noSet) Rouse()                   {}
func (noSet) Close() error             { return nil }
