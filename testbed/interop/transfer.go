package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/uet"
)

// limit is how long a transfer may take.
const limit = 25 * time.Second

// surplus is how many receives more a combination posts than there are messages: what comes into them
// came twice.
const surplus = 2

// run plays one combination on a peer that runs already.
func (c combo) run(p *peer, worker int, id string) (err error) {
	peerArgs := args{
		"seed": c.seed % 1_000_003, "mtu": c.peerMTU, "ack_type": c.ackType, "unexpected": c.unexpected,
		"go_back_n": c.goBackN, "keep_syn": c.keepSyn, "cc_requests": c.ccRequests, "close_ack": c.closeAck,
		"start_by": c.startBy, "evs": make([]int, c.evs),
		"faults": args{"seed": c.seed % 1_000_003, "loss": c.loss, "dup": c.loss / 4, "reorder": c.loss / 2},
	}
	if c.announced {
		peerArgs["asked"] = "reads"
	}
	pr, err := open(p, id, setup{
		worker: worker, v6: c.v6, standard: c.standard, sealed: c.sealed, ordered: c.ordered, peer: peerArgs,
		info: func(i *uet.Info) {
			i.Config.PayloadMTU, i.Config.Paths = c.mtu, c.paths
			if c.announced {
				i.Config.Tuning.RendezvousMin = 1
			}
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pr.close()) }()
	if c.announced {
		if err := pr.do("set", args{"peer_port": pr.ep.at.Port()}); err != nil {
			return err
		}
	}
	t := transfer{combo: c, pr: pr, extra: surplus}
	t.make()
	if !c.late {
		if err := t.post(); err != nil {
			return err
		}
	}
	if err := t.send(); err != nil {
		return err
	}
	if c.late {
		if err := pr.pause(40 * time.Millisecond); err != nil {
			return err
		}
		if err := t.post(); err != nil {
			return err
		}
	}
	if err := pr.until("all messages", limit, t.over); err != nil {
		return fmt.Errorf("%w; %s", err, t.state())
	}
	if err := t.check(); err != nil {
		return err
	}
	return t.finish()
}

// A transfer is the messages of a combination under way.
type transfer struct {
	combo
	pr       *pair
	messages []message // of each direction
	extra    int       // receives more than messages
}

// sends and receives say what uetkit does.
func (t *transfer) sends() bool    { return t.dir != in }
func (t *transfer) receives() bool { return t.dir != out }

func (t *transfer) make() {
	for n, size := range t.sizes {
		m := message{n: n, content: content(t.seed, n, size), tag: 0xC0FFEE00 + uint64(n)}
		if t.oneTag {
			m.tag = 0xC0FFEE
		}
		if t.data {
			d := uint64(n) + 500
			m.data = &d
		}
		t.messages = append(t.messages, m)
	}
}

// post posts the receives of both ends, and a few more.
func (t *transfer) post() error {
	longest := 0
	for _, size := range t.sizes {
		longest = max(longest, size)
	}
	var sizes []int
	var tags []uint64
	for _, m := range t.messages {
		size := longest + 100
		if t.tagged && !t.oneTag {
			size = len(m.content)
		}
		sizes, tags = append(sizes, size), append(tags, m.tag)
	}
	if t.receives() {
		for n := range sizes {
			if err := t.pr.ep.post(n, sizes[n], t.tagged, tags[n], 0); err != nil {
				return err
			}
		}
		for n := range t.extra {
			if err := t.pr.ep.post(len(sizes)+n, longest, t.tagged, 0, ^uint64(0)); err != nil {
				return err
			}
		}
	}
	if !t.sends() {
		return nil
	}
	a := args{"sizes": sizes}
	more := args{"sizes": slices.Repeat([]int{longest}, t.extra), "ctx": len(sizes)}
	if t.tagged {
		a["tags"], more["tags"], more["ignore"] = tags, make([]int, t.extra), ^uint64(0)
	}
	if err := errors.Join(t.pr.do("post", a), t.pr.do("post", more)); err != nil {
		return err
	}
	_, err := t.pr.stats()
	return err
}

// send sends all messages.
func (t *transfer) send() error {
	if t.receives() {
		a := args{
			"to": t.pr.self(), "sizes": t.sizes, "seed": t.seed, "ordered": t.ordered, "form": t.form, "dc": t.delivery,
		}
		if t.tagged {
			var tags []uint64
			for _, m := range t.messages {
				tags = append(tags, m.tag)
			}
			a["tags"] = tags
		}
		if t.data {
			a["data"] = 500
		}
		if t.announced {
			a["eager"] = t.eager
		}
		if err := t.pr.do("send", a); err != nil {
			return err
		}
	}
	if t.sends() {
		for _, m := range t.messages {
			if err := t.pr.ep.send(m, t.tagged, t.delivery); err != nil {
				return err
			}
		}
	}
	return nil
}

// over says whether everything has ended, or that something failed.
func (t *transfer) over() (bool, error) {
	n := len(t.sizes)
	for _, d := range t.pr.ep.done {
		if d.err != nil {
			return false, fmt.Errorf("uetkit: operation %d failed: %w, provider %#x", d.n, d.err, d.err.Prov)
		}
	}
	sent, got := 0, 0
	for _, e := range t.pr.events {
		switch {
		case e.Ev == "sent" && !e.OK:
			return false, fmt.Errorf("peer: message %d failed: RC %s, NACK %s, %s", e.Ctx, code(e.RC), code(e.Nack), e.Why)
		case e.Ev == "received" && !e.OK:
			return false, fmt.Errorf("peer: receive %d failed: RC %s, %s", e.Ctx, code(e.RC), e.Why)
		case e.Ev == "sent":
			sent++
		case e.Ev == "received":
			got++
		}
	}
	return (!t.sends() || len(t.pr.ep.ended(false)) >= n && got >= n) &&
		(!t.receives() || len(t.pr.ep.ended(true)) >= n && sent >= n), nil
}

func code(c *int) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%#x", *c)
}

