package uet

import (
	crand "crypto/rand"
	"encoding/binary"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cntr"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// KeyNotAvail is the key of a region that is not registered yet (FI_KEY_NOTAVAIL, R-MR-13).
const KeyNotAvail = ^uint64(0)

// maxRegions is how many regions a domain may have, and a FEP of each endpoint.
const maxRegions = 1 << 16

// mrModes are the modes of registration that hints may ask for (R-INFO-08). Without them
// addresses are offsets and the application chooses the keys (R-MR-02).
const mrModes = fi.MRVirtAddr | fi.MRAllocated | fi.MRProvKey | fi.MRRMAEvent | fi.MREndpoint

// MRAttr describes memory to be registered (struct fi_mr_attr).
type MRAttr struct {
	// Iov is the memory, one run of bytes for peers. It belongs to the provider as well as to the
	// application until Close: peers read and write it at any time.
	Iov [][]byte
	// Access says what the memory may be used for: fi.RemoteRead and fi.RemoteWrite by peers;
	// fi.Send, fi.Recv, fi.Read and fi.Write here, which needs no registration and is allowed
	// (R-MR-01).
	Access fi.Flags
	// Offset must be 0 (R-MR-11).
	Offset uint64
	// RequestedKey is the key by which peers name the memory. With fi.MRProvKey all of it but
	// IdempotentKey is ignored. OptimizedKey with a number below 4,096 makes requests of one packet shorter.
	RequestedKey uint64
	// AuthKey is the only job that has access, in 3 or 4 bytes (R-MR-16); nil means any job that
	// reaches an endpoint of the domain.
	AuthKey []byte
	// Of is the region that this one is a part of (base_mr), if not nil: each part of Iov lies in one
	// of its parts. The part has key and rights of its own, and is closed first (R-MR-17).
	Of      *MR
	Context any
	// Persist makes n bytes of the memory, from the offset off on, survive a loss of power, for
	// fi.RMAPmem. It runs on a goroutine of its own, one call at a time. nil is msync, if Iov is memory
	// that is mapped from files and shared (Linux).
	Persist func(off, n uint64) error
}

// IdempotentKey is the bit of a key that says that the region may be accessed by RUDI: that a write or a
// read of it may be executed several times (IDEMPOTENT_SAFE, S-RUDI-02). Such accesses are not counted.
const IdempotentKey = wire.MKeyIdempotent

// OptimizedKey is the bit of a key whose RKEY is below 4,096, so that the small request header can name the
// region (OPTIMIZED, R-RMA-13). No other region with this bit may have that RKEY, or registration fails with
// fi.ENOKEY. Writes and reads of one packet without remote CQ data are 24 bytes shorter on the wire then, if
// the peer's address says that it takes such headers, as the address of a uet endpoint (Endpoint.Name) does in
// binary form. Socket addresses and text do not say. They take more time of the processors, as only requests
// with the standard header have short ways. Such keys are easy to guess.
const OptimizedKey = wire.MKeyOptimized

// An MR is memory that peers may access (fi_mr(3)). Peers reach it through each endpoint of its
// domain that has the capability fi.RMA, with fi.MREndpoint through those that it is bound to.
//
// Peers write while the application runs. The memory is there to be read after a completion
// that says so: one with remote CQ data here, a counter, or a message that the peer sent after
// its own completion. A Go program that looks at the memory without one has a data race.
type MR struct {
	domain  *Domain
	attr    MRAttr
	flags   fi.Flags
	key     uint64
	base    uint64
	job     uint32
	context any
	persist *persister // nil unless fi.RMAPmem

	// With domain.regions.mu held.
	enabled, closed bool
	subs            int         // regions that are parts of this one
	only            []*Endpoint // the endpoints it is bound to
	tally           *tally
	counted         fi.Flags // what it counts: fi.RemoteWrite, fi.RemoteRead
	reached         map[*Endpoint]*transport.Region
}

// regions are the regions and the endpoints of a domain that know each other. Its lock is
// taken before that of a driver.
type regions struct {
	mu        sync.Mutex
	mrs       map[uint64]*MR // by key
	endpoints []*Endpoint    // enabled, with fi.RMA
}

// RegMR makes buf accessible to peers (fi_mr_reg). See RegMRAttr.
func (d *Domain) RegMR(buf []byte, access fi.Flags, offset, key uint64, flags fi.Flags, ctx any) (*MR, error) {
	return d.RegMRAttr(&MRAttr{Iov: [][]byte{buf}, Access: access, Offset: offset, RequestedKey: key, Context: ctx}, flags)
}

// RegMRv is RegMR for memory in several parts (fi_mr_regv).
func (d *Domain) RegMRv(iov [][]byte, access fi.Flags, offset, key uint64, flags fi.Flags, ctx any) (*MR, error) {
	return d.RegMRAttr(&MRAttr{Iov: iov, Access: access, Offset: offset, RequestedKey: key, Context: ctx}, flags)
}

// RegMRAttr makes memory accessible to peers (fi_mr_regattr). It borrows attr. When it returns,
// peers may access the memory, unless fi.MREndpoint or fi.RMAEvent in flags says that Enable
// follows.
//
// With fi.RMAPmem in flags, peers can ask for what they write to be durable (fi.CommitComplete). With
// fi.MRSingleUse the key is good for one operation (R-MR-18); such a region needs fi.MREndpoint, and is
// bound to one endpoint.
//
// fi.EBADFLAGS: other flags, or fi.MRSingleUse with fi.RMAPmem or without fi.MREndpoint. fi.EOPNOTSUPP: fi.RMAPmem without Persist,
// and the memory is not of files or the system has no msync. fi.EINVAL: no memory, more than IovLimit parts, an
// offset, other access rights, an authorization key that is none, or memory that is not in
// attr.Of (R-MR-11). fi.EKEYREJECTED:
// the key has bits that users must not set (R-MR-05). fi.ENOKEY: another region has it (R-MR-06).
// fi.ENOSPC: DomainAttr.MRCnt regions are registered. fi.EBADF: the domain is closed.
func (d *Domain) RegMRAttr(attr *MRAttr, flags fi.Flags) (*MR, error) {
	const rights = fi.Send | fi.Recv | fi.Read | fi.Write | fi.RemoteRead | fi.RemoteWrite
	if attr == nil {
		return nil, errNoMRAttr
	}
	if flags&^(fi.RMAEvent|fi.RMAPmem|fi.MRSingleUse) != 0 ||
		flags&fi.MRSingleUse != 0 && (flags&fi.RMAPmem != 0 || d.attr.MRMode&fi.MREndpoint == 0) {
		return nil, errMRFlags
	}
	job, err := jobOf(attr.AuthKey)
	size := 0
	for _, b := range attr.Iov {
		size += len(b)
	}
	switch {
	case size == 0:
		return nil, errNoMemory
	case attr.Access&^rights != 0:
		return nil, errMRRights
	case len(attr.Iov) > IovLimit:
		return nil, errIov
	case err != nil || attr.Offset != 0:
		return nil, errMRAttr
	}
	m := &MR{domain: d, attr: *attr, flags: flags, job: job, context: attr.Context, reached: map[*Endpoint]*transport.Region{}}
	m.attr.Iov = slices.Clone(attr.Iov)
	if flags&fi.RMAPmem != 0 { // R-MR-19
		if m.persist, err = newPersister(&m.attr); err != nil {
			return nil, err
		}
	}
	if d.attr.MRMode&fi.MRVirtAddr != 0 {
		m.base = uint64(reflect.ValueOf(attr.Iov[0]).Pointer()) // R-MR-03
	}
	if err := d.adopt(); err != nil {
		return nil, err
	}
	d.regions.mu.Lock()
	defer d.regions.mu.Unlock()
	if of := attr.Of; of != nil {
		if of.domain != d || of.closed || !of.contains(attr.Iov) {
			d.release()
			return nil, fi.EINVAL
		}
	}
	if len(d.regions.mrs) >= min(orDefault(d.attr.MRCnt, maxRegions), maxRegions) {
		d.release()
		return nil, fi.ENOSPC
	}
	if m.key, err = d.regions.keyFor(m); err != nil {
		d.release()
		return nil, err
	}
	if attr.Of != nil {
		attr.Of.subs++
	}
	if d.regions.mrs == nil {
		d.regions.mrs = map[uint64]*MR{}
	}
	d.regions.mrs[m.key] = m
	if d.attr.MRMode&fi.MREndpoint == 0 && flags&fi.RMAEvent == 0 {
		if err := m.enable(); err != nil {
			m.remove()
			return nil, err
		}
	}
	return m, nil
}

// keyFor returns the key of a new region.
func (g *regions) keyFor(m *MR) (uint64, error) {
	if m.domain.attr.MRMode&fi.MRProvKey != 0 { // R-MR-04
		for {
			var b [8]byte
			_, _ = crand.Read(b[:]) // it never fails
			k := binary.BigEndian.Uint64(b[:])&(wire.MKeyVendor|wire.MKeyRKey) | wire.MKeyProvider | m.attr.RequestedKey&IdempotentKey
			if g.mrs[k] == nil {
				return k, nil
			}
		}
	}
	key := m.attr.RequestedKey
	switch {
	case !wire.MKeyValid(key) || key&wire.MKeyVendor != 0:
		return 0, fi.EKEYREJECTED
	case g.mrs[key] != nil:
		return 0, fi.ENOKEY
	}
	return key, nil
}

// Key is what peers name the region by (fi_mr_key): KeyNotAvail before Enable (R-MR-13).
func (m *MR) Key() uint64 {
	if m.domain == nil {
		return KeyNotAvail
	}
	m.domain.regions.mu.Lock()
	defer m.domain.regions.mu.Unlock()
	if !m.enabled {
		return KeyNotAvail
	}
	return m.key
}

// Base is the address by which peers know the first byte: 0, or with fi.MRVirtAddr its virtual
// address.
func (m *MR) Base() uint64 { return m.base }

// Desc is the local descriptor (fi_mr_desc). There is none to be given to a call.
func (m *MR) Desc() any { return nil }

// Context returns the context given at registration.
func (m *MR) Context() any { return m.context }

// Bind binds a region to an endpoint (fi_mr_bind, R-MR-07). fi.EINVAL: the domain has not
// fi.MREndpoint, or ep is nil. fi.EDOMAIN: ep is of another domain. fi.EBADFLAGS: flags other than
// 0. fi.EOPBADSTATE: the region is enabled. fi.EBADF: it is closed.
func (m *MR) Bind(ep *Endpoint, flags fi.Flags) error {
	if m.domain == nil {
		return fi.EBADF
	}
	g := &m.domain.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.closed:
		return fi.EBADF
	case ep == nil || m.domain.attr.MRMode&fi.MREndpoint == 0:
		return fi.EINVAL
	case ep.domain != m.domain:
		return fi.EDOMAIN
	case flags != 0:
		return fi.EBADFLAGS
	case m.enabled:
		return fi.EOPBADSTATE
	}
	m.only = append(m.only, ep)
	return nil
}

