// Command uetperf measures and checks Ultra Ethernet Transport over UDP: without
// arguments it checks the host it runs on; `uetperf serve` on one host and
// `uetperf lat|bw|rate|ping HOST` on another measure between two.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // a test or an assertion failed
	exitUsage       = 2
	exitUnreachable = 3
	exitInterrupted = 130
)

func main() { os.Exit(mainCode()) }

// mainCode is main up to the exit.
func mainCode() int {
	cfg, code := parse(os.Args[1:], os.Stdout, os.Stderr)
	if cfg == nil {
		return code
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if cfg.UntilEOF {
		// The server of a self-check ends with its parent, which hears what the
		// terminal tells both.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	} else {
		sig := make(chan os.Signal, 1)
		signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
		if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
			signal.Notify(sig, syscall.SIGHUP) // the terminal is gone, the record need not be
		}
		go heed(sig, cancel, time.Now, func() { os.Exit(exitInterrupted) })
	}
	if cfg.writesFiles() {
		// Who reads no further, as head, ends what we say, and not what the files are for.
		signal.Ignore(syscall.SIGPIPE)
	}
	return run(ctx, cfg, os.Stdout, os.Stderr)
}

// twice is how long after the first signal a second one counts. One Ctrl-C may
// come twice: timeout(1), make and others pass on to their child what the
// terminal or they themselves have sent to its group.
const twice = 300 * time.Millisecond

// heed ends a test in order at the first signal and at once at the second.
func heed(sig <-chan os.Signal, cancel func(), now func() time.Time, exit func()) {
	<-sig
	first := now()
	cancel()
	for range sig {
		if now().Sub(first) >= twice {
			exit()
			return
		}
	}
}
