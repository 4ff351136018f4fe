package ses_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uetkit/uetkit/transport/wire"
)

// This file has the commands of the traces. testdata/README.md lists them for readers.
var commands map[string]func(*world, *args)

func init() {
	commands = map[string]func(*world, *args){
		"endpoint": (*world).endpoint,
		"send":     func(w *world, a *args) { w.send(a, false) },
		"tsend":    func(w *world, a *args) { w.send(a, true) },
		"write":    func(w *world, a *args) { w.sendRMA(a) },
		"region":   (*world).region,
		"remove":   (*world).remove,
		"bytes":    (*world).bytes,
		"recv":     func(w *world, a *args) { w.recv(a, false, "") },
		"trecv":    func(w *world, a *args) { w.recv(a, true, "") },
		"peek":     func(w *world, a *args) { w.recv(a, true, "peek") },
		"claim":    func(w *world, a *args) { w.recv(a, true, "claim") },
		"leave":    (*world).leaves,
		"deliver":  (*world).deliver,
		"drop":     (*world).drop,
		"cack":     (*world).cack,
		"answer":   (*world).answer,
		"codes":    (*world).codes,
		"result":   (*world).result,
		"request":  (*world).request,
		"hex":      (*world).hex,
		"fail":     (*world).fail,
		"giveup":   (*world).giveUp,
		"break":    (*world).breakOff,
		"abandon":  (*world).abandon,
		"cancel":   (*world).cancel,
		"peergone": (*world).peerGone,
		"pdcgone":  (*world).pdcGone,
		"proven":   func(w *world, a *args) { w.party(a).proven(w.named(a.str("peer", "")).num) },
		"close":    func(w *world, a *args) { w.party(a).closeAll() },
		"shut":     func(w *world, a *args) { w.party(a).end() },
		"advance":  (*world).advance,
		"room":     func(w *world, a *args) { w.party(a).room = a.pos() == "yes" },
		"state":    func(w *world, a *args) { w.state(w.party(a)) },
		"counts":   (*world).counts,
		"left":     (*world).left,
	}
}

// args are the arguments of a command: words, then names with values.
type args struct {
	t     *testing.T
	where string
	words []string
	vals  map[string]string
}

func newArgs(t *testing.T, where string, cmdArgs []datadriven.CmdArg) *args {
	a := &args{t: t, where: where, vals: map[string]string{}}
	for _, c := range cmdArgs {
		if len(c.Vals) == 0 {
			a.words = append(a.words, c.Key)
		} else {
			a.vals[c.Key] = strings.Join(c.Vals, ",")
		}
	}
	return a
}

// pos removes and returns the next word.
func (a *args) pos() string {
	if len(a.words) == 0 {
		a.t.Fatalf("%s: a word is missing", a.where)
	}
	s := a.words[0]
	a.words = a.words[1:]
	return s
}

// has removes a word, wherever it stands, and reports whether it was there.
func (a *args) has(word string) bool {
	i := slices.Index(a.words, word)
	if i >= 0 {
		a.words = slices.Delete(a.words, i, i+1)
	}
	return i >= 0
}

func (a *args) str(key, def string) string {
	if v, ok := a.vals[key]; ok {
		delete(a.vals, key)
		return v
	}
	return def
}

func (a *args) num(key string, def uint64) uint64 {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	n, err := strconv.ParseUint(v, 0, 64)
	if err != nil {
		a.t.Fatalf("%s: %s=%s is no number", a.where, key, v)
	}
	return n
}

func (a *args) dur(key string, def time.Duration) time.Duration {
	v := a.str(key, "")
	if v == "" {
		return def
	}
	if v == "never" {
		return -1
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.t.Fatalf("%s: %v", a.where, err)
	}
	return d
}

func (a *args) allUsed() {
	if len(a.words) > 0 || len(a.vals) > 0 {
		a.t.Fatalf("%s: what is %v %v?", a.where, a.words, a.vals)
	}
}

// party removes and returns the name of an endpoint.
func (w *world) party(a *args) *endpoint { return w.named(a.pos()) }

func (w *world) named(name string) *endpoint {
	e := w.parties[name]
	if e == nil {
		w.t.Fatalf("no endpoint %q", name)
	}
	return e
}

