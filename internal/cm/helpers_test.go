package cm

import (
	"bytes"
	"crypto/tls"
	"testing"
	"time"
)

func authority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority(time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t testing.TB, a *Authority, name string) tls.Certificate {
	t.Helper()
	return issueFor(t, a, name, -time.Hour, time.Hour)
}

// issueFor issues a certificate that is valid from and until a time from now.
func issueFor(t testing.TB, a *Authority, name string, from, until time.Duration) tls.Certificate {
	t.Helper()
	c, err := a.Issue(name, time.Now().Add(from), time.Now().Add(until))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// key is a cluster key.
func key(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// quiet is a Handler that ignores all events.
type quiet struct{}

func (quiet) InstallKey(uint32)     {}
func (quiet) SwitchKey(uint32)      {}
func (quiet) Closed(Reason, []byte) {}
