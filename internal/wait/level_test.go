package wait

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/uetkit/uetkit/fi"
)

func TestLevelWakesExactly(t *testing.T) {
	// R-CNTR-05: a change wakes exactly those whose threshold it reaches. For a sleeper that
	// sleeps on, the changing goroutine asks once for each change; the sleeper does not look
	// for itself.
	synctest.Test(t, func(t *testing.T) {
		var o Object
		value := uint64(0)
		asked := map[uint64]int{}
		err := o.InitLevel(Attr{Kind: fi.WaitUnspec, Spin: asleep}, func(threshold, _ uint64) bool {
			asked[threshold]++
			return value >= threshold
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan uint64, 3)
		for _, threshold := range []uint64{5, 10, 20} {
			go func() {
				_, armed := o.WaitLevel(t.Context(), threshold, 0, Never)
				o.Done(armed)
				ended <- threshold
			}()
			synctest.Wait()
		}
		clear(asked)
		for _, v := range []uint64{1, 5, 9, 10, 25} {
			o.Mu.Lock()
			value = v
			o.Level()
			o.Mu.Unlock()
			synctest.Wait()
		}
		if len(ended) != 3 {
			t.Fatalf("%d ended, want 3", len(ended))
		}
		for threshold, want := range map[uint64]int{5: 2, 10: 4, 20: 5} {
			// The test is asked once for each change until the sleeper is woken, and once by
			// the sleeper then.
			if got := asked[threshold]; got != want+1 {
				t.Errorf("threshold %d was looked at %d times, want %d", threshold, got, want+1)
			}
		}
	})
}

func TestNote(t *testing.T) {
	// A new bit shows in the channel until a TryWait finds it forgotten. Without a watcher
	// nobody is told.
	var o Object
	if err := o.InitLevel(Attr{Kind: fi.WaitMutexCond}, func(uint64, uint64) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if o.Note(1) {
		t.Error("nobody watches")
	}
	c, err := o.Chan()
	if err != nil {
		t.Fatal(err)
	}
	if len(c) != 1 {
		t.Error("what was new before is not shown")
	}
	if !o.Forget(3) || o.Forget(3) || len(c) != 1 {
		t.Error("forgotten twice, or taken away from another who sleeps")
	}
	if err := o.TryWait(); err != nil || len(c) != 0 {
		t.Error("still shown:", err)
	}
	if !o.Note(2) || o.Note(2) {
		t.Error("news are news once")
	}
	if o.Forget(1) {
		t.Error("the other bit")
	}
	o.Mu.Lock()
	o.Level()
	o.Mu.Unlock()
	if len(c) != 1 {
		t.Error("not shown")
	}
	if err := o.TryWait(); !errors.Is(err, fi.EAGAIN) || !o.Forget(2) {
		t.Error("news that nobody took:", err)
	}
	if err := o.TryWait(); err != nil || !o.Note(1) || !o.Forget(1) {
		t.Error("as before:", err)
	}
	o.Mu.Lock()
	o.Level() // another goroutine read it between Note and Level
	o.Mu.Unlock()
	if len(c) != 1 {
		t.Error("another who reads took the news away")
	}
	// A new bit beside known ones is new.
	o.Note(2)
	if !o.Note(2|Unpolled) || o.Note(2|Unpolled) {
		t.Error("news beside what is not")
	}
	o.Mu.Lock()
	o.Close()
	o.Mu.Unlock()
	if o.Note(1) || o.Forget(3) {
		t.Error("a closed object has news")
	}
}
