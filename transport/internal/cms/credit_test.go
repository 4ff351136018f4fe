package cms

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A source with credit, and what it sees of its destination, in steps of a test.
type creditScript struct {
	t   *testing.T
	c   *Credit
	now time.Duration
	st  CreditStats
}

func newCreditScript(t *testing.T, both bool) *creditScript {
	t.Helper()
	s := &creditScript{t: t, now: time.Second}
	s.c = NewCredit(Config{MTU: 1000, Window: 64_000, BaseRTT: 100 * us}, both, 9, &s.st)
	return s
}

// wants makes n bytes wait.
func (s *creditScript) wants(n, share int) {
	s.c.Queue(n - s.c.Queued())
	s.c.Wants(s.now, share)
}

// fill sends full packets as long as that is permitted, and returns how many.
func (s *creditScript) fill() (n int) {
	for s.c.CanSend(1000) {
		s.c.Target() // each request has it
		s.c.OnSend(s.now, 1000)
		n++
	}
	return n
}

// answer acknowledges n packets.
func (s *creditScript) answer(n int) {
	s.now += 100 * us
	s.c.OnAck(s.now, n*1000, 100*us, false, 0, false)
}

// question has g answer a CREDIT_REQ.
func (s *creditScript) question(g *Grants, id uint8, target uint32) {
	if answer, _ := g.Ask(s.now, 1, id, target, 1, true, true); answer {
		s.c.OnCredit(s.now, g.Credit(1, id))
	}
}

// take takes all that g grants, and calls then behind each grant.
func (s *creditScript) take(g *Grants, then func(id uint8)) {
	for g.Advance(s.now); ; {
		_, _, id, credit, ok := g.Next(s.now)
		if !ok {
			return
		}
		s.c.OnCredit(s.now, credit)
		then(id)
	}
}

// Before the first answer opening packets leave, then what is granted: the last packet may
// overdraw, and the next grant pays for that.
func TestCreditGate(t *testing.T) {
	s := newCreditScript(t, false)
	s.wants(100_000, 1)
	if n := s.fill(); n != opening {
		t.Fatalf("%d packets left before the first answer, want %d", n, opening)
	}
	s.answer(opening)
	if n := s.fill(); n != 0 {
		t.Fatalf("%d packets left without credit", n)
	}
	for i, c := range []struct{ granted, want int }{{1000, 1}, {2000, 1}, {2500, 1}, {3000, 0}, {3200, 1}, {10_000, 6}} {
		s.c.OnCredit(s.now, uint32(c.granted/quantum))
		// Credit counts in quanta: 1000 bytes are three of them.
		if n := s.fill(); n != c.want {
			t.Errorf("grant %d up to %d: %d packets left, want %d", i, c.granted, n, c.want)
		}
	}
}

// What arrives unsolicited ends with the first answer: the unused part is not for later.
func TestCreditSpeculationEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(s *creditScript)
	}{
		{"ACK", func(s *creditScript) { s.answer(1) }},
		{"NACK", func(s *creditScript) { s.c.OnNack(s.now, 1000, true) }},
		{"CREDIT", func(s *creditScript) { s.c.OnCredit(s.now, 0) }},
	} {
		s := newCreditScript(t, false)
		s.wants(100_000, 1)
		s.c.OnSend(s.now, 1000)
		if c.answer(s); s.c.CanSend(1000) {
			t.Errorf("after %s a packet may leave without credit", c.name)
		}
	}
}

// The target covers what waits and is not covered yet, up to MaxWnd, or to the window of NSCC and a packet.
func TestCreditTarget(t *testing.T) {
	s := newCreditScript(t, false)
	at := func(want uint32) {
		t.Helper()
		if id, got := s.c.Target(); id != 9 || got != want {
			t.Errorf("ccc_id %d, target %d, want %d", id, got, want)
		}
	}
	s.wants(10_000, 1)
	at((10_000 - opening*1000 + 255) / 256) // what leaves unsolicited needs none
	s.fill()
	s.answer(opening)
	at((10_000 - opening*1000 + 255) / 256)
	s.wants(1<<20, 1)
	at(64_000 / 256)
	s.wants(1<<20, 4) // its link sends to four
	s.c.asked = 0
	at((16_000 + 255) / 256)
	b := newCreditScript(t, true)
	b.wants(1<<20, 1)
	b.fill()
	b.answer(opening)
	b.c.nscc.cwnd = 5000
	b.wants(1<<20, 1)
	if _, got := b.c.Target(); got != (6000+255)/256 {
		t.Errorf("with NSCC the target is %d", got)
	}
}

