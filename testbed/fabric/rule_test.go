package fabric

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
	"github.com/uetkit/uetkit/transport/wire"
)

// stream sends a packet n times, 100 µs apart, and waits until all arrive.
func (r *rig) stream(n int, k pkt) {
	r.t.Helper()
	ip := k.bytes()
	for range n {
		r.send(ip)
		r.now += 100 * us
		r.collect()
	}
	r.run(time.Minute)
}

// Random rules affect their shares, counted over many packets.
func TestRuleShares(t *testing.T) {
	const n = 20000
	for _, c := range []struct {
		name string
		rule Rule
		why  Why
		want float64
	}{
		{"loss", Rule{Loss: 0.01}, LostRandom, 0.01},
		{"loss of all", Rule{Loss: 1}, LostRandom, 1},
		{"burst", Rule{Burst: &Burst{Enter: 0.25, Leave: 0.75}}, LostBurst, 0.25},
		{"weak burst", Rule{Burst: &Burst{Enter: 0.5, Leave: 0.5, Loss: 0.2}}, LostBurst, 0.1},
		{"late", Rule{Delay: Duration(ms), Late: 0.3}, Delayed, 0.3},
		{"delay", Rule{Delay: Duration(ms)}, Delayed, 1},
		{"reorder", Rule{Reorder: 0.1}, Reordered, 0.1},
		{"duplicate", Rule{Duplicate: 0.1}, Duplicated, 0.1},
		{"copies", Rule{Duplicate: 0.1, Copies: 3}, Duplicated, 0.3},
		{"corrupt", Rule{Corrupt: 0.05}, Corrupted, 0.05},
		{"ce", Rule{CE: 0.2}, Marked, 0.2},
		{"trim", Rule{Trim: 0.2}, Trimmed, 0.2},
		{"blackhole", Rule{Blackhole: true}, LostBlackhole, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Name = "it"
			r := newRig(t, ruleA(c.rule))
			r.stream(n, pkt{ecn: 2, dscp: DefaultClasses.Trimmable, payload: 20})
			got := r.whys()[c.why]
			if c.want == 1 {
				if got != n {
					t.Errorf("%d of %d", got, n)
				}
			} else {
				m := float64(max(c.rule.Copies, 1))
				within(t, c.name, []int{got / int(m)}, c.want*n/m)
			}
			lost := 0
			if c.why.Lost() {
				lost = got
			}
			for _, d := range r.log {
				if d.Why == c.why && (d.Rule != "it" || d.Line != "a.from") {
					t.Fatalf("%+v", d)
				}
				if d.Why != c.why && d.Why != Passed {
					t.Fatalf("%+v", d)
				}
			}
			copies := 0
			if c.why == Duplicated {
				copies = got
			}
			if len(r.out) != n-lost+copies {
				t.Errorf("%d of %d left, %d were lost, %d copied", len(r.out), n, lost, copies)
			}
		})
	}
}

func TestDropExact(t *testing.T) {
	// The numbers of Drop count matching packets.
	r := newRig(t, ruleA(Rule{Name: "x", Drop: []uint64{7, 0, 3, 3}, Match: Match{SrcPort: 9}}))
	for i := range 20 {
		k := pkt{psn: uint32(i), sport: 8}
		if i%2 == 1 {
			k.sport = 9 // packet 1 is number 0, 3 is 1, …
		}
		r.send(k.bytes())
	}
	r.run(0)
	want := []uint32{0, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19}
	if got := r.psns(); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
}