// BindCntr binds a counter that counts what peers write to the region (fi.RemoteWrite), what they read
// from it (fi.RemoteRead), or both (fi_mr_bind, R-MR-10).
//
// fi.EBADFLAGS: other flags, or none. fi.EINVAL: no counter, one is bound, the region
// was registered without fi.RMAEvent, or its key is IDEMPOTENT_SAFE, so that accesses may come
// twice (R-MR-09). fi.EDOMAIN: the counter is of another domain. fi.EOPBADSTATE: the region is
// enabled (R-MR-08). fi.EBADF: region or counter is closed.
func (m *MR) BindCntr(c *cntr.Counter, flags fi.Flags) error {
	if m.domain == nil {
		return fi.EBADF
	}
	g := &m.domain.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.closed:
		return fi.EBADF
	case flags&^(fi.RemoteWrite|fi.RemoteRead) != 0 || flags == 0:
		return fi.EBADFLAGS
	case m.enabled:
		return fi.EOPBADSTATE
	case c == nil || m.tally != nil || m.key&wire.MKeyIdempotent != 0 || m.flags&fi.RMAEvent == 0:
		return fi.EINVAL
	}
	if err := foreign(&m.domain.parent, c); err != nil {
		return err
	}
	counting := countingOf(c)
	if err := counting.Bind((*idleMR)(m)); err != nil {
		return err
	}
	m.tally, m.counted = &tally{c: c, counting: counting}, flags
	return nil
}

