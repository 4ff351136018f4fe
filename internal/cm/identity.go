package cm

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/uetkit/uetkit/fi"
)

// alpnPrefix and a version name the one protocol that a node speaks.
const alpnPrefix = "uet-cm/"

func alpn(version uint16) string { return alpnPrefix + strconv.Itoa(int(version)) }

// alpnVersion returns the version in a name of our protocol.
func alpnVersion(name string) (uint16, bool) {
	digits, ok := strings.CutPrefix(name, alpnPrefix)
	v, err := strconv.ParseUint(digits, 10, 16)
	return uint16(v), ok && err == nil && alpn(uint16(v)) == name
}

// Issuers that tell the kind of a certificate, so that a dialer of another kind can say what
// differs.
const (
	nameAnonymous = "uet-cm anonymous"
	namePSK       = "uet-cm cluster key"
)

// An identity is how a node proves itself and checks others.
type identity struct {
	n      *Node
	client *tls.Config // for every dial

	mu    sync.Mutex
	psk   *pskIdentity // of the latest keys
	serve *tls.Config  // for every connection of our version; with SecPSK without the keys
}

func newIdentity(n *Node) (*identity, error) {
	id := &identity{n: n}
	c := &tls.Config{}
	switch cfg := &n.cfg; cfg.Security {
	case SecOff:
		cert, err := anonymous()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{cert}
	case SecTLS:
		c = cfg.TLS.Clone()
		if c.RootCAs == nil {
			c.RootCAs = c.ClientCAs
		}
		if c.ClientCAs == nil {
			c.ClientCAs = c.RootCAs
		}
		if c.RootCAs == nil {
			return nil, fmt.Errorf("TLS names no authority: %w", fi.EINVAL)
		}
		if len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil) {
			return nil, fmt.Errorf("TLS has no certificate: %w", fi.EINVAL)
		}
	case SecPSK:
		if _, err := id.keys(); err != nil {
			return nil, err
		}
	}
	c.MinVersion, c.MaxVersion = tls.VersionTLS13, tls.VersionTLS13
	c.NextProtos = []string{alpn(n.version)}
	c.SessionTicketsDisabled = true
	c.ClientSessionCache, c.UnwrapSession, c.WrapSession = nil, nil, nil
	c.GetConfigForClient, c.VerifyPeerCertificate = nil, nil
	c.KeyLogWriter = n.cfg.KeyLog

	id.client = c.Clone()
	id.client.InsecureSkipVerify = true // verifyServer verifies, without a host name
	id.client.VerifyConnection = id.verifyServer
	if n.cfg.Security == SecTLS && c.GetClientCertificate == nil {
		// Show a certificate even if the listener will not accept it, so that the listener says
		// why, and not that there is none.
		certs := c.Certificates
		id.client.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for i := range certs {
				if info.SupportsCertificate(&certs[i]) == nil {
					return &certs[i], nil
				}
			}
			return &certs[0], nil
		}
	}
	if n.cfg.Security == SecPSK {
		id.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			p, err := id.keys()
			if err != nil {
				return nil, err
			}
			return &p.cert, nil
		}
	}

	id.serve = c
	c.InsecureSkipVerify = false
	c.ClientAuth, c.VerifyConnection = tls.RequireAndVerifyClientCert, id.verifyClient
	if n.cfg.Security == SecOff {
		c.ClientAuth, c.VerifyConnection = tls.NoClientCert, nil
	}
	return id, nil
}

// server returns the configuration of the listening side, which depends on the peer's version.
func (id *identity) server() *tls.Config {
	c := id.serve.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := id.serving()
		if err != nil {
			return nil, err
		}
		// A peer of another version gets a connection, as secure as any, on which to be told
		// our version. It does not become a request.
		var other string
		for _, p := range hello.SupportedProtos {
			switch v, ok := alpnVersion(p); {
			case ok && v == id.n.version:
				return c, nil
			case ok && other == "":
				other = p
			}
		}
		if other != "" {
			c = c.Clone()
			c.NextProtos = []string{other}
		}
		return c, nil
	}
	return c
}

// serving returns id.serve, with the current keys.
func (id *identity) serving() (*tls.Config, error) {
	if id.n.cfg.Security != SecPSK {
		return id.serve, nil
	}
	p, err := id.keys()
	if err != nil {
		return nil, err
	}
	return p.serve, nil
}

