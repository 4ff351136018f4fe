package soak

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on loopback.
func serve(t *testing.T) (addr netip.AddrPort, stop func()) {
	t.Helper()
	s, err := perf.NewServer(perf.ServerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), AnyPort: true})
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
	return s.Addrs()[0], stop
}

func base(ep string, d time.Duration) traffic.Spec {
	return traffic.Spec{EP: ep, Sec: traffic.Off, Mode: "rud", Complete: "transmit", Progress: "auto", CRC: true, CC: "nscc", GSO: "auto", Seed: 11, Time: d, PeerTimeout: 8 * time.Second, Parallel: 1}
}

func config(addr netip.AddrPort, ep string, d time.Duration, faults *relay.Faults) Config {
	return Config{
		Mix: traffic.Mix{Base: base(ep, d), Sizes: []int64{0, 1, 1000, 20000, 64 << 10}, Impaired: faults != nil, Accesses: true, Datagrams: faults == nil},
		Dial: func(ctx context.Context) (*perf.Client, error) {
			return perf.Dial(ctx, addr, perf.ClientConfig{EP: ep, Impair: faults})
		},
	}
}

func TestSoak(t *testing.T) {
	for name, c := range map[string]struct {
		ep     string
		faults *relay.Faults
	}{
		"rdm": {traffic.RDM, nil}, "msg": {traffic.MSG, nil}, "lossy": {traffic.RDM, &relay.Faults{Loss: 0.01, Reorder: 0.01, Duplicate: 0.01, Corrupt: 0.005, Seed: 4}},
	} {
		t.Run(name, func(t *testing.T) {
			addr, _ := serve(t)
			cfg := config(addr, c.ep, 2*time.Second, c.faults)
			for first := ""; first != "off"; { // find a seed whose first test is without GSO
				cfg.Base.Seed++
				s := &soak{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Base.Seed, seedStream))}
				p, _ := s.cfg.Draw(s.rng, cfg.Base.Time)
				first = p.GSO
			}
			var news int
			gso := "not asked"
			cfg.News = func(st *Status) {
				if news++; st.Here.Heap <= 0 || st.There.Goroutines <= 0 {
					t.Errorf("%+v", st)
				}
				if st.Failed != nil {
					t.Errorf("%s: %v", st.FailedTest, st.Failed)
				}
			}
			// On a slow host it takes longer to run enough tests.
			var r record.Run
			for r.Soak == nil || r.Soak.Episodes < 3 && cfg.Base.Time < time.Minute {
				cfg.Ready = func(path record.Path, _ int) { gso = path.GSO.Why }
				news = 0
				var err error
				if r, err = Run(context.Background(), cfg); err != nil {
					t.Fatal(err)
				}
				cfg.Base.Time *= 2
			}
			if strings.Contains(gso, "Config") {
				t.Errorf("the path is that of a test which drew GSO: %q", gso)
			}
			x := r.Soak
			sum := int64(0)
			for _, n := range x.Kinds {
				sum += n
			}
			if x.Episodes < 3 || x.Failed != 0 || sum != x.Episodes || int64(news) != x.Episodes || len(r.Series) == 0 || r.Msgs == 0 {
				t.Errorf("%+v", r)
			}
			if n := len(x.Rounds); int64(n) != x.Episodes || x.Rounds[0].N != 1 || x.Rounds[n-1].N != int64(n) || !strings.Contains(x.Rounds[n-1].Command, " --seed ") || n > 1 && x.Rounds[1].AtNS < x.Rounds[0].DurationNS {
				t.Errorf("rounds %+v", x.Rounds)
			}
			if r.DataCheck.OK == 0 || r.DataCheck.Wrong != 0 || *r.Lost != 0 {
				t.Errorf("%+v, lost %d", r.DataCheck, *r.Lost)
			}
			if len(x.Leaks) < 4 || x.Leaking != 0 {
				t.Errorf("leaks %+v", x.Leaks)
			}
			if c.faults != nil && r.Transport.Rtx() == 0 {
				t.Error("nothing was sent again")
			}
		})
	}
}

