// Package mesh measures between many hosts: the servers run the tests with each other, and one
// coordinator says which, compares their clocks, and gathers what they measured.
package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// The tests. Incast is traffic.Incast with senders on several hosts.
const (
	Mesh     = "mesh"     // every pair by itself: latency, then bandwidth
	Alltoall = "alltoall" // bandwidth of all pairs at once
)

const (
	// MaxHosts bounds the hosts of a test.
	MaxHosts = 128
	// slack is how long a test may take beyond its time.
	slack = 30 * time.Second
	// A link is slow if it carries less than slowBW of the median of all, or has a round trip of
	// more than slowLat times the median.
	slowBW, slowLat = 0.75, 1.5
	// fewest is from how many pairs on a median says what is usual.
	fewest = 6
)

// A Host is a server that takes part.
type Host struct {
	Name string // as the user gave it
	Addr netip.AddrPort
}

// A Config describes a test. Hosts of Incast are the receiver and then the senders.
type Config struct {
	Test  string
	Hosts []Host
	// Bulk is the test of bandwidth. Latency takes its settings, too.
	Bulk traffic.Spec
	// AtOnce is how many pairs of Mesh are measured at once; 0 means as many as share no host.
	AtOnce int
	// Dial opens a session with a host.
	Dial func(context.Context, netip.AddrPort) (*perf.Client, error)
	// Ready, if not nil, is called when all sessions are open, Progress for each pair that is done.
	Ready    func(*record.Mesh)
	Progress func(done, of int)
	// Going, if not nil, is called when a test of some pairs begins.
	Going func(State)
}

// A State is what goes on.
type State struct {
	Done, Of int
	// Test is what the pairs measure now, traffic.Lat or traffic.BW.
	Test  string
	Pairs [][2]int // indexes of hosts, the sender first
}

// A run is a test that goes on.
type run struct {
	cfg     *Config
	clients []*perf.Client // nil of a host that takes no part
	all     record.Run
	out     *record.Mesh // of all
	pairs   map[[2]int]*record.MeshPair
	mu      sync.Mutex // guards pairs and all
}

// Run runs a test. The result of one that could not be finished has what was measured before.
// It fails if no pair was measured.
func Run(ctx context.Context, cfg *Config) (*record.Run, error) {
	r := &run{cfg: cfg, clients: make([]*perf.Client, len(cfg.Hosts)), out: &record.Mesh{}, pairs: map[[2]int]*record.MeshPair{}}
	r.all = record.Run{Size: cfg.Bulk.Size, Mesh: r.out, PeerTransport: &record.Counters{}}
	if cfg.Bulk.Check {
		r.all.DataCheck = &record.Check{}
	}
	begin := time.Now()
	defer r.close()
	r.meet(ctx)
	if cfg.Ready != nil {
		cfg.Ready(r.out)
	}
	var here []int
	for i, c := range r.clients {
		if c != nil {
			here = append(here, i)
		}
	}
	rounds := r.rounds(here)
	for _, round := range rounds {
		for _, p := range round {
			r.pairs[p] = &record.MeshPair{From: p[0], To: p[1]}
		}
	}
	done := 0
	going := func(round [][2]int, spec traffic.Spec) {
		if cfg.Going != nil {
			cfg.Going(State{done, len(r.pairs), spec.Test, round})
		}
		r.together(ctx, round, spec)
	}
	for _, round := range rounds {
		if ctx.Err() != nil {
			break
		}
		if cfg.Test == Mesh {
			going(round, latency(cfg.Bulk))
		}
		going(round, cfg.Bulk)
		done += len(round)
		if cfg.Progress != nil {
			cfg.Progress(done, len(r.pairs))
		}
	}
	r.all.DurationNS = int64(time.Since(begin))
	r.judge()
	r.sum()
	if err := ctx.Err(); err != nil {
		return &r.all, err
	}
	return &r.all, r.verdict()
}

// latency is the test of latency that belongs to one of bandwidth.
func latency(s traffic.Spec) traffic.Spec {
	s.Test, s.Size, s.Window, s.Parallel, s.Warmup, s.Progress = traffic.Lat, record.MeshLatencySize, 0, 1, 100, "auto"
	return s
}

