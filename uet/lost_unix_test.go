//go:build unix

package uet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cq"
	"github.com/uetkit/uetkit/eq"
	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport/wire"
)

// The peer process accepts one connection, says so, receives messages and is killed.

// peerEnv makes the test binary a peer process. Its value is the port, and the file with
// the cluster key, if there is one.
const peerEnv = "UET_TEST_PEER"

func init() {
	if os.Getenv(peerEnv) != "" {
		if err := peerProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
}

func peerProcess() error {
	hints := &Info{Ep: EpAttr{Type: fi.EpMsg}}
	port, file, _ := strings.Cut(os.Getenv(peerEnv), " ")
	if file != "" {
		s, err := LoadClusterKey(file)
		if err != nil {
			return err
		}
		hints.Config.Security = s
	}
	infos, err := GetInfo("127.0.0.1", port, fi.Source, hints)
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
	q, err := f.OpenEQ(eq.Attr{WaitObj: fi.WaitUnspec}, nil)
	if err != nil {
		return err
	}
	done, err := d.OpenCQ(cq.Attr{WaitObj: fi.WaitUnspec}, nil)
	if err != nil {
		return err
	}
	p, err := f.OpenPassive(infos[0], nil)
	if err != nil {
		return err
	}
	if err := p.BindEQ(q); err != nil {
		return err
	}
	if err := p.Listen(); err != nil {
		return err
	}
	at, err := p.Name()
	if err != nil {
		return err
	}
	fmt.Println(at)
	e, err := q.SRead(0, patience)
	if err != nil {
		return err
	}
	ep, err := d.OpenEndpoint(e.Info.(*Info), nil)
	if err != nil {
		return err
	}
	for _, err := range []error{ep.BindCQ(done, fi.Transmit|fi.Recv), ep.BindEQ(q), ep.Accept(nil)} {
		if err != nil {
			return err
		}
	}
	for {
		e, err := q.SRead(0, patience)
		switch {
		case err != nil:
			return err
		case e.Event == fi.Connected:
			fmt.Println("connected")
		case e.Event == fi.Shutdown:
			fmt.Println("shutdown")
		}
	}
}

// A victim is a peer process.
type victim struct {
	t   testing.TB
	cmd *exec.Cmd
	out *bufio.Scanner
	at  wire.Addr
}

func startVictim(t testing.TB, port uint16, keyFile string) *victim {
	t.Helper()
	exe, err := os.Executable()
	ok(t, err)
	v := &victim{t: t, cmd: exec.Command(exe)}
	v.cmd.Env = append(os.Environ(), strings.TrimSpace(fmt.Sprint(peerEnv, "=", port, " ", keyFile)))
	v.cmd.Stderr = os.Stderr
	out, err := v.cmd.StdoutPipe()
	ok(t, err)
	ok(t, v.cmd.Start())
	t.Cleanup(v.kill)
	v.out = bufio.NewScanner(out)
	v.at, err = wire.ParseAddr(v.line())
	ok(t, err)
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	if !v.out.Scan() {
		v.t.Fatal("the peer process ended")
	}
	return strings.TrimSpace(v.out.Text())
}

func (v *victim) kill() {
	if v.cmd.ProcessState == nil {
		_ = v.cmd.Process.Signal(syscall.SIGCONT)
		_ = v.cmd.Process.Kill()
		_ = v.cmd.Wait()
	}
}

// stop stops the process until SIGCONT.
func (v *victim) stop() {
	v.t.Helper()
	ok(v.t, v.cmd.Process.Signal(syscall.SIGSTOP))
	var ws syscall.WaitStatus
	for !ws.Stopped() {
		_, err := syscall.Wait4(v.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
		if err != nil && err != syscall.EINTR {
			v.t.Fatal(err)
		}
	}
}

// connectTo connects a new endpoint to a peer process.
func (r *rig) connectTo(v *victim) *node {
	r.t.Helper()
	n := r.plug(r.info)
	ok(r.t, n.Connect(v.at, nil))
	event(r.t, n.evts, fi.Connected)
	if s := v.line(); s != "connected" {
		r.t.Fatal(s)
	}
	return n
}

func TestF11CrashedPeer(t *testing.T) {
	t.Parallel()
	// R-CM-12, F11: the peer's process is killed while something is owed. The network reports
	// its port as closed. SuspectTimeout later every operation has ended and there is one
	// fi.Shutdown.
	r := newMsgRig(t, func(in *Info) { in.Config.Tuning.SuspectTimeout = 300 * time.Millisecond })
	v := startVictim(t, 0, "")
	n := r.connectTo(v)
	ok(t, n.TRecv(make([]byte, 8), 0, 1, 0, "recv"))
	v.kill()
	start := time.Now()
	ok(t, n.TSend([]byte("anybody?"), 0, 1, "send"))
	e := waitErr(t, n.tx)
	if e.Context != "send" || e.Err != fi.EHOSTUNREACH || !e.OutcomeUnknown {
		t.Errorf("%+v", &e)
	}
	if e := waitErr(t, n.rx); e.Context != "recv" || e.Err != fi.EHOSTUNREACH {
		t.Errorf("%+v", &e)
	}
	if e := event(t, n.evts, fi.Shutdown); e.Fid != n.Endpoint {
		t.Errorf("%+v", e)
	}
	if d := time.Since(start); d < 300*time.Millisecond || d > 2*time.Second {
		t.Errorf("told after %v", d)
	}
	want(t, n.TSend(nil, 0, 1, nil), fi.ESHUTDOWN)
	ok(t, n.Close())
	quiet(t, n.evts)
}

func TestF9IdlePeerIsLost(t *testing.T) {
	t.Parallel()
	// R-CM-12, F9: the peer's process is killed while nothing is owed. The idle time of
	// connection management reveals it at the latest.
	r := newMsgRig(t, func(in *Info) { in.Config.CM.Idle = 900 * time.Millisecond })
	v := startVictim(t, 0, "")
	n := r.connectTo(v)
	ok(t, n.TRecv(make([]byte, 8), 0, 1, 0, "recv"))
	v.kill()
	start := time.Now()
	event(t, n.evts, fi.Shutdown)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("told after %v", d)
	}
	if e := waitErr(t, n.rx); e.Context != "recv" || e.Err != fi.ETIMEDOUT {
		t.Errorf("%+v", &e)
	}
	quiet(t, n.evts)
}

func TestF9SilentPeer(t *testing.T) {
	t.Parallel()
	// R-CM-12, F9: the peer's host stops answering while something is owed. Packet delivery
	// gives up before connection management does.
	r := newMsgRig(t, func(in *Info) { in.Config.Tuning.PeerTimeout = 500 * time.Millisecond })
	v := startVictim(t, 0, "")
	n := r.connectTo(v)
	ok(t, n.TRecv(make([]byte, 8), 0, 1, 0, "recv"))
	v.stop()
	start := time.Now()
	ok(t, n.TSend([]byte("anybody?"), 0, 1, "send"))
	if e := waitErr(t, n.tx); e.Context != "send" || e.Err != fi.ETIMEDOUT || e.Prov != ProvGaveUp {
		t.Errorf("%+v", &e)
	}
	if e := waitErr(t, n.rx); e.Context != "recv" || e.Err != fi.ETIMEDOUT {
		t.Errorf("%+v", &e)
	}
	event(t, n.evts, fi.Shutdown)
	if d := time.Since(start); d < 500*time.Millisecond || d > 5*time.Second {
		t.Errorf("told after %v", d)
	}
	quiet(t, n.evts)
	// The peer runs again and learns that it was given up (R-CM-11).
	ok(t, v.cmd.Process.Signal(syscall.SIGCONT))
	if s := v.line(); s != "shutdown" {
		t.Error(s)
	}
}

func TestF12RestartedPeer(t *testing.T) {
	t.Parallel()
	// R-CM-12, F12: the peer's process is killed and another one has its address and its
	// cluster key. That one reports that it does not know the connection, long before the idle
	// time is over.
	path := filepath.Join(t.TempDir(), "key")
	ok(t, WriteClusterKey(path, NewKey(1)))
	sec, err := LoadClusterKey(path)
	ok(t, err)
	r := newMsgRig(t, secured(fi.EpMsg, sec), func(in *Info) {
		in.Config.CM.Idle, in.Config.CM.KeepAlive = 2*patience, 300*time.Millisecond
	})
	v := startVictim(t, 0, path)
	n := r.connectTo(v)
	ok(t, n.TRecv(make([]byte, 8), 0, 1, 0, "recv"))
	v.kill()
	again := startVictim(t, v.at.Port, path)
	if again.at != v.at {
		t.Fatalf("the peer is at %v, was at %v", again.at, v.at)
	}
	event(t, n.evts, fi.Shutdown)
	if e := waitErr(t, n.rx); e.Context != "recv" || e.Err != fi.ECONNABORTED {
		t.Errorf("%+v", &e)
	}
	talking := r.connectTo(again)
	ok(t, talking.Close())
	quiet(t, n.evts)
}
