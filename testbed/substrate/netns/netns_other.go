//go:build !linux

// Package netns makes labs of network namespaces, on Linux.
package netns

import (
	"context"
	"fmt"
	"io"

	"github.com/uetkit/uetkit/testbed/substrate"
)

// Substrate cannot be used here.
type Substrate struct{}

// Name is netns.
func (Substrate) Name() string { return "netns" }

// Available says that it is not.
func (Substrate) Available(context.Context) error {
	return fmt.Errorf("network namespaces are of Linux (%w)", substrate.ErrUnsupported)
}

// Prepare has nothing to make.
func (Substrate) Prepare(context.Context, string, io.Writer) error { return nil }

// Up says that it is not available.
func (s Substrate) Up(ctx context.Context, _ *substrate.Spec) (substrate.Lab, error) {
	return nil, s.Available(ctx)
}

// Leftovers finds none.
func (Substrate) Leftovers(context.Context, string, func(string) bool) ([]string, error) {
	return nil, nil
}
