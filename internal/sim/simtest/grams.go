package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/uetkit/uetkit/internal/dgram"
	"github.com/uetkit/uetkit/internal/sim"
	"github.com/uetkit/uetkit/internal/tss"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/transport/wire"
)

// Datagrams (UUD). Beside its hosts a scenario may have some whose FEPs have Config.Datagram. Their nodes and lines come behind all
// others, so that those draw as they would without them, and they are configured, and their lines bad, as the others are.
//
// The checkers know from the packets which datagrams arrived. Nothing answers them. In clear each that arrives, also as a copy of the
// network, is for the first receive that accepts it, and for no other. Of sealed ones a life of a host receives each once at most.

// gramStep is the number of the first step of a scenario that is of datagrams.
const gramStep = 1 << 20

// A gramHost is a host with a FEP of datagrams.
type gramHost struct {
	index int
	node  *sim.Node
	fep   gramFEP // nil if it is down
	w     *World
	spec  HostSpec
	cfg   transport.Config
	rng   *rand.Rand
	pool  dgram.Pool
	peers []transport.PeerID
	shut  bool // closed

	// Of this life: open receives in the order of their posts, without those that have a datagram already; and what became of
	// the datagrams that came.
	recvs               []*gramRecv
	came, received      int
	wild, nowhere, late int // damaged or trimmed; without an endpoint or of no use; without a receive
}

// A gramFEP is what the checkers use of a FEP, so that tests of them can put something else there.
type gramFEP interface {
	Peer(addr netip.AddrPort, known bool) (transport.PeerID, error)
	PeerAddr(transport.PeerID) netip.AddrPort
	Post(now time.Duration, op *transport.Op) error
	Cancel(now time.Duration, id transport.EndpointID, context any) bool
	NextEvent() *transport.Event
	Receive(now time.Duration, d *dgram.Datagram)
	Transmit(now time.Duration, d *dgram.Datagram) bool
	Advance(now time.Duration)
	Flush(now time.Duration)
	NextTimeout() time.Duration
	Unreachable(now time.Duration, remote netip.AddrPort)
	Close(now time.Duration)
	Busy() bool
	Idle() bool
	Queued() int
	PDCs() int
	Load() transport.Load
	Stats() transport.Stats
	Dump() string
}

// A gram is a datagram that was posted, or made up by the liar.
type gram struct {
	OpSpec
	id         uint32
	host       *gramHost // nil: the liar
	life       int
	src        netip.AddrPort
	initiator  uint32
	void       bool // made up, and of no use to anybody
	whole, buf []byte
	left       int // how often it was sent
	ended      bool
	cancelled  bool
	lost       bool
	came       []int // by life of its target: copies that came whole
	received   []int // and that were received
}

// A gramRecv is a receive of datagrams.
type gramRecv struct {
	OpSpec
	n          int
	host       *gramHost
	life       int
	whole, buf []byte
	want       *gram // what has come for it; of sealed ones nobody knows
	ended      bool
	cancelled  bool
}

func (g *gram) String() string {
	from := "the liar"
	if g.host != nil {
		from = g.host.node.Name
	}
	return fmt.Sprintf("datagram %d of %s, %d bytes", g.id, from, g.Len)
}

func (r *gramRecv) String() string {
	return fmt.Sprintf("receive %d of datagrams of %s, endpoint %d, %d bytes", r.n, r.host.node.Name, r.From, len(r.buf))
}

