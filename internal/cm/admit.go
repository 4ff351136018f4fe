package cm

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Admission decides which handshakes may begin (T2, T39).
//
// A first packet proves nothing, not even where it came from. So few handshakes begin
// for sources that have not shown that they receive what is sent to them: at most 1/16 of
// MaxHandshakes in flight, at 10 times Rate a second. All others get a Retry, which costs
// no memory; an honest peer comes back with its token one round trip later.
//
// A source with a token pays one of its Burst tickets, which grow again at Rate, for each
// handshake, and gets it back when the handshake leads to an authenticated session. So
// members may connect as fast as they can. A source whose certificate was refused pays,
// too, even without a token: its answer proved its address. So nobody pays for what came
// from a forged address.
//
// One source has at most 1/16 of MaxHandshakes in flight; sources without a
// session leave a quarter of them to those with one (or that had one in the last
// knownTime), which also have knownFactor times the tokens and the handshakes:
// the host of a member may well be the host of something else.
//
// Sources are IPv4 addresses and IPv6 /64s, kept in a map of the run time, whose
// hash is seeded. Beyond maxSources the ones that have nothing to remember go,
// and if there are none newcomers share one set of tokens.
//
// A peer that was here keeps the token it is given for the next time, so that it
// is not lost in a flood of Retries.
//
// A refusal is CONNECTION_REFUSED, upon which Dial comes again until its time is
// up.

const (
	maxSources  = 4096
	knownTime   = 10 * time.Minute
	knownFactor = 16
)

type admission struct {
	max   int
	rate  float64
	burst float64

	mu       sync.Mutex // guards what follows
	sources  map[netip.Addr]*source
	others   source // shared by all that have no room in sources
	flight   int    // handshakes
	unproven int    // of these, from sources that sent no token
	fresh    bucket // for these
	stats    AdmissionStats
}

// AdmissionStats count the handshakes of the listening side.
type AdmissionStats struct {
	Flight    int    // handshakes in flight now
	Sources   int    // remembered now
	Admitted  uint64 // begun
	Retries   uint64 // answered by a Retry
	BusyTotal uint64 // refused: too many in flight
	BusyOne   uint64 // refused: too many of the source in flight
	BusyRate  uint64 // refused: the source's tokens are used up
	Untrusted uint64 // certificate refused
}

// A source is what is remembered of an address.
type source struct {
	bucket
	flight   int       // handshakes with a token
	sessions int       // now
	known    time.Time // end of the last session
}

// A bucket has tokens, at most burst, growing at rate.
type bucket struct {
	tokens float64
	at     time.Time // of tokens; zero: full
}

func (b *bucket) fill(now time.Time, rate, burst float64) {
	if b.at.IsZero() {
		b.tokens = burst
	} else if d := now.Sub(b.at); d > 0 {
		b.tokens = min(burst, b.tokens+rate*d.Seconds())
	}
	b.at = now
}

func newAdmission(maxFlight int, rate float64, burst int) *admission {
	return &admission{max: maxFlight, rate: rate, burst: float64(burst), sources: map[netip.Addr]*source{}}
}

// share is the part of the bound that one source or the unproven may have.
func (a *admission) share() int { return max(a.max/16, 1) }

func sourceOf(addr net.Addr) netip.Addr {
	ip := addrPort(addr).Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.Addr()
	}
	return ip
}

// find returns what is remembered of a source, nil if nothing.
func (a *admission) find(ip netip.Addr) *source { return a.sources[ip] }

// get is find, and adds the source if it is new.
func (a *admission) get(ip netip.Addr, now time.Time) *source {
	if s := a.sources[ip]; s != nil {
		return s
	}
	if len(a.sources) >= maxSources {
		tries := 0
		for k, s := range a.sources { // begins anywhere
			if a.idle(s, now) {
				delete(a.sources, k)
			}
			if tries++; tries == 32 {
				break
			}
		}
		if len(a.sources) >= maxSources {
			return &a.others
		}
	}
	s := new(source)
	a.sources[ip] = s
	return s
}

// idle reports whether a source may be forgotten without loss.
func (a *admission) idle(s *source, now time.Time) bool {
	if s.flight > 0 || a.isKnown(s, now) {
		return false
	}
	s.fill(now, a.rate, a.burst)
	return s.tokens >= a.burst
}

func (a *admission) isKnown(s *source, now time.Time) bool {
	return s.sessions > 0 || !s.known.IsZero() && now.Sub(s.known) < knownTime
}

// fillSource lets the tokens of a source grow and reports whether it is known.
func (a *admission) fillSource(s *source, now time.Time) bool {
	if a.isKnown(s, now) {
		s.fill(now, a.rate*knownFactor, a.burst*knownFactor)
		return true
	}
	s.fill(now, a.rate, a.burst)
	return false
}

