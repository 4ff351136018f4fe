package report

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/uetkit/uetkit/internal/page"
	"github.com/uetkit/uetkit/internal/units"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/result"
)

// lineText describes a line in a few words.
func lineText(l *fabric.Line) string {
	var out []string
	if l.Down {
		out = append(out, "down")
	}
	if l.Rate > 0 {
		out = append(out, page.Bits.Format(float64(l.Rate)))
	}
	if l.Delay > 0 {
		s := page.Time.Format(float64(l.Delay))
		if l.Jitter > 0 {
			s += " +" + page.Time.Format(float64(l.Jitter))
		}
		out = append(out, s)
	} else if l.Jitter > 0 {
		out = append(out, "jitter "+page.Time.Format(float64(l.Jitter)))
	}
	if l.ECN != nil {
		out = append(out, "ECN")
	}
	if l.Trim != nil {
		out = append(out, "trim")
	}
	if l.MTU > 0 {
		out = append(out, fmt.Sprintf("MTU %d", l.MTU))
	}
	if n := len(l.Rules); n > 0 {
		out = append(out, units.Plural(n, "rule"))
	}
	if len(out) == 0 {
		return "no limit"
	}
	return strings.Join(out, ", ")
}

// The measures of the drawing are in points.
const (
	boxW, boxH = 130, 44
	rowH       = 66
	drawingW   = 960
	switchX    = 390
	switchW    = 180
	maxHosts   = 12 // a side
	spineH     = 30
)

// A node is a host and its port.
type node struct {
	name, role, addr string
	port             *fabric.Port
}

