package uet

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// A store stands for storage: what Persist was called for is durable when it returns.
type store struct {
	mem   []byte
	gate  chan error // what each call returns; it waits for that
	calls atomic.Int32

	mu      sync.Mutex
	durable []byte
}

func newStore(r *rig, key uint64) *store {
	r.t.Helper()
	s := &store{mem: make([]byte, 1<<16), durable: make([]byte, 1<<16), gate: make(chan error, 100)}
	m, err := r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{s.mem}, Access: fi.RemoteRead | fi.RemoteWrite, RequestedKey: key, Persist: s.persist}, fi.RMAPmem)
	ok(r.t, err)
	r.t.Cleanup(func() {
		close(s.gate)
		_ = m.Close()
	})
	return s
}

func (s *store) persist(off, n uint64) error {
	s.calls.Add(1)
	err := <-s.gate
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		copy(s.durable[off:off+n], s.mem[off:off+n])
	}
	return err
}

// at returns n durable bytes.
func (s *store) at(off, n uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.durable[off:][:n])
}

// durable posts a durable write of n bytes at an offset of the region with this key.
func durable(e *node, to fi.Addr, off uint64, src []byte, key uint64, flags fi.Flags) error {
	return e.WriteMsg(&RMAMsg{Iov: [][]byte{src}, Addr: to, RMAIov: []RMAIov{{off, uint64(len(src)), key}}, Context: off, Data: 9}, fi.CommitComplete|flags)
}

func TestDurableWrite(t *testing.T) {
	t.Parallel()
	// R-CMPL-13, R-RMA-08, R-MR-19, R-TGT-10: neither end has a completion before the storage has the bytes.
	r := newRig(t, rma(fi.Atomic|fi.RMAPmem, 0))
	a, b, toB, _ := r.pair()
	s := newStore(r, 4)
	src := bytes.Repeat([]byte{7}, 5000)
	ok(t, durable(a, toB, 100, src, 4, fi.RemoteCQData))
	for s.calls.Load() == 0 {
		_, _ = a.tx.Read(nil)
		_, _ = b.rx.Read(nil)
	}
	var e [1]cq.Entry
	for _, q := range []*cq.CQ{a.tx, b.rx} {
		if n, err := q.Read(e[:]); n != 0 || err != fi.EAGAIN {
			t.Fatalf("%+v %v before the storage has answered", e, err)
		}
	}
	s.gate <- nil
	got, err := ends(t, a.tx)
	ok(t, err)
	if got.Context != uint64(100) || !bytes.Equal(s.at(100, 5000), src) {
		t.Errorf("%+v, and the bytes are not durable", got)
	}
	got, err = ends(t, b.rx)
	ok(t, err)
	if got.Flags != fi.RMA|fi.RemoteWrite|fi.RemoteCQData || got.Data != 9 || got.Len != 5000 {
		t.Errorf("the target has %+v", got)
	}
	// An atomic operation.
	s.gate <- nil
	ok(t, a.AtomicMsg(&AtomicMsg{Buf: []byte{1, 0, 0, 0}, Addr: toB, RMAAddr: 8, Key: 4, Type: fi.Uint32, Op: fi.AtomicWrite}, fi.CommitComplete))
	_, err = ends(t, a.tx)
	ok(t, err)
	if !bytes.Equal(s.at(8, 4), []byte{1, 0, 0, 0}) {
		t.Error("the atomic operation is not durable")
	}
}

