package netswitch

import (
	"bufio"
	"encoding/json"
	"io"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/uetkit/uetkit/testbed/fabric"
)

// Bounds of the decision log. Decisions that do not fit are counted; the switch never waits
// for the log.
const (
	logChunk   = 512                    // decisions handed to the writer at once
	logChunks  = 64                     // that may wait for it
	logPartial = 100 * time.Millisecond // how long an unfilled chunk is kept
	// DefaultLogMax is the most bytes of log that are written.
	DefaultLogMax = 1 << 30
)

// A decisionLog writes decisions as JSON lines in a goroutine of its own. add and tick
// belong to the forwarding goroutine.
type decisionLog struct {
	all     bool
	cur     []fabric.Decision
	since   time.Duration // of the first decision in cur
	full    chan []fabric.Decision
	free    chan []fabric.Decision
	done    chan struct{}
	dropped atomic.Uint64
	written atomic.Uint64 // lines
	failed  atomic.Pointer[error]

	out io.WriteCloser
	max int64
}

// newDecisionLog makes a log that owns out. Its writer runs until close.
func newDecisionLog(out io.WriteCloser, all bool, maxBytes int64) *decisionLog {
	l := &decisionLog{
		all: all, out: out, max: maxBytes,
		full: make(chan []fabric.Decision, logChunks), free: make(chan []fabric.Decision, logChunks), done: make(chan struct{}),
	}
	for range logChunks {
		l.free <- make([]fabric.Decision, 0, logChunk)
	}
	go l.write()
	return l
}

// add copies a decision. It never blocks.
func (l *decisionLog) add(d *fabric.Decision) {
	if d.Why == fabric.Passed && !l.all {
		return
	}
	if l.cur == nil {
		select {
		case l.cur = <-l.free:
			l.since = d.At
		default:
			l.dropped.Add(1)
			return
		}
	}
	if l.cur = append(l.cur, *d); len(l.cur) == cap(l.cur) {
		l.handOver()
	}
}

// tick passes on a chunk that was kept for long. It returns when it must be called again;
// ok is false if nothing is kept.
func (l *decisionLog) tick(now time.Duration) (at time.Duration, ok bool) {
	if len(l.cur) == 0 {
		return 0, false
	}
	if now-l.since >= logPartial {
		l.handOver()
		return 0, false
	}
	return l.since + logPartial, true
}

func (l *decisionLog) handOver() {
	l.full <- l.cur // has room for all chunks that there are
	l.cur = nil
}

// close writes the decisions that are kept and ends the writer.
func (l *decisionLog) close() error {
	if len(l.cur) > 0 {
		l.handOver()
	}
	close(l.full)
	<-l.done
	if e := l.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// write is the writer's goroutine.
func (l *decisionLog) write() {
	defer close(l.done)
	fail := func(err error) {
		if err != nil && l.failed.Load() == nil {
			l.failed.Store(&err)
		}
	}
	b := bufio.NewWriterSize(l.out, 1<<18)
	var size int64
	var line []byte
	var names memo
	for chunk := range l.full {
		for i := range chunk {
			line = appendDecision(line[:0], &chunk[i], &names)
			size += int64(len(line))
			if size > l.max || l.failed.Load() != nil {
				l.dropped.Add(1)
				continue
			}
			_, err := b.Write(line)
			fail(err)
			l.written.Add(1)
		}
		l.free <- chunk[:0]
		if len(l.full) == 0 {
			fail(b.Flush())
		}
	}
	fail(b.Flush())
	fail(l.out.Close())
}

// A Line is one line of the decision log. Times are nanoseconds of the switch's clock, as
// in /stats.
type Line struct {
	At   time.Duration  `json:"at_ns"`
	ID   uint64         `json:"id"`
	Why  string         `json:"why"`
	Line string         `json:"line"`
	Rule string         `json:"rule,omitempty"`
	Src  netip.AddrPort `json:"src"`
	Dst  netip.AddrPort `json:"dst"`
	Len  int            `json:"len"`
	Kind string         `json:"kind"`
	PSN  uint32         `json:"psn,omitempty"`
	PDC  uint16         `json:"pdc,omitempty"`
}

// A memo caches the JSON text of addresses and names: there are few of them.
type memo struct {
	addrs map[netip.AddrPort]string
	names map[string]string
}

// memoMax bounds both caches: there are many source ports if every message has its own.
const memoMax = 1 << 14

func (m *memo) addr(a netip.AddrPort) string {
	s, ok := m.addrs[a]
	if !ok {
		b, _ := json.Marshal(a) // cannot fail: it is text
		s = string(b)
		if m.addrs == nil || len(m.addrs) >= memoMax {
			m.addrs = map[netip.AddrPort]string{}
		}
		m.addrs[a] = s
	}
	return s
}

func (m *memo) name(n string) string {
	s, ok := m.names[n]
	if !ok {
		b, _ := json.Marshal(n)
		s = string(b)
		if m.names == nil || len(m.names) >= memoMax {
			m.names = map[string]string{}
		}
		m.names[n] = s
	}
	return s
}

// appendDecision appends d as a Line and a newline. It writes what encoding/json would, at
// less cost per packet.
func appendDecision(b []byte, d *fabric.Decision, m *memo) []byte {
	b = append(b, `{"at_ns":`...)
	b = strconv.AppendInt(b, int64(d.At), 10)
	b = append(b, `,"id":`...)
	b = strconv.AppendUint(b, d.ID, 10)
	b = append(b, `,"why":`...)
	b = append(b, m.name(d.Why.String())...)
	b = append(b, `,"line":`...)
	b = append(b, m.name(d.Line)...)
	if d.Rule != "" {
		b = append(b, `,"rule":`...)
		b = append(b, m.name(d.Rule)...)
	}
	b = append(b, `,"src":`...)
	b = append(b, m.addr(d.Src)...)
	b = append(b, `,"dst":`...)
	b = append(b, m.addr(d.Dst)...)
	b = append(b, `,"len":`...)
	b = strconv.AppendInt(b, int64(d.Len), 10)
	b = append(b, `,"kind":`...)
	b = append(b, m.name(d.Kind)...)
	if d.PSN != 0 {
		b = append(b, `,"psn":`...)
		b = strconv.AppendUint(b, uint64(d.PSN), 10)
	}
	if d.PDC != 0 {
		b = append(b, `,"pdc":`...)
		b = strconv.AppendUint(b, uint64(d.PDC), 10)
	}
	return append(b, '}', '\n')
}
