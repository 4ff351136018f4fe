package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// Tests between servers. A client, the coordinator, asks servers to run tests with others, as
// clients of these, by messages of its session with each:
//
//	clock →            ← clock   the server's time of day
//	join test →        ← joined  both ends of the test are open
//	begin →                      all tests that are open begin
//	                   ← met     what a test measured, or why it did not begin
//
// A server does so only if it was started for that (ServerConfig.Mesh) or if the session has
// a key of the servers. The server that it is to send to must have been, too, and agrees by
// its welcome.
const (
	mClock  = "clock"
	mJoin   = "join"
	mJoined = "joined"
	mBegin  = "begin"
	mMet    = "met"
)

// maxJoins bounds the tests that a session may have at once.
const maxJoins = 256

// A Join is a test that one server is to run with another.
type Join struct {
	ID     int            `json:"id"`
	Target netip.AddrPort `json:"target"` // the first port of the other server
	Spec   traffic.Spec   `json:"spec"`
}

// A Met is what came of a Join.
type Met struct {
	ID int `json:"id"`
	// Began is when it began by the clock of the server that ran it, in ns since 1970.
	Began int64      `json:"began,omitempty"`
	Run   record.Run `json:"run"`
	Error string     `json:"error,omitempty"`
}

// joins are the tests that a session's coordinator asked for.
type joins struct {
	wg    sync.WaitGroup
	begin chan struct{} // closed when those that were joined begin; nil if there are none
	n     atomic.Int32  // that have not ended
}

// mayJoin tells why a session may not ask for tests between servers; "" if it may.
func (ss *session) mayJoin() string {
	if !ss.srv.cfg.Mesh && ss.ctl.svc.sec == traffic.Off {
		return "this server takes no part in tests between servers: start it with `uetperf serve --mesh`"
	}
	if ss.ctl.svc.sec == traffic.TLS {
		return "tests between servers are not offered with --sec tls, for which a server has no certificate of a client: take --sec psk"
	}
	return ""
}

// join begins what a Join asks for, in a goroutine of its own.
func (ss *session) join(m *message) {
	j := m.Join
	if j == nil {
		return
	}
	s := &ss.joins
	no := ss.mayJoin()
	if s.begin == nil {
		s.begin = make(chan struct{})
	}
	if s.n.Add(1) > maxJoins && no == "" {
		no = fmt.Sprintf("more than %d tests at once", maxJoins)
	}
	if no != "" {
		s.n.Add(-1)
		_ = ss.send(&message{Type: mMet, Met: &Met{ID: j.ID, Error: no}})
		return
	}
	ss.srv.cfg.Log("%v asks for %s %s, %d bytes, with %v", ss.addr, j.Spec.Test, j.Spec.Op, j.Spec.Size, j.Target)
	begin := s.begin
	s.wg.Go(func() {
		met := ss.meet(j, begin)
		s.n.Add(-1)
		_ = ss.send(&message{Type: mMet, Met: met})
	})
}

// meet runs the test of a Join as a client of the other server. It begins when begin is closed.
func (ss *session) meet(j *Join, begin <-chan struct{}) *Met {
	met := &Met{ID: j.ID}
	fail := func(err error) *Met {
		met.Error = oneLine(err)
		return met
	}
	svc := ss.ctl.svc
	target := j.Target
	if ss.addr.Addr().Zone() != "" { // that of an address of a link names an interface of the host that asks
		target = ss.ctl.end.near(target)
	}
	c, err := Dial(ss.ctx, target, ClientConfig{
		EP: svc.ep, Sec: svc.sec, Keys: ss.srv.cfg.Keys.of(svc), Domain: ss.srv.cfg.Domain, DataPorts: ss.srv.cfg.DataPorts, Timeout: joinTime, mesh: true,
	})
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	spec := j.Spec
	spec.Sample = max(spec.Time, spec.Sampling()) // no series: it would be for nobody
	res, err := c.Run(ss.ctx, spec, Hooks{Begin: func(ctx context.Context) error {
		_ = ss.send(&message{Type: mJoined, Met: &Met{ID: j.ID}})
		select {
		case <-begin:
			met.Began = time.Now().UnixNano()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	if res != nil {
		met.Run, met.Run.Series = res.Run, nil
		if spec.Test == traffic.BW {
			met.Run.Latency = nil // nobody asks for it, and its histogram is long
		}
	}
	if err != nil {
		return fail(err)
	}
	return met
}

// joinTime is how long a server may take to answer another one.
const joinTime = 5 * time.Second

// open lets the tests begin that were joined.
func (s *joins) open() {
	if s.begin != nil {
		close(s.begin)
		s.begin = nil
	}
}

// Clock compares the clock of the server with that of this host: ahead is by how much it is
// ahead, and within how exact that is. Of several questions the one with the fastest answer
// counts.
func (c *Client) Clock(ctx context.Context) (ahead, within time.Duration, err error) {
	const questions = 8
	within = time.Hour
	for range questions {
		begin := time.Now()
		if err := c.send(&message{Type: mClock}); err != nil {
			return 0, 0, err
		}
		m, err := c.await(ctx, c.cfg.Timeout, mClock)
		if err != nil {
			return 0, 0, err
		}
		if took := time.Since(begin); took/2 < within {
			within, ahead = took/2, time.Unix(0, m.N).Sub(begin.Add(took/2).Round(0))
		}
	}
	return ahead, within, nil
}

// Meets reports whether the server takes part in tests between servers.
func (c *Client) Meets() bool { return c.dialed.mesh }

// Together makes the server run tests with other servers, all at once. When all that can are
// open it calls ready, and the tests begin when ready returns. It calls met for each test,
// once, and ends when all have ended. longest is the most that it waits for them after the
// begin.
func (c *Client) Together(ctx context.Context, tests []Join, longest time.Duration, ready func(), met func(*Met)) error {
	left := map[int]bool{}
	for i := range tests {
		if err := c.send(&message{Type: mJoin, Join: &tests[i]}); err != nil {
			return err
		}
		left[tests[i].ID] = false // not open yet
	}
	take := func(m *message) {
		if m.Met == nil {
			return
		}
		if _, ok := left[m.Met.ID]; !ok {
			return
		}
		if m.Type == mJoined {
			left[m.Met.ID] = true
			return
		}
		delete(left, m.Met.ID)
		met(m.Met)
	}
	opened := func() bool {
		for _, open := range left {
			if !open {
				return false
			}
		}
		return true
	}
	// Both ends open within the time that the servers give each other, and prepare within it again.
	if err := c.until(ctx, 4*joinTime, opened, take); err != nil {
		ready()
		return err
	}
	ready()
	if err := c.send(&message{Type: mBegin}); err != nil {
		return err
	}
	return c.until(ctx, longest, func() bool { return len(left) == 0 }, take)
}

// errLate is the error of a server that is silent about the tests it was asked for.
var errLate = errors.New("the server did not tell in time what it measured")

// until gives messages about tests to take until done.
func (c *Client) until(ctx context.Context, most time.Duration, done func() bool, take func(*message)) error {
	t := time.NewTimer(most)
	defer t.Stop()
	for !done() {
		select {
		case m := <-c.in:
			switch {
			case slices.Contains([]string{mJoined, mMet}, m.Type):
				take(m)
			case m.Type == mRefuse:
				return fmt.Errorf("refused by %v: %s", c.server, m.Error)
			}
		case <-c.lost.is:
			return c.lostError()
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			return errLate
		}
	}
	return nil
}
