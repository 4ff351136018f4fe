package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// A named is a case of its own name.
type named struct {
	name string
	run  func(p *peer, worker int, id string) error
	// wrong says, of a case that uetkit fails today, what is wrong.
	wrong string
}

// on makes a case of a setup and what is done with the pair.
func on(s setup, f func(*pair) error) func(*peer, int, string) error {
	return func(p *peer, worker int, id string) (err error) {
		s.worker = worker
		pr, err := open(p, id, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pr.close()) }()
		return f(pr)
	}
}

// each makes one function of several.
func each(fs ...func(*peer, int, string) error) func(*peer, int, string) error {
	return func(p *peer, worker int, id string) error {
		for i, f := range fs {
			if err := f(p, worker, fmt.Sprintf("%s.%d", id, i)); err != nil {
				return fmt.Errorf("part %d: %w", i+1, err)
			}
		}
		return nil
	}
}

var cases = []named{
	{name: "SYN sprayed over several source ports", run: on(setup{peer: args{"evs": make([]int, 4), "syn_burst": 40, "mtu": 1024, "watch": []string{"ack"}}}, sprayed)},
	{name: "peer tracks 8 PSNs", run: each(
		on(setup{peer: args{"window": 8}}, atMost(200, combo{dir: out, sizes: many(40, 5000)})),
		on(setup{ordered: true, peer: args{"window": 8}}, atMost(200, combo{dir: out, ordered: true, sizes: many(40, 5000)})),
		on(setup{peer: args{"window": 8, "faults": args{"loss": 0.05, "seed": 3}}}, exchanges(combo{dir: out, sizes: many(40, 3000)})))},
	{name: "CLEARs are lost while a window of 128 is full of guaranteed responses", run: on(setup{peer: args{"deaf": 20}}, exchanges(combo{dir: out, late: true, sizes: many(400, 900)}))},
	{name: "CLEARs are lost while a window of 8 is full of guaranteed responses", run: on(setup{peer: args{"window": 8, "deaf": 6}}, exchanges(combo{dir: out, late: true, sizes: many(40, 900)}))},
	{name: "MPR 0", run: each(
		on(setup{peer: args{"mpr": 0}}, atMost(0, combo{dir: out, sizes: []int{2 << 20}})),
		on(setup{ordered: true, peer: args{"mpr": 0}}, atMost(0, combo{dir: out, ordered: true, sizes: []int{2 << 20}})))},
	{name: "receive posted late after NO_RESPONSE", run: on(setup{peer: args{"unexpected": "late"}}, postedLate)},
	{name: "index disabled, then enabled: messages", run: on(setup{peer: args{"unexpected": "disable"}}, exchanges(combo{dir: out, late: true, sizes: mixed}))},
	{name: "index disabled, then enabled: ordered messages", run: disabledOrdered},
	{name: "index disabled, then enabled: the answer to the first ordered message is lost", run: on(setup{ordered: true, peer: args{"unexpected": "disable", "lose": args{"1:2": 1}}}, exchanges(combo{dir: out, ordered: true, late: true, data: true, sizes: []int{1, 2, 3, 4, 5, 6}}))},
	{name: "RESPONSE after NO_RESPONSE is lost once, and cleared with another", run: on(setup{peer: args{"unexpected": "late", "late_until": "cleared", "lose": args{"1:1": 1}}}, exchanges(combo{dir: out, late: true, sizes: []int{10, 20, 30}}))},
	{name: "wrong next_hdr gets NACK 0F", run: on(setup{peer: args{"watch": []string{"nack", "ack"}}}, wrongNextHdr)},
	{name: "single packets and what is answered", run: on(setup{peer: args{"watch": []string{"nack", "ack"}}}, singlePackets)},
	{name: "NOOP is acknowledged", run: each(
		on(setup{peer: args{"watch": []string{"control acknowledged"}}}, controls(0, false)),
		on(setup{ordered: true, peer: args{"watch": []string{"control acknowledged"}}}, controls(0, true)))},
	{name: "NEGOTIATION is acknowledged", run: each(
		on(setup{peer: args{"watch": []string{"control acknowledged"}}}, controls(9, false)),
		on(setup{ordered: true, peer: args{"watch": []string{"control acknowledged"}}}, controls(9, true)))},
	{name: "ACKs of control packets have next_hdr 9", run: each(
		on(setup{peer: args{"none_next": 9}}, exchanges(combo{dir: both, sizes: mixed})),
		on(setup{ordered: true, sealed: true, peer: args{"none_next": 9, "window": 8}}, exchanges(combo{dir: both, ordered: true, sizes: mixed})))},
	{name: "NEGOTIATION opens a PDC", run: on(setup{peer: args{"watch": []string{"control acknowledged"}}}, controlFirst(9))},
	{name: "NOOP opens a PDC", run: on(setup{peer: args{"watch": []string{"control acknowledged"}}}, controlFirst(0))},
	{name: "PSN wrap", run: each(
		on(setup{peer: args{"start_psn": uint32(0xFFFFFFC0)}}, exchanges(combo{dir: in, form: "std", sizes: []int{100_000, 5, 200_000}})),
		on(setup{ordered: true, peer: args{"start_psn": uint32(0xFFFFFFC0)}}, exchanges(combo{dir: in, form: "std", ordered: true, sizes: []int{100_000, 5, 200_000}})),
		on(setup{sealed: true, peer: args{"start_by": "given", "given_start": uint32(0xFFFFFFF0)}}, exchanges(combo{dir: out, sizes: []int{100_000, 5, 200_000}})))},
	{name: "close from either side, again and again", run: each(
		on(setup{}, closes("initiator")), on(setup{}, closes("target")),
		on(setup{peer: args{"close_by": "ack"}}, closes("target by ACK")),
		on(setup{peer: args{"faults": args{"loss": 0.3, "seed": 5}}}, closes("initiator")),
		on(setup{peer: args{"faults": args{"loss": 0.3, "seed": 6}}}, closes("target")),
		on(setup{sealed: true}, closes("initiator")))},
	{name: "restart of the peer", run: each(on(setup{}, peerRestarts), on(setup{sealed: true}, peerRestarts))},
	{name: "restart of the peer with the same PDCID", run: on(setup{peer: args{"pdcid": 4711}}, samePDCID)},
	{name: "restart of uetkit", run: uetkitRestarts},
	{name: "requests that are not built are refused, and nothing else", run: on(setup{peer: args{"watch": []string{"ack"}}}, refused)},
	{name: "wrong PIDonFEP, index and job are refused", run: on(setup{}, wrongAddress)},
	{name: "absolute addressing, another job", run: on(setup{info: func(i *uet.Info) { i.Config.JobID = 7 }, peer: args{"job": 7}}, absolute)},
	{name: "message longer than the buffer", run: each(on(setup{}, truncated("truncate")), on(setup{peer: args{"too_long": "refuse"}}, truncated("refuse")))},
	{name: "copies and reordering without loss", run: each(
		on(setup{peer: args{"faults": args{"dup": 0.3, "reorder": 0.3, "seed": 9}}}, exchanges(combo{dir: both, form: "std", sizes: many(60, 4000)})),
		on(setup{ordered: true, peer: args{"faults": args{"dup": 0.3, "reorder": 0.3, "seed": 10}}}, exchanges(combo{dir: both, ordered: true, form: "std", sizes: many(60, 4000)})))},
	{name: "a path that loses long packets", run: each(holed(setup{}, true), holed(setup{}, false),
		holed(setup{ordered: true}, true), holed(setup{ordered: true}, false),
		holed(setup{ordered: true, peer: args{"go_back_n": true}}, true), holed(setup{ordered: true, peer: args{"go_back_n": true}}, false),
		holed(setup{sealed: true}, true), holed(setup{sealed: true, ordered: true}, false))},
	{name: "8 MiB, and 300 empty messages", run: each(
		on(setup{}, exchanges(combo{dir: both, form: "std", sizes: []int{8 << 20}})),
		on(setup{sealed: true}, exchanges(combo{dir: both, form: "std", sizes: []int{8 << 20}})),
		on(setup{}, exchanges(combo{dir: both, form: "std", data: true, sizes: make([]int, 300)})))},
	{name: "nothing in clear where a key is", run: inClear},
	{name: "a key for each 256 packets, without a sign on the wire", run: on(setup{sealed: true, rekey: true}, exchanges(combo{dir: both, sizes: many(400, 900)}))},
	{name: "checksum zero over IPv6 (Standard)", run: on(setup{v6: true, standard: true, peer: args{"need_checksum": true}}, zeroChecksum)},
	{name: "answers repeat the entropy value (Standard)", run: each(
		on(setup{standard: true, peer: args{"evs": make([]int, 4), "watch": []string{"ack"}}}, echoed),
		on(setup{v6: true, standard: true, peer: args{"evs": make([]int, 4), "watch": []string{"ack"}}}, echoed))},
}

