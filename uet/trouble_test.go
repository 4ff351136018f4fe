package uet

import (
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/udp"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/zaplog"
)

// bare is the Endpoint of an owner that only reports.
func bare(t *testing.T) (*owner, *eq.EQ, *observer.ObservedLogs) {
	t.Helper()
	q, err := eq.New(eq.Attr{}, nil)
	ok(t, err)
	b, err := reporterOf(q, 1)
	ok(t, err)
	core, logs := observer.New(zap.DebugLevel)
	fep, err := transport.New(transport.Config{Local: netip.MustParseAddrPort("192.0.2.1:4793")}, rng())
	ok(t, err)
	return &owner{eq: b, log: zaplog.New(zap.New(core)), context: "ep", fep: fep}, q, logs
}

func events(t *testing.T, q *eq.EQ) (errs []fi.Errno) {
	t.Helper()
	for {
		e, err := q.ReadErr(0)
		if err != nil {
			return errs
		}
		if e.Lost > 0 {
			t.Fatalf("overrun after %d events", len(errs))
		}
		errs = append(errs, e.Err)
	}
}

func TestSocketTroubleIsReportedWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// F23: trouble counts as loss; the event queue gets one event after a second.
		o, q, logs := bare(t)
		for range 99 {
			o.Trouble(syscall.ENETUNREACH)
			time.Sleep(10 * time.Millisecond)
		}
		if e := events(t, q); e != nil {
			t.Errorf("reported after less than a second: %v", e)
		}
		for range 200 {
			o.Trouble(syscall.ENETUNREACH)
			time.Sleep(10 * time.Millisecond)
		}
		if e := events(t, q); len(e) != 1 || e[0] != fi.ENETDOWN {
			t.Errorf("%v, want one ENETDOWN", e)
		}
		if logs.Len() != 1 {
			t.Errorf("%d log lines", logs.Len())
		}
		// A single error now and then is not lasting trouble.
		for range 20 {
			time.Sleep(3 * time.Second)
			o.Trouble(syscall.ENOBUFS)
		}
		if e := events(t, q); e != nil {
			t.Errorf("reported though it did not last: %v", e)
		}
	})
}

func TestLostPeersDoNotFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// T29, docs/faults.md rule 7: one event for a peer with many operations, and at most one
		// log line a second.
		o, q, logs := bare(t)
		lose := func(n, each int) {
			for i := range n {
				id, err := o.fep.Peer(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 4793), true)
				ok(t, err)
				for range each {
					o.peerLost(id, &cq.Error{Err: fi.ETIMEDOUT, Prov: ProvGaveUp})
				}
			}
		}
		lose(1, 1000)
		if e := events(t, q); len(e) != 1 || logs.Len() != 1 {
			t.Errorf("%d events, %d log lines for one lost peer", len(e), logs.Len())
		}
		time.Sleep(2 * time.Second)
		lose(1000, 3)
		if e := events(t, q); len(e) != troubleMax || logs.Len() != 2 {
			t.Errorf("%d events, %d log lines for a thousand lost peers", len(e), logs.Len())
		}
		time.Sleep(2 * time.Second)
		lose(1, 1)
		if e := events(t, q); len(e) != 1 || logs.Len() != 3 {
			t.Errorf("%d events, %d log lines afterwards", len(e), logs.Len())
		}
	})
}

func TestHintsDoNotFillTheQueue(t *testing.T) {
	// F21, F37: packets of strangers cause hints without end. A queue that nobody reads
	// accepts the hints that it has room for and does not overrun. Events about the endpoint
	// itself are still reported.
	o, q, logs := bare(t)
	for range eq.DefaultSize + 50 {
		o.unfit(transport.Hint{Peer: netip.MustParseAddrPort("192.0.2.9:5000"), Reason: transport.DropCRC, Count: 100})
	}
	o.report(eq.Error{Fid: q, Err: fi.EOVERRUN})
	e := events(t, q)
	if len(e) != eq.DefaultSize+1 || e[eq.DefaultSize] != fi.EOVERRUN || logs.Len() != eq.DefaultSize+50 {
		t.Errorf("%d events, %d log lines", len(e), logs.Len())
	}
	o.report(eq.Error{Err: fi.ENETDOWN})
	if e := events(t, q); len(e) != 1 {
		t.Errorf("%v after all of them were read", e)
	}
}

func TestReportNamesThePeer(t *testing.T) {
	// R-EP-21: the report has the context of the endpoint.
	o, q, _ := bare(t)
	addr := netip.MustParseAddrPort("192.0.2.9:5000")
	id, err := o.fep.Peer(addr, true)
	ok(t, err)
	o.peerLost(id, &cq.Error{Err: fi.EHOSTUNREACH})
	e, err := q.ReadErr(0)
	ok(t, err)
	a, _, err := wire.ParseAddrBinary(e.ErrData)
	ok(t, err)
	if a.AddrPort() != addr || e.Context != "ep" || e.Fid != (*Endpoint)(o) {
		t.Errorf("%+v of %v", e, a)
	}
	o.eq = nil
	o.peerLost(id, &cq.Error{Err: fi.EIO}) // without an event queue nothing is reported
}