// verifyServer is the dialer's check of the listener's certificate.
func (id *identity) verifyServer(cs tls.ConnectionState) error {
	mine, theirs := id.n.cfg.Security, kindOf(cs.PeerCertificates[0])
	if mine != theirs {
		return &MismatchError{"security", mine.String(), theirs.String()}
	}
	opts := x509.VerifyOptions{Roots: id.client.RootCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if id.client.Time != nil {
		opts.CurrentTime = id.client.Time()
	}
	switch mine {
	case SecOff:
		return nil
	case SecPSK:
		p, err := id.keys()
		if err != nil {
			return err
		}
		opts.Roots = p.pool
	}
	for _, c := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	if _, err := cs.PeerCertificates[0].Verify(opts); err != nil {
		return err
	}
	return id.member(cs.PeerCertificates[0])
}

// verifyClient is the listener's check, after TLS has verified the chain.
func (id *identity) verifyClient(cs tls.ConnectionState) error {
	return id.member(cs.PeerCertificates[0])
}

// member asks Config.Member about a valid certificate.
func (id *identity) member(cert *x509.Certificate) error {
	if id.n.cfg.Member == nil || id.n.cfg.Security != SecTLS {
		return nil
	}
	if err := id.n.cfg.Member(nameOf(cert), cert); err != nil {
		return fmt.Errorf("member %q: %w", nameOf(cert), err)
	}
	return nil
}

// good reports whether the peer of a session is still a member.
func (id *identity) good(s *Session) error {
	if s.cert == nil {
		return nil
	}
	if id.n.cfg.Security != SecPSK {
		return id.member(s.cert)
	}
	p, err := id.keys()
	if err != nil {
		return err
	}
	if s.goodWith.Load() == p {
		return nil
	}
	for _, ca := range p.authorities {
		if s.cert.CheckSignatureFrom(ca) == nil {
			s.goodWith.Store(p)
			return nil
		}
	}
	return errors.New("its cluster key is no longer good")
}

// kindOf returns the kind of node that shows a certificate.
func kindOf(cert *x509.Certificate) Security {
	switch cert.Issuer.CommonName {
	case nameAnonymous:
		return SecOff
	case namePSK:
		return SecPSK
	}
	return SecTLS
}

// nameOf returns the name of a member.
func nameOf(cert *x509.Certificate) string {
	if cert.Subject.CommonName == "" && len(cert.DNSNames) > 0 {
		return cert.DNSNames[0]
	}
	return cert.Subject.CommonName
}

var farFuture = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// anonymous makes a certificate that proves nothing.
func anonymous() (tls.Certificate, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: nameAnonymous},
		NotBefore: time.Unix(0, 0), NotAfter: farFuture,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, pub, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// MinPSK is the least length of a cluster key, in bytes.
const MinPSK = 16

// pskLife is how long a certificate of the cluster key is valid before and after it was made:
// the clocks of a cluster may be that far apart. Its private key never leaves the process and
// is renewed after half this time.
const pskLife = 24 * time.Hour

// A pskIdentity is what a node proves and accepts with a set of cluster keys.
type pskIdentity struct {
	hash        [32]byte // hash of the keys
	authorities []*x509.Certificate
	pool        *x509.CertPool
	cert        tls.Certificate // ours, signed by the first authority
	made        time.Time
	serve       *tls.Config
}

// pskAuthority makes the authority of a key. Every node makes the same.
func pskAuthority(key []byte) (*x509.Certificate, ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, key, nil, "uet-cm authority", ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	priv := ed25519.NewKeyFromSeed(seed)
	id := sha256.Sum256(priv.Public().(ed25519.PublicKey))
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: namePSK},
		NotBefore: time.Unix(0, 0), NotAfter: farFuture,
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: id[:20],
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, priv.Public(), priv)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, priv, err
}

// keys asks for the cluster keys and, if they have changed, derives the identity from them.
func (id *identity) keys() (*pskIdentity, error) {
	keys := id.n.cfg.PSK()
	if len(keys) == 0 {
		return nil, fmt.Errorf("no cluster key: %w", fi.EKEYREJECTED)
	}
	h := sha256.New()
	for i, k := range keys {
		if len(k) < MinPSK {
			return nil, fmt.Errorf("cluster key %d has %d bytes, less than %d: %w", i, len(k), MinPSK, fi.EINVAL)
		}
		h.Write(be32(uint32(len(k))))
		h.Write(k)
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	now := time.Now()
	if p := id.psk; p != nil && bytes.Equal(p.hash[:], h.Sum(nil)) && now.Sub(p.made).Abs() < pskLife/2 {
		return p, nil
	}
	p := &pskIdentity{hash: [32]byte(h.Sum(nil)), pool: x509.NewCertPool(), made: now.Round(0)}
	var first ed25519.PrivateKey
	for _, k := range keys {
		ca, priv, err := pskAuthority(k)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = priv
		}
		p.authorities = append(p.authorities, ca)
		p.pool.AddCert(ca)
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: "uet-cm node"},
		NotBefore: now.Add(-pskLife), NotAfter: now.Add(pskLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.authorities[0], pub, first)
	if err != nil {
		return nil, err
	}
	p.cert = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: priv}
	if id.serve != nil {
		p.serve = id.serve.Clone()
		p.serve.Certificates, p.serve.ClientCAs = []tls.Certificate{p.cert}, p.pool
		id.psk = p
	}
	return p, nil
}

// resetKey returns the secret with which a later process at the same address can tell our peers
// that this one is gone. It is derived from what both processes have. Without it peers find out
// by silence: without security, and with private keys that cannot be read.
func (id *identity) resetKey() *quic.StatelessResetKey {
	var secret []byte
	switch id.n.cfg.Security {
	case SecPSK:
		keys := id.n.cfg.PSK()
		if len(keys) == 0 {
			return nil
		}
		secret = keys[0]
	case SecTLS:
		cert, err := id.own()
		if err != nil {
			return nil
		}
		key, ok := cert.PrivateKey.(crypto.Signer)
		if !ok {
			return nil
		}
		if secret, err = x509.MarshalPKCS8PrivateKey(key); err != nil {
			return nil
		}
	default:
		return nil
	}
	k, err := hkdf.Key(sha256.New, secret, nil, "uet-cm stateless reset "+id.n.addr.String(), 32)
	if err != nil {
		return nil
	}
	return (*quic.StatelessResetKey)(k)
}

// own returns the certificate that a dial shows.
func (id *identity) own() (*tls.Certificate, error) {
	c := id.n.cfg.TLS
	if c.GetClientCertificate == nil {
		return &c.Certificates[0], nil
	}
	cert, err := c.GetClientCertificate(&tls.CertificateRequestInfo{Version: tls.VersionTLS13})
	if err == nil && (cert == nil || len(cert.Certificate) == 0) {
		err = errors.New("no certificate")
	}
	return cert, err
}

// Format keeps secrets out of all output (T40).
func (c Config) Format(w fmt.State, _ rune) {
	fmt.Fprintf(w, "cm.Config{%v security=%v}", c.Addr, c.Security)
}
