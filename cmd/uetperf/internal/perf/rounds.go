package perf

import (
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// rounds makes round trips until a turn must be taken. It is one function because two ends on one
// processor run all of it anew for each message: there a round trip takes 1 % longer by turns
// (docs/perf.md).
func (l *leg) rounds(r traffic.Rounds) error {
	ep, peer := l.p.end.ep, l.peer
	for {
		ents, err := l.p.next()
		if len(ents) == 0 {
			return err
		}
		for i := range ents {
			e := &ents[i]
			r.Took(e.Context.(*traffic.Slot), e.Flags&fi.Send != 0)
		}
		if !r.Ended() {
			continue
		}
		b := r.Next(time.Since(origin))
		if b == nil {
			return nil
		}
		if err := ep.TSend(b.Buf, peer, tagBase, b); err != nil {
			if _, err = posted(err); err != nil {
				return traffic.PostError(err)
			}
			r.Full()
			return nil
		}
		s := r.Sent()
		if err := ep.TRecv(s.Buf, fi.AddrUnspec, tagBase, 0, s); err != nil {
			_, err = posted(err)
			return l.Refused(s, err)
		}
	}
}

// echo sends messages back until a turn must be taken. It is one function as rounds is.
func (l *leg) echo(r traffic.Echoes) error {
	ep, peer := l.p.end.ep, l.peer
	for r.Goes() {
		ents, err := l.p.next()
		if len(ents) == 0 {
			return err
		}
		for i := range ents {
			e := &ents[i]
			if e.Flags&fi.Send != 0 {
				continue
			}
			s := e.Context.(*traffic.Slot)
			if err := ep.TSend(r.Got(s, e.Len), peer, tagBase, s); err != nil {
				if _, err = posted(err); err != nil {
					return traffic.PostError(err)
				}
				r.Full(s)
			}
		}
		for i := range ents {
			e := &ents[i]
			if e.Flags&fi.Send == 0 {
				continue
			}
			s := e.Context.(*traffic.Slot)
			r.Back(s)
			if err := ep.TRecv(s.Buf, fi.AddrUnspec, tagBase, 0, s); err != nil {
				_, err = posted(err)
				if err = l.Refused(s, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// next waits for completions. There are none if a turn must be taken.
func (p *poller) next() ([]cq.Entry, error) {
	if !p.block {
		n, err := p.read(traffic.Idle, false)
		return p.ents[:n], err
	}
	n, err := p.end.cq.SRead(p.ents, 1, traffic.Idle)
	switch {
	case err == nil:
		return p.ents[:n], nil
	case err == fi.EAVAIL:
		err = p.end.readErr()
	case err == fi.EAGAIN:
		err = nil
	}
	return nil, err
}
