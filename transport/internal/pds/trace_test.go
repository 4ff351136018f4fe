package pds_test

import (
	"fmt"
	"math/bits"
	"net/netip"
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

// TestTrace plays the conversations of testdata/trace and compares what happens with the text
// there. testdata/trace/README.md explains the language.
//
//	go test ./transport/internal/pds -run TestTrace -args -rewrite
//
// writes what happens to the files instead. PSNs are relative to Start_PSN, so every file is
// played with several Start_PSNs, most of which wrap in the middle of it, and also without the
// fast paths for plain packets: all must read the same.
func TestTrace(t *testing.T) {
	files, err := filepath.Glob("testdata/trace/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			checkComments(t, path)
			var first []step // what happened with the first start
			for i, v := range variants() {
				t.Run(v.name, func(t *testing.T) {
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("run it again: go test ./transport/internal/pds -run '^%s$'", t.Name())
						}
					})
					w := newWorld(v)
					wrong := slices.Contains(wrongAt[filepath.Base(path)], v.start)
					if wrong && first == nil {
						t.Skip("what this start makes of it is only compared with the first one")
					}
					if i == 0 || first == nil { // nil if -run selects this start alone
						datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
							out := w.must(t, d)
							first = append(first, step{*d, out})
							return out
						})
						return
					}
					other := false
					for _, s := range first {
						switch out := w.must(t, &s.d); {
						case out == s.out:
						case wrong:
							other = true
						default:
							t.Fatalf("%s: this start makes of it\n%s\nand the first one\n%s", s.d.Pos, out, s.out)
						}
					}
					if wrong && !other {
						t.Errorf("wrongAt says that this start makes another conversation of it, and it does not: take it out")
					}
				})
			}
		})
	}
}

// A step is a command and its output.
type step struct {
	d   datadriven.TestData
	out string
}

// wrongAt lists traces that read differently with some Start_PSNs, by a fault of the code:
// a PDC that never sent a PROBE remembers PSN 0 as that of the last PROBE. If PSN 0 is
// outstanding, its first PROBE begins there and not at the first outstanding PSN.
var wrongAt = map[string][]wire.PSN{
	"open.txt": {0xfffffffe, 0xffffffff},
}

type variant struct {
	name  string
	start wire.PSN
	fast  bool
}

// variants are the ways in which every trace is played.
func variants() []variant {
	starts := []wire.PSN{0xfffffff0, 0, 1, 0x7ffffffc, 0x7fffffff}
	for s := wire.PSN(0xfffffff1); s != 0; s++ {
		starts = append(starts, s)
	}
	var out []variant
	for _, s := range starts {
		out = append(out, variant{fmt.Sprintf("start=%#x", uint32(s)), s, true})
	}
	for _, s := range []wire.PSN{0xfffffffe, 0} {
		out = append(out, variant{fmt.Sprintf("start=%#x,general", uint32(s)), s, false})
	}
	return out
}

// checkComments checks that a trace says at its head what it shows, and of every block what
// it is for.
func checkComments(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), "\n\n")
	head += "\n"
	if n := strings.Count(head, ".\n") + strings.Count(head, ". "); !strings.HasPrefix(head, "# ") || n < 2 {
		t.Errorf("%s does not begin with two sentences that say what it shows", path)
	}
	before := ""
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if line == "----" && (i < 2 || !strings.HasPrefix(lines[i-2], "# ")) {
			t.Errorf("%s:%d: no comment before %q", path, i, before)
		}
		before = line
	}
}

// worldBegin is the time when a trace begins. It is not 0, which means never to PDS.
const worldBegin = time.Second

// A world is some sides and the packets under way between them.
type world struct {
	start wire.PSN
	fast  bool // the fast paths for plain packets are used
	now   time.Duration
	begin time.Duration // the time that traces write as 0
	hop   time.Duration // how long packets are under way unless the script says otherwise
	sides []*side
	pkts  []*packet // all packets ever sent, by number - 1

	bases  []wire.PSN // the Start_PSNs seen
	labels map[labelKey]string
	ids    map[string]uint16 // PDCIDs by label
	probes map[uint16]int    // numbers of probe_opaque values, in the order seen
	pushed int
	msg    uint32
	showCC bool
}

func newWorld(v variant) *world {
	return &world{
		start: v.start, fast: v.fast, now: worldBegin, begin: worldBegin, hop: 50 * time.Microsecond,
		labels: map[labelKey]string{}, ids: map[string]uint16{}, probes: map[uint16]int{},
	}
}

// must is run for a command that must not fail.
func (w *world) must(t *testing.T, d *datadriven.TestData) string {
	out, err := w.run(d)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return out
}

type labelKey struct {
	side string
	id   uint16
}

// A packet is a packet that a side sent: the headers, without a trailer.
type packet struct {
	n        int
	from     *side
	src, dst netip.AddrPort
	b        []byte
	size     int // nominal bytes
	why      string
	underWay bool
	at       time.Duration // when it was sent
}

// An arrival says how a packet arrives.
type arrival struct {
	src     netip.AddrPort
	who     uint64
	ce      bool
	paused  bool
	trimmed wire.NackCode
}

