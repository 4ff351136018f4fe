package ses

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/uetkit/uetkit/transport/wire"
)

// region registers memory for all endpoints.
func (g *rig) region(cfg RegionConfig) *Region {
	g.t.Helper()
	if cfg.Endpoint == 0 {
		cfg.Endpoint = AllEndpoints
	}
	r, err := g.Register(cfg)
	if err != nil {
		g.t.Fatalf("Register: %v", err)
	}
	return r
}

// access is a request of n bytes at an address, and what the table says to it.
func (g *rig) access(key, addr uint64, n uint32, want Access) (*Region, wire.RC) {
	return g.SES.region(&wire.ReqStd{Match: key, BufOff: addr, ReqLen: n, JobID: g.cfg.JobID}, want)
}

func TestRegionBoundsOracle(t *testing.T) {
	// S-RMA-03: buffer_offset + request_length is compared with the region in integers that
	// cannot overflow.
	g := newRig(t)
	const top = ^uint64(0)
	edges := []uint64{0, 1, 63, 64, 65, 1 << 31, 1<<32 - 1, 1 << 32, 1 << 63, top - 65, top - 64, top - 63, top - 1, top}
	rng := rand.New(rand.NewPCG(1, 2))
	near := func(v uint64) uint64 { return v + uint64(rng.IntN(7)) - 3 }
	for range 200 {
		size := uint64(1 + rng.IntN(200))
		base := near(edges[rng.IntN(len(edges))])
		if base+size-1 < base {
			base -= size // Register refuses a region beyond the last address
		}
		reg := g.region(RegionConfig{Key: 7, Base: base, Buf: make([]byte, size), Access: RemoteWrite})
		starts := append([]uint64{base, base + size, base + size - 1, base - 1}, edges...)
		for range 400 {
			addr := near(starts[rng.IntN(len(starts))])
			n := uint32(near(edges[rng.IntN(7)]))
			if rng.IntN(2) == 0 {
				n = uint32(near(size))
			}
			b := func(v uint64) *big.Int { return new(big.Int).SetUint64(v) }
			end := b(addr)
			end.Add(end, b(uint64(n)))
			limit := b(base)
			limit.Add(limit, b(size))
			inside := b(addr).Cmp(b(base)) >= 0 && end.Cmp(limit) <= 0
			got, rc := g.access(7, addr, n, RemoteWrite)
			if (got == reg) != inside || (rc == wire.RCNull) != inside || !inside && rc != wire.RCBadAddr {
				t.Fatalf("region of %d at %#x, %d bytes at %#x: %v %v, inside is %v", size, base, n, addr, got != nil, rc, inside)
			}
		}
		g.Deregister(reg)
	}
}

func TestRegionAnswers(t *testing.T) {
	// S-RMA-01: key, rights and job, bounds, in this order.
	g := newRig(t)
	g.region(RegionConfig{Key: 1, Buf: make([]byte, 100), Access: RemoteRead})
	g.region(RegionConfig{Key: 2, Buf: make([]byte, 100), Access: RemoteRead | RemoteWrite, JobID: g.cfg.JobID + 1})
	g.region(RegionConfig{Key: 3, Buf: make([]byte, 100), Access: RemoteWrite, JobID: g.cfg.JobID})
	for _, c := range []struct {
		name      string
		key, addr uint64
		n         uint32
		access    Access
		want      wire.RC
	}{
		{"unknown key", 4, 0, 1000, RemoteRead, wire.RCBadMKey},
		{"R-MR-01 write to what may be read", 1, 0, 1000, RemoteWrite, wire.RCPermViolation},
		{"R-MR-01 read of what may be written", 3, 0, 1000, RemoteRead, wire.RCPermViolation},
		{"R-MR-16 another job", 2, 0, 1000, RemoteWrite, wire.RCPermViolation},
		{"too long", 3, 1, 100, RemoteWrite, wire.RCBadAddr},
		{"all", 3, 0, 100, RemoteWrite, wire.RCNull},
		{"nothing, at the end", 3, 100, 0, RemoteWrite, wire.RCNull},
		{"nothing, behind the end", 3, 101, 0, RemoteWrite, wire.RCBadAddr},
	} {
		if _, rc := g.access(c.key, c.addr, c.n, c.access); rc != c.want {
			t.Errorf("%s: %v, want %v", c.name, rc, c.want)
		}
	}
}

