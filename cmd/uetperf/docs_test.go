package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/testbed/stranger/commands"
)

// mentions are commands that sentences name without what they need.
var mentions = []string{"bw", "coll", "incast", "keys", "lat", "load", "mesh", "p2p", "ping", "rate", "report", "compare", "rr", "soak", "alltoall"}

// Every uetperf command line of the pages is one that uetperf takes: the command, its operands, its flags
// and their values.
func TestPagesNameCommandsThatThereAre(t *testing.T) {
	lines, err := commands.Of("../..", "uetperf")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		args := slices.Clone(l.Args)
		switch {
		case l.Part(): // a flag, of which nobody says the command
			args = slices.Concat([]string{"bw", "HOST"}, args)
			if len(l.Args) == 1 { // nor the value
				args = []string{"bw", "HOST", "--help"}
			}
		case l.Inline && len(args) == 1 && slices.Contains(mentions, args[0]):
			args = append(args, "--help")
		}
		var out bytes.Buffer
		if cfg, code := parse(args, &out, &out); cfg == nil && code != 0 {
			t.Errorf("%s:%d: %s: exit status %d: %s", l.Page, l.Line, l.Text, code, &out)
		}
		if name, _, _ := strings.Cut(l.Args0(), "="); l.Part() && len(l.Args) == 1 && !strings.Contains(out.String(), name) {
			t.Errorf("%s:%d: %s: there is no %s", l.Page, l.Line, l.Text, name)
		}
	}
	if len(lines) < 80 {
		t.Errorf("only %d command lines", len(lines))
	}
}