// Counters of 24 bits wrap around; what is old changes nothing; what exceeds the target is not used.
func TestCreditWraps(t *testing.T) {
	s := newCreditScript(t, false)
	s.wants(100_000, 1)
	s.fill()
	s.answer(opening)
	s.c.granted, s.c.asked = (creditMod-10)*quantum, (creditMod-10)*quantum
	s.wants(10_000, 1)
	if _, got := s.c.Target(); got != 30 {
		t.Fatalf("the target is %d, want 30", got)
	}
	if !s.c.OnCredit(s.now, creditMod-5) || s.left() != 5*quantum {
		t.Errorf("%d bytes of credit", s.left())
	}
	if !s.c.OnCredit(s.now, 10) || s.left() != 20*quantum {
		t.Errorf("%d bytes of credit behind the wrap", s.left())
	}
	for _, old := range []uint32{creditMod - 5, 9, 10, 10 + creditMod/2} {
		if s.c.OnCredit(s.now, old) || s.left() != 20*quantum {
			t.Errorf("grant %d: %d bytes of credit", old, s.left())
		}
	}
	if s.st.Old != 3 {
		t.Errorf("%d old grants counted, want 3", s.st.Old)
	}
	if s.c.OnCredit(s.now, 1000); s.left() != 40*quantum || s.st.Excess != 1 {
		t.Errorf("a grant beyond the target: %d bytes of credit, %d counted", s.left(), s.st.Excess)
	}
}

// left is how many bytes RCCC lets leave now.
func (s *creditScript) left() int { return int(max(s.c.credit+s.c.free, 0)) }

// A question that is not answered is asked again, after a time that doubles. After silentAsks of
// them a packet leaves without credit; if they are answered and nothing is granted, after longer.
func TestCreditAsks(t *testing.T) {
	s := newCreditScript(t, false)
	s.wants(100_000, 1)
	s.fill()
	s.answer(opening)
	s.wants(100_000, 1)
	var at []time.Duration
	for len(at) < 4 {
		if s.now > time.Minute {
			t.Fatalf("asked only at %v", at)
		}
		if s.c.Ask(s.now) {
			at = append(at, s.now)
			if _, target := s.c.Target(); target == 0 {
				t.Fatal("it asks for nothing")
			}
		}
		s.now += 100 * us
	}
	if at[1]-at[0] < 5*ms || at[2]-at[1] < 3*(at[1]-at[0])/2 || at[3]-at[2] < 3*(at[2]-at[1])/2 {
		t.Errorf("asked at %v", at)
	}
	if !s.c.Persist(s.now) || s.fill() != 1 {
		t.Error("no packet leaves although nobody answers")
	}
	s.answer(1)
	s.wants(100_000, 1)
	for end := s.now + 5*time.Second; s.now < end; s.now += time.Millisecond {
		if s.c.Ask(s.now) {
			s.c.Target()
			s.c.OnCredit(s.now, 0) // an answer that grants nothing
		}
		if s.c.Persist(s.now) {
			if left := s.now - (end - 5*time.Second); left < 1500*ms {
				t.Errorf("a packet leaves after %v although the destination answers", left)
			}
			return
		}
	}
	t.Error("a destination that grants nothing stops the source for ever")
}

