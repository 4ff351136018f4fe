package boot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Where no launcher keeps values, the ranks meet at a root: rank 0 listens on TCP, the others
// come to it and stay connected until they finalize. They speak in lines, too:
//
//	cmd=join version=1 job=… size=8 rank=3 id=… host=… card=…
//	                       cmd=wait missing=5,7       at once, and each second until all are there
//	                       cmd=ready                  all are there
//	                       cmd=missing missing=5,7    the time is up
//	                       cmd=refuse kind=… why=…
//	cmd=get rank=5         cmd=card rank=5 card=…
//	cmd=finalize           cmd=bye
//	cmd=abort code=3 why=… cmd=abort code=3 rank=3 host=… why=…, to all others
//
// Job, id, host, card and why are base64url. The id is random: a process that lost its
// connection and comes again is not taken for a second one with its rank.
//
// All of it is in clear and a root believes whom it hears: it belongs on a network where all
// may join that can reach it. What the root guards against is accidents.

const (
	rootVersion = 1
	rootLine    = 64 << 10         // the longest line, which has a card in it
	helloTime   = 10 * time.Second // how long a connection may take to say who it is
	writeTime   = 10 * time.Second // how long a line may take to leave
	strangers   = 64               // connections beyond those of the ranks
	maxNamed    = 1000             // how many missing ranks a line names
	maxNotes    = 16               // how many that were turned away or left an error names
)

type rootState int

const (
	collecting rootState = iota
	complete
	gaveUp
)

// A root is rank 0's end.
type root struct {
	w    *World
	addr string
	job  string
	host string
	log  *logger
	tick time.Duration
	ln   net.Listener
	wg   sync.WaitGroup

	mu    sync.Mutex // guards what follows
	state rootState
	conns map[net.Conn]bool
	peers []*peer // by rank, nil: not there
	cards [][]byte
	here  int           // ranks that are there, this one among them once it has put its card
	ready chan struct{} // closed when all are there
	left  chan struct{} // gets one when a peer has left, if there is room
	notes []string      // for MissingError
}

// A peer is a rank at the root.
type peer struct {
	rank int
	id   string
	host string
	conn net.Conn
	gone bool       // it has left; under the root's lock
	mu   sync.Mutex // one line at a time
}

func (p *peer) write(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := p.conn.Write([]byte(line + "\n")); err != nil {
		p.conn.Close() // its reader sees that
	}
}

func listenRoot(ctx context.Context, f *finder, c *claim, w *World) (service, error) {
	r := &root{
		w: w, addr: c.root, job: c.job, host: f.net.host, log: f.log, tick: f.net.tick,
		conns: map[net.Conn]bool{}, peers: make([]*peer, c.size), cards: make([][]byte, c.size),
		ready: make(chan struct{}), left: make(chan struct{}, 1),
	}
	var err error
	for _, addr := range listenAddrs(c.root) {
		if r.ln, err = f.net.listen(ctx, addr); err == nil || !errors.Is(err, syscall.EADDRNOTAVAIL) {
			break
		}
	}
	if err != nil {
		why := "rank 0 cannot listen"
		if errors.Is(err, syscall.EADDRINUSE) {
			why += ", another process does already (torchrun's own store is one): set MP_ROOT"
		}
		return nil, &RootError{Addr: c.root, Why: why, Err: err}
	}
	f.log.printf("rank 0 listens on %s", r.ln.Addr())
	r.wg.Go(r.accept)
	return r, nil
}

// listenAddrs returns where to listen for a root, in the order to try. A name may lead to
// an address that this host does not have itself, so only an address that was given is
// taken, and loopback by name.
func listenAddrs(addr string) []string {
	host, port, _ := net.SplitHostPort(addr)
	if net.ParseIP(host) != nil || host == "localhost" {
		return []string{addr, ":" + port}
	}
	return []string{":" + port}
}

func (r *root) accept() {
	for {
		conn, err := r.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			r.log.printf("rank 0 cannot accept: %v", err)
			time.Sleep(10 * time.Millisecond) // no descriptors: some will be free again
			continue
		}
		r.mu.Lock()
		full := r.conns == nil || len(r.conns) >= len(r.peers)+strangers
		if !full {
			r.conns[conn] = true
		}
		r.mu.Unlock()
		if full {
			conn.Close()
			continue
		}
		r.wg.Go(func() {
			r.serve(conn)
			conn.Close()
			r.mu.Lock()
			delete(r.conns, conn)
			r.mu.Unlock()
		})
	}
}

