package transport

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/transport/wire"
)

// TestTraces runs the scripts of testdata and compares what happens with their text: go
// test ./transport -run TestTraces. With -rewrite it writes what happens to the files.
// testdata/README.md explains the language.
//
// Each script runs with several Start_PSNs, some of which make the PSNs of its PDCs cross
// 2³¹ or 2³², and each time with other PDCIDs: the traces must be the same.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	starts := []wire.PSN{5000, 1<<32 - 1, 1<<32 - 2, 1<<32 - 7, 1<<32 - 50, 1<<31 - 3}
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		starts = starts[:1]
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			for i, start := range starts {
				if t.Failed() {
					return // the second run would report the same again
				}
				tr := newTrace(start, uint64(i))
				datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
					return tr.block(t, d, start)
				})
			}
		})
	}
}

// A trace is a script that runs: FEPs, the network between them, one clock.
type trace struct {
	t       *testing.T
	now     time.Duration
	told    time.Duration // the time that was printed last
	out     strings.Builder
	start   wire.PSN
	seed    uint64
	nodes   []*traceNode
	ghosts  []*traceNode // addresses without a FEP
	delay   time.Duration
	way     map[string]string // "A>B": "hold" or "lose"
	all     []*tracePkt       // all packets ever sent, by number - 1
	fly     []*tracePkt       // packets under way, in the order of sending
	sent    []traceMsg
	room    []byte // for trains
	ops     int
	brief   bool // packets are counted, not printed
	trains  bool // trains are printed, not packets
	pathsTo int  // number of the last packet that by_path has counted
	flooded int  // addresses that took part in floods

	// Names of random numbers.
	ids    map[tracePDCID]string
	starts map[tracePDCID]wire.PSN // of a PDC, by each of its PDCIDs
	names  map[wire.PSN]string     // of Start_PSNs
	msgs   map[traceMsgID]string
}

type tracePDCID struct {
	node string
	id   uint16
}

type traceMsgID struct {
	from, to string
	life     int
	id       uint16
}

// A traceMsg is a message that was posted.
type traceMsg struct {
	context string
	buf     []byte
}

type traceNode struct {
	name  string
	addr  netip.AddrPort
	fep   *traceFEP
	words []string
	key   byte
	life  int
	src   *traceSource
	known bool // the applications of the others named its address
	open  bool // its application goes on, so ACKs may wait
	busy  bool // it was used since its last turn
	ids   int
	fine  int         // operations that succeeded and have no name in the script
	what  []uint64    // see traceFEP.refused
	got   []*tracePkt // received since it last sent
}

// A tracePkt is a packet under way, as it is now.
type tracePkt struct {
	no       int
	from, to *traceNode
	b        []byte
	at       time.Duration // when it arrives
	held     bool
	train    int // number of the first packet of its train
	seg      int
	tos      uint8
	path     int // the local port that it left from
	toPath   int // the port that it goes to
	spdcid   uint16
	psn      wire.PSN // as it is on the wire
	noPSN    bool     // it has no PSN
	what     string   // its first words
}

// A traceSource returns numbers that are far apart, and PDCIDs whose RTO has no jitter
// because their low byte is 128.
type traceSource struct{ n uint64 }

func (s *traceSource) Uint64() uint64 {
	s.n++
	v := uint64(bits.Reverse8(uint8(s.n)))<<8 | 0x80
	return v | v<<16 | v<<32 | v<<48
}

func newTrace(start wire.PSN, seed uint64) *trace {
	return &trace{
		room: make([]byte, 0, dgram.SlabLen), now: time.Second, told: time.Second, start: start, seed: seed, delay: 5 * time.Microsecond, way: map[string]string{},
		ids: map[tracePDCID]string{}, starts: map[tracePDCID]wire.PSN{}, names: map[wire.PSN]string{}, msgs: map[traceMsgID]string{},
	}
}