// After an idle time the source begins as at the start, and credit that was not used is gone.
func TestCreditForgotten(t *testing.T) {
	// docs/faults.md rule 5: a destination that has forgotten what it granted counts from the beginning. A
	// source that it granted much goes on after a few questions, not when the count has come that far again.
	s := newCreditScript(t, false)
	s.wants(1<<20, 1)
	for granted := uint32(0); granted < 40_000; granted += 200 {
		s.wants(1<<20, 1)
		s.c.Target()
		s.fill()
		s.answer(s.c.InFlight() / 1000)
		s.c.OnCredit(s.now, granted)
	}
	s.fill()
	s.answer(s.c.InFlight() / 1000)
	if _, target := s.c.Target(); target < 20_000 {
		t.Fatalf("the target is %d: the test does not test", target)
	}
	g := NewGrants(GrantConfig{MTU: 1000, Most: 16 << 20, Room: 64_000})
	asks, had := 0, s.st.Grants
	for end := s.now + 500*time.Millisecond; s.st.Grants < had+8 && s.now < end; s.now += time.Millisecond {
		s.wants(1<<20, 1)
		if s.c.Ask(s.now) {
			id, target := s.c.Target()
			if asks++; asks == 1 {
				s.c.OnCredit(s.now, 7) // late
				if _, again := s.c.Target(); again != target {
					t.Fatal("a late grant counts as a destination that has forgotten")
				}
			}
			s.question(g, id, target)
		}
		s.take(g, func(id uint8) {
			for range s.fill() {
				g.Arrived(s.now, 1, id, 1000)
				s.answer(1)
			}
		})
	}
	if s.st.Grants < had+8 {
		t.Errorf("%d grants, after %d questions", s.st.Grants-had, asks)
	}
}

// A source that has the ccc_id of one that is gone, and of which the destination still knows, sends what it
// has: at once, if one question and its answer are, and never without credit.
func TestCreditIDReused(t *testing.T) {
	for _, had := range []int{1000, 20_000, 60_000, 100_000, 200_000, 5 << 20} {
		g := NewGrants(GrantConfig{MTU: 1000, Most: 64_000, Room: 64_000})
		now, asks := time.Second, 0
		send := func(n int) *creditScript {
			s := newCreditScript(t, false)
			s.now = now
			for left := n; left > 0; {
				s.wants(left, 1)
				for s.c.CanSend(1000) && left > 0 {
					id, target := s.c.Target()
					s.c.OnSend(s.now, 1000)
					g.Arrived(s.now, 1, id, 1000)
					g.Ask(s.now, 1, id, target, 1, true, false)
					left -= 1000
				}
				if s.wants(max(left, 0), 1); left > 0 && s.c.Ask(s.now) {
					asks++
					id, target := s.c.Target()
					s.question(g, id, target)
				}
				s.take(g, func(uint8) {})
				if s.answer(s.c.InFlight() / 1000); s.now > now+2*time.Second {
					t.Fatalf("had %d: %d bytes of %d are left", had, left, n)
				}
			}
			return s
		}
		now = send(had).now + ms
		asks = 0
		s := send(100_000)
		if took := s.now - now; took > 20*ms || asks > 4 || s.st.Persists > 0 {
			t.Errorf("had %d: it took %v and %d questions, %d packets left without credit", had, took, asks, s.st.Persists)
		}
	}
}

func TestCreditIdleRestart(t *testing.T) {
	s := newCreditScript(t, false)
	s.wants(10_000, 1)
	s.fill()
	s.answer(opening)
	s.wants(7000, 1)
	s.c.Target()
	s.c.OnCredit(s.now, 7000/quantum)
	s.c.OnSend(s.now, 1000)
	s.wants(0, 1) // the rest was cancelled
	s.answer(1)
	if s.left() < 5000 {
		t.Fatalf("%d bytes of credit", s.left())
	}
	s.now += 10 * ms
	s.wants(50_000, 1)
	if n := s.fill(); n != opening {
		t.Errorf("%d packets left after an idle time, want %d", n, opening)
	}
	s.wants(50_000, 1) // it was not idle: packets are in flight
	if n := s.fill(); n != 0 {
		t.Errorf("%d more left", n)
	}
}

