package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
)

// maxHosts bounds the hosts of a world that are named.
const maxHosts = 32

// Environment describes where and how the record was made.
func (r *Rec) Environment() page.Facts {
	var out page.Facts
	add := func(name string, ok bool, format string, args ...any) {
		out = append(out, page.Fact{Name: name, Value: opt(ok, func() page.Cell { return page.T("%s", fmt.Sprintf(format, args...)) })})
	}
	add("started", r.has("started") && !r.Started.IsZero(), "%s", r.Started.Format(time.RFC3339))
	add("uetperf", r.Tool.Version != "", "%s", release(&r.Tool))
	if t := r.PeerTool; t != nil && *t != r.Tool {
		add("uetperf of the server", t.Version != "", "%s", release(t))
	}
	host := func(name string, h *record.Host, key string) {
		if h == nil {
			h = &record.Host{}
		}
		cpus := ""
		if h.CPUs > 0 {
			cpus = units.Plural(h.CPUs, "processor")
		}
		governor := ""
		if h.Governor != "" {
			governor = "governor " + h.Governor
		}
		add(name, r.has(key), "%s", join(", ", h.Name, h.OS, h.Kernel, cpus, h.CPU, governor, h.Virtual))
	}
	if w := r.World; w != nil {
		host("host of rank 0", &r.Host, "host")
		var on []string
		for _, h := range w.Hosts[:min(len(w.Hosts), maxHosts)] {
			on = append(on, fmt.Sprintf("%s: %d", h.Name, h.Ranks))
		}
		if n := len(w.Hosts) - len(on); n > 0 {
			on = append(on, fmt.Sprintf("%d more hosts", n))
		}
		add("ranks", r.has("world", "ranks"), "%s", join(", ", fmt.Sprint(w.Ranks), strings.Join(on, ", ")))
		add("started by", w.Launcher != "", "%s", w.Launcher)
	} else if r.isMesh() {
		host("coordinator", &r.Host, "host")
	} else {
		host("client", &r.Host, "host")
		host("server", r.Peer, "peer")
	}
	c := &r.Config
	kind := r.mode()
	add("endpoints", kind != "", "%s", kind)
	if c.Type != "" || c.Reduction != "" {
		add("elements", true, "%s", join(", ", c.Type, c.Reduction))
	}
	if c.Root != nil {
		add("root", true, "rank %d", *c.Root)
	}
	add("completion", c.Complete != "", "%s", c.Complete)
	add("congestion control", c.CC != "", "%s", c.CC)
	sec := c.Sec
	if r.has("config", "crc") {
		sec = join(", ", sec, "CRC "+onOff(c.CRC))
	}
	add("security", sec != "", "%s", sec)
	if c.Trimming {
		add("trimming", true, "offered to switches")
	}
	if c.BaseRTTNS > 0 {
		add("idle round trip (base_rtt)", true, "%v", time.Duration(c.BaseRTTNS))
	}
	add("progress", c.Progress != "", "%s", c.Progress)
	add("payload", c.MTU > 0, "%d B per packet", c.MTU)
	add("paths", c.Paths > 0, "%s", join(", ", fmt.Sprint(c.Paths), c.PathChoice))
	if c.Window > 0 {
		add("window", true, "%s under way, per stream", units.Plural(c.Window, "message"))
	}
	if c.Parallel > 0 && r.World == nil {
		add("streams", true, "%s", join(", ", fmt.Sprint(c.Parallel), map[string]string{"forward": "client to server", "reverse": "server to client", "both": "both ways"}[c.Direction]))
	}
	if c.Rate > 0 {
		add("asked rate", true, "%s", join(", ", page.Rate.Format(c.Rate), c.Arrivals))
	}
	if r.has("config", "reply") {
		add("reply", true, "%s", page.Bytes(float64(c.Reply)))
	}
	add("seed", r.has("seed"), "%d", r.Seed)
	if c.Impair != "" {
		add("impaired by", true, "%s", c.Impair)
	}
	p := r.Path
	if p == nil && r.World != nil {
		return out
	}
	if p == nil {
		add("path", false, "")
		return out
	}
	add("path", p.Local != "" || p.Remote != "", "%s to %s", p.Local, p.Remote)
	add("interface", p.Interface != "", "%s", join(", ", p.Interface, p.Driver))
	add("path MTU", p.MTU > 0, "%d B", p.MTU)
	feature := func(f record.Feature) string {
		if f.Why != "" {
			return onOff(f.On) + ": " + f.Why
		}
		return onOff(f.On)
	}
	add("GSO", r.has("path", "gso", "on"), "%s", feature(p.GSO))
	add("GRO", r.has("path", "gro", "on"), "%s", feature(p.GRO))
	buffer := func(got, asked int) string {
		s := page.Bytes(float64(got))
		if asked > got {
			s += " of " + page.Bytes(float64(asked)) + " asked for"
		}
		return s
	}
	add("receive buffer", p.Rcvbuf > 0, "%s", buffer(p.Rcvbuf, p.RcvbufAsked))
	add("send buffer", p.Sndbuf > 0, "%s", buffer(p.Sndbuf, p.SndbufAsked))
	add("ECN", r.has("path", "ecn"), "%s", onOff(p.ECN))
	return out
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// join joins the parts that are not empty.
func join(sep string, parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, sep)
}

// Command returns the command line that repeats the test.
func (r *Rec) Command() (page.Pre, bool) {
	return page.Pre{Name: "command", Text: page.Shell(r.Record.Command)}, len(r.Record.Command) > 0
}

// release names a build of uetperf.
func release(t *record.Tool) string {
	return strings.Join(strings.Fields(t.Version+" "+t.Commit[:min(len(t.Commit), 12)]+" "+t.Go), " ")
}
