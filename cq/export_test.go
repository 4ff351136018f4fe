package cq

import (
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/wait"
)

// The provider's side as methods of CQ, for tests.

func (q *CQ) Bind(p wait.Progress) error { return (*provider)(q).Bind(p) }
func (q *CQ) Unbind(p wait.Progress)     { (*provider)(q).Unbind(p) }
func (q *CQ) Reserve(n int) bool         { return (*provider)(q).Reserve(n) }
func (q *CQ) Take() bool                 { return q.places.Take() }
func (q *CQ) Unreserve(n int)            { q.places.Unreserve(n) }
func (q *CQ) Admit() bool                { return (*provider)(q).Admit() }

func (q *CQ) Complete(ctx any, flags fi.Flags, n int, tag uint64, src fi.Addr) bool {
	return (*provider)(q).Complete(ctx, flags, n, tag, src)
}

func (q *CQ) Begin() *batch { return (*provider)(q).Begin().(*batch) }

// Put is Add of a copy of e.
func (w *batch) Put(e *Entry, src fi.Addr, reserved bool) bool {
	to := w.Add(src, reserved)
	if to != nil {
		*to = *e
	}
	return to != nil
}
