package cq

import "github.com/uetkit/uetkit/fi"

// A ring is a FIFO of entries. An error takes a place among the entries but is stored in
// errs, so that a run of entries can be copied at once.
type ring struct {
	entries []Entry
	sources []fi.Addr
	// head is the number of the next entry to read, tail of the next to write. Both
	// only grow; an entry's index is its number modulo the length.
	head, tail uint64
	// limit is the number up to which entries may be written without further checks: each
	// has a place, no error is queued, and the queue has not overrun.
	limit uint64

	format fi.CQFormat // of the entries that are read

	errs  []failure // in order, from first on
	first int
	spare []*Error // recycled
}

// A failure is an error and the number it has among the entries.
type failure struct {
	at uint64
	e  *Error
}

// maxSpare bounds the recycled errors, so that many failures at once do not occupy memory
// for ever.
const maxSpare = 64

func (r *ring) init(size int) {
	r.entries = make([]Entry, size)
	r.sources = make([]fi.Addr, size)
}

func (r *ring) len() int { return int(r.tail - r.head) }

// place makes room for one more entry and returns its index.
func (r *ring) place() int {
	r.reserve()
	i := int(r.tail) & (len(r.entries) - 1)
	r.tail++
	return i
}

// put appends a completion. tail must be below limit.
func (r *ring) put(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) {
	i := int(r.tail) & (len(r.entries) - 1)
	r.tail++
	r.sources[i] = src
	e := &r.entries[i]
	e.Context, e.Flags, e.Len, e.Tag = ctx, flags, n, tag
}

// reserve makes room for one more entry. The queue must be neither closed nor overrun.
func (r *ring) reserve() {
	if r.len() == len(r.entries) {
		r.grow()
	}
	if r.first == len(r.errs) {
		r.limit = r.head + uint64(len(r.entries))
	}
}

func (r *ring) grow() {
	entries, sources := r.entries, r.sources
	r.init(2 * len(entries))
	for n := r.head; n != r.tail; n++ {
		from, to := int(n)&(len(entries)-1), int(n)&(len(r.entries)-1)
		r.entries[to], r.sources[to] = entries[from], sources[from]
	}
}

// ready is the number of entries before the first error or the end.
func (r *ring) ready() int {
	if r.first < len(r.errs) {
		return int(r.errs[r.first].at - r.head)
	}
	return r.len()
}

// few is the most entries that are moved one by one; for more, copy is faster.
const few = 4

// take moves up to len(e) entries to e and src. It clears the ring's copies, so that they
// keep no memory of the user alive.
func (r *ring) take(e []Entry, src []fi.Addr) int {
	n := min(len(e), r.ready())
	if n <= few {
		for i := range n {
			if at := r.takeOne(&e[i]); src != nil {
				src[i] = r.sources[at]
			}
		}
		return n
	}
	for done := 0; done < n; {
		at := int(r.head) & (len(r.entries) - 1)
		run := r.entries[at:min(len(r.entries), at+n-done)]
		copy(e[done:], run)
		if src != nil {
			copy(src[done:], r.sources[at:at+len(run)])
		}
		clear(run)
		done += len(run)
		r.head += uint64(len(run))
	}
	if r.format != fi.CQTagged {
		for i := range n {
			e[i].cut(r.format)
		}
	}
	return n
}

// takeOne is take of one entry, which must be there, at a third of the cost. It returns
// the index of the source.
func (r *ring) takeOne(e *Entry) (at int) {
	at = int(r.head) & (len(r.entries) - 1)
	from := &r.entries[at]
	*e = *from
	*from = Entry{}
	if r.format != fi.CQTagged {
		e.cut(r.format)
	}
	r.head++
	return at
}

// cut clears the fields that format f lacks. Each format is a prefix of the next (R-CQ-16).
func (e *Entry) cut(f fi.CQFormat) {
	e.Tag = 0
	if f < fi.CQData {
		e.Buf, e.Data = nil, 0
	}
	if f < fi.CQMsg {
		e.Flags, e.Len = 0, 0
	}
}

// putErr appends a copy of e.
func (r *ring) putErr(e *Error) {
	var c *Error
	if k := len(r.spare); k > 0 {
		c = r.spare[k-1]
		r.spare = r.spare[:k-1]
	} else {
		c = new(Error)
	}
	*c = *e
	if 2*r.first >= len(r.errs) { // at least half of it was read
		r.errs, r.first = r.errs[:copy(r.errs, r.errs[r.first:])], 0
	}
	r.errs = append(r.errs, failure{r.tail, c})
	r.place()
	r.limit = 0
}

// takeErr moves the error at the head to e. It returns false if the head is no error.
func (r *ring) takeErr(e *Error) bool {
	if r.first == len(r.errs) || r.errs[r.first].at != r.head {
		return false
	}
	c := r.errs[r.first].e
	*e = *c
	r.errs[r.first] = failure{}
	r.first++
	r.head++
	if len(r.spare) < maxSpare {
		*c = Error{}
		r.spare = append(r.spare, c)
	}
	return true
}