// block runs one block of a script: a command, and more commands on the lines below it.
func (tr *trace) block(t *testing.T, d *datadriven.TestData, start wire.PSN) string {
	tr.t = t
	tr.out.Reset()
	lines := []string{d.Cmd}
	for _, a := range d.CmdArgs {
		lines[0] += " " + a.Key
		if len(a.Vals) > 0 {
			lines[0] += "=" + strings.Join(a.Vals, ",")
		}
	}
	if d.Input != "" {
		lines = append(lines, strings.Split(d.Input, "\n")...)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		cmd := traceCommands[words[0]]
		if cmd == nil {
			d.Fatalf(t, "no command %q", words[0])
		}
		if err := cmd(tr, words[1:]); err != nil {
			d.Fatalf(t, "Start_PSN %#x: %s: %v", uint32(start), line, err)
		}
	}
	return tr.out.String()
}

// say prints a line, preceded by the time if that is new.
func (tr *trace) say(format string, args ...any) {
	if tr.told != tr.now {
		tr.told = tr.now
		fmt.Fprintf(&tr.out, "@%v\n", tr.now-time.Second)
	}
	fmt.Fprintf(&tr.out, format+"\n", args...)
}

func (tr *trace) node(name string) (*traceNode, error) {
	for _, n := range tr.nodes {
		if n.name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no FEP %q", name)
}

func (tr *trace) at(addr netip.AddrPort) *traceNode {
	for _, n := range slices.Concat(tr.nodes, tr.ghosts) {
		if n.addr.Addr() == addr.Addr() {
			return n
		}
	}
	return nil
}

// traceCommands are the commands of a script.
var traceCommands map[string]func(tr *trace, args []string) error

func init() {
	onNode := func(do func(tr *trace, n *traceNode, args []string) error) func(*trace, []string) error {
		return func(tr *trace, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("which FEP?")
			}
			n, err := tr.node(args[0])
			if err != nil {
				return err
			}
			n.busy = true
			err = do(tr, n, args[1:])
			tr.events(n)
			return err
		}
	}
	onPeer := func(do func(tr *trace, n *traceNode, peer netip.AddrPort)) func(*trace, []string) error {
		return onNode(func(tr *trace, n *traceNode, args []string) error {
			p, err := tr.node(args[0])
			if err == nil {
				do(tr, n, p.addr)
			}
			return err
		})
	}
	onWay := func(what string) func(*trace, []string) error {
		return func(tr *trace, args []string) error {
			for _, w := range args {
				tr.way[w] = what
			}
			return nil
		}
	}
	onPackets := func(do func(tr *trace, p *tracePkt, args []string) error) func(*trace, []string) error {
		return func(tr *trace, args []string) error {
			list, err := tr.packets(args[0])
			for _, p := range list {
				if err == nil {
					err = do(tr, p, args[1:])
				}
			}
			return err
		}
	}
	traceCommands = map[string]func(*trace, []string) error{
		"fep":     (*trace).newFEP,
		"restart": onNode((*trace).restart),
		"send":    onNode(func(tr *trace, n *traceNode, args []string) error { return tr.post(n, args, false) }),
		"recv":    onNode(func(tr *trace, n *traceNode, args []string) error { return tr.post(n, args, true) }),
		"cancel": onNode(func(tr *trace, n *traceNode, args []string) error {
			if !n.fep.cancel(tr.now, args[0]) {
				tr.say("%s  %s is not to be cancelled", n.name, args[0])
			}
			return nil
		}),
		"close":    onNode(func(tr *trace, n *traceNode, _ []string) error { n.fep.close(tr.now); return nil }),
		"end":      onNode(func(tr *trace, n *traceNode, _ []string) error { n.fep.end(tr.now); return nil }),
		"ack_all":  onNode(func(tr *trace, n *traceNode, _ []string) error { n.fep.ackAll(tr.now); return nil }),
		"apart":    onNode(func(tr *trace, n *traceNode, args []string) error { n.fep.apart(true); return nil }),
		"open":     onNode(func(tr *trace, n *traceNode, _ []string) error { n.open = true; return nil }),
		"turn":     onNode(func(tr *trace, n *traceNode, _ []string) error { n.open = false; return nil }),
		"quiesce":  onPeer(func(tr *trace, n *traceNode, a netip.AddrPort) { n.fep.quiesce(tr.now, a) }),
		"forget":   onPeer(func(tr *trace, n *traceNode, a netip.AddrPort) { n.fep.forget(a) }),
		"icmp":     onPeer(func(tr *trace, n *traceNode, a netip.AddrPort) { n.fep.unreachable(tr.now, a) }),
		"know":     onPeer(func(tr *trace, n *traceNode, a netip.AddrPort) { n.fep.peer(a, true) }),
		"load":     onNode(func(tr *trace, n *traceNode, _ []string) error { tr.say("%s  %s", n.name, n.fep.load()); return nil }),
		"counters": onNode((*trace).counters),
		"install": onNode(func(tr *trace, n *traceNode, args []string) error {
			an, key, _, err := traceKey(args)
			return cmp.Or(err, n.fep.install(an, key))
		}),
		"use": onNode(func(tr *trace, n *traceNode, args []string) error {
			an, _, epoch, err := traceKey(args)
			return cmp.Or(err, n.fep.use(tr.now, an, epoch))
		}),
		"revoke": onNode(func(tr *trace, n *traceNode, args []string) error {
			an, _, _, err := traceKey(args)
			n.fep.revoke(an)
			return err
		}),
		"forge":  (*trace).forge,
		"flood":  (*trace).flood,
		"rounds": (*trace).rounds,
		"delay": func(tr *trace, args []string) (err error) {
			tr.delay, err = time.ParseDuration(args[0])
			return err
		},
		"hold": onWay("hold"), "lose": onWay("lose"), "pass": onWay(""),
		"small":   func(tr *trace, args []string) error { tr.way[args[0]] = args[1]; return nil },
		"deliver": (*trace).deliverSome,
		"drop": onPackets(func(tr *trace, p *tracePkt, _ []string) error {
			return tr.land(p)
		}),
		"mark": onPackets(func(tr *trace, p *tracePkt, _ []string) error { p.tos |= dgram.CE; return nil }),
		"cut": onPackets(func(tr *trace, p *tracePkt, args []string) error {
			keep, dscp := 60, uint8(26)
			for _, w := range args {
				if w == "last_hop" {
					dscp = 28
				} else if k, err := strconv.Atoi(w); err == nil {
					keep = k
				}
			}
			p.b, p.tos, p.train = p.b[:min(keep, len(p.b))], dscp<<2|p.tos&3, p.no
			return nil
		}),
		"damage": onPackets(func(tr *trace, p *tracePkt, _ []string) error { p.b[len(p.b)/2] ^= 1; return nil }),
		"again": onPackets(func(tr *trace, p *tracePkt, _ []string) error {
			k := *p
			k.b, k.train = slices.Clone(p.b), p.no
			tr.deliver([]*tracePkt{&k})
			return nil
		}),
		"settle": func(tr *trace, _ []string) error { return tr.exchange() },
		"advance": func(tr *trace, args []string) error {
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return err
			}
			return tr.advance(tr.now+d, false)
		},
		"trains": func(tr *trace, args []string) error {
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return err
			}
			tr.trains = true
			err = tr.advance(tr.now+d, false)
			tr.trains = false
			tr.sayFine()
			return err
		},
		"by_path": (*trace).byPath,
		"brief": func(tr *trace, args []string) error {
			d, err := time.ParseDuration(args[0])
			if err != nil {
				return err
			}
			was := len(tr.all)
			tr.brief = true
			err = tr.advance(tr.now+d, false)
			tr.brief = false
			var kinds []string
			counts := map[string]int{}
			for _, p := range tr.all[was:] {
				to := p.to.name
				if p.to.fep == nil {
					to = "others"
				}
				k := p.from.name + ">" + to + " " + p.what
				if counts[k]++; counts[k] == 1 {
					kinds = append(kinds, k)
				}
			}
			for _, k := range kinds {
				tr.say("%s, %d times", k, counts[k])
			}
			tr.sayFine()
			return err
		},
		"wait": func(tr *trace, args []string) error {
			d := time.Hour
			if len(args) > 0 {
				var err error
				if d, err = time.ParseDuration(args[0]); err != nil {
					return err
				}
			}
			n := tr.out.Len()
			if err := tr.advance(tr.now+d, true); err != nil {
				return err
			}
			if tr.out.Len() == n {
				tr.say("nothing")
			}
			return nil
		},
	}
}