// topology draws the hosts, the switch between them and its spines. Clients are on the
// left, servers on the right.
func topology(r *result.Result) (page.Figure, bool) {
	ports := r.Topology.Ports
	if len(ports) == 0 && len(r.Hosts) == 0 {
		return page.Figure{}, false
	}
	var left, right []node
	seen := map[string]bool{}
	put := func(n node) {
		if n.role == "server" {
			right = append(right, n)
		} else {
			left = append(left, n)
		}
	}
	port := func(name string) *fabric.Port {
		for i := range ports {
			if ports[i].Name == name {
				return &ports[i]
			}
		}
		return nil
	}
	for _, h := range r.Hosts {
		p := port(h.Name)
		seen[h.Name] = true
		put(node{h.Name, h.Role, h.Addr, p})
	}
	for i := range ports { // ports without a known host
		if !seen[ports[i].Name] {
			put(node{name: ports[i].Name, port: &ports[i]})
		}
	}
	hidden := 0
	cut := func(ns []node) []node {
		if len(ns) > maxHosts {
			hidden += len(ns) - maxHosts
			ns = ns[:maxHosts]
		}
		return ns
	}
	left, right = cut(left), cut(right)
	spines := r.Topology.Spines
	hiddenSpines := 0
	if len(spines) > maxHosts {
		hiddenSpines = len(spines) - maxHosts
		spines = spines[:maxHosts]
	}
	rows := max(len(left), len(right), 1)
	inside := 40 + len(spines)*(spineH+6)
	height := max(rows*rowH, inside+16) + 12

	var b strings.Builder
	esc := template.HTMLEscapeString
	text := func(x, y float64, anchor, class, s string) {
		fill := map[string]string{"": "var(--ink)", "muted": "var(--muted)", "link": "var(--link)"}[class]
		size := 12
		if class != "" {
			size = 11
		}
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="%s" style="font-size:%dpx;fill:%s">%s</text>`, x, y, anchor, size, fill, esc(s))
	}
	box := func(x, y, w, h float64, what string) {
		fmt.Fprintf(&b, `<rect x="%g" y="%g" width="%g" height="%g" rx="6" style="fill:var(--soft);stroke:var(--axis)"><title>%s</title></rect>`, x, y, w, h, esc(what))
	}
	arrow := func(x1, x2, y float64) {
		fmt.Fprintf(&b, `<path d="M%g,%gH%g" style="stroke:var(--axis);stroke-width:1.5"/>`, x1, y, x2)
		d := 6.0
		if x2 < x1 {
			d = -6
		}
		fmt.Fprintf(&b, `<path d="M%g,%gl%g,-3.5v7z" style="fill:var(--axis)"/>`, x2, y, -d)
	}
	mid := float64(height) / 2
	side := func(ns []node, isLeft bool) {
		top := mid - float64(len(ns)*rowH)/2
		for i, n := range ns {
			y := top + float64(i*rowH) + (rowH-boxH)/2
			x := 1.0
			if !isLeft {
				x = drawingW - boxW - 1
			}
			box(x, y, boxW, boxH, n.name+" "+n.addr)
			text(x+boxW/2, y+18, "middle", "", short(n.name+roleText(n.role), 20))
			text(x+boxW/2, y+34, "middle", "muted", short(n.addr, 22))
			in, out := x+boxW+4, float64(switchX)-4
			if !isLeft {
				in, out = x-4, switchX+switchW+4
			}
			yTo, yFrom := y+boxH/2-5, y+boxH/2+5
			arrow(in, out, yTo)   // from the host into the switch
			arrow(out, in, yFrom) // from the switch to the host
			if n.port != nil {
				text((in+out)/2, yTo-5, "middle", "muted", short(lineText(&n.port.From), 36))
				text((in+out)/2, yFrom+13, "middle", "muted", short(lineText(&n.port.To), 36))
			}
		}
	}
	boxTop := min(mid-float64(inside)/2, mid-float64(rows*rowH)/2+6)
	box(switchX, boxTop, switchW, 2*(mid-boxTop), "the switch")
	side(left, true)
	side(right, false)
	text(switchX+switchW/2, mid-float64(inside)/2+20, "middle", "", "switch")
	for i := range spines {
		y := mid - float64(inside)/2 + 34 + float64(i*(spineH+6))
		fmt.Fprintf(&b, `<rect x="%d" y="%g" width="%d" height="%d" rx="4" style="fill:var(--bg);stroke:var(--grid)"/>`, switchX+10, y, switchW-20, spineH)
		text(switchX+switchW/2, y+13, "middle", "", fmt.Sprintf("spine.%d", i))
		text(switchX+switchW/2, y+25, "middle", "muted", short(lineText(&spines[i]), 28))
	}
	alt := fmt.Sprintf("Topology: %s, a switch", units.Plural(len(left)+len(right)+hidden, "host"))
	if n := len(r.Topology.Spines); n > 0 {
		alt += " with " + units.Plural(n, "spine")
	}
	f := page.Figure{Title: "Topology", SVG: template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s</svg>`, drawingW, height, esc(alt), b.String()))}
	if hidden+hiddenSpines > 0 {
		f.Note = fmt.Sprintf("%s and %s more are in the table of lines.", units.Plural(hidden, "host"), units.Plural(hiddenSpines, "spine"))
	}
	return f, true
}

func roleText(role string) string {
	if role == "" {
		return ""
	}
	return ", " + role
}

func short(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}

