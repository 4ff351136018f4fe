package ses

import (
	"errors"
	"math"
	"sort"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file keeps the memory regions that peers may access, and decides which access is allowed
// (UE 3.4, RMA).

// Access is what peers may do with a region. It is a set of bits.
type Access uint8

// The bits of Access.
const (
	RemoteRead   Access = 1 << iota // FI_REMOTE_READ
	RemoteWrite                     // FI_REMOTE_WRITE
	RemoteAtomic                    // atomic operations, with RemoteWrite and, to fetch, RemoteRead
)

// Errors of Register.
var (
	ErrKey      = errors.New("ses: memory key with a reserved bit, or OPTIMIZED with an RKEY above 4095")
	ErrKeyInUse = errors.New("ses: another region has this memory key")
	ErrMemory   = errors.New("ses: region is empty, ends beyond the last address, counts what may come twice, or is durable for one use")
	ErrRegions  = errors.New("ses: too many regions")
)

// AllEndpoints as the Endpoint of a region means that it can be accessed through each endpoint.
const AllEndpoints EndpointID = math.MaxUint16

// A RegionConfig describes a region.
type RegionConfig struct {
	// Key is the name of the region, unique among the regions of an endpoint (R-MR-20). NewKey
	// draws one that cannot be guessed.
	Key uint64
	// Buf or Iov is the memory. Buf is ignored if Iov is not empty. Register borrows the slice
	// Iov; the bytes belong to the SES until Deregister returns.
	Buf []byte
	Iov [][]byte
	// Base is the address by which peers know the first byte: 0 where addresses are offsets into
	// the region, the virtual address with FI_MR_VIRT_ADDR.
	Base uint64
	// Access is what peers may do.
	Access Access
	// JobID, if not 0, is the only job that has access (R-MR-16).
	JobID uint32
	// Endpoint is the only endpoint through which the region can be accessed, or AllEndpoints.
	Endpoint EndpointID
	// Counts makes an EvRemoteWrite event of each write without header data, too, with Context
	// and without a place that anybody reserved (FI_RMA_EVENT).
	Counts bool
	// CountsReads makes an EvRemoteRead event of each read whose peer has all bytes, and of each
	// operation that returns old values.
	CountsReads bool
	// Persistent has what LevelCommit asks for made durable: each time an EvCommit is made.
	Persistent bool
	// SingleUse removes the region when the first access to it ends (FI_MR_SINGLE_USE).
	SingleUse bool
	// Context and Flags are returned in the events of the region.
	Context any
	Flags   uint64
}

// A Region is memory that peers may access. It lives from Register to Deregister.
type Region struct {
	RegionConfig
	parts  [][]byte
	starts []uint64 // offset of each part
	size   uint64
	serial uint64  // number of the region in its SES, from 1 on; 0: it was removed
	taken  bool    // SingleUse: a message accesses it
	other  *Region // the next one with the same key, of another endpoint
	loan   *loan   // that it is part of, nil if it was registered
	// The neighbours in their reach.
	before, after *Region
}

// Size is the length of the region in bytes.
func (g *Region) Size() uint64 { return g.size }

// Live reports whether the region can be accessed.
func (g *Region) Live() bool { return g.serial != 0 }

// regions holds the regions of all endpoints.
type regions struct {
	byKey  map[uint64]*Region // the first of those that have the key
	ofAll  reach              // those of AllEndpoints
	num    int                // of all
	serial uint64             // number of the youngest region
}

// Register makes memory accessible. Errors: ErrKey, ErrKeyInUse, ErrMemory, ErrRegions, ErrClosed.
func (s *SES) Register(cfg RegionConfig) (*Region, error) {
	g := &Region{RegionConfig: cfg, parts: cfg.Iov}
	if len(g.parts) == 0 {
		g.parts = [][]byte{cfg.Buf}
	}
	g.Buf, g.Iov = nil, nil
	g.parts = append([][]byte(nil), g.parts...)
	for _, p := range g.parts {
		g.starts = append(g.starts, g.size)
		g.size += uint64(len(p))
	}
	switch {
	case s.closed || s.ended || cfg.Endpoint != AllEndpoints && (s.endpoint(cfg.Endpoint) == nil || s.endpoint(cfg.Endpoint).closed):
		return nil, ErrClosed
	case !wire.MKeyValid(cfg.Key):
		return nil, ErrKey
	case g.size == 0 || g.Base+(g.size-1) < g.Base || (cfg.Counts || cfg.CountsReads) && cfg.Key&wire.MKeyIdempotent != 0 || cfg.Persistent && cfg.SingleUse:
		return nil, ErrMemory
	case s.reachOf(cfg.Endpoint).n >= s.cfg.MaxRegions:
		return nil, ErrRegions
	case s.hidden(cfg.Key, cfg.Endpoint):
		return nil, ErrKeyInUse
	}
	s.regions.serial++
	g.serial = s.regions.serial
	if s.byKey == nil {
		s.byKey = map[uint64]*Region{}
	}
	g.other, s.byKey[g.Key] = s.byKey[g.Key], g
	s.lastRegion = lastRegion{}
	s.reachOf(g.Endpoint).add(g)
	s.regions.num++
	return g, nil
}

// reachOf returns the list of the regions of an endpoint, or of all endpoints.
func (s *SES) reachOf(ep EndpointID) *reach {
	if ep == AllEndpoints {
		return &s.regions.ofAll
	}
	return &s.endpoint(ep).reach
}

// hidden reports whether a region of an endpoint, or of all, could not be told from one that has
// the same key. A small request does not name the resource index of the endpoint, so a key with OPTIMIZED is one for all
// endpoints of a JobID and PIDonFEP.
func (s *SES) hidden(key uint64, ep EndpointID) bool {
	for g := s.byKey[key]; g != nil; g = g.other {
		if g.Endpoint == ep || g.Endpoint == AllEndpoints || ep == AllEndpoints {
			return true
		}
		if a, b := s.endpoints[g.Endpoint], s.endpoints[ep]; key&wire.MKeyOptimized != 0 && a.JobID == b.JobID && a.PIDonFEP == b.PIDonFEP {
			return true
		}
	}
	return false
}

// Deregister removes a region. When it returns, no byte of it is read or written any more; the
// packets still to come of a message that accessed it are answered BAD_MKEY (R-MR-12).
func (s *SES) Deregister(g *Region) {
	if g.serial == 0 {
		return
	}
	before := (*Region)(nil)
	for h := s.byKey[g.Key]; h != g; h = h.other {
		before = h
	}
	switch {
	case before != nil:
		before.other = g.other
	case g.other != nil:
		s.byKey[g.Key] = g.other
	default:
		delete(s.byKey, g.Key)
	}
	s.reachOf(g.Endpoint).remove(g)
	s.regions.num--
	g.serial, g.parts, g.starts, g.other = 0, nil, nil, nil
	s.lastRegion = lastRegion{}
}

// Regions is the number of regions.
func (s *SES) Regions() int { return s.regions.num }

// closeRegions removes every region.
func (s *SES) closeRegions() {
	s.closeReach(&s.regions.ofAll)
	for _, e := range s.endpoints {
		s.closeReach(&e.reach)
	}
}

func (s *SES) closeReach(l *reach) {
	for l.first != nil {
		s.walked++
		s.Deregister(l.first)
	}
}

// NewKey draws a key for a region: one that no region has and nobody can guess (R-MR-04).
func (s *SES) NewKey() uint64 {
	for {
		k := s.cfg.Random()&(wire.MKeyVendor|wire.MKeyRKey) | wire.MKeyProvider
		if s.byKey[k] == nil && s.loans[k] == nil {
			return k
		}
	}
}

// region finds the region that the request r names for s.to, and checks that the whole message
// may access it in this way (S-RMA-01, S-RMA-03). It returns RCNull, or the answer and no region.
// The memory of the message begins at g.Offset(r).
func (s *SES) region(r *wire.ReqStd, want Access) (*Region, wire.RC) {
	g := s.lookRegion(r.Match, s.to.id)
	switch {
	case g == nil:
		return nil, wire.RCBadMKey
	case g.Access&want != want || g.JobID != 0 && g.JobID != r.JobID:
		return nil, wire.RCPermViolation
	case !g.holds(r.BufOff, uint64(r.ReqLen)):
		return nil, wire.RCBadAddr
	}
	return g, wire.RCNull
}

// lookRegion finds the region that a key names for an endpoint, nil if there is none.
func (s *SES) lookRegion(key uint64, ep EndpointID) *Region {
	if l := &s.lastRegion; l.region != nil && l.region.Key == key && l.ep == ep {
		return l.region
	}
	g := s.byKey[key]
	for g != nil && g.Endpoint != AllEndpoints && g.Endpoint != ep {
		g = g.other
	}
	s.lastRegion = lastRegion{g, ep}
	return g
}

// A lastRegion is what lookRegion found last.
type lastRegion struct {
	region *Region // nil: none, or regions have changed since
	ep     EndpointID
}

// holds reports whether the n bytes at an address are in the region. No bytes are in it also at
// its end.
func (g *Region) holds(addr, n uint64) bool {
	off := addr - g.Base
	return addr >= g.Base && off <= g.size && n <= g.size-off
}

// Offset is where in the region the memory of a request begins, for which region returned it.
func (g *Region) Offset(r *wire.ReqStd) uint64 { return r.BufOff - g.Base }

// write copies data to offset off of the region.
func (g *Region) write(off uint64, data []byte) {
	g.each(off, uint64(len(data)), func(p []byte) { data = data[copy(p, data):] })
}

// Append appends n bytes at offset off of the region to b.
func (g *Region) Append(b []byte, off, n uint64) []byte {
	g.each(off, n, func(p []byte) { b = append(b, p...) })
	return b
}

// each calls f for the memory that the n bytes at offset off are in, in order. It panics if they
// are not all in the region.
func (g *Region) each(off, n uint64, f func([]byte)) {
	if off > g.size || n > g.size-off {
		panic("BUG: ses: access outside of a region")
	}
	i := 0
	if len(g.starts) > 1 {
		i = sort.Search(len(g.starts), func(i int) bool { return g.starts[i] > off }) - 1
	}
	for ; n > 0; i++ {
		p := g.parts[i][off-g.starts[i]:]
		p = p[:min(uint64(len(p)), n)]
		f(p)
		off += uint64(len(p))
		n -= uint64(len(p))
	}
}
