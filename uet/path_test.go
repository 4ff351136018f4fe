package uet

import (
	"errors"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func TestQuiesce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	if err := a.Quiesce(toB + 1); !errors.Is(err, fi.EINVAL) {
		t.Errorf("to nobody: %v", err)
	}
	for i := range 3 {
		// A message that waited on a busy machine measures no round trip, so send another one.
		for n := 0; n == 0 || n < 1000 && a.Load().RTT == 0; n++ {
			ok(t, b.Recv(make([]byte, 8), fi.AddrUnspec, i))
			ok(t, a.Send(make([]byte, 8), toB, i))
			wait(t, a.tx, b)
			wait(t, b.rx)
		}
		if c := a.Load(); c.PDCs == 0 || c.Window == 0 || c.RTT == 0 {
			t.Errorf("after a message: %+v", c)
		}
		ok(t, a.Quiesce(toB))
		for end := time.Now().Add(5 * time.Second); a.Load().PDCs > 0; {
			if time.Now().After(end) {
				t.Fatal("the context did not end")
			}
			_, _ = a.tx.Read(nil)
		}
	}
	if s := a.Stats(); s.PDCOpened != 3 || s.PDCClosed != 3 || s.PDCErrors != 0 {
		t.Errorf("%d contexts opened, %d closed, %d failed; want 3 and 3", s.PDCOpened, s.PDCClosed, s.PDCErrors)
	}
	ok(t, a.Close())
	if err := a.Quiesce(toB); !errors.Is(err, fi.EOPBADSTATE) {
		t.Errorf("after Close: %v", err)
	}
}
