package boot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// PMI-1 is a conversation of lines over a socket that the launcher hands to each process:
//
//	cmd=init pmi_version=1 pmi_subversion=1      cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//	cmd=get_maxes                                cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//	cmd=get_my_kvsname                           cmd=my_kvsname kvsname=K
//	cmd=put kvsname=K key=… value=…              cmd=put_result rc=0 msg=success
//	cmd=barrier_in                               cmd=barrier_out, when all are there
//	cmd=get kvsname=K key=…                      cmd=get_result rc=0 msg=success value=…
//	cmd=finalize                                 cmd=finalize_ack
//	cmd=abort exitcode=N                         no answer
//
// With PMI_PORT instead of PMI_FD the process connects by itself and asks who it is:
//
//	cmd=initack pmiid=ID                         cmd=initack, cmd=set size=N, cmd=set rank=R, cmd=set debug=D
//
// Slurm reads no line longer than 1,024 bytes, whatever it says of values, and is out of step
// after a longer one. Hydra cuts values that are too long without a word, so each process looks at the last part
// of its own card after the fence. That also shows two processes with one rank.

const (
	pmiLine  = 64 << 10        // the longest line of a server that is read
	pmiAsk   = 1000            // the longest line that is sent
	missTime = 5 * time.Second // to find out who is missing when the time is up
	// abortPause is between the reason of an abort and the abort. Hydra's proxies forward both,
	// and when both are there at once the abort goes first and the reason is lost.
	abortPause = 100 * time.Millisecond
)

func pmi1(f *finder) (*claim, string, error) {
	switch {
	case f.has("PMI_FD"):
		rank, size, err := f.rankSize("PMI_RANK", "PMI_SIZE")
		if err != nil {
			return nil, "", err
		}
		fd, err := f.number("PMI_FD", 0, 1<<20)
		if err != nil {
			return nil, "", err
		}
		return &claim{rank: rank, size: size, conn: func(ctx context.Context, f *finder, w *World) (service, error) {
			conn, err := inherit(fd)
			if err != nil {
				return nil, &ConfigError{
					What: "PMI_FD", Value: strconv.Itoa(fd),
					Why: err.Error() + "; unset PMI_FD if no launcher started this process itself",
				}
			}
			return openPMI(ctx, conn, f.log, w)
		}}, "", nil
	case f.has("PMI_PORT", "PMI_ID"):
		id, err := f.number("PMI_ID", 0, MaxSize-1)
		if err != nil {
			return nil, "", err
		}
		addr := f.Env("PMI_PORT")
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, "", &ConfigError{What: "PMI_PORT", Value: addr, Why: "no HOST:PORT"}
		}
		return &claim{conn: func(ctx context.Context, f *finder, w *World) (service, error) {
			conn, err := f.net.dial(ctx, addr)
			if err != nil {
				return nil, &PMIError{Cmd: "connect", Why: "no connection to PMI_PORT=" + clip(addr), Err: err}
			}
			p := newPMI(conn, f.log, w)
			if err := p.who(ctx, id); err != nil {
				p.close()
				return nil, err
			}
			return p.open(ctx)
		}}, "", nil
	}
	return nil, "neither PMI_FD nor PMI_PORT and PMI_ID are set", nil
}

// A pmi is the client's end of the conversation.
type pmi struct {
	w    *World
	log  *logger
	conn net.Conn
	rd   *bufio.Reader
	turn chan struct{} // holds one token: whoever has it talks
	wg   sync.WaitGroup

	broken error // under turn: the first failure of the connection

	asking atomic.Bool // whether missing asks while the fence is pending
	early  chan fields // what it is answered; has room for all of it

	kvsname string
	vallen  int // the longest value
}

func newPMI(conn net.Conn, log *logger, w *World) *pmi {
	p := &pmi{
		w: w, log: log, conn: conn, rd: bufio.NewReader(conn), turn: make(chan struct{}, 1), early: make(chan fields, maxNamed+1),
	}
	p.turn <- struct{}{}
	return p
}

func openPMI(ctx context.Context, conn net.Conn, log *logger, w *World) (service, error) {
	return newPMI(conn, log, w).open(ctx)
}

