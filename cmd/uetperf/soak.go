package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/perf"
	"github.com/uetkit/uetkit/cmd/uetperf/internal/soak"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
)

// soakEvery is the time between status lines of a soak. The lines are few, and readers of a
// log want them, so they are printed without a terminal, too.
const soakEvery = 10 * time.Second

// soakLook is how often --watch looks at a test of a soak. Many last less than a second.
const soakLook = 50 * time.Millisecond

// mix is what a soak draws from.
func (c *Config) mix() traffic.Mix {
	return traffic.Mix{
		Base: c.Spec, Sizes: c.Sizes, Op: c.Soak.op, Mode: c.Soak.mode, Complete: c.Soak.complete, Progress: c.Soak.progress, GSO: c.Soak.gso, Paths: c.Soak.paths,
		// A bad network may repeat a datagram, which nobody takes for the same: not unless it is asked for.
		Impaired: c.Impair != nil, Accesses: true, Datagrams: c.Impair == nil || c.Soak.mode == traffic.UUD,
	}
}

// soak runs the soak command.
func (o *outcome) soak(ctx context.Context, addr func() netip.AddrPort, dial func(context.Context) (*perf.Client, error)) error {
	p := newPrinter(o.people, o.cfg)
	for range max(1, o.cfg.Repeat) {
		if err := o.soakOnce(ctx, p, addr, dial); err != nil {
			return err
		}
	}
	p.medians(&o.rec)
	return nil
}

// soakOnce soaks one time. Who soaks is said the first time.
func (o *outcome) soakOnce(ctx context.Context, p *printer, addr func() netip.AddrPort, dial func(context.Context) (*perf.Client, error)) error {
	cfg := o.cfg
	every := cfg.Interval
	if every == 0 {
		every = soakEvery
		if p.tty { // somebody looks
			every = soakEvery / 5
		}
	}
	var watch func(string, int64, perf.Watched)
	look := p.every
	if cfg.Watch {
		watch, look = p.watchMany(), min(look, soakLook)
		every = max(every, soakEvery)
	}
	dialed := func(ctx context.Context) (*perf.Client, error) {
		c, err := dial(ctx)
		if err == nil && o.rec.Peer == nil {
			host, tool := c.Host(), c.Tool()
			o.rec.Peer, o.rec.PeerTool = &host, &tool
		}
		return c, err
	}
	said := time.Now()
	run, err := soak.Run(ctx, soak.Config{
		Mix: cfg.mix(),
		Command: func(words []string) []string {
			return append(slices.Concat([]string{"uetperf", words[0], cfg.Target}, words[1:]), cfg.Soak.common...)
		},
		Dial: dialed, Every: look, Watch: watch,
		Ready: func(path record.Path, mtu int) {
			if o.rec.Path != nil {
				return
			}
			o.rec.Path, o.rec.Config.MTU = &path, mtu
			if !cfg.Quiet {
				fmt.Fprintf(p.w, "soak: %s (%s) ↔ %v (%s); %s; all kinds of messages, all data verified\n", path.Local, o.rec.Host.Name, addr(), o.rec.Peer.Name,
					strings.ToUpper(o.rec.Config.EP)+", security "+cfg.Spec.Sec)
				fmt.Fprintf(p.w, "path: %s; seed %d\n", pathText(&path, mtu, o.rec.Config.Paths), o.rec.Seed)
			}
		},
		News: func(st *soak.Status) {
			p.clear()
			if st.Failed != nil {
				fmt.Fprintf(p.w, "FAILED %s: %s\n", st.FailedTest, strings.Join(strings.Fields(st.Failed.Error()), " "))
			}
			if !cfg.Quiet && every > 0 && time.Since(said) >= every {
				said = time.Now()
				p.soaking(st)
			}
		},
	})
	p.clear()
	if run.Soak.Episodes > 0 {
		o.rec.Runs = append(o.rec.Runs, run)
		p.soaked(&run)
	}
	if run.Soak.Failed > 0 || run.Soak.Leaking > 0 {
		o.failed = true
	}
	if err == nil && run.Soak.Episodes == 0 {
		return errors.New("nothing was measured: give it more time (-t)")
	}
	return lost(cfg, err)
}