// own removes and returns the name of an endpoint and of an operation of it.
func (w *world) own(a *args) *operation {
	e, name := w.party(a), a.pos()
	o := w.ops[name]
	if o == nil || o.at != e {
		w.t.Fatalf("%s: %s has no operation %q", a.where, e.name, name)
	}
	return o
}

func (w *world) endpoint(a *args) {
	n := uint32(len(w.order) + 1)
	e := &endpoint{name: a.pos(), num: n, msgs: map[handle]*operation{}, pdcs: map[string]uint32{}}
	share, err := strconv.ParseFloat(a.str("share", "0"), 64)
	if err != nil {
		w.t.Fatal(err)
	}
	e.partyConfig = partyConfig{
		job: uint32(a.num("job", 7)), pid: uint16(a.num("pid", uint64(n))), ri: uint16(a.num("ri", 15)), initiator: uint32(a.num("initiator", uint64(100+n))),
		mtu: int(a.num("mtu", 1024)), sends: int(a.num("sends", 0)), recvs: int(a.num("recvs", 0)),
		unexpectedBytes: int64(a.num("unexpected_bytes", 0)), unexpectedMsgs: int(a.num("unexpected_msgs", 0)), open: int(a.num("open", 0)), share: share,
		maxMessage: uint32(a.num("max", 0)), refuseTooLong: a.has("refuse_too_long"), rnr: a.dur("rnr", 0), idle: a.dur("idle", -1),
	}
	e.party = newParty(&e.partyConfig)
	e.advance(w.now)
	w.parties[e.name] = e
	w.order = append(w.order, e)
}

// post posts an operation and prints if it is not accepted.
func (w *world) post(o *operation) bool {
	if w.ops[o.name] != nil {
		w.t.Fatalf("%s: there is one already", o.name)
	}
	h, err := o.at.post(w.now, o)
	if err != nil {
		w.printf("%s: %s", o.at.name, errorWords(err))
		return false
	}
	o.handle = h
	w.ops[o.name] = o
	w.posts = append(w.posts, o)
	return true
}

func (w *world) send(a *args, tagged bool) { w.sendAs(a, posting{tagged: tagged}) }

// sendRMA posts a write.
func (w *world) sendRMA(a *args) {
	w.sendAs(a, posting{rma: true, key: a.num("key", 0), addr: a.num("addr", 0)})
}

func (w *world) sendAs(a *args, kind posting) {
	o := &operation{at: w.party(a), name: a.pos(), to: w.named(a.str("to", "")), pdc: a.str("pdc", "")}
	n := int(a.num("len", 0))
	_, hasData := a.vals["data"]
	o.posting = posting{
		tagged: kind.tagged, rma: kind.rma, key: kind.key, addr: kind.addr, peer: o.to.num, job: uint32(a.num("job", uint64(o.to.job))), pid: uint16(a.num("pid", uint64(o.to.pid))), ri: uint16(a.num("ri", uint64(o.to.ri))),
		absolute: a.has("absolute"), tag: a.num("tag", 0), data: a.num("data", 0), hasData: hasData, inject: a.has("inject"), ordered: a.has("rod"),
		fence: a.has("fence"), visible: a.has("visible"), silent: a.has("silent"), level: a.str("level", ""),
	}
	o.bytes = pattern(o.name, n)
	o.buf, o.iov = inParts(bytes.Clone(o.bytes), int(a.num("parts", 1)))
	leave, _ := strconv.Atoi(a.str("leave", "-1"))
	if !w.post(o) {
		return
	}
	o.at.msgs[o.handle] = o
	if o.inject {
		clear(o.buf) // the caller may use it again
		for _, v := range o.iov {
			clear(v)
		}
	}
	if o.at.fenced(o) {
		w.printf("%s: %s waits behind a fence", o.at.name, o.name)
		return
	}
	w.leave(o, leave)
}

// inParts cuts b into n slices, or leaves it whole if n is 1.
func inParts(b []byte, n int) (whole []byte, parts [][]byte) {
	if n == 1 {
		return b, nil
	}
	size := (len(b) + n - 1) / n
	for range n {
		k := min(size, len(b))
		parts = append(parts, b[:k:k])
		b = b[k:]
	}
	return nil, parts
}

