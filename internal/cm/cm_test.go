package cm

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

func open(t testing.TB, cfg Config) *Node {
	t.Helper()
	if !cfg.Addr.IsValid() {
		cfg.Addr = loopback
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return n
}

func listen(t testing.TB, n *Node, f func(*Request)) {
	t.Helper()
	if err := n.Listen(f); err != nil {
		t.Fatal(err)
	}
}

func params(port uint16) Params {
	return Params{
		Addr: netip.AddrPortFrom(netip.IPv4Unspecified(), port), Ports: []uint16{port, port + 1}, JobID: 0xabcdef, PIDonFEP: 7, RI: 15, Initiator: 9,
		PayloadMTU: 4096, Modes: 1<<wire.RUD | 1<<wire.ROD, Profile: 2, Encapsulation: wire.Standard,
	}
}

// An event is one call of a Handler.
type events struct{ c chan string }

func newEvents() *events { return &events{make(chan string, 100)} }

func (e *events) InstallKey(gen uint32)          { e.c <- fmt.Sprint("install ", gen) }
func (e *events) SwitchKey(gen uint32)           { e.c <- fmt.Sprint("switch ", gen) }
func (e *events) Closed(why Reason, data []byte) { e.c <- fmt.Sprintf("%v %q", why, data) }

func (e *events) want(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-e.c:
			if got != w {
				t.Fatalf("event %q, want %q", got, w)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no event, want %q", w)
		}
	}
}

func TestConnectAcceptCloseOverLoopback(t *testing.T) {
	a, b := open(t, Config{}), open(t, Config{})
	accepted := make(chan *Session, 1)
	listen(t, b, func(r *Request) {
		if string(r.Private()) != "hello" || r.Params().JobID != 0xabcdef || r.Params().Addr.String() != "127.0.0.1:1000" {
			t.Errorf("request %q %+v", r.Private(), r.Params())
		}
		s, err := r.Accept(params(2000), []byte("welcome"))
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	})
	s, err := a.Dial(t.Context(), b.Addr(), params(1000), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	p := <-accepted
	if string(s.Private()) != "welcome" || s.Params().Addr.String() != "127.0.0.1:2000" || !s.Dialer() || p.Dialer() {
		t.Errorf("session %q %+v", s.Private(), s.Params())
	}
	k, err := s.Key(3)
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Key(3)
	if err != nil || !bytes.Equal(k[:], l[:]) {
		t.Errorf("keys %x %x, %v", k, l, err)
	}
	es, ep := newEvents(), newEvents()
	s.Start(es)
	p.Start(ep)
	if err := s.Close([]byte("bye")); err != nil {
		t.Fatal(err)
	}
	ep.want(t, `closed by the peer "bye"`)
	es.want(t, `closed ""`)
}

func TestRejectCarriesPrivateData(t *testing.T) {
	// R-CM-07: the connecting side gets ECONNREFUSED and the data of the reject.
	a, b := open(t, Config{}), open(t, Config{})
	listen(t, b, func(r *Request) {
		if err := r.Reject([]byte("no")); err != nil {
			t.Error(err)
		}
	})
	_, err := a.Dial(t.Context(), b.Addr(), params(1000), nil)
	var rejected *RejectedError
	if !errors.As(err, &rejected) || string(rejected.Private) != "no" || !errors.Is(err, fi.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
}
