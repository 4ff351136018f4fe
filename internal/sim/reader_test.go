package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/internal/sim/simtest"
	"github.com/uetkit/uetkit/transport"
)

// What a rendezvous send lends is read here by its target, a host that does with the key what it likes.

const lentLen = 50_000

// lent makes a world in which A has announced a message to B, whose key it returns. B has no receive for it. C is a third host.
func lent(t *testing.T, rod bool, change ...func(*simtest.Spec)) (w *simtest.World, send *simtest.Op, key uint64) {
	t.Helper()
	third := func(s *simtest.Spec) { s.Hosts = append(s.Hosts, s.Hosts[0]) }
	w = pair(t, 71, lan, append([]func(*simtest.Spec){config(rendezvous), third, mayFail}, change...)...)
	s := tsend(1, lentLen)
	s.Ordered = rod
	send = w.Hosts[0].Post(s)
	w.Run(5 * ms)
	if key = w.KeyOf(send); key == 0 {
		t.Fatal("it was not announced")
	}
	w.Want("open", send)
	return w, send, key
}

// readLent reads n bytes of what was lent, and returns how that ended.
func readLent(w *simtest.World, by int, key uint64, off, n int) string {
	r := w.Hosts[by].Post(simtest.OpSpec{Kind: transport.OpRead, Peer: 0, Len: n, Addr: off, Key: key})
	w.RunOps(time.Second, r)
	return r.State()
}

// T32: a reader gets nothing with a wrong key, nothing beyond the message, and nothing of what was lent to
// another one. All that costs the message nothing.
func TestRendezvousReaderWhoMayNot(t *testing.T) {
	for _, rod := range []bool{false, true} {
		w, send, key := lent(t, rod)
		for _, r := range []struct {
			by     int
			key    uint64
			off, n int
		}{
			{1, key ^ 1, 0, 8}, {1, key << 1, 0, lentLen}, {1, key, lentLen, 8}, {1, key, lentLen - 8, 16}, {1, key, 0, lentLen + 8},
			{1, key, 1 << 40, 8}, {1, key, -8, 8}, {1, key, -8, 16}, {2, key, 0, 8}, {2, key, 0, lentLen},
		} {
			if got := readLent(w, r.by, r.key, r.off, r.n); got != "refused" {
				t.Errorf("rod %v: %d reads %d bytes at %d with key+%d: %s", rod, r.by, r.n, r.off, int64(r.key-key), got)
			}
		}
		w.Want("open", send)
		w.RunOps(time.Second, w.Hosts[1].Post(trecv(lentLen)), send)
		w.Want("ok", send)
		settle(w)
	}
}

// T32: reads that come twice are no whole message. The send does not end in success, and its outcome is unknown, as every
// byte went out. A byte that is missing is not made up for by one that came twice.
func TestRendezvousReaderWhoReadsTwice(t *testing.T) {
	for name, parts := range map[string][][2]int{
		"a half twice":       {{0, lentLen / 2}, {0, lentLen / 2}},
		"one part too often": {{0, 40_000}, {0, 8}, {8, 9_992}},
		"more than all":      {{0, 40_000}, {0, 40_000}},
	} {
		w, send, key := lent(t, false)
		for i, p := range parts {
			if got := readLent(w, 1, key, p[0], p[1]); got != "ok" {
				t.Errorf("%s: read %d: %s", name, i, got)
			}
		}
		w.Run(5 * ms)
		if got := send.State(); got != "peer error, unknown" {
			t.Errorf("%s: the send is %s", name, got)
		}
		if got := readLent(w, 1, key, 0, 8); got != "refused" {
			t.Errorf("%s: a read of what ended: %s", name, got)
		}
	}
}

// A message may be read in parts, in any order. The send ends with the last one, and not before.
func TestRendezvousReaderInParts(t *testing.T) {
	w, send, key := lent(t, false)
	for off := 4 * 10_240; off >= 0; off -= 10_240 {
		w.Want("open", send)
		if got := readLent(w, 1, key, off, min(10_240, lentLen-off)); got != "ok" {
			t.Fatalf("the read at %d: %s", off, got)
		}
	}
	w.Run(5 * ms)
	w.Want("ok", send)
}

// A target that never reads fails the send after RNRTimeout: for certain, as no byte went out, and it gets none later.
func TestRendezvousReaderWhoNeverReads(t *testing.T) {
	for _, rod := range []bool{false, true} {
		w, send, key := lent(t, rod, only(0, func(c *transport.Config) { c.RNRTimeout = 100 * ms }))
		w.RunOps(200*ms, send)
		w.Want("not ready", send)
		if got := readLent(w, 1, key, 0, lentLen); got != "refused" {
			t.Errorf("rod %v: a late read: %s", rod, got)
		}
		settle(w)
	}
}