// The time that packets wait for credit is counted, once for all CCCs, until credit comes or nothing waits.
func TestCreditWaited(t *testing.T) {
	s := newCreditScript(t, false)
	o := NewCredit(Config{MTU: 1000, Window: 64_000, BaseRTT: 100 * us}, false, 10, &s.st)
	waited := func(want time.Duration) {
		t.Helper()
		if got := s.st.Waited(s.now); got != want {
			t.Errorf("waited for %v, want %v", got, want)
		}
	}
	dry := func(c *Credit, n int) {
		c.Queue(n - c.Queued())
		c.Wants(s.now, 1)
		for c.CanSend(1000) {
			c.Target()
			c.OnSend(s.now, 1000)
		}
		c.Ask(s.now)
	}
	dry(s.c, 50_000)
	s.now += ms
	if waited(ms); s.c.Waits(s.now) != ms || o.Waits(s.now) != 0 {
		t.Errorf("the CCCs wait since %v and %v", s.c.Waits(s.now), o.Waits(s.now))
	}
	dry(o, 50_000) // it waits at the same time
	s.now += ms
	s.c.Target()
	s.c.OnCredit(s.now, 20)
	waited(2 * ms) // the other one still waits
	s.now += ms
	o.Target()
	o.OnCredit(s.now, 20)
	s.now += ms
	waited(3 * ms)
	dry(s.c, 40_000)
	s.now += ms
	s.wants(0, 1) // what waited was cancelled
	s.now += ms
	waited(4 * ms)
	dry(o, 30_000)
	s.now += ms
	o.End(s.now)
	s.now += ms
	waited(5 * ms)
	s.wants(9000, 1)
	dry(s.c, 9000)
	s.now += ms
	s.c.Refuse(s.now)
	s.now += ms
	waited(6 * ms)
}

// After a refusal NSCC alone decides.
func TestCreditRefuse(t *testing.T) {
	s := newCreditScript(t, false)
	s.wants(1<<20, 1)
	s.fill()
	s.answer(opening)
	s.c.Refuse(s.now)
	if n := s.fill(); n != 64 {
		t.Errorf("%d packets left, want the window of 64", n)
	}
	if id, target := s.c.Target(); id != 0 || target != 0 || s.c.Ask(s.now) || s.c.OnCredit(s.now, 5) {
		t.Error("it still asks")
	}
}

// A dealer is a Grants with sources that take what they get and send it.
type dealer struct {
	t   *testing.T
	g   *Grants
	now time.Duration
}

func newDealer(t *testing.T, cfg GrantConfig) *dealer {
	t.Helper()
	return &dealer{t: t, g: NewGrants(cfg), now: time.Second}
}

// ask asks for n bytes more than a source was granted.
func (d *dealer) ask(peer uint32, n int) {
	d.g.Ask(d.now, peer, 1, d.g.Credit(peer, 1)+uint32(n/quantum), peer, true, false)
}

// run makes grants for a time. take is called for each.
func (d *dealer) run(t time.Duration, take func(peer uint32, n int)) {
	last := map[uint32]uint32{}
	for _, s := range d.g.sources {
		last[s.peer] = d.g.Credit(s.peer, 1)
	}
	for end := d.now + t; d.now < end; d.now += us {
		d.g.Advance(d.now)
		for {
			peer, at, _, credit, ok := d.g.Next(d.now)
			if !ok {
				break
			}
			if at != peer {
				d.t.Fatalf("a grant for %d names the PDC %d", peer, at)
			}
			take(peer, int(ahead(credit, last[peer])))
			last[peer] = credit
		}
	}
}

// Grants come at the rate of the line, in turns of four packets, and to all alike.
func TestGrantsRate(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000})
	got := map[uint32]int{}
	for p := uint32(1); p <= 10; p++ {
		d.ask(p, 1<<20)
	}
	d.run(ms, func(peer uint32, n int) {
		if n > int(d.g.largest) {
			t.Errorf("a grant of %d bytes", n)
		}
		got[peer] += n
		d.g.Arrived(d.now, peer, 1, n)
	})
	sum := 0
	for p := uint32(1); p <= 10; p++ {
		if sum += got[p]; got[p] < 90_000 || got[p] > 106_000 {
			t.Errorf("source %d got %d", p, got[p])
		}
	}
	if sum < 980_000 || sum > 1_000_000 {
		t.Errorf("%d bytes were granted in a time in which 1,000,000 pass", sum)
	}
}

