package fabric

import (
	"net/netip"
	"testing"
	"time"
)

// benchConfigs are the configurations that must be fast.
var benchConfigs = map[string]func(*Config){
	"wire":  func(*Config) {},
	"queue": toB(Line{Rate: 100e9, Delay: Duration(100 * time.Microsecond), ECN: &ECN{Min: 20000, Max: 80000}, Trim: &Trim{After: 150000}}),
	"rules": ruleA(
		Rule{Loss: 0.01, Match: Match{Kind: "data"}}, Rule{Burst: &Burst{Enter: 0.001, Leave: 0.2}}, Rule{Reorder: 0.01}, Rule{Duplicate: 0.01},
		Rule{Corrupt: 0.001}, Rule{Delay: Duration(time.Millisecond), Late: 0.01},
	),
	"all": func(c *Config) {
		c.Ports[0].From = Line{Rate: 100e9, Rules: []Rule{{Loss: 0.01}, {Reorder: 0.01}}}
		c.Spines = []Line{{Rate: 50e9, Delay: Duration(10 * time.Microsecond)}, {Rate: 50e9, Delay: Duration(10 * time.Microsecond)}}
		c.Ports[1].To = Line{Rate: 100e9, Delay: Duration(100 * time.Microsecond), Jitter: Duration(10 * time.Microsecond), ECN: &ECN{Min: 20000, Max: 80000}}
	},
}

// A feed gives the switch packets of many flows, one every 200 ns.
type feed struct {
	s   *Switch
	ips [][]byte
	now time.Duration
	i   int
	out int
}

func newFeed(t testing.TB, payload int, mod func(*Config)) *feed {
	s, err := New(twoPorts(mod))
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{s: s}
	for i := range 64 {
		f.ips = append(f.ips, pkt{psn: uint32(i), sport: uint16(50000 + i), payload: payload, dscp: 10, ecn: 2}.bytes())
	}
	return f
}

func (f *feed) step() {
	f.s.Receive(f.now, 0, f.ips[f.i%len(f.ips)])
	for {
		_, _, _, ok := f.s.Transmit(f.now)
		if !ok {
			break
		}
		f.out++
	}
	f.i++
	f.now += 200 * time.Nanosecond
}

func BenchmarkSwitch(b *testing.B) {
	for _, name := range []string{"wire", "queue", "rules", "all"} {
		b.Run(name, func(b *testing.B) {
			f := newFeed(b, 1400, benchConfigs[name])
			b.SetBytes(int64(len(f.ips[0])))
			b.ReportAllocs()
			for b.Loop() {
				f.step()
			}
			b.ReportMetric(float64(f.out)/b.Elapsed().Seconds(), "packets/s")
		})
	}
}

func TestNoAllocations(t *testing.T) {
	for name, mod := range benchConfigs {
		t.Run(name, func(t *testing.T) {
			f := newFeed(t, 1400, mod)
			for range 20000 {
				f.step() // until rings and pool have grown to their size
			}
			if n := testing.AllocsPerRun(20000, f.step); n != 0 {
				t.Errorf("%v allocations a packet", n)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	ip := pkt{psn: 1, payload: 1400}.bytes()
	var h hdr
	for b.Loop() {
		h.parse(ip, &DefaultClasses)
	}
}

func BenchmarkRoute(b *testing.B) {
	r := newRoutes(twoPorts().Ports)
	a := netip.MustParseAddr("198.18.17.9")
	for b.Loop() {
		r.find(a)
	}
}
