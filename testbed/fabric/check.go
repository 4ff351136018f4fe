package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// Bounds of a Config. They are far beyond sensible values; they keep sums from overflowing
// and memory limited.
const (
	maxPorts       = 1024
	maxSpines      = 256
	maxRate        = Rate(10e12)
	maxTime        = Duration(100 * time.Hour)
	maxDrops       = 1 << 20
	maxCopies      = 64
	maxCorruptBits = 64
	maxReplays     = 1e6 // per second
	minReplays     = 1e-4
	maxTape        = 1 << 16
	minMTU         = 68 // what any IPv4 link carries
	minKeep        = 28
	minEvery       = 10 * time.Microsecond
)

func spineName(i int) string  { return fmt.Sprintf("spine.%d", i) }
func eventPlace(i int) string { return fmt.Sprintf("event %d", i+1) }

// check returns an error for the first contradiction and its place.
func (c *Config) check() error {
	switch {
	case len(c.Ports) == 0:
		return errors.New("no ports")
	case len(c.Ports) > maxPorts:
		return fmt.Errorf("%d ports: %d at most", len(c.Ports), maxPorts)
	case len(c.Spines) > maxSpines:
		return fmt.Errorf("%d spines: %d at most", len(c.Spines), maxSpines)
	case len(c.Events) > maxTimed:
		return fmt.Errorf("%d events: %d at most", len(c.Events), maxTimed)
	}
	names := map[string]bool{}
	owner := map[netip.Prefix]string{}
	for i := range c.Ports {
		p := &c.Ports[i]
		switch {
		case p.Name == "":
			return fmt.Errorf("port %d: no name", i+1)
		case p.Name == "spine" || strings.ContainsAny(p.Name, ".* \t\n\"/"):
			return fmt.Errorf("port %q: a name may not be \"spine\" nor have any of . * / \" and blanks", p.Name)
		case names[p.Name]:
			return fmt.Errorf("port %s: there are two of that name", p.Name)
		case len(p.Addrs) == 0:
			return fmt.Errorf("port %s: addrs: none: nothing can be sent there", p.Name)
		}
		names[p.Name] = true
		for _, a := range p.Addrs {
			if !a.IsValid() || a.Addr().Is4In6() {
				return fmt.Errorf("port %s: addrs: %v is no prefix such as 198.18.16.0/24", p.Name, a)
			}
			a = a.Masked()
			if o, ok := owner[a]; ok {
				return fmt.Errorf("port %s: addrs: %v is behind port %s too", p.Name, a, o)
			}
			owner[a] = p.Name
		}
		if err := p.From.check(); err != nil {
			return fmt.Errorf("port %s: from: %w", p.Name, err)
		}
		if err := p.To.check(); err != nil {
			return fmt.Errorf("port %s: to: %w", p.Name, err)
		}
	}
	for i := range c.Spines {
		if err := c.Spines[i].check(); err != nil {
			return fmt.Errorf("%s: %w", spineName(i), err)
		}
	}
	if err := c.Classes.check(); err != nil {
		return fmt.Errorf("classes: %w", err)
	}
	return nil // Events are checked when their lines are looked up
}

func (c Classes) orDefault() Classes {
	if c == (Classes{}) {
		return DefaultClasses
	}
	return c
}

// high reports whether a code point belongs to the high class.
func (c *Classes) high(dscp uint8) bool {
	return dscp == c.Control || dscp == c.Trimmed || dscp == c.TrimmedLastHop
}

func (c *Classes) trimmable(dscp uint8) bool { return dscp == c.Trimmable || dscp == c.TrimmableRTX }

func (c Classes) check() error {
	c = c.orDefault()
	type entry struct {
		name string
		v    uint8
	}
	all := []entry{
		{"trimmable", c.Trimmable}, {"trimmable_rtx", c.TrimmableRTX}, {"trimmed", c.Trimmed},
		{"trimmed_last_hop", c.TrimmedLastHop}, {"control", c.Control},
	}
	for i, e := range all {
		if e.v > 63 {
			return fmt.Errorf("%s: %d is no DSCP: 0 to 63", e.name, e.v)
		}
		for _, o := range all[:i] {
			if o.v == e.v {
				return fmt.Errorf("%s and %s are both %d", o.name, e.name, e.v)
			}
		}
	}
	return nil
}

