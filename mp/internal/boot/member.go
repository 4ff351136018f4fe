package boot

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	firstWait = 20 * time.Millisecond  // before the second try to reach a root; then the double
	longWait  = 250 * time.Millisecond // the longest
	dialTime  = 5 * time.Second        // for one try
	silence   = 15 * time.Second       // a root that says nothing for so long is tried again
)

// A member is a rank other than 0 of a world with a root.
type member struct {
	w    *World
	addr string
	job  string
	host string
	id   string
	log  *logger
	net  *network

	mu     sync.Mutex // guards what follows
	conn   net.Conn
	closed bool
	gets   map[int]chan []byte // who waits for which card; each has room for it
	bye    bool

	started bool          // whether there is a reader
	done    chan struct{} // closed when the reader has ended
	broken  error         // why it has, before done
}

func newMember(f *finder, c *claim, w *World) *member {
	return &member{
		w: w, addr: c.root, job: c.job, host: f.net.host, id: rand.Text(), log: f.log, net: &f.net,
		gets: map[int]chan []byte{}, done: make(chan struct{}),
	}
}

// put comes to the root, again and again until the time is up, and waits there for the others.
func (m *member) put(ctx context.Context, card []byte) error {
	start := time.Now()
	hello := fmt.Sprintf("cmd=join version=%d job=%s size=%d rank=%d id=%s host=%s card=%s\n",
		rootVersion, encode([]byte(m.job)), m.w.Size, m.w.Rank, m.id, encode([]byte(m.host)), encode(card))
	var (
		mu      sync.Mutex                         // guards the next two
		last    = errors.New("it does not answer") // of the tries
		missing []int                              // what a root has said that is there
	)
	stop := every(m.net.tick, func() {
		mu.Lock()
		defer mu.Unlock()
		if missing != nil {
			m.log.printf("waiting at the root %s for %s", m.addr, ranks(missing))
		} else {
			m.log.printf("waiting for the root %s: %v", m.addr, last)
		}
	})
	defer stop()
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		err := m.try(ctx, hello, func(list []int) {
			mu.Lock()
			defer mu.Unlock()
			if missing = list; list == nil {
				last = errors.New("it has taken the connection, and says nothing")
			}
		})
		var again *retryError
		if !errors.As(err, &again) {
			if e, ok := err.(*MissingError); ok {
				e.After = time.Since(start)
			}
			return err
		}
		mu.Lock()
		if ctx.Err() == nil {
			last, missing = again.err, nil
		}
		mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			continue
		case <-ctx.Done():
			t.Stop()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !timeUp(ctx):
			return stopped(ctx, "the root %s", m.addr)
		case missing != nil:
			return &MissingError{Ranks: missing, Size: m.w.Size, After: time.Since(start)}
		default:
			return &RootError{Addr: m.addr, Why: fmt.Sprintf("not reached in %v", time.Since(start).Round(time.Millisecond)), Err: last}
		}
	}
}

// A retryError is a failure that another try may mend.
type retryError struct{ err error }

func (e *retryError) Error() string { return e.err.Error() }

