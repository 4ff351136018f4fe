package wait

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
)

// A troop is a Group of mates. It counts its changes.
type troop struct {
	napping
	t       rapid.TB
	in      map[*mate]bool
	changes int
	closed  bool
}

func (g *troop) Add(p Progress) bool {
	m := p.(*mate)
	g.changes++
	if g.in[m] || g.closed {
		g.t.Fatal("added twice, or too late")
	}
	if !m.loner {
		g.in[m] = true
	}
	return !m.loner
}

func (g *troop) Remove(p Progress) {
	g.changes++
	if !g.in[p.(*mate)] {
		g.t.Fatal("removed who is not in")
	}
	delete(g.in, p.(*mate))
}

func (g *troop) Close() { g.closed = true }

// A mate is an endpoint that may join troops.
type mate struct {
	endpoint
	t      rapid.TB
	loner  bool // it cannot join
	troops *[]*troop
}

func (m *mate) NewGroup() Group {
	if m.loner {
		return nil
	}
	g := &troop{t: m.t, in: map[*mate]bool{}}
	*m.troops = append(*m.troops, g)
	return g
}

// mates makes n endpoints, those of loners such as cannot join a Group.
func mates(t rapid.TB, n int, loners ...int) (all []*mate, troops *[]*troop) {
	troops = new([]*troop)
	for i := range n {
		all = append(all, &mate{t: t, troops: troops, loner: slices.Contains(loners, i)})
	}
	return all, troops
}

// drivenNow returns which mates the readers of o drive, in the Group or not, each as often as they do.
func (o *Object) drivenNow() (in, loose map[*mate]int) {
	in, loose = map[*mate]int{}, map[*mate]int{}
	for _, p := range o.drive().now {
		switch p := p.(type) {
		case *mate:
			loose[p]++
		case *troop:
			for m := range p.in {
				in[m]++
			}
		}
	}
	return in, loose
}

func TestGroupFollowsBinds(t *testing.T) {
	// Whatever comes and goes between two looks, the readers drive each endpoint that is bound
	// once, and no other: many in one Group, except those that cannot join, and few by themselves.
	rapid.Check(t, func(t *rapid.T) {
		all, troops := mates(t, 2*groupLeast, 3, 20)
		p := new(pile)
		if err := p.Init(Attr{Kind: fi.WaitUnspec}); err != nil {
			t.Fatal(err)
		}
		times := map[*mate]int{}
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			from := rapid.IntRange(0, len(all)-1).Draw(t, "from")
			n := rapid.IntRange(1, len(all)).Draw(t, "n")
			up := rapid.Bool().Draw(t, "up")
			for i := range n {
				m := all[(from+i*5)%len(all)]
				if up {
					if err := p.Bind(m); err != nil {
						t.Fatal(err)
					}
					times[m]++
				} else if p.Unbind(m); times[m] > 0 {
					times[m]--
				}
			}
			if rapid.Bool().Draw(t, "look") {
				p.Look()
				bound := 0
				in, loose := p.drivenNow()
				for _, m := range all {
					want := min(times[m], 1)
					bound += want
					if got := in[m] + loose[m]; got != want {
						t.Fatalf("driven %d times, want %d", got, want)
					}
				}
				for m := range loose {
					if bound >= groupLeast && !m.loner {
						t.Fatal("one that could join the group is driven by itself")
					}
				}
				if bound < groupLeast && len(in) > 0 {
					t.Fatalf("a group of %d", len(in))
				}
				open := slices.DeleteFunc(slices.Clone(*troops), func(g *troop) bool { return g.closed })
				if len(open) > 1 {
					t.Fatalf("%d groups", len(open))
				}
			}
		}
		for _, m := range all {
			for range times[m] {
				p.Unbind(m)
			}
		}
		if p.end(); len(p.all) != 0 || len(p.changes) != 0 {
			t.Fatalf("%d bound, %d changes at last", len(p.all), len(p.changes))
		}
		p.Release()
		for _, g := range *troops {
			if !g.closed {
				t.Fatal("a group stays open")
			}
		}
	})
}