// addGrams adds n hosts with datagrams, each like one of the others.
func (w *World) addGrams(n int, lines [][]sim.Faults) {
	w.gramNode, w.gramAt, w.gramSent = map[*sim.Node]*gramHost{}, map[netip.AddrPort]*gramHost{}, map[uint64]*gram{}
	for i := range n {
		like := w.Hosts[i%len(lines)]
		h := &gramHost{index: i, w: w, spec: like.spec, rng: rand.New(rand.NewPCG(w.spec.Seed^0x6772616d, uint64(i)))}
		nc := like.spec.Node
		nc.Addr, nc.Ports = netip.AddrFrom4([4]byte{10, 0, 200, byte(i + 1)}), slices.Clone(like.Node.Ports())
		if w.spec.IPv6 {
			nc.Addr = netip.AddrFrom16([16]byte{0xfd, 14: 200, 15: byte(i + 1)})
		}
		h.node = w.Net.AddNode(fmt.Sprintf("datagrams%d", i), nc)
		w.grams = append(w.grams, h)
		w.gramNode[h.node] = h
		for _, p := range nc.Ports {
			w.gramAt[netip.AddrPortFrom(nc.Addr, p)] = h
		}
	}
	w.gramLines[0] = len(w.Net.Lines())
	for i, a := range w.grams {
		for j, b := range w.grams {
			if i != j {
				w.Net.Route(a.node, b.node, w.Net.NewLine(a.node.Name+">"+b.node.Name, lines[i%len(lines)][j%len(lines)]))
			}
		}
	}
	w.gramLines[1] = len(w.Net.Lines())
	for _, h := range w.grams {
		h.start()
	}
}

// start begins a new life.
func (h *gramHost) start() {
	w := h.w
	cfg := h.spec.Config
	cfg.Local, cfg.Paths, cfg.NoCRC, cfg.Encapsulation, cfg.Born = h.node.Addr(), h.node.Ports(), w.spec.NoCRC, w.spec.Encapsulation, w.Now()
	if cfg.Datagram, cfg.StartPSN = true, nil; cfg.Echo == nil {
		cfg.Echo = func(uint16) bool { return true }
	}
	life := h.node.Life
	if w.spec.Secure != transport.SecureNone {
		cfg.TSS = w.gramDomain(h)
	}
	f, err := transport.New(cfg, rand.New(rand.NewPCG(w.spec.Seed^0x666570, uint64(1000+h.index)<<32|uint64(life))))
	if err != nil {
		panic(fmt.Sprintf("simtest: %v", err))
	}
	for i, e := range h.spec.More {
		if id, err := f.Open(e); err != nil || int(id) != i+1 {
			panic(fmt.Sprintf("simtest: Open gives endpoint %d: %v", id, err))
		}
	}
	f.Apart(h.index&1 != 0)
	h.fep, h.cfg, h.shut = f, f.Config(), false
	h.recvs, h.came, h.received, h.wild, h.nowhere, h.late = nil, 0, 0, 0, 0, 0
	h.peers = nil
	for _, p := range w.grams {
		id, err := f.Peer(p.node.Addr(), true)
		if err != nil {
			panic(fmt.Sprintf("simtest: Peer: %v", err))
		}
		f.PeerPaths(id, wire.PathPortsOf(p.node.Ports()))
		h.peers = append(h.peers, id)
	}
	h.node.Attach(h)
	w.note("%s is up, life %d", h.node.Name, h.node.Life)
}

// gramDomain makes the secure domain of a new life.
func (w *World) gramDomain(h *gramHost) *tss.Domain {
	d, _ := w.newDomain(uint64(1000+h.index)<<32|uint64(h.node.Life), h.node.Addr().Addr())
	return d
}

// endpoint is the name of one of the endpoints.
func (h *gramHost) endpoint(id transport.EndpointID) transport.Identity {
	if id == 0 {
		return h.cfg.Identity
	}
	return h.spec.More[id-1].Identity
}

// Turn is one turn of the driver.
func (h *gramHost) Turn(now time.Duration) {
	d := h.pool.Get()
	for i := 0; i < h.spec.Budget && h.node.Recv(d); i++ {
		h.fep.Receive(now, d)
	}
	h.pool.Put(d)
	if t := h.fep.NextTimeout(); h.spec.Eager || t != 0 && t <= now {
		h.fep.Advance(now)
	}
	h.drive(now)
	h.fep.Flush(now)
	h.drive(now)
}

// Unreachable passes ICMP evidence on to the FEP.
func (h *gramHost) Unreachable(now time.Duration, remote netip.AddrPort) {
	h.fep.Unreachable(now, remote)
	h.drive(now)
}

