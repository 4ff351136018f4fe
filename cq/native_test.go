package cq

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestWaitObjectOfOthers(t *testing.T) {
	// R-CQ-20, -40: what a queue does not have it does not give.
	for _, obj := range []fi.WaitObj{fi.WaitNone, fi.WaitUnspec, fi.WaitYield, fi.WaitMutexCond} {
		_, err := open(t, Attr{WaitObj: obj}).FD()
		wantErr(t, err, fi.EINVAL)
	}
	_, err := open(t, Attr{WaitObj: fi.WaitUnspec}).Chan()
	wantErr(t, err, fi.EINVAL)
}

func TestChanInSelect(t *testing.T) {
	// R-CQ-23, -39: the wait object of a Go program, beside its other channels.
	synctest.Test(t, func(t *testing.T) {
		q := open(t, Attr{WaitObj: fi.WaitMutexCond})
		c, err := q.Chan()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		go func() {
			time.Sleep(70 * time.Second) // between two timeouts: these must not stand in for the channel
			put(q, numbered(0, 3)...)
		}()
		timeouts, read := 0, 0
		for e := make([]Entry, 1); read < 3; {
			if q.TryWait() == nil {
				select {
				case <-c:
				case <-time.After(15 * time.Second):
					timeouts++
				}
			}
			n, _ := q.Read(e)
			read += n
		}
		if d := time.Since(start); timeouts != 4 || d != 70*time.Second {
			t.Errorf("read after %v and %d timeouts of 15 s, want 70 s and 4", d, timeouts)
		}
	})
}
