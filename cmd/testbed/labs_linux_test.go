package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uetkit/uetkit/testbed/lab"
	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/substrate"
)

// Labs of tests have names that no other lab has, even if these tests run twice at once,
// and rare addresses.
var (
	testPrefix = "tb" + letters(os.Getpid())
	testBase   = fmt.Sprintf("198.18.%d.0", 64+4*(os.Getpid()%16))
	testLab    = []string{"--prefix", testPrefix, "--base", testBase}
)

// letters writes a number in letters.
func letters(n int) string {
	s := ""
	for ; n > 0; n /= 26 {
		s += string(rune('a' + n%26))
	}
	return s
}

// onLabs runs a test on each substrate that UETKIT_LABS names ("docker netns") and that can
// be used here. These tests start containers and namespaces and need some seconds of an
// idle machine, so go test alone does not run them; .ci/run does.
func onLabs(t *testing.T, f func(t *testing.T, sub, bin string)) {
	if testing.Short() {
		t.Skip("labs take seconds")
	}
	for _, s := range labSubstrates() {
		t.Run(s.Name(), func(t *testing.T) {
			if !slices.Contains(strings.Fields(os.Getenv("UETKIT_LABS")), s.Name()) {
				t.Skipf("UETKIT_LABS=%s starts real hosts", s.Name())
			}
			if err := s.Available(t.Context()); err != nil {
				t.Fatal(err) // the variable asked for it
			}
			bin, err := built()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if left := standing(t, s); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
			f(t, s.Name(), bin)
		})
	}
}

// built builds the programs once.
var built = sync.OnceValues(func() (string, error) {
	root, err := source()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "tbtest")
	if err != nil {
		return "", err
	}
	builtIn = dir
	return build(context.Background(), root, dir, true)
})

// builtIn is the folder of the programs.
var builtIn string

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	if r, err := lab.Open(testPrefix, scenario.Base, ""); err == nil {
		_ = os.RemoveAll(r.Dir())
	}
	os.Exit(code)
}

// standing removes what tests left, and returns what it was.
func standing(t *testing.T, s substrate.Substrate) []string {
	t.Helper()
	left, err := s.Leftovers(context.WithoutCancel(t.Context()), testPrefix, func(string) bool { return false })
	if err != nil {
		t.Error(err)
	}
	return left
}

// A whole run works: the program, the agents, uetperf, the switch.
func TestRun(t *testing.T) {
	onLabs(t, func(t *testing.T, sub, bin string) {
		out := t.TempDir()
		args := append([]string{"run", "./testdata/lives", "--substrate", sub, "--out", out, "--seed", "7", "--no-bench", "--bin", bin}, testLab...)
		code, said, progress := call(t, args...)
		var r result.Result
		data, err := os.ReadFile(filepath.Join(out, "lives-"+sub, "result.json"))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			t.Fatalf("%v; %s%s", err, said, progress)
		}
		if code != exitOK || r.Verdict != result.Pass && r.Verdict != result.Inconclusive {
			t.Fatalf("exit %d, %s\n%s", code, said, progress)
		}
		if r.Verdict == result.Inconclusive {
			t.Log(r.Reason)
		}
		var marks []string
		for _, m := range r.Timeline {
			marks = append(marks, m.What)
		}
		all := strings.Join(marks, ", ")
		for _, want := range []string{"s is paused", "s goes on", "c1 is killed", "c1 ended with exit status 137", "c1 is started again", "c1 ended with exit status 0", "c2 ended with exit status 0"} {
			if !strings.Contains(all, want) {
				t.Errorf("no %q in %s", want, all)
			}
		}
		for _, h := range r.Hosts {
			if h.Exit == nil || *h.Exit != 0 {
				t.Errorf("%s: exit %v, log\n%s", h.Name, h.Exit, h.Log)
			}
			if h.Role == "client" && (h.Record == nil || h.Record.Path == nil || h.Record.Path.MTU != 1500) {
				t.Errorf("%s: record %+v", h.Name, h.Record)
			}
		}
		// The log has every decision about every packet.
		if data, err := os.ReadFile(filepath.Join(out, "lives-"+sub, "switch", "decisions.jsonl")); err != nil || strings.Count(string(data), `"lost_random"`) != int(r.Metrics["net.lost_random"]) {
			t.Errorf("decisions: %v; %d lost at random, %v counted", err, strings.Count(string(data), `"lost_random"`), r.Metrics["net.lost_random"])
		}
		for _, f := range []string{"report.html", "junit.xml"} {
			if _, err := os.Stat(filepath.Join(out, f)); err != nil {
				t.Error(err)
			}
		}
	})
}