func TestEnableSaysOnceWhatThePathIs(t *testing.T) {
	// The log has events that somebody may act on, and no line per packet.
	core, logs := observer.New(zap.DebugLevel)
	r := newRig(t, &Info{Config: Config{Logger: zaplog.New(zap.New(core))}})
	a, b, toB, _ := r.pair()
	flush := func() { a.lines.flush(); b.lines.flush() }
	flush()
	lines := logs.Len()
	if n := logs.FilterMessage("endpoint enabled").Len(); n != 2 {
		t.Errorf("%d lines about two endpoints", n)
	}
	for range 100 {
		ok(t, b.Recv(nil, fi.AddrUnspec, nil))
		ok(t, a.Send(nil, toB, nil))
		wait(t, b.rx, a)
	}
	flush()
	if n := logs.Len() - lines; n != 0 {
		t.Errorf("%d log lines for 100 messages", n)
	}
}

func TestF7PathThatCarriesLessReachesTheQueue(t *testing.T) {
	// F7: an event names the peer, the payload that its path carries, and that of the
	// interface. That the path carries full packets again is in the log alone.
	o, q, logs := bare(t)
	peer := netip.MustParseAddrPort("192.0.2.66:4793")
	o.pathMTU(transport.PathMTU{Peer: peer, Payload: 2048, Full: 8192})
	e, err := q.ReadErr(0)
	ok(t, err)
	a, _, err := wire.ParseAddrBinary(e.ErrData)
	ok(t, err)
	if want := "the path to the peer carries 2048 bytes of payload in a packet, the interface 8192"; e.Err != fi.EMSGSIZE || ProvString(e.Prov) != want || a.AddrPort() != peer || e.Context != "ep" {
		t.Errorf("%v (%s) of %v, context %v", &e, ProvString(e.Prov), a.AddrPort(), e.Context)
	}
	o.pathMTU(transport.PathMTU{Peer: peer, Payload: 8192, Full: 8192})
	if e := events(t, q); e != nil || logs.Len() != 2 {
		t.Errorf("events %v, %d log lines", e, logs.Len())
	}
	o.eq = nil
	o.pathMTU(transport.PathMTU{Peer: peer, Payload: 1024, Full: 8192}) // nobody to tell
}

func TestT3GuessesReachTheQueue(t *testing.T) {
	// T3: guessing the numbers of PDCs causes an event that names the source, from the FEP to
	// the endpoint's queue.
	o, q, logs := bare(t)
	from := netip.MustParseAddrPort("192.0.2.66:666")
	fep, err := transport.New(transport.Config{Local: netip.MustParseAddrPort("192.0.2.1:4793"), Hint: o.unfit}, rng())
	ok(t, err)
	peer := netip.MustParseAddrPort("192.0.2.2:4793")
	id, err := fep.Peer(peer, true)
	ok(t, err)
	ok(t, fep.Post(1, &transport.Op{Kind: transport.OpSend, Peer: id, Buf: []byte("x")}))
	d := &dgram.Datagram{Data: make([]byte, 0, dgram.SlabLen)}
	if !fep.Transmit(1, d) {
		t.Fatal("nothing is sent")
	}
	var h wire.Req
	_, err = h.Parse(d.Data)
	ok(t, err)
	guess := func(n int) {
		for i := range n {
			a := wire.Ack{Type: wire.TypeAck, CACK: h.PSN, SPDCID: uint16(i + 1), DPDCID: h.SPDCID}
			b := append(a.Append(nil), make([]byte, wire.CRCLen)...)
			wire.PutCRC(b, wire.CRCPrefix(from.Addr(), netip.MustParseAddr("192.0.2.1"), from.Port(), 4793, uint16(8+len(b))))
			fep.Receive(2, &dgram.Datagram{Data: b, Remote: from})
		}
	}
	guess(100)
	if e := events(t, q); e != nil {
		t.Errorf("events %v of 100 guesses", e)
	}
	guess(1)
	e, err := q.ReadErr(0)
	ok(t, err)
	a, _, err := wire.ParseAddrBinary(e.ErrData)
	ok(t, err)
	if e.Err != fi.EACCES || e.Prov != ProvDrop+uint32(transport.DropSource) || a.AddrPort() != from || logs.Len() != 1 {
		t.Errorf("%v of %v, %d log lines", &e, a.AddrPort(), logs.Len())
	}
	guess(500)
	if e := events(t, q); e != nil || logs.Len() != 1 {
		t.Errorf("events %v of more guesses in the same second, %d log lines", e, logs.Len())
	}
}

// The log reports that GSO was switched off at run time and is on again. The number of
// these lines is bounded, because anybody may cause them (T34).
func TestGSOChangesAreSaid(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	r := newRig(t, &Info{Config: Config{Logger: zaplog.New(zap.New(core))}})
	a := r.node()
	sock := a.sockets(0)
	off, on := udp.Feature{On: true, Why: "off for 1 destinations"}, udp.Feature{On: true}
	for _, f := range []udp.Feature{off, on, {Why: "failed for 9 destinations"}, on, off, on} {
		sock.GSOChanged(f)
	}
	a.lines.flush()
	said := logs.FilterMessageSnippet("GSO is").All()
	if len(said) != gsoMax {
		t.Fatalf("%d lines of 6 changes, want %d", len(said), gsoMax)
	}
	for i, e := range said {
		if f := e.ContextMap(); (e.Level == zap.WarnLevel) != (i%2 == 0) || i%2 == 0 && (f["for_all"] != (i == 2) || f["why"] == "") || f["local"] == "" {
			t.Errorf("line %d: %v %v", i, e.Entry, f)
		}
	}
	a.troubles.gsoFrom = time.Now().Add(-gsoQuiet)
	sock.GSOChanged(off)
	a.lines.flush()
	if said = logs.FilterMessageSnippet("GSO is").All(); len(said) != gsoMax+1 || said[gsoMax].ContextMap()["more_before"] != int64(2) {
		t.Errorf("a minute later: %v", said[gsoMax:])
	}
}
