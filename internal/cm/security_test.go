package cm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// acceptAll is an onRequest that accepts.
func acceptAll(t testing.TB) func(*Request) {
	return func(r *Request) {
		s, err := r.Accept(params(2000), nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		s.Start(quiet{})
	}
}

// unwanted is an onRequest that fails the test.
func unwanted(t testing.TB) func(*Request) {
	return func(r *Request) {
		t.Error("a request came of it")
		r.Reject(nil)
	}
}

// dial fails the test unless it gets a session.
func dial(t testing.TB, d, l *Node) *Session {
	t.Helper()
	s, err := d.Dial(t.Context(), l.Addr(), params(1000), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noDial fails the test unless the dial fails with an error of the kind of target.
func noDial(t testing.TB, d, l *Node, target any) {
	t.Helper()
	s, err := d.Dial(t.Context(), l.Addr(), params(1000), nil)
	if err == nil {
		s.Close(nil)
		t.Fatal("dial succeeded")
	}
	if !errors.As(err, target) {
		t.Fatalf("dial: %v, want %T", err, target)
	}
}

func TestT35Certificates(t *testing.T) {
	good, other := authority(t), authority(t)
	ok := func(name string) *tls.Config { return good.TLS(issue(t, good, name)) }
	with := func(c tls.Certificate) *tls.Config { return good.TLS(c) }
	removed := func(name string, _ *x509.Certificate) error {
		if name == "removed" {
			return errors.New("removed")
		}
		return nil
	}
	for _, c := range []struct {
		name             string
		dialer, listener *tls.Config
		peer             bool // the listener refuses the dialer's certificate
		alert            tls.AlertError
	}{
		{"unknown authority", with(issue(t, other, "dialer")), ok("listener"), true, alertUnknownCA},
		{"expired", with(issueFor(t, good, "dialer", -2*time.Hour, -time.Hour)), ok("listener"), true, alertCertificateExpired},
		{"not yet good", with(issueFor(t, good, "dialer", time.Hour, 2*time.Hour)), ok("listener"), true, alertCertificateExpired},
		{"removed member", with(issue(t, good, "removed")), ok("listener"), true, alertBadCertificate},
		{"listener of unknown authority", ok("dialer"), other.TLS(issue(t, other, "listener")), false, alertBadCertificate},
		{"listener expired", ok("dialer"), with(issueFor(t, good, "listener", -2*time.Hour, -time.Hour)), false, alertBadCertificate},
		{"listener removed", ok("dialer"), with(issue(t, good, "removed")), false, alertBadCertificate},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := open(t, Config{Security: SecTLS, TLS: c.dialer, Member: removed})
			l := open(t, Config{Security: SecTLS, TLS: c.listener, Member: removed})
			listen(t, l, unwanted(t))
			var auth *AuthError
			noDial(t, d, l, &auth)
			if auth.Peer != c.peer || auth.Alert != c.alert || !errors.Is(auth, fi.EKEYREJECTED) {
				t.Errorf("%v: peer %v, alert %d", auth, auth.Peer, auth.Alert)
			}
		})
	}
}

// A stranger is a QUIC client that does not keep our rules.
type stranger struct {
	t    *testing.T
	tr   *quic.Transport
	conf *tls.Config
	quic *quic.Config
}

func newStranger(t *testing.T) *stranger {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{t, &quic.Transport{Conn: c}, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn(Version)}}, nil}
	t.Cleanup(func() {
		s.tr.Close()
		c.Close()
	})
	return s
}

// dial returns the connection, or the error it ended with.
func (s *stranger) dial(l *Node) (*quic.Conn, error) {
	c, err := s.tr.Dial(s.t.Context(), net.UDPAddrFromAddrPort(l.Addr()), s.conf, s.quic)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { c.CloseWithError(0, "") })
	return c, nil
}