// Whatever ends the send ends the loan: who reads later gets nothing.
func TestRendezvousReaderWhoIsLate(t *testing.T) {
	for _, how := range []string{"received", "cancelled", "closed", "abandoned"} {
		for _, off := range []int{0, lentLen - 8} {
			w, send, key := lent(t, false)
			a, b := w.Hosts[0], w.Hosts[1]
			switch how {
			case "received":
				w.RunOps(time.Second, b.Post(trecv(lentLen)), send)
			case "cancelled":
				a.Cancel(send)
			case "closed":
				w.RunOps(time.Second, b.Post(trecv(lentLen)), send)
				w.Run(time.Minute) // the PDCs by which it went, too
			case "abandoned":
				a.Abandon(1)
			}
			w.RunOps(time.Second, send)
			if got := readLent(w, 1, key, off, 8); got != "refused" {
				t.Errorf("%s: a read at %d: %s", how, off, got)
			}
			if how != "abandoned" {
				settle(w)
			}
		}
	}
}

// What was announced can be peeked at, claimed and discarded like any message that is kept. Of one that is
// discarded all is read, or its sender would wait for ever.
func TestRendezvousLooks(t *testing.T) {
	for _, c := range []struct {
		looks []transport.Look
		want  []string
	}{
		{[]transport.Look{transport.LookPeek, transport.LookPeekClaim, transport.LookClaim}, []string{"ok", "ok", "ok"}},
		{[]transport.Look{transport.LookPeekClaim, transport.LookClaimDiscard}, []string{"ok", "ok"}},
		{[]transport.Look{transport.LookPeekDiscard}, []string{"ok"}},
	} {
		w, send, _ := lent(t, false)
		var got []transport.Event
		look := &looker{Endpoint: w.Hosts[1].FEP, got: &got}
		w.Hosts[1].FEP = look
		buf := make([]byte, lentLen)
		for i, l := range c.looks {
			w.Want("open", send)
			op := transport.Op{Kind: transport.OpTRecv, Ignore: ^uint64(0), Look: l, Context: "look"}
			if l == transport.LookClaim {
				op.Buf = buf
			}
			if err := w.Hosts[1].PostAside(&op); err != nil {
				t.Fatal(err)
			}
			w.RunUntil(time.Second, "the end of the look", func() bool { return len(got) > i })
			if e := got[i]; e.Cause.String() != c.want[i] || e.Len != lentLen && l != transport.LookPeekDiscard && l != transport.LookClaimDiscard {
				t.Errorf("%v: look %d: %v, %d bytes", c.looks, i, e.Cause, e.Len)
			}
		}
		w.RunOps(time.Second, send)
		w.Want("ok", send)
		if slices.Contains(c.looks, transport.LookClaim) {
			if err := send.Check(buf); err != nil {
				t.Error(err)
			}
		}
	}
}

// A looker keeps the events of what its test has posted from the host.
type looker struct {
	simtest.Endpoint
	got *[]transport.Event
}

func (l *looker) NextEvent() *transport.Event {
	for {
		e := l.Endpoint.NextEvent()
		if e == nil || e.Context != any("look") {
			return e
		}
		*l.got = append(*l.got, *e)
	}
}

// A multi-receive buffer takes announced messages: each is read to its place.
func TestRendezvousIntoMulti(t *testing.T) {
	w, send, _ := lent(t, false)
	var got []transport.Event
	look := &looker{Endpoint: w.Hosts[1].FEP, got: &got}
	w.Hosts[1].FEP = look
	buf := make([]byte, 3*lentLen)
	if err := w.Hosts[1].PostAside(&transport.Op{Kind: transport.OpTRecv, Ignore: ^uint64(0), Multi: true, MinFree: lentLen, Buf: buf, Context: "look"}); err != nil {
		t.Fatal(err)
	}
	sends := []*simtest.Op{send, w.Hosts[0].Post(tsend(1, lentLen-3)), w.Hosts[0].Post(tsend(1, lentLen))}
	w.RunOps(time.Second, sends...)
	w.Want("ok", sends...)
	w.RunUntil(time.Second, "the end of the receives", func() bool { return len(got) >= 3 })
	for i, s := range sends {
		at := slices.IndexFunc(got, func(e transport.Event) bool { return e.Tag == s.Tag() })
		if at < 0 {
			t.Fatalf("message %d was not received: %v", i, got)
		}
		if e := got[at]; e.Cause != transport.OK || e.Len != s.Len {
			t.Errorf("message %d: %v, %d bytes", i, e.Cause, e.Len)
		} else if err := s.Check(e.Buf[:e.Len]); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
}
