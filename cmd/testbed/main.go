// Command testbed plays scenarios on a network that is bad on purpose: hosts and a
// software switch as containers, in network namespaces, or in the simulator. One file
// says what the network does, what the hosts do, and what must come of it.
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
	exitFailed      = 1
	exitUsage       = 2
	exitUnsupported = 127
	exitInterrupted = 130
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}
