package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

// full is the standard output of a process whose disk is full.
type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
}

// What could not be written is no success, whoever the output was for.
func TestFullDiskFails(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		stderr string
	}{
		"people":   {[]string{"info", "-d", "lo"}, "uetperf: standard output: no space left on device\n"},
		"machines": {[]string{"info", "-d", "lo", "-J", "-"}, "uetperf: -J standard output: no space left on device\n"},
		"page":     {[]string{"report", "internal/render/testdata/lat.json", "-o", "-"}, "uetperf: -o standard output: no space left on device\n"},
		"changes":  {[]string{"compare", "internal/render/testdata/lat.json", "internal/render/testdata/lat.json", "-J", "-"}, "uetperf: -J standard output: no space left on device\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			cfg, _ := parse(c.args, full{}, &stderr)
			if cfg == nil {
				t.Fatal(&stderr)
			}
			if code := run(t.Context(), cfg, full{}, &stderr); code != exitFailed || !strings.HasSuffix(stderr.String(), c.stderr) {
				t.Errorf("exit code %d, %s", code, &stderr)
			}
		})
	}
}

// Nor is help, or a version, that could not be written.
func TestFullDiskFailsHelp(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-h"}, {"help"}, {"help", "bw"}, {"bw", "-h"}} {
		var stderr bytes.Buffer
		if cfg, code := parse(args, full{}, &stderr); cfg != nil || code != exitFailed || stderr.String() != "uetperf: standard output: no space left on device\n" {
			t.Errorf("%v: exit code %d, %q", args, code, &stderr)
		}
	}
}

func TestNoIntervalsIfAskedFor(t *testing.T) {
	tty, err := os.Open(os.DevNull) // a character device, which is what terminals are told by
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	for arg, want := range map[string]bool{"0": false, "1s": true} {
		var out bytes.Buffer
		cfg, _ := parse([]string{"bw", "HOST", "-t", "5s", "-i", arg}, &out, &out)
		if cfg == nil {
			t.Fatal(&out)
		}
		if p := newPrinter(tty, cfg); p.every > 0 != want {
			t.Errorf("-i %s: every %v", arg, p.every)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	var stderr bytes.Buffer
	if code := report(&usage{errors.Join(errors.New("one\nline\n"), errors.New("two  words"))}, &stderr); code != exitUsage || stderr.String() != "uetperf: one line; two words\n" {
		t.Errorf("exit code %d, %q", code, &stderr)
	}
}
