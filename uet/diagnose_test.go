package uet

import (
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// asked waits until the only operation of n waits for the given cause.
func asked(t *testing.T, n *node, want WaitFor) Waiting {
	t.Helper()
	var list []Waiting
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list = n.Diagnose(); len(list) == 1 && list[0].Cause == want {
			return list[0]
		}
	}
	t.Fatalf("no operation waits for %v: %v", want, list)
	return Waiting{}
}

func TestDiagnose(t *testing.T) {
	r := newRig(t, nil)
	a, b, toB, _ := r.pair()
	if list := a.Diagnose(); list != nil {
		t.Errorf("nothing was posted: %v", list)
	}
	// A receive, before and after a message that does not match it.
	ok(t, b.TRecv(make([]byte, 16), fi.AddrUnspec, 7, 0, "seven"))
	if w := asked(t, b, WaitMessage); w.Context != "seven" || w.Tag != 7 || w.Total != 16 || w.Flags != fi.Recv|fi.Tagged {
		t.Errorf("%+v", w)
	}
	ok(t, a.TSend([]byte("eight"), toB, 8, nil))
	wait(t, a.tx, b)
	if w := asked(t, b, WaitMatch); w.Unmatched != 1 || len(w.Tags) != 1 || w.Tags[0] != 8 {
		t.Errorf("%+v", w)
	}
	ok(t, a.TSend([]byte("seven"), toB, 7, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	// A send to a peer that does not exist.
	c := r.node()
	name, err := c.Name()
	ok(t, err)
	toC := a.know(c)
	ok(t, c.Close())
	ok(t, a.TSend([]byte("nine"), toC, 9, "nine"))
	if w := asked(t, a, WaitOpen); w.Context != "nine" || w.Remote != name.AddrPort() || w.Total != 4 || w.Mode != wire.RUD {
		t.Errorf("%+v: %s", w, w.String())
	}
	ok(t, a.Close())
	if list := a.Diagnose(); list != nil {
		t.Errorf("closed: %v", list)
	}
}
