package uet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/uetkit/uetkit/fi"
)

func TestDataOrderOfOverlappingBytes(t *testing.T) {
	t.Parallel()
	// R-ORD-06, R-ORD-01: with WAW and RAW order, of writes to the same bytes the last one posted is
	// there at the end, and a read brings what the write before it wrote, of any length and in any mix
	// of lengths, although short accesses overtake long ones otherwise. An atomic
	// operation is ordered with them in the same way.
	const n = 1 << 20
	for _, order := range []fi.Order{fi.OrderWAW | fi.OrderRAW, fi.OrderRMAWAW | fi.OrderRMARAW} {
		h := rma(fi.Atomic, 0)
		h.Tx.MsgOrder, h.Rx.MsgOrder = order, order
		r := newRig(t, h)
		a, _, toB, _ := r.pair()
		r.memory(n, fi.RemoteRead|fi.RemoteWrite, 42)
		if m := r.info.Ep; m.MaxOrderWAWSize != MaxMsgSize || m.MaxOrderRAWSize != MaxMsgSize {
			t.Errorf("%v: announced up to %d and %d bytes", order, m.MaxOrderWAWSize, m.MaxOrderRAWSize)
		}
		// Each access ends at the end of the region.
		lens, want := []int{n, 8, 5000, n, 1, n / 2, 64, 3000}, bytes.Repeat([]byte{0xee}, n)
		for round := range lens {
			for i := range lens {
				k, b := lens[(i+round)%len(lens)], byte(round*len(lens)+i)
				src := bytes.Repeat([]byte{b}, k)
				ok(t, a.Write(src, toB, uint64(n-k), 42, nil))
				copy(want[n-k:], src)
			}
			k := lens[round]
			got, old, add := make([]byte, k), make([]byte, 8), make([]byte, 8)
			binary.NativeEndian.PutUint64(add, 1)
			ok(t, a.FetchAtomic(add, old, toB, n-8, 42, fi.Uint64, fi.Sum, nil))
			ok(t, a.Read(got, toB, uint64(n-k), 42, nil))
			for range len(lens) + 2 {
				_, err := ends(t, a.tx)
				ok(t, err)
			}
			word := want[n-8:]
			if !bytes.Equal(old, word) {
				t.Errorf("%v, round %d: the atomic operation found %x, want %x", order, round, old, word)
			}
			binary.NativeEndian.PutUint64(word, binary.NativeEndian.Uint64(word)+1)
			if !bytes.Equal(got, want[n-k:]) {
				t.Errorf("%v, round %d: the read of %d bytes brought others than were written last", order, round, k)
			}
		}
	}
}

func TestDataOrderAfterReads(t *testing.T) {
	t.Parallel()
	// R-ORD-01, R-ORD-06: with WAR order a write changes nothing that a read posted before it brings, of any length.
	// With SAR order a message comes when such reads have what they bring, so its receiver may change the memory.
	const n = 1 << 20
	for _, order := range []fi.Order{fi.OrderWAR | fi.OrderSAR | fi.OrderSAS, fi.OrderRMAWAR | fi.OrderSAR} {
		h := rma(fi.Msg, 0)
		h.Tx.MsgOrder, h.Rx.MsgOrder = order, order
		r := newRig(t, h)
		a, b, toB, _ := r.pair()
		_, mem := r.memory(n, fi.RemoteRead|fi.RemoteWrite, 42)
		if m := r.info.Ep; m.MaxOrderWARSize != MaxMsgSize {
			t.Errorf("%v: announced up to %d bytes", order, m.MaxOrderWARSize)
		}
		got, next := [2][]byte{make([]byte, n), make([]byte, n)}, make([]byte, n)
		for round := range 8 {
			v := byte(4 * round)
			was := bytes.Repeat([]byte{v}, n)
			copy(mem, was)
			ok(t, a.Read(got[0], toB, 0, 42, nil))
			for i := range next {
				next[i] = v + 1
			}
			ok(t, a.Write(next, toB, 0, 42, nil))
			ok(t, a.Read(got[1], toB, 0, 42, nil))
			ok(t, b.Recv(make([]byte, 8), fi.AddrUnspec, nil))
			ok(t, a.Send([]byte("go on"), toB, nil))
			_, err := ends(t, b.rx)
			ok(t, err)
			for i := range mem {
				mem[i] = v + 2
			}
			for range 4 {
				_, err := ends(t, a.tx)
				ok(t, err)
			}
			if !bytes.Equal(got[0], was) {
				t.Errorf("%v, round %d: the read before the write brought other bytes than were there", order, round)
			}
			if !bytes.Equal(got[1], next) {
				t.Errorf("%v, round %d: the read before the message brought other bytes than were there when it came", order, round)
			}
		}
	}
}