// An idleMR stands for the driver in the counter of a region. It does nothing: the counter is
// driven by the endpoints.
type idleMR MR

var _ door.Progress = (*idleMR)(nil)

func (*idleMR) Poll() bool   { return false }
func (*idleMR) Yield()       {}
func (*idleMR) Shared() bool { return false }
func (*idleMR) Arm()         {}
func (*idleMR) Disarm()      {}

// Enable makes a region accessible that was registered disabled (fi_mr_enable). fi.EOPBADSTATE:
// it is enabled, or fi.MREndpoint asks for an endpoint and none is bound, or several are and the region
// is for a single use. fi.EBADF: it is closed.
func (m *MR) Enable() error {
	if m.domain == nil {
		return fi.EBADF
	}
	g := &m.domain.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.closed:
		return fi.EBADF
	case m.enabled || m.domain.attr.MRMode&fi.MREndpoint != 0 && len(m.only) == 0, m.flags&fi.MRSingleUse != 0 && len(m.only) > 1:
		return fi.EOPBADSTATE
	}
	return m.enable()
}

// Refresh tells that the memory has changed its mapping (fi_mr_refresh). Go memory has not: it
// does nothing. fi.EINVAL: the parts are not those of the region. fi.EBADFLAGS: flags other than
// 0. fi.EBADF: the region is closed.
func (m *MR) Refresh(iov [][]byte, flags fi.Flags) error {
	if m.domain == nil {
		return fi.EBADF
	}
	m.domain.regions.mu.Lock()
	defer m.domain.regions.mu.Unlock()
	switch {
	case m.closed:
		return fi.EBADF
	case flags != 0:
		return fi.EBADFLAGS
	}
	if !m.contains(iov) {
		return fi.EINVAL
	}
	return nil
}

