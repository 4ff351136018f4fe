// Command uetperf measures and checks Ultra Ethernet Transport over UDP. Without arguments
// it checks the host it runs on. With `uetperf serve` on one host, `uetperf
// lat|bw|rate|ping HOST` on another measures between the two.
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

// mainCode does everything that main does except exit, and returns the exit code.
func mainCode() int {
	cfg, code := parse(os.Args[1:], os.Stdout, os.Stderr)
	if cfg == nil {
		return code
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if cfg.UntilEOF {
		// The server of a self-check ignores signals. The terminal sends them to parent and
		// server alike, and the server ends when its parent closes standard input.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	} else {
		sig := make(chan os.Signal, 1)
		signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
		if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
			signal.Notify(sig, syscall.SIGHUP) // the terminal is gone, but the record must still be written
		}
		go heed(sig, cancel, time.Now, func() { os.Exit(exitInterrupted) })
	}
	if cfg.writesFiles() {
		// When the reader of standard output goes away (as head does), the writing of the files
		// must go on.
		signal.Ignore(syscall.SIGPIPE)
	}
	return run(ctx, cfg, os.Stdout, os.Stderr)
}

// twice is how long after the first signal a second one is ignored. One Ctrl-C may arrive
// twice: timeout(1), make and others pass on to their child what the terminal, or they
// themselves, have sent to its process group.
const twice = 300 * time.Millisecond

// heed cancels the test at the first signal and exits at once at the second one.
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
