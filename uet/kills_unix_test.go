//go:build unix

package uet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uetkit/uetkit/av"
	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/fi"
)

var (
	kills    = flag.Int("kills", 40, "how often TestKilledAndRestarted kills the peer")
	killSeed = flag.Uint64("killseed", 0, "seed of TestKilledAndRestarted, 0: another one each time")
)

// killedEnv makes the test binary a process that is to be killed. Its value is its port, the
// address of the other end, the number of its life, and a seed.
const killedEnv = "UET_TEST_KILLED"

func init() {
	if v := os.Getenv(killedEnv); v != "" {
		if err := killedProcess(v); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

const (
	killSends = 8        // in flight at each end
	killRecvs = 32       // posted at each end
	killLong  = 40 << 10 // the longest message
)

// killHints are those of both ends: their messages keep their order.
func killHints() *Info {
	in := &Info{}
	in.Tx.MsgOrder, in.Rx.MsgOrder = fi.OrderSAS, fi.OrderSAS
	in.Config.Tuning.SuspectTimeout = 600 * time.Millisecond
	return in
}

// killMessage fills b with message seq of a life: who, which, how long, and bytes that follow
// from these. Life 0 is the survivor's.
func killMessage(b []byte, life, seq uint32) []byte {
	binary.BigEndian.PutUint32(b, life)
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)))
	for i := 12; i < len(b); i++ {
		b[i] = byte(uint32(i)*31 + seq*7 + life*13)
	}
	return b
}

// killRead returns what message b is.
func killRead(b []byte) (life, seq uint32, err error) {
	if len(b) < 12 {
		return 0, 0, fmt.Errorf("%d bytes", len(b))
	}
	life, seq = binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	if want := killMessage(make([]byte, len(b)), life, seq); string(want) != string(b) {
		return life, seq, fmt.Errorf("wrong bytes in message %d of life %d, of %d bytes", seq, life, len(b))
	}
	return life, seq, nil
}

// A killEnd keeps sends in flight and receives posted, and tells what becomes of them.
type killEnd struct {
	ep      *Endpoint
	tx, rx  *cq.CQ
	to      fi.Addr
	life    uint32
	rng     *rand.Rand
	seq     uint32                  // of the latest send
	out     int                     // sends that have not ended
	posted  func(seq uint32, n int) // may come again for one that was not taken
	sent    func(seq uint32, err error)
	got     func(life, seq uint32)
	lost    func(error) // of a receive
	wrong   func(error)
	stopped bool // post no more sends
}

func (k *killEnd) recv(b []byte) {
	if err := k.ep.TRecv(b, fi.AddrUnspec, 1, 0, b); err != nil {
		k.wrong(fmt.Errorf("receive: %w", err))
	}
}

// turn posts what is to be posted and reads what has ended.
func (k *killEnd) turn() {
	for k.out < killSends && !k.stopped {
		n := 12 + k.rng.IntN(200)
		if k.rng.IntN(8) == 0 {
			n = 12 + k.rng.IntN(killLong-12)
		}
		k.posted(k.seq+1, n) // before: then it was, whenever this goroutine runs again
		if err := k.ep.TSend(killMessage(make([]byte, n), k.life, k.seq+1), k.to, 1, k.seq+1); err != nil {
			if !errors.Is(err, fi.EAGAIN) {
				k.wrong(fmt.Errorf("send: %w", err))
			}
			break
		}
		k.seq++
		k.out++
	}
	var es [16]cq.Entry
	var ce cq.Error
	n, err := k.tx.Read(es[:])
	for _, e := range es[:max(n, 0)] {
		k.out--
		k.sent(e.Context.(uint32), nil)
	}
	if errors.Is(err, fi.EAVAIL) {
		if _, err := k.tx.ReadErr(&ce, 0); err == nil {
			k.out--
			k.sent(ce.Context.(uint32), &ce)
		}
	}
	n, err = k.rx.Read(es[:])
	for _, e := range es[:max(n, 0)] {
		b := e.Context.([]byte)
		life, seq, err := killRead(b[:e.Len])
		if err != nil {
			k.wrong(err)
		}
		k.got(life, seq)
		k.recv(b)
	}
	if errors.Is(err, fi.EAVAIL) {
		if _, err := k.rx.ReadErr(&ce, 0); err == nil {
			k.lost(&ce) // its sender was killed (F25)
			k.recv(ce.Context.([]byte))
		}
	}
}

