package mp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

// Who is dead
//
// A send tells when its peer is gone, a receive does not: it asks nothing of anybody. So a rank
// that waits for another, and hears nothing for a while, reads a byte of its memory, which the
// peer's provider answers without the program. When a rank finds another dead it tells all.

const (
	// pingAfter is how long a receive waits before its source is asked for a sign of life, and
	// pingEvery how often then. Of receives from any source, pingBatch ranks are asked at a time.
	pingAfter = time.Second
	pingEvery = time.Second
	pingBatch = 8
)

// ofPeer reports whether an error of the provider says that a peer is gone.
func (w *World) ofPeer(e fi.Errno) bool {
	switch e {
	case fi.ETIMEDOUT, fi.EHOSTUNREACH, fi.ECONNREFUSED, fi.ECONNABORTED, fi.ESHUTDOWN, fi.EKEYREJECTED:
		return !w.closed.Load()
	}
	return false
}

// lost notes that the transport found a rank dead, and tells the others.
func (w *World) lost(rank int, err fi.Errno, why string) error {
	if !w.ofPeer(err) { // it lives, and waits for what does not come
		w.whisper(rank, appendDead(nil, w.rank, hostname(), fmt.Sprintf("a message to rank %d failed: %v", rank, err)))
	}
	f, first := w.dead(rank, "", fmt.Sprintf("%v (%s)", err, why), err, false)
	if first {
		w.tell(-1, func(b []byte) []byte { return appendDead(b, rank, f.Host, f.Why) })
	}
	return f
}

// dead ends all that waits for a rank. first says that nobody knew before. left says that the
// rank closed its world in order: whoever waits for it alone waits in vain, but a receive from
// any source does not, nor does a collective to which it has given its part.
func (w *World) dead(rank int, host, why string, err error, left bool) (f *ErrPeerFailed, first bool) {
	p := &w.peers[rank]
	w.mu.Lock()
	defer w.unlock()
	if p.host != "" {
		host = p.host
	}
	f = &ErrPeerFailed{Rank: rank, Host: host, Why: why, Err: err}
	if !p.failed.CompareAndSwap(nil, f) {
		return p.failed.Load(), false
	}
	if !left {
		p.died.Store(true)
		w.deaths.Add(1)
	}
	for r := p.queue.first; r != nil; r = p.queue.first {
		w.cancelLocked(r, f)
	}
	for r := w.recvs; r != nil; {
		next := r.next
		if r.c != nil && (r.peer == int32(rank) || !left && (r.peer == AnySource || r.ordered) && r.c.has(int32(rank))) {
			w.cancelLocked(r, f)
		}
		r = next
	}
	w.kick()
	return f, true
}

// gone returns why a wait for a source is in vain.
func (c *Comm) gone(src int) error {
	if src == AnySource {
		return nil
	}
	if f := c.w.peers[c.global(src)].failed.Load(); f != nil {
		return f
	}
	return nil
}

// member returns a dead rank of the communicator. One that left may have given its part before.
func (c *Comm) member() error {
	for i := range c.size {
		if p := &c.w.peers[c.global(i)]; p.died.Load() {
			return p.failed.Load()
		}
	}
	return nil
}

// tick asks the peers for which receives wait, from time to time, and ranks that are late in a
// collective. The caller drives.
func (w *World) tick() {
	now := w.now()
	if now-w.drv.ticked < tickEvery {
		return
	}
	w.drv.ticked = now
	w.letGo(now)
	var ask [pingBatch]int
	n := 0
	w.mu.Lock()
	for r := w.recvs; r != nil && n < len(ask); r = r.next {
		if r.c == nil || now-r.since < pingAfter {
			continue
		}
		if r.peer >= 0 {
			n = w.due(ask[:], n, int(r.peer), now)
			continue
		}
		n = w.dueOf(r.c, ask[:], n, now)
	}
	w.mu.Unlock()
	for _, rank := range ask[:n] {
		w.ping(rank)
	}
	w.askLate(now)
}

// due notes a rank that is to be asked, unless that was done lately.
func (w *World) due(ask []int, n, rank int, now time.Duration) int {
	p := &w.peers[rank]
	if n == len(ask) || rank == w.rank || p.pinging || p.failed.Load() != nil || p.pinged != 0 && now-p.pinged < pingEvery {
		return n
	}
	p.pinging, p.pinged = true, now
	ask[n] = rank
	return n + 1
}

