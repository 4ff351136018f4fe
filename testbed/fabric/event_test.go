package fabric

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func (r *rig) apply(e Event) {
	r.t.Helper()
	if err := r.s.Apply(r.now, e); err != nil {
		r.t.Fatal(err)
	}
}

// passes reports whether a packet gets through now.
func (r *rig) passes() bool {
	n := len(r.out)
	r.send(pkt{}.bytes())
	r.collect()
	return len(r.out) > n
}

func events(e ...Event) func(*Config) { return func(c *Config) { c.Events = e } }

// The time of events begins with the first UET packet.
func TestTimelineZero(t *testing.T) {
	down := Event{At: Duration(10 * ms), For: Duration(5 * ms), On: []string{"b.to"}, Down: true}
	other := pkt{raw: []byte("no UET")}.bytes()
	r := newRig(t, events(down))
	r.run(time.Second)
	r.send(other)
	r.run(time.Second)
	if r.s.Stats(r.now).Started != nil {
		t.Fatal("started by what is no UET packet")
	}
	zero := r.now
	r.send(pkt{}.bytes())
	if st := r.s.Stats(r.now).Started; st == nil || *st != Duration(zero) {
		t.Fatalf("started %v, want %v", st, zero)
	}
	for _, c := range []struct {
		at time.Duration
		up bool
	}{{9 * ms, true}, {10*ms - 1, true}, {10 * ms, false}, {15*ms - 1, false}, {15 * ms, true}} {
		r.run(zero + c.at - r.now)
		if got := r.passes(); got != c.up {
			t.Errorf("at %v: up %v, want %v", c.at, got, c.up)
		}
	}
	r.s.Start(r.now)
	if *r.s.Stats(r.now).Started != Duration(zero) {
		t.Error("Start began again")
	}
}

func TestStart(t *testing.T) {
	r := newRig(t, events(Event{At: Duration(ms), On: []string{"b"}, Down: true}))
	r.now = time.Second
	r.s.Start(r.now)
	r.run(ms - 1)
	if !r.passes() {
		t.Error("too early")
	}
	r.run(1)
	if r.passes() {
		t.Error("too late")
	}
}

// An event at 0 happens before the first packet.
func TestEventAtZero(t *testing.T) {
	r := newRig(t, events(Event{On: []string{"a.from"}, Rule: &Rule{Drop: []uint64{0}}}))
	if r.passes() {
		t.Error("the first packet passed")
	}
	if !r.passes() {
		t.Error("the second did not")
	}
}

func TestEventEvery(t *testing.T) {
	for _, times := range []int{0, 2} {
		r := newRig(t, events(Event{At: Duration(ms), For: Duration(2 * ms), Every: Duration(3 * ms), Times: times, On: []string{"a"}, Down: true}))
		got := ""
		for range 20 {
			c := "-"
			if r.passes() {
				c = "+"
			}
			got += c
			r.run(ms)
		}
		want := "+" + strings.Repeat("--+", 7)[:19]
		if times == 2 {
			want = "+--+--" + strings.Repeat("+", 14)
		}
		if got != want {
			t.Errorf("%d times: %s, want %s", times, got, want)
		}
		if times == 2 && r.s.timed != 0 {
			t.Errorf("%d events are left", r.s.timed)
		}
	}
}

// After all temporary changes the line is as before, however they overlap.
func TestEventUndo(t *testing.T) {
	before := Line{Rate: 1e9, Delay: 7, Jitter: 3, Queue: 1000, QueueHigh: 2000, Small: 60, ECN: &ECN{Max: 5}, MTU: 1500}
	r := newRig(t, toB(before))
	l := r.s.lines[3]
	was := l.eff
	on := []string{"b.to"}
	for i, e := range []Event{
		{For: Duration(10 * ms), Set: &Line{Rate: 2e9, Delay: 70}},
		{For: Duration(5 * ms), Set: &Line{Rate: 3e9, MTU: 900, Trim: &Trim{After: 1}}},
		{For: Duration(20 * ms), Set: &Line{Delay: 80, ECN: &ECN{Max: 9}, Queue: 5, QueueHigh: 6, Small: 70, Jitter: 1, InOrder: true}},
		{For: Duration(2 * ms), Down: true},
		{For: Duration(3 * ms), Down: true},
		{For: Duration(4 * ms), Set: &Line{Down: true}},
	} {
		e.On = on
		r.apply(e)
		if i == 2 && (l.eff.Rate != 3e9 || l.eff.Delay != 80 || l.eff.MTU != 900 || l.eff.Queue != 5 || l.eff.Small != 70 || l.eff.Trim == nil) {
			t.Errorf("in force: %+v", l.eff)
		}
	}
	for _, c := range []struct {
		ms   int
		down bool
		rate Rate
	}{{2, true, 3e9}, {3, true, 3e9}, {4, false, 3e9}, {5, false, 2e9}, {10, false, 1e9}} {
		r.run(time.Duration(c.ms)*ms - r.now)
		if l.eff.Down != c.down || l.eff.Rate != c.rate {
			t.Errorf("at %d ms: down %v, rate %v", c.ms, l.eff.Down, l.eff.Rate)
		}
	}
	r.run(20 * ms)
	if !reflect.DeepEqual(l.eff, was) || len(l.layers) != 0 || r.s.timed != 0 {
		t.Errorf("left behind: %+v\nwas         %+v, %d layers", l.eff, was, len(l.layers))
	}
}