// serve has the conversation of one connection.
func (r *root) serve(conn net.Conn) {
	rd := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(helloTime))
	line, err := readLine(rd, rootLine)
	var f fields
	if err == nil {
		f, err = parseLine(line)
	}
	if err == nil && f["cmd"] != "join" {
		err = fmt.Errorf("it began with %q", clip(f["cmd"]))
	}
	if err != nil {
		r.log.printf("a stranger from %s: %v", conn.RemoteAddr(), err)
		return
	}
	conn.SetReadDeadline(time.Time{})
	p := &peer{id: f["id"], host: clip(f.text("host")), conn: conn}
	if kind, why := r.join(p, f); kind != "" {
		r.log.printf("turned away %s from %s: %s", p.host, conn.RemoteAddr(), why)
		p.write(fmt.Sprintf("cmd=refuse kind=%s why=%s", kind, encode([]byte(why))))
		return
	}
	finalized := r.listen(p, rd)
	r.leave(p, finalized)
}

// join takes a peer in, or says why not.
func (r *root) join(p *peer, f fields) (Refusal, string) {
	if v, err := f.number("version", 1<<20); err != nil || v != rootVersion {
		return RefusedVersion, fmt.Sprintf("the root speaks version %d of this protocol, not %s", rootVersion, clip(f["version"]))
	}
	if job := f.text("job"); job != r.job {
		return RefusedJob, fmt.Sprintf("the root is of job %q, not of %q", clip(r.job), clip(job))
	}
	r.mu.Lock()
	kind, why := r.place(p, f)
	if kind != "" {
		r.note("turned away %s: %s", p.host, why)
	}
	peers, line := []*peer{p}, "cmd=ready"
	switch {
	case kind != "":
		peers = nil
	case r.allHere():
		peers = r.present()
	case r.state == collecting:
		line = "cmd=wait missing=" + named(r.missing())
	}
	r.mu.Unlock()
	tell(peers, line)
	return kind, why
}

// place gives a peer its place, or says why not. The lock is held.
func (r *root) place(p *peer, f fields) (Refusal, string) {
	size := len(r.peers)
	if n, err := f.number("size", MaxSize); err != nil || n != size {
		return RefusedSize, fmt.Sprintf("the root's world has %d ranks, that of rank %s has %s", size, clip(f["rank"]), clip(f["size"]))
	}
	rank, err := f.number("rank", size-1)
	if err != nil {
		return RefusedRank, fmt.Sprintf("rank %s is none of a world of %d", clip(f["rank"]), size)
	}
	if rank == 0 {
		return RefusedTwice, fmt.Sprintf("rank 0 is the root itself, on %s", r.host)
	}
	card, err := f.bytes("card")
	if err != nil || len(card) > MaxCard {
		return RefusedRank, fmt.Sprintf("rank %d has no proper card", rank)
	}
	old := r.peers[rank]
	if old != nil && old.id != p.id {
		return RefusedTwice, fmt.Sprintf("rank %d is taken by a process on %s", rank, old.host)
	}
	if r.state == gaveUp || r.state == complete && old == nil {
		return RefusedLate, fmt.Sprintf("rank %d came too late", rank)
	}
	p.rank = rank
	r.peers[rank], r.cards[rank] = p, card
	if old == nil {
		r.here++
		r.log.printf("rank %d on %s is there, %d of %d", rank, p.host, r.here, size)
	} else {
		old.conn.Close()
	}
	return "", ""
}

// allHere says whether this rank is the last, and notes it. The lock is held.
func (r *root) allHere() bool {
	if r.here < len(r.peers) || r.state != collecting {
		return false
	}
	r.state = complete
	close(r.ready)
	return true
}

// present returns the peers that are there. The lock is held.
func (r *root) present() []*peer {
	return slices.DeleteFunc(slices.Clone(r.peers), func(p *peer) bool { return p == nil })
}

func tell(peers []*peer, line string) {
	for _, p := range peers {
		p.write(line)
	}
}