func TestFirst(t *testing.T) {
	r := newRig(t, ruleA(Rule{First: 2}))
	send := func(psn int, pdc, sport uint16, flags wire.Flags, off uint16) {
		r.send(pkt{psn: uint32(psn), pdc: pdc, sport: sport, flags: flags, off: off}.bytes())
	}
	send(0, 1, 5000, wire.FlagSYN, 0) // lost
	send(1, 1, 5001, wire.FlagSYN, 1) // another source: lost
	send(2, 1, 5000, wire.FlagSYN, 2) // lost: the second of Start_PSN 0
	send(3, 1, 5000, wire.FlagSYN, 3)
	send(4, 2, 5000, 0, 0)              // another PDC: lost
	send(50, 1, 5000, wire.FlagSYN, 10) // Start_PSN 40: the id is in use again: lost
	send(51, 1, 5000, wire.FlagSYN, 11) // lost
	send(52, 1, 5000, wire.FlagSYN, 12)
	send(53, 1, 5000, 0, 0)
	r.s.Receive(r.now, 0, udpPacket(netip.AddrPortFrom(hostA[0], 7), netip.AddrPortFrom(hostB[0], 7), 0, []byte("no UET at all, so no PDC: it passes"), false))
	r.run(0)
	if w := r.whys(); w[LostExact] != 6 || w[Passed] != 4 {
		t.Errorf("%v", w)
	}
	if got := r.psns()[:3]; !slices.Equal(got, []uint32{3, 52, 53}) {
		t.Errorf("left %v", got)
	}
}

// A rule that knows too many PDCs forgets the oldest and no other.
func TestFirstBound(t *testing.T) {
	var f firsts
	p := &packet{}
	see := func(i int) int {
		p.src, p.pdc = netip.AddrPortFrom(hostA[0], uint16(i>>10)), uint16(i&1023)
		return f.count(p)
	}
	for i := range maxFirsts + 1 {
		see(i)
	}
	if len(f.index) != maxFirsts || len(f.seen) != maxFirsts {
		t.Errorf("%d directions are kept", len(f.index))
	}
	if n := see(1); n != 2 {
		t.Errorf("count %d of one that is known, want 2", n)
	}
	if n := see(0); n != 1 {
		t.Errorf("count %d of the one that is forgotten, want 1", n)
	}
}

func TestReorderPlaces(t *testing.T) {
	for by, want := range map[int][]uint32{
		0: {0, 2, 1, 3, 4, 5},
		1: {0, 2, 1, 3, 4, 5},
		3: {0, 2, 3, 4, 1, 5},
		5: {0, 2, 3, 4, 5, 1}, // only four pass, so its time releases it
	} {
		// The share 1 holds back the one packet that matches; later ones match another rule or
		// none.
		r := newRig(t, ruleA(Rule{Name: "hold", Reorder: 1, ReorderBy: by, Match: Match{}}))
		rule := r.s.lines[0].rules[0]
		for i := range 6 {
			rule.bad.Reorder = 0
			if i == 1 {
				rule.bad.Reorder = 1
			}
			r.send(pkt{psn: uint32(i)}.bytes())
		}
		r.run(time.Second)
		if got := r.psns(); !slices.Equal(got, want) {
			t.Errorf("by %d: %v, want %v", by, got, want)
		}
		for _, o := range r.out {
			if late := o.psn() == 1 && by == 5; late != (o.at == badnet.DefaultHold) {
				t.Errorf("by %d: %d left at %v", by, o.psn(), o.at)
			}
		}
	}
}

// If all packets are held back, their times release them in order.
func TestReorderHold(t *testing.T) {
	r := newRig(t, ruleA(Rule{Reorder: 1, ReorderBy: 2, ReorderHold: Duration(3 * ms)}))
	for i := range 3 {
		r.send(pkt{psn: uint32(i)}.bytes())
		r.run(ms)
	}
	r.run(time.Second)
	for i, o := range r.out {
		if want := time.Duration(i+3) * ms; o.psn() != uint32(i) || o.at != want {
			t.Errorf("%d left at %v, want %d at %v", o.psn(), o.at, i, want)
		}
	}
	if len(r.out) != 3 {
		t.Errorf("%d left", len(r.out))
	}
}

// The time of a packet that was released early does not apply to the next one that is held
// back in the same memory.
func TestReorderHoldIsItsOwn(t *testing.T) {
	r := newRig(t, ruleA(Rule{Reorder: 1}))
	rule := r.s.lines[0].rules[0]
	for i, share := range []float64{1, 0, 1} { // held back; passes and releases it; held back at 10 ms
		rule.bad.Reorder = share
		r.send(pkt{psn: uint32(i)}.bytes())
		r.run(5 * ms)
	}
	r.run(time.Second)
	if o := r.out[2]; o.psn() != 2 || o.at != 10*ms+badnet.DefaultHold {
		t.Errorf("%d left at %v, want 2 at 30ms", o.psn(), o.at)
	}
}

