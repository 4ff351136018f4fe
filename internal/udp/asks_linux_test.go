package udp

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uetkit/uetkit/internal/dgram"
)

// alone sends n datagrams of one byte one by one. Each is received before the next is sent, so
// that looks in between find nothing.
func alone(t *testing.T, from, to *Conn, n int) {
	t.Helper()
	for range n {
		send(t, from, train(to, 1, 1, 1))
		receive(t, to, 1)
		if ok, err := to.Recv(slab()); ok || err != nil {
			t.Fatalf("one datagram, but Recv: %v %v", ok, err)
		}
	}
}

// asking reports whether the socket of a Conn with one path asks for trains.
func asking(c *Conn) bool { return directOf(c).socks[0].asks.trains }

func TestGROWhileTrainsCome(t *testing.T) {
	// Decision 0022: a socket that gets single datagrams stops asking for trains. After one
	// train that was cut into datagrams, or some thousand datagrams, it asks again.
	for _, ip := range families(t) {
		a, b := open(t, ip, Config{}), open(t, ip, Config{})
		if !b.Info().GRO.On || !a.Info().GSO.On {
			t.Skip("no GSO or GRO")
		}
		whole := func(when string, want bool) {
			t.Helper()
			const n = 2 * groBurst
			d := train(b, 7, n*100, 100)
			send(t, a, d)
			ps, trains := receive(t, b, n)
			for i, p := range ps {
				if !bytes.Equal(p.data, d.Data[i*100:][:100]) {
					t.Fatalf("%s: datagram %d: %v", when, i, p)
				}
			}
			if (trains == 1) != want {
				t.Errorf("%s: %d datagrams came in %d pieces", when, n, trains)
			}
		}
		whole("at first", true)
		alone(t, a, b, groTry-1)
		whole("after some alone", true) // the count begins anew
		alone(t, a, b, groTry-1)
		if !asking(b) {
			t.Fatal("too early")
		}
		alone(t, a, b, 1)
		if asking(b) {
			t.Fatal("still asks")
		}
		whole("after many alone", false)
		if !asking(b) {
			t.Fatal("a train in pieces changed nothing")
		}
		whole("after that", true)

		alone(t, a, b, groTry)
		if asking(b) {
			t.Fatal("still asks")
		}
		alone(t, a, b, groEvery)
		if !asking(b) {
			t.Fatal("never tries again")
		}
	}
}

