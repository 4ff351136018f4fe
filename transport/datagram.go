package transport

import (
	"time"

	"github.com/uetkit/uetkit/transport/internal/pds"
	"github.com/uetkit/uetkit/transport/wire"
)

// This file has messages of a FEP with Config.Datagram: one packet each, of no PDC.

// postUnusual is Post of a FEP that takes no operations any more, or has datagrams.
func (f *FEP) postUnusual(now time.Duration, op *Op) error {
	switch {
	case f.barred:
		return ErrClosed
	case op.Kind == OpRecv:
		if int(op.Peer) >= len(f.peers) {
			return ErrNoPeer
		}
		return mapErr(f.ses.Recv(now, op))
	case op.Kind != OpSend:
		panic("BUG: transport: an operation that datagrams do not have")
	case op.Peer == NoPeer || int(op.Peer) >= len(f.peers):
		return ErrNoPeer
	case op.Bytes() > int(f.peers[op.Peer].mtu):
		return ErrTooLong
	case f.sec != nil && !f.sec.Ready():
		return ErrNoKey
	}
	f.now = now
	h, err := f.ses.Send(now, op, op.Bytes())
	if err != nil {
		return mapErr(err)
	}
	f.other = true
	f.grams.push(h)
	return nil
}

// fillOther adds packets of no PDC to an empty train: answers first.
func (f *FEP) fillOther() {
	if f.fillIdemAnswers(); f.out.size == 0 {
		f.fillIdempotent()
	}
	if f.out.size == 0 {
		f.fillDatagrams()
	}
	f.other = f.grams.len() > 0 || f.idem.ready.len() > 0 || f.idem.answers.len() > 0
}

// because notes why the next packet of no PDC is sent.
func (f *FEP) because(c pds.Cause) {
	if f.notes != nil {
		f.pds.Cause = c
	}
}

// fillDatagrams adds datagrams to the train. Their sends end.
func (f *FEP) fillDatagrams() {
	for f.grams.len() > 0 {
		h := f.grams.front()
		id, n, _ := f.ses.Info(h)
		if id == uint32(NoPeer) {
			f.grams.pop() // it was cancelled
			continue
		}
		p := &f.peers[id]
		n += wire.UUDLen + wire.ReqStdLen + f.form.wrap
		path := 0
		if f.form.sprays {
			path = f.pathOf(p)
		}
		if !f.fits(&p.addr, path, n, classNew) {
			return
		}
		b := wire.UUDHdr{Next: wire.NextReqStd}.Append(f.join(&p.addr, path, n, classNew))
		f.because(pds.CauseNew)
		b, _ = f.ses.AppendDatagram(b, h)
		f.grams.pop()
		f.joined(b)
		f.seal()
		f.stats.TxData++
	}
}

// pathOf chooses the path of a packet of no PDC: that of the train if it goes to the same peer. With
// Symmetric encapsulation it leaves from the main port, by which the target knows its source.
func (f *FEP) pathOf(p *peer) int {
	if !f.form.standard {
		return 0
	}
	if len(f.out.d.Data) > 0 && f.out.d.Remote == p.addr {
		return f.out.d.Path
	}
	if p.paths == nil {
		f.choosePaths(p)
	}
	return p.paths.spray.Pick(f.now)
}

// datagram executes a packet of UUD. Its source is a peer only as long as it takes, if the
// application does not know it: its number is not used again soon.
func (f *FEP) datagram(b []byte) {
	h, n, err := wire.ParseUUD(b)
	switch {
	case err != nil:
		f.dropInvalid(err)
		return
	case !f.cfg.Datagram:
		f.drop(DropType)
		return
	case h.Next != wire.NextReqStd:
		f.drop(DropNextHdr)
		return
	case !f.mayTalk():
		return
	case f.sec != nil && !f.sec.Fresh():
		f.drop(DropReplay) // T23
		return
	}
	f.stats.RxData++
	id := f.book.byAddr[f.rx.in.From]
	if id == NoPeer && f.ses.Recvs() > 0 {
		if id, err = f.intern(f.rx.in.From); err != nil {
			f.drop(DropSource)
			return
		}
		defer f.maybeFree(id)
	}
	f.ses.Datagram(f.now, uint32(id), b[n:])
}
