package uet

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// entries reads all that is in a queue without driving an endpoint: the errors by context, and
// the number of completions.
func entries(t testing.TB, q *cq.CQ) (failed map[any]cq.Error, done int) {
	t.Helper()
	failed = map[any]cq.Error{}
	for q.Unread() > 0 {
		var es [1]cq.Entry
		n, err := q.Read(es[:])
		if n == 1 {
			done++
			continue
		}
		if !errors.Is(err, fi.EAVAIL) {
			t.Fatalf("an entry is there, and Read returns %v", err)
		}
		var ce cq.Error
		if _, err := q.ReadErr(&ce, 0); err != nil {
			t.Fatal(err)
		}
		if _, twice := failed[ce.Context]; twice {
			t.Errorf("%v ended twice", ce.Context)
		}
		failed[ce.Context] = ce
	}
	return failed, done
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	// A peer that answers nothing: all operations have their entries when Abandon returns, with
	// automatic and with manual progress, and say truly whether the effect is unknown. The
	// places in the queues are free again. Others are not touched.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			hints := &Info{Caps: fi.Tagged | fi.Msg | fi.DirectedRecv, Domain: DomainAttr{DataProgress: p}}
			hints.Config.Tuning.Window = 32 << 10
			r := newRig(t, hints)
			a, b, toB, toA := r.pair()
			gone, err := a.vec.InsertString(blackHole(t).String())
			ok(t, err)
			ok(t, a.TSend([]byte("whole"), gone, 1, "whole"))
			ok(t, a.TSend(make([]byte, 1<<20), gone, 1, "part"))
			ok(t, a.TSend(make([]byte, 1<<20), gone, 1, "behind"))
			ok(t, a.TRecv(make([]byte, 10), gone, 1, 0, "directed"))
			ok(t, a.Recv(make([]byte, 10), gone, "untagged"))
			ok(t, a.TRecv(make([]byte, 10), toB, 1, 0, "from b"))
			ok(t, a.TRecv(make([]byte, 10), fi.AddrUnspec, 2, 0, "from anyone"))
			if n := a.tx.Unread() + a.rx.Unread(); n != 0 {
				t.Fatalf("%d operations ended already", n)
			}
			ok(t, a.Abandon(gone))
			sends, done := entries(t, a.tx)
			for ctx, unknown := range map[string]bool{"whole": true, "part": false, "behind": false} {
				if e := sends[ctx]; e.Err != fi.ECANCELED || e.OutcomeUnknown != unknown {
					t.Errorf("%s: %v, outcome unknown %v", ctx, e.Err, e.OutcomeUnknown)
				}
			}
			recvs, more := entries(t, a.rx)
			if recvs["directed"].Err != fi.ECANCELED || recvs["untagged"].Err != fi.ECANCELED || len(recvs) != 2 || len(sends) != 3 || done+more != 0 {
				t.Errorf("%d sends and %d receives failed, %d operations succeeded", len(sends), len(recvs), done+more)
			}
			if n := a.tx.Reserved(); n != 0 {
				t.Errorf("%d places for sends are still reserved", n)
			}
			ok(t, b.TSend([]byte("x"), toA, 1, nil))
			if e, _ := wait(t, a.rx, b); e.Context != "from b" {
				t.Errorf("%v", e.Context)
			}
			ok(t, b.TSend([]byte("x"), toA, 2, nil))
			if e, _ := wait(t, a.rx, b); e.Context != "from anyone" {
				t.Errorf("%v", e.Context)
			}
			// The address means whoever is there next: nobody, and that is a matter of time.
			ok(t, a.TSend([]byte("again"), gone, 1, "again"))
			ok(t, a.Abandon(gone))
			if sends, _ := entries(t, a.tx); sends["again"].Err != fi.ECANCELED {
				t.Errorf("%v", sends["again"].Err)
			}
		})
	}
}

func TestAbandonRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, _, toB, _ := r.pair()
	for _, h := range []fi.Addr{fi.AddrUnspec, fi.AddrNotAvail, 99} {
		want(t, a.Abandon(h), fi.EINVAL)
	}
	ok(t, a.Abandon(toB)) // nothing to do is no error
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(t, err)
	want(t, ep.Abandon(0), fi.EOPBADSTATE)
	ok(t, ep.Close())
	want(t, ep.Abandon(0), fi.EBADF)
	ok(t, a.Close())
	want(t, a.Abandon(toB), fi.EBADF)
}

func TestAbandonRaces(t *testing.T) {
	t.Parallel()
	// Abandon, posts, reads of several goroutines and Close at the same time: each operation ends
	// once, and what was posted before an Abandon has ended when it returns.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			hints := &Info{Caps: fi.Tagged | fi.Msg | fi.DirectedRecv, Domain: DomainAttr{DataProgress: p}, Tx: TxAttr{Size: 32}, Rx: RxAttr{Size: 32}}
			r := newRig(t, hints)
			a, b, toB, toA := r.pair()
			gone, err := a.vec.InsertString(blackHole(t).String())
			ok(t, err)
			var mu sync.Mutex
			open := map[int]bool{} // operations of a to gone, and from it
			ended := func(e *cq.Error) {
				mu.Lock()
				defer mu.Unlock()
				if i, ours := e.Context.(int); ours && i%2 == 0 {
					if !open[i] {
						t.Errorf("operation %d ended twice, or was never posted", i)
					}
					delete(open, i)
				}
			}
			read := func(n *node) {
				for _, q := range []*cq.CQ{n.tx, n.rx} {
					var es [8]cq.Entry
					if _, err := q.Read(es[:]); errors.Is(err, fi.EAVAIL) {
						var ce cq.Error
						if _, err := q.ReadErr(&ce, 0); err == nil && n == a {
							ended(&ce)
						}
					}
				}
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			until := func(f func(i int)) {
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
							f(i)
						}
					}
				})
			}
			var next int
			post := func(f func(ctx int) error, ours bool) {
				mu.Lock()
				next++
				ctx := 2*next + 1
				if ours {
					ctx--
					open[ctx] = true
				}
				mu.Unlock()
				if err := f(ctx); err != nil {
					mu.Lock()
					delete(open, ctx)
					mu.Unlock()
					if !errors.Is(err, fi.EAGAIN) {
						t.Errorf("post: %v", err)
					}
				}
			}
			buf := make([]byte, 3000)
			until(func(i int) {
				post(func(ctx int) error { return a.TSend(buf[:i%3000], gone, 1, ctx) }, true)
				post(func(ctx int) error { return a.TSend(buf[:100], toB, 1, ctx) }, false)
				read(a)
			})
			until(func(int) {
				post(func(ctx int) error { return a.TRecv(make([]byte, 10), gone, 1, 0, ctx) }, true)
				post(func(ctx int) error { return a.TRecv(make([]byte, 10), toB, 1, 0, ctx) }, false)
				read(a)
			})
			until(func(int) {
				_ = b.TRecv(make([]byte, 100), fi.AddrUnspec, 1, 0, nil)
				_ = b.TSend(buf[:10], toA, 1, nil)
				read(b)
			})
			var count int
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); count++ {
				ok(t, a.Abandon(gone))
				if count%4 == 0 {
					ok(t, a.Abandon(toB))
				}
			}
			close(stop)
			wg.Wait()
			ok(t, a.Abandon(gone))
			for a.tx.Unread()+a.rx.Unread() > 0 {
				read(a)
			}
			if len(open) > 0 {
				t.Errorf("%d of %d operations did not end: %v", len(open), next, open)
			}
			wg.Go(func() { _ = a.Close() })
			for {
				if err := a.Abandon(toB); err != nil {
					want(t, err, fi.EBADF)
					break
				}
			}
			wg.Wait()
			if n := a.tx.Reserved() + a.rx.Reserved(); n != 0 {
				t.Errorf("%d operations never ended", n)
			}
		})
	}
}