func (w *world) side(name string) (*side, error) {
	for _, s := range w.sides {
		if s.name == name {
			return s, nil
		}
	}
	if len(name) != 1 || name < "A" || name > "F" {
		return nil, fmt.Errorf("sides are A to F, not %q", name)
	}
	s, err := newSide(w, name, 1, nil)
	if err != nil {
		return nil, err
	}
	w.sides = append(w.sides, s)
	slices.SortFunc(w.sides, func(a, b *side) int { return strings.Compare(a.name, b.name) })
	return s, nil
}

func (w *world) byAddr(a netip.AddrPort) *side {
	for _, s := range w.sides {
		if s.addr.Addr() == a.Addr() {
			return s
		}
	}
	return nil
}

// label names a PDCID of a side: the name of the side and a number in the order in which
// its PDCIDs were seen.
func (w *world) label(s *side, id uint16) string {
	k := labelKey{s.name, id}
	if w.labels[k] == "" {
		n := 1
		for l := range w.labels {
			if l.side == s.name {
				n++
			}
		}
		w.labels[k] = fmt.Sprint(s.name, n)
		w.ids[w.labels[k]] = id
	}
	return w.labels[k]
}

// base notes a Start_PSN if it is not near a known one.
func (w *world) base(start wire.PSN) {
	for _, b := range w.bases {
		if d := start.Sub(b); d > -1<<15 && d < 1<<15 {
			return
		}
	}
	w.bases = append(w.bases, start)
}

// rel is a PSN relative to the nearest Start_PSN.
func (w *world) rel(psn wire.PSN) string {
	best := 0
	dist := func(i int) int64 { return max(int64(psn.Sub(w.bases[i])), -int64(psn.Sub(w.bases[i]))) }
	if len(w.bases) == 0 {
		w.base(w.start)
	}
	for i := range w.bases {
		if dist(i) < dist(best) {
			best = i
		}
	}
	d := psn.Sub(w.bases[best])
	if best == 0 {
		return strconv.Itoa(int(d))
	}
	return fmt.Sprintf("S%d%+d", best+1, d)
}

// abs is the inverse of rel.
func (w *world) abs(s string) (wire.PSN, error) {
	if len(w.bases) == 0 {
		w.base(w.start)
	}
	b := 0
	if rest, ok := strings.CutPrefix(s, "S"); ok {
		i := strings.IndexAny(rest, "+-")
		if i < 0 {
			return 0, fmt.Errorf("%q is no PSN", s)
		}
		n, err := strconv.Atoi(rest[:i])
		if err != nil || n < 1 || n > len(w.bases) {
			return 0, fmt.Errorf("%q is no PSN", s)
		}
		b, s = n-1, rest[i:]
	}
	d, err := strconv.Atoi(s)
	return w.bases[b].Add(d), err
}

// clock is a time as traces write it.
func (w *world) clock(at time.Duration) string { return "at " + shortTime(at-w.begin) }

// shortTime is a time without the fractions of a microsecond that timers gain and lose
// because they are looked at in turn.
func shortTime(d time.Duration) string { return d.Round(time.Microsecond).String() }

func rspText(r *wire.Rsp) string {
	if r.Opcode == wire.RspDefault {
		return "default"
	}
	return fmt.Sprintf("%v(msg %d)", r.RC, r.MsgID)
}

// args are the arguments of a command.
type args struct {
	d     *datadriven.TestData
	words []string
	vals  map[string]string
}

func parseArgs(d *datadriven.TestData) args {
	a := args{d, nil, map[string]string{}}
	for _, x := range d.CmdArgs {
		if len(x.Vals) == 0 {
			a.words = append(a.words, x.Key)
			continue
		}
		a.vals[x.Key] = strings.Join(x.Vals, ",")
	}
	return a
}

func (a *args) int(key string, def int) (int, error) {
	v, ok := a.vals[key]
	if !ok {
		return def, nil
	}
	return strconv.Atoi(v)
}

// flag removes a word and reports whether it was there.
func (a *args) flag(word string) bool {
	i := slices.Index(a.words, word)
	if i < 0 {
		return false
	}
	a.words = slices.Delete(a.words, i, i+1)
	return true
}

// run plays one command and returns what happens.
func (w *world) run(d *datadriven.TestData) (string, error) {
	a := parseArgs(d)
	var out strings.Builder
	var err error
	switch d.Cmd {
	case "table":
		err = w.table(&a, &out)
	case "open":
		err = w.open(&a, &out)
	case "established":
		err = w.established(&a, &out)
	case "push":
		err = w.push(&a, &out)
	case "deliver", "replay":
		err = w.deliver(&a, &out)
	case "settle":
		err = w.pass(never, true, true, &out)
	case "drop":
		err = w.drop(&a, &out)
	case "trim":
		err = w.trim(&a, &out)
	case "forge":
		err = w.forge(&a, &out)
	case "advance":
		err = w.advance(&a, &out)
	case "upper":
		err = w.upper(&a, &out)
	case "state":
		err = w.state(&a, &out)
	case "close", "request-close", "suspect", "probe":
		err = w.do(&a, &out)
	case "window":
		err = w.window(&a, &out)
	case "restart":
		err = w.restart(&a, &out)
	case "show":
		w.showCC = a.flag("cc_state")
	default:
		err = fmt.Errorf("no such command: %s", d.Cmd)
	}
	if err != nil {
		return "", err
	}
	if out.Len() == 0 {
		return "nothing happens\n", nil
	}
	return out.String(), nil
}

