package uet

import (
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// MaxAtomicSize is the most bytes of operands of one atomic operation. They travel in one packet.
const MaxAtomicSize = transport.MaxAtomic

// amoOps and amoTypes are the numbers of operations and types on the wire (R-AMO-02, R-AMO-03).
var (
	amoOps = [...]wire.AtomicOp{
		fi.Min: wire.AtomicMin, fi.Max: wire.AtomicMax, fi.Sum: wire.AtomicSum, fi.Prod: wire.AtomicProd, fi.LOr: wire.AtomicLOr, fi.LAnd: wire.AtomicLAnd,
		fi.BOr: wire.AtomicBOr, fi.BAnd: wire.AtomicBAnd, fi.LXOr: wire.AtomicLXor, fi.BXOr: wire.AtomicBXor, fi.AtomicRead: wire.AtomicRead,
		fi.AtomicWrite: wire.AtomicWrite, fi.CSwap: wire.AtomicCSwap, fi.CSwapNE: wire.AtomicCSwapNE, fi.CSwapLE: wire.AtomicCSwapLE,
		fi.CSwapLT: wire.AtomicCSwapLT, fi.CSwapGE: wire.AtomicCSwapGE, fi.CSwapGT: wire.AtomicCSwapGT, fi.MSwap: wire.AtomicMSwap, fi.Diff: wire.AtomicDiff,
	}
	amoTypes = [...]wire.AtomicType{
		fi.Int8: wire.Int8, fi.Uint8: wire.Uint8, fi.Int16: wire.Int16, fi.Uint16: wire.Uint16, fi.Int32: wire.Int32, fi.Uint32: wire.Uint32,
		fi.Int64: wire.Int64, fi.Uint64: wire.Uint64, fi.Float: wire.Float, fi.Double: wire.Double, fi.FloatComplex: wire.FloatComplex,
		fi.DoubleComplex: wire.DoubleComplex, fi.LongDouble: wire.LongDouble, fi.LongDoubleComplex: wire.LongDoubleComplex,
		fi.Int128: wire.Int128, fi.Uint128: wire.Uint128, fi.Float16: wire.FP16, fi.BFloat16: wire.BF16,
	}
)

// An AtomicMsg is the argument of AtomicMsg, FetchAtomicMsg and CompareAtomicMsg (struct fi_msg_atomic).
// The call borrows it.
type AtomicMsg struct {
	Buf     []byte // the operands
	Compare []byte // CompareAtomicMsg: the value to compare with
	Result  []byte // gets the old values, if the operation fetches
	Addr    fi.Addr
	RMAAddr uint64 // the address of the first element in the region that has the key; with fi.Tagged the offset in the receive
	Key     uint64 // with fi.Tagged the tag
	Type    fi.Datatype
	Op      fi.AtomicOp
	Context any
	Data    uint64 // remote CQ data, with fi.RemoteCQData
}

// An AtomicAttr says what QueryAtomic found (struct fi_atomic_attr).
type AtomicAttr struct {
	Count int // most elements of one operation
	Size  int // bytes of an element
}

// atomicCount returns how many elements an operation may have, fi.EOPNOTSUPP if there is none for the
// type in its family (R-AMO-04, R-AMO-05).
func atomicCount(f transport.AMOFamily, t fi.Datatype, op fi.AtomicOp) (int, error) {
	if int(t) >= len(amoTypes) || int(op) >= len(amoOps) || !transport.AMOValid(f, amoOps[op], amoTypes[t]) {
		return 0, fi.EOPNOTSUPP
	}
	if f == transport.AMOCompare {
		return 1, nil // the wire has places for one value to compare with
	}
	return MaxAtomicSize / t.Size(), nil
}

// AtomicValid returns the most elements of an Atomic (fi_atomicvalid). fi.EOPNOTSUPP: there is no such
// operation on the type.
func (ep *Endpoint) AtomicValid(t fi.Datatype, op fi.AtomicOp) (int, error) {
	return atomicCount(transport.AMOBase, t, op)
}

// FetchAtomicValid is AtomicValid for FetchAtomic (fi_fetch_atomicvalid).
func (ep *Endpoint) FetchAtomicValid(t fi.Datatype, op fi.AtomicOp) (int, error) {
	return atomicCount(transport.AMOFetch, t, op)
}

// CompareAtomicValid is AtomicValid for CompareAtomic (fi_compare_atomicvalid).
func (ep *Endpoint) CompareAtomicValid(t fi.Datatype, op fi.AtomicOp) (int, error) {
	return atomicCount(transport.AMOCompare, t, op)
}

// QueryAtomic says whether there is an atomic operation for a type (fi_query_atomic): one that returns
// nothing, with fi.FetchAtomic or fi.CompareAtomic in flags one of these families. fi.EINVAL: both.
// fi.EBADFLAGS: other flags. fi.EOPNOTSUPP: there is none.
func (d *Domain) QueryAtomic(t fi.Datatype, op fi.AtomicOp, flags fi.Flags) (AtomicAttr, error) {
	f := transport.AMOBase
	switch flags {
	case 0:
	case fi.FetchAtomic:
		f = transport.AMOFetch
	case fi.CompareAtomic:
		f = transport.AMOCompare
	case fi.FetchAtomic | fi.CompareAtomic:
		return AtomicAttr{}, fi.EINVAL
	default:
		return AtomicAttr{}, fi.EBADFLAGS
	}
	n, err := atomicCount(f, t, op)
	if err != nil {
		return AtomicAttr{}, err
	}
	return AtomicAttr{n, t.Size()}, nil
}

// Atomic executes op with each element of buf on the memory of a peer (fi_atomic): on as many elements
// from addr on, in the region with this key. Each element changes at once, whoever looks; several do
// not change together (R-AMO-07). The peer executes an operation once at most, and once if it
// completes; if it fails with an unknown effect, nobody can tell.
//
// Elements of up to 8 bytes also change at once for sync/atomic in the process of the peer; those of
// 16 bytes only for other operations of peers (R-AMO-14). What the peer refuses ends the operation in
// error: fi.EKEYREJECTED, fi.EACCES, fi.EFAULT as with Write; fi.EINVAL if elements are not aligned to
// their size, at most 8. The elements lie in one part of the region.
//
// fi.EOPNOTSUPP: there is no such operation on the type, or the type is fi.LongDouble or fi.LongDoubleComplex, which
// have another format on each platform. fi.EMSGSIZE: more elements than AtomicValid says.
// fi.EINVAL: none, or a part of one.
func (p *posts) Atomic(buf []byte, dest fi.Addr, addr, key uint64, t fi.Datatype, op fi.AtomicOp, ctx any) error {
	return p.atomic(transport.AMOBase, &AtomicMsg{Buf: buf, Addr: dest, RMAAddr: addr, Key: key, Type: t, Op: op, Context: ctx}, 0, byDefault)
}

// InjectAtomic is Atomic that writes no completion and returns buf at once (fi_inject_atomic, R-AMO-13).
func (p *posts) InjectAtomic(buf []byte, dest fi.Addr, addr, key uint64, t fi.Datatype, op fi.AtomicOp) error {
	return p.atomic(transport.AMOBase, &AtomicMsg{Buf: buf, Addr: dest, RMAAddr: addr, Key: key, Type: t, Op: op}, 0, byInject)
}

// AtomicMsg is Atomic with flags (fi_atomicmsg).
//
// With fi.Tagged the target is the buffer of a tagged receive that the peer has posted, instead of a region:
// Key is the tag, and RMAAddr the offset of the first element in the buffer. It matches like a tagged message, and the
// receive completes with it like with one: the length is that of the elements. The endpoint of the peer needs the
// capabilities fi.Tagged and fi.Atomic. If no receive is posted, the operation waits at the peer for one. One that returns nothing
// has then succeeded, like a message; one that fetches succeeds when a receive has matched it. Elements that are not in the buffer, or
// not aligned there, change nothing: fi.EFAULT or fi.EINVAL here if the receive was posted or the operation fetches, and
// fi.ETRUNC or fi.EIO at the receive, which they end.
func (p *posts) AtomicMsg(m *AtomicMsg, flags fi.Flags) error {
	return p.atomicMsg(transport.AMOBase, m, flags)
}

// FetchAtomic is Atomic that also returns the old values, in result, which is as long as the operands
// (fi_fetch_atomic). fi.AtomicRead has no operands: buf is nil. The values are there when it completes, at
// whatever level (R-AMO-08).
func (p *posts) FetchAtomic(buf, result []byte, dest fi.Addr, addr, key uint64, t fi.Datatype, op fi.AtomicOp, ctx any) error {
	return p.atomic(transport.AMOFetch, &AtomicMsg{Buf: buf, Result: result, Addr: dest, RMAAddr: addr, Key: key, Type: t, Op: op, Context: ctx}, 0, byDefault)
}

// FetchAtomicMsg is FetchAtomic with flags (fi_fetch_atomicmsg).
func (p *posts) FetchAtomicMsg(m *AtomicMsg, flags fi.Flags) error {
	return p.atomicMsg(transport.AMOFetch, m, flags)
}

// CompareAtomic writes buf where op compares well with compare, and returns the old value in result
// (fi_compare_atomic). It has one element.
func (p *posts) CompareAtomic(buf, compare, result []byte, dest fi.Addr, addr, key uint64, t fi.Datatype, op fi.AtomicOp, ctx any) error {
	return p.atomic(transport.AMOCompare, &AtomicMsg{Buf: buf, Compare: compare, Result: result, Addr: dest, RMAAddr: addr, Key: key, Type: t, Op: op, Context: ctx}, 0, byDefault)
}

// CompareAtomicMsg is CompareAtomic with flags (fi_compare_atomicmsg).
func (p *posts) CompareAtomicMsg(m *AtomicMsg, flags fi.Flags) error {
	return p.atomicMsg(transport.AMOCompare, m, flags)
}

// A caller says whose flags an atomic operation has.
type caller uint8

const (
	byDefault caller = iota // those of the endpoint
	byInject                // those of an inject call
	byFlags                 // those of the call
)

func (p *posts) atomicMsg(f transport.AMOFamily, m *AtomicMsg, flags fi.Flags) error {
	switch {
	case m == nil:
		return fi.EINVAL
	case flags&fi.MatchComplete != 0: // R-CMPL-12
		return fi.EOPNOTSUPP
	case flags&fi.Tagged != 0 && flags&fi.CommitComplete != 0: // R-CMPL-13: a receive is not durable
		return fi.EOPNOTSUPP
	}
	return p.atomic(f, m, flags, byFlags)
}

// atomic posts an atomic operation.
func (p *posts) atomic(f transport.AMOFamily, m *AtomicMsg, flags fi.Flags, by caller) error {
	if err := p.ready(); err != nil {
		return err
	}
	most, err := atomicCount(f, m.Type, m.Op)
	if err != nil {
		return err
	}
	size, n := m.Type.Size(), len(m.Buf)
	op := transport.Op{Kind: transport.OpAtomic, Buf: m.Buf, RemoteAddr: m.RMAAddr, Key: m.Key, Context: m.Context, Data: m.Data, HasData: flags&fi.RemoteCQData != 0}
	amo := &transport.AMO{Op: amoOps[m.Op], Type: amoTypes[m.Type], Tagged: flags&fi.Tagged != 0}
	if amo.Tagged { // R-AMO-12
		op.Key, op.Tag = 0, m.Key
	}
	if f != transport.AMOBase {
		op.Kind, amo.Result = transport.OpFetch, m.Result
	}
	if m.Op == fi.AtomicRead { // R-AMO-10
		op.Buf, amo.Bytes, n = nil, len(m.Result), len(m.Result)
	}
	if f == transport.AMOCompare {
		amo.Compare = m.Compare
	}
	switch {
	case n > most*size:
		return fi.EMSGSIZE // R-AMO-06
	case n == 0 || n%size != 0 || f != transport.AMOBase && len(m.Result) != n || f == transport.AMOCompare && len(m.Compare) != n:
		return fi.EINVAL
	}
	op.AMO = amo
	switch by {
	case byDefault:
		return p.send(&op, m.Addr, &p.tx.Load().plan)
	case byInject:
		return p.send(&op, m.Addr, &p.tx.Load().inject)
	}
	pl, err := p.planDurable(flags&^fi.Tagged, f == transport.AMOBase)
	if err != nil {
		return err
	}
	return p.send(&op, m.Addr, &pl)
}
