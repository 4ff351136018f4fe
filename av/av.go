// Package av is address vectors as fi_av(3) describes them: tables that turn
// addresses into fi.Addr handles.
//
// An AV is safe for concurrent use. It knows no endpoint: endpoints that keep
// something per entry compare its generation (Get), which changes when an entry
// is removed.
package av

import (
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// Attr describes an AV to open (struct fi_av_attr).
type Attr struct {
	// Type is table; map is treated as table, unspec chooses table (R-AV-03).
	Type fi.AVType
	// Count is how many addresses to expect, a hint.
	Count int
	// Name and fi.Read ask for a shared AV, which is refused with fi.ENOSYS
	// (R-AV-18). fi.Event asks for asynchronous insertion: needs an EQ.
	Name  string
	Flags fi.Flags
}

// Events is where asynchronous insertions report: an EQ (R-AV-08).
type Events interface {
	// AVError reports one address that failed, AVComplete the end of a call.
	AVError(av *AV, context any, index int, err fi.Errno)
	AVComplete(av *AV, context any, count int)
}

// entry is one address in 32 bytes besides the IP's zone: bar F7.
type entry struct {
	addr wire.Addr
	user uint64 // with fi.AVUserID
	gen  uint32
	used bool
}

// key is how a source is known on the wire (R-CQ-65).
type key struct {
	fep       netip.AddrPort
	initiator uint32
}

// An AV is an address vector.
type AV struct {
	attr Attr
	ctx  any

	mu     sync.RWMutex
	table  []entry
	first  int // no free slot is below
	n      int
	index  []uint32 // open addressing by source: handle + 1, 0 is free
	seed   maphash.Seed
	bound  int
	events Events
	closed bool
}

// New opens an AV. fi.EINVAL: unknown type or flags. fi.ENOSYS: shared.
func New(attr Attr, ctx any) (*AV, error) {
	switch {
	case attr.Type > fi.AVTable:
		return nil, fmt.Errorf("av: open: type: %w", fi.EINVAL)
	case attr.Name != "" || attr.Flags&fi.Read != 0:
		return nil, fmt.Errorf("av: open: shared address vectors: %w", fi.ENOSYS)
	case attr.Flags&^(fi.Event|fi.AVUserID) != 0 || attr.Count < 0:
		return nil, fmt.Errorf("av: open: flags: %w", fi.EINVAL)
	}
	attr.Type = fi.AVTable
	return &AV{attr: attr, ctx: ctx, seed: maphash.MakeSeed(), index: make([]uint32, 16)}, nil
}

// Attr returns the attributes in force.
func (v *AV) Attr() Attr { return v.attr }

// Context returns the context given to New.
func (v *AV) Context() any { return v.ctx }

// Bind and Unbind count endpoints: Close is refused while there are some.
func (v *AV) Bind() {
	v.mu.Lock()
	v.bound++
	v.mu.Unlock()
}

// Unbind undoes one Bind.
func (v *AV) Unbind() {
	v.mu.Lock()
	v.bound--
	v.mu.Unlock()
}

// BindEvents names the queue of asynchronous insertions.
func (v *AV) BindEvents(e Events) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.events != nil {
		return fmt.Errorf("av: an event queue is bound already: %w", fi.EINVAL)
	}
	v.events = e
	return nil
}

// Close frees the AV. fi.EBUSY with endpoints bound (R-AV-17), fi.EBADF the
// second time.
func (v *AV) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return fmt.Errorf("av: close: %w", fi.EBADF)
	case v.bound > 0:
		return fmt.Errorf("av: close: endpoints are bound: %w", fi.EBUSY)
	}
	v.closed = true
	v.table, v.index = nil, nil
	return nil
}

// Len is the number of addresses.
func (v *AV) Len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.n
}