func (w *world) table(a *args, out *strings.Builder) error {
	if len(a.words) == 0 {
		return fmt.Errorf("which side?")
	}
	for _, word := range a.words[1:] {
		a.vals[word] = ""
	}
	name := a.words[0]
	for _, s := range w.sides {
		if s.name == name {
			return fmt.Errorf("%s exists", name)
		}
	}
	if _, err := w.side(name); err != nil {
		return err
	}
	return w.renew(name, 1, a.vals, out)
}

// restart ends one life of a side. The next one knows nothing of it.
func (w *world) restart(a *args, out *strings.Builder) error {
	if len(a.words) == 0 {
		return fmt.Errorf("which side?")
	}
	s, err := w.side(a.words[0])
	if err != nil {
		return err
	}
	for _, word := range a.words[1:] {
		a.vals[word] = ""
	}
	return w.renew(s.name, s.life+1, a.vals, out)
}

func (w *world) renew(name string, life int, change map[string]string, out *strings.Builder) error {
	s, err := newSide(w, name, life, change)
	if err != nil {
		return err
	}
	for i := range w.sides {
		if w.sides[i].name == name {
			w.sides[i] = s
		}
	}
	fmt.Fprintf(out, "%s has a new table\n", name)
	return nil
}

func (w *world) open(a *args, out *strings.Builder) error {
	mode := wire.RUD
	if a.flag("rod") {
		mode = wire.ROD
	}
	a.flag("rud")
	if len(a.words) != 2 {
		return fmt.Errorf("open FROM TO")
	}
	from, err := w.side(a.words[0])
	if err != nil {
		return err
	}
	to, err := w.side(a.words[1])
	if err != nil {
		return err
	}
	label, start, ok := from.open(w.now, to, mode)
	if !ok {
		fmt.Fprintf(out, "%s has no room for a PDC\n", from.name)
		return nil
	}
	w.base(start)
	fmt.Fprintf(out, "%s is a %v PDC to %s, Start_PSN is %s\n", label, mode, to.name, w.rel(start))
	return nil
}

// established opens a PDC with one message, of number 0 and PSN 0, and lets it end. The
// packets of that message are neither shown nor counted.
func (w *world) established(a *args, out *strings.Builder) error {
	rtt, ok := a.vals["rtt"]
	if !ok {
		rtt = "100us"
	}
	d, err := time.ParseDuration(rtt)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := w.open(a, &b); err != nil {
		return err
	}
	label, rest, _ := strings.Cut(b.String(), " ")
	s, err := w.target(label)
	if err != nil {
		return err
	}
	k, why := s.push(w.now, s.find(label), w.msg, 1000, 0, true)
	if why != "" {
		return fmt.Errorf("%s", why)
	}
	w.msg++
	before := len(w.pkts)
	w.send([]*packet{k}, &b)
	w.hop = d / 2
	if err := w.pass(never, true, true, &b); err != nil {
		return err
	}
	w.pkts = w.pkts[:before]
	if before == 0 {
		w.begin = w.now
	}
	fmt.Fprintf(out, "%s %smsg 0 opened it, the round trip takes %s\n", label, rest, shortTime(d))
	return nil
}

// target is the side of a label.
func (w *world) target(label string) (*side, error) {
	if label == "" {
		return nil, fmt.Errorf("which PDC?")
	}
	return w.side(label[:1])
}

func (w *world) push(a *args, out *strings.Builder) error {
	lag := a.flag("no-ar")
	if len(a.words) != 1 {
		return fmt.Errorf("push PDC")
	}
	s, err := w.target(a.words[0])
	if err != nil {
		return err
	}
	p := s.find(a.words[0])
	if p == nil {
		return fmt.Errorf("%s does not exist", a.words[0])
	}
	n, err := a.int("n", 1)
	if err != nil {
		return err
	}
	size, err := a.int("size", 1000)
	if err != nil {
		return err
	}
	path, err := a.int("path", 0)
	if err != nil {
		return err
	}
	msg, err := a.int("msg", 0)
	if err != nil {
		return err
	}
	var sent []*packet
	why := ""
	for i := 0; i < n && why == ""; i++ {
		m := uint32(msg)
		if _, ok := a.vals["msg"]; !ok {
			m = w.msg
		}
		var k *packet
		if k, why = s.push(w.now, p, m, size, path, i == n-1 && !lag); k != nil {
			sent = append(sent, k)
			w.msg = max(w.msg, m+1)
		}
	}
	w.send(sent, out)
	if why != "" {
		fmt.Fprintf(out, "%s may send no more: %s\n", a.words[0], why)
	}
	w.flush(out)
	return nil
}

