// Package said is for tests: a script of testscript, or a file, lists command lines, and keeps what
// each says.
package said

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Table is the command `table FILE [NAME...]`: it runs each line of FILE, and writes to the file
// "said" the line, its exit code and all that it printed. $NAME in a line is the variable of the
// script, and its value is $NAME again in the text. Single quotes keep words together. Lines
// that are empty or begin with # are taken over. A file "masks", if there is one, has a regular
// expression and its replacement a line, with " => " between, for what differs between runs.
func Table(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: table FILE [NAME...]")
	}
	var pairs []string
	for _, name := range args[1:] {
		pairs = append(pairs, ts.Getenv(name), "$"+name)
	}
	pairs = append(pairs, ts.MkAbs("."), "$WORK")
	hide := strings.NewReplacer(pairs...)
	masks := masksOf(ts)
	var out strings.Builder
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		line = strings.TrimSpace(line)
		out.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		var words []string
		for _, w := range Words(line) {
			words = append(words, os.Expand(w, ts.Getenv))
		}
		code := 0
		if err := ts.Exec(words[0], words[1:]...); err != nil {
			var ee *exec.ExitError
			if !errors.As(err, &ee) {
				ts.Fatalf("%s: %v", line, err)
			}
			code = ee.ExitCode()
		}
		text := hide.Replace(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
		for _, m := range masks {
			text = m.re.ReplaceAllString(text, m.by)
		}
		for l := range strings.Lines(text) {
			fmt.Fprintf(&out, "  %d  %s\n", code, strings.TrimRight(l, "\n"))
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("said"), []byte(out.String()), 0o666))
}

// Golden runs the command lines of a file in this process, and fails if one of them does not end and say
// what stands indented below it in the file. Lines that begin with # are comments. UPDATE=1 writes
// the file anew.
func Golden(t testing.TB, file string, run func(words []string) (code int, said string)) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		line = strings.TrimSpace(line)
		got.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		code, text := run(Words(line))
		for l := range strings.Lines(text) {
			fmt.Fprintf(&got, "  %d  %s\n", code, strings.TrimRight(l, "\n"))
		}
	}
	if got.String() == string(want) {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Errorf("%s: UPDATE=1 writes it anew; now they say\n%s", file, &got)
		return
	}
	if err := os.WriteFile(file, []byte(got.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

type mask struct {
	re *regexp.Regexp
	by string
}

func masksOf(ts *testscript.TestScript) (out []mask) {
	b, err := os.ReadFile(ts.MkAbs("masks"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		re, by, ok := strings.Cut(strings.TrimRight(line, "\n"), " => ")
		if !ok {
			continue
		}
		out = append(out, mask{regexp.MustCompile(re), by})
	}
	return out
}

// Words splits a line at spaces; what is between single quotes is one word, or a part of one.
func Words(line string) (words []string) {
	in, some := false, false
	var w strings.Builder
	for _, r := range line {
		switch {
		case r == '\'':
			in, some = !in, true
		case r == ' ' && !in:
			if some {
				words = append(words, w.String())
			}
			w.Reset()
			some = false
		default:
			w.WriteRune(r)
			some = true
		}
	}
	if some {
		words = append(words, w.String())
	}
	return words
}