// Insert inserts addresses, each at the lowest unused index (R-AV-01, -02), and
// returns how many it took (R-AV-04). handles, if not nil, gets the handle of
// each, fi.AddrNotAvail for a failure. With fi.SyncErr context must be a
// []fi.Errno as long as addrs, which gets each one's result (R-AV-05). On an AV
// opened with fi.Event the result comes by the event queue, and 0 is returned.
// Flags: fi.SyncErr, fi.More (ignored), fi.AVUserID (handles holds the user ids
// on input).
func (v *AV) Insert(addrs []wire.Addr, handles []fi.Addr, flags fi.Flags, context any) (int, error) {
	if flags&^(fi.SyncErr|fi.More|fi.AVUserID) != 0 {
		return 0, fmt.Errorf("av: insert: flags %v: %w", flags, fi.EINVAL)
	}
	if handles != nil && len(handles) < len(addrs) {
		return 0, fmt.Errorf("av: insert: %d handles for %d addresses: %w", len(handles), len(addrs), fi.EINVAL)
	}
	var errs []fi.Errno
	if flags&fi.SyncErr != 0 {
		var ok bool
		if errs, ok = context.([]fi.Errno); !ok || len(errs) < len(addrs) {
			return 0, fmt.Errorf("av: insert: sync_err needs a []fi.Errno as context: %w", fi.EINVAL)
		}
	}
	if flags&fi.AVUserID != 0 && handles == nil {
		return 0, fmt.Errorf("av: insert: user ids: %w", fi.EINVAL)
	}
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		return 0, fmt.Errorf("av: insert: closed: %w", fi.EBADF)
	}
	async := v.attr.Flags&fi.Event != 0
	if async && v.events == nil {
		v.mu.Unlock()
		return 0, fmt.Errorf("av: insert: no event queue is bound: %w", fi.ENOEQ) // R-AV-08
	}
	count := 0
	var failed []int
	for i, a := range addrs {
		var user uint64
		if flags&fi.AVUserID != 0 {
			user = uint64(handles[i])
		}
		h, err := v.insert(a, user, flags&fi.AVUserID != 0)
		if err == fi.Success {
			count++
		} else {
			failed = append(failed, i)
		}
		if handles != nil && flags&fi.AVUserID == 0 {
			handles[i] = h
		}
		if errs != nil {
			errs[i] = err
		}
	}
	ev := v.events
	v.mu.Unlock()
	if async {
		// R-AV-09: all errors of a call come before its completion.
		for _, i := range failed {
			ev.AVError(v, context, i, fi.EINVAL)
		}
		ev.AVComplete(v, context, count)
		return 0, nil
	}
	return count, nil
}

func (v *AV) insert(a wire.Addr, user uint64, hasUser bool) (fi.Addr, fi.Errno) {
	if !a.IP.IsValid() || a.IP.IsUnspecified() || a.PIDonFEP > 0xfff || a.RI > 0xfff {
		return fi.AddrNotAvail, fi.EINVAL // R-ADDR-04, -05
	}
	if a.Port == 0 {
		a.Port = wire.Port
	}
	a.IP = a.IP.Unmap()
	i := v.first
	for i < len(v.table) && v.table[i].used {
		i++
	}
	v.first = i + 1
	if i == len(v.table) {
		v.table = append(v.table, entry{})
	}
	e := &v.table[i]
	h := fi.Addr(i)
	if !hasUser {
		user = uint64(h)
	}
	*e = entry{addr: a, user: user, gen: e.gen + 1, used: true}
	v.n++
	if 2*v.n > len(v.index) {
		v.index = make([]uint32, 2*len(v.index))
		for j := range v.table {
			if v.table[j].used && j != i {
				v.link(j)
			}
		}
	}
	v.link(i)
	return h, fi.Success
}

func (e *entry) key() key { return key{e.addr.AddrPort(), e.addr.Initiator} }

// link puts a table entry into the index. R-AV-12: several of one source may be
// there.
func (v *AV) link(i int) {
	m := len(v.index) - 1
	j := v.slot(v.table[i].key())
	for v.index[j] != 0 {
		j = (j + 1) & m
	}
	v.index[j] = uint32(i) + 1
}

func (v *AV) slot(k key) int { return int(maphash.Comparable(v.seed, k)) & (len(v.index) - 1) }

// unlink takes a table entry out of the index and moves up what its place had
// pushed away.
func (v *AV) unlink(i int) {
	m := len(v.index) - 1
	j := v.slot(v.table[i].key())
	for v.index[j] != uint32(i)+1 {
		j = (j + 1) & m
	}
	v.index[j] = 0
	for k := (j + 1) & m; v.index[k] != 0; k = (k + 1) & m {
		home := v.slot(v.table[v.index[k]-1].key())
		if (k-home)&m >= (k-j)&m {
			v.index[j], v.index[k] = v.index[k], 0
			j = k
		}
	}
}

// InsertAddrPorts is Insert of IP addresses and ports (FI_SOCKADDR_IN and _IN6).
func (v *AV) InsertAddrPorts(addrs []netip.AddrPort, handles []fi.Addr) (int, error) {
	as := make([]wire.Addr, len(addrs))
	for i, a := range addrs {
		as[i] = wire.SockAddr(a)
	}
	return v.Insert(as, handles, 0, nil)
}

// InsertString inserts one address in string form (FI_ADDR_STR) or as ip:port.
func (v *AV) InsertString(s string) (fi.Addr, error) {
	a, err := parse(s)
	if err != nil {
		return fi.AddrNotAvail, fmt.Errorf("av: insert %q: %w: %w", s, err, fi.EINVAL)
	}
	h := []fi.Addr{0}
	n, err := v.Insert([]wire.Addr{a}, h, 0, nil)
	if err == nil && n != 1 {
		err = fmt.Errorf("av: insert %q: %w", s, fi.EINVAL)
	}
	return h[0], err
}

func parse(s string) (wire.Addr, error) {
	if strings.HasPrefix(s, wire.AddrScheme) {
		return wire.ParseAddr(s)
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return wire.SockAddr(ap), nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return wire.Addr{}, err
	}
	return wire.SockAddr(netip.AddrPortFrom(ip, wire.Port)), nil
}