// send puts packets under way and prints them.
func (w *world) send(ks []*packet, out *strings.Builder) {
	for _, k := range ks {
		w.pkts = append(w.pkts, k)
		k.n, k.underWay, k.at = len(w.pkts), true, w.now
		fmt.Fprintf(out, "%d %s", k.n, w.text(k))
		if k.why != "" {
			fmt.Fprintf(out, " (%s)", k.why)
		}
		out.WriteByte('\n')
	}
}

// flush prints what the sides report, and lets everything leave that is to be sent.
func (w *world) flush(out *strings.Builder) {
	for _, s := range w.sides {
		ks := s.take(w.now)
		if news := s.tell(); news != "" {
			fmt.Fprintf(out, "%s: %s\n", s.name, news)
		}
		w.send(ks, out)
		if news := s.tell(); news != "" {
			fmt.Fprintf(out, "%s: %s\n", s.name, news)
		}
	}
}

// selected returns the packets that the words name: numbers and ranges of them, or those to
// or from a side; without a word all. Packets that are no longer under way are left out
// unless again is set.
func (w *world) selected(a *args, again bool) ([]*packet, error) {
	var out []*packet
	if len(a.words) != 0 {
		for _, word := range a.words {
			if word == "first" || word == "last" {
				ks := slices.Clone(w.pkts)
				if word == "last" {
					slices.Reverse(ks)
				}
				i := slices.IndexFunc(ks, func(k *packet) bool { return k.underWay })
				if i < 0 {
					return nil, fmt.Errorf("nothing is under way")
				}
				out = append(out, ks[i])
				continue
			}
			lo, hi, ok := strings.Cut(word, "-")
			if !ok {
				hi = lo
			}
			x, err := strconv.Atoi(lo)
			if err != nil {
				return nil, err
			}
			y, err := strconv.Atoi(hi)
			if err != nil {
				return nil, err
			}
			for n := x; n <= y; n++ {
				if n < 1 || n > len(w.pkts) || !again && !w.pkts[n-1].underWay {
					return nil, fmt.Errorf("packet %d is not under way", n)
				}
				out = append(out, w.pkts[n-1]) // in the order of the words
			}
		}
		return out, nil
	}
	for _, k := range w.pkts {
		if !k.underWay {
			continue
		}
		if to, ok := a.vals["to"]; ok && w.byAddr(k.dst).name != to {
			continue
		}
		if from, ok := a.vals["from"]; ok && k.from.name != from {
			continue
		}
		if t, ok := a.vals["type"]; ok && !strings.Contains(w.text(k), " "+t+" ") {
			continue
		}
		out = append(out, k)
	}
	return out, nil
}

func (w *world) deliver(a *args, out *strings.Builder) error {
	how := arrival{ce: a.flag("ce"), paused: a.flag("paused")}
	ks, err := w.selected(a, a.d.Cmd == "replay")
	if err != nil {
		return err
	}
	src, who := "", ""
	if a.d.Cmd == "replay" {
		src = a.vals["from"]
	}
	who = a.vals["who"]
	for _, k := range ks {
		h := how
		h.src, h.who = k.src, k.from.who
		if src != "" {
			s, err := w.side(src)
			if err != nil {
				return err
			}
			h.src = s.addr
		}
		if h.src, err = a.byPath(h.src); err != nil {
			return err
		}
		switch who {
		case "":
		case "nobody":
			h.who = 0
		default:
			s, err := w.side(who)
			if err != nil {
				return err
			}
			h.who = s.who
		}
		k.underWay = false
		w.arrive(k, h, out)
	}
	w.flush(out)
	return nil
}

// byPath is an address, with the source port that the word path asks for.
func (a *args) byPath(src netip.AddrPort) (netip.AddrPort, error) {
	path, ok := a.vals["path"]
	if !ok {
		return src, nil
	}
	n, err := strconv.ParseUint(path, 10, 8)
	return netip.AddrPortFrom(src.Addr(), src.Port()+uint16(n)), err
}

// arrive passes a packet to its side and prints what the side reports.
func (w *world) arrive(k *packet, how arrival, out *strings.Builder) {
	s := w.byAddr(k.dst)
	s.receive(w.now, k, how)
	n := "it"
	if k.n != 0 {
		n = strconv.Itoa(k.n)
	}
	fmt.Fprintf(out, "%s gets %s", s.name, n)
	if news := s.tell(); news != "" {
		fmt.Fprintf(out, ": %s", news)
	}
	out.WriteByte('\n')
}

func (w *world) drop(a *args, out *strings.Builder) error {
	ks, err := w.selected(a, false)
	if err != nil {
		return err
	}
	for _, k := range ks {
		k.underWay = false
		fmt.Fprintf(out, "%d is lost\n", k.n)
	}
	return nil
}

func (w *world) trim(a *args, out *strings.Builder) error {
	code := wire.NackTrimmed
	if a.flag("last-hop") {
		code = wire.NackTrimmedLastHop
	}
	ce := a.flag("ce")
	ks, err := w.selected(a, a.flag("copy"))
	if err != nil {
		return err
	}
	for _, k := range ks {
		k.underWay = false
		w.arrive(k, arrival{src: k.src, who: k.from.who, trimmed: code, ce: ce}, out)
	}
	w.flush(out)
	return nil
}