func TestReorderBound(t *testing.T) {
	r := newRig(t, ruleA(Rule{Reorder: 1, ReorderBy: maxReordered}))
	for i := range maxReordered + 10 {
		r.send(pkt{psn: uint32(i)}.bytes())
	}
	r.collect()
	if len(r.out) != 10 || r.out[0].psn() != maxReordered {
		t.Errorf("%d passed", len(r.out))
	}
	r.run(time.Second)
	if len(r.out) != maxReordered+10 {
		t.Errorf("%d of %d left", len(r.out), maxReordered+10)
	}
}

func TestDelayRule(t *testing.T) {
	// When its time has come, a delayed packet goes through the rules behind.
	r := newRig(t, ruleA(Rule{Delay: Duration(5 * ms), Match: Match{DstPort: 7}}, Rule{Drop: []uint64{2}}))
	r.send(pkt{psn: 0, dport: 7}.bytes()) // number 2 of the second rule: behind 1 and 2
	r.send(pkt{psn: 1}.bytes())
	r.send(pkt{psn: 2}.bytes())
	r.send(pkt{psn: 3, dport: 7}.bytes())
	r.run(time.Second)
	if got := r.psns(); !slices.Equal(got, []uint32{1, 2, 3}) || r.out[2].at != 5*ms {
		t.Errorf("%v, the last at %v", got, r.out[2].at)
	}
}

func TestDuplicate(t *testing.T) {
	r := newRig(t, ruleA(Rule{Duplicate: 1, Copies: 2}))
	in := []pkt{{psn: 0}, {psn: 1, payload: 1000}}
	for _, k := range in {
		r.send(k.bytes())
	}
	r.run(0)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 0, 0, 1, 1, 1}) {
		t.Errorf("left %v", got)
	}
	for i, o := range r.out {
		if !bytes.Equal(o.ip, in[i/3].bytes()) {
			t.Errorf("copy %d differs", i)
		}
	}
	for _, d := range r.log {
		if d.ID != uint64(d.PSN+1) {
			t.Errorf("a copy has an id of its own: %+v", d)
		}
	}
}

func TestDuplicateLate(t *testing.T) {
	r := newRig(t, ruleA(Rule{Duplicate: 1, DuplicateLate: Duration(10 * ms)}))
	const n = 5000
	for range n {
		r.send(pkt{}.bytes())
	}
	r.run(time.Second)
	var buckets [10]int
	for _, o := range r.out {
		if o.at > 0 {
			buckets[o.at/ms]++
		}
	}
	within(t, "lateness", buckets[:], n/10)
}

// Several rules that duplicate do not make packets without end.
func TestDuplicateDepth(t *testing.T) {
	r := newRig(t, ruleA(slices.Repeat([]Rule{{Duplicate: 1}}, 10)...))
	r.send(pkt{}.bytes())
	r.run(0)
	if got, want := len(r.out), 1+10+45+120; got != want { // copies of depth 0 to 3: 10 over d
		t.Errorf("%d copies, want %d", got, want)
	}
}

