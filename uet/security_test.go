package uet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm" // and connections, which it provides
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet/zaplog"
)

// An authority makes certificates for members.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string // the folder for LoadCertificates
	n    int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &a.key.PublicKey, a.key)
	ok(t, err)
	a.cert, err = x509.ParseCertificate(der)
	ok(t, err)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	ok(a.t, os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// member writes the files of a member and loads them.
func (a *authority) member(name string) *Security {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(a.t, err)
	a.n++
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.n), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	ok(a.t, err)
	a.write(name+".pem", "CERTIFICATE", der)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	ok(a.t, err)
	a.write(name+".key", "PRIVATE KEY", raw)
	s, err := loadTLS(a.dir, name)
	ok(a.t, err)
	a.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			a.t.Errorf("security of %s: %v", name, err)
		}
	})
	return s
}

// newTLS and loadTLS do what NewTLS and LoadTLS of package uet/msg do, which imports this one.
func newTLS(c *tls.Config) (*Security, error) { return secureBy(cm.NewCertificates(c)) }

func loadTLS(dir, name string) (*Security, error) { return secureBy(cm.LoadCertificates(dir, name)) }

func secureBy(c *contract.Certificates, err error) (*Security, error) {
	if err != nil {
		return nil, err
	}
	return certified(c)
}

// secured returns hints for an endpoint type with a Security.
func secured(typ fi.EpType, s *Security) func(*Info) {
	return func(in *Info) { in.Ep.Type, in.Config.Security = typ, s }
}

// as returns the rig's Info with another Security.
func (r *rig) as(s *Security) *Info {
	in := *r.info
	in.clone()
	in.Config.Security = s
	return &in
}

// talk sends a message from a to b and checks it.
func talk(t testing.TB, a, b *node, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	ok(t, b.TRecv(buf, fi.AddrUnspec, 77, 0, nil))
	ok(t, a.TSend([]byte(text), 0, 77, nil))
	if e, _ := wait(t, b.rx, a); string(buf[:e.Len]) != text {
		t.Errorf("%q came as %q", text, buf[:e.Len])
	}
	wait(t, a.tx, b)
}

func TestSealedConnection(t *testing.T) {
	t.Parallel()
	// T35: each side knows who the other is, and no byte of a message is on the wire in clear.
	ca := newAuthority(t)
	key := NewKey(1)
	shared := func() *Security {
		s, err := NewClusterKey(key)
		ok(t, err)
		return s
	}
	for name, c := range map[string]struct{ alice, bob *Security }{
		"certificates": {ca.member("alice"), ca.member("bob")},
		"cluster key":  {shared(), shared()},
	} {
		t.Run(name, func(t *testing.T) { sealedConnection(t, c.alice, c.bob) })
	}
}

func sealedConnection(t *testing.T, alice, bob *Security) {
	var mu sync.Mutex
	var seen, clear int
	secret := "attack at dawn, all of you"
	r := newMsgRig(t, secured(fi.EpMsg, bob), func(in *Info) {
		in.Config.Tap = func(d *Tapped) {
			mu.Lock()
			defer mu.Unlock()
			seen++
			if bytes.Contains(d.Wire, []byte(secret[:14])) {
				clear++
			}
		}
	})
	l := r.listener()
	a := r.plug(r.as(alice))
	ok(t, a.Connect(l.at, []byte("hello")))
	e, info := l.request()
	name := ""
	if alice.certs != nil {
		name = "alice"
	}
	if m := info.Handle.(*ConnReq).Member(); m != name || string(e.Bytes) != "hello" {
		t.Errorf("request of %q: %q", m, e.Bytes)
	}
	b := r.plug(info)
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
	talk(t, a, b, secret)
	talk(t, b, a, secret)
	if pi, err := a.PathInfo(); err != nil || !pi.Sealed {
		t.Errorf("%+v, %v", pi, err)
	}
	mu.Lock()
	if seen == 0 || clear > 0 {
		t.Errorf("of %d datagrams %d show what was sent", seen, clear)
	}
	mu.Unlock()
	ok(t, a.Shutdown())
	event(t, b.evts, fi.Shutdown)
}

