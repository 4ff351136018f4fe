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

// Facts are what a host tells about itself to a doctor.
type Facts struct {
	// Seen is the asker's address as this host sees it, Here this host's own. Both are not
	// valid if a host describes itself.
	Seen netip.AddrPort `json:"seen"`
	Here netip.AddrPort `json:"here"`
	// Probe is the UDP port that answers probes; 0 means none.
	Probe uint16 `json:"probe,omitempty"`
	// DataPorts are the UDP ports that tests take there; "" means any.
	DataPorts string `json:"data_ports,omitempty"`
	// Services are the services that a server offers.
	Services []string    `json:"services,omitempty"`
	Path     record.Path `json:"path"`
	// RcvShort and SndShort say that the system gave smaller socket buffers than asked for.
	RcvShort bool          `json:"rcv_short,omitempty"`
	SndShort bool          `json:"snd_short,omitempty"`
	Dropped  uint64        `json:"dropped"` // by the kernel, at the control endpoint
	Clients  int           `json:"clients"` // clients of the server, including the asker
	Time     time.Time     `json:"time"`
	CPUs     int           `json:"cpus"`     // processors of the host
	Allowed  int           `json:"allowed"`  // processors that the process may use
	Governor string        `json:"governor"` // of the first processor; "" means not known
	Clock    string        `json:"clock"`    // clock source; "" means not known
	Load     float64       `json:"load"`     // runnable processes, mean of a minute; negative means not known
	Lag      time.Duration `json:"lag"`      // longest delay of many wake-ups of the process
}

const (
	// lagFor is how long a host measures its wake-up delays.
	lagFor   = 400 * time.Millisecond
	lagSleep = 5 * time.Millisecond
)

// ThisHostFacts measures this host, which takes lagFor.
func ThisHostFacts() Facts {
	f := Facts{
		CPUs: runtime.NumCPU(), Allowed: runtime.NumCPU(), Load: -1,
		Governor: governor(),
		Clock:    firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
	}
	if n := allCPUs(); n > 0 {
		f.CPUs = n // runtime.NumCPU counts only those that the process may use
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

// allCPUs is the number of processors of the host; 0 means not known.
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

// ErrOlder means that the server does not know the question.
var ErrOlder = errors.New("the server is older than this program")

// Facts asks the server for its facts.
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

// facts returns the facts for the client of a session.
func (ss *session) facts() *Facts {
	f := ThisHostFacts()
	f.Seen, f.Here = ss.addr, ss.ctl.end.local
	f.DataPorts = ss.srv.cfg.DataPorts.String()
	f.Services = ss.srv.Services()
	// Describe the path of a test endpoint: it asks for more than a control endpoint does.
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

// ProbePort is the distance from a server's first port to the one that answers probes.
var ProbePort = len(services)

// openEcho opens the port for probes of an address whose first port is open. A server can do
// without it.
func (s *Server) openEcho(first netip.AddrPort) error {
	if s.cfg.Pretend.Older || int(first.Port())+ProbePort > 1<<16-1 {
		return nil
	}
	at := netip.AddrPortFrom(first.Addr(), first.Port()+uint16(ProbePort))
	e, err := probe.Listen(at, probe.Identity{Protocol: uint16(s.protocol()), Release: Version})
	if err != nil {
		return fmt.Errorf("%v: %w", at, err)
	}
	s.ports.echoes = append(s.ports.echoes, e)
	return nil
}

// Pretend makes a server appear different, for tests of clients.
type Pretend struct {
	Protocol int  // version of the control exchange; 0 means the real one
	Older    bool // answer no probes and tell no facts
}

func (s *Server) protocol() int {
	if v := s.cfg.Pretend.Protocol; v != 0 {
		return v
	}
	return ProtocolVersion
}

// InfoTo returns the path to a server that a client would use.
func InfoTo(server netip.AddrPort, domain string) (*uet.Info, error) {
	return infoTo(server, domain, &uet.Info{})
}
