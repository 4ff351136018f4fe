//go:build unix

package boot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A pmiServer is a PMI-1 server for ranks over socket pairs, in the words of Hydra.
type pmiServer struct {
	t            *testing.T
	size         int
	vallen, keys int
	kvsname      string
	// heard, if set, is told each line of a rank.
	heard func(rank int, line string)
	// answer, if set, changes what the server answers to a line of a rank. After an answer
	// that is no whole line the server hangs up.
	answer func(rank int, line, answer string) string

	mu     sync.Mutex
	kvs    map[string]string
	inside []func() // who waits in the barrier
	wg     sync.WaitGroup
}

func newPMIServer(t *testing.T, size int) *pmiServer {
	s := &pmiServer{t: t, size: size, vallen: 1024, keys: 64, kvsname: "kvs_17_0_host", kvs: map[string]string{}}
	t.Cleanup(s.wg.Wait)
	return s
}

// rank starts the server's side of a rank and returns the environment of that rank.
func (s *pmiServer) rank(rank int) Options {
	s.t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	syscall.CloseOnExec(fds[0])
	file := os.NewFile(uintptr(fds[0]), "server")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		s.t.Fatal(err)
	}
	s.wg.Go(func() { s.serve(rank, conn) })
	s.t.Cleanup(func() { conn.Close(); syscall.Close(fds[1]) })
	return Options{Env: env("PMI_FD="+strconv.Itoa(fds[1]), "PMI_RANK="+strconv.Itoa(rank), "PMI_SIZE="+strconv.Itoa(s.size))}
}

func (s *pmiServer) serve(rank int, conn net.Conn) {
	defer conn.Close()
	rd := bufio.NewReader(conn)
	for {
		line, err := rd.ReadString('\n')
		if err != nil {
			return
		}
		if len(line) >= 1024 { // as Slurm does, which says it in its log only
			s.t.Errorf("rank %d sends a line of %d bytes", rank, len(line))
		}
		line = strings.TrimSuffix(line, "\n")
		if s.heard != nil {
			s.heard(rank, line)
		}
		say := func(answer string) {
			if s.answer != nil {
				answer = s.answer(rank, line, answer)
			}
			conn.Write([]byte(answer))
			if !strings.HasSuffix(answer, "\n") {
				conn.Close()
			}
		}
		s.one(line, say)
	}
}

func (s *pmiServer) one(line string, say func(string)) {
	f := map[string]string{}
	for _, word := range strings.Fields(line) {
		k, v, _ := strings.Cut(word, "=")
		f[k] = v
	}
	switch f["cmd"] {
	case "init":
		say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n")
	case "get_maxes":
		say(fmt.Sprintf("cmd=maxes kvsname_max=256 keylen_max=%d vallen_max=%d\n", s.keys, s.vallen))
	case "get_my_kvsname":
		say("cmd=my_kvsname kvsname=" + s.kvsname + "\n")
	case "put":
		v := f["value"]
		s.mu.Lock()
		s.kvs[f["key"]] = v[:min(len(v), s.vallen-1)] // as Hydra does
		s.mu.Unlock()
		say("cmd=put_result rc=0 msg=success\n")
	case "barrier_in":
		s.mu.Lock()
		s.inside = append(s.inside, func() { say("cmd=barrier_out\n") })
		var all []func()
		if len(s.inside) == s.size {
			all, s.inside = s.inside, nil
		}
		s.mu.Unlock()
		for _, out := range all {
			out()
		}
	case "get":
		s.mu.Lock()
		v, ok := s.kvs[f["key"]]
		s.mu.Unlock()
		if ok {
			say("cmd=get_result rc=0 msg=success value=" + v + "\n")
		} else {
			say("cmd=get_result rc=-1 msg=key_" + f["key"] + "_not_found value=unknown\n")
		}
	case "finalize":
		say("cmd=finalize_ack\n")
	case "abort":
	default:
		say("cmd=unknown\n")
	}
}

func TestPMIWorlds(t *testing.T) {
	for _, c := range []struct{ size, vallen int }{{1, 1024}, {2, 1024}, {7, 33}, {16, 64}, {64, 1024}} {
		t.Run(fmt.Sprintf("%d ranks, values of %d", c.size, c.vallen), func(t *testing.T) {
			s := newPMIServer(t, c.size)
			s.vallen = c.vallen
			run(t, c.size, s.rank)
		})
	}
}