// meet opens the sessions and compares the clocks.
func (r *run) meet(ctx context.Context) {
	r.out.Hosts = make([]record.MeshHost, len(r.cfg.Hosts))
	var wg sync.WaitGroup
	for i, h := range r.cfg.Hosts {
		out := &r.out.Hosts[i]
		out.Name, out.Addr = h.Name, h.Addr.String()
		wg.Go(func() {
			c, err := r.cfg.Dial(ctx, h.Addr)
			if err == nil && !c.Meets() {
				c.Close()
				err = errors.New("its server takes no part in tests between servers: start it with `uetperf serve --mesh`")
			}
			if err == nil {
				var ahead, within time.Duration
				if ahead, within, err = c.Clock(ctx); err == nil {
					host := c.Host()
					out.Host, out.AheadNS, out.WithinNS = &host, int64(ahead), int64(within)
					r.clients[i] = c
					return
				}
				c.Close()
			}
			out.Error = oneLine(err)
		})
	}
	wg.Wait()
}

func (r *run) close() {
	var wg sync.WaitGroup
	for _, c := range r.clients {
		if c != nil {
			wg.Go(c.Close)
		}
	}
	wg.Wait()
}

// rounds says which pairs are measured at once: the first of a pair sends.
func (r *run) rounds(hosts []int) [][][2]int {
	var all [][2]int // at once
	switch r.cfg.Test {
	case Alltoall:
		for _, a := range hosts {
			for _, b := range hosts {
				if a != b {
					all = append(all, [2]int{a, b})
				}
			}
		}
		return [][][2]int{all}
	case traffic.Incast:
		for _, a := range hosts {
			if a != 0 && hosts[0] == 0 {
				all = append(all, [2]int{a, 0})
			}
		}
		return [][][2]int{all}
	}
	var out [][][2]int
	for _, round := range tournament(hosts) {
		for _, back := range []bool{false, true} {
			for some := range slices.Chunk(round, max(1, cmp.Or(r.cfg.AtOnce, len(round)))) {
				some = slices.Clone(some)
				for i := range some {
					if back {
						some[i][0], some[i][1] = some[i][1], some[i][0]
					}
				}
				out = append(out, some)
			}
		}
	}
	return out
}

// tournament returns every pair of hosts once, in rounds of pairs that share no host: all but
// one go round a circle.
func tournament(hosts []int) [][][2]int {
	const nobody = -1
	ring := slices.Clone(hosts)
	if len(ring)%2 != 0 {
		ring = append(ring, nobody)
	}
	n := len(ring)
	var out [][][2]int
	for range n - 1 {
		var round [][2]int
		for i := range n / 2 {
			if a, b := ring[i], ring[n-1-i]; a != nobody && b != nobody {
				round = append(round, [2]int{a, b})
			}
		}
		out = append(out, round)
		last := ring[n-1]
		copy(ring[2:], ring[1:n-1])
		ring[1] = last
	}
	return out
}

