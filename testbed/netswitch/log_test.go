package netswitch

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

var aDecision = fabric.Decision{
	At: 1500 * time.Microsecond, ID: 42, Why: fabric.LostExact, Line: "h1.from", Rule: `the "third"`,
	Src: netip.MustParseAddrPort("198.18.100.2:4793"), Dst: netip.MustParseAddrPort("[2001:db8::1]:9"),
	Len: 1400, Kind: "data", PSN: 7, PDC: 3,
}

// The lines are what encoding/json makes of a Line.
func TestLogLine(t *testing.T) {
	for _, d := range []fabric.Decision{aDecision, {ID: 1, Kind: "other"}} {
		want, err := json.Marshal(Line{d.At, d.ID, d.Why.String(), d.Line, d.Rule, d.Src, d.Dst, d.Len, d.Kind, d.PSN, d.PDC})
		if err != nil {
			t.Fatal(err)
		}
		var m memo
		for range 2 {
			if got := appendDecision(nil, &d, &m); string(got) != string(want)+"\n" {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

func TestLogKeepsOrderAndLeavesOutPassed(t *testing.T) {
	out := &logBuffer{}
	l := newDecisionLog(out, false, DefaultLogMax)
	d := aDecision
	const n = 3*logChunk + 5
	for i := range n {
		d.ID = uint64(i)
		l.add(&d)
		if i%2 == 0 {
			l.add(&fabric.Decision{ID: 1 << 40})
		}
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	lines := out.lines(t)
	if len(lines) != n || l.written.Load() != n || l.dropped.Load() != 0 {
		t.Fatalf("%d lines, %d written, %d dropped of %d", len(lines), l.written.Load(), l.dropped.Load(), n)
	}
	for i, x := range lines {
		if x.ID != uint64(i) {
			t.Fatalf("line %d is of packet %d", i, x.ID)
		}
	}
}

func TestLogHandsOverInTime(t *testing.T) {
	out := &logBuffer{}
	l := newDecisionLog(out, true, DefaultLogMax)
	if _, ok := l.tick(0); ok {
		t.Error("an empty log wants a tick")
	}
	l.add(&aDecision)
	at, ok := l.tick(aDecision.At)
	if !ok || at != aDecision.At+logPartial {
		t.Errorf("%v %v", at, ok)
	}
	if _, ok := l.tick(at); ok {
		t.Error("it was not handed over")
	}
	wait(t, func() bool { return l.written.Load() == 1 })
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
}

// blockedWriter accepts nothing until it is released.
type blockedWriter struct {
	let chan struct{}
	err error
}

func (w *blockedWriter) Write(b []byte) (int, error) { <-w.let; return len(b), w.err }
func (w *blockedWriter) Close() error                { return nil }

// A disk that hangs costs log lines, but no time.
func TestLogNeverWaits(t *testing.T) {
	w := &blockedWriter{let: make(chan struct{})}
	l := newDecisionLog(w, true, DefaultLogMax)
	const n = 3 * logChunks * logChunk
	for range n {
		l.add(&aDecision)
	}
	if l.dropped.Load() == 0 {
		t.Error("nothing was dropped")
	}
	close(w.let)
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if l.written.Load()+l.dropped.Load() != n {
		t.Errorf("%d written and %d dropped of %d", l.written.Load(), l.dropped.Load(), n)
	}
}

func TestLogEndsAtItsBound(t *testing.T) {
	var m memo
	size := len(appendDecision(nil, &aDecision, &m))
	out := &logBuffer{}
	l := newDecisionLog(out, true, int64(3*size))
	for range 10 {
		l.add(&aDecision)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if n := len(out.lines(t)); n != 3 || l.dropped.Load() != 7 {
		t.Errorf("%d lines, %d dropped", n, l.dropped.Load())
	}
}

func TestLogTellsOfABadDisk(t *testing.T) {
	w := &blockedWriter{let: make(chan struct{}), err: errors.New("disk full")}
	close(w.let)
	l := newDecisionLog(w, true, DefaultLogMax)
	l.add(&aDecision)
	if err := l.close(); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("close: %v", err)
	}
}
