package eq

import "github.com/uetkit/uetkit/internal/wait"

// The provider's side as methods of EQ, for tests.

func (q *EQ) Bind(places int) (*binding, error) {
	b, err := (*provider)(q).Bind(places)
	if err != nil {
		return nil, err
	}
	return b.(*binding), nil
}

// Put inserts an event of an object that is not bound.
func (q *EQ) Put(e Entry) bool    { return q.put(item{e: e}) }
func (q *EQ) PutErr(e Error) bool { return q.put(item{err: &e}) }

// BindProgress makes readers of the queue drive p.
func (q *EQ) BindProgress(p wait.Progress) error { return q.w.Bind(p) }
func (q *EQ) UnbindProgress(p wait.Progress)     { q.w.Unbind(p) }
