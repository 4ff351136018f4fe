package transport

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A disk makes what is written to the region of b durable, some time after it is asked.
type disk struct {
	*pipe
	region *Region
	mem    []byte
	stable []byte // what survives a loss of power
	delay  time.Duration
	rc     wire.RC // what becomes of a commit
	due    []sync
	log    []string // ends at both sides, in order
}

// A sync is a commit under way.
type sync struct {
	id, off uint64
	n       int
	at      time.Duration
}

func newDisk(t *testing.T, persistent bool) *disk {
	t.Helper()
	d := &disk{pipe: newPipe(t, nil), mem: make([]byte, 1<<16), stable: make([]byte, 1<<16), delay: 3 * time.Millisecond, rc: wire.RCOK}
	var err error
	d.region, err = d.b.Register(RegionConfig{Key: 3, Buf: d.mem, Access: RemoteWrite | RemoteRead | RemoteAtomic, Endpoint: AllEndpoints, Persistent: persistent, Context: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run lets the time go until so many operations of a have ended.
func (d *disk) run(n int) {
	d.t.Helper()
	done := 0
	for end := d.now + 30*time.Second; done < n; d.now += 100 * time.Microsecond {
		if d.now > end {
			d.t.Fatalf("%d of %d have ended; %q\n%s\n%s", done, n, d.log, d.a.Dump(), d.b.Dump())
		}
		d.a.Advance(d.now)
		d.b.Advance(d.now)
		d.exchange()
		for e := d.b.NextEvent(); e != nil; e = d.b.NextEvent() {
			if e.Kind == OpCommit {
				d.due = append(d.due, sync{e.Data, e.Tag, e.Len, d.now + d.delay})
				continue
			}
			d.log = append(d.log, fmt.Sprint("b ", e.Kind, " ", e.Cause, " ", e.RC, " ", e.Data))
		}
		keep := d.due[:0]
		for _, s := range d.due {
			if s.at > d.now {
				keep = append(keep, s)
				continue
			}
			if d.rc == wire.RCOK {
				copy(d.stable[s.off:], d.mem[s.off:][:s.n])
			}
			d.log = append(d.log, "synced")
			d.b.Committed(s.id, d.rc)
		}
		d.due = keep
		for e := d.a.NextEvent(); e != nil; e = d.a.NextEvent() {
			done++
			d.log = append(d.log, fmt.Sprint("a ", e.Cause, " ", e.RC, " unknown ", e.Unknown))
		}
	}
}

func (d *disk) want(log ...string) {
	d.t.Helper()
	if fmt.Sprint(d.log) != fmt.Sprint(log) {
		d.t.Errorf("%q, want %q", d.log, log)
	}
}

// write is a write of n bytes, each of which is not 0.
func (d *disk) write(off uint64, n int) Op {
	return Op{Kind: OpWrite, Peer: d.toB, RI: 15, Key: 3, RemoteAddr: off, Buf: pattern(n, 1), Level: LevelCommit, Context: "w"}
}

// S-CMT-01, S-CMT-02, R-CMPL-13, R-RMA-08, R-TGT-10: neither side has a completion before the bytes are durable.
func TestCommit(t *testing.T) {
	for _, n := range []int{1, 1000, 20000} {
		for _, ordered := range []bool{false, true} {
			for _, lossy := range []bool{false, true} {
				t.Run(fmt.Sprint(n, ordered, lossy), func(t *testing.T) {
					d := newDisk(t, true)
					if k := 0; lossy {
						d.drop = func(*FEP, []byte) bool { k++; return k%4 == 3 }
					}
					op := d.write(100, n)
					op.Ordered, op.HasData, op.Data = ordered, true, 77
					d.post(d.a, op)
					d.run(1)
					for i := range n {
						if d.stable[100+i] != op.Buf[i] {
							t.Fatalf("byte %d was not durable", i)
						}
					}
					if len(d.log) != 3 || d.log[0] != "synced" {
						t.Errorf("%q: completion before the bytes were durable", d.log)
					}
					d.drop = nil
					d.checkIdle()
				})
			}
		}
	}
}

// R-CMPL-13: an atomic operation is durable too; one of no bytes has nothing to be made so.
func TestCommitOfOthers(t *testing.T) {
	d := newDisk(t, true)
	operand := binary.NativeEndian.AppendUint64(nil, 5)
	d.post(d.a, Op{Kind: OpAtomic, Peer: d.toB, RI: 15, Key: 3, RemoteAddr: 8, Buf: operand, AMO: &AMO{Op: wire.AtomicSum, Type: wire.Uint64}, Level: LevelCommit})
	d.run(1)
	d.want("synced", "a ok NULL unknown false")
	if binary.NativeEndian.Uint64(d.stable[8:]) != 5 {
		t.Error("not durable")
	}
	op := d.write(0, 0)
	d.post(d.a, op)
	d.run(1)
	d.want("synced", "a ok NULL unknown false", "a ok NULL unknown false")
	d.checkIdle()
}

// R-CMPL-13: what the sync says reaches the initiator, and the target where that gets a completion.
// The bytes are there, and nobody knows what survives.
func TestCommitFails(t *testing.T) {
	d := newDisk(t, true)
	d.rc = wire.RCUncor
	op := d.write(0, 3000)
	op.HasData = true
	d.post(d.a, op)
	d.run(1)
	d.want("synced", fmt.Sprint("b ", OpCommitted, " refused UNCOR 0"), "a refused UNCOR unknown true")
	d.checkIdle()
}

// S-CMT-04, R-CMPL-13: a target that does not make things durable does not seem to.
func TestCommitNowhere(t *testing.T) {
	d := newDisk(t, false)
	d.post(d.a, d.write(0, 3000))
	d.run(1)
	d.want("a refused UNSUPPORTED_OP unknown true")
	d.region.Access = RemoteRead
	d.post(d.a, d.write(0, 3000))
	d.run(1)
	d.want("a refused UNSUPPORTED_OP unknown true", "a refused PERM_VIOLATION unknown false")
	d.checkIdle()
}

// R-MR-12: a region that was removed meanwhile is not durable.
func TestCommitOfRemovedRegion(t *testing.T) {
	d := newDisk(t, true)
	d.post(d.a, d.write(0, 100))
	d.delay = time.Hour
	for len(d.due) == 0 {
		d.a.Advance(d.now)
		d.exchange()
		if e := d.b.NextEvent(); e != nil {
			d.due = append(d.due, sync{e.Data, e.Tag, e.Len, d.now})
		}
	}
	d.b.Deregister(d.region)
	d.run(1)
	d.want("synced", "a refused BAD_MKEY unknown true")
	d.checkIdle()
}

// docs/faults.md: the initiator dies while its bytes are made durable: the target keeps nothing.
func TestCommitOfTheDead(t *testing.T) {
	d := newDisk(t, true)
	op := d.write(0, 100)
	op.HasData, op.Data = true, 9
	d.post(d.a, op)
	for len(d.due) == 0 {
		d.a.Advance(d.now)
		d.exchange()
		if e := d.b.NextEvent(); e != nil {
			d.due = append(d.due, sync{e.Data, e.Tag, e.Len, 0})
		}
	}
	d.drop = func(*FEP, []byte) bool { return true }
	for end := d.now + 3*time.Minute; d.now < end; d.now += 50 * time.Millisecond {
		d.b.Advance(d.now)
		d.exchange()
	}
	if n := d.b.PDCs(); n != 0 {
		t.Fatalf("%d PDCs", n)
	}
	d.b.Committed(d.due[0].id, wire.RCOK)
	if e := d.b.NextEvent(); e == nil || e.Kind != OpCommitted || e.Cause != OK || e.Data != 9 {
		t.Errorf("%+v: the bytes are durable, and the owner was to hear of it", e)
	}
	d.b.Committed(d.due[0].id, wire.RCOK) // nothing
	if e := d.b.NextEvent(); e != nil {
		t.Errorf("%+v", e)
	}
}