func TestCorrupt(t *testing.T) {
	for _, c := range []struct {
		name string
		k    pkt
		rule Rule
		bits int
	}{
		{"one bit", pkt{payload: 100}, Rule{Corrupt: 1}, 1},
		{"many bits", pkt{payload: 100}, Rule{Corrupt: 1, CorruptBits: 64}, 64},
		{"v6", pkt{payload: 101, v6: true}, Rule{Corrupt: 1, CorruptBits: 3}, 3},
		{"no checksum", pkt{payload: 100, noSum: true}, Rule{Corrupt: 1, CorruptBits: 3}, 3},
	} {
		in := c.k.bytes()
		r := newRig(t, ruleA(c.rule))
		where := map[int]int{}
		const n = 500
		for range n {
			r.send(in)
		}
		r.run(0)
		for _, o := range r.out {
			if err := deliverable(o.ip); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			diff, sum := 0, ipv4Len+6
			if c.k.v6 {
				sum = ipv6Len + 6
			}
			for i := range in {
				d := bits.OnesCount8(in[i] ^ o.ip[i])
				if i < sum+2 && i != sum && i != sum+1 && d > 0 {
					t.Fatalf("%s: byte %d of the headers changed", c.name, i)
				}
				if i >= sum+2 {
					diff += d
					if d > 0 {
						where[i]++
					}
				}
			}
			if diff != c.bits {
				t.Fatalf("%s: %d bits differ, want %d", c.name, diff, c.bits)
			}
			if c.k.noSum && (o.ip[sum] != 0 || o.ip[sum+1] != 0) {
				t.Fatalf("%s: it has one now", c.name)
			}
		}
		if len(where) < 50 {
			t.Errorf("%s: only bytes %v are hit", c.name, where)
		}
	}
	// There is nothing to corrupt.
	r := newRig(t, ruleA(Rule{Corrupt: 1, CorruptBits: 64}))
	r.send(udpPacket(netip.AddrPortFrom(hostA[0], 7), netip.AddrPortFrom(hostB[0], 7), 0, nil, false))
	r.send(udpPacket(netip.AddrPortFrom(hostA[0], 7), netip.AddrPortFrom(hostB[0], 7), 0, []byte("x"), false))
	r.run(0)
	if w := r.whys(); w[Corrupted] != 1 || r.out[1].ip[ipv4Len+udpLen] != 'x'^0xff {
		t.Errorf("%v, %x", w, r.out[1].ip)
	}
	if err := deliverable(r.out[1].ip); err != nil {
		t.Error(err)
	}
}

func TestMatch(t *testing.T) {
	data := pkt{payload: 500, sport: 1000, dport: 2000, flags: wire.FlagRETX}
	syn := pkt{flags: wire.FlagSYN | wire.FlagAR, noEOM: true}
	ack := pkt{raw: (&wire.Ack{Type: wire.TypeAckCC, SPDCID: 1, Flags: wire.AckFlagRETX}).Append(nil)}
	ctl := pkt{raw: wire.CP{Ctl: wire.CtlProbe, Flags: wire.FlagAR}.Append(nil)}
	nack := pkt{raw: wire.Nack{Type: wire.TypeNack, Code: wire.NackTrimmed}.Append(nil)}
	sealed := pkt{raw: append(wire.TSS{}.Append(nil), make([]byte, 50)...)}
	other := pkt{raw: []byte("hello, world, no UET")}
	v6 := pkt{payload: 500, v6: true}
	all := []pkt{data, syn, ack, ctl, nack, sealed, other, v6}
	p := netip.MustParsePrefix
	for _, c := range []struct {
		m    Match
		want string // a letter for each decision about the matching packets
	}{
		{Match{}, "dsacnSov"},
		{Match{Kind: "data"}, "dsv"}, {Match{Kind: "!data"}, "acnSo"}, {Match{Kind: "ack"}, "a"}, {Match{Kind: "nack"}, "n"},
		{Match{Kind: "control"}, "c"}, {Match{Kind: "sealed"}, "S"}, {Match{Kind: "other"}, "o"}, {Match{Kind: "!other"}, "dsacnSv"},
		{Match{Flag: "syn"}, "s"}, {Match{Flag: "!syn"}, "dacnSov"}, {Match{Flag: "retx"}, "d"}, {Match{Flag: "ar"}, "sc"},
		{Match{Kind: "data", Flag: "!retx"}, "sv"},
		{Match{SrcPort: 1000}, "d"}, {Match{DstPort: 2000}, "d"}, {Match{SrcPort: 2000}, ""},
		{Match{Src: p("198.18.16.0/24")}, "dsacnSo"}, {Match{Src: p("198.18.17.0/24")}, ""}, {Match{Dst: p("198.18.17.2/32")}, "dsacnSo"},
		{Match{Dst: p("2001:db8::/32")}, "v"},
		{Match{EOM: true}, "dv"}, {Match{MinLen: 500}, "dv"}, {Match{MinLen: len(data.bytes())}, "dv"}, {Match{MinLen: len(data.bytes()) + 1}, "v"},
	} {
		r := newRig(t, ruleA(Rule{Blackhole: true, Match: c.m}))
		got := ""
		for i, k := range all {
			n := r.whys()[LostBlackhole]
			r.send(k.bytes())
			if r.whys()[LostBlackhole] > n {
				got += "dsacnSov"[i : i+1]
			}
		}
		if got != c.want {
			t.Errorf("%+v matches %q, want %q", c.m, got, c.want)
		}
	}
}

