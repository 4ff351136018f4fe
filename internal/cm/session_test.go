package cm

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/uetkit/uetkit/fi"
)

// A pair is both ends of a session, not started.
type pair struct {
	d, l   *Node
	sd, sl *Session
	ed, el *events
}

func connect(t testing.TB, cfg Config) *pair {
	t.Helper()
	p := &pair{d: open(t, cfg), l: open(t, cfg), ed: newEvents(), el: newEvents()}
	accepted := make(chan *Session, 1)
	listen(t, p.l, func(r *Request) {
		s, err := r.Accept(params(2000), nil)
		if err != nil {
			t.Error(err)
		}
		accepted <- s
	})
	p.sd = dial(t, p.d, p.l)
	p.sl = <-accepted
	return p
}

func (p *pair) start() {
	p.sd.Start(p.ed)
	p.sl.Start(p.el)
}

func (p *pair) wantQuiet(t testing.TB) {
	t.Helper()
	for _, e := range []*events{p.ed, p.el} {
		select {
		case got := <-e.c:
			t.Errorf("event %q", got)
		default:
		}
	}
}

// gone removes the node's socket, as the end of its process does.
func (n *Node) gone() { n.sock.UDPConn.Close() }

func TestRCM09PrivateDataIsCut(t *testing.T) {
	// R-CM-09: longer data is cut at 256 bytes without an error.
	long := bytes.Repeat([]byte("x"), 300)
	want := string(long[:MaxPrivate])
	d, l := open(t, Config{}), open(t, Config{})
	var reject atomic.Bool
	el := newEvents()
	listen(t, l, func(r *Request) {
		if string(r.Private()) != want {
			t.Errorf("request: %d bytes", len(r.Private()))
		}
		if reject.Load() {
			r.Reject(long)
			return
		}
		s, err := r.Accept(params(2000), long)
		if err != nil {
			t.Error(err)
			return
		}
		s.Start(el)
	})
	s, err := d.Dial(t.Context(), l.Addr(), params(1000), long)
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Private()) != want {
		t.Errorf("accept: %d bytes", len(s.Private()))
	}
	s.Start(quiet{})
	s.Close(long)
	el.want(t, `closed by the peer "`+want+`"`)
	reject.Store(true)
	_, err = d.Dial(t.Context(), l.Addr(), params(1000), long)
	var rejected *RejectedError
	if !errors.As(err, &rejected) || string(rejected.Private) != want {
		t.Errorf("reject: %v", err)
	}
}

