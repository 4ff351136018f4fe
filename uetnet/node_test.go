package uetnet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uetnet"
)

func limit(t testing.TB) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(stop)
	return ctx
}

func node(t testing.TB, opts ...uetnet.Option) *uetnet.Node {
	t.Helper()
	n, err := uetnet.Open(limit(t), "127.0.0.1", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func peer(t testing.TB, n, of *uetnet.Node) fi.Addr {
	t.Helper()
	a, err := n.Peer(limit(t), of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestSendRecv(t *testing.T) {
	ctx, a, b := limit(t), node(t), node(t)
	toB := peer(t, a, b)
	if err := a.Send(ctx, toB, 7, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv(ctx, uetnet.Anyone, 7, make([]byte, 64))
	if err != nil || string(m.Body) != "hello" || m.Tag != 7 {
		t.Fatalf("%q, tag %d, %v", m.Body, m.Tag, err)
	}
	// b did not know a, and can answer.
	if err := b.Send(context.Background(), m.From, 8, []byte("hello yourself")); err != nil {
		t.Fatal(err)
	}
	if m, err = a.Recv(context.Background(), toB, 8, make([]byte, 64)); err != nil || string(m.Body) != "hello yourself" || m.From != toB {
		t.Fatalf("%q from %d, %v", m.Body, m.From, err)
	}
	if _, err = b.RecvMatch(ctx, 4711, 1, 2, nil); !errors.Is(err, fi.EINVAL) {
		t.Errorf("from an address that nobody has: %v", err)
	}
}

func TestSendRecvErrors(t *testing.T) {
	ctx, a, b := limit(t), node(t), node(t)
	toB := peer(t, a, b)
	if err := a.Send(ctx, 4711, 1, nil); !errors.Is(err, fi.EINVAL) {
		t.Errorf("to nobody: %v", err)
	}
	if err := a.Send(ctx, toB, 1, []byte("too long for it")); err != nil {
		t.Fatal(err)
	}
	m, err := b.Recv(ctx, uetnet.Anyone, 1, make([]byte, 3))
	var e *cq.Error
	if !errors.As(err, &e) || !errors.Is(err, fi.ETRUNC) || string(m.Body) != "too" {
		t.Errorf("%q, %v", m.Body, err)
	}
	for _, bad := range []string{"", ":4793", "127.0.0.1:port"} {
		if _, err := a.Peer(ctx, bad); !errors.Is(err, fi.EINVAL) {
			t.Errorf("peer %q: %v", bad, err)
		}
	}
	if n, err := uetnet.Open(ctx, "192.0.2.1"); !errors.Is(err, fi.ENODATA) {
		t.Errorf("opened %v at an address of others: %v", n, err)
	}
}

// A Recv whose context ends takes nothing, and its buffer is free.
func TestRecvEndsWithItsContext(t *testing.T) {
	ctx, a, b := limit(t), node(t), node(t)
	toB := peer(t, a, b)
	short, stop := context.WithCancel(ctx)
	gone := make(chan error)
	go func() {
		_, err := b.Recv(short, uetnet.Anyone, 1, make([]byte, 16))
		gone <- err
	}()
	stop()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := a.Send(ctx, toB, 1, []byte("for the second")); err != nil {
		t.Fatal(err)
	}
	if m, err := b.Recv(ctx, uetnet.Anyone, 1, make([]byte, 16)); err != nil || string(m.Body) != "for the second" {
		t.Fatalf("%q, %v", m.Body, err)
	}
}

// A Send whose context ends leaves the bytes to the caller.
func TestSendEndsWithItsContext(t *testing.T) {
	quick := uetnet.WithConfig(uet.Config{Tuning: uet.Tuning{Linger: -1}})
	a := node(t, quick)
	nobody, err := a.Peer(limit(t), "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer stop()
	if err := a.Send(short, nobody, 1, make([]byte, 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// Many goroutines wait at the same node, each for its own message.
func TestNodeManyGoroutines(t *testing.T) {
	const tags, rounds = 16, 50
	ctx, a, b := limit(t), node(t), node(t)
	toB, toA := peer(t, a, b), peer(t, b, a)
	var all sync.WaitGroup
	for tag := range uint64(tags) {
		all.Go(func() {
			buf := make([]byte, 64)
			for range rounds {
				m, err := b.Recv(ctx, uetnet.Anyone, tag, buf)
				if err == nil {
					err = b.Send(ctx, toA, tag, m.Body)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			buf := make([]byte, 64)
			for i := range rounds {
				want := fmt.Sprintf("%d of tag %d", i, tag)
				err := a.Send(ctx, toB, tag, []byte(want))
				if err == nil {
					var m uetnet.Message
					if m, err = a.Recv(ctx, toB, tag, buf); err == nil && string(m.Body) != want {
						err = fmt.Errorf("%q came back as %q", want, m.Body)
					}
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// What the program posts by itself ends in Completions, and what Send and Recv post does not.
func TestCompletions(t *testing.T) {
	ctx, a, b := limit(t), node(t), node(t)
	toB := peer(t, a, b)
	buf := make([]byte, 64)
	for i := range 3 {
		if err := b.Endpoint().TRecv(buf[8*i:8*i+8], fi.AddrUnspec, uint64(i), 0, i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := a.Send(ctx, toB, uint64(i), []byte("message too long"[:7+i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Send(ctx, toB, 9, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Recv(ctx, uetnet.Anyone, 9, nil); err != nil { // reads the others' completions
		t.Fatal(err)
	}
	seen, failed := 0, 0
	for c, err := range b.Completions(ctx) {
		if i := c.Context.(int); i == 2 {
			if failed++; !errors.Is(err, fi.ETRUNC) {
				t.Errorf("%d: %v", i, err)
			}
		} else if err != nil || c.Len != 7+i || c.From == fi.AddrNotAvail {
			t.Errorf("%d: %d bytes from %d, %v", i, c.Len, c.From, err)
		}
		if seen++; seen == 3 {
			break
		}
	}
	if failed != 1 {
		t.Errorf("%d failures", failed)
	}
	over, stop := context.WithCancel(ctx)
	stop()
	for c, err := range b.Completions(over) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", c, err)
		}
	}
}

// Close ends the calls that wait.
func TestNodeClose(t *testing.T) {
	ctx, a := limit(t), node(t)
	waiting := make(chan error)
	for range 3 {
		go func() {
			_, err := a.Recv(ctx, uetnet.Anyone, 1, make([]byte, 16))
			waiting <- err
		}()
	}
	go func() {
		for _, err := range a.Completions(ctx) {
			waiting <- err
		}
	}()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := <-waiting; !errors.Is(err, net.ErrClosed) && !errors.Is(err, fi.ECANCELED) {
			t.Error(err)
		}
	}
	if err := a.Send(ctx, 0, 1, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("send: %v", err)
	}
	if err := a.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
}

// The iterator of a program's own queue.
func TestCompletionsOfAQueue(t *testing.T) {
	ctx, a := limit(t), node(t)
	q, err := a.Domain().OpenCQ(cq.Attr{WaitObj: fi.WaitUnspec}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	over, stop := context.WithCancel(ctx)
	stop()
	n := 0
	for e, err := range uetnet.Completions(over, q) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", e, err)
		}
	}
	if n != 1 {
		t.Errorf("%d pairs", n)
	}
}

func BenchmarkPingPong(b *testing.B) {
	ctx := context.Background()
	x, y := node(b), node(b)
	toY, toX := peer(b, x, y), peer(b, y, x)
	go func() {
		buf := make([]byte, 64)
		for {
			m, err := y.Recv(ctx, toX, 1, buf)
			if err == nil {
				err = y.Send(ctx, toX, 2, m.Body)
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Send(ctx, toY, 1, buf[:8]); err != nil {
			b.Fatal(err)
		}
		if _, err := x.Recv(ctx, toY, 2, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// A program without uet/msg has no connections, and is told what to import.
func TestConnectionsAreImported(t *testing.T) {
	hints := &uet.Info{Ep: uet.EpAttr{Type: fi.EpMsg}}
	if _, err := uet.GetInfo("127.0.0.1", "", fi.Source, hints); !errors.Is(err, fi.ENODATA) || !strings.Contains(err.Error(), `import _ "github.com/uetkit/uetkit/uet/msg"`) {
		t.Error(err)
	}
}

// What fails says in one line who is gone and what to do.
func TestErrorsNameCauseAndMend(t *testing.T) {
	ctx := t.Context()
	n := node(t)
	says := func(err, is error, want string) {
		t.Helper()
		if !errors.Is(err, is) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q and %v", err, want, is)
		}
	}
	_, err := n.Peer(ctx, "nosuch.invalid:4793")
	says(err, fi.ENODATA, "an address is host:port")
	var zero uetnet.Node
	says(zero.Send(ctx, 0, 1, nil), net.ErrClosed, "was never opened")
	_, err = zero.Peer(ctx, "127.0.0.1:9")
	says(err, net.ErrClosed, "was never opened")
	sock, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sock.Close() // nobody has its port now
	to, err := n.Peer(ctx, sock.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	says(n.Send(ctx, to, 1, []byte("hello")), fi.EHOSTUNREACH, "nobody is at "+sock.LocalAddr().String()+": start the program there")
}