func TestT35StrangersAreRefused(t *testing.T) {
	t.Parallel()
	// T35: a certificate of another authority is refused, another kind of security, and none.
	ca := newAuthority(t)
	bob, stranger := ca.member("bob"), newAuthority(t).member("alice")
	r := newMsgRig(t, secured(fi.EpMsg, bob))
	l := r.listener()
	for name, c := range map[string]struct {
		sec  *Security
		want fi.Errno
	}{
		"another authority": {stranger, fi.EKEYREJECTED},
		"no security":       {nil, fi.EPROTO},
	} {
		a := r.plug(r.as(c.sec))
		ok(t, a.Connect(l.at, nil))
		e := eventErr(t, a.evts)
		if e.Err != c.want || len(e.ErrData) == 0 {
			t.Errorf("%s: %v %q, want %v", name, e.Err, e.ErrData, c.want)
		}
		ok(t, a.Close())
	}
	quiet(t, l.evts)
}

func TestF33Rekey(t *testing.T) {
	t.Parallel()
	// F33: a change of keys during traffic loses nothing, whichever side asks for it, or both.
	ca := newAuthority(t)
	alice, bob := ca.member("alice"), ca.member("bob")
	r := newMsgRig(t, secured(fi.EpMsg, bob))
	a, b := r.listener().pairAs(alice)
	before := a.Stats()
	for i := range 30 {
		if i%3 == 0 {
			var wg sync.WaitGroup
			for _, s := range [][]*Security{{alice}, {bob}, {alice, bob}}[i/3%3] {
				wg.Go(func() { ok(t, s.Rekey()) })
			}
			wg.Wait()
		}
		talk(t, a, b, fmt.Sprint("message ", i))
		talk(t, b, a, fmt.Sprint("answer ", i))
	}
	if n := a.Stats().Drops[transport.DropAuth] - before.Drops[transport.DropAuth]; n != 0 {
		t.Errorf("%d packets did not open", n)
	}
	quiet(t, a.evts)
	quiet(t, b.evts)
}

// pairAs is pair with another Security at the connecting side.
func (l *listener) pairAs(s *Security) (a, b *node) {
	l.r.t.Helper()
	t := l.r.t
	a = l.r.plug(l.r.as(s))
	ok(t, a.Connect(l.at, nil))
	_, info := l.request()
	b = l.r.plug(info)
	ok(t, b.Accept(nil))
	event(t, a.evts, fi.Connected)
	event(t, b.evts, fi.Connected)
	return a, b
}

