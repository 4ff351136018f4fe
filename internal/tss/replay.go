package tss

// WindowLen is the length of a replay window in packets (T23).
const WindowLen = 8192

// A window tracks which of the last WindowLen TSCs of a source arrived.
type window struct {
	top  uint64 // the greatest TSC so far
	any  bool
	bits [WindowLen / 64]uint64
}

// seen marks tsc as arrived. It reports whether it had arrived before, and whether it is
// too old for the window to tell.
func (w *window) seen(tsc uint64) (was, old bool) {
	switch {
	case !w.any:
		w.any, w.top = true, tsc
	case tsc > w.top:
		w.slide(tsc)
	case w.top-tsc >= WindowLen:
		return false, true
	}
	word, bit := &w.bits[tsc%WindowLen/64], uint64(1)<<(tsc%64)
	if *word&bit != 0 {
		return true, false
	}
	*word |= bit
	return false, false
}

// slide moves the front to tsc and clears the bits of the TSCs between.
func (w *window) slide(tsc uint64) {
	if tsc-w.top >= WindowLen {
		clear(w.bits[:])
		w.top = tsc
		return
	}
	for t := w.top + 1; t <= tsc; {
		if t%64 == 0 && tsc-t >= 63 {
			w.bits[t%WindowLen/64] = 0
			t += 64
			continue
		}
		w.bits[t%WindowLen/64] &^= 1 << (t % 64)
		t++
	}
	w.top = tsc
}

// Fresh reports whether the packet that Open accepted last arrived for the first time, and
// marks it. It is for packets without a PDC, which no PSN guards: UUD, and RUDI where the
// effect must not happen twice (S-TSC-04, T23). A packet more than WindowLen behind the newest
// of its source is not fresh. The window belongs to a source, epoch and AN. It lives as long as
// the key, begins with the first packet asked about, and takes 1 KiB.
//
// Call Fresh at most once for a packet, before the next Open. Otherwise, and after New or a
// drop, it returns false.
func (d *Domain) Fresh() bool {
	s := d.opened
	d.opened = nil
	if s == nil {
		return false
	}
	if s.win == nil {
		s.win = new(window)
		d.stats.Windows++
	}
	was, old := s.win.seen(d.openedTSC)
	if !was && !old {
		return true
	}
	d.stats.Replayed++
	if old {
		d.stats.Late++
	}
	return false
}
