package wait

import "slices"

// groupLeast is how many endpoints a Group has at least. Fewer are looked at one after the other: that
// takes fewer steps of each.
const groupLeast = 16

// A Group drives many endpoints as one, and costs what those have to do, not how many there are.
type Group interface {
	Napper
	// Add makes p a member and reports whether that is possible.
	Add(p Progress) bool
	// Remove undoes Add.
	Remove(p Progress)
	// Close ends it. A reader that knows it still may call anything afterwards, which then does nothing.
	Close()
}

// A Joiner is a Progress that a Group can drive.
type Joiner interface {
	Progress
	// NewGroup returns a Group for endpoints like this one, nil if there is none.
	NewGroup() Group
}

// A driven is what the readers of an Object drive. It does not change.
type driven struct {
	size int // how many Progresses are bound
	// now is what readers call: all that are bound, or a Group and what cannot join it; nil until
	// drive has found that out.
	now []Progress
}

// drive returns what readers call. It is called without locks.
func (o *Object) drive() *driven {
	if l := o.list.Load(); l.now != nil || l.size == 0 && o.grouped.Load() == nil {
		return l
	}
	return o.regroup()
}

// Gather fits the Group to what is bound, as the next look would. A member of a wait set leaves that to the set.
func (o *Object) Gather() {
	if o.set == nil {
		o.drive()
	}
}

// regroup fits the Group to what is bound. It is made when somebody looks first, so that an Object
// costs none that is not read.
func (o *Object) regroup() *driven {
	o.joining.Lock()
	defer o.joining.Unlock()
	for {
		l, few, come, gone := o.differ()
		if l.now != nil {
			return l
		}
		n := &driven{size: l.size, now: come}
		if few {
			o.ungroup()
		} else {
			n.now = o.arrange(come, gone)
		}
		if o.list.CompareAndSwap(l, n) {
			return n
		}
	}
}

// differ returns the list and, if readers do not know yet what to call, how it differs from what
// arrange knows. few means that there is to be no Group; all are in come then.
func (o *Object) differ() (l *driven, few bool, come, gone []Progress) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	l = o.list.Load()
	switch {
	case l.now != nil:
	case len(o.all) < groupLeast || o.Closed():
		o.changes = nil
		return l, true, slices.Clone(o.all), nil
	case o.changes == nil:
		o.changes = make(map[Progress]bool)
		come = slices.Clone(o.all)
	default:
		for p := range o.changes {
			if _, ok := o.bound[p]; ok {
				come = append(come, p)
			} else {
				gone = append(gone, p)
			}
		}
		clear(o.changes)
	}
	return l, false, come, gone
}

// change notes, under Mu, that p was bound or unbound since differ took the changes. Both together
// are no change.
func (o *Object) change(p Progress) {
	switch {
	case o.changes == nil: // there is no Group
	case o.changes[p]:
		delete(o.changes, p)
	default:
		o.changes[p] = true
	}
}

// arrange returns what readers call after these have come and gone.
func (o *Object) arrange(come, gone []Progress) []Progress {
	for _, p := range gone {
		if o.inGroup[p] {
			o.grouped.Load().group.Remove(p)
			delete(o.inGroup, p)
		}
		o.loose.remove(p)
	}
	for _, p := range o.loose.turn() {
		if o.enter(p) {
			o.loose.remove(p)
		}
	}
	for _, p := range come {
		if !o.enter(p) {
			o.loose.add(p)
		}
	}
	now := append(make([]Progress, 0, len(o.loose.all)+1), o.loose.all...)
	if len(o.inGroup) > 0 {
		now = append(now, o.grouped.Load().group)
	}
	return now
}

// enter makes p a member of the Group, which it makes if there is none, and reports whether that is possible.
func (o *Object) enter(p Progress) bool {
	j, ok := p.(Joiner)
	if !ok {
		return false
	}
	g := o.grouped.Load()
	if g == nil {
		made := j.NewGroup()
		if made == nil {
			return false
		}
		g = &grouped{made}
		o.grouped.Store(g)
		o.inGroup = make(map[Progress]bool)
	}
	if !g.group.Add(p) {
		return false
	}
	o.inGroup[p] = true
	return true
}

// A loose has the endpoints that could not join the Group. To add or remove one takes the same whatever their number.
type loose struct {
	all  []Progress
	at   map[Progress]int
	next int // whose turn it is to try again
}

// retries is how many of them try again when others come or go: all of thousands would take longer than what came.
// Arbitrary.
const retries = 4

func (l *loose) add(p Progress) {
	if l.at == nil {
		l.at = make(map[Progress]int)
	}
	l.at[p] = len(l.all)
	l.all = append(l.all, p)
}

// remove removes p if it is there. The last one takes its place.
func (l *loose) remove(p Progress) {
	i, ok := l.at[p]
	if !ok {
		return
	}
	last := len(l.all) - 1
	q := l.all[last]
	l.all[i], l.at[q] = q, i
	l.all[last] = nil
	l.all = l.all[:last]
	delete(l.at, p)
}

// turn returns those that try again next.
func (l *loose) turn() (some []Progress) {
	for range min(retries, len(l.all)) {
		l.next %= len(l.all)
		some = append(some, l.all[l.next])
		l.next++
	}
	return some
}

// A grouped is a Group in an atomic pointer.
type grouped struct{ group Group }

// ungroup ends the Group.
func (o *Object) ungroup() {
	o.inGroup, o.loose = nil, loose{}
	if g := o.grouped.Swap(nil); g != nil {
		g.group.Close()
	}
}
