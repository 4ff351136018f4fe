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
	// Close ends it. Only Rouse and Disarm may be called afterwards.
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
	bound []Progress // each bound Progress, once
	// now is what readers call: bound, or a Group and what cannot join it; nil until drive has
	// found that out.
	now []Progress
}

// drive returns what readers call. It is called without locks.
func (o *Object) drive() *driven {
	if l := o.list.Load(); l.now != nil || len(l.bound) == 0 && o.grouped.Load() == nil {
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
		l := o.list.Load()
		if l.now != nil {
			return l
		}
		n := &driven{bound: l.bound, now: o.arrange(l.bound)}
		if o.list.CompareAndSwap(l, n) {
			return n
		}
	}
}

// arrange returns what readers call for these endpoints.
func (o *Object) arrange(all []Progress) []Progress {
	if len(all) < groupLeast || o.HasClosed() {
		o.ungroup()
		return slices.Clip(all)
	}
	g := o.grouped.Load()
	stay := make(map[Progress]bool, len(all))
	for _, p := range all {
		stay[p] = true
	}
	for p := range o.inGroup {
		if !stay[p] {
			g.group.Remove(p)
			delete(o.inGroup, p)
		}
	}
	var now []Progress
	for _, p := range all {
		j, ok := p.(Joiner)
		if ok && g == nil {
			if made := j.NewGroup(); made != nil {
				g = &grouped{made}
				o.grouped.Store(g)
				o.inGroup = make(map[Progress]bool, len(all))
			}
		}
		switch {
		case g != nil && o.inGroup[p]:
		case ok && g != nil && g.group.Add(p):
			o.inGroup[p] = true
		default:
			now = append(now, p)
		}
	}
	if g != nil && len(o.inGroup) > 0 {
		now = append(now, g.group)
	}
	return now
}

// A grouped is a Group in an atomic pointer.
type grouped struct{ group Group }

// ungroup ends the Group.
func (o *Object) ungroup() {
	if g := o.grouped.Swap(nil); g != nil {
		o.inGroup = nil
		g.group.Close()
	}
}
