//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Ctrl-C on a terminal goes to the whole process group, and so to the server of a
// self-check. If a parent passes it on, this process gets it twice.
func TestInterruptOfGroup(t *testing.T) {
	c := startClient(t, regexp.MustCompile(`(?m)^path: `).Match, func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }, "--seed", "1")
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
	_ = c.Process.Signal(syscall.SIGINT)
	if code := c.code(t); code != exitInterrupted {
		t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
	if !strings.Contains(c.out.String(), "│ ping ") || strings.Contains(c.out.String()+c.err.String(), "FAILED") {
		t.Errorf("no table of what was measured, or a check failed:\n%s", &c.out)
	}
	if !strings.HasSuffix(c.err.String(), "uetperf: interrupted\n") {
		t.Errorf("stderr %s", &c.err)
	}
}

// The record of a test is written even if nobody reads the output, as behind head. Without
// a record the test ends, because nothing is left to run for.
func TestNobodyReads(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	file := filepath.Join(t.TempDir(), "r.json")
	for _, args := range [][]string{{"-J", file}, nil} {
		rd, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = rd.Close()
		cmd := uetperf(append([]string{"lat", s.addr, "-s", "8", "-n", "100"}, args...)...)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = wr, &stderr
		_ = cmd.Run()
		_ = wr.Close()
		if args == nil {
			if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != syscall.SIGPIPE {
				t.Errorf("without a record: %v, %s", cmd.ProcessState, &stderr)
			}
			continue
		}
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || stderr.String() != "uetperf: standard output: broken pipe\n" {
			t.Errorf("exit code %d, %q", code, &stderr)
		}
		if r := recordIn(t, file); !r.OK || len(r.Runs) != 1 || r.Runs[0].Msgs != 100 {
			t.Errorf("record %+v", r)
		}
	}
}

// A client notices a server whose host is gone, although no ICMP says so, and although the
// server owes nothing to a client that only receives.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := runClient(t, intervals, "bw", s.addr, "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-R")
	begin := time.Now()
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	if code := c.code(t); code != exitFailed {
		t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("it took %v to end", d)
	}
	// The control channel notices it first, or a message of which only a part came.
	if !strings.HasPrefix(c.err.String(), "uetperf: the server was lost: ") || strings.Count(c.err.String(), "\n") != 1 {
		t.Errorf("stderr %q", &c.err)
	}
	if strings.Contains(c.out.String(), "nothing was measured") {
		t.Errorf("no partial result: %s", &c.out)
	}
	if !regexp.MustCompile(`(?m)^nothing went on for \ds; operations waited:\n  here:  receive[ ,]`).MatchString(c.out.String()) {
		t.Errorf("it is not said what operations waited for: %s", &c.out)
	}
}

// With --silence, client and server wait for an end that is stopped for longer than the
// default permits. This holds for control and data and both kinds of endpoints.
func TestStoppedForLong(t *testing.T) {
	for _, ep := range []string{"rdm", "msg"} {
		for _, who := range []string{"server", "client"} {
			t.Run(ep+" "+who, func(t *testing.T) {
				t.Parallel()
				s := newServer(t)
				c := runClient(t, intervals, "bw", s.addr, "-e", ep, "-s", "64K", "-t", "15s", "-w", "1", "-i", "100ms", "--silence", "30s", "-c")
				p := s.cmd.Process
				if who == "client" {
					p = c.Process
				}
				_ = p.Signal(syscall.SIGSTOP)
				time.Sleep(13 * time.Second)
				_ = p.Signal(syscall.SIGCONT)
				if code := c.code(t); code != exitOK {
					t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
				}
			})
		}
	}
}

// A test that loses its terminal still writes its record. Under nohup it goes on.
func TestHangup(t *testing.T) {
	t.Parallel()
	// Under nohup the programs that this one starts would go on, too.
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	s := newServer(t)
	file := filepath.Join(t.TempDir(), "r.json")
	c := runClient(t, intervals, "bw", s.addr, "-s", "64K", "-t", "60s", "-w", "1", "-i", "100ms", "-J", file)
	_ = c.Process.Signal(syscall.SIGHUP)
	if code := c.code(t); code != exitInterrupted {
		t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `"error": "interrupted"`) {
		t.Errorf("%v: %s", err, b)
	}
}

// A server that is stopped says so, and its clients end with what they measured.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"bw"}, {"bw", "-e", "msg"}, {"bw", "-R"}, {"lat"}, {"soak"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			args = append([]string{args[0], s.addr, "-t", "60s", "-i", "100ms"}, args[1:]...)
			if args[0] != "soak" {
				args = append(args, "-s", "64K", "-w", "1")
			}
			c := runClient(t, intervals, args...)
			if err := s.stop(syscall.SIGTERM); err != nil {
				t.Errorf("the server: %v", err)
			}
			if code := c.code(t); code != exitFailed {
				t.Errorf("exit code %d\n%s%s", code, &c.out, &c.err)
			}
			if !regexp.MustCompile(`^uetperf: the server was lost: 127\.0\.0\.1:\d+ ended the session: the server was stopped; look there what ended .uetperf serve., and start it again\n$`).Match(c.err.Bytes()) {
				t.Errorf("stderr %q", &c.err)
			}
			if strings.Contains(c.out.String(), "nothing was measured") {
				t.Errorf("no partial result: %s", &c.out)
			}
		})
	}
}
