package ses_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uetkit/uetkit/transport/wire"
)

// TestTraces plays the conversations of testdata and compares what the endpoints say with
// what is written there. testdata/README.md tells of the language. After a change that is
// meant, write them anew and read the difference:
//
//	go test ./transport/internal/ses -run TestTraces -rewrite
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			if text, err := os.ReadFile(f); err != nil || !bytes.HasPrefix(text, []byte("# ")) {
				t.Fatalf("does not begin with what it shows: %v", err)
			}
			w := &world{t: t, parties: map[string]*endpoint{}, ops: map[string]*operation{}, packets: map[string]*packet{}, memory: map[string]*memory{}, now: time.Second}
			datadriven.RunTest(t, f, w.block)
			if !w.settled {
				t.Fatal(`does not end with "left"`)
			}
		})
	}
}

// A world is the endpoints of one trace and what is between them.
type world struct {
	t       *testing.T
	now     time.Duration
	parties map[string]*endpoint
	order   []*endpoint
	ops     map[string]*operation
	posts   []*operation // in the order of the script
	packets map[string]*packet
	memory  map[string]*memory
	out     strings.Builder
	settled bool // the last command was "left"
}

// An endpoint is one party, with its name and the numbers by which the others know it.
type endpoint struct {
	*party
	partyConfig
	name string
	num  uint32 // as a peer
	msgs map[handle]*operation
	pdcs map[string]uint32 // as a target: numbers of PDCs
}

type partyConfig struct {
	job, initiator       uint32
	pid, ri              uint16
	mtu                  int
	sends, recvs         int
	unexpectedBytes      int64
	unexpectedMsgs, open int
	share                float64
	maxMessage           uint32
	refuseTooLong        bool
	rnr, idle            time.Duration
}

// An operation is a send or a receive of the script.
type operation struct {
	name   string
	at, to *endpoint
	handle handle
	ended  bool
	bytes  []byte   // of a send: the message
	memory []byte   // of a receive: all of it, whatever its parts
	ids    []uint16 // message ids it went by
	pdc    string
	posting
}

// posting is what the API gets of an operation.
type posting struct {
	recv, tagged      bool
	peer, job         uint32
	pid, ri           uint16
	absolute          bool
	initiator         uint32
	buf               []byte
	iov               [][]byte
	tag, ignore, data uint64
	rma               bool   // a write
	key, addr         uint64 // of a write
	hasData           bool
	inject, ordered   bool
	fence, visible    bool
	multi, silent     bool
	minFree           int
	look, level       string
}

// source is what a target gets to know of the way a packet came.
type source struct {
	peer, pdc       uint32
	later, unproven bool
	behind          int
	now             time.Duration
}

// An ending is one event.
type ending struct {
	op              *operation
	recv, tagged    bool
	remote          bool   // a peer wrote to a region; op is nil
	region          string // remote: its name
	cause           string
	rc              wire.RC
	nack            wire.NackCode
	unknown         bool
	multi, released bool
	buf             []byte
	n, over         int
	tag, data       uint64
	hasData         bool
	peer, initiator uint32
}

type pendingSend struct {
	op    *operation
	stage string
}

type pendingRecv struct {
	op          *operation
	message     bool
	got, length uint32
	starved     bool
}

type early struct {
	tag          uint64
	peer, length uint32
}

type count struct {
	what string
	n    uint64
}

// A packet is one request packet under way, or the response to it.
type packet struct {
	name     string
	from, to *endpoint
	op       *operation // nil: written by the script
	handle   handle
	piece    piece
	next     wire.NextHdr
	b        []byte
	pdc      string
	ordered  bool
	arrived  bool      // the target executed it
	rsp      *wire.Rsp // under way, or nil
	stored   bool      // rsp is guaranteed
	done     bool
}

func (w *world) printf(format string, a ...any) { fmt.Fprintf(&w.out, format+"\n", a...) }

// block executes the commands of one block, one a line, and returns the output.
func (w *world) block(t *testing.T, d *datadriven.TestData) string {
	w.t = t
	w.out.Reset()
	w.command(d.Pos, d.Cmd, d.CmdArgs)
	for line := range strings.Lines(d.Input) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cmd, cmdArgs, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		w.command(d.Pos, cmd, cmdArgs)
	}
	return w.out.String()
}

func (w *world) command(where, cmd string, cmdArgs []datadriven.CmdArg) {
	run, ok := commands[cmd]
	if !ok {
		w.t.Fatalf("%s: no command %q", where, cmd)
	}
	a := newArgs(w.t, where, cmdArgs)
	run(w, a)
	a.allUsed()
	w.settled = cmd == "left"
	w.drain()
}

