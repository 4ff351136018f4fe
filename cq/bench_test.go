package cq

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/uetkit/uetkit/fi"
)

func BenchmarkReadEmpty(b *testing.B) {
	q := open(b, Attr{})
	q.Bind(new(idle))
	e := make([]Entry, 1)
	for b.Loop() {
		if n, err := q.Read(e); err == nil {
			b.Fatal(n)
		}
	}
}

func BenchmarkReadReady(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			q := open(b, Attr{Format: fi.CQTagged})
			q.Bind(new(idle))
			e := make([]Entry, n)
			ctx := any(q)
			for b.Loop() {
				w := q.Begin()
				for i := range n {
					w.Put(&Entry{Context: ctx, Flags: fi.Recv | fi.Tagged, Len: i, Tag: 7}, 3, false)
				}
				w.End()
				if k, err := q.Read(e); k != n {
					b.Fatal(k, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}

// BenchmarkPut is the provider's half of BenchmarkReadReady: the queue is
// emptied off the clock.
func BenchmarkPut16(b *testing.B) {
	q := open(b, Attr{Format: fi.CQTagged, Size: 1 << 16})
	e := make([]Entry, 1<<16)
	ent := Entry{Context: any(q), Flags: fi.Recv | fi.Tagged, Len: 1, Tag: 7}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if i%4096 == 0 {
			b.StopTimer()
			q.Read(e)
			b.StartTimer()
		}
		w := q.Begin()
		for range 16 {
			w.Put(&ent, 3, false)
		}
		w.End()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*16), "ns/entry")
}

func BenchmarkRead16(b *testing.B) {
	q := open(b, Attr{Format: fi.CQTagged, Size: 1 << 16})
	e := make([]Entry, 16)
	ent := Entry{Context: any(q), Flags: fi.Recv | fi.Tagged, Len: 1, Tag: 7}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if i%4096 == 0 {
			b.StopTimer()
			w := q.Begin()
			for range 1 << 16 {
				w.Put(&ent, 3, false)
			}
			w.End()
			b.StartTimer()
		}
		if n, err := q.Read(e); n != 16 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*16), "ns/entry")
}

func BenchmarkReserve(b *testing.B) {
	q := open(b, Attr{})
	for b.Loop() {
		q.Reserve(1)
		q.Unreserve(1)
	}
}

var nothing Entry

// BenchmarkWake sends a token there and back between two sleepers: by CQs, and by
// a bare channel for comparison. In "threads" each sleeper has an
// operating system thread of its own, as a reader has that was woken by the
// network.
func BenchmarkWake(b *testing.B) {
	for _, threads := range []bool{false, true} {
		suffix := ""
		if threads {
			suffix = "/threads"
		}
		b.Run("channel"+suffix, func(b *testing.B) {
			there, back := make(chan struct{}), make(chan struct{})
			bounce(b, threads,
				func() { there <- struct{}{} }, func() bool { _, ok := <-there; return ok },
				func() { back <- struct{}{} }, func() bool { <-back; return true },
				func() { close(there) })
		})
		b.Run("sread"+suffix, func(b *testing.B) {
			attr := Attr{WaitObj: fi.WaitUnspec, Spin: -1 * time.Nanosecond}
			there, back := open(b, attr), open(b, attr)
			// The places were promised when the operations were posted.
			there.places.Used.Add(1 << 39)
			back.places.Used.Add(1 << 39)
			put := func(q *CQ) {
				w := q.Begin()
				w.Put(&nothing, fi.AddrNotAvail, true)
				w.End()
			}
			read := func(q *CQ) func() bool {
				e := make([]Entry, 1)
				return func() bool { _, err := q.SRead(e, 0, -1); return err == nil }
			}
			bounce(b, threads,
				func() { put(there) }, read(there),
				func() { put(back) }, read(back),
				func() { there.Close() })
		})
	}
}

// bounce answers each send there by a send back, in another goroutine.
func bounce(b *testing.B, threads bool, send func(), recv func() bool, answer func(), await func() bool, end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if threads {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		for recv() {
			answer()
		}
	}()
	if threads {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	for b.Loop() {
		send()
		if !await() {
			b.Fatal("no answer")
		}
	}
	end()
	<-done
}