func (w *world) advance(a *args, out *strings.Builder) error {
	deliver := a.flag("deliver")
	if len(a.words) != 1 {
		return fmt.Errorf("advance TIME")
	}
	d, err := time.ParseDuration(a.words[0])
	if err != nil {
		return err
	}
	return w.pass(w.now+d, deliver, false, out)
}

// pass lets time pass until end, or until nothing is under way: timers run, and if deliver
// is set packets arrive when their time has come.
func (w *world) pass(end time.Duration, deliver, settle bool, out *strings.Builder) error {
	for range 100000 {
		at := never
		for _, s := range w.sides {
			if n := s.next(); n != 0 {
				at = min(at, n)
			}
		}
		var due []*packet
		if deliver {
			arrives := never
			for _, k := range w.pkts {
				if k.underWay {
					arrives = min(arrives, max(k.at+w.hop, w.now))
				}
			}
			for _, k := range w.pkts {
				if k.underWay && k.at+w.hop <= arrives && arrives <= at {
					due = append(due, k)
				}
			}
			if settle && arrives == never {
				return nil
			}
			at = min(at, arrives)
		}
		if at > end {
			w.now = end
			return nil
		}
		w.now = max(w.now, at)
		var b strings.Builder
		for _, k := range due {
			k.underWay = false
			w.arrive(k, arrival{src: k.src, who: k.from.who}, &b)
		}
		for _, s := range w.sides {
			if n := s.next(); n != 0 && n <= w.now {
				s.timers(w.now)
			}
		}
		w.flush(&b)
		if b.Len() != 0 {
			fmt.Fprintf(out, "%s\n%s", w.clock(w.now), b.String())
		}
	}
	return fmt.Errorf("the timers never rest")
}

const never = time.Duration(1 << 62)

func (w *world) upper(a *args, out *strings.Builder) error {
	if len(a.words) == 0 {
		return fmt.Errorf("upper SIDE")
	}
	s, err := w.target(a.words[0])
	if err != nil {
		return err
	}
	p := s.find(a.words[0])
	a.words = a.words[1:]
	var r reply
	switch {
	case a.flag("open"):
		s.inbound[p] = true
		fmt.Fprintf(out, "%s waits for the rest of a message\n", s.name)
		return nil
	case a.flag("complete"):
		delete(s.inbound, p)
		fmt.Fprintf(out, "%s has all of it\n", s.name)
		return nil
	case a.flag("sending"):
		s.sending = true
		fmt.Fprintf(out, "%s is in the middle of a message\n", s.name)
		return nil
	case a.flag("sent"):
		s.sending = false
		fmt.Fprintf(out, "%s has begun all of it\n", s.name)
		w.flush(out)
		return nil
	case a.flag("asks"):
		s.asked[p] = true
		fmt.Fprintf(out, "%s waits for read data\n", s.name)
		return nil
	case a.flag("has"):
		s.asked[p] = false
		fmt.Fprintf(out, "%s has all read data\n", s.name)
		return nil
	case a.flag("instead"):
		s.instead = true
		fmt.Fprintf(out, "%s has something to say in the place of what is given up\n", s.name)
		return nil
	}
	text := "takes"
	if r.gtd = a.flag("gtd"); r.gtd {
		text = "keeps its response to"
	}
	if v := a.vals["refuse"]; v != "" {
		if r.refuse, err = nackCode(v); err != nil {
			return err
		}
		text = "refuses"
	}
	lo, hi, ok := strings.Cut(a.vals["msg"], "-")
	if !ok {
		hi = lo
	}
	x, err := strconv.Atoi(lo)
	if err != nil {
		return err
	}
	y, err := strconv.Atoi(hi)
	if err != nil {
		return err
	}
	for m := x; m <= y; m++ {
		s.replies[uint32(m)] = r
	}
	fmt.Fprintf(out, "%s %s msg %s\n", s.name, text, a.vals["msg"])
	return nil
}

func (w *world) state(a *args, out *strings.Builder) error {
	for _, word := range a.words {
		s, err := w.target(word)
		if err != nil {
			return err
		}
		for _, line := range s.state(w.now) {
			fmt.Fprintln(out, line)
		}
	}
	return nil
}