// try comes to the root once. It calls waiting when it is connected, and with those who are
// missing when the root tells.
func (m *member) try(ctx context.Context, hello string, waiting func([]int)) error {
	dial, cancel := context.WithTimeout(ctx, dialTime)
	conn, err := m.net.dial(dial, m.addr)
	cancel()
	if err != nil {
		return &retryError{err}
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		conn.Close()
		return ErrFinalized
	}
	m.conn = conn
	m.mu.Unlock()
	waiting(nil)
	rd := bufio.NewReader(conn)
	// Closing is for good, unlike a deadline, which the next line would set anew.
	cut := context.AfterFunc(ctx, func() { conn.Close() })
	err = m.meet(conn, rd, hello, waiting)
	if !cut() && err == nil {
		err = &retryError{ctx.Err()}
	}
	if err != nil {
		conn.Close()
		return err
	}
	conn.SetDeadline(time.Time{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrFinalized
	}
	m.started = true
	go m.read(rd)
	return nil
}

// meet says hello and waits until all are there.
func (m *member) meet(conn net.Conn, rd *bufio.Reader, hello string, waiting func([]int)) error {
	conn.SetDeadline(time.Now().Add(silence))
	if _, err := io.WriteString(conn, hello); err != nil {
		return &retryError{err}
	}
	for {
		conn.SetDeadline(time.Now().Add(silence))
		line, err := readLine(rd, rootLine)
		if err != nil && !errors.Is(err, errLong) {
			return &retryError{err}
		}
		var f fields
		if err == nil {
			f, err = parseLine(line)
		}
		if err != nil {
			return &RootError{Addr: m.addr, Why: "what answers there is no root", Err: err}
		}
		switch f["cmd"] {
		case "wait":
			waiting(unnamed(f["missing"], m.w.Size))
		case "ready":
			return nil
		case "missing":
			return &MissingError{Ranks: unnamed(f["missing"], m.w.Size), Size: m.w.Size}
		case "refuse":
			return &RootError{Addr: m.addr, Refused: Refusal(clip(f["kind"])), Why: clip(f.text("why"))}
		case "abort":
			return m.aborted(f)
		default:
			return &RootError{Addr: m.addr, Why: fmt.Sprintf("it says %q instead of ready", clip(f["cmd"]))}
		}
	}
}

// aborted ends this process because another asked for it.
func (m *member) aborted(f fields) error {
	code := f.exitCode()
	e := &RootError{Addr: m.addr, Why: fmt.Sprintf("rank %s on %s aborted the job: %s", clip(f["rank"]), clip(f.text("host")), clip(f.text("why")))}
	fmt.Fprintf(m.w.stderr, "mp: rank %s on %s aborted the job: %s\n", clip(f["rank"]), clip(f.text("host")), clip(f.text("why")))
	m.w.exit(code)
	return e
}

// read takes what the root says once all are there, until the connection ends.
func (m *member) read(rd *bufio.Reader) {
	defer close(m.done)
	for {
		line, err := readLine(rd, rootLine)
		var f fields
		if err == nil {
			f, err = parseLine(line)
		}
		if err == nil {
			err = m.heard(f)
		}
		if err != nil {
			m.mu.Lock()
			m.broken = &RootError{Addr: m.addr, Why: "the connection to rank 0 broke", Err: err}
			m.mu.Unlock()
			return
		}
	}
}

func (m *member) heard(f fields) error {
	switch f["cmd"] {
	case "card":
		rank, err := f.number("rank", m.w.Size-1)
		if err != nil {
			return err
		}
		card, err := f.bytes("card")
		if err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if c := m.gets[rank]; c != nil {
			delete(m.gets, rank)
			c <- card
		}
	case "bye":
		m.mu.Lock()
		defer m.mu.Unlock()
		m.bye = true
		return io.EOF
	case "abort":
		return m.aborted(f)
	case "wait":
	default:
		return fmt.Errorf("it says %q", clip(f["cmd"]))
	}
	return nil
}

func (m *member) card(ctx context.Context, rank int) ([]byte, error) {
	c := make(chan []byte, 1)
	m.mu.Lock()
	m.gets[rank] = c
	m.mu.Unlock()
	if err := m.send(fmt.Sprintf("cmd=get rank=%d", rank)); err != nil {
		return nil, err
	}
	select {
	case card := <-c:
		return card, nil
	case <-m.done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return nil, m.broken
	case <-ctx.Done():
		return nil, stopped(ctx, "the card of rank %d", rank)
	}
}

// send writes one line to the root.
func (m *member) send(line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil {
		return &RootError{Addr: m.addr, Why: "not connected"}
	}
	m.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(m.conn, line+"\n"); err != nil {
		return &RootError{Addr: m.addr, Why: "the connection to rank 0 broke", Err: err}
	}
	return nil
}

func (m *member) finalize(ctx context.Context) error {
	defer m.close()
	if err := m.send("cmd=finalize"); err != nil {
		return err
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		return stopped(ctx, "the root %s to say goodbye", m.addr)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bye {
		return nil
	}
	return m.broken
}

func (m *member) abort(code int, why string) {
	m.send(fmt.Sprintf("cmd=abort code=%d why=%s", code, encode([]byte(why))))
}

func (m *member) close() {
	m.mu.Lock()
	m.closed = true
	if m.conn != nil {
		m.conn.Close()
	}
	started := m.started
	m.mu.Unlock()
	if started {
		<-m.done
	}
}
