// Package av is address vectors as fi_av(3) describes them: tables that turn
// addresses into fi.Addr handles.
//
// An AV is safe for concurrent use; Get, which every post needs, takes no lock.
// An AV knows no endpoint: endpoints that keep something per entry compare its
// generation (Get), which changes when a handle comes to mean another address.
package av

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/door"
	"github.com/uetkit/uetkit/transport/wire"
)

// Attr describes an AV to open (struct fi_av_attr).
type Attr struct {
	// Type is table; map is treated as table, unspec chooses table (R-AV-03).
	Type fi.AVType
	// Count is how many addresses to expect, EPPerNode how many endpoints per
	// network address: hints, 0 for not known.
	Count     int
	EPPerNode int
	// Name and fi.Read ask for a shared AV, which is refused with fi.ENOSYS
	// (R-AV-18). fi.Event asks for asynchronous insertion: needs an EQ.
	// fi.AVUserID: sources are reported by what SetUserID says. fi.Symmetric is
	// a hint and ignored.
	Name  string
	Flags fi.Flags
	// Format is what LookupRecord writes: socket addresses, of the family of each
	// address (fi.FormatSockaddr and its kin), text (fi.FormatStr), or the UET record
	// (fi.FormatUnspec). Insertion takes any. uet.Domain.OpenAV sets it.
	Format fi.AddrFormat
}

// MaxLen is the most addresses of an AV; beyond, insertion fails with fi.ENOMEM.
const MaxLen = 1 << 24

// Events is an EQ, for asynchronous insertions (R-AV-08).
type Events interface {
	// Bind binds an AV: the queue cannot be closed until Unbind. fi.EBADF: it is closed.
	Bind() (Binding, error)
}

// A Binding takes the reports of an AV. It is called with the AV locked.
type Binding interface {
	// Room is called before an insertion. After nil, all that the insertion reports
	// finds room; with an error, the insertion fails with it.
	Room() error
	// AVError reports one address that failed, AVComplete the end of a call.
	AVError(av *AV, context any, index int, err fi.Errno)
	AVComplete(av *AV, context any, count int)
	Unbind()
}

// A record is what a handle means. It is never changed once it is in the table.
type record struct {
	addr wire.Addr
	user fi.Addr // what this source is reported as
	gen  uint32
}

// A table is what Get reads without a lock.
type table []atomic.Pointer[record]

// A link is the rest of what is kept of a handle: its generation, which outlives its use,
// and its neighbours in the ring of handles with the same source.
type link struct{ gen, next, prev uint32 }

// An AV is an address vector.
type AV struct {
	attr Attr
	ctx  any
	tab  atomic.Pointer[table]

	mu     sync.RWMutex // guards what follows, and changes of tab
	links  []link
	first  int // no free handle is below
	n      int
	max    int // MaxLen, less in tests
	index  index
	bound  int
	events Binding
	closed bool
}

// New opens an AV. Programs call uet.Domain.OpenAV, because endpoints take only vectors of
// their domain. fi.EINVAL: unknown type or flags. fi.ENOSYS: shared.
func New(attr Attr, ctx any) (*AV, error) {
	switch {
	case attr.Type > fi.AVTable:
		return nil, fmt.Errorf("av: open: type: %w", fi.EINVAL)
	case attr.Name != "" || attr.Flags&fi.Read != 0:
		return nil, fmt.Errorf("av: open: shared address vectors: %w", fi.ENOSYS)
	case attr.Flags&^(fi.Event|fi.AVUserID|fi.Symmetric) != 0 || attr.Count < 0 || attr.EPPerNode < 0:
		return nil, fmt.Errorf("av: open: flags: %w", fi.EINVAL)
	case !attr.Format.Known():
		return nil, fmt.Errorf("av: open: address format %#x: %w", uint32(attr.Format), fi.EINVAL)
	}
	attr.Type = fi.AVTable
	v := &AV{attr: attr, ctx: ctx, max: MaxLen}
	v.tab.Store(&table{})
	v.index.init()
	return v, nil
}

// Attr returns the attributes in force.
func (v *AV) Attr() Attr { return v.attr }

// Context returns the context given to New.
func (v *AV) Context() any { return v.ctx }

// A provider is the AV as the provider sees it. door.References says what the methods do.
type provider AV

func init() { door.AV = func(v any) door.References { return (*provider)(v.(*AV)) } }

func (v *provider) Bind() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return fmt.Errorf("av: bind: %w", fi.EBADF)
	}
	v.bound++
	return nil
}

