package eq

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
)

// A twin is an event queue that is slow and obviously right.
type twin struct {
	size    int
	bound   []*twinBinding
	refuse  bool // resource management: a Write that does not fit is refused
	items   []twinItem
	overrun bool
	lost    uint64
}

type twinItem struct {
	n      uint64
	failed bool
	of     *twinBinding // whose place it has
}

type twinBinding struct {
	b      *binding
	places int
}

// free is how many places of its own an object has left; of nil: the queue.
func (w *twin) free(b *twinBinding) int {
	n := w.size
	if b != nil {
		n = b.places
	}
	for _, it := range w.items {
		if it.of == b {
			n--
		}
	}
	return n
}

func (w *twin) fits(b *twinBinding) bool { return !w.overrun && (w.free(b) > 0 || w.free(nil) > 0) }

func (w *twin) put(it twinItem) bool {
	if w.free(it.of) == 0 {
		it.of = nil
	}
	if !w.fits(it.of) {
		w.overrun = true
		w.lost++
		return false
	}
	w.items = append(w.items, it)
	return true
}

func (w *twin) write(it twinItem) error {
	switch {
	case w.overrun:
		return fi.EOVERRUN
	case !w.fits(nil) && w.refuse:
		return fi.EAGAIN
	case !w.put(it):
		return fi.EOVERRUN
	}
	return nil
}

// head says what a read finds.
func (w *twin) head() (it twinItem, read, readErr error) {
	switch {
	case len(w.items) > 0 && w.items[0].failed:
		return w.items[0], fi.EAVAIL, nil
	case len(w.items) > 0:
		return w.items[0], nil, fi.EAGAIN
	case w.overrun:
		return twinItem{}, fi.EAVAIL, nil
	}
	return twinItem{}, fi.EAGAIN, fi.EAGAIN
}

func (w *twin) pop() {
	if len(w.items) > 0 {
		w.items = w.items[1:]
	}
}

// model lets a queue and its twin do the same.
func model(t *rapid.T) {
	rm := rapid.SampledFrom([]fi.ResourceMgmt{fi.RMUnspec, fi.RMDisabled, fi.RMEnabled}).Draw(t, "rm")
	size := rapid.SampledFrom([]int{1, 2, 7, 40}).Draw(t, "size")
	q, err := New(Attr{Size: size, Flags: fi.Write, ResourceMgmt: rm}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tw := &twin{size: size, refuse: rm != fi.RMDisabled}
	next := uint64(0)
	flags := rapid.SampledFrom([]fi.Flags{0, 0, 0, fi.Peek})
	amount := rapid.IntRange(1, 20)
	insert := func(t *rapid.T, bound bool, one func(it twinItem)) {
		var b *twinBinding
		if bound && len(tw.bound) > 0 {
			b = rapid.SampledFrom(tw.bound).Draw(t, "of")
		}
		for range amount.Draw(t, "n") {
			// Beyond the size only seldom: an overrun is for ever.
			if !tw.fits(b) && rapid.IntRange(0, 19).Draw(t, "dare") > 0 {
				return
			}
			next++
			one(twinItem{n: next, of: b})
		}
	}
	// to is who inserts an item.
	to := func(it twinItem) interface {
		Put(Entry) bool
		PutErr(Error) bool
	} {
		if it.of != nil {
			return it.of.b
		}
		return q
	}
	t.Repeat(map[string]func(*rapid.T){
		"put": func(t *rapid.T) {
			insert(t, true, func(it twinItem) {
				if got, want := to(it).Put(Entry{Event: fi.MRComplete, Fid: q, Data: it.n}), tw.put(it); got != want {
					t.Fatalf("put %d: %v, want %v", it.n, got, want)
				}
			})
		},
		"puterr": func(t *rapid.T) {
			insert(t, true, func(it twinItem) {
				it.failed = true
				if got, want := to(it).PutErr(Error{Fid: q, Data: it.n, Err: fi.EIO}), tw.put(it); got != want {
					t.Fatalf("put error %d: %v, want %v", it.n, got, want)
				}
			})
		},
		"write": func(t *rapid.T) {
			insert(t, false, func(it twinItem) {
				if got, want := q.Write(Entry{Event: fi.MRComplete, Fid: q, Data: it.n}), tw.write(it); !errors.Is(got, want) {
					t.Fatalf("write %d: %v, want %v", it.n, got, want)
				}
			})
		},
		"offer": func(t *rapid.T) {
			if len(tw.bound) == 0 {
				return
			}
			b := rapid.SampledFrom(tw.bound).Draw(t, "of")
			next++
			it := twinItem{n: next, failed: rapid.Bool().Draw(t, "failed")}
			want := !tw.overrun && tw.free(nil) > 0
			var got bool
			if it.failed {
				got = b.b.OfferErr(Error{Fid: q, Data: it.n, Err: fi.EIO})
			} else {
				got = b.b.Offer(Entry{Event: fi.MRComplete, Fid: q, Data: it.n})
			}
			if got != want {
				t.Fatalf("offer %d: %v, want %v", it.n, got, want)
			}
			if want {
				tw.put(it)
			}
		},
		"read": func(t *rapid.T) {
			f := flags.Draw(t, "flags")
			e, err := q.Read(f)
			it, want, _ := tw.head()
			if err != want || err == nil && (e.Data != it.n || e.Event != fi.MRComplete || e.Fid != q) {
				t.Fatalf("read: %+v, %v; want %d, %v", e, err, it.n, want)
			}
			if err == nil && f == 0 {
				tw.pop()
			}
		},
		"readerr": func(t *rapid.T) {
			f := flags.Draw(t, "flags")
			e, err := q.ReadErr(f)
			it, _, want := tw.head()
			switch {
			case err != want:
				t.Fatalf("readerr: %v, want %v", err, want)
			case err != nil:
			case len(tw.items) == 0 && (e.Err != fi.EOVERRUN || e.Lost != tw.lost):
				t.Fatalf("readerr: %+v, want an overrun with %d lost", e, tw.lost)
			case len(tw.items) > 0 && (e.Err != fi.EIO || e.Data != it.n || e.Fid != q):
				t.Fatalf("readerr: %+v, want %d", e, it.n)
			}
			if err == nil && f == 0 {
				tw.pop()
			}
		},
		"bind": func(t *rapid.T) {
			places := rapid.IntRange(0, 3).Draw(t, "places")
			b, err := q.Bind(places)
			if err != nil {
				t.Fatal(err)
			}
			tw.bound = append(tw.bound, &twinBinding{b, places})
		},
		"unbind": func(t *rapid.T) {
			if len(tw.bound) == 0 {
				return // no t.Skip: too many in a row fail a fuzz input
			}
			i := rapid.IntRange(0, len(tw.bound)-1).Draw(t, "which")
			tw.bound[i].b.Unbind()
			tw.bound = slices.Delete(tw.bound, i, i+1)
		},
		"close": func(t *rapid.T) {
			if len(tw.bound) == 0 {
				return // no t.Skip: too many in a row fail a fuzz input
			}
			if err := q.Close(); !errors.Is(err, fi.EBUSY) {
				t.Fatalf("close with %d bound: %v", len(tw.bound), err)
			}
		},
		"": func(t *rapid.T) {
			if have := q.Poll(); have != (len(tw.items) > 0 || tw.overrun) {
				t.Fatalf("poll says %v with %v", have, tw.items)
			}
		},
	})
}

func TestModel(t *testing.T) {
	// R-EQ-23, -27 to -30, -52, -53, -59, -60, -62 to -68 in any order of calls.
	rapid.Check(t, model)
}

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(model)) }

