package uet

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// A manor is many endpoints on one completion queue and one address vector.
type manor struct {
	q   *cq.CQ
	vec *av.AV
	eps []*Endpoint
}

func (r *rig) manor(n int, change ...func(*Info)) *manor {
	r.t.Helper()
	m := &manor{}
	var err error
	m.q, err = r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec, Size: 64 * n}, nil)
	ok(r.t, err)
	m.vec, err = r.domain.OpenAV(av.Attr{}, nil)
	ok(r.t, err)
	info := *r.info
	info.clone()
	info.Tx.Size, info.Rx.Size = 16, 16
	for _, f := range change {
		f(&info)
	}
	for i := range n {
		ep, err := r.domain.OpenEndpoint(&info, i)
		ok(r.t, err)
		ok(r.t, ep.BindCQ(m.q, fi.Transmit|fi.Recv))
		ok(r.t, ep.BindAV(m.vec))
		ok(r.t, ep.Enable())
		m.eps = append(m.eps, ep)
	}
	r.t.Cleanup(func() {
		for _, ep := range m.eps {
			if err := ep.Close(); err != nil && !errors.Is(err, fi.EBADF) {
				r.t.Error(err)
			}
		}
		ok(r.t, m.q.Close())
		ok(r.t, m.vec.Close())
	})
	return m
}

// knows inserts the addresses of endpoints.
func (m *manor) knows(t testing.TB, eps []*Endpoint) (to []fi.Addr) {
	for _, ep := range eps {
		name, err := ep.Name()
		ok(t, err)
		a, err := m.vec.InsertString(name.String())
		ok(t, err)
		to = append(to, a)
	}
	return to
}

// calls counts the system calls that the endpoints made to receive, and their turns.
func (m *manor) calls() (recv, turns uint64) {
	for _, ep := range m.eps {
		s := ep.Stats()
		recv += s.Socket.RecvCalls
		turns += s.Driver.Turns
	}
	return recv, turns
}

func TestIdleEndpointsCostNoCalls(t *testing.T) {
	t.Parallel()
	// A read of a queue with many idle endpoints looks at all their sockets at once, and at none
	// of them.
	for _, c := range []struct {
		name   string
		change func(*Info)
	}{
		{"manual", func(in *Info) { in.Domain.DataProgress = fi.ProgressManual }},
		{"automatic", func(in *Info) { in.Domain.DataProgress = fi.ProgressAuto }},
		{"several paths", func(in *Info) { in.Domain.DataProgress, in.Config.Paths = fi.ProgressManual, 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			m, hub := r.manor(50, c.change), r.manor(1, c.change)
			to := hub.knows(t, m.eps)
			settle := func() {
				for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
					_, _ = m.q.Read(nil)
					_, _ = hub.q.Read(nil)
				}
			}
			settle()
			recv, turns := m.calls()
			for range 1000 {
				if _, err := m.q.Read(nil); !errors.Is(err, fi.EAGAIN) {
					t.Fatal(err)
				}
			}
			if r, n := m.calls(); r != recv || n > turns+50 { // to count is one turn each
				t.Errorf("1,000 empty reads: %d calls to receive, %d turns", r-recv, n-turns)
			}
			buf := make([]byte, 8)
			ok(t, m.eps[33].TRecv(buf, fi.AddrUnspec, 1, 0, "in"))
			ok(t, hub.eps[0].TSend([]byte("a"), to[33], 1, "out"))
			if e, _ := await(t, m.q, hub.q); e.Context != "in" || buf[0] != 'a' {
				t.Errorf("received %v, %q", e, buf)
			}
			_, _ = await(t, hub.q, m.q)
			if got, _ := m.calls(); got-recv > 20*uint64(max(1, r.info.Config.Paths)) {
				t.Errorf("%d calls to receive one message", got-recv)
			}
		})
	}
}

// await reads one entry of q, and drives others meanwhile.
func await(t testing.TB, q *cq.CQ, others ...*cq.CQ) (cq.Entry, error) {
	t.Helper()
	var es [1]cq.Entry
	for start := time.Now(); time.Since(start) < patience; {
		if n, err := q.Read(es[:]); n == 1 {
			return es[0], nil
		} else if !errors.Is(err, fi.EAGAIN) {
			t.Fatal(err)
		}
		for _, o := range others {
			_, _ = o.Read(nil)
		}
	}
	t.Fatal("no completion")
	return cq.Entry{}, nil
}

func TestManyEndpointsOnAQueue(t *testing.T) {
	t.Parallel()
	// Messages to and from many endpoints arrive by polls and by blocking reads, with either kind
	// of progress, while endpoints come and go.
	const n, each = 40, 30
	for _, progress := range []fi.Progress{fi.ProgressManual, fi.ProgressAuto} {
		for _, block := range []bool{false, true} {
			t.Run(fmt.Sprint(progress, " blocking=", block), func(t *testing.T) {
				r := newRig(t, nil)
				set := func(in *Info) { in.Domain.DataProgress = progress }
				a, b := r.manor(n, set), r.manor(n, set)
				toB := a.knows(t, b.eps)
				var wg sync.WaitGroup
				var left atomic.Int64
				left.Store(2 * n * each)
				drain := func(q *cq.CQ) {
					var es [16]cq.Entry
					for start := time.Now(); left.Load() > 0; {
						var k int
						var err error
						if block {
							k, err = q.SRead(es[:], 1, 5*time.Millisecond)
						} else {
							k, err = q.Read(es[:])
						}
						if err != nil && !errors.Is(err, fi.EAGAIN) || time.Since(start) > patience {
							t.Errorf("%d are left: %v", left.Load(), err)
							return
						}
						left.Add(int64(-k))
					}
				}
				wg.Go(func() { drain(b.q) })
				wg.Go(func() { drain(a.q) })
				wg.Go(func() {
					for range 5 {
						more := r.extra(b, set)
						time.Sleep(time.Millisecond)
						ok(t, more.Close())
					}
				})
				bufs := make([]byte, 8*n)
				for k := range each {
					for i := range n {
						for _, f := range []func() error{
							func() error { return b.eps[i].TRecv(bufs[8*i:8*i+8], fi.AddrUnspec, uint64(k), 0, nil) },
							func() error { return a.eps[i].TSend([]byte("message"), toB[(i*7)%n], uint64(k), nil) },
						} {
							for err := f(); err != nil; err = f() {
								if !errors.Is(err, fi.EAGAIN) || t.Failed() {
									t.Fatal(err)
								}
								time.Sleep(10 * time.Microsecond)
							}
						}
					}
				}
				wg.Wait()
			})
		}
	}
}

// extra opens one more endpoint on the queue of m.
func (r *rig) extra(m *manor, change func(*Info)) *Endpoint {
	info := *r.info
	info.clone()
	change(&info)
	ep, err := r.domain.OpenEndpoint(&info, nil)
	ok(r.t, err)
	ok(r.t, ep.BindCQ(m.q, fi.Transmit|fi.Recv))
	ok(r.t, ep.BindAV(m.vec))
	ok(r.t, ep.Enable())
	return ep
}