func TestKeysAreChangedInTime(t *testing.T) {
	t.Parallel()
	// T24: before the packets under a key run out, the connection changes to another key by
	// itself.
	ca := newAuthority(t)
	alice, bob := ca.member("alice"), ca.member("bob")
	alice.maxFrames, alice.rekeyBelow = 2000, 1500
	r := newMsgRig(t, secured(fi.EpMsg, bob))
	a, b := r.listener().pairAs(alice)
	generation := func() (g uint64) {
		a.drv.With(func() { g = a.fep.Stats().TxPackets - (2000 - a.seal.dom.Left()) })
		return g
	}
	first, began := generation(), time.Now()
	for sent := 0; generation() == first; sent++ {
		if time.Since(began) > patience {
			t.Fatal("the key is still the first one")
		}
		if sent < 800 {
			talk(t, a, b, "x")
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	talk(t, a, b, "after")
	quiet(t, a.evts)
}

func TestT36RemovedMember(t *testing.T) {
	t.Parallel()
	// T36: the connections of a removed member end and it is refused; others are not affected.
	ca := newAuthority(t)
	alice, carol, bob := ca.member("alice"), ca.member("carol"), ca.member("bob")
	r := newMsgRig(t, secured(fi.EpMsg, bob))
	l := r.listener()
	a, b := l.pairAs(alice)
	c, d := l.pairAs(carol)
	for _, n := range []*node{a, b} {
		ok(t, n.TRecv(nil, 0, 5, 0, nil))
	}
	start := time.Now()
	b.connection.mu.Lock()
	session := b.connection.session
	b.connection.mu.Unlock()
	ok(t, bob.Remove("alice"))
	if err := session.Close(nil); !errors.Is(err, cm.ErrClosed) {
		t.Errorf("the removal has not ended the session: %v", err) // it would end only when somebody looks next
	}
	event(t, b.evts, fi.Shutdown)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("out after %v", d)
	}
	event(t, a.evts, fi.Shutdown)
	for _, n := range []*node{a, b} {
		if e := waitErr(t, n.rx); e.Err != fi.EKEYREJECTED {
			t.Errorf("%+v", &e)
		}
	}
	want(t, b.TSend(nil, 0, 1, nil), fi.ESHUTDOWN)
	again := r.plug(r.as(alice))
	ok(t, again.Connect(l.at, nil))
	if e := eventErr(t, again.evts); e.Err != fi.EKEYREJECTED {
		t.Errorf("%+v %s", &e, e.ErrData)
	}
	talk(t, c, d, "still here")
	quiet(t, c.evts)
	quiet(t, d.evts)

	// The same with the file of revoked members, which a watcher reads.
	ok(t, os.WriteFile(filepath.Join(ca.dir, "revoked"), []byte("# gone\n\n carol \n"), 0o600))
	start = time.Now()
	event(t, d.evts, fi.Shutdown)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("out after %v", d)
	}
	event(t, c.evts, fi.Shutdown)
}

// A closed Security has no private key any more.
func TestClosedSecurityHasNoCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.member("alice")
	s, err := loadTLS(ca.dir, "alice")
	ok(t, err)
	c := s.certs.TLS.(*tls.Config)
	_, err = c.GetCertificate(nil)
	ok(t, err)
	ok(t, s.Close())
	_, err = c.GetCertificate(nil)
	want(t, err, fi.EBADF)
}

func TestSecurityArguments(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	alice := ca.member("alice")
	for name, c := range map[string]*tls.Config{
		"none": nil, "no certificate": {RootCAs: x509.NewCertPool()}, "no authority": {Certificates: []tls.Certificate{{}}},
	} {
		_, err := newTLS(c)
		if want(t, err, fi.EINVAL); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := loadTLS(ca.dir, "../alice")
	want(t, err, fi.EINVAL)
	_, err = loadTLS(ca.dir, "nobody")
	if err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Error(err)
	}
	_, err = loadTLS(t.TempDir(), "alice")
	if err == nil || !strings.Contains(err.Error(), "ca.pem") {
		t.Error(err)
	}
	ok(t, os.WriteFile(filepath.Join(ca.dir, "ca.pem"), []byte("nothing"), 0o600))
	_, err = loadTLS(ca.dir, "alice")
	want(t, err, fi.EINVAL)

	// Certificates need a connection, and the error says what works without one.
	r := newRig(t, nil)
	in := *r.info
	in.Config.Security = alice
	_, err = r.domain.OpenEndpoint(&in, nil)
	if want(t, err, fi.EINVAL); err == nil || !strings.Contains(err.Error(), "LoadClusterKey") {
		t.Error(err)
	}

	// A Security in use cannot be closed; a closed one cannot be used.
	key, err := NewClusterKey(NewKey(1))
	ok(t, err)
	want(t, key.Remove("alice"), fi.EINVAL)
	ok(t, key.Reload())
	info := *r.info
	info.Config.Security = key
	rr := &rig{t: t, info: &info, fabric: r.fabric, domain: r.domain}
	n := rr.node()
	want(t, key.Close(), fi.EBUSY)
	ok(t, n.Close())
	ok(t, key.Close())
	want(t, key.Close(), fi.EBADF)
	ep, err := r.domain.OpenEndpoint(&info, nil)
	ok(t, err)
	ok(t, ep.BindCQ(n.tx, fi.Transmit|fi.Recv))
	ok(t, ep.BindAV(n.vec))
	want(t, ep.Enable(), fi.EBADF)
	ok(t, ep.Close())
}

