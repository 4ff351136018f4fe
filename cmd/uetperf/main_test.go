package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/uetkit/uetkit/cmd/uetperf/internal/keys"
	"github.com/uetkit/uetkit/cmd/uetperf/record"
	"github.com/uetkit/uetkit/internal/said"
)

// TestMain runs uetperf if the test binary was called by that name.
func TestMain(m *testing.M) {
	// The tests mostly wait for timeouts or for the end of a test's time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	// Beside other tests and under the race detector, two cores give the self-check far less
	// than it expects.
	stepsLimit = 5 * time.Minute
	testscript.Main(m, map[string]func(){"uetperf": main})
}

// uetperf returns a process of this program.
func uetperf(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "uetperf"
	return cmd
}

// A server is a server process.
type server struct {
	cmd  *exec.Cmd
	addr string
	out  *bufio.Reader // output after the address
}

func startServeProcess(args ...string) (*server, error) {
	cmd := uetperf(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	rd := bufio.NewReader(out)
	line, err := rd.ReadString('\n')
	_, _ = rd.ReadString('\n') // the table of ports
	f := strings.Fields(line)
	if err != nil || len(f) == 0 {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("server said %q: %v, %v", line, err, cmd.Wait())
	}
	return &server{cmd, f[len(f)-1], rd}, nil
}

// stop ends the process by a signal and returns its exit status.
func (s *server) stop(sig os.Signal) error {
	_ = s.cmd.Process.Signal(sig)
	return s.cmd.Wait()
}

func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	s, err := startServeProcess(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.stop(syscall.SIGKILL) })
	return s
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE") != "",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  cmdExits,
			"server": cmdServer,
			"silent": cmdSilent,
			"record": cmdRecord,
			"masked": cmdMasked,

			"packets": cmdPackets,
			"secrets": cmdSecrets,
			"expired": cmdExpired,
			"refused": cmdRefused,
			"ports":   cmdPorts,
			"table":   said.Table,
		},
	})
}

// exits CODE COMMAND…: the command ends with this exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if (got == want) == neg {
		ts.Fatalf("exit code %d, want %d (negated: %v)", got, want, neg)
	}
}

// server [ARG…]: starts a server; $HOST is its address.
func cmdServer(ts *testscript.TestScript, _ bool, args []string) {
	s, err := startServeProcess(args...)
	ts.Check(err)
	ts.Defer(func() { _ = s.stop(syscall.SIGKILL) })
	ts.Setenv("HOST", s.addr)
}

// silent: $HOST is an address where a socket receives and sends nothing, and so is the next
// port, which is for -e msg.
func cmdSilent(ts *testscript.TestScript, _ bool, _ []string) {
	for {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		ts.Check(err)
		ts.Defer(func() { _ = c.Close() })
		at := c.LocalAddr().(*net.UDPAddr).AddrPort()
		next, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), at.Port()+1)))
		if errors.Is(err, syscall.EADDRINUSE) || at.Port() == 1<<16-1 {
			continue
		}
		ts.Check(err)
		ts.Defer(func() { _ = next.Close() })
		ts.Setenv("HOST", at.String())
		return
	}
}

// record FILE: the file (or stdout) holds one record and nothing else. $OK, $SIZES, $ERROR
// and $KIND are set to its ok, the sizes of its runs, its error, and its endpoint type.
func cmdRecord(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	r, err := readRecord(strings.NewReader(text))
	ts.Check(err)
	schema, err := recordSchema()
	ts.Check(err)
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	ts.Check(err)
	ts.Check(schema.Validate(v))
	ts.Setenv("OK", strconv.FormatBool(r.OK))
	var sizes []string
	for _, run := range r.Runs {
		sizes = append(sizes, strconv.FormatInt(run.Size, 10))
	}
	ts.Setenv("KIND", r.Config.EP+"/"+r.Config.Sec)
	ts.Setenv("SIZES", strings.Join(sizes, ","))
	ts.Setenv("ERROR", r.Error)
}

// recordSchema reads the schema that every record must meet.
var recordSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return jsonschema.NewCompiler().Compile("../../docs/record.schema.json")
})