func traceKey(args []string) (an, key byte, epoch uint16, err error) {
	for _, w := range args {
		name, v, _ := strings.Cut(w, "=")
		n, e := strconv.ParseUint(v, 10, 16)
		switch name {
		case "an":
			an = byte(n)
		case "key":
			key = byte(n)
		case "epoch":
			epoch = uint16(n)
		default:
			e = fmt.Errorf("no word %q", name)
		}
		err = cmp.Or(err, e)
	}
	return an, key, epoch, err
}

// newFEP makes FEPs from names, followed by words.
func (tr *trace) newFEP(args []string) error {
	i := 0
	for i < len(args) && strings.ToUpper(args[i]) == args[i] {
		i++
	}
	names, words := args[:i], args[i:]
	for _, name := range names {
		k := len(tr.nodes) + 1
		n := &traceNode{
			name: name, addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(k)}), 4793), known: true,
			src: &traceSource{n: uint64(k-1)*5 + 3*tr.seed},
		}
		for _, w := range words {
			switch name, v, _ := strings.Cut(w, "="); name {
			case "stranger":
				n.known = false
			case "key":
				key, err := strconv.ParseUint(v, 10, 8)
				if err != nil {
					return err
				}
				n.key = byte(key)
			default:
				n.words = append(n.words, w)
			}
		}
		tr.nodes = append(tr.nodes, n)
		if err := tr.boot(n); err != nil {
			return err
		}
		for _, p := range tr.nodes {
			if p != n && n.known {
				p.fep.peer(n.addr, true)
			}
		}
	}
	return nil
}

