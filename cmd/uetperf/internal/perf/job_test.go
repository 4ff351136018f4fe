package perf

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A message of another program that finds the port of a test's endpoint is not of the test: the
// endpoint refuses it.
func TestStrangerIsRefused(t *testing.T) {
	ports := make(chan uint16, 1)
	addr := serve(t, ServerConfig{Opened: func(ep *uet.Endpoint, kind string) {
		if kind == "test" {
			a, err := ep.Name()
			if err != nil {
				t.Error(err)
			}
			ports <- a.AddrPort().Port()
		}
	}})
	c := dial(t, addr, ClientConfig{})
	s := base(traffic.BW, traffic.TSend, 1000)
	stray := func() error {
		info, err := infoTo(addr, "", hints(&s, nil, time.Second, time.Second))
		if err != nil {
			return err
		}
		e, err := openEnd(info, 64)
		if err != nil {
			return err
		}
		defer e.close()
		to, err := e.insert(netip.AddrPortFrom(addr.Addr(), <-ports))
		if err != nil {
			return err
		}
		if err := e.ep.TSend(make([]byte, 64), to, tagBase|3, nil); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err = e.cq.SReadContext(ctx, make([]cq.Entry, 1)); !errors.Is(err, fi.EAVAIL) {
			return err
		}
		var bad cq.Error
		if _, err := e.cq.ReadErr(&bad, 0); err != nil {
			return err
		}
		return bad.Err
	}
	var other error
	res, err := c.Run(context.Background(), s, Hooks{Begin: func(context.Context) error {
		other = stray()
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(other, fi.EACCES) {
		t.Errorf("the other program's message: %v, want %v", other, fi.EACCES)
	}
	if d := res.Run.DataCheck; d.Wrong != 0 || d.OK != 210 {
		t.Errorf("%+v, want 210 ok", d)
	}
}
