package boot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestRootWorlds(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8, 17, 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			root := freeRoot(t)
			run(t, size, func(rank int) Options {
				return Options{Rank: rank, Size: size, Root: root, Job: "j", Env: env()}
			})
		})
	}
}

// A rootTest is a rank 0 that waits for the others.
type rootTest struct {
	t    *testing.T
	ctx  context.Context
	addr string
	size int
	w    *World
	// debug is what rank 0 logs.
	debug *record
	put   chan error
}

func newRootTest(t *testing.T, size int, timeout time.Duration) *rootTest {
	r := &rootTest{t: t, ctx: testContext(t), addr: freeRoot(t), size: size, debug: newRecord(), put: make(chan error, 1)}
	o := r.options(0)
	o.Debug, o.Timeout = r.debug, timeout
	var err error
	if r.w, err = Find(r.ctx, o); err != nil {
		t.Fatal(err)
	}
	go func() { r.put <- r.w.Put(r.ctx, cardOf(0)) }()
	t.Cleanup(func() { r.w.Finalize(r.ctx) })
	return r
}

func (r *rootTest) options(rank int) Options {
	o := Options{Rank: rank, Size: r.size, Root: r.addr, Job: "j", Env: env(), Timeout: limit}
	o.net.tick = 5 * time.Millisecond
	o.net.host = fmt.Sprintf("host%d", rank)
	return o
}

// come puts the card of a rank.
func (r *rootTest) come(o Options) (*World, error) {
	w, err := Find(r.ctx, o)
	if err != nil {
		return nil, err
	}
	err = w.Put(r.ctx, cardOf(o.Rank))
	return w, err
}

