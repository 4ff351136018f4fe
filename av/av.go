// Package av implements address vectors as fi_av(3) describes them: tables that map fi.Addr
// handles to addresses.
//
// An AV is safe for concurrent use. Get, which every post calls, takes no lock. A removed
// handle may be used again for another address: its generation (Gen) changes then, by which
// an endpoint notices that what it cached for the handle is stale.
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
	// Type may have any value; every AV is a fi.AVTable (R-AV-03).
	Type fi.AVType
	// Count is the expected number of addresses, EPPerNode that of endpoints per network
	// address. Both are hints that are ignored.
	Count     int
	EPPerNode int
	// Name must be empty: an AV cannot be shared by processes (R-AV-18).
	Name string
	// Flags may contain fi.Event (insertions are asynchronous and need an event queue),
	// fi.AVUserID (the source of a message is reported as SetUserID says) and
	// fi.Symmetric (a hint that is ignored). fi.Read, for a shared AV, fails with
	// fi.ENOSYS.
	Flags fi.Flags
	// Format is the format that LookupRecord writes: a socket address of the address's
	// family (fi.FormatSockaddr and its kin), text (fi.FormatStr) or the UET record
	// (fi.FormatUnspec). Insertions accept all formats. uet.Domain.OpenAV sets it.
	Format fi.AddrFormat
}

// MaxLen is the most addresses of an AV. Insertions beyond it fail with fi.ENOMEM.
const MaxLen = 1 << 24

// Events is the event queue to which an AV reports asynchronous insertions (R-AV-08).
type Events interface {
	// Bind binds an AV; the queue cannot be closed until Unbind. It fails with fi.EBADF
	// if the queue is closed.
	Bind() (Binding, error)
}

// A Binding accepts the events of one AV. Its methods are called with the AV locked.
type Binding interface {
	// Room is called before an insertion. If it returns nil, the queue has room for all
	// events of the insertion. If it returns an error, the insertion fails with that.
	Room() error
	// AVError reports one address that could not be inserted.
	AVError(av *AV, context any, index int, err fi.Errno)
	// AVComplete reports the end of an insertion and the number of addresses inserted.
	AVComplete(av *AV, context any, count int)
	// Unbind ends the binding.
	Unbind()
}

// A record is the meaning of a handle. It is never changed once it is in the table.
type record struct {
	addr wire.Addr
	user fi.Addr // how this source is reported
	gen  uint32
}

// A table has the record of each handle. Get reads it without a lock.
type table []atomic.Pointer[record]

// A node has the generation of a handle, which survives its removal, and the handle's
// neighbours in the ring of handles with the same source.
type node struct{ gen, next, prev uint32 }

// An AV is an address vector.
type AV struct {
	attr Attr
	ctx  any
	tab  atomic.Pointer[table]

	mu     sync.RWMutex // guards what follows, and changes of tab
	nodes  []node       // by handle
	first  int          // no lower handle is free
	n      int
	max    int // MaxLen, less in tests
	index  index
	bound  int
	events Binding
	closed bool
}

// New opens an AV (fi_av_open). Programs call uet.Domain.OpenAV instead: endpoints bind only
// to vectors of their domain. New fails with fi.EINVAL for an invalid attribute, with
// fi.ENOSYS for a shared AV.
func New(attr Attr, ctx any) (*AV, error) {
	switch {
	case attr.Type > fi.AVTable:
		return nil, fmt.Errorf("av: open: there is no type %d: leave it 0: %w", attr.Type, fi.EINVAL)
	case attr.Name != "" || attr.Flags&fi.Read != 0:
		return nil, fmt.Errorf("av: open: address vectors are not shared by processes: leave Name and fi.Read out: %w", fi.ENOSYS)
	case attr.Flags&^(fi.Event|fi.AVUserID|fi.Symmetric) != 0 || attr.Count < 0 || attr.EPPerNode < 0:
		return nil, fmt.Errorf("av: open: it takes fi.Event, fi.AVUserID and fi.Symmetric, and no negative counts: %w", fi.EINVAL)
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
	if (*AV)(v).gone() {
		return fmt.Errorf("av: bind: the vector is closed, or was never opened: %w", fi.EBADF)
	}
	v.bound++
	return nil
}

func (v *provider) Unbind() {
	v.mu.Lock()
	v.bound--
	v.mu.Unlock()
}

// BindEvents sets the event queue for asynchronous insertions until Close (fi_av_bind). It
// fails with fi.EINVAL if e is nil or the AV has a queue already, with fi.EBADF if the AV or
// the queue is closed.
func (v *AV) BindEvents(e Events) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.gone():
		return fmt.Errorf("av: bind: the vector is closed, or was never opened: %w", fi.EBADF)
	case v.events != nil || e == nil:
		return fmt.Errorf("av: bind: one event queue, and not nil: %w", fi.EINVAL)
	}
	b, err := e.Bind()
	if err != nil {
		return fmt.Errorf("av: bind: %w", err)
	}
	v.events = b
	return nil
}