// boot begins a life of a FEP.
func (tr *trace) boot(n *traceNode) (err error) {
	ssi := uint32(slices.Index(tr.nodes, n) + 1)
	n.fep, err = newTraceFEP(n.addr, n.src, func() wire.PSN { return tr.start }, n.words, n.key, ssi)
	if err != nil {
		return err
	}
	if n.key != 0 {
		if err := cmp.Or(n.fep.install(0, n.key), n.fep.use(tr.now, 0, uint16(100*n.life)+1)); err != nil {
			return err
		}
	}
	for _, p := range tr.nodes {
		if p != n && p.known {
			n.fep.peer(p.addr, true)
		}
	}
	_, n.what = n.fep.refused()
	return nil
}

func (tr *trace) restart(n *traceNode, _ []string) error {
	n.life++
	return tr.boot(n)
}

func (tr *trace) counters(n *traceNode, words []string) error {
	for _, c := range n.fep.counters() {
		if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(c, w) }) {
			tr.say("%s  %s", n.name, c)
		}
	}
	return nil
}

// post posts an operation: send A B 100 tag=7, or recv A 100 from=B.
func (tr *trace) post(n *traceNode, args []string, recv bool) error {
	if times, ok := strings.CutPrefix(args[len(args)-1], "times="); ok {
		k, err := strconv.Atoi(times)
		for i := 0; i < k && err == nil; i++ {
			err = tr.post(n, args[:len(args)-1], recv)
		}
		return err
	}
	p := tracePost{recv: recv, ri: 15}
	if !recv {
		to, err := tr.node(args[0])
		if err != nil {
			return err
		}
		p.to, args = to.addr, args[1:]
	}
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	tr.ops++
	p.context = fmt.Sprintf("op%d", tr.ops)
	for _, w := range args[1:] {
		name, v, _ := strings.Cut(w, "=")
		var err error
		num := func(bits int) (u uint64) {
			u, err = strconv.ParseUint(v, 0, bits)
			return u
		}
		switch name {
		case "as":
			p.context = v
		case "from":
			var from *traceNode
			if from, err = tr.node(v); err == nil {
				p.to = from.addr
			}
		case "tag":
			p.tagged, p.tag = true, num(64)
		case "ignore":
			p.ignore = num(64)
		case "data":
			p.hasData, p.data = true, num(64)
		case "level":
			p.level = v
		case "ordered":
			p.ordered = true
		case "fence":
			p.fence = true
		case "inject":
			p.inject = true
		case "silent":
			p.silent = true
		case "multi":
			p.multi = int(num(31)) + 1
		case "look":
			p.look = v
		case "add", "fetch":
			p.add, p.fetch = true, name == "fetch"
		case "at":
			p.at = num(64)
		case "ri":
			p.ri = uint16(num(12))
		case "pid":
			p.pid = uint16(num(12))
		case "job":
			p.job = uint32(num(24))
		default:
			err = fmt.Errorf("no word %q", name)
		}
		if err != nil {
			return err
		}
	}
	if p.buf = make([]byte, size); !recv {
		for i := range p.buf {
			p.buf[i] = byte(i*7+i>>8) ^ byte(31*tr.ops)
		}
		tr.sent = append(tr.sent, traceMsg{p.context, slices.Clone(p.buf)})
	}
	if err := n.fep.post(tr.now, &p); err != nil {
		tr.say("%s  %s is not posted: %v", n.name, p.context, err)
	}
	return nil
}

