package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/uetkit/uetkit/internal/said"
)

// The test binary is uetdump when it is called so.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"uetdump": main})
}

func TestScripts(t *testing.T) {
	captures, err := filepath.Abs(filepath.Join("testdata", "captures"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, UpdateScripts: *rewrite || os.Getenv("UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TZ", "UTC")
			// Captures are files of the directory a script runs in: names in its output
			// are the same everywhere.
			return os.CopyFS(e.WorkDir, os.DirFS(captures))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": cmdExits, "table": said.Table},
	})
}

// exits CODE COMMAND…: the command ends with this exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var ee *exec.ExitError
		if !errors.As(err, &ee) {
			ts.Fatalf("%v", err)
		}
		got = ee.ExitCode()
	}
	if (got == want) == neg {
		ts.Fatalf("exit code %d, want %d (negated: %v)", got, want, neg)
	}
}
