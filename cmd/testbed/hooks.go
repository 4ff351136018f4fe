package main

import (
	"context"
	"errors"
	"io"

	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
)

var htmlReport, junitReport func(io.Writer, []*result.Result) error

func played(func(string, ...any)) func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
	return func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
		return nil, errors.New("not yet")
	}
}