// A soak with a pinned level has tests of that level alone, by the mode that is pinned.
func TestSoakOfALevel(t *testing.T) {
	addr, _ := serve(t)
	for _, level := range []string{"match", "commit"} {
		for _, mode := range []string{traffic.RUD, traffic.ROD} {
			t.Run(level+"/"+mode, func(t *testing.T) {
				if level == "commit" && runtime.GOOS != "linux" {
					t.Skip("durable writes need Linux")
				}
				cfg := config(addr, traffic.RDM, 600*time.Millisecond, nil)
				cfg.Complete, cfg.Mode = level, mode
				cfg.News = func(st *Status) {
					if st.Failed != nil {
						t.Errorf("%s: %v", st.FailedTest, st.Failed)
					}
				}
				r, err := Run(context.Background(), cfg)
				if err != nil || r.Soak.Episodes == 0 || r.Soak.Failed != 0 || r.DataCheck.OK == 0 || r.DataCheck.Wrong != 0 || *r.Lost != 0 {
					t.Fatalf("%v: %+v, %+v", err, r.Soak, r.DataCheck)
				}
				for _, x := range r.Soak.Rounds {
					if !strings.Contains(x.Command+" ", " --complete "+level+" ") || (mode == traffic.ROD) != strings.Contains(x.Command+" ", " --mode rod ") {
						t.Errorf("ran %s", x.Command)
					}
				}
			})
		}
	}
}

// If the server goes away the soak ends, with its results so far.
func TestSoakLosesTheServer(t *testing.T) {
	addr, stop := serve(t)
	cfg := config(addr, traffic.RDM, time.Hour, nil)
	n := 0
	cfg.News = func(*Status) {
		if n++; n == 1 {
			stop()
		}
	}
	begin := time.Now()
	r, err := Run(context.Background(), cfg)
	if err == nil || r.Soak.Episodes == 0 || r.Msgs == 0 {
		t.Errorf("%v, %+v", err, r.Soak)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %v: %v", d, err)
	}
}

func TestSoakInterrupted(t *testing.T) {
	addr, _ := serve(t)
	ctx, cancel := context.WithCancel(context.Background())
	cfg := config(addr, traffic.RDM, time.Hour, nil)
	cfg.News = func(*Status) { cancel() }
	r, err := Run(ctx, cfg)
	if !errors.Is(err, context.Canceled) || r.Error != "interrupted" || r.Soak.Failed != 0 || r.DataCheck.Wrong != 0 || *r.Lost != 0 || r.DataCheck.OK == 0 {
		t.Errorf("%v: %+v, %+v", err, r, r.Soak)
	}
}