// lines makes the table of all lines, with their settings and counters.
func lines(r *result.Result) page.Table {
	t := page.Table{Heads: []page.Head{
		{Name: "line", Left: true}, {Name: "rate"}, {Name: "delay"}, {Name: "queue", Help: "bytes that may wait in the low class"}, {Name: "ECN", Left: true}, {Name: "trim", Left: true}, {Name: "rules", Left: true},
		{Name: "in", Unit: "packets"}, {Name: "out", Unit: "packets"}, {Name: "out", Unit: "MB"}, {Name: "waited", Help: "the most bytes at once"}, {Name: "decisions", Left: true, Help: "other than passed"},
	}}
	row := func(name string, l *fabric.Line) {
		rate, delay, queue := page.Cell{Text: "no limit", Tone: page.Muted}, page.T("0"), page.T("1 MiB")
		if l.Rate > 0 {
			rate = page.T("%s", page.Bits.Format(float64(l.Rate)))
		}
		if l.Delay > 0 || l.Jitter > 0 {
			delay.Text = page.Time.Format(float64(l.Delay))
			if l.Jitter > 0 {
				delay.Text += " + up to " + page.Time.Format(float64(l.Jitter))
			}
		}
		if l.Queue > 0 {
			queue.Text = page.Bytes(float64(l.Queue))
		}
		ecn, trim := page.T(""), page.T("")
		if e := l.ECN; e != nil {
			ecn.Text = page.Bytes(float64(e.Min))
			if e.Max != e.Min {
				ecn.Text += " … " + page.Bytes(float64(e.Max))
			}
			if e.Prob > 0 && e.Prob < 1 {
				ecn.Text += fmt.Sprintf(", %s %%", page.Figures(100*e.Prob))
			}
		}
		if l.Trim != nil {
			trim.Text = "after " + page.Bytes(float64(l.Trim.After))
		}
		var extra []string
		if l.Down {
			extra = append(extra, "down")
		}
		if l.MTU > 0 {
			extra = append(extra, fmt.Sprintf("MTU %d", l.MTU))
		}
		for i := range l.Rules {
			extra = append(extra, ruleText(&l.Rules[i]))
		}
		cells := []page.Cell{{Text: name, Code: true}, rate, delay, queue, ecn, trim, page.T("%s", strings.Join(extra, "; "))}
		st, ok := fabric.LineStats{}, false
		if r.Switch != nil {
			st, ok = r.Switch.Lines[name]
		}
		if !ok {
			cells = append(cells, page.None(), page.None(), page.None(), page.None(), page.None())
		} else {
			var whys []string
			for _, w := range slices.Sorted(maps.Keys(st.Whys)) {
				if w != "passed" && st.Whys[w] > 0 {
					whys = append(whys, w+" "+page.Int(st.Whys[w]))
				}
			}
			cells = append(cells, page.T("%s", page.Int(st.Packets)), page.T("%s", page.Int(st.SentPkts)), page.T("%s", page.Fixed(float64(st.SentB)/1e6, 2)), page.T("%s", page.Bytes(float64(st.MaxWait))), page.T("%s", strings.Join(whys, ", ")))
		}
		t.Rows = append(t.Rows, cells)
	}
	for i := range r.Topology.Ports {
		p := &r.Topology.Ports[i]
		row(p.Name+".from", &p.From)
		row(p.Name+".to", &p.To)
	}
	for i := range r.Topology.Spines {
		row(fmt.Sprintf("spine.%d", i), &r.Topology.Spines[i])
	}
	return t
}

// ruleText describes a rule in a few words.
func ruleText(r *fabric.Rule) string {
	var out []string
	add := func(ok bool, format string, args ...any) {
		if ok {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	pct := func(f float64) string { return page.Figures(100*f) + " %" }
	add(r.Loss > 0, "loss %s", pct(r.Loss))
	add(r.Burst != nil, "loss in bursts")
	add(len(r.Drop) > 0, "drops %s by number", units.Plural(len(r.Drop), "packet"))
	add(r.First > 0, "drops the first %d of each PDC", r.First)
	add(r.Blackhole, "drops all")
	add(r.Delay > 0, "delay %s", page.Time.Format(float64(r.Delay)))
	add(r.Reorder > 0, "reorders %s", pct(r.Reorder))
	add(r.Duplicate > 0, "duplicates %s", pct(r.Duplicate))
	add(r.Corrupt > 0, "corrupts %s", pct(r.Corrupt))
	add(r.CE > 0, "marks %s", pct(r.CE))
	add(r.Trim > 0, "trims %s", pct(r.Trim))
	add(r.Replay != nil, "replays old packets")
	s := strings.Join(out, ", ")
	var of []string
	for _, m := range []string{r.Match.Kind, r.Match.Flag} {
		if m != "" {
			of = append(of, m)
		}
	}
	if r.Match.EOM {
		of = append(of, "last of a message")
	}
	if len(of) > 0 {
		s += " (" + strings.Join(of, ", ") + ")"
	}
	if r.Name != "" {
		s = r.Name + ": " + s
	}
	return s
}
