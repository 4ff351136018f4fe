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
// A first packet proves nothing, not even where it came from. So few handshakes begin for
// sources that have not shown that they receive what is sent to them: at most 1/16 of
// MaxHandshakes in flight, at 10 times Rate a second. All others get a Retry, which costs no
// memory. An honest peer comes back one round trip later with an address token.
//
// A source with an address token pays one ticket for each handshake. It has Burst tickets,
// which grow again at Rate. It gets the ticket back when the handshake leads to an
// authenticated session, so members may connect as fast as they can. A source whose certificate
// was refused pays even without an address token, because its answer proved its address. So
// nobody pays for packets that somebody else forged.
//
// One source has at most 1/16 of MaxHandshakes in flight. A source is known if it has a session
// or had one in the last knownTime. Unknown sources leave a quarter of MaxHandshakes to known
// ones. A known source has knownFactor times the tickets and their rate, and as many times the
// handshakes up to half of MaxHandshakes, because the host of a member may also be the host of
// something else.
//
// A source is an IPv4 address or an IPv6 /64. The sources are in a Go map, whose hash is
// seeded. Beyond maxSources those with nothing to remember are removed; if there are none,
// newcomers share one set of tickets.
//
// A peer keeps the address token it gets for the next time, so that it is not lost in a flood
// of Retries.
//
// A refusal is CONNECTION_REFUSED. Dial then tries again until its time is up.

const (
	maxSources  = 4096
	knownTime   = 10 * time.Minute
	knownFactor = 16
)

type admission struct {
	max   int
	rate  float64
	burst float64

	mu       sync.Mutex // guards the fields below
	sources  map[netip.Addr]*source
	others   source // shared by the sources for which sources has no room
	flight   int    // handshakes in flight
	unproven int    // of these, those of sources that sent no address token
	fresh    bucket // tickets for these
	stats    AdmissionStats
}

// A source is what is remembered of an address.
type source struct {
	bucket
	flight   int       // its handshakes in flight, of those with an address token
	sessions int       // its sessions now
	known    time.Time // end of its last session
}

// A bucket has tickets (tokens). They grow at a rate up to a burst.
type bucket struct {
	tokens float64
	at     time.Time // time of tokens; zero means that the bucket is full
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

// share is how many handshakes one source, or all unproven ones, may have in flight.
func (a *admission) share() int { return max(a.max/16, 1) }

func sourceOf(addr net.Addr) netip.Addr {
	ip := addrPort(addr).Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64)
		return p.Addr()
	}
	return ip
}

// find returns the record of a source, nil if there is none.
func (a *admission) find(ip netip.Addr) *source { return a.sources[ip] }

// get returns the record of a source and makes one if there is none.
func (a *admission) get(ip netip.Addr, now time.Time) *source {
	if s := a.sources[ip]; s != nil {
		return s
	}
	if len(a.sources) >= maxSources {
		tries := 0
		for k, s := range a.sources { // Go begins at a random one
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

// idle reports whether nothing would be lost if the source were forgotten.
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

// fillSource lets the tickets of a source grow and reports whether the source is known.
func (a *admission) fillSource(s *source, now time.Time) bool {
	if a.isKnown(s, now) {
		s.fill(now, a.rate*knownFactor, a.burst*knownFactor)
		return true
	}
	s.fill(now, a.rate, a.burst)
	return false
}

// verify reports whether a source without an address token must get one by a Retry.
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

// A handshake is one handshake in flight at the listening side.
type handshake struct {
	a    *admission
	ip   netip.Addr
	src  *source // the source that paid; nil if it sent no address token
	stop func() bool

	over, trusted bool // a.mu guards these
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
		// verify, called just before, let it in.
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

// end removes a handshake from those in flight. Its connection is secure and has sent its
// request, or it ended with cause.
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

// trust gives back what the handshake paid: it led to a peer that may be here.
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

// refusedCertificate reports whether the peer's certificate was refused. The peer showed it in
// answer to our packet, so its address is proven.
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

// The alerts of RFC 8446 §6.2 that say what is wrong with a certificate.
const (
	alertBadCertificate      tls.AlertError = 42
	alertCertificateExpired  tls.AlertError = 45
	alertUnknownCA           tls.AlertError = 48
	alertCertificateRequired tls.AlertError = 116
)

// session adds a session of a source, or with more false removes one.
func (a *admission) session(ip netip.Addr, more bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sources[ip]
	switch {
	case more && s == nil: // beyond maxSources, too: sessions have a bound of their own
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

// handshakeKey is the key of the handshake in the context of a connection.
type handshakeKey struct{}

// maxRetries bounds the Retries that wait to be sent. quic-go has room for 8 and drops the
// rest, among them the answers to honest peers.
const maxRetries = 7

// verifySource reports whether a source must get an address token. The one goroutine that reads
// first packets calls it, and is delayed while Retries wait; a thousand packets may queue
// meanwhile.
func (n *Node) verifySource(addr net.Addr) bool {
	now := time.Now()
	if !n.admission.verify(addr, now) {
		return false
	}
	for n.sock.retries.Load() >= maxRetries {
		if time.Since(now) > time.Millisecond {
			n.sock.retries.Store(0) // one of them was not sent at all
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
