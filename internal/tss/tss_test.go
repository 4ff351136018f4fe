package tss

import (
	"errors"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// S-KEY-06: New refuses a Config that contradicts itself, and above all one that would let an
// IV be used twice.
func TestNewRefuses(t *testing.T) {
	good := []Config{
		{Local: addrA},
		{Local: addrA6, UseSSI: true},
		{Local: addrA6, Mode: Cluster},
		{Local: addrA, Mode: Cluster, RekeyMask: 0xff00, RekeyShift: 8, PeerSSI: 2, SSI: 1, UseSSI: true, SDI: maxSDI, TSC: wire.TSCMax},
		{Local: addrA, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 2},
		{Local: addrA, Mode: Client, UseSSI: true, SSI: 2, PeerSSI: 1},
		{Local: addrA6, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 2, Peer: addrB6},
		{Local: addrA6, Mode: Client, UseSSI: true, SSI: 2, PeerSSI: 1},
		{Local: addrA, Mode: Cluster, RekeyMask: wire.TSCMax &^ 0xffff, RekeyShift: 16, EpochLifetime: 1<<15 - 1},
	}
	for i, c := range good {
		if _, err := New(c); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, c := range []struct {
		name string
		cfg  Config
		err  error
	}{
		{"SDI of 25 bits", Config{Local: addrA, SDI: maxSDI + 1}, ErrSDI},
		{"mode", Config{Local: addrA, Mode: numModes}, ErrMode},
		{"no address", Config{}, ErrLocal},
		{"any address", Config{Local: netip.IPv4Unspecified()}, ErrLocal},
		{"group", Config{Local: netip.MustParseAddr("ff02::1"), UseSSI: true}, ErrLocal},
		{"IPv6 direct without SSI", Config{Local: addrA6}, ErrNeedsSSI},
		{"server without SSI", Config{Local: addrA, Mode: Server}, ErrNeedsSSI},
		{"client without SSI", Config{Local: addrA, Mode: Client}, ErrNeedsSSI},
		{"peer without SSI", Config{Local: addrA, PeerSSI: 1}, ErrPeer},
		{"SSI not used", Config{Local: addrA, SSI: 1}, ErrPeer},
		{"T24: server of no one client", Config{Local: addrA, Mode: Server, UseSSI: true, SSI: 1}, ErrDirections},
		{"T24: client of no one server", Config{Local: addrA, Mode: Client, UseSSI: true, SSI: 1}, ErrDirections},
		{"T24: server as its client", Config{Local: addrA, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 1}, ErrDirections},
		{"T24: session with itself", Config{Local: addrA, Mode: Cluster, UseSSI: true, SSI: 1, PeerSSI: 1}, ErrDirections},
		{"IPv6 server without client", Config{Local: addrA6, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 2}, ErrPeer},
		{"rekey in direct mode", Config{Local: addrA, RekeyMask: 0xff00, RekeyShift: 8}, ErrRekey},
		{"rekey in server mode", Config{Local: addrA, Mode: Server, UseSSI: true, SSI: 1, PeerSSI: 2, RekeyMask: 1}, ErrRekey},
		{"rekey mask of 49 bits", Config{Local: addrA, Mode: Cluster, RekeyMask: 1 << 48, RekeyShift: 40}, ErrRekey},
		{"rekey of 33 bits", Config{Local: addrA, Mode: Cluster, RekeyMask: 1 << 32}, ErrRekey},
		{"rekey shift", Config{Local: addrA, Mode: Cluster, RekeyMask: 1 << 40, RekeyShift: 48}, ErrRekey},
		{"old keys' life", Config{Local: addrA, OldKeyLife: -1}, ErrBound},
		{"sources", Config{Local: addrA, MaxSources: -1}, ErrBound},
		{"epochs", Config{Local: addrA, EpochLifetime: 1 << 15}, ErrBound},
		{"TSC", Config{Local: addrA, TSC: wire.TSCMax + 1}, ErrBound},
	} {
		if d, err := New(c.cfg); !errors.Is(err, c.err) || d != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}

// Bounds that are not set have the values of Config's comments.
func TestConfigDefaults(t *testing.T) {
	d := domain(t, Config{Local: addrA})
	c := d.cfg
	if c.MaxFrames != 1<<40 || c.OldKeyLife != 4*time.Second || c.MaxSources != 16384 || c.MaxAuthFailures != 1<<36 {
		t.Errorf("%+v", c)
	}
	if d.HeaderLen() != 12 || d.Overhead() != 28 {
		t.Errorf("header %d, in all %d", d.HeaderLen(), d.Overhead())
	}
	d = domain(t, cluster.at(addrA))
	if d.HeaderLen() != 16 || d.Overhead() != 32 {
		t.Errorf("header %d, in all %d with SSI", d.HeaderLen(), d.Overhead())
	}
	for m, s := range map[Mode]string{Direct: "direct", Cluster: "cluster", Server: "server", Client: "client", 9: "mode 9"} {
		if m.String() != s {
			t.Errorf("%v, want %s", m, s)
		}
	}
	if ErrSDI.Error() != "tss: SDI has more than 24 bits" {
		t.Error(ErrSDI)
	}
}

func (c Config) at(a netip.Addr) Config {
	c.Local = a
	return c
}

// T24, S-TSC-03: a key has one life. Neither Install nor Use accepts a key twice, under either
// AN, while it is in use or after.
func TestT24KeyHasOneLife(t *testing.T) {
	d := domain(t, cluster.at(addrA))
	k1, k2, k3 := keyOf(1), keyOf(2), keyOf(3)
	is := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	is(d.Install(2, k1), ErrAN)
	is(d.Use(0, 2, 0, 0), ErrAN)
	is(d.Use(0, 0, 0, 0), ErrNoKey)
	is(d.Install(0, k1), nil)
	is(d.Install(0, k1), ErrKeyUsed)
	is(d.Install(1, k1), ErrKeyUsed) // the peer's TSC would start again under it
	is(d.Use(0, 0, 0, 0), nil)
	is(d.Use(0, 0, 0, 0), ErrKeyUsed)
	is(d.Use(0, 0, 1, 1<<30), ErrKeyUsed)
	is(d.Install(0, k2), ErrSending)
	is(d.Install(1, k2), nil)
	is(d.Use(0, 1, 0, 0), nil)
	is(d.Use(0, 0, 0, 0), ErrKeyUsed) // the old one opens for 4 s more, and never seals
	is(d.Install(0, k3), nil)         // "replaces what the slot held"
	is(d.Install(0, k1), ErrKeyUsed)
	d.Revoke(1)
	is(d.Use(0, 1, 0, 0), ErrNoKey)
	is(d.Install(1, k2), ErrKeyUsed)
	is(d.Use(0, 0, 0, 0), nil)
	is(d.InstallClient(1, keyOf(4), [12]byte{}), ErrNeedMask)
	d.Revoke(2) // does nothing
	if !d.Ready() {
		t.Fatal("no key to send with")
	}

	c := domain(t, Config{Local: addrA, Mode: Client, UseSSI: true, SSI: 2, PeerSSI: 1})
	is(c.Install(0, k1), ErrNeedMask)
	is(c.InstallClient(0, k1, [12]byte{1}), nil)
	is(c.InstallClient(1, k1, [12]byte{2}), ErrKeyUsed)
}

// T24: when the memory of keys is full no new key is accepted: to forget the oldest would let
// it come again.
func TestT24KeysEnd(t *testing.T) {
	d := domain(t, cluster.at(addrA))
	for i := range uint64(maxKeys) {
		d.had = append(d.had, i)
	}
	if err := d.Install(0, keyOf(1)); err != ErrKeys {
		t.Fatal(err)
	}
}

// S-TSC-03: a sender that returns under a key that lives on begins above what it sent. What it
// remembers goes into Config; Use does not begin below.
func TestT24RestartBeginsAbove(t *testing.T) {
	cfg := cluster.at(addrA)
	cfg.Epoch, cfg.TSC = 3, 1000
	for _, c := range []struct {
		epoch uint16
		tsc   uint64
		err   error
	}{
		{3, 999, ErrTSC}, {3, 0, ErrTSC}, {3, 1000, nil}, {4, 0, nil}, {3, wire.TSCMax, nil}, {3, wire.TSCMax + 1, ErrTSC}, {3, math.MaxUint64, ErrTSC},
	} {
		d := domain(t, cfg)
		install(t, d, 0, keyOf(1))
		if err := d.Use(0, 0, c.epoch, c.tsc); err != c.err {
			t.Errorf("epoch %d, TSC %d: %v, want %v", c.epoch, c.tsc, err, c.err)
		}
		if d.Ready() != (c.err == nil) {
			t.Errorf("epoch %d, TSC %d: ready %v", c.epoch, c.tsc, d.Ready())
		}
	}
	d := domain(t, cfg)
	install(t, d, 0, keyOf(1))
	use(t, d, 0, 0, 3, 1000)
	install(t, d, 1, keyOf(2))
	use(t, d, 0, 1, 3, 0) // under another key it may begin anywhere
}

// F33: during a rotation both keys open, the old one for 4 s after the switch by the receiver's
// clock, and not a nanosecond longer.
func TestF33RotationOldKeyLivesOn(t *testing.T) {
	const switched = 100 * time.Second
	p := pairOf(t, cluster)
	old := sealPacket(t, p.a, "old", nil)
	install(t, p.b, 1, keyOf(2)) // the receiver has the next key early
	install(t, p.a, 1, keyOf(2))
	if p.a.Self() != WhoOf(0xa, 0) {
		t.Fatal(p.a.Self())
	}
	use(t, p.a, switched, 1, 0, 0)
	if p.a.Self() != WhoOf(0xa, 0) {
		t.Fatal("a rotation that keeps the epoch is no new life")
	}
	next := sealPacket(t, p.a, "new", nil)
	if next[0]&1 != 1 || old[0]&1 != 0 {
		t.Fatal("AN")
	}
	for range 2 { // before and after b switches itself
		want(t, p.b, switched+time.Second, old, nil, addrA, Good, "old")
		want(t, p.b, switched+time.Second, next, nil, addrA, Good, "new")
		if !p.b.slots[1].sent {
			use(t, p.b, switched+time.Second, 1, 1, 0)
		}
	}
	dead := switched + 5*time.Second
	want(t, p.b, dead-1, old, nil, addrA, Good, "old")
	want(t, p.b, dead, old, nil, addrA, DropAN, "")
	want(t, p.b, 0, old, nil, addrA, DropAN, "") // the key is gone for good
	want(t, p.b, dead, next, nil, addrA, Good, "new")
	if s := p.b.slots[0]; s.live || s.mac.b != nil || s.aead != nil || s.peers.at != nil || s.recent != nil {
		t.Fatal("the old key is still there")
	}

	// Back to AN 0, under a third key.
	install(t, p.a, 0, keyOf(3))
	install(t, p.b, 0, keyOf(3))
	use(t, p.a, dead, 0, 0, 0)
	third := sealPacket(t, p.a, "third", nil)
	want(t, p.b, dead, third, nil, addrA, Good, "third")
	want(t, p.b, dead, old, nil, addrA, DropAuth, "") // AN 0, the key is another
}

// F33: the life of the old key is counted from the switch, even if the receiver is idle and
// only Use tells it the time. A key that is replaced early is gone.
func TestF33OldKeyEnds(t *testing.T) {
	p := pairOf(t, cluster)
	old := sealPacket(t, p.a, "old", nil)
	install(t, p.b, 1, keyOf(2))
	use(t, p.b, 10*time.Second, 1, 0, 0)
	install(t, p.b, 0, keyOf(3)) // before its time is over
	want(t, p.b, 10*time.Second, old, nil, addrA, DropAuth, "")
	use(t, p.b, 11*time.Second, 0, 0, 0) // AN 1 dies at 15 s
	if err := p.b.Use(15*time.Second, 1, 0, 0); err != ErrNoKey {
		t.Fatal(err)
	}
	// A key that was never in use dies as well: Use says which one is meant.
	q := domain(t, cluster.at(addrB))
	install(t, q, 0, keyOf(5))
	install(t, q, 1, keyOf(6))
	use(t, q, 0, 0, 0, 0)
	use(t, q, time.Second, 1, 0, 0) // in time: it is in use again and does not die
	q.expire(time.Hour)             // AN 0, which died at 5 s
	if q.slots[0].live || !q.slots[1].live || !q.Ready() {
		t.Fatal(q)
	}
}

// F33, T36: a key that is dying gets no more time by what happens to the other.
func TestF33OldKeyGetsNoMoreTime(t *testing.T) {
	p := pairOf(t, cluster)
	old := sealPacket(t, p.a, "old", nil)
	install(t, p.b, 1, keyOf(2))
	use(t, p.b, 0, 1, 0, 0) // AN 0 dies at 4 s
	p.b.Revoke(1)
	install(t, p.b, 1, keyOf(3))
	use(t, p.b, 3*time.Second, 1, 0, 0)
	want(t, p.b, 4*time.Second-1, old, nil, addrA, Good, "old")
	want(t, p.b, 4*time.Second, old, nil, addrA, DropAN, "")
}

// F33: with a revoked key nothing opens and nothing is sent.
func TestF33Revoke(t *testing.T) {
	p := pairOf(t, cluster)
	pkt := sealPacket(t, p.a, "x", nil)
	want(t, p.b, 0, pkt, nil, addrA, Good, "x")
	forged := append([]byte(nil), pkt...)
	forged[7] = 0x77
	want(t, p.b, 0, forged, nil, addrC, DropAuth, "")
	p.b.Revoke(0)
	if p.b.trial != (trial{}) {
		t.Fatal("a key derived from the one revoked is still there")
	}
	want(t, p.b, 0, pkt, nil, addrA, DropAN, "")
	if _, ok := p.b.Begin(nil); ok || p.b.Ready() || p.b.Left() != 0 || p.b.Stats().NoKey != 1 {
		t.Fatal(p.b, p.b.Stats())
	}
	if s := p.b.Stats(); s.Sources != 0 {
		t.Fatalf("%+v", s)
	}
}

// S-KEY-08: a packet whose epoch is older than our own by more than the lifetime, and by less
// than half the space, is late. Newer ones are not.
func TestEpochLateness(t *testing.T) {
	for _, c := range []struct {
		name       string
		own, its   uint16
		life       uint16
		late       bool
		beforeUse  bool // the receiver never sent: Config.Epoch counts
		configured uint16
	}{
		{"same", 20, 20, 16, false, false, 0},
		{"at the limit", 20, 4, 16, false, false, 0},
		{"one more", 20, 3, 16, true, false, 0},
		{"newer", 20, 21, 16, false, false, 0},
		{"across the wrap, in time", 5, 65525, 16, false, false, 0},
		{"across the wrap, late", 5, 65524, 16, true, false, 0},
		{"half the space less one", 32767, 0, 16, true, false, 0},
		{"half the space is newer", 32768, 0, 16, false, false, 0},
		{"not enforced", 20, 3, 0, false, false, 0},
		{"receives only", 0, 3, 16, true, true, 20},
		{"receives only, in time", 0, 4, 16, false, true, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 1, Local: addrA})
			b := domain(t, Config{SDI: 7, Mode: Cluster, UseSSI: true, SSI: 2, Local: addrB, EpochLifetime: c.life, Epoch: c.configured})
			install(t, a, 0, keyOf(1))
			install(t, b, 0, keyOf(1))
			use(t, a, 0, 0, c.its, 0)
			if !c.beforeUse {
				use(t, b, 0, 0, c.own, 0)
			}
			why := Good
			if c.late {
				why = DropLate
			}
			want(t, b, 0, sealPacket(t, a, "x", nil), nil, addrA, why, "x")
		})
	}
}

