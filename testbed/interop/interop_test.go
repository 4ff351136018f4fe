package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestMain gives the tests a network of their own, where there can be one.
func TestMain(m *testing.M) {
	if tools() != nil {
		os.Exit(m.Run())
	}
	code, ok, err := isolate()
	if ok || code != 0 {
		os.Exit(code)
	}
	alone = err
	os.Exit(m.Run())
}

// alone says why there is no network of our own.
var alone error

// needPeer skips a test where the peer cannot run.
func needPeer(t *testing.T) {
	if err := tools(); err != nil {
		t.Skip(err)
	}
}

// TestPeer is the peer's own: known answers, single packets, pairs in memory; and captures, where
// there are some.
func TestPeer(t *testing.T) {
	needPeer(t)
	dir := t.TempDir()
	if err := unpack(dir); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "selftest.py")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestPeerPlaysItsRole has the peer keep the contract of the lab's images (docs/test-lab.md): a role and a case
// by the environment, exit status 0 where every message came back right, 127 for what it does not have.
func TestPeerPlaysItsRole(t *testing.T) {
	needPeer(t)
	dir := t.TempDir()
	if err := unpack(dir); err != nil {
		t.Fatal(err)
	}
	start := func(role, name string, more ...string) (*exec.Cmd, *bufio.Reader) {
		c := exec.Command(python, "peer.py", "role")
		c.Dir = dir
		c.Env = append(os.Environ(), append(more, "UET_ROLE="+role, "UET_CASE="+name, "UET_PEERS=server=127.77.1.1,client=127.77.1.2")...)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		return c, bufio.NewReader(out)
	}
	status := func(c *exec.Cmd, out *bufio.Reader) int {
		said, _ := io.ReadAll(out)
		if _ = c.Wait(); c.ProcessState.ExitCode() != 0 {
			t.Logf("%s", said)
		}
		return c.ProcessState.ExitCode()
	}
	for _, name := range []string{"interop-rud", "interop-rod"} {
		server, said := start("server", name)
		if _, err := said.ReadString('\n'); err != nil {
			t.Fatalf("%s: the server: %v", name, err)
		}
		if got := status(start("client", name)); got != 0 {
			t.Errorf("%s: the client ends with %d", name, got)
		}
		_ = server.Process.Signal(syscall.SIGTERM)
		if got := status(server, said); got != 0 {
			t.Errorf("%s: the server ends with %d", name, got)
		}
	}
	if got := status(start("client", "interop-rud", "UET_LIMIT=0.2s")); got != 124 {
		t.Errorf("a client without a server ends with %d, want 124", got)
	}
	for _, more := range [][]string{{"client", "mtu-shrink"}, {"switch", "interop-rud"}, {"client", "interop-rud", "UET_SEC=psk"}} {
		if got := status(start(more[0], more[1], more[2:]...)); got != 127 {
			t.Errorf("%v: status %d, want 127", more, got)
		}
	}
}

// TestInterop plays each case of its own name, but those with a known fault, and some of the
// combinations. All are played by go run ./testbed/interop.
func TestInterop(t *testing.T) {
	needPeer(t)
	if alone != nil {
		t.Skip(alone)
	}
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	plays := slices.DeleteFunc(plan(1, 40, ""), func(p play) bool { return p.wrong != "" })
	if err := playAll(plays, 1, 2, func(line string) { t.Log(line) }); err != nil {
		t.Error(err)
	}
}