// drive transmits packets and reads events until there is neither.
func (h *gramHost) drive(now time.Duration) {
	d := h.pool.Get()
	for again, rounds := true, 0; again; rounds++ {
		if rounds > 100_000 {
			panic("simtest: Transmit has always one more datagram")
		}
		if again = h.fep.Transmit(now, d); again {
			h.node.Send(d)
		}
		for e := h.fep.NextEvent(); e != nil; e = h.fep.NextEvent() {
			again = true
			h.event(*e)
		}
	}
	h.pool.Put(d)
	h.node.Timer(h.fep.NextTimeout())
}

// post posts what a step says.
func (h *gramHost) post(s OpSpec) any {
	if h.fep == nil || h.shut || h.node.IsPaused() {
		return nil
	}
	w, now := h.w, h.w.Now()
	mine := transport.EndpointID(len(h.spec.More) + 1)
	s.From, s.To = s.From%mine, s.To%transport.EndpointID(len(w.grams[max(s.Peer, 0)].spec.More)+1)
	op := transport.Op{Kind: s.Kind, Endpoint: s.From, HasData: s.HasData, Inject: s.Inject, Silent: s.Silent}
	if s.Peer != Any {
		op.Peer = h.peers[s.Peer]
	}
	var posted any
	var g *gram
	var r *gramRecv
	if s.send() {
		s.Len = min(s.Len, h.cfg.PayloadMTU)
		s.HasData = s.HasData || s.Len < 8 // so that each can be told
		g = w.newGram(s)
		g.host, g.life, g.src, g.initiator = h, h.node.Life, h.node.Addr(), h.endpoint(s.From).Initiator
		to := w.gramAim(g)
		op.HasData, op.Data, op.PIDonFEP, op.RI, op.Flags, op.Buf, op.Context = s.HasData, uint64(g.id), to.PIDonFEP, to.RI, uint64(g.id)<<8, g.buf, g
		posted = g
	} else {
		r = &gramRecv{OpSpec: s, n: w.gramRecvs + 1, host: h, life: h.node.Life}
		r.whole, r.buf = newBuffer(s.Len)
		op.Flags, op.Buf, op.Context = uint64(r.n)<<8, r.buf, r
		posted = r
	}
	if s.Pieces > 0 {
		op.Iov, op.Buf = split(op.Buf, s.Pieces, h.rng), nil
	}
	switch err := h.fep.Post(now, &op); {
	case errors.Is(err, transport.ErrFull):
		w.note("%s refuses %v: %v", h.node.Name, posted, err)
		if g != nil {
			g.lost = true
		}
		return nil
	case err != nil:
		panic(fmt.Sprintf("simtest: Post: %v", err))
	case g != nil && s.Inject:
		set(g.buf, spent)
	case r != nil:
		w.gramRecvs++
		w.allRecvs = append(w.allRecvs, r)
		h.recvs = append(h.recvs, r)
	}
	w.note("%s posts %v", h.node.Name, posted)
	if h.spec.Lazy > 0 && h.rng.Float64() < h.spec.Lazy {
		h.node.Kick(time.Duration(h.rng.Int64N(int64(h.spec.LazyDelay) + 1)))
		return posted
	}
	h.drive(now)
	return posted
}

// newGram makes a datagram.
func (w *World) newGram(s OpSpec) *gram {
	g := &gram{OpSpec: s, id: uint32(len(w.allGrams) + 1)}
	g.whole, g.buf = newBuffer(s.Len)
	fillPattern(g.buf, g.id, 0)
	w.allGrams = append(w.allGrams, g)
	return g
}

// gramAim is the name of the endpoint that a datagram is for.
func (w *World) gramAim(g *gram) transport.Identity {
	to := w.grams[g.Peer].endpoint(g.To)
	if g.WrongRI {
		to.RI ^= 0x7ff
	}
	return to
}

// gramIs returns the datagram that bytes, or the word with them, are of.
func (w *World) gramIs(b []byte, hasData bool, data uint64) *gram {
	id := uint32(data)
	if !hasData && len(b) >= 8 {
		id, _ = readPattern(b)
	}
	if id == 0 || int(id) > len(w.allGrams) {
		return nil
	}
	return w.allGrams[id-1]
}

