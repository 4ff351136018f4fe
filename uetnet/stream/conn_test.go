package stream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uetnet"
	"github.com/uetkit/uetkit/uetnet/stream"
)

// pair returns the two ends of a stream over the loopback interface.
func pair(t testing.TB, opts ...uetnet.Option) (dialed, accepted *stream.Conn) {
	t.Helper()
	dialed, accepted, err := connect(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	for _, c := range []*stream.Conn{dialed, accepted} { // a test that goes wrong shall not hang
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	}
	return dialed, accepted
}

func connect(opts ...uetnet.Option) (dialed, accepted *stream.Conn, err error) {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	l, err := stream.Listen(ctx, "127.0.0.1", opts...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if dialed, err = stream.Dial(ctx, l.Addr().String(), opts...); err != nil {
		return nil, nil, err
	}
	accepted, err = l.AcceptContext(ctx)
	return dialed, accepted, err
}

func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b, err := connect()
		return a, b, func() { _, _ = a.Close(), b.Close() }, err
	})
}

func TestConnSealed(t *testing.T) {
	key, err := uet.NewClusterKey(uet.NewKey(1))
	if err != nil {
		t.Fatal(err)
	}
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, b, err := connect(uetnet.WithSecurity(key))
		return a, b, func() { _, _ = a.Close(), b.Close() }, err
	})
}

// random returns n bytes that a seed repeats.
func random(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// What is written in pieces of all sizes is read as it was written, in pieces of other sizes.
func TestConnKeepsTheOrderOfBytes(t *testing.T) {
	a, b := pair(t)
	want := random(6<<20, 1)
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(1<<r.IntN(18)))
			if _, err := a.Write(rest[:n]); err != nil {
				t.Error(err)
				break
			}
			rest = rest[n:]
		}
		if err := a.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	var got bytes.Buffer
	r := rand.New(rand.NewPCG(3, 4))
	for buf := make([]byte, 1<<17); ; {
		n, err := b.Read(buf[:1+r.IntN(len(buf)-1)])
		got.Write(buf[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%d bytes of %d, or others", got.Len(), len(want))
	}
}

// After CloseWrite the other direction goes on.
func TestConnCloseWrite(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := a.Write([]byte("more")); !errors.Is(err, fi.ESHUTDOWN) {
		t.Errorf("a write after CloseWrite: %v", err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "question" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := b.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
		t.Fatalf("%q, %v", got, err)
	}
}

// Everything that was written before Close can be read after it, however much of it lies where.
func TestConnReadsAfterClose(t *testing.T) {
	// 700 KiB are more than the receive buffers, 3000 pieces of a byte more than the completion queue.
	for _, n := range []int{1, 16 << 10, 200 << 10, 700 << 10, 3000} {
		a, b := pair(t)
		want := random(n, 2)
		for rest := want; len(rest) > 0; {
			k := len(rest)
			if n == 3000 {
				k = 1
			}
			if _, err := a.Write(rest[:k]); err != nil {
				t.Fatal(err)
			}
			rest = rest[k:]
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(b)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), n, err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read of the closed end: %v", err)
		}
		if err := a.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a second Close: %v", err)
		}
	}
}

// A writer whose peer does not read is held up, and its deadline ends the wait. Nothing of what it
// counted is lost.
func TestConnHoldsWritersUp(t *testing.T) {
	config := uet.Config{Tuning: uet.Tuning{UnexpectedBytes: 4 << 20}}
	a, b := pair(t, uetnet.WithConfig(config))
	if err := a.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	want, sent := sha256.New(), 0
	for piece := random(60_000, 3); ; { // of no length that divides a buffer
		n, err := a.Write(piece)
		want.Write(piece[:n])
		sent += n
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			break
		}
		if sent > 1<<30 {
			t.Fatal("nothing holds the writer up")
		}
	}
	_ = a.SetWriteDeadline(time.Time{})
	go func() {
		if err := a.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	got := sha256.New()
	n, err := io.Copy(got, b)
	if err != nil || int(n) != sent || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatalf("%d bytes of %d, %v", n, sent, err)
	}
}

