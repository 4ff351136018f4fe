package uet

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
)

// A parent counts the objects that were opened in it. It cannot be closed before them
// (F29).
type parent struct {
	mu       sync.Mutex // guards what follows
	children int
	// queues are the queues and vectors. They do not know their parent.
	queues []queue
	open   bool // between open and close: a zero parent is closed
}

// A queue is an object of a parent that knows whether it is closed.
type queue interface{ Closed() bool }

// adopt counts a child. fi.EBADF: the parent is closed.
func (p *parent) adopt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open {
		return errParent
	}
	p.children++
	return nil
}

// release undoes one adopt.
func (p *parent) release() {
	p.mu.Lock()
	p.children--
	p.mu.Unlock()
}

// keep adds a queue that open makes.
func keep[Q queue](p *parent, open func() (Q, error)) (Q, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var none Q
	if !p.open {
		return none, errParent
	}
	q, err := open()
	if err != nil {
		return none, err
	}
	p.prune()
	p.queues = append(p.queues, q)
	return q, nil
}

// owns reports whether q was opened in p.
func (p *parent) owns(q queue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.queues, q)
}

// prune forgets the closed queues.
func (p *parent) prune() {
	open := p.queues[:0]
	for _, q := range p.queues {
		if !q.Closed() {
			open = append(open, q)
		}
	}
	clear(p.queues[len(open):])
	p.queues = open
}

// close fails with fi.EBUSY while anything opened in p is open, and with
// fi.EBADF when p is closed.
func (p *parent) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune()
	switch {
	case !p.open:
		return errParentGone
	case p.children > 0 || len(p.queues) > 0:
		return errParentBusy
	}
	p.open = false
	return nil
}

// A Fabric is a set of domains on one network (fi_fabric(3)).
type Fabric struct {
	parent
	attr    FabricAttr
	context any
}

// OpenFabric opens the fabric that info describes. fi.EINVAL: info is nil or of another
// provider.
func OpenFabric(info *Info, ctx any) (*Fabric, error) {
	if info == nil {
		return nil, errNoInfo
	}
	var why reasons
	(&Info{}).matchFabric(&info.Fabric, &why)
	if err := why.err(); err != nil {
		return nil, fmt.Errorf("uet: open fabric: %w", err)
	}
	return &Fabric{parent: parent{open: true}, attr: info.Fabric, context: ctx}, nil
}

// Attr returns the attributes that the fabric was opened with.
func (f *Fabric) Attr() FabricAttr { return f.attr }

// Context returns the context given to OpenFabric.
func (f *Fabric) Context() any { return f.context }

// Close closes the fabric. fi.EBUSY: domains or event queues are open. fi.EBADF:
// it is closed.
func (f *Fabric) Close() error { return f.close() }

// OpenEQ opens an event queue (fi_eq_open). Its StrError defaults to ProvString.
func (f *Fabric) OpenEQ(attr eq.Attr, ctx any) (*eq.EQ, error) {
	if attr.StrError == nil {
		attr.StrError = ProvString
	}
	return keep(&f.parent, func() (*eq.EQ, error) { return eq.New(attr, ctx) })
}

// OpenDomain opens the domain that info describes: a network interface. fi.EINVAL: info is
// nil, or its Domain asks for something that GetInfo refuses.
func (f *Fabric) OpenDomain(info *Info, ctx any) (*Domain, error) {
	if info == nil {
		return nil, errNoInfo
	}
	var why reasons
	(&Info{AddrFormat: info.AddrFormat}).matchDomain(&info.Domain, &why)
	if err := why.err(); err != nil {
		return nil, fmt.Errorf("uet: open domain: %w", err)
	}
	if err := f.adopt(); err != nil {
		return nil, err
	}
	d := &Domain{parent: parent{open: true}, fabric: f, attr: info.Domain, format: info.AddrFormat, context: ctx}
	d.attr.AuthKey = append([]byte(nil), d.attr.AuthKey...)
	return d, nil
}

// A Domain is a network interface with what is opened on it (fi_domain(3)).
type Domain struct {
	parent
	fabric  *Fabric
	attr    DomainAttr
	format  fi.AddrFormat // of addresses as bytes
	context any
	cqs     limited // with parent.mu
	cntrs   limited
	dialers dialers
	manual  manual
	regions regions
	ports   portTable
}

// maxQueues is how many completion queues, and how many counters, a domain may have open
// unless its Info says otherwise. The number is arbitrary; it stops a program that leaks
// them.
const maxQueues = 1 << 10

// limited is a list of open objects of one kind, with a limit on their number.
type limited []interface{ Closed() bool }

// room forgets the closed objects. fi.ENOSPC: the limit is reached.
func (l *limited) room(most int) error {
	*l = slices.DeleteFunc(*l, func(q interface{ Closed() bool }) bool { return q.Closed() })
	if len(*l) >= orDefault(most, maxQueues) {
		return fi.ENOSPC
	}
	return nil
}

// Attr returns the attributes that the domain was opened with.
func (d *Domain) Attr() DomainAttr { return d.attr }

// Context returns the context given to OpenDomain.
func (d *Domain) Context() any { return d.context }

// Close closes the domain. fi.EBUSY: endpoints, completion queues, address
// vectors or memory regions are open. fi.EBADF: it is closed.
func (d *Domain) Close() error {
	if err := d.close(); err != nil {
		return err
	}
	d.dialers.close()
	d.fabric.release()
	return nil
}

// OpenCQ opens a completion queue (fi_cq_open). Its StrError defaults to ProvString.
// fi.ENOSPC: DomainAttr.CQCnt queues are open (R-CQ-33).
func (d *Domain) OpenCQ(attr cq.Attr, ctx any) (*cq.CQ, error) {
	if attr.StrError == nil {
		attr.StrError = ProvString
	}
	return keep(&d.parent, func() (*cq.CQ, error) {
		if err := d.cqs.room(d.attr.CQCnt); err != nil {
			return nil, err
		}
		q, err := cq.New(attr, ctx)
		if err == nil {
			d.cqs = append(d.cqs, q)
		}
		return q, err
	})
}

// OpenAV opens an address vector (fi_av_open). Its Format is that of the Info that the
// domain was opened with.
func (d *Domain) OpenAV(attr av.Attr, ctx any) (*av.AV, error) {
	attr.Format = d.format
	return keep(&d.parent, func() (*av.AV, error) { return av.New(attr, ctx) })
}

// AVEvents adapts an event queue to av.AV.BindEvents. Insertions into an address vector
// that was opened with fi.Event are then reported to q (R-AV-08).
func AVEvents(q *eq.EQ) av.Events {
	if q == nil {
		return nil // which BindEvents refuses
	}
	return avEvents{q}
}

type avEvents struct{ q *eq.EQ }

func (e avEvents) Bind() (av.Binding, error) {
	b, err := reporterOf(e.q, math.MaxInt) // R-EQ-68: the AV asks for Room before an insertion, however long
	if err != nil {
		return nil, err
	}
	return avBinding{b}, nil
}

type avBinding struct{ reporter }

func (e avBinding) AVError(v *av.AV, context any, index int, err fi.Errno) {
	e.PutErr(eq.Error{Fid: v, Context: context, Data: uint64(index), Err: err})
}

func (e avBinding) AVComplete(v *av.AV, context any, count int) {
	e.Put(eq.Entry{Event: fi.AVComplete, Fid: v, Context: context, Data: uint64(count)})
}