// together runs one test for several pairs at once. All that can be opened begin together.
func (r *run) together(ctx context.Context, pairs [][2]int, spec traffic.Spec) {
	by := map[int][]perf.Join{}
	of := map[int][2]int{}
	for i, p := range pairs {
		if r.failed(p) {
			continue
		}
		for _, host := range p { // one that is gone must not cost every pair its time
			if err := r.clients[host].Lost(); err != nil {
				r.pairs[p].Error = r.cfg.Hosts[host].Name + " was lost: " + oneLine(err)
			}
		}
		if r.failed(p) {
			continue
		}
		s := spec
		s.Seed += uint64(p[0])<<32 + uint64(p[1])
		by[p[0]] = append(by[p[0]], perf.Join{ID: i, Target: r.cfg.Hosts[p[1]].Addr, Spec: s})
		of[i] = p
	}
	var wg, open sync.WaitGroup
	open.Add(len(by))
	began := map[[2]int]time.Time{}
	for host, tests := range by {
		wg.Go(func() {
			ready := sync.OnceFunc(func() {
				open.Done()
				open.Wait()
			})
			defer ready()
			err := r.clients[host].Together(ctx, tests, spec.Time*2+slack, ready, func(m *perf.Met) {
				r.mu.Lock()
				defer r.mu.Unlock()
				p := of[m.ID]
				delete(of, m.ID)
				if m.Began != 0 {
					began[p] = time.Unix(0, m.Began-r.out.Hosts[host].AheadNS)
				}
				r.take(r.pairs[p], spec.Test, m)
			})
			if err != nil {
				why := oneLine(err)
				if ctx.Err() != nil {
					why = "interrupted"
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				for i, p := range of {
					if p[0] == host {
						delete(of, i)
						r.pairs[p].Error = why
					}
				}
			}
		})
	}
	wg.Wait()
	if len(began) > 1 {
		var first, last time.Time
		for _, t := range began {
			if first.IsZero() || t.Before(first) {
				first = t
			}
			if t.After(last) {
				last = t
			}
		}
		r.out.ApartNS = max(r.out.ApartNS, int64(last.Sub(first)))
	}
}

// failed reports whether nothing more can be measured of a pair.
func (r *run) failed(p [2]int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pairs[p].Error != ""
}

// take notes what a test of a pair measured.
func (r *run) take(p *record.MeshPair, test string, m *perf.Met) {
	if p.Error = m.Error; p.Error == "" && m.Run.Msgs == 0 {
		p.Error = "nothing was measured"
	}
	a, x := &r.all, &m.Run
	a.Msgs += x.Msgs
	a.Bytes += x.Bytes
	a.Transport.Add(&x.Transport)
	p.Rtx += x.Transport.Rtx()
	if x.PeerTransport != nil {
		a.PeerTransport.Add(x.PeerTransport)
		p.Rtx += x.PeerTransport.Rtx()
	}
	if d := x.DataCheck; d != nil && a.DataCheck != nil {
		a.DataCheck.Add(d)
		p.Wrong += d.Wrong
	}
	if p.Error != "" {
		return
	}
	if test == traffic.Lat {
		if p.Latency = x.Latency; p.Latency != nil {
			p.Latency.HDR = "" // of many pairs they would be long
		}
	} else {
		p.GoodputBPS = x.GoodputBPS
	}
}

// missing notes the pairs of hosts that take no part.
func (r *run) missing() {
	all := make([]int, len(r.cfg.Hosts))
	for i := range all {
		all[i] = i
	}
	for _, round := range r.rounds(all) {
		for _, p := range round {
			if r.pairs[p] != nil {
				continue
			}
			who := p[0]
			if r.out.Hosts[who].Error == "" {
				who = p[1]
			}
			r.pairs[p] = &record.MeshPair{From: p[0], To: p[1], Error: r.out.Hosts[who].Name + " takes no part"}
		}
	}
}

// judge puts the pairs in order and finds those that are slow.
func (r *run) judge() {
	m := r.out
	r.missing()
	for _, p := range r.pairs {
		m.Pairs = append(m.Pairs, *p)
	}
	slices.SortFunc(m.Pairs, func(a, b record.MeshPair) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	var bws, lats []float64
	for i := range m.Pairs {
		p := &m.Pairs[i]
		if p.GoodputBPS != nil {
			bws = append(bws, *p.GoodputBPS)
		}
		if p.Latency != nil {
			lats = append(lats, float64(p.Latency.P50))
		}
	}
	if j := traffic.Jain(bws); len(bws) > 1 && !math.IsNaN(j) {
		m.Jain = &j
	}
	bw, lat := median(bws), median(lats)
	m.MedianBPS, m.MedianNS = bw, lat
	for i := range m.Pairs {
		p := &m.Pairs[i]
		p.Slow = len(bws) >= fewest && p.GoodputBPS != nil && *p.GoodputBPS < slowBW*bw
		p.Far = len(lats) >= fewest && p.Latency != nil && float64(p.Latency.P50) > slowLat*lat
	}
}

// sum fills in what the run has of all pairs: see record.Run.Mesh.
func (r *run) sum() {
	a := &r.all
	for i := range r.out.Pairs {
		p := &r.out.Pairs[i]
		if p.Error != "" {
			continue
		}
		if l := p.Latency; l != nil && (a.Latency == nil || l.P50 > a.Latency.P50) {
			a.Latency = l
		}
		g := p.GoodputBPS
		switch {
		case g == nil:
		case a.GoodputBPS == nil:
			v := *g
			a.GoodputBPS = &v
		case r.cfg.Test == Mesh:
			*a.GoodputBPS = min(*a.GoodputBPS, *g)
		default:
			*a.GoodputBPS += *g
		}
	}
}

// verdict is the error of a test that ended in order.
func (r *run) verdict() error {
	ok, why := 0, ""
	for i := range r.out.Pairs {
		p := &r.out.Pairs[i]
		if p.Error == "" {
			ok++
		} else if r.out.Hosts[p.From].Error == "" && r.out.Hosts[p.To].Error == "" {
			why = fmt.Sprintf("%s to %s: %s", r.cfg.Hosts[p.From].Name, r.cfg.Hosts[p.To].Name, p.Error)
		}
	}
	if ok > 0 {
		return nil
	}
	for _, h := range r.out.Hosts {
		if why == "" && h.Error != "" {
			why = h.Name + ": " + h.Error
		}
	}
	return fmt.Errorf("no pair of hosts was measured: %s", cmp.Or(why, "there are not two"))
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