// Rules apply in order, each to what the earlier ones let through.
func TestRuleOrder(t *testing.T) {
	r := newRig(t, ruleA(Rule{Name: "one", Drop: []uint64{1}}, Rule{Name: "two", Drop: []uint64{1}}))
	for i := range 4 {
		r.send(pkt{psn: uint32(i)}.bytes())
	}
	r.run(0)
	if got := r.psns(); !slices.Equal(got, []uint32{0, 3}) {
		t.Errorf("left %v", got)
	}
	// Later rules see that a packet was trimmed or marked.
	r = newRig(t, ruleA(Rule{Trim: 1}, Rule{Blackhole: true, Match: Match{MinLen: 85}}))
	r.send(pkt{payload: 500, dscp: DefaultClasses.Trimmable}.bytes())
	r.send(pkt{payload: 500}.bytes())
	r.run(0)
	if w := r.whys(); w[Trimmed] != 1 || w[LostBlackhole] != 1 || w[Passed] != 1 {
		t.Errorf("%v", w)
	}
}

// decisions returns the decisions of one rule by packet.
func decisions(t *testing.T, rule string, mod ...func(*Config)) []uint64 {
	r := newRig(t, mod...)
	for i := range 2000 {
		r.send(pkt{psn: uint32(i), ecn: 2, payload: 50}.bytes())
		r.run(ms)
	}
	r.run(time.Minute)
	var out []uint64
	for _, d := range r.log {
		if d.Rule == rule {
			out = append(out, d.ID<<8|uint64(d.Why))
		}
	}
	return out
}

// One seed gives the same decisions, another seed others. A rule draws from its own stream,
// whatever other rules exist.
func TestStreams(t *testing.T) {
	loss := Rule{Name: "loss", Loss: 0.1}
	mark, corrupt := Rule{Name: "mark", CE: 0.3}, Rule{Name: "corrupt", Corrupt: 0.2}
	want := decisions(t, "loss", ruleA(loss))
	if len(want) < 100 {
		t.Fatalf("%d packets lost", len(want))
	}
	for name, mod := range map[string]func(*Config){
		"again":        ruleA(loss),
		"others":       ruleA(mark, corrupt, loss, Rule{Duplicate: 0.5, Name: "dup"}),
		"one more":     func(c *Config) { c.Ports[0].From.Rules = []Rule{loss}; c.Ports[1].From.Rules = []Rule{loss} },
		"queue beside": func(c *Config) { c.Ports[0].From = Line{Rules: []Rule{loss}, Jitter: Duration(ms), Rate: 1e6} },
		"another port": func(c *Config) {
			c.Ports[0].From.Rules = []Rule{loss}
			c.Ports = append(c.Ports, Port{Name: "c", Addrs: []netip.Prefix{netip.MustParsePrefix("198.18.18.0/24")}})
		},
	} {
		if got := decisions(t, "loss", mod); !slices.Equal(got, want) {
			t.Errorf("%s: other decisions", name)
		}
	}
	for name, mod := range map[string]func(*Config){
		"seed": func(c *Config) { c.Seed = 2; c.Ports[0].From.Rules = []Rule{loss} },
		"line": func(c *Config) { c.Ports[1].To.Rules = []Rule{loss} },
	} {
		if got := decisions(t, "loss", mod); slices.Equal(got, want) {
			t.Errorf("another %s makes the same decisions", name)
		}
	}
	// Two rules with one name have different streams.
	if got := decisions(t, "loss", ruleA(loss, loss)); slices.Equal(got[:len(got)/2], want[:len(got)/2]) {
		t.Error("the second rule of the name changed nothing")
	}
}