func TestDurableFails(t *testing.T) {
	t.Parallel()
	// R-CMPL-13: what the storage says reaches both ends; the effect is unknown.
	r := newRig(t, rma(fi.RMAPmem, 0))
	a, b, toB, _ := r.pair()
	s := newStore(r, 4)
	s.gate <- errors.New("broken")
	ok(t, durable(a, toB, 0, make([]byte, 100), 4, fi.RemoteCQData))
	var fault cq.Error
	var e [1]cq.Entry
	if _, err := a.tx.SRead(e[:], 1, patience); err != fi.EAVAIL {
		t.Fatal(err)
	}
	_, err := a.tx.ReadErr(&fault, 0)
	ok(t, err)
	if fault.Err != fi.EIO || !fault.OutcomeUnknown {
		t.Errorf("%+v, want FI_EIO and an unknown effect", fault)
	}
	_, err = ends(t, b.rx)
	want(t, err, fi.EIO)
	// A region that is not durable, and calls that cannot be.
	r.memory(100, fi.RemoteWrite, 5)
	ok(t, durable(a, toB, 0, make([]byte, 100), 5, 0))
	_, err = ends(t, a.tx)
	want(t, err, fi.EOPNOTSUPP)
	want(t, a.SendMsg(&Msg{Addr: toB}, fi.CommitComplete), fi.EOPNOTSUPP)
	want(t, a.ReadMsg(&RMAMsg{Iov: [][]byte{make([]byte, 1)}, Addr: toB, RMAIov: []RMAIov{{0, 1, 4}}}, fi.CommitComplete), fi.EOPNOTSUPP)
	_, err = r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{make([]byte, 10)}, RequestedKey: 6}, fi.RMAPmem)
	want(t, err, fi.EOPNOTSUPP) // memory of no file, and nothing to call
	plain := newRig(t, rma(0, 0))
	c, _, toD, _ := plain.pair()
	want(t, durable(c, toD, 0, make([]byte, 1), 1, 0), fi.EOPNOTSUPP)
}

func TestDurableInBatches(t *testing.T) {
	t.Parallel()
	// Progress does not wait for the storage, and what comes meanwhile goes together.
	r := newRig(t, rma(fi.RMAPmem, 0))
	a, _, toB, _ := r.pair()
	s := newStore(r, 4)
	var all sync.WaitGroup
	const n = 50
	for i := range n {
		ok(t, durable(a, toB, uint64(i*100), []byte{byte(i + 1)}, 4, 0))
	}
	ok(t, a.Write(make([]byte, 10), toB, 1<<15, 4, "after")) // goes on
	if e, err := ends(t, a.tx); err != nil || e.Context != "after" {
		t.Fatalf("%+v %v, want the write behind", e, err)
	}
	all.Go(func() {
		for range n {
			s.gate <- nil
		}
	})
	for range n {
		e, err := ends(t, a.tx)
		ok(t, err)
		off := e.Context.(uint64)
		if s.at(off, 1)[0] != byte(off/100+1) {
			t.Errorf("offset %d is not durable", off)
		}
	}
	all.Wait()
	if c := s.calls.Load(); c > n/2 {
		t.Errorf("%d calls for %d writes", c, n)
	}
}

func TestDurableRegionCloses(t *testing.T) {
	t.Parallel()
	// R-MR-12: Close waits for the call that runs, and what is not durable is not told as durable.
	r := newRig(t, rma(fi.RMAPmem, 0))
	a, _, toB, _ := r.pair()
	entered, leave := make(chan bool), make(chan bool)
	var inside atomic.Bool
	m, err := r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{make([]byte, 100)}, Access: fi.RemoteWrite, RequestedKey: 4, Persist: func(uint64, uint64) error {
		inside.Store(true)
		entered <- true
		<-leave
		inside.Store(false)
		return nil
	}}, fi.RMAPmem)
	ok(t, err)
	ok(t, durable(a, toB, 0, make([]byte, 10), 4, 0))
	<-entered
	closing := func() bool {
		m.persist.mu.Lock()
		defer m.persist.mu.Unlock()
		return m.persist.closed
	}
	go func() {
		for !closing() {
			runtime.Gosched()
		}
		leave <- true
	}()
	ok(t, m.Close())
	if inside.Load() {
		t.Error("Close has returned, and the call runs")
	}
	_, err = ends(t, a.tx)
	want(t, err, fi.EKEYREJECTED)
}

// The hints name what they need.
func TestDurableNeedsOneSided(t *testing.T) {
	if in, _ := GetInfo("127.0.0.1", "", fi.Source, rma(fi.RMAPmem, 0)); len(in) == 0 || in[0].Caps&fi.RMAPmem == 0 {
		t.Error("not granted")
	}
	if in, err := GetInfo("127.0.0.1", "", fi.Source, &Info{Caps: fi.RMA}); err != nil || in[0].Caps&fi.RMAPmem != 0 {
		t.Error("granted without being asked for", fmt.Sprint(err))
	}
}
