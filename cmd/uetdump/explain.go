package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/transport/wire"
)

// A stall is a PDC that waits for something at the end of the capture.
type stall struct {
	pdc  *pdc
	dir  int // whose packets it is about: 0: the initiator's
	what string
	why  []string
}

// stalls returns what each PDC waits for at a time.
func (t *tracker) stalls(at time.Time) (out []stall) {
	for _, p := range t.pdcs {
		if p.ended == "closed" {
			continue
		}
		for i := range p.dir {
			d := &p.dir[i]
			if d.open == 0 && d.wants == 0 || p.ended != "" && d.open == 1 && d.waitsForClose() {
				continue
			}
			out = append(out, p.stalled(i, at))
		}
	}
	return out
}

// waitsForClose reports whether a CLOSE was not answered.
func (d *direction) waitsForClose() bool {
	s := d.sent[d.closing]
	return d.hasEnd && s != nil && !s.answered
}

// seconds formats how long before the end of a capture something was.
func seconds(d time.Duration) string { return fmt.Sprintf("%.6f s", max(0, d).Seconds()) }

// rel returns a PSN relative to the first PSN of its direction.
func (d *direction) rel(psn wire.PSN) string {
	return fmt.Sprintf("%+d (%#x)", psn.Sub(d.base), uint32(psn))
}

// owed returns the PSNs that nothing answered, oldest first.
func (d *direction) owed() []wire.PSN {
	out := make([]wire.PSN, 0, d.open)
	for psn, s := range d.sent {
		if !s.answered {
			out = append(out, psn)
		}
	}
	slices.SortFunc(out, func(a, b wire.PSN) int { return int(a.Sub(b)) })
	return out
}

// stalled describes what one end of a PDC waits for.
func (p *pdc) stalled(i int, at time.Time) stall {
	d, back := &p.dir[i], &p.dir[1-i]
	self, peer := p.ends[i], p.ends[1-i]
	s := stall{pdc: p, dir: i}
	because := func(format string, a ...any) { s.why = append(s.why, fmt.Sprintf(format, a...)) }
	owed := d.owed()
	var missing, arrived []wire.PSN
	var msgs []string
	var lastSend time.Time
	resends, syns := 0, 0
	for _, psn := range owed {
		k := d.sent[psn]
		if k.arrived {
			arrived = append(arrived, psn)
		} else {
			missing = append(missing, psn)
		}
		if m := fmt.Sprintf("%#x", k.msg); k.hasMsg && !slices.Contains(msgs, m) && len(msgs) < 8 {
			msgs = append(msgs, m)
		}
		if k.last.After(lastSend) {
			lastSend = k.last
		}
		resends += k.times - 1
		if k.syn {
			syns += k.times
		}
	}
	switch {
	case len(owed) == 0:
		s.what = fmt.Sprintf("%v waits for nothing, but %v does", self, peer)
	case len(owed) == 1 && d.waitsForClose():
		s.what = fmt.Sprintf("%v waits for the answer to its CLOSE, PSN %s", self, d.rel(owed[0]))
	case len(msgs) > 0:
		s.what = fmt.Sprintf("%v waits for the answer to %s of message %s", self, d.span(owed), strings.Join(msgs, " "))
	default:
		s.what = fmt.Sprintf("%v waits for the answer to %s", self, d.span(owed))
	}

	if p.ended != "" {
		because("it ended: %s", p.ended)
	}
	if back.heard == 0 {
		if syns > 0 && peer.id == 0 {
			because("no SYN answered: %s with SYN in %s, and nothing came back from %s: it does not run, it drops them (other CRC, encapsulation or key), or a firewall or NAT is between",
				packets(syns), seconds(at.Sub(d.first)), address(peer.addr))
		} else {
			because("only this direction was captured: what %s answered cannot be told", address(peer.addr))
		}
		return s
	}
	if d.refusals > 1 || d.refusals == 1 && len(missing) > 0 && d.sent[d.refused] != nil {
		because("NACK %v %s, last for PSN %s %s ago: %s", d.refusal, times(d.refusals), d.rel(d.refused), seconds(at.Sub(d.refuseAt)), nackMeaning(d.refusal))
	}
	if d.wants > 0 {
		line := fmt.Sprintf("%v waits for CLEAR of PSN %s: asked %s, first %s ago", peer, d.rel(d.wantClear), times(d.wants), seconds(at.Sub(d.wantAt)))
		if d.hasClear {
			line += fmt.Sprintf("; the newest CLEAR_PSN is %s", d.rel(d.clear))
		}
		because("%s", line)
	}
	if n := d.hole(); n > 0 {
		because("hole at PSN %s: %s never seen, and no CACK passes it; it was lost before this place, or the capture lost it", d.rel(d.cack+1), packets(n))
	}
	if len(missing) > 0 {
		first := missing[0]
		k := d.sent[first]
		later := 0
		for psn, o := range d.sent {
			if (o.arrived || o.answered) && psn.After(first) {
				later++
			}
		}
		if later > 0 {
			because("hole at PSN %s: %s behind it arrived; sent %s, last %s ago", d.rel(first), packets(later), times(k.times), seconds(at.Sub(k.last)))
		}
		if d.refusals == 0 {
			line := "no ACK ever"
			if !d.lastAck.IsZero() {
				line = fmt.Sprintf("no ACK that tells anything new for %s", seconds(at.Sub(d.lastProgress)))
				if d.lastProgress.IsZero() {
					line = "no ACK that tells anything new"
				}
			}
			line += ": " + packets(len(missing)) + " in flight"
			if resends > 0 {
				line += ", sent again " + times(resends)
			}
			line += fmt.Sprintf(", the last %s ago", seconds(at.Sub(lastSend)))
			if d.probes > 0 {
				line += fmt.Sprintf(", probed %s without an answer", times(d.probes))
			}
			because("%s", line)
		}
	}
	if len(arrived) > 0 && len(missing) == 0 {
		because("%s arrived (SACK) with no response yet, the first PSN %s: %s works on it, or the ACK was lost", packets(len(arrived)), d.rel(arrived[0]), address(peer.addr))
	}
	if d.hasCACK && d.window > 0 && d.nxt.Sub(d.cack) > int32(d.window) {
		because("window closed: CACK %s and MP_RANGE %d let nothing past PSN %s", d.rel(d.cack), d.window, d.rel(d.cack.Add(d.window)))
	}
	return s
}

// hole returns how many packets after CACK were never seen: 0 if the next one was.
func (d *direction) hole() (n int) {
	if !d.hasCACK || d.wants > 0 {
		return 0
	}
	for psn := d.cack + 1; psn.Before(d.nxt) && d.sent[psn] == nil && n < maxSent; psn++ {
		n++
	}
	return n
}

func packets(n int) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// span describes a range of unanswered packets.
func (d *direction) span(owed []wire.PSN) string {
	first, last := owed[0], owed[len(owed)-1]
	if first == last {
		return "PSN " + d.rel(first)
	}
	return fmt.Sprintf("%s, PSN %s to %s,", packets(len(owed)), d.rel(first), d.rel(last))
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
