package uet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// sharers returns endpoints of one port.
func (r *rig) sharers(n int, opt ...func(*options)) []*node {
	r.t.Helper()
	r.info.Config.SharePort = true
	all := []*node{r.node(opt...)}
	for range n - 1 {
		all = append(all, r.joiner(all[0], opt...))
	}
	return all
}

// joiner returns one more endpoint of the port of first.
func (r *rig) joiner(first *node, opt ...func(*options)) *node {
	r.t.Helper()
	was := r.info.SrcAddr
	defer func() { r.info.SrcAddr = was }()
	r.info.SrcAddr.Port = nameOf(r.t, first).Port
	return r.node(opt...)
}

// alone returns a node with a port of its own.
func (r *rig) alone(opt ...func(*options)) *node {
	r.t.Helper()
	share := r.info.Config.SharePort
	defer func() { r.info.Config.SharePort = share }()
	r.info.Config.SharePort = false
	return r.node(opt...)
}

// unready is an endpoint with what it needs that is not enabled.
func (r *rig) unready() *Endpoint {
	r.t.Helper()
	ep, err := r.domain.OpenEndpoint(r.info, nil)
	ok(r.t, err)
	q, err := r.domain.OpenCQ(cq.Attr{}, nil)
	ok(r.t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(r.t, err)
	ok(r.t, ep.BindCQ(q, fi.Transmit|fi.Recv))
	ok(r.t, ep.BindAV(v))
	r.t.Cleanup(func() { ok(r.t, ep.Close()); ok(r.t, q.Close()); ok(r.t, v.Close()) })
	return ep
}

// refuses fails the test unless Enable fails with the errno and says the words.
func (r *rig) refuses(e fi.Errno, words ...string) {
	r.t.Helper()
	err := r.unready().Enable()
	want(r.t, err, e)
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			r.t.Errorf("%v does not say %q", err, w)
		}
	}
}

func nameOf(t testing.TB, n *node) wire.Addr {
	t.Helper()
	a, err := n.Name()
	ok(t, err)
	return a
}

func TestEndpointsShareAPort(t *testing.T) {
	// R-ADDR-10: endpoints of a port get the first PIDonFEP that is free, from 0. Each gets what is for it.
	t.Parallel()
	r := newRig(t, nil)
	all := r.sharers(4)
	peer := r.alone()
	port := nameOf(t, all[0]).Port
	bufs := make([][]byte, len(all))
	for i, n := range all {
		if a := nameOf(t, n); a.PIDonFEP != uint16(i) || a.Port != port || a.RI != wire.DefaultRI {
			t.Errorf("endpoint %d is %v", i, a)
		}
		bufs[i] = make([]byte, 8)
		ok(t, n.TRecv(bufs[i], fi.AddrUnspec, 1, 0, i))
	}
	for i, n := range all {
		ok(t, peer.TSend([]byte{byte(i + 1)}, peer.know(n), 1, nil))
	}
	for i, n := range all {
		if e, _ := wait(t, n.rx, append(all, peer)...); e.Context != i || bufs[i][0] != byte(i+1) {
			t.Errorf("endpoint %d got %d, context %v", i, bufs[i][0], e.Context)
		}
		wait(t, peer.tx, all...)
	}
	for i, n := range all { // and back
		ok(t, peer.TRecv(make([]byte, 8), fi.AddrUnspec, uint64(i), 0, nil))
		ok(t, n.TSend([]byte{1}, n.know(peer), uint64(i), i))
		wait(t, peer.rx, all...)
		if e, _ := wait(t, n.tx, peer); e.Context != i {
			t.Errorf("endpoint %d has the completion of %v", i, e.Context)
		}
	}
	ok(t, all[1].Endpoint.Close())
	if a := nameOf(t, r.joiner(all[0])); a.PIDonFEP != 1 {
		t.Errorf("the first PIDonFEP that is free is 1, not %d", a.PIDonFEP)
	}
}