func killedProcess(v string) error {
	var port, peer string
	var life uint32
	var seed uint64
	if _, err := fmt.Sscan(v, &port, &peer, &life, &seed); err != nil {
		return err
	}
	infos, err := GetInfo("127.0.0.1", port, fi.Source, killHints())
	if err != nil {
		return err
	}
	f, err := OpenFabric(infos[0], nil)
	if err != nil {
		return err
	}
	d, err := f.OpenDomain(infos[0], nil)
	if err != nil {
		return err
	}
	k := &killEnd{life: life, rng: rand.New(rand.NewPCG(seed, uint64(life)))}
	attr := cq.Attr{Format: fi.CQTagged, WaitObj: fi.WaitUnspec}
	tx, err1 := d.OpenCQ(attr, nil)
	rx, err2 := d.OpenCQ(attr, nil)
	peers, err3 := d.OpenAV(av.Attr{}, nil)
	ep, err4 := d.OpenEndpoint(infos[0], nil)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	if err := errors.Join(ep.BindCQ(tx, fi.Transmit), ep.BindCQ(rx, fi.Recv), ep.BindAV(peers), ep.Enable()); err != nil {
		return err
	}
	k.ep, k.tx, k.rx = ep, tx, rx
	if k.to, err = peers.InsertString(peer); err != nil {
		return err
	}
	// Each line is written at once: what was said before the kill can be read.
	k.posted = func(uint32, int) {}
	k.wrong = func(err error) { fmt.Println("error", err) }
	k.sent = func(seq uint32, err error) {
		if err == nil {
			fmt.Println("sent", seq)
		} else {
			fmt.Println("failed", seq, err)
		}
	}
	k.got = func(_, seq uint32) { fmt.Println("got", seq) }
	k.lost = func(err error) { fmt.Println("lost", err) }
	for range killRecvs {
		k.recv(make([]byte, killLong))
	}
	fmt.Println("up")
	var stop atomic.Bool
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop.Store(true)
	}()
	for end := (time.Time{}); ; {
		k.turn()
		if !stop.Load() {
			continue
		}
		if k.stopped = true; end.IsZero() {
			end = time.Now().Add(patience)
		}
		if k.out == 0 {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d sends have not ended", k.out)
		}
	}
	for range 100 {
		k.turn() // what has arrived
	}
	return ep.Close()
}

// A killLife is what the process of one life said.
type killLife struct {
	from   time.Time // when the process of the life before was gone
	killed time.Time // before the kill; zero for the last life
	got    map[uint32]bool
	sent   []uint32
	lost   []string // receives that ended in an error
}

