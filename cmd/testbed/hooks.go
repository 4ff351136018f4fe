package main

import (
	"context"
	"io"
	"strings"

	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/simulated"
)

var htmlReport, junitReport func(io.Writer, []*result.Result) error

// played runs scenarios in the simulator.
func played(say func(string, ...any)) func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
	return func(ctx context.Context, sc *scenario.Scenario, seed uint64) (*result.Result, error) {
		return simulated.Play(ctx, sc, seed, lines(say))
	}
}

// lines says each line that is written.
type lines func(string, ...any)

func (l lines) Write(b []byte) (int, error) {
	l("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}