// gramLeaves checks a packet of a FEP with datagrams: one packet of UUD for each that was posted, which nothing repeats (S-UUD-01).
func (w *World) gramLeaves(h *gramHost, r *record, p *sim.Packet) {
	var g *gram
	if r.class == classUUD {
		g = w.gramIs(r.payload, r.hasHeader, r.header)
	}
	var to transport.Identity
	if g != nil {
		to = w.gramAim(g)
	}
	why := ""
	switch {
	case g == nil || g.host != h || g.life != h.node.Life:
		why = "nobody posted it"
	case g.left > 0:
		why = "it has left before"
	case g.ended:
		why = "it has ended"
	case p.Dst.Addr() != w.grams[g.Peer].node.Addr().Addr() || r.pid != to.PIDonFEP || r.ri != to.RI || r.initiator != g.initiator:
		why = "it names another endpoint"
	case r.opcode != opGram || !r.som || !r.eom || r.msgID != 0 || int(r.reqLen) != g.Len || r.n != g.Len || r.hasHeader != g.HasData || g.HasData && r.header != uint64(g.id):
		why = "it has another header"
	case checkPattern(r.payload, g.id, 0) != nil:
		why = "it has other bytes"
	case !w.spec.NoCRC && w.ledger.eye == nil && !crcOK(p.Src, p.Dst, p.Data):
		why = "its CRC is wrong"
	case p.TOS&3 == 0:
		why = "it cannot be marked"
	default:
		g.left++
		w.gramSent[p.ID] = g
		return
	}
	w.Failf("%s sends no datagram as it was posted: %s: %v, %s", h.node.Name, why, g, &r.reading)
}

// gramTaken notes a datagram that came, and which receive is to have it.
func (w *World) gramTaken(h *gramHost, p *sim.Packet) {
	h.came++
	g := w.gramSent[p.ID]
	switch {
	case p.Marks&sim.Trimmed != 0 || p.Marks.Damaged() || g == nil:
		h.wild++
		return
	case g.WrongRI || g.void || w.grams[g.Peer] != h:
		h.nowhere++
		return
	}
	for len(g.came) < h.node.Life {
		g.came, g.received = append(g.came, 0), append(g.received, 0)
	}
	if g.came[h.node.Life-1]++; g.came[h.node.Life-1] > 1 {
		w.did.GramCopies++
	}
	if h.cfg.TSS != nil {
		return // a copy may be dropped (T23)
	}
	i := slices.IndexFunc(h.recvs, func(r *gramRecv) bool { return w.takes(r, g) })
	if i < 0 {
		h.late++
		return
	}
	h.recvs[i].want = g
	h.recvs = slices.Delete(h.recvs, i, i+1)
}

// takes reports whether a receive accepts a datagram.
func (w *World) takes(r *gramRecv, g *gram) bool {
	return r.From == g.To && (r.Peer == Any || w.grams[r.Peer].node.Addr() == g.src)
}

// event checks and records the end of an operation.
func (h *gramHost) event(e transport.Event) {
	w, why := h.w, ""
	if o, ok := e.Context.(*gramRecv); ok {
		h.recvEvent(o, &e)
		return
	}
	o := e.Context.(*gram)
	switch {
	case o.host != h || o.life != h.node.Life || e.Endpoint != o.From || e.Kind != transport.OpSend || e.Flags != uint64(o.id)<<8:
		why = "it is not its own"
	case o.ended:
		why = "it is the second"
	case e.Cause == transport.OK && (o.left != 1 || o.Silent || o.cancelled):
		why = "it has not left, or was silent, or cancelled"
	case e.Cause == transport.Cancelled && (o.left != 0 || !o.cancelled && !h.shut):
		why = "it has left, or nobody cancelled it"
	case e.Cause != transport.OK && e.Cause != transport.Cancelled || e.Unknown:
		why = "nothing can fail"
	}
	if why != "" {
		w.Failf("%s: the send of %v ends wrongly, %v: %s", h.node.Name, o, e.Cause, why)
	}
	o.ended = true
	set(o.buf, spent)
	w.Net.Note(uint64(o.id)<<32 | uint64(e.Cause))
}