func duration(name string, d Duration) error {
	if d < 0 || d > maxTime {
		return fmt.Errorf("%s: %v: give 0s to %v", name, d, maxTime)
	}
	return nil
}

func size(name string, n Bytes) error {
	if n < 0 || n > maxInside {
		return fmt.Errorf("%s: %v: give 0 to %v", name, n, Bytes(maxInside))
	}
	return nil
}

func (l *Line) check() error {
	if l.Rate < 0 || l.Rate > maxRate {
		return fmt.Errorf("rate: %v: give 1bit/s to %v, or 0 for no limit", l.Rate, maxRate)
	}
	if err := cmp.Or(duration("delay", l.Delay), duration("jitter", l.Jitter), size("queue", l.Queue), size("queue_high", l.QueueHigh), size("small", l.Small)); err != nil {
		return err
	}
	if e := l.ECN; e != nil {
		if err := cmp.Or(size("ecn: min", e.Min), size("ecn: max", e.Max), badnet.Share("ecn: prob", e.Prob)); err != nil {
			return err
		}
		if e.Min > e.Max {
			return fmt.Errorf("ecn: min: %v is more than max, %v", e.Min, e.Max)
		}
	}
	if t := l.Trim; t != nil {
		if err := cmp.Or(size("trim: after", t.After), size("trim: after_rtx", t.AfterRTX)); err != nil {
			return err
		}
		if t.Keep != 0 && (t.Keep < minKeep || t.Keep > maxIP) {
			return fmt.Errorf("trim: keep: %d: give %d bytes or more, or 0 for the headers", t.Keep, minKeep)
		}
	}
	if l.MTU != 0 && (l.MTU < minMTU || l.MTU > maxIP) {
		return fmt.Errorf("mtu: %d: give %d to %d bytes, or 0 for any", l.MTU, minMTU, maxIP)
	}
	if len(l.Rules) > maxRules {
		return fmt.Errorf("%d rules: %d at most", len(l.Rules), maxRules)
	}
	for i := range l.Rules {
		if err := l.Rules[i].check(); err != nil {
			return fmt.Errorf("rule %s: %w", l.Rules[i].name(), err)
		}
	}
	return nil
}

// name returns the Name, or else the first thing that the rule does.
func (r *Rule) name() string {
	if r.Name != "" {
		return r.Name
	}
	for _, e := range r.effects() {
		if e.on {
			return e.name
		}
	}
	return "?"
}

type effect struct {
	name string
	on   bool
}

func (r *Rule) effects() []effect {
	return []effect{
		{"loss", r.Loss != 0}, {"burst", r.Burst != nil}, {"drop", len(r.Drop) > 0}, {"first", r.First != 0}, {"blackhole", r.Blackhole},
		{"delay", r.Delay != 0}, {"reorder", r.Reorder != 0}, {"duplicate", r.Duplicate != 0}, {"corrupt", r.Corrupt != 0},
		{"ce", r.CE != 0}, {"trim", r.Trim != 0}, {"replay", r.Replay != nil},
	}
}

// faults returns the faults of r for the model of a bad network.
func (r *Rule) faults() badnet.Faults {
	f := badnet.Faults{
		Loss: r.Loss, Corrupt: r.Corrupt, CorruptBits: badnet.Count{N: r.CorruptBits}, CE: r.CE, Trim: r.Trim,
		Duplicate: r.Duplicate, Copies: badnet.Count{N: r.Copies}, DuplicateLate: time.Duration(r.DuplicateLate),
		Reorder: r.Reorder, ReorderBy: badnet.Count{N: r.ReorderBy}, ReorderHold: time.Duration(r.ReorderHold),
		Delay: time.Duration(r.Delay), Late: r.Late,
	}
	if r.Burst != nil {
		f.Burst = *r.Burst
	}
	return f
}

