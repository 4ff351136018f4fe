package main

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A printer writes packets as cfg asks.
type printer struct {
	cfg     *Config
	w       io.Writer
	err     error // the first of writing
	first   time.Time
	since   time.Time // zero: from the beginning
	until   time.Time // zero: to the end
	at      time.Time // zero: the end of the capture
	last    time.Time // of the last packet
	printed int
	packets uint64
	sealed  uint64 // not opened
	bad     uint64 // with a trailer that does not verify
	track   *tracker
	picked  map[*pdc]bool // those that a line was printed of
	ops     *follower     // nil: packets are printed
	sums    opSums
}

func newPrinter(cfg *Config, w io.Writer) *printer {
	p := &printer{cfg: cfg, w: w, track: newTracker(), picked: map[*pdc]bool{}}
	if cfg.Ops {
		p.ops, p.sums = newFollower(p.operation), opSums{}
	}
	return p
}

// done reports whether nothing further will be printed.
func (p *printer) done() bool { return p.err != nil || p.full() && !p.cfg.later() }

// full reports whether as many packets were printed as asked for.
func (p *printer) full() bool { return p.cfg.Count > 0 && p.printed >= p.cfg.Count }

// begin is called for every frame. The first one sets the zero of the time.
func (p *printer) begin(f *frame) {
	if !p.first.IsZero() {
		return
	}
	p.first = f.at
	if p.cfg.Since.set {
		p.since = p.cfg.Since.in(f.at)
	}
	if p.cfg.Until.set {
		p.until = p.cfg.Until.in(f.at)
	}
	if p.cfg.At.set {
		p.at = p.cfg.At.in(f.at)
	}
}

// wanted reports whether the filters let a packet through.
func (p *printer) wanted(k *packet, n *note) bool {
	c := p.cfg
	switch {
	case p.err != nil || p.full() || c.Summary:
		return false
	case c.PDC != nil && (n.pdc == nil || !c.PDC.is(n.pdc)):
		return false
	case c.Msg >= 0 && !slices.Contains(n.msgs, uint16(c.Msg)):
		return false
	case !p.since.IsZero() && k.at.Before(p.since), !p.until.IsZero() && !k.at.Before(p.until):
		return false
	case c.Host.IsValid() && k.src.Addr() != c.Host && k.dst.Addr() != c.Host:
		return false
	case c.Types != nil && !c.Types[k.group()]:
		return false
	}
	return true
}

// group is the type of a packet for --type.
func (k *packet) group() string {
	switch {
	case k.msg != nil:
		return typeOf(k.msg.typ)
	case k.tss != nil:
		return "tss"
	}
	return ""
}

func (p *printer) printf(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}

// packet handles the next packet of the capture.
func (p *printer) packet(k *packet) {
	if !p.at.IsZero() && k.at.After(p.at) {
		return // as if the capture ended here
	}
	p.packets++
	p.last = k.at
	switch {
	case k.tail == trailerBad, k.tail == trailerICVBad:
		p.bad++
	case k.plain == nil && k.tss != nil:
		p.sealed++
	}
	n := p.track.packet(k)
	if p.ops != nil {
		p.ops.packet(k, &n)
		return
	}
	if !p.wanted(k, &n) {
		return
	}
	p.printed++
	if n.pdc != nil {
		p.picked[n.pdc] = true
	}
	if p.cfg.JSON {
		p.json(k, &n)
		return
	}
	p.line(k, &n)
	if p.cfg.Verbose {
		p.verbose(k)
	}
	if p.cfg.Hex {
		p.hex(k.raw)
	}
}