// recvEvent is event for a receive.
func (h *gramHost) recvEvent(o *gramRecv, e *transport.Event) {
	w, why := h.w, ""
	switch {
	case o.host != h || o.life != h.node.Life || e.Endpoint != o.From || e.Kind != transport.OpRecv || e.Flags != uint64(o.n)<<8:
		why = "it is not its own"
	case o.ended:
		why = "it is the second"
	case e.Cause == transport.Cancelled && o.want != nil:
		why = "it should have a datagram"
	case e.Cause == transport.Cancelled && (!o.cancelled && !h.shut || untouched(o.buf, soil) >= 0):
		why = "nobody cancelled it, or it was written"
	case e.Cause != transport.OK && e.Cause != transport.Truncated && e.Cause != transport.Cancelled:
		why = "nothing can fail"
	}
	if why != "" {
		w.Failf("%s: %v ends wrongly, %v: %s", h.node.Name, o, e.Cause, why)
	}
	if o.ended = true; e.Cause != transport.Cancelled {
		h.gets(o, e)
	}
	w.guardedGram(o.whole)
	set(o.buf, spent)
	w.Net.Note(uint64(o.n)<<32 | uint64(e.Cause)<<24 | uint64(e.Len))
}

// gets checks a datagram that a receive got: its bytes, its source, its endpoint, and that it came as often.
func (h *gramHost) gets(o *gramRecv, e *transport.Event) {
	w, life, most := h.w, h.node.Life-1, 0
	g := w.gramIs(o.buf[:min(e.Len, len(o.buf))], e.HasData, e.Data)
	if g != nil && life < len(g.came) {
		if most = g.came[life]; h.cfg.TSS != nil {
			most = min(most, 1) // T23
		}
	}
	why := ""
	switch {
	case g == nil || g.void || g.WrongRI || w.grams[g.Peer] != h:
		why = "nobody sent it here"
	case !w.takes(o, g):
		why = "it does not accept it"
	case h.cfg.TSS == nil && o.want != g:
		why = fmt.Sprintf("it should have %v", o.want)
	case e.Len != min(g.Len, len(o.buf)) || int(e.OverLen) != g.Len-e.Len || (e.Cause == transport.Truncated) != (e.OverLen > 0):
		why = "its length is wrong"
	case e.HasData != g.HasData || g.HasData && e.Data != uint64(g.id):
		why = "its word is wrong"
	case h.fep.PeerAddr(e.Peer) != g.src || e.Initiator != g.initiator:
		why = "its source is wrong"
	case checkPattern(o.buf[:e.Len], g.id, 0) != nil:
		why = "its bytes are wrong"
	case untouched(o.buf[e.Len:], soil) >= 0:
		why = "bytes behind it were written"
	case most == 0 || g.received[life] == most:
		why = "it is received more often than it came"
	case h.cfg.TSS != nil:
		i := slices.IndexFunc(h.recvs, func(r *gramRecv) bool { return w.takes(r, g) })
		if i < 0 || h.recvs[i] != o {
			why = "a receive that was posted before accepts it"
			break
		}
		h.recvs = slices.Delete(h.recvs, i, i+1)
	}
	if why != "" {
		w.Failf("%s: %v gets the wrong thing, %d bytes of %v: %s", h.node.Name, o, e.Len, g, why)
	}
	g.received[life]++
	h.received++
	if w.did.Grams++; g.host == nil {
		w.gramLies++
	}
}

// guardedGram checks that nothing was written around a buffer.
func (w *World) guardedGram(whole []byte) {
	if !guardsIntact(whole) {
		w.Failf("what is beside the buffer of a datagram was written")
	}
}

// stepGram does what a step of a scenario says.
func (w *World) stepGram(s *Step, posted map[int]any) {
	h := w.grams[s.Host%len(w.grams)]
	switch s.Kind {
	case "post":
		posted[s.N] = h.post(s.Op)
	case "cancel":
		if o := posted[s.Of]; o != nil && h.fep != nil && !h.shut && !h.node.IsPaused() {
			h.cancel(o)
		}
	case "pause":
		h.node.Pause()
	case "resume":
		h.node.Resume()
	case "crash":
		if h.fep != nil {
			h.crash(s.ICMP)
		}
	case "restart":
		if h.fep == nil || h.shut {
			if h.fep != nil {
				h.crash(false)
			}
			h.start()
		}
	case "close":
		if h.fep != nil && !h.shut && !h.node.IsPaused() {
			h.close()
		}
	case "lie":
		w.lieGram(h, s.N)
	}
}

