// Package agent is the entry program of hosts and of the switch in a lab. It sets the
// network of its host up and turns the traffic of a scenario into uetperf commands.
//
// Its environment variables are a contract that an image of another implementation must
// keep, too; testbed/README.md describes them.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uetkit/uetkit/testbed/scenario"
)

// Exit statuses.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitLimit       = 124 // UET_LIMIT was over
	ExitUnsupported = 127
)

// Files in UET_OUT.
const (
	Ready = "ready" // made by the host when it is
	Go    = "go"    // made by the runner: clients begin
)

// A host is a running agent of a host.
type host struct {
	*Env
	perf   string // program
	stdout io.Writer
	stderr io.Writer
}

// Host runs a host until its work is done or ctx ends, and returns its exit status. perf is
// the path of uetperf.
func Host(ctx context.Context, get func(string) string, perf string, stdout, stderr io.Writer) int {
	e, err := ReadEnv(get)
	if err == nil && e.Gateway.IsValid() {
		err = setupHost(e.Gateway, e.Route)
	}
	if err == nil {
		h := &host{e, perf, stdout, stderr}
		if e.Role == "server" {
			err = h.serve(ctx)
		} else {
			err = h.client(ctx)
		}
	}
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		fmt.Fprintf(stderr, "agent: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return ExitFailed
	}
	return ExitOK
}

// An exitCode is an exit status whose reason has been printed.
type exitCode int

func (c exitCode) Error() string { return "exit status " + strconv.Itoa(int(c)) }

func (h *host) touch(name string) error {
	return os.WriteFile(filepath.Join(h.Out, name), nil, 0o666)
}

// serve runs the server until ctx ends.
func (h *host) serve(ctx context.Context) error {
	if h.TCP {
		if err := sinkTCP(ctx, netip.AddrPortFrom(netip.IPv4Unspecified(), tcpPort)); err != nil {
			return err
		}
	}
	args := []string{"serve"}
	if h.Keys != "" {
		args = append(args, "--keys", h.Keys)
	}
	c := h.command(ctx, args)
	c.Stdout = &seen{w: h.stdout, word: "serves at", then: func() { _ = h.touch(Ready) }}
	return ended(ctx, c, "uetperf serve")
}

// ended runs a command that should run until ctx ends.
func ended(ctx context.Context, c *exec.Cmd, what string) error {
	err := c.Run()
	switch {
	case ctx.Err() != nil && c.ProcessState != nil && c.ProcessState.ExitCode() <= 0:
		return nil // as it was told
	case err == nil:
		return fmt.Errorf("%s ended by itself", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// command returns a uetperf command with arguments.
func (h *host) command(ctx context.Context, args []string) *exec.Cmd {
	return command(ctx, h.stdout, h.stderr, h.perf, args)
}

// command returns a command that is terminated when ctx ends, and killed if it ignores
// that.
func command(ctx context.Context, stdout, stderr io.Writer, program string, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Stdout, c.Stderr = stdout, stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 8 * time.Second
	return c
}

// A seen passes on what is written to it, and calls then once when word appears.
type seen struct {
	w    io.Writer
	word string
	then func()
	text string
}

func (s *seen) Write(b []byte) (int, error) {
	if s.then != nil {
		if s.text += string(b); strings.Contains(s.text, s.word) {
			s.then()
			s.then, s.text = nil, ""
		}
	}
	return s.w.Write(b)
}

// client waits for the start and then runs the traffic: entries with At at their time, the
// others one after another.
func (h *host) client(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(h.Out, Ready)); err == nil {
		// This is a second life at the same address. It must not repeat the packet numbers
		// of the first, so it uses no seed.
		h.Seed = 0
	}
	if err := h.touch(Ready); err != nil {
		return err
	}
	if h.Wait && !h.await(ctx) {
		return nil // told to stop before anything began
	}
	limited := ctx
	if h.Limit > 0 {
		var cancel func()
		limited, cancel = context.WithTimeout(ctx, h.Limit)
		defer cancel()
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		worst exitCode
		turn  []int
	)
	do := func(i int) {
		if code := h.do(limited, i); code != ExitOK {
			mu.Lock()
			defer mu.Unlock()
			worst = code
		}
	}
	for i, t := range h.Traffic {
		if t.At <= 0 {
			turn = append(turn, i)
			continue
		}
		wg.Go(func() {
			select {
			case <-limited.Done():
			case <-time.After(time.Duration(t.At)):
				do(i)
			}
		})
	}
	wg.Go(func() {
		for _, i := range turn {
			do(i)
		}
	})
	wg.Wait()
	switch {
	case ctx.Err() != nil:
		return exitCode(ExitFailed)
	case limited.Err() != nil:
		fmt.Fprintf(h.stderr, "agent: the limit of %v is over\n", h.Limit)
		return exitCode(ExitLimit)
	case worst != ExitOK:
		return worst
	}
	return nil
}

// do runs one entry of the traffic.
func (h *host) do(ctx context.Context, i int) exitCode {
	if h.Traffic[i].Test == scenario.TCP {
		return h.tcp(ctx, i)
	}
	args := h.Command(i)
	fmt.Fprintf(h.stdout, "+ uetperf %s\n", strings.Join(args, " "))
	err := h.command(ctx, args).Run()
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(h.stderr, "agent: uetperf %s: %v\n", h.Traffic[i].Test, err)
	return ExitFailed
}

// await waits for the file that lets clients begin. It returns false if ctx ends before.
func (h *host) await(ctx context.Context) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(h.Out, Go)); err == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}
