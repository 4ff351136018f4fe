package mp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/uetkit/uetkit/fi"
)

// Kind is a collective.
type Kind uint8

// The collectives.
const (
	KindBarrier Kind = iota + 1
	KindBcast
	KindReduce
	KindAllreduce
	KindGather
	KindGatherv
	KindScatter
	KindScatterv
	KindAllgather
	KindAllgatherv
	KindAlltoall
	KindAlltoallv
	KindReduceScatter
	KindScan
	KindSplit
	KindExscan
	kinds
)

var kindNames = [kinds]string{
	"none", "Barrier", "Bcast", "Reduce", "Allreduce", "Gather", "Gatherv", "Scatter", "Scatterv", "Allgather", "Allgatherv",
	"Alltoall", "Alltoallv", "ReduceScatter", "Scan", "Split", "Exscan",
}

func (k Kind) String() string {
	if k >= kinds {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kindNames[k]
}

// A CallSite is one rank's call of a collective.
type CallSite struct {
	Rank  int    // in the communicator
	Seq   uint32 // the how manieth collective on the communicator
	Kind  Kind
	Type  string // of the elements; empty if there are none
	Count int    // elements of a block; -1 if the ranks may differ
	Root  int    // -1 if there is none
	// Nonblocking says that the call only began it, as Ibarrier does.
	Nonblocking bool
	// Algorithm was chosen from size and count.
	Algorithm Algorithm
	Site      string // file:line of the program
}

func (s CallSite) String() string {
	if s.Kind == 0 {
		return fmt.Sprintf("rank %d is in another, number %d", s.Rank, s.Seq)
	}
	var b strings.Builder
	name := s.Kind.String()
	if s.Nonblocking {
		name = "I" + strings.ToLower(name[:1]) + name[1:]
	}
	fmt.Fprintf(&b, "rank %d is in %s", s.Rank, name)
	if s.Type != "" {
		b.WriteString(" of")
		if s.Count >= 0 {
			fmt.Fprintf(&b, " %d", s.Count)
		}
		b.WriteString(" " + s.Type)
	}
	if s.Root >= 0 {
		fmt.Fprintf(&b, ", root %d", s.Root)
	}
	if s.Algorithm != 0 {
		fmt.Fprintf(&b, ", by %v", s.Algorithm)
	}
	fmt.Fprintf(&b, ", number %d", s.Seq)
	if s.Site != "" {
		b.WriteString(", at " + s.Site)
	}
	return b.String()
}

// An ErrMismatch says that two ranks are in collectives that do not fit together. All ranks of
// the communicator get it, from this collective or the next.
type ErrMismatch struct {
	A, B CallSite
}

func (e *ErrMismatch) Error() string {
	return fmt.Sprintf("mp: collectives do not match: %v; %v", e.A, e.B)
}

// An ErrLeft says that a rank left a collective, by its context or by an error of its own, so
// that collectives on the communicator are not possible any more.
type ErrLeft struct {
	At  CallSite
	Why string
	Err error // at the rank that left
}

// Unwrap returns why this rank left.
func (e *ErrLeft) Unwrap() error { return e.Err }

func (e *ErrLeft) Error() string {
	return fmt.Sprintf("mp: a collective was left: %v: %s", e.At, e.Why)
}

// A header says what a rank is in. 80 bytes: seq 4, kind 1, type 1, algorithm 1, nonblocking 1,
// root 4, count 8, rank 4, site 1 and 55. A message of a collective has its mark, see markOf.
const (
	headLen = 80
	siteMax = headLen - 25
	siteAt  = 24
	// sameAt is how many bytes two headers have in common if their calls match.
	sameAt = 20
)

// coll is the state of the collectives of a communicator.
type coll struct {
	// These belong to who is in a collective, that is has Comm.mu.
	sends   []*request // those that need the buffer of the program
	recvs   []*request // those that were posted ahead
	taken   int        // how many of them have been taken
	scratch [3][]uint64
	parts   int           // messages that were sent
	begun   int           // nonblocking collectives
	shown   [kinds]uint16 // algorithms of which Config.Debug was told
	pcs     [1]uintptr

	mu   sync.Mutex // guards what follows
	seq  uint32
	mark uint64           // of the current collective; only who is in it reads
	last [8][headLen]byte // the latest calls, by seq
	idle []*Comm          // of nonblocking collectives that have ended
	away int              // messages that those sent
}

// head returns the header of the current collective. Only who is in it calls.
func (c *Comm) head() *[headLen]byte { return &c.coll.last[c.coll.seq%8] }

// enter begins a collective: it checks that collectives are possible and notes what this one
// is. Its caller is called by the program.
func (c *Comm) enter(kind Kind, t elem, count, root int, a Algorithm) error {
	return c.begin(4, kind, t, count, root, a, false)
}

// begin is enter. The program's call is so many frames away.
func (c *Comm) begin(frames int, kind Kind, t elem, count, root int, a Algorithm, nonblocking bool) error {
	if err := c.usable(); err != nil {
		return err
	}
	if root < -1 || root >= c.size {
		return c.badRank(kind.String(), root)
	}
	if !c.mu.TryLock() {
		return ErrBusy
	}
	err := c.collectives()
	if err != nil {
		c.mu.Unlock()
		return err
	}
	k := &c.coll
	runtime.Callers(frames, k.pcs[:])
	site := siteOf(k.pcs[0])
	k.mu.Lock()
	k.seq++
	h := c.head()
	binary.LittleEndian.PutUint32(h[0:], k.seq)
	h[4], h[5], h[6], h[7] = byte(kind), byte(t), byte(a), flag(nonblocking)
	binary.LittleEndian.PutUint32(h[8:], uint32(int32(root)))
	binary.LittleEndian.PutUint64(h[12:], uint64(int64(count)))
	binary.LittleEndian.PutUint32(h[20:], uint32(c.rank))
	h[siteAt] = byte(copy(h[siteAt+1:], site))
	k.mark = markOf(h)
	k.mu.Unlock()
	if out := c.w.cfg.Debug; out != nil && a != 0 && c.rank == 0 && k.shown[kind]&(1<<a) == 0 {
		k.shown[kind] |= 1 << a
		fmt.Fprintf(out, "mp coll: %v\n", siteFrom(h[:]))
	}
	return nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// collectives returns why no collective is possible.
func (c *Comm) collectives() error {
	if e := c.broken.Load(); e != nil {
		return *e
	}
	if c.w.deaths.Load() > 0 {
		return c.member()
	}
	return nil
}

// leave ends a collective.
func (c *Comm) leave(ctx context.Context, err error) error {
	for _, r := range c.coll.recvs[c.coll.taken:] {
		c.w.takeBack(r, err)
		_, _ = r.take()
	}
	clear(c.coll.recvs)
	c.coll.recvs, c.coll.taken = c.coll.recvs[:0], 0
	for _, r := range c.coll.sends {
		if err == nil {
			_, err = r.wait(ctx)
			continue
		}
		if !r.done.Load() {
			c.w.takeBack(r, err)
		}
		_, _ = r.take()
	}
	clear(c.coll.sends)
	c.coll.sends = c.coll.sends[:0]
	if err != nil {
		c.breakUp(err)
		err = *c.broken.Load() // all get the first
	}
	c.mu.Unlock()
	return err
}

// piece is the k-th piece of a part that is longer than the provider takes in one message, nil
// beyond the last. An empty part has one piece.
func (c *Comm) piece(p []byte, k int) []byte {
	n := c.w.most
	if k*n >= len(p) {
		return p[len(p):]
	}
	return p[k*n : min((k+1)*n, len(p))]
}

// pieces is how many messages a part takes.
func (c *Comm) pieces(p []byte) int {
	n := c.w.most
	return max(1, (len(p)+n-1)/n)
}

// put sends a part of a collective to a rank.
func (c *Comm) put(dst int, p []byte) error {
	for k := range c.pieces(p) {
		if err := c.putPiece(dst, c.piece(p, k)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comm) putPiece(dst int, p []byte) error {
	w := c.w
	eager := len(p) <= eagerMax && w.copied.Load() < aheadMax
	n := 0
	if eager {
		n = len(p)
	}
	r := w.newRequest(n)
	r.kind, r.c, r.peer, r.flags, r.status = opSend, c, c.global(dst), fi.RemoteCQData, Status{}
	r.msg.Tag, r.msg.Data = wireTag(c.id, c.rank, kindColl, c.stream), c.coll.mark
	if eager {
		r.buf, r.detached = r.mem[:copy(r.mem, p)], true
		w.copied.Add(int64(n))
	} else {
		r.buf = p
	}
	if err := w.start(r); err != nil {
		w.drop(r)
		return err
	}
	c.coll.parts++
	if !eager {
		c.coll.sends = append(c.coll.sends, r)
	}
	return nil
}

// expect posts the receive of the next part of a rank.
func (c *Comm) expect(src int, p []byte) (*request, error) { return c.postRecv(src, kindColl, p) }

// postRecv posts a receive that ends with the collective.
func (c *Comm) postRecv(src, kind int, p []byte) (*request, error) {
	r := c.w.newRequest(0)
	r.kind, r.c, r.peer, r.ordered, r.buf, r.room = opRecv, c, c.global(src), true, p, len(p)
	r.msg.Tag, r.msg.Ignore = match(c.id, src, kind, c.stream)
	if err := c.w.receive(r); err != nil {
		r.free()
		return nil, err
	}
	if err := c.collectives(); err != nil {
		c.w.cancel(r, err) // it broke before the receive was listed
	}
	return r, nil
}

// got waits for a part and checks that its sender is in the same collective.
func (c *Comm) got(ctx context.Context, r *request) error {
	if !r.done.Load() {
		if err := c.w.wait(ctx, until{one: r}); err != nil {
			c.w.takeBack(r, err)
		}
	}
	want, src, mark := r.room, r.status.Source, r.mark
	st, err := r.take()
	switch {
	case err != nil && !errors.As(err, new(*ErrTruncated)):
		return err
	case mark != c.coll.mark:
		return c.mismatch(ctx, src, mark, 0, 0)
	case st.Len != want: // of slices whose lengths the ranks do not know from each other
		return c.mismatch(ctx, src, mark, want, st.Len)
	}
	return nil
}

// get receives a part of a collective.
func (c *Comm) get(ctx context.Context, src int, p []byte) error {
	for k := range c.pieces(p) {
		r, err := c.expect(src, c.piece(p, k))
		if err == nil {
			err = c.got(ctx, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await posts the receive of a part, so that it comes where it belongs however early it is sent.
// What is awaited must be taken in the order in which it was awaited.
func (c *Comm) await(src int, p []byte) error {
	for k := range c.pieces(p) {
		r, err := c.expect(src, c.piece(p, k))
		if err != nil {
			return err
		}
		c.coll.recvs = append(c.coll.recvs, r)
	}
	return nil
}

// awaited takes the next part that was awaited.
func (c *Comm) awaited(ctx context.Context, p []byte) error {
	for range c.pieces(p) {
		r := c.coll.recvs[c.coll.taken]
		c.coll.taken++
		if err := c.got(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// swap sends a part to one rank and receives one from another.
func (c *Comm) swap(ctx context.Context, dst int, out []byte, src int, in []byte) error {
	sends, recvs := c.pieces(out), c.pieces(in)
	for k := range max(sends, recvs) {
		var r *request
		var err error
		if k < recvs {
			if r, err = c.expect(src, c.piece(in, k)); err != nil {
				return err
			}
		}
		if k < sends {
			err = c.putPiece(dst, c.piece(out, k))
		}
		switch {
		case r == nil:
		case err == nil:
			err = c.got(ctx, r)
		default:
			c.w.takeBack(r, err)
			_, _ = r.take()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// breakUp ends collectives on the communicator at all of its ranks.
func (c *Comm) breakUp(err error) {
	if !errors.As(err, new(*ErrMismatch)) && !errors.As(err, new(*ErrPeerFailed)) && !errors.As(err, new(*ErrLeft)) {
		c.coll.mu.Lock()
		err = &ErrLeft{siteFrom(c.head()[:]), err.Error(), err}
		c.coll.mu.Unlock()
	}
	if !c.breakHere(err) {
		return
	}
	m := c.brokenBy(err)
	for i := range c.size {
		c.w.whisper(int(c.global(i)), m)
	}
}

// breakHere ends them at this rank. It reports whether they were possible until now.
func (c *Comm) breakHere(err error) bool {
	if !c.broken.CompareAndSwap(nil, &err) {
		return false
	}
	w := c.w
	w.mu.Lock()
	for r := w.recvs; r != nil; {
		next := r.next
		if r.ordered && r.c.broken == c.broken {
			w.cancelLocked(r, err)
		}
		r = next
	}
	w.unlock()
	return true
}

// What a notice of a broken communicator says.
const (
	brokenMismatch = iota + 1
	brokenDead
	brokenLeft
)

// brokenBy writes the notice of an error.
func (c *Comm) brokenBy(err error) []byte {
	b := c.control(ctlBroken)
	var mis *ErrMismatch
	var dead *ErrPeerFailed
	var left *ErrLeft
	switch {
	case errors.As(err, &mis):
		return mis.B.append(mis.A.append(append(b, brokenMismatch)))
	case errors.As(err, &dead):
		b = binary.LittleEndian.AppendUint32(append(b, brokenDead), uint32(dead.Rank))
		return appendText(appendText(b, dead.Host), dead.Why)
	case errors.As(err, &left):
		return appendText(left.At.append(append(b, brokenLeft)), left.Why)
	}
	panic("BUG: mp: a communicator broke by " + err.Error())
}

// tellBroken tells why collectives broke, for the last time: a rank that has not heard it yet from
// the one that found out must not hear first that this one left.
func (w *World) tellBroken() {
	w.mu.Lock()
	comms := slices.Collect(maps.Values(w.comms))
	w.mu.Unlock()
	for _, c := range comms {
		if err := c.broken.Load(); err != nil {
			m := c.brokenBy(*err)
			for i := range c.size {
				rank := c.global(i)
				if p := &w.peers[rank]; p.known.Load() || p.heard.Load() {
					w.whisper(int(rank), m)
				}
			}
		}
	}
}

// control begins a control message about the communicator: its number and the rank of this
// process in the world.
func (c *Comm) control(kind byte) []byte {
	b := append(make([]byte, 0, controlLen), kind)
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, c.id), uint32(c.w.rank))
}

// about finds the communicator of a control message. Its number may have been given to another
// one in the meantime, so the sender must be in it.
func (w *World) about(b []byte) (*Comm, []byte) {
	if len(b) < 8 {
		return nil, nil
	}
	w.mu.Lock()
	c := w.comms[binary.LittleEndian.Uint32(b)]
	w.mu.Unlock()
	if c == nil || !c.has(int32(binary.LittleEndian.Uint32(b[4:]))) {
		return nil, nil
	}
	return c, b[8:]
}

// heardBroken deals with the notice of another rank.
func (w *World) heardBroken(b []byte) {
	c, b := w.about(b)
	if c == nil || len(b) == 0 {
		return
	}
	why := b[0]
	b = b[1:]
	switch {
	case why == brokenMismatch && len(b) >= 2*headLen:
		c.breakHere(&ErrMismatch{siteFrom(b[:headLen]), siteFrom(b[headLen:])})
	case why == brokenDead && len(b) >= 4:
		w.heardDead(b)
		rank := int(binary.LittleEndian.Uint32(b))
		if rank < w.size {
			if f := w.peers[rank].failed.Load(); f != nil {
				c.breakHere(f)
			}
		}
	case why == brokenLeft && len(b) >= headLen:
		if s, _, ok := text(b[headLen:]); ok {
			c.breakHere(&ErrLeft{siteFrom(b[:headLen]), s, nil})
		}
	}
}

// append writes a call as its header.
func (s CallSite) append(b []byte) []byte {
	var h [headLen]byte
	binary.LittleEndian.PutUint32(h[0:], s.Seq)
	h[4], h[5], h[6], h[7] = byte(s.Kind), byte(elemOf(s.Type)), byte(s.Algorithm), flag(s.Nonblocking)
	binary.LittleEndian.PutUint32(h[8:], uint32(int32(s.Root)))
	binary.LittleEndian.PutUint64(h[12:], uint64(int64(s.Count)))
	binary.LittleEndian.PutUint32(h[20:], uint32(s.Rank))
	h[siteAt] = byte(copy(h[siteAt+1:], s.Site))
	return append(b, h[:]...)
}

// siteFrom reads a header.
func siteFrom(h []byte) CallSite {
	n := min(int(h[siteAt]), siteMax)
	return CallSite{
		Seq: binary.LittleEndian.Uint32(h), Kind: Kind(h[4]), Type: elem(h[5]).String(), Algorithm: Algorithm(h[6]), Nonblocking: h[7] != 0,
		Root: int(int32(binary.LittleEndian.Uint32(h[8:]))), Count: int(int64(binary.LittleEndian.Uint64(h[12:]))),
		Rank: int(int32(binary.LittleEndian.Uint32(h[20:]))), Site: string(h[siteAt+1 : siteAt+1+n]),
	}
}

var sites sync.Map // of uintptr to string

// siteOf names a line of the program, by the last part of its path.
func siteOf(pc uintptr) string {
	if s, ok := sites.Load(pc); ok {
		return s.(string)
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	file := f.File
	if i := strings.LastIndexByte(file, '/'); i >= 0 {
		if k := strings.LastIndexByte(file[:i], '/'); k >= 0 {
			file = file[k+1:]
		}
	}
	s := file + ":" + strconv.Itoa(f.Line)
	if len(s) > siteMax {
		s = s[len(s)-siteMax:]
	}
	sites.Store(pc, s)
	return s
}
