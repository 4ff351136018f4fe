package uet

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet/internal/driver"
)

// long turns the fast paths off.
func (n *node) long() {
	n.drv.With(func() {
		n.simple, n.short = false, [transport.OpTRecv + 1]uint64{}
	})
}

// A recorder is a FEP that writes down what is posted.
type recorder struct {
	*transport.FEP
	ops []string
}

func (r *recorder) Post(now time.Duration, op *transport.Op) error {
	o := *op
	o.Buf, o.Iov, o.Context = nil, nil, nil
	err := r.FEP.Post(now, op)
	r.ops = append(r.ops, fmt.Sprintf("%+v of %d bytes for %v: %v", o, op.Bytes(), op.Context, err))
	return err
}

// record makes the operations of a node be written down. The node must have manual
// progress, so that its driver can be replaced.
func (n *node) record() *recorder {
	r, old := &recorder{FEP: n.fep}, n.drv
	_, mover := n.driven()
	n.drv = driver.New(driver.Config{Core: r, Mover: mover, Conn: &socket{Conn: n.conn}, Owner: (*owner)(n.Endpoint)})
	n.rebind(old, n.drv)
	return r
}

// A life describes in words what two nodes did and saw.
type life struct {
	t       *testing.T
	a, b, c *node
	toB     fi.Addr    // or to c
	froms   [2]fi.Addr // at b, a and c
	alias   *Alias
	log     []string
}

func (l *life) say(format string, args ...any) { l.log = append(l.log, fmt.Sprintf(format, args...)) }

// read writes down the entries of a queue, one at a time or many, with the same result.
func (l *life) read(name string, q *cq.CQ, n int) {
	e, src := make([]cq.Entry, n), make([]fi.Addr, n)
	k, err := q.ReadFrom(e, src)
	if n == 1 {
		k, err = q.Read(e)
	}
	for i := range k {
		l.say("%s: %v %v %d %#x %d %v", name, e[i].Context, e[i].Flags, e[i].Len, e[i].Tag, e[i].Data, e[i].Buf == nil)
	}
	if err == fi.EAVAIL {
		var ce cq.Error
		if _, err := q.ReadErr(&ce, 0); err == nil {
			l.say("%s: %v: %v", name, ce.Context, &ce)
		}
	}
}

// live does n things drawn from rng. After each it waits until all is quiet, so that the
// result does not depend on time.
func (l *life) live(rng *rand.Rand, n int) {
	msg := make([]byte, 5000)
	for i := range n {
		dest := l.toB
		if rng.IntN(20) == 0 {
			dest = fi.Addr(rng.IntN(3)) + 5 // a handle of no peer
		}
		length := []int{0, 8, 64, 900, 3000, 5000}[rng.IntN(6)]
		tag, ignore := uint64(rng.IntN(3)), uint64(0)
		if rng.IntN(4) == 0 {
			ignore = 3
		}
		from, to := &l.a.posts, &l.b.posts
		if rng.IntN(4) == 0 {
			from = &l.alias.posts
		}
		src := fi.AddrUnspec
		if rng.IntN(4) == 0 {
			src = l.froms[rng.IntN(2)] // ignored without the capability
		}
		buf := make([]byte, 4000)
		var err error
		what := rng.IntN(13)
		switch what {
		case 0, 1, 2:
			err = from.TSend(msg[:length], dest, tag, i)
		case 3:
			err = from.Send(msg[:length], dest, i)
		case 4, 5, 6:
			err = to.TRecv(buf, src, tag, ignore, i)
		case 7:
			err = to.Recv(buf, src, i)
		case 8:
			err = from.SendData(msg[:length], 77, dest, i)
		case 9:
			err = from.SetOpsFlags(fi.Transmit | []fi.Flags{0, fi.Completion, fi.More, fi.DeliveryComplete, fi.InjectComplete, fi.Inject}[rng.IntN(6)])
		case 10:
			err = to.SetOpsFlags(fi.Recv | []fi.Flags{0, fi.Completion, fi.Completion}[rng.IntN(3)])
		case 11:
			// The handle comes to mean no peer, then another one.
			err = l.a.vec.Remove(l.toB)
			if e := from.Send(msg[:8], l.toB, i); e == nil {
				l.t.Fatal("sent to an address that was removed")
			}
			l.toB = l.a.know([]*node{l.b, l.b, l.c}[rng.IntN(3)])
		case 12:
			for range 20 { // more than small queues have room for
				if err = from.TSend(msg[:8], l.toB, tag, i); err != nil {
					break
				}
			}
		}
		l.say("%d: %d: %v, %v", i, what, err, l.a.pushed.Load())
		l.settle()
		if rng.IntN(3) == 0 {
			size := 1 + 7*rng.IntN(2)
			for range rng.IntN(6) {
				l.read("a", l.a.tx, size)
				l.read("b", l.b.rx, size)
			}
		}
	}
	for range 3 * n {
		l.read("a", l.a.tx, 1)
		l.read("b", l.b.rx, 8)
	}
}

// settle drives all nodes until nothing happens any more.
func (l *life) settle() {
	for quiet := 0; quiet < 30; quiet++ {
		if l.a.drv.Poll() || l.b.drv.Poll() || l.c.drv.Poll() {
			quiet = 0
		}
		if quiet%10 == 9 {
			runtime.Gosched()
		}
	}
}

