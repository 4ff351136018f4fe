package mesh

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback. stop ends it.
func serve(t *testing.T, with bool) (h Host, stop func()) {
	t.Helper()
	return serveWith(t, perf.ServerConfig{Mesh: with, Log: t.Logf})
}

func serveWith(t *testing.T, cfg perf.ServerConfig) (h Host, stop func()) {
	t.Helper()
	cfg.Listen, cfg.AnyPort = netip.MustParseAddrPort("127.0.0.1:0"), true
	s, err := perf.NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Serve(ctx)
		close(done)
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			<-done
			s.Close()
		}
	}
	t.Cleanup(stop)
	a := s.Addrs()[0]
	return Host{Name: a.String(), Addr: a}, stop
}

func config(test string, hosts ...Host) *Config {
	return &Config{
		Test: test, Hosts: hosts,
		Bulk: traffic.Spec{
			Test: traffic.BW, Op: traffic.TSend, EP: traffic.RDM, Sec: traffic.Off, Mode: traffic.RUD, Complete: "transmit", CC: "nscc", GSO: "auto", Progress: "auto",
			Size: 4096, Window: 4, Parallel: 1, Warmup: 8, Time: 200 * time.Millisecond, CRC: true, Check: true, Seed: 7, PeerTimeout: 5 * time.Second,
		},
		Dial: func(ctx context.Context, a netip.AddrPort) (*perf.Client, error) {
			return perf.Dial(ctx, a, perf.ClientConfig{EP: traffic.RDM, Sec: traffic.Off, Timeout: 5 * time.Second})
		},
	}
}

func pair(t *testing.T, m *record.Mesh, from, to int) *record.MeshPair {
	t.Helper()
	i := slices.IndexFunc(m.Pairs, func(p record.MeshPair) bool { return p.From == from && p.To == to })
	if i < 0 {
		t.Fatalf("no pair %d to %d in %+v", from, to, m.Pairs)
	}
	return &m.Pairs[i]
}

// Every pair of hosts that take part is measured both ways; a host without --mesh and one that
// is not there say why they are not.
func TestMesh(t *testing.T) {
	var hosts []Host
	for range 3 {
		h, _ := serve(t, true)
		hosts = append(hosts, h)
	}
	shy, _ := serve(t, false)
	gone, stop := serve(t, true)
	stop()
	last := 0
	cfg := config(Mesh, append(hosts, shy, gone)...)
	cfg.Progress = func(done, of int) {
		if last = done; of != 6 {
			t.Errorf("%d of %d", done, of)
		}
	}
	run, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := run.Mesh
	if len(m.Pairs) != 20 || last != 6 || !m.Failed() {
		t.Fatalf("%d pairs, %d done: %+v", len(m.Pairs), last, m.Pairs)
	}
	for _, p := range m.Pairs {
		if p.From >= 3 || p.To >= 3 { // shy and gone
			if !strings.HasSuffix(p.Error, " takes no part") || p.GoodputBPS != nil {
				t.Errorf("%+v", p)
			}
			continue
		}
		if p.Error != "" || p.Latency == nil || p.Latency.P50 <= 0 || p.Latency.RTT || p.GoodputBPS == nil || *p.GoodputBPS <= 0 || p.Wrong != 0 {
			t.Errorf("%+v", p)
		}
	}
	for i, h := range m.Hosts[:3] {
		// The clock is the same. Nothing is as exact as to be exact.
		if h.Error != "" || h.Host == nil || h.WithinNS <= 0 || max(h.AheadNS, -h.AheadNS) > h.WithinNS {
			t.Errorf("host %d: %+v", i, h)
		}
	}
	if e := m.Hosts[3].Error; !strings.Contains(e, "serve --mesh") {
		t.Errorf("without --mesh: %q", e)
	}
	if e := m.Hosts[4].Error; !strings.Contains(e, "nothing listens") && !strings.Contains(e, "no answer") {
		t.Errorf("not there: %q", e)
	}
	least := *m.Pairs[0].GoodputBPS
	for _, p := range m.Pairs {
		if p.GoodputBPS != nil {
			least = min(least, *p.GoodputBPS)
		}
	}
	if *run.GoodputBPS != least || run.Latency == nil || run.DataCheck.OK == 0 || run.DataCheck.Wrong != 0 || run.Transport.TxPkts == 0 || run.PeerTransport.TxPkts == 0 {
		t.Errorf("the whole: %+v", run)
	}
}

