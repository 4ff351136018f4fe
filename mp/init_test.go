package mp_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/mp"
	"github.com/uetkit/uetkit/mp/mptest"
	"github.com/uetkit/uetkit/uet"
)

// port is a TCP port that nobody has.
func port(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// roots makes worlds that meet at a root.
func roots(t *testing.T, n int, change func(rank int, c *mp.Config)) ([]*mp.World, []error) {
	t.Helper()
	root := port(t)
	worlds, errs := make([]*mp.World, n), make([]error, n)
	done := make(chan struct{}, n)
	for rank := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			c := mp.Config{Rank: rank, Size: n, Root: root, Address: "127.0.0.1", Timeout: 10 * time.Second, Env: func(string) string { return "" }}
			change(rank, &c)
			worlds[rank], errs[rank] = mp.Init(limit(t), c)
		}()
	}
	for range n {
		<-done
	}
	return worlds, errs
}

// A world of one needs nothing.
func TestAlone(t *testing.T) {
	w, err := mp.Init(limit(t), mp.Config{Env: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if w.Rank() != 0 || w.Size() != 1 || w.Launcher() != "none" || w.Sealed() {
		t.Errorf("rank %d of %d by %s, sealed %v", w.Rank(), w.Size(), w.Launcher(), w.Sealed())
	}
	x := []int64{7}
	ok(t, mp.Allreduce(limit(t), w.World(), x, x, mp.Sum))
	ok(t, w.Close(limit(t)))
}

// What a process would be is known before anything is connected.
func TestLaunched(t *testing.T) {
	env := func(vars ...string) func(string) string {
		return func(name string) string {
			for _, v := range vars {
				if value, ok := strings.CutPrefix(v, name+"="); ok {
					return value
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		env  func(string) string
		want mp.Launch
	}{
		{env(), mp.Launch{Launcher: "none", Size: 1}},
		{env("PMI_FD=99", "PMI_RANK=3", "PMI_SIZE=4"), mp.Launch{Launcher: "PMI-1", Rank: 3, Size: 4}},
		{env("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=nowhere", "MASTER_PORT=1"), mp.Launch{Launcher: "torchrun", Rank: 1, Size: 2}},
	} {
		if got, err := mp.Launched(c.env); err != nil || got != c.want {
			t.Errorf("%+v, %v; want %+v", got, err, c.want)
		}
	}
	if _, err := mp.Launched(env("MP_SIZE=3")); err == nil || !strings.Contains(err.Error(), "MP_RANK") {
		t.Errorf("a rank of nothing: %v", err)
	}
}

// All ranks take ports of the range, sealed or not.
func TestPorts(t *testing.T) {
	for _, clear := range []bool{false, true} {
		var outside [2]int
		r := uet.PortRange{First: 24210, Last: 24260}
		worlds, errs := roots(t, 2, func(rank int, c *mp.Config) {
			c.Clear = clear
			c.Endpoint.Socket.Ports = r
			c.Endpoint.Tap = func(d *uet.Tapped) { // under the lock of the endpoint
				if p := d.Local.Port(); p < r.First || p > r.Last {
					outside[rank]++
				}
			}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ok(t, all(worlds, func(c *mp.Comm) error {
			x := []int64{1}
			return mp.Allreduce(limit(t), c, x, x, mp.Sum)
		}))
		closeAll(t, worlds)
		if outside != [2]int{} {
			t.Errorf("clear %v: %v packets by other ports", clear, outside)
		}
	}
}

// Ranks that may be on several hosts seal what they send, unless Clear says not to. A tap shows
// what is on the wire.
func TestSealed(t *testing.T) {
	for _, clear := range []bool{false, true} {
		var secured, plain [3]int
		worlds, errs := roots(t, 3, func(rank int, c *mp.Config) {
			c.Clear = clear
			c.Endpoint = uet.Config{Tap: func(d *uet.Tapped) { // under the lock of the endpoint
				if d.TSS != nil {
					secured[rank]++
				} else {
					plain[rank]++
				}
			}}
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, w := range worlds {
			if w.Sealed() == clear || w.Launcher() != "explicit" {
				t.Errorf("clear %v: sealed %v, by %s", clear, w.Sealed(), w.Launcher())
			}
		}
		ok(t, all(worlds, func(c *mp.Comm) error {
			x := []int64{1}
			err := mp.Allreduce(limit(t), c, x, x, mp.Sum)
			if x[0] != 3 {
				t.Errorf("sum %d", x[0])
			}
			return err
		}))
		for _, w := range worlds {
			if w.Checksummed() || w.Stats().TxPackets == 0 {
				t.Errorf("clear %v: a checksum on loopback or under a seal %v, %d packets", clear, w.Checksummed(), w.Stats().TxPackets)
			}
		}
		closeAll(t, worlds)
		for r := range 3 {
			if clear && secured[r] > 0 || !clear && (plain[r] > 0 || secured[r] == 0) {
				t.Errorf("clear %v: rank %d: %d packets sealed, %d not", clear, r, secured[r], plain[r])
			}
		}
	}
}

// A rank that does not fit is named with its host when it is first needed.
func TestRanksThatDoNotFit(t *testing.T) {
	worlds, errs := roots(t, 2, func(rank int, c *mp.Config) { c.Clear = rank == 1 })
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	err := worlds[1].World().Send(limit(t), nil, 0, 1)
	if err == nil || !strings.Contains(err.Error(), "seals its messages: yes, this rank: no") {
		t.Errorf("a sealed and a clear rank: %v", err)
	}
	closeAll(t, worlds)
}

// The bad cards of another release, or of no release at all.
type badCard struct {
	mp.Exchange
	card string
}

func (b badCard) Card(context.Context, int) ([]byte, error) { return []byte(b.card), nil }
func (b badCard) Put(context.Context, []byte) error         { return nil }
func (b badCard) Finalize(context.Context) error            { return nil }

func TestBadCards(t *testing.T) {
	for _, k := range [][2]string{
		{"", "it is none"},
		{"garbage\x00\n\n", "it is none"},
		{"release mp0\nhost h\n", "host h has release mp0"},
		{"release mp2\nhost h\njob other\nsealed no\n", `host h is of job "other"`},
		{"release mp2\nhost h\nsealed no\ncrc yes\n", "host h has a checksum on its packets: yes, this rank: no"},
		{"release mp2\nhost h\nsealed no\ncrc no\naddr nonsense\n", "the address of rank 1, nonsense"},
		{"release mp2\nkey xyz\n", "its key is no number"},
	} {
		w, err := mp.Init(limit(t), mp.Config{Size: 2, Exchange: badCard{card: k[0]}, Address: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.World().Send(limit(t), nil, 1, 1); err == nil || !strings.Contains(err.Error(), k[1]) {
			t.Errorf("card %q: %v", k[0], err)
		}
		ok(t, w.Close(limit(t)))
	}
}

func TestBadConfig(t *testing.T) {
	x := badCard{}
	for _, c := range []mp.Config{
		{Size: -1, Exchange: x}, {Size: mp.MaxSize + 1, Exchange: x}, {Size: 2, Rank: 2, Exchange: x}, {Size: 2, Rank: -1, Exchange: x}, {Timeout: -1},
	} {
		if _, err := mp.Init(limit(t), c); !errors.As(err, new(*mp.ErrArg)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := mp.Init(limit(t), mp.Config{Size: 1, Exchange: x, Address: "192.0.2.1"}); !errors.As(err, new(*mp.ErrTransport)) {
		t.Errorf("an address of nobody: %v", err)
	}
}

// A panic of a rank is an error with its stack.
func TestRun(t *testing.T) {
	worlds := mptest.Worlds(t, 1, mp.Config{})
	err := worlds[0].Run(limit(t), func(context.Context, *mp.Comm) error { panic("so") })
	if err == nil || !strings.Contains(err.Error(), "panic: so") || !strings.Contains(err.Error(), "init_test.go") {
		t.Errorf("a panic: %v", err)
	}
	ok(t, worlds[0].Run(limit(t), func(ctx context.Context, c *mp.Comm) error { return c.Barrier(ctx) }))
	if err := worlds[0].World().Barrier(limit(t)); !errors.Is(err, mp.ErrClosed) {
		t.Errorf("after Run: %v", err)
	}
}
