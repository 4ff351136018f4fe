package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/metrics"
)

const dashboard = "../../docs/grafana/uetkit.json"

type conns uet.ConnStats

func (c *conns) ConnStats() uet.ConnStats { return uet.ConnStats(*c) }

// expressions returns the queries of the dashboard, by panel.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range d.Panels {
		for _, x := range p.Targets {
			out[p.Title] = append(out[p.Title], x.Expr)
			for _, l := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(x.LegendFormat, -1) {
				if !regexp.MustCompile(`\b`+l[1]+`\b`).MatchString(x.Expr) && l[1] != "instance" {
					t.Errorf("%s: the legend shows %s, the expression does not keep it: %s", p.Title, l[1], x.Expr)
				}
			}
		}
		if p.Type != "row" && p.Targets == nil {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
	for _, v := range d.Templating.List {
		if v.Definition != "" {
			out["variable "+v.Name] = []string{v.Definition}
		}
	}
	return out
}

// Every metric of the dashboard is exported with its labels, and every exported metric is
// on the dashboard.
func TestDashboardShowsWhatIsExported(t *testing.T) {
	c := metrics.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	c.Add(open(t).Endpoint, "a")
	c.AddConns(&conns{}, "a")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{}
	for _, f := range families {
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels[f.GetName()] = append(labels[f.GetName()], l.GetName())
		}
	}
	shown := map[string]bool{"uetperf_clients": true} // exported by uetperf serve, whose test checks it
	labels["uetperf_clients"] = nil
	name := regexp.MustCompile(`\buet(?:perf)?_\w+`)
	by := regexp.MustCompile(`by \(([^)]*)\) \((?:rate\()?(uet\w+)`)
	for panel, list := range expressions(t) {
		for _, x := range list {
			names := name.FindAllString(x, -1)
			if names == nil {
				t.Errorf("%s asks for no metric of ours: %s", panel, x)
			}
			for _, n := range names {
				shown[n] = true
				if _, ok := labels[n]; !ok {
					t.Errorf("%s: %s is not exported", panel, n)
				}
			}
			for _, m := range by.FindAllStringSubmatch(x, -1) {
				for _, l := range regexp.MustCompile(`\w+`).FindAllString(m[1], -1) {
					if l != "instance" && !slices.Contains(labels[m[2]], l) {
						t.Errorf("%s: %s has no label %s", panel, m[2], l)
					}
				}
			}
		}
	}
	for n := range labels {
		if !shown[n] {
			t.Errorf("%s is exported, and no panel shows it", n)
		}
	}
}

// Counters of connections stay after their objects are closed; gauges do not.
func TestConnections(t *testing.T) {
	c := metrics.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	a := &conns{Open: 2, Waiting: 1, Opened: 7, Begun: 9, Refused: 3, Untrusted: 1, NoRoom: 4}
	b := &conns{Open: 1, Opened: 1}
	c.AddConns(a, "x")
	c.AddConns(b, "x")
	check := func(name string, want float64, labels ...string) {
		t.Helper()
		if got := value(t, reg, name, labels...); got != want {
			t.Errorf("%s%v = %v, want %v", name, labels, got, want)
		}
	}
	check("uet_connections", 3, "x")
	check("uet_connections_total", 8, "x")
	c.RemoveConns(a)
	c.RemoveConns(a)
	check("uet_connections", 1, "x")
	check("uet_connection_requests_waiting", 0, "x")
	check("uet_connections_total", 8, "x")
	check("uet_handshakes_total", 9, "x")
	check("uet_connections_refused_total", 3, "x", "busy")
	check("uet_connections_refused_total", 1, "x", "untrusted")
	check("uet_connections_refused_total", 4, "x", "no_room")
}

// Gauges describe open endpoints only.
func TestGauges(t *testing.T) {
	c := metrics.New()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	a, b := open(t), open(t)
	c.Add(a.Endpoint, "a")
	c.Add(b.Endpoint, "b")
	send(t, a, b, 3)
	for _, e := range []error{b.Recv(make([]byte, 8), fi.AddrUnspec, nil), b.TRecv(make([]byte, 8), fi.AddrUnspec, 7, 0, nil)} {
		if e != nil {
			t.Fatal(e)
		}
	}
	if got := value(t, reg, "uet_posted_receives", "b"); got != 2 {
		t.Errorf("%v receives are posted", got)
	}
	// A message that waited on a busy machine measures no round trip, so send another one.
	rtt := value(t, reg, "uet_rtt_seconds", "a")
	for n := 0; rtt == 0 && n < 1000; n++ {
		send(t, a, b, 1)
		rtt = value(t, reg, "uet_rtt_seconds", "a")
	}
	if rtt <= 0 || rtt > 10 {
		t.Errorf("round trip %v s", rtt)
	}
	if got := value(t, reg, "uet_congestion_window_bytes", "a"); got < 1024 {
		t.Errorf("window %v", got)
	}
	if got := value(t, reg, "uet_completion_queue_entries", "a"); got <= 0 {
		t.Errorf("room for %v entries", got)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, reg, "uet_posted_receives", "b"); got != 0 {
		t.Errorf("closed, and %v receives are posted", got)
	}
}
