package cm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// An Authority issues the certificates of the members of a cluster.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Format keeps the key out of every print (T40).
func (a *Authority) Format(w fmt.State, _ rune) { fmt.Fprint(w, "cm.Authority{}") }

// NewAuthority makes an authority that is valid until a time.
func NewAuthority(until time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cm: authority: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, fmt.Errorf("cm: authority: %w", err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "uet-cm authority " + serial.Text(16)[:8]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("cm: authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cm: authority: %w", err)
	}
	return &Authority{cert, key}, nil
}

// newSerial returns a random serial number of 127 bits, the highest of them set.
func newSerial() (*big.Int, error) {
	top := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, top)
	if err != nil {
		return nil, err
	}
	return n.Add(n, top), nil
}

// Issue makes the certificate of a member, valid from one time to another.
func (a *Authority) Issue(name string, from, until time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cm: member %q: %w", name, err)
	}
	serial, err := newSerial()
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cm: member %q: %w", name, err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cm: member %q: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cm: member %q: %w", name, err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// TLS returns a configuration of a member for Config.TLS.
func (a *Authority) TLS(member tls.Certificate) *tls.Config { return memberTLS(a.cert, member) }

func memberTLS(ca *x509.Certificate, member tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{Certificates: []tls.Certificate{member}, RootCAs: pool, ClientCAs: pool, MinVersion: tls.VersionTLS13}
}
