// Package zaplog lets uetkit write its log by zap.
package zaplog

import (
	"log/slog"
	"math"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
)

// New returns a logger for uet.Config.Logger that writes to the core of a zap logger, with its
// name and fields. Levels are those of equal name. A nil log gives nil, which disables logging.
func New(log *zap.Logger) *slog.Logger {
	if log == nil {
		return nil
	}
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName(log.Name()), zapslog.AddStacktraceAt(math.MaxInt)))
}