// secrets FOLDER OUTPUT…: no output contains a key of the folder.
func cmdSecrets(ts *testscript.TestScript, _ bool, args []string) {
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*.key"))
	ts.Check(err)
	for _, f := range files {
		for _, line := range strings.Fields(ts.ReadFile(f)) {
			for _, out := range args[1:] {
				if len(line) > 20 && strings.Contains(ts.ReadFile(out), line) {
					ts.Fatalf("%s shows what is in %s", out, f)
				}
			}
		}
	}
}

// expired FOLDER: makes keys whose certificates have expired.
func cmdExpired(ts *testscript.TestScript, _ bool, args []string) {
	_, err := keys.Make(ts.MkAbs(args[0]), nil, time.Now().Add(-2*keys.Life))
	ts.Check(err)
}

// refused ARG…: a client that is still let in is refused within 5 s. Its last words are in
// the file "said".
func cmdRefused(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("still let in")
		}
		cmd := uetperf(args...)
		cmd.Dir = ts.MkAbs(".")
		out, err := cmd.CombinedOutput()
		if err != nil {
			if code := cmd.ProcessState.ExitCode(); code != exitFailed {
				ts.Fatalf("exit code %d: %s", code, out)
			}
			if !bytes.Contains(out, []byte("no connection")) {
				continue // the client was let in, and then put out
			}
			ts.Check(os.WriteFile(ts.MkAbs("said"), out, 0o666))
			return
		}
	}
}

// packets OUTPUT FILE: FILE holds as many packets as OUTPUT says. Their comments are
// written to the file "comments".
func cmdPackets(ts *testscript.TestScript, _ bool, args []string) {
	m := regexp.MustCompile(`(?m)^pcap: (\d+) packets in ` + args[1] + "$").FindStringSubmatch(ts.ReadFile(args[0]))
	if m == nil {
		ts.Fatalf("nothing is said of packets")
	}
	f, err := os.Open(ts.MkAbs(args[1]))
	ts.Check(err)
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	ts.Check(err)
	var comments []string
	for {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if err == io.EOF {
			break
		}
		ts.Check(err)
		comments = append(comments, opts.Comments...)
	}
	if m[1] != strconv.Itoa(len(comments)) {
		ts.Fatalf("%d comments, want one for each of %s packets", len(comments), m[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs("comments"), []byte(strings.Join(comments, "\n")+"\n"), 0o666))
}

// masked FILE [WORD]: writes FILE without what differs between runs, and without the lines that begin with
// WORD, to the file "masked".
func cmdMasked(ts *testscript.TestScript, _ bool, args []string) {
	var out []string
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if len(args) > 1 && strings.HasPrefix(line, args[1]) {
			continue
		}
		for _, m := range masks {
			line = m.re.ReplaceAllString(line, m.by)
		}
		if len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("masked"), []byte(strings.Join(out, "")), 0o666))
}

var masks = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`^path: .*; seed `), "path: PATH; seed "}, // hosts differ; json.txtar checks the path
	{regexp.MustCompile(`; dropped .*`), ""},
	{regexp.MustCompile(`slowest of .* Gb/s; `), ""}, // a short run has too few intervals
	{regexp.MustCompile(` hosts? \([^)]*\)`), " host (HOST)"},
	{regexp.MustCompile(`retransmission\b`), "retransmissions"},
	{regexp.MustCompile(` \([\d.]+ lost, [\d.]+ spurious\)`), ""}, // only if something was sent again
	{regexp.MustCompile(`(127\.0\.0\.1(:\d+)?) \([^)]*\)`), "$1 (HOST)"},
	{regexp.MustCompile(`(\d) [kMG] `), "$1 "}, // units of units.Count
	{regexp.MustCompile(` -( |$)`), " #$1"},    // not measured
	{regexp.MustCompile(`p999_ns|p50|p90|p99\.9|p99|127\.0\.0\.1|CRC-32C`), "<$0>"},
	{regexp.MustCompile(`\d+(\.\d+)?( [KMGT]iB)`), "# xiB"},
	{regexp.MustCompile(`\d+(\.\d+)? (ns|µs|ms|s)\b`), "T"},
	{regexp.MustCompile(`(<[^<>]*>)|-?\d+(\.\d+)?`), "${1}#"},
	{regexp.MustCompile(`(<[^<>]*>)#`), "$1"},
	{regexp.MustCompile(`<([^<>]*)>`), "$1"},
	{regexp.MustCompile(` +`), " "},
}