func TestAnAddressNamesSeveralIndices(t *testing.T) {
	// R-ADDR-13: context i of an address with several resource indices has the start index plus i.
	t.Parallel()
	r := newRig(t, nil)
	const start, n = 40, 3
	r.info.SrcAddr.RI = start
	all := r.sharers(1)
	for i := 1; i < n; i++ {
		r.info.SrcAddr.RI = start + uint16(i)
		all = append(all, r.joiner(all[0]))
	}
	r.info.SrcAddr.RI = 0
	peer := r.alone()
	whole := nameOf(t, all[0])
	whole.NumRI = n
	for i := range all {
		at := whole
		at.RI += uint16(i)
		if got := nameOf(t, all[i]); got.PIDonFEP != whole.PIDonFEP || got.RI != at.RI {
			t.Errorf("index %d is %v", i, got)
		}
		h, err := peer.vec.InsertString(at.String())
		ok(t, err)
		buf := make([]byte, 1)
		ok(t, all[i].TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		ok(t, peer.TSend([]byte{byte(i + 1)}, h, 1, nil))
		wait(t, all[i].rx, append(all, peer)...)
		wait(t, peer.tx, all...)
		if buf[0] != byte(i+1) {
			t.Errorf("index %d got %d", i, buf[0])
		}
	}
}

func TestEndpointsOfAPortTalk(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	all := r.sharers(2)
	for i, from := range all {
		for k, at := range all {
			buf := make([]byte, 5000)
			ok(t, at.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
			ok(t, from.TSend(bytes.Repeat([]byte{byte(10*i + k)}, 5000), from.know(at), 1, nil))
			wait(t, at.rx, all...)
			wait(t, from.tx, all...)
			if buf[4999] != byte(10*i+k) {
				t.Errorf("from %d to %d: %d", i, k, buf[4999])
			}
		}
	}
}

func TestAPortIsOfWhoAsks(t *testing.T) {
	// R-ADDR-09: no two endpoints have one name, and who does not ask for it shares nothing.
	t.Parallel()
	r := newRig(t, nil)
	first := r.sharers(1)[0]
	r.info.SrcAddr = nameOf(t, first)
	r.info.SrcAddr.Flags |= wire.AddrPIDValid
	r.refuses(fi.EADDRINUSE, "PIDonFEP 0", "resource index 15")
	r.info.Config.SharePort = false
	r.refuses(fi.EADDRINUSE)
	r.info.Config.SharePort = true
	r.info.SrcAddr.PIDonFEP = 7
	if a := nameOf(t, r.node()); a.PIDonFEP != 7 {
		t.Error(a)
	}
	r.info.SrcAddr.PIDonFEP, r.info.Config.JobID = 0, 9
	if p, err := r.node().PathInfo(); err != nil || p.JobID != 9 {
		t.Error(p.JobID, err)
	}
}

func TestAFieldThatDiffersIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first := r.sharers(1)[0]
	r.info.SrcAddr.Port = nameOf(t, first).Port
	info := *r.info
	for name, change := range map[string]func(*Info){
		"Config.NoCRC":                      func(in *Info) { in.Config.NoCRC = true },
		"Config.PayloadMTU":                 func(in *Info) { in.Config.PayloadMTU = 2048 },
		"Config.Paths":                      func(in *Info) { in.Config.Paths = 3 },
		"Config.Tap":                        func(in *Info) { in.Config.Tap = func(*Tapped) {} },
		"Config.KnownPeersOnly":             func(in *Info) { in.Config.KnownPeersOnly = true },
		"Config.Tuning.PeerTimeout":         func(in *Info) { in.Config.Tuning.PeerTimeout = time.Minute },
		"Config.Tuning.TrimClasses.Trimmed": func(in *Info) { in.Config.Tuning.TrimClasses.Trimmed = 3 },
		"Config.Socket.GSO":                 func(in *Info) { in.Config.Socket.GSO = OffloadOff },
		"Domain.DataProgress":               func(in *Info) { in.Domain.DataProgress = fi.ProgressManual },
	} {
		*r.info = info
		change(r.info)
		if name == "Config.KnownPeersOnly" {
			name = "address vector"
		}
		r.refuses(fi.EINVAL, name)
	}
	*r.info = info
	r.info.Config.Tuning.Linger, r.info.Config.RUDI = time.Second/2, true // each endpoint's own
	r.node()
	*r.info = info
	r.info.Config = first.Info().Config // what Enable filled in is no difference
	r.node()
}

func TestAPortHasTheTapOfItsFirst(t *testing.T) {
	// Functions cannot be compared, and a closure of the same text sees other things: a Tap of another endpoint is
	// refused by name, whatever it is. That of the first sees what all of the port send and receive.
	t.Parallel()
	r := newRig(t, nil)
	tapTo := func(n *atomic.Int32) func(*Tapped) { return func(*Tapped) { n.Add(1) } }
	var mine, other atomic.Int32
	r.info.Config.Tap = tapTo(&mine)
	first := r.sharers(1)[0]
	r.info.SrcAddr.Port = nameOf(t, first).Port
	for _, tap := range []func(*Tapped){tapTo(&other), tapTo(&mine), r.info.Config.Tap} {
		r.info.Config.Tap = tap
		r.refuses(fi.EINVAL, "Config.Tap", "leave it nil")
	}
	r.info.Config.Tap = nil
	second := r.node()
	r.info.SrcAddr.Port = 0
	peer := r.alone()
	before := mine.Load()
	ok(t, peer.TRecv(make([]byte, 1), fi.AddrUnspec, 1, 0, nil))
	ok(t, second.TSend([]byte{1}, second.know(peer), 1, nil))
	wait(t, second.tx, peer)
	if mine.Load() == before || other.Load() != 0 {
		t.Errorf("%d datagrams of the second endpoint are seen, %d by a stranger", mine.Load()-before, other.Load())
	}
}

func TestCloseOfOneLeavesTheOthers(t *testing.T) {
	t.Parallel()
	for _, gone := range []int{0, 1} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			all := r.sharers(2)
			peer := r.alone()
			a, b := all[gone], all[1-gone]
			toPeer, toA, toB, fromB := a.know(peer), peer.know(a), peer.know(b), b.know(peer)
			got := make([]byte, 8)
			ok(t, peer.TRecv(got, fi.AddrUnspec, 5, 0, nil))
			ok(t, a.TInject([]byte("last"), toPeer, 5))
			ok(t, a.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, "gone"))
			ok(t, a.Endpoint.Close())
			if e := waitErr(t, a.rx, peer); e.Err != fi.ECANCELED || e.Context != "gone" {
				t.Errorf("%+v", e)
			}
			if wait(t, peer.rx, b); string(got[:4]) != "last" {
				t.Errorf("%q", got)
			}
			want(t, a.TSend(nil, toPeer, 1, nil), fi.EBADF)
			for i := range 20 {
				ok(t, b.TRecv(got, fi.AddrUnspec, 2, 0, i))
				ok(t, peer.TSend([]byte{byte(i)}, toB, 2, i))
				if e, _ := wait(t, b.rx, peer); e.Context != i || got[0] != byte(i) {
					t.Fatal(e, got)
				}
				wait(t, peer.tx, b)
				ok(t, peer.TRecv(got, fi.AddrUnspec, 3, 0, nil))
				ok(t, b.TSend([]byte{1}, fromB, 3, nil))
				wait(t, b.tx, peer)
				wait(t, peer.rx, b)
			}
			ok(t, peer.TSend([]byte("none"), toA, 1, nil)) // the name is nobody's
			waitErr(t, peer.tx, b)
			port := nameOf(t, b).Port
			ok(t, b.Endpoint.Close())
			r.info.SrcAddr.Port = port
			if again := r.node(); again.port == b.port { // the last one closed the port
				t.Error("the port outlived its endpoints")
			}
		})
	}
}