// mixed are messages of one packet and of several.
var mixed = []int{1, 20_000, 2, 30_000, 3, 4, 40_000, 5, 6, 7}

// many are n messages of increasing size up to most.
func many(n, most int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = i * most / n
	}
	return sizes
}

// exchange plays a transfer to its end, and takes what it left of events.
func exchange(pr *pair, c combo) error {
	if c.form == "" {
		c.form = "std"
	}
	c.seed += 77
	pr.ep.done, pr.events = nil, slices.DeleteFunc(pr.events, func(e event) bool { return e.Ev == "sent" || e.Ev == "received" })
	t := transfer{combo: c, pr: pr}
	t.make()
	steps := []func() error{t.post, t.send}
	if c.late {
		steps = []func() error{t.send, func() error { return pr.pause(60 * time.Millisecond) }, t.post}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	wait := 15 * time.Second
	if err := pr.until("all messages", wait, t.over); err != nil {
		return fmt.Errorf("%w; %s", err, t.state())
	}
	return t.check()
}

func exchanges(c combo) func(*pair) error {
	return func(pr *pair) error { return exchange(pr, c) }
}

// holed plays, on a path that carries packets of 1,024 bytes of payload and none of 4,096, from the
// first packet on or later, messages in both directions. The peer's own packets are short enough.
func holed(s setup, first bool) func(*peer, int, string) error {
	hole := args{"longest": 1472}
	s.info = func(i *uet.Info) { i.Config.PayloadMTU = 4096 }
	a := args{"mtu": 1024}
	maps.Copy(a, s.peer)
	if first {
		a["faults"] = hole
	}
	s.peer = a
	sizes := []int{9000, 1, 1500, 60_000, 0, 4096}
	if s.ordered { // what comes early behind an ordered message that is too long makes it fail (F7)
		sizes = []int{8192, 4096, 61_440, 4096}
	}
	return on(s, func(pr *pair) error {
		begun := time.Now()
		if !first {
			if err := exchange(pr, combo{dir: both, ordered: s.ordered, sizes: sizes}); err != nil {
				return fmt.Errorf("before: %w", err)
			}
			if err := pr.do("set", args{"faults": hole}); err != nil {
				return err
			}
		}
		for i := range 2 {
			if err := exchange(pr, combo{dir: both, ordered: s.ordered, seed: uint64(i), sizes: sizes}); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		if e, err := pr.stats(); err != nil || e.count("long") == 0 {
			return fmt.Errorf("%d packets were too long: %w", e.count("long"), err)
		}
		if took := time.Since(begun); took > 8*time.Second {
			return fmt.Errorf("it took %v", took)
		}
		return nil
	})
}

// atMost plays messages of which no more than most packets may come outside of what the peer tracks: a peer that
// has said nothing tracks 128, and one that tracks fewer says so by its NACKs.
func atMost(most int, c combo) func(*pair) error {
	return func(pr *pair) error {
		if err := exchange(pr, c); err != nil {
			return err
		}
		e, err := pr.stats()
		if n := e.count("out of window"); n > most {
			return fmt.Errorf("%d packets outside of what the peer tracks, want %d at most", n, most)
		}
		return err
	}
}

// disabledOrdered plays several combinations in which a target without a receive disables its index.
func disabledOrdered(p *peer, worker int, id string) error {
	var errs []error
	for i := range 8 {
		c := combo{dir: out, ordered: true, late: true, seed: uint64(i)}
		c.choose()
		c.unexpected = "disable"
		if err := c.run(p, worker, fmt.Sprintf("%s.%d", id, i)); err != nil {
			errs = append(errs, fmt.Errorf("%d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func sprayed(pr *pair) error {
	if err := exchange(pr, combo{dir: in, sizes: []int{40_000, 1, 2, 3}}); err != nil {
		return err
	}
	ports, pdcs := map[uint16]bool{}, map[int]bool{}
	for _, e := range pr.of("ack") {
		ports[e.Port], pdcs[e.Spdcid] = true, true
	}
	if len(ports) < 2 || len(pdcs) != 1 || len(pr.of("opened")) != 1 {
		return fmt.Errorf("ACKs came to %d ports and from %d PDCs, %d were opened", len(ports), len(pdcs), len(pr.of("opened")))
	}
	return nil
}

// echoed wants ACKs at port 4793 from the ports that the packets came from.
func echoed(pr *pair) error {
	if err := exchange(pr, combo{dir: in, sizes: many(40, 2000)}); err != nil {
		return err
	}
	from := map[uint16]bool{}
	for _, e := range pr.of("ack") {
		if e.Port != standardPort || !slices.Contains(pr.evs, e.EVPort) {
			return fmt.Errorf("an ACK went from port %d to port %d; the packets came from %v", e.EVPort, e.Port, pr.evs)
		}
		from[e.EVPort] = true
	}
	if len(from) < 2 {
		return fmt.Errorf("the ACKs came from %d ports, the packets from %d", len(from), len(pr.evs))
	}
	return nil
}

func postedLate(pr *pair) error {
	for n := range 4 {
		m := message{n: n, content: content(77, n, 1000*n)}
		if err := pr.ep.send(m, false, true); err != nil {
			return err
		}
	}
	if err := pr.pause(300 * time.Millisecond); err != nil {
		return err
	}
	if n := len(pr.ep.done); n > 0 {
		return fmt.Errorf("%d sends were delivery complete before the target had answered more than NO_RESPONSE", n)
	}
	if err := pr.do("post", args{"sizes": []int{5000, 5000, 5000, 5000}}); err != nil {
		return err
	}
	return pr.until("all completions", 5*time.Second, func() (bool, error) {
		for _, d := range pr.ep.done {
			if d.err != nil {
				return false, d.err
			}
		}
		return len(pr.ep.done) == 4 && len(pr.of("received")) == 4, nil
	})
}

// PDS headers that are put together here, by UE 3.5.10.

const (
	rudReq, rodReq, control       = 2, 3, 11
	fRETX, fAR, fSYN              = 0x10, 0x08, 0x04
	nhNone, nhSmall, nhStd, nhRsp = 0, 1, 3, 4
	ctlAckReq, ctlClose, ctlProbe = 1, 4, 6
	ctlCreditReq, ctlNegotiation  = 8, 9
)

func pds(kind, next, flags int, second uint16, psn uint32, spdcid, dpdcid uint16, rest ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(kind<<11|next<<7|flags))
	b = binary.BigEndian.AppendUint16(b, second)
	b = binary.BigEndian.AppendUint32(b, psn)
	b = binary.BigEndian.AppendUint16(b, spdcid)
	b = binary.BigEndian.AppendUint16(b, dpdcid)
	return append(b, rest...)
}

// ses is a standard request without payload, or a small one.
func ses(opcode byte, small bool, msgID uint16) []byte {
	b := []byte{opcode, 0x0B, byte(msgID >> 8), byte(msgID), 0, 0, 0, 1, 0, 0, 0, 15} // REL, EOM, SOM; job 1, PID 0, RI 15
	if small {
		b[2], b[3] = 0, 0
		return append(b, make([]byte, 8)...)
	}
	return append(b, make([]byte, 32)...)
}

// inject has the peer send one PDS packet.
func (pr *pair) inject(b []byte) error {
	return pr.do("inject", args{"ip": pr.ep.at.Addr().String(), "port": pr.ep.at.Port(), "hex": hex.EncodeToString(b)})
}

// answered injects a packet and wants an answer of one kind; answers that came before do not count.
func (pr *pair) answered(what string, b []byte, is func(event) bool) (event, error) {
	if err := pr.turn(); err != nil {
		return event{}, err
	}
	answer := func(e event) bool { return e.Ev == "ack" || e.Ev == "nack" }
	pr.events = slices.DeleteFunc(pr.events, answer)
	if err := pr.inject(b); err != nil {
		return event{}, err
	}
	e, err := pr.want(what, func(e event) bool { return answer(e) && is(e) })
	if err != nil {
		return e, fmt.Errorf("%w; uetkit counted: %s", err, pr.ep.counters())
	}
	return e, nil
}

// nacked injects a packet and wants its NACK, with a code. NACKs to strangers may be held back where there
// are many: it tries again.
func (pr *pair) nacked(what string, code int, b []byte) error {
	for try := 1; ; try++ {
		if err := pr.inject(b); err != nil {
			return err
		}
		var answer *event
		err := pr.until("", 300*time.Millisecond, func() (bool, error) {
			for _, e := range pr.of("nack") {
				if e.Psn == binary.BigEndian.Uint32(b[4:]) && e.Dpdcid == int(binary.BigEndian.Uint16(b[8:])) {
					answer = &e
				}
			}
			return answer != nil, nil
		})
		switch {
		case answer == nil && try == 5:
			return fmt.Errorf("%s: no NACK: %w; uetkit counted: %s", what, err, pr.ep.counters())
		case answer == nil:
			continue
		case answer.Code != code:
			return fmt.Errorf("%s: NACK %#x, not %#x", what, answer.Code, code)
		}
		pr.events = slices.DeleteFunc(pr.events, func(e event) bool { return e.Ev == "nack" })
		return nil
	}
}

// acked injects a packet and wants an ACK that names a PSN.
func (pr *pair) acked(what string, psn uint32, next int, b []byte) (event, error) {
	return pr.answered(what, b, func(e event) bool { return e.Ev == "ack" && e.Psn == psn && e.NextHdr == next })
}

func wrongNextHdr(pr *pair) error {
	var errs []error
	for i, next := range []int{nhNone, nhRsp, 5, 6, 7, 15} {
		b := pds(rudReq, next, fSYN|fAR, 0xFFFF, 70_000, uint16(100+i), 0, ses(5, false, 1)...)
		errs = append(errs, pr.nacked(fmt.Sprint("SYN with next_hdr ", next), 0x0F, b))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return exchange(pr, combo{dir: both, sizes: []int{1, 2}})
}

func singlePackets(pr *pair) error {
	const id, start = 300, 70_000
	send := ses(5, false, 1)
	if err := pr.nacked("unknown PDC", 0x0E, pds(rudReq, nhStd, fAR, 0xFFFF, start, id, 4711, send...)); err != nil {
		return err
	}
	e, err := pr.acked("SYN", start, nhRsp, pds(rudReq, nhStd, fSYN|fAR, 0xFFFF, start, id, 0, send...))
	if err != nil {
		return err
	}
	tpdcid := uint16(e.Spdcid)
	if _, err := pr.acked("SYN again", start, nhRsp, pds(rudReq, nhStd, fSYN|fAR|fRETX, 0xFFFF, start, id, 0, send...)); err != nil {
		return err
	}
	for _, n := range []struct {
		what string
		code int
		b    []byte
	}{
		{"SYN of another life", 0x15, pds(rudReq, nhStd, fSYN|fAR, 0xFFFF, start+20_000, id, 0, send...)},
		{"another mode", 0x16, pds(rodReq, nhStd, fAR, 0xFFFF, start+1, id, tpdcid, send...)},
		{"another SPDCID", 0x0F, pds(rudReq, nhStd, fAR, 0xFFFF, start+1, id+1, tpdcid, send...)},
		{"ACK_REQ of what never came", 0x12, pds(control, ctlAckReq, fAR, 0, start+1, id, tpdcid, 0, 0, 0, 0)},
		{"CREDIT_REQ to who grants none", 0x19, pds(control, ctlCreditReq, 0, 0, 0, id, tpdcid, 0, 0, 0, 1)},
		{"out of the window", 0x0B, pds(rudReq, nhStd, fAR, 0xFFFF, start+1_000_000, id, tpdcid, send...)},
	} {
		if err := pr.nacked(n.what, n.code, n.b); err != nil {
			return err
		}
	}
	if _, err := pr.acked("ACK_REQ", start, nhRsp, pds(control, ctlAckReq, fAR, 0, start, id, tpdcid, 0, 0, 0, 0)); err != nil {
		return err
	}
	probe := pds(control, ctlProbe, 0, 0x1234, 0, id, tpdcid, 0, 1, 0x11, 0x70) // SACK base 70,000
	if _, err := pr.answered("PROBE", probe, func(e event) bool { return e.Ev == "ack" && e.Flags&0x08 != 0 && e.Opaque == 0x1234 }); err != nil {
		return err
	}
	if _, err := pr.acked("CLOSE", start+1, nhNone, pds(control, ctlClose, fAR, 0, start+1, id, tpdcid, 0, 0, 0, 0)); err != nil {
		return err
	}
	// Again, as if the ACK had been lost: an ACK, or NACK 0E, which says the same.
	again := pds(control, ctlClose, fAR|fRETX, 0, start+1, id, tpdcid, 0, 0, 0, 0)
	e, err = pr.answered("CLOSE again", again, func(e event) bool { return e.Psn == start+1 })
	if err != nil {
		return err
	}
	if e.Ev == "nack" && e.Code != 0x0E {
		return fmt.Errorf("CLOSE again: NACK %#x", e.Code)
	}
	return pr.nacked("SYN of a closed PDC", 0x0E, pds(rudReq, nhStd, fSYN|fAR|fRETX, 0xFFFF, start, id, 0, send...))
}

// send has the peer send a control packet that takes a PSN, and wants its ACK.
func (pr *pair) control(ctl int, ordered bool) error {
	a := args{"to": pr.self(), "ordered": ordered, "ctl": ctl}
	if ctl == ctlNegotiation {
		a["tail"] = "0102000000000001" // SYN_RETX_TRANSFER
	}
	if err := pr.do("control", a); err != nil {
		return err
	}
	_, err := pr.want(fmt.Sprint("an ACK of control packet ", ctl), func(e event) bool { return e.Ev == "control acknowledged" && e.Ctl == ctl })
	return err
}

// controls sends them between messages.
func controls(ctl int, ordered bool) func(*pair) error {
	return func(pr *pair) error {
		for range 3 {
			if err := exchange(pr, combo{dir: in, ordered: ordered, sizes: []int{1, 5000, 0}}); err != nil {
				return err
			}
			if err := pr.control(ctl, ordered); err != nil {
				return err
			}
		}
		if n := len(pr.of("opened")); n != 1 {
			return fmt.Errorf("%d PDCs were opened, not one", n)
		}
		return nil
	}
}

// controlFirst has one open the PDC.
func controlFirst(ctl int) func(*pair) error {
	return func(pr *pair) error {
		if err := pr.control(ctl, false); err != nil {
			return err
		}
		return exchange(pr, combo{dir: in, sizes: []int{1, 5000, 0}})
	}
}

// closes ends all PDCs many times; new messages open new ones.
func closes(who string) func(*pair) error {
	return func(pr *pair) error {
		for range 5 {
			if err := exchange(pr, combo{dir: both, sizes: []int{1, 3000, 0}}); err != nil {
				return err
			}
			var err error
			if who == "initiator" {
				err = errors.Join(pr.ep.Quiesce(pr.ep.to), pr.do("close", nil))
			} else {
				err = errors.Join(pr.do("close", args{"targets": true}), pr.do("close", nil))
				if who == "target by ACK" { // the flag travels with the ACK of the next message
					err = errors.Join(err, exchange(pr, combo{dir: out, sizes: []int{9}}))
				}
			}
			if err != nil {
				return err
			}
			err = pr.until("all PDCs closed", 5*time.Second, func() (bool, error) {
				e, err := pr.stats()
				return e.PDCs == 0, err
			})
			if err != nil {
				return err
			}
		}
		for _, e := range pr.of("pdc closed") {
			if e.Why != "closed" && e.Why != "closed by peer" {
				return fmt.Errorf("the peer's PDC ended: %s", e.Why)
			}
		}
		return nil
	}
}

func peerRestarts(pr *pair) error {
	for i := range 3 {
		if err := exchange(pr, combo{dir: both, sizes: []int{1, 3000}}); err != nil {
			return fmt.Errorf("in life %d: %w", i+1, err)
		}
		if err := pr.do("restart", nil); err != nil {
			return err
		}
		if _, err := pr.want("restarted", func(e event) bool { return e.Ev == "restarted" }); err != nil {
			return err
		}
		// What goes by the old PDC may fail, and then says that its effect is unknown.
		if err := pr.do("post", args{"sizes": []int{100}}); err != nil {
			return err
		}
		pr.ep.done = nil
		if err := pr.ep.send(message{n: 0, content: content(1, 0, 50)}, false, false); err != nil {
			return err
		}
		if err := pr.until("the end of the first send after the restart", 5*time.Second, func() (bool, error) { return len(pr.ep.done) == 1, nil }); err != nil {
			return err
		}
		d := pr.ep.done[0]
		received := len(pr.of("received")) > 0
		switch {
		case d.err == nil:
			if _, err := pr.want("the message", func(e event) bool { return e.Ev == "received" }); err != nil {
				return err
			}
			continue
		case !errors.Is(d.err, fi.ECONNABORTED):
			return fmt.Errorf("after the restart: %w, provider %#x", d.err, d.err.Prov)
		case received && !d.err.OutcomeUnknown:
			return errors.New("a send failed for certain, and was received")
		}
		// The receive that is still posted takes the next message.
		pr.ep.done = nil
		if err := pr.ep.send(message{n: 1, content: content(1, 1, 60)}, false, false); err != nil {
			return err
		}
		if _, err := pr.want("a message of the new PDC", func(e event) bool { return e.Ev == "received" && e.Len == 60 }); err != nil {
			return err
		}
		if err := pr.until("its completion", 5*time.Second, func() (bool, error) { return len(pr.ep.done) == 1, nil }); err != nil {
			return err
		}
	}
	return nil
}

func samePDCID(pr *pair) error {
	for i := range 3 {
		if err := exchange(pr, combo{dir: in, sizes: []int{1, 3000}}); err != nil {
			return fmt.Errorf("in life %d: %w", i+1, err)
		}
		if err := pr.do("restart", nil); err != nil {
			return err
		}
		if _, err := pr.want("restarted", func(e event) bool { return e.Ev == "restarted" }); err != nil {
			return err
		}
	}
	e, err := pr.stats()
	_ = e
	return err
}

func uetkitRestarts(p *peer, worker int, id string) (err error) {
	pr, err := open(p, id, setup{worker: worker})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pr.close()) }()
	for i := range 3 {
		if err := exchange(pr, combo{dir: both, sizes: []int{1, 3000}}); err != nil {
			return fmt.Errorf("in life %d: %w", i+1, err)
		}
		at := pr.ep.at
		if err := pr.ep.Close(); err != nil {
			return err
		}
		if pr.ep, err = openEndpoint(at, 0, func(i *uet.Info) { i.Tx.MsgOrder = 0 }); err != nil {
			return err
		}
		if err := pr.ep.know(pr.at); err != nil {
			return err
		}
		// The first message by the peer's old PDC fails; a receive takes whatever comes.
		if err := pr.ep.post(0, 100, false, 0, 0); err != nil {
			return err
		}
		for n := 0; ; n++ {
			if n == 3 {
				return errors.New("no message of the peer came through after the restart")
			}
			if err := pr.do("send", args{"to": pr.self(), "sizes": []int{40}, "ctx": 90 + n, "seed": 5}); err != nil {
				return err
			}
			e, err := pr.want("the end of a send", func(e event) bool { return e.Ev == "sent" && e.Ctx == 90+n })
			if err != nil {
				return err
			}
			if e.OK {
				break
			}
		}
		if err := pr.until("the message", 5*time.Second, func() (bool, error) { return len(pr.ep.done) == 1, nil }); err != nil {
			return err
		}
	}
	return nil
}

// refused sends what uetkit does not do: it must say so, guaranteed, and go on.
func refused(pr *pair) error {
	const id, start = 400, 80_000
	requests := []struct {
		next   int
		opcode byte
		rc     int
	}{{nhSmall, 2, rcBadKey}, {nhSmall, 5, 0x06}, {nhStd, 0x10, 0x06}, {nhStd, 0x30, 0x06}, {nhStd, 0x3F, 0x06}, {nhStd, 0x07, 0x06}}
	var tpdcid uint16
	for i, r := range requests {
		psn := uint32(start + i)
		flags, to := fSYN|fAR, uint16(i)
		if tpdcid != 0 {
			flags, to = fAR, tpdcid
		}
		e, err := pr.acked(fmt.Sprintf("opcode %#x", r.opcode), psn, nhRsp, pds(rudReq, r.next, flags, 0xFFFF, psn, id, to, ses(r.opcode, r.next == nhSmall, uint16(i+1))...))
		if err != nil {
			return err
		}
		if e.RC == nil || *e.RC != r.rc { // a small READ names a region by its index, and there is none
			return fmt.Errorf("opcode %#x with next_hdr %d: return code %s, not %#x", r.opcode, r.next, code(e.RC), r.rc)
		}
		tpdcid = uint16(e.Spdcid)
	}
	psn := uint32(start + len(requests))
	e, err := pr.acked("NO_OP", psn, nhRsp, pds(rudReq, nhStd, fAR, 0xFFFF, psn, id, tpdcid, ses(0, false, 99)...))
	if err == nil && (e.RC == nil || *e.RC > 1) {
		err = fmt.Errorf("NO_OP: return code %s", code(e.RC))
	}
	return err
}

func wrongAddress(pr *pair) error {
	for _, w := range []struct {
		what string
		to   args
		rcs  []int
	}{
		{"PIDonFEP", args{"pid": 5}, []int{0x1A, 0x1F}},
		{"index", args{"ri": 99}, []int{0x19, 0x1F}},
		{"job", args{"job": 9}, []int{0x1B, 0x17}},
	} {
		to := pr.self()
		for k, v := range w.to {
			to[k] = v
		}
		if err := pr.do("send", args{"to": to, "sizes": []int{10, 5000}, "seed": 1}); err != nil {
			return err
		}
		for range 2 {
			e, err := pr.want("the end of a send", func(e event) bool { return e.Ev == "sent" })
			if err != nil {
				return err
			}
			if e.OK || e.RC == nil || !slices.Contains(w.rcs, *e.RC) {
				return fmt.Errorf("wrong %s: return code %s", w.what, code(e.RC))
			}
		}
	}
	return exchange(pr, combo{dir: both, sizes: []int{1, 2}})
}

func absolute(pr *pair) error {
	if err := exchange(pr, combo{dir: both, sizes: []int{1, 2}}); err != nil {
		return err
	}
	to := pr.self()
	to["relative"] = false
	if err := pr.ep.post(0, 10, false, 0, 0); err != nil {
		return err
	}
	pr.ep.done = nil
	if err := pr.do("send", args{"to": to, "sizes": []int{10}, "seed": 1}); err != nil {
		return err
	}
	return pr.until("the message", 5*time.Second, func() (bool, error) { return len(pr.ep.done) == 1 && pr.ep.done[0].err == nil, nil })
}

// truncated sends 5,000 bytes into 3,000, both ways.
func truncated(how string) func(*pair) error {
	return func(pr *pair) error {
		if err := pr.do("post", args{"sizes": []int{3000}}); err != nil {
			return err
		}
		if _, err := pr.stats(); err != nil {
			return err
		}
		if err := pr.ep.post(0, 3000, false, 0, 0); err != nil {
			return err
		}
		long := message{content: content(3, 0, 5000)}
		if err := errors.Join(pr.ep.send(long, false, false), pr.do("send", args{"to": pr.self(), "sizes": []int{5000}, "seed": 3})); err != nil {
			return err
		}
		if err := pr.until("both ends", 5*time.Second, func() (bool, error) { return len(pr.ep.done) == 2, nil }); err != nil {
			return err
		}
		sent, err := pr.want("the end of the peer's send", func(e event) bool { return e.Ev == "sent" })
		if err != nil {
			return err
		}
		if !sent.OK && (sent.RC == nil || *sent.RC != 0x22) {
			return fmt.Errorf("the peer's send ended with %s", code(sent.RC))
		}
		got, err := pr.want("the peer's receive", func(e event) bool { return e.Ev == "received" })
		if err != nil {
			return err
		}
		for _, d := range pr.ep.done {
			switch {
			case d.recv && (d.err == nil || !errors.Is(d.err, fi.ETRUNC) || d.err.Len != 3000 || d.err.OverLen != 2000):
				return fmt.Errorf("uetkit's receive: %v", d.err)
			case d.recv && (digest(d.buf[:3000]) != digest(long.content[:3000]) || slices.ContainsFunc(d.buf[3000:], func(b byte) bool { return b != poison })):
				return errors.New("uetkit's receive has wrong bytes")
			case !d.recv && how == "refuse" && (d.err == nil || !errors.Is(d.err, fi.ETRUNC) || d.err.Prov != 0x22):
				return fmt.Errorf("uetkit's send, refused as TOO_LONG: %v", d.err)
			case !d.recv && how == "truncate" && d.err != nil:
				return fmt.Errorf("uetkit's send, truncated: %w", d.err)
			}
		}
		if how == "truncate" && (got.Len != 3000 || got.MsgLen != 5000 || got.SHA256 != digest(long.content[:3000])) {
			return fmt.Errorf("the peer received %d of %d bytes", got.Len, got.MsgLen)
		}
		return exchange(pr, combo{dir: both, sizes: []int{1, 2}})
	}
}

// inClear sends packets in clear to a sealed endpoint: there is no answer and no effect.
func inClear(p *peer, worker int, id string) error {
	run := on(setup{sealed: true}, func(pr *pair) error {
		clear := id + ".clear"
		if err := p.do("open", clear, args{"ip": pr.at.Addr().String(), "port": 0, "encap": "symmetric", "give_up": 1.0}); err != nil {
			return err
		}
		other := &pair{p: p, id: clear, ep: pr.ep}
		if _, err := other.want("open", func(e event) bool { return e.Ev == "open" }); err != nil {
			return err
		}
		if err := pr.ep.post(0, 100, false, 0, 0); err != nil {
			return err
		}
		if err := other.do("send", args{"to": pr.self(), "sizes": []int{10}, "seed": 1}); err != nil {
			return err
		}
		e, err := other.want("that it is given up", func(e event) bool { return e.Ev == "sent" })
		if err != nil {
			return err
		}
		s, err := other.stats()
		if err != nil {
			return err
		}
		if e.OK || s.count("received") != 0 || len(pr.ep.done) != 0 {
			return fmt.Errorf("a message in clear: sent %v, %d answers, %d received", e.OK, s.count("received"), len(pr.ep.done))
		}
		return other.do("shut", nil)
	})
	return run(p, worker, id)
}

// zeroChecksum has a peer whose kernel drops what comes with checksum zero: nothing may reach it. Then
// one that takes them.
func zeroChecksum(pr *pair) error {
	if err := pr.ep.send(message{content: []byte("nobody hears this")}, false, false); err != nil {
		return err
	}
	if err := pr.pause(300 * time.Millisecond); err != nil {
		return err
	}
	e, err := pr.stats()
	if err != nil {
		return err
	}
	if n := e.count("received"); n > 0 {
		return fmt.Errorf("%d packets came with a checksum", n)
	}
	if err := pr.do("set", args{"need_checksum": false}); err != nil {
		return err
	}
	if err := pr.do("post", args{"sizes": []int{100}}); err != nil {
		return err
	}
	if _, err := pr.want("the message", func(e event) bool { return e.Ev == "received" && e.OK }); err != nil {
		return err
	}
	return exchange(pr, combo{dir: both, sizes: []int{1, 2}})
}
