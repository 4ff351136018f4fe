// Package commands finds the commands that the pages of the project name: those of blocks, of tables, and
// of sentences. Tests of the programs check that each command line is one that the program takes, and
// package stranger runs those that can run.
package commands

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Command is a command of a page.
type Command struct {
	Page string
	Line int
	// Text is what stands there, without a prompt.
	Text string
	// Inline says that it stands in a sentence: it may be a mention of a program, or a part of a command.
	Inline bool
}

// begins matches what begins a command of a page: a program of ours, or one that starts or watches them,
// behind variables of the environment.
var begins = regexp.MustCompile(`^([A-Z_]+=\S+ )*(uetperf|uetdump|tshark|uetswitch|testbed|go (run|install|test|build|vet|doc)|mpiexec|mpirun|srun|python3|valgrind|perf|strace|taskset|time|\.ci/(run|release)|\$EDITOR|git worktree)( |$)`)

// span matches code in a sentence.
var span = regexp.MustCompile("`([^`]+)`")

// Extract returns the commands of a page: the lines of indented and of fenced blocks that begin as
// commands do, with or without a prompt, and code in sentences and tables. What a table has in its
// first cell is no mention.
func Extract(page, text string) (out []Command) {
	fenced := false
	for i, s := range strings.Split(text, "\n") {
		if strings.HasPrefix(s, "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(s, "    ") {
			cmd := strings.TrimPrefix(strings.TrimSpace(s), "$ ")
			if fenced && strings.HasPrefix(s, " ") { // output
				continue
			}
			if begins.MatchString(cmd) {
				out = append(out, Command{page, i + 1, cmd, false})
			}
			continue
		}
		cell := strings.HasPrefix(s, "| `")
		for _, m := range span.FindAllStringSubmatchIndex(s, -1) {
			cmd := strings.ReplaceAll(s[m[2]:m[3]], `\|`, "|")
			if begins.MatchString(cmd) {
				out = append(out, Command{page, i + 1, cmd, !cell || m[0] != len("| ")})
			}
		}
	}
	return out
}

// Read returns the commands of all pages of the tree at root, except of those that tell of former times.
func Read(root string) (out []Command, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "decisions" || name == "testdata" || len(name) > 1 && name[0] == '.' && name != ".."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".md" || name == "CHANGELOG.md":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := filepath.Rel(root, path)
		out = append(out, Extract(filepath.ToSlash(page), string(b))...)
		return err
	})
	return out, err
}

// Simple returns the simple commands that a shell makes of a command, as words: without comments,
// variables, redirections and the programs that only start others (taskset, valgrind, mpiexec, …).
func (c *Command) Simple() (out [][]string) {
	var words []string
	end := func() {
		if w := bare(words); len(w) > 0 {
			out = append(out, w)
		}
		words = nil
	}
	for _, w := range split(c.Text) {
		switch {
		case w == "&&" || w == "|" || w == ";" || w == "&":
			end()
		default:
			if m := braces.FindStringSubmatch(w); m != nil {
				words = append(words, m[1]+m[2]+m[4])
				w = m[1] + m[3] + m[4]
			}
			words = append(words, w)
		}
	}
	end()
	return out
}

// braces matches a range that a shell expands; its ends stand for it.
var braces = regexp.MustCompile(`^(.*)\{(\w+)\.\.(\w+)\}(.*)$`)

// split splits a text as a shell does. A comment ends it.
func split(text string) (out []string) {
	var w strings.Builder
	quote, in := rune(0), false
	for i, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			w.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == '#' && !in && i > 0:
			return out
		case r == ' ':
			if in {
				out = append(out, w.String())
			}
			w.Reset()
			in = false
		default:
			w.WriteRune(r)
			in = true
		}
	}
	if in {
		out = append(out, w.String())
	}
	return out
}

// starters are the programs that start another one, with the flags of theirs that take a value.
var starters = map[string][]string{
	"valgrind": nil, "taskset": {"-c"}, "mpiexec": {"-n"}, "mpirun": {"-n", "-x"}, "srun": {"-n", "-N"}, "time": nil,
}

// bare drops variables, starters and redirections.
func bare(words []string) []string {
	for len(words) > 0 {
		values, starts := starters[words[0]]
		switch {
		case regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]):
			words = words[1:]
			continue
		case !starts:
			if i := slices.Index(words, ">"); i > 0 {
				words = words[:i]
			}
			return words
		}
		rest := words[1:]
		for len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || words[0] == "taskset" && rest[0] == "0") {
			if slices.Contains(values, rest[0]) && len(rest) > 1 {
				rest = rest[1:]
			}
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return words[:1] // the starter itself is meant
		}
		words = rest
	}
	return nil
}

// program is the name of the program of the tree that words start, "" if none.
func program(words []string) (name string, args []string) {
	switch {
	case slices.Contains([]string{"uetperf", "uetdump", "uetswitch", "testbed"}, words[0]):
		return words[0], words[1:]
	case len(words) > 2 && words[0] == "go" && words[1] == "run" && strings.HasPrefix(words[2], "./cmd/"):
		return strings.TrimPrefix(words[2], "./cmd/"), words[3:]
	}
	return "", nil
}

// A Line is a command line of one program.
type Line struct {
	*Command
	Args []string
}

// Args0 is the first argument, "" if there is none.
func (l *Line) Args0() string {
	if len(l.Args) == 0 {
		return ""
	}
	return l.Args[0]
}

// Of returns the command lines of a program of the tree at root. Patterns, which have … in them, are left out.
func Of(root, name string) (lines []Line, err error) {
	all, err := Read(root)
	for i := range all {
		for _, words := range all[i].Simple() {
			if p, args := program(words); p == name && !pattern(words) {
				lines = append(lines, Line{&all[i], args})
			}
		}
	}
	return lines, err
}

// pattern reports whether words are a pattern of a command.
func pattern(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "…") })
}

// Part reports whether the line begins with a flag that belongs to a command which is not named.
func (l *Line) Part() bool {
	return l.Inline && len(l.Args) > 0 && strings.HasPrefix(l.Args[0], "-") && l.Args[0] != "--version"
}
