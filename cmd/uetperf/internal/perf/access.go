package perf

import (
	"encoding/binary"
	"unsafe"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// memoryKey is the key of the memory that a server's first leg lends. Where several have a domain, that of each is one
// more.
const memoryKey = 0x75

// lend makes the memory of a server's leg accessible, and the operand of a client's.
func (l *leg) lend(s *traffic.Spec, server bool) (err error) {
	l.key = keyOf(s, l.Index)
	if !server {
		for range s.Size / 8 {
			l.adds = binary.NativeEndian.AppendUint64(l.adds, 1)
		}
		return nil
	}
	words, flags := (int64(s.Places())*s.Size+7)/8+1, fi.Flags(0)
	if s.Durable() {
		if l.memory, l.unmap, err = mapFile(8 * words); err != nil {
			return err
		}
		flags = fi.RMAPmem
	} else {
		l.memory = unsafe.Slice((*byte)(unsafe.Pointer(&make([]uint64, words)[0])), 8*words) // numbers are aligned
	}
	l.Lend(l.memory)
	if l.end.region, err = l.end.domain.RegMR(l.memory, fi.RemoteRead|fi.RemoteWrite, 0, l.key, flags, nil); err == nil && s.Together() {
		if err = l.end.region.Bind(l.end.ep, 0); err == nil {
			err = l.end.region.Enable()
		}
	}
	return err
}

// keyOf is the key of the memory of a leg.
func keyOf(s *traffic.Spec, index int) uint64 {
	key := uint64(memoryKey)
	if s.Together() {
		key += uint64(index)
	}
	if s.Mode == traffic.RUDI {
		key |= uet.IdempotentKey
	}
	return key
}

// returned ends the access of the client and checks the memory.
func (l *leg) returned() {
	l.end.withdraw()
	l.Returned(l.memory)
	l.unmap()
	l.memory = nil
}

// message describes the write of a slot to the address at. It is good until the next call.
func (l *leg) message(s *traffic.Slot, at uint64) *uet.RMAMsg {
	m := &l.msg
	m.Iov, m.RMAIov = append(m.Iov[:0], s.Buf), append(m.RMAIov[:0], uet.RMAIov{Addr: at, Len: uint64(len(s.Buf)), Key: l.key})
	m.Addr, m.Context, m.Data = l.peer, s, s.Data
	return m
}

// Access is a method of traffic.Conn.
func (l *leg) Access(s *traffic.Slot) (bool, error) {
	ep, at := l.p.end.ep, uint64(s.Place)*uint64(l.Spec.Size)
	switch l.Spec.Op {
	case traffic.Write:
		if l.durable {
			return posted(ep.WriteMsg(l.message(s, at), fi.CommitComplete))
		}
		return posted(ep.Write(s.Buf, l.peer, at, l.key, s))
	case traffic.WriteData:
		if l.durable {
			return posted(ep.WriteMsg(l.message(s, at), fi.CommitComplete|fi.RemoteCQData))
		}
		return posted(ep.WriteData(s.Buf, s.Data, l.peer, at, l.key, s))
	case traffic.Read:
		return posted(ep.Read(s.Buf, l.peer, at, l.key, s))
	case traffic.Swap:
		return posted(ep.FetchAtomic(s.New, s.Buf, l.peer, at, l.key, fi.Uint64, fi.AtomicWrite, s))
	case traffic.CAS:
		return posted(ep.CompareAtomic(s.New, s.Old, s.Buf, l.peer, at, l.key, fi.Uint64, fi.CSwap, s))
	}
	return posted(ep.FetchAtomic(l.adds, s.Buf, l.peer, at, l.key, fi.Uint64, fi.Sum, s))
}

// Durable returns why tests of durable writes cannot run against a server of this host and user, nil if they can.
func Durable() error {
	_, unmap, err := mapFile(1 << 12)
	if err != nil {
		return err
	}
	unmap()
	return nil
}
