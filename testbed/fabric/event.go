package fabric

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/badnet"
)

// A timed is an Event and the time at which it happens.
type timed struct {
	Event
	lines []*line
	zero  time.Duration // that At counts from
	done  int           // times that it has happened
}

// A change lists the temporary changes of an event, so that they can be undone.
type change struct {
	lines   []*line
	added   []*rule
	cleared []*rule
}

const (
	// maxTimed is how many events a switch keeps at a time: those that will happen and
	// those that will be undone. Apply refuses more.
	maxTimed = 4096
	// maxRules is the most rules of a line.
	maxRules = 256
)

var errManyEvents = fmt.Errorf("more than %d events at a time", maxTimed)

// newTimed checks e and resolves its lines.
func (s *Switch) newTimed(e *Event) (*timed, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	t := &timed{Event: *e}
	for i, name := range e.On {
		ls := s.byName[name]
		if ls == nil {
			return nil, fmt.Errorf("on: no line %q: there are PORT, PORT.from, PORT.to for each port%s, and *", name, s.spineHint())
		}
		for _, l := range ls {
			if slices.Contains(t.lines, l) {
				return nil, fmt.Errorf("on: %q names %s again, which is in %q", name, l.name, e.On[:i])
			}
			t.lines = append(t.lines, l)
		}
	}
	// The event's fields are copied: the caller may change its own afterwards.
	if e.Set != nil {
		set := e.Set.clone()
		t.Set = &set
	}
	if e.Rule != nil {
		r := e.Rule.clone()
		t.Rule = &r
	}
	if s.timed >= maxTimed {
		return nil, errManyEvents
	}
	s.timed++
	return t, nil
}

func (s *Switch) spineHint() string {
	switch s.spines {
	case 0:
		return ""
	case 1:
		return ", " + spineName(0)
	}
	return fmt.Sprintf(", %s to %s", spineName(0), spineName(s.spines-1))
}

// Apply carries out an event now, or returns why it cannot. At counts from now, whether or
// not the timeline has started.
func (s *Switch) Apply(now time.Duration, e Event) error {
	s.Advance(now)
	t, err := s.newTimed(&e)
	if err == nil && t.Rule != nil {
		for _, l := range t.lines {
			if len(l.rules) >= maxRules {
				err = fmt.Errorf("%s: more than %d rules", l.name, maxRules)
				s.timed--
				break
			}
		}
	}
	if err == nil && t.Clear != "" && t.At == 0 && !slices.ContainsFunc(t.lines, func(l *line) bool {
		return slices.ContainsFunc(l.rules, func(r *rule) bool { return r.Name == t.Clear })
	}) {
		err = fmt.Errorf("clear: no rule %q on %q", t.Clear, t.On)
		s.timed--
	}
	if err != nil {
		return fmt.Errorf("fabric: event: %w", err)
	}
	t.zero = s.now
	if t.At == 0 {
		s.happen(t)
		return nil
	}
	s.due(s.now+time.Duration(t.At), event{kind: evTimed, do: t})
	return nil
}

// happen carries out an event.
func (s *Switch) happen(t *timed) {
	c := &change{lines: t.lines}
	for _, l := range t.lines {
		if t.Clear != "" {
			s.clear(l, t, c)
		}
		if t.Set != nil || t.Down {
			s.set(l, t, c)
		}
		if t.Rule != nil && len(l.rules) < maxRules {
			c.added = append(c.added, s.addRule(l, t.Rule))
		}
	}
	t.done++
	s.timed--
	if t.For > 0 {
		s.timed++
		s.due(s.now+time.Duration(t.For), event{kind: evUndo, undo: c})
	}
	if t.Every > 0 && (t.Times == 0 || t.done < t.Times) {
		s.timed++
		at := t.zero + time.Duration(t.At) + time.Duration(t.done)*time.Duration(t.Every)
		s.due(at, event{kind: evTimed, do: t})
	}
}

// undo undoes the changes of an event. Changes of later events stay.
func (s *Switch) undo(c *change) {
	s.timed--
	for _, l := range c.lines {
		l.layers = slices.DeleteFunc(l.layers, func(y layer) bool { return y.by == c })
		s.refresh(l)
	}
	for _, r := range c.added {
		s.removeRule(r)
	}
	for _, r := range c.cleared {
		r.off--
	}
}

// refresh applies the present settings to a line, even while a packet is being transmitted.
func (s *Switch) refresh(l *line) {
	old := l.eff.Rate
	l.refresh()
	s.retime(l, old)
	if l.eff.Rate == 0 || l.eff.Down {
		s.pull(l)
	}
}