// events prints which operations of a FEP ended.
func (tr *trace) events(n *traceNode) {
	for e, ok := n.fep.event(); ok; e, ok = n.fep.event() {
		s := e.context
		if (tr.brief || tr.trains) && e.ok && strings.HasPrefix(s, "op") {
			n.fine++
			continue
		}
		if e.ok {
			s += " ok"
		} else {
			s += " ends: " + e.why
		}
		if e.recv && (e.ok || len(e.buf) > 0 || e.over > 0) {
			s += fmt.Sprintf(", %d bytes", len(e.buf))
			if e.over > 0 {
				s += fmt.Sprintf(" (%d more found no room)", e.over)
			}
			s += tr.whose(e.buf)
			if p := tr.at(e.from); p != nil {
				s += " from " + p.name
			}
			if e.tagged {
				s += fmt.Sprintf(" tag=%#x", e.tag)
			}
			if e.hasData {
				s += fmt.Sprintf(" data=%#x", e.data)
			}
			if e.multi && !e.released {
				s += ", the buffer goes on"
			}
		}
		tr.say("%s  %s", n.name, s)
	}
	words, counts := n.fep.refused()
	var what []string
	for i, c := range counts {
		if d := c - n.what[i]; d == 1 {
			what = append(what, words[i])
		} else if d > 1 {
			what = append(what, fmt.Sprintf("%s (%d)", words[i], d))
		}
	}
	if n.what = counts; what != nil && !tr.brief {
		tr.say("%s  %s", n.name, strings.Join(what, ", "))
	}
}

// whose is the message that begins with these bytes.
func (tr *trace) whose(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	for _, m := range slices.Backward(tr.sent) {
		if bytes.HasPrefix(m.buf, b) {
			return " of " + m.context
		}
	}
	return " THAT NOBODY SENT"
}

// packets returns the packets that a word names: 3, 3-5 or 3,5-7 by their numbers, A>B for
// those under way, A>B:2-3 for some of these.
func (tr *trace) packets(word string) (list []*tracePkt, err error) {
	all := tr.all
	if way, some, ok := strings.Cut(word, ":"); strings.Contains(way, ">") {
		all = nil
		for _, p := range tr.fly {
			if p.from.name+">"+p.to.name == way {
				all = append(all, p)
			}
		}
		if !ok {
			return all, nil
		}
		word = some
	}
	for _, part := range strings.Split(word, ",") {
		a, b, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(a)
		last := first
		if ranged && err == nil {
			last, err = strconv.Atoi(b)
		}
		if err != nil || first < 1 || last > len(all) {
			return nil, fmt.Errorf("no packets %q", word)
		}
		list = append(list, all[first-1:last]...)
	}
	return list, nil
}

// land removes a packet from the network.
func (tr *trace) land(p *tracePkt) error {
	i := slices.Index(tr.fly, p)
	if i < 0 {
		return fmt.Errorf("packet %d is not under way", p.no)
	}
	tr.fly = slices.Delete(tr.fly, i, i+1)
	return nil
}

// deliverSome delivers packets now, in the order named.
func (tr *trace) deliverSome(args []string) error {
	list, err := tr.packets(args[0])
	if err != nil {
		return err
	}
	for _, p := range list {
		if err := tr.land(p); err != nil {
			return err
		}
	}
	tr.deliver(list)
	return nil
}

