package cq

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/uetkit/uetkit/fi"
)

// A twin is a completion queue that is slow and obviously right.
type twin struct {
	size     int
	items    []twinItem
	reserved int
	overrun  bool
}

type twinItem struct {
	n      int // context of an entry or an error
	src    fi.Addr
	failed bool
}

func (w *twin) put(it twinItem, reserved bool) bool {
	if reserved {
		w.reserved--
	}
	if w.overrun {
		return false
	}
	if !reserved && len(w.items)+w.reserved >= w.size {
		w.overrun = true
		return false
	}
	w.items = append(w.items, it)
	return true
}

func (w *twin) read(count int) (got []twinItem, err error) {
	for len(got) < count && len(w.items) > 0 && !w.items[0].failed {
		got = append(got, w.items[0])
		w.items = w.items[1:]
	}
	switch {
	case len(got) > 0:
		return got, nil
	case count == 0 && len(w.items) > 0 && !w.items[0].failed:
		return nil, nil
	case len(w.items) > 0 || w.overrun:
		return nil, fi.EAVAIL
	}
	return nil, fi.EAGAIN
}

func (w *twin) readErr() (n int, err error) {
	switch {
	case len(w.items) > 0 && w.items[0].failed:
		n = w.items[0].n
		w.items = w.items[1:]
		return n, nil
	case len(w.items) == 0 && w.overrun:
		return -1, nil
	}
	return 0, fi.EAGAIN
}

