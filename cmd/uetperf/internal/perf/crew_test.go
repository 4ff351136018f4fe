package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/cmd/uetperf/traffic"
	"github.com/uetkit/uetkit/cq"
)

// Many streams share a queue and a thread at each end, and each carries its messages, whole and
// once. Messages of the control exchange about so many are longer than one.
func TestManyStreams(t *testing.T) {
	addr := serve(t, ServerConfig{})
	for _, c := range []struct {
		streams  int
		ep       string
		progress string
		bidir    bool
		iters    int64
	}{
		{3, traffic.RDM, "manual", false, 200},
		{5, traffic.RDM, "auto", true, 200},
		{300, traffic.RDM, "manual", true, 20},
		{300, traffic.RDM, "auto", false, 20},
		{4, traffic.MSG, "manual", false, 100},
		{80, traffic.MSG, "auto", true, 10},
	} {
		t.Run(fmt.Sprint(c.streams, c.ep, c.progress, c.bidir), func(t *testing.T) {
			cl := dial(t, addr, ClientConfig{EP: c.ep})
			s := base(traffic.Rate, traffic.TSend, 64)
			s.OneQueue, s.Parallel, s.Progress, s.Bidir, s.Check, s.EP = true, c.streams, c.progress, c.bidir, true, c.ep
			s.Iters, s.Time, s.Warmup, s.Window = c.iters, 0, 2, 2
			r := run(t, cl, s).Run
			streams := c.streams
			if c.bidir {
				streams *= 2
			}
			want := int64(streams) * c.iters
			if r.Msgs < want || len(r.Streams) != streams || r.DataCheck == nil || r.DataCheck.Wrong != 0 {
				t.Errorf("%d messages of %d, %d streams, %+v", r.Msgs, want, len(r.Streams), r.DataCheck)
			}
		})
	}
}

func TestManyStreamsAreOfBWAndRate(t *testing.T) {
	s := base(traffic.RR, traffic.TSend, 64)
	for _, f := range []func(){func() { s.Parallel = traffic.FewParallel + 1 }, func() { s.Parallel, s.OneQueue = 2, true }} {
		f()
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "share a queue") {
			t.Errorf("%d streams: %v", s.Parallel, err)
		}
	}
	s = base(traffic.Rate, traffic.TSend, 64)
	for _, n := range []int{traffic.MaxParallel, traffic.MaxParallel + 1} {
		s.Parallel = n
		if err := s.Validate(); (err == nil) != (n == traffic.MaxParallel) {
			t.Errorf("%d streams: %v", n, err)
		}
	}
}

func TestPartsMakeTheMessage(t *testing.T) {
	m := &message{Type: mReady, Session: 7}
	for i := range 5000 {
		m.Addrs = append(m.Addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(i+1)))
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var p parts
	feed := func(session uint64) (got *message) {
		for at := 0; at < len(b); at += ctlPart {
			end := min(at+ctlPart, len(b))
			if got != nil {
				t.Fatal("a message before its last part")
			}
			got = p.add(&message{Type: mPart, Session: session, Part: b[at:end], N: int64((len(b) - 1 - at) / ctlPart)})
		}
		return got
	}
	for range 2 {
		if got := feed(7); !reflect.DeepEqual(got, m) {
			t.Error("another message than that of its parts")
		}
	}
	if feed(8) != nil {
		t.Error("the parts of a message of another session are taken")
	}
	for at := 0; at <= ctlWhole; at += ctlPart {
		if p.add(&message{Type: mPart, Part: make([]byte, ctlPart), N: 1}) != nil {
			t.Fatal("a message out of nothing")
		}
	}
	if len(p.whole) > ctlWhole {
		t.Errorf("%d bytes are kept", len(p.whole))
	}
	if whole := (&message{Type: mDone}); p.add(whole) != whole {
		t.Error("a message without parts is lost")
	}
}

func TestGatherTellsOfAll(t *testing.T) {
	for _, legs := range []int{3, 5000} {
		events := newEvents(legs)
		bad := 0
		for i := range legs {
			events <- legEvent{leg: i, kind: mSent, n: int64(i)}
			events <- legEvent{leg: i, kind: mDone}
		}
		events <- legEvent{kind: mFail, err: errors.New("bad")}
		told := map[string]int{}
		messages := 0
		for len(events) > 0 {
			for _, m := range gather(<-events, events, 1, legs, func(legEvent) { bad++ }) {
				messages++
				m.each(func(leg int, n int64) {
					if m.Type == mSent && int(n) != leg {
						t.Errorf("leg %d sent %d", leg, n)
					}
					told[m.Type]++
				})
			}
		}
		if told[mSent] != legs || told[mDone] != legs || bad != 1 || legs > traffic.FewParallel && messages > 2*(legs/listMax+1) {
			t.Errorf("%d legs: %v, %d errors in %d messages", legs, told, bad, messages)
		}
	}
}

// A message of a stream that has not had its first turn is kept until then.
func TestCrewKeepsEarlyCompletions(t *testing.T) {
	s := base(traffic.Rate, traffic.TSend, 64)
	s.OneQueue, s.Parallel = true, 2
	c := newCrew(&s, nil, func(int, error) {})
	l := &leg{Leg: traffic.NewLeg(&s, 1, true, traffic.NewGroup(&s, true, nil)), done: make([]traffic.Completion, 1)}
	e := cq.Entry{Context: &traffic.Slot{Leg: 1}}
	c.take([]cq.Entry{e, {}})
	c.legs[1] = l
	c.take(nil)
	if l.mate.took != 0 || len(c.early) != 1 {
		t.Errorf("%d taken, %d kept", l.mate.took, len(c.early))
	}
	l.mate.turned = true
	early := c.early
	c.early = nil
	if c.take(early); l.mate.took != 1 || len(c.early) != 0 {
		t.Errorf("then %d taken, %d kept", l.mate.took, len(c.early))
	}
}