// contains reports whether each of some parts lies in a part of the region.
func (m *MR) contains(iov [][]byte) bool {
	for _, v := range iov {
		if !slices.ContainsFunc(m.attr.Iov, func(b []byte) bool { return within(v, b) }) {
			return false
		}
	}
	return true
}

// within reports whether v is a part of b.
func within(v, b []byte) bool {
	start, base := reflect.ValueOf(v).Pointer(), reflect.ValueOf(b).Pointer()
	return start >= base && start-base <= uintptr(len(b)) && uintptr(len(v)) <= uintptr(len(b))-(start-base)
}

// Close ends the access to the region (fi_close). When it returns, no byte of it is read or
// written any more: what peers do later, or had begun, fails there with fi.EKEYREJECTED
// (R-MR-12). fi.EBADF: it is closed. fi.EBUSY: regions that are parts of it are open (R-MR-17).
func (m *MR) Close() error {
	if m.domain == nil {
		return fi.EBADF
	}
	g := &m.domain.regions
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case m.closed:
		return fi.EBADF
	case m.subs > 0:
		return fi.EBUSY
	}
	m.disable()
	if m.tally != nil {
		m.tally.counting.Unbind((*idleMR)(m))
	}
	if m.persist != nil {
		m.persist.close()
	}
	m.remove()
	return nil
}