// A permanent change stays, also if it was made while a temporary one hid it.
func TestEventForGood(t *testing.T) {
	r := newRig(t, toB(Line{Rate: 1e9, Delay: 7}))
	l := r.s.lines[3]
	r.apply(Event{On: []string{"b"}, For: Duration(10 * ms), Set: &Line{Rate: 2e9, Delay: 8}})
	r.apply(Event{On: []string{"b.to"}, Set: &Line{Rate: 3e9}})
	if l.eff.Rate != 3e9 || l.eff.Delay != 8 || r.s.lines[2].eff.Rate != 2e9 {
		t.Errorf("%+v", l.eff)
	}
	r.run(time.Second)
	if l.eff.Rate != 3e9 || l.eff.Delay != 7 || r.s.lines[2].eff.Rate != 0 {
		t.Errorf("at the end: %+v", l.eff)
	}
	r.apply(Event{On: []string{"*"}, Down: true})
	r.run(time.Hour)
	if r.passes() {
		t.Error("down for good has ended")
	}
}

func TestEventRules(t *testing.T) {
	r := newRig(t, ruleA(Rule{Name: "one", Drop: []uint64{1}}, Rule{Name: "two", Blackhole: true, Match: Match{SrcPort: 9}}))
	names := func() string {
		var out []string
		for _, x := range r.s.lines[0].rules {
			if x.off == 0 {
				out = append(out, x.Name)
			}
		}
		return strings.Join(out, " ")
	}
	want := func(w string) {
		t.Helper()
		if got := names(); got != w {
			t.Errorf("at %v: rules %q, want %q", r.now, got, w)
		}
	}
	on := []string{"a.from"}
	r.apply(Event{On: on, For: Duration(10 * ms), Rule: &Rule{Name: "three", Loss: 1}})
	want("one two three")
	if r.passes() {
		t.Error("the new rule does nothing")
	}
	r.apply(Event{On: on, For: Duration(20 * ms), Clear: "one"})
	r.apply(Event{On: on, For: Duration(5 * ms), Clear: "one"})
	r.apply(Event{On: on, For: Duration(15 * ms), Clear: "three"})
	want("two")
	if !r.passes() {
		t.Error("a rule that is cleared does something")
	}
	r.run(6 * ms)
	want("two")
	r.run(5 * ms) // three went while it was cleared
	want("two")
	r.run(5 * ms)
	want("two")
	r.run(5 * ms)
	want("one two") // in its old place and with its old count: packet 0 was the first
	if r.passes() {
		t.Error("the rule that came back has forgotten its count")
	}
	r.apply(Event{On: on, Clear: "two", Rule: &Rule{Name: "two", Loss: 0.5}})
	want("one two")
	r.run(time.Second)
	if l := r.s.lines[0]; len(l.rules) != 2 || r.s.timed != 0 || l.rules[1].Loss != 0.5 {
		t.Errorf("%d rules, %d events", len(l.rules), r.s.timed)
	}
}

// Clearing a rule releases the packets that it holds back or delays.
func TestClearReleases(t *testing.T) {
	r := newRig(t, ruleA(
		Rule{Name: "hold", Reorder: 1, ReorderBy: 5, Match: Match{SrcPort: 1}},
		Rule{Name: "late", Delay: Duration(ms), Match: Match{SrcPort: 2}},
		Rule{Name: "last", CE: 1},
	))
	r.send(pkt{psn: 1, sport: 1, ecn: 1}.bytes())
	r.send(pkt{psn: 2, sport: 2, ecn: 1}.bytes())
	r.send(pkt{psn: 3, sport: 1, ecn: 1}.bytes())
	for _, name := range []string{"hold", "late"} {
		r.apply(Event{On: []string{"a.from"}, Clear: name})
	}
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{1, 3, 2}) || r.whys()[Marked] != 3 {
		t.Errorf("left %v, %v", got, r.whys())
	}
}

// A line that goes down loses what waits in it when its turn comes, and what is on the
// wire, but not what has left it.
func TestDownLosesQueue(t *testing.T) {
	r := newRig(t, toB(Line{Rate: byteUS, Delay: Duration(ms)}))
	for i := range 5 {
		r.send(sized(i, 100, pkt{}))
	}
	r.run(150 * us) // 0 has left the queue, 1 is on the wire
	r.apply(Event{On: []string{"b.to"}, For: Duration(ms), Down: true})
	r.run(2 * ms)
	r.send(sized(5, 100, pkt{}))
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 5}) || r.whys()[LostDown] != 4 {
		t.Errorf("left %v, %v", got, r.whys())
	}
}