// drain prints the events, and sends on what a fence or a refusal kept back.
func (w *world) drain() {
	for again := true; again; {
		again = false
		for _, e := range w.order {
			for ev := e.ended(); ev != nil; ev = e.ended() {
				w.event(e, ev)
				again = true
			}
			for h, ok := e.resend(); ok; h, ok = e.resend() {
				w.printf("%s: %s goes again", e.name, e.msgs[h].name)
				w.leave(e.msgs[h], -1)
				again = true
			}
			for h, ok := e.unfenced(); ok; h, ok = e.unfenced() {
				w.printf("%s: %s may go", e.name, e.msgs[h].name)
				w.leave(e.msgs[h], -1)
				again = true
			}
		}
	}
}

// leave makes the next n packets of a message leave, all if n is -1.
func (w *world) leave(o *operation, n int) {
	for ; n != 0; n-- {
		pc, b, ok := o.at.leave(o.handle, o.at.mtu)
		if !ok {
			if o.at.held(o.handle) {
				w.printf("%s: %s waits behind a refusal", o.at.name, o.name)
			}
			return
		}
		w.launch(&packet{from: o.at, to: o.to, op: o, handle: o.handle, piece: pc, next: wire.NextReqStd, b: b, pdc: o.pdc, ordered: o.ordered})
	}
}

// launch puts a packet under way.
func (w *world) launch(p *packet) {
	p.name = fmt.Sprintf("p%d", len(w.packets)+1)
	w.packets[p.name] = p
	w.printf("%s %s", p.name, w.text(p))
}

// contents returns the name of the message that begins with b.
func (w *world) contents(b []byte) string {
	if len(b) == 0 {
		return "0 bytes"
	}
	for _, o := range w.posts {
		if !o.recv && len(b) <= len(o.bytes) && bytes.Equal(b, o.bytes[:len(b)]) {
			return fmt.Sprintf("%d bytes of %s", len(b), o.name)
		}
	}
	w.t.Fatalf("%d bytes that are the beginning of no message: %x", len(b), b[:min(len(b), 32)])
	return ""
}

// event prints an event and checks what the trace does not show: each operation ends once, and
// the bytes are where they belong.
func (w *world) event(at *endpoint, e *ending) {
	o := e.op
	if e.remote {
		w.remoteWords(at, e)
		return
	}
	if o == nil || o.at != at || e.recv != o.recv || e.tagged != o.tagged {
		w.t.Fatalf("%s: an event of no operation: %+v", at.name, *e)
	}
	if o.ended {
		w.t.Fatalf("%s: %s ended twice", at.name, o.name)
	}
	o.ended = !o.multi || e.released
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s %s: %s", at.name, kindWords(o), o.name, e.cause)
	if e.rc != 0 {
		fmt.Fprintf(&s, ", %v", e.rc)
	}
	if e.nack != 0 {
		fmt.Fprintf(&s, ", NACK %v", e.nack)
	}
	if o.recv {
		w.receivedWords(&s, e)
	} else {
		if e.n != len(o.bytes) || e.tag != o.tag && o.tagged || e.over != 0 || e.multi || e.released || e.peer != o.peer {
			w.t.Fatalf("%s: the event of %s: %+v", at.name, o.name, *e)
		}
		if e.unknown {
			s.WriteString(", effect unknown")
		}
	}
	w.printf("%s", s.String())
}

// receivedWords describes the message that a receive got.
func (w *world) receivedWords(s *strings.Builder, e *ending) {
	o := e.op
	switch {
	case e.n > 0 && o.look != "" && e.buf == nil:
		fmt.Fprintf(s, ", a message of %d bytes", e.n)
	case e.cause == "ok" || e.n > 0 || e.over > 0:
		got := o.memory[:e.n]
		if e.multi {
			at := offsetIn(o.memory, e.buf)
			if len(e.buf) != e.n || at < 0 {
				w.t.Fatalf("the bytes of %s are elsewhere", o.name)
			}
			got = e.buf
			fmt.Fprintf(s, ", %s at %d", w.contents(got), at)
		} else {
			fmt.Fprintf(s, ", %s", w.contents(got))
		}
	}
	if e.over > 0 {
		fmt.Fprintf(s, ", %d bytes lost", e.over)
	}
	if o.tagged && e.peer != 0 {
		fmt.Fprintf(s, ", tag %#x", e.tag)
	} else if e.tag != 0 {
		w.t.Fatalf("a tag that %s has not: %#x", o.name, e.tag)
	}
	if e.hasData {
		fmt.Fprintf(s, ", data %#x", e.data)
	}
	if e.peer != 0 {
		p := w.byNum(e.peer)
		fmt.Fprintf(s, ", from %s", p.name)
		if e.initiator != p.initiator {
			fmt.Fprintf(s, " initiator %d", e.initiator)
		}
	} else if e.initiator != 0 {
		fmt.Fprintf(s, ", initiator %d", e.initiator)
	}
	if e.unknown {
		w.t.Fatalf("a receive with an unknown effect")
	}
	if e.released {
		s.WriteString(", buffer released")
	}
}

func offsetIn(all, part []byte) int {
	if len(part) == 0 {
		return 0
	}
	for i := range all {
		if &all[i] == &part[0] {
			return i
		}
	}
	return -1
}