// A peer that ends without Close is not the end of the stream.
func TestConnLostIsNoEOF(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write([]byte("the beginning")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if _, err := b.Read(buf); err != nil {
		t.Fatal(err)
	}
	_ = a.Endpoint().Shutdown() // below the stream
	_, err := b.Read(buf)
	if !errors.Is(err, fi.ESHUTDOWN) {
		t.Errorf("read: %v", err)
	}
}

// A piece that is missing ends the stream with an error; no byte is read at a wrong place.
func TestConnRefusesAGap(t *testing.T) {
	a, b := pair(t)
	if err := a.Endpoint().TInject([]byte("the second piece"), 0, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if n, err := b.Read(make([]byte, 64)); n != 0 || !errors.Is(err, fi.EPROTO) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

func TestDialRefused(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	l, err := stream.Listen(ctx, "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if c, err := stream.Dial(short, addr); err == nil {
		t.Error("connected with nobody")
		_ = c.Close()
	} else if !errors.Is(err, fi.ECONNREFUSED) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if want := "nobody listens at UDP port "; runtime.GOOS == "linux" {
		_, err := stream.Dial(ctx, addr)
		if !errors.Is(err, fi.ECONNREFUSED) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "start the Listener") {
			t.Errorf("%v: it lacks %q or what to do", err, want)
		}
	}
	for _, bad := range []string{"", "127.0.0.1", ":4793", "127.0.0.1:port", "fi_addr_uet://nowhere", "[fe80::1]:4793"} {
		var e *net.OpError
		if c, err := stream.Dial(ctx, bad); !errors.As(err, &e) || !errors.Is(err, fi.EINVAL) {
			t.Errorf("%q: %v", bad, err)
			if err == nil {
				_ = c.Close()
			}
		}
	}
}

// A dial without an answer says so, what to look at, and that it is a timeout.
func TestDialUnanswered(t *testing.T) {
	hole, err := net.ListenPacket("udp", "127.0.0.1:0") // it reads nothing and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hole.Close() }()
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = stream.Dial(ctx, hole.LocalAddr().String())
	var e *net.OpError
	if !errors.As(err, &e) || !e.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v is no timeout", err)
	}
	for _, want := range []string{"127.0.0.1 does not answer at UDP port ", "uetperf doctor 127.0.0.1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: it lacks %q", err, want)
		}
	}
}

// A Listener for which too many connections wait says that it is busy, not that nobody is there.
func TestDialBusy(t *testing.T) {
	l, err := stream.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var last error
	for range uet.DefaultBacklog + 1 {
		c, err := stream.Dial(t.Context(), l.Addr().String())
		if last = err; err == nil {
			defer func() { _ = c.Close() }()
		}
	}
	if want := "connections wait there for Accept; dial again later"; !errors.Is(last, fi.ECONNREFUSED) || !strings.Contains(last.Error(), want) {
		t.Errorf("%v, want %q", last, want)
	}
}

// Many clients at once are served by one Listener, at all addresses of the host.
func TestListenerManyClients(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
	defer stop()
	l, err := stream.Listen(ctx, ":0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c, err := stream.Dial(ctx, net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			want := random(100_000, byte(i))
			go func() {
				_, _ = c.Write(want)
				_ = c.CloseWrite()
			}()
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
				t.Errorf("client %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	clients.Wait()
	_ = l.Close()
	served.Wait()
}

func BenchmarkConn(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			w, r := pair(b)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			buf := make([]byte, size)
			b.ResetTimer()
			go func() {
				for range b.N {
					if _, err := w.Write(buf); err != nil {
						b.Error(err)
						return
					}
				}
			}()
			if _, err := io.CopyN(io.Discard, r, int64(size)*int64(b.N)); err != nil {
				b.Fatal(err)
			}
		})
	}
}
