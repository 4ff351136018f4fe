package mp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
)

// A message of another program, for a port that a rank has taken over, is not of the world: its JobID is another one, and the
// rank's endpoint refuses it, whatever its tag.
func TestStrangerIsRefused(t *testing.T) {
	clear, errs := roots(t, 2, func(_ int, c *mp.Config) { c.Clear, c.Job = true, "this" })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for name, worlds := range map[string][]*mp.World{"by a root": clear, "in a test": mptest.Worlds(t, 2, mp.Config{})} {
		q, err := worlds[0].World().Irecv(make([]byte, 8), 1, 5)
		ok(t, err)
		other := rawPair(t, fi.OrderSAS)[0]
		to, err := other.av.InsertString(worlds[0].Name())
		ok(t, err)
		ok(t, other.TSend([]byte("of others"), to, mp.WireTag(1, 5), nil))
		var bad cq.Error
		if _, err := other.cq.SReadContext(limit(t), make([]cq.Entry, 1)); !errors.Is(err, fi.EAVAIL) {
			t.Errorf("%s: a stranger's message: %v", name, err)
		} else if _, err := other.cq.ReadErr(&bad, 0); err != nil || bad.Err != fi.EACCES {
			t.Errorf("%s: a stranger's message: %v, %v, want %v", name, bad.Err, err, fi.EACCES)
		}
		ok(t, worlds[1].World().Send(limit(t), []byte("ours"), 0, 5))
		if st, err := q.Wait(limit(t)); err != nil || st.Len != 4 {
			t.Errorf("%s: received %+v, %v", name, st, err)
		}
		closeAll(t, worlds)
	}
}

// Two worlds have two JobIDs, all ranks of one the same; one that the program names stays, and must be the same everywhere.
func TestJobID(t *testing.T) {
	world := func(change func(rank int, c *mp.Config)) []*mp.World {
		t.Helper()
		worlds, errs := roots(t, 2, change)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		return worlds
	}
	had := map[uint32]bool{0: true, 1: true}
	for _, change := range []func(int, *mp.Config){
		func(int, *mp.Config) {}, func(int, *mp.Config) {}, // sealed: of the key
		func(_ int, c *mp.Config) { c.Clear, c.Job = true, "a" },
		func(_ int, c *mp.Config) { c.Clear, c.Job = true, "b" },
		func(_ int, c *mp.Config) { c.Endpoint.JobID = 4711 },
	} {
		worlds := world(change)
		a, b := worlds[0].JobID(), worlds[1].JobID()
		if a != b || had[a] || a >= 1<<24 {
			t.Errorf("JobIDs %d and %d, after %v", a, b, had)
		}
		had[a] = true
		ok(t, all(worlds, func(c *mp.Comm) error { return c.Barrier(limit(t)) }))
		closeAll(t, worlds)
	}
	if !had[4711] {
		t.Error("a JobID that Config names is not taken")
	}
	worlds := world(func(rank int, c *mp.Config) { c.Clear, c.Endpoint.JobID = true, uint32(7+rank) })
	if err := worlds[1].World().Send(limit(t), nil, 0, 1); err == nil || !strings.Contains(err.Error(), "Endpoint.JobID 7, this rank 8") {
		t.Errorf("ranks with two JobIDs: %v", err)
	}
	closeAll(t, worlds)
}