func (w *world) recv(a *args, tagged bool, look string) {
	o := &operation{at: w.party(a), name: a.pos()}
	if look == "claim" {
		o = w.ops[o.name] // the peek has the context that the claim needs
		delete(w.ops, o.name)
		o.ended = false
	}
	for _, l := range []string{"claim", "discard"} {
		if look != "" && a.has(l) {
			look += " and " + l
		}
	}
	o.posting = posting{
		recv: true, tagged: tagged, initiator: uint32(a.num("initiator", 0)), tag: a.num("tag", 0), ignore: a.num("ignore", 0),
		multi: a.has("multi"), minFree: int(a.num("min", 0)), look: look,
	}
	if from := a.str("from", ""); from != "" {
		o.peer = w.named(from).num
	}
	o.memory = bytes.Repeat([]byte{0xee}, int(a.num("len", 0)))
	o.buf, o.iov = inParts(o.memory, int(a.num("parts", 1)))
	w.post(o)
}

func (w *world) leaves(a *args) {
	o := w.own(a)
	before := len(w.packets)
	w.leave(o, int(int64(a.num("n", 1<<62))))
	if len(w.packets) == before {
		w.printf("%s: nothing of %s is left to send", o.at.name, o.name)
	}
}

// underway is a packet that has not been executed, or the response to it: re1 is that to p1.
func (w *world) underway(a *args, name string) (p *packet, response bool) {
	num, response := strings.CutPrefix(name, "re")
	if response {
		name = "p" + num
	}
	p = w.packets[name]
	if p == nil || p.done || p.arrived != response {
		w.t.Fatalf("%s: %q is not under way", a.where, name)
	}
	return p, response
}

func (w *world) deliver(a *args) {
	later, unproven, behind := a.has("later"), a.has("unproven"), int(a.num("behind", 0))
	for len(a.words) > 0 {
		p, response := w.underway(a, a.pos())
		if response {
			p.done = true
			if p.handle != 0 {
				p.from.answered(p.handle, p.rsp)
			}
		} else {
			w.arrive(p, &source{later: later, unproven: unproven, behind: behind})
		}
		w.drain()
	}
}

// arrive gives a packet to its target, and puts the response under way.
func (w *world) arrive(p *packet, s *source) {
	way := p.from.name + "/" + p.pdc
	if p.to.pdcs[way] == 0 {
		p.to.pdcs[way] = uint32(len(p.to.pdcs) + 1)
	}
	s.peer, s.pdc, s.now = p.from.num, p.to.pdcs[way], w.now
	b := bytes.Clone(p.b)
	rsp, guaranteed, nack, why := p.to.request(s, p.next, b)
	for i := range b {
		b[i] = 0xa5 // it was borrowed
	}
	switch {
	case why != "":
		p.done = true
		w.printf("%s: %s dropped: %s", p.to.name, p.name, why)
	case nack != 0:
		w.printf("%s: NACK %v for %s", p.to.name, nack, p.name)
	default:
		p.arrived, p.stored = true, guaranteed
		p.rsp = &rsp
		w.printf("%s %s->%s %s", responseName(p), p.to.name, p.from.name, w.rspText(p, &rsp, guaranteed))
		if p.handle == 0 {
			p.done = true
		}
	}
}

func responseName(p *packet) string { return "re" + strings.TrimPrefix(p.name, "p") }

// drop loses packets and responses, and then does what PDS does.
func (w *world) drop(a *args) {
	for len(a.words) > 0 {
		p, response := w.underway(a, a.pos())
		switch {
		case !response:
			p.b = p.from.again(p.handle, p.piece)
			w.printf("%s %s", p.name, w.text(p))
		case p.stored:
			w.printf("%s is stored and comes again", responseName(p))
		default:
			p.rsp = &wire.Rsp{Opcode: wire.RspDefault, RC: wire.RCNull, MsgID: p.rsp.MsgID}
			w.printf("%s %s->%s %v %v", responseName(p), p.to.name, p.from.name, p.rsp.Opcode, p.rsp.RC)
		}
	}
}