// All pairs of alltoall send at once, and the whole is their sum. The tests begin together.
func TestAlltoall(t *testing.T) {
	var hosts []Host
	for range 3 {
		h, _ := serve(t, true)
		hosts = append(hosts, h)
	}
	cfg := config(Alltoall, hosts...)
	run, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, p := range run.Mesh.Pairs {
		if p.Error != "" || p.GoodputBPS == nil || p.Latency != nil {
			t.Fatalf("%+v", p)
		}
		sum += *p.GoodputBPS
	}
	if m := run.Mesh; len(m.Pairs) != 6 || *run.GoodputBPS < 0.999*sum || *run.GoodputBPS > 1.001*sum || m.Jain == nil || m.ApartNS <= 0 || m.Failed() {
		t.Errorf("%+v: %v", m, *run.GoodputBPS)
	}
}

// Several hosts send to the first one.
func TestIncast(t *testing.T) {
	var hosts []Host
	for range 3 {
		h, _ := serve(t, true)
		hosts = append(hosts, h)
	}
	run, err := Run(context.Background(), config(traffic.Incast, hosts...))
	if err != nil {
		t.Fatal(err)
	}
	if m := run.Mesh; len(m.Pairs) != 2 || pair(t, m, 1, 0).GoodputBPS == nil || pair(t, m, 2, 0).GoodputBPS == nil || m.Failed() {
		t.Errorf("%+v", m)
	}
}

// A server without --mesh neither sends to others nor is sent to by a server, whoever asks.
func TestNoMesh(t *testing.T) {
	mesh, _ := serve(t, true)
	shy, _ := serve(t, false)
	cfg := config(Mesh)
	for _, c := range []struct{ from, to Host }{{shy, mesh}, {mesh, shy}} {
		cl, err := cfg.Dial(context.Background(), c.from.Addr)
		if err != nil {
			t.Fatal(err)
		}
		var met []*perf.Met
		err = cl.Together(context.Background(), []perf.Join{{ID: 5, Target: c.to.Addr, Spec: cfg.Bulk}}, time.Minute, func() {}, func(m *perf.Met) { met = append(met, m) })
		cl.Close()
		if err != nil || len(met) != 1 || met[0].ID != 5 || !strings.Contains(met[0].Error, "serve --mesh") || met[0].Run.Msgs != 0 {
			t.Errorf("%v to %v: %v, %+v", c.from, c.to, err, met)
		}
	}
}

// A host that ends in the middle fails its pairs, and the others go on.
func TestHostGoes(t *testing.T) {
	var hosts []Host
	var stop func()
	for range 3 {
		var h Host
		h, stop = serve(t, true)
		hosts = append(hosts, h)
	}
	cfg := config(Mesh, hosts...)
	cfg.AtOnce = 1
	cfg.Progress = func(int, int) { stop() }
	run, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ok := 0
	for _, p := range run.Mesh.Pairs {
		switch {
		case p.Error == "":
			ok++
		case p.From != 2 && p.To != 2:
			t.Errorf("%+v", p)
		case !strings.Contains(p.Error, "the server was stopped") && !strings.Contains(p.Error, "nothing listens"):
			t.Errorf("why: %q", p.Error)
		}
	}
	// Two pairs are without it, and one more may have been measured before.
	if host, bad, of := run.Mesh.Worst(); ok < 2 || ok > 3 || host != 2 || bad < 3 || of != 4 {
		t.Errorf("%d pairs measured; host %d has %d bad pairs of %d", ok, host, bad, of)
	}
}