// end is called after the last packet.
func (p *printer) end(c *decoder) error {
	at := p.last
	if !p.at.IsZero() {
		at = p.at
	}
	if p.packets == 0 && p.err == nil && c.others > 0 && !p.cfg.JSON {
		p.printf("no UET in %d packets; if it is on another UDP port, name it with --port\n", c.others)
	}
	switch {
	case p.ops != nil:
		p.opsEnd()
	case p.cfg.Summary || p.cfg.follows():
		p.summary()
	}
	if p.cfg.Explain {
		p.explain(at)
	}
	if (p.cfg.Explain || p.cfg.Summary || p.cfg.Ops || p.cfg.follows()) && !p.cfg.JSON {
		if p.sealed > 0 {
			p.printf("%d packets are sealed and belong to no PDC that can be seen; --keys opens those of a cluster\n", p.sealed)
		}
		if p.bad > 0 {
			p.printf("%d packets do not verify and count for nothing; if none does, a NAT or another key is between\n", p.bad)
		}
	}
	return p.err
}

// chosen returns the PDCs that the summary shows.
func (p *printer) chosen() (out []*pdc) {
	for _, c := range p.track.pdcs {
		if p.cfg.PDC != nil && !p.cfg.PDC.is(c) || p.cfg.Msg >= 0 && !p.cfg.Summary && !p.picked[c] {
			continue
		}
		if h := p.cfg.Host; h.IsValid() && c.ends[0].addr.Addr() != h && c.ends[1].addr.Addr() != h {
			continue
		}
		out = append(out, c)
	}
	return out
}

func (p *printer) summary() {
	pdcs := p.chosen()
	if p.cfg.JSON {
		p.jsonTable(pdcs)
		return
	}
	if p.err == nil && len(pdcs) > 0 {
		p.err = table(p.w, pdcs, p.first)
	}
	if len(pdcs) == 0 && p.packets > 0 {
		p.printf("no PDC that was asked for\n")
	}
	if p.track.lost > 0 {
		p.printf("%d packets are of PDCs beyond the first %d\n", p.track.lost, maxPDCs)
	}
}

func (p *printer) explain(at time.Time) {
	chosen := map[*pdc]bool{}
	for _, c := range p.chosen() {
		chosen[c] = true
	}
	stalls := slices.DeleteFunc(p.track.stalls(at), func(s stall) bool { return !chosen[s.pdc] })
	if p.cfg.JSON {
		p.jsonStalls(stalls)
		return
	}
	for _, s := range stalls {
		mode := "PDC"
		if s.pdc.mode != 0 {
			mode = s.pdc.mode.String()
		}
		p.printf("pdc %d %s %v > %v: %s\n", s.pdc.n, mode, s.pdc.ends[0], s.pdc.ends[1], s.what)
		for _, w := range s.why {
			p.printf("\t%s\n", w)
		}
	}
	if len(stalls) == 0 && p.packets > 0 {
		p.printf("nothing is owed at %s\n", p.rel(at))
	}
}

// clock is the time of day of a packet.
func (p *printer) clock(t time.Time) string {
	if p.cfg.UTC {
		return t.UTC().Format("15:04:05.000000")
	}
	return t.Local().Format("15:04:05.000000")
}

// rel is the time since the first packet in seconds.
func (p *printer) rel(t time.Time) string { return fmt.Sprintf("%.6f", t.Sub(p.first).Seconds()) }

func address(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// line returns the line of a packet without -v.
func (p *printer) line(k *packet, n *note) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s ", p.clock(k.at), p.rel(k.at))
	if p.cfg.follows() && n.pdc != nil {
		b.WriteString(n.where(k))
	} else {
		fmt.Fprintf(&b, "%s > %s ev=%d", address(k.src), address(k.dst), k.ev)
	}
	if k.parts > 1 {
		fmt.Fprintf(&b, " [%d/%d]", k.part, k.parts)
	}
	text := k.text()
	b.WriteString(": " + text)
	b.WriteString(p.notes(k))
	if why := k.why(text); why != "" {
		b.WriteString(" # " + why)
	}
	p.printf("%s\n", b.String())
}