func (v *provider) Unbind() {
	v.mu.Lock()
	v.bound--
	v.mu.Unlock()
}

// BindEvents sets the queue of asynchronous insertions, until Close (fi_av_bind).
// fi.EINVAL: the AV has one already, or e is nil. fi.EBADF: the AV or the queue is
// closed.
func (v *AV) BindEvents(e Events) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return fmt.Errorf("av: bind: %w", fi.EBADF)
	case v.events != nil || e == nil:
		return fmt.Errorf("av: bind: one event queue: %w", fi.EINVAL)
	}
	b, err := e.Bind()
	if err != nil {
		return fmt.Errorf("av: bind: %w", err)
	}
	v.events = b
	return nil
}

// Close frees the AV. fi.EBUSY: endpoints are bound (R-AV-17). fi.EBADF: it is closed
// already; all other calls fail with that afterwards. Queued events about it stay.
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
	v.tab.Store(&table{})
	v.links, v.n = nil, 0
	v.index.init()
	if v.events != nil {
		v.events.Unbind()
		v.events = nil
	}
	return nil
}

// Closed reports whether Close succeeded.
func (v *AV) Closed() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.closed
}

// Len is the number of addresses.
func (v *AV) Len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.n
}

// get is the record of a handle, nil if it is not set.
func (v *AV) get(h fi.Addr) *record {
	t := *v.tab.Load()
	if uint64(h) >= uint64(len(t)) {
		return nil
	}
	return t[h].Load()
}

// Get is Lookup for endpoints. gen changes whenever the handle comes to mean another
// address, and is never 0. Get takes no lock.
func (v *AV) Get(h fi.Addr) (a wire.Addr, gen uint32, ok bool) {
	r := v.get(h)
	if r == nil {
		return wire.Addr{}, 0, false
	}
	return r.addr, r.gen, true
}

// Gen is the generation of a handle, 0 if it is not set.
func (v *AV) Gen(h fi.Addr) uint32 {
	if r := v.get(h); r != nil {
		return r.gen
	}
	return 0
}

// Lookup returns the address of a handle. fi.EINVAL: it is not set (R-AV-13).
// fi.EBADF: the AV is closed.
func (v *AV) Lookup(h fi.Addr) (wire.Addr, error) {
	if r := v.get(h); r != nil {
		return r.addr, nil
	}
	no := fi.EINVAL
	if v.Closed() {
		no = fi.EBADF
	}
	return wire.Addr{}, fmt.Errorf("av: lookup %d: %w", uint64(h), no)
}

// LookupRecord fills b with a handle's address as bytes in the format of the AV, cut
// to b's length, and returns the bytes that it needs (R-AV-13). Errors: those of Lookup.
func (v *AV) LookupRecord(h fi.Addr, b []byte) (int, error) {
	a, err := v.Lookup(h)
	if err != nil {
		return 0, err
	}
	var buf [MaxRecord]byte
	rec, err := v.AppendRecord(buf[:0], a)
	if err != nil {
		return 0, fmt.Errorf("av: lookup %d: %w: %w", uint64(h), err, fi.EINVAL)
	}
	copy(b, rec)
	return len(rec), nil
}

// SetUserID sets what the source of a handle is reported as, on an AV opened with
// fi.AVUserID; until then it is reported as fi.AddrNotAvail (R-CQ-66). fi.EINVAL: the
// handle is not set, or the AV was opened without the flag. fi.EBADF: the AV is closed.
func (v *AV) SetUserID(h, id fi.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return fmt.Errorf("av: set user id of %d: %w", uint64(h), fi.EBADF)
	}
	r := v.get(h)
	if r == nil || v.attr.Flags&fi.AVUserID == 0 {
		return fmt.Errorf("av: set user id of %d: %w", uint64(h), fi.EINVAL)
	}
	n := *r
	n.user = id
	(*v.tab.Load())[h].Store(&n)
	return nil
}

// StrAddr is the text of an address, inserted or not (R-AV-14).
func (v *AV) StrAddr(a wire.Addr) string { return a.String() }

// StrRecord fills b with the text of a binary record, inserted or not, cut to the
// length of b, and returns the bytes it needs (R-AV-14). A record that cannot be
// decoded gives fi_addr_uet://invalid (R-ADDR-06).
func (v *AV) StrRecord(rec, b []byte) int {
	a, err := ParseRecord(rec)
	if err != nil {
		a = wire.Addr{}
	}
	return copyAll(b, a.String())
}

func copyAll(b []byte, s string) int {
	copy(b, s)
	return len(s)
}
