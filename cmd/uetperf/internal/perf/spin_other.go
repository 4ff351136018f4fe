//go:build !linux

package perf

import "runtime"

func schedYield() { runtime.Gosched() }