// complete has all others come and everyone finalize: the root still works.
func (r *rootTest) complete() {
	r.t.Helper()
	var wg sync.WaitGroup
	for rank := 1; rank < r.size; rank++ {
		wg.Go(func() {
			w, err := r.come(r.options(rank))
			if err != nil {
				r.t.Errorf("rank %d: %v", rank, err)
				return
			}
			if err := w.Finalize(r.ctx); err != nil {
				r.t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	if err := <-r.put; err != nil {
		r.t.Errorf("rank 0: %v", err)
	}
	if err := r.w.Finalize(r.ctx); err != nil {
		r.t.Errorf("rank 0: %v", err)
	}
	wg.Wait()
}

// Whoever does not fit is turned away with the reason, and the world comes together without it.
func TestRootTurnsAway(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   Refusal
		words  string
	}{
		{"another job", func(o *Options) { o.Job = "k" }, RefusedJob, `of job "j", not of "k"`},
		{"another size", func(o *Options) { o.Size = 4 }, RefusedSize, "has 3 ranks, that of rank 1 has 4"},
		{"rank too large", func(o *Options) { o.Rank, o.Size = 3, 4 }, RefusedSize, "has 3 ranks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRootTest(t, 3, limit)
			o := r.options(1)
			c.change(&o)
			w, err := r.come(o)
			if e := wantError[*RootError](t, err, c.words, r.addr); e.Refused != c.want {
				t.Errorf("refused for %q, want %q", e.Refused, c.want)
			}
			w.Finalize(r.ctx)
			r.complete()
		})
	}
}

func TestRootRankTwice(t *testing.T) {
	r := newRootTest(t, 3, limit)
	first := make(chan error, 1)
	w1, err := Find(r.ctx, r.options(1))
	if err != nil {
		t.Fatal(err)
	}
	go func() { first <- w1.Put(r.ctx, cardOf(1)) }()
	r.debug.wait(t, "rank 1 on host1 is there")
	w, err := r.come(r.options(1))
	if e := wantError[*RootError](t, err, "rank 1 is taken by a process on host1"); e.Refused != RefusedTwice {
		t.Errorf("refused for %q", e.Refused)
	}
	w.Finalize(r.ctx)
	w2, err := r.come(r.options(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	// When all are there, too.
	w, err = r.come(r.options(2))
	wantError[*RootError](t, err, "rank 2 is taken by a process on host2")
	w.Finalize(r.ctx)
	if err := <-r.put; err != nil { // before Finalize, which ends a Put that has not returned
		t.Error(err)
	}
	for _, w := range []*World{w1, w2, r.w} {
		if err := w.Finalize(r.ctx); err != nil {
			t.Error(err)
		}
	}
}

// dialRoot connects as a stranger and says something.
func (r *rootTest) dial(say string) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, say); err != nil {
		r.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// hello is what a rank says first, with changed fields.
func hello(rank int, change ...string) string {
	f := [][2]string{
		{"cmd", "join"}, {"version", "1"}, {"job", encode([]byte("j"))}, {"size", "3"}, {"rank", fmt.Sprint(rank)},
		{"id", "x"}, {"host", encode([]byte("h"))}, {"card", encode([]byte("c"))},
	}
	var words []string
	for _, kv := range f {
		word := kv[0] + "=" + kv[1]
		for _, c := range change {
			if strings.HasPrefix(c, kv[0]+"=") {
				word = c
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ") + "\n"
}

// Strangers and broken peers are dropped, each with a line in the log or an answer.
func TestRootBadPeers(t *testing.T) {
	for _, c := range []struct {
		name, say string
		kind      Refusal // of the answer
		log       string
	}{
		{"http", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", "a stranger"},
		{"binary", "\x16\x03\x01\x00\n", "", "a stranger"},
		{"too long", strings.Repeat("y", rootLine+1) + "\n", "", "too long"},
		{"another command", "cmd=get rank=0\n", "", `it began with "get"`},
		{"version", hello(1, "version=2"), RefusedVersion, "speaks version 1"},
		{"no version", hello(1, "version="), RefusedVersion, "speaks version 1"},
		{"job no base64", hello(1, "job=%%"), RefusedJob, "is of job"},
		{"size", hello(1, "size=4"), RefusedSize, "has 3 ranks"},
		{"size no number", hello(1, "size=x"), RefusedSize, "has 3 ranks"},
		{"rank 3", hello(3), RefusedRank, "rank 3 is none"},
		{"rank -1", hello(-1), RefusedRank, "rank -1 is none"},
		{"rank 0", hello(0), RefusedTwice, "rank 0 is the root itself"},
		{"no card", hello(1, "card=!"), RefusedRank, "no proper card"},
		{"huge card", hello(1, "card="+encode(make([]byte, MaxCard+1))), RefusedRank, "no proper card"},
		{"asks too early", hello(1) + "cmd=get rank=0\n", "", "asks too early"},
		{"unknown command", hello(1) + "cmd=dance\n", "", `unknown command "dance"`},
		{"garbage later", hello(1) + "dance\n", "", "no line of this protocol"},
		{"rank of a card", hello(1) + "cmd=get rank=3\n", "", "rank=3 is no number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRootTest(t, 3, limit)
			_, rd := r.dial(c.say)
			var got Refusal
			for {
				line, err := rd.ReadString('\n')
				if err != nil {
					break // it hung up
				}
				if f, err := parseLine(line); err == nil && f["cmd"] == "refuse" {
					got = Refusal(f["kind"])
				}
			}
			if got != c.kind {
				t.Errorf("refused for %q, want %q", got, c.kind)
			}
			r.debug.wait(t, c.log)
			r.complete()
		})
	}
}

// A peer that hangs up before all are there may come again, and one whose connection broke
// is no second one.
func TestRootPeerComesAgain(t *testing.T) {
	r := newRootTest(t, 2, limit)
	conn, _ := r.dial(hello(1, "size=2"))
	r.debug.wait(t, "is there")
	if err := <-r.put; err != nil {
		t.Fatal(err)
	}
	conn.Close()
	// The same process, after "ready" was lost.
	conn, rd := r.dial(hello(1, "size=2"))
	line, err := rd.ReadString('\n')
	if err != nil || line != "cmd=ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	io.WriteString(conn, "cmd=finalize\n")
	if line, err := rd.ReadString('\n'); err != nil || line != "cmd=bye\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := r.w.Finalize(r.ctx); err != nil {
		t.Error(err)
	}

	r = newRootTest(t, 3, limit)
	conn, _ = r.dial(hello(1))
	r.debug.wait(t, "is there")
	conn.Close()
	r.debug.wait(t, "left without Finalize")
	r.complete()
}

// When the time is up, all that came are told who did not.
func TestRootMissing(t *testing.T) {
	r := newRootTest(t, 6, time.Second)
	got := make(chan error, 2)
	var wg sync.WaitGroup
	for _, rank := range []int{1, 4} {
		wg.Go(func() {
			w, err := r.come(r.options(rank))
			got <- err
			w.Finalize(r.ctx)
		})
	}
	r.debug.wait(t, "waiting for 2-3,5")
	o := r.options(2)
	o.Size = 9
	w, err := r.come(o)
	wantError[*RootError](t, err, "has 6 ranks")
	w.Finalize(r.ctx)
	conn, _ := r.dial(hello(3, "size=6"))
	conn.Close()
	r.debug.wait(t, "left without Finalize")
	err = <-r.put
	e := wantError[*MissingError](t, err, "3 of 6 ranks are missing: 2-3,5", "turned away host2: the root's world has 6 ranks", "; rank 3 on h was there and left again")
	if fmt.Sprint(e.Ranks) != "[2 3 5]" || e.After < time.Second/2 {
		t.Errorf("%+v", e)
	}
	for range 2 {
		if e := wantError[*MissingError](t, <-got, "3 of 6 ranks are missing: 2-3,5"); fmt.Sprint(e.Ranks) != "[2 3 5]" {
			t.Errorf("%+v", e)
		}
	}
	wg.Wait()
	// Later ones learn that it is too late.
	w, err = r.come(r.options(5))
	if e := wantError[*RootError](t, err, "too late"); e.Refused != RefusedLate {
		t.Errorf("refused for %q", e.Refused)
	}
	w.Finalize(r.ctx)
}

// A member whose own time is up first says what the root told it last.
func TestMemberTimeIsUp(t *testing.T) {
	r := newRootTest(t, 3, limit)
	o := r.options(1)
	o.Timeout = 200 * time.Millisecond
	debug := newRecord()
	o.Debug = debug
	w, err := r.come(o)
	if e := wantError[*MissingError](t, err, "1 of 3 ranks are missing: 2"); fmt.Sprint(e.Ranks) != "[2]" {
		t.Errorf("%+v", e)
	}
	debug.wait(t, "for 2\n")
	w.Finalize(r.ctx)
	r.debug.wait(t, "rank 1 on host1 left")
	r.complete()
}

// The root never comes.
func TestMemberWithoutRoot(t *testing.T) {
	ctx := testContext(t)
	o := Options{Rank: 1, Size: 2, Root: freeRoot(t), Env: env()}
	o.net.tick = 5 * time.Millisecond
	debug := newRecord()
	o.Debug = debug
	w, err := Find(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	put, timeIsUp := putUntil(ctx, w, nil)
	debug.wait(t, "refused")
	timeIsUp()
	err = <-put
	wantError[*RootError](t, err, o.Root, "not reached in")
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v is not ECONNREFUSED", err)
	}
	debug.wait(t, "waiting for the root "+o.Root)
	if err := w.Finalize(ctx); err != nil {
		t.Error(err)
	}
	// Cancelled by the caller.
	o.Timeout = limit
	if w, err = Find(ctx, o); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if err := w.Put(short, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What answers at the root's address is something else, or no root of ours.
func TestMemberBadRoots(t *testing.T) {
	for _, c := range []struct{ name, say, words string }{
		{"http", "HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no root"},
		{"too long", strings.Repeat("z", rootLine+1) + "\n", "what answers there is no root"},
		{"another command", "cmd=maxes\n", `"maxes" instead of ready`},
		{"refused", "cmd=refuse kind=job why=" + encode([]byte("no\x1b[2J")) + "\n", "no?[2J"},
		{"broken later", "cmd=ready\ncmd=card rank=7 card=x\n", "rank=7 is no number"},
		{"garbage later", "cmd=ready\nhello\n", "no line of this protocol"},
		{"another later", "cmd=ready\ncmd=hello\n", `it says "hello"`},
		{"gone later", "cmd=ready\n", "the connection to rank 0 broke"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext(t)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, c.say)
				if c.name != "gone later" {
					io.Copy(io.Discard, conn) // or what was said may be lost with the connection
				}
			})
			w, err := Find(ctx, Options{Rank: 1, Size: 3, Root: ln.Addr().String(), Env: env(), Timeout: limit})
			if err != nil {
				t.Fatal(err)
			}
			if err = w.Put(ctx, nil); err == nil {
				_, err = w.Card(ctx, 2)
			}
			wantError[*RootError](t, err, c.words)
			w.Finalize(ctx)
			ln.Close()
			wg.Wait()
		})
	}
}

// Abort of one rank ends all, with the reason before.
func TestRootAbort(t *testing.T) {
	for aborts := range 3 {
		t.Run(fmt.Sprint(aborts), func(t *testing.T) {
			ctx, addr := testContext(t), freeRoot(t)
			var wg sync.WaitGroup
			worlds := make([]*World, 3)
			stderr := make([]*record, 3)
			codes := make(chan int, 3)
			for rank := range worlds {
				stderr[rank] = newRecord()
				o := Options{Rank: rank, Size: 3, Root: addr, Env: env(), Stderr: stderr[rank], Exit: func(c int) { codes <- c }}
				o.net.host = fmt.Sprintf("host%d", rank)
				wg.Go(func() {
					var err error
					if worlds[rank], err = Find(ctx, o); err == nil {
						err = worlds[rank].Put(ctx, nil)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			worlds[aborts].Abort(9, "no more memory")
			for rank := range worlds {
				if rank != aborts {
					stderr[rank].wait(t, fmt.Sprintf("mp: rank %d on host%d aborted the job: no more memory\n", aborts, aborts))
				}
				select {
				case code := <-codes:
					if code != 9 {
						t.Errorf("exit %d", code)
					}
				case <-ctx.Done():
					t.Fatalf("only %d ranks exit", rank)
				}
			}
			for rank := 2; rank >= 0; rank-- {
				worlds[rank].Finalize(ctx)
			}
		})
	}
}

// Two jobs at one address: the second cannot listen, and says so.
func TestRootAddressInUse(t *testing.T) {
	r := newRootTest(t, 2, limit)
	o := r.options(0)
	o.Job = "k"
	_, err := Find(r.ctx, o)
	wantError[*RootError](t, err, "another process does already")
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v is not EADDRINUSE", err)
	}
	r.complete()
}

// Rank 0 serves cards until the last has finalized, but not beyond its time.
func TestRootFinalizeWaits(t *testing.T) {
	r := newRootTest(t, 2, limit)
	w, err := r.come(r.options(1))
	if err != nil {
		t.Fatal(err)
	}
	<-r.put
	ended := make(chan error, 1)
	go func() { ended <- r.w.Finalize(r.ctx) }()
	r.debug.wait(t, "waiting for ranks 1 to finalize")
	if card, err := w.Card(r.ctx, 0); err != nil || len(card) != len(cardOf(0)) {
		t.Errorf("a card of a root that waits: %v", err)
	}
	if err := w.Finalize(r.ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}

	r = newRootTest(t, 2, limit)
	if w, err = r.come(r.options(1)); err != nil {
		t.Fatal(err)
	}
	<-r.put
	short, cancel := context.WithCancel(r.ctx)
	cancel()
	if err := r.w.Finalize(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Finalize: %v", err)
	}
	_, err = w.Card(r.ctx, 0)
	wantError[*RootError](t, err, "broke")
	w.Finalize(r.ctx)
}
