package main

import (
	"bytes"
	"testing"

	"github.com/uetkit/uetkit/testbed/stranger/commands"
)

// Every uetdump command line of the pages is one that uetdump takes.
func TestPagesNameCommandsThatThereAre(t *testing.T) {
	lines, err := commands.Of("../..", "uetdump")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		var out bytes.Buffer
		if l.Inline && len(l.Args) < 2 { // no file
			l.Args = append(l.Args, "--help")
		}
		if cfg, code := parse(l.Args, &out, &out); cfg == nil && code != 0 {
			t.Errorf("%s:%d: %s: exit status %d: %s", l.Page, l.Line, l.Text, code, &out)
		}
	}
	if len(lines) < 10 {
		t.Errorf("only %d command lines", len(lines))
	}
}
