package perf

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/transport/wire"
	"github.com/uetkit/uetkit/uet"
)

// With standard encapsulation each end owns port 4793 of its address, which the control exchange
// leaves alone, and test packets go there from several ports.
func TestRunStandard(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one loopback address")
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], rand.Uint32())
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1 + b[1]%254, b[2], 1 + b[3]%254}), 0)
	var there, elsewhere atomic.Int64
	addr := serve(t, ServerConfig{Listen: at})
	for _, ep := range []string{traffic.RDM, traffic.MSG} {
		c := dial(t, addr, ClientConfig{EP: ep, Tap: func(d *uet.Tapped) {
			switch control := ep == traffic.MSG || d.Remote.Port() == addr.Port(); {
			case !d.Sent:
			case d.Remote.Port() == wire.Port:
				there.Add(1)
			case !control:
				elsewhere.Add(1)
			}
		}})
		for _, test := range []string{traffic.Lat, traffic.BW} {
			s := base(test, traffic.TSend, 6000)
			s.EP, s.Encapsulation, s.Paths = ep, traffic.Standard, 4
			if r := run(t, c, s).Run; r.DataCheck.Wrong != 0 || r.DataCheck.OK == 0 || *r.Lost != 0 {
				t.Errorf("%s %s: %+v", ep, test, r.DataCheck)
			}
		}
		// An address has one endpoint.
		s := base(traffic.BW, traffic.TSend, 100)
		s.EP, s.Encapsulation, s.Parallel = ep, traffic.Standard, 2
		if _, err := c.Run(context.Background(), s, Hooks{}); err == nil || !strings.Contains(err.Error(), "one endpoint") {
			t.Errorf("two streams: %v", err)
		}
	}
	// Nor can the server have port 4793.
	at = netip.AddrPortFrom(at.Addr().Next(), wire.Port)
	c := dial(t, serve(t, ServerConfig{Listen: at}), ClientConfig{})
	s := base(traffic.BW, traffic.TSend, 100)
	s.Encapsulation = traffic.Standard
	if _, err := c.Run(context.Background(), s, Hooks{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("start it with --listen %v:4794", at.Addr())) {
		t.Errorf("a test with a server at port 4793: %v", err)
	}
	if there.Load() == 0 || elsewhere.Load() != 0 {
		t.Errorf("%d packets went to port 4793, %d elsewhere", there.Load(), elsewhere.Load())
	}
}
