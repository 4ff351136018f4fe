package main

import (
	"bytes"
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
