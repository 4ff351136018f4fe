package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/uetkit/uetkit/internal/said"
)

// What wrong command lines say, word by word.
func TestWrongLines(t *testing.T) {
	t.Chdir("testdata/wrong")
	said.Golden(t, "lines", func(words []string) (int, string) {
		var out bytes.Buffer
		code := run(t.Context(), words[1:], &out, &out)
		return code, out.String()
	})
}

// The help of a flag has one placeholder for its value, and says nothing twice.
func TestHelpOfFlags(t *testing.T) {
	_, help, _ := call(t, "run", "-h")
	for _, want := range []string{"--keep  ", "leave labs up; \"testbed down\" takes them down", "--substrate KIND "} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in\n%s", want, help)
		}
	}
	if n := strings.Count(help, "docker|netns"); n > 0 {
		t.Errorf("docker|netns %d times in\n%s", n, help)
	}
}

// A shell completes the keys that explain knows.
func TestCompleteExplain(t *testing.T) {
	_, out, _ := call(t, "__complete", "explain", "")
	for _, want := range []string{"\nrule\n", "\nevent.on\n", "limit\n", ":4\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if _, out, _ := call(t, "__complete", "explain", "rule", ""); out != ":4\n" {
		t.Errorf("a second key: %q", out)
	}
}
