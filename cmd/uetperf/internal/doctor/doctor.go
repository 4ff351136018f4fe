// Package doctor finds out why UET between two hosts, or on one, is slow or does not
// work, and says what to do.
package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/uet"
)

// Schema is that of a Report as JSON.
const Schema = "uetperf-doctor/1"

// A Verdict is how a check came out.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it costs speed, or is not known
	Bad  Verdict = "bad"  // it does not work, or costs most of the speed
)

// A Check is one thing that was looked at.
type Check struct {
	// Name is a word, the same in every release.
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Cause is what was found, Mend what to do; "" if there is nothing.
	Cause string `json:"cause"`
	Mend  string `json:"mend,omitempty"`
}

// A Report is all of them.
type Report struct {
	Schema string       `json:"schema"`
	Tool   record.Tool  `json:"tool"`
	Host   record.Host  `json:"host"`
	Peer   *record.Host `json:"peer,omitempty"`
	Target string       `json:"target,omitempty"`
	Checks []Check      `json:"checks"`
	// Reached: the server answered; absent without one.
	Reached *bool `json:"reached,omitempty"`
	OK      bool  `json:"ok"` // nothing is bad
}

// Config says what to look at.
type Config struct {
	// Target is the server; not valid: this host alone.
	Target netip.AddrPort
	// Domain is the interface; "": all, or the one that leads to the server.
	Domain string
	// EP, Sec and Keys are what tests are to use; "": rdm and off.
	EP, Sec string
	Keys    *uet.Security
	GSO     string // auto, on, off
	// Timeout is how long the server may take to answer.
	Timeout time.Duration
	// Say, if not nil, hears of each check at once.
	Say func(*Check)
}

// A visit is a Run under way.
type visit struct {
	ctx context.Context
	cfg Config
	rep *Report
}

// Run looks at everything. An error is one of usage, or ctx's.
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

// add notes a check, unless the visit was ended from outside: what did not arrive then
// says nothing of the network.
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