// A new rate applies to the rest of the packet on the wire.
func TestRateChange(t *testing.T) {
	r := newRig(t, toB(Line{Rate: byteUS}))
	for i := range 4 {
		r.send(sized(i, 100, pkt{}))
	}
	r.run(50 * us)
	r.apply(Event{On: []string{"b.to"}, For: Duration(350 * us), Set: &Line{Rate: byteUS / 2}}) // 100 µs for the rest of the first
	r.run(time.Second)
	var got []time.Duration
	for _, o := range r.out {
		got = append(got, o.at)
	}
	// 150, 350; of the third a quarter by 400, the rest in 75 µs.
	if want := []time.Duration{150 * us, 350 * us, 475 * us, 575 * us}; !slices.Equal(got, want) {
		t.Errorf("left at %v, want %v", got, want)
	}
}

// Lifting a rate limit releases the waiting packets at once.
func TestRateLifted(t *testing.T) {
	r := newRig(t)
	r.apply(Event{On: []string{"b.to"}, For: Duration(50 * us), Set: &Line{Rate: byteUS}})
	for i := range 4 {
		r.send(sized(i, 100, pkt{dscp: []uint8{0, 0, 0, 46}[i]}))
	}
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 3, 1, 2}) || r.out[0].at != 50*us || r.out[3].at != 50*us {
		t.Errorf("left %v, the first at %v", got, r.out[0].at)
	}
	if w := r.s.lines[3]; w.lowBytes != 0 || w.highBytes != 0 || w.tx != nil {
		t.Error("the line is not empty")
	}
}

func TestEventOn(t *testing.T) {
	for on, want := range map[string]string{
		"a": "a.from a.to", "b.to": "b.to", "spine.1": "spine.1", "*": "a.from a.to b.from b.to spine.0 spine.1",
		"a b.from": "a.from a.to b.from",
	} {
		r := newRig(t, spines(2))
		r.apply(Event{On: strings.Fields(on), Down: true})
		var got []string
		for _, l := range r.s.lines {
			if l.eff.Down {
				got = append(got, l.name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", on, got, want)
		}
	}
}

// Each occurrence of a repeated event draws other numbers, the same in each run.
func TestEventStreams(t *testing.T) {
	play := func() (out [2][]uint64) {
		r := newRig(t, events(Event{For: Duration(time.Second), Every: Duration(2 * time.Second), Times: 2, On: []string{"a.from"}, Rule: &Rule{Name: "x", Loss: 0.5}}))
		for i := range out {
			r.log = nil
			for k := range 100 {
				if !r.passes() {
					out[i] = append(out[i], uint64(k))
				}
			}
			r.run(2 * time.Second)
		}
		return out
	}
	a, b := play(), play()
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs differ")
	}
	if len(a[0]) < 30 || len(a[1]) < 30 || slices.Equal(a[0], a[1]) {
		t.Errorf("lost %v", a)
	}
}

func TestEventBounds(t *testing.T) {
	r := newRig(t)
	e := Event{On: []string{"a.from"}, For: Duration(time.Second), Down: true}
	for range maxTimed {
		r.apply(e)
	}
	if err := r.s.Apply(r.now, e); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxTimed)) {
		t.Errorf("too many events: %v", err)
	}
	r.run(time.Second)
	e = Event{On: []string{"a.from"}, Rule: &Rule{Loss: 0.1}}
	for range maxRules {
		r.apply(e)
	}
	if err := r.s.Apply(r.now, e); err == nil || !strings.Contains(err.Error(), "a.from") {
		t.Errorf("too many rules: %v", err)
	}
	if r.s.timed != 0 {
		t.Errorf("%d events", r.s.timed)
	}
}

// The caller may change an event after passing it on.
func TestApplyCopies(t *testing.T) {
	r := newRig(t)
	e := Event{At: Duration(ms), On: []string{"a.from"}, Set: &Line{MTU: 100}, Rule: &Rule{Name: "x", Drop: []uint64{0}}}
	r.apply(e)
	e.Set.MTU, e.Rule.Name, e.Rule.Drop[0] = 200, "y", 5
	r.run(ms)
	l := r.s.lines[0]
	if l.eff.MTU != 100 || l.rules[0].Name != "x" || !slices.Equal(l.rules[0].drop, []uint64{0}) {
		t.Errorf("%+v, %+v", l.eff, l.rules[0].Rule)
	}
}

// Of equal times, an event comes before the packets, whichever was scheduled first.
func TestEventBeforePackets(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Ports[0].From.Delay = Duration(10 * ms) })
	r.send(pkt{}.bytes())
	r.apply(Event{At: Duration(10 * ms), On: []string{"b.to"}, Down: true})
	r.run(time.Second)
	if r.whys()[LostDown] != 1 {
		t.Errorf("%v", r.whys())
	}
}