// On a slow line the rate holds, too, though more arrives than was granted: the last packet of a source may
// overdraw its credit, and what a source sends unasked comes on top.
func TestGrantsRateOfASlowLine(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 100_000})
	d.ask(1, 1<<20)
	sum := 0
	d.run(time.Second, func(peer uint32, n int) {
		sum += n
		d.g.Arrived(d.now, peer, 1, n+500)
	})
	if sum > 100_000+int(d.g.largest) {
		t.Errorf("%d bytes were granted in a time in which 100,000 pass", sum)
	}
}

// A source gets what it gets with one CCC also if it has several: RUD PDCs share one, and each ROD PDC has its
// own. That holds where the line limits, and where the room does. Its CCCs share alike what it gets.
func TestGrantsManyContexts(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  GrantConfig
	}{
		{"rate", GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000}},
		{"room", GrantConfig{MTU: 1000, Most: 1 << 20, Room: 60_000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDealer(t, c.cfg)
			ids := func(peer uint32) int { return 1 + 3*int(peer%2) } // sources 1 and 3 have four
			most := map[uint32]int64{}
			got, per := map[uint32]int64{}, [cccsPerSource + 1]int64{}
			for range 1000 {
				for p := uint32(1); p <= 4; p++ {
					for id := 1; id <= ids(p); id++ {
						d.g.Ask(d.now, p, uint8(id), d.g.Credit(p, uint8(id))+100, p, true, false)
					}
				}
				type grant struct {
					peer uint32
					id   uint8
					n    int64
				}
				var all []grant
				for d.g.Advance(d.now); ; {
					before := [5][cccsPerSource + 1]uint32{}
					for p := range uint32(5) {
						for id := range cccsPerSource + 1 {
							before[p][id] = d.g.Credit(p, uint8(id))
						}
					}
					peer, _, id, credit, ok := d.g.Next(d.now)
					if !ok {
						break
					}
					all = append(all, grant{peer, id, ahead(credit, before[peer][id])})
				}
				open := map[uint32]int64{}
				for _, a := range all {
					open[a.peer] += a.n
					if got[a.peer] += a.n; a.peer == 1 {
						per[a.id] += a.n
					}
				}
				for p, n := range open {
					most[p] = max(most[p], n)
				}
				d.now += 20 * us
				for _, a := range all {
					d.g.Arrived(d.now, a.peer, a.id, int(a.n))
				}
			}
			for p := uint32(2); p <= 4; p++ {
				if got[p]*100 < got[1]*90 || got[p]*90 > got[1]*100 {
					t.Errorf("source %d with %d contexts got %d, source 1 with %d got %d", p, ids(p), got[p], ids(1), got[1])
				}
				if c.cfg.Room > 0 && most[p] > int64(c.cfg.Room)/4+int64(grantMTUs*1000)+quantum {
					t.Errorf("source %d had %d open at once of a room of %d for four", p, most[p], c.cfg.Room)
				}
			}
			for id := 2; id <= cccsPerSource; id++ {
				if per[id]*100 < per[1]*80 || per[id]*80 > per[1]*100 {
					t.Errorf("the contexts of source 1 got %d", per[1:])
				}
			}
		})
	}
}

// What is granted and did not arrive never exceeds the room.
func TestGrantsRoom(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Room: 50_000})
	for p := uint32(1); p <= 5; p++ {
		d.ask(p, 1<<20)
	}
	open := 0
	d.run(100*us, func(peer uint32, n int) { open += n })
	if open > 50_000 || open < 40_000 {
		t.Fatalf("%d bytes were granted at once with room for 50,000", open)
	}
	d.g.Arrived(d.now, 1, 1, 10_000)
	more := 0
	d.run(100*us, func(_ uint32, n int) { more += n })
	if more < 8000 || open-10_000+more > 50_000 {
		t.Errorf("%d more after 10,000 arrived", more)
	}
	// The room shrinks: nothing more, until all has arrived. Then one grant at a time.
	d.g.room = 1000
	d.g.Arrived(d.now, 2, 1, 1000)
	d.run(100*us, func(_ uint32, n int) { t.Errorf("%d bytes were granted beyond the room", n) })
	for p := uint32(1); p <= 5; p++ {
		d.g.Arrived(d.now, p, 1, 1<<20)
	}
	one := 0
	d.run(100*us, func(uint32, int) { one++ })
	if one != 1 {
		t.Errorf("%d grants without room, want one", one)
	}
}