func TestCloseOfOneEndsWhatIsUnderWay(t *testing.T) {
	// R-EP-14: when Close returns, a send to a peer that does not answer has ended, and its buffer is the
	// application's. What another endpoint sends there arrives.
	t.Parallel()
	r := newRig(t, nil)
	r.info.Config.Tuning.Linger = -1
	all := r.sharers(2)
	still := r.alone()
	hA, hB := all[0].know(still), all[1].know(still)
	ok(t, still.TRecv(make([]byte, 1), fi.AddrUnspec, 9, 0, "woken"))
	ok(t, all[1].TSend([]byte{1}, hB, 9, nil))
	wait(t, all[1].tx, still)
	wait(t, still.rx, all[1])
	hold, held := make(chan struct{}), make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() { still.drv.With(func() { close(held); <-hold }) }) // it reads nothing meanwhile
	<-held
	buf := make([]byte, 100_000)
	ok(t, all[0].TSend(buf, hA, 1, "gone"))
	ok(t, all[1].TSend([]byte("kept"), hB, 2, "kept"))
	start := time.Now()
	ok(t, all[0].Endpoint.Close())
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	close(hold)
	g.Wait()
	if e := waitErr(t, all[0].tx); e.Err != fi.ECANCELED || e.Context != "gone" {
		t.Errorf("%+v", e)
	}
	got := make([]byte, 4)
	ok(t, still.TRecv(got, fi.AddrUnspec, 2, 0, nil))
	if wait(t, still.rx, all[1]); string(got) != "kept" {
		t.Errorf("%q", got)
	}
	if e, _ := wait(t, all[1].tx, still); e.Context != "kept" {
		t.Errorf("%+v", e)
	}
}