// cack makes a CACK cover packets: they get the default response.
func (w *world) cack(a *args) {
	for len(a.words) > 0 {
		p, _ := w.underway(a, a.pos())
		p.done = true
		p.from.answered(p.handle, nil)
		w.drain()
	}
}

// rspOf returns the response that a script describes.
func (w *world) rspOf(a *args, rsp wire.Rsp) *wire.Rsp {
	rsp.Opcode = wire.RspOpcode(w.code(a, "op", "DEFAULT_RESPONSE", 64, func(n int) string { return wire.RspOpcode(n).String() }))
	rsp.RC = wire.RC(w.code(a, "rc", "OK", 64, func(n int) string { return wire.RC(n).String() }))
	if l := a.str("list", ""); l == "OVERFLOW" {
		rsp.List = wire.ListOverflow
	} else if l != "" {
		rsp.List = wire.List(l[0] - '0')
	}
	rsp.Gen, rsp.ModLen = uint8(a.num("gen", 0)), uint32(a.num("modified", uint64(rsp.ModLen)))
	rsp.MsgID = uint16(a.num("msg", uint64(rsp.MsgID)))
	return &rsp
}

// code returns a number given by name or value.
func (w *world) code(a *args, key, def string, below int, name func(int) string) int {
	v := a.str(key, def)
	for n := range below {
		if name(n) == v {
			return n
		}
	}
	n, err := strconv.ParseUint(v, 0, 8)
	if err != nil {
		w.t.Fatalf("%s: %s=%s names nothing", a.where, key, v)
	}
	return int(n)
}

// answer gives a packet the response that the script describes, in place of its target.
func (w *world) answer(a *args) {
	p, _ := w.underway(a, a.pos())
	r, _, err := wire.ParseReqStd(p.b)
	if err != nil {
		w.t.Fatal(err)
	}
	rsp := w.rspOf(a, wire.Rsp{MsgID: r.MsgID, JobID: r.JobID})
	w.printf("%s %s->%s %s", responseName(p), p.to.name, p.from.name, w.rspText(p, rsp, false))
	p.done = true
	p.from.answered(p.handle, rsp)
}

// codes posts a message of one packet for each return code, has it answered with that, and
// prints only how it ended.
func (w *world) codes(a *args) {
	from, to := w.party(a), w.named(a.str("to", ""))
	for _, rc := range strings.Split(a.str("rc", ""), ",") {
		before := w.out.String()
		o := &operation{at: from, to: to, name: rc, bytes: pattern(rc, 8)}
		o.posting = posting{peer: to.num, job: to.job, pid: to.pid, ri: to.ri, buf: o.bytes}
		w.post(o)
		w.leave(o, 1)
		p := w.packets[fmt.Sprintf("p%d", len(w.packets))]
		p.done = true
		p.from.answered(p.handle, w.rspOf(&args{t: w.t, vals: map[string]string{"op": "RESPONSE", "rc": rc}}, wire.Rsp{MsgID: o.ids[0], JobID: to.job}))
		w.out.Reset()
		w.out.WriteString(before)
		w.drain()
	}
}

// result is a response that comes after its packet was answered.
func (w *world) result(a *args) {
	at, from := w.party(a), w.named(a.str("from", ""))
	var id uint16
	if m := a.str("for", ""); m != "" {
		o := w.ops[m]
		id = o.ids[len(o.ids)-1]
	}
	a.vals["op"] = a.str("op", "RESPONSE")
	if !at.response(from.num, w.rspOf(a, wire.Rsp{MsgID: id})) {
		w.printf("%s: no message waits for it", at.name)
	}
}

func (w *world) fail(a *args) {
	cause, nack := strings.ReplaceAll(a.str("cause", ""), "_", " "), wire.NackCode(a.num("nack", 0))
	for len(a.words) > 0 {
		p := w.packets[a.pos()]
		if p == nil || p.done {
			w.t.Fatalf("%s: it is not under way", a.where)
		}
		p.done = true
		p.from.failed(p.handle, cause, nack)
		w.drain()
	}
}