// What is lost and sent again is open no more. If it was unsolicited, what was granted comes all the same, and takes no
// time of the line but its own.
func TestGrantsLost(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000, Room: 50_000})
	d.ask(1, 1<<20)
	d.run(100*us, func(uint32, int) {})
	for range 20 {
		d.g.Arrived(d.now, 1, 1, 1000)
		d.g.Lost(d.now, 1, 1, 1000)
	}
	if d.g.open > 10_000 || d.g.Stats.Expired != 20_000 {
		t.Errorf("%d bytes are open, %d expired", d.g.open, d.g.Stats.Expired)
	}
	d = newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000})
	d.ask(1, 8000)
	granted := 0
	d.run(8*us, func(_ uint32, n int) { granted += n })
	for range 3 { // of three unsolicited packets
		d.g.Arrived(d.now, 1, 1, 1000)
		d.g.Lost(d.now, 1, 1, 1000)
	}
	before := d.g.next
	for got := 3000; got < granted; got += 1000 {
		d.g.Arrived(d.now, 1, 1, 1000)
	}
	if d.g.next > before+us {
		t.Errorf("the next grant waits for %v, before for %v", d.g.next-d.now, before-d.now)
	}
	d.g.Arrived(d.now, 1, 1, 5000)
	if d.g.next < before+4*us {
		t.Errorf("the next grant waits for %v after 5 us of the line that nobody granted", d.g.next-d.now)
	}
}

// What comes again because it was refused was not lost: its first credit was used when it arrived.
func TestGrantsRefused(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000, Room: 50_000})
	d.ask(1, 1<<20)
	d.run(100*us, func(uint32, int) {})
	open := d.g.open
	for range 5 {
		d.g.Arrived(d.now, 1, 1, 1000)
		d.g.Refused(1, d.g.find(1, 1).at, 1000)
	}
	for range 5 {
		d.g.Arrived(d.now, 1, 1, 1000)
		d.g.Lost(d.now, 1, 1, 1000)
	}
	if d.g.Stats.Expired != 0 || open-d.g.open != 10_000 {
		t.Errorf("%d bytes expired, %d less are open after 10,000 arrived", d.g.Stats.Expired, open-d.g.open)
	}
	if d.g.Lost(d.now, 1, 1, 1000); d.g.Stats.Expired != 1000 {
		t.Errorf("%d bytes expired, of a packet that was lost", d.g.Stats.Expired)
	}
}

// Short packets take more of a socket than their bytes. As long as they come less is granted.
func TestGrantsCost(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Room: 100_000, Cost: func(n int) int { return max(n, 800) }})
	open := func() (n int) {
		for p := uint32(1); p <= 5; p++ {
			d.ask(p, 1<<20)
		}
		d.run(10*us, func(uint32, int) {})
		return int(d.g.open)
	}
	if n := open(); n < 90_000 {
		t.Errorf("%d bytes are open before anything came", n)
	}
	for range 40 {
		d.g.Arrived(d.now, 1, 1, 200)
	}
	for p := uint32(1); p <= 5; p++ {
		for range 300 {
			d.g.Arrived(d.now, p, 1, 200)
		}
	}
	if n := open(); n*4 > 100_000 || n < 15_000 {
		t.Errorf("%d bytes are open, in packets of 200 bytes that take 800, with room for 100,000", n)
	}
	for p := uint32(1); p <= 5; p++ {
		for range 100 {
			d.g.Arrived(d.now, p, 1, 1000)
		}
	}
	if n := open(); n < 90_000 {
		t.Errorf("%d bytes are open when packets are long again", n)
	}
}

