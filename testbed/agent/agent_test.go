package agent

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/testbed/fabric"
	"github.com/uetkit/uetkit/testbed/scenario"
)

// lookup makes a getenv of variables.
func lookup(vars []string) func(string) string {
	return func(name string) string {
		for _, v := range vars {
			if k, val, _ := strings.Cut(v, "="); k == name {
				return val
			}
		}
		return ""
	}
}

func TestEnvRoundTrip(t *testing.T) {
	want := &Env{
		Role: "client", Case: "clean", Out: "/out", Keys: "/keys", Wait: true, Security: "psk", Capture: true, TCP: true, Seed: 42, Limit: 30 * time.Second,
		Peers:   map[string]netip.Addr{"s": netip.MustParseAddr("198.18.16.2"), "c": netip.MustParseAddr("198.18.17.2")},
		Gateway: netip.MustParseAddr("198.18.17.1"), Route: scenario.Range,
		Traffic: []scenario.Traffic{{From: "c", To: "s", Test: "bw", Time: fabric.Duration(1500 * time.Millisecond), At: fabric.Duration(time.Second)}},
	}
	got, err := ReadEnv(lookup(append(want.Vars(), "UET_OUT=/out", "UET_KEYS=/keys")))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestReadEnvRefuses(t *testing.T) {
	good := []string{"UET_ROLE=client", "UET_OUT=/out", "UET_PEERS=s=198.18.16.2", `UET_TRAFFIC=[{"To":"s","Test":"bw"}]`}
	if _, err := ReadEnv(lookup(good)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"UET_ROLE=router", "UET_OUT=", "UET_PEERS=s", "UET_PEERS=z=198.18.16.2", "UET_TRAFFIC={", "UET_SEED=x", "UET_LIMIT=5", "UET_GATEWAY=x",
		"UET_GATEWAY=198.18.16.1",
	} {
		name, _, _ := strings.Cut(bad, "=")
		if name == "UET_GATEWAY" {
			name = "UET_" // the route is missing, or the address is bad
		}
		if name == "UET_PEERS" {
			name = "UET_" // the use of it finds the error
		}
		_, err := ReadEnv(lookup(append([]string{bad}, good...)))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestCommand(t *testing.T) {
	peers := map[string]netip.Addr{"s": netip.MustParseAddr("198.18.16.2")}
	for _, tt := range []struct {
		name string
		env  Env
		want string
	}{
		{
			"plain", Env{Traffic: []scenario.Traffic{{To: "s", Test: "bw", Size: "1M", Time: fabric.Duration(3 * time.Second)}}},
			"bw 198.18.16.2 -s 1M -t 3s -c --base-rtt 500µs --progress auto -q -J /out/0.json",
		},
		{
			"all", Env{Seed: 7, Capture: true, Security: "psk", Keys: "/keys", Traffic: []scenario.Traffic{{
				To: "s", Test: "bw", Op: "tsend", Iters: 9, Window: 4, Parallel: 2, Mode: "rod", Complete: "delivery", Reverse: true, NoCheck: true, Paths: 4,
				CC: "nscc", MTU: 1024, Trim: true,
			}}},
			"bw 198.18.16.2 tsend -n 9 -W 4 -P 2 --mode rod --complete delivery -R --trim --base-rtt 500µs --paths 4 --cc nscc --mtu 1024 --progress auto --sec psk --keys /keys --seed 7 --pcap /out/0.pcapng -q -J /out/0.json",
		},
		{
			"tls", Env{Security: "tls", Keys: "/keys", Traffic: []scenario.Traffic{{To: "s", Test: "lat", Iters: 3}}},
			"lat 198.18.16.2 -n 3 -c --base-rtt 500µs --progress auto -e msg --sec tls --keys /keys -q -J /out/0.json",
		},
	} {
		tt.env.Peers, tt.env.Out = peers, "/out"
		if got := strings.Join(tt.env.Command(0), " "); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// output may be written by several goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string { return o.b.String() }

// program writes a shell script that takes the place of uetperf.
func program(t *testing.T, script string) string {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh to stand for uetperf")
	}
	name := filepath.Join(t.TempDir(), "uetperf")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// runHost runs a host with the script as uetperf; out is its folder.
func runHost(t *testing.T, ctx context.Context, script string, e Env) (code int, said, out string) {
	t.Helper()
	out = t.TempDir()
	e.Peers = map[string]netip.Addr{"s": netip.MustParseAddr("198.18.16.2")}
	vars := append(e.Vars(), "UET_OUT="+out)
	for i, v := range vars { // without its own network
		if strings.HasPrefix(v, "UET_GATEWAY=") || strings.HasPrefix(v, "UET_ROUTE=") {
			vars[i] = "X="
		}
	}
	if e.Wait {
		if err := os.WriteFile(filepath.Join(out, Go), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var b output
	code = Host(ctx, lookup(vars), program(t, script), &b, &b)
	return code, b.String(), out
}

func traffic(tests ...string) (out []scenario.Traffic) {
	for _, test := range tests {
		out = append(out, scenario.Traffic{To: "s", Test: test, Iters: 1})
	}
	return out
}

// All entries run one after another, and the exit status is that of the one that failed.
func TestClientRunsInTurn(t *testing.T) {
	script := `[ "$1" != lat ]`
	code, said, out := runHost(t, t.Context(), script+` || exit 3`, Env{Role: "client", Wait: true, Traffic: traffic("bw", "lat", "rate")})
	if code != ExitFailed {
		t.Errorf("exit %d, want %d; %s", code, ExitFailed, said)
	}
	i, j, k := strings.Index(said, "+ uetperf bw"), strings.Index(said, "+ uetperf lat"), strings.Index(said, "+ uetperf rate")
	if i < 0 || j < i || k < j {
		t.Errorf("not in turn: %s", said)
	}
	if _, err := os.Stat(filepath.Join(out, Ready)); err != nil {
		t.Error(err)
	}
	if code, said, _ := runHost(t, t.Context(), "exit 0", Env{Role: "client", Traffic: traffic("bw", "lat")}); code != ExitOK {
		t.Errorf("exit %d; %s", code, said)
	}
}

// An entry with a time runs beside the others: each of the two waits for the other.
func TestClientRunsBeside(t *testing.T) {
	script := `d=$(dirname "$0"); touch "$d/$1"; for o in bw lat; do while [ ! -e "$d/$o" ]; do sleep 0.01; done; done`
	tr := traffic("bw", "lat")
	tr[1].At = fabric.Duration(time.Millisecond)
	code, said, _ := runHost(t, t.Context(), script, Env{Role: "client", Traffic: tr, Limit: time.Minute})
	if code != ExitOK {
		t.Errorf("exit %d; %s", code, said)
	}
}

func TestClientLimit(t *testing.T) {
	code, said, _ := runHost(t, t.Context(), "exec sleep 60", Env{Role: "client", Traffic: traffic("bw"), Limit: 50 * time.Millisecond})
	if code != ExitLimit || !strings.Contains(said, "the limit of 50ms is over") {
		t.Errorf("exit %d; %s", code, said)
	}
}

// A client that is stopped before it was started ends without error.
func TestClientStoppedWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := Env{Role: "client", Traffic: traffic("bw")}
	out := t.TempDir()
	e.Peers = map[string]netip.Addr{"s": netip.MustParseAddr("198.18.16.2")}
	h := &host{&e, "/nonexistent", &bytes.Buffer{}, &bytes.Buffer{}}
	e.Out, e.Wait = out, true
	if err := h.client(ctx); err != nil {
		t.Error(err)
	}
}

func TestServer(t *testing.T) {
	// The server is ready when it says so, and ends without error when it is stopped.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := Env{Role: "server", Out: t.TempDir()}
	h := &host{&e, program(t, `echo "uetperf serves at x"; exec sleep 60`), &bytes.Buffer{}, &bytes.Buffer{}}
	done := make(chan error)
	go func() { done <- h.serve(ctx) }()
	for {
		if _, err := os.Stat(filepath.Join(e.Out, Ready)); err == nil {
			break
		}
		select {
		case err := <-done:
			t.Fatalf("ended early: %v", err)
		case <-t.Context().Done():
			t.Fatal("never ready")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	code, said, _ := runHost(t, t.Context(), "echo no; exit 4", Env{Role: "server"})
	if code != ExitFailed || !strings.Contains(said, "uetperf serve: exit status 4") {
		t.Errorf("exit %d; %s", code, said)
	}
	if code, said, _ := runHost(t, t.Context(), "exit 0", Env{Role: "server"}); code != ExitFailed || !strings.Contains(said, "ended by itself") {
		t.Errorf("exit %d; %s", code, said)
	}
}

// A stream of TCP leaves a record of what the server says that came, and ends with its context.
func TestTCP(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := netip.MustParseAddrPort("127.0.0.1:0")
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().(*net.TCPAddr).AddrPort()
	_ = l.Close()
	if err := sinkTCP(ctx, addr); err != nil {
		t.Fatal(err)
	}
	n, took, err := streamTCP(ctx, addr, 20*time.Millisecond)
	if err != nil || n < tcpWrite || n%tcpWrite != 0 || took < 20*time.Millisecond {
		t.Errorf("%d bytes in %v, %v", n, took, err)
	}
	h := &host{&Env{Out: t.TempDir(), Seed: 3}, "", io.Discard, io.Discard}
	if err := h.leave(2, time.Now(), &scenario.Traffic{Test: scenario.TCP}, 5e6, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(h.Out, "2.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := record.Read(f)
	if err != nil || !rec.OK || rec.Config.Test != scenario.TCP || len(rec.Runs) != 1 || rec.Runs[0].Bytes != 5e6 || *rec.Runs[0].GoodputBPS != 2e7 {
		t.Errorf("%+v, %v", rec, err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := streamTCP(ctx, addr, time.Hour)
		ended <- err
	}()
	cancel()
	if err := <-ended; err == nil {
		t.Error("a stream outlives its context")
	}
}
