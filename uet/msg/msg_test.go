package msg_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/msg"
)

// Importing the package is what gives a program connections.
func TestEndpointsConnect(t *testing.T) {
	hints := &uet.Info{Ep: uet.EpAttr{Type: fi.EpMsg}}
	infos, err := uet.GetInfo("127.0.0.1", "", fi.Source, hints)
	if err != nil || infos[0].Ep.Type != fi.EpMsg {
		t.Fatal(infos, err)
	}
}

func TestCertificates(t *testing.T) {
	for name, c := range map[string]*tls.Config{
		"no TLS configuration": nil, "no certificate": {RootCAs: x509.NewCertPool()}, "no authority": {Certificates: []tls.Certificate{{}}},
	} {
		if _, err := msg.NewTLS(c); !errors.Is(err, fi.EINVAL) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := msg.NewTLS(&tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{{}}})
	if err != nil || s.String() != "security by certificates" {
		t.Fatal(s, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); !errors.Is(err, fi.EBADF) {
		t.Errorf("closed twice: %v", err)
	}
}