// set changes the settings of a line. A temporary change adds a layer. A permanent one
// changes the settings below all layers and removes the same fields from the layers.
func (s *Switch) set(l *line, t *timed, c *change) {
	var set Line
	if t.Set != nil {
		set = *t.Set
	}
	down := t.Down || set.Down
	if t.For > 0 {
		l.layers = append(l.layers, layer{by: c, set: set, down: down})
	} else {
		merge(&l.base, &set, &set)
		l.base.Down = l.base.Down || down
		for i := range l.layers {
			merge(&l.layers[i].set, &set, &Line{})
		}
	}
	s.refresh(l)
}

// clear removes rules. For a temporary change it disables them.
func (s *Switch) clear(l *line, t *timed, c *change) {
	for _, r := range slices.Clone(l.rules) {
		if r.Name != t.Clear {
			continue
		}
		if t.For == 0 {
			s.removeRule(r)
			continue
		}
		r.off++
		c.cleared = append(c.cleared, r)
		s.letGo(r)
	}
}

// addRule adds a rule behind the others.
func (s *Switch) addRule(l *line, cfg *Rule) *rule {
	r := &rule{Rule: cfg.clone(), line: l, ord: l.ords, m: newMatch(cfg.Match)}
	if r.Name == "" {
		r.Name = cfg.name()
	}
	r.rng = s.stream(fmt.Sprintf("%s\x00%s\x00%d", l.name, r.Name, l.named[r.Name]))
	r.bad = badnet.Line{Faults: cfg.faults(), Rand: badnet.One(r.rng)}
	l.named[r.Name]++
	l.ords++
	r.drop = slices.Compact(slices.Sorted(slices.Values(cfg.Drop)))
	if cfg.Replay != nil {
		r.tape = newTape(cfg.Replay)
	}
	l.rules = append(l.rules, r)
	return r
}

func (s *Switch) removeRule(r *rule) {
	if r.gone {
		return
	}
	r.gone = true
	l := r.line
	l.rules = slices.DeleteFunc(slices.Clone(l.rules), func(x *rule) bool { return x == r })
	s.letGo(r)
	if r.tape != nil {
		s.wipe(r.tape)
	}
}

// letGo releases the packets that a rule holds back.
func (s *Switch) letGo(r *rule) {
	for p, ok := r.held.Oldest(); ok; p, ok = r.held.Oldest() {
		s.applyRules(r.line, p, r.ord+1)
	}
}

// clone returns a deep copy of a Line without its Rules.
func (l *Line) clone() Line {
	c := *l
	c.ECN, c.Trim, c.Rules = clonePtr(l.ECN), clonePtr(l.Trim), nil
	if c.Trim != nil {
		c.Trim.LastHop = clonePtr(c.Trim.LastHop)
	}
	return c
}

func (r *Rule) clone() Rule {
	c := *r
	c.Burst, c.Replay, c.Drop = clonePtr(r.Burst), clonePtr(r.Replay), slices.Clone(r.Drop)
	return c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

var errNothing = errors.New("nothing to do: give set, down, rule or clear")

func (e *Event) check() error {
	switch {
	case e.At < 0:
		return fmt.Errorf("at: %v is negative", e.At)
	case e.For < 0:
		return fmt.Errorf("for: %v is negative", e.For)
	case e.Every < 0:
		return fmt.Errorf("every: %v is negative", e.Every)
	case e.Times < 0:
		return fmt.Errorf("times: %d is negative", e.Times)
	case e.Every == 0 && e.Times > 0:
		return fmt.Errorf("times: %d needs every, the time between them", e.Times)
	case e.Every > 0 && e.For == 0:
		return fmt.Errorf("every: %v needs for, how long it lasts each time", e.Every)
	case e.Every > 0 && e.For >= e.Every:
		return fmt.Errorf("for: %v must be shorter than every, %v", e.For, e.Every)
	case e.Every > 0 && time.Duration(e.Every) < minEvery:
		return fmt.Errorf("every: %v is shorter than %v", e.Every, minEvery)
	case e.At > maxTime || e.For > maxTime || e.Every > maxTime:
		return fmt.Errorf("at, for and every may be %v at most", maxTime)
	case len(e.On) == 0:
		return errors.New("on: names no line")
	case e.Set == nil && !e.Down && e.Rule == nil && e.Clear == "":
		return errNothing
	}
	if e.Set != nil {
		if len(e.Set.Rules) > 0 {
			return errors.New("set: rules are added by rule, one an event")
		}
		if err := e.Set.check(); err != nil {
			return fmt.Errorf("set: %w", err)
		}
	}
	if e.Rule != nil {
		if err := e.Rule.check(); err != nil {
			return fmt.Errorf("rule %s: %w", e.Rule.name(), err)
		}
	}
	return nil
}
