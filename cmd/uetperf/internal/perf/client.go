package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/relay"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/uet"
)

// A ClientConfig describes a client.
type ClientConfig struct {
	// EP and Sec are endpoint type and security of everything that the client does, including
	// its control exchange. "" means rdm and off. Keys must be set if Sec needs keys.
	EP, Sec string
	Keys    *uet.Security
	Domain  string // interface; "" means the one that leads to the server
	// DataPorts are the UDP ports that the client takes, for its control exchange as well; zero
	// means any.
	DataPorts portrange.Range
	// Timeout is how long the server may take to answer; 0 means 10 s.
	Timeout time.Duration
	// Silence is how long the server may be silent after that; 0 means the constant Silence.
	Silence time.Duration
	// Impair, if not nil, puts a relay with these faults between the test endpoints.
	Impair *relay.Faults
	// Tap, if not nil, sees the datagrams of all endpoints of the client.
	Tap func(*uet.Tapped)
	// mesh says that this is a server, which runs a test between servers.
	mesh bool
	// port, if not 0, is the port of the control endpoint, for tests.
	port uint16
}

// A Client is a session with a server.
type Client struct {
	cfg    ClientConfig
	svc    service
	server netip.AddrPort // address of the service
	ctl    *ctl
	id     uint64
	// version is ProtocolVersion, except in a test.
	version int
	in      chan *message
	parts   parts // of the goroutine of ctl
	lost    loss
	dialed  dialed
	runs    int

	closed chan struct{}
	wg     sync.WaitGroup // of the goroutine beat
}

// A loss tells that the client lost the server.
type loss struct {
	is   chan struct{} // closed when the server is lost, after why was set
	why  error
	once sync.Once
}

// A dialed has what Dial found.
type dialed struct {
	open  bool // Dial succeeded
	host  record.Host
	tool  record.Tool
	facts bool // the server answers mFacts
	jobs  bool // the server knows traffic.Spec.Job
	ports bool // the server knows traffic.Spec.SharePort
	mesh  bool // the server takes part in tests between servers
	// took is how long Dial took, connected the part of it for the control connection.
	took, connected time.Duration
}

// Host describes the server's host.
func (c *Client) Host() record.Host { return c.dialed.host }

// Tool describes the server's program.
func (c *Client) Tool() record.Tool { return c.dialed.tool }

// Setup is how long Dial took.
func (c *Client) Setup() time.Duration { return c.dialed.took }

// Connected is the part of Setup that the control connection took; 0 without one.
func (c *Client) Connected() time.Duration { return c.dialed.connected }

// Lost returns why the server was lost; nil if it was not.
func (c *Client) Lost() error {
	if !isClosed(c.lost.is) {
		return nil
	}
	return c.lostError()
}

// Local is the address of the client's control endpoint.
func (c *Client) Local() netip.AddrPort { return c.ctl.end.local }

// Close ends the session.
func (c *Client) Close() {
	close(c.closed)
	c.wg.Wait()
	select {
	case <-c.lost.is:
	default:
		_ = c.send(&message{Type: mBye})
		c.ctl.flush(500 * time.Millisecond)
	}
	c.ctl.close()
}

// beat tells the server that the client is alive, and notices when the server is not. It
// counts seconds in which this process ran, because while it is stopped the server has no
// chance to answer.
func (c *Client) beat() {
	defer c.wg.Done()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	arrived, quiet := c.ctl.arrived.Load(), 0
	most := seconds(max(c.cfg.Silence, silenceLeast))
	for n := 1; ; n++ {
		select {
		case <-c.closed:
			return
		case <-c.lost.is:
			return
		case <-t.C:
		}
		if n%int(beatEvery/time.Second) == 0 {
			_ = c.send(&message{Type: mBeat})
		}
		quiet++
		if now := c.ctl.arrived.Load(); now != arrived {
			arrived, quiet = now, 0
		}
		if quiet >= most {
			c.lose(c.silent(time.Duration(most) * time.Second))
			return
		}
	}
}

func (c *Client) send(m *message) error {
	m.V, m.Session = c.version, c.id
	return c.ctl.send(c.server, m, false)
}

// lose notes that the server is lost. Only the first call counts.
func (c *Client) lose(err error) {
	c.lost.once.Do(func() {
		c.lost.why = err
		close(c.lost.is)
	})
}

// message handles a control message.
func (c *Client) message(_ *ctl, _ netip.AddrPort, m *message) {
	switch {
	case m.Session != c.id, m.Type == mBeat, isClosed(c.lost.is): // nothing counts after the server was lost
	case m.Type == mRefuse && m.V != ProtocolVersion:
		c.lose(fmt.Errorf("refused by %v: %s", c.server, m.Error))
	case m.Type == mFail && m.Run == 0: // the session has ended, not only a leg; no result follows
		c.lose(unreachablef("%v ended the session: %s", c.server, strings.TrimPrefix(m.Error, sessionEnded)))
	default:
		if m = c.parts.add(m); m == nil {
			return
		}
		select {
		case c.in <- m:
		default:
			c.lose(errors.New("the server floods the control channel"))
		}
	}
}

// await waits for a control message of a kind.
func (c *Client) await(ctx context.Context, timeout time.Duration, kind string) (*message, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		select {
		case m := <-c.in:
			switch m.Type {
			case kind:
				return m, nil
			case mRefuse:
				return nil, fmt.Errorf("refused by %v: %s", c.server, m.Error)
			case mFail:
				return nil, errors.New(m.Error)
			}
		case <-c.lost.is:
			return nil, c.lostError()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-t.C:
			return nil, c.silent(timeout)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