func TestGROEndsWithNothingWaiting(t *testing.T) {
	// A train that came while the socket asked is read while it asks. Otherwise it would be one
	// long datagram, whose parts nobody knows.
	for name, want := range map[string][]int{"a train": {1, 10}, "one without bytes before it": {1, 0, 10}} {
		a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
		if !b.Info().GRO.On || !a.Info().GSO.On {
			t.Skip("no GSO or GRO")
		}
		alone(t, a, b, groTry-1)
		send(t, a, train(b, 1, 1, 1))
		if len(want) > 2 { // the length of what waits is 0, as if nothing waited
			if err := unix.Sendto(directOf(a).socks[0].fd, nil, 0, &unix.SockaddrInet4{Port: int(b.Ports()[0]), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
		}
		send(t, a, train(b, 2, 1000, 100))
		d := slab()
		for _, n := range want {
			d.Reset()
			if ok, err := b.Recv(d); !ok || err != nil || d.Segments() != n {
				t.Fatalf("%s: Recv: %v %v, %d segments, want %d", name, ok, err, d.Segments(), n)
			}
		}
		if !asking(b) {
			t.Errorf("%s: it does not ask, though a train came", name)
		}
	}
}

func TestGROStaysWhereItIsFixed(t *testing.T) {
	// UDP_GRO is never changed where Config asks for it, where the system has none, and where a
	// look at several sockets says nothing about one.
	for name, cfg := range map[string]Config{"on": {GRO: On}, "off": {GRO: Off}, "several": {Paths: 2}} {
		a, b := open(t, loopback4, Config{}), open(t, loopback4, cfg)
		if a.Info().GSO.On {
			send(t, a, train(b, 1, 300, 100))
			receive(t, b, 3) // a train changes nothing
		}
		for range groTry + groTries {
			send(t, a, train(b, 1, 1, 1))
			receive(t, b, 1)
		}
		if g := &directOf(b).socks[0].asks; g.trains != (name != "off") || !g.trainsFixed {
			t.Errorf("%s: it is judged", name)
		}
	}
}

func TestSocketsOwnSegmentsAreNoWayAround(t *testing.T) {
	// A train in segments of the socket's own size leaves as single datagrams, too, if its
	// destination gets no trains.
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{GRO: On})
	d := directOf(a)
	if !a.Info().GSO.On || !d.socks[0].stick(100) {
		t.Skip("no GSO")
	}
	for _, want := range []int{1, 3} {
		send(t, a, train(b, 1, 300, 100))
		if _, trains := receive(t, b, 3); trains != want {
			t.Errorf("in %d pieces, want %d", trains, want)
		}
		d.off = append(d.off, noGSO{to: loopback4, rest: retryTrains})
		d.tx.len = 0 // makes Send aim anew
		alone(t, a, b, 1)
	}
}

// aloneOf sends a datagram of n bytes and a class, and returns the class it arrives with.
func aloneOf(t *testing.T, from, to *Conn, n int, class uint8) uint8 {
	t.Helper()
	d := train(to, 1, n, n)
	d.TOS = class
	send(t, from, d)
	ps, _ := receive(t, to, 1)
	same(t, ps, [][]byte{pattern(1, n)})
	if ok, err := to.Recv(slab()); ok || err != nil {
		t.Fatalf("one datagram, but Recv: %v %v", ok, err)
	}
	return ps[0].tos
}

func TestClassIsAskedWhileItTells(t *testing.T) {
	// Decision 0023: the class of short datagrams that come alone is sampled. That of long
	// ones, of trains, and of what follows a mark of congestion is always asked for.
	for _, ip := range families(t) {
		a, b := open(t, ip, Config{TOS: dgram.ECT0}), open(t, ip, Config{})
		if i := b.Info(); !i.ECN.On || !i.GRO.On || !a.Info().GSO.On {
			t.Skip("no ECN, GSO or GRO")
		}
		is := func(what string, n int, class, want uint8) {
			t.Helper()
			if got := aloneOf(t, a, b, n, class); got != want {
				t.Errorf("%s: class %#02x, want %#02x", what, got, want)
			}
		}
		row := func(what string, n int, want uint8) {
			t.Helper()
			for i := range n {
				if got := aloneOf(t, a, b, 64, dgram.ECT0); got != want {
					t.Fatalf("%s: class %#02x of datagram %d of %d, want %#02x", what, got, i, n, want)
				}
			}
		}
		row("at first", classTry, dgram.ECT0)
		row("then", classSkip, 0)
		row("sample", classSample, dgram.ECT0)
		row("again", classSkip-1, 0)
		is("one that was not asked about", 64, dgram.CE, 0)
		is("one of the sample", 64, dgram.CE, dgram.CE)
		row("after a mark", classMarked, dgram.ECT0)
		is("when that is over", 64, dgram.CE, 0)

		is("a long one, the first", classShort+1, dgram.CE, 0)
		is("a long one, the second", classShort+1, dgram.ECT0, dgram.ECT0)
		row("after a long one", classTry-1, dgram.ECT0)
		is("the last after a long one", classShort, dgram.ECT0, dgram.ECT0)
		row("after that", classSkip/2, 0)

		send(t, a, train(b, 3, 200*2*groBurst, 200)) // cut, because the socket does not ask
		receive(t, b, 2*groBurst)
		d := train(b, 4, 2000, 200)
		d.TOS = dgram.ECT0
		send(t, a, d)
		if ps, trains := receive(t, b, 10); trains != 1 || ps[0].tos != dgram.ECT0 {
			t.Errorf("after a train: %d pieces, %v", trains, ps[0])
		}
		row("after a train", classTry, dgram.ECT0)

		// A message followed by the ACK of another says as little.
		pair := func(n int, class, want uint8) {
			t.Helper()
			d := train(b, 5, n, n-20)
			d.TOS = class
			send(t, a, d)
			if ps, trains := receive(t, b, 2); trains != 1 || ps[0].tos != want || len(ps[0].data) != n-20 || len(ps[1].data) != 20 {
				t.Fatalf("%d pieces, want a pair of class %#02x: %v", trains, want, ps)
			}
		}
		for !asking(b) {
			aloneOf(t, a, b, classShort+1, 0)
		}
		aloneOf(t, a, b, classShort+1, 0)
		for range classTry {
			pair(classShort, dgram.ECT0, dgram.ECT0)
		}
		pair(classShort, dgram.ECT0, 0)
		pair(classShort+1, dgram.ECT0, 0)
		pair(classShort, dgram.CE, dgram.CE)
		for range classMarked {
			pair(classShort, dgram.ECT0, dgram.ECT0)
		}
		pair(classShort, dgram.ECT0, 0)
	}
}

func TestClassStaysWhereItIsFixed(t *testing.T) {
	for name, cfg := range map[string]Config{"every": {EveryClass: true}, "several": {Paths: 2}} {
		a, b := open(t, loopback4, Config{}), open(t, loopback4, cfg)
		if i := b.Info(); !i.ECN.On || !i.GRO.On {
			t.Skip("no ECN or GRO")
		}
		for range 2 * (classTry + classSkip) {
			if got := aloneOf(t, a, b, 8, dgram.ECT1); got != dgram.ECT1 {
				t.Fatalf("%s: class %#02x", name, got)
			}
		}
	}
}

func TestTooLongWithoutControl(t *testing.T) {
	// A datagram that exceeds the buffer is dropped and counted in the cheaper call, too.
	for _, ip := range families(t) {
		a, b := open(t, ip, Config{GSO: Off}), open(t, ip, Config{GRO: Off})
		if !b.Info().ECN.On {
			t.Skip("no ECN")
		}
		for range classTry {
			aloneOf(t, a, b, 8, 0)
		}
		if directOf(b).socks[0].asks.class {
			t.Fatal("still asks")
		}
		send(t, a, train(b, 1, 101, 101), train(b, 2, 100, 100))
		d := &dgram.Datagram{Data: make([]byte, 0, 100), TOS: dgram.CE} // left from what it held before
		end := time.Now().Add(tooLong)
		for ok := false; !ok; {
			var err error
			if ok, err = b.Recv(d); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatalf("the one that fits does not come: %+v", b.Stats())
			}
		}
		if !bytes.Equal(d.Data, pattern(2, 100)) || d.TOS != 0 || b.Stats().RecvCut != 1 {
			t.Errorf("%d bytes, class %#02x, %d cut", len(d.Data), d.TOS, b.Stats().RecvCut)
		}
	}
}