// cancel cancels an operation.
func (h *gramHost) cancel(o any) {
	now, ended := h.w.Now(), false
	from := transport.EndpointID(0)
	mark := func() {}
	switch o := o.(type) {
	case *gram:
		if o.life != h.node.Life {
			return
		}
		from, ended, mark = o.From, o.ended, func() { o.cancelled = true }
	case *gramRecv:
		if o.life != h.node.Life {
			return
		}
		from, ended, mark = o.From, o.ended, func() { o.cancelled = true }
		h.recvs = slices.DeleteFunc(h.recvs, func(r *gramRecv) bool { return r == o })
	}
	found := h.fep.Cancel(now, from, o)
	if _, receive := o.(*gramRecv); found && ended || receive && !found && !ended {
		h.w.Failf("%s: Cancel says %v of %v, of which it is %v that it has ended", h.node.Name, found, o, ended)
	}
	if found {
		mark()
		if _, ok := o.(*gram); ok {
			h.w.did.GramCancels++
		}
	}
	h.drive(now)
}

// crash ends the life without a farewell.
func (h *gramHost) crash(icmp bool) {
	h.w.note("%s crashes", h.node.Name)
	h.audit()
	for _, g := range h.w.allGrams {
		g.lost = g.lost || g.host == h && !g.ended
	}
	h.fep, h.shut = nil, false
	h.node.Crash(icmp)
}

// close closes the FEP: every operation ends now (F27).
func (h *gramHost) close() {
	now := h.w.Now()
	h.w.note("%s closes", h.node.Name)
	h.fep.Close(now)
	h.shut = true
	h.drive(now)
	h.wantEnded()
	h.recvs = nil
}

// wantEnded checks that each operation of this life has ended.
func (h *gramHost) wantEnded() {
	var open any
	for _, g := range h.w.allGrams {
		if g.host == h && g.life == h.node.Life && !g.ended && !g.lost && !(g.Silent && g.left == 1) {
			open = g
		}
	}
	for _, r := range h.w.allRecvs {
		if r.host == h && r.life == h.node.Life && !r.ended {
			open = r
		}
	}
	if open != nil {
		h.w.Failf("%s: the end of %v never came", h.node.Name, open)
	}
}

// restGrams ends what datagrams leave: their receives are cancelled.
func (w *World) restGrams() {
	for _, h := range w.grams {
		if h.fep == nil || h.shut {
			continue
		}
		for _, r := range w.allRecvs {
			if r.host == h && !r.ended {
				h.cancel(r)
			}
		}
		h.wantEnded()
	}
}

// auditGrams checks what is known only at the end of a run.
func (w *World) auditGrams() {
	for _, h := range w.grams {
		if f := h.fep; f != nil {
			h.audit()
			l := f.Load()
			if !f.Idle() || f.Busy() || f.Queued() != 0 || f.PDCs() != 0 || f.NextTimeout() != 0 || l.Sends+l.Recvs+l.Unexpected+l.InFlight+h.pool.Out() != 0 {
				w.Failf("%s: something is left of datagrams: %+v, %d buffers\n%s", h.node.Name, l, h.pool.Out(), f.Dump())
			}
		}
	}
	for _, g := range w.allGrams {
		w.gaveBack(g.whole, g.buf, g.ended)
	}
	for _, r := range w.allRecvs {
		w.gaveBack(r.whole, r.buf, r.ended)
	}
}

// gaveBack checks the buffer of an operation that has perhaps ended.
func (w *World) gaveBack(whole, buf []byte, ended bool) {
	if w.guardedGram(whole); ended && untouched(buf, spent) >= 0 {
		w.Failf("the buffer of a datagram was written late")
	}
}

