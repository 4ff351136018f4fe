package mp

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// Main is a main program: it joins the world, calls f with the communicator of all ranks, and
// ends the world in order. If f fails or panics, it prints why and aborts the job: the other
// ranks are ended by the launcher, and this process exits with code 1.
func Main(f func(ctx context.Context, c *Comm) error) {
	ctx := context.Background()
	w, err := Init(ctx, Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := w.Run(ctx, f); err != nil {
		w.Abort(1, err.Error())
	}
}

// closeLimit is how long Run waits for peers that do not take what was sent to them.
const closeLimit = time.Minute

// Run calls f with the communicator of all ranks and closes the world if f succeeds. A panic of
// f is an error with the stack in it.
func (w *World) Run(ctx context.Context, f func(ctx context.Context, c *Comm) error) (err error) {
	if err := guarded(ctx, w.world, f); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	return w.Close(ctx)
}

func guarded(ctx context.Context, c *Comm, f func(ctx context.Context, c *Comm) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f(ctx, c)
}

// Abort prints why, ends the job through the launcher, and exits with the code.
func (w *World) Abort(code int, why string) { w.ex.Abort(code, why) }