// stream dials and opens the stream.
func (s *stranger) stream(l *Node) (*quic.Conn, *quic.Stream) {
	s.t.Helper()
	c, err := s.dial(l)
	if err != nil {
		s.t.Fatal(err)
	}
	st, err := c.OpenStreamSync(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return c, st
}

// ended waits for the end of a connection.
func ended(t *testing.T, c *quic.Conn) error {
	t.Helper()
	select {
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-time.After(20 * time.Second):
		t.Fatal("the connection lives on")
		return nil
	}
}

func wantAlert(t *testing.T, err error, alert tls.AlertError) {
	t.Helper()
	var te *quic.TransportError
	if !errors.As(err, &te) || !te.Remote || te.ErrorCode != 0x100+quic.TransportErrorCode(alert) {
		t.Errorf("%v, want alert %d of the peer", err, alert)
	}
}

func TestT35NoClientCertificate(t *testing.T) {
	_, l := members(t, Config{})
	listen(t, l, unwanted(t))
	// The client's handshake ends before the server has verified it.
	c, err := newStranger(t).dial(l)
	if err == nil {
		err = ended(t, c)
	}
	wantAlert(t, err, alertCertificateRequired)
}

func TestT35WrongALPN(t *testing.T) {
	for _, names := range [][]string{{"h3"}, {"uet-cm/"}, {"uet-cm/01"}, {"uet-cm/65536"}, {"uet-cm"}} {
		l := open(t, Config{})
		listen(t, l, unwanted(t))
		s := newStranger(t)
		s.conf.NextProtos = names
		_, err := s.dial(l)
		wantAlert(t, err, 120) // no_application_protocol
	}
}

func TestT35NoTLS12(t *testing.T) {
	// quic-go forbids older versions, and so does our configuration, tested without QUIC.
	_, l := members(t, Config{})
	a, b := net.Pipe()
	done := make(chan error, 1)
	go func() {
		defer b.Close()
		done <- tls.Server(b, l.id.server()).HandshakeContext(t.Context())
	}()
	err := tls.Client(a, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{alpn(Version)}}).HandshakeContext(t.Context())
	a.Close()
	if e := <-done; err == nil || e == nil || !strings.Contains(e.Error(), "unsupported versions") {
		t.Errorf("handshake: %v, %v", err, e)
	}
	if c := l.id.client; c.MinVersion != tls.VersionTLS13 {
		t.Errorf("a dial may use %#x", c.MinVersion)
	}
}

// tickets is a session cache that counts.
type tickets struct{ puts atomic.Int32 }

func (*tickets) Get(string) (*tls.ClientSessionState, bool)    { return nil, false }
func (c *tickets) Put(_ string, state *tls.ClientSessionState) { c.puts.Add(1) }

func TestT35NoTicketsNo0RTT(t *testing.T) {
	l := open(t, Config{})
	listen(t, l, func(r *Request) { r.Reject(nil) })
	s := newStranger(t)
	cache := new(tickets)
	s.conf.ClientSessionCache = cache
	c, st := s.stream(l)
	if _, err := st.Write(edit(func(b []byte) []byte { return field(b, tlvSecurity, byte(SecOff)) })); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(st); err != nil { // the answer; a ticket would have come before its end
		t.Fatal(err)
	}
	if n := cache.puts.Load(); n != 0 || c.ConnectionState().Used0RTT {
		t.Errorf("%d tickets", n)
	}
	if l.quic.Allow0RTT || !l.id.serve.SessionTicketsDisabled {
		t.Error("0-RTT is allowed")
	}
}

func TestT35EndlessMessage(t *testing.T) {
	// A message that never ends is ended by us within the time of a handshake, at a known
	// number of bytes.
	l := open(t, Config{Handshake: 300 * time.Millisecond})
	listen(t, l, unwanted(t))
	c, st := newStranger(t).stream(l)
	begin := time.Now()
	st.Write(be32(maxMessage - 4))
	for c.Context().Err() == nil {
		st.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		st.Write([]byte{1})
		<-time.After(5 * time.Millisecond)
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the message goes on")
		}
	}
	var ae *quic.ApplicationError
	if err := ended(t, c); !errors.As(err, &ae) || ae.ErrorCode != codeLate {
		t.Errorf("%v", err)
	}
	if st := l.Stats(); st.Wrong != 1 || st.Admission.Flight != 0 {
		t.Errorf("%+v", st)
	}
	if l.quic.MaxStreamReceiveWindow > 64<<10 || l.quic.MaxConnectionReceiveWindow > 64<<10 {
		t.Error("more than 64 KiB may be on the way")
	}
}

func TestT35TooLongMessage(t *testing.T) {
	l := open(t, Config{})
	listen(t, l, unwanted(t))
	c, st := newStranger(t).stream(l)
	st.Write(be32(maxMessage))
	var ae *quic.ApplicationError
	if err := ended(t, c); !errors.As(err, &ae) || ae.ErrorCode != codeProtocol {
		t.Errorf("%v", err)
	}
}

