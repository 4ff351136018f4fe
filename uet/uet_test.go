package uet

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A rig has endpoints of one domain on the loopback interface, each with its own queues and
// vector.
type rig struct {
	t      testing.TB
	info   *Info
	fabric *Fabric
	domain *Domain
}

// loopback returns an Info for 127.0.0.1 that meets the hints.
func loopback(t testing.TB, hints *Info) *Info {
	t.Helper()
	infos, err := GetInfo("127.0.0.1", "", fi.Source, hints)
	if err != nil {
		t.Fatal(err)
	}
	return infos[0]
}

func newRig(t testing.TB, hints *Info) *rig {
	t.Helper()
	r := &rig{t: t, info: loopback(t, hints)}
	var err error
	if r.fabric, err = OpenFabric(r.info, nil); err != nil {
		t.Fatal(err)
	}
	if r.domain, err = r.fabric.OpenDomain(r.info, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.domain.Close(); err != nil {
			t.Errorf("domain: %v", err)
		}
		if err := r.fabric.Close(); err != nil {
			t.Errorf("fabric: %v", err)
		}
	})
	return r
}

// A node is an enabled endpoint with the objects bound to it.
type node struct {
	*Endpoint
	t    testing.TB
	tx   *cq.CQ
	rx   *cq.CQ
	vec  *av.AV
	evts *eq.EQ
	done atomic.Bool // for tests with goroutines that check whether Close has returned
}

// options change how a node is made.
type options struct {
	txFlags, rxFlags fi.Flags // for BindCQ, besides the direction
	attr             cq.Attr
	av               av.Attr
	oneCQ            bool
	bind             func(*Endpoint) // called before Enable
}

func (r *rig) node(opt ...func(*options)) *node {
	r.t.Helper()
	o := options{attr: cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}}
	for _, f := range opt {
		f(&o)
	}
	n := &node{t: r.t}
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	var err error
	n.Endpoint, err = r.domain.OpenEndpoint(r.info, "ep")
	must(err)
	n.tx, err = r.domain.OpenCQ(o.attr, nil)
	must(err)
	n.rx = n.tx
	if !o.oneCQ {
		n.rx, err = r.domain.OpenCQ(o.attr, nil)
		must(err)
	}
	n.vec, err = r.domain.OpenAV(o.av, nil)
	must(err)
	n.evts, err = r.fabric.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil)
	must(err)
	must(n.BindCQ(n.tx, fi.Transmit|o.txFlags))
	must(n.BindCQ(n.rx, fi.Recv|o.rxFlags))
	must(n.BindAV(n.vec))
	must(n.BindEQ(n.evts))
	if o.bind != nil {
		o.bind(n.Endpoint)
	}
	must(n.Enable())
	r.t.Cleanup(func() {
		if err := n.Endpoint.Close(); err != nil && !errors.Is(err, fi.EBADF) {
			r.t.Errorf("endpoint: %v", err)
		}
		for _, c := range []interface{ Close() error }{n.tx, n.vec, n.evts} {
			if err := c.Close(); err != nil {
				r.t.Errorf("%T: %v", c, err)
			}
		}
		if n.rx != n.tx {
			if err := n.rx.Close(); err != nil {
				r.t.Errorf("rx: %v", err)
			}
		}
	})
	return n
}

// know inserts the other node's address.
func (n *node) know(other *node) fi.Addr {
	n.t.Helper()
	name, err := other.Name()
	if err != nil {
		n.t.Fatal(err)
	}
	h, err := n.vec.InsertString(name.String())
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

// pair returns two nodes that know each other.
func (r *rig) pair(opt ...func(*options)) (a, b *node, toB, toA fi.Addr) {
	r.t.Helper()
	a, b = r.node(opt...), r.node(opt...)
	return a, b, a.know(b), b.know(a)
}

const patience = 20 * time.Second

// wait polls until q has an entry. It drives the others, too.
func wait(t testing.TB, q *cq.CQ, others ...*node) (e cq.Entry, src fi.Addr) {
	t.Helper()
	var es [1]cq.Entry
	var srcs [1]fi.Addr
	for start := time.Now(); time.Since(start) < patience; {
		n, err := q.ReadFrom(es[:], srcs[:])
		if n == 1 {
			return es[0], srcs[0]
		}
		if errors.Is(err, fi.EAVAIL) {
			var ce cq.Error
			_, _ = q.ReadErr(&ce, 0)
			t.Fatalf("an error instead of a completion: %v", &ce)
		}
		if !errors.Is(err, fi.EAGAIN) {
			t.Fatalf("read: %v", err)
		}
		for _, o := range others {
			_, _ = o.tx.Read(nil)
			_, _ = o.rx.Read(nil)
		}
		runtime.Gosched()
	}
	t.Fatalf("no completion%s", outstanding(others))
	return
}

// outstanding describes what nodes wait for, for a test that timed out.
func outstanding(nodes []*node) string {
	var b strings.Builder
	for i, n := range nodes {
		for _, w := range n.Diagnose() {
			fmt.Fprintf(&b, "\nnode %d: %s", i, w.String())
		}
	}
	return b.String()
}

// waitErr is wait for an error entry.
func waitErr(t testing.TB, q *cq.CQ, others ...*node) cq.Error {
	t.Helper()
	for start := time.Now(); time.Since(start) < patience; {
		var es [1]cq.Entry
		n, err := q.Read(es[:])
		switch {
		case n == 1:
			t.Fatalf("a completion instead of an error: %+v", es[0])
		case errors.Is(err, fi.EAVAIL):
			var ce cq.Error
			if _, err := q.ReadErr(&ce, 0); err != nil {
				t.Fatal(err)
			}
			return ce
		}
		for _, o := range others {
			_, _ = o.tx.Read(nil)
			_, _ = o.rx.Read(nil)
		}
		runtime.Gosched()
	}
	t.Fatal("no error entry")
	return cq.Error{}
}

// ok fails the test unless err is nil.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless err is the errno.
func want(t testing.TB, err error, e fi.Errno) {
	t.Helper()
	if !errors.Is(err, e) {
		t.Errorf("error %v, want %v", err, e)
	}
}

func TestTaggedMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	buf := make([]byte, 64)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 7, 0, "recv"))
	ok(t, a.TSend([]byte("hello"), toB, 7, "send"))
	e, src := wait(t, b.rx, a)
	if e.Context != "recv" || e.Flags != fi.Recv|fi.Tagged || e.Len != 5 || e.Tag != 7 || string(buf[:5]) != "hello" {
		t.Errorf("receive: %+v %q", e, buf[:5])
	}
	if src != 0 {
		t.Errorf("source %v, want 0", src)
	}
	e, _ = wait(t, a.tx, b)
	if e.Context != "send" || e.Flags != fi.Send|fi.Tagged || e.Len != 0 {
		t.Errorf("send: %+v", e)
	}
}

func addrs(a ...wire.Addr) []wire.Addr { return a }
