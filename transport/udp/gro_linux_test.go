package udp

import (
	"bytes"
	"testing"
)

// alone sends n datagrams of a byte one by one, each received before the next, so that
// looks in between find nothing.
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

// asking is whether the socket of a Conn with one path asks for trains.
func asking(c *Conn) bool { return directOf(c).socks[0].gro.on }

func TestGROWhileTrainsCome(t *testing.T) {
	// Decision 0022: a socket that gets datagrams alone does not ask for trains; one
	// train cut into datagrams, or some thousand datagrams, and it asks again.
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
		whole("after some alone", true) // which begins the count anew
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
	// A train that came while the socket asked must be read while it asks: else it is
	// one long datagram of which nobody knows the parts.
	a, b := open(t, loopback4, Config{}), open(t, loopback4, Config{})
	if !b.Info().GRO.On || !a.Info().GSO.On {
		t.Skip("no GSO or GRO")
	}
	alone(t, a, b, groTry-1)
	send(t, a, train(b, 1, 1, 1))
	send(t, a, train(b, 2, 1000, 100))
	d := slab()
	for _, want := range []int{1, 10} {
		d.Reset()
		if ok, err := b.Recv(d); !ok || err != nil || d.Segments() != want {
			t.Fatalf("Recv: %v %v, %d segments, want %d", ok, err, d.Segments(), want)
		}
	}
	if !asking(b) {
		t.Error("it does not ask, though a train came")
	}
}

func TestGROIsNotOursToJudge(t *testing.T) {
	// Where it was asked for, where there is none, and where a look at several sockets
	// says nothing about one.
	for name, cfg := range map[string]Config{"on": {GRO: On}, "off": {GRO: Off}, "several": {Paths: 2}} {
		a, b := open(t, loopback4, Config{}), open(t, loopback4, cfg)
		for range groTry + groTries {
			send(t, a, train(b, 1, 1, 1))
			receive(t, b, 1)
		}
		if g := &directOf(b).socks[0].gro; !g.on || g.left < never/2 {
			t.Errorf("%s: it is judged", name)
		}
	}
}

func TestSocketsOwnSegmentsAreNoWayAround(t *testing.T) {
	// A train in segments of the socket's own size goes in singles, too, to who gets no
	// trains.
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
		d.tx.len = 0 // aim anew
		alone(t, a, b, 1)
	}
}
