package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"time"
)

// switchHTTP is where uetswitch listens, inside its own network namespace.
const switchHTTP = "127.0.0.1:9797"

// Switch runs the switch with arguments until ctx ends. It makes the switch's HTTP
// interface reachable by a unix socket from any network namespace.
func Switch(ctx context.Context, program, socket string, args []string, stdout, stderr io.Writer) int {
	if err := runSwitch(ctx, program, socket, args, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "agent: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		return ExitFailed
	}
	return ExitOK
}

// runSwitch is Switch with an error in place of an exit status.
func runSwitch(ctx context.Context, program, socket string, args []string, stdout, stderr io.Writer) error {
	if err := setupSwitch(); err != nil {
		return err
	}
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	// The runner may be another user than the process inside the container.
	if err := os.Chmod(socket, 0o666); err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: switchHTTP})
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	defer func() {
		_ = srv.Close()
		<-done
	}()
	return ended(ctx, command(ctx, stdout, stderr, program, append(args, "--http", switchHTTP)), "uetswitch")
}