func TestEventsArriveWhole(t *testing.T) {
	// R-EQ-24: the kind of the event comes with it. R-EQ-25: every event names its
	// object. R-EQ-32, -33, -34: what a completed registration, insertion or join
	// says: object, context of the call, data. R-EQ-35, -36, -37, -42: the
	// connection events carry the info and the private data of their peer as well.
	// R-EQ-39: what the application writes comes back as it was. R-EQ-44: without
	// a context there is none.
	q := open(t, Attr{Flags: fi.Write, WaitObj: fi.WaitUnspec})
	fid, info := new(int), new(string)
	for _, want := range []Entry{
		{Event: fi.MRComplete, Fid: fid, Context: "reg", Data: 1},
		{Event: fi.AVComplete, Fid: fid, Context: "insert", Data: 17},
		{Event: fi.JoinComplete, Fid: fid, Context: "join"},
		{Event: fi.ConnReq, Fid: fid, Info: info, Bytes: []byte("please")},
		{Event: fi.Connected, Fid: fid, Context: "ep", Bytes: []byte("welcome")},
		{Event: fi.Shutdown, Fid: fid},
		{Event: fi.Notify, Fid: fid},
		{Event: 1000, Fid: "mine", Data: 1 << 63},
	} {
		for name, put := range map[string]func(Entry){
			"put":   func(e Entry) { q.Put(e) },
			"write": func(e Entry) { q.Write(e) },
		} {
			put(want)
			for _, read := range []func() (Entry, error){
				func() (Entry, error) { return q.Read(fi.Peek) },
				func() (Entry, error) { return q.SRead(0, -1) },
			} {
				got, err := read()
				if err != nil || got.Event != want.Event || got.Fid != want.Fid || got.Context != want.Context || got.Data != want.Data ||
					got.Info != want.Info || !slices.Equal(got.Bytes, want.Bytes) {
					t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
				}
			}
		}
	}
}

func TestErrorsArriveWhole(t *testing.T) {
	// R-EQ-54: object, context, data, err, prov_errno, err_data. R-EQ-47, -55: the
	// object is the one in trouble, the context that of its operation. R-EQ-56:
	// err is positive. R-EQ-53: reads fail until it is taken.
	q := open(t, Attr{WaitObj: fi.WaitUnspec})
	fid := new(int)
	q.PutErr(Error{Fid: fid, Context: "insert", Data: 3, Err: fi.EHOSTUNREACH, Prov: 28, ErrData: []byte("first")})
	q.PutErr(Error{Fid: fid, Err: fi.EIO, ErrData: []byte("second")})
	for range 2 {
		_, err := q.SRead(0, -1)
		wantErr(t, err, fi.EAVAIL)
	}
	e, err := q.ReadErr(0)
	if err != nil || e.Fid != fid || e.Context != "insert" || e.Data != 3 || e.Err <= 0 || e.Err != fi.EHOSTUNREACH || e.Prov != 28 || e.Lost != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	// R-EQ-58: its data stays valid: it is the reader's, whatever is read next.
	next, err := q.ReadErr(0)
	if err != nil || string(e.ErrData) != "first" || string(next.ErrData) != "second" || next.Context != nil {
		t.Errorf("%+v %+v, %v", e, next, err)
	}
}