func kindWords(o *operation) string {
	if o.look != "" {
		return o.look
	}
	s := "send"
	if o.rma {
		s = "write"
	}
	if o.recv {
		s = "recv"
	}
	if o.tagged {
		s = "t" + s
	}
	return s
}

func (w *world) byNum(n uint32) *endpoint {
	if n == 0 || int(n) > len(w.order) {
		w.t.Fatalf("peer %d: nobody", n)
	}
	return w.order[n-1]
}

// idWords describes a message id of an endpoint: the name of the message, with the number of
// the attempt from the second on, or the number if it is of no message.
func idWords(o *operation, id uint16) string {
	if o != nil {
		switch k := slices.Index(o.ids, id); {
		case k == 0:
			return o.name
		case k > 0:
			return fmt.Sprintf("%s(%d)", o.name, k+1)
		}
	}
	return strconv.Itoa(int(id))
}

// text describes a packet: what the standard header says, except what the reader expects from
// its source and target.
func (w *world) text(p *packet) string {
	var s strings.Builder
	mode := "RUD"
	if p.ordered {
		mode = "ROD"
	}
	fmt.Fprintf(&s, "%s->%s %s ", p.from.name, p.to.name, mode)
	if p.pdc != "" {
		fmt.Fprintf(&s, "pdc=%s ", p.pdc)
	}
	r, n, err := wire.ParseReqStd(p.b)
	if p.next != wire.NextReqStd || err != nil {
		fmt.Fprintf(&s, "%v, %d bytes", p.next, len(p.b))
		if err != nil && p.next == wire.NextReqStd {
			fmt.Fprintf(&s, " (%v)", err)
		}
		return s.String()
	}
	if p.op != nil && !slices.Contains(p.op.ids, r.MsgID) && p.handle != 0 {
		p.op.ids = append(p.op.ids, r.MsgID)
	}
	fmt.Fprintf(&s, "%v msg=%s %v", r.Opcode, idWords(p.op, r.MsgID), r.Flags)
	switch {
	case r.Opcode == wire.OpWrite:
		fmt.Fprintf(&s, " key=%#x addr=%#x", r.Match, r.BufOff)
	case r.Opcode == wire.OpTaggedSend || r.Match != 0:
		fmt.Fprintf(&s, " tag=%#x", r.Match)
	}
	if r.Flags&wire.SESHD != 0 {
		fmt.Fprintf(&s, " data=%#x", r.HeaderData)
	}
	fmt.Fprintf(&s, " len=%d", r.ReqLen)
	if r.Flags&wire.SESSOM == 0 {
		fmt.Fprintf(&s, " offset=%d payload=%d", r.MsgOff, r.PayloadLen)
	}
	for _, f := range []struct {
		name string
		v, x uint64
	}{
		{"job", uint64(r.JobID), uint64(p.to.job)}, {"pid", uint64(r.PIDonFEP), uint64(p.to.pid)}, {"ri", uint64(r.RI), uint64(p.to.ri)},
		{"initiator", uint64(r.Initiator), uint64(p.from.initiator)}, {"gen", uint64(r.Gen), 0}, {"buffer_offset", r.BufOff, 0},
	} {
		if f.v != f.x && (f.name != "buffer_offset" || r.Opcode != wire.OpWrite) {
			fmt.Fprintf(&s, " %s=%d", f.name, f.v)
		}
	}
	w.checkPayload(p, &r, p.b[n:])
	return s.String()
}

// checkPayload fails the test if a packet does not carry the bytes that it says it does.
func (w *world) checkPayload(p *packet, r *wire.ReqStd, b []byte) {
	if p.handle == 0 {
		return
	}
	off, n := int(r.MsgOff), int(r.PayloadLen)
	if r.Flags&wire.SESSOM != 0 {
		off, n = 0, len(b)
	}
	if off+n > len(p.op.bytes) || !bytes.Equal(b, p.op.bytes[off:off+n]) {
		w.t.Fatalf("%s carries other bytes than %s has at %d", p.name, p.op.name, off)
	}
}

// rspText describes a response.
func (w *world) rspText(p *packet, r *wire.Rsp, guaranteed bool) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v %v", r.Opcode, r.RC)
	switch r.List {
	case wire.ListExpected:
	case wire.ListOverflow:
		s.WriteString(" OVERFLOW")
	default:
		fmt.Fprintf(&s, " list=%d", r.List)
	}
	fmt.Fprintf(&s, " msg=%s modified=%d", idWords(p.op, r.MsgID), r.ModLen)
	if r.Gen != 0 {
		fmt.Fprintf(&s, " gen=%d", r.Gen)
	}
	if r.JobID != p.to.job {
		fmt.Fprintf(&s, " job=%d", r.JobID)
	}
	if guaranteed {
		s.WriteString(" guaranteed")
	}
	return s.String()
}

// pattern returns the n bytes of a message. Each name has bytes of its own.
func pattern(name string, n int) []byte {
	f := fnv.New32a()
	f.Write([]byte(name))
	x := f.Sum32()
	b := make([]byte, n)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}
