package transport

import (
	"slices"
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/internal/piece"
	"github.com/uetkit/uetkit/transport/internal/ses"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file moves read data: it goes in the return direction of the PDC by which the read came.
// What is to be returned waits in SES, by PDC. The PDC takes its turns in the lanes of its peer and
// keeps to the windows of the peer, as one that this side opened.

// asks notes that a message was queued in a lane, and reports whether it is a read, whose packets
// have no bytes.
func (f *FEP) asks(h ses.Handle, ln *lane) bool {
	if !f.ses.On(h, ln.pdc.Slot) {
		return false
	}
	ln.asked = true
	return f.ses.Bare(h)
}

// queueReturns queues the PDCs that have something to return.
func (f *FEP) queueReturns() {
	for slot, ok := f.ses.Owing(); ok; slot, ok = f.ses.Owing() {
		if pdc := f.lanes[slot].pdc; pdc != nil {
			f.queueReturn(pdc)
		}
	}
}

// queueReturn queues a PDC that has something to return. T27: one whose source may be forged waits
// until the source is proven.
func (f *FEP) queueReturn(pdc *pds.PDC) {
	if pdc.Unproven() {
		pdc.WantProof(f.now)
		return
	}
	p := &f.peers[pdc.Peer]
	if pdc.CCC() == nil {
		ccc := p.ccc
		switch {
		case pdc.Mode() == wire.ROD:
			ccc = f.newCCC(p) // UE 3.6: each ROD PDC has its own
		case ccc == nil:
			ccc = f.newCCC(p)
			p.ccc = ccc
		}
		pdc.SetCCC(f.now, ccc)
		if f.returning == nil {
			f.returning = make(map[PeerID][]*pds.PDC)
		}
		f.returning[PeerID(pdc.Peer)] = append(f.returning[PeerID(pdc.Peer)], pdc)
	}
	f.wakeData(&f.lanes[pdc.Slot], p)
}

// returnsGone forgets a PDC that is gone.
func (f *FEP) returnsGone(pdc *pds.PDC) {
	id := PeerID(pdc.Peer)
	all := f.returning[id]
	if i := slices.Index(all, pdc); i >= 0 && len(all) > 1 {
		f.returning[id] = slices.Delete(all, i, i+1)
	} else if i >= 0 {
		delete(f.returning, id)
	}
}

// cameBack queues the lane of a PDC by which read data came: a read may ask for more.
func (f *FEP) cameBack(pdc *pds.PDC) {
	if ln := &f.lanes[pdc.Slot]; ln.q.len() > 0 {
		f.wakeData(ln, &f.peers[pdc.Peer])
	}
}

// drainReturns moves read data of a PDC into the train. It returns the offset of the newest packet,
// or last if there is none, and why it stopped.
func (f *FEP) drainReturns(now time.Duration, p *peer, pdc *pds.PDC, path, last int) (int, laneState) {
	same := f.goesBy(pdc.Remote(), path, classNew)
	for {
		pc, ok := f.ses.PeekReturn(pdc.Slot, int(p.mtu))
		if !ok {
			return last, laneDry
		}
		n := int(pc.Len) + f.form.reqLen + wire.RspDataLen - wire.ReqStdLen
		if pc.Kind&piece.Small != 0 {
			n += wire.RspDataSmallLen - wire.RspDataLen
		}
		if !same || !f.out.room(n) {
			return last, laneMore
		}
		if !pdc.CanReturn(n + f.form.overhead) {
			return last, laneBlocked
		}
		pdc.Push(now, pc, n+f.form.overhead, uint8(path))
		b := pdc.ReturnHeader(now, f.join(pdc.Remote(), path, n, classNew))
		f.joined(f.ses.AppendReturn(b, pc))
		if pdc.Nearly() {
			f.askAck()
		}
		f.stats.TxData++
		last = f.out.off
	}
}