// remove takes the region from the domain.
func (m *MR) remove() {
	m.closed = true
	if m.attr.Of != nil {
		m.attr.Of.subs--
	}
	delete(m.domain.regions.mrs, m.key)
	m.domain.release()
}

// enable makes the region accessible through the endpoints of the domain, all or none.
func (m *MR) enable() error {
	m.enabled = true
	for _, ep := range m.domain.regions.endpoints {
		if err := m.join(ep); err != nil {
			m.disable()
			return err
		}
	}
	return nil
}

// disable ends the access to the region.
func (m *MR) disable() {
	m.enabled = false
	for _, ep := range m.domain.regions.endpoints {
		m.leave(ep)
	}
}

// join makes the region accessible through an endpoint.
func (m *MR) join(ep *Endpoint) (err error) {
	if !m.enabled || m.domain.attr.MRMode&fi.MREndpoint != 0 && !slices.Contains(m.only, ep) {
		return nil
	}
	cfg := transport.RegionConfig{
		Key: m.key, Iov: m.attr.Iov, Base: m.base, JobID: m.job, Endpoint: transport.AllEndpoints, Context: m, Flags: opRemote,
		Counts:      m.counted&fi.RemoteWrite != 0 || ep.cntrs.remoteWrite != nil,
		CountsReads: m.counted&fi.RemoteRead != 0 || ep.cntrs.remoteRead != nil,
		SingleUse:   m.flags&fi.MRSingleUse != 0,
	}
	if m.attr.Access&fi.RemoteRead != 0 && ep.rmaCaps&fi.RemoteRead != 0 {
		cfg.Access |= transport.RemoteRead
	}
	if m.attr.Access&fi.RemoteWrite != 0 && ep.rmaCaps&fi.RemoteWrite != 0 {
		cfg.Access |= transport.RemoteWrite
	}
	if ep.rmaCaps&fi.Atomic != 0 {
		cfg.Access |= transport.RemoteAtomic
	}
	cfg.Persistent = m.persist != nil && ep.rmaCaps&fi.RMAPmem != 0
	if m.key&wire.MKeyIdempotent != 0 {
		cfg.Counts, cfg.CountsReads = false, false // R-CNTR-07: what may come twice is not counted
	}
	if ep.port != nil {
		cfg.Endpoint = ep.id
	}
	ep.drv.Do(func(time.Duration) {
		if ep.port != nil && !ep.port.has(ep) {
			return // its queue was overrun, and the number is another endpoint's
		}
		var r *transport.Region
		switch r, err = ep.fep.Register(cfg); err {
		case nil:
			m.reached[ep] = r
		case transport.ErrClosed:
			err = nil // nobody reaches the endpoint any more
		}
	})
	if m.tally != nil && m.reached[ep] != nil {
		_ = m.tally.counting.Bind(ep.progress()) // it is bound already, so it is not closed
	}
	return err
}

// leave ends the access through an endpoint.
func (m *MR) leave(ep *Endpoint) {
	r := m.reached[ep]
	if r == nil {
		return
	}
	delete(m.reached, ep)
	ep.drv.With(func() { ep.fep.Deregister(r) })
	if m.tally != nil {
		m.tally.counting.Unbind(ep.progress())
	}
}

// enter makes the regions of the domain accessible through an endpoint that was just enabled.
func (g *regions) enter(ep *Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endpoints = append(g.endpoints, ep)
	for _, m := range g.mrs {
		if err := m.join(ep); err != nil {
			panic("BUG: uet: a region that the other endpoints took: " + err.Error())
		}
	}
}

// exit ends the access through an endpoint that closes.
func (g *regions) exit(ep *Endpoint) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.mrs {
		m.leave(ep)
	}
	g.endpoints = slices.DeleteFunc(g.endpoints, func(o *Endpoint) bool { return o == ep })
}
