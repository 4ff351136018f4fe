// Package doctor finds out why UET on one host, or between two, is slow or does not work,
// and says how to mend it.
package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/portrange"
	"github.com/uetkit/uetkit/uet"
)

// Schema names the JSON form of a Report.
const Schema = "uetperf-doctor/1"

// A Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it costs speed, or cannot be known
	Bad  Verdict = "bad"  // it does not work, or costs most of the speed
)

// A Check is one thing that was checked.
type Check struct {
	// Name is one word, the same in every release.
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Cause is what was found, Mend how to mend it; "" if there is nothing to mend.
	Cause string `json:"cause"`
	Mend  string `json:"mend,omitempty"`
}

// A Report is the result of all checks.
type Report struct {
	Schema string       `json:"schema"`
	Tool   record.Tool  `json:"tool"`
	Host   record.Host  `json:"host"`
	Peer   *record.Host `json:"peer,omitempty"`
	Target string       `json:"target,omitempty"`
	Checks []Check      `json:"checks"`
	// Reached tells whether the server answered; absent without a server.
	Reached *bool `json:"reached,omitempty"`
	OK      bool  `json:"ok"` // no check is bad
}

// Config says what to check.
type Config struct {
	// Target is the server. If it is not valid only this host is checked.
	Target netip.AddrPort
	// Domain is the interface. "" means all, or the one that leads to the server.
	Domain string
	// DataPorts are the UDP ports that tests are to take at this host; zero means any.
	DataPorts portrange.Range
	// EP, Sec and Keys are what tests are to use. "" means rdm and off.
	EP, Sec string
	Keys    *uet.Security
	GSO     string // auto, on, off
	// Timeout is how long the server may take to answer.
	Timeout time.Duration
	// Say, if not nil, is called with each check at once.
	Say func(*Check)
}

// A visit is the state of Run.
type visit struct {
	ctx context.Context
	cfg Config
	rep *Report
}

// Run makes all checks. Its error is one of usage, or the error of ctx.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	v := &visit{ctx: ctx, cfg: cfg, rep: &Report{Schema: Schema, Tool: perf.ThisTool(), Host: perf.ThisHost(), OK: true}}
	if err := v.local(ctx); err != nil {
		return nil, err
	}
	if cfg.Target.IsValid() {
		v.rep.Target = cfg.Target.String()
		reached := v.remote(ctx)
		v.rep.Reached = &reached
	}
	return v.rep, ctx.Err()
}

// add notes a check. It drops it when the visit was cancelled, because missing answers then
// say nothing of the network.
func (v *visit) add(name string, verdict Verdict, cause, mend string) {
	if v.ctx.Err() != nil {
		return
	}
	c := Check{name, verdict, cause, mend}
	v.rep.Checks = append(v.rep.Checks, c)
	v.rep.OK = v.rep.OK && verdict != Bad
	if v.cfg.Say != nil {
		v.cfg.Say(&c)
	}
}

func (v *visit) ok(name, format string, args ...any) {
	v.add(name, OK, fmt.Sprintf(format, args...), "")
}

func (v *visit) warn(name, mend, format string, args ...any) {
	v.add(name, Warn, fmt.Sprintf(format, args...), mend)
}

func (v *visit) bad(name, mend, format string, args ...any) {
	v.add(name, Bad, fmt.Sprintf(format, args...), mend)
}
