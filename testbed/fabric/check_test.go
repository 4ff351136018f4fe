package fabric

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// The error for each contradiction names its place.
func TestConfigRefused(t *testing.T) {
	p := netip.MustParsePrefix
	from := func(l Line) func(*Config) { return func(c *Config) { c.Ports[0].From = l } }
	for _, c := range []struct {
		want string // "PLACE: …"
		mod  func(*Config)
	}{
		{"no ports", func(c *Config) { c.Ports = nil }},
		{"1025 ports: 1024 at most", func(c *Config) { c.Ports = make([]Port, 1025) }},
		{"257 spines: 256 at most", spines(257)},
		{"port 2: no name", func(c *Config) { c.Ports[1].Name = "" }},
		{`port "a.b": a name`, func(c *Config) { c.Ports[1].Name = "a.b" }},
		{`port "spine": a name`, func(c *Config) { c.Ports[1].Name = "spine" }},
		{"port a: there are two", func(c *Config) { c.Ports[1].Name = "a" }},
		{"port b: addrs: none", func(c *Config) { c.Ports[1].Addrs = nil }},
		{"port b: addrs: invalid Prefix is no", func(c *Config) { c.Ports[1].Addrs = []netip.Prefix{{}} }},
		{"port b: addrs: ::ffff:1.2.3.0/120 is no", func(c *Config) { c.Ports[1].Addrs = []netip.Prefix{p("::ffff:1.2.3.0/120")} }},
		{"port b: addrs: 198.18.16.0/24 is behind port a too", func(c *Config) { c.Ports[1].Addrs = []netip.Prefix{p("198.18.16.9/24")} }},
		{"port a: from: rate: -1bit/s", from(Line{Rate: -1})},
		{"port a: from: rate: 11Tbit/s", from(Line{Rate: 11e12})},
		{"port b: to: queue: -5", toB(Line{Queue: -5})},
		{"port b: to: queue_high: 1GiB", toB(Line{QueueHigh: 1 << 30})},
		{"port b: to: small: -1", toB(Line{Small: -1})},
		{"port b: to: delay: -1ns", toB(Line{Delay: -1})},
		{"port b: to: jitter: 101h", toB(Line{Jitter: Duration(101 * time.Hour)})},
		{"port b: to: ecn: min: 2kB is more than max, 1kB", toB(Line{ECN: &ECN{Min: 2000, Max: 1000}})},
		{"port b: to: ecn: min: -1", toB(Line{ECN: &ECN{Min: -1}})},
		{"port b: to: ecn: prob: 1.5", toB(Line{ECN: &ECN{Prob: 1.5}})},
		{"port b: to: trim: after: -1", toB(Line{Trim: &Trim{After: -1}})},
		{"port b: to: trim: after_rtx: -1", toB(Line{Trim: &Trim{AfterRTX: -1}})},
		{"port b: to: trim: keep: 27", toB(Line{Trim: &Trim{Keep: 27}})},
		{"port b: to: mtu: 67", toB(Line{MTU: 67})},
		{"spine.1: mtu: -1", func(c *Config) { c.Spines = []Line{{}, {MTU: -1}} }},
		{"classes: control: 64 is no DSCP", func(c *Config) { c.Classes = Classes{1, 2, 3, 4, 64} }},
		{"classes: trimmable and trimmed are both 1", func(c *Config) { c.Classes = Classes{1, 2, 1, 4, 5} }},
		{"port a: from: 257 rules", ruleA(make([]Rule, 257)...)},
		{"port a: from: rule x: does nothing", ruleA(Rule{Name: "x"})},
		{"port a: from: rule loss: loss: -0.1", ruleA(Rule{Loss: -0.1})},
		{"port a: from: rule loss: loss: NaN", ruleA(Rule{Loss: math.NaN()})},
		{"port a: from: rule x: loss: 2 is no share", ruleA(Rule{Name: "x", Loss: 2})},
		{"port a: from: rule burst: burst: enter: 0", ruleA(Rule{Burst: &Burst{Leave: 1}})},
		{"port a: from: rule burst: burst: leave: 0", ruleA(Rule{Burst: &Burst{Enter: 1}})},
		{"port a: from: rule burst: burst: loss: 7", ruleA(Rule{Burst: &Burst{Enter: 1, Leave: 1, Loss: 7}})},
		{"port a: from: rule first: first: -1", ruleA(Rule{First: -1})},
		{"port a: from: rule delay: delay: -1ns", ruleA(Rule{Delay: -1})},
		{"port a: from: rule loss: late: needs delay", ruleA(Rule{Loss: 1, Late: 0.5})},
		{"port a: from: rule reorder: reorder_by: -1", ruleA(Rule{Reorder: 1, ReorderBy: -1})},
		{"port a: from: rule loss: reorder_by, reorder_hold: need", ruleA(Rule{Loss: 1, ReorderBy: 1})},
		{"port a: from: rule duplicate: copies: 65", ruleA(Rule{Duplicate: 1, Copies: 65})},
		{"port a: from: rule loss: copies, duplicate_late: need", ruleA(Rule{Loss: 1, DuplicateLate: 1})},
		{"port a: from: rule corrupt: corrupt_bits: 65", ruleA(Rule{Corrupt: 1, CorruptBits: 65})},
		{"port a: from: rule loss: corrupt_bits: needs", ruleA(Rule{Loss: 1, CorruptBits: 1})},
		{"port a: from: rule ce: ce: 3", ruleA(Rule{CE: 3})},
		{"port a: from: rule trim: trim: 3", ruleA(Rule{Trim: 3})},
		{"port a: from: rule replay: replay: rate: 0", ruleA(Rule{Replay: &Replay{}})},
		{"port a: from: rule replay: replay: rate: +Inf", ruleA(Rule{Replay: &Replay{Rate: math.Inf(1)}})},
		{"port a: from: rule replay: replay: keep: -1", ruleA(Rule{Replay: &Replay{Rate: 1, Keep: -1}})},
		{"port a: from: rule replay: replay: after: -1ns", ruleA(Rule{Replay: &Replay{Rate: 1, After: -1}})},
		{`port a: from: rule loss: match: kind: "date"`, ruleA(Rule{Loss: 1, Match: Match{Kind: "date"}})},
		{`port a: from: rule loss: match: flag: "eom"`, ruleA(Rule{Loss: 1, Match: Match{Flag: "eom"}})},
		{`port a: from: rule loss: match: flag: retx is seen`, ruleA(Rule{Loss: 1, Match: Match{Flag: "retx", Kind: "ack"}})},
		{`port a: from: rule loss: match: eom: is seen`, ruleA(Rule{Loss: 1, Match: Match{EOM: true, Kind: "!data"}})},
		{`port a: from: rule loss: match: min_len: -1`, ruleA(Rule{Loss: 1, Match: Match{MinLen: -1}})},
		{`port a: from: rule loss: match: src and dst`, ruleA(Rule{Loss: 1, Match: Match{Src: p("::/0"), Dst: p("0.0.0.0/0")}})},
	} {
		cfg := twoPorts(c.mod)
		_, err := New(cfg)
		if err == nil || !strings.HasPrefix(err.Error(), "fabric: "+c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\n\twant %s", err, c.want)
		}
	}
}