func readRecord(rd io.Reader) (*record.Record, error) {
	d := json.NewDecoder(rd)
	d.DisallowUnknownFields()
	r := new(record.Record)
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the record: %v", err)
	}
	if r.Schema != record.Schema {
		return nil, fmt.Errorf("schema %q", r.Schema)
	}
	return r, nil
}

// recordIn reads the record in a file.
func recordIn(t *testing.T, file string) *record.Record {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := readRecord(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A client is a process whose output is watched.
type client struct {
	*exec.Cmd
	out, err bytes.Buffer
	mu       sync.Mutex
	seen     chan struct{}
}

// runClient starts a client and waits until its output satisfies want.
func runClient(t *testing.T, want func(out []byte) bool, args ...string) *client {
	t.Helper()
	return startClient(t, want, func(*exec.Cmd) {}, args...)
}

func startClient(t *testing.T, want func(out []byte) bool, change func(*exec.Cmd), args ...string) *client {
	t.Helper()
	c := &client{Cmd: uetperf(args...), seen: make(chan struct{})}
	change(c.Cmd)
	seen := false
	c.Cmd.Stdout = writerFunc(func(b []byte) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out.Write(b)
		if !seen && want(c.out.Bytes()) {
			close(c.seen)
			seen = true
		}
		return len(b), nil
	})
	c.Cmd.Stderr = &c.err
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	select {
	case <-c.seen:
	case <-time.After(patience):
		_ = c.Process.Kill()
		_ = c.Wait()
		t.Fatalf("not as wanted in %v:\n%s%s", patience, &c.out, &c.err)
	}
	return c
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// code waits for the end of the process and returns the exit code.
func (c *client) code(t *testing.T) int {
	t.Helper()
	err := c.Wait()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// patience is how long a test of a minute may take to measure something, and to end after
// an interrupt: less than the test would run by itself.
const patience = 50 * time.Second

// anInterval matches an interval line of -s 64K and -s 8: messages and time, or time and
// rate.
var anInterval = regexp.MustCompile(`(?m)^ +(?:64K|8) +(?:(\d+) +(\d+\.\d) |(\d+\.\d) s +(\d+) )`)

// warmLines is the number of lines with a message that end every warm-up.
const warmLines = 11

// intervals reports whether a test has measured for a while, that is, whether something
// completed long after the warm-up, however slow host and test are.
func intervals(out []byte) bool {
	lines, warm, before := 0, 0.0, 0.0
	for _, m := range anInterval.FindAllSubmatch(out, -1) {
		n, at := string(m[1])+string(m[4]), string(m[2])+string(m[3])
		now, err := strconv.ParseFloat(at, 64)
		if err != nil {
			panic(err)
		}
		if strings.Trim(n, "0") != "" {
			if lines++; lines == warmLines {
				warm = now
			}
			if lines > warmLines && before-warm > 0.25 { // the times are rounded
				return true
			}
		}
		before = now
	}
	return bytes.Contains(out, []byte("tests, 0 failed"))
}

func TestInterruptPrintsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms"},
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-R"},
		{"lat", "", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms"},
		{"load", "", "--rate", "2k/s", "-s", "8", "-t", "60s", "-w", "1", "-i", "100ms", "--progress", "auto"},
		{"load", "", "--rate", "900M/s", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms"},
		{"rr", "", "-s", "8", "-t", "60s", "-w", "1", "-i", "100ms", "--progress", "auto"},
		{"rr", "", "-s", "8", "-t", "60s", "-w", "1", "-i", "100ms", "--churn", "-e", "msg"},
		{"incast", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms"},
		{"soak", "", "-t", "60s", "-i", "1ms"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			args[1] = newServer(t).addr
			file := t.TempDir() + "/r.json"
			c := runClient(t, intervals, append(args, "-J", file)...)
			begin := time.Now()
			_ = c.Process.Signal(os.Interrupt)
			if code := c.code(t); code != exitInterrupted {
				t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
			}
			if d := time.Since(begin); d > patience {
				t.Errorf("it took %v to end", d)
			}
			if got := strings.TrimSpace(c.err.String()); got != "uetperf: interrupted" {
				t.Errorf("stderr %q", got)
			}
			if strings.Contains(c.out.String(), "no message came") {
				t.Errorf("nothing was wrong, but it says what waited:\n%s", &c.out)
			}
			r := recordIn(t, file)
			if r.OK || r.Error != "interrupted" || len(r.Runs) != 1 || r.Runs[0].Msgs == 0 || r.Runs[0].DurationNS < int64(100*time.Millisecond) {
				t.Errorf("record %+v\n%s", r, &c.out)
			}
		})
	}
}

// intervals becomes true on a slow host, too, whose lines show few messages or none.
func TestIntervals(t *testing.T) {
	line := func(n int, at float64) string {
		return fmt.Sprintf("%8s %10d %7.1f %14s %9s %12s\n", "64K", n, at, "1", "2", "3")
	}
	var out strings.Builder
	at := 0.0
	say := func(lines, n int, step float64) {
		for range lines {
			at += step
			out.WriteString(line(n, at))
		}
	}
	for i, step := range []struct {
		lines, n int
		step     float64
		want     bool
	}{
		{20, 0, 0.1, false}, {10, 1, 0.1, false}, {2, 1, 0, false}, {5, 0, 0.1, false}, {1, 1, 0.1, true},
	} {
		say(step.lines, step.n, step.step)
		if got := intervals([]byte(out.String())); got != step.want {
			t.Errorf("step %d: %v\n%s", i, got, &out)
		}
	}
	rates := strings.Repeat("       8     0.1 s           17 round trips/s\n", warmLines) + "       8     0.4 s            0 round trips/s\n       8     0.5 s            9 round trips/s\n"
	if !intervals([]byte(rates)) {
		t.Error("rates are no messages")
	}
}

// A second signal exits at once, but a repetition of the first one does not.
func TestSecondSignal(t *testing.T) {
	exits := func(times ...time.Duration) (n int) {
		sig := make(chan os.Signal, len(times))
		for range times {
			sig <- os.Interrupt
		}
		close(sig)
		heed(sig, func() {}, func() time.Time {
			now := time.Unix(0, 0).Add(times[0])
			times = times[1:]
			return now
		}, func() { n++ })
		return n
	}
	if exits(0, 0, twice-1) != 0 {
		t.Error("an echo ends at once")
	}
	if exits(0, time.Millisecond, twice, 2*twice) != 1 {
		t.Error("a second signal does not end at once")
	}
}

// newKeys makes a folder of keys.
func newKeys(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "keys")
	if _, err := keys.Make(folder, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return folder
}

var goneLine = regexp.MustCompile(`^uetperf: the server was lost: nothing listens at 127\.0\.0\.1:\d+ \(UDP\) any more, or the host is gone; look there what ended .uetperf serve., and start it again$`)

// T36: a removed member is out within 5 s, even in the middle of a test. The server goes on
// with others.
func TestMemberRemoved(t *testing.T) {
	t.Parallel()
	theirs, mine := newKeys(t), t.TempDir()
	for _, f := range []string{"ca.pem", "client.pem", "client.key", "server.pem", "server.key"} { // the client does not learn of the removal
		b, err := os.ReadFile(filepath.Join(theirs, f))
		if err == nil {
			err = os.WriteFile(filepath.Join(mine, f), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, "--keys", theirs)
	args := []string{"bw", s.addr, "-e", "msg", "--sec", "tls", "--keys", mine, "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms"}
	c := runClient(t, intervals, args...)
	begin := time.Now()
	if err := keys.Remove(theirs, keys.Client); err != nil {
		t.Fatal(err)
	}
	if code := c.code(t); code != exitFailed {
		t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %v to end", d)
	}
	if lines := strings.Split(strings.TrimSpace(c.err.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], "was removed") && !strings.Contains(lines[0], "closed the connection") {
		t.Errorf("stderr %q", lines)
	}
	if out, err := uetperf("lat", s.addr, "-e", "msg", "--sec", "tls", "--keys", mine, "--as", "server", "-s", "8", "-n", "10").CombinedOutput(); err != nil {
		t.Errorf("another member: %v: %s", err, out)
	}
}

// If the server is killed the client ends within 10 s and prints what it measured.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	folder := newKeys(t)
	for _, args := range [][]string{
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-c"},
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-R"}, // the client sends nothing that needs an answer
		{"lat", "", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms"},
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-e", "msg"},
		{"lat", "", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms", "-e", "msg", "--sec", "tls", "--keys", folder},
		{"bw", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "--sec", "psk", "--keys", folder},
		{"load", "", "--rate", "2k/s", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms", "-c"},
		{"rr", "", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms"},
		{"rr", "", "-s", "8", "-t", "60s", "-w", "10", "-i", "100ms", "--churn"},
		{"rr", "", "-s", "8", "-t", "60s", "-w", "1", "-i", "100ms", "--churn", "-e", "msg"},
		{"incast", "", "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-c"},
		{"soak", "", "-t", "60s", "-i", "1ms"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			var c *client
			var d time.Duration
			for range 3 {
				s := newServer(t, "--keys", folder)
				args[1] = s.addr
				c = runClient(t, intervals, args...)
				begin := time.Now()
				_ = s.stop(syscall.SIGKILL)
				if code := c.code(t); code != exitFailed {
					t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
				}
				d = time.Since(begin)
				if !strings.Contains(c.err.String(), "PDS NACK INV_DPDCID") {
					break
				}
				t.Log("an endpoint of another test took the server's port, and answered")
			}
			t.Logf("ended after %v: %s", d, c.err.String())
			if d > 10*time.Second {
				t.Errorf("it took %v to end", d)
			}
			if lines := strings.Split(strings.TrimSpace(c.err.String()), "\n"); len(lines) != 1 || !goneLine.MatchString(lines[0]) {
				t.Errorf("stderr is not one line: %q", lines)
			}
			if last := c.out.String()[strings.LastIndex(strings.TrimSpace(c.out.String()), "\n")+1:]; strings.Contains(last, "nothing was measured") {
				t.Errorf("no partial result: %s", &c.out)
			}
			// Time without a peer does not lower any rate.
			if args[0] == "load" {
				row := regexp.MustCompile(`(?m)^ +8 +(\d+) +\d+ .* (-|\d+)$`).FindStringSubmatch(c.out.String())
				if row == nil {
					t.Fatalf("no result: %s", &c.out)
				}
				offered, _ := strconv.Atoi(row[1])
				if cpu, _ := strconv.Atoi(row[2]); offered < 1990 || offered > 2010 || cpu > 100*runtime.NumCPU() {
					t.Errorf("2000 requests a second on %d processors: %s", runtime.NumCPU(), row[0])
				}
			}
		})
	}
}

// A client that is killed is forgotten because its port is closed (F11), well before its
// silence would suffice. The server goes on.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--max-clients", "1")
	c := runClient(t, intervals, "bw", s.addr, "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms")
	_ = c.Process.Kill()
	_ = c.Wait()
	deadline := time.Now().Add(8 * time.Second)
	for {
		out, err := uetperf("lat", s.addr, "-s", "8", "-n", "10").CombinedOutput()
		if err == nil {
			return
		}
		if !bytes.Contains(out, []byte("busy")) || time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, out)
		}
		time.Sleep(100 * time.Millisecond) // between two attempts
	}
}

// 100 MiB arrive intact over real sockets, two processes and a relay between them, whatever
// the relay does.
func TestLossyRelay(t *testing.T) {
	t.Parallel()
	for _, faults := range []string{
		"loss=1%", "loss=5%", "loss=20%", "loss=2%,burst=8", "reorder=5%", "dup=5%", "corrupt=2%", "loss=5%,reorder=5%,dup=5%,corrupt=1%",
	} {
		for _, mode := range []string{"rud", "rod"} {
			t.Run(faults+" "+mode, func(t *testing.T) {
				t.Parallel()
				s := newServer(t)
				var out, errs bytes.Buffer
				// 400 messages of 256 KiB are 100 MiB.
				cmd := uetperf("bw", s.addr, "tsend", "-s", "256K", "-n", "400", "-w", "0", "-W", "16", "-c", "--impair", faults, "--mode", mode, "--seed", "5", "-J", "-")
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s%s", err, &out, &errs)
				}
				r, err := readRecord(&out)
				if err != nil {
					t.Fatal(err)
				}
				run := r.Runs[0]
				if c := run.DataCheck; c == nil || c.OK != 400 || c.Wrong != 0 || run.Lost == nil || *run.Lost != 0 {
					t.Errorf("data check %+v, lost %v", run.DataCheck, run.Lost)
				}
				t.Logf("%.2f Gb/s, %d sent again of %d", *run.GoodputBPS/1e9, run.Transport.Rtx(), run.Transport.TxPkts)
			})
		}
	}
}

func TestServeEndsInOrder(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	if err := s.stop(os.Interrupt); err != nil {
		t.Errorf("interrupted server: %v", err)
	}
	s = newServer(t, "--once")
	if out, err := uetperf("ping", s.addr, "-n", "1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("serve --once: %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Error("serve --once goes on after its client")
	}
}

// The metrics keep the counts of a test after its endpoints are closed.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--metrics", "127.0.0.1:0")
	line, err := s.out.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "metrics at ")
	if err != nil || !ok {
		t.Fatalf("%q, %v", line, err)
	}
	for _, ep := range []string{"rdm", "rdm", "msg"} {
		if out, err := uetperf("bw", s.addr, "-e", ep, "-s", "1000", "-n", "50", "-w", "0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	wanted := []string{
		`uet_messages_total{direction="rx",endpoint="test"} 150`,
		`uet_message_bytes_total{direction="rx",endpoint="test"} 150000`,
		`uet_endpoints{endpoint="test"} 0`,
		`uet_endpoints{endpoint="control"} 1`,
		`uetperf_clients 0`,
		// The control connection of one client, and the connection of its stream.
		`uet_connections_total{endpoint="control"} 2`,
		`uet_handshakes_total{endpoint="control"} 2`,
		`uet_posted_receives{endpoint="test"} 0`,
	}
	var text, missing string
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // the server hears of the end a moment later
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		text, missing = string(b), ""
		for _, want := range wanted {
			if !strings.Contains(text, "\n"+want+"\n") {
				missing = want
			}
		}
		if missing == "" || time.Now().After(deadline) {
			break
		}
	}
	if missing != "" {
		t.Errorf("no %s in\n%s", missing, text)
	}
	// Every metric of the dashboard exists.
	board, err := os.ReadFile("../../docs/grafana/uetkit.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\buet(?:perf)?_\w+`).FindAllString(string(board), -1) {
		if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("the dashboard shows %s, which is not served", name)
		}
	}
	if err := s.stop(os.Interrupt); err != nil {
		t.Error(err)
	}
}

