package probe

import (
	"context"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/portrange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = netip.MustParseAddr("127.0.0.1")

func pair(t *testing.T) (*Echo, *Asker) {
	t.Helper()
	e, err := Listen(netip.AddrPortFrom(loopback, 0), Identity{7, "release"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	a, err := Open(loopback, portrange.Range{}, e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return e, a
}

func TestAskIsAnswered(t *testing.T) {
	e, a := pair(t)
	for _, size := range []int{0, MinSize, 1000, 9000} {
		for _, full := range []bool{false, true} {
			got, err := a.Ask(context.Background(), Question{Size: size, Full: full, ECN: dgram.ECT0}, 5, time.Second)
			if err != nil || !got.Arrived {
				t.Fatalf("%d bytes: %+v, %v", size, got, err)
			}
			if got.From != a.Local() || got.To != e.Addr() || got.Size != max(size, MinSize) || got.Identity != (Identity{7, "release"}) {
				t.Errorf("%d bytes: %+v", size, got)
			}
			if runtime.GOOS == "linux" && (!got.ECNKnown || !got.BackKnown || got.ECN != dgram.ECT0 || got.Back != dgram.ECT0) {
				t.Errorf("ECN: %+v", got)
			}
		}
	}
}

// A closed port is reported, on systems that report it.
func TestAskOfNobody(t *testing.T) {
	e, a := pair(t)
	e.Close()
	got, err := a.Ask(context.Background(), Question{}, 2, 200*time.Millisecond)
	if err != nil || got.Arrived {
		t.Fatalf("%+v, %v", got, err)
	}
	if runtime.GOOS == "linux" && (got.Heard.Errno != syscall.ECONNREFUSED || !got.Heard.ICMP || got.Heard.Prohibit) {
		t.Errorf("heard %v", got.Heard)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.Ask(ctx, Question{}, 1000, time.Hour); err == nil {
		t.Error("it does not end when its context does")
	}
}

// An Echo answers only questions. It does not answer an answer, so that two Echoes cannot
// keep each other busy.
func TestEchoAnswersQuestionsOnly(t *testing.T) {
	_, a := pair(t)
	full := make([]byte, MinSize)
	copy(full, reply)
	for _, b := range [][]byte{{}, []byte(magic), full[:MinSize-1], full, make([]byte, 500)} {
		if err := a.conn.Send(&dgram.Datagram{Data: b, Seg: len(b), Remote: a.to}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := a.Ask(context.Background(), Question{}, 5, time.Second); err != nil || !got.Arrived {
		t.Fatalf("%+v, %v", got, err)
	}
	if ok, err := a.conn.Recv(&a.rx); ok || err != nil {
		t.Errorf("another answer: %v, %v", a.rx.Data, err)
	}
}

func FuzzEchoHeader(f *testing.F) {
	f.Add(make([]byte, header))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= header {
			a := getAddr(b[atFrom:])
			var c [18]byte
			putAddr(c[:], a)
			if getAddr(c[:]) != a {
				t.Errorf("%v", a)
			}
		}
	})
}
