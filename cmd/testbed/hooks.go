package main

import (
	"context"
	"errors"

	"github.com/uetkit/uetkit/testbed/result"
	"github.com/uetkit/uetkit/testbed/scenario"
)

func played(func(string, ...any)) func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
	return func(context.Context, *scenario.Scenario, uint64) (*result.Result, error) {
		return nil, errors.New("not yet")
	}
}
