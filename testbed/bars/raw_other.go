//go:build !linux

package main

import (
	"fmt"
	"os"
)

func raw([]string) {
	fmt.Fprintln(os.Stderr, "bars: the raw baselines need Linux")
	os.Exit(1)
}