// awaits asks the ranks that a probe waits for.
func (w *World) awaits(c *Comm, src int) {
	var ask [pingBatch]int
	n := 0
	now := w.now()
	w.mu.Lock()
	if src == AnySource {
		n = w.dueOf(c, ask[:], n, now)
	} else {
		n = w.due(ask[:], n, int(c.global(src)), now)
	}
	w.mu.Unlock()
	for _, rank := range ask[:n] {
		w.ping(rank)
	}
}

// dueOf notes the ranks of a communicator that are to be asked. One that this rank never spoke
// with may have left without a word to it.
func (w *World) dueOf(c *Comm, ask []int, n int, now time.Duration) int {
	for i := 0; i < c.size && n < len(ask); i++ {
		if g := int(c.global(i)); w.peers[g].known.Load() || w.peers[g].heard.Load() {
			n = w.due(ask, n, g, now)
		}
	}
	return n
}

// ping reads a byte of a peer.
func (w *World) ping(rank int) {
	r := w.newRequest(1)
	r.kind, r.peer = opPing, int32(rank)
	to, err := w.reach(rank)
	if err == nil {
		err = w.ep.Read(r.mem[:1], to, 0, pingKey, r)
	}
	if err != nil { // no room: at the next tick
		w.mu.Lock()
		w.peers[rank].pinging = false
		w.mu.Unlock()
		r.free()
	}
}

// pinged deals with the answer of a ping.
func (w *World) pinged(r *request, e *cq.Error) {
	rank := int(r.peer)
	w.mu.Lock()
	w.peers[rank].pinging = false
	w.mu.Unlock()
	r.free()
	if e != nil && w.ofPeer(e.Err) {
		_ = w.lost(rank, e.Err, w.cq.StrError(e.Prov))
	}
}

// Control messages
//
// They are untagged, so they are never among those of the program. The first byte says what
// one is. A rank reads them when it is in a call of mp.

const (
	ctlDead   = iota + 1 // a rank is dead
	ctlBroken            // collectives on a communicator are not possible any more
	ctlLate              // a rank waits in a collective for this one
	ctlBye               // a rank closes its world; all that it sent came before
	ctlUnlike            // a rank got a message of a collective that is not like its own
)

// listen posts a buffer for control messages.
func (w *World) listen(r *request) error {
	r.kind = opControl
	return w.ep.Recv(r.mem[:controlLen], fi.AddrUnspec, r)
}

// control deals with a control message and posts its buffer again.
func (w *World) control(r *request, n int) {
	m := slices.Clone(r.mem[:n])
	if err := w.listen(r); err != nil {
		r.free() // the endpoint closes
	}
	w.heard(m)
}

// heard deals with what a control message says.
func (w *World) heard(m []byte) {
	if len(m) == 0 || w.closed.Load() && m[0] != ctlBye && m[0] != ctlUnlike {
		return
	}
	switch body := m[1:]; m[0] {
	case ctlDead:
		w.heardDead(body)
	case ctlBroken:
		w.heardBroken(body)
	case ctlLate:
		w.heardLate(body)
	case ctlUnlike:
		w.heardUnlike(body)
	case ctlBye:
		if len(body) >= byeLen {
			if rank := int(binary.LittleEndian.Uint32(body)); rank < w.size && rank != w.rank {
				w.left(rank, binary.LittleEndian.Uint64(body[4:]), binary.LittleEndian.Uint64(body[12:]))
			}
		}
	}
}

// byeLen is how many bytes a rank that leaves says: its number, how many messages it has received of the one that
// hears it, and how many it has sent to it.
const byeLen = 20

// A leaver is a rank that closed its world while sends to it were open.
type leaver struct {
	rank int
	at   time.Duration
}

// left notes that a rank closed its world, and what it says of the messages.
func (w *World) left(rank int, got, sent uint64) {
	p := &w.peers[rank]
	w.mu.Lock()
	if p.failed.Load() == nil {
		p.theyGot, p.theySent = got, sent
		w.leavers = append(w.leavers, leaver{rank, w.now()})
	}
	w.mu.Unlock()
	w.dead(rank, "", "it closed its world", nil, true)
}