func TestKilledAndRestarted(t *testing.T) {
	// F12, F13, F25, F26: the peer's process is killed again and again while both ends send, and
	// starts again at its port. The end that lives never hangs, no life gets wrong bytes or a
	// message twice, and no success is reported of a message that did not arrive, at either end.
	// Two lives may get a message that opens a PDC: without keys, neither knows of the other.
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-killseed %d -kills %d", seed, *kills)
	rng := rand.New(rand.NewPCG(seed, 0))
	hints := killHints()
	// The port stays free between two lives, because no system gives one below 32768 by itself.
	low := 20000 + rand.N(uint16(8000))
	hints.Config.Socket.Ports = PortRange{low, low + 99}
	r := newRig(t, hints)
	n, place := r.node(), r.node()
	at, err := place.Name()
	ok(t, err)
	name, err := n.Name()
	ok(t, err)
	to := n.know(place)
	ok(t, place.Close()) // the address is free for the other process

	type ending struct{ posted, ended time.Time }
	var mu sync.Mutex
	began, lengths := map[uint32]time.Time{}, map[uint32]int{}
	success := map[uint32]ending{}
	received := map[[2]uint32]bool{}
	var slowest time.Duration
	k := &killEnd{ep: n.Endpoint, tx: n.tx, rx: n.rx, to: to, rng: rand.New(rand.NewPCG(seed, 1))}
	k.posted = func(seq uint32, n int) { began[seq], lengths[seq] = time.Now(), n }
	k.wrong = func(err error) { t.Error(err) }
	k.lost = func(error) {}
	failed := 0
	k.sent = func(seq uint32, err error) {
		now := time.Now()
		slowest = max(slowest, now.Sub(began[seq]))
		if err == nil {
			success[seq] = ending{began[seq], now}
		} else {
			failed++
		}
	}
	k.got = func(life, seq uint32) {
		if received[[2]uint32{life, seq}] {
			t.Errorf("message %d of life %d came twice", seq, life)
		}
		received[[2]uint32{life, seq}] = true
	}
	for range killRecvs {
		k.recv(make([]byte, killLong))
	}
	var last atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for end := (time.Time{}); t.Context().Err() == nil; {
			mu.Lock()
			k.turn()
			out := k.out
			mu.Unlock()
			if !last.Load() {
				continue
			}
			mu.Lock()
			k.stopped = true
			mu.Unlock()
			switch {
			case end.IsZero():
				end = time.Now().Add(patience)
			case out == 0:
				return
			case time.Now().After(end):
				t.Errorf("%d sends have not ended:%s", out, outstanding([]*node{n}))
				return
			}
		}
	}()

	exe, err := os.Executable()
	ok(t, err)
	lives := make([]*killLife, *kills+1)
	for i := range lives {
		l := &killLife{from: time.Now(), got: map[uint32]bool{}}
		lives[i] = l
		ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
		c := exec.CommandContext(ctx, exe)
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d %v %d %d", killedEnv, at.Port, name, i+1, seed))
		in, err := c.StdinPipe()
		ok(t, err)
		out, err := c.StdoutPipe()
		ok(t, err)
		ok(t, c.Start())
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "up" {
			t.Fatalf("life %d says %q", i+1, lines.Text())
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for lines.Scan() {
				what, rest, _ := strings.Cut(lines.Text(), " ")
				var seq uint32
				_, _ = fmt.Sscan(rest, &seq)
				switch what {
				case "got":
					if l.got[seq] {
						t.Errorf("life %d got message %d twice", i+1, seq)
					}
					l.got[seq] = true
				case "sent":
					l.sent = append(l.sent, seq)
				case "lost":
					l.lost = append(l.lost, fmt.Sprintf("%v: %s", time.Since(l.from), rest))
				default:
					t.Errorf("life %d: %s", i+1, lines.Text())
				}
			}
		}()
		if i == *kills {
			time.Sleep(100 * time.Millisecond)
			last.Store(true)
			<-done // all sends have ended while the peer lives
			_ = in.Close()
			drain := time.Now().Add(patience)
			for open := true; open && time.Now().Before(drain); {
				mu.Lock()
				k.turn()
				mu.Unlock()
				select {
				case <-read:
					open = false
				default:
				}
			}
		} else {
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
			l.killed = time.Now()
			_ = c.Process.Kill()
		}
		<-read
		_ = c.Wait()
		cancel()
		if t.Failed() {
			last.Store(true)
			break
		}
	}
	last.Store(true)
	<-done
	for range 100 {
		k.turn()
	}

	arrived := 0
	for i, l := range lives {
		if l == nil {
			break
		}
		for _, seq := range l.sent {
			if arrived++; !received[[2]uint32{uint32(i + 1), seq}] {
				t.Errorf("message %d of life %d is said to be sent and did not arrive", seq, i+1)
			}
		}
		var told time.Time // when the last message that this life tells of was posted
		for seq := range l.got {
			if at := began[seq]; at.After(told) {
				told = at
			}
		}
		for seq, e := range success {
			// It was posted and ended in this life, and if there was a kill, one that was posted later was told
			// of: what was received before that was told before.
			if e.posted.After(l.from) && (l.killed.IsZero() || e.ended.Before(told)) && !l.got[seq] {
				t.Errorf("message %d of %d bytes, sent between %v and %v of life %d, is said to have arrived there, and did not; a message of %v did, receives lost: %q",
					seq, lengths[seq], e.posted.Sub(l.from), e.ended.Sub(l.from), i+1, told.Sub(l.from), l.lost)
			}
		}
	}
	t.Logf("%d messages of the survivor were sent, %d failed, the slowest took %v; %d came back", len(success), failed, slowest, arrived)
	if len(success) == 0 || arrived == 0 || failed == 0 {
		t.Error("the test does not test")
	}
	if slowest > patience/2 {
		t.Errorf("a send took %v", slowest)
	}
}
