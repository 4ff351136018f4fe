// Package keys manages a folder of keys for tests: an authority with the certificates it
// signed, and a cluster key.
//
//	ca.pem, ca.key      the authority
//	NAME.pem, NAME.key  the certificate of member NAME and its private key
//	cluster.key         the cluster key
//	revoked             names of members that are no longer let in
//
// msg.LoadTLS and uet.LoadClusterKey read this layout. A host needs ca.pem,
// cluster.key, and its own NAME.pem and NAME.key. Nothing here prints a key.
package keys

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/msg"
)

// The names of files and of the usual members.
const (
	authorityName = "ca"
	clusterFile   = "cluster.key"
	revokedFile   = "revoked"

	Server = "server" // default name of `uetperf serve`
	Client = "client" // default name of all other commands
)

// Life is how long certificates are valid. It is short because they are for tests.
const Life = 365 * 24 * time.Hour

// slack is how far the clocks of two hosts may differ.
const slack = time.Hour

// Make creates the keys in dir, which must hold none yet, with certificates for the
// members. It returns the names of the files. If it fails it leaves no file behind.
func Make(dir string, members []string, now time.Time) (files []string, err error) {
	if len(members) == 0 {
		members = []string{Server, Client}
	}
	for i, m := range members {
		if err := checkName(m); err != nil {
			return nil, err
		}
		if slices.Contains(members[:i], m) {
			return nil, fmt.Errorf("member %q is named twice", m)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("no folder %s can be made: %w: name another place", dir, err)
	}
	made := []string{authorityName + ".pem", authorityName + ".key", clusterFile}
	for _, m := range members {
		made = append(made, m+".pem", m+".key")
	}
	for _, f := range append([]string{revokedFile}, made...) {
		if _, err := os.Lstat(filepath.Join(dir, f)); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s exists: keys are never overwritten; name another folder, or remove this one", filepath.Join(dir, f))
		}
	}
	defer func() {
		if err != nil {
			for _, f := range files {
				_ = os.Remove(filepath.Join(dir, f))
			}
			files = nil
		}
	}()
	ca, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	save := func(name, kind string, der []byte) error {
		if err := write(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})); err != nil {
			return err
		}
		files = append(files, name)
		return nil
	}
	pair := func(name string, cert []byte, key *ecdsa.PrivateKey) error {
		raw, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return err
		}
		defer clear(raw)
		return errors.Join(save(name+".pem", "CERTIFICATE", cert), save(name+".key", "PRIVATE KEY", raw))
	}
	if err := pair(authorityName, ca.cert.Raw, ca.key); err != nil {
		return files, err
	}
	for _, m := range members {
		cert, key, err := ca.member(m, now)
		if err != nil {
			return files, err
		}
		if err := pair(m, cert, key); err != nil {
			return files, err
		}
	}
	if err := uet.WriteClusterKey(filepath.Join(dir, clusterFile), uet.NewKey(1)); err != nil {
		return files, err
	}
	return append(files, clusterFile), nil
}

// checkName returns an error if a name cannot be a member's.
func checkName(name string) error {
	switch {
	case name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, " \t\r\n#\\") || len(name) > 64:
		return fmt.Errorf("member %q is no file name of at most 64 letters", name)
	case name == authorityName || name+".key" == clusterFile:
		return fmt.Errorf("member %q would have the files of something else: take another name", name)
	}
	return nil
}

// write creates a file that only its owner can read.
func write(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := template("uetperf test authority", now)
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero, t.KeyUsage = true, true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

func template(name string, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-slack), NotAfter: now.Add(Life),
	}, nil
}

// member creates the certificate of a member.
func (a *authority) member(name string, now time.Time) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	t, err := template(name, now)
	if err != nil {
		return nil, nil, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(name); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{name}
	}
	der, err = x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	return der, key, err
}

// Rotate takes the next of three steps to another cluster key. The first makes a new key
// that opens packets, the second seals with the new key, the third removes the old one.
// Every host must get the file between two steps, so that all hosts can open each other's
// packets at any time. said describes the step and what to do next.
func Rotate(dir string) (said string, err error) {
	path := filepath.Join(dir, clusterFile)
	keys, err := uet.ReadClusterKey(path)
	if err != nil {
		return "", explain(dir, err)
	}
	defer clear(keys)
	first := keys[0].Generation // the key that seals
	switch {
	case len(keys) == 1:
		next := uet.NewKey(first + 1)
		next.Next = true
		keys = append(keys, next)
		defer clear(keys)
		said = fmt.Sprintf("generation %d is made: it opens packets, generation %d still seals them; give all hosts the file, then --rotate again", first+1, first)
	case keys[1].Next:
		keys[1].Next = false
		said = fmt.Sprintf("generation %d seals from now on, generation %d still opens; give all hosts the file, then --rotate again", keys[1].Generation, first)
	default:
		said = fmt.Sprintf("generation %d is gone: who has only that one is out; give all hosts the file", keys[1].Generation)
		keys = keys[:1]
	}
	return said, uet.WriteClusterKey(path, keys...)
}

// Remove adds a member to the list of those that are no longer let in.
func Remove(dir, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	names, err := Members(dir)
	if err != nil {
		return err
	}
	if !slices.Contains(names, name) {
		if _, err := os.Stat(filepath.Join(dir, name+".pem")); err != nil {
			return fmt.Errorf("%s has no certificate of %q; there are %s", dir, name, strings.Join(names, ", "))
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, revokedFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, name)
	return errors.Join(err, f.Close())
}

// Members returns the names of the members whose private key is in dir.
func Members(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, explain(dir, err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".key"); ok && checkName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// LoadPSK reads the cluster key.
func LoadPSK(dir string) (*uet.Security, error) {
	s, err := uet.LoadClusterKey(filepath.Join(dir, clusterFile))
	return s, explain(dir, err)
}

// LoadTLS reads the certificate of the named member. If name is "" it reads that of usual,
// or else the only one there is.
func LoadTLS(dir, name, usual string) (*uet.Security, error) {
	if name == "" {
		names, err := Members(dir)
		switch {
		case err != nil:
			return nil, err
		case slices.Contains(names, usual):
			name = usual
		case len(names) == 1:
			name = names[0]
		case len(names) == 0:
			return nil, explain(dir, fs.ErrNotExist)
		default:
			return nil, fmt.Errorf("%s has certificates of %s: say which is this end's with --as NAME", dir, strings.Join(names, ", "))
		}
	}
	if names, err := Members(dir); err == nil && len(names) > 0 && !slices.Contains(names, name) && checkName(name) == nil {
		return nil, fmt.Errorf("%s has no certificate of %q; there are %s: name one of them, --as NAME", dir, name, strings.Join(names, ", "))
	}
	s, err := msg.LoadTLS(dir, name)
	return s, explain(dir, err)
}

// Loose returns one line for each secret in dir that others than its owner can read, with
// the command that mends it.
func Loose(dir string) []string {
	var out []string
	files, _ := filepath.Glob(filepath.Join(dir, "*.key"))
	for _, f := range files {
		if st, err := os.Stat(f); err == nil && st.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			out = append(out, fmt.Sprintf("%s is open to others than its owner: chmod 600 %s", f, f))
		}
	}
	return out
}

// explain adds how to make keys to an error that says there are none.
func explain(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		var file *fs.PathError
		if errors.As(err, &file) { // what makes it is said below
			err = file
		}
		return fmt.Errorf("no keys in %s (%w): make some by `uetperf keys %s`", dir, err, dir)
	}
	return err
}