// tookAll reports whether a rank has left and had received all that was sent to it. A send that has not ended lacks
// its ACK.
func (p *peer) tookAll() bool {
	return p.failed.Load() != nil && !p.died.Load() && p.theyGot == p.sent.Load()
}

// letGo gives up what is under way to ranks that left a moment ago and had received all, so that sends whose ACK was lost need not
// wait for PeerTimeout. It waits until nothing of the rank is to be received here any more: that would be lost, too.
func (w *World) letGo(now time.Duration) {
	w.mu.Lock()
	var gone []fi.Addr
	keep := w.leavers[:0]
	for _, l := range w.leavers {
		p := &w.peers[l.rank]
		switch {
		case !p.known.Load() || p.died.Load():
		case now-l.at < leftEvery || !p.tookAll() || p.got.Load() != p.theySent:
			keep = append(keep, l)
		default:
			gone = append(gone, p.addr)
		}
	}
	w.leavers = keep
	w.mu.Unlock()
	for _, to := range gone {
		_ = w.ep.Abandon(to) // fi.EBADF: the endpoint is closed
	}
}

// bye tells the ranks that this one spoke with that it leaves.
func (w *World) bye() {
	for w.poke() { // who has left does not want to know
	}
	for rank := range w.peers {
		if p := &w.peers[rank]; p.known.Load() || p.heard.Load() {
			m := binary.LittleEndian.AppendUint32([]byte{ctlBye}, uint32(w.rank))
			m = binary.LittleEndian.AppendUint64(m, p.got.Load())
			w.whisper(rank, binary.LittleEndian.AppendUint64(m, p.sent.Load()))
		}
	}
}

// whisper sends one control message, or loses it if there is no room.
func (w *World) whisper(rank int, m []byte) {
	to, err := w.reach(rank)
	if err != nil || w.peers[rank].failed.Load() != nil || rank == w.rank {
		return
	}
	if len(m) > controlLen {
		m = m[:controlLen]
	}
	// Its failure tells that the peer is dead.
	r := w.newRequest(len(m))
	r.kind, r.peer, r.detached = opSend, int32(rank), true
	r.buf = r.mem[:copy(r.mem, m)]
	w.copied.Add(int64(len(m)))
	err = w.ep.Send(r.buf, to, r)
	for i := 0; errors.Is(err, fi.EAGAIN) && i < 100; i++ {
		w.poke()
		err = w.ep.Send(r.buf, to, r)
	}
	if err != nil {
		w.drop(r)
	}
}

// tell sends a control message to all ranks but one, or only to those of a communicator.
func (w *World) tell(but int, fill func([]byte) []byte) {
	m := fill(make([]byte, 0, controlLen))
	for rank := range w.size {
		if rank != but && w.peers[rank].known.Load() {
			w.whisper(rank, m)
		}
	}
	for rank := range w.size { // whoever was never spoken to may wait for the same rank
		if rank != but && !w.peers[rank].known.Load() {
			w.whisper(rank, m)
		}
	}
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), 160)]
	return append(append(b, byte(len(s))), s...)
}

// text cuts a text off.
func text(b []byte) (string, []byte, bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

func appendDead(b []byte, rank int, host, why string) []byte {
	b = binary.LittleEndian.AppendUint32(append(b, ctlDead), uint32(rank))
	return appendText(appendText(b, host), why)
}

// heardDead notes that another rank found a rank dead. It tells a few others, in case the one
// that found it dies while it tells.
func (w *World) heardDead(b []byte) {
	if len(b) < 4 {
		return
	}
	rank := int(binary.LittleEndian.Uint32(b))
	host, b, ok := text(b[4:])
	why, _, ok2 := text(b)
	if !ok || !ok2 || rank >= w.size || rank == w.rank {
		return
	}
	f, first := w.dead(rank, host, why, nil, false)
	if !first {
		return
	}
	m := appendDead(nil, rank, f.Host, why)
	for k := 1; k < w.size; k <<= 1 {
		if to := w.rank ^ k; to < w.size {
			w.whisper(to, m)
		}
	}
}
