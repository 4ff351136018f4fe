package ses

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uetkit/uetkit/transport/internal/piece"
	"pgregory.net/rapid"
)

// The twin is the target side as the rules say it, without regard to speed: every list is a
// slice that is searched from its beginning.

type twinRecv struct {
	id          int
	tagged      bool
	tag, ignore uint64
	hasSource   bool
	peer, init  uint32
	size        int
}

type twinMsg struct {
	id        int
	src       Source
	tagged    bool
	tag       uint64
	init      uint32
	body      []byte
	pkts      [][]byte
	came      []bool
	recv      *twinRecv
	begun     bool
	delivered bool
}

func (m *twinMsg) complete() bool { return !slices.Contains(m.came, false) }

type twin struct {
	recvs   []*twinRecv // posted, in order
	unexp   []*twinMsg  // in order of their first packet
	expects []string    // events to come, in order
}

// accepts is S-MAT-01 to -03, R-TAG-02 and -04, literally.
func (r *twinRecv) accepts(m *twinMsg) bool {
	if r.tagged != m.tagged {
		return false
	}
	if r.tagged && m.tag&^r.ignore != r.tag&^r.ignore {
		return false
	}
	if r.hasSource && r.peer != m.src.Peer {
		return false
	}
	return r.init == 0 || r.init == m.init
}

func (tw *twin) done(m *twinMsg) {
	m.delivered = true
	n := min(m.recv.size, len(m.body))
	tw.expects = append(tw.expects, fmt.Sprintf("recv %d message %d len %d over %d peer %d", m.recv.id, m.id, n, len(m.body)-n, m.src.Peer))
}

func (tw *twin) post(r *twinRecv) {
	for i, m := range tw.unexp { // S-MAT-07
		if r.accepts(m) {
			tw.unexp = slices.Delete(tw.unexp, i, i+1)
			m.recv = r
			if m.complete() {
				tw.done(m)
			}
			return
		}
	}
	tw.recvs = append(tw.recvs, r)
}

func (tw *twin) packet(m *twinMsg, k int) {
	m.came[k] = true
	if !m.begun { // S-MAT-06
		m.begun = true
		i := slices.IndexFunc(tw.recvs, func(r *twinRecv) bool { return r.accepts(m) }) // S-MAT-04
		if i < 0 {
			tw.unexp = append(tw.unexp, m)
		} else {
			m.recv = tw.recvs[i]
			tw.recvs = slices.Delete(tw.recvs, i, i+1)
		}
	}
	if m.recv != nil && m.complete() {
		tw.done(m)
	}
}

func (tw *twin) cancel(id int) bool {
	i := slices.IndexFunc(tw.recvs, func(r *twinRecv) bool { return r.id == id })
	if i < 0 {
		return false
	}
	tw.recvs = slices.Delete(tw.recvs, i, i+1)
	tw.expects = append(tw.expects, fmt.Sprintf("recv %d cancelled", id))
	return true
}

// gone is F9: the incomplete messages of the PDC end, in any order.
func (tw *twin) gone(pdc uint32, flying []*twinMsg) (ended []string) {
	for _, m := range flying {
		if m.src.PDC != pdc || !m.begun || m.complete() {
			continue
		}
		if m.recv != nil {
			ended = append(ended, fmt.Sprintf("recv %d timed out", m.recv.id))
		}
		tw.unexp = slices.DeleteFunc(tw.unexp, func(o *twinMsg) bool { return o == m })
	}
	return ended
}

func TestMatchingAgainstTwin(t *testing.T) { rapid.Check(t, matchingAgainstTwin) }

func FuzzMatching(f *testing.F) { f.Fuzz(rapid.MakeFuzz(matchingAgainstTwin)) }

