package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/probe"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// Facts are what a host says of itself to a doctor.
type Facts struct {
	// Seen is the asker's address as this host sees it, Here its own; not valid of
	// a host that describes itself.
	Seen netip.AddrPort `json:"seen"`
	Here netip.AddrPort `json:"here"`
	// Probe is the UDP port that answers probes; 0: none.
	Probe uint16 `json:"probe,omitempty"`
	// Services are what a server offers.
	Services []string    `json:"services,omitempty"`
	Path     record.Path `json:"path"`
	// RcvShort and SndShort: the system gave smaller socket buffers than asked for.
	RcvShort bool          `json:"rcv_short,omitempty"`
	SndShort bool          `json:"snd_short,omitempty"`
	Dropped  uint64        `json:"dropped"` // by the kernel, of the control endpoint
	Clients  int           `json:"clients"` // the asker is one
	Time     time.Time     `json:"time"`
	CPUs     int           `json:"cpus"`     // processors of the host
	Allowed  int           `json:"allowed"`  // those that the process may use
	Governor string        `json:"governor"` // of the first processor; "": not known
	Clock    string        `json:"clock"`    // clock source; "": not known
	Load     float64       `json:"load"`     // runnable processes, mean of a minute; negative: not known
	Lag      time.Duration `json:"lag"`      // the latest that the process woke up, of many times
}

const (
	// lagFor is how long a host measures how late it is.
	lagFor   = 400 * time.Millisecond
	lagSleep = 5 * time.Millisecond
)

// ThisHostFacts measures this host. It takes lagFor.
func ThisHostFacts() Facts {
	f := Facts{
		CPUs: runtime.NumCPU(), Allowed: runtime.NumCPU(), Load: -1,
		Governor: firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Clock:    firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
	}
	if n := allCPUs(); n > 0 {
		f.CPUs = n // runtime.NumCPU counts those that the process may use
	}
	if s := firstLine("/proc/loadavg"); s != "" {
		_, _ = fmt.Sscanf(s, "%g", &f.Load)
	}
	for end := time.Now().Add(lagFor); time.Now().Before(end); {
		t := time.Now()
		time.Sleep(lagSleep)
		f.Lag = max(f.Lag, time.Since(t)-lagSleep)
	}
	f.Time = time.Now()
	return f
}

func firstLine(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(s)
}

// allCPUs is how many processors the host has; 0: not known.
func allCPUs() int {
	n := 0
	for _, part := range strings.Split(firstLine("/sys/devices/system/cpu/online"), ",") {
		var a, b int
		switch k, _ := fmt.Sscanf(part, "%d-%d", &a, &b); k {
		case 1:
			n++
		case 2:
			n += b - a + 1
		}
	}
	return n
}

// ErrOlder says that the server knows nothing of what it is asked.
var ErrOlder = errors.New("the server is older than this program")

// Facts asks the server for them.
func (c *Client) Facts(ctx context.Context) (*Facts, error) {
	if !c.dialed.facts {
		return nil, ErrOlder
	}
	if err := c.send(&message{Type: mFacts}); err != nil {
		return nil, err
	}
	m, err := c.await(ctx, c.cfg.Timeout, mFacts)
	switch {
	case err != nil:
		return nil, err
	case m.Facts == nil:
		return nil, errors.New("the server's answer has nothing in it")
	}
	return m.Facts, nil
}

// facts are those that a session is told.
func (ss *session) facts() *Facts {
	f := ThisHostFacts()
	f.Seen, f.Here = ss.addr, ss.ctl.end.local
	f.Services = ss.srv.Services()
	// What a test would get, which asks for more than a control endpoint.
	if infos, err := uet.GetInfo(f.Here.Addr().String(), "", fi.Source|uet.NumericHost, nil); err == nil {
		if p, err := Probe(infos[0]); err == nil {
			f.Path, f.RcvShort, f.SndShort = PathOf(&p), p.Socket.RecvBuf.Short, p.Socket.SendBuf.Short
		}
	}
	f.Dropped = ss.ctl.end.ep.Stats().Socket.KernelDrops
	f.Clients = ss.srv.Clients()
	for _, e := range ss.srv.ports.echoes {
		if e.Addr().Addr() == f.Here.Addr() {
			f.Probe = e.Addr().Port()
		}
	}
	return &f
}

// ProbePort is the port, from the first of a server on, that answers probes.
var ProbePort = len(services)

// openEcho lets probes be answered at an address whose first port is open. That it
// cannot be is no reason not to serve.
func (s *Server) openEcho(first netip.AddrPort) {
	if s.cfg.Pretend.Older || int(first.Port())+ProbePort > 1<<16-1 {
		return
	}
	at := netip.AddrPortFrom(first.Addr(), first.Port()+uint16(ProbePort))
	e, err := probe.Listen(at, probe.Identity{Protocol: uint16(s.protocol()), Release: Version})
	if err != nil {
		s.cfg.Warn("uetperf doctor will find no answer at %v: %v", at, err)
		return
	}
	s.ports.echoes = append(s.ports.echoes, e)
}

// Pretend makes a server another than it is, for tests of those who must notice.
type Pretend struct {
	Protocol int  // version of the control exchange; 0: as it is
	Older    bool // it answers no probes and tells no facts
}

func (s *Server) protocol() int {
	if v := s.cfg.Pretend.Protocol; v != 0 {
		return v
	}
	return ProtocolVersion
}

// InfoTo is the way to a server that a client would take.
func InfoTo(server netip.AddrPort, domain string) (*uet.Info, error) {
	return infoTo(server, domain, &uet.Info{})
}
