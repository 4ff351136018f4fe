package uet

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/uetkit/uetkit/fi"
	"github.com/uetkit/uetkit/transport"
	"github.com/uetkit/uetkit/uet/zaplog"
)

func TestF37StuckLogger(t *testing.T) {
	t.Parallel()
	// F37: a logger asks the endpoint and then does not return. Messages go on. When it
	// returns, the waiting lines are written or counted, and Close waits for that.
	const what = "packets are dropped"
	core, logs := observer.New(zap.DebugLevel)
	in, out := make(chan struct{}), make(chan struct{})
	var a *node
	first := true
	log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == what && first {
			first = false
			a.Diagnose()
			close(in)
			<-out
		}
		return nil
	}))
	r := newRig(t, &Info{Config: Config{Logger: zaplog.New(log)}})
	b := r.node()
	a = r.node()
	warn := func() {
		a.drv.Do(func(time.Duration) { (*owner)(a.Endpoint).unfit(transport.Hint{Reason: transport.DropCRC}) })
	}
	warn()
	<-in
	for range maxLines + 5 {
		warn()
	}
	ok(t, b.Recv(nil, fi.AddrUnspec, nil))
	ok(t, a.Send(nil, a.know(b), nil))
	wait(t, b.rx, a)
	close(out)
	a.lines.flush()
	warn()
	ok(t, a.Close())
	said := logs.FilterMessage(what).All()
	if n := len(said); n != 1+maxLines+1 {
		t.Fatalf("%d lines, want %d", n, 1+maxLines+1)
	}
	if lost := said[1+maxLines].ContextMap()["lines_lost"]; lost != int64(5) {
		t.Errorf("%v lines are said to be lost, want 5", lost)
	}
}