func (w *world) window(a *args, out *strings.Builder) error {
	if len(a.words) != 2 {
		return fmt.Errorf("window SIDE BYTES")
	}
	s, err := w.side(a.words[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(a.words[1])
	if err != nil {
		return err
	}
	s.setWindow(n)
	fmt.Fprintf(out, "the congestion window of %s is %d\n", s.name, n)
	w.flush(out)
	return nil
}

func (w *world) do(a *args, out *strings.Builder) error {
	if len(a.words) != 1 {
		return fmt.Errorf("which PDC?")
	}
	s, err := w.target(a.words[0])
	if err != nil {
		return err
	}
	p := s.find(a.words[0])
	if p == nil {
		return fmt.Errorf("%s does not exist", a.words[0])
	}
	s.do(w.now, a.d.Cmd, p)
	w.flush(out)
	return nil
}

// The text of packets.

var reqTypes = map[string]wire.Type{"RUD_REQ": wire.TypeRUDReq, "ROD_REQ": wire.TypeRODReq}

// text is a packet as text: the PDCs, the type, the flags that are set, the fields.
func (w *world) text(k *packet) string {
	to := w.byAddr(k.dst)
	var f []string
	add := func(format string, a ...any) { f = append(f, fmt.Sprintf(format, a...)) }
	flags := func(v wire.Flags, pairs ...any) {
		for i := 0; i < len(pairs); i += 2 {
			if v&pairs[i].(wire.Flags) != 0 {
				add("%s", pairs[i+1])
			}
		}
	}
	ends := func(spdcid, dpdcid uint16) string {
		l, r := k.from.name, to.name
		if spdcid != 0 {
			l = w.label(k.from, spdcid)
		}
		if dpdcid != 0 {
			r = w.label(to, dpdcid)
		}
		return l + ">" + r
	}
	switch t := wire.Type(k.b[0] >> 3); t {
	case wire.TypeRUDReq, wire.TypeRODReq:
		h, _, err := wire.ParseReq(k.b)
		if err != nil {
			return err.Error()
		}
		f = append(f, ends(h.SPDCID, h.DPDCID), t.String())
		if h.Next == wire.NextRspData {
			add("DATA")
		}
		flags(h.Flags, wire.FlagSYN, "SYN", wire.FlagRETX, "RETX", wire.FlagAR, "AR")
		if h.Flags&wire.FlagSYN != 0 {
			w.base(h.PSN.Add(-int(h.PSNOffset)))
		}
		add("psn=%s", w.rel(h.PSN))
		if h.Flags&wire.FlagSYN != 0 {
			add("psn_offset=%d", h.PSNOffset)
		}
		add("clear_psn=%s", w.rel(h.PSN.Add(int(h.ClearOff))))
	case wire.TypeAck, wire.TypeAckCC:
		a, n, err := wire.ParseAck(k.b)
		if err != nil {
			return err.Error()
		}
		f = append(f, ends(a.SPDCID, a.DPDCID), t.String())
		flags(a.Flags, wire.AckFlagM, "M", wire.AckFlagRETX, "RETX", wire.AckFlagP, "P", wire.AckFlagEPSN, "EPSN")
		switch a.Req {
		case wire.ReqClear:
			add("REQ=CLEAR")
		case wire.ReqClose:
			add("REQ=CLOSE")
		}
		add("cack=%s", w.rel(a.CACK))
		if a.Flags&wire.AckFlagP != 0 {
			add("probe=%d", w.probe(a.ProbeOpaque))
		} else {
			add("ack_psn=%s", w.rel(a.AckPSN()))
		}
		if a.Flags&wire.AckFlagEPSN != 0 {
			add("expected_psn=%s", w.rel(a.EPSN))
		}
		if t == wire.TypeAckCC {
			if a.SACKOff != 1 {
				add("sack_base=%s", w.rel(a.CACK.Add(int(a.SACKOff))))
			}
			if a.SACK != 0 {
				add("sack=%s", w.sackText(a.CACK.Add(int(a.SACKOff)), a.SACK))
			}
			add("mpr=%d", a.MPR)
			c := wire.ParseNSCC(a.CCState)
			switch {
			case c.ServiceTime == 0xffff:
				add("service_time=unknown")
			case c.ServiceTime != 0:
				add("service_time=%v", time.Duration(c.ServiceTime)*128)
			}
			if c.OOO != 0 {
				add("ooo=%d", c.OOO)
			}
			if w.showCC {
				add("rcvd_bytes=%d", c.RcvdBytes*256)
			}
		}
		if a.Next == wire.NextRsp {
			var r wire.Rsp
			if _, err := r.Parse(k.b[n:]); err != nil {
				return err.Error()
			}
			add("rsp=%s", strings.ReplaceAll(rspText(&r), " ", ""))
		}
	case wire.TypeNack:
		n, _, err := wire.ParseNack(k.b)
		if err != nil {
			return err.Error()
		}
		f = append(f, ends(n.SPDCID, n.DPDCID), t.String(), n.Code.String())
		flags(n.Flags, wire.NackFlagM, "M", wire.NackFlagRETX, "RETX", wire.NackFlagNT, "NT")
		add("psn=%s", w.rel(n.PSN))
		switch n.Code {
		case wire.NackNewStartPSN:
			w.base(wire.PSN(n.Payload))
			add("start_psn=%s", w.rel(wire.PSN(n.Payload)))
		case wire.NackRODOOO:
			add("expected_psn=%s", w.rel(wire.PSN(n.Payload)))
		default:
			if n.Payload != 0 {
				add("payload=%#x", n.Payload)
			}
		}
	case wire.TypeCP:
		c, _, err := wire.ParseCP(k.b)
		if err != nil {
			return err.Error()
		}
		f = append(f, ends(c.SPDCID, c.DPDCID), "CTRL", c.Ctl.String())
		flags(c.Flags, wire.FlagISROD, "ISROD", wire.FlagSYN, "SYN", wire.FlagRETX, "RETX", wire.FlagAR, "AR")
		switch c.Ctl {
		case wire.CtlProbe:
			add("probe=%d sack_base=%s", w.probe(c.ProbeOpaque), w.rel(wire.PSN(c.Payload)))
		case wire.CtlClear, wire.CtlClearReq:
			add("clear_psn=%s", w.rel(wire.PSN(c.Payload)))
		default:
			add("psn=%s", w.rel(c.PSN))
		}
	default:
		return t.String()
	}
	if p := k.src.Port() - k.from.addr.Port(); p != 0 {
		add("path=%d", p)
	}
	return strings.Join(f, " ")
}

// probe is the number of a value of probe_opaque.
func (w *world) probe(opaque uint16) int {
	if w.probes[opaque] == 0 {
		w.probes[opaque] = len(w.probes) + 1
	}
	return w.probes[opaque]
}

// sackText is the PSNs that a bitmap shows.
func (w *world) sackText(base wire.PSN, m uint64) string {
	var out []string
	for m != 0 {
		i := bits.TrailingZeros64(m)
		n := bits.TrailingZeros64(^(m >> i))
		s := w.rel(base.Add(i))
		if n > 1 {
			s += ".." + w.rel(base.Add(i+n-1))
		}
		out = append(out, s)
		if i+n == 64 {
			break
		}
		m &^= 1<<(i+n) - 1
	}
	return strings.Join(out, ",")
}

func nackCode(name string) (wire.NackCode, error) {
	for c := range 256 {
		if wire.NackCode(c).String() == name {
			return wire.NackCode(c), nil
		}
	}
	n, err := strconv.ParseUint(name, 0, 8)
	if err != nil {
		return 0, fmt.Errorf("no such NACK: %s", name)
	}
	return wire.NackCode(n), nil
}

// forge makes a packet from its text and delivers it at once.
func (w *world) forge(a *args, out *strings.Builder) error {
	how := arrival{ce: a.flag("ce"), paused: a.flag("paused")}
	if len(a.words) < 2 {
		return fmt.Errorf("forge FROM>TO TYPE")
	}
	left, right, ok := strings.Cut(a.words[0], ">")
	if !ok || left == "" || right == "" {
		return fmt.Errorf("forge FROM>TO TYPE")
	}
	from, err := w.side(left[:1])
	if err != nil {
		return err
	}
	to, err := w.side(right[:1])
	if err != nil {
		return err
	}
	id := func(label string) (uint16, error) {
		if len(label) == 1 {
			return 0, nil
		}
		if v, ok := w.ids[label]; ok {
			return v, nil
		}
		// A PDCID that no side has.
		n, err := strconv.Atoi(label[1:])
		w.ids[label] = uint16(0xf000 + n)
		w.labels[labelKey{label[:1], uint16(0xf000 + n)}] = label
		return w.ids[label], err
	}
	spdcid, err := id(left)
	if err != nil {
		return err
	}
	dpdcid, err := id(right)
	if err != nil {
		return err
	}
	kind := a.words[1]
	a.words = a.words[2:]
	k := &packet{from: from, src: from.addr, dst: to.addr}
	how.src, how.who = from.addr, from.who
	if v := a.vals["src"]; v != "" {
		s, err := w.side(v)
		if err != nil {
			return err
		}
		how.src = s.addr
	}
	if how.src, err = a.byPath(how.src); err != nil {
		return err
	}
	switch v := a.vals["who"]; v {
	case "":
	case "nobody":
		how.who = 0
	default:
		s, err := w.side(v)
		if err != nil {
			return err
		}
		how.who = s.who
	}
	if k.b, k.size, err = w.encode(a, kind, spdcid, dpdcid); err != nil {
		return err
	}
	if len(a.words) != 0 {
		return fmt.Errorf("what is %v?", a.words)
	}
	w.arrive(k, how, out)
	w.flush(out)
	return nil
}

// encode is the inverse of text.
func (w *world) encode(a *args, kind string, spdcid, dpdcid uint16) (b []byte, size int, err error) {
	psn := func(key, def string) wire.PSN {
		v, ok := a.vals[key]
		if !ok {
			v = def
		}
		p, e := w.abs(v)
		if e != nil {
			err = e
		}
		return p
	}
	num := func(key string, def int) int {
		n, e := a.int(key, def)
		if e != nil {
			err = e
		}
		return n
	}
	flags := func(pairs ...any) (f wire.Flags) {
		for i := 0; i < len(pairs); i += 2 {
			if a.flag(pairs[i+1].(string)) {
				f |= pairs[i].(wire.Flags)
			}
		}
		return f
	}
	switch kind {
	case "RUD_REQ", "ROD_REQ":
		h := wire.Req{Type: reqTypes[kind], Next: wire.NextHdr(num("next_hdr", int(wire.NextReqStd))), SPDCID: spdcid, DPDCID: dpdcid, PSN: psn("psn", "0")}
		h.Flags = flags(wire.FlagSYN, "SYN", wire.FlagRETX, "RETX", wire.FlagAR, "AR")
		h.ClearOff = int16(psn("clear_psn", "-1").Sub(h.PSN))
		h.PSNOffset = uint16(num("psn_offset", 0))
		size = num("size", 1000)
		b = h.Append(nil)
		b = append(b, 0, 0, 0, byte(num("msg", 0)))
		b = append(b, make([]byte, wire.ReqStdLen-4)...)
	case "ACK", "ACK_CC":
		h := wire.Ack{Type: wire.TypeAckCC, SPDCID: spdcid, DPDCID: dpdcid, CACK: psn("cack", "-1"), MPR: uint8(num("mpr", 2)), SACKOff: 1}
		if kind == "ACK" {
			h.Type, h.SACKOff, h.MPR = wire.TypeAck, 0, 0
		}
		h.Flags = flags(wire.AckFlagM, "M", wire.AckFlagRETX, "RETX", wire.AckFlagP, "P")
		switch a.vals["REQ"] {
		case "CLEAR":
			h.Req = wire.ReqClear
		case "CLOSE":
			h.Req = wire.ReqClose
		}
		if v, ok := a.vals["sack"]; ok {
			base := h.CACK + 1
			if _, ok := a.vals["sack_base"]; ok {
				base = psn("sack_base", "")
			}
			h.SACKOff = int16(base.Sub(h.CACK))
			for _, r := range strings.Split(v, ",") {
				lo, hi, ok := strings.Cut(r, "..")
				if !ok {
					hi = lo
				}
				x, e := w.abs(lo)
				if e != nil {
					return nil, 0, e
				}
				y, e := w.abs(hi)
				if e != nil {
					return nil, 0, e
				}
				for q := x; !q.After(y); q++ {
					h.SACK |= 1 << uint(q.Sub(base))
				}
			}
		}
		if h.Flags&wire.AckFlagP != 0 {
			want := num("probe", 0)
			for o, n := range w.probes {
				if n == want {
					h.ProbeOpaque = o
				}
			}
		} else {
			h.AckPSNOff = int16(psn("ack_psn", w.rel(h.CACK)).Sub(h.CACK))
		}
		if kind == "ACK_CC" {
			h.CCState = wire.NSCCState{ServiceTime: uint16(num("service_time", 0)), RcvdBytes: uint32(num("rcvd_bytes", 0) / 256)}.Encode()
		}
		var r *wire.Rsp
		switch v := a.vals["rsp"]; v {
		case "":
		case "default":
			r = &wire.Rsp{}
		default:
			r = &wire.Rsp{Opcode: wire.RspResponse, RC: wire.RCOK}
			if v != "OK" {
				r.RC = wire.RCBadAddr
			}
		}
		if r != nil {
			h.Next = wire.NextRsp
			return r.Append(h.Append(nil)), 0, err
		}
		b = h.Append(nil)
	case "NACK":
		if len(a.words) == 0 {
			return nil, 0, fmt.Errorf("which NACK?")
		}
		code, e := nackCode(a.words[0])
		if e != nil {
			return nil, 0, e
		}
		a.words = a.words[1:]
		n := wire.Nack{Type: wire.TypeNack, Code: code, SPDCID: spdcid, DPDCID: dpdcid, PSN: psn("psn", "0")}
		n.Flags = flags(wire.NackFlagM, "M", wire.NackFlagRETX, "RETX")
		for _, key := range []string{"start_psn", "expected_psn"} {
			if _, ok := a.vals[key]; ok {
				n.Payload = uint32(psn(key, ""))
			}
		}
		if code == wire.NackNewStartPSN {
			w.base(wire.PSN(n.Payload))
		}
		b = n.Append(nil)
	case "CTRL":
		if len(a.words) == 0 {
			return nil, 0, fmt.Errorf("which control packet?")
		}
		c := wire.CP{SPDCID: spdcid, DPDCID: dpdcid, Ctl: 15}
		for t := wire.CtlNoop; t <= wire.CtlNegotiation; t++ {
			if t.String() == a.words[0] {
				c.Ctl = t
			}
		}
		if c.Ctl == 15 {
			return nil, 0, fmt.Errorf("no such control packet: %s", a.words[0])
		}
		a.words = a.words[1:]
		c.Flags = flags(wire.FlagISROD, "ISROD", wire.FlagSYN, "SYN", wire.FlagRETX, "RETX", wire.FlagAR, "AR")
		switch c.Ctl {
		case wire.CtlProbe:
			c.ProbeOpaque = uint16(num("probe", 1))
			c.Payload = uint32(psn("sack_base", "0"))
		case wire.CtlClear, wire.CtlClearReq:
			c.Payload = uint32(psn("clear_psn", "0"))
		default:
			c.PSN, c.PSNOffset = psn("psn", "0"), uint16(num("psn_offset", 0))
		}
		b = c.Append(nil)
	default:
		return nil, 0, fmt.Errorf("no such packet: %s", kind)
	}
	return b, size, err
}