// open begins the conversation. It closes the connection if that fails.
func (p *pmi) open(ctx context.Context) (service, error) {
	err := p.begin(ctx)
	if err != nil {
		p.close()
		return nil, err
	}
	if p.w.Job == "" {
		p.w.Job = p.kvsname
	}
	p.log.printf("PMI-1 keeps values of up to %d bytes in %s", p.vallen, p.kvsname)
	return p, nil
}

func (p *pmi) begin(ctx context.Context) error {
	if _, err := p.call(ctx, "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return err
	}
	max, err := p.call(ctx, "cmd=get_maxes", "maxes")
	if err != nil {
		return err
	}
	keylen, err := max.number("keylen_max", 1<<30)
	vallen, err2 := max.number("vallen_max", 1<<30)
	if err := errors.Join(err, err2); err != nil {
		return &PMIError{Cmd: "get_maxes", Why: err.Error()}
	}
	name, err := p.call(ctx, "cmd=get_my_kvsname", "my_kvsname")
	if err != nil {
		return err
	}
	if p.kvsname = name["kvsname"]; p.kvsname == "" {
		return &PMIError{Cmd: "get_my_kvsname", Why: "the answer has no kvsname"}
	}
	// Both maxima count the zero at the end of a C string.
	longest := partKey(p.w.Size-1, maxParts-1)
	p.vallen = min(vallen-1, pmiAsk-len(p.putLine(longest, "")))
	if need := len(longest); keylen-1 < need || p.vallen < minPart {
		return &PMIError{Cmd: "get_maxes", Why: fmt.Sprintf("keys of %d and values of %d bytes are too short, this takes %d and %d", keylen-1, p.vallen, need, minPart)}
	}
	return nil
}

func (p *pmi) putLine(key, value string) string {
	return fmt.Sprintf("cmd=put kvsname=%s key=%s value=%s", p.kvsname, key, value)
}

func (p *pmi) getLine(key string) string {
	return fmt.Sprintf("cmd=get kvsname=%s key=%s", p.kvsname, key)
}

// who asks a server behind PMI_PORT for rank and size.
func (p *pmi) who(ctx context.Context, id int) error {
	if _, err := p.call(ctx, fmt.Sprintf("cmd=initack pmiid=%d", id), "initack"); err != nil {
		return err
	}
	set := fields{}
	for _, key := range []string{"size", "rank", "debug"} {
		f, err := p.call(ctx, "", "set")
		if err != nil {
			return err
		}
		if value, ok := f[key]; ok {
			set[key] = value
		}
	}
	var err error
	if p.w.Size, err = set.number("size", MaxSize); err == nil {
		p.w.Rank, err = set.number("rank", p.w.Size-1)
	}
	if err != nil {
		return &PMIError{Cmd: "initack", Why: err.Error()}
	}
	return nil
}

func (p *pmi) put(ctx context.Context, card []byte) error {
	parts := split(card, p.vallen)
	for i, value := range parts {
		if _, err := p.call(ctx, p.putLine(partKey(p.w.Rank, i), value), "put_result"); err != nil {
			return err
		}
	}
	start := time.Now()
	stop := every(p.w.tick, func() {
		p.log.printf("waiting in the fence for the others, for %v", time.Since(start).Round(time.Second))
	})
	_, err := p.call(ctx, "cmd=barrier_in", "barrier_out")
	stop()
	if err != nil {
		if timeUp(ctx) {
			e := &MissingError{Size: p.w.Size, After: time.Since(start), Hosts: true}
			e.Ranks = p.missing()
			return e
		}
		return err
	}
	mine, err := p.card(ctx, p.w.Rank)
	if err != nil {
		return err
	}
	if !bytes.Equal(mine, card) {
		return &TwiceError{Rank: p.w.Rank}
	}
	return nil
}

func (p *pmi) card(ctx context.Context, rank int) ([]byte, error) {
	return join(func(i int) (string, error) {
		key := partKey(rank, i)
		f, err := p.call(ctx, p.getLine(key), "get_result")
		if err != nil {
			return "", err
		}
		value, ok := f["value"]
		if !ok {
			return "", &PMIError{Cmd: "get", Why: "the answer for " + key + " has no value"}
		}
		return value, nil
	})
}

