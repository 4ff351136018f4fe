package av

import (
	"fmt"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// Insert inserts addresses, each at the lowest unused handle (R-AV-01, -02), and returns the
// number that succeeded (R-AV-04). It stores the handle of each in handles, if that is not
// nil, and fi.AddrNotAvail for one that failed. On an AV opened with fi.Event, Insert returns
// 0 and the event queue gets the results (R-AV-08).
//
// Flags may contain:
//   - fi.More, a hint that is ignored (R-AV-07);
//   - fi.SyncErr: context must be a []fi.Errno as long as addrs, in which Insert stores the
//     result of each address (R-AV-05);
//   - fi.AVUserID, if the AV was opened without it: on input, handles has the user id of each
//     address.
//
// Insert fails with fi.EINVAL for other flags or arguments that contradict them, and with
// fi.EBADF if the AV is closed. An AV opened with fi.Event also fails with fi.ENOEQ without
// an event queue, with fi.EAGAIN while eq.MaxKept events of it are unread, and with
// fi.EOVERRUN if the queue has overrun. A call that fails inserts nothing.
func (v *AV) Insert(addrs []wire.Addr, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	return v.insertAll(len(addrs), func(i int) (wire.Addr, fi.Errno) { return addrs[i], 0 }, handles, flags, context)
}

// insertAll is Insert of the addresses at(0) to at(n-1).
func (v *AV) insertAll(n int, at func(int) (wire.Addr, fi.Errno), handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	bad := func(what string) (int, error) { return 0, fmt.Errorf("av: insert: %s: %w", what, fi.EINVAL) }
	async := v.attr.Flags&fi.Event != 0
	var errs []fi.Errno
	switch {
	case flags&^(fi.SyncErr|fi.More|fi.AVUserID) != 0:
		return bad("flags " + flags.String() + " (it takes fi.SyncErr, fi.More, fi.AVUserID)")
	case handles != nil && len(handles) < n:
		return bad(fmt.Sprintf("%d handles for %d addresses", len(handles), n))
	case flags&fi.AVUserID != 0 && (handles == nil || v.attr.Flags&fi.AVUserID != 0):
		return bad("fi.AVUserID wants the user ids in handles, and a vector opened without it") // fi_av(3): not with an AV opened for SetUserID
	case flags&fi.SyncErr != 0:
		var ok bool
		if errs, ok = context.([]fi.Errno); !ok || len(errs) < n || async {
			return bad("sync_err needs a []fi.Errno as context and a synchronous AV")
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	ev := v.events
	switch {
	case v.gone():
		return 0, fmt.Errorf("av: insert: the vector is closed, or was never opened: %w", fi.EBADF)
	case async && ev == nil:
		return 0, fmt.Errorf("av: insert: a vector opened with fi.Event tells by an event queue, and none is bound: BindEvents comes first: %w", fi.ENOEQ) // R-AV-08
	case async:
		if err := ev.Room(); err != nil {
			return 0, fmt.Errorf("av: insert: event queue: %w", err)
		}
		errs = make([]fi.Errno, n)
	}
	count := 0
	full := false
	for i := range n {
		a, err := at(i)
		var user *fi.Addr
		if flags&fi.AVUserID != 0 {
			user = &handles[i]
		}
		h := fi.AddrNotAvail
		switch {
		case err != 0:
		case full:
			err = fi.ECANCELED // R-AV-10
		default:
			h, err = v.insert(a, user)
			full = err == fi.ENOMEM
		}
		if err == 0 {
			count++
		}
		if handles != nil {
			handles[i] = h
		}
		if errs != nil {
			errs[i] = err
		}
	}
	if !async {
		return count, nil
	}
	// R-AV-09: all errors of a call come before its completion.
	for i, err := range errs {
		if err != 0 {
			ev.AVError(v, context, i, err)
		}
	}
	ev.AVComplete(v, context, count)
	return 0, nil
}

// insert inserts one address. user is its user id; nil means its handle or, on an AV opened
// with fi.AVUserID, none yet.
func (v *AV) insert(a wire.Addr, user *fi.Addr) (fi.Addr, fi.Errno) {
	a.IP = Named(a.IP.Unmap())
	if !a.IP.IsValid() || a.IP.IsUnspecified() || a.IP.IsMulticast() || a.PIDonFEP > 0xfff || a.RI > 0xfff {
		return fi.AddrNotAvail, fi.EINVAL // R-ADDR-04, -05
	}
	if a.Port == 0 {
		a.Port = wire.Port
	}
	i := v.first
	for i < len(v.nodes) && v.get(fi.Addr(i)) != nil {
		i++
	}
	if i >= v.max {
		return fi.AddrNotAvail, fi.ENOMEM
	}
	v.first = i + 1
	if i == len(v.nodes) {
		v.nodes = append(v.nodes, node{})
		v.grow(i + 1)
	}
	h := fi.Addr(i)
	l := &v.nodes[i]
	if l.gen++; l.gen == 0 {
		l.gen = 1
	}
	r := &record{addr: a, user: h, gen: l.gen}
	switch {
	case user != nil:
		r.user = *user
	case v.attr.Flags&fi.AVUserID != 0:
		r.user = fi.AddrNotAvail
	}
	v.n++
	(*v.tab.Load())[i].Store(r)
	v.join(uint32(i), keyOf(&a))
	return h, 0
}

// grow makes room in the table for n handles. It replaces the table; readers of the old one
// see a consistent state.
func (v *AV) grow(n int) {
	old := *v.tab.Load()
	if n <= len(old) {
		return
	}
	t := make(table, max(16, n, len(old)+len(old)/2))
	for i := range old {
		t[i].Store(old[i].Load())
	}
	v.tab.Store(&t)
}

// Remove removes handles (fi_av_remove). It fails with fi.EINVAL at the first that is not in
// use (R-AV-11); those before it are removed. It fails with fi.EBADF if the AV is closed.
//
// fi_av(3) leaves open what becomes of operations in progress that name a removed address.
// Here they go on as if it were still there (R-AV-23): sends under way, and receives directed
// at it, which get the messages of that address and of no other, even if its handle comes to
// mean another one, until they match or are cancelled. Messages from the address may still
// arrive, for other receives, too (R-AV-11). Only their source has no handle any more: it is
// fi.AddrNotAvail. An operation that still waits for its endpoint to finish another call fails
// with fi.EINVAL.
func (v *AV) Remove(handles ...fi.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone() {
		return fmt.Errorf("av: remove: the vector is closed, or was never opened: %w", fi.EBADF)
	}
	for _, h := range handles {
		r := v.get(h)
		if r == nil {
			return fmt.Errorf("av: remove %d: no address has this handle: %w", uint64(h), fi.EINVAL)
		}
		v.leave(uint32(h), keyOf(&r.addr))
		(*v.tab.Load())[h].Store(nil)
		v.n--
		v.first = min(v.first, int(h))
	}
	return nil
}
