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
	g := o.grouped.Load()
	for _, p := range gone {
		if o.inGroup[p] {
			g.group.Remove(p)
			delete(o.inGroup, p)
		}
	}
	try := slices.Concat(o.loose, come)
	o.loose = nil
	for _, p := range try {
		j, ok := p.(Joiner)
		if ok && g == nil {
			if made := j.NewGroup(); made != nil {
				g = &grouped{made}
				o.grouped.Store(g)
				o.inGroup = make(map[Progress]bool)
			}
		}
		switch {
		case slices.Contains(gone, p):
		case ok && g != nil && g.group.Add(p):
			o.inGroup[p] = true
		default:
			o.loose = append(o.loose, p)
		}
	}
	now := slices.Clip(o.loose)
	if len(o.inGroup) > 0 {
		now = append(now, g.group)
	}
	return now
}

// A grouped is a Group in an atomic pointer.
type grouped struct{ group Group }

// ungroup ends the Group.
func (o *Object) ungroup() {
	o.inGroup, o.loose = nil, nil
	if g := o.grouped.Swap(nil); g != nil {
		g.group.Close()
	}
}