// T25, T41: failures to verify are counted and reported at the bound. Traffic goes on, and a
// new key begins anew.
func TestT41FailuresDoNotLatch(t *testing.T) {
	cfg := cluster
	cfg.MaxAuthFailures = 1000
	p := pairOf(t, cfg)
	good := sealPacket(t, p.a, "good", nil)
	bad := append([]byte(nil), good...)
	bad[20] ^= 1
	for range 999 {
		p.b.Open(0, append([]byte(nil), bad...), nil, addrA)
	}
	if p.b.Worn() {
		t.Fatal("one too early")
	}
	want(t, p.b, 0, bad, nil, addrA, DropAuth, "")
	if !p.b.Worn() {
		t.Fatal("not at the limit")
	}
	for range 1000 {
		p.b.Open(0, append([]byte(nil), bad...), nil, addrA)
	}
	if !p.b.Worn() || p.b.Stats().Drops[DropAuth] != 2000 {
		t.Fatal(p.b.Stats())
	}
	want(t, p.b, 0, good, nil, addrA, Good, "good")
	sealPacket(t, p.b, "and out", nil)
	install(t, p.b, 1, keyOf(2))
	use(t, p.b, 0, 1, 0, 0)
	p.b.expire(time.Minute)
	if p.b.Worn() {
		t.Fatal("under a new key")
	}
}