func matchingAgainstTwin(t *rapid.T) {
	tags := []uint64{0, 1, 2, 0x10, 0x11, 1 << 63}
	masks := []uint64{0, 0, 0, 1, 0xf, 0x1f, 3, ^uint64(0), 1 << 63}
	cfg := testConfig()
	cfg.Seed = rapid.Uint64().Draw(t, "seed")
	cfg.UnexpectedShare, cfg.OpenPerPeer = 1, 1000
	s := New(cfg)
	mates := []*SES{other(16), other(17), other(18)}
	tw := &twin{}
	var flying []*twinMsg
	bufs := map[int][]byte{}
	msgs := map[int]*twinMsg{}
	nextID := 0
	id := func() int { nextID++; return nextID }

	describe := func(e *Event) string {
		r := e.Context.(int)
		switch e.Cause {
		case OK, Truncated:
			m := msgs[int(e.Data)]
			if m == nil || !e.HasData {
				t.Fatalf("event %+v of no message", *e)
			}
			if (e.Cause == Truncated) != (e.OverLen > 0) || e.Kind.Tagged() != m.tagged || e.Initiator != m.init || e.Kind.Tagged() && e.Tag != m.tag {
				t.Fatalf("event %+v of message %+v", *e, m)
			}
			if got := bufs[r][:e.Len]; !slices.Equal(got, m.body[:e.Len]) {
				t.Fatalf("receive %d got other bytes", r)
			}
			return fmt.Sprintf("recv %d message %d len %d over %d peer %d", r, m.id, e.Len, e.OverLen, e.Peer)
		case Cancelled:
			return fmt.Sprintf("recv %d cancelled", r)
		}
		if e.Len != 0 {
			t.Fatalf("event %+v", *e)
		}
		return fmt.Sprintf("recv %d %v", r, e.Cause)
	}
	drainEvents := func() (got []string) {
		for e := s.Event(); e != nil; e = s.Event() {
			got = append(got, describe(e))
		}
		return got
	}
	check := func() {
		if got := drainEvents(); !slices.Equal(got, tw.expects) {
			t.Fatalf("events %q, want %q", got, tw.expects)
		}
		tw.expects = nil
		if n, _ := s.Unexpected(); n != len(tw.unexp) {
			t.Fatalf("%d unexpected, want %d", n, len(tw.unexp))
		}
	}
	step := func(m *twinMsg, k int) {
		res := s.Request(&m.src, 3, append([]byte(nil), m.pkts[k]...))
		if res.Nack != 0 || res.Bad || res.Rsp.RC > 1 {
			t.Fatalf("packet %d of message %d: %+v", k, m.id, res)
		}
		tw.packet(m, k)
	}
	finish := func() {
		for _, m := range flying {
			for k := range m.came {
				if !m.came[k] {
					step(m, k)
					check()
				}
			}
		}
		flying = nil
	}

	t.Repeat(map[string]func(*rapid.T){
		"post": func(t *rapid.T) {
			r := &twinRecv{
				id: id(), tagged: rapid.Bool().Draw(t, "tagged"),
				tag: rapid.SampledFrom(tags).Draw(t, "tag"), ignore: rapid.SampledFrom(masks).Draw(t, "ignore"),
				hasSource: rapid.Bool().Draw(t, "source"), peer: rapid.Uint32Range(1, 3).Draw(t, "peer"),
				init: rapid.SampledFrom([]uint32{0, 0, 16, 17, 18}).Draw(t, "init"),
				size: rapid.SampledFrom([]int{0, 10, 5000, 60_000}).Draw(t, "size"),
			}
			bufs[r.id] = make([]byte, r.size)
			rv := Recv{Tagged: r.tagged, Buf: bufs[r.id], Tag: r.tag, Ignore: r.ignore, SourceInitiator: r.init, Context: r.id}
			if r.hasSource {
				rv.SourcePeer = r.peer
			}
			if err := s.recvOp(&rv); err != nil {
				t.Fatal(err)
			}
			tw.post(r)
		},
		"send": func(t *rapid.T) {
			k := rapid.IntRange(0, 2).Draw(t, "initiator")
			peer := rapid.Uint32Range(1, 3).Draw(t, "peer")
			m := &twinMsg{
				id: id(), tagged: rapid.Bool().Draw(t, "tagged"), tag: rapid.SampledFrom(tags).Draw(t, "tag"),
				src: Source{Peer: peer, PDC: peer*10 + uint32(k)}, init: uint32(16 + k),
				body: pattern(rapid.SampledFrom([]int{0, 1, 10, 11, 1024, 1025, 3000, 4999, 5001, 40_000}).Draw(t, "len")),
			}
			m.pkts = packets(mates[k], &Send{Tagged: m.tagged, Tag: m.tag, Buf: m.body, HasData: true, Data: uint64(m.id), Target: self(s)},
				rapid.SampledFrom([]int{1024, 4096}).Draw(t, "mtu"))
			m.came = make([]bool, len(m.pkts))
			msgs[m.id] = m
			flying = append(flying, m)
		},
		"packet": func(t *rapid.T) {
			flying = slices.DeleteFunc(flying, (*twinMsg).complete)
			if len(flying) == 0 {
				return // no t.Skip: too many in a row fail a fuzz input
			}
			m := flying[rapid.IntRange(0, len(flying)-1).Draw(t, "message")]
			var left []int
			for k, c := range m.came {
				if !c {
					left = append(left, k)
				}
			}
			n := rapid.IntRange(1, len(left)).Draw(t, "packets")
			for range n {
				i := rapid.IntRange(0, len(left)-1).Draw(t, "packet")
				step(m, left[i])
				left = slices.Delete(left, i, i+1)
			}
		},
		"cancel": func(t *rapid.T) {
			if nextID == 0 {
				return // as above
			}
			c := rapid.IntRange(1, nextID).Draw(t, "context")
			if got, want := s.CancelRecv(0, c), tw.cancel(c); got != want {
				t.Fatalf("CancelRecv(0, %d) = %v, want %v", c, got, want)
			}
		},
		"pdc gone": func(t *rapid.T) {
			pdc := rapid.Uint32Range(1, 3).Draw(t, "peer")*10 + rapid.Uint32Range(0, 2).Draw(t, "k")
			want := tw.gone(pdc, flying)
			s.PDCGone(pdc, TimedOut)
			got := drainEvents()
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("events %q, want %q", got, want)
			}
			// Its packets were lost with the PDC.
			flying = slices.DeleteFunc(flying, func(m *twinMsg) bool { return m.src.PDC == pdc })
		},
		"": func(t *rapid.T) { check() },
	})

	// At the end all packets arrive, all unexpected messages are received, and nothing is left.
	finish()
	for len(tw.unexp) > 0 {
		m := tw.unexp[0]
		r := &twinRecv{id: id(), tagged: m.tagged, ignore: ^uint64(0), size: len(m.body)}
		bufs[r.id] = make([]byte, r.size)
		s.recvOp(&Recv{Tagged: r.tagged, Ignore: r.ignore, Buf: bufs[r.id], Context: r.id})
		tw.post(r)
		check()
	}
	for _, r := range slices.Clone(tw.recvs) {
		if !s.CancelRecv(0, r.id) || !tw.cancel(r.id) {
			t.Fatalf("receive %d is not posted", r.id)
		}
		check()
	}
	if !s.Idle() || s.Recvs() != 0 || s.in.live() != 0 || s.peers.live() != 0 || s.store.used+s.store.reserved != 0 || s.bytes != 0 {
		t.Fatalf("left: receives %d, states %d, peers %d, chunks %d+%d", s.Recvs(), s.in.live(), s.peers.live(), s.store.used, s.store.reserved)
	}
}

