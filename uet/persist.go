package uet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/internal/pmem"
)

// A persister makes what peers wrote to a region durable (fi.CommitComplete). It has a goroutine while
// there is something to do. What is asked for while that works goes together in its next call, so the
// calls adapt to the speed of the storage, and progress never waits for it.
type persister struct {
	call func(off, n uint64) error
	sync func(b []byte) error // makes memory of a mapped file durable

	mu      sync.Mutex
	idle    sync.Cond // signalled when working ends
	asked   []commit
	working bool
	closed  bool
}

// A commit is what one operation of a peer asked to be durable. id is its number in the FEP of ep.
type commit struct {
	ep         *Endpoint
	id, off, n uint64
}

// newPersister makes the persister of a region. fi.EOPNOTSUPP: nothing can make its memory durable.
func newPersister(attr *MRAttr) (*persister, error) {
	p := &persister{call: attr.Persist, sync: pmem.Sync}
	p.idle.L = &p.mu
	if p.call == nil {
		iov := attr.Iov
		for _, b := range iov {
			if len(b) > 0 && !pmem.OfFile(b) {
				return nil, fi.EOPNOTSUPP
			}
		}
		p.call = func(off, n uint64) error { return p.syncParts(iov, off, n) }
	}
	return p, nil
}

// syncParts makes n bytes of some parts of mapped files durable, from the offset off on.
func (p *persister) syncParts(iov [][]byte, off, n uint64) error {
	for _, b := range iov {
		size := uint64(len(b))
		if off >= size {
			off -= size
			continue
		}
		k := min(n, size-off)
		if err := p.sync(b[off : off+k]); err != nil {
			return err
		}
		if off, n = 0, n-k; n == 0 {
			break
		}
	}
	return nil
}

// ask has some bytes made durable. It does not wait. The driver of ep is locked.
func (p *persister) ask(ep *Endpoint, id, off, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, commit{ep, id, off, n})
	if !p.working {
		p.working = true
		go p.work()
	}
}

// work makes durable what was asked for, and returns when there is no more.
func (p *persister) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.asked) > 0 {
		all := p.asked
		p.asked = nil
		slices.SortFunc(all, func(a, b commit) int { return cmp.Compare(a.off, b.off) })
		for len(all) > 0 {
			n, end := run(all)
			closed, rc := p.closed, wire.RCBadMKey
			p.mu.Unlock()
			if !closed {
				rc = p.store(all[0].off, end)
			}
			tell(all[:n], rc)
			p.mu.Lock()
			all = all[n:]
		}
	}
	p.working = false
	p.idle.Broadcast()
}

// maxGap is how many bytes that nobody asked for one call makes durable with those around them: a
// call costs as much as looking through so many clean bytes.
const maxGap = 64 << 10

// run returns how many of some commits, sorted by offset, one call makes durable, and where they end.
func run(all []commit) (n int, end uint64) {
	for n = 0; n < len(all) && (n == 0 || all[n].off <= end+maxGap); n++ {
		end = max(end, all[n].off+all[n].n)
	}
	return n, end
}

// store makes the bytes from one offset to another durable.
func (p *persister) store(from, to uint64) wire.RC {
	if p.call(from, to-from) != nil {
		return wire.RCUncor
	}
	return wire.RCOK
}

// tell answers what was asked for, all of an endpoint together.
func tell(all []commit, rc wire.RC) {
	for len(all) > 0 {
		ep, rest := all[0].ep, all[:0:0]
		ep.drv.Do(func(time.Duration) {
			for _, c := range all {
				if c.ep == ep {
					ep.fep.Committed(c.id, rc)
				} else {
					rest = append(rest, c)
				}
			}
		})
		if len(rest) == len(all) {
			return
		}
		all = rest
	}
}

// close waits for the call that is running. What was asked for and not begun is not made durable.
func (p *persister) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.working {
		p.idle.Wait()
	}
}
