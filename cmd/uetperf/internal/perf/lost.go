package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/internal/portrange"
)

// missed explains why a service cannot be reached although the server answers and offers
// others.
func (v service) missed(server netip.AddrPort, offers []string) error {
	at := v.at(server)
	switch {
	case !slices.Contains(offers, v.String()) && v.sec != traffic.Off:
		return fmt.Errorf("the server at %v has no keys for --sec %s: start it with `uetperf serve --keys FOLDER`", server, v.sec)
	case !slices.Contains(offers, v.String()):
		return fmt.Errorf("the server at %v does not offer %v: use the same release at both ends", server, v)
	case v == service{traffic.RDM, traffic.PSK}:
		// Ends with different keys cannot hear each other.
		return unreachablef("the server at %v does not answer at %v: has its --keys FOLDER the same cluster.key, and is there no firewall or NAT in between?", server, at)
	}
	return unreachablef("the server at %v does not answer at %v (UDP): is the port open in firewalls?", server, at)
}

// refused explains why there is no connection.
func (c *Client) refused(e *ConnectError, after time.Duration) error {
	switch {
	case e.Err == fi.ECONNREFUSED && e.Text != "":
		return fmt.Errorf("refused by %v: %s", c.server, e.Text)
	case e.Err == fi.ETIMEDOUT && after < c.cfg.Timeout: // the server rejected it
		return c.silent(after.Round(time.Millisecond))
	case e.Err == fi.ETIMEDOUT:
		return c.silent(c.cfg.Timeout)
	case Unreachable(e.Err):
		return c.nobody()
	}
	if e.Err == fi.EKEYREJECTED {
		text := e.Text[strings.LastIndex(e.Text, "cm: ")+len("cm: "):]
		text, _, _ = strings.Cut(text, " (possibly because")
		text = cryptoError.ReplaceAllString(text, "")
		return fmt.Errorf("no connection to %v: %s; are the --keys of both ends from one `uetperf keys`, not expired, and is nobody removed?", c.server, text)
	}
	return fmt.Errorf("no connection to %v: %s", c.server, e.Text)
}

// cryptoError matches an error number that stands before its text.
var cryptoError = regexp.MustCompile(`CRYPTO_ERROR 0x[0-9a-f]+ \((local|remote)\): `)

// lastWord is how long the control connection may outlast a connection of a test when both
// are ending.
const lastWord = 500 * time.Millisecond

// reason returns err, or the error behind it: when all connections of the client end, or an endpoint of the
// server takes nothing any more, the control connection knows why.
func (c *Client) reason(err error) error { return c.reasonOf(err, func(*message) error { return nil }) }

// reason returns err, or the error behind it: a leg of the server that fails tells why, beside the end of
// its connection.
func (r *clientRun) reason(err error) error {
	return r.c.reasonOf(err, func(m *message) error {
		if m.Type == mFail && m.Run == r.id && errors.Is(err, fi.ESHUTDOWN) {
			return atServer(m)
		}
		return nil
	})
}

// atServer is the error that the server tells of a run.
func atServer(m *message) error { return fmt.Errorf("at the server: %s", m.Error) }

// reasonOf returns err, or the error behind it, which told may find in a message of the server.
func (c *Client) reasonOf(err error, told func(*message) error) error {
	var oe *OpError
	gone := c.svc.ep == traffic.MSG || errors.As(err, &oe) && oe.Entry.Err == fi.ECONNREFUSED
	if err == nil || !gone || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	t := time.NewTimer(lastWord)
	defer t.Stop()
	for {
		select {
		case <-c.lost.is:
			return c.lostError()
		case m := <-c.in:
			if e := told(m); e != nil {
				return e
			}
		case <-t.C:
			return err
		}
	}
}

// lostError explains that the server was lost, or was never there.
func (c *Client) lostError() error {
	var oe *OpError
	if errors.As(c.lost.why, &oe) {
		switch oe.Entry.Err {
		case fi.EHOSTUNREACH:
			return c.nobody()
		case fi.ETIMEDOUT:
			return c.silent(c.cfg.Timeout)
		case fi.ECONNABORTED:
			return unreachablef("the server at %v has been restarted: %v", c.server, oe)
		case fi.ESHUTDOWN:
			return unreachablef("the server at %v closed the connection: it ended, or does not let this member in any more", c.server)
		case fi.EKEYREJECTED:
			return fmt.Errorf("the connection to %v was ended: one of its ends was removed, or its key is no longer good", c.server)
		}
	}
	return c.lost.why
}

// nobody returns the error for a closed port of the server.
func (c *Client) nobody() error {
	if c.dialed.open {
		return unreachablef("nothing listens at %v (UDP) any more, or the host is gone", c.server)
	}
	return &nobodyError{c.server, c.svc.serve()}
}

// A nobodyError means that there never was a server at an address: its port is closed.
type nobodyError struct {
	at    netip.AddrPort
	serve string
}

func (e *nobodyError) Error() string {
	return fmt.Sprintf("nothing listens at %v (UDP), or the host is gone: start `%s` there, or name its port", e.at, e.serve)
}

func (e *nobodyError) Is(target error) bool { return target == ErrUnreachable }

// noPort explains why an endpoint of this end could not be opened.
func noPort(what string, ports portrange.Range, err error) error {
	if !ports.IsZero() && errors.Is(err, fi.EADDRINUSE) {
		return fmt.Errorf("%s: no UDP port of --data-ports %v is free: a test takes one for its control exchange, and one for each stream and path", what, ports)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// A WrongPortError means that the port that was named is one of the ports behind the first one
// of a server.
type WrongPortError struct{ Named, First netip.AddrPort }

func (e *WrongPortError) Error() string {
	what := "probes"
	if i := int(e.Named.Port()) - int(e.First.Port()); i < len(services) {
		what = services[i].String()
	}
	return fmt.Sprintf("port %d is that of the server at %v for %s: name %v, behind which uetperf finds the others", e.Named.Port(), e.First, what, e.First)
}

// Is says that the server was not reached.
func (e *WrongPortError) Is(target error) bool { return target == ErrUnreachable }

// silent returns the error for a server that does not answer.
func (c *Client) silent(timeout time.Duration) error {
	if c.dialed.open {
		return unreachablef("no answer from %v for %v", c.server, timeout)
	}
	return unreachablef("no answer from %v within %v: is `%s` running there, and UDP port %d open in firewalls? `uetperf doctor %s` says which, or that NAT is in between", c.server, timeout, c.svc.serve(), c.server.Port(), c.doctor())
}

// doctor is the HOST that uetperf doctor takes for the server: its first port, if that is not the usual.
func (c *Client) doctor() string {
	first := c.server.Port() - uint16(max(0, slices.Index(services, c.svc)))
	if first == Port {
		return c.server.Addr().String()
	}
	return netip.AddrPortFrom(c.server.Addr(), first).String()
}

// serve is the command that should run on the server's host.
func (v service) serve() string {
	if v.sec != traffic.Off {
		return "uetperf serve --keys FOLDER"
	}
	return "uetperf serve"
}