// An interrupted test tells what it measured before.
func TestInterrupted(t *testing.T) {
	a, _ := serve(t, true)
	b, _ := serve(t, true)
	cfg := config(Mesh, a, b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg.Progress = func(int, int) { cancel() }
	run, err := Run(ctx, cfg)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if m := run.Mesh; pair(t, m, 0, 1).GoodputBPS == nil || pair(t, m, 1, 0).GoodputBPS != nil {
		t.Errorf("%+v", m.Pairs)
	}
}

// An interrupt in the middle of a test ends it at the servers, too, long before its time.
func TestInterruptedInTheMiddle(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	gone := make(chan struct{}, 4)
	var open atomic.Int32
	log := func(format string, args ...any) {
		switch said := fmt.Sprintf(format, args...); {
		case strings.Contains(said, " runs bw "):
			if open.Add(1) == 2 {
				cancel()
			}
		case strings.Contains(said, "says goodbye"):
			gone <- struct{}{}
		}
	}
	a, _ := serveWith(t, perf.ServerConfig{Mesh: true, Log: log})
	b, _ := serveWith(t, perf.ServerConfig{Mesh: true, Log: log})
	cfg := config(Alltoall, a, b)
	cfg.Bulk.Time = time.Hour
	run, err := Run(ctx, cfg)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, p := range run.Mesh.Pairs {
		if p.Error != "interrupted" {
			t.Errorf("%+v", p)
		}
	}
	for range 4 { // the coordinator at both, and each of both at the other
		<-gone
	}
}

// With nobody there is no result, and it is said why.
func TestNobody(t *testing.T) {
	a, _ := serve(t, false)
	b, _ := serve(t, true)
	if _, err := Run(context.Background(), config(Mesh, a, b)); err == nil || !strings.Contains(err.Error(), "serve --mesh") {
		t.Error(err)
	}
	if _, err := Run(context.Background(), config(traffic.Incast, a, b)); err == nil {
		t.Error("an incast without a receiver")
	}
}

// A tournament has every pair once, in rounds of pairs that share no host.
func TestTournament(t *testing.T) {
	for n := 2; n <= 9; n++ {
		var hosts []int
		for i := range n {
			hosts = append(hosts, 10*i)
		}
		seen := map[[2]int]int{}
		for _, round := range tournament(hosts) {
			busy := map[int]bool{}
			for _, p := range round {
				if busy[p[0]] || busy[p[1]] || p[0] == p[1] {
					t.Fatalf("%d hosts: round %v", n, round)
				}
				busy[p[0]], busy[p[1]] = true, true
				seen[[2]int{min(p[0], p[1]), max(p[0], p[1])}]++
			}
		}
		if len(seen) != n*(n-1)/2 {
			t.Errorf("%d hosts: %d pairs", n, len(seen))
		}
		for p, times := range seen {
			if times != 1 {
				t.Errorf("%d hosts: %v %d times", n, p, times)
			}
		}
	}
}

// At most AtOnce pairs are in a round, and all of them both ways.
func TestRounds(t *testing.T) {
	r := &run{cfg: &Config{Test: Mesh, AtOnce: 2}}
	seen := map[[2]int]bool{}
	for _, round := range r.rounds([]int{0, 1, 2, 3, 4, 5}) {
		if len(round) > 2 {
			t.Errorf("round %v", round)
		}
		for _, p := range round {
			seen[p] = true
		}
	}
	if len(seen) != 30 {
		t.Errorf("%d pairs", len(seen))
	}
}

// A slow link and a far one are found, if there are enough to hold them against.
func TestJudge(t *testing.T) {
	judged := func(n int) *record.Mesh {
		r := &run{cfg: &Config{Test: Mesh}, out: &record.Mesh{Hosts: make([]record.MeshHost, n)}, pairs: map[[2]int]*record.MeshPair{}}
		for a := range n {
			for b := range n {
				if a == b {
					continue
				}
				bw := 10e9
				p := &record.MeshPair{From: a, To: b, GoodputBPS: &bw, Latency: &record.Latency{P50: 10000}}
				if a == 1 && b == 2 {
					bw = 7e9
				}
				if a == 2 && b == 0 {
					p.Latency.P50 = 16000
				}
				r.pairs[[2]int{a, b}] = p
			}
		}
		r.judge()
		return r.out
	}
	m := judged(4)
	for _, p := range m.Pairs {
		if p.Slow != (p.From == 1 && p.To == 2) || p.Far != (p.From == 2 && p.To == 0) {
			t.Errorf("%+v", p)
		}
	}
	if m.MedianBPS != 10e9 || m.MedianNS != 10000 || m.Jain == nil || *m.Jain >= 1 || *m.Jain < 0.98 {
		t.Errorf("%+v", m)
	}
	if !slices.IsSortedFunc(m.Pairs, func(a, b record.MeshPair) int { return 10*(a.From-b.From) + a.To - b.To }) {
		t.Error("not in order")
	}
	for _, p := range judged(2).Pairs {
		if p.Slow || p.Far {
			t.Errorf("of two pairs: %+v", p)
		}
	}
}
