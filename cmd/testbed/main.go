// Command testbed plays scenarios on a deliberately bad network. The hosts and a software
// switch run as containers, in network namespaces, or in the simulator. One file describes
// the faults of the network, the traffic of the hosts, and the expected result.
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