func TestClusterKeyFile(t *testing.T) {
	t.Parallel()
	// An error in a file is one line with the place and the remedy, and without the key.
	k := strings.Repeat("5a", 32)
	for name, c := range map[string]struct{ text, says string }{
		"empty":          {"", "begins with"},
		"no header":      {"key 1 " + k, "line 1: a key file begins with"},
		"version":        {"uetkit-cluster-key 2\n", "line 1: a key file begins with"},
		"no key":         {"# mine\nuetkit-cluster-key 1\n", "no key"},
		"word":           {"uetkit-cluster-key 1\nkye 1 " + k, "line 2: write"},
		"no generation":  {"uetkit-cluster-key 1\nkey " + k, "line 2: write"},
		"generation":     {"uetkit-cluster-key 1\n\nkey one " + k, "line 3: the generation"},
		"generation 0":   {"uetkit-cluster-key 1\nkey 0 " + k, "line 2: the generation"},
		"long":           {"uetkit-cluster-key 1\nkey 1 " + k + "00", "66 characters"},
		"not hex":        {"uetkit-cluster-key 1\nkey 1 " + k[:63] + "g", "64 hexadecimal digits"},
		"twice":          {"uetkit-cluster-key 1\nkey 1 " + k + "\nkey 1 " + k, "two keys of generation 1"},
		"same key":       {"uetkit-cluster-key 1\nkey 1 " + k + "\nkey 2 " + k, "same key"},
		"both odd":       {"uetkit-cluster-key 1\nkey 1 " + k + "\nkey 3 " + strings.Repeat("5b", 32), "both odd"},
		"three":          {"uetkit-cluster-key 1\nkey 1 " + k + "\nkey 2 " + k + "\nkey 3 " + k, "two newest"},
		"only next":      {"uetkit-cluster-key 1\nnext 2 " + k, "only the next key"},
		"next is older":  {"uetkit-cluster-key 1\nnext 2 " + k + "\nkey 3 " + strings.Repeat("5b", 32), "higher generation"},
		"zero":           {"uetkit-cluster-key 1\nkey 1 " + strings.Repeat("0", 64), "all zeros"},
		"no file of the": {strings.Repeat("#", 100000), "no key file"},
	} {
		path := filepath.Join(t.TempDir(), "key")
		ok(t, os.WriteFile(path, []byte(c.text), 0o600))
		_, err := LoadClusterKey(path)
		want(t, err, fi.EINVAL)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "5a5a") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := LoadClusterKey("/no/such/file")
	if err == nil {
		t.Error("a file that is not there was read")
	}
	path := filepath.Join(t.TempDir(), "key")
	one, two := NewKey(1), NewKey(2)
	ok(t, WriteClusterKey(path, one, two))
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	s, err := LoadClusterKey(path)
	ok(t, err)
	if s.String() != "security by cluster key, generation 2 and 1" || s.keys[0].Key != two.Key || s.keys[1].Key != one.Key {
		t.Error(s)
	}
	if err := WriteClusterKey(filepath.Join(t.TempDir(), "no", "such", "folder"), one); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := WriteClusterKey(path); err == nil {
		t.Error("a file without a key was written")
	}
	ok(t, s.Close())
}