func TestBindTakesTheSameForMany(t *testing.T) {
	// One more endpoint changes the Group once, and needs no memory that grows with the number of
	// them, though somebody reads in between. So does one less.
	const n = 4000
	all, troops := mates(t, n+1)
	p := newPile(t, Attr{Kind: fi.WaitUnspec})
	for _, m := range all[:n] {
		if err := p.Bind(m); err != nil {
			t.Fatal(err)
		}
		p.Look()
	}
	g := (*troops)[0]
	if len(*troops) != 1 || g.changes != n {
		t.Errorf("%d groups, %d changes for %d endpoints", len(*troops), g.changes, n)
	}
	var before, after runtime.MemStats
	const rounds = 100
	runtime.ReadMemStats(&before)
	for range rounds {
		_ = p.Bind(all[n])
		p.Look()
		p.Unbind(all[n])
		p.Look()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 4096 {
		t.Errorf("%d bytes to come and go among %d", each, n)
	}
	if got := g.changes - n; got != 2*rounds {
		t.Errorf("%d changes of the group for %d comings and goings", got, 2*rounds)
	}
	// Who comes and goes unseen leaves nothing behind.
	for range rounds {
		_ = p.Bind(all[n])
		p.Unbind(all[n])
	}
	if len(p.changes) != 0 {
		t.Errorf("%d changes are remembered", len(p.changes))
	}
	for _, m := range all[:n] {
		p.Unbind(m)
	}
	p.end()
	p.Release()
}

func TestFewOfManyTryAgain(t *testing.T) {
	// Of thousands that could not join the Group a few try again when others come or go, each in its turn: what comes
	// costs the same whatever their number, and all join in the end if they can.
	const n, members = 1000, groupLeast
	loners := make([]int, n)
	for i := range loners {
		loners[i] = members + i
	}
	all, troops := mates(t, members+n+1, loners...)
	p := newPile(t, Attr{Kind: fi.WaitUnspec})
	for _, m := range all[:members+n] {
		if err := p.Bind(m); err != nil {
			t.Fatal(err)
		}
	}
	p.Look()
	last := all[members+n]
	change := func() {
		_ = p.Bind(last)
		p.Look()
		p.Unbind(last)
		p.Look()
	}
	g := (*troops)[0]
	before := g.changes
	if change(); g.changes-before > 2*(1+retries) {
		t.Errorf("%d changes of the group for one that came and went among %d", g.changes-before, n)
	}
	for _, m := range all {
		m.loner = false
	}
	for range n / retries / 2 {
		change()
	}
	if in, loose := p.drivenNow(); len(in) != members+n || len(loose) != 0 {
		t.Errorf("%d in the group, %d not", len(in), len(loose))
	}
	for _, m := range all[:members+n] {
		p.Unbind(m)
	}
	p.end()
	p.Release()
}

// BenchmarkComeAndGo has one more endpoint that comes and goes among many, with a look each time: those are in a Group, or
// cannot join one.
func BenchmarkComeAndGo(b *testing.B) {
	for _, kind := range []string{"grouped", "loose"} {
		for _, n := range []int{1000, 10_000} {
			b.Run(fmt.Sprintf("%s/n=%d", kind, n), func(b *testing.B) {
				all, _ := mates(b, n+1)
				for _, m := range all {
					m.loner = kind == "loose"
				}
				p := newPile(b, Attr{Kind: fi.WaitUnspec})
				for _, m := range all[:n] {
					_ = p.Bind(m)
				}
				p.drive()
				for b.Loop() {
					_ = p.Bind(all[n])
					p.drive()
					p.Unbind(all[n])
					p.drive()
				}
				b.StopTimer()
				for _, m := range all[:n] {
					p.Unbind(m)
				}
				p.end()
				p.Release()
			})
		}
	}
}