// The longest card fits in values of the shortest length, and an empty one is one.
func TestPMICardLengths(t *testing.T) {
	ctx := testContext(t)
	for _, n := range []int{0, 1, 2, 3, MaxCard - 1, MaxCard} {
		s := newPMIServer(t, 1)
		s.vallen = minPart + 1
		w, err := Find(ctx, s.rank(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put(ctx, bytes.Repeat([]byte{0xff}, n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		for key, value := range s.kvs {
			if len(value) > minPart || strings.Trim(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
				t.Errorf("%d bytes: %s is %q", n, key, value)
			}
		}
		if err := w.Put(ctx, nil); err == nil {
			t.Error("a second Put succeeds")
		}
		if err := w.Finalize(ctx); err != nil {
			t.Error(err)
		}
	}
	w, err := Find(ctx, Options{Env: env()})
	if err != nil {
		t.Fatal(err)
	}
	wantError[*ConfigError](t, w.Put(ctx, make([]byte, MaxCard+1)), "longer than")
}

// The longest names that a server may have leave room for values.
func TestPMILongNames(t *testing.T) {
	s := newPMIServer(t, 2)
	s.kvsname, s.vallen = strings.Repeat("k", 255), 1<<20
	run(t, 2, s.rank)
	s = newPMIServer(t, 1)
	s.kvsname = strings.Repeat("k", 950)
	_, err := Find(testContext(t), s.rank(0))
	wantError[*PMIError](t, err, "too short")
}

func TestPMIBadAnswers(t *testing.T) {
	long := strings.Repeat("x", pmiLine+10)
	for _, c := range []struct {
		name, to, answer string
		words            string
	}{
		{"line too long", "init", "cmd=response_to_init rc=0 x=" + long + "\n", "too long"},
		{"line without end", "init", long + long, "too long"},
		{"cut line", "get_maxes", "cmd=maxes kvsname_ma", "unexpected EOF"},
		{"empty line", "get_maxes", "\n", "no line of this protocol"},
		{"binary", "init", "\x00\xff\x01\n", "no line of this protocol"},
		{"another command", "get_maxes", "cmd=my_kvsname kvsname=k\n", `"my_kvsname" instead of "maxes"`},
		{"rc", "init", "cmd=response_to_init rc=-1 msg=no_such_version\n", "no_such_version"},
		{"rc no number", "init", "cmd=response_to_init rc=oops\n", "says no"},
		{"no keylen", "get_maxes", "cmd=maxes vallen_max=1024\n", "no keylen_max"},
		{"negative vallen", "get_maxes", "cmd=maxes keylen_max=64 vallen_max=-5\n", "vallen_max=-5"},
		{"vallen 0", "get_maxes", "cmd=maxes keylen_max=64 vallen_max=0\n", "too short"},
		{"huge vallen", "get_maxes", "cmd=maxes keylen_max=64 vallen_max=99999999999999999999\n", "no number"},
		{"short keys", "get_maxes", "cmd=maxes keylen_max=8 vallen_max=1024\n", "too short"},
		{"no kvsname", "get_my_kvsname", "cmd=my_kvsname\n", "no kvsname"},
		{"put refused", "put", "cmd=put_result rc=-1 msg=key_in_use\n", "key_in_use"},
		{"gone in put", "put", "", "EOF"},
		{"gone in fence", "barrier_in", "", "EOF"},
		{"another in fence", "barrier_in", "cmd=get_result rc=0\n", `instead of "barrier_out"`},
		{"missing key", "get", "cmd=get_result rc=-1 msg=key_not_found value=unknown\n", "key_not_found"},
		{"no value", "get", "cmd=get_result rc=0\n", "no value"},
		{"no card", "get", "cmd=get_result rc=0 value=hello\n", "no card"},
		{"no base64", "get", "cmd=get_result rc=0 value=1.%%%%\n", "no card"},
		{"too many parts", "get", "cmd=get_result rc=0 value=99999.AA\n", "no card"},
		{"gone in finalize", "finalize", "", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext(t)
			s := newPMIServer(t, 1)
			s.answer = func(_ int, line, answer string) string {
				if cmd, _, _ := strings.Cut(line[len("cmd="):], " "); cmd != c.to {
					return answer
				}
				return c.answer
			}
			o := s.rank(0)
			err := func() error {
				w, err := Find(ctx, o)
				if err != nil {
					return err
				}
				if err := w.Put(ctx, cardOf(0)); err != nil {
					w.Finalize(ctx)
					return err
				}
				return w.Finalize(ctx)
			}()
			wantError[*PMIError](t, err, c.words)
		})
	}
}

// What may be said of PMI_FD and its companions.
func TestPMIBadEnvironment(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	noSocket := fmt.Sprintf("PMI_FD=%d", file.Fd())
	for _, c := range []struct {
		name string
		env  []string
		what string
		why  string
	}{
		{"no socket", []string{noSocket, "PMI_RANK=0", "PMI_SIZE=1"}, "PMI_FD", "no socket"},
		{"not open", []string{"PMI_FD=100000", "PMI_RANK=0", "PMI_SIZE=1"}, "PMI_FD", "no open descriptor"},
		{"no number", []string{"PMI_FD=six", "PMI_RANK=0", "PMI_SIZE=1"}, "PMI_FD", "no number"},
		{"no rank", []string{"PMI_FD=3", "PMI_SIZE=1"}, "PMI_RANK", "not set"},
		{"no size", []string{"PMI_FD=3", "PMI_RANK=0"}, "PMI_SIZE", "not set"},
		{"rank too large", []string{"PMI_FD=3", "PMI_RANK=8", "PMI_SIZE=8"}, "PMI_RANK", "no rank of a world of PMI_SIZE=8"},
		{"negative rank", []string{"PMI_FD=3", "PMI_RANK=-1", "PMI_SIZE=8"}, "PMI_RANK", "no number"},
		{"size 0", []string{"PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=0"}, "PMI_SIZE", "no number"},
		{"port without port", []string{"PMI_PORT=host", "PMI_ID=0"}, "PMI_PORT", "no HOST:PORT"},
		{"id no number", []string{"PMI_PORT=host:1", "PMI_ID=x"}, "PMI_ID", "no number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Find(testContext(t), Options{Env: env(c.env...)})
			if e := wantError[*ConfigError](t, err, c.why); e.What != c.what {
				t.Errorf("it names %s, want %s", e.What, c.what)
			}
		})
	}
}

// A server that does not know the difference keeps the last of two cards of one rank.
func TestPMIRankTwice(t *testing.T) {
	ctx := testContext(t)
	s := newPMIServer(t, 2)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range 2 {
		o := s.rank(1)
		wg.Go(func() {
			w, err := Find(ctx, o)
			if err != nil {
				t.Error(err)
				return
			}
			errs[i] = w.Put(ctx, cardOf(i))
			w.Finalize(ctx)
		})
	}
	wg.Wait()
	n := 0
	for _, err := range errs {
		if e := (*TwiceError)(nil); errors.As(err, &e) && e.Rank == 1 {
			n++
		} else if err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d of the two see it, want 1: %v", n, errs)
	}
}

// One rank never comes to the fence. Servers differ in what they show before its end.
func TestPMIRankMissing(t *testing.T) {
	for _, c := range []struct {
		name, get string // what is answered to a get in the fence; "": what is right
		words     string
	}{
		{"seen", "", "2 of 4 ranks are missing, or wait on the host of one that is: 0,3"},
		{"unseen", "cmd=get_result rc=-1 msg=not_found value=unknown\n", "not all 4 ranks have come"},
		{"another answer", "cmd=hello\n", "not all 4 ranks have come"},
		{"gone", "", "not all 4 ranks have come"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext(t)
			s := newPMIServer(t, 4)
			s.answer = func(_ int, line, answer string) string {
				if strings.HasPrefix(line, "cmd=get ") && (c.get != "" || c.name == "gone") {
					return c.get
				}
				return answer
			}
			// Rank 2 is in the fence, too.
			o := s.rank(2)
			in := make(chan struct{})
			s.heard = func(rank int, line string) {
				if rank == 2 && line == "cmd=barrier_in" {
					close(in)
				}
			}
			w2, err := Find(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := w2.Put(ctx, cardOf(2)); !errors.Is(err, ErrFinalized) {
					t.Errorf("rank 2: %v", err)
				}
			})
			<-in
			o = s.rank(1)
			o.net.tick = time.Millisecond
			debug := newRecord()
			o.Debug = debug
			w, err := Find(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			put, timeIsUp := putUntil(ctx, w, cardOf(1))
			debug.wait(t, "waiting in the fence")
			timeIsUp()
			e := wantError[*MissingError](t, <-put, c.words)
			if !e.Timeout() || e.After < o.net.tick {
				t.Errorf("after %v", e.After)
			}
			if err := w.Finalize(ctx); err != nil {
				t.Error(err)
			}
			if err := w.Finalize(ctx); !errors.Is(err, ErrFinalized) {
				t.Errorf("a second Finalize: %v", err)
			}
			w2.Finalize(ctx)
			wg.Wait()
		})
	}
}

// A call that its context ended leaves the next ones whole.
func TestPMICancelled(t *testing.T) {
	ctx := testContext(t)
	s := newPMIServer(t, 2)
	hold := make(chan struct{})
	asked := make(chan struct{})
	var once sync.Once
	s.answer = func(rank int, line, answer string) string {
		if rank == 0 && strings.Contains(line, "cmd=get ") && strings.Contains(line, "uet-1-0") {
			once.Do(func() { close(asked) })
			<-hold
		}
		return answer
	}
	worlds := make([]*World, 2)
	var wg sync.WaitGroup
	for i := range worlds {
		o := s.rank(i)
		wg.Go(func() {
			var err error
			if worlds[i], err = Find(ctx, o); err != nil {
				t.Error(err)
			} else if err = worlds[i].Put(ctx, cardOf(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	short, cancel := context.WithCancel(ctx)
	wg.Go(func() { <-asked; cancel() })
	if _, err := worlds[0].Card(short, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	close(hold)
	card, err := worlds[0].Card(ctx, 1)
	if err != nil || !bytes.Equal(card, cardOf(1)) {
		t.Errorf("the next: %v", err)
	}
	wg.Wait()
	for _, w := range worlds {
		if err := w.Finalize(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := worlds[0].Card(ctx, 1); !errors.Is(err, ErrFinalized) {
		t.Errorf("a card after Finalize: %v", err)
	}
}

// Abort says why, then tells the server, even while a fence is pending.
func TestPMIAbort(t *testing.T) {
	ctx := testContext(t)
	s := newPMIServer(t, 2)
	told, inFence := make(chan string, 1), make(chan struct{})
	s.heard = func(_ int, line string) {
		switch {
		case line == "cmd=barrier_in":
			close(inFence)
		case strings.HasPrefix(line, "cmd=abort"):
			told <- line
		}
	}
	o := s.rank(0)
	stderr := newRecord()
	o.Stderr = stderr
	codes := make(chan int, 1)
	o.Exit = func(code int) { codes <- code }
	w, err := Find(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Put(ctx, cardOf(0)); !errors.Is(err, ErrFinalized) {
			t.Errorf("Put: %v", err)
		}
	})
	<-inFence
	w.Abort(7, "the disk is full")
	if got := <-told; got != "cmd=abort exitcode=7" {
		t.Errorf("the server heard %q", got)
	}
	if code := <-codes; code != 7 {
		t.Errorf("exit %d", code)
	}
	if want := "mp: rank 0 of 2 aborts the job: the disk is full\n"; stderr.String() != want {
		t.Errorf("stderr is %q", stderr)
	}
	w.Finalize(ctx)
	wg.Wait()
}

// With PMI_PORT the process connects and asks who it is.
func TestPMIPort(t *testing.T) {
	for _, c := range []struct{ name, set, words string }{
		{"whole", "cmd=initack\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0\n", ""},
		{"rank too large", "cmd=initack\ncmd=set size=1\ncmd=set rank=1\ncmd=set debug=0\n", "rank=1 is no number from 0 to 0"},
		{"no size", "cmd=initack\ncmd=set siz=1\ncmd=set rank=1\ncmd=set debug=0\n", "no size"},
		{"another", "cmd=hello\n", `"hello" instead of "initack"`},
		{"gone", "cmd=initack\n", "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testContext(t)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := newPMIServer(t, 1)
			var wg sync.WaitGroup
			wg.Go(func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(conn).ReadString('\n')
				if line != "cmd=initack pmiid=5\n" {
					t.Errorf("the server heard %q", line)
				}
				conn.Write([]byte(c.set))
				if c.name == "gone" {
					conn.Close()
					return
				}
				s.serve(0, conn)
			})
			w, err := Find(ctx, Options{Env: env("PMI_PORT="+ln.Addr().String(), "PMI_ID=5")})
			if c.words == "" {
				if err != nil || w.Put(ctx, nil) != nil || w.Finalize(ctx) != nil {
					t.Errorf("%v", err)
				}
			} else {
				wantError[*PMIError](t, err, c.words)
			}
			ln.Close()
			wg.Wait()
		})
	}
}
