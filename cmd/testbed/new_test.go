package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewScenarioRuns(t *testing.T) {
	// What new writes can be played at once, and is not written over.
	dir := filepath.Join(t.TempDir(), "mine")
	code, out, errs := call(t, "new", dir)
	if code != exitOK || !strings.Contains(out, "testbed run "+dir) {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "README.md")); err != nil || !strings.HasPrefix(string(b), "# mine\n") {
		t.Errorf("%v: %s", err, b)
	}
	results := t.TempDir()
	code, out, errs = call(t, "run", dir, "--substrate", "sim", "--seed", "7", "-q", "--out", results)
	if code != exitOK || !strings.Contains(out, "3/3") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := call(t, "new", dir); code != exitFailed || !strings.Contains(errs, "is there already") {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, name := range []string{"..", "a.b", " "} {
		if code, _, errs := call(t, "new", name); code != exitUsage || !strings.Contains(errs, "no name for a scenario") {
			t.Errorf("new %q: exit %d: %s", name, code, errs)
		}
	}
}