// deliver passes packets to their FEPs. Packets of one train that are unchanged arrive as a
// train.
func (tr *trace) deliver(list []*tracePkt) {
	for len(list) > 0 {
		p := list[0]
		d := dgram.Datagram{Data: slices.Clone(p.b), Seg: len(p.b), Remote: netip.AddrPortFrom(p.from.addr.Addr(), p.from.addr.Port()+uint16(p.path)), TOS: p.tos, Path: p.toPath}
		n := 1
		for ; n < len(list) && list[n].train == p.train && list[n].no == p.no+n && list[n].tos == p.tos && len(list[n-1].b) == p.seg; n++ {
			d.Data = append(d.Data, list[n].b...)
		}
		all := list
		list = list[n:]
		p.to.got = append(p.to.got, all[:n]...)
		p.to.fep.receive(tr.now, &d)
		p.to.busy = true
		tr.events(p.to)
	}
}

// exchange runs everything that happens now.
func (tr *trace) exchange() error {
	for range 10_000 {
		if !tr.moment() {
			return nil
		}
	}
	return fmt.Errorf("it does not come to rest")
}

func (tr *trace) moment() (some bool) {
	for _, n := range tr.nodes {
		var due []*tracePkt
		for _, p := range tr.fly {
			if p.to == n && !p.held && p.at <= tr.now {
				due = append(due, p)
			}
		}
		for _, p := range due {
			_ = tr.land(p)
		}
		tr.deliver(due)
		if at := n.fep.next(); at != 0 && at <= tr.now {
			n.fep.advance(tr.now)
			n.busy = true
			tr.events(n)
		}
		if !n.busy {
			continue
		}
		some, n.busy = true, false
		tr.leave(n)
		if !n.open {
			n.fep.flush(tr.now)
			tr.leave(n)
		}
		tr.events(n)
	}
	return some
}

// leave lets a FEP send what it may.
func (tr *trace) leave(n *traceNode) {
	d := dgram.Datagram{Data: tr.room}
	defer func() { n.got = nil }()
	for n.fep.transmit(tr.now, &d) {
		to := tr.at(d.Remote)
		if to == nil {
			tr.say("%s  sends to %v", n.name, d.Remote)
			continue
		}
		train := len(tr.all) + 1
		i := 0
		for rest := d.Data; len(rest) > 0; i++ {
			var b []byte
			b, rest = d.Next(rest)
			p := &tracePkt{
				no: len(tr.all) + 1, from: n, to: to, b: slices.Clone(b), at: tr.now + tr.delay, train: train, seg: d.Seg, tos: d.TOS, path: d.Path,
				toPath: int(d.Remote.Port() - to.addr.Port()),
			}
			tr.all = append(tr.all, p)
			tr.fly = append(tr.fly, p)
			head, tail := "  +", ""
			if i == 0 {
				head = n.name + ">" + to.name
			}
			switch tr.way[n.name+">"+to.name] {
			case "hold":
				p.held, tail = true, " (held)"
			case "lose":
				tail = " (lost)"
				_ = tr.land(p)
			case "":
				if to.fep == nil {
					_ = tr.land(p)
				}
			default:
				if tr.large(p) {
					tail = " (lost)"
					_ = tr.land(p)
				}
			}
			text := tr.show(p, n.fep.plain(i))
			p.what = text
			for _, end := range []string{" psn=", " cack_psn=", " probe_opaque=", " clear_psn="} {
				p.what, _, _ = strings.Cut(p.what, end)
			}
			p.what += tail
			if tr.brief || tr.trains {
				continue
			}
			tr.say("%s %d %s%s", head, p.no, text, tail)
		}
		if tr.trains {
			first, last := tr.all[train-1], tr.all[len(tr.all)-1]
			what := fmt.Sprintf("%d %s", first.no, first.what)
			if first != last {
				what = fmt.Sprintf("%d-%d %s … %s", first.no, last.no, first.what, last.what)
			}
			tr.say("%s>%s %s, %d bytes", n.name, to.name, what, len(d.Data))
		}
	}
}

// large reports whether a packet is too large for its way.
func (tr *trace) large(p *tracePkt) bool {
	n, err := strconv.Atoi(tr.way[p.from.name+">"+p.to.name])
	return err == nil && len(p.b) > n
}