// Close frees the AV. It fails with fi.EBUSY while endpoints are bound (R-AV-17), with
// fi.EBADF the second time. Later calls fail with fi.EBADF. Events of the AV that are in its
// event queue stay there.
func (v *AV) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.gone():
		return fmt.Errorf("av: close: the vector is closed already, or was never opened: %w", fi.EBADF)
	case v.bound > 0:
		return fmt.Errorf("av: close: endpoints are bound: close them first: %w", fi.EBUSY)
	}
	v.closed = true
	v.tab.Store(&table{})
	v.nodes, v.n = nil, 0
	v.index.init()
	if v.events != nil {
		v.events.Unbind()
		v.events = nil
	}
	return nil
}

// gone reports, with mu, whether v is closed, or was never opened.
func (v *AV) gone() bool { return v.closed || v.tab.Load() == nil }

// Closed reports whether Close succeeded.
func (v *AV) Closed() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.gone()
}

// Len returns the number of addresses.
func (v *AV) Len() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.n
}

// get returns the record of a handle, nil if the handle is not in use.
func (v *AV) get(h fi.Addr) *record {
	t := v.tab.Load()
	if t == nil || uint64(h) >= uint64(len(*t)) {
		return nil
	}
	return (*t)[h].Load()
}

// Get is Lookup for endpoints, without a lock. gen is the generation of the handle; see Gen.
func (v *AV) Get(h fi.Addr) (a wire.Addr, gen uint32, ok bool) {
	r := v.get(h)
	if r == nil {
		return wire.Addr{}, 0, false
	}
	return r.addr, r.gen, true
}

// Gen returns the generation of a handle: a number that changes with each address inserted
// under the handle. It is 0 if the handle is not in use.
func (v *AV) Gen(h fi.Addr) uint32 {
	if r := v.get(h); r != nil {
		return r.gen
	}
	return 0
}

// Lookup returns the address of a handle (fi_av_lookup). It fails with fi.EINVAL if the
// handle is not in use (R-AV-13), with fi.EBADF if the AV is closed.
func (v *AV) Lookup(h fi.Addr) (wire.Addr, error) {
	if r := v.get(h); r != nil {
		return r.addr, nil
	}
	if v.Closed() {
		return wire.Addr{}, fmt.Errorf("av: lookup %d: the vector is closed, or was never opened: %w", uint64(h), fi.EBADF)
	}
	return wire.Addr{}, fmt.Errorf("av: lookup %d: no address has this handle: %w", uint64(h), fi.EINVAL)
}

// LookupRecord writes the address of a handle to b, as bytes in the format of the AV. It
// returns the length of the address; if b is shorter, the address is cut (R-AV-13). It fails
// as Lookup does.
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

// SetUserID sets the user id of a handle: the fi.Addr as which completions report messages
// from it (fi_av_set_user_id). The AV must have been opened with fi.AVUserID. Until the first
// call, such messages are reported as fi.AddrNotAvail (R-CQ-66). SetUserID fails with
// fi.EINVAL if the handle is not in use or the AV was opened without the flag, with fi.EBADF
// if the AV is closed.
func (v *AV) SetUserID(h, id fi.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone() {
		return fmt.Errorf("av: set user id of %d: the vector is closed, or was never opened: %w", uint64(h), fi.EBADF)
	}
	r := v.get(h)
	if v.attr.Flags&fi.AVUserID == 0 {
		return fmt.Errorf("av: set user id of %d: the vector was not opened with fi.AVUserID: %w", uint64(h), fi.EINVAL)
	}
	if r == nil {
		return fmt.Errorf("av: set user id of %d: no address has this handle: %w", uint64(h), fi.EINVAL)
	}
	n := *r
	n.user = id
	(*v.tab.Load())[h].Store(&n)
	return nil
}

// StrAddr returns the text of an address, which need not be in the AV (R-AV-14).
func (v *AV) StrAddr(a wire.Addr) string { return a.String() }

// StrRecord writes the text of a binary record to b. It returns the length of the text; if b
// is shorter, the text is cut (R-AV-14). The address need not be in the AV. The text of a
// record that cannot be decoded is fi_addr_uet://invalid (R-ADDR-06).
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