// Every test that can be drawn can be run, and all kinds are drawn.
func TestDraw(t *testing.T) {
	for _, ep := range []string{traffic.RDM, traffic.MSG} {
		cfg := Config{Mix: traffic.Mix{Base: base(ep, time.Hour), Sizes: []int64{0, 1, 1000, 4 << 10, 1 << 20, 32 << 20}, Accesses: true, Datagrams: true}}
		s := &soak{cfg: cfg, rng: rand.New(rand.NewPCG(1, 2))}
		kinds, ops := map[string]int{}, map[string]int{}
		seeds := map[uint64]bool{}
		for range 20000 {
			p, kind := s.cfg.Draw(s.rng, time.Hour)
			if err := p.Validate(); err != nil {
				t.Fatalf("%v: %v", Words(&p), err)
			}
			kinds[kind]++
			ops[p.Op+" "+p.Mode]++
			if seeds[p.Seed] {
				t.Fatal("a seed came twice")
			}
			seeds[p.Seed] = true
			if n := max(p.Size, p.Reply) * int64(max(1, p.Window)*p.Parallel); n > 4*32<<20 {
				t.Errorf("%v needs %d bytes", Words(&p), n)
			}
		}
		want := map[string]int{traffic.RDM: 8, traffic.MSG: 7}[ep]
		if len(kinds) != want {
			t.Errorf("%s: %v, want %d kinds", ep, kinds, want)
		}
		// Messages and writedata, fadd, swap, cas by two modes each, write and read by three, datagrams by one.
		if want := map[string]int{traffic.RDM: 3*2 + 4*2 + 2*3 + 1, traffic.MSG: 3*2 + 4*2 + 2*3}[ep]; len(ops) != want {
			t.Errorf("%s: %v, want %d operations by mode", ep, ops, want)
		}
		for _, pin := range []traffic.Mix{{Mode: traffic.RUDI}, {Mode: traffic.UUD}, {Op: traffic.Swap}, {Complete: "commit"}, {Complete: "inject"}, {Complete: "match"}, {Complete: "match", Mode: traffic.ROD, Op: traffic.TSend}, {Complete: "commit", Mode: traffic.ROD}, {Op: traffic.Send}, {Mode: traffic.ROD, Op: traffic.Write}} {
			m := s.cfg.Mix
			m.Op, m.Mode, m.Complete = pin.Op, pin.Mode, pin.Complete
			if err := m.Check(); err != nil {
				if ep == traffic.MSG && m.Mode == traffic.UUD {
					continue
				}
				t.Fatal(err)
			}
			for range 500 {
				p, _ := m.Draw(s.rng, time.Hour)
				if err := p.Validate(); err != nil {
					t.Fatalf("%v: %v", Words(&p), err)
				}
				if m.Op != "" && p.Op != m.Op && p.Test != traffic.Incast && !(p.Op == traffic.TSend && m.Op == traffic.Inject) || m.Mode != "" && p.Mode != m.Mode || m.Complete != "" && p.Complete != m.Complete {
					t.Fatalf("%v is not what is pinned: %+v", Words(&p), pin)
				}
			}
		}
		s.cfg.Mode, s.cfg.Complete, s.cfg.Op, s.cfg.GSO, s.cfg.Paths, s.cfg.Base.Paths = "rod", "delivery", traffic.Send, "on", 3, 3
		for range 1000 {
			if p, _ := s.cfg.Draw(s.rng, time.Hour); p.Mode != "rod" || p.GSO != "on" || p.Paths != 3 || p.Complete != "delivery" || p.Op != traffic.Send && p.Test != traffic.Incast {
				t.Fatalf("%v is not what is pinned", Words(&p))
			}
		}
	}
}

// The record describes a bounded number of tests, however long a soak takes, and keeps
// those that failed.
func TestRoundsAreBounded(t *testing.T) {
	s := &soak{run: record.Run{Soak: &record.Soak{}}}
	const n = 3 * maxRounds
	for i := range int64(n) {
		if r := s.round(record.Round{N: i + 1}); i%1000 == 7 {
			r.Error = "lost"
		}
	}
	rounds := s.run.Soak.Rounds
	failed := 0
	for i, r := range rounds {
		if r.Error != "" {
			failed++
		}
		if i > 0 && r.N <= rounds[i-1].N {
			t.Fatal("out of order")
		}
	}
	if len(rounds) != maxRounds || failed != n/1000 || rounds[0].N != 8 || rounds[maxRounds-1].N != n {
		t.Errorf("%d rounds from %d to %d, %d failed", len(rounds), rounds[0].N, rounds[len(rounds)-1].N, failed)
	}
	for range n { // also if all of them fail
		s.round(record.Round{}).Error = "lost"
	}
	if len(s.run.Soak.Rounds) != maxRounds {
		t.Error("not bounded")
	}
}

