package main

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A pdcName is the argument of --pdc: a number of the summary, or an end of the PDC.
type pdcName struct {
	n    int            // 0: by end
	addr netip.AddrPort // port 0: any
	id   uint16
}

func parsePDC(s string) (*pdcName, error) {
	bad := fmt.Errorf("%q is no PDC: give its number in the summary, or ADDRESS/PDCID", s)
	a, id, ok := strings.Cut(s, "/")
	if !ok {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return nil, bad
		}
		return &pdcName{n: n}, nil
	}
	i, err := strconv.ParseUint(id, 0, 16)
	if err != nil || i == 0 {
		return nil, bad
	}
	name := &pdcName{id: uint16(i)}
	if ap, err := netip.ParseAddrPort(a); err == nil {
		name.addr = ap
		return name, nil
	}
	ip, err := netip.ParseAddr(strings.Trim(a, "[]"))
	if err != nil {
		return nil, bad
	}
	name.addr = netip.AddrPortFrom(ip, 0)
	return name, nil
}

// is reports whether the name is that of p. An end that talks to port 4793 may have Standard
// encapsulation: then 4793 is its port, too, which is seen when it gets an answer.
func (n *pdcName) is(p *pdc) bool {
	if n.n != 0 {
		return p.n == n.n
	}
	port := n.addr.Port()
	for i, e := range p.ends {
		if e.id == n.id && e.addr.Addr() == n.addr.Addr() &&
			(port == 0 || port == e.addr.Port() || port == wire.Port && p.ends[1-i].addr.Port() == wire.Port) {
			return true
		}
	}
	return false
}

// where describes the place of a packet in its PDC, for the lines of --pdc and --msg.
func (n *note) where(k *packet) string {
	arrow := ">"
	if n.from == 1 {
		arrow = "<"
	}
	s := fmt.Sprintf("pdc %d %s", n.pdc.n, arrow)
	m := k.msg
	switch {
	case m.ack != nil && n.hasRel:
		s += fmt.Sprintf(" ack %+d cack %+d", n.rel, n.cack)
	case m.ack != nil:
		s += fmt.Sprintf(" probe answer cack %+d", n.cack)
	case m.nack != nil && n.hasRel:
		s += fmt.Sprintf(" nack %+d", n.rel)
	case n.hasRel:
		s += fmt.Sprintf(" psn %+d", n.rel)
	}
	switch {
	case n.copied:
		s += fmt.Sprintf(" COPY after %s", n.after)
	case n.unseen:
		s += " RESEND, the first not captured"
	case n.times > 1:
		s += fmt.Sprintf(" RESEND %d after %s", n.times-1, n.after)
	}
	return s
}

// table writes the summary of PDCs.
func table(w io.Writer, pdcs []*pdc, first time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "PDC\tMODE\tINITIATOR\tTARGET\tSTART\tPACKETS\tRESENT\tBYTES\tACKS\tNACKS\tRTT\tFROM\tFOR\tEND")
	for _, p := range pdcs {
		out, in := &p.dir[0], &p.dir[1]
		mode := "?"
		if p.mode != 0 {
			mode = p.mode.String()
		}
		start := "?"
		if p.syn {
			start = fmt.Sprintf("%#x", uint32(out.base))
		}
		fmt.Fprintf(tw, "%d\t%s\t%v\t%v\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.6f\t%.6f\t%s\n", p.n, mode, p.ends[0], p.ends[1], start,
			both(out.packets, in.packets), both(out.resends, in.resends), both(out.bytes, in.bytes), both(out.acks, in.acks), both(out.nacks, in.nacks),
			out.rttText(), p.began.Sub(first).Seconds(), p.last.Sub(p.began).Seconds(), p.endText())
	}
	return tw.Flush()
}

// both writes a count of the initiator, and that of the target if it is not 0.
func both(a, b uint64) string {
	if b == 0 {
		return strconv.FormatUint(a, 10)
	}
	return fmt.Sprintf("%d+%d", a, b)
}

// rttText returns the least and the smoothed time from a packet to the ACK that names it,
// as seen where the capture was made: at the target that is the time to answer.
func (d *direction) rttText() string {
	if d.rtts == 0 {
		return "-"
	}
	return fmt.Sprintf("%v/%v", d.rttMin.Round(time.Microsecond/10), d.rtt.Round(time.Microsecond/10))
}

// endText describes the state of a PDC at the end of the capture.
func (p *pdc) endText() string {
	if p.ended != "" {
		return p.ended
	}
	if n := p.dir[0].open + p.dir[1].open; n > 0 {
		return fmt.Sprintf("%d unanswered", n)
	}
	if p.dir[0].wants+p.dir[1].wants > 0 {
		return "CLEAR missing"
	}
	return "open, at rest"
}