// model lets a queue and its twin do the same.
func model(t *rapid.T) {
	size := rapid.SampledFrom([]int{1, 64, 256, 512}).Draw(t, "size")
	q, err := New(Attr{Size: size, Format: fi.CQTagged}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tw := &twin{size: q.Attr().Size}
	next := 0
	// fill makes wrap-around and growth likely.
	amount := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 300))
	t.Repeat(map[string]func(*rapid.T){
		"reserve": func(t *rapid.T) {
			n := amount.Draw(t, "n")
			want := !tw.overrun && len(tw.items)+tw.reserved+n <= tw.size
			if got := q.Reserve(n); got != want {
				t.Fatalf("reserve %d: %v, want %v", n, got, want)
			}
			if want {
				tw.reserved += n
			}
		},
		"unreserve": func(t *rapid.T) {
			if tw.reserved == 0 {
				return // no t.Skip: too many in a row fail a fuzz input
			}
			n := rapid.IntRange(1, tw.reserved).Draw(t, "n")
			q.Unreserve(n)
			tw.reserved -= n
		},
		"put": func(t *rapid.T) {
			w := q.Begin()
			for range amount.Draw(t, "n") {
				// Without a reservation only where there is room, mostly: an overrun is
				// for ever.
				reserved := tw.reserved > 0
				if !reserved && len(tw.items) >= tw.size && rapid.IntRange(0, 9).Draw(t, "dare") > 0 {
					break
				}
				it := twinItem{n: next, src: fi.Addr(next * 3)}
				next++
				if rapid.IntRange(0, 7).Draw(t, "kind") == 0 {
					it.failed = true
					if got, want := w.PutErr(&Error{Context: it.n, Err: fi.EIO}, reserved), tw.put(it, reserved); got != want {
						t.Fatalf("put error %d: %v, want %v", it.n, got, want)
					}
					continue
				}
				put := func() bool { return w.Put(&Entry{Context: it.n, Tag: uint64(it.n)}, it.src, reserved) }
				if reserved && rapid.Bool().Draw(t, "complete") {
					put = func() bool { return w.Complete(it.n, 0, 0, uint64(it.n), it.src) }
				}
				if got, want := put(), tw.put(it, reserved); got != want {
					t.Fatalf("put %d: %v, want %v", it.n, got, want)
				}
			}
			w.End()
		},
		"complete": func(t *rapid.T) {
			for range amount.Draw(t, "n") {
				if tw.reserved == 0 {
					break
				}
				it := twinItem{n: next, src: fi.Addr(next * 3)}
				next++
				got := q.Complete(it.n, 0, 0, uint64(it.n), it.src)
				if !got { // then nothing was done, and the general way is gone
					w := q.Begin()
					got = w.Put(&Entry{Context: it.n, Tag: uint64(it.n)}, it.src, true)
					w.End()
				}
				if want := tw.put(it, true); got != want {
					t.Fatalf("complete %d: %v, want %v", it.n, got, want)
				}
			}
		},
		"take": func(t *rapid.T) {
			for range amount.Draw(t, "n") {
				if q.Take() {
					if tw.overrun || len(tw.items)+tw.reserved >= tw.size {
						t.Fatal("took a place that is not there")
					}
					tw.reserved++
				}
			}
		},
		"readone": func(t *rapid.T) {
			var e [1]Entry
			n, err := q.Read(e[:])
			want, wantErr := tw.read(1)
			if n != len(want) || err != wantErr || n == 1 && (e[0].Context != want[0].n || e[0].Tag != uint64(want[0].n)) {
				t.Fatalf("read: %d, %v, %+v; want %v, %v", n, err, e[0], want, wantErr)
			}
		},
		"read": func(t *rapid.T) {
			count := rapid.IntRange(0, 300).Draw(t, "count")
			e, src := make([]Entry, count), make([]fi.Addr, count)
			n, err := q.ReadFrom(e, src)
			want, wantErr := tw.read(count)
			if n != len(want) || err != wantErr {
				t.Fatalf("read %d: %d, %v; want %d, %v", count, n, err, len(want), wantErr)
			}
			for i, it := range want {
				if e[i].Context != it.n || e[i].Tag != uint64(it.n) || src[i] != it.src {
					t.Fatalf("entry %d: %+v from %d, want %+v", i, e[i], src[i], it)
				}
			}
		},
		"readerr": func(t *rapid.T) {
			var e Error
			n, err := q.ReadErr(&e, 0)
			want, wantErr := tw.readErr()
			if err != wantErr || (n == 1) != (err == nil) {
				t.Fatalf("readerr: %d, %v; want %v", n, err, wantErr)
			}
			if err == nil && want >= 0 && e.Context != want || want < 0 && e.Err != fi.EOVERRUN {
				t.Fatalf("readerr: %+v, want %d", e, want)
			}
		},
		"": func(t *rapid.T) {
			if q.Overrun() != tw.overrun || q.Reserved() != tw.reserved {
				t.Fatalf("overrun %v, reserved %d; want %v, %d", q.Overrun(), q.Reserved(), tw.overrun, tw.reserved)
			}
			if have := q.Poll(); have != (len(tw.items) > 0 || tw.overrun) {
				t.Fatalf("poll says %v with %d items", have, len(tw.items))
			}
		},
	})
	// R-CQ-35, -128: at the end what is unread is lost, what is promised is not.
	if err := q.Close(); err != nil || q.Reserved() != tw.reserved {
		t.Fatalf("close: %v, %d reserved, want %d", err, q.Reserved(), tw.reserved)
	}
}

func TestModel(t *testing.T) {
	// R-CQ-45 to -51, -55, -77, -78, -122 to -125, -127, -128 in any order of calls.
	rapid.Check(t, model)
}

func FuzzModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(model)) }

func ExampleCQ_Read() {
	q, err := New(Attr{Format: fi.CQTagged, Size: 128}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer q.Close()
	// An endpoint puts what completed …
	w := q.Begin()
	w.Put(&Entry{Context: "ping", Flags: fi.Recv | fi.Tagged, Len: 4, Tag: 7}, fi.AddrNotAvail, false)
	w.PutErr(&Error{Context: "pong", Flags: fi.Send | fi.Tagged, Err: fi.ECONNREFUSED}, false)
	w.End()
	// … and the application reads it.
	entries := make([]Entry, 16)
	for {
		n, err := q.Read(entries)
		for _, e := range entries[:n] {
			fmt.Println(e.Context, e.Flags, e.Len, e.Tag)
		}
		switch err {
		case nil:
		case fi.EAVAIL: // an operation failed
			var failed Error
			if _, err := q.ReadErr(&failed, 0); err == nil {
				fmt.Println(failed.Context, &failed)
			}
		default: // fi.EAGAIN: nothing there
			return
		}
	}
	// Output:
	// ping TAGGED|RECV 4 7
	// pong cq: TAGGED|SEND: connection refused
}