func TestRCM02BacklogRefuses(t *testing.T) {
	// R-CM-02: requests beyond the backlog are refused at once.
	d, l := open(t, Config{}), open(t, Config{Backlog: 2})
	requests := make(chan *Request, 10)
	listen(t, l, func(r *Request) { requests <- r })
	results := make(chan error, 2)
	for range 2 {
		go func() {
			s, err := d.Dial(t.Context(), l.Addr(), params(1000), nil)
			if err == nil {
				s.Start(quiet{})
			}
			results <- err
		}()
	}
	request := func() *Request {
		t.Helper()
		select {
		case r := <-requests:
			return r
		case err := <-results:
			t.Fatalf("a dial within the backlog: %v", err)
		}
		return nil
	}
	r1, r2 := request(), request()
	third := make(chan error, 1)
	go func() {
		_, err := d.Dial(t.Context(), l.Addr(), params(1000), nil)
		third <- err
	}()
	select {
	case err := <-third:
		if !errors.Is(err, ErrRefused) || !errors.Is(err, fi.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
	case <-requests:
		t.Fatal("a request beyond the backlog is handed on")
	}
	if st := l.Stats(); st.RefusedBacklog != 1 || st.Pending != 2 {
		t.Errorf("%+v", st)
	}
	s, err := r1.Accept(params(2000), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Start(quiet{})
	if _, err := r1.Accept(params(2000), nil); !errors.Is(err, fi.EOPBADSTATE) {
		t.Errorf("second accept: %v", err)
	}
	if err := r1.Reject(nil); !errors.Is(err, fi.EOPBADSTATE) {
		t.Errorf("reject after accept: %v", err)
	}
	if err := r2.Reject(nil); err != nil {
		t.Error(err)
	}
	ok, no := <-results, <-results
	if ok != nil {
		ok, no = no, ok
	}
	var rejected *RejectedError
	if ok != nil || !errors.As(no, &rejected) {
		t.Errorf("%v, %v", ok, no)
	}
	if st := l.Stats(); st.Pending != 0 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

func TestRCM13OneClosedAtEachEnd(t *testing.T) {
	// R-CM-13: each end gets exactly one Closed, even if both close at once.
	for _, who := range []string{"dialer", "listener", "both"} {
		t.Run(who, func(t *testing.T) {
			p := connect(t, Config{})
			p.start()
			wantD, wantL := `closed by the peer "bye"`, `closed by the peer "bye"`
			if who != "listener" {
				wantD = `closed ""`
				p.sd.Close([]byte("bye"))
			}
			if who != "dialer" {
				err := p.sl.Close([]byte("bye"))
				if who == "listener" || err == nil {
					wantL = `closed ""`
				}
			}
			p.ed.want(t, wantD)
			p.el.want(t, wantL)
			if err := p.sd.Close(nil); !errors.Is(err, ErrClosed) {
				t.Errorf("second close: %v", err)
			}
			if err := p.sd.Rekey(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("rekey: %v", err)
			}
			p.d.Close()
			p.l.Close()
			p.wantQuiet(t)
		})
	}
}

func TestEventsBeforeStartAreKept(t *testing.T) {
	p := connect(t, Config{})
	p.sd.Start(p.ed)
	p.sd.Start(quiet{}) // the second handler is ignored
	rekeyed := make(chan error, 1)
	go func() { rekeyed <- p.sd.Rekey(t.Context()) }()
	p.ed.want(t, "install 1")
	p.sl.Start(p.el)
	p.el.want(t, "install 1", "switch 1")
	p.ed.want(t, "switch 1")
	if err := <-rekeyed; err != nil {
		t.Error(err)
	}
	// A session that was closed before it had a handler still tells its handler.
	q := connect(t, Config{})
	q.sl.Start(q.el)
	q.sd.Close([]byte("early"))
	q.el.want(t, `closed by the peer "early"`)
	<-q.sd.done
	q.sd.Start(q.ed)
	q.ed.want(t, `closed ""`)
}

func TestF33RekeyInstallsBeforeItSwitches(t *testing.T) {
	// F33: no end seals with a key that its peer does not accept yet.
	p := connect(t, Config{})
	p.start()
	if k0, k1 := keyOf(t, p.sd, 0), keyOf(t, p.sd, 1); k0 == k1 {
		t.Error("a generation has the key of the last")
	}
	for gen := uint32(1); gen <= 6; gen++ {
		s := p.sd
		if gen%2 == 0 {
			s = p.sl
		}
		if err := s.Rekey(t.Context()); err != nil {
			t.Fatal(err)
		}
		in, sw := "install "+string('0'+rune(gen)), "switch "+string('0'+rune(gen))
		p.ed.want(t, in, sw)
		p.el.want(t, in, sw)
		if keyOf(t, p.sd, gen) != keyOf(t, p.sl, gen) {
			t.Errorf("generation %d: two keys", gen)
		}
	}
}

// order checks that no end switches to a generation that the other has not installed.
type order struct {
	mu     *sync.Mutex
	mine   *uint32 // generation that this end installed
	theirs *uint32
	t      *testing.T
	gen    uint32 // generation that this end switched to
	done   chan struct{}
}

func (o *order) InstallKey(gen uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gen != *o.mine+1 {
		o.t.Errorf("installed %d after %d", gen, *o.mine)
	}
	*o.mine = gen
}

func (o *order) SwitchKey(gen uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if *o.theirs < gen || *o.mine < gen || gen != o.gen+1 {
		o.t.Errorf("switched to %d after %d; installed %d here, %d there", gen, o.gen, *o.mine, *o.theirs)
	}
	o.gen = gen
}

func (o *order) Closed(Reason, []byte) { close(o.done) }

func TestF33SimultaneousRekeysGiveOneGeneration(t *testing.T) {
	p := connect(t, Config{})
	var mu sync.Mutex
	var d, l uint32
	od := &order{mu: &mu, mine: &d, theirs: &l, t: t, done: make(chan struct{})}
	ol := &order{mu: &mu, mine: &l, theirs: &d, t: t, done: make(chan struct{})}
	p.sd.Start(od)
	p.sl.Start(ol)
	const rounds = 50
	for range rounds {
		var wg sync.WaitGroup
		for _, s := range []*Session{p.sd, p.sl, p.sd} {
			wg.Go(func() {
				if err := s.Rekey(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	p.sd.Close(nil)
	<-od.done
	<-ol.done
	if od.gen != ol.gen || od.gen < rounds || od.gen > 3*rounds {
		t.Errorf("%d and %d generations in %d rounds", od.gen, ol.gen, rounds)
	}
}

// slow is a handler that stops in its first InstallKey.
type slow struct {
	quiet
	in, out chan struct{}
}

func (s *slow) InstallKey(uint32) {
	close(s.in)
	<-s.out
}

func TestF33CrossingRekeys(t *testing.T) {
	// Both begin before either has heard of the other: the rekey of each is the answer to the
	// other's.
	p := connect(t, Config{})
	hd, hl := &slow{in: make(chan struct{}), out: make(chan struct{})}, &slow{in: make(chan struct{}), out: make(chan struct{})}
	p.sd.Start(hd)
	p.sl.Start(hl)
	done := make(chan error, 2)
	go func() { done <- p.sd.Rekey(t.Context()) }()
	go func() { done <- p.sl.Rekey(t.Context()) }()
	<-hd.in
	<-hl.in
	close(hd.out)
	close(hl.out)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	p.sd.mu.Lock()
	p.sl.mu.Lock()
	defer p.sd.mu.Unlock()
	defer p.sl.mu.Unlock()
	if p.sd.gen != 1 || p.sl.gen != 1 {
		t.Errorf("generations %d, %d", p.sd.gen, p.sl.gen)
	}
}

func TestRekeyErrors(t *testing.T) {
	p := connect(t, Config{})
	if err := p.sd.Rekey(t.Context()); !errors.Is(err, fi.EOPBADSTATE) {
		t.Errorf("before Start: %v", err)
	}
	p.sd.Start(p.ed)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p.ed.want(t, "install 1")
		cancel()
	}()
	if err := p.sd.Rekey(ctx); !errors.Is(err, fi.ECANCELED) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	p.sl.Start(p.el)
	p.ed.want(t, "switch 1") // the change goes on
}

func TestRekeyOfAWrongGenerationIsAProtocolError(t *testing.T) {
	for _, m := range []message{{kind: kindRekey, gen: 2}, {kind: kindRekey}, {kind: kindRekeyed, gen: 1}, {kind: kindConnect, params: someParams()}} {
		p := connect(t, Config{})
		p.sl.Start(p.el)
		m.params.Security = SecOff
		if err := p.sd.send(&m); err != nil {
			t.Fatal(err)
		}
		p.el.want(t, `protocol error ""`)
		p.sd.Start(p.ed)
		p.ed.want(t, `protocol error ""`)
	}
}

func keyOf(t testing.TB, s *Session, gen uint32) [32]byte {
	t.Helper()
	k, err := s.Key(gen)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestF9SilentPeerIsLost(t *testing.T) {
	// F9: a session ends if nothing is heard for the idle time.
	p := connect(t, Config{Idle: time.Second, KeepAlive: 200 * time.Millisecond})
	p.start()
	p.l.gone()
	p.ed.want(t, `peer lost ""`)
	if PeerLost.Errno() != fi.ETIMEDOUT {
		t.Error("another Errno")
	}
}

func TestSilentSessionStaysAlive(t *testing.T) {
	// Keep-alives keep a session alive through three idle times without a message.
	cfg := Config{Idle: 600 * time.Millisecond, KeepAlive: 150 * time.Millisecond}
	p := connect(t, cfg)
	p.start()
	if p.d.quic.KeepAlivePeriod != cfg.KeepAlive {
		t.Error("no keep-alive")
	}
	<-time.After(3 * cfg.Idle)
	if err := p.sl.Rekey(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestF12RestartedPeerSaysSo(t *testing.T) {
	// F12: a process that was killed and comes back at its address answers the next packet by a
	// stateless reset.
	a := authority(t)
	cert := issue(t, a, "l")
	cfg := Config{Security: SecTLS, TLS: a.TLS(cert), KeepAlive: 100 * time.Millisecond}
	p := connect(t, cfg)
	p.start()
	at := p.l.Addr()
	// By now no packet of the set-up is on its way, which would be answered, too.
	for last, heard := uint64(0), uint64(1); heard != last; {
		last = p.sd.conn.ConnectionStats().PacketsReceived
		<-time.After(50 * time.Millisecond)
		heard = p.sd.conn.ConnectionStats().PacketsReceived
	}
	p.l.gone()
	cfg.Addr = at
	again := open(t, cfg)
	listen(t, again, acceptAll(t))
	p.ed.want(t, `peer restarted ""`)
	if PeerReset.Errno() != fi.ECONNABORTED {
		t.Error("another Errno")
	}
	// F13: it accepts new sessions.
	dial(t, p.d, again).Start(quiet{})
	// Without a secret of its own it cannot send such a reset, and nobody else can.
	if open(t, Config{}).id.resetKey() != nil {
		t.Error("a reset that anybody can forge")
	}
	if k, l := again.id.resetKey(), p.d.id.resetKey(); k == nil || l == nil || *k == *l {
		t.Error("two nodes with one reset key")
	}
}

func TestF23FailingSendIsALoss(t *testing.T) {
	n := open(t, Config{})
	to := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 9} // not reachable from a loopback address
	if _, _, err := n.sock.WriteMsgUDP([]byte("x"), nil, to); err != nil {
		t.Errorf("send: %v", err)
	}
	if st := n.Stats(); st.LostSends != 1 {
		t.Errorf("%+v", st)
	}
}

func TestDialUnreachable(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the Errno is Linux's")
	}
	n := open(t, Config{})
	_, err := n.Dial(t.Context(), netip.MustParseAddrPort("192.0.2.1:9"), params(1000), nil)
	if !errors.Is(err, fi.EINVAL) && !errors.Is(err, fi.ENETUNREACH) {
		t.Errorf("dial: %v", err)
	}
	n.sock.mu.Lock()
	defer n.sock.mu.Unlock()
	if len(n.sock.dialing) != 0 {
		t.Error("a dial is still watched")
	}
}

func TestDialNobodyThere(t *testing.T) {
	const patience = 400 * time.Millisecond
	n := open(t, Config{Handshake: patience})
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(loopback))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // receives packets and sends nothing
	begin := time.Now()
	_, err = n.Dial(t.Context(), c.LocalAddr().(*net.UDPAddr).AddrPort(), params(1000), nil)
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, fi.ETIMEDOUT) {
		t.Errorf("dial: %v", err)
	}
	if d := time.Since(begin); d < patience {
		t.Errorf("given up after %v, want %v", d, patience)
	}
	// A node that does not listen does not answer either.
	m := open(t, Config{})
	if _, err = n.Dial(t.Context(), m.Addr(), params(1000), nil); !errors.Is(err, ErrTimeout) {
		t.Errorf("dial: %v", err)
	}
}

func TestDialChecksWhatItSends(t *testing.T) {
	n := open(t, Config{})
	for _, f := range []func(p *Params, to *netip.AddrPort){
		func(p *Params, _ *netip.AddrPort) { p.Addr = netip.AddrPort{} },
		func(p *Params, _ *netip.AddrPort) { p.JobID = 1 << 24 },
		func(p *Params, _ *netip.AddrPort) { p.Ports = make([]uint16, MaxPorts+1) },
		func(p *Params, _ *netip.AddrPort) { p.Modes = 0x81 },
		func(_ *Params, to *netip.AddrPort) { *to = netip.AddrPort{} },
		func(_ *Params, to *netip.AddrPort) { *to = netip.AddrPortFrom(to.Addr(), 0) },
	} {
		p, to := params(1000), n.Addr()
		f(&p, &to)
		if _, err := n.Dial(t.Context(), to, p, nil); !errors.Is(err, fi.EINVAL) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestWithdrawnRequest(t *testing.T) {
	d, l := open(t, Config{}), open(t, Config{})
	requests := make(chan *Request, 1)
	listen(t, l, func(r *Request) { requests <- r })
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := d.Dial(ctx, l.Addr(), params(1000), nil)
		failed <- err
	}()
	r := <-requests
	select {
	case <-r.Withdrawn():
		t.Error("withdrawn while the peer waits")
	default:
	}
	cancel()
	if err := <-failed; !errors.Is(err, fi.ECANCELED) || !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v", err)
	}
	<-r.Withdrawn()
	if st := l.Stats(); st.Pending != 1 {
		t.Errorf("%+v", st)
	}
	if _, err := r.Accept(params(2000), nil); !errors.Is(err, fi.ECONNABORTED) {
		t.Errorf("accept: %v", err)
	}
	if st := l.Stats(); st.Pending != 0 || st.Sessions != 0 {
		t.Errorf("%+v", st)
	}
	// A deadline that passes is a timeout. On a busy host it may pass before the request is there.
	for patience := 100 * time.Millisecond; ; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := d.Dial(ctx, l.Addr(), params(1000), nil)
		cancel()
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("dial: %v", err)
		}
		select {
		case r := <-requests:
			r.Reject(nil)
			return
		case <-time.After(patience):
		}
	}
}

func TestCloseOfANodeEndsAll(t *testing.T) {
	p := connect(t, Config{})
	p.start()
	requests := make(chan *Request, 1)
	waiting := open(t, Config{})
	listen(t, waiting, func(r *Request) { requests <- r })
	dialed := make(chan error, 1)
	go func() {
		_, err := p.d.Dial(t.Context(), waiting.Addr(), params(1000), nil)
		dialed <- err
	}()
	r := <-requests
	if err := p.d.Close(); err != nil {
		t.Fatal(err)
	}
	p.ed.want(t, `closed ""`)
	p.el.want(t, `closed by the peer ""`)
	if err := <-dialed; !errors.Is(err, ErrClosed) {
		t.Errorf("dial: %v", err)
	}
	<-r.Withdrawn()
	r.Reject(nil)
	if _, err := p.d.Dial(t.Context(), p.l.Addr(), params(1000), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("dial of a closed node: %v", err)
	}
	if err := p.d.Listen(func(*Request) {}); !errors.Is(err, ErrClosed) {
		t.Errorf("listen of a closed node: %v", err)
	}
	if err := p.d.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	// The dialer of a request that waits learns that the listener closed.
	go func() {
		_, err := p.l.Dial(t.Context(), waiting.Addr(), params(1000), nil)
		dialed <- err
	}()
	r = <-requests
	waiting.Close()
	if err := <-dialed; !errors.Is(err, fi.ECONNABORTED) {
		t.Errorf("dial: %v", err)
	}
	if _, err := r.Accept(params(2000), nil); err == nil {
		t.Error("accepted by a closed node")
	}
}

func TestMaxSessions(t *testing.T) {
	d, l := open(t, Config{MaxSessions: 2}), open(t, Config{MaxSessions: 1})
	refused := make(chan error, 1)
	listen(t, l, func(r *Request) {
		s, err := r.Accept(params(2000), nil)
		if err != nil {
			refused <- err
			return
		}
		s.Start(quiet{})
	})
	s := dial(t, d, l)
	s.Start(quiet{})
	if _, err := d.Dial(t.Context(), l.Addr(), params(1000), nil); !errors.Is(err, ErrRefused) {
		t.Errorf("dial: %v", err)
	}
	if err := <-refused; !errors.Is(err, fi.ENOBUFS) {
		t.Errorf("accept: %v", err)
	}
	if st := l.Stats(); st.RefusedSessions != 1 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
}

func TestOpenRefusesConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"no address":      {},
		"security(9)":     {Addr: loopback, Security: 9},
		"needs TLS":       {Addr: loopback, Security: SecTLS},
		"needs PSK":       {Addr: loopback, Security: SecPSK},
		"negative bound":  {Addr: loopback, Backlog: -1},
		"negative time":   {Addr: loopback, Idle: -1},
		"no authority":    {Addr: loopback, Security: SecTLS, TLS: authority(t).TLS(issue(t, authority(t), "n"))},
		"no certificate":  {Addr: loopback, Security: SecTLS, TLS: authority(t).TLS(issue(t, authority(t), "n"))},
		"without a cause": {Addr: netip.MustParseAddrPort("192.0.2.1:9")},
	} {
		switch want {
		case "no authority":
			cfg.TLS.RootCAs, cfg.TLS.ClientCAs = nil, nil
		case "no certificate":
			cfg.TLS.Certificates = nil
		case "without a cause":
			if _, err := Open(cfg); !errors.Is(err, fi.EADDRNOTAVAIL) {
				t.Errorf("foreign address: %v", err)
			}
			continue
		}
		n, err := Open(cfg)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, fi.EINVAL) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	n := open(t, Config{})
	if _, err := Open(Config{Addr: n.Addr()}); !errors.Is(err, fi.EADDRINUSE) {
		t.Errorf("address in use: %v", err)
	}
	listen(t, n, func(*Request) {})
	if err := n.Listen(func(*Request) {}); !errors.Is(err, fi.EOPBADSTATE) {
		t.Errorf("second listen: %v", err)
	}
	if err := n.Listen(nil); !errors.Is(err, fi.EINVAL) {
		t.Errorf("nobody to listen: %v", err)
	}
}

func TestF28DialErrorsHaveErrnos(t *testing.T) {
	// Each way in which a connection ends before the answer has its error.
	app := func(code quic.ApplicationErrorCode) error {
		return &quic.ApplicationError{Remote: true, ErrorCode: code}
	}
	for err, want := range map[error]error{
		app(codeBacklog): ErrRefused, app(codeLate): ErrTimeout, app(codeProtocol): ErrProtocol, app(codeRemoved): fi.EKEYREJECTED,
		app(codeClosed): ErrReset, app(codeWithdrawn): ErrReset, app(99): ErrReset,
		&quic.TransportError{Remote: true, ErrorCode: quic.ConnectionRefused}: ErrRefused,
		&quic.TransportError{ErrorCode: quic.FlowControlError}:                ErrProtocol,
		&quic.TransportError{Remote: true, ErrorCode: 0x100 + 48}:             fi.EKEYREJECTED,
		&quic.IdleTimeoutError{}:                                              ErrTimeout,
		&quic.HandshakeTimeoutError{}:                                         ErrTimeout,
		context.DeadlineExceeded:                                              ErrTimeout,
		&quic.StatelessResetError{}:                                           ErrReset,
		quic.ErrTransportClosed:                                               ErrClosed,
		context.Canceled:                                                      fi.ECANCELED,
		wrong("field"):                                                        ErrProtocol,
		&unknownCritical{1}:                                                   ErrProtocol,
	} {
		if got := dialError(err); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestF28ReasonsHaveErrnos(t *testing.T) {
	for why, want := range map[Reason]fi.Errno{
		LocalClosed: fi.ECANCELED, PeerClosed: fi.ESHUTDOWN, PeerLost: fi.ETIMEDOUT, PeerReset: fi.ECONNABORTED,
		ProtocolError: fi.EPROTO, Removed: fi.EKEYREJECTED, Failed: fi.EIO,
	} {
		if why.Errno() != want || strings.HasPrefix(why.String(), "reason") {
			t.Errorf("%v: %v", why, why.Errno())
		}
	}
}