func TestT40SecretsDoNotShow(t *testing.T) {
	t.Parallel()
	// T40: secrets stay hidden however they are printed or encoded, alone or inside another
	// value.
	k := NewKey(7)
	s, err := NewClusterKey(k)
	ok(t, err)
	info := &Info{Config: Config{Security: s}}
	type holder struct {
		K ClusterKey
		P *ClusterKey
		S *Security
		I *Info
	}
	h := holder{k, &k, s, info}
	var out []string
	for _, v := range []any{k, &k, s, info, *info, h, &h, []ClusterKey{k}, map[string]any{"k": k}} {
		for _, f := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			out = append(out, fmt.Sprintf(f, v))
		}
	}
	for _, v := range []any{k, &k, s, []ClusterKey{k}, struct{ S *Security }{s}} {
		b, err := json.Marshal(v)
		ok(t, err)
		out = append(out, string(b))
	}
	core, logs := observer.New(zap.DebugLevel)
	zap.New(core).Info("x", zap.Any("k", k), zap.Any("s", s), zap.Reflect("h", h.S), zap.Stringer("t", s))
	for _, e := range logs.All() {
		for _, f := range e.Context {
			out = append(out, fmt.Sprintf("%+v", f))
		}
	}
	hexed, decimal := hex.EncodeToString(k.Key[:4]), fmt.Sprintf("%d %d %d", k.Key[0], k.Key[1], k.Key[2])
	for _, o := range out {
		low := strings.ToLower(o)
		if strings.Contains(low, hexed) || strings.Contains(low, decimal) || strings.Contains(o, string(k.Key[:4])) {
			t.Errorf("a secret in %q", o)
		}
	}
	ok(t, s.Close())
}

func TestClusterKeyEndpoints(t *testing.T) {
	t.Parallel()
	// Datagram endpoints with the same key talk to each other, and not to endpoints with
	// another key or without one.
	r := newRig(t, nil)
	key := NewKey(1)
	mine, err := NewClusterKey(key)
	ok(t, err)
	yours, err := NewClusterKey(key)
	ok(t, err)
	other, err := NewClusterKey(NewKey(1))
	ok(t, err)
	node := func(s *Security) *node {
		rr := &rig{t: t, info: r.as(s), fabric: r.fabric, domain: r.domain}
		return rr.node()
	}
	a, b := node(mine), node(yours)
	toB := a.know(b)
	buf := make([]byte, 20000)
	ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
	ok(t, a.TSend(pattern(20000, 1), toB, 1, nil))
	wait(t, b.rx, a)
	wait(t, a.tx, b)
	if !bytes.Equal(buf, pattern(20000, 1)) {
		t.Error("other bytes than were sent")
	}
	for name, s := range map[string]*Security{"another key": other, "none": nil} {
		c := node(s)
		ok(t, c.TSend([]byte("let me in"), c.know(b), 1, nil))
		for start := time.Now(); ; {
			if time.Since(start) > patience {
				t.Fatalf("%s: nothing was dropped", name)
			}
			_, _ = b.rx.Read(nil)
			d := b.Stats().Drops
			if s == nil && d[transport.DropClear] > 0 || s != nil && d[transport.DropAuth] > 0 {
				break
			}
		}
		ok(t, c.Close())
	}
	empty(t, b.rx)
}

