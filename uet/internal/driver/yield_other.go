//go:build !linux

package driver

import "runtime"

func schedYield() { runtime.Gosched() }
