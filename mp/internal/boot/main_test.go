package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit bounds every wait of a test that is expected to end by itself.
const limit = 10 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// env is an environment of these variables.
func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for _, p := range pairs {
		k, v, _ := strings.Cut(p, "=")
		m[k] = v
	}
	return func(name string) string { return m[name] }
}

// freeRoot returns a loopback address that nobody listens on.
func freeRoot(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// A record is a writer that a test can read and wait on.
type record struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed and replaced at each write
}

func newRecord() *record { return &record{more: make(chan struct{})} }

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.more)
	r.more = make(chan struct{})
	return r.b.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// wait waits until the text is there.
func (r *record) wait(t *testing.T, text string) {
	t.Helper()
	end := time.After(limit)
	for {
		r.mu.Lock()
		have, more := r.b.String(), r.more
		r.mu.Unlock()
		if strings.Contains(have, text) {
			return
		}
		select {
		case <-more:
		case <-end:
			t.Fatalf("no %q in:\n%s", text, have)
		}
	}
}

// putUntil puts a card. The time of the Put is up when timeIsUp is called, not by a clock: on a
// busy machine a short time may be up before the fence.
func putUntil(ctx context.Context, w *World, card []byte) (put <-chan error, timeIsUp func()) {
	ctx, end := context.WithCancelCause(ctx)
	c := make(chan error, 1)
	go func() { c <- w.Put(ctx, card) }()
	return c, func() { end(errDeadline) }
}

// cardOf is the card of a rank in these tests: each has its own length, and all bytes occur.
func cardOf(rank int) []byte {
	b := make([]byte, 100+37*rank%900)
	for i := range b {
		b[i] = byte(rank*31 + i*7)
	}
	return b
}

// run has all ranks of a world put their cards, read each other's and finalize.
func run(t *testing.T, size int, options func(rank int) Options) {
	t.Helper()
	ctx := testContext(t)
	errs := make([]error, size)
	var wg sync.WaitGroup
	for rank := range size {
		wg.Go(func() {
			errs[rank] = func() error {
				w, err := Find(ctx, options(rank))
				if err != nil {
					return err
				}
				if w.Rank != rank || w.Size != size {
					return fmt.Errorf("rank %d of %d", w.Rank, w.Size)
				}
				if err := w.Put(ctx, cardOf(rank)); err != nil {
					return err
				}
				// Each begins elsewhere; some ask twice.
				for i := range size {
					of := (rank + i) % size
					for range 1 + i%2 {
						card, err := w.Card(ctx, of)
						if err != nil {
							return err
						}
						if !bytes.Equal(card, cardOf(of)) {
							return fmt.Errorf("the card of rank %d is %d bytes %.20x…", of, len(card), card)
						}
					}
				}
				return w.Finalize(ctx)
			}()
		})
	}
	wg.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// wantError fails unless err is a T whose text has the words.
func wantError[T error](t *testing.T, err error, words ...string) T {
	t.Helper()
	var as T
	if !errors.As(err, &as) {
		t.Fatalf("the error is %T %v, want %T", err, err, as)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return as
}