func (w *world) giveUp(a *args) {
	p, _ := w.underway(a, a.pos())
	p.done = true
	if pc, ok := p.from.giveUp(p.handle, p.piece, wire.NackCode(a.num("nack", 9))); ok {
		q := *p
		q.done, q.piece, q.b = false, pc, p.from.again(p.handle, pc)
		w.launch(&q)
	}
}

func (w *world) breakOff(a *args) {
	o := w.own(a)
	o.at.broken(o.handle, strings.ReplaceAll(a.str("cause", ""), "_", " "), wire.NackCode(a.num("nack", 0)))
}

func (w *world) abandon(a *args) {
	o := w.own(a)
	o.at.abandon(o.handle, strings.ReplaceAll(a.str("cause", ""), "_", " "))
}

func (w *world) cancel(a *args) {
	o := w.own(a)
	if !o.at.cancel(o) {
		w.printf("%s: %s cannot be cancelled", o.at.name, o.name)
	}
}

func (w *world) peerGone(a *args) {
	w.party(a).peerGone(w.named(a.str("peer", "")).num, strings.ReplaceAll(a.str("cause", ""), "_", " "))
}

func (w *world) pdcGone(a *args) {
	e := w.party(a)
	n := e.pdcs[a.str("peer", "")+"/"+a.str("pdc", "")]
	if n == 0 {
		w.t.Fatalf("%s: no such PDC", a.where)
	}
	e.pdcGone(n, strings.ReplaceAll(a.str("cause", ""), "_", " "))
}

func (w *world) advance(a *args) {
	d, err := time.ParseDuration(a.pos())
	if err != nil {
		w.t.Fatal(err)
	}
	// In steps, as a driver does, because idle messages are looked for from time to time.
	for end := w.now + d; w.now < end; {
		w.now = min(w.now+max(d/64, time.Millisecond), end)
		for _, e := range w.order {
			e.advance(w.now)
		}
		w.drain()
	}
}

// state prints what an endpoint has not ended.
func (w *world) state(e *endpoint) {
	sends, recvs, unexpected, open := e.pending()
	for _, s := range sends {
		w.printf("%s: %s %s", e.name, s.op.name, s.stage)
	}
	for _, r := range recvs {
		switch {
		case r.message:
			w.printf("%s: %s has %d of %d bytes", e.name, r.op.name, r.got, r.length)
		case r.starved:
			w.printf("%s: %s waits for room for an event", e.name, r.op.name)
		default:
			w.printf("%s: %s waits for a message", e.name, r.op.name)
		}
	}
	for k, l := range unexpected {
		for _, m := range l {
			tag := ""
			if k == 1 {
				tag = fmt.Sprintf(", tag %#x", m.tag)
			}
			w.printf("%s: unexpected, %d bytes%s, from %s", e.name, m.length, tag, w.byNum(m.peer).name)
		}
	}
	if open > 0 {
		w.printf("%s: messages in progress: %d", e.name, open)
	}
	if len(sends)+len(recvs)+len(unexpected[0])+len(unexpected[1])+open == 0 {
		w.printf("%s: nothing", e.name)
	}
}

func (w *world) counts(a *args) {
	e := w.party(a)
	for _, c := range e.counts() {
		if c.n > 0 {
			w.printf("%s: %s: %d", e.name, c.what, c.n)
		}
	}
}

// left prints what has not ended, in all endpoints and between them.
func (w *world) left(*args) {
	before := w.out.Len()
	for i := range len(w.packets) {
		p := w.packets[fmt.Sprintf("p%d", i+1)]
		switch {
		case p.done:
		case p.arrived:
			w.printf("under way: %s", responseName(p))
		default:
			w.printf("under way: %s", p.name)
		}
	}
	for _, e := range w.order {
		sends, recvs, unexpected, open := e.pending()
		if len(sends)+len(recvs)+len(unexpected[0])+len(unexpected[1])+open > 0 {
			w.state(e)
			continue
		}
		for _, o := range w.posts {
			if o.at == e && !o.ended && !o.silent {
				w.t.Fatalf("%s has no end, and %s knows nothing of it", o.name, e.name)
			}
		}
	}
	if w.out.Len() == before {
		w.printf("nothing")
	}
}