// InsertSvc inserts node and service as GetInfo resolves them (R-AV-15): a
// string form needs an empty service; service is a port number, empty for the
// well-known one.
func (v *AV) InsertSvc(node, service string) (fi.Addr, error) {
	a, err := resolve(node, service)
	if err != nil {
		return fi.AddrNotAvail, err
	}
	h := []fi.Addr{0}
	if n, err := v.Insert([]wire.Addr{a}, h, 0, nil); err != nil || n != 1 {
		return fi.AddrNotAvail, fmt.Errorf("av: insertsvc %s %s: %w", node, service, errors.Join(err, fi.EINVAL))
	}
	return h[0], nil
}

func resolve(node, service string) (wire.Addr, error) {
	bad := func(err error) (wire.Addr, error) {
		return wire.Addr{}, fmt.Errorf("av: resolve %q %q: %w: %w", node, service, err, fi.EINVAL)
	}
	if strings.HasPrefix(node, wire.AddrScheme) {
		if service != "" {
			return bad(errors.New("a string address takes no service"))
		}
		a, err := wire.ParseAddr(node)
		if err != nil {
			return bad(err)
		}
		return a, nil
	}
	port := wire.Port
	if service != "" {
		p, err := net.LookupPort("udp", service)
		if err != nil {
			return bad(err)
		}
		port = p
	}
	ip, err := netip.ParseAddr(node)
	if err != nil {
		ips, err := net.LookupIP(node)
		if err != nil || len(ips) == 0 {
			return wire.Addr{}, fmt.Errorf("av: resolve %q: %w", node, fi.ENODATA)
		}
		ip, _ = netip.AddrFromSlice(ips[0])
	}
	return wire.SockAddr(netip.AddrPortFrom(ip.Unmap(), uint16(port))), nil
}

// InsertSym inserts for each of nodeCount consecutive IP addresses from node on
// the services from svc on: node by node, services in order (R-AV-16). A service
// is a PIDonFEP.
func (v *AV) InsertSym(node netip.Addr, nodeCount int, svc uint16, svcCount int, handles []fi.Addr) (int, error) {
	if nodeCount < 0 || svcCount < 0 || nodeCount > 1<<20 || svcCount > 4096 {
		return 0, fmt.Errorf("av: insertsym: counts: %w", fi.EINVAL)
	}
	var as []wire.Addr
	for range nodeCount {
		for s := range svcCount {
			a := wire.SockAddr(netip.AddrPortFrom(node, wire.Port))
			a.PIDonFEP = svc + uint16(s)
			as = append(as, a)
		}
		node = node.Next()
	}
	return v.Insert(as, handles, 0, nil)
}

// Remove makes handles invalid. fi.EINVAL if one is not set (R-AV-11): those
// before it are removed.
func (v *AV) Remove(handles ...fi.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, h := range handles {
		if uint64(h) >= uint64(len(v.table)) || !v.table[h].used {
			return fmt.Errorf("av: remove %d: %w", uint64(h), fi.EINVAL)
		}
		v.unlink(int(h))
		v.table[h] = entry{gen: v.table[h].gen + 1}
		v.n--
		v.first = min(v.first, int(h))
	}
	return nil
}

// Lookup returns the address of a handle. fi.EINVAL if it is not set (R-AV-13).
func (v *AV) Lookup(h fi.Addr) (wire.Addr, error) {
	a, _, ok := v.Get(h)
	if !ok {
		return wire.Addr{}, fmt.Errorf("av: lookup %d: %w", uint64(h), fi.EINVAL)
	}
	return a, nil
}

// Get is Lookup for endpoints: gen changes whenever the handle comes to mean
// something else.
func (v *AV) Get(h fi.Addr) (a wire.Addr, gen uint32, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if uint64(h) >= uint64(len(v.table)) || !v.table[h].used {
		return wire.Addr{}, 0, false
	}
	e := &v.table[h]
	return e.addr, e.gen, true
}

// Find returns the handle of a source: the lowest of those inserted for it, its
// user id if it has one (R-CQ-65, -66); fi.AddrNotAvail if there is none.
func (v *AV) Find(fep netip.AddrPort, initiator uint32) fi.Addr {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.closed {
		return fi.AddrNotAvail
	}
	want := key{fep, initiator}
	lowest := uint32(0)
	for j := v.slot(want); v.index[j] != 0; j = (j + 1) & (len(v.index) - 1) {
		if h := v.index[j]; (lowest == 0 || h < lowest) && v.table[h-1].key() == want {
			lowest = h
		}
	}
	if lowest == 0 {
		return fi.AddrNotAvail
	}
	return fi.Addr(v.table[lowest-1].user)
}

// StrAddr is the text of an address, inserted or not (R-AV-14).
func (v *AV) StrAddr(a wire.Addr) string { return a.String() }
