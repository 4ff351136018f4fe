package fabric

import (
	"math"
	"net/netip"
	"testing"
)

func TestRouteLongestPrefix(t *testing.T) {
	p := func(s ...string) (out []netip.Prefix) {
		for _, s := range s {
			out = append(out, netip.MustParsePrefix(s))
		}
		return
	}
	rs := newRoutes([]Port{
		{Addrs: p("198.18.0.0/15", "::/0")},
		{Addrs: p("198.18.16.0/24", "2001:db8::/32")},
		{Addrs: p("198.18.16.7/32", "2001:db8:1::1/128", "198.18.32.0/20")},
	})
	for a, want := range map[string]int32{
		"198.18.1.1": 0, "198.19.255.255": 0, "198.18.16.1": 1, "198.18.16.7": 2, "198.18.47.255": 2, "198.18.48.0": 0, "198.20.0.0": -1, "10.0.0.1": -1,
		"fe80::1": 0, "2001:db8:1::2": 1, "2001:db8:1::1": 2,
	} {
		if got := rs.find(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s leads to port %d, want %d", a, got, want)
		}
	}
}

func TestNoRoute(t *testing.T) {
	r := newRig(t)
	ip := udpPacket(netip.AddrPortFrom(hostA[0], 1), netip.MustParseAddrPort("10.1.2.3:5"), 0, []byte("x"), false)
	r.send(ip)
	r.run(0)
	if st := r.s.Stats(0); st.Whys["no_route"] != 1 || st.Lines["a.from"].Whys["no_route"] != 1 || st.Lines["a.from"].Packets != 0 || len(r.out) != 0 {
		t.Errorf("%+v", st)
	}
}

func spines(n int) func(*Config) {
	return func(c *Config) { c.Spines = make([]Line, n) }
}

// A flow stays on its spine. Many flows spread evenly, whichever part of them differs, for
// any seed.
func TestECMP(t *testing.T) {
	const n, flows = 5, 6000
	var s *Switch
	pick := func(seed uint64, src, dst netip.AddrPort) int32 {
		c := twoPorts(spines(n))
		c.Seed = seed
		if s == nil || s.seed != seed {
			var err error
			if s, err = New(c); err != nil {
				t.Fatal(err)
			}
		}
		p := &packet{hdr: hdr{src: src, dst: dst, v6: src.Addr().Is6()}}
		k := s.choose(p)
		if k < 0 || k >= n || s.choose(p) != k {
			t.Fatalf("spine %d", k)
		}
		return k
	}
	for name, flow := range map[string]func(i int) int32{
		"source ports": func(i int) int32 {
			return pick(1, netip.AddrPortFrom(hostA[0], uint16(i)), netip.AddrPortFrom(hostB[0], 4793))
		},
		"destination ports": func(i int) int32 {
			return pick(1, netip.AddrPortFrom(hostA[1], 4793), netip.AddrPortFrom(hostB[1], uint16(i)))
		},
		"both ports": func(i int) int32 {
			return pick(1, netip.AddrPortFrom(hostA[0], uint16(i)), netip.AddrPortFrom(hostB[0], uint16(i)))
		},
		"v4 addresses": func(i int) int32 {
			return pick(1, netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 4793), netip.AddrPortFrom(hostB[0], 4793))
		},
		"v6 addresses": func(i int) int32 {
			a := hostA[1].As16()
			a[3], a[15] = byte(i>>8), byte(i)
			return pick(1, netip.AddrPortFrom(hostB[1], 4793), netip.AddrPortFrom(netip.AddrFrom16(a), 4793))
		},
		"seeds": func(i int) int32 {
			return pick(uint64(i), netip.AddrPortFrom(hostA[0], 4793), netip.AddrPortFrom(hostB[0], 4793))
		},
	} {
		var got [n]int
		for i := range flows {
			got[flow(i)]++
		}
		within(t, name, got[:], flows/n)
	}
}

// within checks counts of independent trials against their mean, with five standard
// deviations.
func within(t *testing.T, name string, got []int, mean float64) {
	t.Helper()
	for i, k := range got {
		if math.Abs(float64(k)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("%s: %d of %d is %d, want about %.0f: %v", name, i, len(got), k, mean, got)
			return
		}
	}
}