func (w *world) hex(a *args) {
	p := w.packets[a.pos()]
	b := p.b[:min(len(p.b), int(a.num("n", wire.ReqStdLen)))]
	for len(b) > 0 {
		n := min(len(b), 16)
		w.printf("% x", b[:n])
		b = b[n:]
	}
}

// request makes a request packet that no endpoint would make.
func (w *world) request(a *args) {
	p := &packet{from: w.named(a.str("from", "")), to: w.named(a.str("to", "")), pdc: a.str("pdc", ""), ordered: a.has("rod"), next: wire.NextReqStd}
	form := a.str("form", "std")
	name := a.str("name", "")
	opcode := wire.Opcode(w.code(a, "op", "SEND", 64, func(n int) string { return wire.Opcode(n).String() }))
	var flags wire.SESFlags
	for _, f := range strings.Split(a.str("flags", "REL+EOM+SOM"), "+") {
		i := slices.Index([]string{"SOM", "EOM", "HD", "REL", "IE", "DC"}, f)
		if i < 0 && f != "-" {
			w.t.Fatalf("%s: no flag %s", a.where, f)
		}
		if i >= 0 {
			flags |= 1 << i
		}
	}
	length, off := a.num("len", 0), a.num("offset", 0)
	payload := a.num("payload", length)
	r := wire.ReqStd{
		Opcode: opcode, Flags: flags, Gen: uint8(a.num("gen", 0)), MsgID: uint16(a.num("msg", 1000)), PIDonFEP: uint16(a.num("pid", uint64(p.to.pid))),
		RI: uint16(a.num("ri", uint64(p.to.ri))), JobID: uint32(a.num("job", uint64(p.to.job))), Initiator: uint32(a.num("initiator", uint64(p.from.initiator))),
		BufOff: a.num("buffer_offset", a.num("addr", 0)), Match: a.num("tag", a.num("key", 0)), HeaderData: a.num("data", 0), MsgOff: uint32(off), ReqLen: uint32(length), PayloadLen: uint16(payload),
	}
	body := w.rawMessage(p, name, int(max(length, off+payload)))
	switch form {
	case "std":
		if flags&wire.SESSOM != 0 {
			r.MsgOff, r.PayloadLen = 0, 0
		}
		p.b = r.Append(nil)
	case "medium":
		p.next = wire.NextReqMedium
		m := wire.ReqMedium{Opcode: r.Opcode, Flags: r.Flags, Gen: r.Gen, ReqLen: uint16(length), PIDonFEP: r.PIDonFEP, RI: r.RI, JobID: r.JobID,
			Initiator: r.Initiator, BufOff: r.BufOff, HeaderData: r.HeaderData, Match: r.Match}
		p.b = m.Append(nil)
	case "small":
		p.next = wire.NextReqSmall
		m := wire.ReqSmall{Opcode: r.Opcode, Flags: r.Flags, Gen: r.Gen, ReqLen: uint16(length), PIDonFEP: r.PIDonFEP, RI: r.RI, JobID: r.JobID, BufOff: r.BufOff}
		p.b = m.Append(nil)
	case "response":
		p.next = wire.NextRsp
		p.b = (&wire.Rsp{}).Append(nil)
	default:
		w.t.Fatalf("%s: no form %s", a.where, form)
	}
	if end := int(off + payload); end <= len(body) {
		p.b = append(p.b, body[off:end]...)
	} else {
		p.b = append(p.b, make([]byte, payload)...)
	}
	p.b[1] |= byte(a.num("version", 0)) << 6
	p.b = p.b[:int(a.num("cut", uint64(len(p.b))))]
	w.launch(p)
}

// rawMessage is the message to which packets with a name belong, so that its bytes are known
// where they arrive.
func (w *world) rawMessage(p *packet, name string, n int) []byte {
	if name == "" {
		return pattern("", n)
	}
	o := w.ops[name]
	if o == nil {
		o = &operation{name: name, at: p.from, to: p.to, ended: true, bytes: pattern(name, n)}
		w.ops[name] = o
		w.posts = append(w.posts, o)
	}
	return o.bytes
}
