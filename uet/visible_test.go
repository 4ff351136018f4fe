package uet

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/uetkit/uetkit/fi"
)

func TestPollingSeesWhatIsDelivered(t *testing.T) {
	// R-CMPL-07, R-TGT-02, S-RSP-05: a target that reads no entries polls its memory with sync/atomic. What has a
	// DELIVERY_COMPLETE entry at the initiator is there, at once and without a call at the target. The
	// bytes of a write are there for whoever sees a flag that was changed after its entry.
	t.Parallel()
	r := newRig(t, rma(fi.Atomic, 0))
	a, _, toB, _ := r.pair()
	const rounds, slot = 16, 20_000
	_, mem := r.memory(slot*(rounds+1), fi.RemoteWrite, 5)
	flag := (*uint64)(unsafe.Pointer(&mem[0]))
	atomic.StoreUint64(flag, 0)
	set := func(n byte, level fi.Flags) {
		t.Helper()
		ok(t, a.AtomicMsg(&AtomicMsg{Buf: native.AppendUint64(nil, uint64(n)), Addr: toB, Key: 5, Type: fi.Uint64, Op: fi.AtomicWrite}, level))
		_, err := ends(t, a.tx)
		ok(t, err)
	}
	for n := range byte(100) {
		set(n, fi.DeliveryComplete)
		if got := atomic.LoadUint64(flag); got != uint64(n) {
			t.Fatalf("the flag is %d when the entry of %d is read", got, n)
		}
	}
	for n := byte(101); n < 101+rounds; n++ {
		at := slot * (int(n) - 100)
		seen := make(chan []byte)
		go func() {
			for end := time.Now().Add(patience); atomic.LoadUint64(flag) != uint64(n); {
				if time.Now().After(end) {
					close(seen)
					return
				}
			}
			seen <- bytes.Clone(mem[at : at+slot])
		}()
		ok(t, a.WriteMsg(&RMAMsg{Iov: [][]byte{bytes.Repeat([]byte{n}, slot)}, Addr: toB, RMAIov: []RMAIov{{uint64(at), slot, 5}}}, fi.DeliveryComplete))
		_, err := ends(t, a.tx)
		ok(t, err)
		set(n, fi.TransmitComplete) // when it comes is not promised, what it shows is
		if got := <-seen; bytes.Count(got, []byte{n}) != slot {
			t.Fatalf("round %d: %d bytes of %d are there", n, bytes.Count(got, []byte{n}), slot)
		}
	}
}

func TestRefreshWhileInUse(t *testing.T) {
	// fi_mr_refresh: a region is refreshed while a peer writes and reads it. Nothing is lost or refused.
	t.Parallel()
	r := newRig(t, rma(0, 0))
	a, _, toB, _ := r.pair()
	m, mem := r.memory(100_000, fi.RemoteRead|fi.RemoteWrite, 5)
	stop, calls := make(chan bool), make(chan int)
	go func() {
		n := 0
		defer func() { calls <- n }()
		for ; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := m.Refresh([][]byte{mem[n%1000 : 50_000]}, 0); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	back := make([]byte, len(mem))
	for i := range byte(20) {
		src := pattern(len(mem), uint64(i))
		ok(t, a.Write(src, toB, 0, 5, nil))
		_, err := ends(t, a.tx)
		ok(t, err)
		ok(t, a.Read(back, toB, 0, 5, nil))
		_, err = ends(t, a.tx)
		ok(t, err)
		if !bytes.Equal(back, src) {
			t.Error("other bytes")
		}
	}
	close(stop)
	if n := <-calls; n == 0 {
		t.Error("no call")
	}
}

func TestRegionOfOneJob(t *testing.T) {
	// R-MR-16: a domain has endpoints of two jobs. A region with the authorization key of one of them
	// is closed to peers of the other, and one without a key is open to both.
	t.Parallel()
	r := newRig(t, rma(fi.Atomic, 0))
	mem, open := make([]byte, 8), make([]byte, 8)
	m, err := r.domain.RegMRAttr(&MRAttr{Iov: [][]byte{mem}, Access: fi.RemoteRead | fi.RemoteWrite, RequestedKey: 5, AuthKey: []byte{0, 0, 42}}, 0)
	ok(t, err)
	o, err := r.domain.RegMR(open, fi.RemoteRead|fi.RemoteWrite, 0, 6, 0, nil)
	ok(t, err)
	for job, denied := range map[byte]error{42: nil, 7: fi.EACCES} {
		r.info.Ep.AuthKey = []byte{0, 0, job}
		a, _, toB, _ := r.pair()
		one := bytes.Repeat([]byte{job}, 8)
		for key, wanted := range map[uint64]error{5: denied, 6: nil} {
			for what, post := range map[string]func() error{
				"write":  func() error { return a.Write(one, toB, 0, key, nil) },
				"read":   func() error { return a.Read(make([]byte, 8), toB, 0, key, nil) },
				"atomic": func() error { return a.Atomic(one, toB, 0, key, fi.Uint64, fi.AtomicWrite, nil) },
			} {
				ok(t, post())
				if _, err := ends(t, a.tx); err != wanted {
					t.Errorf("%s of job %d with key %d: %v, want %v", what, job, key, err, wanted)
				}
			}
		}
	}
	ok(t, m.Close())
	ok(t, o.Close())
	if !bytes.Equal(mem, bytes.Repeat([]byte{42}, 8)) {
		t.Errorf("%v", mem)
	}
}