func TestF31PeersThatDoNotFit(t *testing.T) {
	t.Parallel()
	// F31: the event queue reports a peer with another key, without one, with a key that
	// nobody else has, or with another trailer. It says who the peer is and what does not fit.
	// Without the event there would only be silence.
	r := newRig(t, nil)
	key := func() *Security {
		s, err := NewClusterKey(NewKey(1))
		ok(t, err)
		return s
	}
	mine := key()
	plug := func(s *Security, change ...func(*Info)) *node {
		in := r.as(s)
		for _, f := range change {
			f(in)
		}
		rr := &rig{t: t, info: in, fabric: r.fabric, domain: r.domain}
		return rr.node()
	}
	noCRC := func(in *Info) { in.Config.NoCRC = true }
	for name, c := range map[string]struct {
		b, a *node
		err  fi.Errno
		why  transport.DropReason
	}{
		"another key":         {plug(mine), plug(key()), fi.EKEYREJECTED, transport.DropAuth},
		"no key":              {plug(mine), plug(nil), fi.EPROTO, transport.DropClear},
		"a key, and I none":   {plug(nil), plug(mine), fi.EPROTO, transport.DropSecured},
		"no CRC, and I check": {plug(nil), plug(nil, noCRC), fi.ECRC, transport.DropCRC},
	} {
		toB := c.a.know(c.b)
		ok(t, c.a.TSend([]byte("hello?"), toB, 1, nil))
		var e eq.Error
		for start := time.Now(); ; {
			_, _ = c.a.tx.Read(nil)
			_, _ = c.b.rx.Read(nil)
			var err error
			if e, err = c.b.evts.ReadErr(0); err == nil {
				break
			}
			if time.Since(start) > patience {
				t.Fatalf("%s: no event; drops %v", name, c.b.Stats().Drops)
			}
		}
		from, _, err := wire.ParseAddrBinary(e.ErrData)
		ok(t, err)
		if e.Err != c.err || e.Prov != ProvDrop+uint32(c.why) || from.AddrPort() != c.a.name.AddrPort() || e.Fid != c.b.Endpoint || e.Context != "ep" {
			t.Errorf("%s: %v of %v, want %v for %v", name, &e, from.AddrPort(), c.err, c.a.name.AddrPort())
		}
		for range 1000 {
			_, _ = c.b.rx.Read(nil)
		}
		quiet(t, c.b.evts) // T29: no more events for a while
		ok(t, c.a.Close())
	}
}

