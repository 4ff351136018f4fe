package main

import (
	"bytes"
	"testing"

	pages "github.com/uetkit/uetkit/testbed/stranger/commands"
)

// Every testbed command line of the pages names a command, flags and values that there are.
func TestPagesNameCommandsThatThereAre(t *testing.T) {
	lines, err := pages.Of("../..", "testbed")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		var out bytes.Buffer
		if code := run(t.Context(), append(l.Args, "--help"), &out, &out); code != 0 {
			t.Errorf("%s:%d: %s: exit status %d: %s", l.Page, l.Line, l.Text, code, &out)
		}
	}
	if len(lines) < 10 {
		t.Errorf("only %d command lines", len(lines))
	}
}
