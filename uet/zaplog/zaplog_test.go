package zaplog_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/uetkit/uetkit/uet"
	"github.com/uetkit/uetkit/uet/zaplog"
)

// A zap logger gets the lines of an endpoint with their level and fields, and those of its own,
// and no stack traces.
func TestNew(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	to := zaplog.New(zap.New(core).Named("fabric").With(zap.String("job", "7")))
	to.Debug("not asked for")
	to.Info("enabled", slog.Int("mtu", 4096))
	to.Warn("slow", slog.Bool("gso", false))
	to.Error("lost", slog.Any("error", errors.New("gone")))
	type line struct {
		Level   zapcore.Level
		Message string
		Fields  map[string]any
	}
	want := []line{
		{zap.InfoLevel, "enabled", map[string]any{"job": "7", "mtu": int64(4096)}},
		{zap.WarnLevel, "slow", map[string]any{"job": "7", "gso": false}},
		{zap.ErrorLevel, "lost", map[string]any{"job": "7", "error": "gone"}},
	}
	var got []line
	for _, e := range logs.All() {
		got = append(got, line{e.Level, e.Message, e.ContextMap()})
		if e.LoggerName != "fabric" || e.Stack != "" {
			t.Errorf("name %q, stack %q", e.LoggerName, e.Stack)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if zaplog.New(nil) != nil {
		t.Error("a nil logger logs")
	}
	_ = uet.Config{Logger: to}
}
