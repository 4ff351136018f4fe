package uet

import (
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/transport"
)

// OpenCntr opens a counter (fi_cntr_open). fi.ENOSPC: DomainAttr.CntrCnt counters are open.
func (d *Domain) OpenCntr(attr cntr.Attr, ctx any) (*cntr.Counter, error) {
	return keep(&d.parent, func() (*cntr.Counter, error) {
		if err := d.cntrs.room(d.attr.CntrCnt); err != nil {
			return nil, err
		}
		c, err := cntr.New(attr, ctx)
		if err == nil {
			d.cntrs = append(d.cntrs, c)
		}
		return c, err
	})
}

// What a counter can be bound for (R-CNTR-03).
const (
	cntrLocal  = fi.Send | fi.Recv | fi.Read | fi.Write
	cntrRemote = fi.RemoteRead | fi.RemoteWrite
)

// counters are the counters of an endpoint, by what they count.
type counters struct {
	send, recv              *tally
	read, write             *tally
	remoteRead, remoteWrite *tally
	// all has each tally once, for the end of a batch.
	all []*tally
}

// A tally is a counter and what the batch in progress will add to it. The sum is added at
// the end of the batch, when the entries of the completion queues can be read.
type tally struct {
	c              *cntr.Counter
	counting       door.Counting // of c
	n, bytes, errs uint64        // belong to the holder of the driver's lock
}

// BindCntr binds a counter for the kinds of operations in flags (fi_ep_bind):
// fi.Send, fi.Recv, fi.Read and fi.Write for what this endpoint posts, fi.RemoteRead
// and fi.RemoteWrite for what peers do to its memory; one that returns old values is both. An operation counts when
// its completion level is reached, whether or not it writes an entry, so
// injected ones do too (R-CNTR-01, -11); one that fails counts as an error
// (R-CNTR-04). Completion queues are needed as well.
//
// fi.EBADFLAGS: other flags, or none. fi.EINVAL: no counter, or one of the kinds
// has one already (R-EP-04). fi.EOPNOTSUPP: remote kinds without the capability
// fi.RMAEvent (R-CNTR-03).
// fi.EOPBADSTATE: the endpoint is enabled (R-EP-05).
// fi.EBADF: the endpoint or the counter is closed. fi.EDOMAIN: the counter is of
// another domain.
func (ep *Endpoint) BindCntr(c *cntr.Counter, flags fi.Flags) error {
	if c == nil {
		return errNoObject
	}
	if flags&^(cntrLocal|cntrRemote) != 0 || flags == 0 {
		return errCntrFlags
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.unenabled(); err != nil {
		return err
	}
	if err := foreign(&ep.domain.parent, c); err != nil {
		return err
	}
	if flags&cntrRemote != 0 && ep.info.Caps&fi.RMAEvent == 0 {
		return errNoEvents
	}
	places := []struct {
		kind fi.Flags
		at   **tally
	}{
		{fi.Send, &ep.cntrs.send},
		{fi.Recv, &ep.cntrs.recv},
		{fi.Read, &ep.cntrs.read},
		{fi.Write, &ep.cntrs.write},
		{fi.RemoteRead, &ep.cntrs.remoteRead},
		{fi.RemoteWrite, &ep.cntrs.remoteWrite},
	}
	for _, p := range places {
		if flags&p.kind != 0 && *p.at != nil {
			return errBoundTwice
		}
	}
	t := ep.cntrs.tallyOf(c)
	if t == nil {
		counting := countingOf(c)
		if err := counting.Bind((*dormant)(ep)); err != nil {
			return err
		}
		t = &tally{c: c, counting: counting}
		ep.cntrs.all = append(ep.cntrs.all, t)
	}
	for _, p := range places {
		if flags&p.kind != 0 {
			*p.at = t
		}
	}
	return nil
}

func (s *counters) tallyOf(c *cntr.Counter) *tally {
	for _, t := range s.all {
		if t.c == c {
			return t
		}
	}
	return nil
}

// of returns the tally that an operation counts in, or nil.
func (s *counters) of(k transport.OpKind) *tally {
	switch {
	case k == transport.OpRemoteWrite || k == transport.OpRemoteAtomic:
		return s.remoteWrite
	case k == transport.OpRemoteRead:
		return s.remoteRead
	case receives(k):
		return s.recv
	case k == transport.OpWrite || k == transport.OpAtomic:
		return s.write
	case k == transport.OpRead || k == transport.OpFetch:
		return s.read
	}
	return s.send
}

// add counts an operation that ended.
func (t *tally) add(ev *transport.Event) {
	switch {
	case ev.Cause != transport.OK:
		t.failed()
	case t != nil:
		t.n++
		t.bytes += uint64(ev.Len)
	}
}

// failed counts an operation that failed.
func (t *tally) failed() {
	if t != nil {
		t.errs++
	}
}

// tell adds the tallies to their counters at the end of a batch.
func (s *counters) tell() {
	for _, t := range s.all {
		if t.n > 0 {
			t.counting.Count(t.n, t.bytes)
		}
		if t.errs > 0 {
			_ = t.counting.AddErr(t.errs) // fi.EBADF cannot be: it is bound
		}
		t.n, t.bytes, t.errs = 0, 0, 0
	}
}
