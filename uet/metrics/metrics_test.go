package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A node is an endpoint on the loopback interface.
type node struct {
	*uet.Endpoint
	cq     *cq.CQ
	av     *av.AV
	domain *uet.Domain
}

func open(t *testing.T) *node { return openAs(t, nil) }

// openAs is open with hints.
func openAs(t *testing.T, hints *uet.Info) *node {
	t.Helper()
	infos, err := uet.GetInfo("127.0.0.1", "", fi.Source, hints)
	if err != nil {
		t.Fatal(err)
	}
	fabric, err1 := uet.OpenFabric(infos[0], nil)
	domain, err2 := fabric.OpenDomain(infos[0], nil)
	q, err3 := domain.OpenCQ(cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}, nil)
	v, err4 := domain.OpenAV(av.Attr{}, nil)
	ep, err5 := domain.OpenEndpoint(infos[0], nil)
	if err := errors.Join(err1, err2, err3, err4, err5, ep.BindCQ(q, fi.Transmit|fi.Recv), ep.BindAV(v), ep.Enable()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ep.Close()
		if err := errors.Join(q.Close(), v.Close(), domain.Close(), fabric.Close()); err != nil {
			t.Error(err)
		}
	})
	return &node{ep, q, v, domain}
}

// send sends n tagged messages of 100 bytes and waits until they have arrived.
func send(t *testing.T, from, to *node, n int) {
	t.Helper()
	name, err := to.Name()
	if err != nil {
		t.Fatal(err)
	}
	dest, err := from.av.InsertString(name.String())
	if err != nil {
		t.Fatal(err)
	}
	var e [1]cq.Entry
	for range n {
		if err := errors.Join(to.TRecv(make([]byte, 100), fi.AddrUnspec, 1, 0, nil), from.TSend(make([]byte, 100), dest, 1, nil)); err != nil {
			t.Fatal(err)
		}
		for _, q := range []*cq.CQ{to.cq, from.cq} {
			if _, err := q.SRead(e[:], 1, 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// value returns a sample, -1 if there is none.
func value(t *testing.T, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	sample:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetValue() != labels[i] {
					continue sample
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return -1
}

// The endpoints with one name count together, and the sum never decreases, even if one of
// them is removed, closed or not.
func TestCollector(t *testing.T) {
	c := metrics.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	a, b, d := open(t), open(t), open(t)
	c.Add(a.Endpoint, "client")
	c.Add(b.Endpoint, "server")
	c.Add(d.Endpoint, "server")
	send(t, a, b, 3)
	send(t, a, d, 4)
	check := func(when string, name string, want float64, labels ...string) {
		t.Helper()
		if got := value(t, reg, name, labels...); got != want {
			t.Errorf("%s: %s%v = %v, want %v", when, name, labels, got, want)
		}
	}
	tx := func(name string) float64 { return value(t, reg, "uet_datagrams_total", "tx", name) }
	all := func(when string, servers float64) {
		t.Helper()
		// Labels are sorted by name.
		check(when, "uet_messages_total", 7, "tx", "client")
		check(when, "uet_operations_total", 7, "client", "rud")
		check(when, "uet_operations_total", 0, "client", "rod")
		check(when, "uet_message_bytes_total", 700, "rx", "server")
		check(when, "uet_endpoints", servers, "server")
		check(when, "uet_dropped_datagrams_total", 0, "server", "crc")
	}
	all("open", 2)
	check("open", "uet_pdcs", 2, "client")
	before := tx("server")
	if before < 2 {
		t.Errorf("%v datagrams", before)
	}
	c.Remove(b.Endpoint)
	all("one removed", 1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	all("one closed", 1)
	c.Remove(d.Endpoint)
	c.Remove(d.Endpoint)
	all("all removed", 0)
	if after := tx("server"); after < before {
		t.Errorf("datagrams went back from %v to %v", before, after)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(reg, "uet_retransmissions_total"); n != 8 || err != nil {
		t.Errorf("%d causes, %v", n, err)
	}
}

// Operations count by the delivery mode by which they went.
func TestOperationsByMode(t *testing.T) {
	const key = uet.IdempotentKey | 5
	for _, c := range []struct {
		mode  string
		hints func(h *uet.Info)
		post  func(n *node, dest fi.Addr) error
		first string // the mode of the first operation, which opens the context
	}{
		{"rud", nil, nil, "rud"},
		{"rod", func(h *uet.Info) { h.Tx.MsgOrder, h.Rx.MsgOrder = fi.OrderSAS, fi.OrderSAS }, nil, "rod"},
		{"uud", func(h *uet.Info) { h.Ep.Type = fi.EpDgram }, nil, "uud"},
		{"rudi", func(h *uet.Info) { h.Caps, h.Config.RUDI = fi.Msg|fi.RMA, true }, func(n *node, dest fi.Addr) error {
			return n.Write(make([]byte, 100), dest, 0, key, nil)
		}, "rud"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			h := &uet.Info{}
			if c.hints != nil {
				c.hints(h)
			}
			a, b := openAs(t, h), openAs(t, h)
			reg, m := prometheus.NewPedanticRegistry(), metrics.New()
			reg.MustRegister(m)
			m.Add(a.Endpoint, "a")
			name, err := b.Name()
			if err != nil {
				t.Fatal(err)
			}
			dest, err := a.av.InsertString(name.String())
			if err != nil {
				t.Fatal(err)
			}
			if c.post == nil {
				c.post = func(n *node, dest fi.Addr) error { return n.Send(make([]byte, 100), dest, nil) }
			} else {
				mr, err := b.domain.RegMR(make([]byte, 100), fi.RemoteWrite, 0, key, 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer mr.Close()
			}
			const count = 10
			want := map[string]float64{"rud": 0, "rod": 0, "rudi": 0, "uud": 0}
			for i := range count {
				mode := c.mode
				if i == 0 {
					mode = c.first
				}
				want[mode]++
				if err := c.post(a, dest); err != nil {
					t.Fatal(err)
				}
				var e [1]cq.Entry
				if _, err := a.cq.SRead(e[:], 1, 10*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			for mode, n := range want {
				if got := value(t, reg, "uet_operations_total", "a", mode); got != n {
					t.Errorf("%v operations by %s, want %v", got, mode, n)
				}
			}
		})
	}
}