func TestF33ClusterKeyRotation(t *testing.T) {
	t.Parallel()
	// F33, T36: replacing the key file on one host after the other loses nothing. When the old
	// key is no longer in the files, a host that only has that key is excluded.
	dir := t.TempDir()
	one, two := NewKey(1), NewKey(2)
	r := newRig(t, nil)
	var secs []*Security
	var nodes []*node
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")}
	for _, p := range paths {
		ok(t, WriteClusterKey(p, one))
		s, err := LoadClusterKey(p)
		ok(t, err)
		secs = append(secs, s)
		rr := &rig{t: t, info: r.as(s), fabric: r.fabric, domain: r.domain}
		nodes = append(nodes, rr.node())
	}
	a, b, c := nodes[0], nodes[1], nodes[2]
	toB, toA, cToA := a.know(b), b.know(a), c.know(a)
	exchange := func(x, y *node, to fi.Addr, text string) {
		t.Helper()
		buf := make([]byte, len(text))
		ok(t, y.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		ok(t, x.TSend([]byte(text), to, 1, nil))
		wait(t, y.rx, x)
		wait(t, x.tx, y)
	}
	exchange(a, b, toB, "one")
	exchange(c, a, cToA, "one")
	next := two
	next.Next = true
	for _, step := range [][]ClusterKey{{one, next}, {one, two}, {two}} {
		for i := range 2 {
			ok(t, WriteClusterKey(paths[i], step...))
			ok(t, secs[i].Reload())
			exchange(a, b, toB, fmt.Sprint(step, i))
			exchange(b, a, toA, fmt.Sprint(step, i))
		}
	}
	// The file of a has named both keys for long enough.
	gone := func() (g bool) {
		a.drv.With(func() { g = a.seal.gens[one.an()] == 0 })
		return g
	}
	for start := time.Now(); !gone(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > oldKeyLife+5*time.Second {
			t.Fatal("the old key still opens")
		}
	}
	before := a.Stats().Drops[transport.DropKey]
	ok(t, c.TSend([]byte("I have the old one"), cToA, 1, nil))
	for start := time.Now(); a.Stats().Drops[transport.DropKey] == before; _, _ = a.rx.Read(nil) {
		if time.Since(start) > patience {
			t.Fatal("the old key still opens")
		}
	}
	exchange(a, b, toB, "two goes on")

	// A host that changes first waits for the others.
	three := NewKey(3)
	ok(t, WriteClusterKey(paths[0], two, three))
	ok(t, secs[0].Reload())
	buf := make([]byte, 8)
	ok(t, a.TRecv(buf, fi.AddrUnspec, 9, 0, nil))
	ok(t, b.TSend([]byte("patience"), toA, 9, nil))
	wait(t, a.rx, b)
	ok(t, WriteClusterKey(paths[1], two, three))
	ok(t, secs[1].Reload())
	wait(t, b.tx, a)

	// Steps back, and steps over an odd or even number, are refused and change nothing.
	for _, k := range []ClusterKey{two, NewKey(5)} {
		ok(t, WriteClusterKey(paths[0], k))
		want(t, secs[0].Reload(), fi.EINVAL)
		exchange(a, b, toB, "still three")
	}
}

func TestT36OldClusterKeyEndsInTime(t *testing.T) {
	// T36, F33: packets sealed with a cluster key that is no longer in the file open for 4 s
	// more and then no longer.
	domain := func(ip string, ssi uint32) *tss.Domain {
		d, err := tss.New(tss.Config{Local: netip.MustParseAddr(ip), Mode: tss.Cluster, SDI: sdiCluster, UseSSI: true, SSI: ssi, OldKeyLife: 1 << 62})
		ok(t, err)
		return d
	}
	one, two := NewKey(1), NewKey(2)
	s := &seal{dom: domain("192.0.2.1", 1)}
	ok(t, s.take(0, []ClusterKey{one}))
	const left = 100 * time.Second
	for _, keys := range [][]ClusterKey{{two, one}, {two}} {
		ok(t, s.take(left, keys))
	}
	out := domain("192.0.2.2", 2) // it has only the old key
	ok(t, out.Install(one.an(), tss.Key(one.Key)))
	ok(t, out.Use(0, one.an(), 0, 0))
	opens := func(now time.Duration) bool {
		s.expire(now)
		b, ready := out.Begin(nil)
		if !ready {
			t.Fatal(out)
		}
		b = append(b, make([]byte, 20+wire.ICVLen)...)
		out.Seal(b, nil)
		_, _, why := s.dom.Open(now, b, nil, netip.MustParseAddr("192.0.2.2"))
		return why == tss.Good
	}
	if !opens(left) || !opens(left+4*time.Second-1) {
		t.Error("the old key does not open for 4 s")
	}
	if opens(left + 4*time.Second) {
		t.Error("the old key opens after 4 s")
	}
}

func TestT36DroppedKey(t *testing.T) {
	t.Parallel()
	// T36: a connection between hosts with a cluster key ends within 5 s when one of them
	// drops the key. Connections of the others go on, and a wrong file changes nothing.
	dir := t.TempDir()
	one, two := NewKey(1), NewKey(2)
	old, renewed := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	next := two
	next.Next = true
	ok(t, WriteClusterKey(old, one))
	ok(t, WriteClusterKey(renewed, one, next))
	a, err := LoadClusterKey(old)
	ok(t, err)
	b, err := LoadClusterKey(renewed)
	ok(t, err)
	core, logs := observer.New(zap.WarnLevel)
	r := newMsgRig(t, secured(fi.EpMsg, b), func(in *Info) { in.Config.Logger = zaplog.New(zap.New(core)) })
	l := r.listener()
	ok(t, os.Chmod(renewed, 0o644))
	ok(t, b.Reload())
	removed, left := l.pairAs(a)
	left.lines.flush()
	if logs.FilterMessageSnippet("chmod 600").Len() == 0 {
		t.Error("nobody was told that the key file is open to all")
	}
	ok(t, os.WriteFile(renewed, []byte("uetkit-cluster-key 1\nkey 3 1234\n"), 0o600))
	for start := time.Now(); logs.FilterMessageSnippet("not read again").Len() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatal("nobody was told that the key file is wrong")
		}
	}
	ok(t, WriteClusterKey(renewed, two, one))
	ok(t, b.Reload())
	member, peer := l.pairAs(b)
	talk(t, removed, left, "still in")
	start := time.Now()
	ok(t, WriteClusterKey(renewed, two))
	event(t, left.evts, fi.Shutdown)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("out after %v", d)
	}
	event(t, removed.evts, fi.Shutdown) // a lost farewell is repeated when the peer asks
	talk(t, member, peer, "still here")
	again := r.plug(r.as(a))
	ok(t, again.Connect(l.at, nil))
	if e := eventErr(t, again.evts); e.Err != fi.EKEYREJECTED {
		t.Errorf("%+v %s", &e, e.ErrData)
	}
	if n := logs.FilterMessageSnippet("not read again").Len(); n != 1 {
		t.Errorf("%d log lines about one file", n)
	}
}