// What never arrives expires. Its source then gets a packet a life, until something of it arrives.
func TestGrantsExpire(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 20_000, Rate: 1_000_000_000, BaseRTT: 10 * us})
	got := [3]int{}
	share := func(silent bool) {
		for p := uint32(1); p <= 2; p++ {
			d.ask(p, 16_000)
		}
		got = [3]int{}
		for range 500 {
			d.run(10*us, func(peer uint32, n int) {
				if got[peer] += n; peer == 2 || !silent {
					d.g.Arrived(d.now, peer, 1, n)
				}
			})
			d.ask(1, 16_000)
			d.ask(2, 16_000)
		}
	}
	share(true)
	if got[1] > 80_000 || got[2] < 4_700_000 {
		t.Errorf("the silent source got %d, the other %d", got[1], got[2])
	}
	if d.g.Stats.Expired < 20_000 {
		t.Errorf("%d bytes expired", d.g.Stats.Expired)
	}
	d.g.Arrived(d.now, 1, 1, 1000)
	share(false)
	if got[1] < 2_300_000 || got[2] < 2_300_000 {
		t.Errorf("after it sent again they got %d and %d", got[1], got[2])
	}
}

// A source that may be forged gets a packet a life.
func TestGrantsDoubt(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 1 << 20, Rate: 1_000_000_000, BaseRTT: 10 * us})
	d.g.Ask(d.now, 1, 1, 4000, 1, false, false)
	n := 0
	d.run(500*us, func(_ uint32, b int) { n += b })
	if n > longest || n == 0 {
		t.Errorf("a source that is not proven got %d bytes", n)
	}
	d.g.Ask(d.now, 1, 1, 4000, 1, true, false)
	d.run(500*us, func(_ uint32, b int) { n += b })
	if n < 400_000 {
		t.Errorf("proven it got %d", n)
	}
}

// A repeated question is answered at once with what there is; a source whose counter does not fit
// begins anew.
func TestGrantsResume(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 100_000})
	ask := func(target uint32) bool {
		answer, ok := d.g.Ask(d.now, 1, 1, target, 1, true, true)
		if !ok {
			t.Fatal("there is no room for a source")
		}
		return answer
	}
	if ask(100) {
		t.Error("a first question gets its grant, not an answer")
	}
	d.run(10*us, func(uint32, int) {})
	if !ask(100) || d.g.Credit(1, 1) != 100 {
		t.Errorf("the repetition of what was granted has no answer; granted %d", d.g.Credit(1, 1))
	}
	// The source says that it used far more than this side ever granted.
	far := uint32(5_000_000)
	ask(far)
	d.g.Arrived(d.now, 1, 1, 1<<20)
	d.run(10*us, func(uint32, int) { d.g.Arrived(d.now, 1, 1, 1<<20) })
	if got := d.g.Credit(1, 1); got != far {
		t.Errorf("granted %d, want %d", got, far)
	}
	// And that it used nothing yet.
	ask(200)
	if got := d.g.Credit(1, 1); got > 200 {
		t.Errorf("granted %d, want no more than 200", got)
	}
}

// Sources are bounded, and CCCs of one source. A peer that is forgotten leaves nothing.
func TestGrantsBounds(t *testing.T) {
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 100_000, Room: 1 << 20})
	for p := uint32(1); p <= maxSources; p++ {
		for id := range 20 {
			if _, ok := d.g.Ask(d.now, p, uint8(id), 100, p, true, false); !ok {
				t.Fatalf("source %d found no room", p)
			}
		}
	}
	if _, ok := d.g.Ask(d.now, maxSources+1, 1, 100, 1, true, false); ok || d.g.Stats.Full != 1 {
		t.Error("there is no bound")
	}
	d.run(10*us, func(uint32, int) {})
	for p := uint32(1); p <= maxSources; p++ {
		d.g.Forget(p)
	}
	if len(d.g.sources) != 0 || d.g.open != 0 || d.g.active != 0 || d.g.ring != nil {
		t.Errorf("%d sources, %d bytes open, %d active are left", len(d.g.sources), d.g.open, d.g.active)
	}
	if _, ok := d.g.Ask(d.now, maxSources+1, 1, 100, 1, true, false); !ok {
		t.Error("there is still no room")
	}
}