func TestT2StreamsAreBounded(t *testing.T) {
	// T2: at most 16 streams are allowed. A connection accepts one in its life, and none of the
	// other kinds.
	l := open(t, Config{})
	listen(t, l, func(*Request) {})
	c, st := newStranger(t).stream(l)
	st.Write([]byte{0})
	if _, err := c.OpenStream(); err == nil {
		t.Error("a second stream")
	}
	if _, err := c.OpenUniStream(); err == nil {
		t.Error("a stream of one direction")
	}
	if c.ConnectionState().SupportsDatagrams.Remote {
		t.Error("datagrams")
	}
}

func TestT2IdleStreamEnds(t *testing.T) {
	// A secure connection ends if no stream comes, or one without a message.
	for _, open1 := range []bool{false, true} {
		l := open(t, Config{Handshake: 300 * time.Millisecond})
		listen(t, l, unwanted(t))
		s := newStranger(t)
		s.quic = &quic.Config{KeepAlivePeriod: 50 * time.Millisecond}
		c, err := s.dial(l)
		if err != nil {
			t.Fatal(err)
		}
		if open1 {
			st, err := c.OpenStreamSync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			st.Write([]byte{0})
		}
		var ae *quic.ApplicationError
		if err := ended(t, c); !errors.As(err, &ae) || ae.ErrorCode != codeLate {
			t.Errorf("%v", err)
		}
	}
}

func TestF30VersionNamesBoth(t *testing.T) {
	for _, v := range []struct{ d, l uint16 }{{1, 2}, {2, 1}} {
		node := func(version uint16) *Node {
			n, err := openVersion(Config{Addr: loopback}, version)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Close() })
			return n
		}
		d, l := node(v.d), node(v.l)
		listen(t, l, unwanted(t))
		var m *MismatchError
		noDial(t, d, l, &m)
		if *m != (MismatchError{"version", fmt.Sprint(v.d), fmt.Sprint(v.l)}) || !errors.Is(m, fi.EPROTO) {
			t.Errorf("%v", m)
		}
		if st := l.Stats(); st.Mismatched != 1 {
			t.Errorf("%+v", st)
		}
	}
}

func TestF30SecurityNamesBoth(t *testing.T) {
	a := authority(t)
	cfgs := []Config{
		{Security: SecOff},
		{Security: SecTLS, TLS: a.TLS(issue(t, a, "n"))},
		{Security: SecPSK, PSK: func() [][]byte { return [][]byte{key(1)} }},
	}
	for i := range cfgs {
		for j := range cfgs {
			if i == j {
				continue
			}
			t.Run(cfgs[i].Security.String()+" to "+cfgs[j].Security.String(), func(t *testing.T) {
				d, l := open(t, cfgs[i]), open(t, cfgs[j])
				listen(t, l, unwanted(t))
				var m *MismatchError
				noDial(t, d, l, &m)
				if *m != (MismatchError{"security", cfgs[i].Security.String(), cfgs[j].Security.String()}) || !errors.Is(m, fi.EPROTO) {
					t.Errorf("%v", m)
				}
			})
		}
	}
}

func TestF30ProfileAndModesNameBoth(t *testing.T) {
	for _, c := range []struct {
		change func(*Params)
		want   MismatchError
	}{
		{func(p *Params) { p.Profile = 7 }, MismatchError{"profile", "0x7", "0x2"}},
		{func(p *Params) { p.Modes = 1 << 4 }, MismatchError{"modes", "UUD", "RUD ROD"}},
	} {
		d, l := open(t, Config{}), open(t, Config{})
		accepted := make(chan error, 1)
		listen(t, l, func(r *Request) {
			_, err := r.Accept(params(2000), nil)
			accepted <- err
		})
		p := params(1000)
		c.change(&p)
		_, err := d.Dial(t.Context(), l.Addr(), p, nil)
		var m *MismatchError
		if !errors.As(err, &m) || *m != c.want {
			t.Errorf("dial: %v, want %v", err, &c.want)
		}
		if err := <-accepted; !errors.As(err, &m) || *m != (MismatchError{c.want.Field, c.want.Theirs, c.want.Mine}) {
			t.Errorf("accept: %v", err)
		}
	}
}