func TestEventRefused(t *testing.T) {
	on := []string{"a"}
	for _, c := range []struct {
		want string
		e    Event
	}{
		{"at: -1ns", Event{At: -1, On: on, Down: true}},
		{"for: -1ns", Event{For: -1, On: on, Down: true}},
		{"every: -1ns", Event{Every: -1, On: on, Down: true}},
		{"times: -1", Event{Times: -1, On: on, Down: true}},
		{"times: 2 needs every", Event{Times: 2, On: on, Down: true}},
		{"every: 1s needs for", Event{Every: Duration(time.Second), On: on, Down: true}},
		{"for: 1s must be shorter", Event{Every: Duration(time.Second), For: Duration(time.Second), On: on, Down: true}},
		{"every: 2ns is shorter", Event{Every: 2, For: 1, On: on, Down: true}},
		{"at, for and every", Event{At: maxTime + 1, On: on, Down: true}},
		{"on: names no line", Event{Down: true}},
		{`on: no line "c": there are PORT, PORT.from, PORT.to for each port, spine.0 to spine.1, and *`, Event{On: []string{"c"}, Down: true}},
		{`on: "a.to" names a.to again`, Event{On: []string{"a", "a.to"}, Down: true}},
		{"nothing to do", Event{On: on}},
		{"set: rules are added by rule", Event{On: on, Set: &Line{Rules: make([]Rule, 1)}}},
		{"set: rate: -1bit/s", Event{On: on, Set: &Line{Rate: -1}}},
		{"rule x: does nothing", Event{On: on, Rule: &Rule{Name: "x"}}},
		{`clear: no rule "x"`, Event{On: on, Clear: "x"}},
	} {
		r := newRig(t, spines(2))
		if err := r.s.Apply(0, c.e); err == nil || !strings.HasPrefix(err.Error(), "fabric: event: "+c.want) {
			t.Errorf("%v\n\twant %s", err, c.want)
		}
		if r.s.timed != 0 {
			t.Errorf("%s: %d events left", c.want, r.s.timed)
		}
		if c.e.Clear != "" {
			continue // in a Config the line may exist by then
		}
		cfg := twoPorts(spines(2), events(Event{On: on, Down: true}, c.e))
		if _, err := New(cfg); err == nil || !strings.HasPrefix(err.Error(), "fabric: event 2: "+c.want) {
			t.Errorf("%v\n\twant %s", err, c.want)
		}
	}
}

// A Config may refer to the same memory twice, and may be changed after New.
func TestConfigIsCopied(t *testing.T) {
	l := Line{Rate: byteUS, ECN: &ECN{Max: 1000}, Rules: []Rule{{Drop: []uint64{0}, Burst: &Burst{Enter: 1, Leave: 1}}}}
	cfg := twoPorts(toB(l))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.ECN.Max, l.Rules[0].Drop[0], l.Rules[0].Burst.Enter, l.Rules[0].Name = 5, 7, 0, "y"
	b := s.lines[3]
	if b.eff.ECN.Max != 1000 || b.rules[0].drop[0] != 0 || b.rules[0].Burst.Enter != 1 || b.rules[0].Name != "burst" {
		t.Errorf("%+v %+v", b.eff, b.rules[0].Rule)
	}
}