// verify reports whether a source without a token must get one by a Retry.
func (a *admission) verify(addr net.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh.fill(now, 10*a.rate, float64(a.share()))
	retry := a.unproven >= a.share() || a.fresh.tokens < 1
	if !retry {
		if s := a.find(sourceOf(addr)); s != nil {
			a.fillSource(s, now)
			retry = s.tokens < 1
		}
	}
	if retry {
		a.stats.Retries++
	}
	return retry
}

// A handshake is one in flight at the listening side.
type handshake struct {
	a    *admission
	ip   netip.Addr
	src  *source // that was charged; nil: the source sent no token
	stop func() bool

	over, trusted bool // guarded by a.mu
}

var errBusy = errors.New("cm: busy")

// admit lets a handshake begin or refuses it.
func (a *admission) admit(addr net.Addr, proven bool, now time.Time) (*handshake, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := &handshake{a: a, ip: sourceOf(addr)}
	if a.flight >= a.max {
		a.stats.BusyTotal++
		return nil, errBusy
	}
	if !proven {
		// verify let it in, and was asked just before.
		a.fresh.fill(now, 10*a.rate, float64(a.share()))
		a.fresh.tokens--
		a.unproven++
	} else {
		s := a.get(h.ip, now)
		known := a.fillSource(s, now)
		most := a.share()
		if known {
			most = min(most*knownFactor, a.max/2)
		}
		switch {
		case !known && a.flight >= a.max-a.max/4:
			a.stats.BusyTotal++
			return nil, errBusy
		case s.flight >= most:
			a.stats.BusyOne++
			return nil, errBusy
		case s.tokens < 1:
			a.stats.BusyRate++
			return nil, errBusy
		}
		s.tokens--
		s.flight++
		h.src = s
	}
	a.flight++
	a.stats.Admitted++
	return h, nil
}

// end takes a handshake out of those in flight: its connection is secure and has
// said what it wants, or it ended with cause.
func (h *handshake) end(cause error, now time.Time) {
	a := h.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.over {
		return
	}
	h.over = true
	a.flight--
	if h.src != nil {
		h.src.flight--
	} else {
		a.unproven--
	}
	if !refusedCertificate(cause) {
		return
	}
	a.stats.Untrusted++
	if h.src == nil {
		s := a.get(h.ip, now)
		a.fillSource(s, now)
		s.tokens = max(s.tokens-1, -a.burst)
	}
}

// trust gives back what the handshake was charged: it led to a peer that may be
// here.
func (h *handshake) trust() {
	a := h.a
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case h.trusted:
	case h.src != nil:
		h.src.tokens++
	default:
		a.fresh.tokens++
	}
	h.trusted = true
}

// refusedCertificate reports whether the peer's certificate was refused. The peer showed
// it in answer to our packet, so its address is proven.
func refusedCertificate(err error) bool {
	var te *quic.TransportError
	if !errors.As(err, &te) || te.Remote || !te.ErrorCode.IsCryptoError() {
		return false
	}
	switch tls.AlertError(te.ErrorCode - 0x100) {
	case alertBadCertificate, 43, 44, alertCertificateExpired, 46, alertUnknownCA, 51, alertCertificateRequired:
		return true
	}
	return false
}

// Alerts of RFC 8446 §6.2 that say what is wrong with a certificate.
const (
	alertBadCertificate      tls.AlertError = 42
	alertCertificateExpired  tls.AlertError = 45
	alertUnknownCA           tls.AlertError = 48
	alertCertificateRequired tls.AlertError = 116
)

// session counts a session of a source in, or out.
func (a *admission) session(ip netip.Addr, more bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sources[ip]
	switch {
	case more && s == nil: // beyond maxSources too: sessions have a bound of their own
		a.sources[ip] = &source{sessions: 1}
	case more:
		s.sessions++
	case s != nil && s.sessions > 0:
		s.sessions--
		s.known = now
	}
}

func (a *admission) snapshot() AdmissionStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	st := a.stats
	st.Flight, st.Sources = a.flight, len(a.sources)
	return st
}

// handshakeKey finds the handshake in the context of a connection.
type handshakeKey struct{}

// maxRetries is how many Retries may wait to be sent: quic-go has room for 8 and
// drops the rest, the answers to honest peers among them.
const maxRetries = 7

// verifySource reports whether a source has to get a token. It is called by the
// one goroutine that takes first packets, and holds it up while Retries wait: a
// thousand packets may queue before it.
func (n *Node) verifySource(addr net.Addr) bool {
	now := time.Now()
	if !n.admission.verify(addr, now) {
		return false
	}
	for n.sock.retries.Load() >= maxRetries {
		if time.Since(now) > time.Millisecond {
			n.sock.retries.Store(0) // one that was not sent at all
		}
		runtime.Gosched()
	}
	n.sock.retries.Add(1)
	return true
}

func (n *Node) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	h, err := n.admission.admit(info.RemoteAddr, info.AddrVerified, time.Now())
	if err != nil {
		return nil, err
	}
	h.stop = context.AfterFunc(ctx, func() { h.end(context.Cause(ctx), time.Now()) })
	return context.WithValue(ctx, handshakeKey{}, h), nil
}
