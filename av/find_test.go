package av

import (
	"net/netip"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// one is an address of a small world in which sources collide: two IPs, two
// ports, three initiators, and what a packet does not tell.
func one(n int) wire.Addr {
	a := wire.SockAddr(netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(n & 1)}), uint16(5000+n>>1&1)))
	a.Initiator = uint32(n>>2) % 3
	a.PIDonFEP = uint16(n >> 4 & 3)
	return a
}

// checkModel drives an AV and a slow twin by rapid: a map and a search.
func checkModel(t *rapid.T) {
	v, _ := New(Attr{}, nil)
	model := map[fi.Addr]wire.Addr{}
	gens := map[fi.Addr]uint32{}
	insert := func(t *rapid.T, a wire.Addr) {
		h := []fi.Addr{0}
		v.Insert([]wire.Addr{a}, h, 0, nil)
		want := fi.Addr(0) // R-AV-02
		for ; ; want++ {
			if _, ok := model[want]; !ok {
				break
			}
		}
		if h[0] != want {
			t.Fatalf("handle %d, want %d", h[0], want)
		}
		model[want] = a
	}
	t.Repeat(map[string]func(*rapid.T){
		"insert": func(t *rapid.T) { insert(t, one(rapid.IntRange(0, 63).Draw(t, "addr"))) },
		"insert many": func(t *rapid.T) {
			for i := range rapid.IntRange(1, 40).Draw(t, "n") {
				insert(t, addr(i))
			}
		},
		"remove": func(t *rapid.T) {
			h := fi.Addr(rapid.IntRange(0, len(model)+2).Draw(t, "handle"))
			_, ok := model[h]
			if err := v.Remove(h); (err == nil) != ok {
				t.Fatalf("remove %d: %v", h, err)
			}
			delete(model, h)
		},
		"": func(t *rapid.T) {
			if v.Len() != len(model) {
				t.Fatalf("%d entries, want %d", v.Len(), len(model))
			}
			lowest := map[key]fi.Addr{}
			for h, a := range model {
				if l, ok := lowest[keyOf(&a)]; !ok || h < l {
					lowest[keyOf(&a)] = h
				}
				got, gen, ok := v.Get(h)
				if !ok || got != a || gen == 0 || v.Gen(h) != gen {
					t.Fatalf("get %d: %v %d %v", h, got, gen, ok)
				}
				gens[h] = gen
			}
			for h, gen := range gens { // a generation never comes again
				if _, ok := model[h]; !ok && v.Gen(h) == gen {
					t.Fatalf("handle %d was removed and keeps its generation", h)
				}
			}
			for n := range 64 {
				a := one(n)
				want, ok := lowest[keyOf(&a)]
				if !ok {
					want = fi.AddrNotAvail
				}
				if h := v.Find(a.AddrPort(), a.Initiator); h != want { // R-CQ-65
					t.Fatalf("found %d for %v, want %d", h, a, want)
				}
			}
			if v.index.n != len(lowest) || 2*v.index.n > len(v.index.tab) {
				t.Fatalf("%d sources in the index of %d, want %d", v.index.n, len(v.index.tab), len(lowest))
			}
		},
	})
}

func TestModel(t *testing.T) { rapid.Check(t, checkModel) }

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkModel)) }

// crowd is n handles of one host: of one FEP that differ in what a packet does
// not tell, of FEPs that differ in their port, of one FEP that differ in their
// initiator.
func crowd(t testing.TB, kind string, n int) (v *AV, find []wire.Addr) {
	v = open(t, Attr{})
	as := make([]wire.Addr, n)
	for i := range as {
		as[i] = wire.SockAddr(netip.MustParseAddrPort("198.18.0.1:5000"))
		switch kind {
		case "pid":
			as[i].PIDonFEP, as[i].RI = uint16(i&0xfff), uint16(1+i>>12)
		case "port":
			as[i].Port = uint16(1000 + i)
		case "initiator":
			as[i].Initiator = uint32(i)
		}
	}
	if k, err := v.Insert(as, nil, 0, nil); k != n || err != nil {
		t.Fatal(k, err)
	}
	return v, as
}

func TestFindInACrowd(t *testing.T) {
	// A source is found in few steps however many handles its host has, and
	// handles go in and out without a search through their like.
	const n = 16384
	for _, kind := range []string{"pid", "port", "initiator", "pid", "port", "initiator", "port", "initiator", "port", "initiator"} {
		v, as := crowd(t, kind, n) // each time with other seeds
		steps := 0
		for i := range as {
			k := keyOf(&as[i])
			j := v.index.slot(k)
			for {
				steps++
				if keyOf(&v.get(fi.Addr(v.index.tab[j]-1)).addr) == k {
					break
				}
				j = (j + 1) & (len(v.index.tab) - 1)
			}
		}
		if steps > 2*n {
			t.Errorf("%s: %d steps for %d searches", kind, steps, n)
		}
		for h := fi.Addr(0); h < n; h++ { // the lowest goes first: the next is at hand
			if err := v.Remove(h); err != nil {
				t.Fatal(err)
			}
		}
		if v.index.n != 0 {
			t.Errorf("%s: %d sources left", kind, v.index.n)
		}
	}
}

func TestGetAndFindNoAllocs(t *testing.T) {
	v, as := crowd(t, "port", 1000)
	if n := testing.AllocsPerRun(100, func() {
		if _, _, ok := v.Get(7); !ok || v.Gen(8) == 0 || v.Find(as[3].AddrPort(), 16) != 3 {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestGetWhileOthersChange(t *testing.T) {
	// Get takes no lock: what it sees was true at some moment of the call.
	v := open(t, Attr{})
	v.Insert([]wire.Addr{addr(0)}, nil, 0, nil)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for h := fi.Addr(0); ; h = (h + 1) % 600 {
				select {
				case <-stop:
					return
				default:
				}
				if a, gen, ok := v.Get(h); ok && (a != addr(int(h)) || gen == 0) {
					t.Errorf("handle %d is %v", h, a)
					return
				}
			}
		}()
	}
	for range 20 {
		for i := 1; i < 500; i++ {
			v.Insert([]wire.Addr{addr(i)}, nil, 0, nil)
		}
		for i := 499; i > 0; i-- {
			if err := v.Remove(fi.Addr(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func BenchmarkFind(b *testing.B) {
	for _, kind := range []string{"pid", "port", "initiator"} {
		b.Run(kind, func(b *testing.B) {
			v, as := crowd(b, kind, 16384)
			i := 0
			for b.Loop() {
				i = (i + 7919) & 16383
				if v.Find(as[i].AddrPort(), as[i].Initiator) == fi.AddrNotAvail {
					b.Fatal("not found")
				}
			}
		})
	}
}

func TestZoneOfNoLink(t *testing.T) {
	// A zone names the interface of an address. Sockets give it for link-local
	// addresses only, whatever others were written with.
	v := open(t, Attr{})
	for i, s := range []string{"[2001:db8::1%1]:5000", "[2001:db8::2%lo]:5000", "[::1%1]:5000"} {
		if h, err := v.InsertString(s); h != fi.Addr(i) || err != nil {
			t.Fatal(h, err)
		}
		ap := netip.MustParseAddrPort(s)
		if h := v.Find(netip.AddrPortFrom(ap.Addr().WithZone(""), ap.Port()), 16); h != fi.Addr(i) {
			t.Errorf("%s is not found as the source of its packets", s)
		}
	}
	if h, _ := v.InsertString("[fe80::1%nolink]:5000"); v.Find(netip.MustParseAddrPort("[fe80::1]:5000"), 16) == h {
		t.Error("a link-local address of any interface")
	}
}