func TestF30WhatMustFit(t *testing.T) {
	// F30: each of these differences is named, whichever end has which value. What need not be
	// equal may differ.
	base := params(1000)
	for _, c := range []struct {
		field      string // "" if the ends fit
		one, other func(*Params)
	}{
		{"", func(p *Params) { p.Modes = 1<<wire.RUD | 1<<wire.ROD }, func(p *Params) { p.Modes = 1 << wire.ROD }},
		{"modes", func(p *Params) { p.Modes = 1 << wire.RUD }, func(p *Params) { p.Modes = 1 << wire.ROD }},
		{"security", func(p *Params) { p.Security = SecTLS }, func(p *Params) { p.Security = SecPSK }},
		{"profile", func(p *Params) { p.Profile = 1 }, func(p *Params) { p.Profile = 2 }},
		{"JobID", func(p *Params) { p.JobID = 1 }, func(p *Params) { p.JobID = 2 }},
		{"CRC", func(p *Params) { p.NoCRC = true }, func(p *Params) { p.NoCRC = false }},
		{"", func(p *Params) { p.NoCRC, p.Security = true, SecPSK }, func(p *Params) { p.NoCRC, p.Security = false, SecPSK }}, // sealed packets have no CRC
		{"encapsulation", func(p *Params) { p.Encapsulation = wire.Standard }, func(p *Params) { p.Encapsulation = wire.Symmetric }},
		{"", func(p *Params) { p.PayloadMTU, p.RI = 1024, 1 }, func(p *Params) { p.PayloadMTU, p.RI = 8192, 2 }},
	} {
		a, b := base, base
		c.one(&a)
		c.other(&b)
		for _, p := range [][2]*Params{{&a, &b}, {&b, &a}} {
			got := ""
			if m := mismatch(p[0], p[1]); m != nil {
				got = m.Field
			}
			if got != c.field {
				t.Errorf("%+v and %+v: %q, want %q", *p[0], *p[1], got, c.field)
			}
		}
	}
}

func TestF30UnknownCriticalField(t *testing.T) {
	l := open(t, Config{})
	listen(t, l, unwanted(t))
	_, st := newStranger(t).stream(l)
	st.Write(edit(func(b []byte) []byte { return appendTLV(b, tlvCritical|0x33, 1) }))
	b, err := io.ReadAll(st)
	if err != nil {
		t.Fatal(err)
	}
	m, err := parse(b, Version)
	if err != nil || m.differ != (MismatchError{"critical field", "unknown", "0x8033"}) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestPSKAnyGoodKey(t *testing.T) {
	// In a rotation the new key is second everywhere, then first, then alone.
	keys := func(k ...byte) func() [][]byte {
		return func() [][]byte {
			var all [][]byte
			for _, n := range k {
				all = append(all, key(n))
			}
			return all
		}
	}
	for _, c := range []struct {
		d, l []byte
		ok   bool
	}{
		{[]byte{1}, []byte{1}, true}, {[]byte{1, 2}, []byte{1}, true}, {[]byte{2, 1}, []byte{1, 2}, true}, {[]byte{2}, []byte{2, 1}, true},
		{[]byte{1}, []byte{2}, false}, {[]byte{1}, []byte{2, 1}, false},
	} {
		t.Run(fmt.Sprint(c.d, c.l), func(t *testing.T) {
			d := open(t, Config{Security: SecPSK, PSK: keys(c.d...)})
			l := open(t, Config{Security: SecPSK, PSK: keys(c.l...)})
			listen(t, l, func(r *Request) {
				if !c.ok {
					t.Error("a request came of it")
				}
				acceptAll(t)(r)
			})
			if c.ok {
				s := dial(t, d, l)
				s.Start(quiet{})
				if s.Member() != "" || s.Params().Security != SecPSK {
					t.Errorf("member %q, %+v", s.Member(), s.Params())
				}
				return
			}
			var auth *AuthError
			noDial(t, d, l, &auth)
		})
	}
	// A peer without a key is refused, and one that forges the names of a key.
	l := open(t, Config{Security: SecPSK, PSK: keys(1)})
	listen(t, l, unwanted(t))
	s := newStranger(t)
	p, err := open(t, Config{Security: SecPSK, PSK: keys(9)}).id.keys()
	if err != nil {
		t.Fatal(err)
	}
	s.conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &p.cert, nil }
	c, err := s.dial(l)
	if err == nil {
		err = ended(t, c)
	}
	wantAlert(t, err, alertUnknownCA)
}