// The checks see what they are there for.
func TestVerifySeesFaults(t *testing.T) {
	var sent []message
	var right []receipt
	for n, size := range []int{10, 0, 20, 0} {
		d := uint64(n)
		m := message{n: n, tag: 7, data: &d, content: content(1, n, size)}
		sent = append(sent, m)
		right = append(right, receipt{post: n, size: size, sha256: digest(m.content), tag: 7, data: &d, clean: true})
	}
	if err := verify(sent, right, true, true, true); err != nil {
		t.Fatal(err)
	}
	other := uint64(77)
	for _, test := range []struct {
		name, want string
		change     func([]receipt) []receipt
	}{
		{"wrong byte", "no message", func(r []receipt) []receipt { r[0].sha256 = digest([]byte("x")); return r }},
		{"short", "no message", func(r []receipt) []receipt { r[0].size--; return r }},
		{"twice", "no message, or one twice", func(r []receipt) []receipt { r[2] = r[0]; r[2].post = 2; return r }},
		{"one twice, more than there are", "no message, or one twice", func(r []receipt) []receipt { return append(r, r[0]) }},
		{"one missing", "4 messages were sent, 3 received", func(r []receipt) []receipt { return r[:3] }},
		{"another receive", "receive 2 has message 0", func(r []receipt) []receipt { r[0].post, r[2].post = 2, 0; return r }},
		{"wrong tag", "no message", func(r []receipt) []receipt { r[0].tag++; return r }},
		{"wrong data", "no message", func(r []receipt) []receipt { r[1].data = &other; return r }},
		{"data lost", "no message", func(r []receipt) []receipt { r[1].data = nil; return r }},
		{"written behind it", "bytes behind the message", func(r []receipt) []receipt { r[3].clean = false; return r }},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := verify(sent, test.change(slices.Clone(right)), true, true, true)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, not %q", err, test.want)
			}
		})
	}
}

// The checks of memory see what they are there for.
func TestMemoryChecksSeeFaults(t *testing.T) {
	at := func(b []byte, i int) []byte { b[i] ^= 1; return b }
	all, buf := guarded(10)
	if err := errors.Join(outside(all), equal(buf, bytes.Repeat([]byte{poison}, 10)), dataOf([]uint64{2, 0, 1}, 3)); err != nil {
		t.Fatal(err)
	}
	right := []amo{{operand: 5, old: 0}, {operand: 2, old: 8}, {operand: 3, old: 5}}
	if err := sums(right, 10, false); err != nil {
		t.Fatal(err)
	}
	change := func(f func([]amo)) []amo { a := slices.Clone(right); f(a); return a }
	for _, test := range []struct {
		name string
		err  error
	}{
		{"a byte in front", outside(at(slices.Clone(all), guard-1))},
		{"a byte behind", outside(at(slices.Clone(all), guard+10))},
		{"a wrong byte", equal(at(slices.Clone(buf), 9), buf)},
		{"too short", equal(buf[:9], buf)},
		{"data twice", dataOf([]uint64{0, 1, 1}, 3)},
		{"data missing", dataOf([]uint64{0, 1}, 3)},
		{"another order", sums(right, 10, true)},
		{"an old value that was not there", sums(change(func(a []amo) { a[1].old = 7 }), 10, false)},
		{"two found the same", sums(change(func(a []amo) { a[1].old = 5 }), 10, false)},
		{"an addition twice", sums(right, 12, false)},
	} {
		if test.err == nil {
			t.Errorf("%s: not seen", test.name)
		}
	}
}

// A seed gives the same combinations again, and all of them have different names.
func TestCombosRepeat(t *testing.T) {
	a, b, c := combos(5), combos(5), combos(6)
	if !reflect.DeepEqual(a, b) {
		t.Error("the same seed chose differently")
	}
	if reflect.DeepEqual(a, c) {
		t.Error("another seed chose the same")
	}
	names := map[string]bool{}
	for _, x := range a {
		names[x.String()] = true
	}
	if len(a) != 480 || len(names) != len(a) {
		t.Errorf("%d combinations with %d names", len(a), len(names))
	}
	if n := len(pick(a, 40, 5)); n != 40 {
		t.Errorf("%d were picked, not 40", n)
	}
}

// The content of messages is that which the peer makes.
func TestContent(t *testing.T) {
	needPeer(t)
	dir := t.TempDir()
	if err := unpack(dir); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(python, "-c", "import peer; print(peer.content(5, 6, 700).hex())")
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x\n", content(5, 6, 700)); string(out) != want {
		t.Errorf("the peer makes %.40s…, we %.40s…", out, want)
	}
}