func TestShortWaysAreTheLongOnes(t *testing.T) {
	t.Parallel()
	// Twins live the same life, one of them without the fast paths of posts and completions.
	for _, c := range []struct {
		name  string
		hints *Info
		opt   func(*testing.T, *rig) func(*options)
		short bool // the first twin has the fast paths
	}{
		{"as most are", &Info{Caps: fi.Msg | fi.Tagged}, nil, true},
		{"as by default", &Info{}, nil, true},
		{"fences", &Info{Caps: fi.Msg | fi.Tagged | fi.Fence, Tx: TxAttr{MsgOrder: fi.OrderSAS}}, nil, true},
		{"short messages", &Info{Caps: fi.Msg | fi.Tagged}, func(t *testing.T, _ *rig) func(*options) {
			return func(o *options) {
				o.bind = func(ep *Endpoint) {
					ok(t, ep.SetOpt(fi.OptMaxMsgSize, 1000))
					ok(t, ep.SetOpt(fi.OptMaxTaggedSize, 2000))
				}
			}
		}, true},
		{"one queue", &Info{Caps: fi.Msg | fi.Tagged}, func(*testing.T, *rig) func(*options) { return func(o *options) { o.oneCQ = true } }, true},
		{"small queues", &Info{Caps: fi.Msg | fi.Tagged}, func(t *testing.T, _ *rig) func(*options) {
			return func(o *options) {
				o.bind = func(ep *Endpoint) {
					ok(t, ep.SetOpt(fi.OptTxSize, 8))
					ok(t, ep.SetOpt(fi.OptRxSize, 8))
				}
			}
		}, true},
		{"selective sends", &Info{Caps: fi.Msg | fi.Tagged}, func(*testing.T, *rig) func(*options) {
			return func(o *options) { o.txFlags = fi.SelectiveCompletion }
		}, true},
		{"selective", &Info{Caps: fi.Msg | fi.Tagged}, func(*testing.T, *rig) func(*options) {
			return func(o *options) { o.txFlags, o.rxFlags = fi.SelectiveCompletion, fi.SelectiveCompletion }
		}, true},
		{"sources", &Info{Caps: fi.Msg | fi.Tagged | fi.Source}, nil, true},
		{"directed", &Info{Caps: fi.Msg | fi.Tagged | fi.DirectedRecv}, nil, true},
		{"tagged only", &Info{Caps: fi.Tagged}, nil, true},
		{"tag format", &Info{Caps: fi.Msg | fi.Tagged, Ep: EpAttr{MemTagFormat: fi.TagMPI}}, nil, true},
		{"counters", &Info{Caps: fi.Msg | fi.Tagged}, func(t *testing.T, r *rig) func(*options) {
			return func(o *options) {
				o.bind = func(ep *Endpoint) {
					k, err := r.domain.OpenCntr(cntr.Attr{}, nil)
					ok(t, err)
					ok(t, ep.BindCntr(k, fi.Send|fi.Recv))
					t.Cleanup(func() { ok(t, k.Close()) })
				}
			}
		}, true},
		{"no places", &Info{Caps: fi.Msg | fi.Tagged, Domain: DomainAttr{ResourceMgmt: fi.RMDisabled}}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(8) {
				var logs [2][]string
				for twin := range logs {
					c.hints.Domain.DataProgress = fi.ProgressManual
					r := newRig(t, c.hints)
					var opts []func(*options)
					if c.opt != nil {
						opts = append(opts, c.opt(t, r))
					}
					opts = append(opts, func(o *options) { o.av = av.Attr{Type: fi.AVTable} })
					a, b, toB, toA := r.pair(opts...)
					if (a.short[transport.OpTSend] != 0) != c.short {
						t.Fatal("short ways: ", a.short)
					}
					if twin == 1 {
						a.long()
						b.long()
					}
					ra, rb := a.record(), b.record()
					alias, err := a.Alias(fi.Transmit)
					ok(t, err)
					l := &life{t: t, a: a, b: b, c: r.node(), toB: toB, alias: alias}
					l.froms = [2]fi.Addr{toA, b.know(l.c)}
					l.live(rand.New(rand.NewPCG(seed, 1)), 150)
					ok(t, alias.Close())
					want(t, alias.Send(nil, toB, nil), fi.EBADF)
					want(t, alias.Recv(nil, fi.AddrUnspec, nil), fi.EBADF)
					l.say("%d and %d places are promised", a.tx.Reserved(), b.rx.Reserved())
					ok(t, a.Endpoint.Close())
					want(t, a.Send(nil, toB, nil), fi.EBADF)
					want(t, a.TRecv(nil, fi.AddrUnspec, 0, 0, nil), fi.EBADF)
					logs[twin] = append(append(l.log, ra.ops...), rb.ops...)
				}
				for i := range max(len(logs[0]), len(logs[1])) {
					if i >= len(logs[0]) || i >= len(logs[1]) || logs[0][i] != logs[1][i] {
						t.Fatalf("seed %d: after\n%q\nthe short way\n%q\nthe long\n%q", seed, logs[0][max(0, i-5):i], logs[0][i:min(i+5, len(logs[0]))], logs[1][i:min(i+5, len(logs[1]))])
					}
				}
			}
		})
	}
}
