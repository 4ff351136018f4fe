package uet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/uetkit/uetkit/fi"
)

func TestFenceOfOneSidedOperations(t *testing.T) {
	t.Parallel()
	// R-ORD-07: a fenced write, read or atomic operation, and one that is posted behind it, touches the
	// target when all that was posted before is over, although short accesses overtake long ones
	// otherwise. Each touches the last word of a long write, or of a long read.
	const n = 2 << 20
	r := newRig(t, rma(fi.Atomic|fi.Fence, 0))
	a, _, toB, _ := r.pair()
	_, mem := r.memory(n, fi.RemoteRead|fi.RemoteWrite, 42)
	last := mem[n-8:]
	word := binary.NativeEndian
	access := map[string]func(buf []byte, flags fi.Flags) error{
		"write": func(buf []byte, flags fi.Flags) error {
			word.PutUint64(buf, 1000)
			return a.WriteMsg(&RMAMsg{Iov: [][]byte{buf}, Addr: toB, RMAIov: []RMAIov{{n - 8, 8, 42}}}, flags)
		},
		"read": func(buf []byte, flags fi.Flags) error {
			return a.ReadMsg(&RMAMsg{Iov: [][]byte{buf}, Addr: toB, RMAIov: []RMAIov{{n - 8, 8, 42}}}, flags)
		},
		"atomic": func(buf []byte, flags fi.Flags) error {
			word.PutUint64(buf, 5)
			return a.AtomicMsg(&AtomicMsg{Buf: buf, Addr: toB, RMAAddr: n - 8, Key: 42, Type: fi.Uint64, Op: fi.Sum}, flags)
		},
		"fetching atomic": func(buf []byte, flags fi.Flags) error {
			add := make([]byte, 8)
			word.PutUint64(add, 5)
			return a.FetchAtomicMsg(&AtomicMsg{Buf: add, Result: buf, Addr: toB, RMAAddr: n - 8, Key: 42, Type: fi.Uint64, Op: fi.Sum}, flags)
		},
	}
	// The word at the end, and what is in the buffer then, if the word was 77 before.
	wants := map[string][2]uint64{"write": {1000, 1000}, "read": {77, 77}, "atomic": {82, 5}, "fetching atomic": {82, 77}}
	for name, post := range access {
		for _, behind := range []bool{false, true} {
			for _, first := range []string{"write", "read"} {
				for _, level := range []fi.Flags{0, fi.DeliveryComplete} {
					what := fmt.Sprintf("%s after a %s, behind %v, level %v", name, first, behind, level)
					clear(mem)
					long, buf, count := make([]byte, n), make([]byte, 8), 2
					if first == "write" {
						word.PutUint64(long[n-8:], 77)
						ok(t, a.WriteMsg(&RMAMsg{Iov: [][]byte{long}, Addr: toB, RMAIov: []RMAIov{{0, n, 42}}}, fi.TransmitComplete))
					} else {
						word.PutUint64(last, 77)
						ok(t, a.Read(long, toB, 0, 42, nil))
					}
					if behind {
						count++
						ok(t, a.WriteMsg(&RMAMsg{Addr: toB, RMAIov: []RMAIov{{0, 0, 42}}}, fi.Fence|level))
						ok(t, post(buf, level))
					} else {
						ok(t, post(buf, fi.Fence|level))
					}
					for range count {
						_, err := ends(t, a.tx)
						ok(t, err)
					}
					now := make([]byte, 8)
					ok(t, a.Read(now, toB, n-8, 42, nil))
					_, err := ends(t, a.tx)
					ok(t, err)
					if got := [2]uint64{word.Uint64(now), word.Uint64(buf)}; got != wants[name] {
						t.Errorf("%s: the word and the buffer are %d at the end, want %d", what, got, wants[name])
					}
					if first == "read" && (word.Uint64(long[n-8:]) != 77 || bytes.Count(long[:n-8], []byte{0}) != n-8) {
						t.Errorf("%s: the long read brought %d", what, word.Uint64(long[n-8:]))
					}
				}
			}
		}
	}
}
