package cm

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/cm/contract"
)

// NewCertificates returns those of a TLS configuration, which has the certificate of the member
// and in RootCAs or ClientCAs the authorities of the others. It is cloned.
func NewCertificates(c *tls.Config) (*contract.Certificates, error) {
	switch {
	case c == nil:
		return nil, fmt.Errorf("no TLS configuration: %w", fi.EINVAL)
	case len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil):
		return nil, fmt.Errorf("the TLS configuration has no certificate; set Certificates: %w", fi.EINVAL)
	case c.RootCAs == nil && c.ClientCAs == nil:
		return nil, fmt.Errorf("the TLS configuration names no authority; set RootCAs: %w", fi.EINVAL)
	}
	return &contract.Certificates{TLS: c.Clone()}, nil
}

// Names of the files in the directory of LoadCertificates.
const (
	caFile      = "ca.pem"
	revokedFile = "revoked"
)

// LoadCertificates returns those of a directory: ca.pem has the authorities, NAME.pem and
// NAME.key the certificate of the member and its private key.
func LoadCertificates(dir, name string) (*contract.Certificates, error) {
	if name == "" || name != filepath.Base(name) {
		return nil, fmt.Errorf("member name %q is no file name: %w", name, fi.EINVAL)
	}
	pem, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM: %w", filepath.Join(dir, caFile), fi.EINVAL)
	}
	var own present
	certs := &contract.Certificates{
		TLS: &tls.Config{
			RootCAs: pool, ClientCAs: pool,
			GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own.get() },
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own.get() },
		},
		CertFile: filepath.Join(dir, name+".pem"), KeyFile: filepath.Join(dir, name+".key"), RevokedFile: filepath.Join(dir, revokedFile),
		Forget: func() { own.set(nil) },
	}
	certs.Load = func() (func(), error) {
		c, err := tls.LoadX509KeyPair(certs.CertFile, certs.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate of %s: %w", name, err)
		}
		return func() { own.set(&c) }, nil
	}
	return certs, nil
}

// A present certificate is the one that files had when they were last read, or none.
type present struct {
	mu   sync.Mutex
	cert *tls.Certificate
}

func (p *present) get() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cert == nil {
		return nil, fmt.Errorf("cm: the certificate was forgotten: %w", fi.EBADF)
	}
	return p.cert, nil
}

func (p *present) set(c *tls.Certificate) {
	p.mu.Lock()
	p.cert = c
	p.mu.Unlock()
}