// started starts a run that does not end, as a process, and waits until its clients work.
func started(t *testing.T, sub, bin string) *exec.Cmd {
	t.Helper()
	args := append([]string{"run", "./testdata/endless", "--substrate", sub, "--out", t.TempDir(), "--no-bench", "--bin", bin}, testLab...)
	c := exec.Command(filepath.Join(bin, "testbed"), args...)
	said := &firstPacket{seen: make(chan struct{})}
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-said.seen:
	case <-time.After(2 * time.Minute):
		_ = c.Process.Kill()
		_ = c.Wait()
		t.Fatalf("no packet within two minutes: %s", said.text)
	}
	return c
}

// firstPacket waits for the progress line that says that packets flow.
type firstPacket struct {
	text string
	seen chan struct{}
	once bool
}

func (f *firstPacket) Write(b []byte) (int, error) {
	f.text += string(b)
	if !f.once && strings.Contains(f.text, "first packet") {
		f.once = true
		close(f.seen)
	}
	return len(b), nil
}

// A Ctrl-C takes everything down before the program ends.
func TestInterruptedRun(t *testing.T) {
	onLabs(t, func(t *testing.T, sub, bin string) {
		c := started(t, sub, bin)
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if got := c.ProcessState.ExitCode(); got != exitInterrupted {
			t.Errorf("exit %d, want %d: %s", got, exitInterrupted, c.Stderr.(*firstPacket).text)
		}
	})
}

// The next down removes what a killed run left, processes included.
func TestKilledRun(t *testing.T) {
	onLabs(t, func(t *testing.T, sub, bin string) {
		c := started(t, sub, bin)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		if len(running(bin)) == 0 && sub == "netns" {
			t.Error("nothing was left: the test shows nothing")
		}
		code, _, said := call(t, append([]string{"down"}, testLab...)...)
		if code != exitOK || !strings.Contains(said, "removed what was left: ") {
			t.Errorf("exit %d: %s", code, said)
		}
		for deadline := time.Now().Add(10 * time.Second); len(running(bin)) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("still running: %v", running(bin))
			}
		}
		dirs, err := filepath.Glob(filepath.Join(registryDir(t, testPrefix), testPrefix+"*"))
		for _, d := range dirs {
			if st, e := os.Stat(d); e == nil && st.IsDir() {
				t.Errorf("left %s", d)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// running returns the processes whose program lies in a folder.
func running(bin string) (out []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, p := range procs {
		if exe, err := os.Readlink(p); err == nil && strings.HasPrefix(exe, bin+"/") {
			out = append(out, exe)
		}
	}
	return out
}

// Addresses that are in use give one line that says by whom, and nothing is left.
func TestAddressInUse(t *testing.T) {
	onLabs(t, func(t *testing.T, sub, bin string) {
		if sub != "docker" {
			t.Skip("namespaces have their addresses to themselves")
		}
		if out, err := exec.Command("docker", "network", "create", "--subnet", testBase+"/24", testPrefix+"-other").CombinedOutput(); err != nil {
			t.Fatalf("docker network create: %v: %s", err, out)
		}
		t.Cleanup(func() {
			if out, err := exec.Command("docker", "network", "rm", testPrefix+"-other").CombinedOutput(); err != nil {
				t.Errorf("docker network rm: %v: %s", err, out)
			}
		})
		args := append([]string{"run", "./testdata/endless", "--substrate", sub, "--out", t.TempDir(), "--no-bench", "--bin", bin}, testLab...)
		code, said, _ := call(t, args...)
		if code != exitFailed || !strings.Contains(strings.Join(strings.Fields(said), " "), testPrefix+"-other") {
			t.Errorf("exit %d: %s", code, said)
		}
	})
}
