// Package msg gives a program connections: FI_EP_MSG endpoints, their passive endpoints, and
// certificates. Import it, under the name _ if for nothing else, and uet has them:
//
//	import _ "github.com/uetkit/uetkit/uet/msg"
//
// It is apart because connection management brings QUIC and TLS into the program. Without it
// uet.GetInfo has no FI_EP_MSG endpoints.
package msg

import (
	"crypto/tls"
	"fmt"

	"github.com/uetkit/uetkit/internal/cm"
	"github.com/uetkit/uetkit/internal/cm/contract"
	"github.com/uetkit/uetkit/uet"
)

// NewTLS makes a Security from a TLS configuration that has the endpoint's certificate and, in
// RootCAs or ClientCAs, the authorities of the others. The name of a member is the common name
// of its certificate, or else the first DNS name. TLS 1.3 and certificates on both sides are
// mandatory. fi.EINVAL: no certificate or no authority.
func NewTLS(c *tls.Config) (*uet.Security, error) { return secure(cm.NewCertificates(c)) }

// LoadTLS reads the certificate of member name from a directory, in PEM: ca.pem has the
// authorities, NAME.pem the certificate, NAME.key its private key. The optional file revoked
// lists removed members, one name a line. A renewed certificate is used for the next
// connections; another authority needs another Security.
func LoadTLS(dir, name string) (*uet.Security, error) { return secure(cm.LoadCertificates(dir, name)) }

func secure(c *contract.Certificates, err error) (*uet.Security, error) {
	if err != nil {
		return nil, fmt.Errorf("uet: security: %w", contract.Unreadable(err, contract.Makes))
	}
	s, err := contract.Secure(c)
	if err != nil {
		return nil, err
	}
	return s.(*uet.Security), nil
}