func TestRegionRefused(t *testing.T) {
	g := newRig(t, func(c *Config) { c.MaxRegions = 3 })
	buf := make([]byte, 100)
	second, err := g.Open(EndpointConfig{Identity: Identity{JobID: g.cfg.JobID, RI: 3}})
	if err != nil {
		t.Fatal(err)
	}
	g.region(RegionConfig{Key: 1, Buf: buf})
	g.region(RegionConfig{Key: 2, Buf: buf, Endpoint: second})
	for _, c := range []struct {
		name string
		cfg  RegionConfig
		want error
	}{
		{"R-MR-05 reserved bit", RegionConfig{Key: 1 << 56, Buf: buf, Endpoint: AllEndpoints}, ErrKey},
		{"R-MR-05 optimized, long RKEY", RegionConfig{Key: wire.MKeyOptimized | 4096, Buf: buf, Endpoint: AllEndpoints}, ErrKey},
		{"R-MR-06 same key", RegionConfig{Key: 1, Buf: buf, Endpoint: AllEndpoints}, ErrKeyInUse},
		{"R-MR-06 key of all endpoints", RegionConfig{Key: 1, Buf: buf, Endpoint: second}, ErrKeyInUse},
		{"R-MR-06 key of one endpoint", RegionConfig{Key: 2, Buf: buf, Endpoint: AllEndpoints}, ErrKeyInUse},
		{"R-MR-11 empty", RegionConfig{Key: 3, Endpoint: AllEndpoints}, ErrMemory},
		{"beyond the last address", RegionConfig{Key: 3, Buf: buf, Base: ^uint64(0) - 98, Endpoint: AllEndpoints}, ErrMemory},
		{"R-MR-09 counts what may come twice", RegionConfig{Key: wire.MKeyIdempotent | 3, Buf: buf, Counts: true, Endpoint: AllEndpoints}, ErrMemory},
		{"unknown endpoint", RegionConfig{Key: 3, Buf: buf, Endpoint: 7}, ErrClosed},
	} {
		if r, err := g.Register(c.cfg); err != c.want || r != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	g.region(RegionConfig{Key: wire.MKeyOptimized | 4095, Buf: buf, Base: ^uint64(0) - 99})
	g.region(RegionConfig{Key: 3, Buf: buf})
	if _, err := g.Register(RegionConfig{Key: 4, Buf: buf, Endpoint: AllEndpoints}); err != ErrRegions {
		t.Errorf("fourth region of all endpoints: %v", err)
	}
	if g.Regions() != 4 { // one is of an endpoint, which has a number of its own
		t.Errorf("%d regions", g.Regions())
	}
	g.CloseEndpoint(second)
	if g.Regions() != 3 {
		t.Errorf("%d regions after the endpoint of one closed", g.Regions())
	}
	g.CancelAll()
	if g.Regions() != 0 {
		t.Errorf("%d regions after CancelAll", g.Regions())
	}
	if _, err := g.Register(RegionConfig{Key: 4, Buf: buf, Endpoint: AllEndpoints}); err != ErrClosed {
		t.Errorf("after CancelAll: %v", err)
	}
}

func TestOptimizedKeyOfOneEndpoint(t *testing.T) {
	// S-HDR-03: the small header names a region by its RKEY, JobID and PIDonFEP alone.
	g := newRig(t)
	same, _ := g.Open(EndpointConfig{Identity: Identity{JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: 3}})
	other, _ := g.Open(EndpointConfig{Identity: Identity{JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP + 1, RI: 3}})
	buf := make([]byte, 10)
	for _, c := range []struct {
		key  uint64
		ep   EndpointID
		want error
	}{{7, 0, nil}, {7, other, nil}, {7, same, ErrKeyInUse}, {8, same, nil}} {
		if _, err := g.Register(RegionConfig{Key: wire.MKeyOptimized | c.key, Buf: buf, Endpoint: c.ep}); err != c.want {
			t.Errorf("key %d of endpoint %d: %v, want %v", c.key, c.ep, err, c.want)
		}
	}
}

func TestSmallRequestMeansTheKeyOfItsMode(t *testing.T) {
	// S-HDR-03: the region whose key allows RUDI is of an endpoint before the other. A small request by RUD means the other.
	g := newRig(t)
	second, _ := g.Open(EndpointConfig{Identity: Identity{JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: 3}})
	var mem [2][8]byte
	for i, c := range []RegionConfig{{Key: optKey | wire.MKeyIdempotent, Endpoint: 0}, {Key: optKey, Endpoint: second}} {
		c.Buf, c.Access = mem[i][:], RemoteWrite
		if _, err := g.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	r := wire.ReqSmall{Opcode: wire.OpWrite, Flags: single, ReqLen: 1, JobID: g.cfg.JobID, PIDonFEP: g.cfg.PIDonFEP, RI: 0x123}
	if got := answer(g.Request(&srcA, wire.NextReqSmall, append(r.Append(nil), 7))); got != "default OK 1" || mem[0][0] != 0 || mem[1][0] != 7 {
		t.Errorf("%s, memory %v", got, mem)
	}
}

func TestRegionOfOneEndpoint(t *testing.T) {
	// R-MR-20: endpoints have key spaces of their own.
	g := newRig(t)
	second, _ := g.Open(EndpointConfig{Identity: Identity{JobID: g.cfg.JobID, RI: 3}})
	a, err := g.Register(RegionConfig{Key: 1, Buf: make([]byte, 10), Access: RemoteWrite, Endpoint: 0})
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.Register(RegionConfig{Key: 1, Buf: make([]byte, 10), Access: RemoteWrite, Endpoint: second})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := g.access(1, 0, 10, RemoteWrite); got != a {
		t.Error("endpoint 0 did not get its region")
	}
	g.to = g.endpoint(second)
	if got, _ := g.access(1, 0, 10, RemoteWrite); got != b {
		t.Error("the second endpoint did not get its region")
	}
	g.Deregister(b)
	if _, rc := g.access(1, 0, 10, RemoteWrite); rc != wire.RCBadMKey {
		t.Errorf("a region of another endpoint: %v", rc)
	}
	if a.Live() == b.Live() {
		t.Error("Live")
	}
	g.Deregister(b) // a second time does nothing
	if g.Regions() != 1 {
		t.Errorf("%d regions", g.Regions())
	}
}

func TestRegionIov(t *testing.T) {
	// Memory in several parts is one run of bytes, with guards that stay as they are.
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var iov, guarded [][]byte
		size := 0
		for range 1 + rng.IntN(6) {
			n := rng.IntN(20)
			b := bytes.Repeat([]byte{0xee}, n+16)
			guarded, iov = append(guarded, b), append(iov, b[8:8+n])
			size += n
		}
		if size == 0 {
			continue
		}
		r, err := newRig(t).Register(RegionConfig{Iov: iov})
		if err != nil {
			t.Fatal(err)
		}
		model := r.Append(nil, 0, uint64(size))
		for range 50 {
			off := rng.IntN(size + 1)
			n := rng.IntN(size - off + 1)
			data := pattern(n + rng.IntN(3))[:n]
			r.write(uint64(off), data)
			copy(model[off:], data)
			if got := r.Append([]byte("x"), uint64(off), uint64(n)); !bytes.Equal(got[1:], data) {
				t.Fatalf("Append at %d: %x, want %x", off, got[1:], data)
			}
		}
		wantBytes(t, r.Append(nil, 0, uint64(size)), model)
		for _, b := range guarded {
			if !bytes.Equal(b[:8], bytes.Repeat([]byte{0xee}, 8)) || !bytes.Equal(b[len(b)-8:], bytes.Repeat([]byte{0xee}, 8)) {
				t.Fatalf("guard of %x", b)
			}
		}
	}
}

func TestNewKey(t *testing.T) {
	// R-MR-04: keys of the provider have a valid layout and the mark that keys of users lack.
	g := newRig(t)
	seen := map[uint64]bool{}
	for range 1000 {
		k := g.NewKey()
		if !wire.MKeyValid(k) || k&wire.MKeyProvider == 0 || k&(wire.MKeyOptimized|wire.MKeyIdempotent) != 0 || seen[k] {
			t.Fatalf("key %#x", k)
		}
		seen[k] = true
	}
}

func BenchmarkRegionWrite(b *testing.B) {
	s := New(testConfig())
	r, _ := s.Register(RegionConfig{Key: 1, Buf: make([]byte, 1<<16), Access: RemoteWrite, Endpoint: AllEndpoints})
	data := pattern(4096)
	b.ReportAllocs()
	b.SetBytes(4096)
	for i := 0; b.Loop(); i++ {
		r.write(uint64(i*4096)&(1<<16-1), data)
	}
}
