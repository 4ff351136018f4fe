package uet

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// lingering returns hints with that Tuning.Linger.
func lingering(d time.Duration) *Info {
	in := &Info{}
	in.Config.Tuning.Linger = d
	return in
}

// silent inserts the address of a socket that nobody reads.
func (n *node) silent() fi.Addr {
	n.t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	ok(n.t, err)
	n.t.Cleanup(func() { c.Close() })
	name, err := n.Name()
	ok(n.t, err)
	name.Port = uint16(c.LocalAddr().(*net.UDPAddr).Port)
	h, err := n.vec.InsertString(name.String())
	ok(n.t, err)
	return h
}

// closes closes the node and returns how long that took.
func (n *node) closes() time.Duration {
	n.t.Helper()
	start := time.Now()
	ok(n.t, n.Close())
	return time.Since(start)
}

func TestLingerIsBounded(t *testing.T) {
	t.Parallel()
	// R-EP-14: Close waits for an injected message, Linger at most, and not at all if Linger is
	// negative or if nobody takes the message for sent. Then it drops what is left.
	const most = 300 * time.Millisecond
	for _, c := range []struct {
		name   string
		linger time.Duration
		send   func(n *node, to fi.Addr) error
		waits  bool
	}{
		{"injected", most, func(n *node, to fi.Addr) error { return n.TInject([]byte("x"), to, 1) }, true},
		{"negative", -1, func(n *node, to fi.Addr) error { return n.TInject([]byte("x"), to, 1) }, false},
		{"not completed", most, func(n *node, to fi.Addr) error { return n.TSend([]byte("x"), to, 1, nil) }, false},
		{"nothing", most, func(n *node, to fi.Addr) error { return n.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, nil) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newRig(t, lingering(c.linger)).node()
			ok(t, c.send(n, n.silent()))
			d := n.closes()
			if c.waits && (d < most*9/10 || d > most+2*time.Second) || !c.waits && d > most*9/10 {
				t.Errorf("Close took %v", d)
			}
		})
	}
}

func TestLingerDeliversInjectedMessages(t *testing.T) {
	t.Parallel()
	// Nobody drives the sender but Close. The receiver has no receive posted yet.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			in := lingering(patience)
			in.Domain.DataProgress = p
			a := newRig(t, in).node()
			b := newRig(t, nil).node()
			to := a.know(b)
			const n = 500
			for i := range n {
				for errors.Is(a.TInject([]byte{byte(i)}, to, 1), fi.EAGAIN) {
					_, _ = a.tx.Read(nil)
				}
			}
			if d := a.closes(); d > patience/2 {
				t.Errorf("Close took %v", d)
			}
			for i := range n {
				buf := make([]byte, 1)
				ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
				if wait(t, b.rx); buf[0] != byte(i) && t.Failed() {
					return
				}
			}
		})
	}
}

func TestLingerDomainClosesTogether(t *testing.T) {
	t.Parallel()
	// What an endpoint waited for while others were being closed counts: sixteen take about as
	// long as one.
	const most = 500 * time.Millisecond
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			in := lingering(most)
			in.Domain.DataProgress = p
			r := newRig(t, in)
			nodes := make([]*node, 16)
			for i := range nodes {
				nodes[i] = r.node()
				ok(t, nodes[i].TInject([]byte("x"), nodes[i].silent(), 1))
			}
			var all time.Duration
			for _, n := range nodes {
				all += n.closes()
			}
			if all < most/2 || all > 4*most {
				t.Errorf("to close all took %v", all)
			}
		})
	}
}

func TestLingerDrivesTheOthers(t *testing.T) {
	t.Parallel()
	// Nobody drives c, whose message to b needs two round trips, but Close of a, which waits for
	// something else.
	sec, err := NewClusterKey(NewKey(1))
	ok(t, err)
	in := lingering(time.Second)
	in.Config.Security, in.Domain.DataProgress = sec, fi.ProgressManual
	r := newRig(t, in)
	a, c := r.node(), r.node()
	to := &Info{}
	to.Config.Security = sec
	b := newRig(t, to).node()
	ok(t, b.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, nil))
	ok(t, a.TInject([]byte("x"), a.silent(), 1))
	ok(t, c.TInject([]byte("x"), c.know(b), 1))
	a.closes()
	if n, err := b.rx.Read(make([]cq.Entry, 1)); n != 1 {
		t.Errorf("the message is not there: %v", err)
	}
}

func TestLingerEndsReceivesAtOnce(t *testing.T) {
	t.Parallel()
	// A reader that sleeps learns of it while Close waits.
	r := newRig(t, lingering(patience))
	n := r.node()
	ok(t, n.TInject([]byte("x"), n.silent(), 1))
	ok(t, n.TRecv(make([]byte, 8), fi.AddrUnspec, 1, 0, "recv"))
	closed := make(chan struct{})
	go func() { defer close(closed); _ = n.Close() }()
	var e [1]cq.Entry
	if _, err := n.rx.SRead(e[:], 1, patience/2); !errors.Is(err, fi.EAVAIL) {
		t.Errorf("%v", err)
	}
	if e := waitErr(t, n.rx); e.Err != fi.ECANCELED || e.Context != "recv" {
		t.Errorf("%+v", &e)
	}
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	want(t, n.TInject(nil, 0, 1), fi.EBADF)
	_ = n.drv.Close() // ends the wait
	<-closed
}

func TestLingerNotForTheDead(t *testing.T) {
	t.Parallel()
	// The host of the peer says by ICMP that its port is closed.
	r := newRig(t, lingering(patience))
	a, b := r.node(), r.node()
	to := a.know(b)
	ok(t, b.Close())
	ok(t, a.TInject([]byte("x"), to, 1))
	if d := a.closes(); d > patience/4 {
		t.Errorf("Close took %v", d)
	}
}

func TestFlush(t *testing.T) {
	t.Parallel()
	// Flush returns when the injected messages are delivered, whoever drives the endpoint, or
	// when its context ends. It says no more than that.
	for _, p := range []fi.Progress{fi.ProgressAuto, fi.ProgressManual} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &Info{Domain: DomainAttr{DataProgress: p}})
			a := r.node()
			b := newRig(t, nil).node()
			to := a.know(b)
			ok(t, a.Flush(t.Context()))
			for range 20 {
				ok(t, a.TInject(make([]byte, 64), to, 1))
			}
			ok(t, a.Flush(t.Context()))
			if n := len(a.Diagnose()); n != 0 {
				t.Errorf("%d operations have not ended", n)
			}
			ok(t, a.TInject([]byte("x"), a.silent(), 1))
			ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer stop()
			if err := a.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			gone, err := r.domain.OpenEndpoint(r.info, nil)
			ok(t, err)
			want(t, gone.Flush(t.Context()), fi.EOPBADSTATE)
			ok(t, gone.Close())
			want(t, gone.Flush(t.Context()), fi.EBADF)
		})
	}
}