func (p *pmi) finalize(ctx context.Context) error {
	_, err := p.call(ctx, "cmd=finalize", "finalize_ack")
	p.close()
	return err
}

func (p *pmi) abort(code int, _ string) {
	time.Sleep(abortPause)
	// Whatever the conversation waits for: the server reads on.
	p.conn.SetWriteDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(p.conn, "cmd=abort exitcode=%d\n", code)
}

func (p *pmi) close() {
	p.conn.Close()
	p.wg.Wait()
}

// call sends a line, if it is not empty, and returns the answer, which must be the command
// want with rc 0. A call that its context ends leaves the conversation whole: the answer that
// comes later is read and dropped.
func (p *pmi) call(ctx context.Context, line, want string) (fields, error) {
	cmd, _, _ := strings.Cut(strings.TrimPrefix(line, "cmd="), " ")
	if cmd == "" {
		cmd = want
	}
	select {
	case <-p.turn:
	case <-ctx.Done():
		return nil, stopped(ctx, "the PMI server, %s", cmd)
	}
	type answer struct {
		f   fields
		err error
	}
	done := make(chan answer, 1)
	p.wg.Go(func() {
		f, err := p.exchange(line, cmd, want)
		p.turn <- struct{}{}
		done <- answer{f, err}
	})
	select {
	case a := <-done:
		return a.f, a.err
	case <-ctx.Done():
		return nil, stopped(ctx, "the PMI server, %s", cmd)
	}
}

// exchange is call without its context.
func (p *pmi) exchange(line, cmd, want string) (fields, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	f, err := p.talk(line, want)
	if err != nil {
		e := &PMIError{Cmd: cmd, Why: "the conversation with the launcher broke", Err: err}
		if errors.Is(err, net.ErrClosed) {
			e.Why = "the connection was closed by Finalize"
		}
		p.broken = e
		return nil, e
	}
	if rc, ok := f["rc"]; ok && rc != "0" {
		n, _ := strconv.Atoi(rc)
		if n == 0 {
			n = -1
		}
		return nil, &PMIError{Cmd: cmd, RC: n, Why: "the server says no: " + clip(f["msg"])}
	}
	return f, nil
}

func (p *pmi) talk(line, want string) (fields, error) {
	if line != "" {
		if _, err := p.conn.Write([]byte(line + "\n")); err != nil {
			return nil, err
		}
	}
	for {
		answer, err := readLine(p.rd, pmiLine)
		if err != nil {
			return nil, err
		}
		f, err := parseLine(answer)
		if err != nil {
			return nil, err
		}
		if f["cmd"] == want {
			return f, nil
		}
		if want == "barrier_out" && f["cmd"] == "get_result" && p.asking.Load() {
			select {
			case p.early <- f:
				continue
			default: // it did not ask so often
			}
		}
		return nil, fmt.Errorf("it answered %q instead of %q", clip(f["cmd"]), want)
	}
}

// missing returns the ranks whose cards the launcher does not have while the fence is pending.
// Hydra's proxies hand the cards of a host on when all ranks there are in the fence. Where the
// own card is not to be seen either the launcher tells nothing.
func (p *pmi) missing() []int {
	p.asking.Store(true)
	var list []int
	end := time.NewTimer(missTime)
	defer end.Stop()
	p.conn.SetWriteDeadline(time.Now().Add(missTime))
	for i := range p.w.Size {
		rank := (p.w.Rank + i) % p.w.Size
		if _, err := p.conn.Write([]byte(p.getLine(partKey(rank, 0)) + "\n")); err != nil {
			break
		}
		select {
		case f := <-p.early:
			if f["rc"] == "0" {
				continue
			}
			if i == 0 {
				return nil
			}
			list = append(list, rank)
		case <-p.turn: // the fence has ended, one way or the other: nobody reads
			p.turn <- struct{}{}
			return nil
		case <-end.C:
			return nil
		}
		if len(list) == maxNamed {
			break
		}
	}
	slices.Sort(list)
	return list
}
