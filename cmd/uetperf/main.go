// Command uetperf measures and checks Ultra Ethernet Transport over UDP: without
// arguments it checks the host it runs on; `uetperf serve` on one host and
// `uetperf lat|bw|rate|ping HOST` on another measure between two.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
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
	// The first signal ends a test in order, the second at once.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-sig
		cancel()
		<-sig
		os.Exit(exitInterrupted)
	}()
	return run(ctx, cfg, os.Stdout, os.Stderr)
}