func TestReplay(t *testing.T) {
	r := newRig(t, ruleA(Rule{Name: "adversary", Replay: &Replay{Rate: 100, After: Duration(time.Second), Keep: 10}, Match: Match{Kind: "data"}}, Rule{Blackhole: true, Match: Match{SrcPort: 7}}))
	in := map[uint32][]byte{}
	for i := range 20 {
		k := pkt{psn: uint32(i)}
		in[k.psn] = k.bytes()
		r.send(in[k.psn])
		r.run(10 * ms)
	}
	r.send(pkt{raw: wire.CP{Ctl: wire.CtlProbe}.Append(nil)}.bytes()) // is not recorded
	r.run(10 * ms)
	sent := len(r.out)
	r.run(10 * time.Second)
	again := r.out[sent:]
	// The first packet is old enough at 1 s. From then on 100 a second are sent.
	if n := len(again); n < 900 || n > 930 {
		t.Errorf("%d replays in 10 s, want about 920", n)
	}
	count := map[uint32]int{}
	for _, o := range again {
		if o.at < time.Duration(o.psn())*10*ms+time.Second {
			t.Errorf("%d sent again at %v, too young", o.psn(), o.at)
		}
		if !bytes.Equal(o.ip, in[o.psn()]) {
			t.Errorf("%d was changed", o.psn())
		}
		count[o.psn()]++
	}
	if len(count) != 10 {
		t.Errorf("%d packets were kept, want 10: %v", len(count), count)
	}
	if w := r.whys(); w[Replayed] != len(again) {
		t.Errorf("%v", w)
	}
	// A full tape replaces packets that are old enough by new ones.
	r.run(time.Second)
	r.out = nil
	for i := range 100 {
		r.send(pkt{psn: uint32(1000 + i)}.bytes())
	}
	r.run(10 * time.Second)
	young := 0
	for _, o := range r.out[100:] {
		if o.psn() >= 1000 {
			young++
		}
	}
	if young == 0 {
		t.Error("nothing new was recorded")
	}
}

// When a rule goes, the memory of its tape is freed.
func TestReplayGone(t *testing.T) {
	r := newRig(t, ruleA(Rule{Name: "adversary", Replay: &Replay{Rate: 100}}))
	for i := range 10 {
		r.send(pkt{psn: uint32(i)}.bytes())
	}
	r.run(time.Second)
	if r.s.pool.taped == 0 {
		t.Fatal("nothing recorded")
	}
	if err := r.s.Apply(r.now, Event{On: []string{"a.from"}, Clear: "adversary"}); err != nil {
		t.Fatal(err)
	}
	n := len(r.out)
	r.run(time.Second)
	if len(r.out) != n {
		t.Errorf("%d replays after it was cleared", len(r.out)-n)
	}
	r.s.NextTimeout()
	if r.s.pool.used != 0 || r.s.pool.taped != 0 {
		t.Errorf("%d bytes in use, %d on tapes", r.s.pool.used, r.s.pool.taped)
	}
	if at, ok := r.s.NextTimeout(); ok {
		t.Errorf("something is due at %v", at)
	}
}

func TestMarkRule(t *testing.T) {
	r := newRig(t, ruleA(Rule{CE: 1}))
	for ecn := range uint8(4) {
		r.send(pkt{ecn: ecn, dscp: 63}.bytes())
	}
	r.run(0)
	for i, want := range []byte{0, 3, 3, 3} {
		if got := r.out[i].ip[1]; got != 63<<2|want || deliverable(r.out[i].ip) != nil {
			t.Errorf("ECN %d: TOS %#x, %v", i, got, deliverable(r.out[i].ip))
		}
	}
	if r.whys()[Marked] != 2 {
		t.Errorf("%v", r.whys())
	}
}

// A wrong header checksum stays wrong: marking must not repair what a line broke.
func TestMarkKeepsWrongSum(t *testing.T) {
	r := newRig(t, ruleA(Rule{CE: 1}))
	ip := pkt{ecn: 1}.bytes()
	binary.BigEndian.PutUint16(ip[10:], binary.BigEndian.Uint16(ip[10:])^0x0100)
	r.send(ip)
	r.run(0)
	if deliverable(r.out[0].ip) == nil {
		t.Error("the checksum is right now")
	}
}
