package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"fabrics":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "--config: give the file"},
		{"run", exitUsage, "--config: give the file"},
		{"fly", exitUsage, `unknown argument "fly"`},
		{"bench fly", exitUsage, `unknown argument "fly"`},
		{"--speed 3", exitUsage, "unknown flag: --speed"},
		{"--config x --log-max 0", exitUsage, "--log-max 0"},
		{"--config x --spin 1h", exitUsage, "--spin 1h"},
		{"--config /does/not/exist", exitFailed, "/does/not/exist"},
		{"--config " + bad, exitFailed, `unknown field "fabrics"`},
		{"--spin soon", exitUsage, `--spin: time "soon" is not like 10s, 500ms or 1h (see uetswitch -h)`},
		{"--log-max x", exitUsage, `--log-max: "x" is not a whole number (see uetswitch -h)`},
		{"--config /does/not/exist", exitFailed, "--config: open /does/not/exist"},
		{"bench --size 12", exitFailed, "size 12: give the length of an IP packet"},
		{"bench --trial 1ns", exitFailed, "trial 1ns"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(c.args), &out, &errs)
		if code != c.code || !strings.Contains(errs.String(), c.want) || strings.Count(errs.String(), "\n") != 1 || out.Len() > 0 {
			t.Errorf("uetswitch %s: %d %q %q", c.args, code, &errs, &out)
		}
	}
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"-h"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "--log-all") || errs.Len() > 0 {
		t.Errorf("-h: %d %s %s", code, &out, &errs)
	}
	out.Reset()
	if code := run(context.Background(), []string{"--version"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), ", wire UE ") || errs.Len() > 0 {
		t.Errorf("--version: %d %s %s", code, &out, &errs)
	}
}