// audit compares the counters of a life with what came: each datagram was received, or is counted once.
func (h *gramHost) audit() {
	if h.shut {
		return
	}
	st := h.fep.Stats()
	dropped := 0
	for _, n := range st.Drops {
		dropped += int(n)
	}
	counted := int(st.Unwanted+st.Bad) + dropped
	if h.received+counted != h.came || h.cfg.TSS == nil && (int(st.Unwanted) != h.late || int(st.Bad)+dropped != h.nowhere+h.wild) {
		h.w.Failf("%s: %d datagrams came, %d were received, %d found no receive, %d no endpoint, %d damaged; counted are %d unwanted, %d bad, and %d dropped: %v",
			h.node.Name, h.came, h.received, h.late, h.nowhere, h.wild, st.Unwanted, st.Bad, dropped, st.Drops)
	}
}

// datagrams adds hosts with datagrams to a fifth of the scenarios. It draws from random numbers of its own, and its steps have numbers
// of their own, so that seeds keep the rest of their scenarios.
func (g *generator) datagrams() {
	sc := g.sc
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x757564))
	if rng.IntN(5) != 0 {
		return
	}
	sc.Grams = 2 + rng.IntN(3)
	at := func() time.Duration { return time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64()) }
	loud := rng.IntN(sc.Grams)
	for range 10 + rng.IntN(200) {
		from := rng.IntN(sc.Grams)
		if rng.IntN(2) == 0 {
			from = loud
		}
		to := (from + 1 + rng.IntN(sc.Grams-1)) % sc.Grams
		s := OpSpec{Kind: transport.OpSend, Peer: to, From: transport.EndpointID(rng.IntN(12)), To: transport.EndpointID(rng.IntN(12)),
			HasData: rng.IntN(4) == 0, Inject: rng.IntN(6) == 0, Silent: rng.IntN(6) == 0, WrongRI: rng.IntN(40) == 0}
		if s.Len = rng.IntN(1 << rng.IntN(14)); rng.IntN(5) == 0 {
			s.Pieces = 1 + rng.IntN(4)
		}
		when := at()
		id := sc.addGram(Step{At: when, Host: from, Kind: "post", Op: s})
		if rng.IntN(20) == 0 {
			sc.addGram(Step{At: when + time.Duration(rng.IntN(1<<rng.IntN(20))), Host: from, Kind: "cancel", Of: id})
		}
		for range rng.IntN(3) {
			r := OpSpec{Kind: transport.OpRecv, Peer: Any, From: s.To, Len: 8 + rng.IntN(1<<rng.IntN(14))}
			if rng.IntN(4) == 0 {
				r.Peer = from
			}
			if rng.IntN(5) == 0 {
				r.Pieces = 1 + rng.IntN(4)
			}
			when := at()
			if rng.IntN(2) == 0 {
				when = 0
			}
			id := sc.addGram(Step{At: when, Host: to, Kind: "post", Op: r})
			if rng.IntN(20) == 0 {
				sc.addGram(Step{At: when + at(), Host: to, Kind: "cancel", Of: id})
			}
		}
	}
	for i := range sc.Grams {
		when := at()
		switch rng.IntN(5) {
		case 0:
			sc.addGram(Step{At: when, Host: i, Kind: "pause"})
			sc.addGram(Step{At: when + at(), Host: i, Kind: "resume"})
		case 1:
			sc.addGram(Step{At: when, Host: i, Kind: "crash", ICMP: rng.IntN(2) == 0})
			sc.addGram(Step{At: when + at(), Host: i, Kind: "restart"})
		case 2:
			if sc.addGram(Step{At: when, Host: i, Kind: "close"}); rng.IntN(2) == 0 {
				sc.addGram(Step{At: when + at(), Host: i, Kind: "restart"})
			}
		}
	}
	sc.sortGrams()
}

// addGram adds a step of datagrams.
func (sc *Scenario) addGram(s Step) int {
	s.N = gramStep + len(sc.GramSteps)
	sc.GramSteps = append(sc.GramSteps, s)
	return s.N
}

func (sc *Scenario) sortGrams() {
	slices.SortStableFunc(sc.GramSteps, func(a, b Step) int { return int(a.At - b.At) })
}