// state says how far a transfer came, and what uetkit waits for.
func (t *transfer) state() string {
	s := []string{fmt.Sprintf("uetkit: %d sent, %d received; peer: %d sent, %d received", len(t.pr.ep.ended(false)),
		len(t.pr.ep.ended(true)), len(t.pr.of("sent")), len(t.pr.of("received")))}
	waits := t.pr.ep.Diagnose()
	for _, w := range waits[:min(2, len(waits))] {
		s = append(s, w.String())
	}
	if e, err := t.pr.stats(); err == nil {
		s = append(s, fmt.Sprint("peer: ", e.all))
	}
	return strings.Join(s, "; ")
}

// check verifies both directions.
func (t *transfer) check() error {
	byTag := t.tagged && !t.oneTag
	if t.receives() {
		var got []receipt
		for _, d := range t.pr.ep.ended(true) {
			r := receipt{post: d.n, size: d.Len, sha256: digest(d.buf[:d.Len]), tag: d.Tag, clean: true}
			if d.Flags&fi.RemoteCQData != 0 {
				r.data = &d.Data
			}
			for _, b := range d.buf[d.Len:] {
				r.clean = r.clean && b == poison
			}
			got = append(got, r)
		}
		if err := verify(t.messages, got, t.tagged, byTag, t.ordered); err != nil {
			return fmt.Errorf("at uetkit: %w", err)
		}
	}
	if t.sends() {
		var got []receipt
		for _, e := range t.pr.of("received") {
			got = append(got, receipt{post: e.Ctx, size: e.Len, sha256: e.SHA256, tag: e.Tag, data: e.Data, clean: e.Guard})
		}
		if err := verify(t.messages, got, t.tagged, byTag, t.ordered); err != nil {
			return fmt.Errorf("at the peer: %w", err)
		}
	}
	return nil
}

// finish ends all PDCs in one of the ways there are, and looks that nothing came twice and nothing is left.
func (t *transfer) finish() error {
	pr := t.pr
	switch t.closer {
	case "each":
		if err := errors.Join(pr.ep.Quiesce(pr.ep.to), pr.do("close", nil)); err != nil {
			return err
		}
	case "peer asks":
		if err := errors.Join(pr.do("close", args{"targets": true}), pr.do("close", nil)); err != nil {
			return err
		}
	}
	if t.closer != "abrupt" {
		err := pr.until("all PDCs closed", 10*time.Second, func() (bool, error) {
			e, err := pr.stats()
			return e.PDCs == 0, err
		})
		if err != nil {
			return err
		}
		for _, e := range pr.of("pdc closed") {
			if e.Why != "closed" && e.Why != "closed by peer" {
				return fmt.Errorf("the peer's PDC ended: %s", e.Why)
			}
		}
	}
	e, err := pr.stats()
	if err != nil {
		return err
	}
	if ended, got := len(pr.ep.ended(true)), len(pr.of("received")); t.receives() && ended != len(t.sizes) || t.sends() && got != len(t.sizes) {
		return fmt.Errorf("in the end %d and %d messages were received, not %d", ended, got, len(t.sizes))
	}
	if err := t.wasRead(e); err != nil {
		return err
	}
	if e.Undelivered != 0 {
		return fmt.Errorf("the peer has %d messages that nobody sent", e.Undelivered)
	}
	for name := range e.all {
		if strings.HasPrefix(name, "dropped: ") && !benign[name] {
			return fmt.Errorf("the peer %s: %d", name, e.count(name))
		}
	}
	return nil
}

// wasRead looks that messages were announced and read, in each direction in which they were to be.
func (t *transfer) wasRead(e event) error {
	if !t.announced {
		return nil
	}
	s, empty := t.pr.ep.Stats(), 0
	for _, size := range t.sizes {
		if size == 0 {
			empty++
		}
	}
	if n := len(t.sizes) - empty; t.sends() && (s.Lent < uint64(n) || e.count("read") < n) {
		return fmt.Errorf("of %d messages uetkit announced %d, and the peer read %d", n, s.Lent, e.count("read"))
	}
	whole := 0 // of them all went along
	for n, size := range t.sizes {
		if size > 0 && t.eager[n%len(t.eager)] >= size {
			whole++
		}
	}
	if n := len(t.sizes) - empty; t.receives() && (e.count("announced") != n || s.Pulled != uint64(n-whole)) {
		return fmt.Errorf("of %d messages the peer announced %d, %d with all bytes, and uetkit read %d", n, e.count("announced"), whole, s.Pulled)
	}
	return nil
}

// benign are reasons for which the peer drops what is no fault: answers that come late, or once for each
// packet of a burst.
var benign = map[string]bool{
	"dropped: answer to no PDC":            true,
	"dropped: nack of nothing outstanding": true,
}
