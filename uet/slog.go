package uet

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger returns the logger of the Config, nil if there is none.
func (c *Config) logger() *zap.Logger {
	if c.Slog != nil {
		return zap.New(&slogCore{handler: c.Slog.Handler()})
	}
	return c.Logger
}

// A slogCore is the zap core that writes to a handler of log/slog.
type slogCore struct{ handler slog.Handler }

// slogLevel returns the level of log/slog: they count by fours.
func slogLevel(l zapcore.Level) slog.Level { return slog.Level(4 * int(min(l, zapcore.ErrorLevel))) }

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{c.handler.WithAttrs(slogAttrs(fields))}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	r.AddAttrs(slogAttrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (c *slogCore) Sync() error { return nil }

// slogAttrs returns the fields as attributes, in their order.
func slogAttrs(fields []zapcore.Field) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		if v, ok := m.Fields[f.Key]; ok { // not what zap adds to an error beside its text
			attrs = append(attrs, slog.Any(f.Key, v))
		}
	}
	return attrs
}