func TestFound(t *testing.T) {
	one := int64(1)
	for want, r := range map[string]record.Run{
		"nothing was verified":      {},
		"1 of 6 messages were":      {DataCheck: &record.Check{OK: 5, Wrong: 1}},
		"1 messages were lost":      {DataCheck: &record.Check{OK: 5}, Lost: &one},
		"1 transactions failed, th": {DataCheck: &record.Check{OK: 5}, Errors: &one},
	} {
		if err := found(&r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := found(&record.Run{DataCheck: &record.Check{OK: 5}}); err != nil {
		t.Error(err)
	}
}

// Growth is distinguished from noise, from a high start, and from values that are not
// known.
func TestLeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n, mib = 400, 1 << 20
	for name, c := range map[string]struct {
		heap  func(i int) float64
		leaks bool
	}{
		"steady":         {func(int) float64 { return 20 * mib }, false},
		"noise":          {func(int) float64 { return 20*mib + 15*mib*rng.Float64() }, false},
		"warms up":       {func(i int) float64 { return 20*mib + 30*mib*math.Min(1, float64(i)/(n/5)) }, false},
		"shrinks":        {func(i int) float64 { return 60*mib - float64(i)*mib/10 }, false},
		"grows":          {func(i int) float64 { return 20*mib + float64(i)*mib/20 }, true},
		"grows, noise":   {func(i int) float64 { return 20*mib + float64(i)*mib/20 + 10*mib*rng.Float64() }, true},
		"grows within":   {func(i int) float64 { return 20*mib + float64(i)*mib/200 }, false},
		"grows, a tenth": {func(i int) float64 { return 400*mib + float64(i)*mib/20 }, false},
	} {
		var h usage
		for i := range n {
			h.add(time.Duration(i)*time.Second, perf.Resources{Heap: int64(c.heap(i)), RSS: -1, Goroutines: 10, FDs: 5})
		}
		leaks := h.leaks("client")
		if len(leaks) != 3 { // the resident set is not known
			t.Fatalf("%s: %+v", name, leaks)
		}
		for _, l := range leaks {
			if l.Leaks != (c.leaks && l.What == "heap") {
				t.Errorf("%s: %+v", name, l)
			}
		}
		if name == "grows" {
			if l := leaks[0]; math.Abs(l.Slope-3600*mib/20) > mib || math.Abs(l.Growth-0.75*n*mib/20) > mib {
				t.Errorf("%+v", l)
			}
		}
	}
	// A soak of 12 s on a busy host has 15 to 20 samples, of which a quarter is left out. Memory that gets its
	// size late makes steps there, and a closing endpoint a peak. A leak of a mebibyte a second is found.
	for name, c := range map[string]struct {
		heap  func(i int) float64 // in MiB
		leaks bool
	}{
		"a step":         {func(i int) float64 { return pick(i < 11, 7, 13.) }, false},
		"two steps":      {func(i int) float64 { return pick(i < 8, 7, pick(i < 14, 9.6, 13.)) }, false},
		"peaks":          {func(i int) float64 { return pick(i%6 == 5, 7+float64(i), 7.) }, false},
		"a peak at last": {func(i int) float64 { return pick(i < 17, 7, 40.) }, false},
		"1 MiB/s":        {func(i int) float64 { return 7 + 12*float64(i)/19 }, true},
		"1 MiB/s, noise": {func(i int) float64 { return 7 + 12*float64(i)/19 + rng.Float64() }, true},
		"1 MiB/s, peaks": {func(i int) float64 { return 7 + 12*float64(i)/19 + pick(i%6 == 5, 3, 0.) }, true},
		"1 MiB/s, step":  {func(i int) float64 { return 7 + 12*float64(i)/19 + pick(i < 9, 0, 2.6) }, true},
	} {
		var h usage
		for i := range 20 {
			h.add(time.Duration(i)*12*time.Second/19, perf.Resources{Heap: int64(c.heap(i) * mib), RSS: 30 << 20, Goroutines: 10, FDs: 5})
		}
		for _, l := range h.leaks("client") {
			if l.Leaks != (c.leaks && l.What == "heap") {
				t.Errorf("12 s, %s: %+v", name, l)
			}
		}
	}
	// There are too few samples to tell.
	var h usage
	for i := range LeastSamples {
		h.add(time.Duration(i)*time.Second, perf.Resources{Heap: int64(i) << 30, RSS: 1, Goroutines: 1, FDs: 1})
	}
	if l := h.leaks("x")[0]; l.Leaks || l.Samples >= LeastSamples {
		t.Errorf("%+v", l)
	}
}

// pick returns a if is, or else b.
func pick(is bool, a, b float64) float64 {
	if is {
		return a
	}
	return b
}

// The samples are bounded and cover all of the time, however long it takes.
func TestHeldIsBounded(t *testing.T) {
	var h usage
	const n = 100000
	for i := range n {
		h.add(time.Duration(i)*time.Second, perf.Resources{Heap: int64(i)})
	}
	if k := len(h.at); k > maxLooks || k < maxLooks/2 || h.at[0] != 0 || h.at[k-1] < (n-200)*time.Second {
		t.Errorf("%d samples, from %v to %v", k, h.at[0], h.at[k-1])
	}
	if l := h.leaks("x")[0]; math.Abs(l.Slope-3600) > 1 {
		t.Errorf("%+v", l)
	}
}
