package main

import (
	"bytes"
	"context"

	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
	"github.com/uetkit/uetkit/testbed/simulated"
)

// played returns the function that plays a scenario in the simulator.
func played(say func(string, ...any)) func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
	return func(ctx context.Context, sc *scenario.Scenario, seed uint64) (*result.Result, error) {
		return simulated.Play(ctx, sc, seed, &lines{say: say})
	}
}

// A lines is a writer that passes on what is written to it, line by line.
type lines struct {
	say  func(string, ...any)
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.say("%s", line)
		l.rest = rest
	}
}