func TestT36RemovedWhileNobodyIsConnected(t *testing.T) {
	t.Parallel()
	// T36: a file of removed members has effect even if no endpoint is open but a passive one.
	ca := newAuthority(t)
	alice, bob := ca.member("alice"), ca.member("bob")
	r := newMsgRig(t, secured(fi.EpMsg, bob))
	l := r.listener()
	ok(t, os.WriteFile(filepath.Join(ca.dir, "revoked"), []byte("alice\n"), 0o600))
	for deadline := time.Now().Add(patience); !bob.out("alice"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file was not read")
		}
	}
	a := r.plug(r.as(alice))
	ok(t, a.Connect(l.at, nil))
	if e := eventErr(t, a.evts); e.Err != fi.EKEYREJECTED {
		t.Errorf("a removed member: %v", e.Err)
	}
	quiet(t, l.evts)
}

func TestRekeyByTSCOfACluster(t *testing.T) {
	t.Parallel()
	// S-KEY-05: two endpoints that both change keys by the counter understand each other, over
	// many changes. One that does not is not understood.
	key := NewKey(1)
	sec := func(mask uint64, shift uint8) *Security {
		s, err := NewClusterKey(key)
		ok(t, err)
		ok(t, s.RekeyByTSC(mask, shift))
		return s
	}
	r := newRig(t, nil)
	on := func(s *Security) *node {
		return (&rig{t: t, info: r.as(s), fabric: r.fabric, domain: r.domain}).node()
	}
	secA := sec(0xff, 0) // another key for each packet
	a, b := on(secA), on(sec(0xff, 0))
	toB := a.know(b)
	b.know(a)
	for i := range 20 {
		text := fmt.Sprint("message ", i)
		buf := make([]byte, len(text))
		ok(t, b.TRecv(buf, fi.AddrUnspec, 1, 0, nil))
		ok(t, a.TSend([]byte(text), toB, 1, nil))
		wait(t, b.rx, a)
		wait(t, a.tx, b)
		if string(buf) != text {
			t.Fatalf("%q came as %q", text, buf)
		}
	}
	var st tss.Stats
	a.drv.Do(func(time.Duration) { st = a.seal.dom.Stats() })
	if st.Derived < 20 || st.Drops[tss.DropAuth] != 0 {
		t.Errorf("%d derivations, %d packets that did not verify", st.Derived, st.Drops[tss.DropAuth])
	}

	c := on(sec(0, 0))
	c.know(a)
	ok(t, a.TSend([]byte("x"), a.know(c), 1, nil))
	for end := time.Now().Add(10 * time.Second); st.Drops[tss.DropAuth] == 0; {
		if time.Now().After(end) {
			t.Fatal("who changes keys otherwise understood it")
		}
		_, _ = a.tx.Read(make([]cq.Entry, 1))
		c.drv.Do(func(time.Duration) { st = c.seal.dom.Stats() })
	}

	want(t, secA.RekeyByTSC(0, 0), fi.EBUSY)
	s, err := NewClusterKey(key)
	ok(t, err)
	for _, v := range []struct {
		mask  uint64
		shift uint8
	}{{1 << 48, 20}, {1, 48}, {1<<33 - 1, 0}} {
		want(t, s.RekeyByTSC(v.mask, v.shift), fi.EINVAL)
	}
	ca := newAuthority(t)
	want(t, ca.member("m").RekeyByTSC(0xff00, 8), fi.EINVAL)
}