// The server serves clients of all kinds at once, each with its own data.
func TestServerServesMany(t *testing.T) {
	t.Parallel()
	folder := newKeys(t)
	s := newServer(t, "--keys", folder)
	var wg sync.WaitGroup
	places := make(chan struct{}, 5) // more would leave the server too little of two cores under the race detector
	for i := range 10 {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			args := []string{"bw", s.addr, "-s", "32K", "-n", "300", "-c", "-P", "2"}
			if i%2 == 0 {
				args = []string{"lat", s.addr, "-s", "1K", "-n", "300", "-c", "--progress", "auto"}
			}
			args = append(args, [][]string{
				nil, {"-e", "msg"}, {"--sec", "psk", "--keys", folder}, {"-e", "msg", "--sec", "psk", "--keys", folder}, {"-e", "msg", "--sec", "tls", "--keys", folder},
			}[i%5]...)
			if out, err := uetperf(args...).CombinedOutput(); err != nil {
				t.Errorf("%v: %v: %s", args, err, out)
			}
		})
	}
	wg.Wait()
}

func TestParseListen(t *testing.T) {
	for in, want := range map[string]netip.AddrPort{
		"192.0.2.7:99": netip.MustParseAddrPort("192.0.2.7:99"), "192.0.2.7": netip.MustParseAddrPort("192.0.2.7:4793"),
		"[::1]:99": netip.MustParseAddrPort("[::1]:99"), "::1": netip.MustParseAddrPort("[::1]:4793"),
		"99": netip.AddrPortFrom(netip.Addr{}, 99), ":99": netip.AddrPortFrom(netip.Addr{}, 99),
	} {
		if got, err := parseListen(in); err != nil || got != want {
			t.Errorf("parseListen(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "host:99", "1.2.3:4", "99999"} {
		if got, err := parseListen(in); err == nil {
			t.Errorf("parseListen(%q) = %v", in, got)
		}
	}
}

// ports HOST MSG: $MSG is the address of the server at HOST for connections.
func cmdPorts(ts *testscript.TestScript, _ bool, args []string) {
	at, err := netip.ParseAddrPort(args[0])
	ts.Check(err)
	ts.Setenv(args[1], netip.AddrPortFrom(at.Addr(), at.Port()+1).String())
}
