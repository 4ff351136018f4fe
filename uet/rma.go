package uet

import (
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
)

// RMAIovLimit is the most places of a peer's memory that one operation names (R-INFO-10).
const RMAIovLimit = 1

// An RMAIov is a place in the memory of a peer (struct fi_rma_iov): an address in the region that
// has the key.
type RMAIov struct {
	Addr, Len, Key uint64
}

// RMAMsg is the argument of WriteMsg and ReadMsg (struct fi_msg_rma). The call borrows it.
type RMAMsg struct {
	Iov     [][]byte
	Addr    fi.Addr
	RMAIov  []RMAIov // one, as long as Iov
	Context any
	Data    uint64 // remote CQ data, with fi.RemoteCQData
}

// Write writes buf to the memory of a peer (fi_write): to the address addr in the region with
// this key. Of a region without fi.MRVirtAddr, addr is an offset. The completion says at the
// level asked for that the bytes are there. What the peer refuses ends the write in error:
// fi.EKEYREJECTED an unknown key, fi.EACCES a missing right, fi.EFAULT bytes outside of the region
// (R-RMA-09).
func (p *posts) Write(buf []byte, dest fi.Addr, addr, key uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpWrite, Buf: buf, RemoteAddr: addr, Key: key, Context: ctx}
	return p.plain(&op, dest)
}

// Writev writes the bytes of iov, one behind the other (fi_writev).
func (p *posts) Writev(iov [][]byte, dest fi.Addr, addr, key uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpWrite, Iov: iov, RemoteAddr: addr, Key: key, Context: ctx}
	return p.plain(&op, dest)
}

// WriteData is Write with remote CQ data (fi_writedata): the peer gets a completion with the
// flags fi.RMA, fi.RemoteWrite and fi.RemoteCQData when all bytes are there. It takes no receive
// of the peer (R-RMA-04).
func (p *posts) WriteData(buf []byte, data uint64, dest fi.Addr, addr, key uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpWrite, Buf: buf, Data: data, HasData: true, RemoteAddr: addr, Key: key, Context: ctx}
	return p.plain(&op, dest)
}

// WriteMsg is Writev with flags, those of SendMsg (fi_writemsg). With fi.CommitComplete, which needs the
// capability fi.RMAPmem, it completes when the bytes survive a loss of power at the peer (R-CMPL-13): the
// region is registered with fi.RMAPmem there. Else it ends with fi.EOPNOTSUPP, and the bytes are there;
// fi.EIO: the peer could not store them. fi.EINVAL: RMAIov has not one
// element, or another length than Iov (R-RMA-06).
func (p *posts) WriteMsg(m *RMAMsg, flags fi.Flags) error { return p.rma(transport.OpWrite, m, flags) }

// InjectWrite is Write without a completion; buf may be used again when the call returns
// (fi_inject_write, R-RMA-07).
func (p *posts) InjectWrite(buf []byte, dest fi.Addr, addr, key uint64) error {
	op := transport.Op{Kind: transport.OpWrite, Buf: buf, RemoteAddr: addr, Key: key}
	return p.injected(&op, dest)
}

// InjectWriteData is InjectWrite with remote CQ data (fi_inject_writedata).
func (p *posts) InjectWriteData(buf []byte, data uint64, dest fi.Addr, addr, key uint64) error {
	op := transport.Op{Kind: transport.OpWrite, Buf: buf, Data: data, HasData: true, RemoteAddr: addr, Key: key}
	return p.injected(&op, dest)
}

// Read reads memory of a peer into buf (fi_read): as many bytes as buf has, from the address addr
// in the region with this key. When it completes, they are in buf, whatever level was asked for
// (R-RMA-10). Errors are those of Write.
func (p *posts) Read(buf []byte, src fi.Addr, addr, key uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpRead, Buf: buf, RemoteAddr: addr, Key: key, Context: ctx}
	return p.plain(&op, src)
}

// Readv reads into the buffers of iov, one behind the other (fi_readv).
func (p *posts) Readv(iov [][]byte, src fi.Addr, addr, key uint64, ctx any) error {
	op := transport.Op{Kind: transport.OpRead, Iov: iov, RemoteAddr: addr, Key: key, Context: ctx}
	return p.plain(&op, src)
}

// ReadMsg is Readv with flags (fi_readmsg): fi.Completion, fi.More, fi.Fence, and levels, which
// change nothing.
func (p *posts) ReadMsg(m *RMAMsg, flags fi.Flags) error {
	if flags&(fi.Inject|fi.RemoteCQData) != 0 {
		return errCallFlags
	}
	return p.rma(transport.OpRead, m, flags)
}

// rma posts a one-sided operation with flags.
func (p *posts) rma(kind transport.OpKind, m *RMAMsg, flags fi.Flags) error {
	if m == nil {
		return errNoMsg
	}
	if err := p.ready(); err != nil {
		return err
	}
	if flags&fi.MatchComplete != 0 { // R-CMPL-12: nothing is matched
		return fi.EOPNOTSUPP
	}
	pl, err := p.planDurable(flags, kind == transport.OpWrite)
	if err != nil {
		return err
	}
	op := transport.Op{Kind: kind, Iov: m.Iov, Data: m.Data, HasData: flags&fi.RemoteCQData != 0, Context: m.Context}
	if len(m.RMAIov) != RMAIovLimit || m.RMAIov[0].Len != uint64(op.Bytes()) {
		return errRMAIov
	}
	op.RemoteAddr, op.Key = m.RMAIov[0].Addr, m.RMAIov[0].Key
	return p.send(&op, m.Addr, &pl)
}