func TestEndpointsOfAPortCloseAtOnce(t *testing.T) {
	// R-EP-14: who closes last does not take the port from one that still waits for what it has sent.
	t.Parallel()
	r := newRig(t, nil)
	r.info.Config.Tuning.Linger = 200 * time.Millisecond
	all := r.sharers(1)
	r.info.Config.Tuning.Linger = time.Second
	all = append(all, r.joiner(all[0]))
	still := r.alone()
	h := all[0].know(still)
	ok(t, still.TRecv(make([]byte, 1), fi.AddrUnspec, 9, 0, "woken"))
	ok(t, all[0].TSend([]byte{1}, h, 9, nil))
	wait(t, all[0].tx, still)
	wait(t, still.rx, all[0])
	hold, held := make(chan struct{}), make(chan struct{})
	var g, first, last sync.WaitGroup
	g.Go(func() { still.drv.With(func() { close(held); <-hold }) }) // it reads nothing meanwhile
	<-held
	ok(t, all[0].TInject([]byte("lost"), h, 1))
	ok(t, all[0].TSend(make([]byte, 100_000), h, 1, "gone"))
	ok(t, all[1].TRecv(make([]byte, 1), fi.AddrUnspec, 1, 0, "gone"))
	port := nameOf(t, all[0]).Port
	first.Go(func() { ok(t, all[0].Endpoint.Close()) })
	for all[0].state.Load() != stateClosed {
		time.Sleep(time.Millisecond)
	}
	for begun := false; !begun; time.Sleep(time.Millisecond) { // to leave the port
		ps := &all[0].domain.ports
		ps.mu.Lock()
		begun = all[0].port.open == 1
		ps.mu.Unlock()
	}
	last.Go(func() { ok(t, all[1].Endpoint.Close()) })
	if e := waitErr(t, all[1].rx); e.Err != fi.ECANCELED || e.Context != "gone" {
		t.Errorf("%+v", e)
	}
	first.Wait()
	for _, context := range []any{nil, "gone"} { // also of what was injected
		var e cq.Error
		if n, err := all[0].tx.ReadErr(&e, 0); n != 1 || e.Err != fi.ECANCELED || e.Context != context {
			t.Errorf("%d %v %+v", n, err, e)
		}
	}
	last.Wait()
	close(hold)
	g.Wait()
	r.info.SrcAddr.Port = port // which is free
	if again := r.sharers(1); again[0].port == all[0].port {
		t.Error("the port outlived its endpoints")
	}
}

func TestOtherPortsThatAreShared(t *testing.T) {
	// Of sealed endpoints the opener closes first, and the rest have its keys. Datagrams find their endpoint, too.
	t.Parallel()
	sec, err := NewClusterKey(NewKey(1))
	ok(t, err)
	sealed := &Info{}
	sealed.Config.Security = sec
	for name, hints := range map[string]*Info{"sealed": sealed, "datagrams": datagrams(fi.Msg)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, hints)
			all := r.sharers(3)
			peer := r.alone()
			talk := func(a *node, n int) {
				t.Helper()
				buf := make([]byte, 8)
				ok(t, a.Recv(buf, fi.AddrUnspec, nil))
				ok(t, peer.Send([]byte{byte(n)}, peer.know(a), n))
				wait(t, a.rx, append(all, peer)...)
				wait(t, peer.tx, all...)
				ok(t, peer.Recv(buf[1:], fi.AddrUnspec, nil))
				ok(t, a.Send([]byte{byte(n + 1)}, a.know(peer), n))
				wait(t, peer.rx, all...)
				if e, _ := wait(t, a.tx, peer); e.Context != n || buf[0] != byte(n) || buf[1] != byte(n+1) {
					t.Errorf("%d: %v %v", n, e.Context, buf)
				}
			}
			for i, a := range all {
				talk(a, 10*i)
			}
			ok(t, all[0].Endpoint.Close())
			all = append(all[1:], r.joiner(all[1]))
			for i, a := range all {
				talk(a, 10*i)
			}
		})
	}
}

