//go:build !linux

package netswitch

import "context"

// Bench measures the switch, on Linux.
func Bench(context.Context, BenchConfig) (*BenchResult, error) { return nil, errLinux }
