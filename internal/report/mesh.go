package report

import (
	"math"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/page"
)

// mesh makes the heat maps of a test between many hosts, and the tables of hosts and of pairs
// that stand out.
func mesh(m *record.Mesh) []page.Block {
	var out []page.Block
	if t, ok := heat(m, "Half round trip from host to host, p50 in µs; darker is longer than the median", func(p *record.MeshPair) (page.Cell, float64, bool) {
		if p.Latency == nil {
			return page.None(), 0, false
		}
		return num(float64(p.Latency.P50)/1e3, 1), float64(p.Latency.P50) / m.MedianNS, true
	}); ok {
		out = append(out, t)
	}
	if t, ok := heat(m, "Bandwidth from host to host in Gb/s; darker is less than the median", func(p *record.MeshPair) (page.Cell, float64, bool) {
		if p.GoodputBPS == nil {
			return page.None(), 0, false
		}
		return num(*p.GoodputBPS/1e9, 2), m.MedianBPS / *p.GoodputBPS, true
	}); ok {
		out = append(out, t)
	}
	return append(out, stand(m)...)
}

// heat makes one matrix. cell returns what a pair has and how many times worse than the median
// that is. It returns false if no pair has anything.
func heat(m *record.Mesh, caption string, cell func(*record.MeshPair) (page.Cell, float64, bool)) (page.Table, bool) {
	t := page.Table{Caption: caption, Heads: []page.Head{{Name: "from", Left: true}}}
	sends, hears := make([]bool, len(m.Hosts)), make([]bool, len(m.Hosts))
	at := map[[2]int]*record.MeshPair{}
	for i := range m.Pairs {
		p := &m.Pairs[i]
		if p.From < 0 || p.To < 0 || p.From >= len(m.Hosts) || p.To >= len(m.Hosts) {
			continue
		}
		sends[p.From], hears[p.To] = true, true
		at[[2]int{p.From, p.To}] = p
	}
	some := false
	for k, h := range m.Hosts {
		if hears[k] {
			t.Heads = append(t.Heads, page.Head{Name: "to " + h.Name})
		}
	}
	for i, h := range m.Hosts {
		if !sends[i] {
			continue
		}
		row := []page.Cell{page.T("%s", h.Name)}
		for k := range m.Hosts {
			if !hears[k] {
				continue
			}
			p := at[[2]int{i, k}]
			if p == nil {
				row = append(row, page.T(""))
				continue
			}
			c, worse, ok := cell(p)
			switch {
			case p.Error != "":
				c = page.Mark("failed", page.Bad)
				c.Help = p.Error
			case ok:
				some = true
				c.Heat = shade(worse)
			}
			row = append(row, c)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, some
}

// shade is the heat of what is so many times worse than the median: the most from twice on.
func shade(worse float64) int {
	if !(worse > 1) {
		return 0
	}
	return min(page.MostHeat, int(math.Log2(worse)*page.MostHeat+0.5))
}

// stand makes the table of hosts, and one of pairs that are slow, far or failed.
func stand(m *record.Mesh) []page.Block {
	hosts := page.Table{Caption: "Hosts", Heads: []page.Head{
		{Name: "host", Left: true}, {Name: "address", Left: true}, {Name: "clock ahead", Help: "of that of the coordinator"}, {Name: "within", Help: "how exact that is"}, {Name: "error", Left: true},
	}}
	for _, h := range m.Hosts {
		ahead, within := page.None(), page.None()
		if h.Host != nil {
			ahead, within = page.T("%v", time.Duration(h.AheadNS).Round(time.Microsecond)), page.T("%v", time.Duration(h.WithinNS).Round(time.Microsecond))
		}
		hosts.Rows = append(hosts.Rows, []page.Cell{page.T("%s", h.Name), page.T("%s", h.Addr), ahead, within, page.Maybe(h.Error)})
	}
	pairs := page.Table{Caption: "Pairs that stand out", Heads: []page.Head{
		{Name: "why", Left: true}, {Name: "from", Left: true}, {Name: "to", Left: true}, {Name: "p50", Unit: "µs"}, {Name: "p99", Unit: "µs"}, {Name: "bandwidth", Unit: "Gb/s"}, {Name: "resent", Unit: "packets"}, {Name: "error", Left: true},
	}}
	for i := range m.Pairs {
		p := &m.Pairs[i]
		why := ""
		switch {
		case p.From < 0 || p.To < 0 || p.From >= len(m.Hosts) || p.To >= len(m.Hosts):
			continue
		case p.Error != "":
			why = "failed"
		case p.Slow && p.Far:
			why = "slow, far"
		case p.Slow:
			why = "slow"
		case p.Far:
			why = "far"
		default:
			continue
		}
		p50, p99, bw := page.None(), page.None(), page.None()
		if l := p.Latency; l != nil {
			p50, p99 = num(float64(l.P50)/1e3, 1), num(float64(l.P99)/1e3, 1)
		}
		if g := p.GoodputBPS; g != nil {
			bw = num(*g/1e9, 2)
		}
		pairs.Rows = append(pairs.Rows, []page.Cell{
			page.Mark(why, page.Bad), page.T("%s", m.Hosts[p.From].Name), page.T("%s", m.Hosts[p.To].Name), p50, p99, bw, page.T("%s", page.Int(p.Rtx)), page.Maybe(p.Error),
		})
	}
	if len(pairs.Rows) == 0 {
		return []page.Block{hosts}
	}
	return []page.Block{pairs, hosts}
}