// TestEndToEnd runs two endpoints against each other, with pieces reordered, refused and lost
// for good, and with time that passes while receives are short. Every operation ends once, a send
// that reports OK was received whole, messages of a PDC that keeps order are matched in order, and
// nothing is left.
func TestEndToEnd(t *testing.T) {
	takenBack := uint64(0)
	defer func() {
		if t.Logf("%d receives were taken back", takenBack); takenBack == 0 {
			t.Error("no receive was taken back: the test does not test")
		}
	}()
	rapid.Check(t, func(t *rapid.T) {
		cfg := testConfig()
		cfg.UnexpectedBytes, cfg.UnexpectedShare, cfg.OpenPerPeer = 1<<18, 1, 8
		cfg.RefuseTooLong, cfg.IdleTimeout = rapid.Bool().Draw(t, "refuse too long"), -1
		a, b := New(testConfig()), New(cfg)
		now := time.Second
		type packet struct {
			h   Handle
			p   piece.Piece
			pdc uint32
		}
		type message struct {
			body  []byte
			pdc   uint32
			recv  *Recv
			begun int // number of its first packet that was executed
			ended bool
			cause Cause
		}
		var flying []packet
		sent := map[int]*message{}
		got := map[int]int{}
		bufs := map[int]*Recv{}
		handles := map[Handle]*message{}
		var order []Handle
		lives, executed := uint32(0), 0
		events := func() {
			for e := a.Event(); e != nil; e = a.Event() {
				m := sent[e.Context.(int)]
				if m.ended {
					t.Fatal("a send ended twice")
				}
				m.ended, m.cause = true, e.Cause
			}
			for e := b.Event(); e != nil; e = b.Event() {
				rv, ok := bufs[e.Context.(int)]
				if !ok {
					t.Fatal("a receive ended twice")
				}
				buf := rv.Buf
				delete(bufs, e.Context.(int))
				if e.Cause == OK || e.Cause == Truncated && e.RC == 0 {
					m := sent[int(e.Data)]
					got[int(e.Data)]++
					m.recv = rv
					if got[int(e.Data)] > 1 || e.Len+int(e.OverLen) != len(m.body) || !slices.Equal(buf[:e.Len], m.body[:e.Len]) {
						t.Fatalf("message %d: %+v", e.Data, *e)
					}
				}
			}
		}
		n := 0
		deliver := func(t *rapid.T, k int) {
			q := flying[k]
			src := Source{Peer: 1 + q.pdc%10, PDC: q.pdc, Ordered: q.pdc%10 < 2, Unproven: q.pdc%10 == 3, Now: now}
			if src.Ordered {
				k = slices.IndexFunc(flying, func(o packet) bool { return o.pdc == q.pdc })
				q = flying[k]
			}
			res := b.Request(&src, 3, a.Append(nil, q.p))
			if res.Nack != 0 {
				return // it comes again
			}
			if executed++; handles[q.h].begun == 0 {
				handles[q.h].begun = executed
			}
			if res.Bad {
				t.Fatal("bad")
			}
			flying = slices.Delete(flying, k, k+1)
			if !res.Gtd && res.Rsp.RC != 0 && rapid.Bool().Draw(t, "coalesced") {
				a.Answered(q.h, nil)
			} else {
				a.Answered(q.h, &res.Rsp)
			}
			events()
		}
		take := func(h Handle, k int) {
			m := handles[h]
			if m.pdc%10 < 2 {
				k = 1 << 20 // S-SEG-04
			}
			for ; k > 0; k-- {
				p, ok := a.Next(h, 1024)
				if !ok {
					return
				}
				flying = append(flying, packet{h, p, m.pdc})
			}
		}
		pass := func(d time.Duration) {
			for end := now + d; now < end; now += 5 * time.Millisecond {
				a.Advance(now)
				b.Advance(now)
				for _, ok := a.Resend(); ok; _, ok = a.Resend() {
				}
				events()
			}
		}
		post := func(size int, any bool) {
			n++
			r := &Recv{Tagged: true, Tag: uint64(n % 3), Buf: make([]byte, size), Context: n}
			if any {
				r.Ignore = ^uint64(0)
			}
			bufs[n] = r
			if err := b.recvOp(r); err != nil {
				t.Fatal(err)
			}
			events()
		}
		begin := func(t *rapid.T, size int) Handle {
			n++
			m := &message{body: pattern(size), pdc: lives*10 + rapid.Uint32Range(0, 3).Draw(t, "pdc")}
			h, err := a.sendOp(&Send{Tagged: true, Tag: uint64(n % 3), Buf: m.body, HasData: true, Data: uint64(n), Context: n, Target: self(b),
				Copy: rapid.Bool().Draw(t, "copy")})
			if err != nil {
				t.Fatal(err, a.Sends())
			}
			sent[n], handles[h] = m, m
			order = append(order, h)
			return h
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				begin(t, rapid.SampledFrom([]int{0, 100, 1024, 5000, 20_000, 100_000}).Draw(t, "len"))
			},
			"take": func(t *rapid.T) {
				if len(order) == 0 {
					return // as above
				}
				take(rapid.SampledFrom(order).Draw(t, "message"), rapid.IntRange(1, 50).Draw(t, "pieces"))
			},
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "packets") {
					if len(flying) == 0 {
						return
					}
					deliver(t, rapid.IntRange(0, len(flying)-1).Draw(t, "packet"))
				}
			},
			"recv": func(t *rapid.T) {
				post(rapid.SampledFrom([]int{0, 3000, 100_000}).Draw(t, "size"), rapid.Bool().Draw(t, "any tag"))
			},
			"crowd": func(t *rapid.T) {
				// Messages that begin and do not go on, in the receives that others need.
				for range rapid.IntRange(1, 6).Draw(t, "messages") {
					post(100_000, true)
					h := begin(t, 20_000)
					take(h, 1)
					if k := len(flying) - 1; k >= 0 && flying[k].h == h {
						deliver(t, k)
					}
				}
				for range rapid.IntRange(1, 6).Draw(t, "short ones") {
					h := begin(t, 100)
					take(h, 1)
					deliver(t, len(flying)-1)
				}
				pass(rapid.SampledFrom([]time.Duration{0, 20 * time.Millisecond, 3 * time.Second}).Draw(t, "time"))
			},
			"time": func(t *rapid.T) {
				pass(time.Duration(rapid.SampledFrom([]int{5, 20, 100, 3000}).Draw(t, "ms")) * time.Millisecond)
			},
			"pdc dies": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
					return // as above
				}
				pdc := lives*10 + rapid.Uint32Range(0, 3).Draw(t, "pdc")
				b.PDCGone(pdc, TimedOut)
				for k := 0; k < len(flying); k++ {
					if q := flying[k]; q.pdc == pdc {
						flying = slices.Delete(flying, k, k+1)
						k--
						a.Failed(q.h, TimedOut, 0)
					}
				}
				for _, h := range order {
					if handles[h].pdc == pdc {
						a.Break(h, TimedOut, 0)
					}
				}
				events()
				lives++ // new messages take new PDCs
			},
		})
		// By now everything is sent, received and ended.
		for i := 0; a.Sends() > 0; i++ {
			if i > 100_000 {
				t.Fatalf("no end: %d sends, %d packets", a.Sends(), len(flying))
			}
			for _, h := range order {
				take(h, 1000)
			}
			pass(200 * time.Millisecond)
			before := len(flying)
			for k := len(flying) - 1; k >= 0; k-- {
				if k < len(flying) {
					deliver(t, k)
				}
			}
			if before == len(flying) {
				post(100_000, true)
			}
		}
		for msgs, _ := b.Unexpected(); msgs > 0; msgs, _ = b.Unexpected() {
			post(100_000, true)
		}
		for ctx := range bufs {
			if !b.CancelRecv(0, ctx) {
				t.Fatalf("receive %d hangs", ctx)
			}
		}
		events()
		for k, m := range sent {
			switch {
			case !m.ended:
				t.Fatalf("message %d has no end", k)
			case m.cause == OK && got[k] != 1:
				t.Fatalf("message %d is said to be there", k)
			case m.cause != OK && m.cause != TimedOut && m.cause != Rejected:
				t.Fatalf("message %d: %v", k, m.cause)
			}
		}
		for j, later := range sent { // S-MAT-04
			for k, earlier := range sent {
				if earlier.begun < later.begun && earlier.pdc == later.pdc && later.pdc%10 < 2 && later.recv != nil && earlier.recv != nil &&
					(j-k)%3*int(^later.recv.Ignore&1) == 0 && earlier.recv.Context.(int) > later.recv.Context.(int) {
					t.Fatalf("message %d got receive %v, and message %d of the same PDC the older %v", k, earlier.recv.Context, j, later.recv.Context)
				}
			}
		}
		for pdc := range lives*10 + 10 {
			b.PDCGone(pdc, Closed)
		}
		takenBack += b.Stats.TakenBack
		if len(bufs) != 0 || !a.Idle() || !b.Idle() || b.in.live()+b.peers.live()+b.store.used+b.store.reserved+a.copies.used != 0 {
			t.Fatalf("left: %d states, %d peers, %d chunks", b.in.live(), b.peers.live(), b.store.used)
		}
	})
}
