package mp

import (
	"errors"

	"github.com/uetkit/uetkit/fi"
)

// Messages that are longer than the provider takes
//
// Such a message is cut into parts. The first is an ordinary message, which matches as the whole
// would; its remote CQ data has the length of the whole and a number. The others are of kindPart
// and have the number as their tag. The receiver posts receives for them when it has the first.

// Remote CQ data of a first part: length in 48 bits, number in 16.
const (
	cutLenBits = 48
	cutLenMask = 1<<cutLenBits - 1
)

// sendCut begins a send that is cut. r is the whole, which ends with its last part.
func (w *World) sendCut(r *request) error {
	w.mu.Lock()
	w.cuts++
	id := uint16(w.cuts)
	w.mu.Unlock()
	whole := r.buf
	n := (len(whole) + w.most - 1) / w.most
	r.left.Store(int32(n))
	r.kids = make([]*request, n)
	for i := range r.kids {
		k := w.newRequest(0)
		k.kind, k.c, k.peer, k.parent, k.status = opSend, r.c, r.peer, r, Status{}
		k.buf = whole[i*w.most : min((i+1)*w.most, len(whole))]
		if i == 0 {
			k.flags = r.flags | fi.RemoteCQData
			k.msg.Tag, k.msg.Data = r.msg.Tag, uint64(len(whole))|uint64(id)<<cutLenBits
		} else {
			k.msg.Tag = wireTag(r.c.id, r.c.rank, kindPart, int(id))
		}
		r.kids[i] = k
	}
	for i, k := range r.kids {
		if err := w.start(k); err != nil {
			if i == 0 {
				for _, k := range r.kids {
					k.free()
				}
				r.kids = nil
				return err
			}
			for _, k := range r.kids[i:] {
				k.finish(err)
			}
			return nil
		}
	}
	return nil
}

// recvCut begins the receives of the parts behind the first, which r has.
func (w *World) recvCut(r *request, data uint64) {
	total := int(data & cutLenMask)
	id := int(data >> cutLenBits)
	room := r.buf
	r.cut = total
	n := (total + w.most - 1) / w.most
	r.left.Store(int32(n))
	src := r.status.Source
	for i := 1; i < n; i++ {
		k := w.newRequest(0)
		k.kind, k.c, k.peer, k.parent = opRecv, r.c, r.c.global(src), r
		lo, hi := min(i*w.most, len(room)), min((i+1)*w.most, len(room))
		k.buf, k.room = room[lo:hi], hi-lo
		k.msg.Tag, k.msg.Ignore = match(r.c.id, src, kindPart, id)
		if err := w.receive(k); err != nil {
			k.finish(err)
		}
	}
	r.partEnded(nil, false)
}

// first is the first part of a send.
func (r *request) first() *request {
	if len(r.kids) == 0 {
		return nil
	}
	return r.kids[0]
}

// partEnded notes that a part of a whole has ended.
func (r *request) partEnded(err error, first bool) {
	w := r.w
	if errors.As(err, new(*ErrTruncated)) {
		err = nil // the whole is
	}
	w.mu.Lock()
	if err != nil && r.partErr == nil {
		r.partErr = err
		if first { // nobody expects the others
			for _, k := range r.kids[1:] {
				if !k.done.Load() {
					w.cancelLocked(k, err)
				}
			}
		}
	}
	w.unlock()
	if r.left.Add(-1) > 0 {
		return
	}
	err = r.partErr
	for _, k := range r.kids {
		k.free()
	}
	r.kids, r.partErr = nil, nil
	if total := r.cut; r.kind == opRecv {
		r.cut, r.status.Len = 0, total
		if err == nil && total > r.room {
			err = &ErrTruncated{Len: total, Room: r.room}
		}
	}
	r.finish(err)
}