func TestPSKKeyMustBeLong(t *testing.T) {
	for _, k := range [][][]byte{nil, {}, {make([]byte, MinPSK-1)}, {key(1), nil}} {
		if n, err := Open(Config{Addr: loopback, Security: SecPSK, PSK: func() [][]byte { return k }}); err == nil {
			n.Close()
			t.Errorf("%d keys taken", len(k))
		}
	}
}

func TestT36RemovedMemberIsOutAtBothEnds(t *testing.T) {
	// T36: a removed member is out within 5 s. Recheck runs by itself more often than that.
	if recheckTime > 4*time.Second {
		t.Errorf("recheck every %v", recheckTime)
	}
	a := authority(t)
	var out atomic.Bool
	member := func(name string, _ *x509.Certificate) error {
		if out.Load() && name == "d" {
			return errors.New("removed")
		}
		return nil
	}
	d := open(t, Config{Security: SecTLS, TLS: a.TLS(issue(t, a, "d"))})
	e := open(t, Config{Security: SecTLS, TLS: a.TLS(issue(t, a, "e"))})
	l := open(t, Config{Security: SecTLS, TLS: a.TLS(issue(t, a, "l")), Member: member})
	ed, ee, el := newEvents(), newEvents(), newEvents()
	names := make(chan string, 2)
	listen(t, l, func(r *Request) {
		s, err := r.Accept(params(2000), nil)
		if err != nil {
			t.Error(err)
			return
		}
		names <- r.Member()
		if s.Member() == "d" {
			s.Start(el)
		} else {
			s.Start(quiet{})
		}
	})
	dial(t, d, l).Start(ed)
	se := dial(t, e, l)
	se.Start(ee)
	if x, y := <-names, <-names; x+y != "de" && x+y != "ed" {
		t.Errorf("members %q, %q", x, y)
	}
	out.Store(true)
	el.want(t, `member removed ""`)
	ed.want(t, `member removed ""`)
	var auth *AuthError
	noDial(t, d, l, &auth)
	// The other member stays.
	if err := se.Rekey(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestT36RemovedKeyEndsItsSessions(t *testing.T) {
	var both atomic.Bool
	both.Store(true)
	l := open(t, Config{Security: SecPSK, PSK: func() [][]byte {
		if both.Load() {
			return [][]byte{key(1), key(2)}
		}
		return [][]byte{key(1)}
	}})
	d1 := open(t, Config{Security: SecPSK, PSK: func() [][]byte { return [][]byte{key(1)} }})
	d2 := open(t, Config{Security: SecPSK, PSK: func() [][]byte { return [][]byte{key(2), key(1)} }})
	listen(t, l, acceptAll(t))
	e1, e2 := newEvents(), newEvents()
	s1 := dial(t, d1, l)
	s1.Start(e1)
	dial(t, d2, l).Start(e2)
	l.Recheck()
	both.Store(false)
	l.Recheck()
	e2.want(t, `member removed ""`)
	if err := s1.Rekey(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestT40NothingSecretIsPrinted(t *testing.T) {
	secret := key(0x5e)
	a := authority(t)
	tlsConf := a.TLS(issue(t, a, "n"))
	var log bytes.Buffer
	tlsConf.KeyLogWriter = &log // not the request: Config.KeyLog is
	cfgs := []Config{
		{Addr: loopback, Security: SecTLS, TLS: tlsConf},
		{Addr: loopback, Security: SecPSK, PSK: func() [][]byte { return [][]byte{secret} }},
	}
	for _, cfg := range cfgs {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			for _, v := range []any{cfg, &cfg, a} {
				if s := fmt.Sprintf(verb, v); len(s) > 100 || strings.Contains(s, "PrivateKey") || strings.Contains(s, "94 94") || strings.Contains(s, "5e5e") {
					t.Errorf("%s of %T: %s", verb, v, s)
				}
			}
		}
		n := open(t, cfg)
		listen(t, n, acceptAll(t))
		dial(t, n, n)
	}
	if log.Len() > 0 {
		t.Error("keys were logged without request")
	}
	var wanted lockedBuffer
	n := open(t, Config{Addr: loopback, KeyLog: &wanted})
	listen(t, n, acceptAll(t))
	dial(t, n, n)
	if !strings.Contains(wanted.String(), "CLIENT_HANDSHAKE_TRAFFIC_SECRET") {
		t.Error("keys were not logged on request")
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