// Whatever sources say, the sums stay right, nothing is granted beyond what was asked for, and no more is
// open than the room.
func TestGrantsAnything(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := GrantConfig{MTU: 1000, Most: 50_000, Room: 100_000}
		if r.IntN(2) == 0 {
			cfg.Rate = 1_000_000_000
		}
		d := newDealer(t, cfg)
		for range 2000 {
			d.now += time.Duration(r.IntN(100)) * us
			peer, id := uint32(r.IntN(8)), uint8(r.IntN(6))
			switch r.IntN(8) {
			case 0:
				d.g.Forget(peer)
			case 1:
				d.g.Closed(peer, uint32(r.IntN(4)))
			case 2, 3:
				if d.g.Arrived(d.now, peer, id, r.IntN(5000)); r.IntN(4) == 0 {
					d.g.Lost(d.now, peer, id, r.IntN(5000))
				}
			case 4:
				d.g.Ask(d.now, peer, id, r.Uint32N(creditMod), uint32(r.IntN(4)), r.IntN(2) == 0, true)
			default:
				d.g.Ask(d.now, peer, id, d.g.Credit(peer, id)+r.Uint32N(100), uint32(r.IntN(4)), true, false)
			}
			d.g.Advance(d.now)
			for {
				peer, _, id, credit, ok := d.g.Next(d.now)
				if !ok {
					break
				}
				if e := d.g.find(peer, id); ahead(credit, e.target) > 0 {
					t.Fatalf("seed %d: granted %d, asked for %d", seed, credit, e.target)
				}
			}
			open, active, listed := int64(0), int64(0), 0
			for _, s := range d.g.sources {
				of, can := int64(0), 0
				for i := range s.ccc {
					e := &s.ccc[i]
					if of += e.open; e.listed {
						can++
					}
				}
				if of != s.open || can != s.listed {
					t.Fatalf("seed %d: source %d has %d open, counted %d; %d listed, counted %d", seed, s.peer, of, s.open, can, s.listed)
				}
				if open += of; can > 0 {
					listed++
				}
				if can > 0 || of > 0 {
					active++
				}
			}
			n := 0
			for e := d.g.ring; e != nil && (n == 0 || e != d.g.ring); e = e.next {
				n++
			}
			if open != d.g.open || active != d.g.active || listed != n || open > 100_000 {
				t.Fatalf("seed %d: %d open, counted %d; %d active, counted %d; %d listed, %d in the ring", seed, open, d.g.open, active, d.g.active, listed, n)
			}
			if open > 0 && d.g.NextTimeout() == 0 {
				t.Fatalf("seed %d: nothing ends what is open", seed)
			}
		}
	}
}

// Neither end allocates once it knows its peers.
func TestCreditAllocatesNothing(t *testing.T) {
	s := newCreditScript(t, true)
	d := newDealer(t, GrantConfig{MTU: 1000, Most: 100_000, Rate: 1_000_000_000})
	d.ask(1, 5000)
	n := testing.AllocsPerRun(1000, func() {
		s.now += 10 * us
		d.now = s.now
		s.wants(10_000, 1)
		_, target := s.c.Target()
		d.g.Ask(d.now, 1, 1, target, 1, true, false)
		for {
			_, _, _, credit, ok := d.g.Next(d.now)
			if !ok {
				break
			}
			s.c.OnCredit(s.now, credit)
		}
		for s.c.CanSend(1000) {
			s.c.OnSend(s.now, 1000)
			s.c.OnAck(s.now, 1000, 100*us, false, 0, false)
			d.g.Arrived(d.now, 1, 1, 1000)
		}
		s.c.Ask(s.now)
		d.g.Advance(d.now)
	})
	if n != 0 {
		t.Errorf("%v allocations a turn", n)
	}
}