func TestEndpointsOfAPortShareOneQueue(t *testing.T) {
	// Posts and reads from several goroutines, with one completion queue, while endpoints come and go.
	t.Parallel()
	r := newRig(t, nil)
	r.info.Config.SharePort = true
	q, err := r.domain.OpenCQ(cq.Attr{Format: fi.CQTagged, Size: 8192, WaitObj: fi.WaitUnspec}, nil)
	ok(t, err)
	v, err := r.domain.OpenAV(av.Attr{}, nil)
	ok(t, err)
	open := func() *Endpoint {
		ep, err := r.domain.OpenEndpoint(r.info, nil)
		if err == nil {
			err = errors.Join(ep.BindCQ(q, fi.Transmit|fi.Recv), ep.BindAV(v), ep.Enable())
		}
		if err != nil {
			t.Error(err)
		}
		return ep
	}
	hub := open()
	name, err := hub.Name()
	ok(t, err)
	r.info.SrcAddr.Port = name.Port
	to, err := v.InsertString(name.String())
	ok(t, err)
	const rounds = 100
	var comers, posters sync.WaitGroup
	stop := make(chan struct{})
	comers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			ep := open()
			_ = ep.TSend([]byte("stray"), to, 99, "stray")
			_ = ep.TRecv(make([]byte, 8), fi.AddrUnspec, 98, 0, "stray")
			if err := ep.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	others := []*Endpoint{open(), open(), open()}
	for i, ep := range others {
		posters.Go(func() {
			for n := range rounds {
				for {
					err := ep.TSend([]byte{byte(i)}, to, uint64(i), [2]int{i, n})
					if err == nil {
						break
					} else if !errors.Is(err, fi.EAGAIN) {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
				for hub.TRecv(make([]byte, 8), fi.AddrUnspec, uint64(i), 0, i) != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	sent, got := map[[2]int]bool{}, 0
	var es [16]cq.Entry
	for end := time.Now().Add(2 * patience); len(sent) < 3*rounds || got < 3*rounds; {
		n, err := q.SRead(es[:], 1, time.Second)
		if errors.Is(err, fi.EAVAIL) {
			var ce cq.Error
			_, err := q.ReadErr(&ce, 0)
			ok(t, err)
			if ce.Context != "stray" {
				t.Errorf("%+v", ce)
			}
		}
		for _, e := range es[:max(n, 0)] {
			switch c := e.Context.(type) {
			case [2]int:
				sent[c] = true
			case int:
				got++
			}
		}
		if time.Now().After(end) {
			t.Errorf("%d sent, %d received", len(sent), got)
			break
		}
	}
	posters.Wait()
	close(stop)
	comers.Wait()
	for _, ep := range append(others, hub) {
		ok(t, ep.Close())
	}
	ok(t, q.Close())
	ok(t, v.Close())
}

func TestMemoryOfEndpointsThatShareAPort(t *testing.T) {
	// Each endpoint reaches the regions of the domain, also when another has closed.
	t.Parallel()
	r := newRig(t, rma(0, 0))
	all := r.sharers(3)
	peer := r.alone()
	mem := make([]byte, 16)
	m, err := r.domain.RegMR(mem, fi.RemoteWrite|fi.RemoteRead, 0, 3, 0, nil)
	ok(t, err)
	write := func(i int) {
		t.Helper()
		ok(t, peer.Write([]byte{byte(i + 1)}, peer.know(all[i]), 0, 3, nil))
		wait(t, peer.tx, all...)
		if mem[0] != byte(i+1) {
			t.Errorf("endpoint %d: %d", i, mem[0])
		}
	}
	for i := range all {
		write(i)
	}
	ok(t, all[0].Endpoint.Close())
	write(1)
	write(2)
	ok(t, m.Close())
	r.info.SrcAddr = nameOf(t, all[1]) // a small header names no resource index
	r.info.SrcAddr.RI++
	r.refuses(fi.EADDRINUSE, "small request header")
}

func TestFlushCancelAndDiagnoseAreOfOneEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	all := r.sharers(2)
	peer := r.alone()
	a, b := all[0], all[1]
	ok(t, a.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, "of a"))
	ok(t, b.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, "of b"))
	if w := a.Diagnose(); len(w) != 1 || w[0].Context != "of a" {
		t.Errorf("%+v", w)
	}
	want(t, a.Cancel("of b"), fi.ENOENT)
	ok(t, b.Cancel("of b"))
	if e := waitErr(t, b.rx); e.Context != "of b" {
		t.Errorf("%+v", e)
	}
	na, err := a.RxSizeLeft()
	ok(t, err)
	if nb, err := b.RxSizeLeft(); err != nil || nb != na+1 {
		t.Error(na, nb, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ok(t, b.Flush(ctx))
	ok(t, a.TSend(make([]byte, 64), a.know(peer), 77, nil))
	ok(t, peer.TRecv(make([]byte, 64), fi.AddrUnspec, 77, 0, nil))
	ok(t, a.Flush(ctx))
	wait(t, peer.rx, all...)
	wait(t, a.tx, peer)
}