// notes returns the remarks that follow the headers of a packet.
func (p *printer) notes(k *packet) string {
	s := ""
	if p.cfg.Trailers || k.tail == trailerBad || k.tail == trailerICVBad {
		s += " crc=" + strings.ReplaceAll(k.tail.String(), " ", "-")
	} else if k.tail == trailerAside || k.tail == trailerICVAside {
		s += " aside" // not to the main port, whose CRC or ICV it has
	}
	if k.tail == trailerTrimmed {
		s += " trimmed"
		if k.tos>>2 == dscpTrimmedLastHop {
			s += "-last-hop"
		}
	}
	if k.tos&3 == 3 {
		s += " CE"
	}
	if k.more {
		s += " (first IP fragment)"
	}
	return s
}

// why returns what the comments of a packet add to its headers.
func (k *packet) why(text string) string {
	var out []string
	for _, c := range k.comments {
		c = printable(c)
		c = strings.TrimSuffix(strings.TrimSuffix(c, text), ": ")
		if c != "" {
			out = append(out, c)
		}
	}
	return strings.Join(out, "; ")
}

// printable returns a text of a capture without characters that could harm a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(s, "."))
}

// hex is a hex dump.
func (p *printer) hex(b []byte) {
	for at := 0; at < len(b); at += 16 {
		row := b[at:min(at+16, len(b))]
		var h, t strings.Builder
		for i, c := range row {
			if i > 0 && i%2 == 0 {
				h.WriteByte(' ')
			}
			fmt.Fprintf(&h, "%02x", c)
			if c < ' ' || c > '~' {
				c = '.'
			}
			t.WriteByte(c)
		}
		p.printf("\t0x%04x: %-39s  %s\n", at, h.String(), t.String())
	}
}

// verbose prints every header on a line of its own.
func (p *printer) verbose(k *packet) {
	proto := "UDP"
	if k.native {
		proto = "native IP"
	}
	p.printf("\tframe %d: %s, tos %#02x, ttl %d, %d bytes on the wire, %d captured, trailer %v\n", k.frame, proto, k.tos, k.ttl, k.len, len(k.raw), k.tail)
	for part := range strings.SplitSeq(k.text(), " | ") {
		p.printf("\t%s\n", part)
	}
	if k.msg == nil {
		return
	}
	for _, s := range k.msg.derived() {
		p.printf("\t= %s\n", s)
	}
}

// derived returns the values that follow from the fields of a packet.
func (m *message) derived() (out []string) {
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch {
	case m.req != nil:
		say("clear_psn %#x", uint32(m.req.PSN.Add(int(m.req.ClearOff))))
		if m.req.Flags&wire.FlagSYN != 0 {
			say("start_psn %#x", uint32(m.req.PSN.Add(-int(m.req.PSNOffset))))
		}
	case m.ack != nil:
		a := m.ack
		if a.Flags&wire.AckFlagP == 0 {
			say("ack_psn %#x", uint32(a.AckPSN()))
		}
		if a.Type != wire.TypeAck {
			base := a.CACK.Add(int(a.SACKOff))
			say("MP_RANGE %d: up to psn %#x", 128*int(a.MPR), uint32(a.CACK.Add(128*int(a.MPR))))
			say("sack from %#x: %s", uint32(base), bitmap(base, a.SACK))
		}
	case m.nack != nil:
		say("%s", nackMeaning(m.nack.Code))
	}
	return out
}

// bitmap lists the PSNs that a SACK marks as arrived.
func bitmap(base wire.PSN, bits uint64) string {
	var out []string
	for i := 0; i < 64; {
		if bits>>uint(i)&1 == 0 {
			i++
			continue
		}
		j := i
		for j < 63 && bits>>uint(j+1)&1 != 0 {
			j++
		}
		if i == j {
			out = append(out, fmt.Sprintf("%#x", uint32(base.Add(i))))
		} else {
			out = append(out, fmt.Sprintf("%#x-%#x", uint32(base.Add(i)), uint32(base.Add(j))))
		}
		i = j + 1
	}
	if out == nil {
		return "nothing"
	}
	return strings.Join(out, " ")
}