// quietly runs do without printing.
func (tr *trace) quietly(do func() error) error {
	n := tr.out.Len()
	err := do()
	was := tr.out.String()[:n]
	tr.out.Reset()
	tr.out.WriteString(was)
	tr.told = 0
	return err
}

// rounds lets two FEPs send each other 64 bytes in turn, each as soon as it has heard the
// other, and prints the result: rounds A B 1000. Neither ends its turn before it has
// answered. Further words are those of the sends.
func (tr *trace) rounds(args []string) error {
	a, err := tr.node(args[0])
	if err != nil {
		return err
	}
	b, err := tr.node(args[1])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	was := len(tr.all)
	err = tr.quietly(func() error {
		for i := range 2 * n {
			to := b
			if i%2 == 1 {
				to = a
			}
			from := a
			if to == a {
				from = b
			}
			if err := cmp.Or(tr.post(to, []string{"64"}, true), tr.post(from, append([]string{to.name, "64"}, args[3:]...), false)); err != nil {
				return err
			}
			to.busy, from.busy = true, true
			if err := tr.advance(tr.now+tr.delay, false); err != nil {
				return err
			}
		}
		return nil
	})
	asked, acks := 0, 0
	for _, p := range tr.all[was:] {
		switch t := wire.Type(p.b[0] >> 3); {
		case t == wire.TypeAckCC:
			acks++
		case t == wire.TypeRUDReq && p.b[1]&byte(wire.FlagAR) != 0:
			asked++
		}
	}
	tr.say("%d messages, %d of them asked for an ACK, %d ACKs", 2*n, asked, acks)
	return err
}

// flood delivers SYN packets from many addresses without a FEP, and counts the answers:
// flood B 1000 data=10.
func (tr *trace) flood(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	to, err := tr.node(args[0])
	if err != nil {
		return err
	}
	was := len(tr.all)
	err = tr.quietly(func() error {
		for range n {
			tr.flooded++
			words := append([]string{fmt.Sprintf("x%d>%s", tr.flooded, to.name), "rud", "syn", "ar", "spdcid=77"}, args[2:]...)
			if err := tr.forge(words); err != nil {
				return err
			}
		}
		return tr.exchange()
	})
	kinds := map[string]int{}
	for _, p := range tr.all[was:] {
		if p.to.fep == nil {
			kinds[p.what]++
		}
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		tr.say("%s answers %d times %s", to.name, kinds[k], k)
	}
	return err
}

// sayFine prints how many operations without a name in the script succeeded.
func (tr *trace) sayFine() {
	for _, n := range tr.nodes {
		if n.fine > 0 {
			tr.say("%s  %d operations ok", n.name, n.fine)
		}
		n.fine = 0
	}
}

// byPath prints how many packets were sent by how many paths since its last call: by_path
// A>B. It does not name the paths, because they are drawn at random.
func (tr *trace) byPath(args []string) error {
	counts := map[int]int{}
	for _, p := range tr.all[tr.pathsTo:] {
		if p.from.name+">"+p.to.name == args[0] {
			counts[p.path]++
		}
	}
	tr.pathsTo = len(tr.all)
	list := slices.Sorted(maps.Values(counts))
	tr.say("%s by %s: %v", args[0], map[bool]string{true: "one path", false: fmt.Sprintf("%d paths", len(list))}[len(list) == 1], list)
	return nil
}

// advance lets time pass until then, or with stop until something happens.
func (tr *trace) advance(until time.Duration, stop bool) error {
	n := tr.out.Len()
	for {
		if err := tr.exchange(); err != nil {
			return err
		}
		if stop && tr.out.Len() > n {
			return nil
		}
		next := until + 1
		for _, p := range tr.fly {
			if !p.held {
				next = min(next, p.at)
			}
		}
		for _, n := range tr.nodes {
			if at := n.fep.next(); at != 0 {
				next = min(next, at)
			}
		}
		if next > until {
			tr.now = until
			return nil
		}
		if next <= tr.now {
			return fmt.Errorf("a timeout of now stays due")
		}
		tr.now = next
	}
}