// listen answers a peer until it leaves, and says whether it did so in order.
func (r *root) listen(p *peer, rd *bufio.Reader) (finalized bool) {
	for {
		line, err := readLine(rd, rootLine)
		if err != nil {
			return false
		}
		f, err := parseLine(line)
		if err != nil {
			r.log.printf("rank %d on %s: %v", p.rank, p.host, err)
			return false
		}
		switch f["cmd"] {
		case "get":
			rank, err := f.number("rank", len(r.peers)-1)
			if err != nil {
				r.log.printf("rank %d on %s: %v", p.rank, p.host, err)
				return false
			}
			r.mu.Lock()
			card, ok := r.cards[rank], r.state == complete
			r.mu.Unlock()
			if !ok {
				r.log.printf("rank %d on %s asks too early", p.rank, p.host)
				return false
			}
			p.write(fmt.Sprintf("cmd=card rank=%d card=%s", rank, encode(card)))
		case "finalize":
			p.write("cmd=bye")
			return true
		case "abort":
			code, why := f.exitCode(), clip(f.text("why"))
			fmt.Fprintf(r.w.stderr, "mp: rank %d on %s aborted the job: %s\n", p.rank, p.host, why)
			r.passOn(code, p.rank, p.host, why)
			r.w.exit(code)
			return false
		default:
			r.log.printf("rank %d on %s: unknown command %q", p.rank, p.host, clip(f["cmd"]))
			return false
		}
	}
}

// leave notes that a connection of a peer ended. A rank that goes before all are there may
// come again.
func (r *root) leave(p *peer, finalized bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers[p.rank] != p {
		return // it has come again
	}
	if !finalized {
		r.log.printf("rank %d on %s left without Finalize", p.rank, p.host)
	}
	if r.state == collecting {
		r.note("rank %d on %s was there and left again", p.rank, p.host)
		r.peers[p.rank], r.cards[p.rank] = nil, nil
		r.here--
		return
	}
	p.gone = true
	select {
	case r.left <- struct{}{}:
	default:
	}
}

// note keeps a line for MissingError. The lock is held.
func (r *root) note(format string, args ...any) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, fmt.Sprintf(format, args...))
	}
}

// staying returns the ranks that are there and have not left.
func (r *root) staying() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	for _, p := range r.present() {
		if !p.gone {
			list = append(list, p.rank)
		}
	}
	return list
}

// missing returns the ranks that are not there. The lock is held.
func (r *root) missing() []int {
	var list []int
	for rank, c := range r.cards {
		if c == nil {
			list = append(list, rank)
		}
	}
	return list
}

// named writes ranks for a line.
func named(list []int) string {
	var b strings.Builder
	for i, rank := range list[:min(len(list), maxNamed)] {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(rank))
	}
	return b.String()
}

// unnamed reads what named wrote.
func unnamed(s string, size int) []int {
	var list []int
	for word := range strings.SplitSeq(s, ",") {
		if n, err := strconv.Atoi(word); err == nil && n >= 0 && n < size && len(list) < maxNamed {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (r *root) put(ctx context.Context, card []byte) error {
	start := time.Now()
	r.mu.Lock()
	r.cards[0] = card
	r.here++
	var all []*peer
	if r.allHere() {
		all = r.present()
	}
	r.mu.Unlock()
	tell(all, "cmd=ready")
	stop := every(r.tick, func() {
		r.mu.Lock()
		if r.state != collecting {
			r.mu.Unlock()
			return
		}
		missing, peers := r.missing(), r.present()
		r.mu.Unlock()
		r.log.printf("waiting for %s", ranks(missing))
		tell(peers, "cmd=wait missing="+named(missing))
	})
	defer stop()
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	if r.state == complete {
		r.mu.Unlock()
		return nil
	}
	r.state = gaveUp
	missing, peers, notes := r.missing(), r.present(), slices.Clone(r.notes)
	r.mu.Unlock()
	tell(peers, "cmd=missing missing="+named(missing))
	if !timeUp(ctx) {
		return stopped(ctx, "ranks %s", ranks(missing))
	}
	return &MissingError{Ranks: missing, Size: len(r.cards), After: time.Since(start), Notes: notes}
}

func (r *root) card(_ context.Context, rank int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cards[rank], nil
}

func (r *root) finalize(ctx context.Context) error {
	stop := every(r.tick, func() { r.log.printf("waiting for ranks %s to finalize", ranks(r.staying())) })
	var err error
	for err == nil {
		list := r.staying()
		if len(list) == 0 {
			break
		}
		select {
		case <-r.left:
		case <-ctx.Done():
			err = stopped(ctx, "ranks %s to finalize", ranks(list))
		}
	}
	stop()
	r.close()
	return err
}

func (r *root) close() {
	r.ln.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *root) abort(code int, why string) { r.passOn(code, 0, r.host, why) }

// passOn tells all but one rank of an abort.
func (r *root) passOn(code, rank int, host, why string) {
	r.mu.Lock()
	peers := r.present()
	r.mu.Unlock()
	peers = slices.DeleteFunc(peers, func(p *peer) bool { return p.rank == rank })
	tell(peers, fmt.Sprintf("cmd=abort code=%d rank=%d host=%s why=%s", code, rank, encode([]byte(host)), encode([]byte(why))))
}