func (r *Rule) check() error {
	if !slices.ContainsFunc(r.effects(), func(e effect) bool { return e.on }) {
		return errors.New("does nothing: set loss, burst, drop, first, blackhole, delay, reorder, duplicate, corrupt, ce, trim or replay")
	}
	f := r.faults()
	if err := cmp.Or(
		duration("delay", r.Delay), duration("reorder_hold", r.ReorderHold), duration("duplicate_late", r.DuplicateLate), f.Check(),
	); err != nil {
		return err
	}
	switch {
	case r.Burst != nil && r.Burst.Enter == 0:
		return errors.New("burst: enter: 0: it never begins")
	case len(r.Drop) > maxDrops:
		return fmt.Errorf("drop: %d packets: %d at most", len(r.Drop), maxDrops)
	case r.First < 0:
		return fmt.Errorf("first: %d is negative", r.First)
	case r.Late != 0 && r.Delay == 0:
		return errors.New("late: needs delay")
	case r.ReorderBy < 0 || r.ReorderBy > maxReordered:
		return fmt.Errorf("reorder_by: %d: give 1 to %d", r.ReorderBy, maxReordered)
	case (r.ReorderBy != 0 || r.ReorderHold != 0) && r.Reorder == 0:
		return errors.New("reorder_by, reorder_hold: need reorder, the share that is held")
	case r.Copies < 0 || r.Copies > maxCopies:
		return fmt.Errorf("copies: %d: give 1 to %d", r.Copies, maxCopies)
	case (r.Copies != 0 || r.DuplicateLate != 0) && r.Duplicate == 0:
		return errors.New("copies, duplicate_late: need duplicate, the share that is sent again")
	case r.CorruptBits < 0 || r.CorruptBits > maxCorruptBits:
		return fmt.Errorf("corrupt_bits: %d: give 1 to %d", r.CorruptBits, maxCorruptBits)
	case r.CorruptBits != 0 && r.Corrupt == 0:
		return errors.New("corrupt_bits: needs corrupt, the share that is changed")
	}
	if p := r.Replay; p != nil {
		switch {
		case !(p.Rate >= minReplays && p.Rate <= maxReplays):
			return fmt.Errorf("replay: rate: %v: give %v to %v a second", p.Rate, minReplays, maxReplays)
		case p.Keep < 0 || p.Keep > maxTape:
			return fmt.Errorf("replay: keep: %d: give 1 to %d packets", p.Keep, maxTape)
		}
		if err := duration("replay: after", p.After); err != nil {
			return err
		}
	}
	if err := r.Match.check(); err != nil {
		return fmt.Errorf("match: %w", err)
	}
	return nil
}

func (m *Match) check() error {
	kind, notKind := strings.CutPrefix(m.Kind, "!")
	if m.Kind != "" && !slices.Contains(kindNames[:], kind) {
		return fmt.Errorf("kind: %q: give data, ack, nack, control, sealed or other, or ! and one of them", m.Kind)
	}
	flag, without := strings.CutPrefix(m.Flag, "!")
	if _, ok := flagNames[flag]; m.Flag != "" && !ok {
		return fmt.Errorf("flag: %q: give syn, retx or ar, or ! and one of them", m.Flag)
	}
	switch {
	case m.Flag != "" && !without && kind != "" && !notKind && kind != "data" && kind != "control":
		return fmt.Errorf("flag: %s is seen on data and control alone, not on kind %s", flag, kind)
	case m.EOM && kind != "" && (kind == "data") == notKind:
		return fmt.Errorf("eom: is seen on data alone, not on kind %s", m.Kind)
	case m.MinLen < 0 || m.MinLen > maxIP:
		return fmt.Errorf("min_len: %d: give 0 to %d bytes", m.MinLen, maxIP)
	case m.Src.IsValid() && m.Dst.IsValid() && m.Src.Addr().Is6() != m.Dst.Addr().Is6():
		return fmt.Errorf("src and dst: %v and %v are of two families", m.Src, m.Dst)
	}
	return nil
}