// lieToGrams has the liar send to the hosts with datagrams, too.
func (sc *Scenario) lieToGrams() {
	if sc.Grams == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(sc.Spec.Seed, 0x6c6975))
	for range 20 + rng.IntN(100) {
		sc.addGram(Step{At: time.Duration(float64(sc.Heal) * rng.Float64() * rng.Float64()), Host: rng.IntN(sc.Grams), Kind: "lie"})
	}
	sc.sortGrams()
}

// lieGram has the liar send a packet to a host with datagrams, by its own name or that of another: a whole one, one that no receive may
// have, or one that is no datagram.
func (w *World) lieGram(h *gramHost, n int) {
	rng := rand.New(rand.NewPCG(w.spec.Seed^0x6c6965, uint64(n)))
	g := w.newGram(OpSpec{Kind: transport.OpSend, Peer: h.index, To: transport.EndpointID(rng.IntN(len(h.spec.More) + 1)), Len: 8 + rng.IntN(1000), HasData: rng.IntN(2) == 0})
	g.lost, g.initiator = true, rng.Uint32()
	switch rng.IntN(4) {
	case 0:
		g.src = w.grams[(h.index+1)%len(w.grams)].node.Addr()
	case 1:
		g.src = netip.AddrPortFrom(w.nobody(), wire.Port)
	default:
		g.src = w.Hosts[len(w.Hosts)-1].Addr()
	}
	to := h.endpoint(g.To)
	r := wire.ReqStd{Opcode: wire.OpDatagramSend, Flags: wire.SESSOM | wire.SESEOM, JobID: to.JobID, PIDonFEP: to.PIDonFEP, RI: to.RI, Initiator: g.initiator, ReqLen: uint32(g.Len)}
	if r.JobID == 0 {
		r.JobID = 1
	}
	if g.HasData {
		r.Flags, r.HeaderData = r.Flags|wire.SESHD, uint64(g.id)
	}
	b, data := wire.UUDHdr{Next: wire.NextReqStd}.Append(nil), g.buf
	switch g.void = true; rng.IntN(12) {
	case 0:
		r.Opcode = pick(rng, []wire.Opcode{wire.OpNoOp, wire.OpWrite, wire.OpRead, wire.OpAtomic, wire.OpTaggedSend, wire.OpDeferrableSend, wire.OpRendezvousSend, wire.OpMsgError})
	case 1:
		r.Flags &^= pick(rng, []wire.SESFlags{wire.SESSOM, wire.SESEOM})
	case 2:
		r.ReqLen = uint32(g.Len) + 1 + rng.Uint32N(1<<20)
	case 3:
		r.RI ^= 0x7ff
	case 4:
		r.PIDonFEP ^= 0x7ff
	case 5:
		r.JobID = 77
	case 6:
		b = wire.UUDHdr{Next: wire.NextRspData}.Append(nil)
	case 7:
		b = (&wire.Req{Type: wire.TypeRUDReq, Next: wire.NextReqStd, Flags: wire.FlagSYN | wire.FlagAR, PSN: wire.PSN(rng.Uint32()), SPDCID: 1, ClearOff: -1}).Append(nil)
	case 8:
		b = wire.RUDIHdr{Type: wire.TypeRUDIReq, Next: wire.NextReqStd, PktID: rng.Uint32()}.Append(nil)
	default:
		g.void = false
	}
	b = append(r.Append(b), data...)
	if g.void && rng.IntN(6) == 0 {
		b = b[:rng.IntN(wire.UUDLen+wire.ReqStdLen)]
	}
	dst := h.node.Addr()
	if rng.IntN(8) == 0 { // to a FEP that has none
		dst = w.Hosts[rng.IntN(len(w.Hosts)-1)].Addr()
	}
	if !w.spec.NoCRC {
		c := crcOf(g.src, dst, b)
		b = append(b, byte(c>>24), byte(c>>16), byte(c>>8), byte(c))
	}
	w.liedGram = g
	w.forgerNode().Inject(g.src, dst, b, dgram.ECT0)
	w.liedGram = nil
}
