package cm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
)

func init() { contract.Open = provide }

// provided is a Node as endpoints see it.
type provided struct{ *Node }

func provide(c contract.Config) (contract.Node, error) {
	cfg := Config{
		Addr: c.Addr, Ports: c.Ports, Security: c.Security, PSK: c.PSK, Backlog: c.Backlog,
		Handshake: c.Handshake, Idle: c.Idle, KeepAlive: c.KeepAlive,
		MaxHandshakes: c.MaxHandshakes, MaxSessions: c.MaxSessions, Rate: c.Rate, Burst: c.Burst,
	}
	if c.Certificates != nil {
		t, is := c.Certificates.TLS.(*tls.Config)
		if !is {
			return nil, fmt.Errorf("cm: certificates are %T, not *tls.Config: %w", c.Certificates.TLS, fi.EINVAL)
		}
		cfg.TLS = t
	}
	if c.Member != nil {
		cfg.Member = func(name string, _ *x509.Certificate) error { return c.Member(name) }
	}
	n, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	return provided{n}, nil
}

func (n provided) Dial(ctx context.Context, to netip.AddrPort, mine Params, private []byte) (contract.Session, error) {
	return providedSession(n.Node.Dial(ctx, to, mine, private))
}

func (n provided) Listen(f func(contract.Request)) error {
	return n.Node.Listen(func(r *Request) { f(providedRequest{r}) })
}

// A providedRequest is a Request as endpoints see it.
type providedRequest struct{ *Request }

func (r providedRequest) Accept(mine Params, private []byte) (contract.Session, error) {
	return providedSession(r.Request.Accept(mine, private))
}

// providedSession returns a Session as endpoints see it: nil, and not a nil *Session, with an error.
func providedSession(s *Session, err error) (contract.Session, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
