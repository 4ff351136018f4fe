package driver

import (
	"testing"
	"time"
)

// look is a poll after a gap, that finds a train.
func (r *rig) look(gap time.Duration) {
	r.pass(gap)
	r.conn.arrive("m")
	r.Poll()
}

// told returns what the core knows: how long the train waited, and whether the processor is taken.
func (r *rig) told() (waited time.Duration, taken, paused bool) {
	r.core.set(func() { waited, taken, paused = r.core.told, r.core.taken, r.core.paused })
	return
}

func TestProcessorThatIsTaken(t *testing.T) {
	const slice = 3 * time.Millisecond
	t.Run("beside a busy thread", func(t *testing.T) {
		r := newRig(t)
		r.conn.held = slice / 2
		r.Poll()
		n := 0
		for _, taken, _ := r.told(); !taken; _, taken, _ = r.told() {
			if n++; n > 100 {
				t.Fatal("not noticed in 0.6 s")
			}
			r.look(slice) // the other's
			for range 3 { // its own
				r.look(slice / 3)
			}
		}
		if n < 10 {
			t.Errorf("concluded from %d slices", n)
		}
		r.look(slice)
		if waited, _, paused := r.told(); waited != slice/2 || paused || !r.conn.stamps {
			t.Errorf("waited %v, may have waited longer: %v", waited, paused)
		}
		// It goes, and a train wakes nobody for a while.
		for range 400 {
			r.look(10 * time.Millisecond / 11)
			r.pass(8 * time.Millisecond)
			r.Poll() // finds nothing
		}
		if waited, taken, _ := r.told(); taken || waited != 0 || r.conn.stamps {
			t.Errorf("waited %v, taken %v, stamps %v after 4 s", waited, taken, r.conn.stamps)
		}
	})
	t.Run("few gaps", func(t *testing.T) {
		// The application computes for 3 ms in 40, and once for a second.
		r := newRig(t)
		r.Poll()
		for i := range 200 {
			r.look(slice)
			for range 40 {
				r.look(longGap)
			}
			if i == 100 {
				r.look(time.Second)
			}
			if _, taken, _ := r.told(); taken {
				t.Fatal("taken")
			}
		}
	})
	t.Run("it cannot be told", func(t *testing.T) {
		r := newRig(t)
		r.conn.stampless = true
		r.Poll()
		for range 100 {
			r.look(slice)
		}
		if waited, taken, paused := r.told(); waited != 0 || !taken || !paused {
			t.Errorf("waited %v, taken %v, may have waited: %v", waited, taken, paused)
		}
	})
}
